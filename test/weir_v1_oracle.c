/* SPDX-License-Identifier: MIT
 * weir_v1_oracle.c - the slow and plain reader, by the generated code. */

#include "weir_v1_oracle.h"

#include <string.h>

#include "weir.pb-c.h"

static bool same_announce(const Weir__V1__Announce *theirs,
                          const struct weir_announce *ours)
{
    return theirs->slot == ours->slot && theirs->created == ours->created &&
           theirs->passed == ours->base && theirs->limited == ours->refused &&
           theirs->fill == ours->fill && theirs->witnessed == ours->witnessed &&
           theirs->sank == ours->sank && theirs->in_flight == ours->in_flight &&
           theirs->name.len == ours->name.len &&
           memcmp(theirs->name.data, ours->name.p, ours->name.len) == 0;
}

/* Takes the value of row 'row' from a sparse pair of columns. */
static bool is_sparse_row(size_t count, const uint32_t *steps, size_t *at,
                          uint64_t *sum, size_t row)
{
    if (*at == count || *sum + steps[*at] != row)
        return false;
    *sum += steps[(*at)++];
    return true;
}

static bool same_counts(const Weir__V1__Counts *theirs,
                        const struct weir_report *ours)
{
    if (!theirs)
        return ours->count == 0;
    if (theirs->n_slot_steps != ours->count ||
        theirs->n_passed != ours->count ||
        theirs->n_limited != theirs->n_limited_steps ||
        theirs->n_late != theirs->n_late_steps ||
        theirs->n_pace != theirs->n_pace_steps ||
        theirs->n_carry != theirs->n_carry_steps ||
        theirs->n_ahead != theirs->n_ahead_steps)
        return false;
    uint64_t slot = 0, refused_sum = 0, late_sum = 0, pace_sum = 0;
    uint64_t carry_sum = 0, ahead_sum = 0;
    size_t refused_at = 0, late_at = 0, pace_at = 0;
    size_t carry_at = 0, ahead_at = 0;
    for (size_t i = 0; i < ours->count; i++) {
        const struct weir_count *row = &ours->counts[i];
        slot += theirs->slot_steps[i];
        uint64_t refused = 0, pace = 0;
        int64_t late = 0;
        if (is_sparse_row(theirs->n_limited, theirs->limited_steps, &refused_at,
                          &refused_sum, i))
            refused = theirs->limited[refused_at - 1];
        if (is_sparse_row(theirs->n_late, theirs->late_steps, &late_at,
                          &late_sum, i))
            late = theirs->late[late_at - 1];
        if (is_sparse_row(theirs->n_pace, theirs->pace_steps, &pace_at,
                          &pace_sum, i))
            pace = theirs->pace[pace_at - 1];
        uint64_t carry = ours->carried ? (uint64_t)row->passed : 0;
        if (is_sparse_row(theirs->n_carry, theirs->carry_steps, &carry_at,
                          &carry_sum, i))
            carry += (uint64_t)theirs->carry[carry_at - 1];
        uint64_t ahead = 0;
        if (is_sparse_row(theirs->n_ahead, theirs->ahead_steps, &ahead_at,
                          &ahead_sum, i))
            ahead = theirs->ahead[ahead_at - 1];
        if ((uint64_t)row->carry != carry || row->ahead != ahead)
            return false;
        if (row->slot != slot || row->passed != theirs->passed[i] ||
            row->refused != refused || row->late != late || row->pace != pace)
            return false;
    }
    return refused_at == theirs->n_limited && late_at == theirs->n_late &&
           pace_at == theirs->n_pace && carry_at == theirs->n_carry &&
           ahead_at == theirs->n_ahead;
}

static bool same_text(ProtobufCBinaryData theirs, struct weir_text ours)
{
    return theirs.len == ours.len &&
           (ours.len == 0 || memcmp(theirs.data, ours.p, ours.len) == 0);
}

