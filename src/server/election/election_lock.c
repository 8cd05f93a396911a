/* SPDX-License-Identifier: MIT
 * server/election/election_lock.c - the election of processes of one host: a
 * lock on a file.
 *
 * Theory of operation. The kernel elects: one candidate has the lock of the
 * open file description, until it closes the file or dies. So holding needs no
 * clock. A stopped process keeps the lock, and no other process grants anything
 * meanwhile, which is safe, though not desirable.
 *
 * A candidate without the lock tries to get it every LOOK, and sooner when
 * inotify reports that a process has closed the file. The report comes a moment
 * before the kernel releases the lock, so one try is made at once and another a
 * few milliseconds later. (Rejected: a thread that waits in F_OFD_SETLKW, which
 * only a signal can interrupt.)
 *
 * The term is a number in the file: raised and on the disk before it is
 * reported. The line is written over the old one and then cut to its length, so
 * that a crash between the two loses neither.
 *
 *     "41 a.example:7077\n"   ->   "42 b:7077\nple:7077\n"   ->   "42 b:7077\n"
 *
 * After the identity follows a number in sixteen digits, which a master may
 * have kept for its successor, and which stays until another number is kept.
 *
 * If the file is removed, two processes can have a lock on two files of one
 * name; the process with the older file finds that out when it is asked whether
 * it holds. Terms begin again then, at the time of day. */

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/clock.h"
#include "server/election/election_internal.h"

#define LOOK (100 * WEIR_MILLISECOND)  /* interval of tries to lock */
#define SOON (5 * WEIR_MILLISECOND)    /* … after a process closed the file */
#define CHECK (100 * WEIR_MILLISECOND) /* a master's interval of checks */
#define LINE_MAX_BYTES 304 /* a term, an identity, a number, and blanks */

struct by_lock {
    struct weir_election *election;
    int fd;       /* of the file; -1: none. This process has its lock when
                   * is_master */
    dev_t device; /* of the file that is open */
    ino_t inode;
    int notify_fd;      /* of inotify; -1: none */
    struct event *look; /* owned, as the next */
    struct event *notify;
    bool is_master;
    bool is_doubted; /* the file was missing at a check */
    bool is_resigned;
    bool is_troubled; /* and that was logged */
    uint64_t term;    /* this process's, or the highest one read */
    uint64_t number;  /* in the file; set by a master */
    bool is_first;    /* the file was empty when it was locked, and no term
                       * was ever read */
};

struct line {
    uint64_t term;
    char identity[256];
    uint64_t number; /* 0: none */
};

static int refuse_lock_file(const struct by_lock *by, const char *what,
                            struct weir_diag *diag)
{
    return weir_diag_set(diag, WEIR_ESYSTEM, "the lock of the election: can't ",
                         what, " ", by->election->options.path, ": ",
                         strerror(errno), NULL);
}

/* ---- The file ---- */

/* 1; 0: the file is empty; WEIR_EINVAL: it is another file; WEIR_ESYSTEM. */
static int read_lock_line(const struct by_lock *by, struct line *out,
                          struct weir_diag *diag)
{
    char text[LINE_MAX_BYTES + 1];
    ssize_t len = pread(by->fd, text, LINE_MAX_BYTES, 0);
    if (len < 0)
        return refuse_lock_file(by, "read", diag);
    if (len == 0)
        return 0;
    text[len] = '\0';
    int end = 0, digits = 0;
    struct line line = { .number = 0 };
    bool is_line = text[0] >= '0' && text[0] <= '9' &&
                   sscanf(text, "%" SCNu64 " %255s%n", &line.term,
                          line.identity, &end) == 2;
    if (is_line && text[end] == ' ' &&
        sscanf(text + end + 1, "%16" SCNx64 "%n", &line.number, &digits) == 1)
        end += 1 + digits;
    if (!is_line || text[end] != '\n' || line.term >= INT64_MAX)
        return weir_diag_set(diag, WEIR_EINVAL, by->election->options.path,
                             " isn't the lock of an election: name another "
                             "file, which is made if it isn't there",
                             NULL);
    *out = line;
    return 1;
}

static int write_lock_line(const struct by_lock *by, uint64_t term,
                           uint64_t number, struct weir_diag *diag)
{
    char text[LINE_MAX_BYTES + 1];
    int len = snprintf(text, sizeof text, "%" PRIu64 " %s %016" PRIx64 "\n",
                       term, by->election->options.identity, number);
    weir_assert(len > 0 && len <= LINE_MAX_BYTES);
    if (pwrite(by->fd, text, (size_t)len, 0) != len ||
        ftruncate(by->fd, len) != 0 || fdatasync(by->fd) != 0)
        return refuse_lock_file(by, "write", diag);
    return 0;
}

