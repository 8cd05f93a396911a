/* SPDX-License-Identifier: MIT
 * server/doorman/doorman_source.h - the quotas of a Doorman file, passed on as
 * a store passes on its own; and again whenever the file has changed.
 *
 *     file, or key of etcd -> entries -> quotas -> on_store, on_change …,
 *                                                  on_settle
 *
 * After the first time only changes are passed on. A file that isn't sound, or
 * is gone, changes nothing: on_trouble says why. If the listener has no memory
 * for a change, that change and those after it are passed on by a later
 * weir_doorman_source_look().
 *
 * One thread, that of the loop; a file is read there, so it should be on a
 * local disk. */

#ifndef WEIR_DOORMAN_SOURCE_H
#define WEIR_DOORMAN_SOURCE_H

#include "core/quota/catalog.h"
#include "front/log.h"
#include "io/etcd.h"
#include "server/doorman/doorman_config.h"
#include "server/store_thread.h"

#define WEIR_DOORMAN_LOCATION_TEXT_MAX 4608 /* bytes of "file:PATH" */

struct weir_doorman_source;

struct weir_doorman_source_options {
    struct event_base *base; /* borrowed, as the next two */
    const struct weir_log *log;
    /* The catalog in force; called again each time. */
    struct weir_catalog *(*catalog)(void *context);
    void *context;
    struct weir_doorman_location place;   /* copied, as all below */
    const struct weir_address *endpoints; /* of etcd; none for a file */
    uint32_t count;
    struct weir_login_options login;
    struct weir_store_listener to; /* all but on_done and 'patient' */
};

/* A file is read and passed on before this returns: WEIR_ENOENT, WEIR_ESYSTEM,
 * the errors of weir_doorman_config_parse() and weir_quota_check(), with 'diag'
 * for people. The key of etcd is read later; the errors are those of
 * weir_etcd_watch_new(). */
int weir_doorman_source_new(const struct weir_doorman_source_options *options,
                            struct weir_doorman_source **out,
                            struct weir_diag *diag);
/* NULL inside is legal. */
void weir_doorman_source_free(struct weir_doorman_source **source);

/* Reads the file again if it has changed, or in any case ('always'). A key of
 * etcd is watched: it is read only if 'always'. */
void weir_doorman_source_look(struct weir_doorman_source *source, bool always);

struct weir_doorman_source_state {
    const char *text;    /* "file:PATH", "etcd:KEY"; borrowed, as the next two
                          */
    const char *problem; /* why the file's state isn't in force; "": it is */
    const struct weir_doorman_config *config; /* in force; NULL: none yet */
    uint64_t loads;                           /* successful ones */
    uint64_t failures;
};
void weir_doorman_source_state(const struct weir_doorman_source *source,
                               struct weir_doorman_source_state *out);

#endif /* WEIR_DOORMAN_SOURCE_H */
