/* SPDX-License-Identifier: MIT
 * core/table/table.h - the limiter's table: every quota and instance that a
 * process knows, and the decisions on them. Pure; lives in one block that the
 * caller provides; slots are addressed by index only.
 *
 * Threads:
 *   - any thread: weir_table_take() and the calls like it, weir_table_find(),
 *     weir_table_resolve(), weir_table_pin(), _unpin().
 *   - one thread at a time, the "sync": table_sync.h.
 *
 * Progress: decisions and weir_table_find() are lock-free, unless a quota of
 * the chain has a bucket state of several words: a request takes the lock of
 * each such state, and holds them until it is charged or refused. Functions
 * that make or edit slots take the writer lock. No function waits for a lock:
 * after WEIR_LOCK_SPINS spins it gives up, has changed nothing, and says so
 * (table_lock.c). The caller may then wait, and call it again:
 *
 *     uint32_t seen = weir_load_acquire(weir_table_released(table));
 *     ... call; if it gave up:
 *     ... sleep while *weir_table_released(table) == seen, until a deadline
 *
 * A sleeper is woken by the process that releases the lock, if a call says that
 * it has to (WEIR_OUTCOME_WAKE, weir_table_wake()). Wake-ups get lost if that
 * process dies, so a sleep is short.
 *
 * Units in flight are in table_permit.h, quotas that a store counts in
 * link_exact.h, processes that share a table in table_share.h, copies
 * of slots in table_view.h. */

#ifndef WEIR_TABLE_H
#define WEIR_TABLE_H

#include "core/algorithm/leaky.h"
#include "core/base/rng.h"
#include "core/quota/quota.h"

#define WEIR_SLOT_NONE UINT32_MAX
#define WEIR_SLOTS_MAX (1u << 24)
#define WEIR_STRIPES_MAX 1024
#define WEIR_TABLE_PROCESSES_MAX 64

struct weir_table;

struct weir_table_options {
    uint32_t slots;     /* 1 .. WEIR_SLOTS_MAX */
    uint32_t committed; /* slots whose memory can be touched at first, up to
                           * 'slots' (table_grow.h); 0: all */
    uint32_t stripes;   /* 1 .. WEIR_STRIPES_MAX, with the shared one; at
                           * least 'processes' */
    uint32_t processes; /* number that share the table (table_share.h), up to
                           * WEIR_TABLE_PROCESSES_MAX; 0 and 1: not shared */
    uint64_t seed;      /* for hashing and random draws */
    /* room for rules and states of algorithms that aren't one word: 64 ..
     * WEIR_ALGORITHM_BYTES_MAX; 0: 64 KiB and WEIR_ALGORITHM_BYTES_A_SLOT
     * for each slot. Unused pages are never touched */
    uint64_t bucket_state_bytes;
    uint32_t gate_slots; /* gate slots: adaptive quotas, templates and instances
                      * with an own limit; others let all pass. 0 ..
                      * WEIR_GATE_SLOTS_MAX; pages as above */
};
#define WEIR_GATE_SLOTS_MAX 4096
#define WEIR_ALGORITHM_BYTES_A_SLOT 256
#define WEIR_ALGORITHM_BYTES_MAX (1ull << 37)

/* The bytes a table needs; 0 when an option is out of its range. */
size_t weir_table_size(const struct weir_table_options *options);
/* Makes a table in 'block' (64-byte aligned, weir_table_size() bytes, every
 * byte zero). 'now' is the origin of its buckets: no call may pass an instant
 * much before it. */
struct weir_table *weir_table_init(void *block,
                                   const struct weir_table_options *options,
                                   weir_instant now);

/* ---- Any thread ---- */

/* A thread's own memory for refusals and random draws. Stripe 0 is shared by
 * all threads that have no own stripe (slower by one locked add per
 * refusal). */
uint32_t weir_table_claim_stripe(struct weir_table *table);
/* The same in a table that processes share: threads of process number 'process'
 * without an own stripe use stripe 'process'. */
uint32_t weir_table_claim_stripe_as(struct weir_table *table, uint32_t process);
void weir_table_release_stripe(struct weir_table *table, uint32_t stripe);

/* A slot and one of its lives (generation). The generation is odd, so that a
 * zeroed ref refers to no slot. */
struct weir_ref {
    uint32_t slot;
    uint32_t generation;
};

/* The slot of exactly that name: a quota, an instance or a placeholder; false
 * when there is none. Lock-free. */
bool weir_table_find(struct weir_table *table, struct weir_text name,
                     struct weir_ref *out);
/* Prefetches the lines that weir_table_find() and a take would read, in two
 * steps that can be spread over a batch. */
uint64_t weir_table_hash(const struct weir_table *table, struct weir_text name);
void weir_table_prefetch(const struct weir_table *table, uint64_t hash);
bool weir_table_find_hashed(struct weir_table *table, struct weir_text name,
                            uint64_t hash, struct weir_ref *out);

