/* SPDX-License-Identifier: MIT
 * server/serve.c - a root as a process: its start, its work of each second
 * (certificates, credentials, time zones) and its end.
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
 * the process at once: every answered edit is in the store. */

#include "server/serve.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/node/root_adaptive.h"
#include "front/port_file.h"
#include "io/clock.h"
#include "io/zone.h"
#include "server/serve_internal.h"

#define CONNECTIONS (WEIR_CONNECTIONS_MAX + WEIR_HTTP_CONNECTIONS_MAX)
#define ZONES_EVERY_S 3600 /* and when one changes */
#define DAY_S 86400
#define WARN_DAYS 14       /* before a certificate ends */
#define LOOK_S 1           /* interval of checks of the files */
#define DEBTOR_LINES_MAX 4 /* in a second; the next has more */
#define WITHHELD_LINES_MAX 4
#define OUTLIER_LINES_MAX 4
#define STOP_LOOK_MS 10    /* interval of checks of waiting edits */
#define STOP_EDITS_MS 5000 /* for the edits under way */
#define STOP_WRITE_S 3     /* to write queued bytes */

/* ---- Certificates and credentials ---- */

static int make_authorizer(struct serve *serve, struct weir_diag *diag)
{
    const struct weir_serve_options *options = serve->options;
    int error =
        weir_exposure_tls(&options->exposure, "h2", &serve->grpc_tls, diag);
    if (error == 0)
        error = weir_exposure_tls(&options->exposure, "http/1.1",
                                  &serve->http_tls, diag);
    if (error == 0 && options->exposure.credentials)
        error = weir_credentials_open(options->exposure.credentials,
                                      &serve->credentials, diag);
    serve->authorizer =
        (struct weir_authorization){ .credentials = serve->credentials,
                                     .tls = serve->grpc_tls,
                                     .log = &serve->log };
    return error;
}

/* Logs that the certificate ends soon, once a day. */
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
                 serve->options->exposure.tls_cert);
    else
        weir_log(&serve->log, WEIR_LOG_WARNING,
                 "the certificate %s ends in %lld days: replace it, no "
                 "restart is needed",
                 serve->options->exposure.tls_cert, (long long)(left / DAY_S));
}

/* Both listeners show the same files. A peer is disconnected if the
 * authority of its certificate is no longer in them. */
static void reload_tls(struct serve *serve)
{
    struct weir_diag why = { 0 };
    /* Both, or a file that can't be read would be read again each second. */
    bool failed = weir_tls_reload(serve->grpc_tls, &why) < 0;
    failed |= weir_tls_reload(serve->http_tls, &why) < 0;
    serve->warn_at = 0;
    if (failed) {
        weir_log(&serve->log, WEIR_LOG_ERROR,
                 "certificates aren't reloaded, the old ones stay: %s",
                 why.text);
        return;
    }
    weir_log(&serve->log, WEIR_LOG_INFO,
             "reloaded the certificate %s; it ends in %lld days",
             serve->options->exposure.tls_cert,
             (long long)(weir_tls_expires_in(serve->grpc_tls) / DAY_S));
    weir_grpc_api_doubt(serve->grpc, serve->grpc_tls);
    if (serve->http)
        weir_http_listener_doubt(weir_http_api_listener(serve->http));
}

static void log_security(const struct serve *serve)
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
    weir_exposure_warn_of_names(&options->exposure, serve->credentials,
                                &serve->log);
    weir_log(&serve->log, WEIR_LOG_INFO, "%s, %s",
             serve->grpc_tls ? "TLS" : "plain text",
             serve->credentials ? "credentials are asked for"
                                : "no credentials are asked for");
}

/* Reads certificates and credentials again that have changed, or 'all', and
 * checks connected peers again. */
static void reload_security(struct serve *serve, bool all)
{
    bool has_tls = serve->grpc_tls != NULL;
    if (has_tls && (all || weir_tls_is_changed(serve->grpc_tls) ||
                    weir_tls_is_changed(serve->http_tls)))
        reload_tls(serve);
    if (!weir_exposure_reload(&serve->options->exposure, serve->credentials,
                              all, &serve->log))
        return;
    weir_grpc_api_recheck(serve->grpc);
    if (serve->http)
        weir_http_listener_recheck(weir_http_api_listener(serve->http));
}

