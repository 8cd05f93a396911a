/* SPDX-License-Identifier: MIT
 * agent/cmd_agent.c - weir agent: a limiter for programs without libweir, and
 * its listeners, on one event loop.
 *
 *     programs of this host --HTTP, RESP--> listeners --weir_take()--> limiter
 *                                                                        |
 *     roots <------------ reports, quotas (libweir's thread) ------------+
 *
 * The limiter is an ordinary one: an agent on each host is a fleet of as many
 * limiters, however many programs use them. The listeners are on this thread's
 * loop; libweir's own thread connects to the roots, and its events are read
 * here.
 *
 * With --table the limiter's table is in a file, which other processes use by
 * libweir itself; the agent is one of the processes that may run its reporter.
 *
 * With all roots dead the agent goes on, as each quota's on_stale says; with
 * the agent dead its clients get no answer, and decide by themselves. */

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent_page.h"
#include "command/cli.h"
#include "core/quota/quota.h"
#include "front/authorization.h"
#include "front/exposure.h"
#include "front/log.h"
#include "front/port_file.h"
#include "io/clock.h"
#include "io/daemon.h"
#include "io/origin.h"
#include "protocol/http_take/http_take.h"
#include "protocol/resp/resp_listener.h"
#include "protocol/resp/throttle_counted.h"
#include "protocol/rls/rls_files.h"
#include "protocol/rls/rls_listener.h"

#define HTTP_DEFAULT "127.0.0.1:7079"

#define ADDRESSES_MAX 4 /* listen addresses of one protocol */

/* As the command line has them, "HOST:PORT" or "unix:PATH"; borrowed. */
struct addresses {
    const char *items[ADDRESSES_MAX];
    size_t count;
};

struct rls_options {
    struct addresses addresses;
    const char *config;  /* NULL: none */
    const char *headers; /* NULL: none; "limit", "ietf", "none" */
    bool shadow, metadata, jitter;
};

/* All texts are borrowed; NULL: the option wasn't given. */
struct options {
    struct addresses http, resp;
    struct rls_options rls;
    const char *resp_keys, *resp_sharing;
    struct weir_exposure exposure;
    const char *name, *port_file, *public_origin;
    const char *before_quotas; /* "pass" or "refuse" */
};

static int refuse_agent_option(const char *option, const char *value,
                               const struct weir_diag *why,
                               struct weir_diag *diag)
{
    return weir_diag_set(diag, WEIR_EINVAL, option, " ", value, ": ", why->text,
                         NULL);
}

static void log_address(const struct weir_log *log, const char *what,
                        const struct weir_listen_address *place)
{
    char shown[WEIR_LISTEN_ADDRESS_TEXT_MAX];
    weir_listen_address_show(place, shown);
    weir_log(log, WEIR_LOG_INFO, "%s at %s", what, shown);
}

/* ---- Envoy's rate limit service ----
 *
 * The file of limits, or one of a folder, may be replaced as editors, `cp` and
 * Kubernetes do it (io/file_stamp.h), and is read in the second after. If it
 * can't be read, the previous limits stay in force, and that is logged once. */

struct rls {
    const struct rls_options *options; /* borrowed */
    const struct weir_log *log;
    struct weir_protocol_counts *counts; /* likewise */
    struct weir_rls_service *service; /* owned, as all below; NULL: not open */
    struct weir_rlqs_service *quotas;
    struct weir_rls_rules *rules; /* NULL: no file */
    uint64_t stamp;               /* of the files, when they were read last */
    struct weir_rls_listener *listeners[ADDRESSES_MAX];
};

/* Puts the file and the line before the sentence of an error. */
static int name_limits_file(const char *path, int error,
                            const struct weir_diag *why, struct weir_diag *diag)
{
    char at[32];
    snprintf(at, sizeof at, why->column ? ":%u:%u: " : ":%u: ", why->line,
             why->column);
    return weir_diag_set(diag, error, path, why->line > 0 ? at : ": ",
                         why->text, NULL);
}

/* On failure 'diag' names the file too. */
static int load_limits(struct rls *rls, struct weir_diag *diag)
{
    struct weir_rls_rules *rules;
    struct weir_rls_files files;
    struct weir_diag why = { 0 };
    size_t broken = 0;
    int error = weir_rls_files_read(rls->options->config, &files, diag);
    if (error == 0) {
        error = weir_rls_rules_parse(files.texts, files.count, &rules, &broken,
                                     &why);
        if (error < 0)
            (void)name_limits_file(files.paths[broken], error, &why, diag);
    }
    weir_rls_files_free(&files);
    rls->counts->rls_loads[error == 0]++;
    if (error < 0)
        return error;
    weir_rls_service_set_rules(rls->service, rules);
    weir_rls_rules_free(rls->rules);
    rls->rules = rules;
    return 0;
}

