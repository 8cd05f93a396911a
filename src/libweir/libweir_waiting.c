/* SPDX-License-Identifier: MIT
 * libweir/libweir_waiting.c - the wait queues of weir_enter_wait().
 *
 * A thread that is refused by a quota of kind concurrency joins that slot's
 * wait queue (algorithm/wait_queue.h) and sleeps. A thread that makes room
 * there, by a leave or, on the background thread, by a limit that has grown,
 * enters on behalf of the next waiters, as many as fit, and wakes each one
 * with its permit already taken:
 *
 *     leave: gives back --> WEIR_OUTCOME_NEXT --> serve_line(): enters for the
 *                                                 first waiter, wakes it
 *     deadline:             leaves the queue, serves those behind
 *
 * So each waiter that is let in is woken once, and the others are not woken at
 * all; no waiter wakes up to find that another caller was faster. The table
 * keeps callers that don't wait from being faster (core/table/table_line.c).
 * All of this is under one mutex, which is taken only by threads that wait or
 * meet a waiter; so deadline and hand-over exclude each other, and a waiter
 * either has the permit or has left the queue.
 *
 * A chain may have several such quotas. A waiter that is let in at one of them,
 * but not at another, moves to the other's queue, with the ticket that it drew
 * at first; so does the first waiter here if waiters in another queue come
 * before it. (Two queues of different orders could send it to and fro: after
 * MOVES_MAX moves in one round it passes them.)
 *
 * A caller that is refused by a rate at once joins no queue: no leave is known
 * to help it. It sleeps for retry_after and asks again, as weir_wait() does. A
 * waiter already in a queue steps aside, asleep, and with it all waiters of the
 * queue that are under that rate and want as much: they would get the same
 * answer, and each would be woken for nothing. Waiters aside keep no caller
 * out. The background thread brings them back when the rate is to have room
 * again, and in any case when it runs.
 *
 * A quota of the chain whose lock another thread has: the caller waits for it
 * as a take does, for lock_wait, and then goes by when_locked. A waiter in a
 * queue steps aside for that time instead, since the thread that serves it has
 * the mutex.
 *
 * A caller that meets an exact quota joins no queue either: to enter for it
 * would be to wait for the store in its place. Nor does a caller on a shared
 * table: a queue has the threads of one process, and a killed process would
 * block the others.
 *
 * Tried in each queue: the first of all; behind a waiter that doesn't fit, the
 * first of each other class, within that class's guaranteed share.
 *
 * Queues are made for the first waiter and freed with the last. Rejected: a
 * queue per slot in the table: a table may be shared by processes, and a thread
 * belongs to one. Rejected: one mutex per queue; a move would need two. */

#include "libweir/libweir_decide.h"

#include <errno.h>
#include <time.h>

#include "core/base/atomic.h"
#include "io/clock.h"

#define MOVES_MAX (2 * WEIR_DEPTH_MAX) /* in one round */
#define DRY_MAX 4 /* rates that a serve remembers; it asks others again */

enum state {
    WAITS,
    SERVED,      /* it has its permit, or there is nothing to hold */
    APART,       /* it can't fit as things are: asks again by itself */
    TURNED_AWAY, /* the queue that it must wait in is full */
};

struct waiter {
    struct weir_wait_queue_entry place; /* first: a place is a waiter */
    struct weir_wish *wish;             /* borrowed */
    struct weir_waiting_line *line;
    bool aside;     /* in its queue's 'aside' */
    bool contended; /* it has stepped aside for a lock */
    enum state state;
    uint64_t round; /* in which it moved last … */
    uint32_t moves; /* … so many times */
    unsigned outcome;
    pthread_cond_t woken;
};

/* The wait queues of one slot, with waiters or work to do. */
struct weir_waiting_line {
    struct weir_wait_queue line, aside;
    uint32_t slot;
    uint64_t units;                 /* that the waiters in the queue want */
    bool is_due;                    /* to be served */
    weir_instant back_at;           /* waiters aside come back */
    weir_instant look_at;           /* serve it then, even if no permit
                                     * leaves */
    struct weir_waiting_line *next; /* of the same bucket */
    struct weir_waiting_line *next_due;
};

