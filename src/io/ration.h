/* SPDX-License-Identifier: MIT
 * io/ration.h - limits the connections and processor time of a listener's
 * unauthenticated peers, and shares both fairly among their source addresses.
 *
 *     accept ---> member --turn, turn, ...--> admitted: no member any more
 *                    \--places are full, its source has most--> evicted
 *
 * A connection is a member from its acceptance until its peer has shown a
 * credential or, if none are in force, has been given an answer that would need
 * one. The ration gives turns, in which a member's socket is read. The
 * processor time of a turn, a TLS handshake included, is measured and charged.
 * All members together get WEIR_RATION_PART of a processor, at most
 * WEIR_RATION_TURNS_MAX in a row before the loop serves other connections.
 * Unread bytes stay in the kernel and slow their senders down. Authenticated
 * connections thus come first, and a flood costs no more than that part.
 *
 * When a member is admitted, the cost of its turns is given back to its source
 * and to the ration, which limits only work for peers that are never admitted.
 * A thousand limiters that reconnect at once aren't limited to a part of a
 * processor, even if many share an address; during a flood from another address
 * theirs has more than half of the turns.
 *
 * Among the members that wait, sources have equal parts of the time: deficit
 * round robin (Shreedhar and Varghese, SIGCOMM 1995) over sources, which are
 * the IPv4 address or the /64 of the IPv6 address, hashed with a seed into
 * WEIR_RATION_SOURCES (stochastic fairness queueing, McKenney, INFOCOM 1990).
 * Every third turn of a source goes to a member that had none yet (compare the
 * new flows of RFC 8290): a health probe doesn't wait behind a flood of bytes,
 * and in a flood of connections each has time to finish.
 *
 * All on the loop's thread. */

#ifndef WEIR_RATION_H
#define WEIR_RATION_H

#include <sys/queue.h>
#include <sys/socket.h>

#include "core/base/base.h"

#define WEIR_RATION_SOURCES 1024u
/* The ration may use one part in so many of a processor's time. */
#define WEIR_RATION_PART 2
#define WEIR_RATION_BURST (20 * WEIR_MILLISECOND)  /* unused time saved up */
#define WEIR_RATION_TURNS_MAX WEIR_MILLISECOND     /* in a row, and one turn */
#define WEIR_RATION_QUANTUM (WEIR_MILLISECOND / 4) /* per source and round */
/* Bytes read in a turn at most. */
#define WEIR_RATION_READ (16u << 10)

struct event_base;
struct weir_ration;

/* In the owner's memory, zeroed at first. */
struct weir_ration_member {
    /* Set by the owner before it joins. Both functions may leave the ration and
     * free the member and its owner; turn() may also free the ration. */
    void (*turn)(void *context); /* reads once, at most WEIR_RATION_READ */
    void (*evict)(void *context, const char *why); /* closes; 'why': static */
    void *context;
    /* Private to the ration. */
    struct weir_ration *ration; /* NULL: no member */
    uint32_t source;
    bool waits, served;
    weir_duration cost; /* of its turns, without the one that is running */
    TAILQ_ENTRY(weir_ration_member) among; /* of its source, oldest first */
    TAILQ_ENTRY(weir_ration_member) queue; /* while it waits */
};

struct weir_ration_options {
    struct event_base *base; /* borrowed; NULL: the owner calls
                              * weir_ration_serve() */
    size_t places;           /* members at once, > 0 */
    /* The clock that measures turns, in ns; NULL: the processor time of the
     * calling thread. */
    uint64_t (*time_used)(void *context);
    void *context; /* of time_used() */
};

/* NULL: no memory. */
struct weir_ration *weir_ration_new(const struct weir_ration_options *options);
/* The ration must have no member. Within a turn its memory is freed when
 * weir_ration_serve() returns. NULL inside is legal. */
void weir_ration_free(struct weir_ration **ration);

/* A connection was accepted. If there are more than 'places', the oldest member
 * of the source with most members is evicted before the call returns, but never
 * the new one, unless it is the only one. 'peer': NULL for a Unix socket. */
void weir_ration_join(struct weir_ration *ration,
                      struct weir_ration_member *member,
                      const struct sockaddr *peer);
/* The member's peer is authenticated: the member leaves, the cost of its turns
 * is given back, and a turn that is running isn't charged. No effect without a
 * ration. */
void weir_ration_admit(struct weir_ration_member *member);
/* The connection is closed. No effect without a ration. */
void weir_ration_leave(struct weir_ration_member *member);
/* The member's socket is readable: requests one turn, which the loop gives. No
 * effect if it already waits. */
void weir_ration_wait(struct weir_ration_member *member);
/* Evicts the oldest member of the source with most members, for lack of another
 * resource than 'places'. False: there is no member. */
bool weir_ration_evict(struct weir_ration *ration, const char *why);

/* Gives the turns that are due; the loop calls it. Returns the instant of its
 * next call: 'now': at once, after other work; WEIR_NEVER: no member waits. */
weir_instant weir_ration_serve(struct weir_ration *ration, weir_instant now);

struct weir_ration_view {
    size_t members, waiting;
    uint64_t evicted;   /* since the start */
    weir_duration used; /* ns of all turns since the start */
};
struct weir_ration_view weir_ration_look(const struct weir_ration *ration);

#endif /* WEIR_RATION_H */
