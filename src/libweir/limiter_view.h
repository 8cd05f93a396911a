/* SPDX-License-Identifier: MIT
 * libweir/limiter_view.h - read-only views of a limiter: its quotas and roots,
 * for the agent's page and for answers to foreign clients. Not part of the
 * library's own interface. */

#ifndef WEIR_LIMITER_VIEW_H
#define WEIR_LIMITER_VIEW_H

#include "core/table/table.h"
#include "core/table/table_view.h"

#define WEIR_LIMITER_VIEW_WHY_MAX 160

struct weir;

/* Slots ever used: weir_limiter_view_at() finds nothing beyond them. Any
 * thread, as all here. */
uint32_t weir_limiter_view_slots(const struct weir *weir);
/* weir_table_details(), as this process. */
bool weir_limiter_view_at(struct weir *weir, uint32_t slot,
                          struct weir_slot_details *out, weir_instant now);
/* Its name alone, as weir_table_name(): cheaper, for a walk. */
size_t weir_limiter_view_name(const struct weir *weir, uint32_t slot,
                              char *buf);
/* weir_limiter_view_at() of the slot of that name; 'make': makes an instance
 * by its template first, as at its first use. */
bool weir_limiter_view_find(struct weir *weir, struct weir_text name, bool make,
                            struct weir_slot_details *out, uint32_t *out_slot,
                            weir_instant now);

/* When units of a quota are free again, for answers to foreign clients. */
struct weir_limiter_view_reset {
    enum weir_mode mode;
    bool has_window;          /* a window of the clock: its units are free at
                               * its end, and none before */
    weir_duration window_end; /* from now on; > 0 */
    /* Without a window, a bucket of this process, in units: */
    double fill, low, high;
    double per_s; /* leaks; > 0 */
};
/* Of the quota or instance of that name, as weir_reply has it. False: there is
 * none, it limits nothing, or it is decided in another way: by other
 * algorithms, in flight, or its lock is taken. */
bool weir_limiter_view_reset(struct weir *weir, struct weir_text name,
                             struct weir_limiter_view_reset *out,
                             weir_instant now);

/* One of its roots. */
struct weir_limiter_view_root {
    char address[280]; /* as in the options */
    bool up;
    weir_instant received_at;            /* of its last message; 0: never */
    uint64_t epoch;                      /* the newest it sent; 0: none */
    char why[WEIR_LIMITER_VIEW_WHY_MAX]; /* why it isn't up; "": unknown */
};
/* Fills 'out' (WEIR_ROOTS_MAX); returns how many. On a shared table with the
 * reporter in another process: 0, the links are there. */
uint32_t weir_limiter_view_roots(struct weir *weir,
                                 struct weir_limiter_view_root *out);
/* Limiters connected to a root, this one included, as last received; at least
 * 1. */
uint32_t weir_limiter_view_fleet(const struct weir *weir);

#endif /* WEIR_LIMITER_VIEW_H */
