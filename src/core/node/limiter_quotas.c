/* SPDX-License-Identifier: MIT
 * core/node/limiter_quotas.c - a limiter's quotas: from a root's messages, or a
 * snapshot, into the table.
 *
 * Every root streams the same store's quotas. Each message names the epoch that
 * it begins above, and is applied only if we have all changes up to it: loss
 * and reordering only delay, and the root starts again from the epoch in our
 * reports. A whole set is announced by its first message; quotas that it didn't
 * name are dropped when its target is reached, not before.
 *
 * No room. The table grows (the embedder's grow()). A quota that finds no room
 * all the same is missing. Later changes are applied, because one may be a
 * removal; but reports carry the epoch before the missing quota, and the
 * no-room flag, so that no root repeats it in vain. When slots have come free,
 * or the table may grow again, we go back to that epoch and report that: all
 * changes from there are sent once more, as at a session's start. The same when
 * a missing quota may be in order now: a quota that isn't here was removed, or
 * was edited and fits. An edit of a quota that is here begins no round: with
 * 100,000 quotas missing, each would cost 100,000 changes. An edit that
 * replaces a set by another needs two rounds, if the table can't hold both.
 *
 * The table knows how many are missing (weir_table_lacking()): a name that
 * finds no quota may be one of them.
 *
 * Contended. A change that can't be made now, because another thread has a lock
 * of the table, is missing in the same way, and is asked for again after
 * CONTENDED_AGAIN. A whole set that can't begin is lost like any message that
 * is. Its end, which drops what it didn't name, waits until none of its changes
 * is missing in this way: a quota that it named keeps its rule. And a limiter
 * is first ready when every quota has a slot: requests of a name without one
 * would pass. The limiter waits for no lock, and no change gets lost.
 *
 * Rejected: removals first. An edit may be cut by a message's bound, and then
 * they are not first; and if a quota is removed before its replacement arrives,
 * requests pass without any quota.
 *
 * Completeness. A whole set is complete at the newest target of the roots that
 * sent parts of it. If none of the connected roots reaches that target, the set
 * is begun again: it may lack quotas moved by an edit that only the lost root
 * knew. */

#include <string.h>

#include "core/base/hash.h"
#include "core/node/limiter_internal.h"
#include "core/table/table_grow.h"

/* Missing quotas are asked for again after this time; doubled each time that
 * they still don't fit. */
#define ROOM_FIRST WEIR_SECOND
#define ROOM_MOST (64 * WEIR_SECOND)
/* The same for changes that another thread kept out, by a lock. */
#define CONTENDED_AGAIN (100 * WEIR_MILLISECOND)

uint64_t weir_limiter_epoch(const struct weir_limiter *limiter)
{
    return limiter->missing != 0 ? limiter->missing - 1 : limiter->epoch;
}

void weir_limiter_begin_anew(struct weir_limiter *limiter)
{
    limiter->epoch = 0;
    limiter->full = false;
    limiter->missing = limiter->missing_till = 0;
    limiter->lacking = 0;
    limiter->missing_edited = false;
    limiter->contended = limiter->slotless = limiter->unfinished = false;
    weir_assert(!limiter->full && limiter->missing == 0);
}

/* ---- Room ---- */

/* Whether the quota itself is in the table, maybe as before an edit; another
 * quota or a handle may have given its name a slot without it. */
static bool is_here(const struct weir_limiter *limiter, struct weir_text name,
                    weir_instant now)
{
    struct weir_ref ref;
    struct weir_slot_view view;
    if (!weir_table_find(limiter->table, name, &ref))
        return false;
    weir_table_view(limiter->table, ref.slot, &view, now);
    return view.state == WEIR_SLOT_QUOTA || view.state == WEIR_SLOT_TEMPLATE;
}

/* Whether a quota that finds no room was counted before. A round and a whole
 * set name each once. Beside them an edit of an older quota that isn't here is
 * of a missing one; of those that are here as before an edit, only the last is
 * known. */
