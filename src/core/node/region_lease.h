/* SPDX-License-Identifier: MIT
 * node/region_lease.h - leased quotas in a region: the wants of its clients,
 * summed up, are sent to the roots above, and their grants are the capacity
 * that the region's root leases on. For region.c only.
 *
 *     clients --> root half: lease pools --- all wants ---> lease_client --> up
 *     clients <-- root half: lease pools <-- capacity ----- lease_client <-- up
 *
 * Only the master among the region's roots does so; the others send no
 * wants. */

#ifndef WEIR_REGION_LEASE_H
#define WEIR_REGION_LEASE_H

#include "core/node/lease_client.h"
#include "core/node/root_state.h"

struct weir_region_lease;

/* For a region with 'links' upstream links; the root half leases by it from now
 * on. 'root' outlives it. NULL: no memory. */
struct weir_region_lease *weir_region_lease_new(const struct weir_mem *mem,
                                                struct weir_root *root,
                                                uint32_t links, uint32_t places,
                                                uint64_t seed);
void weir_region_lease_free(struct weir_region_lease *lease);

/* The link was welcomed by that root, or is lost (NULL). */
void weir_region_lease_link(struct weir_region_lease *lease, uint32_t link,
                            const struct weir_welcome *welcome,
                            weir_instant now);
/* Grants in that link's session. */
void weir_region_lease_take(struct weir_region_lease *lease, uint32_t link,
                            const struct weir_grants *grants, weir_instant now);
void weir_region_lease_tick(struct weir_region_lease *lease, weir_instant now);
/* The next wants to send; false: none for now. Borrowed until the next call. */
bool weir_region_lease_next(struct weir_region_lease *lease, uint32_t *out_link,
                            struct weir_wants *out, weir_instant now);
weir_instant weir_region_lease_deadline(const struct weir_region_lease *lease,
                                        weir_instant now);

#endif /* WEIR_REGION_LEASE_H */
