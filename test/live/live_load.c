/* SPDX-License-Identifier: MIT
 * test/live/live_load.c - a service that only takes, at a given rate.
 *
 *     live_load [--ready] ROOTS NAME BIN_MS QUOTA=RATE[:WEIGHT] ...
 *
 * One limiter on ROOTS, one handle for each quota, RATE takes a second of each,
 * evenly, in batches of a millisecond or two; each take weighs WEIGHT on
 * average (half of it to one and a half, at random; exactly 1 for 1). It runs
 * until its standard input ends. With --ready it begins once it has its quotas
 * and each connected root has sent their fills: no take is of an unknown name,
 * none is decided by this process's own counts alone. WEIR_TLS_CA,
 * WEIR_TLS_CERT and WEIR_TLS_KEY are as for weir(1). Commands on its input:
 *
 *     fork            a child goes on as well, with the handles it inherited;
 *                     it ends when its parent does
 *     once QUOTA N    N times: a handle on the quota is opened, used once, and
 *                     closed; without N once
 *     rest            takes no more, for good, and goes on as a limiter; so
 *                     does its child
 *
 * It prints events as JSON, one line each:
 *
 *     {"pid", "at", "seen": {QUOTA: [offered, passed, calls, failed]},
 *      "roots_up", "epoch", "stale", "reports",
 *      "granted": {QUOTA: units a second}}             every BIN_MS
 *     {"pid", "at", "flip": QUOTA, "passed": 0 or 1}   another verdict than
 *                                                      that of the last take
 *     {"pid", "at", "event": TYPE, "count", "text"}    an event of the limiter
 *     {"pid", "at", "rest": 1}                         after a last bin, the
 *                                                      one that counts
 *
 * "at" is an instant of CLOCK_MONOTONIC in seconds, which all processes of a
 * machine share. offered and passed are units since the start. "granted" omits
 * quotas that aren't leased, or have no lease yet. */

#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "load_parts.h"

#define LOADS_MAX 16
#define BATCH (2 * WEIR_MILLISECOND)
#define PATIENCE (60 * WEIR_SECOND)

struct load {
    const char *name;
    struct weir_handle quota;
    uint64_t rate;
    uint64_t weight;
    uint64_t calls; /* made; of them, those with an invalid verdict */
    uint64_t failed;
    uint64_t offered;
    uint64_t passed;
    enum weir_verdict last;
};

struct fleet {
    struct weir *weir;
    struct load loads[LOADS_MAX];
    size_t count;
    weir_instant start;
    weir_duration bin;
    uint64_t chance;
    bool child;
    bool resting;
    atomic_bool *rests; /* shared by parent and child: both stop */
};

/* ---- Telling ---- */

static void tell_flip(const struct load *load, weir_instant at)
{
    live_tell_begin(at);
    printf("\"flip\": \"%s\", \"passed\": %d", load->name,
           load->last == WEIR_PASSED);
    live_tell_end();
}

static void tell_granted(const struct fleet *fleet)
{
    const char *before = "";
    printf(", \"granted\": {");
    for (size_t i = 0; i < fleet->count; i++) {
        struct weir_reply reply;
        weir_peek(fleet->loads[i].quota, 1, &reply, 0);
        if (!reply.leased || reply.granted == INFINITY)
            continue;
        printf("%s\"%s\": %.9f", before, fleet->loads[i].name, reply.granted);
        before = ", ";
    }
    printf("}");
}

static void tell_bin(struct fleet *fleet, weir_instant at)
{
    struct weir_status status;
    weir_status(fleet->weir, &status);
    live_tell_begin(at);
    printf("\"seen\": {");
    for (size_t i = 0; i < fleet->count; i++) {
        const struct load *load = &fleet->loads[i];
        printf("%s\"%s\": [%" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64 "]",
               i > 0 ? ", " : "", load->name, load->offered, load->passed,
               load->calls, load->failed);
    }
    printf("}, \"roots_up\": %" PRIu32 ", \"epoch\": %" PRIu64
           ", \"stale\": %d, \"reports\": %" PRIu64,
           status.roots_up, status.epoch, status.stale, status.reports);
    tell_granted(fleet);
    live_tell_end();
}

/* ---- Taking ---- */

static uint64_t weigh(struct fleet *fleet, uint64_t weight)
{
    if (weight == 1)
        return 1;
    fleet->chance = fleet->chance * 6364136223846793005u + 1442695040888963407u;
    return weight / 2 + (fleet->chance >> 33) % (weight + 1);
}

/* One take. If a quota is unlimited or shut, a change of verdict shows an edit;
 * if it is at its limit there would be thousands of changes, which aren't
 * printed. */
static void take(struct fleet *fleet, struct load *load, bool tell,
                 weir_instant at)
{
    uint64_t weight = weigh(fleet, load->weight);
    enum weir_verdict verdict = weir_take(load->quota, weight, NULL, 0);
    load->calls++;
    load->offered += weight;
    load->failed += verdict != WEIR_PASSED && verdict != WEIR_LIMITED;
    if (verdict == WEIR_PASSED)
        load->passed += weight;
    if (verdict == load->last)
        return;
    load->last = verdict;
    if (tell)
        tell_flip(load, at);
}

/* Makes the takes that are due by now. */
static void take_due(struct fleet *fleet, weir_instant now)
{
    for (size_t i = 0; i < fleet->count && !fleet->resting; i++) {
        struct load *load = &fleet->loads[i];
        uint64_t due = (uint64_t)((unsigned __int128)(now - fleet->start) *
                                  load->rate / WEIR_SECOND);
        bool tell = strncmp(load->name, "gate", 4) == 0;
        while (load->calls < due)
            take(fleet, load, tell, live_now());
    }
}

