/* SPDX-License-Identifier: MIT
 * server/log.c - what a root says while it runs.
 *
 * A line is written by one call, so that lines of two processes with one
 * standard error don't mix. The time is UTC, for people; nothing else here
 * knows the time of day. */

#include "server/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES 1024

static const char *const levels[] = {
    [WEIR_LOG_ERROR] = "error",
    [WEIR_LOG_WARNING] = "warning",
    [WEIR_LOG_INFO] = "info",
    [WEIR_LOG_DEBUG] = "debug",
};

int weir_log_level_parse(const char *text, enum weir_log_level *out)
{
    for (size_t i = 0; i < WEIR_COUNT_OF(levels); i++) {
        if (strcmp(text, levels[i]) != 0)
            continue;
        *out = (enum weir_log_level)i;
        return 0;
    }
    return WEIR_EINVAL;
}

static size_t print_time(char *buf, size_t size)
{
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    struct tm utc;
    gmtime_r(&at.tv_sec, &utc);
    size_t len = strftime(buf, size, "%Y-%m-%dT%H:%M:%S", &utc);
    len += (size_t)snprintf(buf + len, size - len, ".%03ldZ ",
                            at.tv_nsec / 1000000);
    return len;
}

void weir_log(const struct weir_log *log, enum weir_log_level level,
              const char *format, ...)
{
    if (level > log->level)
        return;
    char line[LINE_MAX_BYTES];
    size_t len = print_time(line, sizeof line);
    len += (size_t)snprintf(line + len, sizeof line - len, "%s: ",
                            levels[level]);
    va_list args;
    va_start(args, format);
    int more = vsnprintf(line + len, sizeof line - len, format, args);
    va_end(args);
    size_t room = sizeof line - len - 1;
    size_t written = more < 0 ? 0 : (size_t)more < room ? (size_t)more : room;
    for (size_t i = len; i < len + written; i++)
        if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
            line[i] = '?';
    len += written;
    line[len++] = '\n';
    ssize_t ignored = write(STDERR_FILENO, line, len);
    (void)ignored; /* nowhere to complain */
}
