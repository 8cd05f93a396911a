/* SPDX-License-Identifier: MIT
 * test_table_names.c - which quota applies to a name, and which names get a
 * slot.
 *
 * Examples of every rule first; then random histories of puts, drops, pins and
 * takes, compared with a naive model, which searches all quotas each time, with
 * an audit of the table's lists after every step. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "core/quota/glob.h"
#include "core/table/table_index.h"
#include "table_calls.h"
#include "table_maker.h"

static struct weir_quota quota_of(const char *name, const char *parent)
{
    return made_quota_of(name, parent, 1000, 10);
}

static void put(struct weir_table *t, const char *name, const char *parent)
{
    struct weir_quota quota = quota_of(name, parent);
    assert_int_equal(weir_table_put(t, &quota, MADE_AT), WEIR_OK);
}

static enum weir_slot_state state_of(struct weir_table *t, uint32_t slot)
{
    struct weir_slot_view view;
    weir_table_view(t, slot, &view, MADE_AT);
    return view.state;
}

/* The slot of a name that must have a quota. */
static struct weir_ref resolve(struct weir_table *t, const char *name)
{
    struct weir_ref ref;
    assert_int_equal(
        weir_table_resolve(t, weir_text_of(name), false, &ref, MADE_AT),
        WEIR_RESOLVED);
    return ref;
}

static enum weir_resolved resolve_any(struct weir_table *t, const char *name,
                                      struct weir_ref *out)
{
    return weir_table_resolve(t, weir_text_of(name), false, out, MADE_AT);
}

static const char *name_of(struct weir_table *t, uint32_t slot)
{
    static char buf[4][WEIR_NAME_MAX + 1];
    static int turn;
    if (slot == WEIR_SLOT_NONE)
        return "";
    turn = (turn + 1) % 4;
    weir_table_name(t, slot, buf[turn]);
    return buf[turn];
}

static const char *parent_of(struct weir_table *t, const char *name)
{
    return name_of(t, weir_parent(weir_hot(t, resolve(t, name).slot)));
}

static const char *template_of(struct weir_table *t, const char *name)
{
    return name_of(t, weir_table_template_of(t, resolve(t, name).slot));
}

static unsigned take(struct weir_table *t, struct weir_ref ref, uint64_t weight,
                     weir_instant now)
{
    return weir_table_take(t, 0, ref, weight, NULL, now) &
           ~(unsigned)WEIR_OUTCOME_KICK;
}

/* As the sync does when every root has answered. */
static void settle(struct weir_table *t)
{
    uint64_t bits[64] = { 0 };
    assert_compare(weir_table_bits_words(t), <=, 64);
    weir_table_collect(t, bits);
    for (uint32_t slot = 0; slot < weir_table_used(t); slot++)
        weir_table_set_settled(t, slot, weir_table_count(t, slot));
}

static uint32_t evict_all(struct weir_table *t, weir_instant now)
{
    assert_true(weir_table_try_lock(t));
    uint32_t slots = weir_table_used(t);
    uint32_t freed = weir_table_evict(t, slots, slots, now);
    weir_table_unlock(t);
    made_audit(t);
    return freed;
}

/* ---- Templates ---- */

static void test_captures_make_parents(void **state)
{
    (void)state;
    struct weir_table *t = made_table(64, 2, 1);
    put(t, "s3_*_*", "bucket_{1}");
    put(t, "bucket_*", "site");
    put(t, "site", NULL);
    assert_string_equal(parent_of(t, "s3_photos_put"), "bucket_photos");
    assert_string_equal(parent_of(t, "bucket_photos"), "site");
    assert_string_equal(parent_of(t, "s3_photos_get"), "bucket_photos");
    assert_string_equal(template_of(t, "bucket_photos"), "bucket_*");
    made_audit(t);
    free(t);
}

