/* SPDX-License-Identifier: MIT
 * weir.h - keep a fleet of processes within shared quotas. */

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
 * know the quotas. No call below but weir_ready(), weir_sync(), weir_wait(),
 * weir_enter_wait() and weir_close() ever waits for the network or another
 * thread, unless a quota is exact: then a store of its own decides
 * (weir/exact.h).
 * Plain decisions take no lock; what makes a name's place in the table spins
 * for one that is held for microseconds (or for as long as the system lets
 * its holder wait). With all roots dead the decisions go on as each quota's
 * `on_stale` says.
 *
 * Units. A quota counts units: requests, bytes, rows. A weight is how many
 * units one request costs, 0 to WEIR_WEIGHT_MAX. Durations are nanoseconds.
 *
 * Time. Every call that decides takes `now`, an instant of CLOCK_MONOTONIC in
 * nanoseconds; 0 lets the library read the clock (some 20-30 ns). An instant
 * earlier than one seen before is safe: it sees a fuller bucket. One of the
 * future is not (CLOCK_REALTIME, say): the bucket then refuses until that
 * time has come, or a root says better.
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
#define WEIR_WEIGHT_MAX (1ull << 32) /* units one call may ask for */
#define WEIR_DEPTH_MAX 16            /* quotas in a chain */
#define WEIR_ROOTS_MAX 8             /* roots of one limiter */
#define WEIR_DEBT_MAX \
    (1ull << 40) /* units above high_burst that charges,
                                       * reservations and late counts reach */

/* ---- Errors --------------------------------------------------------
 * An operating error is negative; 0 is success. Being limited is no error
 * but a verdict. weir_strerror() gives a sentence that says what to do. */
enum weir_error {
    WEIR_OK = 0,
    WEIR_EINVAL = -1,       /* an argument is outside its stated range */
    WEIR_ENOMEM = -2,       /* the system gave no memory */
    WEIR_ENAME = -3,        /* a name is empty, too long or not clean UTF-8 */
    WEIR_EQUOTA = -4,       /* a quota's fields contradict each other */
    WEIR_EPARENT = -5,      /* a parent doesn't exist */
    WEIR_ECYCLE = -6,       /* a quota would be its own ancestor */
    WEIR_EDEPTH = -7,       /* a chain would be longer than WEIR_DEPTH_MAX */
    WEIR_EEXIST = -8,       /* there is such a thing already */
    WEIR_ENOENT = -9,       /* there is no such thing */
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
    WEIR_ECHANGED = -25,    /* it has been changed since */
    WEIR_ETLS = -26,  /* a certificate or key can't be used, or TLS failed */
    WEIR_ETABLE = -27 /* a shared table can't be used */
};

/* A static sentence for 'error', never NULL. Wait-free. */
WEIR_API const char *weir_strerror(int error);

/* ---- Verdicts ------------------------------------------------------ */

enum weir_verdict {
    WEIR_PASS = 0,
    WEIR_LIMITED = 1,
};

/* What a decision knows. Filled on request (a NULL reply costs nothing). */
struct weir_reply {
    enum weir_verdict verdict;
    bool unknown;       /* the name has no quota: it passes */
    bool never;         /* the weight is above high_burst: it never passes */
    bool stale;         /* no root was heard for stale_after, or a store of an
                         * exact quota didn't answer: decided by on_stale */
    bool shadow;        /* a quota in mode shadow would have refused */
    bool exact;         /* a store of an exact quota was asked and answered */
    bool leased;        /* the deciding quota is leased … */
    double granted;     /* … and this process may use so many units a second
                         * of it now, or of what is in flight at a time;
                         * INFINITY: any */
    int64_t fill;       /* units in the deciding bucket or window: of the quota
                         * that refused, or of the one nearest to its limit;
                         * below 0: a token bucket that began above its burst */
    uint64_t remaining; /* units that would still pass, over the chain */
    weir_duration retry_after; /* 0 when passed; WEIR_NEVER when 'never' */
    weir_duration wait;        /* of weir_reserve(): how long to wait */
    uint8_t level;     /* passed: which of token_buckets paid, from 0; the
                         * highest over the chain */
    uint8_t quota_len; /* of 'quota'; 0 when there is none */
    char quota[WEIR_NAME_MAX + 1]; /* the deciding quota, NUL-terminated */
};

