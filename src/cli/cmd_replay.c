/* SPDX-License-Identifier: MIT
 * cli/cmd_replay.c - weir replay: which requests would have been limited. */

#include "cli/replay.h"

#include <stdlib.h>
#include <string.h>

#include "cli/root_client.h"
#include "lab/memory.h"

#define TOP_DEFAULT 10

static const char replay_help[] =
    "Puts access logs through a file of quotas, in virtual time, and shows\n"
    "the requests that quotas would have limited, by quota, client and time.\n"
    "\n"
    "    weir quota export > quotas.yaml\n"
    "    weir replay --quotas quotas.yaml --key '{client}' access.log*.gz\n"
    "    weir replay --quotas now.yaml --compare tighter.yaml access.log\n"
    "    weir replay --quotas quotas.yaml --suggest 0.1% access.log\n"
    "\n"
    "      --quotas FILE    as `weir quota export` writes it\n"
    "  -k, --key NAME       the name of a request; {client}, {user},\n"
    "                       {method}, {path}, {dir}, {protocol}, {status},\n"
    "                       {referer}, {agent} stand for its own  [{client}]\n"
    "      --weight W       requests, or bytes: of the answer   [requests]\n"
    "      --format F       combined, common, vhost, json\n"
    "                                                  [by the line itself]\n"
    "      --compare FILE   the same log through these quotas as well\n"
    "      --suggest SHARE  the smallest limits under which each quota would\n"
    "                       have limited at most that share, such as 0.1%\n"
    "      --top N          clients shown                               [10]\n"
    "      --seed N         of chance between low_burst and high_burst   [1]\n"
    "      --html FILE      the same as a page with figures\n"
    "      --json           the same as JSON\n"
    "\n"
    "LOG may be gzipped; - is standard input. Several are put in order of\n"
    "time. Lines that can't be read are counted and shown. More:\n"
    "weir-replay(1).\n";

struct options {
    const char *quotas, *key, *weight, *format, *compare, *suggest, *top, *seed,
        *html;
    bool json;
    double share;
    uint64_t seed_number;
    size_t top_number;
};

struct replay {
    struct weir_replay_log log;
    struct weir_replay_set set, other;
    struct weir_replay_result result, other_result, together;
    struct weir_replay_suggestion *suggested; /* owned */
};

/* ---- Options ---- */

static int read_share(const char *text, double *out)
{
    char *end;
    double value = strtod(text, &end);
    bool percent = *end == '%' && end[1] == '\0';
    value = percent ? value / 100 : value;
    if (end == text || (*end && !percent) || !(value >= 0 && value < 1))
        return weir_cli_fail(
            "--suggest %s: write a share such as 0.1%% (of 100%%)", text);
    *out = value;
    return 0;
}

static int read_number_option(const char *option, const char *text,
                              uint64_t *out)
{
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end)
        return weir_cli_fail("%s %s: write a whole number", option, text);
    *out = value;
    return 0;
}

static int read_word_options(const struct options *options,
                             struct weir_replay_log *log)
{
    if (strcmp(options->weight, "bytes") == 0)
        log->by_bytes = true;
    else if (strcmp(options->weight, "requests") != 0)
        return weir_cli_fail("--weight %s: write requests or bytes",
                             options->weight);
    if (!options->format)
        log->format = WEIR_REPLAY_ANY;
    else if (strcmp(options->format, "json") == 0)
        log->format = WEIR_REPLAY_JSON;
    else if (strcmp(options->format, "combined") == 0 ||
             strcmp(options->format, "common") == 0)
        log->format = WEIR_REPLAY_COMBINED;
    else if (strcmp(options->format, "vhost") == 0)
        log->format = WEIR_REPLAY_VHOST;
    else
        return weir_cli_fail("--format %s: write combined, common, vhost or "
                             "json",
                             options->format);
    return weir_replay_key_parse(options->key, &log->key);
}

