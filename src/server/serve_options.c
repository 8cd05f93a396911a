/* SPDX-License-Identifier: MIT
 * server/serve_options.c - the command line of `weir serve`, a setter for each
 * option in one table.
 *
 * Doorman's flags are options too, most of them other names of one. Like Go's
 * flags they may have one dash (getopt_long_only() allows it). If the quotas
 * come from a Doorman file, flags that weren't given are looked for in the
 * environment: the command line is read first, and then those of Doorman's rows
 * with a field that no option has set. */

#include "server/serve_options.h"

#include <ctype.h>
#include <getopt.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/quota/quota.h"
#include "core/table/table.h"
#include "io/origin.h"
#include "protocol/resp/throttle_counted.h"

#define SLOTS_DEFAULT (1u << 20)

typedef int setter(struct weir_serve_options *options, const char *value,
                   struct weir_diag *diag);

static int set_store(struct weir_serve_options *options, const char *value,
                     struct weir_diag *diag)
{
    if (strlen(value) >= sizeof options->store)
        return weir_diag_set(diag, WEIR_EINVAL, "--store: the path is too long",
                             NULL);
    strcpy(options->store, value);
    return 0;
}

static int set_address(struct weir_address *address, const char *option,
                       const char *value, struct weir_diag *diag)
{
    struct weir_diag inner = { 0 };
    int error = weir_address_parse(weir_text_of(value), address, &inner);
    if (error < 0)
        return weir_diag_set(diag, error, option, " ", value, ": ", inner.text,
                             NULL);
    return 0;
}

static int set_listen(struct weir_serve_options *options, const char *value,
                      struct weir_diag *diag)
{
    return set_address(&options->listen, "--listen", value, diag);
}

static int set_http(struct weir_serve_options *options, const char *value,
                    struct weir_diag *diag)
{
    options->http_off = strcmp(value, "off") == 0;
    if (options->http_off)
        return 0;
    return set_address(&options->http, "--http", value, diag);
}

static int set_public_origin(struct weir_serve_options *options,
                             const char *value, struct weir_diag *diag)
{
    options->public_origin = value;
    return weir_origin_parse(value, diag);
}

static int set_resp(struct weir_serve_options *options, const char *value,
                    struct weir_diag *diag)
{
    options->resp_on = true;
    return weir_listen_address_parse(weir_text_of(value), &options->resp, diag);
}

static int set_resp_sharing(struct weir_serve_options *options,
                            const char *value, struct weir_diag *diag)
{
    struct weir_diag inner = { 0 };
    if (weir_throttle_sharing_parse(value, &options->resp_counted, &inner) < 0)
        return weir_diag_set(diag, WEIR_EINVAL, "--resp-sharing: ", inner.text,
                             NULL);
    return 0;
}

static int set_root_name(struct weir_serve_options *options, const char *value,
                         struct weir_diag *diag)
{
    struct weir_diag inner = { 0 };
    int error = weir_name_check(weir_text_of(value), &inner);
    if (error < 0)
        return weir_diag_set(diag, error, "--name: ", inner.text, NULL);
    options->name = value;
    return 0;
}

static int set_duration(weir_duration *out, const char *option,
                        const char *value, struct weir_diag *diag)
{
    struct weir_diag inner = { 0 };
    int error = weir_duration_parse(weir_text_of(value), out, &inner);
    if (error < 0)
        return weir_diag_set(diag, error, option, ": ", inner.text, NULL);
    return 0;
}

static int set_report_interval(struct weir_serve_options *options,
                               const char *value, struct weir_diag *diag)
{
    weir_duration interval;
    int error = set_duration(&interval, "--report-interval", value, diag);
    if (error < 0)
        return error;
    if (interval < 10 * WEIR_MILLISECOND || interval > 3600 * WEIR_SECOND)
        return weir_diag_set(diag, WEIR_EINVAL, "--report-interval ", value,
                             ": choose 10ms to 1h", NULL);
    options->settings.report_interval = interval;
    return 0;
}

static int set_stale(struct weir_serve_options *options, const char *value,
                     struct weir_diag *diag)
{
    return set_duration(&options->settings.stale_after, "--stale-after", value,
                        diag);
}

