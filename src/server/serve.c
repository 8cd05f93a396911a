/* SPDX-License-Identifier: MIT
 * server/serve.c - a root as a process: the order of its start, and how it
 * ends.
 *
 *     store's thread --news--> loop: root node, administration, two listeners
 *     a Doorman file, election ----^
 *
 * Each second the files of certificates and credentials are checked for
 * changes, and unauthenticated peers that have stayed too long are dropped.
 *
 * A stop has two parts. First no new connection is accepted and the edits under
 * way are waited for, as long as the store may take for one. Then calls and
 * links are ended, and the loop runs until all is written. A second signal ends
 * the process at once: every answered edit is in the store.
 *
 * If the store can't be reached at the start, the root serves from a snapshot,
 * if there is one: the first report of trouble loads it, and the store's own
 * set, when it comes, replaces it as if the snapshot had been read from the
 * store. */

#include "server/serve.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "front/port_file.h"
#include "io/clock.h"
#include "io/daemon.h"
#include "server/debtor_log.h"
#include "server/doorman/doorman_source.h"
#include "server/election/mastership.h"
#include "server/grpc/grpc_api.h"
#include "server/http_api.h"
#include "server/root_resp.h"
#include "server/serve_options.h"
#include "server/snapshot/snapshot.h"
#include "server/upstream.h"
#include "server/zone_watch.h"

#define DAY_S 86400
#define CONNECTIONS (WEIR_CONNECTIONS_MAX + WEIR_HTTP_CONNECTIONS_MAX)
#define LOOK_S 1           /* interval of checks of the files */
#define WARN_DAYS 14       /* before a certificate ends */
#define STOP_LOOK_MS 10    /* interval of checks of waiting edits */
#define STOP_EDITS_MS 5000 /* for the edits under way */
#define STOP_WRITE_S 3     /* to write queued bytes */

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
    struct weir_snapshot *snapshot;     /* NULL: off */
    struct event *store_event;
    struct event *stop_event;
    struct event *look_event;
    struct weir_credentials *credentials; /* NULL: none in force */
    struct weir_tls *grpc_tls;            /* NULL: plain text; so is the next */
    struct weir_tls *http_tls;
    struct weir_authorization authorizer; /* borrows the three above */
    weir_instant warn_at; /* when to warn of the certificate's end again */
    struct weir_grpc_api *grpc;
    struct weir_http_api *http;   /* NULL: off */
    struct weir_root_resp *inner; /* likewise */
    struct weir_zone_watch zones; /* of exact quotas' windows */
    weir_instant stop_until;      /* 0: not stopping */
    bool ready;
    bool troubled; /* trouble of a Doorman file was reported */
    bool failed;   /* it can't join the election: it ends */
    bool loading;  /* the snapshot is being read */
    bool serving;  /* the root serves from it … */
    bool leaving;  /* … until the store's set is settled */
    char name[WEIR_NAME_MAX + 1];
};

/* ---- The snapshot ---- */

static int take_store(void *context, const struct weir_snapshot_info *info)
{
    struct serve *serve = context;
    weir_instant now = weir_clock_now();
    struct weir_store_listener to = weir_admin_store_listener(serve->admin);
    to.on_store(to.context, &info->store, info->epoch, info->floor, now);
    return 0;
}

static int take_change(void *context, const struct weir_change *change)
{
    const struct serve *serve = context;
    struct weir_store_listener to = weir_admin_store_listener(serve->admin);
    to.on_change(to.context, change, weir_clock_now());
    return 0;
}

