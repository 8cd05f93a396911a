/* SPDX-License-Identifier: MIT
 * core/node/limiter.c - the limiter's side of each root link.
 *
 * A link's life:
 *
 *     down --link(up)--> greeting --hello sent--> waiting --welcome--> up
 *       ^                                                              |
 *       '--------------------- link(down) ----------------------------'
 *
 * A link that is up reports once an interval in any case (the empty report is
 * the heartbeat), and earlier when the table says that some slot used up its
 * slack, but not within 20 ms of the last report.
 *
 * Stale. If the topmost root is silent for stale_after, the table follows each
 * quota's on_stale until that root is received again. Roots of a region send
 * how long it has been silent to them; the youngest such age is used. While the
 * region's roots answer, they compute `share`: they see the whole region. A
 * limiter decides alone only when no root answers.
 *
 * Carrier. Of the roots with an upstream one is handed the counts: the present
 * carrier while no other is fitter. The fittest root answers, and has received
 * from the topmost root lately. */

#include "core/node/limiter.h"

#include <string.h>

#include "core/base/hash.h"
#include "core/node/limiter_internal.h"
#include "core/quota/quota_feature.h"

/* Slots of a table that is audited as a whole where audits are on. */
#define AUDITED_WHOLE_MAX 256
#define EXTRAPOLATE_EVERY (50 * WEIR_MILLISECOND)
#define LOOK_EVERY (50 * WEIR_MILLISECOND)
/* A root without quotas is asked for its welcome again so often. */
#define WELCOME_EVERY (10 * WEIR_SECOND)
#define SWEEP_EVERY (100 * WEIR_MILLISECOND)
#define SWEEP_SLOTS 1024
#define SWEEP_CROWDED 16384 /* while there is hardly any room left */
/* The rest of a full report follows after this. */
#define REST_AFTER (50 * WEIR_MILLISECOND)
/* An unanswered message is sent again after this; doubled each time. */
#define RESEND_FIRST WEIR_SECOND
#define RESEND_MOST (8 * WEIR_SECOND)
/* The slack of a link silent for this long isn't used while others answer. */
#define PATIENCE (500 * WEIR_MILLISECOND)

/* ---- Memory ---- */

size_t weir_limiter_size(const struct weir_limiter_options *options)
{
    return weir_aligned(sizeof(struct weir_limiter)) +
           weir_limiter_asks_size(options->asks) +
           weir_limiter_leases_size(options) +
           weir_limiter_limits_size(options->limits) +
           weir_tally_size(options->slots, options->links,
                           options->region != NULL);
}

/* The arrays of slots in a limiter's block, in their order. */
static uint32_t list_arrays(
    const struct weir_limiter_options *options,
    struct weir_slot_array out[LEASES_ARRAYS_MAX + WEIR_TALLY_ARRAYS_MAX])
{
    uint64_t leases_at = weir_aligned(sizeof(struct weir_limiter)) +
                         weir_limiter_asks_size(options->asks);
    uint64_t tally_at = leases_at + weir_limiter_leases_size(options) +
                        weir_limiter_limits_size(options->limits);
    uint32_t first = weir_limiter_leases_arrays(options, out);
    uint32_t count =
        first + weir_tally_arrays(options->slots, options->links,
                                  options->region != NULL, out + first);
    for (uint32_t i = 0; i < count; i++)
        out[i].at += i < first ? leases_at : tally_at;
    return count;
}

/* From 0 on, all that lies between the arrays is included: it is as large for
 * any number of slots. */
uint32_t weir_limiter_ranges(
    const struct weir_limiter_options *options, uint32_t from, uint32_t to,
    struct weir_table_range out[WEIR_LIMITER_RANGES_MAX])
{
    struct weir_slot_array arrays[LEASES_ARRAYS_MAX + WEIR_TALLY_ARRAYS_MAX];
    uint32_t count = list_arrays(options, arrays);
    uint64_t size = weir_limiter_size(options);
    uint64_t end = 0; /* of the previous array, with all slots */
    weir_assert(from < to && to <= options->slots);
    for (uint32_t i = 0; i < count; i++) {
        const struct weir_slot_array *array = &arrays[i];
        weir_assert(array->at >= end);
        uint64_t at = from > 0 ? array->at + from * array->bytes : end;
        out[i] =
            (struct weir_table_range){ at, array->at + to * array->bytes - at };
        end = array->at + options->slots * array->bytes;
    }
    weir_assert(end <= size);
    if (from == 0 && end < size)
        out[count++] = (struct weir_table_range){ end, size - end };
    return count;
}

