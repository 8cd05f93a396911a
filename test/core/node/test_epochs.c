/* SPDX-License-Identifier: MIT
 * test/core/node/test_epochs.c - the quotas of a limiter when its root has
 * others: the root is behind by a snapshot, restored from a backup, or has more
 * than there is room for. Roots and one limiter, pumped by hand. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "core/node/limiter_internal.h"
#include "core/node/root.h"
#include "core/quota/quota_feature.h"
#include "io/clock.h"
#include "table_calls.h"
#include "table_maker.h"

#define STEP (100 * WEIR_MILLISECOND)
#define SEEDS 50
#define LINKS 2 /* of the limiter; the second leads to another root */

static const struct weir_store_id store = { .uuid = { 1 } };
static const struct weir_settings settings = {
    .report_interval = WEIR_SECOND,
    .stale_after = 3 * WEIR_SECOND,
    .slack = true,
};

struct pair {
    struct weir_root *roots[LINKS];
    struct weir_table *table;
    struct weir_limiter *limiter;
    weir_instant now;
    uint64_t quotas;     /* changes that were sent down */
    struct weir_rng rng; /* draws the link that brings the next message */
    const char *stays;   /* a quota that must stay once there; NULL: none */
    bool there;
    bool complete; /* it is there when the limiter has the whole set */
    bool may_drop; /* the limiter may drop links; they come back at the next
                     * full second */
    bool dropped[LINKS];
};

static unsigned has(const struct pair *p, const char *name)
{
    struct weir_ref ref;
    return weir_table_find(p->table, weir_text_of(name), &ref);
}

/* ---- The pump ---- */

static bool say_up(struct pair *p)
{
    struct weir_message message;
    uint32_t link;
    if (!weir_limiter_next(p->limiter, &link, &message, p->now))
        return false;
    int error = weir_root_receive(p->roots[link], 0, &message, p->now);
    assert_int_equal(error, 0);
    return true;
}

static void set_link(struct pair *p, uint32_t link, bool up)
{
    weir_limiter_link(p->limiter, link, up, p->now);
    weir_root_link(p->roots[link], 0, up, p->now);
    p->dropped[link] = false;
}

static bool say_down(struct pair *p, uint32_t link)
{
    struct weir_message message;
    uint32_t peer;
    if (!p->roots[link] ||
        !weir_root_next(p->roots[link], &peer, &message, p->now))
        return false;
    if (message.type == WEIR_MESSAGE_QUOTAS)
        p->quotas += message.quotas.count;
    int error = weir_limiter_receive(p->limiter, link, &message, p->now);
    if (error == WEIR_EPROTOCOL && p->may_drop) {
        set_link(p, link, false);
        p->dropped[link] = true;
        return true;
    }
    assert_int_equal(error, 0);
    if (p->stays) {
        bool must = p->there || (p->complete && weir_limiter_ready(p->limiter));
        p->there = has(p, p->stays);
        assert_true(p->there || !must);
    }
    return true;
}

static void run(struct pair *p, weir_duration span)
{
    weir_instant end = p->now + span;
    while (p->now < end) {
        p->now += STEP;
        weir_limiter_tick(p->limiter, p->now);
        for (uint32_t i = 0; i < LINKS; i++)
            if (p->dropped[i] && p->now % WEIR_SECOND < STEP)
                set_link(p, i, true);
        for (uint32_t i = 0; i < LINKS; i++)
            if (p->roots[i])
                weir_root_tick(p->roots[i], p->now);
        uint32_t link;
        do
            link = (uint32_t)weir_rng_below(&p->rng, LINKS);
        while (say_up(p) || say_down(p, link) || say_down(p, !link));
    }
}

/* ---- Roots ---- */

static void apply_since(struct pair *p, uint32_t link, unsigned number,
                        bool removed, uint64_t created, uint64_t epoch)
{
    char name[24];
    snprintf(name, sizeof(name), "q%u", number);
    struct weir_change change = { .removed = removed };
    change.quota = made_quota_of(name, "", 1000, 1000);
    change.quota.epoch = epoch;
    change.quota.created = created;
    assert_int_equal(weir_root_apply(p->roots[link], &change, p->now), 0);
}

static void apply(struct pair *p, uint32_t link, unsigned number, bool removed,
                  uint64_t epoch)
{
    apply_since(p, link, number, removed, epoch, epoch);
}

/* Each edit has one quota: q1 the first. */
static void read_store(struct pair *p, uint32_t link, uint64_t from,
                       uint64_t to)
{
    struct weir_root *root = p->roots[link];
    assert_int_equal(weir_root_store(root, &store, to, 0, p->now), 0);
    for (uint64_t epoch = from + 1; epoch <= to; epoch++)
        apply(p, link, (unsigned)epoch, false, epoch);
    weir_root_settle(root, p->now);
}

