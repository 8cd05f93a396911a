/* SPDX-License-Identifier: MIT
 * codec/doorman_check.c - validates the values of Doorman's messages.
 *
 * Theory of operation. The original has such a check but never calls it: one
 * NaN poisons the sums of a resource for good, and a negative want enlarges the
 * share of every other client. Here no value that would spoil a sum of doubles
 * is accepted, neither in requests nor in responses: a parent server isn't
 * trusted either.
 *
 * A client requests all its resources by one call, and repeats that call for
 * ever if it fails. So the rows of a request are checked one by one. The
 * original's client goes on with what it has of a resource, also when that
 * lease is over, until the row is answered or the call fails. So a row with a
 * bad amount must be answered, for the nearest good amount. Only a row whose id
 * no resource can have may be left out, for there is no lease of it. A row
 * without subclients fails the call, as in the original.
 *
 * A negative 'has' must be accepted: the original grants one when a capacity is
 * cut, and its clients report it to the next master. */

#include <float.h>

#include "codec/doorman.h"
#include "core/quota/quota_text.h"

static int refuse_resource(struct weir_diag *diag, struct weir_text id,
                           const char *why)
{
    char shown[WEIR_SHOW_MAX];
    return weir_diag_set(diag, WEIR_EINVAL, "resource ",
                         weir_text_show(id, shown), ": ", why, NULL);
}

/* Comparisons with a NaN are false. */
static bool is_finite(double x)
{
    return x >= -DBL_MAX && x <= DBL_MAX;
}

static int check_doorman_text(const char *what, struct weir_text text,
                              size_t max, struct weir_diag *diag)
{
    char number[WEIR_NUMBER_MAX];
    if (text.len > max)
        return weir_diag_set(diag, WEIR_EINVAL, what, " is longer than ",
                             weir_number_show(max, number), " bytes", NULL);
    if (weir_utf8_clean(text, "") != text.len)
        return weir_diag_set(diag, WEIR_EINVAL, what,
                             " must be UTF-8 without control characters", NULL);
    return 0;
}

static int check_id(const char *what, struct weir_text id, size_t max,
                    struct weir_diag *diag)
{
    if (id.len == 0)
        return weir_diag_set(diag, WEIR_EINVAL, what, " is empty", NULL);
    return check_doorman_text(what, id, max, diag);
}

static int check_resource_id(struct weir_text id, struct weir_diag *diag)
{
    return check_id("resource_id", id, WEIR_DOORMAN_ID_MAX, diag);
}

static int check_lease(struct weir_text id,
                       const struct weir_doorman_lease *lease,
                       struct weir_diag *diag)
{
    bool sound = !lease->given || is_finite(lease->capacity);
    return sound ? 0
                 : refuse_resource(diag, id,
                                   "the capacity must be a finite number");
}

static int check_wants(struct weir_text id, double wants,
                       struct weir_diag *diag)
{
    bool sound = wants >= 0 && wants <= WEIR_DOORMAN_WANTS_MAX;
    return sound ? 0
                 : refuse_resource(diag, id, "wants must be from 0 to 1e18");
}

/* ---- Requests ---- */

/* The original's sentence, word for word. */
static int refuse_clients(struct weir_diag *diag)
{
    return weir_diag_put(diag, WEIR_EINVAL, "subclients should be > 0");
}

static int check_clients(const struct weir_doorman_server_resource *resource,
                         struct weir_diag *diag)
{
    int64_t clients = 0;
    for (size_t i = 0; i < resource->band_count; i++) {
        int64_t more = resource->bands[i].num_clients;
        if (more < 1)
            return refuse_clients(diag);
        if (more > WEIR_DOORMAN_CLIENTS_MAX - clients)
            return refuse_resource(diag, resource->id,
                                   "more than 1e9 subclients");
        clients += more;
    }
    return clients > 0 ? 0 : refuse_clients(diag);
}

static int check_server(const struct weir_doorman_message *message,
                        struct weir_diag *diag)
{
    int error = 0;
    for (size_t i = 0; i < message->count && error == 0; i++)
        error = check_clients(&message->server_resources[i], diag);
    return error;
}

