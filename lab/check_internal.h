/* SPDX-License-Identifier: MIT
 * lab/check_internal.h - the checkers' state, for check*.c only.
 *
 *     quota    of a name: its rule in the store, the true bucket
 *     limiter  its slots: the quota of each, and its count so far
 *     root     its clock; of each quota an image of its bucket
 *     link     a limiter's session with a root: the fills sent for each slot
 *
 * All of it is derived from the events of the run (requests, messages, births,
 * edits) and compared with the state of the nodes. */

#ifndef WEIR_CHECK_INTERNAL_H
#define WEIR_CHECK_INTERNAL_H

#include <math.h>

#include "core/base/index.h"
#include "core/node/root_state.h"
#include "lab/check.h"
#include "lab/memory.h"

/* Units. Bounds the rounding of fractions on different scales. */
#define CHECK_TOLERANCE 1.5
/* Fleets up to this many limiters are small: expensive checks run for each pass
 * there. */
#define CHECK_SMALL 64

/* A bucket of plain numbers, in units. */
struct check_bucket {
    double fill;
    weir_instant at;
};

/* Image of a root's bucket of one quota: the state that it must have. */
struct check_image {
    struct check_bucket bucket; /* on the root's clock; counted units only */
    double presumed;            /* of limiters since they reported … */
    uint64_t pace;              /* … at this pace, all limiters together */
    uint64_t passed;            /* the root's total, when last read … */
    uint64_t beyond_debt; /* … and the part of it that is in no bucket */
    bool seen;            /* the root has the quota */
    bool sure;            /* … under the store's rule, when last read */
    /* For unseen_bound; see check_unseen.c. Units. */
    bool firm;
    struct check_bucket ceiling; /* on the world's clock */
    double beyond, over;
    int64_t unseen;
    double slack;         /* sum over limiters that were told one */
    uint32_t sent, loose; /* limiters */
};

/* A root's bucket as read, in units. */
struct check_held {
    double fill;     /* not below 0 … */
    bool below;      /* … but the root's sums are, until it looks at them */
    double presumed; /* of 'fill': presumed since limiters reported; may exceed
                      * 'fill' */
    uint64_t pace;   /* units in WEIR_PACE_SPAN */
    uint64_t passed;
    uint64_t beyond_debt; /* of 'passed' */
};
/* Units that pass at a pace in 'age'. */
static inline double check_paced(uint64_t pace, double age)
{
    return (double)pace * age / (double)WEIR_PACE_SPAN;
}

struct check_quota {
    char name[WEIR_NAME_MAX + 1];
    size_t len;
    bool ruled, judged;      /* counted, enforced, with a limit */
    uint64_t created, epoch; /* of its rule */
    struct weir_bucket rule;
    double per_ns, high;       /* units */
    double debt;               /* units: the most that one limiter may put in;
                                * INFINITY: no bound */
    double per_ns_most;        /* the fastest leak of any rule so far */
    struct check_bucket truth; /* on the world's clock */
    uint64_t total;            /* units that all tables let through, net of
                                * refunds */
    uint64_t refunded;
    uint64_t weight_most;
    weir_duration ahead;   /* check->ahead when it was last empty */
    bool edited;           /* a limiter may not have the edit yet … */
    weir_instant retry_at; /* … not checked again before this instant */
    bool clean;            /* no doubt about its fill ever arose */
    struct check_image image[WEIR_ROOTS_MAX];
};

/* The last fill that a root sent for a slot on a link, and the report that it
 * answered. */
struct check_sent {
    uint64_t received, created; /* the slot's total at the root; the quota's
                              * creation (0: none) */
    uint64_t pace;              /* pace of the slot … */
    weir_instant paced_at; /* … as of this instant, on the root's clock */
    uint64_t announced;    /* in this session, by the report of this number;
                              * 0: not */
    double slack, held;    /* units: allowance by its slack; the same, or the
                              * units counted beside when the fill came, if
                              * more */
    weir_instant at;
    bool sent, loose; /* sent in this session; counted without a slack */
};

struct check_slot {
    uint32_t generation;
    struct check_quota *quota; /* NULL: no life that was used */
    uint64_t count;            /* of the table, when last read */
    struct check_sent sent[WEIR_ROOTS_MAX];
};

struct check_link {
    uint64_t session, stamp, number; /* of the last answer */
    weir_instant answered_at;        /* on the limiter's clock … */
    weir_instant unruly_until;
    weir_instant answered_on; /* as answered_at, on the world's clock */
    bool backs_off;           /* the root asks for fewer reports */
    weir_instant span_at;     /* start of a second on the world's clock, with
                           * 'span_reports' reports */
    uint64_t span_reports;
    weir_duration span_ahead; /* check->ahead, when it began */
    uint64_t reports;         /* number of the last report received, in … */
    uint64_t reports_session;
    weir_instant reported_at;
    weir_duration gap; /* between that report and the one before */
};

