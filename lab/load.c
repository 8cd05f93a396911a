/* SPDX-License-Identifier: MIT
 * lab/load.c - sources of load; see load.h.
 *
 * The data for a request is prepared before: the key's name and truth bucket in
 * an array by key, weighted choices as alias tables, and for each load an array
 * of its ready limiters. That array is rebuilt at the first request after a
 * limiter started, died or was paused. Spreads that select a certain limiter
 * also have an array of stand-ins.
 *
 * The ideal limiter gets exactly the requests that were made. */

#include "lab/load.h"

#include <math.h>
#include <stdio.h>

#include "lab/memory.h"

/* One load of the scenario. */
struct source {
    struct weir_part part; /* the first member */
    struct weir_loads *loads;
    const struct weir_load *load;
    struct weir_load_sums sums;
    struct weir_rng rng;
    struct weir_arrival arrival;
    struct weir_access_log log; /* if it has one: */
    size_t log_next;
    /* Keys: */
    uint32_t key_count;
    struct weir_truth_bucket **buckets; /* owned, by key; NULL: unused */
    struct weir_alias key_alias;        /* if skewed */
    /* Limiters of the load: */
    uint32_t *members, member_count; /* owned */
    uint32_t *ready, ready_count;    /* owned; the ready ones */
    uint32_t *stand_in; /* owned; by member: itself or the next ready */
    uint64_t changes;   /* value of loads->changes when they were made */
    uint64_t turn;      /* of the round robin */
    struct weir_alias spread_alias; /* if skewed */
};

struct weir_loads {
    struct weir_fleet *fleet;
    struct weir_truth *truth;
    struct weir_check *check;
    struct source *sources; /* owned */
    size_t count;
    uint8_t *has_quotas, *paused; /* owned; by limiter */
    uint32_t limiters;
    uint64_t changes; /* of the set of ready limiters */
    uint64_t takes;
};

/* ---- Ready limiters ---- */

static void set_limiter_flag(struct weir_loads *loads, uint8_t *flags,
                             uint32_t limiter, bool value)
{
    weir_assert(limiter < loads->limiters);
    if (flags[limiter] == value)
        return;
    flags[limiter] = value;
    loads->changes++;
}

static void load_on_received(void *context, struct weir_node_place to,
                             uint32_t from, const struct weir_message *message)
{
    (void)from, (void)message;
    struct weir_loads *loads = context;
    if (to.root || loads->has_quotas[to.index])
        return;
    set_limiter_flag(
        loads, loads->has_quotas, to.index,
        weir_limiter_ready(weir_fleet_limiter(loads->fleet, to.index)));
}

static void load_on_dying(void *context, struct weir_node_place place)
{
    struct weir_loads *loads = context;
    if (!place.root)
        set_limiter_flag(loads, loads->has_quotas, place.index, false);
}

void weir_loads_pause(struct weir_loads *loads, uint32_t limiter, bool paused)
{
    weir_assert(limiter < loads->limiters);
    set_limiter_flag(loads, loads->paused, limiter, paused);
}

static bool limiter_may_take(const struct weir_loads *loads, uint32_t limiter)
{
    return loads->has_quotas[limiter] && !loads->paused[limiter];
}

static void find_ready(struct source *source)
{
    const struct weir_loads *loads = source->loads;
    if (source->changes == loads->changes)
        return;
    source->changes = loads->changes;
    source->ready_count = 0;
    uint32_t count = source->member_count;
    for (uint32_t i = 0; i < count; i++) {
        if (limiter_may_take(loads, source->members[i]))
            source->ready[source->ready_count++] = source->members[i];
    }
    if (source->ready_count == 0)
        return;
    /* Backwards, and around: the last ready one stands in for the first. */
    uint32_t next = source->ready[0];
    for (uint32_t i = count; i-- > 0;) {
        if (limiter_may_take(loads, source->members[i]))
            next = source->members[i];
        source->stand_in[i] = next;
    }
}

/* ---- One request ---- */

/* False: no limiter is ready. */
static bool choose_limiter(struct source *source, uint32_t key, uint32_t *out)
{
    find_ready(source);
    if (source->ready_count == 0)
        return false;
    uint32_t member = 0;
    switch (source->load->spread) {
    case WEIR_SPREAD_UNIFORM:
        *out = source->ready[weir_rng_below(&source->rng, source->ready_count)];
        return true;
    case WEIR_SPREAD_ROUND_ROBIN:
        *out = source->ready[source->turn++ % source->ready_count];
        return true;
    case WEIR_SPREAD_STICKY:
        member = (uint32_t)(weir_rng_mix(key + 1) % source->member_count);
        break;
    case WEIR_SPREAD_ZIPF:
        member = weir_alias_draw(&source->spread_alias, &source->rng);
        break;
    }
    *out = source->stand_in[member];
    return true;
}

