/* SPDX-License-Identifier: MIT
 * lab/model_doorman_original.c - Doorman's scenarios by Doorman's own rules.
 *
 * This reproduces the simulation behind Doorman's published figures, not its
 * server: whole seconds, calls that take no time, one resource, and its own
 * proportional algorithm. Its behaviour is kept unchanged, so that the figures
 * are comparable:
 *
 *  - Each participant is a thread with a next second. In each second the
 *    actions posted for it run first, then each thread that is due runs once,
 *    in the order in which the threads were made; a thread with an interval of
 *    0 runs again in the same second.
 *  - A server's book has an entry for each client, or for each *task* of a job
 *    below that ever sent a request. A former master's task is counted until
 *    its lease runs out; an entry without a lease is kept for ever.
 *  - A second request within two seconds gets no answer.
 *  - A server without capacity of its own hands out leases of 0.
 *  - A server with an expired lease of its own forgets the resource, and with
 *    it all leases that it has handed out.
 *  - Safe capacity is sent, and never used.
 *
 * Tried and rejected: the world's heap, which runs the actions of one instant
 * in an order drawn from the seed. The order of threads is a property of the
 * original: its first caller gets the free capacity.
 *
 * Source: github.com/youtube/doorman, simulation/ (server.py, client.py,
 * server_state_wrapper.py, algorithm.py, algo_proportional.py, scheduler.py),
 * described anew. */

#include "lab/memory.h"
#include "lab/model_doorman_internal.h"

/* All in seconds, as in the original. */
#define GUARD 2
#define DEFAULT_INTERVAL 5 /* also between attempts to find a master */
#define END_OF_TIME 86400

struct lease {
    bool held;
    double capacity;
    int64_t expiry, refresh;
};

/* In a server's book: a client, or a task of a job below. */
struct entry {
    uint32_t thread;
    struct lease has;
    bool asked;
    int64_t asked_at;
    double wants;
    double outstanding; /* of a server: the capacity that it has handed out */
};

struct server {
    bool known; /* the resource is known; the members below are about it */
    struct lease has;
    int64_t learns_till; /* inclusive */
    struct entry *entries;
    size_t entry_count, entry_room;
    /* Of the task: */
    bool master;
    int64_t elected_at, cleaned_at;
};

struct thread {
    bool client;
    uint32_t job, which; /* task of the job, or client */
    uint32_t master;     /* a thread, as far as known here; NONE */
    int64_t next;
    struct lease has;     /* of a client */
    struct server server; /* of a task */
};

/* A request, and the server's answer. */
struct request {
    uint32_t from; /* thread */
    struct lease has;
    double wants, outstanding;
};
enum answer {
    FAILED, /* not the master */
    SKIPPED,
    GRANTED
};

struct fleet {
    struct thread *threads; /* owned */
    size_t count, room;
    uint32_t *job_threads; /* owned: the first task's, by job */
    size_t job_room;
};

static struct fleet *original_fleet(struct weir_doorman *stage)
{
    return stage->fleet;
}

static int64_t whole_seconds(weir_instant now)
{
    return (int64_t)(now / WEIR_SECOND);
}

static int64_t seconds_of(const struct weir_doorman *stage,
                          enum weir_doorman_field field)
{
    return whole_seconds((weir_duration)stage->values[field]);
}

static double smaller_capacity(double a, double b)
{
    return a < b ? a : b;
}

/* A missing lease hasn't expired. */
static bool has_expired(const struct lease *lease, int64_t now)
{
    return lease->held && lease->expiry <= now;
}

/* ---- A server's book ---- */

static double sum_wants(const struct server *server)
{
    double sum = 0;
    for (size_t i = 0; i < server->entry_count; i++)
        sum += server->entries[i].wants;
    return sum;
}

static double sum_leases(const struct server *server)
{
    double sum = 0;
    for (size_t i = 0; i < server->entry_count; i++)
        if (server->entries[i].has.held)
            sum += server->entries[i].has.capacity;
    return sum;
}

static void forget_resource(struct server *server)
{
    server->known = false;
    server->has.held = false;
    server->entry_count = 0;
}

/* A server knows the resource from the first request on. */
static void know_resource(struct weir_doorman *stage, struct server *server)
{
    if (server->known)
        return;
    server->known = true;
    server->learns_till =
        server->elected_at + seconds_of(stage, WEIR_DOORMAN_LEASE);
}

