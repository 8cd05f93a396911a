/* SPDX-License-Identifier: MIT
 * count/tally.h - counted sharing, the limiter's half: for each root and
 * slot, what the root knows and what it said; what is to be reported; what
 * the answers make of the table's buckets.
 *
 * Pure; the table's sync thread; memory of the caller. Sessions, hellos and
 * quotas are the limiter node's (node/limiter.c). */

#ifndef WEIR_TALLY_H
#define WEIR_TALLY_H

#include "count/above.h"
#include "count/message.h"
#include "quota/table.h"

/* What is known of one slot on one link. */
struct weir_tally_cell {
    uint64_t acked;  /* total that the root has answered for */
    uint64_t sent;   /* total in the unanswered report */
    uint64_t prompt; /* total that it answered for in time */
    uint64_t refused_acked;
    uint64_t refused_sent;
    int64_t fill;         /* as told, 1/1024 units … */
    uint64_t fill_total;  /* … our total in it … */
    uint64_t fill_ours;   /* … and all that is ours by then (tally_share.c) */
    weir_instant fill_at; /* … when … */
    uint64_t others_pace; /* … and what others presumably go on to add */
    uint64_t slack;       /* 1/1024 units */
    uint64_t pace;        /* what the root adds to 'acked' … */
    weir_instant pace_at; /* … since our report went … */
    weir_instant pace_held;  /* … and surely since its answer came */
    weir_instant unruled_at; /* it hasn't ruled what was counted since then; 0:
                              * it has */
    uint64_t pace_sent;      /* in the unanswered report */
    uint64_t ahead;      /* what the root adds to 'acked' from the start … */
    uint64_t ahead_sent; /* … by the unanswered report; units */
    int64_t carry;       /* handed over in the unanswered report */
    uint32_t created;    /* low half of its quota's, when it was begun */
    float others_per_s;  /* units: what others add, smoothed */
    float own, others;   /* units: what we and they added, fading … */
    weir_instant shared_at; /* … to a bucket that was half full, at last
                             * then; 0: what we added to an emptier one */
    uint32_t generation;    /* of the slot, when the cell was begun */
    uint32_t session;       /* low half of the one it was announced in */
    bool told;              /* fill, slack hold … */
    bool blind;     /* … and are those of a root that can't ask above */
    bool counted;   /* the root will tell a fill once it has counts */
    bool adopt;     /* fill is for a root that was just born … */
    bool witnessed; /* … and another root has spoken since */
    bool sank;      /* since the last answer the total may have sunk
                          * there */
    bool gauge;     /* its totals are what was in flight … */
    bool handed;    /* … and it answered last as the carrier */
    bool begun;
    bool reported; /* in the unanswered report, in this life */
};

/* How fast a slot passes, smoothed. */
struct weir_tally_pace {
    float per_s;
    uint64_t count; /* as of … */
    weir_instant at;
};

/* What a region's root knows of a slot and its count doesn't say. */
struct weir_tally_carried {
    uint64_t ahead; /* units of the count that it only presumes … */
    uint64_t pace;  /* … and the pace at which they become more */
    uint64_t whole; /* units that all of the region's limiters passed,
                     * presumed ones included, whoever carries them; modulo
                     * 2^64 */
};

/* What `hold` is to go on with, of a slot whose quota says so. The sums are
 * of times when there was something to refuse, and fade. */
struct weir_tally_hold {
    uint64_t count, refused; /* the table's, as of … */
    weir_instant at;
    weir_instant limited_at; /* when there was something to refuse, at last */
    float asked;             /* units, passed and refused … */
    float seconds;           /* … in so much time */
    float last;              /* the bucket's own probability, at last */
    uint32_t generation;     /* of the slot; 0: none yet */
};

/* What was handed to carriers of a slot's count, in all. */
struct weir_tally_handed {
    uint64_t total;
    uint32_t generation; /* of the slot; 0: none yet */
    bool gauge;          /* nothing is: a carrier goes by all that is in
                          * flight (tally_carry.c) */
};

