/* SPDX-License-Identifier: MIT
 * io/login.h - a client's credentials for a root, and the authorities it
 * trusts: the files behind tls_ca, tls_cert, tls_key and token_file, reloaded
 * when they change.
 *
 *     weir_login_check(&options, &diag)            any thread, beforehand
 *     login = weir_login_new(&options)             reads nothing yet
 *     weir_login_tls(login, &tls, &diag)           before each connection
 *     weir_login_authorization(login, buf, &diag)  before each call
 *
 * The last two on the loop's thread. */

#ifndef WEIR_LOGIN_H
#define WEIR_LOGIN_H

#include "io/h2.h"
#include "io/stream.h"
#include "io/tls.h"

/* Each may be NULL or "": none. */
struct weir_login_options {
    const char *tls_ca; /* absent: plain text */
    const char *tls_cert, *tls_key;
    const char *token_file; /* its first line is the bearer token */
};

struct weir_login;

/* Reads all files and keeps nothing of them. 0; WEIR_EINVAL (they contradict
 * each other), WEIR_ENOENT, WEIR_ETLS, WEIR_ECREDENTIAL (the token's file),
 * WEIR_ENOMEM; 'diag' names the file and says what to do. */
int weir_login_check(const struct weir_login_options *options,
                     struct weir_diag *diag);
/* WEIR_EINVAL: the token would be sent in plain text to another host. */
int weir_login_check_address(const struct weir_login_options *options,
                             const struct weir_address *address,
                             struct weir_diag *diag);

/* Copies the paths. NULL: no memory. */
struct weir_login *weir_login_new(const struct weir_login_options *options);
void weir_login_free(struct weir_login **login);
/* In a child of fork(): leaves the contexts to the parent, untouched. */
void weir_login_forget(struct weir_login *login);

/* '*out' is the context to connect with, borrowed until the next call; NULL:
 * plain text. Returns 0; 1: a file has changed and can't be used ('diag',
 * reported once), '*out' is made of the old files; or the errors of
 * weir_login_check(): there are no older files. */
int weir_login_tls(struct weir_login *login, struct weir_tls **out,
                   struct weir_diag *diag);
/* "Bearer …" from the current file, or "" without one. 0, or WEIR_ECREDENTIAL
 * with 'diag' filled (which never has the token). */
int weir_login_authorization(const struct weir_login *login,
                             char out[WEIR_H2_AUTHORIZATION_MAX + 1],
                             struct weir_diag *diag);

#endif /* WEIR_LOGIN_H */
