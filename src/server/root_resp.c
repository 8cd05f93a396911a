/* SPDX-License-Identifier: MIT
 * server/root_resp.c - an agent within a root.
 *
 * Why by loopback: a pair of sockets into the gRPC listener would save nothing
 * measurable (some reports each second, however many decisions are made), and
 * would be a second way in to authorize. */

#include "server/root_resp.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/atomic.h"
#include "io/clock.h"
#include "io/process.h"
#include "protocol/resp/resp_listener.h"

struct weir_root_resp {
    struct weir_protocol_host host;
    struct weir *weir; /* owned, as are the next; closed by 'closer' */
    bool stopped;
    struct weir_throttle *throttle;  /* NULL: the fleet counts */
    struct weir_resp_listener *resp; /* NULL: stopped */
    pthread_t closer;
    bool closing;  /* 'closer' was started, and isn't joined yet */
    uint32_t done; /* the limiter is closed; atomic */
};

/* A root that listens on all addresses listens on loopback too. */
static void own_address(const struct weir_root_resp_options *options, char *buf)
{
    struct weir_address own = options->listen;
    if (weir_address_is_all(&own))
        strcpy(own.host, own.host[0] == ':' ? "::1" : "127.0.0.1");
    own.port = options->port;
    weir_address_text(&own, buf);
}

static int open_limiter(struct weir_root_resp *inner,
                        const struct weir_root_resp_options *options,
                        struct weir_diag *diag)
{
    char roots[WEIR_LISTEN_ADDRESS_TEXT_MAX];
    char name[WEIR_NAME_MAX + 1];
    struct weir_options limiter = WEIR_OPTIONS_INIT;
    own_address(options, roots);
    snprintf(name, sizeof name, "listeners of %.200s", options->name);
    limiter.roots = roots;
    limiter.name = name;
    int error = weir_open(&limiter, &inner->weir);
    return error < 0
               ? weir_diag_set(diag, error, "a limiter for the listeners: ",
                               weir_strerror(error), NULL)
               : 0;
}

static int open_resp_listener(struct weir_root_resp *inner,
                              const struct weir_root_resp_options *options,
                              struct weir_diag *diag)
{
    uint64_t seed;
    weir_entropy(&seed, sizeof seed);
    inner->host = (struct weir_protocol_host){ .base = options->base,
                                               .weir = inner->weir,
                                               .version = options->version };
    if (!options->resp_counted)
        inner->throttle = weir_throttle_new(&weir_mem_system,
                                            WEIR_THROTTLE_KEYS_DEFAULT, seed);
    if (!options->resp_counted && !inner->throttle)
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
    return weir_resp_listener_new(&inner->host, &options->resp, inner->throttle,
                                  &inner->resp, diag);
}

int weir_root_resp_new(const struct weir_root_resp_options *options,
                       struct weir_root_resp **out, struct weir_diag *diag)
{
    struct weir_root_resp *inner = calloc(1, sizeof *inner);
    if (!inner)
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
    struct weir_diag why = { 0 };
    int error = open_limiter(inner, options, &why);
    if (error == 0)
        error = open_resp_listener(inner, options, &why);
    if (error < 0) {
        weir_root_resp_free(&inner);
        return weir_diag_set(diag, error, "--resp: ", why.text, NULL);
    }
    *out = inner;
    return 0;
}

const struct weir_listen_address *weir_root_resp_address(
    const struct weir_root_resp *inner)
{
    return weir_resp_listener_address(inner->resp);
}

static void *close_limiter(void *context)
{
    struct weir_root_resp *inner = context;
    weir_close(inner->weir);
    /* release: a reader of 'done' may take the limiter for closed; pairs with
     * the acquire of weir_root_resp_is_done(). */
    weir_store_release(&inner->done, 1);
    return NULL;
}

void weir_root_resp_stop(struct weir_root_resp *inner)
{
    if (inner->stopped || !inner->weir)
        return;
    inner->stopped = true;
    weir_resp_listener_free(&inner->resp);
    inner->closing =
        weir_thread_start(&inner->closer, close_limiter, inner) == 0;
    if (!inner->closing)
        (void)close_limiter(inner);
}

bool weir_root_resp_is_done(struct weir_root_resp *inner)
{
    /* acquire: pairs with the release of close_limiter(). */
    return weir_load_acquire(&inner->done) != 0;
}

void weir_root_resp_free(struct weir_root_resp **inner)
{
    struct weir_root_resp *self = *inner;
    if (!self)
        return;
    *inner = NULL;
    weir_root_resp_stop(self);
    if (self->closing)
        pthread_join(self->closer, NULL);
    weir_throttle_free(&self->throttle);
    free(self);
}
