/* SPDX-License-Identifier: MIT
 * core/node/limiter_lease.c - a limiter's leased quotas: which slots want
 * capacity, how their use is measured, and how their grants take effect.
 *
 *     table: a take marks the slot ──> fresh() ──> a place of the client's
 *            count, refused         ──> use, each 100 ms while there is any
 *            leak, bursts           <── limit, when it has changed
 *
 * A place begins with the slot's first use, or its first handle. It ends when
 * the last of its handles is closed, when it was unused for
 * WEIR_LEASE_HOLDER_IDLE, or when its quota isn't leased any more.
 *
 * A mark is only a hint. A report, an edit, a permit that leaves, and a refusal
 * that moves from a thread's stripe to the slot set it too. So a slot without
 * place gets one only if a handle is open, or if its total of units passed and
 * refused has grown, or if it was peeked at by name. Otherwise the next report
 * of a slot that was used and closed would open a place again.
 *
 * A handle may come and go between two looks. The table notes that the last one
 * was closed, and each look reads that note before the totals. If there is a
 * note, the use since the look before may be the handle's own: the place waits
 * for one more look, and ends if there was no use by then. If there was, the
 * quota is used by its name, and the place goes on without handles.
 *
 * A peek charges nothing and is counted nowhere, but its verdict is worthless
 * without a grant. So the weight of a peek by name is offered as use: that of a
 * refused one once a second, until the grant has room for it; that of a passed
 * one once in the ten seconds over which use is smoothed, which keeps the
 * grant. More would take capacity from those that use it: a process may peek a
 * thousand times a second for what another one takes. For the same reason a
 * weight above the burst of the whole quota, which never passes, isn't offered.
 *
 * A refusal before the first grant writes only to its thread's stripe, which
 * wakes no limiter: while there are leased quotas, the limiter looks at the
 * marks each 100 ms. Rejected: a mark by the first refusal of each slot. It
 * costs every refusal a comparison, to save a new slot 50 ms on average.
 *
 * From counted to leased and back, while requests run. While counted, this
 * process decides by the whole limit and the whole fleet's bucket. The edit
 * ends that. Until the first grant the process may use its recent rate plus a
 * little, but at most its part of the limit. All parts together are the limit,
 * so no more passes than before, and no request is refused for lack of a
 * message. It reports that amount as its present lease, and wants as much as it
 * uses. From leased to counted, it keeps to its grant until a root has sent the
 * fleet's bucket (one round trip: the edit causes a report at once), or until
 * the lease is over; in that case its own bucket stands for the fleet's.
 *
 * Units in flight. A lease of a quota of kind concurrency is a number of units
 * in flight, and permits hold the used part. The table obeys a lower grant at
 * once; the units in flight are reported after that, so that the grant is taken
 * when they fit: at each look, and when a released permit made them fit (a
 * kick). A place ends when its permits hold no unit. From counted to leased it
 * starts with the units in flight, which in sum are the counted ones. A permit
 * outlasts its lease; the lease pool counts it until its end is reported, or
 * for permit_timeout.
 *
 * Adaptive limits of a fleet. The root finds the limit, and leases it as units
 * in flight; the slot's gate keeps to its part, with fractions, and keeps what
 * it measures, which goes with the wants (collect_window()). A grant that is
 * above the units in flight, but for a fraction, has all of them in it: a
 * permit in flight by the fraction of 0.3 is 0.3 in use. Without a lease
 * (on_stale pass, as it is told to the lease holder unless it is limit) the
 * gate finds a limit itself, from its part on, and that is what the process has
 * when a root answers again. The place begins with the limit that the gate has:
 * one permit, or what was found while the quota's scope was the process.
 *
 * A slot without place goes by its quota's on_stale. */

#include <math.h>
#include <string.h>

#include "core/counted/bits.h"
#include "core/node/limiter_internal.h"
#include "core/table/table_permit.h"

#define LOOK_EVERY (100 * WEIR_MILLISECOND)
/* A peek is offered as use once in so long, if it passed and if it didn't. */
#define PEEK_EVERY WEIR_LEASE_HOLDER_WINDOW
#define PEEK_REFUSED_EVERY WEIR_LEASE_HOLDER_RISE