static bool is_limits_file_changed(struct rls *rls)
{
    /* A file that was removed has changed. */
    uint64_t stamp = weir_rls_files_stamp(rls->options->config);
    bool changed = stamp != rls->stamp;
    rls->stamp = stamp;
    return changed;
}

static void log_loaded_limits(const struct rls *rls)
{
    size_t count;
    (void)weir_rls_rules_all(rls->rules, &count);
    weir_log(rls->log, WEIR_LOG_INFO, "%zu limits of %s", count,
             rls->options->config);
}

/* Call it each second; 'all': reads unchanged files too. */
static void rls_look(struct rls *rls, bool all)
{
    struct weir_diag diag = { 0 };
    if (!rls->service || !rls->options->config ||
        !(is_limits_file_changed(rls) || all))
        return;
    if (load_limits(rls, &diag) == 0)
        log_loaded_limits(rls);
    else
        weir_log(rls->log, WEIR_LOG_ERROR,
                 "%s: the previous limits stay in force", diag.text);
}

static void rls_recheck(struct rls *rls)
{
    for (size_t i = 0; i < ADDRESSES_MAX; i++)
        if (rls->listeners[i])
            weir_rls_listener_recheck(rls->listeners[i]);
}

static int read_headers(const char *text, enum weir_rls_headers *out,
                        struct weir_diag *diag)
{
    static const char *const words[] = {
        [WEIR_RLS_HEADERS_NONE] = "none",
        [WEIR_RLS_HEADERS_LIMIT] = "limit",
        [WEIR_RLS_HEADERS_IETF] = "ietf",
    };
    *out = WEIR_RLS_HEADERS_NONE;
    for (size_t i = 0; text && i < WEIR_COUNT_OF(words); i++) {
        if (strcmp(text, words[i]) == 0) {
            *out = (enum weir_rls_headers)i;
            return 0;
        }
    }
    return text ? weir_diag_set(diag, WEIR_EINVAL,
                                "--rls-headers: none, limit or ietf, not '",
                                text, "'", NULL)
                : 0;
}

static int read_config(struct rls *rls, struct weir_diag *diag)
{
    if (!rls->options->config)
        return 0;
    (void)is_limits_file_changed(rls);
    int error = load_limits(rls, diag);
    if (error < 0)
        return error;
    log_loaded_limits(rls);
    return 0;
}

static int open_rls_listeners(struct rls *rls,
                              const struct weir_protocol_host *host,
                              const struct weir_listen_address *places,
                              struct weir_diag *diag)
{
    const struct addresses *addresses = &rls->options->addresses;
    struct weir_diag why = { 0 };
    for (size_t i = 0; i < addresses->count; i++) {
        if (weir_rls_listener_new(host, &places[i], rls->service, rls->quotas,
                                  &rls->listeners[i], &why) < 0)
            return refuse_agent_option("--rls", addresses->items[i], &why,
                                       diag);
        log_address(rls->log, "Envoy's rate limit service",
                    weir_rls_listener_address(rls->listeners[i]));
    }
    return 0;
}

/* Whether the options have more than listen addresses. */
static bool rls_is_asked(const struct rls_options *options)
{
    return options->config || options->headers || options->shadow ||
           options->metadata || options->jitter;
}

/* Opens the listeners at 'places', as many as the options have, perhaps
 * none. */
static int rls_open(struct rls *rls, const struct weir_protocol_host *host,
                    const struct weir_listen_address *places,
                    struct weir_diag *diag)
{
    struct weir_rls_options options = { .shadow = rls->options->shadow,
                                        .metadata = rls->options->metadata,
                                        .jitter = rls->options->jitter };
    int error = read_headers(rls->options->headers, &options.headers, diag);
    if (error < 0)
        return error;
    rls->service = weir_rls_service_new(host, &options);
    rls->quotas = weir_rlqs_service_new(host);
    if (!rls->service || !rls->quotas)
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
    error = read_config(rls, diag);
    return error < 0 ? error : open_rls_listeners(rls, host, places, diag);
}

static void rls_close(struct rls *rls)
{
    for (size_t i = 0; i < ADDRESSES_MAX; i++)
        weir_rls_listener_free(&rls->listeners[i]);
    weir_rls_service_free(rls->service);
    weir_rlqs_service_free(rls->quotas);
    weir_rls_rules_free(rls->rules);
}

