/* SPDX-License-Identifier: MIT
 * store/shared_uri.c - a shared store's URI and credentials.
 *
 * A quota names its store, and many people can read quotas; therefore a URI
 * holds no secret, and one with a password is refused. Credentials are in a
 * file of the limiter's host, which is read at each connect: a password can be
 * changed without a restart.
 *
 * An editor of quotas may replace rediss:// by redis://. Therefore the file,
 * not the quota, decides where a password may be sent in plain text: to this
 * host, and to a server with a line that begins with redis://. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/quota/quota_text.h"
#include "store/shared_internal.h"

#define DATABASE_MAX 65535u
#define FILE_MAX_BYTES (64 * 1024)

/* ---- The URI ---- */

static const struct scheme {
    const char *name;
    enum weir_shared_kind kind;
    bool tls;
} schemes[] = {
    { "redis://", WEIR_SHARED_REDIS, false },
    { "rediss://", WEIR_SHARED_REDIS, true },
    { "memcached://", WEIR_SHARED_MEMCACHED, false },
};

static const struct scheme *find_scheme(struct weir_text text)
{
    for (size_t i = 0; i < WEIR_COUNT_OF(schemes); i++) {
        size_t len = strlen(schemes[i].name);
        if (text.len >= len && memcmp(text.p, schemes[i].name, len) == 0)
            return &schemes[i];
    }
    return NULL;
}

static struct weir_text skip_bytes(struct weir_text text, size_t len)
{
    return (struct weir_text){ text.p + len, text.len - len };
}

/* Takes off and returns the text before the first 'c', which is dropped; all of
 * '*rest' if it has none. */
static struct weir_text cut_uri_at(struct weir_text *rest, char c)
{
    const char *at = rest->len > 0 ? memchr(rest->p, c, rest->len) : NULL;
    struct weir_text piece = *rest;
    if (at)
        piece.len = (size_t)(at - rest->p);
    *rest = skip_bytes(*rest, at ? piece.len + 1 : piece.len);
    return piece;
}

static int parse_database(struct weir_text text, unsigned *out,
                          struct weir_diag *diag)
{
    uint64_t number = 0;
    bool sound =
        text.len <= 5 && (text.len == 0 || weir_number_parse(text, &number));
    if (!sound || number > DATABASE_MAX)
        return weir_diag_put(diag, WEIR_ESYNTAX,
                             "behind the / of a redis URI comes a "
                             "database's number, as in redis://HOST:6379/0");
    *out = (unsigned)number;
    return 0;
}

static int parse_servers(struct weir_text list, struct weir_shared_uri *uri,
                         struct weir_diag *diag)
{
    size_t max =
        uri->kind == WEIR_SHARED_MEMCACHED ? WEIR_SHARED_SERVERS_MAX : 1;
    bool more = true;
    while (more) {
        if (uri->count == max)
            return weir_diag_put(diag, WEIR_EINVAL,
                                 max == 1 ? "a redis URI names one server"
                                          : "a memcached URI names at most 16 "
                                            "servers");
        more = list.len > 0 && memchr(list.p, ',', list.len);
        int error = weir_address_parse(cut_uri_at(&list, ','),
                                       &uri->server[uri->count], diag);
        if (error < 0)
            return error;
        if (uri->server[uri->count++].port == 0)
            return weir_diag_put(diag, WEIR_EINVAL,
                                 "a store's port is a number from 1 to 65535");
    }
    return 0;
}

int weir_shared_uri_parse(struct weir_text text, struct weir_shared_uri *out,
                          struct weir_diag *diag)
{
    const struct scheme *scheme = find_scheme(text);
    if (!scheme)
        return weir_diag_put(diag, WEIR_ESYNTAX,
                             "a store is "
                             "redis://HOST:PORT/DB, rediss://HOST:PORT/DB or "
                             "memcached://HOST:PORT,HOST:PORT");
    if (text.len > WEIR_SHARED_URI_MAX)
        return weir_diag_put(diag, WEIR_EINVAL,
                             "a store's URI has at most 512 bytes");
    struct weir_text rest = skip_bytes(text, strlen(scheme->name));
    if (memchr(rest.p, '@', rest.len))
        return weir_diag_put(
            diag, WEIR_EINVAL,
            "every reader of a quota sees its store's URI: take the password "
            "out of it and put it into the secrets file of the limiters");
    struct weir_shared_uri uri = { .kind = scheme->kind, .tls = scheme->tls };
    struct weir_text servers = cut_uri_at(&rest, '/');
    int error = parse_servers(servers, &uri, diag);
    if (error == 0 && uri.kind == WEIR_SHARED_REDIS)
        error = parse_database(rest, &uri.database, diag);
    else if (error == 0 && rest.len > 0)
        error = weir_diag_put(diag, WEIR_ESYNTAX,
                              "nothing follows the servers of a memcached URI");
    if (error == 0)
        *out = uri;
    return error;
}