struct lease_place {
    uint32_t slot;
    uint32_t generation;
    uint64_t count, refused; /* the slot's totals when the place began: units
                              * passed (permits: entered), and units refused */
    uint64_t peeked; /* units of peeks that were offered as use since … */
    weir_instant peeked_at; /* … and when the last of them were */
    uint64_t offered; /* units passed, refused and peeked since; at the last
                       * look */
    bool opened;      /* a handle was open since its last use without one */
    bool late; /* another thread's lock kept the grant out of the table */
};

/* ---- Memory ---- */

/* The latencies that a gate has measured go with its wants. */
static bool collect_window(void *context, uint32_t place, uint64_t ticket,
                           struct weir_latency_count *bins,
                           struct weir_latency_batch *out, weir_instant now)
{
    struct weir_limiter *limiter = context;
    uint32_t slot = limiter->leases.place[place].slot;
    (void)ticket;
    return weir_table_leasing(limiter->table, slot) == WEIR_LEASING_GRANTED &&
           weir_table_collect_window(limiter->table, slot, bins, out, now);
}

static size_t divide_wants(void *context, uint32_t place, uint64_t ticket,
                           double wants, struct weir_band *out_bands,
                           weir_instant now)
{
    struct weir_limiter *limiter = context;
    uint32_t slot = limiter->leases.place[place].slot;
    (void)ticket;
    if (weir_table_leasing(limiter->table, slot) != WEIR_LEASING_GRANTED)
        return 0;
    return weir_table_divide_wants(limiter->table, slot, wants, out_bands, now);
}

/* If the table is locked, the classes keep what they had until the next
 * grant. */
static void set_guarantees(void *context, uint32_t place, uint64_t ticket,
                           const struct weir_guarantee *guarantees,
                           size_t count, weir_instant now)
{
    struct weir_limiter *limiter = context;
    uint32_t slot = limiter->leases.place[place].slot;
    (void)ticket;
    (void)now;
    if (weir_table_leasing(limiter->table, slot) == WEIR_LEASING_GRANTED)
        (void)weir_table_set_guarantees(limiter->table, slot, guarantees,
                                        count);
}

/* 'witness': of no meaning where only sizes are asked for. */
static struct weir_lease_client_options client_options(
    const struct weir_limiter_options *options,
    const struct weir_lease_witness *witness)
{
    return (struct weir_lease_client_options){
        .places = options->leases,
        .links = options->links,
        .seed = options->seed,
        .speaker = options->speaker,
        .witness = options->limits > 0 ? witness : NULL,
    };
}

size_t weir_limiter_leases_size(const struct weir_limiter_options *options)
{
    static const struct weir_lease_witness any;
    struct weir_lease_client_options client = client_options(options, &any);
    return weir_aligned(weir_lease_client_size(&client)) +
           weir_aligned(options->slots * sizeof(uint32_t)) +
           weir_aligned(options->slots * sizeof(uint64_t)) +
           weir_aligned(options->leases * sizeof(struct lease_place));
}

uint32_t weir_limiter_leases_arrays(
    const struct weir_limiter_options *options,
    struct weir_slot_array out[LEASES_ARRAYS_MAX])
{
    static const struct weir_lease_witness any;
    struct weir_lease_client_options client = client_options(options, &any);
    uint64_t at = weir_aligned(weir_lease_client_size(&client));
    out[0] = (struct weir_slot_array){ at, sizeof(uint32_t) };
    at += weir_aligned(options->slots * sizeof(uint32_t));
    out[1] = (struct weir_slot_array){ at, sizeof(uint64_t) };
    return 2;
}

void weir_limiter_leases_init(struct weir_limiter *limiter, void *block,
                              const struct weir_limiter_options *options)
{
    weir_assert(options->leases <= WEIR_LEASE_PLACES_MAX);
    struct limiter_leases *leases = &limiter->leases;
    leases->witness =
        (struct weir_lease_witness){ .context = limiter,
                                     .collect = collect_window,
                                     .divide = divide_wants,
                                     .guaranteed = set_guarantees };
    struct weir_lease_client_options client =
        client_options(options, &leases->witness);
    char *rest = block;
    leases->client = weir_lease_client_init(rest, &client);
    rest += weir_aligned(weir_lease_client_size(&client));
    leases->place_of = (void *)rest;
    rest += weir_aligned(options->slots * sizeof(uint32_t));
    leases->seen = (void *)rest;
    rest += weir_aligned(options->slots * sizeof(uint64_t));
    leases->place = (void *)rest;
    leases->priority = options->lease_priority;
    leases->look_at = WEIR_NEVER;
}

