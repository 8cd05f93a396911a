/* SPDX-License-Identifier: MIT
 * io/tls.c - TLS by OpenSSL: contexts, made from files and reloaded, and the
 * sessions between streams and their sockets.
 *
 * Contexts. A context is made completely or not at all: every file is read into
 * a new one, the parts are checked against each other, and only then it
 * replaces the old one. A connection keeps a reference to the context that it
 * began with.
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
 * outlive its certificates.
 *
 * Sessions. OpenSSL reads and writes the socket through a BIO of ours, by
 * recv() and send(): its own BIO uses write(), which raises SIGPIPE, and a
 * library can't change the process's signals. A stream keeps its queue and its
 * bounds; OpenSSL holds one more record each way. The failure of a session is
 * permanent: it is kept, with its sentence, and returned again.
 *
 * Under TLS 1.3 a server checks the client's certificate after the client has
 * finished its handshake. The client finds a refusal in an alert at its next
 * read, or never, if it writes into the closed socket first. Therefore a write
 * that fails looks for an alert before it reports "broken pipe".
 *
 * Rejected: bufferevent_openssl (SIGPIPE, a second queue in each direction
 * with bounds of its own), and two BIOs in memory (all bytes copied twice). */

#include "io/tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "io/file_stamp.h"

#define SECURITY_LEVEL 2 /* OpenSSL's: 112 bits, no SHA-1 */
#define RECORD_MAX 16384 /* bytes of payload of one record */
#define WHY_MAX 192
#define NAME_SHOWN (WHY_MAX - 34) /* bytes of a host's name in a sentence */

enum { CA, CERT, KEY, FILES };

/* The contents of the files, read at one time. Reference-counted, since
 * connections outlive a reload and the weir_tls itself. */
struct context {
    unsigned users;
    OSSL_LIB_CTX *library; /* owned; NULL: the process's */
    SSL_CTX *ssl;          /* owned */
};

struct weir_tls {
    bool server;
    bool demand;
    const char *alpn;
    char *path[FILES]; /* owned; NULL: none */
    struct weir_file_stamp stamp[FILES];
    struct context *context; /* NULL: nothing was read yet */
    time_t valid_from;       /* of a certificate that the last reload refused
                              * because it isn't valid yet; or 0 */
};

struct weir_tls_session {
    struct context *context;
    SSL *ssl;           /* owned */
    BIO_METHOD *method; /* owned */
    int fd;             /* borrowed */
    int error;          /* errno of the last step, or 0 */
    bool eof;           /* the peer has shut the socket */
    bool failed;        /* permanent */
    bool spoken;        /* the peer has sent application bytes */
    bool refused;       /* the handshake, by either side */
    bool more;          /* bytes may be read even if the socket isn't
                         * readable */
    const char *why;    /* static, or 'text' */
    char host[256];     /* "": a server's */
    char text[WHY_MAX];
};

/* ---- Files ---- */