/* The protocols of listeners, and their names in ALPN, for clients over TLS. */
enum protocol { HTTP, RESP, RLS, PROTOCOLS };
static const char *const alpns[PROTOCOLS] = {
    [HTTP] = "http/1.1",
    [RESP] = NULL,
    [RLS] = "h2",
};

struct agent {
    const struct options *options; /* borrowed */
    struct weir_log *log;          /* likewise */
    struct event_base *base;       /* owned, as all below */
    struct weir_signals *signals;
    struct weir *weir; /* borrowed */
    struct event *news, *look;
    struct weir_credentials *credentials; /* NULL: none in force */
    struct weir_authorization authorizer;
    struct weir_protocol_counts counts;
    struct weir_protocol_start start;
    struct weir_tls *tls[PROTOCOLS]; /* NULL: plain text */
    size_t conns_max;                /* connections of each listener */
    struct weir_protocol_host host[PROTOCOLS];
    struct weir_agent_page *page; /* NULL: no HTTP */
    struct weir_http_take *web[ADDRESSES_MAX];
    struct weir_throttle *throttle; /* NULL: the fleet counts */
    struct weir_resp_listener *resp[ADDRESSES_MAX];
    struct rls rls;
};

/* ---- Authorization ---- */

static void note_refused_handshake(void *context, const char *address,
                                   const char *why, weir_instant now)
{
    weir_authorization_note(context, WEIR_API_HTTP, WEIR_REFUSED_TLS, address,
                            why, now);
}

/* Connected clients are checked again. */
static void recheck_listeners(struct agent *agent)
{
    for (size_t i = 0; i < ADDRESSES_MAX; i++) {
        if (agent->web[i])
            weir_http_take_recheck(agent->web[i]);
        if (agent->resp[i])
            weir_resp_listener_recheck(agent->resp[i]);
    }
    rls_recheck(&agent->rls);
}

static void reread_certificates(struct agent *agent, bool all)
{
    struct weir_diag why = { 0 };
    bool changed = all;
    bool failed = false;
    if (!agent->tls[0])
        return;
    for (size_t i = 0; i < PROTOCOLS; i++)
        changed |= weir_tls_is_changed(agent->tls[i]);
    if (!changed)
        return;
    /* All of them, or a file that can't be read would be read again each
     * second. */
    for (size_t i = 0; i < PROTOCOLS; i++)
        failed |= weir_tls_reload(agent->tls[i], &why) < 0;
    if (failed) {
        weir_log(agent->log, WEIR_LOG_ERROR,
                 "certificates aren't reloaded, the old ones stay: %s",
                 why.text);
        return;
    }
    weir_log(agent->log, WEIR_LOG_INFO, "reloaded the certificate %s",
             agent->options->exposure.tls_cert);
    recheck_listeners(agent);
}

static void reread_credentials(struct agent *agent, bool all)
{
    if (weir_exposure_reload(&agent->options->exposure, agent->credentials, all,
                             agent->log))
        recheck_listeners(agent);
}

static void on_file_check(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct agent *agent = context;
    reread_certificates(context, false);
    reread_credentials(context, false);
    rls_look(&agent->rls, false);
    if (agent->page)
        weir_agent_page_tick(agent->page, weir_clock_now());
    weir_log_tick(agent->log);
}

/* ---- Events ---- */

static enum weir_log_level level_of_event(enum weir_event_type type)
{
    switch (type) {
    case WEIR_EVENT_ROOT_UP:
    case WEIR_EVENT_READY:
    case WEIR_EVENT_FRESH:
    case WEIR_EVENT_EXACT_BACK:
    case WEIR_EVENT_FORKED:
    case WEIR_EVENT_REPORTER:
        return WEIR_LOG_INFO;
    case WEIR_EVENT_ROOT_DOWN:
    case WEIR_EVENT_STALE:
    case WEIR_EVENT_TABLE_FULL:
    case WEIR_EVENT_STORE_CHANGED:
    case WEIR_EVENT_REPORT_BACKOFF:
    case WEIR_EVENT_LOST:
    case WEIR_EVENT_QUOTA_UNKNOWN:
    case WEIR_EVENT_EXACT_AWAY:
    case WEIR_EVENT_ZONE:
    case WEIR_EVENT_ADAPTIVE_FULL:
    case WEIR_EVENT_ELSEWHERE:
    case WEIR_EVENT_SNAPSHOT:
    case WEIR_EVENT_FEW_ROOTS:
        return WEIR_LOG_WARNING;
    case WEIR_EVENT_CREDENTIAL:
    case WEIR_EVENT_TABLE:
    case WEIR_EVENT_DENIED:
        return WEIR_LOG_ERROR;
    }
    return WEIR_LOG_WARNING;
}

