/* SPDX-License-Identifier: MIT
 * cli/replay_run.c - decides requests by a file of quotas, in virtual time, and
 * finds limits.
 *
 * A file of quotas is put into the table of one limiter that gets all requests.
 * One process decides every request here, so its counts are exact for any
 * sharing a quota has. Quotas that would ask a store are decided in the table,
 * by the same arithmetic.
 *
 * Decisions are those of the table that every limiter has, each at the instant
 * of its request; this file counts them. A name is looked up once: from then on
 * its request is a number, its slot in the table a ref, and its chain a short
 * list of quotas.
 *
 * A suggestion is the smallest limit under which few requests would have been
 * refused. Each quota is replayed alone: the requests with it in their chain,
 * its instances apart, and the decisions of a table without other quotas. Its
 * refusals fall as its limit rises (bursts given in time rise with it), so the
 * smallest limit is found by halving, a replay a step; it is exact to one unit
 * of the quota's own time. Together, quotas refuse less than the sum: a request
 * that one refuses isn't charged to the next. The caller replays that as well,
 * at the end.
 *
 * Rejected: one pass that computes for each request the limit under which it
 * would have passed. A pass depends on the refusals before it, so the level of
 * each request depends on the limit that is sought. */

#include "cli/replay.h"

#include <string.h>
#include <sys/mman.h>

#include "cli/cmd_quota.h"
#include "codec/quota_json.h"
#include "core/base/hash.h"
#include "core/quota/quota_bucket.h"
#include "core/table/table_sync.h"
#include "io/clock.h"
#include "io/zone.h"
#include "lab/memory.h"

#define MINUTE (60 * WEIR_SECOND)
#define NOBODY (-1)

/* ---- The file ---- */

static int check_quota_zone(const struct weir_replay_set *set,
                            const struct weir_quota *quota)
{
    struct weir_diag diag = { 0 };
    int32_t offset;
    int64_t until;
    if (quota->tz.len == 0 || weir_tz_fixed(quota->tz, &offset) ||
        weir_zone_at(quota->tz, 0, &offset, &until, &diag) == 0)
        return 0;
    return weir_cli_fail("%s: %.*s: %s", set->path, (int)quota->name.len,
                         quota->name.p, diag.text);
}

static int check_replay_quota(struct weir_replay_set *set, json_t *object,
                              struct weir_quota *out)
{
    struct weir_diag diag = { 0 };
    weir_quota_init(out);
    if (weir_quota_from_json(object, out, &diag) < 0 ||
        weir_quota_check(out, &diag) < 0)
        return weir_cli_fail("%s: %.*s: %s", set->path, (int)out->name.len,
                             out->name.p ? out->name.p : "", diag.text);
    if (weir_name_is_shadow(out->name))
        return weir_cli_fail("%s: %.*s: write it without \"shadow:\"; "
                             "--compare sets two files side by side",
                             set->path, (int)out->name.len, out->name.p);
    struct weir_change change = { .quota = *out };
    change.quota.epoch = weir_catalog_epoch(set->catalog) + 1;
    change.quota.created = change.quota.epoch;
    if (weir_catalog_apply(set->catalog, &change) < 0)
        return weir_cli_fail("%s", weir_strerror(WEIR_ENOMEM));
    return check_quota_zone(set, out);
}

