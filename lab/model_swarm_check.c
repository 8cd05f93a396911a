/* SPDX-License-Identifier: MIT
 * lab/model_swarm_check.c - the checkers of the model "swarm". All but the last
 * judge after each event; the first violation is kept.
 *
 * parts. Of a root that is master, with a lease pool for the quota: let L be
 * the limit that its controller found, C the pool's capacity, O the amount that
 * the pool accounts as out, A(i) that of process i, and G(i) the limit by which
 * the gate of process i goes, if it goes by a part of the fleet's limit.
 *
 *     min <= L <= max, as this root has the quota          unless it learns
 *     C <= L                                               unless it learns
 *     O <= max(C, C and O after the event before)          unless it learns
 *     G(i) <= A(i), and so in sum at most O                if it was heard
 *
 * So O is above C only while a lowered limit waits for the holders' answers, or
 * for the end of their leases, and doesn't rise meanwhile. (A root also learns
 * while it hears processes that have limits of their own, after an edit of the
 * scope.) A pool that learns has capacity and account from the reports of its
 * holders, and a process that it hasn't heard goes by the lease of another
 * master; that one isn't judged, but within two leases of the mastership's
 * begin only. Of a quota that was removed, or is a process's now, the pool has
 * O alone: the sum of G is compared with that. A process that stands still lets
 * nothing in and isn't judged, and a node whose turn is due is judged after
 * that. Leases are promised to clocks that run evenly: for two leases after a
 * clock was set, G isn't compared with A. And a process that no master has
 * answered since the quota came, or became the fleet's, goes by the limit that
 * it has found itself, or lets one request in at a time (WEIR_GIVEN_FIRST), in
 * no account: until its first request, and for BEGINNING after that at most.
 * One that was unused for long, and has given its part back, lets in no more
 * than one at a time either.
 *
 * stops. A process without anything in flight, whose limit is one or more,
 * lets a request in at once. With any lower limit it lets one in at the latest
 * IDLE_MOST after it refused the first: a fraction's pause is ten seconds at
 * most, and a part of nothing waits for the leases of others.
 *
 * busy. In no second does a node take more turns than TURNS_MOST, and
 * TURNS_A_MESSAGE for each message and request, and on no link between a
 * limiter and a root are there more than MESSAGES_MOST messages: on average
 * over all nodes, and over all links.
 *
 * recovery. At the end, over the time from 'settle' after the last fault: the
 * rate let in is at least GOODPUT_LEAST of the lesser of the offered rate and
 * the storage's capacity; the p95 is at most P95_MOST times the target, and in
 * windows of 5 s it is over WINDOW_OVER times the target in at most
 * WINDOWS_OVER_MOST of them (the controller keeps it at 0.97 of the target, and
 * that of a few hundred requests lies around it by chance); of processes with
 * equal load each has its share within SHARE_BAND, and as much as chance makes
 * of its requests; and each of these goes by a part that the master has leased
 * to it. */

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/node/root_adaptive.h"
#include "core/node/root_lease.h"
#include "core/quota/quota_adaptive.h"
#include "lab/memory.h"
#include "lab/model_swarm_internal.h"
#include "lab/run.h"

#define TINY 1e-9
#define TWO_LEASES (2 * WEIR_FLEET_LEASE)
#define IDLE_MOST (15 * WEIR_SECOND)
/* A holder's first answer is awaited for so long, and a look or two. */
#define BEGINNING (WEIR_LEASE_HOLDER_FIRST + WEIR_SECOND / 2)
#define TURNS_MOST 200
#define TURNS_A_MESSAGE 4
/* Ten times a second at most, each: an ask and its answer, and a push with the
 * ask that takes it and its answer; each of them may be doubled, and after a
 * fault those come, too, that were held up. */
#define MESSAGES_MOST 200
#define GOODPUT_LEAST 0.8
#define WINDOW (5 * WEIR_SECOND)
#define WINDOWS_MAX 16
#define WINDOW_OVER 1.1
#define WINDOWS_OVER_MOST 0.25
#define P95_MOST 1.1
#define SHARE_BAND 0.2
#define DEVIATIONS 4 /* of a number of requests that come by chance */

