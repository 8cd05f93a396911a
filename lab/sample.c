/* SPDX-License-Identifier: MIT
 * lab/sample.c - the series of a simulated run: a part that wakes ten times a
 * bin and records the state, and the counts since the last sample; see
 * run_internal.h.
 *
 * A template's series covers all its instances. So each sample goes through all
 * truth buckets, and adds each to the series of its name or its template. */

#include <math.h>

#include "lab/memory.h"
#include "lab/run_internal.h"

/* Sums of a series at the last sample. */
struct sums {
    uint64_t offered, passed, refused, ideal_passed, ideal_refused;
};

struct weir_sampler {
    struct weir_part part; /* the first member */
    struct weir_run *run;
    struct sums *before;           /* owned; by series: quotas, then loads */
    struct weir_fleet_stats stats; /* at the last sample */
};

/* ---- A quota ---- */

/* The means of the limiters' fills and of their distance from the truth. */
static void sample_limiters(const struct weir_run *run,
                            const struct weir_truth_bucket *bucket,
                            struct weir_quota_sample *sample)
{
    double sum = 0, off = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < run->scenario->limiters; i++) {
        double fill;
        if (!weir_limiter_belief(run, i, bucket->name, &fill))
            continue;
        sum += fill;
        off += fabs(fill - sample->fill);
        count++;
    }
    sample->limiter_fill = count > 0 ? sum / count : NAN;
    sample->divergence = count > 0 ? off / count : NAN;
}

static double count_since(uint64_t now, uint64_t *before)
{
    double more = (double)(int64_t)(now - *before);
    *before = now;
    return more;
}

/* The series' counts since the last sample. */
static void write_sums(const struct sums *sums, struct sums *before,
                       struct weir_quota_sample *sample)
{
    sample->offered = count_since(sums->offered, &before->offered);
    sample->passed = count_since(sums->passed, &before->passed);
    sample->refused = count_since(sums->refused, &before->refused);
    sample->ideal_passed =
        count_since(sums->ideal_passed, &before->ideal_passed);
    sample->ideal_refused =
        count_since(sums->ideal_refused, &before->ideal_refused);
}

/* Adds one bucket of a series; true: the fullest so far. */
static bool add_bucket_sample(struct weir_run *run,
                              struct weir_truth_bucket *bucket,
                              struct sums *sums,
                              struct weir_quota_sample *sample)
{
    sums->offered += bucket->offered;
    sums->passed += bucket->passed;
    sums->refused += bucket->refused;
    sums->ideal_passed += bucket->ideal_passed;
    sums->ideal_refused += bucket->ideal_refused;
    sample->limit_per_s += bucket->limit_per_s;
    sample->fill_most = fmax(sample->fill_most, bucket->fill_most);
    sample->over_high_most =
        fmax(sample->over_high_most, bucket->over_high_most);
    double fill = weir_truth_fill(run->truth, bucket);
    if (fill < sample->fill)
        return false;
    sample->fill = fill;
    sample->low = bucket->low;
    sample->high = bucket->high;
    return true;
}

static void sample_quota(struct weir_sampler *sampler, size_t series,
                         struct weir_quota_sample *sample)
{
    struct weir_run *run = sampler->run;
    struct weir_text name = weir_text_of(run->result->quotas[series].name);
    struct weir_truth_bucket *fullest = NULL, *bucket;
    struct sums sums = { 0 };
    *sample = (struct weir_quota_sample){ .root_fill = NAN,
                                          .limiter_fill = NAN,
                                          .divergence = NAN };
    for (size_t i = 0; (bucket = weir_truth_at(run->truth, i)) != NULL; i++) {
        if (weir_truth_is_of(bucket, name) &&
            add_bucket_sample(run, bucket, &sums, sample))
            fullest = bucket;
    }
    write_sums(&sums, &sampler->before[series], sample);
    if (!fullest)
        return;
    sample->root_fill = weir_largest_root_fill(run, fullest->name);
    sample_limiters(run, fullest, sample);
}

/* ---- A load ---- */

