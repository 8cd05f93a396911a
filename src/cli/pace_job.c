/* SPDX-License-Identifier: MIT
 * cli/pace_job.c - units from an input to an output, byte for byte.
 *
 *     buf:  [ written | granted | scanned, no end yet | not scanned | room ]
 *                     begin                                         end
 *
 * Units are granted whole, and granted bytes are written before anything else.
 * So except during a write, the output is the input up to the end of some unit.
 * A unit that doesn't fit the buffer is 'open': it was granted with the bytes
 * that were there, and the rest follows as it is read.
 *
 * A pipe is written to in pieces of PIPE_BUF at most, each after poll() has
 * reported room: then a write doesn't block, even if other processes have the
 * pipe open (O_NONBLOCK would apply to theirs as well), and it is complete or
 * not done at all. A piece ends where a unit does, unless one is longer than
 * that. The pipe is made as small as the rate allows: bytes in a pipe have left
 * here and not arrived there, and a reader that paused for a while would get
 * all of them at once.
 *
 * The state file says where the jobs were stopped:
 *
 *     weir-pace 1
 *     BYTES UNITS SHA256 INPUT
 *
 * a line for each input. To go on, that many bytes are read again and not
 * written; the sum proves that they are the same ones: otherwise a log that was
 * rotated meanwhile would be cut in its middle.
 *
 * The file is replaced as a whole: written beside, then renamed. That is done
 * once a second as well, so that a process that is killed repeats no more than
 * that second; then it doesn't wait until the file is on the disk, because no
 * line goes meanwhile. */

#include "cli/pace.h"
#include "lab/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The size of a pipe: the bytes of this span, at so many bytes a line. */
#define PIPE_SPAN (10 * WEIR_MILLISECOND)
#define LINE_BYTES 256
#define PIPE_BYTES_MAX (64u << 10)
#define MAGIC "weir-pace 1\n"
#define SUM_BYTES 32
#define HEX_BYTES (2 * SUM_BYTES + 1)
#define SPARE_MAX 4096 /* bytes of a path */

static int fail_job(struct weir_pace_job *job, const char *name)
{
    job->failed = job->done = true;
    return weir_cli_fail(
        "%s: %s",
        strcmp(name, "-") == 0
            ? (name == job->input ? "standard input" : "standard output")
            : name,
        strerror(errno));
}

/* ---- Both ends ---- */

static void narrow_pipe(const struct weir_pace_job *job)
{
    struct stat stat;
    if (fstat(job->out, &stat) < 0 || !S_ISFIFO(stat.st_mode))
        return;
    uint64_t each =
        job->unit.by == WEIR_PACE_LINE ? LINE_BYTES : job->unit.record;
    weir_u128 bytes = (weir_u128)job->rate.units * each * PIPE_SPAN /
                      (job->rate.per ? job->rate.per : 1);
    /* On an error the pipe keeps its size, e.g. without the right to change
     * it. */
    if (bytes < PIPE_BYTES_MAX)
        (void)fcntl(job->out, F_SETPIPE_SZ,
                    bytes > PIPE_BUF ? (int)bytes : PIPE_BUF);
}

static void learn_size(struct weir_pace_job *job)
{
    struct stat stat;
    off_t at = lseek(job->in, 0, SEEK_CUR);
    if (fstat(job->in, &stat) == 0 && S_ISREG(stat.st_mode) && at >= 0 &&
        stat.st_size > at)
        job->size = (uint64_t)(stat.st_size - at);
}

static int open_input(struct weir_pace_job *job)
{
    bool standard = strcmp(job->input, "-") == 0;
    job->in = standard ? STDIN_FILENO : open(job->input, O_RDONLY | O_CLOEXEC);
    return job->in < 0 ? fail_job(job, job->input) : 0;
}