static void set_limiter_name(struct weir_limiter *limiter,
                             struct weir_text name)
{
    limiter->name_len = name.len < WEIR_NAME_MAX ? name.len : WEIR_NAME_MAX;
    if (limiter->name_len > 0)
        memcpy(limiter->name, name.p, limiter->name_len);
    weir_assert(limiter->name_len <= sizeof limiter->name);
}

struct weir_limiter *weir_limiter_init(
    void *block, const struct weir_limiter_options *options, weir_instant now)
{
    weir_assert(options->table);
    weir_assert(options->links <= WEIR_ROOTS_MAX);
    struct weir_limiter *limiter = block;
    limiter->table = options->table;
    limiter->link_count = options->links;
    limiter->rng.state = options->seed;
    limiter->region = options->region;
    limiter->grow = options->grow;
    limiter->grow_context = options->grow_context;
    limiter->passes_on_full = options->passes_on_full;
    limiter->sink = options->region ? options->region : options->keeper;
    set_limiter_name(limiter, options->name);
    limiter->features =
        options->features ? options->features : WEIR_FEATURES_ALL;
    memcpy(limiter->incarnation, options->incarnation, WEIR_INCARNATION_SIZE);
    limiter->settings = (struct weir_settings){
        .report_interval = WEIR_SECOND,
        .stale_after = 3 * WEIR_SECOND,
        .slack = true,
    };
    char *rest = (char *)block + weir_aligned(sizeof(struct weir_limiter));
    weir_limiter_asks_init(&limiter->asks, rest, options->asks);
    rest += weir_limiter_asks_size(options->asks);
    weir_limiter_leases_init(limiter, rest, options);
    rest += weir_limiter_leases_size(options);
    limiter->limits.rows = (struct weir_adaptive_limit *)rest;
    limiter->limits.capacity = options->limits;
    rest += weir_limiter_limits_size(options->limits);
    weir_tally_init(&limiter->tally, rest, options->table, options->slots,
                    options->links, options->region != NULL, now);
    limiter->tally.slack = true;
    limiter->born = now;
    limiter->collect_at = now + WEIR_SECOND;
    limiter->extrapolate_at = now + EXTRAPOLATE_EVERY;
    limiter->sweep_at = now + SWEEP_EVERY;
    return limiter;
}

void weir_limiter_reincarnate(struct weir_limiter *limiter,
                              struct weir_text name, const uint8_t *incarnation,
                              weir_instant now)
{
    set_limiter_name(limiter, name);
    memcpy(limiter->incarnation, incarnation, WEIR_INCARNATION_SIZE);
    weir_tally_disown(&limiter->tally, now);
    /* Each slot is treated as new: its first use is reported at once. This also
     * repairs a change that the parent's sync thread was in the middle of. */
    weir_table_lift_stops(limiter->table);
    limiter->unknown_before = weir_table_unknown(limiter->table);
    limiter->contended_before = weir_table_contended(limiter->table);
    limiter->full_seen = limiter->overflowed_before =
        weir_table_overflowed(limiter->table);
    limiter->reports = 0;
    limiter->event_first = limiter->event_count = 0;
    limiter->events_lost = 0;
    /* The new limiter has had no link: it counts no silence from before. */
    limiter->received_at = limiter->any_received_at = now;
    for (uint32_t i = 0; i < limiter->link_count; i++)
        limiter->link[i] = (struct limiter_link){ .state = LINK_DOWN };
    weir_limiter_asks_forget(&limiter->asks);
    weir_limiter_leases_forget(limiter, now);
    limiter->collect_at = now;
    limiter->born = now;
    weir_assert(limiter->asks.under_way == 0 && limiter->event_count == 0);
}

/* ---- Receiving ---- */

/* How long the topmost root has been silent, by the message; WEIR_NEVER: the
 * message doesn't say. */
static weir_duration top_age_in(const struct limiter_link *link,
                                const struct weir_message *message)
{
    if (message->type == WEIR_MESSAGE_WELCOME)
        return message->welcome.top_age;
    if (message->type == WEIR_MESSAGE_FILLS)
        return message->fills.top_age;
    return link->carries ? WEIR_NEVER : 0;
}

/* Age 0 is always taken: a clock may step back. */
static void note_later(weir_instant at, weir_duration age, weir_instant now,
                       weir_instant *in)
{
    if (age == 0 || at > *in || *in > now)
        *in = at;
}

static bool is_silent_since(const struct weir_limiter *limiter,
                            weir_instant then, weir_instant now)
{
    return now > then && now - then >= limiter->settings.stale_after;
}