static void clean(struct server *server, int64_t now)
{
    if (server->cleaned_at == now || !server->known)
        return;
    server->cleaned_at = now;
    if (server->learns_till >= now)
        return;
    if (has_expired(&server->has, now)) {
        forget_resource(server);
        return;
    }
    size_t kept = 0;
    for (size_t i = 0; i < server->entry_count; i++)
        if (!has_expired(&server->entries[i].has, now))
            server->entries[kept++] = server->entries[i];
    server->entry_count = kept;
}

static struct entry *find_entry(struct server *server, uint32_t thread)
{
    for (size_t i = 0; i < server->entry_count; i++)
        if (server->entries[i].thread == thread)
            return &server->entries[i];
    server->entries =
        weir_must_grow(server->entries, &server->entry_room,
                       server->entry_count + 1, sizeof *server->entries);
    struct entry *entry = &server->entries[server->entry_count++];
    *entry = (struct entry){ .thread = thread };
    return entry;
}

/* ---- Leases that a server hands out ---- */

static int64_t refresh_at(const struct weir_doorman *stage, uint32_t level)
{
    double refresh = (double)seconds_of(stage, WEIR_DOORMAN_REFRESH);
    for (uint32_t i = 0; i < level; i++)
        refresh *= stage->values[WEIR_DOORMAN_DECAY];
    return (int64_t)refresh;
}

/* Doesn't outlast the server's own lease, and is refreshed before it runs
 * out. */
static struct lease lease_of(const struct weir_doorman *stage,
                             const struct thread *at, double capacity,
                             int64_t now)
{
    struct lease lease = {
        .held = true,
        .capacity = capacity,
        .expiry = now + seconds_of(stage, WEIR_DOORMAN_LEASE),
        .refresh = refresh_at(stage, stage->jobs[at->job].level),
    };
    const struct lease *own = &at->server.has;
    if (own->held && own->expiry < lease.expiry)
        lease.expiry = own->expiry;
    if (now + lease.refresh >= lease.expiry)
        lease.refresh = lease.expiry - now - 1;
    return lease;
}

/* The original's proportional share. While all wants fit, the client gets its
 * want, else the same part of it as all others; never more than is free now. */
static double share_proportionally(const struct server *server, double wants)
{
    double all = sum_wants(server);
    double own = server->has.held ? server->has.capacity : 0;
    double free_now = own - sum_leases(server);
    free_now = free_now > 0 ? free_now : 0;
    double share = all < own || all <= 0 ? wants : wants * (own / all);
    return smaller_capacity(share, free_now);
}

static void decide_lease(struct weir_doorman *stage, const struct thread *at,
                         struct entry *entry, int64_t now)
{
    bool client = original_fleet(stage)->threads[entry->thread].client;
    double capacity;
    if (at->server.learns_till >= now) {
        capacity = entry->has.held ? entry->has.capacity : 0;
        if (client)
            weir_doorman_count(stage, WEIR_DOORMAN_LEARNING_ANSWERS);
    } else {
        entry->has.held = false;
        capacity = share_proportionally(&at->server, entry->wants);
        if (client)
            weir_doorman_count(stage, WEIR_DOORMAN_DECISIONS);
    }
    entry->has = lease_of(stage, at, capacity, now);
}

static enum answer decide_request(struct weir_doorman *stage, uint32_t master,
                                  const struct request *request,
                                  struct lease *out_gets, int64_t now)
{
    weir_assert(request->from != master);
    struct thread *at = &original_fleet(stage)->threads[master];
    if (!at->server.master)
        return FAILED;
    clean(&at->server, now);
    know_resource(stage, &at->server);
    struct entry *entry = find_entry(&at->server, request->from);
    if (entry->asked && now - entry->asked_at < GUARD)
        return SKIPPED;
    entry->asked = true;
    entry->asked_at = now;
    entry->wants = request->wants;
    entry->outstanding = request->outstanding;
    entry->has = request->has;
    decide_lease(stage, at, entry, now);
    *out_gets = entry->has;
    return GRANTED;
}

/* Any task of the job knows the master. (The original asks a random one;
 * without that draw both rules have the same mishaps.) */
static bool discover(struct weir_doorman *stage, struct thread *thread,
                     uint32_t job)
{
    uint32_t master = stage->jobs[job].master;
    thread->master = master == WEIR_DOORMAN_NONE
                         ? WEIR_DOORMAN_NONE
                         : original_fleet(stage)->job_threads[job] + master;
    return thread->master != WEIR_DOORMAN_NONE;
}

static int64_t interval_of(const struct lease *has)
{
    return has->held && has->refresh > 0 ? has->refresh : DEFAULT_INTERVAL;
}

/* ---- Clients ---- */