/* ---- Events --------------------------------------------------------
 * The library never logs. What an operator may want to know is an event. */
enum weir_event_type {
    WEIR_EVENT_ROOT_UP = 1,   /* a root link is established */
    WEIR_EVENT_ROOT_DOWN,     /* a root link was lost; 'text' says why */
    WEIR_EVENT_READY,         /* the quotas of a root are complete here */
    WEIR_EVENT_STALE,         /* no root for stale_after: on_stale rules */
    WEIR_EVENT_FRESH,         /* a root is heard again */
    WEIR_EVENT_TABLE_FULL,    /* instances found no room, or quotas: the first
                               * of those is named */
    WEIR_EVENT_STORE_CHANGED, /* a root speaks for another quota store */
    WEIR_EVENT_ROOT_STRETCH,  /* an overloaded root asks for fewer reports */
    WEIR_EVENT_FORKED,        /* this is a child: a limiter of its own now */
    WEIR_EVENT_LOST,          /* events were dropped: the queue was full */
    WEIR_EVENT_CREDENTIAL,    /* a file of tls_… or token_file can't be used:
                               * 'text' says which, why, what to do */
    WEIR_EVENT_QUOTA_UNKNOWN, /* the quota 'text' is of a later version: this
                               * one can't decide it and lets all pass */
    WEIR_EVENT_EXACT_AWAY,    /* a store of exact quotas doesn't answer: they
                               * go by on_stale; 'text': store and reason */
    WEIR_EVENT_EXACT_BACK,    /* it answers again; 'text' is the store */
    WEIR_EVENT_ZONE,          /* this machine doesn't know the time zone of a
                               * quota's window, which goes by UTC */
    WEIR_EVENT_ADAPTIVE_FULL, /* 'count' adaptive quotas found no room and let
                               * all pass: see adaptive_max */
    WEIR_EVENT_ELSEWHERE,     /* leases are handed out by the root 'text', to
                               * which no link leads: name it among the roots,
                               * or bring it back */
    WEIR_EVENT_TABLE,         /* a shared table can't be used: 'text' says why
                               * and what to do */
    WEIR_EVENT_OFFICE,        /* this process runs a shared table's limiter
                               * from now on */
    WEIR_EVENT_DENIED         /* the credential shown to a root may not take
                               * from the quota 'text': its counts stay in
                               * this process, and an exact or leased one
                               * goes by on_stale */
};

struct weir_event {
    enum weir_event_type type;
    weir_instant at;
    uint64_t count; /* how often since last told (TABLE_FULL, LOST);
                       * ms between reports (ROOT_STRETCH) */
    char text[192]; /* for people: root, quota, reason */
};

/* Called from the background thread; must return quickly and must not call
 * weir_close(). 'event' is valid during the call. Also from within a
 * weir_open() that fails for a file: WEIR_EVENT_CREDENTIAL or WEIR_EVENT_TABLE
 * says which. */
typedef void weir_event_fn(void *context, const struct weir_event *event);

/* ---- Life ---------------------------------------------------------- */

struct weir;       /* one limiter: a table and its background thread */
struct weir_exact; /* what libweir-exact brings */

/* What a process does for a table that it shares. */
enum weir_table_role {
    WEIR_TABLE_MAY_RUN = 0, /* runs the limiter whenever nobody else does */
    WEIR_TABLE_RUNS,        /* runs it from the start, or isn't opened */
    WEIR_TABLE_DECIDES,     /* never does: needs no roots */
};

