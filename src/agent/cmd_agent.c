/* SPDX-License-Identifier: MIT
 * agent/cmd_agent.c - weir agent: a limiter for programs without libweir.
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
#include "agent/agent_rls.h"
#include "command/cli.h"
#include "core/quota/quota.h"
#include "front/authorization.h"
#include "front/exposure.h"
#include "front/port_file.h"
#include "io/clock.h"
#include "io/daemon.h"
#include "io/origin.h"
#include "protocol/http_take/web.h"
#include "protocol/resp/resp_listener.h"
#include "protocol/resp/throttle_counted.h"

#define HTTP_DEFAULT "127.0.0.1:7079"
#define PLACES_MAX 4 /* of one kind of listener */
#define KINDS 3      /* of listeners */

static const char agent_help[] =
    "Runs a limiter on this host for programs that have none of their own:\n"
    "they ask it by HTTP or by the protocol of Redis, and it decides in its\n"
    "own memory.\n"
    "\n"
    "    weir agent --roots 10.0.0.1:7077,10.0.0.2:7077 --http :7079\n"
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
    "  --table FILE         a table that processes share: they map it, and\n"
    "                       decide by libweir themselves (/dev/shm/…)\n"
    "  --name NAME          as `weir top` shows it            [weir and pid]\n"
    "  --quotas-max N       quotas and instances in memory          [65536;\n"
    "                       with --table 16384]\n"
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

struct options {
    struct weir_cli cli;
    struct weir_cli_values http, resp;
    struct weir_agent_rls_options rls;
    const char *resp_keys, *resp_sharing;
    struct weir_exposure reach;
    const char *table, *name, *quotas_max, *port_file;
    const char *log_level, *public_origin;
};

/* ALPN names: the protocol that a client of each kind offers over TLS. */
enum kind { KIND_HTTP, KIND_RESP, KIND_RLS };
static const char *const alpns[KINDS] = {
    [KIND_HTTP] = "http/1.1",
    [KIND_RESP] = NULL,
    [KIND_RLS] = "h2",
};

struct agent {
    struct options options;
    struct weir_log log;
    struct event_base *base; /* owned, as all below */
    struct weir_signals *signals;
    struct weir *weir;
    struct event *news, *look;
    struct weir_credentials *credentials; /* NULL: none in force */
    struct weir_authorization authorizer;
    struct weir_protocol_counts counts;
    struct weir_tls *tls[KINDS]; /* NULL: plain text */
    size_t conns_max;            /* connections of each listener */
    struct weir_protocol_host host[KINDS];
    struct weir_agent_page *page; /* NULL: no HTTP */
    struct weir_web *web[PLACES_MAX];
    struct weir_throttle *throttle; /* NULL: the fleet counts */
    struct weir_resp_listener *resp[PLACES_MAX];
    struct weir_agent_rls *rls; /* NULL: no such listener */
};

/* ---- Authorization ---- */