static const char *const titles_of_events[] = {
    [WEIR_EVENT_ROOT_UP] = "a root is there",
    [WEIR_EVENT_ROOT_DOWN] = "a root can't be reached",
    [WEIR_EVENT_READY] =
        "ready: the quotas of a root, or of the snapshot, are complete here",
    [WEIR_EVENT_STALE] = "no root answered for stale_after: on_stale decides",
    [WEIR_EVENT_FRESH] = "a root answers again",
    [WEIR_EVENT_TABLE_FULL] = "the table has no room",
    [WEIR_EVENT_STORE_CHANGED] = "a root has another quota store",
    [WEIR_EVENT_REPORT_BACKOFF] = "an overloaded root asks for fewer reports",
    [WEIR_EVENT_FORKED] = "a child of fork() is a limiter now",
    [WEIR_EVENT_LOST] = "events were lost",
    [WEIR_EVENT_CREDENTIAL] = "the credential shown to roots can't be used",
    [WEIR_EVENT_QUOTA_UNKNOWN] = "a quota is of a later version and passes all",
    [WEIR_EVENT_EXACT_AWAY] = "a store of exact quotas doesn't answer",
    [WEIR_EVENT_EXACT_BACK] = "a store of exact quotas answers again",
    [WEIR_EVENT_ZONE] = "a time zone isn't known here, its windows go by UTC",
    [WEIR_EVENT_ADAPTIVE_FULL] = "adaptive quotas beyond adaptive_max pass all",
    [WEIR_EVENT_ELSEWHERE] =
        "leases are handed out by a root that isn't connected",
    [WEIR_EVENT_TABLE] = "the table can't be had as configured",
    [WEIR_EVENT_REPORTER] = "this process runs the shared table's limiter",
    [WEIR_EVENT_DENIED] =
        "the credential may not take from a quota, which is counted here alone",
    [WEIR_EVENT_SNAPSHOT] = "snapshot",
    [WEIR_EVENT_FEW_ROOTS] = "there are more roots",
};

static void on_limiter_events(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    const struct agent *agent = context;
    struct weir_event event;
    while (weir_event_next(agent->weir, &event)) {
        weir_assert(event.type >= WEIR_EVENT_ROOT_UP &&
                    event.type < WEIR_COUNT_OF(titles_of_events));
        weir_log_limited(agent->log, WEIR_LOG_EVENT + event.type,
                         level_of_event(event.type), "%s%s%s",
                         titles_of_events[event.type],
                         event.text[0] ? ": " : "", event.text);
    }
}

static void on_agent_signal(void *context, enum weir_signal signal)
{
    struct agent *agent = context;
    if (signal == WEIR_SIGNAL_RELOAD) {
        reread_certificates(agent, true);
        reread_credentials(agent, true);
        rls_look(&agent->rls, true);
        return;
    }
    weir_log(agent->log, WEIR_LOG_INFO, "stopping");
    event_base_loopbreak(agent->base);
}

/* ---- Start and end ---- */

static int make_event_loop(struct agent *agent, struct weir_diag *diag)
{
    const struct timeval second = { .tv_sec = 1 };
    agent->base = event_base_new();
    if (agent->base)
        agent->signals = weir_signals_new(agent->base, on_agent_signal, agent);
    if (agent->signals) {
        agent->news = event_new(agent->base, weir_event_fd(agent->weir),
                                EV_READ | EV_PERSIST, on_limiter_events, agent);
        agent->look =
            event_new(agent->base, -1, EV_PERSIST, on_file_check, agent);
    }
    bool made = agent->news && agent->look &&
                event_add(agent->news, NULL) == 0 &&
                event_add(agent->look, &second) == 0;
    return made ? 0 : weir_diag_put(diag, WEIR_ENOMEM, NULL);
}

static struct weir_protocol_host protocol_host_of(struct agent *agent,
                                                  struct weir_tls *tls)
{
    return (struct weir_protocol_host){
        .base = agent->base,
        .weir = agent->weir,
        .version = weir_version(),
        .counts = &agent->counts,
        .log = agent->log,
        .start = &agent->start,
        .authorizer = &agent->authorizer,
        .tls = { .tls = tls,
                 .on_refused = note_refused_handshake,
                 .context = &agent->authorizer },
        .on_short = { weir_log_short, agent->log },
        .conns_max = agent->conns_max,
        .public_origin = agent->options->public_origin,
    };
}

