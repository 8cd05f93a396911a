/* SPDX-License-Identifier: MIT
 * cli/cmd_pace.c - weir pace: standard input to standard output at a rate,
 * without loss.
 *
 * One thread, many inputs and outputs, one ppoll():
 *
 *     turn -> grant units -> ppoll: the output is writable -> write
 *
 * A job without a unit, or with a full output, isn't ready, and saves up no
 * more than its burst: a reader that paused for two seconds is behind by two
 * seconds afterwards, and isn't flooded. (A short time, WEIR_PACE_LAG, is
 * forgiven.) The time between a turn and the write doesn't count as blocked: an
 * output is blocked only if ppoll() returned for another reason and didn't
 * report it as writable.
 *
 * Signals come by a descriptor, so that there is no handler, nothing global and
 * no race between a check and sleeping.
 *
 * The progress is a line on standard error:
 *
 *     [######--------]  43 %  4311 lines  1000/s (set: 1000/s)  0:05 left
 *
 * On a terminal it is drawn over itself five times a second, elsewhere it is a
 * line every ten seconds. The time left is known when the inputs are files: by
 * bytes, at the mean size of the units so far. */

#include "cli/pace.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "io/clock.h"
#include "lab/memory.h"
#include "weir/pacer.h"

#define JOBS_MAX 500        /* in a file of jobs */
#define LINE_BYTES_MAX 8192 /* likewise */
#define WORDS 3
#define RECORD_MAX (1ull << 30)        /* bytes */
#define QUANTUM WEIR_PACER_QUANTUM_MIN /* a turn each millisecond */
/* The longest time that a state file may lag when the process is killed. */
#define SAVE_EVERY WEIR_SECOND
#define PRIORITY (-15)
/* Without a bar there is nothing to do between events. */
#define IDLE_MAX (3600 * WEIR_SECOND)
#define DRAW_EVERY (WEIR_SECOND / 5)
#define LINE_EVERY (10 * WEIR_SECOND)
#define BAR_MAX 20
#define PROGRESS_MAX 256 /* bytes of a line */
#define SAMPLES 8

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

struct progress {
    bool on, bar; /* 'bar': on a terminal, drawn over itself */
    weir_instant start;
    weir_instant next; /* when to draw next */
    struct {
        weir_instant at;
        uint64_t units;
    } samples[SAMPLES];
    unsigned sampled;
};

struct pace {
    struct weir_cli cli;
    /* As typed; borrowed; NULL: not given. The state is written each
     * SAVE_EVERY. */
    const char *rate, *by, *burst_text, *algorithm, *quota, *jobs_file, *state;
    struct weir_pace_unit unit;
    uint64_t burst;
    char *text;                 /* owned: of a file of jobs */
    struct weir_pace_job *jobs; /* owned */
    size_t count;
    struct weir_pacer *pacer;    /* has these jobs, by index; or NULL: */
    struct weir_pace_gate *gate; /* for the only job */
    struct progress progress;
    weir_instant save_next; /* when to write the state next */
    bool stopped;           /* by a signal */
    weir_duration late;     /* lost by late wake-ups that can't be made up for,
                             * all jobs together */
};

/* ---- Options ---- */

