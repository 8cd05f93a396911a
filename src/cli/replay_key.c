/* SPDX-License-Identifier: MIT
 * cli/replay_key.c - '{client}/{method}': the name that a line asks for. */

#include "cli/replay.h"

#include <string.h>

#include "lab/log_line.h"

static const char *const words[] = {
    [WEIR_REPLAY_LITERAL] = "",          [WEIR_REPLAY_CLIENT] = "client",
    [WEIR_REPLAY_USER] = "user",         [WEIR_REPLAY_METHOD] = "method",
    [WEIR_REPLAY_PATH] = "path",         [WEIR_REPLAY_DIR] = "dir",
    [WEIR_REPLAY_PROTOCOL] = "protocol", [WEIR_REPLAY_STATUS] = "status",
    [WEIR_REPLAY_REFERER] = "referer",   [WEIR_REPLAY_AGENT] = "agent",
};

static int find_word(const char *text, size_t len)
{
    for (size_t i = 1; i < WEIR_COUNT_OF(words); i++)
        if (strlen(words[i]) == len && memcmp(words[i], text, len) == 0)
            return (int)i;
    weir_cli_fail("--key: there is no {%.*s}; there are {client}, {user}, "
                  "{method}, {path}, {dir}, {protocol}, {status}, {referer} "
                  "and {agent}",
                  (int)len, text);
    return -1;
}

int weir_replay_key_parse(const char *text, struct weir_replay_key *out)
{
    *out = (struct weir_replay_key){ .count = 0 };
    if (!text[0])
        return weir_cli_fail("--key: write the name that a request asks for, "
                             "for example '{client}/{method}'");
    while (*text) {
        if (out->count == WEIR_REPLAY_PARTS_MAX)
            return weir_cli_fail("--key: too many parts");
        size_t len = strcspn(text, "{");
        if (len > 0) {
            out->parts[out->count++].literal = (struct weir_text){ text, len };
            text += len;
            continue;
        }
        len = strcspn(text, "}");
        if (!text[len])
            return weir_cli_fail("--key: a { without its }");
        int field = find_word(text + 1, len - 1);
        if (field < 0)
            return WEIR_EXIT_ERROR;
        out->parts[out->count++].field = (enum weir_replay_field)field;
        text += len + 1;
    }
    return 0;
}

static struct weir_text plain_path(struct weir_text path)
{
    const char *query = path.len > 0 ? memchr(path.p, '?', path.len) : NULL;
    return query ? (struct weir_text){ path.p, (size_t)(query - path.p) }
                 : path;
}

/* "/blog/2015/a" has "blog", "/robots.txt" and "/" have "". */
static struct weir_text first_dir(struct weir_text path)
{
    path = plain_path(path);
    if (path.len == 0 || path.p[0] != '/')
        return (struct weir_text){ 0 };
    const char *slash = memchr(path.p + 1, '/', path.len - 1);
    if (!slash)
        return (struct weir_text){ 0 };
    return (struct weir_text){ path.p + 1, (size_t)(slash - path.p) - 1 };
}

static struct weir_text key_field_value(enum weir_replay_field field,
                                        struct weir_text literal,
                                        const struct weir_log_line *line)
{
    switch (field) {
    case WEIR_REPLAY_LITERAL:
        return literal;
    case WEIR_REPLAY_CLIENT:
        return line->client;
    case WEIR_REPLAY_USER:
        return line->user;
    case WEIR_REPLAY_METHOD:
        return line->method;
    case WEIR_REPLAY_PATH:
        return plain_path(line->path);
    case WEIR_REPLAY_DIR:
        return first_dir(line->path);
    case WEIR_REPLAY_PROTOCOL:
        return line->protocol;
    case WEIR_REPLAY_STATUS:
        return line->status;
    case WEIR_REPLAY_REFERER:
        return line->referer;
    case WEIR_REPLAY_AGENT:
        break;
    }
    return line->agent;
}

int weir_replay_key_make(const struct weir_replay_key *key,
                         const struct weir_log_line *line, char *buf)
{
    size_t len = 0;
    for (size_t i = 0; i < key->count; i++) {
        struct weir_text text =
            key_field_value(key->parts[i].field, key->parts[i].literal, line);
        if (len + text.len > WEIR_NAME_MAX)
            return WEIR_ENAME;
        if (text.len > 0)
            memcpy(buf + len, text.p, text.len);
        len += text.len;
    }
    return len > 0 ? (int)len : WEIR_ENAME;
}
