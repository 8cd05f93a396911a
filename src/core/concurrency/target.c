/* SPDX-License-Identifier: MIT
 * concurrency/target.c - holds a percentile of the latency at a target.
 *
 * The percentile is kept at a share of the target, the setpoint. Latency moves
 * in a band around it, and a target that is to be kept must be the band's upper
 * end. At the end of a window with percentile p
 *
 *     p > setpoint    L *= max(backoff, setpoint / p)
 *     else, if used   L += (L + 1/2) min(growth, (setpoint / p - 1) / 2)
 *
 * so each move depends on how far p is off, and at the setpoint L stays.
 * Whether p is over is decided by counting the slow samples, exactly; its
 * value, from the bins, only gives the distance.
 *
 * Before the first decrease, and far below the setpoint, a window doubles the
 * limit: its final value isn't known yet, and from 20 to 500 by tenths takes
 * more than a minute.
 *
 * A window is closed by count *and* age: the percentile of few samples is
 * chance, and before a change of the limit shows there is nothing to judge. The
 * exception is a window with so many slow samples that no later answers could
 * change the result. After 'window_max' a few samples will do, if there is no
 * more traffic.
 *
 * One decrease a feedback delay: a request that began before the last decrease
 * shows the effect of the limit before it, and isn't counted any more.
 *
 * Permits still in flight and overdue count like answers that took so long.
 * Dropped requests count as slow, and as slow enough for the whole back-off: a
 * quick refusal is no sign of low load.
 *
 * A stall. A window in which nothing is answered any more says *that* the
 * dependency doesn't answer, not *how much* it bears: all of its requests fail
 * at any limit. So the fall of the limit in such windows is provisional. The
 * limit before the first of them is remembered ('full'), they leave an
 * eighth of it, and the first answer within half of the setpoint takes it
 * back at once. "Nothing is answered": most of the slow requests were dropped
 * or are overdue, and since the slow ones began no answer was in time.
 *
 *     a stalled window    full = L, unless the stall goes on; L *= backoff, but
 *                         not below full / 8
 *     another window      full = 0; L as above
 *     after a stalled one, of requests that began since then:
 *     the first answer    within hold / 2:  L = full, full /= 2
 *                         later:            L stays, a new window begins
 *     others              within hold / 2:  L = full, full /= 2
 *                         later:            count as ever
 *
 * So a late first answer only ends the silence: requests that began before it
 * show the hang, like those before a decrease, and must not lower the limit of
 * a dependency that is well again. (Without that the worst of ten processes has
 * 0.34 of its share after a hang of 10 s instead of 0.62, which it also has
 * without a hang: adaptive-hang-pool, served_10s, means of five seeds.)
 *
 * A dependency that stops again under the resumed load is tried with half of
 * it, a quarter and so on, until a window holds the setpoint. A resumption
 * needs no room, as the sum of the remembered limits of all processes is the
 * sum from before; and as they all come back at once, none finds the queue
 * filled by the others and stays low.
 *
 * The limit has fractions, and goes below one: of twenty processes that share a
 * storage for eleven none may have one for itself.
 * concurrency/concurrency_gate.h defines half a permit.
 *
 * Rejected: adding one a window (above 100 it takes minutes, for twenty
 * processes it is twenty at once); a fixed back-off (0.5 gives a seventh of
 * the capacity away, 0.95 is over the target in each period of the saw-tooth);
 * windows of a count alone (see aimd.c). After a stall: climbing by tenths (100
 * of 385/s in the first 5 s after a hang of 10 s, and the whole after a minute)
 * or by doubling (of ten processes one that comes 200 ms after the others finds
 * the queue full, and keeps a sixth of its share); any answer in time, not only
 * one within half of the setpoint (with a time-out of 1.25 times the target a
 * threefold slowdown looks like a hang, and the limit flaps: 10 to 12 of 15
 * windows of 2 s over the target instead of 3 to 5); a memory for windows of
 * slow answers too (a threefold slowdown would be undone). The figures are of
 * lab/scenarios/adaptive-hang-pool.weir and of a model of it. */

#include "core/concurrency/controller_internal.h"

#define FEW 5     /* samples that a window has at least */
#define GAIN 0.5  /* part of the room that is taken at once */
#define STEP 0.02 /* permits that a raised limit grows by, at least */
#define EVEN 0.5  /* permits: see raise_limit() */
#define FAR 1.25  /* setpoint / p from which the first climb is a doubling */
/* setpoint / latency from which an answer ends a stall: with room for a
 * doubling, which is a whole decrease. */
