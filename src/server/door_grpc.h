/* SPDX-License-Identifier: MIT
 * server/door_grpc.h - weir.v1.Root over gRPC: the links of limiters, and the
 * administration for the command line; and Doorman's calls, which it passes on.
 * It runs the root node: it passes messages in, and sends the root's. */

#ifndef WEIR_DOOR_GRPC_H
#define WEIR_DOOR_GRPC_H

#include "os/stream.h"
#include "server/admin.h"
#include "server/door_doorman.h"
#include "server/gate.h"
#include "server/log.h"
#include "server/upstream.h"

#define WEIR_PEERS_MAX 4096 /* links of limiters at once */
#define WEIR_CONNECTIONS_MAX \
    8192                           /* sockets at once; those without an admitted
                                    * call so far are at most half of it
                                    * (os/ration.h) */
#define WEIR_CALL_CHUNK (1u << 20) /* bytes of a reply in one message */

struct weir_door_grpc;

struct weir_door_grpc_options {
    struct event_base *base; /* borrowed, as all below */
    struct weir_root *root;  /* with peers_max WEIR_PEERS_MAX */
    struct weir_admin *admin;
    struct weir_log *log;
    struct weir_gate *gate;            /* never NULL */
    struct weir_tls *tls;              /* a server's; NULL: plain text */
    struct weir_upstream *upstream;    /* of a region's root; NULL: a top
                                        * root */
    struct weir_door_doorman *doorman; /* NULL: its calls are unknown methods */
    /* Doorman's clients: true: all are admitted. False: a client with a
     * credential with 'take', and without credentials all on loopback. */
    bool doorman_open;
    bool loopback; /* 'address' is a loopback address */
    struct weir_address address;
    size_t connections_max; /* 0: WEIR_CONNECTIONS_MAX; for tests */
};

int weir_door_grpc_new(const struct weir_door_grpc_options *options,
                       struct weir_door_grpc **out, struct weir_diag *diag);
uint16_t weir_door_grpc_port(const struct weir_door_grpc *door);
/* The root's quotas were changed: run the root soon. */
void weir_door_grpc_kick(struct weir_door_grpc *door);
/* The mastership that allows grants; borrowed. Until then grants are sent as
 * the root makes them. */
void weir_door_grpc_set_mastership(struct weir_door_grpc *door,
                                   struct weir_mastership *mastership);
/* Credentials were read again: ends calls and links that are no longer allowed,
 * and links that may take from other names now. */
void weir_door_grpc_recheck(struct weir_door_grpc *door);
/* Certificates were read again: ends the connections of peers with a
 * certificate that would no longer be accepted. */
void weir_door_grpc_doubt(struct weir_door_grpc *door,
                          const struct weir_tls *tls);
/* Call it each second: drops connections with an ended certificate, and those
 * without an admitted credential for WEIR_STRANGER_MAX. */
void weir_door_grpc_look(struct weir_door_grpc *door);
/* Takes no new connections. */
void weir_door_grpc_stop(struct weir_door_grpc *door);
/* Ends every call and link and writes the queued bytes: the loop has to run on
 * until it is empty. NULL inside is legal. */
void weir_door_grpc_free(struct weir_door_grpc **door);

#endif /* WEIR_DOOR_GRPC_H */
