/* SPDX-License-Identifier: MIT
 * test/test_sync.c - counted sharing over a network that loses, doubles,
 * reorders and replays, with nodes that die: random histories against what
 * must hold (DESIGN section 4). Each history is made from one number; a
 * failure prints it, and WEIR_SEED=N WEIR_HISTORIES=1 plays it again.
 *
 * The limits leak next to nothing (1 a day), so that a bucket's fill is the
 * sum of what passed, to the unit, and the oracle is an addition:
 *
 *   truth    all units that takes let through, on any limiter, ever
 *   lost     of them, those that died unreported with a limiter
 *   doubtful of them, those on their way when a root died or one is met that
 *            was just born: it may hear of them from one limiter's picture,
 *            and again from the limiter that counted them
 *   behind   what limiters hadn't been told when one was born that asks them:
 *            below what is worth a push
 *
 * When the network is whole again, every root holds
 *
 *     truth - lost - behind - doubtful <= fill <= truth + doubtful
 *
 * and where nothing died, exactly truth. Where several kinds of mishap meet
 * (limiters and roots that die, links that are cut), counts may be known to
 * one that died, and only the upper bound is left; how many histories were
 * judged how is printed. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "pump.h"

/* Of one run; WEIR_HISTORIES says otherwise. */
#define HISTORIES 100000

#define NAMES 4
static const char *const names[NAMES] = { "all", "all/some", "t/x", "t/y" };
/* The parent of each, as an index; -1: none. "t/?" hang under "all". */
static const int parent_of[NAMES] = { -1, 0, 0, 0 };

/* The slack a limiter was told of a name: now, and the most since it had
 * nothing unanswered. */
struct told {
    uint32_t roots; /* bits: who told it */
    uint64_t now, most;
};

#define WEIGHT_MAX 5

struct history {
    struct pump *pump;
    struct weir_rng rng; /* of the script, apart from the pump's */
    uint64_t seed;
    uint64_t truth[NAMES];
    uint64_t lost[NAMES];
    uint64_t doubtful[NAMES];
    double behind[NAMES];
    uint64_t high[NAMES];
    uint64_t high_least[NAMES]; /* it ever was */
    struct told told[PUMP_LIMITERS_MAX][NAMES];
    bool limiter_killed, root_killed, cut;
    bool edited;
    bool lossy;
};