/* Starts a root, with the quotas up to an epoch. */
static void start(struct pair *p, uint32_t link, uint64_t epoch,
                  bool provisional)
{
    struct weir_root_options options = { .mem = weir_mem_system,
                                         .peers_max = 1,
                                         .settings = settings };
    options.incarnation[0] = (uint8_t)(p->now / STEP);
    options.incarnation[1] = (uint8_t)link;
    p->roots[link] = weir_root_new(&options, p->now);
    weir_root_set_provisional(p->roots[link], provisional);
    read_store(p, link, 0, epoch);
    weir_root_link(p->roots[link], 0, true, p->now);
    weir_limiter_link(p->limiter, link, true, p->now);
}

static void kill(struct pair *p, uint32_t link)
{
    weir_limiter_link(p->limiter, link, false, p->now);
    weir_root_free(p->roots[link]);
    p->roots[link] = NULL;
}

/* ---- The limiter ---- */

static void make_old(struct pair *p, uint32_t slots, uint64_t features)
{
    *p = (struct pair){ .table = made_table(slots, 1, 1), .now = MADE_AT };
    struct weir_limiter_options options = { .table = p->table,
                                            .slots = slots,
                                            .links = LINKS,
                                            .seed = 1,
                                            .features = features };
    void *block =
        aligned_alloc(64, (weir_limiter_size(&options) + 63) / 64 * 64);
    memset(block, 0, weir_limiter_size(&options));
    p->limiter = weir_limiter_init(block, &options, p->now);
}

static void make(struct pair *p, uint32_t slots)
{
    make_old(p, slots, 0);
}

static void finish(struct pair *p)
{
    made_audit(p->table);
    for (uint32_t i = 0; i < LINKS; i++)
        weir_root_free(p->roots[i]);
    free(p->limiter);
    free(p->table);
}

/* Bit map of q1 .. q9. */
static unsigned quotas_of(const struct pair *p)
{
    unsigned bits = 0;
    for (unsigned i = 1; i <= 9; i++) {
        char name[] = { 'q', (char)('0' + i), '\0' };
        bits |= has(p, name) << i;
    }
    return bits;
}

/* ---- A root behind its store ---- */

static void test_a_snapshot_drops_no_quota(void **state)
{
    (void)state;
    struct pair p;
    make(&p, 32);
    start(&p, 0, 5, false);
    run(&p, 3 * WEIR_SECOND);
    assert_int_equal(quotas_of(&p), 0x3e);
    kill(&p, 0);
    p.quotas = 0;
    start(&p, 0, 3, true);
    /* For as long as the store is unreachable. */
    for (int i = 0; i < 100; i++) {
        run(&p, WEIR_SECOND);
        assert_int_equal(quotas_of(&p), 0x3e);
        assert_int_equal(weir_limiter_epoch(p.limiter), 5);
    }
    /* The store is reachable, with one more edit. */
    read_store(&p, 0, 3, 6);
    weir_root_set_provisional(p.roots[0], false);
    run(&p, 3 * WEIR_SECOND);
    assert_int_equal(quotas_of(&p), 0x7e);
    assert_int_equal(weir_limiter_epoch(p.limiter), 6);
    assert_int_equal(p.quotas, 1);
    finish(&p);
}

/* The store that is reachable then is older than the limiter's set. */
static void test_a_backup_behind_a_snapshot(void **state)
{
    (void)state;
    struct pair p;
    make(&p, 32);
    start(&p, 0, 5, false);
    run(&p, 3 * WEIR_SECOND);
    kill(&p, 0);
    start(&p, 0, 3, true);
    run(&p, 3 * WEIR_SECOND);
    assert_int_equal(quotas_of(&p), 0x3e);
    read_store(&p, 0, 3, 4);
    weir_root_set_provisional(p.roots[0], false);
    run(&p, 6 * WEIR_SECOND);
    assert_int_equal(quotas_of(&p), 0x1e);
    assert_int_equal(weir_limiter_epoch(p.limiter), 4);
    finish(&p);
}

/* The network delivers the welcome twice, the second time after an edit: it is
 * outdated, and no backup was restored. */
static void test_a_welcome_come_late_is_no_backup(void **state)
{
    (void)state;
    struct pair p;
    make(&p, 32);
    start(&p, 0, 3, false);
    struct weir_message welcome;
    uint32_t peer;
    assert_true(say_up(&p));
    p.now += STEP;
    assert_true(weir_root_next(p.roots[0], &peer, &welcome, p.now));
    assert_int_equal(welcome.type, WEIR_MESSAGE_WELCOME);
    assert_int_equal(weir_limiter_receive(p.limiter, 0, &welcome, p.now), 0);
    run(&p, 3 * WEIR_SECOND);
    assert_int_equal(weir_limiter_epoch(p.limiter), 3);
    apply(&p, 0, 4, false, 4);
    weir_root_settle(p.roots[0], p.now);
    run(&p, 3 * WEIR_SECOND);
    assert_int_equal(weir_limiter_epoch(p.limiter), 4);
    p.quotas = 0;
    assert_int_equal(weir_limiter_receive(p.limiter, 0, &welcome, p.now), 0);
    assert_int_equal(weir_limiter_epoch(p.limiter), 4);
    run(&p, 3 * WEIR_SECOND);
    assert_int_equal(p.quotas, 0);
    assert_int_equal(quotas_of(&p), 0x1e);
    finish(&p);
}

