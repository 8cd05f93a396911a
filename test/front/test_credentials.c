/* SPDX-License-Identifier: MIT
 * test/front/test_credentials.c - access by a file of credentials: which peers
 * it admits with which roles, and which files are accepted. */

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <openssl/sha.h>

#include "compare.h"
#include "credentials_maker.h"

#define TOKEN "correct-horse-battery-staple"

static struct weir_credentials *parse(const char *text)
{
    struct weir_credentials *made = NULL;
    struct weir_diag diag = { 0 };
    int error = credentials_make(weir_text_of(text), &made, &diag);
    if (error < 0)
        fail_msg("line %u: %s", (unsigned)diag.line, diag.text);
    return made;
}

/* The peer's identity, or the error. 'name' NULL: no certificate. */
static int ask(const struct weir_credentials *credentials, const char *name,
               const char *authorization, struct weir_identity *out)
{
    struct weir_diag diag = { 0 };
    struct weir_tls_peer peer = { .count = 1 };
    snprintf(peer.name[0], sizeof peer.name[0], "%s", name ? name : "");
    int error = weir_credentials_find(credentials, name ? &peer : NULL,
                                      weir_text_of(authorization), out, &diag);
    assert_true(error == 0 || diag.text[0] != '\0');
    assert_null(strstr(diag.text, TOKEN));
    return error;
}

static void assert_is(const struct weir_credentials *credentials,
                      const char *name, const char *authorization,
                      unsigned roles, const char *who)
{
    struct weir_identity identity;
    assert_int_equal(ask(credentials, name, authorization, &identity), 0);
    assert_int_equal(identity.roles, roles);
    assert_string_equal(identity.name, who);
}

static void assert_stranger(const struct weir_credentials *credentials,
                            const char *name, const char *authorization)
{
    struct weir_identity identity = { .roles = 77 };
    assert_int_equal(ask(credentials, name, authorization, &identity),
                     WEIR_ECREDENTIAL);
    assert_int_equal(identity.roles, 77);
}

static void refused(const char *text, int error, unsigned line,
                    const char *says)
{
    struct weir_credentials *made = NULL;
    struct weir_diag diag = { 0 };
    assert_int_equal(credentials_make(weir_text_of(text), &made, &diag), error);
    assert_null(made);
    assert_int_equal(diag.line, line);
    if (!strstr(diag.text, says))
        fail_msg("'%s' doesn't say '%s'", diag.text, says);
    assert_null(strstr(diag.text, TOKEN));
}

/* ---- Identities ---- */

static void tokens_show_a_name_and_roles(void **state)
{
    (void)state;
    char text[300];
    unsigned char digest[SHA256_DIGEST_LENGTH];
    char hex[2 * sizeof digest + 1];
    SHA256((const unsigned char *)TOKEN, strlen(TOKEN), digest);
    for (size_t i = 0; i < sizeof digest; i++)
        sprintf(hex + 2 * i, i % 2 ? "%02x" : "%02X", digest[i]);
    snprintf(text, sizeof text,
             "# who may what\n\n"
             "edit token ops@example.org sha256:%s # the night shift\n"
             "\tread,take  token dashboard  0123456789abcdef\r\n",
             hex);
    struct weir_credentials *c = parse(text);
    assert_int_equal(weir_credentials_count(c), 2);
    assert_is(c, NULL, "Bearer " TOKEN, WEIR_ROLE_EDIT | WEIR_ROLE_READ,
              "ops@example.org");
    assert_is(c, NULL, "bEARER   0123456789abcdef",
              WEIR_ROLE_READ | WEIR_ROLE_TAKE, "dashboard");
    assert_stranger(c, NULL, "");
    assert_stranger(c, NULL, "Bearer");
    assert_stranger(c, NULL, "Bearer ");
    assert_stranger(c, NULL, TOKEN);
    assert_stranger(c, NULL, "Basic " TOKEN);
    assert_stranger(c, NULL, "Bearer " TOKEN " ");
    assert_stranger(c, NULL, "Bearer " TOKEN "x");
    assert_stranger(c, NULL, "Bearer correct-horse-battery-stapl");
    assert_stranger(c, NULL, "Bearer correct-horse-battery-stapLe");
    /* The hash is not accepted as a token. */
    char shown[200];
    snprintf(shown, sizeof shown, "Bearer %s", hex);
    assert_stranger(c, NULL, shown);
    snprintf(shown, sizeof shown, "Bearer sha256:%s", hex);
    assert_stranger(c, NULL, shown);
    weir_credentials_free(&c);
}