static void note_received(struct weir_limiter *limiter,
                          struct limiter_link *link, weir_duration age,
                          weir_instant now)
{
    weir_assert(link->state != LINK_DOWN);
    weir_instant at = weir_before(now, age);
    limiter->any_received_at = now;
    if (age != WEIR_NEVER) {
        note_later(at, age, now, &link->top_at);
        note_later(at, age, now, &limiter->received_at);
        link->topped = limiter->topped = true;
        weir_table_pause_hold(limiter->table, age > 0);
    } else if (!limiter->received) {
        limiter->received_at = now; /* the topmost root gets the full time */
    }
    limiter->received = true;
    if (!limiter->stale || is_silent_since(limiter, limiter->received_at, now))
        return;
    limiter->stale = false;
    limiter->tally.share_above = false;
    limiter->restales = !weir_table_set_stale(limiter->table, false, now);
    weir_tally_stale(&limiter->tally, !limiter->tally.slack, now);
    weir_limiter_note(limiter, WEIR_EVENT_FRESH, WEIR_TEXT(""), now);
    weir_assert(!limiter->stale);
}

static void check_stale(struct weir_limiter *limiter, weir_instant now)
{
    if (!limiter->received ||
        !is_silent_since(limiter, limiter->received_at, now))
        return;
    bool spoken = !is_silent_since(limiter, limiter->any_received_at, now);
    if (limiter->stale && limiter->tally.share_above == spoken)
        return;
    if (!limiter->stale)
        weir_limiter_note(limiter, WEIR_EVENT_STALE, WEIR_TEXT(""), now);
    limiter->stale = true;
    limiter->tally.share_above = spoken;
    limiter->restales = !weir_table_set_stale(limiter->table, true, now);
    weir_tally_stale(&limiter->tally, true, now);
    weir_assert(limiter->stale);
}

/* ---- Links ---- */

/* As a carrier; 0: it can't carry. */
static unsigned fitness(const struct weir_limiter *limiter, uint32_t index)
{
    weir_assert(index < limiter->link_count);
    const struct limiter_link *link = &limiter->link[index];
    if (link->state != LINK_UP || !link->carries)
        return 0;
    /* Is its topmost root older than other links know it? In a region that is
     * cut off all are equally old, and no other carrier is better. */
    weir_duration some =
        WEIR_PACE_INTERVALS * limiter->settings.report_interval;
    bool top = link->topped && link->top_at + some > limiter->received_at;
    return 1 + 2 * top + limiter->tally.link[index].answering;
}

static void choose_carrier(struct weir_limiter *limiter)
{
    uint32_t before = limiter->tally.carrier;
    uint32_t best = before;
    unsigned most = 0;
    if (before != WEIR_CARRIER_NONE)
        most = fitness(limiter, before);
    if (most == 0)
        best = WEIR_CARRIER_NONE;
    for (uint32_t i = 0; i < limiter->link_count; i++) {
        unsigned fit = fitness(limiter, i);
        if (fit <= most)
            continue;
        most = fit;
        best = i;
    }
    if (best == before)
        return;
    weir_assert(best == WEIR_CARRIER_NONE || best < limiter->link_count);
    weir_tally_carry(&limiter->tally, best);
    if (best != WEIR_CARRIER_NONE)
        limiter->link[best].urgent = true;
    if (before != WEIR_CARRIER_NONE)
        limiter->link[before].urgent = true;
}

/* The region's limiters are stale an interval after the region is: that of the
 * slowest root. */
static void update_interval(struct weir_limiter *limiter)
{
    weir_duration interval = limiter->settings.report_interval;
    for (uint32_t i = 0; i < limiter->link_count; i++) {
        weir_duration report_backoff = limiter->tally.link[i].report_backoff;
        if (limiter->link[i].state == LINK_UP && report_backoff > interval)
            interval = report_backoff;
    }
    limiter->tally.report_interval = limiter->settings.report_interval;
    weir_duration held = limiter->settings.stale_after + interval;
    limiter->tally.pace_held =
        held < WEIR_PACE_HELD_MAX ? held : WEIR_PACE_HELD_MAX;
}

void weir_limiter_link(struct weir_limiter *limiter, uint32_t index, bool up,
                       weir_instant now)
{
    weir_assert(index < limiter->link_count);
    struct limiter_link *link = &limiter->link[index];
    weir_limiter_asks_lost(limiter, index);
    link->speaks = true;
    weir_limiter_leases_link(limiter, index, NULL, now);
    link->roots = 0;
    link->roots_sent = false;
    if (!up) {
        link->tried = true;
        if (link->state == LINK_UP)
            weir_limiter_note(limiter, WEIR_EVENT_ROOT_DOWN, WEIR_TEXT(""),
                              now);
        link->state = LINK_DOWN;
        update_interval(limiter);
        weir_tally_end(&limiter->tally, index, now);
        choose_carrier(limiter);
        weir_limiter_seek_leader(limiter);
        return;
    }
    weir_tally_meet(&limiter->tally, index);
    /* The low half counts, so that no two sessions share it; never 0. */
    link->session = (weir_rng_next(&limiter->rng) << 32) | ++limiter->sessions;
    link->state = LINK_GREETING;
    link->urgent = link->ask = link->again = false;
    link->full_taken = false;
    link->target = 0;
    link->resend = RESEND_FIRST;
    weir_assert(link->session != 0);
}

