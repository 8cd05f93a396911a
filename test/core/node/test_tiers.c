/* SPDX-License-Identifier: MIT
 * test/core/node/test_tiers.c - regions configured above themselves: by a root
 * that is its own upstream, by two of one region, in a circle, or beside a root
 * of another tier. Some link of each is refused, with a reason. And the
 * messages that go down the tiers of a sound tree. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "compare.h"
#include "core/node/region.h"
#include "core/node/root_state.h"
#include "io/clock.h"
#include "table_maker.h"

#define STEP (10 * WEIR_MILLISECOND)
#define RETRY WEIR_SECOND
#define NODES 4

struct up {
    uint32_t node;
    bool linked;
    weir_instant retry_at;
};

/* Node i's limiter half is peer i of the roots it links to. */
struct node {
    struct weir_region *region; /* NULL: a topmost root */
    struct weir_root *root;
    struct up up[2];
    uint32_t ups;
};

struct tree {
    struct node nodes[NODES];
    uint32_t count;
    uint8_t born; /* incarnations, of all nodes */
    weir_instant now;
    uint64_t refused;
};

static const struct weir_root_options root_options = {
    .peers_max = NODES,
    .settings = { .report_interval = WEIR_SECOND,
                  .stale_after = 3 * WEIR_SECOND,
                  .slack = true },
};

static void bear(struct tree *t, uint32_t index, const char *region,
                 uint32_t ups, const uint32_t *up)
{
    struct node *node = &t->nodes[index];
    struct weir_region_options options = { .root = root_options,
                                           .name = weir_text_of(region),
                                           .upstreams = ups,
                                           .slots = 8 };
    options.root.mem = weir_mem_system;
    options.root.incarnation[0] = ++t->born;
    options.root.seed = t->born;
    if (ups == 0) {
        node->root = weir_root_new(&options.root, t->now);
        return;
    }
    node->region = weir_region_new(&options, t->now);
    node->root = weir_region_root(node->region);
    node->ups = ups;
    for (uint32_t i = 0; i < ups; i++)
        node->up[i] = (struct up){ .node = up[i] };
}

static void add(struct tree *t, const char *region, uint32_t ups,
                const uint32_t *up)
{
    bear(t, t->count, region, ups, up);
    t->count++;
}

static void set_link(struct tree *t, uint32_t index, uint32_t link, bool up)
{
    struct node *node = &t->nodes[index];
    node->up[link].linked = up;
    /* No two retry at the same instant for ever. */
    node->up[link].retry_at = t->now + RETRY + index * 3 * STEP;
    weir_region_up_link(node->region, link, up, t->now);
    weir_root_link(t->nodes[node->up[link].node].root, index, up, t->now);
}

/* Delivers the next message of the node's limiter half. */
static bool say_up(struct tree *t, uint32_t index)
{
    struct node *node = &t->nodes[index];
    struct weir_message message;
    uint32_t link;
    if (!node->region ||
        !weir_region_up_next(node->region, &link, &message, t->now))
        return false;
    struct weir_root *root = t->nodes[node->up[link].node].root;
    assert_int_equal(weir_root_receive(root, index, &message, t->now), 0);
    return true;
}

/* Delivers the next message of the node's root half to node 'peer'. */
static bool say_down(struct tree *t, uint32_t index)
{
    struct weir_message message;
    uint32_t peer;
    if (!weir_root_next(t->nodes[index].root, &peer, &message, t->now))
        return false;
    struct node *node = &t->nodes[peer];
    for (uint32_t i = 0; i < node->ups; i++) {
        if (node->up[i].node != index)
            continue;
        int error = weir_region_up_receive(node->region, i, &message, t->now);
        if (error == 0)
            continue;
        assert_int_equal(error, WEIR_EPROTOCOL);
        assert_non_null(weir_region_misplaced(node->region, i));
        t->refused++;
        set_link(t, peer, i, false);
    }
    return true;
}

