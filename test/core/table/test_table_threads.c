/* SPDX-License-Identifier: MIT
 * test_table_threads.c - the table under threads, and under a writer that was
 * killed.
 *
 * The invariants must hold with any schedule: units are conserved, no take
 * stays unseen by the sync, a reader never mixes two edits, a slot's next owner
 * is never charged for the previous one. The thread sanitizer runs it in
 * .ci/run. */

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "core/table/table_switch_internal.h"
#include "patience.h"
#include "table_calls.h"
#include "table_maker.h"

#define TAKERS 3
#define LEAVES 4
#define ROUNDS 40000

struct stage {
    struct weir_table *table;
    struct weir_ref leaf[LEAVES];
    weir_instant now; /* moved by the sync's thread; atomic */
    uint32_t running; /* takers still at work; atomic */
    uint32_t wrong;   /* impossible readings; atomic */
};

struct taker {
    struct stage *stage;
    pthread_t thread;
    struct weir_rng rng;
    int64_t charged[LEAVES];
    uint64_t refused[LEAVES];
};

static void start(struct stage *stage, struct taker *takers, unsigned count,
                  void *(*run)(void *), uint64_t seed)
{
    stage->running = count;
    for (unsigned i = 0; i < count; i++) {
        memset(&takers[i], 0, sizeof(takers[i]));
        takers[i].stage = stage;
        takers[i].rng.state = seed + i;
        assert_int_equal(
            pthread_create(&takers[i].thread, NULL, run, &takers[i]), 0);
    }
}

static void finish(struct taker *takers, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(PATIENTLY(pthread_join(takers[i].thread, NULL)), 0);
}

static void leave(struct taker *taker)
{
    weir_fetch_sub(&taker->stage->running, 1);
}

/* ---- Conservation ---- */

static void put_tree(struct weir_table *t, uint64_t units, uint64_t burst,
                     unsigned parents, struct weir_ref *leaves)
{
    for (unsigned i = 0; i < LEAVES; i++) {
        char name[16];
        snprintf(name, sizeof(name), "leaf%u", i);
        struct weir_quota leaf = made_quota_of(
            name, parents >> i & 1 ? "left" : "right", units, burst);
        leaf.low_burst.amount = burst / 2;
        struct weir_ref ref = made_put(t, &leaf, MADE_AT);
        if (leaves)
            leaves[i] = ref;
    }
}

static void *take_and_refund(void *arg)
{
    struct taker *taker = arg;
    struct stage *stage = taker->stage;
    uint32_t stripe = weir_table_claim_stripe(stage->table);
    for (int i = 0; i < ROUNDS; i++) {
        unsigned k = (unsigned)weir_rng_below(&taker->rng, LEAVES);
        uint64_t weight = weir_rng_below(&taker->rng, 4);
        weir_instant now = weir_load_relaxed(&stage->now);
        unsigned outcome;
        struct weir_reply reply;
        if (i % 16 == 3) {
            weir_table_peek(stage->table, stripe, stage->leaf[k], weight,
                            &reply, now);
            continue;
        }
        outcome = weir_table_take(stage->table, stripe, stage->leaf[k], weight,
                                  i % 8 ? NULL : &reply, now);
        if (outcome & WEIR_OUTCOME_STALE_REF)
            weir_fetch_add(&stage->wrong, 1);
        if (outcome & WEIR_OUTCOME_LIMITED)
            taker->refused[k] += weight;
        else
            taker->charged[k] += (int64_t)weight;
    }
    weir_table_release_stripe(stage->table, stripe);
    leave(taker);
    return NULL;
}

