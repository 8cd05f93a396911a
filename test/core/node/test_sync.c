/* SPDX-License-Identifier: MIT
 * test/core/node/test_sync.c - counted sharing over a network that loses,
 * doubles, reorders and replays, with nodes that die: random histories, checked
 * against invariants. Each history is made from one seed; a failure prints it,
 * and WEIR_SEED=N WEIR_HISTORIES=1 plays it again.
 *
 * The limits leak next to nothing (1 a day), so a bucket's fill is exactly the
 * sum of the units that passed, and the oracle is an addition:
 *
 *   truth    all units that takes let through, on any limiter, ever
 *   lost     of them, those that died unreported with a limiter
 *   doubtful of them, those on their way when a root died or when a limiter
 *            meets a cold root: that may get them in one limiter's root fill,
 *            and again from the limiter that counted them
 *   behind   units that limiters hadn't received when a cold root asked them:
 *            too few for a push
 *
 * When the network is whole again, every root has
 *
 *     truth - lost - behind - doubtful <= fill <= truth + doubtful
 *
 * and where nothing died, exactly truth. An edit that lowers high forgives the
 * difference at most. If several kinds of mishap meet (limiters and roots that
 * die, links that are cut), counts may be known only to a node that died, and
 * only the upper bound is left. The test prints how many histories were judged
 * in which way. */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/node/root_state.h"
#include "histories.h"
#include "lab/fleet.h"

/* Of 20 bugs of test_planted 13 break these invariants, and the histories up to
 * 2,982 show all of them. */
#define HISTORIES 15000

#define LIMITERS_MAX 3
#define NAMES 4
static const char *const names[NAMES] = { "all", "all/some", "t/x", "t/y" };
/* The parent of each, as an index; -1: none. "t/?" hang under "all". */
static const int parent_of[NAMES] = { -1, 0, 0, 0 };

/* The slack a limiter was sent for a name: now, and the most since nothing of
 * it was unanswered. */
struct told {
    uint32_t roots;     /* bit mask: the roots that sent it */
    uint64_t now, most; /* 1/1024 units */
    uint64_t before;    /* counted before the first slack came: bounded by no
                         * slack, and late, perhaps in no root's bucket */
};

/* A root's knowledge of a limiter's use of a name, if it is the only root. */
struct known {
    uint64_t total;
    uint64_t pace;
    weir_instant at;
};

#define WEIGHT_MAX 5

struct history {
    struct weir_fleet *fleet;
    struct weir_fleet_options options; /* the fleet's */
    struct weir_rng rng; /* for the script, apart from the fleet's */
    uint64_t seed;
    uint64_t truth[NAMES];
    uint64_t lost[NAMES];
    uint64_t doubtful[NAMES];
    double behind[NAMES];
    uint64_t high[NAMES];
    uint64_t high_least[NAMES]; /* lowest 'high' so far */
    double forgiven[NAMES];     /* presumed when late counts filled a bucket */
    uint64_t edited_off[NAMES]; /* by edits that lowered 'high', at most */
    struct told told[LIMITERS_MAX][NAMES];
    struct known known[LIMITERS_MAX][NAMES];
    uint64_t pace_most[LIMITERS_MAX][NAMES];
    uint64_t number[LIMITERS_MAX]; /* of the last report it took */
    bool limiter_killed, root_killed, cut;
    bool edited;
    bool lossy;
};

static struct weir_node_place limiter_at(uint32_t index)
{
    return (struct weir_node_place){ .index = index };
}

static struct weir_node_place root_at(uint32_t index)
{
    return (struct weir_node_place){ .root = true, .index = index };
}

