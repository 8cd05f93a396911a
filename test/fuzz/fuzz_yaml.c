/* SPDX-License-Identifier: MIT
 * test/fuzz/fuzz_yaml.c - any bytes as a YAML file; an accepted set must be
 * read back from its own export. */

#include <stdlib.h>

#include "codec/yaml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct weir_quota *quotas, size_t count)
{
    const struct weir_quota **list = calloc(count + 1, sizeof(*list));
    for (size_t i = 0; i < count; i++)
        list[i] = &quotas[i];
    size_t len = 0;
    char *text = weir_yaml_print(list, count, &len);
    weir_assert(text);
    struct weir_yaml *yaml;
    struct weir_quota *back;
    size_t back_count;
    struct weir_diag diag;
    int error = weir_yaml_parse((struct weir_text){ text, len }, &yaml, &back,
                                &back_count, &diag);
    weir_assert(error == 0 && back_count == count);
    for (size_t i = 0; i < count; i++)
        weir_assert(weir_quota_equal(&quotas[i], &back[i]));
    weir_yaml_free(yaml);
    free(text);
    free(list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct weir_yaml *yaml;
    struct weir_quota *quotas;
    size_t count;
    struct weir_diag diag = { 0 };
    struct weir_text text = { (const char *)data, size };
    if (weir_yaml_parse(text, &yaml, &quotas, &count, &diag) < 0) {
        weir_assert(diag.text[0] != '\0');
        return 0;
    }
    check(quotas, count);
    weir_yaml_free(yaml);
    return 0;
}
