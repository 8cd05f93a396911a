/* SPDX-License-Identifier: MIT
 * server/doorman/doorman_api.c - Doorman's calls, answered by the lease pools.
 *
 * Each call is decided and answered before the next one is read, so no state is
 * kept of it. The memory is an arena for the decoder, a list of grants
 * and the bytes of the answer, the last two as large as any call so far needed.
 *
 * An old client's messages and a lease pool's requests differ in this:
 *
 *   - A client receives leases in whole seconds of the wall clock. An expiry is
 *     rounded down, and the pool waits WEIR_DOORMAN_PATIENCE longer.
 *   - The amount that a client reports holding tells which grant it has taken,
 *     because it receives grants as answers only (leased/lease_pool.h,
 *     'streams').
 *   - A client is sent the quota's safe capacity as it is configured, which it
 *     may use without an end. So no account has it.
 *   - A client can't be pushed to. It asks at its own pace, and the answer is
 *     of the present state, however soon it asks again.
 *   - A 'has' below 0 is a grant that the original made by mistake: it is 0.
 *   - A client's id may have any length; a lease pool's has a bound. A long id
 *     is stored as a long name is.
 *   - A server that asks for many clients has bands; those of one priority are
 *     added up, and bands beyond the pool's bound go into the lowest.
 *
 * A resource without a leased quota is granted all that it asks for, like any
 * name without quota; the original crashed at one. The log names it, at most
 * once a minute, and it is counted. So is a bad row, which is left out of the
 * answer.
 *
 * The mastership is checked just before the answer is made: after that come a
 * few microseconds of arithmetic. A process that is stopped in them sends its
 * answer within the guard, or later only if its whole ttl has passed too; its
 * leases run from now by the clock. */

#include "server/doorman/doorman_api.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/quota/long_name.h"
#include "core/quota/quota_text.h"
#include "io/clock.h"
#include "io/h2.h"

const double weir_doorman_buckets_s[WEIR_DOORMAN_BUCKETS] = {
    .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10
};

struct weir_doorman_api {
    struct weir_root *root; /* borrowed, as the next three */
    struct weir_log *log;
    struct weir_mastership *mastership; /* NULL: not yet */
    const char *identity;
    const struct weir_doorman_source *source; /* NULL: none; borrowed */
    struct weir_arena arena;                  /* owned */
    struct weir_doorman_grant *grants;        /* owned */
    size_t grants_max;
    unsigned char *out; /* owned */
    size_t out_size;
    struct weir_doorman_api_stats stats;
    struct weir_diag diag; /* why a call was refused */
};

/* ---- The calls ---- */

static const struct method {
    const char *path;
    const char *name;
    enum weir_doorman_type request;
    enum weir_doorman_type response;
} methods[WEIR_DOORMAN_METHODS] = {
    { WEIR_DOORMAN_DISCOVERY, "Discovery", WEIR_DOORMAN_DISCOVERY_REQUEST,
      WEIR_DOORMAN_DISCOVERY_RESPONSE },
    { WEIR_DOORMAN_GET_CAPACITY, "GetCapacity", WEIR_DOORMAN_GET_REQUEST,
      WEIR_DOORMAN_GET_RESPONSE },
    { WEIR_DOORMAN_GET_SERVER_CAPACITY, "GetServerCapacity",
      WEIR_DOORMAN_SERVER_REQUEST, WEIR_DOORMAN_SERVER_RESPONSE },
    { WEIR_DOORMAN_RELEASE_CAPACITY, "ReleaseCapacity",
      WEIR_DOORMAN_RELEASE_REQUEST, WEIR_DOORMAN_RELEASE_RESPONSE },
};

const char *weir_doorman_method_name(enum weir_doorman_method method)
{
    return methods[method].name;
}

enum weir_doorman_method weir_doorman_method_of(const char *path)
{
    for (int i = 0; i < WEIR_DOORMAN_METHODS; i++)
        if (strcmp(path, methods[i].path) == 0)
            return (enum weir_doorman_method)i;
    return WEIR_DOORMAN_NONE;
}

