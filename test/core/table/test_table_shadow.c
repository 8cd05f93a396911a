/* SPDX-License-Identifier: MIT
 * test_table_shadow.c - the shadow set beside the live one.
 *
 * Three tables get the same random requests and edits:
 *
 *     both     the live set and the shadow set
 *     live     the live set alone
 *     oracle   the shadow set alone, as if it were live
 *
 * 'both' must answer as 'live' does, reply for reply and count for count; and
 * its counts in the shadow set must be those of 'oracle'. Chance is the same in
 * each: the shadow set's in 'both' is the live set's in 'oracle'. */

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "patience.h"
#include "table_calls.h"
#include "table_maker.h"

static const char *const names[] = {
    "site",     "site/a",
    "site/b",   "api",
    "client/1", "client/2",
    "client/3", "a_name_that_is_longer_than_the_27_bytes_in_the_line",
    "nobody",
};
#define NAMES WEIR_COUNT_OF(names)
static const char *const globs[] = { "client/*", "*", "site/*", "a*" };
#define GLOBS WEIR_COUNT_OF(globs)

struct world {
    struct weir_table *both, *live, *oracle;
    struct weir_rng rng;
    weir_instant now;
    struct weir_ref pin[NAMES], pin_alone[NAMES]; /* in 'both', 'live' */
    uint64_t epoch;
    unsigned passed, refused, shadow_refused;
};

/* ---- Both sets ---- */

static const char *prefixed(const char *name, char *buf)
{
    memcpy(buf, WEIR_SHADOW_PREFIX, WEIR_SHADOW_PREFIX_LEN);
    strcpy(buf + WEIR_SHADOW_PREFIX_LEN, name);
    return buf;
}

static struct weir_quota any_quota(struct world *w, const char *name)
{
    static const char *const parents[] = { "", "", "site", "api" };
    uint64_t burst = 1 + weir_rng_below(&w->rng, 60);
    struct weir_quota quota = made_quota_of(
        name, parents[weir_rng_below(&w->rng, WEIR_COUNT_OF(parents))],
        1 + weir_rng_below(&w->rng, 300), burst);
    /* A band, so that chance matters. */
    quota.high_burst.amount = burst + weir_rng_below(&w->rng, 60);
    quota.order = (uint32_t)weir_rng_below(&w->rng, 3);
    quota.created = ++w->epoch;
    if (weir_rng_below(&w->rng, 8) == 0)
        quota.mode = weir_rng_below(&w->rng, 2) ? WEIR_SHADOW : WEIR_OFF;
    /* The parents must still form a tree. */
    if (strcmp(name, "site") == 0 || strcmp(name, "api") == 0 ||
        strcmp(name, "a*") == 0 || strcmp(name, "*") == 0)
        quota.parent.len = 0;
    return quota;
}

static void put(struct weir_table *t, const struct weir_quota *quota,
                weir_instant now)
{
    assert_int_equal(weir_table_put(t, quota, now), WEIR_OK);
}

static void put_live(struct world *w, const struct weir_quota *quota)
{
    put(w->both, quota, w->now);
    put(w->live, quota, w->now);
}

static void put_shadow(struct world *w, const struct weir_quota *quota)
{
    char name[WEIR_NAME_MAX + 1], parent[WEIR_NAME_MAX + 1];
    char buf[WEIR_NAME_MAX + 1];
    snprintf(buf, sizeof buf, "%.*s", (int)quota->name.len, quota->name.p);
    struct weir_quota shadow = *quota;
    shadow.name = weir_text_of(prefixed(buf, name));
    snprintf(buf, sizeof buf, "%.*s", (int)quota->parent.len,
             quota->parent.len ? quota->parent.p : "");
    if (quota->parent.len > 0)
        shadow.parent = weir_text_of(prefixed(buf, parent));
    put(w->both, &shadow, w->now);
    put(w->oracle, quota, w->now);
}

static void edit(struct world *w)
{
    size_t i = weir_rng_below(&w->rng, NAMES - 1 + GLOBS);
    const char *name = i < NAMES - 1 ? names[i] : globs[i - (NAMES - 1)];
    char buf[WEIR_NAME_MAX + 1];
    bool shadow = weir_rng_below(&w->rng, 2);
    if (weir_rng_below(&w->rng, 3) > 0) {
        struct weir_quota quota = any_quota(w, name);
        if (shadow)
            put_shadow(w, &quota);
        else
            put_live(w, &quota);
    } else if (shadow) {
        weir_table_drop(w->both, weir_text_of(prefixed(name, buf)), w->now);
        weir_table_drop(w->oracle, weir_text_of(name), w->now);
    } else {
        weir_table_drop(w->both, weir_text_of(name), w->now);
        weir_table_drop(w->live, weir_text_of(name), w->now);
    }
}

