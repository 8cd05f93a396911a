/* SPDX-License-Identifier: MIT
 * table/table_sync.h - the calls of the sync, one thread at a time.
 *
 * The sync waits for no lock: a call that can't be made now says so, or does
 * the rest when it is made again. */

#ifndef WEIR_TABLE_SYNC_H
#define WEIR_TABLE_SYNC_H

#include "core/table/table.h"
#include "core/table/table_view.h"

/* ---- Quotas ---- */

/* Defines or edits a quota or template. A name in use keeps its slot, its count
 * and its fill in units; an edited template's instances are edited too. Parents
 * and overflow quotas not defined yet get placeholders. WEIR_EFULL: no room;
 * WEIR_ETIMEOUT: another thread has a lock that is needed, call it again later.
 * The table is then as before. */
int weir_table_put(struct weir_table *table, const struct weir_quota *quota,
                   weir_instant now);
/* Removes a quota. Its slot is freed; if it is still referred to, it becomes a
 * template's instance or a placeholder. Unknown names are ignored.
 * WEIR_ETIMEOUT as above. */
int weir_table_drop(struct weir_table *table, struct weir_text name,
                    weir_instant now);
/* The same as steps of an edit of several quotas: instances go by their former
 * template until weir_slots_rule(), which ends the edit. */
int weir_table_put_unruled(struct weir_table *table,
                           const struct weir_quota *quota, weir_instant now);
int weir_table_drop_unruled(struct weir_table *table, struct weir_text name,
                            weir_instant now);
/* Finds the template of each instance and placeholder again, if the templates
 * have changed since that was done: O(slots * templates). A slot that another
 * thread's lock keeps out follows at the next call, or at the next sweep. */
void weir_slots_rule(struct weir_table *table, weir_instant now);
/* Begin and end a whole set: quotas that weren't put in between are dropped.
 * The end is weir_slots_rule() too. WEIR_ETIMEOUT: not done, or in part: call
 * it again later. */
int weir_table_begin_full(struct weir_table *table);
int weir_table_end_full(struct weir_table *table, weir_instant now);
/* Sets the result of weir_table_lacking(). */
void weir_table_set_lacking(struct weir_table *table, uint32_t quotas);
/* The number of bucket state rules made so far: when it has changed, quotas may
 * name other zones and stores. 0: none ever; otherwise no thread may be
 * deciding while the lock is broken. */
uint32_t weir_table_rules_made(const struct weir_table *table);
/* The sync: the store of a quota or template, NUL-terminated; false: it isn't
 * exact. */
bool weir_table_store_of(const struct weir_table *table, uint32_t slot,
                         char out[WEIR_STORE_MAX + 1]);

/* ---- Counts ---- */

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
 * instant 'at'. A bucket that is empty and stays so is left alone. Of kind
 * concurrency: other processes have 'fill' minus 'count' units in flight. */
void weir_table_set_fill(struct weir_table *table, uint32_t slot, int64_t fill,
                         uint64_t count, weir_instant at);
/* The probability, 0 to 1, with which the bucket alone refuses a request
 * now. */
float weir_table_refusal(struct weir_table *table, uint32_t slot,
                         weir_instant now);
/* The probability with which on_stale=hold refuses when all roots are silent.
 * Ignored while the table is stale, or this is paused. */
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
 * Local quotas aren't affected. False: a lock was taken, call it again. */
bool weir_table_set_stale(struct weir_table *table, bool stale,
                          weir_instant now);
bool weir_table_is_stale(const struct weir_table *table);
/* While 'paused', fills don't change the probability that on_stale=hold uses:
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

/* ---- Leases (table_lease.c) ---- */

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
 * grant, or before. An adaptive slot of scope fleet keeps to 'granted' in
 * flight, with fractions, and 'cut' is that of the grant; INFINITY: it finds a
 * limit itself, from its last part on. Other slots aren't changed. False:
 * another thread has the writer lock, call it again later. */
bool weir_table_set_lease(struct weir_table *table, uint32_t slot,
                          double granted, uint64_t cut, weir_instant now);
/* Ends the grant: the slot is closed, or, if it was PARTING, as its quota
 * says; an adaptive slot lets one unit in at a time, unless it is alone. False
 * as above. */
bool weir_table_end_lease(struct weir_table *table, uint32_t slot,
                          weir_instant now);
/* Any thread, wait-free. */
enum weir_leasing weir_table_leasing(const struct weir_table *table,
                                     uint32_t slot);
struct weir_band;
struct weir_guarantee;
struct weir_latency_count;
struct weir_latency_batch;
/* Of an adaptive slot that keeps to a grant: what was measured since the last
 * call, as weir_concurrency_gate_collect(). False: it doesn't, or another
 * thread has a lock now. */
bool weir_table_collect_window(struct weir_table *table, uint32_t slot,
                               struct weir_latency_count *bins,
                               struct weir_latency_batch *out,
                               weir_instant now);
/* Of such a slot whose quota guarantees shares to classes: divides wants among
 * these classes, and the requests of others. Writes a band for each, of the
 * class's number (weir_class_number()), or 0; strictly descending. Returns
 * their number, 2 .. WEIR_LEASE_GUARANTEES_MAX + 1; 0: it isn't such a slot, or
 * another thread has the writer lock. */
