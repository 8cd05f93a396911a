/* SPDX-License-Identifier: MIT
 * server/admin/admin_parts.h - shared by the parts of the administration. */

#ifndef WEIR_ADMIN_PARTS_H
#define WEIR_ADMIN_PARTS_H

#include <jansson.h>

#include "front/query.h"
#include "front/view.h"
#include "server/admin/admin.h"

#define WEIR_JSON_TYPE "application/json"
#define WEIR_HTTP_PROBLEM_TYPE "application/problem+json"
#define WEIR_TEXT_TYPE "text/plain; charset=utf-8"
#define WEIR_METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

struct weir_admin_edit;

struct weir_admin {
    struct weir_root *root;                    /* borrowed */
    struct weir_store_thread *store;           /* borrowed; NULL: none */
    const struct weir_snapshot *snapshot;      /* borrowed; NULL: off */
    const struct weir_upstream *upstream;      /* borrowed; NULL: a top root */
    const struct weir_doorman_source *doorman; /* borrowed; NULL: no file */
    const struct weir_doorman_api *calls;      /* borrowed; NULL: none */
    struct weir_admin_watch watch;
    const struct weir_authorization *authorizer; /* borrowed; NULL: none */
    struct weir_settings settings;
    uint8_t incarnation[WEIR_INCARNATION_SIZE];
    char name[WEIR_NAME_MAX + 1];
    char *store_url;     /* owned */
    const char *version; /* static */
    weir_instant started;
    struct weir_store_id store_id;
    uint64_t floor;
    int trouble; /* the store's error; 0: none */
    char trouble_why[WEIR_DIAG_MAX];
    bool stopping;
    struct weir_views *views;   /* owned */
    char parent[WEIR_NAME_MAX]; /* scratch of view_root.c */
    /* The queue of edits; the first is being made; owned. */
    struct weir_admin_edit *edits, **edits_end;
    size_t edits_count;
};

/* One request, from its arrival to its answer. */
struct weir_admin_call {
    struct weir_admin *admin;
    const struct weir_admin_request *request;
    struct weir_uri uri;
    struct weir_text name; /* of the quota in the path, decoded */
    weir_admin_done_fn *done;
    void *context;
    weir_instant now;
};

/* ---- Answers (admin.c); each calls done ---- */

/* 'body' is stolen; NULL answers 500. */
void weir_admin_answer_json(weir_admin_done_fn *done, void *context, int status,
                            json_t *body);
void weir_admin_answer_error(weir_admin_done_fn *done, void *context, int error,
                             const struct weir_diag *diag);
void weir_admin_answer_text(weir_admin_done_fn *done, void *context, int status,
                            const char *type, const char *body, size_t len);

/* ---- Queries (admin.c) ---- */

/* ?KEY=1: sets '*out', which keeps its value without the key. 0, or WEIR_EINVAL
 * with 'diag' filled. */
int weir_admin_flag(const struct weir_admin_call *call, const char *key,
                    bool *out, struct weir_diag *diag);
/* ?KEY=N from 1 to 'max'. */
int weir_admin_number(const struct weir_admin_call *call, const char *key,
                      size_t max, size_t *out, struct weir_diag *diag);
/* ?KEY=NAME decoded into 'buf' of WEIR_NAME_MAX bytes; absent: len 0. */
int weir_admin_query_name(const struct weir_admin_call *call, const char *key,
                          char *buf, struct weir_text *out,
                          struct weir_diag *diag);

/* ---- Usage, for the lists of more than one part ---- */

/* A template, and the JSON that gets the sum of its instances' usage. */
struct weir_admin_sum {
    const struct weir_quota *quota; /* borrowed */
    json_t *object;                 /* the caller's */
    uint64_t passed, refused, instances;
};
json_t *weir_admin_sum_object(const struct weir_admin_sum *sum);
/* Sums all templates in one walk of the quotas in use; sorts 'sums' by the
 * address of the quota (admin_read.c). */
void weir_admin_sum(struct weir_root *root, struct weir_admin_sum *sums,
                    size_t count, weir_instant now);

/* The data that the page shows (view_root.c). */
struct weir_view_source weir_admin_source(struct weir_admin *admin);

/* ---- Handlers ---- */

/* admin_read.c */
void weir_admin_get_quota(struct weir_admin_call *call);
void weir_admin_list(struct weir_admin_call *call);
void weir_admin_export(struct weir_admin_call *call);
void weir_admin_brief(struct weir_admin_call *call);
/* admin_status.c */
void weir_admin_status(struct weir_admin_call *call);
void weir_admin_metrics(struct weir_admin_call *call);
void weir_admin_health(struct weir_admin_call *call);
void weir_admin_readiness(struct weir_admin_call *call);
/* admin_preview.c */
void weir_admin_preview(struct weir_admin_call *call);
/* admin_debug.c */
void weir_admin_debug_status(struct weir_admin_call *call);
void weir_admin_debug_resources(struct weir_admin_call *call);
/* admin_edit.c */
void weir_admin_put(struct weir_admin_call *call);
void weir_admin_patch(struct weir_admin_call *call);
void weir_admin_delete(struct weir_admin_call *call);
void weir_admin_import(struct weir_admin_call *call);
void weir_admin_remove(struct weir_admin_call *call);
void weir_admin_reset(struct weir_admin_call *call);
/* admin_log.c */
void weir_admin_log(struct weir_admin_call *call);
void weir_admin_undo(struct weir_admin_call *call);
/* admin_shadow.c */
void weir_admin_promote(struct weir_admin_call *call);
void weir_admin_discard(struct weir_admin_call *call);

/* A quota of the shadow set under the names that it will have in force. Texts
 * stay borrowed; any other quota stays as it is. */
struct weir_quota weir_shadow_live(const struct weir_quota *quota);

/* The store's thread has done the first edit's request. */
void weir_admin_edit_done(struct weir_admin *admin,
                          struct weir_admin_edit *edit, int error,
                          const struct weir_diag *diag, uint64_t epoch);
void weir_admin_edits_fini(struct weir_admin *admin);

#endif /* WEIR_ADMIN_PARTS_H */
