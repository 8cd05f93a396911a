/* SPDX-License-Identifier: MIT
 * protocol/rlqs/rlqs_service.c - the assignments of Envoy's buckets.
 *
 *     stream of an Envoy -- bucket --+
 *                        -- bucket --|--> share: a quota's name, its handle,
 *     stream of another  -- bucket --+    the demand of all of them
 *
 * A share is one quota in this process, with the buckets of that name of all
 * streams. A bucket's demand is its passed and denied requests by the time
 * since its last report. The sum of the demands, with a little more to detect
 * growth, is the process's want of a leased quota; a bucket's part of the grant
 * is its part of the demand. A new bucket's first report tells no demand (Envoy
 * sends it with the first request, and the next one seconds later). Until it is
 * known, the bucket counts with the mean of the others, and the process wants
 * as much as it can get.
 *
 * All buckets of a report are named and authorized before the first is charged:
 * a report that is refused for a name has charged nothing.
 *
 * A report is answered for each of its buckets, which also renews their
 * assignments. Between reports an assignment is sent only if it differs by more
 * than a tenth.
 *
 * Rejected: giving the whole limit to each Envoy and correcting it by the
 * reports (N times the limit at every onset of load). */

#include "protocol/rlqs/rlqs_service.h"

#include <stdlib.h>
#include <string.h>

#include "codec/rls_name.h"
#include "core/base/hash.h"
#include "core/quota/long_name.h"
#include "io/clock.h"
#include "io/h2.h"

#define SHARES_SIZE 4096u /* hash lists of shares; a power of two */
#define WANT_MORE 1.25    /* the want is so many times the demand */
#define WANT_LEAST 1.0    /* the least want, in units per second */
#define WANT_FIRST 1e9    /* the want while a bucket's demand is unknown */
#define SENT_RATIO 0.1    /* a smaller difference isn't sent */
#define ELAPSED_LEAST (WEIR_SECOND / 10)

struct share {
    struct share *next; /* in its hash list */
    struct weir_handle handle;
    double demand;        /* units per second, of all its buckets */
    struct bucket *first; /* of all streams' buckets */
    uint32_t buckets;
    uint32_t fresh; /* buckets that have reported only once */
    bool refused;   /* its name has no slot: it is limited */
    size_t name_len;
    char name[]; /* bytes */
};

enum delivery {
    DELIVERED,  /* or nothing is assigned yet */
    IN_MESSAGE, /* in the response that the caller is sending */
    UNSENT,     /* sending it has failed */
};

struct bucket {
    struct bucket *next;    /* in its stream's list */
    struct bucket *sibling; /* in its share's list */
    struct weir_rlqs_stream *stream;
    struct share *share;
    double demand; /* units per second */
    uint64_t reports;
    weir_instant reported;
    weir_duration lives;
    struct weir_rlqs_action assigned;
    enum delivery delivery; /* of 'assigned' */
    size_t id_len;
    char id[]; /* the id's bytes */
};

struct weir_rlqs_stream {
    struct weir_rlqs_service *service; /* borrowed */
    struct weir_protocol_taker taker;
    struct bucket *buckets; /* owned */
    uint32_t bucket_count;
    size_t domain_len; /* 0: not received yet */
    char domain[WEIR_NAME_MAX];
};

struct weir_rlqs_service {
    const struct weir_protocol_host *host; /* borrowed */
    struct share *shares[SHARES_SIZE];     /* owned */
    struct weir_diag diag;
    unsigned char *out; /* owned */
    size_t out_len, out_size;
    struct weir_arena arena; /* of a message that was read: 'memory' */
    unsigned char memory[WEIR_RLQS_ARENA_SIZE];
    char name[WEIR_GIVEN_NAME_MAX]; /* of the usage at hand … */
    char key[WEIR_NAME_MAX];        /* … and its key, if it is long */
};

/* ---- Shares ---- */

/* The identity of a quota's name here: the name, or of a long one its hash and
 * beginning. */
struct usage_name {
    struct weir_text given;
    struct weir_text key;
    bool too_long; /* over the bound: limited */
};

static struct share **share_list(struct weir_rlqs_service *service,
                                 struct weir_text key)
{
    return &service->shares[weir_hash(key, 0) % SHARES_SIZE];
}

static struct weir_text share_key(const struct share *share)
{
    return (struct weir_text){ share->name, share->name_len };
}

static struct share *find_share(struct weir_rlqs_service *service,
                                struct weir_text key)
{
    struct share *share = *share_list(service, key);
    while (share && !weir_text_equal(share_key(share), key))
        share = share->next;
    return share;
}