static int set_slack(struct weir_serve_options *options, const char *value,
                     struct weir_diag *diag)
{
    bool on = strcmp(value, "on") == 0;
    if (!on && strcmp(value, "off") != 0)
        return weir_diag_set(diag, WEIR_EINVAL, "--slack ", value,
                             ": write on or off", NULL);
    options->settings.slack = on;
    return 0;
}

static int set_correction(struct weir_serve_options *options, const char *value,
                          struct weir_diag *diag)
{
    options->settings.correction_auto = strcmp(value, "auto") == 0;
    options->settings.correction_ppm = 0;
    if (options->settings.correction_auto)
        return 0;
    char *end;
    double ratio = strtod(value, &end);
    /* Written so that a NaN is refused too. */
    bool sound = end != value && *end == '\0' && ratio >= 0 && ratio <= 1000;
    if (!sound)
        return weir_diag_set(diag, WEIR_EINVAL, "--correction-ratio ", value,
                             ": a number from 0 to 1000, or auto", NULL);
    options->settings.correction_ppm = (uint32_t)(ratio * 1e6 + 0.5);
    return 0;
}

static int set_insecure(struct weir_serve_options *options, const char *value,
                        struct weir_diag *diag)
{
    (void)value;
    (void)diag;
    options->reach.insecure = true;
    return 0;
}

static int set_snapshot(struct weir_serve_options *options, const char *value,
                        struct weir_diag *diag)
{
    (void)diag;
    options->snapshot_off = strcmp(value, "off") == 0;
    options->snapshot = options->snapshot_off ? NULL : value;
    return 0;
}

static int set_region(struct weir_serve_options *options, const char *value,
                      struct weir_diag *diag)
{
    struct weir_diag inner = { 0 };
    int error = weir_name_check(weir_text_of(value), &inner);
    if (error < 0)
        return weir_diag_set(diag, error, "--region: ", inner.text, NULL);
    options->region = value;
    return 0;
}

static int add_upstream(struct weir_serve_options *options,
                        struct weir_text text, struct weir_diag *diag)
{
    struct weir_diag inner = { 0 };
    if (options->upstreams == WEIR_ROOTS_MAX)
        return weir_diag_set(diag, WEIR_EINVAL,
                             "--upstream: there are more "
                             "roots than a limiter can have",
                             NULL);
    struct weir_address *address = &options->upstream[options->upstreams++];
    int error = weir_address_parse(text, address, &inner);
    if (error == 0 && address->port != 0)
        return 0;
    return weir_diag_set(diag, WEIR_EINVAL,
                         "--upstream: write the addresses "
                         "of the roots above, HOST:PORT,HOST:PORT; ",
                         error < 0 ? inner.text : "a port is missing", NULL);
}

static int set_upstream(struct weir_serve_options *options, const char *value,
                        struct weir_diag *diag)
{
    options->upstreams = 0;
    for (;;) {
        size_t len = strcspn(value, ",");
        int error =
            add_upstream(options, (struct weir_text){ value, len }, diag);
        if (error < 0 || value[len] == '\0')
            return error;
        value += len + 1;
    }
}

static int set_slots(struct weir_serve_options *options, const char *value,
                     struct weir_diag *diag)
{
    uint64_t slots = 0;
    if (weir_units_parse(weir_text_of(value), &slots, NULL) < 0 || slots < 1 ||
        slots > WEIR_SLOTS_MAX)
        return weir_diag_set(diag, WEIR_EINVAL, "--slots ", value,
                             ": a number from 1 to 16777216", NULL);
    options->slots = (uint32_t)slots;
    return 0;
}

static int set_log_level(struct weir_serve_options *options, const char *value,
                         struct weir_diag *diag)
{
    if (weir_log_level_parse(value, &options->log_level) == 0)
        return 0;
    return weir_diag_set(diag, WEIR_EINVAL, "--log-level ", value,
                         ": error, warning, info or debug", NULL);
}

/* ---- Leases ---- */

