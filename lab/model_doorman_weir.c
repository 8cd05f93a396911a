/* SPDX-License-Identifier: MIT
 * lab/model_doorman_weir.c - Doorman's scenarios by Weir's own rules: the
 * product's lease pools and lease holders (src/core/leased/) over a network
 * with delays.
 *
 *     job:     [  pool  ]<── ask ──.            .── grant, pushed or asked for
 *              [ holder ]── ask ──> parent job  '──> the job below, or client
 *
 * A job's master has a lease pool and, unless it is the root, a lease holder
 * towards its parent. The lease holder's capacity is the pool's capacity; the
 * capacity that the pool has handed out is the lease holder's use. A client is
 * a lease holder that uses at most its limit; after its lease has run out it
 * uses its safe capacity.
 *
 * A caller (a job's master, or a client) has a stream to its parent's master,
 * which takes half of 'rtt' each way and keeps the order. When a master is
 * lost, its streams break, and their other ends notice half of 'rtt' later;
 * they learn of the next master a round trip after its election. Messages on
 * their way to a lost master are lost; messages that it had sent arrive.
 *
 * The next master knows its term, when its job became vacant, and that from
 * then on no lease outlasts one lease time; nothing else. To its parent it is
 * the same lease holder as its predecessor: jobs have names, and at most one
 * master. This identity lets it continue with the capacity that its job had
 * handed out.
 *
 * A master without a grant from its parent, or without a number kept by the
 * election (core/leased/lease_pool_roster.c), receives its callers' leases and
 * answers no caller: the answer would be 0. The callers ask again.
 *
 * Lease pools and lease holders see times that begin at WEIR_WORLD_START. */

#include <math.h>

#include "core/leased/lease_holder.h"
#include "core/leased/lease_pool.h"
#include "lab/memory.h"
#include "lab/model_doorman_internal.h"
#include "lab/world.h"

#define BANDS_MAX 4

/* A sender of requests: a client, or a job towards its parent. */
struct caller {
    bool client;
    uint32_t which;  /* client, or job */
    uint32_t parent; /* job */
    uint32_t member; /* its index there */
    bool lives;
    bool leased;     /* of a client: its lease was valid at the last look */
    uint64_t stream; /* 0: none */
    uint64_t term;   /* of the stream's master */
    struct weir_lease_holder holder;
};

/* A parent's record of a caller. */
struct member {
    uint32_t caller;
    uint32_t holder; /* its number in the pool; WEIR_LEASE_HOLDER_NONE */
    uint64_t stream; /* of its last request */
};

struct server {
    uint32_t caller; /* towards its parent; NONE: the root */
    uint64_t term;   /* of the present or last master */
    uint64_t serial; /* of grants, over all its masters */
    weir_instant vacant_at;
    weir_instant asks_from;       /* when its callers' roll call is over */
    struct weir_lease_pool *pool; /* owned; NULL: no master */
    bool ready;                   /* its own capacity is known */
    double capacity, safe;        /* as the lease pool has them */
    uint32_t sent_clients;        /* in its last request */
    struct member *members;       /* owned */
    size_t member_count, member_room;
    uint32_t *by_holder; /* owned: the member with that number */
    size_t by_holder_room;
    uint64_t number;          /* kept by the election … */
    uint64_t keeping;         /* … another is being written; 0: none … */
    weir_instant kept_at;     /* … until this instant */
    bool ruled;               /* this master has kept one, or none is to be
                               * kept */
    struct message *awaiting; /* owned: requests answered after that */
    size_t awaiting_count, awaiting_room;
    weir_instant wake; /* the earliest posted run */
};

struct message {
    enum {
        MEET,  /* to a caller: there is a master */
        BREAK, /* to a caller: its stream is broken */
        SEVER, /* to a server: the same */
        ASK,
        GRANT
    } what;
    uint32_t caller;
    uint64_t stream, term;
    uint64_t number; /* of a request and its answer; 0: pushed */
    struct weir_band bands[BANDS_MAX];
    size_t band_count;
    double has, safe;
    uint64_t taken;
    bool learning;
    uint64_t roster_token;
    struct weir_grant grant;
    uint32_t next_free;
};

