/* SPDX-License-Identifier: MIT
 * algorithm/pacer_state.c - a schedule of many rates in one thread; see
 * weir/pacer.h.
 *
 * A job earns units from an anchor on, as an exact fraction of its rate, and
 * has sent some of them:
 *
 *     can(now) = burst + floor((now - anchor) * units / per) - sent
 *
 * No sum is carried from turn to turn, so nothing is rounded twice, and one
 * turn's lateness doesn't affect the next. Time that must not be saved up (an
 * idle job's beyond its burst, a turn's lateness beyond 'lag') is dropped by
 * moving the anchor, the only place where earned units are lost:
 *
 *     waiting saves up at most burst + rate * (quantum + lag) idle saves up at
 *     most burst, once idle for longer than 'lag'
 *
 * Ready jobs lie in a heap by the instant at which they are due: when the next
 * unit is earned, but not before a quantum after the last turn. A job's instant
 * stays fixed while it waits and those of all others move past it, so each job
 * is served. Ties are served in the order in which jobs began to wait.
 *
 * Rejected: a wheel (its tick would be the smallest quantum, and each tick
 * would visit up to 10^6 slow jobs); a token count refilled at each turn
 * (rounds at each turn: 3 units a second in quanta of 10 ms are 0.03 each). */

#include "core/algorithm/pacer_state.h"

#include <string.h>

#define PER_MAX (366ull * 86400 * WEIR_SECOND)
#define RATE_MAX 100 /* units a nanosecond */
#define SENT_MAX ((uint64_t)1 << 62)

enum state { FREE, IDLE, WAITING, SERVING };

struct job {
    struct weir_pacer_job rule; /* no field is 0 except units */
    weir_instant anchor;
    uint64_t sent;     /* since the anchor */
    weir_instant turn; /* the earliest instant of the next one */
    weir_instant left; /* 0, or when it stopped being ready */
    weir_instant due;  /* while it waits: its heap key ... */
    uint64_t ticket;   /* ... and the order among equal keys */
    uint32_t place;    /* waiting: index in the heap; free: next free job */
    enum state state;
};

struct weir_pacer {
    uint32_t capacity;
    uint32_t waiting; /* in the heap */
    uint32_t free;    /* the first of a list, or capacity */
    uint64_t tickets;
    struct job jobs[]; /* followed by the heap: numbers of jobs */
};

static uint32_t *pacer_heap(const struct weir_pacer *pacer)
{
    return (uint32_t *)(uintptr_t)&pacer->jobs[pacer->capacity];
}

size_t weir_pacer_size(uint32_t jobs)
{
    if (jobs == 0 || jobs > WEIR_PACER_JOBS_MAX)
        return 0;
    return sizeof(struct weir_pacer) +
           jobs * (sizeof(struct job) + sizeof(uint32_t));
}

struct weir_pacer *weir_pacer_init(void *block, uint32_t jobs)
{
    weir_assert(weir_pacer_size(jobs) > 0);
    memset(block, 0, weir_pacer_size(jobs));
    struct weir_pacer *pacer = block;
    pacer->capacity = jobs;
    for (uint32_t i = 0; i < jobs; i++)
        pacer->jobs[i].place = i + 1;
    return pacer;
}

static struct job *job_of(struct weir_pacer *pacer, uint32_t number)
{
    if (number >= pacer->capacity || pacer->jobs[number].state == FREE)
        return NULL;
    return &pacer->jobs[number];
}

/* ---- The heap ---- */

static bool comes_first(const struct job *a, const struct job *b)
{
    return a->due < b->due || (a->due == b->due && a->ticket < b->ticket);
}

static void set_heap_place(struct weir_pacer *pacer, uint32_t place,
                           uint32_t number)
{
    weir_assert(place < pacer->capacity && number < pacer->capacity);
    pacer_heap(pacer)[place] = number;
    pacer->jobs[number].place = place;
}

/* Moves 'number' up from a free place to its position. */
static void move_up(struct weir_pacer *pacer, uint32_t place, uint32_t number)
{
    weir_assert(place < pacer->waiting);
    const struct job *job = &pacer->jobs[number];
    while (place > 0) {
        uint32_t above = pacer_heap(pacer)[(place - 1) / 2];
        if (!comes_first(job, &pacer->jobs[above]))
            break;
        set_heap_place(pacer, place, above);
        place = (place - 1) / 2;
    }
    set_heap_place(pacer, place, number);
    weir_audit(weir_pacer_next(pacer) <= job->due);
}

static void sink(struct weir_pacer *pacer, uint32_t place, uint32_t number)
{
    const struct job *job = &pacer->jobs[number];
    for (;;) {
        uint32_t child = 2 * place + 1;
        if (child >= pacer->waiting)
            break;
        uint32_t *heap = pacer_heap(pacer);
        if (child + 1 < pacer->waiting &&
            comes_first(&pacer->jobs[heap[child + 1]],
                        &pacer->jobs[heap[child]]))
            child++;
        weir_audit(pacer->jobs[heap[child]].place == child);
        if (!comes_first(&pacer->jobs[heap[child]], job))
            break;
        set_heap_place(pacer, place, heap[child]);
        place = child;
    }
    set_heap_place(pacer, place, number);
}