/* One root link. */
struct weir_tally_link {
    struct weir_tally_cell *cells; /* a cell a slot */
    uint64_t *dirty;               /* bits: slots to report */
    uint32_t *outstanding;         /* slots of the unanswered report */
    uint32_t outstanding_count;
    uint32_t hand;          /* where the next report goes on: the last one had
                              * no room for the slots from here … */
    uint32_t announce_hand; /* … nor for announcing those from here */
    bool left_out;          /* … so another is to follow soon */
    weir_instant announced_till; /* what was announced is worth so long */
    weir_instant round_at;       /* when the report was made that began at 0 */
    uint64_t number;             /* of the last report made */
    bool unanswered;
    bool meeting;          /* connected, not welcomed yet */
    bool up;               /* welcomed */
    bool answering;        /* answered lately: its slack may rule … */
    weir_duration stretch; /* … if this is 0, or no such link's is: the root
                              * asks for reports that far apart */
    weir_instant answered_at;
    weir_instant sent_at;    /* the unanswered report, at first */
    weir_instant made_at;    /* reports that left nothing out began … */
    weir_instant acked_at;   /* … and the last that was answered */
    bool missed;             /* something was counted while it was down */
    bool carried;            /* the unanswered report went to a carrier */
    bool hurry;              /* there is more to be said of who carries */
    weir_instant late_since; /* of what was carried late; 0: nothing */
    uint64_t session;
    uint64_t stamp; /* of the newest fills */
};

/* That limiters have gone is believed only when so many were heard of no more
 * for so long: a root that was born just now counts them as they come back,
 * and who takes its part of the limit by that would take too much. */
#define WEIR_FLEET_HOLD (10 * WEIR_SECOND)

struct weir_tally {
    struct weir_table *table;
    uint32_t slots;
    uint32_t link_count;
    bool slack;               /* slack is on */
    bool share_above;         /* stale, and `share` is the region's root's */
    uint32_t carrier;         /* link, or WEIR_CARRIER_NONE */
    bool carries;             /* there was one: counts are to be handed over */
    bool inherited;           /* roots may hold less or more than is settled
                              * here: what was told last wasn't by us */
    uint32_t limiters;        /* connected to a root: the most that was told
                              * in the last WEIR_FLEET_HOLD, or the last */
    weir_instant limiters_at; /* when it was */
    weir_instant extrapolated_at;
    float ratio;               /* of correction, learnt or given */
    float predicted, observed; /* what the learnt ratio comes from */
    struct weir_tally_link link[WEIR_ROOTS_MAX];
    uint64_t *fresh;       /* bits: collected just now */
    uint64_t *recent;      /* … since the last interval */
    uint64_t *told;        /* bits: slots that some root spoke of */
    uint64_t *share_mark;  /* count at the last extrapolation, a slot … */
    uint64_t *share_whole; /* … and the region's; NULL: not a region's */
    struct weir_tally_pace *pace; /* a slot */
    struct weir_tally_hold *hold; /* a slot */
    uint64_t *paced;        /* bits: slots that a root adds to by itself */
    weir_duration interval; /* between reports */
    struct weir_tally_handed *handed;   /* a slot */
    struct weir_tally_carried *carried; /* a slot; NULL: not a region's */
    struct weir_announce *announces;    /* scratch of a report */
    char *names;                        /* theirs */
    struct weir_count *counts;          /* scratch of a report */
};

#define WEIR_CARRIER_NONE UINT32_MAX

/* 'region': it speaks for a region's root. */
size_t weir_tally_size(uint32_t slots, uint32_t links, bool region);
/* 'block': zeroed, 64-byte aligned. */
void weir_tally_init(struct weir_tally *tally, void *block,
                     struct weir_table *table, uint32_t slots, uint32_t links,
                     bool region, weir_instant now);

/* Takes what the table has marked: every link has it to report. 'all': and
 * what was taken, or is presumed, since it was last asked for all. */
void weir_tally_collect(struct weir_tally *tally, bool all, weir_instant now);

/* The link is connected: from now on nothing is settled without it. */
void weir_tally_meet(struct weir_tally *tally, uint32_t link);
/* The unanswered report of the last session is in doubt: 'taken', or it may
 * have been; else what it handed over is handed over again. Before
 * weir_tally_begin(). */
