/* SPDX-License-Identifier: MIT
 * os/login.h - what a client shows to a root, and whom it trusts: the files
 * behind tls_ca, tls_cert, tls_key and token_file, read again when they
 * change.
 *
 *     weir_login_check(&options, &diag)            any thread, beforehand
 *     login = weir_login_new(&options)             reads nothing yet
 *     weir_login_tls(login, &tls, &diag)           before each connection
 *     weir_login_authorization(login, buf, &diag)  before each call
 *
 * The last two on the loop's thread. */

#ifndef WEIR_LOGIN_H
#define WEIR_LOGIN_H

#include "os/stream.h"
#include "os/tls.h"
#include "wire/h2.h"

/* Each may be NULL or "": none. */
struct weir_login_options {
    const char *tls_ca; /* none: plain text */
    const char *tls_cert, *tls_key;
    const char *token_file; /* its first line is the bearer token */
};

struct weir_login;

/* Reads all files and keeps nothing of them. 0; WEIR_EINVAL (they contradict
 * each other), WEIR_ENOENT, WEIR_ETLS, WEIR_ECREDENTIAL (the token's file),
 * WEIR_ENOMEM; 'diag' says which file and what to do. */
int weir_login_check(const struct weir_login_options *options,
                     struct weir_diag *diag);
/* WEIR_EINVAL: a token would go there in plain text, and it isn't this host.
 */
int weir_login_check_address(const struct weir_login_options *options,
                             const struct weir_address *address,
                             struct weir_diag *diag);

/* Copies the paths. NULL: no memory. */
struct weir_login *weir_login_new(const struct weir_login_options *options);
void weir_login_free(struct weir_login **login);
/* In a child of fork(): what the parent has read is left to it, unread. */
void weir_login_forget(struct weir_login *login);

/* '*out' to connect with, borrowed until the next call; NULL: plain text. 0;
 * 1: a file has changed and can't be used ('diag'; said once): by what was
 * read before; negative, as of weir_login_check(): there is nothing of before.
 */
int weir_login_tls(struct weir_login *login, struct weir_tls **out,
                   struct weir_diag *diag);
/* "Bearer …" as the file is now, or "" without one. 0, or WEIR_ECREDENTIAL
 * with 'diag' filled (never by the token). */
int weir_login_authorization(const struct weir_login *login,
                             char out[WEIR_H2_AUTHORIZATION_MAX + 1],
                             struct weir_diag *diag);

#endif /* WEIR_LOGIN_H */