void weir_waiting_init(struct weir_waiting *waiting)
{
    *waiting = (struct weir_waiting){ .look_at = WEIR_NEVER };
    pthread_mutex_init(&waiting->mutex, NULL);
}

void weir_waiting_fini(struct weir_waiting *waiting)
{
    pthread_mutex_destroy(&waiting->mutex);
}

/* ---- Queues ---- */

static struct weir_waiting_line **line_bucket(struct weir_waiting *waiting,
                                              uint32_t slot)
{
    return &waiting->bucket[slot % WEIR_WAITING_BUCKETS];
}

static struct weir_waiting_line *find_waiting_line(
    const struct weir_waiting *waiting, uint32_t slot)
{
    struct weir_waiting_line *line =
        waiting->bucket[slot % WEIR_WAITING_BUCKETS];
    while (line && line->slot != slot)
        line = line->next;
    return line;
}

static bool is_empty_line(const struct weir_waiting_line *line)
{
    return line->line.count + line->aside.count == 0;
}

/* NULL: no memory. */
static struct weir_waiting_line *have_line(struct weir_waiting *waiting,
                                           uint32_t slot)
{
    struct weir_waiting_line *line = find_waiting_line(waiting, slot);
    if (line)
        return line;
    line = weir_mem_system.alloc(NULL, sizeof(*line));
    if (!line)
        return NULL;
    struct weir_waiting_line **bucket = line_bucket(waiting, slot);
    *line = (struct weir_waiting_line){ .slot = slot,
                                        .back_at = WEIR_NEVER,
                                        .next = *bucket };
    weir_wait_queue_init(&line->line, WEIR_WAIT_QUEUE_FIFO);
    weir_wait_queue_init(&line->aside, WEIR_WAIT_QUEUE_FIFO);
    *bucket = line;
    return line;
}

static void free_line(struct weir_waiting *waiting,
                      struct weir_waiting_line *line)
{
    weir_assert(is_empty_line(line) && !line->is_due);
    struct weir_waiting_line **at = line_bucket(waiting, line->slot);
    while (*at != line)
        at = &(*at)->next;
    *at = line->next;
    weir_mem_system.free(NULL, line, sizeof(*line));
}

static void mark_line_due(struct weir_waiting *waiting,
                          struct weir_waiting_line *line)
{
    if (line->is_due)
        return;
    line->is_due = true;
    line->next_due = NULL;
    *(waiting->last_due ? &waiting->last_due->next_due : &waiting->first_due) =
        line;
    waiting->last_due = line;
}

static struct weir_waiting_line *next_due_line(struct weir_waiting *waiting)
{
    struct weir_waiting_line *line = waiting->first_due;
    if (!line)
        return NULL;
    weir_assert(line->is_due);
    waiting->first_due = line->next_due;
    if (!waiting->first_due)
        waiting->last_due = NULL;
    line->is_due = false;
    return line;
}

/* The slot's queue with a place for one more; NULL: it is full, or no
 * memory. */
static struct weir_waiting_line *find_free_line(struct weir *weir,
                                                uint32_t slot)
{
    enum weir_wait_queue_order order;
    uint32_t most;
    struct weir_waiting_line *line = have_line(&weir->waiting, slot);
    if (!line)
        return NULL;
    weir_table_queue(weir->table, slot, &order, &most);
    if (line->line.count + line->aside.count < most)
        return line;
    if (is_empty_line(line))
        free_line(&weir->waiting, line);
    return NULL;
}

static void note_line_in_table(struct weir *weir,
                               const struct weir_waiting_line *line)
{
    weir_table_set_line(weir->table, line->slot, line->line.lanes, line->units);
}

/* Into the queue, or aside. */
static void stand_in_line(struct waiter *waiter, struct weir_waiting_line *line,
                          bool aside)
{
    weir_wait_queue_join(aside ? &line->aside : &line->line, &waiter->place);
    line->units += aside ? 0 : waiter->wish->weight;
    waiter->line = line;
    waiter->aside = aside;
}

