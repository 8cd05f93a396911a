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
 * Progress: decisions and weir_table_find() are lock-free, but where a quota
 * of the chain has a meter: then each meter's lock is held for one step of its
 * arithmetic. What makes or edits slots takes the writer lock
 * (table_layout.h). */

#ifndef WEIR_TABLE_H
#define WEIR_TABLE_H

#include "algo/leaky.h"
#include "base/rng.h"
#include "quota/quota.h"

#define WEIR_SLOT_NONE UINT32_MAX
#define WEIR_SLOTS_MAX (1u << 24)
#define WEIR_STRIPES_MAX 1024
#define WEIR_TABLE_PROCESSES_MAX 64

struct weir_table;
struct weir_sluice_view; /* adapt/sluice.h */

struct weir_table_options {
    uint32_t slots;       /* 1 .. WEIR_SLOTS_MAX */
    uint32_t stripes;     /* 1 .. WEIR_STRIPES_MAX, the shared one included; not
                         * fewer than 'processes' */
    uint32_t processes;   /* that share it (table_share.c); 0 and 1: it is one
                         * process's; up to WEIR_TABLE_PROCESSES_MAX */
    uint64_t seed;        /* of hashing and of chance */
    uint64_t meter_bytes; /* room for rules and states of algorithms that
                         * aren't one word: 64 .. WEIR_METER_BYTES_MAX; 0:
                         * 64 KiB and WEIR_METER_BYTES_A_SLOT for each slot.
                         * Pages that nobody needs are never touched */
    uint32_t basins; /* adaptive quotas, templates and instances that find a
                         * limit of their own; others let all pass. 0 ..
                         * WEIR_BASINS_MAX; pages as above */
};
#define WEIR_BASINS_MAX 4096
#define WEIR_METER_BYTES_A_SLOT 256
#define WEIR_METER_BYTES_MAX (1ull << 37)

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
/* The same in a table that processes share: number 'process' has its threads'
 * stripes and, for those who got none, stripe 'process'. */
uint32_t weir_table_claim_stripe_as(struct weir_table *table, uint32_t process);
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
uint64_t weir_table_hash(const struct weir_table *table, struct weir_text name);
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
                                      struct weir_ref *out, weir_instant now);
/* Resolves and holds the slot against eviction, until unpinned. The slot, its
 * chain and, if there is a shadow set, its twin are reported, so that roots
 * tell of them before they are first asked. */
enum weir_resolved weir_table_pin(struct weir_table *table,
                                  struct weir_text name, struct weir_ref *out,
                                  weir_instant now);
void weir_table_unpin(struct weir_table *table, struct weir_ref ref);

/* ---- A table that processes share (table_share.c) ----
 * Processes have numbers below options.processes; 0 is the sync, whichever
 * process it is in. In a process's own table all is number 0's. The caller
 * sees to it that no two live ones have the same number. */
enum weir_resolved weir_table_resolve_as(struct weir_table *table,
                                         uint32_t process,
                                         struct weir_text name, bool keep,
                                         struct weir_ref *out,
                                         weir_instant now);
/* Slots that are held, each counted once for each process that holds it, of a
 * table of so many; that processes share. */
#define WEIR_TABLE_PINS(SLOTS) (2 * (SLOTS) + 1024)
/* WEIR_RESOLVED_FULL with a slot of that name: there was no room to remember
 * whose it is, so it isn't held. */
enum weir_resolved weir_table_pin_as(struct weir_table *table, uint32_t process,
                                     struct weir_text name,
                                     struct weir_ref *out, weir_instant now);
void weir_table_unpin_as(struct weir_table *table, uint32_t process,
                         struct weir_ref ref);
/* A child of 'parent' holds what that one holds by now. */
void weir_table_inherit_pins(struct weir_table *table, uint32_t parent,
                             uint32_t child);
/* The process has gone, wherever it was: 'by' breaks its locks, and mends what
 * they guard. Takes go on meanwhile. To be called for all that have gone before
 * weir_table_bury() is for any; several may do so at once. */
void weir_table_bury_locks(struct weir_table *table, uint32_t process,
                           uint32_t by);
/* Gives back its stripes, pins and permits. By one at a time. May be repeated,
 * should that one be killed over it; is to be, if it returns false: the
 * writer lock was taken for long, perhaps by one more that has gone. */
bool weir_table_bury(struct weir_table *table, uint32_t process, uint32_t by);
/* Marks every slot whose count isn't settled, or that permits hold, or ('all')
 * that was ever used: who would have told of it is gone. */
