/* SPDX-License-Identifier: MIT
 * lab/check_parts.h - what the checkers know, for check*.c only.
 *
 *     quota    of a name: its rule in the store, the true bucket
 *     limiter  its slots: which quota each is, how far it has counted
 *     root     its clock; of each quota an image of its bucket
 *     link     a limiter's session with a root: what it was told of each slot
 *
 * All of it follows from what passes by (requests, messages, births, edits)
 * and is held against what the nodes hold. */

#ifndef WEIR_CHECK_PARTS_H
#define WEIR_CHECK_PARTS_H

#include "base/index.h"
#include "lab/check.h"
#include "lab/memory.h"
#include "node/root_state.h"

/* What fractions of units, rounded on different scales, come to. */
#define CHECK_TOLERANCE 1.5
/* A fleet of so many limiters is small: what costs more is done for each
 * pass. */
#define CHECK_SMALL 64

/* A bucket of plain numbers, in units. */
struct check_bucket {
    double fill;
    weir_instant at;
};

/* A root's bucket of one quota, as it must be. */
struct check_image {
    struct check_bucket bucket; /* on the root's clock; what was counted */
    double presumed;            /* of limiters since they reported … */
    uint64_t pace;              /* … at that, of all */
    uint64_t passed;            /* of the root, when last seen … */
    uint64_t beyond_debt;       /* … and of it, what is in no bucket */
    bool seen;                  /* the root has it */
    bool sure;                  /* … under the store's rule, when seen */
    /* For unseen_bound; see there. Units. */
    bool firm;
    struct check_bucket ceiling; /* on the world's clock */
    double beyond, over;
    int64_t unseen;
    double slack;         /* sum over limiters that were told */
    uint32_t told, loose; /* limiters */
};

/* A root's bucket as it is, in units. */
struct check_held {
    double fill;     /* not below 0 */
    double presumed; /* of it: since limiters reported; perhaps more than it */
    uint64_t pace;   /* units in WEIR_PACE_SPAN */
    uint64_t passed;
    uint64_t beyond_debt; /* of 'passed' */
};
/* Units that a pace comes to. */
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
    double debt;               /* units: the most that one limiter puts in;
                                * INFINITY: as much as it says */
    double per_ns_most;        /* that it ever leaked */
    struct check_bucket truth; /* on the world's clock */
    uint64_t total;            /* units that tables let through, net */
    uint64_t refunded;
    uint64_t weight_most;
    weir_duration ahead;    /* check->ahead when it was last empty */
    weir_instant edited_at; /* its rule; the world's */
    bool edited;            /* some limiter may not have it yet … */
    weir_instant retry_at;  /* … before that don't ask again */
    bool clean;             /* no doubt about it ever arose */
    struct check_image image[WEIR_ROOTS_MAX];
};

/* What a limiter was told of a slot on a link, and the root heard. */
struct check_told {
    uint64_t heard, created; /* its total; of which quota (0: nothing) */
    uint64_t pace;           /* its … */
    weir_instant paced_at;   /* … as of then, on the root's clock */
    uint64_t announced;      /* in this session, by that report; 0: not */
    double slack, held;      /* units: what it may count by its slack; with what
                                 * it had counted when it was told */
    weir_instant at;
    bool told, loose; /* in this session; counted without */
};

struct check_slot {
    uint32_t generation;
    struct check_quota *quota; /* NULL: no life that was used */
    uint64_t count;            /* of the table, when last seen */
    struct check_told told[WEIR_ROOTS_MAX];
};

struct check_link {
    uint64_t session, stamp, number; /* of the last answer */
    weir_instant answered_at;        /* the limiter's … */
    weir_instant unruly_until;
    bool stretched;       /* the root asks for fewer reports */
    weir_instant span_at; /* the world's: a second with so many reports … */
    uint64_t span_reports;
    weir_duration span_ahead; /* check->ahead, when it began */
    uint64_t reports;         /* number of the last one taken, in … */
    uint64_t reports_session;
    weir_instant reported_at;
    weir_duration gap; /* before that one */
};

struct check_limiter {
    struct check_slot *slots; /* owned */
    size_t slot_capacity, slot_count;
    struct check_link link[WEIR_ROOTS_MAX];
    uint64_t epoch;
    bool anew;      /* a whole set is under way */
    int64_t offset; /* of its clock to the world's */
    bool known;     /* 'offset' is */
};

struct check_root {
    uint64_t epoch;
    int64_t offset;
    weir_instant latest; /* its clock ever showed */
    bool known;
};

/* What the last pass was seen to charge. */
struct check_charged {
    uint32_t limiter;
    struct weir_ref ref;
    uint32_t links;
    int64_t units[WEIR_DEPTH_MAX];
};