/* Loads the quotas that the root serves until its store answers. */
static void load_snapshot(struct serve *serve)
{
    struct weir_diag diag = { 0 };
    struct weir_snapshot_sink sink = { serve, take_store, take_change };
    bool usable = serve->snapshot && weir_snapshot_usable(serve->snapshot);
    if (serve->ready || !usable)
        return;
    serve->loading = true;
    int error = weir_snapshot_load(serve->snapshot, &sink, &diag);
    if (error == 0) {
        struct weir_store_listener to = weir_admin_store_listener(serve->admin);
        serve->serving = true;
        weir_root_set_provisional(serve->root, true);
        weir_snapshot_set_serving(serve->snapshot, true);
        to.on_settle(to.context, weir_clock_now());
    } else {
        weir_log(&serve->log, WEIR_LOG_ERROR, "%s", diag.text);
    }
    serve->loading = false;
}

/* Not before the store's own set is complete: a set that breaks off is dropped,
 * and the root still serves the snapshot's. */
static void leave_snapshot(struct serve *serve)
{
    serve->serving = serve->leaving = false;
    weir_snapshot_set_serving(serve->snapshot, false);
}

/* Called when a store answers first, when another one does, or an older
 * state. */
static void on_store(void *context, const struct weir_store_id *id,
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
    const struct weir_store_id *ours = &state.info.store;
    bool same = memcmp(ours->uuid, id->uuid, sizeof id->uuid) == 0 &&
                ours->restores == id->restores;
    unsigned long long from = state.info.epoch;
    serve->leaving = true;
    if (!same)
        weir_log_limited(&serve->log, WEIR_LOG_STORE, WEIR_LOG_WARNING,
                         "the store that answers isn't "
                         "that of the snapshot, and the snapshot is dropped");
    else if (epoch < from)
        weir_log_limited(&serve->log, WEIR_LOG_STORE, WEIR_LOG_WARNING,
                         "the store is at epoch %llu, "
                         "before the snapshot's %llu: it was restored, and the "
                         "snapshot is dropped",
                         (unsigned long long)epoch, from);
    else
        weir_log_limited(&serve->log, WEIR_LOG_STORE, WEIR_LOG_INFO,
                         "the store is back: it replaces the "
                         "snapshot at epoch %llu by epoch %llu",
                         from, (unsigned long long)epoch);
}

/* ---- The store's news ---- */

static void on_store_news(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct serve *serve = context;
    weir_store_thread_turn(serve->store, weir_clock_now());
    weir_grpc_api_kick(serve->grpc);
}

static void tell_file(struct serve *serve, int error, const char *why)
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

static void on_trouble(void *context, int error, const char *why)
{
    struct serve *serve = context;
    if (serve->options->doorman_config)
        tell_file(serve, error, why);
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
        load_snapshot(serve);
    weir_root_set_provisional(serve->root, error < 0 || serve->serving);
}

static int stand(struct serve *serve, struct weir_diag *diag);

/* Joins the election late: a root without quotas could be elected and grant
 * nothing, while others could grant. */
static void stand_at_last(struct serve *serve)
{
    struct weir_diag diag = { 0 };
    if (serve->mastership || serve->stop_until || !serve->grpc ||
        stand(serve, &diag) == 0)
        return;
    weir_log(&serve->log, WEIR_LOG_ERROR, "%s", diag.text);
    serve->failed = true;
    event_base_loopbreak(serve->base);
}

