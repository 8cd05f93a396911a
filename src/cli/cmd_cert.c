/* SPDX-License-Identifier: MIT
 * cli/cmd_cert.c - weir cert ca, server, client: certificates to try TLS with,
 * by OpenSSL. Each prints the command to run next.
 *
 * The three kinds differ in their extensions only. The authority may sign
 * leaves and nothing else (pathlen 0). A leaf has its purpose, so that a stolen
 * client's certificate can't be used by a false root. The names that are
 * checked are the subject's alternative names; the common name is for people,
 * and for the credentials of a root. Keys are of the curve P-256, signatures of
 * SHA-256. */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command/cli.h"
#include "core/quota/quota.h"

#define CA_DAYS 3650
#define LEAF_DAYS 365
#define DAYS_MAX 36500
#define NAME_MAX_BYTES 64 /* of a common name (X.520) */
#define NAMES_MAX 16      /* of one server */
#define SERIAL_BYTES 16
#define DAY_S 86400L
#define EARLIER_S (-3600L) /* a clock that is a little late sees it as valid */

static const char cert_help[] =
    "Makes a small certificate authority, and certificates to try TLS with.\n"
    "\n"
    "    weir cert ca DIR                   DIR/ca.pem, DIR/ca.key\n"
    "    weir cert server DIR NAME|IP...    of a root; the first name is the\n"
    "                                       files': DIR/NAME.pem, .key\n"
    "    weir cert client DIR NAME          of a limiter or a person\n"
    "\n"
    "  --days N     how long it is valid   [3650 for a ca, 365 for others]\n"
    "\n"
    "Nothing is overwritten. Files are readable by you only. The owner of\n"
    "DIR/ca.key can pose as any client or root: keep it off the roots.\n"
    "\n"
    "    weir cert ca certs\n"
    "    weir cert server certs localhost 127.0.0.1\n"
    "    weir cert client certs ops\n";

enum kind { CERT_CA, CERT_SERVER, CERT_CLIENT };

struct files {
    char cert[PATH_MAX];
    char key[PATH_MAX];
};

struct request {
    enum kind kind;
    /* The first is the common name. Of a server: the DNS names and addresses by
     * which clients call it. NUL-terminated; borrowed. */
    const char *const *names;
    size_t name_count;
    unsigned days;   /* 1 to DAYS_MAX, from now on; not beyond the authority's
                      * end */
    struct files ca; /* the signer's; unused for an authority */
    struct files files;
};

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

static int check_signer(const struct request *request,
                        const struct signer *signer, struct weir_diag *diag)
{
    if (!signer->cert)
        return refuse_openssl(request->ca.cert, diag);
    if (!signer->key)
        return refuse_openssl(request->ca.key, diag);
    if (X509_check_private_key(signer->cert, signer->key) != 1) {
        ERR_clear_error();
        return refuse_cert_file(
            WEIR_ETLS, request->ca.key,
            "this key isn't that of the certificate beside it", diag);
    }
    if (X509_check_ca(signer->cert) != 1)
        return refuse_cert_file(WEIR_ETLS, request->ca.cert,
                                "this certificate isn't an authority's", diag);
    if (X509_cmp_current_time(X509_get0_notAfter(signer->cert)) < 0)
        return refuse_cert_file(
            WEIR_ETLS, request->ca.cert,
            "the authority's certificate has ended; make another in "
            "another folder",
            diag);
    return 0;
}