/* A root that stays behind for a minute has a store that was restored while it
 * was away. */
static void test_who_stays_ahead_is_told_anew(void **state)
{
    (void)state;
    struct pair p;
    make(&p, 32);
    start(&p, 0, 5, false);
    run(&p, 3 * WEIR_SECOND);
    kill(&p, 0);
    start(&p, 1, 3, false);
    run(&p, 3 * WEIR_SECOND);
    /* Another root might just have had the edit earlier. */
    assert_int_equal(quotas_of(&p), 0x3e);
    run(&p, 60 * WEIR_SECOND);
    assert_int_equal(quotas_of(&p), 0xe);
    assert_int_equal(weir_limiter_epoch(p.limiter), 3);
    finish(&p);
}

static void test_who_is_ahead_by_another_root_stays(void **state)
{
    (void)state;
    struct pair p;
    make(&p, 32);
    start(&p, 0, 5, false);
    start(&p, 1, 3, false);
    run(&p, 10 * WEIR_SECOND);
    assert_int_equal(quotas_of(&p), 0x3e);
    read_store(&p, 1, 3, 5);
    run(&p, 100 * WEIR_SECOND);
    assert_int_equal(quotas_of(&p), 0x3e);
    finish(&p);
}

/* Both roots had the edits 1 .. 5, of which the store lost 3 .. 5. One root has
 * read it anew, under another identity and with other edits; the other one
 * can't read it. The limiter goes by the first, and takes none of the lost
 * edits from the second, which then reads the store too. */
static void test_a_history_that_was_replaced(void **state)
{
    (void)state;
    const struct weir_store_id restored = { .uuid = { 1 }, .restores = 1 };
    struct pair p;
    make(&p, 32);
    start(&p, 0, 5, false);
    start(&p, 1, 5, false);
    run(&p, 3 * WEIR_SECOND);
    assert_int_equal(quotas_of(&p), 0x3e);
    weir_root_set_provisional(p.roots[0], true);
    p.may_drop = true;
    for (uint32_t link = 2; link-- > 0;) {
        struct weir_root *root = p.roots[link];
        assert_int_equal(weir_root_store(root, &restored, 4, 0, p.now), 0);
        for (unsigned epoch = 1; epoch <= 4; epoch++)
            apply(&p, link, epoch <= 2 ? epoch : epoch + 4, false, epoch);
        weir_root_settle(root, p.now);
        weir_root_set_provisional(root, false);
        run(&p, 20 * WEIR_SECOND);
        assert_int_equal(quotas_of(&p), 0x186);
        assert_int_equal(weir_limiter_epoch(p.limiter), 4);
    }
    p.may_drop = false;
    run(&p, 10 * WEIR_SECOND);
    for (uint32_t link = 0; link < LINKS; link++)
        assert_int_equal(p.limiter->link[link].state, LINK_UP);
    finish(&p);
}

/* Sets q1 to be leased, which the limiter doesn't understand, or not. */
static void edit_sharing(struct pair *p, bool leased, uint64_t epoch)
{
    struct weir_change change = { .quota =
                                      made_quota_of("q1", "", 1000, 1000) };
    change.quota.sharing = leased ? WEIR_LEASED : WEIR_COUNTED;
    change.quota.epoch = epoch;
    change.quota.created = 1;
    assert_int_equal(weir_root_apply(p->roots[0], &change, p->now), 0);
    weir_root_settle(p->roots[0], p->now);
    run(p, 3 * WEIR_SECOND);
    assert_int_equal(weir_limiter_epoch(p->limiter), epoch);
}

/* A limiter of an older version is sent all other quotas, and the one that it
 * doesn't understand is unknown to it for as long as that lasts. */
static void test_a_limiter_that_is_older(void **state)
{
    (void)state;
    struct pair p;
    struct weir_withheld withheld;
    make_old(&p, 32, WEIR_FEATURES_ALL & ~(1ull << WEIR_FEATURE_LEASED));
    start(&p, 0, 3, false);
    run(&p, 3 * WEIR_SECOND);
    assert_int_equal(quotas_of(&p), 0xe);
    assert_false(weir_root_new_withheld(p.roots[0], &withheld));
    edit_sharing(&p, true, 4);
    assert_int_equal(quotas_of(&p), 0xc);
    assert_true(weir_root_new_withheld(p.roots[0], &withheld));
    assert_string_equal(withheld.feature, "sharing: leased");
    apply(&p, 0, 4, false, 5);
    weir_root_settle(p.roots[0], p.now);
    run(&p, 3 * WEIR_SECOND);
    assert_int_equal(quotas_of(&p), 0x1c);
    edit_sharing(&p, false, 6);
    assert_int_equal(quotas_of(&p), 0x1e);
    edit_sharing(&p, true, 7);
    assert_int_equal(quotas_of(&p), 0x1c);
    /* Each limiter and feature once. */
    assert_false(weir_root_new_withheld(p.roots[0], &withheld));
    struct weir_root_stats stats;
    weir_root_stats(p.roots[0], &stats);
    assert_int_equal(stats.withheld, 2);
    finish(&p);
}

