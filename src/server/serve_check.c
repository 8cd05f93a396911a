/* SPDX-License-Identifier: MIT
 * server/serve_check.c - whether the options of `weir serve` go together. */

#include "server/serve_options.h"

static int choose_own_store(struct weir_serve_options *options,
                            struct weir_diag *diag)
{
    options->own_store = true;
    if (weir_serve_own_file("sqlite:", "weir.db", options->store))
        return 0;
    return weir_diag_set(diag, WEIR_EINVAL,
                         "there is no HOME to keep a store in, or its path is "
                         "too long; name a store with --store",
                         NULL);
}

static int check_tls(const struct weir_serve_options *options,
                     struct weir_diag *diag)
{
    if (options->tls && !options->reach.tls_cert)
        return weir_diag_set(diag, WEIR_EINVAL,
                             "--tls: --tls-cert and --tls-key are missing",
                             NULL);
    return weir_exposure_check(&options->reach, diag);
}

static int check_exposed(const struct weir_serve_options *options,
                         const char *option, const struct weir_address *address,
                         struct weir_diag *diag)
{
    const struct weir_listen_address place = { .address = *address };
    return weir_exposure_check_place(&options->reach, option, &place, diag);
}

/* Its limiter shows no credential, and its clients use plain text. */
static int check_resp(const struct weir_serve_options *options,
                      struct weir_diag *diag)
{
    if (!options->resp_on)
        return 0;
    if (options->reach.tls_cert || options->reach.credentials)
        return weir_diag_set(diag, WEIR_EINVAL,
                             "--resp is for a root without "
                             "TLS and credentials; beside this one run `weir "
                             "agent --resp`, which has credentials of its own",
                             NULL);
    if (weir_listen_address_is_local(&options->resp) || options->reach.insecure)
        return 0;
    return weir_diag_set(diag, WEIR_EINVAL,
                         "--resp: other hosts would reach "
                         "it, in plain text. Listen on loopback or at "
                         "unix:PATH, or insist with --insecure",
                         NULL);
}

static int check_region(const struct weir_serve_options *options,
                        struct weir_diag *diag)
{
    bool login = options->upstream_ca || options->upstream_cert ||
                 options->upstream_key || options->upstream_token_file;
    if (!options->region && (options->upstreams > 0 || login))
        return weir_diag_set(diag, WEIR_EINVAL,
                             "--upstream is for a region's "
                             "root; --region is missing",
                             NULL);
    if (options->region && options->upstreams == 0)
        return weir_diag_set(diag, WEIR_EINVAL,
                             "--region needs --upstream, "
                             "the roots that the region has its quotas from",
                             NULL);
    if (options->region && options->store[0])
        return weir_diag_set(diag, WEIR_EINVAL,
                             "a region has its quotas from its upstream, not "
                             "from a store; leave out --store or --region",
                             NULL);
    return 0;
}

static int check_doorman(const struct weir_serve_options *options,
                         struct weir_diag *diag)
{
    if (!options->doorman_config)
        return 0;
    if (options->store[0] || options->region)
        return weir_diag_set(
            diag, WEIR_EINVAL, "the quotas come from --doorman-config or from ",
            options->region ? "the region's upstream" : "--store",
            "; leave out one", NULL);
    if (options->snapshot)
        return weir_diag_set(diag, WEIR_EINVAL,
                             "--snapshot is for a store; "
                             "a Doorman file is read at each start",
                             NULL);
    if (options->doorman.etcd && options->etcd_count == 0)
        return weir_diag_set(diag, WEIR_EINVAL,
                             "--doorman-config etcd: needs --etcd-endpoints",
                             NULL);
    return 0;
}

static int check_election(const struct weir_serve_options *options,
                          struct weir_diag *diag)
{
    bool by_etcd = options->election == WEIR_ELECTION_ETCD;
    bool uses_etcd =
        by_etcd || (options->doorman_config && options->doorman.etcd);
    const struct weir_login_options *login = &options->etcd_login;
    if (by_etcd && options->etcd_count == 0)
        return weir_diag_set(diag, WEIR_EINVAL,
                             "--election etcd needs --etcd-endpoints", NULL);
    if (options->election_key && !by_etcd)
        return weir_diag_set(diag, WEIR_EINVAL,
                             "--election-key is for --election etcd", NULL);
    if ((login->tls_ca || login->tls_cert || login->tls_key) && !uses_etcd)
        return weir_diag_set(diag, WEIR_EINVAL,
                             "nothing is asked of etcd; leave out --etcd-ca, "
                             "--etcd-cert and --etcd-key",
                             NULL);
    return 0;
}

int weir_serve_check_options(struct weir_serve_options *options,
                             struct weir_diag *diag)
{
    int error = check_tls(options, diag);
    if (error == 0)
        error = check_region(options, diag);
    if (error == 0)
        error = check_resp(options, diag);
    if (error == 0)
        error = check_doorman(options, diag);
    if (error == 0)
        error = check_election(options, diag);
    if (error == 0)
        error = check_exposed(options, "--listen", &options->listen, diag);
    if (error == 0 && !options->http_off)
        error = check_exposed(options, "--http", &options->http, diag);
    if (error < 0)
        return error;
    if (options->settings.stale_after < options->settings.report_interval)
        return weir_diag_set(diag, WEIR_EINVAL,
                             "--stale-after is shorter than --report-interval: "
                             "limiters would be stale between two reports",
                             NULL);
    bool has_quotas =
        options->store[0] || options->region || options->doorman_config;
    return has_quotas ? 0 : choose_own_store(options, diag);
}