struct fleet {
    struct weir_rng rng;    /* separate: mishaps don't depend on it */
    struct server *servers; /* owned, by job */
    size_t server_room;
    struct caller *callers; /* owned */
    size_t caller_count, caller_room;
    uint32_t *client_callers; /* owned, by client */
    size_t client_room;
    weir_instant *client_wakes; /* owned */
    size_t wake_room;
    struct message *messages; /* owned: in transit, and free ones */
    size_t message_count, message_room;
    uint32_t free_message;
    uint64_t streams;
    uint64_t numbers; /* the last one kept by any master */
};

static void *allocate_memory(void *context, size_t size)
{
    (void)context;
    return weir_must_zeroed(1, size);
}

static void release_memory(void *context, void *p, size_t size)
{
    (void)context;
    (void)size;
    free(p);
}

static const struct weir_mem memory = { .alloc = allocate_memory,
                                        .free = release_memory };

static struct fleet *stage_fleet(struct weir_doorman *stage)
{
    return stage->fleet;
}

static struct server *parent_server(struct weir_doorman *stage,
                                    const struct caller *caller)
{
    return &stage_fleet(stage)->servers[caller->parent];
}

/* ---- Time ---- */

static weir_instant world(weir_instant now)
{
    return WEIR_WORLD_START + now;
}

/* An instant of a lease pool or lease holder, which may be past. */
static weir_instant stage_time(weir_instant at)
{
    if (at == WEIR_NEVER)
        return WEIR_NEVER;
    return at > WEIR_WORLD_START ? at - WEIR_WORLD_START : 0;
}

static weir_duration half_way(const struct weir_doorman *stage)
{
    return (weir_duration)stage->values[WEIR_DOORMAN_RTT] / 2;
}

/* Posts 'run' unless an earlier run is posted, which then posts it. */
static void wake_at(struct weir_doorman *stage, weir_instant *wake,
                    weir_instant at,
                    void (*run)(struct weir_doorman *stage, uint32_t which,
                                weir_instant now),
                    uint32_t which)
{
    if (at >= *wake)
        return;
    *wake = at;
    weir_doorman_post(stage, at, run, which);
}

/* ---- The network ---- */

static void deliver(struct weir_doorman *stage, uint32_t which,
                    weir_instant now);

static void post_message(struct weir_doorman *stage,
                         const struct message *message, weir_instant at)
{
    struct fleet *fleet = stage_fleet(stage);
    uint32_t index = fleet->free_message;
    if (index != WEIR_DOORMAN_NONE) {
        fleet->free_message = fleet->messages[index].next_free;
    } else {
        fleet->messages =
            weir_must_grow(fleet->messages, &fleet->message_room,
                           fleet->message_count + 1, sizeof *fleet->messages);
        index = (uint32_t)fleet->message_count++;
    }
    fleet->messages[index] = *message;
    weir_doorman_post(stage, at, deliver, index);
}

/* There is a master: the caller will learn of it and get a stream. */
static void connect(struct weir_doorman *stage, uint32_t caller,
                    weir_instant now)
{
    const struct caller *c = &stage_fleet(stage)->callers[caller];
    const struct server *parent = parent_server(stage, c);
    if (!c->lives || !parent->pool)
        return;
    const struct message message = { .what = MEET,
                                     .caller = caller,
                                     .stream = ++stage_fleet(stage)->streams,
                                     .term = parent->term };
    post_message(stage, &message, now + 2 * half_way(stage));
}

/* ---- Requests ---- */

static size_t bands_of(struct weir_doorman *stage, const struct caller *caller,
                       double wants, struct weir_band *out)
{
    size_t count = 0;
    if (!caller->client) {
        struct server *server = &stage_fleet(stage)->servers[caller->which];
        count = weir_lease_pool_bands(server->pool, out, BANDS_MAX);
        server->sent_clients = 0;
        for (size_t i = 0; i < count; i++)
            server->sent_clients += out[i].clients;
    }
    if (count > 0)
        return count;
    out[0] = (struct weir_band){ .clients = 1, .wants = wants };
    return 1;
}