static int set_doorman_config(struct weir_serve_options *options,
                              const char *value, struct weir_diag *diag)
{
    options->doorman_config = value;
    return weir_doorman_location_parse(weir_text_of(value), &options->doorman,
                                       diag);
}

static int set_doorman_insecure(struct weir_serve_options *options,
                                const char *value, struct weir_diag *diag)
{
    (void)value;
    (void)diag;
    options->doorman_insecure = true;
    return 0;
}

static int set_election(struct weir_serve_options *options, const char *value,
                        struct weir_diag *diag)
{
    static const char file[] = "file:";
    bool is_file = strncmp(value, file, sizeof file - 1) == 0;
    options->election_path = is_file ? value + sizeof file - 1 : "";
    if (is_file && options->election_path[0]) {
        options->election = WEIR_ELECTION_FILE;
        return 0;
    }
    bool is_etcd = strcmp(value, "etcd") == 0;
    if (!is_etcd && strcmp(value, "none") != 0)
        return weir_diag_set(diag, WEIR_EINVAL, "--election ", value,
                             ": write none, file:PATH or etcd", NULL);
    options->election = is_etcd ? WEIR_ELECTION_ETCD : WEIR_ELECTION_NONE;
    return 0;
}

static int set_election_key(struct weir_serve_options *options,
                            const char *value, struct weir_diag *diag)
{
    if (!value[0] || strlen(value) > WEIR_ELECTION_KEY_MAX)
        return weir_diag_set(diag, WEIR_EINVAL,
                             "--election-key: the name of "
                             "a key in etcd, 1 to 500 bytes",
                             NULL);
    options->election_key = value;
    return 0;
}

static int set_election_ttl(struct weir_serve_options *options,
                            const char *value, struct weir_diag *diag)
{
    weir_duration ttl;
    int error = set_duration(&ttl, "--election-ttl", value, diag);
    if (error < 0)
        return error;
    if (ttl < WEIR_SECOND || ttl > 3600 * WEIR_SECOND || ttl % WEIR_SECOND != 0)
        return weir_diag_set(diag, WEIR_EINVAL, "--election-ttl ", value,
                             ": whole seconds, 1s to 1h", NULL);
    options->election_ttl = ttl;
    return 0;
}

static int set_hostname(struct weir_serve_options *options, const char *value,
                        struct weir_diag *diag)
{
    struct weir_address address;
    char text[300];
    bool bare = strchr(value, ':') && value[0] != '[';
    options->hostname[0] = '\0'; /* Doorman takes "" for the machine's name */
    if (!value[0])
        return 0;
    int len = snprintf(text, sizeof text, bare ? "[%s]:1" : "%s:1", value);
    bool sound = len < (int)sizeof text && len <= 250 &&
                 weir_address_parse(weir_text_of(text), &address, NULL) == 0;
    if (!sound)
        return weir_diag_set(diag, WEIR_EINVAL, "--hostname ", value,
                             ": a host's name or address, without a port",
                             NULL);
    /* Without brackets: code that prints it adds them. */
    strcpy(options->hostname, address.host);
    return 0;
}

static int set_etcd_endpoints(struct weir_serve_options *options,
                              const char *value, struct weir_diag *diag)
{
    struct weir_diag inner = { 0 };
    options->etcd_count = 0;
    if (!value[0])
        return 0;
    int error = weir_etcd_endpoints_parse(weir_text_of(value), options->etcd,
                                          &options->etcd_count, &inner);
    return error < 0 ? weir_diag_set(diag, error,
                                     "--etcd-endpoints: ", inner.text, NULL)
                     : 0;
}

/* ---- Doorman's flags with values of another form ---- */

static int set_port_of(struct weir_address *address, const char *option,
                       const char *value, struct weir_diag *diag)
{
    uint64_t port = 0;
    if (weir_units_parse(weir_text_of(value), &port, NULL) < 0 ||
        port > UINT16_MAX)
        return weir_diag_set(diag, WEIR_EINVAL, option, " ", value,
                             ": a port, 0 to 65535", NULL);
    address->port = (uint16_t)port;
    return 0;
}

static int set_port(struct weir_serve_options *options, const char *value,
                    struct weir_diag *diag)
{
    return set_port_of(&options->listen, "--port", value, diag);
}