static void write_hello(const struct weir_limiter *limiter,
                        struct weir_message *out)
{
    weir_assert(limiter->name_len <= WEIR_NAME_MAX);
    out->type = WEIR_MESSAGE_HELLO;
    out->hello = (struct weir_hello){
        .protocol = WEIR_PROTOCOL,
        .name = { limiter->name, limiter->name_len },
        .store = limiter->store,
        .epoch = weir_limiter_epoch(limiter),
        .region = limiter->region != NULL,
        .features = limiter->features,
    };
    if (limiter->region)
        out->hello.region_name = limiter->region->name;
    memcpy(out->hello.incarnation, limiter->incarnation, WEIR_INCARNATION_SIZE);
}

static bool other_store_beside(const struct weir_limiter *limiter,
                               const struct limiter_link *link)
{
    for (uint32_t i = 0; i < limiter->link_count; i++) {
        const struct limiter_link *other = &limiter->link[i];
        if (other != link && other->state == LINK_UP && other->root_ready)
            return true;
    }
    return false;
}

/* The same store, marked as restored since: a limiter can't tell which of its
 * quotas the store lacks now. */
static bool is_restored_since(const struct weir_limiter *limiter,
                              const struct weir_welcome *welcome)
{
    const struct weir_store_id *ours = &limiter->store;
    const struct weir_store_id *named = &welcome->store;
    return memcmp(ours->uuid, named->uuid, sizeof ours->uuid) == 0 &&
           named->restores > ours->restores && !welcome->provisional;
}

/* Quotas that roots sent are of no use any more: any may send a new whole
 * set. */
static void expect_whole(struct weir_limiter *limiter)
{
    for (uint32_t i = 0; i < limiter->link_count; i++)
        limiter->link[i].full_taken = false;
}

/* The session had a later welcome, or the same one before: its epoch may be
 * older than an edit that we have. If the root's clock was set back instead, a
 * restored backup goes unnoticed here, and the root sees that we stay ahead. */
static bool is_overtaken(const struct limiter_link *link,
                         const struct weir_welcome *welcome)
{
    return link->state == LINK_UP && welcome->age <= link->root_age;
}

/* The root names its store: ours, the first one, or another. */
static int meet_store(struct weir_limiter *limiter, struct limiter_link *link,
                      const struct weir_welcome *welcome, weir_instant now)
{
    static const struct weir_store_id none;
    link->store = welcome->store;
    if (weir_store_id_equal(&limiter->store, &welcome->store)) {
        /* The same root address with an older epoch: a restored backup, unless
         * the root has not just read its store. */
        if (!welcome->provisional && welcome->epoch < link->root_epoch &&
            !is_overtaken(link, welcome))
            weir_limiter_begin_anew(limiter);
        return WEIR_OK;
    }
    if (!weir_store_id_equal(&limiter->store, &none)) {
        if (!weir_store_id_equal(&link->odd, &welcome->store))
            weir_limiter_note(limiter, WEIR_EVENT_STORE_CHANGED, welcome->name,
                              now);
        link->odd = welcome->store;
        if (!is_restored_since(limiter, welcome) &&
            other_store_beside(limiter, link))
            return WEIR_EPROTOCOL;
    }
    link->odd = none;
    limiter->store = welcome->store;
    weir_limiter_begin_anew(limiter);
    weir_assert(limiter->epoch == 0);
    return WEIR_OK;
}

static void apply_root_settings(struct weir_limiter *limiter,
                                const struct weir_settings *settings,
                                weir_instant now)
{
    limiter->settings = *settings;
    if (!settings->correction_auto)
        limiter->tally.ratio = (float)settings->correction_ppm / 1e6f;
    update_interval(limiter);
    weir_tally_set_slack(&limiter->tally, settings->slack, now);
}

/* Whether the root took the report that was unanswered when the last session
 * ended, or may have: a root that died, or has forgotten us since, doesn't
 * know. Sessions are numbered in the low half. */
static bool was_taken(const struct weir_tally_link *link,
                      const struct weir_welcome *welcome, bool same)
{
    uint32_t last = (uint32_t)welcome->last_session;
    uint32_t doubted = (uint32_t)link->session;
    if (!same || !welcome->carries || last > doubted)
        return true;
    return last == doubted && welcome->last_number >= link->number;
}

