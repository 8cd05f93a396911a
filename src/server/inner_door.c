/* SPDX-License-Identifier: MIT
 * server/inner_door.c - an agent within a root.
 *
 * Why by loopback: a pair of sockets into the gRPC listener would save nothing
 * measurable (some reports each second, however many decisions are made), and
 * would be a second way in to authorize. */

#include "server/inner_door.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "door/resp_door.h"
#include "os/clock.h"

struct weir_inner_door {
    struct weir_door_host host;
    struct weir *weir; /* owned, as are the next; closed by 'closer' */
    bool stopped;
    struct weir_throttle *throttle; /* NULL: the fleet counts */
    struct weir_resp_door *resp;    /* NULL: stopped */
    pthread_t closer;
    bool closing;  /* 'closer' was started, and isn't joined yet */
    uint32_t done; /* the limiter is closed; atomic */
};

/* A root that listens on all addresses listens on loopback too. */
static void own_address(const struct weir_inner_door_options *options,
                        char *buf, size_t size)
{
    struct weir_place place = { .address = options->listen };
    char *host = place.address.host;
    if (strcmp(host, "0.0.0.0") == 0)
        strcpy(host, "127.0.0.1");
    if (strcmp(host, "::") == 0)
        strcpy(host, "::1");
    place.address.port = options->port;
    char shown[WEIR_PLACE_TEXT_MAX];
    weir_place_show(&place, shown);
    snprintf(buf, size, "%s", shown);
}

static int open_limiter(struct weir_inner_door *door,
                        const struct weir_inner_door_options *options,
                        struct weir_diag *diag)
{
    char roots[WEIR_PLACE_TEXT_MAX];
    char name[WEIR_NAME_MAX + 1];
    struct weir_options limiter = WEIR_OPTIONS_INIT;
    own_address(options, roots, sizeof roots);
    snprintf(name, sizeof name, "doors of %.200s", options->name);
    limiter.roots = roots;
    limiter.name = name;
    int error = weir_open(&limiter, &door->weir);
    return error < 0 ? weir_diag_set(diag, error, "a limiter for the doors: ",
                                     weir_strerror(error), NULL)
                     : 0;
}

static int open_door(struct weir_inner_door *door,
                     const struct weir_inner_door_options *options,
                     struct weir_diag *diag)
{
    uint64_t seed;
    weir_entropy(&seed, sizeof seed);
    door->host = (struct weir_door_host){ .base = options->base,
                                          .weir = door->weir,
                                          .version = options->version };
    if (!options->resp_counted)
        door->throttle = weir_throttle_new(&weir_mem_system,
                                           WEIR_THROTTLE_KEYS_DEFAULT, seed);
    if (!options->resp_counted && !door->throttle)
        return weir_diag_set(diag, WEIR_ENOMEM, weir_strerror(WEIR_ENOMEM),
                             NULL);
    return weir_resp_door_new(&door->host, &options->resp, door->throttle,
                              &door->resp, diag);
}

int weir_inner_door_new(const struct weir_inner_door_options *options,
                        struct weir_inner_door **out, struct weir_diag *diag)
{
    struct weir_inner_door *door = calloc(1, sizeof *door);
    if (!door)
        return weir_diag_set(diag, WEIR_ENOMEM, weir_strerror(WEIR_ENOMEM),
                             NULL);
    struct weir_diag why = { 0 };
    int error = open_limiter(door, options, &why);
    if (error == 0)
        error = open_door(door, options, &why);
    if (error < 0) {
        weir_inner_door_free(&door);
        return weir_diag_set(diag, error, "--resp: ", why.text, NULL);
    }
    *out = door;
    return 0;
}

const struct weir_place *weir_inner_door_resp(
    const struct weir_inner_door *door)
{
    return weir_resp_door_place(door->resp);
}

static void *close_limiter(void *context)
{
    struct weir_inner_door *door = context;
    weir_close(door->weir);
    /* release: a reader of 'done' may take the limiter for closed; pairs with
     * the acquire of weir_inner_door_is_done(). */
    weir_store_release(&door->done, 1);
    return NULL;
}

void weir_inner_door_stop(struct weir_inner_door *door)
{
    if (door->stopped || !door->weir)
        return;
    door->stopped = true;
    weir_resp_door_free(&door->resp);
    door->closing =
        pthread_create(&door->closer, NULL, close_limiter, door) == 0;
    if (!door->closing)
        (void)close_limiter(door);
}

bool weir_inner_door_is_done(struct weir_inner_door *door)
{
    /* acquire: pairs with the release of close_limiter(). */
    return weir_load_acquire(&door->done) != 0;
}

void weir_inner_door_free(struct weir_inner_door **door)
{
    struct weir_inner_door *self = *door;
    if (!self)
        return;
    *door = NULL;
    weir_inner_door_stop(self);
    if (self->closing)
        pthread_join(self->closer, NULL);
    weir_throttle_free(&self->throttle);
    free(self);
}