static void send_request(struct weir_doorman *stage, uint32_t caller,
                         weir_instant now)
{
    struct caller *c = &stage_fleet(stage)->callers[caller];
    struct weir_lease_holder_ask ask;
    weir_lease_holder_ask(&c->holder, c->holder.number + 1, &ask, world(now));
    struct message message = { .what = ASK,
                               .caller = caller,
                               .stream = c->stream,
                               .term = c->term,
                               .number = ask.number,
                               .has = ask.has,
                               .safe = ask.safe,
                               .taken = ask.taken,
                               .learning = ask.learning,
                               .roster_token = ask.roster_token };
    message.band_count = bands_of(stage, c, ask.wants, message.bands);
    post_message(stage, &message, now + half_way(stage));
}

/* Asks if it is due. Returns the instant of the next request or of its lease's
 * end. */
static weir_instant send_request_if_due(struct weir_doorman *stage,
                                        uint32_t caller, weir_instant now)
{
    struct caller *c = &stage_fleet(stage)->callers[caller];
    if (c->stream && stage_time(weir_lease_holder_due(&c->holder)) <= now)
        send_request(stage, caller, now);
    const weir_instant ends[] = {
        stage_time(c->holder.expiry),
        stage_time(c->holder.safe_until),
    };
    weir_instant due =
        c->stream ? stage_time(weir_lease_holder_due(&c->holder)) : WEIR_NEVER;
    for (size_t i = 0; i < WEIR_COUNT_OF(ends); i++)
        due = ends[i] > now ? weir_earlier(due, ends[i]) : due;
    return due;
}

/* ---- Clients ---- */

static void run_holder(struct weir_doorman *stage, uint32_t client,
                       weir_instant now)
{
    struct fleet *fleet = stage_fleet(stage);
    uint32_t caller = fleet->client_callers[client];
    struct caller *c = &fleet->callers[caller];
    weir_instant *wake = &fleet->client_wakes[client];
    if (*wake <= now)
        *wake = WEIR_NEVER;
    double limit = weir_lease_holder_limit(&c->holder, world(now));
    if (limit != stage->clients[client].given)
        weir_doorman_give(stage, client, limit, now);
    bool leased = stage_time(c->holder.expiry) > now;
    if (c->leased && !leased)
        weir_doorman_count(stage, WEIR_DOORMAN_EXPIRIES);
    c->leased = leased;
    wake_at(stage, wake, send_request_if_due(stage, caller, now), run_holder,
            client);
}

/* ---- Servers ---- */

static struct weir_lease_rule job_rule(const struct weir_doorman *stage,
                                       uint32_t job, double capacity)
{
    static const enum weir_share_algorithm shares[] = { WEIR_SHARE_PROPORTIONAL,
                                                        WEIR_SHARE_FAIR };
    const double *values = stage->values;
    double refresh = values[WEIR_DOORMAN_REFRESH];
    for (uint32_t i = 0; i < stage->jobs[job].level; i++)
        refresh *= values[WEIR_DOORMAN_DECAY];
    if (refresh < (double)WEIR_MILLISECOND)
        refresh = (double)WEIR_MILLISECOND;
    return (struct weir_lease_rule){
        .share = shares[(size_t)values[WEIR_DOORMAN_SHARE]],
        .capacity = capacity,
        .safe = values[WEIR_DOORMAN_SAFE],
        .lease = (weir_duration)values[WEIR_DOORMAN_LEASE],
        .refresh = (weir_duration)refresh,
    };
}

/* The capacity that the job has for its callers now. When its own lease has run
 * out, that is its safe capacity for its number of clients. */