/* Options of weir_open(). Zero means the default. */
struct weir_options {
    size_t struct_size;   /* set by WEIR_OPTIONS_INIT */
    const char *roots;    /* "HOST:PORT,…", up to WEIR_ROOTS_MAX, each named
                           * once; NULL: none, every name is then unknown and
                           * passes */
    const char *name;     /* how this process is called in `weir top`, up to
                           * 255 bytes of clean UTF-8; NULL or "": program
                           * name and process id */
    uint32_t quotas_max;  /* slots of the table, quotas and instances
                           * together; 0: 65,536; up to 16,777,216 */
    uint32_t threads_max; /* threads that count refusals without sharing a
                           * cache line; 0: 64; more threads still work */
    weir_event_fn *on_event; /* NULL: use weir_event_fd() or ignore */
    void *event_context;
    /* How to speak to the roots; NULL or "": as said. The files are read by
     * weir_open(), which fails if one can't be used, and again whenever they
     * have changed and a connection begins; those that can't be used then are
     * an event, and what was read before stays in force. */
    const char *tls_ca;     /* PEM file of the authorities to trust, "system"
                             * for the system's; NULL: plain text. A root must
                             * show a certificate for its HOST */
    const char *tls_cert;   /* PEM file of a certificate to show, with its
                             * chain; NULL: none */
    const char *tls_key;    /* PEM file of its key, not encrypted */
    const char *token_file; /* its first line goes along as bearer token; read
                             * for every connection; NULL: none. Not without
                             * tls_ca, but to this host itself */
    /* For exact quotas, those with sharing=exact (weir/exact.h). */
    const struct weir_exact *exact; /* weir_exact(); NULL: they go by their
                             * on_stale */
    const char *exact_secrets_file; /* lines "HOST:PORT USER PASSWORD" of
                             * stores ("-": no user), readable by nobody else;
                             * NULL: none. In plain text a password goes to
                             * this host itself, and where the line begins
                             * with redis://HOST:PORT */
    const char *exact_prefix;       /* of all keys in stores, 1 to 64 printable
                             * characters without blanks and '{': fleets that
                             * share a store and no quotas have one each;
                             * NULL: "weir" */
    /* For leased quotas, those with sharing=leased. */
    int64_t lease_priority; /* of what this process wants of them: where more
                             * is wanted than there is the higher is served
                             * first, if the quota shares by priority; 0: as
                             * each quota says */
    uint32_t leases_max;    /* of them in use at once; one more goes by its
                             * on_stale; 0: 1,024; up to 65,536 */
    uint32_t adaptive_max;  /* adaptive quotas, templates and instances
                            * together; one more only counts; 0: 256; up to
                            * 4,096, of 24 KiB each that is used */
    /* For a table that processes share (below). */
    const char *table; /* its file; NULL or "": this process's own table */
    enum weir_table_role table_role; /* what this process does for it */
};
#define WEIR_OPTIONS_INIT           \
    {                               \
        sizeof(struct weir_options) \
    }

/* Opens a limiter and starts its thread. Never waits for a root and never
 * fails because none answers or takes its credentials (that is
 * WEIR_EVENT_ROOT_DOWN). 'out_weir' is untouched on failure. Strings in
 * 'options' are copied.
 *
 * A child of fork() that uses a limiter of its parent gets an incarnation
 * and a thread of its own at its first call: that one allocates, and may
 * take some hundred microseconds. It decides at once, by the quotas and fills
 * that it inherited; what was counted before is the parent's to report. The
 * parent's sockets are left alone; the files above are read anew.
 *
 * The thread blocks all signals, installs no handler, and every descriptor
 * is close-on-exec.
 *
 * Returns 0, WEIR_EINVAL (an option outside its range, roots that can't be
 * parsed, tls_… that contradict each other, a token that would go in plain
 * text to another host, 'exact' of another version, no such prefix), WEIR_ETLS
 * (a file of tls_… can't be read or used), WEIR_ECREDENTIAL (that of the
 * token), WEIR_ETABLE (a shared table can't be used: WEIR_EVENT_TABLE says
 * why), WEIR_ELOCKED (another process holds its office), WEIR_EFULL (too many
 * have opened it), WEIR_ENOMEM or WEIR_ESYSTEM. Blocking (allocates, reads
 * files). */
WEIR_API WEIR_MUST_USE int weir_open(const struct weir_options *options,
                                     struct weir **out_weir);

/* Whether weir_open() would take the options: reads what they name, and opens
 * and starts nothing. For who checks a configuration. Returns what weir_open()
 * does, and says why by an event, likewise; of a shared table it knows nothing.
 * Blocking. */
WEIR_API WEIR_MUST_USE int weir_check(const struct weir_options *options);

