/* SPDX-License-Identifier: MIT
 * test_lease_holder_histories.c - random histories of lease holders against a
 * pool's account, over a hostile network.
 *
 * A lease pool may rely on this: a holder uses at most the largest amount that
 * it was sent since the serial that it last acknowledged, until the lease of
 * the last answer is over; of an old pool's grants, at most its first report.
 * The pool here grants at random, but the sum of its accounts never exceeds the
 * capacity; then the units in use never do. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"
#include "core/base/rng.h"
#include "core/leased/lease_holder.h"
#include "seed.h"

#define S WEIR_SECOND
#define MS WEIR_MILLISECOND
#define START (1000 * S)

#define HOLDERS 4
#define CAPACITY 100.0
#define GRANTS 4096  /* of one pool to one holder */
#define MESSAGES 512 /* under way */
#define LEASE_LONGEST (8 * S)
#define TICK (10 * MS)

struct account {
    double charges[GRANTS]; /* by serial; [0]: its first report */
    uint64_t last;
    uint64_t taken;
    weir_instant until;
    bool met;
};

struct message {
    bool used, to_pool;
    unsigned holder;
    weir_instant at;
    uint64_t term;
    struct weir_lease_holder_ask ask; /* of an answer its number, else 0 */
    struct weir_grant grant;
};

struct model {
    struct weir_rng rng;
    weir_instant now;
    uint64_t term;
    weir_instant learned;
    double known;
    struct account accounts[HOLDERS];
    struct weir_lease_holder holders[HOLDERS];
    uint64_t asks_term[HOLDERS]; /* term of each request's pool */
    double in_use[HOLDERS];      /* for in-flight counters */
    struct message messages[MESSAGES];
    /* outcome */
    uint64_t counted, grants, expired, manager;
    double used, most;
};

static bool chance(struct model *model, uint64_t percent)
{
    return weir_rng_below(&model->rng, 100) < percent;
}

/* Loses, doubles and delays messages: some by more than a lease. */
static void send(struct model *model, const struct message *message)
{
    for (int copies = chance(model, 20) ? 2 : 1; copies > 0; copies--) {
        size_t i = 0;
        while (i < MESSAGES && model->messages[i].used)
            i++;
        if (i == MESSAGES || chance(model, 20))
            continue;
        uint64_t reach = chance(model, 10) ? 20 * S : 300 * MS;
        model->messages[i] = *message;
        model->messages[i].used = true;
        model->messages[i].at = model->now + weir_rng_below(&model->rng, reach);
    }
}

static double account_of(const struct model *model, unsigned h)
{
    const struct account *account = &model->accounts[h];
    double most = 0;
    if (!account->met || model->now >= account->until)
        return 0;
    for (uint64_t i = account->taken; i <= account->last; i++)
        most = fmax(most, account->charges[i]);
    return most;
}

static double free_for(const struct model *model, unsigned h)
{
    double left = model->now < model->learned ? model->known : CAPACITY;
    for (unsigned i = 0; i < HOLDERS; i++)
        left -= i == h ? 0 : account_of(model, i);
    return fmax(left, 0);
}

/* Any grant that doesn't raise the sum above the capacity. */
static void grant(struct model *model, unsigned h, uint64_t number)
{
    struct account *account = &model->accounts[h];
    if (account->last + 1 == GRANTS)
        return;
    double most = free_for(model, h);
    double has = account_of(model, h);
    struct message message = { .holder = h, .term = model->term };
    message.ask.number = number;
    message.grant = (struct weir_grant){
        .serial = ++account->last,
        .capacity = chance(model, 40)
                        ? most
                        : fmin(most, has * weir_rng_unit(&model->rng)),
        .refresh = S / 2,
    };
    if (number > 0) {
        message.grant.lease =
            S + weir_rng_below(&model->rng, LEASE_LONGEST - S + 1);
        message.grant.safe_lease = message.grant.lease;
        /* The holder may not receive a shorter lease. */
        weir_instant until = model->now + message.grant.lease;
        account->until = until > account->until ? until : account->until;
    }
    account->charges[account->last] = message.grant.capacity;
    model->grants++;
    send(model, &message);
}

static void pool_hears(struct model *model, const struct message *message)
{
    struct account *account = &model->accounts[message->holder];
    const struct weir_lease_holder_ask *ask = &message->ask;
    if (!account->met) {
        account->met = true;
        account->charges[0] = ask->has;
        account->until = model->now + LEASE_LONGEST;
        model->known = fmin(CAPACITY, model->known + ask->has);
    }
    if (ask->taken > account->taken)
        account->taken = ask->taken;
    grant(model, message->holder, ask->number);
}

/* As a caller does: sets the limit first, then the units in use. */
static void settle(struct model *model, unsigned h)
{
    struct weir_lease_holder *holder = &model->holders[h];
    if (model->now >= holder->expiry)
        model->in_use[h] = 0; /* permit_timeout is the lease here */
    if (holder->inflight)
        weir_lease_holder_in_use(holder, model->in_use[h]);
}

