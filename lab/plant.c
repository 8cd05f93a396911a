/* SPDX-License-Identifier: MIT
 * lab/plant.c - requests, processes, a storage, in virtual time; see plant.h.
 *
 * Future events are a heap of answers and of repeated requests. The next
 * arrival of each stream isn't in it: each stream has one only, and this way
 * answers of the same instant come first, as in the simulation behind the
 * article's figures (a permit returned at an instant is available to a request
 * of that instant). The world of lab/world.h draws that order from the seed,
 * which is right for fleets and wrong here. */

#include "lab/plant.h"

#include <math.h>

#include "lab/heap.h"
#include "lab/memory.h"
#include "lab/model_algorithm.h"
#include "lab/plant_fleet.h"

#define TOKEN_BUCKET 2 /* of weir_model_algorithms */

struct event {
    struct weir_heap_key key;
    uint32_t instance;
    bool again; /* a repeated request; else an answer */
    enum weir_sample_outcome outcome;
    struct weir_plant_permit permit;
};

struct stream {
    bool sync;
    double per_s; /* 0: none */
    weir_instant from;
    uint64_t number; /* since 'from' */
    weir_instant next;
};

struct plant {
    const struct weir_plant_options *options;
    struct weir_storage *storage; /* owned, as all below */
    struct weir_concurrency_gate *gate[WEIR_PLANT_INSTANCES_MAX];
    struct weir_plant_fleet *fleet; /* NULL: each process has a gate */
    struct weir_model_algorithm bucket_state[WEIR_PLANT_INSTANCES_MAX];
    uint32_t instances;      /* present number */
    struct weir_heap events; /* of struct event */
    uint64_t played, turn;
    struct stream bulk, sync;
    struct weir_rng rng;
};

/* ---- Processes ---- */

static void start_instance(struct plant *plant, weir_instant now)
{
    weir_assert(plant->instances < plant->options->instances);
    const struct weir_plant_options *o = plant->options;
    uint32_t i = plant->instances++;
    if (plant->fleet) {
        weir_plant_fleet_start(plant->fleet, i);
        return;
    }
    size_t line = WEIR_CACHE_LINE;
    size_t size =
        (weir_concurrency_gate_size(&o->gate) + line - 1) / line * line;
    void *block = weir_must(aligned_alloc(line, size));
    plant->gate[i] = weir_concurrency_gate_init(block, &o->gate, now);
    /* A bucket state's quantity is whole: so many in 1,000 s. A bucket has room
     * for the arrivals of a tenth of a second. */
    if (o->fixed_per_s > 0)
        weir_model_algorithm_init(&plant->bucket_state[i], TOKEN_BUCKET,
                                  (uint64_t)llround(o->fixed_per_s * 1000),
                                  1000 * WEIR_SECOND,
                                  (uint64_t)ceil(o->fixed_per_s / 10), 0);
}

static bool lets_in(struct plant *plant, uint32_t instance, bool sync,
                    struct weir_plant_permit *permit, weir_instant now)
{
    const struct weir_plant_options *o = plant->options;
    if (plant->fleet)
        return weir_plant_fleet_enter(plant->fleet, instance, sync,
                                      &permit->record);
    if (o->fixed_per_s > 0) {
        struct weir_algorithm_answer answer = weir_model_algorithm_decide(
            &plant->bucket_state[instance], WEIR_ALGORITHM_TAKE, 1, now);
        if (!answer.passed)
            return false;
    }
    uint32_t klass = sync ? o->gate.classes - 1 : 0;
    return weir_concurrency_gate_enter(plant->gate[instance], klass, 1,
                                       &permit->gate, now);
}

/* ---- A request ---- */

static double exponential(struct plant *plant)
{
    return -log(1 - weir_rng_unit(&plant->rng));
}

static void post_retry(struct plant *plant, const struct weir_plant_note *note,
                       weir_instant now)
{
    weir_duration wait = plant->options->retry;
    weir_duration retry =
        plant->fleet
            ? wait
            : weir_concurrency_gate_wait(plant->gate[note->instance], now);
    wait = retry > wait ? retry : wait;
    wait += weir_rng_below(&plant->rng, wait);
    weir_heap_push(&plant->events,
                   &(struct event){ .key.at = now + wait, .again = true });
}

static void serve_request(struct plant *plant, struct weir_plant_note *note,
                          const struct weir_plant_permit *permit,
                          weir_instant now)
{
    const struct weir_plant_options *o = plant->options;
    struct event event = { .instance = note->instance, .permit = *permit };
    note->latency = weir_storage_request(plant->storage, &plant->rng, now);
    note->in_time = o->timeout == 0 || note->latency <= o->timeout;
    if (!note->in_time) {
        note->latency = o->timeout;
        event.outcome = WEIR_SAMPLE_DROPPED;
    }
    event.key.at = now + note->latency + o->overhead;
    weir_heap_push(&plant->events, &event);
}

static void view_instance(struct plant *plant, uint32_t instance,
                          struct weir_concurrency_gate_view *out,
                          weir_instant now)
{
    if (plant->fleet)
        weir_plant_fleet_view(plant->fleet, instance, out);
    else
        weir_assert(
            weir_concurrency_gate_view(plant->gate[instance], out, now));
}

