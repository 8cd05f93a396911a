/* SPDX-License-Identifier: MIT
 * lab/model_doorman.c - Doorman's seven scenarios: a tree of jobs hands a
 * capacity down to clients, under mishaps.
 *
 *     root ──┬── region ──┬── datacentre ── clients    each job: some tasks,
 *            ├── region   ├── datacentre ── clients    one of them master
 *            └── region   └── datacentre ── clients
 *
 * This file is the part common to both sets of rules: the tree, the masters,
 * the clients' wants, the mishaps. A lost master takes its job's memory with
 * it; the next one, which may be the same task, knows nothing. An election
 * without a loss is the same, without the time between.
 *
 * Source: Doorman's design document and simulation (github.com/youtube/
 * doorman, doc/design.md, simulation/). Its mishaps were meant to be 5 spikes,
 * 5 elections and 5 losses of 15; as that program walks its table they are 10,
 * 1 and 4, which is the preset. If a second loss hits a job without a master,
 * that program ends with an exception; here it has no effect. */

#include "lab/model_doorman_internal.h"

#include "lab/memory.h"

#define REPORT_EVERY (5 * WEIR_SECOND)

static const struct weir_doorman_rules *const all_rules[] = {
    &weir_doorman_weir,
    &weir_doorman_original,
};
static const char *const rules_names[] = { "weir", "original", NULL };
static const char *const first_names[] = { "learning", "empty", NULL };
static const char *const share_names[] = { "proportional", "fair", NULL };

