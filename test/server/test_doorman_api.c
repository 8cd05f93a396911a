/* SPDX-License-Identifier: MIT
 * test/server/test_doorman_api.c - Doorman's calls, bytes in and bytes out, in
 * front of a root with leased quotas. */

#include "server/doorman/doorman_api.h"

#include <event2/event.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "compare.h"
#include "core/quota/long_name.h"
#include "io/clock.h"
#include "io/h2.h"
#include "patience.h"

#define LATER (10 * WEIR_SECOND) /* learning is over */
#define PEERS_MAX 4              /* a way below is that of a link */

struct world {
    struct event_base *base;
    struct weir_log log;
    struct weir_root *root;
    struct weir_mastership *mastership;
    struct weir_doorman_api *api;
    struct weir_arena arena;
    const char *lock;             /* that elects; NULL: no election */
    unsigned marks_asked;         /* of the store */
    weir_duration later;          /* when it calls, from now */
    uint32_t way;                 /* the client's connection */
    struct weir_root_names names; /* of the client */
    unsigned denied;
    struct weir_text sentence; /* of a refusal */
    struct weir_doorman_message answer;
};

static void on_change(void *context)
{
    (void)context;
}

static void add_quota(struct world *w, uint64_t epoch, const char *name,
                      const char *const *fields)
{
    struct weir_change change = { .removed = false };
    struct weir_diag diag;
    weir_quota_init(&change.quota);
    change.quota.name = weir_text_of(name);
    change.quota.epoch = change.quota.created = epoch;
    for (; fields[0]; fields += 2)
        assert_int_equal(weir_quota_set(&change.quota, weir_text_of(fields[0]),
                                        weir_text_of(fields[1]), &diag),
                         0);
    assert_int_equal(weir_quota_check(&change.quota, &diag), 0);
    assert_int_equal(weir_root_apply(w->root, &change, weir_clock_now()), 0);
}

static void make_root(struct world *w)
{
    static const char *const fair[] = { "sharing",  "leased",        "limit",
                                        "120/s",    "lease",         "60s",
                                        "refresh",  "15s",           "learning",
                                        "0s",       "safe_capacity", "5/2s",
                                        "on_stale", "share",         NULL };
    static const char *const learns[] = { "sharing", "leased", "limit",
                                          "120/s",   "lease",  "60s",
                                          "refresh", "15s",    NULL };
    static const char *const counted[] = { "limit", "5/s", NULL };
    struct weir_root_options options = { .mem = weir_mem_system,
                                         .name = WEIR_TEXT("root"),
                                         .incarnation = { 1 },
                                         .peers_max = PEERS_MAX };
    const struct weir_store_id id = { .uuid = { 1 } };
    weir_instant now = weir_clock_now();
    w->root = weir_root_new(&options, now);
    assert_non_null(w->root);
    assert_int_equal(weir_root_store(w->root, &id, 4, 0, now), 0);
    add_quota(w, 1, "fair", fair);
    add_quota(w, 2, "counted", counted);
    add_quota(w, 3, "many/*", fair);
    add_quota(w, 4, "learns", learns);
    weir_root_settle(w->root, now);
}

/* The store's side of the mark. */
static bool note_mark_asked(void *context)
{
    struct world *w = context;
    w->marks_asked++;
    return true;
}

static void become_master_as(struct world *w, bool alone)
{
    struct weir_mastership_options options = {
        .election = { .base = w->base,
                      .log = &w->log,
                      .kind = w->lock ? WEIR_ELECTION_FILE : WEIR_ELECTION_NONE,
                      .path = w->lock,
                      .identity = "here:1" },
        .alone = alone,
        .take_mark = note_mark_asked,
        .context = w,
        .root = w->root,
        .on_change = on_change,
    };
    struct weir_diag diag;
    assert_int_equal(weir_mastership_new(&options, &w->mastership, &diag), 0);
    weir_doorman_api_set_mastership(w->api, w->mastership, "here:1");
    while (STILL(!weir_root_leases(w->root)))
        event_base_loop(w->base, EVLOOP_ONCE);
}

static void become_master(struct world *w)
{
    become_master_as(w, false);
}

static void lose_mastership(struct world *w)
{
    weir_mastership_resign(w->mastership);
    weir_mastership_free(&w->mastership);
    weir_doorman_api_set_mastership(w->api, NULL, "");
}

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    w->log.level = WEIR_LOG_ERROR;
    w->names.set = &weir_name_set_all;
    w->way = WEIR_WAY_NONE;
    w->later = LATER;
    w->base = event_base_new();
    make_root(w);
    const struct weir_doorman_api_options options = { .root = w->root };
    w->api = weir_doorman_api_new(&options);
    w->arena.size = 1 << 20;
    w->arena.base = malloc(w->arena.size);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    weir_doorman_api_free(&w->api);
    weir_mastership_free(&w->mastership);
    weir_root_free(w->root);
    event_base_free(w->base);
    free(w->arena.base);
    free(w);
    return 0;
}

static const enum weir_doorman_type responses[] = {
    [WEIR_DOORMAN_METHOD_DISCOVERY] = WEIR_DOORMAN_DISCOVERY_RESPONSE,
    [WEIR_DOORMAN_METHOD_GET] = WEIR_DOORMAN_GET_RESPONSE,
    [WEIR_DOORMAN_METHOD_SERVER] = WEIR_DOORMAN_SERVER_RESPONSE,
    [WEIR_DOORMAN_METHOD_RELEASE] = WEIR_DOORMAN_RELEASE_RESPONSE,
};

