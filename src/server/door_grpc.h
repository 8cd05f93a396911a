/* SPDX-License-Identifier: MIT
 * server/door_grpc.h - weir.v1.Root over gRPC: the links of limiters, and
 * the administration for the command line; and Doorman's calls, which it hands
 * on. It is the pump of the root node.
 */

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
    8192                           /* sockets at once; those over which no
                                      * call was let in yet are at most half of
                                      * it (os/ration.h) */
#define WEIR_CALL_CHUNK (1u << 20) /* bytes of a reply in one message */

struct weir_door_grpc;

struct weir_door_grpc_options {
    struct event_base *base; /* borrowed, as all below */
    struct weir_root *root;  /* with peers_max WEIR_PEERS_MAX */
    struct weir_admin *admin;
    struct weir_log *log;
    struct weir_gate *gate;            /* never NULL */
    struct weir_tls *tls;              /* a server's; NULL: plain text */
    struct weir_upstream *upstream;    /* of a region's root; NULL: a top one */
    struct weir_door_doorman *doorman; /* NULL: its calls aren't known */
    /* Who may call it: whoever shows a credential with 'take' and, where none
     * are in force, everybody on loopback; or everybody ('open'). */
    bool doorman_open;
    bool loopback; /* 'address' is */
    struct weir_address address;
    size_t connections_max; /* 0: WEIR_CONNECTIONS_MAX; for tests */
};

int weir_door_grpc_new(const struct weir_door_grpc_options *options,
                       struct weir_door_grpc **out, struct weir_diag *diag);
uint16_t weir_door_grpc_port(const struct weir_door_grpc *door);
/* The root was changed from outside (quotas): pump it soon. */
void weir_door_grpc_kick(struct weir_door_grpc *door);
/* Who may hand out leases at this moment; borrowed. Until then grants are sent
 * as the root makes them. */
void weir_door_grpc_set_mastership(struct weir_door_grpc *door,
                                   struct weir_mastership *mastership);
/* Credentials were read again: ends the calls and links that they don't allow
 * now, and links whose credential may take from other names. */
void weir_door_grpc_recheck(struct weir_door_grpc *door);
/* Certificates were read again: ends the connections of whoever shows one that
 * wouldn't be taken now. */
void weir_door_grpc_doubt(struct weir_door_grpc *door,
                          const struct weir_tls *tls);
/* To be called each second: drops connections whose certificate has ended, and
 * those that nobody known has used for WEIR_STRANGER_MAX. */
void weir_door_grpc_look(struct weir_door_grpc *door);
/* Takes no new connections. */
void weir_door_grpc_stop(struct weir_door_grpc *door);
/* Ends every call and link and writes what is queued: the loop has to run on
 * until it is empty. NULL inside is legal. */
void weir_door_grpc_free(struct weir_door_grpc **door);

#endif /* WEIR_DOOR_GRPC_H */