#define QUICK 2.0
#define FLOOR 8 /* 1 / the part of the limit that a stall leaves */

enum stall {
    STALL_NONE,      /* the last window wasn't stalled, or L is back */
    STALL_SILENT,    /* it was, and no answer has come since */
    STALL_ANSWERING, /* it was, and answers come, but late */
};

static weir_duration held(const struct weir_controller_options *options)
{
    weir_assert(options->target > 0 && options->setpoint > 0);
    double hold = (double)options->target * options->setpoint;
    return hold >= 1 ? (weir_duration)hold : 1;
}

static void open_window(struct weir_controller *controller, weir_instant now)
{
    struct weir_target_state *target = &controller->target;
    weir_assert(controller->window->samples == 0 && target->hold > 0);
    weir_assert(target->full > 0 || target->stall == STALL_NONE);
    target->opened = now;
    target->due = now + controller->options.window_min;
    target->dropped = 0;
    target->peak = 0;
}

static void init_target(struct weir_controller *controller, weir_instant now)
{
    controller->target = (struct weir_target_state){
        .hold = held(&controller->options),
    };
    open_window(controller, now);
}

/* ---- When a window is closed ---- */

/* The least age of a window. */
static weir_duration ripe_age(const struct weir_controller *controller)
{
    const struct weir_controller_options *options = &controller->options;
    const struct weir_latency_window *window = controller->window;
    weir_duration mean =
        window->samples == 0 ? 0 : window->sum / window->samples;
    weir_duration round = controller->target.round;
    weir_duration twice = 2 * (mean > round ? mean : round);
    twice = twice < options->window_max ? twice : options->window_max;
    return twice > options->window_min ? twice : options->window_min;
}

static bool is_ripe(const struct weir_controller *controller, uint32_t overdue,
                    weir_instant now)
{
    const struct weir_controller_options *options = &controller->options;
    const struct weir_latency_window *window = controller->window;
    weir_audit(now >= controller->target.opened);
    weir_duration age = now - controller->target.opened;
    /* Asked of each sample: most are through here, without a division. */
    if (age < options->window_min || age < ripe_age(controller))
        return false;
    uint32_t samples = window->samples + overdue;
    if (samples >= options->count)
        return true;
    if (window->slow + overdue >=
        weir_latency_window_trip(options->count, controller->millionths))
        return true;
    if (age < options->window_max)
        return false;
    return samples >= FEW || overdue > 0;
}

/* ---- Decisions ---- */

static void forget_stall(struct weir_target_state *target)
{
    target->full = 0;
    target->stall = STALL_NONE;
}

/* ... or goes on: then what was remembered at its begin stays. */
static void begin_stall(struct weir_target_state *target, double limit)
{
    if (target->full == 0)
        target->full = limit;
    target->stall = STALL_SILENT;
    weir_assert(target->full > 0);
}

/* A window was over: was nothing answered in it? The first of a hang has
 * answers too, from before it, so the slow ones' time counts, not the
 * window's. */
static bool is_stalled(const struct weir_target_state *target, bool dropped,
                       weir_duration p, weir_instant now)
{
    return dropped && target->in_time_at + p <= now + target->hold;
}

static void fall(struct weir_controller *controller, double ratio, bool dropped,
                 weir_instant now)
{
    const struct weir_target_state *target = &controller->target;
    double before = controller->limit;
    double backoff = controller->options.backoff;
    /* The count was over; the mean of its bin may not be. */
    ratio = weir_smaller(ratio, 1);
    ratio = ratio > backoff ? ratio : backoff;
    double after = before * ratio;
    double least = target->stall == STALL_NONE
                       ? 0
                       : weir_smaller(before, target->full / FLOOR);
    weir_controller_move(controller, after > least ? after : least,
                         dropped ? WEIR_LIMIT_DROPPED : WEIR_LIMIT_SLOW, now);
    weir_assert(controller->limit <= before);
    controller->target.cut_at = now;
}

/* A small limit rises by a larger share than a large one, so that processes
 * which began with unequal limits, and fall by equal shares, come together. */
static void raise_limit(struct weir_controller *controller, double ratio,
                        weir_instant now)
{
    double limit = controller->limit;
    double share = weir_smaller(controller->options.growth, GAIN * (ratio - 1));
    if (controller->target.cut_at == 0 && ratio >= FAR)
        share = 1;
    if (share <= 0)
        return;
    double step = (limit + EVEN) * share;
    double least = weir_smaller(STEP, ratio - 1);
    weir_controller_move(controller, limit + (step > least ? step : least),
                         WEIR_LIMIT_ROOM, now);
    weir_assert(controller->limit >= limit);
}