#define REQUIRE(history, condition) \
    require(history, condition, #condition, __LINE__)

static void require(struct history *h, bool holds, const char *what,
                    int line)
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

/* ---- What limiters hold ---- */

static uint64_t unsettled(struct history *h, uint32_t limiter, int name)
{
    struct weir_table *table = h->pump->limiter[limiter].table;
    struct weir_ref ref;
    if (!table || !weir_table_find(table, weir_text_of(names[name]), &ref))
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

#define UNBOUNDED ((uint64_t)1 << 40)

/* What a root lets a limiter count unseen, as the message says. No slack is
 * more than half of the whole bucket. */
static void note_slack(void *context, uint32_t limiter, uint32_t root,
                       const struct weir_fill *fill)
{
    struct history *h = context;
    int name = name_index(h->pump->limiter[limiter].table, fill->slot);
    if (name < 0 || fill->slack == UINT64_MAX)
        return;
    if (!h->edited)
        REQUIRE(h, fill->slack <= h->high[name] / 2);
    struct told *told = &h->told[limiter][name];
    /* What was counted before the first answer no slack has held. */
    if (!(told->roots >> root & 1) && unsettled(h, limiter, name) > 0)
        told->most = UNBOUNDED;
    told->roots |= 1u << root;
    told->now = fill->slack;
    if (fill->slack > told->most)
        told->most = fill->slack;
}

static bool whole(const struct history *h)
{
    return !h->cut && !h->edited && !h->limiter_killed && !h->root_killed &&
           h->pump->options.settings.slack;
}

/* After a pass: no limiter has more unanswered than twice the largest slack
 * it was told since all was answered, and one weight; and so the bucket, had
 * it seen all at once, is within the stated bound. */
static void check_unseen_within_bound(struct history *h, uint32_t limiter,
                                      int name, uint64_t weight)
{
    struct told *told = &h->told[limiter][name];
    uint64_t unseen = unsettled(h, limiter, name);
    if (unseen <= weight)
        told->most = told->now;
    uint64_t most = told->most > 0 ? 2 * told->most : 1;
    /* With several roots 'unsettled' is what the slowest hasn't answered,
     * and that one needn't rule; a message overtaken isn't the newest. */
    if (told->roots != 0 && h->pump->options.roots == 1 && !h->lossy)
        REQUIRE(h, unseen < most + weight);
    uint64_t bound = h->high[name];
    for (uint32_t i = 0; i < h->pump->options.limiters; i++) {
        if (!h->told[i][name].roots && unsettled(h, i, name) > 0)
            return; /* never told: its first answer is on the way */
        uint64_t slack = h->told[i][name].most;
        bound += (slack > 0 ? 2 * slack : 1) + WEIGHT_MAX;
    }
    REQUIRE(h, h->truth[name] <= bound);
}

/* Some link is up and its ends haven't met. */
static bool meeting(struct history *h)
{
    for (uint32_t l = 0; l < h->pump->options.limiters; l++) {
        const struct weir_limiter *limiter = h->pump->limiter[l].limiter;
        uint32_t up = 0;
        for (uint32_t r = 0; r < h->pump->options.roots; r++)
            up += h->pump->up[l][r];
        if (limiter && weir_limiter_links_up(limiter) < up)
            return true;
    }
    return false;
}

static double largest_root_fill(struct history *h, int name)
{
    double most = 0;
    for (uint32_t r = 0; r < h->pump->options.roots; r++) {
        double fill = pump_root_fill(h->pump, r, names[name]);
        most = fill > most ? fill : most;
    }
    return most;
}

static void note_doubt(struct history *h)
{
    for (uint32_t i = 0; i < h->pump->options.limiters; i++) {
        for (int n = 0; n < NAMES; n++) {
            h->doubtful[n] += unsettled(h, i, n);
            if (!h->pump->limiter[i].limiter)
                continue;
            double behind = largest_root_fill(h, n) -
                            pump_limiter_fill(h->pump, i, names[n]);
            if (behind > 0)
                h->behind[n] += behind;
        }
    }
}

/* ---- What happens ---- */

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

/* Mostly a few; sometimes so many that slack and stop must hold them. */
static void op_take(struct history *h)
{
    uint32_t limiter = (uint32_t)below(h, h->pump->options.limiters);
    int name = (int)below(h, NAMES);
    struct pump_node_limiter *node = &h->pump->limiter[limiter];
    uint64_t times = below(h, 6) ? 1 + below(h, 8) : 200;
    for (; times > 0 && node->limiter; times--) {
        uint64_t weight = below(h, WEIGHT_MAX + 1);
        struct weir_ref ref;
        bool ruled =
            weir_table_find(node->table, weir_text_of(names[name]), &ref) ||
            weir_limiter_ready(node->limiter);
        unsigned outcome =
            pump_take(h->pump, limiter, names[name], weight, NULL);
        if (ruled && !(outcome & WEIR_OUTCOME_LIMITED))
            passed(h, limiter, name, weight);
    }
}

static void run(struct history *h, weir_duration span)
{
    pump_run(h->pump, h->pump->now + span);
    REQUIRE(h, h->pump->error == 0);
}

static void op_cut(struct history *h)
{
    uint32_t limiter = (uint32_t)below(h, h->pump->options.limiters);
    uint32_t root = (uint32_t)below(h, h->pump->options.roots);
    h->cut = true;
    note_doubt(h);
    pump_cut(h->pump, limiter, root, below(h, 2));
}

static void op_root(struct history *h)
{
    uint32_t root = (uint32_t)below(h, h->pump->options.roots);
    note_doubt(h);
    if (!h->pump->root[root]) {
        pump_start_root(h->pump, root);
        return;
    }
    h->root_killed = true;
    h->cut |= meeting(h);
    pump_kill_root(h->pump, root);
    /* With all of them gone, each limiter knows what it was told last, and
     * those that come back hear it in turn. */
    bool some = h->pump->options.roots == 1;
    for (uint32_t r = 0; r < h->pump->options.roots; r++)
        some |= h->pump->root[r] != NULL;
    h->cut |= !some;
}

static void op_limiter(struct history *h)
{
    uint32_t limiter = (uint32_t)below(h, h->pump->options.limiters);
    if (!h->pump->limiter[limiter].limiter) {
        pump_start_limiter(h->pump, limiter);
        return;
    }
    h->limiter_killed = true;
    h->cut |= meeting(h); /* some root never heard of it */
    for (int n = 0; n < NAMES; n++)
        h->lost[n] += unsettled(h, limiter, n);
    pump_kill_limiter(h->pump, limiter);
}

static void put(struct history *h, int name, uint64_t high)
{
    const char *quota = name >= 2 ? "t/*" : names[name];
    const char *parent = parent_of[name] < 0 ? NULL : names[parent_of[name]];
    h->high[name] = high;
    if (name >= 2)
        h->high[2] = h->high[3] = high;
    for (int n = 0; n < NAMES; n++) {
        if (h->high_least[n] == 0 || h->high[n] < h->high_least[n])
            h->high_least[n] = h->high[n];
    }
    uint64_t low = below(h, 2) ? high : high / 2;
    assert_int_equal(pump_quota(h->pump, quota, parent, 1,
                                86400 * WEIR_SECOND, low, high),
                     0);
}

static void op_edit(struct history *h)
{
    h->edited = true;
    put(h, (int)below(h, 3), 1 + below(h, 2000));
}

/* ---- What must hold in the end ---- */

static bool quiet(struct history *h)
{
    for (uint32_t i = 0; i < h->pump->options.limiters; i++) {
        struct weir_limiter *limiter = h->pump->limiter[i].limiter;
        if (!weir_limiter_settled(limiter) ||
            weir_limiter_epoch(limiter) != h->pump->epoch)
            return false;
    }
    return true;
}

/* For a person who replays one history. */
static void show(struct history *h)
{
    for (int n = 0; n < NAMES; n++) {
        print_message("%-8s high %llu truth %llu lost %llu doubtful %llu;",
                      names[n], (unsigned long long)h->high[n],
                      (unsigned long long)h->truth[n],
                      (unsigned long long)h->lost[n],
                      (unsigned long long)h->doubtful[n]);
        for (uint32_t r = 0; r < h->pump->options.roots; r++)
            print_message(" root %u %.2f", r,
                          pump_root_fill(h->pump, r, names[n]));
        for (uint32_t l = 0; l < h->pump->options.limiters; l++)
            print_message(" limiter %u %.2f (%llu)", l,
                          pump_limiter_fill(h->pump, l, names[n]),
                          (unsigned long long)pump_count(h->pump, l,
                                                         names[n]));
        print_message("\n");
    }
    for (uint32_t l = 0; l < h->pump->options.limiters; l++)
        print_message("limiter %u: settled %d epoch %llu links up %u\n", l,
                      weir_limiter_settled(h->pump->limiter[l].limiter),
                      (unsigned long long)weir_limiter_epoch(
                          h->pump->limiter[l].limiter),
                      weir_limiter_links_up(h->pump->limiter[l].limiter));
}

static void heal(struct history *h)
{
    h->pump->options.loss = h->pump->options.twice = 0;
    h->pump->options.reorder = 0;
    note_doubt(h);
    for (uint32_t r = 0; r < h->pump->options.roots; r++)
        pump_start_root(h->pump, r);
    for (uint32_t l = 0; l < h->pump->options.limiters; l++) {
        if (!h->pump->limiter[l].limiter)
            pump_start_limiter(h->pump, l);
        for (uint32_t r = 0; r < h->pump->options.roots; r++)
            pump_cut(h->pump, l, r, false);
    }
    for (int i = 0; i < 60; i++) {
        run(h, 500 * WEIR_MILLISECOND);
        if (quiet(h) && i > 4)
            return;
    }
    if (getenv("WEIR_SHOW"))
        show(h);
    REQUIRE(h, quiet(h));
}

/* Fills are told in 1/1024 units and the limits leak a little. */
#define TOLERANCE 1.0

static void check_counted_once(struct history *h)
{
    for (int n = 0; n < NAMES; n++) {
        double truth = (double)h->truth[n];
        double least = truth - (double)h->lost[n];
        double most = truth + (double)h->doubtful[n];
        /* What one root only was told, by a limiter that could not reach
         * the other, goes with the limiter or with the root. */
        if (h->limiter_killed + h->root_killed + h->cut > 1)
            least = 0;
        /* Counts that come late fill a bucket and put it into no debt. */
        if (least > (double)h->high_least[n])
            least = (double)h->high_least[n];
        if (h->root_killed)
            least -= h->behind[n] + (double)h->doubtful[n];
        /* A limiter that reaches a newborn root last, because it was cut
         * off, brings a picture with what others have told it meanwhile. */
        if (h->root_killed && h->cut)
            most += truth;
        for (uint32_t r = 0; r < h->pump->options.roots; r++) {
            double fill = pump_root_fill(h->pump, r, names[n]);
            REQUIRE(h, fill >= least - TOLERANCE);
            REQUIRE(h, fill <= most + TOLERANCE);
            if (!h->root_killed && !h->limiter_killed)
                REQUIRE(h, pump_root_passed(h->pump, r, names[n]) ==
                               h->truth[n]);
        }
    }
}

/* Whoever uses a quota sees what the roots see. */
static void check_agreement(struct history *h)
{
    for (int n = 0; n < NAMES; n++) {
        double most = largest_root_fill(h, n);
        for (uint32_t l = 0; l < h->pump->options.limiters; l++) {
            if (pump_count(h->pump, l, names[n]) == 0)
                continue;
            double fill = pump_limiter_fill(h->pump, l, names[n]);
            REQUIRE(h, fill <= most + TOLERANCE);
            /* Others may have added less than is worth a push; a push is
             * said once, for TCP loses none; and after a cut a slot is
             * spoken of again when it is used again. */
            REQUIRE(h, h->lossy || h->cut || fill >= most - (double)h->high[n] -
                                              TOLERANCE);
        }
    }
}

static void check_same_quotas(struct history *h)
{
    for (uint32_t l = 0; l < h->pump->options.limiters; l++) {
        for (int n = 0; n < 2; n++) {
            struct weir_table *table = h->pump->limiter[l].table;
            struct weir_ref ref;
            REQUIRE(h, weir_table_find(table, weir_text_of(names[n]), &ref));
            struct weir_slot_view view;
            weir_table_view(table, ref.slot, &view, h->pump->now);
            REQUIRE(h, view.bucket.high >> view.bucket.leak.frac ==
                           (int64_t)h->high[n]);
        }
    }
}

/* ---- A history ---- */

static void set_network(struct history *h, struct pump_options *options)
{
    *options = (struct pump_options){
        .seed = h->seed,
        .limiters = 1 + (uint32_t)below(h, 3),
        .roots = 1 + (uint32_t)below(h, 2),
        .slots = 16,
        .delay_min = below(h, 2) ? 0 : below(h, 20 * WEIR_MILLISECOND),
        .settings = { .report_interval = (1 + below(h, 10)) * 100 *
                                         WEIR_MILLISECOND,
                      .stale_after = 100 * WEIR_SECOND,
                      .slack = below(h, 4) != 0 },
    };
    options->delay_max =
        options->delay_min + below(h, 40 * WEIR_MILLISECOND);
    if (below(h, 2))
        options->loss = 0.3 * weir_rng_unit(&h->rng);
    if (below(h, 2))
        options->twice = 0.3 * weir_rng_unit(&h->rng);
    if (below(h, 2))
        options->reorder = weir_rng_unit(&h->rng);
    if (below(h, 2))
        options->replay = weir_rng_unit(&h->rng);
    h->lossy = options->loss > 0 || options->reorder > 0;
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
    struct pump_options options;
    set_network(h, &options);
    h->pump = pump_new(&options);
    h->pump->on_fill = note_slack;
    h->pump->context = h;
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
    pump_free(h->pump);
    test_free(h);
}

static uint64_t from_environment(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
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
    /* A test that judges little would hold of anything. */
    assert_true(count < 100 || judged.exactly > count / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_histories),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
