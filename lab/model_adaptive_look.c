/* SPDX-License-Identifier: MIT
 * lab/model_adaptive_look.c - an observer of a plant, and its measures.
 *
 * The latency of each admitted request is kept until the end: a p95 of the
 * whole can't be computed from those of parts. A request counts at its arrival,
 * not at its answer, so it counts under the limit that admitted it. Percentiles
 * are by nearest rank.
 *
 * The article's dashboards show the p95 of each 15 s, so windows_over counts
 * the windows that lie completely in the measured time.
 *
 * How the limits come back after a change that ends (the hang, the slow time)
 * is measured from its end on, by answers in time and at their instants: a
 * request that was admitted and not answered has been of no use. */

#include "lab/model_adaptive_internal.h"

#include <math.h>

#include "lab/memory.h"

#define WINDOW (15 * WEIR_SECOND)
#define TICK (WEIR_SECOND / 10) /* unit of phases' lengths */

enum phase {
    BEFORE, /* settled, before the change */
    FIRST,  /* the first 'grace' after it */
    AFTER,  /* changed, and settled */
    BACK,   /* changed back, and settled */
    NEITHER,
};
#define PHASES (NEITHER + 1)

struct latencies {
    double *ms; /* owned */
    size_t count, capacity;
};

struct weir_adaptive_look {
    struct weir_model_run *run;
    const struct weir_plant_options *plant;
    struct weir_adaptive_phases phases;
    weir_instant settle;
    struct latencies all, bulk, sync, of_phase[PHASES];
    struct latencies window, bin, sync_bin; /* of the present one so far */
    size_t sample;                          /* of the bin */
    weir_instant window_end;
    uint64_t windows, windows_over, slow, refused, offered;
    uint64_t sync_offered, sync_refused;
    uint64_t wanting, done, tries; /* bulk, from the start */
    weir_instant done_at;
    double worst_window;
    /* From the end of the first change on: */
    struct latencies back_window;
    weir_instant back_end;      /* of the present window; 0: no end */
    uint64_t back_windows_over; /* from then on */
    uint64_t back_done;         /* in 'grace' */
    weir_instant shares_from;
    double done_by[WEIR_PLANT_INSTANCES_MAX]; /* from then on */
    double limit[WEIR_PLANT_INSTANCES_MAX];   /* as last read */
    double limit_min, limit_max, limit_sum, limit_before;
    uint64_t limits, falls;
    weir_instant first_fall, last_fall, fall_at;
    uint32_t in_flight_max;
    double limit_at_change;
};

struct weir_adaptive_look *weir_adaptive_look_new(
    struct weir_model_run *run, const struct weir_plant_options *plant,
    const struct weir_adaptive_phases *phases, weir_instant settle)
{
    struct weir_adaptive_look *look = weir_must_zeroed(1, sizeof *look);
    *look = (struct weir_adaptive_look){
        .run = run,
        .plant = plant,
        .phases = *phases,
        .settle = settle,
        .window_end = settle + WINDOW,
        .limit_min = INFINITY,
        .limit_max = -INFINITY,
        .limit_before = NAN,
        .limit_at_change = NAN,
    };
    look->shares_from = phases->change > 0 ? phases->change + phases->lasts +
                                                 phases->shares_after
                                           : settle;
    if (phases->lasts > 0)
        look->back_end = phases->change + phases->lasts + WINDOW;
    return look;
}

void weir_adaptive_look_free(struct weir_adaptive_look *look)
{
    if (!look)
        return;
    struct latencies *all[] = { &look->all,        &look->bulk, &look->sync,
                                &look->window,     &look->bin,  &look->sync_bin,
                                &look->back_window };
    for (size_t i = 0; i < WEIR_COUNT_OF(all); i++)
        free(all[i]->ms);
    for (size_t i = 0; i < PHASES; i++)
        free(look->of_phase[i].ms);
    free(look);
}

/* ---- Latencies ---- */

static void keep_latency(struct latencies *latencies, double ms)
{
    latencies->ms = weir_must_grow(latencies->ms, &latencies->capacity,
                                   latencies->count + 1, sizeof(double));
    latencies->ms[latencies->count++] = ms;
}

static void swap_latencies(double *a, double *b)
{
    double kept = *a;
    *a = *b;
    *b = kept;
}

/* Puts the nth value in sorted order at its place, with nothing larger before
 * it and nothing smaller behind (Hoare's "Find", CACM 1961). A sort would take
 * most of the time of a run. */