/* A root that is master. */
struct office {
    uint64_t term; /* 0: it isn't */
    weir_instant since;
    bool known; /* the next are, after the event before */
    bool learning;
    double capacity, out;
};

struct judged_process {
    weir_instant began; /* it goes by a part of the fleet's limit since then,
                         * 0: it has no such gate … */
    double first;       /* … and had this limit before */
    bool unused;        /* … and has had no request */
    weir_instant idle_since; /* it has refused, without anything in flight,
                              * since then; 0: it hasn't */
    uint64_t let_in;         /* while recovery is judged */
};

struct latencies {
    double *values; /* owned */
    size_t count, capacity;
};

struct swarm_check {
    struct swarm_stage *s;
    char sentence[512];
    struct office office[SWARM_ROOTS_MAX];
    weir_instant doubt_until;
    struct judged_process process[SWARM_LIMITERS_MAX];
    weir_duration idle_most;
    /* The present second. */
    weir_instant second;
    uint64_t turns, requests, messages_before;
    double messages_most, turns_most; /* of any second so far */
    /* Recovery. */
    uint64_t offered, let_in;
    struct latencies window[WINDOWS_MAX];
};

struct swarm_check *weir_swarm_check_new(struct swarm_stage *s)
{
    struct swarm_check *check = weir_must_zeroed(1, sizeof(*check));
    check->s = s;
    check->second = weir_fleet_now(s->fleet);
    return check;
}

void weir_swarm_check_free(struct swarm_check *check)
{
    if (!check)
        return;
    for (size_t i = 0; i < WINDOWS_MAX; i++)
        free(check->window[i].values);
    free(check);
}

const char *weir_swarm_check_sentence(const struct swarm_check *check)
{
    return check->sentence[0] ? check->sentence : NULL;
}

static void violated(struct swarm_check *check, const char *checker,
                     const char *what, ...)
    __attribute__((format(printf, 3, 4)));

static void violated(struct swarm_check *check, const char *checker,
                     const char *what, ...)
{
    if (check->sentence[0])
        return;
    size_t size = sizeof(check->sentence);
    int len = snprintf(check->sentence, size, "%s: ", checker);
    va_list arguments;
    va_start(arguments, what);
    vsnprintf(check->sentence + len, size - (size_t)len, what, arguments);
    va_end(arguments);
}

static weir_instant root_now(const struct swarm_check *check, uint32_t root)
{
    return weir_fleet_clock_of(check->s->fleet, weir_root_place(root));
}

static bool is_above(double value, double most)
{
    return value > most + TINY * (1 + most);
}

/* ---- parts ---- */

/* What the master accounts its holders with. */
struct account {
    double out[SWARM_LIMITERS_MAX];
    bool heard[SWARM_LIMITERS_MAX];
};

/* Processes are known by their names here; a process that died and came back
 * is two holders for a while. */
static void read_swarm_account(const struct weir_root *root,
                               struct account *out, weir_instant now)
{
    struct weir_lease_holder_stats holder;
    struct weir_text client;
    uint32_t cursor = 0;
    memset(out, 0, sizeof(*out));
    while (weir_lease_manager_look_holder(weir_root_lease_manager(root),
                                          WEIR_TEXT(SWARM_NAME), &cursor,
                                          &client, &holder, now)) {
        struct weir_text name = weir_root_lease_client_name(root, client);
        unsigned number = 0;
        char text[32];
        snprintf(text, sizeof(text), "%.*s", (int)name.len, name.p);
        weir_assert(sscanf(text, "limiter%u", &number) == 1);
        weir_assert(number >= 1 && number <= SWARM_LIMITERS_MAX);
        out->out[number - 1] += weir_larger(holder.out, holder.granted);
        out->heard[number - 1] = true;
    }
}