static bool same_report(const Weir__V1__Report *theirs,
                        const struct weir_report *ours)
{
    if (!theirs || theirs->number != ours->number ||
        theirs->epoch != ours->epoch ||
        theirs->late_from_ns != ours->late_from ||
        theirs->unknown != ours->unknown ||
        theirs->contended != ours->contended ||
        theirs->lacking != ours->lacking ||
        theirs->overflowed != ours->overflowed ||
        theirs->passes_on_full != ours->passes_on_full ||
        theirs->few_roots != ours->few_roots || theirs->echo_ns != ours->echo ||
        theirs->carried != ours->carried ||
        theirs->table_full != ours->no_room || theirs->again != ours->again ||
        !same_text(theirs->below, ours->below) ||
        theirs->n_announces != ours->announce_count)
        return false;
    for (size_t i = 0; i < ours->announce_count; i++) {
        if (!same_announce(theirs->announces[i], &ours->announces[i]))
            return false;
    }
    return same_counts(theirs->counts, ours);
}

static bool same_slots(const uint32_t *theirs, const uint32_t *ours,
                       size_t count)
{
    return count == 0 || memcmp(theirs, ours, count * sizeof *ours) == 0;
}

static bool same_fills(const Weir__V1__Fills *theirs,
                       const struct weir_fills *ours)
{
    if (!theirs || theirs->number != ours->number ||
        theirs->stamp != ours->stamp ||
        theirs->report_backoff_ns != ours->report_backoff ||
        theirs->limiters != ours->limiters || theirs->roots != ours->roots ||
        theirs->top_age_ns != ours->top_age || theirs->age_ns != ours->age ||
        theirs->n_slot_steps != ours->count || theirs->n_fill != ours->count ||
        theirs->n_slack != ours->count ||
        (theirs->n_pace != 0 && theirs->n_pace != ours->count) ||
        theirs->n_unknown != ours->unknown_count ||
        theirs->n_denied != ours->denied_count)
        return false;
    uint64_t slot = 0;
    for (size_t i = 0; i < ours->count; i++) {
        slot += theirs->slot_steps[i];
        uint64_t slack =
            theirs->slack[i] == 0 ? UINT64_MAX : theirs->slack[i] - 1;
        if (ours->fills[i].slot != slot ||
            ours->fills[i].fill != theirs->fill[i] ||
            ours->fills[i].slack != slack ||
            ours->fills[i].pace != (theirs->n_pace ? theirs->pace[i] : 0))
            return false;
    }
    return same_slots(theirs->unknown, ours->unknown, ours->unknown_count) &&
           same_slots(theirs->denied, ours->denied, ours->denied_count);
}

static bool same_ask(const Weir__V1__Ask *theirs,
                     const struct weir_step_ask *ours)
{
    return theirs->number == ours->number &&
           theirs->name.len == ours->name.len &&
           memcmp(theirs->name.data, ours->name.p, ours->name.len) == 0 &&
           theirs->op == (uint32_t)ours->ask.op &&
           theirs->weight == ours->ask.weight &&
           theirs->wait_max_ns == ours->ask.wait_max &&
           theirs->level == ours->ask.level &&
           theirs->patience_ns == ours->patience &&
           theirs->permit == ours->ask.permit;
}

static bool same_asks(const Weir__V1__Asks *theirs,
                      const struct weir_asks *ours)
{
    if (theirs->n_asks != ours->count)
        return false;
    for (size_t i = 0; i < ours->count; i++) {
        if (!same_ask(theirs->asks[i], &ours->asks[i]))
            return false;
    }
    return true;
}

/* With an error the other fields are ignored. */
static bool same_answer(const Weir__V1__Answer *theirs,
                        const struct weir_step_answer *ours)
{
    const struct weir_algorithm_answer *answer = &ours->answer;
    if (theirs->number != ours->number ||
        theirs->error != (uint32_t)ours->error)
        return false;
    return theirs->error != 0 ||
           (theirs->passed == answer->passed &&
            theirs->never == answer->never && theirs->level == answer->level &&
            theirs->used == answer->used &&
            theirs->remaining == answer->remaining &&
            theirs->retry_after_ns == answer->retry_after &&
            theirs->wait_ns == answer->wait);
}

static bool same_answers(const Weir__V1__Answers *theirs,
                         const struct weir_answers *ours)
{
    if (theirs->n_answers != ours->count)
        return false;
    for (size_t i = 0; i < ours->count; i++) {
        if (!same_answer(theirs->answers[i], &ours->answers[i]))
            return false;
    }
    return true;
}

