/* SPDX-License-Identifier: MIT
 * core/node/root.c - the root's side of each link.
 *
 * A peer is a link of a limiter, which is known by its incarnation and the
 * identity of its credential. The limiter's record outlives the link, because
 * its cells must: if a limiter comes back within the time its buckets take to
 * drain, its counts go on from the last total and don't count again.
 *
 * Peers with messages to be sent are in one queue. next() takes the first,
 * makes one message for it, and puts it back at the end while it has more.
 * Messages by urgency:
 *
 *     welcome    a hello came, or the settings or the store changed
 *     answers    steps of exact quotas: callers wait (root_ask.c)
 *     grants     of leased quotas, and their master (root_lease.c)
 *     answer     a report was taken (or repeated)
 *     quotas     changes above those sent (root_quotas.c)
 *     push       buckets that moved too far from the fill last sent
 *
 * Report backoff. Reports are nearly all of a root's work. An overloaded root
 * answers late, and a limiter has one report unanswered at most; but near its
 * limits a limiter reports up to fifty times a second, and merging the counts
 * of two reports at once costs half. So a root that was busy most of the time
 * sends with each answer a report backoff, the shortest interval between
 * reports. It doubles the backoff until the root has time again, and then
 * halves it, down to none.
 *
 *     busy      ... 30 %  |  30 .. 80 %  |  80 % ...
 *     backoff    halved   |  unchanged   |  doubled
 *
 * The two thresholds are more than a factor of two apart, so that halving the
 * load doesn't cause its doubling again; and the backoff is changed only after
 * its effect can be seen. The cost: a limiter that has used up its slack waits
 * longer for more. So if all roots are overloaded less passes, never more; if
 * one is, limiters use the slack of the others. An overloaded root also sends
 * only the needed fills (counted/merge.c). The backoff ends at a third of
 * stale_after: after a longer silence limiters would decide without the
 * root. */

#include "core/node/root_adaptive.h"
#include "core/node/root_state.h"

#include <string.h>

/* Cells looked at for pushes in one tick: with a thousand limiters each is a
 * cache line of its own, 0.1 us. */
#define LOOK_WORK 50000
#define SWEEP_EVERY WEIR_SECOND
#define SWEEP_USES 4096
#define SWEEP_BUCKET_STATES 4096
/* A limiter that is gone is forgotten when its buckets are empty, but not
 * sooner than this (it may come back, and then its last report time matters)
 * … */
#define FORGET_FIRST (60 * WEIR_SECOND)
/* … and after this in any case. */
#define FORGET_LAST (600 * WEIR_SECOND)
/* For at least this long after its birth a root adopts fills of limiters. */
#define LEARN_LEAST (10 * WEIR_SECOND)

/* Busy time, in millionths, from which the backoff is doubled, and below which
 * it is halved. */
#define REPORT_BACKOFF_ABOVE 800000
#define REPORT_BACKOFF_BELOW 300000
#define REPORT_BACKOFF_FIRST (50 * WEIR_MILLISECOND)

/* ---- Life ---- */

static void apply_merge_settings(struct weir_root *root)
{
    weir_duration three = 3 * root->settings.report_interval;
    root->merge.slack = root->settings.slack;
    root->merge.learn = three > LEARN_LEAST ? three : LEARN_LEAST;
    root->merge.pace_good =
        WEIR_PACE_INTERVALS * root->settings.report_interval;
}

static bool make_root_parts(struct weir_root *root, weir_instant now)
{
    const struct weir_mem *mem = &root->mem;
    weir_merge_init(&root->merge, mem, root->seed, now);
    root->watch = (struct weir_merge_watch){ root, weir_root_note_beyond };
    root->merge.watch = &root->watch;
    apply_merge_settings(root);
    root->catalog = weir_catalog_new(mem, root->seed);
    root->peers =
        mem->alloc(mem->context, root->peers_max * sizeof(*root->peers));
    root->fills =
        mem->alloc(mem->context, WEIR_FILLS_MAX * sizeof(*root->fills));
    root->changes =
        mem->alloc(mem->context, WEIR_QUOTAS_MAX * sizeof(*root->changes));
    return root->catalog && root->peers && root->fills && root->changes &&
           weir_root_leases_init(root);
}

