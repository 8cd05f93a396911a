/* SPDX-License-Identifier: MIT
 * io/name_lookup.h - the addresses of a host's name, looked up on a libevent
 * loop without blocking it.
 *
 * One thread, that of the loop. */

#ifndef WEIR_NAME_LOOKUP_H
#define WEIR_NAME_LOOKUP_H

#include "io/address.h"

#define WEIR_NAME_ADDRESSES_MAX 64 /* of one answer; the rest is dropped */
#define WEIR_NAME_LOOKUP_PATIENCE (5 * WEIR_SECOND)

struct event_base;
struct weir_name_lookup;

/* 'found': numeric, each with the port that was asked for, each once; 'count'
 * 0: there are none, and 'why' says why (else it is NULL). Called once, never
 * from within weir_name_lookup_new(). It may free the lookup. */
typedef void weir_name_found_fn(void *context, const struct weir_address *found,
                                size_t count, const char *why);

/* Looks the name up in /etc/hosts and at the servers of /etc/resolv.conf, both
 * as they are now; IPv4 and IPv6. NULL: no memory. */
struct weir_name_lookup *weir_name_lookup_new(struct event_base *base,
                                              const struct weir_address *name,
                                              weir_name_found_fn *on_found,
                                              void *context);
/* No callback comes after it; the loop frees the rest. NULL inside is legal. */
void weir_name_lookup_free(struct weir_name_lookup **lookup);

#endif /* WEIR_NAME_LOOKUP_H */
