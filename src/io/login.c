/* SPDX-License-Identifier: MIT
 * io/login.c - a client's certificates and token, from their files.
 *
 * The thread that uses a TLS context makes it, at its first use: OpenSSL's data
 * for the thread then end with the thread, and a child of fork() makes its own
 * context in the same way. A token isn't kept: its file is read for each call,
 * which is rare. */

#include "io/login.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BEARER "Bearer "
#define TOKEN_MAX 512 /* bytes; a root accepts no more */

enum { CA, CERT, KEY, TOKEN, FILES };

struct weir_login {
    char *path[FILES]; /* owned; NULL: none */
    struct weir_tls *tls;
};

static const char *path_or_null(const char *path)
{
    return path && *path ? path : NULL;
}

static struct weir_tls_options tls_options(const char *ca, const char *cert,
                                           const char *key)
{
    return (struct weir_tls_options){
        .alpn = "h2", .ca = ca, .cert = cert, .key = key
    };
}

/* ---- The token ---- */

/* Whether HTTP allows the text in a header; blanks aren't allowed here. */
static bool is_bearer_token(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return false;
    return len > 0;
}

static int refuse_token(struct weir_diag *diag, const char *path,
                        const char *why)
{
    return weir_diag_set(diag, WEIR_ECREDENTIAL, path, ": ", why, NULL);
}

/* Reads the first line of the file; 'out' gets it behind BEARER. */
static int read_token(const char *path, char *out, struct weir_diag *diag)
{
    char line[TOKEN_MAX + 2] = ""; /* a newline, and the NUL */
    FILE *file = fopen(path, "re");
    bool read = file && fgets(line, sizeof(line), file);
    bool broken = !file || ferror(file);
    int error = errno;
    if (file)
        (void)fclose(file);
    if (!read && broken)
        return weir_diag_set(diag, WEIR_ECREDENTIAL, path,
                             ": the token can't be read: ", strerror(error),
                             NULL);
    size_t len = strcspn(line, "\r\n");
    int result = 0;
    if (len > TOKEN_MAX)
        result = refuse_token(diag, path, "a token has at most 512 bytes");
    else if (!is_bearer_token(line, len))
        result = refuse_token(
            diag, path,
            "its first line is no token: write one, without blanks");
    else
        snprintf(out, WEIR_H2_AUTHORIZATION_MAX + 1, BEARER "%.*s", (int)len,
                 line);
    explicit_bzero(line, sizeof(line));
    return result;
}

int weir_login_authorization(const struct weir_login *login,
                             char out[WEIR_H2_AUTHORIZATION_MAX + 1],
                             struct weir_diag *diag)
{
    if (login->path[TOKEN])
        return read_token(login->path[TOKEN], out, diag);
    out[0] = '\0';
    return 0;
}

/* ---- Checks ---- */

int weir_login_check_address(const struct weir_login_options *options,
                             const struct weir_address *address,
                             struct weir_diag *diag)
{
    if (!path_or_null(options->token_file) || path_or_null(options->tls_ca) ||
        weir_address_is_loopback(address))
        return 0;
    return weir_diag_set(diag, WEIR_EINVAL, "a token isn't sent to ",
                         address->host, " in plain text: name the CA to trust",
                         NULL);
}

int weir_login_check(const struct weir_login_options *options,
                     struct weir_diag *diag)
{
    const char *ca = path_or_null(options->tls_ca);
    const char *cert = path_or_null(options->tls_cert);
    const char *key = path_or_null(options->tls_key);
    int error = 0;
    if (ca || cert || key) {
        struct weir_tls_options tls_of = tls_options(ca, cert, key);
        struct weir_tls *tls = NULL;
        error = weir_tls_new(&tls_of, &tls, diag);
        weir_tls_free(&tls);
    }
    if (error < 0 || !path_or_null(options->token_file))
        return error;
    char authorization[WEIR_H2_AUTHORIZATION_MAX + 1] = "";
    error = read_token(options->token_file, authorization, diag);
    explicit_bzero(authorization, sizeof(authorization));
    return error;
}

/* ---- Life ---- */

struct weir_login *weir_login_new(const struct weir_login_options *options)
{
    const char *named[FILES] = { options->tls_ca, options->tls_cert,
                                 options->tls_key, options->token_file };
    struct weir_login *login = calloc(1, sizeof(*login));
    for (int i = 0; login && i < FILES; i++) {
        if (!path_or_null(named[i]))
            continue;
        login->path[i] = strdup(named[i]);
        if (!login->path[i])
            weir_login_free(&login);
    }
    return login;
}

void weir_login_free(struct weir_login **login)
{
    struct weir_login *self = *login;
    if (!self)
        return;
    *login = NULL;
    weir_tls_free(&self->tls);
    for (int i = 0; i < FILES; i++)
        free(self->path[i]);
    free(self);
}

void weir_login_forget(struct weir_login *login)
{
    login->tls = NULL;
}

int weir_login_tls(struct weir_login *login, struct weir_tls **out,
                   struct weir_diag *diag)
{
    int error = 0;
    if (!login->path[CA]) {
        *out = NULL;
        return 0;
    }
    if (!login->tls) {
        struct weir_tls_options options =
            tls_options(login->path[CA], login->path[CERT], login->path[KEY]);
        error = weir_tls_new(&options, &login->tls, diag);
    } else if (weir_tls_is_changed(login->tls)) {
        error = weir_tls_reload(login->tls, diag) < 0;
    }
    if (error >= 0)
        *out = login->tls;
    return error;
}
