/* SPDX-License-Identifier: MIT
 * cli/replay_suggest.c - the smallest limit under which few requests would have
 * been refused.
 *
 * Each quota is replayed alone: the requests with it in their chain, its
 * instances apart, and the decisions of a table without other quotas. Its
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

#include "lab/memory.h"

#define MINUTE (60 * WEIR_SECOND)

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
struct links {
    struct link {
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

static void look_up_keys(struct links *links, const struct weir_replay_log *log,
                         const struct weir_replay_set *set)
{
    struct weir_replay_link chain[WEIR_DEPTH_MAX];
    for (uint32_t i = 0; i < log->keys.count; i++) {
        links->first[i] = links->count;
        size_t count = weir_replay_chain(set, log->keys.items[i], chain);
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
                (struct link){ (uint32_t)chain[k].quota, instance };
        }
    }
    links->first[log->keys.count] = links->count;
}

/* First counts the requests of each quota, then moves each to its place. */
static void sort_requests(struct links *links,
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
            const struct link *link = &links->links[k];
            links->reached[place[link->quota]++] =
                (struct reached){ (uint32_t)i, link->instance };
        }
    }
    free(place);
}

static void links_init(struct links *links, const struct weir_replay_log *log,
                       const struct weir_replay_set *set)
{
    *links = (struct links){
        .first = weir_must_zeroed(log->keys.count + 1, sizeof(size_t)),
        .instances = weir_must_zeroed(set->count, sizeof *links->instances),
        .begin = weir_must_zeroed(set->count + 1, sizeof(size_t)),
    };
    look_up_keys(links, log, set);
    sort_requests(links, log, set->count);
}

static void links_fini(struct links *links, size_t quotas)
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
                         const struct links *links, size_t quota)
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
    struct weir_replay_table tried;
    uint64_t refused = 0;
    search->quota.limit.units = units;
    /* A limit that such a quota can't have refuses all requests. */
    if (weir_quota_check(&search->quota, NULL) < 0)
        return search->count;
    weir_instant begin = search->asked[0].at;
    weir_replay_table_init(&tried, &search->quota, 1, search->instances->count,
                           search->seed, begin);
    for (uint32_t i = 0; i < search->instances->count; i++)
        (void)weir_table_resolve(tried.table, search->instances->items[i],
                                 false, &search->refs[i], begin);
    for (size_t i = 0; i < search->count; i++) {
        const struct asked *asked = &search->asked[i];
        if (asked->at >= tried.zones_until)
            weir_replay_table_zones(&tried, asked->at);
        unsigned outcome = weir_table_take(tried.table, tried.stripe,
                                           search->refs[asked->instance],
                                           asked->weight, NULL, asked->at);
        refused += (outcome & WEIR_OUTCOME_LIMITED) != 0;
    }
    weir_replay_table_fini(&tried);
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
        weir_diag_set(&out->why, 0, "nothing asked it", NULL);
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
            weir_diag_set(&out->why, 0,
                          "no limit would do: more than that "
                          "weigh too much for its burst",
                          NULL);
        return;
    }
    out->refused = refused_at(search, least);
    weir_assert(out->refused <= most);
    out->limit = *limit;
}

int weir_replay_suggest(const struct weir_replay_log *log,
                        const struct weir_replay_set *set, double share,
                        uint64_t seed, struct weir_replay_suggestion **out)
{
    *out = weir_must_zeroed(set->count, sizeof **out);
    struct links links;
    links_init(&links, log, set);
    for (size_t i = 0; i < set->count; i++) {
        struct search search = { .quota = set->quotas[i], .seed = seed };
        search.quota.parent = (struct weir_text){ 0 };
        search.quota.overflow = (struct weir_text){ 0 };
        search.quota.mode = WEIR_ENFORCE;
        (*out)[i].quota = (int)i;
        gather_quota(&search, log, &links, i);
        suggest(&search, share, &(*out)[i]);
        free(search.asked);
        free(search.refs);
    }
    links_fini(&links, set->count);
    return 0;
}