/* NULL: no memory, or another thread has the table's lock. */
static struct share *get_share(struct weir_rlqs_service *service,
                               const struct usage_name *name)
{
    struct share *share = find_share(service, name->key);
    if (share)
        return share;
    share = calloc(1, sizeof *share + name->key.len);
    if (!share)
        return NULL;
    int error = name->too_long
                    ? WEIR_ENAME
                    : weir_handle_open(service->host->weir, name->given.p,
                                       name->given.len, &share->handle);
    /* Without room the rest of the chain decides. */
    if (error < 0 && error != WEIR_EFULL && error != WEIR_ENAME) {
        free(share);
        return NULL;
    }
    memcpy(share->name, name->key.p, name->key.len);
    share->name_len = name->key.len;
    share->refused = error == WEIR_ENAME;
    share->next = *share_list(service, name->key);
    *share_list(service, name->key) = share;
    return share;
}

static void leave_share(struct weir_rlqs_service *service,
                        struct bucket *bucket)
{
    struct share *share = bucket->share;
    struct bucket **to = &share->first;
    while (*to != bucket)
        to = &(*to)->sibling;
    *to = bucket->sibling;
    share->demand -= bucket->demand;
    weir_assert(share->buckets > 0 && share->fresh >= (bucket->reports < 2));
    share->fresh -= bucket->reports < 2;
    if (--share->buckets > 0)
        return;
    struct share **at = share_list(service, share_key(share));
    while (*at != share)
        at = &(*at)->next;
    *at = share->next;
    weir_handle_close(share->handle);
    free(share);
}

/* ---- Buckets ---- */

static struct weir_text bucket_id(const struct bucket *bucket)
{
    return (struct weir_text){ bucket->id, bucket->id_len };
}

/* Searches the share's list: a name has about one bucket per Envoy. */
static struct bucket *find_stream_bucket(struct weir_rlqs_stream *stream,
                                         struct weir_text key)
{
    const struct share *share = find_share(stream->service, key);
    struct bucket *bucket = share ? share->first : NULL;
    while (bucket && bucket->stream != stream)
        bucket = bucket->sibling;
    return bucket;
}

/* NULL: no memory. */
static struct bucket *add_stream_bucket(struct weir_rlqs_stream *stream,
                                        const struct usage_name *name,
                                        struct weir_text id)
{
    struct bucket *bucket = calloc(1, sizeof *bucket + id.len);
    struct share *share = bucket ? get_share(stream->service, name) : NULL;
    if (!share) {
        free(bucket);
        return NULL;
    }
    memcpy(bucket->id, id.p, id.len);
    bucket->id_len = id.len;
    bucket->stream = stream;
    bucket->share = share;
    bucket->sibling = share->first;
    share->first = bucket;
    share->buckets++;
    share->fresh++;
    bucket->next = stream->buckets;
    stream->buckets = bucket;
    stream->bucket_count++;
    return bucket;
}

/* Frees the bucket at 'at' and takes it off the list. */
static void drop_bucket(struct weir_rlqs_stream *stream, struct bucket **at)
{
    struct bucket *bucket = *at;
    weir_assert(stream->bucket_count > 0);
    *at = bucket->next;
    stream->bucket_count--;
    leave_share(stream->service, bucket);
    free(bucket);
}

/* ---- Assignments ---- */

/* Converts a rate per second to whole tokens per interval. */
static void set_action_rate(double rate, struct weir_rlqs_action *action)
{
    if (rate <= 1.0 / 86400) {
        action->what = WEIR_RLQS_DENY_ALL;
        return;
    }
    action->what = WEIR_RLQS_BUCKET;
    action->interval =
        rate < 1 ? (weir_duration)(WEIR_SECOND / rate) : WEIR_SECOND;
    action->tokens = rate < 1            ? 1
                     : rate > UINT32_MAX ? UINT32_MAX
                                         : (uint32_t)rate;
}

static double demand_part(const struct bucket *bucket)
{
    const struct share *share = bucket->share;
    return share->demand > 0 ? bucket->demand / share->demand
                             : 1.0 / share->buckets;
}

/* Units that the quota refills in the time 'in'. */
static double refilled_units(const struct bucket *bucket,
                             const struct weir_reply *reply, weir_duration in)
{
    struct weir_policy policy;
    struct weir *weir = bucket->stream->service->host->weir;
    if (weir_policy(weir, reply->quota, reply->quota_len, &policy) < 0 ||
        policy.window == 0)
        return 0;
    return (double)policy.quantity / (double)policy.window * (double)in;
}