static int admit(void *context, const struct weir_protocol_peer *guest,
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

static void on_denied(void *context, const struct weir_protocol_taker *taker,
                      const char *why, weir_instant now)
{
    weir_authorization_note(context, WEIR_API_HTTP, WEIR_REFUSED_NAME,
                            taker->address, why, now);
}

static void on_refused(void *context, const char *address, const char *why,
                       weir_instant now)
{
    weir_authorization_note(context, WEIR_API_HTTP, WEIR_REFUSED_TLS, address,
                            why, now);
}

/* Connected clients are checked again. */
static void recheck(struct agent *agent)
{
    for (size_t i = 0; i < PLACES_MAX; i++) {
        if (agent->web[i])
            weir_web_recheck(agent->web[i]);
        if (agent->resp[i])
            weir_resp_listener_recheck(agent->resp[i]);
    }
    weir_agent_rls_recheck(agent->rls);
}

static void look_at_certificates(struct agent *agent, bool all)
{
    struct weir_diag why = { 0 };
    bool changed = all;
    bool failed = false;
    if (!agent->tls[0])
        return;
    for (size_t i = 0; i < KINDS; i++)
        changed |= weir_tls_is_changed(agent->tls[i]);
    if (!changed)
        return;
    /* All of them, or a file that can't be read would be read again each
     * second. */
    for (size_t i = 0; i < KINDS; i++)
        failed |= weir_tls_reload(agent->tls[i], &why) < 0;
    if (failed) {
        weir_log(&agent->log, WEIR_LOG_ERROR,
                 "certificates aren't reloaded, the old ones stay: %s",
                 why.text);
        return;
    }
    weir_log(&agent->log, WEIR_LOG_INFO, "reloaded the certificate %s",
             agent->options.reach.tls_cert);
    recheck(agent);
}

static void look_at_credentials(struct agent *agent, bool all)
{
    struct weir_diag why = { 0 };
    if (!agent->credentials ||
        !(all || weir_credentials_is_changed(agent->credentials)))
        return;
    if (weir_credentials_reload(agent->credentials, &why) < 0) {
        weir_log(&agent->log, WEIR_LOG_ERROR,
                 "credentials aren't reloaded, the old ones stay: %s",
                 why.text);
        return;
    }
    weir_log(&agent->log, WEIR_LOG_INFO, "reloaded %zu credentials of %s",
             weir_credentials_count(agent->credentials),
             agent->options.reach.credentials);
    weir_exposure_warn_of_names(&agent->options.reach, agent->credentials,
                                &agent->log);
    recheck(agent);
}

static void on_look(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct agent *agent = context;
    look_at_certificates(context, false);
    look_at_credentials(context, false);
    weir_agent_rls_look(agent->rls, false);
    if (agent->page)
        weir_agent_page_tick(agent->page, weir_clock_now());
    weir_log_tick(&agent->log);
}

/* ---- The limiter's events ---- */

static enum weir_log_level urgency(enum weir_event_type type)
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
        return WEIR_LOG_WARNING;
    case WEIR_EVENT_CREDENTIAL:
    case WEIR_EVENT_TABLE:
    case WEIR_EVENT_DENIED:
        return WEIR_LOG_ERROR;
    }
    return WEIR_LOG_WARNING;
}

static const char *title(enum weir_event_type type)
{
    switch (type) {
    case WEIR_EVENT_ROOT_UP:
        return "a root is there";
    case WEIR_EVENT_ROOT_DOWN:
        return "a root can't be reached";
    case WEIR_EVENT_READY:
        return "ready: the quotas of a root are complete here";
    case WEIR_EVENT_STALE:
        return "no root answered for stale_after: on_stale decides";
    case WEIR_EVENT_FRESH:
        return "a root answers again";
    case WEIR_EVENT_TABLE_FULL:
        return "the table is full of names: raise --quotas-max";
    case WEIR_EVENT_STORE_CHANGED:
        return "a root has another quota store";
    case WEIR_EVENT_REPORT_BACKOFF:
        return "an overloaded root asks for fewer reports";
    case WEIR_EVENT_FORKED:
        return "a child of fork() is a limiter now";
    case WEIR_EVENT_LOST:
        return "events were lost";
    case WEIR_EVENT_CREDENTIAL:
        return "the credential shown to roots can't be used";
    case WEIR_EVENT_QUOTA_UNKNOWN:
        return "a quota is of a later version and passes all";
    case WEIR_EVENT_EXACT_AWAY:
        return "a store of exact quotas doesn't answer";
    case WEIR_EVENT_EXACT_BACK:
        return "a store of exact quotas answers again";
    case WEIR_EVENT_ZONE:
        return "a time zone isn't known here, its windows go by UTC";
    case WEIR_EVENT_ADAPTIVE_FULL:
        return "adaptive quotas beyond adaptive_max pass all";
    case WEIR_EVENT_ELSEWHERE:
        return "leases are handed out by a root that isn't connected";
    case WEIR_EVENT_TABLE:
        return "the shared table can't be used";
    case WEIR_EVENT_REPORTER:
        return "this process runs the shared table's limiter";
    case WEIR_EVENT_DENIED:
        return "the credential may not take from a quota, which is counted "
               "here alone";
    }
    return "news";
}

static void on_news(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct agent *agent = context;
    struct weir_event event;
    while (weir_event_next(agent->weir, &event))
        weir_log_limited(&agent->log, WEIR_LOG_EVENT + event.type,
                         urgency(event.type), "%s%s%s", title(event.type),
                         event.text[0] ? ": " : "", event.text);
}

/* ---- Start and end ---- */

