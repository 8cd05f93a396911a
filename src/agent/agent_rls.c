/* SPDX-License-Identifier: MIT
 * agent/agent_rls.c - Envoy's rate limit service of `weir agent`.
 *
 * The file may be replaced as editors, `cp` and Kubernetes do it: it counts as
 * changed when the path leads to another file, size or time than before, and is
 * read in the second after. If it can't be read, the previous limits stay in
 * force, and that is logged once. */

#include "agent/agent_rls.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct weir_agent_rls {
    const struct weir_agent_rls_options *options; /* borrowed */
    const struct weir_log *log;
    struct weir_rls_service *service; /* owned, as all below */
    struct weir_rlqs_service *quotas;
    struct weir_rls_rules *rules; /* NULL: no file */
    struct stat seen;
    struct weir_rls_listener *listeners[WEIR_AGENT_ADDRESSES_MAX];
};

/* ---- The file ---- */

static int refuse_limits_file(const char *path, struct weir_diag *diag)
{
    return weir_diag_set(diag, WEIR_ESYSTEM, path, ": ", strerror(errno), NULL);
}

/* The file's bytes, malloc'ed; NULL: 'diag' says why. */
static char *read_limits_file(const char *path, size_t *out_len,
                              struct weir_diag *diag)
{
    FILE *file = fopen(path, "re");
    char *text = file ? malloc(WEIR_RLS_CONFIG_BYTES_MAX + 1) : NULL;
    size_t len = text ? fread(text, 1, WEIR_RLS_CONFIG_BYTES_MAX + 1, file) : 0;
    bool read = text && !ferror(file);
    if (!read)
        (void)refuse_limits_file(path, diag);
    if (file)
        fclose(file);
    if (!read) {
        free(text);
        return NULL;
    }
    *out_len = len;
    return text;
}

static int load_limits(struct weir_agent_rls *rls, struct weir_diag *diag)
{
    struct weir_rls_rules *rules;
    size_t len;
    char *text = read_limits_file(rls->options->config, &len, diag);
    if (!text)
        return WEIR_ESYSTEM;
    int error =
        weir_rls_rules_parse((struct weir_text){ text, len }, &rules, diag);
    free(text);
    if (error < 0)
        return error;
    weir_rls_service_set_rules(rls->service, rules);
    weir_rls_rules_free(rls->rules);
    rls->rules = rules;
    return 0;
}

static bool is_limits_file_changed(struct weir_agent_rls *rls)
{
    struct stat now = { 0 };
    const struct stat *seen = &rls->seen;
    /* A file that was removed has changed. */
    (void)stat(rls->options->config, &now);
    bool same = now.st_ino == seen->st_ino && now.st_dev == seen->st_dev &&
                now.st_size == seen->st_size &&
                now.st_mtim.tv_sec == seen->st_mtim.tv_sec &&
                now.st_mtim.tv_nsec == seen->st_mtim.tv_nsec;
    rls->seen = now;
    return !same;
}

static void log_loaded_limits(const struct weir_agent_rls *rls)
{
    size_t count;
    (void)weir_rls_rules_all(rls->rules, &count);
    weir_log(rls->log, WEIR_LOG_INFO, "%zu limits of %s", count,
             rls->options->config);
}

void weir_agent_rls_look(struct weir_agent_rls *rls, bool all)
{
    struct weir_diag diag = { 0 };
    if (!rls || !rls->options->config || !(is_limits_file_changed(rls) || all))
        return;
    if (load_limits(rls, &diag) == 0)
        log_loaded_limits(rls);
    else
        weir_log(rls->log, WEIR_LOG_ERROR,
                 "%s:%u: %s: the previous limits stay in force",
                 rls->options->config, diag.line, diag.text);
}

void weir_agent_rls_recheck(struct weir_agent_rls *rls)
{
    for (size_t i = 0; rls && i < WEIR_AGENT_ADDRESSES_MAX; i++)
        if (rls->listeners[i])
            weir_rls_listener_recheck(rls->listeners[i]);
}

/* ---- Life ---- */

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

static int read_config(struct weir_agent_rls *rls, struct weir_diag *diag)
{
    struct weir_diag why = { 0 };
    if (!rls->options->config)
        return 0;
    (void)is_limits_file_changed(rls);
    int error = load_limits(rls, &why);
    if (error < 0) {
        char at[32];
        snprintf(at, sizeof at, ":%u:%u: ", why.line, why.column);
        return why.line > 0 ? weir_diag_set(diag, error, rls->options->config,
                                            at, why.text, NULL)
                            : weir_diag_put(diag, error, why.text);
    }
    log_loaded_limits(rls);
    return 0;
}

static int open_rls_listeners(struct weir_agent_rls *rls,
                              const struct weir_protocol_host *host,
                              const struct weir_listen_address *places,
                              struct weir_diag *diag)
{
    char shown[WEIR_LISTEN_ADDRESS_TEXT_MAX];
    struct weir_diag why = { 0 };
    for (size_t i = 0; i < rls->options->addresses.count; i++) {
        if (weir_rls_listener_new(host, &places[i], rls->service, rls->quotas,
                                  &rls->listeners[i], &why) < 0)
            return weir_diag_set(diag, WEIR_EINVAL, "--rls ",
                                 rls->options->addresses.items[i], ": ",
                                 why.text, NULL);
        weir_listen_address_show(weir_rls_listener_address(rls->listeners[i]),
                                 shown);
        weir_log(rls->log, WEIR_LOG_INFO, "Envoy's rate limit service at %s",
                 shown);
    }
    return 0;
}

static int open_services(struct weir_agent_rls *rls,
                         const struct weir_protocol_host *host,
                         const struct weir_listen_address *places,
                         struct weir_diag *diag)
{
    struct weir_rls_options options = { .shadow = rls->options->shadow };
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

bool weir_agent_rls_is_asked(const struct weir_agent_rls_options *options)
{
    return options->config || options->headers || options->shadow;
}

int weir_agent_rls_open(const struct weir_protocol_host *host,
                        const struct weir_agent_rls_options *options,
                        const struct weir_listen_address *places,
                        const struct weir_log *log, struct weir_agent_rls **out,
                        struct weir_diag *diag)
{
    *out = NULL;
    struct weir_agent_rls *rls = calloc(1, sizeof *rls);
    if (!rls)
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
    rls->options = options;
    rls->log = log;
    int error = open_services(rls, host, places, diag);
    if (error < 0) {
        weir_agent_rls_close(&rls);
        return error;
    }
    *out = rls;
    return 0;
}

struct weir_rls_service *weir_agent_rls_service(struct weir_agent_rls *rls)
{
    return rls ? rls->service : NULL;
}

const struct weir_listen_address *weir_agent_rls_address(
    const struct weir_agent_rls *rls, size_t i)
{
    if (!rls || i >= WEIR_AGENT_ADDRESSES_MAX || !rls->listeners[i])
        return NULL;
    return weir_rls_listener_address(rls->listeners[i]);
}

void weir_agent_rls_close(struct weir_agent_rls **rls)
{
    struct weir_agent_rls *self = *rls;
    if (!self)
        return;
    for (size_t i = 0; i < WEIR_AGENT_ADDRESSES_MAX; i++)
        weir_rls_listener_free(&self->listeners[i]);
    weir_rls_service_free(self->service);
    weir_rlqs_service_free(self->quotas);
    weir_rls_rules_free(self->rules);
    free(self);
    *rls = NULL;
}