static void client_expires(struct weir_doorman *stage, uint32_t which,
                           weir_instant now)
{
    struct thread *thread = &original_fleet(stage)->threads[which];
    if (!has_expired(&thread->has, whole_seconds(now)))
        return;
    thread->has.held = false;
    weir_doorman_count(stage, WEIR_DOORMAN_EXPIRIES);
    weir_doorman_give(stage, thread->which, 0, now);
}

static void client_is_granted(struct weir_doorman *stage, uint32_t which,
                              struct lease gets, weir_instant now)
{
    struct thread *thread = &original_fleet(stage)->threads[which];
    thread->has = gets;
    weir_doorman_post(stage, (weir_instant)gets.expiry * WEIR_SECOND,
                      client_expires, which);
    weir_doorman_give(stage, thread->which, gets.capacity, now);
}

static int64_t run_original_client(struct weir_doorman *stage, uint32_t which,
                                   weir_instant now)
{
    struct thread *thread = &original_fleet(stage)->threads[which];
    if (thread->master == WEIR_DOORMAN_NONE &&
        !discover(stage, thread, thread->job))
        return DEFAULT_INTERVAL;
    const struct request request = {
        .from = which,
        .has = thread->has,
        .wants = stage->clients[thread->which].wants,
    };
    struct lease gets;
    switch (decide_request(stage, thread->master, &request, &gets,
                           whole_seconds(now))) {
    case FAILED:
        weir_doorman_count(stage, WEIR_DOORMAN_FAILURES);
        thread->master = WEIR_DOORMAN_NONE;
        return 0;
    case SKIPPED:
        break;
    case GRANTED:
        client_is_granted(stage, which, gets, now);
        break;
    }
    return interval_of(&thread->has);
}

/* ---- Servers ---- */

static void server_expires(struct weir_doorman *stage, uint32_t which,
                           weir_instant now)
{
    struct server *server = &original_fleet(stage)->threads[which].server;
    if (!server->master)
        return;
    know_resource(stage, server);
    if (has_expired(&server->has, whole_seconds(now)))
        server->has.held = false;
}

/* The server takes the grant, however much it has handed out. */
static void server_is_granted(struct weir_doorman *stage, uint32_t which,
                              struct lease gets)
{
    struct server *server = &original_fleet(stage)->threads[which].server;
    if (gets.capacity < sum_leases(server))
        weir_doorman_count(stage, WEIR_DOORMAN_SHORTFALLS);
    server->has = gets;
    weir_doorman_post(stage, (weir_instant)gets.expiry * WEIR_SECOND,
                      server_expires, which);
}

static void take_from_configuration(struct weir_doorman *stage,
                                    struct thread *thread, int64_t now)
{
    if (!thread->server.known)
        return;
    thread->server.has.held = false;
    thread->server.has = lease_of(stage, thread, stage->look.capacity, now);
    thread->server.has.refresh *= 2;
}

static struct request make_server_request(struct weir_doorman *stage,
                                          uint32_t which)
{
    const struct fleet *fleet = original_fleet(stage);
    const struct server *server = &fleet->threads[which].server;
    struct request request = { .from = which,
                               .has = server->has,
                               .wants = sum_wants(server) };
    for (size_t i = 0; i < server->entry_count; i++) {
        const struct entry *entry = &server->entries[i];
        bool client = fleet->threads[entry->thread].client;
        double leased = entry->has.held ? entry->has.capacity : 0;
        request.outstanding += client ? leased : entry->outstanding;
    }
    return request;
}

/* Before its first request from below, a server requests nothing. */
static bool take_from_parent(struct weir_doorman *stage, uint32_t which,
                             int64_t now)
{
    struct thread *thread = &original_fleet(stage)->threads[which];
    if (!thread->server.known)
        return original_fleet(stage)->threads[thread->master].server.master;
    const struct request request = make_server_request(stage, which);
    struct lease gets;
    switch (decide_request(stage, thread->master, &request, &gets, now)) {
    case FAILED:
        return false;
    case SKIPPED:
        break;
    case GRANTED:
        server_is_granted(stage, which, gets);
        break;
    }
    return true;
}

static int64_t run_server(struct weir_doorman *stage, uint32_t which,
                          weir_instant now)
{
    struct thread *thread = &original_fleet(stage)->threads[which];
    uint32_t parent = stage->jobs[thread->job].parent;
    if (!thread->server.master)
        return END_OF_TIME;
    if (parent == WEIR_DOORMAN_NONE) {
        take_from_configuration(stage, thread, whole_seconds(now));
        return interval_of(&thread->server.has);
    }
    if (thread->master == WEIR_DOORMAN_NONE && !discover(stage, thread, parent))
        return DEFAULT_INTERVAL;
    if (!take_from_parent(stage, which, whole_seconds(now))) {
        thread->master = WEIR_DOORMAN_NONE;
        return 0;
    }
    return interval_of(&thread->server.has);
}

