/* SPDX-License-Identifier: MIT
 * test/server/admin_house.c - a root with an administration, and a store for
 * it. */

#include "admin_house.h"
#include "patience.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "front/http_problem.h"

void on_answer(void *context, const struct weir_admin_answer *answer)
{
    struct house *house = context;
    assert_false(house->answered);
    house->answered = true;
    house->status = answer->status;
    snprintf(house->type, sizeof house->type, "%s", answer->type);
    snprintf(house->allow, sizeof house->allow, "%s",
             answer->allow ? answer->allow : "");
    house->text = strndup(answer->body, answer->len);
    house->json = json_loadb(answer->body, answer->len, 0, NULL);
}

void forget(struct house *house)
{
    house->answered = false;
    json_decref(house->json);
    free(house->text);
    house->json = NULL;
    house->text = NULL;
}

void turn(struct house *house)
{
    struct pollfd news = { weir_store_thread_fd(house->store), POLLIN, 0 };
    assert_int_equal(poll(&news, 1, PATIENCE_MS), 1);
    weir_store_thread_turn(house->store, weir_clock_now());
}

void ask(struct house *house, const char *method, const char *target,
         const char *body)
{
    forget(house);
    struct weir_admin_request request = {
        .method = weir_text_of(method),
        .target = weir_text_of(target),
        .body = weir_text_of(body),
        .identity = weir_text_of(house->identity),
    };
    weir_admin_call(house->admin, &request, on_answer, house, weir_clock_now());
    while (STILL(!house->answered))
        turn(house);
}

const char *member(struct house *house, const char *key)
{
    const char *text = json_string_value(json_object_get(house->json, key));
    return text ? text : "";
}

json_int_t number(struct house *house, const char *key)
{
    return json_integer_value(json_object_get(house->json, key));
}

void must(struct house *house, int status, const char *method,
          const char *target, const char *body)
{
    ask(house, method, target, body);
    if (house->status != status)
        print_error("%s %s: %d\n%s\n", method, target, house->status,
                    house->text);
    assert_int_equal(house->status, status);
}

void refused(struct house *house, const char *error, const char *hint,
             const char *method, const char *target, const char *body)
{
    ask(house, method, target, body);
    bool right = strcmp(member(house, "error"), error) == 0 &&
                 strstr(member(house, "detail"), hint);
    if (!right)
        print_error("%s %s: expected %s, '%s'; got\n%s\n", method, target,
                    error, hint, house->text);
    assert_true(right);
    assert_string_equal(house->type, "application/problem+json");
    assert_int_equal(number(house, "status"), house->status);
    if (house->status != 405)
        assert_int_equal(house->status,
                         weir_error_status(weir_error_named(error)));
}

void open_house(struct house *house, const char *url, bool settle)
{
    *house = (struct house){ 0 };
    struct weir_root_options root = {
        .mem = weir_mem_system,
        .name = WEIR_TEXT("test"),
        .seed = 1,
        .peers_max = 4,
        .settings = { .report_interval = WEIR_SECOND,
                      .stale_after = 10 * WEIR_SECOND },
    };
    house->root = weir_root_new(&root, weir_clock_now());
    struct weir_admin_options admin = { .root = house->root,
                                        .name = root.name,
                                        .settings = root.settings,
                                        .store_url = url,
                                        .version = "1.2.3",
                                        .started = weir_clock_now() };
    house->admin = weir_admin_new(&admin);
    struct weir_store_listener listener =
        weir_admin_store_listener(house->admin);
    struct weir_diag diag = { 0 };
    assert_int_equal(
        weir_store_thread_new(url, &listener, &house->store, &diag), 0);
    weir_admin_parts(house->admin)->store = house->store;
    while (settle && !weir_root_ready(house->root))
        turn(house);
}

void close_house(struct house *house)
{
    forget(house);
    weir_admin_free(&house->admin);
    weir_store_thread_free(&house->store);
    weir_root_free(house->root);
}

int make(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    strcpy(f->folder, "/tmp/weir-admin-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    snprintf(f->path, sizeof f->path, "%s/quotas.db", f->folder);
    snprintf(f->url, sizeof f->url, "sqlite:%s", f->path);
    struct weir_diag diag = { 0 };
    assert_int_equal(weir_store_init(f->url, &diag), 0);
    open_house(&f->house, f->url, true);
    *state = f;
    return 0;
}

int clean(void **state)
{
    struct fixture *f = *state;
    if (f->house.admin)
        close_house(&f->house);
    static const char *const ends[] = { "", "-wal", "-shm", "-away" };
    for (size_t i = 0; i < WEIR_COUNT_OF(ends); i++) {
        char path[128];
        snprintf(path, sizeof path, "%s%s", f->path, ends[i]);
        unlink(path);
    }
    rmdir(f->folder);
    free(f);
    return 0;
}
