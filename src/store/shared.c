/* SPDX-License-Identifier: MIT
 * store/shared.c - a shared store: opening it, the server of a key, its status.
 *
 * Theory of operation. Each server has a lane (shared_lane.c), and the kind of
 * store talks to the server. A name belongs to one server as long as the list
 * is the same; if that server is away, its names aren't counted elsewhere,
 * since another server would begin at 0. */

#include "store/shared.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/atomic.h"
#include "core/base/hash.h"
#include "store/shared_internal.h"

/* ---- A step ---- */

/* The server of a key: the one with the highest hash together with it
 * (rendezvous hashing). Adding or removing a server moves only that server's
 * keys. */
static struct weir_lane *lane_of(struct weir_shared *shared,
                                 struct weir_text key)
{
    weir_assert(shared->uri.count > 0 &&
                shared->uri.count <= WEIR_SHARED_SERVERS_MAX);
    size_t best = 0;
    uint64_t highest = 0;
    for (size_t i = 0; shared->uri.count > 1 && i < shared->uri.count; i++) {
        uint64_t seed = weir_hash(weir_text_of(shared->lane[i].name), 0);
        uint64_t drawn = weir_hash(key, seed);
        if (drawn < highest)
            continue;
        highest = drawn;
        best = i;
    }
    return &shared->lane[best];
}

int weir_shared_step(struct weir_shared *shared, struct weir_text key,
                     const struct weir_algorithm_rule *rule,
                     const struct weir_algorithm_ask *ask,
                     struct weir_algorithm_answer *out, weir_duration deadline)
{
    weir_assert(key.len > 0 && key.len <= WEIR_NAME_MAX);
    weir_assert(ask->weight <= WEIR_WEIGHT_MAX && weir_algorithm_check(rule));
    if (deadline > WEIR_SHARED_DEADLINE_MAX)
        deadline = WEIR_SHARED_DEADLINE_MAX;
    return weir_lane_step(lane_of(shared, key), key, rule, ask, out, deadline);
}

/* ---- Life ---- */

static void free_shared(struct weir_shared *shared)
{
    for (size_t i = 0; i < shared->uri.count; i++)
        weir_lane_fini(&shared->lane[i]);
    pthread_mutex_destroy(&shared->mutex);
    weir_tls_free(&shared->tls);
    free(shared->secrets_file);
    free(shared);
}

static int open_tls(struct weir_shared *shared, const char *ca,
                    struct weir_diag *diag)
{
    if (!shared->uri.tls)
        return 0;
    struct weir_tls_options options = { .ca = ca ? ca : WEIR_TLS_SYSTEM };
    return weir_tls_new(&options, &shared->tls, diag);
}

static int check_prefix(const char *prefix, struct weir_diag *diag)
{
    size_t len = strlen(prefix);
    bool sound = len > 0 && len <= WEIR_SHARED_PREFIX_MAX;
    for (size_t i = 0; i < len; i++)
        sound =
            sound && prefix[i] > ' ' && prefix[i] < 0x7f && prefix[i] != '{';
    return sound ? 0
                 : weir_diag_put(diag, WEIR_EINVAL,
                                 "a prefix of keys is 1 to 64 printable "
                                 "characters without blanks and {");
}

static int start_shared(struct weir_shared *shared,
                        const struct weir_shared_options *options,
                        struct weir_diag *diag)
{
    static const struct weir_shared_type *const types[] = {
        [WEIR_SHARED_REDIS] = &weir_shared_redis,
        [WEIR_SHARED_MEMCACHED] = &weir_shared_memcached,
    };
    shared->type = types[shared->uri.kind];
    weir_assert(shared->type && shared->type->open);
    strcpy(shared->prefix, options->prefix ? options->prefix : "weir");
    if (options->secrets_file)
        shared->secrets_file = strdup(options->secrets_file);
    if (options->secrets_file && !shared->secrets_file)
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
    int error = open_tls(shared, options->tls_ca, diag);
    return error < 0 ? error : shared->type->open(shared, diag);
}

int weir_shared_open(const struct weir_shared_options *options,
                     struct weir_shared **out_shared, struct weir_diag *diag)
{
    struct weir_shared_uri uri;
    int error = weir_shared_uri_parse(weir_text_of(options->uri), &uri, diag);
    if (error == 0 && options->prefix)
        error = check_prefix(options->prefix, diag);
    if (error < 0)
        return error;
    struct weir_shared *shared = calloc(1, sizeof(*shared));
    if (!shared)
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
    shared->uri = uri;
    pthread_mutex_init(&shared->mutex, NULL);
    for (size_t i = 0; i < uri.count; i++)
        weir_lane_init(&shared->lane[i], shared, &uri.server[i]);
    error = start_shared(shared, options, diag);
    if (error < 0)
        free_shared(shared);
    else
        *out_shared = shared;
    return error;
}

void weir_shared_close(struct weir_shared *shared)
{
    if (!shared)
        return;
    shared->type->close(shared);
    free_shared(shared);
}

/* ---- Status ---- */

void weir_shared_status(struct weir_shared *shared,
                        struct weir_shared_status *out)
{
    bool up = true;
    for (size_t i = 0; i < shared->uri.count; i++)
        up = up && weir_lane_is_up(&shared->lane[i]);
    /* Relaxed: each counter is read on its own. */
    *out = (struct weir_shared_status){
        .up = up,
        .steps = weir_load_relaxed(&shared->steps),
        .timeouts = weir_load_relaxed(&shared->timeouts),
        .refused = weir_load_relaxed(&shared->refused),
        .swaps_lost = weir_load_relaxed(&shared->swaps_lost),
        .reloads = weir_load_relaxed(&shared->reloads),
    };
    pthread_mutex_lock(&shared->mutex);
    memcpy(out->last_error, shared->last_error, sizeof(out->last_error));
    pthread_mutex_unlock(&shared->mutex);
}