static int load_signer(const struct request *request, struct signer *out,
                       struct weir_diag *diag)
{
    if (request->kind == CERT_CA)
        return 0;
    FILE *file = open_signer(request->ca.cert, diag);
    if (!file)
        return WEIR_ENOENT;
    out->cert = PEM_read_X509(file, NULL, no_password, NULL);
    fclose(file);
    file = open_signer(request->ca.key, diag);
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

static bool add_alternatives(X509 *cert, const struct request *request)
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
                           const struct request *request)
{
    static const struct {
        const char *constraints;
        const char *usage;
        const char *purpose; /* NULL: none */
    } kinds[] = {
        [CERT_CA] = { "critical,CA:TRUE,pathlen:0",
                      "critical,keyCertSign,cRLSign", NULL },
        [CERT_SERVER] = { "critical,CA:FALSE", "critical,digitalSignature",
                          "serverAuth" },
        [CERT_CLIENT] = { "critical,CA:FALSE", "critical,digitalSignature",
                          "clientAuth" },
    };
    bool is_ca = request->kind == CERT_CA;
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

static X509 *build_certificate(const struct request *request,
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

static int write_files(const struct files *files, X509 *cert, EVP_PKEY *key,
                       struct weir_diag *diag)
{
    FILE *file = create(files->key, diag);
    if (!file)
        return WEIR_EEXIST;
    int written = PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL);
    if (fclose(file) != 0 || written != 1) {
        unlink(files->key);
        return refuse_cert_file(WEIR_ESYSTEM, files->key, strerror(errno),
                                diag);
    }
    file = create(files->cert, diag);
    if (!file) {
        unlink(files->key);
        return WEIR_EEXIST;
    }
    written = PEM_write_X509(file, cert);
    if (fclose(file) == 0 && written == 1)
        return 0;
    unlink(files->key);
    unlink(files->cert);
    return refuse_cert_file(WEIR_ESYSTEM, files->cert, strerror(errno), diag);
}

/* A client looks only for the name by which it called, so the kind matters. */
static int check_cert_names(const struct request *request,
                            struct weir_diag *diag)
{
    if (request->kind != CERT_SERVER)
        return 0;
    for (size_t i = 0; i < request->name_count; i++)
        if (!is_ip(request->names[i]) && !is_dns(request->names[i]))
            return weir_diag_set(diag, WEIR_EINVAL, "'", request->names[i],
                                 "' is neither a host's name nor an address",
                                 NULL);
    return 0;
}

/* Makes a key and its certificate and writes them to two files that must not
 * exist, both with mode 0600; on an error neither exists. 'out_until': the
 * certificate's end, as "2027-11-21"; holds 11 bytes. WEIR_EEXIST, WEIR_ENOENT,
 * WEIR_EINVAL, WEIR_ETLS, WEIR_ESYSTEM, with 'diag' filled. */
static int make_files(const struct request *request, char *out_until,
                      struct weir_diag *diag)
{
    weir_assert(request->name_count > 0 && request->name_count <= NAMES_MAX);
    weir_assert(request->days >= 1 && request->days <= DAYS_MAX);
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
        error = write_files(&request->files, made, made_key, diag);
    X509_free(made);
    X509_free(signer.cert);
    EVP_PKEY_free(made_key);
    EVP_PKEY_free(signer.key);
    return error;
}

/* ---- The commands ---- */

struct command {
    const char *name;
    enum kind kind;
    size_t names_min, names_max;
    const char *example;
};
static const struct command commands[] = {
    { "ca", CERT_CA, 0, 0, "weir cert ca certs" },
    { "server", CERT_SERVER, 1, NAMES_MAX,
      "weir cert server certs localhost 127.0.0.1" },
    { "client", CERT_CLIENT, 1, 1, "weir cert client certs ops" },
};

static bool name_files(struct files *files, const char *folder,
                       const char *name)
{
    size_t size = sizeof files->cert;
    int cert = snprintf(files->cert, size, "%s/%s.pem", folder, name);
    int key = snprintf(files->key, size, "%s/%s.key", folder, name);
    return (size_t)cert < size && (size_t)key < size;
}

static bool parse_days(const char *text, unsigned *out)
{
    char *end;
    errno = 0;
    unsigned long days = strtoul(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || text[0] == '-' ||
        days < 1 || days > DAYS_MAX)
        return false;
    *out = (unsigned)days;
    return true;
}

/* The name becomes a file's name and a common name. */
static int check_cert_name(const char *name)
{
    struct weir_diag diag = { 0 };
    if (weir_name_check(weir_text_of(name), &diag) < 0)
        return weir_cli_fail("%s", diag.text);
    if (strlen(name) > NAME_MAX_BYTES)
        return weir_cli_fail("the name '%s' is over %d bytes, and a "
                             "certificate takes no more",
                             name, NAME_MAX_BYTES);
    if (strchr(name, '/') || name[0] == '.' || strcmp(name, "ca") == 0)
        return weir_cli_fail("the name '%s' can't be a file's beside ca.pem; "
                             "choose another",
                             name);
    return WEIR_EXIT_OK;
}

static void print_next_step(const struct command *command, const char *folder,
                            const char *name, const struct files *files)
{
    switch (command->kind) {
    case CERT_CA:
        printf("next: weir cert server %s localhost 127.0.0.1\n", folder);
        return;
    case CERT_SERVER:
        printf("next: weir cert client %s ops\n"
               "      echo 'edit,take cert ops' > credentials\n"
               "      weir serve --tls-cert %s --tls-key %s --tls-ca "
               "%s/ca.pem --credentials credentials\n",
               folder, files->cert, files->key, folder);
        return;
    case CERT_CLIENT:
        printf("next: a line in the root's credentials: edit,take cert %s\n"
               "      weir status --tls-ca %s/ca.pem --tls-cert %s --tls-key "
               "%s\n",
               name, folder, files->cert, files->key);
        return;
    }
}

static int make_certificate(const struct command *command, const char *folder,
                            char **names, size_t count, unsigned days)
{
    static const char *const ca_name = "Weir CA";
    bool is_ca = command->kind == CERT_CA;
    const char *name = is_ca ? "ca" : names[0];
    struct request request = {
        .kind = command->kind,
        .names = is_ca ? &ca_name : (const char *const *)names,
        .name_count = is_ca ? 1 : count,
        .days = days,
    };
    if (!name_files(&request.ca, folder, "ca") ||
        !name_files(&request.files, folder, name))
        return weir_cli_fail("the path of %s is too long", folder);
    if (is_ca && mkdir(folder, 0700) < 0 && errno != EEXIST)
        return weir_cli_fail("can't make the folder %s: %s", folder,
                             strerror(errno));
    struct weir_diag diag = { 0 };
    char until[11];
    if (make_files(&request, until, &diag) < 0)
        return weir_cli_fail("%s", diag.text);
    printf("made %s and %s, valid until %s\n", request.files.cert,
           request.files.key, until);
    print_next_step(command, folder, name, &request.files);
    return WEIR_EXIT_OK;
}

int weir_cli_cert(int argc, char **argv)
{
    const char *days_text = NULL;
    const struct weir_cli_option options[] = {
        { .name = "days", .value = &days_text },
    };
    int at = weir_cli_parse(NULL, cert_help, options, WEIR_COUNT_OF(options),
                            argc, argv);
    if (at < 0)
        return weir_cli_parsed(at);
    if (at == argc) {
        fputs(cert_help, stderr);
        return WEIR_EXIT_ERROR;
    }
    const struct command *command = commands;
    const struct command *end = commands + WEIR_COUNT_OF(commands);
    while (command < end && strcmp(command->name, argv[at]) != 0)
        command++;
    if (command == end)
        return weir_cli_fail("there is no `weir cert %s`; there are ca, "
                             "server and client",
                             argv[at]);
    size_t count = argc - at < 2 ? 0 : (size_t)(argc - at - 2);
    if (argc - at < 2 || count < command->names_min ||
        count > command->names_max)
        return weir_cli_fail("a folder and %s, please; for example: %s",
                             command->names_max == 0   ? "nothing else"
                             : command->names_max == 1 ? "one name"
                                                       : "1 to 16 names",
                             command->example);
    unsigned days = command->kind == CERT_CA ? CA_DAYS : LEAF_DAYS;
    if (days_text && !parse_days(days_text, &days))
        return weir_cli_fail("--days %s: a number from 1 to %d", days_text,
                             DAYS_MAX);
    for (size_t i = 0; i < count; i++) {
        int status = check_cert_name(argv[at + 2 + (int)i]);
        if (status != WEIR_EXIT_OK)
            return status;
    }
    return make_certificate(command, argv[at + 1], argv + at + 2, count, days);
}
