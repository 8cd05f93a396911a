/* SPDX-License-Identifier: MIT
 * io/ration.c - limits the connections and processor time of unauthenticated
 * peers.
 *
 * State. A source is a slot of an array and allocates nothing, so a peer with
 * many addresses costs no memory; two addresses in one slot share its part.
 * 'counts' is kept apart from the slots because each eviction searches it for
 * its maximum, and a flood can cause an eviction for each of its connections.
 *
 * Invariants (checked where the code relies on them): a waiting member is in
 * one queue of its source; a source is in 'active' if and only if a member of
 * it waits; 'waiting' is the number of waiting members; 'turn_of' is the member
 * that has its turn().
 *
 * Time is a token bucket in the form of GCRA: 'free_at' is the earliest instant
 * of the next turn; each turn moves it by WEIR_RATION_PART times its cost. A
 * turn is charged after it has run, so the debt is at most one turn's. A source
 * remembers at most DEFICIT_MAX, as a debt or as a claim, and a source without
 * waiting members keeps no claim. A turn in which its member is admitted isn't
 * charged. Instead the source goes to the end of the round: otherwise a source
 * would keep its turn as long as its members are admitted. */

#include "io/ration.h"

#include <event2/event.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/hash.h"
#include "io/clock.h"

#define QUANTUM ((int64_t)WEIR_RATION_QUANTUM)
#define DEFICIT_MAX (8 * QUANTUM)
#define COST_MIN (WEIR_MILLISECOND / 1000) /* of a turn, besides its time */

TAILQ_HEAD(members, weir_ration_member);

enum { FRESH, SERVED, QUEUES };
#define FRESH_EVERY 3 /* one in so many turns goes to a new member */

struct source {
    struct members all;
    struct members queue[QUEUES];
    unsigned turns;  /* turns given, modulo FRESH_EVERY */
    int64_t deficit; /* ns that it may still use; negative: a debt */
    bool is_active;
    TAILQ_ENTRY(source) link; /* while active */
};

struct weir_ration {
    struct weir_ration_options options;
    struct event *timer; /* owned; NULL without a loop */
    uint64_t seed;
    weir_instant free_at;
    size_t members, waiting;
    uint64_t evicted;
    weir_duration used;
    const struct weir_ration_member *turn_of; /* NULL: no turn runs, or its
                                               * member has left in it */
    bool is_free; /* … was admitted: the turn isn't charged */
    bool serves;  /* weir_ration_serve() is running … */
    bool doomed;  /* … and frees the ration at its end */
    TAILQ_HEAD(, source) active;
    uint32_t counts[WEIR_RATION_SOURCES]; /* members of each source */
    struct source sources[WEIR_RATION_SOURCES];
};

static uint64_t thread_time(void *context)
{
    (void)context;
    struct timespec ran;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ran);
    return (uint64_t)ran.tv_sec * WEIR_SECOND + (uint64_t)ran.tv_nsec;
}

/* ---- Sources ---- */

/* The slot of the peer's address, which must be its own; for IPv6 of the 64-bit
 * network that one host is given. */
static uint32_t source_of(const struct weir_ration *ration,
                          const struct sockaddr *peer)
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct weir_text key = { "", 0 };
    if (peer && peer->sa_family == AF_INET) {
        memcpy(&v4, peer, sizeof v4);
        key = (struct weir_text){ (const char *)&v4.sin_addr, 4 };
    } else if (peer && peer->sa_family == AF_INET6) {
        memcpy(&v6, peer, sizeof v6);
        key = (struct weir_text){ (const char *)&v6.sin6_addr, 8 };
    }
    return (uint32_t)(weir_hash(key, ration->seed) % WEIR_RATION_SOURCES);
}

static void activate(struct weir_ration *ration, struct source *source)
{
    if (source->is_active)
        return;
    source->is_active = true;
    TAILQ_INSERT_TAIL(&ration->active, source, link);
}

/* A source without waiting members keeps its debt and loses its claim. */
static void rest_if_empty(struct weir_ration *ration, struct source *source)
{
    if (!source->is_active || !TAILQ_EMPTY(&source->queue[FRESH]) ||
        !TAILQ_EMPTY(&source->queue[SERVED]))
        return;
    source->is_active = false;
    if (source->deficit > 0)
        source->deficit = 0;
    TAILQ_REMOVE(&ration->active, source, link);
}

