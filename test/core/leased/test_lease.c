/* SPDX-License-Identifier: MIT
 * test_lease.c - both halves together: lease holders and their pool over a
 * network that loses, doubles, reorders and delays, masters that lose all
 * state, leases that are shortened. Never is more in use than the capacity; nor
 * where masters keep numbers, soon, late or never, and holders die and others
 * come. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "compare.h"
#include "core/base/rng.h"
#include "core/leased/lease_holder.h"
#include "core/leased/lease_pool.h"
#include "histories.h"
#include "mem_maker.h"

#define S WEIR_SECOND
#define MS WEIR_MILLISECOND
#define START (1000 * S)
#define TICK (10 * MS)
#define HOLDERS 6
#define CAPACITY 100.0
#define LEASE_LONGEST (8 * S)
#define MESSAGES 1024 /* under way */

struct message {
    bool used, to_pool;
    unsigned holder;
    weir_instant at;
    uint64_t term, name;
    /* of a grant only its number; 0: pushed */
    struct weir_lease_holder_ask ask;
    struct weir_grant grant;
};

struct fleet {
    struct weir_rng rng;
    weir_instant now;
    struct weir_lease_rule rule;
    struct weir_lease_pool *pool;
    uint64_t term, serial;
    uint32_t numbers[HOLDERS]; /* the pool's, or WEIR_LEASE_HOLDER_NONE */
    struct weir_lease_holder holders[HOLDERS];
    uint64_t asks_term[HOLDERS]; /* term of the master that each asks */
    double in_use[HOLDERS];      /* for in-flight counters */
    struct message messages[MESSAGES];
    bool calm; /* no message is lost, and no master goes */
    double used, most;

    /* Histories in which a number is kept beside the mastership. */
    bool keeps;
    uint64_t kept, numbers_made;
    bool answers;         /* this master has kept one */
    weir_instant keep_at; /* another one from then on; WEIR_NEVER: none */
    uint64_t names[HOLDERS], names_made;
    bool slow[HOLDERS];   /* slow to ask the next master */
    uint64_t heard_early; /* pools that ended learning before their time */
    weir_instant lost_at; /* of the master, soon after a holder came */
};

static bool chance(struct fleet *fleet, uint64_t percent)
{
    return weir_rng_below(&fleet->rng, 100) < percent;
}

static void send(struct fleet *fleet, const struct message *message)
{
    bool doubled = !fleet->calm && chance(fleet, 10);
    for (int copies = doubled ? 2 : 1; copies > 0; copies--) {
        size_t i = 0;
        while (i < MESSAGES && fleet->messages[i].used)
            i++;
        if (i == MESSAGES ||
            (!fleet->calm && chance(fleet, fleet->keeps ? 4 : 20)))
            continue;
        bool late = !fleet->calm && chance(fleet, 10);
        uint64_t reach = late ? 20 * S : 200 * MS;
        fleet->messages[i] = *message;
        fleet->messages[i].used = true;
        fleet->messages[i].at = fleet->now + weir_rng_below(&fleet->rng, reach);
    }
}

/* A master without memory; holders may have leases from the previous one. */
static void succeed(struct fleet *fleet)
{
    bool first = fleet->pool == NULL;
    weir_lease_pool_free(fleet->pool);
    fleet->term++;
    weir_instant leases = fleet->now + LEASE_LONGEST;
    const struct weir_learning learning = { leases, leases + LEASE_LONGEST,
                                            CAPACITY, fleet->kept };
    if (fleet->keep_at != WEIR_NEVER && chance(fleet, 50))
        fleet->kept = ++fleet->numbers_made; /* kept, unknown to the master */
    fleet->answers = !fleet->keeps;
    fleet->lost_at = WEIR_NEVER;
    fleet->keep_at = fleet->keeps
                         ? fleet->now + weir_rng_below(&fleet->rng, S / 4)
                         : WEIR_NEVER;
    fleet->pool = weir_lease_pool_new(&maker_mem, &fleet->rule,
                                      first ? NULL : &learning, &fleet->serial,
                                      weir_rng_next(&fleet->rng), fleet->now);
    for (unsigned h = 0; h < HOLDERS; h++)
        fleet->numbers[h] = WEIR_LEASE_HOLDER_NONE;
}

static void tell(struct fleet *fleet, unsigned h, uint64_t number,
                 const struct weir_grant *grant)
{
    struct message message = { .holder = h,
                               .term = fleet->term,
                               .name = fleet->names[h],
                               .grant = *grant };
    message.ask.number = number;
    send(fleet, &message);
}

