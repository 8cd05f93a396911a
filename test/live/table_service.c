/* SPDX-License-Identifier: MIT
 * test/live/table_service.c - a service with some threads, on a shared table,
 * which is stopped and killed at any instant (live_chaos.py).
 *
 *     table_service TABLE RECORD NUMBER [ROOTS]
 *
 * With ROOTS it may be the table's reporter; without, it only decides. It takes
 * from quotas of every kind, by names that others use and by names that are
 * new, until its record asks it to end; it then closes its limiter and ends
 * with status 0.
 *
 * The record. RECORD is a file that holds a struct record, zeroed before the
 * first start. It belongs to the service with that number, also after a kill
 * and a new start, and lies in memory: a page of a file on a disk could make a
 * thread wait. A thread counts a call as begun before it, and its result after
 * it, so calls without a result are those in which a process was killed.
 *
 * Delays. A take must not wait for long, however busy the machine is. So three
 * times are subtracted. One is that in which the kernel let other threads run:
 * its account of how long a thread was runnable and didn't run
 * (/proc/…/schedstat) is read before a burst of takes and after each slow take.
 * The second is that which the host of a virtual machine took from the
 * processors (/proc/stat, in units of 10 ms); the kernel takes the thread to
 * have run meanwhile. The third is that in which the kernel ran to allocate
 * memory for the table in the thread's own call (fallocate() below): it clears
 * the pages, and a host may have to find them first. That the thread waits
 * there for another one isn't subtracted. The rest of a take is time in which
 * the thread ran, or slept in it: 'own'. That includes the time of a SIGSTOP,
 * or in which the machine stood still. A control thread sleeps a millisecond at
 * a time and subtracts the time of other threads from its own delay. If it is
 * late all the same, so was the whole process: these are the gaps. Takes are
 * judged without them. */

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "load_parts.h"

#define THREADS 4
#define PATIENCE (60 * WEIR_SECOND)
#define LONG WEIR_MILLISECOND            /* of a take: it is noted */
#define SLOW (WEIR_MILLISECOND / 10)     /* of a take: the account is read */
#define NAP WEIR_MILLISECOND             /* of the control thread … */
#define GAP (2 * WEIR_MILLISECOND)       /* … and how late it may be */
#define REST_MAX (16 * WEIR_MILLISECOND) /* between bursts */
#define NAMES_KEPT 500 /* of the names last made, one is used again */
#define LISTED 8192

/* In the order of live_chaos.py. */
enum kind { LEDGER, LIMITED, LOG, WINDOW, NAME, PERMIT, KINDS };

static const char *const quota_of[KINDS] = {
    [LEDGER] = "ledger", [LIMITED] = "limited", [LOG] = "log",
    [WINDOW] = "window", [NAME] = "",           [PERMIT] = "db",
};

/* Calls of a kind in a burst. That of the log, which locks two states, is long
 * enough for a signal to be sent in it. */
static const unsigned burst_of[KINDS] = {
    [LEDGER] = 20, [LIMITED] = 20, [LOG] = 1000,
    [WINDOW] = 40, [NAME] = 4,     [PERMIT] = 8,
};

struct count {
    _Atomic uint64_t begun, passed, limited;
    _Atomic uint64_t unknown; /* of passed: there was no such quota */
};

struct thread_record {
    _Atomic uint64_t doing; /* kind + 1 of the present burst; 0: none */
    struct count count[KINDS];
};

struct take {
    uint64_t kind;
    uint64_t start;     /* CLOCK_MONOTONIC, in nanoseconds */
    uint64_t wall, own; /* nanoseconds */
    uint64_t allocated; /* of wall: in the kernel, for memory of the table */
    uint64_t ran;       /* on a processor, since the account was read before */
    uint64_t switches;  /* to other threads while it was runnable, since then */
};

struct gap {
    uint64_t start, end;
};

struct record {
    _Atomic uint64_t ends;        /* set to 1: it is to end */
    _Atomic uint64_t started;     /* processes that began to take */
    _Atomic uint64_t takes, gaps; /* noted, also those not listed */
    struct thread_record thread[THREADS];
    struct take take[LISTED];
    struct gap gap[LISTED];
};

struct service {
    struct weir *weir;
    struct record *record;
    struct weir_handle quota[KINDS];
    const char *number;
};

/* How long a thread was runnable and didn't run, in nanoseconds, and how often
 * that began; how long all processors were taken away; and how long it ran. */
struct account {
    weir_duration waited, stolen, ran;
    uint64_t switches;
};

struct thread {
    struct service *service;
    struct thread_record *record;
    uint64_t chance; /* state of its random numbers */
    uint64_t number, named;
    struct weir_permit permit;
    int account;         /* descriptor of its schedstat */
    struct account read; /* when last read */
    weir_instant at;     /* end of the last call */
};

