/* SPDX-License-Identifier: MIT
 * test/fuzz/fuzz_doorman_config.c - any bytes as a Doorman file; an accepted
 * file keeps the header's promises, and every id finds its template. */

#include "core/quota/glob.h"
#include "core/quota/quota.h"
#include "server/doorman/doorman_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct weir_doorman_template *t)
{
    weir_assert(t->capacity >= 0 && t->capacity - t->capacity == 0);
    weir_assert(t->safe_capacity - t->safe_capacity == 0);
    weir_assert(t->refresh >= WEIR_SECOND && t->lease >= t->refresh);
    weir_assert(t->lease <= WEIR_PERIOD_MAX);
    weir_assert(t->learning <= WEIR_PERIOD_MAX);
    weir_assert(t->kind >= WEIR_DOORMAN_NO_ALGORITHM &&
                t->kind <= WEIR_DOORMAN_FAIR_SHARE);
    weir_assert(t->parameter_count <= WEIR_DOORMAN_PARAMETERS_MAX);
    weir_assert(weir_glob_path_check(t->glob, NULL) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct weir_doorman_config *config;
    struct weir_diag diag = { 0 };
    struct weir_text text = { (const char *)data, size };
    if (weir_doorman_config_parse(text, &config, &diag) < 0) {
        weir_assert(diag.text[0] != '\0');
        return 0;
    }
    size_t count;
    const struct weir_doorman_template *templates =
        weir_doorman_config_templates(config, &count);
    weir_assert(count > 0);
    for (size_t i = 0; i < count; i++) {
        check(&templates[i]);
        const struct weir_doorman_template *found =
            weir_doorman_config_get(config, templates[i].glob);
        weir_assert(found && found <= &templates[i]);
        weir_assert(weir_text_equal(found->glob, templates[i].glob));
    }
    weir_assert(weir_doorman_config_get(config, WEIR_TEXT("*")));
    const struct weir_diag *warnings;
    size_t kept = weir_doorman_config_warnings(config, &warnings);
    if (kept > WEIR_DOORMAN_WARNINGS_MAX)
        kept = WEIR_DOORMAN_WARNINGS_MAX;
    for (size_t i = 0; i < kept; i++)
        weir_assert(warnings[i].text[0] != '\0' && warnings[i].line > 0);
    weir_doorman_config_free(config);
    return 0;
}