static void pool_hears(struct fleet *fleet, const struct message *message)
{
    unsigned h = message->holder;
    if (fleet->numbers[h] == WEIR_LEASE_HOLDER_NONE)
        assert_int_equal(weir_lease_pool_join(fleet->pool, fleet->names[h],
                                              &fleet->numbers[h]),
                         0);
    struct weir_band band = { .clients = 1, .wants = message->ask.wants };
    struct weir_lease_pool_ask ask = { .bands = &band,
                                       .band_count = 1,
                                       .has = message->ask.has,
                                       .taken = message->ask.taken,
                                       .roster_token =
                                           message->ask.roster_token,
                                       .streams = true };
    struct weir_grant grant;
    struct weir_lease_pool_stats before, after;
    weir_lease_pool_stats(fleet->pool, &before, fleet->now);
    int error = weir_lease_pool_ask(fleet->pool, fleet->numbers[h], &ask,
                                    fleet->answers ? &grant : NULL, fleet->now);
    assert_true(error == 0 || (error == WEIR_ENOTREADY && fleet->keeps));
    if (fleet->answers && error == 0)
        tell(fleet, h, message->ask.number, &grant);
    weir_lease_pool_stats(fleet->pool, &after, fleet->now);
    fleet->heard_early += before.learning && !after.learning;
}

static void keep_if_due(struct fleet *fleet)
{
    if (fleet->now >= fleet->keep_at) {
        fleet->kept = ++fleet->numbers_made;
        fleet->answers = true;
        fleet->keep_at = WEIR_NEVER;
        weir_lease_pool_keep(fleet->pool, fleet->kept, fleet->now);
    }
    bool idle = fleet->keep_at == WEIR_NEVER;
    uint64_t reach = chance(fleet, 30) ? 2 * LEASE_LONGEST : S / 4;
    if (idle && weir_lease_pool_wants_keep(fleet->pool))
        fleet->keep_at = fleet->now + weir_rng_below(&fleet->rng, reach);
}

static void pool_acts(struct fleet *fleet)
{
    uint32_t gone;
    struct weir_grant grant;
    keep_if_due(fleet);
    weir_lease_pool_tick(fleet->pool, fleet->now);
    while (weir_lease_pool_gone(fleet->pool, &gone)) {
        for (unsigned h = 0; h < HOLDERS; h++) {
            if (fleet->numbers[h] == gone)
                fleet->numbers[h] = WEIR_LEASE_HOLDER_NONE;
        }
    }
    while (weir_lease_pool_next(fleet->pool, &grant, fleet->now)) {
        for (unsigned h = 0; h < HOLDERS; h++) {
            if (fleet->numbers[h] == grant.holder)
                tell(fleet, h, 0, &grant);
        }
    }
}

/* As a caller does: sets the limit first, then the units in use. */
static void settle(struct fleet *fleet, unsigned h)
{
    struct weir_lease_holder *holder = &fleet->holders[h];
    if (fleet->now >= holder->expiry)
        fleet->in_use[h] = 0; /* permit_timeout is the lease here */
    if (holder->inflight)
        weir_lease_holder_in_use(holder, fleet->in_use[h]);
}

static void deliver(struct fleet *fleet)
{
    for (size_t i = 0; i < MESSAGES; i++) {
        struct message message = fleet->messages[i];
        if (!message.used || message.at > fleet->now)
            continue;
        fleet->messages[i].used = false;
        if (message.name != fleet->names[message.holder])
            continue;
        if (message.to_pool && message.term == fleet->term)
            pool_hears(fleet, &message);
        if (message.to_pool)
            continue;
        weir_lease_holder_granted(&fleet->holders[message.holder],
                                  message.ask.number, message.term,
                                  &message.grant, fleet->now);
        settle(fleet, message.holder);
    }
}

static void holder_acts(struct fleet *fleet, unsigned h)
{
    struct weir_lease_holder *holder = &fleet->holders[h];
    if (fleet->asks_term[h] != fleet->term && chance(fleet, 2) &&
        (!fleet->slow[h] || chance(fleet, 3))) {
        fleet->slow[h] = false;
        fleet->asks_term[h] = fleet->term;
        weir_lease_holder_lost(holder, fleet->now);
    }
    if (weir_rng_below(&fleet->rng, 500) == 0)
        weir_lease_holder_want(holder, (double)weir_rng_below(&fleet->rng, 60),
                               fleet->now);
    settle(fleet, h);
    if (holder->inflight && chance(fleet, 30))
        fleet->in_use[h] = floor(fleet->in_use[h] * 0.9);
    while (holder->inflight &&
           fleet->in_use[h] + 1 <= weir_lease_holder_limit(holder, fleet->now))
        fleet->in_use[h] += 1;
    settle(fleet, h);
    if (weir_lease_holder_due(holder) > fleet->now)
        return;
    struct message message = { .to_pool = true,
                               .holder = h,
                               .name = fleet->names[h],
                               .term = fleet->asks_term[h] };
    weir_lease_holder_ask(holder, holder->number + 1, &message.ask, fleet->now);
    send(fleet, &message);
}

static void check(struct fleet *fleet)
{
    double sum = 0;
    for (unsigned h = 0; h < HOLDERS; h++)
        sum += fleet->holders[h].inflight
                   ? fleet->in_use[h]
                   : weir_lease_holder_limit(&fleet->holders[h], fleet->now);
    if (sum > CAPACITY * (1 + 1e-9))
        fail_msg("%.17g of %g in use", sum, CAPACITY);
    fleet->used += sum;
    fleet->most = fmax(fleet->most, sum);
}