static void receive_request(struct plant *plant, bool sync, bool again,
                            weir_instant now)
{
    weir_assert(plant->instances > 0);
    struct weir_plant_note note = {
        .at = now,
        .sync = sync,
        .again = again,
        .instance = (uint32_t)(plant->turn++ % plant->instances),
    };
    struct weir_plant_permit permit;
    struct weir_concurrency_gate_view view;
    /* The lock is free, so this call succeeds. If this request closed a window,
     * the new limit applies from the next request on. */
    view_instance(plant, note.instance, &view, now);
    note.limit = view.controller.limit;
    note.admitted = lets_in(plant, note.instance, sync, &permit, now);
    note.in_flight = view.in_flight + (note.admitted ? 1 : 0);
    if (note.admitted)
        serve_request(plant, &note, &permit, now);
    else if (!sync && plant->options->retry > 0)
        post_retry(plant, &note, now);
    plant->options->note(plant->options->context, &note);
}

/* ---- Streams ---- */

static void set_next(struct plant *plant, struct stream *stream,
                     weir_instant now)
{
    const struct weir_plant_options *o = plant->options;
    if (stream->per_s <= 0) {
        stream->next = WEIR_NEVER;
        return;
    }
    double gap = 1e9 / stream->per_s;
    double since = (double)++stream->number * gap;
    stream->next = o->poisson ? now + (weir_duration)(exponential(plant) * gap)
                              : stream->from + (weir_duration)since;
    if (!stream->sync && o->bulk_end > 0 && stream->next >= o->bulk_end)
        stream->next = WEIR_NEVER;
}

static void set_stream_rate(struct plant *plant, struct stream *stream,
                            double per_s, weir_instant now)
{
    stream->per_s = per_s;
    stream->from = now;
    stream->number = 0;
    stream->next = now;
    if (per_s <= 0 || plant->options->poisson)
        set_next(plant, stream, now);
}

static void apply_time_changes(struct plant *plant, weir_instant *change)
{
    const struct weir_plant_options *o = plant->options;
    weir_instant now = *change;
    *change = WEIR_NEVER;
    if (o->join_at > now)
        *change = o->join_at;
    if (o->step_at > now && o->step_at < *change)
        *change = o->step_at;
    bool joined = now >= o->join_at;
    while (plant->instances < (joined ? o->instances : o->instances_first))
        start_instance(plant, now);
    if (now > 0 && now == o->step_at)
        set_stream_rate(plant, &plant->bulk, o->step_rate, now);
}

/* ---- The run ---- */

/* Plays the first of the events that are due at 'now'. */
static void play_event(struct plant *plant, weir_instant now)
{
    plant->played++;
    if (weir_heap_due(&plant->events) <= now) {
        struct event event;
        weir_heap_pop(&plant->events, &event);
        if (event.again)
            receive_request(plant, false, true, now);
        else if (plant->fleet)
            weir_plant_fleet_leave(plant->fleet, event.instance,
                                   &event.permit.record, event.outcome);
        else
            weir_concurrency_gate_leave(plant->gate[event.instance],
                                        &event.permit.gate, event.outcome, now);
        return;
    }
    bool sync = plant->sync.next <= now;
    struct stream *stream = sync ? &plant->sync : &plant->bulk;
    receive_request(plant, sync, false, now);
    set_next(plant, stream, now);
}

static void run_events(struct plant *plant)
{
    weir_instant change = 0;
    for (;;) {
        weir_instant now = weir_earlier(plant->bulk.next, plant->sync.next);
        now = weir_earlier(now, weir_heap_due(&plant->events));
        now = weir_earlier(now, change);
        if (now >= plant->options->end)
            return;
        if (plant->fleet)
            weir_plant_fleet_run(plant->fleet, now);
        if (now == change)
            apply_time_changes(plant, &change);
        else
            play_event(plant, now);
    }
}

static void fini_plant(struct plant *plant)
{
    weir_plant_fleet_free(plant->fleet);
    for (uint32_t i = 0; i < plant->instances; i++) {
        if (!plant->gate[i])
            continue;
        free(plant->gate[i]);
        weir_model_algorithm_fini(&plant->bucket_state[i]);
    }
    free(plant->events.items);
    weir_storage_free(plant->storage);
}

uint64_t weir_plant_run(const struct weir_plant_options *options)
{
    weir_assert(options->instances <= WEIR_PLANT_INSTANCES_MAX);
    weir_assert(options->instances_first <= options->instances);
    struct plant plant = {
        .options = options,
        .events = { .size = sizeof(struct event) },
        .storage = weir_storage_new(&options->storage),
        .bulk = { .sync = false },
        .sync = { .sync = true },
        .rng = { .state = options->seed },
    };
    if (options->fleet)
        plant.fleet = weir_plant_fleet_new(options);
    set_stream_rate(&plant, &plant.bulk, options->rate, 0);
    set_stream_rate(&plant, &plant.sync, options->sync_rate, 0);
    run_events(&plant);
    fini_plant(&plant);
    return plant.played;
}