/* The same limiter, started again by its snapshot as a newer version: it has
 * the epoch of the quota that was withheld, and yet gets it. */
static void test_a_limiter_that_was_upgraded(void **state)
{
    (void)state;
    for (int upgraded = 0; upgraded < 2; upgraded++) {
        struct pair p;
        uint64_t before = upgraded ? 1ull << WEIR_FEATURE_LEASED : 0;
        struct weir_change kept = { .quota = made_quota_of("q2", "", 9, 9) };
        kept.quota.epoch = kept.quota.created = 2;
        make(&p, 32);
        assert_int_equal(weir_limiter_restore(p.limiter, &store, p.now), 0);
        assert_int_equal(weir_limiter_apply(p.limiter, &kept, p.now), 0);
        assert_int_equal(weir_limiter_restored(
                             p.limiter, 3, WEIR_FEATURES_ALL & ~before, p.now),
                         0);
        assert_true(weir_limiter_ready(p.limiter));
        start(&p, 0, 3, false);
        run(&p, 3 * WEIR_SECOND);
        assert_int_equal(quotas_of(&p), upgraded ? 0xe : 0x4);
        assert_int_equal(weir_limiter_epoch(p.limiter), 3);
        finish(&p);
    }
}

/* The number of units, of 'units', that pass. */
static unsigned take(struct pair *p, const char *name, unsigned units)
{
    struct weir_ref ref;
    assert_true(weir_table_find(p->table, weir_text_of(name), &ref));
    unsigned passed = 0;
    for (unsigned i = 0; i < units; i++)
        passed += !(weir_table_take(p->table, 0, ref, 1, NULL, p->now) &
                    WEIR_OUTCOME_LIMITED);
    return passed;
}

/* Without a root everything passes, by on_stale. That is no debt, though the
 * root that comes back doesn't know its fill. */
static void test_what_passed_by_open_is_no_debt(void **state)
{
    (void)state;
    struct pair p;
    make(&p, 32);
    start(&p, 0, 5, false);
    run(&p, 3 * WEIR_SECOND);
    kill(&p, 0);
    run(&p, 5 * WEIR_SECOND);
    assert_int_equal(take(&p, "q5", 20000), 20000);
    start(&p, 0, 4, true);
    run(&p, WEIR_SECOND);
    for (int second = 0; second < 5; second++) {
        run(&p, WEIR_SECOND);
        assert_in_range(take(&p, "q5", 5000), 900, 1100);
    }
    finish(&p);
}

/* Units charged meanwhile are a debt: no decision let them pass. */
static void test_what_was_charged_is_a_debt(void **state)
{
    (void)state;
    struct pair p;
    struct weir_ref ref;
    make(&p, 32);
    start(&p, 0, 5, false);
    run(&p, 3 * WEIR_SECOND);
    assert_true(weir_table_find(p.table, WEIR_TEXT("q5"), &ref));
    kill(&p, 0);
    run(&p, 5 * WEIR_SECOND);
    assert_int_equal(take(&p, "q5", 10000), 10000);
    weir_table_charge(p.table, 0, ref, 4000, p.now);
    assert_int_equal(take(&p, "q5", 10000), 10000);
    start(&p, 0, 4, true);
    run(&p, WEIR_SECOND);
    for (int second = 0; second < 3; second++) {
        assert_int_equal(take(&p, "q5", 5000), 0);
        run(&p, WEIR_SECOND);
    }
    run(&p, WEIR_SECOND);
    assert_in_range(take(&p, "q5", 5000), 900, 1100);
    finish(&p);
}

/* A limiter without quotas meets two roots at once. The one that is an edit
 * behind sends the whole set that it was asked for: this must not drop quotas
 * that the limiter has from the other one by then. */
static void test_who_lags_drops_no_quota(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        struct pair p;
        make(&p, 32);
        p.rng.state = seed;
        start(&p, 0, 5, false);
        start(&p, 1, 4, false);
        p.stays = "q5";
        run(&p, STEP);
        assert_int_equal(quotas_of(&p), 0x3e);
        run(&p, 3 * WEIR_SECOND);
        assert_int_equal(weir_limiter_epoch(p.limiter), 5);
        finish(&p);
    }
}

/* ---- Whole sets ---- */