#define REQUIRE(history, condition) \
    require(history, condition, #condition, __LINE__)

static void require(struct history *h, bool holds, const char *what, int line)
{
    if (holds)
        return;
    fail_msg("line %d: %s\n  replay: WEIR_SEED=%llu WEIR_HISTORIES=1", line,
             what, (unsigned long long)h->seed);
}

static uint64_t below(struct history *h, uint64_t bound)
{
    return weir_rng_below(&h->rng, bound);
}

/* ---- A fleet by the number of a name ---- */

static struct weir_text text_of(int name)
{
    return weir_text_of(names[name]);
}

static double limiter_fill(struct history *h, uint32_t limiter, int name)
{
    return weir_fleet_limiter_fill(h->fleet, limiter, text_of(name));
}

static uint64_t count_of(struct history *h, uint32_t limiter, int name)
{
    return weir_fleet_count(h->fleet, limiter, text_of(name));
}

static double root_fill(struct history *h, uint32_t root, int name)
{
    return weir_fleet_root_fill(h->fleet, root, text_of(name));
}

static uint64_t root_passed(struct history *h, uint32_t root, int name)
{
    return weir_fleet_root_passed(h->fleet, root, text_of(name));
}

/* ---- State of the limiters ---- */

static uint64_t unsettled(struct history *h, uint32_t limiter, int name)
{
    struct weir_table *table = weir_fleet_table(h->fleet, limiter);
    struct weir_ref ref;
    if (!table || !weir_table_find(table, text_of(name), &ref))
        return 0;
    return weir_table_count(table, ref.slot) -
           weir_table_settled(table, ref.slot);
}

static int name_index(struct weir_table *table, uint32_t slot)
{
    char buf[WEIR_NAME_MAX + 1];
    weir_table_name(table, slot, buf);
    for (int n = 0; n < NAMES; n++) {
        if (strcmp(buf, names[n]) == 0)
            return n;
    }
    return -1;
}

#define UNBOUNDED ((uint64_t)1 << 50)

/* Notes how much a root lets a limiter count unseen, by its message. No slack
 * is more than half of the whole bucket. */
static void note_slack(struct history *h, uint32_t limiter, uint32_t root,
                       const struct weir_fill *fill)
{
    int name = name_index(weir_fleet_table(h->fleet, limiter), fill->slot);
    if (name < 0 || fill->slack == UINT64_MAX)
        return;
    if (!h->edited)
        REQUIRE(h, fill->slack <= h->high[name] * WEIR_FILL_ONE / 2);
    struct told *told = &h->told[limiter][name];
    /* Counts before the first answer were bounded by no slack. */
    uint64_t count = count_of(h, limiter, name);
    if (told->roots == 0)
        told->before = count;
    if (!(told->roots >> root & 1) && count > 0)
        told->most = UNBOUNDED;
    told->roots |= 1u << root;
    told->now = fill->slack;
    if (fill->slack > told->most)
        told->most = fill->slack;
}

/* A root fill contains presumed counts of other limiters: those were within
 * their slack, or reported them, which takes a round trip. */
#define ROUND_TRIPS (300 * WEIR_MILLISECOND)

static void doubt_root_fill(struct history *h, uint32_t limiter,
                            const struct weir_announce *announce)
{
    int name = name_index(weir_fleet_table(h->fleet, limiter), announce->slot);
    for (uint32_t i = 0; name >= 0 && i < h->options.limiters; i++) {
        if (i != limiter)
            h->doubtful[name] +=
                h->told[i][name].most / WEIR_FILL_ONE + 2 +
                h->pace_most[i][name] * ROUND_TRIPS / WEIR_PACE_SPAN;
    }
}

static void note_pace(struct history *h, uint32_t limiter,
                      const struct weir_count *count)
{
    int name = name_index(weir_fleet_table(h->fleet, limiter), count->slot);
    if (name >= 0 && count->pace > h->pace_most[limiter][name])
        h->pace_most[limiter][name] = count->pace;
}

/* Late counts fill the rest of a bucket; the counts presumed in it may never
 * come. */
static void note_late(struct history *h, uint32_t index, int name)
{
    struct weir_root *root = weir_fleet_root(h->fleet, index);
    struct weir_root_quota *use =
        weir_merge_get(&root->merge, weir_text_of(names[name]));
    if (use)
        h->forgiven[name] +=
            ldexp((double)weir_merge_presumed(
                      &root->merge, use,
                      weir_fleet_clock_of(h->fleet, root_at(index))),
                  -(int)use->bucket.leak.frac);
}

static void note_report(struct history *h, uint32_t root, uint32_t limiter,
                        const struct weir_report *report)
{
    for (int n = 0; report->late_from > 0 && n < NAMES; n++)
        note_late(h, root, n);
    for (size_t i = 0; i < report->announce_count; i++) {
        if (report->announces[i].fill > 0)
            doubt_root_fill(h, limiter, &report->announces[i]);
    }
    for (size_t i = 0; i < report->count; i++)
        note_pace(h, limiter, &report->counts[i]);
    if (report->number != h->number[limiter] + 1)
        return; /* doubled */
    h->number[limiter] = report->number;
    for (size_t i = 0; i < report->count; i++) {
        const struct weir_count *count = &report->counts[i];
        int name = name_index(weir_fleet_table(h->fleet, limiter), count->slot);
        if (name < 0)
            continue;
        struct known *known = &h->known[limiter][name];
        known->total += (uint64_t)count->passed;
        known->pace = count->pace;
        known->at = weir_fleet_now(h->fleet);
    }
}

/* Units that no root knows or presumes: rounded down, and naturally on either
 * side of 0. */
static int64_t unseen_of(struct history *h, uint32_t limiter, int name)
{
    const struct known *known = &h->known[limiter][name];
    weir_duration age = weir_fleet_now(h->fleet) - known->at;
    weir_u128 presumed = (weir_u128)known->pace * age;
    return (int64_t)(count_of(h, limiter, name) - known->total -
                     (uint64_t)(presumed >> WEIR_PACE_SHIFT) - 1);
}

/* The units that a limiter with that slack may count unknown to any root. */
static uint64_t stop_of(uint64_t slack)
{
    uint64_t units = (2 * slack + WEIR_FILL_ONE - 1) / WEIR_FILL_ONE;
    return units > 0 ? units : 1;
}

static void note_message(void *context, struct weir_node_place to,
                         uint32_t from, const struct weir_message *message)
{
    struct history *h = context;
    if (message->type == WEIR_MESSAGE_REPORT)
        note_report(h, to.index, from, &message->report);
    if (message->type != WEIR_MESSAGE_FILLS)
        return;
    for (size_t i = 0; i < message->fills.count; i++)
        note_slack(h, to.index, from, &message->fills.fills[i]);
}

static bool whole(const struct history *h)
{
    return !h->cut && !h->edited && !h->limiter_killed && !h->root_killed &&
           h->options.settings.slack;
}

/* After a pass: no limiter has counted more beyond its root's knowledge and
 * presumption than twice the largest slack it was sent since all was answered,
 * and one weight. So the bucket, if all counts reached it at once, is within
 * the stated bound. */
static void check_unseen_within_bound(struct history *h, uint32_t limiter,
                                      int name, uint64_t weight)
{
    struct told *told = &h->told[limiter][name];
    uint64_t unseen = unsettled(h, limiter, name);
    if (unseen <= weight)
        told->most = told->now;
    uint64_t most = stop_of(told->most);
    /* Of several roots the slowest needn't decide; a message that was overtaken
     * isn't the newest. */
    if (told->roots != 0 && h->options.roots == 1 && !h->lossy)
        REQUIRE(h, unseen_of(h, limiter, name) < (int64_t)(most + weight));
    uint64_t bound = h->high[name];
    for (uint32_t i = 0; i < h->options.limiters; i++) {
        if (!h->told[i][name].roots && unsettled(h, i, name) > 0)
            return; /* it has no slack yet: its first answer is on the way */
        bound += stop_of(h->told[i][name].most) + WEIGHT_MAX;
        bound += h->told[i][name].before;
    }
    REQUIRE(h, h->truth[name] <= bound);
}

/* Some link is up and its ends haven't exchanged messages yet. */
static bool meeting(struct history *h)
{
    for (uint32_t l = 0; l < h->options.limiters; l++) {
        const struct weir_limiter *limiter = weir_fleet_limiter(h->fleet, l);
        uint32_t up = 0;
        for (uint32_t r = 0; r < h->options.roots; r++)
            up += weir_fleet_linked(h->fleet, l, r);
        if (limiter && weir_limiter_links_up(limiter) < up)
            return true;
    }
    return false;
}

static double largest_root_fill(struct history *h, int name)
{
    double most = 0;
    for (uint32_t r = 0; r < h->options.roots; r++) {
        double fill = root_fill(h, r, name);
        most = fill > most ? fill : most;
    }
    return most;
}

static void note_doubt(struct history *h)
{
    for (uint32_t i = 0; i < h->options.limiters; i++) {
        for (int n = 0; n < NAMES; n++) {
            h->doubtful[n] += unsettled(h, i, n);
            if (!weir_fleet_limiter(h->fleet, i))
                continue;
            double behind = largest_root_fill(h, n) - limiter_fill(h, i, n);
            if (behind > 0)
                h->behind[n] += behind;
        }
    }
}

/* ---- Operations ---- */

static void passed(struct history *h, uint32_t limiter, int name,
                   uint64_t weight)
{
    for (int at = name; at >= 0; at = parent_of[at]) {
        h->truth[at] += weight;
        if (meeting(h))
            h->doubtful[at] += weight;
        if (whole(h))
            check_unseen_within_bound(h, limiter, at, weight);
    }
}

/* Mostly a few; sometimes so many that slack and stop must limit them. */
static void op_take(struct history *h)
{
    uint32_t limiter = (uint32_t)below(h, h->options.limiters);
    int name = (int)below(h, NAMES);
    uint64_t times = below(h, 6) ? 1 + below(h, 8) : 200;
    struct weir_limiter *node = weir_fleet_limiter(h->fleet, limiter);
    struct weir_table *table = weir_fleet_table(h->fleet, limiter);
    for (; times > 0 && node; times--) {
        uint64_t weight = below(h, WEIGHT_MAX + 1);
        struct weir_ref ref;
        bool ruled = weir_table_find(table, text_of(name), &ref) ||
                     weir_limiter_ready(node);
        unsigned outcome =
            weir_fleet_take(h->fleet, limiter, text_of(name), weight, NULL);
        if (ruled && !(outcome & WEIR_OUTCOME_LIMITED))
            passed(h, limiter, name, weight);
    }
}

static void run(struct history *h, weir_duration span)
{
    weir_fleet_run(h->fleet, weir_fleet_now(h->fleet) + span);
    REQUIRE(h, weir_fleet_error(h->fleet) == 0);
}

static void op_cut(struct history *h)
{
    uint32_t limiter = (uint32_t)below(h, h->options.limiters);
    uint32_t root = (uint32_t)below(h, h->options.roots);
    h->cut = true;
    note_doubt(h);
    weir_fleet_cut(h->fleet, limiter, root, below(h, 2) ? WEIR_WAY_BOTH : 0, 0);
}

static void op_root(struct history *h)
{
    uint32_t root = (uint32_t)below(h, h->options.roots);
    note_doubt(h);
    if (!weir_fleet_root(h->fleet, root)) {
        weir_fleet_start(h->fleet, root_at(root));
        return;
    }
    h->root_killed = true;
    h->cut |= meeting(h);
    weir_fleet_kill(h->fleet, root_at(root));
    /* With all roots gone, each limiter keeps the last fills, and the roots
     * that come back learn them limiter by limiter. */
    bool some = h->options.roots == 1;
    for (uint32_t r = 0; r < h->options.roots; r++)
        some |= weir_fleet_root(h->fleet, r) != NULL;
    h->cut |= !some;
}

static void op_limiter(struct history *h)
{
    uint32_t limiter = (uint32_t)below(h, h->options.limiters);
    if (!weir_fleet_limiter(h->fleet, limiter)) {
        weir_fleet_start(h->fleet, limiter_at(limiter));
        return;
    }
    h->limiter_killed = true;
    h->cut |= meeting(h); /* some root never received from it */
    for (int n = 0; n < NAMES; n++)
        h->lost[n] += unsettled(h, limiter, n);
    weir_fleet_kill(h->fleet, limiter_at(limiter));
}

static void set_high(struct history *h, int name, uint64_t high)
{
    if (high < h->high[name])
        h->edited_off[name] += h->high[name] - high;
    h->high[name] = high;
}

static void put(struct history *h, int name, uint64_t high)
{
    const char *quota = name >= 2 ? "t/*" : names[name];
    const char *parent = parent_of[name] < 0 ? NULL : names[parent_of[name]];
    set_high(h, name, high);
    for (int n = 2; name >= 2 && n < NAMES; n++)
        set_high(h, n, high);
    for (int n = 0; n < NAMES; n++) {
        if (h->high_least[n] == 0 || h->high[n] < h->high_least[n])
            h->high_least[n] = h->high[n];
    }
    struct weir_quota put;
    weir_quota_init(&put);
    put.name = weir_text_of(quota);
    put.parent = weir_text_of(parent);
    put.limit = (struct weir_limit){ .units = 1, .per = 86400 * WEIR_SECOND };
    uint64_t low = below(h, 2) ? high : high / 2;
    put.low_burst = (struct weir_burst){ .amount = low };
    put.high_burst = (struct weir_burst){ .amount = high };
    assert_int_equal(weir_fleet_put(h->fleet, &put, NULL), 0);
}

static void op_edit(struct history *h)
{
    h->edited = true;
    put(h, (int)below(h, 3), 1 + below(h, 2000));
}

/* ---- Invariants at the end ---- */

static bool quiet(struct history *h)
{
    for (uint32_t i = 0; i < h->options.limiters; i++) {
        struct weir_limiter *limiter = weir_fleet_limiter(h->fleet, i);
        if (!weir_limiter_settled(limiter) ||
            weir_limiter_epoch(limiter) !=
                weir_catalog_epoch(weir_fleet_catalog(h->fleet)))
            return false;
    }
    return true;
}

/* For replaying one history by hand. */
static void show(struct history *h)
{
    for (int n = 0; n < NAMES; n++) {
        print_message(
            "%-8s high %llu truth %llu lost %llu doubtful %llu;", names[n],
            (unsigned long long)h->high[n], (unsigned long long)h->truth[n],
            (unsigned long long)h->lost[n], (unsigned long long)h->doubtful[n]);
        for (uint32_t r = 0; r < h->options.roots; r++)
            print_message(" root %u %.2f", r, root_fill(h, r, n));
        for (uint32_t l = 0; l < h->options.limiters; l++)
            print_message(" limiter %u %.2f (%llu)", l, limiter_fill(h, l, n),
                          (unsigned long long)count_of(h, l, n));
        print_message("\n");
    }
    for (uint32_t l = 0; l < h->options.limiters; l++)
        print_message("limiter %u: settled %d epoch %llu links up %u\n", l,
                      weir_limiter_settled(weir_fleet_limiter(h->fleet, l)),
                      (unsigned long long)weir_limiter_epoch(
                          weir_fleet_limiter(h->fleet, l)),
                      weir_limiter_links_up(weir_fleet_limiter(h->fleet, l)));
}

static void heal(struct history *h)
{
    h->options.net.loss = h->options.net.twice = 0;
    h->options.net.reorder = 0;
    note_doubt(h);
    for (uint32_t r = 0; r < h->options.roots; r++)
        weir_fleet_start(h->fleet, root_at(r));
    for (uint32_t l = 0; l < h->options.limiters; l++) {
        weir_fleet_start(h->fleet, limiter_at(l));
        for (uint32_t r = 0; r < h->options.roots; r++) {
            weir_fleet_net(h->fleet, l, r, &h->options.net);
            weir_fleet_cut(h->fleet, l, r, 0, 0);
        }
    }
    for (int i = 0; i < 60; i++) {
        run(h, 500 * WEIR_MILLISECOND);
        /* Presumed counts end some intervals after the last pass. */
        if (quiet(h) && i > 10)
            return;
    }
    if (getenv("WEIR_SHOW"))
        show(h);
    REQUIRE(h, quiet(h));
}

/* Fills are sent in 1/1024 units, and the limits leak a little. */
#define TOLERANCE 1.0

static void check_counted_once(struct history *h)
{
    for (int n = 0; n < NAMES; n++) {
        double truth = (double)h->truth[n];
        double least = truth - (double)(h->lost[n] + h->edited_off[n]);
        double most = truth + (double)h->doubtful[n];
        /* Counts that only one root knows, from a limiter that could not reach
         * the other, are lost with the limiter or with the root. */
        if (h->limiter_killed + h->root_killed + h->cut > 1)
            least = 0;
        /* Counts that come late fill a bucket, but put it into no debt. */
        double full = (double)h->high_least[n] - h->forgiven[n];
        if (least > full)
            least = full;
        if (h->root_killed)
            least -= h->behind[n] + (double)h->doubtful[n];
        /* A limiter that reaches a cold root last, because it was cut off,
         * brings a root fill that contains other limiters' reports from
         * meanwhile. */
        if (h->root_killed && h->cut)
            most += truth;
        for (uint32_t r = 0; r < h->options.roots; r++) {
            double fill = root_fill(h, r, n);
            REQUIRE(h, fill >= least - TOLERANCE);
            REQUIRE(h, fill <= most + TOLERANCE);
            if (!h->root_killed && !h->limiter_killed)
                REQUIRE(h, root_passed(h, r, n) == h->truth[n]);
        }
    }
}

/* Each limiter that uses a quota has the fill that the roots have. */
static void check_agreement(struct history *h)
{
    for (int n = 0; n < NAMES; n++) {
        double most = largest_root_fill(h, n);
        for (uint32_t l = 0; l < h->options.limiters; l++) {
            if (count_of(h, l, n) == 0)
                continue;
            double fill = limiter_fill(h, l, n);
            /* Other limiters may have counted less than was presumed when it
             * was sent, or added less; that isn't worth a push. A push is sent
             * once, for TCP loses none; and after a cut a slot is sent again
             * when it is used again. */
            double worth = (double)h->told[l][n].now / WEIR_FILL_ONE / 2;
            REQUIRE(h, h->lossy || h->cut || fill <= most + worth + TOLERANCE);
            REQUIRE(h, h->lossy || h->cut ||
                           fill >= most - (double)h->high[n] - TOLERANCE);
        }
    }
}

static void check_same_quotas(struct history *h)
{
    for (uint32_t l = 0; l < h->options.limiters; l++) {
        for (int n = 0; n < 2; n++) {
            struct weir_table *table = weir_fleet_table(h->fleet, l);
            struct weir_ref ref;
            REQUIRE(h, weir_table_find(table, text_of(n), &ref));
            struct weir_slot_view view;
            weir_table_view(table, ref.slot, &view,
                            weir_fleet_clock_of(h->fleet, limiter_at(l)));
            REQUIRE(h, view.bucket.high >> view.bucket.leak.frac ==
                           (int64_t)h->high[n]);
        }
    }
}

/* ---- A history ---- */

static void set_network(struct history *h)
{
    weir_duration least = below(h, 2) ? 0 : below(h, 20 * WEIR_MILLISECOND);
    weir_duration spread = below(h, 20 * WEIR_MILLISECOND);
    struct weir_net *net = &h->options.net;
    *net = (struct weir_net){ .shape = WEIR_DELAY_UNIFORM,
                              .delay = least + spread,
                              .spread = spread };
    if (below(h, 2))
        net->loss = 0.3 * weir_rng_unit(&h->rng);
    if (below(h, 2))
        net->twice = 0.3 * weir_rng_unit(&h->rng);
    if (below(h, 2))
        net->reorder = weir_rng_unit(&h->rng);
    if (below(h, 2))
        net->replay = weir_rng_unit(&h->rng);
    h->lossy = net->loss > 0 || net->reorder > 0;
}

static void set_fleet(struct history *h)
{
    struct weir_fleet_options *options = &h->options;
    options->seed = h->seed;
    options->limiters = 1 + (uint32_t)below(h, LIMITERS_MAX);
    options->limiters_started = options->limiters;
    options->roots = 1 + (uint32_t)below(h, 2);
    options->slots = 16;
    options->settings.report_interval =
        (1 + below(h, 10)) * 100 * WEIR_MILLISECOND;
    options->settings.stale_after = 100 * WEIR_SECOND;
    options->settings.slack = below(h, 4) != 0;
}

/* How the histories were judged. */
struct judged {
    uint64_t exactly, within, above;
};

static void note_judged(const struct history *h, struct judged *judged)
{
    if (!h->limiter_killed && !h->root_killed)
        judged->exactly++;
    else if (h->limiter_killed + h->root_killed + h->cut > 1)
        judged->above++;
    else
        judged->within++;
}

static void play(uint64_t seed, struct judged *judged)
{
    struct history *h = test_calloc(1, sizeof(*h));
    h->seed = seed;
    h->rng.state = seed;
    set_fleet(h);
    set_network(h);
    h->fleet = weir_fleet_new(&h->options);
    struct weir_fleet_watch watch = { .context = h, .received = note_message };
    weir_fleet_watch(h->fleet, &watch);
    put(h, 0, 100 + below(h, 1000));
    put(h, 1, 50 + below(h, 1000));
    put(h, 2, 50 + below(h, 1000));
    run(h, below(h, 2) ? 3 * WEIR_SECOND : 0);
    bool deadly = below(h, 2), cutting = below(h, 2), editing = below(h, 2);
    for (uint64_t steps = 5 + below(h, 30); steps > 0; steps--) {
        uint64_t which = below(h, 20);
        if (which < 12)
            op_take(h);
        else if (which < 15)
            run(h, below(h, 300 * WEIR_MILLISECOND));
        else if (which == 15 && cutting)
            op_cut(h);
        else if (which == 16 && deadly)
            op_root(h);
        else if (which == 17 && deadly)
            op_limiter(h);
        else if (which == 18 && editing)
            op_edit(h);
    }
    heal(h);
    if (getenv("WEIR_SHOW"))
        show(h);
    check_counted_once(h);
    check_agreement(h);
    check_same_quotas(h);
    note_judged(h, judged);
    weir_fleet_free(h->fleet);
    test_free(h);
}

static void test_histories(void **state)
{
    (void)state;
    uint64_t first = from_environment("WEIR_SEED", 1);
    uint64_t count = from_environment("WEIR_HISTORIES", HISTORIES);
    printf("histories %llu .. %llu\n", (unsigned long long)first,
           (unsigned long long)(first + count - 1));
    struct judged judged = { 0 };
    for (uint64_t i = 0; i < count; i++)
        play(first + i, &judged);
    print_message("judged to the unit %llu, within doubts %llu, from above "
                  "only %llu\n",
                  (unsigned long long)judged.exactly,
                  (unsigned long long)judged.within,
                  (unsigned long long)judged.above);
    /* A test that judges few histories exactly would pass with any code. */
    assert_true(count < 100 || judged.exactly > count / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_histories),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