/* Returns its status; the answer is in 'w'. */
static int call(struct world *w, enum weir_doorman_method method,
                const struct weir_doorman_message *request)
{
    static unsigned char bytes[1 << 18];
    int len = weir_doorman_encode(request, bytes, sizeof bytes);
    assert_compare(len, >=, 0);
    const struct weir_doorman_call what = { .method = method,
                                            .bytes = bytes,
                                            .len = (size_t)len,
                                            .way = w->way,
                                            .names = w->names };
    struct weir_text out;
    int status =
        weir_doorman_api_call(w->api, &what, &out, weir_clock_now() + w->later);
    w->sentence = out;
    if (status == WEIR_GRPC_OK)
        assert_int_equal(weir_doorman_decode(out.p, out.len, responses[method],
                                             &w->arena, &w->answer, NULL),
                         0);
    return status;
}

static int get(struct world *w, const char *client, const char *resource,
               double wants, double has)
{
    const struct weir_doorman_resource r = {
        .id = weir_text_of(resource),
        .has = { .given = true, .capacity = has },
        .wants = wants,
    };
    const struct weir_doorman_message m = { .type = WEIR_DOORMAN_GET_REQUEST,
                                            .id = weir_text_of(client),
                                            .count = 1,
                                            .resources = &r };
    return call(w, WEIR_DOORMAN_METHOD_GET, &m);
}

static int release(struct world *w, const char *client,
                   const struct weir_text *ids, size_t count)
{
    const struct weir_doorman_message m = {
        .type = WEIR_DOORMAN_RELEASE_REQUEST,
        .id = weir_text_of(client),
        .count = count,
        .released = ids,
    };
    return call(w, WEIR_DOORMAN_METHOD_RELEASE, &m);
}

static double granted(const struct world *w)
{
    assert_false(w->answer.mastership.given);
    assert_int_equal(w->answer.count, 1);
    return w->answer.grants[0].gets.capacity;
}

/* Before it becomes master this root grants nothing, and answers that the
 * master is unknown. */
static void test_not_master(void **state)
{
    struct world *w = *state;
    assert_int_equal(get(w, "c", "fair", 30, 0), WEIR_GRPC_OK);
    assert_int_equal(w->answer.count, 0);
    assert_true(w->answer.mastership.given);
    assert_int_equal(w->answer.mastership.address.len, 0);

    become_master(w);
    assert_int_equal(get(w, "c", "fair", 30, 0), WEIR_GRPC_OK);
    assert_float_equal(granted(w), 30, 0);
    weir_mastership_resign(w->mastership);
    assert_int_equal(get(w, "c", "fair", 30, 30), WEIR_GRPC_OK);
    assert_true(w->answer.mastership.given);
}

static void test_a_lease(void **state)
{
    struct world *w = *state;
    become_master(w);
    int64_t now_s =
        (int64_t)((weir_clock_now() + weir_clock_wall_offset()) / WEIR_SECOND);
    assert_int_equal(get(w, "c", "fair", 30, 0), WEIR_GRPC_OK);
    const struct weir_doorman_grant *grant = &w->answer.grants[0];
    assert_in_range(grant->gets.expiry_s, now_s + 69, now_s + 71);
    assert_int_equal(grant->gets.refresh_s, 15);
    assert_true(grant->safe_given);
    assert_float_equal(grant->safe_capacity, 2.5, 0);
}

/* A client is sent the configured safe capacity whatever is free; without one,
 * its part of the capacity. Any rate is safe at a quota with on_stale pass. */
static void test_safe_capacity(void **state)
{
    struct world *w = *state;
    static const char *const part[] = {
        "sharing", "leased",   "limit", "120/s",    "lease", "60s", "refresh",
        "15s",     "learning", "0s",    "on_stale", "share", NULL
    };
    become_master(w);
    add_quota(w, 5, "part", part);
    weir_root_settle(w->root, weir_clock_now());
    assert_int_equal(get(w, "a", "fair", 500, 0), WEIR_GRPC_OK);
    assert_float_equal(granted(w), 120, 0);
    assert_float_equal(w->answer.grants[0].safe_capacity, 2.5, 0);
    assert_int_equal(get(w, "b", "fair", 500, 0), WEIR_GRPC_OK);
    assert_float_equal(granted(w), 0, 0);
    assert_float_equal(w->answer.grants[0].safe_capacity, 2.5, 0);

    assert_int_equal(get(w, "a", "part", 500, 0), WEIR_GRPC_OK);
    assert_float_equal(w->answer.grants[0].safe_capacity, 120, 0);
    assert_int_equal(get(w, "b", "part", 500, 0), WEIR_GRPC_OK);
    assert_float_equal(granted(w), 0, 0);
    assert_float_equal(w->answer.grants[0].safe_capacity, 60, 0);
    assert_int_equal(get(w, "c", "learns", 500, 0), WEIR_GRPC_OK);
    assert_float_equal(w->answer.grants[0].safe_capacity, -1, 0);
}

