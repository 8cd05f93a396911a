/* SPDX-License-Identifier: MIT
 * test_root_set.c - which addresses of roots a limiter uses, against a naive
 * model: sets of small numbers, and sorting. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "core/base/rng.h"
#include "io/root_set.h"
#include "seed.h"

#define UNIVERSE 12 /* addresses 10.0.0.0 .. 10.0.0.11 */
#define GIVEN 3     /* names */
#define HISTORIES 3000
#define STEPS 60

static struct weir_address address_of(uint32_t number)
{
    struct weir_address address = { .port = 7077 };
    snprintf(address.host, sizeof address.host, "10.0.0.%u", number);
    return address;
}

/* The number of the address at a link; NONE: it has none. */
static uint32_t at_link(const struct weir_root_set *set, uint32_t link)
{
    const struct weir_root_place *place = weir_root_set_place(set, link);
    unsigned number;
    if (!place || place->is_name)
        return WEIR_ROOT_NONE;
    assert_int_equal(sscanf(place->address.host, "10.0.0.%u", &number), 1);
    return number;
}

static const struct weir_root_place *place_of(const struct weir_root_set *set,
                                              uint32_t number)
{
    struct weir_address address = address_of(number);
    const struct weir_root_place *found = NULL;
    for (size_t i = 0; i < WEIR_ROOT_ADDRESSES_MAX; i++) {
        const struct weir_root_place *place = &set->place[i];
        if (!place->used || strcmp(place->address.host, address.host) != 0)
            continue;
        assert_null(found); /* an address has one place */
        found = place;
    }
    return found;
}

static void answer(struct weir_root_set *set, uint32_t given, uint32_t numbers)
{
    struct weir_address found[UNIVERSE];
    size_t count = 0;
    for (uint32_t i = 0; i < UNIVERSE; i++)
        if (numbers >> i & 1)
            found[count++] = address_of(i);
    weir_root_set_answer(set, given, found, count);
}

/* All addresses at links, as bits. */
static uint32_t used_by(const struct weir_root_set *set)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < set->links; i++)
        if (at_link(set, i) != WEIR_ROOT_NONE)
            bits |= (uint32_t)1 << at_link(set, i);
    return bits;
}

/* ---- The choice ---- */

static uint64_t rank_of(uint32_t number)
{
    struct weir_address address = address_of(number);
    return weir_hash(weir_text_of(address.host), address.port);
}

/* The addresses of the 'links' highest hashes, by sorting. */
static uint32_t best_of(uint32_t numbers, uint32_t links)
{
    uint32_t chosen = 0;
    for (uint32_t n = 0; n < links; n++) {
        uint32_t best = UNIVERSE;
        uint64_t most = 0;
        for (uint32_t i = 0; i < UNIVERSE; i++) {
            uint64_t hash = rank_of(i);
            if (!(numbers & ~chosen & (uint32_t)1 << i) || hash < most)
                continue;
            best = i;
            most = hash;
        }
        if (best < UNIVERSE)
            chosen |= (uint32_t)1 << best;
    }
    return chosen;
}

/* All limiters choose the same, however the addresses came to them. */
static void test_choice(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed(__func__);
    static struct weir_root_set set;
    for (int i = 0; i < HISTORIES; i++) {
        uint32_t links = 1 + (uint32_t)weir_rng_below(&rng, WEIR_ROOTS_MAX);
        uint32_t all = 1 + (uint32_t)weir_rng_below(&rng, (1 << UNIVERSE) - 1);
        uint32_t part = all & (uint32_t)weir_rng_next(&rng);
        weir_root_set_init(&set, links);
        if (part != 0)
            answer(&set, 0, part);
        if ((all & ~part) != 0)
            answer(&set, 1, all & ~part);
        uint32_t wanted = best_of(all, links);
        (void)weir_root_set_plan(&set);
        assert_int_equal(used_by(&set), wanted);
        /* One address less moves one link at most. */
        uint32_t gone = (uint32_t)1 << weir_rng_below(&rng, UNIVERSE);
        if (all == gone)
            continue;
        uint32_t left[2] = { part & ~gone, all & ~part & ~gone };
        for (uint32_t k = 0; k < 2; k++)
            if (left[k] != 0)
                answer(&set, k, left[k]);
        bool last = (left[0] == 0 && (part & gone)) ||
                    (left[1] == 0 && (all & ~part & gone));
        if (last) /* an empty answer changes nothing */
            continue;
        uint32_t changed = weir_root_set_plan(&set);
        assert_int_equal(used_by(&set), best_of(all & ~gone, links));
        assert_int_equal(__builtin_popcount(changed), (wanted & gone) != 0);
    }
}