static void test_exact_beats_template_and_order_rules(void **state)
{
    (void)state;
    struct weir_table *t = made_table(64, 2, 1);
    struct weir_quota late = quota_of("a*", NULL);
    late.order = 5;
    assert_int_equal(weir_table_put(t, &late, MADE_AT), WEIR_OK);
    assert_string_equal(template_of(t, "ab"), "a*");
    struct weir_quota early = quota_of("*b", NULL);
    early.order = 2;
    assert_int_equal(weir_table_put(t, &early, MADE_AT), WEIR_OK);
    assert_string_equal(template_of(t, "ab"), "*b");
    early.order = 9;
    assert_int_equal(weir_table_put(t, &early, MADE_AT), WEIR_OK);
    assert_string_equal(template_of(t, "ab"), "a*");
    put(t, "ab", NULL);
    assert_int_equal(state_of(t, resolve(t, "ab").slot), WEIR_SLOT_QUOTA);
    weir_table_drop(t, WEIR_TEXT("ab"), MADE_AT);
    weir_table_drop(t, WEIR_TEXT("a*"), MADE_AT);
    assert_string_equal(template_of(t, "ab"), "*b");
    weir_table_drop(t, WEIR_TEXT("*b"), MADE_AT);
    struct weir_ref ref;
    assert_int_equal(resolve_any(t, "ab", &ref), WEIR_RESOLVED_NONE);
    assert_int_equal(weir_table_live(t), 0);
    made_audit(t);
    free(t);
}

static void test_instances_follow_their_template(void **state)
{
    (void)state;
    struct weir_table *t = made_table(64, 2, 1);
    put(t, "u_*", "old");
    struct weir_ref ref = resolve(t, "u_1");
    assert_int_equal(take(t, ref, 7, MADE_AT), 0);
    struct weir_quota edited = made_quota_of("u_*", "new", 1000, 8);
    assert_int_equal(weir_table_put(t, &edited, MADE_AT), WEIR_OK);
    /* The same slot and fill, other bounds and parent. */
    struct weir_ref again = resolve(t, "u_1");
    assert_memory_equal(&ref, &again, sizeof(ref));
    assert_string_equal(parent_of(t, "u_1"), "new");
    assert_int_equal(take(t, ref, 2, MADE_AT), WEIR_OUTCOME_LIMITED);
    assert_int_equal(take(t, ref, 1, MADE_AT), 0);
    /* Another template under the same name begins them empty. */
    edited.created = 9;
    assert_int_equal(weir_table_put(t, &edited, MADE_AT), WEIR_OK);
    assert_int_equal(take(t, ref, 8, MADE_AT), 0);
    made_audit(t);
    free(t);
}

static void test_patterns_that_lead_back_end_the_chain(void **state)
{
    (void)state;
    struct weir_table *t = made_table(64, 2, 1);
    put(t, "a*", "a{1}");
    assert_string_equal(parent_of(t, "a1"), "");
    assert_int_equal(weir_table_live(t), 2);
    put(t, "b*", "c{1}");
    put(t, "c*", "b{1}");
    assert_string_equal(parent_of(t, "b1"), "c1");
    /* A re-rule finds both names present, and still makes no cycle. */
    put(t, "c*", "b{1}");
    put(t, "b*", "c{1}");
    bool up = strcmp(parent_of(t, "b1"), "c1") == 0;
    assert_string_equal(parent_of(t, up ? "c1" : "b1"), "");
    made_audit(t);
    free(t);
}

/* A row of a store that another program wrote. The limit holds once, also for a
 * handle that was opened before. */
static void test_a_quota_that_is_its_own_parent_has_none(void **state)
{
    (void)state;
    for (int pinned = 0; pinned < 2; pinned++) {
        struct weir_table *t = made_table(64, 2, 1);
        struct weir_quota own = made_quota_of("own", "own", 8, 8);
        struct weir_ref ref;
        if (pinned)
            assert_int_equal(weir_table_pin(t, WEIR_TEXT("own"), &ref, MADE_AT),
                             WEIR_RESOLVED);
        ref = made_put(t, &own, MADE_AT);
        assert_string_equal(parent_of(t, "own"), "");
        assert_int_equal(take(t, ref, 8, MADE_AT), 0);
        assert_int_equal(take(t, ref, 1, MADE_AT), WEIR_OUTCOME_LIMITED);
        made_audit(t);
        free(t);
    }
}

static void test_an_endless_pattern_ends_at_the_depth(void **state)
{
    (void)state;
    struct weir_table *t = made_table(64, 2, 1);
    put(t, "d*", "d{1}x");
    resolve(t, "d");
    assert_compare(weir_table_live(t), <=, 1 + WEIR_DEPTH_MAX);
    made_audit(t);
    free(t);
}

/* ---- Room ---- */

