/* SPDX-License-Identifier: MIT
 * core/counted/tally.h - counted sharing, the limiter's half. For each root
 * link and slot: the counts that the root has, and the fill it sent. Makes the
 * reports, and sets the table's buckets from the answers.
 *
 * Pure; the table's sync thread; memory of the caller. Sessions, hellos and
 * quotas belong to the limiter node (node/limiter.c). */

#ifndef WEIR_TALLY_H
#define WEIR_TALLY_H

#include "core/counted/above.h"
#include "core/counted/message.h"
#include "core/table/table_sync.h"

/* One slot on one link. Units are those of the slot's quota. */
struct weir_tally_cell {
    uint64_t acked;  /* total that the root has answered for */
    uint64_t sent;   /* total in the unanswered report */
    uint64_t prompt; /* total that it answered for in time */
    uint64_t refused_acked;
    uint64_t refused_sent;
    int64_t fill;         /* as received, 1/1024 units … */
    uint64_t fill_total;  /* … our total in it … */
    uint64_t fill_ours;   /* … and the region's whole count then
                           * (tally_correction.c) */
    weir_instant fill_at; /* … when it came … */
    int64_t fill_high;    /* … 'high' of the bucket that it is of … */
    int64_t fill_low;     /* … 'low', less the leak of a round trip … */
    uint64_t others_pace; /* … and the pace at which others presumably go on */
    uint64_t slack;       /* 1/1024 units */
    uint64_t pace;        /* pace that the root adds to 'acked' … */
    weir_instant pace_at;    /* … since the report was sent … */
    weir_instant pace_held;  /* … and certainly since then: the same, or when
                              * the answer of a root that takes no echo came */
    weir_instant unruled_at; /* the root has ignored counts made since then; 0:
                              * none */
    uint64_t pace_sent;      /* in the unanswered report */
    uint64_t ahead;      /* units that the root adds to 'acked' at once … */
    uint64_t ahead_sent; /* … by the unanswered report */
    int64_t carry;       /* units handed over in the unanswered report */
    uint32_t created;    /* low half of its quota's 'created', when the cell
                          * began */
    float others_per_s;  /* units that others add, smoothed */
    float own, others;   /* units that we and others added, fading … */
    weir_instant shared_at; /* … to a bucket at least half full, which it last
                             * was then; 0: units that we added to an emptier
                             * bucket */
    uint32_t generation;    /* of the slot, when the cell began */
    uint32_t session;       /* low half of the session that it was announced
                             * in */
    bool has_fill;          /* fill and slack are valid … */
    bool blind;     /* … but are "full, no slack", which a region's root sends
                     * until those above answer */
    bool counted;   /* the root answers counts of the slot with a fill */
    bool adopt;     /* 'fill' is for a cold root to take over … */
    bool witnessed; /* … and another root has answered since it started */
    bool sank;      /* the total at the root may have sunk since the last
                     * answer */
    bool inflight;  /* its totals are units in flight … */
    bool handed;    /* … and the root answered the last one as the carrier */
    bool begun;
    bool reported; /* in the unanswered report, in this life */
};

/* The rate at which a slot passes units, smoothed. */
struct weir_tally_pace {
    float per_s;
    uint64_t count; /* as of … */
    weir_instant at;
};

/* State of a slot in a region's root that isn't in its count. */
struct weir_tally_carried {
    uint64_t ahead; /* units of the count that are only presumed … */
    uint64_t pace;  /* … and the pace at which these grow */
    uint64_t whole; /* units that all limiters of the region passed, presumed
                     * ones included, by any carrier; modulo 2^64 */
};

/* The refusal probability for `hold`, where a slot's quota has it. The sums
 * cover only times with load above the limit, and fade. */
struct weir_tally_hold {
    uint64_t count, refused; /* the table's, as of … */
    weir_instant at;
    weir_instant limited_at; /* last time with load above the limit */
    float offered;           /* units, passed and refused … */
    float seconds;           /* … in this time */
    float last;              /* last probability of the bucket itself */
    uint32_t generation;     /* of the slot; 0: none yet */
};

