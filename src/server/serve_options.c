/* SPDX-License-Identifier: MIT
 * server/serve_options.c - the command line of `weir serve`, a setter for
 * each option in one table. */

#include "server/serve_options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quota/quota.h"
#include "quota/table.h"

#define SLOTS_DEFAULT (1u << 20)

const char weir_serve_help[] =
    "Runs a root: it knows the quotas and adds up what everybody counts.\n"
    "\n"
    "    weir serve\n"
    "    weir serve --store sqlite:quotas.db --listen :7087 --http :7088\n"
    "\n"
    "  --store sqlite:FILE       the quotas; the file must exist (`weir store\n"
    "                            init`). Without it: a store of your own in\n"
    "                            ~/.local/share/weir, made at the first run\n"
    "  --snapshot FILE|off       the quotas, kept for a start without the\n"
    "                            store  [FILE.NAME.snapshot beside the store]\n"
    "  --listen ADDR:PORT        for limiters and `weir`  [127.0.0.1:7077]\n"
    "  --http ADDR:PORT|off      JSON and /metrics        [127.0.0.1:7078]\n"
    "  --name NAME               how limiters and people call this root\n"
    "\n"
    "Who may reach it (an address that isn't loopback needs the first three):\n"
    "  --tls-cert FILE           speak TLS, and show this certificate (PEM)\n"
    "  --tls-key FILE            its key; both are read again as they change\n"
    "  --credentials FILE        who may do what; likewise\n"
    "  --tls-ca FILE             whose certificates clients may show\n"
    "  --insecure                listen anywhere without all that\n"
    "\n"
    "What this root tells its limiters:\n"
    "  --report-interval TIME    report at least so often             [1s]\n"
    "  --stale-after TIME        go by on_stale after so long alone  [10s]\n"
    "  --slack on|off            report early near a limit            [on]\n"
    "  --correction-ratio N|auto assume so much of what others add     [0]\n"
    "\n"
    "A root of a region, instead of --store:\n"
    "  --region NAME             it counts for the region NAME …\n"
    "  --upstream ADDR:PORT,…    … and has its quotas from these roots\n"
    "  --upstream-ca FILE        speak TLS to them; whom to trust\n"
    "  --upstream-cert FILE      what this root shows there\n"
    "  --upstream-key FILE       its key\n"
    "  --upstream-token-file FILE  the token, as a credential there\n"
    "  --slots N                 quotas and instances in use     [1048576]\n"
    "\n"
    "  --port-file FILE          write the addresses in use there\n"
    "  --log-level LEVEL         error, warning, info or debug      [info]\n"
    "\n"
    "SIGTERM ends it gracefully. More: weir-serve(8), weir-cert(1).\n";

typedef int setter(struct weir_serve_options *options, const char *value,
                   struct weir_diag *diag);

static int set_store(struct weir_serve_options *options, const char *value,
                     struct weir_diag *diag)
{
    if (strlen(value) >= sizeof options->store)
        return weir_diag_set(diag, WEIR_EINVAL, "--store: the path is too "
                             "long", NULL);
    strcpy(options->store, value);
    return 0;
}

