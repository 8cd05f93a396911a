/* SPDX-License-Identifier: MIT
 * io/origin.h - which HTTP requests a browser may send: a browser can reach any
 * listener of its host on behalf of any page that it shows.
 *
 * A request is foreign if
 *
 *   - it has an Origin that is not the listener's own, which is the scheme,
 *     host and port of the request's Host, or the public origin that the
 *     operator has named (behind a proxy the browser sees that one);
 *   - the browser marks it as cross-site (Sec-Fetch-Site), and it changes
 *     something;
 *   - the listener is protected only by being on loopback, and Host is no
 *     loopback name: a page with a name that was made to resolve to 127.0.0.1
 *     sends its own name. (Over TLS such a name has no certificate.)
 *
 * A request is simple if it changes something, is no DELETE, and has no content
 * type, or one of a form: a browser sends such a POST without a preflight, and
 * old browsers send no Origin with it. Such a request must have the type
 * application/json, which no form can send.
 *
 * Source: the Fetch standard (CORS-safelisted request-header, "null" origins),
 * Fetch Metadata Request Headers (W3C), RFC 6454. */

#ifndef WEIR_ORIGIN_H
#define WEIR_ORIGIN_H

#include "core/base/base.h"

#define WEIR_ORIGIN_MAX 280 /* bytes: a scheme, the longest name, a port */

enum weir_origin_verdict {
    WEIR_ORIGIN_WELCOME,
    WEIR_ORIGIN_FOREIGN,
    WEIR_ORIGIN_SIMPLE
};

/* Texts of the answers 403 and 415. */
#define WEIR_ORIGIN_FOREIGN_TEXT                                               \
    "the request comes from a page of another origin, or its Host isn't this " \
    "listener's: on loopback, use localhost or 127.0.0.1; behind a proxy, "    \
    "name its address by --public-origin"
#define WEIR_ORIGIN_SIMPLE_TEXT                                              \
    "send the header Content-Type: application/json; a browser sends other " \
    "types for any page, without asking here first"

/* The listener's exposure. */
struct weir_origin_own {
    bool tls;
    bool of_loopback;          /* only loopback keeps other hosts out */
    const char *public_origin; /* "https://weir.example"; borrowed; or NULL */
};

struct weir_origin_request {
    const char *method; /* all but GET and HEAD may change something */
    /* The values of these headers; NULL: absent. */
    const char *host, *origin, *sec_fetch_site, *content_type;
};

/* Pure; any thread. */
enum weir_origin_verdict weir_origin_check(
    const struct weir_origin_own *own,
    const struct weir_origin_request *request);

/* Whether 'text' is an origin as browsers send it, and no longer than
 * WEIR_ORIGIN_MAX: "http" or "https", "://", a host, and a port unless it is
 * the scheme's own. WEIR_EINVAL with 'diag' filled. */
int weir_origin_parse(const char *text, struct weir_diag *diag);

#endif /* WEIR_ORIGIN_H */