/* Units of a slot's count that were handed to carriers, in total. */
struct weir_tally_handed {
    uint64_t total;
    uint32_t generation; /* of the slot; 0: none yet */
    bool inflight;       /* none are: a carrier takes the units in flight as
                          * they are (tally_answer.c) */
};

/* One root link. */
struct weir_tally_link {
    struct weir_tally_cell *cells; /* a cell a slot */
    uint64_t *dirty;               /* bits: slots to report */
    uint32_t *outstanding;         /* slots of the unanswered report */
    uint32_t outstanding_count;
    uint32_t hand;          /* slot where the next report goes on: the last one
                             * had no room from here on … */
    uint32_t announce_hand; /* … nor for announcements from here on */
    uint32_t adopt_hand;    /* no fill before this slot is still to be taken */
    bool left_out;          /* … so another report follows soon */
    weir_instant announced_till; /* announcements made so far use up the
                                  * allowance until then */
    weir_instant round_at;       /* when the report was made that began at slot
                                  * 0 */
    uint64_t number;             /* of the last report made */
    bool unanswered;
    bool meeting;   /* connected, not welcomed yet */
    bool up;        /* welcomed */
    bool answering; /* answered lately: its slack may be used … */
    /* … if this is 0, or no such link has 0: report backoff, the shortest
     * interval between reports */
    weir_duration report_backoff;
    /* The root's age by its newest fills; 0: none in this session. */
    weir_duration root_age;
    weir_instant root_age_at; /* … and when these came */
    /* Of the unanswered report: the root's age when it was made; 0: unknown. */
    weir_duration echo;
    /* By the root's clock, between the echo and the answer of the last report
     * that was answered, and of the one before. About a round trip; never above
     * the lead that the root may presume. */
    weir_duration round_trip[2];
    weir_instant answered_at;
    weir_instant sent_at;    /* the unanswered report was first sent */
    weir_instant made_at;    /* reports without a remainder: when the last one
                              * began … */
    weir_instant acked_at;   /* … and the last one that was answered */
    bool missed;             /* units were counted while it was down */
    bool carried;            /* the unanswered report went to a carrier */
    bool hurry;              /* more to report: the carrier has changed */
    weir_instant late_since; /* of units carried late; 0: none */
    uint64_t session;
    uint64_t stamp; /* of the newest fills */
};

/* The number of limiters sinks only when a smaller one was received for this
 * long. A cold root counts limiters as they reconnect; taking its part of the
 * limit from that number, a limiter would take too much. */
#define WEIR_FLEET_HOLD (10 * WEIR_SECOND)

#define WEIR_PACE_HELD_MAX (3600 * WEIR_SECOND)

struct weir_tally {
    struct weir_table *table;
    uint32_t slots;
    uint32_t link_count;
    bool slack;               /* slack is on */
    bool share_above;         /* stale, and the region's root computes
                               * `share` */
    uint32_t carrier;         /* link, or WEIR_CARRIER_NONE */
    bool carries;             /* there was a carrier: counts are to be handed
                               * over */
    bool inherited;           /* roots may hold more or less than is settled
                               * here: an earlier process sent the last
                               * reports */
    uint32_t limiters;        /* connected to a root: the largest number
                               * received in the last WEIR_FLEET_HOLD, or the
                               * last … */
    weir_instant limiters_at; /* … and when it came */
    weir_instant extrapolated_at;
    float ratio;               /* ratio of correction, learnt or given */
    float predicted, observed; /* sums for the learnt ratio */
    struct weir_tally_link link[WEIR_ROOTS_MAX];
    uint64_t *fresh;       /* bits: slots collected by the last call */
    uint64_t *recent;      /* … since the last interval */
    uint64_t *filled;      /* bits: slots that a root sent a fill of */
    uint64_t *share_mark;  /* count at the last extrapolation, for each slot
                            * … */
    uint64_t *share_whole; /* … and the region's; NULL: no region */
    struct weir_tally_pace *pace;  /* for each slot */
    struct weir_tally_hold *hold;  /* for each slot */
    uint64_t *paced;               /* bits: slots with a pace at some root */
    weir_duration report_interval; /* as the roots set it */
    weir_duration pace_held; /* of a region: for so long the others above are
                              * presumed to go on at a link without answers */
    struct weir_tally_handed *handed;   /* for each slot */
    struct weir_tally_carried *carried; /* for each slot; NULL: no region */
    struct weir_announce *announces;    /* scratch of a report */
    char *names;                        /* for their names */
    struct weir_count *counts;          /* scratch of a report */
    uint32_t audit_hand;                /* cursor of the audit */
};