/* ---- Links ---- */

void weir_limiter_leases_link(struct weir_limiter *limiter, uint32_t index,
                              const struct weir_welcome *welcome,
                              weir_instant now)
{
    weir_assert(index < limiter->link_count);
    struct weir_lease_link state = weir_lease_link_of(welcome);
    weir_lease_client_link(limiter->leases.client, index, &state, now);
}

/* ---- Places ---- */

/* The place of a slot in its present life, or NONE. */
static uint32_t place_of_slot(const struct limiter_leases *leases,
                              uint32_t slot)
{
    return leases->place_of[slot] - 1;
}

static void close_place(struct limiter_leases *leases, uint32_t at,
                        weir_instant now)
{
    const struct lease_place *place = &leases->place[at];
    uint32_t slot = place->slot;
    if (leases->place_of[slot] == at + 1)
        leases->place_of[slot] = 0;
    leases->seen[slot] =
        place->count + place->refused + place->offered - place->peeked;
    weir_lease_client_close(leases->client, at, now);
}

/* The process's own priority, or the quota's. */
static int64_t priority_of(const struct weir_limiter *limiter, uint32_t slot)
{
    struct weir_lease_view lease;
    weir_table_lease_view(limiter->table, slot, &lease);
    int64_t own = limiter->leases.priority;
    return own != 0 ? own : lease.priority;
}

/* Units passed (entered) and refused since the slot's last place ended. A sum
 * that is too small for an instant counts as 0. */
static uint64_t units_since(const struct limiter_leases *leases, uint32_t slot,
                            uint64_t passed, uint64_t refused)
{
    uint64_t units = passed + refused - leases->seen[slot];
    return (int64_t)units > 0 ? units : 0;
}

/* An adaptive limit of a fleet isn't passed by without a root: the gate finds
 * one itself, unless it is to refuse. */
static enum weir_on_stale stale_of(const struct weir_slot_view *view)
{
    if (view->sharing != WEIR_ADAPTIVE || view->on_stale == WEIR_STALE_LIMIT)
        return view->on_stale;
    return WEIR_STALE_PASS;
}

/* Reports the first use of a place. Its demand is known at the first look: it
 * includes units refused before the place, but after the last one. */
static void begin_place(struct weir_limiter *limiter, uint32_t at,
                        const struct weir_slot_view *view, weir_instant now)
{
    struct limiter_leases *leases = &limiter->leases;
    struct lease_place *place = &leases->place[at];
    weir_assert(leases->place_of[place->slot] == at + 1);
    struct weir_lease_view lease;
    uint32_t slot = place->slot;
    double wants;
    uint64_t refused = weir_table_refused(limiter->table, slot);
    weir_table_lease_view(limiter->table, slot, &lease);
    uint64_t since = units_since(leases, slot, lease.entered, refused);
    place->count = view->count;
    place->refused = refused - (since < refused ? since : refused);
    if (weir_table_wanted(limiter->table, slot, &wants))
        weir_lease_client_want(leases->client, at, wants, now);
    if (lease.inflight)
        place->count = lease.entered;
    if (lease.adaptive) {
        place->refused = refused;
        weir_lease_client_begin_with(leases->client, at, lease.granted,
                                     weir_larger(1, (double)lease.in_flight),
                                     now);
        return;
    }
    if (lease.leasing != WEIR_LEASING_KEPT || lease.limit > WEIR_LIMIT_MAX) {
        struct weir_lease_use first = { .offered = 1, .passed = 1 };
        if (lease.inflight)
            first.in_use = lease.in_flight > 0 ? lease.in_flight : 1;
        place->count--;
        weir_lease_client_use(leases->client, at, &first, now);
        return;
    }
    place->refused = refused;
    if (lease.inflight) {
        double in_flight = (double)lease.in_flight;
        weir_lease_client_begin_with(leases->client, at, in_flight, in_flight,
                                     now);
        return;
    }
    double used = weir_tally_rate(&limiter->tally, slot, now);
    double has = weir_tally_part(&limiter->tally, slot) * lease.limit;
    if (has > used * (1 + WEIR_LEASE_HOLDER_HEADROOM))
        has = used * (1 + WEIR_LEASE_HOLDER_HEADROOM);
    weir_lease_client_begin_with(leases->client, at, has, used, now);
}

