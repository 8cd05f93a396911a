/* SPDX-License-Identifier: MIT
 * lab/model_swarm.c - an adaptive limit of a fleet in random trouble, under
 * checkers: one of four scenarios of the swarm (swarm.c).
 *
 *     -3 .. 0         quota, roots, the first master
 *     0 .. T          load; trouble: each fault at a random instant
 *     T .. +1         all is mended, bit by bit, in another order
 *     +1 .. +settle   the limit is found again
 *     to the end      recovery is judged (model_swarm_check.c)
 *
 * The limiters and roots are a fleet of lab/fleet.h. Requests enter, go to a
 * pool of workers (lab/storage.h) whose latency depends on what is in flight,
 * and leave. All are parts of the fleet's world, which is stepped event by
 * event, so that a run can be stopped before any, as other swarms.
 *
 * The scenario's language has no statement for a storage, a permit or a
 * mastership. So this is a model: the setting is in the file, the instants of
 * the faults follow from the seed, and --trace prints each of them. */

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/concurrency/concurrency_gate.h"
#include "core/quota/quota_adaptive.h"
#include "lab/memory.h"
#include "lab/model_swarm_internal.h"
#include "lab/run.h"

#define BEFORE (3 * WEIR_SECOND)
#define MENDING WEIR_SECOND
/* Of the requests with classes; of those at a limiter with little load. */
#define SYNC_ONE_IN 5
#define LIGHT_ONE_IN 100
/* A paused process's answers are looked at again after that. */
#define PAUSED_EVERY (20 * WEIR_MILLISECOND)

/* ---- Fields and metrics ---- */

static const char *const classes[] = { "none", "observed", "share", NULL };

#define COUNT(called, value, least, most, text)                    \
    {                                                              \
        .name = called, .kind = WEIR_MODEL_COUNT, .preset = value, \
        .min = least, .max = most, .sentence = text                \
    }
#define DURATION(called, value, text)                                 \
    {                                                                 \
        .name = called, .kind = WEIR_MODEL_DURATION, .preset = value, \
        .sentence = text                                              \
    }
#define SHARE(called, text)                                        \
    {                                                              \
        .name = called, .kind = WEIR_MODEL_SHARE, .sentence = text \
    }
#define FLAG(called, text) COUNT(called, 0, 0, 1, text)

static const struct weir_model_field fields[] = {
    [SWARM_LIMITERS] = COUNT("limiters", 4, 1, SWARM_LIMITERS_MAX, "processes"),
    [SWARM_STARTED] = COUNT("started", 4, 1, SWARM_LIMITERS_MAX,
                            "of them run from the start"),
    [SWARM_ROOTS] = COUNT("roots", 2, 1, SWARM_ROOTS_MAX, "roots"),
    [SWARM_WORKERS] = COUNT("workers", 8, 1, 64, "of the storage"),
    [SWARM_LATENCY] = DURATION("latency", 40e6, "of a worker, mean"),
    [SWARM_CANCEL] =
        FLAG("cancel", "1: requests leave the queue when callers give up"),
    [SWARM_TARGET] = DURATION("target", 240e6, "of the quota"),
    [SWARM_MIN] = { .name = "min",
                    .kind = WEIR_MODEL_REAL,
                    .preset = 0.001,
                    .min = 0.001,
                    .max = 100,
                    .sentence = "of the quota" },
    [SWARM_CLASSES] = { .name = "classes",
                        .kind = WEIR_MODEL_WORD,
                        .words = classes,
                        .sentence = "a fifth of the requests is of a class "
                                    "that is observed, or has a share" },
    [SWARM_TIMEOUT] = DURATION("timeout", 1e9, "after it callers give up"),
    [SWARM_RATE] = { .name = "rate",
                     .kind = WEIR_MODEL_RATE,
                     .preset = 300,
                     .sentence = "requests a second, in all" },
    [SWARM_LIGHT] = COUNT("light", 0, 0, SWARM_LIMITERS_MAX,
                          "processes with a hundredth of the others' load"),
    [SWARM_DELAY] = DURATION("delay", 1e6, "of a message"),
    [SWARM_JITTER] = DURATION("jitter", 0, "of it"),
    [SWARM_LOSS] = SHARE("loss", "messages lost, until T"),
    [SWARM_TWICE] = SHARE("twice", "messages doubled, until T"),
    [SWARM_REORDER] = SHARE("reorder", "messages that may overtake, until T"),
    [SWARM_REPLAY] =
        SHARE("replay", "messages that come on the next link, until T"),
    [SWARM_SLOWNESS] = { .name = "slowness",
                         .kind = WEIR_MODEL_REAL,
                         .preset = 1,
                         .min = 1,
                         .max = 100,
                         .sentence = "the storage is slower by this factor" },
    [SWARM_SLOW_AT] = DURATION("slow_at", 0, "from this instant on"),
    [SWARM_SLOW_FOR] = DURATION("slow_for", 0, "for so long"),
    [SWARM_HANG_AT] = DURATION("hang_at", 0, "the storage stands still"),
    [SWARM_HANG_FOR] = DURATION("hang_for", 0, "for so long"),
    [SWARM_TROUBLE] = DURATION("trouble", 10e9, "T: trouble until then"),
    [SWARM_SETTLE] =
        DURATION("settle", 60e9, "from all mended until recovery is judged"),
    [SWARM_CUTS] = FLAG("cuts", "1: links are cut"),
    [SWARM_DEATHS] = FLAG("deaths", "1: processes and roots die"),
    [SWARM_MASTERS] = FLAG("masters", "1: the master dies, or another leads"),
    [SWARM_CLOCKS] = FLAG("clocks", "1: clocks drift and jump"),
    [SWARM_PAUSES] = FLAG("pauses", "1: processes and roots stand still"),
    [SWARM_CPU] = FLAG("cpu", "1: processors are slow"),
    [SWARM_EDITS] = FLAG("edits", "1: the quota is edited and removed"),
    [SWARM_STORE] = FLAG("store", "1: the quota store goes away"),
    [SWARM_LOADS] = FLAG("loads", "1: the load changes"),
    { .name = NULL },
};

