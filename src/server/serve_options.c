/* SPDX-License-Identifier: MIT
 * server/serve_options.c - the command line of `weir serve`: its help, a table
 * with a setter for each option, and the check of combinations.
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

const char weir_serve_help[] =
    "Runs a root: it holds the quotas and adds up the counts of limiters.\n"
    "\n"
    "    weir serve\n"
    "    weir serve --store sqlite:quotas.db --listen localhost:7087 \\\n"
    "        --http localhost:7088\n"
    "\n"
    "  --store sqlite:FILE       the quotas; the file must exist (`weir store\n"
    "                            init`). Without it: a store of your own in\n"
    "                            ~/.local/share/weir, made at the first run\n"
    "  --snapshot FILE|off       the quotas, kept for a start without the\n"
    "                            store  [FILE.NAME.snapshot beside the store]\n"
    "  --listen ADDR:PORT        for limiters and `weir`  [127.0.0.1:7077]\n"
    "  --http ADDR:PORT|off      JSON and /metrics        [127.0.0.1:7078]\n"
    "  --public-origin URL       origin of the page as browsers see it behind\n"
    "                            a proxy: https://weir.example\n"
    "  --resp ADDRESS            clients of Redis, as at `weir agent`\n"
    "  --resp-sharing HOW        keys of CL.THROTTLE: local, counted [local]\n"
    "  --name NAME               how limiters and people call this root\n"
    "\n"
    "Access (an address that isn't loopback needs the first three):\n"
    "  --tls-cert FILE           speak TLS, and show this certificate (PEM)\n"
    "  --tls-key FILE            its key; both are read again as they change\n"
    "  --credentials FILE        the clients' roles; likewise\n"
    "  --tls-ca FILE             the authority of clients' certificates\n"
    "  --insecure                listen anywhere without all that\n"
    "\n"
    "Settings that this root sends to its limiters:\n"
    "  --report-interval TIME    report at least so often             [1s]\n"
    "  --stale-after TIME        go by on_stale after so long alone  [10s]\n"
    "  --slack on|off            report early near a limit            [on]\n"
    "  --correction-ratio N|auto assume so much of others' counts      [0]\n"
    "\n"
    "A root of a region, instead of --store:\n"
    "  --region NAME             it counts for the region NAME …\n"
    "  --upstream ADDR:PORT,…    … and has its quotas from these roots\n"
    "  --upstream-ca FILE        speak TLS to them; the authority to trust\n"
    "  --upstream-cert FILE      the certificate that this root shows there\n"
    "  --upstream-key FILE       its key\n"
    "  --upstream-token-file FILE  the token, as a credential there\n"
    "  --slots N                 quotas and instances in use     [1048576]\n"
    "\n"
    "Leases, and the master that hands them out:\n"
    "  --doorman-config file:PATH|etcd:KEY  the quotas are those of a Doorman\n"
    "                            file, in place of --store\n"
    "  --doorman-insecure        Doorman's calls need no credential\n"
    "  --election none|file:PATH|etcd  how roots elect the master      [none]\n"
    "  --hostname HOST           the name by which clients reach this root\n"
    "  --alone                   no lease is out yet: grant at once\n"
    "  --election-key KEY        the key of etcd                [weir/master]\n"
    "  --election-ttl TIME       a mastership ends so long unrenewed    [10s]\n"
    "  --etcd-endpoints ADDR:PORT,…  the addresses of etcd\n"
    "  --etcd-ca, --etcd-cert, --etcd-key FILE  speak TLS to it\n"
    "Doorman's own flags are accepted too: weir-serve(8).\n"
    "\n"
    "  --port-file FILE          write the addresses in use there\n"
    "  --log-level LEVEL         error, warning, info or debug      [info]\n"
    "\n"
    "SIGTERM ends it gracefully. More: weir-serve(8), weir-cert(1).\n";

#define SLOTS_DEFAULT (1u << 20)

/* ---- Names ---- */

bool weir_serve_own_file(const char *scheme, const char *name,
                         char path[WEIR_PATH_MAX])
{
    const char *data = getenv("XDG_DATA_HOME");
    const char *home = getenv("HOME");
    bool has_data = data && data[0] == '/';
    if (!has_data && !(home && home[0]))
        return false;
    int len =
        snprintf(path, WEIR_PATH_MAX, "%s%s%s/weir/%s", scheme,
                 has_data ? data : home, has_data ? "" : "/.local/share", name);
    return len < WEIR_PATH_MAX;
}