static double find_nth(double *ms, size_t count, size_t nth)
{
    size_t from = 0, to = count - 1;
    while (from < to) {
        double middle = ms[from + (to - from) / 2];
        size_t low = from, high = to;
        for (;;) {
            while (ms[low] < middle)
                low++;
            while (ms[high] > middle)
                high--;
            if (low >= high)
                break;
            swap_latencies(&ms[low++], &ms[high--]);
        }
        /* All up to 'high' are at most 'middle', all behind at least. */
        if (nth <= high)
            to = high;
        else
            from = high + 1;
    }
    return ms[nth];
}

/* NaN: no values. */
static double percentile(struct latencies *latencies, size_t percent)
{
    size_t count = latencies->count;
    if (count == 0)
        return NAN;
    return find_nth(latencies->ms, count, (count * percent + 99) / 100 - 1);
}

static double mean(const struct latencies *latencies)
{
    double sum = 0;
    for (size_t i = 0; i < latencies->count; i++)
        sum += latencies->ms[i];
    return latencies->count > 0 ? sum / (double)latencies->count : NAN;
}

static double target_ms(const struct weir_adaptive_look *look)
{
    return (double)look->plant->gate.controller.target / 1e6;
}

/* ---- Phases ---- */

static enum phase phase_at(const struct weir_adaptive_look *look,
                           weir_instant at)
{
    const struct weir_adaptive_phases *phases = &look->phases;
    if (phases->change == 0)
        return NEITHER;
    if (at < phases->change)
        return at < look->settle ? NEITHER : BEFORE;
    weir_duration since = at - phases->change;
    if (phases->every > 0)
        since %= phases->every;
    if (since < phases->grace)
        return FIRST;
    if (phases->lasts == 0 || since < phases->lasts)
        return AFTER;
    return since < phases->lasts + phases->grace ? NEITHER : BACK;
}

static double phase_rps(const struct weir_adaptive_look *look, enum phase phase)
{
    double length = 0;
    for (weir_instant at = TICK / 2; at < look->run->span; at += TICK)
        if (phase_at(look, at) == phase)
            length += (double)TICK / 1e9;
    return length > 0 ? (double)look->of_phase[phase].count / length : NAN;
}

/* ---- Windows, and bins of the figures ---- */

static void close_window(struct weir_adaptive_look *look)
{
    double p95 = percentile(&look->window, 95);
    look->windows++;
    look->windows_over += p95 > target_ms(look) ? 1 : 0;
    look->worst_window = fmax(look->worst_window, p95);
    look->window.count = 0;
    look->window_end += WINDOW;
}

static void close_back_window(struct weir_adaptive_look *look)
{
    double p95 = percentile(&look->back_window, 95);
    look->back_windows_over += p95 > target_ms(look) ? 1 : 0;
    look->back_window.count = 0;
    look->back_end += WINDOW;
}

static void close_bin(struct weir_adaptive_look *look)
{
    double **series = look->run->series;
    size_t sample = look->sample++;
    if (sample >= look->run->sample_count)
        return;
    double p95 = percentile(&look->bin, 95);
    double sync = percentile(&look->sync_bin, 95);
    series[WEIR_ADAPTIVE_SERIES_P95][sample] = isnan(p95) ? 0 : p95;
    series[WEIR_ADAPTIVE_SERIES_SYNC_P95][sample] = isnan(sync) ? 0 : sync;
    series[WEIR_ADAPTIVE_SERIES_TARGET][sample] = target_ms(look);
    for (size_t i = 0; i < look->plant->instances; i++)
        series[WEIR_ADAPTIVE_SERIES_LIMIT][sample] += look->limit[i];
    look->bin.count = 0;
    look->sync_bin.count = 0;
}

static void close_windows(struct weir_adaptive_look *look, weir_instant now)
{
    while (now >= look->window_end)
        close_window(look);
    while (look->back_end > 0 && now >= look->back_end)
        close_back_window(look);
    while (now / look->run->step > look->sample)
        close_bin(look);
}

/* ---- A request ---- */

/* An unbounded limit isn't drawn. */
static double shown(double limit)
{
    return limit < WEIR_PERMITS_MAX ? limit : 0;
}

static void note_limit(struct weir_adaptive_look *look,
                       const struct weir_plant_note *note)
{
    weir_instant change = look->phases.change;
    double before = look->limit[note->instance];
    double limit = shown(note->limit);
    look->limit[note->instance] = limit;
    if (note->at < change)
        look->limit_before = fmax(look->limit_before, limit);
    if (note->at < change && note->instance == 0)
        look->limit_at_change = limit;
    bool fell = note->instance == 0 && limit < before;
    if (fell && note->at >= change && limit < look->limit_at_change &&
        look->fall_at == 0)
        look->fall_at = note->at;
    if (note->at < look->settle)
        return;
    look->limit_min = fmin(look->limit_min, limit);
    look->limit_max = fmax(look->limit_max, limit);
    look->limit_sum += limit;
    look->limits++;
    if (!fell)
        return;
    look->first_fall = look->falls++ == 0 ? note->at : look->first_fall;
    look->last_fall = note->at;
}