/* Edits, fills, collects and sweeps while others take. */
static void disturb(struct stage *stage, struct weir_rng *rng, uint64_t *bits,
                    uint64_t *seen)
{
    struct weir_table *t = stage->table;
    unsigned k = (unsigned)weir_rng_below(rng, LEAVES);
    uint32_t slot = stage->leaf[k].slot;
    weir_instant now = stage->now;
    switch (weir_rng_below(rng, 6)) {
    case 0:
        put_tree(t, 1000 + weir_rng_below(rng, 1000000),
                 20 + weir_rng_below(rng, 1000),
                 (unsigned)weir_rng_below(rng, 16), NULL);
        break;
    case 1:
        weir_table_set_fill(t, slot, (int64_t)weir_rng_below(rng, 1 << 20),
                            weir_table_count(t, slot), now);
        break;
    case 2:
        weir_table_sweep(t, 16, now);
        break;
    case 3:
        weir_table_set_slack(t, slot, weir_table_count(t, slot) + 3,
                             weir_table_count(t, slot) + WEIR_COUNT_FAR);
        break;
    default:
        break;
    }
    weir_store_relaxed(&stage->now,
                       now + weir_rng_below(rng, 2 * WEIR_MILLISECOND));
    /* Marked slots are read; the others must not have moved by the end. */
    memset(bits, 0, sizeof(*bits));
    weir_table_collect(t, bits);
    for (uint32_t i = 0; i < weir_table_used(t); i++) {
        if (bits[i / 64] >> (i % 64) & 1)
            seen[i] = weir_table_count(t, i);
    }
}

static void test_units_are_conserved_and_seen(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("units_are_conserved");
    struct stage stage = { .now = MADE_AT };
    struct weir_table *t = stage.table = made_table(32, TAKERS + 1, 5);
    struct weir_quota top = made_quota_of("top", NULL, 1000000, 1000000);
    made_put(t, &top, MADE_AT);
    struct weir_quota side = made_quota_of("left", "top", 1000000, 1000);
    struct weir_ref left = made_put(t, &side, MADE_AT);
    side.name = WEIR_TEXT("right");
    struct weir_ref right = made_put(t, &side, MADE_AT);
    put_tree(t, 1000, 100, 5, stage.leaf);
    struct taker takers[TAKERS];
    uint64_t bits[1], seen[32] = { 0 };
    start(&stage, takers, TAKERS, take_and_refund, weir_rng_next(&rng));
    while (STILL(weir_load(&stage.running) > 0))
        disturb(&stage, &rng, bits, seen);
    finish(takers, TAKERS);
    assert_int_equal(stage.wrong, 0);
    /* One more collect must show every slot that wasn't seen. */
    bits[0] = 0;
    weir_table_collect(t, bits);
    for (uint32_t i = 0; i < weir_table_used(t); i++) {
        if (bits[0] >> i & 1)
            seen[i] = weir_table_count(t, i);
        assert_true(seen[i] == weir_table_count(t, i));
    }
    uint64_t all = 0;
    for (unsigned k = 0; k < LEAVES; k++) {
        uint64_t charged = 0, refused = 0;
        for (unsigned i = 0; i < TAKERS; i++) {
            charged += (uint64_t)takers[i].charged[k];
            refused += takers[i].refused[k];
        }
        assert_true(weir_table_count(t, stage.leaf[k].slot) == charged);
        assert_compare(weir_table_refused(t, stage.leaf[k].slot), >=, refused);
        all += charged;
    }
    struct weir_ref ref;
    assert_true(weir_table_find(t, WEIR_TEXT("top"), &ref));
    assert_true(weir_table_count(t, ref.slot) == all);
    assert_true(weir_table_count(t, left.slot) +
                    weir_table_count(t, right.slot) ==
                all);
    made_audit(t);
    free(t);
}

/* ---- No take unseen ---- */

static void *take_one_by_one(void *arg)
{
    struct taker *taker = arg;
    struct stage *stage = taker->stage;
    for (int i = 0; i < ROUNDS; i++)
        weir_table_take(stage->table, 1, stage->leaf[0], 1, NULL, stage->now);
    leave(taker);
    return NULL;
}

/* The attack on touch(): slack moves all the time, and the mark comes and goes
 * on every take. Whenever a take is over report_at and no collect has come
 * since, the slot must be marked. */
