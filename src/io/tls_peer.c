/* SPDX-License-Identifier: MIT
 * io/tls_peer.c - the peer's names, whether its certificate is still valid, and
 * the reasons of failures. */

#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>

#include "io/tls_internal.h"

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

void weir_tls_names_of(const SSL *ssl, struct weir_tls_peer *out)
{
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
    X509_STORE *store = SSL_CTX_get_cert_store(weir_tls_context_of(now)->ssl);
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

const char *weir_tls_doubt(const SSL *ssl, const struct weir_tls *now)
{
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
      "the peer refuses the handshake; it may want a certificate of ours" },
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

static const char *explain_verdict(long verdict, const char *host, char *buf,
                                   size_t size)
{
    if (verdict == X509_V_ERR_HOSTNAME_MISMATCH ||
        verdict == X509_V_ERR_IP_ADDRESS_MISMATCH) {
        snprintf(buf, size, "the peer's certificate isn't for %s", host);
        return buf;
    }
    const char *known =
        find_reason(verdicts, WEIR_COUNT_OF(verdicts), (int)verdict);
    if (known)
        return known;
    snprintf(buf, size, "the peer's certificate: %s",
             X509_verify_cert_error_string(verdict));
    return buf;
}

const char *weir_tls_explain(const SSL *ssl, const char *host, char *buf,
                             size_t size)
{
    unsigned long error = ERR_peek_error();
    long verdict = SSL_get_verify_result(ssl);
    int code = ERR_GET_REASON(error);
    ERR_clear_error();
    if (verdict != X509_V_OK)
        return explain_verdict(verdict, host, buf, size);
    const char *known = find_reason(failures, WEIR_COUNT_OF(failures), code);
    if (known)
        return known;
    const char *theirs = ERR_reason_error_string(error);
    snprintf(buf, size, "TLS failed: %s", theirs ? theirs : "no reason given");
    return buf;
}