static int open_security(struct agent *agent, struct weir_diag *diag)
{
    struct weir_diag why = { 0 };
    const struct weir_exposure *exposure = &agent->options->exposure;
    const char *path = exposure->credentials;
    const char *origin = agent->options->public_origin;
    if (origin && weir_origin_parse(origin, &why) < 0)
        return weir_diag_set(diag, WEIR_EINVAL, "--public-origin ", origin,
                             ": ", why.text, NULL);
    int error = weir_exposure_check(exposure, diag);
    if (error == 0 && path)
        error = weir_credentials_open(path, &agent->credentials, diag);
    for (size_t i = 0; i < PROTOCOLS && error == 0; i++)
        error = weir_exposure_tls(exposure, alpns[i], &agent->tls[i], diag);
    if (error < 0)
        return error;
    agent->authorizer =
        (struct weir_authorization){ .credentials = agent->credentials,
                                     .log = agent->log };
    for (size_t i = 0; i < PROTOCOLS; i++)
        agent->host[i] = protocol_host_of(agent, agent->tls[i]);
    return 0;
}

static int read_listen_address(const struct agent *agent, const char *option,
                               const char *text,
                               struct weir_listen_address *out,
                               struct weir_diag *diag)
{
    struct weir_diag why = { 0 };
    if (weir_listen_address_parse(weir_text_of(text), out, &why) < 0)
        return refuse_agent_option(option, text, &why, diag);
    return weir_exposure_check_place(&agent->options->exposure, option, out,
                                     diag);
}

static int open_web(struct agent *agent, struct weir_diag *diag)
{
    const struct addresses *http = &agent->options->http;
    if (http->count > 0)
        agent->page = weir_agent_page_new(agent->weir, agent->options->name,
                                          weir_clock_now());
    if (http->count > 0 && !agent->page)
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
    for (size_t i = 0; i < http->count; i++) {
        struct weir_listen_address place;
        struct weir_diag why = { 0 };
        int error =
            read_listen_address(agent, "--http", http->items[i], &place, diag);
        if (error < 0)
            return error;
        if (weir_http_take_new(&agent->host[HTTP], &place, agent->rls.service,
                               weir_agent_page_views(agent->page),
                               &agent->web[i], &why) < 0)
            return refuse_agent_option("--http", http->items[i], &why, diag);
        log_address(agent->log, "HTTP", weir_http_take_address(agent->web[i]));
    }
    return 0;
}

static int make_throttle(struct agent *agent, struct weir_diag *diag)
{
    const char *text = agent->options->resp_keys;
    const char *sharing = agent->options->resp_sharing;
    struct weir_diag why = { 0 };
    uint64_t keys = WEIR_THROTTLE_KEYS_DEFAULT;
    bool counted = false;
    uint64_t seed;
    if (text && (weir_units_parse(weir_text_of(text), &keys, &why) < 0 ||
                 keys == 0 || keys > WEIR_THROTTLE_KEYS_MAX))
        return weir_diag_put(diag, WEIR_EINVAL,
                             "--resp-keys: a number from 1 to 128Mi");
    if (sharing && weir_throttle_sharing_parse(sharing, &counted, &why) < 0)
        return weir_diag_set(diag, WEIR_EINVAL, "--resp-sharing: ", why.text,
                             NULL);
    if (counted)
        return text ? weir_diag_put(diag, WEIR_EINVAL,
                                    "--resp-keys goes with --resp-sharing "
                                    "local; keys that the fleet counts have "
                                    "the room of --memory-max")
                    : 0;
    weir_entropy(&seed, sizeof seed);
    agent->throttle = weir_throttle_new(&weir_mem_system, (uint32_t)keys, seed);
    return agent->throttle ? 0 : weir_diag_put(diag, WEIR_ENOMEM, NULL);
}

static int open_resp(struct agent *agent, struct weir_diag *diag)
{
    const struct addresses *resp = &agent->options->resp;
    for (size_t i = 0; i < resp->count; i++) {
        struct weir_listen_address place;
        struct weir_diag why = { 0 };
        int error =
            read_listen_address(agent, "--resp", resp->items[i], &place, diag);
        if (error < 0)
            return error;
        if (weir_resp_listener_new(&agent->host[RESP], &place, agent->throttle,
                                   &agent->resp[i], &why) < 0)
            return refuse_agent_option("--resp", resp->items[i], &why, diag);
        log_address(agent->log, "RESP",
                    weir_resp_listener_address(agent->resp[i]));
    }
    return 0;
}

