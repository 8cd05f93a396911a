/* SPDX-License-Identifier: MIT
 * io/name_lookup.c - the resolver c-ares on a libevent loop, for one name.
 *
 *     NAME              A and AAAA ------------------------> addresses
 *     _weir._tcp.NAME   SRV --> targets --> A and AAAA each -----^
 *
 * A channel of c-ares is made for the lookup, so that a changed
 * /etc/resolv.conf is noticed. Its sockets are events, and its next timeout is
 * a timer. Its callbacks may come within the call that asks, and may not
 * destroy the channel: so the event 'end' reports, in a turn of the loop of its
 * own.
 *
 * Servers give their answers in any order, mostly another one each time. So of
 * more targets or addresses than there is room for, those with the highest
 * hashes stay, as in root_set.c: all limiters keep the same.
 *
 * c-ares writes to TCP by writev(), which may raise SIGPIPE. The programs of
 * Weir ignore it, and the library's thread blocks all signals (process.c).
 *
 * The name of a target is complete (RFC 2782): the final dot keeps c-ares from
 * trying it below the search domains.
 *
 * getaddrinfo() blocks for seconds when no server answers. It would need a
 * thread, and a process that ends would have to wait for that thread.
 * libevent's resolver knows no SRV records, and no TCP for long answers. */

#include "io/name_lookup.h"

/* From 1.28 on newer calls do the same; Debian 12 has 1.18. */
#define CARES_NO_DEPRECATED
#include <ares.h>
#include <arpa/nameser.h>
#include <event2/event.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "io/clock.h"

/* One for UDP and one for TCP of each server. A socket beyond it isn't watched;
 * then its server counts as one that doesn't answer. */
#define SOCKETS_MAX 16
/* A server has 0.5 s for an answer and, asked again, 1 s: so three servers,
 * of which one answers, take less time than WEIR_NAME_LOOKUP_PATIENCE. */
#define TRY_MS 500
#define TRIES 2

struct watch {
    struct weir_name_lookup *lookup;
    struct event *event; /* owned; NULL: not in use */
    ares_socket_t fd;
};

struct list {
    size_t count;
    struct weir_address at[WEIR_NAME_ADDRESSES_MAX];
};

struct weir_name_lookup {
    weir_name_found_fn *on_found; /* NULL: it has been called */
    void *context;
    struct event_base *base;
    struct weir_address name;
    ares_channel channel; /* owned; NULL: not made */
    struct watch watch[SOCKETS_MAX];
    struct event *end;   /* owned: the time is over, or the answer is here */
    struct event *tick;  /* owned: the channel's next timeout */
    uint32_t asked;      /* questions that wait for an answer */
    const char *why;     /* the first reason for no answer */
    struct list targets; /* of a service */
    struct list found;
};

/* ---- The list ---- */

static uint64_t rank_of(const struct weir_address *address)
{
    return weir_hash(weir_text_of(address->host), address->port);
}

/* Adds it, unless it is there; in a full list it replaces the one of the lowest
 * rank, if its own is higher. */
static void list_add(struct list *list, const struct weir_address *address)
{
    size_t lowest = 0;
    for (size_t i = 0; i < list->count; i++) {
        const struct weir_address *other = &list->at[i];
        if (weir_address_is_equal(other, address))
            return;
        if (rank_of(other) < rank_of(&list->at[lowest]))
            lowest = i;
    }
    if (list->count < WEIR_NAME_ADDRESSES_MAX)
        list->at[list->count++] = *address;
    else if (rank_of(address) > rank_of(&list->at[lowest]))
        list->at[lowest] = *address;
}

/* ---- Answers ---- */

static void note_why(struct weir_name_lookup *lookup, const char *why)
{
    if (!lookup->why)
        lookup->why = why;
}

/* An answer came; after the last one the lookup ends. */
static void count_answer(struct weir_name_lookup *lookup)
{
    weir_assert(lookup->asked > 0);
    lookup->asked--;
    if (lookup->asked == 0)
        event_active(lookup->end, EV_TIMEOUT, 1);
}