static const struct weir_model_metric metrics[] = {
    [SWARM_GOODPUT] = { "goodput", "let in, of the lesser of offered and the "
                                   "storage's capacity" },
    [SWARM_WINDOWS_OVER] = { "windows_over",
                             "windows of 5 s with a p95 over the target" },
    [SWARM_WORST_WINDOW] = { "worst_window",
                             "the largest such p95, in targets" },
    [SWARM_SHARE_MIN] = { "share_min", "the least share of a process among "
                                       "those with equal load, of the mean" },
    [SWARM_SHARE_MAX] = { "share_max", "the largest" },
    [SWARM_MESSAGES] = { "messages",
                         "most messages in a second, a limiter and root" },
    [SWARM_TURNS] = { "turns", "most turns of nodes in a second, a node" },
    [SWARM_PAUSE] = { "pause_s", "longest time, in seconds, for which an idle "
                                 "process let nothing in" },
    { NULL, NULL },
};

static const struct weir_model_series series[] = { { NULL, NULL, false } };

/* ---- Requests ---- */

struct flight {
    struct weir_heap_key key;
    uint32_t limiter, life;
    weir_duration latency;
    enum weir_permit_outcome outcome;
    struct weir_permit_record record;
};

static bool one_in_load(struct swarm_stage *s, uint64_t count)
{
    return weir_rng_below(&s->rng, count) == 0;
}

/* A process that takes requests, at random; SWARM_NONE: none, or the request
 * is one that a process with little load doesn't get. */
static uint32_t choose_process(struct swarm_stage *s)
{
    uint32_t ready[SWARM_LIMITERS_MAX], count = 0;
    for (uint32_t i = 0; i < s->limiters; i++)
        if (swarm_takes(s, i))
            ready[count++] = i;
    if (count == 0)
        return SWARM_NONE;
    uint32_t chosen = ready[weir_rng_below(&s->rng, count)];
    bool light = chosen < (uint32_t)swarm_value(s, SWARM_LIGHT);
    return light && !one_in_load(s, LIGHT_ONE_IN) ? SWARM_NONE : chosen;
}

/* False: the process has no gate for the quota. */
static bool view_gate(struct swarm_stage *s, uint32_t limiter,
                      struct weir_concurrency_gate_view *out)
{
    struct weir_ref ref;
    struct weir_table *table = weir_fleet_table(s->fleet, limiter);
    weir_instant now =
        weir_fleet_clock_of(s->fleet, weir_limiter_place(limiter));
    return weir_table_find(table, WEIR_TEXT(SWARM_NAME), &ref) &&
           weir_table_adaptive(table, ref.slot, out, now);
}

static void begin_flight(struct swarm_stage *s, struct flight *flight,
                         weir_instant now)
{
    weir_duration timeout = swarm_time(s, SWARM_TIMEOUT);
    flight->latency = weir_storage_request(s->storage, &s->rng, now - s->start);
    flight->outcome = WEIR_PERMIT_SUCCESS;
    if (flight->latency > timeout) {
        flight->latency = timeout;
        flight->outcome = WEIR_PERMIT_DROPPED;
    }
    flight->key.at = now + flight->latency;
    weir_heap_push(&s->flying, flight);
    weir_world_wake(weir_fleet_world(s->fleet), &s->answers,
                    weir_heap_due(&s->flying));
}