/* A quota as it was from one epoch on. */
struct check_version {
    uint64_t epoch, created;
    char *name, *parent; /* owned */
    bool removed, is_template;
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
    uint64_t blind;              /* of epochs up to here some are unknown */
    weir_duration ahead, behind; /* clocks ran, all together, too fast;
                                     * too slowly */
    weir_duration lateness;      /* the longest between two reports */
    weir_duration pace_good;     /* of a limiter that says nothing */
    weir_duration travel;        /* the longest of a fill that was taken */
    uint64_t lost;               /* messages, when last seen */
    weir_instant lost_at;
    weir_instant busy_at; /* the last decision or new session */
    bool slack_on, extrapolates;
    uint64_t turn;
    struct check_charged charged;
    double expected, variance; /* refusals by chance */
    uint64_t chances, refused;
    double share;
    struct weir_check_stats stats;
    char sentence[512];
};

/* The first violation stays; 'what' and its arguments as of printf. */
void weir_check_fail(struct weir_check *check, const char *checker,
                     const char *what, ...)
    __attribute__((format(printf, 3, 4)));
/* A report of the limiter was answered. */
void weir_check_answered(struct weir_check *check, uint32_t limiter,
                         uint32_t root);
/* A root that runs and has the store's quotas as they are. */
bool weir_check_root_follows(const struct weir_check *check, uint32_t root);

/* ---- check_book.c: who counted what ---- */

struct check_quota *weir_check_quota_of(struct weir_check *check,
                                        struct weir_text name);
/* The slot's entry, begun anew if its life is another. */
struct check_slot *weir_check_slot_of(struct weir_check *check,
                                      uint32_t limiter, uint32_t slot);
/* Lets leak what leaks until 'now'. */
void weir_check_leak(struct check_bucket *bucket, double per_ns,
                     weir_instant now);
double weir_check_truth(struct weir_check *check, struct check_quota *quota);
/* Reads the store's edits, if there are any. */
void weir_check_follow_store(struct weir_check *check);
/* Clocks that run ahead of the world's leak what hasn't. */
void weir_check_limiter_clock(struct weir_check *check, uint32_t limiter);
void weir_check_root_clock(struct weir_check *check, uint32_t root);
/* Units that the clocks can have leaked too much since it was empty. */
double weir_check_ahead(const struct weir_check *check,
                        const struct check_quota *quota);

/* ---- conservation, unseen_bound, …: a file each ---- */

void weir_check_conservation_hello(struct weir_check *check, uint32_t root,
                                   uint32_t limiter);
void weir_check_conservation_report(struct weir_check *check, uint32_t root,
                                    uint32_t limiter,
                                    const struct weir_report *report);
void weir_check_conservation_turn(struct weir_check *check);
/* Called before the quota's rule changes in the books: to another quota's, or
 * to one that leaves 'most' counted units in a bucket. */
void weir_check_conservation_edit(struct weir_check *check,
                                  struct check_quota *quota, bool another,
                                  double most);
void weir_check_conservation_end(struct weir_check *check);
/* The root's bucket of the quota; false: it has none. */
bool weir_check_root_bucket(struct weir_check *check, uint32_t root,
                            const struct check_quota *quota,
                            struct check_held *out);
/* The root's cell of a limiter's slot; NULL: none. */
const struct weir_cell *weir_check_cell(struct weir_check *check, uint32_t root,
                                        uint32_t limiter, uint32_t slot);

void weir_check_unseen_passed(struct weir_check *check, uint32_t limiter,
                              uint32_t index, int64_t units, bool over_high);
void weir_check_unseen_merged(struct weir_check *check,
                              struct check_quota *quota, uint32_t root,
                              int64_t units, bool doubt);
void weir_check_unseen_doubt(struct check_quota *quota);
/* So much was presumed of all limiters. */
void weir_check_unseen_presumed(struct check_image *image, double presumed);
void weir_check_unseen_welcome(struct weir_check *check, uint32_t limiter,
                               uint32_t root,
                               const struct weir_message *message);
void weir_check_unseen_report(struct weir_check *check, uint32_t limiter,
                              uint32_t root,
                              const struct weir_message *message);
/* A root that lives has drawn that up for the limiter. */
void weir_check_unseen_said(struct weir_check *check, uint32_t root,
                            uint32_t limiter, const struct weir_fills *fills);
void weir_check_unseen_fills(struct weir_check *check, uint32_t limiter,
                             uint32_t root, const struct weir_message *message);
/* The slot's life is over; 'died': with its limiter. */
void weir_check_unseen_slot_ends(struct weir_check *check,
                                 struct check_slot *slot, uint32_t limiter,
                                 uint32_t index, bool died);
/* The root was born, or dies. */
void weir_check_unseen_root(struct weir_check *check, uint32_t root);

void weir_check_verdict(struct weir_check *check, uint32_t limiter,
                        struct weir_ref ref, uint64_t weight, unsigned outcome);
void weir_check_verdicts_end(struct weir_check *check);

void weir_check_epochs_quotas(struct weir_check *check, uint32_t limiter,
                              const struct weir_quotas *quotas);
void weir_check_epochs_root(struct weir_check *check, uint32_t root);

void weir_check_agreement_told(struct weir_check *check, uint32_t limiter,
                               uint32_t root, const struct weir_fill *fill,
                               const struct check_quota *quota);
void weir_check_agreement_end(struct weir_check *check);

#endif /* WEIR_CHECK_PARTS_H */
