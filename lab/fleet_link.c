/* SPDX-License-Identifier: MIT
 * lab/fleet_link.c - the links of a fleet: their state, and the transport of
 * bytes.
 *
 * A link goes up when both of its ends run and no cut is between them; both
 * ends are informed at that instant. It goes down when an end dies, when both
 * ways are cut and the time to notice is over, or when an end refuses a message
 * of the other (then it is tried again after a moment, as in libweir). If only
 * one way is cut, the ends aren't informed: the bytes of that way vanish. A
 * link that is down doesn't go up over a cut of any kind.
 *
 * Bytes sent and not taken yet are in the pipe or in an inbox, as in the
 * buffers of two sockets. When half a buffer is full, the root is paused, and
 * at a quarter it resumes. A limiter needn't be paused: it has at most one
 * unanswered report. */

#include "lab/fleet_internal.h"

/* The first retry interval of libweir. */
#define RETRY_AFTER (50 * WEIR_MILLISECOND)
#define HOLD_ABOVE (WEIR_FLEET_INBOX_BYTES / 2)
#define HOLD_UNTIL (WEIR_FLEET_INBOX_BYTES / 4)

static struct weir_node *link_limiter(const struct weir_link *link)
{
    const struct weir_fleet *fleet = link->fleet;
    return link->limiter < fleet->options.limiters
               ? &fleet->limiters[link->limiter]
               : &fleet->roots[link->limiter - fleet->options.limiters];
}

static struct weir_node *link_root(const struct weir_link *link)
{
    return &link->fleet->roots[link->root];
}

/* ---- Bytes ---- */

static void lose_packet(struct weir_link *link, struct weir_packet *packet)
{
    weir_assert(weir_link_of(packet) == link);
    link->fleet->stats.lost++;
    weir_packet_free(packet);
    weir_link_relieve(link);
}

static void at_root(void *owner, struct weir_packet *packet)
{
    struct weir_link *link = owner;
    if (link->cut & WEIR_WAY_UP || !link->up)
        lose_packet(link, packet);
    else
        link->ends->arrive(link_root(link), packet);
}

static void at_limiter(void *owner, struct weir_packet *packet)
{
    struct weir_link *link = owner;
    if (link->cut & WEIR_WAY_DOWN || !link->up)
        lose_packet(link, packet);
    else
        link->ends->arrive(link_limiter(link), packet);
}

static void note_sent(struct weir_link *link, const struct weir_packet *packet,
                      const struct weir_message *message)
{
    struct weir_fleet_stats *stats = &link->fleet->stats;
    stats->messages++;
    stats->bytes += packet->len;
    stats->reports += message->type == WEIR_MESSAGE_REPORT;
    stats->fills += message->type == WEIR_MESSAGE_FILLS;
    if (stats->waiting_bytes_most < packet->pipe->bytes)
        stats->waiting_bytes_most = packet->pipe->bytes;
}

void weir_link_send(struct weir_link *link, bool to_root,
                    const struct weir_message *message, weir_instant leave)
{
    if (!link->up)
        return;
    struct weir_pipe *pipe = to_root ? &link->to_root : &link->to_limiter;
    size_t size = weir_v1_size(message);
    struct weir_packet *packet = weir_packet_new(pipe, size);
    if (weir_v1_encode(message, packet->bytes, size) != size)
        abort();
    packet->connection = link->connection;
    note_sent(link, packet, message);
    if (link->cut & (to_root ? WEIR_WAY_UP : WEIR_WAY_DOWN)) {
        link->fleet->stats.lost++;
        weir_packet_free(packet);
    } else if (!weir_pipe_send(packet, leave)) {
        link->fleet->stats.lost++;
    }
    if (!to_root && !link->paused && pipe->bytes > HOLD_ABOVE) {
        link->paused = true;
        weir_root_pause(link_root(link)->root, link->limiter, true);
    }
}

void weir_link_relieve(struct weir_link *link)
{
    if (!link->paused || link->to_limiter.bytes > HOLD_UNTIL)
        return;
    link->paused = false;
    weir_root_pause(link_root(link)->root, link->limiter, false);
    link->ends->resume(link_root(link));
}

bool weir_link_admits(struct weir_link *link, const struct weir_packet *packet)
{
    if (!link->up || packet->connection < link->oldest)
        return false;
    return packet->connection == link->connection ||
           weir_world_chance(&link->fleet->world, link->net.replay);
}

/* ---- Up and down ---- */

static void switch_ends(struct weir_link *link, bool up)
{
    weir_assert(link->up != up);
    link->up = up;
    link->connection++;
    link->paused = false;
    link->ends->switch_link(link_root(link), link->limiter, false, up);
    link->ends->switch_link(link_limiter(link), link->root, true, up);
}

void weir_link_break(struct weir_link *link)
{
    if (link->up)
        switch_ends(link, false);
    if (link->net.replay > 0)
        return;
    weir_pipe_empty(&link->to_root);
    weir_pipe_empty(&link->to_limiter);
}

void weir_link_settle(struct weir_link *link)
{
    weir_instant now = link->fleet->world.now;
    weir_instant look_at = WEIR_NEVER;
    bool may = link->allowed && weir_node_alive(link_limiter(link)) &&
               weir_node_alive(link_root(link));
    if (link->cut == WEIR_WAY_BOTH) {
        may = may && now < link->noticed_at;
        look_at = may ? link->noticed_at : WEIR_NEVER;
    }
    if (link->up) {
        if (!may)
            weir_link_break(link);
    } else if (may && link->cut == 0) {
        if (now >= link->retry_at)
            switch_ends(link, true);
        else
            look_at = link->retry_at;
    }
    weir_world_wake(&link->fleet->world, &link->part, look_at);
}

void weir_link_drop(struct weir_link *link)
{
    weir_link_break(link);
    weir_assert(!link->up);
    link->retry_at = link->fleet->world.now + RETRY_AFTER;
    weir_link_settle(link);
}

/* ---- Life ---- */

static void retry_link(struct weir_part *part, weir_instant now)
{
    (void)now;
    weir_link_settle((struct weir_link *)part);
}

static void make_pipe(struct weir_link *link, struct weir_pipe *pipe,
                      void (*arrived)(void *, struct weir_packet *))
{
    pipe->world = &link->fleet->world;
    pipe->net = &link->net;
    pipe->owner = link;
    pipe->arrived = arrived;
    weir_pipe_init(pipe);
}

void weir_link_init(struct weir_link *link, struct weir_fleet *fleet,
                    const struct weir_link_ends *ends, uint32_t limiter,
                    uint32_t root)
{
    *link = (struct weir_link){
        .part = { .name = "link", .run = retry_link },
        .fleet = fleet,
        .ends = ends,
        .limiter = limiter,
        .root = root,
        .allowed = true,
        .net = fleet->options.net,
    };
    make_pipe(link, &link->to_root, at_root);
    make_pipe(link, &link->to_limiter, at_limiter);
}

void weir_link_fini(struct weir_link *link)
{
    weir_pipe_empty(&link->to_root);
    weir_pipe_empty(&link->to_limiter);
}
