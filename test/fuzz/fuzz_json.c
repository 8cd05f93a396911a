/* SPDX-License-Identifier: MIT
 * test/fuzz/fuzz_json.c - any JSON as a quota; an accepted quota must be read
 * back from the object that is made of it. */

#include "codec/quota_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct weir_quota *quota)
{
    json_t *object = weir_quota_to_json(quota);
    weir_assert(object);
    struct weir_quota back;
    struct weir_diag diag;
    weir_quota_init(&back);
    int error = weir_quota_from_json(object, &back, &diag);
    weir_assert(error == 0);
    weir_assert(weir_quota_check(&back, &diag) == 0);
    /* Fields that were unset are now set to the values in force, and both
     * quotas print the same. 'object' itself can't be compared: reading its
     * labels has changed it. */
    json_t *shown = weir_quota_to_json(quota);
    json_t *again = weir_quota_to_json(&back);
    weir_assert(shown && again && json_equal(shown, again));
    json_decref(shown);
    json_decref(again);
    json_decref(object);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *object = json_loadb((const char *)data, size,
                                JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL);
    if (!object)
        return 0;
    struct weir_quota quota;
    struct weir_diag diag = { 0 };
    weir_quota_init(&quota);
    int error = weir_quota_from_json(object, &quota, &diag);
    weir_assert(error == 0 || diag.text[0] != '\0');
    if (error == 0 && weir_quota_check(&quota, &diag) == 0)
        check(&quota);
    json_decref(object);
    return 0;
}