/* An earlier process may have granted all, unless the operator knows better. */
static void test_cold_start(void **state)
{
    struct world *w = *state;
    become_master(w);
    assert_int_equal(get(w, "c", "learns", 30, 0), WEIR_GRPC_OK);
    assert_float_equal(granted(w), 0, 0);
}

static void test_cold_start_alone(void **state)
{
    struct world *w = *state;
    become_master_as(w, true);
    assert_int_equal(get(w, "c", "learns", 30, 0), WEIR_GRPC_OK);
    assert_float_equal(granted(w), 30, 0);
}

/* The first master of an election takes the mark of a new store. */
static void test_cold_start_of_a_new_store(void **state)
{
    struct world *w = *state;
    char path[] = "/tmp/weir-first-XXXXXX";
    int fd = mkstemp(path);
    assert_compare(fd, >=, 0);
    close(fd);
    w->lock = path;
    become_master(w);
    assert_int_equal(w->marks_asked, 1);
    assert_int_equal(get(w, "c", "learns", 30, 0), WEIR_GRPC_OK);
    assert_float_equal(granted(w), 0, 0);
    weir_mastership_set_mark(w->mastership, true);
    assert_int_equal(get(w, "c", "learns", 30, 0), WEIR_GRPC_OK);
    assert_float_equal(granted(w), 30, 0);

    /* The next one finds the trace of this one, though not the store. */
    lose_mastership(w);
    become_master(w);
    weir_mastership_set_mark(w->mastership, true);
    assert_int_equal(get(w, "c", "learns", 30, 0), WEIR_GRPC_OK);
    assert_float_equal(granted(w), 0, 0);
    unlink(path);
}

/* A root that knows without the mark, or that nothing elects, takes it all the
 * same, for a later one: that may find no trace of this one. */
static void test_each_master_takes_the_mark(void **state)
{
    struct world *w = *state;
    become_master(w);
    assert_int_equal(w->marks_asked, 1);
    weir_mastership_set_mark(w->mastership, true);
    assert_int_equal(get(w, "c", "learns", 30, 0), WEIR_GRPC_OK);
    assert_float_equal(granted(w), 0, 0);
    lose_mastership(w);

    become_master_as(w, true);
    assert_int_equal(w->marks_asked, 2);
    weir_mastership_set_mark(w->mastership, true);
    assert_int_equal(get(w, "c", "learns", 30, 0), WEIR_GRPC_OK);
    assert_float_equal(granted(w), 30, 0);
}

/* The mark is no proof for a root whose clients have leases, nor after its
 * mastership, nor if another root took it. */
static void test_marks_that_prove_nothing(void **state)
{
    struct world *w = *state;
    char path[] = "/tmp/weir-first-XXXXXX";
    int fd = mkstemp(path);
    assert_compare(fd, >=, 0);
    close(fd);
    w->lock = path;
    become_master(w);
    assert_int_equal(get(w, "old", "learns", 30, 20), WEIR_GRPC_OK);
    weir_mastership_set_mark(w->mastership, true);
    assert_int_equal(get(w, "c", "learns", 100, 0), WEIR_GRPC_OK);
    assert_float_equal(granted(w), 0, 0);
    lose_mastership(w);

    assert_int_equal(truncate(path, 0), 0);
    become_master(w);
    assert_int_equal(w->marks_asked, 2);
    weir_mastership_set_mark(w->mastership, false);
    assert_int_equal(get(w, "c", "learns", 100, 0), WEIR_GRPC_OK);
    assert_float_equal(granted(w), 0, 0);
    lose_mastership(w);

    assert_int_equal(truncate(path, 0), 0);
    become_master(w);
    weir_mastership_resign(w->mastership);
    weir_mastership_set_mark(w->mastership, true);
    assert_false(weir_root_leases(w->root));
    unlink(path);
}

/* Roots that promise no safe capacities wait for leases alone: for one of 60 s,
 * and 15 s that a limiter's clock may lose. */
static void wait_for_leases(struct world *w, bool promise, double at_last)
{
    static const char *const kept[] = { "sharing", "leased",        "limit",
                                        "120/s",   "lease",         "60s",
                                        "refresh", "15s",           "on_stale",
                                        "share",   "safe_capacity", "5/2s",
                                        NULL };
    add_quota(w, 5, "kept", kept);
    weir_root_settle(w->root, weir_clock_now());
    weir_root_lease_promise_safe(w->root, promise);
    become_master(w);
    w->later = 0;
    assert_int_equal(get(w, "c", "kept", 30, 0), WEIR_GRPC_OK);
    assert_float_equal(granted(w), 0, 0);
    assert_float_equal(w->answer.grants[0].safe_capacity, 2.5, 0);
    w->later = 76 * WEIR_SECOND;
    assert_int_equal(get(w, "c", "kept", 30, 0), WEIR_GRPC_OK);
    assert_float_equal(granted(w), at_last, 0);
}

static void test_one_lease_is_waited_for(void **state)
{
    wait_for_leases(*state, false, 30);
}

static void test_safe_capacities_are_waited_for(void **state)
{
    wait_for_leases(*state, true, 0);
}

