/* SPDX-License-Identifier: MIT
 * io/name_lookup.h - the addresses of a host's name, or of a service's hosts,
 * looked up on a libevent loop without blocking it.
 *
 * One thread, that of the loop. */

#ifndef WEIR_NAME_LOOKUP_H
#define WEIR_NAME_LOOKUP_H

#include "io/address.h"

/* Of one answer: addresses, or a service's targets; of more, those with the
 * highest hashes. */
#define WEIR_NAME_ADDRESSES_MAX 64
#define WEIR_NAME_LOOKUP_PATIENCE (5 * WEIR_SECOND)

struct event_base;
struct weir_name_lookup;

/* 'found': numeric, each with the port that was asked for or that its SRV
 * record has, each once; 'count' 0: there are none, and 'why' says why (else it
 * is NULL). Called once, never from within weir_name_lookup_new(). It may free
 * the lookup. */
typedef void weir_name_found_fn(void *context, const struct weir_address *found,
                                size_t count, const char *why);

/* Looks the name up in /etc/hosts and at the servers of /etc/resolv.conf, both
 * as they are now; IPv4 and IPv6. A service (weir_address_is_service()) is
 * looked up at the servers alone: its SRV records, and the addresses of all
 * their targets, of any priority and weight. If some questions have no answer,
 * the other answers count. NULL: no memory. */
struct weir_name_lookup *weir_name_lookup_new(struct event_base *base,
                                              const struct weir_address *name,
                                              weir_name_found_fn *on_found,
                                              void *context);
/* No callback comes after it. Not within a callback but that of the lookup.
 * NULL inside is legal. */
void weir_name_lookup_free(struct weir_name_lookup **lookup);

#endif /* WEIR_NAME_LOOKUP_H */