int weir_replay_set_read(struct weir_replay_set *set, const char *path)
{
    *set = (struct weir_replay_set){ .path = path };
    set->body = weir_cli_quota_file(path, NULL);
    if (!set->body)
        return WEIR_EXIT_ERROR;
    json_t *list = json_object_get(set->body, "quotas");
    set->count = json_array_size(list);
    set->quotas = weir_must_zeroed(set->count, sizeof *set->quotas);
    set->catalog = weir_must(weir_catalog_new(&weir_mem_system, 0));
    if (set->count == 0)
        return weir_cli_fail("%s: no quota in it", path);
    for (size_t i = 0; i < set->count; i++) {
        int status =
            check_replay_quota(set, json_array_get(list, i), &set->quotas[i]);
        if (status)
            return status;
        if (weir_index_add(&set->index, &weir_mem_system,
                           weir_hash(set->quotas[i].name, 0), (uint32_t)i) < 0)
            return weir_cli_fail("%s", weir_strerror(WEIR_ENOMEM));
    }
    for (size_t i = 0; i < set->count; i++) {
        struct weir_diag diag = { 0 };
        if (weir_catalog_check_place(set->catalog, set->quotas[i].name, &diag) <
            0)
            return weir_cli_fail("%s: %s", path, diag.text);
    }
    return 0;
}

void weir_replay_set_fini(struct weir_replay_set *set)
{
    json_decref(set->body);
    free(set->quotas);
    weir_index_fini(&set->index, &weir_mem_system);
    weir_catalog_free(set->catalog);
}

int weir_replay_set_find(const struct weir_replay_set *set,
                         struct weir_text name)
{
    uint64_t hash = weir_hash(name, 0);
    size_t cursor = 0;
    uint32_t at;
    while (weir_index_find(&set->index, hash, &cursor, &at))
        if (weir_text_equal(set->quotas[at].name, name))
            return (int)at;
    return -1;
}

struct link {
    int quota;
    uint8_t len;
    char name[WEIR_NAME_MAX];
};

/* The chain of a name, from the name itself up: indexes of quotas, and their
 * names for this name. Returns how many. */
static size_t find_chain(const struct weir_replay_set *set,
                         struct weir_text name, struct link out[WEIR_DEPTH_MAX])
{
    size_t count = 0;
    char buf[2][WEIR_NAME_MAX];
    while (count < WEIR_DEPTH_MAX && name.len > 0) {
        struct weir_captures captures;
        const struct weir_quota *quota =
            weir_catalog_find(set->catalog, name, &captures);
        if (!quota)
            break;
        struct link *link = &out[count];
        link->quota = weir_replay_set_find(set, quota->name);
        link->len = (uint8_t)name.len;
        memcpy(link->name, name.p, name.len);
        char *parent = buf[count++ % 2];
        int len = weir_glob_expand(quota->parent, &captures, parent);
        name = (struct weir_text){ parent, len > 0 ? (size_t)len : 0 };
    }
    return count;
}

/* ---- The table ---- */

struct replay_table {
    struct weir_table *table;
    size_t size; /* of its block; owned */
    uint32_t slots, stripe;
    weir_instant zones_until; /* when a zone's offset changes */
};

struct zones {
    int64_t at, until; /* seconds since 1970 */
};

static int32_t zone_offset(void *context, struct weir_text zone)
{
    struct zones *zones = context;
    int32_t offset = 0;
    int64_t until = INT64_MAX;
    /* An unknown zone was refused when the file was read. */
    if (!weir_tz_fixed(zone, &offset))
        (void)weir_zone_at(zone, zones->at, &offset, &until, NULL);
    zones->until = until < zones->until ? until : zones->until;
    return offset;
}

/* To be called before decisions at 'now', if that is at 'zones_until' or
 * later. */
static void update_zones(struct replay_table *table, weir_instant now)
{
    struct zones zones = { (int64_t)(now / WEIR_SECOND), INT64_MAX };
    weir_table_set_zones(table->table, zone_offset, &zones);
    bool ends = zones.until < INT64_MAX / (int64_t)WEIR_SECOND;
    table->zones_until =
        ends ? (weir_instant)zones.until * WEIR_SECOND : WEIR_NEVER;
}

static bool has_bucket_state(const struct weir_quota *quota)
{
    return quota->algorithm != WEIR_LEAKY &&
           quota->algorithm != WEIR_TOKEN_BUCKET;
}