/* The call that is being answered. */
struct answer {
    struct weir_doorman_api *api;
    const struct weir_doorman_message *request;
    uint32_t way;
    const struct weir_root_names *names;
    struct weir_doorman_message message;
    size_t bad_rows, unknown; /* of its rows */
    weir_instant now;
};

/* ---- A grant ---- */

static int64_t wall_s(weir_instant at)
{
    return (int64_t)((at + weir_clock_wall_offset()) / WEIR_SECOND);
}

static int64_t ceil_s(weir_duration d)
{
    return (int64_t)((d + WEIR_SECOND - 1) / WEIR_SECOND);
}

static double clients_of(const struct weir_lease_pool_ask *ask)
{
    double clients = ask->band_count == 0;
    for (size_t i = 0; i < ask->band_count; i++)
        clients += ask->bands[i].clients;
    return clients;
}

/* The configured one, or a client's part of the capacity, as the original sends
 * it: for each client, and below 0 without limit. The lease pool promises none
 * of it (leased/lease_pool.c). */
static double safe_for_client(const struct answer *a, struct weir_text id,
                              const struct weir_lease_pool_ask *ask,
                              const struct weir_grant *grant)
{
    struct weir_root *root = a->api->root;
    struct weir_captures captures;
    struct weir_leased_stats stats;
    const struct weir_quota *quota =
        weir_catalog_find(weir_root_catalog(root), id, &captures);
    if (!quota || quota->on_stale == WEIR_STALE_PASS)
        return -1;
    if (quota->on_stale == WEIR_STALE_LIMIT)
        return 0;
    if (quota->on_stale == WEIR_STALE_HOLD)
        return grant->capacity / clients_of(ask);
    double safe = weir_quota_safe(quota);
    if (safe >= 0 || !weir_lease_manager_look_of(weir_root_lease_manager(root),
                                                 id, &stats, a->now))
        return weir_larger(safe, 0);
    weir_assert(stats.pool.clients > 0);
    return stats.rule.capacity / (double)stats.pool.clients;
}

static void show_grant(const struct answer *a, struct weir_text id,
                       const struct weir_grant *grant, double safe,
                       struct weir_doorman_grant *out)
{
    *out = (struct weir_doorman_grant){
        .id = id,
        .gets = { .given = true,
                  .expiry_s = wall_s(a->now + grant->lease),
                  .refresh_s = ceil_s(grant->refresh),
                  .capacity = grant->capacity },
        .safe_given = true,
        .safe_capacity = safe,
    };
}

static void log_unknown_resource(struct answer *a, struct weir_text id,
                                 int error)
{
    struct weir_doorman_api *api = a->api;
    api->stats.unknown++;
    if (api->log && a->unknown++ == 0)
        weir_log_limited(
            api->log, WEIR_LOG_DOORMAN, WEIR_LOG_WARNING,
            "%.*s asks for %.*s, which %s: it is granted all that it asks for",
            (int)a->request->id.len, a->request->id.p, (int)id.len, id.p,
            error == WEIR_EQUOTA ? "has a quota that isn't leased"
                                 : "has no quota");
}

/* 'has' is given, and a number. */
static bool is_held(const struct weir_doorman_lease *has)
{
    return has->given && isfinite(has->capacity);
}

static double amount_held(const struct weir_doorman_lease *has)
{
    double capacity = is_held(has) ? has->capacity : 0;
    if (capacity > WEIR_LEASE_UNITS_MAX)
        return WEIR_LEASE_UNITS_MAX;
    return capacity > 0 ? capacity : 0;
}

static double sum_of_wants(const struct weir_band *bands, size_t count)
{
    double wants = 0;
    for (size_t i = 0; i < count; i++)
        wants += bands[i].wants;
    return wants;
}

/* Checks the right to take; a refusal is reported. 0 or WEIR_EDENIED. */
static int check_may_take(const struct answer *a, struct weir_text id)
{
    char shown[WEIR_SHOW_MAX];
    if (weir_name_set_has(a->names->set, id))
        return 0;
    if (a->names->denied)
        a->names->denied(a->names->context, id, a->now);
    return weir_diag_set(&a->api->diag, WEIR_EDENIED,
                         "this credential may not take from ",
                         weir_text_show(id, shown), NULL);
}

