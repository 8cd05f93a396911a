/* SPDX-License-Identifier: MIT
 * protocol/resp/resp_command.c - the table of the commands: finds a request's
 * command and runs it; and COMMAND, which shows the table. */

#include <stdio.h>

#include "protocol/resp/resp_internal.h"

struct command {
    const char *name; /* in lower case */
    int arity;        /* arguments with the name; negative: at least so many */
    bool is_open;     /* also for a peer without a credential */
    bool is_write;    /* it changes a key's state */
    uint8_t key;      /* index of the argument that is a key; 0: none */
    void (*run)(struct weir_resp_call *call);
};

static void show_commands(struct weir_resp_call *call);

/* The most frequent first. */
static const struct command commands[] = {
    { "cl.throttle", -1, false, true, 1, weir_resp_cl_throttle },
    { "weir.take", -2, false, true, 0, weir_resp_take },
    { "ping", -1, false, false, 0, weir_resp_ping },
    { "cl.probe", -1, false, false, 1, weir_resp_cl_probe },
    { "weir.peek", -2, false, false, 0, weir_resp_peek },
    { "del", -2, false, true, 1, weir_resp_del },
    { "echo", 2, false, false, 0, weir_resp_echo },
    { "select", 2, false, false, 0, weir_resp_select },
    { "client", -2, false, false, 0, weir_resp_client },
    { "command", -1, false, false, 0, show_commands },
    { "config", -2, false, false, 0, weir_resp_config },
    { "info", -1, false, false, 0, weir_resp_info },
    { "auth", -2, true, false, 0, weir_resp_auth },
    { "hello", -1, true, false, 0, weir_resp_hello },
    { "reset", 1, true, false, 0, weir_resp_reset },
    { "quit", -1, true, false, 0, weir_resp_quit },
};

static const struct command *find_resp_command(struct weir_text name)
{
    for (size_t i = 0; i < WEIR_COUNT_OF(commands); i++)
        if (weir_resp_is_word(name, commands[i].name))
            return &commands[i];
    return NULL;
}

/* ---- COMMAND ---- */

static void write_command(struct weir_resp_call *call,
                          const struct command *command)
{
    weir_resp_array(call->out, 6);
    weir_resp_text(call, command->name);
    weir_resp_integer(call->out, command->arity);
    weir_resp_array(call->out, 2);
    weir_resp_simple(call->out, command->is_write ? "write" : "readonly");
    weir_resp_simple(call->out, "fast");
    weir_resp_integer(call->out, command->key);
    weir_resp_integer(call->out, command->key);
    weir_resp_integer(call->out, command->key ? 1 : 0);
}

static void write_some_commands(struct weir_resp_call *call)
{
    weir_resp_array(call->out, call->request->count - 2);
    for (size_t i = 2; i < call->request->count; i++) {
        const struct command *command =
            find_resp_command(weir_resp_argument(call, i));
        if (command)
            write_command(call, command);
        else
            weir_resp_null(call->out);
    }
}

static void write_command_names(struct weir_resp_call *call)
{
    weir_resp_array(call->out, WEIR_COUNT_OF(commands));
    for (size_t i = 0; i < WEIR_COUNT_OF(commands); i++)
        weir_resp_text(call, commands[i].name);
}

static void write_all_commands(struct weir_resp_call *call)
{
    weir_resp_array(call->out, WEIR_COUNT_OF(commands));
    for (size_t i = 0; i < WEIR_COUNT_OF(commands); i++)
        write_command(call, &commands[i]);
}

static void show_commands(struct weir_resp_call *call)
{
    struct weir_text part =
        call->request->count > 1 ? weir_resp_argument(call, 1) : WEIR_TEXT("");
    if (part.len == 0)
        write_all_commands(call);
    else if (weir_resp_is_word(part, "count"))
        weir_resp_integer(call->out, (int64_t)WEIR_COUNT_OF(commands));
    else if (weir_resp_is_word(part, "info"))
        write_some_commands(call);
    else if (weir_resp_is_word(part, "list"))
        write_command_names(call);
    else if (weir_resp_is_word(part, "docs"))
        weir_resp_map(call->out, 0);
    else
        weir_resp_error(call->out, "ERR unknown subcommand of 'command': "
                                   "there is COUNT, INFO, LIST and DOCS");
}

/* ---- Requests ---- */

/* In Redis's words. */
static void refuse_unknown_command(struct weir_resp_call *call)
{
    char text[3 * WEIR_RESP_QUOTED_MAX];
    struct weir_text name = weir_resp_argument(call, 0);
    int len = snprintf(text, sizeof text,
                       "ERR unknown command '%.*s', with args beginning with: ",
                       name.len < WEIR_RESP_QUOTED_MAX ? (int)name.len
                                                       : WEIR_RESP_QUOTED_MAX,
                       name.p);
    for (size_t i = 1; i < call->request->count; i++) {
        struct weir_text said = weir_resp_argument(call, i);
        if (said.len > WEIR_RESP_QUOTED_MAX ||
            (size_t)len + said.len + 4 > sizeof text)
            break;
        len += snprintf(text + len, sizeof text - (size_t)len, "'%.*s' ",
                        (int)said.len, said.p);
    }
    weir_resp_error(call->out, text);
}

static void refuse_argument_count(struct weir_resp_call *call,
                                  const struct command *command)
{
    char text[96];
    snprintf(text, sizeof text,
             "ERR wrong number of arguments for '%s' command", command->name);
    weir_resp_error(call->out, text);
}

void weir_resp_answer(struct weir_resp_call *call)
{
    size_t count = call->request->count;
    weir_assert(call->session->id != 0);
    if (count == 0)
        return;
    const struct command *command =
        find_resp_command(weir_resp_argument(call, 0));
    if (!call->session->known && !(command && command->is_open)) {
        weir_resp_error(call->out, "NOAUTH Authentication required.");
        return;
    }
    if (!command) {
        refuse_unknown_command(call);
        return;
    }
    size_t wanted =
        (size_t)(command->arity < 0 ? -command->arity : command->arity);
    if (count < wanted || (command->arity > 0 && count > wanted)) {
        refuse_argument_count(call, command);
        return;
    }
    command->run(call);
}
