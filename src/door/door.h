/* SPDX-License-Identifier: MIT
 * door/door.h - the interface between foreign protocols and their host.
 *
 * A listener of this folder serves a foreign protocol (HTTP, that of Redis, …)
 * to programs that don't use libweir. It decides as they would: the host gives
 * it a limiter, and it calls weir_take_by_name() and its like, on this
 * process's own memory. A listener knows no roots, no quotas and no other
 * listener; it owns its connections and the state that its protocol needs.
 *
 *     weir agent                weir serve
 *     a limiter: weir_open()    a limiter linked to this very root
 *              \                  /
 *               struct weir_door_host --> web, resp_door, …
 *
 * Each protocol has a type of its own, and all have the same life cycle:
 *
 *     weir_X_new(&host, &options, &x, &diag)   listens
 *     weir_X_place(x)                          its listen address and port
 *     weir_X_recheck(x)                        credentials or certificates
 *                                              were reloaded
 *     weir_X_stop(x)                           no new connections
 *     weir_X_free(&x)
 *
 * A listener never blocks for long: it doesn't call weir_wait(), and an exact
 * quota's store blocks the loop for its deadline at most. All on the loop's
 * thread. */

#ifndef WEIR_DOOR_H
#define WEIR_DOOR_H

#include "os/talk.h"
#include "quota/name_set.h"

struct event_base;

/* Connections of a listener at once. One more evicts an unauthenticated one; if
 * there is none, it is refused. */
#define WEIR_DOOR_TALKS_MAX 12288
/* How long a connection may last without showing a credential, if some are in
 * force. */
#define WEIR_DOOR_STRANGER_MAX (10 * WEIR_SECOND)

enum weir_door_right {
    WEIR_DOOR_TAKE, /* to request decisions */
    WEIR_DOOR_READ, /* to read status, metrics, the page */
};

/* The peer, and the right that it needs. */
struct weir_door_guest {
    enum weir_door_right right;
    const char *address;               /* "127.0.0.1:41234", "unix" */
    const struct weir_tls_peer *names; /* of its certificate; may be empty */
    const char *authorization;         /* "Bearer …"; "": it has shown none */
};

/* A peer that may take: the quotas' names that it may take from, and its
 * identity. A plain value. */
#define WEIR_DOOR_ADDRESS_SIZE 64
struct weir_door_taker {
    struct weir_name_set names;
    char identity[256]; /* of its credential; NUL-terminated */
    char address[WEIR_DOOR_ADDRESS_SIZE];
};
/* The taker if no credentials are in force: it may take from all names. */
extern const struct weir_door_taker weir_door_anybody;

/* Verdicts of weir_door_decide(), without peeks. */
struct weir_door_counts {
    uint64_t passed, limited;
};

/* Given to each listener; borrowed for the listener's life. */
struct weir_door_host {
    struct event_base *base;
    struct weir *weir;
    const char *version;             /* Weir's version; static */
    struct weir_door_counts *counts; /* borrowed; NULL: not counted */
    /* Whether the peer has the right: 0, WEIR_ECREDENTIAL or WEIR_EDENIED with
     * 'diag' filled. NULL: every peer has it. It may be slow: a listener calls
     * it once per connection, or once per request if the protocol shows a
     * credential with each. For the right to take, 'out' gets the names and the
     * identity. */
    int (*admit)(void *context, const struct weir_door_guest *guest,
                 struct weir_door_taker *out, struct weir_diag *diag,
                 weir_instant now);
    /* The taker requested a quota from which it may not take; 'why' is a
     * sentence. NULL: not reported. */
    void (*denied)(void *context, const struct weir_door_taker *taker,
                   const char *why, weir_instant now);
    void *context;            /* of both functions */
    struct weir_talk_tls tls; /* TLS of the listener, at addresses */
    struct weir_accept_short on_short;
    size_t talks_max; /* of each listener; 0: WEIR_DOOR_TALKS_MAX. Lower if the
                       * system gives fewer descriptors */
    const char *public_origin; /* of its pages, if that isn't the listener's own
                                * address (os/origin.h); borrowed; or NULL */
};

/* For struct weir_talk_options. */
static inline size_t weir_door_talks_max(const struct weir_door_host *host)
{
    return host->talks_max ? host->talks_max : WEIR_DOOR_TALKS_MAX;
}

/* Whether the connection's peer has the right, by 'authorization' ("": none
 * shown) and its certificate, if any. As 'admit'; if that is NULL, 0, and
 * '*out' is weir_door_anybody. On an error '*out' allows no name. */
int weir_door_admit(const struct weir_door_host *host,
                    const struct weir_talk *talk, enum weir_door_right right,
                    const char *authorization, struct weir_door_taker *out,
                    struct weir_diag *diag, weir_instant now);
/* Whether the taker may take from 'name': 0, or WEIR_EDENIED with 'diag' filled
 * and the denial reported to the host. weir_door_check() calls it; code that
 * decides without weir_door_check() must call it. */
int weir_door_may(const struct weir_door_host *host,
                  const struct weir_door_taker *taker, struct weir_text name,
                  struct weir_diag *diag, weir_instant now);

/* A request for a decision, in any protocol. */
struct weir_door_ask {
    struct weir_text name;
    uint64_t weight;
    bool peek;                           /* charges nothing */
    const struct weir_door_taker *taker; /* never NULL (asserted) */
};
/* Whether 'ask' is valid and allowed; the errors are those of
 * weir_door_decide(). */
int weir_door_check(const struct weir_door_host *host,
                    const struct weir_door_ask *ask, struct weir_diag *diag,
                    weir_instant now);
/* Decides. WEIR_ENAME, with 'diag' filled, for an invalid name, WEIR_EDENIED
 * for a name that the taker may not take from. A name without quota passes, and
 * the reply says so. */
int weir_door_decide(const struct weir_door_host *host,
                     const struct weir_door_ask *ask, struct weir_reply *out,
                     struct weir_diag *diag, weir_instant now);

/* Takes units and holds them in 'out_permit', as weir_enter(). 'klass' is a
 * weir_class() or 0; no peeks. Errors as above; nothing is held then. */
int weir_door_enter(const struct weir_door_host *host,
                    const struct weir_door_ask *ask, uint32_t klass,
                    struct weir_permit *out_permit, struct weir_reply *out,
                    struct weir_diag *diag, weir_instant now);

#endif /* WEIR_DOOR_H */
