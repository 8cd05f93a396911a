/* SPDX-License-Identifier: MIT
 * server/admin/admin_status.c - the state of the root: for people, for `weir
 * top`, for Prometheus, and for the supervisor that restarts the root. */

#include <stdio.h>
#include <stdlib.h>

#include "core/concurrency/controller.h"
#include "server/admin/admin_internal.h"
#include "server/metrics/metrics.h"

/* ---- GET /v1/status ---- */

static json_t *duration(weir_duration value)
{
    char buf[64];
    size_t len = weir_duration_format(value, buf, sizeof buf);
    return json_stringn(buf, len);
}

static json_t *settings_object(const struct weir_settings *settings)
{
    json_t *ratio = settings->correction_auto
                        ? json_string("auto")
                        : json_real(settings->correction_ppm / 1e6);
    return json_pack("{s:o, s:o, s:b, s:o}", "report_interval",
                     duration(settings->report_interval), "stale_after",
                     duration(settings->stale_after), "slack", settings->slack,
                     "correction_ratio", ratio);
}

static json_t *store_object(const struct weir_admin *admin)
{
    char uuid[33];
    struct weir_store_id id;
    weir_root_identity(admin->root, &id);
    weir_view_hex(id.uuid, sizeof id.uuid, uuid);
    const char *state = !admin->trouble                  ? "ok"
                        : admin->trouble == WEIR_ELOCKED ? "locked"
                                                         : "unreachable";
    json_t *object =
        json_pack("{s:s*, s:s, s:s, s:I}", "url", admin->store_url, "state",
                  state, "uuid", uuid, "restores", (json_int_t)id.restores);
    if (object && admin->bad.count > 0)
        json_object_set_new(object, "bad_rows", weir_admin_bad_rows(admin));
    if (object && admin->trouble)
        json_object_set_new(object, "problem", json_string(admin->trouble_why));
    return object;
}

/* null: there is no snapshot. */
static json_t *snapshot_object(const struct weir_snapshot *snapshot)
{
    if (!snapshot)
        return json_null();
    struct weir_snapshot_state s;
    weir_snapshot_look(snapshot, &s);
    json_t *object = json_pack(
        "{s:s*, s:b, s:I, s:I}", "file", s.path, "serving", s.serving,
        "written", (json_int_t)s.written, "failures", (json_int_t)s.failures);
    if (object && s.usable) {
        double age = (double)(int64_t)(weir_snapshot_clock() - s.info.at_ms);
        char uuid[33];
        weir_view_hex(s.info.store.uuid, sizeof s.info.store.uuid, uuid);
        json_object_set_new(object, "store", json_string(uuid));
        json_object_set_new(object, "epoch",
                            json_integer((json_int_t)s.info.epoch));
        json_object_set_new(object, "age_s", json_real(age / 1e3));
    }
    if (object && s.problem[0])
        json_object_set_new(object, "problem", json_string(s.problem));
    return object;
}

/* null: a top root. */
static json_t *region_object(const struct weir_upstream *upstream,
                             weir_instant now)
{
    if (!upstream)
        return json_null();
    struct weir_upstream_state s;
    weir_upstream_look(upstream, &s, now);
    json_t *roots = json_array();
    for (uint32_t i = 0; i < s.count; i++)
        json_array_append_new(roots, json_pack("{s:s, s:b, s:s*}", "address",
                                               s.addresses[i], "up", s.up[i],
                                               "problem", s.problems[i]));
    json_t *age = s.region.age == WEIR_NEVER
                      ? json_null()
                      : json_real((double)s.region.age / 1e9);
    return json_pack("{s:s, s:o, s:I, s:o, s:b, s:I, s:I, s:I}", "name", s.name,
                     "upstream", roots, "upstreams_up",
                     (json_int_t)s.region.upstreams_up, "age_s", age, "stale",
                     s.region.stale, "reports", (json_int_t)s.region.reports,
                     "carried", (json_int_t)s.region.carried, "table_full",
                     (json_int_t)s.region.no_room);
}

static json_t *stats_object(const struct weir_root_stats *s)
{
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, "
        "s:I, s:I, s:I}",
        "roots", (json_int_t)s->roots, "limiters_few_roots",
        (json_int_t)s->limiters_few_roots, "limiters_connected",
        (json_int_t)s->limiters_connected, "limiters_known",
        (json_int_t)s->limiters_known, "quotas", (json_int_t)s->quotas,
        "quotas_used", (json_int_t)s->quotas_used, "reports",
        (json_int_t)s->reports, "reports_repeated",
        (json_int_t)s->reports_repeated, "counts", (json_int_t)s->counts,
        "fills", (json_int_t)s->fills, "pushes", (json_int_t)s->pushes,
        "protocol_errors", (json_int_t)s->protocol_errors, "unknown",
        (json_int_t)s->unknown, "contended", (json_int_t)s->contended,
        "overflowed", (json_int_t)s->overflowed, "limiters_lacking",
        (json_int_t)s->limiters_lacking);
}

static const char *reason_text(uint32_t reason)
{
    return reason < WEIR_LIMIT_REASONS
               ? weir_limit_reason_text((enum weir_limit_reason)reason)
               : "unknown";
}