/* Names without a leased quota pass, and are not accounted for. */
static void test_unknown(void **state)
{
    struct world *w = *state;
    static const char *const names[] = { "nobody", "counted" };
    become_master(w);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(get(w, "c", names[i], 1e6, 0), WEIR_GRPC_OK);
        assert_float_equal(granted(w), 1e6, 0);
        assert_float_equal(w->answer.grants[0].safe_capacity, -1, 0);
    }
    struct weir_doorman_api_stats stats;
    weir_doorman_api_stats(w->api, &stats);
    assert_int_equal(stats.unknown, 2);
}

static uint64_t bad_rows(const struct world *w)
{
    struct weir_doorman_api_stats stats;
    weir_doorman_api_stats(w->api, &stats);
    return stats.bad_rows;
}

/* A client that has a lease goes on with it, beyond its end, if the row is left
 * out: so it is told what it may use for the nearest good amount. */
static void test_bad_amounts(void **state)
{
    struct world *w = *state;
    static const struct {
        double wants, has, granted;
    } rows[] = {
        { INFINITY, 0, 120 }, { 1e19, 120, 120 }, { 120, NAN, 120 },
        { -1, 120, 0 },       { NAN, 0, 0 },      { 50, INFINITY, 50 },
        { -INFINITY, 50, 0 }, { NAN, NAN, 0 },    { NAN, 0, 0 },
    };
    become_master(w);
    for (size_t i = 0; i < WEIR_COUNT_OF(rows); i++) {
        assert_int_equal(get(w, "c", "fair", rows[i].wants, rows[i].has),
                         WEIR_GRPC_OK);
        assert_float_equal(granted(w), rows[i].granted, 0);
        assert_int_equal(bad_rows(w), i + 1);
    }
    assert_int_equal(get(w, "d", "fair", 120, 0), WEIR_GRPC_OK);
    assert_float_equal(granted(w), 120, 0);
}

static void test_refused(void **state)
{
    struct world *w = *state;
    become_master(w);
    assert_int_equal(get(w, "", "fair", 1, 0), WEIR_GRPC_INVALID_ARGUMENT);
    assert_int_equal(get(w, "c", "", 1, 0), WEIR_GRPC_INVALID_ARGUMENT);
    /* The original hands out amounts below 0, so a client may report one. */
    assert_int_equal(get(w, "c", "fair", 1, -50), WEIR_GRPC_OK);
    assert_float_equal(granted(w), 1, 0);
}

/* A server stands for its clients: of 120, three of four parts are granted to
 * it. More priorities than the lease pool takes are merged. */
static void test_a_server(void **state)
{
    struct world *w = *state;
    become_master(w);
    assert_int_equal(get(w, "c", "fair", 500, 0), WEIR_GRPC_OK);
    assert_int_equal(get(w, "c", "fair", 500, granted(w)), WEIR_GRPC_OK);
    struct weir_doorman_band bands[60];
    for (int i = 0; i < 60; i++)
        bands[i] = (struct weir_doorman_band){ .priority = i / 2,
                                               .num_clients = 1,
                                               .wants = 10 };
    struct weir_doorman_server_resource r = { .id = WEIR_TEXT("fair"),
                                              .band_count = 60,
                                              .bands = bands };
    const struct weir_doorman_message m = {
        .type = WEIR_DOORMAN_SERVER_REQUEST,
        .id = WEIR_TEXT("s:1"),
        .count = 1,
        .server_resources = &r,
    };
    /* The reported amount must be the granted one, to the bit. */
    double had = 120;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(call(w, WEIR_DOORMAN_METHOD_SERVER, &m), WEIR_GRPC_OK);
        r.has = (struct weir_doorman_lease){ .given = true,
                                             .capacity = granted(w) };
        assert_int_equal(get(w, "c", "fair", 500, had), WEIR_GRPC_OK);
        had = granted(w);
    }
    assert_int_equal(call(w, WEIR_DOORMAN_METHOD_SERVER, &m), WEIR_GRPC_OK);
    assert_float_equal(granted(w), 120. * 60 / 61, 1e-9);
    /* The configured safe capacity, of each client. */
    assert_float_equal(w->answer.grants[0].safe_capacity, 2.5, 0);
    const struct weir_doorman_algorithm *algorithm =
        &w->answer.grants[0].algorithm;
    assert_true(algorithm->given);
    assert_int_equal(algorithm->kind, WEIR_DOORMAN_FAIR_SHARE);
    assert_int_equal(algorithm->lease_length_s, 60);
    assert_int_equal(algorithm->refresh_s, 15);
    assert_true(algorithm->learning_given);
    assert_int_equal(algorithm->learning_s, 0);
    assert_int_equal(algorithm->parameter_count, 0);

    bands[7].num_clients = 0;
    assert_int_equal(call(w, WEIR_DOORMAN_METHOD_SERVER, &m),
                     WEIR_GRPC_INVALID_ARGUMENT);
    assert_non_null(strstr(w->sentence.p, "subclients should be > 0"));
}

static int get_for_one_client(struct world *w, const char *const *resources,
                              size_t count)
{
    const struct weir_doorman_band band = { .num_clients = 1, .wants = 1 };
    struct weir_doorman_server_resource rows[4];
    assert_compare(count, <=, WEIR_COUNT_OF(rows));
    for (size_t i = 0; i < count; i++)
        rows[i] = (struct weir_doorman_server_resource){
            .id = weir_text_of(resources[i]), .band_count = 1, .bands = &band
        };
    const struct weir_doorman_message m = { .type = WEIR_DOORMAN_SERVER_REQUEST,
                                            .id = WEIR_TEXT("s:1"),
                                            .count = count,
                                            .server_resources = rows };
    return call(w, WEIR_DOORMAN_METHOD_SERVER, &m);
}