/* ---- Memory of the table ---- */

static _Thread_local weir_duration allocated; /* of the present call */

static weir_duration time_on_processor(void)
{
    struct timespec ran;
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ran) < 0)
        exit(4);
    return (weir_duration)ran.tv_sec * WEIR_SECOND + (uint64_t)ran.tv_nsec;
}

/* libweir calls this one instead of that of libc. */
int fallocate(int fd, int mode, off_t from, off_t len)
{
    weir_duration before = time_on_processor();
    int done = (int)syscall(SYS_fallocate, fd, mode, from, len);
    allocated += time_on_processor() - before;
    return done;
}

/* ---- The kernel's account ---- */

/* It must be the thread itself that opens and reads it. */
static int open_account(void)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/task/%ld/schedstat",
             syscall(SYS_gettid));
    return open(path, O_RDONLY | O_CLOEXEC);
}

static void read_text(int fd, char *text, size_t size)
{
    ssize_t len = pread(fd, text, size - 1, 0);
    text[len > 0 ? len : 0] = '\0';
}

static weir_duration read_stolen(void)
{
    static _Atomic int file = -1;
    char text[256];
    uint64_t ticks;
    if (file < 0) /* Two threads may open it; one descriptor is lost then. */
        file = open("/proc/stat", O_RDONLY | O_CLOEXEC);
    read_text(file, text, sizeof(text));
    if (sscanf(text, "cpu %*u %*u %*u %*u %*u %*u %*u %" SCNu64, &ticks) != 1)
        exit(4);
    return ticks * WEIR_SECOND / (uint64_t)sysconf(_SC_CLK_TCK);
}

static struct account read_account(int fd)
{
    char text[128];
    struct account account;
    struct rusage usage;
    read_text(fd, text, sizeof(text));
    if (sscanf(text, "%*u %" SCNu64, &account.waited) != 1 ||
        getrusage(RUSAGE_THREAD, &usage) < 0)
        exit(4);
    account.stolen = read_stolen();
    account.ran = time_on_processor();
    account.switches = (uint64_t)usage.ru_nivcsw;
    return account;
}

/* ---- Notes ---- */

static void note_take(struct record *record, const struct take *take)
{
    uint64_t i = atomic_fetch_add(&record->takes, 1);
    if (i < LISTED)
        record->take[i] = *take;
}

static void note_gap(struct record *record, weir_instant start,
                     weir_instant end)
{
    uint64_t i = atomic_fetch_add(&record->gaps, 1);
    if (i < LISTED)
        record->gap[i] = (struct gap){ .start = start, .end = end };
}

static weir_duration without(weir_duration wall, weir_duration waited)
{
    return wall > waited ? wall - waited : 0;
}

static void *watch_for_gaps(void *context)
{
    struct record *record = context;
    int account = open_account();
    for (;;) {
        weir_duration before = read_account(account).waited;
        weir_instant start = live_now();
        live_sleep_until(start + NAP);
        weir_instant end = live_now();
        weir_duration waited = read_account(account).waited - before;
        if (without(end - start, waited) > NAP + GAP)
            note_gap(record, start, end);
    }
    return NULL;
}

/* After a call that was slow by the clock: notes it if its own time is long. */
static void judge(struct thread *thread, enum kind kind, weir_duration wall)
{
    struct account now = read_account(thread->account);
    const struct account *read = &thread->read;
    weir_duration away =
        now.waited - read->waited + now.stolen - read->stolen + allocated;
    struct take take = { .kind = kind,
                         .start = thread->at,
                         .wall = wall,
                         .own = without(wall, away),
                         .allocated = allocated,
                         .ran = now.ran - read->ran,
                         .switches = now.switches - read->switches };
    if (take.own > LONG)
        note_take(thread->service->record, &take);
    thread->read = now;
}

/* The call began when the one before it ended. */
static void end_call(struct thread *thread, enum kind kind,
                     const struct weir_reply *reply)
{
    struct count *count = &thread->record->count[kind];
    weir_instant now = live_now();
    bool passed = reply->verdict == WEIR_PASSED;
    atomic_fetch_add(passed ? &count->passed : &count->limited, 1);
    atomic_fetch_add(&count->unknown, reply->unknown);
    if (now - thread->at > SLOW) {
        judge(thread, kind, now - thread->at);
        now = live_now();
    }
    allocated = 0;
    thread->at = now;
}

/* ---- Takes ---- */

static uint64_t draw(struct thread *thread, uint64_t below)
{
    thread->chance =
        thread->chance * 6364136223846793005u + 1442695040888963407u;
    return (thread->chance >> 33) % below;
}