static int open_rls(struct agent *agent, struct weir_diag *diag)
{
    const struct addresses *rls = &agent->options->rls.addresses;
    struct weir_listen_address places[ADDRESSES_MAX];
    for (size_t i = 0; i < rls->count; i++) {
        int error = read_listen_address(agent, "--rls", rls->items[i],
                                        &places[i], diag);
        if (error < 0)
            return error;
    }
    if (rls->count + agent->options->http.count == 0)
        return rls_is_asked(&agent->options->rls)
                   ? weir_diag_put(diag, WEIR_EINVAL,
                                   "--envoy-config and --rls-… go with --rls "
                                   "or --http")
                   : 0;
    agent->rls = (struct rls){ .options = &agent->options->rls,
                               .log = agent->log,
                               .counts = &agent->counts };
    return rls_open(&agent->rls, &agent->host[RLS], places, diag);
}

static int put_address(char *to, const char *protocol,
                       const struct weir_listen_address *place)
{
    char shown[WEIR_LISTEN_ADDRESS_TEXT_MAX];
    weir_listen_address_show(place, shown);
    return sprintf(to, "%s=%s\n", protocol, shown);
}

/* A line for each listen address: "http=127.0.0.1:7079". */
static int write_addresses(const struct agent *agent, struct weir_diag *diag)
{
    char text[3 * ADDRESSES_MAX * (WEIR_LISTEN_ADDRESS_TEXT_MAX + 8)] = "";
    char *to = text;
    if (!agent->options->port_file)
        return 0;
    for (size_t i = 0; i < ADDRESSES_MAX && agent->web[i]; i++)
        to += put_address(to, "http", weir_http_take_address(agent->web[i]));
    for (size_t i = 0; i < ADDRESSES_MAX && agent->resp[i]; i++)
        to +=
            put_address(to, "resp", weir_resp_listener_address(agent->resp[i]));
    for (size_t i = 0; i < ADDRESSES_MAX && agent->rls.listeners[i]; i++)
        to += put_address(to, "rls",
                          weir_rls_listener_address(agent->rls.listeners[i]));
    weir_assert(to < text + sizeof text);
    return weir_port_file_put(agent->options->port_file, text, diag);
}

static int read_before_quotas(struct agent *agent, struct weir_diag *diag)
{
    const char *text = agent->options->before_quotas;
    agent->start.passes = text && strcmp(text, "pass") == 0;
    return !text || agent->start.passes || strcmp(text, "refuse") == 0
               ? 0
               : weir_diag_set(diag, WEIR_EINVAL,
                               "--before-quotas: refuse or pass, not '", text,
                               "'", NULL);
}

static int open_agent(struct agent *agent, struct weir_diag *diag)
{
    const struct options *options = agent->options;
    size_t listeners = options->http.count + options->resp.count +
                       options->rls.addresses.count;
    if (listeners > 0)
        agent->conns_max =
            weir_files_spare(listeners * WEIR_PROTOCOL_CONNS_MAX) / listeners;
    int error = read_before_quotas(agent, diag);
    if (error == 0)
        error = make_event_loop(agent, diag);
    if (error == 0)
        error = open_security(agent, diag);
    if (error == 0)
        error = make_throttle(agent, diag);
    if (error == 0)
        error = open_rls(agent, diag);
    if (error == 0)
        error = open_web(agent, diag);
    if (error == 0)
        error = open_resp(agent, diag);
    if (error == 0)
        error = write_addresses(agent, diag);
    if (error == 0)
        weir_exposure_warn_of_names(&options->exposure, agent->credentials,
                                    agent->log);
    if (error == 0 && agent->start.passes)
        weir_log(agent->log, WEIR_LOG_WARNING,
                 "--before-quotas pass: every request passes until the first "
                 "quotas are complete here");
    return error;
}

static void destroy_agent(struct agent *agent)
{
    for (size_t i = 0; i < ADDRESSES_MAX; i++) {
        weir_http_take_free(&agent->web[i]);
        weir_resp_listener_free(&agent->resp[i]);
    }
    weir_agent_page_free(&agent->page);
    weir_throttle_free(&agent->throttle);
    rls_close(&agent->rls);
    if (agent->news)
        event_free(agent->news);
    if (agent->look)
        event_free(agent->look);
    weir_signals_free(&agent->signals);
    if (agent->base)
        event_base_free(agent->base);
    weir_credentials_free(&agent->credentials);
    for (size_t i = 0; i < PROTOCOLS; i++)
        weir_tls_free(&agent->tls[i]);
    weir_assert(!agent->page && !agent->throttle);
}

/* ---- The command ---- */