/* ---- A table that processes share ----
 *
 * Processes of one host that share a quota need not be a limiter each. With
 * options.table they map one table and decide on it by the same calls, each in
 * nanoseconds; one of them runs its limiter: the thread and the links to the
 * roots. To the roots they are one limiter, whose limit is not divided among
 * them.
 *
 *     options.table = "/dev/shm/weir-shop";  in each process
 *
 * Who runs the limiter holds the office. When it ends or dies, another process
 * takes the office over within some 100 ms, unless its role is
 * WEIR_TABLE_DECIDES. It goes on as the same limiter: what the one before had
 * counted and not reported is reported, what it had reported is not reported
 * again. While nobody holds the office decisions go on by what this table
 * counts, and quotas stay as they were: on_stale comes into force, or goes out
 * of it, by who holds the office.
 *
 * Any process may be killed at any instant, without harm to the others: what it
 * kept in the table (locks, handles, permits, threads' corners) is given back
 * within some 100 ms, by a thread that each of them has. A name whose place was
 * just being made waits so long. A killed process's permit may be given
 * back once too often, if it was just being entered or left: then the limit can
 * be overrun by that weight until nobody holds any more of it.
 *
 * A process that is stopped (SIGSTOP, a debugger) isn't dead: it keeps what it
 * has till it goes on or is killed, the office too. Others decide by then as
 * while nobody holds it. Only where it was stopped in the middle of a change of
 * the table do they wait for it: with a new name's place, or with a quota whose
 * algorithm isn't a bucket.
 *
 * The file is made with mode 0600 if there is none, with room for quotas_max
 * (here 16,384 if it is 0) reserved at once, 2 MB and some 1.1 KB each: where
 * the file system hasn't as much, weir_open() fails instead of a process being
 * killed later. It is used only if it is a regular file of this user that no
 * other may open. It never grows: another quotas_max than it was made with is
 * refused; 0 takes what there is. It stays when all have gone, and who comes
 * next goes on with it; to begin anew, end them all and remove it. After a
 * reboot it is made anew. All must be of one version of libweir, and in one PID
 * namespace. Put it on a memory file system: /dev/shm.
 *
 * The others' calls are as ever, but: weir_status(), weir_ready() and
 * weir_sync() tell of the process with the office; events of the roots are told
 * there alone; the name and credentials are those of who holds it, and should
 * be the same everywhere. Of all that may run the limiter at a time those that
 * name roots name the same, or aren't opened (WEIR_ETABLE); when they have
 * ended, others' may be named. Where any has roots, only who has takes the
 * office, and who has none gives it up. Exact quotas go by their on_stale,
 * adaptive ones let all pass. weir_enter_wait() has no order here: it asks
 * again when the reply says so. A process that calls exec() keeps what it had
 * until it ends: call weir_close() before.
 * A child of fork() becomes a process of its own here too, with its parent's
 * handles, if it calls before its parent has ended. If no place is left for it
 * (WEIR_EVENT_TABLE), it decides nothing: all passes there, as unknown. */

#define WEIR_PROCESSES_MAX 62 /* limiters opened on one table at once */

/* Opens a limiter on a shared table in memory that the caller has: zeroed once,
 * before the first opens it, aligned to 64 bytes and mapped by all (anywhere)
 * as long as any is open. For who has shared memory of his own, as nginx has.
 * 'size' is at least what weir_table_bytes() says for the options by which the
 * first one opens it. options->table is ignored; all else is as above. Returns
 * what weir_open() does. Blocking. */
WEIR_API WEIR_MUST_USE int weir_open_in(void *memory, size_t size,
                                        const struct weir_options *options,
                                        struct weir **out_weir);
/* Bytes that a shared table needs; 0: an option is outside its range. */
WEIR_API size_t weir_table_bytes(const struct weir_options *options);

/* Waits until the quotas of some root are complete here, at most 'timeout'.
 * Returns 0 or WEIR_ETIMEOUT; WEIR_ECLOSED. Blocking. */
WEIR_API WEIR_MUST_USE int weir_ready(struct weir *weir, weir_duration timeout);

/* Waits until every connected root has answered for all that happened here
 * so far (handles opened, units taken), at most 'timeout': from then on the
 * decisions stand on the whole fleet's counts. For processes too short-lived
 * to wait for the next report; a service needs no such call. Returns 0,
 * WEIR_ETIMEOUT (also when no root is connected) or WEIR_ECLOSED.
 * Blocking. */
WEIR_API WEIR_MUST_USE int weir_sync(struct weir *weir, weir_duration timeout);

/* Sends what is still to be reported (at most 100 ms), stops the thread and
 * frees everything. A memcached of exact quotas that is silent is waited for,
 * at most the longest deadline. No other call on 'weir' or its handles may be
 * running or follow. NULL is legal. Blocking. */