static void on_epoch(void *context, uint64_t epoch)
{
    struct serve *serve = context;
    bool first = !serve->ready;
    serve->ready = true;
    if (serve->leaving)
        leave_snapshot(serve);
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

/* ---- Certificates and credentials ---- */

static void warn_of_end(struct serve *serve, weir_instant now)
{
    if (!serve->grpc_tls || now < serve->warn_at)
        return;
    int64_t left = weir_tls_expires_in(serve->grpc_tls);
    if (left > WARN_DAYS * DAY_S)
        return;
    serve->warn_at = now + (weir_duration)DAY_S * WEIR_SECOND;
    if (left < 0)
        weir_log(&serve->log, WEIR_LOG_ERROR,
                 "the certificate %s has ended: clients that check it don't "
                 "connect; replace it, no restart is needed",
                 serve->options->reach.tls_cert);
    else
        weir_log(&serve->log, WEIR_LOG_WARNING,
                 "the certificate %s ends in %lld days: replace it, no "
                 "restart is needed",
                 serve->options->reach.tls_cert, (long long)(left / DAY_S));
}

/* Both listeners show the same files. A peer is disconnected if the
 * authority of its certificate is no longer in them. */
static void reload_tls(struct serve *serve)
{
    struct weir_diag why = { 0 };
    int error = weir_tls_reload(serve->grpc_tls, &why);
    if (error == 0)
        error = weir_tls_reload(serve->http_tls, &why);
    serve->warn_at = 0;
    if (error < 0) {
        weir_log(&serve->log, WEIR_LOG_ERROR,
                 "certificates aren't reloaded, the old ones stay: %s",
                 why.text);
        return;
    }
    weir_log(&serve->log, WEIR_LOG_INFO,
             "reloaded the certificate %s; it ends in %lld days",
             serve->options->reach.tls_cert,
             (long long)(weir_tls_expires_in(serve->grpc_tls) / DAY_S));
    weir_grpc_api_doubt(serve->grpc, serve->grpc_tls);
    if (serve->http)
        weir_http_api_doubt(serve->http);
}

static void warn_of_names(const struct serve *serve)
{
    weir_exposure_warn_of_names(&serve->options->reach, serve->credentials,
                                &serve->log);
}

/* Connected peers are checked again. */
static void reload_credentials(struct serve *serve)
{
    struct weir_diag why = { 0 };
    if (weir_credentials_reload(serve->credentials, &why) < 0) {
        weir_log(&serve->log, WEIR_LOG_ERROR,
                 "credentials aren't reloaded, the old ones stay: %s",
                 why.text);
        return;
    }
    weir_log(&serve->log, WEIR_LOG_INFO, "reloaded %zu credentials of %s",
             weir_credentials_count(serve->credentials),
             serve->options->reach.credentials);
    warn_of_names(serve);
    weir_grpc_api_recheck(serve->grpc);
    if (serve->http)
        weir_http_api_recheck(serve->http);
}

static void look_again(struct serve *serve, bool all)
{
    bool has_tls = serve->grpc_tls != NULL;
    if (has_tls && (all || weir_tls_is_changed(serve->grpc_tls) ||
                    weir_tls_is_changed(serve->http_tls)))
        reload_tls(serve);
    if (serve->credentials &&
        (all || weir_credentials_is_changed(serve->credentials)))
        reload_credentials(serve);
    if (serve->source)
        weir_doorman_source_look(serve->source, all);
    warn_of_end(serve, weir_clock_now());
}

static void follow_zones(struct serve *serve)
{
    if (weir_zone_watch_is_due(&serve->zones, weir_clock_now()))
        weir_root_set_wall(serve->root, weir_clock_wall_offset(), true);
}

static void on_look(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct serve *serve = context;
    look_again(serve, false);
    follow_zones(serve);
    weir_debtors_log(serve->root, &serve->log, weir_clock_now());
    weir_admin_tick(serve->admin, weir_clock_now());
    weir_grpc_api_look(serve->grpc);
    weir_log_tick(&serve->log);
}

/* ---- Stop ---- */

static void begin_stop(struct serve *serve)
{
    serve->stop_until = weir_clock_now() + STOP_EDITS_MS * WEIR_MILLISECOND;
    weir_log(&serve->log, WEIR_LOG_INFO, "stopping");
    weir_grpc_api_stop(serve->grpc);
    if (serve->http)
        weir_http_api_stop(serve->http);
    if (serve->inner)
        weir_root_resp_stop(serve->inner);
    weir_admin_stop_edits(serve->admin);
    if (serve->mastership)
        weir_mastership_resign(serve->mastership);
    event_active(serve->stop_event, EV_TIMEOUT, 0);
}

static void on_signal(void *context, enum weir_signal signal)
{
    struct serve *serve = context;
    switch (signal) {
    case WEIR_SIGNAL_STOP:
        if (serve->stop_until)
            _exit(1);
        begin_stop(serve);
        return;
    case WEIR_SIGNAL_RELOAD:
        weir_log(&serve->log, WEIR_LOG_INFO, "SIGHUP: %s",
                 serve->source ? "reading the Doorman file again"
                 : serve->grpc_tls || serve->credentials
                     ? "reading certificates and credentials again"
                     : "nothing to reload; quotas are read as they change");
        look_again(serve, true);
        return;
    }
}

static void on_stop_look(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct serve *serve = context;
    bool is_done =
        weir_admin_waiting(serve->admin) == 0 &&
        (!serve->inner || weir_root_resp_is_done(serve->inner)) &&
        (!serve->mastership || weir_mastership_is_settled(serve->mastership));
    if (is_done || weir_clock_now() >= serve->stop_until) {
        event_base_loopbreak(serve->base);
        return;
    }
    struct timeval in = { .tv_usec = STOP_LOOK_MS * 1000 };
    event_add(serve->stop_event, &in);
}

static void free_events(struct serve *serve)
{
    struct event **events[] = { &serve->store_event, &serve->stop_event,
                                &serve->look_event };
    for (size_t i = 0; i < WEIR_COUNT_OF(events); i++) {
        if (*events[i])
            event_free(*events[i]);
        *events[i] = NULL;
    }
}

/* Called before the listeners and the administration are freed: they borrow
 * it. */
static void free_leasing(struct serve *serve)
{
    if (serve->grpc)
        weir_grpc_api_set_mastership(serve->grpc, NULL);
    if (serve->doorman)
        weir_doorman_api_set_mastership(serve->doorman, NULL, "");
    weir_mastership_free(&serve->mastership);
    if (serve->admin)
        weir_admin_set_doorman(serve->admin, NULL);
    weir_doorman_source_free(&serve->source);
}

/* After this only sockets with unsent bytes are left on the loop. */
static void end_gracefully(struct serve *serve)
{
    if (serve->snapshot)
        weir_snapshot_finish(serve->snapshot);
    weir_snapshot_free(&serve->snapshot);
    weir_root_resp_free(&serve->inner);
    free_leasing(serve);
    if (serve->http)
        weir_http_api_leave(serve->http);
    weir_admin_free(&serve->admin);
    weir_grpc_api_free(&serve->grpc);
    weir_doorman_api_free(&serve->doorman);
    weir_signals_free(&serve->signals);
    weir_upstream_free(&serve->upstream);
    free_events(serve);
    weir_store_thread_free(&serve->store);
    struct timeval in = { .tv_sec = STOP_WRITE_S };
    event_base_loopexit(serve->base, &in);
    if (serve->http) {
        /* Its answers wait for their connections' turns. */
        event_base_loop(serve->base, EVLOOP_NONBLOCK);
        weir_http_api_free(&serve->http);
    }
}

static bool is_loop_busy(struct serve *serve)
{
    /* The deadline of loopexit is an event of the loop itself. */
    return event_base_get_num_events(serve->base, EVENT_BASE_COUNT_ADDED) > 1;
}

static void write_rest(struct serve *serve)
{
    while (!event_base_got_exit(serve->base) && is_loop_busy(serve))
        if (event_base_loop(serve->base, EVLOOP_ONCE) != 0)
            return;
}

/* ---- Start ---- */

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

static int open_snapshot(struct serve *serve, struct weir_diag *diag)
{
    char path[WEIR_PATH_MAX];
    if (!name_snapshot(serve, path))
        return 0;
    /* An error here shows again when the file can't be made. */
    if (!serve->options->snapshot)
        (void)weir_serve_make_folders(path);
    struct weir_snapshot_options options = {
        .base = serve->base,
        .root = serve->root,
        .log = &serve->log,
        .path = path,
    };
    int error = weir_snapshot_new(&options, &serve->snapshot, diag);
    if (error == 0)
        weir_admin_set_snapshot(serve->admin, serve->snapshot);
    return error;
}

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
                             " is "
                             "gone, and its snapshot ",
                             snapshot,
                             " can't be "
                             "used; put the store back, or remove the "
                             "snapshot to begin anew",
                             NULL);
    if (weir_serve_make_folders(path) < 0)
        return weir_diag_set(diag, WEIR_ESYSTEM,
                             "can't make a folder for "
                             "the store ",
                             path, ": ", strerror(errno),
                             "; name another with --store", NULL);
    int error = weir_store_init(serve->options->store, diag);
    /* Another root may have been quicker. */
    if (error < 0 && error != WEIR_EEXIST)
        return error;
    weir_log(&serve->log, WEIR_LOG_INFO, "made the store %s", path);
    return 0;
}

