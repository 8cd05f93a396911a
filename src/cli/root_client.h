/* SPDX-License-Identifier: MIT
 * cli/root_client.h - sends a request to a root, over weir.v1.Root/Call, and
 * waits for the answer. */

#ifndef WEIR_ROOT_CLIENT_H
#define WEIR_ROOT_CLIENT_H

#include <jansson.h>

#include "io/login.h"

#define WEIR_CLIENT_CONNECT (2 * WEIR_SECOND)    /* for each root */
#define WEIR_CLIENT_PATIENCE (120 * WEIR_SECOND) /* for an answer */
#define WEIR_CLIENT_READY \
    (30 * WEIR_SECOND)                     /* for a root that has begun to read
                                            * its quotas */
#define WEIR_CLIENT_REPLY_MAX (256u << 20) /* bytes */

struct weir_root_client;

/* 'roots': "HOST:PORT,…". WEIR_EINVAL, or as weir_login_check(), with 'diag'
 * filled; WEIR_ENOMEM. */
int weir_root_client_new(const char *roots,
                         const struct weir_login_options *login,
                         struct weir_root_client **out, struct weir_diag *diag);
void weir_root_client_free(struct weir_root_client **client);

size_t weir_root_client_count(const struct weir_root_client *client);
/* "127.0.0.1:7077" of the n-th root, as given. */
const char *weir_root_client_name(const struct weir_root_client *client,
                                  size_t n);
/* Uses only this root from here on. */
void weir_root_client_only(struct weir_root_client *client, size_t n);

/* Sends the request to the first root that answers; the connection is kept.
 * 'body' may be NULL. An edit isn't repeated: if a root goes away in the
 * middle, that is the error. '*out' is the answer in JSON (a new reference). On
 * failure 'diag' has the root's error, or why none answers; WEIR_ENOTREADY: no
 * root has read its quotas yet. */
int weir_root_client_request(struct weir_root_client *client,
                             const char *method, const char *path, json_t *body,
                             json_t **out, int *out_status,
                             struct weir_diag *diag);
/* The same, and repeats the request while no root has read its quotas, up to
 * WEIR_CLIENT_READY: a root that was just started reads them in a moment, and
 * that error means that nothing was done. */
int weir_root_client_request_patiently(struct weir_root_client *client,
                                       const char *method, const char *path,
                                       json_t *body, json_t **out,
                                       int *out_status, struct weir_diag *diag);

#endif /* WEIR_ROOT_CLIENT_H */
