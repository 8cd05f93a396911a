/* SPDX-License-Identifier: MIT
 * store/shared_script.h - the text and the arguments of the scripts for Redis.
 *
 * A script is three pieces joined: the source of its time, the common part
 * (shared_common.lua), and one algorithm. In production the first piece takes
 * the server's time; in a test it takes the last argument, and the rest of the
 * text is the same. */

#ifndef WEIR_SHARED_SCRIPT_H
#define WEIR_SHARED_SCRIPT_H

#include "core/algorithm/algorithm.h"

#define WEIR_SCRIPT_ID_LEN 40    /* a SHA-1 in hexadecimal digits */
#define WEIR_SCRIPT_ANSWER_LEN 7 /* integers in a reply */
#define WEIR_SCRIPT_ARGUMENTS_MAX 24
#define WEIR_SCRIPT_ARGUMENT_MAX 32 /* bytes of an argument, with its NUL */
#define WEIR_SCRIPT_KEYS_MAX 2
#define WEIR_SCRIPT_KEY_MAX 900 /* bytes of a key, with its NUL */

enum weir_script_time {
    WEIR_SCRIPT_TIME_SERVER, /* microseconds of the server's clock */
    WEIR_SCRIPT_TIME_GIVEN,  /* microseconds in the last argument */
};

/* The script of an algorithm; several algorithms may share one. */
struct weir_script {
    char id[WEIR_SCRIPT_ID_LEN + 1];
    char *text; /* owned, NUL-terminated */
    size_t len;
};

/* The algorithm's name in the keys of its states. */
const char *weir_script_algorithm(enum weir_algorithm algorithm);

/* Joins the pieces. 0, or WEIR_ENOMEM. */
int weir_script_init(struct weir_script *script, enum weir_algorithm algorithm,
                     enum weir_script_time time);
void weir_script_fini(struct weir_script *script);

/* The input of EVALSHA: keys and arguments, NUL-terminated. */
struct weir_script_call {
    size_t keys;
    char key[WEIR_SCRIPT_KEYS_MAX][WEIR_SCRIPT_KEY_MAX];
    size_t key_len[WEIR_SCRIPT_KEYS_MAX];
    size_t arguments;
    char argument[WEIR_SCRIPT_ARGUMENTS_MAX][WEIR_SCRIPT_ARGUMENT_MAX];
};

/* Fills in a step on the state of 'name' by 'rule', all but the time. A key is
 * PREFIX:{NAME}:ALGORITHM, so that all keys of one bucket are on one server of
 * a cluster. A } in the name, which would end the hash tag, is written %7D, and
 * a % is %25. */
void weir_script_call(struct weir_script_call *out, const char *prefix,
                      struct weir_text name,
                      const struct weir_algorithm_rule *rule,
                      const struct weir_algorithm_ask *ask);

/* Converts a reply's integers to an answer. WEIR_EPROTOCOL: they are
 * invalid. */
int weir_script_answer(const int64_t *integers, size_t count,
                       struct weir_algorithm_answer *out);

#endif /* WEIR_SHARED_SCRIPT_H */