static bool same_want(const Weir__V1__Want *theirs,
                      const struct weir_want *ours)
{
    if (!same_text(theirs->name, ours->name) || theirs->has != ours->has ||
        theirs->safe != ours->safe || theirs->taken != ours->taken ||
        theirs->roster_token != ours->roster_token ||
        theirs->release != ours->release ||
        theirs->learning != ours->learning ||
        theirs->n_bands != ours->band_count)
        return false;
    for (size_t i = 0; i < ours->band_count; i++) {
        const Weir__V1__Band *band = theirs->bands[i];
        if (band->priority != ours->bands[i].priority ||
            band->clients != ours->bands[i].clients ||
            band->wants != ours->bands[i].wants)
            return false;
    }
    return true;
}

static bool same_batch(const Weir__V1__WantWindow *theirs,
                       const struct weir_latency_batch *ours)
{
    if (theirs->cut != ours->cut || theirs->slow != ours->slow ||
        theirs->dropped != ours->dropped || theirs->peak != ours->peak ||
        theirs->overdue != ours->overdue ||
        theirs->overdue_age_ns != ours->overdue_age ||
        theirs->n_bins != ours->count)
        return false;
    for (size_t i = 0; i < ours->count; i++) {
        if (theirs->bins[i]->bin != ours->bins[i].bin ||
            theirs->bins[i]->count != ours->bins[i].count)
            return false;
    }
    return true;
}

static bool same_wants(const Weir__V1__Wants *theirs,
                       const struct weir_wants *ours)
{
    if (theirs->number != ours->number || theirs->term != ours->term ||
        theirs->n_wants != ours->count ||
        theirs->n_windows != ours->window_count)
        return false;
    for (size_t i = 0; i < ours->count; i++) {
        if (!same_want(theirs->wants[i], &ours->wants[i]))
            return false;
    }
    for (size_t i = 0; i < ours->window_count; i++) {
        const struct weir_want_window *window = &ours->windows[i];
        if (theirs->windows[i]->want != window->want ||
            !same_batch(theirs->windows[i], &window->batch))
            return false;
    }
    return true;
}

static bool same_guarantees(const Weir__V1__Grant *theirs,
                            const struct weir_lease_grant *row)
{
    if (theirs->n_guarantees != row->guarantee_count)
        return false;
    for (size_t i = 0; i < row->guarantee_count; i++)
        if (theirs->guarantees[i]->band != row->guarantees[i].band ||
            theirs->guarantees[i]->units != row->guarantees[i].units)
            return false;
    return true;
}

/* With an error the other fields are ignored. */
static bool same_grant(const Weir__V1__Grant *theirs,
                       const struct weir_lease_grant *row)
{
    const struct weir_grant *ours = &row->grant;
    if (!same_text(theirs->name, row->name) ||
        theirs->error != (uint32_t)row->error)
        return false;
    return theirs->error != 0 ||
           (theirs->serial == ours->serial &&
            theirs->capacity == ours->capacity && theirs->safe == ours->safe &&
            theirs->lease_ns == ours->lease &&
            theirs->safe_lease_ns == ours->safe_lease &&
            theirs->cut == ours->cut && theirs->refresh_ns == ours->refresh &&
            theirs->roster_token == ours->roster_token &&
            same_guarantees(theirs, row));
}

static bool same_grants(const Weir__V1__Grants *theirs,
                        const struct weir_grants *ours)
{
    if (theirs->answer != ours->answer || theirs->term != ours->term ||
        theirs->elsewhere != ours->elsewhere ||
        !same_text(theirs->master, ours->master) ||
        theirs->n_grants != ours->count)
        return false;
    for (size_t i = 0; i < ours->count; i++) {
        if (!same_grant(theirs->grants[i], &ours->grants[i]))
            return false;
    }
    return true;
}

static bool same_limits(const Weir__V1__Limits *theirs,
                        const struct weir_limits *ours)
{
    if (theirs->n_limits != ours->count)
        return false;
    for (size_t i = 0; i < ours->count; i++) {
        const Weir__V1__AdaptiveLimit *row = theirs->limits[i];
        const struct weir_adaptive_limit *told = &ours->limits[i];
        if (!same_text(row->name, told->name) || row->limit != told->limit ||
            row->in_flight != told->in_flight || row->reason != told->reason ||
            row->latency_ns != told->latency || row->age_ns != told->age)
            return false;
    }
    return true;
}

/* ---- Hello and welcome ---- */