WEIR_API void weir_close(struct weir *weir);

/* ---- Without roots -------------------------------------------------
 *
 * A limiter that was opened without roots is told its quotas by its own
 * process: what is local or adaptive works as with roots, and what is counted
 * is this process's alone. */

/* Defines or edits a quota by its fields, as weir-quota(5) has them:
 * { "name=db", "kind=concurrency", "sharing=adaptive", NULL }. A parent may be
 * defined later, and limits nothing until then. Fields of the last call that
 * aren't said again are at their default. Returns 0; WEIR_EINVAL: the limiter
 * has roots, which say what quotas there are; WEIR_EFULL; or what is wrong with
 * the fields (WEIR_EQUOTA, WEIR_ENAME, WEIR_ENOENT): then 'why' (or NULL), of
 * 'size' bytes, is a sentence that says it. Any thread; waits for others that
 * define. */
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
 * table. A name that has no quota yet gets a handle too: it passes until
 * there is one. Returns 0, WEIR_ENAME (also for "shadow:…", the names of a
 * set that is tried and not in force), or WEIR_EFULL when the table has no
 * room: the handle then decides by the rest of the name's chain and by its
 * template's overflow quota, and can be used all the same. A table that
 * processes share has room for 2 * quotas_max + 1024 names that are kept so,
 * each counted once for each process that does. Not wait-free:
 * may take the table's writer lock for some microseconds. */
WEIR_API WEIR_MUST_USE int weir_handle_open(struct weir *weir, const char *name,
                                            size_t len,
                                            struct weir_handle *out_handle);

/* Gives the place back. The handle must not be used afterwards. */
WEIR_API void weir_handle_close(struct weir_handle quota);

/* ---- Decisions -----------------------------------------------------
 *
 * Each decides on the whole chain of a quota (itself and its ancestors):
 * passes only if all pass, charges all or none. 'reply' may be NULL.
 * A weight above WEIR_WEIGHT_MAX counts as WEIR_WEIGHT_MAX.
 * Lock-free; no allocation; at most one clock read as system call. Two kinds
 * of quota are the exceptions: the meter of a local one whose algorithm isn't
 * one word (windows, logs, …) is locked for one step of its arithmetic; and
 * for an exact one the call asks a store and waits, at most the quota's
 * deadline for each of the chain; and if a store refuses what others have
 * charged already, as long once more for each of those to take it back. */

/* Asks for 'weight' units and charges them if they pass. */
WEIR_API enum weir_verdict weir_take(struct weir_handle quota, uint64_t weight,
                                     struct weir_reply *reply,
                                     weir_instant now);

/* The same by name. The first use of a name that matches a template makes
 * its instance (that once, the writer lock is taken). A name such as
 * "throttle:16:30/60s:user123" brings its limit along, 30 in 60 s and 16 at
 * once, and needs no quota: weir-quota(5). */
WEIR_API enum weir_verdict weir_take_by_name(struct weir *weir,
                                             const char *name, size_t len,
                                             uint64_t weight,
                                             struct weir_reply *reply,
                                             weir_instant now);

/* Whether 'name' can be a quota's (weir_handle_open() would take it). One that
 * can't has no quota, so that all calls by name let it pass: for who makes
 * names of what strangers send. Wait-free. */
WEIR_API bool weir_name_is_valid(const char *name, size_t len);

/* One question of weir_take_many(). */
struct weir_ask {
    const char *name;
    size_t len;
    uint64_t weight;
    enum weir_verdict verdict; /* the answer */
};

/* Takes 'count' asks in order, each on its own, their memory fetched
 * together. Returns how many passed. */
WEIR_API size_t weir_take_many(struct weir *weir, struct weir_ask *asks,
                               size_t count, weir_instant now);

/* Decides as weir_take() would and charges nothing. */
WEIR_API enum weir_verdict weir_peek(struct weir_handle quota, uint64_t weight,
                                     struct weir_reply *reply,
                                     weir_instant now);

/* The same by name. Like weir_take_by_name() it may make a template's instance.
 */
WEIR_API enum weir_verdict weir_peek_by_name(struct weir *weir,
                                             const char *name, size_t len,
                                             uint64_t weight,
                                             struct weir_reply *reply,
                                             weir_instant now);