void weir_tally_resolve(struct weir_tally *tally, uint32_t link, bool taken);
/* A session begins: every cell must be announced anew. 'same_root': the root
 * remembers what it answered, and has been there for all that was counted;
 * else only what other roots know is known, and every slot with something in
 * its bucket is announced. 'root_born': at the latest. */
void weir_tally_begin(struct weir_tally *tally, uint32_t link, uint64_t session,
                      bool same_root, weir_instant root_born, weir_instant now);
/* The link is gone: its slack rules no more. */
void weir_tally_end(struct weir_tally *tally, uint32_t link, weir_instant now);

/* Of the slots of the last weir_tally_collect() and those with a pace: links on
 * which one has left what the root presumes, by its slack or more. One bit a
 * link. */
uint32_t weir_tally_look(struct weir_tally *tally, weir_instant now);
/* Whether a look is wanted every some milliseconds. */
bool weir_tally_paced(const struct weir_tally *tally);

/* From now on what wasn't handed over goes to that link. Others may stand for
 * what they were handed. */
void weir_tally_carry(struct weir_tally *tally, uint32_t carrier);
/* A region: the slot's count holds 'ahead' units that are only presumed, and
 * presumably grows at 'pace'. */
void weir_tally_presume(struct weir_tally *tally, struct weir_ref ref,
                        uint64_t ahead, uint64_t pace);
/* A region: all its limiters together passed 'units' more there (below 0: fewer
 * were presumed rightly). Nothing happens if the ref's life is over. */
void weir_tally_region(struct weir_tally *tally, struct weir_ref ref,
                       int64_t units);
/* Some of what is reported next was counted since then. */
void weir_tally_late(struct weir_tally *tally, weir_instant since);
/* The bucket as roots tell it; where none is to be asked, as it is here, but
 * not above 'high'. False: none has told of it. */
bool weir_tally_above(struct weir_tally *tally, struct weir_ref ref,
                      struct weir_above *out, weir_instant now);

/* Whether the link has counts to report, or unanswered ones. */
bool weir_tally_pending(const struct weir_tally *tally, uint32_t link);
/* Makes the next report (number + 1), or the unanswered one again. All of
 * 'out' but epoch and unknown is filled; borrowed until the next call. */
void weir_tally_report(struct weir_tally *tally, uint32_t link,
                       struct weir_report *out, weir_instant now);
/* Takes fills; 0 or WEIR_EPROTOCOL. */
int weir_tally_fills(struct weir_tally *tally, uint32_t link,
                     const struct weir_fills *fills, weir_instant now);
/* The root asks for reports that far apart; 0, as a link begins: as often as
 * there is reason. Its slack doesn't rule beside roots that answer and have
 * time. Does not set 'interval'. */
void weir_tally_stretch(struct weir_tally *tally, uint32_t link,
                        weir_duration stretch, weir_instant now);
/* Whose slack rules may have changed by silence: looks at all links. */
void weir_tally_listen(struct weir_tally *tally, weir_duration patience,
                       weir_instant now);

/* Turns slack on or off (off: report by time, never stop). */
void weir_tally_set_slack(struct weir_tally *tally, bool slack,
                          weir_instant now);
/* No root has answered for too long, or one does again: stops are taken away
 * or put back. 'false' also begins a span of extrapolation. */
void weir_tally_stale(struct weir_tally *tally, bool stale, weir_instant now);
/* Adds what others presumably counted since the last call: by their rate
 * times the ratio, or ('share') in proportion to our own counts. */
void weir_tally_extrapolate(struct weir_tally *tally, bool share,
                            weir_instant now);

/* Units a second that a slot lately passed here; 0: none for ten seconds. */
double weir_tally_rate(const struct weir_tally *tally, uint32_t slot,
                       weir_instant now);
/* Our part of what it passes in all, 0 .. 1, by what roots tell: 1 where others
 * don't show in an empty bucket; an equal one where nothing is known. */
double weir_tally_part(const struct weir_tally *tally, uint32_t slot);
/* The slot isn't counted any more: what roots told of it rules it no longer. */
void weir_tally_unshare(struct weir_tally *tally, uint32_t slot,
                        weir_instant now);

/* This table is a copy: all that was counted is the other's. */
void weir_tally_disown(struct weir_tally *tally, weir_instant now);

#endif /* WEIR_TALLY_H */
