/* SPDX-License-Identifier: MIT
 * certificate_maker.c - see certificate_maker.h. */

#include "certificate_maker.h"
#include "compare.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct maker_ca {
    X509 *cert;
    EVP_PKEY *key;
};

#define DAY 86400

static FILE *open_fresh(const char *path, char *fresh, size_t size)
{
    snprintf(fresh, size, "%s.fresh", path);
    FILE *file = fopen(fresh, "w");
    assert_non_null(file);
    return file;
}

static void put_in_place(FILE *file, const char *fresh, const char *path)
{
    assert_int_equal(fclose(file), 0);
    assert_int_equal(rename(fresh, path), 0);
}

static void write_cert(X509 *cert, const char *path)
{
    char fresh[512];
    FILE *file = open_fresh(path, fresh, sizeof(fresh));
    assert_int_equal(PEM_write_X509(file, cert), 1);
    put_in_place(file, fresh, path);
}

static void write_key(EVP_PKEY *key, const char *phrase, const char *path)
{
    char fresh[512];
    FILE *file = open_fresh(path, fresh, sizeof(fresh));
    assert_int_equal(
        PEM_write_PrivateKey(file, key, phrase ? EVP_aes_128_cbc() : NULL,
                             (const unsigned char *)phrase,
                             phrase ? (int)strlen(phrase) : 0, NULL, NULL),
        1);
    put_in_place(file, fresh, path);
}

static void extend(X509 *cert, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx(&context, issuer, cert, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    assert_non_null(extension);
    assert_int_equal(X509_add_ext(cert, extension, -1), 1);
    X509_EXTENSION_free(extension);
}

static X509 *begin(const char *name, EVP_PKEY *key, int first_day, int last_day)
{
    static long serial;
    X509 *cert = X509_new();
    assert_non_null(cert);
    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), ++serial);
    X509_gmtime_adj(X509_getm_notBefore(cert), (long)first_day * DAY - 60);
    X509_gmtime_adj(X509_getm_notAfter(cert), (long)last_day * DAY);
    X509_set_pubkey(cert, key);
    if (name)
        X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN",
                                   MBSTRING_UTF8, (const unsigned char *)name,
                                   -1, -1, 0);
    return cert;
}

struct maker_ca *maker_ca_new(const char *name)
{
    struct maker_ca *ca = calloc(1, sizeof(*ca));
    assert_non_null(ca);
    ca->key = EVP_EC_gen("P-256");
    assert_non_null(ca->key);
    ca->cert = begin(name, ca->key, -30, 30);
    X509_set_issuer_name(ca->cert, X509_get_subject_name(ca->cert));
    extend(ca->cert, ca->cert, NID_basic_constraints, "critical,CA:TRUE");
    extend(ca->cert, ca->cert, NID_key_usage, "critical,keyCertSign");
    assert_compare(X509_sign(ca->cert, ca->key, EVP_sha256()), >, 0);
    return ca;
}

void maker_ca_free(struct maker_ca *ca)
{
    X509_free(ca->cert);
    EVP_PKEY_free(ca->key);
    free(ca);
}

void maker_ca_write(const struct maker_ca *ca, const char *path)
{
    write_cert(ca->cert, path);
}

void maker_issue(const struct maker_ca *ca, const struct maker_leaf *leaf,
                 const char *cert_path, const char *key_path)
{
    EVP_PKEY *key = leaf->rsa ? EVP_RSA_gen(2048) : EVP_EC_gen("P-256");
    assert_non_null(key);
    X509 *cert = begin(leaf->name, key, leaf->first_day,
                       leaf->last_day ? leaf->last_day : 30);
    X509_set_issuer_name(cert, X509_get_subject_name(ca->cert));
    if (leaf->also)
        extend(cert, ca->cert, NID_subject_alt_name, leaf->also);
    if (leaf->usage)
        extend(cert, ca->cert, NID_ext_key_usage, leaf->usage);
    assert_compare(X509_sign(cert, ca->key, EVP_sha256()), >, 0);
    write_cert(cert, cert_path);
    write_key(key, NULL, key_path);
    X509_free(cert);
    EVP_PKEY_free(key);
}

void maker_key_write(const char *path, const char *phrase)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    assert_non_null(key);
    write_key(key, phrase, path);
    EVP_PKEY_free(key);
}

/* ---- A folder ---- */

void maker_pki_init(struct maker_pki *pki)
{
    strcpy(pki->folder, "/tmp/weir-pki-XXXXXX");
    assert_non_null(mkdtemp(pki->folder));
    pki->ca = maker_ca_new("ours");
    pki->other = maker_ca_new("another");
    maker_ca_write(pki->ca, maker_pki_path(pki, "ca.crt"));
    maker_ca_write(pki->other, maker_pki_path(pki, "other.crt"));
}

void maker_pki_fini(struct maker_pki *pki)
{
    char command[96];
    maker_ca_free(pki->ca);
    maker_ca_free(pki->other);
    snprintf(command, sizeof(command), "rm -r %s", pki->folder);
    assert_int_equal(system(command), 0);
}

const char *maker_pki_path(const struct maker_pki *pki, const char *name)
{
    static char paths[32][160];
    static unsigned next;
    char *path = paths[next++ % (sizeof(paths) / sizeof(paths[0]))];
    snprintf(path, sizeof(paths[0]), "%s/%s", pki->folder, name);
    return path;
}

void maker_pki_issue(const struct maker_pki *pki, const char *name,
                     const struct maker_ca *ca, const struct maker_leaf *leaf)
{
    char cert[32];
    char key[32];
    snprintf(cert, sizeof(cert), "%s.crt", name);
    snprintf(key, sizeof(key), "%s.key", name);
    maker_issue(ca, leaf, maker_pki_path(pki, cert), maker_pki_path(pki, key));
}

void maker_pki_put(const struct maker_pki *pki, const char *name,
                   const char *text)
{
    char fresh[512];
    const char *path = maker_pki_path(pki, name);
    FILE *file = open_fresh(path, fresh, sizeof(fresh));
    fputs(text, file);
    put_in_place(file, fresh, path);
}