void weir_table_mark_unsettled(struct weir_table *table, bool all);
/* Its shape, of a sound block only. */
void weir_table_shape(const struct weir_table *table,
                      struct weir_table_options *out);

/* A decision's outcome: bits. Below WEIR_OUTCOME_STALE_REF it is all that
 * there is to it. */
enum weir_outcome {
    WEIR_OUTCOME_LIMITED = 1, /* else passed */
    WEIR_OUTCOME_KICK = 2,    /* the sync has something to report at once; of an
                               * enter also beside STALE_REF and EXACT */
    WEIR_OUTCOME_STALE_REF = 4, /* the ref's life is over: resolve again;
                                 * nothing was charged */
    WEIR_OUTCOME_SHADOW = 8,    /* there is a shadow set: weir_table_shadow()
                               * wants to know of this request */
    WEIR_OUTCOME_EXACT = 16,    /* a quota of the chain is exact: nothing was
                               * charged, weir_table_begin() is to be asked */
    WEIR_OUTCOME_NEXT = 32,     /* units came free at a slot where somebody
                               * waits: of a leave; of an enter, that gave some
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

/* ---- What is in flight, any thread ----
 * Quotas of kind concurrency count units that are held, from an enter to its
 * leave. No call above holds anything there: it is judged as if it were over
 * at once; a charge or refund passes such a quota by. */

/* What an enter holds: all it takes to give it back. All zero: nothing. */
struct weir_hold {
    uint64_t weight;
    weir_instant entered; /* if 'basin' */
    uint16_t links;
    uint16_t process; /* whose it is, of a table that processes share */
    uint32_t klass;   /* of an enter, the caller's: weir_class_number(), or 0 */
    uint32_t slot[WEIR_DEPTH_MAX];
    /* Which sluice holds it besides, and how (table_sluice.c). */
    uint32_t basin;  /* + 1; 0: none */
    uint32_t serial; /* of the basin */
    uint32_t in_flight : 24, place : 7, counted : 1;
    uint16_t life, class_life;
};
/* As a take, and holds the chain's quotas of kind concurrency, all or none; for
 * the class that 'out_hold' names on entry, which stays. Of those, what is held
 * and what others have is never above the limit by what
 * enters add. With WEIR_OUTCOME_EXACT nothing is held. */
unsigned weir_table_enter(struct weir_table *table, uint32_t stripe,
                          struct weir_ref ref, uint64_t weight,
                          struct weir_hold *out_hold, struct weir_reply *reply,
                          weir_instant now);
/* Gives it back, once, whatever became of the quotas; what was charged to
 * others of the chain stays. 'hold' is empty then. At most what is held is
 * given back, or a copy that is left too would make it less than nothing.
 * Returns WEIR_OUTCOME_KICK, _NEXT, both or 0. Repeats a loop while others get
 * on. */
unsigned weir_table_leave(struct weir_table *table, struct weir_hold *hold);
/* The same of one that went so: what an adaptive quota learns by. */
unsigned weir_table_leave_as(struct weir_table *table, struct weir_hold *hold,
                             enum weir_permit_outcome outcome,
                             weir_instant now);
/* Who waits to enter. The table doesn't keep those who do, but it knows where
 * they are, so that nobody overtakes them: who comes by finds a slot shut if
 * one of his lane waits there (algo/lineup.h; a class of an adaptive quota has
 * a lane), and is let in only by what his class is sure of if others wait. */
enum weir_turn_kind {
    WEIR_TURN_PASSING = 1, /* doesn't wait yet: as any other */
    WEIR_TURN_ALONE,       /* waits, but in no line: as any other */
    WEIR_TURN_SURE,        /* waits behind another lane */
    WEIR_TURN_FIRST,       /* is next where he waits; a passer-by where he is
                            * 'shut' out */
};
struct weir_turn {
    enum weir_turn_kind kind;
    uint32_t stripe;
    uint32_t shut_count;
    uint32_t shut[WEIR_DEPTH_MAX]; /* slots where others come before him */
    uint32_t refuser; /* out, if refused: the slot of kind concurrency that
                       * did; WEIR_SLOT_NONE: none such */
    uint32_t lane;    /* … and his lane there */
    uint32_t other;   /* out, if no such refused: the slot that did */
};
/* weir_table_enter() of who waits or will if this is refused: so a refusal
 * isn't counted as one, but that of a leased quota of who waits alone, which is
 * to hear what is wanted. */
unsigned weir_table_enter_turn(struct weir_table *table, struct weir_ref ref,
                               uint64_t weight, struct weir_hold *out_hold,
                               struct weir_turn *turn, struct weir_reply *reply,
                               weir_instant now);
/* In which lanes of the slot somebody waits from now on, for how many units:
 * to be said before he tries, so that no leave is missed. One thread at a time
 * a slot. */
void weir_table_set_line(struct weir_table *table, uint32_t slot,
                         uint32_t lanes, uint64_t units);
/* Whether somebody waits there. */
bool weir_table_is_awaited(const struct weir_table *table, uint32_t slot);
/* By what order, and how many at most, as the slot's quota says. */
void weir_table_queue(const struct weir_table *table, uint32_t slot,
                      enum weir_lineup_order *out_order, uint32_t *out_max);
/* When to look again at a slot where somebody waits, though nobody leaves;
 * WEIR_NEVER: a leave will tell, or the sync. */
weir_instant weir_table_line_due(const struct weir_table *table, uint32_t slot,
                                 weir_instant now);
/* The slots of the chain that count what is in flight, at most WEIR_DEPTH_MAX.
 * Returns how many; 0 too if the ref's life is over. */
uint32_t weir_table_gauges(const struct weir_table *table, struct weir_ref ref,
                           uint32_t *out_slots);
/* Whether a slot is in the chain; of a moment ago. */
bool weir_table_has_link(const struct weir_table *table, struct weir_ref ref,
                         uint32_t slot);

/* Units held by the slot's name. */
uint64_t weir_table_held(const struct weir_table *table, uint32_t slot);
/* This process is a fork: what is held is the parent's. No thread may enter or
 * leave meanwhile. */
void weir_table_forget_holds(struct weir_table *table);

/* ---- Adaptive quotas ---- */

/* Any thread: how the slot's limit stands, and what it is; false: it isn't
 * adaptive, or found no basin. */
bool weir_table_adaptive(struct weir_table *table, uint32_t slot,
                         struct weir_sluice_view *out, weir_instant now);
/* The next slot of a quota or instance that has a limit of its own; 'cursor'
 * begins at 0. */
bool weir_table_adaptive_next(const struct weir_table *table, uint32_t *cursor,
                              uint32_t *out_slot);
/* Slots that have a limit of their own, templates included; and those that
 * found no basin for one. */
uint32_t weir_table_adaptives(const struct weir_table *table,
                              uint32_t *out_wanting);
/* The sync: there are so many processes, 0 as 1: bounds of the fleet become
 * others. */
void weir_table_set_fleet(struct weir_table *table, uint32_t processes,
                          weir_instant now);
/* The sync, from time to time: closes windows that are over though nobody
 * comes. Cheap where there is no such quota. */
void weir_table_tick(struct weir_table *table, weir_instant now);

/* ---- Exact quotas, any thread ----
 * What is counted in a store can't be decided here alone. A call above that
 * finds such a link answers WEIR_OUTCOME_EXACT and has charged nothing. Its
 * caller goes on thus:
 *
 *     weir_table_begin()   everything but those links, as the call would have
 *     weir_table_away()    what a store is to be asked; from the leaf up
 *     weir_table_undo()    one of them refused: gives back exactly what begin
 *                          has charged, where those quotas still live
 */
struct weir_receipt {
    struct weir_ref ref;
    struct weir_meter_ask ask;
    uint32_t stripe;
    uint32_t links;
    uint32_t away;    /* bits: links that a store decides */
    uint32_t quiet;   /* bits: of those, the ones in mode shadow */
    uint32_t charged; /* bits: links whose count has it */
    uint32_t stepped; /* bits: links whose meter has it */
    uint32_t slot[WEIR_DEPTH_MAX];
    uint32_t generation[WEIR_DEPTH_MAX];
    uint32_t serial[WEIR_DEPTH_MAX]; /* of the meters */
    uint8_t paid[WEIR_DEPTH_MAX];    /* which level of theirs */
    struct weir_hold *hold; /* borrowed; of an enter, where to write what it
                             * holds; NULL: it is none. The caller's */
};
/* 'ask' says which call it stands for, an enter being a take with a 'hold'.
 * 'reply' may be NULL, but of a reserve. The rest of the receipt is written if
 * the outcome is a verdict. */
unsigned weir_table_begin(struct weir_table *table, uint32_t stripe,
                          struct weir_ref ref, const struct weir_meter_ask *ask,
                          struct weir_receipt *receipt,
                          struct weir_reply *reply, weir_instant now);
void weir_table_undo(struct weir_table *table,
                     const struct weir_receipt *receipt, weir_instant now);

/* What a store is asked for a link. */
struct weir_away {
    struct weir_meter_rule rule;
    weir_duration deadline;
    enum weir_on_stale on_stale;
    uint16_t store_len;
    uint8_t name_len;
    char store[WEIR_STORE_MAX + 1];
    char name[WEIR_NAME_MAX + 1];
};
/* False: the quota isn't there any more, or isn't exact. */
bool weir_table_away(struct weir_table *table,
                     const struct weir_receipt *receipt, uint32_t link,
                     struct weir_away *out);
/* The same of a slot that a hold holds. */
bool weir_table_away_held(struct weir_table *table, uint32_t stripe,
                          uint32_t slot, struct weir_away *out);
/* The sync: the store of a quota or template that is exact, NUL-terminated;
 * false: it is none. */
bool weir_table_store_of(const struct weir_table *table, uint32_t slot,
                         char out[WEIR_STORE_MAX + 1]);
/* In place of the store, of a quota with on_stale share: 'limiters' processes
 * do so, each with its part of the limit. False as above. */
bool weir_table_step_shared(struct weir_table *table,
                            const struct weir_receipt *receipt, uint32_t link,
                            uint32_t limiters, const struct weir_meter_ask *ask,
                            struct weir_meter_answer *out, weir_instant now);
/* A store refused: counts that for the quota asked and for the link. A link in
 * mode shadow has its count back then, and no undo gives it back once more. */
void weir_table_count_refused(struct weir_table *table, uint32_t stripe,
                              struct weir_receipt *receipt, uint32_t link);
/* 'limiters' > 0: the rule for one of so many; at least a unit of each
 * quantity and burst stays. */
void weir_meter_rule_share(struct weir_meter_rule *rule, uint32_t limiters);
/* A wait, longer by up to a quarter at random, so that those who were refused
 * together don't come back together. */
weir_duration weir_table_jitter(struct weir_table *table, uint32_t stripe,
                                weir_duration wait);

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
    bool limited; /* the live set refused it */
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

/* Whether that life of the slot goes on. */
bool weir_table_ref_lives(const struct weir_table *table, struct weir_ref ref);

/* How many rules of meters were made so far: another number, other zones and
 * stores may be named. 0: none ever; else nobody may be deciding while the
 * lock is broken. */
uint32_t weir_table_metered(const struct weir_table *table);
/* This process is a fork: whoever held the writer lock is in another one. If
 * somebody did, looks at every slot and frees those that were being made; at
 * worst a chunk of a name is lost, and a slot that was just being held stays
 * in use. A meter whose step another thread was making begins anew. Takes go
 * on meanwhile, unless the table is metered; no thread may hold the lock. */
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

/* Whether 'above' is the parent of a live slot, or one further up. An edit at
 * the same time may hide it. Both are used slots. Any thread, lock-free. */
bool weir_table_is_below(const struct weir_table *table, uint32_t slot,
                         uint32_t above);

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
    uint64_t count;   /* units this table let through, modulo 2^64; of a
                       * gauge, units held now */
    uint64_t refused; /* units */
    int64_t fill;     /* scaled by 2^frac, not below 0 */
    uint64_t in;      /* (count << frac) + base: the bucket's 'in' sum */
    struct weir_bucket bucket;
    bool unlimited;
    uint32_t refs; /* children and pins */
    bool gauge;    /* of kind concurrency */
};
void weir_table_view(struct weir_table *table, uint32_t slot,
                     struct weir_slot_view *out, weir_instant now);