void weir_serve_identity(const struct weir_serve_options *options,
                         uint16_t port, char out[WEIR_MASTER_MAX + 1])
{
    struct weir_address address = options->listen;
    if (options->hostname[0])
        strcpy(address.host, options->hostname);
    else if (weir_address_is_all(&address) &&
             gethostname(address.host, sizeof address.host - 1) < 0)
        strcpy(address.host, "localhost");
    address.port = port;
    char shown[WEIR_LISTEN_ADDRESS_TEXT_MAX];
    weir_address_text(&address, shown);
    snprintf(out, WEIR_MASTER_MAX + 1, "%.*s", WEIR_MASTER_MAX, shown);
}

/* ---- Setters ---- */

struct given;
typedef int setter(const struct given *given);

struct row {
    const char *name;
    setter *set;
    size_t member;     /* of struct weir_serve_options, for some setters */
    const char *field; /* the field it sets, if other options do too; or NULL */
    bool doorman;      /* a flag of Doorman's, which the environment may have */
    bool optional;     /* it may come without a value */
};

/* An option that was given. */
struct given {
    const struct row *row;
    const char *value; /* NULL: an optional one is missing */
    void *to;          /* the row's member */
    struct weir_serve_options *options;
    struct weir_diag *diag;
};

static void add_remark(struct weir_serve_options *options, const char *what,
                       const char *why)
{
    if (options->remark_count < WEIR_OPTION_REMARKS_MAX)
        weir_diag_set(&options->remarks[options->remark_count++], 0, what, why,
                      NULL);
}

/* "--slack maybe: write on or off" */
static int refuse_value(const struct given *given, const char *option,
                        const char *why)
{
    return weir_diag_set(given->diag, WEIR_EINVAL, option, " ", given->value,
                         ": ", why, NULL);
}

/* Puts the option before the message of a parser that returned 'error'. */
static int name_option(const struct given *given, const char *option, int error,
                       const struct weir_diag *inner)
{
    return error < 0 ? weir_diag_set(given->diag, error, option, ": ",
                                     inner->text, NULL)
                     : 0;
}

static int set_flag(const struct given *given)
{
    bool *flag = given->to;
    *flag = true;
    return 0;
}

static int set_text(const struct given *given)
{
    const char **text = given->to;
    *text = given->value;
    return 0;
}

/* "": none. */
static int set_text_or_none(const struct given *given)
{
    const char **text = given->to;
    *text = given->value[0] ? given->value : NULL;
    return 0;
}

static int set_store(const struct given *given)
{
    struct weir_serve_options *options = given->options;
    if (strlen(given->value) >= sizeof options->store)
        return weir_diag_put(given->diag, WEIR_EINVAL,
                             "--store: the path is too long");
    strcpy(options->store, given->value);
    return 0;
}

static int set_address(const struct given *given)
{
    struct weir_diag inner = { 0 };
    struct weir_listen_address place;
    int error =
        weir_listen_address_parse(weir_text_of(given->value), &place, &inner);
    if (error == 0 && place.path[0])
        error = weir_diag_put(&inner, WEIR_EINVAL,
                              "this listener has no unix socket, only "
                              "HOST:PORT or :PORT");
    if (error < 0)
        return weir_diag_set(given->diag, error, "--", given->row->name, " ",
                             given->value, ": ", inner.text, NULL);
    struct weir_address *to = given->to;
    *to = place.address;
    return 0;
}

static int set_http(const struct given *given)
{
    bool is_off = strcmp(given->value, "off") == 0;
    given->options->http_off = is_off;
    return is_off ? 0 : set_address(given);
}

static int set_public_origin(const struct given *given)
{
    given->options->public_origin = given->value;
    return weir_origin_parse(given->value, given->diag);
}

static int set_resp(const struct given *given)
{
    given->options->resp_on = true;
    return weir_listen_address_parse(weir_text_of(given->value),
                                     &given->options->resp, given->diag);
}

static int set_resp_sharing(const struct given *given)
{
    struct weir_diag inner = { 0 };
    int error = weir_throttle_sharing_parse(
        given->value, &given->options->resp_counted, &inner);
    return name_option(given, "--resp-sharing", error, &inner);
}

static int set_name(const struct given *given)
{
    struct weir_diag inner = { 0 };
    int error = weir_name_check(weir_text_of(given->value), &inner);
    if (error < 0)
        return weir_diag_set(given->diag, error, "--", given->row->name, ": ",
                             inner.text, NULL);
    return set_text(given);
}