/* The root node, or a region with one in it. */
static void make_node(struct serve *serve, const struct weir_root_options *root,
                      weir_instant now)
{
    const struct weir_serve_options *options = serve->options;
    if (!options->region) {
        serve->root = weir_root_new(root, now);
        return;
    }
    struct weir_region_options region = { .root = *root,
                                          .name = weir_text_of(options->region),
                                          .upstreams = options->upstreams,
                                          .slots = options->slots };
    serve->region = weir_region_new(&region, now);
    if (serve->region)
        serve->root = weir_region_root(serve->region);
}

static int make_root(struct serve *serve, const char *version,
                     struct weir_diag *diag)
{
    weir_instant now = weir_clock_now();
    struct weir_root_options root = {
        .mem = weir_mem_system,
        .name = weir_text_of(serve->name),
        .peers_max = WEIR_PEERS_MAX,
        .settings = serve->options->settings,
        .zones = { .context = &serve->zones,
                   .offset_s = weir_zone_watch_offset },
    };
    weir_entropy(root.incarnation, sizeof root.incarnation);
    weir_entropy(&root.seed, sizeof root.seed);
    struct weir_admin_options admin = {
        .name = root.name,
        .settings = root.settings,
        .store_url = serve->options->doorman_config
                         ? serve->options->doorman_config
                         : serve->options->store,
        .version = version,
        .started = now,
        .authorizer = &serve->authorizer,
    };
    memcpy(admin.incarnation, root.incarnation, sizeof admin.incarnation);
    make_node(serve, &root, now);
    admin.root = serve->root;
    serve->admin = serve->root ? weir_admin_new(&admin) : NULL;
    if (serve->admin)
        return 0;
    return weir_diag_set(diag, WEIR_ENOMEM, weir_strerror(WEIR_ENOMEM), NULL);
}