static void turn(struct tree *t)
{
    for (uint32_t i = 0; i < t->count; i++) {
        struct node *node = &t->nodes[i];
        if (node->region)
            weir_region_tick(node->region, t->now);
        else
            weir_root_tick(node->root, t->now);
        for (uint32_t k = 0; k < node->ups; k++) {
            if (!node->up[k].linked && t->now >= node->up[k].retry_at)
                set_link(t, i, k, true);
        }
    }
    bool said = true;
    while (said) {
        said = false;
        for (uint32_t i = 0; i < t->count; i++)
            said = say_up(t, i) || say_down(t, i) || said;
    }
    t->now += STEP;
}

static void run(struct tree *t, weir_duration span)
{
    weir_instant end = t->now + span;
    while (t->now < end)
        turn(t);
}

/* The number of a node's links that are up. */
static uint32_t held(const struct tree *t, uint32_t index)
{
    struct weir_region_state look;
    weir_region_look(t->nodes[index].region, &look, t->now);
    return look.upstreams_up;
}

static const char *why(const struct tree *t, uint32_t index)
{
    return weir_region_misplaced(t->nodes[index].region, 0);
}

static void finish(struct tree *t)
{
    for (uint32_t i = 0; i < t->count; i++) {
        if (t->nodes[i].region)
            weir_region_free(t->nodes[i].region);
        else
            weir_root_free(t->nodes[i].root);
    }
}

static void test_a_root_above_itself(void **state)
{
    (void)state;
    struct tree t = { .now = 1000 * WEIR_SECOND };
    add(&t, "eu", 1, (uint32_t[]){ 0 });
    run(&t, 10 * WEIR_SECOND);
    assert_int_equal(held(&t, 0), 0);
    assert_non_null(why(&t, 0));
    print_message("  %s\n", why(&t, 0));
    finish(&t);
}

static void test_a_root_above_another_of_its_region(void **state)
{
    (void)state;
    struct tree t = { .now = 1000 * WEIR_SECOND };
    add(&t, "eu", 1, (uint32_t[]){ 1 });
    add(&t, "eu", 1, (uint32_t[]){ 2 });
    add(&t, "", 0, NULL);
    run(&t, 10 * WEIR_SECOND);
    assert_int_equal(held(&t, 0), 0);
    assert_int_equal(held(&t, 1), 1);
    assert_non_null(why(&t, 0));
    assert_null(why(&t, 1));
    finish(&t);
}

/* In any order: a circle of three never holds. */
static void test_a_circle_of_regions(void **state)
{
    (void)state;
    struct tree t = { .now = 1000 * WEIR_SECOND };
    add(&t, "eu", 1, (uint32_t[]){ 1 });
    add(&t, "us", 1, (uint32_t[]){ 2 });
    add(&t, "asia", 1, (uint32_t[]){ 0 });
    run(&t, 10 * WEIR_SECOND);
    uint64_t before = t.refused;
    assert_compare(before, >, 0);
    for (int i = 0; i < 1000; i++) {
        turn(&t);
        assert_compare(held(&t, 0) + held(&t, 1) + held(&t, 2), <, 3);
    }
    assert_compare(t.refused, >, before);
    finish(&t);
}

static void test_roots_of_two_tiers(void **state)
{
    (void)state;
    struct tree t = { .now = 1000 * WEIR_SECOND };
    add(&t, "eu", 2, (uint32_t[]){ 1, 2 });
    add(&t, "us", 1, (uint32_t[]){ 2 });
    add(&t, "", 0, NULL);
    run(&t, 10 * WEIR_SECOND);
    assert_int_equal(held(&t, 0), 1);
    assert_int_equal(held(&t, 1), 1);
    assert_compare(t.refused, >, 0);
    finish(&t);
}

static void test_a_sound_tree(void **state)
{
    (void)state;
    struct tree t = { .now = 1000 * WEIR_SECOND };
    add(&t, "eu-north", 2, (uint32_t[]){ 1, 2 });
    add(&t, "eu", 1, (uint32_t[]){ 3 });
    add(&t, "eu", 1, (uint32_t[]){ 3 });
    add(&t, "", 0, NULL);
    run(&t, 10 * WEIR_SECOND);
    assert_int_equal(held(&t, 0), 2);
    assert_int_equal(t.refused, 0);
    finish(&t);
}

