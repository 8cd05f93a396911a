/* SPDX-License-Identifier: MIT
 * front/exposure.c - an open address without TLS or credentials is a mistake
 * that stays unnoticed until it is exploited. So it is refused at the start,
 * with the name of the missing option, unless --insecure is given. */

#include "front/exposure.h"

int weir_exposure_check(const struct weir_exposure *exposure,
                        struct weir_diag *diag)
{
    const char *prefix = exposure->prefix;
    if (!exposure->tls_cert != !exposure->tls_key)
        return weir_diag_set(
            diag, WEIR_EINVAL, prefix, "cert and ", prefix, "key go together; ",
            prefix, exposure->tls_cert ? "key" : "cert", " is missing", NULL);
    if (exposure->tls_ca && !exposure->tls_cert)
        return weir_diag_set(diag, WEIR_EINVAL, prefix,
                             "ca is of no use without TLS; ", prefix,
                             "cert and ", prefix, "key are missing", NULL);
    /* An authority is named to keep other clients out. */
    if (exposure->tls_ca && !exposure->credentials)
        return weir_diag_set(diag, WEIR_EINVAL, prefix,
                             "ca names the authority of clients' certificates, "
                             "and --credentials, their rights, is missing",
                             NULL);
    return 0;
}

/* Other hosts can reach such an address, and read its traffic. */
int weir_exposure_check_place(const struct weir_exposure *exposure,
                              const char *option,
                              const struct weir_listen_address *place,
                              struct weir_diag *diag)
{
    bool is_safe = exposure->tls_cert && exposure->credentials;
    if (weir_listen_address_is_local(place) || exposure->insecure || is_safe)
        return 0;
    struct weir_diag missing;
    char shown[WEIR_LISTEN_ADDRESS_TEXT_MAX];
    weir_listen_address_show(place, shown);
    const char *prefix = exposure->prefix;
    if (exposure->tls_cert)
        weir_diag_put(&missing, 0, "--credentials is");
    else
        weir_diag_set(&missing, 0, prefix, "cert",
                      exposure->credentials ? " and " : ", ", prefix, "key",
                      exposure->credentials ? "" : " and --credentials", " are",
                      NULL);
    /* All addresses are easily meant as loopback: the text says how that is
     * written. */
    bool is_all = !place->address.host[0];
    char loopback[WEIR_LISTEN_ADDRESS_TEXT_MAX] = "";
    struct weir_address local = { .host = "127.0.0.1",
                                  .port = place->address.port };
    if (is_all) {
        loopback[0] = ' ';
        weir_address_text(&local, loopback + 1);
    }
    return weir_diag_set(
        diag, WEIR_EINVAL, option, " ", shown,
        is_all ? ": other hosts can reach it, at all addresses of this one, "
                 "and "
               : ": other hosts can reach that address, and ",
        missing.text,
        " missing; `weir cert` makes certificates to try. Or listen on "
        "loopback",
        loopback, ", or insist with --insecure", NULL);
}

int weir_exposure_tls(const struct weir_exposure *exposure, const char *alpn,
                      struct weir_tls **out, struct weir_diag *diag)
{
    const struct weir_tls_options options = {
        .server = true,
        .alpn = alpn,
        .ca = exposure->tls_ca,
        .cert = exposure->tls_cert,
        .key = exposure->tls_key,
    };
    return exposure->tls_cert ? weir_tls_new(&options, out, diag) : 0;
}

void weir_exposure_warn_of_names(const struct weir_exposure *exposure,
                                 const struct weir_credentials *credentials,
                                 const struct weir_log *log)
{
    size_t count = !credentials || exposure->tls_ca
                       ? 0
                       : weir_credentials_certificates(credentials);
    if (count > 0)
        weir_log(log, WEIR_LOG_WARNING,
                 "%zu lines of %s name certificates, but without %sca "
                 "clients show none: these lines admit no client",
                 count, exposure->credentials, exposure->prefix);
}

bool weir_exposure_reload(const struct weir_exposure *exposure,
                          struct weir_credentials *credentials, bool always,
                          const struct weir_log *log)
{
    struct weir_diag why = { 0 };
    if (!credentials || !(always || weir_credentials_is_changed(credentials)))
        return false;
    if (weir_credentials_reload(credentials, &why) < 0) {
        weir_log(log, WEIR_LOG_ERROR,
                 "credentials aren't reloaded, the old ones stay: %s",
                 why.text);
        return false;
    }
    weir_log(log, WEIR_LOG_INFO, "reloaded %zu credentials of %s",
             weir_credentials_count(credentials), exposure->credentials);
    weir_exposure_warn_of_names(exposure, credentials, log);
    return true;
}
