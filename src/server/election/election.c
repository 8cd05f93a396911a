/* SPDX-License-Identifier: MIT
 * server/election/election.c - the one interface of elections, and the kind
 * without an election: a server alone is master.
 *
 * A kind reports to the owner by election_report.c and doesn't know this file.
 *
 * The term of a server alone is the time of its start in milliseconds since
 * 1970: nothing else rises from one process to the next without being stored. A
 * clock that is set back by more than the process was away makes a term that is
 * too low; an operator can choose the lock on a file instead. */

#include "server/election/election.h"

#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

#include "io/clock.h"
#include "server/election/election_internal.h"

#define IDENTITY_MAX 255

/* ---- Without an election ---- */

struct alone {
    struct weir_election *election;
    struct event *turn; /* owned */
    uint64_t term;
    bool is_resigned;
};

static bool alone_holds(void *part)
{
    const struct alone *alone = part;
    return !alone->is_resigned;
}

static void alone_on_turn(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct alone *alone = context;
    bool is_master = !alone->is_resigned;
    struct weir_election_news news = {
        .is_master = is_master,
        .master = is_master ? alone->election->options.identity : "",
        .term = is_master ? alone->term : 0,
    };
    weir_election_report(alone->election, &news);
    if (alone->is_resigned)
        weir_election_resigned(alone->election);
}

static void alone_resign(void *part)
{
    struct alone *alone = part;
    if (!alone->is_resigned)
        event_active(alone->turn, EV_TIMEOUT, 0);
    alone->is_resigned = true;
}

static void alone_free(void *part)
{
    struct alone *alone = part;
    if (alone->turn)
        event_free(alone->turn);
    free(alone);
}

static int make_alone(struct weir_election *election, struct weir_diag *diag)
{
    static const struct weir_election_methods methods = {
        .holds = alone_holds,
        .resign = alone_resign,
        .free = alone_free,
    };
    (void)diag;
    struct alone *alone = calloc(1, sizeof *alone);
    if (!alone)
        return WEIR_ENOMEM;
    election->methods = &methods;
    election->part = alone;
    alone->election = election;
    alone->term = weir_clock_wall() / WEIR_MILLISECOND;
    alone->turn = evtimer_new(election->options.base, alone_on_turn, alone);
    if (!alone->turn)
        return WEIR_ENOMEM;
    event_active(alone->turn, EV_TIMEOUT, 0);
    return 0;
}

/* ---- Shared by all kinds ---- */

bool weir_election_keeps(const struct weir_election *election)
{
    return election->methods->keep != NULL;
}

void weir_election_keep(struct weir_election *election, uint64_t number)
{
    weir_assert(number > 0 && weir_election_keeps(election));
    election->methods->keep(election->part, number);
}

bool weir_election_holds(const struct weir_election *election)
{
    return election->methods->holds(election->part);
}

void weir_election_resign(struct weir_election *election)
{
    weir_assert(election->part);
    election->methods->resign(election->part);
}

/* ---- Life ---- */

/* Whether the text is one word that fits into a line of a file and into a
 * value. */
static bool is_identity(const char *text)
{
    size_t len = text ? strlen(text) : 0;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] <= ' ' || text[i] == 0x7f)
            return false;
    return len > 0 && len <= IDENTITY_MAX;
}

static int check_etcd(const struct weir_election_options *options,
                      struct weir_diag *diag)
{
    size_t len = options->key ? strlen(options->key) : 0;
    if (len == 0 || len > WEIR_ELECTION_KEY_MAX)
        return weir_diag_put(diag, WEIR_EINVAL,
                             "the key of the election has 1 to 500 bytes");
    if (options->count == 0 || options->count > WEIR_ETCD_ENDPOINTS_MAX)
        return weir_diag_put(diag, WEIR_EINVAL,
                             "an election by etcd needs 1 to 16 endpoints");
    if (options->ttl != 0 &&
        (options->ttl < WEIR_SECOND || options->ttl > 3600 * WEIR_SECOND ||
         options->ttl % WEIR_SECOND != 0))
        return weir_diag_put(
            diag, WEIR_EINVAL,
            "a mastership lasts 1 s to 3600 s, in whole seconds");
    return 0;
}

static int check_election_options(const struct weir_election_options *options,
                                  struct weir_diag *diag)
{
    if (!options->base || !options->log || !options->on_change)
        return WEIR_EINVAL;
    if (!is_identity(options->identity))
        return weir_diag_put(diag, WEIR_EINVAL,
                             "a server's identity in an election is HOST:PORT, "
                             "one word of 1 to 255 bytes");
    if (options->kind == WEIR_ELECTION_ETCD)
        return check_etcd(options, diag);
    if (options->kind == WEIR_ELECTION_FILE &&
        (!options->path || !options->path[0]))
        return weir_diag_put(diag, WEIR_EINVAL,
                             "the lock of the election needs a file");
    return 0;
}

/* Copies the texts: the options outlive the caller's. */
static bool keep_texts(struct weir_election *election)
{
    struct weir_election_options *options = &election->options;
    const char **texts[] = { &options->identity,
                             &options->path,
                             &options->key,
                             &options->login.tls_ca,
                             &options->login.tls_cert,
                             &options->login.tls_key };
    for (size_t i = 0; i < WEIR_COUNT_OF(texts); i++) {
        if (!*texts[i])
            continue;
        election->texts[i] = strdup(*texts[i]);
        *texts[i] = election->texts[i];
        if (!*texts[i])
            return false;
    }
    options->login.token_file = NULL;
    for (uint32_t i = 0; i < options->count; i++)
        election->endpoints[i] = options->endpoints[i];
    options->endpoints = election->endpoints;
    return true;
}

static int make_kind(struct weir_election *election, struct weir_diag *diag)
{
    switch (election->options.kind) {
    case WEIR_ELECTION_NONE:
        return make_alone(election, diag);
    case WEIR_ELECTION_FILE:
        return weir_election_make_file(election, diag);
    case WEIR_ELECTION_ETCD:
        return weir_election_make_etcd(election, diag);
    }
    return WEIR_EINVAL;
}

int weir_election_new(const struct weir_election_options *options,
                      struct weir_election **out, struct weir_diag *diag)
{
    int error = check_election_options(options, diag);
    if (error < 0)
        return error;
    struct weir_election *election = calloc(1, sizeof *election);
    error = election ? 0 : WEIR_ENOMEM;
    if (election) {
        election->options = *options;
        if (options->kind != WEIR_ELECTION_ETCD)
            election->options.count = 0;
        if (options->ttl == 0)
            election->options.ttl = WEIR_ELECTION_TTL;
        error = keep_texts(election) ? make_kind(election, diag) : WEIR_ENOMEM;
    }
    if (error < 0)
        weir_election_free(&election);
    if (error == WEIR_ENOMEM)
        weir_diag_put(diag, error, NULL);
    if (error == 0)
        *out = election;
    return error;
}

void weir_election_free(struct weir_election **election)
{
    struct weir_election *self = *election;
    if (!self)
        return;
    *election = NULL;
    if (self->part)
        self->methods->free(self->part);
    for (size_t i = 0; i < WEIR_COUNT_OF(self->texts); i++)
        free(self->texts[i]);
    free(self);
}