static void note_figure(struct weir_adaptive_look *look,
                        const struct weir_plant_note *note)
{
    struct weir_model_run *run = look->run;
    weir_model_add(run, WEIR_ADAPTIVE_SERIES_OFFERED, note->at, 1);
    weir_model_add(run,
                   note->admitted ? WEIR_ADAPTIVE_SERIES_ADMITTED
                                  : WEIR_ADAPTIVE_SERIES_REFUSED,
                   note->at, 1);
    size_t sample = note->at / run->step;
    if (sample >= run->sample_count)
        return;
    double *most = &run->series[WEIR_ADAPTIVE_SERIES_IN_FLIGHT][sample];
    *most = fmax(*most, note->in_flight);
}

static void note_bulk(struct weir_adaptive_look *look,
                      const struct weir_plant_note *note)
{
    look->wanting += note->again ? 0 : 1;
    look->tries++;
    if (!note->admitted)
        return;
    look->done++;
    weir_instant done = note->at + note->latency;
    look->done_at = done > look->done_at ? done : look->done_at;
}

/* A request of bulk counts at the instant of its answer. */
static void note_answer(struct weir_adaptive_look *look,
                        const struct weir_plant_note *note)
{
    weir_duration lasts = look->phases.lasts;
    weir_instant end = look->phases.change + lasts;
    if (lasts > 0 && note->at >= end)
        keep_latency(&look->back_window, (double)note->latency / 1e6);
    weir_instant done = note->at + note->latency;
    if (!note->in_time || done >= look->run->span)
        return;
    look->done_by[note->instance] += done >= look->shares_from ? 1 : 0;
    bool back = lasts > 0 && done >= end && done < end + look->phases.grace;
    look->back_done += back ? 1 : 0;
}

static void note_latency(struct weir_adaptive_look *look,
                         const struct weir_plant_note *note)
{
    double ms = (double)note->latency / 1e6;
    keep_latency(note->sync ? &look->sync_bin : &look->bin, ms);
    enum phase phase = phase_at(look, note->at);
    if (!note->sync && phase != NEITHER)
        keep_latency(&look->of_phase[phase], ms);
    if (!note->sync)
        note_answer(look, note);
    if (note->at < look->settle)
        return;
    keep_latency(&look->all, ms);
    keep_latency(note->sync ? &look->sync : &look->bulk, ms);
    if (note->sync)
        return;
    keep_latency(&look->window, ms);
    look->slow += ms > target_ms(look) ? 1 : 0;
}

void weir_adaptive_look_note(void *context, const struct weir_plant_note *note)
{
    struct weir_adaptive_look *look = context;
    close_windows(look, note->at);
    note_limit(look, note);
    note_figure(look, note);
    if (!note->sync)
        note_bulk(look, note);
    if (note->admitted)
        note_latency(look, note);
    if (note->at < look->settle)
        return;
    look->offered++;
    look->refused += note->admitted ? 0 : 1;
    look->sync_offered += note->sync ? 1 : 0;
    look->sync_refused += note->sync && !note->admitted ? 1 : 0;
    if (note->in_flight > look->in_flight_max)
        look->in_flight_max = note->in_flight;
}

/* ---- At the end ---- */

static double share(uint64_t part, uint64_t whole)
{
    return whole > 0 ? (double)part / (double)whole : NAN;
}

static void sum_up_limits(struct weir_adaptive_look *look)
{
    double *metrics = look->run->metrics;
    weir_instant change = look->phases.change;
    metrics[WEIR_ADAPTIVE_BEFORE_LIMIT] = look->limit_before;
    if (look->fall_at > 0)
        metrics[WEIR_ADAPTIVE_FALL_S] = (double)(look->fall_at - change) / 1e9;
    if (look->limits == 0)
        return;
    metrics[WEIR_ADAPTIVE_LIMIT_MIN] = look->limit_min;
    metrics[WEIR_ADAPTIVE_LIMIT_MAX] = look->limit_max;
    metrics[WEIR_ADAPTIVE_LIMIT_MEAN] = look->limit_sum / (double)look->limits;
    if (look->falls > 1)
        metrics[WEIR_ADAPTIVE_PERIOD_S] =
            (double)(look->last_fall - look->first_fall) / 1e9 /
            (double)(look->falls - 1);
}