/* ---- Time zones, for the windows of exact quotas ---- */

/* Seconds to be added to UTC now. An unknown zone is UTC, and is logged. */
static int32_t zone_offset(void *context, struct weir_text zone)
{
    struct serve *serve = context;
    weir_instant now = weir_clock_now();
    int64_t at = (int64_t)((now + weir_clock_wall_offset()) / WEIR_SECOND);
    int64_t until = INT64_MAX;
    int32_t offset_s = 0;
    struct weir_diag diag = { .text = "" };
    if (weir_zone_at(zone, at, &offset_s, &until, &diag) < 0)
        weir_log_limited(&serve->log, WEIR_LOG_ZONE, WEIR_LOG_WARNING,
                         "time zone %.*s: %s; UTC is used", (int)zone.len,
                         zone.p, diag.text);
    if (until > at && until - at < ZONES_EVERY_S)
        serve->zones_at = weir_earlier(
            serve->zones_at, now + (weir_duration)(until - at) * WEIR_SECOND);
    return offset_s;
}

static void follow_zones(struct serve *serve)
{
    weir_instant now = weir_clock_now();
    if (now < serve->zones_at)
        return;
    serve->zones_at = now + ZONES_EVERY_S * WEIR_SECOND;
    weir_root_set_wall(serve->root, weir_clock_wall_offset(), true);
}

/* ---- Each second ---- */

static void check_files(struct serve *serve, bool all)
{
    reload_security(serve, all);
    if (serve->source)
        weir_doorman_source_look(serve->source, all);
    warn_of_end(serve, weir_clock_now());
}

/* Limiters that went beyond their debt report false counts, or their quota's
 * max_debt is shorter than its charges and reservations. The line names both
 * causes, because the root can't tell which it is. */
static void log_debtors(const struct serve *serve)
{
    struct weir_debtor debtor;
    for (int i = 0; i < DEBTOR_LINES_MAX; i++) {
        if (!weir_root_new_debtor(serve->root, &debtor, weir_clock_now()))
            return;
        weir_log(&serve->log, WEIR_LOG_WARNING,
                 "limiter '%.*s' reported %llu units beyond its debt of quota "
                 "'%.*s': they are counted and fill nothing; end the limiter, "
                 "or raise the quota's max_debt if its charges or reservations "
                 "are as large",
                 (int)debtor.limiter.len, debtor.limiter.p,
                 (unsigned long long)debtor.units, (int)debtor.quota.len,
                 debtor.quota.p);
    }
}

static void log_withheld(const struct serve *serve)
{
    struct weir_withheld withheld;
    for (int i = 0; i < WITHHELD_LINES_MAX; i++) {
        if (!weir_root_new_withheld(serve->root, &withheld))
            return;
        weir_log(&serve->log, WEIR_LOG_WARNING,
                 "limiter '%.*s' is older than this root and doesn't "
                 "understand '%s': quotas with it aren't sent to it, and it "
                 "passes requests for them; upgrade that program's libweir",
                 (int)withheld.limiter.len, withheld.limiter.p,
                 withheld.feature);
    }
}

/* Processes whose own path is slow: the limit of their fleet goes by the
 * others. */
static void log_outliers(const struct serve *serve)
{
    struct weir_fleet_news news;
    for (int i = 0; i < OUTLIER_LINES_MAX; i++) {
        if (!weir_root_adaptive_news(serve->root, &news, weir_clock_now()))
            return;
        if (news.out)
            weir_log(&serve->log, WEIR_LOG_WARNING,
                     "'%.*s' is left out of the fleet's limit of quota '%.*s': "
                     "most of its requests are slow, and those of the other "
                     "processes aren't; look at its path to the service",
                     (int)news.member.len, news.member.p, (int)news.quota.len,
                     news.quota.p);
        else
            weir_log(&serve->log, WEIR_LOG_INFO,
                     "'%.*s' is quick again, and counts for the fleet's limit "
                     "of quota '%.*s'",
                     (int)news.member.len, news.member.p, (int)news.quota.len,
                     news.quota.p);
    }
}

