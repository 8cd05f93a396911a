/* SPDX-License-Identifier: MIT
 * concurrency/fleet_limit.c - members' batches in one controller's window.
 *
 * Why one controller. N controllers in front of one dependency see the latency
 * that all of them make, and each judges windows of its own, N times as long
 * for as many samples: their cuts come by chance at different times, and a
 * member that fell once too often stays low, since the others have taken its
 * room. After a hang each must find out for itself. One controller has the
 * samples of all in a window, and no shares to bring together.
 *
 * The cost of the way. A batch is up to a member's refresh old, and a lower
 * part is in force a round trip after the decision. So the feedback takes
 * longer than in a process, by some tenths of a second. One decrease a feedback
 * delay is ensured by the cut: a number that goes with the parts to the members
 * and comes back with their batches. Requests that began under the limit of
 * before are in batches of the former cut, or left out by the member.
 *
 * Members are told apart by numbers, and the state of one is small: the
 * distributions aren't kept, since only counts decide whether a window is over
 * its setpoint, with or without some members.
 *
 * Rejected: each member's percentile, and the mean or the median of these (a
 * percentile of few samples is chance, and the mean of percentiles is none);
 * leaving a slow member out at once (one bad window of a pause in its process
 * is frequent, and it would lose its say each time); a histogram for each
 * member, to take an outlier's latencies out of the window again (11 kB a
 * member, for one window that waits two seconds). */

#include "core/concurrency/fleet_limit.h"

#include <string.h>

#include "core/concurrency/controller_internal.h"

/* Members with overdue requests are walked no more often: each batch would else
 * be a walk over all members. */
#define WALK_EVERY (10 * WEIR_MILLISECOND)

struct member {
    weir_instant heard_at; /* its last batch; 0: it isn't a member */
    weir_instant overdue_since;
    uint32_t peak, overdue; /* of its last batch */
    uint32_t samples, slow; /* in the present window */
    uint8_t row;            /* windows in a row in which it was one that … */
    bool out;               /* … should come back; else that should be left
                             * out */
    bool told;              /* 'out', as weir_fleet_limit_news() last said */
};

struct weir_fleet_limit {
    struct weir_mem mem;
    struct member *members; /* owned */
    size_t capacity;
    uint32_t count;     /* numbers ever used */
    uint32_t active[2]; /* members with samples in the present window, and in
                         * the last */
    uint32_t outliers;  /* members left out */
    uint32_t news;      /* members whose 'out' isn't 'told' */
    uint64_t in_flight; /* the sum of all peaks */
    uint64_t overdue;   /* … and of all overdue */
    uint64_t excused;
    weir_instant walk_at; /* for overdue requests, at the earliest */
    bool resumed;         /* since the last tick: the limit, after a stall */
    uint64_t cut, cuts_seed;
    weir_instant cut_at; /* the controller's, when 'cut' was made */
    weir_duration mean;  /* of the last window; 0: there was none */
    struct weir_latency_count scaled[WEIR_WINDOW_BINS];
    _Alignas(8) unsigned char controller[WEIR_CONTROLLER_SIZE_MAX];
};

static struct weir_controller *controller_of(struct weir_fleet_limit *fleet)
{
    return (struct weir_controller *)fleet->controller;
}

static const struct weir_controller *controller_in(
    const struct weir_fleet_limit *fleet)
{
    return (const struct weir_controller *)fleet->controller;
}

/* ---- Life ---- */

struct weir_fleet_limit *weir_fleet_limit_new(
    const struct weir_mem *mem, const struct weir_controller_options *options,
    weir_instant now)
{
    weir_assert(weir_controller_merges(options->kind));
    struct weir_fleet_limit *fleet = mem->alloc(mem->context, sizeof(*fleet));
    if (!fleet)
        return NULL;
    memset(fleet, 0, sizeof(*fleet));
    fleet->mem = *mem;
    fleet->cuts_seed = options->seed;
    weir_controller_init(fleet->controller, options, now);
    return fleet;
}

void weir_fleet_limit_free(struct weir_fleet_limit *fleet)
{
    if (!fleet)
        return;
    struct weir_mem mem = fleet->mem;
    mem.free(mem.context, fleet->members,
             fleet->capacity * sizeof(*fleet->members));
    mem.free(mem.context, fleet, sizeof(*fleet));
}

/* A decrease of the limit makes the samples of before those of another
 * limit. */