static void certificates_show_names(void **state)
{
    (void)state;
    struct weir_credentials *c = parse("take cert payments-*\n"
                                       "read cert *-7\n"
                                       "root cert eu-*\n");
    assert_is(c, "payments-3", "", WEIR_ROLE_TAKE, "payments-3");
    assert_is(c, "payments-7", "", WEIR_ROLE_TAKE | WEIR_ROLE_READ,
              "payments-7");
    assert_is(c, "eu-1", "", WEIR_ROLE_ROOT | WEIR_ROLE_TAKE, "eu-1");
    assert_stranger(c, "payment-3", "");
    assert_stranger(c, "", "");
    assert_stranger(c, "payments-\xff", "");
    assert_stranger(c, "payments-\n", "");

    /* The first clean name is the identity, whichever name gives the roles. */
    const struct weir_tls_peer peer = {
        .count = 4, .name = { "bad\x01name", "host-9", "payments-9", "eu-9" }
    };
    struct weir_identity identity;
    assert_int_equal(
        weir_credentials_find(c, &peer, WEIR_TEXT(""), &identity, NULL), 0);
    assert_string_equal(identity.name, "host-9");
    assert_int_equal(identity.roles, WEIR_ROLE_TAKE | WEIR_ROLE_ROOT);
    weir_credentials_free(&c);
}

static void token_and_certificate_add_up(void **state)
{
    (void)state;
    struct weir_credentials *c = parse("take cert payments-*\n"
                                       "read token ann " TOKEN "\n");
    assert_is(c, "payments-3", "Bearer " TOKEN, WEIR_ROLE_TAKE | WEIR_ROLE_READ,
              "ann");
    assert_is(c, "stranger", "Bearer " TOKEN, WEIR_ROLE_READ, "ann");
    /* An unknown token overrides a known certificate. */
    assert_stranger(c, "payments-3", "Bearer " TOKEN "-no-more");
    assert_stranger(c, "payments-3", "Basic eHg6eHg=");
    weir_credentials_free(&c);
}

static void without_credentials_everybody_may_do_all(void **state)
{
    (void)state;
    assert_is(NULL, NULL, "", WEIR_ROLES_ALL, WEIR_IDENTITY_ANONYMOUS);
    assert_is(NULL, "somebody", "Bearer x", WEIR_ROLES_ALL,
              WEIR_IDENTITY_ANONYMOUS);
}

static void a_role_that_is_missing_is_named(void **state)
{
    (void)state;
    struct weir_identity ann = { WEIR_ROLE_READ | WEIR_ROLE_TAKE, "ann" };
    struct weir_diag diag = { 0 };
    assert_int_equal(weir_identity_check(&ann, WEIR_ROLE_READ, &diag), 0);
    assert_int_equal(weir_identity_check(&ann, WEIR_ROLE_EDIT, &diag),
                     WEIR_EDENIED);
    assert_string_equal(diag.text,
                        "the credential of ann hasn't the role 'edit'");
    assert_int_equal(weir_identity_check(&ann, WEIR_ROLE_ROOT, NULL),
                     WEIR_EDENIED);
}

/* ---- Quotas that a peer may take from ---- */

/* True: a peer with this credential may take from the quota. */
static bool may_take(const struct weir_credentials *credentials,
                     const char *name, const char *authorization,
                     const char *quota)
{
    struct weir_identity identity;
    struct weir_diag diag = { 0 };
    assert_int_equal(ask(credentials, name, authorization, &identity), 0);
    int error = weir_identity_check_name(&identity, weir_text_of(quota), &diag);
    assert_true(error == 0 || error == WEIR_EDENIED);
    assert_true(error == 0 || strstr(diag.text, quota));
    return error == 0;
}