/* None are zeros. */
static bool same_block(ProtobufCBinaryData theirs, const uint8_t *ours,
                       size_t len)
{
    static const uint8_t zeros[16];
    if (theirs.len == 0)
        return memcmp(ours, zeros, len) == 0;
    return theirs.len == len && memcmp(theirs.data, ours, len) == 0;
}

static bool same_store(const Weir__V1__Store *theirs,
                       const struct weir_store_id *ours)
{
    static const struct weir_store_id none;
    if (!theirs)
        return weir_store_id_equal(ours, &none);
    return theirs->restores == ours->restores &&
           same_block(theirs->uuid, ours->uuid, sizeof(ours->uuid));
}

static bool same_hello(const Weir__V1__Hello *theirs,
                       const struct weir_hello *ours)
{
    return theirs->protocol == ours->protocol &&
           same_block(theirs->incarnation, ours->incarnation,
                      WEIR_INCARNATION_SIZE) &&
           same_text(theirs->name, ours->name) &&
           same_store(theirs->store, &ours->store) &&
           theirs->epoch == ours->epoch && theirs->region == ours->region &&
           same_text(theirs->region_name, ours->region_name);
}

static bool same_settings(const Weir__V1__Settings *theirs,
                          const struct weir_settings *ours)
{
    return theirs && theirs->report_interval_ns == ours->report_interval &&
           theirs->stale_after_ns == ours->stale_after &&
           theirs->slack == ours->slack &&
           theirs->correction_auto == ours->correction_auto &&
           theirs->correction_ppm == ours->correction_ppm;
}

static bool same_regions(const Weir__V1__Welcome *theirs,
                         const struct weir_welcome *ours)
{
    if (theirs->n_regions != ours->region_count)
        return false;
    for (size_t i = 0; i < ours->region_count; i++) {
        if (!same_text(theirs->regions[i], ours->regions[i]))
            return false;
    }
    return true;
}

static bool same_welcome(const Weir__V1__Welcome *theirs,
                         const struct weir_welcome *ours)
{
    return theirs->protocol == ours->protocol &&
           same_block(theirs->incarnation, ours->incarnation,
                      WEIR_INCARNATION_SIZE) &&
           same_text(theirs->name, ours->name) &&
           theirs->ready == ours->ready &&
           same_store(theirs->store, &ours->store) &&
           theirs->epoch == ours->epoch &&
           same_settings(theirs->settings, &ours->settings) &&
           theirs->age_ns == ours->age && theirs->carries == ours->carries &&
           theirs->last_session == ours->last_session &&
           theirs->last_number == ours->last_number &&
           theirs->top_age_ns == ours->top_age &&
           theirs->provisional == ours->provisional &&
           theirs->leases == ours->leases && theirs->term == ours->term &&
           same_text(theirs->master, ours->master) &&
           same_regions(theirs, ours);
}

/* ---- Quotas ---- */

static bool same_limit(const Weir__V1__Limit *theirs,
                       const struct weir_limit *ours)
{
    if (!theirs) /* safe_capacity; a quota's limit is always there */
        return ours->per == 0;
    return theirs->units == ours->units && theirs->per_ns == ours->per &&
           theirs->unlimited == ours->unlimited;
}

static bool same_burst(const Weir__V1__Burst *theirs,
                       const struct weir_burst *ours)
{
    if (!theirs)
        return ours->unset;
    bool in_time = theirs->amount_case == WEIR__V1__BURST__AMOUNT_TIME_NS;
    uint64_t amount = in_time ? theirs->time_ns : theirs->units;
    return !ours->unset && ours->in_time == in_time && ours->amount == amount;
}

static bool same_window(const Weir__V1__Window *theirs,
                        const struct weir_window *ours)
{
    if (!theirs)
        return ours->unset;
    return !ours->unset && theirs->length_ns == ours->length &&
           (unsigned)theirs->calendar == (unsigned)ours->calendar;
}

/* 0 means the default. */
static bool is_or(uint64_t theirs, uint64_t ours, uint64_t usual)
{
    return ours == (theirs == 0 ? usual : theirs);
}