/* One of two roots is an edit ahead, by which a quota has moved to the end. The
 * limiter has received part of the other's set, beyond that quota's old place,
 * and goes on with either. */
static void test_two_whole_sets_at_a_time(void **state)
{
    (void)state;
    enum { MANY = 3 * WEIR_QUOTAS_MAX, EDITED = WEIR_QUOTAS_MAX / 2 };
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        struct pair p;
        char name[24];
        make(&p, 2 * MANY);
        p.rng.state = seed;
        snprintf(name, sizeof(name), "q%d", EDITED);
        p.stays = name;
        p.complete = true;
        start(&p, 0, MANY, false);
        start(&p, 1, MANY, false);
        apply(&p, 1, EDITED, false, MANY + 1);
        weir_root_settle(p.roots[1], p.now);
        run(&p, 3 * WEIR_SECOND);
        assert_int_equal(weir_limiter_epoch(p.limiter), MANY + 1);
        assert_int_equal(quotas_of(&p), 0x3fe);
        finish(&p);
    }
}

/* The same, and the root ahead dies with its edit before the set is complete.
 * The quota that was skipped because of that edit must then come from the other
 * root, which is there or comes later. */
static void test_who_led_a_whole_set_dies(void **state)
{
    (void)state;
    enum { MANY = 3 * WEIR_QUOTAS_MAX, EDITED = WEIR_QUOTAS_MAX / 2 };
    unsigned midst = 0;
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        struct pair p;
        char name[24];
        make(&p, 2 * MANY);
        p.rng.state = seed;
        snprintf(name, sizeof(name), "q%d", EDITED);
        p.stays = name;
        p.complete = true;
        bool later = weir_rng_below(&p.rng, 2);
        if (!later)
            start(&p, 0, MANY, false);
        start(&p, 1, MANY, false);
        apply(&p, 1, EDITED, false, MANY + 1);
        weir_root_settle(p.roots[1], p.now);
        for (uint64_t said = 4 + weir_rng_below(&p.rng, 8); said > 0; said--)
            if (!say_up(&p) &&
                !say_down(&p, (uint32_t)weir_rng_below(&p.rng, LINKS)))
                say_down(&p, 1);
        uint64_t had = weir_limiter_epoch(p.limiter);
        midst += had > 0 && had < MANY;
        kill(&p, 1);
        if (later)
            start(&p, 0, MANY, false);
        run(&p, 10 * WEIR_SECOND);
        assert_true(weir_limiter_ready(p.limiter));
        assert_in_range(weir_limiter_epoch(p.limiter), MANY, MANY + 1);
        assert_true(has(&p, name));
        assert_int_equal(quotas_of(&p), 0x3fe);
        finish(&p);
    }
    assert_compare(midst, >, SEEDS / 4);
}

/* The store has forgotten the removals up to 'epoch': the root begins anew. */
static void read_anew(struct pair *p, uint32_t link, uint64_t epoch)
{
    static const struct weir_store_id none;
    struct weir_root *root = p->roots[link];
    assert_int_equal(weir_root_store(root, &none, 0, 0, p->now), 0);
    assert_int_equal(weir_root_store(root, &store, epoch, epoch, p->now), 0);
    apply(p, link, (unsigned)epoch, false, epoch);
    weir_root_settle(root, p->now);
}

static void test_a_session_has_many_whole_sets(void **state)
{
    (void)state;
    struct pair p;
    make(&p, 32);
    start(&p, 0, 5, false);
    run(&p, 3 * WEIR_SECOND);
    assert_int_equal(quotas_of(&p), 0x3e);
    for (unsigned epoch = 6; epoch <= 9; epoch++) {
        read_anew(&p, 0, epoch);
        run(&p, 3 * WEIR_SECOND);
        assert_int_equal(quotas_of(&p), 1u << epoch);
        assert_int_equal(weir_limiter_epoch(p.limiter), epoch);
    }
    finish(&p);
}

/* The root forgets removals before a slow link has delivered them. */
static void test_removals_forgotten_on_the_way(void **state)
{
    (void)state;
    struct pair p;
    make(&p, 32);
    start(&p, 0, 5, false);
    run(&p, 3 * WEIR_SECOND);
    weir_root_pause(p.roots[0], 0, true);
    apply(&p, 0, 1, true, 6);
    for (unsigned i = 0; i < WEIR_TOMBSTONES_MAX; i++)
        apply(&p, 0, 10 + i, true, 7 + i);
    weir_root_settle(p.roots[0], p.now);
    weir_root_pause(p.roots[0], 0, false);
    run(&p, 3 * WEIR_SECOND);
    assert_int_equal(quotas_of(&p), 0x3c);
    assert_int_equal(weir_limiter_epoch(p.limiter), 6 + WEIR_TOMBSTONES_MAX);
    finish(&p);
}

/* A root has sent a whole set in this session; another root knew a later epoch
 * of its store than it reached. */