static void set_job_capacity(struct weir_doorman *stage, uint32_t job,
                             weir_instant now)
{
    struct server *server = &stage_fleet(stage)->servers[job];
    struct weir_lease_rule rule = job_rule(stage, job, stage->look.capacity);
    if (server->caller != WEIR_DOORMAN_NONE) {
        struct weir_lease_pool_stats stats;
        struct weir_lease_holder_lease lease;
        weir_lease_holder_lease(
            &stage_fleet(stage)->callers[server->caller].holder, &lease,
            world(now));
        weir_lease_pool_set_expiry(server->pool, lease.expiry, lease.safe,
                                   lease.safe_until);
        weir_lease_pool_stats(server->pool, &stats, world(now));
        rule.capacity = lease.capacity;
        rule.safe =
            stats.clients > 0 ? lease.safe / (double)stats.clients : lease.safe;
    }
    if (rule.capacity == server->capacity && rule.safe == server->safe)
        return;
    server->capacity = rule.capacity;
    server->safe = rule.safe;
    weir_lease_pool_set_rule(server->pool, &rule);
}

static void push_grants(struct weir_doorman *stage, uint32_t job,
                        weir_instant now)
{
    struct server *server = &stage_fleet(stage)->servers[job];
    uint32_t holder;
    weir_lease_pool_tick(server->pool, world(now));
    while (weir_lease_pool_gone(server->pool, &holder))
        server->members[server->by_holder[holder]].holder =
            WEIR_LEASE_HOLDER_NONE;
    struct weir_grant grant;
    while (weir_lease_pool_next(server->pool, &grant, world(now))) {
        const struct member *member =
            &server->members[server->by_holder[grant.holder]];
        const struct message message = { .what = GRANT,
                                         .caller = member->caller,
                                         .stream = member->stream,
                                         .term = server->term,
                                         .grant = grant };
        post_message(stage, &message, now + half_way(stage));
    }
}

static void run_job(struct weir_doorman *stage, uint32_t job, weir_instant now);
static void answer_request(struct weir_doorman *stage,
                           const struct message *asked, weir_instant now);

static void answer_awaiting_requests(struct weir_doorman *stage,
                                     struct server *server, weir_instant now)
{
    size_t count = server->awaiting_count;
    server->awaiting_count = 0;
    for (size_t i = 0; i < count; i++) {
        const struct message asked = server->awaiting[i];
        answer_request(stage, &asked, now);
    }
}

/* The number is stored where the next master finds it. */
static void number_kept(struct weir_doorman *stage, uint32_t job,
                        weir_instant now)
{
    weir_assert(job < stage->job_count);
    struct server *server = &stage_fleet(stage)->servers[job];
    if (server->keeping == 0 || now != server->kept_at)
        return;
    weir_assert(server->keeping > server->number);
    server->number = server->keeping;
    server->keeping = 0;
    server->ruled = true;
    weir_lease_pool_keep(server->pool, server->number, world(now));
    answer_awaiting_requests(stage, server, now);
    run_job(stage, job, now);
}

static void await_number(struct server *server, const struct message *asked)
{
    server->awaiting =
        weir_must_grow(server->awaiting, &server->awaiting_room,
                       server->awaiting_count + 1, sizeof *server->awaiting);
    server->awaiting[server->awaiting_count++] = *asked;
}

static void keep_number(struct weir_doorman *stage, uint32_t job,
                        weir_instant now)
{
    struct fleet *fleet = stage_fleet(stage);
    struct server *server = &fleet->servers[job];
    weir_duration takes = (weir_duration)stage->values[WEIR_DOORMAN_KEEP];
    if (takes == 0 || server->keeping != 0)
        return;
    server->keeping = ++fleet->numbers;
    weir_assert(server->keeping > server->number);
    server->kept_at = now + takes;
    weir_doorman_post(stage, server->kept_at, number_kept, job);
}