static int read_pace_unit(const char *text, struct weir_pace_unit *out)
{
    static const char record[] = "record:";
    *out = (struct weir_pace_unit){ .by = WEIR_PACE_LINE };
    if (strcmp(text, "line") == 0)
        return 0;
    if (strcmp(text, "byte") == 0) {
        *out = (struct weir_pace_unit){ .by = WEIR_PACE_BYTE, .record = 1 };
        return 0;
    }
    if (strncmp(text, record, strlen(record)) != 0)
        return weir_cli_fail("--by %s: write line, byte or record:SIZE", text);
    out->by = WEIR_PACE_RECORD;
    if (weir_cli_parse_units("--by", text + strlen(record), &out->record))
        return WEIR_EXIT_ERROR;
    if (out->record == 0 || out->record > RECORD_MAX)
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

static int read_pace_burst(struct pace *pace)
{
    int status =
        weir_cli_parse_units("--burst", pace->burst_text, &pace->burst);
    if (status)
        return status;
    if (pace->burst < 1 || pace->burst > WEIR_WEIGHT_MAX)
        return weir_cli_fail("--burst %s: 1 unit to 4Gi", pace->burst_text);
    return 0;
}

/* All checks of options that exclude each other. */
static int check_pace_options(const struct pace *pace)
{
    int ways = !!pace->rate + !!pace->quota + !!pace->jobs_file;
    bool bucket = strcmp(pace->algorithm, "token_bucket") == 0;
    if (ways != 1)
        return weir_cli_fail("how fast? One of --rate, --quota and --jobs; "
                             "for example: weir pace --rate 1000/s");
    if (pace->quota && (!bucket || pace->burst_text))
        return weir_cli_fail("a quota has an algorithm and bursts of its own: "
                             "`weir quota set %s algorithm=… high_burst=…`",
                             pace->quota);
    if (pace->jobs_file && !bucket && strcmp(pace->algorithm, "leaky_queue"))
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

static int read_job(const struct pace *pace, char *line, unsigned number,
                    struct weir_pace_job *out)
{
    char where[PATH_MAX + 16];
    char *words[WORDS + 1] = { NULL };
    snprintf(where, sizeof where, "%s:%u", pace->jobs_file, number);
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
                                   .unit = pace->unit };
    return read_pace_rate(where, words[0], &out->rate);
}

static int check_job(const struct pace *pace, unsigned number)
{
    const struct weir_pace_job *job = &pace->jobs[pace->count];
    for (size_t i = 0; i < pace->count; i++) {
        if (strcmp(pace->jobs[i].output, job->output) == 0)
            return weir_cli_fail("%s:%u: another job writes %s",
                                 pace->jobs_file, number, job->output);
        if (strcmp(pace->jobs[i].input, job->input) != 0)
            continue;
        if (strcmp(job->input, "-") == 0)
            return weir_cli_fail("%s:%u: another job reads -, which can be "
                                 "read only once",
                                 pace->jobs_file, number);
        if (pace->state)
            return weir_cli_fail("%s:%u: another job reads %s; with --state "
                                 "each input comes once",
                                 pace->jobs_file, number, job->input);
    }
    return 0;
}

static int read_jobs(struct pace *pace, FILE *file)
{
    size_t used = 0;
    pace->text = malloc(LINE_BYTES_MAX * (JOBS_MAX + 1));
    pace->jobs = calloc(JOBS_MAX, sizeof *pace->jobs);
    if (!pace->text || !pace->jobs)
        return weir_cli_fail("%s", weir_strerror(WEIR_ENOMEM));
    for (unsigned number = 1;; number++) {
        char *line = pace->text + used;
        if (!fgets(line, LINE_BYTES_MAX, file))
            return 0;
        size_t len = strcspn(line, "\r\n");
        if (len + 1 == LINE_BYTES_MAX)
            return weir_cli_fail("%s:%u: a line that long is no job",
                                 pace->jobs_file, number);
        line[len] = '\0';
        size_t blanks = strspn(line, " \t");
        if (!line[blanks] || line[blanks] == '#')
            continue;
        if (pace->count == JOBS_MAX)
            return weir_cli_fail("%s: more than %d jobs; run another "
                                 "`weir pace` for the rest",
                                 pace->jobs_file, JOBS_MAX);
        int status = read_job(pace, line, number, &pace->jobs[pace->count]);
        status = status ? status : check_job(pace, number);
        if (status)
            return status;
        pace->count++;
        used += len + 1;
    }
}

static int make_jobs(struct pace *pace)
{
    if (pace->jobs_file) {
        FILE *file = fopen(pace->jobs_file, "re");
        if (!file)
            return weir_cli_fail("%s: can't be read", pace->jobs_file);
        int status = read_jobs(pace, file);
        fclose(file);
        if (status == 0 && pace->count == 0)
            status = weir_cli_fail("%s: no job in it", pace->jobs_file);
        return status;
    }
    pace->jobs = calloc(1, sizeof *pace->jobs);
    if (!pace->jobs)
        return weir_cli_fail("%s", weir_strerror(WEIR_ENOMEM));
    pace->count = 1;
    pace->jobs[0] = (struct weir_pace_job){
        .input = "-", .output = "-", .in = -1, .out = -1, .unit = pace->unit
    };
    return pace->rate
               ? read_pace_rate("--rate", pace->rate, &pace->jobs[0].rate)
               : 0;
}

/* ---- The gate ---- */

static int use_pacer(struct pace *pace)
{
    weir_instant now = weir_clock_now();
    pace->pacer = weir_pacer_new((uint32_t)pace->count);
    for (size_t i = 0; pace->pacer && i < pace->count; i++) {
        const struct weir_limit *rate = &pace->jobs[i].rate;
        struct weir_pacer_job job = { .units = rate->units,
                                      .per = rate->per,
                                      .burst = pace->burst,
                                      .quantum = QUANTUM,
                                      .lag = WEIR_PACE_LAG };
        uint32_t number;
        int error = weir_pacer_add(pace->pacer, &job, &number, now);
        weir_assert(error == 0 && number == i);
    }
    return pace->pacer ? 0 : weir_cli_fail("%s", weir_strerror(WEIR_ENOMEM));
}

/* There is no option for max_entries, so it is set to fit the rate. Bytes go in
 * chunks, far fewer than max_entries. */
static int size_log(const struct pace *pace, struct weir_quota *quota)
{
    uint64_t units = quota->limit.units;
    bool many = units > WEIR_ENTRIES_MAX;
    if (quota->algorithm != WEIR_SLIDING_LOG)
        return 0;
    if (many && pace->unit.by != WEIR_PACE_BYTE)
        return weir_cli_fail("--algorithm sliding_log remembers each unit of "
                             "its window, %d at most, and %s is more; "
                             "sliding_window counts them",
                             WEIR_ENTRIES_MAX, pace->rate);
    quota->max_entries = many ? WEIR_ENTRIES_MAX : (uint32_t)units;
    return 0;
}

static int use_algorithm(const struct pace *pace, struct weir_pace_gate *gate)
{
    struct weir_quota quota;
    struct weir_diag diag = { 0 };
    weir_quota_init(&quota);
    quota.name = WEIR_TEXT("pace");
    quota.sharing = WEIR_LOCAL;
    quota.limit = pace->jobs[0].rate;
    if (weir_quota_set(&quota, WEIR_TEXT("algorithm"),
                       weir_text_of(pace->algorithm), &diag) < 0)
        return weir_cli_fail("--algorithm: %s", diag.text);
    int status = size_log(pace, &quota);
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
                             pace->algorithm);
    }
    if (pace->burst_text)
        return weir_cli_fail("--burst is a bucket's; a window lets all its "
                             "units go at once");
    return weir_pace_gate_algorithm(gate, &quota, &pace->unit);
}