static void sum_up_phases(struct weir_adaptive_look *look)
{
    static const struct {
        enum phase phase;
        int rps, p95;
    } rows[] = {
        { BEFORE, WEIR_ADAPTIVE_BEFORE_RPS, WEIR_ADAPTIVE_BEFORE_P95_MS },
        { FIRST, WEIR_ADAPTIVE_FIRST_RPS, WEIR_ADAPTIVE_FIRST_P95_MS },
        { AFTER, WEIR_ADAPTIVE_AFTER_RPS, WEIR_ADAPTIVE_AFTER_P95_MS },
        { BACK, WEIR_ADAPTIVE_BACK_RPS, WEIR_ADAPTIVE_BACK_P95_MS },
    };
    double *metrics = look->run->metrics;
    for (size_t i = 0; i < WEIR_COUNT_OF(rows); i++) {
        metrics[rows[i].rps] = phase_rps(look, rows[i].phase);
        metrics[rows[i].p95] = percentile(&look->of_phase[rows[i].phase], 95);
    }
}

static void sum_up_back(struct weir_adaptive_look *look)
{
    double *metrics = look->run->metrics;
    if (look->phases.lasts == 0)
        return;
    double grace = (double)look->phases.grace / 1e9;
    metrics[WEIR_ADAPTIVE_BACK_DONE_RPS] =
        grace > 0 ? (double)look->back_done / grace : NAN;
    metrics[WEIR_ADAPTIVE_BACK_WINDOWS_OVER] = (double)look->back_windows_over;
}

static void sum_up_shares(struct weir_adaptive_look *look)
{
    double *metrics = look->run->metrics;
    double sum = 0, least = INFINITY, most = 0;
    for (size_t i = 0; i < look->plant->instances; i++) {
        sum += look->done_by[i];
        least = fmin(least, look->done_by[i]);
        most = fmax(most, look->done_by[i]);
    }
    if (sum == 0)
        return;
    metrics[WEIR_ADAPTIVE_SHARE_MIN] = least * look->plant->instances / sum;
    metrics[WEIR_ADAPTIVE_SHARE_MAX] = most * look->plant->instances / sum;
}

static void sum_up_latencies(struct weir_adaptive_look *look)
{
    double *metrics = look->run->metrics;
    struct latencies *bulk = &look->bulk;
    metrics[WEIR_ADAPTIVE_MEAN_MS] = mean(bulk);
    metrics[WEIR_ADAPTIVE_P95_MS] = percentile(bulk, 95);
    metrics[WEIR_ADAPTIVE_P99_MS] = percentile(bulk, 99);
    metrics[WEIR_ADAPTIVE_MAX_MS] = percentile(bulk, 100);
    metrics[WEIR_ADAPTIVE_SLOW_SHARE] = share(look->slow, bulk->count);
    metrics[WEIR_ADAPTIVE_WINDOWS_OVER] =
        share(look->windows_over, look->windows);
    metrics[WEIR_ADAPTIVE_WORST_WINDOW_MS] = look->worst_window;
    metrics[WEIR_ADAPTIVE_SYNC_MEAN_MS] = mean(&look->sync);
    metrics[WEIR_ADAPTIVE_SYNC_P95_MS] = percentile(&look->sync, 95);
}

void weir_adaptive_look_sum_up(struct weir_adaptive_look *look)
{
    double *metrics = look->run->metrics;
    close_windows(look, look->run->span);
    double length = look->run->span > look->settle
                        ? (double)(look->run->span - look->settle) / 1e9
                        : NAN;
    metrics[WEIR_ADAPTIVE_OFFERED_RPS] = (double)look->offered / length;
    metrics[WEIR_ADAPTIVE_ADMITTED_RPS] = (double)look->all.count / length;
    metrics[WEIR_ADAPTIVE_BULK_RPS] = (double)look->bulk.count / length;
    metrics[WEIR_ADAPTIVE_REFUSED] = (double)look->refused;
    metrics[WEIR_ADAPTIVE_REFUSED_RPS] = (double)look->refused / length;
    metrics[WEIR_ADAPTIVE_IN_FLIGHT_MAX] = look->in_flight_max;
    metrics[WEIR_ADAPTIVE_SYNC_ADMITTED] =
        share(look->sync_offered - look->sync_refused, look->sync_offered);
    metrics[WEIR_ADAPTIVE_BULK_TRIES] = share(look->tries, look->wanting);
    if (look->done == look->wanting)
        metrics[WEIR_ADAPTIVE_BULK_DONE_S] = (double)look->done_at / 1e9;
    sum_up_limits(look);
    sum_up_latencies(look);
    sum_up_phases(look);
    sum_up_back(look);
    sum_up_shares(look);
}