static void on_each_second(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct serve *serve = context;
    check_files(serve, false);
    follow_zones(serve);
    log_debtors(serve);
    log_withheld(serve);
    log_outliers(serve);
    weir_admin_tick(serve->admin, weir_clock_now());
    weir_grpc_api_look(serve->grpc);
    weir_log_tick(&serve->log);
}

/* ---- Stop ---- */

static void begin_stop(struct serve *serve)
{
    weir_assert(serve->stop_until == 0);
    serve->stop_until = weir_clock_now() + STOP_EDITS_MS * WEIR_MILLISECOND;
    weir_log(&serve->log, WEIR_LOG_INFO, "stopping");
    weir_grpc_api_stop(serve->grpc);
    if (serve->http)
        weir_http_listener_stop(weir_http_api_listener(serve->http));
    if (serve->inner)
        weir_root_resp_stop(serve->inner);
    weir_admin_stop_edits(serve->admin);
    if (serve->mastership)
        weir_mastership_resign(serve->mastership);
    event_active(serve->stop_event, EV_TIMEOUT, 0);
}

static void on_serve_signal(void *context, enum weir_signal signal)
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
        check_files(serve, true);
        return;
    }
}

static void on_stop_check(evutil_socket_t fd, short what, void *context)
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

/* Frees the parts that use the loop but for the HTTP listener, whose answers
 * wait for their connections' turns. */
static void free_parts(struct serve *serve)
{
    weir_root_resp_free(&serve->inner);
    weir_serve_free_leasing(serve);
    if (serve->http)
        weir_http_api_leave(serve->http);
    weir_admin_free(&serve->admin);
    weir_grpc_api_free(&serve->grpc);
    weir_root_loop_free(&serve->loop);
    weir_doorman_api_free(&serve->doorman);
    weir_signals_free(&serve->signals);
    weir_upstream_free(&serve->upstream);
    free_events(serve);
    weir_store_thread_free(&serve->store);
    weir_assert(!serve->grpc && !serve->loop && !serve->admin);
}

