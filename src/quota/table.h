/* SPDX-License-Identifier: MIT
 * quota/table.h - the limiter's table: every quota and instance that a
 * process knows, and the decision on them. Pure; lives in one block the
 * caller gives; addressed by index only.
 *
 * Who calls what:
 *   - any thread: weir_table_take() and its kin, weir_table_find(),
 *     weir_table_resolve(), weir_table_pin(), _unpin().
 *   - one thread at a time, the "sync": everything from weir_table_put() on.
 *
 * Progress: decisions and weir_table_find() are lock-free; what makes or
 * edits slots takes the writer lock (table_layout.h). */

#ifndef WEIR_TABLE_H
#define WEIR_TABLE_H

#include "algo/leaky.h"
#include "base/rng.h"
#include "quota/quota.h"

#define WEIR_SLOT_NONE UINT32_MAX
#define WEIR_SLOTS_MAX (1u << 24)
#define WEIR_STRIPES_MAX 1024

struct weir_table;

struct weir_table_options {
    uint32_t slots;     /* 1 .. WEIR_SLOTS_MAX */
    uint32_t stripes;   /* 1 .. WEIR_STRIPES_MAX, the shared one included */
    uint64_t seed;      /* of hashing and of chance */
};

/* The bytes a table needs; 0 when an option is out of its range. */
size_t weir_table_size(const struct weir_table_options *options);
/* Makes a table in 'block' (64-byte aligned, weir_table_size() bytes, every
 * byte zero). 'now' is the origin of its buckets: no call may come with an
 * instant much before it. */
struct weir_table *weir_table_init(void *block,
                                   const struct weir_table_options *options,
                                   weir_instant now);

/* ---- Any thread ---- */

/* A thread's own corner: refusals and chance. Stripe 0 is shared by all who
 * got none of their own (slower by a locked add a refusal). */
uint32_t weir_table_claim_stripe(struct weir_table *table);
void weir_table_release_stripe(struct weir_table *table, uint32_t stripe);

/* A slot and which of its lives is meant: odd, so that a zeroed ref is to
 * nobody. */
struct weir_ref {
    uint32_t slot;
    uint32_t generation;
};

/* The slot of exactly that name: a quota, an instance or a placeholder; false
 * when there is none. Lock-free. */
bool weir_table_find(struct weir_table *table, struct weir_text name,
                     struct weir_ref *out);
/* Fetches what weir_table_find() and a take would read, in two steps that
 * can be spread over a batch. */
uint64_t weir_table_hash(const struct weir_table *table,
                         struct weir_text name);
void weir_table_prefetch(const struct weir_table *table, uint64_t hash);
bool weir_table_find_hashed(struct weir_table *table, struct weir_text name,
                            uint64_t hash, struct weir_ref *out);

/* How a name came out of weir_table_resolve(). */
enum weir_resolved {
    WEIR_RESOLVED,       /* its own slot */
    WEIR_RESOLVED_FULL,  /* no room: 'out' is the template's overflow quota */
    WEIR_RESOLVED_CHAIN, /* no room: 'out' is the rest of its chain */
    WEIR_RESOLVED_NONE,  /* no quota rules the name: 'out' is untouched */
};
/* Finds, or makes an instance of the first template that matches. With
 * 'keep', a name without quota gets a placeholder, so that a handle finds
 * the quota that may come. Takes the writer lock unless the name is there. */
enum weir_resolved weir_table_resolve(struct weir_table *table,
                                      struct weir_text name, bool keep,
                                      struct weir_ref *out,
                                      weir_instant now);
/* Resolves and holds the slot against eviction, until unpinned. */
enum weir_resolved weir_table_pin(struct weir_table *table,
                                  struct weir_text name,
                                  struct weir_ref *out, weir_instant now);
void weir_table_unpin(struct weir_table *table, struct weir_ref ref);

/* A decision's outcome: bits. Below WEIR_OUTCOME_STALE_REF it is all that
 * there is to it. */
enum weir_outcome {
    WEIR_OUTCOME_LIMITED = 1, /* else passed */
    WEIR_OUTCOME_KICK = 2,    /* the sync has something to report at once */
    WEIR_OUTCOME_STALE_REF = 4, /* the ref's life is over: resolve again;
                                 * nothing was charged */
    WEIR_OUTCOME_SHADOW = 8,  /* there is a shadow set: weir_table_shadow()
                               * wants to know of this request */
};

unsigned weir_table_take(struct weir_table *table, uint32_t stripe,
                         struct weir_ref ref, uint64_t weight,
                         struct weir_reply *reply, weir_instant now);
