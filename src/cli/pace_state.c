/* SPDX-License-Identifier: MIT
 * cli/pace_state.c - the state file of `weir pace`: where it was stopped.
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

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAGIC "weir-pace 1\n"
#define SUM_BYTES 32
#define HEX_BYTES (2 * SUM_BYTES + 1)
#define SPARE_MAX 4096 /* bytes of a path */

/* The sum so far; the job goes on adding to its own. */
static void write_sum(const struct weir_pace_job *job, char *out)
{
    unsigned char sum[SUM_BYTES];
    EVP_MD_CTX *copy = EVP_MD_CTX_new();
    if (!copy || EVP_MD_CTX_copy_ex(copy, job->digest) != 1 ||
        EVP_DigestFinal_ex(copy, sum, NULL) != 1)
        abort();
    EVP_MD_CTX_free(copy);
    for (size_t i = 0; i < sizeof sum; i++)
        snprintf(out + 2 * i, 3, "%02x", sum[i]);
}

/* ---- Writing ---- */

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
        char sum[HEX_BYTES];
        write_sum(&jobs[i], sum);
        fprintf(file, "%" PRIu64 " %" PRIu64 " %s %s\n", jobs[i].bytes,
                weir_pace_job_written(&jobs[i]), sum, jobs[i].input);
    }
    bool written = fflush(file) == 0 && (!durable || fsync(fileno(file)) == 0);
    written = fclose(file) == 0 && written;
    if (written && rename(spare, path) == 0)
        return 0;
    int why = errno;
    unlink(spare);
    return weir_cli_fail("%s: %s", path, strerror(why));
}

/* ---- Reading ---- */

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
            abort();
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
                           size_t count, bool *out_again)
{
    *out_again = false;
    FILE *file = fopen(path, "re");
    if (!file && errno == ENOENT)
        return 0;
    if (!file)
        return weir_cli_fail("%s: %s", path, strerror(errno));
    *out_again = true;
    int status = read_state_lines(path, file, jobs, count);
    fclose(file);
    return status;
}
