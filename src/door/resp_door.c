/* SPDX-License-Identifier: MIT
 * door/resp_door.c - connections of clients of Redis.
 *
 * All complete commands are answered into one buffer, so a pipeline of sixteen
 * costs one recv() and one send(). A peer that doesn't read its replies isn't
 * served until it does (os/talk.h): between two commands the buffer is handed
 * over when another reply might not fit. */

#include "door/resp_door.h"

#include <stdlib.h>
#include <string.h>

#include "door/resp_call.h"
#include "os/clock.h"

#define OUT_SIZE (2 * WEIR_RESP_REPLY_MAX)

struct weir_resp_door {
    const struct weir_door_host *host; /* borrowed, as is the next */
    struct weir_throttle *throttle;
    struct weir_talk_server *server; /* owned */
    uint64_t met;                    /* sessions since the start */
    struct weir_resp_request request;
    char out[OUT_SIZE];
};

static void meet(struct weir_resp_door *door, struct weir_talk *talk,
                 struct weir_resp_session *session, weir_instant now)
{
    session->id = ++door->met;
    session->protocol = 2;
    weir_resp_meet(door->host, talk, session, now);
}

static void hand_over(struct weir_talk *talk, struct weir_resp_out *out)
{
    /* No reply is longer than WEIR_RESP_REPLY_MAX. */
    weir_assert(!out->full);
    if (out->len > 0)
        weir_talk_write(talk, out->p, out->len);
    out->len = 0;
}

static size_t on_bytes(void *context, struct weir_talk *talk, const char *bytes,
                       size_t len, weir_instant now)
{
    struct weir_resp_door *door = context;
    struct weir_resp_session *session = weir_talk_state(talk);
    if (session->id == 0)
        meet(door, talk, session, now);
    struct weir_resp_out out = { .p = door->out, .size = OUT_SIZE };
    struct weir_resp_call call = { .host = door->host,
                                   .throttle = door->throttle,
                                   .server = door->server,
                                   .talk = talk,
                                   .session = session,
                                   .request = &door->request,
                                   .out = &out,
                                   .now = now };
    size_t used = 0;
    while (used < len && weir_talk_is_open(talk)) {
        size_t size = 0;
        const char *error = NULL;
        int whole = weir_resp_decode(bytes + used, len - used, &door->request,
                                     &size, &error);
        if (whole == 0)
            break;
        out.protocol = session->protocol;
        if (whole < 0) {
            char text[96] = "ERR ";
            (void)strncat(text, error, sizeof text - 5);
            weir_resp_error(&out, text);
            weir_talk_end(talk);
            used = len;
            break;
        }
        used += size;
        weir_resp_answer(&call);
        /* The ration ends with the first command, not with the first bytes. */
        weir_talk_set_known(talk, session->known);
        if (OUT_SIZE - out.len < WEIR_RESP_REPLY_MAX)
            hand_over(talk, &out);
    }
    hand_over(talk, &out);
    return used;
}

static void on_gone(void *context, struct weir_talk *talk)
{
    (void)context;
    weir_resp_session_fini(weir_talk_state(talk));
}

/* ---- Life ---- */

int weir_resp_door_new(const struct weir_door_host *host,
                       const struct weir_place *place,
                       struct weir_throttle *throttle,
                       struct weir_resp_door **out, struct weir_diag *diag)
{
    struct weir_resp_door *door = calloc(1, sizeof *door);
    if (!door)
        return weir_diag_set(diag, WEIR_ENOMEM, weir_strerror(WEIR_ENOMEM),
                             NULL);
    door->host = host;
    door->throttle = throttle;
    const struct weir_talk_options options = {
        .base = host->base,
        .place = *place,
        .tls = host->tls,
        .on_short = host->on_short,
        .max = weir_door_talks_max(host),
        .crowded = WEIR_TEXT("-ERR max number of clients reached\r\n"),
        .stranger_max = host->admit ? WEIR_DOOR_STRANGER_MAX : 0,
        .state_size = sizeof(struct weir_resp_session),
        .context = door,
        .on_bytes = on_bytes,
        .on_gone = on_gone,
    };
    int error = weir_talk_server_new(&options, &door->server, diag);
    if (error < 0) {
        free(door);
        return error;
    }
    *out = door;
    return 0;
}

const struct weir_place *weir_resp_door_place(const struct weir_resp_door *door)
{
    return weir_talk_server_place(door->server);
}

static void doubt(void *context, struct weir_talk *talk)
{
    const struct weir_resp_door *door = context;
    struct weir_resp_session *session = weir_talk_state(talk);
    if (session->known &&
        !weir_resp_admit(door->host, talk, session, weir_clock_now()))
        weir_talk_end(talk);
}

void weir_resp_door_recheck(struct weir_resp_door *door)
{
    weir_talk_server_doubt(door->server);
    if (door->host->admit)
        weir_talk_server_each(door->server, doubt, door);
}

void weir_resp_door_stop(struct weir_resp_door *door)
{
    weir_talk_server_stop(door->server);
}

void weir_resp_door_free(struct weir_resp_door **door)
{
    if (!*door)
        return;
    weir_talk_server_free(&(*door)->server);
    free(*door);
    *door = NULL;
}
