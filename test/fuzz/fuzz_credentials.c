/* SPDX-License-Identifier: MIT
 * test/fuzz/fuzz_credentials.c - any bytes as a file of credentials, and as
 * the credential that a peer presents: an identity that is found has a name
 * and sound roles. */

#include <string.h>

#include "credentials_maker.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define NAMES 3
#define SPLIT_MIN 64 /* longer inputs: the last quarter is presented */

/* Presents 'shown' as a header, and its parts, up to a NUL, as the names of a
 * certificate. */
static void ask(const struct weir_credentials *credentials,
                struct weir_text shown)
{
    struct weir_tls_peer peer = { .count = NAMES };
    size_t each = shown.len / NAMES;
    for (size_t i = 0; i < NAMES; i++) {
        size_t most = sizeof peer.name[i] - 1;
        size_t len = each < most ? each : most;
        if (len > 0)
            memcpy(peer.name[i], shown.p + i * each, len);
    }
    struct weir_identity identity;
    struct weir_diag diag = { 0 };
    int error =
        weir_credentials_find(credentials, &peer, shown, &identity, &diag);
    if (error < 0) {
        weir_assert((error == WEIR_ECREDENTIAL || error == WEIR_ETOOBIG) &&
                    diag.text[0] != '\0');
        return;
    }
    bool takes = weir_identity_check(&identity, WEIR_ROLE_TAKE, NULL) == 0;
    bool from_all = identity.take.all;
    weir_assert(takes == (from_all || identity.take.len > 0));
    int error_of_name =
        weir_identity_check_name(&identity, WEIR_TEXT("a"), NULL);
    weir_assert(error_of_name == 0 || !from_all);
    weir_assert(identity.roles != 0 && identity.name[0] != '\0');
    weir_assert((identity.roles & ~WEIR_ROLES_ALL) == 0);
    bool edits = weir_identity_check(&identity, WEIR_ROLE_EDIT, NULL) == 0;
    bool reads = weir_identity_check(&identity, WEIR_ROLE_READ, NULL) == 0;
    weir_assert(reads || !edits);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t shown = size > SPLIT_MIN ? size / 4 : 0;
    struct weir_text text = { (const char *)data, size - shown };
    struct weir_credentials *credentials;
    struct weir_diag diag = { 0 };
    int error = credentials_make(text, &credentials, &diag);
    if (error < 0) {
        weir_assert(diag.text[0] != '\0');
        return 0;
    }
    weir_assert(weir_credentials_count(credentials) > 0);
    ask(credentials, (struct weir_text){ text.p + text.len, shown });
    ask(credentials, (struct weir_text){ NULL, 0 });
    weir_credentials_free(&credentials);
    return 0;
}