struct weir_root *weir_root_new(const struct weir_root_options *options,
                                weir_instant now)
{
    weir_assert(options->peers_max >= 1 && options->peers_max <= 65536);
    struct weir_root *root =
        options->mem.alloc(options->mem.context, sizeof(*root));
    if (!root)
        return NULL;
    root->mem = options->mem;
    root->seed = options->seed;
    root->settings = options->settings;
    root->peers_max = options->peers_max;
    root->region = options->region;
    root->name_len =
        options->name.len < WEIR_NAME_MAX ? options->name.len : WEIR_NAME_MAX;
    if (root->name_len > 0)
        memcpy(root->name, options->name.p, root->name_len);
    memcpy(root->incarnation, options->incarnation, WEIR_INCARNATION_SIZE);
    root->asks.zone_of = options->zones;
    root->look_at = now;
    root->sweep_at = now + SWEEP_EVERY;
    if (!make_root_parts(root, now)) {
        weir_root_free(root);
        return NULL;
    }
    return root;
}

static void free_peer(struct root_peer *peer, const struct weir_mem *mem)
{
    mem->free(mem->context, peer->unknown,
              peer->unknown_capacity * sizeof(*peer->unknown));
    mem->free(mem->context, peer->denied,
              peer->denied_capacity * sizeof(*peer->denied));
    weir_index_fini(&peer->above, mem);
    mem->free(mem->context, peer->answers,
              peer->answer_capacity * sizeof(*peer->answers));
    weir_root_lease_free_peer(peer, mem);
}

void weir_root_free(struct weir_root *root)
{
    if (!root)
        return;
    const struct weir_mem mem = root->mem;
    for (uint32_t i = 0; i < root->limiter_used; i++) {
        weir_root_free_limiter(root, i);
        mem.free(mem.context, root->limiters[i], sizeof(**root->limiters));
    }
    for (uint32_t i = 0; root->peers && i < root->peers_max; i++)
        free_peer(&root->peers[i], &mem);
    weir_root_free_debtors(root);
    weir_root_asks_fini(root);
    weir_root_leases_fini(root);
    mem.free(mem.context, root->limiters,
             root->limiter_capacity * sizeof(*root->limiters));
    weir_index_fini(&root->limiter_index, &mem);
    weir_merge_fini(&root->merge);
    weir_catalog_free(root->catalog);
    weir_catalog_free(root->coming);
    mem.free(mem.context, root->peers, root->peers_max * sizeof(*root->peers));
    mem.free(mem.context, root->fills, WEIR_FILLS_MAX * sizeof(*root->fills));
    mem.free(mem.context, root->changes,
             WEIR_QUOTAS_MAX * sizeof(*root->changes));
    mem.free(mem.context, root, sizeof(*root));
}

/* The peer is no longer its limiter's link. */
static void detach(struct weir_root *root, struct root_peer *peer)
{
    if (!peer->greeted)
        return;
    struct root_limiter *limiter = root->limiters[peer->limiter];
    weir_assert(limiter->peer < root->peers_max && root->connected > 0);
    weir_assert(&root->peers[limiter->peer] == peer);
    weir_merge_connect(&root->merge, &limiter->cells, false);
    weir_root_lease_detach(root, limiter->peer);
    weir_root_forget_limits(root, limiter);
    limiter->peer = ROOT_NO_PEER;
    peer->greeted = false;
    root->connected--;
}

static void attach(struct weir_root *root, uint32_t index,
                   uint32_t limiter_index, const struct weir_hello *hello,
                   weir_instant now)
{
    weir_assert(index < root->peers_max);
    struct root_limiter *limiter = root->limiters[limiter_index];
    struct root_peer *peer = &root->peers[index];
    if (limiter->peer != ROOT_NO_PEER)
        detach(root, &root->peers[limiter->peer]);
    detach(root, peer);
    weir_assert(limiter->peer == ROOT_NO_PEER && !peer->greeted);
    peer->limiter = limiter_index;
    peer->greeted = true;
    limiter->peer = index;
    limiter->received_at = now;
    limiter->muted = false;
    limiter->epoch = hello->epoch;
    limiter->name_len =
        (uint8_t)(hello->name.len < WEIR_NAME_MAX ? hello->name.len
                                                  : WEIR_NAME_MAX);
    if (limiter->name_len > 0)
        memcpy(limiter->name, hello->name.p, limiter->name_len);
    struct weir_text region = hello->region_name;
    limiter->speaks_for_others = hello->region;
    limiter->region_len =
        hello->region && region.len <= WEIR_NAME_MAX ? (uint8_t)region.len : 0;
    if (limiter->region_len > 0)
        memcpy(limiter->region, region.p, limiter->region_len);
    weir_root_names_attach(root, index);
    weir_merge_connect(&root->merge, &limiter->cells, true);
    root->connected++;
    weir_assert(root->connected <= root->peers_max);
}

