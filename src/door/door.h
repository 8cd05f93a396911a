/* SPDX-License-Identifier: MIT
 * door/door.h - what a door is, and what it is given.
 *
 * A door speaks somebody else's protocol (HTTP, that of Redis, …) to programs
 * that have no libweir of their own, and decides as they would: it is given a
 * limiter and calls weir_take_by_name() and its like, out of this process's own
 * memory. A door knows no roots, no quotas and no other door; what it has of
 * its own are connections, and what its protocol asks it to remember.
 *
 *     weir agent                weir serve
 *     a limiter: weir_open()    a limiter linked to this very root
 *              \                  /
 *               struct weir_door_host --> web, resp_door, …
 *
 * Each door is a type of its own, and all have the same life:
 *
 *     weir_X_new(&host, &options, &x, &diag)   listens
 *     weir_X_place(x)                          where, with the port it has
 *     weir_X_recheck(x)                        credentials or certificates were
 *                                              read again
 *     weir_X_stop(x)                           nobody new comes in
 *     weir_X_free(&x)
 *
 * A door that somebody waits at for long is no door: weir_wait() isn't called,
 * and an exact quota's store holds up the loop for its deadline at most. All on
 * the loop's thread. */

#ifndef WEIR_DOOR_H
#define WEIR_DOOR_H

#include "os/talk.h"
#include "quota/name_set.h"

struct event_base;

/* Connections that a listener has at once. One more takes the place of an
 * unauthenticated one; if there is none, it is refused. */
#define WEIR_DOOR_TALKS_MAX 12288
/* How long a connection may stand that has shown no credential, where some are
 * in force. */
#define WEIR_DOOR_STRANGER_MAX (10 * WEIR_SECOND)

enum weir_door_right {
    WEIR_DOOR_TAKE, /* to have it decided */
    WEIR_DOOR_READ, /* to look: status, metrics, the page */
};

/* Who asks, and for what. */
struct weir_door_guest {
    enum weir_door_right right;
    const char *address;               /* "127.0.0.1:41234", "unix" */
    const struct weir_tls_peer *names; /* of its certificate; may be none */
    const char *authorization;         /* "Bearer …"; "": nothing was shown */
};

/* A peer that may take: its names of quotas, its identity. A plain value. */
#define WEIR_DOOR_ADDRESS_SIZE 64
struct weir_door_taker {
    struct weir_name_set names;
    char identity[256]; /* of its credential; NUL-terminated */
    char address[WEIR_DOOR_ADDRESS_SIZE];
};
/* Any peer where no credentials are in force: all names. */
extern const struct weir_door_taker weir_door_anybody;

/* Verdicts of weir_door_decide(), peeks left out. */
struct weir_door_counts {
    uint64_t passed, limited;
};

/* What each door is given; borrowed for as long as it lives. */
struct weir_door_host {
    struct event_base *base;
    struct weir *weir;
    const char *version;             /* of Weir; static */
    struct weir_door_counts *counts; /* borrowed; NULL: nobody counts */
    /* Whether somebody may: 0, WEIR_ECREDENTIAL or WEIR_EDENIED with
     * 'diag' filled. NULL: everybody may. It may take its time: a door asks
     * once a connection, or once a request where the protocol shows a
     * credential with each. With the right to take, 'out' gets the names and
     * the identity. */
    int (*admit)(void *context, const struct weir_door_guest *guest,
                 struct weir_door_taker *out, struct weir_diag *diag,
                 weir_instant now);
    /* The taker named a quota from which it may not take; 'why' is a sentence.
     * NULL: not reported. */
    void (*denied)(void *context, const struct weir_door_taker *taker,
                   const char *why, weir_instant now);
    void *context;            /* of both */
    struct weir_talk_tls tls; /* that the door speaks at addresses */
    struct weir_accept_short on_short;
    size_t talks_max; /* of each listener; 0: WEIR_DOOR_TALKS_MAX. Fewer, where
                       * the system gives fewer descriptors */
    const char *public_origin; /* of its pages, if it isn't its own address
                                * (os/origin.h); borrowed; or NULL */
};

/* Of struct weir_talk_options. */
static inline size_t weir_door_talks_max(const struct weir_door_host *host)
{
    return host->talks_max ? host->talks_max : WEIR_DOOR_TALKS_MAX;
}

/* Whether who is at the other end has the right, having shown 'authorization'
 * ("": nothing) and its certificate, if any. As 'admit'; 0 without it, and
 * '*out' is weir_door_anybody. On an error '*out' has no name in it. */
int weir_door_admit(const struct weir_door_host *host,
                    const struct weir_talk *talk, enum weir_door_right right,
                    const char *authorization, struct weir_door_taker *out,
                    struct weir_diag *diag, weir_instant now);
/* Whether the taker may take from 'name': 0, or WEIR_EDENIED with 'diag' filled
 * and the denial reported to the host. weir_door_check() calls it; code that
 * decides without that has to. */
int weir_door_may(const struct weir_door_host *host,
                  const struct weir_door_taker *taker, struct weir_text name,
                  struct weir_diag *diag, weir_instant now);

/* A question as any door has it. */
struct weir_door_ask {
    struct weir_text name;
    uint64_t weight;
    bool peek;                           /* charges nothing */
    const struct weir_door_taker *taker; /* never NULL (asserted) */
};
/* Whether 'ask' is valid and allowed; fails as weir_door_decide() would. */
int weir_door_check(const struct weir_door_host *host,
                    const struct weir_door_ask *ask, struct weir_diag *diag,
                    weir_instant now);
/* Answers it. WEIR_ENAME, with 'diag' filled, for what can't be a quota's
 * name, WEIR_EDENIED for one that the taker may not take from; a name without
 * quota passes, and the reply says so. */
int weir_door_decide(const struct weir_door_host *host,
                     const struct weir_door_ask *ask, struct weir_reply *out,
                     struct weir_diag *diag, weir_instant now);

/* Asks for units and holds them in 'out_permit', as weir_enter(). 'klass' is a
 * weir_class() or 0; no peeks. Errors as above, and then nothing is held. */
int weir_door_enter(const struct weir_door_host *host,
                    const struct weir_door_ask *ask, uint32_t klass,
                    struct weir_permit *out_permit, struct weir_reply *out,
                    struct weir_diag *diag, weir_instant now);

#endif /* WEIR_DOOR_H */
