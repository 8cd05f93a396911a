/* SPDX-License-Identifier: MIT
 * io/tls.c - OpenSSL contexts, made from files and reloaded.
 *
 * Theory of operation. A context is made completely or not at all: every file
 * is read into a new one, the parts are checked against each other, and only
 * then it replaces the old one. A connection keeps a reference to the context
 * that it began with.
 *
 * A file's stamp is taken before it is read: a file that changes meanwhile
 * counts as changed, and is read once more.
 *
 * A client's context has a library context of its own: no other code uses its
 * locks, so a child of fork() can make another one at any time, and the
 * program's OpenSSL settings and ours don't affect each other. No atexit
 * handler is installed, unless the program has asked for one: at exit() OpenSSL
 * frees nothing that a running thread still uses.
 *
 * No session is ever resumed: limiters rarely connect, and a ticket would
 * outlive its certificates. */

#include "io/tls.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/tls_internal.h"

#define SECURITY_LEVEL 2 /* OpenSSL's: 112 bits, no SHA-1 */

enum { CA, CERT, KEY, FILES };

/* The identity of a file when it was read. */
struct stamp {
    bool there;
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec changed, modified;
};

struct weir_tls {
    bool server;
    bool demand;
    const char *alpn;
    char *path[FILES]; /* owned; NULL: none */
    struct stamp stamp[FILES];
    struct weir_tls_context *context;
};

/* ---- Files ---- */

static bool is_file(const struct weir_tls *tls, int i)
{
    return tls->path[i] &&
           (i != CA || strcmp(tls->path[i], WEIR_TLS_SYSTEM) != 0);
}

static struct stamp file_stamp_of(const char *path)
{
    struct stat now;
    if (stat(path, &now) != 0)
        return (struct stamp){ .there = false };
    return (struct stamp){ .there = true,
                           .device = now.st_dev,
                           .inode = now.st_ino,
                           .size = now.st_size,
                           .changed = now.st_ctim,
                           .modified = now.st_mtim };
}

