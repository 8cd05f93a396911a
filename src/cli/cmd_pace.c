/* SPDX-License-Identifier: MIT
 * cli/cmd_pace.c - weir pace: standard input to standard output at a rate,
 * without loss. Options, the file of jobs, and the messages at the end; the
 * parts are in pace.h. */

#include "cli/pace.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/clock.h"

#define LINE_BYTES_MAX 8192 /* of a file of jobs */
#define WORDS 3

static const char pace_help[] =
    "Copies standard input to standard output at a rate. Units that are too\n"
    "early wait; nothing is lost, split or reordered.\n"
    "\n"
    "    weir pace --rate 1000/s < requests | ./replay-them\n"
    "    weir pace --rate 2MiB/s --by byte --progress < big.img > /mnt/img\n"
    "    weir pace --rate 50/s --state mails.at < mails | ./send\n"
    "\n"
    "  -r, --rate RATE      units in a time: 1000/s, 90/min, 10MiB/s\n"
    "      --by UNIT        line, byte or record:SIZE              [line]\n"
    "      --burst N        units that may go at once after a pause   [1]\n"
    "      --algorithm A    token_bucket, leaky_queue, fixed_window,\n"
    "                       sliding_log or sliding_window  [token_bucket]\n"
    "      --quota NAME     at the rate of a live quota, shared with all\n"
    "                       others that take from it, instead of --rate\n"
    "      --jobs FILE      many files, each at a rate of its own; lines of\n"
    "                       RATE INPUT OUTPUT\n"
    "      --state FILE     notes the progress when it is stopped, and\n"
    "                       goes on from there\n"
    "  -p, --progress       the progress, on standard error\n"
    "  --roots HOST:PORT,…  for --quota    [$WEIR_ROOTS or 127.0.0.1:7077]\n"
    "  --json               the result, as JSON on standard error\n"
    "\n"
    "Ctrl-C stops after the unit that is being written. Exit status 0: all\n"
    "was written, 1: stopped before the end, 2: an error. See weir-pace(1).\n";

struct options {
    struct weir_cli cli;
    const char *rate, *by, *burst, *algorithm, *quota, *jobs, *state;
    bool progress;
    struct weir_pace_unit unit;
    uint64_t burst_units;
    char *text;                 /* owned: of a file of jobs */
    struct weir_pace_job *list; /* owned */
    size_t count;
};

/* ---- Options ---- */

static int read_pace_unit(const char *text, struct weir_pace_unit *out)
{
    static const char record[] = "record:";
    struct weir_diag diag = { 0 };
    *out = (struct weir_pace_unit){ .by = WEIR_PACE_LINE };
    if (strcmp(text, "line") == 0)
        return 0;
    if (strcmp(text, "byte") == 0) {
        out->by = WEIR_PACE_BYTE;
        return 0;
    }
    if (strncmp(text, record, strlen(record)) != 0)
        return weir_cli_fail("--by %s: write line, byte or record:SIZE", text);
    out->by = WEIR_PACE_RECORD;
    if (weir_units_parse(weir_text_of(text + strlen(record)), &out->record,
                         &diag) < 0)
        return weir_cli_fail("--by: %s", diag.text);
    if (out->record == 0 || out->record > WEIR_PACE_RECORD_MAX)
        return weir_cli_fail("--by %s: a record has 1 byte to 1 GiB", text);
    return 0;
}

static int read_pace_rate(const char *where, const char *text,
                          struct weir_limit *out)
{
    struct weir_diag diag = { 0 };
    if (weir_limit_parse(weir_text_of(text), out, &diag) < 0)
        return weir_cli_fail("%s: %s", where, diag.text);
    if (out->unlimited)
        return weir_cli_fail(
            "%s: without a limit there is nothing to pace; use `cat`", where);
    if (out->units == 0)
        return weir_cli_fail("%s: nothing would ever go at a rate of 0", where);
    return 0;
}

static int read_pace_burst(struct options *options)
{
    struct weir_diag diag = { 0 };
    if (weir_units_parse(weir_text_of(options->burst), &options->burst_units,
                         &diag) < 0)
        return weir_cli_fail("--burst: %s", diag.text);
    if (options->burst_units < 1 || options->burst_units > WEIR_WEIGHT_MAX)
        return weir_cli_fail("--burst %s: 1 unit to 4Gi", options->burst);
    return 0;
}