/* ---- Histories ---- */

struct model {
    struct weir_root_set set;
    uint32_t listed[GIVEN];          /* the last answers */
    bool up[WEIR_ROOTS_MAX];         /* links */
    uint32_t root[UNIVERSE];         /* the root at each address */
    uint32_t before[WEIR_ROOTS_MAX]; /* addresses of links before a plan */
};

static uint32_t all_listed(const struct model *model)
{
    uint32_t all = 0;
    for (size_t i = 0; i < GIVEN; i++)
        all |= model->listed[i];
    return all;
}

static uint32_t names_of(const struct model *model, uint32_t number)
{
    uint32_t names = 0;
    for (uint32_t i = 0; i < GIVEN; i++)
        names |= (model->listed[i] >> number & 1) << i;
    return names;
}

static void check_places(const struct model *model)
{
    for (uint32_t i = 0; i < UNIVERSE; i++) {
        const struct weir_root_place *place = place_of(&model->set, i);
        uint32_t names = names_of(model, i);
        if (!place) {
            assert_int_equal(names, 0);
            continue;
        }
        assert_int_equal(place->listed, names);
        if (names == 0) { /* kept by a connected link alone */
            assert_int_not_equal(place->link, WEIR_ROOT_NONE);
            assert_true(model->up[place->link]);
        }
        if (place->link != WEIR_ROOT_NONE)
            assert_int_equal(at_link(&model->set, place->link), i);
    }
}

static bool are_all_up(const struct model *model)
{
    for (uint32_t i = 0; i < model->set.links; i++)
        if (!model->up[i])
            return false;
    return true;
}

/* No place waits for a link that is free, or less entitled. */
static void check_waiting(const struct model *model)
{
    const struct weir_root_set *set = &model->set;
    for (uint32_t i = 0; i < UNIVERSE; i++) {
        const struct weir_root_place *place = place_of(set, i);
        if (!place || place->link != WEIR_ROOT_NONE ||
            place->same_as != WEIR_ROOT_NONE)
            continue;
        for (uint32_t k = 0; k < set->links; k++) {
            const struct weir_root_place *other = weir_root_set_place(set, k);
            assert_non_null(other);
            if (!model->up[k])
                assert_true(other->turn <= place->turn);
            if (!are_all_up(model))
                continue;
            assert_int_not_equal(other->listed, 0);
            if (place->turn == 0)
                assert_true(place->rank <= other->rank);
        }
    }
}

/* Only if all links are connected does one of them give way, to a better place
 * or because no name has its place. */
static void check_kept(const struct model *model, uint32_t changed)
{
    uint32_t lost = 0;
    for (uint32_t i = 0; i < model->set.links; i++) {
        bool same = at_link(&model->set, i) == model->before[i];
        assert_int_equal(same, !(changed >> i & 1));
        if (same || model->before[i] == WEIR_ROOT_NONE || !model->up[i])
            continue;
        lost++;
        if (all_listed(model) >> model->before[i] & 1)
            assert_true(rank_of(at_link(&model->set, i)) >
                        rank_of(model->before[i]));
    }
    assert_true(lost == 0 || (lost == 1 && are_all_up(model)));
}

static void plan(struct model *model)
{
    for (uint32_t i = 0; i < model->set.links; i++)
        model->before[i] = at_link(&model->set, i);
    uint32_t changed = weir_root_set_plan(&model->set);
    check_kept(model, changed);
    for (uint32_t i = 0; i < model->set.links; i++)
        model->up[i] = model->up[i] && !(changed >> i & 1);
    check_places(model);
    check_waiting(model);
}

static void connect_link(struct model *model, uint32_t link)
{
    uint32_t number = at_link(&model->set, link);
    if (number == WEIR_ROOT_NONE || model->up[link])
        return;
    uint8_t root[WEIR_INCARNATION_SIZE] = { (uint8_t)model->root[number] };
    model->up[link] = true;
    weir_root_set_up(&model->set, link, true);
    uint32_t other = weir_root_set_meet(&model->set, link, root);
    uint32_t wanted = WEIR_ROOT_NONE;
    for (uint32_t i = 0; i < model->set.links; i++)
        if (i != link && model->up[i] &&
            model->root[at_link(&model->set, i)] == model->root[number])
            wanted = i;
    assert_int_equal(other, wanted);
    if (other == WEIR_ROOT_NONE)
        return;
    weir_root_set_merge(&model->set, link, other);
    model->up[link] = false;
    plan(model);
    assert_int_not_equal(at_link(&model->set, link), number);
}

