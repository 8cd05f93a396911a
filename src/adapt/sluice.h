/* SPDX-License-Identifier: MIT
 * adapt/sluice.h - the gate: who may be in flight, under a limit that moves.
 *
 *     struct weir_sluice_permit permit;
 *     if (!weir_sluice_enter(sluice, klass, 1, &permit, now))
 *         … refused; weir_sluice_wait() guesses for how long …
 *     … the request …
 *     weir_sluice_leave(sluice, &permit, WEIR_SAMPLE_SUCCESS, now);
 *
 * A sluice has a controller in it (adapt/controller.h), which hears of each
 * request that leaves and says what the limit is. Nothing else is needed:
 * whoever enters, is refused or leaves when a window's time is over, closes
 * it. A thread of one's own that calls weir_sluice_tick() is welcome and not
 * necessary; where nobody comes, it doesn't matter what the limit is.
 *
 * The limit. Without classes, at the moment when a permit is given, no more
 * than the limit is in flight (rounded up, see below), however many threads
 * race. A limit that falls below what is in flight takes nothing away: it
 * refuses until enough have left. Below one, a limit of f is one permit that is
 * given at most once every mean latency / f: one of 0.25 is one in flight, then
 * a pause of three times as long, and so f in flight on average. Twenty
 * processes in front of a storage that bears eleven requests need that: they
 * can't have one each. Above one, what is behind the point is one permit more,
 * given as rarely: on average it adds at most the fraction. Who comes a little
 * late for his turn doesn't put off the next one, by up to half a pause.
 * However small the limit, a pause is at most ten seconds, so that it is found
 * out when more is possible.
 *
 * Groups. A permit may be of several units (a page and all of its queries): it
 * gets all of them or none. A group larger than the whole limit is let in when
 * nothing else is in flight, and then in such intervals that on average the
 * limit holds.
 *
 * Classes. Each has a share of the limit, of which it is sure: while less is
 * in flight of it, it is let in, even if others who have borrowed it fill the
 * limit. Above its share it may borrow what nobody uses. A class without a
 * share only borrows: it is refused first. Of a class that is 'observed' none
 * is ever refused, but it is in flight like all others, so that it is the
 * others who make room. In all, whatever the race, no more is in flight than
 * the limit, and the shares, and what is observed.
 *
 * Permits that go astray. One given back twice is given back once; one that is
 * copied and given back twice may cost another its place in the count, but
 * never makes the count wrong for longer than until that one leaves. One that
 * is never given back is written off after 'lost_after'; if it does come back,
 * nothing happens.
 *
 * Edits. A sluice can go by other options from now on; what is in flight stays,
 * and leaves by its permit as ever, and the limit stays as far as they allow. A
 * class that keeps name and number keeps its count; of any other what is in
 * flight counts in the sum alone.
 *
 * Threads: enter, leave, wait and view from any number at once. Enter is
 * lock-free, a refusal writes nothing that another thread reads. Leave waits
 * for nobody: one thread at a time speaks to the controller, the others put
 * their sample down for it (STASH in sluice.c; when that is full the sample is
 * lost, and counted). A permit is one thread's at a time. Plain memory without
 * pointers; after fork() the child needs another, because a thread may have
 * been in the middle of it. */

#ifndef WEIR_SLUICE_H
#define WEIR_SLUICE_H

#include "adapt/controller.h"

#define WEIR_SLUICE_CLASSES_MAX 8
#define WEIR_SLUICE_NAME_MAX 31          /* bytes of a class's name */
#define WEIR_SLUICE_UNITS_MAX (1u << 23) /* in flight, observed included */

struct weir_sluice_class {
    char name[WEIR_SLUICE_NAME_MAX + 1]; /* unique; the only one's may be "" */
    double share_percent; /* of the limit; >= 0, in all at most 100. Rounded up
                           * to whole permits, at least one if not 0 */
    bool observed;        /* never refused; 'share_percent' is 0 then */
    bool unheard;         /* the controller isn't told of its requests */
};

struct weir_sluice_options {
    struct weir_controller_options controller;
    uint32_t classes; /* 1 .. WEIR_SLUICE_CLASSES_MAX */
    struct weir_sluice_class class_of[WEIR_SLUICE_CLASSES_MAX];
    /* Older permits are written off, when at least so old and at most a little
     * more than twice; 0: never. */
    weir_duration lost_after;
};

/* One class, "", without a share; the controller's defaults for 'kind'. */
void weir_sluice_defaults(struct weir_sluice_options *options,
                          enum weir_controller_kind kind);