/* All checks of options that exclude each other. */
static int check_pace_options(const struct options *options)
{
    int ways = !!options->rate + !!options->quota + !!options->jobs;
    bool bucket = strcmp(options->algorithm, "token_bucket") == 0;
    if (ways != 1)
        return weir_cli_fail("how fast? One of --rate, --quota and --jobs; "
                             "for example: weir pace --rate 1000/s");
    if (options->quota && (!bucket || options->burst))
        return weir_cli_fail("a quota has an algorithm and bursts of its own: "
                             "`weir quota set %s algorithm=… high_burst=…`",
                             options->quota);
    if (options->jobs && !bucket && strcmp(options->algorithm, "leaky_queue"))
        return weir_cli_fail("with --jobs each goes by a token bucket");
    return 0;
}

/* ---- A file of jobs: RATE INPUT OUTPUT ---- */

/* Takes a word off 'line', in place; "…" may contain blanks. NULL: no more. */
static char *cut_next_word(char **line)
{
    char *at = *line + strspn(*line, " \t");
    bool quoted = *at == '"';
    if (*at == '\0' || *at == '#')
        return NULL;
    at += quoted;
    size_t len = strcspn(at, quoted ? "\"" : " \t");
    *line = at + len;
    if (**line)
        *(*line)++ = '\0';
    return at;
}

static int read_job(const struct options *options, char *line, unsigned number,
                    struct weir_pace_job *out)
{
    char where[PATH_MAX + 16];
    char *words[WORDS + 1] = { NULL };
    snprintf(where, sizeof where, "%s:%u", options->jobs, number);
    size_t count = 0;
    while (count <= WORDS) {
        words[count] = cut_next_word(&line);
        if (!words[count])
            break;
        count++;
    }
    if (count != WORDS)
        return weir_cli_fail("%s: write RATE INPUT OUTPUT, for example: "
                             "100/s in.log out.log",
                             where);
    *out = (struct weir_pace_job){ .input = words[1],
                                   .output = words[2],
                                   .in = -1,
                                   .out = -1,
                                   .unit = options->unit };
    return read_pace_rate(where, words[0], &out->rate);
}

static int check_job(const struct options *options, unsigned number)
{
    const struct weir_pace_job *job = &options->list[options->count];
    for (size_t i = 0; i < options->count; i++) {
        if (strcmp(options->list[i].output, job->output) == 0)
            return weir_cli_fail("%s:%u: another job writes %s", options->jobs,
                                 number, job->output);
        if (strcmp(options->list[i].input, job->input) != 0)
            continue;
        if (strcmp(job->input, "-") == 0)
            return weir_cli_fail("%s:%u: another job reads -, which can be "
                                 "read only once",
                                 options->jobs, number);
        if (options->state)
            return weir_cli_fail("%s:%u: another job reads %s; with --state "
                                 "each input comes once",
                                 options->jobs, number, job->input);
    }
    return 0;
}

static int read_jobs(struct options *options, FILE *file)
{
    size_t used = 0;
    options->text = malloc(LINE_BYTES_MAX * (WEIR_PACE_JOBS_MAX + 1));
    options->list = calloc(WEIR_PACE_JOBS_MAX, sizeof *options->list);
    if (!options->text || !options->list)
        return weir_cli_fail("%s", weir_strerror(WEIR_ENOMEM));
    for (unsigned number = 1;; number++) {
        char *line = options->text + used;
        if (!fgets(line, LINE_BYTES_MAX, file))
            return 0;
        size_t len = strcspn(line, "\r\n");
        if (len + 1 == LINE_BYTES_MAX)
            return weir_cli_fail("%s:%u: a line that long is no job",
                                 options->jobs, number);
        line[len] = '\0';
        size_t blanks = strspn(line, " \t");
        if (!line[blanks] || line[blanks] == '#')
            continue;
        if (options->count == WEIR_PACE_JOBS_MAX)
            return weir_cli_fail("%s: more than %d jobs; run another "
                                 "`weir pace` for the rest",
                                 options->jobs, WEIR_PACE_JOBS_MAX);
        int status =
            read_job(options, line, number, &options->list[options->count]);
        status = status ? status : check_job(options, number);
        if (status)
            return status;
        options->count++;
        used += len + 1;
    }
}

static int make_jobs(struct options *options)
{
    if (options->jobs) {
        FILE *file = fopen(options->jobs, "re");
        if (!file)
            return weir_cli_fail("%s: can't be read", options->jobs);
        int status = read_jobs(options, file);
        fclose(file);
        if (status == 0 && options->count == 0)
            status = weir_cli_fail("%s: no job in it", options->jobs);
        return status;
    }
    options->list = calloc(1, sizeof *options->list);
    if (!options->list)
        return weir_cli_fail("%s", weir_strerror(WEIR_ENOMEM));
    options->count = 1;
    options->list[0] = (struct weir_pace_job){
        .input = "-", .output = "-", .in = -1, .out = -1, .unit = options->unit
    };
    return options->rate
               ? read_pace_rate("--rate", options->rate, &options->list[0].rate)
               : 0;
}

