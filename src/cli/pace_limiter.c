/* SPDX-License-Identifier: MIT
 * cli/pace_limiter.c - gates other than the pacer: one of the algorithms
 * alone, or a live quota.
 *
 * An algorithm is asked at the instant at which the unit could have gone, not
 * at the wake-up of this process: a wake-up comes some dozens of microseconds
 * late, and at 1,000 units a second those would be lost each time. It is never
 * asked for an instant more than WEIR_PACE_LAG ago.
 *
 * A live quota is asked by weir_reserve(): the units are taken at once and may
 * go after a wait, so that several processes get their turns in order. */

#include "cli/pace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/quota/quota_bucket.h"

#define READY_TIMEOUT (5 * WEIR_SECOND)
#define WAIT_MAX WEIR_SECOND
#define BYTES_AT_ONCE 4096
/* A request for bytes is for this part of a window's units. */
#define CHUNKS_A_WINDOW 100

/* ---- By an algorithm ---- */

int weir_pace_gate_algorithm(struct weir_pace_gate *gate,
                             const struct weir_quota *quota,
                             const struct weir_pace_unit *unit)
{
    weir_quota_algorithm_rule(quota, 0, &gate->rule);
    gate->chunk = unit->by == WEIR_PACE_BYTE
                      ? gate->rule.quantity / CHUNKS_A_WINDOW + 1
                      : 1;
    gate->state = calloc(1, weir_algorithm_size(&gate->rule));
    return gate->state ? 0 : weir_cli_fail("%s", weir_strerror(WEIR_ENOMEM));
}

static uint64_t take_algorithm(struct weir_pace_gate *gate, uint64_t most,
                               weir_instant now)
{
    weir_assert(gate->chunk > 0);
    if (gate->seen == 0)
        gate->seen = now;
    if (now - gate->seen > WEIR_PACE_LAG && now > gate->seen)
        gate->seen = now - WEIR_PACE_LAG;
    uint64_t count = 0;
    while (count < most && gate->seen <= now) {
        const struct weir_algorithm_ask ask = {
            .op = WEIR_ALGORITHM_TAKE,
            .weight = gate->chunk < most - count ? gate->chunk : most - count,
        };
        struct weir_algorithm_answer answer;
        weir_algorithm_step(&gate->rule, gate->state, &ask, &answer,
                            gate->seen);
        if (answer.passed) {
            count += ask.weight;
            continue;
        }
        gate->seen = weir_after(gate->seen, answer.retry_after);
    }
    weir_assert(count <= most);
    gate->next = gate->seen;
    return count;
}

/* ---- By a live quota ---- */

static int refuse_unknown_quota(const char *name)
{
    return weir_cli_fail("no quota rules '%s', and a name without quota "
                         "goes as fast as it can; make one: weir quota set %s "
                         "limit=1000/s",
                         name, name);
}

static int open_gate_quota(struct weir_pace_gate *gate,
                           const struct weir_cli *cli, const char *name)
{
    if (weir_ready(gate->weir, READY_TIMEOUT) < 0)
        return weir_cli_unready(gate->weir, cli->roots, NULL);
    int error = weir_handle_open(gate->weir, name, strlen(name), &gate->handle);
    if (error < 0)
        return weir_cli_fail("%s: %s", name, weir_strerror(error));
    struct weir_reply reply;
    weir_peek(gate->handle, 0, &reply, 0);
    if (reply.unknown)
        return refuse_unknown_quota(name);
    /* So that the first units respect the counts of others. */
    if (weir_sync(gate->weir, READY_TIMEOUT) < 0)
        fprintf(stderr, "weir: no root answered in time; going on the "
                        "counts of this process\n");
    return 0;
}

int weir_pace_gate_quota(struct weir_pace_gate *gate,
                         const struct weir_cli *cli, const char *name,
                         const struct weir_pace_unit *unit)
{
    char called[WEIR_NAME_MAX + 1];
    struct weir_options options = WEIR_OPTIONS_INIT;
    snprintf(called, sizeof called, "weir pace %.200s", name);
    options.name = called;
    gate->chunk = unit->by == WEIR_PACE_BYTE ? BYTES_AT_ONCE : 1;
    int status = weir_cli_open(cli, &options, &gate->weir);
    return status ? status : open_gate_quota(gate, cli, name);
}

/* After a refusal: asks for less if less would pass, later if not. */
static void put_off(struct weir_pace_gate *gate, const struct weir_reply *reply,
                    weir_instant now)
{
    weir_assert(gate->chunk > 0);
    weir_duration wait = reply->retry_after;
    bool less = reply->never && gate->chunk > 1;
    gate->chunk = less ? gate->chunk / 2 : gate->chunk;
    wait = wait < WEIR_MILLISECOND ? WEIR_MILLISECOND : wait;
    wait = wait > WAIT_MAX ? WAIT_MAX : wait;
    gate->next = less ? now : now + wait;
}

static bool note_unknown(struct weir_pace_gate *gate,
                         const struct weir_reply *reply, weir_instant now)
{
    if (!reply->unknown)
        return false;
    if (!gate->unknown)
        fprintf(stderr, "weir: the quota has gone; waiting for it to come "
                        "back\n");
    gate->unknown = true;
    gate->next = now + WAIT_MAX;
    return true;
}

static uint64_t take_quota(struct weir_pace_gate *gate, uint64_t most,
                           weir_instant now)
{
    weir_assert(gate->weir && gate->chunk > 0);
    uint64_t count = 0;
    if (gate->reserved > 0 && now < gate->go_at)
        return 0;
    if (gate->reserved > most) {
        gate->reserved -= most;
        return most;
    }
    count = gate->reserved;
    gate->reserved = 0;
    while (count < most) {
        struct weir_reply reply;
        uint64_t weight =
            gate->chunk < most - count ? gate->chunk : most - count;
        enum weir_verdict verdict =
            weir_reserve(gate->handle, weight, WAIT_MAX, &reply, now);
        if (note_unknown(gate, &reply, now))
            break;
        if (verdict == WEIR_LIMITED) {
            put_off(gate, &reply, now);
            break;
        }
        if (reply.wait == 0) {
            count += weight;
            continue;
        }
        gate->reserved = weight;
        gate->go_at = gate->next = now + reply.wait;
        break;
    }
    return count;
}

uint64_t weir_pace_gate_take(struct weir_pace_gate *gate, uint64_t most,
                             weir_instant now)
{
    return gate->state ? take_algorithm(gate, most, now)
                       : take_quota(gate, most, now);
}

void weir_pace_gate_fini(struct weir_pace_gate *gate, weir_instant now)
{
    free(gate->state);
    if (!gate->weir)
        return;
    if (gate->reserved > 0)
        weir_refund(gate->handle, gate->reserved, now);
    weir_handle_close(gate->handle);
    weir_close(gate->weir);
}