static void test_no_take_stays_unseen(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("no_take_stays_unseen");
    struct stage stage = { .now = MADE_AT };
    struct weir_table *t = stage.table = made_table(4, 2, 5);
    struct weir_quota quota = made_quota_of("q", NULL, 1, 1ull << 40);
    stage.leaf[0] = made_put(t, &quota, MADE_AT);
    uint32_t slot = stage.leaf[0].slot;
    for (int turn = 0; turn < 5; turn++) {
        struct taker takers[TAKERS];
        uint64_t bits = 0, seen = weir_table_count(t, slot);
        weir_table_collect(t, &bits);
        seen = weir_table_count(t, slot);
        start(&stage, takers, TAKERS, take_one_by_one, 0);
        while (STILL(weir_load(&stage.running) > 0)) {
            bits = 0;
            if (weir_rng_below(&rng, 2)) {
                uint64_t count = weir_table_count(t, slot);
                weir_table_set_slack(t, slot, count + weir_rng_below(&rng, 50),
                                     count + (1u << 30));
            }
            weir_table_collect(t, &bits);
            if (bits)
                seen = weir_table_count(t, slot);
        }
        finish(takers, TAKERS);
        bits = 0;
        weir_table_collect(t, &bits);
        if (bits)
            seen = weir_table_count(t, slot);
        assert_true(seen == weir_table_count(t, slot));
        /* And the next take marks it again. */
        weir_table_take(t, 1, stage.leaf[0], 1, NULL, MADE_AT);
        bits = 0;
        weir_table_collect(t, &bits);
        assert_true(bits == 1u << slot);
    }
    free(t);
}

static void test_refusals_are_seen_whatever_their_weight(void **state)
{
    (void)state;
    struct weir_table *t = made_table(1024, 2, 5);
    uint32_t stripe = weir_table_claim_stripe(t);
    struct weir_ref ref[2] = { { 0 } };
    for (int i = 0; i < 600; i++) {
        char name[16];
        snprintf(name, sizeof(name), "zero%d", i);
        struct weir_quota quota = made_quota_of(name, NULL, 0, 1);
        struct weir_ref made = made_put(t, &quota, MADE_AT);
        if (made.slot == 7 || made.slot == 7 + STRIPE_ENTRIES)
            ref[made.slot != 7] = made;
    }
    /* Two slots that share an entry of the stripe, in turn. */
    uint64_t refused[2] = { 0 };
    for (int i = 0; i < 100; i++) {
        int k = i / 3 % 2;
        uint64_t weight = i % 2 ? WEIR_WEIGHT_MAX : 1;
        weir_table_take(t, stripe, ref[k], weight, NULL, MADE_AT);
        refused[k] += weight;
        uint64_t bits[16] = { 0 };
        weir_table_collect(t, bits);
        uint32_t slot = ref[k].slot;
        assert_true(bits[slot / 64] >> (slot % 64) & 1);
        assert_true(weir_table_refused(t, ref[0].slot) == refused[0]);
        assert_true(weir_table_refused(t, ref[1].slot) == refused[1]);
    }
    free(t);
}

/* Half a minute of the heaviest takes: 2^28 times 2^32 units. Counted by
 * moving the count, not by taking. */
static void test_never_stays_never(void **state)
{
    (void)state;
    struct weir_table *t = made_table(4, 2, 5);
    struct weir_quota quota = made_quota_of("q", NULL, 1, 1);
    quota.limit.unlimited = true;
    struct weir_ref ref = made_put(t, &quota, MADE_AT);
    for (int i = 0; i < 64; i++) {
        uint64_t bits = 0;
        assert_int_equal(
            weir_table_take(t, 0, ref, WEIR_WEIGHT_MAX, NULL, MADE_AT) &
                WEIR_OUTCOME_LIMITED,
            0);
        weir_fetch_add(&weir_hot(t, ref.slot)->count,
                       WEIR_COUNT_FAR / 4 - WEIR_WEIGHT_MAX);
        weir_table_collect(t, &bits);
    }
    free(t);
}