static void take_out_of_line(struct waiter *waiter)
{
    struct weir_waiting_line *line = waiter->line;
    weir_assert(waiter->aside || line->units >= waiter->wish->weight);
    weir_wait_queue_leave(waiter->aside ? &line->aside : &line->line,
                          &waiter->place);
    line->units -= waiter->aside ? 0 : waiter->wish->weight;
}

static void join_line(struct weir *weir, struct weir_waiting_line *line,
                      struct waiter *waiter)
{
    weir_assert(!waiter->line && waiter->state == WAITS);
    stand_in_line(waiter, line, false);
    weir->waiting.standing++;
    note_line_in_table(weir, line);
    /* Tries it once more, now that each leave serves it. */
    mark_line_due(&weir->waiting, line);
}

static void leave_line(struct weir *weir, struct waiter *waiter)
{
    weir_assert(waiter->line && weir->waiting.standing > 0);
    take_out_of_line(waiter);
    weir->waiting.standing--;
    note_line_in_table(weir, waiter->line);
    waiter->line = NULL;
}

static void step_aside(struct weir *weir, struct waiter *waiter,
                       weir_instant until)
{
    struct weir_waiting_line *line = waiter->line;
    take_out_of_line(waiter);
    stand_in_line(waiter, line, true);
    note_line_in_table(weir, line);
    line->back_at = until < line->back_at ? until : line->back_at;
}

static void bring_back(struct weir *weir, struct weir_waiting_line *line)
{
    for (;;) {
        struct weir_wait_queue_entry *next =
            weir_wait_queue_next(&line->aside, 0);
        if (!next)
            break;
        take_out_of_line((struct waiter *)next);
        stand_in_line((struct waiter *)next, line, false);
    }
    line->back_at = WEIR_NEVER;
    note_line_in_table(weir, line);
}

/* ---- Serving ---- */

static void wake_waiter(struct weir *weir, struct waiter *waiter,
                        enum state state)
{
    weir_assert(waiter->state == WAITS && state != WAITS);
    leave_line(weir, waiter);
    waiter->state = state;
    weir->waiting.woken++;
    pthread_cond_signal(&waiter->woken);
}

static unsigned try_enter(struct weir *weir, struct weir_wish *wish,
                          struct weir_turn *turn, weir_instant now)
{
    turn->stripe = weir_stripe_mine(weir);
    return weir_table_enter_turn(weir->table, wish->ref, wish->weight,
                                 wish->record, turn, wish->reply, now);
}

/* As weir_exact_decide() for a call that doesn't wait. */
static unsigned enter_patiently(struct weir *weir, struct weir_wish *wish,
                                struct weir_turn *turn, weir_instant now)
{
    struct weir_lock_wait wait;
    weir_duration left = wish->until > now ? wish->until - now : 0;
    turn->when_locked = WEIR_LOCKED_RETURNS;
    unsigned outcome = try_enter(weir, wish, turn, now);
    if (WEIR_LIKELY(!(outcome & WEIR_OUTCOME_CONTENDED)))
        return outcome;
    weir_lock_wait_begin(weir, &wait,
                         left < weir->lock_wait ? left : weir->lock_wait);
    do {
        weir_verdict_of(weir, outcome);
        outcome = try_enter(weir, wish, turn, weir_clock_now());
        if (!(outcome & WEIR_OUTCOME_CONTENDED))
            return outcome;
    } while (!(outcome & WEIR_OUTCOME_OVERDUE) && weir_lock_wait(weir, &wait));
    weir_verdict_of(weir, outcome);
    turn->when_locked = (uint8_t)weir->when_locked;
    turn->waited = weir->block && weir->lock_wait > 0;
    return try_enter(weir, wish, turn, weir_clock_now());
}

/* Another quota of the chain refuses the waiter: it waits there. */
static void move_waiter(struct weir *weir, struct waiter *waiter,
                        const struct weir_turn *turn)
{
    struct weir_waiting_line *line = find_free_line(weir, turn->refuser);
    if (!line) {
        wake_waiter(weir, waiter, TURNED_AWAY);
        return;
    }
    leave_line(weir, waiter);
    bool again = waiter->round == weir->waiting.rounds;
    waiter->moves = again ? waiter->moves + 1 : 1;
    waiter->round = weir->waiting.rounds;
    waiter->place.lane = turn->lane;
    join_line(weir, line, waiter);
}