static void make_swarm_request(struct swarm_stage *s, uint32_t limiter,
                               weir_instant now)
{
    struct flight flight = { .limiter = limiter,
                             .life = s->node[0][limiter].life };
    struct weir_concurrency_gate_view gate;
    bool gated = view_gate(s, limiter, &gate);
    s->run->takes++;
    if (swarm_value(s, SWARM_CLASSES) > 0)
        flight.record.klass =
            weir_class_number(one_in_load(s, SYNC_ONE_IN) ? WEIR_TEXT("sync")
                                                          : WEIR_TEXT("bulk"));
    unsigned outcome = weir_fleet_enter(
        s->fleet, limiter, WEIR_TEXT(SWARM_NAME), 1, &flight.record);
    bool admitted = !(outcome & WEIR_OUTCOME_LIMITED);
    weir_swarm_check_request(s->check, limiter, gated ? &gate : NULL, admitted);
    if (admitted)
        begin_flight(s, &flight, now);
}

static void run_arrivals(struct weir_part *part, weir_instant now)
{
    struct swarm_stage *s =
        (void *)((char *)part - offsetof(struct swarm_stage, arrivals));
    double gap = 1e9 / (swarm_value(s, SWARM_RATE) * s->load);
    gap *= -log(1 - weir_rng_unit(&s->rng));
    weir_world_wake(weir_fleet_world(s->fleet), part,
                    now + 1 + (weir_duration)gap);
    uint32_t limiter = choose_process(s);
    if (limiter != SWARM_NONE)
        make_swarm_request(s, limiter, now);
}

/* A process that died has forgotten its permits. */
static void run_answers(struct weir_part *part, weir_instant now)
{
    struct swarm_stage *s =
        (void *)((char *)part - offsetof(struct swarm_stage, answers));
    while (weir_heap_due(&s->flying) <= now) {
        struct flight flight;
        weir_heap_pop(&s->flying, &flight);
        const struct swarm_node *node = &s->node[0][flight.limiter];
        if (node->life != flight.life)
            continue;
        if (node->paused) {
            flight.key.at = now + PAUSED_EVERY;
            weir_heap_push(&s->flying, &flight);
            continue;
        }
        weir_fleet_leave_as(s->fleet, flight.limiter, &flight.record,
                            flight.outcome);
        weir_swarm_check_answer(s->check, flight.latency);
    }
    weir_world_wake(weir_fleet_world(s->fleet), part,
                    weir_heap_due(&s->flying));
}

/* ---- Building ---- */

static struct weir_quota swarm_quota(const struct swarm_stage *s)
{
    static const struct weir_text texts[] = {
        { NULL, 0 },
        WEIR_TEXT("bulk,sync:observed"),
        WEIR_TEXT("bulk,sync:30%"),
    };
    struct weir_quota quota;
    weir_quota_init(&quota);
    quota.name = WEIR_TEXT(SWARM_NAME);
    quota.kind = WEIR_CONCURRENCY;
    quota.sharing = WEIR_ADAPTIVE;
    quota.scope = WEIR_SCOPE_FLEET;
    quota.target = swarm_time(s, SWARM_TARGET);
    quota.min = (uint64_t)llround(swarm_value(s, SWARM_MIN) * WEIR_DECIMAL_ONE);
    quota.limit.per = 0;
    size_t kind = (size_t)swarm_value(s, SWARM_CLASSES);
    if (kind > 0)
        quota.classes = texts[kind];
    return quota;
}

static struct weir_storage *swarm_storage(const struct swarm_stage *s)
{
    const struct weir_storage_options options = {
        .kind = WEIR_STORAGE_POOL,
        .latency = swarm_time(s, SWARM_LATENCY),
        .workers = (uint32_t)swarm_value(s, SWARM_WORKERS),
        .leaves_after =
            swarm_value(s, SWARM_CANCEL) > 0 ? swarm_time(s, SWARM_TIMEOUT) : 0,
        .slowness = swarm_value(s, SWARM_SLOWNESS),
        .slow_at = swarm_time(s, SWARM_SLOW_AT),
        .slow_for = swarm_time(s, SWARM_SLOW_FOR),
        .hang_at = swarm_time(s, SWARM_HANG_AT),
        .hang_for = swarm_time(s, SWARM_HANG_FOR),
    };
    return weir_storage_new(&options);
}