static void note_no_room(struct weir_limiter *limiter, struct weir_text name,
                         weir_instant now)
{
    struct limiter_leases *leases = &limiter->leases;
    if (leases->short_of_room++ > 0)
        return;
    struct weir_event *event =
        weir_limiter_note(limiter, WEIR_EVENT_TABLE_FULL, name, now);
    if (event)
        event->count = 0; /* of quotas: they have slots */
}

static uint32_t open_place(struct weir_limiter *limiter, uint32_t slot,
                           weir_instant now)
{
    weir_assert(!limiter->region);
    struct limiter_leases *leases = &limiter->leases;
    struct weir_slot_view view;
    char name[WEIR_NAME_MAX + 1];
    size_t len = weir_table_name(limiter->table, slot, name);
    weir_table_view(limiter->table, slot, &view, now);
    struct weir_lease_want want = {
        .name = { name, len },
        .inflight = view.inflight,
        .on_stale = stale_of(&view),
        .priority = priority_of(limiter, slot),
        .ticket = slot,
    };
    if (len == 0 || leases->released)
        return WEIR_LEASE_PLACE_NONE;
    uint32_t at = weir_lease_client_open(leases->client, &want, now);
    if (at == WEIR_LEASE_PLACE_NONE) {
        note_no_room(limiter, want.name, now);
        weir_table_set_lease(limiter->table, slot,
                             want.on_stale == WEIR_STALE_PASS ? INFINITY : 0, 0,
                             now);
        return at;
    }
    leases->short_of_room = 0;
    /* Until now the place may have been another slot's. */
    uint32_t before = leases->place[at].slot;
    if (leases->place_of[before] == at + 1)
        leases->place_of[before] = 0;
    leases->place_of[slot] = at + 1;
    leases->place[at] = (struct lease_place){ .slot = slot,
                                              .generation = view.generation,
                                              .opened = view.refs > 0 };
    begin_place(limiter, at, &view, now);
    return at;
}

/* ---- Grants ---- */

/* Call after the table has the new limit: units in flight above it are read
 * then. */
static void report_in_use(struct weir_limiter *limiter, uint32_t at)
{
    struct limiter_leases *leases = &limiter->leases;
    const struct weir_lease_holder *holder =
        weir_lease_client_holder(leases->client, at);
    if (!holder->inflight)
        return;
    uint32_t slot = leases->place[at].slot;
    struct weir_lease_view lease;
    weir_assert(slot < weir_table_used(limiter->table));
    double in_use = (double)weir_table_in_flight(limiter->table, slot);
    weir_table_lease_view(limiter->table, slot, &lease);
    if (lease.adaptive && in_use < holder->capacity + 1)
        in_use = weir_smaller(in_use, holder->capacity);
    weir_lease_client_in_use(leases->client, at,
                             weir_smaller(in_use, WEIR_LEASE_UNITS_MAX));
}

/* The lease as its holder has it. If the table is locked, the place's next look
 * does it. */
static void apply_lease(struct weir_limiter *limiter, uint32_t at,
                        weir_instant now)
{
    struct limiter_leases *leases = &limiter->leases;
    struct lease_place *place = &leases->place[at];
    const struct weir_lease_holder *holder =
        weir_lease_client_holder(leases->client, at);
    double limit = weir_lease_holder_limit(holder, now);
    bool over = now >= holder->expiry;
    bool ends = over && weir_table_leasing(limiter->table, place->slot) ==
                            WEIR_LEASING_PARTING;
    bool done = ends ? weir_table_end_lease(limiter->table, place->slot, now)
                     : weir_table_set_lease(limiter->table, place->slot, limit,
                                            holder->cut, now);
    place->late = !done;
}

static void apply_grants(struct weir_limiter *limiter, weir_instant now)
{
    weir_assert(!limiter->region);
    struct limiter_leases *leases = &limiter->leases;
    uint32_t at;
    while (weir_lease_client_changed(leases->client, &at, now)) {
        const struct lease_place *place = &leases->place[at];
        struct weir_slot_view view;
        weir_table_view(limiter->table, place->slot, &view, now);
        if (view.generation != place->generation)
            continue; /* the next look closes it */
        apply_lease(limiter, at, now);
        report_in_use(limiter, at);
    }
}

