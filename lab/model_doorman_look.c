/* SPDX-License-Identifier: MIT
 * lab/model_doorman_look.c - measurements of a tree of leases.
 *
 * Every change happens between two calls: first the elapsed time is accounted
 * under the former state, then the new state is judged. So nothing is sampled,
 * and an excess that lasts from one message to the next is counted.
 *
 * Utilisation is the capacity that clients may use, divided by the capacity
 * that they could use: the smaller of the capacity and their wants. It is
 * capped at 1.
 *
 * After the capacity is cut, more may be handed out than the capacity, but
 * never more than at the cut, and returned capacity isn't handed out again:
 *
 *     bound = max(capacity, min(bound, out))
 *
 * 'out' is the root's own figure: raises in transit at the cut are included,
 * though no client uses them yet.
 *
 * A mishap accounts for every dip that begins after its end and before the next
 * mishap, and for the dip during which it ends, as long as that lasts. So
 * effects a lease time later count too. It doesn't account for a dip of demand:
 * clients want more, and have it as soon as they have asked. Such a dip begins
 * within a refresh and a round trip of the higher demand, and lasts no longer.
 * A longer one counts, because the master was asked and had nothing to give. */

#include <math.h>

#include "lab/model_doorman_internal.h"

/* Until then all masters learn, under the original's rules. */
#define WATCHED_FROM (65 * WEIR_SECOND)
#define TOLERANCE 1e-9
#define ENOUGH 0.95
/* Part of the capacity drawn for each job without a master, at the foot of a
 * figure. */
#define MARK 0.08

static double could_use(const struct weir_doorman_look *look)
{
    return look->wanted < look->capacity ? look->wanted : look->capacity;
}

static double utilisation(const struct weir_doorman_look *look)
{
    double could = could_use(look);
    return look->given < could ? look->given / could : 1;
}

/* ---- Time ---- */

static void raise_sample(struct weir_model_run *run, size_t series,
                         size_t sample, double value)
{
    double *samples = run->series[series];
    samples[sample] = value > samples[sample] ? value : samples[sample];
}

/* Levels are drawn by their maximum in a sample; 'given' by its minimum too, or
 * dips would be invisible. */
static void draw_least(struct weir_doorman *stage, size_t sample)
{
    struct weir_doorman_look *look = &stage->look;
    double *least = &stage->run->series[WEIR_DOORMAN_GIVEN_LEAST][sample];
    if (sample >= look->drawn || look->given < *least)
        *least = look->given;
    if (sample >= look->drawn)
        look->drawn = sample + 1;
}

static void draw_series(struct weir_doorman *stage, weir_instant now)
{
    const struct weir_doorman_look *look = &stage->look;
    struct weir_model_run *run = stage->run;
    double mark = MARK * look->capacity * look->without_master;
    size_t last = now / run->step;
    for (size_t i = look->at / run->step; i <= last && i < run->sample_count;
         i++) {
        draw_least(stage, i);
        raise_sample(run, WEIR_DOORMAN_GIVEN, i, look->given);
        raise_sample(run, WEIR_DOORMAN_WANTED, i, look->wanted);
        raise_sample(run, WEIR_DOORMAN_CAPACITY_THEN, i, look->capacity);
        raise_sample(run, WEIR_DOORMAN_WITHOUT_MASTER, i, mark);
    }
}

static void pass_time(struct weir_doorman *stage, weir_instant now)
{
    struct weir_doorman_look *look = &stage->look;
    weir_instant from = look->at > WATCHED_FROM ? look->at : WATCHED_FROM;
    draw_series(stage, now);
    if (now > from)
        look->used += utilisation(look) * (double)(now - from);
    look->at = now;
}

/* ---- Bound, and utilisation ---- */

static void judge_bound(struct weir_doorman *stage)
{
    struct weir_doorman_look *look = &stage->look;
    bool over = look->given > look->bound * (1 + TOLERANCE);
    if (over && look->over_at != look->at) {
        look->over_at = look->at;
        look->over_instants++;
    }
    look->over_episodes += over && !look->over;
    look->over = over;
    look->most = fmax(look->most, look->given / look->bound);
    if (look->bound <= look->capacity)
        return;
    double out = fmax(look->given, stage->rules->out(stage, look->at));
    look->bound = fmax(look->capacity, fmin(look->bound, out));
}

/* Whether the present dip, up to now, is explained by higher demand alone. */
static bool is_by_demand(const struct weir_doorman_look *look)
{
    weir_assert(look->low && look->low_at <= look->at);
    return look->demand_at != WEIR_NEVER && look->low_at >= look->demand_at &&
           look->low_at - look->demand_at <= look->patience &&
           look->at - look->low_at <= look->patience;
}

/* The end of the mishap that accounts for the present dip; WEIR_NEVER: none
 * does. */
static weir_instant accountable(const struct weir_doorman_look *look)
{
    if (look->first_ended != WEIR_NEVER)
        return look->first_ended;
    bool later = look->ended != WEIR_NEVER && look->low_at > look->ended;
    return later && is_by_demand(look) ? WEIR_NEVER : look->ended;
}

static void recovered(struct weir_doorman_look *look)
{
    weir_instant since = accountable(look);
    if (since != WEIR_NEVER && look->at - since > look->recovery)
        look->recovery = look->at - since;
    look->first_ended = WEIR_NEVER;
}

static void judge_use(struct weir_doorman_look *look)
{
    if (look->at < WATCHED_FROM)
        return;
    double use = utilisation(look);
    look->least = fmin(look->least, use);
    bool low = use < ENOUGH;
    if (look->low && !low)
        recovered(look);
    if (low && !look->low)
        look->low_at = look->at;
    look->low = low;
}

