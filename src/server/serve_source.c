/* SPDX-License-Identifier: MIT
 * server/serve_source.c - the source of a root's quotas: a store, with a
 * snapshot for the time when it can't be reached; a Doorman file; or the roots
 * above.
 *
 * With the quotas a root joins the election of the master: a root without them
 * could be elected and grant nothing, while others could grant.
 *
 * If the store can't be reached at the start, the root serves from a snapshot,
 * if there is one: the first report of trouble loads it, and the store's own
 * set, when it comes, replaces it as if the snapshot had been read from the
 * store. */

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/quota/quota_text.h"
#include "io/clock.h"
#include "server/serve_internal.h"

/* ---- The snapshot ---- */

static int take_snapshot_store(void *context,
                               const struct weir_snapshot_info *info)
{
    struct serve *serve = context;
    weir_instant now = weir_clock_now();
    struct weir_store_listener to = weir_admin_store_listener(serve->admin);
    return to.on_store(to.context, &info->store, info->epoch, info->floor, now);
}

static int take_snapshot_change(void *context, const struct weir_change *change)
{
    const struct serve *serve = context;
    struct weir_store_listener to = weir_admin_store_listener(serve->admin);
    return to.on_change(to.context, change, weir_clock_now());
}

/* The newest change of the snapshot, and its store. */
static void get_snapshot_end(const struct serve *serve,
                             struct weir_store_id *store,
                             struct weir_lineage_entry *newest)
{
    struct weir_snapshot_state state;
    weir_snapshot_look(serve->snapshot, &state);
    *store = state.info.store;
    *newest = (struct weir_lineage_entry){ .epoch = state.info.epoch,
                                           .identity = state.info.lineage };
}

/* Loads the quotas that the root serves until its store answers. */
static void serve_from_snapshot(struct serve *serve)
{
    struct weir_diag diag = { 0 };
    struct weir_snapshot_sink sink = { serve, take_snapshot_store,
                                       take_snapshot_change };
    bool usable = serve->snapshot && weir_snapshot_usable(serve->snapshot);
    if (serve->ready || !usable)
        return;
    weir_assert(!serve->loading && !serve->serving);
    serve->loading = true;
    int error = weir_snapshot_load(serve->snapshot, &sink, &diag);
    if (error == 0) {
        struct weir_store_id store;
        struct weir_lineage_entry newest;
        get_snapshot_end(serve, &store, &newest);
        struct weir_store_listener to = weir_admin_store_listener(serve->admin);
        serve->serving = true;
        weir_root_set_provisional(serve->root, true);
        weir_snapshot_set_serving(serve->snapshot, true);
        to.on_settle(to.context, &newest, weir_clock_now());
    } else {
        weir_log(&serve->log, WEIR_LOG_ERROR, "%s", diag.text);
    }
    serve->loading = false;
}

/* Not before the store's own set is complete: a set that breaks off is dropped,
 * and the root still serves the snapshot's. */
static void leave_served_snapshot(struct serve *serve)
{
    weir_assert(serve->serving && serve->snapshot);
    serve->serving = serve->leaving = false;
    weir_snapshot_set_serving(serve->snapshot, false);
}

/* Called when a store answers first, when another one does, or an older
 * state. */
static void on_store_answer(void *context, const struct weir_store_id *id,
                            uint64_t epoch)
{
    struct serve *serve = context;
    if (serve->loading || !serve->snapshot)
        return;
    weir_snapshot_forget(serve->snapshot);
    if (!serve->serving)
        return;
    struct weir_snapshot_state state;
    weir_snapshot_look(serve->snapshot, &state);
    bool same = memcmp(state.info.store.uuid, id->uuid, sizeof id->uuid) == 0;
    unsigned long long from = state.info.epoch;
    serve->leaving = true;
    if (!same)
        weir_log_limited(&serve->log, WEIR_LOG_STORE, WEIR_LOG_WARNING,
                         "the store that answers isn't "
                         "that of the snapshot, and the snapshot is dropped");
    else if (epoch < from)
        weir_log_limited(&serve->log, WEIR_LOG_STORE, WEIR_LOG_WARNING,
                         "the store is at epoch %llu, before the snapshot's "
                         "%llu: it was restored, and the snapshot is dropped",
                         (unsigned long long)epoch, from);
    else
        weir_log_limited(&serve->log, WEIR_LOG_STORE, WEIR_LOG_INFO,
                         "the store is back: it replaces the "
                         "snapshot at epoch %llu by epoch %llu",
                         from, (unsigned long long)epoch);
}