static void lose_link(struct model *model, uint32_t link)
{
    if (at_link(&model->set, link) == WEIR_ROOT_NONE)
        return;
    bool was_up = model->up[link];
    model->up[link] = false;
    weir_root_set_up(&model->set, link, false);
    if (!was_up)
        weir_root_set_failed(&model->set, link);
}

static void run_history(struct model *model, struct weir_rng *rng)
{
    *model = (struct model){ .up = { false } };
    weir_root_set_init(&model->set,
                       1 + (uint32_t)weir_rng_below(rng, WEIR_ROOTS_MAX));
    /* Some roots have two addresses. */
    for (uint32_t i = 0; i < UNIVERSE; i++)
        model->root[i] = (uint32_t)weir_rng_below(rng, UNIVERSE);
    for (int i = 0; i < STEPS; i++) {
        uint32_t given = (uint32_t)weir_rng_below(rng, GIVEN);
        uint32_t link = (uint32_t)weir_rng_below(rng, model->set.links);
        uint32_t numbers =
            1 + (uint32_t)weir_rng_below(rng, (1 << UNIVERSE) - 1);
        switch (weir_rng_below(rng, 4)) {
        case 0:
            numbers &= (uint32_t)weir_rng_next(rng);
            if (numbers == 0)
                break;
            model->listed[given] = numbers;
            answer(&model->set, given, numbers);
            plan(model);
            break;
        case 1:
            lose_link(model, link);
            plan(model);
            break;
        default:
            connect_link(model, link);
            break;
        }
    }
}

static void test_histories(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed(__func__);
    static struct model model;
    for (int i = 0; i < HISTORIES; i++)
        run_history(&model, &rng);
}

/* ---- Stories ---- */

static void test_a_name_is_followed(void **state)
{
    (void)state;
    static struct weir_root_set set;
    struct weir_address name = { "weir.example", 7077 };
    weir_root_set_init(&set, 2);
    weir_root_set_give(&set, 0, &name, true);
    assert_int_equal(weir_root_set_plan(&set), 1);
    assert_true(weir_root_set_place(&set, 0)->is_name);
    answer(&set, 0, 1 << 3 | 1 << 4);
    assert_int_equal(weir_root_set_plan(&set), 3);
    assert_int_equal(used_by(&set), 1 << 3 | 1 << 4);
    /* One leaves while it is connected: its link goes on until it is lost … */
    uint32_t link = at_link(&set, 0) == 3 ? 0 : 1;
    weir_root_set_up(&set, link, true);
    answer(&set, 0, 1 << 4);
    assert_int_equal(weir_root_set_plan(&set), 0);
    weir_root_set_up(&set, link, false);
    assert_int_equal(weir_root_set_plan(&set), 1 << link);
    assert_int_equal(used_by(&set), 1 << 4);
    /* … or its link is needed. */
    answer(&set, 0, 1 << 4 | 1 << 5);
    (void)weir_root_set_plan(&set);
    weir_root_set_up(&set, link, true);
    weir_root_set_up(&set, 1 - link, true);
    answer(&set, 0, 1 << 4 | 1 << 6);
    assert_int_equal(weir_root_set_plan(&set), 1 << link);
    assert_int_equal(used_by(&set), 1 << 4 | 1 << 6);
}

/* Connects the links whose places are of 'alive'; the others fail. */
static void try_links(struct weir_root_set *set, uint32_t alive)
{
    for (uint32_t i = 0; i < set->links; i++) {
        if (at_link(set, i) == WEIR_ROOT_NONE)
            continue;
        bool up = alive >> at_link(set, i) & 1;
        weir_root_set_up(set, i, up);
        if (!up)
            weir_root_set_failed(set, i);
    }
    (void)weir_root_set_plan(set);
}

/* The roots of the first choice are restarted. A limiter that was there uses
 * others meanwhile; one that is new uses the first choice. Without an end to
 * that they would have no root in common. */
static void test_limiters_meet_again(void **state)
{
    (void)state;
    static struct weir_root_set set;
    const uint32_t all = (1 << 8) - 1, best = best_of(all, 4);
    weir_root_set_init(&set, 4);
    answer(&set, 0, all);
    (void)weir_root_set_plan(&set);
    try_links(&set, all);
    assert_int_equal(used_by(&set), best);
    for (int i = 0; i < 8; i++)
        try_links(&set, all & ~best);
    assert_int_equal(used_by(&set), all & ~best);
    weir_root_set_retry(&set);
    for (int i = 0; i < 8; i++)
        try_links(&set, all);
    assert_int_equal(used_by(&set), best);
}