/* Notes the root's epoch; an overtaken welcome can only raise it. */
static void note_epoch(struct limiter_link *link,
                       const struct weir_welcome *welcome)
{
    bool overtaken = is_overtaken(link, welcome);
    uint64_t epoch = welcome->epoch;
    if (epoch > link->root_epoch || (!welcome->provisional && !overtaken))
        link->root_epoch = epoch;
    if (epoch > link->target || !overtaken)
        link->target = epoch;
}

static int receive_welcome(struct weir_limiter *limiter, uint32_t index,
                           const struct weir_welcome *welcome, weir_instant now)
{
    struct limiter_link *link = &limiter->link[index];
    if (welcome->protocol != WEIR_PROTOCOL)
        return WEIR_EPROTOCOL;
    if (link->state == LINK_GREETING)
        return WEIR_OK;
    apply_root_settings(limiter, &welcome->settings, now);
    link->root_ready = welcome->ready;
    link->provisional = welcome->provisional;
    link->carries = welcome->carries;
    link->root_hash = weir_hash(welcome->name, 0);
    if (welcome->top_age == WEIR_NEVER)
        link->topped = false;
    if (welcome->ready) {
        uint64_t before = limiter->epoch;
        int error = meet_store(limiter, link, welcome, now);
        if (error < 0)
            return error;
        note_epoch(link, welcome);
        if (limiter->epoch < before)
            expect_whole(limiter);
    }
    if (!is_overtaken(link, welcome))
        link->root_age = welcome->age;
    weir_limiter_leases_link(limiter, index, welcome, now);
    if (link->state == LINK_UP)
        return WEIR_OK;
    bool same = link->met ? memcmp(link->root, welcome->incarnation,
                                   WEIR_INCARNATION_SIZE) == 0
                          : welcome->age >= link->sent_at - limiter->born;
    memcpy(link->root, welcome->incarnation, WEIR_INCARNATION_SIZE);
    link->met = link->tried = true;
    weir_assert(link->state == LINK_WAITING);
    link->state = LINK_UP;
    link->report_at = now;
    link->first = true;
    weir_instant born = weir_before(now, welcome->age);
    weir_tally_resolve(&limiter->tally, index,
                       was_taken(&limiter->tally.link[index], welcome, same));
    weir_tally_begin(&limiter->tally, index, link->session, same, born, now);
    choose_carrier(limiter);
    weir_limiter_seek_leader(limiter);
    weir_limiter_note(limiter, WEIR_EVENT_ROOT_UP, welcome->name, now);
    return WEIR_OK;
}

/* ---- Messages ---- */

static void note_slot_denied(struct weir_limiter *limiter, uint32_t index,
                             uint32_t slot, weir_instant now)
{
    char name[WEIR_NAME_MAX + 1];
    if (slot >= weir_table_used(limiter->table))
        return;
    size_t len = weir_table_name(limiter->table, slot, name);
    if (len > 0)
        weir_limiter_note_denied(limiter, index,
                                 (struct weir_text){ name, len }, now);
}

static int take_fills(struct weir_limiter *limiter, uint32_t index,
                      const struct weir_fills *fills, weir_instant now)
{
    weir_assert(index < limiter->link_count);
    /* A report has one name below a denied one: start at a random one. */
    size_t many = fills->denied_count;
    size_t first = many > 0 ? weir_rng_below(&limiter->rng, many) : 0;
    for (size_t i = 0; i < many; i++)
        note_slot_denied(limiter, index, fills->denied[(first + i) % many],
                         now);
    int error = weir_tally_fills(&limiter->tally, index, fills, now);
    for (uint32_t i = 0; i < limiter->link_count; i++) {
        struct weir_tally_link *link = &limiter->tally.link[i];
        limiter->link[i].urgent |= link->hurry;
        link->hurry = false;
    }
    return error;
}

/* Takes the root's report backoff. */
static void take_report_backoff(struct weir_limiter *limiter, uint32_t index,
                                weir_duration wanted, weir_instant now)
{
    weir_assert(index < limiter->link_count);
    weir_duration most = limiter->settings.stale_after / 2;
    weir_duration before = limiter->tally.link[index].report_backoff;
    weir_duration report_backoff = wanted < most ? wanted : most;
    weir_duration trip = weir_tally_round_trip(&limiter->tally.link[index]);
    weir_duration slow = 2 * weir_longer(report_backoff, trip);
    limiter->link[index].resend =
        weir_longer(RESEND_FIRST, weir_shorter(slow, RESEND_MOST));
    weir_tally_report_backoff(&limiter->tally, index, report_backoff, now);
    if (report_backoff == before)
        return;
    update_interval(limiter);
    if (report_backoff < before)
        return;
    struct weir_event *event = weir_limiter_note(
        limiter, WEIR_EVENT_REPORT_BACKOFF,
        WEIR_TEXT("a root is overloaded: reports, and the counts of others, "
                  "come later"),
        now);
    if (event)
        event->count = report_backoff / WEIR_MILLISECOND;
}

