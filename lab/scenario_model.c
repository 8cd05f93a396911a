/* SPDX-License-Identifier: MIT
 * lab/scenario_model.c - "model NAME key=value …".
 *
 * A model's fields are read by their kinds into one array of doubles: whole
 * nanoseconds and counts are exact in it up to 2^53, and a model needs no
 * struct of its own in the language. */

#include "lab/model.h"
#include "lab/scenario_internal.h"

static const struct weir_model *find_model(struct weir_builder *builder,
                                           const struct weir_word *word)
{
    size_t count = 0;
    while (weir_models[count])
        count++;
    const char **names =
        weir_scenario_alloc(builder->scenario, (count + 1) * sizeof *names);
    for (size_t i = 0; i < count; i++) {
        names[i] = weir_models[i]->name;
        if (weir_word_is(word, names[i]))
            return weir_models[i];
    }
    weir_script_unknown(builder->diag, word, "model", names);
    return NULL;
}

static const struct weir_model_field *find_model_field(
    struct weir_builder *builder, const struct weir_model *model,
    const struct weir_word *key)
{
    const char *names[WEIR_MODEL_FIELDS_MAX + 1] = { NULL };
    for (size_t i = 0; model->fields[i].name; i++) {
        names[i] = model->fields[i].name;
        if (weir_word_is(key, names[i]))
            return &model->fields[i];
    }
    char kind[80];
    snprintf(kind, sizeof kind, "field of the model %s", model->name);
    weir_script_unknown(builder->diag, key, kind, names);
    return NULL;
}

static int read_model_value(struct weir_builder *builder,
                            const struct weir_model_field *field,
                            const struct weir_word *word, double *out)
{
    weir_duration duration = 0;
    uint64_t count = 0;
    int choice = 0;
    int error;
    switch (field->kind) {
    case WEIR_MODEL_DURATION:
        error = weir_read_duration(word, &duration, builder->diag);
        *out = (double)duration;
        return error;
    case WEIR_MODEL_RATE:
        return weir_read_rate(word, out, NULL, builder->diag);
    case WEIR_MODEL_COUNT:
        error = weir_read_count(word, (uint64_t)field->min,
                                (uint64_t)field->max, &count, builder->diag);
        *out = (double)count;
        return error;
    case WEIR_MODEL_SHARE:
        return weir_read_share(word, out, builder->diag);
    case WEIR_MODEL_REAL:
        return weir_read_real(word, field->min, field->max, out, builder->diag);
    case WEIR_MODEL_WORD:
        error = weir_read_choice(word, field->name, field->words, &choice,
                                 builder->diag);
        *out = choice;
        return error;
    }
    weir_assert(!"a field is of one of these kinds");
}

static int read_model_field(struct weir_builder *builder,
                            const struct weir_model *model, double *values,
                            const struct weir_word *word)
{
    struct weir_word key;
    struct weir_word value;
    if (!weir_word_cut(word, "=", &key, &value))
        return WEIR_REFUSE(builder, word,
                           "fields follow a model's name: key=value");
    const struct weir_model_field *field =
        find_model_field(builder, model, &key);
    return field ? read_model_value(builder, field, &value,
                                    &values[field - model->fields])
                 : WEIR_ESYNTAX;
}

int weir_build_model(struct weir_builder *builder)
{
    struct weir_scenario *scenario = builder->scenario;
    const struct weir_word *word;
    if (builder->has_fleet)
        return WEIR_REFUSE(builder, &builder->line.words[0],
                           "a model replaces the fleet: no roots, "
                           "limiters, quotas or loads beside it");
    int error = weir_line_want(&builder->line, "the name of a model", &word);
    if (error < 0)
        return error;
    const struct weir_model *model = find_model(builder, word);
    if (!model)
        return WEIR_ESYNTAX;
    scenario->model = model;
    scenario->model_values = weir_scenario_alloc(
        scenario, (WEIR_MODEL_FIELDS_MAX + 1) * sizeof(double));
    for (size_t i = 0; model->fields[i].name; i++) {
        weir_assert(i < WEIR_MODEL_FIELDS_MAX);
        scenario->model_values[i] = model->fields[i].preset;
    }
    while (error == 0 && (word = weir_line_take(&builder->line)))
        error = read_model_field(builder, model, scenario->model_values, word);
    return error;
}

void weir_model_value_print(FILE *out, const struct weir_model_field *field,
                            double value)
{
    switch (field->kind) {
    case WEIR_MODEL_DURATION:
        weir_print_duration(out, (weir_duration)value);
        break;
    case WEIR_MODEL_RATE:
        weir_print_rate(out, value, false);
        break;
    case WEIR_MODEL_SHARE:
        weir_print_share(out, value);
        break;
    case WEIR_MODEL_COUNT:
    case WEIR_MODEL_REAL:
        weir_print_real(out, value);
        break;
    case WEIR_MODEL_WORD:
        fputs(field->words[(size_t)value], out);
        break;
    }
}

void weir_print_model(FILE *out, const struct weir_scenario *scenario)
{
    const struct weir_model *model = scenario->model;
    fprintf(out, "model %s", model->name);
    for (size_t i = 0; model->fields[i].name; i++) {
        double value = scenario->model_values[i];
        if (value == model->fields[i].preset)
            continue;
        fprintf(out, " %s=", model->fields[i].name);
        weir_model_value_print(out, &model->fields[i], value);
    }
    fputc('\n', out);
}