/* The capacity handed out counts as used, and the callers' wants as wanted. */
static void set_job_use(struct weir_doorman *stage, struct server *server,
                        weir_instant now)
{
    struct weir_lease_holder *up =
        &stage_fleet(stage)->callers[server->caller].holder;
    struct weir_lease_pool_stats stats;
    weir_lease_pool_stats(server->pool, &stats, world(now));
    weir_lease_holder_learning(up, stats.learning);
    weir_lease_holder_promised(up, stats.safe_out);
    weir_lease_holder_in_use(up, stats.out);
    if (stats.wants != up->declared)
        weir_lease_holder_want(up, stats.wants, world(now));
    if (stats.clients != server->sent_clients)
        weir_lease_holder_hurry(up, world(now));
}

static void run_job(struct weir_doorman *stage, uint32_t job, weir_instant now)
{
    struct server *server = &stage_fleet(stage)->servers[job];
    if (server->wake <= now)
        server->wake = WEIR_NEVER;
    if (!server->pool)
        return;
    set_job_capacity(stage, job, now);
    push_grants(stage, job, now);
    if (weir_lease_pool_lets_in(server->pool))
        answer_awaiting_requests(stage, server, now);
    if (weir_lease_pool_wants_keep(server->pool))
        keep_number(stage, job, now);
    weir_instant due = WEIR_NEVER;
    if (server->caller != WEIR_DOORMAN_NONE) {
        set_job_use(stage, server, now);
        due = now < server->asks_from
                  ? server->asks_from
                  : send_request_if_due(stage, server->caller, now);
    }
    weir_instant deadline =
        stage_time(weir_lease_pool_deadline(server->pool, world(now)));
    wake_at(stage, &server->wake, weir_earlier(due, deadline), run_job, job);
}

static void run_caller(struct weir_doorman *stage, const struct caller *caller,
                       weir_instant now)
{
    if (caller->client)
        run_holder(stage, caller->which, now);
    else
        run_job(stage, caller->which, now);
}

/* ---- Messages that arrive ---- */

static void join_pool(struct server *server, uint32_t index)
{
    struct member *member = &server->members[index];
    if (member->holder != WEIR_LEASE_HOLDER_NONE)
        return;
    uint64_t name = weir_rng_mix(member->caller + 1);
    weir_assert(weir_lease_pool_join(server->pool, name, &member->holder) == 0);
    server->by_holder =
        weir_must_grow(server->by_holder, &server->by_holder_room,
                       (size_t)member->holder + 1, sizeof(uint32_t));
    server->by_holder[member->holder] = index;
    weir_assert(member->holder < server->by_holder_room);
}

static void answer_request(struct weir_doorman *stage,
                           const struct message *asked, weir_instant now)
{
    const struct caller *caller = &stage_fleet(stage)->callers[asked->caller];
    struct server *server = parent_server(stage, caller);
    if (!server->pool || server->term != asked->term)
        return;
    set_job_capacity(stage, caller->parent, now);
    join_pool(server, caller->member);
    struct member *member = &server->members[caller->member];
    member->stream = asked->stream;
    const struct weir_lease_pool_ask ask = { .bands = asked->bands,
                                             .band_count = asked->band_count,
                                             .has = asked->has,
                                             .safe = asked->safe,
                                             .taken = asked->taken,
                                             .learning = asked->learning,
                                             .roster_token =
                                                 asked->roster_token,
                                             .streams = true };
    struct message message = { .what = GRANT,
                               .caller = asked->caller,
                               .stream = asked->stream,
                               .term = asked->term,
                               .number = asked->number };
    bool ready = server->ready && server->ruled;
    int error = weir_lease_pool_ask(server->pool, member->holder, &ask,
                                    ready ? &message.grant : NULL, world(now));
    weir_assert(error == 0 || error == WEIR_ENOTREADY);
    if (error == WEIR_ENOTREADY)
        await_number(server, asked);
    else if (ready)
        post_message(stage, &message, now + half_way(stage));
    struct weir_lease_pool_stats stats;
    weir_lease_pool_stats(server->pool, &stats, world(now));
    if (caller->client && ready)
        weir_doorman_count(stage, stats.learning ? WEIR_DOORMAN_LEARNING_ANSWERS
                                                 : WEIR_DOORMAN_DECISIONS);
    run_job(stage, caller->parent, now);
}

