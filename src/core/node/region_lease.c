/* SPDX-License-Identifier: MIT
 * node/region_lease.c - a lease pool with the capacity of a lease holder.
 *
 * For each leased quota that the region's clients use there is a lease pool in
 * the root half, and a lease holder towards the roots above (lease_client.h).
 * Three values go between them:
 *
 *     wants     a band for each priority of the pool's clients
 *     in use    the units that the pool has leased out: a lower grant is
 *               taken when they fit into it, so a parent never takes away
 *               units that are out below
 *     capacity  the holder's limit, till its lease is over: no lease below
 *               goes beyond it
 *
 * Each value changes the others only through the messages of both sides. So the
 * guarantees of one lease pool and its holders hold for a tree: the region is a
 * lease holder that leases its grant on.
 *
 * Timing. A client's wants may change the sums: its quota is put into a list,
 * which the next tick goes through. Changes by time alone (clients fall silent,
 * leases end) are found by a walk over all quotas, once a second.
 *
 * A root that isn't master, or isn't any more, forgets all and wants nothing:
 * the region's next master learns from its clients which leases are out.
 * Nothing is given back, because those clients still have it. A new master
 * receives their wants for a second before it sends its own: small wants and
 * leases would cost the clients theirs. */

#include "core/node/region_lease.h"

#include <string.h>

#include "core/node/root_adaptive.h"
#include "core/node/root_lease.h"

#define WALK_EVERY WEIR_SECOND
/* The clients of a quota's bands may change while the sum of wants stays: wants
 * are sent early when the number of clients changed by this part. */
#define CROWD_CHANGE 0.1

struct above {
    struct weir_lease_link state; /* its 'master' is in: */
    char master[WEIR_MASTER_MAX];
};

/* State of a place beside the lease client's. */
struct place_state {
    bool moved;          /* it is in the list */
    uint32_t next_moved; /* + 1 */
    uint32_t bands;      /* as last sent … */
    double crowd;        /* … and the clients in all of them */
    struct weir_guarantee guarantees[WEIR_LEASE_GUARANTEES_MAX]; /* granted */
    size_t guarantee_count;
};

struct weir_region_lease {
    struct weir_mem mem;
    struct weir_root *root;
    struct weir_lease_client *client; /* in 'block' */
    void *block;                      /* owned */
    size_t block_size;
    struct weir_lease_speaker speaker;
    struct weir_lease_witness witness;
    struct above above[WEIR_ROOTS_MAX];
    uint32_t links, places;
    struct place_state *states; /* owned; by place */
    uint32_t moved_first;       /* + 1 */
    bool leases;   /* the root half's mastership, as last seen … */
    uint64_t term; /* … and its term */
    weir_instant walk_at;
};

/* ---- Master or not ---- */

static void set_client_links(struct weir_region_lease *l, weir_instant now)
{
    static const struct weir_lease_link down = { .up = false };
    for (uint32_t i = 0; i < l->links; i++)
        weir_lease_client_link(l->client, i,
                               l->leases ? &l->above[i].state : &down, now);
}

/* If the root half's mastership or term changed, begins anew. */
static void follow_master(struct weir_region_lease *l, weir_instant now)
{
    bool leases = weir_root_leases(l->root);
    uint64_t term = l->root->leases.term;
    if (leases == l->leases && (!leases || term == l->term))
        return;
    l->leases = leases;
    l->term = term;
    l->moved_first = 0;
    memset(l->states, 0, l->places * sizeof(*l->states));
    weir_lease_client_forget(l->client);
    set_client_links(l, now);
}

/* ---- Between lease pool and lease holder ---- */

/* Passes the wants of the pool's clients, and the units it has leased out, to
 * the lease holder. Returns the number of bands. */
static size_t pass_wants_up(struct weir_region_lease *l, uint32_t place,
                            struct weir_band *bands, bool *out_learning,
                            weir_instant now)
{
    weir_assert(place < l->places);
    const struct weir_lease_manager *manager = l->root->leases.manager;
    struct weir_text name = weir_lease_client_name(l->client, place);
    struct weir_leased_stats stats = { .pool = { .learning = false } };
    const struct weir_lease_pool *pool = weir_lease_manager_pool(manager, name);
    size_t count =
        pool ? weir_lease_pool_bands(pool, bands, WEIR_LEASE_BANDS_MAX) : 0;
    weir_lease_manager_left_of(manager, name, &stats, now);
    weir_assert(count <= WEIR_LEASE_BANDS_MAX);
    double wants = 0, crowd = 0;
    for (size_t i = 0; i < count; i++) {
        wants += bands[i].wants;
        crowd += bands[i].clients;
    }
    weir_lease_client_want(l->client, place,
                           weir_smaller(wants, WEIR_LEASE_UNITS_MAX), now);
    weir_lease_client_leased_on(l->client, place, stats.pool.out,
                                stats.pool.safe_out, stats.pool.learning);
    struct place_state *state = &l->states[place];
    double moved = crowd - state->crowd;
    if (state->bands != count || moved > CROWD_CHANGE * crowd ||
        -moved > CROWD_CHANGE * state->crowd)
        weir_lease_client_hurry(l->client, place, now);
    *out_learning = stats.pool.learning;
    return count;
}

