/* SPDX-License-Identifier: MIT
 * cli/pace.h - the parts of `weir pace`. */

#ifndef WEIR_PACE_H
#define WEIR_PACE_H

#include <openssl/evp.h>

#include "algo/meter.h"
#include "cli/cli.h"
#include "quota/quota.h"
#include "weir/pacer.h"

#define WEIR_PACE_JOBS_MAX 500            /* in a file of jobs */
#define WEIR_PACE_RECORD_MAX (1ull << 30) /* bytes */
#define WEIR_PACE_BUFFER (256u << 10)     /* bytes of a job's input */
/* A turn each millisecond; one that is late by up to nine more is made up
 * for. So no second sees more than ten milliseconds' worth beyond the rate. */
#define WEIR_PACE_QUANTUM WEIR_PACER_QUANTUM_MIN
#define WEIR_PACE_LAG (9 * WEIR_MILLISECOND)
/* How far behind a state file may be when the process is killed. */
#define WEIR_PACE_SAVE_EVERY WEIR_SECOND

/* What a unit is. */
enum weir_pace_by { WEIR_PACE_LINE, WEIR_PACE_BYTE, WEIR_PACE_RECORD };
struct weir_pace_unit {
    enum weir_pace_by by;
    uint64_t record; /* bytes of one */
};

/* ---- pace_gate.c: what lets a single job go, but for the pacer ---- */

struct weir_pace_gate {
    weir_instant next; /* when to ask again, after a 0 */
    uint64_t chunk;    /* units asked for at once, at most */
    /* By an algorithm: */
    struct weir_meter_rule rule;
    void *state;       /* owned; NULL: by a quota */
    weir_instant seen; /* the instant it was last asked at */
    /* By a live quota: */
    struct weir *weir; /* owned */
    struct weir_handle handle;
    uint64_t reserved; /* units that may go at … */
    weir_instant go_at;
    bool unknown; /* said that no quota rules the name */
};

/* By an algorithm of 'quota' alone (which passed weir_quota_check()). 0 or an
 * exit status. */
int weir_pace_gate_algorithm(struct weir_pace_gate *gate,
                             const struct weir_quota *quota,
                             const struct weir_pace_unit *unit);
/* By the live quota of that name, for units of 'unit'. 0, or an exit status
 * after saying why. */
int weir_pace_gate_quota(struct weir_pace_gate *gate,
                         const struct weir_cli *cli, const char *name,
                         const struct weir_pace_unit *unit);
/* How many of 'most' units may go now, and takes them; 0: ask at 'next'. */
uint64_t weir_pace_gate_take(struct weir_pace_gate *gate, uint64_t most,
                             weir_instant now);
void weir_pace_gate_fini(struct weir_pace_gate *gate, weir_instant now);

/* ---- pace_job.c: from one input to one output ---- */

struct weir_pace_job {
    const char *input;  /* borrowed; "-": standard input */
    const char *output; /* "-": standard output */
    struct weir_pace_unit unit;
    struct weir_limit rate; /* units 0: by a gate */
    int in, out;            /* -1: not open; owned unless standard */
    uint64_t size;          /* bytes of input, if that is known; else 0 */
    char *buf;              /* owned; WEIR_PACE_BUFFER bytes, of which … */
    size_t begin, end;      /* … these are read and not written, … */
    size_t granted;      /* … the first so many of which may be written … */
    size_t scanned;      /* … and so many behind those end no unit */
    uint64_t open_bytes; /* a record longer than the buffer: still to come */
    bool open;           /* in the middle of a unit that is, or a line */
    bool eof;
    bool blocked;            /* the output takes nothing just now … */
    weir_instant blocked_at; /* … since then */
    weir_duration waited;    /* for the output, in all */
    bool done;               /* all that will be written is */
    bool failed;        /* and that isn't all, for a reason that was said */
    bool closed;        /* the reader has gone */
    uint64_t bytes;     /* written */
    uint64_t units;     /* granted */
    char last;          /* byte written */
    EVP_MD_CTX *digest; /* owned: of what was written */
};

/* Opens both ends of all. Output files are emptied, or gone on with ('again'),
 * after all was opened and none of them is another job's output or anybody's
 * input. 0, or an exit status after saying why: then no file that was there
 * has lost anything. */
int weir_pace_jobs_open(struct weir_pace_job *jobs, size_t count, bool again);
void weir_pace_job_close(struct weir_pace_job *job);
/* Whether there is room to read into, and reads. */
bool weir_pace_job_wants(const struct weir_pace_job *job);
void weir_pace_job_read(struct weir_pace_job *job);
/* Whether a whole unit is there that hasn't been granted (or one that is
 * longer than the buffer has begun). */
bool weir_pace_job_has_unit(struct weir_pace_job *job);
/* Lets up to 'units' go; returns how many there were. */
uint64_t weir_pace_job_grant(struct weir_pace_job *job, uint64_t units);
/* Writes what doesn't block, after poll() has said that something doesn't. */
void weir_pace_job_write(struct weir_pace_job *job);
/* Nothing goes but the rest of a unit of which a part has gone. */
void weir_pace_job_stop(struct weir_pace_job *job);
/* Takes back what was granted and not written, but for the first 'keep'
 * bytes. */
void weir_pace_job_drop(struct weir_pace_job *job, size_t keep);
/* Units written: those granted, but for what drop() would take back. */
uint64_t weir_pace_job_written(const struct weir_pace_job *job);

/* ---- pace_state.c: where it was stopped ---- */

/* Skips what a state file says was written. '*out_again' is whether there was
 * such a file. 0, or an exit status after saying why. */
int weir_pace_state_resume(const char *path, struct weir_pace_job *jobs,
                           size_t count, bool *out_again);
/* Writes it, whole or not at all; 'durable': waits until it is on the disk,
 * which can take longer than a turn. 0, or an exit status after saying why. */
int weir_pace_state_save(const char *path, const struct weir_pace_job *jobs,
                         size_t count, bool durable);

/* ---- pace_progress.c: a line for people ---- */

#define WEIR_PACE_SAMPLES 8
struct weir_pace_progress {
    bool on, bar;      /* 'bar': on a terminal, drawn over itself */
    const char *quota; /* NULL: the rate is the jobs' */
    weir_instant start;
    weir_instant next; /* when to draw */
    struct {
        weir_instant at;
        uint64_t units;
    } samples[WEIR_PACE_SAMPLES];
    unsigned sampled;
};
void weir_pace_progress_draw(struct weir_pace_progress *progress,
                             const struct weir_pace_job *jobs, size_t count,
                             weir_instant now);
/* Leaves the line as it is and begins a new one. */
void weir_pace_progress_end(struct weir_pace_progress *progress,
                            const struct weir_pace_job *jobs, size_t count,
                            weir_instant now);

/* ---- pace_loop.c ---- */

struct weir_pace {
    struct weir_pace_job *jobs;
    size_t count;
    struct weir_pacer *pacer;    /* its jobs are these, by index; or NULL: */
    struct weir_pace_gate *gate; /* for the only job */
    struct weir_pace_progress progress;
    const char *state;      /* borrowed: where to note how far it is, each
                                   * WEIR_PACE_SAVE_EVERY; or NULL */
    weir_instant save_next; /* when to do that */
    bool stopped;           /* by a signal */
    weir_duration late;     /* by being woken later than can be made up
                                   * for, all jobs together */
};
/* Until all is written or a signal asks for the end; a second one asks for it
 * at once. 0, or an exit status after saying why. */
int weir_pace_run(struct weir_pace *pace);

#endif /* WEIR_PACE_H */