/* The path that a link has announced goes with it, though other links stay. */
static void test_the_way_of_a_link_that_goes(void **state)
{
    (void)state;
    struct tree t = { .now = 1000 * WEIR_SECOND };
    add(&t, "eu", 2, (uint32_t[]){ 1, 2 });
    add(&t, "us", 1, (uint32_t[]){ 3 });
    add(&t, "asia", 1, (uint32_t[]){ 3 });
    add(&t, "", 0, NULL);
    run(&t, 10 * WEIR_SECOND);
    assert_int_equal(held(&t, 0), 2);
    assert_int_equal(t.nodes[0].root->region_count, 3);
    set_link(&t, 0, 0, false);
    assert_int_equal(t.nodes[0].root->region_count, 2);
    assert_true(
        weir_text_equal(t.nodes[0].root->regions[1], weir_text_of("asia")));
    run(&t, 10 * WEIR_SECOND);
    assert_int_equal(held(&t, 0), 2);
    assert_int_equal(t.nodes[0].root->region_count, 3);
    finish(&t);
}

/* An edit of the store, read by the topmost root. */
static void edit(struct tree *t, uint32_t top, const char *name, bool removed,
                 uint64_t epoch)
{
    struct weir_change change = { .removed = removed };
    change.quota = made_quota_of(name, "", 1000, 1000);
    change.quota.epoch = change.quota.created = epoch;
    struct weir_root *root = t->nodes[top].root;
    assert_int_equal(weir_root_apply(root, &change, t->now), 0);
    weir_root_settle(root, t->now);
}

static bool has(const struct tree *t, uint32_t index, const char *name)
{
    return weir_catalog_get(weir_root_catalog(t->nodes[index].root),
                            weir_text_of(name)) != NULL;
}

/* A root in the middle restarts without its snapshot, and the topmost one has
 * forgotten a removal: a node that stays linked to the root below it gets a
 * second whole set. */
static void test_a_middle_root_is_born_again(void **state)
{
    (void)state;
    static const struct weir_store_id store = { .uuid = { 1 } };
    struct tree t = { .now = 1000 * WEIR_SECOND };
    add(&t, "house", 1, (uint32_t[]){ 1 });
    add(&t, "town", 1, (uint32_t[]){ 2 });
    add(&t, "country", 1, (uint32_t[]){ 3 });
    add(&t, "", 0, NULL);
    weir_root_store(t.nodes[3].root, &store, 2, 0, t.now);
    edit(&t, 3, "kept", false, 1);
    edit(&t, 3, "removed", false, 2);
    run(&t, 10 * WEIR_SECOND);
    assert_true(has(&t, 0, "kept") && has(&t, 0, "removed"));
    set_link(&t, 1, 0, false);
    set_link(&t, 2, 0, false);
    weir_root_renew(t.nodes[3].root, &store);
    weir_root_store(t.nodes[3].root, &store, 3, 3, t.now);
    edit(&t, 3, "kept", false, 1);
    weir_region_free(t.nodes[2].region);
    bear(&t, 2, "country", 1, (uint32_t[]){ 3 });
    run(&t, 10 * WEIR_SECOND);
    for (uint32_t i = 0; i < 3; i++)
        assert_true(has(&t, i, "kept") && !has(&t, i, "removed"));
    finish(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_root_above_itself),
        cmocka_unit_test(test_a_root_above_another_of_its_region),
        cmocka_unit_test(test_a_circle_of_regions),
        cmocka_unit_test(test_roots_of_two_tiers),
        cmocka_unit_test(test_a_sound_tree),
        cmocka_unit_test(test_the_way_of_a_link_that_goes),
        cmocka_unit_test(test_a_middle_root_is_born_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