/* The master's own capacity is known. Before it keeps a number it has answered
 * no caller, so its predecessor's number is still valid. */
static void be_ready(struct weir_doorman *stage, uint32_t job, weir_instant now)
{
    struct server *server = &stage_fleet(stage)->servers[job];
    if (!server->ready && !server->ruled)
        keep_number(stage, job, now);
    server->ready = true;
}

static void receive_lease_grant(struct weir_doorman *stage,
                                struct caller *caller,
                                const struct message *message, weir_instant now)
{
    if (caller->stream != message->stream)
        return;
    if (!caller->client && message->grant.capacity < caller->holder.in_use)
        weir_doorman_count(stage, WEIR_DOORMAN_SHORTFALLS);
    bool counts =
        weir_lease_holder_granted(&caller->holder, message->number,
                                  message->term, &message->grant, world(now));
    if (counts && !caller->client)
        be_ready(stage, caller->which, now);
    run_caller(stage, caller, now);
}

static void receive_stream(struct weir_doorman *stage, struct caller *caller,
                           const struct message *message, weir_instant now)
{
    const struct server *parent = parent_server(stage, caller);
    if (!caller->lives || !parent->pool || parent->term != message->term)
        return;
    caller->stream = message->stream;
    caller->term = message->term;
    run_caller(stage, caller, now);
}

static void lose_stream(struct weir_doorman *stage, struct caller *caller,
                        const struct message *message, weir_instant now)
{
    if (!caller->lives || !caller->stream || caller->term != message->term)
        return;
    if (caller->client)
        weir_doorman_count(stage, WEIR_DOORMAN_FAILURES);
    caller->stream = 0;
    weir_lease_holder_lost(&caller->holder, world(now));
    run_caller(stage, caller, now);
}

static void receive_sever(struct weir_doorman *stage,
                          const struct caller *caller,
                          const struct message *message, weir_instant now)
{
    struct server *server = parent_server(stage, caller);
    if (!server->pool || server->term != message->term)
        return;
    const struct member *member = &server->members[caller->member];
    if (member->stream != message->stream ||
        member->holder == WEIR_LEASE_HOLDER_NONE)
        return;
    weir_lease_pool_stream_lost(server->pool, member->holder);
    run_job(stage, caller->parent, now);
}

static void deliver(struct weir_doorman *stage, uint32_t which,
                    weir_instant now)
{
    struct fleet *fleet = stage_fleet(stage);
    weir_assert(which < fleet->message_count);
    const struct message message = fleet->messages[which];
    struct caller *caller = &fleet->callers[message.caller];
    fleet->messages[which].next_free = fleet->free_message;
    fleet->free_message = which;
    switch (message.what) {
    case MEET:
        receive_stream(stage, caller, &message, now);
        break;
    case BREAK:
        lose_stream(stage, caller, &message, now);
        break;
    case SEVER:
        receive_sever(stage, caller, &message, now);
        break;
    case ASK:
        answer_request(stage, &message, now);
        break;
    case GRANT:
        receive_lease_grant(stage, caller, &message, now);
        break;
    }
}

/* ---- Masters ---- */

static void close_caller(struct weir_doorman *stage, uint32_t caller,
                         weir_instant now)
{
    struct caller *c = &stage_fleet(stage)->callers[caller];
    const struct message message = {
        .what = SEVER, .caller = caller, .stream = c->stream, .term = c->term
    };
    if (c->stream)
        post_message(stage, &message, now + half_way(stage));
    c->stream = 0;
    c->lives = false;
}

static void end_master(struct weir_doorman *stage, uint32_t job,
                       weir_instant now)
{
    struct server *server = &stage_fleet(stage)->servers[job];
    weir_lease_pool_free(server->pool);
    server->awaiting_count = 0;
    server->pool = NULL;
    /* A master that kept no number has answered no caller. For the next master
     * it never existed. */
    if (server->ruled || server->keeping != 0)
        server->vacant_at = now;
    if (server->keeping != 0) /* written, but not yet used in an answer */
        server->number = server->keeping;
    server->keeping = 0;
    for (size_t i = 0; i < server->member_count; i++) {
        struct member *member = &server->members[i];
        const struct message message = { .what = BREAK,
                                         .caller = member->caller,
                                         .term = server->term };
        post_message(stage, &message, now + half_way(stage));
        member->holder = WEIR_LEASE_HOLDER_NONE;
        member->stream = 0;
    }
    if (server->caller != WEIR_DOORMAN_NONE)
        close_caller(stage, server->caller, now);
}