static void take_is_limited_to_names(void **state)
{
    (void)state;
    struct weir_credentials *c =
        parse("read,take:team-a/*,take:shared token a " TOKEN "-a\n"
              "take token b " TOKEN "-b\n"
              "read token c " TOKEN "-c\n");
    assert_is(c, NULL, "Bearer " TOKEN "-a", WEIR_ROLE_READ | WEIR_ROLE_TAKE,
              "a");
    assert_true(may_take(c, NULL, "Bearer " TOKEN "-a", "team-a/x"));
    assert_true(may_take(c, NULL, "Bearer " TOKEN "-a", "shared"));
    assert_false(may_take(c, NULL, "Bearer " TOKEN "-a", "team-b/x"));
    assert_false(may_take(c, NULL, "Bearer " TOKEN "-a", "team-a"));
    assert_true(may_take(c, NULL, "Bearer " TOKEN "-b", "team-b/x"));
    assert_false(may_take(c, NULL, "Bearer " TOKEN "-c", "team-a/x"));
    assert_true(may_take(NULL, NULL, "", "team-a/x"));
    weir_credentials_free(&c);
}

static void names_of_all_lines_that_fit_add_up(void **state)
{
    (void)state;
    struct weir_credentials *c = parse("take:team-a/* cert a-*\n"
                                       "take:team-b/* cert *-7\n"
                                       "take cert *-all\n"
                                       "take:team-c/* token c " TOKEN "\n"
                                       "root cert eu-*\n");
    assert_true(may_take(c, "a-1", "", "team-a/x"));
    assert_false(may_take(c, "a-1", "", "team-b/x"));
    assert_true(may_take(c, "a-7", "", "team-a/x"));
    assert_true(may_take(c, "a-7", "", "team-b/x"));
    assert_true(may_take(c, "a-all", "", "team-c/x"));
    assert_true(may_take(c, "a-1", "Bearer " TOKEN, "team-a/x"));
    assert_true(may_take(c, "a-1", "Bearer " TOKEN, "team-c/x"));
    assert_false(may_take(c, "a-1", "Bearer " TOKEN, "team-b/x"));
    assert_true(may_take(c, "eu-1", "", "anything"));
    weir_credentials_free(&c);
}

static void more_globs_than_fit_let_nobody_in(void **state)
{
    (void)state;
    char glob[251];
    char text[1200];
    struct weir_identity identity;
    memset(glob, 'g', sizeof glob - 1);
    glob[sizeof glob - 1] = '\0';
    snprintf(text, sizeof text,
             "take:%s cert a*\ntake:%s cert a*\n"
             "take:%s cert ab\n",
             glob, glob, glob);
    struct weir_credentials *c = parse(text);
    assert_true(may_take(c, "a", "", glob));
    assert_int_equal(ask(c, "ab", "", &identity), WEIR_ETOOBIG);
    weir_credentials_free(&c);
    snprintf(text, sizeof text, "take:%s,take:%s,take:%s cert a\n", glob, glob,
             glob);
    refused(text, WEIR_ESYNTAX, 1, "512 bytes");
}

/* No line may look like a limit without being one. */
static void globs_that_limit_nothing_are_refused(void **state)
{
    (void)state;
    refused("edit:team-a/* cert a\n", WEIR_ESYNTAX, 1, "only take");
    refused("read:team-a/* cert a\n", WEIR_ESYNTAX, 1, "only take");
    refused("root:team-a/* cert a\n", WEIR_ESYNTAX, 1, "only take");
    refused("take:team-a/*,take cert a\n", WEIR_ESYNTAX, 1, "all names");
    refused("take:team-a/*,root cert a\n", WEIR_ESYNTAX, 1, "all names");
    refused("take: cert a\n", WEIR_ESYNTAX, 1, "a glob");
    refused("take:\xff cert a\n", WEIR_ESYNTAX, 1, "a glob");
    refused("take:team-a/*,shared cert a\n", WEIR_ESYNTAX, 1, "the roles");
    refused("take:team-a/*, cert a\n", WEIR_ESYNTAX, 1, "the roles");
    refused("take team-a/* token a " TOKEN "\n", WEIR_ESYNTAX, 1, "ROLES");
    refused("take token a " TOKEN " team-a/*\n", WEIR_ESYNTAX, 1, "ROLES");
    refused("give:team-a/* cert a\n", WEIR_ESYNTAX, 1, "the roles");
}

/* ---- Accepted files ---- */