static int choose_way(struct pace *pace, struct weir_pace_gate *gate)
{
    bool paced = strcmp(pace->algorithm, "token_bucket") == 0 ||
                 strcmp(pace->algorithm, "leaky_queue") == 0;
    if (!pace->quota && paced)
        return use_pacer(pace);
    pace->gate = gate;
    return pace->quota ? weir_pace_gate_quota(gate, &pace->cli, pace->quota,
                                              &pace->unit)
                       : use_algorithm(pace, gate);
}

/* ---- The progress ---- */

struct sum {
    uint64_t bytes, size, units, done;
    weir_duration waited;
    bool sized;          /* all sizes are known */
    bool closed, failed; /* some job */
    double rate;         /* units a second, as set */
};

static struct sum add_up(const struct weir_pace_job *jobs, size_t count)
{
    struct sum sum = { .sized = true };
    for (size_t i = 0; i < count; i++) {
        sum.bytes += jobs[i].bytes;
        sum.size += jobs[i].size;
        sum.units += jobs[i].units;
        sum.done += jobs[i].done;
        sum.waited += jobs[i].waited;
        sum.closed |= jobs[i].closed;
        sum.failed |= jobs[i].failed;
        sum.sized = sum.sized && jobs[i].size > 0;
    }
    /* Once all are done, their rates are still shown. */
    for (size_t i = 0; i < count; i++)
        if (jobs[i].rate.per > 0 && (!jobs[i].done || sum.done == count))
            sum.rate +=
                (double)jobs[i].rate.units * 1e9 / (double)jobs[i].rate.per;
    return sum;
}