static void on_signal(void *context, enum weir_signal signal)
{
    struct agent *agent = context;
    if (signal == WEIR_SIGNAL_RELOAD) {
        look_at_certificates(agent, true);
        look_at_credentials(agent, true);
        weir_agent_rls_look(agent->rls, true);
        return;
    }
    weir_log(&agent->log, WEIR_LOG_INFO, "stopping");
    event_base_loopbreak(agent->base);
}

static int make_loop(struct agent *agent)
{
    const struct timeval second = { .tv_sec = 1 };
    agent->base = event_base_new();
    if (agent->base)
        agent->signals = weir_signals_new(agent->base, on_signal, agent);
    if (agent->signals) {
        agent->news = event_new(agent->base, weir_event_fd(agent->weir),
                                EV_READ | EV_PERSIST, on_news, agent);
        agent->look = event_new(agent->base, -1, EV_PERSIST, on_look, agent);
    }
    bool made = agent->news && agent->look &&
                event_add(agent->news, NULL) == 0 &&
                event_add(agent->look, &second) == 0;
    return made ? 0 : weir_cli_fail("%s", weir_strerror(WEIR_ENOMEM));
}

static struct weir_protocol_host host_of(struct agent *agent,
                                         struct weir_tls *tls)
{
    return (struct weir_protocol_host){
        .base = agent->base,
        .weir = agent->weir,
        .version = weir_version(),
        .counts = &agent->counts,
        .admit = agent->credentials ? admit : NULL,
        .denied = on_denied,
        .context = &agent->authorizer,
        .tls = { .tls = tls,
                 .on_refused = on_refused,
                 .context = &agent->authorizer },
        .on_short = { weir_log_short, &agent->log },
        .conns_max = agent->conns_max,
        .public_origin = agent->options.public_origin,
    };
}

static int make_authorizer(struct agent *agent)
{
    struct weir_diag diag = { 0 };
    const struct weir_exposure *reach = &agent->options.reach;
    const char *path = reach->credentials;
    const char *origin = agent->options.public_origin;
    if (origin && weir_origin_parse(origin, &diag) < 0)
        return weir_cli_fail("--public-origin %s: %s", origin, diag.text);
    int error = weir_exposure_check(reach, &diag);
    if (error == 0 && path)
        error = weir_credentials_open(path, &agent->credentials, &diag);
    for (size_t i = 0; i < KINDS && error == 0; i++)
        error = weir_exposure_tls(reach, alpns[i], &agent->tls[i], &diag);
    if (error < 0)
        return weir_cli_fail("%s", diag.text);
    agent->authorizer =
        (struct weir_authorization){ .credentials = agent->credentials,
                                     .log = &agent->log };
    for (size_t i = 0; i < KINDS; i++)
        agent->host[i] = host_of(agent, agent->tls[i]);
    return 0;
}

static int read_place(const struct agent *agent, const char *option,
                      const char *text, struct weir_listen_address *out)
{
    struct weir_diag diag = { 0 };
    if (weir_listen_address_parse(weir_text_of(text), out, &diag) < 0)
        return weir_cli_fail("%s %s: %s", option, text, diag.text);
    if (weir_exposure_check_place(&agent->options.reach, option, out, &diag) <
        0)
        return weir_cli_fail("%s", diag.text);
    return 0;
}

static void tell_place(const struct agent *agent, const char *what,
                       const struct weir_listen_address *place)
{
    char shown[WEIR_LISTEN_ADDRESS_TEXT_MAX];
    weir_listen_address_show(place, shown);
    weir_log(&agent->log, WEIR_LOG_INFO, "%s at %s", what, shown);
}

static int open_web(struct agent *agent)
{
    struct weir_cli_values *http = &agent->options.http;
    if (http->count > 0)
        agent->page = weir_agent_page_new(agent->weir, agent->options.name,
                                          weir_clock_now());
    if (http->count > 0 && !agent->page)
        return weir_cli_fail("%s", weir_strerror(WEIR_ENOMEM));
    for (size_t i = 0; i < http->count; i++) {
        struct weir_listen_address place;
        struct weir_diag diag = { 0 };
        int status = read_place(agent, "--http", http->items[i], &place);
        if (status)
            return status;
        if (weir_web_new(&agent->host[KIND_HTTP], &place,
                         weir_agent_rls_service(agent->rls),
                         weir_agent_page_views(agent->page), &agent->web[i],
                         &diag) < 0)
            return weir_cli_fail("--http %s: %s", http->items[i], diag.text);
        tell_place(agent, "HTTP", weir_web_address(agent->web[i]));
    }
    return 0;
}