static int read_duration(const struct given *given, const char *option,
                         weir_duration *out)
{
    struct weir_diag inner = { 0 };
    int error = weir_duration_parse(weir_text_of(given->value), out, &inner);
    return name_option(given, option, error, &inner);
}

static int set_report_interval(const struct given *given)
{
    weir_duration interval;
    int error = read_duration(given, "--report-interval", &interval);
    if (error < 0)
        return error;
    if (interval < 10 * WEIR_MILLISECOND || interval > 3600 * WEIR_SECOND)
        return refuse_value(given, "--report-interval", "choose 10ms to 1h");
    given->options->settings.report_interval = interval;
    return 0;
}

static int set_stale(const struct given *given)
{
    return read_duration(given, "--stale-after",
                         &given->options->settings.stale_after);
}

static int set_slack(const struct given *given)
{
    bool on = strcmp(given->value, "on") == 0;
    if (!on && strcmp(given->value, "off") != 0)
        return refuse_value(given, "--slack", "write on or off");
    given->options->settings.slack = on;
    return 0;
}

static int set_correction(const struct given *given)
{
    struct weir_settings *settings = &given->options->settings;
    settings->correction_auto = strcmp(given->value, "auto") == 0;
    settings->correction_ppm = 0;
    if (settings->correction_auto)
        return 0;
    char *end;
    double ratio = strtod(given->value, &end);
    /* Written so that a NaN is refused too. */
    bool sound =
        end != given->value && *end == '\0' && ratio >= 0 && ratio <= 1000;
    if (!sound)
        return refuse_value(given, "--correction-ratio",
                            "a number from 0 to 1000, or auto");
    settings->correction_ppm = (uint32_t)(ratio * 1e6 + 0.5);
    return 0;
}

static int set_snapshot(const struct given *given)
{
    bool is_off = strcmp(given->value, "off") == 0;
    given->options->snapshot_off = is_off;
    given->options->snapshot = is_off ? NULL : given->value;
    return 0;
}

static int add_upstream(const struct given *given, struct weir_text text)
{
    struct weir_serve_options *options = given->options;
    struct weir_diag inner = { 0 };
    if (options->upstreams == WEIR_ROOTS_MAX)
        return weir_diag_put(
            given->diag, WEIR_EINVAL,
            "--upstream: there are more roots than a limiter can have");
    struct weir_address *address = &options->upstream[options->upstreams++];
    if (weir_root_address_parse(text, address, &inner) == 0)
        return 0;
    return weir_diag_set(given->diag, WEIR_EINVAL,
                         "--upstream: write the addresses of the roots above, "
                         "HOST:PORT,HOST:PORT, or _weir._tcp.NAME; ",
                         inner.text, NULL);
}

static int set_upstream(const struct given *given)
{
    const char *value = given->value;
    given->options->upstreams = 0;
    for (;;) {
        size_t len = strcspn(value, ",");
        int error = add_upstream(given, (struct weir_text){ value, len });
        if (error < 0 || value[len] == '\0')
            return error;
        value += len + 1;
    }
}

static int set_slots(const struct given *given)
{
    uint64_t slots = 0;
    if (weir_units_parse(weir_text_of(given->value), &slots, NULL) < 0 ||
        slots < 1 || slots > WEIR_SLOTS_MAX)
        return refuse_value(given, "--slots", "a number from 1 to 16777216");
    given->options->slots = (uint32_t)slots;
    return 0;
}

static int set_log_level(const struct given *given)
{
    return weir_log_level_parse(given->value, &given->options->log_level) == 0
               ? 0
               : refuse_value(given, "--log-level",
                              "error, warning, info or debug");
}

/* ---- Leases ---- */

static int set_doorman_config(const struct given *given)
{
    given->options->doorman_config = given->value;
    return weir_doorman_location_parse(weir_text_of(given->value),
                                       &given->options->doorman, given->diag);
}

static int set_election(const struct given *given)
{
    static const char file[] = "file:";
    struct weir_serve_options *options = given->options;
    const char *value = given->value;
    bool is_file = strncmp(value, file, sizeof file - 1) == 0;
    options->election_path = is_file ? value + sizeof file - 1 : "";
    if (is_file && options->election_path[0]) {
        options->election = WEIR_ELECTION_FILE;
        return 0;
    }
    bool is_etcd = strcmp(value, "etcd") == 0;
    if (!is_etcd && strcmp(value, "none") != 0)
        return refuse_value(given, "--election",
                            "write none, file:PATH or etcd");
    options->election = is_etcd ? WEIR_ELECTION_ETCD : WEIR_ELECTION_NONE;
    return 0;
}