static void judge_window(struct weir_controller *controller, weir_instant now)
{
    struct weir_target_state *target = &controller->target;
    weir_controller_note_window(controller);
    const struct weir_controller_view *view = &controller->view;
    double p = view->latency > 0 ? (double)view->latency : 1;
    double ratio = (double)target->hold / p;
    weir_assert(view->samples > 0 && ratio > 0);
    bool over = view->slow >=
                weir_latency_window_trip(view->samples, controller->millionths);
    bool dropped = 2 * target->dropped >= view->slow;
    if (!over || !is_stalled(target, dropped, view->latency, now))
        forget_stall(target);
    else
        begin_stall(target, controller->limit);
    if (over)
        fall(controller, ratio, dropped, now);
    else if (2.0 * target->peak >= controller->limit)
        raise_limit(controller, ratio, now);
    open_window(controller, now);
}

/* ---- Input ---- */

/* Permits in flight since before the last decrease show nothing about it. */
static uint32_t overdue_since_cut(const struct weir_controller *controller,
                                  const struct weir_overdue *overdue,
                                  weir_instant now)
{
    const struct weir_target_state *target = &controller->target;
    if (overdue->count == 0 || overdue->age <= target->hold)
        return 0;
    if (now < overdue->age || now - overdue->age <= target->cut_at)
        return 0;
    return overdue->count < WEIR_PERMITS_MAX ? overdue->count
                                             : WEIR_PERMITS_MAX;
}

static bool tick_target(struct weir_controller *controller,
                        const struct weir_overdue *overdue, weir_instant now)
{
    struct weir_target_state *target = &controller->target;
    uint32_t count = overdue_since_cut(controller, overdue, now);
    if (controller->options.given)
        return false;
    if (is_ripe(controller, count, now)) {
        weir_duration age =
            overdue->age < WEIR_LATENCY_MAX ? overdue->age : WEIR_LATENCY_MAX;
        weir_assert(count == 0 || age >= target->hold);
        weir_latency_window_add(controller->window, age, true, count);
        target->dropped += count;
        judge_window(controller, now);
        return true;
    }
    if (now >= target->due)
        target->due = now + controller->options.window_min;
    return false;
}

/* A dropped request counts as slow enough for the whole back-off. */
static weir_duration latency_to_judge(const struct weir_controller *controller,
                                      const struct weir_sample *sample)
{
    if (!weir_is_dropped(sample))
        return sample->latency;
    double most = (double)controller->target.hold / controller->options.backoff;
    if ((double)sample->latency >= most)
        return sample->latency;
    return most < (double)WEIR_LATENCY_MAX ? (weir_duration)most
                                           : WEIR_LATENCY_MAX;
}

/* The first quick answer of a stall. Half of the remembered limit stays
 * remembered, until a window shows that the dependency bears the whole. */
static void resume_limit(struct weir_controller *controller, weir_instant now)
{
    struct weir_target_state *target = &controller->target;
    weir_assert(target->full > 0);
    double limit = controller->limit;
    weir_controller_move(controller,
                         limit > target->full ? limit : target->full,
                         WEIR_LIMIT_RESUMED, now);
    target->full /= 2;
    target->stall = STALL_NONE;
}

/* An answer to a request that began since the last decrease of a stall. Returns
 * whether it begins a new window; then it isn't counted. */
static bool answer_in_stall(struct weir_controller *controller,
                            weir_duration latency, weir_instant now)
{
    struct weir_target_state *target = &controller->target;
    weir_assert(target->stall != STALL_NONE && target->full > 0);
    if (QUICK * (double)latency <= (double)target->hold)
        resume_limit(controller, now);
    else if (target->stall == STALL_SILENT)
        target->stall = STALL_ANSWERING;
    else
        return false;
    target->cut_at = now;
    weir_latency_window_clear(controller->window);
    open_window(controller, now);
    return true;
}

static void count_sample(struct weir_controller *controller,
                         const struct weir_sample *sample, weir_instant now)
{
    struct weir_target_state *target = &controller->target;
    bool dropped = weir_is_dropped(sample);
    bool slow = dropped || sample->latency > target->hold;
    weir_latency_window_add(controller->window,
                            latency_to_judge(controller, sample), slow, 1);
    /* Not one that had no room in the window: it would be of no sample. */
    target->dropped += dropped && target->dropped < controller->window->slow;
    if (!slow)
        target->in_time_at = now;
}