static void on_addresses(void *context, int status, int timeouts,
                         struct ares_addrinfo *info)
{
    (void)timeouts;
    struct weir_name_lookup *lookup = context;
    if (status == ARES_EDESTRUCTION)
        return;
    const struct ares_addrinfo_node *node = info ? info->nodes : NULL;
    for (; node; node = node->ai_next) {
        struct weir_address address = { .port = 0 };
        char port[6];
        if (getnameinfo(node->ai_addr, node->ai_addrlen, address.host,
                        sizeof address.host, port, sizeof port,
                        NI_NUMERICHOST | NI_NUMERICSERV) != 0)
            continue;
        address.port = (uint16_t)strtoul(port, NULL, 10);
        list_add(&lookup->found, &address);
    }
    if (status == ARES_ENODATA)
        note_why(lookup, "the name has no address");
    else if (status != ARES_SUCCESS)
        note_why(lookup, ares_strerror(status));
    if (info)
        ares_freeaddrinfo(info);
    count_answer(lookup);
}

static void ask_addresses(struct weir_name_lookup *lookup,
                          const struct weir_address *name)
{
    const struct ares_addrinfo_hints hints = {
        .ai_flags = ARES_AI_NUMERICSERV | ARES_AI_NOSORT,
        .ai_family = AF_UNSPEC,
        .ai_socktype = SOCK_STREAM,
        .ai_protocol = IPPROTO_TCP,
    };
    char port[6];
    snprintf(port, sizeof port, "%u", name->port);
    lookup->asked++;
    ares_getaddrinfo(lookup->channel, name->host, port, &hints, on_addresses,
                     lookup);
}

/* Of ASCII, which is all that DNS compares without regard to case. */
static char to_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

/* The target '.' says that there is no such service (RFC 2782). */
static void list_targets(struct weir_name_lookup *lookup,
                         const struct ares_srv_reply *reply)
{
    note_why(lookup, reply ? "its SRV records have no target but the target '.'"
                           : "the name has no SRV record");
    for (; reply; reply = reply->next) {
        struct weir_address target = { .port = reply->port };
        size_t len = strlen(reply->host);
        if (len > 0 && reply->host[len - 1] == '.')
            len--;
        if (len == 0 || len + 2 > sizeof target.host || reply->port == 0)
            continue;
        for (size_t i = 0; i < len; i++)
            target.host[i] = to_lower(reply->host[i]);
        target.host[len] = '.';
        list_add(&lookup->targets, &target);
    }
}

static void on_service(void *context, int status, int timeouts,
                       unsigned char *bytes, int len)
{
    (void)timeouts;
    struct weir_name_lookup *lookup = context;
    if (status == ARES_EDESTRUCTION)
        return;
    struct ares_srv_reply *reply = NULL;
    if (status == ARES_SUCCESS)
        status = ares_parse_srv_reply(bytes, len, &reply);
    if (status == ARES_SUCCESS || status == ARES_ENODATA)
        list_targets(lookup, reply);
    else
        note_why(lookup, ares_strerror(status));
    if (reply)
        ares_free_data(reply);
    if (lookup->targets.count > 0)
        lookup->why = NULL;
    for (size_t i = 0; i < lookup->targets.count; i++)
        ask_addresses(lookup, &lookup->targets.at[i]);
    count_answer(lookup);
}

/* ---- The loop ---- */

static void wait_for_tick(struct weir_name_lookup *lookup)
{
    struct timeval at;
    if (ares_timeout(lookup->channel, NULL, &at))
        event_add(lookup->tick, &at);
    else
        event_del(lookup->tick);
}