static bool is_counted(const struct weir_limiter *limiter,
                       const struct weir_quota *quota, weir_instant now)
{
    if (limiter->lacking == 0)
        return false;
    if (limiter->unfit == weir_hash(quota->name, 0))
        return true;
    return !limiter->full && limiter->epoch >= limiter->missing_till &&
           quota->created < quota->epoch && !is_here(limiter, quota->name, now);
}

static void note_missing(struct weir_limiter *limiter,
                         const struct weir_quota *quota, int error,
                         weir_instant now)
{
    weir_assert(quota->epoch > 0 && quota->name.len <= WEIR_NAME_MAX);
    struct weir_ref ref;
    if (limiter->missing == 0)
        limiter->missing = quota->epoch;
    limiter->missing_live = weir_table_live(limiter->table);
    if (error == WEIR_ETIMEOUT) {
        limiter->contended = true;
        limiter->slotless |=
            !weir_table_find(limiter->table, quota->name, &ref);
        return;
    }
    if (is_counted(limiter, quota, now))
        return;
    limiter->unfit = weir_hash(quota->name, 0);
    if (limiter->missing_count++ == 0) {
        limiter->missing_len = quota->name.len;
        memcpy(limiter->missing_name, quota->name.p, quota->name.len);
    }
    limiter->lacking++;
    if (limiter->lacking > weir_table_lacking(limiter->table))
        weir_table_set_lacking(limiter->table, limiter->lacking);
    weir_assert(limiter->missing != 0);
}

/* One event for all of a round: the event queue may be shorter. */
static void note_missing_event(struct weir_limiter *limiter, weir_instant now)
{
    if (limiter->missing_count == 0)
        return;
    weir_assert(limiter->missing_len <= sizeof limiter->missing_name);
    struct weir_text name = { limiter->missing_name, limiter->missing_len };
    struct weir_event *event =
        weir_limiter_note(limiter, WEIR_EVENT_TABLE_FULL, name, now);
    if (event)
        event->count = limiter->missing_count;
    limiter->missing_count = 0;
}

/* Whether the missing quotas may fit now. */
static bool may_fit(const struct weir_limiter *limiter)
{
    return limiter->contended ||
           weir_table_live(limiter->table) < limiter->missing_live ||
           limiter->missing_edited || weir_table_can_grow(limiter->table);
}

/* When to ask for missing quotas again, if they are missing still. */
static void put_off_missing(struct weir_limiter *limiter, weir_instant now)
{
    if (limiter->contended) {
        limiter->contended = false;
        limiter->missing_at = now + CONTENDED_AGAIN;
        return;
    }
    limiter->missing_every =
        limiter->missing_every == 0 ? ROOM_FIRST : 2 * limiter->missing_every;
    if (limiter->missing_every > ROOM_MOST)
        limiter->missing_every = ROOM_MOST;
    weir_assert(limiter->missing_every > 0);
    limiter->missing_at = now + limiter->missing_every;
}

void weir_limiter_seek_room(struct weir_limiter *limiter, weir_instant now)
{
    if (limiter->missing == 0 || limiter->full || now < limiter->missing_at ||
        !may_fit(limiter))
        return;
    limiter->missing_till = limiter->epoch;
    limiter->epoch = limiter->missing - 1;
    limiter->missing = 0;
    limiter->missing_edited = limiter->slotless = false;
    limiter->lacking = 0;
    put_off_missing(limiter, now);
    weir_assert(limiter->missing == 0);
    for (uint32_t i = 0; i < limiter->link_count; i++)
        limiter->link[i].urgent = limiter->link[i].again = true;
}

/* ---- Changes ---- */

/* Puts it, with as much memory as there is. */
static int put_growing(struct weir_limiter *limiter,
                       const struct weir_quota *quota, weir_instant now)
{
    struct weir_table *table = limiter->table;
    uint32_t had;
    int error;
    do {
        had = weir_table_committed(table);
        error = weir_table_put_unruled(table, quota, now);
    } while (error == WEIR_EFULL && limiter->grow &&
             limiter->grow(limiter->grow_context, had));
    return error;
}

/* Whether a new change, not one that a round repeats, concerns a quota that
 * isn't here, or is as before an edit, while some are missing. */