/* ---- Links ---- */

void weir_root_link(struct weir_root *root, uint32_t index, bool up,
                    weir_instant now)
{
    (void)now;
    weir_assert(index < root->peers_max);
    struct root_peer *peer = &root->peers[index];
    detach(root, peer);
    weir_root_names_fini(root, peer);
    const struct root_peer before = *peer;
    *peer = (struct root_peer){ .up = up,
                                .queued = before.queued,
                                .next_queued = before.next_queued,
                                .answers = before.answers,
                                .answer_capacity = before.answer_capacity,
                                .granted = before.granted,
                                .pushed = before.pushed,
                                .unknown = before.unknown,
                                .unknown_capacity = before.unknown_capacity,
                                .denied = before.denied,
                                .denied_capacity = before.denied_capacity };
    weir_assert(!peer->greeted && peer->answer_count == 0);
}

void weir_root_pause(struct weir_root *root, uint32_t index, bool paused)
{
    weir_assert(index < root->peers_max);
    root->peers[index].paused = paused;
    if (!paused)
        weir_root_enqueue(root, index);
}

static int take_hello(struct weir_root *root, uint32_t index,
                      const struct weir_message *message, weir_instant now)
{
    const struct weir_hello *hello = &message->hello;
    struct root_peer *peer = &root->peers[index];
    uint32_t limiter_index;
    if (hello->protocol != WEIR_PROTOCOL)
        return WEIR_EPROTOCOL;
    struct limiter_key key = { .owner = peer->names.owner };
    memcpy(key.incarnation, hello->incarnation, sizeof key.incarnation);
    if (!weir_root_make_limiter(root, &key, message->session, &limiter_index))
        return WEIR_ENOMEM;
    /* A link belongs to one limiter; another one needs its own link. */
    if (peer->greeted && peer->limiter != limiter_index)
        return WEIR_EPROTOCOL;
    struct root_limiter *limiter = root->limiters[limiter_index];
    weir_assert(limiter->live);
    uint32_t number = (uint32_t)message->session;
    if (peer->greeted && peer->session == message->session) {
        peer->welcome_owed = true; /* the welcome was lost */
        weir_root_enqueue(root, index);
        return WEIR_OK;
    }
    if (number <= limiter->session_low)
        return WEIR_OK; /* a hello of a session that is over */
    limiter->session_low = number;
    attach(root, index, limiter_index, hello, now);
    peer->session = message->session;
    peer->number = 0;
    peer->echo = 0;
    peer->stamp = 0;
    peer->last_ask = 0;
    peer->answer_count = 0;
    peer->unknown_count = peer->denied_count = 0;
    peer->answer_owed = false;
    peer->welcome_owed = true;
    peer->push_at = now;
    weir_root_begin_quotas(root, peer, hello, now);
    weir_root_enqueue(root, index);
    return WEIR_OK;
}

/* ---- Reports ---- */

static int append_slot(const struct weir_root *root, uint32_t **slots,
                       size_t *count, size_t *capacity, uint32_t slot)
{
    weir_assert(*count <= *capacity);
    uint32_t *grown =
        weir_mem_grow(&root->mem, *slots, sizeof(*grown), capacity, *count + 1);
    if (!grown)
        return WEIR_ENOMEM;
    *slots = grown;
    grown[(*count)++] = slot;
    return WEIR_OK;
}

/* Skips names without a quota here, of another creation, and those denied to
 * the peer: their counts find no cell, and the answer lists them. */
