/* SPDX-License-Identifier: MIT
 * os/origin.h - whether a request of HTTP comes from where it may: a browser
 * can reach any door of its host on behalf of any page that it shows.
 *
 * An Origin, which browsers add to what a page sends elsewhere, must be this
 * very host, or a loopback name. Where loopback is all that keeps strangers
 * out, the Host must be a loopback name as well: a page whose name was made to
 * resolve to 127.0.0.1 sends its own. (Over TLS such a name has no
 * certificate.) */

#ifndef WEIR_ORIGIN_H
#define WEIR_ORIGIN_H

#include "base/base.h"

/* 'host' and 'origin' are the headers' values; NULL: there is none.
 * 'of_loopback': loopback is what keeps strangers out. */
bool weir_origin_is_welcome(const char *host, const char *origin,
                            bool of_loopback);

#endif /* WEIR_ORIGIN_H */
