/* SPDX-License-Identifier: MIT
 * front/page_file.h - the files of the page that a root and an agent show in a
 * browser, as built into the binary (src/front/page/). */

#ifndef WEIR_PAGE_FILE_H
#define WEIR_PAGE_FILE_H

#include "core/base/base.h"

/* The header Content-Security-Policy of each: scripts, styles and data only
 * from this server, no frames. A quota's name or label can't become a script.
 * uPlot sets styles by script, which the policy allows. */
#define WEIR_PAGE_POLICY                                          \
    "default-src 'none'; script-src 'self'; style-src 'self'; "   \
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; " \
    "form-action 'none'; frame-ancestors 'none'"

/* The page's stream of events, one each second. */
#define WEIR_PAGE_EVENTS "/v1/events"
#define WEIR_PAGE_STREAMS_MAX 32 /* streams of a server at once; then 503 */
#define WEIR_PAGE_STREAMS_EACH 8 /* streams of one reader among them */

/* All static. */
struct weir_page_file {
    const char *path; /* "/", "/page/page.js" … */
    const char *type; /* content type */
    const char *etag; /* with its quotes; derived from the bytes */
    const unsigned char *plain, *gzip;
    size_t plain_len, gzip_len;
};

/* All files of the page. src/front/page/embed generates the list; its last
 * entry has the path NULL. */
extern const struct weir_page_file weir_page_files[];

#endif /* WEIR_PAGE_FILE_H */