static void leave_queue(struct weir_ration *ration,
                        struct weir_ration_member *member)
{
    weir_assert(member->waits && ration->waiting > 0);
    struct source *source = &ration->sources[member->source];
    TAILQ_REMOVE(&source->queue[member->served ? SERVED : FRESH], member,
                 queue);
    member->waits = false;
    ration->waiting--;
}

/* ---- Places ---- */

bool weir_ration_evict(struct weir_ration *ration, const char *why)
{
    uint32_t most = 0;
    for (uint32_t i = 1; i < WEIR_RATION_SOURCES; i++)
        if (ration->counts[i] > ration->counts[most])
            most = i;
    struct weir_ration_member *oldest = TAILQ_FIRST(&ration->sources[most].all);
    if (!oldest)
        return false;
    weir_ration_leave(oldest);
    ration->evicted++;
    oldest->evict(oldest->context, why);
    return true;
}

void weir_ration_join(struct weir_ration *ration,
                      struct weir_ration_member *member,
                      const struct sockaddr *peer)
{
    weir_assert(!member->ration && member->turn && member->evict);
    member->ration = ration;
    member->source = source_of(ration, peer);
    member->waits = member->served = false;
    member->cost = 0;
    /* The new member is added after the eviction, so that it isn't evicted. */
    if (ration->members >= ration->options.places)
        (void)weir_ration_evict(ration, "too many peers without a credential "
                                        "are connected; this was the oldest "
                                        "of the address with most of them");
    ration->members++;
    ration->counts[member->source]++;
    TAILQ_INSERT_TAIL(&ration->sources[member->source].all, member, among);
}

void weir_ration_leave(struct weir_ration_member *member)
{
    struct weir_ration *ration = member->ration;
    if (!ration)
        return;
    struct source *source = &ration->sources[member->source];
    weir_assert(ration->counts[member->source] > 0);
    if (ration->turn_of == member)
        ration->turn_of = NULL;
    if (member->waits)
        leave_queue(ration, member);
    rest_if_empty(ration, source);
    TAILQ_REMOVE(&source->all, member, among);
    weir_assert(ration->members > 0);
    ration->counts[member->source]--;
    ration->members--;
    member->ration = NULL;
}

/* Charges a cost to the source and to the whole ration. */
static void charge_source(struct weir_ration *ration, struct source *source,
                          weir_duration cost)
{
    source->deficit -= (int64_t)cost;
    if (source->deficit < -DEFICIT_MAX)
        source->deficit = -DEFICIT_MAX;
    ration->free_at = weir_after(ration->free_at, WEIR_RATION_PART * cost);
}

static void credit_source(struct weir_ration *ration, struct source *source,
                          weir_duration cost)
{
    weir_duration part = WEIR_RATION_PART * cost;
    int64_t most = source->is_active ? DEFICIT_MAX : 0;
    source->deficit += (int64_t)cost;
    if (source->deficit > most)
        source->deficit = most;
    ration->free_at = ration->free_at > part ? ration->free_at - part : 0;
}

void weir_ration_admit(struct weir_ration_member *member)
{
    struct weir_ration *ration = member->ration;
    if (!ration)
        return;
    credit_source(ration, &ration->sources[member->source], member->cost);
    if (ration->turn_of == member)
        ration->is_free = true;
    weir_ration_leave(member);
}

/* ---- Turns ---- */

void weir_ration_wait(struct weir_ration_member *member)
{
    struct weir_ration *ration = member->ration;
    weir_assert(ration);
    if (member->waits)
        return;
    struct source *source = &ration->sources[member->source];
    TAILQ_INSERT_TAIL(&source->queue[member->served ? SERVED : FRESH], member,
                      queue);
    member->waits = true;
    activate(ration, source);
    if (ration->waiting++ == 0 && ration->timer)
        event_active(ration->timer, EV_TIMEOUT, 0);
}

/* Mostly members that had a turn: a flood of new members would otherwise leave
 * the others no time to finish. */
static struct weir_ration_member *next_member(struct source *source)
{
    source->turns = (source->turns + 1) % FRESH_EVERY;
    unsigned first = source->turns == 0 ? FRESH : SERVED;
    struct weir_ration_member *next = TAILQ_FIRST(&source->queue[first]);
    return next ? next : TAILQ_FIRST(&source->queue[first ^ 1]);
}