void weir_limiter_leases_take(struct weir_limiter *limiter, uint32_t index,
                              const struct weir_grants *grants,
                              weir_instant now)
{
    for (size_t i = 0; i < grants->count; i++)
        if (grants->grants[i].error == WEIR_LEASE_DENIED)
            weir_limiter_note_denied(limiter, index, grants->grants[i].name,
                                     now);
    weir_lease_client_take(limiter->leases.client, index, grants, now);
    if (!limiter->region)
        apply_grants(limiter, now);
}

/* ---- Marked slots ---- */

/* Whether a marked slot without place gets one: see the file's head. */
static bool needs_place(struct weir_limiter *limiter, uint32_t slot,
                        weir_instant now)
{
    weir_assert(slot < weir_table_used(limiter->table));
    struct weir_slot_view view;
    struct weir_lease_view lease;
    weir_table_view(limiter->table, slot, &view, now);
    weir_table_lease_view(limiter->table, slot, &lease);
    uint64_t refused = weir_table_refused(limiter->table, slot);
    return view.refs > 0 || weir_table_is_peeked(limiter->table, slot) ||
           units_since(&limiter->leases, slot, lease.entered, refused) > 0;
}

/* The slots that the last collect found. */
static void look_at_fresh(struct weir_limiter *limiter, weir_instant now)
{
    struct limiter_leases *leases = &limiter->leases;
    if (limiter->region || leases->look_at == WEIR_NEVER)
        return;
    uint32_t end = weir_table_used(limiter->table);
    const uint64_t *fresh = limiter->tally.fresh;
    weir_assert(end <= limiter->tally.slots);
    for (uint32_t slot = weir_bit_next(fresh, 0, end); slot < end;
         slot = weir_bit_next(fresh, slot + 1, end)) {
        if (weir_table_leasing(limiter->table, slot) == WEIR_LEASING_NONE)
            continue;
        uint32_t at = place_of_slot(leases, slot);
        if (at == WEIR_LEASE_PLACE_NONE && needs_place(limiter, slot, now))
            at = open_place(limiter, slot, now);
        if (at == WEIR_LEASE_PLACE_NONE)
            continue;
        double wants;
        report_in_use(limiter, at);
        if (weir_table_wanted(limiter->table, slot, &wants))
            weir_lease_client_want(leases->client, at, wants, now);
    }
}

void weir_limiter_collect(struct weir_limiter *limiter, bool all,
                          weir_instant now)
{
    weir_tally_collect(&limiter->tally, all, now);
    look_at_fresh(limiter, now);
}

void weir_limiter_hurry(struct weir_limiter *limiter, weir_instant now)
{
    weir_limiter_collect(limiter, false, now);
    for (uint32_t i = 0; i < limiter->link_count; i++)
        limiter->link[i].urgent = true;
}

/* ---- Edits ---- */

/* The slot's quota was added or changed. */
static void follow_edit(struct weir_limiter *limiter, uint32_t slot,
                        weir_instant now)
{
    weir_assert(!limiter->region);
    struct limiter_leases *leases = &limiter->leases;
    uint32_t at = place_of_slot(leases, slot);
    struct weir_slot_view view;
    switch (weir_table_leasing(limiter->table, slot)) {
    case WEIR_LEASING_NONE:
        return; /* seen when it is used, or at its place's next look */
    case WEIR_LEASING_CLOSED:
        /* Removed and created again before its place was looked at. */
        if (at != WEIR_LEASE_PLACE_NONE)
            open_place(limiter, slot, now);
        return;
    case WEIR_LEASING_KEPT:
        if (weir_tally_rate(&limiter->tally, slot, now) > 0 ||
            weir_table_in_flight(limiter->table, slot) > 0)
            open_place(limiter, slot, now);
        else
            weir_table_end_lease(limiter->table, slot, now);
        weir_tally_unshare(&limiter->tally, slot, now);
        return;
    case WEIR_LEASING_GRANTED:
        weir_table_view(limiter->table, slot, &view, now);
        if (at != WEIR_LEASE_PLACE_NONE)
            weir_lease_client_edit(leases->client, at, stale_of(&view),
                                   view.inflight, priority_of(limiter, slot),
                                   now);
        return;
    case WEIR_LEASING_PARTING:
        /* A root is to send its fill at once. */
        weir_table_mark(limiter->table, slot);
        leases->parting = true;
        return;
    }
}