static void follow_cut(struct weir_fleet_limit *fleet)
{
    if (controller_in(fleet)->options.given)
        return;
    weir_instant cut_at = weir_controller_cut_at(controller_in(fleet));
    if (cut_at == fleet->cut_at)
        return;
    fleet->cut_at = cut_at;
    fleet->cut = weir_rng_mix(fleet->cuts_seed + cut_at) | 1;
}

void weir_fleet_limit_edit(struct weir_fleet_limit *fleet,
                           const struct weir_controller_options *options,
                           weir_instant now)
{
    weir_assert(weir_controller_merges(options->kind));
    weir_controller_edit(controller_of(fleet), options, now);
    follow_cut(fleet);
}

static void open_members(struct weir_fleet_limit *fleet)
{
    weir_assert(fleet->active[0] <= fleet->count);
    fleet->active[1] = fleet->active[0];
    fleet->active[0] = 0;
}

/* The members' parts of a window that isn't judged. */
static void forget_window(struct weir_fleet_limit *fleet)
{
    open_members(fleet);
    weir_assert(fleet->count <= fleet->capacity);
    for (uint32_t i = 0; i < fleet->count; i++)
        fleet->members[i].samples = fleet->members[i].slow = 0;
}

void weir_fleet_limit_begin(struct weir_fleet_limit *fleet, double limit,
                            weir_instant now)
{
    struct weir_controller *controller = controller_of(fleet);
    struct weir_controller_options options = controller->options;
    weir_assert(limit >= 0 && !options.given);
    options.initial =
        weir_smaller(weir_larger(limit, options.min), options.max);
    weir_controller_init(controller, &options, now);
    fleet->mean = 0;
    forget_window(fleet);
    follow_cut(fleet);
}

/* ---- Members ---- */

static void set_state(struct weir_fleet_limit *fleet, struct member *member,
                      uint32_t peak, uint32_t overdue)
{
    weir_assert(fleet->in_flight >= member->peak);
    weir_assert(fleet->overdue >= member->overdue);
    fleet->in_flight += (uint64_t)peak - member->peak;
    fleet->overdue += (uint64_t)overdue - member->overdue;
    member->peak = peak;
    member->overdue = overdue;
}

uint32_t weir_fleet_limit_numbers(const struct weir_fleet_limit *fleet)
{
    return fleet->count;
}

void weir_fleet_limit_forget(struct weir_fleet_limit *fleet, uint32_t number)
{
    if (number >= fleet->count)
        return;
    struct member *member = &fleet->members[number];
    set_state(fleet, member, 0, 0);
    fleet->active[0] -= member->samples > 0;
    fleet->outliers -= member->out;
    fleet->news -= member->out != member->told;
    memset(member, 0, sizeof(*member));
}

static struct member *member_at(struct weir_fleet_limit *fleet, uint32_t number)
{
    weir_assert(number < WEIR_FLEET_LIMIT_MEMBERS_MAX);
    struct member *members =
        weir_mem_grow(&fleet->mem, fleet->members, sizeof(*members),
                      &fleet->capacity, number + (size_t)1);
    if (!members)
        return NULL;
    fleet->members = members;
    for (; fleet->count <= number; fleet->count++)
        memset(&members[fleet->count], 0, sizeof(*members));
    return &members[number];
}

/* A member that is heard no more leaves nothing, also not as an outlier; its
 * number may be another's by now. */
static void drop_silent(struct weir_fleet_limit *fleet, weir_instant now)
{
    for (uint32_t i = 0; i < fleet->count; i++) {
        weir_instant heard_at = fleet->members[i].heard_at;
        if (heard_at > 0 &&
            weir_since(heard_at, now) > WEIR_FLEET_LIMIT_SILENCE)
            weir_fleet_limit_forget(fleet, i);
    }
}

/* ---- Weight ---- */

static uint64_t samples_in(const struct weir_latency_batch *batch,
                           double *out_mean)
{
    uint64_t samples = 0;
    double sum = 0;
    for (size_t i = 0; i < batch->count; i++) {
        uint32_t count = batch->bins[i].count;
        samples += count;
        sum += (double)weir_latency_bin_middle(batch->bins[i].bin) * count;
    }
    *out_mean = samples > 0 ? sum / (double)samples : 0;
    return samples;
}

/* The part of the batch's samples that counts: Little's law, as the header
 * says. */
