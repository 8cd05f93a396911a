/* SPDX-License-Identifier: MIT
 * protocol/resp/resp_call.h - one command of a Redis client; for resp_*.c
 * only. */

#ifndef WEIR_RESP_CALL_H
#define WEIR_RESP_CALL_H

#include "codec/resp.h"
#include "io/conn.h"
#include "protocol/resp/resp_listener.h"
#include "protocol/resp/throttle_counted.h"

#define WEIR_RESP_NAME_MAX 63 /* bytes that CLIENT SETNAME accepts */
/* No reply is longer: an echo of the longest request, or INFO. */
#define WEIR_RESP_REPLY_MAX (WEIR_RESP_REQUEST_MAX + 4096)

/* State of a connection. */
struct weir_resp_session {
    uint64_t id; /* the reply to CLIENT ID; 0: not greeted yet */
    char *shown; /* owned: the "Bearer …" that authenticated it; NULL:
                  * authenticated otherwise */
    struct weir_protocol_taker *limited; /* owned; NULL: it may use all names */
    uint8_t protocol;                    /* 2 or 3 */
    bool known;                          /* it may send all commands */
    char name[WEIR_RESP_NAME_MAX + 1];
};

struct weir_resp_call {
    const struct weir_protocol_host *host;
    struct weir_throttle *throttle; /* NULL: the fleet counts the keys */
    struct weir_conn_server *server;
    struct weir_conn *conn;
    struct weir_resp_session *session;
    const struct weir_resp_request *request;
    struct weir_resp_out *out;
    weir_instant now;
};

struct weir_resp_command {
    const char *name; /* in lower case */
    int arity;        /* arguments with the name; negative: at least so many */
    bool is_open;     /* also for a peer without a credential */
    bool is_write;    /* it changes a key's state */
    uint8_t key;      /* index of the argument that is a key; 0: none */
    void (*run)(struct weir_resp_call *call);
};
/* All commands, the most frequent first. */
extern const struct weir_resp_command weir_resp_commands[];
extern const size_t weir_resp_command_count;
/* NULL: no such command. */
const struct weir_resp_command *weir_resp_find_command(struct weir_text name);

/* Replies to one request. */
void weir_resp_answer(struct weir_resp_call *call);

/* ---- resp_client.c: general commands of a server ---- */
/* Authenticates a new session by its connection alone, before its first
 * command. */
void weir_resp_meet(const struct weir_protocol_host *host,
                    struct weir_conn *conn, struct weir_resp_session *session,
                    weir_instant now);
/* Checks again with the host; false: the peer isn't admitted any more. */
bool weir_resp_admit(const struct weir_protocol_host *host,
                     struct weir_conn *conn, struct weir_resp_session *session,
                     weir_instant now);
/* Frees what the session owns. */
void weir_resp_session_fini(struct weir_resp_session *session);
/* The taker of the session's requests. */
const struct weir_protocol_taker *weir_resp_taker(
    const struct weir_resp_session *session);
void weir_resp_ping(struct weir_resp_call *call);
void weir_resp_echo(struct weir_resp_call *call);
void weir_resp_select(struct weir_resp_call *call);
void weir_resp_auth(struct weir_resp_call *call);
void weir_resp_hello(struct weir_resp_call *call);
void weir_resp_client(struct weir_resp_call *call);
void weir_resp_command(struct weir_resp_call *call);
void weir_resp_config(struct weir_resp_call *call);
void weir_resp_info(struct weir_resp_call *call);
void weir_resp_reset(struct weir_resp_call *call);
void weir_resp_quit(struct weir_resp_call *call);

#endif /* WEIR_RESP_CALL_H */
