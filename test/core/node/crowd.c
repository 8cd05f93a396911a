/* SPDX-License-Identifier: MIT
 * test/core/node/crowd.c - limiters of a simulated fleet that hold permits. */

#include "crowd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static const char *const names[] = { "db", "db/a" };

void run(struct crowd *c, weir_duration span)
{
    weir_fleet_run(c->fleet, weir_fleet_now(c->fleet) + span);
    assert_int_equal(weir_fleet_error(c->fleet), 0);
}

void crowd_put(struct crowd *c, const char *name, const char *parent,
               enum weir_kind kind, uint64_t limit)
{
    struct weir_quota quota;
    weir_quota_init(&quota);
    quota.name = weir_text_of(name);
    quota.parent = weir_text_of(parent);
    quota.kind = kind;
    quota.limit =
        (struct weir_limit){ .units = limit,
                             .per = kind == WEIR_RATE ? WEIR_SECOND : 0 };
    assert_int_equal(weir_fleet_put(c->fleet, &quota, NULL), 0);
}

/* 40 in flight, and the rule while no root is reached. */
void crowd_put_on_stale(struct crowd *c, enum weir_on_stale on_stale)
{
    struct weir_quota quota;
    weir_quota_init(&quota);
    quota.name = WEIR_TEXT("db");
    quota.kind = WEIR_CONCURRENCY;
    quota.on_stale = on_stale;
    quota.limit = (struct weir_limit){ .units = 40 };
    assert_int_equal(weir_fleet_put(c->fleet, &quota, NULL), 0);
}

/* A network that loses, doubles, reorders and replays, or doesn't. */
void crowd_draw_network(struct crowd *c)
{
    weir_duration spread = below(c, 20 * WEIR_MILLISECOND);
    c->net = (struct weir_net){ .shape = WEIR_DELAY_UNIFORM,
                                .delay = spread,
                                .spread = spread };
    if (below(c, 2))
        c->net.loss = 0.3 * weir_rng_unit(&c->rng);
    if (below(c, 2))
        c->net.twice = 0.3 * weir_rng_unit(&c->rng);
    if (below(c, 2))
        c->net.reorder = weir_rng_unit(&c->rng);
    if (below(c, 2))
        c->net.replay = weir_rng_unit(&c->rng);
}

/* ---- Events ---- */

static void op_enter(struct crowd *c)
{
    struct crowd_out *out = &c->out[below(c, CROWD_OUT_MAX)];
    if (out->record.links > 0)
        return;
    out->limiter = (uint32_t)below(c, c->limiters);
    weir_fleet_enter(c->fleet, out->limiter, weir_text_of(names[below(c, 2)]),
                     1 + below(c, 3), &out->record);
}

static void op_leave(struct crowd *c)
{
    struct crowd_out *out = &c->out[below(c, CROWD_OUT_MAX)];
    if (out->record.links > 0)
        weir_fleet_leave(c->fleet, out->limiter, &out->record);
}

void crowd_kill(struct crowd *c, uint32_t index)
{
    weir_fleet_kill(c->fleet, limiter_at(index));
    for (int i = 0; i < CROWD_OUT_MAX; i++) {
        if (c->out[i].limiter == index)
            c->out[i].record.links = 0;
    }
}

static void op_limiter(struct crowd *c)
{
    uint32_t index = (uint32_t)below(c, c->limiters);
    if (!weir_fleet_alive(c->fleet, limiter_at(index)))
        weir_fleet_start(c->fleet, limiter_at(index));
    else if (below(c, 2))
        weir_fleet_reset(c->fleet, limiter_at(index));
    else
        crowd_kill(c, index);
}

static void op_root(struct crowd *c)
{
    struct weir_node_place place = root_at((uint32_t)below(c, c->roots));
    if (!weir_fleet_alive(c->fleet, place))
        weir_fleet_start(c->fleet, place);
    else if (below(c, 2))
        weir_fleet_reset(c->fleet, place);
    else
        weir_fleet_kill(c->fleet, place);
}

static void op_edit(struct crowd *c)
{
    bool child = below(c, 2);
    enum weir_kind kind = below(c, 4) ? WEIR_CONCURRENCY : WEIR_RATE;
    if (below(c, 4) == 0 && child)
        assert_int_equal(weir_fleet_remove(c->fleet, names[1], NULL), 0);
    crowd_put(c, names[child], child ? "db" : NULL, kind, 1 + below(c, 60));
}

/* One random event; 'mishaps' are a bit mask; those of links are the test's
 * own. */