static bool same_enums(const Weir__V1__Quota *theirs,
                       const struct weir_quota *ours)
{
    struct weir_quota usual;
    weir_quota_init(&usual);
    return (unsigned)theirs->kind == (unsigned)ours->kind &&
           (unsigned)theirs->algorithm == (unsigned)ours->algorithm &&
           (unsigned)theirs->sharing == (unsigned)ours->sharing &&
           (unsigned)theirs->mode == (unsigned)ours->mode &&
           (unsigned)theirs->on_stale == (unsigned)ours->on_stale &&
           is_or(theirs->share, ours->share_algorithm, usual.share_algorithm) &&
           is_or(theirs->glob, ours->glob, usual.glob) &&
           is_or(theirs->queue, ours->queue, usual.queue) &&
           is_or(theirs->scope, ours->scope, usual.scope) &&
           is_or(theirs->controller, ours->controller + 1u,
                 usual.controller + 1u);
}

static bool same_numbers(const Weir__V1__Quota *theirs,
                         const struct weir_quota *ours)
{
    struct weir_quota usual;
    weir_quota_init(&usual);
    bool learns = theirs->learns_case == WEIR__V1__QUOTA__LEARNS_LEARNING_NS;
    return theirs->id == ours->id && theirs->epoch == ours->epoch &&
           theirs->created == ours->created && theirs->order == ours->order &&
           is_or(theirs->deadline_ns, ours->deadline, usual.deadline) &&
           is_or(theirs->sub_windows, ours->sub_windows, usual.sub_windows) &&
           theirs->max_entries == ours->max_entries &&
           theirs->count_limited == ours->count_limited &&
           is_or(theirs->lease_ns, ours->lease, usual.lease) &&
           is_or(theirs->refresh_ns, ours->refresh, usual.refresh) &&
           (learns ? theirs->learning_ns : usual.learning) == ours->learning &&
           theirs->priority == ours->priority &&
           is_or(theirs->decay_ppb, ours->decay_factor, usual.decay_factor) &&
           is_or(theirs->permit_timeout_ns, ours->permit_timeout,
                 usual.permit_timeout) &&
           is_or(theirs->target_ns, ours->target, usual.target) &&
           theirs->percentile_e4 == ours->percentile &&
           theirs->min_e4 == ours->min && theirs->max_e4 == ours->max &&
           theirs->fleet_min_e4 == ours->fleet_min &&
           theirs->fleet_max_e4 == ours->fleet_max &&
           is_or(theirs->queue_max, ours->queue_max, usual.queue_max) &&
           is_or(theirs->max_debt_ns, ours->max_debt, usual.max_debt);
}

static bool same_quota(const Weir__V1__Quota *theirs,
                       const struct weir_quota *ours)
{
    return same_text(theirs->name, ours->name) &&
           same_text(theirs->parent, ours->parent) &&
           same_text(theirs->overflow, ours->overflow) &&
           same_text(theirs->description, ours->description) &&
           same_text(theirs->labels, ours->labels) &&
           same_text(theirs->tz, ours->tz) &&
           same_text(theirs->next_buckets, ours->next_buckets) &&
           same_text(theirs->store, ours->store) &&
           same_text(theirs->classes, ours->classes) &&
           same_limit(theirs->limit, &ours->limit) &&
           same_limit(theirs->safe_capacity, &ours->safe_capacity) &&
           same_burst(theirs->low_burst, &ours->low_burst) &&
           same_burst(theirs->high_burst, &ours->high_burst) &&
           same_burst(theirs->initial, &ours->initial) &&
           same_window(theirs->window, &ours->window) &&
           same_enums(theirs, ours) && same_numbers(theirs, ours);
}

/* A reduced quota has only its name and place left. */
static bool same_change(const Weir__V1__Change *theirs,
                        const struct weir_change *ours)
{
    const struct weir_quota *quota = &ours->quota;
    if (ours->reduced && quota->name.len == 0)
        return true; /* of a newer version, and skipped */
    if (theirs->change_case == WEIR__V1__CHANGE__CHANGE_REMOVAL)
        return ours->removed && same_text(theirs->removal->name, quota->name) &&
               theirs->removal->epoch == quota->epoch;
    if (theirs->change_case != WEIR__V1__CHANGE__CHANGE_QUOTA || ours->removed)
        return false;
    if (ours->reduced)
        return same_text(theirs->quota->name, quota->name) &&
               theirs->quota->epoch == quota->epoch;
    return same_quota(theirs->quota, quota);
}