/* Half of the units left and of those that refill until the next report. */
static void set_half(const struct bucket *bucket,
                     const struct weir_reply *reply,
                     struct weir_rlqs_action *action)
{
    action->what = WEIR_RLQS_BUCKET;
    action->interval = bucket->lives / 3;
    double half = ((double)reply->remaining +
                   refilled_units(bucket, reply, action->interval)) /
                  2 * demand_part(bucket);
    action->tokens = half < 1            ? 1
                     : half > UINT32_MAX ? UINT32_MAX
                                         : (uint32_t)half;
}

static struct weir_rlqs_action choose_action(const struct bucket *bucket,
                                             weir_instant now)
{
    struct weir_reply reply;
    struct weir_rlqs_action action = { .bucket = bucket_id(bucket),
                                       .what = WEIR_RLQS_ALLOW_ALL,
                                       .lives = bucket->lives };
    if (bucket->share->refused) {
        action.what = WEIR_RLQS_DENY_ALL;
        return action;
    }
    (void)weir_peek(bucket->share->handle, 1, &reply, now);
    action.granted = reply.leased;
    if (reply.leased && reply.granted < (double)UINT64_MAX)
        set_action_rate(reply.granted * demand_part(bucket), &action);
    else if (reply.verdict == WEIR_LIMITED)
        action.what = WEIR_RLQS_DENY_ALL;
    else if (!reply.unknown && reply.remaining < UINT64_MAX)
        set_half(bucket, &reply, &action);
    return action;
}

/* Whether an assignment is worth sending between reports. A new token bucket is
 * full, so only a grant justifies one. */
static bool is_worth_sending(const struct weir_rlqs_action *a,
                             const struct weir_rlqs_action *b)
{
    if (a->what != b->what)
        return true;
    if (a->what != WEIR_RLQS_BUCKET || !a->granted)
        return false;
    double one = (double)a->tokens / (double)a->interval;
    double other = (double)b->tokens / (double)b->interval;
    double most = one > other ? one : other;
    return one - other > SENT_RATIO * most || other - one > SENT_RATIO * most;
}

/* ---- Answers ---- */

/* False: no memory, or no room in one message. */
static bool add_action(struct weir_rlqs_service *service,
                       const struct weir_rlqs_action *action)
{
    weir_assert(service->out_len <= service->out_size);
    size_t size = weir_rlqs_size(action);
    if (size > WEIR_H2_MESSAGE_MAX - service->out_len)
        return false;
    unsigned char *grown =
        weir_mem_grow(&weir_mem_system, service->out, 1, &service->out_size,
                      service->out_len + size);
    if (!grown)
        return false;
    service->out = grown;
    service->out_len +=
        weir_rlqs_encode(action, service->out + service->out_len);
    return true;
}

static struct weir_text take_message(struct weir_rlqs_service *service)
{
    struct weir_text out = { (const char *)service->out, service->out_len };
    service->out_len = 0;
    return out;
}

static void put_action(struct weir_rlqs_service *service, struct bucket *bucket,
                       const struct weir_rlqs_action *action)
{
    weir_assert(bucket->delivery != IN_MESSAGE);
    if (!add_action(service, action))
        return;
    bucket->assigned = *action;
    bucket->delivery = IN_MESSAGE;
}

/* ---- Reports ---- */

static void set_demand(struct bucket *bucket, double asked)
{
    struct share *share = bucket->share;
    bucket->reports++;
    weir_assert(share->buckets > 0 && share->fresh <= share->buckets);
    if (bucket->reports == 2) {
        weir_assert(share->fresh > 0);
        share->fresh--;
    }
    double mean = share->demand / share->buckets;
    if (bucket->reports == 1 && asked < mean)
        asked = mean;
    share->demand += asked - bucket->demand;
    bucket->demand = asked;
}

static void set_want(const struct share *share, weir_instant now)
{
    double wants = share->demand * WANT_MORE + WANT_LEAST;
    if (share->fresh > 0 && wants < WANT_FIRST)
        wants = WANT_FIRST;
    (void)weir_want(share->handle, wants < 1e18 ? wants : 1e18, now);
}