static void test_full_table_goes_to_overflow_or_chain(void **state)
{
    (void)state;
    struct weir_table *t = made_table(6, 2, 1);
    put(t, "spill", NULL);
    put(t, "site", NULL);
    struct weir_quota with = quota_of("o_*", "site");
    with.overflow = WEIR_TEXT("spill");
    assert_int_equal(weir_table_put(t, &with, MADE_AT), WEIR_OK);
    put(t, "c_*", "site");
    struct weir_ref ref, held;
    assert_int_equal(weir_table_pin(t, WEIR_TEXT("o_1"), &held, MADE_AT),
                     WEIR_RESOLVED);
    assert_int_equal(weir_table_pin(t, WEIR_TEXT("c_1"), &held, MADE_AT),
                     WEIR_RESOLVED);
    assert_int_equal(resolve_any(t, "o_2", &ref), WEIR_RESOLVED_FULL);
    assert_string_equal(name_of(t, ref.slot), "spill");
    assert_int_equal(resolve_any(t, "c_2", &ref), WEIR_RESOLVED_CHAIN);
    assert_string_equal(name_of(t, ref.slot), "site");
    assert_int_equal(resolve_any(t, "other", &ref), WEIR_RESOLVED_NONE);
    struct weir_quota more = quota_of("more", NULL);
    assert_int_equal(weir_table_put(t, &more, MADE_AT), WEIR_EFULL);
    made_audit(t);
    weir_table_unpin(t, held);
    settle(t);
    assert_int_equal(resolve_any(t, "o_2", &ref), WEIR_RESOLVED);
    made_audit(t);
    free(t);
}

/* A template without a limit refuses nothing, whatever there is room for. */
static void test_full_table_frees_what_nothing_limits(void **state)
{
    (void)state;
    struct weir_table *t = made_table(8, 2, 1);
    struct weir_ref ref, held;
    put(t, "site", NULL);
    put(t, "spill", NULL);
    struct weir_quota quota = quota_of("quiet", NULL);
    quota.mode = WEIR_SHADOW;
    assert_int_equal(weir_table_put(t, &quota, MADE_AT), WEIR_OK);
    quota = quota_of("s_*", NULL);
    quota.mode = WEIR_SHADOW;
    quota.overflow = WEIR_TEXT("spill");
    assert_int_equal(weir_table_put(t, &quota, MADE_AT), WEIR_OK);
    quota.name = WEIR_TEXT("q_*");
    quota.overflow = WEIR_TEXT("quiet");
    assert_int_equal(weir_table_put(t, &quota, MADE_AT), WEIR_OK);
    quota = quota_of("u_*", "site");
    quota.limit.unlimited = true;
    assert_int_equal(weir_table_put(t, &quota, MADE_AT), WEIR_OK);
    quota = quota_of("o_*", "c_{1}");
    quota.mode = WEIR_OFF;
    assert_int_equal(weir_table_put(t, &quota, MADE_AT), WEIR_OK);
    put(t, "c_*", NULL);
    assert_int_equal(weir_table_live(t), 8);
    assert_int_equal(resolve_any(t, "s_1", &ref), WEIR_RESOLVED_FREE);
    assert_int_equal(weir_table_pin(t, WEIR_TEXT("s_1"), &held, MADE_AT),
                     WEIR_RESOLVED_FREE);
    assert_int_equal(resolve_any(t, "q_1", &ref), WEIR_RESOLVED_FULL);
    assert_string_equal(name_of(t, ref.slot), "quiet");
    assert_int_equal(resolve_any(t, "u_1", &ref), WEIR_RESOLVED_FULL);
    assert_string_equal(name_of(t, ref.slot), "site");
    assert_int_equal(resolve_any(t, "c_1", &ref), WEIR_RESOLVED_LACKING);
    assert_int_equal(resolve_any(t, "o_1", &ref), WEIR_RESOLVED_LACKING);
    made_audit(t);
    free(t);
}

