/* SPDX-License-Identifier: MIT
 * concurrency/concurrency_gate_options.c - a gate's options: their check. */

#include <string.h>

#include "core/concurrency/concurrency_gate.h"

void weir_concurrency_gate_defaults(
    struct weir_concurrency_gate_options *options,
    enum weir_controller_kind kind)
{
    *options = (struct weir_concurrency_gate_options){ .classes = 1 };
    weir_controller_defaults(&options->controller, kind);
}

static bool is_class_named_before(
    const struct weir_concurrency_gate_options *options, uint32_t klass)
{
    weir_assert(klass < options->classes);
    struct weir_text name = weir_text_of(options->class_of[klass].name);
    for (uint32_t i = 0; i < klass; i++)
        if (weir_text_equal(weir_text_of(options->class_of[i].name), name))
            return true;
    return false;
}

static const char *classes_fault(
    const struct weir_concurrency_gate_options *options)
{
    if (options->classes == 0 ||
        options->classes > WEIR_CONCURRENCY_GATE_CLASSES_MAX)
        return "there must be one to eight classes";
    double sum = 0;
    for (uint32_t i = 0; i < options->classes; i++) {
        const struct weir_concurrency_gate_class *klass = &options->class_of[i];
        if (memchr(klass->name, '\0', sizeof(klass->name)) == NULL)
            return "a class's name is longer than 31 bytes";
        if (options->classes > 1 && klass->name[0] == '\0')
            return "a class among several needs a name";
        if (is_class_named_before(options, i))
            return "two classes have one name";
        if (!(klass->share_percent >= 0 && klass->share_percent <= 100))
            return "a class's share must be from 0 to 100 percent";
        if (klass->observed && klass->share_percent > 0)
            return "an observed class is never refused: it has no share";
        sum += klass->share_percent;
    }
    return sum > 100 + 1e-9 ? "shares are more than 100 percent" : NULL;
}

int weir_concurrency_gate_check(
    const struct weir_concurrency_gate_options *options, struct weir_diag *diag)
{
    const char *fault = classes_fault(options);
    if (fault == NULL)
        return weir_controller_check(&options->controller, diag);
    return weir_diag_set(diag, WEIR_EINVAL, "classes: ", fault, NULL);
}