/* ---- The sync: counts ---- */

/* Slots in which something happened since the last call: sets their bits in
 * 'bits' (weir_table_bits_words() words, one bit a slot), clears the
 * table's. From then on the next take of each marks it again. */
size_t weir_table_bits_words(const struct weir_table *table);
void weir_table_collect(struct weir_table *table, uint64_t *bits);
/* The table's totals of a slot, over all of its lives; of a gauge, what is held
 * now, so that it jumps when the kind changes. 'refused' may be short
 * for an instant, while a thread moves it from one place to another: keep the
 * largest seen. */
uint64_t weir_table_count(const struct weir_table *table, uint32_t slot);
uint64_t weir_table_refused(const struct weir_table *table, uint32_t slot);
/* Takes the request for an early report: true once after some slot went
 * over its report_at. weir_table_is_urgent() leaves it. */
bool weir_table_urgent(struct weir_table *table);
bool weir_table_is_urgent(const struct weir_table *table);
/* Whether a report of all that happened until it is made is coming anyway: then
 * a slot that has no stop doesn't ask for one. It is none any more before
 * weir_table_collect() is called for it. One thread at a time. */
void weir_table_set_reporting(struct weir_table *table, bool reporting);

/* From now on: mark the slot urgent at count 'report_at', refuse at count
 * 'stop' (both absolute; WEIR_COUNT_FAR beyond 'count' is "never"). */