static int make_throttle(struct agent *agent)
{
    const char *text = agent->options.resp_keys;
    const char *sharing = agent->options.resp_sharing;
    struct weir_diag diag;
    uint64_t keys = WEIR_THROTTLE_KEYS_DEFAULT;
    bool counted = false;
    uint64_t seed;
    if (text && (weir_units_parse(weir_text_of(text), &keys, &diag) < 0 ||
                 keys == 0 || keys > WEIR_THROTTLE_KEYS_MAX))
        return weir_cli_fail("--resp-keys: a number from 1 to 128Mi");
    if (sharing && weir_throttle_sharing_parse(sharing, &counted, &diag) < 0)
        return weir_cli_fail("--resp-sharing: %s", diag.text);
    if (counted)
        return text ? weir_cli_fail("--resp-keys goes with --resp-sharing "
                                    "local; keys that the fleet counts have "
                                    "the room of --quotas-max")
                    : 0;
    weir_entropy(&seed, sizeof seed);
    agent->throttle = weir_throttle_new(&weir_mem_system, (uint32_t)keys, seed);
    return agent->throttle ? 0
                           : weir_cli_fail("%s", weir_strerror(WEIR_ENOMEM));
}

static int open_resp(struct agent *agent)
{
    struct weir_cli_values *resp = &agent->options.resp;
    for (size_t i = 0; i < resp->count; i++) {
        struct weir_listen_address place;
        struct weir_diag diag = { 0 };
        int status = read_place(agent, "--resp", resp->items[i], &place);
        if (status)
            return status;
        if (weir_resp_listener_new(&agent->host[KIND_RESP], &place,
                                   agent->throttle, &agent->resp[i], &diag) < 0)
            return weir_cli_fail("--resp %s: %s", resp->items[i], diag.text);
        tell_place(agent, "RESP", weir_resp_listener_address(agent->resp[i]));
    }
    return 0;
}

static int open_rls(struct agent *agent)
{
    const struct weir_cli_values *rls = &agent->options.rls.places;
    struct weir_listen_address places[WEIR_AGENT_RLS_ADDRESSES_MAX];
    for (size_t i = 0; i < rls->count; i++) {
        int status = read_place(agent, "--rls", rls->items[i], &places[i]);
        if (status)
            return status;
    }
    if (rls->count + agent->options.http.count == 0)
        return weir_agent_rls_is_asked(&agent->options.rls)
                   ? weir_cli_fail("--envoy-config, --rls-headers and "
                                   "--rls-shadow go with --rls or --http")
                   : 0;
    return weir_agent_rls_open(&agent->host[KIND_RLS], &agent->options.rls,
                               places, &agent->log, &agent->rls);
}

/* A line for each listen address: "http=127.0.0.1:7079". */
static int write_places(const struct agent *agent)
{
    char text[3 * PLACES_MAX * (WEIR_LISTEN_ADDRESS_TEXT_MAX + 8)] = "";
    char shown[WEIR_LISTEN_ADDRESS_TEXT_MAX];
    int len = 0;
    struct weir_diag diag = { 0 };
    if (!agent->options.port_file)
        return 0;
    for (size_t i = 0; i < PLACES_MAX && agent->web[i]; i++) {
        weir_listen_address_show(weir_web_address(agent->web[i]), shown);
        len += sprintf(text + len, "http=%s\n", shown);
    }
    for (size_t i = 0; i < PLACES_MAX && agent->resp[i]; i++) {
        weir_listen_address_show(weir_resp_listener_address(agent->resp[i]),
                                 shown);
        len += sprintf(text + len, "resp=%s\n", shown);
    }
    const struct weir_listen_address *rls;
    for (size_t i = 0; (rls = weir_agent_rls_address(agent->rls, i)); i++) {
        weir_listen_address_show(rls, shown);
        len += sprintf(text + len, "rls=%s\n", shown);
    }
    if (weir_port_file_put(agent->options.port_file, text, &diag) < 0)
        return weir_cli_fail("%s", diag.text);
    return 0;
}