static bool is_same_timespec(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static bool same_stamp(const struct stamp *a, const struct stamp *b)
{
    return a->there == b->there && a->device == b->device &&
           a->inode == b->inode && a->size == b->size &&
           is_same_timespec(a->changed, b->changed) &&
           is_same_timespec(a->modified, b->modified);
}

static int refuse_tls_file(struct weir_diag *diag, const char *path,
                           const char *why)
{
    ERR_clear_error();
    return weir_diag_set(diag, WEIR_ETLS, path, ": ", why, NULL);
}

static int check_readable(const char *path, struct weir_diag *diag)
{
    if (access(path, R_OK) == 0)
        return 0;
    int error = errno == ENOENT || errno == ENOTDIR ? WEIR_ENOENT : WEIR_ETLS;
    return weir_diag_set(diag, error, path,
                         ": it can't be read: ", strerror(errno), NULL);
}

/* ---- One context ---- */

/* Refuses to ask for a passphrase: there may be no terminal. */
static int no_passphrase(char *buf, int size, int writing, void *asked)
{
    (void)buf;
    (void)size;
    (void)writing;
    *(bool *)asked = true;
    return 0;
}

static int use_authorities(const struct weir_tls *tls, SSL_CTX *ssl,
                           struct weir_diag *diag)
{
    if (!is_file(tls, CA))
        return SSL_CTX_set_default_verify_paths(ssl) == 1
                   ? 0
                   : weir_diag_set(diag, WEIR_ETLS,
                                   "the authorities of this "
                                   "system can't be found: name a file",
                                   NULL);
    if (SSL_CTX_load_verify_file(ssl, tls->path[CA]) != 1)
        return refuse_tls_file(diag, tls->path[CA],
                               "this is no whole PEM file of certificates");
    STACK_OF(X509_NAME) *names =
        tls->server ? SSL_load_client_CA_file(tls->path[CA]) : NULL;
    if (names)
        SSL_CTX_set_client_CA_list(ssl, names);
    return 0;
}

static int use_certificate(const struct weir_tls *tls, SSL_CTX *ssl,
                           struct weir_diag *diag)
{
    bool asked = false;
    SSL_CTX_set_default_passwd_cb(ssl, no_passphrase);
    SSL_CTX_set_default_passwd_cb_userdata(ssl, &asked);
    int error = 0;
    if (SSL_CTX_use_certificate_chain_file(ssl, tls->path[CERT]) != 1)
        error = refuse_tls_file(diag, tls->path[CERT],
                                "this is no whole PEM file of "
                                "a certificate and its chain");
    else if (SSL_CTX_use_PrivateKey_file(ssl, tls->path[KEY],
                                         SSL_FILETYPE_PEM) != 1)
        error = refuse_tls_file(
            diag, tls->path[KEY],
            asked ? "the key is encrypted, and Weir can't ask for "
                    "its passphrase: keep it plain, chmod 600"
                  : "this is no PEM file of the private key that "
                    "is the certificate's");
    else if (SSL_CTX_check_private_key(ssl) != 1)
        error = refuse_tls_file(diag, tls->path[KEY],
                                "the key isn't that of the certificate");
    SSL_CTX_set_default_passwd_cb_userdata(ssl, NULL);
    return error;
}

/* The server chooses a protocol among the client's. */
static int choose_protocol(SSL *ssl, const unsigned char **out,
                           unsigned char *out_len, const unsigned char *in,
                           unsigned len, void *context)
{
    (void)ssl;
    const char *ours = context;
    size_t ours_len = strlen(ours);
    for (unsigned at = 0; at < len && at + in[at] < len; at += 1u + in[at]) {
        if (in[at] != ours_len || memcmp(in + at + 1, ours, ours_len) != 0)
            continue;
        *out = in + at + 1;
        *out_len = in[at];
        return SSL_TLSEXT_ERR_OK;
    }
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

static bool use_protocol(const struct weir_tls *tls, SSL_CTX *ssl)
{
    if (tls->server && tls->alpn) {
        SSL_CTX_set_alpn_select_cb(ssl, choose_protocol, (void *)tls->alpn);
        return true;
    }
    if (!tls->alpn)
        return true;
    unsigned char offer[32];
    size_t len = strlen(tls->alpn);
    weir_assert(len > 0 && len < sizeof(offer));
    offer[0] = (unsigned char)len;
    memcpy(offer + 1, tls->alpn, len);
    return SSL_CTX_set_alpn_protos(ssl, offer, (unsigned)len + 1) == 0;
}

static void set_rules(const struct weir_tls *tls, SSL_CTX *ssl)
{
    SSL_CTX_set_security_level(ssl, SECURITY_LEVEL);
    SSL_CTX_set_min_proto_version(ssl, TLS1_2_VERSION);
    SSL_CTX_set_options(ssl, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION |
                                 SSL_OP_NO_TICKET);
    SSL_CTX_set_num_tickets(ssl, 0);
    SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(ssl, SSL_MODE_ENABLE_PARTIAL_WRITE |
                              SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_RELEASE_BUFFERS);
    /* One recv() per record instead of two. */
    SSL_CTX_set_read_ahead(ssl, 1);
    int verify = SSL_VERIFY_NONE;
    if (tls->path[CA])
        verify = SSL_VERIFY_PEER;
    if (tls->demand)
        verify |= SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
    SSL_CTX_set_verify(ssl, verify, NULL);
}

static int fill_context(const struct weir_tls *tls,
                        struct weir_tls_context *context,
                        struct weir_diag *diag)
{
    context->library = tls->server ? NULL : OSSL_LIB_CTX_new();
    bool made = tls->server || context->library;
    context->ssl = made ? SSL_CTX_new_ex(context->library, NULL,
                                         tls->server ? TLS_server_method()
                                                     : TLS_client_method())
                        : NULL;
    if (!context->ssl || !use_protocol(tls, context->ssl))
        return weir_diag_set(diag, WEIR_ENOMEM, weir_strerror(WEIR_ENOMEM),
                             NULL);
    set_rules(tls, context->ssl);
    int error = tls->path[CA] ? use_authorities(tls, context->ssl, diag) : 0;
    if (error == 0 && tls->path[CERT])
        error = use_certificate(tls, context->ssl, diag);
    return error;
}

static int make_context(const struct weir_tls *tls,
                        struct weir_tls_context **out, struct weir_diag *diag)
{
    for (int i = 0; i < FILES; i++) {
        int error = is_file(tls, i) ? check_readable(tls->path[i], diag) : 0;
        if (error < 0)
            return error;
    }
    struct weir_tls_context *context = calloc(1, sizeof(*context));
    if (!context)
        return weir_diag_set(diag, WEIR_ENOMEM, weir_strerror(WEIR_ENOMEM),
                             NULL);
    context->users = 1;
    int error = fill_context(tls, context, diag);
    ERR_clear_error();
    if (error < 0)
        weir_tls_context_drop(context);
    else
        *out = context;
    return error;
}

struct weir_tls_context *weir_tls_context_of(const struct weir_tls *tls)
{
    return tls->context;
}

void weir_tls_context_drop(struct weir_tls_context *context)
{
    weir_assert(!context || context->users > 0);
    if (!context || --context->users > 0)
        return;
    SSL_CTX_free(context->ssl);
    OSSL_LIB_CTX_free(context->library);
    free(context);
}

/* ---- Life ---- */

static int check_options(const struct weir_tls_options *options,
                         struct weir_diag *diag)
{
    const char *why = NULL;
    if (!options->cert != !options->key)
        why = "a certificate and its key are named together, or neither";
    else if (options->server && !options->cert)
        why = "a server of TLS needs a certificate and its key";
    else if (!options->server && !options->ca)
        why = "a client of TLS needs a CA to trust: name its file, or "
              "\"system\"";
    else if (options->demand && !options->ca)
        why = "certificates of clients need an authority to verify them by";
    return why ? weir_diag_set(diag, WEIR_EINVAL, why, NULL) : 0;
}

static bool copy_paths(struct weir_tls *tls,
                       const struct weir_tls_options *options)
{
    const char *named[FILES] = { options->ca, options->cert, options->key };
    for (int i = 0; i < FILES; i++) {
        tls->path[i] = named[i] ? strdup(named[i]) : NULL;
        if (named[i] && !tls->path[i])
            return false;
    }
    return true;
}

int weir_tls_new(const struct weir_tls_options *options, struct weir_tls **out,
                 struct weir_diag *diag)
{
    int error = check_options(options, diag);
    if (error < 0)
        return error;
    (void)OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, NULL);
    struct weir_tls *tls = calloc(1, sizeof(*tls));
    if (!tls || !copy_paths(tls, options)) {
        weir_tls_free(&tls);
        return weir_diag_set(diag, WEIR_ENOMEM, weir_strerror(WEIR_ENOMEM),
                             NULL);
    }
    tls->server = options->server;
    tls->demand = options->demand;
    tls->alpn = options->alpn;
    error = weir_tls_reload(tls, diag);
    if (error < 0)
        weir_tls_free(&tls);
    else
        *out = tls;
    return error;
}

void weir_tls_free(struct weir_tls **tls)
{
    struct weir_tls *self = *tls;
    if (!self)
        return;
    *tls = NULL;
    weir_tls_context_drop(self->context);
    for (int i = 0; i < FILES; i++)
        free(self->path[i]);
    free(self);
}

bool weir_tls_is_changed(const struct weir_tls *tls)
{
    for (int i = 0; i < FILES; i++) {
        if (!is_file(tls, i))
            continue;
        struct stamp now = file_stamp_of(tls->path[i]);
        if (!same_stamp(&now, &tls->stamp[i]))
            return true;
    }
    return false;
}

int weir_tls_reload(struct weir_tls *tls, struct weir_diag *diag)
{
    for (int i = 0; i < FILES; i++)
        if (is_file(tls, i))
            tls->stamp[i] = file_stamp_of(tls->path[i]);
    struct weir_tls_context *fresh = NULL;
    int error = make_context(tls, &fresh, diag);
    if (error < 0)
        return error;
    weir_tls_context_drop(tls->context);
    tls->context = fresh;
    return 0;
}

int64_t weir_tls_expires_in(const struct weir_tls *tls)
{
    const X509 *shown = SSL_CTX_get0_certificate(tls->context->ssl);
    int days = 0;
    int seconds = 0;
    if (!shown ||
        !ASN1_TIME_diff(&days, &seconds, NULL, X509_get0_notAfter(shown)))
        return INT64_MAX;
    return (int64_t)days * 86400 + seconds;
}