static int open_store(struct serve *serve, struct weir_diag *diag)
{
    int error = serve->options->own_store ? make_own_store(serve, diag) : 0;
    if (error < 0)
        return error;
    struct weir_store_listener listener =
        weir_admin_store_listener(serve->admin);
    listener.patient = serve->snapshot && weir_snapshot_usable(serve->snapshot);
    error = weir_store_thread_new(serve->options->store, &listener,
                                  &serve->store, diag);
    if (error < 0)
        return error;
    struct weir_diag exposed;
    if (weir_store_check_mode(serve->options->store, &exposed) < 0)
        weir_log(&serve->log, WEIR_LOG_WARNING, "%s", exposed.text);
    weir_admin_set_store(serve->admin, serve->store);
    return 0;
}

static int make_authorizer(struct serve *serve, struct weir_diag *diag)
{
    const struct weir_serve_options *options = serve->options;
    int error =
        weir_exposure_tls(&options->reach, "h2", &serve->grpc_tls, diag);
    if (error == 0)
        error = weir_exposure_tls(&options->reach, "http/1.1", &serve->http_tls,
                                  diag);
    if (error == 0 && options->reach.credentials)
        error = weir_credentials_open(options->reach.credentials,
                                      &serve->credentials, diag);
    serve->authorizer =
        (struct weir_authorization){ .credentials = serve->credentials,
                                     .tls = serve->grpc_tls,
                                     .log = &serve->log };
    return error;
}

