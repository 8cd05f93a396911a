/* SPDX-License-Identifier: MIT
 * server/election/mastership.c - passes the election's news on to the root.
 *
 * A mastership can end in three ways: the election reports it, from the loop;
 * its time is over by the clock, which the check before a grant finds first; or
 * this server resigns. In each case the root is told the same, and once: its
 * leases are then another server's to hand out.
 *
 * If the election has a place for it, a number is kept there
 * (leased/lease_pool_roster.c): one at the begin of each mastership, before any
 * answer if there was a mastership before, and another when a new lease holder
 * waits for it. That is checked whenever the root has received requests; the
 * number is kept a moment later, for all that come in that moment. If it can't
 * be kept, a new holder waits longer (leased/lease_pool_roster.c), and it is
 * tried again.
 *
 * A new master learns which leases are out, unless the operator says that none
 * is, or it takes the mark of a new store (docs/design/nothing-out.md).
 *
 * A server without an election is the only one, by its configuration. Two such
 * roots on one store would lease twice the limit. So if the store is a file, a
 * lock beside it elects them all the same. A root that has that lock from the
 * beginning is alone, as far as can be known. */

#include "server/election/mastership.h"

#include <stdio.h>
#include <stdlib.h>

#include <event2/event.h>

#include "core/base/rng.h"
#include "io/clock.h"

#define LOCK_MAX 4096 /* bytes of its path */

#define MOMENT (5 * WEIR_MILLISECOND)
#define PAUSE (200 * WEIR_MILLISECOND) /* after a failed try to keep one */

struct weir_mastership {
    struct weir_election *election; /* owned */
    struct weir_root *root;         /* borrowed */
    struct weir_log *log;           /* borrowed */
    void (*on_change)(void *context);
    void *context;
    char master[WEIR_MASTER_MAX + 1]; /* another server; "": unknown, or it is
                                       * this one */
    uint64_t term;                    /* the highest term received */
    struct event *keep;               /* owned; NULL: nothing is kept */
    uint64_t kept;                    /* how many numbers were kept */
    uint64_t keeping;                 /* the number under way; 0: none */
    bool is_troubled;                 /* a failure to keep one was logged */
    bool is_unkept;                   /* no answers until a number is kept */
    bool (*take_mark)(void *context); /* NULL: there is none */
    uint32_t marks_asked;             /* and not answered */
    uint64_t mark_term;               /* of the last ask; 0: it is no proof */
    bool is_alone;                    /* no other server was ever seen */
    bool is_clean;                    /* nothing is out, says the operator */
    bool is_beside;                   /* by the lock beside the store */
    bool is_resigning;
    bool is_resigned;
};

static void end_root_lease(struct weir_mastership *m)
{
    struct weir_text master = { m->master, strlen(m->master) };
    weir_root_lease_end(m->root, m->term, master, weir_clock_now());
    m->on_change(m->context);
}

/* ---- The number in the election ---- */

static void keep_after(struct weir_mastership *m, weir_duration delay)
{
    struct timeval time = weir_timeval_of(delay);
    if (m->keep && m->keeping == 0 && !evtimer_pending(m->keep, NULL))
        (void)evtimer_add(m->keep, &time);
}

/* A number that differs from all others of this and other terms, but for
 * chance. */
static void keep_another(struct weir_mastership *m)
{
    weir_assert(m->keeping == 0);
    uint64_t number = weir_rng_mix(m->term) + ++m->kept;
    if (number == 0 || number == WEIR_ELECTION_UNREAD)
        number = 1;
    m->keeping = number;
    weir_election_keep(m->election, number);
}

