/* SPDX-License-Identifier: MIT
 * server/election.h - which of several servers is the master, the one that
 * hands out leases.
 *
 *     kind    who stands            how                      followed within
 *     none    one server            it is master             -
 *     file    processes of a host   a lock on a file         0.1 s of its end
 *     etcd    servers anywhere      a lease and a key (v3)   the ttl + 1 s, or
 *                                                            a round trip when
 *                                                            it resigned
 *
 * Whoever acts as master asks weir_election_holds() at the moment at which it
 * matters, that is just before each answer that gives something away; what
 * on_change tells comes from the loop, and so too late for that. And it puts
 * the term into what it says: to ask and to send are two moments, and a process
 * that is stopped between them sends when it wakes. Whoever has heard of a
 * higher term refuses a lower one.
 *
 * The mastership is vacant since on_change tells that it was won, as far as
 * anybody may build on it: see node/candidate.c.
 *
 * etcd. The key is the name of the lock, its value the identity in plain text
 * (as Doorman does it), attached to a lease of the ttl. The number kept is the
 * value of a second key, the first's with "#number" behind it, which outlives
 * all leases; it is written if the first key is still ours, and read before a
 * mastership is told of. Doorman's own servers
 * speak to etcd v2, whose keys are others than those of v3: they and Weir's
 * don't see each other, and a fleet must be moved at once, not mixed.
 *
 * file. The lock is that of the open file description (F_OFD_SETLK), so it ends
 * with the process, however that ends; one that is stopped keeps it. In the
 * file is one line, "TERM IDENTITY NUMBER". The file must be on a local file
 * system, and never be removed while somebody stands. Another file lock on it
 * by somebody else is a master without a name.
 *
 * One thread, that of the loop. */

#ifndef WEIR_ELECTION_H
#define WEIR_ELECTION_H

#include "os/etcd.h"
#include "server/log.h"

#define WEIR_ELECTION_KEY_MAX 500            /* bytes */
#define WEIR_ELECTION_TTL (10 * WEIR_SECOND) /* the default */

struct weir_election;

enum weir_election_kind {
    WEIR_ELECTION_NONE,
    WEIR_ELECTION_FILE,
    WEIR_ELECTION_ETCD,
};

struct weir_election_news {
    bool is_master;     /* it is this server; true again with another term:
                         * there was a change in between */
    const char *master; /* the identity; "": nobody, or it isn't known.
                         * Borrowed for the call */
    uint64_t term;      /* of that mastership, > 0; 0: not known. Rises with
                         * each mastership of an election */
    uint64_t number;    /* of a master: the last that one before it kept, as
                         * weir_election_keep(); 0: none ever; or … */
#define WEIR_ELECTION_UNREAD UINT64_MAX /* … there may be one */
};

struct weir_election_options {
    struct event_base *base; /* borrowed, as is 'log' */
    struct weir_log *log;
    enum weir_election_kind kind;
    const char *identity; /* "HOST:PORT" that clients can reach; 1 .. 255
                           * bytes without blanks; copied */
    const char *path;     /* file: of the lock; made if it isn't there */
    const struct weir_address *endpoints; /* etcd; copied, as all below */
    uint32_t count;                       /* … */
    const char *key;                 /* … 1 .. WEIR_ELECTION_KEY_MAX bytes */
    struct weir_login_options login; /* … TLS */
    weir_duration ttl; /* … 1 s .. 1 h, of whole seconds; 0: the default */
    /* Something is otherwise than it was told last. Comes from the loop, first
     * in its next turn if something is known. May call all but _free(). */
    void (*on_change)(void *context, const struct weir_election_news *news);
    /* What came of weir_election_keep(): 0; WEIR_ENOTREADY: this server isn't
     * master any more; WEIR_ESYSTEM, and why: the next master may find it or
     * not, so nothing is to be built on it, ever. NULL: nothing is kept. */
    void (*on_kept)(void *context, uint64_t number, int error, const char *why);
    /* After weir_election_resign(): the others know, or it took longer than
     * a second. May be NULL. */
    void (*on_resigned)(void *context);
    void *context; /* of all */
};

/* WEIR_EINVAL, WEIR_ESYSTEM (the file), the errors of weir_etcd_new(),
 * WEIR_ENOMEM; 'diag' says what to do. An etcd that can't be reached is no
 * error: it is tried again, and said in the log. */
int weir_election_new(const struct weir_election_options *options,
                      struct weir_election **out, struct weir_diag *diag);
/* Gives up the mastership as a crash would: etcd finds out after the ttl. To
 * hand it over, resign first. NULL inside is legal. */
void weir_election_free(struct weir_election **election);

/* Whether this server is master, and nobody else can be: by the clock, at this
 * very moment (there is no 'now' to hand over, for it would be the past), also
 * when the process was stopped and nothing was heard since. */
bool weir_election_holds(const struct weir_election *election);
/* Whether it has a place for a number, where the next master finds it: where
 * there is an election, it has. */
bool weir_election_keeps(const struct weir_election *election);
/* The master has that number kept there, > 0, and another than any before;
 * on_kept says what came of it, of a lock on a file before this returns (it
 * blocks for a write to the disk). */
void weir_election_keep(struct weir_election *election, uint64_t number);
/* Stands down for good: holds() is false, on_change says so, the mastership
 * is handed back, on_resigned comes. Then to be freed. */
void weir_election_resign(struct weir_election *election);

#endif /* WEIR_ELECTION_H */
