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
    int status;
    const char *name;
    const char *title;
};

#define ROW(ERROR, STATUS, TITLE)    \
    {                                \
        ERROR, STATUS, #ERROR, TITLE \
    }
static const struct row rows[] = {
    ROW(WEIR_EINVAL, 400, "The request isn't one that can be answered"),
    ROW(WEIR_ENOMEM, 500, "The root is out of memory"),
    ROW(WEIR_ENAME, 400, "The name isn't allowed"),
    ROW(WEIR_EQUOTA, 422, "The quota's fields don't go together"),
    ROW(WEIR_EPARENT, 422, "The parent doesn't exist"),
    ROW(WEIR_ECYCLE, 422, "A quota would be its own ancestor"),
    ROW(WEIR_EDEPTH, 422, "The chain would be too long"),
    ROW(WEIR_EEXIST, 409, "It exists already"),
    ROW(WEIR_ENOENT, 404, "It doesn't exist"),
    ROW(WEIR_ECHILDREN, 409, "The quota has children"),
    ROW(WEIR_EFULL, 503, "There is no room"),
    ROW(WEIR_ETIMEOUT, 503, "It took too long"),
    ROW(WEIR_ESYNTAX, 400, "The request can't be parsed"),
    ROW(WEIR_ETOOBIG, 413, "The request is too big"),
    ROW(WEIR_EPROTOCOL, 500, "The protocol was broken"),
    ROW(WEIR_ESTORE, 503, "The quota store can't be used"),
    ROW(WEIR_ELOCKED, 503, "The quota store is locked"),
    ROW(WEIR_ESCHEMA, 503, "The quota store is of another version"),
    ROW(WEIR_ESYSTEM, 500, "A system call failed"),
    ROW(WEIR_ECONNECT, 503, "No root can be reached"),
    ROW(WEIR_ECLOSED, 503, "The root is stopping"),
    ROW(WEIR_ENOTREADY, 503, "The root has not read its quotas yet"),
    ROW(WEIR_ECREDENTIAL, 401, "The credential isn't known"),
    ROW(WEIR_EDENIED, 403, "The credential's role doesn't allow that"),
    ROW(WEIR_ECHANGED, 409, "It has been changed since"),
    ROW(WEIR_ETLS, 500, "TLS failed"),
    ROW(WEIR_ETABLE, 500, "The shared table can't be used"),
};

static const struct row *find_error(int error)
{
    static const struct row unknown = { 0, 500, "WEIR_EUNKNOWN",
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