/* Room for a state of the largest kind in each slot, and for the rules. */
static uint64_t bucket_state_bytes(const struct weir_quota *quotas,
                                   size_t count, uint32_t slots)
{
    uint64_t most = WEIR_ALGORITHM_BYTES_A_SLOT;
    for (size_t i = 0; i < count; i++) {
        struct weir_algorithm_rule rule;
        if (!has_bucket_state(&quotas[i]) || quotas[i].limit.unlimited)
            continue;
        weir_quota_algorithm_rule(&quotas[i], 0, &rule);
        uint64_t size = 2 * weir_algorithm_size(&rule);
        most = size > most ? size : most;
    }
    uint64_t all = (uint64_t)slots * most + (64u << 10);
    return all < WEIR_ALGORITHM_BYTES_MAX ? all : WEIR_ALGORITHM_BYTES_MAX;
}

/* A table with these quotas (borrowed), for so many names: quotas that would
 * ask a store or a root are decided here. */
static void table_init(struct replay_table *table,
                       const struct weir_quota *quotas, size_t count,
                       size_t names, uint64_t seed, weir_instant now)
{
    size_t slots = 64 + 2 * count + 3 * names;
    *table = (struct replay_table){
        .slots = slots < WEIR_SLOTS_MAX ? (uint32_t)slots : WEIR_SLOTS_MAX,
    };
    const struct weir_table_options options = {
        .slots = table->slots,
        .stripes = 2,
        .seed = seed,
        .bucket_state_bytes = bucket_state_bytes(quotas, count, table->slots),
    };
    table->size = weir_table_size(&options);
    /* Unused pages cost nothing. */
    void *block = mmap(NULL, table->size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (block == MAP_FAILED)
        weir_no_memory();
    table->table = weir_table_init(block, &options, now);
    table->stripe = weir_table_claim_stripe(table->table);
    for (size_t i = 0; i < count; i++) {
        struct weir_quota quota = quotas[i];
        quota.epoch = quota.created = i + 1;
        if (quota.sharing == WEIR_EXACT)
            quota.sharing = WEIR_LOCAL;
        if (weir_table_put(table->table, &quota, now) < 0)
            abort(); /* there is room for all */
    }
    update_zones(table, now);
}

static void table_fini(struct replay_table *table)
{
    munmap(table->table, table->size);
}

/* ---- A run ---- */

/* A name after its look-up. */
struct known {
    struct weir_ref ref;
    bool looked_up, unknown;
    uint8_t links;
    int *chain; /* owned: of quotas, from the name up */
};

struct run {
    const struct weir_replay_log *log;
    const struct weir_replay_set *set;
    struct weir_replay_result *result;
    struct replay_table replayed;
    struct known *known; /* of each key */
    int *quota_of_slot;  /* -2: not known yet */
};

static void look_up_key(struct run *run, struct known *known,
                        struct weir_text name, weir_instant now)
{
    struct link links[WEIR_DEPTH_MAX];
    enum weir_resolved how =
        weir_table_resolve(run->replayed.table, name, false, &known->ref, now);
    known->unknown = !weir_is_resolved(how);
    if (known->looked_up)
        return;
    run->result->crowded += how != WEIR_RESOLVED && how != WEIR_RESOLVED_NONE;
    known->looked_up = true;
    known->links = (uint8_t)find_chain(run->set, name, links);
    known->chain = weir_must_zeroed(known->links, sizeof *known->chain);
    for (size_t i = 0; i < known->links; i++)
        known->chain[i] = links[i].quota;
}

/* The quota that a reply names, by its name or its template's. */
static int find_replay_quota(struct run *run, const struct weir_reply *reply)
{
    struct weir_text name = { reply->quota, reply->quota_len };
    struct weir_ref ref;
    if (!weir_table_find(run->replayed.table, name, &ref) ||
        ref.slot >= run->replayed.slots)
        return NOBODY;
    int *quota = &run->quota_of_slot[ref.slot];
    if (*quota > NOBODY - 1)
        return *quota;
    char buf[WEIR_NAME_MAX + 1];
    uint32_t above = weir_table_template_of(run->replayed.table, ref.slot);
    if (above != WEIR_SLOT_NONE)
        name = (struct weir_text){ buf, weir_table_name(run->replayed.table,
                                                        above, buf) };
    *quota = weir_replay_set_find(run->set, name);
    return *quota;
}

/* ---- Counting ---- */

static size_t replay_bin(const struct weir_replay_result *result,
                         weir_instant at)
{
    weir_assert(at >= result->begin && at <= result->end);
    weir_duration span = result->end - result->begin + 1;
    return (size_t)((weir_u128)(at - result->begin) * WEIR_REPLAY_BINS / span);
}

static void count_refused(struct weir_replay_count *count, uint32_t weight,
                          size_t bin, weir_instant at)
{
    weir_assert(bin < WEIR_REPLAY_BINS);
    /* The minute of the request before ends here if this request is in
     * another. */
    if (count->refused == 0 || count->last / MINUTE != at / MINUTE)
        count->minute_refused = 0;
    count->minute_refused++;
    if (count->minute_refused > count->worst_refused) {
        count->worst_refused = count->minute_refused;
        count->worst = at / MINUTE * MINUTE;
    }
    count->first = count->refused == 0 ? at : count->first;
    count->last = at;
    count->refused++;
    count->units += weight;
    count->refused_in[bin]++;
}

/* The quota that most of a client's refusals came from, if one had half of
 * them: each refusal by another takes a vote away. */
static void vote_for_quota(struct weir_replay_client *client, int quota)
{
    if (client->votes == 0)
        client->mostly = quota;
    if (client->mostly == quota)
        client->votes++;
    else
        client->votes--;
}

static void count_decision(struct run *run, size_t index,
                           const struct known *known, bool limited,
                           const struct weir_reply *reply)
{
    const struct weir_replay_request *request = &run->log->requests[index];
    struct weir_replay_result *result = run->result;
    struct weir_replay_client *client = &result->clients[request->client];
    size_t bin = replay_bin(result, request->at);
    result->all.asked++;
    result->all.asked_in[bin]++;
    client->asked++;
    for (size_t i = 0; i < known->links; i++) {
        if (known->chain[i] < 0)
            continue;
        result->quotas[known->chain[i]].asked++;
        result->quotas[known->chain[i]].asked_in[bin]++;
    }
    result->unknown += known->unknown;
    result->shadow += !limited && reply->shadow;
    if (!limited)
        return;
    int quota = find_replay_quota(run, reply);
    count_refused(&result->all, request->weight, bin, request->at);
    if (quota >= 0)
        count_refused(&result->quotas[quota], request->weight, bin,
                      request->at);
    result->refused[index / 8] |= (uint8_t)(1u << (index % 8));
    client->refused++;
    weir_assert(client->refused <= client->asked);
    vote_for_quota(client, quota);
}

/* ---- Deciding ---- */

static void replay_one(struct run *run, size_t index)
{
    const struct weir_replay_request *request = &run->log->requests[index];
    struct known *known = &run->known[request->key];
    struct weir_reply reply;
    if (request->at >= run->replayed.zones_until)
        update_zones(&run->replayed, request->at);
    if (!known->looked_up)
        look_up_key(run, known, run->log->keys.items[request->key],
                    request->at);
    unsigned outcome = 0;
    reply.shadow = false;
    if (!known->unknown)
        outcome =
            weir_table_take(run->replayed.table, run->replayed.stripe,
                            known->ref, request->weight, &reply, request->at);
    if (outcome & WEIR_OUTCOME_STALE_REF) {
        look_up_key(run, known, run->log->keys.items[request->key],
                    request->at);
        outcome =
            weir_table_take(run->replayed.table, run->replayed.stripe,
                            known->ref, request->weight, &reply, request->at);
    }
    count_decision(run, index, known, outcome & WEIR_OUTCOME_LIMITED, &reply);
}

static int by_refused(const void *a, const void *b)
{
    const struct weir_replay_client *x = a, *y = b;
    if (x->refused != y->refused)
        return x->refused < y->refused ? 1 : -1;
    if (x->asked != y->asked)
        return x->asked < y->asked ? 1 : -1;
    return (x->client > y->client) - (x->client < y->client);
}

static void result_init(struct weir_replay_result *result,
                        const struct weir_replay_log *log,
                        const struct weir_replay_set *set)
{
    weir_assert(log->count > 0);
    *result = (struct weir_replay_result){
        .set = set,
        .quotas = weir_must_zeroed(set->count, sizeof *result->quotas),
        .clients =
            weir_must_zeroed(log->clients.count, sizeof *result->clients),
        .client_count = log->clients.count,
        .refused = weir_must_zeroed(log->count / 8 + 1, 1),
        .begin = log->requests[0].at,
        .end = log->requests[log->count - 1].at,
    };
    for (uint32_t i = 0; i < result->client_count; i++) {
        result->clients[i].client = i;
        result->clients[i].mostly = NOBODY;
    }
}

void weir_replay_run(const struct weir_replay_log *log,
                     const struct weir_replay_set *set, uint64_t seed,
                     struct weir_replay_result *out)
{
    result_init(out, log, set);
    struct run run = { .log = log, .set = set, .result = out };
    table_init(&run.replayed, set->quotas, set->count, log->keys.count, seed,
               out->begin);
    run.known = weir_must_zeroed(log->keys.count, sizeof *run.known);
    run.quota_of_slot =
        weir_must(malloc(run.replayed.slots * sizeof *run.quota_of_slot));
    for (uint32_t i = 0; i < run.replayed.slots; i++)
        run.quota_of_slot[i] = NOBODY - 1;
    for (size_t i = 0; i < log->count; i++)
        replay_one(&run, i);
    qsort(out->clients, out->client_count, sizeof *out->clients, by_refused);
    for (uint32_t i = 0; i < log->keys.count; i++)
        free(run.known[i].chain);
    free(run.known);
    free(run.quota_of_slot);
    table_fini(&run.replayed);
}

void weir_replay_result_fini(struct weir_replay_result *result)
{
    free(result->quotas);
    free(result->clients);
    free(result->refused);
}

/* ---- Suggestions ---- */

struct asked {
    weir_instant at;
    uint32_t instance;
    uint32_t weight;
};

struct search {
    struct weir_quota quota; /* alone; with the limit that is tried */
    struct asked *asked;     /* owned */
    size_t count;
    const struct weir_replay_texts *instances;
    struct weir_ref *refs; /* owned; of each instance */
    uint64_t seed;
};

/* The quotas that each request asks. A key's chain is looked up once, whatever
 * the number of quotas, and requests are grouped by quota, in the order of
 * time. */
struct key_links {
    struct key_link {
        uint32_t quota, instance; /* the instance by the quota's number */
    } * links;                    /* owned; of all keys */
    size_t count, capacity;
    size_t *first;                       /* owned: of each key, and the end */
    struct weir_replay_texts *instances; /* owned: of each quota */
    struct reached {
        uint32_t request, instance;
    } * reached;   /* owned: by quota */
    size_t *begin; /* owned: of each quota, and the end */
};

/* ---- The requests of the quotas ---- */

static void look_up_keys(struct key_links *links,
                         const struct weir_replay_log *log,
                         const struct weir_replay_set *set)
{
    struct link chain[WEIR_DEPTH_MAX];
    for (uint32_t i = 0; i < log->keys.count; i++) {
        links->first[i] = links->count;
        size_t count = find_chain(set, log->keys.items[i], chain);
        for (size_t k = 0; k < count; k++) {
            if (chain[k].quota < 0)
                continue;
            bool is_new;
            struct weir_text called = { chain[k].name, chain[k].len };
            uint32_t instance = weir_replay_intern(
                &links->instances[chain[k].quota], called, &is_new);
            if (instance == UINT32_MAX)
                continue;
            links->links =
                weir_must_grow(links->links, &links->capacity, links->count + 1,
                               sizeof *links->links);
            links->links[links->count++] =
                (struct key_link){ (uint32_t)chain[k].quota, instance };
        }
    }
    links->first[log->keys.count] = links->count;
}

/* First counts the requests of each quota, then moves each to its place. */
static void sort_requests(struct key_links *links,
                          const struct weir_replay_log *log, size_t quotas)
{
    size_t *place = weir_must_zeroed(quotas + 1, sizeof *place);
    for (size_t i = 0; i < log->count; i++) {
        uint32_t key = log->requests[i].key;
        for (size_t k = links->first[key]; k < links->first[key + 1]; k++)
            links->begin[links->links[k].quota + 1]++;
    }
    for (size_t i = 0; i < quotas; i++)
        place[i + 1] = links->begin[i + 1] += links->begin[i];
    links->reached =
        weir_must_zeroed(links->begin[quotas] + 1, sizeof *links->reached);
    for (size_t i = 0; i < log->count; i++) {
        uint32_t key = log->requests[i].key;
        for (size_t k = links->first[key]; k < links->first[key + 1]; k++) {
            const struct key_link *link = &links->links[k];
            links->reached[place[link->quota]++] =
                (struct reached){ (uint32_t)i, link->instance };
        }
    }
    free(place);
}

static void links_init(struct key_links *links,
                       const struct weir_replay_log *log,
                       const struct weir_replay_set *set)
{
    *links = (struct key_links){
        .first = weir_must_zeroed(log->keys.count + 1, sizeof(size_t)),
        .instances = weir_must_zeroed(set->count, sizeof *links->instances),
        .begin = weir_must_zeroed(set->count + 1, sizeof(size_t)),
    };
    look_up_keys(links, log, set);
    sort_requests(links, log, set->count);
}

static void links_fini(struct key_links *links, size_t quotas)
{
    for (size_t i = 0; i < quotas; i++)
        weir_replay_texts_fini(&links->instances[i]);
    free(links->links);
    free(links->first);
    free(links->instances);
    free(links->reached);
    free(links->begin);
}

static void gather_quota(struct search *search,
                         const struct weir_replay_log *log,
                         const struct key_links *links, size_t quota)
{
    weir_assert(links->begin[quota] <= links->begin[quota + 1]);
    const struct reached *reached = &links->reached[links->begin[quota]];
    search->count = links->begin[quota + 1] - links->begin[quota];
    search->instances = &links->instances[quota];
    search->asked = weir_must_zeroed(search->count, sizeof *search->asked);
    for (size_t i = 0; i < search->count; i++) {
        const struct weir_replay_request *request =
            &log->requests[reached[i].request];
        search->asked[i] =
            (struct asked){ request->at, reached[i].instance, request->weight };
    }
    search->refs =
        weir_must_zeroed(search->instances->count, sizeof *search->refs);
}

/* ---- Trying ---- */

/* The number of requests refused under that limit. */
static uint64_t refused_at(struct search *search, uint64_t units)
{
    weir_assert(search->count > 0);
    struct replay_table tried;
    uint64_t refused = 0;
    search->quota.limit.units = units;
    /* A limit that such a quota can't have refuses all requests. */
    if (weir_quota_check(&search->quota, NULL) < 0)
        return search->count;
    weir_instant begin = search->asked[0].at;
    table_init(&tried, &search->quota, 1, search->instances->count,
               search->seed, begin);
    for (uint32_t i = 0; i < search->instances->count; i++)
        (void)weir_table_resolve(tried.table, search->instances->items[i],
                                 false, &search->refs[i], begin);
    for (size_t i = 0; i < search->count; i++) {
        const struct asked *asked = &search->asked[i];
        if (asked->at >= tried.zones_until)
            update_zones(&tried, asked->at);
        unsigned outcome = weir_table_take(tried.table, tried.stripe,
                                           search->refs[asked->instance],
                                           asked->weight, NULL, asked->at);
        refused += (outcome & WEIR_OUTCOME_LIMITED) != 0;
    }
    table_fini(&tried);
    return refused;
}

static uint64_t units_max(weir_duration per)
{
    weir_u128 most = (weir_u128)WEIR_LIMIT_MAX * per / WEIR_SECOND;
    return most < (uint64_t)1 << 62 ? (uint64_t)most : (uint64_t)1 << 62;
}

static bool is_valid(struct search *search, uint64_t units,
                     struct weir_diag *diag)
{
    search->quota.limit.units = units;
    return weir_quota_check(&search->quota, diag) == 0;
}

/* The next limit to try above 'below', which refuses too many; 'below': there
 * is none. Beyond the highest limit that the quota's other fields allow, that
 * limit itself; '*diag' then says why a higher one isn't allowed. */
static uint64_t next_above(struct search *search, uint64_t below,
                           struct weir_diag *diag)
{
    uint64_t last = units_max(search->quota.limit.per);
    uint64_t next = below > last / 2 ? last : 2 * below;
    if (!is_valid(search, below, NULL) || is_valid(search, next, NULL))
        return next;
    uint64_t good = below;
    while (next - good > 1) {
        uint64_t middle = good + (next - good) / 2;
        if (is_valid(search, middle, NULL))
            good = middle;
        else
            next = middle;
    }
    (void)is_valid(search, next, diag);
    return good;
}

/* The smallest limit that refuses at most 'most'; 0: none does. */
static uint64_t find_least(struct search *search, uint64_t from, uint64_t most,
                           struct weir_diag *diag)
{
    uint64_t below = 0;
    uint64_t good = from > 0 ? from : 1;
    while (refused_at(search, good) > most) {
        below = good;
        good = next_above(search, below, diag);
        if (good == below)
            return 0;
    }
    while (good - below > 1) {
        weir_assert(good > below);
        uint64_t middle = below + (good - below) / 2;
        if (refused_at(search, middle) > most)
            below = middle;
        else
            good = middle;
    }
    return good;
}

static void suggest(struct search *search, double share,
                    struct weir_replay_suggestion *out)
{
    struct weir_limit *limit = &search->quota.limit;
    uint64_t now = limit->unlimited ? 1 : limit->units;
    out->asked = search->count;
    if (search->count == 0) {
        out->none = true;
        weir_diag_put(&out->why, 0, "nothing asked it");
        return;
    }
    if (limit->unlimited)
        *limit = (struct weir_limit){ .units = 1, .per = MINUTE };
    uint64_t most = (uint64_t)((double)search->count * share);
    struct weir_diag bound = { 0 };
    uint64_t least = find_least(search, now, most, &bound);
    if (least == 0) {
        out->none = true;
        if (bound.text[0])
            weir_diag_set(&out->why, 0, "none that it may have: ", bound.text,
                          NULL);
        else
            weir_diag_put(&out->why, 0,
                          "no limit would do: more than that weigh too much "
                          "for its burst");
        return;
    }
    out->refused = refused_at(search, least);
    weir_assert(out->refused <= most);
    out->limit = *limit;
}

void weir_replay_suggest(const struct weir_replay_log *log,
                         const struct weir_replay_set *set, double share,
                         uint64_t seed, struct weir_replay_suggestion **out)
{
    *out = weir_must_zeroed(set->count, sizeof **out);
    struct key_links links;
    links_init(&links, log, set);
    for (size_t i = 0; i < set->count; i++) {
        struct search search = { .quota = set->quotas[i], .seed = seed };
        search.quota.parent = (struct weir_text){ 0 };
        search.quota.overflow = (struct weir_text){ 0 };
        search.quota.mode = WEIR_ENFORCE;
        gather_quota(&search, log, &links, i);
        suggest(&search, share, &(*out)[i]);
        free(search.asked);
        free(search.refs);
    }
    links_fini(&links, set->count);
}