struct check_limiter {
    struct check_slot *slots; /* owned */
    size_t slot_capacity, slot_count;
    struct check_link link[WEIR_ROOTS_MAX];
    uint64_t epoch;
    bool anew;      /* a full resynchronization is under way */
    int64_t offset; /* of its clock against the world's */
    bool known;     /* 'offset' is known */
};

struct check_root {
    uint64_t epoch;
    int64_t offset;
    weir_instant latest; /* highest reading of its clock */
    bool known;
};

/* Charges of the last observed pass. */
struct check_charged {
    uint32_t limiter;
    struct weir_ref ref;
    uint32_t links;
    int64_t units[WEIR_DEPTH_MAX];
};

/* A quota from one epoch until its next edit. */
struct check_version {
    uint64_t epoch, created;
    char *name, *parent; /* owned */
    bool removed;
    struct weir_bucket rule;
    enum weir_mode mode;
};

struct weir_check {
    struct weir_fleet *fleet;
    uint32_t limiter_count, root_count;
    struct check_limiter *limiters; /* owned */
    struct check_root root[WEIR_ROOTS_MAX];
    struct check_quota **quotas; /* owned */
    size_t quota_count, quota_capacity;
    struct weir_index index;
    uint64_t epoch;                 /* of the store */
    struct check_version *versions; /* owned; by epoch */
    size_t version_count, version_capacity;
    uint64_t blind;              /* up to this epoch some edits are unknown */
    weir_duration ahead, behind; /* sum of the time that clocks gained; that
                                  * they lost */
    weir_duration lateness;      /* longest gap between two reports */
    weir_duration pace_good;     /* for so long a silent limiter's pace is
                                  * presumed at least … */
    weir_duration relied;        /* … and the longest that a limiter relied on
                                  * that */
    weir_duration travel;        /* longest transit of a fill that was taken */
    uint64_t lost;               /* messages, when last read */
    weir_instant lost_at;
    weir_instant busy_at; /* last decision or new session */
    bool slack_on, extrapolates;
    uint64_t turn;
    struct check_charged charged;
    double expected, variance; /* of refusals by chance */
    uint64_t chances, refused;
    double share;
    struct weir_check_stats stats;
    char sentence[512];
};

static inline weir_instant weir_check_limiter_now(
    const struct weir_check *check, uint32_t limiter)
{
    return weir_fleet_clock_of(check->fleet, weir_limiter_place(limiter));
}

static inline weir_instant weir_check_root_now(const struct weir_check *check,
                                               uint32_t root)
{
    return weir_fleet_clock_of(check->fleet, weir_root_place(root));
}

/* ---- check_view.c: the state of the nodes ---- */

/* Only the first violation is kept; 'what' and its arguments as for printf. */
void weir_check_fail(struct weir_check *check, const char *checker,
                     const char *what, ...)
    __attribute__((format(printf, 3, 4)));
/* Whether the limiter ignores this overloaded root for the slot, because
 * another root that isn't overloaded has sent a fill. */
bool weir_check_passed_over(const struct weir_check *check, uint32_t limiter,
                            uint32_t root, const struct check_slot *slot);
/* Leaks the bucket until 'now'. */
void weir_check_leak(struct check_bucket *bucket, double per_ns,
                     weir_instant now);
double weir_check_truth(struct weir_check *check, struct check_quota *quota);
/* Units that fast clocks may have leaked too early since the bucket was last
 * empty. */
double weir_check_ahead(const struct weir_check *check,
                        const struct check_quota *quota);
/* Accounts for clocks that run ahead of the world's: they leak too early. */
void weir_check_limiter_clock(struct weir_check *check, uint32_t limiter);
void weir_check_root_clock(struct weir_check *check, uint32_t root);
/* Whether the root runs and has the store's current quotas. */
bool weir_check_root_follows(const struct weir_check *check, uint32_t root);
/* Reads the root's bucket of the quota; false: it has none. */
bool weir_check_root_bucket(struct weir_check *check, uint32_t root,
                            const struct check_quota *quota,
                            struct check_held *out);
/* The root's limiter cell of a slot; NULL: none. */
const struct weir_limiter_cell *weir_check_cell(struct weir_check *check,
                                                uint32_t root, uint32_t limiter,
                                                uint32_t slot);

/* ---- check_slack.c: the allowances of limiters ---- */

/* The root presumes this many units of all limiters. */
void weir_check_slack_presumed(struct check_image *image, double presumed);
/* Suspends the quota's bound, for all roots. */
void weir_check_slack_doubt(struct check_quota *quota);
/* The bound without the terms that depend on the past; units. */
double weir_check_slack_bound(const struct check_quota *quota,
                              const struct check_image *image);
/* To be called before the sum of allowances changes. */
void weir_check_slack_settle(struct weir_check *check,
                             struct check_quota *quota,
                             struct check_image *image);
/* Units of the slot that the root hasn't heard of. */
int64_t weir_check_slack_unheard(struct weir_check *check,
                                 const struct check_slot *slot,
                                 uint32_t limiter, uint32_t index,
                                 uint32_t root);
