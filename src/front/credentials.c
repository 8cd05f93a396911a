/* SPDX-License-Identifier: MIT
 * front/credentials.c - a file of credentials, read whole or not at all.
 *
 * The file is read into a fresh 'set', which takes the place of the old one
 * only when every line of it is sound. Names are kept where they stand in the
 * file's text; of a token only its SHA-256 stays in memory, and its bytes in
 * the text are wiped.
 *
 * A token that a client shows is hashed and compared with every known one, to
 * the end, so that the time doesn't tell how near it was. A binary search over
 * the hashes would tell a little about hashes, from which no token follows; but
 * 10,000 comparisons take a few hundred microseconds at worst, and need no such
 * argument.
 *
 * No message quotes a word of a line: a word in the wrong place may be the
 * secret. */

#include "front/credentials.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/quota/glob.h"
#include "core/quota/quota.h"
#include "core/quota/quota_text.h"
#include "io/clock.h"
#include "io/file_stamp.h"

#define DIGEST_SIZE SHA256_DIGEST_LENGTH
#define DIGEST_MARK "sha256:"
#define WORDS_MAX 5 /* of a line; one more than any credential has */

struct credential {
    struct weir_text grants; /* as written, roles with their globs; in 'text' */
    bool is_token;
    unsigned char digest[DIGEST_SIZE]; /* of a token */
    struct weir_text name; /* a token's, a certificate's glob; in 'text' */
    uint32_t line;
};

/* The contents of one file. */
struct set {
    char *text; /* owned; the file, its tokens wiped */
    size_t len;
    struct credential *list; /* owned */
    size_t count, capacity;
    bool has_plain; /* some token was written in plain */
};

struct weir_credentials {
    char *path; /* owned */
    struct set set;
    /* when the file was last read, sound or not */
    struct weir_file_stamp stamp;
};

/* ---- Roles ---- */

static const struct {
    const char *name;
    enum weir_role role;
    unsigned with; /* roles that it includes */
} roles[] = {
    { "read", WEIR_ROLE_READ, 0 },
    { "take", WEIR_ROLE_TAKE, 0 },
    { "edit", WEIR_ROLE_EDIT, WEIR_ROLE_READ },
    { "root", WEIR_ROLE_ROOT, WEIR_ROLE_TAKE },
};

const char *weir_role_name(enum weir_role role)
{
    for (size_t i = 0; i < WEIR_COUNT_OF(roles); i++)
        if (roles[i].role == role)
            return roles[i].name;
    return "unknown";
}

static unsigned find_role(struct weir_text word)
{
    for (size_t i = 0; i < WEIR_COUNT_OF(roles); i++)
        if (weir_text_equal(word, weir_text_of(roles[i].name)))
            return roles[i].role | roles[i].with;
    return 0;
}

/* One word of "read,take:a-*", in its parts. */
struct grant {
    struct weir_text role;
    bool limited;          /* the word has a colon … */
    struct weir_text glob; /* … and this after it */
};

static bool next_grant(struct weir_text *words, struct grant *out)
{
    if (!words->p)
        return false;
    const char *comma = memchr(words->p, ',', words->len);
    size_t len = comma ? (size_t)(comma - words->p) : words->len;
    struct weir_text word = { words->p, len };
    *words =
        comma ? weir_text_drop(*words, len + 1) : (struct weir_text){ NULL, 0 };
    const char *colon = memchr(word.p, ':', word.len);
    size_t role_len = colon ? (size_t)(colon - word.p) : word.len;
    *out = (struct grant){ .role = { word.p, role_len },
                           .limited = colon != NULL };
    if (colon)
        out->glob = weir_text_drop(word, role_len + 1);
    return true;
}

/* Adds the rights of "read,take:a-*", which is known to be sound. 0 or
 * WEIR_ETOOBIG. */
static int add_grants(struct weir_text words, struct weir_identity *to)
{
    struct grant grant;
    int error = 0;
    while (error == 0 && next_grant(&words, &grant)) {
        unsigned role = find_role(grant.role);
        to->roles |= role;
        if (grant.limited)
            error = weir_name_set_add(&to->take, grant.glob);
        else if (role & WEIR_ROLE_TAKE)
            to->take.all = true;
    }
    return error;
}