/* A holder with a new name. A previous one in its place has died, or given
 * everything back. */
static void come(struct fleet *fleet, unsigned h, uint64_t seed)
{
    fleet->names[h] = ++fleet->names_made;
    if (fleet->numbers[h] != WEIR_LEASE_HOLDER_NONE && chance(fleet, 80))
        weir_lease_pool_release(fleet->pool, fleet->numbers[h], true,
                                fleet->now);
    fleet->numbers[h] = WEIR_LEASE_HOLDER_NONE;
    fleet->in_use[h] = 0;
    weir_lease_holder_init(&fleet->holders[h], WEIR_STALE_LIMIT, h % 2, seed,
                           fleet->now);
    weir_lease_holder_want(&fleet->holders[h], 30, fleet->now);
    fleet->asks_term[h] = fleet->term;
    struct weir_lease_pool_stats stats;
    weir_lease_pool_stats(fleet->pool, &stats, fleet->now);
    fleet->slow[h] = fleet->keeps && chance(fleet, 70);
    if (fleet->keeps && !stats.learning && chance(fleet, 40))
        fleet->lost_at = fleet->now + weir_rng_below(&fleet->rng, 2 * S);
}

static void act(struct fleet *fleet)
{
    fleet->now += TICK;
    if (!fleet->calm && (fleet->now >= fleet->lost_at ||
                         weir_rng_below(&fleet->rng, 3000) == 0))
        succeed(fleet);
    if (fleet->keeps && weir_rng_below(&fleet->rng, 1500) == 0)
        come(fleet, (unsigned)weir_rng_below(&fleet->rng, HOLDERS),
             weir_rng_next(&fleet->rng));
    if (!fleet->calm && weir_rng_below(&fleet->rng, 1000) == 0) {
        fleet->rule.lease =
            2 * S + weir_rng_below(&fleet->rng, LEASE_LONGEST - 2 * S);
        weir_lease_pool_set_rule(fleet->pool, &fleet->rule);
    }
    deliver(fleet);
    pool_acts(fleet);
    for (unsigned h = 0; h < HOLDERS; h++)
        holder_acts(fleet, h);
    check(fleet);
}

static void begin(struct fleet *fleet, uint64_t seed, bool calm, bool keeps)
{
    memset(fleet, 0, sizeof(*fleet));
    fleet->rng = (struct weir_rng){ seed };
    fleet->now = START;
    fleet->calm = calm;
    fleet->keeps = keeps;
    fleet->keep_at = WEIR_NEVER;
    fleet->rule = (struct weir_lease_rule){ .share = WEIR_SHARE_FAIR,
                                            .capacity = CAPACITY,
                                            .lease = LEASE_LONGEST,
                                            .refresh = S };
    succeed(fleet);
    for (unsigned h = 0; h < HOLDERS; h++)
        fleet->numbers[h] = WEIR_LEASE_HOLDER_NONE;
    for (unsigned h = 0; h < HOLDERS; h++)
        come(fleet, h, seed + h);
}

static void play(bool calm, bool keeps, unsigned rounds, unsigned ticks)
{
    uint64_t seed = from_environment("WEIR_SEED", (uint64_t)time(NULL));
    struct fleet *fleet = malloc(sizeof(*fleet));
    double used = 0, most = 0;
    uint64_t early = 0;
    for (unsigned i = 0; i < rounds; i++) {
        printf("WEIR_SEED=%llu\r", (unsigned long long)(seed + i));
        begin(fleet, seed + i, calm, keeps);
        for (unsigned j = 0; j < ticks; j++)
            act(fleet);
        used += fleet->used / ticks / rounds;
        most = fmax(most, fleet->most);
        early += fleet->heard_early;
        weir_lease_pool_free(fleet->pool);
    }
    free(fleet);
    printf("WEIR_SEED=%llu: %.1f of 100 in use, at most %.3f; %llu masters "
           "knew early\n",
           (unsigned long long)seed, used, most, (unsigned long long)early);
    assert_compare(most, >, 99);
    assert_compare(used, >, 30);
    /* If numbers are kept, each history has one on average: none in 20 has a
     * probability of e^-20 = 2e-9. */
    if (keeps)
        assert_true(early > 0 || rounds < 20);
    else
        assert_compare(early, <=, rounds / 2);
}

static void test_never_over(void **state)
{
    (void)state;
    play(false, false, (unsigned)histories(45, 50), 6000);
}

static void test_never_over_when_calm(void **state)
{
    (void)state;
    play(true, false, 10, 6000);
}

static void test_never_over_by_roster_tokens(void **state)
{
    (void)state;
    play(false, true, (unsigned)histories(150, 20), 20000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_never_over),
        cmocka_unit_test(test_never_over_by_roster_tokens),
        cmocka_unit_test(test_never_over_when_calm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
