/* SPDX-License-Identifier: MIT
 * node/region_lease.h - leased quotas in a region: what its clients want
 * together is asked of the roots above, and what those grant is what the
 * region's root hands out. For region.c only.
 *
 *     clients --> root half: brokers --- what all want ---> lease_client --> up
 *     clients <-- root half: brokers <-- capacity, till --- lease_client <-- up
 *
 * Only the region's root that is master among its region's roots does so;
 * another asks nobody for anything. */

#ifndef WEIR_REGION_LEASE_H
#define WEIR_REGION_LEASE_H

#include "node/lease_client.h"
#include "node/root_state.h"

struct weir_region_lease;

/* Of a region with so many links upwards; makes the root half lease by it.
 * 'root' outlives it. NULL: no memory. */
struct weir_region_lease *weir_region_lease_new(const struct weir_mem *mem,
                                                struct weir_root *root,
                                                uint32_t links, uint32_t places,
                                                uint64_t seed);
void weir_region_lease_free(struct weir_region_lease *lease);

/* The link was welcomed by that root, or is lost (NULL). */
void weir_region_lease_link(struct weir_region_lease *lease, uint32_t link,
                            const struct weir_welcome *welcome,
                            weir_instant now);
/* Of that link's session. */
void weir_region_lease_take(struct weir_region_lease *lease, uint32_t link,
                            const struct weir_grants *grants, weir_instant now);
void weir_region_lease_tick(struct weir_region_lease *lease, weir_instant now);
/* The next wants to send; false: none for now. Borrowed until the next call. */
bool weir_region_lease_next(struct weir_region_lease *lease, uint32_t *out_link,
                            struct weir_wants *out, weir_instant now);
weir_instant weir_region_lease_deadline(const struct weir_region_lease *lease,
                                        weir_instant now);

#endif /* WEIR_REGION_LEASE_H */