/* After this only sockets with unsent bytes are left on the loop. */
static void end_gracefully(struct serve *serve)
{
    if (serve->snapshot)
        weir_snapshot_finish(serve->snapshot);
    weir_snapshot_free(&serve->snapshot);
    free_parts(serve);
    struct timeval in = { .tv_sec = STOP_WRITE_S };
    event_base_loopexit(serve->base, &in);
    if (serve->http) {
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

/* The root node, or a region with one in it. */
static void make_root_node(struct serve *serve,
                           const struct weir_root_options *root,
                           weir_instant now)
{
    const struct weir_serve_options *options = serve->options;
    if (!options->region) {
        serve->root = weir_root_new(root, now);
        return;
    }
    struct weir_region_options region = { .root = *root,
                                          .name = weir_text_of(options->region),
                                          .upstreams = weir_root_links_count(
                                              options->upstream,
                                              options->upstreams),
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
        .zones = { .context = serve, .offset_s = zone_offset },
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
    make_root_node(serve, &root, now);
    admin.root = serve->root;
    serve->admin = serve->root ? weir_admin_new(&admin) : NULL;
    if (serve->admin)
        return 0;
    return weir_diag_put(diag, WEIR_ENOMEM, NULL);
}

static int refuse_address(const char *option,
                          const struct weir_address *address, int error,
                          const struct weir_diag *why, struct weir_diag *diag)
{
    char shown[WEIR_LISTEN_ADDRESS_TEXT_MAX];
    weir_address_text(address, shown);
    return weir_diag_set(diag, error, option, " ", shown, ": ",
                         why->text[0] ? why->text : weir_strerror(error), NULL);
}

static int open_listeners(struct serve *serve, struct weir_diag *diag)
{
    struct weir_diag why = { 0 };
    const struct weir_doorman_api_options doorman = { .root = serve->root,
                                                      .log = &serve->log };
    const struct weir_root_loop_options loop = { .base = serve->base,
                                                 .root = serve->root,
                                                 .log = &serve->log,
                                                 .upstream = serve->upstream,
                                                 .region = serve->region };
    serve->doorman = weir_doorman_api_new(&doorman);
    serve->loop = weir_root_loop_new(&loop);
    if (!serve->doorman || !serve->loop)
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
    weir_doorman_api_set_source(serve->doorman, serve->source);
    weir_admin_parts(serve->admin)->calls = serve->doorman;
    struct weir_grpc_api_options grpc = {
        .base = serve->base,
        .connections_max = serve->files * WEIR_CONNECTIONS_MAX / CONNECTIONS,
        .root = serve->root,
        .loop = serve->loop,
        .admin = serve->admin,
        .log = &serve->log,
        .authorizer = &serve->authorizer,
        .tls = serve->grpc_tls,
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

static void on_store_news(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct serve *serve = context;
    weir_store_thread_turn(serve->store, weir_clock_now());
    weir_root_loop_kick(serve->loop);
}

static int watch_events(struct serve *serve, struct weir_diag *diag)
{
    /* Without a store the event waits for nothing. */
    int fd = serve->store ? weir_store_thread_fd(serve->store) : -1;
    serve->store_event =
        event_new(serve->base, fd, serve->store ? EV_READ | EV_PERSIST : 0,
                  on_store_news, serve);
    serve->stop_event = event_new(serve->base, -1, 0, on_stop_check, serve);
    serve->look_event =
        event_new(serve->base, -1, EV_PERSIST, on_each_second, serve);
    serve->signals = weir_signals_new(serve->base, on_serve_signal, serve);
    struct timeval every = { .tv_sec = LOOK_S };
    if (serve->store_event && serve->stop_event && serve->look_event &&
        serve->signals && event_add(serve->store_event, NULL) == 0 &&
        event_add(serve->look_event, &every) == 0)
        return 0;
    return weir_diag_put(diag, WEIR_ENOMEM, NULL);
}

static int open_root_resp(struct serve *serve, const char *version,
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

static int announce_addresses(struct serve *serve, struct weir_diag *diag)
{
    const struct weir_serve_options *options = serve->options;
    char listen[WEIR_LISTEN_ADDRESS_TEXT_MAX];
    char http[WEIR_LISTEN_ADDRESS_TEXT_MAX] = "off";
    struct weir_address at = options->listen;
    at.port = weir_grpc_api_port(serve->grpc);
    weir_address_text(&at, listen);
    if (serve->http) {
        at = options->http;
        at.port = weir_http_api_port(serve->http);
        weir_address_text(&at, http);
    }
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
    log_security(serve);
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

static int start_serve(struct serve *serve, const char *version,
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
        error = weir_serve_open_snapshot(serve, diag);
    if (error == 0)
        error = weir_serve_open_source(serve, diag);
    if (error == 0)
        error = open_listeners(serve, diag);
    if (error == 0)
        error = open_root_resp(serve, version, diag);
    if (error == 0 && (serve->ready || serve->region))
        error = weir_serve_stand(serve, diag);
    if (error == 0)
        error = watch_events(serve, diag);
    if (error == 0)
        error = announce_addresses(serve, diag);
    return error;
}

static void destroy_serve(struct serve *serve)
{
    free_parts(serve);
    weir_http_api_free(&serve->http);
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
                           .log = { .level = options.log_level } };
    weir_log_adopt_library(&serve.log);
    int error = parsed < 0 ? parsed : start_serve(&serve, version, &diag);
    if (error < 0) {
        fprintf(stderr, "weir: %s\n", diag.text);
        destroy_serve(&serve);
        weir_log_adopt_library(NULL);
        return 2;
    }
    event_base_dispatch(serve.base);
    end_gracefully(&serve);
    write_rest(&serve);
    destroy_serve(&serve);
    weir_log_adopt_library(NULL);
    weir_log_end(&serve.log);
    weir_log(&serve.log, WEIR_LOG_INFO, "stopped");
    return serve.failed ? 2 : 0;
}