/* The quota's name with its '*' replaced by the key. */
static struct weir_truth_bucket *source_bucket(struct source *source,
                                               uint32_t key)
{
    weir_assert(key < source->key_count);
    if (source->buckets[key])
        return source->buckets[key];
    const char *pattern = source->load->quota;
    const char *star = strchr(pattern, '*');
    char number[16], name[2 * WEIR_NAME_MAX];
    snprintf(number, sizeof(number), "%u", key + 1);
    if (star)
        snprintf(name, sizeof(name), "%.*s%s%s", (int)(star - pattern), pattern,
                 source->load->log ? source->log.clients[key] : number,
                 star + 1);
    else
        snprintf(name, sizeof(name), "%s", pattern);
    struct weir_text text = weir_text_of(name);
    if (text.len > WEIR_NAME_MAX)
        text.len = WEIR_NAME_MAX;
    source->buckets[key] = weir_truth_use(source->loads->truth, text);
    return source->buckets[key];
}

static void request_units(struct source *source, uint32_t limiter,
                          struct weir_truth_bucket *bucket, uint64_t weight)
{
    struct weir_loads *loads = source->loads;
    loads->takes++;
    weir_truth_offered(loads->truth, bucket, weight);
    uint64_t passed = bucket->passed;
    unsigned outcome =
        weir_fleet_take(loads->fleet, limiter, bucket->name, weight, NULL);
    bool limited = outcome & WEIR_OUTCOME_LIMITED;
    source->sums.offered += weight;
    source->sums.passed += limited ? 0 : weight;
    source->sums.limited += limited ? weight : 0;
    if (limited)
        weir_truth_refused(bucket, weight);
    else if (bucket->passed == passed)
        weir_truth_slipped(bucket, weight);
    if (loads->check)
        weir_check_decided(loads->check, limiter, bucket->name, weight,
                           outcome);
}

static uint32_t choose_key(struct source *source)
{
    if (source->load->log)
        return source->log.requests[source->log_next].client;
    if (source->key_alias.count > 0)
        return weir_alias_draw(&source->key_alias, &source->rng);
    return source->key_count > 1
               ? (uint32_t)weir_rng_below(&source->rng, source->key_count)
               : 0;
}

static uint64_t choose_weight(struct source *source)
{
    weir_assert(source->load->weight_min <= source->load->weight_max);
    uint64_t least = source->load->weight_min;
    uint64_t span = source->load->weight_max - least;
    return span > 0 ? least + weir_rng_below(&source->rng, span + 1) : least;
}

/* The instant of the next request. */
static weir_instant next_request(struct source *source)
{
    if (!source->load->log)
        return weir_arrival_next(&source->arrival, &source->rng);
    if (source->log_next == source->log.count)
        return WEIR_NEVER;
    double at = (double)source->log.requests[source->log_next].at /
                source->load->log_speed;
    return at < 1e18 ? source->arrival.start + (weir_duration)at : WEIR_NEVER;
}

static void run_source(struct weir_part *part, weir_instant now)
{
    (void)now;
    struct source *source = (struct source *)part;
    struct weir_loads *loads = source->loads;
    uint32_t key = choose_key(source);
    uint64_t weight = choose_weight(source);
    uint32_t limiter;
    if (choose_limiter(source, key, &limiter))
        request_units(source, limiter, source_bucket(source, key), weight);
    if (source->load->log)
        source->log_next++;
    weir_world_wake(weir_fleet_world(loads->fleet), part, next_request(source));
}

void weir_loads_start(struct weir_loads *loads)
{
    weir_instant now = weir_fleet_now(loads->fleet);
    for (size_t i = 0; i < loads->count; i++) {
        struct source *source = &loads->sources[i];
        /* "3x" is three times the present limit. */
        double limit = source_bucket(source, 0)->limit_per_s;
        source->arrival.base_per_s = limit > 0 ? limit : 0;
        source->arrival.start = source->arrival.at = now;
        weir_world_wake(weir_fleet_world(loads->fleet), &source->part,
                        next_request(source));
    }
}

void weir_loads_rate(struct weir_loads *loads, const char *name,
                     const struct weir_rate_step *rate)
{
    for (size_t i = 0; i < loads->count; i++) {
        struct source *source = &loads->sources[i];
        if (strcmp(source->load->name, name) != 0 || source->load->log)
            continue;
        source->arrival.replaced = true;
        source->arrival.rate = *rate;
        source->arrival.at = weir_fleet_now(loads->fleet);
        source->arrival.rest = 0;
        weir_world_wake(weir_fleet_world(loads->fleet), &source->part,
                        next_request(source));
    }
}