/* The slot being made isn't evicted for its own ancestors. */
static void test_an_instance_is_not_evicted_for_its_parent(void **state)
{
    (void)state;
    for (uint32_t slots = 3; slots < 9; slots++) {
        struct weir_table *t = made_table(slots, 2, slots);
        put(t, "a*", "b{1}");
        put(t, "b*", "site");
        for (int i = 0; i < 40; i++) {
            char name[16];
            snprintf(name, sizeof(name), "a%d", i % 7);
            struct weir_ref ref;
            if (resolve_any(t, name, &ref) == WEIR_RESOLVED)
                assert_string_equal(name_of(t, ref.slot), name);
            made_audit(t);
            put(t, "a*", i % 2 ? "b{1}" : "b{1}x");
            made_audit(t);
        }
        free(t);
    }
}

static void test_only_the_idle_are_evicted(void **state)
{
    (void)state;
    struct weir_table *t = made_table(8, 2, 1);
    put(t, "p_*", NULL);
    put(t, "i_*", "p_{1}");
    struct weir_ref pinned, fresh, limiting, old;
    assert_int_equal(weir_table_pin(t, WEIR_TEXT("p_pin"), &pinned, MADE_AT),
                     WEIR_RESOLVED);
    resolve(t, "i_kid"); /* p_kid has a child */
    limiting = resolve(t, "p_full");
    assert_int_equal(take(t, limiting, 10, MADE_AT), 0);
    fresh = resolve(t, "p_new");
    assert_int_equal(take(t, fresh, 1, MADE_AT), 0);
    old = resolve(t, "p_old");
    assert_int_equal(weir_table_live(t), 8);
    /* p_full and p_new are unsettled and marked; p_kid comes free with its
     * child. */
    assert_int_equal(evict_all(t, MADE_AT), 3);
    weir_instant later = MADE_AT + 2 * WEIR_MILLISECOND;
    assert_int_equal(evict_all(t, later), 0);
    settle(t);
    assert_int_equal(evict_all(t, MADE_AT), 0);
    /* 2 ms drain p_new and not p_full. */
    assert_int_equal(evict_all(t, later), 1);
    for (int i = 0; i < 40; i++) {
        char name[16];
        snprintf(name, sizeof(name), "p_%d", i);
        resolve(t, name);
    }
    assert_true(weir_table_find(t, WEIR_TEXT("p_pin"), &fresh));
    assert_memory_equal(&fresh, &pinned, sizeof(fresh));
    assert_true(weir_table_find(t, WEIR_TEXT("p_full"), &fresh));
    assert_memory_equal(&fresh, &limiting, sizeof(fresh));
    assert_false(weir_table_find(t, WEIR_TEXT("p_new"), &fresh));
    assert_false(weir_table_find(t, WEIR_TEXT("p_old"), &fresh));
    /* The old ref charges no slot. */
    for (int i = 0; i < 2; i++) {
        uint64_t before = weir_table_count(t, old.slot);
        assert_int_equal(take(t, old, 1, later), WEIR_OUTCOME_STALE_REF);
        assert_int_equal(weir_table_charge(t, 0, old, 1, later),
                         WEIR_OUTCOME_STALE_REF);
        assert_int_equal(weir_table_refund(t, 0, old, 1, later),
                         WEIR_OUTCOME_STALE_REF);
        struct weir_reply reply;
        assert_int_equal(weir_table_peek(t, 0, old, 1, &reply, later),
                         WEIR_OUTCOME_STALE_REF);
        assert_int_equal(weir_table_reserve(t, 0, old, 1, 0, &reply, later),
                         WEIR_OUTCOME_STALE_REF);
        assert_true(weir_table_count(t, old.slot) == before);
    }
    assert_int_equal(take(t, (struct weir_ref){ 0 }, 1, later),
                     WEIR_OUTCOME_STALE_REF);
    made_audit(t);
    free(t);
}

/* ---- Placeholders and handles ---- */

