/* SPDX-License-Identifier: MIT
 * agent/agent_loop.c - the listeners of an agent, on one event loop.
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
 * With all roots dead the agent goes on, as each quota's on_stale says; with
 * the agent dead its clients get no answer, and decide by themselves. */

#include "agent/agent_loop.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent_events.h"
#include "agent/agent_page.h"
#include "core/quota/quota.h"
#include "front/authorization.h"
#include "front/port_file.h"
#include "io/clock.h"
#include "io/daemon.h"
#include "io/origin.h"
#include "protocol/http_take/http_take.h"
#include "protocol/resp/resp_listener.h"
#include "protocol/resp/throttle_counted.h"

#define LISTENER_KINDS 3

/* ALPN names: the protocol that a client of each kind offers over TLS. */
enum listener_kind { KIND_HTTP, KIND_RESP, KIND_RLS };
static const char *const alpns[LISTENER_KINDS] = {
    [KIND_HTTP] = "http/1.1",
    [KIND_RESP] = NULL,
    [KIND_RLS] = "h2",
};

struct agent {
    const struct weir_agent_options *options; /* borrowed */
    struct weir_log *log;                     /* likewise */
    struct event_base *base;                  /* owned, as all below */
    struct weir_signals *signals;
    struct weir *weir; /* borrowed */
    struct event *news, *look;
    struct weir_credentials *credentials; /* NULL: none in force */
    struct weir_authorization authorizer;
    struct weir_protocol_counts counts;
    struct weir_tls *tls[LISTENER_KINDS]; /* NULL: plain text */
    size_t conns_max;                     /* connections of each listener */
    struct weir_protocol_host host[LISTENER_KINDS];
    struct weir_agent_page *page; /* NULL: no HTTP */
    struct weir_http_take *web[WEIR_AGENT_ADDRESSES_MAX];
    struct weir_throttle *throttle; /* NULL: the fleet counts */
    struct weir_resp_listener *resp[WEIR_AGENT_ADDRESSES_MAX];
    struct weir_agent_rls *rls; /* NULL: no such listener */
};

/* ---- Authorization ---- */

static int admit_peer(void *context, const struct weir_protocol_peer *guest,
                      struct weir_protocol_taker *out, struct weir_diag *diag,
                      weir_instant now)
{
    struct weir_authorization *authorizer = context;
    struct weir_identity identity;
    struct weir_caller caller = { .api = WEIR_API_HTTP,
                                  .address = guest->address,
                                  .names = guest->names,
                                  .authorization = guest->authorization };
    enum weir_role role =
        guest->right == WEIR_PROTOCOL_READ ? WEIR_ROLE_READ : WEIR_ROLE_TAKE;
    int error =
        weir_authorization_identify(authorizer, &caller, &identity, diag, now);
    if (error == 0)
        error = weir_authorization_admit(authorizer, &caller, &identity, role,
                                         diag, now);
    if (error < 0)
        return error;
    out->names = identity.take;
    snprintf(out->identity, sizeof out->identity, "%s", identity.who);
    return 0;
}

static void note_denied_name(void *context,
                             const struct weir_protocol_taker *taker,
                             const char *why, weir_instant now)
{
    weir_authorization_note(context, WEIR_API_HTTP, WEIR_REFUSED_NAME,
                            taker->address, why, now);
}

static void note_refused_handshake(void *context, const char *address,
                                   const char *why, weir_instant now)
{
    weir_authorization_note(context, WEIR_API_HTTP, WEIR_REFUSED_TLS, address,
                            why, now);
}

/* Connected clients are checked again. */
static void recheck_listeners(struct agent *agent)
{
    for (size_t i = 0; i < WEIR_AGENT_ADDRESSES_MAX; i++) {
        if (agent->web[i])
            weir_http_take_recheck(agent->web[i]);
        if (agent->resp[i])
            weir_resp_listener_recheck(agent->resp[i]);
    }
    weir_agent_rls_recheck(agent->rls);
}

static void reread_certificates(struct agent *agent, bool all)
{
    struct weir_diag why = { 0 };
    bool changed = all;
    bool failed = false;
    if (!agent->tls[0])
        return;
    for (size_t i = 0; i < LISTENER_KINDS; i++)
        changed |= weir_tls_is_changed(agent->tls[i]);
    if (!changed)
        return;
    /* All of them, or a file that can't be read would be read again each
     * second. */
    for (size_t i = 0; i < LISTENER_KINDS; i++)
        failed |= weir_tls_reload(agent->tls[i], &why) < 0;
    if (failed) {
        weir_log(agent->log, WEIR_LOG_ERROR,
                 "certificates aren't reloaded, the old ones stay: %s",
                 why.text);
        return;
    }
    weir_log(agent->log, WEIR_LOG_INFO, "reloaded the certificate %s",
             agent->options->reach.tls_cert);
    recheck_listeners(agent);
}