static void unsound_lines_are_refused(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "edit",
        "edit token",
        "edit token ann",
        "edit token ann " TOKEN " more",
        "edit cert",
        "edit cert one two",
        "edit password ann " TOKEN,
        "token edit ann " TOKEN,
        TOKEN " token ann edit",
        "admin token ann " TOKEN,
        "edit, token ann " TOKEN,
        ",edit token ann " TOKEN,
        "edit,,read token ann " TOKEN,
        "Edit token ann " TOKEN,
        "edit token \xff " TOKEN,
        "edit token ann 123456789012345",
        "edit token ann \xc3\xa4" TOKEN,
        "edit token ann sha256:",
        "edit token ann sha256:" TOKEN,
        "edit token ann sha256:00000000000000000000000000000000"
        "0000000000000000000000000000000g",
        "edit token ann sha256:00000000000000000000000000000000"
        "000000000000000000000000000000000",
    };
    for (size_t i = 0; i < WEIR_COUNT_OF(lines); i++) {
        char text[300];
        snprintf(text, sizeof text, "read cert *\n# two\n%s\n", lines[i]);
        refused(text, WEIR_ESYNTAX, 3, "");
    }
    refused("", WEIR_ESYNTAX, 0, "no credential");
    refused("# nobody\n\n", WEIR_ESYNTAX, 0, "no credential");
    refused("read token ann " TOKEN "\nread cert x\nedit token bob " TOKEN "\n",
            WEIR_ESYNTAX, 3, "line 1 already");
}

static void bounds_hold(void **state)
{
    (void)state;
    size_t size = (WEIR_CREDENTIALS_MAX + 1) * 64;
    char *text = malloc(size);
    size_t len = 0;
    for (int i = 0; i < WEIR_CREDENTIALS_MAX; i++)
        len += (size_t)snprintf(text + len, size - len,
                                "read token t%d secret-number-%06d\n", i, i);
    struct weir_credentials *c = parse(text);
    assert_int_equal(weir_credentials_count(c), WEIR_CREDENTIALS_MAX);
    assert_is(c, NULL, "Bearer secret-number-000000", WEIR_ROLE_READ, "t0");
    assert_is(c, NULL, "Bearer secret-number-009999", WEIR_ROLE_READ, "t9999");
    assert_stranger(c, NULL, "Bearer secret-number-010000");
    weir_credentials_free(&c);
    snprintf(text + len, size - len, "read cert one-more\n");
    refused(text, WEIR_ETOOBIG, WEIR_CREDENTIALS_MAX + 1, "more than");
    free(text);

    char longest[WEIR_TOKEN_MAX + 40];
    strcpy(longest, "read token ann ");
    memset(longest + 15, 'x', WEIR_TOKEN_MAX + 1);
    longest[15 + WEIR_TOKEN_MAX + 1] = '\0';
    refused(longest, WEIR_ESYNTAX, 1, "16 to 512");
    longest[15 + WEIR_TOKEN_MAX] = '\0';
    c = parse(longest);
    weir_credentials_free(&c);
}

/* ---- Files ---- */

struct file {
    char folder[64];
    char path[96];
};

static void put(const struct file *file, const char *text, mode_t mode)
{
    char made[120];
    snprintf(made, sizeof made, "%s.new", file->path);
    FILE *out = fopen(made, "w");
    assert_non_null(out);
    assert_compare(fputs(text, out), >=, 0);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(chmod(made, mode), 0);
    assert_int_equal(rename(made, file->path), 0);
}

static int setup(void **state)
{
    static struct file file;
    strcpy(file.folder, "/tmp/weir-credentials-XXXXXX");
    if (!mkdtemp(file.folder))
        return -1;
    snprintf(file.path, sizeof file.path, "%s/credentials", file.folder);
    *state = &file;
    return 0;
}

static int teardown(void **state)
{
    const struct file *file = *state;
    unlink(file->path);
    return rmdir(file->folder);
}

static int open_file(const struct file *file, const char *says)
{
    struct weir_credentials *c = NULL;
    struct weir_diag diag = { 0 };
    int error = weir_credentials_open(file->path, &c, &diag);
    if (error == 0) {
        weir_credentials_free(&c);
        return 0;
    }
    assert_null(c);
    assert_non_null(strstr(diag.text, file->path));
    assert_null(strstr(diag.text, TOKEN));
    if (!strstr(diag.text, says))
        fail_msg("'%s' doesn't say '%s'", diag.text, says);
    return error;
}