/* Makes the folders of the path, if they don't exist. 0 or WEIR_ESYSTEM. */
static int make_folders(const char *path)
{
    char folder[WEIR_PATH_MAX];
    snprintf(folder, sizeof folder, "%s", path);
    for (char *slash = strchr(folder + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(folder, 0700) < 0 && errno != EEXIST)
            return WEIR_ESYSTEM;
        *slash = '/';
    }
    return 0;
}

/* The path is beside the store's file, so that fleets of one machine don't
 * meet; without a file it is among the user's own files. False: no snapshot is
 * kept, because none was named and the next start would use another path: the
 * root's name has a port that the system chose. */
static bool name_snapshot(const struct serve *serve, char path[WEIR_PATH_MAX])
{
    const struct weir_serve_options *options = serve->options;
    if (options->snapshot_off || options->doorman_config)
        return false;
    if (options->snapshot) {
        int len = snprintf(path, WEIR_PATH_MAX, "%s", options->snapshot);
        return len < WEIR_PATH_MAX;
    }
    if (!options->name && options->listen.port == 0)
        return false;
    char name[WEIR_NAME_MAX + 16];
    snprintf(name, sizeof name, "%s.snapshot", serve->name);
    for (char *slash = strchr(name, '/'); slash; slash = strchr(slash, '/'))
        *slash = '_';
    bool is_file = strncmp(options->store, "sqlite:", 7) == 0;
    if (!is_file)
        return weir_serve_own_file("", name, path);
    int len = snprintf(path, WEIR_PATH_MAX, "%s.%s", options->store + 7, name);
    return len < WEIR_PATH_MAX;
}

int weir_serve_open_snapshot(struct serve *serve, struct weir_diag *diag)
{
    char path[WEIR_PATH_MAX];
    if (!name_snapshot(serve, path))
        return 0;
    /* An error here shows again when the file can't be made. */
    if (!serve->options->snapshot)
        (void)make_folders(path);
    struct weir_snapshot_options options = {
        .base = serve->base,
        .source = weir_root_snapshot_source(&serve->kept),
        .path = path,
    };
    serve->kept =
        (struct weir_root_snapshot){ .root = serve->root, .log = &serve->log };
    int error = weir_snapshot_new(&options, &serve->snapshot, diag);
    if (error == 0)
        weir_admin_parts(serve->admin)->snapshot = serve->snapshot;
    return error;
}

/* ---- The election ---- */

/* The root may have something to send. */
static void kick_root_loop(void *context)
{
    const struct serve *serve = context;
    weir_root_loop_kick(serve->loop);
}

static void on_mark(void *context, bool never, const char *why)
{
    struct serve *serve = context;
    if (why)
        weir_log_limited(&serve->log, WEIR_LOG_LEASES, WEIR_LOG_WARNING,
                         "the mark of the store isn't taken yet: %s; trying "
                         "again",
                         why);
    if (serve->mastership)
        weir_mastership_set_mark(serve->mastership, never);
}

static bool take_mark(void *context)
{
    struct serve *serve = context;
    const struct weir_store_mark_ask ask = { on_mark, serve };
    return weir_store_thread_take_mark(serve->store, &ask) == 0;
}

int weir_serve_stand(struct serve *serve, struct weir_diag *diag)
{
    weir_assert(serve->grpc && serve->loop && !serve->mastership);
    const struct weir_serve_options *options = serve->options;
    char key[WEIR_NAME_MAX + 16];
    snprintf(key, sizeof key,
             options->region ? "weir/master/%s" : "weir/master%s",
             options->region ? options->region : "");
    weir_serve_identity(options, weir_grpc_api_port(serve->grpc),
                        serve->identity);
    struct weir_mastership_options mastership = {
        .election = { .base = serve->base,
                      .log = &serve->log,
                      .kind = options->election,
                      .identity = serve->identity,
                      .path = options->election_path,
                      .endpoints = options->etcd,
                      .count = options->etcd_count,
                      .key =
                          options->election_key ? options->election_key : key,
                      .login = options->etcd_login,
                      .ttl = options->election_ttl },
        .store = serve->store && !serve->source ? options->store : NULL,
        .alone = options->alone,
        .take_mark = serve->store && !serve->source ? take_mark : NULL,
        .root = serve->root,
        .on_change = kick_root_loop,
        .context = serve,
    };
    weir_root_lease_promise_safe(serve->root, !serve->source);
    int error = weir_mastership_new(&mastership, &serve->mastership, diag);
    if (error < 0)
        return error;
    weir_root_loop_set_mastership(serve->loop, serve->mastership);
    weir_doorman_api_set_mastership(serve->doorman, serve->mastership,
                                    serve->identity);
    return 0;
}