/* Counts 'weight' units without asking: for a cost known afterwards. May go
 * into debt, up to WEIR_DEBT_MAX above high_burst, where it saturates. */
WEIR_API void weir_charge(struct weir_handle quota, uint64_t weight,
                          weir_instant now);

/* Gives 'weight' units back, never below an empty bucket. */
WEIR_API void weir_refund(struct weir_handle quota, uint64_t weight,
                          weir_instant now);

/* Charges now and says in reply->wait how long to wait before going on, so
 * that those who wait come in order. Refuses, and charges nothing, if that
 * were longer than 'wait_max' or the debt were above WEIR_DEBT_MAX.
 * 'reply' must not be NULL. */
WEIR_API enum weir_verdict weir_reserve(struct weir_handle quota,
                                        uint64_t weight, weir_duration wait_max,
                                        struct weir_reply *reply,
                                        weir_instant now);

/* weir_reserve(), then sleeps for that long. Where a reserve can't wait (a
 * window or log of the chain refuses) it sleeps until that may pass and asks
 * again, for as long as 'wait_max' allows. Blocking. */
WEIR_API enum weir_verdict weir_wait(struct weir_handle quota, uint64_t weight,
                                     weir_duration wait_max,
                                     struct weir_reply *reply);

/* What a quota allows, for who tells it to others (RateLimit-Policy). */
struct weir_policy {
    bool concurrency;     /* units in flight, not a rate: 'window' is 0 */
    uint64_t quantity;    /* units that pass if nobody came before: a bucket's
                           * high_burst, a window's limit */
    weir_duration window; /* in which so many come back; 0: they don't */
};

/* Finds it by the name that a reply tells. As it is decided by here: of a
 * leased quota what this process was granted. Lock-free but for what isn't one
 * word (above). Returns 0 or WEIR_ENOENT: there is no such quota in this
 * process's table, or it lets all pass. */
WEIR_API int weir_policy(struct weir *weir, const char *name, size_t len,
                         struct weir_policy *out_policy);

/* ---- Leased quotas -------------------------------------------------
 *
 * Of a quota with sharing=leased each process is granted a part of the limit
 * ahead of time, by what all want of it, and decides alone within that part:
 * what is granted in all never exceeds the limit. The calls are the same. What
 * a process wants follows its use, so nobody has to say it; but before there is
 * any use, or when it is about to change, it can be said. A handle alone asks
 * for a little. Until the first grant has come, a round trip after
 * that, or 100 ms and a round trip after a first use without handle, the quota
 * refuses; reply->granted tells what a process may use now.
 *
 * A grant is given back when the last handle of the quota is closed (within
 * some 200 ms; not while the quota is used by its name as well), when it was
 * used no more for half a minute, and by weir_close(). */

/* Says that 'wants' units a second of the quota, or units at a time of one of
 * kind concurrency, will be wanted, from now on until its use was seen for ten
 * seconds; 0 .. 10^18. Others may have to give some back first: reply->granted
 * grows in the round trips after it. Of a quota that isn't leased, or isn't
 * there, it is kept for the day when it is, as long as the handle is open.
 * Lock-free. Returns 0 or WEIR_EINVAL (no such number, or a zeroed handle). */
WEIR_API int weir_want(struct weir_handle quota, double wants,
                       weir_instant now);