/* The rate over the last second and a half; 0: no samples yet. */
static double rate_now(struct progress *progress, uint64_t units,
                       weir_instant now)
{
    unsigned count = progress->sampled < SAMPLES ? progress->sampled : SAMPLES;
    unsigned oldest = (progress->sampled - count) % SAMPLES;
    double rate = 0;
    if (count > 0 && now > progress->samples[oldest].at)
        rate = (double)(units - progress->samples[oldest].units) * 1e9 /
               (double)(now - progress->samples[oldest].at);
    unsigned place = progress->sampled++ % SAMPLES;
    progress->samples[place].at = now;
    progress->samples[place].units = units;
    return rate;
}

static const char *noun(const struct weir_pace_job *job)
{
    switch (job->unit.by) {
    case WEIR_PACE_LINE:
        return "lines";
    case WEIR_PACE_BYTE:
        return "bytes";
    case WEIR_PACE_RECORD:
        break;
    }
    return "records";
}

static void put_left(FILE *line, double seconds)
{
    uint64_t s = (uint64_t)(seconds + 0.5);
    if (s >= 3600)
        fprintf(line, "  %" PRIu64 ":%02u:%02u left", s / 3600,
                (unsigned)(s / 60 % 60), (unsigned)(s % 60));
    else
        fprintf(line, "  %u:%02u left", (unsigned)(s / 60), (unsigned)(s % 60));
}

static void put_bar(FILE *line, const struct sum *sum)
{
    double part = sum->size > 0 && sum->bytes < sum->size
                      ? (double)sum->bytes / (double)sum->size
                      : 1;
    size_t full = (size_t)(part * BAR_MAX);
    fputc('[', line);
    for (size_t i = 0; i < BAR_MAX; i++)
        fputc(i < full ? '#' : '-', line);
    fprintf(line, "] %3.0f %%  ", part * 100);
}

/* Writes a line without its end to 'buf' of PROGRESS_MAX bytes. */
static void compose(struct pace *pace, char *buf, weir_instant now)
{
    char done[16], went[16], set[16] = "quota";
    const char *quota = pace->quota;
    struct sum sum = add_up(pace->jobs, pace->count);
    double rate = rate_now(&pace->progress, sum.units, now);
    FILE *line = fmemopen(buf, PROGRESS_MAX, "w");
    if (!line)
        weir_no_memory();
    if (sum.sized)
        put_bar(line, &sum);
    fprintf(line, "%s %s  %s/s (set: %s%s)",
            weir_cli_units((double)sum.units, done), noun(pace->jobs),
            weir_cli_units(rate, went),
            quota ? set : weir_cli_units(sum.rate, set), quota ? "" : "/s");
    if (pace->count > 1)
        fprintf(line, "  %" PRIu64 " of %zu files done", sum.done, pace->count);
    double at = sum.rate > 0 ? sum.rate : rate;
    if (sum.sized && sum.units > 0 && sum.bytes > 0 && at > 0 &&
        sum.size >= sum.bytes)
        put_left(line, (double)(sum.size - sum.bytes) / (double)sum.bytes *
                           (double)sum.units / at);
    fclose(line);
    buf[PROGRESS_MAX - 1] = '\0';
}

static unsigned columns(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_col == 0)
        return 80;
    return size.ws_col;
}

static void draw_progress(struct pace *pace, weir_instant now)
{
    struct progress *progress = &pace->progress;
    if (!progress->on || now < progress->next)
        return;
    progress->next = now + (progress->bar ? DRAW_EVERY : LINE_EVERY);
    char line[PROGRESS_MAX];
    compose(pace, line, now);
    if (!progress->bar) {
        fprintf(stderr, "weir: %s\n", line);
        return;
    }
    fprintf(stderr, "\r%.*s\033[K", (int)columns() - 1, line);
    fflush(stderr);
}

/* Leaves the line as it is and begins a new one. */
static void end_progress(struct pace *pace)
{
    if (!pace->progress.on || !pace->progress.bar)
        return;
    pace->progress.next = 0;
    draw_progress(pace, weir_clock_now());
    fputc('\n', stderr);
}