/* ---- Requests ---- */

static bool reply_equal(const struct weir_reply *a, const struct weir_reply *b)
{
    return a->verdict == b->verdict && a->shadow == b->shadow &&
           a->unknown == b->unknown && a->never == b->never &&
           a->remaining == b->remaining && a->fill == b->fill &&
           a->retry_after == b->retry_after && a->wait == b->wait &&
           a->quota_len == b->quota_len &&
           memcmp(a->quota, b->quota, a->quota_len) == 0;
}

static unsigned act_on(struct weir_table *t, struct weir_ref ref,
                       const struct weir_algorithm_ask *act,
                       struct weir_reply *reply, weir_instant now)
{
    return act->op == WEIR_ALGORITHM_TAKE
               ? weir_table_take(t, 1, ref, act->weight, reply, now)
               : weir_table_ask(t, 1, ref, act, reply, now);
}

/* The oracle's answer. The explanation of a reserve draws from the oracle's
 * chance, but not from the shadow set's, so the draw is undone here. */
static unsigned ask_oracle(struct world *w, struct weir_text name,
                           const struct weir_algorithm_ask *act)
{
    struct weir_ref ref;
    struct weir_reply reply;
    if (weir_table_resolve(w->oracle, name, false, &ref, w->now) >
        WEIR_RESOLVED_CHAIN)
        return 0;
    struct chance *chance = &weir_stripe(w->oracle, 1)->chance[LIVE];
    struct chance before = *chance;
    unsigned outcome =
        act_on(w->oracle, ref, act,
               act->op == WEIR_ALGORITHM_RESERVE ? &reply : NULL, w->now);
    if (act->op == WEIR_ALGORITHM_RESERVE)
        *chance = before;
    return outcome;
}

static struct weir_algorithm_ask any_act(struct world *w)
{
    struct weir_algorithm_ask act = { .op = WEIR_ALGORITHM_TAKE,
                                      .weight = weir_rng_below(&w->rng, 4) };
    uint64_t kind = weir_rng_below(&w->rng, 10);
    if (kind == 0)
        act.op = WEIR_ALGORITHM_CHARGE;
    if (kind == 1)
        act.op = WEIR_ALGORITHM_RESERVE;
    act.wait_max = weir_rng_below(&w->rng, 20 * WEIR_MILLISECOND);
    return act;
}

static unsigned ask_both(struct world *w, size_t i,
                         struct weir_algorithm_ask *act)
{
    bool by_name = act->op == WEIR_ALGORITHM_TAKE && weir_rng_below(&w->rng, 2);
    struct weir_reply got = { 0 }, want = { 0 };
    bool replies =
        act->op == WEIR_ALGORITHM_RESERVE || weir_rng_below(&w->rng, 2) == 0;
    struct weir_text name = weir_text_of(names[i]);
    struct weir_ref ref = w->pin[i], alone = w->pin_alone[i];
    if (by_name) {
        bool ruled = weir_table_resolve(w->both, name, false, &ref, w->now) <=
                     WEIR_RESOLVED_CHAIN;
        assert_int_equal(ruled,
                         weir_table_resolve(w->live, name, false, &alone,
                                            w->now) <= WEIR_RESOLVED_CHAIN);
        if (!ruled) {
            weir_table_shadow_name(w->both, 1, name, act, w->now);
            return 0;
        }
    }
    unsigned outcome = act_on(w->both, ref, act, replies ? &got : NULL, w->now);
    unsigned expected =
        act_on(w->live, alone, act, replies ? &want : NULL, w->now);
    const unsigned verdict = WEIR_OUTCOME_LIMITED | WEIR_OUTCOME_STALE_REF;
    assert_int_equal(outcome & verdict, expected & verdict);
    assert_true(!replies || reply_equal(&got, &want));
    if (outcome & WEIR_OUTCOME_SHADOW)
        weir_table_shadow(w->both, 1, ref, act, outcome & WEIR_OUTCOME_LIMITED,
                          w->now);
    return outcome;
}