/* Joins the election late, with the first quotas. */
static void stand_at_last(struct serve *serve)
{
    struct weir_diag diag = { 0 };
    if (serve->mastership || serve->stop_until || !serve->grpc ||
        weir_serve_stand(serve, &diag) == 0)
        return;
    weir_log(&serve->log, WEIR_LOG_ERROR, "%s", diag.text);
    serve->failed = true;
    event_base_loopbreak(serve->base);
}

void weir_serve_free_leasing(struct serve *serve)
{
    if (serve->loop)
        weir_root_loop_set_mastership(serve->loop, NULL);
    if (serve->doorman) {
        weir_doorman_api_set_mastership(serve->doorman, NULL, "");
        weir_doorman_api_set_source(serve->doorman, NULL);
    }
    weir_mastership_free(&serve->mastership);
    if (serve->admin)
        weir_admin_parts(serve->admin)->doorman = NULL;
    weir_doorman_source_free(&serve->source);
    weir_assert(!serve->mastership && !serve->source);
}

/* ---- News ---- */

static void log_file_trouble(struct serve *serve, int error, const char *why)
{
    bool was_troubled = serve->troubled;
    serve->troubled = error < 0;
    if (error == 0 && was_troubled)
        weir_log_limited(&serve->log, WEIR_LOG_STORE, WEIR_LOG_INFO,
                         "the Doorman file is well again: the quotas are "
                         "those of %s",
                         serve->options->doorman_config);
    if (error < 0)
        weir_log_limited(
            &serve->log, WEIR_LOG_STORE, WEIR_LOG_ERROR, "%s: %s",
            serve->ready ? "the quotas stay as they were" : "not ready", why);
}

static void on_source_trouble(void *context, int error, const char *why)
{
    struct serve *serve = context;
    if (serve->options->doorman_config)
        log_file_trouble(serve, error, why);
    else if (error == 0)
        weir_log_limited(&serve->log, WEIR_LOG_STORE, WEIR_LOG_INFO,
                         "the store is well");
    else
        weir_log_limited(&serve->log, WEIR_LOG_STORE, WEIR_LOG_WARNING,
                         "%s: %s",
                         serve->ready ? "edits fail, decisions and reads go on"
                                      : "not ready, trying again",
                         why);
    if (error < 0)
        serve_from_snapshot(serve);
    weir_root_set_provisional(serve->root, error < 0 || serve->serving);
}

static void on_bad_row(void *context, const struct weir_bad_row *row, bool kept)
{
    struct serve *serve = context;
    char shown[WEIR_SHOW_MAX];
    bool settable = weir_name_check(row->name, NULL) == 0;
    weir_log_limited(
        &serve->log, WEIR_LOG_STORE, WEIR_LOG_ERROR,
        "the store's row of quota %s (id %llu, epoch %llu) %s: %s; %sdelete "
        "that row by SQL and restart the roots",
        weir_text_show(row->name, shown), (unsigned long long)row->id,
        (unsigned long long)row->epoch,
        kept ? "is bad, and its last good value is served"
             : "is bad, and isn't served",
        row->why, settable ? "write it again with 'weir quota set', or " : "");
}

static void on_loss(void *context, const struct weir_lineage_loss *loss)
{
    struct serve *serve = context;
    weir_log(&serve->log, WEIR_LOG_WARNING,
             "the store lacks %s%llu edit%s that it had acknowledged (epochs "
             "%llu to %llu%s): its history was replaced, by a failover or an "
             "older backup; all roots and limiters now read the quotas that it "
             "has, so make these edits again",
             loss->all ? "" : "at least ", (unsigned long long)loss->edits,
             loss->edits == 1 ? "" : "s", (unsigned long long)loss->from,
             (unsigned long long)loss->till,
             loss->all ? "" : ", and perhaps before");
}

static void on_epoch(void *context, uint64_t epoch,
                     const struct weir_lineage_entry *newest)
{
    struct serve *serve = context;
    bool first = !serve->ready;
    serve->ready = true;
    if (serve->snapshot)
        weir_snapshot_set_lineage(serve->snapshot, newest->epoch,
                                  newest->identity);
    if (serve->leaving)
        leave_served_snapshot(serve);
    weir_root_set_provisional(serve->root, serve->serving);
    size_t count = weir_catalog_count(weir_root_catalog(serve->root));
    weir_log_limited(
        &serve->log, WEIR_LOG_STORE, first ? WEIR_LOG_INFO : WEIR_LOG_DEBUG,
        "%squotas: %zu, at epoch %llu%s",
        serve->serving ? "ready by the snapshot; "
        : first        ? "ready; "
                       : "",
        count, (unsigned long long)epoch,
        serve->serving ? "; edits fail until the store answers" : "");
    stand_at_last(serve);
}