/* ---- The switch ---- */

/* No mixture of these two states resembles one of them: each has its own scale,
 * and a fill that the other can't have. */
#define SLOW_FILL 700
static const struct {
    uint64_t units, burst;
} edits[] = { { 1, 1000 }, { 50000000000ull, 1ull << 45 } };

static void *read_the_fill(void *arg)
{
    struct taker *taker = arg;
    struct stage *stage = taker->stage;
    while (weir_load(&stage->running) > 0) {
        struct slot_read read;
        weir_slot_read(stage->table, stage->leaf[0].slot, 0, &read);
        bool slow = read.high == (int64_t)(edits[0].burst << read.leak.frac);
        bool fast = read.high == (int64_t)(edits[1].burst << read.leak.frac);
        bool right =
            (slow || fast) && read.fill >> read.leak.frac == SLOW_FILL &&
            (read.leak.frac == WEIR_FRAC_MAX) == slow && read.band == 0;
        if (!right)
            weir_fetch_add(&stage->wrong, 1);
    }
    return NULL;
}

static void test_a_reader_never_mixes_two_edits(void **state)
{
    (void)state;
    struct stage stage = { .now = MADE_AT };
    struct weir_table *t = stage.table = made_table(4, 2, 5);
    struct weir_quota quota =
        made_quota_of("q", NULL, edits[0].units, edits[0].burst);
    stage.leaf[0] = made_put(t, &quota, MADE_AT);
    weir_table_charge(t, 0, stage.leaf[0], SLOW_FILL, MADE_AT);
    struct taker takers[TAKERS];
    start(&stage, takers, TAKERS, read_the_fill, 0);
    for (int i = 1; i < ROUNDS; i++) {
        quota.limit.units = edits[i % 2].units;
        quota.low_burst.amount = quota.high_burst.amount = edits[i % 2].burst;
        made_put(t, &quota, MADE_AT);
    }
    weir_store(&stage.running, 0);
    finish(takers, TAKERS);
    assert_int_equal(stage.wrong, 0);
    made_audit(t);
    free(t);
}

/* The bytes of a switch as a writer that is killed within it leaves them. */
enum killed { IN_SPARE, BEFORE_CAS, AFTER_CAS, IN_LINE, AFTER_LINE, STEPS };

static void kill_writer(struct weir_table *t, uint32_t slot,
                        const struct weir_bucket *bucket, enum killed step)
{
    struct hot *hot = weir_hot(t, slot);
    weir_table_mend_switch(t);
    t->spare_seq |= 1;
    t->spare_slot = slot;
    t->spare_part = bucket->leak.part;
    if (step == IN_SPARE)
        return;
    t->spare_high = bucket->high;
    t->spare_band = weir_mini_of(bucket->high - bucket->low);
    t->spare_meta = (uint32_t)bucket->leak.whole << META_WHOLE_SHIFT |
                    (uint32_t)bucket->leak.frac << META_FRAC_SHIFT;
    t->spare_seq++;
    if (step == BEFORE_CAS)
        return;
    struct slot_read read;
    weir_slot_read(t, slot, 0, &read);
    int64_t fill = weir_rescale(read.fill, read.leak.frac, bucket->leak.frac);
    uint64_t scaled = (uint64_t)fill - (read.count << bucket->leak.frac);
    hot->base = scaled << 1 | 1;
    if (step == AFTER_CAS)
        return;
    hot->meta |= META_SEQ_ONE;
    hot->part = t->spare_part;
    if (step == IN_LINE)
        return;
    hot->high = t->spare_high;
    hot->band = t->spare_band;
    hot->meta =
        ((hot->meta & ~(META_SEQ_ONE - 1)) + META_SEQ_ONE) | t->spare_meta;
}