static void request(struct world *w)
{
    size_t i = weir_rng_below(&w->rng, NAMES);
    struct weir_algorithm_ask act = any_act(w);
    unsigned outcome = ask_both(w, i, &act);
    unsigned shadow = ask_oracle(w, weir_text_of(names[i]), &act);
    w->passed += !(outcome & WEIR_OUTCOME_LIMITED);
    w->refused += outcome & WEIR_OUTCOME_LIMITED;
    w->shadow_refused += shadow & WEIR_OUTCOME_LIMITED;
}

/* ---- Invariants ---- */

static bool is_ruled(struct weir_table *t, const char *name,
                     struct weir_slot_view *view, uint64_t *refused,
                     weir_instant now)
{
    struct weir_ref ref;
    if (!weir_table_find(t, weir_text_of(name), &ref))
        return false;
    weir_table_view(t, ref.slot, view, now);
    *refused = weir_table_refused(t, ref.slot);
    return view->state != WEIR_SLOT_PLACEHOLDER;
}

static void compare(struct weir_table *a, const char *name_a,
                    struct weir_table *b, const char *name_b, uint64_t *counts,
                    weir_instant now)
{
    struct weir_slot_view x, y;
    uint64_t refused_x, refused_y;
    bool ruled = is_ruled(a, name_a, &x, &refused_x, now);
    bool both = is_ruled(b, name_b, &y, &refused_y, now) && ruled;
    if (!both)
        return;
    assert_int_equal(x.state, y.state);
    assert_true(x.fill == y.fill);
    /* Slots keep the counts of earlier lives: only differences are compared. */
    if (counts[0] != UINT64_MAX) {
        assert_true(x.count - counts[0] == y.count - counts[1]);
        assert_true(refused_x - counts[2] == refused_y - counts[3]);
    }
}

static void begin_counts(struct weir_table *t, const char *name,
                         uint64_t *count, uint64_t *refused)
{
    struct weir_ref ref;
    *count = UINT64_MAX;
    if (!weir_table_find(t, weir_text_of(name), &ref))
        return;
    *count = weir_table_count(t, ref.slot);
    *refused = weir_table_refused(t, ref.slot);
}

/* A run of requests between two edits, in which no slot is freed. */
static void report_backoff(struct world *w, unsigned length)
{
    uint64_t live[NAMES][4], shadow[NAMES][4];
    char buf[WEIR_NAME_MAX + 1];
    for (size_t i = 0; i < NAMES; i++) {
        begin_counts(w->both, names[i], &live[i][0], &live[i][2]);
        begin_counts(w->live, names[i], &live[i][1], &live[i][3]);
        begin_counts(w->both, prefixed(names[i], buf), &shadow[i][0],
                     &shadow[i][2]);
        begin_counts(w->oracle, names[i], &shadow[i][1], &shadow[i][3]);
        if (live[i][1] == UINT64_MAX)
            live[i][0] = UINT64_MAX;
        if (shadow[i][1] == UINT64_MAX)
            shadow[i][0] = UINT64_MAX;
    }
    for (unsigned i = 0; i < length; i++) {
        w->now += weir_rng_below(&w->rng, 3 * WEIR_MILLISECOND);
        request(w);
    }
    for (size_t i = 0; i < NAMES; i++) {
        compare(w->both, names[i], w->live, names[i], live[i], w->now);
        compare(w->both, prefixed(names[i], buf), w->oracle, names[i],
                shadow[i], w->now);
    }
}

static void world_init(struct world *w, uint64_t seed)
{
    *w = (struct world){ .rng = { seed }, .now = MADE_AT };
    w->both = made_table(4096, 2, seed);
    w->live = made_table(4096, 2, seed);
    w->oracle = made_table(4096, 2, seed);
    weir_stripe(w->oracle, 1)->chance[LIVE] =
        weir_stripe(w->both, 1)->chance[SHADOW];
    assert_int_equal(weir_table_claim_stripe(w->both), 1);
    assert_int_equal(weir_table_claim_stripe(w->live), 1);
    assert_int_equal(weir_table_claim_stripe(w->oracle), 1);
    for (size_t i = 0; i < NAMES; i++) {
        weir_table_pin(w->both, weir_text_of(names[i]), &w->pin[i], w->now);
        weir_table_pin(w->live, weir_text_of(names[i]), &w->pin_alone[i],
                       w->now);
    }
}

