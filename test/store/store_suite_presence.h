/* SPDX-License-Identifier: MIT
 * test/store/store_suite_presence.h - the part of the suite about the roots
 * that are on a store. */

#ifndef WEIR_STORE_SUITE_PRESENCE_H
#define WEIR_STORE_SUITE_PRESENCE_H

/* For an empty store at 'url'; 'age' moves all rows that many seconds into the
 * past. */
void store_suite_presence(const char *url,
                          void (*age)(const char *url, int seconds));

#endif /* WEIR_STORE_SUITE_PRESENCE_H */