/* The process's gate; false: it has none that is the fleet's. */
static bool swarm_gate(const struct swarm_stage *s, uint32_t limiter,
                       struct weir_lease_view *out)
{
    struct weir_table *table = weir_fleet_table(s->fleet, limiter);
    struct weir_ref ref;
    if (!table || !weir_table_find(table, WEIR_TEXT(SWARM_NAME), &ref))
        return false;
    weir_table_lease_view(table, ref.slot, out);
    return out->adaptive;
}

/* Whether it still goes by the limit with which it began. */
static bool is_beginning(const struct swarm_check *check, uint32_t limiter,
                         double part)
{
    const struct judged_process *process = &check->process[limiter];
    bool young = weir_fleet_now(check->s->fleet) < process->began + BEGINNING;
    return part == WEIR_GIVEN_FIRST ||
           ((young || process->unused) && part == process->first);
}

/* A part that is judged. */
static bool judged_part(const struct swarm_check *check, uint32_t limiter,
                        double *out)
{
    const struct swarm_stage *s = check->s;
    struct weir_node_place place = weir_limiter_place(limiter);
    const struct weir_limiter *l = weir_fleet_limiter(s->fleet, limiter);
    struct weir_lease_view gate;
    if (!swarm_gate(s, limiter, &gate) || s->node[0][limiter].paused ||
        gate.leasing != WEIR_LEASING_GRANTED ||
        is_beginning(check, limiter, gate.granted))
        return false;
    *out = gate.granted;
    weir_instant now = weir_fleet_clock_of(s->fleet, place);
    return weir_limiter_deadline(l, now) > now;
}

/* Notes since when gates go by a part, and by which limit they began. */
static void follow_gates(struct swarm_check *check)
{
    for (uint32_t i = 0; i < check->s->limiters; i++) {
        struct judged_process *process = &check->process[i];
        struct weir_lease_view gate;
        if (!swarm_gate(check->s, i, &gate)) {
            process->began = 0;
        } else if (process->began == 0 ||
                   gate.leasing != WEIR_LEASING_GRANTED) {
            process->began = weir_fleet_now(check->s->fleet);
            process->first = gate.granted;
            process->unused = true;
        }
    }
}

/* The quota has gone, or isn't the fleet's any more: the pool has the sum of
 * what is still out. */
static void check_rest(struct swarm_check *check, uint32_t root, double out)
{
    double sum = 0;
    for (uint32_t i = 0; i < check->s->limiters; i++) {
        double part;
        if (judged_part(check, i, &part) && part > WEIR_GIVEN_FIRST)
            sum += part;
    }
    if (is_above(sum, out))
        violated(
            check, "parts",
            "processes go by %.9g of a quota that root%u doesn't lease any "
            "more, and accounts with %.9g",
            sum, root + 1, out);
}

static void check_gates(struct swarm_check *check, uint32_t root,
                        const struct weir_leased_stats *stats)
{
    const struct swarm_stage *s = check->s;
    weir_instant now = weir_fleet_now(s->fleet);
    if (now < check->doubt_until)
        return;
    bool young = now < check->office[root].since + TWO_LEASES;
    bool learns = stats ? stats->pool.learning : young;
    struct account account;
    read_swarm_account(weir_fleet_root(s->fleet, root), &account,
                       root_now(check, root));
    for (uint32_t i = 0; i < s->limiters; i++) {
        double part;
        if ((learns && young && !account.heard[i]) ||
            !judged_part(check, i, &part) ||
            (!account.heard[i] && part <= WEIR_GIVEN_FIRST))
            continue;
        s->run->checked.parts++;
        if (is_above(part, account.out[i]))
            violated(
                check, "parts",
                "limiter%u goes by %.9g, and root%u, the master, accounts it "
                "with %.9g",
                i + 1, part, root + 1, account.out[i]);
    }
}

