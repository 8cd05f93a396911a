/* SPDX-License-Identifier: MIT
 * test/fuzz/fuzz_scenario.c - any bytes as a scenario; an accepted scenario is
 * printed so that the print builds the same one, and a refusal has a text. */

#include <stdlib.h>
#include <string.h>

#include "lab/scenario.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct weir_scenario *build(struct weir_text text, size_t variant)
{
    struct weir_diag diag = { 0 };
    struct weir_lab_script *script = weir_script_read("x.weir", text, &diag);
    struct weir_scenario *scenario = NULL;
    if (script && variant < weir_script_variants(script))
        scenario = weir_scenario_build(script, variant, &diag);
    if (!scenario) {
        char shown[2048];
        weir_assert(diag.text[0] != '\0' || script);
        weir_script_show("x.weir", text, &diag, shown, sizeof shown);
    }
    weir_script_free(script);
    return scenario;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    struct weir_text text = { (const char *)data + 1, size - 1 };
    struct weir_scenario *scenario = build(text, data[0] % 4);
    if (!scenario)
        return 0;
    char *printed = weir_scenario_print(scenario);
    struct weir_scenario *again = build(weir_text_of(printed), 0);
    weir_assert(again);
    char *reprinted = weir_scenario_print(again);
    weir_assert(strcmp(printed, reprinted) == 0);
    free(printed);
    free(reprinted);
    weir_scenario_free(again);
    weir_scenario_free(scenario);
    return 0;
}