static void test_a_handle_outlives_its_quota(void **state)
{
    (void)state;
    struct weir_table *t = made_table(16, 2, 1);
    struct weir_ref held;
    struct weir_reply reply;
    assert_int_equal(weir_table_pin(t, WEIR_TEXT("late"), &held, MADE_AT),
                     WEIR_RESOLVED);
    assert_int_equal(weir_table_take(t, 0, held, 99, &reply, MADE_AT), 0);
    assert_true(reply.unknown);
    assert_true(weir_table_count(t, held.slot) == 0);
    put(t, "late", "top");
    assert_int_equal(take(t, held, 11, MADE_AT), WEIR_OUTCOME_LIMITED);
    assert_int_equal(weir_table_take(t, 0, held, 10, &reply, MADE_AT) &
                         WEIR_OUTCOME_LIMITED,
                     0);
    assert_false(reply.unknown);
    weir_table_drop(t, WEIR_TEXT("late"), MADE_AT);
    assert_int_equal(weir_table_take(t, 0, held, 99, &reply, MADE_AT), 0);
    assert_true(reply.unknown);
    assert_int_equal(weir_table_live(t), 1);
    put(t, "l*", NULL);
    assert_int_equal(state_of(t, held.slot), WEIR_SLOT_INSTANCE);
    assert_int_equal(take(t, held, 11, MADE_AT), WEIR_OUTCOME_LIMITED);
    weir_table_drop(t, WEIR_TEXT("l*"), MADE_AT);
    assert_int_equal(state_of(t, held.slot), WEIR_SLOT_PLACEHOLDER);
    weir_table_unpin(t, held);
    assert_int_equal(weir_table_live(t), 0);
    made_audit(t);
    free(t);
}

static void test_a_placeholder_nobody_pins_is_evicted(void **state)
{
    (void)state;
    struct weir_table *t = made_table(4, 2, 1);
    for (int i = 0; i < 50; i++) {
        char name[16];
        struct weir_ref ref;
        snprintf(name, sizeof(name), "n%d", i);
        assert_int_equal(
            weir_table_resolve(t, weir_text_of(name), true, &ref, MADE_AT),
            WEIR_RESOLVED);
        made_audit(t);
    }
    put(t, "quota", "parent");
    made_audit(t);
    free(t);
}

static void test_a_full_set_drops_the_rest(void **state)
{
    (void)state;
    struct weir_table *t = made_table(16, 2, 1);
    put(t, "stays", "both");
    put(t, "goes", "both");
    put(t, "both", NULL);
    put(t, "t*", NULL);
    struct weir_ref ref = resolve(t, "t1");
    weir_table_begin_full(t);
    put(t, "stays", NULL);
    put(t, "fresh", "stays");
    weir_table_end_full(t, MADE_AT);
    assert_int_equal(weir_table_live(t), 2);
    assert_false(weir_table_find(t, WEIR_TEXT("t1"), &ref));
    assert_string_equal(parent_of(t, "fresh"), "stays");
    made_audit(t);
    free(t);
}

/* ---- Names ---- */

static void test_long_names_and_no_more_chunks(void **state)
{
    (void)state;
    struct weir_table *t = made_table(64, 2, 1);
    char name[WEIR_NAME_MAX + 1];
    memset(name, 'n', sizeof(name) - 1);
    name[WEIR_NAME_MAX] = '\0';
    int made = 0;
    for (; made < 64; made++) {
        name[WEIR_NAME_MAX - 1] = (char)('0' + made);
        struct weir_quota quota = quota_of(name, NULL);
        int error = weir_table_put(t, &quota, MADE_AT);
        if (error == WEIR_EFULL)
            break;
        assert_int_equal(error, WEIR_OK);
        assert_string_equal(name_of(t, resolve(t, name).slot), name);
        made_audit(t);
    }
    /* 192 chunks, 9 per name. */
    assert_int_equal(made, 21);
    for (size_t len = 1; len <= 255; len++) {
        name[len] = '\0';
        struct weir_ref ref;
        bool there = weir_table_find(t, (struct weir_text){ name, len }, &ref);
        assert_false(there);
        name[len] = 'n';
        name[WEIR_NAME_MAX] = '\0';
    }
    assert_int_equal(weir_table_live(t), 21);
    put(t, "short", NULL);
    name[WEIR_NAME_MAX - 1] = '3';
    weir_table_drop(t, weir_text_of(name), MADE_AT);
    name[WEIR_NAME_MAX - 1] = 'z';
    put(t, name, NULL);
    made_audit(t);
    free(t);
}

/* As many names as slots, of every length, all found. */
static void test_index_holds_as_many_names_as_slots(void **state)
{
    (void)state;
    const uint32_t slots = 99991;
    struct weir_table *t = made_table(slots, 2, 7);
    char name[40];
    for (uint32_t i = 0; i < slots; i++) {
        snprintf(name, sizeof(name), "%.*s%u", (int)(i % 17),
                 "name/of/some/len", i);
        put(t, name, NULL);
    }
    assert_int_equal(weir_table_live(t), slots);
    for (uint32_t i = 0; i < slots; i++) {
        snprintf(name, sizeof(name), "%.*s%u", (int)(i % 17),
                 "name/of/some/len", i);
        struct weir_ref ref;
        assert_true(weir_table_find(t, weir_text_of(name), &ref));
        assert_int_equal(ref.slot, i);
    }
    free(t);
}

