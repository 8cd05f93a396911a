/* SPDX-License-Identifier: MIT
 * os/ration.h - how much unauthenticated peers of a listener may cost: places
 * and processor time, shared out among their source addresses.
 *
 *     accept ---> member --turn, turn, ...--> admitted: no member any more
 *                    \--places are full, its source has most--> evicted
 *
 * A connection is a member from the moment it is accepted until its peer has
 * shown a credential or, where none are in force, has been given an answer that
 * needs one. A member's socket is read in turns, which the ration gives; the
 * processor time of a turn, a handshake of TLS included, is measured and
 * charged. All members together get WEIR_RATION_PART of a processor, at most
 * WEIR_RATION_TURNS_MAX in a row before the loop serves others; the bytes that
 * wait stay in the kernel, and hold the peers back. So authenticated
 * connections come first, and a flood costs no more than that.
 *
 * A member that is admitted gets back what its turns cost, for its source and
 * for all: the ration is meant for work that leads nowhere. A thousand limiters
 * that reconnect at once aren't held to a part of a processor, however many
 * share an address; beside a flood from another address theirs has more than
 * half of the turns.
 *
 * Among the members that wait, sources have equal parts of the time: deficit
 * round robin (Shreedhar and Varghese, SIGCOMM 1995) over sources, which are
 * the IPv4 address or the /64 of the IPv6 address, hashed with a seed into
 * WEIR_RATION_SOURCES (stochastic fairness queueing, McKenney, INFOCOM 1990).
 * Every third turn of a source is of a member that had none yet (compare the
 * new flows of RFC 8290), so that a probe for health isn't behind a flood of
 * bytes, and in a flood of connections each has time to finish.
 *
 * All on the loop's thread. */

#ifndef WEIR_RATION_H
#define WEIR_RATION_H

#include <sys/queue.h>
#include <sys/socket.h>

#include "base/base.h"

#define WEIR_RATION_SOURCES 1024u
/* One part in so many of a processor's time. */
#define WEIR_RATION_PART 2
#define WEIR_RATION_BURST (20 * WEIR_MILLISECOND) /* unused time that is kept */
#define WEIR_RATION_TURNS_MAX WEIR_MILLISECOND    /* in a row, and one turn */
#define WEIR_RATION_QUANTUM (WEIR_MILLISECOND / 4) /* of a source in its turn */
/* Bytes read in a turn. */
#define WEIR_RATION_READ (16u << 10)

struct event_base;
struct weir_ration;

/* In the owner's memory, all zero at first. */
struct weir_ration_member {
    /* Set by the owner before it joins. Both functions may leave, and may free
     * the member and its owner; turn() the ration, too. */
    void (*turn)(void *context); /* reads once, at most WEIR_RATION_READ */
    void (*evict)(void *context, const char *why); /* closes; 'why': static */
    void *context;
    /* The ration's. */
    struct weir_ration *ration; /* NULL: no member */
    uint32_t source;
    bool waits, served;
    weir_duration cost; /* of its turns, that under way left out */
    TAILQ_ENTRY(weir_ration_member) among; /* of its source, oldest first */
    TAILQ_ENTRY(weir_ration_member) queue; /* while it waits */
};

struct weir_ration_options {
    struct event_base *base; /* borrowed; NULL: weir_ration_serve() is called */
    size_t places;           /* members at once, > 0 */
    /* The clock that turns are charged by, ns of any beginning; NULL: the
     * processor time of the calling thread. */
    uint64_t (*time_used)(void *context);
    void *context; /* of that */
};

/* NULL: no memory. */
struct weir_ration *weir_ration_new(const struct weir_ration_options *options);
/* The ration must have no member. In a turn, its memory goes when
 * weir_ration_serve() returns. NULL inside is legal. */
void weir_ration_free(struct weir_ration **ration);

/* A connection has been accepted. When there are more than 'places', the oldest
 * member of the source that has most is evicted, before the call returns:
 * never this one, unless it is the only one. 'peer': NULL: none, as of a Unix
 * socket. */
void weir_ration_join(struct weir_ration *ration,
                      struct weir_ration_member *member,
                      const struct sockaddr *peer);
/* The member's peer is authenticated: the member leaves, and the cost of its
 * turns is given back; a turn under way isn't charged. No effect without a
 * ration. */
void weir_ration_admit(struct weir_ration_member *member);
/* The connection is closed. No effect without a ration. */
void weir_ration_leave(struct weir_ration_member *member);
/* The member's socket is readable: asks for one turn, which the loop gives. No
 * effect on a member that waits. */
void weir_ration_wait(struct weir_ration_member *member);
/* Evicts the oldest member of the source that has most, for want of something
 * else than places. False: there is no member. */
bool weir_ration_evict(struct weir_ration *ration, const char *why);

/* Gives the turns that are due; called by the loop. Returns the instant of its
 * next call: 'now': at once, after other work; WEIR_NEVER: no member waits. */
weir_instant weir_ration_serve(struct weir_ration *ration, weir_instant now);

struct weir_ration_view {
    size_t members, waiting;
    uint64_t evicted;   /* ever */
    weir_duration used; /* time of all turns, ever */
};
struct weir_ration_view weir_ration_look(const struct weir_ration *ration);

#endif /* WEIR_RATION_H */