/* ---- The secrets file ---- */

static int refuse_secrets_file(struct weir_diag *diag, const char *path,
                               const char *why)
{
    return weir_diag_set(diag, WEIR_ECREDENTIAL, path, ": ", why, NULL);
}

static int check_mode(int fd, const char *path, struct weir_diag *diag)
{
    struct stat now;
    if (fstat(fd, &now) != 0 || !S_ISREG(now.st_mode))
        return refuse_secrets_file(diag, path,
                                   "the secrets file is no plain file");
    if (now.st_mode & 077)
        return refuse_secrets_file(diag, path,
                                   "others than its owner may use the "
                                   "secrets file: chmod 600");
    if (now.st_size > FILE_MAX_BYTES)
        return refuse_secrets_file(diag, path,
                                   "the secrets file is over 64 KiB");
    return 0;
}

static bool copy_word(struct weir_text word, char *out)
{
    if (word.len == 0 || word.len > WEIR_SHARED_WORD_MAX)
        return false;
    memcpy(out, word.p, word.len);
    out[word.len] = '\0';
    return true;
}

/* The next word of the line, up to a blank. */
static struct weir_text next_secret_word(struct weir_text *line)
{
    while (line->len > 0 && strchr(" \t\r", line->p[0]))
        *line = skip_bytes(*line, 1);
    size_t len = 0;
    while (len < line->len && !strchr(" \t\r", line->p[len]))
        len++;
    struct weir_text word = { line->p, len };
    *line = skip_bytes(*line, len);
    return word;
}

/* Takes a scheme off; NULL: there is none. */
static const struct scheme *cut_scheme(struct weir_text *server)
{
    const struct scheme *scheme = find_scheme(*server);
    if (scheme)
        *server = skip_bytes(*server, strlen(scheme->name));
    return scheme;
}

/* Parses a line. 1: it is for 'address'; 0: it isn't; WEIR_ETLS: it is, but not
 * for plain text; another negative value: the line is malformed. */
static int parse_secret_line(struct weir_text line,
                             const struct weir_address *address, bool tls,
                             struct weir_shared_secret *out)
{
    struct weir_text server = next_secret_word(&line);
    if (server.len == 0 || server.p[0] == '#')
        return 0;
    const struct scheme *scheme = cut_scheme(&server);
    struct weir_text user = next_secret_word(&line);
    struct weir_text password = next_secret_word(&line);
    struct weir_shared_secret secret = { .user = "" };
    struct weir_address named;
    if (weir_address_parse(server, &named, NULL) < 0 ||
        !copy_word(user, secret.user) ||
        !copy_word(password, secret.password) ||
        next_secret_word(&line).len > 0)
        return WEIR_ECREDENTIAL;
    if (named.port != address->port || strcmp(named.host, address->host) != 0)
        return 0;
    bool plain = scheme ? !scheme->tls : weir_address_is_loopback(address);
    if (!tls && !plain)
        return WEIR_ETLS;
    if (strcmp(secret.user, "-") == 0)
        secret.user[0] = '\0';
    *out = secret;
    return 1;
}

static int find_secret_line(FILE *file, const char *path,
                            const struct weir_address *address, bool tls,
                            struct weir_shared_secret *out,
                            struct weir_diag *diag)
{
    char line[1024];
    for (unsigned number = 1; fgets(line, sizeof(line), file); number++) {
        size_t len = strcspn(line, "\n");
        int found = line[len] == '\n' || feof(file)
                        ? parse_secret_line((struct weir_text){ line, len },
                                            address, tls, out)
                        : WEIR_ECREDENTIAL;
        explicit_bzero(line, sizeof(line));
        if (found > 0)
            return 0;
        if (found < 0) {
            if (diag)
                diag->line = number;
            return refuse_secrets_file(
                diag, path,
                found == WEIR_ETLS
                    ? "the password goes over TLS only: name the store "
                      "as rediss://, or begin its line with redis://"
                    : "a line of the secrets file is HOST:PORT USER PASSWORD");
        }
    }
    return 0;
}

int weir_shared_secret_read(const char *path,
                            const struct weir_address *address, bool tls,
                            struct weir_shared_secret *out,
                            struct weir_diag *diag)
{
    struct weir_shared_secret secret = { .user = "" };
    if (!path) {
        *out = secret;
        return 0;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (!file) {
        const char *why = strerror(errno);
        if (fd >= 0)
            close(fd);
        return refuse_secrets_file(diag, path, why);
    }
    int error = check_mode(fd, path, diag);
    if (error == 0)
        error = find_secret_line(file, path, address, tls, &secret, diag);
    fclose(file);
    if (error == 0)
        *out = secret;
    explicit_bzero(&secret, sizeof(secret));
    return error;
}