/* 0 and a grant, or WEIR_ENOTREADY, WEIR_EINVAL, WEIR_EFULL, WEIR_ENOMEM,
 * WEIR_EDENIED. */
static int request_lease_grant(struct answer *a, struct weir_text id,
                               const struct weir_lease_pool_ask *ask,
                               struct weir_doorman_grant *out)
{
    const struct weir_client client = { .id = a->request->id, .way = a->way };
    struct weir_grant grant;
    int error = check_may_take(a, id);
    if (error < 0)
        return error;
    error = weir_root_lease_ask(a->api->root, &client, id, ask, &grant, a->now);
    if (error < 0 && error != WEIR_ENOENT && error != WEIR_EQUOTA)
        return error;
    double safe = -1;
    if (error == 0) {
        safe = safe_for_client(a, id, ask, &grant);
    } else {
        log_unknown_resource(a, id, error);
        grant = (struct weir_grant){
            .lease = WEIR_DOORMAN_UNKNOWN_LEASE,
            .refresh = WEIR_DOORMAN_UNKNOWN_REFRESH,
            .capacity = sum_of_wants(ask->bands, ask->band_count),
        };
    }
    show_grant(a, id, &grant, safe, out);
    return 0;
}

static int get_one(struct answer *a, size_t index,
                   struct weir_doorman_grant *out)
{
    const struct weir_doorman_resource *r = &a->request->resources[index];
    const struct weir_band band = { .priority = r->priority,
                                    .clients = 1,
                                    .wants = weir_doorman_sound_wants(
                                        r->wants, WEIR_DOORMAN_WANTS_MAX) };
    const struct weir_lease_pool_ask what = { .bands = &band,
                                              .band_count = 1,
                                              .has = amount_held(&r->has),
                                              .mute = !is_held(&r->has),
                                              .guard = WEIR_DOORMAN_PATIENCE };
    return request_lease_grant(a, r->id, &what, out);
}

/* ---- A server that asks for many ---- */

static int by_priority(const void *a, const void *b)
{
    const struct weir_doorman_band *one = a;
    const struct weir_doorman_band *other = b;
    return (one->priority < other->priority) -
           (one->priority > other->priority);
}

static size_t gather_bands(const struct weir_doorman_server_resource *r,
                           struct weir_band out[WEIR_LEASE_BANDS_MAX])
{
    struct weir_doorman_band sorted[WEIR_DOORMAN_BANDS_MAX];
    double rest = WEIR_DOORMAN_WANTS_MAX;
    size_t count = 0;
    memcpy(sorted, r->bands, r->band_count * sizeof *sorted);
    qsort(sorted, r->band_count, sizeof *sorted, by_priority);
    for (size_t i = 0; i < r->band_count; i++) {
        const struct weir_doorman_band *band = &sorted[i];
        bool is_new = count == 0 || out[count - 1].priority != band->priority;
        if (is_new && count < WEIR_LEASE_BANDS_MAX)
            out[count++] = (struct weir_band){ .priority = band->priority };
        /* Over all bands there are at most WEIR_DOORMAN_CLIENTS_MAX. */
        out[count - 1].clients += (uint32_t)band->num_clients;
        double wants = weir_doorman_sound_wants(band->wants, rest);
        out[count - 1].wants += wants;
        rest -= wants;
    }
    return count;
}

static int32_t kind_of_share(enum weir_share_algorithm share)
{
    switch (share) {
    case WEIR_SHARE_NONE:
        return WEIR_DOORMAN_NO_ALGORITHM;
    case WEIR_SHARE_STATIC:
        return WEIR_DOORMAN_STATIC;
    case WEIR_SHARE_PROPORTIONAL:
        return WEIR_DOORMAN_PROPORTIONAL_SHARE;
    case WEIR_SHARE_FAIR:
    case WEIR_SHARE_PRIORITY:
        /* The nearest algorithm that the original knows. */
        return WEIR_DOORMAN_FAIR_SHARE;
    }
    weir_assert(false);
}