/* ---- The loop ---- */

struct loop {
    struct pace *pace;
    struct pollfd *polled; /* owned: the signals, then in and out of each job */
    int signals;
    bool hurry; /* a second signal came */
};

static void update_ready(struct pace *pace, struct weir_pace_job *job,
                         weir_instant now)
{
    bool ready = !pace->stopped && !job->blocked && weir_pace_job_has_unit(job);
    if (pace->pacer)
        weir_pacer_ready(pace->pacer, (uint32_t)(job - pace->jobs), ready, now);
}

/* By the gate: the only job takes all units that it may. */
static void take_by_gate(struct pace *pace, weir_instant now)
{
    weir_assert(pace->count == 1);
    struct weir_pace_job *job = pace->jobs;
    struct weir_pace_gate *gate = pace->gate;
    if (pace->stopped || job->blocked || job->granted > 0)
        return;
    while (now >= gate->next && weir_pace_job_has_unit(job)) {
        uint64_t most = job->unit.by == WEIR_PACE_BYTE
                            ? job->end - job->begin - job->granted
                            : 1;
        uint64_t may = weir_pace_gate_take(gate, most, now);
        if (may == 0)
            return;
        weir_pace_job_grant(job, may);
    }
}

static void take_turns(struct pace *pace, weir_instant now)
{
    struct weir_pacer_turn turn;
    if (pace->gate) {
        take_by_gate(pace, now);
        return;
    }
    for (;;) {
        weir_instant due = weir_pacer_next(pace->pacer);
        if (!weir_pacer_turn(pace->pacer, &turn, now))
            break;
        if (now - due > WEIR_PACE_LAG)
            pace->late += now - due - WEIR_PACE_LAG;
        struct weir_pace_job *job = &pace->jobs[turn.job];
        uint64_t sent = weir_pace_job_grant(job, turn.units);
        weir_assert(sent <= turn.units);
        weir_pacer_spend(pace->pacer, turn.job, sent, now);
        update_ready(pace, job, now);
    }
}

/* ---- The events to wait for ---- */

static void set_polled(struct loop *loop, size_t index)
{
    weir_assert(index < loop->pace->count);
    const struct weir_pace_job *job = &loop->pace->jobs[index];
    struct pollfd *in = &loop->polled[1 + 2 * index];
    struct pollfd *out = in + 1;
    bool reads =
        weir_pace_job_wants(job) && (!loop->pace->stopped || job->open);
    *in = (struct pollfd){ .fd = reads ? job->in : -1, .events = POLLIN };
    /* Even without events, poll() reports that the reader has closed it. */
    *out = (struct pollfd){ .fd = job->done ? -1 : job->out,
                            .events = job->granted > 0 ? POLLOUT : 0 };
}

static weir_instant next_turn(const struct pace *pace)
{
    if (pace->pacer)
        return weir_pacer_next(pace->pacer);
    struct weir_pace_job *job = pace->jobs;
    bool waits = !pace->stopped && !job->blocked && job->granted == 0 &&
                 weir_pace_job_has_unit(job);
    return waits ? pace->gate->next : WEIR_NEVER;
}

/* A file that can't be written is reported once; it is tried again at the
 * end. */
static void save_state(struct pace *pace, weir_instant now)
{
    if (!pace->state || now < pace->save_next)
        return;
    int status =
        weir_pace_state_save(pace->state, pace->jobs, pace->count, false);
    pace->save_next = status ? WEIR_NEVER : now + SAVE_EVERY;
}

static int wait_for_something(struct loop *loop)
{
    struct pace *pace = loop->pace;
    for (size_t i = 0; i < pace->count; i++)
        set_polled(loop, i);
    weir_instant now = weir_clock_now();
    weir_instant until = next_turn(pace);
    if (pace->progress.on && pace->progress.next < until)
        until = pace->progress.next;
    if (pace->state && pace->save_next < until)
        until = pace->save_next;
    weir_duration left = until > now ? until - now : 0;
    left = left < IDLE_MAX ? left : IDLE_MAX;
    struct timespec timeout = { .tv_sec = (time_t)(left / WEIR_SECOND),
                                .tv_nsec = (long)(left % WEIR_SECOND) };
    int got = ppoll(loop->polled, 1 + 2 * pace->count, &timeout, NULL);
    if (got < 0 && errno != EINTR)
        return weir_cli_fail("can't wait: %s", strerror(errno));
    for (size_t i = 0; got < 0 && i < 1 + 2 * pace->count; i++)
        loop->polled[i].revents = 0;
    return 0;
}