/* Whether the root has the quota as one of a fleet: its bounds. */
static bool quota_bounds(struct weir_root *root, double *out_min,
                         double *out_max)
{
    const struct weir_quota *quota =
        weir_catalog_get(weir_root_catalog(root), WEIR_TEXT(SWARM_NAME));
    if (!quota || quota->scope != WEIR_SCOPE_FLEET)
        return false;
    struct weir_concurrency_gate_options gate;
    weir_quota_gate(quota, 1, &gate);
    *out_min = gate.controller.min;
    *out_max = gate.controller.max;
    return true;
}

static void check_found_limit(struct swarm_check *check, uint32_t index,
                              const struct weir_leased_stats *stats)
{
    struct weir_root *root = weir_fleet_root(check->s->fleet, index);
    struct weir_fleet_limit_view view;
    double min, max;
    if (stats->pool.learning || !quota_bounds(root, &min, &max) ||
        !weir_root_adaptive_view(root, WEIR_TEXT(SWARM_NAME), &view,
                                 root_now(check, index)) ||
        view.learning)
        return;
    double limit = view.controller.limit;
    if (is_above(limit, max) || is_above(min, limit))
        violated(check, "parts", "root%u has found %.9g, not %.9g .. %.9g",
                 index + 1, limit, min, max);
    if (is_above(stats->pool.capacity, limit))
        violated(check, "parts", "root%u leases %.9g out, and has found %.9g",
                 index + 1, stats->pool.capacity, limit);
}

static void check_pool(struct swarm_check *check, uint32_t index,
                       const struct weir_leased_stats *stats)
{
    struct office *office = &check->office[index];
    check_found_limit(check, index, stats);
    const struct weir_lease_pool_stats *pool = &stats->pool;
    double most = pool->capacity;
    if (office->known)
        most = fmax(most, fmax(office->capacity, office->out));
    bool learns = pool->learning || office->learning;
    if (!learns && office->known && is_above(pool->out, most))
        violated(check, "parts",
                 "root%u has leased %.9g out, of %.9g; it was %.9g of %.9g",
                 index + 1, pool->out, pool->capacity, office->out,
                 office->capacity);
    office->known = true;
    office->learning = pool->learning;
    office->capacity = pool->capacity;
    office->out = pool->out;
}

static void check_office(struct swarm_check *check, uint32_t index)
{
    struct office *office = &check->office[index];
    struct weir_root *root = weir_fleet_root(check->s->fleet, index);
    if (!root || !weir_root_leases(root)) {
        office->term = 0;
        return;
    }
    if (office->term != weir_root_lease_term(root))
        *office = (struct office){ .term = weir_root_lease_term(root),
                                   .since = weir_fleet_now(check->s->fleet) };
    const struct weir_lease_manager *manager = weir_root_lease_manager(root);
    weir_instant now = root_now(check, index);
    struct weir_leased_stats stats;
    struct weir_text name = WEIR_TEXT(SWARM_NAME);
    bool leased = weir_lease_manager_look_of(manager, name, &stats, now);
    if (!leased && weir_lease_manager_left_of(manager, name, &stats, now)) {
        office->known = false;
        check_rest(check, index, stats.pool.out);
        return;
    }
    check_gates(check, index, leased ? &stats : NULL);
    if (!leased)
        office->known = false;
    else if (weir_root_deadline(root, now) > now)
        check_pool(check, index, &stats);
}

void weir_swarm_check_clock(struct swarm_check *check)
{
    check->doubt_until = weir_fleet_now(check->s->fleet) + TWO_LEASES;
}

/* ---- stops ---- */

static bool is_judged_now(const struct swarm_check *check)
{
    const struct swarm_stage *s = check->s;
    return weir_fleet_now(s->fleet) >= s->mended + swarm_time(s, SWARM_SETTLE);
}