unsigned weir_table_peek(struct weir_table *table, uint32_t stripe,
                         struct weir_ref ref, uint64_t weight,
                         struct weir_reply *reply, weir_instant now);
unsigned weir_table_charge(struct weir_table *table, uint32_t stripe,
                           struct weir_ref ref, uint64_t weight,
                           weir_instant now);
unsigned weir_table_refund(struct weir_table *table, uint32_t stripe,
                           struct weir_ref ref, uint64_t weight,
                           weir_instant now);
/* 'reply' must not be NULL: reply->wait. */
unsigned weir_table_reserve(struct weir_table *table, uint32_t stripe,
                            struct weir_ref ref, uint64_t weight,
                            weir_duration wait_max, struct weir_reply *reply,
                            weir_instant now);
/* ---- The shadow set, any thread ----
 * What was asked of the live set is asked of the shadow set once more: of the
 * quota that "shadow:" and the same name lead to there, exactly or by a
 * template; where there is none it passes. It is decided as enforced, counted
 * there as passed or refused, and told to nobody: no call above answers
 * differently for it.
 *
 * A take or reserve is asked whatever the live set said: a larger limit is
 * seen to pass more. What is refunded went through the live set, but the
 * caller can't say whether it did so there: a refund is given there in the
 * proportion in which that slot's requests lately passed in both, all of it
 * or nothing, by chance. So it is exact where the shadow set refuses nothing
 * that the live one lets through, and right in the mean else, if what is
 * refunded is no other than what isn't. What would have passed there and was
 * refused in truth is never refunded: nobody did it. */
enum weir_act_kind {
    WEIR_ACT_TAKE,
    WEIR_ACT_RESERVE,
    WEIR_ACT_CHARGE,
    WEIR_ACT_REFUND,
};
struct weir_act {
    enum weir_act_kind kind;
    bool limited;           /* the live set refused it */
    uint64_t weight;
    weir_duration wait_max; /* of a reserve */
};
/* By what the live set was asked: the slot remembers its twin. Takes the
 * writer lock the first time, and after edits of the shadow set. Returns 0 or
 * WEIR_OUTCOME_KICK. */
unsigned weir_table_shadow(struct weir_table *table, uint32_t stripe,
                           struct weir_ref ref, const struct weir_act *act,
                           weir_instant now);
/* By name, for what has no slot of its own in the live set: of those, takes
 * only. Slower. */
unsigned weir_table_shadow_name(struct weir_table *table, uint32_t stripe,
                                struct weir_text name, uint64_t weight,
                                weir_instant now);

/* Counts a request by a name without quota; by an instance without room. */
void weir_table_count_unknown(struct weir_table *table, uint32_t stripe);
void weir_table_count_overflow(struct weir_table *table, uint32_t stripe);

/* This process is a fork: whoever held the writer lock is in another one. If
 * somebody did, looks at every slot and frees those that were being made; at
 * worst a chunk of a name is lost, and a slot that was just being held stays
 * in use. Takes go on meanwhile; no thread may hold the lock. */
void weir_table_break_lock(struct weir_table *table);

/* ---- The sync: quotas ---- */

/* Defines or edits a quota or template. A name in use keeps its slot, its
 * count and its fill in units; instances of an edited template follow.
 * Parents and overflow quotas not defined yet get placeholders. WEIR_EFULL:
 * no room, the table is as before. */
int weir_table_put(struct weir_table *table, const struct weir_quota *quota,
                   weir_instant now);
/* Removes a quota: its slot is freed, or falls back to a template's instance
 * or to a placeholder if someone holds it. Unknown names are ignored. */
void weir_table_drop(struct weir_table *table, struct weir_text name,
                     weir_instant now);
/* Begins and ends a whole set: what wasn't put between is dropped. */
void weir_table_begin_full(struct weir_table *table);
void weir_table_end_full(struct weir_table *table, weir_instant now);

/* The slots ever used; those beyond were never touched. */
uint32_t weir_table_used(const struct weir_table *table);
/* Slots that aren't free. */
uint32_t weir_table_live(const struct weir_table *table);
/* Name of a live slot, written to 'buf' (WEIR_NAME_MAX + 1 bytes,
 * NUL-terminated). Returns its length, 0 for a slot that doesn't live. */
size_t weir_table_name(const struct weir_table *table, uint32_t slot,
                       char *buf);

enum weir_slot_state {
    WEIR_SLOT_FREE = 0,
    WEIR_SLOT_MAKING,      /* being written by its maker */
    WEIR_SLOT_PLACEHOLDER, /* a name without quota that someone refers to */
    WEIR_SLOT_QUOTA,
    WEIR_SLOT_TEMPLATE,
    WEIR_SLOT_INSTANCE,
};

