/* SPDX-License-Identifier: MIT
 * libweir/libweir_adaptive.c - views of a process's adaptive limits, and quotas
 * that the process defines itself.
 *
 * A concurrency gate needs no thread of its own: enters and leaves do its work.
 * The background thread ticks it when it is awake anyway, so that a limit is
 * moved although no request comes: by overdue permits, say. */

#include "libweir/libweir_decide.h"

#include <stdio.h>
#include <string.h>

#include "core/base/atomic.h"
#include "core/concurrency/concurrency_gate.h"
#include "core/quota/quota_adaptive.h"
#include "io/clock.h"

/* ---- Limits ---- */

uint32_t weir_class(const char *name, size_t len)
{
    return weir_class_number((struct weir_text){ name, len });
}

int weir_adaptive(struct weir_handle quota, struct weir_adaptive *out,
                  weir_instant now)
{
    struct weir *weir = quota.weir;
    struct weir_concurrency_gate_view view;
    if (!weir)
        return WEIR_ENOENT;
    weir_own_ensure(weir);
    struct weir_ref ref = { quota.slot, quota.generation };
    if (!weir_table_ref_lives(weir->table, ref) ||
        !weir_table_adaptive(weir->table, ref.slot, &view,
                             now ? now : weir_clock_now()))
        return WEIR_ENOENT;
    const struct weir_controller_view *controller = &view.controller;
    enum weir_gate_source source =
        weir_table_gate_source(weir->table, ref.slot);
    *out = (struct weir_adaptive){
        .limit = controller->limit,
        .before = controller->before,
        .reason = weir_limit_reason_text(controller->reason),
        .moved_at = controller->moved_at,
        .latency = controller->latency,
        .windows = controller->windows,
        .in_flight = view.in_flight,
        .overdue = view.overdue,
        .overdue_age = view.overdue_age,
        .lost = view.lost,
        .fleet = source != WEIR_GATE_OWN,
        .alone = source == WEIR_GATE_ALONE,
    };
    return WEIR_OK;
}

/* Once, until all have found room again. */
static void send_adaptive_full(struct weir *weir, uint32_t wanting,
                               weir_instant now)
{
    struct weir_event event = { .type = WEIR_EVENT_ADAPTIVE_FULL,
                                .at = now,
                                .count = wanting };
    snprintf(event.text, sizeof(event.text),
             "%u adaptive quotas have no limit of their own and let all pass; "
             "adaptive_max is %u",
             wanting, weir->gate_slots);
    weir_event_send(weir, &event);
}

void weir_adaptive_look(struct weir *weir, weir_instant now)
{
    uint32_t wanting;
    weir_table_tick(weir->table, now);
    /* Relaxed: only this thread writes it. */
    weir_table_set_fleet(weir->table, weir_load_relaxed(&weir->fleet), now);
    (void)weir_table_adaptives(weir->table, &wanting);
    if (wanting > 0 && !weir->full_sent)
        send_adaptive_full(weir, wanting, now);
    weir->full_sent = wanting > 0;
}

/* ---- Quotas defined here ---- */

static int set_defined_field(struct weir_quota *quota, const char *text,
                             struct weir_diag *diag)
{
    const char *equals = strchr(text, '=');
    if (!equals)
        return weir_diag_put(diag, WEIR_EQUOTA,
                             "a field is written as limit=100/s");
    struct weir_text field = { text, (size_t)(equals - text) };
    return weir_quota_set(quota, field, weir_text_of(equals + 1), diag);
}

/* 'labels': room for them. */
static int read_defined_quota(const char *const *fields,
                              struct weir_quota *quota, char *labels,
                              struct weir_diag *diag)
{
    int error = 0;
    weir_quota_init(quota);
    quota->created = quota->epoch = 1;
    for (size_t i = 0; fields[i] && error == 0; i++)
        error = set_defined_field(quota, fields[i], diag);
    if (error == 0)
        error = weir_labels_parse(quota->labels, labels, &quota->labels, diag);
    return error < 0 ? error : weir_quota_check(quota, diag);
}

int weir_define(struct weir *weir, const char *const *fields, char *why,
                size_t size)
{
    struct weir_quota quota;
    struct weir_diag diag = { .text = "" };
    char labels[WEIR_LABELS_MAX];
    if (!weir || !fields || weir->link_count > 0 || weir->block)
        return WEIR_EINVAL;
    int error = read_defined_quota(fields, &quota, labels, &diag);
    if (error < 0) {
        if (why && size > 0)
            snprintf(why, size, "%s", diag.text);
        return error;
    }
    weir_own_ensure(weir);
    struct weir_lock_wait wait;
    weir_lock_wait_begin(weir, &wait, weir_handle_wait(weir));
    do {
        uint32_t had;
        pthread_mutex_lock(&weir->defining);
        do {
            had = weir_table_committed(weir->table);
            error = weir_table_put(weir->table, &quota, weir_clock_now());
        } while (error == WEIR_EFULL && weir_grow(weir, had));
        pthread_mutex_unlock(&weir->defining);
    } while (error == WEIR_ETIMEOUT && weir_lock_wait(weir, &wait));
    weir_locks_heed(weir);
    weir_pump_kick(weir); /* zones and stores that it names */
    return error;
}
