/* SPDX-License-Identifier: MIT
 * front/log.c - the log of a root or an agent.
 *
 * A line is written by one call, so that lines of two processes with one
 * standard error don't mix. A line is dropped and counted rather than waited
 * for: a loop must not stop since nothing reads its log. The time is UTC, for
 * people; nothing else here knows the time of day.
 *
 * The limit of a kind is a leaky bucket as virtual time (GCRA): each line uses
 * WEIR_LOG_EVERY, and a line is left out if the kind is ahead of now by more
 * than the rest of its burst.
 *
 * The message is escaped as a whole and not argument by argument: no caller can
 * forget it. */

#include "front/log.h"

#include <assert.h>
#include <event2/event.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/base/atomic.h"
#include "core/quota/quota_text.h"
#include "io/clock.h"

#define MESSAGE_MAX 768 /* bytes of a message, escaped, with NUL */
#define ESCAPED_MAX 5   /* bytes of "\x1b", with NUL */
#define CUT "…"

static const char *const levels[] = {
    [WEIR_LOG_ERROR] = "error",
    [WEIR_LOG_WARNING] = "warning",
    [WEIR_LOG_INFO] = "info",
    [WEIR_LOG_DEBUG] = "debug",
};

/* Kinds with a cause that lasts until a setting is changed: the time from
 * one line to the next, without a burst. */
static const weir_duration seldom[WEIR_LOG_KINDS] = {
    [WEIR_LOG_DOORMAN] = 60 * WEIR_SECOND,
    [WEIR_LOG_DOORMAN_ROW] = 60 * WEIR_SECOND,
    [WEIR_LOG_ZONE] = 3600 * WEIR_SECOND,
};

/* The agent's loop and libweir's thread both run libevent, which may write
 * from either. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct weir_log *adopter; /* of libevent's lines; atomic */
static uint64_t lost;            /* lines since the last written one; atomic */

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

/* ---- Messages ---- */

/* Excludes control characters (C0, DEL, C1) and characters that change how
 * others are displayed: zero widths, directions, line and paragraph ends. */
static bool is_printable(uint32_t character)
{
    static const struct {
        uint32_t from, to;
    } hidden[] = {
        { 0x00, 0x1F },       { 0x7F, 0x9F },     { 0xAD, 0xAD },
        { 0x61C, 0x61C },     { 0x200B, 0x200F }, { 0x2028, 0x202E },
        { 0x2060, 0x206F },   { 0xFEFF, 0xFEFF }, { 0xFFF9, 0xFFFB },
        { 0xE0000, 0xE007F },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(hidden); i++)
        if (character >= hidden[i].from && character <= hidden[i].to)
            return false;
    return true;
}

/* Ends 'out' in "…" if it doesn't hold all of 'text'. */
static void escape_controls(struct weir_text text, char *buf, size_t size)
{
    struct weir_out out = { buf, size - sizeof CUT, 0 };
    while (text.len > 0) {
        uint32_t character;
        size_t len = weir_utf8_next(text, &character);
        bool shown = len > 0 && is_printable(character);
        struct weir_text part = { text.p, shown ? len : 1 };
        char escaped[ESCAPED_MAX];
        if (!shown)
            part = (struct weir_text){
                escaped, (size_t)snprintf(escaped, sizeof escaped, "\\x%02x",
                                          (unsigned char)text.p[0])
            };
        if (out.len + part.len > out.size)
            break;
        weir_out_text(&out, part);
        text.p += shown ? len : 1;
        text.len -= shown ? len : 1;
    }
    out.size = size - 1;
    weir_out_string(&out, text.len > 0 ? CUT : "");
    buf[out.len] = '\0';
}

__attribute__((format(printf, 2, 0))) static void print_message(
    char message[MESSAGE_MAX], const char *format, va_list args)
{
    /* When it is full, escape_controls() cuts it and adds "…". */
    char plain[MESSAGE_MAX];
    int len = vsnprintf(plain, sizeof plain, format, args);
    weir_assert(len >= 0);
    size_t most = (size_t)len < sizeof plain ? (size_t)len : sizeof plain - 1;
    escape_controls((struct weir_text){ plain, most }, message, MESSAGE_MAX);
}

/* ---- Lines ---- */

static size_t print_log_time(char *buf, size_t size)
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

/* Writes a line unless that would wait for the reader of a pipe: a pipe that
 * can be written to has room for PIPE_BUF bytes. */
static bool write_now(const char *line, size_t len)
{
    static_assert(WEIR_LOG_LINE_MAX <= PIPE_BUF, "a line is written at once");
    struct pollfd output = { .fd = STDERR_FILENO, .events = POLLOUT };
    bool ready = poll(&output, 1, 0) > 0 && (output.revents & POLLOUT);
    return ready && write(STDERR_FILENO, line, len) == (ssize_t)len;
}

/* Standard error took none of some lines: its pipe was full, or its disk. */
static bool write_lost(void)
{
    uint64_t count = weir_exchange(&lost, 0);
    char line[WEIR_LOG_LINE_MAX];
    if (count == 0)
        return true;
    size_t len = print_log_time(line, sizeof line);
    len += (size_t)snprintf(line + len, sizeof line - len,
                            "warning: %llu lines are missing here: standard "
                            "error was full\n",
                            (unsigned long long)count);
    if (write_now(line, len))
        return true;
    weir_fetch_add(&lost, count);
    return false;
}