static int take_announce(struct weir_root *root, uint32_t index,
                         const struct weir_announce *announce, weir_instant now)
{
    struct root_peer *peer = &root->peers[index];
    struct root_limiter *limiter = root->limiters[peer->limiter];
    weir_assert(limiter->live && limiter->peer == index);
    struct weir_captures captures;
    if (!weir_root_names_may(root, index, announce->name, now)) {
        weir_merge_unannounce(&root->merge, &limiter->cells, announce->slot);
        return append_slot(root, &peer->denied, &peer->denied_count,
                           &peer->denied_capacity, announce->slot);
    }
    const struct weir_quota *quota =
        weir_catalog_find(root->catalog, announce->name, &captures);
    if (!root->ready || !quota || quota->created != announce->created) {
        weir_merge_unannounce(&root->merge, &limiter->cells, announce->slot);
        return WEIR_OK;
    }
    struct weir_root_quota *root_quota =
        weir_merge_root_quota(&root->merge, announce->name, quota, now);
    if (!root_quota)
        return WEIR_ENOMEM;
    return weir_merge_announce(&root->merge, &limiter->cells, root_quota,
                               announce, now);
}

static int take_report_counts(struct weir_root *root, uint32_t index,
                              const struct weir_report *report,
                              weir_instant now)
{
    struct root_peer *peer = &root->peers[index];
    weir_assert(peer->greeted);
    struct root_limiter *limiter = root->limiters[peer->limiter];
    int error = WEIR_OK;
    weir_root_names_come(root, index, report->below);
    for (size_t i = 0; i < report->announce_count; i++)
        weir_root_names_come(root, index, report->announces[i].name);
    for (size_t i = 0; i < report->announce_count && error == 0; i++)
        error = take_announce(root, index, &report->announces[i], now);
    for (size_t i = 0; i < report->count && error == 0; i++) {
        if (!weir_merge_count(&root->merge, &limiter->cells, &report->counts[i],
                              report, now))
            error =
                append_slot(root, &peer->unknown, &peer->unknown_count,
                            &peer->unknown_capacity, report->counts[i].slot);
    }
    return error;
}

/* How long ago a limiter reckoned this root's age as 'echo'. As it knew an age
 * that had been on its way to it, that is at least the way of the report. */
static weir_duration since_echo(const struct weir_root *root,
                                weir_duration echo, weir_instant now)
{
    weir_duration age = weir_since(root->merge.origin, now);
    if (echo == 0 || echo >= age)
        return 0;
    return weir_shorter(age - echo, WEIR_LEAD_MAX);
}

static int take_report(struct weir_root *root, uint32_t index,
                       const struct weir_report *report, weir_instant now)
{
    struct root_peer *peer = &root->peers[index];
    struct root_limiter *limiter = root->limiters[peer->limiter];
    weir_assert(limiter->live && limiter->peer == index);
    limiter->received_at = now;
    if (report->number == peer->number && peer->number > 0) {
        root->stats.reports_repeated++;
        for (size_t i = 0; i < report->count; i++)
            weir_merge_repeat(&root->merge, &limiter->cells,
                              report->counts[i].slot);
        peer->answer_owed = true;
        weir_root_enqueue(root, index);
        return WEIR_OK;
    }
    if (report->number != peer->number + 1)
        return WEIR_OK; /* an old report, doubled by the network */
    peer->number = report->number;
    peer->unknown_count = peer->denied_count = 0;
    peer->echo = report->echo;
    limiter->muted = false;
    limiter->lag[1] = limiter->lag[0];
    limiter->interval[1] = limiter->interval[0];
    limiter->lag[0] = limiter->interval[0] = 0;
    limiter->last_session = peer->session;
    limiter->last_number = report->number;
    limiter->epoch = report->epoch;
    limiter->unknown = report->unknown;
    limiter->contended = report->contended;
    limiter->lacking = report->lacking;
    /* What came before the first report may be of long ago. */
    if (report->overflowed != limiter->overflowed && limiter->reports > 0)
        limiter->overflowed_at = now;
    limiter->overflowed = report->overflowed;
    limiter->passes_on_full = report->passes_on_full;
    limiter->few_roots = report->few_roots;
    limiter->reports++;
    root->stats.reports++;
    weir_root_follow_epoch(root, peer, report, now);
    peer->answer_owed = true;
    weir_root_enqueue(root, index);
    struct weir_report taken = *report;
    taken.lead = since_echo(root, report->echo, now);
    root->merge.read_till =
        weir_later(root->merge.read_till, weir_before(now, taken.lead));
    return take_report_counts(root, index, &taken, now);
}