static void leave_heap(struct weir_pacer *pacer, struct job *job)
{
    if (job->state != WAITING)
        return;
    uint32_t place = job->place;
    weir_assert(place < pacer->waiting);
    weir_audit(&pacer->jobs[pacer_heap(pacer)[place]] == job);
    uint32_t last = pacer_heap(pacer)[--pacer->waiting];
    job->state = IDLE;
    if (place == pacer->waiting)
        return;
    /* The last one belongs above or below the hole, never both. */
    sink(pacer, place, last);
    move_up(pacer, pacer->jobs[last].place, last);
}

/* ---- The units a job has earned ---- */

/* floor(elapsed * units / per). */
static weir_u128 earned_in(const struct weir_pacer_job *rule,
                           weir_duration elapsed)
{
    weir_assert(rule->per > 0);
    return (weir_u128)elapsed * rule->units / rule->per;
}

/* The time for which a job may save up units beside its burst. */
static weir_duration saved_max(const struct job *job)
{
    return job->state == IDLE ? 0 : job->rule.quantum + job->rule.lag;
}

static uint64_t clip_sent(weir_u128 units)
{
    return units < SENT_MAX ? (uint64_t)units : SENT_MAX;
}

static uint64_t can(const struct job *job, weir_instant now)
{
    if (job->rule.units == 0)
        return 0;
    weir_u128 most = job->rule.burst + earned_in(&job->rule, saved_max(job));
    weir_u128 earned =
        job->rule.burst + earned_in(&job->rule, weir_since(job->anchor, now));
    if (earned <= job->sent)
        return 0;
    weir_u128 left = earned - job->sent;
    most = most < WEIR_WEIGHT_MAX ? most : WEIR_WEIGHT_MAX;
    return (uint64_t)(left < most ? left : most);
}

/* Drops units above the most that the job may save up. */
static void drop_unsaved(struct job *job, weir_instant now)
{
    weir_duration most = saved_max(job);
    weir_duration elapsed = weir_since(job->anchor, now);
    if (elapsed <= most || (weir_u128)(elapsed - most) * job->rule.units <=
                               (weir_u128)job->sent * job->rule.per)
        return;
    job->anchor = now - most;
    job->sent = 0;
    weir_assert(job->anchor <= now);
}

/* The instant at which the next unit is earned. */
static weir_instant next_unit(const struct job *job)
{
    if (job->rule.units == 0)
        return WEIR_NEVER;
    if (job->sent < job->rule.burst)
        return job->anchor;
    weir_u128 ahead =
        (weir_u128)(job->sent + 1 - job->rule.burst) * job->rule.per;
    weir_u128 wait = (ahead + job->rule.units - 1) / job->rule.units;
    return wait < WEIR_NEVER - job->anchor ? job->anchor + (uint64_t)wait
                                           : WEIR_NEVER;
}

static void wait_for_turn(struct weir_pacer *pacer, struct job *job,
                          weir_instant now)
{
    weir_assert(pacer->waiting < pacer->capacity);
    weir_audit(job->state != FREE);
    job->state = WAITING;
    job->due = weir_later(weir_later(next_unit(job), job->turn), now);
    job->ticket = pacer->tickets++;
    uint32_t number = (uint32_t)(job - pacer->jobs);
    move_up(pacer, pacer->waiting++, number);
}

/* ---- Jobs ---- */

/* Fills in the defaults and checks the ranges. */
static int complete_rule(struct weir_pacer_job *rule)
{
    rule->burst = rule->burst ? rule->burst : 1;
    rule->quantum = rule->quantum ? rule->quantum : WEIR_PACER_QUANTUM_DEFAULT;
    rule->lag = rule->lag ? rule->lag : rule->quantum;
    bool sound = rule->per >= 1 && rule->per <= PER_MAX &&
                 rule->units / RATE_MAX <= rule->per &&
                 rule->burst <= WEIR_WEIGHT_MAX &&
                 rule->quantum >= WEIR_PACER_QUANTUM_MIN &&
                 rule->quantum <= WEIR_PACER_QUANTUM_MAX &&
                 rule->lag <= WEIR_PACER_QUANTUM_MAX;
    return sound ? WEIR_OK : WEIR_EINVAL;
}

int weir_pacer_add(struct weir_pacer *pacer, const struct weir_pacer_job *job,
                   uint32_t *out_job, weir_instant now)
{
    struct weir_pacer_job rule = *job;
    if (complete_rule(&rule) < 0)
        return WEIR_EINVAL;
    if (pacer->free == pacer->capacity)
        return WEIR_EFULL;
    uint32_t number = pacer->free;
    weir_assert(number < pacer->capacity && pacer->jobs[number].state == FREE);
    pacer->free = pacer->jobs[number].place;
    pacer->jobs[number] =
        (struct job){ .rule = rule, .anchor = now, .state = IDLE };
    *out_job = number;
    return WEIR_OK;
}