static void test_who_is_ahead_after_a_whole_set(void **state)
{
    (void)state;
    struct pair p;
    make(&p, 32);
    start(&p, 0, 3, false);
    run(&p, 3 * WEIR_SECOND);
    for (unsigned i = 0; i < 2; i++) {
        start(&p, 1, 5, false);
        run(&p, 3 * WEIR_SECOND);
        assert_int_equal(quotas_of(&p), 0x3e);
        kill(&p, 1);
        run(&p, 120 * WEIR_SECOND);
        assert_int_equal(quotas_of(&p), 0xe);
        assert_int_equal(weir_limiter_epoch(p.limiter), 3);
    }
    finish(&p);
}

/* Two roots that disagree send whole sets less and less often. */
static void test_roots_that_disagree(void **state)
{
    (void)state;
    struct pair p;
    make(&p, 32);
    start(&p, 0, 3, false);
    start(&p, 1, 5, false);
    run(&p, 3 * WEIR_SECOND);
    p.quotas = 0;
    run(&p, 3600 * WEIR_SECOND);
    assert_in_range(p.quotas, 1, 8 * (3 + 5));
    finish(&p);
}

/* ---- Time ---- */

/* A clock that steps back a little doesn't make the last message look old. */
static void test_a_clock_steps_back(void **state)
{
    (void)state;
    struct pair p;
    make(&p, 32);
    start(&p, 0, 5, false);
    run(&p, 3 * WEIR_SECOND);
    p.now += 2 * WEIR_SECOND;
    weir_root_link(p.roots[0], 0, true, p.now);
    weir_limiter_link(p.limiter, 0, true, p.now);
    while (say_up(&p) || say_down(&p, 0))
        ;
    weir_limiter_tick(p.limiter, p.now - WEIR_MILLISECOND);
    assert_false(weir_table_is_stale(p.table));
    /* The link had a message just now, and goes: its epoch is remembered for a
     * minute. */
    weir_root_link(p.roots[0], 0, false, p.now);
    weir_root_tick(p.roots[0], p.now - WEIR_MILLISECOND);
    struct weir_limiter_usage usage;
    size_t cursor = 0;
    assert_true(weir_root_limiter_usage(p.roots[0], &cursor, &usage, p.now));
    finish(&p);
}

/* ---- A table that is full ---- */

static uint64_t epoch_at_root(struct pair *p)
{
    struct weir_limiter_usage usage;
    size_t cursor = 0;
    assert_true(weir_root_limiter_usage(p->roots[0], &cursor, &usage, p->now));
    return usage.epoch;
}

/* An edit that replaces one set by another, and there is no room for both. */
static void test_a_set_takes_the_place_of_another(void **state)
{
    (void)state;
    struct pair p;
    make(&p, 4);
    start(&p, 0, 4, false);
    run(&p, 3 * WEIR_SECOND);
    assert_int_equal(quotas_of(&p), 0x1e);
    for (unsigned i = 5; i <= 8; i++)
        apply(&p, 0, i, false, i);
    for (unsigned i = 1; i <= 4; i++)
        apply(&p, 0, i, true, 8 + i);
    weir_root_settle(p.roots[0], p.now);
    run(&p, WEIR_SECOND);
    assert_int_equal(quotas_of(&p), 0x1e0);
    assert_int_equal(weir_limiter_epoch(p.limiter), 12);
    finish(&p);
}

/* A quota that found no room is not sent again until there is some; later
 * quotas are in force meanwhile. */
static void test_what_finds_no_room_waits_for_it(void **state)
{
    (void)state;
    struct pair p;
    make(&p, 4);
    start(&p, 0, 6, false);
    run(&p, 3 * WEIR_SECOND);
    assert_int_equal(quotas_of(&p), 0x1e);
    assert_int_equal(epoch_at_root(&p), 4);
    assert_int_equal(p.quotas, 6);
    run(&p, 300 * WEIR_SECOND);
    assert_int_equal(p.quotas, 6);
    assert_int_equal(epoch_at_root(&p), 4);
    apply(&p, 0, 2, true, 7);
    weir_root_settle(p.roots[0], p.now);
    run(&p, 3 * WEIR_SECOND);
    assert_int_equal(quotas_of(&p), 0x3a);
    assert_int_equal(epoch_at_root(&p), 5);
    run(&p, 300 * WEIR_SECOND);
    /* The removal, and everything from q5 on once more. */
    assert_int_equal(p.quotas, 6 + 1 + 3);
    apply(&p, 0, 1, true, 8);
    weir_root_settle(p.roots[0], p.now);
    run(&p, 3 * WEIR_SECOND);
    assert_int_equal(quotas_of(&p), 0x78);
    assert_int_equal(epoch_at_root(&p), 8);
    finish(&p);
}

