/* SPDX-License-Identifier: MIT
 * cli/pace.h - the parts of `weir pace`. */

#ifndef WEIR_PACE_H
#define WEIR_PACE_H

#include <openssl/evp.h>

#include "command/cli.h"
#include "core/algorithm/algorithm.h"
#include "core/quota/quota.h"

#define WEIR_PACE_BUFFER (256u << 10) /* bytes of a job's input */
/* A turn that is late by up to this is made up for. So no second sees more than
 * ten milliseconds' worth beyond the rate. */
#define WEIR_PACE_LAG (9 * WEIR_MILLISECOND)

/* The kinds of units. */
enum weir_pace_by { WEIR_PACE_LINE, WEIR_PACE_BYTE, WEIR_PACE_RECORD };
struct weir_pace_unit {
    enum weir_pace_by by;
    uint64_t record; /* bytes of one record, 1 of a byte; not of a line */
};

/* ---- pace_limiter.c: other gates of a single job than the pacer ---- */

struct weir_pace_gate {
    weir_instant next; /* when to ask again, after a take of 0 */
    uint64_t chunk;    /* units of one request, at most */
    /* For an algorithm: */
    struct weir_algorithm_rule rule;
    void *state;       /* owned; NULL: a quota */
    weir_instant seen; /* the instant of the last request */
    /* For a live quota: */
    struct weir *weir; /* owned */
    struct weir_handle handle;
    uint64_t reserved; /* units that may go at … */
    weir_instant go_at;
    bool unknown; /* it was printed that no quota rules the name */
};

/* A gate by the algorithm of 'quota' alone (which passed weir_quota_check()). 0
 * or an exit status. */
int weir_pace_gate_algorithm(struct weir_pace_gate *gate,
                             const struct weir_quota *quota,
                             const struct weir_pace_unit *unit);
/* A gate by the live quota of that name, for units of 'unit'. 0, or an exit
 * status after printing the error. */
int weir_pace_gate_quota(struct weir_pace_gate *gate,
                         const struct weir_cli *cli, const char *name,
                         const struct weir_pace_unit *unit);
/* Takes as many of 'most' units as may go now; 0: ask at 'next'. */
uint64_t weir_pace_gate_take(struct weir_pace_gate *gate, uint64_t most,
                             weir_instant now);
void weir_pace_gate_fini(struct weir_pace_gate *gate, weir_instant now);

/* ---- pace_job.c: from one input to one output ---- */

struct weir_pace_job {
    const char *input;  /* borrowed; "-": standard input */
    const char *output; /* "-": standard output */
    struct weir_pace_unit unit;
    struct weir_limit rate; /* units 0: a gate instead */
    int in, out;            /* -1: not open; owned unless standard */
    uint64_t size;          /* bytes of input, if that is known; else 0 */
    char *buf;              /* owned; WEIR_PACE_BUFFER bytes, of which … */
    size_t begin, end;      /* … these are read and not written, … */
    size_t granted;         /* … the first of which may be written … */
    size_t scanned;         /* … and so many after those contain no end of a
                          * unit */
    uint64_t open_bytes;    /* a record longer than the buffer: still to come */
    bool open;              /* in the middle of a unit that is, or a line */
    bool eof;
    bool blocked;            /* the output is full at present … */
    weir_instant blocked_at; /* … since then */
    weir_duration waited;    /* for the output, in all */
    bool done;               /* nothing more will be written */
    bool failed;        /* … and part is missing, after a printed error */
    bool closed;        /* the output's reader has closed it */
    uint64_t bytes;     /* written */
    uint64_t units;     /* granted */
    char last;          /* byte written */
    EVP_MD_CTX *digest; /* owned: of the written bytes */
};

/* Opens both ends of all. Output files are emptied, or continued ('again'),
 * after all were opened and none of them is another job's output or any job's
 * input. 0, or an exit status after printing the error: then no existing file
 * has lost anything. */
int weir_pace_jobs_open(struct weir_pace_job *jobs, size_t count, bool again);
void weir_pace_job_close(struct weir_pace_job *job);
/* Whether there is room to read into, and reads. */
bool weir_pace_job_wants(const struct weir_pace_job *job);
void weir_pace_job_read(struct weir_pace_job *job);
/* Whether the buffer has a whole unit that isn't granted (or the begin of one
 * that is longer than the buffer). */
bool weir_pace_job_has_unit(struct weir_pace_job *job);
/* Grants up to 'units'; returns how many there were. */
uint64_t weir_pace_job_grant(struct weir_pace_job *job, uint64_t units);
/* Writes without blocking, after poll() has reported the output as writable. */
void weir_pace_job_write(struct weir_pace_job *job);
/* Writes nothing more but the rest of a unit that is partly written. */
void weir_pace_job_stop(struct weir_pace_job *job);
/* Takes back granted bytes that aren't written, but for the first 'keep'. */
void weir_pace_job_drop(struct weir_pace_job *job, size_t keep);

/* Skips the input that a state file names as written. 0 (also without such a
 * file), or an exit status after printing the error. */
int weir_pace_state_resume(const char *path, struct weir_pace_job *jobs,
                           size_t count);
/* Writes the file, whole or not at all; 'durable': waits until it is on the
 * disk, which can take longer than a turn. 0, or an exit status after printing
 * the error. */
int weir_pace_state_save(const char *path, const struct weir_pace_job *jobs,
                         size_t count, bool durable);

#endif /* WEIR_PACE_H */
