/* SPDX-License-Identifier: MIT
 * os/talk.h - connections for requests that are answered mostly at once: for
 * listeners whose answers lie in this process's own memory.
 *
 * A talk_server listens and has the talks; what is asked comes to one function,
 * which answers by weir_talk_write() before it returns. An answer that comes
 * later is written in a turn that weir_talk_wake() asks for; until then
 * weir_talk_set_busy() keeps the requests behind it waiting. All on the loop's
 * thread. */

#ifndef WEIR_TALK_H
#define WEIR_TALK_H

#include "os/accept.h"
#include "os/place.h"

#define WEIR_TALK_READ (64u << 10) /* bytes taken from a socket at a time */
#define WEIR_TALK_HELD_MAX (128u << 10) /* bytes of an unfinished request */
/* A talk whose peer takes no byte of its answer for so long is ended. */
#define WEIR_TALK_SLOW_MAX (30 * WEIR_SECOND)
/* How long a talk that we have ended is read on and not listened to, so that
 * the last answer isn't lost with what was still under way. */
#define WEIR_TALK_LINGER_MAX (2 * WEIR_SECOND)
#define WEIR_TALK_LINGER_BYTES (1u << 20) /* read meanwhile, and no more */
/* One that may be silent is asked for by the kernel when it is, in seconds;
 * after so many questions without an answer it has gone: two minutes in all. */
#define WEIR_TALK_PROBE_AFTER 60
#define WEIR_TALK_PROBE_EVERY 15
#define WEIR_TALK_PROBES 4

struct weir_talk;
struct weir_talk_server;

/* Talks over TLS; all zero: in plain text. */
struct weir_talk_tls {
    struct weir_tls *tls; /* a server's, that outlives all talks; borrowed */
    /* A handshake failed, or took longer than WEIR_TLS_HANDSHAKE_MAX, or the
     * certificate that was shown isn't good any more; NULL: not reported.
     * 'address' as of weir_talk_peer(), 'why' for people. */
    void (*on_refused)(void *context, const char *address, const char *why,
                       weir_instant now);
    void *context; /* of that */
};

struct weir_talk_options {
    struct event_base *base; /* borrowed */
    struct weir_place place;
    struct weir_talk_tls tls; /* of no meaning at a path, which only this
                                 * host reaches: plain text */
    struct weir_accept_short on_short;
    size_t max;                 /* talks at once, > 0 */
    struct weir_text crowded;   /* sent to one more, if each of the others is
                                 * known, before it is ended (over TLS not
                                 * sent); static */
    weir_duration silence_max;  /* without a byte; 0: any time */
    weir_duration stranger_max; /* from its beginning, of one that isn't
                                 * known; 0: any time */
    size_t unknown_max;         /* talks that aren't known; of more the oldest
                                 * of the address that has most goes; 0: half of
                                 * all with 'stranger_max', all without */
    size_t state_size;          /* bytes that the door has with each talk */
    void *context;
    /* Bytes are there: all that has come and wasn't consumed. Returns how many
     * were; it is called again with the rest when more have come, or when what
     * was written could be sent. A request that isn't whole by
     * WEIR_TALK_HELD_MAX bytes ends its talk. Between two requests the callee
     * looks whether weir_talk_is_open(). */
    size_t (*on_bytes)(void *context, struct weir_talk *talk, const char *bytes,
                       size_t len, weir_instant now);
    /* Ended, not known after stranger_max; NULL: not reported. */
    void (*on_unknown)(void *context, const struct weir_talk *talk,
                       weir_instant now);
    /* It is about to go, for whatever reason; NULL: nothing to do. */
    void (*on_gone)(void *context, struct weir_talk *talk);
};

/* Listens. WEIR_EINVAL, WEIR_ESYSTEM (as weir_place_listen()), WEIR_ENOMEM,
 * with 'diag' filled. */
int weir_talk_server_new(const struct weir_talk_options *options,
                         struct weir_talk_server **out, struct weir_diag *diag);
/* Where it listens, with the port that it has. */
const struct weir_place *weir_talk_server_place(
    const struct weir_talk_server *server);
/* Talks that stand. */
size_t weir_talk_server_count(const struct weir_talk_server *server);
/* Ever: talks, and those that found no room or were evicted. */
struct weir_talk_counts {
    uint64_t opened, crowded;
};
struct weir_talk_counts weir_talk_server_counts(
    const struct weir_talk_server *server);
/* Listens no more; talks go on. */
void weir_talk_server_stop(struct weir_talk_server *server);
/* The files of 'tls' were read again: who has shown a certificate that isn't
 * good by them any more goes. (Whose certificate has ended goes by itself.) */
void weir_talk_server_doubt(struct weir_talk_server *server);
/* Calls 'fn' for each; it may end the talk. */
void weir_talk_server_each(struct weir_talk_server *server,
                           void (*fn)(void *context, struct weir_talk *talk),
                           void *context);
/* Ends all talks; what isn't sent is lost. NULL inside is legal. */
void weir_talk_server_free(struct weir_talk_server **server);

/* 'state_size' bytes, zero at first, 16-byte aligned. */
void *weir_talk_state(struct weir_talk *talk);
/* "127.0.0.1:41234", or "unix" for who came by a path; 'buf' of 64 bytes. */
void weir_talk_peer(const struct weir_talk *talk, char *buf);
/* Who it is by its certificate; count 0: it has shown none. */
void weir_talk_peer_names(const struct weir_talk *talk,
                          struct weir_tls_peer *out);
/* Answers; bytes are copied. What a peer doesn't read is kept and stops the
 * talk from being heard (weir_talk_is_open()), so that is at most what answers
 * one request more. */
void weir_talk_write(struct weir_talk *talk, const void *bytes, size_t len);
/* Whether another request would be answered now: not ended, and the peer
 * reads what it is sent. */
bool weir_talk_is_open(const struct weir_talk *talk);
/* 'known': the peer is authenticated or, where no credentials are in force, has
 * asked for something that would need one. Until then it is read as the
 * server's ration allows, and makes room for others (os/ration.h). A peer that
 * is no longer known has stranger_max from now on. */
void weir_talk_set_known(struct weir_talk *talk, bool known);
/* 'busy': an answer comes later. Until it is no longer busy nothing is read,
 * however long that takes. */
void weir_talk_set_busy(struct weir_talk *talk, bool busy);
/* It may be silent for any time, whatever silence_max is, as long as its host
 * answers the kernel's probes. */
void weir_talk_set_quiet(struct weir_talk *talk, bool quiet);
/* Asks for a call of on_bytes with no bytes, soon, busy or not, so that bytes
 * can be written that answer no request just now. */
void weir_talk_wake(struct weir_talk *talk);
/* Ends it once what was written is sent. Nothing is heard from now on. */
void weir_talk_end(struct weir_talk *talk);

#endif /* WEIR_TALK_H */
