/* SPDX-License-Identifier: MIT
 * lab/model_doorman_agenda.c - actions by instant.
 *
 * A binary heap by instant, and within an instant by the order of posting. The
 * world (world.h) draws that order instead, which suits a network; but the
 * original has the order of posting, and mishaps should be the same under both
 * rules. */

#include "lab/memory.h"
#include "lab/model_doorman.h"

static bool is_before(const struct weir_doorman_action *a,
                      const struct weir_doorman_action *b)
{
    return a->at != b->at ? a->at < b->at : a->number < b->number;
}

void weir_doorman_post(struct weir_doorman *stage, weir_instant at,
                       void (*run)(struct weir_doorman *stage, uint32_t which,
                                   weir_instant now),
                       uint32_t which)
{
    struct weir_doorman_agenda *agenda = &stage->agenda;
    const struct weir_doorman_action action = {
        .at = at, .number = agenda->posted++, .run = run, .which = which
    };
    agenda->heap = weir_must_grow(agenda->heap, &agenda->capacity,
                                  agenda->count + 1, sizeof *agenda->heap);
    size_t i = agenda->count++;
    for (; i > 0 && is_before(&action, &agenda->heap[(i - 1) / 2]);
         i = (i - 1) / 2)
        agenda->heap[i] = agenda->heap[(i - 1) / 2];
    agenda->heap[i] = action;
}

static struct weir_doorman_action take_first(struct weir_doorman_agenda *agenda)
{
    struct weir_doorman_action first = agenda->heap[0];
    struct weir_doorman_action last = agenda->heap[--agenda->count];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child + 1 < agenda->count &&
            is_before(&agenda->heap[child + 1], &agenda->heap[child]))
            child++;
        if (child >= agenda->count || !is_before(&agenda->heap[child], &last))
            break;
        agenda->heap[i] = agenda->heap[child];
        i = child;
    }
    agenda->heap[i] = last;
    return first;
}

weir_instant weir_doorman_due(const struct weir_doorman *stage)
{
    return stage->agenda.count > 0 ? stage->agenda.heap[0].at : WEIR_NEVER;
}

void weir_doorman_run_due(struct weir_doorman *stage, weir_instant now)
{
    struct weir_doorman_agenda *agenda = &stage->agenda;
    uint64_t end = agenda->posted;
    while (weir_doorman_due(stage) <= now && agenda->heap[0].number < end) {
        struct weir_doorman_action action = take_first(agenda);
        action.run(stage, action.which, now);
    }
}
