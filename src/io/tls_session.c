/* SPDX-License-Identifier: MIT
 * io/tls_session.c - TLS between a stream and its socket.
 *
 * Theory of operation. OpenSSL reads and writes the socket through a BIO of
 * ours, by recv() and send(): its own BIO uses write(), which raises SIGPIPE,
 * and a library can't change the process's signals. A stream keeps its queue
 * and its bounds; OpenSSL holds one more record each way.
 *
 * A failure is permanent: it is kept, with its sentence, and returned again.
 *
 * Under TLS 1.3 a server checks the client's certificate after the client has
 * finished its handshake. The client finds a refusal in an alert at its next
 * read, or never, if it writes into the closed socket first. Therefore a write
 * that fails looks for an alert before it reports "broken pipe".
 *
 * Rejected: bufferevent_openssl (SIGPIPE, a second queue in each direction
 * with bounds of its own), and two BIOs in memory (all bytes copied twice). */

#include "io/tls_session.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "io/tls_internal.h"

#define RECORD_MAX 16384 /* bytes of payload of one record */
#define WHY_MAX 192

struct weir_tls_session {
    struct weir_tls_context *context;
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

/* ---- Life ---- */

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
    session->context = weir_tls_context_of(tls);
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
    weir_tls_context_drop(self->context);
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
        return weir_tls_explain(session->ssl, session->host, session->text,
                                sizeof(session->text));
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

void weir_tls_session_names(const struct weir_tls_session *session,
                            struct weir_tls_peer *out)
{
    weir_tls_names_of(session->ssl, out);
}

const char *weir_tls_session_doubt(const struct weir_tls_session *session,
                                   const struct weir_tls *now)
{
    return weir_tls_doubt(session->ssl, now);
}