void crowd_step(struct crowd *c, unsigned mishaps,
                void (*op_cut)(struct crowd *c))
{
    uint64_t what = below(c, 16);
    if (what == 0 && (mishaps & 1))
        op_cut(c);
    else if (what == 1 && (mishaps & 2))
        op_root(c);
    else if (what == 2 && (mishaps & 4))
        op_limiter(c);
    else if (what == 3 && (mishaps & 8))
        op_edit(c);
    else if (what >= 4 && what < 7)
        run(c, below(c, 400 * WEIR_MILLISECOND));
    else if (what >= 7 && what < 10)
        op_leave(c);
    else if (what >= 10)
        op_enter(c);
}

/* The network is perfect from now on, and all nodes run. */
void crowd_heal(struct crowd *c, weir_duration calm)
{
    struct weir_net sound = { .shape = WEIR_DELAY_FIXED,
                              .delay = WEIR_MILLISECOND };
    for (uint32_t r = 0; r < c->roots; r++) {
        for (uint32_t l = 0; l < c->limiters + c->uppers; l++) {
            weir_fleet_net(c->fleet, l, r, &sound);
            weir_fleet_cut(c->fleet, l, r, (enum weir_way)0, 0);
        }
        if (!weir_fleet_alive(c->fleet, root_at(r)))
            weir_fleet_start(c->fleet, root_at(r));
    }
    for (uint32_t l = 0; l < c->limiters; l++) {
        if (!weir_fleet_alive(c->fleet, limiter_at(l)))
            weir_fleet_start(c->fleet, limiter_at(l));
    }
    crowd_put(c, "db", NULL, WEIR_CONCURRENCY, 40);
    crowd_put(c, "db/a", "db", WEIR_CONCURRENCY, 20);
    run(c, calm);
}

/* ---- Invariants ---- */

uint64_t crowd_held(struct crowd *c, uint32_t limiter, const char *name)
{
    struct weir_table *table = weir_fleet_table(c->fleet, limiter);
    struct weir_ref ref;
    return table && weir_table_find(table, weir_text_of(name), &ref)
               ? weir_table_in_flight(table, ref.slot)
               : 0;
}

uint64_t crowd_in_flight(struct crowd *c, const char *name)
{
    uint64_t sum = 0;
    for (uint32_t l = 0; l < c->limiters; l++)
        sum += crowd_held(c, l, name);
    return sum;
}

void crowd_expect(struct crowd *c, double got, uint64_t truth, const char *who,
                  uint32_t index, const char *name)
{
    if (got == (double)truth)
        return;
    fail_msg("%s %u has %.3f of %s in flight, not %llu\n"
             "  replay: WEIR_SEED=%llu WEIR_HISTORIES=1",
             who, index, got, name, (unsigned long long)truth,
             (unsigned long long)c->seed);
}

/* The limiters' knowledge; a limiter with no unit in flight may not have
 * received it. */
void crowd_check_limiters(struct crowd *c, const char *name)
{
    uint64_t truth = crowd_in_flight(c, name);
    for (uint32_t l = 0; l < c->limiters; l++) {
        if (crowd_held(c, l, name) > 0)
            crowd_expect(
                c, weir_fleet_limiter_fill(c->fleet, l, weir_text_of(name)),
                truth, "limiter", l, name);
    }
}

/* All want far more of "db" than the limit, for that long: the most in flight,
 * and the mean after the first five seconds. */
uint64_t crowd_press(struct crowd *c, int ms, double *out_mean)
{
    uint64_t most = 0, sum = 0, looks = 0;
    for (int at = 0; at < ms; at++) {
        for (int k = 0; k < 4; k++) {
            struct crowd_out *out = &c->out[below(c, CROWD_OUT_MAX)];
            if (out->record.links > 0) {
                if (below(c, 4) == 0)
                    weir_fleet_leave(c->fleet, out->limiter, &out->record);
                continue;
            }
            out->limiter = (uint32_t)below(c, c->limiters);
            weir_fleet_enter(c->fleet, out->limiter, WEIR_TEXT("db"), 1,
                             &out->record);
        }
        run(c, WEIR_MILLISECOND);
        if (at < 5000)
            continue;
        uint64_t now = crowd_in_flight(c, "db");
        most = now > most ? now : most;
        sum += now;
        looks++;
    }
    *out_mean = (double)sum / (double)looks;
    return most;
}

void crowd_end(struct crowd *c)
{
    weir_fleet_free(c->fleet);
    test_free(c);
}