static int set_election_key(const struct given *given)
{
    if (!given->value[0] || strlen(given->value) > WEIR_ELECTION_KEY_MAX)
        return weir_diag_put(
            given->diag, WEIR_EINVAL,
            "--election-key: the name of a key in etcd, 1 to 500 bytes");
    given->options->election_key = given->value;
    return 0;
}

static int set_election_ttl(const struct given *given)
{
    weir_duration ttl;
    int error = read_duration(given, "--election-ttl", &ttl);
    if (error < 0)
        return error;
    if (ttl < WEIR_SECOND || ttl > 3600 * WEIR_SECOND || ttl % WEIR_SECOND != 0)
        return refuse_value(given, "--election-ttl", "whole seconds, 1s to 1h");
    given->options->election_ttl = ttl;
    return 0;
}

static int set_hostname(const struct given *given)
{
    struct weir_address address;
    char text[300];
    const char *value = given->value;
    char *hostname = given->options->hostname;
    bool bare = strchr(value, ':') && value[0] != '[';
    hostname[0] = '\0'; /* Doorman takes "" for the machine's name */
    if (!value[0])
        return 0;
    int len = snprintf(text, sizeof text, bare ? "[%s]:1" : "%s:1", value);
    bool sound = len < (int)sizeof text && len <= 250 &&
                 weir_address_parse(weir_text_of(text), &address, NULL) == 0;
    if (!sound)
        return refuse_value(given, "--hostname",
                            "a host's name or address, without a port");
    /* Without brackets: code that prints it adds them. */
    strcpy(hostname, address.host);
    return 0;
}

static int set_etcd_endpoints(const struct given *given)
{
    struct weir_serve_options *options = given->options;
    struct weir_diag inner = { 0 };
    options->etcd_count = 0;
    if (!given->value[0])
        return 0;
    int error =
        weir_etcd_endpoints_parse(weir_text_of(given->value), options->etcd,
                                  &options->etcd_count, &inner);
    return name_option(given, "--etcd-endpoints", error, &inner);
}

/* ---- Doorman's flags with values of another form ---- */

static int set_port(const struct given *given)
{
    struct weir_address *address = given->to;
    uint64_t port = 0;
    if (weir_units_parse(weir_text_of(given->value), &port, NULL) < 0 ||
        port > UINT16_MAX)
        return weir_diag_set(given->diag, WEIR_EINVAL, "--", given->row->name,
                             " ", given->value, ": a port, 0 to 65535", NULL);
    address->port = (uint16_t)port;
    return 0;
}

/* "": no election. */
static int set_master_lock(const struct given *given)
{
    bool elects = given->value[0];
    given->options->election = elects ? WEIR_ELECTION_ETCD : WEIR_ELECTION_NONE;
    return elects ? set_election_key(given) : 0;
}

/* "": no upstream. */
static int set_parent(const struct given *given)
{
    return given->value[0] ? set_upstream(given) : 0;
}

/* The words that Go accepts. */
static int set_tls(const struct given *given)
{
    static const char *const on[] = { "1", "t", "T", "true", "TRUE", "True" };
    static const char *const off[] = {
        "0", "f", "F", "false", "FALSE", "False"
    };
    const char *value = given->value;
    bool is_on = !value;
    bool is_off = false;
    for (size_t i = 0; value && i < WEIR_COUNT_OF(on); i++) {
        is_on = is_on || strcmp(value, on[i]) == 0;
        is_off = is_off || strcmp(value, off[i]) == 0;
    }
    given->options->tls = is_on;
    return is_on || is_off
               ? 0
               : weir_diag_set(given->diag, WEIR_EINVAL, "--tls=", value,
                               ": true or false", NULL);
}

static int ignore_flag(const struct given *given)
{
    add_remark(given->options, given->row->name,
               " is a flag of Doorman's that has no meaning here");
    return 0;
}

/* ---- The table ---- */