static const char agent_help[] =
    "Runs a limiter on this host for programs that have none of their own:\n"
    "they ask it by HTTP or by the protocol of Redis, and it decides in its\n"
    "own memory.\n"
    "\n"
    "    weir agent --roots 10.0.0.1:7077,10.0.0.2:7077 \\\n"
    "        --http localhost:7079\n"
    "    curl --json '{\"name\": \"s3/put\"}' localhost:7079/v1/take\n"
    "\n"
    "  --http ADDRESS       decisions by HTTP, and a page [127.0.0.1:7079]\n"
    "  --public-origin URL  origin of the page as browsers see it behind a\n"
    "                       proxy: https://weir.example\n"
    "  --resp ADDRESS       CL.THROTTLE and WEIR.TAKE for clients of Redis\n"
    "  --resp-keys N        keys that CL.THROTTLE may have           [1000k]\n"
    "  --resp-sharing HOW   local: the keys are this process's; counted: the\n"
    "                       fleet counts them together              [local]\n"
    "  --rls ADDRESS        Envoy's rate limit service (gRPC)\n"
    "  --envoy-config FILE  the limits that --rls and /json go by, as written\n"
    "                       for envoyproxy/ratelimit: see weir-envoy(7)\n"
    "  --rls-headers WHAT   limit, ietf: headers added downstream     [none]\n"
    "  --rls-shadow         pass all requests; each status has the verdict\n"
    "  --rls-metadata       answer with dynamic metadata, as with\n"
    "                       RESPONSE_DYNAMIC_METADATA of envoyproxy/ratelimit\n"
    "  --rls-jitter         duration_until_reset of limited requests is up to\n"
    "                       a quarter longer, at random\n"
    "  --table FILE         a table that processes share: they map it, and\n"
    "                       decide by libweir themselves (/dev/shm/…)\n"
    "  --snapshot FILE      keeps the quotas, for a start while no root can\n"
    "                       be reached                               [none]\n"
    "  --name NAME          as `weir top` shows it            [weir and pid]\n"
    "  --before-quotas HOW  refuse, pass: requests before a root has sent its\n"
    "                       quotas                                 [refuse]\n"
    "  --memory-max BYTES   memory for quotas and instances           [1Gi]\n"
    "  --on-full RULE       refuse, pass: names without room       [refuse]\n"
    "  --when-locked HOW    limit, pass: a quota that another process has\n"
    "                       locked                                   [limit]\n"
    "  --credentials FILE   clients' roles, as of `weir serve`: take, read\n"
    "  --listener-tls-cert FILE   speak TLS at addresses, and show this\n"
    "  --listener-tls-key FILE    its key; both are read again as they change\n"
    "  --listener-tls-ca FILE     the authority of clients' certificates\n"
    "  --insecure           addresses that other hosts reach, without TLS\n"
    "  --port-file FILE     the listen addresses, once they are open\n"
    "  --log-level LEVEL    error, warning, info, debug             [info]\n"
    "  --roots HOST:PORT,…  all roots      [$WEIR_ROOTS or 127.0.0.1:7077]\n"
    "\n"
    "An ADDRESS is HOST:PORT, :PORT or unix:PATH; each of these options may\n"
    "come four times. An address that isn't loopback needs TLS and\n"
    "credentials.\n";

/* The loop serves all clients, so it waits for no other process. The locks of a
 * table of its own are held by its own threads alone, which wait for nothing:
 * without a wait a new name would be refused each time that the background
 * thread is at work. */
static int read_locks(const char *when_locked, struct weir_options *options)
{
    if (options->table && *options->table)
        options->lock_wait = WEIR_NO_LOCK_WAIT;
    if (when_locked && strcmp(when_locked, "pass") == 0)
        options->when_locked = WEIR_LOCKED_PASSES;
    else if (when_locked && strcmp(when_locked, "limit") != 0)
        return weir_cli_fail("--when-locked: limit or pass, not '%s'",
                             when_locked);
    return 0;
}

static int open_agent_limiter(const struct weir_cli *cli,
                              const char *memory_max, const char *on_full,
                              struct weir_options *options, struct weir **out)
{
    struct weir_diag diag;
    if (memory_max && (weir_units_parse(weir_text_of(memory_max),
                                        &options->memory_max, &diag) < 0 ||
                       options->memory_max == 0))
        return weir_cli_fail("--memory-max: a number of bytes, as 512Mi");
    if (on_full && strcmp(on_full, "pass") == 0)
        options->on_full = WEIR_ON_FULL_PASS;
    else if (on_full && strcmp(on_full, "refuse") != 0)
        return weir_cli_fail("--on-full: refuse or pass");
    return weir_cli_open(cli, options, out);
}