/* The limit of the load's quota at the sample, which has its series. */
static double limit_of_load(const struct weir_run *run, const char *load,
                            size_t at)
{
    const char *quota = NULL;
    for (size_t i = 0; i < run->scenario->load_count; i++) {
        if (strcmp(run->scenario->loads[i].name, load) == 0)
            quota = run->scenario->loads[i].quota;
    }
    const struct weir_result *result = run->result;
    for (size_t i = 0; i < result->quota_count && quota; i++) {
        if (strcmp(result->quotas[i].name, quota) == 0)
            return result->quotas[i].samples[at].limit_per_s;
    }
    return NAN;
}

static void sample_load(struct weir_sampler *sampler, size_t load, size_t at)
{
    struct weir_run *run = sampler->run;
    struct weir_result *result = run->result;
    const struct weir_quota_series *series = &result->loads[load];
    struct weir_load_sums sums = weir_loads_sums(run->loads, series->name);
    const struct sums now = { .offered = sums.offered,
                              .passed = sums.passed,
                              .refused = sums.limited };
    struct weir_quota_sample *sample = &series->samples[at];
    write_sums(&now, &sampler->before[result->quota_count + load], sample);
    sample->limit_per_s = limit_of_load(run, series->name, at);
}

/* ---- The fleet ---- */

static void sample_fleet(struct weir_sampler *sampler,
                         struct weir_fleet_sample *sample)
{
    struct weir_run *run = sampler->run;
    struct weir_fleet_stats stats;
    weir_fleet_stats(run->fleet, &stats);
    struct weir_fleet_stats *before = &sampler->stats;
    *sample = (struct weir_fleet_sample){
        .reports = count_since(stats.reports, &before->reports),
        .messages = count_since(stats.messages, &before->messages),
        .bytes = count_since(stats.bytes, &before->bytes),
        .links = weir_count_links(run),
        .limiters = weir_count_alive(run, false),
        .roots = weir_count_alive(run, true),
        .waiting_bytes = (double)stats.waiting_bytes_most,
        .unseen_share = run->check ? weir_check_unseen_share(run->check) : NAN,
    };
}

/* ---- The part ---- */

static void forget_most(struct weir_run *run)
{
    struct weir_truth_bucket *bucket;
    for (size_t i = 0; (bucket = weir_truth_at(run->truth, i)) != NULL; i++)
        weir_truth_forget_most(run->truth, bucket);
}

static void take_fleet_sample(struct weir_part *part, weir_instant now)
{
    struct weir_sampler *sampler = (struct weir_sampler *)part;
    struct weir_run *run = sampler->run;
    struct weir_result *result = run->result;
    size_t at = result->sample_count++;
    weir_assert(at < weir_result_capacity(run->scenario));
    for (size_t i = 0; i < result->quota_count; i++)
        sample_quota(sampler, i, &result->quotas[i].samples[at]);
    for (size_t i = 0; i < result->load_count; i++)
        sample_load(sampler, i, at);
    sample_fleet(sampler, &result->fleet[at]);
    weir_director_sampled(run->director);
    forget_most(run);
    if (result->sample_count < weir_result_capacity(run->scenario))
        weir_world_wake(weir_fleet_world(run->fleet), part, now + result->step);
}

void weir_sampler_start(struct weir_sampler *sampler)
{
    struct weir_run *run = sampler->run;
    weir_fleet_stats(run->fleet, &sampler->stats);
    /* Quotas without requests have a fill, too. */
    for (size_t i = 0; i < run->scenario->quota_count; i++) {
        if (!weir_quota_is_template(&run->scenario->quotas[i]))
            weir_truth_use(run->truth, run->scenario->quotas[i].name);
    }
    forget_most(run);
    weir_world_wake(weir_fleet_world(run->fleet), &sampler->part,
                    run->start + run->result->step);
}

struct weir_sampler *weir_sampler_new(struct weir_run *run)
{
    struct weir_sampler *sampler = weir_must_zeroed(1, sizeof(*sampler));
    sampler->part =
        (struct weir_part){ .name = "sample", .run = take_fleet_sample };
    sampler->run = run;
    sampler->before =
        weir_must_zeroed(run->result->quota_count + run->result->load_count,
                         sizeof(*sampler->before));
    return sampler;
}

void weir_sampler_free(struct weir_sampler *sampler)
{
    if (!sampler)
        return;
    weir_world_wake(weir_fleet_world(sampler->run->fleet), &sampler->part,
                    WEIR_NEVER);
    free(sampler->before);
    free(sampler);
}
