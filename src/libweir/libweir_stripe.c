/* SPDX-License-Identifier: MIT
 * libweir/libweir_stripe.c - finds the calling thread's stripe of the table.
 *
 * A thread-local word remembers the stripe of the limiter used last, so that a
 * decision costs three loads. Behind it stands a key of the limiter, which also
 * gives the stripe back when the thread ends. Threads beyond the number of
 * stripes share one of the process: 0, or its number in a shared table.
 *
 * The id that is compared lies on a page that is wiped in a child of fork(), so
 * the same comparison detects a child, at no extra cost.
 *
 * A child has copies of its parent's words: of the thread that forked. They
 * must neither be used there nor give anything back, least of all on a shared
 * table: the stripe belongs to the parent's thread, which goes on. So the
 * child's limiter has another id and another key, and until it has them nothing
 * is given back. */

#include "libweir/libweir_internal.h"

#include "core/base/atomic.h"
#include "io/clock.h"

/* Neither a limiter's id nor that of a wiped page. */
#define ID_NONE 1

/* initial-exec: two instructions instead of a call, also in the shared
 * library; 16 bytes of the static TLS that dlopen() keeps in reserve. */
static __thread struct {
    uint64_t id;
    uint32_t stripe;
} mine __attribute__((tls_model("initial-exec"))) = { ID_NONE, 0 };

static void release_stripe(void *value)
{
    const struct weir_stripe_lease *lease = value;
    /* A later call of the thread, as it ends, claims another. */
    mine.id = ID_NONE;
    if (weir_own_is_set(lease->weir))
        weir_table_release_stripe(lease->weir->table, lease->stripe);
}

int weir_stripes_init(struct weir *weir)
{
    weir->leases =
        weir_mem_system.alloc(NULL, weir->stripes * sizeof(*weir->leases));
    if (!weir->leases)
        return WEIR_ENOMEM;
    for (uint32_t i = 0; i < weir->stripes; i++)
        weir->leases[i] = (struct weir_stripe_lease){ weir, i };
    if (pthread_key_create(&weir->stripe_key, release_stripe) == 0)
        return WEIR_OK;
    weir_mem_system.free(NULL, weir->leases,
                         weir->stripes * sizeof(*weir->leases));
    return WEIR_ESYSTEM;
}

void weir_stripes_fini(struct weir *weir)
{
    pthread_key_delete(weir->stripe_key);
    weir_mem_system.free(NULL, weir->leases,
                         weir->stripes * sizeof(*weir->leases));
}

void weir_stripes_forked(struct weir *weir)
{
    weir_assert(!weir_own_is_set(weir));
    weir_entropy(&weir->id, sizeof(weir->id));
    weir->id |= 2; /* as in weir_nodes_make() */
    /* Without a key each decision claims a stripe and gives it back. */
    pthread_key_delete(weir->stripe_key);
    (void)pthread_key_create(&weir->stripe_key, release_stripe);
    /* Those of a shared table are all the parent's. */
    for (uint32_t i = 1; !weir->block && i < weir->stripes; i++)
        weir_table_release_stripe(weir->table, i);
}

static __attribute__((noinline)) uint32_t find_mine(struct weir *weir)
{
    /* A bucket state's lock may be a former thread's, and is broken meanwhile:
     * then no thread decides before that is done. */
    if (weir->block || weir_table_rules_made(weir->table) > 0)
        weir_own_ensure(weir);
    else
        weir_own_try(weir);
    /* Another thread does it, and gives stripes back. */
    if (!weir_own_is_set(weir))
        return 0;
    const struct weir_stripe_lease *lease =
        pthread_getspecific(weir->stripe_key);
    if (!lease) {
        uint32_t stripe =
            weir_table_claim_stripe_as(weir->table, weir->process);
        lease = &weir->leases[stripe];
        if (pthread_setspecific(weir->stripe_key, lease) != 0) {
            weir_table_release_stripe(weir->table, stripe);
            return weir->process;
        }
    }
    weir_assert(lease->stripe < weir->stripes);
    mine.id = weir->id;
    mine.stripe = lease->stripe;
    return lease->stripe;
}

uint32_t weir_stripe_mine(struct weir *weir)
{
    uint64_t id = weir_load_relaxed(&weir->own->id);
    return WEIR_LIKELY(mine.id == id) ? mine.stripe : find_mine(weir);
}