/* 'loose': the root's slack doesn't limit the slot. */
void weir_check_slack_set_loose(struct check_image *image,
                                struct check_sent *sent, bool loose);
/* The limiter has received a slack. 'beside': units counted that the root has
 * neither heard of nor presumes. */
void weir_check_slack_receive(struct weir_check *check,
                              struct check_quota *quota,
                              struct check_sent *sent, uint32_t root,
                              double slack, double beside);
/* The slack received last no longer rules. */
void weir_check_slack_withdraw(struct weir_check *check,
                               struct check_quota *quota,
                               struct check_sent *sent, uint32_t root);
/* The slot's life is over; 'died': its limiter died. */
void weir_check_slack_slot_ends(struct weir_check *check,
                                struct check_slot *slot, uint32_t limiter,
                                uint32_t index, bool died);

/* ---- check_image.c: images of roots' buckets ---- */

/* Range of values that a root's bucket may have, without the presumed units. */
struct check_span {
    double least, most;
};
#define CHECK_ANYTHING ((struct check_span){ -INFINITY, INFINITY })

/* Rounding: a bucket is a whole number of its scale, the image isn't. Units. */
double weir_check_image_grain(const struct check_quota *quota);
/* Brings the image to now. False: it can't be judged, since the clock was set
 * back, or the root didn't follow the store, now or at the last read. */
bool weir_check_image_advance(struct weir_check *check, uint32_t root,
                              struct check_quota *quota);
/* Fails if the root's bucket is not within 'span'; the image takes over its
 * value. 'when' begins the sentence. */
void weir_check_image_compare(struct weir_check *check, uint32_t root,
                              struct check_quota *quota, struct check_span span,
                              double tolerance, const char *when);
/* Judges the next bucket in turn. */
void weir_check_image_turn(struct weir_check *check);
/* The fill after an edit (weir-quota(5), max_debt); units. */
double weir_check_edited(double fill, double before, double high);
/* Called before the quota's rule changes in the books: 'another' quota is
 * created under the name, or the edit has a new 'high' and leaves at most
 * 'most' counted units in a bucket. */
void weir_check_image_edit(struct weir_check *check, struct check_quota *quota,
                           bool another, double high, double most);

/* ---- check_book.c: counts of all tables ---- */

struct check_quota *weir_check_quota_of(struct weir_check *check,
                                        struct weir_text name);
/* The entry of the slot, reset if the slot has begun another life. */
struct check_slot *weir_check_slot_of(struct weir_check *check,
                                      uint32_t limiter, uint32_t slot);
/* Reads the store's edits, if there are any. */
void weir_check_follow_store(struct weir_check *check);

/* ---- one file for each checker ---- */

/* After each event. */
void weir_check_bounds_event(struct weir_check *check);
/* A root's answer to a report has reached the limiter. */
void weir_check_bounds_answered(struct weir_check *check, uint32_t limiter,
                                uint32_t root);

void weir_check_conservation_hello(struct weir_check *check, uint32_t root,
                                   uint32_t limiter);
void weir_check_conservation_report(struct weir_check *check, uint32_t root,
                                    uint32_t limiter,
                                    const struct weir_report *report);
void weir_check_conservation_end(struct weir_check *check);

void weir_check_unseen_passed(struct weir_check *check, uint32_t limiter,
                              uint32_t index, int64_t units, bool over_high);
void weir_check_unseen_merged(struct weir_check *check,
                              struct check_quota *quota, uint32_t root,
                              int64_t units, bool doubt);
void weir_check_unseen_welcome(struct weir_check *check, uint32_t limiter,
                               uint32_t root,
                               const struct weir_message *message);
void weir_check_unseen_report(struct weir_check *check, uint32_t limiter,
                              uint32_t root,
                              const struct weir_message *message);
/* A running root has composed these fills for the limiter. */
void weir_check_unseen_sent(struct weir_check *check, uint32_t root,
                            uint32_t limiter, const struct weir_fills *fills);
void weir_check_unseen_fills(struct weir_check *check, uint32_t limiter,
                             uint32_t root, const struct weir_message *message);
/* The root starts or dies. */
void weir_check_unseen_root(struct weir_check *check, uint32_t root);

void weir_check_verdict(struct weir_check *check, uint32_t limiter,
                        struct weir_ref ref, uint64_t weight, unsigned outcome);
void weir_check_verdicts_end(struct weir_check *check);

void weir_check_epochs_quotas(struct weir_check *check, uint32_t limiter,
                              const struct weir_quotas *quotas);
void weir_check_epochs_root(struct weir_check *check, uint32_t root);

void weir_check_agreement_received(struct weir_check *check, uint32_t limiter,
                                   uint32_t root, const struct weir_fill *fill,
                                   const struct check_quota *quota);
void weir_check_agreement_end(struct weir_check *check);

#endif /* WEIR_CHECK_INTERNAL_H */