/* ---- Locks, any thread ---- */

/* Moves when a lock is released for which a caller waits. In a table that
 * processes share, they may all sleep on it. */
const uint32_t *weir_table_released(const struct weir_table *table);
/* Whether a call that took the writer lock has released a lock for which others
 * wait: then this process has to wake the sleepers. True once. */
bool weir_table_wake(struct weir_table *table);
/* A caller has waited for the writer lock for as long as it may: until the
 * lock's release, others needn't wait. weir_table_is_overdue() says so. */
void weir_table_set_overdue(struct weir_table *table);
bool weir_table_is_overdue(const struct weir_table *table);

/* The result of weir_table_resolve(). */
enum weir_resolved {
    WEIR_RESOLVED,           /* its own slot */
    WEIR_RESOLVED_FULL,      /* no room: 'out' is the template's overflow quota;
                            * or the rest of its chain, if the template limits
                            * nothing: off, in mode shadow, or unlimited */
    WEIR_RESOLVED_CHAIN,     /* no room: 'out' is the rest of its chain */
    WEIR_RESOLVED_FREE,      /* no room, but no quota would limit it: 'out' is
                            * untouched */
    WEIR_RESOLVED_LACKING,   /* no room, and no such slot: 'out' is untouched */
    WEIR_RESOLVED_NONE,      /* no quota rules the name: 'out' is untouched */
    WEIR_RESOLVED_REFUSED,   /* a long name without a stored form: its requests
                            * are limited; 'out' is untouched */
    WEIR_RESOLVED_CONTENDED, /* another thread has the writer lock: nothing was
                              * done */
};
static inline bool weir_is_resolved(enum weir_resolved resolved)
{
    return resolved <= WEIR_RESOLVED_CHAIN;
}
/* Finds the slot of a name, as it is stored, or makes an instance of the first
 * template that matches. With 'keep', a name without a quota gets a
 * placeholder, so that a handle finds a quota created later. Takes the writer
 * lock unless the name is present. */
enum weir_resolved weir_table_resolve(struct weir_table *table,
                                      struct weir_text name, bool keep,
                                      struct weir_ref *out, weir_instant now);
/* The same for a name that a client gives: up to WEIR_GIVEN_NAME_MAX bytes, and
 * stored as core/quota/long_name.h says; a longer one is refused. */
enum weir_resolved weir_table_resolve_given(struct weir_table *table,
                                            uint32_t process,
                                            struct weir_text name, bool keep,
                                            struct weir_ref *out,
                                            weir_instant now);
/* Resolves a name that a client gives, and protects the slot from eviction
 * until unpinned. The slot, its chain and, if there is a shadow set, its shadow
 * slot are reported, so that the roots send their fills before the first
 * request. */
enum weir_resolved weir_table_pin(struct weir_table *table,
                                  struct weir_text name, struct weir_ref *out,
                                  weir_instant now);
/* False: another thread has the writer lock, and the slot is still pinned. */
bool weir_table_unpin(struct weir_table *table, struct weir_ref ref);

/* A decision's outcome: bits. A value below WEIR_OUTCOME_STALE_REF is a
 * complete verdict. */
enum weir_outcome {
    WEIR_OUTCOME_LIMITED = 1,    /* else passed */
    WEIR_OUTCOME_KICK = 2,       /* the sync has to report at once; may be set
                               * with STALE_REF and EXACT too */
    WEIR_OUTCOME_STALE_REF = 4,  /* the slot's life is over: resolve again; or
                                 * it or a parent has no quota, while the table
                                 * lacks some: go by on_full. Nothing was
                                 * charged */
    WEIR_OUTCOME_SHADOW = 8,     /* there is a shadow set: call
                                 * weir_table_shadow() for this request */
    WEIR_OUTCOME_EXACT = 16,     /* a quota of the chain is exact: nothing was
                                 * charged; call weir_table_begin() */
    WEIR_OUTCOME_NEXT = 32,      /* units came free at a slot with waiters: set
                                 * by a leave, and by an enter that gave units
                                 * back */
    WEIR_OUTCOME_CONTENDED = 64, /* the lock of a bucket state is taken, and
                                  * ask->when_locked is RETURN: nothing was
                                  * charged; wait and ask again */
    WEIR_OUTCOME_WAKE = 128,     /* a lock was released for which others wait:
                                  * wake the threads that sleep on
                                  * weir_table_released(); may be set with any
                                  * of the above */
    WEIR_OUTCOME_OVERDUE = 256, /* with CONTENDED: another caller has waited for
                                 * that lock in vain; don't wait */
};

unsigned weir_table_take(struct weir_table *table, uint32_t stripe,
                         struct weir_ref ref, uint64_t weight,
                         struct weir_reply *reply, weir_instant now);
