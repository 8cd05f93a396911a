/* SPDX-License-Identifier: MIT
 * test/admin_house.h - what the tests of the administration share: a real root
 * node, a store's thread on a SQLite file in a folder of its own, and the last
 * answer. Every failure of these fails the test. */

#ifndef ADMIN_HOUSE_H
#define ADMIN_HOUSE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include "os/clock.h"
#include "server/admin.h"

#define PATIENCE_MS 20000

/* A root with a store's thread, and the last answer. */
struct house {
    struct weir_root *root;
    struct weir_admin *admin;
    struct weir_store_thread *store;
    const char *who; /* asks; NULL: nobody known */
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

/* Keeps the answer; of weir_admin_call(), with the house as context. */
void on_answer(void *context, const struct weir_admin_answer *answer);
/* Forgets the last answer. */
void forget(struct house *house);
/* Hands over what the store's thread has, waiting for some at most. */
void turn(struct house *house);
/* Asks, and waits for the answer. */
void ask(struct house *house, const char *method, const char *target,
         const char *body);
/* A member of the answer: a text ("" if it is none), a number. */
const char *member(struct house *house, const char *key);
json_int_t number(struct house *house, const char *key);
/* Asks for what must be answered with 'status'. */
void must(struct house *house, int status, const char *method,
          const char *target, const char *body);
/* Asks for what must be refused with 'error', a detail that holds 'hint'
 * and the status that goes with the error. */
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