/* Half of the names are new. */
static void take_name(struct thread *thread, struct weir_reply *out)
{
    char name[64];
    uint64_t back = draw(thread, 2) ? 0 : draw(thread, NAMES_KEPT);
    uint64_t serial = thread->named > back ? thread->named - back : 0;
    int len = snprintf(name, sizeof(name), "user/%s-%d-%" PRIu64 "-%" PRIu64,
                       thread->service->number, (int)getpid(), thread->number,
                       serial);
    thread->named += back == 0;
    (void)weir_take_by_name(thread->service->weir, name, (size_t)len, 1, out,
                            0);
}

/* Enters, or leaves; the permit is kept between the two. */
static void enter_or_leave(struct thread *thread, struct weir_reply *out)
{
    static const struct weir_permit none;
    bool has = memcmp(&thread->permit, &none, sizeof(none)) != 0;
    *out = (struct weir_reply){ .verdict = WEIR_PASSED };
    if (has)
        weir_leave(&thread->permit, WEIR_PERMIT_SUCCESS, 0);
    else
        (void)weir_enter(thread->service->quota[PERMIT], 0, 1, &thread->permit,
                         out, 0);
}

static void call(struct thread *thread, enum kind kind, struct weir_reply *out)
{
    if (kind == NAME)
        take_name(thread, out);
    else if (kind == PERMIT)
        enter_or_leave(thread, out);
    else
        (void)weir_take(thread->service->quota[kind], 1, out, 0);
}

static void take_burst(struct thread *thread, enum kind kind)
{
    thread->read = read_account(thread->account);
    thread->at = live_now();
    atomic_store(&thread->record->doing, (uint64_t)kind + 1);
    for (unsigned i = 0; i < burst_of[kind]; i++) {
        atomic_fetch_add(&thread->record->count[kind].begun, 1);
        struct weir_reply reply;
        call(thread, kind, &reply);
        end_call(thread, kind, &reply);
    }
    atomic_store(&thread->record->doing, 0);
}

static void *take_until_end(void *context)
{
    struct thread *thread = context;
    thread->account = open_account();
    while (!atomic_load(&thread->service->record->ends)) {
        for (enum kind kind = 0; kind < KINDS; kind++)
            take_burst(thread, kind);
        live_sleep_until(live_now() + draw(thread, REST_MAX));
    }
    weir_leave(&thread->permit, WEIR_PERMIT_SUCCESS, 0);
    return NULL;
}

/* ---- The service ---- */

static void on_event(void *context, const struct weir_event *event)
{
    (void)context;
    if (event->type == WEIR_EVENT_TABLE)
        fprintf(stderr, "%s\n", event->text);
}

static struct record *map_record(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    void *p = fd < 0 ? MAP_FAILED
                     : mmap(NULL, sizeof(struct record), PROT_READ | PROT_WRITE,
                            MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    return p == MAP_FAILED ? NULL : p;
}

/* Tries again while a process that was stopped has the table's lock. */
static int open_handle(struct service *service, enum kind kind)
{
    weir_instant until = live_now() + PATIENCE;
    const char *name = quota_of[kind];
    int error = WEIR_ETIMEOUT;
    while (error == WEIR_ETIMEOUT && live_now() < until)
        error = weir_handle_open(service->weir, name, strlen(name),
                                 &service->quota[kind]);
    return error;
}

static int open_service(struct service *service, const char *table,
                        const char *roots)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.table = table;
    options.table_role = roots ? WEIR_TABLE_MAY_RUN : WEIR_TABLE_DECIDES;
    options.roots = roots;
    options.on_event = on_event;
    int error = weir_open(&options, &service->weir);
    for (enum kind kind = 0; kind < KINDS && error == 0; kind++) {
        if (quota_of[kind][0] != '\0')
            error = open_handle(service, kind);
    }
    return error;
}

static void run(struct service *service)
{
    static struct thread thread[THREADS];
    pthread_t id[THREADS], control;
    if (pthread_create(&control, NULL, watch_for_gaps, service->record) != 0)
        exit(3);
    for (unsigned i = 0; i < THREADS; i++) {
        thread[i] = (struct thread){ .service = service,
                                     .record = &service->record->thread[i],
                                     .chance = live_now() + i,
                                     .number = i };
        if (pthread_create(&id[i], NULL, take_until_end, &thread[i]) != 0)
            exit(3);
    }
    atomic_fetch_add(&service->record->started, 1);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(id[i], NULL);
    weir_close(service->weir);
}

int main(int argc, char **argv)
{
    if (argc < 4 || argc > 5)
        return 2;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    static struct service service;
    service.record = map_record(argv[2]);
    service.number = argv[3];
    if (!service.record)
        return 2;
    int error = open_service(&service, argv[1], argc > 4 ? argv[4] : NULL);
    if (error < 0) {
        fprintf(stderr, "%s: %s\n", argv[0], weir_strerror(error));
        return 3;
    }
    run(&service);
    return 0;
}
