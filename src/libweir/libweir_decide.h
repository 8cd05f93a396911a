/* SPDX-License-Identifier: MIT
 * libweir/libweir_decide.h - what decisions by name and by handle share. */

#ifndef WEIR_LIBWEIR_DECIDE_H
#define WEIR_LIBWEIR_DECIDE_H

#include "core/quota/long_name.h"
#include "core/table/table_stored_name.h"
#include "io/clock.h"
#include "libweir/libweir_internal.h"

/* ---- libweir_contended.c: waits for locks of the table ---- */
/* A call found a lock taken: waits, at most for 'most' in total, as follows:
 *
 *     weir_lock_wait_begin(...);
 * do { call again; } while (it found a lock taken && weir_lock_wait(...)); */
struct weir_lock_wait {
    weir_instant until;
    uint32_t seen; /* of the word that moves with each release */
    uint32_t yields;
};
void weir_lock_wait_begin(const struct weir *weir, struct weir_lock_wait *wait,
                          weir_duration most);
bool weir_lock_wait(const struct weir *weir, struct weir_lock_wait *wait);
/* A decision that a caller asked for. All its waits for locks of the table,
 * for the name's and for each quota's, have one deadline. */
struct weir_call {
    weir_instant now; /* of the decision; after a wait it is a later one … */
    bool given;       /* … unless the caller gave it */
    struct weir_lock_wait wait; /* until 0: it hasn't waited */
    uint32_t yields;            /* for overdue locks */
};
/* 'now' is what the caller gave; 0: nothing. */
static inline struct weir_call weir_call_at(weir_instant now)
{
    return (struct weir_call){ .now = now ? now : weir_clock_now(),
                               .given = now != 0 };
}
/* The call found a lock taken: waits until it may try again; for a lock that is
 * overdue it only yields. False: it has waited for lock_wait, or may not
 * wait. */
bool weir_call_wait(struct weir *weir, struct weir_call *call, bool overdue);
/* The call has the lock, maybe after such waits. */
void weir_call_got_lock(struct weir *weir, const struct weir_call *call);
static inline bool weir_call_has_waited(const struct weir_call *call)
{
    return call->wait.until != 0;
}
/* weir_call_wait() returned false: whether the lock is to be marked as overdue.
 * 'first': before this lock, the call hadn't waited. In this process's own
 * table the holder runs, or will soon. */
static inline bool weir_call_is_overdue(const struct weir *weir,
                                        const struct weir_call *call,
                                        bool first)
{
    return weir->block && first && weir_call_has_waited(call);
}
/* When to ask again after a refusal because of a lock: as LOCKED_RETRY of the
 * table. */
#define WEIR_LOCKED_RETRY WEIR_MILLISECOND
/* weir_grow() for a decision: if another thread grows a shared table, waits for
 * it as for a lock. False with weir_table_is_short(): in vain. */
bool weir_grow_or_wait(struct weir *weir, uint32_t had, struct weir_call *call);

/* How long a call about a handle waits. */
static inline weir_duration weir_handle_wait(const struct weir *weir)
{
    return weir->lock_wait > 0 ? WEIR_HANDLE_WAIT : 0;
}
/* Finds or makes the slot of a given name; WEIR_RESOLVED_CONTENDED after
 * lock_wait. */
enum weir_resolved weir_resolve_patiently(struct weir *weir,
                                          struct weir_text name,
                                          struct weir_ref *out,
                                          struct weir_call *call);
/* Decides for a name without a slot, after WEIR_RESOLVED_CONTENDED. */
enum weir_verdict weir_decide_nameless(struct weir *weir,
                                       struct weir_reply *reply);

/* ---- libweir_waiting.c ---- */
void weir_waiting_sleep(weir_instant until);
/* Sleeps until the wish may ask again, by its reply; at most until it is too
 * late. */
void weir_waiting_pause(const struct weir_wish *wish, weir_instant now);

/* ---- libweir_take_calls.c: shared by enters and takes ---- */
/* A name without quota passes, or, if the table lacks quotas, goes by on_full.
 * 'weir' and 'reply' may be NULL. */
enum weir_verdict weir_decide_unknown(struct weir *weir,
                                      struct weir_reply *reply);
/* The same for a handle without a slot: on_full decides if its name's quota
 * found no room. 'quota.weir' may be NULL. */
enum weir_verdict weir_decide_empty(struct weir_handle quota,
                                    struct weir_reply *reply);
/* Repeats a request on the shadow set; only the sync uses the result. 'name':
 * of a request by a name that has no slot of its own in the live set; NULL:
 * 'ref' is its slot. 'outcome' is the live set's; returned with a kick. */
unsigned weir_decide_shadow(struct weir *weir, struct weir_ref ref,
                            const struct weir_text *name,
                            const struct weir_algorithm_ask *ask,
                            unsigned outcome, weir_instant now);
/* A name that a caller gives. */
struct weir_asked_name {
    struct weir_text given;
    bool is_long;                /* weir_name_is_long() */
    uint64_t hash;               /* unless it is long: weir_table_hash() */
    struct weir_stored_name cut; /* if it is long, after a search */
};
/* Finds its slot, or makes it. If weir_is_resolved(), '*out' is to be asked. */
enum weir_resolved weir_asked_find(struct weir *weir,
                                   struct weir_asked_name *asked,
                                   struct weir_ref *out,
                                   struct weir_call *call);
/* The name by which the shadow set is asked; absent: it isn't. */
struct weir_text weir_asked_shadow(const struct weir_asked_name *asked);
/* Without a slot to be asked: whether the shadow set is. */
static inline bool weir_is_unruled(enum weir_resolved resolved)
{
    return resolved <= WEIR_RESOLVED_NONE;
}
/* The verdict on a name for which there is no slot to be asked. */
enum weir_verdict weir_decide_missing(struct weir *weir,
                                      enum weir_resolved resolved,
                                      struct weir_reply *reply);
/* Another quota than the name's has decided: says so. */
void weir_decide_mark_full(struct weir_reply *reply,
                           enum weir_resolved resolved);

/* Wakes the thread, or serves waiters, as the outcome says
 * (libweir_waiting.c). */
void weir_outcome_heed(struct weir *weir, unsigned outcome);

/* A slot may change hands between lookup and take. That happens so often in a
 * row only if the table is being churned; on_full decides then. */
#define WEIR_STALE_TRIES 4

static inline enum weir_verdict weir_verdict_of(struct weir *weir,
                                                unsigned outcome)
{
    if (WEIR_UNLIKELY(outcome & (WEIR_OUTCOME_KICK | WEIR_OUTCOME_NEXT |
                                 WEIR_OUTCOME_WAKE)))
        weir_outcome_heed(weir, outcome);
    return outcome & WEIR_OUTCOME_LIMITED ? WEIR_LIMITED : WEIR_PASSED;
}

/* Whether a name may have a quota. Names of the shadow set can't be asked for:
 * they pass as unknown ones do. */
static inline bool weir_name_is_askable(struct weir_text name)
{
    return name.len > 0 && !weir_name_is_shadow(name);
}

static inline void weir_asked_init(const struct weir *weir,
                                   struct weir_text name,
                                   struct weir_asked_name *out)
{
    out->given = name;
    out->is_long = weir_name_is_long(name);
    out->cut.len = 0;
    if (WEIR_LIKELY(!out->is_long))
        out->hash = weir_table_hash(weir->table, name);
}

#endif /* WEIR_LIBWEIR_DECIDE_H */