/* ---- Handling events ---- */

static void read_signal(struct loop *loop)
{
    struct signalfd_siginfo info;
    if (!loop->polled[0].revents ||
        read(loop->signals, &info, sizeof info) != sizeof info)
        return;
    loop->hurry = loop->pace->stopped;
    loop->pace->stopped = true;
}

static void note_blocked(struct weir_pace_job *job, bool blocked,
                         weir_instant now)
{
    weir_assert(!job->blocked || now >= job->blocked_at);
    if (job->blocked)
        job->waited += now - job->blocked_at;
    job->blocked = blocked;
    job->blocked_at = now;
}

static void serve_job(struct loop *loop, size_t index, weir_instant now)
{
    weir_assert(index < loop->pace->count);
    struct pace *pace = loop->pace;
    struct weir_pace_job *job = &pace->jobs[index];
    const struct pollfd *in = &loop->polled[1 + 2 * index];
    const struct pollfd *out = in + 1;
    if (job->done)
        return;
    note_blocked(job, job->granted > 0 && !(out->revents & POLLOUT), now);
    if (in->fd >= 0 && in->revents)
        weir_pace_job_read(job);
    if (out->revents & POLLOUT && job->granted > 0)
        weir_pace_job_write(job);
    else if (out->revents & (POLLERR | POLLHUP | POLLNVAL))
        job->closed = job->done = true;
    if (pace->stopped && !job->done)
        weir_pace_job_stop(job);
    update_ready(pace, job, now);
}

static bool all_done(const struct pace *pace)
{
    for (size_t i = 0; i < pace->count; i++)
        if (!pace->jobs[i].done)
            return false;
    return true;
}

static int run_loop(struct loop *loop)
{
    struct pace *pace = loop->pace;
    while (!all_done(pace) && !loop->hurry) {
        int status = wait_for_something(loop);
        if (status)
            return status;
        read_signal(loop);
        weir_instant now = weir_clock_now();
        for (size_t i = 0; i < pace->count; i++)
            serve_job(loop, i, now);
        take_turns(pace, now);
        draw_progress(pace, now);
        save_state(pace, now);
    }
    return 0;
}

/* Runs until all is written or a signal asks for the end; a second signal ends
 * it at once. 0, or an exit status after printing the error. */
static int run_until_end(struct pace *pace)
{
    weir_assert(!pace->gate != !pace->pacer);
    sigset_t wanted, before;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGINT);
    sigaddset(&wanted, SIGTERM);
    sigaddset(&wanted, SIGHUP);
    sigprocmask(SIG_BLOCK, &wanted, &before);
    /* The process sleeps nearly always, and each late wake-up disturbs the
     * rate. Without the right to this priority it goes on. */
    (void)setpriority(PRIO_PROCESS, 0, PRIORITY);
    struct loop loop = {
        .pace = pace,
        .signals = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK),
        .polled = calloc(1 + 2 * pace->count, sizeof(struct pollfd)),
    };
    pace->save_next = weir_clock_now() + SAVE_EVERY;
    int status = 0;
    if (loop.signals < 0 || !loop.polled)
        status = weir_cli_fail("can't begin: %s", strerror(errno));
    if (status == 0) {
        loop.polled[0] =
            (struct pollfd){ .fd = loop.signals, .events = POLLIN };
        status = run_loop(&loop);
    }
    if (loop.signals >= 0)
        close(loop.signals);
    free(loop.polled);
    sigprocmask(SIG_SETMASK, &before, NULL);
    for (size_t i = 0; i < pace->count; i++)
        weir_pace_job_drop(&pace->jobs[i], 0);
    return status;
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

