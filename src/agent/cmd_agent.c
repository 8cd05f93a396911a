/* SPDX-License-Identifier: MIT
 * agent/cmd_agent.c - weir agent: a limiter for programs without libweir.
 *
 * It opens the limiter, and agent_loop.c runs listeners in front of it. With
 * --table the limiter's table is in a file, which other processes use by
 * libweir itself; the agent is one of the processes that may run its
 * reporter. */

#include <stdio.h>

#include "agent/agent_loop.h"
#include "command/cli.h"
#include "core/quota/quota.h"

#define HTTP_DEFAULT "127.0.0.1:7079"

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

/* The protocols of listeners. */
enum protocol { HTTP, RESP, RLS, PROTOCOLS };

static int open_agent_limiter(const struct weir_cli *cli,
                              const char *quotas_max,
                              struct weir_options *options, struct weir **out)
{
    struct weir_diag diag;
    uint64_t quotas = 0;
    if (quotas_max &&
        (weir_units_parse(weir_text_of(quotas_max), &quotas, &diag) < 0 ||
         quotas == 0 || quotas > 1u << 24))
        return weir_cli_fail("--quotas-max: a number from 1 to 16Mi");
    options->quotas_max = (uint32_t)quotas;
    return weir_cli_open(cli, options, out);
}

static int copy_addresses(const struct weir_cli_values values[PROTOCOLS],
                          struct weir_agent_options *options)
{
    struct weir_agent_addresses *const to[PROTOCOLS] = {
        [HTTP] = &options->http,
        [RESP] = &options->resp,
        [RLS] = &options->rls.addresses,
    };
    for (size_t i = 0; i < PROTOCOLS; i++) {
        if (values[i].count > WEIR_AGENT_ADDRESSES_MAX)
            return weir_cli_fail(
                "--http, --resp and --rls may come %d times each",
                WEIR_AGENT_ADDRESSES_MAX);
        for (size_t j = 0; j < values[i].count; j++)
            to[i]->items[to[i]->count++] = values[i].items[j];
    }
    return 0;
}

static int run_agent(const struct weir_agent_options *options,
                     struct weir *weir, struct weir_log *log)
{
    struct weir_diag diag = { 0 };
    int error = weir_agent_run(options, weir, log, &diag);
    return error < 0 ? weir_cli_fail("%s", diag.text) : 0;
}

int weir_cli_agent(int argc, char **argv)
{
    struct weir_agent_options options = { .reach.prefix = "--listener-tls-" };
    struct weir_options limiter = WEIR_OPTIONS_INIT;
    struct weir_cli cli = { 0 };
    struct weir_cli_values values[PROTOCOLS] = { 0 };
    const char *table = NULL;
    const char *quotas_max = NULL;
    const char *log_level = NULL;
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
        { .name = "table", .value = &table },
        { .name = "name", .value = &options.name },
        { .name = "quotas-max", .value = &quotas_max },
        { .name = "credentials", .value = &options.reach.credentials },
        { .name = "listener-tls-cert", .value = &options.reach.tls_cert },
        { .name = "listener-tls-key", .value = &options.reach.tls_key },
        { .name = "listener-tls-ca", .value = &options.reach.tls_ca },
        { .name = "insecure", .flag = &options.reach.insecure },
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
        !table)
        values[HTTP].items[values[HTTP].count++] = HTTP_DEFAULT;
    struct weir_log log = { .level = WEIR_LOG_INFO };
    if (log_level && weir_log_level_parse(log_level, &log.level) < 0)
        return weir_cli_fail("--log-level: error, warning, info or debug");
    int status = copy_addresses(values, &options);
    if (status)
        return status;
    limiter.table = table;
    limiter.name = options.name;
    struct weir *weir = NULL;
    weir_log_adopt_library(&log);
    status = open_agent_limiter(&cli, quotas_max, &limiter, &weir);
    if (status == 0)
        status = run_agent(&options, weir, &log);
    weir_close(weir);
    weir_log_adopt_library(NULL);
    weir_log_end(&log);
    return status;
}
