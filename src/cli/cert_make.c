/* SPDX-License-Identifier: MIT
 * cli/cert_make.c - X.509 by OpenSSL.
 *
 * The three kinds differ in their extensions only. The authority may sign
 * leaves and nothing else (pathlen 0). A leaf has its purpose, so that a stolen
 * client's certificate can't be used by a false root. The names that are
 * checked are the subject's alternative names; the common name is for people,
 * and for the credentials of a root. */

#include "cli/cert_make.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SERIAL_BYTES 16
#define DAY_S 86400L
#define EARLIER_S (-3600L) /* a clock that is a little late sees it as valid */

/* The signer of a certificate; both NULL: itself. */
struct signer {
    X509 *cert;    /* owned */
    EVP_PKEY *key; /* owned */
};

/* OpenSSL's reason; its words need knowledge of OpenSSL. */
static int refuse_openssl(const char *what, struct weir_diag *diag)
{
    const char *why = ERR_reason_error_string(ERR_get_error());
    ERR_clear_error();
    return weir_diag_set(diag, WEIR_ETLS, what, ": ",
                         why ? why : "OpenSSL doesn't say why", NULL);
}

static int refuse_cert_file(int error, const char *path, const char *why,
                            struct weir_diag *diag)
{
    return weir_diag_set(diag, error, path, ": ", why, NULL);
}

/* ---- The signer ---- */

static FILE *open_signer(const char *path, struct weir_diag *diag)
{
    FILE *file = fopen(path, "re");
    if (!file && errno == ENOENT)
        refuse_cert_file(WEIR_ENOENT, path,
                         "there is no authority yet; make one "
                         "first: weir cert ca DIR",
                         diag);
    else if (!file)
        refuse_cert_file(WEIR_ESYSTEM, path, strerror(errno), diag);
    return file;
}

/* OpenSSL must not ask at the terminal. */
static int no_password(char *buf, int size, int writing, void *context)
{
    (void)buf;
    (void)size;
    (void)writing;
    (void)context;
    return -1;
}

static int check_signer(const struct weir_cert_request *request,
                        const struct signer *signer, struct weir_diag *diag)
{
    if (!signer->cert)
        return refuse_openssl(request->ca_cert, diag);
    if (!signer->key)
        return refuse_openssl(request->ca_key, diag);
    if (X509_check_private_key(signer->cert, signer->key) != 1) {
        ERR_clear_error();
        return refuse_cert_file(
            WEIR_ETLS, request->ca_key,
            "this key isn't that of the certificate beside it", diag);
    }
    if (X509_check_ca(signer->cert) != 1)
        return refuse_cert_file(WEIR_ETLS, request->ca_cert,
                                "this certificate isn't an authority's", diag);
    if (X509_cmp_current_time(X509_get0_notAfter(signer->cert)) < 0)
        return refuse_cert_file(
            WEIR_ETLS, request->ca_cert,
            "the authority's certificate has ended; make another in "
            "another folder",
            diag);
    return 0;
}

static int load_signer(const struct weir_cert_request *request,
                       struct signer *out, struct weir_diag *diag)
{
    if (!request->ca_cert)
        return 0;
    FILE *file = open_signer(request->ca_cert, diag);
    if (!file)
        return WEIR_ENOENT;
    out->cert = PEM_read_X509(file, NULL, no_password, NULL);
    fclose(file);
    file = open_signer(request->ca_key, diag);
    if (!file)
        return WEIR_ENOENT;
    out->key = PEM_read_PrivateKey(file, NULL, no_password, NULL);
    fclose(file);
    return check_signer(request, out, diag);
}

/* ---- The certificate ---- */

static bool is_ip(const char *name)
{
    struct in6_addr address;
    return inet_pton(AF_INET, name, &address) == 1 ||
           inet_pton(AF_INET6, name, &address) == 1;
}

/* The characters of a DNS name in a certificate; one '*' label included. */
static bool is_dns(const char *name)
{
    static const char known[] = "abcdefghijklmnopqrstuvwxyz"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._*";
    return name[strspn(name, known)] == '\0';
}

