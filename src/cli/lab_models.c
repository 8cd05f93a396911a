/* SPDX-License-Identifier: MIT
 * cli/lab_models.c - weir lab models: the lab's experiments other than fleets.
 * The models' own tables list their parameters, measures and series, so this
 * command is their manual. */

#include <stdio.h>
#include <string.h>

#include "cli/lab_command.h"
#include "cli/table_print.h"
#include "command/cli.h"
#include "lab/model.h"
#include "lab/script_values.h"

static const char models_help[] =
    "Lists the models: experiments that a scenario plays in the place of a\n"
    "fleet, with the statement `model NAME field=value …`. With a name: the\n"
    "model's parameters, its measures, and its series over time.\n"
    "\n"
    "    weir lab models pacing\n"
    "    weir lab show pacing       a scenario that uses it\n";

static void print_names(void)
{
    struct weir_rows rows = { .columns = 2 };
    for (size_t i = 0; weir_models[i]; i++)
        weir_rows_add_all(&rows, weir_models[i]->name, weir_models[i]->sentence,
                          NULL);
    weir_rows_print(&rows, stdout);
}

/* "algorithm=token_bucket", with its preset. */
static void show_preset(const struct weir_model_field *field, char *buf,
                        size_t size)
{
    FILE *out = fmemopen(buf, size, "w");
    if (!out)
        return;
    fprintf(out, "%s=", field->name);
    weir_model_value_print(out, field, field->preset);
    fclose(out);
    buf[size - 1] = '\0';
}

static void print_words(const struct weir_model *model)
{
    for (size_t i = 0; model->fields[i].name; i++) {
        const struct weir_model_field *field = &model->fields[i];
        if (field->kind != WEIR_MODEL_WORD)
            continue;
        printf("\n%s is one of:", field->name);
        for (size_t w = 0; field->words[w]; w++)
            printf(" %s", field->words[w]);
        printf("\n");
    }
}

static void print_model(const struct weir_model *model)
{
    printf("%s: %s\n\nParameters:\n", model->name, model->sentence);
    struct weir_rows rows = { .columns = 2 };
    for (size_t i = 0; model->fields[i].name; i++) {
        char preset[80] = "";
        show_preset(&model->fields[i], preset, sizeof preset);
        weir_rows_add_all(&rows, preset, model->fields[i].sentence, NULL);
    }
    weir_rows_print(&rows, stdout);
    print_words(model);
    printf("\nMeasures:\n");
    rows.columns = 2;
    for (size_t i = 0; model->metrics[i].name; i++)
        weir_rows_add_all(&rows, model->metrics[i].name,
                          model->metrics[i].sentence, NULL);
    weir_rows_print(&rows, stdout);
    printf("\nShows over time:\n");
    rows.columns = 2;
    for (size_t i = 0; model->series[i].name; i++)
        weir_rows_add_all(&rows, model->series[i].name, model->series[i].unit,
                          NULL);
    weir_rows_print(&rows, stdout);
}

int weir_cli_lab_models(int argc, char **argv)
{
    int at = weir_cli_parse(NULL, models_help, NULL, 0, argc, argv);
    if (at < 0)
        return weir_cli_parsed(at);
    if (at == argc) {
        print_names();
        return WEIR_EXIT_OK;
    }
    for (size_t i = 0; weir_models[i]; i++) {
        if (strcmp(weir_models[i]->name, argv[at]) != 0)
            continue;
        print_model(weir_models[i]);
        return WEIR_EXIT_OK;
    }
    return weir_cli_fail("there is no model '%s'; `weir lab models` names them",
                         argv[at]);
}
