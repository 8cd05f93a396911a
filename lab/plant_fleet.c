/* SPDX-License-Identifier: MIT
 * lab/plant_fleet.c - the processes of a plant as limiters with roots.
 *
 * The fleet's world and the plant's events have the same time; the fleet is run
 * up to each event of the plant before that is played. */

#include "lab/plant_fleet.h"

#include <math.h>
#include <string.h>

#include "core/quota/quota_adaptive.h"
#include "lab/fleet.h"
#include "lab/memory.h"

#define NAME "store"
/* The fleet gets ready before the plant's time begins. */
#define BEFORE (3 * WEIR_SECOND)

struct weir_plant_fleet {
    const struct weir_plant_options *options;
    struct weir_fleet *fleet; /* owned */
    weir_instant begin;       /* the plant's 0, in the fleet's time */
    uint32_t master;
    weir_instant leads_at; /* the next master leads; WEIR_NEVER: none is due */
    bool dead;             /* the master has died */
};

static uint64_t decimal(double value)
{
    return (uint64_t)llround(value * WEIR_DECIMAL_ONE);
}

static struct weir_quota quota_of(const struct weir_plant_options *options)
{
    const struct weir_controller_options *controller =
        &options->gate.controller;
    struct weir_quota quota;
    weir_quota_init(&quota);
    quota.name = WEIR_TEXT(NAME);
    quota.kind = WEIR_CONCURRENCY;
    quota.sharing = WEIR_ADAPTIVE;
    quota.scope = WEIR_SCOPE_FLEET;
    quota.target = controller->target;
    quota.percentile = decimal(controller->percentile);
    quota.max = decimal(controller->max);
    quota.min = decimal(controller->min);
    if (quota.min < decimal(0.001))
        quota.min = decimal(0.001);
    quota.limit.per = 0;
    if (options->gate.classes > 1)
        quota.classes = WEIR_TEXT("bulk,sync:observed");
    return quota;
}

struct weir_plant_fleet *weir_plant_fleet_new(
    const struct weir_plant_options *options)
{
    struct weir_plant_fleet *f = weir_must_zeroed(1, sizeof(*f));
    struct weir_fleet_options fleet = {
        .seed = options->seed,
        .limiters = options->instances,
        .roots = options->roots,
        .slots = 8,
        .leases = 4,
        .gate_slots = 4,
        .net = { .delay = options->rtt / 2 },
        .settings = { .report_interval = WEIR_SECOND,
                      .stale_after = 10 * WEIR_SECOND },
    };
    struct weir_quota quota = quota_of(options);
    f->options = options;
    f->leads_at = WEIR_NEVER;
    f->fleet = weir_fleet_new(&fleet);
    weir_fleet_lead(f->fleet, 0, true);
    int error = weir_fleet_put(f->fleet, &quota, NULL);
    weir_assert(error == 0);
    weir_fleet_run(f->fleet, weir_fleet_now(f->fleet) + BEFORE);
    f->begin = weir_fleet_now(f->fleet);
    return f;
}

void weir_plant_fleet_free(struct weir_plant_fleet *f)
{
    if (!f)
        return;
    weir_fleet_free(f->fleet);
    free(f);
}

void weir_plant_fleet_start(struct weir_plant_fleet *f, uint32_t instance)
{
    weir_fleet_start(f->fleet, weir_limiter_place(instance));
    weir_fleet_run(f->fleet, weir_fleet_now(f->fleet));
}

/* ---- The master's death ---- */

static void change_masters(struct weir_plant_fleet *f, weir_instant now)
{
    const struct weir_plant_options *o = f->options;
    if (o->dies_at > 0 && now >= o->dies_at && !f->dead) {
        f->dead = true;
        weir_fleet_kill(f->fleet, weir_root_place(f->master));
        if (o->takeover != WEIR_NEVER && f->master + 1 < o->roots)
            f->leads_at = now + o->takeover;
    }
    if (now >= f->leads_at) {
        f->leads_at = WEIR_NEVER;
        weir_fleet_lead(f->fleet, ++f->master, false);
    }
}

void weir_plant_fleet_run(struct weir_plant_fleet *f, weir_instant now)
{
    change_masters(f, now);
    weir_fleet_run(f->fleet, f->begin + now);
}

/* ---- Requests ---- */

bool weir_plant_fleet_enter(struct weir_plant_fleet *f, uint32_t instance,
                            bool sync, struct weir_permit_record *out_record)
{
    memset(out_record, 0, sizeof(*out_record));
    if (f->options->gate.classes > 1)
        out_record->klass =
            weir_class_number(sync ? WEIR_TEXT("sync") : WEIR_TEXT("bulk"));
    unsigned outcome =
        weir_fleet_enter(f->fleet, instance, WEIR_TEXT(NAME), 1, out_record);
    return !(outcome & WEIR_OUTCOME_LIMITED);
}

void weir_plant_fleet_leave(struct weir_plant_fleet *f, uint32_t instance,
                            struct weir_permit_record *record,
                            enum weir_sample_outcome outcome)
{
    weir_fleet_leave_as(f->fleet, instance, record,
                        (enum weir_permit_outcome)outcome);
}

void weir_plant_fleet_view(struct weir_plant_fleet *f, uint32_t instance,
                           struct weir_concurrency_gate_view *out)
{
    struct weir_table *table = weir_fleet_table(f->fleet, instance);
    weir_instant now =
        weir_fleet_clock_of(f->fleet, weir_limiter_place(instance));
    struct weir_ref ref;
    memset(out, 0, sizeof(*out));
    if (table && weir_table_find(table, WEIR_TEXT(NAME), &ref))
        (void)weir_table_adaptive(table, ref.slot, out, now);
}