/* A quota that doesn't say how long it learns learns for a lease; a resource
 * without a quota doesn't learn. */
static void test_learning_mode_duration(void **state)
{
    struct world *w = *state;
    static const char *const names[] = { "fair", "learns", "nobody" };
    static const int64_t learning_s[] = { 0, 60, 0 };
    become_master(w);
    assert_int_equal(get_for_one_client(w, names, 3), WEIR_GRPC_OK);
    assert_int_equal(w->answer.count, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_true(w->answer.grants[i].algorithm.learning_given);
        assert_int_equal(w->answer.grants[i].algorithm.learning_s,
                         learning_s[i]);
    }
}

static struct weir_catalog *catalog(void *context)
{
    return weir_root_catalog(((struct world *)context)->root);
}

static int ignore_store(void *context, const struct weir_store_id *id,
                        uint64_t epoch, uint64_t floor, weir_instant now)
{
    (void)context, (void)id, (void)epoch, (void)floor, (void)now;
    return 0;
}

static int ignore_change(void *context, const struct weir_change *change,
                         weir_instant now)
{
    (void)context, (void)change, (void)now;
    return 0;
}

static void ignore_settle(void *context,
                          const struct weir_lineage_entry *newest,
                          weir_instant now)
{
    (void)context, (void)newest, (void)now;
}

/* The root's quotas come from a Doorman file, whose entries have a parameter of
 * that length and one without a value. */
static struct weir_doorman_source *open_file(struct world *w, size_t len)
{
    char path[] = "/tmp/weir-doorman.XXXXXX";
    FILE *file = fdopen(mkstemp(path), "w");
    assert_non_null(file);
    fputs("resources:\n", file);
    for (int i = 0; i < 2; i++) {
        fprintf(file,
                "- identifier_glob: %s\n  capacity: 120\n"
                "  algorithm: {kind: FAIR_SHARE, lease_length: 60, "
                "refresh_interval: 15, parameters: [{name: a, value: ",
                i == 0 ? "many/*" : "\"*\"");
        for (size_t k = 0; k < len; k++)
            fputc('v', file);
        fputs("}, {name: b}]}\n", file);
    }
    fclose(file);
    const struct weir_doorman_source_options options = {
        .log = &w->log,
        .catalog = catalog,
        .context = w,
        .place = { .path = weir_text_of(path) },
        .to = { .context = w,
                .on_store = ignore_store,
                .on_change = ignore_change,
                .on_settle = ignore_settle },
    };
    struct weir_doorman_source *source = NULL;
    struct weir_diag diag = { 0 };
    if (weir_doorman_source_new(&options, &source, &diag) < 0)
        fail_msg("%s", diag.text);
    unlink(path);
    weir_doorman_api_set_source(w->api, source);
    return source;
}

/* A server below receives the parameters of the entry that rules its resource,
 * as the original sends them. */
static void test_parameters(void **state)
{
    struct world *w = *state;
    static const char *const names[] = { "fair", "many/1", "nobody" };
    become_master(w);
    struct weir_doorman_source *source = open_file(w, 3);
    assert_int_equal(get_for_one_client(w, names, 3), WEIR_GRPC_OK);
    assert_int_equal(w->answer.count, 3);
    const struct weir_doorman_algorithm *algorithm =
        &w->answer.grants[1].algorithm;
    assert_int_equal(algorithm->parameter_count, 2);
    assert_true(weir_text_equal(algorithm->parameters[0].name, WEIR_TEXT("a")));
    assert_true(
        weir_text_equal(algorithm->parameters[0].value, WEIR_TEXT("vvv")));
    assert_true(weir_text_equal(algorithm->parameters[1].name, WEIR_TEXT("b")));
    assert_int_equal(algorithm->parameters[1].value.len, 0);
    /* The file has no entry of that name, or of no quota. */
    assert_int_equal(w->answer.grants[0].algorithm.parameter_count, 0);
    assert_int_equal(w->answer.grants[2].algorithm.parameter_count, 0);
    weir_doorman_source_free(&source);
}

/* What is granted is answered, without the parameters if they have no room. */
static void test_parameters_are_too_long(void **state)
{
    struct world *w = *state;
    static const char *const names[] = { "many/1", "many/2", "many/3" };
    become_master(w);
    struct weir_doorman_source *source = open_file(w, 1500000);
    assert_int_equal(get_for_one_client(w, names, 2), WEIR_GRPC_OK);
    assert_int_equal(w->answer.count, 2);
    assert_int_equal(w->answer.grants[1].algorithm.parameter_count, 2);
    assert_int_equal(get_for_one_client(w, names, 3), WEIR_GRPC_OK);
    assert_int_equal(w->answer.count, 3);
    assert_int_equal(w->answer.grants[1].algorithm.parameter_count, 0);
    assert_int_equal(w->answer.grants[1].algorithm.lease_length_s, 60);
    weir_doorman_source_free(&source);
}

/* Duplicates are decided and answered twice; no resource gives an empty
 * answer. */
