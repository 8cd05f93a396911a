/* SPDX-License-Identifier: MIT
 * server/log.h - one line an event, to standard error. */

#ifndef WEIR_LOG_H
#define WEIR_LOG_H

#include "base/base.h"

enum weir_log_level {
    WEIR_LOG_ERROR,
    WEIR_LOG_WARNING,
    WEIR_LOG_INFO,
    WEIR_LOG_DEBUG,
};

struct weir_log {
    enum weir_log_level level; /* what is less urgent isn't written */
};

/* "error" … "debug". 0 or WEIR_EINVAL. */
int weir_log_level_parse(const char *text, enum weir_log_level *out);

/* Control characters in the message are written as '?': a name may come
 * from anywhere. */
void weir_log(const struct weir_log *log, enum weir_log_level level,
              const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif /* WEIR_LOG_H */