static void secrets_are_not_for_others(void **state)
{
    const struct file *file = *state;
    assert_int_equal(open_file(file, "No such file"), WEIR_ENOENT);
    put(file, "read token ann " TOKEN "\n", 0604);
    assert_int_equal(open_file(file, "chmod 600"), WEIR_EINVAL);
    put(file, "read token ann " TOKEN "\n", 0640);
    assert_int_equal(open_file(file, ""), 0);
    put(file, "read cert ann\n", 0644);
    assert_int_equal(open_file(file, ""), 0);
    put(file, "read cert ann\n", 0666);
    assert_int_equal(open_file(file, "any user may write"), WEIR_EINVAL);
    put(file, "read cert\n", 0600);
    assert_int_equal(open_file(file, "credentials:1: a line is"), WEIR_ESYNTAX);
}

static void what_is_no_plain_file_is_refused(void **state)
{
    const struct file *file = *state;
    unlink(file->path);
    assert_int_equal(mkfifo(file->path, 0600), 0);
    assert_int_equal(open_file(file, "no plain file"), WEIR_EINVAL);
    put(file, "", 0600);
    assert_int_equal(truncate(file->path, WEIR_CREDENTIALS_BYTES_MAX + 1), 0);
    assert_int_equal(open_file(file, "4 MiB"), WEIR_ETOOBIG);
}

static void a_reload_takes_all_or_nothing(void **state)
{
    const struct file *file = *state;
    put(file, "read token ann " TOKEN "\n", 0600);
    struct weir_credentials *c = NULL;
    struct weir_diag diag = { 0 };
    assert_int_equal(weir_credentials_open(file->path, &c, &diag), 0);
    assert_false(weir_credentials_is_changed(c));

    /* A broken file changes nothing, and is reported once. */
    put(file, "read token bob another-long-secret\nedit token\n", 0600);
    assert_true(weir_credentials_is_changed(c));
    assert_int_equal(weir_credentials_reload(c, &diag), WEIR_ESYNTAX);
    assert_false(weir_credentials_is_changed(c));
    assert_is(c, NULL, "Bearer " TOKEN, WEIR_ROLE_READ, "ann");
    assert_stranger(c, NULL, "Bearer another-long-secret");

    /* New content counts with any time of the file. */
    struct stat was;
    assert_int_equal(stat(file->path, &was), 0);
    FILE *over = fopen(file->path, "r+e");
    assert_compare(fputs("edit", over), >=, 0);
    assert_int_equal(fclose(over), 0);
    const struct timespec times[] = { was.st_atim, was.st_mtim };
    assert_int_equal(utimensat(AT_FDCWD, file->path, times, 0), 0);
    assert_true(weir_credentials_is_changed(c));
    assert_int_equal(weir_credentials_reload(c, &diag), WEIR_ESYNTAX);

    /* Nor does a missing file change anything. */
    unlink(file->path);
    assert_true(weir_credentials_is_changed(c));
    assert_int_equal(weir_credentials_reload(c, &diag), WEIR_ENOENT);
    assert_false(weir_credentials_is_changed(c));
    assert_is(c, NULL, "Bearer " TOKEN, WEIR_ROLE_READ, "ann");

    /* From then on a sound file counts alone. */
    put(file, "edit token bob another-long-secret\n", 0600);
    assert_true(weir_credentials_is_changed(c));
    assert_int_equal(weir_credentials_reload(c, &diag), 0);
    assert_false(weir_credentials_is_changed(c));
    assert_stranger(c, NULL, "Bearer " TOKEN);
    assert_is(c, NULL, "Bearer another-long-secret",
              WEIR_ROLE_EDIT | WEIR_ROLE_READ, "bob");
    weir_credentials_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_show_a_name_and_roles),
        cmocka_unit_test(certificates_show_names),
        cmocka_unit_test(token_and_certificate_add_up),
        cmocka_unit_test(without_credentials_everybody_may_do_all),
        cmocka_unit_test(a_role_that_is_missing_is_named),
        cmocka_unit_test(take_is_limited_to_names),
        cmocka_unit_test(names_of_all_lines_that_fit_add_up),
        cmocka_unit_test(more_globs_than_fit_let_nobody_in),
        cmocka_unit_test(globs_that_limit_nothing_are_refused),
        cmocka_unit_test(unsound_lines_are_refused),
        cmocka_unit_test(bounds_hold),
        cmocka_unit_test(secrets_are_not_for_others),
        cmocka_unit_test(what_is_no_plain_file_is_refused),
        cmocka_unit_test(a_reload_takes_all_or_nothing),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