int weir_root_receive(struct weir_root *root, uint32_t index,
                      const struct weir_message *message, weir_instant now)
{
    weir_assert(index < root->peers_max);
    struct root_peer *peer = &root->peers[index];
    int error = WEIR_EPROTOCOL;
    if (!peer->up)
        return WEIR_OK;
    switch (message->type) {
    case WEIR_MESSAGE_HELLO:
        error = take_hello(root, index, message, now);
        break;
    case WEIR_MESSAGE_REPORT:
        if (!peer->greeted || peer->session != message->session)
            return WEIR_OK;
        error = take_report(root, index, &message->report, now);
        break;
    case WEIR_MESSAGE_ASKS:
        if (!peer->greeted || peer->session != message->session)
            return WEIR_OK;
        error = weir_root_take_asks(root, index, &message->asks, now);
        break;
    case WEIR_MESSAGE_WANTS:
        if (!peer->greeted || peer->session != message->session)
            return WEIR_OK;
        error = weir_root_take_wants(root, index, &message->wants, now);
        break;
    case WEIR_MESSAGE_LIMITS:
        if (!peer->greeted || peer->session != message->session)
            return WEIR_OK;
        error = weir_root_take_limits(root, index, &message->limits, now);
        break;
    case WEIR_MESSAGE_WELCOME:
    case WEIR_MESSAGE_QUOTAS:
    case WEIR_MESSAGE_FILLS:
    case WEIR_MESSAGE_ANSWERS:
    case WEIR_MESSAGE_GRANTS:
        break;
    }
    root->stats.protocol_errors += error == WEIR_EPROTOCOL;
    return error;
}

/* ---- Messages ---- */

/* How long the topmost root has been silent, beyond the usual. */
static weir_duration top_age(const struct weir_root *root, weir_instant now)
{
    if (!root->region)
        return 0;
    if (!root->topped)
        return WEIR_NEVER;
    return weir_since(root->top_at, now);
}

static void write_welcome(struct weir_root *root, struct root_peer *peer,
                          struct weir_message *out, weir_instant now)
{
    weir_assert(peer->greeted);
    out->type = WEIR_MESSAGE_WELCOME;
    out->welcome = (struct weir_welcome){
        .protocol = WEIR_PROTOCOL,
        .name = { root->name, root->name_len },
        .age = now - root->merge.origin,
        .ready = root->ready,
        .provisional = root->provisional,
        .settings = root->settings,
        .carries = root->region,
        .top_age = top_age(root, now),
        .regions = root->regions,
        .region_count = root->region_count,
    };
    if (root->region) {
        const struct root_limiter *limiter = root->limiters[peer->limiter];
        out->welcome.last_session = limiter->last_session;
        out->welcome.last_number = limiter->last_number;
    }
    if (root->ready) {
        out->welcome.store = root->store;
        out->welcome.epoch = root->epoch;
    }
    memcpy(out->welcome.incarnation, root->incarnation, WEIR_INCARNATION_SIZE);
    weir_root_welcome_leases(root, &out->welcome);
    peer->welcome_owed = peer->master_owed = false;
    weir_assert(!peer->welcome_owed);
}

/* Shortest time between two pushes on a link. */
static weir_duration push_spacing(const struct weir_root *root)
{
    if (!root->settings.slack)
        return root->settings.report_interval;
    weir_duration spacing = root->connected * (WEIR_SECOND / WEIR_PUSHES_PER_S);
    weir_assert(root->connected <= root->peers_max);
    return spacing > WEIR_PUSH_SPACING ? spacing : WEIR_PUSH_SPACING;
}

static weir_duration report_interval(const struct weir_root *root)
{
    return weir_longer(root->settings.report_interval, root->report_backoff);
}

/* For so long after a report the limiter may rely on its paces: by any answer
 * and any interval that it may have received last (weir_tally_good()). It takes
 * the shorter age of two reports, and both answers to the two last reports may
 * be lost. */
static weir_duration relied_for(const struct weir_root *root,
                                const struct root_limiter *limiter)
{
    weir_duration interval =
        weir_longer(report_interval(root),
                    weir_longer(limiter->interval[0], limiter->interval[1]));
    return WEIR_PACE_INTERVALS *
           (interval + weir_longer(limiter->lag[0], limiter->lag[1]));
}