static void charge_usage(struct bucket *bucket,
                         const struct weir_rlqs_usage *usage, weir_instant now)
{
    weir_duration since =
        usage->elapsed > ELAPSED_LEAST ? usage->elapsed : ELAPSED_LEAST;
    set_demand(bucket, ((double)usage->allowed + (double)usage->denied) *
                           (double)WEIR_SECOND / (double)since);
    bucket->reported = now;
    bucket->lives =
        3 * since > WEIR_RLQS_LIVES_MIN ? 3 * since : WEIR_RLQS_LIVES_MIN;
    uint64_t passed =
        usage->allowed < WEIR_WEIGHT_MAX ? usage->allowed : WEIR_WEIGHT_MAX;
    if (passed > 0)
        weir_charge(bucket->share->handle, passed, now);
    set_want(bucket->share, now);
}

static int refuse_report(struct weir_rlqs_stream *stream, int status,
                         const char *sentence, struct weir_text *out)
{
    struct weir_rlqs_service *service = stream->service;
    weir_diag_put(&service->diag, 0, sentence);
    weir_protocol_note(service->host, WEIR_PROTOCOL_RLQS, WEIR_PROTOCOL_INVALID,
                       stream->taker.address, sentence);
    *out = weir_text_of(service->diag.text);
    return status;
}

/* In the service's memory. */
static struct usage_name name_usage(const struct weir_rlqs_stream *stream,
                                    const struct weir_rlqs_usage *usage)
{
    struct weir_rlqs_service *service = stream->service;
    struct weir_rls_name name;
    weir_rls_name_begin(
        &name, service->name, sizeof service->name,
        (struct weir_text){ stream->domain, stream->domain_len });
    for (size_t i = 0; i < usage->pair_count; i++)
        weir_rls_name_add(&name, usage->pairs[i].key, usage->pairs[i].value,
                          false);
    struct weir_text given = { name.buf, name.len };
    return (struct usage_name){ given, weir_name_kept(given, service->key),
                                name.too_long };
}

/* Returns WEIR_GRPC_OK, or a status with its sentence in 'out', as the next two
 * functions do. */
static int check_usage(struct weir_rlqs_stream *stream,
                       const struct weir_rlqs_usage *usage,
                       struct weir_text *out, weir_instant now)
{
    struct weir_rlqs_service *service = stream->service;
    struct usage_name name = name_usage(stream, usage);
    if (name.too_long)
        weir_protocol_note(service->host, WEIR_PROTOCOL_RLQS,
                           WEIR_PROTOCOL_TOO_BIG, stream->taker.address,
                           "the name of a bucket is over 65536 bytes");
    if (find_stream_bucket(stream, name.key) ||
        weir_protocol_may(service->host, &stream->taker, name.given,
                          &service->diag, now) == 0)
        return WEIR_GRPC_OK;
    weir_protocol_note_refused(service->host, WEIR_PROTOCOL_RLQS, WEIR_EDENIED,
                               stream->taker.address, service->diag.text);
    *out = weir_text_of(service->diag.text);
    return WEIR_GRPC_PERMISSION_DENIED;
}

/* For a usage that check_usage() has accepted. */
static int take_usage(struct weir_rlqs_stream *stream,
                      const struct weir_rlqs_usage *usage,
                      struct weir_text *out, weir_instant now)
{
    struct usage_name name = name_usage(stream, usage);
    struct bucket *bucket = find_stream_bucket(stream, name.key);
    if (!bucket && stream->bucket_count == WEIR_RLQS_BUCKETS_MAX)
        return refuse_report(stream, WEIR_GRPC_RESOURCE_EXHAUSTED,
                             "more than 4096 buckets on one stream", out);
    weir_assert(stream->bucket_count <= WEIR_RLQS_BUCKETS_MAX);
    if (!bucket)
        bucket = add_stream_bucket(stream, &name, usage->bucket);
    if (!bucket)
        return refuse_report(stream, WEIR_GRPC_RESOURCE_EXHAUSTED,
                             "out of memory", out);
    charge_usage(bucket, usage, now);
    return WEIR_GRPC_OK;
}

static int take_usages(struct weir_rlqs_stream *stream,
                       const struct weir_rlqs_reports *reports,
                       struct weir_text *out, weir_instant now)
{
    int status = WEIR_GRPC_OK;
    for (size_t i = 0; status == WEIR_GRPC_OK && i < reports->count; i++)
        status = check_usage(stream, &reports->usages[i], out, now);
    for (size_t i = 0; status == WEIR_GRPC_OK && i < reports->count; i++)
        status = take_usage(stream, &reports->usages[i], out, now);
    return status;
}

