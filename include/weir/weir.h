/* SPDX-License-Identifier: MIT
 * weir.h - enforces shared quotas across a fleet of processes. */

#ifndef WEIR_H
#define WEIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ====================================================================
 * Weir in a page.
 *
 * Several processes share a quota ("1,000 requests per second into the
 * store"). Each opens a limiter, which decides in this process's own memory:
 *
 *     struct weir_options options = WEIR_OPTIONS_INIT;
 *     options.roots = "10.0.0.1:7077,10.0.0.2:7077";
 *     struct weir *weir;
 *     if (weir_open(&options, &weir) < 0) ...
 *
 *     struct weir_handle put;
 *     weir_handle_open(weir, "s3/put", 6, &put);
 *     ...
 *     if (weir_take(put, 1, NULL, 0) == WEIR_LIMITED)
 *         return 429;
 *
 * A background thread exchanges counts with the roots (`weir serve`), which
 * know the quotas. Only weir_ready(), weir_sync(), weir_wait(),
 * weir_enter_wait() and weir_close() wait for the network or another thread. An
 * exact quota is the exception: an external store decides on it, and each call
 * waits for that store (weir/exact.h). With all roots dead the decisions go on
 * as each quota's `on_stale` says.
 *
 * Locks. Plain decisions take no lock. A local quota with more than one word of
 * state (windows, logs, …) has a lock, and a call that adds a name to the table
 * takes the table's. Both are held for microseconds, but the system may suspend
 * or stop the thread that holds one. A decision waits for locks for lock_wait
 * (1 ms) at most, for the name's and its quotas' together; then it is made
 * without, as when_locked says, and reply->contended is true. If one decision
 * of a shared table has waited in vain, others don't wait until that lock is
 * released; some yield the processor, in case its holder needs it. A decision
 * that has waited reads the clock again, unless `now` was given. Handles wait
 * for a second at most. The thread of the library waits for no lock. A program
 * with one thread for many clients sets lock_wait to WEIR_NO_LOCK_WAIT: then no
 * call waits for a lock, handles included; a call that finds one may yield.
 *
 * Units. A quota counts units: requests, bytes, rows. A weight is how many
 * units one request costs, 0 to WEIR_WEIGHT_MAX. Durations are nanoseconds.
 *
 * Time. Every call that decides takes `now`, an instant of CLOCK_MONOTONIC in
 * nanoseconds; 0 lets the library read the clock (some 20-30 ns). An instant
 * earlier than a previous one is safe: the bucket is then taken to be fuller.
 * An instant of the future (CLOCK_REALTIME, say) is not: the bucket then
 * refuses until that time has come, or a root sends a better value.
 *
 * Threads. Every function may be called from any thread at any time, unless
 * its comment says otherwise. After fork() a child may go on calling; it
 * becomes a limiter of its own (see weir_open()).
 * ==================================================================== */

/* Symbols of the shared library. */
#if defined(__GNUC__)
#define WEIR_API __attribute__((visibility("default")))
#define WEIR_MUST_USE __attribute__((warn_unused_result))
#else
#define WEIR_API
#define WEIR_MUST_USE
#endif

/* CLOCK_MONOTONIC, nanoseconds. As an argument, 0 means "read the clock". */
typedef uint64_t weir_instant;
/* Nanoseconds. */
typedef uint64_t weir_duration;

/* "Never", for an instant and for a duration. */
#define WEIR_NEVER UINT64_MAX
#define WEIR_SECOND 1000000000ull
#define WEIR_MILLISECOND 1000000ull

/* Bounds. */
#define WEIR_NAME_MAX 255            /* bytes of a quota's name, no NUL */
#define WEIR_GIVEN_NAME_MAX 65536    /* bytes of a name that a call gives */
#define WEIR_WEIGHT_MAX (1ull << 32) /* units one call may ask for */
#define WEIR_DEPTH_MAX 16            /* quotas in a chain */
#define WEIR_ROOTS_MAX 8             /* roots of one limiter */
/* Units above high_burst that charges, reservations and late counts reach. */
#define WEIR_DEBT_MAX (1ull << 40)

/* ---- Errors --------------------------------------------------------
 * A negative value is an operating error; 0 is success. Being limited is a
 * verdict, not an error. weir_strerror() gives a sentence with the next
 * step. */
enum weir_error {
    WEIR_OK = 0,
    WEIR_EINVAL = -1,       /* an argument is outside its stated range */
    WEIR_ENOMEM = -2,       /* the system gave no memory */
    WEIR_ENAME = -3,        /* a name is empty, too long or not clean UTF-8 */
    WEIR_EQUOTA = -4,       /* a quota's fields contradict each other */
    WEIR_EPARENT = -5,      /* a parent doesn't exist */
    WEIR_ECYCLE = -6,       /* a quota would be its own ancestor */
    WEIR_EDEPTH = -7,       /* a chain would be longer than WEIR_DEPTH_MAX */
    WEIR_EEXIST = -8,       /* the name or entry exists already */
    WEIR_ENOENT = -9,       /* the name or entry does not exist */
    WEIR_ECHILDREN = -10,   /* a quota with children can't be removed */
    WEIR_EFULL = -11,       /* a bounded table has no room */
    WEIR_ETIMEOUT = -12,    /* the time given was not enough */
    WEIR_ESYNTAX = -13,     /* text or bytes can't be parsed */
    WEIR_ETOOBIG = -14,     /* a message or value is over its bound */
    WEIR_EPROTOCOL = -15,   /* a peer broke the protocol */
    WEIR_ESTORE = -16,      /* the quota store can't be used */
    WEIR_ELOCKED = -17,     /* the quota store is locked by another process */
    WEIR_ESCHEMA = -18,     /* the store was made by another version of Weir */
    WEIR_ESYSTEM = -19,     /* a system call failed; errno says more */
    WEIR_ECONNECT = -20,    /* no root can be reached */
    WEIR_ECLOSED = -21,     /* the limiter was closed */
    WEIR_ENOTREADY = -22,   /* a root has not read its quotas yet */
    WEIR_ECREDENTIAL = -23, /* no credential, or one that isn't known */
    WEIR_EDENIED = -24,     /* the credential's role doesn't allow it */
    WEIR_ECHANGED = -25,    /* the value was changed since it was read */
    WEIR_ETLS = -26,  /* a certificate or key can't be used, or TLS failed */
    WEIR_ETABLE = -27 /* a shared table can't be used */
};

/* A static sentence for 'error', never NULL. Wait-free. */
WEIR_API const char *weir_strerror(int error);

/* ---- Verdicts ------------------------------------------------------ */

enum weir_verdict {
    WEIR_PASSED = 0,
    WEIR_LIMITED = 1,
};

/* The result of a decision. Filled on request (a NULL reply costs nothing). */
struct weir_reply {
    enum weir_verdict verdict;
    bool unknown;       /* the name has no quota: it passes */
    bool never;         /* the weight is above high_burst: it never passes */
    bool stale;         /* no root was heard for stale_after, or a store of an
                         * exact quota didn't answer: decided by on_stale. Of a
                         * peek also: no root has yet sent the fill of a counted
                         * quota, or the first grant of a leased one */
    bool shadow;        /* a quota in mode shadow would have refused */
    bool exact;         /* a store of an exact quota was asked and answered */
    bool full;          /* the table had no room for the name's quota: the
                         * template's overflow quota, or on_full decided */
    bool contended;     /* another thread held the lock of a quota of the chain
                         * for longer than lock_wait: that quota was decided
                         * by when_locked */
    bool leased;        /* the deciding quota is leased … */
    double granted;     /* … and this process may use so many units of it now:
                         * per second, or in flight; INFINITY: any */
    int64_t fill;       /* units in the deciding bucket or window: of the quota
                         * that refused, or of the one nearest to its limit;
                         * below 0: a token bucket that began above its burst */
    uint64_t remaining; /* units that would still pass, over the chain; without
                         * quotas whose lock another thread held */
    weir_duration retry_after; /* 0 when passed; WEIR_NEVER when 'never' */
    weir_duration wait;        /* of weir_reserve(): how long to wait */
    uint8_t level;     /* passed: which of token_buckets paid, from 0; the
                         * highest over the chain */
    uint8_t quota_len; /* of 'quota'; 0 when there is none. If no quota limits
                        * the request, an exact one in mode shadow is named */
    char quota[WEIR_NAME_MAX + 1]; /* the deciding quota, NUL-terminated */
};

/* ---- Events --------------------------------------------------------
 * The library never logs. It reports to the operator by events. */
enum weir_event_type {
    WEIR_EVENT_ROOT_UP = 1,   /* a root link is established */
    WEIR_EVENT_ROOT_DOWN,     /* a root link was lost; 'text' says why */
    WEIR_EVENT_READY,         /* the quotas of a root are complete here */
    WEIR_EVENT_STALE,         /* no root for stale_after: on_stale rules */
    WEIR_EVENT_FRESH,         /* a root is heard again */
    WEIR_EVENT_TABLE_FULL,    /* instances or quotas found no room in the table:
                               * 'text' says how many, what decides them, and
                               * why; it names the first such quota */
    WEIR_EVENT_STORE_CHANGED, /* a root serves another quota store */
    WEIR_EVENT_REPORT_BACKOFF, /* an overloaded root asks for fewer reports */
    WEIR_EVENT_FORKED,         /* this process is a forked child: a limiter of
                               * its own now */
    WEIR_EVENT_LOST,           /* events were dropped: the queue was full */
    WEIR_EVENT_CREDENTIAL,     /* a file of tls_… or token_file can't be used:
                               * 'text' says which, why and how to repair it */
    WEIR_EVENT_QUOTA_UNKNOWN,  /* the quota 'text' is of a later version: this
                               * limiter can't decide it and lets all pass */
    WEIR_EVENT_EXACT_AWAY,     /* a store of exact quotas doesn't answer: these
                               * quotas go by on_stale; 'text': store and
                               * reason */
    WEIR_EVENT_EXACT_BACK,     /* the store answers again; 'text' names it */
    WEIR_EVENT_ZONE,           /* this machine doesn't know the time zone of a
                               * quota's window, which goes by UTC */
    WEIR_EVENT_ADAPTIVE_FULL,  /* 'count' adaptive quotas found no room and let
                               * all pass: see adaptive_max */
    WEIR_EVENT_ELSEWHERE,      /* the root 'text' hands out leases, and this
                               * limiter has no link to it: name it among the
                               * roots, or bring it back */
    WEIR_EVENT_TABLE,          /* a shared table can't be used, or a table of
                               * memory_max can't be reserved: 'text' says why
                               * and how to repair it */
    WEIR_EVENT_REPORTER,       /* this process runs a shared table's limiter
                               * from now on */
    WEIR_EVENT_DENIED,         /* the credential shown to a root may not take
                               * from the quota 'text': its counts stay in
                               * this process, and an exact or leased one
                               * goes by on_stale */
    WEIR_EVENT_SNAPSHOT,       /* the snapshot's quotas are in force, or it
                               * can't be read, or written: 'text' says which,
                               * and why */
    WEIR_EVENT_FEW_ROOTS       /* there are more roots than this limiter is
                               * connected to, for a minute: a load balancer
                               * before them, say. Each root then counts a part
                               * of the fleet, and together they pass up to so
                               * many times the limit; 'text' has the numbers */
};

struct weir_event {
    enum weir_event_type type;
    weir_instant at;
    uint64_t count; /* occurrences since the last such event (TABLE_FULL, LOST);
                     * ms between reports (REPORT_BACKOFF) */
    char text[192]; /* for people: root, quota, reason */
};

/* Called from the background thread; must return quickly and must not call
 * weir_close(). 'event' is valid during the call. A weir_open() that fails
 * because of a file calls it too: WEIR_EVENT_CREDENTIAL or WEIR_EVENT_TABLE
 * names the file; and one that succeeds with less than memory_max. */
typedef void weir_event_fn(void *context, const struct weir_event *event);

/* ---- Life ---------------------------------------------------------- */

struct weir;       /* one limiter: a table and its background thread */
struct weir_exact; /* the store client of libweir-exact */

/* The role of a process in a table that several processes share. */
enum weir_table_role {
    WEIR_TABLE_MAY_RUN = 0, /* runs the limiter whenever no other process
                             * does */
    WEIR_TABLE_RUNS,        /* runs it from the start, or weir_open() fails */
    WEIR_TABLE_DECIDES,     /* never runs it: needs no roots */
};

/* The verdict for a name when memory_max is used up, or the system has no more
 * memory: for the name of a quota or an instance that found no room and has no
 * overflow quota; and, as long as a quota is missing for that reason, for each
 * name without a quota, because it may be that one's. The default is to refuse:
 * a limit that silently isn't there shows when the service behind it fails. */
enum weir_on_full {
    WEIR_ON_FULL_REFUSE = 0,
    WEIR_ON_FULL_PASS,
};

/* How a quota decides while another thread holds a lock that the decision needs
 * for longer than lock_wait. */
enum weir_when_locked {
    WEIR_LOCKED_LIMITS = 0, /* the request is limited */
    WEIR_LOCKED_PASSES,     /* it passes that quota, uncharged */
};

/* lock_wait of a limiter of which no call waits for a lock. */
#define WEIR_NO_LOCK_WAIT 1

/* Options of weir_open(). Zero means the default. */
struct weir_options {
    size_t struct_size;  /* set by WEIR_OPTIONS_INIT */
    const char *roots;   /* "HOST:PORT,…", up to WEIR_ROOTS_MAX, each named
                           * once; NULL: none, then every name is unknown and
                           * passes. A HOST with several addresses means
                           * several roots, and is followed as DNS changes;
                           * two addresses of one root count as one. With a
                           * HOST that is a name the limiter uses 4 roots, or
                           * as many as are given; of more addresses, all
                           * limiters choose the same. "_weir._tcp.NAME",
                           * without a port, stands for the hosts and ports of
                           * its SRV records. weir-serve(8), Roots by name */
    const char *name;    /* the name of this process in `weir top`, up to 255
                           * bytes of clean UTF-8; NULL or "": program name and
                           * process id */
    uint64_t memory_max; /* bytes for quotas, instances and other names: the
                           * table grows up to them. Unused memory costs
                           * addresses only. A name of up to 83 bytes takes
                           * some 0.9 KB with one root, 1.3 KB with three,
                           * 1.5 KB if they are found by name; a
                           * longer one half as much more for each 28 bytes.
                           * 0: 1 GiB */
    enum weir_on_full on_full; /* decides names for which it has no room */
    uint32_t threads_max;      /* threads that count refusals without sharing a
                           * cache line; 0: 64; more threads still work */
    weir_event_fn *on_event;   /* NULL: use weir_event_fd() or ignore */
    void *event_context;
    /* Credentials for the roots; NULL or "": as said at each. weir_open() reads
     * the files and fails if one can't be used. A later connection reads files
     * that have changed since. If a changed file can't be used, an event says
     * so and the previous content stays in force. A certificate that has
     * expired or isn't valid yet can't be used. */
    const char *tls_ca;     /* PEM file of the authorities to trust, "system"
                             * for the system's; NULL: plain text. A root must
                             * show a certificate for its HOST */
    const char *tls_cert;   /* PEM file of a certificate to show, with its
                             * chain; NULL: none */
    const char *tls_key;    /* PEM file of its key, not encrypted */
    const char *token_file; /* file; its first line is sent as bearer token;
                             * read for every connection; NULL: none. Needs
                             * tls_ca, unless the root is on this host */
    /* For exact quotas, those with sharing=exact (weir/exact.h). */
    const struct weir_exact *exact; /* weir_exact(); NULL: exact quotas go by
                                     * their on_stale */
    const char *exact_secrets_file; /* lines "HOST:PORT USER PASSWORD" of stores
                                     * ("-": no user), readable by this user
                                     * only; NULL: none. A password is sent in
                                     * plain text only to this host, or if its
                                     * line begins with redis://HOST:PORT */
    const char *exact_prefix;       /* prefix of all keys in stores, 1 to 64
                                     * printable characters without blanks and
                                     * '{'; NULL: "weir". Fleets that share a
                                     * store but no quotas need one each */
    /* For leased quotas, those with sharing=leased. */
    int64_t lease_priority; /* priority of this process's demand: when demand
                             * exceeds a quota that shares by priority, the
                             * higher one is served first; 0: as each quota
                             * says */
    uint32_t leases_max;    /* leased quotas in use at once; one more goes by
                             * its on_stale; 0: 1,024; up to 65,536 */
    uint32_t adaptive_max;  /* adaptive quotas, templates and instances
                             * together; one more is only counted; 0: 256; up to
                             * 4,096. Each in use takes 24 KiB */
    /* For a table that processes share (below). */
    const char *table; /* file of the shared table; NULL or "": this process has
                        * its own table */
    enum weir_table_role table_role; /* this process's role in it */
    /* For quotas with more than one word of state, and names that are new to
     * the table ("Locks" above). */
    weir_duration
        lock_wait; /* how long a decision waits for a lock; 0: 1 ms; up
                              * to 1 s; WEIR_NO_LOCK_WAIT */
    enum weir_when_locked when_locked; /* and how it decides then */
    const char *snapshot; /* file that keeps the quotas: a start while no root
                           * can be reached goes by it; WEIR_EVENT_SNAPSHOT.
                           * One file a process. NULL or "": none. Not with a
                           * shared table, which itself keeps the quotas */
};
#define WEIR_OPTIONS_INIT           \
    {                               \
        sizeof(struct weir_options) \
    }

/* Opens a limiter and starts its thread. Never waits for a root. Never fails
 * because no root answers or a root rejects the credentials (that is
 * WEIR_EVENT_ROOT_DOWN). 'out_weir' is untouched on failure. Strings in
 * 'options' are copied.
 *
 * A child of fork() that uses a limiter of its parent gets an incarnation and a
 * thread of its own at its first call, which allocates and may take some
 * hundred microseconds. The child decides at once, by the quotas and fills that
 * it inherited. The parent reports the units counted before the fork. The
 * parent's sockets are left alone; the files above are read anew.
 *
 * The thread blocks all signals, installs no handler, and every descriptor
 * is close-on-exec.
 *
 * Returns 0, WEIR_EINVAL (an option outside its range, roots that can't be
 * parsed, tls_… that contradict each other, a token that would be sent in plain
 * text to another host, 'exact' of another version, an invalid exact_prefix),
 * WEIR_ETLS (a file of tls_… can't be read or used), WEIR_ECREDENTIAL (the
 * token file can't be), WEIR_ETABLE (a shared table can't be used:
 * WEIR_EVENT_TABLE says why), WEIR_ELOCKED (another process runs the table's
 * limiter), WEIR_EFULL (too many processes have opened it), WEIR_ENOMEM or
 * WEIR_ESYSTEM. Blocking (allocates, reads files). */
WEIR_API WEIR_MUST_USE int weir_open(const struct weir_options *options,
                                     struct weir **out_weir);

/* Checks a configuration: whether weir_open() would take the options. Reads the
 * files that they name, opens and starts nothing. Returns the same errors as
 * weir_open() and reports the reason by the same events. Doesn't check a shared
 * table. Blocking. */
WEIR_API WEIR_MUST_USE int weir_check(const struct weir_options *options);

/* ---- A table that processes share ----
 *
 * Processes of one host that share a quota need not be a limiter each. With
 * options.table they map one table and decide on it by the same calls, each in
 * nanoseconds. One of them runs the table's limiter: the thread and the links
 * to the roots. To the roots all these processes are one limiter, and its limit
 * is not divided among them.
 *
 *     options.table = "/dev/shm/weir-shop";  in each process
 *
 * The process that runs the limiter is the reporter. When it ends or dies,
 * another process becomes the reporter within some 100 ms, unless its role is
 * WEIR_TABLE_DECIDES. The new reporter goes on as the same limiter: units that
 * the previous one had counted and not reported are reported, units that it had
 * reported are not reported again. While there is no reporter, decisions go on
 * by the counts of this table, and quotas stay as they were. Only the reporter
 * puts on_stale into force or ends it.
 *
 * Any process may be killed at any instant, without harm to the others. A
 * thread that each of them has gives back the dead process's entries in the
 * table (locks, handles, permits, threads' areas) within some 100 ms. A name
 * that the dead process was just adding to the table waits that long. A permit
 * that it was just entering or leaving may be given back once too often: then
 * the limit can be overrun by that weight until no process holds units of the
 * name.
 *
 * A process that is stopped (SIGSTOP, a debugger) isn't dead. It keeps its
 * entries and its role as reporter until it goes on or is killed. Other
 * processes decide meanwhile as if there were no reporter. They wait for a
 * stopped process only if it was stopped in the middle of a change of the
 * table: with a new name's slot, or with a quota of an algorithm other than a
 * bucket.
 *
 * If the file doesn't exist, weir_open() makes it with mode 0600. It is as long
 * as memory_max, here some 1.2 KB for each name, and sparse: 4 MB are allocated
 * at once, more as the table grows. If the file system has no more, the table
 * is full (on_full); no process is killed for it. The file is used only if it
 * is a regular file of this user that no other user may open. A memory_max
 * other than that of its creation is refused; 0 takes the one that it has. It
 * stays after all processes have ended, and the next process goes on with it;
 * to begin anew, end them all and remove the file. After a reboot it is made
 * anew. All processes must use one version of libweir, in one PID namespace.
 * Put the file on a memory file system: /dev/shm.
 *
 * Differences to a table of one process:
 * - weir_status(), weir_ready() and weir_sync() describe the reporter, and only
 *   the reporter gets the events of the roots.
 * - The reporter's name and credentials are used; let them be the same in all
 *   processes.
 * - Processes that may run the limiter and name roots must name the same roots;
 *   otherwise weir_open() fails (WEIR_ETABLE). After they have ended, other
 *   roots may be named. Once any process names roots, only such a process may
 *   be the reporter, and a reporter without roots resigns.
 * - Exact quotas go by their on_stale, adaptive ones let all pass.
 * - weir_enter_wait() keeps no order: that asks again when the reply says so.
 * - A process that calls exec() keeps its entries until it ends: call
 *   weir_close() before.
 * - A child of fork() becomes a process of its own on the table, with its
 *   parent's handles, if it calls before its parent has ended or closed them.
 *   If another process has the table's lock at that call, the child's thread
 *   takes the handles over later, and the parent has to keep them until then.
 *   If no place is left for it (WEIR_EVENT_TABLE), it passes all requests, as
 *   unknown. */

#define WEIR_PROCESSES_MAX 62 /* limiters opened on one table at once */

/* Opens a limiter on a shared table in memory that the caller provides, as
 * nginx does. The memory is zeroed once before the first call, aligned to 64
 * bytes, and mapped by all processes (at any address) while any has it open.
 * 'size' is at least weir_table_bytes() of the first caller's options. It
 * doesn't grow; memory_max 0: 16 MiB.
 * options->table is ignored; the rest is as above. Returns what weir_open()
 * does. Blocking. */
WEIR_API WEIR_MUST_USE int weir_open_in(void *memory, size_t size,
                                        const struct weir_options *options,
                                        struct weir **out_weir);
/* Bytes that a shared table needs; 0: an option is outside its range. */
WEIR_API size_t weir_table_bytes(const struct weir_options *options);

/* Waits until the quotas of some root are complete here, at most 'timeout'.
 * Returns 0 or WEIR_ETIMEOUT; WEIR_ECLOSED. Blocking. */
WEIR_API WEIR_MUST_USE int weir_ready(struct weir *weir, weir_duration timeout);

/* Waits until every connected root has answered for all that happened here so
 * far (handles opened, units taken), at most 'timeout'. Later decisions stand
 * on the whole fleet's counts. For processes too short-lived to wait for the
 * next report; a service needs no such call. Returns 0, WEIR_ETIMEOUT (also
 * when no root is connected) or WEIR_ECLOSED. Blocking. */
WEIR_API WEIR_MUST_USE int weir_sync(struct weir *weir, weir_duration timeout);

/* Sends the units not yet reported, for which it may wait until a connection to
 * a root stands (at most 100 ms in all), stops the thread and frees everything.
 * If a memcached of exact quotas is silent, waits for it, at most the longest
 * deadline. No other call on 'weir' or its handles may be running or follow.
 * NULL is legal. Blocking. */
WEIR_API void weir_close(struct weir *weir);

/* ---- Without roots -------------------------------------------------
 *
 * The process itself defines the quotas of a limiter that was opened without
 * roots. Local and adaptive quotas work as with roots; counted quotas count
 * this process alone. */

/* Defines or edits a quota by its fields, as in weir-quota(5): { "name=db",
 * "kind=concurrency", "sharing=adaptive", NULL }. A parent may be defined
 * later, and limits nothing until then. A field that an edit doesn't name goes
 * back to its default. Returns 0; WEIR_EINVAL: the limiter has roots, which
 * define the quotas; WEIR_EFULL; WEIR_ETIMEOUT: another thread had a lock of
 * the table for a second; or an error in the fields (WEIR_EQUOTA,
 * WEIR_ENAME, WEIR_ENOENT): then 'why' (or NULL), of 'size' bytes, gets a
 * sentence about it. Any thread; waits for other threads that define. */
WEIR_API WEIR_MUST_USE int weir_define(struct weir *weir,
                                       const char *const *fields, char *why,
                                       size_t size);

/* ---- Handles ------------------------------------------------------- */

/* A quota, found once and used often. A plain value: copy it freely. It
 * stays valid until weir_handle_close(), through edits, removal and
 * re-creation of the quota of that name. A zeroed handle is legal: it stands
 * for a name without quota and passes. */
struct weir_handle {
    struct weir *weir;
    uint32_t slot;
    uint32_t generation;
};

/* Finds 'name' (of 'len' bytes, no NUL needed) and keeps its place in the
 * table. A name that has no quota yet gets a handle too, which passes until
 * there is one. Returns 0, WEIR_ENAME (also for "shadow:…", the names of a
 * candidate set of quotas, and for a long name without a stored form, which
 * calls by name limit), or WEIR_EFULL: the table has no room. The handle
 * can still be used: its template's overflow quota decides, or on_full. A
 * shared table has room for handles to twice as many names as it has room for,
 * each counted once for each process. Or WEIR_ETIMEOUT: another thread had the
 * table's lock for a second ("Locks" above); 'out_handle' is untouched. Takes
 * that lock for some microseconds, and makes system calls for memory as the
 * table grows. */
WEIR_API WEIR_MUST_USE int weir_handle_open(struct weir *weir, const char *name,
                                            size_t len,
                                            struct weir_handle *out_handle);

/* Gives the place back. The handle must not be used afterwards. If another
 * thread has the table's lock for a second ("Locks" above), the place is given
 * back when the lock is free. */
WEIR_API void weir_handle_close(struct weir_handle quota);

/* ---- Decisions -----------------------------------------------------
 *
 * Each decides on the whole chain of a quota (itself and its ancestors): passes
 * only if all pass, charges all or none. 'reply' may be NULL. A weight above
 * WEIR_WEIGHT_MAX counts as WEIR_WEIGHT_MAX. Lock-free; no allocation; at most
 * one clock read as system call. Two kinds of quota are exceptions. Local
 * quotas with more than one word of state (windows, logs, …) are locked until
 * the request is decided ("Locks" above). A charge or refund that finds one
 * locked for longer than lock_wait leaves it out. For an exact quota the call
 * asks a store and waits, at most the quota's deadline for each exact quota of
 * the chain. If one store refuses after others have charged, the call waits up
 * to one deadline more for each of those refunds. */

/* Asks for 'weight' units and charges them if they pass. */
WEIR_API enum weir_verdict weir_take(struct weir_handle quota, uint64_t weight,
                                     struct weir_reply *reply,
                                     weir_instant now);

/* The same by name, up to WEIR_GIVEN_NAME_MAX bytes; a longer one is limited.
 * The first use of a name that matches a template makes its instance (that
 * once, the writer lock is taken). A name over WEIR_NAME_MAX bytes is hashed in
 * each call, and replies have its stored form: weir-quota(5). A name such as
 * "throttle:16:30/60s:user123" brings its limit along, 30 in 60 s and 16 at
 * once, and needs no quota: weir-quota(5). */
WEIR_API enum weir_verdict weir_take_by_name(struct weir *weir,
                                             const char *name, size_t len,
                                             uint64_t weight,
                                             struct weir_reply *reply,
                                             weir_instant now);

/* Whether weir_handle_open() would take 'name'. An invalid name has no quota,
 * so all calls by name let it pass: check names that are made of untrusted
 * input. Wait-free. */
WEIR_API bool weir_name_is_valid(const char *name, size_t len);

/* One request of weir_take_many(). */
struct weir_request {
    const char *name;
    size_t len;
    uint64_t weight;
    enum weir_verdict verdict; /* the answer */
};

/* Takes 'count' requests in order, each on its own; fetches their memory
 * together. Returns how many passed. */
WEIR_API size_t weir_take_many(struct weir *weir, struct weir_request *requests,
                               size_t count, weir_instant now);

/* Decides as weir_take() would and charges nothing. */
WEIR_API enum weir_verdict weir_peek(struct weir_handle quota, uint64_t weight,
                                     struct weir_reply *reply,
                                     weir_instant now);

/* The same by name. Like weir_take_by_name() it may make a template's instance.
 * It marks the quotas of the chain as used: with their next answer, some
 * milliseconds later, the roots send the fleet's fill, and keep it up to date.
 * The peeks before that answer are decided by what this process knows alone,
 * and say so by reply->stale. Of a leased quota the first peek asks for a
 * grant, as a handle does, and peeks keep it; they are answered by this
 * process's grant, and take a small part of a scarce limit with them. */
WEIR_API enum weir_verdict weir_peek_by_name(struct weir *weir,
                                             const char *name, size_t len,
                                             uint64_t weight,
                                             struct weir_reply *reply,
                                             weir_instant now);

/* Counts 'weight' units without a decision: for a cost known afterwards, such
 * as the bytes of a response. May go into debt, up to WEIR_DEBT_MAX above
 * high_burst, where it saturates; later takes are limited until the debt has
 * leaked. The fleet remembers a debt of up to the quota's max_debt for each
 * process (weir-quota(5)). Here and in the calls below, up to WEIR_DEBT_MAX
 * units count. Units in flight (kind concurrency) aren't changed. */
WEIR_API void weir_charge(struct weir_handle quota, uint64_t weight,
                          weir_instant now);

/* Gives 'weight' units back, never below an empty bucket. */
WEIR_API void weir_refund(struct weir_handle quota, uint64_t weight,
                          weir_instant now);

/* For work whose cost is known afterwards (rows, tokens of a language model):
 * take the units that it is expected to cost, do it, then settle what it did.
 *
 *     uint64_t charged = 2000;
 *     if (weir_take(tokens, charged, NULL, 0) == WEIR_LIMITED)
 *         return 429;
 *     uint64_t used = answer(request);
 *     weir_settle(tokens, &charged, used, 0);
 *
 * '*charged' is the receipt: the units that the caller has charged for the work
 * so far; 0: none, for instance as it only peeked. The call charges or gives
 * back the difference to 'actual', and sets '*charged' to it, so the caller may
 * settle again while the work goes on. NULL isn't allowed. */
WEIR_API void weir_settle(struct weir_handle quota, uint64_t *charged,
                          uint64_t actual, weir_instant now);

/* The same three by name, which is resolved as by weir_take_by_name(). False:
 * the name has no quota, or no room for it, and nothing changed, '*charged'
 * neither; weir_status() counts it as unknown or overflowed. */
WEIR_API bool weir_charge_by_name(struct weir *weir, const char *name,
                                  size_t len, uint64_t weight,
                                  weir_instant now);
WEIR_API bool weir_refund_by_name(struct weir *weir, const char *name,
                                  size_t len, uint64_t weight,
                                  weir_instant now);
WEIR_API bool weir_settle_by_name(struct weir *weir, const char *name,
                                  size_t len, uint64_t *charged,
                                  uint64_t actual, weir_instant now);

/* Charges now and says in reply->wait how long to wait before going on, so that
 * callers proceed in the order of their calls. Refuses, and charges nothing, if
 * the wait were longer than 'wait_max' or the debt were above WEIR_DEBT_MAX.
 * 'reply' must not be NULL. */
WEIR_API enum weir_verdict weir_reserve(struct weir_handle quota,
                                        uint64_t weight, weir_duration wait_max,
                                        struct weir_reply *reply,
                                        weir_instant now);

/* weir_reserve(), then sleeps for that long. If a window or log of the chain
 * refuses, nothing can be reserved: the call sleeps until its reset and asks
 * again, for as long as 'wait_max' allows. Blocking. */
WEIR_API enum weir_verdict weir_wait(struct weir_handle quota, uint64_t weight,
                                     weir_duration wait_max,
                                     struct weir_reply *reply);

/* The limit of a quota, as a header such as RateLimit-Policy states it. */
struct weir_policy {
    bool concurrency;     /* units in flight, not a rate: 'window' is 0 */
    uint64_t quantity;    /* units that pass on an unused quota: a bucket's
                           * high_burst, a window's limit */
    weir_duration window; /* in which so many come back; 0: they don't */
};

/* Finds the quota by the name in a reply. The result is the limit that this
 * process decides by: of a leased quota, its grant. Lock-free, except for
 * quotas with more than one word of state (above). Returns 0 or WEIR_ENOENT:
 * there is no such quota in this process's table, or it lets all pass. */
WEIR_API int weir_policy(struct weir *weir, const char *name, size_t len,
                         struct weir_policy *out_policy);

/* ---- Leased quotas -------------------------------------------------
 *
 * Of a quota with sharing=leased each process is granted a part of the limit
 * ahead of time, by the demand of all processes, and decides alone within that
 * part: the sum of the grants never exceeds the limit. The calls are the same.
 * A process's demand follows its use and need not be declared; weir_want()
 * declares it before there is any use, or before it changes. A handle alone
 * asks for a little. Until the first grant has come the quota refuses: for a
 * round trip after the handle was opened, or 100 ms and a round trip after a
 * first use without handle. reply->granted is this process's grant.
 *
 * A grant is given back when the last handle of the quota is closed (within
 * some 200 ms; not while the quota is used by its name as well), after half a
 * minute without use, and by weir_close(). */

/* Declares a demand of 'wants' units per second, or of units in flight if the
 * quota is of kind concurrency; 0 .. 10^18. It holds until the limiter has seen
 * ten seconds of use. Other processes may have to give units back first:
 * reply->granted grows in the next round trips. On a quota that isn't leased,
 * or doesn't exist, the value is kept while the handle is open, in case it
 * becomes leased. Lock-free. Returns 0 or WEIR_EINVAL (no such number, or a
 * zeroed handle). */
WEIR_API int weir_want(struct weir_handle quota, double wants,
                       weir_instant now);

/* ---- Permits --------------------------------------------------------
 *
 * A quota of kind concurrency limits the units in flight: requests being
 * served, connections open, bytes in a queue. A caller enters before it begins
 * and gets a permit; when it is done, it leaves with the permit and the units
 * are free again:
 *
 *     struct weir_permit permit;
 *     if (weir_enter(db, 0, 1, &permit, NULL, 0) == WEIR_LIMITED)
 *         return 503;
 *     ... ask the database ...
 *     weir_leave(&permit, WEIR_PERMIT_SUCCESS, 0);
 *
 * A chain may mix both kinds: weir_enter() passes only if all of its quotas
 * pass, and takes all or none. For quotas of kind rate it is a weir_take(), and
 * their charge is final. For quotas of kind concurrency the permit holds the
 * units until it is given back. On a chain without any such quota the permit
 * holds nothing, and weir_leave() is harmless.
 *
 * The other calls hold nothing. weir_take(), weir_peek() and weir_reserve()
 * decide on a quota of kind concurrency as for a request that is over at once.
 * weir_charge() and weir_refund() skip it, since no permit could give back
 * their units.
 *
 * Precision. In one process (sharing=local) the units in flight never exceed
 * the limit, however many threads race. After the limit was lowered more may be
 * in flight; the quota then refuses until enough permits have left. The same
 * holds over a fleet if a store knows each permit (sharing=exact). Then enter
 * and leave ask the store and wait, as other calls on exact quotas do. A permit
 * that is never given back ends the quota's permit_timeout after it was
 * entered, even if it is still in use. The same holds if each process is
 * granted its part (sharing=leased, above), and no call waits for that. Grants
 * are whole units. A process that has more in flight than its new grant gives
 * the difference up as its permits leave. The units of a dead process are free
 * when its lease and permit_timeout are over. A permit held for longer than
 * that after its lease has ended may be counted as another process's. Over a
 * fleet that only counts (sharing=counted) the limit may be exceeded: for each
 * process by 2 * slack (the last one that its roots sent) + the weight of one
 * request, and by the units entered while messages were on their way. With
 * slack=off that is as much as each process enters in a report_interval. A
 * process that uses a name for the first time has the whole limit until a root
 * answers. Regions have one limit together, by the same bound; messages between
 * regions take longer. No process is promised a fair part: a process that has
 * the whole limit and enters again after each leave keeps most of it. The units
 * of a dead process are free stale_after later. Units in flight belong to the
 * name: they outlive each edit of the quota, its removal and re-creation, and a
 * name with permits in flight keeps its place in the table.
 *
 * When refused, 'retry_after' is a guess of some 20 ms, since the next leave
 * can't be predicted. (For an adaptive quota the estimate is better.) A thread
 * that would rather wait than retry calls weir_enter_wait(). */

/* ---- Adaptive limits -------------------------------------------------
 *
 * A quota of kind concurrency with sharing=adaptive finds its limit by how long
 * requests take, from their enter to their leave, in this process alone. So
 * call weir_leave() when the request is over, not sooner or later, with its
 * true outcome. A permit that is never given back is written off after the
 * quota's permit_timeout.
 *
 * Classes. The quota may name classes of requests. Some have a guaranteed part
 * of the limit, others are never refused. A call of weir_enter() passes its
 * class as a number:
 *
 *     uint32_t bulk = weir_class("bulk", 4);
 *     ...
 *     if (weir_enter(db, bulk, 1, &permit, &reply, 0) == WEIR_LIMITED)
 *         return 429 with Retry-After: reply.retry_after;
 *
 * The number is made of the name alone, so it can be computed before the quota
 * is known here, and outlives its edits. A request of class 0, or of a class
 * that the quota doesn't have, is no error and has no guaranteed part: it
 * enters if there is room within the limit, and is refused first.
 *
 * Several units at once are given all or none: a page that needs eight queries
 * enters with a weight of 8.
 *
 * When refused, 'quota' is the refusing quota, which may also be a rate of the
 * chain. 'retry_after' is the expected time of the next leave, by the current
 * latency. 'fill' is the units in flight. */

/* The number of a class of requests; any name. */
WEIR_API uint32_t weir_class(const char *name, size_t len);

/* The state of an adaptive quota in this process. */
struct weir_adaptive {
    double limit;       /* units in flight; below 1: one, part of the time. With
                         * scope=fleet the part of this process */
    double before;      /* the limit before it last moved */
    const char *reason; /* why it moved: "initial" (it hasn't yet), "slow",
                         * "dropped", "headroom", "measuring", "measured",
                         * "edited", "resumed" (back where it was before the
                         * dependency stood still) or "given" (a part of the
                         * fleet's limit); static */
    weir_instant moved_at;
    weir_duration latency; /* percentile of the last window; 0: none */
    uint64_t windows;      /* windows judged so far */
    uint64_t in_flight;    /* units */
    uint64_t overdue;      /* of them, units in flight for at least … */
    weir_duration overdue_age;
    uint64_t lost; /* units of permits never given back */
    bool fleet;    /* scope=fleet: the roots find one limit for the fleet, and
                    * this process has a part of it … */
    bool alone;    /* … but no root has answered for some seconds: it finds a
                    * limit for itself, beginning with its part */
};
/* Returns 0; or WEIR_ENOENT: the name has no adaptive quota here, or the quota
 * found no room. 'out' is written on success. May wait some microseconds for a
 * thread that closes a window. */
WEIR_API int weir_adaptive(struct weir_handle quota, struct weir_adaptive *out,
                           weir_instant now);

/* A permit: the units that an enter holds. Plain memory of the caller; all zero
 * if and only if it holds nothing. It may be moved, but only one copy may be
 * given back. A second copy would free units that other permits of the name
 * hold, and the limit would be overrun by as much. */
struct weir_permit {
    uint64_t words[16];
};

/* The outcome of a request. An adaptive quota finds its limit by it. */
enum weir_permit_outcome {
    WEIR_PERMIT_SUCCESS = 0, /* served; its time in flight counts */
    WEIR_PERMIT_DROPPED = 1, /* refused or timed out by an overloaded
                              * dependency */
    WEIR_PERMIT_IGNORED = 2, /* ended for another reason: doesn't count */
};

/* Asks for 'weight' units and holds them if they pass, until weir_leave().
 * 'klass' is a weir_class() or 0, and matters to adaptive quotas alone.
 * 'out_permit' is always written: if this is refused it holds nothing, and a
 * permit that was there before is lost for good. 'reply' may be NULL. The rest
 * is as weir_take(), but a loop repeats while other threads make progress. */
WEIR_API enum weir_verdict weir_enter(struct weir_handle quota, uint32_t klass,
                                      uint64_t weight,
                                      struct weir_permit *out_permit,
                                      struct weir_reply *reply,
                                      weir_instant now);

/* The same, and waits if it is refused, for 'wait_max' at most; WEIR_NEVER: for
 * as long as it takes. The waiting threads of this process at a quota enter one
 * after the other in the order of its `queue`: fifo, lifo or by 'priority' (the
 * higher, the earlier; ignored by the other two). Each enters when its weight
 * fits. A leave gives its units to the next waiter only; calls that don't wait
 * are refused meanwhile, unless their class has a guaranteed part free beside
 * the waiters. A limit that grows lets in as many waiters as fit. The call is
 * refused at once if `queue_max` threads wait at the quota already, or if the
 * weight never fits.
 *
 * If a rate of the chain refuses, on exact quotas, and on a shared table, the
 * call asks again when that may pass, in no order. The same if another thread
 * has a lock ("Locks" above) and when_locked refuses. On a chain without a
 * quota of kind concurrency it is weir_wait(). A call that waits is counted as
 * refused only if it is refused in the end; on a leased quota each attempt is
 * counted, since refusals express demand. reply->wait is how long the call
 * waited; the time in flight begins when it enters. Blocking; call weir_close()
 * only after all have returned. */
WEIR_API enum weir_verdict weir_enter_wait(struct weir_handle quota,
                                           uint32_t klass, uint64_t weight,
                                           int64_t priority,
                                           weir_duration wait_max,
                                           struct weir_permit *out_permit,
                                           struct weir_reply *reply);

/* weir_enter() by name. (Eight parameters, against the house's rule: they are
 * weir_take_by_name()'s and weir_enter()'s, in that order.) */
WEIR_API enum weir_verdict weir_enter_by_name(struct weir *weir,
                                              const char *name, size_t len,
                                              uint32_t klass, uint64_t weight,
                                              struct weir_permit *out_permit,
                                              struct weir_reply *reply,
                                              weir_instant now);

/* Gives back the units of the permit, once, and empties it. A permit that is
 * empty, was given back, or was entered by an ancestor before fork() gives back
 * nothing. Any thread may leave, not only the one that entered; but two threads
 * must not leave with one permit at the same time, and none after weir_close().
 * A loop repeats while other threads make progress. If threads wait, the next
 * one is let in and woken. The first call in a child of fork() makes it a
 * limiter of its own, which allocates and starts a thread. The permit is also
 * removed from the stores of exact quotas: the call waits, at most the deadline
 * of each exact quota of the chain, and lock_wait. It doesn't report whether a
 * store answered: if one didn't, the permit ends there by its permit_timeout.
 * From the store of a quota that is locked for longer than lock_wait, a later
 * enter or leave of this limiter removes it, and waits for the quota's deadline
 * as well; if none comes before weir_close(), permit_timeout ends it. */
WEIR_API void weir_leave(struct weir_permit *permit,
                         enum weir_permit_outcome outcome, weir_instant now);

/* ---- Events and status ---------------------------------------------- */

/* A descriptor that is readable while events wait; owned by the limiter. */
WEIR_API int weir_event_fd(struct weir *weir);

/* Takes the oldest event. Returns false when there is none. */
WEIR_API bool weir_event_next(struct weir *weir, struct weir_event *out);

/* The state of the limiter. */
struct weir_status {
    uint32_t roots;       /* given by address, or found by their names */
    uint32_t roots_up;    /* connected */
    uint32_t roots_there; /* that share the roots' store; 0: not known */
    bool few_roots;       /* more than connected, for a minute
                          * (WEIR_EVENT_FEW_ROOTS) */
    uint64_t epoch;       /* of the quotas here */
    uint32_t slots;       /* that memory_max is enough for */
    uint32_t slots_used;  /* quotas, templates and instances */
    uint64_t memory;      /* bytes committed for slots, of … */
    uint64_t memory_max; /* … these; less than the option's if the process may
                          * not reserve so many addresses */
    uint32_t lacking;    /* quotas that found no room */
    enum weir_on_full on_full;
    bool ready;          /* the quotas of a root are complete here */
    bool stale;          /* no root was heard for stale_after */
    uint64_t unknown;    /* requests by names without quota */
    uint64_t overflowed; /* requests by names without room */
    uint64_t reports;    /* sent to all roots */
    uint32_t adaptive;   /* adaptive quotas that have a limit of their own */
    uint32_t adaptive_overflowed; /* and those that found no room for one */
    uint32_t waiting;             /* threads that wait in weir_enter_wait() */
    uint64_t contended; /* requests that were decided by when_locked */
    weir_duration overflowed_age; /* since 'overflowed' was last seen to rise;
                                   * WEIR_NEVER: it is 0 */
    bool growth_failed; /* the system, or the file system of the shared table,
                         * had no memory for more slots: memory_max isn't used
                         * up. Tried again each 10 s */
};
WEIR_API void weir_status(struct weir *weir, struct weir_status *out);

/* The version of this header, and of the library. */
#define WEIR_VERSION "0.1.0"
WEIR_API const char *weir_version(void);

#ifdef __cplusplus
}
#endif

#endif /* WEIR_H */