/* Notes how long the limiter may rely on paces by the fills that are sent to it
 * now: an answer also says how old its counts may have been. */
static void note_relied(struct weir_root *root, const struct root_peer *peer,
                        weir_instant now)
{
    struct root_limiter *limiter = root->limiters[peer->limiter];
    weir_assert(limiter->live);
    if (peer->answer_owed)
        limiter->lag[0] =
            weir_longer(limiter->lag[0], since_echo(root, peer->echo, now));
    limiter->interval[0] =
        weir_longer(limiter->interval[0], report_interval(root));
    limiter->cells.pace_good = relied_for(root, limiter);
}

static void write_fills(struct weir_root *root, struct root_peer *peer,
                        struct weir_message *out, weir_instant now)
{
    weir_assert(peer->greeted);
    struct root_limiter *limiter = root->limiters[peer->limiter];
    weir_duration spacing = push_spacing(root);
    size_t count = weir_merge_send_fills(&root->merge, &limiter->cells,
                                         root->fills, WEIR_FILLS_MAX, now);
    weir_assert(count <= WEIR_FILLS_MAX);
    out->type = WEIR_MESSAGE_FILLS;
    out->fills = (struct weir_fills){
        .answer = peer->answer_owed,
        .number = peer->number,
        .stamp = ++peer->stamp,
        .report_backoff = root->report_backoff,
        .limiters = root->connected,
        .roots = root->roots,
        .top_age = top_age(root, now),
        .age = weir_since(root->merge.origin, now),
        .count = count,
        .fills = root->fills,
    };
    note_relied(root, peer, now);
    if (peer->answer_owed) {
        out->fills.unknown = peer->unknown;
        out->fills.unknown_count = peer->unknown_count;
        out->fills.denied = peer->denied;
        out->fills.denied_count = peer->denied_count;
    } else {
        root->stats.pushes++;
    }
    peer->answer_owed = false;
    weir_duration budget = count * (WEIR_SECOND / WEIR_PUSH_ENTRIES_PER_S);
    peer->push_at = now + (budget > spacing ? budget : spacing);
    root->stats.fills += count;
}

/* One message for the peer; false: none now. */
static bool write_message(struct weir_root *root, struct root_peer *peer,
                          struct weir_message *out, weir_instant now)
{
    if (!peer->greeted)
        return false;
    out->session = peer->session;
    weir_root_follow_floor(root, peer, now);
    weir_assert(root->limiters[peer->limiter]->live);
    const struct root_limiter *limiter = root->limiters[peer->limiter];
    if (peer->welcome_owed)
        write_welcome(root, peer, out, now);
    else if (peer->answer_count > 0)
        weir_root_write_answers(peer, out);
    else if (weir_root_owes_grants(peer))
        weir_root_write_grants(root, peer, out, now);
    else if (peer->answer_owed)
        write_fills(root, peer, out, now);
    else if (!peer->paused && weir_root_owes_quotas(root, peer))
        weir_root_write_quotas(root, peer, out, now);
    else if (!peer->paused && weir_merge_due(&limiter->cells) &&
             now >= peer->push_at)
        write_fills(root, peer, out, now);
    else
        return false;
    return true;
}

bool weir_root_next(struct weir_root *root, uint32_t *out_peer,
                    struct weir_message *out, weir_instant now)
{
    uint32_t index;
    while (weir_root_dequeue(root, &index)) {
        if (!write_message(root, &root->peers[index], out, now))
            continue;
        weir_root_enqueue(root, index);
        *out_peer = index;
        return true;
    }
    return false;
}

/* ---- Time ---- */

/* A limiter with a link is silent if newer reports of others were taken. A root
 * that hasn't read its messages for a while can't tell. */
static void mute_if_silent(struct weir_root *root, struct root_limiter *limiter)
{
    weir_assert(limiter->live && limiter->peer != ROOT_NO_PEER);
    limiter->cells.pace_good = relied_for(root, limiter);
    weir_duration silent =
        weir_since(limiter->received_at, root->merge.read_till);
    if (limiter->muted || silent < limiter->cells.pace_good)
        return;
    weir_merge_mute(&root->merge, &limiter->cells);
    limiter->muted = true;
}