static void on_upstream_news(void *context)
{
    const struct serve *serve = context;
    weir_grpc_api_kick(serve->grpc);
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
        .on_news = on_upstream_news,
        .context = serve,
    };
    int error = weir_upstream_new(&upstream, &serve->upstream, diag);
    if (error == 0)
        weir_admin_set_upstream(serve->admin, serve->upstream);
    return error;
}

static struct weir_catalog *catalog(void *context)
{
    const struct serve *serve = context;
    return weir_root_catalog(serve->root);
}

static int open_file(struct serve *serve, struct weir_diag *diag)
{
    const struct weir_serve_options *options = serve->options;
    struct weir_doorman_source_options source = {
        .base = serve->base,
        .log = &serve->log,
        .catalog = catalog,
        .context = serve,
        .place = options->doorman,
        .endpoints = options->etcd,
        .count = options->etcd_count,
        .login = options->etcd_login,
        .to = weir_admin_store_listener(serve->admin),
    };
    int error = weir_doorman_source_new(&source, &serve->source, diag);
    if (error == 0)
        weir_admin_set_doorman(serve->admin, serve->source);
    return error;
}

/* Opens the source of the quotas. */
static int open_source(struct serve *serve, struct weir_diag *diag)
{
    if (serve->region)
        return open_upstream(serve, diag);
    struct weir_admin_watch watch = { .context = serve,
                                      .on_store = on_store,
                                      .on_trouble = on_trouble,
                                      .on_epoch = on_epoch };
    weir_admin_set_watch(serve->admin, &watch);
    return serve->options->doorman_config ? open_file(serve, diag)
                                          : open_store(serve, diag);
}

static int refuse_address(const char *option,
                          const struct weir_address *address, int error,
                          const struct weir_diag *why, struct weir_diag *diag)
{
    char shown[300];
    weir_serve_show(address, address->port, shown, sizeof shown);
    return weir_diag_set(diag, error, option, " ", shown, ": ",
                         why->text[0] ? why->text : weir_strerror(error), NULL);
}

static int open_apis(struct serve *serve, struct weir_diag *diag)
{
    struct weir_diag why = { 0 };
    const struct weir_doorman_api_options doorman = { .root = serve->root,
                                                      .log = &serve->log };
    serve->doorman = weir_doorman_api_new(&doorman);
    if (!serve->doorman)
        return weir_diag_set(diag, WEIR_ENOMEM, weir_strerror(WEIR_ENOMEM),
                             NULL);
    weir_admin_set_calls(serve->admin, serve->doorman);
    struct weir_grpc_api_options grpc = {
        .base = serve->base,
        .connections_max = serve->files * WEIR_CONNECTIONS_MAX / CONNECTIONS,
        .root = serve->root,
        .admin = serve->admin,
        .log = &serve->log,
        .authorizer = &serve->authorizer,
        .tls = serve->grpc_tls,
        .upstream = serve->upstream,
        .doorman = serve->doorman,
        .doorman_open = serve->options->doorman_insecure,
        .loopback = weir_address_is_loopback(&serve->options->listen),
        .address = serve->options->listen,
    };
    int error = weir_grpc_api_new(&grpc, &serve->grpc, &why);
    if (error < 0)
        return refuse_address("--listen", &grpc.address, error, &why, diag);
    if (serve->options->http_off)
        return 0;
    struct weir_http_api_options http = {
        .base = serve->base,
        .connections_max =
            2 + serve->files * WEIR_HTTP_CONNECTIONS_MAX / CONNECTIONS,
        .admin = serve->admin,
        .authorizer = &serve->authorizer,
        .tls = serve->http_tls,
        .address = serve->options->http,
        .public_origin = serve->options->public_origin,
    };
    error = weir_http_api_new(&http, &serve->http, &why);
    return error < 0 ? refuse_address("--http", &serve->options->http, error,
                                      &why, diag)
                     : 0;
}