/* With this seed both buckets of the 97th name are full. */
static void test_index_splits_ahead_for_a_name(void **state)
{
    (void)state;
    struct weir_table *t = made_table(400, 1, 20802);
    char name[16];
    for (int i = 0; i < 256; i++) {
        snprintf(name, sizeof(name), "q%d", i);
        put(t, name, NULL);
        uint32_t usual = weir_name_index_buckets(i < 64 ? 64 : t->used);
        if (i <= 96)
            assert_int_equal(weir_name_index_count(t) > usual, i == 96);
    }
    assert_int_equal(weir_name_index_count(t), weir_name_index_buckets(256));
    made_audit(t);
    free(t);
}

/* A name may contain a '*' before it is defined. */
static void test_a_used_name_becomes_a_template(void **state)
{
    (void)state;
    struct weir_table *t = made_table(64, 1, 7);
    put(t, "*", "");
    assert_string_equal(template_of(t, "a*"), "*");
    put(t, "a*", "");
    made_audit(t);
    assert_string_equal(template_of(t, "ab"), "a*");
    assert_string_equal(template_of(t, "b"), "*");
    free(t);
}

/* With glob=path a '*' ends at '/', and a quota becomes a template and back by
 * its glob alone. */
static void test_globs_of_paths(void **state)
{
    (void)state;
    struct weir_table *t = made_table(64, 1, 7);
    struct weir_ref ref;
    put(t, "site", "");
    struct weir_quota path = quota_of("db/*", "site");
    path.glob = WEIR_GLOB_PATH;
    assert_int_equal(weir_table_put(t, &path, MADE_AT), WEIR_OK);
    assert_string_equal(template_of(t, "db/x"), "db/*");
    assert_string_equal(parent_of(t, "db/x"), "site");
    assert_int_equal(resolve_any(t, "db/x/y", &ref), WEIR_RESOLVED_NONE);
    path.glob = WEIR_GLOB_NAME;
    assert_int_equal(weir_table_put(t, &path, MADE_AT), WEIR_OK);
    assert_string_equal(template_of(t, "db/x/y"), "db/*");

    struct weir_quota either = quota_of("a[0-9]", "");
    either.glob = WEIR_GLOB_PATH;
    assert_int_equal(weir_table_put(t, &either, MADE_AT), WEIR_OK);
    assert_string_equal(template_of(t, "a7"), "a[0-9]");
    assert_int_equal(resolve_any(t, "ax", &ref), WEIR_RESOLVED_NONE);
    either.glob = WEIR_GLOB_NAME;
    assert_int_equal(weir_table_put(t, &either, MADE_AT), WEIR_OK);
    made_audit(t);
    assert_int_equal(state_of(t, resolve(t, "a[0-9]").slot), WEIR_SLOT_QUOTA);
    assert_int_equal(resolve_any(t, "a7", &ref), WEIR_RESOLVED_NONE);
    put(t, "child", "a[0-9]");
    either.glob = WEIR_GLOB_PATH;
    assert_int_equal(weir_table_put(t, &either, MADE_AT), WEIR_OK);
    made_audit(t);
    assert_string_equal(template_of(t, "a7"), "a[0-9]");
    weir_table_drop(t, either.name, MADE_AT);
    made_audit(t);
    assert_int_equal(resolve_any(t, "a8", &ref), WEIR_RESOLVED_NONE);
    free(t);
}

/* ---- Random histories ---- */

static const char *const universe[] = {
    "a",
    "b",
    "ab",
    "ba",
    "a/b",
    "b/a",
    "a/b/c",
    "x",
    "a_name_of_more_than_27",
    "a_name_that_is_longer_than_the_27_bytes_in_the_line",
    "b/b",
    "abab",
};
/* With glob=name the last three are quotas that no caller asks for. */
static const char *const globs[] = { "a*",  "*b", "*",      "a/*", "*/*",
                                     "b*a", "a?", "[ab]/*", "[^a]" };
