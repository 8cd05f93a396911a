/* SPDX-License-Identifier: MIT
 * cli/replay.h - the parts of `weir replay`: access logs become requests, a set
 * of quotas decides them in virtual time, and the results are printed. */

#ifndef WEIR_REPLAY_H
#define WEIR_REPLAY_H

#include <jansson.h>
#include <stdio.h>

#include "command/cli.h"
#include "core/base/index.h"
#include "core/quota/catalog.h"

#define WEIR_REPLAY_TEXTS_MAX 8000000u /* keys, and clients */
#define WEIR_REPLAY_BAD_SHOWN 3
#define WEIR_REPLAY_BINS 240     /* of the time of a log */
#define WEIR_REPLAY_PARTS_MAX 32 /* of a --key */

/* ---- replay_read.c: logs into memory ---- */

struct weir_replay_field;
/* The name that a line asks for. */
struct weir_replay_key {
    struct {
        const struct weir_replay_field *field; /* NULL: the literal */
        struct weir_text literal;              /* borrowed from the template */
    } parts[WEIR_REPLAY_PARTS_MAX];
    size_t count;
};
/* '{client}/{method}'. 0, or an exit status after printing the error. */
int weir_replay_key_parse(const char *text, struct weir_replay_key *out);

/* Texts by number, each once. A zeroed set is empty. */
struct weir_replay_texts {
    struct weir_text *items; /* owned, and the bytes of each */
    uint32_t count;
    size_t capacity;
    struct weir_index index;
};

struct weir_replay_request {
    weir_instant at; /* since 1970 */
    uint32_t key;
    uint32_t client;
    uint32_t weight;
};

enum weir_replay_format {
    WEIR_REPLAY_ANY, /* JSON if a line begins with '{' */
    WEIR_REPLAY_COMBINED,
    WEIR_REPLAY_VHOST, /* combined, after the host and its port */
    WEIR_REPLAY_JSON,
};

struct weir_replay_log {
    enum weir_replay_format format; /* the caller's … */
    bool by_bytes;                  /* … weight: of the answer */
    struct weir_replay_key key;
    struct weir_replay_request *requests; /* owned; in the order of time */
    size_t count, capacity;
    struct weir_replay_texts keys, clients;
    bool fine;        /* instants have parts of a second */
    uint64_t lines;   /* read; but for empty lines */
    uint64_t clipped; /* weights that were above UINT32_MAX */
    uint64_t bad;     /* lines that can't be read */
    struct {
        const char *file; /* borrowed */
        uint64_t line;
        const char *why;
        char text[72]; /* its begin, for people */
    } shown[WEIR_REPLAY_BAD_SHOWN];
};

/* The number of a text; a new number if the text is new ('*out_new').
 * UINT32_MAX: there are WEIR_REPLAY_TEXTS_MAX of them. */
uint32_t weir_replay_intern(struct weir_replay_texts *texts,
                            struct weir_text text, bool *out_new);
void weir_replay_texts_fini(struct weir_replay_texts *texts);

/* Reads a file, gzipped or not; "-": standard input. 0, or an exit status after
 * printing the error. */
int weir_replay_read(struct weir_replay_log *log, const char *path);
/* Sorts the requests by time; requests of one second are spread over it. 0, or
 * an exit status when there is none. */
int weir_replay_sort(struct weir_replay_log *log);
void weir_replay_log_fini(struct weir_replay_log *log);

/* ---- replay_run.c: a file of quotas, and its decisions ---- */

struct weir_replay_set {
    const char *path;          /* borrowed */
    json_t *body;              /* owned: the quotas' texts */
    struct weir_quota *quotas; /* owned */
    size_t count;
    struct weir_index index;      /* of the quotas by name */
    struct weir_catalog *catalog; /* owned */
};
/* 0, or an exit status after printing the error, with the place. */
int weir_replay_set_read(struct weir_replay_set *set, const char *path);
void weir_replay_set_fini(struct weir_replay_set *set);
/* The quota of that name, by index; -1: none. */
int weir_replay_set_find(const struct weir_replay_set *set,
                         struct weir_text name);

/* The requests to one quota of a file. */
struct weir_replay_count {
    uint64_t asked, refused;  /* requests */
    uint64_t units;           /* of the refused ones */
    weir_instant first, last; /* refused */
    weir_instant worst;       /* the minute with the most refused … */
    uint64_t worst_refused;   /* … and the number of them */
    uint64_t minute_refused;  /* of the current minute */
    uint64_t asked_in[WEIR_REPLAY_BINS], refused_in[WEIR_REPLAY_BINS];
};
struct weir_replay_client {
    uint32_t client;
    uint32_t asked, refused;
    int mostly; /* the quota that refused most of its requests, about */
    uint32_t votes;
};
struct weir_replay_result {
    const struct weir_replay_set *set;
    struct weir_replay_count all, *quotas; /* owned; one each */
    struct weir_replay_client *clients;    /* owned; the most refused first,
                                            * after sorting */
    uint32_t client_count;
    uint64_t unknown; /* requests by names that no quota rules */
    uint64_t crowded; /* names for which the table had no room */
    uint64_t shadow;  /* would have been refused by a quota in mode shadow */
    uint8_t *refused; /* owned: a bit a request */
    weir_instant begin, end;
};
void weir_replay_run(const struct weir_replay_log *log,
                     const struct weir_replay_set *set, uint64_t seed,
                     struct weir_replay_result *out);
void weir_replay_result_fini(struct weir_replay_result *result);

struct weir_replay_suggestion {
    bool none; /* no limit is small enough: 'why' */
    struct weir_diag why;
    struct weir_limit limit;
    uint64_t asked, refused; /* under it, by this quota alone */
};
/* For each quota the smallest limit (whole units in the quota's own time) under
 * which it would have refused at most 'share' of its requests. '*out' is owned
 * by the caller, set->count of them. */
void weir_replay_suggest(const struct weir_replay_log *log,
                         const struct weir_replay_set *set, double share,
                         uint64_t seed, struct weir_replay_suggestion **out);

#endif /* WEIR_REPLAY_H */