/* Other queues of its chain that have a waiter before it. */
static void find_shut(const struct weir *weir, const struct waiter *waiter,
                      struct weir_turn *turn)
{
    const struct weir_waiting *waiting = &weir->waiting;
    uint32_t slots[WEIR_DEPTH_MAX];
    uint32_t count =
        weir_table_inflights(weir->table, waiter->wish->ref, slots);
    if (waiter->round == waiting->rounds && waiter->moves >= MOVES_MAX)
        return;
    for (uint32_t i = 0; i < count; i++) {
        const struct weir_waiting_line *line =
            find_waiting_line(waiting, slots[i]);
        if (line && line != waiter->line &&
            weir_wait_queue_has_before(&line->line, &waiter->place))
            turn->shut[turn->shut_count++] = slots[i];
    }
}

/* Rates that just refused a waiter of the queue, and the weight refused. */
struct dry {
    bool locked; /* a lock was taken */
    uint32_t count;
    uint32_t slot[DRY_MAX];
    uint64_t weight[DRY_MAX];
};

static bool is_dry(const struct weir *weir, const struct dry *dry,
                   const struct waiter *waiter)
{
    for (uint32_t i = 0; i < dry->count; i++) {
        if (waiter->wish->weight >= dry->weight[i] &&
            weir_table_has_link(weir->table, waiter->wish->ref, dry->slot[i]))
            return true;
    }
    return false;
}

/* A lighter weight replaces those that the same rate refused. */
static void note_dry(struct dry *dry, uint32_t slot, uint64_t weight)
{
    uint32_t i = 0;
    while (i < dry->count && dry->slot[i] != slot)
        i++;
    if (i == DRY_MAX)
        return;
    dry->count += i == dry->count;
    dry->slot[i] = slot;
    dry->weight[i] = weight;
}

/* A rate refused the waiter. */
static void wait_aside(struct weir *weir, struct waiter *waiter,
                       const struct weir_turn *turn, struct dry *dry,
                       weir_instant now)
{
    step_aside(weir, waiter, weir_after(now, waiter->wish->reply->retry_after));
    if (turn->other != WEIR_SLOT_NONE)
        note_dry(dry, turn->other, waiter->wish->weight);
}

/* Another thread has the lock of a quota of its chain. It isn't known which
 * quota: the waiters behind it step aside too. */
static void wait_for_lock(struct weir *weir, struct waiter *waiter,
                          struct dry *dry, weir_instant now)
{
    dry->locked = true;
    waiter->contended = true;
    step_aside(weir, waiter, weir_after(now, weir->lock_wait));
}

/* Tries one waiter of the queue. False: no room for it there. */
static bool try_waiter(struct weir *weir, struct waiter *waiter,
                       enum weir_turn_kind kind, struct dry *dry,
                       weir_instant now)
{
    struct weir_turn turn = { .kind = kind };
    find_shut(weir, waiter, &turn);
    turn.when_locked = waiter->contended || weir->lock_wait == 0
                           ? (uint8_t)weir->when_locked
                           : WEIR_LOCKED_RETURNS;
    waiter->outcome = try_enter(weir, waiter->wish, &turn, now);
    if (waiter->outcome & WEIR_OUTCOME_KICK)
        weir_pump_kick(weir);
    if (waiter->outcome & WEIR_OUTCOME_WAKE)
        weir_locks_wake(weir);
    waiter->contended = waiter->outcome & WEIR_OUTCOME_CONTENDED;
    if (waiter->contended)
        wait_for_lock(weir, waiter, dry, now);
    else if (!(waiter->outcome & WEIR_OUTCOME_LIMITED))
        wake_waiter(weir, waiter, SERVED);
    else if (waiter->wish->reply->never)
        wake_waiter(weir, waiter, APART);
    else if (turn.refuser == WEIR_SLOT_NONE)
        wait_aside(weir, waiter, &turn, dry, now);
    else if (turn.refuser == waiter->line->slot)
        return false;
    else
        move_waiter(weir, waiter, &turn);
    return true;
}

