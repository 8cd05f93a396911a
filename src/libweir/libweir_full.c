/* SPDX-License-Identifier: MIT
 * libweir/libweir_full.c - the words for a table without room.
 *
 * The limiter node counts quotas and requests that found no room. An operator
 * has to know as well what becomes of them, which is an option of the process,
 * and the reason: memory_max is used up, or the system has no memory. */

#include "libweir/libweir_full.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/table/table_grow.h"

weir_duration weir_full_age(struct weir *weir, uint64_t overflowed,
                            weir_instant now)
{
    if (weir->overflowed_seen != overflowed)
        weir->overflowed_at = now;
    weir->overflowed_seen = overflowed;
    return overflowed == 0 ? WEIR_NEVER : now - weir->overflowed_at;
}

/* The core's event names the first of so many quotas or, without a name, counts
 * requests; this says what becomes of them, and why. */
static void write_text(struct weir *weir, struct weir_event *event)
{
    char name[sizeof event->text];
    memcpy(name, event->text, sizeof name);
    uint32_t lacking = weir_table_lacking(weir->table);
    bool passes = weir->on_full == WEIR_ON_FULL_PASS;
    const char *rule = passes ? "pass" : "refuse";
    const char *verdict = passes ? "pass" : "are refused";
    const char *why = "raise memory_max";
    if (weir_table_growth_failed(weir->table))
        why = weir->block ? "the table's file system is full"
                          : "the system has no more memory";
    if (name[0] == '\0')
        snprintf(event->text, sizeof event->text,
                 "%" PRIu64 " requests by names without room: an overflow "
                 "quota decides, or they %s (on_full=%s); %s",
                 event->count, verdict, rule, why);
    else if (event->count == 0)
        snprintf(event->text, sizeof event->text,
                 "more leased quotas than leases_max: %s", name);
    else
        snprintf(event->text, sizeof event->text,
                 "%" PRIu32 " quotas have no room, and names without a quota "
                 "%s (on_full=%s); %s; the first: %s",
                 lacking, verdict, rule, why, name);
}

void weir_full_describe(struct weir *weir, struct weir_event *event)
{
    write_text(weir, event);
    event->count += event->count == 0;
    pthread_mutex_lock(&weir->mutex);
    (void)weir_full_age(weir, weir_table_overflowed(weir->table), event->at);
    pthread_mutex_unlock(&weir->mutex);
}