static void go_last(struct weir_ration *ration, struct source *source)
{
    TAILQ_REMOVE(&ration->active, source, link);
    TAILQ_INSERT_TAIL(&ration->active, source, link);
}

/* Gives a member of the source a turn; returns its cost. */
static weir_duration give_turn(struct weir_ration *ration,
                               struct source *source)
{
    struct weir_ration_member *member = next_member(source);
    weir_assert(member && !ration->turn_of);
    uint64_t (*time_used)(void *) = ration->options.time_used;
    leave_queue(ration, member);
    member->served = true;
    ration->turn_of = member;
    ration->is_free = false;
    uint64_t before = time_used(ration->options.context);
    member->turn(member->context);
    weir_duration cost = COST_MIN + time_used(ration->options.context) - before;
    /* The member may have left, and its memory be freed. */
    if (ration->turn_of)
        member->cost += cost;
    ration->turn_of = NULL;
    if (!ration->is_free)
        charge_source(ration, source, cost);
    else if (source->is_active)
        go_last(ration, source);
    rest_if_empty(ration, source);
    ration->used += cost;
    return cost;
}

/* Chooses the next source; 'active' isn't empty. */
static struct source *next_source(struct weir_ration *ration)
{
    struct source *source = TAILQ_FIRST(&ration->active);
    while (source->deficit <= 0) {
        source->deficit += QUANTUM;
        go_last(ration, source);
        source = TAILQ_FIRST(&ration->active);
    }
    return source;
}

weir_instant weir_ration_serve(struct weir_ration *ration, weir_instant now)
{
    weir_duration spent = 0;
    weir_instant earliest =
        now > WEIR_RATION_BURST ? now - WEIR_RATION_BURST : 0;
    ration->free_at = weir_later(ration->free_at, earliest);
    ration->serves = true;
    while (spent < WEIR_RATION_TURNS_MAX && ration->free_at <= now &&
           !TAILQ_EMPTY(&ration->active))
        spent += give_turn(ration, next_source(ration));
    ration->serves = false;
    weir_assert(TAILQ_EMPTY(&ration->active) == (ration->waiting == 0));
    weir_instant next =
        ration->waiting == 0 ? WEIR_NEVER : weir_later(ration->free_at, now);
    if (ration->doomed)
        weir_ration_free(&ration);
    return next;
}

static void on_ration_timer(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct weir_ration *ration = context;
    weir_instant now = weir_clock_now();
    weir_instant next = weir_ration_serve(ration, now);
    if (next == WEIR_NEVER)
        return;
    /* A timer, not event_active(): the loop then polls its sockets before. */
    const struct timeval in = weir_timeval_of(next - now);
    if (event_add(ration->timer, &in) < 0) /* no memory: at once */
        event_active(ration->timer, EV_TIMEOUT, 0);
}

/* ---- Life ---- */

struct weir_ration *weir_ration_new(const struct weir_ration_options *options)
{
    weir_assert(options->places > 0);
    struct weir_ration *ration = calloc(1, sizeof *ration);
    if (!ration)
        return NULL;
    ration->options = *options;
    if (!options->time_used)
        ration->options.time_used = thread_time;
    weir_entropy(&ration->seed, sizeof ration->seed);
    TAILQ_INIT(&ration->active);
    for (uint32_t i = 0; i < WEIR_RATION_SOURCES; i++) {
        struct source *source = &ration->sources[i];
        TAILQ_INIT(&source->all);
        TAILQ_INIT(&source->queue[FRESH]);
        TAILQ_INIT(&source->queue[SERVED]);
    }
    if (options->base)
        ration->timer =
            event_new(options->base, -1, 0, on_ration_timer, ration);
    if (options->base && !ration->timer) {
        free(ration);
        return NULL;
    }
    return ration;
}

void weir_ration_free(struct weir_ration **ration)
{
    struct weir_ration *self = *ration;
    if (!self)
        return;
    *ration = NULL;
    weir_assert(self->members == 0);
    self->doomed = self->serves;
    if (self->serves)
        return;
    if (self->timer)
        event_free(self->timer);
    free(self);
}

struct weir_ration_view weir_ration_look(const struct weir_ration *ration)
{
    return (struct weir_ration_view){ .members = ration->members,
                                      .waiting = ration->waiting,
                                      .evicted = ration->evicted,
                                      .used = ration->used };
}