#define AT(MEMBER) offsetof(struct weir_serve_options, MEMBER)
static const struct row rows[] = {
    { "store", set_store },
    { "listen", set_address, AT(listen), "listen" },
    { "http", set_http, AT(http), "http" },
    { "public-origin", set_public_origin },
    { "resp", set_resp },
    { "resp-sharing", set_resp_sharing },
    { "name", set_name, AT(name) },
    { "report-interval", set_report_interval },
    { "stale-after", set_stale },
    { "slack", set_slack },
    { "correction-ratio", set_correction },
    { "port-file", set_text, AT(port_file) },
    { "log-level", set_log_level },
    { "tls-cert", set_text, AT(exposure.tls_cert), "cert" },
    { "tls-key", set_text, AT(exposure.tls_key), "key" },
    { "tls-ca", set_text, AT(exposure.tls_ca) },
    { "credentials", set_text, AT(exposure.credentials) },
    { "insecure", set_flag, AT(exposure.insecure) },
    { "snapshot", set_snapshot },
    { "region", set_name, AT(region) },
    { "upstream", set_upstream, .field = "upstream" },
    { "upstream-ca", set_text, AT(upstream_ca) },
    { "upstream-cert", set_text, AT(upstream_cert) },
    { "upstream-key", set_text, AT(upstream_key) },
    { "upstream-token-file", set_text, AT(upstream_token_file) },
    { "slots", set_slots },
    { "doorman-config", set_doorman_config, .field = "config" },
    { "doorman-insecure", set_flag, AT(doorman_insecure) },
    { "alone", set_flag, AT(alone) },
    { "election", set_election, .field = "election" },
    { "election-key", set_election_key, .field = "election" },
    { "election-ttl", set_election_ttl, .field = "ttl" },
    { "etcd-endpoints", set_etcd_endpoints, .field = "etcd" },
    { "etcd-ca", set_text, AT(etcd_login.tls_ca) },
    { "etcd-cert", set_text, AT(etcd_login.tls_cert) },
    { "etcd-key", set_text, AT(etcd_login.tls_key) },
    { "config", set_doorman_config, 0, "config", true },
    { "hostname", set_hostname, .doorman = true }, /* one of Weir's too */
    { "port", set_port, AT(listen), "listen", true },
    { "debug_port", set_port, AT(http), "http", true },
    { "etcd_endpoints", set_etcd_endpoints, 0, "etcd", true },
    { "master_election_lock", set_master_lock, 0, "election", true },
    { "master_delay", set_election_ttl, 0, "ttl", true },
    { "parent", set_parent, 0, "upstream", true },
    { "tls", set_tls, .doorman = true, .optional = true },
    { "cert_file", set_text_or_none, AT(exposure.tls_cert), "cert", true },
    { "key_file", set_text_or_none, AT(exposure.tls_key), "key", true },
    { "server_role", ignore_flag, .doorman = true },
    { "doorman_rpc_dial_timeout", ignore_flag, .doorman = true },
    { "doorman_minimum_refresh_interval", ignore_flag, .doorman = true },
    { "logtostderr", ignore_flag, .doorman = true, .optional = true },
    { "alsologtostderr", ignore_flag, .doorman = true, .optional = true },
    { "stderrthreshold", ignore_flag, .doorman = true },
    { "log_dir", ignore_flag, .doorman = true },
    { "v", ignore_flag, .doorman = true },
    { "vmodule", ignore_flag, .doorman = true },
    { "log_backtrace_at", ignore_flag, .doorman = true },
};
#define ROWS WEIR_COUNT_OF(rows)