/* ---- Events of the stage ---- */

static void init_original(struct weir_doorman *stage)
{
    stage->fleet = weir_must_zeroed(1, sizeof(struct fleet));
}

static void fini_original(struct weir_doorman *stage)
{
    struct fleet *fleet = original_fleet(stage);
    for (size_t i = 0; i < fleet->count; i++)
        free(fleet->threads[i].server.entries);
    free(fleet->threads);
    free(fleet->job_threads);
    free(fleet);
}

static uint32_t add_thread(struct fleet *fleet, struct thread thread)
{
    fleet->threads = weir_must_grow(fleet->threads, &fleet->room,
                                    fleet->count + 1, sizeof *fleet->threads);
    thread.master = WEIR_DOORMAN_NONE;
    thread.server.cleaned_at = -1;
    fleet->threads[fleet->count] = thread;
    return (uint32_t)fleet->count++;
}

static void add_original_job(struct weir_doorman *stage, uint32_t job)
{
    struct fleet *fleet = original_fleet(stage);
    fleet->job_threads = weir_must_grow(fleet->job_threads, &fleet->job_room,
                                        job + 1, sizeof(uint32_t));
    fleet->job_threads[job] = (uint32_t)fleet->count;
    for (uint32_t i = 0; i < stage->tasks; i++)
        add_thread(fleet, (struct thread){ .job = job, .which = i });
}

static void add_original_client(struct weir_doorman *stage, uint32_t client,
                                weir_instant now)
{
    add_thread(original_fleet(stage),
               (struct thread){ .client = true,
                                .job = stage->clients[client].job,
                                .which = client,
                                .next = whole_seconds(now) });
}

/* Both changes take effect with the next refresh. */
static void change_original_wants(struct weir_doorman *stage, uint32_t client,
                                  weir_instant now)
{
    (void)stage;
    (void)client;
    (void)now;
}

static void change_original_capacity(struct weir_doorman *stage,
                                     weir_instant now)
{
    (void)stage;
    (void)now;
}

static double sum_leases_out(struct weir_doorman *stage, weir_instant now)
{
    (void)now;
    return stage->look.given;
}

static void change_original_master(struct weir_doorman *stage, uint32_t job,
                                   uint32_t old, weir_instant now)
{
    struct fleet *fleet = original_fleet(stage);
    struct thread *tasks = &fleet->threads[fleet->job_threads[job]];
    if (old != WEIR_DOORMAN_NONE) {
        forget_resource(&tasks[old].server);
        tasks[old].server.master = false;
    }
    uint32_t next = stage->jobs[job].master;
    if (next == WEIR_DOORMAN_NONE)
        return;
    tasks[next].server.master = true;
    tasks[next].server.elected_at = whole_seconds(now);
    tasks[next].next = whole_seconds(now);
}

/* ---- The scheduler ---- */

static int64_t first_thread(const struct fleet *fleet)
{
    int64_t first = INT64_MAX;
    for (size_t i = 0; i < fleet->count; i++)
        if (fleet->threads[i].next < first)
            first = fleet->threads[i].next;
    return first;
}

static void run_threads(struct weir_doorman *stage, weir_instant now)
{
    struct fleet *fleet = original_fleet(stage);
    for (uint32_t i = 0; i < fleet->count; i++) {
        if (fleet->threads[i].next > whole_seconds(now))
            continue;
        stage->run->events++;
        int64_t interval = fleet->threads[i].client
                               ? run_original_client(stage, i, now)
                               : run_server(stage, i, now);
        fleet->threads[i].next = whole_seconds(now) + interval;
    }
}

static void play_original(struct weir_doorman *stage)
{
    for (;;) {
        weir_instant now =
            (weir_instant)first_thread(original_fleet(stage)) * WEIR_SECOND;
        weir_instant due = weir_heap_due(&stage->agenda);
        now = due < now ? due : now;
        if (now > stage->run->span)
            break;
        weir_doorman_run_due(stage, now);
        run_threads(stage, now);
    }
}

const struct weir_doorman_rules weir_doorman_original = {
    .name = "original",
    .init = init_original,
    .fini = fini_original,
    .job_came = add_original_job,
    .client_came = add_original_client,
    .wants_changed = change_original_wants,
    .capacity_changed = change_original_capacity,
    .master_changed = change_original_master,
    .out = sum_leases_out,
    .play = play_original,
};
