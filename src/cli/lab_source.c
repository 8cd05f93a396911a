/* SPDX-License-Identifier: MIT
 * cli/lab_source.c - finding and reading scenarios. */

#include "cli/lab_command.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_MAX 256

static bool is_path(const char *name)
{
    size_t len = strlen(name);
    return strchr(name, '/') || strcmp(name, "-") == 0 ||
           (len > 5 && strcmp(name + len - 5, ".weir") == 0);
}

static int refuse_scenario_name(const char *name)
{
    const char *names[NAMES_MAX + 1] = { NULL };
    for (size_t i = 0; weir_builtins[i].name && i < NAMES_MAX; i++)
        names[i] = weir_builtins[i].name;
    const char *nearest = weir_cli_nearest(name, names);
    if (nearest)
        return weir_cli_fail("there is no scenario '%s'; did you mean '%s'?",
                             name, nearest);
    return weir_cli_fail("there is no scenario '%s'; `weir lab list` names "
                         "those there are, and a file's name ends with .weir",
                         name);
}

static int read_scenario_file(struct weir_lab_source *source)
{
    bool standard = strcmp(source->path, "-") == 0;
    FILE *file = standard ? stdin : fopen(source->path, "re");
    source->text = malloc(WEIR_SCENARIO_BYTES_MAX + 1);
    size_t len = 0;
    if (file && source->text)
        len = fread(source->text, 1, WEIR_SCENARIO_BYTES_MAX + 1, file);
    int status = 0;
    if (!file || !source->text || ferror(file))
        status =
            weir_cli_fail("can't read %s: %s", source->path, strerror(errno));
    if (file && !standard)
        fclose(file);
    source->len = len;
    return status;
}

int weir_lab_find(struct weir_lab_source *source, const char *name)
{
    *source = (struct weir_lab_source){ .path = name };
    if (is_path(name))
        return read_scenario_file(source);
    for (size_t i = 0; weir_builtins[i].name; i++) {
        if (strcmp(weir_builtins[i].name, name) != 0)
            continue;
        source->text = strdup(weir_builtins[i].text);
        if (!source->text)
            return weir_cli_fail("%s", weir_strerror(WEIR_ENOMEM));
        source->len = strlen(source->text);
        return 0;
    }
    return refuse_scenario_name(name);
}

int weir_lab_refuse(const struct weir_lab_source *source,
                    const struct weir_diag *diag)
{
    char shown[2048];
    struct weir_text text = { source->text, source->len };
    weir_script_show(source->path, text, diag, shown, sizeof shown);
    fputs(shown, stderr);
    return WEIR_EXIT_ERROR;
}

int weir_lab_open(struct weir_lab_source *source, const char *name,
                  const struct weir_cli_values *sets)
{
    int status = weir_lab_find(source, name);
    if (status)
        return status;
    struct weir_diag diag = { 0 };
    struct weir_text text = { source->text, source->len };
    source->script = weir_script_read(name, text, &diag);
    if (!source->script)
        return weir_lab_refuse(source, &diag);
    if (sets && sets->count > WEIR_CLI_VALUES_MAX)
        return weir_cli_fail("--set comes at most %d times",
                             WEIR_CLI_VALUES_MAX);
    for (size_t i = 0; sets && i < sets->count; i++)
        if (weir_script_set(source->script, sets->items[i], &diag) < 0)
            return weir_cli_fail("--set %s: %s", sets->items[i], diag.text);
    return 0;
}

void weir_lab_close(struct weir_lab_source *source)
{
    weir_script_free(source->script);
    free(source->text);
    *source = (struct weir_lab_source){ 0 };
}

struct weir_scenario *weir_lab_build(const struct weir_lab_source *source,
                                     size_t variant)
{
    struct weir_diag diag = { 0 };
    struct weir_scenario *scenario =
        weir_scenario_build(source->script, variant, &diag);
    if (!scenario)
        weir_lab_refuse(source, &diag);
    return scenario;
}