/* Lets in as many as fit, in order. */
static void let_in_waiters(struct weir *weir, struct weir_waiting_line *line,
                           weir_instant now)
{
    uint32_t stuck = 0; /* bits: lanes with a first waiter that doesn't fit */
    struct dry dry = { .count = 0 };
    for (;;) {
        struct weir_wait_queue_entry *next =
            weir_wait_queue_next(&line->line, stuck);
        if (!next)
            return;
        struct waiter *waiter = (struct waiter *)next;
        enum weir_turn_kind kind = stuck ? WEIR_TURN_SURE : WEIR_TURN_FIRST;
        uint32_t lane = next->lane;
        if (dry.locked)
            wait_for_lock(weir, waiter, &dry, now);
        else if (is_dry(weir, &dry, waiter))
            step_aside(weir, waiter, WEIR_NEVER);
        else if (!try_waiter(weir, waiter, kind, &dry, now))
            stuck |= 1u << lane;
    }
}

static void serve_line(struct weir *weir, struct weir_waiting_line *line,
                       weir_instant now)
{
    enum weir_wait_queue_order order;
    uint32_t most;
    if (now >= line->back_at)
        bring_back(weir, line);
    weir_table_queue(weir->table, line->slot, &order, &most);
    if (order != line->line.order)
        weir_wait_queue_reorder(&line->line, order);
    let_in_waiters(weir, line, now);
    weir_instant due = weir_table_line_due(weir->table, line->slot, now);
    line->look_at = due < line->back_at ? due : line->back_at;
}

static void serve_due(struct weir *weir, weir_instant now)
{
    struct weir_waiting *waiting = &weir->waiting;
    waiting->rounds++;
    for (;;) {
        struct weir_waiting_line *line = next_due_line(waiting);
        if (!line)
            return;
        serve_line(weir, line, now);
        if (is_empty_line(line) && !line->is_due) {
            free_line(waiting, line);
        } else if (line->look_at < waiting->look_at) {
            waiting->look_at = line->look_at;
            weir_pump_kick(weir);
        }
    }
}

void weir_waiting_left(struct weir *weir, const uint32_t *slots, uint32_t count,
                       weir_instant now)
{
    struct weir_waiting *waiting = &weir->waiting;
    pthread_mutex_lock(&waiting->mutex);
    for (uint32_t i = 0; i < count; i++) {
        struct weir_waiting_line *line = find_waiting_line(waiting, slots[i]);
        if (line)
            mark_line_due(waiting, line);
    }
    serve_due(weir, now);
    pthread_mutex_unlock(&waiting->mutex);
}

static void mark_all_lines_due(struct weir_waiting *waiting)
{
    for (uint32_t i = 0; i < WEIR_WAITING_BUCKETS; i++) {
        struct weir_waiting_line *line = waiting->bucket[i];
        for (; line; line = line->next) {
            line->back_at = 0; /* an edit may have changed the rate */
            mark_line_due(waiting, line);
        }
    }
}

/* A failed enter gave back units, at a slot that isn't known here. */
static void serve_all(struct weir *weir)
{
    pthread_mutex_lock(&weir->waiting.mutex);
    mark_all_lines_due(&weir->waiting);
    serve_due(weir, weir_clock_now());
    pthread_mutex_unlock(&weir->waiting.mutex);
}

weir_instant weir_waiting_look(struct weir *weir, weir_instant now)
{
    struct weir_waiting *waiting = &weir->waiting;
    pthread_mutex_lock(&waiting->mutex);
    /* The queues served here needn't wake this thread: it is awake. */
    waiting->look_at = 0;
    mark_all_lines_due(waiting);
    serve_due(weir, now);
    waiting->look_at = WEIR_NEVER;
    for (uint32_t i = 0; i < WEIR_WAITING_BUCKETS; i++) {
        const struct weir_waiting_line *line = waiting->bucket[i];
        for (; line; line = line->next)
            if (line->look_at < waiting->look_at)
                waiting->look_at = line->look_at;
    }
    weir_instant look_at = waiting->look_at;
    pthread_mutex_unlock(&waiting->mutex);
    return look_at;
}