static bool same_quotas(const Weir__V1__Quotas *theirs,
                        const struct weir_quotas *ours)
{
    if (theirs->full != ours->full || theirs->from != ours->from ||
        theirs->epoch != ours->epoch || theirs->target != ours->target ||
        theirs->known != ours->known || theirs->n_changes != ours->count)
        return false;
    for (size_t i = 0; i < ours->count; i++) {
        if (!same_change(theirs->changes[i], &ours->changes[i]))
            return false;
    }
    return true;
}

/* ---- Envelopes ---- */

static bool same_to_root(const Weir__V1__ToRoot *theirs,
                         const struct weir_message *ours)
{
    if (!theirs || theirs->session != ours->session)
        return false;
    switch (ours->type) {
    case WEIR_MESSAGE_HELLO:
        return theirs->body_case == WEIR__V1__TO_ROOT__BODY_HELLO &&
               same_hello(theirs->hello, &ours->hello);
    case WEIR_MESSAGE_REPORT:
        return theirs->body_case == WEIR__V1__TO_ROOT__BODY_REPORT &&
               same_report(theirs->report, &ours->report);
    case WEIR_MESSAGE_ASKS:
        return theirs->body_case == WEIR__V1__TO_ROOT__BODY_ASKS &&
               same_asks(theirs->asks, &ours->asks);
    case WEIR_MESSAGE_WANTS:
        return theirs->body_case == WEIR__V1__TO_ROOT__BODY_WANTS &&
               same_wants(theirs->wants, &ours->wants);
    case WEIR_MESSAGE_LIMITS:
        return theirs->body_case == WEIR__V1__TO_ROOT__BODY_LIMITS &&
               same_limits(theirs->limits, &ours->limits);
    case WEIR_MESSAGE_WELCOME:
    case WEIR_MESSAGE_QUOTAS:
    case WEIR_MESSAGE_FILLS:
    case WEIR_MESSAGE_ANSWERS:
    case WEIR_MESSAGE_GRANTS:
        break;
    }
    return false;
}

static bool same_to_limiter(const Weir__V1__ToLimiter *theirs,
                            const struct weir_message *ours)
{
    if (!theirs || theirs->session != ours->session)
        return false;
    switch (ours->type) {
    case WEIR_MESSAGE_WELCOME:
        return theirs->body_case == WEIR__V1__TO_LIMITER__BODY_WELCOME &&
               same_welcome(theirs->welcome, &ours->welcome);
    case WEIR_MESSAGE_QUOTAS:
        return theirs->body_case == WEIR__V1__TO_LIMITER__BODY_QUOTAS &&
               same_quotas(theirs->quotas, &ours->quotas);
    case WEIR_MESSAGE_FILLS:
        return theirs->body_case == WEIR__V1__TO_LIMITER__BODY_FILLS &&
               same_fills(theirs->fills, &ours->fills);
    case WEIR_MESSAGE_ANSWERS:
        return theirs->body_case == WEIR__V1__TO_LIMITER__BODY_ANSWERS &&
               same_answers(theirs->answers, &ours->answers);
    case WEIR_MESSAGE_GRANTS:
        return theirs->body_case == WEIR__V1__TO_LIMITER__BODY_GRANTS &&
               same_grants(theirs->grants, &ours->grants);
    case WEIR_MESSAGE_HELLO:
    case WEIR_MESSAGE_REPORT:
    case WEIR_MESSAGE_ASKS:
    case WEIR_MESSAGE_WANTS:
    case WEIR_MESSAGE_LIMITS:
        break;
    }
    return false;
}

/* Such a quota may be broken where Weir doesn't look any more. */
static bool has_reduced(const struct weir_message *message)
{
    bool has = false;
    for (size_t i = 0;
         message->type == WEIR_MESSAGE_QUOTAS && i < message->quotas.count; i++)
        has = has || message->quotas.changes[i].reduced;
    return has;
}

bool oracle_agrees(const void *bytes, size_t len, bool to_root,
                   const struct weir_message *message)
{
    if (to_root) {
        Weir__V1__ToRoot *theirs = weir__v1__to_root__unpack(NULL, len, bytes);
        bool same = same_to_root(theirs, message);
        weir__v1__to_root__free_unpacked(theirs, NULL);
        return same;
    }
    Weir__V1__ToLimiter *theirs =
        weir__v1__to_limiter__unpack(NULL, len, bytes);
    bool same =
        theirs ? same_to_limiter(theirs, message) : has_reduced(message);
    weir__v1__to_limiter__free_unpacked(theirs, NULL);
    return same;
}