static int open_jobs(struct pace *pace)
{
    bool again = pace->state && access(pace->state, F_OK) == 0;
    int status = pace->state ? check_state(pace->state) : 0;
    status =
        status ? status : weir_pace_jobs_open(pace->jobs, pace->count, again);
    if (status || !pace->state)
        return status;
    return weir_pace_state_resume(pace->state, pace->jobs, pace->count);
}

static const char *state_note(const struct pace *pace, char *buf, size_t size)
{
    if (!pace->state)
        return "";
    snprintf(buf, size, "; the same command goes on from there (%s)",
             pace->state);
    return buf;
}

static void print_pace_end(const struct pace *pace, const struct sum *sum)
{
    char note[512];
    weir_duration took = weir_clock_now() - pace->progress.start;
    bool whole = !sum->closed && !pace->stopped;
    if (pace->cli.json)
        fprintf(stderr,
                "{\"units\": %" PRIu64 ", \"bytes\": %" PRIu64
                ", \"seconds\": %.3f, \"waited_s\": %.3f, "
                "\"late_s\": %.3f, \"whole\": %s}\n",
                sum->units, sum->bytes, (double)took / 1e9,
                (double)sum->waited / 1e9, (double)pace->late / 1e9,
                whole ? "true" : "false");
    else if (!whole)
        fprintf(stderr, "weir: %s after %" PRIu64 " %s, %" PRIu64 " bytes%s\n",
                sum->closed ? "the reader has gone" : "stopped", sum->units,
                noun(pace->jobs), sum->bytes,
                state_note(pace, note, sizeof note));
}

/* The state exists if and only if part of the input isn't written yet. */
static int end_pace(const struct pace *pace)
{
    struct sum sum = add_up(pace->jobs, pace->count);
    int status = 0;
    bool whole = !sum.closed && !sum.failed && !pace->stopped;
    if (pace->state && whole)
        unlink(pace->state);
    else if (pace->state)
        status =
            weir_pace_state_save(pace->state, pace->jobs, pace->count, true);
    print_pace_end(pace, &sum);
    if (status || sum.failed)
        return WEIR_EXIT_ERROR;
    return whole ? WEIR_EXIT_OK : WEIR_EXIT_LIMITED;
}

static int run_pace(struct pace *pace)
{
    struct weir_pace_gate gate = { 0 };
    int status = choose_way(pace, &gate);
    status = status ? status : open_jobs(pace);
    if (status == 0) {
        pace->progress.bar = isatty(STDERR_FILENO);
        pace->progress.start = weir_clock_now();
        status = run_until_end(pace);
        end_progress(pace);
        status = status ? status : end_pace(pace);
    }
    for (size_t i = 0; i < pace->count; i++)
        weir_pace_job_close(&pace->jobs[i]);
    weir_pace_gate_fini(&gate, weir_clock_now());
    weir_pacer_free(pace->pacer);
    return status;
}

static int prepare_pace(struct pace *pace)
{
    int status = read_pace_unit(pace->by, &pace->unit);
    status = status ? status : check_pace_options(pace);
    pace->burst = 1;
    if (status == 0 && pace->burst_text)
        status = read_pace_burst(pace);
    return status ? status : make_jobs(pace);
}

int weir_cli_pace(int argc, char **argv)
{
    struct pace pace = { .by = "line", .algorithm = "token_bucket" };
    const struct weir_cli_option known[] = {
        { .name = "rate", .letter = 'r', .value = &pace.rate },
        { .name = "by", .value = &pace.by },
        { .name = "burst", .value = &pace.burst_text },
        { .name = "algorithm", .value = &pace.algorithm },
        { .name = "quota", .value = &pace.quota },
        { .name = "jobs", .value = &pace.jobs_file },
        { .name = "state", .value = &pace.state },
        { .name = "progress", .letter = 'p', .flag = &pace.progress.on },
    };
    int at = weir_cli_parse(&pace.cli, pace_help, known, WEIR_COUNT_OF(known),
                            argc, argv);
    if (at < 0)
        return weir_cli_parsed(at);
    if (at < argc)
        return weir_cli_fail(
            "only standard input is paced: weir pace --rate … < %s", argv[at]);
    int status = prepare_pace(&pace);
    status = status ? status : run_pace(&pace);
    free(pace.jobs);
    free(pace.text);
    return status;
}
