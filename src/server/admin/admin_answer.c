/* SPDX-License-Identifier: MIT
 * server/admin/admin_answer.c - the forms of answers: JSON, a text, a
 * problem. */

#include <stdlib.h>
#include <string.h>

#include "codec/json_text.h"
#include "front/http_problem.h"
#include "server/admin/admin_internal.h"

void weir_admin_answer_text(const struct weir_admin_asker *asker, int status,
                            const char *type, const char *body, size_t len)
{
    const struct weir_admin_answer answer = {
        .status = status, .type = type, .body = body, .len = len
    };
    asker->done(asker->context, &answer);
}

static void answer_with_json(const struct weir_admin_asker *asker,
                             struct weir_admin_answer *answer, json_t *body)
{
    weir_assert(asker->done);
    char *text =
        weir_json_print(body, JSON_INDENT(1) | JSON_REAL_PRECISION(12));
    json_decref(body);
    if (!text) {
        answer->status = 503;
        answer->type = WEIR_HTTP_PROBLEM_TYPE;
    }
    answer->body = text ? text : WEIR_JSON_ENOMEM;
    answer->len = strlen(answer->body);
    asker->done(asker->context, answer);
    free(text);
}

void weir_admin_answer_json(const struct weir_admin_asker *asker, int status,
                            json_t *body)
{
    struct weir_admin_answer answer = { .status = status,
                                        .type = WEIR_JSON_TYPE };
    answer_with_json(asker, &answer, body);
}

void weir_admin_answer_error(const struct weir_admin_asker *asker, int error,
                             const struct weir_diag *diag)
{
    struct weir_admin_answer answer = { .status = weir_error_status(error),
                                        .type = WEIR_HTTP_PROBLEM_TYPE };
    answer_with_json(asker, &answer,
                     weir_http_problem(error, answer.status, diag));
}

void weir_admin_answer_method(const struct weir_admin_asker *asker,
                              const char *allow)
{
    struct weir_diag diag = { 0 };
    weir_diag_set(&diag, WEIR_EINVAL, "this path answers ", allow, " only",
                  NULL);
    struct weir_admin_answer answer = { .status = 405,
                                        .type = WEIR_HTTP_PROBLEM_TYPE,
                                        .allow = allow };
    answer_with_json(asker, &answer,
                     weir_http_problem(WEIR_EINVAL, 405, &diag));
}

void weir_admin_refuse(int error, const struct weir_diag *diag,
                       weir_admin_done_fn *done, void *context)
{
    const struct weir_admin_asker asker = { done, context };
    weir_admin_answer_error(&asker, error, diag);
}