size_t weir_table_divide_wants(struct weir_table *table, uint32_t slot,
                               double wants, struct weir_band *out,
                               weir_instant now);
/* … and sets what these classes are guaranteed. False: another thread has a
 * lock; the next grant will do. */
bool weir_table_set_guarantees(struct weir_table *table, uint32_t slot,
                               const struct weir_guarantee *guarantees,
                               size_t count);
struct weir_lease_view {
    enum weir_leasing leasing; /* NONE: the others are 0 */
    bool adaptive;      /* of scope fleet: GRANTED, or CLOSED: it is alone */
    double granted;     /* granted, parting: units a second, or at a time; of an
                         * adaptive slot the limit in force */
    double limit;       /* of the whole quota; INFINITY: none */
    uint64_t burst;     /* the same: the heaviest weight that may ever pass */
    int64_t priority;   /* of its wants, as the quota says */
    bool inflight;      /* of kind concurrency: */
    uint64_t in_flight; /* units in flight */
    uint64_t awaited;   /* units that waiting callers want */
    uint64_t entered;   /* units ever let in while it was leased */
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
 * reading the slot's totals: these then include all use until then. It answers
 * at a later call if another thread has the writer lock now. */
bool weir_table_was_unpinned(struct weir_table *table, uint32_t slot);
/* Marks the slot as if it had been used: the next collect finds it
 * (table_read.c). */
void weir_table_mark(struct weir_table *table, uint32_t slot);
/* The same of the slot and all above it, so that the roots send their fills. If
 * the slot is given to another name meanwhile, its chain may be marked in
 * vain. */
void weir_table_mark_chain(struct weir_table *table, uint32_t slot);

/* ---- Peeks by name (table_peek.c) ----
 * Nothing is counted by a peek, so without more the roots would never send the
 * fill of a name that is only looked at, and a leased one would never get a
 * grant. */

/* Any thread: marks the chain like weir_table_mark_chain(), and notes a peek
 * of 'weight' at its leased slots. Returns 0 or WEIR_OUTCOME_KICK. */
#define WEIR_PEEK_MAX 0x7fffffffu /* heavier peeks count as so heavy */
unsigned weir_table_note_peek(struct weir_table *table, uint32_t slot,
                              uint64_t weight, bool limited);
/* The weight of the heaviest peek at a leased slot since the last call, and
 * whether it was refused; 0: there was none. weir_table_is_peeked() says
 * whether there was one. */
bool weir_table_is_peeked(const struct weir_table *table, uint32_t slot);
uint64_t weir_table_end_peek(struct weir_table *table, uint32_t slot,
                             bool *out_limited);
/* Whether a root's fill of the slot's present life is known. Until it is, a
 * peek at a counted slot is answered as stale, if counts are reported to roots
 * at all. */
void weir_table_set_heard(struct weir_table *table, uint32_t slot, bool heard);
void weir_table_set_reported(struct weir_table *table, bool reported);
void weir_table_lease_view(struct weir_table *table, uint32_t slot,
                           struct weir_lease_view *out);

/* ---- Adaptive quotas ---- */

/* The sync: sets the number of processes (0 as 1) by which the fleet's bounds
 * are divided; again at each turn, as another thread may have the writer
 * lock. */
void weir_table_set_fleet(struct weir_table *table, uint32_t processes,
                          weir_instant now);
/* The sync, from time to time: closes windows that have ended without requests.
 * Cheap if there is no adaptive quota. */
void weir_table_tick(struct weir_table *table, weir_instant now);

/* ---- The clock hand ---- */

/* Whether fewer than 1/8 of the slots are free, of at least 65,536 if the table
 * may grow so far: the sweep should hurry. */
bool weir_table_is_crowded(const struct weir_table *table);
/* The clock hand, called some times a second: visits up to 'count' slots and
 * lifts buckets that have been empty for WEIR_TABLE_SWEEP_BEHIND (so that no
 * difference of sums ever overflows): a caller that read the clock so long ago
 * still finds them empty. While the table is crowded, it also frees instances
 * that are empty, settled, unpinned and without children. Returns the number of
 * slots freed. */
#define WEIR_TABLE_SWEEP_BEHIND (10 * WEIR_SECOND)
uint32_t weir_table_sweep(struct weir_table *table, uint32_t count,
                          weir_instant now);

/* ---- Audits (table_audit.c) ----
 * An assertion fails if what the writer lock protects disagrees: names and the
 * index, lives, references, rules, lists, the area. Both take the lock, and do
 * nothing if it stays taken, perhaps by a process that was stopped. */

/* Audits the next 'n' used slots from '*hand' on, in a circle, at most
 * WEIR_TABLE_AUDIT_MAX of them. */
#define WEIR_TABLE_AUDIT_MAX 4096
void weir_table_audit(struct weir_table *table, uint32_t *hand, uint32_t n);
/* Audits sums and lists over all slots, if at most 'max' are used and the index
 * is not larger; 'scratch' has room for 'max' numbers. Takes time by the square
 * of the slots with a bucket state. */
void weir_table_audit_whole(struct weir_table *table, uint32_t *scratch,
                            uint32_t max);

#endif /* WEIR_TABLE_SYNC_H */