static int check_amounts(const struct weir_doorman_resource *resource,
                         struct weir_diag *diag)
{
    int error = check_lease(resource->id, &resource->has, diag);
    return error < 0 ? error : check_wants(resource->id, resource->wants, diag);
}

static int check_many_amounts(
    const struct weir_doorman_server_resource *resource, struct weir_diag *diag)
{
    double wants = 0;
    int error = check_lease(resource->id, &resource->has, diag);
    for (size_t i = 0; i < resource->band_count && error == 0; i++) {
        error = check_wants(resource->id, resource->bands[i].wants, diag);
        wants += resource->bands[i].wants;
    }
    return error < 0 ? error : check_wants(resource->id, wants, diag);
}

/* ---- Responses ---- */

static int check_mastership(const struct weir_doorman_message *message,
                            struct weir_diag *diag)
{
    return check_doorman_text("master_address", message->mastership.address,
                              WEIR_DOORMAN_ADDRESS_MAX, diag);
}

static int check_granted(const struct weir_doorman_message *message,
                         struct weir_diag *diag)
{
    int error = check_mastership(message, diag);
    for (size_t i = 0; i < message->count && error == 0; i++) {
        const struct weir_doorman_grant *grant = &message->grants[i];
        error = check_resource_id(grant->id, diag);
        if (error == 0)
            error = check_lease(grant->id, &grant->gets, diag);
        if (error == 0 && !grant->gets.given)
            error = refuse_resource(diag, grant->id, "there is no lease");
        if (error == 0 && !is_finite(grant->safe_capacity))
            error = refuse_resource(diag, grant->id,
                                    "safe_capacity must be a finite number");
    }
    return error;
}

/* ---- By type ---- */

static const struct {
    const char *id; /* the id's name in messages; NULL: the message has no id */
    int (*check)(const struct weir_doorman_message *message,
                 struct weir_diag *diag);
} checks[WEIR_DOORMAN_TYPES] = {
    [WEIR_DOORMAN_DISCOVERY_RESPONSE] = { NULL, check_mastership },
    [WEIR_DOORMAN_GET_REQUEST] = { "client_id", NULL },
    [WEIR_DOORMAN_GET_RESPONSE] = { NULL, check_granted },
    [WEIR_DOORMAN_SERVER_REQUEST] = { "server_id", check_server },
    [WEIR_DOORMAN_SERVER_RESPONSE] = { NULL, check_granted },
    [WEIR_DOORMAN_RELEASE_REQUEST] = { "client_id", NULL },
    [WEIR_DOORMAN_RELEASE_RESPONSE] = { NULL, check_mastership },
};

int weir_doorman_check(const struct weir_doorman_message *message,
                       struct weir_diag *diag)
{
    int error = 0;
    if (checks[message->type].id)
        error = check_id(checks[message->type].id, message->id,
                         WEIR_DOORMAN_CLIENT_ID_MAX, diag);
    if (error == 0 && checks[message->type].check)
        error = checks[message->type].check(message, diag);
    return error;
}

static struct weir_text id_of_row(const struct weir_doorman_message *message,
                                  size_t index)
{
    weir_assert(index < message->count);
    if (message->type == WEIR_DOORMAN_GET_REQUEST)
        return message->resources[index].id;
    if (message->type == WEIR_DOORMAN_SERVER_REQUEST)
        return message->server_resources[index].id;
    weir_assert(message->type == WEIR_DOORMAN_RELEASE_REQUEST);
    return message->released[index];
}

int weir_doorman_check_row(const struct weir_doorman_message *message,
                           size_t index, struct weir_diag *diag)
{
    return check_resource_id(id_of_row(message, index), diag);
}

int weir_doorman_check_amounts(const struct weir_doorman_message *message,
                               size_t index, struct weir_diag *diag)
{
    weir_assert(index < message->count);
    if (message->type == WEIR_DOORMAN_GET_REQUEST)
        return check_amounts(&message->resources[index], diag);
    weir_assert(message->type == WEIR_DOORMAN_SERVER_REQUEST);
    return check_many_amounts(&message->server_resources[index], diag);
}

double weir_doorman_sound_wants(double wants, double most)
{
    weir_assert(most >= 0 && most <= WEIR_DOORMAN_WANTS_MAX);
    if (wants > most)
        return most;
    return wants >= 0 ? wants : 0; /* a NaN too */
}