static const char *const parents[] = { "",  "x",     "b",    "{1}", "p{1}",
                                       "a", "{1}/c", "b{1}", "ab" };
#define NAMES WEIR_COUNT_OF(universe)
#define GLOBS WEIR_COUNT_OF(globs)

struct known {
    bool defined;
    const char *parent;
    uint32_t order;
    uint64_t created;
    enum weir_glob glob;
};

struct naive {
    struct weir_table *table;
    struct weir_rng rng;
    struct known quota[NAMES];
    struct known template[GLOBS];
    struct weir_ref pins[NAMES];
    bool pinned[NAMES];
    uint64_t epoch;
    weir_instant now;
};

static const char *any_parent(struct weir_rng *rng, bool of_template)
{
    for (;;) {
        const char *parent =
            parents[weir_rng_below(rng, WEIR_COUNT_OF(parents))];
        if (of_template || !strchr(parent, '{'))
            return parent;
    }
}

static void naive_put(struct naive *n, const char *name, struct known *known,
                      bool template)
{
    struct weir_quota quota = quota_of(name, "");
    if (template && weir_rng_below(&n->rng, 2))
        quota.glob = WEIR_GLOB_PATH;
    known->glob = quota.glob;
    n->epoch++;
    if (!known->defined)
        known->created = n->epoch;
    known->defined = true;
    bool captures =
        quota.glob == WEIR_GLOB_NAME && weir_quota_is_template(&quota);
    known->parent = any_parent(&n->rng, captures);
    if (!template && strcmp(known->parent, name) == 0)
        known->parent = "";
    known->order = (uint32_t)weir_rng_below(&n->rng, 3);
    quota.parent = weir_text_of(known->parent);
    quota.order = known->order;
    quota.created = known->created;
    if (weir_quota_is_template(&quota) && weir_rng_below(&n->rng, 3) == 0)
        quota.overflow = WEIR_TEXT("x");
    if (weir_table_put(n->table, &quota, n->now) == WEIR_EFULL)
        known->defined = false;
    if (!known->defined)
        weir_table_drop(n->table, quota.name, n->now);
}

static void naive_pin(struct naive *n, size_t i)
{
    if (n->pinned[i]) {
        weir_table_unpin(n->table, n->pins[i]);
        n->pinned[i] = false;
        return;
    }
    n->pinned[i] = weir_table_pin(n->table, weir_text_of(universe[i]),
                                  &n->pins[i], n->now) <= WEIR_RESOLVED_CHAIN;
}

static void naive_step(struct naive *n)
{
    size_t i = weir_rng_below(&n->rng, NAMES);
    size_t g = weir_rng_below(&n->rng, GLOBS);
    struct weir_ref ref;
    switch (weir_rng_below(&n->rng, 10)) {
    case 0:
        naive_put(n, universe[i], &n->quota[i], false);
        break;
    case 1:
        naive_put(n, globs[g], &n->template[g], true);
        break;
    case 2:
        n->quota[i].defined = false;
        weir_table_drop(n->table, weir_text_of(universe[i]), n->now);
        break;
    case 3:
        n->template[g].defined = false;
        weir_table_drop(n->table, weir_text_of(globs[g]), n->now);
        break;
    case 4:
    case 5:
        naive_pin(n, i);
        break;
    case 6:
        settle(n->table);
        weir_table_sweep(n->table, 64, n->now);
        break;
    case 7:
        n->now += weir_rng_below(&n->rng, 20 * WEIR_MILLISECOND);
        break;
    default:
        if (weir_table_resolve(n->table, weir_text_of(universe[i]), false, &ref,
                               n->now) <= WEIR_RESOLVED_CHAIN)
            take(n->table, ref, weir_rng_below(&n->rng, 3), n->now);
        break;
    }
}

static int naive_template(const struct naive *n, const char *name)
{
    int best = -1;
    for (size_t g = 0; g < GLOBS; g++) {
        const struct known *k = &n->template[g];
        if (!k->defined || !weir_template_match(k->glob, weir_text_of(globs[g]),
                                                weir_text_of(name), NULL))
            continue;
        const struct known *b = best < 0 ? NULL : &n->template[best];
        if (!b || k->order < b->order ||
            (k->order == b->order &&
             weir_glob_compare(weir_text_of(globs[g]),
                               weir_text_of(globs[best])) < 0))
            best = (int)g;
    }
    return best;
}

