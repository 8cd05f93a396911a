/* SPDX-License-Identifier: MIT
 * front/http_problem.c - one table: error, its name, its HTTP status, its
 * title.
 *
 * The format is RFC 9457's, with one more member, "error", for programs. */

#include "front/http_problem.h"

#include <stdio.h>
#include <string.h>

struct row {
    int error;
    const char *name;
    int status;
    const char *title;
};

#define NAMED(ERROR) ERROR, #ERROR
static const struct row rows[] = {
    { NAMED(WEIR_EINVAL), 400, "The request isn't one that can be answered" },
    { NAMED(WEIR_ENOMEM), 503, "The process is out of memory" },
    { NAMED(WEIR_ENAME), 400, "The name isn't allowed" },
    { NAMED(WEIR_EQUOTA), 422, "The quota's fields don't go together" },
    { NAMED(WEIR_EPARENT), 422, "The parent doesn't exist" },
    { NAMED(WEIR_ECYCLE), 422, "A quota would be its own ancestor" },
    { NAMED(WEIR_EDEPTH), 422, "The chain would be too long" },
    { NAMED(WEIR_EEXIST), 409, "It exists already" },
    { NAMED(WEIR_ENOENT), 404, "It doesn't exist" },
    { NAMED(WEIR_ECHILDREN), 409, "The quota has children" },
    { NAMED(WEIR_EFULL), 503, "There is no room" },
    { NAMED(WEIR_ETIMEOUT), 503, "It took too long" },
    { NAMED(WEIR_ESYNTAX), 400, "The request can't be parsed" },
    { NAMED(WEIR_ETOOBIG), 413, "The request is too big" },
    { NAMED(WEIR_EPROTOCOL), 500, "The protocol was broken" },
    { NAMED(WEIR_ESTORE), 503, "The quota store can't be used" },
    { NAMED(WEIR_ELOCKED), 503, "The quota store is locked" },
    { NAMED(WEIR_ESCHEMA), 503, "The quota store is of another version" },
    { NAMED(WEIR_ESYSTEM), 500, "A system call failed" },
    { NAMED(WEIR_ECONNECT), 503, "No root can be reached" },
    { NAMED(WEIR_ECLOSED), 503, "The root is stopping" },
    { NAMED(WEIR_ENOTREADY), 503, "The root has not read its quotas yet" },
    { NAMED(WEIR_ECREDENTIAL), 401, "The credential isn't known" },
    { NAMED(WEIR_EDENIED), 403, "The credential's role doesn't allow that" },
    { NAMED(WEIR_ECHANGED), 409, "It has been changed since" },
    { NAMED(WEIR_ETLS), 500, "TLS failed" },
    { NAMED(WEIR_ETABLE), 500, "The shared table can't be used" },
};

static const struct row *find_error(int error)
{
    static const struct row unknown = { 0, "WEIR_EUNKNOWN", 500,
                                        "Something went wrong" };
    for (size_t i = 0; i < WEIR_COUNT_OF(rows); i++)
        if (rows[i].error == error)
            return &rows[i];
    return &unknown;
}

int weir_error_status(int error)
{
    return find_error(error)->status;
}

int weir_error_named(const char *name)
{
    for (size_t i = 0; i < WEIR_COUNT_OF(rows); i++)
        if (strcmp(rows[i].name, name) == 0)
            return rows[i].error;
    return 0;
}

json_t *weir_http_problem(int error, int status, const struct weir_diag *diag)
{
    const struct row *row = find_error(error);
    char type[64];
    snprintf(type, sizeof type, "urn:weir:error:%s", row->name);
    const char *detail =
        diag && diag->text[0] ? diag->text : weir_strerror(error);
    /* A detail that quotes hostile bytes and was cut in the middle of a
     * character isn't JSON text, and is replaced as a whole. */
    json_t *said = json_string(detail);
    if (!said)
        said = json_string(weir_strerror(error));
    json_t *problem = json_pack("{s:s, s:s, s:i, s:o, s:s}", "type", type,
                                "title", row->title, "status", status, "detail",
                                said, "error", row->name);
    if (problem && diag && diag->line > 0) {
        json_object_set_new(problem, "line", json_integer(diag->line));
        json_object_set_new(problem, "column", json_integer(diag->column));
    }
    return problem;
}
