/* SPDX-License-Identifier: MIT
 * test/core/node/test_limiter_contended.c - a limiter whose table's locks are
 * taken by others while quotas come: whole sets after one another, and edits
 * between.
 *
 * A root's messages are cut into one for each change, and before each of them
 * another caller may take the writer lock, or the lock of a bucket state. The
 * properties: a quota that the root has stays in the table once it is there;
 * the limiter is ready only with all quotas; and when the locks are free, the
 * table has exactly the root's quotas. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compare.h"
#include "core/node/limiter.h"
#include "core/node/root.h"
#include "core/table/table_bucket_state_internal.h"
#include "core/table/table_lock_internal.h"
#include "histories.h"
#include "io/clock.h"
#include "table_maker.h"

#define STEP (50 * WEIR_MILLISECOND)
#define NAMES 8
#define SLOTS 16
#define HISTORIES 200
#define LIMITERS 6 /* one after the other over one table */
#define BUSY_STEPS 20
#define OTHER 1 /* the stripe of the caller that has a bucket state's lock */

static const struct weir_store_id store = { .uuid = { 1 } };
static const struct weir_settings settings = {
    .report_interval = 200 * WEIR_MILLISECOND,
    .stale_after = 10 * WEIR_SECOND,
    .slack = true,
};

struct world {
    struct weir_rng rng;
    struct weir_root *root;
    uint64_t epoch; /* of its store */
    struct weir_table *table;
    struct weir_limiter *limiter;
    bool wanted[NAMES]; /* the root has it */
    bool there[NAMES];  /* the table has it, and it wasn't removed since */
    bool busy;          /* others take locks */
    bool ready;         /* the limiter */
    bool edited;        /* since it was made */
    weir_instant now;
};

static const char *name_of(unsigned i)
{
    static const char *const names[NAMES] = { "a", "b", "c", "d",
                                              "e", "f", "g", "h" };
    return names[i];
}

static bool has(const struct world *w, unsigned i, struct weir_ref *out)
{
    return weir_table_find(w->table, weir_text_of(name_of(i)), out);
}

/* ---- The root ---- */

/* Half of the names have a bucket state. */
static void change(struct world *w, unsigned i, bool removed)
{
    struct weir_change change = { .removed = removed };
    change.quota = made_quota_of(name_of(i), "", 1000 + w->epoch, 1000);
    if (i % 2) {
        change.quota.sharing = WEIR_LOCAL;
        change.quota.algorithm = WEIR_SLIDING_WINDOW;
        change.quota.low_burst = change.quota.high_burst =
            (struct weir_burst){ .unset = true };
    }
    change.quota.epoch = change.quota.created = ++w->epoch;
    assert_int_equal(weir_root_apply(w->root, &change, w->now), 0);
    weir_root_settle(w->root, w->now);
    w->wanted[i] = !removed;
    w->there[i] = w->there[i] && !removed;
    w->edited = true;
}

/* ---- The limiter ---- */

/* A new reporter: it continues the last one, and the table stays. */
static void replace_limiter(struct world *w)
{
    struct weir_limiter_handover handover = { .sessions = 0 };
    struct weir_limiter_options options = { .table = w->table,
                                            .slots = SLOTS,
                                            .links = 1,
                                            .incarnation = { 1 },
                                            .seed = weir_rng_next(&w->rng) };
    size_t size = (weir_limiter_size(&options) + 63) & ~(size_t)63;
    bool first = !w->limiter;
    if (!first) {
        weir_limiter_hand_over(w->limiter, &handover);
        weir_root_link(w->root, 0, false, w->now);
        free(w->limiter);
    }
    void *block = aligned_alloc(64, size);
    memset(block, 0, size);
    w->limiter = weir_limiter_init(block, &options, w->now);
    if (!first)
        weir_limiter_inherit(w->limiter, &handover, w->now);
    w->ready = w->edited = false;
    weir_root_link(w->root, 0, true, w->now);
    weir_limiter_link(w->limiter, 0, true, w->now);
}

/* ---- Messages ---- */

static void check(struct world *w)
{
    struct weir_ref ref;
    bool begins = !w->ready && weir_limiter_ready(w->limiter);
    for (unsigned i = 0; i < NAMES; i++) {
        bool is = has(w, i, &ref);
        assert_true(is || !w->there[i]);
        assert_true(is || !w->wanted[i] || !begins || w->edited);
        w->there[i] = is && w->wanted[i];
    }
    w->ready |= begins;
}

