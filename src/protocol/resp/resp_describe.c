/* SPDX-License-Identifier: MIT
 * protocol/resp/resp_describe.c - commands and subcommands as redis-server 7
 * describes them.
 *
 * Clients that route by keys read an element's first six parts. redis-cli
 * reads COMMAND DOCS for its hints and HELP. Both skip parts that they don't
 * know, so there are only those that Weir has something to say of. */

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "protocol/resp/resp_internal.h"

/* ---- Subcommands ---- */

const struct weir_resp_part *weir_resp_find_part(
    struct weir_resp_call *call, const char *name,
    const struct weir_resp_part *parts, size_t count)
{
    char text[128];
    struct weir_text said = weir_resp_argument(call, 1);
    snprintf(text, sizeof text, "ERR unknown subcommand '%.*s'. Try %s HELP.",
             said.len < 64 ? (int)said.len : 64, said.p, name);
    for (size_t i = 0; i < count; i++) {
        if (!weir_resp_is_word(said, parts[i].name))
            continue;
        if (weir_resp_has_arity(call->request->count, parts[i].arity))
            return &parts[i];
        char lower[16];
        size_t len = strlen(name);
        weir_assert(len < sizeof lower);
        for (size_t at = 0; at <= len; at++)
            lower[at] = (char)tolower((unsigned char)name[at]);
        snprintf(text, sizeof text,
                 "ERR wrong number of arguments for '%s|%s' command", lower,
                 parts[i].name);
        break;
    }
    weir_resp_error(call->out, text);
    return NULL;
}

void weir_resp_lines(struct weir_resp_call *call, const char *const *lines,
                     size_t count)
{
    weir_resp_array(call->out, count);
    for (size_t i = 0; i < count; i++)
        weir_resp_simple(call->out, lines[i]);
}

/* ---- COMMAND INFO ---- */

static void describe_flags(struct weir_resp_call *call,
                           const struct weir_resp_command *command)
{
    bool is_write = command->flags & WEIR_RESP_WRITE;
    bool is_open = command->flags & WEIR_RESP_OPEN;
    bool has_access = is_write || command->key > 0;
    weir_resp_array(call->out, 1u + has_access + is_open);
    if (has_access)
        weir_resp_simple(call->out, is_write ? "write" : "readonly");
    if (is_open)
        weir_resp_simple(call->out, "no_auth");
    weir_resp_simple(call->out, "fast");
}

static void describe_categories(struct weir_resp_call *call,
                                const struct weir_resp_command *command)
{
    static const char *const of_group[][2] = {
        { "connection", "@connection" },
        { "transactions", "@transaction" },
        { "generic", "@keyspace" },
    };
    const char *category = NULL;
    bool is_write = command->flags & WEIR_RESP_WRITE;
    bool has_access = is_write || command->key > 0;
    for (size_t i = 0; i < WEIR_COUNT_OF(of_group); i++)
        if (strcmp(command->group, of_group[i][0]) == 0)
            category = of_group[i][1];
    weir_resp_array(call->out, 1u + has_access + (category != NULL));
    if (category)
        weir_resp_simple(call->out, category);
    if (has_access)
        weir_resp_simple(call->out, is_write ? "@write" : "@read");
    weir_resp_simple(call->out, "@fast");
}

static void write_pair(struct weir_resp_call *call, const char *name,
                       int64_t value)
{
    weir_resp_text(call, name);
    weir_resp_integer(call->out, value);
}

/* A way to find keys: its type, and a map of 'count' numbers to come. */
static void begin_spec(struct weir_resp_call *call, const char *name,
                       const char *type, size_t count)
{
    weir_resp_text(call, name);
    weir_resp_map(call->out, 2);
    weir_resp_text(call, "type");
    weir_resp_text(call, type);
    weir_resp_text(call, "spec");
    weir_resp_map(call->out, count);
}

/* Where the keys are: from argument 'key' on, one or all. */
static void describe_keys(struct weir_resp_call *call,
                          const struct weir_resp_command *command)
{
    bool is_write = command->flags & WEIR_RESP_WRITE;
    weir_resp_array(call->out, command->key > 0);
    if (command->key == 0)
        return;
    weir_resp_map(call->out, 3);
    weir_resp_text(call, "flags");
    weir_resp_array(call->out, 2);
    weir_resp_simple(call->out, is_write ? "RW" : "RO");
    weir_resp_simple(call->out, is_write ? "update" : "access");
    begin_spec(call, "begin_search", "index", 1);
    write_pair(call, "index", command->key);
    begin_spec(call, "find_keys", "range", 3);
    /* Relative to the first key; -1: to the end. */
    write_pair(call, "lastkey", command->last_key < 0 ? -1 : 0);
    write_pair(call, "keystep", 1);
    write_pair(call, "limit", 0);
}

void weir_resp_describe(struct weir_resp_call *call,
                        const struct weir_resp_command *command)
{
    weir_resp_array(call->out, 10);
    weir_resp_text(call, command->name);
    weir_resp_integer(call->out, command->arity);
    describe_flags(call, command);
    weir_resp_integer(call->out, command->key);
    weir_resp_integer(call->out, command->last_key);
    weir_resp_integer(call->out, command->key ? 1 : 0);
    describe_categories(call, command);
    weir_resp_array(call->out, 0); /* tips */
    describe_keys(call, command);
    weir_resp_array(call->out, 0); /* subcommands */
}

/* ---- COMMAND DOCS ---- */

static void write_texts(struct weir_resp_call *call, const char *name,
                        const char *value)
{
    weir_resp_text(call, name);
    weir_resp_text(call, value);
}

/* One word of 'arguments', such as [#weight]. */
static void document_argument(struct weir_resp_call *call,
                              struct weir_text word)
{
    bool is_optional = word.p[0] == '[';
    if (is_optional)
        word = (struct weir_text){ word.p + 1, word.len - 2 };
    bool is_integer = word.p[0] == '#';
    if (is_integer)
        word = (struct weir_text){ word.p + 1, word.len - 1 };
    bool is_multiple = word.p[word.len - 1] == '+';
    word.len -= is_multiple;
    bool has_flags = is_optional || is_multiple;
    weir_resp_map(call->out, 2u + has_flags);
    weir_resp_text(call, "name");
    weir_resp_bulk(call->out, word);
    write_texts(call, "type",
                is_integer                       ? "integer"
                : weir_resp_is_word(word, "key") ? "key"
                                                 : "string");
    if (!has_flags)
        return;
    weir_resp_text(call, "flags");
    weir_resp_array(call->out, 1);
    weir_resp_simple(call->out, is_optional ? "optional" : "multiple");
}

static void document_arguments(struct weir_resp_call *call, const char *words)
{
    size_t count = words[0] != '\0';
    for (const char *at = words; *at; at++)
        count += *at == ' ';
    weir_resp_array(call->out, count);
    while (*words) {
        size_t len = strcspn(words, " ");
        document_argument(call, (struct weir_text){ words, len });
        words += len + (words[len] == ' ');
    }
}

void weir_resp_document(struct weir_resp_call *call,
                        const struct weir_resp_command *command)
{
    bool has_arguments = command->arguments[0] != '\0';
    weir_resp_text(call, command->name);
    weir_resp_map(call->out, 3u + has_arguments);
    write_texts(call, "summary", command->summary);
    write_texts(call, "since", command->since);
    write_texts(call, "group", command->group);
    if (!has_arguments)
        return;
    weir_resp_text(call, "arguments");
    document_arguments(call, command->arguments);
}