static void deliver(struct model *model)
{
    for (size_t i = 0; i < MESSAGES; i++) {
        struct message message = model->messages[i];
        if (!message.used || message.at > model->now)
            continue;
        model->messages[i].used = false;
        unsigned h = message.holder;
        if (message.to_pool && message.term == model->term)
            pool_hears(model, &message);
        if (message.to_pool)
            continue;
        model->counted +=
            weir_lease_holder_granted(&model->holders[h], message.ask.number,
                                      message.term, &message.grant, model->now);
        settle(model, h);
    }
}

/* The master is gone with all its state; its messages are still under way. */
static void succeed(struct model *model)
{
    model->term++;
    model->manager++;
    model->learned = model->now + LEASE_LONGEST;
    model->known = 0;
    memset(model->accounts, 0, sizeof(model->accounts));
}

static void holder_acts(struct model *model, unsigned h)
{
    struct weir_lease_holder *holder = &model->holders[h];
    if (model->asks_term[h] != model->term && chance(model, 2)) {
        model->asks_term[h] = model->term;
        weir_lease_holder_lost(holder, model->now);
    }
    settle(model, h);
    if (holder->inflight && chance(model, 30))
        model->in_use[h] = floor(model->in_use[h] * 0.9);
    while (holder->inflight && chance(model, 80) &&
           model->in_use[h] + 1 <= weir_lease_holder_limit(holder, model->now))
        model->in_use[h] += 1;
    settle(model, h);
    if (weir_lease_holder_due(holder) > model->now)
        return;
    struct message message = { .to_pool = true,
                               .holder = h,
                               .term = model->asks_term[h] };
    weir_lease_holder_ask(holder, holder->number + 1, &message.ask, model->now);
    send(model, &message);
}

static double used_by(const struct model *model, unsigned h)
{
    const struct weir_lease_holder *holder = &model->holders[h];
    return holder->inflight ? model->in_use[h]
                            : weir_lease_holder_limit(holder, model->now);
}

static void check(struct model *model)
{
    double sum = 0;
    const double roundings = 1e-9;
    for (unsigned h = 0; h < HOLDERS; h++) {
        double used = used_by(model, h);
        sum += used;
        if (model->accounts[h].met && model->asks_term[h] == model->term &&
            used > account_of(model, h) + roundings)
            fail_msg("holder %u uses %g, accounted with %g", h, used,
                     account_of(model, h));
        if (weir_lease_holder_has(&model->holders[h], model->now) + roundings <
            used)
            fail_msg("holder %u uses more than it has", h);
    }
    if (sum > CAPACITY + roundings)
        fail_msg("%g of %g in use", sum, CAPACITY);
    model->used += sum;
    model->most = fmax(model->most, sum);
}

static void play(struct model *model, uint64_t seed, unsigned ticks)
{
    model->rng = (struct weir_rng){ seed };
    model->now = START;
    model->term = 1;
    for (unsigned h = 0; h < HOLDERS; h++) {
        weir_lease_holder_init(&model->holders[h], WEIR_STALE_LIMIT, h % 2,
                               seed + h, model->now);
        weir_lease_holder_want(&model->holders[h], CAPACITY, model->now);
        model->asks_term[h] = 1;
    }
    for (unsigned i = 0; i < ticks; i++) {
        model->now += TICK;
        if (weir_rng_below(&model->rng, 3000) == 0)
            succeed(model);
        deliver(model);
        for (unsigned h = 0; h < HOLDERS; h++) {
            if (model->accounts[h].met && chance(model, 5))
                grant(model, h, 0);
            holder_acts(model, h);
        }
        for (unsigned h = 0; h < HOLDERS; h++)
            model->expired += model->now >= model->holders[h].expiry;
        check(model);
    }
}

static void test_random_histories(void **state)
{
    (void)state;
    const unsigned rounds = 100, ticks = 6000;
    uint64_t seed = made_seed("histories").state;
    struct model *model = malloc(sizeof(*model));
    uint64_t counted = 0, grants = 0, expired = 0, manager = 0;
    double used = 0, most = 0;
    for (unsigned i = 0; i < rounds; i++) {
        memset(model, 0, sizeof(*model));
        play(model, seed + i, ticks);
        counted += model->counted;
        grants += model->grants;
        expired += model->expired;
        manager += model->manager;
        used += model->used / ticks / rounds;
        most = fmax(most, model->most);
    }
    free(model);
    printf("%u histories of a minute: %llu grants, %llu counted; %llu brokers;"
           " %.1f of 100 in use, at most %.1f; %.1f %% of the time without a"
           " lease\n",
           rounds, (unsigned long long)grants, (unsigned long long)counted,
           (unsigned long long)manager, used, most,
           100.0 * (double)expired / rounds / ticks / HOLDERS);
    assert_compare(used, >, 30);
    assert_compare(most, >, 99);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_histories),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