#define WEIR_COUNT_FAR ((uint64_t)1 << 60)
void weir_table_set_slack(struct weir_table *table, uint32_t slot,
                          uint64_t report_at, uint64_t stop);
/* Nothing stops a slot but its bucket, and its next use is told at once: for
 * when nobody is there who was told the stops. */
void weir_table_lift_stops(struct weir_table *table);
/* Moves the bucket to: fill 'fill' (scaled) when the count was 'count', at
 * the instant 'at'. Of a gauge: others have what is in it beside 'count'. */
void weir_table_set_fill(struct weir_table *table, uint32_t slot, int64_t fill,
                         uint64_t count, weir_instant at);
/* The probability, 0 to 1, of which the bucket alone refuses a request now. */
float weir_table_refusal(struct weir_table *table, uint32_t slot,
                         weir_instant now);
/* Should all roots fall silent, `hold` refuses with that probability. Nothing
 * happens while the table is stale, or held. */
void weir_table_set_hold(struct weir_table *table, uint32_t slot,
                         float refusal);
/* Adds 'scaled' to the fill, as if another limiter had taken it. */
void weir_table_add_others(struct weir_table *table, uint32_t slot,
                           int64_t scaled);
/* Others let through 'units' (below 0: fewer than was said) and refused
 * 'refused': for the slot alone, its chain is counted by who counts it. Marks
 * it, and asks for an early report, as a take does. False: the ref's life is
 * over, nothing was added. */
