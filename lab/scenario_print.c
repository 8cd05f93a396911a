/* SPDX-License-Identifier: MIT
 * lab/scenario_print.c - a scenario as a file that builds to the same scenario.
 *
 * Defaults are left out, and each kind of statement is printed by the file that
 * reads it, so that reader and printer stay together. Building and printing it
 * again gives the same text; tests can check that for any scenario. */

#include "lab/memory.h"
#include "lab/model.h"
#include "lab/scenario_internal.h"

static void print_scenario_head(FILE *out, const struct weir_scenario *scenario)
{
    fputs("title ", out);
    weir_print_quoted(out, weir_text_of(scenario->title));
    fputc('\n', out);
    for (size_t i = 0; i < scenario->setting_count; i++) {
        fprintf(out, "set %s = ", scenario->settings[i].key);
        weir_print_word(out, weir_text_of(scenario->settings[i].value));
        fputc('\n', out);
    }
    if (scenario->live)
        fputs("live\n", out);
}

static void print_fleet(FILE *out, const struct weir_scenario *scenario)
{
    static const char *const curves[] = { "linear", "quadratic", "smooth" };
    static const struct weir_net perfect;
    fprintf(out, "roots %u\nlimiters %u", scenario->roots, scenario->limiters);
    if (scenario->limiters_started < scenario->limiters)
        fprintf(out, " started=%u", scenario->limiters_started);
    fprintf(out, "\nslots %u\nnetwork delay=", scenario->slots);
    weir_print_duration(out, scenario->net.delay);
    struct weir_net rest = scenario->net;
    rest.delay = 0;
    weir_print_net(out, scenario, &rest, &perfect);
    fputc('\n', out);
    for (size_t i = 0; i < scenario->linkage_count; i++) {
        fputs("links ", out);
        weir_print_nodes(out, scenario, &scenario->linkages[i].limiters);
        fputs(" to ", out);
        weir_print_nodes(out, scenario, &scenario->linkages[i].roots);
        fputc('\n', out);
    }
    weir_print_settings(out, scenario);
    if (scenario->ideal_curve != WEIR_CURVE_LINEAR)
        fprintf(out, "ideal curve=%s\n", curves[scenario->ideal_curve]);
}

static void print_quota_statements(FILE *out,
                                   const struct weir_scenario *scenario)
{
    struct weir_quota fresh;
    weir_quota_init(&fresh);
    for (size_t i = 0; i < scenario->quota_count; i++) {
        fputs("quota ", out);
        weir_print_quota(out, &scenario->quotas[i], &fresh);
        fputc('\n', out);
    }
}

char *weir_scenario_print(const struct weir_scenario *scenario)
{
    char *text = NULL;
    size_t len;
    FILE *out = weir_must(open_memstream(&text, &len));
    print_scenario_head(out, scenario);
    if (scenario->model)
        weir_print_model(out, scenario);
    else
        print_fleet(out, scenario);
    print_quota_statements(out, scenario);
    for (size_t i = 0; i < scenario->load_count; i++)
        weir_print_load(out, scenario, &scenario->loads[i]);
    fputs("run ", out);
    weir_print_duration(out, scenario->span);
    fputs("\nbin ", out);
    weir_print_duration(out, scenario->bin);
    fputc('\n', out);
    for (size_t i = 0; i < scenario->action_count; i++)
        weir_print_action(out, scenario, i);
    weir_print_measures(out, scenario);
    weir_must(fclose(out) == 0 ? text : NULL);
    return text;
}