/* Whether the path still leads to the file that is open. */
static bool is_lock_in_place(const struct by_lock *by)
{
    struct stat named;
    return stat(by->election->options.path, &named) == 0 &&
           named.st_ino == by->inode && named.st_dev == by->device;
}

/* No other user may read the file: a read lock, for which reading is enough,
 * keeps every server from being elected. */
static int open_lock_file(struct by_lock *by, struct weir_diag *diag)
{
    struct line line;
    struct stat file;
    by->fd =
        open(by->election->options.path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (by->fd < 0 || fstat(by->fd, &file) != 0)
        return refuse_lock_file(by, "open", diag);
    by->device = file.st_dev;
    by->inode = file.st_ino;
    int got = read_lock_line(by, &line, diag);
    if (got < 0)
        return got;
    if (by->notify_fd >= 0)
        (void)inotify_add_watch(by->notify_fd, by->election->options.path,
                                IN_CLOSE | IN_MODIFY);
    return 0;
}

static void close_lock_file(struct by_lock *by)
{
    if (by->fd >= 0)
        close(by->fd);
    by->fd = -1;
}

/* 1: this process has the lock; 0: another has it. */
static int take_lock(const struct by_lock *by, struct weir_diag *diag)
{
    weir_assert(by->fd >= 0);
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    if (fcntl(by->fd, F_OFD_SETLK, &lock) == 0)
        return 1;
    if (errno == EAGAIN || errno == EACCES)
        return 0;
    return refuse_lock_file(by, "lock", diag);
}

/* ---- News ---- */

static void report_lock_change(struct by_lock *by, bool is_master,
                               const char *master, uint64_t term)
{
    struct weir_election_news news = {
        .is_master = is_master,
        .master = master,
        .term = term,
        .number = is_master ? by->number : 0,
        .is_first = is_master && by->is_first,
    };
    weir_election_report(by->election, &news);
}

/* Reports the master's name, once the master has written it. This server's own
 * name is that of a dead process. */
static int report_other_master(struct by_lock *by, struct weir_diag *diag)
{
    struct line line = { .term = 0 };
    int got = read_lock_line(by, &line, diag);
    if (got < 0)
        return got;
    if (line.term > by->term)
        by->term = line.term;
    bool is_other =
        got > 0 && strcmp(line.identity, by->election->options.identity) != 0;
    report_lock_change(by, false, is_other ? line.identity : "", line.term);
    return 0;
}

/* ---- Being master ---- */

/* The lock is taken; the mastership begins once the term is on the disk. */
static int begin_term(struct by_lock *by, struct weir_diag *diag)
{
    weir_assert(!by->is_master && by->fd >= 0);
    struct line line = { .term = 0 };
    int got = read_lock_line(by, &line, diag);
    int error = got;
    /* A term below the highest one read: the file is a new one. And not below
     * the terms of masters without a lock: those are times. */
    uint64_t wall = weir_clock_wall() / WEIR_MILLISECOND;
    uint64_t term = (line.term > by->term ? line.term : by->term) + 1;
    if (term < wall)
        term = wall;
    if (error >= 0)
        error = write_lock_line(by, term, line.number, diag);
    if (error < 0)
        return error;
    by->is_first = got == 0 && by->term == 0;
    by->term = term;
    by->number = line.number;
    by->is_master = true;
    by->is_doubted = false;
    weir_log_limited(
        by->election->options.log, WEIR_LOG_ELECTION, WEIR_LOG_INFO,
        "election: this server is master (term %" PRIu64 ", lock %s)", by->term,
        by->election->options.path);
    report_lock_change(by, true, by->election->options.identity, by->term);
    return 0;
}

static void end_term(struct by_lock *by, enum weir_log_level level,
                     const char *why)
{
    weir_assert(by->is_master);
    by->is_master = false; /* before the lock is released */
    close_lock_file(by);
    weir_log_limited(by->election->options.log, WEIR_LOG_ELECTION, level,
                     "election: no longer master: %s (term %" PRIu64
                     ", lock %s)",
                     why, by->term, by->election->options.path);
}

static int stand_for_lock(struct by_lock *by, struct weir_diag *diag)
{
    int error = by->fd < 0 ? open_lock_file(by, diag) : 0;
    if (error < 0)
        return error;
    int got = take_lock(by, diag);
    if (got < 0)
        return got;
    if (got == 0 && is_lock_in_place(by))
        return report_other_master(by, diag);
    if (is_lock_in_place(by))
        return begin_term(by, diag);
    close_lock_file(
        by); /* the file was removed: the next try opens the new one */
    return 0;
}

/* ---- Events ---- */

static void set_lock_timer(struct by_lock *by, weir_duration delay)
{
    struct timeval time = weir_timeval_of(delay);
    (void)evtimer_add(by->look, &time);
}

static void look_at_lock(struct by_lock *by)
{
    struct weir_diag diag = { .text = "" };
    if (by->is_master && !by->is_doubted && is_lock_in_place(by))
        return;
    if (by->is_master) {
        end_term(by, WEIR_LOG_ERROR, "the file was removed; leave it to Weir");
        report_lock_change(by, false, "", 0);
    }
    if (by->is_resigned) /* from a callback of report_lock_change() */
        return;
    int error = stand_for_lock(by, &diag);
    if (error < 0) {
        close_lock_file(by);
        if (!by->is_troubled)
            weir_log_limited(by->election->options.log, WEIR_LOG_ELECTION,
                             WEIR_LOG_WARNING, "election: %s; trying again",
                             diag.text);
    }
    by->is_troubled = error < 0;
}

static void on_lock_timer(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct by_lock *by = context;
    if (by->is_resigned) {
        report_lock_change(by, false, "", 0);
        weir_election_resigned(by->election);
        return;
    }
    look_at_lock(by);
    set_lock_timer(by, by->is_master ? CHECK : LOOK);
}

static void on_notify(evutil_socket_t fd, short what, void *context)
{
    (void)what;
    struct by_lock *by = context;
    char ignored[4096];
    while (read(fd, ignored, sizeof ignored) > 0) {
    }
    /* In trouble the file is closed again, and inotify reports that as well. */
    if (by->is_master || by->is_resigned || by->is_troubled)
        return;
    look_at_lock(by);
    set_lock_timer(by, SOON);
}

/* ---- The kind ---- */

/* A caller that was told once that this server isn't master leases no more. So
 * the term is over even if the file is back before the next check. */
static bool lock_holds(void *part)
{
    struct by_lock *by = part;
    if (!by->is_master || by->is_resigned)
        return false;
    by->is_doubted = by->is_doubted || !is_lock_in_place(by);
    return !by->is_doubted;
}

static void lock_keep(void *part, uint64_t number)
{
    struct by_lock *by = part;
    struct weir_diag diag = { .text = "" };
    int error = WEIR_ENOTREADY;
    if (lock_holds(by))
        error = write_lock_line(by, by->term, number, &diag);
    if (error == 0)
        by->number = number;
    weir_election_kept(by->election, number, error, diag.text);
}

static void lock_resign(void *part)
{
    struct by_lock *by = part;
    if (by->is_resigned)
        return;
    by->is_resigned = true;
    if (by->is_master)
        end_term(by, WEIR_LOG_INFO, "handed over");
    else
        close_lock_file(by);
    weir_assert(!by->is_master && by->fd < 0);
    event_active(by->look, EV_TIMEOUT, 0);
}

static void lock_free(void *part)
{
    struct by_lock *by = part;
    if (by->look)
        event_free(by->look);
    if (by->notify)
        event_free(by->notify);
    if (by->notify_fd >= 0)
        close(by->notify_fd);
    by->is_master = false;
    close_lock_file(by);
    free(by);
}

/* Without inotify only the timer tries the lock. */
static int make_events(struct by_lock *by)
{
    struct event_base *base = by->election->options.base;
    by->look = evtimer_new(base, on_lock_timer, by);
    by->notify_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (by->notify_fd < 0)
        return by->look ? 0 : WEIR_ENOMEM;
    by->notify =
        event_new(base, by->notify_fd, EV_READ | EV_PERSIST, on_notify, by);
    if (!by->look || !by->notify || event_add(by->notify, NULL) != 0)
        return WEIR_ENOMEM;
    return 0;
}

int weir_election_make_file(struct weir_election *election,
                            struct weir_diag *diag)
{
    static const struct weir_election_methods methods = {
        .holds = lock_holds,
        .resign = lock_resign,
        .free = lock_free,
        .keep = lock_keep,
    };
    struct by_lock *by = calloc(1, sizeof *by);
    if (!by)
        return WEIR_ENOMEM;
    election->methods = &methods;
    election->part = by;
    by->election = election;
    by->fd = by->notify_fd = -1;
    int error = make_events(by);
    if (error == 0)
        error = open_lock_file(by, diag);
    if (error == 0)
        event_active(by->look, EV_TIMEOUT, 0);
    return error;
}