/* Adds the name as it is, without OpenSSL's own syntax. */
static bool add_alternative(GENERAL_NAMES *list, const char *name)
{
    bool ip = is_ip(name);
    GENERAL_NAME *entry = GENERAL_NAME_new();
    ASN1_STRING *value = ip ? (ASN1_STRING *)a2i_IPADDRESS(name)
                            : (ASN1_STRING *)ASN1_IA5STRING_new();
    bool made = entry && value && (ip || ASN1_STRING_set(value, name, -1) == 1);
    if (made)
        GENERAL_NAME_set0_value(entry, ip ? GEN_IPADD : GEN_DNS, value);
    if (made && sk_GENERAL_NAME_push(list, entry) > 0)
        return true;
    if (!made)
        ASN1_STRING_free(value);
    GENERAL_NAME_free(entry);
    return false;
}

static bool add_alternatives(X509 *cert,
                             const struct weir_cert_request *request)
{
    GENERAL_NAMES *list = sk_GENERAL_NAME_new_null();
    bool sound = list != NULL;
    for (size_t i = 0; sound && i < request->name_count; i++) {
        const char *name = request->names[i];
        if (is_ip(name) || is_dns(name))
            sound = add_alternative(list, name);
    }
    if (sound && sk_GENERAL_NAME_num(list) > 0)
        sound = X509_add1_ext_i2d(cert, NID_subject_alt_name, list, 0,
                                  X509V3_ADD_DEFAULT) == 1;
    sk_GENERAL_NAME_pop_free(list, GENERAL_NAME_free);
    return sound;
}

static bool add_extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, issuer, cert, NULL, NULL, 0);
    X509_EXTENSION *made = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    bool added = made && X509_add_ext(cert, made, -1) == 1;
    X509_EXTENSION_free(made);
    return added;
}

static bool add_extensions(X509 *cert, X509 *issuer,
                           const struct weir_cert_request *request)
{
    static const struct {
        const char *constraints;
        const char *usage;
        const char *purpose; /* NULL: none */
    } kinds[] = {
        [WEIR_CERT_CA] = { "critical,CA:TRUE,pathlen:0",
                           "critical,keyCertSign,cRLSign", NULL },
        [WEIR_CERT_SERVER] = { "critical,CA:FALSE", "critical,digitalSignature",
                               "serverAuth" },
        [WEIR_CERT_CLIENT] = { "critical,CA:FALSE", "critical,digitalSignature",
                               "clientAuth" },
    };
    bool is_ca = request->kind == WEIR_CERT_CA;
    const char *purpose = kinds[request->kind].purpose;
    return add_extension(cert, issuer, NID_basic_constraints,
                         kinds[request->kind].constraints) &&
           add_extension(cert, issuer, NID_key_usage,
                         kinds[request->kind].usage) &&
           (!purpose ||
            add_extension(cert, issuer, NID_ext_key_usage, purpose)) &&
           add_extension(cert, issuer, NID_subject_key_identifier, "hash") &&
           add_extension(cert, issuer, NID_authority_key_identifier,
                         "keyid:always") &&
           (is_ca || add_alternatives(cert, request));
}

static bool set_cert_serial(X509 *cert)
{
    unsigned char bytes[SERIAL_BYTES];
    if (RAND_bytes(bytes, sizeof bytes) != 1)
        return false;
    bytes[0] = (bytes[0] & 0x7f) | 0x40; /* positive, and of one length */
    BIGNUM *number = BN_bin2bn(bytes, sizeof bytes, NULL);
    bool set =
        number && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(cert));
    BN_free(number);
    return set;
}

/* A leaf that outlived its authority would fail before its own end. */
static bool set_times(X509 *cert, const X509 *issuer, unsigned days)
{
    if (!X509_gmtime_adj(X509_getm_notBefore(cert), EARLIER_S) ||
        !X509_gmtime_adj(X509_getm_notAfter(cert), (long)days * DAY_S))
        return false;
    const ASN1_TIME *end = issuer ? X509_get0_notAfter(issuer) : NULL;
    if (end && ASN1_TIME_compare(X509_get0_notAfter(cert), end) > 0)
        return X509_set1_notAfter(cert, end) == 1;
    return true;
}