void weir_outcome_heed(struct weir *weir, unsigned outcome)
{
    if (outcome & WEIR_OUTCOME_KICK)
        weir_pump_kick(weir);
    if (outcome & WEIR_OUTCOME_WAKE)
        weir_locks_wake(weir);
    if (outcome & WEIR_OUTCOME_NEXT)
        serve_all(weir);
}

/* ---- Waiting ---- */

void weir_waiting_sleep(weir_instant until)
{
    struct timespec at = weir_timespec_of(until);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
        continue;
}

void weir_waiting_pause(const struct weir_wish *wish, weir_instant now)
{
    weir_duration left = wish->until > now ? wish->until - now : 0;
    weir_duration pause = wish->reply->retry_after;
    weir_waiting_sleep(now + (pause < left ? pause : left));
}

/* Under the mutex: sleeps until the waiter is woken, or it is too late. */
static void sleep_in_line(struct weir *weir, struct waiter *waiter)
{
    struct timespec until = weir_timespec_of(waiter->wish->until);
    int error = 0;
    while (waiter->state == WAITS && error != ETIMEDOUT)
        error = pthread_cond_timedwait(&waiter->woken, &weir->waiting.mutex,
                                       &until);
    if (waiter->state != WAITS)
        return;
    /* A waiter behind may fit where this one didn't. */
    mark_line_due(&weir->waiting, waiter->line);
    leave_line(weir, waiter);
    serve_due(weir, weir_clock_now());
}

/* Waits in the queue of the quota that refused. */
static enum state wait_at(struct weir *weir, struct weir_wish *wish,
                          const struct weir_turn *turn, unsigned *out_outcome)
{
    struct weir_waiting *waiting = &weir->waiting;
    struct waiter waiter = {
        .place = { .lane = turn->lane, .priority = wish->priority },
        .wish = wish,
        .state = WAITS,
    };
    weir_condition_init(&waiter.woken);
    /* The waiter is on the stack: the thread can't be cancelled in the
     * queue. */
    int cancel;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    pthread_mutex_lock(&waiting->mutex);
    if (wish->ticket == 0)
        wish->ticket = ++waiting->tickets;
    waiter.place.ticket = wish->ticket;
    weir_fetch_add(&waiting->count, 1);
    struct weir_waiting_line *line = find_free_line(weir, turn->refuser);
    if (line) {
        join_line(weir, line, &waiter);
        serve_due(weir, weir_clock_now());
        sleep_in_line(weir, &waiter);
    }
    weir_fetch_sub(&waiting->count, 1);
    pthread_mutex_unlock(&waiting->mutex);
    pthread_setcancelstate(cancel, NULL);
    pthread_cond_destroy(&waiter.woken);
    *out_outcome = waiter.outcome;
    return waiter.state;
}

unsigned weir_waiting_enter(struct weir *weir, struct weir_wish *wish)
{
    enum weir_turn_kind kind =
        weir->block ? WEIR_TURN_ALONE : WEIR_TURN_PASSING;
    for (;;) {
        struct weir_turn turn = { .kind = kind };
        weir_instant now = weir_clock_now();
        unsigned outcome = enter_patiently(weir, wish, &turn, now);
        weir_verdict_of(weir, outcome);
        bool over = now >= wish->until || wish->reply->never;
        if (!(outcome & WEIR_OUTCOME_LIMITED) || over)
            return outcome;
        bool stands = turn.refuser != WEIR_SLOT_NONE && !weir->block;
        enum state state =
            stands ? wait_at(weir, wish, &turn, &outcome) : APART;
        if (state == SERVED)
            return outcome;
        if (state != APART) /* too late, or the queue was full */
            return WEIR_OUTCOME_LIMITED;
        if (!wish->reply->never)
            weir_waiting_pause(wish, now);
    }
}
