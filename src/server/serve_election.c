/* SPDX-License-Identifier: MIT
 * server/serve_election.c - a root in the election of the master. */

#include <event2/event.h>
#include <stdio.h>

#include "server/serve_internal.h"

static void on_mastership(void *context)
{
    const struct serve *serve = context;
    weir_root_loop_kick(serve->loop);
}

int weir_serve_stand(struct serve *serve, struct weir_diag *diag)
{
    weir_assert(serve->grpc && serve->loop && !serve->mastership);
    const struct weir_serve_options *options = serve->options;
    char key[WEIR_NAME_MAX + 16];
    snprintf(key, sizeof key,
             options->region ? "weir/master/%s" : "weir/master%s",
             options->region ? options->region : "");
    weir_serve_identity(options, weir_grpc_api_port(serve->grpc),
                        serve->identity);
    struct weir_mastership_options mastership = {
        .election = { .base = serve->base,
                      .log = &serve->log,
                      .kind = options->election,
                      .identity = serve->identity,
                      .path = options->election_path,
                      .endpoints = options->etcd,
                      .count = options->etcd_count,
                      .key =
                          options->election_key ? options->election_key : key,
                      .login = options->etcd_login,
                      .ttl = options->election_ttl },
        .store = serve->store && !serve->source ? options->store : NULL,
        .root = serve->root,
        .on_change = on_mastership,
        .context = serve,
    };
    int error = weir_mastership_new(&mastership, &serve->mastership, diag);
    if (error < 0)
        return error;
    weir_root_loop_set_mastership(serve->loop, serve->mastership);
    weir_doorman_api_set_mastership(serve->doorman, serve->mastership,
                                    serve->identity);
    return 0;
}

void weir_serve_stand_at_last(struct serve *serve)
{
    struct weir_diag diag = { 0 };
    if (serve->mastership || serve->stop_until || !serve->grpc ||
        weir_serve_stand(serve, &diag) == 0)
        return;
    weir_log(&serve->log, WEIR_LOG_ERROR, "%s", diag.text);
    serve->failed = true;
    event_base_loopbreak(serve->base);
}

void weir_serve_free_leasing(struct serve *serve)
{
    if (serve->loop)
        weir_root_loop_set_mastership(serve->loop, NULL);
    if (serve->doorman)
        weir_doorman_api_set_mastership(serve->doorman, NULL, "");
    weir_mastership_free(&serve->mastership);
    if (serve->admin)
        weir_admin_parts(serve->admin)->doorman = NULL;
    weir_doorman_source_free(&serve->source);
    weir_assert(!serve->mastership && !serve->source);
}