static void world_fini(struct world *w)
{
    made_audit(w->both);
    free(w->both);
    free(w->live);
    free(w->oracle);
}

static void test_both_sets_decide_as_if_alone(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("both_sets");
    unsigned passed = 0, refused = 0, shadow_refused = 0;
    for (int history = 0; history < 60; history++) {
        struct world w;
        world_init(&w, history ? weir_rng_next(&rng) : rng.state);
        for (int i = 0; i < 60; i++) {
            edit(&w);
            report_backoff(&w, 40);
        }
        made_audit(w.both);
        passed += w.passed;
        refused += w.refused;
        shadow_refused += w.shadow_refused;
        world_fini(&w);
    }
    printf("%u passed, %u refused; the shadow set would have refused %u\n",
           passed, refused, shadow_refused);
    assert_compare(passed, >, 1000);
    assert_compare(refused, >, 1000);
    assert_compare(shadow_refused, >, 1000);
}

/* ---- Stories ---- */

static struct weir_quota hard(const char *name, const char *parent,
                              uint64_t burst)
{
    return made_quota_of(name, parent, 1, burst);
}

static uint64_t passed_by(struct weir_table *t, const char *name)
{
    struct weir_ref ref;
    if (!weir_table_find(t, weir_text_of(name), &ref))
        return 0;
    return weir_table_count(t, ref.slot);
}

static uint64_t refused_by(struct weir_table *t, const char *name)
{
    struct weir_ref ref;
    assert_true(weir_table_find(t, weir_text_of(name), &ref));
    return weir_table_refused(t, ref.slot);
}

static unsigned act(struct weir_table *t, struct weir_ref ref,
                    enum weir_algorithm_op kind, uint64_t weight)
{
    struct weir_algorithm_ask act = { .op = kind, .weight = weight };
    unsigned outcome = act_on(t, ref, &act, NULL, MADE_AT);
    if (outcome & WEIR_OUTCOME_SHADOW)
        weir_table_shadow(t, 1, ref, &act, outcome & WEIR_OUTCOME_LIMITED,
                          MADE_AT);
    return outcome & ~(unsigned)WEIR_OUTCOME_KICK;
}

static void test_without_a_shadow_set_nothing_is_asked(void **state)
{
    (void)state;
    struct weir_table *t = made_table(16, 2, 1);
    weir_table_claim_stripe(t);
    struct weir_quota quota = hard("q", NULL, 10);
    struct weir_ref ref = made_put(t, &quota, MADE_AT);
    assert_int_equal(act(t, ref, WEIR_ALGORITHM_TAKE, 1), 0);
    quota = hard("shadow:q", NULL, 5);
    put(t, &quota, MADE_AT);
    assert_int_equal(act(t, ref, WEIR_ALGORITHM_TAKE, 1), WEIR_OUTCOME_SHADOW);
    weir_table_drop(t, WEIR_TEXT("shadow:q"), MADE_AT);
    assert_int_equal(act(t, ref, WEIR_ALGORITHM_TAKE, 1), 0);
    /* A whole set without it removes it as well. */
    put(t, &quota, MADE_AT);
    weir_table_begin_full(t);
    quota = hard("q", NULL, 10);
    put(t, &quota, MADE_AT);
    weir_table_end_full(t, MADE_AT);
    assert_int_equal(act(t, ref, WEIR_ALGORITHM_TAKE, 1), 0);
    made_audit(t);
    free(t);
}

static void test_a_larger_limit_is_seen_to_pass_more(void **state)
{
    (void)state;
    struct weir_table *t = made_table(16, 2, 1);
    weir_table_claim_stripe(t);
    struct weir_quota quota = hard("q", NULL, 10);
    struct weir_ref ref = made_put(t, &quota, MADE_AT);
    quota = hard("shadow:q", NULL, 15);
    put(t, &quota, MADE_AT);
    unsigned limited = 0;
    for (int i = 0; i < 20; i++)
        limited += act(t, ref, WEIR_ALGORITHM_TAKE, 1) & WEIR_OUTCOME_LIMITED;
    assert_int_equal(limited, 10);
    assert_int_equal(passed_by(t, "q"), 10);
    assert_int_equal(passed_by(t, "shadow:q"), 15);
    assert_int_equal(refused_by(t, "shadow:q"), 5);
    free(t);
}

