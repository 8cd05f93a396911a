/* SPDX-License-Identifier: MIT
 * cli/cmd_lab.c - weir lab: its subcommands, and those that only read. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lab_agent.h"
#include "cli/lab_command.h"
#include "cli/root_client.h"
#include "cli/table_print.h"

static const char lab_help[] =
    "Whole fleets in one process, in virtual time, from a seed: the same\n"
    "limiters and roots that services and `weir serve` run, over a simulated\n"
    "network, with the faults of one.\n"
    "\n"
    "    weir lab list\n"
    "    weir lab run weir-fleet --out figures\n"
    "    weir lab compare weir-fleet --set slack=off --vs --set slack=on\n"
    "\n"
    "  list     the scenarios that come with the program\n"
    "  show     print one, to begin one's own with\n"
    "  check    read a file and show the errors in it\n"
    "  models   experiments that aren't fleets, for one's own scenarios\n"
    "  run      run a scenario, in the simulator or in real processes\n"
    "  compare  run it under two settings, side by side\n"
    "  swarm    random scenarios with random faults, under all checkers\n"
    "\n"
    "`weir help lab COMMAND` says more; weir-lab(1), weir-scenario(5) all.\n";

/* ---- list ---- */

static const char list_help[] =
    "Lists the scenarios that come with the program.\n"
    "\n"
    "  --json  as a JSON array\n";

static void list_rows(void)
{
    struct weir_rows rows = { .columns = 2 };
    for (size_t i = 0; weir_builtins[i].name; i++) {
        struct weir_lab_source source;
        if (weir_lab_open(&source, weir_builtins[i].name, NULL) == 0) {
            weir_rows_add(&rows, weir_builtins[i].name);
            weir_rows_add(&rows, weir_script_title(source.script));
        }
        weir_lab_close(&source);
    }
    weir_rows_print(&rows, stdout);
}

static void list_json(void)
{
    json_t *list = json_array();
    for (size_t i = 0; weir_builtins[i].name; i++) {
        struct weir_lab_source source;
        if (weir_lab_open(&source, weir_builtins[i].name, NULL) == 0)
            json_array_append_new(
                list, json_pack("{s:s, s:s}", "name", weir_builtins[i].name,
                                "title", weir_script_title(source.script)));
        weir_lab_close(&source);
    }
    weir_cli_print_json(list);
}

static int run_list(int argc, char **argv)
{
    bool json = false;
    const struct weir_cli_option option = { .name = "json", .flag = &json };
    int at = weir_cli_parse(NULL, list_help, &option, 1, argc, argv);
    if (at < 0)
        return weir_cli_parsed(at);
    if (at != argc)
        return weir_cli_fail("`weir lab list` takes no names; to see one: "
                             "weir lab show %s",
                             argv[at]);
    if (json)
        list_json();
    else
        list_rows();
    return WEIR_EXIT_OK;
}

/* ---- show, check ---- */

static const char show_help[] = "Prints a scenario, to begin one's own with.\n"
                                "\n"
                                "    weir lab show weir-fleet > mine.weir\n";

static int run_show(int argc, char **argv)
{
    int at = weir_cli_parse(NULL, show_help, NULL, 0, argc, argv);
    if (at < 0)
        return weir_cli_parsed(at);
    if (argc - at != 1)
        return weir_cli_fail("one scenario, please; for example: weir lab "
                             "show weir-fleet");
    struct weir_lab_source source;
    int status = weir_lab_find(&source, argv[at]);
    if (status == 0)
        fwrite(source.text, 1, source.len, stdout);
    weir_lab_close(&source);
    return status;
}

static const char check_help[] =
    "Reads scenarios, builds every variant of theirs, and shows the errors;\n"
    "runs nothing.\n"
    "\n"
    "    weir lab check mine.weir\n"
    "\n"
    "  --set KEY=VALUE  instead of the file's value of KEY\n";

static int check_one(const char *name, const struct weir_cli_values *sets)
{
    struct weir_lab_source source;
    int status = weir_lab_open(&source, name, sets);
    size_t count = status == 0 ? weir_script_variants(source.script) : 0;
    for (size_t i = 0; i < count && status == 0; i++) {
        struct weir_scenario *scenario = weir_lab_build(&source, i);
        status = scenario ? 0 : WEIR_EXIT_ERROR;
        weir_scenario_free(scenario);
    }
    if (status == 0 && count == 1)
        printf("%s: good\n", name);
    else if (status == 0)
        printf("%s: good, %zu variants\n", name, count);
    weir_lab_close(&source);
    return status;
}

static int run_check(int argc, char **argv)
{
    struct weir_cli_values sets = { 0 };
    const struct weir_cli_option option = { .name = "set", .values = &sets };
    int at = weir_cli_parse(NULL, check_help, &option, 1, argc, argv);
    if (at < 0)
        return weir_cli_parsed(at);
    if (at == argc)
        return weir_cli_fail("which file? For example: weir lab check "
                             "mine.weir");
    int worst = 0;
    for (int i = at; i < argc; i++) {
        int status = check_one(argv[i], &sets);
        worst = status ? status : worst;
    }
    return worst;
}

/* ---- lab ---- */

int weir_cli_lab(int argc, char **argv)
{
    static const struct weir_cli_subcommand known[] = {
        { "list", run_list },
        { "show", run_show },
        { "check", run_check },
        { "models", weir_cli_lab_models },
        { "run", weir_cli_lab_run },
        { "compare", weir_cli_lab_compare },
        { "swarm", weir_cli_lab_swarm },
    };
    /* A part of --live, not a command for people. */
    if (argc > 1 && strcmp(argv[1], "agent") == 0)
        return weir_cli_lab_agent(argc - 1, argv + 1);
    return weir_cli_run("lab", lab_help, known, WEIR_COUNT_OF(known), argc,
                        argv);
}