static void start_caller(struct weir_doorman *stage, uint32_t caller,
                         weir_instant now)
{
    struct fleet *fleet = stage_fleet(stage);
    struct caller *c = &fleet->callers[caller];
    c->lives = true;
    weir_lease_holder_init(&c->holder, WEIR_STALE_SHARE, !c->client,
                           weir_rng_next(&fleet->rng), world(now));
    connect(stage, caller, now);
}

/* The leases that callers may have from the former master; of the first master
 * none, if the scenario says so. */
static struct weir_learning learning_of_master(
    const struct weir_doorman *stage, const struct server *server,
    const struct weir_lease_rule *rule)
{
    if (server->term == 1 && stage->values[WEIR_DOORMAN_FIRST] > 0)
        return (struct weir_learning){ 0 };
    weir_instant leases =
        world(server->vacant_at) + rule->lease + rule->refresh;
    bool root = server->caller == WEIR_DOORMAN_NONE;
    bool safe = rule->safe != 0;
    return (struct weir_learning){ .leases = leases,
                                   .safes = leases + (safe ? rule->lease : 0),
                                   .promised = root ? rule->capacity : INFINITY,
                                   .kept = server->number };
}

static void begin_master(struct weir_doorman *stage, uint32_t job,
                         weir_instant now)
{
    struct server *server = &stage_fleet(stage)->servers[job];
    bool root = server->caller == WEIR_DOORMAN_NONE;
    weir_assert(!server->pool);
    server->term++;
    server->sent_clients = 0;
    server->ready = root;
    server->capacity = root ? stage->look.capacity : 0;
    struct weir_lease_rule rule = job_rule(stage, job, server->capacity);
    server->safe = rule.safe;
    server->asks_from = now;
    if (server->term > 1 || stage->values[WEIR_DOORMAN_FIRST] == 0)
        server->asks_from += (weir_duration)stage->values[WEIR_DOORMAN_ROSTER];
    struct weir_learning learning = learning_of_master(stage, server, &rule);
    server->pool = weir_lease_pool_new(
        &memory, &rule, &learning, &server->serial,
        weir_rng_next(&stage_fleet(stage)->rng), world(now));
    server->ruled = stage->values[WEIR_DOORMAN_KEEP] == 0;
    if (root)
        keep_number(stage, job, now);
    else
        start_caller(stage, server->caller, now);
    for (size_t i = 0; i < server->member_count; i++)
        connect(stage, server->members[i].caller, now);
    run_job(stage, job, now);
}

/* ---- Events of the stage ---- */

static void init_pools(struct weir_doorman *stage)
{
    struct fleet *fleet = weir_must_zeroed(1, sizeof *fleet);
    fleet->rng.state = weir_rng_mix(stage->run->seed + 1);
    fleet->free_message = WEIR_DOORMAN_NONE;
    stage->fleet = fleet;
}

static void fini_pools(struct weir_doorman *stage)
{
    struct fleet *fleet = stage_fleet(stage);
    for (size_t i = 0; i < stage->job_count; i++) {
        weir_lease_pool_free(fleet->servers[i].pool);
        free(fleet->servers[i].members);
        free(fleet->servers[i].awaiting);
        free(fleet->servers[i].by_holder);
    }
    free(fleet->servers);
    free(fleet->callers);
    free(fleet->client_callers);
    free(fleet->client_wakes);
    free(fleet->messages);
    free(fleet);
}