static double weight_of(const struct weir_fleet_limit *fleet,
                        const struct member *member, double granted,
                        const struct weir_latency_batch *batch,
                        weir_instant now)
{
    double mean;
    double samples = (double)samples_in(batch, &mean);
    if (fleet->mean > 0)
        mean = (double)fleet->mean;
    weir_duration span =
        member->heard_at > 0 ? weir_since(member->heard_at, now) : WEIR_SECOND;
    double most = 1;
    if (mean > 0)
        most += WEIR_FLEET_LIMIT_EXCESS * granted * (double)span / mean;
    return samples > most ? most / samples : 1;
}

/* Rounds so that the sum is right: the remainder goes to the next bin. */
static void scale_batch(struct weir_fleet_limit *fleet, double weight,
                        struct weir_latency_batch *batch)
{
    weir_assert(weight > 0 && weight <= 1);
    double rest = 0;
    size_t count = 0;
    for (size_t i = 0; i < batch->count; i++) {
        rest += weight * batch->bins[i].count;
        uint32_t whole = (uint32_t)rest;
        rest -= whole;
        if (whole > 0)
            fleet->scaled[count++] =
                (struct weir_latency_count){ batch->bins[i].bin, whole };
    }
    batch->bins = fleet->scaled;
    batch->count = count;
    batch->slow = (uint32_t)(weight * batch->slow + 0.5);
    batch->dropped = (uint32_t)(weight * batch->dropped + 0.5);
}

/* No more requests can be overdue than were let in. */
static uint32_t overdue_most(double granted,
                             const struct weir_latency_batch *batch)
{
    double most = 1 + WEIR_FLEET_LIMIT_EXCESS * granted;
    return (uint32_t)weir_smaller(batch->overdue, most);
}

int weir_fleet_limit_take(struct weir_fleet_limit *fleet, uint32_t number,
                          double granted,
                          const struct weir_latency_batch *batch,
                          weir_instant now)
{
    weir_assert(granted >= 0);
    struct member *member = member_at(fleet, number);
    if (!member)
        return WEIR_ENOMEM;
    struct weir_latency_batch counted = *batch;
    double weight = weight_of(fleet, member, granted, batch, now);
    if (weight < 1)
        scale_batch(fleet, weight, &counted);
    set_state(fleet, member, batch->peak, overdue_most(granted, batch));
    member->overdue_since = weir_before(now, batch->overdue_age);
    member->heard_at = now;
    if (fleet->cut != 0 && batch->cut != fleet->cut)
        return 0;
    double mean;
    uint32_t samples = (uint32_t)samples_in(&counted, &mean);
    fleet->active[0] += member->samples == 0 && samples > 0;
    /* More than a window has room for say nothing; and the sum is no wrap. */
    uint32_t room = WEIR_WINDOW_SAMPLES_MAX - member->samples;
    samples = samples < room ? samples : room;
    member->samples += samples;
    member->slow += counted.slow < samples ? counted.slow : samples;
    if (member->out)
        return 0;
    counted.peak = fleet->in_flight < WEIR_PERMITS_MAX
                       ? (uint32_t)fleet->in_flight
                       : WEIR_PERMITS_MAX;
    if (weir_controller_merge(controller_of(fleet), &counted, now)) {
        forget_window(fleet);
        follow_cut(fleet);
        fleet->resumed = true;
    }
    return 0;
}

/* ---- Judgement ---- */

/* A member's requests that began since the last decrease, and are overdue. */
static uint32_t overdue_at(const struct weir_fleet_limit *fleet,
                           const struct member *member, weir_instant now)
{
    const struct weir_controller *controller = controller_in(fleet);
    bool counts =
        weir_since(member->overdue_since, now) > controller->target.hold &&
        member->overdue_since > weir_controller_cut_at(controller);
    return counts ? member->overdue : 0;
}

/* … of all members that aren't left out. */
static struct weir_overdue overdue_of(const struct weir_fleet_limit *fleet,
                                      weir_instant now)
{
    struct weir_overdue sum = { .age = WEIR_NEVER };
    for (uint32_t i = 0; i < fleet->count; i++) {
        const struct member *member = &fleet->members[i];
        uint32_t overdue = member->out ? 0 : overdue_at(fleet, member, now);
        uint32_t room = WEIR_PERMITS_MAX - sum.count;
        if (overdue == 0)
            continue;
        sum.count += overdue < room ? overdue : room;
        sum.age = weir_earlier(sum.age, weir_since(member->overdue_since, now));
    }
    if (sum.count == 0)
        sum.age = 0;
    return sum;
}