static void test_templates_rule_their_own_set(void **state)
{
    (void)state;
    struct weir_table *t = made_table(32, 2, 1);
    weir_table_claim_stripe(t);
    struct weir_quota quota = hard("*", NULL, 10);
    put(t, &quota, MADE_AT);
    struct weir_ref ref;
    /* "*" matches these bytes, but isn't a template for them. */
    assert_int_equal(
        weir_table_resolve(t, WEIR_TEXT("shadow:x"), false, &ref, MADE_AT),
        WEIR_RESOLVED_NONE);
    quota = hard("shadow:c/*", "shadow:top", 5);
    put(t, &quota, MADE_AT);
    quota = hard("shadow:top", NULL, 7);
    put(t, &quota, MADE_AT);
    assert_int_equal(
        weir_table_resolve(t, WEIR_TEXT("c/1"), false, &ref, MADE_AT),
        WEIR_RESOLVED);
    for (int i = 0; i < 10; i++)
        act(t, ref, WEIR_ALGORITHM_TAKE, 1);
    assert_int_equal(passed_by(t, "shadow:c/1"), 5);
    assert_int_equal(passed_by(t, "shadow:top"), 5);
    assert_int_equal(
        weir_table_resolve(t, WEIR_TEXT("c/2"), false, &ref, MADE_AT),
        WEIR_RESOLVED);
    for (int i = 0; i < 10; i++)
        act(t, ref, WEIR_ALGORITHM_TAKE, 1);
    assert_int_equal(passed_by(t, "shadow:c/2"), 2);
    assert_int_equal(refused_by(t, "shadow:top"), 8);
    made_audit(t);
    free(t);
}

static void test_names_that_live_has_not_count_there_too(void **state)
{
    (void)state;
    struct weir_table *t = made_table(32, 2, 1);
    weir_table_claim_stripe(t);
    struct weir_quota quota = hard("shadow:new", NULL, 3);
    struct weir_algorithm_ask one = { .op = WEIR_ALGORITHM_TAKE, .weight = 1 };
    put(t, &quota, MADE_AT);
    for (int i = 0; i < 5; i++)
        weir_table_shadow_name(t, 1, WEIR_TEXT("new"), &one, MADE_AT);
    assert_int_equal(passed_by(t, "shadow:new"), 3);
    assert_int_equal(refused_by(t, "shadow:new"), 2);
    /* A caller can't ask for a name of the shadow set, nor for one that would
     * be too long there. */
    assert_int_equal(
        weir_table_shadow_name(t, 1, WEIR_TEXT("shadow:new"), &one, MADE_AT),
        0);
    char name[WEIR_NAME_MAX];
    memset(name, 'n', sizeof name);
    struct weir_text longest = { name, WEIR_SHADOW_NAME_MAX + 1 };
    weir_table_shadow_name(t, 1, longest, &one, MADE_AT);
    struct weir_ref pin;
    weir_table_pin(t, longest, &pin, MADE_AT);
    act(t, pin, WEIR_ALGORITHM_TAKE, 1);
    assert_int_equal(weir_table_live(t), 2);
    /* A handle to a name without quota. */
    weir_table_pin(t, WEIR_TEXT("new"), &pin, MADE_AT);
    act(t, pin, WEIR_ALGORITHM_TAKE, 1);
    assert_int_equal(refused_by(t, "shadow:new"), 3);
    free(t);
}

