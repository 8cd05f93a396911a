/* SPDX-License-Identifier: MIT
 * io/name_lookup.c - libevent's resolver for one name.
 *
 * The resolver is made for the lookup, so that a changed /etc/resolv.conf is
 * noticed. It may call back within the call that starts it, and may not be
 * freed within its callback: so an event ends the lookup, in a turn of the loop
 * of its own.
 *
 * getaddrinfo() blocks for seconds when no server answers. It would need a
 * thread, and a process that ends would have to wait for that thread. */

#include "io/name_lookup.h"

#include <event2/dns.h>
#include <event2/event.h>
#include <event2/util.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "io/clock.h"

struct weir_name_lookup {
    weir_name_found_fn *on_found; /* NULL: nobody waits any more */
    void *context;
    struct evdns_base *dns; /* owned */
    struct evdns_getaddrinfo_request *request;
    struct event *end; /* owned: the time is over, or the answer is here */
    const char *why;   /* there is no answer */
    bool answered;     /* or failed, or cancelled: 'request' is over */
    size_t count;
    struct weir_address found[WEIR_NAME_ADDRESSES_MAX];
};

static void free_lookup(struct weir_name_lookup *lookup)
{
    if (lookup->end)
        event_free(lookup->end);
    if (lookup->dns)
        evdns_base_free(lookup->dns, 0);
    free(lookup);
}

static bool is_found_before(const struct weir_name_lookup *lookup,
                            const char *host)
{
    for (size_t i = 0; i < lookup->count; i++)
        if (strcmp(lookup->found[i].host, host) == 0)
            return true;
    return false;
}

static void add_found(struct weir_name_lookup *lookup,
                      const struct evutil_addrinfo *at)
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    if (lookup->count == WEIR_NAME_ADDRESSES_MAX)
        return;
    struct weir_address *address = &lookup->found[lookup->count];
    char *host = address->host;
    const char *done = NULL;
    memset(address, 0, sizeof *address);
    if (at->ai_family == AF_INET) {
        memcpy(&v4, at->ai_addr, sizeof v4);
        done = evutil_inet_ntop(AF_INET, &v4.sin_addr, host, INET6_ADDRSTRLEN);
        address->port = ntohs(v4.sin_port);
    } else if (at->ai_family == AF_INET6) {
        memcpy(&v6, at->ai_addr, sizeof v6);
        done =
            evutil_inet_ntop(AF_INET6, &v6.sin6_addr, host, INET6_ADDRSTRLEN);
        address->port = ntohs(v6.sin6_port);
    }
    lookup->count += done && !is_found_before(lookup, host);
}

static void on_answer(int error, struct evutil_addrinfo *found, void *context)
{
    struct weir_name_lookup *lookup = context;
    lookup->request = NULL;
    lookup->answered = true;
    for (const struct evutil_addrinfo *at = found; at; at = at->ai_next)
        add_found(lookup, at);
    if (lookup->count == 0 && !lookup->why)
        lookup->why =
            error != 0 ? evutil_gai_strerror(error) : "the name has no address";
    if (found)
        evutil_freeaddrinfo(found);
    event_active(lookup->end, EV_TIMEOUT, 1);
}

/* The time is over, or the answer is here. After a cancellation the resolver
 * still calls back. */
static void on_lookup_end(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct weir_name_lookup *lookup = context;
    if (!lookup->answered && !lookup->why) {
        lookup->why = "the name was not found in time";
        evdns_getaddrinfo_cancel(lookup->request);
        return;
    }
    if (!lookup->answered)
        return;
    weir_name_found_fn *on_found = lookup->on_found;
    lookup->on_found = NULL;
    if (!on_found) {
        free_lookup(lookup);
        return;
    }
    /* The callback may free the lookup: then this event comes again. */
    on_found(lookup->context, lookup->found, lookup->count,
             lookup->count > 0 ? NULL : lookup->why);
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
    lookup->end = event_new(base, -1, 0, on_lookup_end, lookup);
    if (!lookup->end) {
        free(lookup);
        return NULL;
    }
    struct timeval patience = weir_timeval_of(WEIR_NAME_LOOKUP_PATIENCE);
    event_add(lookup->end, &patience);
    lookup->dns = evdns_base_new(base, EVDNS_BASE_INITIALIZE_NAMESERVERS |
                                           EVDNS_BASE_DISABLE_WHEN_INACTIVE);
    if (!lookup->dns) {
        lookup->why = "no name server is known (/etc/resolv.conf)";
        lookup->answered = true;
        event_active(lookup->end, EV_TIMEOUT, 1);
        return lookup;
    }
    struct evutil_addrinfo hints = {
        .ai_family = AF_UNSPEC,
        .ai_socktype = SOCK_STREAM,
        .ai_protocol = IPPROTO_TCP,
    };
    char port[6];
    (void)evutil_snprintf(port, sizeof port, "%u", name->port);
    struct evdns_getaddrinfo_request *request = evdns_getaddrinfo(
        lookup->dns, name->host, port, &hints, on_answer, lookup);
    lookup->request = lookup->answered ? NULL : request;
    return lookup;
}

void weir_name_lookup_free(struct weir_name_lookup **lookup)
{
    struct weir_name_lookup *self = *lookup;
    if (!self)
        return;
    *lookup = NULL;
    self->on_found = NULL;
    if (self->answered)
        event_active(self->end, EV_TIMEOUT, 1);
    else if (!self->why) {
        self->why = "cancelled";
        evdns_getaddrinfo_cancel(self->request);
    }
}