int weir_limiter_receive(struct weir_limiter *limiter, uint32_t index,
                         const struct weir_message *message, weir_instant now)
{
    weir_assert(index < limiter->link_count);
    struct limiter_link *link = &limiter->link[index];
    if (link->state == LINK_DOWN || message->session != link->session)
        return WEIR_OK;
    note_received(limiter, link, top_age_in(link, message), now);
    link->speaks = true;
    switch (message->type) {
    case WEIR_MESSAGE_WELCOME:
        return receive_welcome(limiter, index, &message->welcome, now);
    case WEIR_MESSAGE_QUOTAS:
        /* A region passes quotas on and must know their store: the welcome that
         * names it was lost, or overtaken. */
        link->ask = limiter->region && !link->root_ready;
        if (link->state != LINK_UP || link->ask)
            return WEIR_OK;
        /* The root hasn't read yet that its store was restored. */
        if (link->root_ready &&
            !weir_store_id_equal(&link->store, &limiter->store))
            return WEIR_EPROTOCOL;
        return weir_limiter_take_quotas(limiter, link, &message->quotas, now);
    case WEIR_MESSAGE_FILLS:
        if (link->state != LINK_UP)
            return WEIR_OK;
        link->roots = message->fills.roots;
        link->roots_sent = true;
        take_report_backoff(limiter, index, message->fills.report_backoff, now);
        return take_fills(limiter, index, &message->fills, now);
    case WEIR_MESSAGE_ANSWERS:
        weir_limiter_take_answers(limiter, index, &message->answers, now);
        return WEIR_OK;
    case WEIR_MESSAGE_GRANTS:
        weir_limiter_leases_take(limiter, index, &message->grants, now);
        return WEIR_OK;
    case WEIR_MESSAGE_HELLO:
    case WEIR_MESSAGE_REPORT:
    case WEIR_MESSAGE_ASKS:
    case WEIR_MESSAGE_WANTS:
    case WEIR_MESSAGE_LIMITS:
        break;
    }
    return WEIR_EPROTOCOL;
}

/* ---- Time ---- */

static void learn_ratio(struct weir_limiter *limiter)
{
    struct weir_tally *tally = &limiter->tally;
    if (!limiter->settings.correction_auto || tally->predicted <= 0)
        return;
    float ratio = tally->observed / tally->predicted;
    tally->ratio = ratio < 1 ? ratio : 1;
}

static bool extrapolates(const struct weir_limiter *limiter)
{
    return limiter->stale || limiter->settings.correction_auto ||
           limiter->settings.correction_ppm > 0;
}

static void audit(struct weir_limiter *limiter)
{
    uint32_t scratch[AUDITED_WHOLE_MAX];
    weir_tally_audit(&limiter->tally, WEIR_AUDITS_PER_TICK);
    weir_table_audit(limiter->table, &limiter->audit_hand,
                     WEIR_AUDITS_PER_TICK);
    if (WEIR_AUDITS)
        weir_table_audit_whole(limiter->table, scratch, AUDITED_WHOLE_MAX);
}

/* A root that gets its quotas sends another welcome. If that is lost, nothing
 * else says so: it is asked for no lease. */
static void ask_for_welcomes(struct weir_limiter *limiter, weir_instant now)
{
    if (now < limiter->welcome_at)
        return;
    limiter->welcome_at = now + WELCOME_EVERY;
    for (uint32_t i = 0; i < limiter->link_count; i++) {
        struct limiter_link *link = &limiter->link[i];
        link->ask |= link->state == LINK_UP && !link->root_ready;
    }
}

