/* SPDX-License-Identifier: MIT
 * lab/net.h - the simulated network: pipes that carry the bytes of weir.v1 one
 * way, with a delay, and if configured with loss, duplication and reordering.
 *
 * A pipe keeps order as TCP does, except for packets that it lets overtake. It
 * outlives connections: a packet bears the number of the connection that it was
 * sent on, and the receiver compares it. */

#ifndef WEIR_NET_H
#define WEIR_NET_H

#include "lab/world.h"

enum weir_delay_shape {
    WEIR_DELAY_FIXED,       /* always 'delay' */
    WEIR_DELAY_UNIFORM,     /* between 'delay' - 'spread' and + 'spread' */
    WEIR_DELAY_EXPONENTIAL, /* 'delay' + an exponential of mean 'spread' */
    WEIR_DELAY_PARETO,      /* the same, heavy-tailed (shape 1.5), cut at 100
                             * times 'spread' */
};

/* Faults of a pipe. */
struct weir_net {
    enum weir_delay_shape shape;
    weir_duration delay, spread; /* one way */
    double loss;                 /* probabilities 0 .. 1: a message vanishes, */
    double twice;                /* … arrives twice, */
    double reorder;              /* … may overtake those before it, */
    double replay; /* … in flight at the end of a connection arrives on the
                     * next one */
    uint64_t bytes_per_s; /* 0: unlimited */
};

struct weir_pipe;

struct weir_packet {
    struct weir_packet *next; /* in its present queue */
    struct weir_pipe *pipe;
    weir_instant at; /* when it arrives */
    uint32_t connection;
    uint32_t len;
    char bytes[];
};

/* One direction of a link. A part of the world only while it holds packets. */
struct weir_pipe {
    struct weir_part part;    /* the first member */
    struct weir_world *world; /* borrowed, as the next */
    const struct weir_net *net;
    void *owner; /* argument of 'arrived' */
    /* Takes over the packet, to be freed by weir_packet_free(). */
    void (*arrived)(void *owner, struct weir_packet *packet);
    struct weir_packet *first; /* owned; by arrival */
    struct weir_packet *last;
    weir_instant last_at; /* arrival of the last one that kept order */
    weir_instant free_at; /* when the last byte sent has left */
    uint64_t bytes;       /* of its packets that aren't freed */
};

/* The caller has filled 'world', 'net', 'owner' and 'arrived'. */
void weir_pipe_init(struct weir_pipe *pipe);
/* Frees the packets in flight. */
void weir_pipe_empty(struct weir_pipe *pipe);

/* A packet of 'len' bytes, to be filled and sent or freed. */
struct weir_packet *weir_packet_new(struct weir_pipe *pipe, size_t len);
void weir_packet_free(struct weir_packet *packet);
/* Sends at 'leave' (now or later). The packet then belongs to the pipe. False:
 * it was lost. */
bool weir_pipe_send(struct weir_packet *packet, weir_instant leave);

#endif /* WEIR_NET_H */
