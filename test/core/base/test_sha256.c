/* SPDX-License-Identifier: MIT
 * test_sha256.c - SHA-256: the examples of FIPS 180-4, and texts of all small
 * lengths and random ones, compared with OpenSSL's. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <openssl/evp.h>

#include "core/base/rng.h"
#include "core/base/sha256.h"
#include "seed.h"

static void expect(const char *hex, struct weir_text text)
{
    uint8_t digest[WEIR_SHA256_SIZE];
    char shown[2 * WEIR_SHA256_SIZE + 1];
    weir_sha256(text, digest);
    for (size_t i = 0; i < sizeof digest; i++)
        snprintf(shown + 2 * i, 3, "%02x", digest[i]);
    assert_string_equal(shown, hex);
}

static void test_examples(void **state)
{
    (void)state;
    expect("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
           WEIR_TEXT(""));
    expect("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
           WEIR_TEXT("abc"));
    expect("248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
           WEIR_TEXT("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnop"
                     "nopq"));
    char *million = malloc(1000000);
    assert_non_null(million);
    memset(million, 'a', 1000000);
    expect("cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0",
           (struct weir_text){ million, 1000000 });
    free(million);
}

static void test_as_openssl(void **state)
{
    (void)state;
    struct weir_rng rng = made_seed("texts");
    uint8_t text[4096], ours[WEIR_SHA256_SIZE], theirs[WEIR_SHA256_SIZE];
    for (size_t i = 0; i < 2000; i++) {
        size_t len = i < 300 ? i : weir_rng_next(&rng) % sizeof text;
        for (size_t k = 0; k < len; k++)
            text[k] = (uint8_t)weir_rng_next(&rng);
        weir_sha256((struct weir_text){ (const char *)text, len }, ours);
        assert_int_equal(
            EVP_Digest(text, len, theirs, NULL, EVP_sha256(), NULL), 1);
        assert_memory_equal(ours, theirs, sizeof ours);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_examples),
        cmocka_unit_test(test_as_openssl),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