static const struct weir_model_field fields[] = {
    [WEIR_DOORMAN_RULES] = { .name = "rules",
                             .kind = WEIR_MODEL_WORD,
                             .words = rules_names,
                             .sentence = "of servers and clients" },
    [WEIR_DOORMAN_REGIONS] = { .name = "regions",
                               .kind = WEIR_MODEL_COUNT,
                               .preset = 3,
                               .min = 0,
                               .max = 100,
                               .sentence = "below the root; 0: clients are on "
                                           "the root" },
    [WEIR_DOORMAN_DATACENTRES] = { .name = "datacentres",
                                   .kind = WEIR_MODEL_COUNT,
                                   .preset = 3,
                                   .min = 0,
                                   .max = 100,
                                   .sentence = "in a region; 0: clients are on "
                                               "regions" },
    [WEIR_DOORMAN_CLIENTS] = { .name = "clients",
                               .kind = WEIR_MODEL_COUNT,
                               .preset = 5,
                               .min = 1,
                               .max = 1000,
                               .sentence = "of each job at the bottom" },
    [WEIR_DOORMAN_TASKS] = { .name = "tasks",
                             .kind = WEIR_MODEL_COUNT,
                             .preset = 3,
                             .min = 1,
                             .max = 100,
                             .sentence = "of each job, one of them master" },
    [WEIR_DOORMAN_WANTS] = { .name = "wants",
                             .kind = WEIR_MODEL_REAL,
                             .preset = 15,
                             .min = 0.001,
                             .max = 1e12,
                             .sentence = "each client at first" },
    [WEIR_DOORMAN_CHANGE] = { .name = "change",
                              .kind = WEIR_MODEL_SHARE,
                              .preset = 0.1,
                              .sentence = "of what it wants, up or down" },
    [WEIR_DOORMAN_CHANGE_EVERY] = { .name = "change_every",
                                    .kind = WEIR_MODEL_DURATION,
                                    .preset = 10e9,
                                    .sentence = "for each client" },
    [WEIR_DOORMAN_CAPACITY] = { .name = "capacity",
                                .kind = WEIR_MODEL_REAL,
                                .preset = 500,
                                .min = 0.001,
                                .max = 1e12,
                                .sentence = "of the root" },
    [WEIR_DOORMAN_SHARE] = { .name = "share",
                             .kind = WEIR_MODEL_WORD,
                             .words = share_names,
                             .sentence = "by Weir's rules (the original has "
                                         "a proportional one of its own)" },
    [WEIR_DOORMAN_SAFE] = { .name = "safe",
                            .kind = WEIR_MODEL_REAL,
                            .preset = 10,
                            .min = 0,
                            .max = 1e12,
                            .sentence = "safe capacity of a client (the "
                                        "original never uses it)" },
    [WEIR_DOORMAN_LEASE] = { .name = "lease",
                             .kind = WEIR_MODEL_DURATION,
                             .preset = 60e9,
                             .sentence = "of what is handed out" },
    [WEIR_DOORMAN_REFRESH] = { .name = "refresh",
                               .kind = WEIR_MODEL_DURATION,
                               .preset = 8e9,
                               .sentence = "of requests to the root" },
    [WEIR_DOORMAN_DECAY] = { .name = "decay",
                             .kind = WEIR_MODEL_SHARE,
                             .preset = 0.5,
                             .sentence = "of the refresh interval with each "
                                         "level" },
    [WEIR_DOORMAN_FIRST] = { .name = "first",
                             .kind = WEIR_MODEL_WORD,
                             .words = first_names,
                             .sentence = "first masters: they learn as any "
                                         "other, or know that there are no "
                                         "leases" },
    [WEIR_DOORMAN_ROSTER] = { .name = "roll_call",
                              .kind = WEIR_MODEL_DURATION,
                              .preset = 1e9,
                              .sentence = "that each later master but "
                                          "the root's hears its callers "
                                          "before it asks" },
    [WEIR_DOORMAN_KEEP] = { .name = "keep",
                            .kind = WEIR_MODEL_DURATION,
                            .preset = 0,
                            .sentence = "to write a number where the election "
                                        "is; 0: none is kept" },
    [WEIR_DOORMAN_RTT] = { .name = "rtt",
                           .kind = WEIR_MODEL_DURATION,
                           .preset = 50e6,
                           .sentence = "of each level (the original has "
                                       "none)" },
    [WEIR_DOORMAN_MISHAPS] = { .name = "mishaps",
                               .kind = WEIR_MODEL_DURATION,
                               .preset = 0,
                               .sentence = "between one and the next, and "
                                           "before the first; 0: none" },
    [WEIR_DOORMAN_SPIKES] = { .name = "spikes",
                              .kind = WEIR_MODEL_COUNT,
                              .preset = 10,
                              .min = 0,
                              .max = 1000,
                              .sentence = "among the mishaps, as the next "
                                          "two" },
    [WEIR_DOORMAN_ELECTIONS] = { .name = "elections",
                                 .kind = WEIR_MODEL_COUNT,
                                 .preset = 1,
                                 .min = 0,
                                 .max = 1000,
                                 .sentence = "of a job's next master" },
    [WEIR_DOORMAN_LOSSES] = { .name = "losses",
                              .kind = WEIR_MODEL_COUNT,
                              .preset = 4,
                              .min = 0,
                              .max = 1000,
                              .sentence = "of a job's master, and an election "
                                          "later" },
    [WEIR_DOORMAN_SPIKE] = { .name = "spike",
                             .kind = WEIR_MODEL_REAL,
                             .preset = 100,
                             .min = 0,
                             .max = 1e12,
                             .sentence = "that a client wants more from then "
                                         "on" },
    [WEIR_DOORMAN_AWAY] = { .name = "away",
                            .kind = WEIR_MODEL_DURATION,
                            .preset = 60e9,
                            .sentence = "a lost master's job is without one, "
                                        "at most" },
    [WEIR_DOORMAN_LOSE] = { .name = "lose",
                            .kind = WEIR_MODEL_DURATION,
                            .preset = 0,
                            .sentence = "the root's master then; 0: not" },
    [WEIR_DOORMAN_ELECT] = { .name = "elect",
                             .kind = WEIR_MODEL_DURATION,
                             .preset = 0,
                             .sentence = "a master of the root then; 0: not" },
    [WEIR_DOORMAN_SURGE] = { .name = "surge",
                             .kind = WEIR_MODEL_DURATION,
                             .preset = 0,
                             .sentence = "of two clients then; 0: not" },
    [WEIR_DOORMAN_SURGE_WANTS] = { .name = "surge_wants",
                                   .kind = WEIR_MODEL_REAL,
                                   .preset = 1000,
                                   .min = 0,
                                   .max = 1e12,
                                   .sentence = "each of them" },
    [WEIR_DOORMAN_NEWCOMER] = { .name = "newcomer",
                                .kind = WEIR_MODEL_DURATION,
                                .preset = 0,
                                .sentence = "at the last job comes then; 0: "
                                            "not" },
    [WEIR_DOORMAN_CUT] = { .name = "cut",
                           .kind = WEIR_MODEL_DURATION,
                           .preset = 0,
                           .sentence = "of the capacity then; 0: not" },
    [WEIR_DOORMAN_CUT_TO] = { .name = "cut_to",
                              .kind = WEIR_MODEL_REAL,
                              .preset = 250,
                              .min = 0.001,
                              .max = 1e12,
                              .sentence = "this much" },
    { .name = NULL },
};