static int set_debug_port(struct weir_serve_options *options, const char *value,
                          struct weir_diag *diag)
{
    return set_port_of(&options->http, "--debug_port", value, diag);
}

/* "": no election. */
static int set_master_lock(struct weir_serve_options *options,
                           const char *value, struct weir_diag *diag)
{
    options->election = value[0] ? WEIR_ELECTION_ETCD : WEIR_ELECTION_NONE;
    return value[0] ? set_election_key(options, value, diag) : 0;
}

/* "": no upstream. */
static int set_parent(struct weir_serve_options *options, const char *value,
                      struct weir_diag *diag)
{
    return value[0] ? set_upstream(options, value, diag) : 0;
}

static int set_cert_file(struct weir_serve_options *options, const char *value,
                         struct weir_diag *diag)
{
    (void)diag;
    options->reach.tls_cert = value[0] ? value : NULL;
    return 0;
}

static int set_key_file(struct weir_serve_options *options, const char *value,
                        struct weir_diag *diag)
{
    (void)diag;
    options->reach.tls_key = value[0] ? value : NULL;
    return 0;
}

/* The words that Go accepts. */
static int set_tls(struct weir_serve_options *options, const char *value,
                   struct weir_diag *diag)
{
    static const char *const on[] = { "1", "t", "T", "true", "TRUE", "True" };
    static const char *const off[] = {
        "0", "f", "F", "false", "FALSE", "False"
    };
    options->tls = !value;
    for (size_t i = 0; value && i < WEIR_COUNT_OF(on); i++) {
        options->tls = options->tls || strcmp(value, on[i]) == 0;
        if (strcmp(value, off[i]) == 0)
            return 0;
    }
    return options->tls ? 0
                        : weir_diag_set(diag, WEIR_EINVAL, "--tls=", value,
                                        ": true or false", NULL);
}

/* The caller reports the flag's name. */
static int set_nothing(struct weir_serve_options *options, const char *value,
                       struct weir_diag *diag)
{
    (void)options;
    (void)value;
    (void)diag;
    return 0;
}

struct row {
    const char *name;
    setter *set;
    int argument;      /* as of getopt_long() */
    bool doorman;      /* a flag of Doorman's, which the environment may have */
    const char *field; /* the field it sets, if other options do too; or NULL */
    size_t text;       /* without 'set': the offset of the text it sets */
};
#define OURS(NAME, SET)                           \
    {                                             \
        NAME, SET, required_argument, false, NULL \
    }
#define OURS_OF(FIELD, NAME, SET)                  \
    {                                              \
        NAME, SET, required_argument, false, FIELD \
    }
#define OURS_TEXT(NAME, TEXT) OURS_TEXT_OF(NULL, NAME, TEXT)
#define OURS_TEXT_OF(FIELD, NAME, TEXT)               \
    {                                                 \
        NAME, NULL, required_argument, false, FIELD,  \
            offsetof(struct weir_serve_options, TEXT) \
    }
#define DOORMANS(NAME, SET)                      \
    {                                            \
        NAME, SET, required_argument, true, NULL \
    }
#define DOORMANS_OF(FIELD, NAME, SET)             \
    {                                             \
        NAME, SET, required_argument, true, FIELD \
    }