void weir_limiter_tick(struct weir_limiter *limiter, weir_instant now)
{
    check_stale(limiter, now);
    weir_limiter_asks_expire(limiter, now);
    weir_tally_listen(&limiter->tally, PATIENCE, now);
    choose_carrier(limiter);
    bool kicked = weir_table_urgent(limiter->table) ||
                  weir_limiter_leases_due(limiter, now);
    if (kicked || (limiter->settings.slack && now >= limiter->look_at))
        weir_limiter_collect(limiter, false, now);
    if (limiter->settings.slack && (kicked || now >= limiter->look_at)) {
        uint32_t urgent = weir_tally_look(&limiter->tally, now);
        for (uint32_t i = 0; i < limiter->link_count; i++)
            limiter->link[i].urgent |= urgent >> i & 1;
        limiter->look_at = now + LOOK_EVERY;
    }
    if (now >= limiter->collect_at) {
        weir_limiter_collect(limiter, true, now);
        limiter->collect_at = now + limiter->settings.report_interval;
        weir_limiter_note_interval(limiter, now);
        ask_for_welcomes(limiter, now);
    }
    weir_limiter_leases_look(limiter, now);
    weir_limiter_limits_look(limiter, now);
    if (now >= limiter->extrapolate_at) {
        learn_ratio(limiter);
        if (extrapolates(limiter))
            weir_tally_extrapolate(&limiter->tally, limiter->stale, now);
        limiter->extrapolate_at = now + EXTRAPOLATE_EVERY;
    }
    if (now >= limiter->sweep_at) {
        bool crowded = weir_table_is_crowded(limiter->table);
        weir_table_sweep(limiter->table, crowded ? SWEEP_CROWDED : SWEEP_SLOTS,
                         now);
        limiter->sweep_at = now + SWEEP_EVERY;
        if (limiter->restales)
            limiter->restales =
                !weir_table_set_stale(limiter->table, limiter->stale, now);
        weir_limiter_seek_room(limiter, now);
        weir_limiter_finish(limiter, now);
    }
    audit(limiter);
}

/* When the link's next message is due. */
static weir_instant link_due(const struct weir_limiter *limiter, uint32_t index)
{
    weir_assert(index < limiter->link_count);
    const struct limiter_link *link = &limiter->link[index];
    switch (link->state) {
    case LINK_DOWN:
        return WEIR_NEVER;
    case LINK_GREETING:
        return 0;
    case LINK_WAITING:
        return link->sent_at + link->resend;
    case LINK_UP:
        break;
    }
    if (link->ask)
        return 0;
    if (limiter->tally.link[index].unanswered)
        return link->sent_at + link->resend;
    weir_duration report_backoff = limiter->tally.link[index].report_backoff;
    if (link->urgent)
        return link->sent_at + weir_later(WEIR_REPORT_SPACING, report_backoff);
    return weir_later(link->report_at, link->sent_at + report_backoff);
}

weir_instant weir_limiter_deadline(const struct weir_limiter *limiter,
                                   weir_instant now)
{
    weir_instant due = weir_earlier(limiter->collect_at, limiter->sweep_at);
    if (extrapolates(limiter))
        due = weir_earlier(due, limiter->extrapolate_at);
    if (limiter->settings.slack && weir_tally_paced(&limiter->tally))
        due = weir_earlier(due, limiter->look_at);
    if (limiter->received && !limiter->stale)
        due = weir_earlier(due, limiter->received_at +
                                    limiter->settings.stale_after);
    if (limiter->stale && limiter->tally.share_above)
        due = weir_earlier(due, limiter->any_received_at +
                                    limiter->settings.stale_after);
    for (uint32_t i = 0; i < limiter->link_count; i++)
        due = weir_earlier(due, link_due(limiter, i));
    const struct limiter_asks *asks = &limiter->asks;
    if (asks->queued.first != 0)
        due = weir_earlier(due, weir_limiter_asks_from(limiter));
    due = weir_earlier(due, asks->look_at);
    due = weir_earlier(due, weir_limiter_leases_deadline(limiter, now));
    due = weir_earlier(due, weir_limiter_limits_deadline(limiter));
    return weir_later(due, now);
}

static void make_report(struct weir_limiter *limiter, uint32_t index,
                        struct weir_message *out, weir_instant now)
{
    struct limiter_link *link = &limiter->link[index];
    weir_assert(link->state == LINK_UP);
    bool again = limiter->tally.link[index].unanswered;
    /* First: a slot marked during this report then kicks for the next. */
    weir_table_set_reporting(limiter->table, false);
    if (!again)
        weir_limiter_collect(limiter, false, now);
    out->type = WEIR_MESSAGE_REPORT;
    weir_tally_report(&limiter->tally, index, &out->report, now);
    out->report.epoch = weir_limiter_epoch(limiter);
    out->report.no_room = limiter->missing != 0;
    out->report.again = link->again;
    out->report.below = weir_limiter_below(limiter, index);
    link->again = false;
    out->report.unknown =
        weir_table_unknown(limiter->table) - limiter->unknown_before;
    out->report.contended =
        weir_table_contended(limiter->table) - limiter->contended_before;
    out->report.lacking = weir_table_lacking(limiter->table);
    out->report.overflowed =
        weir_table_overflowed(limiter->table) - limiter->overflowed_before;
    out->report.passes_on_full = limiter->passes_on_full;
    out->report.few_roots = limiter->few_reported ? limiter->roots_up : 0;
    if (again && link->resend < RESEND_MOST)
        link->resend *= 2;
    link->urgent = false;
    /* After the first report, wait a random part of the interval: limiters that
     * meet a root at one instant don't stay in step. */
    weir_duration interval = limiter->settings.report_interval;
    if (link->first)
        interval = weir_rng_below(&limiter->rng, interval);
    link->first = false;
    link->report_at = now + interval;
    if (limiter->tally.link[index].left_out && interval > REST_AFTER)
        link->report_at = now + REST_AFTER;
    limiter->reports++;
    weir_assert(limiter->tally.link[index].unanswered);
}

