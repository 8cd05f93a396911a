/* SPDX-License-Identifier: MIT
 * server/grpc/grpc_api.h - weir.v1.Root over gRPC: the links of limiters, and
 * the administration for the command line; and Doorman's calls, which it
 * passes on. It passes the peers' messages to the root, and sends the
 * root's. */

#ifndef WEIR_GRPC_API_H
#define WEIR_GRPC_API_H

#include "front/authorization.h"
#include "front/log.h"
#include "io/stream.h"
#include "server/admin/admin.h"
#include "server/doorman/doorman_api.h"
#include "server/root_loop.h"

#define WEIR_PEERS_MAX 4096 /* links of limiters at once */
#define WEIR_CONNECTIONS_MAX \
    8192                           /* sockets at once; those without an admitted
                                    * call so far are at most half of it
                                    * (io/ration.h) */
#define WEIR_CALL_CHUNK (1u << 20) /* bytes of a reply in one message */

struct weir_grpc_api;

struct weir_grpc_api_options {
    struct event_base *base;     /* borrowed, as all below */
    struct weir_root *root;      /* with peers_max WEIR_PEERS_MAX */
    struct weir_root_loop *loop; /* outlives the listener */
    struct weir_admin *admin;
    struct weir_log *log;
    struct weir_authorization *authorizer; /* never NULL */
    struct weir_tls *tls;                  /* a server's; NULL: plain text */
    struct weir_doorman_api *doorman; /* NULL: its calls are unknown methods */
    /* Doorman's clients: true: all are admitted. False: a client with a
     * credential with 'take', and without credentials all on loopback. */
    bool doorman_open;
    bool loopback; /* 'address' is a loopback address */
    struct weir_address address;
    size_t connections_max; /* 0: WEIR_CONNECTIONS_MAX; for tests */
};

int weir_grpc_api_new(const struct weir_grpc_api_options *options,
                      struct weir_grpc_api **out, struct weir_diag *diag);
uint16_t weir_grpc_api_port(const struct weir_grpc_api *api);
/* Credentials were read again: ends calls and links that are no longer allowed,
 * and links that may take from other names now. */
void weir_grpc_api_recheck(struct weir_grpc_api *api);
/* Certificates were read again: ends the connections of peers with a
 * certificate that would no longer be accepted. */
void weir_grpc_api_doubt(struct weir_grpc_api *api, const struct weir_tls *tls);
/* Call it each second: drops connections with an ended certificate, and those
 * without an admitted credential for WEIR_UNAUTHENTICATED_MAX. */
void weir_grpc_api_look(struct weir_grpc_api *api);
/* Takes no new connections. */
void weir_grpc_api_stop(struct weir_grpc_api *api);
/* Ends every call and link and writes the queued bytes: the loop has to run on
 * until it is empty. NULL inside is legal. */
void weir_grpc_api_free(struct weir_grpc_api **api);

#endif /* WEIR_GRPC_API_H */
