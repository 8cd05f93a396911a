/* SPDX-License-Identifier: MIT
 * test_lease_holder_poisson.c - the effect of chance on a lease holder: how
 * much of a load equal to its grant is refused, and how often it sends
 * requests. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>

#include "compare.h"
#include "core/base/rng.h"
#include "core/leased/lease_holder.h"

#define S WEIR_SECOND
#define MS WEIR_MILLISECOND
#define START (1000 * S)

/* Time until the next of Poisson requests. */
static double gap(struct weir_rng *rng, double rate)
{
    return -log(1 - weir_rng_unit(rng)) / rate;
}

/* The part of a Poisson load that a leaky bucket of 1.5 s refuses, when it
 * leaks at that many times the load. */
static double refused_part(struct weir_rng *rng, double load, double grant)
{
    double high = fmax(1, 1.5 * grant);
    double fill = 0;
    unsigned refused = 0;
    const unsigned requests = 400000;
    for (unsigned i = 0; i < requests; i++) {
        fill -= gap(rng, load) * grant;
        fill = fill > 0 ? fill : 0;
        if (fill + 1 > high)
            refused++;
        else
            fill += 1;
    }
    return (double)refused / requests;
}

static void test_headroom(void **state)
{
    (void)state;
    static const double loads[] = { 1, 10, 100, 1000 };
    static const double rooms[] = { 0, 0.125, WEIR_LEASE_HOLDER_HEADROOM, 0.5 };
    struct weir_rng rng = { 5 };
    printf("refused of a Poisson load, by headroom:\n%8s", "load");
    for (size_t j = 0; j < WEIR_COUNT_OF(rooms); j++)
        printf("%10g", rooms[j]);
    for (size_t i = 0; i < WEIR_COUNT_OF(loads); i++) {
        double parts[WEIR_COUNT_OF(rooms)];
        printf("\n%7g/s", loads[i]);
        for (size_t j = 0; j < WEIR_COUNT_OF(rooms); j++) {
            parts[j] = refused_part(&rng, loads[i], loads[i] * (1 + rooms[j]));
            printf("%9.4f%%", 100 * parts[j]);
        }
        if (loads[i] >= 10)
            assert_true(parts[2] < 0.005 && parts[2] <= parts[0] / 4);
    }
    printf("\n");
}

/* A holder that is granted its wants, under Poisson requests for ten minutes:
 * how often it sends requests, and how much it refuses by its own estimate. */
static void poisson(double load)
{
    struct weir_rng rng = { 9 };
    struct weir_lease_holder holder;
    weir_lease_holder_init(&holder, WEIR_STALE_LIMIT, false, 1, START);
    struct weir_lease_use total = { .offered = 0 };
    double next = gap(&rng, load), fill = 0, last = 0;
    unsigned asks = 0, refused = 0;
    uint64_t from = 0;
    for (weir_instant now = START; now < START + 660 * S; now += 10 * MS) {
        double t = (double)(now - START) / (double)S;
        for (; next <= t; next += gap(&rng, load)) {
            double grant = weir_lease_holder_limit(&holder, now);
            fill = fmax(0, fill - (next - last) * grant);
            last = next;
            total.offered++;
            bool passes = fill + 1 <= fmax(1, 1.5 * grant) && grant > 0;
            fill += passes;
            refused += !passes && t > 60;
        }
        if (t <= 60)
            from = total.offered;
        weir_lease_holder_use(&holder, &total, now);
        if (weir_lease_holder_due(&holder) > now)
            continue;
        struct weir_lease_holder_ask ask;
        weir_lease_holder_ask(&holder, holder.number + 1, &ask, now);
        const struct weir_grant grant = { .serial = ask.number,
                                          .capacity = ask.wants,
                                          .lease = 20 * S,
                                          .safe_lease = 20 * S,
                                          .refresh = 5 * S };
        assert_true(
            weir_lease_holder_granted(&holder, ask.number, 1, &grant, now));
        asks += t > 60;
    }
    printf("%6g/s: %.2f asks a second, refused %.4f%%\n", load, asks / 600.0,
           100.0 * refused / (double)(total.offered - from));
    /* a refresh every 5 s is 0.21 requests a second */
    assert_compare(asks, <, 600);
    if (load >= 10)
        assert_compare(refused, <, 0.005 * (double)(total.offered - from));
}

static void test_chance_isnt_told_early(void **state)
{
    (void)state;
    static const double loads[] = { 0.2, 1, 10, 100, 1000 };
    for (size_t i = 0; i < WEIR_COUNT_OF(loads); i++)
        poisson(loads[i]);
}

/* A use that decays is granted less by each answer, which is reported at once;
 * this must not cause the next request, and so on. */
static void test_less_is_said_once(void **state)
{
    (void)state;
    struct weir_lease_holder holder;
    weir_lease_holder_init(&holder, WEIR_STALE_LIMIT, false, 1, START);
    struct weir_lease_use total = { .offered = 0 };
    const weir_duration round_trip = 50 * MS;
    unsigned asks = 0;
    for (weir_instant now = START; now < START + 40 * S; now += round_trip) {
        total.offered += now < START + 20 * S ? 50 : 0;
        weir_lease_holder_use(&holder, &total, now);
        if (weir_lease_holder_due(&holder) > now)
            continue;
        struct weir_lease_holder_ask ask;
        weir_lease_holder_ask(&holder, holder.number + 1, &ask, now);
        const struct weir_grant grant = { .serial = ask.number,
                                          .capacity = ask.wants,
                                          .lease = 20 * S,
                                          .safe_lease = 20 * S,
                                          .refresh = 5 * S };
        assert_true(weir_lease_holder_granted(&holder, ask.number, 1, &grant,
                                              now + round_trip));
        asks += now >= START + 20 * S;
    }
    printf("asks in 20 s of a use that fades: %u\n", asks);
    assert_compare(asks, <=, 20);
}

static void test_8000_dont_ask_at_one_instant(void **state)
{
    (void)state;
    static unsigned bins[80];
    unsigned most = 0;
    for (uint64_t i = 0; i < 8000; i++) {
        struct weir_lease_holder holder;
        weir_lease_holder_init(&holder, WEIR_STALE_LIMIT, false, i, START);
        weir_instant now = START;
        for (uint64_t serial = 1; now < START + 60 * S; serial++) {
            struct weir_lease_holder_ask ask;
            weir_lease_holder_ask(&holder, holder.number + 1, &ask, now);
            const struct weir_grant grant = { .serial = serial,
                                              .capacity = 50,
                                              .lease = 20 * S,
                                              .safe_lease = 20 * S,
                                              .refresh = 5 * S };
            assert_true(
                weir_lease_holder_granted(&holder, ask.number, 1, &grant, now));
            now = weir_lease_holder_due(&holder);
        }
        assert_compare(now, <, START + 65 * S);
        bins[(now - START - 60 * S) / (100 * MS)]++;
    }
    for (size_t i = 0; i < WEIR_COUNT_OF(bins); i++)
        most = bins[i] > most ? bins[i] : most;
    /* evenly spread it would be 160 in each 100 ms */
    printf("after a minute, of 8,000 in 100 ms at most: %u\n", most);
    assert_compare(most, <, 800);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_headroom),
        cmocka_unit_test(test_chance_isnt_told_early),
        cmocka_unit_test(test_less_is_said_once),
        cmocka_unit_test(test_8000_dont_ask_at_one_instant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
