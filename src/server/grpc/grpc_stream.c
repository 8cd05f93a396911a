/* SPDX-License-Identifier: MIT
 * server/grpc/grpc_stream.c - the streams of a connection: the credential that
 * opens one, and how it ends. */

#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "io/clock.h"
#include "server/grpc/grpc_internal.h"

/* ---- Authorization ---- */

/* 'authorization' is a call's header; "": none. */
static struct weir_caller grpc_caller_of(
    const struct grpc_connection *connection, const char *authorization)
{
    return (struct weir_caller){ .api = WEIR_API_GRPC,
                                 .address = weir_h2_link_peer(connection->link),
                                 .authorization = authorization };
}

int weir_grpc_admit(struct grpc_connection *connection,
                    const struct weir_identity *identity, unsigned role,
                    struct weir_diag *diag)
{
    struct weir_caller caller = grpc_caller_of(connection, "");
    return role == 0
               ? 0
               : weir_authorization_admit(connection->api->authorizer, &caller,
                                          identity, (enum weir_role)role, diag,
                                          weir_clock_now());
}

/* Doorman's clients have no credential, so there is an option for them. */
int weir_grpc_authorize(struct grpc_connection *connection, enum grpc_kind kind,
                        unsigned role, const char *authorization,
                        struct weir_identity *out, struct weir_diag *diag)
{
    struct weir_grpc_api *api = connection->api;
    struct weir_h2_link *link = connection->link;
    if (kind == GRPC_DOORMAN && api->doorman_open) {
        connection->guest = true;
        weir_h2_set_authenticated(weir_h2_link_h2(link));
        *out = (struct weir_identity){ .take = weir_name_set_all };
        return 0;
    }
    if (kind == GRPC_DOORMAN &&
        !weir_authorization_is_required(api->authorizer) && !api->loopback)
        return weir_diag_set(diag, WEIR_EDENIED,
                             "Doorman's calls beyond loopback want "
                             "--doorman-insecure, or credentials",
                             NULL);
    struct weir_tls_peer names;
    struct weir_caller caller = grpc_caller_of(connection, authorization);
    caller.names = weir_h2_link_peer_names(link, &names) ? &names : NULL;
    int error = weir_authorization_identify(api->authorizer, &caller, out, diag,
                                            weir_clock_now());
    if (error < 0)
        return error;
    connection->known = true;
    weir_h2_link_set_authenticated(link);
    return weir_grpc_admit(connection, out, role, diag);
}

int weir_grpc_status(int error)
{
    return error == WEIR_EDENIED ? WEIR_GRPC_PERMISSION_DENIED
                                 : WEIR_GRPC_UNAUTHENTICATED;
}

/* The root, or a call of Doorman's, denied a quota to the peer. */
static void note_denied_quota(void *context, struct weir_text name,
                              weir_instant now)
{
    const struct grpc_stream *stream = context;
    struct weir_caller caller = grpc_caller_of(stream->connection, "");
    (void)weir_authorization_admit_name(stream->connection->api->authorizer,
                                        &caller, &stream->identity, name, NULL,
                                        now);
}

struct weir_root_names weir_grpc_names(struct grpc_stream *stream)
{
    return (struct weir_root_names){
        .set = &stream->identity.take,
        .owner = weir_hash(weir_text_of(stream->identity.who), 0),
        .context = stream,
        .denied = note_denied_quota,
    };
}

/* ---- Streams ---- */

static void unlink_peer(struct weir_grpc_api *api, struct grpc_stream *stream)
{
    if (!stream->linked)
        return;
    weir_assert(api->peers[stream->peer] == stream);
    weir_assert(api->free_count < WEIR_PEERS_MAX);
    stream->linked = false;
    api->peers[stream->peer] = NULL;
    api->free_peers[api->free_count++] = stream->peer;
    weir_root_link(api->root, stream->peer, false, weir_clock_now());
    weir_root_loop_kick(api->loop);
}

struct grpc_stream *weir_grpc_find_stream(struct grpc_connection *connection,
                                          int32_t id)
{
    struct grpc_stream *stream = connection->streams;
    while (stream && stream->id != id)
        stream = stream->next;
    return stream;
}

void weir_grpc_stream_free(struct grpc_stream *stream)
{
    weir_assert(!stream->connection && !stream->linked);
    if (stream->authorization)
        OPENSSL_cleanse(stream->authorization, strlen(stream->authorization));
    free(stream->authorization);
    free(stream->target);
    free(stream->body);
    free(stream->reply);
    free(stream);
}

void weir_grpc_drop_stream(struct grpc_stream *stream)
{
    weir_assert(stream->connection);
    unlink_peer(stream->connection->api, stream);
    struct grpc_stream **at = &stream->connection->streams;
    while (*at != stream)
        at = &(*at)->next;
    *at = stream->next;
    stream->connection = NULL;
    if (!(stream->kind == GRPC_CALL && stream->asked))
        weir_grpc_stream_free(stream);
}

void weir_grpc_finish(struct grpc_stream *stream, int status, const char *why)
{
    struct weir_h2_link *link = stream->connection->link;
    (void)weir_h2_finish(weir_h2_link_h2(link), stream->id, status, why);
    weir_h2_link_flush(link);
    weir_grpc_drop_stream(stream);
}

bool weir_grpc_fit_out(struct weir_grpc_api *api, size_t size)
{
    if (size <= api->out_size)
        return true;
    unsigned char *out = realloc(api->out, size);
    if (!out)
        return false;
    api->out = out;
    api->out_size = size;
    return true;
}