static void test_shadow_slots_follow_edits(void **state)
{
    (void)state;
    struct weir_table *t = made_table(32, 2, 1);
    weir_table_claim_stripe(t);
    struct weir_quota quota = hard("q", NULL, 100);
    struct weir_ref ref = made_put(t, &quota, MADE_AT);
    struct weir_quota other = hard("shadow:z", NULL, 100);
    put(t, &other, MADE_AT);
    act(t, ref, WEIR_ALGORITHM_TAKE, 1); /* no shadow slot is remembered */
    quota = hard("shadow:q", NULL, 100);
    put(t, &quota, MADE_AT);
    act(t, ref, WEIR_ALGORITHM_TAKE, 1);
    assert_int_equal(passed_by(t, "shadow:q"), 1);
    weir_table_drop(t, WEIR_TEXT("shadow:q"), MADE_AT);
    act(t, ref, WEIR_ALGORITHM_TAKE, 1);
    /* Another name gets the slot that was its shadow slot. */
    quota = hard("shadow:stranger", NULL, 100);
    put(t, &quota, MADE_AT);
    uint64_t before = passed_by(t, "shadow:stranger");
    act(t, ref, WEIR_ALGORITHM_TAKE, 1);
    assert_int_equal(passed_by(t, "shadow:stranger"), before);
    quota = hard("shadow:*", NULL, 100);
    put(t, &quota, MADE_AT);
    act(t, ref, WEIR_ALGORITHM_TAKE, 1);
    assert_int_equal(passed_by(t, "shadow:q"), 1);
    /* The live slot's next life gets the shadow slot of its own name. */
    weir_table_drop(t, WEIR_TEXT("q"), MADE_AT);
    quota = hard("r", NULL, 100);
    struct weir_ref next = made_put(t, &quota, MADE_AT);
    assert_int_equal(next.slot, ref.slot);
    act(t, next, WEIR_ALGORITHM_TAKE, 1);
    assert_int_equal(passed_by(t, "shadow:q"), 1);
    assert_int_equal(passed_by(t, "shadow:r"), 1);
    made_audit(t);
    free(t);
}

static void test_a_shadow_slot_that_was_evicted_is_made_again(void **state)
{
    (void)state;
    struct weir_table *t = made_table(16, 2, 1);
    weir_table_claim_stripe(t);
    struct weir_quota quota = hard("q", NULL, 100);
    struct weir_ref ref = made_put(t, &quota, MADE_AT);
    quota = hard("shadow:*", NULL, 100);
    put(t, &quota, MADE_AT);
    act(t, ref, WEIR_ALGORITHM_TAKE, 1);
    struct weir_ref shadow_slot;
    assert_true(weir_table_find(t, WEIR_TEXT("shadow:q"), &shadow_slot));
    uint64_t bits = 0;
    weir_table_collect(t, &bits);
    weir_table_set_settled(t, shadow_slot.slot,
                           weir_table_count(t, shadow_slot.slot));
    assert_true(weir_table_try_lock(t));
    weir_table_evict(t, 16, 16, MADE_AT + 20 * WEIR_SECOND);
    weir_table_unlock(t);
    assert_false(weir_table_find(t, WEIR_TEXT("shadow:q"), &shadow_slot));
    uint64_t before = weir_table_count(t, shadow_slot.slot);
    act(t, ref, WEIR_ALGORITHM_TAKE, 1);
    assert_true(weir_table_find(t, WEIR_TEXT("shadow:q"), &shadow_slot));
    assert_int_equal(weir_table_count(t, shadow_slot.slot), before + 1);
    made_audit(t);
    free(t);
}

static void test_refunds_are_right_in_the_mean(void **state)
{
    (void)state;
    struct weir_table *t = made_table(16, 2, made_seed("refunds").state);
    weir_table_claim_stripe(t);
    struct weir_quota quota = hard("q", NULL, 1000000000);
    struct weir_ref ref = made_put(t, &quota, MADE_AT);
    quota = hard("shadow:q", NULL, 1000000000);
    put(t, &quota, MADE_AT);
    /* Exactly as many pass in the shadow set. */
    for (int i = 0; i < 1000; i++) {
        act(t, ref, WEIR_ALGORITHM_TAKE, 10);
        act(t, ref, WEIR_ALGORITHM_REFUND, 7);
    }
    assert_int_equal(passed_by(t, "shadow:q"), 3000);
    act(t, ref, WEIR_ALGORITHM_CHARGE, 500);
    assert_int_equal(passed_by(t, "shadow:q"), 3500);
    /* Two in three are too heavy there; only the light ones count. */
    quota = hard("shadow:q", NULL, 100000);
    put(t, &quota, MADE_AT);
    uint64_t before = passed_by(t, "shadow:q");
    const int rounds = 6000;
    for (int i = 0; i < rounds; i++) {
        act(t, ref, WEIR_ALGORITHM_TAKE, i % 3 ? 200000 : 10);
        act(t, ref, WEIR_ALGORITHM_REFUND, 6);
    }
    double kept = (double)(passed_by(t, "shadow:q") - before);
    printf("kept %.0f of %d in the mean\n", kept, rounds / 3 * 4);
    /* 2000 passed, each refunded 6 of 10: 8000, by 6000 draws of one third,
     * 36.5 draws of deviation, 6 units each. Six deviations: a false alarm is
     * less probable than 2 exp(-18) = 3e-8 (Chernoff). The odds begin with the
     * last 256 requests, which all passed, and give back too much until those
     * are forgotten. */
    assert_compare(kept, >, 8000 - 6 * 219 - 6 * 256);
    assert_compare(kept, <, 8000 + 6 * 219);
    free(t);
}