/* The missing quota is removed: this frees no slot, and none is needed. */
static void test_what_finds_no_room_is_removed(void **state)
{
    (void)state;
    struct pair p;
    make(&p, 4);
    start(&p, 0, 5, false);
    run(&p, 3 * WEIR_SECOND);
    assert_int_equal(epoch_at_root(&p), 4);
    assert_int_equal(p.limiter->epoch, 5);
    apply(&p, 0, 5, true, 6);
    weir_root_settle(p.roots[0], p.now);
    run(&p, 3 * WEIR_SECOND);
    assert_int_equal(epoch_at_root(&p), 6);
    assert_int_equal(quotas_of(&p), 0x1e);
    run(&p, 300 * WEIR_SECOND);
    assert_int_equal(p.quotas, 5 + 1 + 1);
    finish(&p);
}

/* An edit of a quota that is here begins no round. */
static void test_no_room_in_spite_of_an_edit(void **state)
{
    (void)state;
    struct pair p;
    make(&p, 4);
    start(&p, 0, 5, false);
    run(&p, 3 * WEIR_SECOND);
    apply(&p, 0, 1, false, 6);
    weir_root_settle(p.roots[0], p.now);
    run(&p, 600 * WEIR_SECOND);
    assert_int_equal(epoch_at_root(&p), 4);
    assert_int_equal(p.limiter->epoch, 6);
    assert_int_equal(p.quotas, 5 + 1);
    finish(&p);
}

/* They are reported once a round, not one by one. */
static void test_many_find_no_room(void **state)
{
    (void)state;
    struct pair p;
    struct weir_event event;
    make(&p, 4);
    start(&p, 0, 60, false);
    run(&p, 3 * WEIR_SECOND);
    uint64_t told = 0;
    while (weir_limiter_event(p.limiter, &event)) {
        assert_int_not_equal(event.type, WEIR_EVENT_LOST);
        if (event.type != WEIR_EVENT_TABLE_FULL)
            continue;
        assert_string_equal(event.text, "q5");
        assert_int_equal(event.count, 56);
        told++;
    }
    assert_int_equal(told, 1);
    /* The root can name the number, and what becomes of other names. */
    weir_table_count_overflow(p.limiter->table, 0);
    run(&p, 3 * WEIR_SECOND);
    struct weir_limiter_usage usage;
    size_t cursor = 0;
    assert_true(weir_root_limiter_usage(p.roots[0], &cursor, &usage, p.now));
    assert_int_equal(usage.lacking, 56);
    assert_int_equal(usage.overflowed, 1);
    assert_compare(usage.overflowed_age, <, 3 * WEIR_SECOND);
    assert_false(usage.passes_on_full);
    finish(&p);
}

/* Edits of a missing quota make it missing no more often, and are no news. */
static void test_edits_of_a_missing_quota_count_once(void **state)
{
    (void)state;
    struct pair p;
    struct weir_event event;
    make(&p, 4);
    start(&p, 0, 6, false);
    run(&p, 3 * WEIR_SECOND);
    assert_int_equal(weir_table_lacking(p.limiter->table), 2);
    while (weir_limiter_event(p.limiter, &event))
        continue;
    for (uint64_t i = 0; i < 10; i++) {
        apply_since(&p, 0, 5, false, 5, 7 + i);
        weir_root_settle(p.roots[0], p.now);
        run(&p, 3 * WEIR_SECOND);
        assert_int_equal(weir_table_lacking(p.limiter->table), 2);
    }
    assert_false(weir_limiter_event(p.limiter, &event));
    apply(&p, 0, 7, false, 17);
    weir_root_settle(p.roots[0], p.now);
    run(&p, 3 * WEIR_SECOND);
    assert_int_equal(weir_table_lacking(p.limiter->table), 3);
    assert_true(weir_limiter_event(p.limiter, &event));
    assert_string_equal(event.text, "q7");
    finish(&p);
}

/* A log beyond the memory for logs of a small table, or a bucket. */
static void apply_log(struct pair *p, bool log, uint64_t epoch)
{
    struct weir_change change = { .removed = false };
    change.quota = made_quota_of("log", "", 1000, 1000);
    change.quota.sharing = WEIR_LOCAL;
    if (log) {
        change.quota.algorithm = WEIR_SLIDING_LOG;
        change.quota.max_entries = WEIR_ENTRIES_MAX;
        change.quota.low_burst.unset = change.quota.high_burst.unset = true;
    }
    change.quota.epoch = epoch;
    change.quota.created = 2;
    assert_int_equal(weir_root_apply(p->roots[0], &change, p->now), 0);
    weir_root_settle(p->roots[0], p->now);
    run(p, 3 * WEIR_SECOND);
}

/* A handle got the missing quota's name a slot: it is missing all the same,
 * until an edit fits; and again, once, while later edits don't. */
