/* SPDX-License-Identifier: MIT
 * core/table/table.h - the limiter's table: every quota and instance that a
 * process knows, and the decisions on them. Pure; lives in one block that the
 * caller provides; slots are addressed by index only.
 *
 * Threads:
 *   - any thread: weir_table_take() and the calls like it, weir_table_find(),
 *     weir_table_resolve(), weir_table_pin(), _unpin().
 *   - one thread at a time, the "sync": everything from weir_table_put() on.
 *
 * Progress: decisions and weir_table_find() are lock-free, unless a quota of
 * the chain has a bucket state of several words ("meter"): the lock of each
 * such state is then held for one step of its arithmetic. Functions that make
 * or edit slots take the writer lock (table_layout.h). */

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
struct weir_concurrency_gate_view; /* concurrency/concurrency_gate.h */

struct weir_table_options {
    uint32_t slots;     /* 1 .. WEIR_SLOTS_MAX */
    uint32_t stripes;   /* 1 .. WEIR_STRIPES_MAX, with the shared one; at
                           * least 'processes' */
    uint32_t processes; /* number that share the table (table_share.c), up to
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

/* The result of weir_table_resolve(). */
enum weir_resolved {
    WEIR_RESOLVED,       /* its own slot */
    WEIR_RESOLVED_FULL,  /* no room: 'out' is the template's overflow quota */
    WEIR_RESOLVED_CHAIN, /* no room: 'out' is the rest of its chain */
    WEIR_RESOLVED_NONE,  /* no quota rules the name: 'out' is untouched */
};
/* Finds the slot of a name, or makes an instance of the first template that
 * matches. With 'keep', a name without a quota gets a placeholder, so that a
 * handle finds a quota created later. Takes the writer lock unless the name is
 * present. */
enum weir_resolved weir_table_resolve(struct weir_table *table,
                                      struct weir_text name, bool keep,
                                      struct weir_ref *out, weir_instant now);
/* Resolves the name and protects the slot from eviction until unpinned. The
 * slot, its chain and, if there is a shadow set, its shadow slot are reported,
 * so that the roots send their fills before the first request. */
enum weir_resolved weir_table_pin(struct weir_table *table,
                                  struct weir_text name, struct weir_ref *out,
                                  weir_instant now);
void weir_table_unpin(struct weir_table *table, struct weir_ref ref);

/* ---- A table that processes share (table_share.c) ----
 * Processes have numbers below options.processes; 0 is the sync, in any
 * process. In a process's own table everything belongs to number 0. The caller
 * ensures that no two live processes have the same number. */
enum weir_resolved weir_table_resolve_as(struct weir_table *table,
                                         uint32_t process,
                                         struct weir_text name, bool keep,
                                         struct weir_ref *out,
                                         weir_instant now);
/* Pins of a shared table with so many slots. A pinned slot counts once for each
 * process that pins it. */
#define WEIR_TABLE_PINS(SLOTS) (2 * (SLOTS) + 1024)
/* WEIR_RESOLVED_FULL with a slot of that name: there was no room to record the
 * pin, so the slot isn't pinned. */
enum weir_resolved weir_table_pin_as(struct weir_table *table, uint32_t process,
                                     struct weir_text name,
                                     struct weir_ref *out, weir_instant now);
void weir_table_unpin_as(struct weir_table *table, uint32_t process,
                         struct weir_ref ref);
/* The process 'child', a fork of 'parent', gets a pin on each slot that
 * 'parent' has pinned now. */
void weir_table_inherit_pins(struct weir_table *table, uint32_t parent,
                             uint32_t child);
/* The process has died, at any point of its code: 'by' breaks its locks and
 * repairs the data that they guard. Takes continue meanwhile. Call it for all
 * dead processes before weir_table_reap() for any; several processes may do so
 * at once. */
void weir_table_reap_locks(struct weir_table *table, uint32_t process,
                           uint32_t by);
/* Gives back the stripes, pins and permits of a dead process. One caller at a
 * time. May be repeated if the caller is killed during it, and must be repeated
 * if it returns false: the writer lock was taken for long, perhaps by another
 * dead process. */
bool weir_table_reap(struct weir_table *table, uint32_t process, uint32_t by);
/* Marks every slot that has an unsettled count or units in flight, or ('all')
 * that was ever used: the process that would have reported it is gone. */
void weir_table_mark_unsettled(struct weir_table *table, bool all);
/* The options that a table was made with; only for a sound block. */
void weir_table_shape(const struct weir_table *table,
                      struct weir_table_options *out);

/* A decision's outcome: bits. A value below WEIR_OUTCOME_STALE_REF is a
 * complete verdict. */
enum weir_outcome {
    WEIR_OUTCOME_LIMITED = 1,   /* else passed */
    WEIR_OUTCOME_KICK = 2,      /* the sync has to report at once; an enter may
                               * set it with STALE_REF and EXACT too */
    WEIR_OUTCOME_STALE_REF = 4, /* the slot's life is over: resolve again;
                                 * nothing was charged */
    WEIR_OUTCOME_SHADOW = 8,    /* there is a shadow set: call
                                 * weir_table_shadow() for this request */
    WEIR_OUTCOME_EXACT = 16,    /* a quota of the chain is exact: nothing was
                                 * charged; call weir_table_begin() */
    WEIR_OUTCOME_NEXT = 32,     /* units came free at a slot with waiters: set
                                 * by a leave, and by an enter that gave units
                                 * back */
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

/* ---- Units in flight, any thread ----
 * Quotas of kind concurrency count units in flight, from an enter to its leave.
 * No call above puts units in flight: it is decided as if its request were over
 * at once. A charge or refund skips such a quota. */

/* The permit record of an enter: everything needed to give the permit back. All
 * zero: none. */
struct weir_permit_record {
    uint64_t weight;
    weir_instant entered; /* if 'gate_slot' */
    uint16_t links;
    uint16_t process; /* the owner, in a table that processes share */
    uint32_t klass;   /* set by the caller of an enter: weir_class_number(), or
                       * 0 */
    uint32_t slot[WEIR_DEPTH_MAX];
    /* The concurrency gate that let it in too (table_gate.c). */
    uint32_t gate_slot; /* gate slot + 1; 0: none */
    uint32_t serial;    /* of the gate slot */
    uint32_t in_flight : 24, place : 7, counted : 1;
    uint16_t life, class_life;
};
/* As a take, and puts the weight in flight at the chain's quotas of kind
 * concurrency, all or none, for the class that 'out_hold' names on entry (the
 * class stays). Enters never raise the units in flight, with those of other
 * processes, above such a quota's limit. With WEIR_OUTCOME_EXACT nothing is put
 * in flight. */
unsigned weir_table_enter(struct weir_table *table, uint32_t stripe,
                          struct weir_ref ref, uint64_t weight,
                          struct weir_permit_record *out_hold,
                          struct weir_reply *reply, weir_instant now);
/* Gives the permit back, once, whether or not the quotas still exist; units
 * charged to other quotas of the chain stay. 'hold' is empty then. It never
 * takes more than is in flight: leaving a copy of a permit can't make the
 * counter negative. Returns WEIR_OUTCOME_KICK, _NEXT, both or 0. Lock-free: a
 * loop repeats only when another thread made progress. */
unsigned weir_table_leave(struct weir_table *table,
                          struct weir_permit_record *record);
/* The same, with the outcome from which an adaptive quota learns. */
unsigned weir_table_leave_as(struct weir_table *table,
                             struct weir_permit_record *record,
                             enum weir_permit_outcome outcome,
                             weir_instant now);
/* Callers that wait to enter. The table doesn't store the waiters, but it knows
 * at which slots they wait, so that no caller overtakes them. A caller that
 * doesn't wait finds a slot shut if a caller of the same lane waits there
 * (algorithm/wait_queue.h; each class of an adaptive quota has a lane). If only
 * other lanes wait, it is let in only within the guaranteed part of its
 * class. */
enum weir_turn_kind {
    WEIR_TURN_PASSING = 1, /* doesn't wait yet: as a plain enter */
    WEIR_TURN_ALONE,       /* waits, but in no queue: as a plain enter */
    WEIR_TURN_SURE,        /* waits behind another lane */
    WEIR_TURN_FIRST,       /* is next where it waits; at slots in 'shut' as
                            * PASSING */
};
struct weir_turn {
    enum weir_turn_kind kind;
    uint32_t stripe;
    uint32_t shut_count;
    uint32_t shut[WEIR_DEPTH_MAX]; /* slots where others are before it */
    uint32_t refuser; /* out, if refused: the refusing slot, of kind
                       * concurrency; WEIR_SLOT_NONE: none */
    uint32_t lane;    /* out: the caller's lane there */
    uint32_t other;   /* out: the refusing slot of another kind */
};
/* weir_table_enter() for a caller that waits, or will wait if this is refused.
 * A refusal isn't counted, except by a leased quota with WEIR_TURN_ALONE: the
 * lease manager must learn the wants. */
unsigned weir_table_enter_turn(struct weir_table *table, struct weir_ref ref,
                               uint64_t weight,
                               struct weir_permit_record *out_hold,
                               struct weir_turn *turn, struct weir_reply *reply,
                               weir_instant now);
/* Sets the lanes of the slot in which callers wait, and how many units they
 * want. Call it before the waiter tries to enter, so that no leave is missed.
 * One thread at a time per slot. */
void weir_table_set_line(struct weir_table *table, uint32_t slot,
                         uint32_t lanes, uint64_t units);
/* Whether a caller waits there. */
bool weir_table_is_awaited(const struct weir_table *table, uint32_t slot);
/* The order of the slot's wait queue and its maximum length, from its quota. */
void weir_table_queue(const struct weir_table *table, uint32_t slot,
                      enum weir_wait_queue_order *out_order, uint32_t *out_max);
/* The instant at which to check a slot with waiters again even without a leave;
 * WEIR_NEVER: a leave or the sync wakes them. */
weir_instant weir_table_line_due(const struct weir_table *table, uint32_t slot,
                                 weir_instant now);
/* The slots of the chain that count units in flight, at most WEIR_DEPTH_MAX.
 * Returns their number; 0 too if the slot's life is over. */
uint32_t weir_table_inflights(const struct weir_table *table,
                              struct weir_ref ref, uint32_t *out_slots);
/* Whether a slot is in the chain; it may have changed since. */
bool weir_table_has_link(const struct weir_table *table, struct weir_ref ref,
                         uint32_t slot);

/* Units in flight by the slot's name. */
uint64_t weir_table_in_flight(const struct weir_table *table, uint32_t slot);
/* This process is a fork: the units in flight are the parent's. No thread may
 * enter or leave meanwhile. */
void weir_table_forget_permits(struct weir_table *table);

/* ---- Adaptive quotas ---- */

/* Any thread: the state of the slot's limit; false: it isn't adaptive, or has
 * no gate slot. */
bool weir_table_adaptive(struct weir_table *table, uint32_t slot,
                         struct weir_concurrency_gate_view *out,
                         weir_instant now);
/* The next slot of a quota or instance that has a gate slot; 'cursor' begins at
 * 0. */
bool weir_table_adaptive_next(const struct weir_table *table, uint32_t *cursor,
                              uint32_t *out_slot);
/* Slots that have a gate slot, templates included; and those that wait for
 * one. */
uint32_t weir_table_adaptives(const struct weir_table *table,
                              uint32_t *out_wanting);
/* The sync: sets the number of processes (0 as 1) by which the fleet's bounds
 * are divided. */
void weir_table_set_fleet(struct weir_table *table, uint32_t processes,
                          weir_instant now);
/* The sync, from time to time: closes windows that have ended without requests.
 * Cheap if there is no adaptive quota. */
void weir_table_tick(struct weir_table *table, weir_instant now);

/* ---- Exact quotas, any thread ----
 * A quota that is counted in a store can't be decided here alone. A call above
 * that finds such a link returns WEIR_OUTCOME_EXACT and has charged nothing.
 * Its caller continues with:
 *
 *     weir_table_begin()   everything but those links, as the call would have
 *     weir_table_away()    the request to each store, from the leaf up
 *     weir_table_undo()    one of them refused: gives back exactly the units
 *                          that begin charged, if the quotas still live */
struct weir_charge_record {
    struct weir_ref ref;
    struct weir_algorithm_ask ask;
    uint32_t stripe;
    uint32_t links;
    uint32_t away;    /* bits: links that a store decides */
    uint32_t quiet;   /* bits: of those, the ones in mode shadow */
    uint32_t charged; /* bits: links with a charged count */
    uint32_t stepped; /* bits: links with a charged bucket state */
    uint32_t slot[WEIR_DEPTH_MAX];
    uint32_t generation[WEIR_DEPTH_MAX];
    uint32_t serial[WEIR_DEPTH_MAX]; /* of the bucket states */
    uint8_t paid[WEIR_DEPTH_MAX];    /* the level of each that paid */
    /* borrowed; an enter's permit record; NULL: not an enter. Set by the
     * caller */
    struct weir_permit_record *record;
};
/* 'ask' is the call that it stands for; an enter is a take with a 'hold'.
 * 'reply' may be NULL, except for a reserve. The rest of the charge record is
 * written if the outcome is a verdict. */
unsigned weir_table_begin(struct weir_table *table, uint32_t stripe,
                          struct weir_ref ref,
                          const struct weir_algorithm_ask *ask,
                          struct weir_charge_record *charge_record,
                          struct weir_reply *reply, weir_instant now);
void weir_table_undo(struct weir_table *table,
                     const struct weir_charge_record *charge_record,
                     weir_instant now);

/* The request to a store for a link. */
struct weir_away {
    struct weir_algorithm_rule rule;
    weir_duration deadline;
    enum weir_on_stale on_stale;
    uint16_t store_len;
    uint8_t name_len;
    char store[WEIR_STORE_MAX + 1];
    char name[WEIR_NAME_MAX + 1];
};
/* False: the quota no longer exists, or isn't exact. */
bool weir_table_away(struct weir_table *table,
                     const struct weir_charge_record *charge_record,
                     uint32_t link, struct weir_away *out);
/* The same for a slot in a permit record. */
bool weir_table_away_record(struct weir_table *table, uint32_t stripe,
                            uint32_t slot, struct weir_away *out);
/* The sync: the store of a quota or template, NUL-terminated; false: it isn't
 * exact. */
bool weir_table_store_of(const struct weir_table *table, uint32_t slot,
                         char out[WEIR_STORE_MAX + 1]);
/* Decides in place of the store, for a quota with on_stale=share: 'limiters'
 * processes do so, each with its part of the limit. False as above. */
bool weir_table_step_shared(struct weir_table *table,
                            const struct weir_charge_record *charge_record,
                            uint32_t link, uint32_t limiters,
                            const struct weir_algorithm_ask *ask,
                            struct weir_algorithm_answer *out,
                            weir_instant now);
/* A store refused: counts the refusal for the requested quota and for the link.
 * The count of a link in mode shadow is given back, and no undo gives it back
 * again. */
void weir_table_count_refused(struct weir_table *table, uint32_t stripe,
                              struct weir_charge_record *charge_record,
                              uint32_t link);
/* Divides the rule by 'limiters' (> 0); at least one unit of each quantity and
 * burst stays. */
void weir_algorithm_rule_share(struct weir_algorithm_rule *rule,
                               uint32_t limiters);
/* A wait plus up to a quarter at random, so that callers that were refused
 * together don't retry together. */
weir_duration weir_table_jitter(struct weir_table *table, uint32_t stripe,
                                weir_duration wait);

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
enum weir_act_kind {
    WEIR_ACT_TAKE,
    WEIR_ACT_RESERVE,
    WEIR_ACT_CHARGE,
    WEIR_ACT_REFUND,
};
struct weir_act {
    enum weir_act_kind kind;
    bool limited; /* the live set refused it */
    uint64_t weight;
    weir_duration wait_max; /* of a reserve */
};
/* By the live set's slot, which remembers its shadow slot. Takes the writer
 * lock the first time, and after edits of the shadow set. Returns 0 or
 * WEIR_OUTCOME_KICK. */
unsigned weir_table_shadow(struct weir_table *table, uint32_t stripe,
                           struct weir_ref ref, const struct weir_act *act,
                           weir_instant now);
/* By name, for names without an own slot in the live set; takes only.
 * Slower. */
unsigned weir_table_shadow_name(struct weir_table *table, uint32_t stripe,
                                struct weir_text name, uint64_t weight,
                                weir_instant now);

/* Counts a request by a name without a quota, or by an instance that found no
 * room. */
void weir_table_count_unknown(struct weir_table *table, uint32_t stripe);
void weir_table_count_overflow(struct weir_table *table, uint32_t stripe);

/* Whether the slot is still in that life. */
bool weir_table_ref_lives(const struct weir_table *table, struct weir_ref ref);

/* The number of bucket state rules made so far: when it has changed, quotas may
 * name other zones and stores. 0: none ever; otherwise no thread may be
 * deciding while the lock is broken. */
uint32_t weir_table_metered(const struct weir_table *table);
/* This process is a fork: if the writer lock is taken, its holder is in another
 * process. Then reads every slot and frees those that were being made; at worst
 * a chunk of a name is lost, and a slot that was just being pinned stays in
 * use. A bucket state in which another thread was making a step starts anew.
 * Takes continue meanwhile, unless the table is metered; no thread of this
 * process may hold the lock. */
void weir_table_break_lock(struct weir_table *table);

/* ---- The sync: quotas ---- */

/* Defines or edits a quota or template. A name in use keeps its slot, its count
 * and its fill in units; an edited template's instances are edited too. Parents
 * and overflow quotas not defined yet get placeholders. WEIR_EFULL: no room,
 * the table is as before. */
int weir_table_put(struct weir_table *table, const struct weir_quota *quota,
                   weir_instant now);
/* Removes a quota. Its slot is freed; if it is still referred to, it becomes a
 * template's instance or a placeholder. Unknown names are ignored. */
void weir_table_drop(struct weir_table *table, struct weir_text name,
                     weir_instant now);
/* Begin and end a whole set: quotas that weren't put in between are dropped. */
void weir_table_begin_full(struct weir_table *table);
void weir_table_end_full(struct weir_table *table, weir_instant now);

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

enum weir_slot_state {
    WEIR_SLOT_FREE = 0,
    WEIR_SLOT_MAKING,      /* being written by its maker */
    WEIR_SLOT_PLACEHOLDER, /* a name without a quota that is referred to */
    WEIR_SLOT_QUOTA,
    WEIR_SLOT_TEMPLATE,
    WEIR_SLOT_INSTANCE,
};

/* A slot as the sync reads it. */
struct weir_slot_view {
    enum weir_slot_state state;
    enum weir_sharing sharing;
    enum weir_on_stale on_stale;
    uint32_t generation;
    uint64_t created; /* of the quota, or of the instance's template */
    uint64_t count;   /* units this table let through, modulo 2^64; kind
                       * concurrency: in flight now */
    uint64_t refused; /* units */
    int64_t fill;     /* scaled by 2^frac, not below 0 */
    uint64_t in;      /* (count << frac) + base: the bucket's 'in' sum */
    struct weir_bucket bucket;
    bool unlimited;
    uint32_t refs; /* children and pins */
    bool inflight; /* of kind concurrency */
};
void weir_table_view(struct weir_table *table, uint32_t slot,
                     struct weir_slot_view *out, weir_instant now);

/* ---- The sync: counts ---- */

/* Slots that changed since the last call: sets their bits in 'bits'
 * (weir_table_bits_words() words, one bit per slot) and clears the table's. The
 * next take of each slot marks it again. */
size_t weir_table_bits_words(const struct weir_table *table);
void weir_table_collect(struct weir_table *table, uint64_t *bits);
/* A slot's totals over all of its lives. The count of kind concurrency is the
 * units in flight now, so it jumps when the kind changes. 'refused' may be too
 * low for an instant, while a thread moves units from one place to another:
 * keep the largest value read. */
uint64_t weir_table_count(const struct weir_table *table, uint32_t slot);
uint64_t weir_table_refused(const struct weir_table *table, uint32_t slot);
/* Reads and clears the request for an early report: true once after a slot went
 * over its report_at. weir_table_is_urgent() doesn't clear it. */
bool weir_table_urgent(struct weir_table *table);
bool weir_table_is_urgent(const struct weir_table *table);
/* Whether a report of all changes is scheduled anyway: a slot without a stop
 * then doesn't request one. Set it to false before weir_table_collect() is
 * called for that report. One thread at a time. */
void weir_table_set_reporting(struct weir_table *table, bool reporting);

/* From now on the slot requests an early report at count 'report_at' and
 * refuses at count 'stop' (both absolute; WEIR_COUNT_FAR beyond 'count' is
 * "never"). */
#define WEIR_COUNT_FAR ((uint64_t)1 << 60)
void weir_table_set_slack(struct weir_table *table, uint32_t slot,
                          uint64_t report_at, uint64_t stop);
/* Only its bucket refuses at a slot now, and its next use is reported at once:
 * for when no root that sent the stops is left. */
void weir_table_lift_stops(struct weir_table *table);
/* Sets the bucket to fill 'fill' (scaled) when the count was 'count', at the
 * instant 'at'. Of kind concurrency: other processes have 'fill' minus 'count'
 * units in flight. */
void weir_table_set_fill(struct weir_table *table, uint32_t slot, int64_t fill,
                         uint64_t count, weir_instant at);
/* The probability, 0 to 1, with which the bucket alone refuses a request
 * now. */
float weir_table_refusal(struct weir_table *table, uint32_t slot,
                         weir_instant now);
/* The probability with which on_stale=hold refuses when all roots are silent.
 * Ignored while the table is stale, or held. */
void weir_table_set_hold(struct weir_table *table, uint32_t slot,
                         float refusal);
/* Adds 'scaled' to the fill, as if another limiter had taken it. */
void weir_table_add_others(struct weir_table *table, uint32_t slot,
                           int64_t scaled);
/* Adds units that other limiters let through (below 0: fewer than reported
 * before) and refused, to this slot alone: the caller counts the chain. Marks
 * the slot and requests an early report, as a take does. False: the slot's life
 * is over, nothing was added. */
bool weir_table_carry(struct weir_table *table, struct weir_ref ref,
                      int64_t units, uint64_t refused, weir_instant now);
/* The same for units in flight at other limiters: 'units' in total now. This
 * table must have no own permits there. The units stay with the name until the
 * caller sets 0 or calls weir_table_uncarry_in_flight(). */
bool weir_table_carry_in_flight(struct weir_table *table, struct weir_ref ref,
                                uint64_t units, uint64_t refused);
/* No limiter has units in flight there any more; also if the slot's life is
 * over. */
void weir_table_uncarry_in_flight(struct weir_table *table, uint32_t slot);
/* Every root has acknowledged the slot's count up to 'count': an instance may
 * be evicted only when that is the whole count. A new life begins settled. */
void weir_table_set_settled(struct weir_table *table, uint32_t slot,
                            uint64_t count);
uint64_t weir_table_settled(const struct weir_table *table, uint32_t slot);

/* No root for stale_after: counted slots follow their on_stale (pass, limit,
 * hold here; share by weir_table_add_others()) until 'stale' is false again.
 * Local quotas aren't affected. */
void weir_table_set_stale(struct weir_table *table, bool stale,
                          weir_instant now);
bool weir_table_is_stale(const struct weir_table *table);
/* While 'held', fills don't change the probability that on_stale=hold uses:
 * they come from a peer that has no contact with the roots either. */
void weir_table_pause_hold(struct weir_table *table, bool paused);
bool weir_table_hold_is_paused(const struct weir_table *table);

/* 'offset' + 'now' is nanoseconds since 1970 in UTC, which decides where
 * windows begin. If it isn't set, they follow the clock of 'now'. Set it before
 * there are quotas, and again from time to time: calendars follow it. */
void weir_table_set_wall(struct weir_table *table, uint64_t offset);
/* Calls 'offset_of' for each zone that a quota names: its present offset from
 * UTC, in seconds east. Call it after quotas were added, and when zones
 * change. */
typedef int32_t weir_zone_offset_fn(void *context, struct weir_text zone);
void weir_table_set_zones(struct weir_table *table,
                          weir_zone_offset_fn *offset_of, void *context);

/* ---- The sync: leases (table_lease.c) ---- */

/* The state of a slot's lease in this process. */
enum weir_leasing {
    WEIR_LEASING_NONE = 0, /* it isn't leased, or is of the shadow set, which
                            * uses the whole quota */
    WEIR_LEASING_CLOSED,   /* nothing was granted: nothing passes */
    WEIR_LEASING_KEPT,     /* nothing granted yet, but counted until now: it
                            * uses the fleet's last known fill */
    WEIR_LEASING_GRANTED,  /* it keeps to its grant */
    WEIR_LEASING_PARTING,  /* still, though the quota is counted now, until
                            * weir_table_end_lease() */
};
/* From now on a leased slot keeps to 'granted' units a second (>= 0; 0: nothing
 * passes; INFINITY: everything), with the same part of the quota's bursts, at
 * least one unit. Its fill in units stays; a KEPT slot's fill becomes the same
 * part of the fleet's. A slot of kind concurrency keeps to that many whole
 * units at a time: units in flight after this call were let in under this
 * grant, or before. Other slots aren't changed. */
void weir_table_set_lease(struct weir_table *table, uint32_t slot,
                          double granted, weir_instant now);
/* Ends the grant: the slot is closed, or, if it was PARTING, as its quota
 * says. */
void weir_table_end_lease(struct weir_table *table, uint32_t slot,
                          weir_instant now);
/* Any thread, wait-free. */
enum weir_leasing weir_table_leasing(const struct weir_table *table,
                                     uint32_t slot);
struct weir_lease_view {
    enum weir_leasing leasing; /* NONE: the others are 0 */
    double granted;            /* held, parting: units a second, or at a time */
    double limit;              /* of the whole quota; INFINITY: none */
    int64_t priority;          /* of its wants, as the quota says */
    bool inflight;             /* of kind concurrency: */
    uint64_t in_flight;        /* units in flight */
    uint64_t awaited;          /* units that waiting callers want */
    uint64_t entered;          /* units ever let in while it was leased */
};
/* Any thread: sets how many units a second of the slot will be wanted (0 ..
 * WEIR_LEASE_UNITS_MAX), and marks it. Allowed for any sharing: the quota may
 * become leased. Dropped with the slot's last pin or child. Returns 0 or bits
 * of enum weir_outcome: _KICK, _STALE_REF. */
unsigned weir_table_want(struct weir_table *table, struct weir_ref ref,
                         double wants);
/* The last value set so; false: none. */
bool weir_table_wanted(struct weir_table *table, uint32_t slot,
                       double *out_wants);
/* Whether the last pin or child of a leased slot has gone since the previous
 * call; it may have others by now. Call it before weir_table_view() and before
 * reading the slot's totals: these then include all use until then. */
bool weir_table_was_unpinned(struct weir_table *table, uint32_t slot);
/* Marks the slot as if it had been used: the next collect finds it. */
void weir_table_mark(struct weir_table *table, uint32_t slot);
void weir_table_lease_view(struct weir_table *table, uint32_t slot,
                           struct weir_lease_view *out);

/* Whether fewer than 1/8 of the slots are free: the sweep should hurry. */
bool weir_table_is_crowded(const struct weir_table *table);
/* The clock hand, called some times a second: visits up to 'count' slots and
 * lifts buckets that were empty (so that no difference of sums ever overflows).
 * While the table is crowded, it also frees instances that are empty, settled,
 * unpinned and without children. Returns the number of slots freed. */
uint32_t weir_table_sweep(struct weir_table *table, uint32_t count,
                          weir_instant now);

/* Requests by names without a quota, and by instances that found no room. */
uint64_t weir_table_unknown(const struct weir_table *table);
uint64_t weir_table_overflowed(const struct weir_table *table);

/* The limit of that name's quota here. False: there is none, or it lets all
 * pass. Any thread; as weir_policy(). */
bool weir_table_policy(struct weir_table *table, uint32_t stripe,
                       struct weir_text name, struct weir_policy *out);
/* The template of an instance: its slot, or WEIR_SLOT_NONE. */
uint32_t weir_table_template_of(const struct weir_table *table, uint32_t slot);

/* ---- Views for people, any thread (table_details.c) ---- */

/* A slot's parameters and state in this process. */
struct weir_slot_details {
    enum weir_slot_state state; /* PLACEHOLDER or above */
    enum weir_sharing sharing;
    enum weir_mode mode;
    uint32_t generation;    /* of this life of the slot */
    uint32_t ruler_slot;    /* an instance's template; WEIR_SLOT_NONE: none, or
                             * no instance */
    bool inflight;          /* of kind concurrency */
    bool elsewhere;         /* fill, low and high don't decide, and are 0: a
                             * bucket state, a store or an adaptive limit
                             * does */
    double limit;           /* units a second, or at a time, of the whole quota;
                          * INFINITY: none; 0 where 'elsewhere' */
    double granted;         /* the part that this process may use: less than the
                             * limit if it is leased */
    double fill, low, high; /* units; high INFINITY: no limit */
    uint64_t count;         /* units let through in all lives; kind concurrency:
                             * 0 */
    uint64_t refused;       /* units, in all lives */
    size_t name_len, parent_len, ruler_len; /* of the texts below,
                                             * NUL-terminated; 0: none */
    char name[WEIR_NAME_MAX + 1];
    char parent[WEIR_NAME_MAX + 1]; /* of a template: the parent's pattern */
    char ruler[WEIR_NAME_MAX + 1];  /* of an instance: its template, if any */
};
/* False: the slot isn't live, or belongs to the shadow set. Takes the writer
 * lock, as that process, for the time of a copy. */
bool weir_table_details(struct weir_table *table, uint32_t process,
                        uint32_t slot, struct weir_slot_details *out,
                        weir_instant now);

#endif /* WEIR_TABLE_H */