/* No message is due now. Tells the table whether all connected roots will get
 * the next marks anyway, by a report that only waits for its time. A link that
 * waits for an answer doesn't count: its report is made, and slots marked now
 * would be reported at the interval's end. */
static void note_reporting(struct weir_limiter *limiter)
{
    bool up = false;
    bool coming = true;
    for (uint32_t i = 0; i < limiter->link_count; i++) {
        const struct limiter_link *link = &limiter->link[i];
        if (link->state != LINK_UP)
            continue;
        up = true;
        coming &= link->urgent;
    }
    weir_table_set_reporting(limiter->table, up && coming);
}

bool weir_limiter_next(struct weir_limiter *limiter, uint32_t *out_link,
                       struct weir_message *out, weir_instant now)
{
    /* Callers wait for these. */
    if (weir_limiter_asks_next(limiter, out_link, out, now) ||
        weir_limiter_leases_next(limiter, out_link, out, now))
        return true;
    for (uint32_t i = 0; i < limiter->link_count; i++) {
        struct limiter_link *link = &limiter->link[i];
        if (link_due(limiter, i) > now)
            continue;
        *out_link = i;
        out->session = link->session;
        if (link->state == LINK_UP && link->ask) {
            write_hello(limiter, out);
            link->ask = false;
            return true;
        }
        if (link->state == LINK_UP) {
            make_report(limiter, i, out, now);
        } else {
            write_hello(limiter, out);
            weir_assert(link->state != LINK_UP && link->state != LINK_DOWN);
            link->state = LINK_WAITING;
        }
        link->sent_at = now;
        return true;
    }
    note_reporting(limiter);
    return weir_limiter_limits_next(limiter, out_link, out, now);
}

/* ---- State ---- */

bool weir_limiter_ready(const struct weir_limiter *limiter)
{
    return limiter->ready;
}

uint64_t weir_limiter_reports(const struct weir_limiter *limiter)
{
    return limiter->reports;
}

uint32_t weir_limiter_fleet(const struct weir_limiter *limiter)
{
    return limiter->tally.limiters > 0 ? limiter->tally.limiters : 1;
}

uint32_t weir_limiter_links_up(const struct weir_limiter *limiter)
{
    uint32_t up = 0;
    for (uint32_t i = 0; i < limiter->link_count; i++)
        up += limiter->link[i].state == LINK_UP;
    return up;
}

uint64_t weir_limiter_root_epoch(const struct weir_limiter *limiter,
                                 uint32_t index)
{
    weir_assert(index < limiter->link_count);
    return limiter->link[index].root_epoch;
}

uint64_t weir_limiter_session(const struct weir_limiter *limiter,
                              uint32_t index)
{
    weir_assert(index < limiter->link_count);
    const struct limiter_link *link = &limiter->link[index];
    return link->state == LINK_UP ? link->session : 0;
}

weir_duration weir_limiter_relies(const struct weir_limiter *limiter,
                                  uint32_t index)
{
    weir_assert(index < limiter->link_count);
    return weir_tally_good(&limiter->tally, &limiter->tally.link[index]);
}

void weir_limiter_set_others(struct weir_limiter *limiter, uint32_t others)
{
    limiter->others = others;
}

uint32_t weir_limiter_roots(const struct weir_limiter *limiter, bool *out_few)
{
    *out_few = limiter->few_reported;
    return limiter->roots;
}

const uint8_t *weir_limiter_root(const struct weir_limiter *limiter,
                                 uint32_t index)
{
    weir_assert(index < limiter->link_count);
    const struct limiter_link *link = &limiter->link[index];
    return link->state == LINK_UP ? link->root : NULL;
}

bool weir_limiter_settled(const struct weir_limiter *limiter)
{
    for (uint32_t i = 0; i < limiter->link_count; i++) {
        if (limiter->link[i].state == LINK_UP &&
            weir_tally_pending(&limiter->tally, i))
            return false;
    }
    return !weir_lease_client_waits(limiter->leases.client) &&
           !limiter->leases.unreleased;
}