static void forget_limiters(struct weir_root *root, weir_instant now)
{
    root->merge.pace_most = 2 * WEIR_PACE_INTERVALS * report_interval(root);
    for (uint32_t i = 0; i < root->limiter_used; i++) {
        struct root_limiter *limiter = root->limiters[i];
        if (!limiter->live)
            continue;
        if (limiter->peer != ROOT_NO_PEER) {
            mute_if_silent(root, limiter);
            continue;
        }
        weir_duration silent = weir_since(limiter->received_at, now);
        weir_assert(!limiter->cells.connected);
        /* By then the limiter goes by on_stale. */
        if (silent >= root->settings.stale_after)
            weir_merge_release(&root->merge, &limiter->cells);
        /* A returning limiter asks its carrier for the last report it took. */
        if (silent < (root->region ? FORGET_LAST : FORGET_FIRST))
            continue;
        if (silent >= FORGET_LAST ||
            weir_merge_drained(&root->merge, &limiter->cells, now))
            weir_root_free_limiter(root, i);
    }
}

/* Enqueues peers with due fills. Returns whether others must wait. */
static bool enqueue_due(struct weir_root *root, weir_instant now)
{
    bool waiting = false;
    for (uint32_t i = 0; i < root->peers_max; i++) {
        struct root_peer *peer = &root->peers[i];
        weir_assert(!peer->greeted || peer->limiter < root->limiter_used);
        if (!peer->greeted ||
            !weir_merge_due(&root->limiters[peer->limiter]->cells))
            continue;
        if (now >= peer->push_at && !peer->paused)
            weir_root_enqueue(root, i);
        else
            waiting = true;
    }
    return waiting;
}

void weir_root_tick(struct weir_root *root, weir_instant now)
{
    if (now >= root->look_at) {
        weir_merge_look(&root->merge, LOOK_WORK, now);
        root->due_waiting = enqueue_due(root, now);
        /* Cells that can't be sent yet needn't be found. */
        root->look_at = now + push_spacing(root);
    }
    if (now >= root->sweep_at) {
        weir_merge_sweep(&root->merge, &root->sweep_hand, SWEEP_USES, now);
        weir_root_sweep_bucket_states(root, SWEEP_BUCKET_STATES, now);
        forget_limiters(root, now);
        root->sweep_at = now + SWEEP_EVERY;
    }
    weir_root_lease_tick(root, now);
    weir_root_audit(root, WEIR_AUDITS_PER_TICK);
}

weir_instant weir_root_deadline(const struct weir_root *root, weir_instant now)
{
    bool look =
        root->merge.queue[WEIR_MERGE_MOVED].first != 0 || root->due_waiting;
    weir_instant due = weir_lease_manager_deadline(root->leases.manager, now);
    due = weir_earlier(due, weir_root_adaptive_deadline(root));
    due = weir_earlier(due, root->sweep_at);
    if (look)
        due = weir_earlier(due, root->look_at);
    return weir_later(due, now);
}

/* ---- Report backoff ---- */

static weir_duration backoff_doubled(const struct weir_root *root)
{
    weir_duration wanted = root->report_backoff > 0 ? 2 * root->report_backoff
                                                    : REPORT_BACKOFF_FIRST;
    weir_duration most =
        weir_shorter(WEIR_REPORT_BACKOFF_MAX, root->settings.stale_after / 3);
    return weir_shorter(wanted, most);
}

static weir_duration backoff_halved(const struct weir_root *root)
{
    return root->report_backoff > REPORT_BACKOFF_FIRST
               ? root->report_backoff / 2
               : 0;
}

void weir_root_busy(struct weir_root *root, uint32_t ppm, weir_instant now)
{
    root->stats.busy_ppm = ppm;
    if (now < root->judge_at)
        return;
    if (ppm >= REPORT_BACKOFF_ABOVE)
        root->report_backoff = backoff_doubled(root);
    else if (ppm < REPORT_BACKOFF_BELOW)
        root->report_backoff = backoff_halved(root);
    else
        return;
    root->judge_at = now + 2 * root->report_backoff;
    root->merge.overloaded = root->report_backoff > 0;
    weir_assert(root->report_backoff <= WEIR_REPORT_BACKOFF_MAX);
}