static bool may_be_missing(const struct weir_limiter *limiter,
                           const struct weir_quota *quota, weir_instant now)
{
    return limiter->missing != 0 && quota->epoch > limiter->missing_till &&
           (limiter->unfit == weir_hash(quota->name, 0) ||
            !is_here(limiter, quota->name, now));
}

static int pass_to_sink(struct weir_limiter *limiter,
                        const struct weir_change *change, weir_instant now)
{
    const struct weir_limiter_sink *sink = limiter->sink;
    if (!sink || change->quota.epoch <= limiter->handed)
        return WEIR_OK;
    int error = sink->change(sink->context, change, now);
    if (error == WEIR_OK)
        limiter->handed = change->quota.epoch;
    weir_assert(error < 0 || limiter->handed > limiter->epoch);
    return error;
}

int weir_limiter_apply(struct weir_limiter *limiter,
                       const struct weir_change *change, weir_instant now)
{
    if (change->reduced && change->quota.name.len == 0)
        weir_limiter_note(limiter, WEIR_EVENT_QUOTA_UNKNOWN, WEIR_TEXT(""),
                          now);
    if (change->quota.epoch <= limiter->epoch)
        return WEIR_OK;
    weir_assert(change->quota.epoch > limiter->epoch);
    int error = pass_to_sink(limiter, change, now);
    if (error < 0)
        return error;
    bool missing = may_be_missing(limiter, &change->quota, now);
    if (change->removed) {
        limiter->missing_edited |= missing;
        error =
            weir_table_drop_unruled(limiter->table, change->quota.name, now);
        if (error < 0)
            note_missing(limiter, &change->quota, error, now);
        weir_limiter_leases_edited(limiter, &change->quota, now);
        return WEIR_OK;
    }
    if (change->reduced)
        weir_limiter_note(limiter, WEIR_EVENT_QUOTA_UNKNOWN, change->quota.name,
                          now);
    error = put_growing(limiter, &change->quota, now);
    if (error < 0)
        note_missing(limiter, &change->quota, error, now);
    else
        limiter->missing_edited |= missing;
    weir_limiter_leases_edited(limiter, &change->quota, now);
    return WEIR_OK;
}

/* A whole set begins: the present quotas stay until it is complete. */
static int begin_whole(struct weir_limiter *limiter, weir_instant now)
{
    const struct weir_limiter_sink *sink = limiter->sink;
    int error = weir_table_begin_full(limiter->table);
    if (error == 0 && sink)
        error = sink->whole(sink->context, &limiter->store, now);
    if (error < 0)
        return error;
    limiter->handed = 0;
    weir_limiter_begin_anew(limiter);
    limiter->full = true;
    limiter->full_target = 0;
    weir_assert(limiter->epoch == 0 && limiter->missing == 0);
    return WEIR_OK;
}

/* Whether the whole set that this message begins is already under way (a root
 * that wasn't told in time sends the same one again), or was passed by another
 * root's, unknown to this one. */
static bool is_whole_past(const struct weir_limiter *limiter,
                          const struct limiter_link *link,
                          const struct weir_quotas *quotas)
{
    if (limiter->epoch > quotas->target)
        return limiter->epoch > quotas->known;
    return limiter->full ||
           (link->full_taken && quotas->target == link->full_target);
}

static int begin_full(struct weir_limiter *limiter, struct limiter_link *link,
                      const struct weir_quotas *quotas, weir_instant now)
{
    if (is_whole_past(limiter, link, quotas))
        return WEIR_OK;
    int error = begin_whole(limiter, now);
    if (error < 0)
        return error;
    link->full_taken = true;
    link->full_target = quotas->target;
    weir_assert(limiter->full && limiter->handed == 0);
    return WEIR_OK;
}

void weir_limiter_finish(struct weir_limiter *limiter, weir_instant now)
{
    bool repeats = limiter->epoch < limiter->missing_till;
    if (limiter->unfinished && !limiter->contended && !repeats)
        limiter->unfinished = weir_table_end_full(limiter->table, now) < 0;
}

/* All changes up to limiter->epoch were received. If one root began a set and
 * another, with a newer edit, continues it, the set may lack quotas that this
 * edit moved: it is complete at the newest target. */