/* A member's part of the window: what is overdue is slow. */
struct part {
    uint64_t samples, slow;
};

static struct part part_of(const struct weir_fleet_limit *fleet,
                           const struct member *member, weir_instant now)
{
    uint32_t overdue = overdue_at(fleet, member, now);
    return (struct part){ (uint64_t)member->samples + overdue,
                          (uint64_t)member->slow + overdue };
}

static bool is_part_slow(struct part part)
{
    return part.samples >= WEIR_FLEET_LIMIT_FEW && 2 * part.slow > part.samples;
}

/* How many members may be outliers at a time. */
static uint32_t outliers_most(uint32_t members)
{
    if (members < 3)
        return 0;
    return members < 20 ? 1 : members / 10;
}

/* Whether so many slow ones are over the setpoint. */
static bool is_over(const struct weir_fleet_limit *fleet, uint64_t samples,
                    uint64_t slow)
{
    uint32_t all = samples < UINT32_MAX ? (uint32_t)samples : UINT32_MAX;
    return slow >=
           weir_latency_window_trip(all, controller_in(fleet)->millionths);
}

/* Whether there are outliers, and the window without them, with the requests
 * that are overdue, is within the setpoint. '*out_over': with them it is
 * over. */
static bool has_outliers(const struct weir_fleet_limit *fleet,
                         const struct weir_overdue *overdue, bool *out_over,
                         weir_instant now)
{
    const struct weir_latency_window *window = controller_in(fleet)->window;
    uint32_t members = 0, outliers = 0;
    uint64_t samples = (uint64_t)window->samples + overdue->count;
    uint64_t slow = (uint64_t)window->slow + overdue->count;
    weir_assert(slow <= samples);
    *out_over = is_over(fleet, samples, slow);
    for (uint32_t i = 0; i < fleet->count; i++) {
        const struct member *member = &fleet->members[i];
        struct part part = part_of(fleet, member, now);
        members += part.samples > 0;
        if (member->out || !is_part_slow(part))
            continue;
        outliers++;
        samples -= part.samples < samples ? part.samples : samples;
        slow -= part.slow < slow ? part.slow : slow;
    }
    if (outliers == 0 || outliers + fleet->outliers > outliers_most(members) ||
        samples == 0)
        return false;
    return !is_over(fleet, samples, slow);
}

/* Counts the windows of each member, and begins anew. */
static void close_members(struct weir_fleet_limit *fleet, bool outliers,
                          weir_instant now)
{
    open_members(fleet);
    for (uint32_t i = 0; i < fleet->count; i++) {
        struct member *member = &fleet->members[i];
        struct part part = part_of(fleet, member, now);
        bool few = part.samples < WEIR_FLEET_LIMIT_FEW;
        bool slow = is_part_slow(part);
        bool moves = member->out ? !few && !slow : slow && outliers;
        bool waits = member->out && few;
        member->row = moves ? member->row + 1 : waits ? member->row : 0;
        member->samples = member->slow = 0;
        if (member->row < WEIR_FLEET_LIMIT_ROW)
            continue;
        member->out = !member->out;
        member->row = 0;
        fleet->outliers += member->out ? 1 : -1;
        fleet->news += member->out != member->told ? 1 : -1;
    }
}

/* By when each member has let in a request, if there are fewer permits than
 * members: Little's law once more. Until then those that a window hasn't heard
 * of go by the former limit. */
static weir_duration round_of(const struct weir_fleet_limit *fleet)
{
    const struct weir_controller *controller = controller_in(fleet);
    const struct weir_latency_window *window = controller->window;
    if (window->samples == 0 || controller->limit <= 0)
        return 0;
    double mean = (double)window->sum / window->samples;
    uint32_t members = fleet->active[0] > fleet->active[1] ? fleet->active[0]
                                                           : fleet->active[1];
    weir_assert(members <= fleet->count);
    double round = mean * members / controller->limit;
    return (weir_duration)weir_smaller(round, (double)WEIR_LATENCY_MAX);
}