static int set_address(struct weir_address *address, const char *option,
                       const char *value, struct weir_diag *diag)
{
    struct weir_diag inner = { 0 };
    int error = weir_address_parse(weir_text_of(value), address, &inner);
    if (error < 0)
        return weir_diag_set(diag, error, option, " ", value, ": ",
                             inner.text, NULL);
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

static int set_name(struct weir_serve_options *options, const char *value,
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

static int set_interval(struct weir_serve_options *options,
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
    return set_duration(&options->settings.stale_after, "--stale-after",
                        value, diag);
}

static int set_slack(struct weir_serve_options *options, const char *value,
                     struct weir_diag *diag)
{
    bool on = strcmp(value, "on") == 0;
    if (!on && strcmp(value, "off") != 0)
        return weir_diag_set(diag, WEIR_EINVAL, "--slack ", value, ": write "
                             "on or off", NULL);
    options->settings.slack = on;
    return 0;
}

static int set_correction(struct weir_serve_options *options,
                          const char *value, struct weir_diag *diag)
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

static int set_tls_cert(struct weir_serve_options *options,
                        const char *value, struct weir_diag *diag)
{
    (void)diag;
    options->tls_cert = value;
    return 0;
}

static int set_tls_key(struct weir_serve_options *options, const char *value,
                       struct weir_diag *diag)
{
    (void)diag;
    options->tls_key = value;
    return 0;
}

static int set_tls_ca(struct weir_serve_options *options, const char *value,
                      struct weir_diag *diag)
{
    (void)diag;
    options->tls_ca = value;
    return 0;
}

static int set_credentials(struct weir_serve_options *options,
                           const char *value, struct weir_diag *diag)
{
    (void)diag;
    options->credentials = value;
    return 0;
}

static int set_insecure(struct weir_serve_options *options, const char *value,
                        struct weir_diag *diag)
{
    (void)value;
    (void)diag;
    options->insecure = true;
    return 0;
}

static int set_port_file(struct weir_serve_options *options,
                         const char *value, struct weir_diag *diag)
{
    (void)diag;
    options->port_file = value;
    return 0;
}

static int set_snapshot(struct weir_serve_options *options,
                        const char *value, struct weir_diag *diag)
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
        return weir_diag_set(diag, WEIR_EINVAL, "--upstream: there are more "
                             "roots than a limiter can have", NULL);
    struct weir_address *address = &options->upstream[options->upstreams++];
    int error = weir_address_parse(text, address, &inner);
    if (error == 0 && address->port != 0)
        return 0;
    return weir_diag_set(diag, WEIR_EINVAL, "--upstream: write the addresses "
                         "of the roots above, HOST:PORT,HOST:PORT; ",
                         error < 0 ? inner.text : "a port is missing", NULL);
}

static int set_upstream(struct weir_serve_options *options,
                        const char *value, struct weir_diag *diag)
{
    options->upstreams = 0;
    for (;;) {
        size_t len = strcspn(value, ",");
        int error = add_upstream(options, (struct weir_text){ value, len },
                                 diag);
        if (error < 0 || value[len] == '\0')
            return error;
        value += len + 1;
    }
}

static int set_upstream_ca(struct weir_serve_options *options,
                           const char *value, struct weir_diag *diag)
{
    (void)diag;
    options->upstream_ca = value;
    return 0;
}

static int set_upstream_cert(struct weir_serve_options *options,
                             const char *value, struct weir_diag *diag)
{
    (void)diag;
    options->upstream_cert = value;
    return 0;
}

static int set_upstream_key(struct weir_serve_options *options,
                            const char *value, struct weir_diag *diag)
{
    (void)diag;
    options->upstream_key = value;
    return 0;
}

static int set_upstream_token(struct weir_serve_options *options,
                              const char *value, struct weir_diag *diag)
{
    (void)diag;
    options->upstream_token_file = value;
    return 0;
}

static int set_slots(struct weir_serve_options *options, const char *value,
                     struct weir_diag *diag)
{
    uint64_t slots = 0;
    if (weir_units_parse(weir_text_of(value), &slots, NULL) < 0 ||
        slots < 1 || slots > WEIR_SLOTS_MAX)
        return weir_diag_set(diag, WEIR_EINVAL, "--slots ", value, ": a "
                             "number from 1 to 16777216", NULL);
    options->slots = (uint32_t)slots;
    return 0;
}

static int set_log_level(struct weir_serve_options *options,
                         const char *value, struct weir_diag *diag)
{
    if (weir_log_level_parse(value, &options->log_level) == 0)
        return 0;
    return weir_diag_set(diag, WEIR_EINVAL, "--log-level ", value, ": error, "
                         "warning, info or debug", NULL);
}

#define WITH_VALUE(NAME) { NAME, required_argument, NULL, 0 }
static const struct option options_known[] = {
    WITH_VALUE("store"),       WITH_VALUE("listen"),
    WITH_VALUE("http"),        WITH_VALUE("name"),
    WITH_VALUE("report-interval"), WITH_VALUE("stale-after"),
    WITH_VALUE("slack"),       WITH_VALUE("correction-ratio"),
    WITH_VALUE("port-file"),   WITH_VALUE("log-level"),
    WITH_VALUE("tls-cert"),    WITH_VALUE("tls-key"),
    WITH_VALUE("tls-ca"),      WITH_VALUE("credentials"),
    { "insecure", no_argument, NULL, 0 },
    WITH_VALUE("snapshot"),    WITH_VALUE("region"),
    WITH_VALUE("upstream"),    WITH_VALUE("upstream-ca"),
    WITH_VALUE("upstream-cert"), WITH_VALUE("upstream-key"),
    WITH_VALUE("upstream-token-file"), WITH_VALUE("slots"),
    { "help", no_argument, NULL, 'h' }, { NULL, 0, NULL, 0 },
};
static setter *const setters[] = {
    set_store, set_listen,     set_http,      set_name,
    set_interval, set_stale,   set_slack,     set_correction,
    set_port_file, set_log_level, set_tls_cert, set_tls_key,
    set_tls_ca,   set_credentials, set_insecure,  set_snapshot,
    set_region,   set_upstream, set_upstream_ca, set_upstream_cert,
    set_upstream_key, set_upstream_token, set_slots,
};

static int set_defaults(struct weir_serve_options *options,
                        struct weir_diag *diag)
{
    options->log_level = WEIR_LOG_INFO;
    options->slots = SLOTS_DEFAULT;
    options->settings = (struct weir_settings){
        .report_interval = WEIR_SECOND,
        .stale_after = 10 * WEIR_SECOND,
        .slack = true,
    };
    int error = set_listen(options, "127.0.0.1:7077", diag);
    return error < 0 ? error : set_http(options, "127.0.0.1:7078", diag);
}

bool weir_serve_own_file(const char *scheme, const char *name,
                         char path[WEIR_PATH_MAX])
{
    const char *data = getenv("XDG_DATA_HOME");
    const char *home = getenv("HOME");
    bool has_data = data && data[0] == '/';
    if (!has_data && !(home && home[0]))
        return false;
    int len = snprintf(path, WEIR_PATH_MAX, "%s%s%s/weir/%s", scheme,
                       has_data ? data : home,
                       has_data ? "" : "/.local/share", name);
    return len < WEIR_PATH_MAX;
}

static int find_own_store(struct weir_serve_options *options,
                          struct weir_diag *diag)
{
    options->own_store = true;
    if (weir_serve_own_file("sqlite:", "weir.db", options->store))
        return 0;
    return weir_diag_set(diag, WEIR_EINVAL, "there is no HOME to keep a "
                         "store in, or its path is too long; name a store "
                         "with --store", NULL);
}

static int check_tls(const struct weir_serve_options *options,
                     struct weir_diag *diag)
{
    if (!options->tls_cert != !options->tls_key)
        return weir_diag_set(diag, WEIR_EINVAL, "--tls-cert and --tls-key go "
                             "together; ", options->tls_cert ? "--tls-key"
                                                             : "--tls-cert",
                             " is missing", NULL);
    if (options->tls_ca && !options->tls_cert)
        return weir_diag_set(diag, WEIR_EINVAL, "--tls-ca is of no use "
                             "without TLS; --tls-cert and --tls-key are "
                             "missing", NULL);
    /* Whoever names an authority means to keep others out. */
    if (options->tls_ca && !options->credentials)
        return weir_diag_set(diag, WEIR_EINVAL, "--tls-ca says whose "
                             "certificates count, and --credentials, what "
                             "they may do, is missing", NULL);
    return 0;
}

/* Strangers can reach such an address, and read what goes over it. */
static int check_open(const struct weir_serve_options *options,
                      const char *option, const struct weir_address *address,
                      struct weir_diag *diag)
{
    if (weir_address_is_loopback(address) || options->insecure)
        return 0;
    const char *missing =
        !options->tls_cert ? options->credentials
                                 ? "--tls-cert and --tls-key are"
                                 : "--tls-cert, --tls-key and --credentials "
                                   "are"
        : !options->credentials ? "--credentials is"
                                : NULL;
    if (!missing)
        return 0;
    return weir_diag_set(diag, WEIR_EINVAL, option, " ", address->host,
                         ": strangers can reach that address, and ", missing,
                         " missing; `weir cert` makes certificates to try. "
                         "Or listen on loopback, or insist with --insecure",
                         NULL);
}

static int check_region(const struct weir_serve_options *options,
                        struct weir_diag *diag)
{
    bool login = options->upstream_ca || options->upstream_cert ||
                 options->upstream_key || options->upstream_token_file;
    if (!options->region && (options->upstreams > 0 || login))
        return weir_diag_set(diag, WEIR_EINVAL, "--upstream is for a region's "
                             "root; --region is missing", NULL);
    if (options->region && options->upstreams == 0)
        return weir_diag_set(diag, WEIR_EINVAL, "--region needs --upstream, "
                             "the roots that the region has its quotas from",
                             NULL);
    if (options->region && options->store[0])
        return weir_diag_set(diag, WEIR_EINVAL, "a region has its quotas from "
                             "its upstream, not from a store; leave out "
                             "--store or --region", NULL);
    return 0;
}

static int check(struct weir_serve_options *options, struct weir_diag *diag)
{
    int error = check_tls(options, diag);
    if (error == 0)
        error = check_region(options, diag);
    if (error == 0)
        error = check_open(options, "--listen", &options->listen, diag);
    if (error == 0 && !options->http_off)
        error = check_open(options, "--http", &options->http, diag);
    if (error < 0)
        return error;
    if (options->settings.stale_after < options->settings.report_interval)
        return weir_diag_set(diag, WEIR_EINVAL, "--stale-after is shorter "
                             "than --report-interval: limiters would be "
                             "stale between two reports", NULL);
    bool has_quotas = options->store[0] || options->region;
    return has_quotas ? 0 : find_own_store(options, diag);
}

int weir_serve_options_parse(int argc, char **argv,
                             struct weir_serve_options *out,
                             struct weir_diag *diag)
{
    *out = (struct weir_serve_options){ 0 };
    int error = set_defaults(out, diag);
    optind = 1;
    opterr = 0;
    while (error == 0) {
        int at = -1;
        int option = getopt_long(argc, argv, ":h", options_known, &at);
        if (option == -1)
            break;
        if (option == 'h')
            return 1;
        if (option == ':')
            return weir_diag_set(diag, WEIR_EINVAL, argv[optind - 1],
                                 " needs a value; see `weir serve --help`",
                                 NULL);
        if (option == '?')
            return weir_diag_set(diag, WEIR_EINVAL, "there is no option ",
                                 argv[optind - 1],
                                 "; see `weir serve --help`", NULL);
        error = setters[at](out, optarg, diag);
    }
    if (error < 0)
        return error;
    if (optind < argc)
        return weir_diag_set(diag, WEIR_EINVAL, "`weir serve` takes options "
                             "only, not '", argv[optind],
                             "'; see `weir serve --help`", NULL);
    return check(out, diag);
}