/* The parent knows the new caller from now on. */
static uint32_t add_caller(struct weir_doorman *stage, bool client,
                           uint32_t which, uint32_t parent)
{
    struct fleet *fleet = stage_fleet(stage);
    struct server *server = &fleet->servers[parent];
    fleet->callers =
        weir_must_grow(fleet->callers, &fleet->caller_room,
                       fleet->caller_count + 1, sizeof *fleet->callers);
    server->members =
        weir_must_grow(server->members, &server->member_room,
                       server->member_count + 1, sizeof *server->members);
    uint32_t caller = (uint32_t)fleet->caller_count++;
    fleet->callers[caller] =
        (struct caller){ .client = client,
                         .which = which,
                         .parent = parent,
                         .member = (uint32_t)server->member_count };
    weir_assert(server->member_count < server->member_room);
    server->members[server->member_count++] =
        (struct member){ .caller = caller, .holder = WEIR_LEASE_HOLDER_NONE };
    return caller;
}

static void add_pool(struct weir_doorman *stage, uint32_t job)
{
    struct fleet *fleet = stage_fleet(stage);
    fleet->servers = weir_must_grow(fleet->servers, &fleet->server_room,
                                    job + 1, sizeof *fleet->servers);
    fleet->servers[job] =
        (struct server){ .caller = WEIR_DOORMAN_NONE, .wake = WEIR_NEVER };
    uint32_t parent = stage->jobs[job].parent;
    if (parent != WEIR_DOORMAN_NONE)
        fleet->servers[job].caller = add_caller(stage, false, job, parent);
}

static void change_holder_wants(struct weir_doorman *stage, uint32_t client,
                                weir_instant now)
{
    struct fleet *fleet = stage_fleet(stage);
    struct caller *caller = &fleet->callers[fleet->client_callers[client]];
    weir_lease_holder_want(&caller->holder, stage->clients[client].wants,
                           world(now));
    run_holder(stage, client, now);
}

static void add_holder(struct weir_doorman *stage, uint32_t client,
                       weir_instant now)
{
    struct fleet *fleet = stage_fleet(stage);
    uint32_t caller =
        add_caller(stage, true, client, stage->clients[client].job);
    fleet->client_callers =
        weir_must_grow(fleet->client_callers, &fleet->client_room, client + 1,
                       sizeof(uint32_t));
    fleet->client_wakes = weir_must_grow(fleet->client_wakes, &fleet->wake_room,
                                         client + 1, sizeof(weir_instant));
    weir_assert(client < fleet->client_room && client < fleet->wake_room);
    fleet->client_callers[client] = caller;
    fleet->client_wakes[client] = WEIR_NEVER;
    start_caller(stage, caller, now);
    change_holder_wants(stage, client, now);
}

static void change_pool_capacity(struct weir_doorman *stage, weir_instant now)
{
    run_job(stage, 0, now);
}

static double sum_pool_out(struct weir_doorman *stage, weir_instant now)
{
    struct server *root = &stage_fleet(stage)->servers[0];
    if (!root->pool)
        return stage->look.given;
    struct weir_lease_pool_stats stats;
    weir_lease_pool_stats(root->pool, &stats, world(now));
    return stats.out;
}

static void change_pool_master(struct weir_doorman *stage, uint32_t job,
                               uint32_t old, weir_instant now)
{
    if (old != WEIR_DOORMAN_NONE)
        end_master(stage, job, now);
    if (stage->jobs[job].master != WEIR_DOORMAN_NONE)
        begin_master(stage, job, now);
}

static void play_pools(struct weir_doorman *stage)
{
    while (weir_heap_due(&stage->agenda) <= stage->run->span) {
        stage->run->events++;
        weir_doorman_run_due(stage, weir_heap_due(&stage->agenda));
    }
}

const struct weir_doorman_rules weir_doorman_weir = {
    .name = "weir",
    .init = init_pools,
    .fini = fini_pools,
    .job_came = add_pool,
    .client_came = add_holder,
    .wants_changed = change_holder_wants,
    .capacity_changed = change_pool_capacity,
    .master_changed = change_pool_master,
    .out = sum_pool_out,
    .play = play_pools,
};
