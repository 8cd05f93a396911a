/* SPDX-License-Identifier: MIT
 * cli/pace_progress.c - the progress of `weir pace`, on standard error.
 *
 *     [######--------]  43 %  4311 lines  1000/s (set: 1000/s)  0:05 left
 *
 * On a terminal it is drawn over itself five times a second, elsewhere it is a
 * line every ten seconds. The time left is known when the inputs are files: by
 * bytes, at the mean size of the units so far. */

#include "cli/pace.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define DRAW_EVERY (WEIR_SECOND / 5)
#define TELL_EVERY (10 * WEIR_SECOND)
#define BAR_MAX 20
#define LINE_BYTES_MAX 256

struct sum {
    uint64_t bytes, size, units, done;
    bool sized;  /* all sizes are known */
    double rate; /* units a second, as set */
};

static struct sum add_up(const struct weir_pace_job *jobs, size_t count)
{
    struct sum sum = { .sized = true };
    for (size_t i = 0; i < count; i++) {
        sum.bytes += jobs[i].bytes;
        sum.size += jobs[i].size;
        sum.units += jobs[i].units;
        sum.done += jobs[i].done;
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
static double rate_now(struct weir_pace_progress *progress, uint64_t units,
                       weir_instant now)
{
    unsigned count = progress->sampled < WEIR_PACE_SAMPLES ? progress->sampled
                                                           : WEIR_PACE_SAMPLES;
    unsigned oldest = (progress->sampled - count) % WEIR_PACE_SAMPLES;
    double rate = 0;
    if (count > 0 && now > progress->samples[oldest].at)
        rate = (double)(units - progress->samples[oldest].units) * 1e9 /
               (double)(now - progress->samples[oldest].at);
    unsigned place = progress->sampled++ % WEIR_PACE_SAMPLES;
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

static size_t put_left(char *at, size_t room, double seconds)
{
    uint64_t s = (uint64_t)(seconds + 0.5);
    int put = s >= 3600
                  ? snprintf(at, room, "  %" PRIu64 ":%02u:%02u left", s / 3600,
                             (unsigned)(s / 60 % 60), (unsigned)(s % 60))
                  : snprintf(at, room, "  %u:%02u left", (unsigned)(s / 60),
                             (unsigned)(s % 60));
    return put > 0 ? (size_t)put : 0;
}

static size_t put_bar(char *at, const struct sum *sum)
{
    double part = sum->size > 0 && sum->bytes < sum->size
                      ? (double)sum->bytes / (double)sum->size
                      : 1;
    size_t full = (size_t)(part * BAR_MAX);
    size_t len = 0;
    at[len++] = '[';
    for (size_t i = 0; i < BAR_MAX; i++)
        at[len++] = i < full ? '#' : '-';
    return len +
           (size_t)snprintf(at + len, BAR_MAX, "] %3.0f %%  ", part * 100);
}

/* Writes a line without its end; returns its length. */
static size_t compose(struct weir_pace_progress *progress, char *line,
                      const struct weir_pace_job *jobs, size_t count,
                      weir_instant now)
{
    char done[16], went[16], set[16];
    struct sum sum = add_up(jobs, count);
    double rate = rate_now(progress, sum.units, now);
    size_t len = sum.sized ? put_bar(line, &sum) : 0;
    if (progress->quota)
        snprintf(set, sizeof set, "quota");
    else
        weir_cli_units(sum.rate, set);
    len += (size_t)snprintf(
        line + len, LINE_BYTES_MAX - len, "%s %s  %s/s (set: %s%s)",
        weir_cli_units((double)sum.units, done), noun(jobs),
        weir_cli_units(rate, went), set, progress->quota ? "" : "/s");
    if (count > 1)
        len += (size_t)snprintf(line + len, LINE_BYTES_MAX - len,
                                "  %" PRIu64 " of %zu files done", sum.done,
                                count);
    double at = sum.rate > 0 ? sum.rate : rate;
    if (sum.sized && sum.units > 0 && sum.bytes > 0 && at > 0 &&
        sum.size >= sum.bytes)
        len += put_left(line + len, LINE_BYTES_MAX - len,
                        (double)(sum.size - sum.bytes) / (double)sum.bytes *
                            (double)sum.units / at);
    return len < LINE_BYTES_MAX ? len : LINE_BYTES_MAX - 1;
}

static size_t columns(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_col == 0)
        return 80;
    return size.ws_col;
}

void weir_pace_progress_draw(struct weir_pace_progress *progress,
                             const struct weir_pace_job *jobs, size_t count,
                             weir_instant now)
{
    if (!progress->on || now < progress->next)
        return;
    progress->next = now + (progress->bar ? DRAW_EVERY : TELL_EVERY);
    char line[LINE_BYTES_MAX];
    size_t len = compose(progress, line, jobs, count, now);
    if (!progress->bar) {
        fprintf(stderr, "weir: %.*s\n", (int)len, line);
        return;
    }
    size_t most = columns() - 1;
    fprintf(stderr, "\r%.*s\033[K", (int)(len < most ? len : most), line);
    fflush(stderr);
}

void weir_pace_progress_end(struct weir_pace_progress *progress,
                            const struct weir_pace_job *jobs, size_t count,
                            weir_instant now)
{
    if (!progress->on || !progress->bar)
        return;
    progress->next = now;
    weir_pace_progress_draw(progress, jobs, count, now);
    fputc('\n', stderr);
}