/* An answer with addresses of no root costs one link, not all. */
static void test_a_wrong_answer(void **state)
{
    (void)state;
    static struct weir_root_set set;
    const uint32_t roots = 15, wrong = roots << 4;
    weir_root_set_init(&set, 4);
    answer(&set, 0, roots);
    (void)weir_root_set_plan(&set);
    try_links(&set, roots);
    answer(&set, 0, wrong);
    for (int i = 0; i < 8; i++)
        try_links(&set, roots);
    assert_int_equal(__builtin_popcount(used_by(&set) & roots), 3);
    /* A right one moves all links. */
    for (int i = 0; i < 8; i++)
        try_links(&set, roots | wrong);
    assert_int_equal(used_by(&set), wrong);
}

static void test_two_addresses_of_one_root(void **state)
{
    (void)state;
    static struct weir_root_set set;
    const uint8_t root[WEIR_INCARNATION_SIZE] = { 7 };
    weir_root_set_init(&set, 2);
    answer(&set, 0, 1 << 1 | 1 << 2);
    (void)weir_root_set_plan(&set);
    weir_root_set_up(&set, 0, true);
    weir_root_set_up(&set, 1, true);
    assert_int_equal(weir_root_set_meet(&set, 0, root), WEIR_ROOT_NONE);
    assert_int_equal(weir_root_set_meet(&set, 1, root), 0);
    uint32_t first = at_link(&set, 0), second = at_link(&set, 1);
    weir_root_set_merge(&set, 1, 0);
    /* Its place doesn't come back with the next answer, nor with a pause … */
    answer(&set, 0, 1 << 1 | 1 << 2);
    weir_root_set_up(&set, 0, false);
    assert_int_equal(weir_root_set_plan(&set), 0);
    assert_int_equal(used_by(&set), (uint32_t)1 << first);
    /* … but when the first one can't be reached. */
    weir_root_set_failed(&set, 0);
    assert_int_equal(weir_root_set_plan(&set), 2);
    assert_int_equal(at_link(&set, 1), second);
}

/* A root that was met before a try that failed is no longer known to be there:
 * the link to the other address, which has an answer, stays. */
static void test_a_failed_try_forgets_the_root(void **state)
{
    (void)state;
    static struct weir_root_set set;
    const uint8_t root[WEIR_INCARNATION_SIZE] = { 7 };
    weir_root_set_init(&set, 2);
    answer(&set, 0, 1 << 1 | 1 << 2);
    (void)weir_root_set_plan(&set);
    weir_root_set_up(&set, 0, true);
    assert_int_equal(weir_root_set_meet(&set, 0, root), WEIR_ROOT_NONE);
    weir_root_set_up(&set, 0, false);
    weir_root_set_failed(&set, 0);
    weir_root_set_up(&set, 0, true);
    weir_root_set_up(&set, 1, true);
    assert_int_equal(weir_root_set_meet(&set, 1, root), WEIR_ROOT_NONE);
    assert_int_equal(weir_root_set_meet(&set, 0, root), 1);
}

/* More addresses than are remembered: the best stay. */
static void test_bound(void **state)
{
    (void)state;
    static struct weir_root_set set;
    static struct weir_address many[300];
    uint64_t worst_kept = UINT64_MAX;
    uint32_t better = 0;
    weir_root_set_init(&set, WEIR_ROOTS_MAX);
    for (uint32_t i = 0; i < 300; i++) {
        many[i].port = 7077;
        snprintf(many[i].host, sizeof many[i].host, "10.1.%u.%u", i / 256,
                 i % 256);
    }
    weir_root_set_answer(&set, 0, many, 300);
    for (uint32_t i = 0; i < WEIR_ROOT_ADDRESSES_MAX; i++) {
        assert_true(set.place[i].used);
        if (set.place[i].rank < worst_kept)
            worst_kept = set.place[i].rank;
    }
    for (uint32_t i = 0; i < 300; i++)
        better += weir_hash(weir_text_of(many[i].host), 7077) >= worst_kept;
    assert_int_equal(better, WEIR_ROOT_ADDRESSES_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_histories),
        cmocka_unit_test(test_a_name_is_followed),
        cmocka_unit_test(test_limiters_meet_again),
        cmocka_unit_test(test_a_wrong_answer),
        cmocka_unit_test(test_two_addresses_of_one_root),
        cmocka_unit_test(test_a_failed_try_forgets_the_root),
        cmocka_unit_test(test_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