static int reach(struct weir_limiter *limiter, weir_instant now)
{
    if (limiter->full && limiter->epoch < limiter->full_target)
        return WEIR_OK;
    limiter->unfinished |= limiter->full;
    limiter->full = false;
    weir_limiter_finish(limiter, now);
    note_missing_event(limiter, now);
    weir_table_set_lacking(limiter->table, limiter->lacking);
    if (limiter->missing == 0)
        limiter->missing_every = 0;
    bool ready = limiter->ready || !limiter->slotless;
    if (ready && !limiter->ready)
        weir_limiter_note(limiter, WEIR_EVENT_READY, WEIR_TEXT(""), now);
    weir_assert(!limiter->full);
    limiter->ready = ready;
    const struct weir_limiter_sink *sink = limiter->sink;
    int error =
        sink ? sink->reached(sink->context, limiter->epoch, now) : WEIR_OK;
    weir_limiter_seek_room(limiter, now);
    return error;
}

/* A provisional root's target is not used, unless the limiter has no quotas. */
void weir_limiter_seek_leader(struct weir_limiter *limiter)
{
    bool up = false;
    for (uint32_t i = 0; i < limiter->link_count; i++) {
        const struct limiter_link *link = &limiter->link[i];
        if (link->state != LINK_UP || !link->root_ready)
            continue;
        if (link->target >= limiter->full_target)
            return;
        up |= !link->provisional || !limiter->ready;
    }
    if (!limiter->full || !up)
        return;
    weir_limiter_begin_anew(limiter);
    for (uint32_t i = 0; i < limiter->link_count; i++) {
        limiter->link[i].full_taken = false;
        limiter->link[i].urgent = limiter->link[i].again = true;
    }
}

static int take_changes(struct weir_limiter *limiter, struct limiter_link *link,
                        const struct weir_quotas *quotas, weir_instant now)
{
    int error = quotas->full ? begin_full(limiter, link, quotas, now) : WEIR_OK;
    if (error == WEIR_ETIMEOUT) {
        link->again = link->urgent = true;
        return WEIR_OK; /* as if it was lost */
    }
    if (quotas->from > limiter->epoch)
        return error; /* a message was lost: it will be sent again */
    if (quotas->target > limiter->full_target)
        limiter->full_target = quotas->target;
    for (size_t i = 0; i < quotas->count && error == 0; i++)
        error = weir_limiter_apply(limiter, &quotas->changes[i], now);
    if (error < 0)
        return error;
    if (quotas->epoch > limiter->epoch)
        limiter->epoch = quotas->epoch;
    weir_assert(limiter->epoch >= quotas->epoch);
    if (quotas->target > link->root_epoch)
        link->root_epoch = quotas->target;
    if (quotas->target > link->target)
        link->target = quotas->target;
    return limiter->epoch < quotas->target ? WEIR_OK : reach(limiter, now);
}

int weir_limiter_take_quotas(struct weir_limiter *limiter,
                             struct limiter_link *link,
                             const struct weir_quotas *quotas, weir_instant now)
{
    int error = take_changes(limiter, link, quotas, now);
    weir_slots_rule(limiter->table, now);
    return error;
}

/* ---- From a snapshot ---- */

int weir_limiter_restore(struct weir_limiter *limiter,
                         const struct weir_store_id *store, weir_instant now)
{
    limiter->store = *store;
    return begin_whole(limiter, now);
}

int weir_limiter_restored(struct weir_limiter *limiter, uint64_t epoch,
                          uint64_t features, weir_instant now)
{
    /* A root gets the full stale_after to answer. */
    limiter->received = true;
    limiter->received_at = limiter->any_received_at = now;
    limiter->epoch = epoch;
    int error = reach(limiter, now);
    weir_slots_rule(limiter->table, now);
    /* Roots withheld quotas from that version: it is the whole set that we
     * announce to lack. */
    if (limiter->features & ~features)
        limiter->epoch = 0;
    return error;
}

void weir_limiter_forget_keeper(struct weir_limiter *limiter)
{
    limiter->sink = limiter->region;
}