bool weir_table_carry(struct weir_table *table, struct weir_ref ref,
                      int64_t units, uint64_t refused, weir_instant now);
/* The same of what is in flight at others: 'units' in all, by now. No permit of
 * this table's own may hold the slot. It stays the name's until it is told 0,
 * or weir_table_uncarry_held(). */
bool weir_table_carry_held(struct weir_table *table, struct weir_ref ref,
                           uint64_t units, uint64_t refused);
/* Nobody has anything in flight there any more, whatever became of the ref. */
void weir_table_uncarry_held(struct weir_table *table, uint32_t slot);
/* Every root has answered for the slot's count up to 'count': an instance may
 * be evicted only when that is all of it. A new life begins settled. */
void weir_table_set_settled(struct weir_table *table, uint32_t slot,
                            uint64_t count);
uint64_t weir_table_settled(const struct weir_table *table, uint32_t slot);

/* No root for stale_after: from now on the counted slots follow their
 * on_stale (pass, limit, hold here; share by weir_table_add_others()), until
 * it is taken back. Local quotas aren't touched. */
void weir_table_set_stale(struct weir_table *table, bool stale,
                          weir_instant now);
bool weir_table_is_stale(const struct weir_table *table);
/* While 'held' fills don't move the probability that `hold` goes on with: they
 * are told by who can't ask either. */
void weir_table_set_held(struct weir_table *table, bool held);
bool weir_table_is_held(const struct weir_table *table);

/* 'offset' is what 'now' lacks to nanoseconds since 1970 in UTC: windows begin
 * by that. Not set, by the clock of 'now'. To be set before there are quotas,
 * and again from time to time: calendars follow it. */
void weir_table_set_wall(struct weir_table *table, uint64_t offset);
/* Asks for each zone that a quota names how far it is east of Greenwich now,
 * in seconds. To be called after quotas came, and when zones change. */
typedef int32_t weir_zone_offset_fn(void *context, struct weir_text zone);
void weir_table_set_zones(struct weir_table *table,
                          weir_zone_offset_fn *offset_of, void *context);

/* ---- The sync: leases (table_lease.c) ---- */