/* A store's link passes in the shadow set, and the other links of its chain are
 * charged: so a refund gives back there. */
static void test_a_refund_reaches_a_chain_with_a_store(void **state)
{
    (void)state;
    struct weir_table *t = made_table(16, 2, 1);
    weir_table_claim_stripe(t);
    struct weir_quota quota = hard("q", NULL, 1000);
    struct weir_ref ref = made_put(t, &quota, MADE_AT);
    quota = hard("shadow:all", NULL, 1000);
    quota.sharing = WEIR_EXACT;
    quota.on_stale = WEIR_STALE_PASS;
    put(t, &quota, MADE_AT);
    quota = hard("shadow:q", "shadow:all", 1000);
    put(t, &quota, MADE_AT);
    act(t, ref, WEIR_ALGORITHM_TAKE, 10);
    assert_int_equal(passed_by(t, "shadow:q"), 10);
    act(t, ref, WEIR_ALGORITHM_REFUND, 10);
    assert_int_equal(passed_by(t, "shadow:q"), 0);
    act(t, ref, WEIR_ALGORITHM_CHARGE, 3);
    assert_int_equal(passed_by(t, "shadow:q"), 3);
    made_audit(t);
    free(t);
}

static void test_half_of_the_slots_are_kept_for_the_live_set(void **state)
{
    (void)state;
    struct weir_table *t = made_table(64, 2, 1);
    weir_table_claim_stripe(t);
    struct weir_quota quota = hard("c/*", NULL, 10);
    put(t, &quota, MADE_AT);
    quota = hard("shadow:c/*", NULL, 10);
    quota.overflow = WEIR_TEXT("shadow:rest");
    put(t, &quota, MADE_AT);
    quota = hard("shadow:rest", NULL, 1000);
    put(t, &quota, MADE_AT);
    for (int i = 0; i < 60; i++) {
        char name[16];
        struct weir_ref ref;
        snprintf(name, sizeof name, "c/%d", i);
        assert_int_equal(
            weir_table_resolve(t, weir_text_of(name), false, &ref, MADE_AT),
            i < 47 ? WEIR_RESOLVED : WEIR_RESOLVED_LACKING);
        if (i < 47)
            act(t, ref, WEIR_ALGORITHM_TAKE, 1);
    }
    /* 3 quotas, and pairs up to 32; then the live ones alone. */
    assert_int_equal(passed_by(t, "shadow:c/13"), 1);
    assert_int_equal(passed_by(t, "shadow:c/20"), 0);
    assert_int_equal(passed_by(t, "shadow:rest"), 47 - 14);
    made_audit(t);
    /* Once there is room again they get shadow slots. */
    for (uint32_t slot = 0; slot < weir_table_used(t); slot++)
        weir_table_set_settled(t, slot, weir_table_count(t, slot));
    uint64_t bits = 0;
    weir_table_collect(t, &bits);
    struct weir_ref held;
    weir_table_pin(t, WEIR_TEXT("c/20"), &held, MADE_AT);
    weir_instant later = MADE_AT + 20 * WEIR_SECOND;
    assert_compare(weir_table_sweep(t, 64, later), >, 0);
    assert_int_equal(weir_table_take(t, 1, held, 1, NULL, later) &
                         WEIR_OUTCOME_SHADOW,
                     WEIR_OUTCOME_SHADOW);
    struct weir_algorithm_ask act = { .op = WEIR_ALGORITHM_TAKE, .weight = 1 };
    weir_table_shadow(t, 1, held, &act, false, later);
    struct weir_ref own;
    assert_true(weir_table_find(t, WEIR_TEXT("shadow:c/20"), &own));
    struct weir_slot_view view;
    weir_table_view(t, own.slot, &view, later);
    assert_int_equal(view.fill >> view.bucket.leak.frac, 1);
    assert_int_equal(passed_by(t, "shadow:rest"), 47 - 14);
    made_audit(t);
    free(t);
}

/* ---- Threads ---- */

