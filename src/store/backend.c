/* SPDX-License-Identifier: MIT
 * store/backend.c - finds and opens the backend that a store's URL names, and
 * what is the same for all of them. */

#include "store/backend.h"

#include <string.h>

#include "core/quota/quota_text.h"

static const struct weir_backend_type *const types[] = {
    &weir_backend_sqlite,
    &weir_backend_postgres,
};

int weir_backend_find(const char *url, const struct weir_backend_type **type,
                      const char **where, struct weir_diag *diag)
{
    for (size_t i = 0; i < WEIR_COUNT_OF(types); i++) {
        size_t len = strlen(types[i]->scheme);
        if (strncmp(url, types[i]->scheme, len) != 0 || url[len] != ':')
            continue;
        if (url[len + 1] == '\0')
            return weir_diag_set(diag, WEIR_EINVAL, "the store '", url,
                                 "' names no file or database; write ",
                                 types[i]->example, NULL);
        *type = types[i];
        *where = url + len + 1;
        return 0;
    }
    char buf[WEIR_STORE_SHOW_MAX];
    char shown[WEIR_SHOW_MAX];
    struct weir_text text = weir_text_of(weir_store_show(url, buf));
    return weir_diag_set(diag, WEIR_EINVAL, "the store ",
                         weir_text_show(text, shown),
                         " is of no kind that this version knows; write ",
                         types[0]->example, " or ", types[1]->example, NULL);
}

int weir_backend_make(const char *url, struct weir_backend **out,
                      struct weir_diag *diag)
{
    const struct weir_backend_type *type;
    const char *where;
    int error = weir_backend_find(url, &type, &where, diag);
    return error < 0 ? error : type->make(where, out, diag);
}

int weir_backend_open(const char *url, bool create, struct weir_backend **out,
                      struct weir_diag *diag)
{
    struct weir_backend *made;
    int error = weir_backend_make(url, &made, diag);
    if (error < 0)
        return error;
    error =
        create ? made->type->create(made, diag) : made->type->open(made, diag);
    if (error < 0)
        made->type->close(made);
    else
        *out = made;
    return error;
}

int weir_backend_check_moved(const struct weir_store_meta *meta,
                             const char *shown, struct weir_diag *diag)
{
    if (!meta->moved_to[0])
        return 0;
    return weir_diag_set(diag, WEIR_ESTORE, "the quota store ", shown,
                         " was migrated to ", meta->moved_to,
                         ": use that one; if this one is to be used "
                         "again after all, run 'weir store restored ",
                         shown, "'", NULL);
}

int weir_backend_end(struct weir_backend *backend, int error,
                     struct weir_diag *diag)
{
    if (error == 0)
        error = backend->type->commit(backend, diag);
    if (error != 0)
        backend->type->rollback(backend);
    return error;
}