/* No verdict: nothing was charged. */
#define WEIR_OUTCOME_UNDECIDED \
    (WEIR_OUTCOME_STALE_REF | WEIR_OUTCOME_EXACT | WEIR_OUTCOME_CONTENDED)

/* Any request: the take with each of its cases, and the calls that have no
 * faster way. A take, peek or reservation is decided; a charge or refund moves
 * as many units as each link can take, whatever its fill. 'ask' has a weight of
 * at most WEIR_WEIGHT_MAX; 'reply' may be NULL, and alone tells the wait of a
 * reservation. */
unsigned weir_table_ask(struct weir_table *table, uint32_t stripe,
                        struct weir_ref ref,
                        const struct weir_algorithm_ask *ask,
                        struct weir_reply *reply, weir_instant now);
static inline uint64_t weir_weight_clipped(uint64_t weight)
{
    return weight < WEIR_WEIGHT_MAX ? weight : WEIR_WEIGHT_MAX;
}
/* A wait plus up to a quarter at random, so that callers that were refused
 * together don't retry together. */
weir_duration weir_table_jitter(struct weir_table *table, uint32_t stripe,
                                weir_duration wait);

/* ---- Slots, any thread ---- */

enum weir_slot_state {
    WEIR_SLOT_FREE = 0,
    WEIR_SLOT_MAKING,      /* being written by its maker */
    WEIR_SLOT_PLACEHOLDER, /* a name without a quota that is referred to */
    WEIR_SLOT_QUOTA,
    WEIR_SLOT_TEMPLATE,
    WEIR_SLOT_INSTANCE,
};

/* Quotas that found no room, so that a name without a quota may be one of them;
 * 0: the table has all. The sync sets it. */
uint32_t weir_table_lacking(const struct weir_table *table);

/* Whether requests of the process pass if the quota of a parent may be one of
 * these; the rest of their chain decides then. Else such a request is
 * WEIR_OUTCOME_STALE_REF. */
void weir_table_set_on_full(struct weir_table *table, uint32_t process,
                            bool passes);

/* The number of slots ever used; those beyond were never touched. */
uint32_t weir_table_used(const struct weir_table *table);
/* Slots that aren't free. */
uint32_t weir_table_live(const struct weir_table *table);
/* Name of a live slot, written to 'buf' (WEIR_NAME_MAX + 1 bytes,
 * NUL-terminated). Returns its length, 0 for a slot that isn't live. */
size_t weir_table_name(const struct weir_table *table, uint32_t slot,
                       char *buf);

/* Whether 'above' is an ancestor of a live slot. An edit at the same time may
 * hide it. Both are used slots. Any thread, lock-free. */
bool weir_table_is_below(const struct weir_table *table, uint32_t slot,
                         uint32_t above);

/* ---- The shadow set, any thread ----
 * A request that was made of the live set is made once more of the shadow set:
 * of the quota that "shadow:" and the same name lead to there, exactly or by a
 * template; without one it passes. It is decided as enforced, counted there as
 * passed or refused, and not reported to the caller: no call above answers
 * differently for it.
 *
 * A take or reserve is repeated there whether the live set passed or refused
 * it, so that a larger limit is seen to pass more. A refund concerns units that
 * passed the live set, but the caller can't say whether they passed the shadow
 * set too. So a refund is applied there with the probability at which that
 * slot's requests lately passed in both sets, all of it or nothing. It is exact
 * if the shadow set refuses nothing that the live set lets through. Otherwise
 * it is right on average, if refunded requests are like the others. Units that
 * only the shadow set passed are never refunded: that work was never done. */

/* By the live set's slot, which remembers its shadow slot; 'limited': the live
 * set refused the request. Takes the writer lock the first time, and after
 * edits of the shadow set. Returns 0 or WEIR_OUTCOME_KICK. */
unsigned weir_table_shadow(struct weir_table *table, uint32_t stripe,
                           struct weir_ref ref,
                           const struct weir_algorithm_ask *ask, bool limited,
                           weir_instant now);
/* By name, for names without an own slot in the live set; takes only.
 * Slower. */
unsigned weir_table_shadow_name(struct weir_table *table, uint32_t stripe,
                                struct weir_text name,
                                const struct weir_algorithm_ask *ask,
                                weir_instant now);

/* Counts a request by a name without a quota, or by an instance that found no
 * room. */
void weir_table_count_unknown(struct weir_table *table, uint32_t stripe);
void weir_table_count_overflow(struct weir_table *table, uint32_t stripe);
/* Counts a request that no slot was found for because the writer lock was
 * taken. */
void weir_table_count_contended(struct weir_table *table, uint32_t stripe);

/* Whether the slot is still in that life. */
bool weir_table_ref_lives(const struct weir_table *table, struct weir_ref ref);

#endif /* WEIR_TABLE_H */