#define WEIR_CARRIER_NONE UINT32_MAX

/* 'region': the tally of a region's root. */
size_t weir_tally_size(uint32_t slots, uint32_t links, bool region);
/* An array that starts at byte 'at' of a block, with 'bytes' for each slot. */
struct weir_slot_array {
    uint64_t at, bytes;
};
#define WEIR_TALLY_ARRAYS_MAX (6 + WEIR_ROOTS_MAX)
/* A tally's arrays of slots, in their order; returns how many. An element isn't
 * touched before the table uses its slot. The rest of the block is as large
 * for any number of slots, but for some bits each. */
uint32_t weir_tally_arrays(uint32_t slots, uint32_t links, bool region,
                           struct weir_slot_array out[WEIR_TALLY_ARRAYS_MAX]);
/* 'block': zeroed, 64-byte aligned. */
void weir_tally_init(struct weir_tally *tally, void *block,
                     struct weir_table *table, uint32_t slots, uint32_t links,
                     bool region, weir_instant now);

/* Takes the slots that the table has marked; every link is to report them.
 * 'all': also the slots collected, or with a pace, since the last call with
 * 'all'. */
void weir_tally_collect(struct weir_tally *tally, bool all, weir_instant now);

/* The link is connected: from now on no count is settled without its answer. */
void weir_tally_meet(struct weir_tally *tally, uint32_t link);
/* Decides the unanswered report of the last session. 'taken': the root took it,
 * or may have; else the units that it handed over are handed over again. Call
 * before weir_tally_begin(). */
void weir_tally_resolve(struct weir_tally *tally, uint32_t link, bool taken);
/* Begins a session: every cell must be announced anew. 'same_root': the root
 * remembers its answers, and was there for all counts. Else the counts are
 * those that other roots know, and every slot with a non-empty bucket is
 * announced. 'root_born': the latest possible birth of the root. */
void weir_tally_begin(struct weir_tally *tally, uint32_t link, uint64_t session,
                      bool same_root, weir_instant root_born, weir_instant now);
/* Whether the link's root has taken all fills that were announced to it as to a
 * cold root, so that another limiter over the same table needn't announce them
 * again. */
bool weir_tally_is_adopted(struct weir_tally *tally, uint32_t link);
/* The link is gone: its slack is no longer used. */
void weir_tally_end(struct weir_tally *tally, uint32_t link, weir_instant now);

/* Looks at the slots of the last weir_tally_collect() and those with a pace.
 * Returns the links, one bit each, with a slot that differs from the presumed
 * count by its slack or more. */
uint32_t weir_tally_look(struct weir_tally *tally, weir_instant now);
/* Whether weir_tally_look() is needed every few milliseconds. */
bool weir_tally_paced(const struct weir_tally *tally);

/* From now on units not handed over yet go to that link; units handed over to
 * other carriers stay with these. */
void weir_tally_carry(struct weir_tally *tally, uint32_t carrier);
/* A region: the slot's count holds 'ahead' units that are only presumed, and
 * presumably grows at 'pace'. */
void weir_tally_presume(struct weir_tally *tally, struct weir_ref ref,
                        uint64_t ahead, uint64_t pace);