/* The parameters that a Doorman file gives to the quota's entry. */
static void show_parameters(const struct answer *a, struct weir_text id,
                            struct weir_doorman_algorithm *out)
{
    struct weir_doorman_source_state state = { .config = NULL };
    if (a->api->source)
        weir_doorman_source_state(a->api->source, &state);
    if (!state.config)
        return;
    struct weir_captures captures;
    const struct weir_quota *quota =
        weir_catalog_find(weir_root_catalog(a->api->root), id, &captures);
    const struct weir_doorman_template *entry =
        quota ? weir_doorman_config_get(state.config, quota->name) : NULL;
    if (!entry)
        return;
    out->parameter_count = entry->parameter_count;
    out->parameters = entry->parameters;
}

/* The algorithm that the server below is to use. A quota without a learning
 * time of its own learns for a lease, as in the original. This time is sent
 * too: a server of the proto3 forks takes an absent one for 0. */
static void show_algorithm(const struct answer *a,
                           struct weir_doorman_grant *out)
{
    struct weir_leased leased = {
        .rule = { .share = WEIR_SHARE_NONE,
                  .lease = WEIR_DOORMAN_UNKNOWN_LEASE,
                  .refresh = WEIR_DOORMAN_UNKNOWN_REFRESH },
    };
    (void)weir_root_lease_rule(a->api->root, out->id, &leased);
    out->algorithm = (struct weir_doorman_algorithm){
        .given = true,
        .kind = kind_of_share(leased.rule.share),
        .lease_length_s = ceil_s(leased.rule.lease),
        .refresh_s = ceil_s(leased.rule.refresh),
        .learning_given = true,
        .learning_s = ceil_s(leased.learning),
    };
    show_parameters(a, out->id, &out->algorithm);
}

static int get_for_many(struct answer *a, size_t index,
                        struct weir_doorman_grant *out)
{
    const struct weir_doorman_server_resource *r =
        &a->request->server_resources[index];
    struct weir_band bands[WEIR_LEASE_BANDS_MAX];
    const struct weir_lease_pool_ask what = { .bands = bands,
                                              .band_count =
                                                  gather_bands(r, bands),
                                              .has = amount_held(&r->has),
                                              .mute = !is_held(&r->has),
                                              .guard = WEIR_DOORMAN_PATIENCE };
    int error = request_lease_grant(a, r->id, &what, out);
    if (error == 0)
        show_algorithm(a, out);
    return error;
}

/* ---- Answers ---- */

static void answer_elsewhere(struct answer *a)
{
    const char *master = weir_mastership_master(a->api->mastership);
    a->message.count = 0;
    a->message.mastership =
        (struct weir_doorman_mastership){ .given = true,
                                          .address = weir_text_of(master) };
    a->api->stats.elsewhere++;
}

static bool fit_grants(struct weir_doorman_api *api, size_t count)
{
    if (count <= api->grants_max)
        return true;
    struct weir_doorman_grant *grants =
        realloc(api->grants, count * sizeof *grants);
    if (!grants)
        return false;
    api->grants = grants;
    api->grants_max = count;
    return true;
}

/* One a call, and one a minute: a client repeats its row until its program is
 * mended. */
static void note_bad_row(struct answer *a, const struct weir_diag *why)
{
    struct weir_doorman_api *api = a->api;
    api->stats.bad_rows++;
    if (api->log && a->bad_rows++ == 0)
        weir_log_limited(api->log, WEIR_LOG_DOORMAN_ROW, WEIR_LOG_WARNING,
                         "a bad row: %s; from client %.*s", why->text,
                         (int)a->request->id.len, a->request->id.p);
}

/* As request_lease_grant(), or WEIR_EINVAL: no resource can have this id. */
static int answer_row(struct answer *a, size_t index,
                      struct weir_doorman_grant *out)
{
    bool for_many = a->request->type == WEIR_DOORMAN_SERVER_REQUEST;
    struct weir_diag amounts = { 0 };
    int error = weir_doorman_check_row(a->request, index, &a->api->diag);
    if (error < 0)
        note_bad_row(a, &a->api->diag);
    else if (weir_doorman_check_amounts(a->request, index, &amounts) < 0)
        note_bad_row(a, &amounts);
    if (error < 0)
        return error;
    return for_many ? get_for_many(a, index, out) : get_one(a, index, out);
}

