/* SPDX-License-Identifier: MIT
 * door/page_file.h - the files of the page that a root and an agent show in
 * a browser, as they were built in (src/door/page/). */

#ifndef WEIR_PAGE_FILE_H
#define WEIR_PAGE_FILE_H

#include "base/base.h"

/* The header Content-Security-Policy of each: scripts, styles and data of the
 * server's own, nothing in frames: what a quota's name or label holds can't
 * become a script. uPlot sets styles by script, which this doesn't forbid. */
#define WEIR_PAGE_POLICY                                          \
    "default-src 'none'; script-src 'self'; style-src 'self'; "   \
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; " \
    "form-action 'none'; frame-ancestors 'none'"

/* What it looks at each second: a stream of events. */
#define WEIR_PAGE_EVENTS "/v1/events"
#define WEIR_PAGE_STREAMS_MAX 32 /* that a server keeps at once; then 503 */
#define WEIR_PAGE_STREAMS_EACH 8 /* of them, of one reader */

/* Static, all of it. */
struct weir_page_file {
    const char *path; /* "/", "/page/page.js" … */
    const char *type; /* content type */
    const char *etag; /* with its quotes; changes with the bytes */
    const unsigned char *plain, *gzip;
    size_t plain_len, gzip_len;
};

/* What is at a path of a request, without its query; NULL: nothing. */
const struct weir_page_file *weir_page_file_find(struct weir_text path);

/* Made by src/door/page/embed; ends with a path of NULL. */
extern const struct weir_page_file weir_page_files[];

#endif /* WEIR_PAGE_FILE_H */
