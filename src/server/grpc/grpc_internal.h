/* SPDX-License-Identifier: MIT
 * server/grpc/grpc_internal.h - shared by the parts of the gRPC listener. */

#ifndef WEIR_GRPC_INTERNAL_H
#define WEIR_GRPC_INTERNAL_H

#include "codec/weir_v1.h"
#include "io/h2_link.h"
#include "server/grpc/grpc_api.h"

struct grpc_connection;

enum grpc_kind { GRPC_LINK, GRPC_CALL, GRPC_DOORMAN };

struct grpc_stream {
    struct grpc_stream *next; /* of the connection */
    /* NULL: gone, an answer is still to come */
    struct grpc_connection *connection;
    enum grpc_kind kind;
    int32_t id;
    struct weir_identity identity;
    char *authorization; /* owned; the header that it was admitted by */
    /* The role that it needs. 0: none, or a request's that has not come yet. A
     * link's is 'take', until its hello says that it is a region's root. */
    unsigned role;
    /* GRPC_LINK */
    uint32_t peer;
    bool linked; /* the root knows the peer */
    bool paused;
    /* GRPC_DOORMAN */
    enum weir_doorman_method doorman;
    /* GRPC_CALL */
    char method[WEIR_V1_METHOD_MAX + 1];
    char *target; /* owned */
    char *body;   /* owned */
    size_t body_len, body_capacity;
    bool asked;  /* the administration has it, and will answer */
    char *reply; /* owned */
    size_t reply_len, reply_sent;
    uint32_t status;
};

struct grpc_connection {
    struct grpc_connection *next;
    struct grpc_connection **self; /* the pointer to this connection */
    struct weir_grpc_api *api;
    struct weir_h2_link *link;   /* owned */
    struct grpc_stream *streams; /* owned */
    weir_instant since;          /* since it came, or its credential was
                                * reloaded */
    bool known;   /* a credential has been admitted on it since */
    bool guest;   /* it has Doorman's calls without a credential */
    uint32_t way; /* the root's number for it, if it leases; or WEIR_WAY_NONE */
};

struct weir_grpc_api {
    struct weir_root *root; /* borrowed, as the next four */
    struct weir_root_loop *loop;
    struct weir_admin *admin;
    struct weir_log *log;
    struct weir_authorization *authorizer; /* borrowed */
    struct weir_listener *listener;        /* owned; NULL once stopped */
    struct grpc_connection *connections;   /* owned; the newest first */
    size_t connections_max;
    struct grpc_stream *peers[WEIR_PEERS_MAX]; /* borrowed; NULL: free */
    uint32_t free_peers[WEIR_PEERS_MAX];       /* a stack */
    uint32_t free_count;
    struct weir_doorman_api *doorman; /* borrowed; NULL: none */
    bool doorman_open, loopback;
    uint32_t *free_ways; /* owned: a stack, as the peers' */
    uint32_t free_way_count;
    struct weir_arena arena; /* owned: of the decoder */
    unsigned char *out;      /* owned: of the encoder */
    size_t out_size;
};

/* ---- grpc_stream.c ---- */

/* 0, or an error of weir_authorization_admit(). Role 0: none is needed. */
int weir_grpc_admit(struct grpc_connection *connection,
                    const struct weir_identity *identity, unsigned role,
                    struct weir_diag *diag);
/* Identifies the peer of a stream and admits it to the role. */
int weir_grpc_authorize(struct grpc_connection *connection, enum grpc_kind kind,
                        unsigned role, const char *authorization,
                        struct weir_identity *out, struct weir_diag *diag);
/* The gRPC status for an error of these two. */
int weir_grpc_status(int error);
/* The quotas that the peer may take from, for the root; borrows the stream. */
struct weir_root_names weir_grpc_names(struct grpc_stream *stream);
/* NULL: it is gone. */
struct grpc_stream *weir_grpc_find_stream(struct grpc_connection *connection,
                                          int32_t id);
void weir_grpc_stream_free(struct grpc_stream *stream);
/* Unlinks it as a peer of the root. A call that the administration still has
 * stays until it is answered. */
void weir_grpc_drop_stream(struct grpc_stream *stream);
/* Sends the status and drops the stream: no more messages of it come. */
void weir_grpc_finish(struct grpc_stream *stream, int status, const char *why);
/* Makes 'out' that large; false: no memory. */
bool weir_grpc_fit_out(struct weir_grpc_api *api, size_t size);

/* ---- grpc_link.c ---- */

/* The sender of the root's loop; 'context' is the listener. */
void weir_grpc_send_message(void *context, uint32_t peer,
                            const struct weir_message *message);
/* These and the next may end the stream. */
void weir_grpc_begin_link(struct weir_grpc_api *api,
                          struct grpc_stream *stream);
void weir_grpc_on_link_message(struct weir_grpc_api *api,
                               struct grpc_stream *stream, const void *bytes,
                               size_t len);

/* ---- grpc_call.c ---- */

void weir_grpc_on_call_message(struct grpc_stream *stream, const void *bytes,
                               size_t len);
/* Sends as much as the link takes now; the rest when it has drained. */
void weir_grpc_send_reply(struct grpc_stream *stream);
void weir_grpc_on_call_end(struct weir_grpc_api *api,
                           struct grpc_stream *stream);

#endif /* WEIR_GRPC_INTERNAL_H */
