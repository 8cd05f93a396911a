/* SPDX-License-Identifier: MIT
 * test/server/admin_house.h - shared by the tests of the administration: a real
 * root node, a store's thread on a SQLite file in a folder of its own, and the
 * last answer. Every failure of these fails the test. */

#ifndef ADMIN_HOUSE_H
#define ADMIN_HOUSE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include "io/clock.h"
#include "server/admin/admin.h"

#define PATIENCE_MS 20000

/* A root with a store's thread, and the last answer. */
struct house {
    struct weir_root *root;
    struct weir_admin *admin;
    struct weir_store_thread *store;
    const char *identity; /* of the caller; NULL: unknown */
    bool answered;
    int status;
    char type[64];
    char allow[64];
    json_t *json; /* owned; NULL: the answer wasn't JSON */
    char *text;   /* owned */
};

struct fixture {
    char folder[64];
    char path[96];
    char url[112];
    struct house house;
};

/* Keeps the answer. A callback of weir_admin_call(), with the house as
 * context. */
void on_answer(void *context, const struct weir_admin_answer *answer);
/* Forgets the last answer. */
void forget(struct house *house);
/* Delivers the store thread's results; waits for the first. */
void turn(struct house *house);
/* Sends a request, and waits for the answer. */
void ask(struct house *house, const char *method, const char *target,
         const char *body);
/* A member of the answer: a text ("" if it isn't one), a number. */
const char *member(struct house *house, const char *key);
json_int_t number(struct house *house, const char *key);
/* Sends a request that must be answered with 'status'. */
void must(struct house *house, int status, const char *method,
          const char *target, const char *body);
/* Sends a request that must be refused with 'error', a detail that contains
 * 'hint' and the error's status. */
void refused(struct house *house, const char *error, const char *hint,
             const char *method, const char *target, const char *body);
/* 'settle': waits until the root has read the store. */
void open_house(struct house *house, const char *url, bool settle);
void close_house(struct house *house);
/* Set up and tear down: a fixture with its house open. */
int make(void **state);
int clean(void **state);

#define WITH_HOUSE(TEST) cmocka_unit_test_setup_teardown(TEST, make, clean)

#endif /* ADMIN_HOUSE_H */