/* ---- The gate ---- */

static int use_pacer(const struct options *options, struct weir_pace *pace)
{
    weir_instant now = weir_clock_now();
    pace->pacer = weir_pacer_new((uint32_t)options->count);
    for (size_t i = 0; pace->pacer && i < options->count; i++) {
        const struct weir_limit *rate = &options->list[i].rate;
        struct weir_pacer_job job = { .units = rate->units,
                                      .per = rate->per,
                                      .burst = options->burst_units,
                                      .quantum = WEIR_PACE_QUANTUM,
                                      .lag = WEIR_PACE_LAG };
        uint32_t number;
        int error = weir_pacer_add(pace->pacer, &job, &number, now);
        weir_assert(error == 0 && number == i);
    }
    return pace->pacer ? 0 : weir_cli_fail("%s", weir_strerror(WEIR_ENOMEM));
}

/* There is no option for max_entries, so it is set to fit the rate. Bytes go in
 * chunks, far fewer than max_entries. */
static int size_log(const struct options *options, struct weir_quota *quota)
{
    uint64_t units = quota->limit.units;
    bool many = units > WEIR_ENTRIES_MAX;
    if (quota->algorithm != WEIR_SLIDING_LOG)
        return 0;
    if (many && options->unit.by != WEIR_PACE_BYTE)
        return weir_cli_fail("--algorithm sliding_log remembers each unit of "
                             "its window, %d at most, and %s is more; "
                             "sliding_window counts them",
                             WEIR_ENTRIES_MAX, options->rate);
    quota->max_entries = many ? WEIR_ENTRIES_MAX : (uint32_t)units;
    return 0;
}

static int use_algorithm(const struct options *options,
                         struct weir_pace_gate *gate)
{
    struct weir_quota quota;
    struct weir_diag diag = { 0 };
    weir_quota_init(&quota);
    quota.name = WEIR_TEXT("pace");
    quota.sharing = WEIR_LOCAL;
    quota.limit = options->list[0].rate;
    if (weir_quota_set(&quota, WEIR_TEXT("algorithm"),
                       weir_text_of(options->algorithm), &diag) < 0)
        return weir_cli_fail("--algorithm: %s", diag.text);
    int status = size_log(options, &quota);
    if (status)
        return status;
    if (weir_quota_check(&quota, &diag) < 0)
        return weir_cli_fail("--algorithm: %s", diag.text);
    switch (quota.algorithm) {
    case WEIR_FIXED_WINDOW:
    case WEIR_SLIDING_WINDOW:
    case WEIR_SLIDING_LOG:
        break;
    case WEIR_LEAKY:
    case WEIR_LEAKY_QUEUE:
    case WEIR_TOKEN_BUCKET:
    case WEIR_TOKEN_BUCKETS:
    case WEIR_PERMITS:
        return weir_cli_fail("--algorithm %s paces nothing; use token_bucket",
                             options->algorithm);
    }
    if (options->burst)
        return weir_cli_fail("--burst is a bucket's; a window lets all its "
                             "units go at once");
    return weir_pace_gate_algorithm(gate, &quota, &options->unit);
}

static int choose_way(const struct options *options, struct weir_pace *pace,
                      struct weir_pace_gate *gate)
{
    bool paced = strcmp(options->algorithm, "token_bucket") == 0 ||
                 strcmp(options->algorithm, "leaky_queue") == 0;
    if (!options->quota && paced)
        return use_pacer(options, pace);
    pace->gate = gate;
    return options->quota ? weir_pace_gate_quota(gate, &options->cli,
                                                 options->quota, &options->unit)
                          : use_algorithm(options, gate);
}

/* ---- Beginning and end ---- */

/* Checked at the start: an error after hours of work would come too late. */
static int check_state(const char *path)
{
    char folder[4096];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s",
             slash > path ? (int)(slash - path) : 1, slash ? path : ".");
    if (access(folder, W_OK) < 0)
        return weir_cli_fail("--state %s: nothing can be written into %s", path,
                             folder);
    return 0;
}

static int open_jobs(struct options *options)
{
    bool again = options->state && access(options->state, F_OK) == 0;
    int status = options->state ? check_state(options->state) : 0;
    status = status ? status
                    : weir_pace_jobs_open(options->list, options->count, again);
    if (status || !options->state)
        return status;
    return weir_pace_state_resume(options->state, options->list, options->count,
                                  &again);
}

