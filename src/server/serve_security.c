/* SPDX-License-Identifier: MIT
 * server/serve_security.c - a root's certificates and credentials: read at the
 * start, and again when their files change. */

#include "io/clock.h"
#include "server/serve_internal.h"

#define DAY_S 86400
#define WARN_DAYS 14 /* before a certificate ends */

int weir_serve_make_authorizer(struct serve *serve, struct weir_diag *diag)
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

void weir_serve_warn_of_end(struct serve *serve, weir_instant now)
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

void weir_serve_log_security(const struct serve *serve)
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
    weir_exposure_warn_of_names(&options->reach, serve->credentials,
                                &serve->log);
    weir_log(&serve->log, WEIR_LOG_INFO, "%s, %s",
             serve->grpc_tls ? "TLS" : "plain text",
             serve->credentials ? "credentials are asked for"
                                : "no credentials are asked for");
}

void weir_serve_reload(struct serve *serve, bool all)
{
    bool has_tls = serve->grpc_tls != NULL;
    if (has_tls && (all || weir_tls_is_changed(serve->grpc_tls) ||
                    weir_tls_is_changed(serve->http_tls)))
        reload_tls(serve);
    if (!weir_exposure_reload(&serve->options->reach, serve->credentials, all,
                              &serve->log))
        return;
    weir_grpc_api_recheck(serve->grpc);
    if (serve->http)
        weir_http_api_recheck(serve->http);
}