static const struct row rows[] = {
    OURS("store", set_store),
    OURS_OF("listen", "listen", set_listen),
    OURS_OF("http", "http", set_http),
    OURS("public-origin", set_public_origin),
    OURS("resp", set_resp),
    OURS("resp-sharing", set_resp_sharing),
    OURS("name", set_root_name),
    OURS("report-interval", set_report_interval),
    OURS("stale-after", set_stale),
    OURS("slack", set_slack),
    OURS("correction-ratio", set_correction),
    OURS_TEXT("port-file", port_file),
    OURS("log-level", set_log_level),
    OURS_TEXT_OF("cert", "tls-cert", reach.tls_cert),
    OURS_TEXT_OF("key", "tls-key", reach.tls_key),
    OURS_TEXT("tls-ca", reach.tls_ca),
    OURS_TEXT("credentials", reach.credentials),
    { "insecure", set_insecure, no_argument, false, NULL },
    OURS("snapshot", set_snapshot),
    OURS("region", set_region),
    OURS_OF("upstream", "upstream", set_upstream),
    OURS_TEXT("upstream-ca", upstream_ca),
    OURS_TEXT("upstream-cert", upstream_cert),
    OURS_TEXT("upstream-key", upstream_key),
    OURS_TEXT("upstream-token-file", upstream_token_file),
    OURS("slots", set_slots),
    OURS_OF("config", "doorman-config", set_doorman_config),
    { "doorman-insecure", set_doorman_insecure, no_argument, false, NULL },
    OURS_OF("election", "election", set_election),
    OURS_OF("election", "election-key", set_election_key),
    OURS_OF("ttl", "election-ttl", set_election_ttl),
    OURS_OF("etcd", "etcd-endpoints", set_etcd_endpoints),
    OURS_TEXT("etcd-ca", etcd_login.tls_ca),
    OURS_TEXT("etcd-cert", etcd_login.tls_cert),
    OURS_TEXT("etcd-key", etcd_login.tls_key),
    DOORMANS_OF("config", "config", set_doorman_config),
    DOORMANS("hostname", set_hostname), /* one of Weir's too */
    DOORMANS_OF("listen", "port", set_port),
    DOORMANS_OF("http", "debug_port", set_debug_port),
    DOORMANS_OF("etcd", "etcd_endpoints", set_etcd_endpoints),
    DOORMANS_OF("election", "master_election_lock", set_master_lock),
    DOORMANS_OF("ttl", "master_delay", set_election_ttl),
    DOORMANS_OF("upstream", "parent", set_parent),
    { "tls", set_tls, optional_argument, true, NULL },
    DOORMANS_OF("cert", "cert_file", set_cert_file),
    DOORMANS_OF("key", "key_file", set_key_file),
    DOORMANS("server_role", set_nothing),
    DOORMANS("doorman_rpc_dial_timeout", set_nothing),
    DOORMANS("doorman_minimum_refresh_interval", set_nothing),
    { "logtostderr", set_nothing, optional_argument, true, NULL },
    { "alsologtostderr", set_nothing, optional_argument, true, NULL },
    DOORMANS("stderrthreshold", set_nothing),
    DOORMANS("log_dir", set_nothing),
    DOORMANS("v", set_nothing),
    DOORMANS("vmodule", set_nothing),
    DOORMANS("log_backtrace_at", set_nothing),
};
#define ROWS WEIR_COUNT_OF(rows)

static void add_remark(struct weir_serve_options *options, const char *what,
                       const char *why)
{
    if (options->remark_count < WEIR_OPTION_REMARKS_MAX)
        weir_diag_set(&options->remarks[options->remark_count++], 0, what, why,
                      NULL);
}

static int set_row(struct weir_serve_options *options, const struct row *row,
                   const char *value, struct weir_diag *diag)
{
    if (row->set == set_nothing)
        add_remark(options, row->name,
                   " is a flag of Doorman's that has no meaning here");
    if (row->set)
        return row->set(options, value, diag);
    *(const char **)((char *)options + row->text) = value;
    return 0;
}

/* ---- The environment ---- */

#define PREFIX "DOORMAN_"

static bool is_variable_of(const struct row *row, const char *name, size_t len)
{
    if (!row->doorman || strlen(row->name) != len)
        return false;
    for (size_t i = 0; i < len; i++) {
        char c = row->name[i] == '-' ? '_' : row->name[i];
        if (toupper((unsigned char)c) != name[i])
            return false;
    }
    return true;
}

static const struct row *row_of_variable(const char *name, size_t len)
{
    for (size_t i = 0; i < ROWS; i++)
        if (is_variable_of(&rows[i], name, len))
            return &rows[i];
    return NULL;
}

static const char *field_of(const struct row *row)
{
    return row->field ? row->field : row->name;
}