/* Writes the bands, and notes them as sent. */
static size_t write_region_bands(void *context, uint32_t place, uint64_t ticket,
                                 struct weir_band *out_bands,
                                 bool *out_learning, weir_instant now)
{
    (void)ticket;
    struct weir_region_lease *l = context;
    weir_assert(place < l->places);
    size_t count = pass_wants_up(l, place, out_bands, out_learning, now);
    l->states[place].bands = (uint32_t)count;
    l->states[place].crowd = 0;
    for (size_t i = 0; i < count; i++)
        l->states[place].crowd += out_bands[i].clients;
    return count;
}

/* The latencies that the region's clients have measured, of an adaptive limit
 * of a fleet. */
static bool collect_window(void *context, uint32_t place, uint64_t ticket,
                           struct weir_latency_count *bins,
                           struct weir_latency_batch *out, weir_instant now)
{
    struct weir_region_lease *l = context;
    (void)ticket;
    return weir_root_adaptive_collect(
        l->root, weir_lease_client_name(l->client, place), bins, out, now);
}

static void keep_guarantees(void *context, uint32_t place, uint64_t ticket,
                            const struct weir_guarantee *guarantees,
                            size_t count, weir_instant now)
{
    struct weir_region_lease *l = context;
    struct place_state *state = &l->states[place];
    (void)ticket;
    (void)now;
    weir_assert(place < l->places && count <= WEIR_LEASE_GUARANTEES_MAX);
    state->guarantee_count = count;
    if (count > 0)
        memcpy(state->guarantees, guarantees, count * sizeof(*guarantees));
}

static void moved(void *context, struct weir_text name, weir_instant now)
{
    (void)now;
    struct weir_region_lease *l = context;
    uint32_t place = weir_lease_client_find(l->client, name);
    if (place == WEIR_LEASE_PLACE_NONE || l->states[place].moved)
        return;
    weir_assert(place < l->places);
    l->states[place].moved = true;
    l->states[place].next_moved = l->moved_first;
    l->moved_first = place + 1;
}

/* Gives an unused quota back. If the quota isn't leased any more, its leases
 * stay counted above: it may be leased again. */
static void follow_place(struct weir_region_lease *l, uint32_t place,
                         weir_instant now)
{
    weir_assert(place < l->places);
    struct weir_band bands[WEIR_LEASE_BANDS_MAX];
    bool learning;
    struct weir_leased_stats stats;
    pass_wants_up(l, place, bands, &learning, now);
    struct weir_text name = weir_lease_client_name(l->client, place);
    if (!weir_lease_manager_left_of(l->root->leases.manager, name, &stats, now))
        weir_lease_client_close(l->client, place, now);
}

static void follow_moved(struct weir_region_lease *l, weir_instant now)
{
    while (l->moved_first != 0) {
        uint32_t place = l->moved_first - 1;
        struct place_state *state = &l->states[place];
        weir_assert(place < l->places && state->moved);
        l->moved_first = state->next_moved;
        state->moved = false;
        struct weir_text name = weir_lease_client_name(l->client, place);
        if (weir_lease_client_find(l->client, name) == place)
            follow_place(l, place, now);
    }
}

static void follow_all(struct weir_region_lease *l, weir_instant now)
{
    uint32_t cursor = 0, place;
    while (weir_lease_client_each(l->client, &cursor, &place)) {
        if (!l->states[place].moved) /* those in the list stay open */
            follow_place(l, place, now);
    }
}

/* ---- Capacity of the root half ---- */

