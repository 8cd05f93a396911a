/* SPDX-License-Identifier: MIT
 * front/log.h - one line an event, to standard error.
 *
 * Lines that a peer can cause, or a condition that repeats, are limited by
 * their kind: WEIR_LOG_BURST at once and then one each WEIR_LOG_EVERY, or fewer
 * of some kinds. Of the lines over that the newest is kept, and the others are
 * counted. The next line of the kind has the count: "(1234 more like this left
 * out in the last 3 s)". If none comes, weir_log_tick() writes the kept one and
 * the count, and so does weir_log_end(): no count is lost, and the last line of
 * a kind is always written.
 *
 * A line for which standard error has no room just now (a pipe that nothing
 * reads, a full disk) is dropped; a later line says how many are missing.
 *
 * Any thread. */

#ifndef WEIR_LOG_H
#define WEIR_LOG_H

#include "core/base/base.h"

#define WEIR_LOG_LINE_MAX 1024 /* bytes of a line, with its end */
#define WEIR_LOG_KEPT_MAX 256  /* bytes that are kept of a line, with NUL */
#define WEIR_LOG_BURST 10      /* lines of one kind at once */
#define WEIR_LOG_EVERY WEIR_SECOND

enum weir_log_level {
    WEIR_LOG_ERROR,
    WEIR_LOG_WARNING,
    WEIR_LOG_INFO,
    WEIR_LOG_DEBUG,
};

/* One kind doesn't use up the lines of another. */
enum weir_log_kind {
    /* A listener refused a peer; see front/authorization.h. */
    WEIR_LOG_GRPC_TLS,
    WEIR_LOG_GRPC_CREDENTIAL,
    WEIR_LOG_GRPC_ROLE,
    WEIR_LOG_GRPC_NAME,
    WEIR_LOG_HTTP_TLS,
    WEIR_LOG_HTTP_CREDENTIAL,
    WEIR_LOG_HTTP_ROLE,
    WEIR_LOG_HTTP_NAME,
    WEIR_LOG_ACCEPT,      /* accept() failed: no descriptor is left */
    WEIR_LOG_CONNECTION,  /* a connection or a link came or went */
    WEIR_LOG_LINK,        /* a limiter's link was refused or dropped */
    WEIR_LOG_DOORMAN,     /* a client of Doorman asks for a resource that isn't
                          * leased: one a minute */
    WEIR_LOG_DOORMAN_ROW, /* a row of such a client is bad: one a minute */
    WEIR_LOG_STORE,
    WEIR_LOG_SNAPSHOT,
    WEIR_LOG_ELECTION, /* the master of leases */
    WEIR_LOG_ETCD,     /* how an election's etcd answers */
    WEIR_LOG_LEASES,   /* whether this root hands out leases */
    WEIR_LOG_LOAD,     /* this root is busy, or no longer */
    WEIR_LOG_ZONE,     /* a time zone isn't known here: one an hour */
    WEIR_LOG_LIBRARY,  /* libevent's own lines */
    /* Errors of protocol/: of enum weir_protocol, each a kind. */
    WEIR_LOG_PROTOCOL,
    WEIR_LOG_PROTOCOL_LAST = WEIR_LOG_PROTOCOL + 3,
    /* A limiter's events: of enum weir_event_type, each a kind. */
    WEIR_LOG_EVENT,
    WEIR_LOG_EVENT_LAST = WEIR_LOG_EVENT + 31
};
#define WEIR_LOG_KINDS (WEIR_LOG_EVENT_LAST + 1)

/* The state of one kind; the log's own. */
struct weir_log_limit {
    weir_instant used_up;      /* when the allowance of the lines so far ends */
    weir_instant since;        /* when the first of 'left_out' came */
    uint64_t left_out;         /* lines, including the kept one */
    enum weir_log_level level; /* of the kept one */
    char kept[WEIR_LOG_KEPT_MAX]; /* the newest of them, as it will be
                                   * written */
};

/* All zero but for the level at first. */
struct weir_log {
    enum weir_log_level level;   /* less urgent lines aren't written */
    weir_instant (*clock)(void); /* NULL: weir_clock_now() */
    struct weir_log_limit limits[WEIR_LOG_KINDS];
};

/* "error" … "debug". 0 or WEIR_EINVAL. */
int weir_log_level_parse(const char *text, enum weir_log_level *out);

/* Writes a line that only the operator causes: a start, a stop, a signal. Any
 * other line is limited.
 *
 * In all messages control and formatting characters of Unicode and bytes that
 * are no UTF-8 are written as "\x1b", so that a name from outside neither ends
 * the line nor steers a terminal. A message that is too long ends in "…". */
void weir_log(const struct weir_log *log, enum weir_log_level level,
              const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Writes a line if its kind has one left; otherwise keeps or counts it. */
void weir_log_limited(struct weir_log *log, enum weir_log_kind kind,
                      enum weir_log_level level, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* For struct weir_accept_short, with the log as its context. */
void weir_log_short(void *log, uint64_t count, const char *why);

/* Writes the kept lines of kinds that have a line left again. To be called each
 * second. */
void weir_log_tick(struct weir_log *log);
/* Writes all kept lines: the process ends. */
void weir_log_end(struct weir_log *log);

/* From now on libevent's lines go to this log, until another call; NULL:
 * libevent writes to standard error by itself, without a limit. To be called
 * before any other thread begins, and after all have ended. */
void weir_log_adopt_library(struct weir_log *log);

#endif /* WEIR_LOG_H */