static int set_domain(struct weir_rlqs_stream *stream, struct weir_text domain,
                      struct weir_text *out)
{
    if (stream->domain_len > 0)
        return WEIR_GRPC_OK;
    if (domain.len == 0)
        return refuse_report(stream, WEIR_GRPC_INVALID_ARGUMENT,
                             "the first report of a stream must have a domain",
                             out);
    if (domain.len > sizeof stream->domain)
        return refuse_report(stream, WEIR_GRPC_INVALID_ARGUMENT,
                             "the domain is over 255 bytes", out);
    memcpy(stream->domain, domain.p, domain.len);
    stream->domain_len = domain.len;
    return WEIR_GRPC_OK;
}

int weir_rlqs_stream_report(struct weir_rlqs_stream *stream, const void *bytes,
                            size_t len, struct weir_text *out, weir_instant now)
{
    struct weir_rlqs_service *service = stream->service;
    struct weir_rlqs_reports reports;
    int error = weir_protocol_check_start(service->host, &service->diag);
    if (error < 0) {
        weir_protocol_note_refused(service->host, WEIR_PROTOCOL_RLQS, error,
                                   stream->taker.address, service->diag.text);
        *out = weir_text_of(service->diag.text);
        return WEIR_GRPC_UNAVAILABLE;
    }
    error =
        weir_rlqs_decode(bytes, len, &service->arena, &reports, &service->diag);
    if (error < 0) {
        weir_protocol_note(service->host, WEIR_PROTOCOL_RLQS,
                           WEIR_PROTOCOL_INVALID, stream->taker.address,
                           service->diag.text);
        *out = weir_text_of(service->diag.text);
        return error == WEIR_ETOOBIG ? WEIR_GRPC_RESOURCE_EXHAUSTED
                                     : WEIR_GRPC_INVALID_ARGUMENT;
    }
    int status = set_domain(stream, reports.domain, out);
    if (status == WEIR_GRPC_OK)
        status = take_usages(stream, &reports, out, now);
    if (status != WEIR_GRPC_OK)
        return status;
    /* All usages are charged before the first action is made. The buckets of
     * this report are those with 'reported' at this instant. */
    for (struct bucket *b = stream->buckets; b; b = b->next) {
        if (b->reported != now)
            continue;
        struct weir_rlqs_action action = choose_action(b, now);
        put_action(service, b, &action);
    }
    *out = take_message(service);
    return WEIR_GRPC_OK;
}

struct weir_text weir_rlqs_stream_look(struct weir_rlqs_stream *stream,
                                       weir_instant now)
{
    struct weir_rlqs_service *service = stream->service;
    for (struct bucket *b = stream->buckets; b; b = b->next) {
        struct weir_rlqs_action action = choose_action(b, now);
        if (now > b->reported + WEIR_RLQS_SILENCE_MAX)
            action.what = WEIR_RLQS_ABANDON;
        if (b->delivery == UNSENT || is_worth_sending(&action, &b->assigned))
            put_action(service, b, &action);
    }
    return take_message(service);
}

/* An abandoned bucket is kept until its action is sent: Envoy would go on with
 * the last assignment. */
void weir_rlqs_stream_sent(struct weir_rlqs_stream *stream, bool is_sent)
{
    struct bucket **at = &stream->buckets;
    while (*at) {
        struct bucket *bucket = *at;
        bool was_in_message = bucket->delivery == IN_MESSAGE;
        if (was_in_message)
            bucket->delivery = is_sent ? DELIVERED : UNSENT;
        if (was_in_message && is_sent &&
            bucket->assigned.what == WEIR_RLQS_ABANDON)
            drop_bucket(stream, at);
        else
            at = &bucket->next;
    }
}

/* ---- Life ---- */

struct weir_rlqs_stream *weir_rlqs_stream_new(
    struct weir_rlqs_service *service, const struct weir_protocol_taker *taker)
{
    struct weir_rlqs_stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return NULL;
    stream->service = service;
    stream->taker = *taker;
    return stream;
}

void weir_rlqs_stream_free(struct weir_rlqs_stream *stream)
{
    if (!stream)
        return;
    while (stream->buckets)
        drop_bucket(stream, &stream->buckets);
    weir_assert(stream->bucket_count == 0);
    free(stream);
}

struct weir_rlqs_service *weir_rlqs_service_new(
    const struct weir_protocol_host *host)
{
    struct weir_rlqs_service *service = calloc(1, sizeof *service);
    if (!service)
        return NULL;
    service->host = host;
    service->arena =
        (struct weir_arena){ service->memory, sizeof service->memory, 0 };
    return service;
}

void weir_rlqs_service_free(struct weir_rlqs_service *service)
{
    if (!service)
        return;
    weir_mem_system.free(NULL, service->out, service->out_size);
    free(service);
}