static void reread_credentials(struct agent *agent, bool all)
{
    if (weir_exposure_reload(&agent->options->reach, agent->credentials, all,
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
    weir_agent_rls_look(agent->rls, false);
    if (agent->page)
        weir_agent_page_tick(agent->page, weir_clock_now());
    weir_log_tick(agent->log);
}

/* ---- Events ---- */

static void on_limiter_events(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    const struct agent *agent = context;
    weir_agent_log_events(agent->weir, agent->log);
}

static void on_agent_signal(void *context, enum weir_signal signal)
{
    struct agent *agent = context;
    if (signal == WEIR_SIGNAL_RELOAD) {
        reread_certificates(agent, true);
        reread_credentials(agent, true);
        weir_agent_rls_look(agent->rls, true);
        return;
    }
    weir_log(agent->log, WEIR_LOG_INFO, "stopping");
    event_base_loopbreak(agent->base);
}

/* ---- Start and end ---- */

static int no_memory(struct weir_diag *diag)
{
    return weir_diag_set(diag, WEIR_ENOMEM, weir_strerror(WEIR_ENOMEM), NULL);
}

static int refuse_agent_option(const char *option, const char *value,
                               const struct weir_diag *why,
                               struct weir_diag *diag)
{
    return weir_diag_set(diag, WEIR_EINVAL, option, " ", value, ": ", why->text,
                         NULL);
}

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
    return made ? 0 : no_memory(diag);
}

static struct weir_protocol_host protocol_host_of(struct agent *agent,
                                                  struct weir_tls *tls)
{
    return (struct weir_protocol_host){
        .base = agent->base,
        .weir = agent->weir,
        .version = weir_version(),
        .counts = &agent->counts,
        .admit = agent->credentials ? admit_peer : NULL,
        .denied = note_denied_name,
        .context = &agent->authorizer,
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
    const struct weir_exposure *reach = &agent->options->reach;
    const char *path = reach->credentials;
    const char *origin = agent->options->public_origin;
    if (origin && weir_origin_parse(origin, &why) < 0)
        return weir_diag_set(diag, WEIR_EINVAL, "--public-origin ", origin,
                             ": ", why.text, NULL);
    int error = weir_exposure_check(reach, diag);
    if (error == 0 && path)
        error = weir_credentials_open(path, &agent->credentials, diag);
    for (size_t i = 0; i < LISTENER_KINDS && error == 0; i++)
        error = weir_exposure_tls(reach, alpns[i], &agent->tls[i], diag);
    if (error < 0)
        return error;
    agent->authorizer =
        (struct weir_authorization){ .credentials = agent->credentials,
                                     .log = agent->log };
    for (size_t i = 0; i < LISTENER_KINDS; i++)
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
    return weir_exposure_check_place(&agent->options->reach, option, out, diag);
}

static void log_address(const struct agent *agent, const char *what,
                        const struct weir_listen_address *place)
{
    char shown[WEIR_LISTEN_ADDRESS_TEXT_MAX];
    weir_listen_address_show(place, shown);
    weir_log(agent->log, WEIR_LOG_INFO, "%s at %s", what, shown);
}

static int open_web(struct agent *agent, struct weir_diag *diag)
{
    const struct weir_agent_addresses *http = &agent->options->http;
    if (http->count > 0)
        agent->page = weir_agent_page_new(agent->weir, agent->options->name,
                                          weir_clock_now());
    if (http->count > 0 && !agent->page)
        return no_memory(diag);
    for (size_t i = 0; i < http->count; i++) {
        struct weir_listen_address place;
        struct weir_diag why = { 0 };
        int error =
            read_listen_address(agent, "--http", http->items[i], &place, diag);
        if (error < 0)
            return error;
        if (weir_http_take_new(&agent->host[KIND_HTTP], &place,
                               weir_agent_rls_service(agent->rls),
                               weir_agent_page_views(agent->page),
                               &agent->web[i], &why) < 0)
            return refuse_agent_option("--http", http->items[i], &why, diag);
        log_address(agent, "HTTP", weir_http_take_address(agent->web[i]));
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
        return weir_diag_set(diag, WEIR_EINVAL,
                             "--resp-keys: a number from 1 to 128Mi", NULL);
    if (sharing && weir_throttle_sharing_parse(sharing, &counted, &why) < 0)
        return weir_diag_set(diag, WEIR_EINVAL, "--resp-sharing: ", why.text,
                             NULL);
    if (counted)
        return text ? weir_diag_set(diag, WEIR_EINVAL,
                                    "--resp-keys goes with --resp-sharing "
                                    "local; keys that the fleet counts have "
                                    "the room of --quotas-max",
                                    NULL)
                    : 0;
    weir_entropy(&seed, sizeof seed);
    agent->throttle = weir_throttle_new(&weir_mem_system, (uint32_t)keys, seed);
    return agent->throttle ? 0 : no_memory(diag);
}

static int open_resp(struct agent *agent, struct weir_diag *diag)
{
    const struct weir_agent_addresses *resp = &agent->options->resp;
    for (size_t i = 0; i < resp->count; i++) {
        struct weir_listen_address place;
        struct weir_diag why = { 0 };
        int error =
            read_listen_address(agent, "--resp", resp->items[i], &place, diag);
        if (error < 0)
            return error;
        if (weir_resp_listener_new(&agent->host[KIND_RESP], &place,
                                   agent->throttle, &agent->resp[i], &why) < 0)
            return refuse_agent_option("--resp", resp->items[i], &why, diag);
        log_address(agent, "RESP", weir_resp_listener_address(agent->resp[i]));
    }
    return 0;
}

static int open_rls(struct agent *agent, struct weir_diag *diag)
{
    const struct weir_agent_addresses *rls = &agent->options->rls.addresses;
    struct weir_listen_address places[WEIR_AGENT_ADDRESSES_MAX];
    for (size_t i = 0; i < rls->count; i++) {
        int error = read_listen_address(agent, "--rls", rls->items[i],
                                        &places[i], diag);
        if (error < 0)
            return error;
    }
    if (rls->count + agent->options->http.count == 0)
        return weir_agent_rls_is_asked(&agent->options->rls)
                   ? weir_diag_set(diag, WEIR_EINVAL,
                                   "--envoy-config, --rls-headers and "
                                   "--rls-shadow go with --rls or --http",
                                   NULL)
                   : 0;
    return weir_agent_rls_open(&agent->host[KIND_RLS], &agent->options->rls,
                               places, agent->log, &agent->rls, diag);
}

/* A line for each listen address: "http=127.0.0.1:7079". */
static int write_addresses(const struct agent *agent, struct weir_diag *diag)
{
    char text[3 * WEIR_AGENT_ADDRESSES_MAX *
              (WEIR_LISTEN_ADDRESS_TEXT_MAX + 8)] = "";
    char shown[WEIR_LISTEN_ADDRESS_TEXT_MAX];
    int len = 0;
    if (!agent->options->port_file)
        return 0;
    for (size_t i = 0; i < WEIR_AGENT_ADDRESSES_MAX && agent->web[i]; i++) {
        weir_listen_address_show(weir_http_take_address(agent->web[i]), shown);
        len += sprintf(text + len, "http=%s\n", shown);
    }
    for (size_t i = 0; i < WEIR_AGENT_ADDRESSES_MAX && agent->resp[i]; i++) {
        weir_listen_address_show(weir_resp_listener_address(agent->resp[i]),
                                 shown);
        len += sprintf(text + len, "resp=%s\n", shown);
    }
    const struct weir_listen_address *rls;
    for (size_t i = 0; (rls = weir_agent_rls_address(agent->rls, i)); i++) {
        weir_listen_address_show(rls, shown);
        len += sprintf(text + len, "rls=%s\n", shown);
    }
    return weir_port_file_put(agent->options->port_file, text, diag);
}

static int open_agent(struct agent *agent, struct weir_diag *diag)
{
    const struct weir_agent_options *options = agent->options;
    size_t listeners = options->http.count + options->resp.count +
                       options->rls.addresses.count;
    if (listeners > 0)
        agent->conns_max =
            weir_files_spare(listeners * WEIR_PROTOCOL_CONNS_MAX) / listeners;
    int error = make_event_loop(agent, diag);
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
        weir_exposure_warn_of_names(&options->reach, agent->credentials,
                                    agent->log);
    return error;
}

static void destroy_agent(struct agent *agent)
{
    for (size_t i = 0; i < WEIR_AGENT_ADDRESSES_MAX; i++) {
        weir_http_take_free(&agent->web[i]);
        weir_resp_listener_free(&agent->resp[i]);
    }
    weir_agent_page_free(&agent->page);
    weir_throttle_free(&agent->throttle);
    weir_agent_rls_close(&agent->rls);
    if (agent->news)
        event_free(agent->news);
    if (agent->look)
        event_free(agent->look);
    weir_signals_free(&agent->signals);
    if (agent->base)
        event_base_free(agent->base);
    weir_credentials_free(&agent->credentials);
    for (size_t i = 0; i < LISTENER_KINDS; i++)
        weir_tls_free(&agent->tls[i]);
    weir_assert(!agent->page && !agent->rls);
}

int weir_agent_run(const struct weir_agent_options *options, struct weir *weir,
                   struct weir_log *log, struct weir_diag *diag)
{
    struct agent agent = { .options = options, .log = log, .weir = weir };
    int error = open_agent(&agent, diag);
    if (error == 0)
        event_base_dispatch(agent.base);
    destroy_agent(&agent);
    return error;
}
