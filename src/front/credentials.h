/* SPDX-License-Identifier: MIT
 * front/credentials.h - the file that `--credentials` names: the rights of
 * clients.
 *
 * A line a credential; '#' begins a comment:
 *
 *     # roles        how     name                   secret
 *     edit           token   ops@example.org        sha256:9f86d0…
 *     take           cert    payments-*
 *     root           cert    eu-*
 *     read,take      token   dashboard              a-plain-secret
 *     take:a-*,take:shared  cert  team-a-*
 *
 * The role 'take' may be limited to names of quotas, by a glob after a colon:
 * 'take:a-*'. Several globs add up, in a line and over the lines that fit one
 * certificate; 'take' alone, or 'root', is for all names. Another role with a
 * glob is refused, and so is a line that has 'take' both with and without a
 * glob: it would look like a limit and be none. A glob can't contain a blank or
 * a comma: '*' stands for them.
 *
 * The name of a cert is a glob against the names of a client certificate that
 * the listener's authority (--tls-ca) has signed; of a token, a name for the
 * log of edits. A token is given in plain or as its SHA-256. If several lines
 * fit one certificate, it has the roles of all of them.
 *
 * The comparison of a token takes the same time for every token. The file is
 * read again when it changes, and on SIGHUP; a file that can't be parsed
 * changes nothing.
 *
 * One thread. Knows no sockets. */

#ifndef WEIR_CREDENTIALS_H
#define WEIR_CREDENTIALS_H

#include "core/quota/name_set.h"
#include "io/tls.h"

#define WEIR_CREDENTIALS_MAX 10000 /* lines with a credential */
#define WEIR_CREDENTIALS_BYTES_MAX (4u << 20)
#define WEIR_TOKEN_MIN 16 /* bytes of a plain token */
#define WEIR_TOKEN_MAX 512
#define WEIR_IDENTITY_MAX 255 /* bytes of a name for the log */

/* Roles, as bits. 'edit' includes 'read', 'root' includes 'take'. */
enum weir_role {
    WEIR_ROLE_READ = 1, /* look at quotas, usage, status, metrics */
    WEIR_ROLE_TAKE = 2, /* a limiter's root link; single decisions */
    WEIR_ROLE_EDIT = 4, /* change quotas */
    WEIR_ROLE_ROOT = 8, /* a root's link to its upstream */
};
#define WEIR_ROLES_ALL 15u
/* "read", "take" …; static. */
const char *weir_role_name(enum weir_role role);

#define WEIR_IDENTITY_ANONYMOUS "anonymous"
/* An authenticated client; the connection keeps it. */
struct weir_identity {
    unsigned roles;
    /* NUL-terminated; "anonymous" without credentials in force */
    char name[WEIR_IDENTITY_MAX + 1];
    /* with the role 'take': the quotas that it may take from */
    struct weir_name_set take;
};

struct weir_credentials;

/* Reads the file at 'path'. WEIR_ENOENT, WEIR_ESYNTAX ('diag' has the line;
 * also: no credential in it), WEIR_ETOOBIG, WEIR_ENOMEM, WEIR_ESYSTEM. A file
 * that users outside its group may write is refused (WEIR_EINVAL: chmod 600),
 * and so is one with a plain token that they may read. */
int weir_credentials_open(const char *path, struct weir_credentials **out,
                          struct weir_diag *diag);
/* NULL inside is legal. */
void weir_credentials_free(struct weir_credentials **credentials);
/* Lines with a credential. */
size_t weir_credentials_count(const struct weir_credentials *credentials);
/* Lines with a certificate's name. */
size_t weir_credentials_certificates(
    const struct weir_credentials *credentials);
/* As the functions of io/tls.h. */
bool weir_credentials_is_changed(const struct weir_credentials *credentials);
int weir_credentials_reload(struct weir_credentials *credentials,
                            struct weir_diag *diag);

/* Identifies a client by 'peer' (its verified certificate; NULL: none) and
 * 'authorization' (the header, "Bearer …"; empty: none). The roles of both add
 * up; 'name' is the token's, else the certificate's first. 0, or
 * WEIR_ECREDENTIAL: it showed nothing, or nothing known; or a token that isn't
 * known, whatever the certificate. WEIR_ENOMEM: the token can't be compared.
 * WEIR_ETOOBIG: the globs of all lines that fit are more than a name set holds.
 * 'credentials' NULL: no credentials are in force, every client may do all. */
int weir_credentials_find(const struct weir_credentials *credentials,
                          const struct weir_tls_peer *peer,
                          struct weir_text authorization,
                          struct weir_identity *out, struct weir_diag *diag);
/* 0, or WEIR_EDENIED with 'diag' naming the missing role. */
int weir_identity_check(const struct weir_identity *identity,
                        enum weir_role role, struct weir_diag *diag);
/* Whether the identity may take from the quota 'name': 0, or WEIR_EDENIED with
 * 'diag' naming both. */
int weir_identity_check_name(const struct weir_identity *identity,
                             struct weir_text name, struct weir_diag *diag);

#endif /* WEIR_CREDENTIALS_H */