static int set_row(struct weir_serve_options *options, const struct row *row,
                   const char *value, struct weir_diag *diag)
{
    const struct given given = { .row = row,
                                 .value = value,
                                 .to = (char *)options + row->member,
                                 .options = options,
                                 .diag = diag };
    return row->set(&given);
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

/* ---- Options that don't go together ---- */

static int choose_own_store(struct weir_serve_options *options,
                            struct weir_diag *diag)
{
    options->own_store = true;
    if (weir_serve_own_file("sqlite:", "weir.db", options->store))
        return 0;
    return weir_diag_put(diag, WEIR_EINVAL,
                         "there is no HOME to keep a store in, or its path is "
                         "too long; name a store with --store");
}

static int check_exposed(const struct weir_serve_options *options,
                         const char *option, const struct weir_address *address,
                         struct weir_diag *diag)
{
    const struct weir_listen_address place = { .address = *address };
    return weir_exposure_check_place(&options->exposure, option, &place, diag);
}

/* The first rule that is broken. The limiter of --resp shows no credential, and
 * its clients use plain text. */
static int check_rules(const struct weir_serve_options *options,
                       struct weir_diag *diag)
{
    const struct weir_login_options *etcd = &options->etcd_login;
    bool is_store = options->store[0];
    bool is_secure =
        options->exposure.tls_cert || options->exposure.credentials;
    bool has_login = options->upstream_ca || options->upstream_cert ||
                     options->upstream_key || options->upstream_token_file;
    bool by_etcd = options->election == WEIR_ELECTION_ETCD;
    bool file_of_etcd = options->doorman_config && options->doorman.etcd;
    const struct {
        bool is_broken;
        const char *why;
    } rules[] = {
        { !options->region && (options->upstreams > 0 || has_login),
          "--upstream is for a region's root; --region is missing" },
        { options->region && options->upstreams == 0,
          "--region needs --upstream, the roots that the region has its quotas "
          "from" },
        { options->region && is_store,
          "a region has its quotas from its upstream, not from a store; leave "
          "out --store or --region" },
        { options->resp_on && is_secure,
          "--resp is for a root without TLS and credentials; beside this one "
          "run `weir agent --resp`, which has credentials of its own" },
        { options->resp_on && !options->exposure.insecure &&
              !weir_listen_address_is_local(&options->resp),
          "--resp: other hosts would reach it, in plain text. Listen on "
          "loopback, 127.0.0.1:PORT or unix:PATH, or insist with "
          "--insecure" },
        { options->doorman_config && options->region,
          "the quotas come from --doorman-config or from the region's "
          "upstream; leave out one" },
        { options->doorman_config && is_store,
          "the quotas come from --doorman-config or from --store; leave out "
          "one" },
        { options->doorman_config && options->snapshot,
          "--snapshot is for a store; a Doorman file is read at each start" },
        { file_of_etcd && options->etcd_count == 0,
          "--doorman-config etcd: needs --etcd-endpoints" },
        { by_etcd && options->etcd_count == 0,
          "--election etcd needs --etcd-endpoints" },
        { options->alone && options->election != WEIR_ELECTION_NONE,
          "--alone says that no other root has handed out leases, so there is "
          "nothing to elect; leave out --alone or --election" },
        { options->alone && options->region,
          "--alone is for a topmost root: a region's roots learn the leases of "
          "the region" },
        { options->election_key && !by_etcd,
          "--election-key is for --election etcd" },
        { (etcd->tls_ca || etcd->tls_cert || etcd->tls_key) && !by_etcd &&
              !file_of_etcd,
          "nothing is asked of etcd; leave out --etcd-ca, --etcd-cert and "
          "--etcd-key" },
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(rules); i++)
        if (rules[i].is_broken)
            return weir_diag_put(diag, WEIR_EINVAL, rules[i].why);
    return 0;
}

/* Whether the options go together; chooses the default store if no source of
 * the quotas is named. WEIR_EINVAL with 'diag' filled. */
static int check_options(struct weir_serve_options *options,
                         struct weir_diag *diag)
{
    if (options->tls && !options->exposure.tls_cert)
        return weir_diag_put(diag, WEIR_EINVAL,
                             "--tls: --tls-cert and --tls-key are missing");
    int error = weir_exposure_check(&options->exposure, diag);
    if (error == 0)
        error = check_rules(options, diag);
    if (error == 0)
        error = check_exposed(options, "--listen", &options->listen, diag);
    if (error == 0 && !options->http_off)
        error = check_exposed(options, "--http", &options->http, diag);
    if (error < 0)
        return error;
    if (options->settings.stale_after < options->settings.report_interval)
        return weir_diag_put(diag, WEIR_EINVAL,
                             "--stale-after is shorter than --report-interval: "
                             "limiters would be stale between two reports");
    bool has_quotas =
        options->store[0] || options->region || options->doorman_config;
    return has_quotas ? 0 : choose_own_store(options, diag);
}

/* ---- The command line ---- */

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
    int error =
        weir_address_parse(WEIR_TEXT("127.0.0.1:7077"), &options->listen, diag);
    return error < 0 ? error
                     : weir_address_parse(WEIR_TEXT("127.0.0.1:7078"),
                                          &options->http, diag);
}

/* The command line. 0, 1 when help was asked for, or an error. */
static int read_arguments(int argc, char **argv, struct weir_serve_options *out,
                          bool given[ROWS], struct weir_diag *diag)
{
    struct option known[ROWS + 2] = { { NULL, 0, NULL, 0 } };
    for (size_t i = 0; i < ROWS; i++) {
        int argument = rows[i].set == set_flag ? no_argument
                       : rows[i].optional      ? optional_argument
                                               : required_argument;
        known[i] = (struct option){ rows[i].name, argument, NULL, 0 };
    }
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
    *out = (struct weir_serve_options){ .exposure = { .prefix = "--tls-" } };
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
    return error < 0 ? error : check_options(out, diag);
}