static bool set_subject(X509 *cert, const char *name)
{
    X509_NAME *subject = X509_get_subject_name(cert);
    return X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8,
                                      (const unsigned char *)name, -1, -1,
                                      0) == 1;
}

static X509 *build_certificate(const struct weir_cert_request *request,
                               const struct signer *signer, EVP_PKEY *key)
{
    X509 *cert = X509_new();
    X509 *issuer = signer->cert ? signer->cert : cert;
    bool made =
        cert && X509_set_version(cert, X509_VERSION_3) == 1 &&
        set_cert_serial(cert) && set_times(cert, signer->cert, request->days) &&
        set_subject(cert, request->names[0]) &&
        X509_set_issuer_name(cert, X509_get_subject_name(issuer)) &&
        X509_set_pubkey(cert, key) == 1 &&
        add_extensions(cert, issuer, request) &&
        X509_sign(cert, signer->key ? signer->key : key, EVP_sha256()) > 0;
    if (made)
        return cert;
    X509_free(cert);
    return NULL;
}

static bool show_end(const X509 *cert, char *out_until)
{
    struct tm at;
    return ASN1_TIME_to_tm(X509_get0_notAfter(cert), &at) == 1 &&
           strftime(out_until, 11, "%Y-%m-%d", &at) == 10;
}

/* ---- The files ---- */

static FILE *create(const char *path, struct weir_diag *diag)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (file)
        return file;
    refuse_cert_file(WEIR_ESYSTEM, path,
                     errno == EEXIST ? "it exists already, and nothing is "
                                       "overwritten; choose another name or "
                                       "remove it"
                                     : strerror(errno),
                     diag);
    if (fd >= 0)
        close(fd);
    return NULL;
}

static int write_files(const char *cert_path, X509 *cert, const char *key_path,
                       EVP_PKEY *key, struct weir_diag *diag)
{
    FILE *file = create(key_path, diag);
    if (!file)
        return WEIR_EEXIST;
    int written = PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL);
    if (fclose(file) != 0 || written != 1) {
        unlink(key_path);
        return refuse_cert_file(WEIR_ESYSTEM, key_path, strerror(errno), diag);
    }
    file = create(cert_path, diag);
    if (!file) {
        unlink(key_path);
        return WEIR_EEXIST;
    }
    written = PEM_write_X509(file, cert);
    if (fclose(file) == 0 && written == 1)
        return 0;
    unlink(key_path);
    unlink(cert_path);
    return refuse_cert_file(WEIR_ESYSTEM, cert_path, strerror(errno), diag);
}

/* A client looks only for the name by which it called, so the kind matters. */
static int check_cert_names(const struct weir_cert_request *request,
                            struct weir_diag *diag)
{
    if (request->kind != WEIR_CERT_SERVER)
        return 0;
    for (size_t i = 0; i < request->name_count; i++)
        if (!is_ip(request->names[i]) && !is_dns(request->names[i]))
            return weir_diag_set(diag, WEIR_EINVAL, "'", request->names[i],
                                 "' is neither a host's name nor an address",
                                 NULL);
    return 0;
}

int weir_cert_make(const struct weir_cert_request *request, const char *cert,
                   const char *key, char *out_until, struct weir_diag *diag)
{
    struct signer signer = { NULL, NULL };
    EVP_PKEY *made_key = NULL;
    X509 *made = NULL;
    int error = check_cert_names(request, diag);
    if (error == 0)
        error = load_signer(request, &signer, diag);
    if (error == 0) {
        made_key = EVP_EC_gen("P-256");
        made = made_key ? build_certificate(request, &signer, made_key) : NULL;
        if (!made || !show_end(made, out_until))
            error = refuse_openssl("the certificate can't be made", diag);
    }
    if (error == 0)
        error = write_files(cert, made, key, made_key, diag);
    X509_free(made);
    X509_free(signer.cert);
    EVP_PKEY_free(made_key);
    EVP_PKEY_free(signer.key);
    return error;
}