static int open_limiter(struct agent *agent)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    struct weir_diag diag = { 0 };
    uint64_t quotas = 0;
    const char *text = agent->options.quotas_max;
    if (text && (weir_units_parse(weir_text_of(text), &quotas, &diag) < 0 ||
                 quotas == 0 || quotas > 1u << 24))
        return weir_cli_fail("--quotas-max: a number from 1 to 16Mi");
    options.table = agent->options.table;
    options.name = agent->options.name;
    options.quotas_max = (uint32_t)quotas;
    return weir_cli_open(&agent->options.cli, &options, &agent->weir);
}

static int start(struct agent *agent)
{
    const struct options *options = &agent->options;
    const char *level = options->log_level;
    agent->log.level = WEIR_LOG_INFO;
    if (level && weir_log_level_parse(level, &agent->log.level) < 0)
        return weir_cli_fail("--log-level: error, warning, info or debug");
    if (options->http.count > PLACES_MAX || options->resp.count > PLACES_MAX ||
        options->rls.places.count > WEIR_AGENT_RLS_ADDRESSES_MAX)
        return weir_cli_fail("--http, --resp and --rls may come %d times each",
                             PLACES_MAX);
    size_t listeners =
        options->http.count + options->resp.count + options->rls.places.count;
    if (listeners > 0)
        agent->conns_max =
            weir_files_spare(listeners * WEIR_PROTOCOL_CONNS_MAX) / listeners;
    int status = open_limiter(agent);
    if (status == 0)
        status = make_loop(agent);
    if (status == 0)
        status = make_authorizer(agent);
    if (status == 0)
        status = make_throttle(agent);
    if (status == 0)
        status = open_rls(agent);
    if (status == 0)
        status = open_web(agent);
    if (status == 0)
        status = open_resp(agent);
    if (status == 0)
        status = write_places(agent);
    if (status == 0)
        weir_exposure_warn_of_names(&options->reach, agent->credentials,
                                    &agent->log);
    return status;
}

static void end(struct agent *agent)
{
    for (size_t i = 0; i < PLACES_MAX; i++) {
        weir_web_free(&agent->web[i]);
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
    weir_close(agent->weir);
    weir_credentials_free(&agent->credentials);
    for (size_t i = 0; i < KINDS; i++)
        weir_tls_free(&agent->tls[i]);
}

int weir_cli_agent(int argc, char **argv)
{
    struct agent agent = { .options.reach.prefix = "--listener-tls-" };
    struct options *options = &agent.options;
    const struct weir_cli_option known[] = {
        { .name = "http", .values = &options->http },
        { .name = "public-origin", .value = &options->public_origin },
        { .name = "resp", .values = &options->resp },
        { .name = "resp-keys", .value = &options->resp_keys },
        { .name = "resp-sharing", .value = &options->resp_sharing },
        { .name = "rls", .values = &options->rls.places },
        { .name = "envoy-config", .value = &options->rls.config },
        { .name = "rls-headers", .value = &options->rls.headers },
        { .name = "rls-shadow", .flag = &options->rls.shadow },
        { .name = "table", .value = &options->table },
        { .name = "name", .value = &options->name },
        { .name = "quotas-max", .value = &options->quotas_max },
        { .name = "credentials", .value = &options->reach.credentials },
        { .name = "listener-tls-cert", .value = &options->reach.tls_cert },
        { .name = "listener-tls-key", .value = &options->reach.tls_key },
        { .name = "listener-tls-ca", .value = &options->reach.tls_ca },
        { .name = "insecure", .flag = &options->reach.insecure },
        { .name = "port-file", .value = &options->port_file },
        { .name = "log-level", .value = &options->log_level },
    };
    int at = weir_cli_parse(&options->cli, agent_help, known,
                            WEIR_COUNT_OF(known), argc, argv);
    if (at < 0)
        return weir_cli_parsed(at);
    if (at < argc)
        return weir_cli_fail("weir agent takes options only, not '%s'",
                             argv[at]);
    size_t doors =
        options->http.count + options->resp.count + options->rls.places.count;
    if (doors == 0 && !options->table)
        options->http.items[options->http.count++] = HTTP_DEFAULT;
    weir_log_adopt_library(&agent.log);
    int status = start(&agent);
    if (status == 0)
        event_base_dispatch(agent.base);
    end(&agent);
    weir_log_adopt_library(NULL);
    weir_log_end(&agent.log);
    return status;
}