static int check_line_grants(struct weir_text words, struct weir_diag *diag)
{
    struct weir_identity all = { .roles = 0 };
    struct weir_text rest = words;
    struct grant grant;
    bool limited = false;
    while (next_grant(&rest, &grant)) {
        unsigned role = find_role(grant.role);
        limited |= grant.limited;
        if (role == 0)
            return weir_diag_put(diag, WEIR_ESYNTAX,
                                 "the roles are read, take, edit and root, "
                                 "with commas between");
        if (grant.limited && role != WEIR_ROLE_TAKE)
            return weir_diag_put(diag, WEIR_ESYNTAX,
                                 "only take can be limited to names of "
                                 "quotas: take:GLOB");
        if (grant.limited && weir_name_check(grant.glob, NULL) < 0)
            return weir_diag_put(diag, WEIR_ESYNTAX,
                                 "take: needs a glob of names of quotas, at "
                                 "most 255 bytes of UTF-8");
    }
    if (add_grants(words, &all) < 0)
        return weir_diag_put(diag, WEIR_ESYNTAX,
                             "the globs of a line are at most 512 bytes: let "
                             "one fit more names");
    if (limited && all.take.all)
        return weir_diag_put(diag, WEIR_ESYNTAX,
                             "take and root are for all names: beside them "
                             "take:GLOB limits nothing");
    return 0;
}

/* ---- A line ---- */