static struct weir_fleet *swarm_fleet(const struct swarm_stage *s)
{
    const struct weir_fleet_options options = {
        .seed = s->run->seed,
        .limiters = s->limiters,
        .roots = s->roots,
        .slots = 8,
        .leases = 4,
        .gate_slots = 4,
        .net = { .shape = WEIR_DELAY_EXPONENTIAL,
                 .delay = swarm_time(s, SWARM_DELAY),
                 .spread = swarm_time(s, SWARM_JITTER),
                 .loss = swarm_value(s, SWARM_LOSS),
                 .twice = swarm_value(s, SWARM_TWICE),
                 .reorder = swarm_value(s, SWARM_REORDER),
                 .replay = swarm_value(s, SWARM_REPLAY) },
        .settings = { .report_interval = WEIR_SECOND,
                      .stale_after = 10 * WEIR_SECOND },
    };
    return weir_fleet_new(&options);
}

static void begin_stage(struct swarm_stage *s, struct weir_model_run *run)
{
    *s = (struct swarm_stage){
        .run = run,
        .values = run->values,
        .limiters = (uint32_t)run->values[SWARM_LIMITERS],
        .roots = (uint32_t)run->values[SWARM_ROOTS],
        .arrivals = { .name = "request", .run = run_arrivals },
        .answers = { .name = "answer", .run = run_answers },
        .flying = { .size = sizeof(struct flight) },
        .rng = { .state = weir_rng_mix(run->seed ^ 0x10ad) },
        .chance = { .state = weir_rng_mix(run->seed ^ 0xfa017) },
        .load = 1,
    };
    s->quota = swarm_quota(s);
    s->storage = swarm_storage(s);
    s->fleet = swarm_fleet(s);
    s->start = weir_fleet_now(s->fleet) + BEFORE;
    s->mended = s->start + swarm_time(s, SWARM_TROUBLE) + MENDING;
    s->check = weir_swarm_check_new(s);
    int error = weir_fleet_put(s->fleet, &s->quota, NULL);
    weir_assert(error == 0);
    weir_swarm_trouble_start(s);
    weir_world_wake(weir_fleet_world(s->fleet), &s->arrivals, s->start);
}

static void end_stage(struct swarm_stage *s)
{
    struct weir_world *world = weir_fleet_world(s->fleet);
    weir_swarm_trouble_end(s);
    weir_world_wake(world, &s->arrivals, WEIR_NEVER);
    weir_world_wake(world, &s->answers, WEIR_NEVER);
    weir_swarm_check_free(s->check);
    weir_storage_free(s->storage);
    weir_fleet_free(s->fleet);
    free(s->flying.items);
}

/* ---- Running ---- */

static void trace_event(const struct swarm_stage *s, const char *part,
                        uint64_t event)
{
    double at = ((double)weir_fleet_now(s->fleet) - (double)s->start) / 1e9;
    fprintf(stderr, "event %llu at %.9f s: %s\n", (unsigned long long)event, at,
            part);
}

/* Event by event; false: the run was stopped. */
static bool run_swarm_events(struct swarm_stage *s, weir_instant end)
{
    struct weir_world *world = weir_fleet_world(s->fleet);
    const struct weir_run_options *options = s->run->options;
    for (;;) {
        const struct weir_part *next = weir_world_next(world, end);
        uint64_t event = world->events;
        if (!next)
            return true;
        if (options->until_event > 0 && event >= options->until_event)
            return false;
        const char *part = next->name;
        (void)weir_world_step(world, end);
        if (options->trace)
            trace_event(s, part, event);
        weir_swarm_check_event(s->check, part);
        if (options->check && weir_swarm_check_sentence(s->check)) {
            s->run->violation_event = event;
            return false;
        }
    }
}

static void play_swarm(struct weir_model_run *run)
{
    struct swarm_stage s;
    begin_stage(&s, run);
    bool whole = run_swarm_events(&s, s.start + run->span);
    if (whole) {
        run->violation_event = weir_fleet_world(s.fleet)->events;
        weir_swarm_check_end(s.check);
    }
    const char *sentence = weir_swarm_check_sentence(s.check);
    if (run->options->check && sentence)
        run->violation = weir_must_text(weir_text_of(sentence));
    run->events = weir_fleet_world(s.fleet)->events;
    end_stage(&s);
}

const struct weir_model weir_model_swarm = {
    .name = "swarm",
    .sentence = "an adaptive limit of a fleet in random trouble, checked",
    .fields = fields,
    .metrics = metrics,
    .series = series,
    .play = play_swarm,
};