static void receive(struct world *w, const struct weir_message *message)
{
    struct weir_ref ref;
    unsigned i = (unsigned)weir_rng_below(&w->rng, NAMES);
    uint64_t dice = w->busy ? weir_rng_below(&w->rng, 3) : 0;
    bool writer = dice == 1 && weir_table_try_lock(w->table);
    bool state = dice == 2 && has(w, i, &ref) &&
                 weir_bucket_state_lock(w->table, ref.slot, OTHER, 0);
    assert_int_equal(weir_limiter_receive(w->limiter, 0, message, w->now), 0);
    if (writer)
        weir_table_unlock(w->table);
    if (state)
        weir_bucket_state_unlock(w->table, ref.slot);
    check(w);
}

static void receive_quotas(struct world *w, const struct weir_message *message)
{
    const struct weir_quotas *all = &message->quotas;
    struct weir_message part = *message;
    if (all->count < 2) {
        receive(w, message);
        return;
    }
    for (size_t i = 0; i < all->count; i++) {
        part.quotas.full = all->full && i == 0;
        part.quotas.from =
            i == 0 ? all->from : all->changes[i - 1].quota.epoch;
        part.quotas.epoch =
            i + 1 == all->count ? all->epoch : all->changes[i].quota.epoch;
        part.quotas.count = 1;
        part.quotas.changes = &all->changes[i];
        receive(w, &part);
    }
}

static void step(struct world *w)
{
    struct weir_message message;
    uint32_t from;
    w->now += STEP;
    weir_limiter_tick(w->limiter, w->now);
    check(w);
    weir_root_tick(w->root, w->now);
    for (bool said = true; said;) {
        said = weir_limiter_next(w->limiter, &from, &message, w->now);
        if (said)
            assert_int_equal(weir_root_receive(w->root, 0, &message, w->now),
                             0);
        if (!weir_root_next(w->root, &from, &message, w->now))
            continue;
        said = true;
        if (message.type == WEIR_MESSAGE_QUOTAS)
            receive_quotas(w, &message);
        else
            receive(w, &message);
    }
}

/* ---- Histories ---- */

static bool is_settled(const struct world *w)
{
    struct weir_ref ref;
    bool settled = weir_limiter_ready(w->limiter) &&
                   weir_limiter_epoch(w->limiter) == w->epoch;
    for (unsigned i = 0; i < NAMES; i++)
        settled = settled && has(w, i, &ref) == w->wanted[i];
    return settled;
}

static void run_history(uint64_t seed)
{
    struct world w = { .rng = { seed }, .now = MADE_AT };
    struct weir_root_options options = { .mem = weir_mem_system,
                                         .peers_max = 1,
                                         .settings = settings,
                                         .incarnation = { 1 } };
    w.table = made_table(SLOTS, 2, seed);
    w.root = weir_root_new(&options, w.now);
    assert_int_equal(weir_root_store(w.root, &store, 0, 0, w.now), 0);
    for (unsigned i = 0; i < NAMES; i++)
        change(&w, i, false);
    for (unsigned i = 0; i < LIMITERS; i++) {
        replace_limiter(&w);
        w.busy = true;
        for (unsigned n = 0; n < BUSY_STEPS; n++) {
            if (weir_rng_below(&w.rng, 8) == 0)
                change(&w, (unsigned)weir_rng_below(&w.rng, NAMES),
                       weir_rng_below(&w.rng, 3) == 0);
            step(&w);
        }
        /* Half of the limiters end in the middle of that. */
        w.busy = false;
        for (unsigned n = 0; i % 2 && n < 200 && !is_settled(&w); n++)
            step(&w);
        assert_true(i % 2 == 0 || is_settled(&w));
    }
    made_audit(w.table);
    weir_root_free(w.root);
    free(w.limiter);
    free(w.table);
}

static void test_no_lock_loses_a_quota(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("contended");
    uint64_t first = rng.state;
    for (uint64_t i = 0; i < histories(1, HISTORIES); i++)
        run_history(first + i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_lock_loses_a_quota),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
