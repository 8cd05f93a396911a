/* SPDX-License-Identifier: MIT
 * server/admin/admin.h - the administration of a root: requests in, JSON out,
 * over either listener (weir-http(7) is the reference).
 *
 * It stands between the root node, the store's thread and the listeners, knows
 * no sockets, and runs on the loop's thread. */

#ifndef WEIR_ADMIN_H
#define WEIR_ADMIN_H

#include "core/node/root.h"
#include "io/snapshot.h"
#include "server/doorman/doorman_api.h"
#include "server/doorman/doorman_source.h"
#include "server/store_thread.h"
#include "server/upstream.h"

#define WEIR_ADMIN_BODY_MAX (1u << 20)    /* bytes of a request */
#define WEIR_ADMIN_IMPORT_MAX (64u << 20) /* bytes of an import */
#define WEIR_ADMIN_EDITS_MAX 256          /* waiting; an edit beyond gets 503 */
#define WEIR_ADMIN_PAGE_MAX 1000          /* quotas in one list */
#define WEIR_ADMIN_EXPORT_PAGE 10000      /* quotas in one export */
#define WEIR_ADMIN_LOG_MAX 1000           /* entries in one log */
#define WEIR_ADMIN_LIMITERS_MAX 1000      /* limiters in a status */
#define WEIR_ADMIN_PREVIEW_MAX 600        /* steps of one preview */

struct weir_admin;
struct weir_authorization;

struct weir_admin_options {
    struct weir_root *root; /* borrowed */
    struct weir_text name;  /* of the root; copied */
    uint8_t incarnation[WEIR_INCARNATION_SIZE];
    struct weir_settings settings;
    const char *store_url; /* copied; shown to people */
    const char *version;   /* of Weir; static */
    weir_instant started;
    /* borrowed; its counters are shown; NULL: none */
    const struct weir_authorization *authorizer;
};

/* NULL: no memory. */
struct weir_admin *weir_admin_new(const struct weir_admin_options *options);
/* Answers waiting requests with WEIR_ECLOSED. NULL inside is legal. */
void weir_admin_free(struct weir_admin **admin);

/* The listener for weir_store_thread_new(): applies the store's changes to the
 * root. Set the part 'store' next, before the loop's first turn. */
struct weir_store_listener weir_admin_store_listener(struct weir_admin *admin);
/* Callbacks for the log: another store answers, or an older state of it (called
 * before the root changes); the store has lost edits that this root had; the
 * root's store fails, or works again (error 0); all changes read so far, the
 * 'newest' included, are in force. Each may be NULL. */
struct weir_admin_watch {
    void *context;
    void (*on_store)(void *context, const struct weir_store_id *id,
                     uint64_t epoch);
    /* A row of the store can't be read; 'kept': the quota that was served by
     * its name goes on. */
    void (*on_bad_row)(void *context, const struct weir_bad_row *row,
                       bool kept);
    void (*on_loss)(void *context, const struct weir_lineage_loss *loss);
    void (*on_trouble)(void *context, int error, const char *why);
    void (*on_epoch)(void *context, uint64_t epoch,
                     const struct weir_lineage_entry *newest);
};
/* The parts of the root's process that come and go, all borrowed; NULL: there
 * is none. The caller sets them. */
struct weir_admin_parts {
    struct weir_store_thread *store; /* without one every edit is refused */
    const struct weir_snapshot *snapshot; /* in the status */
    /* Of a region's root, which has no store: its status and its refusals of
     * edits name the upstream. */
    const struct weir_upstream *upstream;
    /* Of a root with a Doorman file: its pages and its refusals of edits name
     * that file. */
    const struct weir_doorman_source *doorman;
    const struct weir_doorman_api *calls; /* the counters of Doorman's calls */
    struct weir_admin_watch watch;
};
struct weir_admin_parts *weir_admin_parts(struct weir_admin *admin);

struct weir_admin_request {
    struct weir_text method; /* "GET" … */
    struct weir_text target; /* "/v1/quotas?match=*", as received */
    struct weir_text body;
    struct weir_text identity; /* for the log of edits; empty: unknown */
};

/* The role that a request needs; 0: it is open to all (whether the process
 * lives, and nothing else). A path without a route needs a role as well, by the
 * method: an unauthenticated peer doesn't learn which paths exist. */
unsigned weir_admin_role(const struct weir_admin_request *request);
/* Whether a request may have 'len' bytes of body, by its method and target: 0,
 * or WEIR_ETOOBIG with 'diag' filled. weir_admin_call() checks it too. */
int weir_admin_check_body(const struct weir_admin_request *request, size_t len,
                          struct weir_diag *diag);

struct weir_admin_answer {
    int status;        /* of HTTP */
    const char *type;  /* content type; static */
    const char *allow; /* of 405: the header Allow; else NULL; static */
    const char *body;  /* borrowed during the call */
    size_t len;
};
typedef void weir_admin_done_fn(void *context,
                                const struct weir_admin_answer *answer);

/* Answers 'request' by calling 'done' exactly once: a read before this returns,
 * an edit when it is in force on this root. 'request' is borrowed during the
 * call. */
void weir_admin_call(struct weir_admin *admin,
                     const struct weir_admin_request *request,
                     weir_admin_done_fn *done, void *context, weir_instant now);
/* Answers with 'error' (WEIR_ECREDENTIAL, WEIR_EDENIED …), for a listener that
 * doesn't admit a request. */
void weir_admin_refuse(int error, const struct weir_diag *diag,
                       weir_admin_done_fn *done, void *context);
/* Call it about each second: it takes the samples of GET /v1/recent. */
void weir_admin_tick(struct weir_admin *admin, weir_instant now);
/* Edits that were begun and not answered yet. */
size_t weir_admin_waiting(const struct weir_admin *admin);
/* From here on edits are refused (a stop waits for the edits under way). */
void weir_admin_stop_edits(struct weir_admin *admin);

#endif /* WEIR_ADMIN_H */