/* Long names may use up the chunks before the slots, and patterns that lead on
 * without end all slots. */
static bool is_roomy(const struct naive *n)
{
    const struct weir_table *t = n->table;
    return t->slots > 1000 && weir_table_live(t) < t->slots &&
           t->chunk_used < t->chunk_count;
}

/* A name's quota must be the one that the model finds. */
static void naive_check(struct naive *n)
{
    for (size_t i = 0; i < NAMES; i++) {
        struct weir_ref ref;
        enum weir_resolved how = weir_table_resolve(
            n->table, weir_text_of(universe[i]), false, &ref, n->now);
        int g = naive_template(n, universe[i]);
        if (n->quota[i].defined) {
            assert_int_equal(how, WEIR_RESOLVED);
            assert_int_equal(state_of(n->table, ref.slot), WEIR_SLOT_QUOTA);
        } else if (g < 0) {
            assert_int_equal(how, WEIR_RESOLVED_NONE);
        } else if (how == WEIR_RESOLVED) {
            assert_string_equal(template_of(n->table, universe[i]), globs[g]);
        } else {
            assert_false(is_roomy(n));
        }
        if (how == WEIR_RESOLVED)
            assert_string_equal(name_of(n->table, ref.slot), universe[i]);
        struct weir_ref found;
        if (n->pinned[i] && is_roomy(n)) {
            assert_true(
                weir_table_find(n->table, weir_text_of(universe[i]), &found));
            assert_memory_equal(&found, &n->pins[i], sizeof(found));
        }
    }
}

static void naive_history(uint64_t seed, uint32_t slots)
{
    struct naive n = { .rng = { seed }, .now = MADE_AT };
    n.table = made_table(slots, 2, seed);
    for (int step = 0; step < 150; step++) {
        naive_step(&n);
        made_audit(n.table);
        naive_check(&n);
        made_audit(n.table);
    }
    for (size_t i = 0; i < NAMES; i++) {
        if (n.pinned[i])
            weir_table_unpin(n.table, n.pins[i]);
        weir_table_drop(n.table, weir_text_of(universe[i]), n.now);
    }
    for (size_t g = 0; g < GLOBS; g++)
        weir_table_drop(n.table, weir_text_of(globs[g]), n.now);
    /* Nothing leaks: all slots and chunks are free, once names that were
     * resolved and never pinned have been evicted. */
    for (int i = 0; i < 20; i++) {
        settle(n.table);
        evict_all(n.table, n.now + WEIR_SECOND);
    }
    assert_int_equal(weir_table_live(n.table), 0);
    free(n.table);
}

static void test_random_histories(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("random_histories");
    for (int i = 0; i < 150; i++) {
        uint64_t seed = i == 0 ? rng.state : weir_rng_next(&rng);
        naive_history(seed, i % 2 ? 2048 : 4 + (uint32_t)(seed % 30));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_captures_make_parents),
        cmocka_unit_test(test_exact_beats_template_and_order_rules),
        cmocka_unit_test(test_instances_follow_their_template),
        cmocka_unit_test(test_patterns_that_lead_back_end_the_chain),
        cmocka_unit_test(test_a_quota_that_is_its_own_parent_has_none),
        cmocka_unit_test(test_an_endless_pattern_ends_at_the_depth),
        cmocka_unit_test(test_full_table_goes_to_overflow_or_chain),
        cmocka_unit_test(test_full_table_frees_what_nothing_limits),
        cmocka_unit_test(test_an_instance_is_not_evicted_for_its_parent),
        cmocka_unit_test(test_only_the_idle_are_evicted),
        cmocka_unit_test(test_a_handle_outlives_its_quota),
        cmocka_unit_test(test_a_placeholder_nobody_pins_is_evicted),
        cmocka_unit_test(test_a_full_set_drops_the_rest),
        cmocka_unit_test(test_long_names_and_no_more_chunks),
        cmocka_unit_test(test_index_holds_as_many_names_as_slots),
        cmocka_unit_test(test_index_splits_ahead_for_a_name),
        cmocka_unit_test(test_a_used_name_becomes_a_template),
        cmocka_unit_test(test_globs_of_paths),
        cmocka_unit_test(test_random_histories),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
