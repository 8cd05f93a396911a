/* SPDX-License-Identifier: MIT
 * server/admin/admin_store.c - applies the store's changes to the root, and
 * hands the store's answers to edits. */

#include <stdlib.h>
#include <string.h>

#include "server/admin/admin_internal.h"

static void renew_store(void *context, const struct weir_store_id *id,
                        uint64_t epoch, uint64_t floor, weir_instant now)
{
    struct weir_admin *admin = context;
    if (admin->watch.on_store)
        admin->watch.on_store(admin->watch.context, id, epoch);
    admin->store_id = *id;
    admin->floor = floor;
    /* The root reads the store into a new catalog, also if it is the same
     * store: otherwise a reading that breaks off would leave half an edit in
     * force. */
    if (weir_root_renew(admin->root, id) < 0 ||
        weir_root_store(admin->root, id, epoch, floor, now) < 0)
        abort(); /* no memory, and no way to go on with half a set */
}

static void apply_store_change(void *context, const struct weir_change *change,
                               weir_instant now)
{
    struct weir_admin *admin = context;
    if (weir_root_apply(admin->root, change, now) < 0)
        abort(); /* as above */
}

static void settle_changes(void *context, weir_instant now)
{
    struct weir_admin *admin = context;
    weir_root_settle(admin->root, now);
    if (admin->watch.on_epoch)
        admin->watch.on_epoch(
            admin->watch.context,
            weir_catalog_epoch(weir_root_catalog(admin->root)));
}

static void note_store_trouble(void *context, int error, const char *why)
{
    struct weir_admin *admin = context;
    admin->trouble = error;
    size_t len = strnlen(why, sizeof admin->trouble_why - 1);
    memcpy(admin->trouble_why, why, len);
    admin->trouble_why[len] = '\0';
    if (admin->watch.on_trouble)
        admin->watch.on_trouble(admin->watch.context, error, why);
}

static void finish_request(void *context, void *ask, int error,
                           const struct weir_diag *diag, uint64_t epoch,
                           weir_instant now)
{
    weir_assert(ask);
    (void)now;
    weir_admin_edit_done(context, ask, error, diag, epoch);
}

struct weir_store_listener weir_admin_store_listener(struct weir_admin *admin)
{
    return (struct weir_store_listener){
        .context = admin,
        .on_store = renew_store,
        .on_change = apply_store_change,
        .on_settle = settle_changes,
        .on_trouble = note_store_trouble,
        .on_done = finish_request,
    };
}