static void test_a_missing_quota_with_a_handle(void **state)
{
    (void)state;
    struct pair p;
    struct weir_ref ref;
    make(&p, 4);
    struct weir_table *table = p.limiter->table;
    assert_int_equal(weir_table_pin(table, WEIR_TEXT("log"), &ref, p.now),
                     WEIR_RESOLVED);
    start(&p, 0, 1, false);
    for (int again = 0; again < 2; again++) {
        uint64_t epoch = 2 + 10 * (uint64_t)again;
        for (uint64_t i = 0; i < 4; i++) {
            apply_log(&p, true, epoch + i);
            assert_int_equal(weir_table_lacking(table), 1);
        }
        apply_log(&p, false, epoch + 5);
        assert_int_equal(weir_table_lacking(table), 0);
        assert_int_equal(epoch_at_root(&p), epoch + 5);
    }
    finish(&p);
}

/* ---- Templates by their glob ---- */

static void apply_glob(struct pair *p, enum weir_glob glob, bool removed,
                       uint64_t epoch)
{
    struct weir_change change = { .removed = removed };
    change.quota.name = WEIR_TEXT("a[0-9]");
    if (!removed) {
        change.quota = made_quota_of("a[0-9]", "", 1000, 1000);
        change.quota.glob = glob;
        change.quota.created = epoch;
    }
    change.quota.epoch = epoch;
    assert_int_equal(weir_root_apply(p->roots[0], &change, p->now), 0);
    weir_root_settle(p->roots[0], p->now);
}

/* Whether the root holds a bucket of that name. */
static bool is_ruled(struct pair *p, const char *name)
{
    struct weir_usage usage;
    return weir_root_usage_of(p->roots[0], weir_text_of(name), &usage, p->now);
}

/* A name such as 'a[0-9]' doesn't show that it is a template: neither when it
 * is removed, nor when its glob goes. */
static void test_a_template_by_its_glob_comes_and_goes(void **state)
{
    (void)state;
    struct pair p;
    struct weir_ref ref;
    make(&p, 32);
    start(&p, 0, 5, false);
    for (uint64_t epoch = 6; epoch <= 8; epoch += 2) {
        bool removed = epoch == 8;
        apply_glob(&p, WEIR_GLOB_PATH, false, epoch);
        run(&p, 3 * WEIR_SECOND);
        assert_int_equal(weir_table_pin(p.table, WEIR_TEXT("a7"), &ref, p.now),
                         WEIR_RESOLVED);
        weir_table_take(p.table, 0, ref, 1, NULL, p.now);
        run(&p, 3 * WEIR_SECOND);
        assert_true(is_ruled(&p, "a7"));
        apply_glob(&p, WEIR_GLOB_NAME, removed, epoch + 1);
        assert_false(is_ruled(&p, "a7"));
        run(&p, 3 * WEIR_SECOND);
        assert_int_equal(weir_limiter_epoch(p.limiter), epoch + 1);
        struct weir_slot_view view;
        weir_table_view(p.table, ref.slot, &view, p.now);
        assert_int_equal(view.state, WEIR_SLOT_PLACEHOLDER);
        weir_table_unpin(p.table, ref);
        assert_int_equal(has(&p, "a[0-9]"), !removed);
    }
    finish(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_template_by_its_glob_comes_and_goes),
        cmocka_unit_test(test_a_snapshot_drops_no_quota),
        cmocka_unit_test(test_a_backup_behind_a_snapshot),
        cmocka_unit_test(test_a_welcome_come_late_is_no_backup),
        cmocka_unit_test(test_who_stays_ahead_is_told_anew),
        cmocka_unit_test(test_who_is_ahead_by_another_root_stays),
        cmocka_unit_test(test_a_history_that_was_replaced),
        cmocka_unit_test(test_a_limiter_that_is_older),
        cmocka_unit_test(test_a_limiter_that_was_upgraded),
        cmocka_unit_test(test_what_passed_by_open_is_no_debt),
        cmocka_unit_test(test_what_was_charged_is_a_debt),
        cmocka_unit_test(test_who_lags_drops_no_quota),
        cmocka_unit_test(test_two_whole_sets_at_a_time),
        cmocka_unit_test(test_who_led_a_whole_set_dies),
        cmocka_unit_test(test_a_session_has_many_whole_sets),
        cmocka_unit_test(test_removals_forgotten_on_the_way),
        cmocka_unit_test(test_who_is_ahead_after_a_whole_set),
        cmocka_unit_test(test_roots_that_disagree),
        cmocka_unit_test(test_a_clock_steps_back),
        cmocka_unit_test(test_a_set_takes_the_place_of_another),
        cmocka_unit_test(test_what_finds_no_room_waits_for_it),
        cmocka_unit_test(test_what_finds_no_room_is_removed),
        cmocka_unit_test(test_no_room_in_spite_of_an_edit),
        cmocka_unit_test(test_many_find_no_room),
        cmocka_unit_test(test_edits_of_a_missing_quota_count_once),
        cmocka_unit_test(test_a_missing_quota_with_a_handle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