static const struct weir_model_metric metrics[] = {
    { "utilisation", "given / min(capacity, wanted), mean over time from 65 s "
                     "on; safe capacity in use counts as given" },
    { "shortfall_rows", "instants with more given than the capacity, or "
                        "than was handed out at the last cut" },
    { "episodes", "how often that began" },
    { "max_given", "given, most, of the larger of these two" },
    { "min_given", "given, least from 65 s on, of min(capacity, wanted)" },
    { "recovery_s", "seconds from a mishap's end until utilisation is back "
                    "above 95 %, longest; without dips of higher demand" },
    { "newcomer_wait_s", "seconds from a newcomer's first request until it "
                         "has 95 % of its share" },
    { "report_utilisation", "given / capacity, mean of the original's report: "
                            "a row each 5 s, from 70 s on" },
    { "report_rows", "rows of that report with more given than the capacity" },
    { "report_episodes", "the same, of rows that follow each other one" },
    { "report_max", "given / capacity, most of any row" },
    { "report_over", "given / capacity, mean of the rows over capacity" },
    { "shortfalls", "grants to a job below what it had handed out" },
    { "decisions", "answers to clients by the algorithm" },
    { "learning_answers", "answers to clients while learning" },
    { "failures", "requests of clients that found no master" },
    { "expiries", "leases of clients that ran out" },
    { NULL, NULL },
};

static const struct weir_model_series series[] = {
    [WEIR_DOORMAN_GIVEN] = { "given", "units a second", false },
    [WEIR_DOORMAN_GIVEN_LEAST] = { "given_least", "units a second", false },
    [WEIR_DOORMAN_CAPACITY_THEN] = { "capacity", "units a second", false },
    [WEIR_DOORMAN_WANTED] = { "wanted", "units a second", false },
    [WEIR_DOORMAN_WITHOUT_MASTER] = { "without_master", "units a second",
                                      false },
    { NULL, NULL, false },
};

/* A random number below 'count'. */
static uint32_t draw_below(struct weir_doorman *stage, size_t count)
{
    return (uint32_t)weir_rng_below(&stage->rng, count);
}

/* ---- Masters ---- */

static void change_master(struct weir_doorman *stage, uint32_t job,
                          uint32_t master, weir_instant now)
{
    weir_assert(job < stage->job_count);
    uint32_t old = stage->jobs[job].master;
    if (old == master)
        return;
    stage->jobs[job].master = master;
    stage->rules->master_changed(stage, job, old, now);
    weir_doorman_look_again(stage, now);
}

static void elect(struct weir_doorman *stage, uint32_t job, weir_instant now)
{
    if (!stage->jobs[job].lost)
        weir_doorman_mishap_begins(stage);
    stage->jobs[job].lost = false;
    change_master(stage, job, draw_below(stage, stage->tasks), now);
    weir_doorman_mishap_ends(stage, now);
}

static void lose_master(struct weir_doorman *stage, uint32_t job,
                        weir_instant now)
{
    weir_doorman_mishap_begins(stage);
    stage->jobs[job].lost = true;
    change_master(stage, job, WEIR_DOORMAN_NONE, now);
}

/* ---- Wants ---- */

static void set_wants(struct weir_doorman *stage, uint32_t client, double wants,
                      weir_instant now)
{
    stage->clients[client].wants = wants;
    weir_doorman_look_again(stage, now);
    stage->rules->wants_changed(stage, client, now);
}