static void on_number_kept(void *context, uint64_t number, int error,
                           const char *why)
{
    struct weir_mastership *m = context;
    if (number != m->keeping || !weir_root_leases(m->root))
        return;
    weir_assert(number > 0);
    m->keeping = 0;
    if (error == WEIR_ENOTREADY) /* the loop will report it */
        return;
    if (error < 0 && !m->is_troubled)
        weir_log_limited(
            m->log, WEIR_LOG_LEASES, WEIR_LOG_WARNING,
            "a new lease holder waits for its lease, and so will holders "
            "at the next master: %s; trying again",
            why);
    m->is_troubled = error < 0;
    if (error < 0) {
        keep_after(m, PAUSE);
        return;
    }
    m->is_unkept = false;
    weir_root_lease_keep(m->root, number, weir_clock_now());
    m->on_change(m->context);
}

static void on_keep_timer(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct weir_mastership *m = context;
    bool wants = m->is_unkept || weir_root_lease_wants_keep(m->root);
    if (wants && m->keeping == 0 && weir_root_leases(m->root))
        keep_another(m);
}

/* ---- The mark in the store ---- */

/* Each master takes the mark, so that no later one finds it, whatever elects
 * that one. It proves something to the first master of an election only: the
 * mark stays after a master that couldn't take it, but that one has left its
 * trace in the election. */
static void ask_for_mark(struct weir_mastership *m, bool is_first)
{
    if (!m->take_mark || !m->take_mark(m->context))
        return;
    m->marks_asked++;
    m->mark_term = is_first ? m->term : 0;
}

void weir_mastership_set_mark(struct weir_mastership *m, bool never)
{
    weir_assert(m->marks_asked > 0);
    bool is_last = --m->marks_asked == 0;
    if (!never || !is_last || m->mark_term != m->term ||
        !weir_mastership_holds(m))
        return;
    bool ends = weir_root_lease_nothing_out(m->root, weir_clock_now());
    weir_log_limited(m->log, WEIR_LOG_LEASES,
                     ends ? WEIR_LOG_INFO : WEIR_LOG_WARNING,
                     ends ? "no root of this store was ever master: no lease "
                            "is out"
                          : "no root of this store was ever master, but a "
                            "client has a lease: this root waits for the end "
                            "of such leases");
    m->on_change(m->context);
}

/* ---- The election's news ---- */

static void begin_mastership(struct weir_mastership *m,
                             const struct weir_election_news *news)
{
    weir_assert(m->term > 0);
    weir_instant now = weir_clock_now();
    weir_log_limited(
        m->log, WEIR_LOG_LEASES, WEIR_LOG_INFO,
        "this root hands out leases, term %llu%s", (unsigned long long)m->term,
        m->is_clean && m->is_alone ? "; none is out, as --alone says" : "");
    weir_root_lease_alone(m->root, m->is_alone);
    /* Vacant since now, and not since the former one was lost: another server
     * may have been master in between. */
    bool is_clean = m->is_clean && m->is_alone;
    weir_root_lease_begin(m->root, m->term, is_clean ? WEIR_NEVER : now, now);
    m->keeping = 0;
    m->is_unkept = m->keep != NULL;
    if (m->is_unkept) {
        /* No client is answered before there is a trace of this mastership. */
        bool traceless = news->number == 0 && m->take_mark;
        weir_root_lease_found(m->root,
                              traceless ? WEIR_KEPT_UNKNOWN : news->number);
        keep_another(m);
    }
    ask_for_mark(m, news->is_first && !is_clean);
    m->is_clean = false;
    m->on_change(m->context);
}

static void end_mastership(struct weir_mastership *m, const char *why)
{
    if (weir_root_leases(m->root))
        weir_log_limited(m->log, WEIR_LOG_LEASES, WEIR_LOG_WARNING,
                         "this root hands out no leases: %s%s", why, m->master);
    end_root_lease(m);
}