static bool sample_target(struct weir_controller *controller,
                          const struct weir_sample *sample, weir_instant now)
{
    static const struct weir_overdue nothing;
    struct weir_target_state *target = &controller->target;
    weir_instant begun = weir_before(now, sample->latency);
    if (begun < target->cut_at)
        return false;
    if (target->stall != STALL_NONE && !weir_is_dropped(sample) &&
        answer_in_stall(controller, sample->latency, now))
        return true;
    count_sample(controller, sample, now);
    if (sample->in_flight > target->peak)
        target->peak = sample->in_flight;
    return !controller->options.given && is_ripe(controller, 0, now) &&
           tick_target(controller, &nothing, now);
}

static weir_instant deadline_target(const struct weir_controller *controller)
{
    return controller->target.due;
}

const struct weir_controller_family weir_controller_target = {
    .text = "target",
    .windows = true,
    .init = init_target,
    .sample = sample_target,
    .tick = tick_target,
    .deadline = deadline_target,
};

/* ---- A fleet's ---- */

bool weir_controller_merge(struct weir_controller *controller,
                           const struct weir_latency_batch *batch,
                           weir_instant now)
{
    struct weir_target_state *target = &controller->target;
    now = weir_controller_clock(controller, now);
    uint64_t requests = 0;
    for (size_t i = 0; i < batch->count; i++)
        requests += batch->bins[i].count;
    /* If not all were dropped, the first bin holds an answer, the quickest:
     * dropped requests count as slow as the whole back-off needs. */
    if (target->stall != STALL_NONE && requests > batch->dropped &&
        answer_in_stall(controller, weir_latency_bin_middle(batch->bins[0].bin),
                        now))
        return true;
    /* No more dropped ones than slow ones, of those that had room. */
    uint32_t slow = controller->window->slow;
    weir_latency_window_merge(controller->window, batch);
    slow = controller->window->slow - slow;
    target->dropped += batch->dropped < slow ? batch->dropped : slow;
    weir_assert(target->dropped <= controller->window->slow);
    if (batch->peak > target->peak)
        target->peak = batch->peak;
    if (requests > batch->slow)
        target->in_time_at = now;
    return false;
}

void weir_controller_set_round(struct weir_controller *controller,
                               weir_duration round)
{
    weir_duration most = controller->options.window_max;
    controller->target.round = round < most ? round : most;
}

bool weir_controller_is_due(const struct weir_controller *controller,
                            const struct weir_overdue *overdue,
                            weir_instant now)
{
    now = now > controller->now ? now : controller->now;
    return is_ripe(controller, overdue_since_cut(controller, overdue, now),
                   now);
}

void weir_controller_skip(struct weir_controller *controller, weir_instant now)
{
    now = weir_controller_clock(controller, now);
    weir_latency_window_clear(controller->window);
    open_window(controller, now);
}

bool weir_controller_is_stalled(const struct weir_controller *controller)
{
    return controller->target.stall != STALL_NONE;
}

weir_instant weir_controller_cut_at(const struct weir_controller *controller)
{
    return controller->target.cut_at;
}

/* ---- A process's, whose limit is given ---- */

void weir_controller_give(struct weir_controller *controller, double limit,
                          uint64_t cut, weir_instant now)
{
    weir_assert(controller->options.given);
    weir_assert(limit >= 0 && limit <= WEIR_PERMITS_MAX);
    now = weir_controller_clock(controller, now);
    if (cut != controller->cut) {
        weir_controller_skip(controller, now);
        controller->target.cut_at = now;
    }
    if (limit != controller->limit) {
        controller->view.before = controller->limit;
        controller->view.reason = WEIR_LIMIT_GIVEN;
        controller->view.moved_at = now;
    }
    controller->limit = limit;
    controller->cut = cut;
    controller->was_given = true;
}

void weir_controller_collect(struct weir_controller *controller,
                             const struct weir_overdue *overdue,
                             struct weir_latency_count *bins,
                             struct weir_latency_batch *out, weir_instant now)
{
    weir_assert(controller->options.given);
    const struct weir_target_state *target = &controller->target;
    now = weir_controller_clock(controller, now);
    *out = (struct weir_latency_batch){
        .cut = controller->cut,
        .slow = controller->window->slow,
        .dropped = target->dropped,
        .peak = target->peak,
        .overdue = overdue_since_cut(controller, overdue, now),
        .overdue_age = overdue->age,
        .count = weir_latency_window_counts(controller->window, bins),
        .bins = bins,
    };
    if (controller->window->samples > 0)
        weir_controller_note_window(controller);
    weir_controller_skip(controller, now);
}