void weir_swarm_check_request(struct swarm_check *check, uint32_t limiter,
                              const struct weir_concurrency_gate_view *gate,
                              bool admitted)
{
    struct judged_process *process = &check->process[limiter];
    weir_instant now = weir_fleet_now(check->s->fleet);
    check->requests++;
    check->s->run->checked.requests++;
    if (process->unused)
        process->began = now;
    process->unused = false;
    if (is_judged_now(check)) {
        check->offered++;
        check->let_in += admitted;
        process->let_in += admitted;
    }
    if (!gate || admitted || gate->in_flight > 0) {
        process->idle_since = 0;
        return;
    }
    if (gate->controller.limit >= 1)
        violated(
            check, "stops",
            "limiter%u has nothing in flight, and refuses by a limit of %.9g",
            limiter + 1, gate->controller.limit);
    if (process->idle_since == 0)
        process->idle_since = now;
    weir_duration idle = now - process->idle_since;
    if (idle > check->idle_most)
        check->idle_most = idle;
    if (idle > IDLE_MOST)
        violated(check, "stops",
                 "limiter%u has let nothing in for %.3f s, by a limit of %.9g",
                 limiter + 1, (double)idle / 1e9, gate->controller.limit);
}

/* ---- busy ---- */

static void close_second(struct swarm_check *check)
{
    struct weir_fleet_stats stats;
    weir_fleet_stats(check->s->fleet, &stats);
    check->second += WEIR_SECOND;
    check->messages_before = stats.messages;
    check->turns = check->requests = 0;
}

static void check_second(struct swarm_check *check)
{
    const struct swarm_stage *s = check->s;
    struct weir_fleet_stats stats;
    weir_fleet_stats(s->fleet, &stats);
    double messages = (double)(stats.messages - check->messages_before);
    double a_link = messages / (s->limiters * s->roots);
    double turns = (double)check->turns -
                   TURNS_A_MESSAGE * (messages + (double)check->requests);
    double a_node = turns / (s->limiters + s->roots);
    check->messages_most = fmax(check->messages_most, a_link);
    check->turns_most = fmax(check->turns_most, a_node);
    if (a_link > MESSAGES_MOST)
        violated(check, "busy",
                 "%.0f messages a link in a second; at most %u are allowed",
                 a_link, MESSAGES_MOST);
    if (a_node > TURNS_MOST)
        violated(check, "busy",
                 "%.0f turns a node in a second, without cause; at most %u are "
                 "allowed",
                 a_node, TURNS_MOST);
}

/* ---- Events ---- */

void weir_swarm_check_event(struct swarm_check *check, const char *part)
{
    const struct swarm_stage *s = check->s;
    bool turn = strcmp(part, "limiter") == 0 || strcmp(part, "root") == 0;
    check->turns += turn;
    check_second(check);
    while (weir_fleet_now(s->fleet) >= check->second + WEIR_SECOND)
        close_second(check);
    if (weir_fleet_error(s->fleet) != 0)
        violated(check, "busy", "a node refused a message: %s",
                 weir_strerror(weir_fleet_error(s->fleet)));
    if (part == s->arrivals.name || part == s->answers.name)
        return;
    follow_gates(check);
    for (uint32_t i = 0; i < s->roots; i++)
        check_office(check, i);
}

/* ---- recovery ---- */