static uint32_t find_or_open(struct weir_region_lease *l, struct weir_text name,
                             weir_instant now)
{
    struct weir_lease_want want = { .name = name,
                                    .on_stale = WEIR_STALE_SHARE,
                                    .inflight = true };
    uint32_t place = weir_lease_client_find(l->client, name);
    if (place != WEIR_LEASE_PLACE_NONE)
        return place;
    place = weir_lease_client_open(l->client, &want, now);
    if (place != WEIR_LEASE_PLACE_NONE) {
        weir_assert(place < l->places && !l->states[place].moved);
        l->states[place] = (struct place_state){ .moved = false };
        moved(l, name, now);
    }
    return place;
}

/* Whether the roots above have granted anything so far. */
static bool is_granted(const struct weir_lease_holder *holder)
{
    return holder->term > 0;
}

static int why_not(enum weir_lease_error error)
{
    switch (error) {
    case WEIR_LEASE_GRANTED:
        break;
    case WEIR_LEASE_UNKNOWN:
        return WEIR_ENOENT;
    case WEIR_LEASE_NOT_LEASED:
        return WEIR_EQUOTA;
    case WEIR_LEASE_NO_ROOM:
        return WEIR_EFULL;
    case WEIR_LEASE_DENIED:
        return WEIR_EDENIED;
    }
    return WEIR_ENOTREADY;
}

/* Classes that are guaranteed a share have what this region is guaranteed of
 * it, as a part of its capacity. */
static void lease_on_guarantees(const struct place_state *state,
                                struct weir_lease_rule *rule)
{
    double rest = rule->capacity;
    for (size_t i = 0; i < rule->part_count; i++) {
        double units = 0;
        for (size_t k = state->guarantee_count; k-- > 0;)
            if (state->guarantees[k].band == rule->parts[i].band)
                units = weir_smaller(state->guarantees[k].units, rest);
        rest -= units;
        rule->parts[i].part = rule->capacity > 0 ? units / rule->capacity : 0;
    }
}

static int grant(void *context, const struct weir_quota *quota,
                 struct weir_text name, struct weir_leased *leased,
                 weir_instant now)
{
    struct weir_region_lease *l = context;
    follow_master(l, now);
    uint32_t place = find_or_open(l, name, now);
    if (place == WEIR_LEASE_PLACE_NONE)
        return WEIR_EFULL;
    const struct weir_lease_holder *holder =
        weir_lease_client_holder(l->client, place);
    struct weir_lease_rule *rule = &leased->rule;
    /* Of a fleet's limit: a part that is over, or that a master which learns
     * doesn't give yet, isn't a part of nothing. Its processes aren't answered,
     * and stay, or go, alone. */
    bool over = quota->sharing == WEIR_ADAPTIVE &&
                (now >= holder->expiry || holder->capacity == 0);
    if (!is_granted(holder) || over) {
        /* Capacity leased above isn't ours: first learn the leases that holders
         * may have from the region's former master. */
        rule->capacity = rule->safe = 0;
        leased->expiry = leased->safe_until = now;
        leased->safe = 0;
        return why_not(weir_lease_client_error(l->client, place));
    }
    struct weir_lease_holder_lease lease;
    weir_lease_holder_lease(holder, &lease, now);
    rule->cut = holder->cut;
    if (quota->sharing == WEIR_ADAPTIVE)
        weir_root_adaptive_granted(l->root, name, lease.capacity, holder->cut,
                                   now);
    rule->capacity =
        lease.capacity < rule->capacity ? lease.capacity : rule->capacity;
    lease_on_guarantees(&l->states[place], rule);
    leased->expiry = lease.expiry;
    leased->safe = lease.safe;
    leased->safe_until = lease.safe_until;
    weir_assert(leased->expiry <= leased->safe_until);
    return WEIR_OK;
}

/* ---- Messages ---- */

static void keep_master(struct above *above, struct weir_text master)
{
    weir_assert(master.len <= sizeof above->master);
    if (master.len > 0)
        memcpy(above->master, master.p, master.len);
    above->state.master = (struct weir_text){ above->master, master.len };
}

void weir_region_lease_link(struct weir_region_lease *l, uint32_t link,
                            const struct weir_welcome *welcome,
                            weir_instant now)
{
    weir_assert(link < l->links);
    struct above *above = &l->above[link];
    above->state = weir_lease_link_of(welcome);
    keep_master(above, above->state.master);
    follow_master(l, now);
    if (l->leases)
        weir_lease_client_link(l->client, link, &above->state, now);
}

static void follow_changed(struct weir_region_lease *l, weir_instant now)
{
    uint32_t place;
    while (weir_lease_client_changed(l->client, &place, now)) {
        if (!is_granted(weir_lease_client_holder(l->client, place)))
            continue; /* it was opened, and has no answer yet */
        struct weir_text name = weir_lease_client_name(l->client, place);
        weir_root_lease_answered(l->root, name, now);
        moved(l, name, now);
    }
}