/* WEIR_OK or WEIR_EINVAL, with 'diag' (or NULL) saying which. */
int weir_sluice_check(const struct weir_sluice_options *options,
                      struct weir_diag *diag);

struct weir_sluice;
/* Bytes, by the options. */
size_t weir_sluice_size(const struct weir_sluice_options *options);
/* Makes one in 'block', aligned to WEIR_CACHE_LINE; the options must be sound,
 * and are copied. */
struct weir_sluice *weir_sluice_init(void *block,
                                     const struct weir_sluice_options *options,
                                     weir_instant now);

/* The number of a class by its name, or -1. */
int weir_sluice_class(const struct weir_sluice *sluice, struct weir_text name);

/* The lock-free calls may go on meanwhile. The options must be sound, and the
 * block large enough for their kind. 'anew': it is another one's from now on:
 * nothing is in flight, all that was learned is forgotten, and permits of
 * before hold nothing. False: another thread is at the controller, nothing has
 * changed; ask again. */
bool weir_sluice_edit(struct weir_sluice *sluice,
                      const struct weir_sluice_options *options, bool anew,
                      weir_instant now);
/* What an enter holds: plain memory of the caller's. All zero, it holds
 * nothing. */
struct weir_sluice_permit {
    weir_instant entered;
    uint32_t units;     /* 0: it holds nothing */
    uint32_t in_flight; /* when it was given, itself included */
    uint16_t life;      /* of all: which generation it counts in */
    uint16_t class_life;
    uint16_t klass;
    bool counted; /* in its class */
};

/* One of no class has no share: it gets what is left of the limit. */
#define WEIR_SLUICE_CLASS_NONE UINT16_MAX
/* Asks for 'units' (1 .. WEIR_PERMITS_MAX) for a class by its number; a number
 * that no class has is as good as none. 'out_permit' is written in any case;
 * refused, it holds nothing. */
bool weir_sluice_enter(struct weir_sluice *sluice, uint32_t klass,
                       uint32_t units, struct weir_sluice_permit *out_permit,
                       weir_instant now);
/* The same for what the class is sure of alone: within its share, or observed.
 * What may be borrowed is left to others, who wait for it. */
bool weir_sluice_enter_sure(struct weir_sluice *sluice, uint32_t klass,
                            uint32_t units,
                            struct weir_sluice_permit *out_permit,
                            weir_instant now);

/* So many units are in flight that went another way in: the permit may be given
 * back in parts, as ignored. It holds nothing if there are too many. */
struct weir_sluice_permit weir_sluice_found(struct weir_sluice *sluice,
                                            uint32_t units);

/* Gives back what the permit holds and empties it; one that holds nothing is
 * legal. The time in flight is the sample's latency. */
void weir_sluice_leave(struct weir_sluice *sluice,
                       struct weir_sluice_permit *permit,
                       enum weir_sample_outcome outcome, weir_instant now);

/* Who was just refused, when should he come again? A guess, > 0: at least
 * until a fraction's turn, else until the next is likely to leave. */
weir_duration weir_sluice_wait(const struct weir_sluice *sluice,
                               weir_instant now);

/* Any thread, wait-free: how many units of no class might enter now, and how
 * many are in flight. */
uint32_t weir_sluice_room(const struct weir_sluice *sluice, weir_instant now);
uint32_t weir_sluice_held(const struct weir_sluice *sluice);
/* The limit in force; likewise. */
double weir_sluice_limit(const struct weir_sluice *sluice);

/* Does what is due, if it is, and if no other thread is at it. */
void weir_sluice_tick(struct weir_sluice *sluice, weir_instant now);
/* When something may be due; see the head of this file. */
weir_instant weir_sluice_deadline(const struct weir_sluice *sluice);
/* When somebody may be let in who was just refused, though nobody leaves: at a
 * fraction's turn, or when a window is over. */
weir_instant weir_sluice_due(const struct weir_sluice *sluice,
                             weir_instant now);

struct weir_sluice_view {
    struct weir_controller_view controller;
    uint32_t in_flight;
    uint32_t in_flight_of[WEIR_SLUICE_CLASSES_MAX];
    uint32_t share_of[WEIR_SLUICE_CLASSES_MAX]; /* permits */
    uint32_t overdue;                           /* in flight for at least … */
    weir_duration overdue_age;
    uint64_t lost;         /* units written off */
    uint64_t lost_samples; /* nobody had room for */
};
/* False: another thread is at the controller; 'out' is as it was. */
bool weir_sluice_view(struct weir_sluice *sluice, struct weir_sluice_view *out,
                      weir_instant now);

#endif /* WEIR_SLUICE_H */
