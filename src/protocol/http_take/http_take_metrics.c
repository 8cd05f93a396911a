/* SPDX-License-Identifier: MIT
 * protocol/http_take/http_take_metrics.c - GET /metrics of an agent, in
 * Prometheus' text format.
 *
 * Every metric is of the whole process: no label has values that a client or a
 * quota could add, so the text is as long with a million names as with none.
 * The roots list the most refused names (weir-http(7)), as they know them for
 * the fleet.
 *
 * All names begin with weir_agent_, so that one Prometheus that scrapes a root
 * and an agent never gets two meanings of one name. */

#include <stdio.h>
#include <stdlib.h>

#include "protocol/http_take/http_take_internal.h"

struct figure {
    const char *name, *type, *help;
    double value;
};

static void print_metric_head(FILE *out, const char *name, const char *type,
                              const char *help)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void print_verdicts(FILE *out, const struct weir_protocol_counts *counts)
{
    static const char name[] = "weir_agent_decisions_total";
    print_metric_head(out, name, "counter",
                      "Verdicts of the listeners on quotas of the roots.");
    fprintf(out, "%s{verdict=\"passed\"} %.17g\n", name,
            (double)counts->passed);
    fprintf(out, "%s{verdict=\"limited\"} %.17g\n", name,
            (double)counts->limited);
}

static void print_limiter(FILE *out, const struct weir_status *status)
{
    const struct figure figures[] = {
        { "weir_agent_ready", "gauge",
          "Whether the quotas of a root are complete here.", status->ready },
        { "weir_agent_stale", "gauge",
          "Whether no root answered for stale_after: on_stale decides.",
          status->stale },
        { "weir_agent_roots", "gauge", "Roots that the agent was given.",
          status->roots },
        { "weir_agent_roots_up", "gauge",
          "Roots that the agent is connected to.", status->roots_up },
        { "weir_agent_epoch", "gauge", "The epoch of the quotas here.",
          (double)status->epoch },
        { "weir_agent_slots", "gauge", "Room for quotas and instances.",
          status->slots },
        { "weir_agent_slots_used", "gauge",
          "Slots that quotas and instances occupy.", status->slots_used },
        { "weir_agent_reports_total", "counter", "Reports sent to roots.",
          (double)status->reports },
        { "weir_agent_unknown_requests_total", "counter",
          "Requests by names without quota, which passed.",
          (double)status->unknown },
        { "weir_agent_overflowed_requests_total", "counter",
          "Requests by instances without a slot, decided by the rest of "
          "their chain.",
          (double)status->overflowed },
        { "weir_agent_adaptive_limits", "gauge",
          "Adaptive quotas that have a limit of their own here.",
          status->adaptive },
        { "weir_agent_adaptive_overflowed", "gauge",
          "Adaptive quotas that found no room for a limit and let all pass.",
          status->adaptive_overflowed },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(figures); i++) {
        print_metric_head(out, figures[i].name, figures[i].type,
                          figures[i].help);
        fprintf(out, "%s %.17g\n", figures[i].name, figures[i].value);
    }
}

void weir_http_take_metrics(const struct weir_http_take_call *call)
{
    const struct weir_protocol_host *host = call->api->host;
    struct weir_status status;
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);
    if (out) {
        weir_status(host->weir, &status);
        print_metric_head(out, "weir_agent_build_info", "gauge",
                          "The running version.");
        fprintf(out, "weir_agent_build_info{version=\"%s\"} 1\n",
                host->version);
        print_limiter(out, &status);
        if (host->counts)
            print_verdicts(out, host->counts);
    }
    if (!out || fclose(out) != 0) {
        free(text);
        weir_http_take_problem(call->reply, 500, weir_strerror(WEIR_ENOMEM));
        return;
    }
    text[len - 1] = '\0'; /* without the last line end, which every body gets */
    call->reply->type = "text/plain; version=0.0.4; charset=utf-8";
    call->reply->text = text;
}