/* How a slot stands to what this process is granted. */
enum weir_leasing {
    WEIR_LEASING_NONE = 0, /* it isn't leased, or of the shadow set, where it
                            * goes by the whole quota */
    WEIR_LEASING_CLOSED,   /* nothing was granted: nothing passes */
    WEIR_LEASING_KEPT,     /* nor here; but it was counted until just now, and
                            * goes on by what it last knew of the fleet */
    WEIR_LEASING_HELD,     /* it keeps to what it was granted */
    WEIR_LEASING_PARTING,  /* so still, though the quota is counted: until
                            * weir_table_end_lease() */
};
/* From now on a slot that is leased keeps to 'granted' units a second (>= 0; 0:
 * nothing passes; INFINITY: everything), with as much of the quota's bursts, at
 * least one unit. Its fill in units stays; from kept on it becomes as much of
 * the fleet's. One of kind concurrency keeps to the whole units of it at a
 * time: what is held after this call was let in by that, or before.
 * Any other slot isn't touched. */
void weir_table_set_lease(struct weir_table *table, uint32_t slot,
                          double granted, weir_instant now);
/* It goes by no grant any more: closed, or if it was parting as its quota
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
    bool gauge;                /* of kind concurrency: */
    uint64_t held;             /* units that permits hold … */
    uint64_t awaited;          /* … and that those want who wait here */
    uint64_t entered;          /* units ever let in while it was leased */
};
/* Any thread: says that so many units a second of the slot will be wanted, and
 * marks it (0 .. WEIR_LEASE_UNITS_MAX). Whatever its sharing is: it may be
 * leased one day. It is forgotten with the slot's last pin or child. Returns 0
 * or bits of enum weir_outcome: _KICK, _STALE_REF. */
unsigned weir_table_want(struct weir_table *table, struct weir_ref ref,
                         double wants);
/* What was said so last; false: nothing. */
bool weir_table_wanted(struct weir_table *table, uint32_t slot,
                       double *out_wants);
/* Whether the last pin or child of a leased slot has gone since this was asked
 * last; by now it may have others. To be asked before weir_table_view() and
 * before the slot's totals: they have all that was used until then. */
bool weir_table_was_unpinned(struct weir_table *table, uint32_t slot);
/* As if it had been used: the next collect finds it. */
void weir_table_mark(struct weir_table *table, uint32_t slot);
void weir_table_lease_view(struct weir_table *table, uint32_t slot,
                           struct weir_lease_view *out);

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

/* What the quota of that name allows here. False: there is none, or it lets
 * all pass. Any thread; as weir_policy(). */
bool weir_table_policy(struct weir_table *table, uint32_t stripe,
                       struct weir_text name, struct weir_policy *out);
/* The template that rules 'name': its slot, or WEIR_SLOT_NONE. */
uint32_t weir_table_template_of(const struct weir_table *table, uint32_t slot);

/* ---- For who shows it, any thread (table_show.c) ---- */

/* A slot as this process decides by it. */
struct weir_slot_show {
    enum weir_slot_state state; /* PLACEHOLDER or above */
    enum weir_sharing sharing;
    enum weir_mode mode;
    uint32_t generation;    /* of this life of the slot */
    uint32_t ruler_slot;    /* of an instance: its template's; WEIR_SLOT_NONE:
                          * of none, or no instance */
    bool gauge;             /* of kind concurrency */
    bool elsewhere;         /* fill, low and high don't decide: a meter, a store
                          * or an adaptive limit does; they are 0 then */
    double limit;           /* units a second, or at a time, of the whole quota;
                          * INFINITY: none; 0 where 'elsewhere' */
    double granted;         /* the same, what this process may use of it: less
                          * than the limit if it is leased */
    double fill, low, high; /* units; high INFINITY: no limit */
    uint64_t count;         /* units let through in all lives; of a gauge 0 */
    uint64_t refused;       /* units, in all lives */
    size_t name_len, parent_len, ruler_len; /* of what follows, each ended by a
                                             * NUL; 0: none */
    char name[WEIR_NAME_MAX + 1];
    char parent[WEIR_NAME_MAX + 1]; /* of a template: the pattern of it */
    char ruler[WEIR_NAME_MAX + 1];  /* of an instance: its template, if any */
};
/* False: nobody lives there, or it is a slot of the shadow set. Takes the
 * writer lock, as that process, for the time of a copy. */
bool weir_table_show(struct weir_table *table, uint32_t process, uint32_t slot,
                     struct weir_slot_show *out, weir_instant now);

#endif /* WEIR_TABLE_H */