int weir_pacer_remove(struct weir_pacer *pacer, uint32_t job)
{
    struct job *it = job_of(pacer, job);
    if (!it)
        return WEIR_ENOENT;
    leave_heap(pacer, it);
    weir_assert(it->state != WAITING);
    *it = (struct job){ .state = FREE, .place = pacer->free };
    pacer->free = job;
    return WEIR_OK;
}

/* The part of a unit earned by 'now', as a duration at the rate of 'to'. */
static weir_duration part_earned(const struct job *job,
                                 const struct weir_pacer_job *to,
                                 weir_instant now)
{
    if (job->rule.units == 0 || to->units == 0)
        return 0;
    weir_u128 part = (weir_u128)weir_since(job->anchor, now) * job->rule.units %
                     job->rule.per;
    return (weir_duration)(part * to->per /
                           ((weir_u128)job->rule.per * to->units));
}

/* Converts the spent units to the new rate. */
static void convert(struct job *job, const struct weir_pacer_job *to,
                    weir_instant now)
{
    weir_assert(to->per > 0);
    weir_u128 earned =
        job->rule.burst + earned_in(&job->rule, weir_since(job->anchor, now));
    weir_u128 left = earned > job->sent ? earned - job->sent : 0;
    uint64_t owed = earned < job->sent ? job->sent - (uint64_t)earned : 0;
    weir_duration part = part_earned(job, to, now);
    weir_instant at = now > job->anchor ? now : job->anchor;
    job->sent = left < to->burst ? to->burst - (uint64_t)left + owed : owed;
    job->anchor = at > part ? at - part : 0;
    job->rule = *to;
}

int weir_pacer_set(struct weir_pacer *pacer, uint32_t job,
                   const struct weir_pacer_job *to, weir_instant now)
{
    struct job *it = job_of(pacer, job);
    if (!it)
        return WEIR_ENOENT;
    struct weir_pacer_job rule = *to;
    if (complete_rule(&rule) < 0)
        return WEIR_EINVAL;
    bool waits = it->state == WAITING;
    drop_unsaved(it, now);
    leave_heap(pacer, it);
    convert(it, &rule, now);
    if (waits)
        wait_for_turn(pacer, it, now);
    return WEIR_OK;
}

int weir_pacer_ready(struct weir_pacer *pacer, uint32_t job, bool ready,
                     weir_instant now)
{
    struct job *it = job_of(pacer, job);
    if (!it)
        return WEIR_ENOENT;
    if (ready && it->state == IDLE) {
        bool was_away = it->left == 0 || now > it->left + it->rule.lag;
        it->state = was_away ? IDLE : WAITING;
        drop_unsaved(it, now);
        wait_for_turn(pacer, it, now);
    } else if (!ready && it->state != IDLE) {
        leave_heap(pacer, it);
        it->state = IDLE;
        it->left = now;
    }
    return WEIR_OK;
}

/* ---- Turns ---- */

uint64_t weir_pacer_can(const struct weir_pacer *pacer, uint32_t job,
                        weir_instant now)
{
    if (job >= pacer->capacity || pacer->jobs[job].state == FREE)
        return 0;
    return can(&pacer->jobs[job], now);
}

weir_instant weir_pacer_next(const struct weir_pacer *pacer)
{
    if (pacer->waiting == 0)
        return WEIR_NEVER;
    return pacer->jobs[pacer_heap(pacer)[0]].due;
}

bool weir_pacer_turn(struct weir_pacer *pacer, struct weir_pacer_turn *out,
                     weir_instant now)
{
    weir_instant next = weir_pacer_next(pacer);
    if (next == WEIR_NEVER || next > now)
        return false;
    uint32_t number = pacer_heap(pacer)[0];
    struct job *job = &pacer->jobs[number];
    weir_assert(job->state == WAITING);
    leave_heap(pacer, job);
    weir_audit(weir_pacer_next(pacer) >= next);
    job->state = SERVING;
    job->turn = now + job->rule.quantum;
    *out = (struct weir_pacer_turn){ number, can(job, now) };
    return true;
}

int weir_pacer_spend(struct weir_pacer *pacer, uint32_t job, uint64_t units,
                     weir_instant now)
{
    struct job *it = job_of(pacer, job);
    if (!it)
        return WEIR_ENOENT;
    if (units > WEIR_WEIGHT_MAX)
        return WEIR_EINVAL;
    bool waits = it->state == WAITING || it->state == SERVING;
    drop_unsaved(it, now);
    leave_heap(pacer, it);
    it->sent = clip_sent((weir_u128)it->sent + units);
    weir_audit(it->sent >= units);
    if (waits)
        wait_for_turn(pacer, it, now);
    return WEIR_OK;
}