/* A region: all its limiters together passed 'units' more in that slot (below
 * 0: too many were presumed). No effect if the ref's slot was reused. */
void weir_tally_region(struct weir_tally *tally, struct weir_ref ref,
                       int64_t units);
/* Some units of the next reports were counted since then. */
void weir_tally_late(struct weir_tally *tally, weir_instant since);
/* The bucket as the roots report it; while stale, as it is here, but at most
 * 'high'. False: no root has sent its fill. */
bool weir_tally_above(struct weir_tally *tally, struct weir_ref ref,
                      struct weir_above *out, weir_instant now);

/* Whether the link has counts to report, or unanswered ones. */
bool weir_tally_pending(const struct weir_tally *tally, uint32_t link);
/* Makes the next report (number + 1), or the unanswered one again. All of
 * 'out' but epoch and unknown is filled; borrowed until the next call. */
void weir_tally_report(struct weir_tally *tally, uint32_t link,
                       struct weir_report *out, weir_instant now);
/* Takes received fills; 0 or WEIR_EPROTOCOL. */
int weir_tally_fills(struct weir_tally *tally, uint32_t link,
                     const struct weir_fills *fills, weir_instant now);
/* Sets the root's report backoff; 0, as at a link's start: none. The slack of a
 * link with a backoff isn't used while another root answers without one. */
void weir_tally_report_backoff(struct weir_tally *tally, uint32_t link,
                               weir_duration report_backoff, weir_instant now);
/* The shorter of the last two round trips: one stall makes nothing older. */
static inline weir_duration weir_tally_round_trip(
    const struct weir_tally_link *link)
{
    return weir_shorter(link->round_trip[0], link->round_trip[1]);
}
/* Between reports to the link's root. */
static inline weir_duration weir_tally_interval(
    const struct weir_tally *tally, const struct weir_tally_link *link)
{
    return weir_longer(tally->report_interval, link->report_backoff);
}
/* For so long after it made a report the limiter relies on the report's paces
 * at the root, and no count is late. The root presumes them for at least as
 * long after it took the report. */
static inline weir_duration weir_tally_good(const struct weir_tally *tally,
                                            const struct weir_tally_link *link)
{
    return WEIR_PACE_INTERVALS *
           (weir_tally_interval(tally, link) + weir_tally_round_trip(link));
}
/* Looks at all links for silence, which changes the slack that is used. */
void weir_tally_listen(struct weir_tally *tally, weir_duration patience,
                       weir_instant now);

/* Turns slack on or off (off: report by time, never stop). */
void weir_tally_set_slack(struct weir_tally *tally, bool slack,
                          weir_instant now);
/* Stale: no root has answered for too long, and the stops are taken away; else
 * they are put back. 'false' also begins a span of extrapolation. */
void weir_tally_stale(struct weir_tally *tally, bool stale, weir_instant now);
/* Adds units that others presumably counted since the last call: their rate
 * times the ratio, or ('share') in proportion to our own counts. */
void weir_tally_extrapolate(struct weir_tally *tally, bool share,
                            weir_instant now);

/* Units a second that a slot passed lately; 0: none for ten seconds. */
double weir_tally_rate(const struct weir_tally *tally, uint32_t slot,
                       weir_instant now);
/* Our part of the units it passes in all, 0 .. 1, by the fills received: 1 if
 * no others show in an empty bucket; an equal part if nothing is known. */
double weir_tally_part(const struct weir_tally *tally, uint32_t slot);
/* The slot isn't counted any more: forgets the fills received. */
void weir_tally_unshare(struct weir_tally *tally, uint32_t slot,
                        weir_instant now);

/* This table is a forked copy: all counts belong to the parent process. */
void weir_tally_disown(struct weir_tally *tally, weir_instant now);

/* Audits the links, and their cells of the next 'n' slots, in a circle: an
 * assertion fails if what belongs together disagrees. */
void weir_tally_audit(struct weir_tally *tally, uint32_t n);

#endif /* WEIR_TALLY_H */