static void on_election_news(void *context,
                             const struct weir_election_news *news)
{
    struct weir_mastership *m = context;
    if (news->term > m->term)
        m->term = news->term;
    m->master[0] = '\0';
    if (news->is_master) {
        begin_mastership(m, news);
        return;
    }
    if (m->is_alone && m->is_beside && !m->is_resigning)
        weir_log_limited(
            m->log, WEIR_LOG_LEASES, WEIR_LOG_WARNING,
            "this root hands out no leases: %s%sanother root on this "
            "store does, and this one stands by; choose their election "
            "with --election",
            news->master, news->master[0] ? ", " : "");
    m->is_alone = false;
    snprintf(m->master, sizeof m->master, "%s", news->master);
    end_mastership(m,
                   m->master[0] ? "the master is " : "the master isn't known");
}

static void on_resigned(void *context)
{
    struct weir_mastership *m = context;
    m->is_resigned = true;
}

/* If the file can't be locked, the server serves all the same. */
static int stand_beside(struct weir_mastership *m,
                        const struct weir_election_options *options,
                        const char *store)
{
    static const char scheme[] = "sqlite:";
    char path[LOCK_MAX];
    if (!store || strncmp(store, scheme, sizeof scheme - 1) != 0 ||
        snprintf(path, sizeof path, "%s.master", store + sizeof scheme - 1) >=
            LOCK_MAX)
        return WEIR_ENOENT;
    struct weir_diag diag = { .text = "" };
    struct weir_election_options election = *options;
    election.kind = WEIR_ELECTION_FILE;
    election.path = path;
    int error = weir_election_new(&election, &m->election, &diag);
    m->is_beside = error == 0;
    if (error < 0)
        weir_log_limited(
            m->log, WEIR_LOG_LEASES, WEIR_LOG_WARNING,
            "%s; if another root on this store hands out leases, this "
            "root won't notice",
            diag.text);
    return error;
}

int weir_mastership_new(const struct weir_mastership_options *options,
                        struct weir_mastership **out, struct weir_diag *diag)
{
    struct weir_mastership *m = calloc(1, sizeof *m);
    if (!m)
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
    m->root = options->root;
    m->log = options->election.log;
    m->on_change = options->on_change;
    m->context = options->context;
    struct weir_election_options election = options->election;
    election.on_change = on_election_news;
    election.on_kept = on_number_kept;
    election.on_resigned = on_resigned;
    election.context = m;
    m->is_alone = election.kind == WEIR_ELECTION_NONE;
    m->is_clean = options->alone;
    m->take_mark = options->take_mark;
    int error = WEIR_ENOENT;
    if (m->is_alone)
        error = stand_beside(m, &election, options->store);
    if (error < 0)
        error = weir_election_new(&election, &m->election, diag);
    if (error == 0 && weir_election_keeps(m->election)) {
        m->keep = evtimer_new(election.base, on_keep_timer, m);
        error = m->keep ? 0 : WEIR_ENOMEM;
    }
    if (error < 0)
        weir_mastership_free(&m);
    else
        *out = m;
    return error;
}

void weir_mastership_free(struct weir_mastership **mastership)
{
    if (!*mastership)
        return;
    if ((*mastership)->keep)
        event_free((*mastership)->keep);
    weir_election_free(&(*mastership)->election);
    free(*mastership);
    *mastership = NULL;
}

bool weir_mastership_holds(struct weir_mastership *m)
{
    if (!m || !weir_root_leases(m->root))
        return false;
    if (weir_election_holds(m->election))
        return true;
    end_mastership(m, "its mastership is over, ");
    return false;
}

void weir_mastership_keep(struct weir_mastership *m)
{
    if (m && weir_root_leases(m->root) && weir_root_lease_wants_keep(m->root))
        keep_after(m, MOMENT);
}

const char *weir_mastership_master(const struct weir_mastership *m)
{
    return m ? m->master : "";
}

void weir_mastership_resign(struct weir_mastership *m)
{
    weir_assert(!m->is_resigning);
    m->is_resigning = true;
    weir_election_resign(m->election);
    if (weir_root_leases(m->root))
        end_root_lease(m);
}

bool weir_mastership_is_settled(const struct weir_mastership *m)
{
    return !m->is_resigning || m->is_resigned;
}
