/* SPDX-License-Identifier: MIT
 * lab/log_line.h - one line of a web server's access log, in common or combined
 * format:
 *
 *     192.0.2.7 - ann [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 17
 *         "http://referer/" "agent"
 *
 * Exactly three words precede the time: an additional first one, as in
 * vhost_combined, would be taken for the client. */

#ifndef WEIR_LOG_LINE_H
#define WEIR_LOG_LINE_H

#include "core/base/base.h"

/* The fields of a line; texts point into it. */
struct weir_log_line {
    struct weir_text client, user;
    struct weir_text method, path, protocol; /* "-" and absent ones, if the line
                                              * has no valid request */
    struct weir_text status, referer, agent;
    uint64_t bytes;        /* 0 for "-" */
    int64_t at;            /* seconds since 1970, UTC */
    struct weir_text rest; /* after the time */
};

/* The last minute read: lines of one minute follow each other, and it is parsed
 * once. Valid if zeroed. */
struct weir_log_clock {
    char text[23]; /* "17/May/2015:10:05" and "+0000" */
    int64_t at;    /* of its first second */
};

/* Reads client, user and time, and finds the rest. NULL, or a sentence that
 * names the missing part. */
const char *weir_log_line_begin(struct weir_text line,
                                struct weir_log_clock *clock,
                                struct weir_log_line *out);
/* Reads the rest; referer and agent may be missing, as in common format. */
const char *weir_log_line_end(struct weir_log_line *line);

#endif /* WEIR_LOG_LINE_H */