static void test_many_and_none(void **state)
{
    struct world *w = *state;
    become_master(w);
    const struct weir_doorman_resource twice[] = {
        { .id = WEIR_TEXT("fair"), .wants = 3 },
        { .id = WEIR_TEXT("fair"), .wants = 5 },
    };
    struct weir_doorman_message m = { .type = WEIR_DOORMAN_GET_REQUEST,
                                      .id = WEIR_TEXT("c"),
                                      .count = 2,
                                      .resources = twice };
    assert_int_equal(call(w, WEIR_DOORMAN_METHOD_GET, &m), WEIR_GRPC_OK);
    assert_int_equal(w->answer.count, 2);
    assert_float_equal(w->answer.grants[1].gets.capacity, 5, 0);
    m.count = 0;
    assert_int_equal(call(w, WEIR_DOORMAN_METHOD_GET, &m), WEIR_GRPC_OK);
    assert_int_equal(w->answer.count, 0);
    assert_false(w->answer.mastership.given);
}

/* Requests resources of a flood of names, from that number on. */
static int get_many(struct world *w, unsigned first, size_t count)
{
    static struct weir_doorman_resource rows[WEIR_DOORMAN_ROWS_MAX + 1];
    static char names[WEIR_DOORMAN_ROWS_MAX + 1][20];
    for (size_t i = 0; i < count; i++) {
        snprintf(names[i], sizeof names[i], "many/%zu", first + i);
        rows[i] = (struct weir_doorman_resource){ .id = weir_text_of(names[i]),
                                                  .wants = 1 };
    }
    const struct weir_doorman_message m = { .type = WEIR_DOORMAN_GET_REQUEST,
                                            .id = WEIR_TEXT("flood"),
                                            .count = count,
                                            .resources = rows };
    return call(w, WEIR_DOORMAN_METHOD_GET, &m);
}

/* Made-up names fill half of the table: known names are granted beside them,
 * limiters have the other half, and a call has a bound of its own. */
static void test_a_flood(void **state)
{
    struct world *w = *state;
    become_master(w);
    assert_int_equal(get_many(w, 0, WEIR_DOORMAN_ROWS_MAX + 1),
                     WEIR_GRPC_RESOURCE_EXHAUSTED);
    unsigned known = 0;
    for (; known < WEIR_GUESTS_LEASED_MAX; known += WEIR_DOORMAN_ROWS_MAX) {
        assert_int_equal(get_many(w, known, WEIR_DOORMAN_ROWS_MAX),
                         WEIR_GRPC_OK);
        assert_int_equal(w->answer.count, WEIR_DOORMAN_ROWS_MAX);
    }
    assert_int_equal(get_many(w, known - 3, 10), WEIR_GRPC_OK);
    assert_int_equal(w->answer.count, 3);
    assert_true(
        weir_text_equal(w->answer.grants[2].id, WEIR_TEXT("many/32767")));
    assert_int_equal(get_many(w, known, 10), WEIR_GRPC_RESOURCE_EXHAUSTED);
    uint32_t holders;
    assert_int_equal(
        weir_lease_manager_count(weir_root_lease_manager(w->root), &holders),
        WEIR_GUESTS_LEASED_MAX);
}

static void on_denied(void *context, struct weir_text name, weir_instant now)
{
    (void)now;
    struct world *w = context;
    assert_true(weir_text_equal(name, WEIR_TEXT("fair")) ||
                weir_text_equal(name, WEIR_TEXT("nobody")));
    w->denied++;
}

/* A resource that the client has no right to isn't granted, leased or not. */
static void test_names_of_others(void **state)
{
    struct world *w = *state;
    struct weir_name_set set = { .all = false };
    become_master(w);
    assert_int_equal(get(w, "c", "fair", 30, 0), WEIR_GRPC_OK);
    assert_int_equal(weir_name_set_add(&set, WEIR_TEXT("many/*")), 0);
    w->names = (struct weir_root_names){ .set = &set,
                                         .context = w,
                                         .denied = on_denied };
    assert_int_equal(get(w, "d", "many/1", 30, 0), WEIR_GRPC_OK);
    assert_float_equal(granted(w), 30, 0);
    assert_int_equal(get(w, "d", "fair", 30, 0), WEIR_GRPC_PERMISSION_DENIED);
    assert_non_null(strstr(w->sentence.p, "may not take from 'fair'"));
    assert_int_equal(get(w, "d", "nobody", 30, 0), WEIR_GRPC_PERMISSION_DENIED);
    /* A release of a denied resource has no effect, and one of an empty id
     * isn't a denial. */
    const struct weir_text names[] = { WEIR_TEXT(""), WEIR_TEXT("fair") };
    assert_int_equal(release(w, "c", names, 2), WEIR_GRPC_OK);
    assert_int_equal(w->denied, 3);
    w->names.set = &weir_name_set_all;
    assert_int_equal(get(w, "e", "fair", 120, 0), WEIR_GRPC_OK);
    assert_float_equal(granted(w), 90, 0);
}

/* The original's client in Go releases an empty id for each of its resources
 * before the ids. A release passes over ids that no resource can have. */
