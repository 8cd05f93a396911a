/* SPDX-License-Identifier: MIT
 * protocol/resp/resp_internal.h - one command of a Redis client: between its
 * connection and its execution. */

#ifndef WEIR_RESP_INTERNAL_H
#define WEIR_RESP_INTERNAL_H

#include <strings.h>

#include "codec/resp.h"
#include "io/conn.h"
#include "protocol/resp/resp_listener.h"
#include "protocol/resp/resp_transaction.h"
#include "protocol/resp/throttle_counted.h"

#define WEIR_RESP_NAME_MAX 63 /* bytes that CLIENT SETNAME accepts */
/* No reply is longer: an echo of the longest request, or INFO. EXEC's is one
 * reply for each of its commands. */
#define WEIR_RESP_REPLY_MAX (WEIR_RESP_REQUEST_MAX + 4096)

/* State of a connection. */
struct weir_resp_session {
    uint64_t id; /* the reply to CLIENT ID; 0: not greeted yet */
    char *shown; /* owned: the "Bearer …" that authenticated it; NULL:
                  * authenticated otherwise */
    struct weir_protocol_taker *limited; /* owned; NULL: it may use all names */
    /* Owned; NULL: the client isn't between MULTI and EXEC. */
    struct weir_resp_transaction *transaction;
    uint8_t protocol; /* 2 or 3 */
    bool known;       /* it may send all commands */
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
    bool looks; /* the command changes no key */
    weir_instant now;
};

/* How a command is executed. */
enum weir_resp_flag {
    WEIR_RESP_OPEN = 1,  /* also for a peer without a credential */
    WEIR_RESP_WRITE = 2, /* it changes a key's state */
    WEIR_RESP_NOW = 4,   /* between MULTI and EXEC it isn't queued, but
                          * executed */
    WEIR_RESP_ALONE = 8, /* … it is refused: it changes the session, or its
                          * reply is long */
};

struct weir_resp_command {
    const char *name; /* in lower case */
    int arity;        /* arguments with the name; negative: at least so many */
    unsigned flags;   /* of enum weir_resp_flag */
    uint8_t key;      /* index of the first argument that is a key; 0: none */
    int8_t last_key;  /* of the last; -1: the last argument */
    void (*run)(struct weir_resp_call *call);
    /* For COMMAND DOCS: */
    const char *group, *since, *summary;
    const char *arguments; /* names between blanks; '#': an integer, in
                            * brackets: optional, with '+': once or more */
    /* Whether 'run' would accept the arguments; else the error is written. It
     * is called when the command is queued. NULL: the arity is all. */
    bool (*check)(struct weir_resp_call *call);
};

/* A subcommand; its 'arity' counts the command's name too. */
struct weir_resp_part {
    const char *name;
    int arity;
    void (*run)(struct weir_resp_call *call);
};

static inline bool weir_resp_has_arity(size_t count, int arity)
{
    return arity < 0 ? count >= (size_t)-arity : count == (size_t)arity;
}

/* The argument at 'at'; 0: the command's name. */
static inline struct weir_text weir_resp_argument(
    const struct weir_resp_call *call, size_t at)
{
    weir_assert(at < call->request->count);
    return call->request->argument[at];
}

/* In any case of letters. */
static inline bool weir_resp_is_word(struct weir_text text, const char *word)
{
    return text.len == strlen(word) && strncasecmp(text.p, word, text.len) == 0;
}

static inline void weir_resp_text(struct weir_resp_call *call, const char *text)
{
    weir_resp_bulk(call->out, weir_text_of(text));
}

/* Hands the replies over to the connection if another one might not fit. */
static inline void weir_resp_make_room(struct weir_resp_call *call)
{
    struct weir_resp_out *out = call->out;
    /* No reply is longer than WEIR_RESP_REPLY_MAX. */
    weir_assert(!out->full);
    if (out->size - out->len >= WEIR_RESP_REPLY_MAX)
        return;
    weir_conn_write(call->conn, out->p, out->len);
    out->len = 0;
}

/* Replies to one request. 'call->out' has room for WEIR_RESP_REPLY_MAX
 * bytes. */
void weir_resp_answer(struct weir_resp_call *call);

/* The subcommand that the first argument names; NULL: Redis's error is written.
 * 'name': the command's, in capitals. */
const struct weir_resp_part *weir_resp_find_part(
    struct weir_resp_call *call, const char *name,
    const struct weir_resp_part *parts, size_t count);
/* An array of lines, the reply of HELP. */
void weir_resp_lines(struct weir_resp_call *call, const char *const *lines,
                     size_t count);
/* One command as COMMAND INFO has it, and its pair of COMMAND DOCS. */
void weir_resp_describe(struct weir_resp_call *call,
                        const struct weir_resp_command *command);
void weir_resp_document(struct weir_resp_call *call,
                        const struct weir_resp_command *command);

/* Reply to AUTH, HELLO, CLIENT and RESET. */
void weir_resp_run_auth(struct weir_resp_call *call);
void weir_resp_run_hello(struct weir_resp_call *call);
bool weir_resp_check_client(struct weir_resp_call *call);
void weir_resp_run_client(struct weir_resp_call *call);
void weir_resp_run_reset(struct weir_resp_call *call);
/* The client's right to names; borrowed until the session changes. */
const struct weir_protocol_taker *weir_resp_taker(
    const struct weir_resp_session *session);

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

#endif /* WEIR_RESP_INTERNAL_H */