/* ---- Permits --------------------------------------------------------
 *
 * A quota of kind concurrency limits what is in flight: requests being served,
 * connections open, bytes in a queue. Who begins enters and gets a permit; who
 * is done leaves by it, and the units are free again:
 *
 *     struct weir_permit permit;
 *     if (weir_enter(db, 0, 1, &permit, NULL, 0) == WEIR_LIMITED)
 *         return 503;
 *     ... ask the database ...
 *     weir_leave(&permit, WEIR_PERMIT_SUCCESS, 0);
 *
 * A chain may mix both kinds: weir_enter() passes only if all of its quotas
 * pass, and takes all or none. To those of kind rate it is a weir_take(), and
 * what they were charged stays charged; those of kind concurrency are held by
 * the permit, until it is given back. On a chain without any the permit holds
 * nothing, and it does no harm to leave.
 *
 * The other calls hold nothing. weir_take(), weir_peek() and weir_reserve()
 * decide on a quota of kind concurrency as for a request that is over at once;
 * weir_charge() and weir_refund() pass it by, for nobody could give back what
 * they move.
 *
 * Exact. In one process (sharing=local) what is in flight is never above the
 * limit by even one unit, however many threads race; only a limit that is
 * lowered finds more in flight than it allows, and refuses until enough have
 * left. So it is over a fleet if a store knows each permit (sharing=exact):
 * then enter and leave ask it and wait, as other calls on exact quotas do, and
 * a permit that nobody gives back ends the quota's permit_timeout after it was
 * entered, whether it is still in use or not.
 * It is too if each process is granted its part (sharing=leased, above), and
 * nobody waits for that: whole units at a time; who is granted less than he has
 * out gives the difference up as his permits leave, and others have it then.
 * What a process had that died is there for others when its lease and
 * permit_timeout are over, and a permit held for longer than that after its
 * lease has ended may be counted as another's.
 * Over a fleet that only counts (sharing=counted) it may be more: by 2 * slack
 * + the weight of one request for each process, slack as roots told it last,
 * and by what was begun while messages were on their way. With slack=off that
 * is what each begins in a report_interval; and who asks for a name for the
 * first time has the whole limit until it is answered. Regions have one limit
 * together, by the same bound; what they hear of each other travels further.
 * Nobody is promised a fair part: who has it all and renews it keeps most of
 * it. What a process had that died is there for others stale_after later. What
 * is in flight belongs to the name: it outlives each edit of the quota, its
 * removal and re-creation, and a name with permits out keeps its place in the
 * table.
 *
 * When refused, 'retry_after' is a guess of some 20 ms: nobody knows when
 * somebody will leave. (Of an adaptive quota it is a better one.) Threads that
 * would rather wait for it than come again call weir_enter_wait(). */

/* ---- Adaptive limits -------------------------------------------------
 *
 * A quota of kind concurrency with sharing=adaptive finds its limit by how long
 * requests take, from their enter to their leave, in this process alone. So
 * each enter wants its leave when the request is over, not sooner or later, and
 * the outcome said as it was. A leave nobody makes is written off after the
 * quota's permit_timeout.
 *
 * Classes. The quota may name classes of requests, some of them sure of a share
 * of the limit, others never refused. An enter says its class by a number:
 *
 *     uint32_t bulk = weir_class("bulk", 4);
 *     ...
 *     if (weir_enter(db, bulk, 1, &permit, &reply, 0) == WEIR_LIMITED)
 *         return 429 with Retry-After: reply.retry_after;
 *
 * The number is made of the name alone, so it can be had before the quota is
 * known here, and outlives its edits. 0, or a class that the quota doesn't
 * have, is no error and has no share: it is let in where there is room within
 * the limit, and refused first.
 *
 * Several units at once are given all or none: a page that needs eight queries
 * enters with a weight of 8.
 *
 * When refused, 'quota' is the one that refused, which may as well be a rate of
 * the chain, and 'retry_after' is when the next is likely to leave, by how long
 * they take now. 'fill' is what is in flight. */

/* The number of a class of requests; any name. */
WEIR_API uint32_t weir_class(const char *name, size_t len);

/* How an adaptive quota stands in this process. */
struct weir_adaptive {
    double limit;       /* units in flight; below 1: one, part of the time */
    double before;      /* the limit before it last moved */
    const char *reason; /* why it did: "initial" (it hasn't yet), "slow",
                            * "dropped", "room", "measuring", "measured" or
                            * "edited"; lives for ever */
    weir_instant moved_at;
    weir_duration latency; /* of the last window: its percentile; 0: none */
    uint64_t windows;      /* judged so far */
    uint64_t in_flight;    /* units */
    uint64_t overdue;      /* of them, those that have been for at least … */
    weir_duration overdue_age;
    uint64_t lost; /* units whose leave never came */
};
/* Returns 0; or WEIR_ENOENT: the name has no adaptive quota here, or it found
 * no room. 'out' is written on success. Waits for who closes a window, for some
 * microseconds. */
WEIR_API int weir_adaptive(struct weir_handle quota, struct weir_adaptive *out,
                           weir_instant now);

/* What an enter holds. Plain memory of the caller's, of whatever he likes; all
 * zero if it holds nothing, and only then. It may be moved, but one of its
 * copies alone is to be given back: a second takes away what others hold by the
 * same name, as far as there is any: the limit is overrun by as much. */