/* 'moved_s' assumes that no limit has moved since the limiter's last report. */
static json_t *limits_list(const struct weir_limiter_usage *limiter)
{
    json_t *list = json_array();
    for (size_t i = 0; i < limiter->limit_count; i++) {
        const struct weir_adaptive_limit *limit = &limiter->limits[i];
        json_array_append_new(
            list,
            json_pack("{s:s%, s:f, s:I, s:s, s:f, s:o}", "quota", limit->name.p,
                      limit->name.len, "limit", limit->limit, "in_flight",
                      (json_int_t)limit->in_flight, "reason",
                      reason_text(limit->reason), "moved_s",
                      ((double)limit->age + (double)limiter->limits_age) / 1e9,
                      "latency", duration(limit->latency)));
    }
    return list;
}

/* NULL: the limiter decides no request. */
static const char *on_full(const struct weir_limiter_usage *limiter)
{
    if (limiter->of_region)
        return NULL;
    return limiter->passes_on_full ? "pass" : "refuse";
}

static json_t *limiter_object(const struct weir_limiter_usage *limiter)
{
    char incarnation[2 * WEIR_INCARNATION_SIZE + 1];
    weir_view_hex(limiter->incarnation, WEIR_INCARNATION_SIZE, incarnation);
    return json_pack(
        "{s:s%, s:s, s:b, s:f, s:I, s:I, s:I, s:I, s:f, s:s?, s:I, s:I, s:I, "
        "s:I, s:o}",
        "name", limiter->name.len ? limiter->name.p : "", limiter->name.len,
        "incarnation", incarnation, "connected", limiter->connected, "silent_s",
        (double)limiter->silent / 1e9, "epoch", (json_int_t)limiter->epoch,
        "few_roots", (json_int_t)limiter->few_roots, "lacking",
        (json_int_t)limiter->lacking, "overflowed",
        (json_int_t)limiter->overflowed, "overflowed_s",
        (double)limiter->overflowed_age / 1e9, "on_full", on_full(limiter),
        "quotas", (json_int_t)limiter->quotas, "reports",
        (json_int_t)limiter->reports, "unknown", (json_int_t)limiter->unknown,
        "contended", (json_int_t)limiter->contended, "adaptive",
        limits_list(limiter));
}

static json_t *limiters_list(const struct weir_admin_call *call)
{
    json_t *list = json_array();
    size_t cursor = 0;
    struct weir_limiter_usage limiter;
    while (json_array_size(list) < WEIR_ADMIN_LIMITERS_MAX &&
           weir_root_limiter_usage(call->admin->root, &cursor, &limiter,
                                   call->now)) {
        json_t *object = limiter_object(&limiter);
        if (object)
            json_array_append_new(list, object);
    }
    return list;
}

void weir_admin_status(struct weir_admin_call *call)
{
    struct weir_admin *admin = call->admin;
    char incarnation[2 * WEIR_INCARNATION_SIZE + 1];
    weir_view_hex(admin->incarnation, WEIR_INCARNATION_SIZE, incarnation);
    struct weir_root_stats stats;
    weir_root_stats(admin->root, &stats);
    json_t *status = json_pack(
        "{s:s*, s:s, s:s, s:b, s:f, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
        "name", admin->name, "version", admin->version, "incarnation",
        incarnation, "ready", weir_root_ready(admin->root), "uptime_s",
        (double)(call->now - admin->started) / 1e9, "epoch",
        (json_int_t)stats.epoch, "store", store_object(admin), "snapshot",
        snapshot_object(admin->parts.snapshot), "region",
        region_object(admin->parts.upstream, call->now), "settings",
        settings_object(&admin->settings), "stats", stats_object(&stats),
        "limiters", limiters_list(call), "fleets",
        weir_admin_fleets(admin, call->now));
    weir_admin_answer_json(&call->asker, 200, status);
}

/* ---- The rest ---- */

void weir_admin_metrics(struct weir_admin_call *call)
{
    struct weir_admin *admin = call->admin;
    size_t len;
    struct weir_metrics_source source = { .root = admin->root,
                                          .name = admin->name,
                                          .version = admin->version,
                                          .store_up = admin->trouble == 0,
                                          .bad_rows = admin->bad.count,
                                          .edits_waiting = admin->edits_count,
                                          .authorizer = admin->authorizer,
                                          .snapshot = admin->parts.snapshot,
                                          .upstream = admin->parts.upstream,
                                          .file = admin->parts.doorman,
                                          .doorman = admin->parts.calls };
    char *text = weir_metrics_print(&source, call->now, &len);
    if (!text) {
        weir_admin_answer_error(&call->asker, WEIR_ENOMEM, NULL);
        return;
    }
    weir_admin_answer_text(&call->asker, 200, WEIR_METRICS_TYPE, text, len);
    free(text);
}

void weir_admin_health(struct weir_admin_call *call)
{
    weir_admin_answer_text(&call->asker, 200, WEIR_TEXT_TYPE, "alive\n", 6);
}

void weir_admin_readiness(struct weir_admin_call *call)
{
    const struct weir_admin *admin = call->admin;
    char text[WEIR_DIAG_MAX + 64];
    int len;
    if (weir_root_ready(admin->root)) {
        len = admin->bad.count == 0
                  ? snprintf(text, sizeof text, "ready\n")
                  : snprintf(text, sizeof text,
                             "ready, but rows of the store can't be read: "
                             "%llu; 'weir status' names them\n",
                             (unsigned long long)admin->bad.count);
        weir_admin_answer_text(&call->asker, 200, WEIR_TEXT_TYPE, text,
                               (size_t)len);
        return;
    }
    len = snprintf(text, sizeof text,
                   "not ready: the quotas have not been read: %s\n",
                   admin->trouble ? admin->trouble_why : "in a moment");
    weir_admin_answer_text(&call->asker, 503, WEIR_TEXT_TYPE, text,
                           (size_t)len);
}