static int check_replay_options(struct options *options,
                                struct weir_replay_log *log)
{
    uint64_t top = TOP_DEFAULT;
    if (!options->quotas)
        return weir_cli_fail("which quotas? For example: weir quota export > "
                             "q.yaml; weir replay --quotas q.yaml access.log");
    int status = read_word_options(options, log);
    if (status == 0 && options->suggest)
        status = read_share(options->suggest, &options->share);
    if (status == 0 && options->top)
        status = read_number_option("--top", options->top, &top);
    options->seed_number = 1;
    if (status == 0 && options->seed)
        status =
            read_number_option("--seed", options->seed, &options->seed_number);
    options->top_number = (size_t)top;
    return status;
}

/* ---- Doing it ---- */

/* Replays with all suggested limits at once. */
static void run_together(struct replay *replay, const struct options *options)
{
    struct weir_replay_set all = replay->set;
    all.quotas = weir_must_zeroed(all.count, sizeof *all.quotas);
    for (size_t i = 0; i < all.count; i++) {
        all.quotas[i] = replay->set.quotas[i];
        if (!replay->suggested[i].none)
            all.quotas[i].limit = replay->suggested[i].limit;
    }
    weir_replay_run(&replay->log, &all, options->seed_number,
                    &replay->together);
    /* 'all' ends here; the names and places of the quotas are the same. */
    replay->together.set = &replay->set;
    free(all.quotas);
}

static void run_replay(struct replay *replay, const struct options *options)
{
    weir_replay_run(&replay->log, &replay->set, options->seed_number,
                    &replay->result);
    if (options->compare)
        weir_replay_run(&replay->log, &replay->other, options->seed_number,
                        &replay->other_result);
    if (!options->suggest)
        return;
    weir_replay_suggest(&replay->log, &replay->set, options->share,
                        options->seed_number, &replay->suggested);
    run_together(replay, options);
}

static int print_results(const struct replay *replay,
                         const struct options *options)
{
    const struct weir_replay_report report = {
        .log = &replay->log,
        .a = &replay->result,
        .b = options->compare ? &replay->other_result : NULL,
        .suggested = replay->suggested,
        .together = &replay->together,
        .share = options->share,
        .top = options->top_number,
    };
    if (options->json)
        weir_cli_print_json(weir_replay_to_json(&report));
    else
        weir_replay_print(&report);
    return options->html ? weir_replay_page(&report, options->html) : 0;
}

static int read_all_logs(struct replay *replay, const struct options *options,
                         int argc, char **argv)
{
    /* The small files first: an error in them is known at once. */
    int status = weir_replay_set_read(&replay->set, options->quotas);
    if (status == 0 && options->compare)
        status = weir_replay_set_read(&replay->other, options->compare);
    for (int i = 0; i < argc && status == 0; i++)
        status = weir_replay_read(&replay->log, argv[i]);
    return status ? status : weir_replay_sort(&replay->log);
}

static void replay_fini(struct replay *replay)
{
    weir_replay_log_fini(&replay->log);
    weir_replay_set_fini(&replay->set);
    weir_replay_set_fini(&replay->other);
    weir_replay_result_fini(&replay->result);
    weir_replay_result_fini(&replay->other_result);
    weir_replay_result_fini(&replay->together);
    free(replay->suggested);
}

int weir_cli_replay(int argc, char **argv)
{
    struct options options = { .key = "{client}", .weight = "requests" };
    struct replay replay = { .log = { .count = 0 } };
    const struct weir_cli_option known[] = {
        { .name = "quotas", .value = &options.quotas },
        { .name = "key", .letter = 'k', .value = &options.key },
        { .name = "weight", .value = &options.weight },
        { .name = "format", .value = &options.format },
        { .name = "compare", .value = &options.compare },
        { .name = "suggest", .value = &options.suggest },
        { .name = "top", .value = &options.top },
        { .name = "seed", .value = &options.seed },
        { .name = "html", .value = &options.html },
        { .name = "json", .flag = &options.json },
    };
    int at = weir_cli_parse(NULL, replay_help, known, WEIR_COUNT_OF(known),
                            argc, argv);
    if (at < 0)
        return weir_cli_parsed(at);
    if (at == argc)
        return weir_cli_fail("which log? Name files, or - for standard input");
    int status = check_replay_options(&options, &replay.log);
    status = status ? status
                    : read_all_logs(&replay, &options, argc - at, argv + at);
    if (status == 0) {
        run_replay(&replay, &options);
        status = print_results(&replay, &options);
    }
    replay_fini(&replay);
    return status;
}