static double wants_next(struct weir_doorman *stage, uint32_t client)
{
    double wants = stage->clients[client].wants;
    double change = stage->values[WEIR_DOORMAN_CHANGE];
    wants += change * (1 - 2 * weir_rng_unit(&stage->rng)) * wants;
    return wants > 0 ? wants : 0;
}

static void change_wants(struct weir_doorman *stage, uint32_t client,
                         weir_instant now)
{
    set_wants(stage, client, wants_next(stage, client), now);
    weir_doorman_post(
        stage, now + (weir_duration)stage->values[WEIR_DOORMAN_CHANGE_EVERY],
        change_wants, client);
}

static void spike(struct weir_doorman *stage, uint32_t client, double wants,
                  weir_instant now)
{
    weir_doorman_mishap_begins(stage);
    set_wants(stage, client, wants, now);
    weir_doorman_mishap_ends(stage, now);
}

static void surge(struct weir_doorman *stage, uint32_t which, weir_instant now)
{
    (void)which;
    double wants = stage->values[WEIR_DOORMAN_SURGE_WANTS];
    uint32_t first = draw_below(stage, stage->client_count);
    uint32_t second = first;
    while (second == first && stage->client_count > 1)
        second = draw_below(stage, stage->client_count);
    spike(stage, first, wants, now);
    spike(stage, second, wants, now);
}

/* ---- Mishaps ---- */

static void lose_by_chance(struct weir_doorman *stage, weir_instant now)
{
    uint32_t job = draw_below(stage, stage->job_count);
    weir_duration away = (weir_duration)stage->values[WEIR_DOORMAN_AWAY];
    /* Whole seconds: the original has no others. */
    weir_duration seconds = draw_below(stage, (size_t)(away / WEIR_SECOND) + 1);
    if (stage->jobs[job].master == WEIR_DOORMAN_NONE)
        return;
    lose_master(stage, job, now);
    weir_doorman_post(stage, now + seconds * WEIR_SECOND, elect, job);
}

static void befall(struct weir_doorman *stage, uint32_t which, weir_instant now)
{
    const double *values = stage->values;
    size_t spikes = (size_t)values[WEIR_DOORMAN_SPIKES];
    size_t elections = (size_t)values[WEIR_DOORMAN_ELECTIONS];
    size_t kinds = spikes + elections + (size_t)values[WEIR_DOORMAN_LOSSES];
    weir_doorman_post(stage, now + (weir_duration)values[WEIR_DOORMAN_MISHAPS],
                      befall, which);
    if (kinds == 0)
        return;
    uint32_t kind = draw_below(stage, kinds);
    if (kind < elections) {
        elect(stage, draw_below(stage, stage->job_count), now);
    } else if (kind < elections + spikes) {
        uint32_t client = draw_below(stage, stage->client_count);
        double wants = stage->clients[client].wants;
        spike(stage, client, wants + values[WEIR_DOORMAN_SPIKE], now);
    } else {
        lose_by_chance(stage, now);
    }
}

static void cut_capacity(struct weir_doorman *stage, uint32_t which,
                         weir_instant now)
{
    (void)which;
    weir_doorman_look_cut(stage, stage->values[WEIR_DOORMAN_CUT_TO], now);
    stage->rules->capacity_changed(stage, now);
}

/* ---- The tree ---- */

static uint32_t add_job(struct weir_doorman *stage, uint32_t parent,
                        uint32_t level)
{
    stage->jobs = weir_must_grow(stage->jobs, &stage->job_room,
                                 stage->job_count + 1, sizeof *stage->jobs);
    uint32_t job = (uint32_t)stage->job_count++;
    stage->jobs[job] = (struct weir_doorman_job){ .level = level,
                                                  .parent = parent,
                                                  .master = WEIR_DOORMAN_NONE };
    stage->rules->job_came(stage, job);
    change_master(stage, job, draw_below(stage, stage->tasks), 0);
    return job;
}