/* Opened as it is: it is emptied when all are known to be sound. */
static int open_output(struct weir_pace_job *job, bool again)
{
    bool standard = strcmp(job->output, "-") == 0;
    int how = O_WRONLY | O_CREAT | O_CLOEXEC | (again ? O_APPEND : 0);
    job->out = standard ? STDOUT_FILENO : open(job->output, how, 0666);
    return job->out < 0 ? fail_job(job, job->output) : 0;
}

static bool is_same_open_file(int a, int b)
{
    struct stat x, y;
    return fstat(a, &x) == 0 && fstat(b, &y) == 0 && S_ISREG(x.st_mode) &&
           x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Compares files, not names: an output that is read as well would be emptied,
 * or grow by its own bytes. */
static int check_output(const struct weir_pace_job *jobs, size_t count,
                        size_t at)
{
    for (size_t i = 0; i < count; i++) {
        if (is_same_open_file(jobs[at].out, jobs[i].in))
            return weir_cli_fail("%s: a job reads it too; nothing was written. "
                                 "Name another output",
                                 jobs[at].output);
        if (i != at && is_same_open_file(jobs[at].out, jobs[i].out))
            return weir_cli_fail("%s: another job writes it, as %s",
                                 jobs[at].output, jobs[i].output);
    }
    return 0;
}

static int empty(struct weir_pace_job *job)
{
    struct stat stat;
    bool standard = strcmp(job->output, "-") == 0;
    if (standard || fstat(job->out, &stat) < 0 || !S_ISREG(stat.st_mode))
        return 0;
    return ftruncate(job->out, 0) < 0 ? fail_job(job, job->output) : 0;
}

static int make_ready(struct weir_pace_job *job)
{
    job->buf = malloc(WEIR_PACE_BUFFER);
    job->digest = EVP_MD_CTX_new();
    if (!job->buf || !job->digest ||
        EVP_DigestInit_ex(job->digest, EVP_sha256(), NULL) != 1)
        return weir_cli_fail("%s", weir_strerror(WEIR_ENOMEM));
    learn_size(job);
    narrow_pipe(job);
    return 0;
}

int weir_pace_jobs_open(struct weir_pace_job *jobs, size_t count, bool again)
{
    int status = 0;
    for (size_t i = 0; i < count && status == 0; i++)
        status = open_input(&jobs[i]);
    for (size_t i = 0; i < count && status == 0; i++)
        status = open_output(&jobs[i], again);
    for (size_t i = 0; i < count && status == 0; i++)
        status = check_output(jobs, count, i);
    for (size_t i = 0; i < count && status == 0; i++)
        status = make_ready(&jobs[i]);
    for (size_t i = 0; i < count && status == 0 && !again; i++)
        status = empty(&jobs[i]);
    return status;
}

void weir_pace_job_close(struct weir_pace_job *job)
{
    if (job->in > STDERR_FILENO)
        close(job->in);
    if (job->out > STDERR_FILENO)
        close(job->out);
    job->in = job->out = -1;
    free(job->buf);
    EVP_MD_CTX_free(job->digest);
    job->buf = NULL;
    job->digest = NULL;
}

/* ---- Units ---- */

static size_t unread(const struct weir_pace_job *job)
{
    weir_assert(job->begin + job->granted <= job->end);
    return job->end - job->begin - job->granted;
}

/* Bytes of the unit after the granted ones, if all of it is in the buffer; else
 * 0. */
static size_t whole_unit(struct weir_pace_job *job)
{
    size_t there = unread(job);
    if (job->unit.by != WEIR_PACE_LINE) {
        bool whole = there >= job->unit.record;
        job->scanned = whole ? 0 : there;
        return whole ? (size_t)job->unit.record : 0;
    }
    const char *from = job->buf + job->begin + job->granted;
    const char *feed = memchr(from + job->scanned, '\n', there - job->scanned);
    job->scanned = feed ? 0 : there;
    return feed ? (size_t)(feed - from) + 1 : 0;
}

static bool job_is_full(const struct weir_pace_job *job)
{
    return job->end - job->begin == WEIR_PACE_BUFFER;
}

/* Whether there is a unit without end: the last one, or one longer than the
 * buffer. */
static bool has_part(const struct weir_pace_job *job)
{
    return unread(job) > 0 &&
           (job->eof || (job_is_full(job) && job->granted == 0));
}

bool weir_pace_job_has_unit(struct weir_pace_job *job)
{
    if (job->open || job->done)
        return false;
    return whole_unit(job) > 0 || has_part(job);
}

static void grant_part(struct weir_pace_job *job)
{
    weir_assert(!job->open && !job->done);
    size_t part = unread(job);
    job->open = !job->eof;
    job->open_bytes =
        job->unit.by == WEIR_PACE_LINE ? 0 : job->unit.record - part;
    job->granted += part;
    job->scanned = 0;
    job->units++;
}

uint64_t weir_pace_job_grant(struct weir_pace_job *job, uint64_t units)
{
    uint64_t count = 0;
    if (job->unit.by == WEIR_PACE_BYTE) {
        count = unread(job) < units ? unread(job) : units;
        job->granted += (size_t)count;
        job->units += count;
        return count;
    }
    for (; count < units && weir_pace_job_has_unit(job); count++) {
        size_t bytes = whole_unit(job);
        if (bytes == 0) {
            grant_part(job);
            continue;
        }
        job->granted += bytes;
        job->units++;
    }
    return count;
}

/* The bytes just read belong to an open unit, up to its end. */
static void go_on_open(struct weir_pace_job *job)
{
    weir_assert(job->open);
    size_t there = unread(job);
    size_t rest = there;
    const char *from = job->buf + job->begin + job->granted;
    if (job->unit.by != WEIR_PACE_LINE) {
        rest = job->open_bytes < there ? (size_t)job->open_bytes : there;
        job->open_bytes -= rest;
        weir_assert(rest <= there);
        job->open = job->open_bytes > 0;
    } else {
        const char *feed = memchr(from, '\n', there);
        rest = feed ? (size_t)(feed - from) + 1 : there;
        job->open = !feed;
    }
    job->granted += rest;
}

/* ---- Reading and writing ---- */

bool weir_pace_job_wants(const struct weir_pace_job *job)
{
    size_t held = job->end - job->begin;
    return !job->done && !job->eof &&
           (held < WEIR_PACE_BUFFER / 2 ||
            (job->scanned > 0 && held < WEIR_PACE_BUFFER));
}

static void note_end(struct weir_pace_job *job)
{
    if (job->eof && job->begin == job->end)
        job->done = true;
}

void weir_pace_job_read(struct weir_pace_job *job)
{
    if (WEIR_PACE_BUFFER - job->end < WEIR_PACE_BUFFER / 2) {
        memmove(job->buf, job->buf + job->begin, job->end - job->begin);
        weir_assert(job->begin <= job->end);
        job->end -= job->begin;
        job->begin = 0;
    }
    ssize_t got =
        read(job->in, job->buf + job->end, WEIR_PACE_BUFFER - job->end);
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (got < 0) {
        fail_job(job, job->input);
        return;
    }
    job->end += (size_t)got;
    weir_assert(job->end <= WEIR_PACE_BUFFER);
    job->eof = got == 0;
    if (job->open)
        go_on_open(job);
    job->open = job->open && !job->eof;
    note_end(job);
}

/* Whether the last unit that was begun is complete. */
static bool is_between(const struct weir_pace_job *job)
{
    if (job->unit.by == WEIR_PACE_LINE)
        return job->bytes == 0 || job->last == '\n';
    return job->bytes % job->unit.record == 0;
}

/* Units that end within the granted bytes, after the first 'keep' of them. */
static uint64_t units_behind(const struct weir_pace_job *job, size_t keep)
{
    const char *from = job->buf + job->begin + keep;
    const char *end = job->buf + job->begin + job->granted;
    uint64_t lines = 0;
    if (job->unit.by != WEIR_PACE_LINE)
        return (uint64_t)(end - from) / job->unit.record;
    for (; from < end; from++)
        lines += *from == '\n';
    return lines;
}

void weir_pace_job_drop(struct weir_pace_job *job, size_t keep)
{
    weir_assert(keep <= job->granted);
    job->units -= units_behind(job, keep);
    job->granted = keep;
}

void weir_pace_job_stop(struct weir_pace_job *job)
{
    if (is_between(job)) {
        weir_pace_job_drop(job, 0);
        job->done = true;
        return;
    }
    const char *from = job->buf + job->begin;
    uint64_t rest = job->granted;
    if (job->unit.by != WEIR_PACE_LINE) {
        rest = job->unit.record - job->bytes % job->unit.record;
    } else {
        const char *feed = memchr(from, '\n', job->granted);
        rest = feed ? (uint64_t)(feed - from) + 1 : rest;
    }
    if (rest < job->granted)
        weir_pace_job_drop(job, (size_t)rest);
    job->done = job->granted == 0 && !job->open;
}

/* The bytes of the next write: up to the last end of a unit that fits, so that
 * a reader that closes the pipe has got a whole number of units. A part only of
 * a unit that doesn't fit. */
static size_t piece_of(const struct weir_pace_job *job)
{
    size_t most = job->granted < PIPE_BUF ? job->granted : PIPE_BUF;
    if (job->unit.by == WEIR_PACE_LINE) {
        const char *from = job->buf + job->begin;
        const char *feed = memrchr(from, '\n', most);
        return feed ? (size_t)(feed - from) + 1 : most;
    }
    size_t over = (size_t)((job->bytes + most) % job->unit.record);
    return over < most ? most - over : most;
}

void weir_pace_job_write(struct weir_pace_job *job)
{
    weir_assert(job->granted > 0);
    size_t some = piece_of(job);
    const char *from = job->buf + job->begin;
    ssize_t put = write(job->out, from, some);
    if (put < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (put < 0 && errno == EPIPE) {
        job->closed = job->done = true;
        return;
    }
    if (put <= 0) {
        fail_job(job, job->output);
        return;
    }
    if (EVP_DigestUpdate(job->digest, from, (size_t)put) != 1)
        weir_no_memory();
    job->last = from[put - 1];
    weir_assert((size_t)put <= some && some <= job->granted);
    job->begin += (size_t)put;
    job->granted -= (size_t)put;
    job->bytes += (uint64_t)put;
    note_end(job);
}

/* ---- The state file ---- */

/* The sum so far; the job goes on adding to its own. */
static void write_sum(const struct weir_pace_job *job, char *out)
{
    unsigned char sum[SUM_BYTES];
    EVP_MD_CTX *copy = EVP_MD_CTX_new();
    if (!copy || EVP_MD_CTX_copy_ex(copy, job->digest) != 1 ||
        EVP_DigestFinal_ex(copy, sum, NULL) != 1)
        weir_no_memory();
    EVP_MD_CTX_free(copy);
    for (size_t i = 0; i < sizeof sum; i++)
        snprintf(out + 2 * i, 3, "%02x", sum[i]);
}

int weir_pace_state_save(const char *path, const struct weir_pace_job *jobs,
                         size_t count, bool durable)
{
    char spare[SPARE_MAX];
    snprintf(spare, sizeof spare, "%s.new", path);
    FILE *file = fopen(spare, "we");
    if (!file)
        return weir_cli_fail("%s: %s", spare, strerror(errno));
    fputs(MAGIC, file);
    for (size_t i = 0; i < count; i++) {
        const struct weir_pace_job *job = &jobs[i];
        char sum[HEX_BYTES];
        write_sum(job, sum);
        /* Without the units that are granted and not written. */
        fprintf(file, "%" PRIu64 " %" PRIu64 " %s %s\n", job->bytes,
                job->units - units_behind(job, 0), sum, job->input);
    }
    bool written = fflush(file) == 0 && (!durable || fsync(fileno(file)) == 0);
    written = fclose(file) == 0 && written;
    if (written && rename(spare, path) == 0)
        return 0;
    int why = errno;
    unlink(spare);
    return weir_cli_fail("%s: %s", path, strerror(why));
}

struct entry {
    uint64_t bytes, units;
    char sum[HEX_BYTES];
    const char *input;
};

static bool read_state_entry(char *line, struct entry *out)
{
    int at = 0;
    if (sscanf(line, "%" SCNu64 " %" SCNu64 " %64[0-9a-f] %n", &out->bytes,
               &out->units, out->sum, &at) != 3 ||
        at == 0)
        return false;
    out->input = line + at;
    line[strcspn(line, "\n")] = '\0';
    return strlen(out->sum) == HEX_BYTES - 1 && out->input[0];
}

static int refuse_input(const char *path, const struct weir_pace_job *job,
                        const char *why)
{
    const char *name =
        strcmp(job->input, "-") == 0 ? "standard input" : job->input;
    return weir_cli_fail("%s isn't what it was when %s was written: %s. "
                         "Nothing was written now; remove %s to begin anew",
                         name, path, why, path);
}

/* Reads up to the place where the job was stopped. */
static int skip_to_stop(const char *path, struct weir_pace_job *job,
                        const struct entry *entry)
{
    while (job->bytes < entry->bytes) {
        uint64_t left = entry->bytes - job->bytes;
        ssize_t got =
            read(job->in, job->buf,
                 left < WEIR_PACE_BUFFER ? (size_t)left : WEIR_PACE_BUFFER);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return weir_cli_fail("%s: %s", job->input, strerror(errno));
        if (got == 0)
            return refuse_input(path, job, "it is shorter");
        if (EVP_DigestUpdate(job->digest, job->buf, (size_t)got) != 1)
            weir_no_memory();
        job->bytes += (uint64_t)got;
        job->last = job->buf[got - 1];
    }
    char sum[HEX_BYTES];
    write_sum(job, sum);
    job->units = entry->units;
    return strcmp(sum, entry->sum) == 0
               ? 0
               : refuse_input(path, job,
                              "the part that was written has changed");
}

static struct weir_pace_job *find_job(struct weir_pace_job *jobs, size_t count,
                                      const char *input)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(jobs[i].input, input) == 0)
            return &jobs[i];
    return NULL;
}

static int read_state_lines(const char *path, FILE *file,
                            struct weir_pace_job *jobs, size_t count)
{
    char line[SPARE_MAX + 256];
    if (!fgets(line, sizeof line, file) || strcmp(line, MAGIC) != 0)
        return weir_cli_fail(
            "%s is no file that `weir pace --state` wrote; name another", path);
    while (fgets(line, sizeof line, file)) {
        struct entry entry;
        if (!read_state_entry(line, &entry))
            return weir_cli_fail("%s is damaged; remove it to begin anew",
                                 path);
        struct weir_pace_job *job = find_job(jobs, count, entry.input);
        if (!job)
            return weir_cli_fail("%s is about %s, which isn't paced now; "
                                 "remove it to begin anew",
                                 path, entry.input);
        int status = skip_to_stop(path, job, &entry);
        if (status)
            return status;
    }
    return 0;
}

int weir_pace_state_resume(const char *path, struct weir_pace_job *jobs,
                           size_t count)
{
    FILE *file = fopen(path, "re");
    if (!file && errno == ENOENT)
        return 0;
    if (!file)
        return weir_cli_fail("%s: %s", path, strerror(errno));
    int status = read_state_lines(path, file, jobs, count);
    fclose(file);
    return status;
}