static bool is_file(const struct weir_tls *tls, int i)
{
    return tls->path[i] &&
           (i != CA || strcmp(tls->path[i], WEIR_TLS_SYSTEM) != 0);
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
                   : weir_diag_put(
                         diag, WEIR_ETLS,
                         "the authorities of this system can't be found: name "
                         "a file");
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

static int fill_context(const struct weir_tls *tls, struct context *context,
                        struct weir_diag *diag)
{
    context->library = tls->server ? NULL : OSSL_LIB_CTX_new();
    bool made = tls->server || context->library;
    context->ssl = made ? SSL_CTX_new_ex(context->library, NULL,
                                         tls->server ? TLS_server_method()
                                                     : TLS_client_method())
                        : NULL;
    if (!context->ssl || !use_protocol(tls, context->ssl) ||
        SSL_CTX_set_cipher_list(context->ssl, WEIR_TLS_SUITES) != 1)
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
    set_rules(tls, context->ssl);
    int error = tls->path[CA] ? use_authorities(tls, context->ssl, diag) : 0;
    if (error == 0 && tls->path[CERT])
        error = use_certificate(tls, context->ssl, diag);
    return error;
}

/* Drops a reference; NULL is legal. */
static void drop_context(struct context *context)
{
    weir_assert(!context || context->users > 0);
    if (!context || --context->users > 0)
        return;
    SSL_CTX_free(context->ssl);
    OSSL_LIB_CTX_free(context->library);
    free(context);
}

static int make_context(const struct weir_tls *tls, struct context **out,
                        struct weir_diag *diag)
{
    for (int i = 0; i < FILES; i++) {
        int error = is_file(tls, i) ? check_readable(tls->path[i], diag) : 0;
        if (error < 0)
            return error;
    }
    struct context *context = calloc(1, sizeof(*context));
    if (!context)
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
    context->users = 1;
    int error = fill_context(tls, context, diag);
    ERR_clear_error();
    if (error < 0)
        drop_context(context);
    else
        *out = context;
    return error;
}

/* ---- Validity ---- */

#define DATE_MAX 32    /* "2026-01-31 12:00:00 UTC" */
#define SUBJECT_MAX 64 /* bytes of a common name in a sentence */

static time_t seconds_of(const ASN1_TIME *when)
{
    struct tm parts = { 0 };
    return ASN1_TIME_to_tm(when, &parts) == 1 ? timegm(&parts) : 0;
}

static const char *show_date(time_t when, char buf[DATE_MAX])
{
    struct tm parts;
    if (!gmtime_r(&when, &parts) ||
        strftime(buf, DATE_MAX, "%Y-%m-%d %H:%M:%S UTC", &parts) == 0)
        return "an unknown time";
    return buf;
}

/* Whether a certificate of the file 'path' is valid now. */
static int check_validity(struct weir_tls *tls, const char *path,
                          const X509 *certificate, struct weir_diag *diag)
{
    time_t now = time(NULL);
    time_t from = seconds_of(X509_get0_notBefore(certificate));
    time_t until = seconds_of(X509_get0_notAfter(certificate));
    if (from <= now && now <= until)
        return 0;
    bool is_early = now < from;
    if (is_early && (tls->valid_from == 0 || from < tls->valid_from))
        tls->valid_from = from;
    char subject[SUBJECT_MAX + 1] = "";
    char date[DATE_MAX];
    X509_NAME_get_text_by_NID(X509_get_subject_name(certificate),
                              NID_commonName, subject, sizeof(subject));
    return weir_diag_set(diag, WEIR_ETLS, path, ": the certificate of '",
                         subject,
                         is_early ? "' isn't valid before " : "' expired at ",
                         show_date(is_early ? from : until, date),
                         is_early ? ": name another, or correct the clock"
                                  : ": renew it, or correct the clock",
                         NULL);
}

/* A certificate in use may expire there: it keeps no other file from being
 * read. */
static bool is_in_use(const struct weir_tls *tls, const X509 *certificate)
{
    const X509 *used =
        tls->context ? SSL_CTX_get0_certificate(tls->context->ssl) : NULL;
    return used && X509_cmp(used, certificate) == 0;
}

static int check_own_validity(struct weir_tls *tls, SSL_CTX *ssl,
                              struct weir_diag *diag)
{
    const char *path = tls->path[CERT];
    const X509 *own = SSL_CTX_get0_certificate(ssl);
    STACK_OF(X509) *chain = NULL;
    SSL_CTX_get0_chain_certs(ssl, &chain);
    weir_assert(own);
    if (is_in_use(tls, own))
        return 0;
    int error = check_validity(tls, path, own, diag);
    for (int i = 0; error == 0 && i < sk_X509_num(chain); i++)
        error = check_validity(tls, path, sk_X509_value(chain, i), diag);
    return error;
}

/* One authority that is valid is enough: during a change the file has the old
 * one and the new one. */
static int check_authority_validity(struct weir_tls *tls, SSL_CTX *ssl,
                                    struct weir_diag *diag)
{
    const char *path = tls->path[CA];
    STACK_OF(X509) *all =
        X509_STORE_get1_all_certs(SSL_CTX_get_cert_store(ssl));
    if (!all)
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
    int error = refuse_tls_file(diag, path, "there is no certificate in it");
    for (int i = 0; error < 0 && i < sk_X509_num(all); i++)
        error = check_validity(tls, path, sk_X509_value(all, i), diag);
    sk_X509_pop_free(all, X509_free);
    return error;
}

static int check_validity_of_all(struct weir_tls *tls, SSL_CTX *ssl,
                                 struct weir_diag *diag)
{
    int error = is_file(tls, CA) ? check_authority_validity(tls, ssl, diag) : 0;
    if (error == 0 && tls->path[CERT])
        error = check_own_validity(tls, ssl, diag);
    if (error == 0)
        tls->valid_from = 0;
    return error;
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
    return why ? weir_diag_put(diag, WEIR_EINVAL, why) : 0;
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
        return weir_diag_put(diag, WEIR_ENOMEM, NULL);
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
    drop_context(self->context);
    for (int i = 0; i < FILES; i++)
        free(self->path[i]);
    free(self);
}

bool weir_tls_is_changed(const struct weir_tls *tls)
{
    for (int i = 0; i < FILES; i++) {
        if (is_file(tls, i) &&
            weir_file_stamp_differs(tls->path[i], &tls->stamp[i]))
            return true;
    }
    return tls->valid_from != 0 && time(NULL) >= tls->valid_from;
}

int weir_tls_reload(struct weir_tls *tls, struct weir_diag *diag)
{
    for (int i = 0; i < FILES; i++)
        if (is_file(tls, i))
            tls->stamp[i] = weir_file_stamp_at(tls->path[i]);
    struct context *fresh = NULL;
    tls->valid_from = 0;
    int error = make_context(tls, &fresh, diag);
    if (error == 0)
        error = check_validity_of_all(tls, fresh->ssl, diag);
    if (error < 0) {
        drop_context(fresh);
        return error;
    }
    drop_context(tls->context);
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

/* ---- Names ---- */

static void add_peer_name(struct weir_tls_peer *peer, const ASN1_STRING *name)
{
    unsigned char *utf8 = NULL;
    int len = ASN1_STRING_to_UTF8(&utf8, name);
    /* A name with a NUL in it, "root\0.evil", would pass for "root". */
    bool fits = len > 0 && len <= WEIR_TLS_NAME_MAX &&
                peer->count < WEIR_TLS_NAMES_MAX &&
                !memchr(utf8, '\0', (size_t)len);
    if (fits) {
        memcpy(peer->name[peer->count], utf8, (size_t)len);
        peer->name[peer->count++][len] = '\0';
    }
    if (len >= 0)
        OPENSSL_free(utf8);
}

static void add_common_name(struct weir_tls_peer *peer, const X509 *shown)
{
    const X509_NAME *subject = X509_get_subject_name(shown);
    int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
    if (at >= 0)
        add_peer_name(
            peer, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
}

static void add_dns_names(struct weir_tls_peer *peer, const X509 *shown)
{
    GENERAL_NAMES *names =
        X509_get_ext_d2i(shown, NID_subject_alt_name, NULL, NULL);
    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
        if (name->type == GEN_DNS)
            add_peer_name(peer, name->d.dNSName);
    }
    GENERAL_NAMES_free(names);
}

void weir_tls_session_names(const struct weir_tls_session *session,
                            struct weir_tls_peer *out)
{
    const SSL *ssl = session->ssl;
    out->count = 0;
    const X509 *shown = SSL_get0_peer_certificate(ssl);
    if (!shown || SSL_get_verify_mode(ssl) == SSL_VERIFY_NONE ||
        SSL_get_verify_result(ssl) != X509_V_OK)
        return;
    add_common_name(out, shown);
    add_dns_names(out, shown);
    ERR_clear_error();
}

/* ---- Validity of an open connection ---- */

static bool is_ended(const X509 *certificate)
{
    return X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0;
}

/* Whether the server's current authorities would accept the certificate. */
static bool is_trusted(const SSL *ssl, X509 *shown, const struct weir_tls *now)
{
    X509_STORE *store = SSL_CTX_get_cert_store(now->context->ssl);
    X509_STORE_CTX *check = X509_STORE_CTX_new();
    bool good = check &&
                X509_STORE_CTX_init(check, store, shown,
                                    SSL_get_peer_cert_chain(ssl)) == 1 &&
                X509_STORE_CTX_set_default(check, "ssl_client") == 1 &&
                X509_verify_cert(check) == 1;
    X509_STORE_CTX_free(check);
    ERR_clear_error();
    return good;
}

const char *weir_tls_session_doubt(const struct weir_tls_session *session,
                                   const struct weir_tls *now)
{
    const SSL *ssl = session->ssl;
    if (!SSL_is_init_finished(ssl))
        return now ? WEIR_TLS_OUTDATED : NULL;
    X509 *shown = SSL_get0_peer_certificate(ssl);
    if (!shown)
        return NULL;
    const STACK_OF(X509) *chain = SSL_get0_verified_chain(ssl);
    for (int i = 0; i < sk_X509_num(chain); i++)
        if (is_ended(sk_X509_value(chain, i)))
            return "the certificate shown, or one of its chain, has ended";
    if (now && !is_trusted(ssl, shown, now))
        return "the certificate shown is from no authority that is trusted "
               "here any more";
    return NULL;
}

/* ---- Reasons ---- */

struct reason {
    int code;
    const char *text;
};

/* TLS numbers its alerts; OpenSSL adds 1000 to that when it receives one. */
#define ALERT(number) (SSL_AD_REASON_OFFSET + (number))
#define NO_TLS "the peer doesn't speak TLS here"
#define UNTRUSTED "the peer's certificate is from no authority that we trust"

static const struct reason failures[] = {
    { ALERT(SSL_AD_HANDSHAKE_FAILURE),
      "the peer refuses the handshake: it has no cipher that we have, or wants "
      "a certificate of ours" },
    { ALERT(SSL_AD_BAD_CERTIFICATE), "the peer refuses our certificate" },
    { ALERT(SSL_AD_UNSUPPORTED_CERTIFICATE),
      "the peer refuses our certificate: it is for another purpose" },
    { ALERT(SSL_AD_CERTIFICATE_REVOKED),
      "the peer refuses our certificate: it is revoked" },
    { ALERT(SSL_AD_CERTIFICATE_EXPIRED),
      "the peer refuses our certificate: it has expired" },
    { ALERT(SSL_AD_CERTIFICATE_UNKNOWN), "the peer refuses our certificate" },
    { ALERT(SSL_AD_UNKNOWN_CA),
      "the peer refuses our certificate: it doesn't know its authority" },
    { ALERT(SSL_AD_PROTOCOL_VERSION),
      "the peer has no version of TLS that we have (1.2, 1.3)" },
    { ALERT(SSL_AD_CERTIFICATE_REQUIRED),
      "the peer wants a certificate of ours: none is named" },
    { ALERT(SSL_AD_NO_APPLICATION_PROTOCOL),
      "the peer speaks another protocol on this port" },
    { SSL_R_WRONG_VERSION_NUMBER, NO_TLS },
    { SSL_R_HTTP_REQUEST, NO_TLS },
    { SSL_R_HTTPS_PROXY_REQUEST, NO_TLS },
    { SSL_R_UNKNOWN_PROTOCOL, NO_TLS },
    { SSL_R_PACKET_LENGTH_TOO_LONG, NO_TLS },
    { SSL_R_BAD_LENGTH, NO_TLS },
    { SSL_R_UNEXPECTED_MESSAGE, NO_TLS },
    { SSL_R_UNSUPPORTED_PROTOCOL,
      "the peer has no version of TLS that we have (1.2, 1.3)" },
    { SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE,
      "the peer shows no certificate, and must" },
    { SSL_R_NO_SHARED_CIPHER, "the peer has no cipher that we have" },
};

static const struct reason verdicts[] = {
    { X509_V_ERR_CERT_HAS_EXPIRED, "the peer's certificate has expired" },
    { X509_V_ERR_CERT_NOT_YET_VALID,
      "the peer's certificate isn't valid yet: are the clocks right?" },
    { X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT, UNTRUSTED },
    { X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY, UNTRUSTED },
    { X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE, UNTRUSTED },
    { X509_V_ERR_CERT_SIGNATURE_FAILURE, UNTRUSTED },
    { X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT, UNTRUSTED },
    { X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN, UNTRUSTED },
    { X509_V_ERR_INVALID_PURPOSE,
      "the peer's certificate is for another purpose" },
};

static const char *find_reason(const struct reason *reasons, size_t count,
                               int code)
{
    for (size_t i = 0; i < count; i++)
        if (reasons[i].code == code)
            return reasons[i].text;
    return NULL;
}

static const char *explain_verdict(struct weir_tls_session *session,
                                   long verdict)
{
    if (verdict == X509_V_ERR_HOSTNAME_MISMATCH ||
        verdict == X509_V_ERR_IP_ADDRESS_MISMATCH) {
        snprintf(session->text, sizeof(session->text),
                 "the peer's certificate isn't for %.*s", NAME_SHOWN,
                 session->host);
        return session->text;
    }
    const char *known =
        find_reason(verdicts, WEIR_COUNT_OF(verdicts), (int)verdict);
    if (known)
        return known;
    snprintf(session->text, sizeof(session->text), "the peer's certificate: %s",
             X509_verify_cert_error_string(verdict));
    return session->text;
}

/* The reason why a handshake, a read or a write failed: a static sentence, or
 * one in the session. Empties OpenSSL's queue of errors. */
static const char *explain_failure(struct weir_tls_session *session)
{
    unsigned long error = ERR_peek_error();
    long verdict = SSL_get_verify_result(session->ssl);
    int code = ERR_GET_REASON(error);
    ERR_clear_error();
    if (verdict != X509_V_OK)
        return explain_verdict(session, verdict);
    const char *known = find_reason(failures, WEIR_COUNT_OF(failures), code);
    if (known)
        return known;
    const char *theirs = ERR_reason_error_string(error);
    snprintf(session->text, sizeof(session->text), "TLS failed: %s",
             theirs ? theirs : "no reason given");
    return session->text;
}

/* ---- The socket, as OpenSSL sees it ---- */

/* Whether the result 'done' means "not now". */
static bool is_again(struct weir_tls_session *session, ssize_t done)
{
    if (done >= 0)
        return false;
    if (errno == EAGAIN || errno == EWOULDBLOCK)
        return true;
    session->error = errno;
    return false;
}

static int bio_read(BIO *bio, char *buf, int size)
{
    struct weir_tls_session *session = BIO_get_data(bio);
    ssize_t got;
    do {
        got = recv(session->fd, buf, (size_t)size, MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    session->eof |= got == 0;
    BIO_clear_retry_flags(bio);
    if (is_again(session, got))
        BIO_set_retry_read(bio);
    return (int)got;
}

static int bio_write(BIO *bio, const char *bytes, int len)
{
    struct weir_tls_session *session = BIO_get_data(bio);
    ssize_t sent;
    do {
        sent =
            send(session->fd, bytes, (size_t)len, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (sent < 0 && errno == EINTR);
    BIO_clear_retry_flags(bio);
    if (is_again(session, sent))
        BIO_set_retry_write(bio);
    return (int)sent;
}

static long bio_control(BIO *bio, int command, long number, void *pointer)
{
    (void)number;
    (void)pointer;
    const struct weir_tls_session *session = BIO_get_data(bio);
    if (command == BIO_CTRL_EOF)
        return session->eof;
    return command == BIO_CTRL_FLUSH;
}

static BIO_METHOD *make_method(void)
{
    BIO_METHOD *method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "weir");
    if (!method)
        return NULL;
    BIO_meth_set_read(method, bio_read);
    BIO_meth_set_write(method, bio_write);
    BIO_meth_set_ctrl(method, bio_control);
    return method;
}

static bool attach_socket(struct weir_tls_session *session)
{
    BIO *bio = session->method ? BIO_new(session->method) : NULL;
    if (!bio)
        return false;
    BIO_set_data(bio, session);
    BIO_set_init(bio, 1);
    SSL_set_bio(session->ssl, bio, bio);
    return true;
}

/* ---- Life of a session ---- */

/* Demands that the peer's certificate is for this name or address, in its
 * subjectAltName. */
static bool expect_host(SSL *ssl, const char *host)
{
    struct in6_addr ignored;
    X509_VERIFY_PARAM *rules = SSL_get0_param(ssl);
    if (inet_pton(AF_INET, host, &ignored) == 1 ||
        inet_pton(AF_INET6, host, &ignored) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(rules, host) == 1;
    X509_VERIFY_PARAM_set_hostflags(rules,
                                    X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS |
                                        X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    return SSL_set_tlsext_host_name(ssl, host) == 1 &&
           SSL_set1_host(ssl, host) == 1;
}

static bool prepare_session(struct weir_tls_session *session, const char *host)
{
    session->ssl = SSL_new(session->context->ssl);
    session->method = make_method();
    if (!session->ssl || !attach_socket(session))
        return false;
    if (!host) {
        SSL_set_accept_state(session->ssl);
        return true;
    }
    weir_assert(strlen(host) < sizeof(session->host));
    strcpy(session->host, host);
    SSL_set_connect_state(session->ssl);
    return expect_host(session->ssl, host);
}

struct weir_tls_session *weir_tls_session_new(struct weir_tls *tls,
                                              const char *host)
{
    struct weir_tls_session *session = calloc(1, sizeof(*session));
    if (!session)
        return NULL;
    session->fd = -1;
    session->context = tls->context;
    weir_assert(session->context->users > 0);
    session->context->users++;
    bool made = prepare_session(session, host);
    ERR_clear_error();
    if (!made)
        weir_tls_session_free(&session);
    return session;
}

void weir_tls_session_free(struct weir_tls_session **session)
{
    struct weir_tls_session *self = *session;
    if (!self)
        return;
    *session = NULL;
    SSL_free(self->ssl);
    BIO_meth_free(self->method);
    drop_context(self->context);
    free(self);
}

void weir_tls_begin(struct weir_tls_session *session, int fd)
{
    weir_assert(session->fd < 0);
    session->fd = fd;
}

/* ---- Steps ---- */

static enum weir_tls_step fail_session(struct weir_tls_session *session,
                                       const char *why)
{
    weir_assert(why);
    session->failed = true;
    session->why = why;
    ERR_clear_error();
    return WEIR_TLS_FAILED;
}

static const char *explain_end(struct weir_tls_session *session)
{
    bool known = (ERR_peek_error() != 0 && !session->eof) ||
                 SSL_get_verify_result(session->ssl) != X509_V_OK;
    session->refused = known && !session->spoken;
    if (known)
        return explain_failure(session);
    if (session->error != 0)
        return strerror(session->error);
    return SSL_is_init_finished(session->ssl)
               ? "the peer closed the connection"
               : "the peer closed the connection in the handshake: does it "
                 "speak TLS?";
}

/* Converts OpenSSL's 'result'. */
static enum weir_tls_step step_of_result(struct weir_tls_session *session,
                                         int result)
{
    switch (SSL_get_error(session->ssl, result)) {
    case SSL_ERROR_NONE:
        return WEIR_TLS_DONE;
    case SSL_ERROR_WANT_READ:
        return WEIR_TLS_READS;
    case SSL_ERROR_WANT_WRITE:
        return WEIR_TLS_WRITES;
    case SSL_ERROR_ZERO_RETURN:
        return fail_session(session, "the peer closed the connection");
    default:
        return fail_session(session, explain_end(session));
    }
}

static void begin_step(struct weir_tls_session *session)
{
    /* Errors that other code has left in this thread's queue aren't explained
     * here. */
    ERR_clear_error();
    session->error = 0;
}

enum weir_tls_step weir_tls_handshake(struct weir_tls_session *session)
{
    if (session->failed)
        return WEIR_TLS_FAILED;
    begin_step(session);
    enum weir_tls_step step =
        step_of_result(session, SSL_do_handshake(session->ssl));
    /* During the handshake OpenSSL holds at most part of a record, whose rest
     * must come from the socket. */
    session->more = step == WEIR_TLS_DONE && SSL_has_pending(session->ssl);
    return step;
}

enum weir_tls_step weir_tls_read(struct weir_tls_session *session, void *buf,
                                 size_t size, size_t *out_len)
{
    size_t len = 0;
    enum weir_tls_step step = WEIR_TLS_DONE;
    while (!session->failed && len < size && step == WEIR_TLS_DONE) {
        size_t got = 0;
        begin_step(session);
        step =
            step_of_result(session, SSL_read_ex(session->ssl, (char *)buf + len,
                                                size - len, &got));
        len += got;
    }
    /* SSL_has_pending() doesn't decide this: it is true for part of a
     * record. */
    session->more = session->failed || len == size;
    session->spoken |= len > 0;
    if (len == 0)
        return session->failed ? WEIR_TLS_FAILED : step;
    *out_len = len;
    return WEIR_TLS_DONE;
}

bool weir_tls_is_pending(const struct weir_tls_session *session)
{
    return session->more;
}

/* Looks for the alert that a peer may have sent before it closed. Other bytes
 * that it sent are lost with the connection. */
static void look_for_alert(struct weir_tls_session *session)
{
    char bytes[4096];
    int left = 64;
    int result;
    int errno_of_write = session->error;
    do {
        begin_step(session);
        result = SSL_read(session->ssl, bytes, sizeof(bytes));
    } while (result > 0 && --left > 0);
    if (SSL_get_error(session->ssl, result) != SSL_ERROR_SSL || session->eof) {
        ERR_clear_error();
        session->error = errno_of_write;
    }
}

enum weir_tls_step weir_tls_write(struct weir_tls_session *session,
                                  const void *bytes, size_t len,
                                  size_t *out_len)
{
    if (session->failed)
        return WEIR_TLS_FAILED;
    begin_step(session);
    size_t sent = 0;
    int result = SSL_write_ex(session->ssl, bytes,
                              len < RECORD_MAX ? len : RECORD_MAX, &sent);
    if (result != 1 && session->error != 0) {
        look_for_alert(session);
        return fail_session(session, explain_end(session));
    }
    enum weir_tls_step step = step_of_result(session, result);
    if (step == WEIR_TLS_DONE)
        *out_len = sent;
    return step;
}

enum weir_tls_step weir_tls_end(struct weir_tls_session *session)
{
    if (session->failed || !SSL_is_init_finished(session->ssl))
        return WEIR_TLS_FAILED;
    begin_step(session);
    int result = SSL_shutdown(session->ssl);
    /* 0: our close_notify is sent; we don't wait for the peer's. */
    return result >= 0 ? WEIR_TLS_DONE : step_of_result(session, result);
}

bool weir_tls_is_refused(const struct weir_tls_session *session)
{
    return session->refused;
}

const char *weir_tls_why(const struct weir_tls_session *session)
{
    return session->why;
}