static void test_release_of_odd_ids(void **state)
{
    struct world *w = *state;
    static char longer[WEIR_DOORMAN_ID_MAX + 1];
    memset(longer, 'x', sizeof longer);
    const struct weir_text ids[] = {
        WEIR_TEXT(""),        WEIR_TEXT(""),       { longer, sizeof longer },
        WEIR_TEXT("a\xff"),   WEIR_TEXT("a\0b"),   WEIR_TEXT("no-one's"),
        WEIR_TEXT("counted"), WEIR_TEXT("many/1"), WEIR_TEXT("fair"),
    };
    become_master(w);
    w->way = PEERS_MAX; /* a release that is known to come last */
    assert_int_equal(get(w, "c", "many/1", 120, 0), WEIR_GRPC_OK);
    assert_int_equal(get(w, "c", "fair", 120, 0), WEIR_GRPC_OK);
    assert_int_equal(release(w, "c", ids, WEIR_COUNT_OF(ids)), WEIR_GRPC_OK);
    assert_int_equal(get(w, "d", "many/1", 120, 0), WEIR_GRPC_OK);
    assert_float_equal(granted(w), 120, 0);
    assert_int_equal(get(w, "d", "fair", 120, 0), WEIR_GRPC_OK);
    assert_float_equal(granted(w), 120, 0);
}

/* The Go client requests all its resources by one call: a bad id is left out,
 * a bad amount answered, and both are counted. */
static void test_bad_rows(void **state)
{
    struct world *w = *state;
    static char longer[WEIR_DOORMAN_ID_MAX + 1];
    memset(longer, 'x', sizeof longer);
    const struct weir_doorman_resource rows[] = {
        { .id = WEIR_TEXT("fair"), .wants = NAN },
        { .id = WEIR_TEXT(""), .wants = 1 },
        { .id = WEIR_TEXT("a\xff"), .wants = 1 },
        { .id = { longer, sizeof longer }, .wants = 1 },
        { .id = WEIR_TEXT("many/1"), .wants = 5 },
    };
    const struct weir_doorman_message m = { .type = WEIR_DOORMAN_GET_REQUEST,
                                            .id = WEIR_TEXT("c"),
                                            .count = WEIR_COUNT_OF(rows),
                                            .resources = rows };
    become_master(w);
    assert_int_equal(call(w, WEIR_DOORMAN_METHOD_GET, &m), WEIR_GRPC_OK);
    assert_int_equal(w->answer.count, 2);
    assert_true(weir_text_equal(w->answer.grants[0].id, WEIR_TEXT("fair")));
    assert_float_equal(w->answer.grants[0].gets.capacity, 0, 0);
    assert_true(weir_text_equal(w->answer.grants[1].id, WEIR_TEXT("many/1")));
    assert_float_equal(w->answer.grants[1].gets.capacity, 5, 0);
    assert_int_equal(bad_rows(w), 4);
}

static void test_bad_rows_of_a_server(void **state)
{
    struct world *w = *state;
    const struct weir_doorman_band bands[] = {
        { .num_clients = 1, .wants = INFINITY },
        { .num_clients = 1, .wants = NAN },
        { .num_clients = 1, .wants = 10 },
    };
    const struct weir_doorman_server_resource rows[] = {
        { .id = WEIR_TEXT("fair"), .band_count = 3, .bands = bands },
        { .id = WEIR_TEXT("many/1"), .band_count = 1, .bands = bands + 2 },
        { .id = WEIR_TEXT("many/2"), .band_count = 1, .bands = bands + 1 },
        { .id = WEIR_TEXT(""), .band_count = 1, .bands = bands },
    };
    const struct weir_doorman_message m = { .type = WEIR_DOORMAN_SERVER_REQUEST,
                                            .id = WEIR_TEXT("s:1"),
                                            .count = WEIR_COUNT_OF(rows),
                                            .server_resources = rows };
    become_master(w);
    assert_int_equal(call(w, WEIR_DOORMAN_METHOD_SERVER, &m), WEIR_GRPC_OK);
    assert_int_equal(w->answer.count, 3);
    assert_float_equal(w->answer.grants[0].gets.capacity, 120, 0);
    assert_float_equal(w->answer.grants[1].gets.capacity, 10, 0);
    assert_float_equal(w->answer.grants[2].gets.capacity, 0, 0);
    assert_int_equal(bad_rows(w), 3);
}

/* If no row is granted, and one is good but has to wait, the client is to ask
 * again: a refusal would blame it for the wait. If none is good, the sentence
 * is that of the first row. */
static void test_no_row_is_granted(void **state)
{
    struct world *w = *state;
    struct weir_doorman_resource rows[] = {
        { .id = WEIR_TEXT("a\xff"), .wants = 1 },
        { .id = WEIR_TEXT("learns"), .wants = 30 },
        { .id = WEIR_TEXT(""), .wants = 30 },
    };
    const struct weir_doorman_message m = { .type = WEIR_DOORMAN_GET_REQUEST,
                                            .id = WEIR_TEXT("c"),
                                            .count = WEIR_COUNT_OF(rows),
                                            .resources = rows };
    become_master(w);
    weir_root_lease_found(w->root, 7); /* no grant before another number */
    assert_int_equal(call(w, WEIR_DOORMAN_METHOD_GET, &m), WEIR_GRPC_OK);
    assert_int_equal(w->answer.count, 0);
    assert_true(w->answer.mastership.given);
    assert_int_equal(bad_rows(w), 2);

    rows[1].id = WEIR_TEXT("");
    assert_int_equal(call(w, WEIR_DOORMAN_METHOD_GET, &m),
                     WEIR_GRPC_INVALID_ARGUMENT);
    assert_string_equal(w->sentence.p,
                        "resource_id must be UTF-8 without control characters");
    assert_int_equal(bad_rows(w), 5);
}