bool weir_fleet_limit_tick(struct weir_fleet_limit *fleet, weir_instant now)
{
    struct weir_controller *controller = controller_of(fleet);
    const struct weir_latency_window *window = controller->window;
    struct weir_overdue overdue = { .count = 0 };
    weir_assert(fleet->outliers <= fleet->count);
    bool resumed = fleet->resumed;
    fleet->resumed = false;
    if (fleet->overdue > 0) {
        if (now < fleet->walk_at)
            return resumed;
        fleet->walk_at = now + WALK_EVERY;
        overdue = overdue_of(fleet, now);
    }
    weir_controller_set_round(controller, round_of(fleet));
    if (!weir_controller_is_due(controller, &overdue, now)) {
        (void)weir_controller_tick(controller, &overdue, now);
        return resumed;
    }
    fleet->mean = window->samples > 0 ? window->sum / window->samples : 0;
    bool over;
    bool outliers = has_outliers(fleet, &overdue, &over, now);
    if (outliers && over) {
        fleet->excused++;
        weir_controller_skip(controller, now);
    } else {
        (void)weir_controller_tick(controller, &overdue, now);
    }
    close_members(fleet, outliers, now);
    drop_silent(fleet, now);
    follow_cut(fleet);
    return true;
}

weir_instant weir_fleet_limit_deadline(const struct weir_fleet_limit *fleet)
{
    weir_instant due = weir_controller_deadline(controller_in(fleet));
    return fleet->overdue > 0 && due < fleet->walk_at ? fleet->walk_at : due;
}

/* ---- In between ---- */

void weir_fleet_limit_give(struct weir_fleet_limit *fleet, double limit,
                           uint64_t cut, weir_instant now)
{
    weir_controller_give(controller_of(fleet),
                         weir_smaller(limit, WEIR_PERMITS_MAX), cut, now);
    fleet->cut = cut;
}

void weir_fleet_limit_collect(struct weir_fleet_limit *fleet,
                              struct weir_latency_count *bins,
                              struct weir_latency_batch *out, weir_instant now)
{
    struct weir_controller *controller = controller_of(fleet);
    const struct weir_latency_window *window = controller->window;
    struct weir_overdue overdue = overdue_of(fleet, now);
    fleet->mean = window->samples > 0 ? window->sum / window->samples : 0;
    weir_controller_collect(controller, &overdue, bins, out, now);
    out->peak = fleet->in_flight < WEIR_PERMITS_MAX ? (uint32_t)fleet->in_flight
                                                    : WEIR_PERMITS_MAX;
    drop_silent(fleet, now);
    forget_window(fleet);
}

/* ---- Views ---- */

double weir_fleet_limit_limit(const struct weir_fleet_limit *fleet)
{
    return weir_controller_limit(controller_in(fleet));
}

uint64_t weir_fleet_limit_cut(const struct weir_fleet_limit *fleet)
{
    return fleet->cut;
}

bool weir_fleet_limit_is_stalled(const struct weir_fleet_limit *fleet)
{
    return weir_controller_is_stalled(controller_in(fleet));
}

void weir_fleet_limit_view(const struct weir_fleet_limit *fleet,
                           struct weir_fleet_limit_view *out, weir_instant now)
{
    *out = (struct weir_fleet_limit_view){
        .target = controller_in(fleet)->options.target,
        .outliers = fleet->outliers,
        .in_flight =
            (uint32_t)weir_smaller((double)fleet->in_flight, WEIR_PERMITS_MAX),
        .excused = fleet->excused,
    };
    weir_controller_view(controller_in(fleet), &out->controller);
    for (uint32_t i = 0; i < fleet->count; i++) {
        weir_instant heard_at = fleet->members[i].heard_at;
        out->members += heard_at > 0 &&
                        weir_since(heard_at, now) <= WEIR_FLEET_LIMIT_SILENCE;
    }
}

bool weir_fleet_limit_is_out(const struct weir_fleet_limit *fleet,
                             uint32_t member)
{
    return member < fleet->count && fleet->members[member].out;
}

bool weir_fleet_limit_news(struct weir_fleet_limit *fleet, uint32_t *out_member,
                           bool *out_is_out)
{
    for (uint32_t i = 0; fleet->news > 0 && i < fleet->count; i++) {
        struct member *member = &fleet->members[i];
        if (member->out == member->told)
            continue;
        fleet->news--;
        *out_member = i;
        *out_is_out = member->told = member->out;
        return true;
    }
    weir_assert(fleet->news == 0);
    return false;
}