/* Takes the link's statement on the mastership, master here or not. */
static void keep_statement(struct above *above,
                           const struct weir_grants *grants)
{
    if (!above->state.up || grants->term < above->state.term)
        return;
    above->state.term = grants->term;
    above->state.leases = !grants->elsewhere;
    keep_master(above, grants->master);
}

void weir_region_lease_take(struct weir_region_lease *l, uint32_t link,
                            const struct weir_grants *grants, weir_instant now)
{
    weir_assert(link < l->links);
    keep_statement(&l->above[link], grants);
    follow_master(l, now);
    if (!l->leases)
        return;
    weir_lease_client_take(l->client, link, grants, now);
    follow_changed(l, now);
    /* Answers clients that wait for a quota that isn't granted. */
    for (size_t i = 0; i < grants->count; i++) {
        if (grants->grants[i].error != WEIR_LEASE_GRANTED)
            weir_root_lease_answered(l->root, grants->grants[i].name, now);
    }
    follow_moved(l, now);
}

void weir_region_lease_tick(struct weir_region_lease *l, weir_instant now)
{
    follow_master(l, now);
    if (!l->leases)
        return;
    follow_changed(l, now);
    follow_moved(l, now);
    if (now >= l->walk_at) {
        l->walk_at = now + WALK_EVERY;
        follow_all(l, now);
    }
}

bool weir_region_lease_next(struct weir_region_lease *l, uint32_t *out_link,
                            struct weir_wants *out, weir_instant now)
{
    /* First the region's clients report their leases. */
    return l->leases && now >= l->root->leases.ask_from &&
           weir_lease_client_next(l->client, out_link, out, now);
}

weir_instant weir_region_lease_deadline(const struct weir_region_lease *l,
                                        weir_instant now)
{
    bool begins = weir_root_leases(l->root) != l->leases;
    if (begins || l->moved_first != 0)
        return now;
    if (!l->leases)
        return WEIR_NEVER;
    weir_instant due = weir_lease_client_deadline(l->client, now);
    return weir_earlier(l->walk_at, weir_later(due, l->root->leases.ask_from));
}

/* ---- Life ---- */

static bool make_lease_parts(struct weir_region_lease *l, uint64_t seed)
{
    struct weir_lease_client_options options = { .places = l->places,
                                                 .links = l->links,
                                                 .seed = seed,
                                                 .speaker = &l->speaker,
                                                 .witness = &l->witness };
    l->states = l->mem.alloc(l->mem.context, l->places * sizeof(*l->states));
    l->block_size = weir_lease_client_size(&options) + WEIR_CACHE_LINE;
    l->block = l->mem.alloc(l->mem.context, l->block_size);
    if (!l->states || !l->block)
        return false;
    uintptr_t at = (uintptr_t)l->block + WEIR_CACHE_LINE - 1;
    l->client = weir_lease_client_init(
        (void *)(at & ~(uintptr_t)(WEIR_CACHE_LINE - 1)), &options);
    return true;
}

struct weir_region_lease *weir_region_lease_new(const struct weir_mem *mem,
                                                struct weir_root *root,
                                                uint32_t links, uint32_t places,
                                                uint64_t seed)
{
    weir_assert(links <= WEIR_ROOTS_MAX && !root->leases.lessor.grant);
    struct weir_region_lease *l = mem->alloc(mem->context, sizeof(*l));
    if (!l)
        return NULL;
    l->mem = *mem;
    l->root = root;
    l->links = links;
    l->places = places < WEIR_LEASE_PLACES_MAX ? places : WEIR_LEASE_PLACES_MAX;
    l->speaker = (struct weir_lease_speaker){ .context = l,
                                              .speak = write_region_bands };
    l->witness = (struct weir_lease_witness){ .context = l,
                                              .collect = collect_window,
                                              .guaranteed = keep_guarantees };
    if (!make_lease_parts(l, seed)) {
        weir_region_lease_free(l);
        return NULL;
    }
    root->leases.lessor =
        (struct root_lessor){ .context = l, .grant = grant, .moved = moved };
    return l;
}

void weir_region_lease_free(struct weir_region_lease *l)
{
    if (!l)
        return;
    struct weir_mem mem = l->mem;
    if (l->block)
        mem.free(mem.context, l->block, l->block_size);
    if (l->states)
        mem.free(mem.context, l->states, l->places * sizeof(*l->states));
    mem.free(mem.context, l, sizeof(*l));
}