static void on_tick(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct weir_name_lookup *lookup = context;
    ares_process_fd(lookup->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
    wait_for_tick(lookup);
}

static void on_socket(evutil_socket_t fd, short what, void *context)
{
    struct weir_name_lookup *lookup = ((struct watch *)context)->lookup;
    ares_process_fd(lookup->channel, what & EV_READ ? fd : ARES_SOCKET_BAD,
                    what & EV_WRITE ? fd : ARES_SOCKET_BAD);
    wait_for_tick(lookup);
}

static struct watch *find_watch(struct weir_name_lookup *lookup,
                                ares_socket_t fd)
{
    struct watch *unused = NULL;
    for (size_t i = 0; i < SOCKETS_MAX; i++) {
        struct watch *watch = &lookup->watch[i];
        if (watch->event && watch->fd == fd)
            return watch;
        if (!watch->event)
            unused = watch;
    }
    return unused;
}

/* c-ares begins to wait for a socket, waits for something else, or (neither)
 * is about to close it. */
static void on_socket_state(void *context, ares_socket_t fd, int readable,
                            int writable)
{
    struct weir_name_lookup *lookup = context;
    struct watch *watch = find_watch(lookup, fd);
    if (!watch)
        return;
    if (watch->event)
        event_free(watch->event);
    *watch = (struct watch){ .lookup = lookup, .fd = fd };
    if (!readable && !writable)
        return;
    watch->event = event_new(lookup->base, fd,
                             (short)(EV_PERSIST | (readable ? EV_READ : 0) |
                                     (writable ? EV_WRITE : 0)),
                             on_socket, watch);
    if (watch->event)
        event_add(watch->event, NULL);
}

static void on_end(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct weir_name_lookup *lookup = context;
    weir_name_found_fn *on_found = lookup->on_found;
    if (!on_found)
        return;
    lookup->on_found = NULL;
    note_why(lookup, "the name was not found in time");
    /* The callback may free the lookup. */
    on_found(lookup->context, lookup->found.at, lookup->found.count,
             lookup->found.count > 0 ? NULL : lookup->why);
}

/* ---- Life ---- */

static int open_channel(struct weir_name_lookup *lookup)
{
    struct ares_options options = {
        .timeout = TRY_MS,
        .tries = TRIES,
        .sock_state_cb = on_socket_state,
        .sock_state_cb_data = lookup,
    };
    return ares_init_options(&lookup->channel, &options,
                             ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES |
                                 ARES_OPT_SOCK_STATE_CB);
}

static void ask(struct weir_name_lookup *lookup)
{
    if (weir_address_is_service(&lookup->name)) {
        lookup->asked++;
        ares_search(lookup->channel, lookup->name.host, ns_c_in, ns_t_srv,
                    on_service, lookup);
    } else {
        ask_addresses(lookup, &lookup->name);
    }
    wait_for_tick(lookup);
}

struct weir_name_lookup *weir_name_lookup_new(struct event_base *base,
                                              const struct weir_address *name,
                                              weir_name_found_fn *on_found,
                                              void *context)
{
    struct weir_name_lookup *lookup = calloc(1, sizeof *lookup);
    if (!lookup)
        return NULL;
    lookup->on_found = on_found;
    lookup->context = context;
    lookup->base = base;
    lookup->name = *name;
    lookup->end = evtimer_new(base, on_end, lookup);
    lookup->tick = evtimer_new(base, on_tick, lookup);
    if (!lookup->end || !lookup->tick) {
        weir_name_lookup_free(&lookup);
        return NULL;
    }
    struct timeval patience = weir_timeval_of(WEIR_NAME_LOOKUP_PATIENCE);
    event_add(lookup->end, &patience);
    int status = open_channel(lookup);
    if (status == ARES_SUCCESS) {
        ask(lookup);
    } else {
        lookup->channel = NULL;
        note_why(lookup, ares_strerror(status));
        event_active(lookup->end, EV_TIMEOUT, 1);
    }
    return lookup;
}

void weir_name_lookup_free(struct weir_name_lookup **lookup)
{
    struct weir_name_lookup *self = *lookup;
    if (!self)
        return;
    *lookup = NULL;
    /* Its sockets are closed, and on_socket_state() frees their events. */
    if (self->channel)
        ares_destroy(self->channel);
    if (self->end)
        event_free(self->end);
    if (self->tick)
        event_free(self->tick);
    free(self);
}