/* A long id is kept in the form of a long name: clients with different ids are
 * different holders, and one with the same id, over whatever call, is one. */
static void test_long_client_ids(void **state)
{
    struct world *w = *state;
    static char first[2001], second[2001];
    memset(first, 'x', 2000);
    memset(second, 'x', 2000);
    second[1999] = 'y';
    become_master(w);
    w->way = PEERS_MAX;
    assert_int_equal(get(w, first, "fair", 90, 0), WEIR_GRPC_OK);
    assert_float_equal(granted(w), 90, 0);
    assert_int_equal(get(w, second, "fair", 90, 0), WEIR_GRPC_OK);
    assert_float_equal(granted(w), 30, 0);
    assert_int_equal(get(w, first, "fair", 70, 90), WEIR_GRPC_OK);
    assert_float_equal(granted(w), 60, 0);
    const struct weir_text id = WEIR_TEXT("fair");
    assert_int_equal(release(w, first, &id, 1), WEIR_GRPC_OK);
    assert_int_equal(get(w, second, "fair", 200, 30), WEIR_GRPC_OK);
    assert_float_equal(granted(w), 120, 0);
}

/* An id that looks like a stored long one isn't the client of that long id. */
static void test_a_forged_client_id(void **state)
{
    struct world *w = *state;
    static char long_id[301], forged[WEIR_NAME_MAX + 1];
    struct weir_name_hash hash;
    memset(long_id, 'x', 300);
    const struct weir_text id = { long_id, 300 };
    weir_long_name_hash(id, &hash);
    forged[weir_long_name_store(id, &hash, NULL, forged)] = '\0';
    become_master(w);
    w->way = PEERS_MAX; /* a release that is known to come last */
    assert_int_equal(get(w, long_id, "fair", 120, 0), WEIR_GRPC_OK);
    assert_float_equal(granted(w), 120, 0);
    const struct weir_text name = WEIR_TEXT("fair");
    assert_int_equal(release(w, forged, &name, 1), WEIR_GRPC_OK);
    assert_int_equal(get(w, "c", "fair", 120, 0), WEIR_GRPC_OK);
    assert_float_equal(granted(w), 0, 0);
}

/* A client that may get as many resources by a call may release them by one,
 * with as many empty ids before. */
static void test_release_of_many(void **state)
{
    struct world *w = *state;
    static struct weir_text ids[2 * WEIR_DOORMAN_ROWS_MAX + 1];
    become_master(w);
    w->way = PEERS_MAX;
    assert_int_equal(get(w, "c", "fair", 120, 0), WEIR_GRPC_OK);
    for (size_t i = WEIR_DOORMAN_ROWS_MAX; i < WEIR_COUNT_OF(ids); i++)
        ids[i] = WEIR_TEXT("fair");
    assert_int_equal(release(w, "c", ids, WEIR_COUNT_OF(ids)),
                     WEIR_GRPC_RESOURCE_EXHAUSTED);
    assert_int_equal(release(w, "c", ids, 2 * WEIR_DOORMAN_ROWS_MAX),
                     WEIR_GRPC_OK);
    assert_int_equal(get(w, "d", "fair", 120, 0), WEIR_GRPC_OK);
    assert_float_equal(granted(w), 120, 0);
}

static void test_broken_bytes(void **state)
{
    struct world *w = *state;
    become_master(w);
    for (int method = 0; method < WEIR_DOORMAN_METHODS; method++) {
        const struct weir_doorman_call what = {
            .method = (enum weir_doorman_method)method,
            .bytes = "\x0a\xff",
            .len = 2,
            .way = WEIR_WAY_NONE,
            .names = w->names,
        };
        struct weir_text out;
        assert_int_equal(
            weir_doorman_api_call(w->api, &what, &out, weir_clock_now()),
            WEIR_GRPC_INVALID_ARGUMENT);
    }
}

int main(void)
{
#define TEST(NAME) cmocka_unit_test_setup_teardown(NAME, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_not_master),
        TEST(test_a_lease),
        TEST(test_unknown),
        TEST(test_refused),
        TEST(test_a_server),
        TEST(test_many_and_none),
        TEST(test_broken_bytes),
        TEST(test_a_flood),
        TEST(test_names_of_others),
        TEST(test_release_of_odd_ids),
        TEST(test_release_of_many),
        TEST(test_bad_amounts),
        TEST(test_bad_rows),
        TEST(test_bad_rows_of_a_server),
        TEST(test_no_row_is_granted),
        TEST(test_learning_mode_duration),
        TEST(test_parameters),
        TEST(test_parameters_are_too_long),
        TEST(test_long_client_ids),
        TEST(test_a_forged_client_id),
        TEST(test_safe_capacity),
        TEST(test_cold_start),
        TEST(test_cold_start_alone),
        TEST(test_one_lease_is_waited_for),
        TEST(test_safe_capacities_are_waited_for),
        TEST(test_cold_start_of_a_new_store),
        TEST(test_marks_that_prove_nothing),
        TEST(test_each_master_takes_the_mark),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