/* ---- Start ---- */

/* Makes the default store if it doesn't exist and never did. */
static int make_own_store(struct serve *serve, struct weir_diag *diag)
{
    const char *path = serve->options->store + strlen("sqlite:");
    if (access(path, F_OK) == 0)
        return 0;
    char snapshot[WEIR_PATH_MAX];
    bool was = name_snapshot(serve, snapshot) && access(snapshot, F_OK) == 0;
    if (was && weir_snapshot_usable(serve->snapshot))
        return 0;
    if (was)
        return weir_diag_set(diag, WEIR_ESTORE, "the store ", path,
                             " is gone, and its snapshot ", snapshot,
                             " can't be used; put the store back, or remove "
                             "the snapshot to begin anew",
                             NULL);
    if (make_folders(path) < 0)
        return weir_diag_set(
            diag, WEIR_ESYSTEM, "can't make a folder for the store ", path,
            ": ", strerror(errno), "; name another with --store", NULL);
    int error = weir_store_init(serve->options->store, diag);
    /* Another root may have been quicker. */
    if (error < 0 && error != WEIR_EEXIST)
        return error;
    weir_log(&serve->log, WEIR_LOG_INFO, "made the store %s", path);
    return 0;
}

static int open_quota_store(struct serve *serve, struct weir_diag *diag)
{
    int error = serve->options->own_store ? make_own_store(serve, diag) : 0;
    if (error < 0)
        return error;
    struct weir_store_listener listener =
        weir_admin_store_listener(serve->admin);
    listener.patient = serve->snapshot && weir_snapshot_usable(serve->snapshot);
    if (listener.patient)
        get_snapshot_end(serve, &listener.snapshot_store, &listener.snapshot);
    error = weir_store_thread_new(serve->options->store, &listener,
                                  &serve->store, diag);
    if (error < 0)
        return error;
    struct weir_diag exposed;
    if (weir_store_check_mode(serve->options->store, &exposed) < 0)
        weir_log(&serve->log, WEIR_LOG_WARNING, "%s", exposed.text);
    weir_admin_parts(serve->admin)->store = serve->store;
    return 0;
}

static int open_upstream(struct serve *serve, struct weir_diag *diag)
{
    const struct weir_serve_options *options = serve->options;
    struct weir_upstream_options upstream = {
        .base = serve->base,
        .region = serve->region,
        .name = options->region,
        .addresses = options->upstream,
        .count = options->upstreams,
        .login = { .tls_ca = options->upstream_ca,
                   .tls_cert = options->upstream_cert,
                   .tls_key = options->upstream_key,
                   .token_file = options->upstream_token_file },
        .log = &serve->log,
        .snapshot = serve->snapshot,
        .on_news = kick_root_loop,
        .context = serve,
    };
    int error = weir_upstream_new(&upstream, &serve->upstream, diag);
    if (error == 0)
        weir_admin_parts(serve->admin)->upstream = serve->upstream;
    return error;
}

static struct weir_catalog *catalog_of_root(void *context)
{
    const struct serve *serve = context;
    return weir_root_catalog(serve->root);
}

static int open_doorman_file(struct serve *serve, struct weir_diag *diag)
{
    const struct weir_serve_options *options = serve->options;
    struct weir_doorman_source_options source = {
        .base = serve->base,
        .log = &serve->log,
        .catalog = catalog_of_root,
        .context = serve,
        .place = options->doorman,
        .endpoints = options->etcd,
        .count = options->etcd_count,
        .login = options->etcd_login,
        .to = weir_admin_store_listener(serve->admin),
    };
    int error = weir_doorman_source_new(&source, &serve->source, diag);
    if (error == 0)
        weir_admin_parts(serve->admin)->doorman = serve->source;
    return error;
}

int weir_serve_open_source(struct serve *serve, struct weir_diag *diag)
{
    weir_assert(!serve->store && !serve->source && !serve->upstream);
    if (serve->region)
        return open_upstream(serve, diag);
    weir_admin_parts(serve->admin)->watch =
        (struct weir_admin_watch){ .context = serve,
                                   .on_store = on_store_answer,
                                   .on_bad_row = on_bad_row,
                                   .on_loss = on_loss,
                                   .on_trouble = on_source_trouble,
                                   .on_epoch = on_epoch };
    return serve->options->doorman_config ? open_doorman_file(serve, diag)
                                          : open_quota_store(serve, diag);
}