/* The rows fit into a message, but a file may have parameters of any length. */
static void fit_parameters(struct weir_doorman_api *api,
                           const struct weir_doorman_message *message)
{
    if (weir_doorman_size(message) <= WEIR_DOORMAN_BYTES_MAX)
        return;
    for (size_t i = 0; i < message->count; i++)
        api->grants[i].algorithm.parameter_count = 0;
}

/* A row that can't be granted, or whose id is bad, is left out, and the client
 * that misses it asks again. Granted rows are charged to it and must be sent.
 * Only if all fail, the answer is an error: the first one, but WEIR_ENOTREADY
 * before all others, for that row may be granted soon. */
static int answer_grants(struct answer *a)
{
    struct weir_doorman_api *api = a->api;
    if (!fit_grants(api, a->request->count))
        return WEIR_ENOMEM;
    size_t granted = 0;
    int failed = 0;
    struct weir_diag why = { 0 }; /* of 'failed' */
    for (size_t i = 0; i < a->request->count; i++) {
        api->diag.text[0] = '\0';
        int error = answer_row(a, i, &api->grants[granted]);
        granted += error == 0;
        if (error == 0 || (failed < 0 && error != WEIR_ENOTREADY))
            continue;
        failed = error;
        why = api->diag;
    }
    weir_assert(granted <= api->grants_max);
    api->diag = why;
    a->message.count = granted;
    a->message.grants = api->grants;
    fit_parameters(api, &a->message);
    return granted == 0 ? failed : 0;
}

/* A request over the same connection can't have overtaken the release; the
 * lease pool tells others apart. An id that no resource can have is passed
 * over, as the original does: its client in Go sends such ids, and repeats a
 * refused release for ever. */
static int answer_release(struct answer *a)
{
    const struct weir_client client = { .id = a->request->id, .way = a->way };
    for (size_t i = 0; i < a->request->count; i++) {
        struct weir_text id = a->request->released[i];
        if (weir_doorman_check_row(a->request, i, NULL) == 0 &&
            check_may_take(a, id) == 0)
            weir_root_lease_release(a->api->root, &client, id, 0, a->now);
    }
    return 0;
}

static int answer_discovery(struct answer *a, bool holds)
{
    const char *master =
        holds ? a->api->identity : weir_mastership_master(a->api->mastership);
    a->message.is_master = holds;
    a->message.mastership =
        (struct weir_doorman_mastership){ .given = true,
                                          .address = weir_text_of(master) };
    return 0;
}

static int make_answer(struct answer *a, enum weir_doorman_method method)
{
    bool holds = weir_mastership_holds(a->api->mastership);
    int error = WEIR_ENOTREADY;
    if (method == WEIR_DOORMAN_METHOD_DISCOVERY)
        return answer_discovery(a, holds);
    if (holds)
        error = method == WEIR_DOORMAN_METHOD_RELEASE ? answer_release(a)
                                                      : answer_grants(a);
    if (error != WEIR_ENOTREADY)
        return error;
    answer_elsewhere(a);
    return 0;
}

static int encode(struct weir_doorman_api *api,
                  const struct weir_doorman_message *message,
                  struct weir_text *out)
{
    size_t size = weir_doorman_size(message);
    if (size > WEIR_DOORMAN_BYTES_MAX)
        return WEIR_ETOOBIG;
    if (size > api->out_size) {
        unsigned char *bytes = realloc(api->out, size);
        if (!bytes)
            return WEIR_ENOMEM;
        api->out = bytes;
        api->out_size = size;
    }
    int len = weir_doorman_encode(message, api->out, size);
    if (len < 0)
        return len;
    *out = (struct weir_text){ (const char *)api->out, (size_t)len };
    return 0;
}

static_assert(WEIR_NAME_MAX <= WEIR_CLIENT_ID_MAX, "a kept id has room");

/* The rows that cost a search. The original's client in Go releases an empty id
 * for each of its resources, and then their ids. */