/* What the sync sees of a slot. */
struct weir_slot_view {
    enum weir_slot_state state;
    enum weir_sharing sharing;
    enum weir_on_stale on_stale;
    uint32_t generation;
    uint64_t created; /* of the quota, or of the instance's template */
    uint64_t count;   /* units this table let through, modulo 2^64 */
    uint64_t refused; /* units */
    int64_t fill;     /* scaled by 2^frac, not below 0 */
    uint64_t in;      /* (count << frac) + base: the bucket's 'in' sum */
    struct weir_bucket bucket;
    bool unlimited;
};
void weir_table_view(struct weir_table *table, uint32_t slot,
                     struct weir_slot_view *out, weir_instant now);

/* ---- The sync: counts ---- */

/* Slots in which something happened since the last call: sets their bits in
 * 'bits' (weir_table_bits_words() words, one bit a slot), clears the
 * table's. From then on the next take of each marks it again. */
size_t weir_table_bits_words(const struct weir_table *table);
void weir_table_collect(struct weir_table *table, uint64_t *bits);
/* The table's totals of a slot, over all of its lives. 'refused' may be short
 * for an instant, while a thread moves it from one place to another: keep the
 * largest seen. */
uint64_t weir_table_count(const struct weir_table *table, uint32_t slot);
uint64_t weir_table_refused(const struct weir_table *table, uint32_t slot);
/* Takes the request for an early report: true once after some slot went
 * over its report_at. weir_table_is_urgent() leaves it. */
bool weir_table_urgent(struct weir_table *table);
bool weir_table_is_urgent(const struct weir_table *table);

/* From now on: mark the slot urgent at count 'report_at', refuse at count
 * 'stop' (both absolute; WEIR_COUNT_FAR beyond 'count' is "never"). */
#define WEIR_COUNT_FAR ((uint64_t)1 << 60)
void weir_table_set_slack(struct weir_table *table, uint32_t slot,
                          uint64_t report_at, uint64_t stop);
/* Moves the bucket to: fill 'fill' (scaled) when the count was 'count', at
 * the instant 'at'. */
void weir_table_set_fill(struct weir_table *table, uint32_t slot,
                         int64_t fill, uint64_t count, weir_instant at);
/* The slot's fill is fresh from a root: should all roots fall silent, `hold`
 * refuses as the slot would now. */
void weir_table_note_hold(struct weir_table *table, uint32_t slot,
                          weir_instant at);
/* Adds 'scaled' to the fill, as if another limiter had taken it. */
void weir_table_add_others(struct weir_table *table, uint32_t slot,
                           int64_t scaled);
/* Others let through 'units' (below 0: fewer than was said) and refused
 * 'refused': for the slot alone, its chain is counted by who counts it. Marks
 * it, and asks for an early report, as a take does. False: the ref's life is
 * over, nothing was added. */
bool weir_table_carry(struct weir_table *table, struct weir_ref ref,
                      int64_t units, uint64_t refused, weir_instant now);
/* Every root has answered for the slot's count up to 'count': an instance may
 * be evicted only when that is all of it. A new life begins settled. */
void weir_table_set_settled(struct weir_table *table, uint32_t slot,
                            uint64_t count);
uint64_t weir_table_settled(const struct weir_table *table, uint32_t slot);

/* No root for stale_after: from now on the counted slots follow their
 * on_stale (open, closed, hold here; share by weir_table_add_others()), until
 * it is taken back. Local quotas aren't touched. */
void weir_table_set_stale(struct weir_table *table, bool stale,
                          weir_instant now);
bool weir_table_is_stale(const struct weir_table *table);
/* While 'held' fills don't move the probability that `hold` goes on with: they
 * are told by who can't ask either. */
void weir_table_set_held(struct weir_table *table, bool held);

/* Whether fewer than 1/8 of the slots are free: the sweep should hurry. */
bool weir_table_is_crowded(const struct weir_table *table);
/* The clock hand, called some times a second: looks at up to 'count' slots,
 * lifts buckets that stood empty (so that no difference of sums ever
 * overflows), and, while the table is crowded, frees
 * instances that are empty, settled, unpinned and without children. Returns
 * the slots freed. */
uint32_t weir_table_sweep(struct weir_table *table, uint32_t count,
                          weir_instant now);

/* Requests by names without quota; by instances without room. */
uint64_t weir_table_unknown(const struct weir_table *table);
uint64_t weir_table_overflowed(const struct weir_table *table);

/* The template that rules 'name': its slot, or WEIR_SLOT_NONE. */
uint32_t weir_table_template_of(const struct weir_table *table,
                                uint32_t slot);

#endif /* WEIR_TABLE_H */