static int copy_addresses(const struct weir_cli_values values[PROTOCOLS],
                          struct options *options)
{
    struct addresses *const to[PROTOCOLS] = {
        [HTTP] = &options->http,
        [RESP] = &options->resp,
        [RLS] = &options->rls.addresses,
    };
    for (size_t i = 0; i < PROTOCOLS; i++) {
        if (values[i].count > ADDRESSES_MAX)
            return weir_cli_fail(
                "--http, --resp and --rls may come %d times each",
                ADDRESSES_MAX);
        for (size_t j = 0; j < values[i].count; j++)
            to[i]->items[to[i]->count++] = values[i].items[j];
    }
    return 0;
}

/* Opens the listeners and runs until SIGTERM or SIGINT. */
static int run_agent(const struct options *options, struct weir *weir,
                     struct weir_log *log)
{
    struct agent agent = { .options = options, .log = log, .weir = weir };
    struct weir_diag diag = { 0 };
    int error = open_agent(&agent, &diag);
    if (error == 0)
        event_base_dispatch(agent.base);
    destroy_agent(&agent);
    return error < 0 ? weir_cli_fail("%s", diag.text) : 0;
}

static int check_snapshot(const struct weir_options *limiter)
{
    if (limiter->snapshot && !*limiter->snapshot)
        return weir_cli_fail("--snapshot: the path of a file, not ''");
    if (limiter->table && limiter->snapshot)
        return weir_cli_fail("--snapshot goes without --table: a table keeps "
                             "the quotas itself");
    return 0;
}

int weir_cli_agent(int argc, char **argv)
{
    struct options options = { .exposure.prefix = "--listener-tls-" };
    struct weir_options limiter = WEIR_OPTIONS_INIT;
    struct weir_cli cli = { 0 };
    struct weir_cli_values values[PROTOCOLS] = { 0 };
    const char *memory_max = NULL;
    const char *on_full = NULL;
    const char *log_level = NULL;
    const char *when_locked = NULL;
    const struct weir_cli_option known[] = {
        { .name = "http", .values = &values[HTTP] },
        { .name = "public-origin", .value = &options.public_origin },
        { .name = "resp", .values = &values[RESP] },
        { .name = "resp-keys", .value = &options.resp_keys },
        { .name = "resp-sharing", .value = &options.resp_sharing },
        { .name = "rls", .values = &values[RLS] },
        { .name = "envoy-config", .value = &options.rls.config },
        { .name = "rls-headers", .value = &options.rls.headers },
        { .name = "rls-shadow", .flag = &options.rls.shadow },
        { .name = "rls-metadata", .flag = &options.rls.metadata },
        { .name = "rls-jitter", .flag = &options.rls.jitter },
        { .name = "table", .value = &limiter.table },
        { .name = "snapshot", .value = &limiter.snapshot },
        { .name = "name", .value = &options.name },
        { .name = "before-quotas", .value = &options.before_quotas },
        { .name = "memory-max", .value = &memory_max },
        { .name = "on-full", .value = &on_full },
        { .name = "when-locked", .value = &when_locked },
        { .name = "credentials", .value = &options.exposure.credentials },
        { .name = "listener-tls-cert", .value = &options.exposure.tls_cert },
        { .name = "listener-tls-key", .value = &options.exposure.tls_key },
        { .name = "listener-tls-ca", .value = &options.exposure.tls_ca },
        { .name = "insecure", .flag = &options.exposure.insecure },
        { .name = "port-file", .value = &options.port_file },
        { .name = "log-level", .value = &log_level },
    };
    int at = weir_cli_parse(&cli, agent_help, known, WEIR_COUNT_OF(known), argc,
                            argv);
    if (at < 0)
        return weir_cli_parsed(at);
    if (at < argc)
        return weir_cli_fail("weir agent takes options only, not '%s'",
                             argv[at]);
    if (values[HTTP].count + values[RESP].count + values[RLS].count == 0 &&
        !limiter.table)
        values[HTTP].items[values[HTTP].count++] = HTTP_DEFAULT;
    struct weir_log log = { .level = WEIR_LOG_INFO };
    if (log_level && weir_log_level_parse(log_level, &log.level) < 0)
        return weir_cli_fail("--log-level: error, warning, info or debug");
    int status = read_locks(when_locked, &limiter);
    if (status == 0)
        status = copy_addresses(values, &options);
    if (status == 0)
        status = check_snapshot(&limiter);
    if (status)
        return status;
    limiter.name = options.name;
    struct weir *weir = NULL;
    weir_log_adopt_library(&log);
    status = open_agent_limiter(&cli, memory_max, on_full, &limiter, &weir);
    if (status == 0)
        status = run_agent(&options, weir, &log);
    weir_close(weir);
    weir_log_adopt_library(NULL);
    weir_log_end(&log);
    return status;
}