static bool is_blank_char(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Cuts 'line' into words, up to WORDS_MAX and up to one that begins with
 * '#'. Returns how many. */
static size_t split_words(struct weir_text line, struct weir_text *out_words)
{
    size_t count = 0;
    size_t at = 0;
    while (count < WORDS_MAX) {
        while (at < line.len && is_blank_char(line.p[at]))
            at++;
        if (at == line.len || line.p[at] == '#')
            break;
        size_t begin = at;
        while (at < line.len && !is_blank_char(line.p[at]))
            at++;
        out_words[count++] = (struct weir_text){ line.p + begin, at - begin };
    }
    return count;
}

static bool parse_digest(struct weir_text hex, unsigned char *out)
{
    if (hex.len != 2 * DIGEST_SIZE)
        return false;
    for (size_t i = 0; i < DIGEST_SIZE; i++) {
        int high = OPENSSL_hexchar2int((unsigned char)hex.p[2 * i]);
        int low = OPENSSL_hexchar2int((unsigned char)hex.p[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        out[i] = (unsigned char)(high << 4 | low);
    }
    return true;
}

/* Only bytes that can stand in a header and in a line: visible ASCII. */
static bool is_sound_token(struct weir_text token)
{
    for (size_t i = 0; i < token.len; i++)
        if (token.p[i] <= ' ' || token.p[i] > '~')
            return false;
    return token.len >= WEIR_TOKEN_MIN && token.len <= WEIR_TOKEN_MAX;
}

/* False: no memory, and 'out' is what it was. It must not be compared: in a
 * caller's frame that may be the digest of the peer before. */
static bool hash_token(struct weir_text token, unsigned char *out)
{
    return SHA256((const unsigned char *)token.p, token.len, out) != NULL;
}

/* "sha256:HEX" or the token itself, which is wiped from the text. */
static int parse_secret(struct set *set, struct weir_text word,
                        struct credential *credential, struct weir_diag *diag)
{
    size_t mark = strlen(DIGEST_MARK);
    bool hashed = word.len >= mark && memcmp(word.p, DIGEST_MARK, mark) == 0;
    struct weir_text hex = { word.p + mark, word.len - mark };
    if (hashed && parse_digest(hex, credential->digest))
        return 0;
    if (hashed)
        return weir_diag_put(diag, WEIR_ESYNTAX,
                             "behind sha256: stand 64 hexadecimal digits: "
                             "printf %s TOKEN | sha256sum");
    if (!is_sound_token(word))
        return weir_diag_put(diag, WEIR_ESYNTAX,
                             "a token is 16 to 512 visible ASCII characters; "
                             "for example: openssl rand -hex 24");
    if (!hash_token(word, credential->digest))
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
    OPENSSL_cleanse(set->text + (word.p - set->text), word.len);
    set->has_plain = true;
    return 0;
}

static int add_credential(struct set *set, const struct credential *credential,
                          struct weir_diag *diag)
{
    if (set->count == WEIR_CREDENTIALS_MAX)
        return weir_diag_put(diag, WEIR_ETOOBIG,
                             "more than 10000 credentials; let several "
                             "services share a certificate's glob");
    struct credential *list =
        weir_mem_grow(&weir_mem_system, set->list, sizeof *list, &set->capacity,
                      set->count + 1);
    if (!list)
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
    set->list = list;
    weir_assert(set->count < set->capacity);
    set->list[set->count++] = *credential;
    return 0;
}

static int parse_credential(struct set *set, struct weir_text line,
                            uint32_t number, struct weir_diag *diag)
{
    struct weir_text words[WORDS_MAX];
    size_t count = split_words(line, words);
    if (count == 0)
        return 0;
    bool is_cert = count > 1 && weir_text_equal(words[1], WEIR_TEXT("cert"));
    bool shared = count > 1 && weir_text_equal(words[1], WEIR_TEXT("token"));
    if (!(is_cert && count == 3) && !(shared && count == 4))
        return weir_diag_put(diag, WEIR_ESYNTAX,
                             "a line is ROLES cert GLOB, "
                             "or ROLES token NAME TOKEN");
    struct credential credential = {
        .grants = words[0], .is_token = shared, .name = words[2], .line = number
    };
    int error = check_line_grants(words[0], diag);
    if (error < 0)
        return error;
    if (weir_name_check(words[2], NULL) < 0)
        return weir_diag_put(diag, WEIR_ESYNTAX,
                             "the third word is a name: "
                             "at most 255 bytes of UTF-8");
    error = shared ? parse_secret(set, words[3], &credential, diag) : 0;
    return error < 0 ? error : add_credential(set, &credential, diag);
}

/* ---- A file's text ---- */

static int compare_digests(const void *a, const void *b)
{
    const struct credential *one = a;
    const struct credential *other = b;
    if (one->is_token != other->is_token)
        return one->is_token - other->is_token;
    int order =
        one->is_token ? memcmp(one->digest, other->digest, DIGEST_SIZE) : 0;
    return order != 0 ? order
                      : (one->line > other->line) - (one->line < other->line);
}

/* Refuses one token under two names: the log could not tell them apart. */
static int check_repeated_tokens(struct set *set, struct weir_diag *diag)
{
    qsort(set->list, set->count, sizeof *set->list, compare_digests);
    for (size_t i = 1; i < set->count; i++) {
        const struct credential *one = &set->list[i - 1];
        const struct credential *other = &set->list[i];
        bool same = one->is_token &&
                    memcmp(one->digest, other->digest, DIGEST_SIZE) == 0;
        if (!same)
            continue;
        char line[16];
        snprintf(line, sizeof line, "%u", (unsigned)one->line);
        if (diag)
            diag->line = other->line;
        return weir_diag_set(diag, WEIR_ESYNTAX, "this token stands in line ",
                             line, " already", NULL);
    }
    return 0;
}

static int parse_lines(struct set *set, struct weir_diag *diag)
{
    uint32_t number = 0;
    size_t at = 0;
    while (at < set->len) {
        const char *begin = set->text + at;
        const char *newline = memchr(begin, '\n', set->len - at);
        size_t len = newline ? (size_t)(newline - begin) : set->len - at;
        int error = parse_credential(set, (struct weir_text){ begin, len },
                                     ++number, diag);
        if (error < 0 && diag)
            diag->line = number;
        if (error < 0)
            return error;
        at += len + 1;
    }
    /* An editor may leave an empty file for a moment, which must lock no client
     * out. */
    if (set->count == 0)
        return weir_diag_put(diag, WEIR_ESYNTAX,
                             "there is no credential in it");
    return check_repeated_tokens(set, diag);
}

static void set_fini(struct set *set)
{
    if (set->text)
        OPENSSL_cleanse(set->text, set->len);
    free(set->text);
    weir_mem_system.free(NULL, set->list, set->capacity * sizeof *set->list);
    *set = (struct set){ 0 };
}

/* ---- The file ---- */

/* Checks the permissions of other users, not of the file's group: the operator
 * chose the members of that group. */
static int check_others(const struct stat *file, const struct set *set,
                        struct weir_diag *diag)
{
    if (file->st_mode & S_IWOTH)
        return weir_diag_put(diag, WEIR_EINVAL,
                             "any user may write it: chmod 600 it");
    if (set->has_plain && (file->st_mode & S_IROTH))
        return weir_diag_put(
            diag, WEIR_EINVAL,
            "it has a plain token and any user may read it: chmod 600 it, or "
            "write the token as sha256:…");
    return 0;
}

static int read_credentials_file(int fd, const struct stat *file,
                                 struct set *set, struct weir_diag *diag)
{
    if (!S_ISREG(file->st_mode))
        return weir_diag_put(diag, WEIR_EINVAL, "it is no plain file");
    if (file->st_size > (off_t)WEIR_CREDENTIALS_BYTES_MAX)
        return weir_diag_put(diag, WEIR_ETOOBIG, "it is over 4 MiB");
    size_t size = (size_t)file->st_size;
    set->text = malloc(size + 1);
    if (!set->text)
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
    while (set->len < size) {
        ssize_t more = read(fd, set->text + set->len, size - set->len);
        if (more < 0 && errno == EINTR)
            continue;
        if (more < 0)
            return weir_diag_put(diag, WEIR_ESYSTEM, strerror(errno));
        /* The file was cut meanwhile: the next check reads it again. */
        if (more == 0)
            break;
        set->len += (size_t)more;
    }
    return 0;
}

static int load_credentials(const char *path, struct set *out,
                            struct weir_file_stamp *stamp,
                            struct weir_diag *diag)
{
    *stamp = (struct weir_file_stamp){ 0 };
    /* O_NONBLOCK: a pipe in its place is refused, not waited for. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return weir_diag_put(diag, errno == ENOENT ? WEIR_ENOENT : WEIR_ESYSTEM,
                             strerror(errno));
    struct stat file;
    struct set set = { 0 };
    int error = fstat(fd, &file) < 0
                    ? weir_diag_put(diag, WEIR_ESYSTEM, strerror(errno))
                    : 0;
    if (error == 0) {
        *stamp = weir_file_stamp_of(&file);
        error = read_credentials_file(fd, &file, &set, diag);
    }
    close(fd);
    if (error == 0)
        error = parse_lines(&set, diag);
    if (error == 0)
        error = check_others(&file, &set, diag);
    if (error < 0)
        set_fini(&set);
    else
        *out = set;
    return error;
}

/* Puts the path, and the line if one is known, before the message of
 * 'inner'. */
static int refuse_with_path(const char *path, int error,
                            const struct weir_diag *inner,
                            struct weir_diag *diag)
{
    char line[24] = "";
    if (inner->line > 0)
        snprintf(line, sizeof line, ":%u", (unsigned)inner->line);
    weir_diag_set(diag, error, "--credentials ", path, line, ": ", inner->text,
                  NULL);
    if (diag)
        diag->line = inner->line;
    return error;
}

int weir_credentials_open(const char *path, struct weir_credentials **out,
                          struct weir_diag *diag)
{
    struct weir_credentials *made = calloc(1, sizeof *made);
    char *copy = strdup(path);
    if (!made || !copy) {
        free(made);
        free(copy);
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
    }
    made->path = copy;
    int error = weir_credentials_reload(made, diag);
    if (error < 0)
        weir_credentials_free(&made);
    else
        *out = made;
    return error;
}

void weir_credentials_free(struct weir_credentials **credentials)
{
    if (!*credentials)
        return;
    set_fini(&(*credentials)->set);
    free((*credentials)->path);
    free(*credentials);
    *credentials = NULL;
}

bool weir_credentials_is_changed(const struct weir_credentials *credentials)
{
    return weir_file_stamp_differs(credentials->path, &credentials->stamp);
}

int weir_credentials_reload(struct weir_credentials *credentials,
                            struct weir_diag *diag)
{
    struct set set;
    struct weir_diag inner = { 0 };
    int error =
        load_credentials(credentials->path, &set, &credentials->stamp, &inner);
    if (error < 0)
        return refuse_with_path(credentials->path, error, &inner, diag);
    set_fini(&credentials->set);
    credentials->set = set;
    return 0;
}

size_t weir_credentials_count(const struct weir_credentials *credentials)
{
    return credentials->set.count;
}

size_t weir_credentials_certificates(const struct weir_credentials *credentials)
{
    size_t count = 0;
    for (size_t i = 0; i < credentials->set.count; i++)
        count += !credentials->set.list[i].is_token;
    return count;
}

/* ---- Identities ---- */

/* The token of "Bearer TOKEN"; false: the header has another form. */
static bool read_bearer_token(struct weir_text authorization,
                              struct weir_text *out)
{
    static const char scheme[] = "bearer ";
    size_t len = sizeof scheme - 1;
    if (authorization.len < len ||
        strncasecmp(authorization.p, scheme, len) != 0)
        return false;
    while (len < authorization.len && authorization.p[len] == ' ')
        len++;
    *out = (struct weir_text){ authorization.p + len, authorization.len - len };
    return is_sound_token(*out);
}

/* Compares with every token, also after a match. '*out' is NULL if there is
 * none. 0 or WEIR_ENOMEM. */
static int find_token(const struct set *set, struct weir_text token,
                      const struct credential **out)
{
    unsigned char digest[DIGEST_SIZE];
    if (!hash_token(token, digest))
        return WEIR_ENOMEM;
    const struct credential *found = NULL;
    for (size_t i = 0; i < set->count; i++) {
        const struct credential *known = &set->list[i];
        if (known->is_token &&
            CRYPTO_memcmp(digest, known->digest, DIGEST_SIZE) == 0)
            found = known;
    }
    *out = found;
    return 0;
}

/* 0 or WEIR_ETOOBIG. */
static int add_grants_of(const struct set *set, struct weir_text name,
                         struct weir_identity *to)
{
    int error = 0;
    for (size_t i = 0; i < set->count && error == 0; i++) {
        const struct credential *known = &set->list[i];
        if (!known->is_token && weir_glob_match(known->name, name, NULL))
            error = add_grants(known->grants, to);
    }
    return error;
}

static void set_identity_name(struct weir_identity *identity,
                              struct weir_text name)
{
    size_t len = name.len < WEIR_IDENTITY_MAX ? name.len : WEIR_IDENTITY_MAX;
    memcpy(identity->name, name.p, len);
    identity->name[len] = '\0';
}

/* Skips a name that isn't clean text, because it would go to the log. 0 or
 * WEIR_ETOOBIG. */
static int add_names(const struct set *set, const struct weir_tls_peer *peer,
                     struct weir_identity *identity)
{
    int error = 0;
    for (size_t i = 0; peer && i < peer->count && error == 0; i++) {
        struct weir_text name = weir_text_of(peer->name[i]);
        if (weir_name_check(name, NULL) < 0)
            continue;
        error = add_grants_of(set, name, identity);
        if (identity->name[0] == '\0')
            set_identity_name(identity, name);
    }
    return error;
}

static int refuse_globs(struct weir_diag *diag)
{
    return weir_diag_put(diag, WEIR_ETOOBIG,
                         "the credentials that fit have "
                         "more than 512 bytes of globs together");
}

int weir_credentials_find(const struct weir_credentials *credentials,
                          const struct weir_tls_peer *peer,
                          struct weir_text authorization,
                          struct weir_identity *out, struct weir_diag *diag)
{
    struct weir_identity identity = { .roles = 0 };
    if (!credentials) {
        identity.roles = WEIR_ROLES_ALL;
        identity.take = weir_name_set_all;
        set_identity_name(&identity, WEIR_TEXT(WEIR_IDENTITY_ANONYMOUS));
        *out = identity;
        return 0;
    }
    const struct set *set = &credentials->set;
    if (add_names(set, peer, &identity) < 0)
        return refuse_globs(diag);
    if (authorization.len > 0) {
        struct weir_text token;
        const struct credential *known = NULL;
        if (read_bearer_token(authorization, &token) &&
            find_token(set, token, &known) < 0)
            return weir_diag_put(diag, WEIR_ENOMEM, NULL);
        if (!known)
            return weir_diag_put(diag, WEIR_ECREDENTIAL,
                                 "the token isn't a known one");
        if (add_grants(known->grants, &identity) < 0)
            return refuse_globs(diag);
        set_identity_name(&identity, known->name);
    }
    if (identity.roles == 0)
        return weir_diag_put(
            diag, WEIR_ECREDENTIAL,
            peer && peer->count > 0
                ? "the certificate's names aren't among the credentials"
                : "a credential is required: a client certificate or a "
                  "token");
    *out = identity;
    return 0;
}

int weir_identity_check(const struct weir_identity *identity,
                        enum weir_role role, struct weir_diag *diag)
{
    if (identity->roles & role)
        return 0;
    return weir_diag_set(diag, WEIR_EDENIED, "the credential of ",
                         identity->name, " hasn't the role '",
                         weir_role_name(role), "'", NULL);
}

int weir_identity_check_name(const struct weir_identity *identity,
                             struct weir_text name, struct weir_diag *diag)
{
    static const struct weir_name_set none = { .all = false };
    bool takes = identity->roles & WEIR_ROLE_TAKE;
    return weir_name_set_check(takes ? &identity->take : &none, identity->name,
                               name, diag);
}