static void judge_newcomer(struct weir_doorman *stage)
{
    struct weir_doorman_look *look = &stage->look;
    if (look->newcomer == WEIR_DOORMAN_NONE)
        return;
    const struct weir_doorman_client *client = &stage->clients[look->newcomer];
    double share = client->wants * could_use(look) / look->wanted;
    if (client->given < ENOUGH * share)
        return;
    stage->run->metrics[WEIR_DOORMAN_NEWCOMER_WAIT] =
        (double)(look->at - look->newcomer_came) / 1e9;
    look->newcomer = WEIR_DOORMAN_NONE;
}

static void judge_sample(struct weir_doorman *stage)
{
    judge_bound(stage);
    judge_use(&stage->look);
    judge_newcomer(stage);
    draw_series(stage, stage->look.at);
}

/* ---- Changes ---- */

void weir_doorman_give(struct weir_doorman *stage, uint32_t client,
                       double given, weir_instant now)
{
    weir_assert(client < stage->client_count && given >= 0);
    pass_time(stage, now);
    stage->look.given += given - stage->clients[client].given;
    if (stage->look.given < 0) /* by rounding */
        stage->look.given = 0;
    stage->clients[client].given = given;
    judge_sample(stage);
}

void weir_doorman_look_again(struct weir_doorman *stage, weir_instant now)
{
    struct weir_doorman_look *look = &stage->look;
    pass_time(stage, now);
    /* Summed anew: sums of differences would drift. */
    double wanted = look->wanted;
    look->given = look->wanted = 0;
    for (size_t i = 0; i < stage->client_count; i++) {
        look->given += stage->clients[i].given;
        look->wanted += stage->clients[i].wants;
    }
    if (look->wanted > wanted * (1 + TOLERANCE))
        look->demand_at = now;
    look->without_master = 0;
    for (size_t i = 0; i < stage->job_count; i++)
        look->without_master += stage->jobs[i].master == WEIR_DOORMAN_NONE;
    judge_sample(stage);
}

void weir_doorman_look_cut(struct weir_doorman *stage, double capacity,
                           weir_instant now)
{
    struct weir_doorman_look *look = &stage->look;
    pass_time(stage, now);
    look->capacity = capacity;
    look->bound =
        fmax(capacity, fmax(look->given, stage->rules->out(stage, now)));
    judge_sample(stage);
}

void weir_doorman_mishap_begins(struct weir_doorman *stage)
{
    struct weir_doorman_look *look = &stage->look;
    look->mishaps = true;
    look->first_ended = look->low ? accountable(look) : WEIR_NEVER;
    look->ended = WEIR_NEVER;
}

void weir_doorman_mishap_ends(struct weir_doorman *stage, weir_instant now)
{
    struct weir_doorman_look *look = &stage->look;
    if (look->low)
        look->first_ended = accountable(look);
    look->ended = now;
}

void weir_doorman_report(struct weir_doorman *stage)
{
    struct weir_doorman_look *look = &stage->look;
    if (look->at <= WATCHED_FROM)
        return;
    bool over = look->given > look->capacity * (1 + TOLERANCE);
    look->report.count++;
    look->report.over += over;
    look->report.episodes += over && !look->report.was_over;
    look->report.was_over = over;
    look->report.given += look->given / look->capacity;
    look->report.given_over += over ? look->given / look->capacity : 0;
    look->report.most = fmax(look->report.most, look->given / look->capacity);
}

/* ---- Begin and end ---- */

void weir_doorman_look_init(struct weir_doorman *stage)
{
    double capacity = stage->values[WEIR_DOORMAN_CAPACITY];
    stage->look = (struct weir_doorman_look){
        .capacity = capacity,
        .bound = capacity,
        .least = 1,
        .over_at = WEIR_NEVER,
        .ended = WEIR_NEVER,
        .first_ended = WEIR_NEVER,
        .demand_at = WEIR_NEVER,
        .patience = (weir_duration)(stage->values[WEIR_DOORMAN_REFRESH] +
                                    stage->values[WEIR_DOORMAN_RTT]),
        .newcomer = WEIR_DOORMAN_NONE,
    };
}

static void end_report(struct weir_doorman *stage)
{
    const struct weir_doorman_look *look = &stage->look;
    double *metrics = stage->run->metrics;
    if (look->report.count == 0)
        return;
    metrics[WEIR_DOORMAN_REPORT_UTILISATION] =
        look->report.given / (double)look->report.count;
    metrics[WEIR_DOORMAN_REPORT_ROWS] = (double)look->report.over;
    metrics[WEIR_DOORMAN_REPORT_EPISODES] = (double)look->report.episodes;
    metrics[WEIR_DOORMAN_REPORT_MAX] = look->report.most;
    if (look->report.over > 0)
        metrics[WEIR_DOORMAN_REPORT_OVER_MEAN] =
            look->report.given_over / (double)look->report.over;
}

void weir_doorman_look_end(struct weir_doorman *stage)
{
    struct weir_doorman_look *look = &stage->look;
    double *metrics = stage->run->metrics;
    pass_time(stage, stage->run->span);
    if (look->low)
        recovered(look);
    if (look->at > WATCHED_FROM)
        metrics[WEIR_DOORMAN_UTILISATION] =
            look->used / (double)(look->at - WATCHED_FROM);
    metrics[WEIR_DOORMAN_SHORTFALL_ROWS] = (double)look->over_instants;
    metrics[WEIR_DOORMAN_EPISODES] = (double)look->over_episodes;
    metrics[WEIR_DOORMAN_MAX_GIVEN] = look->most;
    metrics[WEIR_DOORMAN_MIN_GIVEN] = look->least;
    if (look->mishaps)
        metrics[WEIR_DOORMAN_RECOVERY] = (double)look->recovery / 1e9;
    end_report(stage);
}