/* ---- The election of the master ---- */

static void on_mastership(void *context)
{
    const struct serve *serve = context;
    weir_grpc_api_kick(serve->grpc);
}

static int stand(struct serve *serve, struct weir_diag *diag)
{
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
        .root = serve->root,
        .on_change = on_mastership,
        .context = serve,
    };
    int error = weir_mastership_new(&mastership, &serve->mastership, diag);
    if (error < 0)
        return error;
    weir_grpc_api_set_mastership(serve->grpc, serve->mastership);
    weir_doorman_api_set_mastership(serve->doorman, serve->mastership,
                                    serve->identity);
    return 0;
}

static int watch_events(struct serve *serve, struct weir_diag *diag)
{
    /* Without a store the event waits for nothing. */
    int fd = serve->store ? weir_store_thread_fd(serve->store) : -1;
    serve->store_event =
        event_new(serve->base, fd, serve->store ? EV_READ | EV_PERSIST : 0,
                  on_store_news, serve);
    serve->stop_event = event_new(serve->base, -1, 0, on_stop_look, serve);
    serve->look_event = event_new(serve->base, -1, EV_PERSIST, on_look, serve);
    serve->signals = weir_signals_new(serve->base, on_signal, serve);
    struct timeval every = { .tv_sec = LOOK_S };
    if (serve->store_event && serve->stop_event && serve->look_event &&
        serve->signals && event_add(serve->store_event, NULL) == 0 &&
        event_add(serve->look_event, &every) == 0)
        return 0;
    return weir_diag_set(diag, WEIR_ENOMEM, weir_strerror(WEIR_ENOMEM), NULL);
}

static void say_security(const struct serve *serve)
{
    const struct weir_serve_options *options = serve->options;
    bool open =
        !weir_address_is_loopback(&options->listen) ||
        (!options->http_off && !weir_address_is_loopback(&options->http));
    if (open && (!serve->grpc_tls || !serve->credentials))
        weir_log(&serve->log, WEIR_LOG_WARNING,
                 "--insecure: any client that reaches this root may read%s",
                 serve->credentials ? " the traffic of others, their tokens too"
                                    : " and edit its quotas");
    warn_of_names(serve);
    weir_log(&serve->log, WEIR_LOG_INFO, "%s, %s",
             serve->grpc_tls ? "TLS" : "plain text",
             serve->credentials ? "credentials are asked for"
                                : "no credentials are asked for");
}

static int open_inner(struct serve *serve, const char *version,
                      struct weir_diag *diag)
{
    const struct weir_root_resp_options options = {
        .base = serve->base,
        .name = serve->name,
        .version = version,
        .listen = serve->options->listen,
        .port = weir_grpc_api_port(serve->grpc),
        .resp = serve->options->resp,
        .resp_counted = serve->options->resp_counted,
    };
    return serve->options->resp_on
               ? weir_root_resp_new(&options, &serve->inner, diag)
               : 0;
}

static int announce(struct serve *serve, struct weir_diag *diag)
{
    const struct weir_serve_options *options = serve->options;
    char listen[300];
    char http[300] = "off";
    weir_serve_show(&options->listen, weir_grpc_api_port(serve->grpc), listen,
                    sizeof listen);
    if (serve->http)
        weir_serve_show(&options->http, weir_http_api_port(serve->http), http,
                        sizeof http);
    const struct weir_listen_address *resp =
        serve->inner ? weir_root_resp_address(serve->inner) : NULL;
    if (options->port_file) {
        int error =
            weir_port_file_write(options->port_file, listen, http, resp, diag);
        if (error < 0)
            return error;
    }
    char store[WEIR_STORE_SHOW_MAX];
    if (serve->upstream)
        weir_log(&serve->log, WEIR_LOG_INFO,
                 "root %s of region %s: limiters at %s, HTTP at %s, under %s",
                 serve->name, options->region, listen, http,
                 weir_upstream_text(serve->upstream));
    else
        weir_log(&serve->log, WEIR_LOG_INFO,
                 "root %s: limiters at %s, HTTP at %s, %s", serve->name, listen,
                 http,
                 serve->source ? options->doorman_config
                               : weir_store_show(options->store, store));
    say_security(serve);
    warn_of_end(serve, weir_clock_now());
    return 0;
}

