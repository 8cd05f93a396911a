/* SPDX-License-Identifier: MIT
 * front/view.h - the page's data, of a root or of a limiter.
 *
 *     weir serve: a root            weir agent: a limiter
 *     admin_view.c                  agent/agent_page.c
 *              \                      /
 *        struct weir_view_source: facts, usages, the rule of a name
 *                        |
 *     /v1/live /v1/events /v1/recent /v1/why /v1/usage        (view*.c)
 *                        |
 *                    one page
 *
 * A root knows all limiters together and quotas as they were entered; a limiter
 * knows its own process, and quotas as it decides by them. Each fills the same
 * source, and the rest is common code. One thread. */

#ifndef WEIR_VIEW_H
#define WEIR_VIEW_H

#include <stdio.h>

#include <jansson.h>

#include "front/top_k.h"
#include "front/uri.h"

#define WEIR_VIEW_WATCH_MAX 100  /* quotas watched in one live view */
#define WEIR_VIEW_TOP_MAX 20     /* quotas in each of its top lists */
#define WEIR_VIEW_USAGE_MAX 1000 /* quotas in one usage */

/* The process and its state; texts are borrowed until the next turn. */
struct weir_view_facts {
    const char *kind; /* "root", "limiter"; static */
    const char *name, *version;
    const uint8_t *incarnation; /* WEIR_INCARNATION_SIZE bytes; of its sums */
    bool ready;
    const char *trouble; /* NULL: none */
    weir_instant started;
    uint64_t epoch, quotas, unknown, contended, limiters, reports;
};

/* The quota or template that rules a name, and how this process decides by
 * it. */
struct weir_ruled {
    struct weir_text name;   /* of the quota or template */
    struct weir_text parent; /* of the requested name; absent: none */
    enum weir_mode mode;
    enum weir_kind kind;
    struct weir_limit limit; /* of the quota */
    double low, high;        /* units, by which this process decides */
    double leak;             /* units a second; likewise */
    bool leased;             /* 'leak' is the part that it was granted */
    const char *elsewhere;   /* static: why its fill doesn't decide here; NULL:
                              * it does */
    bool asks;               /* elsewhere: a peek would ask a store */
};

struct weir_view_source {
    struct weir_usages usages;
    void *context; /* of all below */
    void (*facts)(void *context, struct weir_view_facts *out);
    /* False: no quota rules it. Texts are borrowed until the next call. */
    bool (*rule)(void *context, struct weir_text name, struct weir_ruled *out,
                 weir_instant now);
    /* The decision that a request would get now. NULL: this process decides
     * nothing. */
    void (*peek)(void *context, struct weir_text name, uint64_t weight,
                 struct weir_reply *out, weir_instant now);
    /* {template: {passed, refused, instances}}, of its instances together. A
     * new reference. */
    json_t *(*templates)(void *context, weir_instant now);
    /* More about an adaptive quota's name; NULL: nothing is known. A new
     * reference. */
    json_t *(*adaptive)(void *context, struct weir_text name, weir_instant now);
};

struct weir_views;

/* 'source' is copied. NULL: no memory. */
struct weir_views *weir_views_new(const struct weir_view_source *source);
/* NULL inside is legal. */
void weir_views_free(struct weir_views **views);
/* Call it about each second: takes the samples of /v1/recent. */
void weir_views_tick(struct weir_views *views, weir_instant now);

/* The path of each view, as drawn above; NULL past the last. */
const char *weir_views_path(size_t i);
/* Whether one of the views is at that path. */
bool weir_views_have(struct weir_text path);
/* Answers GET of it: 0 and '*out', a new reference; or an error with 'diag'
 * filled. */
int weir_views_answer(struct weir_views *views, const struct weir_uri *uri,
                      json_t **out, struct weir_diag *diag, weir_instant now);

/* /v1/why, as weir_views_answer(); 'query' is without '?'. */
int weir_view_why(const struct weir_view_source *source, struct weir_text query,
                  json_t **out, struct weir_diag *diag, weir_instant now);

/* ---- For sources ---- */

/* The units that a template's instances passed and refused together. A new
 * reference, as the next. */
json_t *weir_view_sum(uint64_t passed, uint64_t refused, size_t instances);
/* A row of the tree, [name, parent or null, limit, mode]: a tenth of the work
 * of an export, which reads each field (10,000 quotas by curl: 0.1 s instead of
 * 1.2 s). */
json_t *weir_view_brief(const struct weir_quota *quota);
/* Writes 2 * len digits and a NUL. */
static inline void weir_view_hex(const uint8_t *bytes, size_t len, char *out)
{
    for (size_t i = 0; i < len; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

#endif /* WEIR_VIEW_H */