static size_t count_rows(const struct weir_doorman_message *request)
{
    size_t rows = request->count;
    if (request->type == WEIR_DOORMAN_RELEASE_REQUEST)
        for (size_t i = 0; i < request->count; i++)
            rows -= request->released[i].len == 0;
    return rows;
}

static int answer_doorman_call(struct weir_doorman_api *api,
                               const struct weir_doorman_call *call,
                               struct weir_text *out, weir_instant now)
{
    const struct method *method = &methods[call->method];
    struct weir_doorman_message request;
    char client_id[WEIR_NAME_MAX];
    struct answer a = { .api = api,
                        .request = &request,
                        .way = call->way,
                        .names = &call->names,
                        .message = { .type = method->response },
                        .now = now };
    int error = weir_doorman_decode(call->bytes, call->len, method->request,
                                    &api->arena, &request, &api->diag);
    if (error == 0)
        error = weir_doorman_check(&request, &api->diag);
    if (error == 0 && count_rows(&request) > WEIR_DOORMAN_ROWS_MAX)
        error = weir_diag_put(&api->diag, WEIR_ETOOBIG,
                              "a call is for at most 4096 resources");
    if (error < 0)
        return error;
    /* Lease pools keep an id as tables keep a name. */
    request.id = weir_name_kept(request.id, client_id);
    error = make_answer(&a, call->method);
    return error < 0 ? error : encode(api, &a.message, out);
}

/* ---- Calls, as they come ---- */

static void count_call(struct weir_doorman_method_stats *stats, int error,
                       weir_duration took)
{
    double s = (double)took / 1e9;
    stats->requests++;
    stats->errors += error < 0;
    stats->total_s += s;
    for (size_t i = 0; i < WEIR_DOORMAN_BUCKETS; i++) {
        if (s > weir_doorman_buckets_s[i])
            continue;
        stats->buckets[i]++;
        return;
    }
}

static int status_of_refusal(int error)
{
    if (error == WEIR_EDENIED)
        return WEIR_GRPC_PERMISSION_DENIED;
    bool is_room =
        error == WEIR_EFULL || error == WEIR_ENOMEM || error == WEIR_ETOOBIG;
    return is_room ? WEIR_GRPC_RESOURCE_EXHAUSTED : WEIR_GRPC_INVALID_ARGUMENT;
}

int weir_doorman_api_call(struct weir_doorman_api *api,
                          const struct weir_doorman_call *call,
                          struct weir_text *out, weir_instant now)
{
    api->diag.text[0] = '\0';
    int error = answer_doorman_call(api, call, out, now);
    weir_instant end = weir_clock_now();
    count_call(&api->stats.methods[call->method], error,
               end > now ? end - now : 0);
    if (error == 0)
        return WEIR_GRPC_OK;
    *out =
        weir_text_of(api->diag.text[0] ? api->diag.text : weir_strerror(error));
    return status_of_refusal(error);
}

void weir_doorman_api_stats(const struct weir_doorman_api *api,
                            struct weir_doorman_api_stats *out)
{
    *out = api->stats;
}

/* ---- Life ---- */

struct weir_doorman_api *weir_doorman_api_new(
    const struct weir_doorman_api_options *options)
{
    struct weir_doorman_api *api = calloc(1, sizeof *api);
    if (!api)
        return NULL;
    api->root = options->root;
    api->log = options->log;
    api->identity = "";
    api->arena.size = WEIR_DOORMAN_ARENA_SIZE;
    api->arena.base = malloc(api->arena.size);
    if (!api->arena.base)
        weir_doorman_api_free(&api);
    return api;
}

void weir_doorman_api_free(struct weir_doorman_api **api)
{
    if (!*api)
        return;
    free((*api)->arena.base);
    free((*api)->grants);
    free((*api)->out);
    free(*api);
    *api = NULL;
}

void weir_doorman_api_set_mastership(struct weir_doorman_api *api,
                                     struct weir_mastership *mastership,
                                     const char *identity)
{
    api->mastership = mastership;
    api->identity = identity;
}

void weir_doorman_api_set_source(struct weir_doorman_api *api,
                                 const struct weir_doorman_source *source)
{
    api->source = source;
}