/* 'left_out': lines in the time 'span' that weren't written. */
static void write_log_line(enum weir_log_level level, const char *message,
                           uint64_t left_out, weir_duration span)
{
    char line[WEIR_LOG_LINE_MAX];
    char more[128] = "";
    weir_assert(strlen(message) < MESSAGE_MAX);
    if (left_out > 0)
        snprintf(more, sizeof more,
                 " (%llu more like this left out in the last %llu s)",
                 (unsigned long long)left_out,
                 (unsigned long long)((span + WEIR_SECOND - 1) / WEIR_SECOND));
    size_t len = print_log_time(line, sizeof line);
    len += (size_t)snprintf(line + len, sizeof line - len, "%s: %s%s\n",
                            levels[level], message, more);
    weir_assert(len < sizeof line);
    if (!write_lost() || !write_now(line, len))
        weir_fetch_add(&lost, 1);
}

void weir_log(const struct weir_log *log, enum weir_log_level level,
              const char *format, ...)
{
    if (level > log->level)
        return;
    char message[MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    print_message(message, format, args);
    va_end(args);
    write_log_line(level, message, 0, 0);
}

/* ---- Limits ---- */

static weir_instant now_of(const struct weir_log *log)
{
    return log->clock ? log->clock() : weir_clock_now();
}

/* Takes a line of the kind's limit; false: none is left. */
static bool allow_line(struct weir_log *log, enum weir_log_kind kind,
                       weir_instant now)
{
    struct weir_log_limit *limit = &log->limits[kind];
    weir_duration every = seldom[kind] > 0 ? seldom[kind] : WEIR_LOG_EVERY;
    unsigned burst = seldom[kind] > 0 ? 1 : WEIR_LOG_BURST;
    if (limit->used_up < now)
        limit->used_up = now;
    if (limit->used_up - now > (burst - 1) * every)
        return false;
    limit->used_up += every;
    weir_assert(limit->used_up - now <= burst * every);
    return true;
}

/* A caller's 'now' may be a little older than that of another thread. */
static weir_duration time_left_out(const struct weir_log_limit *limit,
                                   weir_instant now)
{
    return now > limit->since ? now - limit->since : 0;
}

static void keep_line(struct weir_log_limit *limit, enum weir_log_level level,
                      const char *message, weir_instant now)
{
    weir_assert(level < WEIR_COUNT_OF(levels));
    if (limit->left_out++ == 0)
        limit->since = now;
    limit->level = level;
    escape_controls(weir_text_of(message), limit->kept, sizeof limit->kept);
}

static void log_message(struct weir_log *log, enum weir_log_kind kind,
                        enum weir_log_level level, const char *message)
{
    weir_instant now = now_of(log);
    struct weir_log_limit *limit = &log->limits[kind];
    pthread_mutex_lock(&lock);
    if (allow_line(log, kind, now)) {
        write_log_line(level, message, limit->left_out,
                       time_left_out(limit, now));
        limit->left_out = 0;
    } else {
        keep_line(limit, level, message, now);
    }
    pthread_mutex_unlock(&lock);
}

void weir_log_limited(struct weir_log *log, enum weir_log_kind kind,
                      enum weir_log_level level, const char *format, ...)
{
    weir_assert(kind < WEIR_LOG_KINDS);
    if (level > log->level)
        return;
    char message[MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    print_message(message, format, args);
    va_end(args);
    log_message(log, kind, level, message);
}

void weir_log_short(void *log, uint64_t count, const char *why)
{
    weir_log_limited(log, WEIR_LOG_ACCEPT, WEIR_LOG_WARNING,
                     "%s: %llu connections were closed at once; raise the "
                     "limit of open files (ulimit -n)",
                     why, (unsigned long long)count);
}

static void write_kept_lines(struct weir_log *log, bool all)
{
    weir_instant now = now_of(log);
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < WEIR_LOG_KINDS; i++) {
        struct weir_log_limit *limit = &log->limits[i];
        if (limit->left_out == 0 || !(all || allow_line(log, i, now)))
            continue;
        write_log_line(limit->level, limit->kept, limit->left_out - 1,
                       time_left_out(limit, now));
        limit->left_out = 0;
    }
    (void)write_lost();
    pthread_mutex_unlock(&lock);
}

void weir_log_tick(struct weir_log *log)
{
    write_kept_lines(log, false);
}

void weir_log_end(struct weir_log *log)
{
    write_kept_lines(log, true);
}

/* ---- libevent's own ---- */

static void log_libevent_line(int severity, const char *text)
{
    enum weir_log_level level = severity == EVENT_LOG_ERR    ? WEIR_LOG_ERROR
                                : severity == EVENT_LOG_WARN ? WEIR_LOG_WARNING
                                                             : WEIR_LOG_DEBUG;
    struct weir_log *log = weir_load_acquire(&adopter);
    if (!log)
        return;
    weir_log_limited(log, WEIR_LOG_LIBRARY, level, "libevent: %s", text);
}

void weir_log_adopt_library(struct weir_log *log)
{
    weir_store_release(&adopter, log);
    event_set_log_callback(log ? log_libevent_line : NULL);
}