struct weir_permit {
    uint64_t words[16];
};

/* How it went, for a quota that finds its limit by it. */
enum weir_permit_outcome {
    WEIR_PERMIT_SUCCESS = 0, /* served; its time in flight says something */
    WEIR_PERMIT_DROPPED = 1, /* refused or timed out by what is overloaded */
    WEIR_PERMIT_IGNORED = 2, /* ended by something else: says nothing */
};

/* Asks for 'weight' units and holds them if they pass, until weir_leave().
 * 'klass' is a weir_class() or 0, and matters to adaptive quotas alone.
 * 'out_permit' is written in any case: it holds nothing if this is refused, and
 * what it held before is lost for good. 'reply' may be NULL. As weir_take() in
 * all else, but that a loop is repeated while other threads get on. */
WEIR_API enum weir_verdict weir_enter(struct weir_handle quota, uint32_t klass,
                                      uint64_t weight,
                                      struct weir_permit *out_permit,
                                      struct weir_reply *reply,
                                      weir_instant now);

/* The same, and waits if it is refused, for 'wait_max' at most; WEIR_NEVER: for
 * as long as it takes. Those of this process who wait at a quota are let in one
 * after the other as its `queue` says, fifo, lifo or by 'priority' (the higher,
 * the earlier; of no matter with the other two), each when it fits: a leave
 * gives its place to who is next, and to nobody else; who doesn't wait is
 * refused meanwhile, but for what his class is sure of beside those that wait.
 * A limit that grows lets in as many as fit. At a quota where `queue_max` wait
 * already, and where the weight never fits, it is refused at once.
 *
 * Where a rate of the chain refuses, on exact quotas, and on a table that
 * processes share, it asks again when that may pass, without an order; on a
 * chain without any of kind concurrency it is weir_wait(). What waited is
 * counted as refused only if it is refused in the end; of a leased quota each
 * time that it is tried, since that says what is wanted. reply->wait is how
 * long it waited; its time in flight begins when it is let in. Blocking;
 * weir_close() must not come before all are through. */
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

/* Gives back what the permit holds, once, and empties it. One that is empty,
 * that was given back, or that an ancestor entered before fork() gives back
 * nothing. Any thread may leave, not only the one that entered; but two must
 * not do so with one permit at the same time, and none after weir_close().
 * A loop is repeated while other threads get on; where others wait, who is next
 * is let in and woken. The first call in a child of fork() makes it a limiter
 * of its own, which allocates and starts a thread.
 * What a store holds by it is taken out there: that waits for it, at most the
 * deadline of each exact quota of the chain, and whether it answered isn't
 * told: if not, the permit ends there by its permit_timeout. */
WEIR_API void weir_leave(struct weir_permit *permit,
                         enum weir_permit_outcome outcome, weir_instant now);

/* ---- What goes on -------------------------------------------------- */

/* A descriptor that is readable while events wait; owned by the limiter. */
WEIR_API int weir_event_fd(struct weir *weir);

/* Takes the oldest event. Returns false when there is none. */
WEIR_API bool weir_event_next(struct weir *weir, struct weir_event *out);

/* How the limiter stands. */
struct weir_status {
    uint32_t roots;         /* named in the options */
    uint32_t roots_up;      /* connected */
    uint64_t epoch;         /* of the quotas here */
    uint32_t slots;         /* of the table */
    uint32_t slots_used;    /* quotas, templates and instances */
    bool ready;             /* the quotas of a root are complete here */
    bool stale;             /* no root was heard for stale_after */
    uint64_t unknown;       /* requests by names without quota */
    uint64_t overflowed;    /* requests by instances without room */
    uint64_t reports;       /* sent to all roots */
    uint32_t adaptive;      /* adaptive quotas that have a limit of their own */
    uint32_t adaptive_lost; /* and those that found no room for one */
    uint32_t waiting;       /* threads in a line of weir_enter_wait() */
};
WEIR_API void weir_status(struct weir *weir, struct weir_status *out);

/* The version of this header, and of the library. */
#define WEIR_VERSION "0.1.0"
WEIR_API const char *weir_version(void);

#ifdef __cplusplus
}
#endif

#endif /* WEIR_H */