static void test_a_killed_writer_leaves_a_sound_slot(void **state)
{
    (void)state;
    for (int step = 0; step < STEPS; step++) {
        struct weir_table *t = made_table(4, 2, 5);
        struct weir_quota quota = made_quota_of("q", NULL, 1, 1000);
        struct weir_ref ref = made_put(t, &quota, MADE_AT);
        struct weir_quota other = made_quota_of("other", NULL, 1, 1000);
        made_put(t, &other, MADE_AT);
        weir_table_charge(t, 0, ref, SLOW_FILL, MADE_AT);
        struct weir_bucket bucket;
        weir_bucket_init(&bucket, 50000000000ull, WEIR_SECOND, 2000, 2000);
        kill_writer(t, ref.slot, &bucket, (enum killed)step);
        uint64_t high = step >= AFTER_CAS ? 2000 : 1000;
        /* Readers and takers go on, with one edit or the other. */
        struct slot_read read;
        weir_slot_read(t, ref.slot, 0, &read);
        assert_true(read.fill >> read.leak.frac == SLOW_FILL);
        assert_true(read.high == (int64_t)(high << read.leak.frac));
        unsigned outcome =
            weir_table_take(t, 0, ref, high - SLOW_FILL + 1, NULL, MADE_AT);
        assert_true(outcome & WEIR_OUTCOME_LIMITED);
        outcome = weir_table_take(t, 0, ref, high - SLOW_FILL, NULL, MADE_AT);
        assert_false(outcome & WEIR_OUTCOME_LIMITED);
        /* The next writer, of any slot, finishes it. */
        if (step % 2)
            weir_table_set_stale(t, true, MADE_AT);
        else
            made_put(t, &other, MADE_AT);
        weir_table_set_stale(t, false, MADE_AT);
        weir_slot_read(t, ref.slot, 0, &read);
        assert_false(weir_hot(t, ref.slot)->base & 1);
        assert_true(read.fill >> read.leak.frac == (int64_t)high);
        assert_true(read.high == (int64_t)(high << read.leak.frac));
        made_put(t, &quota, MADE_AT);
        made_audit(t);
        free(t);
    }
}

/* ---- Lives ---- */

#define NAMES 40

static void *make_and_take(void *arg)
{
    struct taker *taker = arg;
    struct stage *stage = taker->stage;
    struct weir_table *t = stage->table;
    uint32_t stripe = weir_table_claim_stripe(t);
    for (int i = 0; i < ROUNDS / 4; i++) {
        char name[24];
        uint64_t which = weir_rng_below(&taker->rng, NAMES);
        snprintf(name, sizeof(name), "leaf/%llu/x", (unsigned long long)which);
        struct weir_ref ref;
        enum weir_resolved how = weir_table_resolve(
            t, weir_text_of(name), false, &ref, weir_load_relaxed(&stage->now));
        if (!weir_is_resolved(how))
            continue;
        /* Twice, so that the second may come after an eviction. */
        for (int k = 0; k < 2; k++) {
            unsigned outcome = weir_table_take(t, stripe, ref, 1, NULL,
                                               weir_load_relaxed(&stage->now));
            if (!(outcome & (WEIR_OUTCOME_STALE_REF | WEIR_OUTCOME_LIMITED)))
                taker->charged[0]++;
        }
    }
    leave(taker);
    return NULL;
}

/* Instances come and go under takers: each unit that passed is in the count of
 * some slot, whichever name owns it next, and in the parent that all share. */