struct crowd {
    struct weir_table *t;
    uint64_t taken; /* of "q", atomic */
    uint32_t stop;  /* atomic */
};

static void *take_all_the_time(void *argument)
{
    struct crowd *crowd = argument;
    struct weir_table *t = crowd->t;
    uint32_t stripe = weir_table_claim_stripe(t);
    struct weir_ref ref;
    assert_true(weir_table_find(t, WEIR_TEXT("q"), &ref));
    struct weir_rng rng = { stripe };
    while (!weir_load_relaxed(&crowd->stop)) {
        struct weir_algorithm_ask act = { .op = WEIR_ALGORITHM_TAKE,
                                          .weight = 1 };
        unsigned outcome = weir_table_take(t, stripe, ref, 1, NULL, MADE_AT);
        if (!(outcome & WEIR_OUTCOME_LIMITED))
            weir_fetch_add(&crowd->taken, 1);
        if (outcome & WEIR_OUTCOME_SHADOW)
            weir_table_shadow(t, stripe, ref, &act,
                              outcome & WEIR_OUTCOME_LIMITED, MADE_AT);
        char name[16];
        snprintf(name, sizeof name, "c/%u",
                 (unsigned)weir_rng_below(&rng, 100));
        struct weir_ref instance;
        if (weir_table_resolve(t, weir_text_of(name), false, &instance,
                               MADE_AT) > WEIR_RESOLVED_CHAIN) {
            weir_table_shadow_name(t, stripe, weir_text_of(name), &act,
                                   MADE_AT);
            continue;
        }
        outcome = weir_table_take(t, stripe, instance, 1, NULL, MADE_AT);
        if (outcome & WEIR_OUTCOME_SHADOW)
            weir_table_shadow(t, stripe, instance, &act, false, MADE_AT);
    }
    weir_table_release_stripe(t, stripe);
    return NULL;
}

/* The set comes and goes under load; the live counts stay exact, and a quota
 * that no caller asks for is never charged. */
static void test_sets_come_and_go_under_load(void **state)
{
    (void)state;
    struct crowd crowd = { .t = made_table(128, 8, 3) };
    struct weir_table *t = crowd.t;
    struct weir_quota quota = hard("q", NULL, 1000000000);
    struct weir_ref ref = made_put(t, &quota, MADE_AT);
    quota = hard("c/*", "q", 1000000000);
    quota.parent.len = 0;
    put(t, &quota, MADE_AT);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(
            pthread_create(&threads[i], NULL, take_all_the_time, &crowd), 0);
    static const char *const set[] = { "shadow:q", "shadow:c/*", "shadow:c/7",
                                       "shadow:stranger" };
    for (int i = 0; i < 1500; i++) {
        const char *name = set[i % 4];
        quota = hard(name, NULL, 1000000000);
        weir_table_put(t, &quota, MADE_AT);
        if (i % 3 == 0)
            weir_table_drop(t, weir_text_of(set[(i + 1) % 4]), MADE_AT);
        struct weir_ref stranger;
        if (i % 4 == 3 &&
            weir_table_find(t, WEIR_TEXT("shadow:stranger"), &stranger)) {
            struct weir_slot_view view;
            weir_table_view(t, stranger.slot, &view, MADE_AT);
            assert_true(view.fill == 0);
        }
    }
    weir_store_relaxed(&crowd.stop, 1);
    for (int i = 0; i < 3; i++)
        PATIENTLY(pthread_join(threads[i], NULL));
    assert_true(weir_table_count(t, ref.slot) == crowd.taken);
    made_audit(t);
    free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_sets_decide_as_if_alone),
        cmocka_unit_test(test_without_a_shadow_set_nothing_is_asked),
        cmocka_unit_test(test_a_larger_limit_is_seen_to_pass_more),
        cmocka_unit_test(test_templates_rule_their_own_set),
        cmocka_unit_test(test_names_that_live_has_not_count_there_too),
        cmocka_unit_test(test_shadow_slots_follow_edits),
        cmocka_unit_test(test_a_shadow_slot_that_was_evicted_is_made_again),
        cmocka_unit_test(test_refunds_are_right_in_the_mean),
        cmocka_unit_test(test_a_refund_reaches_a_chain_with_a_store),
        cmocka_unit_test(test_half_of_the_slots_are_kept_for_the_live_set),
        cmocka_unit_test(test_sets_come_and_go_under_load),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
