/* SPDX-License-Identifier: MIT
 * server/serve_internal.h - the parts of a root's process. */

#ifndef WEIR_SERVE_INTERNAL_H
#define WEIR_SERVE_INTERNAL_H

#include "io/daemon.h"
#include "server/doorman/doorman_source.h"
#include "server/election/mastership.h"
#include "server/grpc/grpc_api.h"
#include "server/http_api.h"
#include "server/root_resp.h"
#include "server/serve_options.h"
#include "server/snapshot/root_snapshot.h"
#include "server/upstream.h"

struct serve {
    const struct weir_serve_options *options;
    size_t files; /* descriptors for connections of both listeners */
    struct weir_log log;
    struct event_base *base; /* owned, as all below */
    struct weir_signals *signals;
    struct weir_root *root;         /* of the region, if there is one */
    struct weir_region *region;     /* NULL: a top root */
    struct weir_upstream *upstream; /* likewise */
    struct weir_admin *admin;
    struct weir_store_thread *store;    /* NULL: a region's root, or … */
    struct weir_doorman_source *source; /* … a Doorman file's */
    struct weir_mastership *mastership;
    struct weir_doorman_api *doorman;
    char identity[WEIR_MASTER_MAX + 1]; /* "HOST:PORT" for clients */
    struct weir_root_snapshot kept;     /* the snapshot's source */
    struct weir_snapshot *snapshot;     /* NULL: off */
    struct event *store_event;
    struct event *stop_event;
    struct event *look_event;
    struct weir_credentials *credentials; /* NULL: none in force */
    struct weir_tls *grpc_tls;            /* NULL: plain text; so is the next */
    struct weir_tls *http_tls;
    struct weir_authorization authorizer; /* borrows the three above */
    weir_instant warn_at; /* when to warn of the certificate's end again */
    struct weir_root_loop *loop;
    struct weir_grpc_api *grpc;
    struct weir_http_api *http;   /* NULL: off */
    struct weir_root_resp *inner; /* likewise */
    weir_instant zones_at;        /* when to read the time zones again */
    weir_instant stop_until;      /* 0: not stopping */
    bool ready;
    bool troubled; /* trouble of a Doorman file was reported */
    bool failed;   /* it can't join the election: it ends */
    bool loading;  /* the snapshot is being read */
    bool serving;  /* the root serves from it … */
    bool leaving;  /* … until the store's set is settled */
    char name[WEIR_NAME_MAX + 1];
};

/* ---- serve_source.c ---- */

int weir_serve_open_snapshot(struct serve *serve, struct weir_diag *diag);
/* Opens the source of the quotas. */
int weir_serve_open_source(struct serve *serve, struct weir_diag *diag);
int weir_serve_stand(struct serve *serve, struct weir_diag *diag);
/* Called before the listeners and the administration are freed: they borrow
 * it. */
void weir_serve_free_leasing(struct serve *serve);

#endif /* WEIR_SERVE_INTERNAL_H */