static void choose_name(struct serve *serve)
{
    if (serve->options->name) {
        snprintf(serve->name, sizeof serve->name, "%s", serve->options->name);
        return;
    }
    unsigned port = serve->options->listen.port;
    char host[128] = "localhost";
    gethostname(host, sizeof host - 1);
    snprintf(serve->name, sizeof serve->name, "%s:%u", host,
             port ? port : (unsigned)getpid());
}

static int start(struct serve *serve, const char *version,
                 struct weir_diag *diag)
{
    choose_name(serve);
    for (size_t i = 0; i < serve->options->remark_count; i++)
        weir_log(&serve->log, WEIR_LOG_WARNING, "%s",
                 serve->options->remarks[i].text);
    serve->files = weir_files_spare(CONNECTIONS);
    serve->base = event_base_new();
    if (!serve->base)
        return weir_diag_set(diag, WEIR_ESYSTEM,
                             "no event loop: ", strerror(errno), NULL);
    int error = make_authorizer(serve, diag);
    if (error == 0)
        error = make_root(serve, version, diag);
    if (error == 0)
        error = open_snapshot(serve, diag);
    if (error == 0)
        error = open_source(serve, diag);
    if (error == 0)
        error = open_apis(serve, diag);
    if (error == 0)
        error = open_inner(serve, version, diag);
    if (error == 0 && (serve->ready || serve->region))
        error = stand(serve, diag);
    if (error == 0)
        error = watch_events(serve, diag);
    if (error == 0)
        error = announce(serve, diag);
    return error;
}

static void destroy(struct serve *serve)
{
    weir_root_resp_free(&serve->inner);
    free_leasing(serve);
    weir_http_api_free(&serve->http);
    weir_admin_free(&serve->admin);
    weir_grpc_api_free(&serve->grpc);
    weir_doorman_api_free(&serve->doorman);
    weir_signals_free(&serve->signals);
    free_events(serve);
    weir_store_thread_free(&serve->store);
    weir_upstream_free(&serve->upstream);
    weir_snapshot_free(&serve->snapshot);
    if (serve->region)
        weir_region_free(serve->region);
    else
        weir_root_free(serve->root);
    if (serve->base)
        event_base_free(serve->base);
    weir_credentials_free(&serve->credentials);
    weir_tls_free(&serve->grpc_tls);
    weir_tls_free(&serve->http_tls);
}

int weir_serve(int argc, char **argv, const char *version)
{
    struct weir_serve_options options;
    struct weir_diag diag = { 0 };
    int parsed = weir_serve_options_parse(argc, argv, &options, &diag);
    if (parsed > 0) {
        fputs(weir_serve_help, stdout);
        return 0;
    }
    struct serve serve = { .options = &options,
                           .log = { .level = options.log_level },
                           .zones = { .log = &serve.log } };
    weir_log_adopt_library(&serve.log);
    int error = parsed < 0 ? parsed : start(&serve, version, &diag);
    if (error < 0) {
        fprintf(stderr, "weir: %s\n", diag.text);
        destroy(&serve);
        weir_log_adopt_library(NULL);
        return 2;
    }
    event_base_dispatch(serve.base);
    end_gracefully(&serve);
    write_rest(&serve);
    destroy(&serve);
    weir_log_adopt_library(NULL);
    weir_log_end(&serve.log);
    weir_log(&serve.log, WEIR_LOG_INFO, "stopped");
    return serve.failed ? 2 : 0;
}