static const char *state_note(const struct options *options, char *buf,
                              size_t size)
{
    if (!options->state)
        return "";
    snprintf(buf, size, "; the same command goes on from there (%s)",
             options->state);
    return buf;
}

static void print_pace_end(const struct options *options, bool closed,
                           const struct weir_pace *pace)
{
    uint64_t bytes = 0, units = 0;
    weir_duration waited = 0;
    char note[512];
    for (size_t i = 0; i < options->count; i++) {
        bytes += options->list[i].bytes;
        units += options->list[i].units;
        waited += options->list[i].waited;
    }
    weir_duration took = weir_clock_now() - pace->progress.start;
    bool whole = !closed && !pace->stopped;
    if (options->cli.json)
        fprintf(stderr,
                "{\"units\": %" PRIu64 ", \"bytes\": %" PRIu64
                ", \"seconds\": %.3f, \"waited_s\": %.3f, "
                "\"late_s\": %.3f, \"whole\": %s}\n",
                units, bytes, (double)took / 1e9, (double)waited / 1e9,
                (double)pace->late / 1e9, whole ? "true" : "false");
    else if (!whole)
        fprintf(stderr, "weir: %s after %" PRIu64 " %s, %" PRIu64 " bytes%s\n",
                closed ? "the reader has gone" : "stopped", units,
                options->unit.by == WEIR_PACE_LINE   ? "lines"
                : options->unit.by == WEIR_PACE_BYTE ? "bytes"
                                                     : "records",
                bytes, state_note(options, note, sizeof note));
}

/* The state exists if and only if part of the input isn't written yet. */
static int end_pace(const struct options *options, const struct weir_pace *pace)
{
    bool closed = false, failed = false;
    for (size_t i = 0; i < options->count; i++) {
        closed = closed || options->list[i].closed;
        failed = failed || options->list[i].failed;
    }
    int status = 0;
    bool whole = !closed && !failed && !pace->stopped;
    if (options->state && whole)
        unlink(options->state);
    else if (options->state)
        status = weir_pace_state_save(options->state, options->list,
                                      options->count, true);
    print_pace_end(options, closed, pace);
    if (status || failed)
        return WEIR_EXIT_ERROR;
    return whole ? WEIR_EXIT_OK : WEIR_EXIT_LIMITED;
}

static int run_pace(struct options *options)
{
    struct weir_pace_gate gate = { 0 };
    struct weir_pace pace = {
        .jobs = options->list,
        .count = options->count,
        .state = options->state,
        .progress = { .on = options->progress,
                      .quota = options->quota,
                      .bar = isatty(STDERR_FILENO) },
    };
    int status = choose_way(options, &pace, &gate);
    status = status ? status : open_jobs(options);
    if (status == 0) {
        pace.progress.start = weir_clock_now();
        status = weir_pace_run(&pace);
        weir_pace_progress_end(&pace.progress, pace.jobs, pace.count,
                               weir_clock_now());
        status = status ? status : end_pace(options, &pace);
    }
    for (size_t i = 0; i < options->count; i++)
        weir_pace_job_close(&options->list[i]);
    weir_pace_gate_fini(&gate, weir_clock_now());
    weir_pacer_free(pace.pacer);
    return status;
}

static int prepare_pace(struct options *options)
{
    options->by = options->by ? options->by : "line";
    int status = read_pace_unit(options->by, &options->unit);
    status = status ? status : check_pace_options(options);
    options->burst_units = 1;
    if (status == 0 && options->burst)
        status = read_pace_burst(options);
    return status ? status : make_jobs(options);
}

int weir_cli_pace(int argc, char **argv)
{
    struct options options = { .algorithm = "token_bucket" };
    const struct weir_cli_option known[] = {
        { .name = "rate", .letter = 'r', .value = &options.rate },
        { .name = "by", .value = &options.by },
        { .name = "burst", .value = &options.burst },
        { .name = "algorithm", .value = &options.algorithm },
        { .name = "quota", .value = &options.quota },
        { .name = "jobs", .value = &options.jobs },
        { .name = "state", .value = &options.state },
        { .name = "progress", .letter = 'p', .flag = &options.progress },
    };
    int at = weir_cli_parse(&options.cli, pace_help, known,
                            WEIR_COUNT_OF(known), argc, argv);
    if (at < 0)
        return weir_cli_parsed(at);
    if (at < argc)
        return weir_cli_fail(
            "only standard input is paced: weir pace --rate … < %s", argv[at]);
    int status = prepare_pace(&options);
    status = status ? status : run_pace(&options);
    free(options.list);
    free(options.text);
    return status;
}