static uint32_t add_stage_client(struct weir_doorman *stage, uint32_t job,
                                 weir_instant now)
{
    stage->clients =
        weir_must_grow(stage->clients, &stage->client_room,
                       stage->client_count + 1, sizeof *stage->clients);
    uint32_t client = (uint32_t)stage->client_count++;
    stage->clients[client] = (struct weir_doorman_client){
        .job = job, .wants = stage->values[WEIR_DOORMAN_WANTS]
    };
    weir_duration every =
        (weir_duration)stage->values[WEIR_DOORMAN_CHANGE_EVERY];
    if (stage->values[WEIR_DOORMAN_CHANGE] > 0 && every > 0) {
        stage->clients[client].wants = wants_next(stage, client);
        weir_doorman_post(stage, now + every, change_wants, client);
    }
    weir_doorman_look_again(stage, now);
    stage->rules->client_came(stage, client, now);
    return client;
}

static void add_below(struct weir_doorman *stage, uint32_t job)
{
    const double *values = stage->values;
    uint32_t level = stage->jobs[job].level;
    const double children[] = { values[WEIR_DOORMAN_REGIONS],
                                values[WEIR_DOORMAN_DATACENTRES], 0 };
    for (double i = 0; i < children[level]; i++)
        add_below(stage, add_job(stage, job, level + 1));
    if (children[level] > 0)
        return;
    for (double i = 0; i < values[WEIR_DOORMAN_CLIENTS]; i++)
        add_stage_client(stage, job, 0);
}

static void newcomer(struct weir_doorman *stage, uint32_t which,
                     weir_instant now)
{
    (void)which;
    uint32_t job = stage->clients[stage->client_count - 1].job;
    /* Set before the client is added: it may get its share at once. */
    stage->look.newcomer = (uint32_t)stage->client_count;
    stage->look.newcomer_came = now;
    add_stage_client(stage, job, now);
}

/* ---- Playing ---- */

static void report(struct weir_doorman *stage, uint32_t which, weir_instant now)
{
    weir_doorman_look_again(stage, now);
    weir_doorman_report(stage);
    weir_doorman_post(stage, now + REPORT_EVERY, report, which);
}

static void post_if(struct weir_doorman *stage, enum weir_doorman_field field,
                    void (*run)(struct weir_doorman *stage, uint32_t which,
                                weir_instant now))
{
    if (stage->values[field] > 0)
        weir_doorman_post(stage, (weir_instant)stage->values[field], run, 0);
}

static void play_doorman(struct weir_model_run *run)
{
    struct weir_doorman stage = {
        .run = run,
        .values = run->values,
        .rules = all_rules[(size_t)run->values[WEIR_DOORMAN_RULES]],
        .rng = { .state = run->seed },
        .tasks = (uint32_t)run->values[WEIR_DOORMAN_TASKS],
        .agenda = { .size = sizeof(struct weir_doorman_action) },
    };
    for (size_t i = WEIR_DOORMAN_SHORTFALLS; i <= WEIR_DOORMAN_EXPIRIES; i++)
        run->metrics[i] = 0;
    weir_doorman_look_init(&stage);
    stage.rules->init(&stage);
    add_below(&stage, add_job(&stage, WEIR_DOORMAN_NONE, 0));
    weir_doorman_post(&stage, REPORT_EVERY, report, 0);
    post_if(&stage, WEIR_DOORMAN_MISHAPS, befall);
    post_if(&stage, WEIR_DOORMAN_LOSE, lose_master);
    post_if(&stage, WEIR_DOORMAN_ELECT, elect);
    post_if(&stage, WEIR_DOORMAN_SURGE, surge);
    post_if(&stage, WEIR_DOORMAN_NEWCOMER, newcomer);
    post_if(&stage, WEIR_DOORMAN_CUT, cut_capacity);
    stage.rules->play(&stage);
    weir_doorman_look_end(&stage);
    stage.rules->fini(&stage);
    free(stage.agenda.items);
    free(stage.jobs);
    free(stage.clients);
}

const struct weir_model weir_model_doorman = {
    .name = "doorman",
    .sentence = "leases in a tree of servers, under Doorman's own mishaps",
    .fields = fields,
    .metrics = metrics,
    .series = series,
    .play = play_doorman,
};
