/* SPDX-License-Identifier: MIT
 * server/election/election.h - which of several servers is the master, the one
 * that hands out leases.
 *
 *     kind    candidates            how                      successor within
 *     none    one server            it is master             -
 *     file    processes of a host   a lock on a file         0.1 s of its end
 *     etcd    servers anywhere      a lease and a key (v3)   the ttl + 1 s, or
 *                                                            a round trip when
 *                                                            it resigned
 *
 * A server that acts as master asks weir_election_holds() just before each
 * answer that grants something; on_change comes from the loop, and so too late
 * for that. And it puts the term into its messages: checking and sending are
 * two moments, and a process that is stopped between them sends when it wakes.
 * A receiver that knows a higher term refuses a lower one.
 *
 * A successor may take the mastership to be vacant only since on_change
 * reported its own win: see node/candidate.c.
 *
 * etcd. The key is the name of the lock, its value the identity in plain text
 * (as Doorman does it), attached to a lease of the ttl. The kept number is the
 * value of a second key, the first's with "#number" appended, which outlives
 * all leases; it is written if the first key is still this server's, and read
 * before a mastership is reported. Doorman's own servers use etcd v2, whose
 * keys are separate from those of v3: they and Weir's servers don't see each
 * other, and a fleet must be moved at once, not mixed.
 *
 * file. The lock is that of the open file description (F_OFD_SETLK), so it ends
 * with the process, however that ends; a stopped process keeps it. The file has
 * one line, "TERM IDENTITY NUMBER". The file must be on a local file system,
 * and must not be removed while servers use it. A lock of another program on it
 * looks like a master without a name.
 *
 * One thread, that of the loop. */

#ifndef WEIR_ELECTION_H
#define WEIR_ELECTION_H

#include "front/log.h"
#include "io/etcd.h"

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
                         * another server was master in between */
    const char *master; /* the identity; "": none, or not known. Borrowed for
                         * the call */
    uint64_t term;      /* of that mastership, > 0; 0: not known. Rises with
                         * each mastership of an election */
    uint64_t number;    /* to a master: the last one that a former master kept
                         * (weir_election_keep()); 0: none ever; or … */
#define WEIR_ELECTION_UNREAD UINT64_MAX /* … it couldn't be read */
    bool is_first; /* to a master: the election has no trace of a master before.
                    * A master leaves one in the file before it is reported, and
                    * in etcd by the first number that it keeps */
};

struct weir_election_options {
    struct event_base *base; /* borrowed, as is 'log' */
    struct weir_log *log;
    enum weir_election_kind kind;
    const char *identity; /* "HOST:PORT" that clients can reach; 1 .. 255 bytes
                           * without blanks; copied */
    const char *path;     /* file: of the lock; made if there is none */
    const struct weir_address *endpoints; /* etcd; copied, as all below */
    uint32_t count;                       /* … */
    const char *key;                 /* … 1 .. WEIR_ELECTION_KEY_MAX bytes */
    struct weir_login_options login; /* … TLS */
    weir_duration ttl; /* … 1 s .. 1 h, of whole seconds; 0: the default */
    /* The news differ from the last. Called from the loop, first in its next
     * turn if something is known. May call all but _free(). */
    void (*on_change)(void *context, const struct weir_election_news *news);
    /* The result of weir_election_keep(): 0; WEIR_ENOTREADY: this server is no
     * longer master; WEIR_ESYSTEM, and why: the next master may read the number
     * or not, so it must never be relied on. NULL: nothing is kept. */
    void (*on_kept)(void *context, uint64_t number, int error, const char *why);
    /* After weir_election_resign(): the other servers know, or it took longer
     * than a second. May be NULL. */
    void (*on_resigned)(void *context);
    void *context; /* of all callbacks */
};

/* WEIR_EINVAL, WEIR_ESYSTEM (the file), the errors of weir_etcd_new(),
 * WEIR_ENOMEM; 'diag' says what to do. An etcd that can't be reached is no
 * error: the server tries again, and logs it. */
int weir_election_new(const struct weir_election_options *options,
                      struct weir_election **out, struct weir_diag *diag);
/* Gives up the mastership as a crash would: etcd finds out after the ttl. To
 * hand it over, resign first. NULL inside is legal. */
void weir_election_free(struct weir_election **election);

/* Whether this server is master, and no other can be: by the clock, at this
 * very moment (a 'now' from the caller would be in the past), also when the
 * process was stopped and has read nothing since. */
bool weir_election_holds(const struct weir_election *election);
/* Whether it can keep a number for the next master: true unless the kind is
 * WEIR_ELECTION_NONE. */
bool weir_election_keeps(const struct weir_election *election);
/* The master keeps a number there, > 0 and different from any before; on_kept
 * reports the result, of a lock on a file before this returns (it blocks for a
 * write to the disk). */
void weir_election_keep(struct weir_election *election, uint64_t number);
/* Stands down for good: holds() is false, on_change reports it, the mastership
 * is handed back, on_resigned follows. Then the election is to be freed. */
void weir_election_resign(struct weir_election *election);

#endif /* WEIR_ELECTION_H */