static void test_lives_end_under_takers(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("lives_end_under_takers");
    struct stage stage = { .now = MADE_AT };
    struct weir_table *t = stage.table = made_table(24, TAKERS + 1, 5);
    struct weir_quota site = made_quota_of("site", NULL, 1, 1ull << 40);
    struct weir_ref top = made_put(t, &site, MADE_AT);
    struct weir_quota leaf =
        made_quota_of("leaf/*/x", "mid/{1}", 1000000000, 1000000000);
    assert_int_equal(weir_table_put(t, &leaf, MADE_AT), WEIR_OK);
    struct weir_quota mid =
        made_quota_of("mid/*", "site", 1000000000, 1000000000);
    assert_int_equal(weir_table_put(t, &mid, MADE_AT), WEIR_OK);
    struct taker takers[TAKERS];
    start(&stage, takers, TAKERS, make_and_take, weir_rng_next(&rng));
    while (STILL(weir_load(&stage.running) > 0)) {
        uint64_t bits = 0;
        weir_table_collect(t, &bits);
        for (uint32_t slot = 0; slot < weir_table_used(t); slot++)
            weir_table_set_settled(t, slot, weir_table_count(t, slot));
        weir_store_relaxed(&stage.now, stage.now + 1000000);
        weir_table_sweep(t, 24, stage.now);
        char name[WEIR_NAME_MAX + 1];
        struct weir_slot_view view;
        uint32_t slot = (uint32_t)weir_rng_below(&rng, 24);
        weir_table_name(t, slot, name);
        weir_table_view(t, slot, &view, stage.now);
        weir_table_template_of(t, slot);
        /* A template that changes its parent meanwhile. */
        if (weir_rng_below(&rng, 8) == 0) {
            leaf.parent = weir_rng_below(&rng, 2) ? WEIR_TEXT("mid/{1}")
                                                  : WEIR_TEXT("mid/{1}{1}");
            weir_table_put(t, &leaf, stage.now);
        }
    }
    finish(takers, TAKERS);
    uint64_t passed = 0;
    for (unsigned i = 0; i < TAKERS; i++)
        passed += (uint64_t)takers[i].charged[0];
    assert_true(weir_table_count(t, top.slot) == passed);
    made_audit(t);
    free(t);
}

/* ---- Passes while no root answers ---- */

#define MANY 100000 /* slots that are updated one after the other */

struct flood {
    struct weir_table *table;
    struct weir_ref ref;
    bool over; /* atomic */
};

static void *take_on(void *context)
{
    struct flood *flood = context;
    while (!weir_load(&flood->over))
        weir_table_take(flood->table, 0, flood->ref, 1, NULL, MADE_AT);
    return NULL;
}

/* A root answers again, and each slot is updated. Until that is done the last
 * one passes all, and has no debt for it either. */
static void test_nothing_is_owed_that_passed_as_open(void **state)
{
    (void)state;
    struct weir_table *t = made_table(MANY, 2, 5);
    for (unsigned i = 1; i < MANY; i++) {
        char name[16];
        snprintf(name, sizeof(name), "q%u", i);
        struct weir_quota other = made_quota_of(name, NULL, 1, 10);
        made_put(t, &other, MADE_AT);
    }
    struct weir_quota quota = made_quota_of("last", NULL, 1, 10);
    struct weir_ref ref = made_put(t, &quota, MADE_AT);
    pthread_t taker;
    struct flood flood = { .table = t, .ref = ref };
    weir_table_set_stale(t, true, MADE_AT);
    assert_int_equal(pthread_create(&taker, NULL, take_on, &flood), 0);
    while (STILL(weir_table_count(t, ref.slot) < 1000))
        continue;
    weir_table_set_stale(t, false, MADE_AT);
    weir_store(&flood.over, true);
    PATIENTLY(pthread_join(taker, NULL));
    struct weir_slot_view view;
    weir_table_view(t, ref.slot, &view, MADE_AT);
    assert_true(view.fill == view.bucket.high);
    free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_units_are_conserved_and_seen),
        cmocka_unit_test(test_no_take_stays_unseen),
        cmocka_unit_test(test_refusals_are_seen_whatever_their_weight),
        cmocka_unit_test(test_never_stays_never),
        cmocka_unit_test(test_a_reader_never_mixes_two_edits),
        cmocka_unit_test(test_a_killed_writer_leaves_a_sound_slot),
        cmocka_unit_test(test_lives_end_under_takers),
        cmocka_unit_test(test_nothing_is_owed_that_passed_as_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