void weir_limiter_leases_edited(struct weir_limiter *limiter,
                                const struct weir_quota *quota,
                                weir_instant now)
{
    struct limiter_leases *leases = &limiter->leases;
    if (weir_quota_is_leased(quota) && leases->look_at == WEIR_NEVER)
        leases->look_at = now;
    if (limiter->region || leases->look_at == WEIR_NEVER)
        return;
    struct weir_ref ref;
    leases->parting = false;
    if (!weir_quota_is_template(quota)) {
        if (weir_table_find(limiter->table, quota->name, &ref))
            follow_edit(limiter, ref.slot, now);
    } else {
        uint32_t end = weir_table_used(limiter->table);
        for (uint32_t slot = 0; slot < end; slot++)
            follow_edit(limiter, slot, now);
    }
    if (leases->parting)
        weir_limiter_hurry(limiter, now);
    apply_grants(limiter, now);
}

/* ---- Use ---- */

/* Whether the lease of a slot isn't needed any more. 'used', 'unpinned': since
 * the look before. */
static bool is_lease_over(struct limiter_leases *leases, uint32_t at,
                          const struct weir_slot_view *view, bool used,
                          bool unpinned, weir_instant now)
{
    struct lease_place *place = &leases->place[at];
    const struct weir_lease_holder *holder =
        weir_lease_client_holder(leases->client, at);
    if (unpinned || view->refs > 0)
        place->opened = true;
    else if (used)
        place->opened = false;
    bool closed = place->opened && view->refs == 0 && !used;
    bool idle = weir_lease_holder_wants(holder, now) == 0 &&
                now > holder->used_at &&
                now - holder->used_at >= WEIR_LEASE_HOLDER_IDLE;
    return (closed || idle) && !(view->inflight && view->count > 0);
}

/* An in-flight counter first admits no more units: if one was admitted just
 * before, the place stays. */
static void end_place(struct weir_limiter *limiter, uint32_t at,
                      weir_instant now)
{
    weir_assert(!limiter->region);
    struct limiter_leases *leases = &limiter->leases;
    uint32_t slot = leases->place[at].slot;
    const struct weir_lease_holder *holder =
        weir_lease_client_holder(leases->client, at);
    double limit = weir_lease_holder_limit(holder, now);
    uint64_t cut = holder->cut;
    bool inflight = holder->inflight;
    if (!weir_table_end_lease(limiter->table, slot, now))
        return; /* the next look ends it */
    if (inflight && weir_table_in_flight(limiter->table, slot) > 0) {
        leases->place[at].late =
            !weir_table_set_lease(limiter->table, slot, limit, cut, now);
        return;
    }
    close_place(leases, at, now);
}

/* The peeks since the look before, as the file's head says. One that no grant
 * lets pass needs a grant for its answer alone: it counts as one unit. */
static void offer_peeks(struct weir_limiter *limiter, struct lease_place *place,
                        const struct weir_lease_view *lease, weir_instant now)
{
    bool limited;
    uint64_t weight =
        weir_table_end_peek(limiter->table, place->slot, &limited);
    if (weight > lease->burst)
        weight = 1;
    weir_duration every = limited ? PEEK_REFUSED_EVERY : PEEK_EVERY;
    if (weight == 0 ||
        (place->peeked > 0 && weir_since(place->peeked_at, now) < every))
        return;
    place->peeked += weight;
    place->peeked_at = now;
}

/* Reports the use so far. Returns whether it grew since the look before. */
static bool report_use(struct weir_limiter *limiter, uint32_t at,
                       const struct weir_slot_view *view, weir_instant now)
{
    struct limiter_leases *leases = &limiter->leases;
    struct lease_place *place = &leases->place[at];
    weir_assert(place->slot < weir_table_used(limiter->table));
    struct weir_lease_view lease;
    uint64_t refused = weir_table_refused(limiter->table, place->slot);
    struct weir_lease_use use = { .passed = view->count - place->count };
    weir_table_lease_view(limiter->table, place->slot, &lease);
    if (lease.inflight) {
        use.passed = lease.entered - place->count;
        use.in_use = lease.in_flight;
        use.awaited = lease.awaited;
        use.fractions = lease.adaptive;
    }
    if (lease.adaptive && lease.leasing == WEIR_LEASING_CLOSED)
        weir_lease_client_goes_by(leases->client, at, lease.granted, now);
    offer_peeks(limiter, place, &lease, now);
    use.offered = use.passed + (refused - place->refused) + place->peeked;
    report_in_use(limiter, at);
    weir_lease_client_use(leases->client, at, &use, now);
    bool used = (int64_t)(use.offered - place->offered) > 0;
    if (used)
        place->offered = use.offered;
    return used;
}

