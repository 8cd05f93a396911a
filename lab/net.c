/* SPDX-License-Identifier: MIT
 * lab/net.c - see net.h.
 *
 * A pipe is a list of packets by arrival. A packet that keeps order goes to the
 * end, since it arrives after the last one that kept order; a packet that
 * overtakes is inserted by its own delay. The world schedules the first one
 * only. */

#include "lab/net.h"

#include <math.h>

#include "lab/memory.h"

#define PARETO_SHAPE 1.5
#define PARETO_CUT 100 /* spreads */

static void arrive(struct weir_part *part, weir_instant now)
{
    (void)now;
    struct weir_pipe *pipe = (struct weir_pipe *)part;
    struct weir_packet *packet = pipe->first;
    pipe->first = packet->next;
    if (pipe->first)
        weir_world_wake(pipe->world, part, pipe->first->at);
    else
        pipe->last = NULL;
    weir_assert(packet->pipe == pipe);
    pipe->arrived(pipe->owner, packet);
}

void weir_pipe_init(struct weir_pipe *pipe)
{
    pipe->part = (struct weir_part){ .name = "pipe", .run = arrive };
}

void weir_pipe_empty(struct weir_pipe *pipe)
{
    while (pipe->first) {
        struct weir_packet *packet = pipe->first;
        pipe->first = packet->next;
        weir_packet_free(packet);
    }
    pipe->last = NULL;
    weir_world_wake(pipe->world, &pipe->part, WEIR_NEVER);
}

struct weir_packet *weir_packet_new(struct weir_pipe *pipe, size_t len)
{
    struct weir_packet *packet =
        weir_must(malloc(sizeof(struct weir_packet) + len));
    packet->next = NULL;
    packet->pipe = pipe;
    packet->len = (uint32_t)len;
    pipe->bytes += len;
    return packet;
}

void weir_packet_free(struct weir_packet *packet)
{
    weir_assert(packet->pipe->bytes >= packet->len);
    packet->pipe->bytes -= packet->len;
    free(packet);
}

/* Pareto's second kind, of the mean 'spread': scale = spread * (shape - 1). 1 -
 * unit is never 0. */
static weir_duration pareto(struct weir_world *world, weir_duration spread)
{
    double unit = 1 - weir_rng_unit(&world->rng);
    double factor = (PARETO_SHAPE - 1) * (pow(unit, -1 / PARETO_SHAPE) - 1);
    if (factor > PARETO_CUT)
        factor = PARETO_CUT;
    return (weir_duration)(factor * (double)spread);
}

static weir_duration draw_delay(struct weir_world *world,
                                const struct weir_net *net)
{
    switch (net->shape) {
    case WEIR_DELAY_FIXED:
        return net->delay;
    case WEIR_DELAY_UNIFORM: {
        weir_duration least =
            net->delay > net->spread ? net->delay - net->spread : 0;
        weir_duration span = net->delay + net->spread - least;
        return least + weir_rng_below(&world->rng, span + 1);
    }
    case WEIR_DELAY_EXPONENTIAL:
        return net->delay + (weir_duration)weir_world_exponential(
                                world, (double)net->spread);
    case WEIR_DELAY_PARETO:
        return net->delay + pareto(world, net->spread);
    }
    return net->delay;
}

/* The instant at which the last of 'len' bytes has been sent. */
static weir_instant leave_at(struct weir_pipe *pipe, size_t len,
                             weir_instant at)
{
    if (pipe->net->bytes_per_s == 0)
        return at;
    if (at < pipe->free_at)
        at = pipe->free_at;
    pipe->free_at = at + (weir_duration)((weir_u128)len * WEIR_SECOND /
                                         pipe->net->bytes_per_s);
    return pipe->free_at;
}

/* After all packets that arrive at the same instant or before. */
static void insert_packet(struct weir_pipe *pipe, struct weir_packet *packet)
{
    struct weir_packet **at = &pipe->first;
    if (pipe->last && pipe->last->at <= packet->at)
        at = &pipe->last->next;
    while (*at && (*at)->at <= packet->at)
        at = &(*at)->next;
    packet->next = *at;
    *at = packet;
    if (!packet->next)
        pipe->last = packet;
    weir_assert(pipe->last && !pipe->last->next);
    weir_world_wake(pipe->world, &pipe->part, pipe->first->at);
}

static void send_one(struct weir_packet *packet, weir_instant leave)
{
    struct weir_pipe *pipe = packet->pipe;
    packet->at =
        leave_at(pipe, packet->len, leave) + draw_delay(pipe->world, pipe->net);
    if (!weir_world_chance(pipe->world, pipe->net->reorder)) {
        if (packet->at <= pipe->last_at)
            packet->at = pipe->last_at + 1;
        pipe->last_at = packet->at;
    }
    insert_packet(pipe, packet);
}

bool weir_pipe_send(struct weir_packet *packet, weir_instant leave)
{
    struct weir_pipe *pipe = packet->pipe;
    if (weir_world_chance(pipe->world, pipe->net->loss)) {
        weir_packet_free(packet);
        return false;
    }
    if (weir_world_chance(pipe->world, pipe->net->twice)) {
        struct weir_packet *copy = weir_packet_new(pipe, packet->len);
        copy->connection = packet->connection;
        memcpy(copy->bytes, packet->bytes, packet->len);
        send_one(copy, leave);
    }
    send_one(packet, leave);
    return true;
}