struct weir_load_sums weir_loads_sums(const struct weir_loads *loads,
                                      const char *name)
{
    size_t i = 0;
    while (i < loads->count && strcmp(loads->sources[i].load->name, name) != 0)
        i++;
    weir_assert(i < loads->count);
    return loads->sources[i].sums;
}

uint64_t weir_loads_takes(const struct weir_loads *loads)
{
    return loads->takes;
}

/* ---- Life ---- */

/* "3 of limiters" are drawn now. */
static void choose_members(struct source *source)
{
    weir_assert(source->load->on.first <= source->load->on.last);
    const struct weir_selection *on = &source->load->on;
    uint32_t count = on->last - on->first + 1;
    uint32_t wanted = on->count > 0 && on->count < count ? on->count : count;
    source->members = weir_must_zeroed(count, sizeof(uint32_t));
    source->ready = weir_must_zeroed(count, sizeof(uint32_t));
    source->stand_in = weir_must_zeroed(count, sizeof(uint32_t));
    source->member_count = wanted;
    for (uint32_t i = 0; i < count; i++)
        source->members[i] = on->first + i;
    for (uint32_t i = 0; i < wanted && wanted < count; i++) {
        uint32_t other = i + (uint32_t)weir_rng_below(&source->rng, count - i);
        uint32_t member = source->members[other];
        source->members[other] = source->members[i];
        source->members[i] = member;
    }
}

static int make_source(struct weir_loads *loads, const struct weir_load *load,
                       weir_duration span, uint64_t seed,
                       struct weir_diag *diag)
{
    struct source *source = &loads->sources[loads->count++];
    *source = (struct source){
        .part = { .name = load->name, .run = run_source },
        .loads = loads,
        .load = load,
        .rng = { .state = seed },
        .arrival = { .load = load, .span = span },
        .key_count = load->keys > 0 ? load->keys : 1,
        .changes = UINT64_MAX,
    };
    if (load->log) {
        int error = weir_access_log_read(&source->log, load->log, diag);
        if (error < 0)
            return error;
        source->key_count = source->log.client_count;
    } else if (source->key_count > 1 && load->key_skew > 0) {
        weir_alias_zipf(&source->key_alias, source->key_count, load->key_skew);
    }
    source->buckets =
        weir_must_zeroed(source->key_count, sizeof(struct weir_truth_bucket *));
    choose_members(source);
    if (load->spread == WEIR_SPREAD_ZIPF)
        weir_alias_zipf(&source->spread_alias, source->member_count,
                        load->skew);
    return WEIR_OK;
}

struct weir_loads *weir_loads_new(struct weir_fleet *fleet,
                                  struct weir_truth *truth,
                                  struct weir_check *check,
                                  const struct weir_scenario *scenario,
                                  uint64_t seed, struct weir_diag *diag)
{
    struct weir_loads *loads = weir_must_zeroed(1, sizeof(*loads));
    *loads = (struct weir_loads){
        .fleet = fleet,
        .truth = truth,
        .check = check,
        .sources =
            weir_must_zeroed(scenario->load_count, sizeof(*loads->sources)),
        .has_quotas = weir_must_zeroed(scenario->limiters, 1),
        .paused = weir_must_zeroed(scenario->limiters, 1),
        .limiters = scenario->limiters,
    };
    for (size_t i = 0; i < scenario->load_count; i++) {
        const struct weir_load *load = &scenario->loads[i];
        uint64_t own = weir_rng_mix(seed ^ weir_rng_mix(i + 1));
        if (make_source(loads, load, scenario->span, own, diag) < 0) {
            if (diag) {
                diag->line = load->where.line;
                diag->column = load->where.column;
            }
            weir_loads_free(loads);
            return NULL;
        }
    }
    const struct weir_fleet_watch watch = {
        .context = loads,
        .received = load_on_received,
        .dying = load_on_dying,
    };
    weir_fleet_watch(fleet, &watch);
    return loads;
}

static void fini_source(struct source *source)
{
    weir_world_wake(weir_fleet_world(source->loads->fleet), &source->part,
                    WEIR_NEVER);
    weir_access_log_fini(&source->log);
    weir_alias_fini(&source->key_alias);
    weir_alias_fini(&source->spread_alias);
    free(source->buckets);
    free(source->members);
    free(source->ready);
    free(source->stand_in);
}

void weir_loads_free(struct weir_loads *loads)
{
    if (!loads)
        return;
    for (size_t i = 0; i < loads->count; i++)
        fini_source(&loads->sources[i]);
    free(loads->sources);
    free(loads->has_quotas);
    free(loads->paused);
    free(loads);
}