static void look_at_place(struct weir_limiter *limiter, uint32_t at,
                          weir_instant now)
{
    weir_assert(!limiter->region);
    struct limiter_leases *leases = &limiter->leases;
    struct lease_place *place = &leases->place[at];
    struct weir_slot_view view;
    bool unpinned = weir_table_was_unpinned(limiter->table, place->slot);
    weir_table_view(limiter->table, place->slot, &view, now);
    if (view.generation != place->generation ||
        weir_table_leasing(limiter->table, place->slot) == WEIR_LEASING_NONE) {
        close_place(leases, at, now);
        return;
    }
    if (place->late)
        apply_lease(limiter, at, now);
    bool used = report_use(limiter, at, &view, now);
    if (is_lease_over(leases, at, &view, used, unpinned, now))
        end_place(limiter, at, now);
}

bool weir_limiter_leases_due(const struct weir_limiter *limiter,
                             weir_instant now)
{
    return !limiter->region && now >= limiter->leases.look_at;
}

/* Gives back all leases that the table uses no longer. */
static void release_places(struct weir_limiter *limiter, weir_instant now)
{
    struct limiter_leases *leases = &limiter->leases;
    uint32_t cursor = 0;
    uint32_t at;
    leases->unreleased = false;
    while (weir_lease_client_each(leases->client, &cursor, &at)) {
        if (weir_table_end_lease(limiter->table, leases->place[at].slot, now))
            close_place(leases, at, now);
        else
            leases->unreleased = true;
    }
}

/* Ends leases of an earlier limiter, in slots that have no place. */
static void end_inherited(struct weir_limiter *limiter, weir_instant now)
{
    struct limiter_leases *leases = &limiter->leases;
    uint32_t end = weir_table_used(limiter->table);
    leases->inherited = false;
    for (uint32_t slot = 0; slot < end; slot++)
        if (leases->place_of[slot] == 0 &&
            weir_table_leasing(limiter->table, slot) != WEIR_LEASING_NONE &&
            !weir_table_end_lease(limiter->table, slot, now))
            leases->inherited = true;
}

void weir_limiter_leases_look(struct weir_limiter *limiter, weir_instant now)
{
    struct limiter_leases *leases = &limiter->leases;
    uint32_t cursor = 0;
    uint32_t at;
    if (limiter->region)
        return;
    if (leases->unreleased)
        release_places(limiter, now);
    if (leases->inherited)
        end_inherited(limiter, now);
    if (now >= leases->look_at) {
        while (weir_lease_client_each(leases->client, &cursor, &at))
            look_at_place(limiter, at, now);
        leases->look_at = now + LOOK_EVERY;
    }
    apply_grants(limiter, now);
}

/* ---- Messages, release ---- */

bool weir_limiter_leases_next(struct weir_limiter *limiter, uint32_t *out_link,
                              struct weir_message *out, weir_instant now)
{
    if (!weir_lease_client_next(limiter->leases.client, out_link, &out->wants,
                                now))
        return false;
    weir_assert(*out_link < limiter->link_count);
    out->type = WEIR_MESSAGE_WANTS;
    out->session = limiter->link[*out_link].session;
    return true;
}

weir_instant weir_limiter_leases_deadline(const struct weir_limiter *limiter,
                                          weir_instant now)
{
    const struct limiter_leases *leases = &limiter->leases;
    weir_instant due = weir_lease_client_deadline(leases->client, now);
    return limiter->region ? due : weir_earlier(due, leases->look_at);
}

void weir_limiter_release(struct weir_limiter *limiter, weir_instant now)
{
    limiter->leases.released = true;
    release_places(limiter, now);
}

void weir_limiter_leases_forget(struct weir_limiter *limiter, weir_instant now)
{
    struct limiter_leases *leases = &limiter->leases;
    uint32_t end = weir_table_used(limiter->table);
    leases->released = leases->unreleased = false;
    weir_lease_client_forget(leases->client);
    memset(leases->place_of, 0, end * sizeof(*leases->place_of));
    end_inherited(limiter, now);
    if (leases->look_at != WEIR_NEVER)
        leases->look_at = now;
}