/* ---- Commands ---- */

static void become_child(struct fleet *fleet)
{
    prctl(PR_SET_PDEATHSIG, 9);
    fleet->child = true;
    fleet->start = live_now();
    for (size_t i = 0; i < fleet->count; i++) {
        struct load *load = &fleet->loads[i];
        load->calls = load->failed = load->offered = load->passed = 0;
        /* Off the hot path: here the child becomes a limiter of its own. */
        if (weir_handle_open(fleet->weir, load->name, strlen(load->name),
                             &load->quota) < 0)
            exit(3);
    }
}

static void rest(struct fleet *fleet)
{
    fleet->resting = true;
    weir_instant now = live_now();
    tell_bin(fleet, now);
    live_tell_begin(now);
    printf("\"rest\": 1");
    live_tell_end();
}

static void use_once(struct fleet *fleet, const char *name)
{
    struct weir_handle quota;
    if (weir_handle_open(fleet->weir, name, strlen(name), &quota) < 0)
        exit(3);
    (void)weir_take(quota, 1, NULL, 0);
    weir_handle_close(quota);
}

/* 'words' is a name and, if wanted, a blank and a count. */
static void use_often(struct fleet *fleet, char *words)
{
    size_t len = strcspn(words, " \n");
    uint64_t count = words[len] == ' ' ? strtoull(words + len, NULL, 10) : 1;
    words[len] = '\0';
    for (uint64_t i = 0; i < count; i++)
        use_once(fleet, words);
}

/* False when standard input has ended. */
static bool obey(struct fleet *fleet)
{
    if (atomic_load(fleet->rests) && !fleet->resting)
        rest(fleet);
    if (fleet->child)
        return true;
    struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };
    if (poll(&input, 1, 0) <= 0)
        return true;
    char line[64] = "";
    if (read(STDIN_FILENO, line, sizeof(line) - 1) <= 0)
        return false;
    if (strcmp(line, "fork\n") == 0) {
        fflush(stdout);
        if (fork() == 0)
            become_child(fleet);
    }
    if (strncmp(line, "once ", 5) == 0)
        use_often(fleet, line + 5);
    if (strcmp(line, "rest\n") == 0)
        atomic_store(fleet->rests, true);
    return true;
}

static void run(struct fleet *fleet)
{
    fleet->start = live_now();
    weir_instant told = fleet->start;
    for (weir_instant next = fleet->start; obey(fleet);) {
        next += BATCH;
        weir_instant now = live_now();
        if (now < next)
            live_sleep_until(next);
        else
            next = now;
        now = live_now();
        take_due(fleet, now);
        if (now - told < fleet->bin)
            continue;
        told += fleet->bin * ((now - told) / fleet->bin);
        tell_bin(fleet, now);
    }
}

static bool load_parse(struct load *load, char *text)
{
    char *equals = strrchr(text, '=');
    if (equals == NULL)
        return false;
    *equals = '\0';
    char *end;
    *load = (struct load){ .name = text, .weight = 1, .last = WEIR_PASSED };
    load->rate = strtoull(equals + 1, &end, 10);
    if (*end == ':')
        load->weight = strtoull(end + 1, &end, 10);
    return *end == '\0' && load->rate > 0;
}

static int open_limiter(struct fleet *fleet, char **argv, bool ready)
{
    struct weir_options options = WEIR_OPTIONS_INIT;
    options.roots = argv[1];
    options.name = argv[2];
    options.on_event = live_tell_event;
    live_use_tls(&options);
    int error = weir_open(&options, &fleet->weir);
    if (error == 0 && ready)
        error = weir_ready(fleet->weir, PATIENCE);
    return error;
}

static int open_load(struct fleet *fleet, char *text)
{
    struct load *load = &fleet->loads[fleet->count++];
    if (!load_parse(load, text))
        return WEIR_ESYNTAX;
    return weir_handle_open(fleet->weir, load->name, strlen(load->name),
                            &load->quota);
}

static bool share_commands(struct fleet *fleet)
{
    void *shared = mmap(NULL, sizeof(*fleet->rests), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return false;
    fleet->rests = shared;
    return true;
}

int main(int argc, char **argv)
{
    const char *program = argv[0];
    bool ready = argc > 1 && strcmp(argv[1], "--ready") == 0;
    argc -= ready;
    argv += ready;
    if (argc < 5 || argc > 4 + LOADS_MAX) {
        fprintf(stderr,
                "usage: %s [--ready] ROOTS NAME BIN_MS"
                " QUOTA=RATE[:WEIGHT] ...\n",
                program);
        return 2;
    }
    static struct fleet fleet;
    fleet.bin = strtoull(argv[3], NULL, 10) * WEIR_MILLISECOND;
    fleet.chance = live_now() ^ (uint64_t)getpid();
    int error = open_limiter(&fleet, argv, ready);
    for (int i = 4; i < argc && error == 0; i++)
        error = open_load(&fleet, argv[i]);
    if (error == 0 && ready)
        error = weir_sync(fleet.weir, PATIENCE);
    if (error < 0 || fleet.bin == 0 || !share_commands(&fleet)) {
        fprintf(stderr, "%s: %s\n", program, weir_strerror(error));
        return 2;
    }
    run(&fleet);
    weir_close(fleet.weir);
    return 0;
}