static int take_variable(struct weir_serve_options *options,
                         const char *variable, const bool given[ROWS],
                         struct weir_diag *diag)
{
    const char *name = variable + sizeof PREFIX - 1;
    size_t len = strcspn(name, "=");
    const struct row *row = row_of_variable(name, len);
    const char *value = name + len + (name[len] == '=');
    char shown[64];
    snprintf(shown, sizeof shown, "%.*s", (int)(sizeof PREFIX - 1 + len),
             variable);
    /* Kubernetes sets such variables for a service called doorman. */
    bool of_kubernetes = strncmp(value, "tcp://", 6) == 0;
    if (!row || of_kubernetes) {
        add_remark(options, shown,
                   of_kubernetes ? " is an address, not a port: passed over"
                                 : " is no variable that is known");
        return 0;
    }
    for (size_t i = 0; i < ROWS; i++)
        if (given[i] && strcmp(field_of(&rows[i]), field_of(row)) == 0)
            return 0;
    struct weir_diag inner = { 0 };
    int error = set_row(options, row, value, &inner);
    return error < 0 ? weir_diag_set(diag, error, shown,
                                     " in the environment: ", inner.text, NULL)
                     : 0;
}

/* Only if the quotas are Doorman's: else the variables are another
 * program's. */
static int read_environment(struct weir_serve_options *options,
                            const bool given[ROWS], struct weir_diag *diag)
{
    bool other = options->store[0] || options->region;
    bool wanted =
        options->doorman_config || (getenv(PREFIX "CONFIG") && !other);
    int error = 0;
    for (char **at = environ; wanted && error == 0 && *at; at++)
        if (strncmp(*at, PREFIX, sizeof PREFIX - 1) == 0)
            error = take_variable(options, *at, given, diag);
    return error;
}

static int set_defaults(struct weir_serve_options *options,
                        struct weir_diag *diag)
{
    options->log_level = WEIR_LOG_INFO;
    options->slots = SLOTS_DEFAULT;
    options->election_ttl = WEIR_ELECTION_TTL;
    options->election_path = "";
    options->settings = (struct weir_settings){
        .report_interval = WEIR_SECOND,
        .stale_after = 10 * WEIR_SECOND,
        .slack = true,
    };
    int error = set_listen(options, "127.0.0.1:7077", diag);
    return error < 0 ? error : set_http(options, "127.0.0.1:7078", diag);
}

/* The command line. 0, 1 when help was asked for, or an error. */
static int read_arguments(int argc, char **argv, struct weir_serve_options *out,
                          bool given[ROWS], struct weir_diag *diag)
{
    struct option known[ROWS + 2] = { { NULL, 0, NULL, 0 } };
    for (size_t i = 0; i < ROWS; i++)
        known[i] = (struct option){ rows[i].name, rows[i].argument, NULL, 0 };
    known[ROWS] = (struct option){ "help", no_argument, NULL, 'h' };
    optind = 1;
    opterr = 0;
    for (;;) {
        int at = -1;
        int option = getopt_long_only(argc, argv, ":h", known, &at);
        if (option == -1)
            return 0;
        if (option == 'h')
            return 1;
        if (option == ':')
            return weir_diag_set(diag, WEIR_EINVAL, argv[optind - 1],
                                 " needs a value; see `weir serve --help`",
                                 NULL);
        if (option == '?')
            return weir_diag_set(diag, WEIR_EINVAL, "there is no option ",
                                 argv[optind - 1], "; see `weir serve --help`",
                                 NULL);
        given[at] = true;
        int error = set_row(out, &rows[at], optarg, diag);
        if (error < 0)
            return error;
    }
}

int weir_serve_options_parse(int argc, char **argv,
                             struct weir_serve_options *out,
                             struct weir_diag *diag)
{
    *out = (struct weir_serve_options){ .reach = { .prefix = "--tls-" } };
    bool given[ROWS] = { false };
    int error = set_defaults(out, diag);
    if (error == 0)
        error = read_arguments(argc, argv, out, given, diag);
    if (error != 0)
        return error;
    if (optind < argc)
        return weir_diag_set(diag, WEIR_EINVAL,
                             "`weir serve` takes options only, not '",
                             argv[optind], "'; see `weir serve --help`", NULL);
    error = read_environment(out, given, diag);
    return error < 0 ? error : weir_serve_check_options(out, diag);
}