void weir_swarm_check_answer(struct swarm_check *check, weir_duration latency)
{
    const struct swarm_stage *s = check->s;
    if (!is_judged_now(check))
        return;
    weir_duration since =
        weir_fleet_now(s->fleet) - s->mended - swarm_time(s, SWARM_SETTLE);
    if (since / WINDOW >= WINDOWS_MAX)
        return;
    struct latencies *window = &check->window[since / WINDOW];
    window->values = weir_must_grow(window->values, &window->capacity,
                                    window->count + 1, sizeof(double));
    window->values[window->count++] = (double)latency;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double p95_of(struct latencies *window)
{
    qsort(window->values, window->count, sizeof(double), compare_doubles);
    return window->values[(window->count * 95 + 99) / 100 - 1];
}

static void judge_windows(struct swarm_check *check)
{
    double target = swarm_value(check->s, SWARM_TARGET);
    double over = 0, worst = 0, windows = 0;
    struct latencies all = { 0 };
    for (size_t i = 0; i < WINDOWS_MAX; i++) {
        struct latencies *window = &check->window[i];
        if (window->count == 0)
            continue;
        double p95 = p95_of(window);
        all.values = weir_must_grow(all.values, &all.capacity,
                                    all.count + window->count, sizeof(double));
        memcpy(all.values + all.count, window->values,
               window->count * sizeof(double));
        all.count += window->count;
        windows++;
        over += p95 > WINDOW_OVER * target;
        worst = fmax(worst, p95 / target);
    }
    check->s->run->metrics[SWARM_WINDOWS_OVER] = over / windows;
    check->s->run->metrics[SWARM_WORST_WINDOW] = worst;
    if (over > WINDOWS_OVER_MOST * windows)
        violated(
            check, "recovery",
            "the p95 is over the target by a tenth in %.0f of %.0f windows, "
            "and up to %.2f times of it",
            over, windows, worst);
    double p95 = p95_of(&all);
    if (p95 > P95_MOST * target)
        violated(check, "recovery", "the p95 is %.2f of the target",
                 p95 / target);
    free(all.values);
}

static void judge_goodput(struct swarm_check *check, double seconds)
{
    double offered = (double)check->offered / seconds;
    double best = fmin(offered, swarm_capacity(check->s));
    double goodput = (double)check->let_in / seconds / best;
    check->s->run->metrics[SWARM_GOODPUT] = goodput;
    if (!(goodput >= GOODPUT_LEAST))
        violated(check, "recovery",
                 "%.3f of the possible requests are let in: %.1f/s of %.1f/s",
                 goodput, goodput * best, best);
}

static void judge_shares(struct swarm_check *check)
{
    const struct swarm_stage *s = check->s;
    uint32_t first = (uint32_t)swarm_value(s, SWARM_LIGHT);
    double sum = 0, least = INFINITY, most = 0;
    for (uint32_t i = first; i < s->limiters; i++)
        sum += (double)check->process[i].let_in;
    double mean = sum / (s->limiters - first);
    double band = SHARE_BAND + DEVIATIONS / sqrt(mean);
    for (uint32_t i = first; i < s->limiters; i++) {
        double share = (double)check->process[i].let_in / mean;
        least = fmin(least, share);
        most = fmax(most, share);
        if (fabs(share - 1) > band)
            violated(check, "recovery",
                     "limiter%u has let in %.2f of the mean of its equals",
                     i + 1, share);
    }
    s->run->metrics[SWARM_SHARE_MIN] = least;
    s->run->metrics[SWARM_SHARE_MAX] = most;
}

/* All go by leases of the master; those with little load need not have any. */
static void judge_leases(struct swarm_check *check)
{
    const struct swarm_stage *s = check->s;
    const struct weir_root *root =
        s->master == SWARM_NONE ? NULL : weir_fleet_root(s->fleet, s->master);
    struct account account;
    if (!root || !weir_root_leases(root)) {
        violated(check, "recovery", "there is no master");
        return;
    }
    read_swarm_account(root, &account, root_now(check, s->master));
    for (uint32_t i = (uint32_t)swarm_value(s, SWARM_LIGHT); i < s->limiters;
         i++) {
        struct weir_lease_view gate;
        if (!account.heard[i] || !swarm_gate(s, i, &gate) ||
            gate.leasing != WEIR_LEASING_GRANTED)
            violated(check, "recovery", "limiter%u has no lease of root%u",
                     i + 1, s->master + 1);
    }
}

void weir_swarm_check_end(struct swarm_check *check)
{
    const struct swarm_stage *s = check->s;
    double *metrics = s->run->metrics;
    weir_instant from = s->mended + swarm_time(s, SWARM_SETTLE);
    weir_instant now = weir_fleet_now(s->fleet);
    metrics[SWARM_MESSAGES] = check->messages_most;
    metrics[SWARM_TURNS] = check->turns_most;
    metrics[SWARM_PAUSE] = (double)check->idle_most / 1e9;
    if (now <= from || check->offered == 0)
        return;
    s->run->checked.recoveries++;
    judge_leases(check);
    judge_goodput(check, (double)(now - from) / 1e9);
    judge_windows(check);
    judge_shares(check);
}
