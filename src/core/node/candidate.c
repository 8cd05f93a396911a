/* SPDX-License-Identifier: MIT
 * node/candidate.c - the election, as one of its candidates runs it.
 *
 * Four activities run at once, each with a few words of state; next() returns
 * the ask of one of them:
 *
 *     lease    none -GRANT-> ours -KEEP, three times a ttl-> ours
 *                            ours -its time is over, unconfirmed-> stale
 *     stale    -REVOKE-> none
 *     key      wanted -CREATE-> read: it is ours, or another's
 *              read -the watch says it is gone-> wanted
 *     watch    off -WATCH from the revision read-> on -over-> off, wanted
 *
 * A candidate is master if the key is attached to its own lease, and the
 * lease's time isn't over.
 *
 *     sent    arrives                                   the store's end
 *      |--------|---------------- ttl ---------------------|
 *      |--------- 0.9 ttl ---------|                        others may win
 *      KEEP                        we no longer hold it
 *
 * An answer to a keep-alive alone proves nothing: etcd's leader gives it from
 * its own memory, and a leader that was cut off or stopped, and voted out,
 * doesn't know that yet (before 3.4.31 and 3.5.13; Debian 12 has 3.4.23). The
 * new leader counts every lease from its election on, and that may be earlier.
 * But a CREATE goes through the majority. If a CREATE sent after that answer is
 * answered in the same raft term, the leader of that term was the only one when
 * it extended the lease, and any later leader counts from later. So a
 * keep-alive counts once such a CREATE, which finds our own key or another's,
 * has confirmed it; until then 'kept_until' is unconfirmed.
 *
 * Keep-alives don't wait for each other: one goes out each third of a ttl,
 * whether or not the earlier ones were answered, and each answer counts from
 * when its own ask was sent. So a lost one costs nothing, and a store that
 * answers after seconds is as good as a quick one, if it takes less than a
 * third of a ttl. A slower server is left for another one of the store (LEAVE).
 * Nor does the CREATE after an answered keep-alive wait for the one before:
 * when etcd's leader dies, asks that other servers had forwarded to it are
 * lost. They report that only after seconds (5 and two election time-outs),
 * while they answer later asks.
 *
 * An unanswered ask is repeated, and its outcome never assumed: after a lost
 * link a CREATE finds our own key, by its lease, if the one before got through.
 * A lease that was over by our clock is never used again, even if the store
 * still has it: the next mastership has a new lease and a new term. The old
 * lease is revoked, so that no candidate has to wait for its end.
 *
 * Answers of the watch and of the CREATE come on separate streams, in any
 * order: the older of two is ignored.
 *
 * The duration of a vacancy isn't reported. A candidate learns that the key has
 * gone one round trip before it wins, but that doesn't prove a vacancy for that
 * time: another may have won and resigned, and be received later than the own
 * success (test_candidate found it). So the vacancy is known only at the moment
 * of winning. */

#include "core/node/candidate.h"

#include <string.h>

#define KEEPS_A_TTL 3
#define MARGIN \
    10                 /* a part of the ttl: clock rates, and the time from
                                 * the check to the act that relies on it */
#define PATIENCE 3     /* a part of the ttl, without any answer */
#define FAILURES_MAX 3 /* in a row, of one server */
#define BACKOFF_FIRST (50 * 1000000ull)
#define BACKOFF_MOST (2 * WEIR_SECOND)
#define TTL_S_MAX (24 * 3600) /* longest ttl taken from a store */

int weir_candidate_init(struct weir_candidate *c,
                        const struct weir_candidate_options *options)
{
    if (options->ttl < WEIR_CANDIDATE_TTL_MIN ||
        options->ttl > WEIR_CANDIDATE_TTL_MAX || options->identity.len == 0 ||
        options->identity.len > WEIR_CANDIDATE_TEXT_MAX)
        return WEIR_EINVAL;
    *c = (struct weir_candidate){
        .ttl = options->ttl,
        .rng = { options->seed },
        .identity_len = options->identity.len,
        .want_key = true,
        .backoff = BACKOFF_FIRST,
    };
    memcpy(c->identity, options->identity.p, options->identity.len);
    return 0;
}

/* ---- The mastership ---- */

static void note_change(struct weir_candidate *c, enum weir_candidate_why why)
{
    weir_assert(c->is_master == (why == WEIR_CANDIDATE_WON));
    weir_assert(!c->is_master || (c->lease != 0 && c->term > 0));
    c->has_change = true;
    c->change = (struct weir_candidate_change){
        .why = why,
        .is_master = c->is_master,
        .term = c->term,
    };
}

/* No candidate is master, as far as is known. */
static void set_nobody(struct weir_candidate *c, enum weir_candidate_why why)
{
    c->is_master = false;
    c->created_at = 0;
    c->term = 0;
    c->master_len = 0;
    note_change(c, why);
    weir_assert(!c->is_master && c->term == 0);
}

static void lose_mastership(struct weir_candidate *c,
                            enum weir_candidate_why why)
{
    if (c->is_master)
        set_nobody(c, why);
    weir_assert(!c->is_master);
}

static void set_master(struct weir_candidate *c, struct weir_text name)
{
    c->master_len = name.len < sizeof c->master ? name.len : sizeof c->master;
    if (c->master_len > 0)
        memcpy(c->master, name.p, c->master_len);
    weir_assert(c->master_len <= sizeof c->master);
}

static void win(struct weir_candidate *c, int64_t created_at, weir_instant now)
{
    weir_assert(c->lease != 0);
    if ((c->is_master && c->created_at == created_at) ||
        now >= c->lease_until || now < c->quiet_until)
        return;
    uint64_t term = WEIR_CANDIDATE_TERMS + (uint64_t)created_at;
    if (term <= c->top_term)
        term = c->top_term + 1;
    c->is_master = true;
    c->created_at = created_at;
    c->term = c->top_term = term;
    set_master(c, (struct weir_text){ c->identity, c->identity_len });
    note_change(c, WEIR_CANDIDATE_WON);
    weir_assert(c->is_master && c->term == c->top_term);
}

static void note_other_master(struct weir_candidate *c,
                              const struct weir_candidate_answer *answer)
{
    bool was_master = c->is_master;
    if (!was_master && c->created_at == answer->create_revision)
        return;
    struct weir_text own = { c->identity, c->identity_len };
    c->is_master = false;
    c->created_at = answer->create_revision;
    c->term = WEIR_CANDIDATE_TERMS + (uint64_t)answer->create_revision;
    if (c->term > c->top_term)
        c->top_term = c->term;
    /* Our own name with another lease: an earlier process had our identity. */
    if (weir_text_equal(answer->value, own))
        c->master_len = 0;
    else
        set_master(c, answer->value);
    note_change(c, was_master ? WEIR_CANDIDATE_KEY_LOST : WEIR_CANDIDATE_OTHER);
    weir_assert(!c->is_master && c->top_term >= c->term);
}

/* ---- The lease ---- */

/* Drops the lease; 'stale' if the store may still have it. */
static void drop_lease(struct weir_candidate *c, bool stale)
{
    if (stale && c->lease != 0)
        c->stale = c->lease;
    c->lease = 0;
    c->lease_until = c->kept_until = 0;
    c->want_key = true;
    weir_assert(c->lease == 0 && c->want_key);
}

/* When the lease ends by our clock, if this answer holds. */
static weir_instant lasts_until(const struct weir_candidate_answer *answer)
{
    int64_t ttl_s = answer->ttl_s < TTL_S_MAX ? answer->ttl_s : TTL_S_MAX;
    weir_duration ttl = (weir_duration)ttl_s * WEIR_SECOND;
    return answer->ask.sent_at + ttl - ttl / MARGIN;
}

static void receive_grant(struct weir_candidate *c,
                          const struct weir_candidate_answer *answer)
{
    weir_assert(c->is_linked);
    c->is_granting = false;
    if (answer->failed)
        return;
    c->lease = answer->lease;
    c->lease_until = lasts_until(answer); /* a lease is made by the majority */
    c->kept_until = 0;
    c->keep_at = answer->ask.sent_at + c->ttl / KEEPS_A_TTL;
    if (c->is_resigned)
        drop_lease(c, true);
}

/* Stops waiting for the unanswered CREATE; its answer is still taken. */
static void forget_create(struct weir_candidate *c)
{
    if (c->creating_at != 0 && c->unanswered > 0)
        c->unanswered--;
    c->creating_at = 0;
}

static void receive_keep(struct weir_candidate *c,
                         const struct weir_candidate_answer *answer)
{
    if (answer->ask.lease != c->lease)
        return;
    if (answer->gone) {
        drop_lease(c, false);
        lose_mastership(c, WEIR_CANDIDATE_NO_LEASE);
    } else if (answer->failed) {
        if (c->retry_at < c->keep_at)
            c->keep_at = c->retry_at;
    } else if (lasts_until(answer) > c->kept_until) {
        c->kept_until = lasts_until(answer);
        c->kept_term = answer->raft_term;
        c->want_key = true;
        forget_create(c);
    }
}

static void receive_revoke(struct weir_candidate *c,
                           const struct weir_candidate_answer *answer)
{
    c->is_revoking = false;
    if (!answer->failed && answer->ask.lease == c->stale)
        c->stale = 0;
    weir_assert(!c->is_revoking);
}

/* ---- The key ---- */

/* A CREATE's answer comes from the majority: it confirms an earlier keep-alive,
 * and shows whether the store was restored. */
static void confirm(struct weir_candidate *c,
                    const struct weir_candidate_answer *answer,
                    weir_instant now)
{
    if (answer->ask.kept_until > c->lease_until) {
        if (answer->raft_term == answer->ask.kept_term)
            c->lease_until = answer->ask.kept_until;
        else
            c->keep_at = now; /* to the present leader */
    }
    if (answer->revision < answer->ask.top_revision) {
        c->quiet_until = now + c->ttl;
        c->top_revision = 0;
    }
    if (answer->revision > c->top_revision)
        c->top_revision = answer->revision;
    weir_assert(c->top_revision >= answer->revision);
}

static void receive_create(struct weir_candidate *c,
                           const struct weir_candidate_answer *answer,
                           weir_instant now)
{
    if (answer->ask.sent_at == c->creating_at)
        c->creating_at = 0;
    if (c->lease == 0 || answer->ask.lease != c->lease)
        return;
    if (answer->gone) {
        drop_lease(c, false);
        lose_mastership(c, WEIR_CANDIDATE_NO_LEASE);
        return;
    }
    if (answer->failed)
        return;
    weir_assert(c->lease != 0);
    confirm(c, answer, now);
    /* The watch may have returned a newer state already. */
    if (answer->revision < c->revision)
        return;
    c->want_key = c->kept_until > answer->ask.kept_until;
    c->is_read = true;
    c->revision = answer->revision;
    if (answer->created)
        win(c, answer->revision, now);
    else if (answer->lease == c->lease)
        win(c, answer->create_revision, now);
    else
        note_other_master(c, answer);
}

static void note_vacancy(struct weir_candidate *c)
{
    bool was_master = c->is_master;
    c->want_key = true;
    set_nobody(c, was_master ? WEIR_CANDIDATE_KEY_LOST : WEIR_CANDIDATE_VACANT);
}

static void note_key_change(struct weir_candidate *c,
                            const struct weir_candidate_answer *answer,
                            weir_instant now)
{
    if (answer->revision <= c->revision)
        return;
    c->revision = answer->revision;
    if (c->revision > c->top_revision)
        c->top_revision = c->revision;
    weir_assert(c->top_revision >= c->revision);
    if (!answer->found) {
        note_vacancy(c);
        return;
    }
    if (c->lease != 0 && answer->lease == c->lease) {
        win(c, answer->create_revision, now);
        return;
    }
    note_other_master(c, answer);
}

/* Changes are no longer seen: the key is to be read again. */
static void lose_sight(struct weir_candidate *c, weir_instant now)
{
    if (c->is_read)
        c->lost_at = now;
    c->is_watching = c->is_watched = c->is_read = false;
    c->want_key = true;
    c->revision = 0;
    weir_assert(!c->is_read && !c->is_watching);
}

static void receive_watch(struct weir_candidate *c,
                          const struct weir_candidate_answer *answer,
                          weir_instant now)
{
    if (answer->changed)
        note_key_change(c, answer, now);
    if (answer->over || answer->failed)
        lose_sight(c, now);
}

/* ---- The link ---- */

static void back_off(struct weir_candidate *c, weir_instant now)
{
    weir_assert(c->backoff > 0);
    c->retry_at =
        now + c->backoff / 2 + weir_rng_below(&c->rng, c->backoff / 2 + 1);
    weir_duration most = c->ttl / 5 < BACKOFF_MOST ? c->ttl / 5 : BACKOFF_MOST;
    c->backoff = c->backoff * 2 < most ? c->backoff * 2 : most;
    weir_assert(c->backoff <= BACKOFF_MOST);
}

/* A failed ask causes a pause, which grows until that type of ask succeeds.
 * "The lease is gone" is an answer, not a failure. */
static void judge_answer(struct weir_candidate *c,
                         const struct weir_candidate_answer *answer,
                         weir_instant now)
{
    if (answer->failed && !answer->gone) {
        back_off(c, now);
        c->troubled = answer->ask.type;
        c->failures += !answer->refused;
        c->is_leaving |= c->failures >= FAILURES_MAX;
    } else if (answer->over) {
        back_off(c, now);
        c->troubled = WEIR_CANDIDATE_WATCH;
    } else {
        if (answer->ask.type == c->troubled)
            c->backoff = BACKOFF_FIRST;
        c->failures = 0;
    }
    weir_assert(c->backoff > 0);
}

void weir_candidate_link(struct weir_candidate *c, bool up, weir_instant now)
{
    if (c->is_linked == up)
        return;
    c->is_linked = up;
    c->is_leaving = false;
    c->is_granting = c->is_revoking = false;
    c->creating_at = 0;
    c->unanswered = c->failures = 0;
    c->session += !up;
    c->keep_at = c->retry_at = now; /* once, and then after the pause */
    lose_sight(c, now);
    weir_assert(!c->is_read && c->unanswered == 0);
}

/* An ask is answered by its first answer. */
static void count_answer(struct weir_candidate *c,
                         const struct weir_candidate_answer *answer,
                         weir_instant now)
{
    weir_assert(c->is_linked);
    c->answered_at = now;
    bool first = answer->ask.type != WEIR_CANDIDATE_WATCH || !c->is_watched;
    bool forgotten = answer->ask.type == WEIR_CANDIDATE_CREATE &&
                     answer->ask.sent_at != c->creating_at;
    if (first && !forgotten && c->unanswered > 0)
        c->unanswered--;
    if (answer->ask.type == WEIR_CANDIDATE_WATCH)
        c->is_watched = true;
}

void weir_candidate_receive(struct weir_candidate *c,
                            const struct weir_candidate_answer *answer,
                            weir_instant now)
{
    if (!c->is_linked || answer->ask.session != c->session)
        return;
    struct weir_candidate_answer sound = *answer;
    bool is_lease = answer->lease != 0 && answer->ttl_s > 0;
    if (answer->ask.type == WEIR_CANDIDATE_GRANT && !is_lease) {
        sound.failed = true; /* even if it says otherwise */
        sound.gone = false;
    }
    weir_candidate_tick(c, now); /* first ends by the clock */
    count_answer(c, &sound, now);
    judge_answer(c, &sound, now);
    switch (answer->ask.type) {
    case WEIR_CANDIDATE_GRANT:
        receive_grant(c, &sound);
        return;
    case WEIR_CANDIDATE_KEEP:
        receive_keep(c, &sound);
        return;
    case WEIR_CANDIDATE_CREATE:
        receive_create(c, &sound, now);
        return;
    case WEIR_CANDIDATE_WATCH:
        receive_watch(c, &sound, now);
        return;
    case WEIR_CANDIDATE_REVOKE:
        receive_revoke(c, &sound);
        return;
    case WEIR_CANDIDATE_LEAVE:
        return;
    }
}

/* ---- Time ---- */

static bool is_master_unread(const struct weir_candidate *c)
{
    return !c->is_read && !c->is_master && c->term > 0;
}

void weir_candidate_tick(struct weir_candidate *c, weir_instant now)
{
    if (c->lease != 0 && now >= c->lease_until) {
        drop_lease(c, true);
        lose_mastership(c, WEIR_CANDIDATE_RAN_OUT);
    }
    if (c->is_linked && c->unanswered > 0 &&
        now >= c->answered_at + c->ttl / PATIENCE)
        c->is_leaving = true;
    if (is_master_unread(c) && now >= c->lost_at + c->ttl)
        set_nobody(c, WEIR_CANDIDATE_UNKNOWN);
    weir_assert(c->lease == 0 || now < c->lease_until);
}

/* Whether there is an ask that may have to wait for the pause. */
static bool has_wish(const struct weir_candidate *c)
{
    if (c->stale != 0 && !c->is_revoking)
        return true;
    if (c->is_resigned)
        return false;
    if (c->lease == 0)
        return !c->is_granting;
    return (c->want_key && c->creating_at == 0) ||
           (c->is_read && !c->is_watching);
}

weir_instant weir_candidate_deadline(const struct weir_candidate *c)
{
    weir_instant at = WEIR_NEVER;
    if (c->lease != 0)
        at = weir_earlier(at, c->lease_until);
    if (c->is_resigned)
        at = weir_earlier(at, c->farewell_at);
    if (is_master_unread(c))
        at = weir_earlier(at, c->lost_at + c->ttl);
    if (!c->is_linked)
        return at;
    if (c->is_leaving)
        return 0;
    if (c->lease != 0)
        at = weir_earlier(at, c->keep_at);
    if (c->unanswered > 0)
        at = weir_earlier(at, c->answered_at + c->ttl / PATIENCE);
    if (has_wish(c))
        at = weir_earlier(at, c->retry_at);
    return at;
}

/* ---- Asks ---- */

static bool send_ask(struct weir_candidate *c,
                     enum weir_candidate_ask_type type, int64_t lease,
                     struct weir_candidate_ask *out, weir_instant now)
{
    weir_assert(c->is_linked);
    if (c->unanswered++ == 0)
        c->answered_at = now;
    *out = (struct weir_candidate_ask){
        .type = type,
        .session = c->session,
        .lease = lease,
        .revision = c->revision + 1,
        .sent_at = now,
        .kept_until = c->kept_until,
        .kept_term = c->kept_term,
        .top_revision = c->top_revision,
    };
    return true;
}

/* The asks that may wait, by importance. */
static bool next_wish(struct weir_candidate *c, struct weir_candidate_ask *out,
                      weir_instant now)
{
    weir_assert(has_wish(c));
    if (c->stale != 0 && !c->is_revoking) {
        c->is_revoking = true;
        return send_ask(c, WEIR_CANDIDATE_REVOKE, c->stale, out, now);
    }
    if (c->lease == 0) {
        c->is_granting = true;
        return send_ask(c, WEIR_CANDIDATE_GRANT, 0, out, now);
    }
    if (c->want_key && c->creating_at == 0) {
        c->creating_at = now;
        return send_ask(c, WEIR_CANDIDATE_CREATE, c->lease, out, now);
    }
    c->is_watching = true;
    return send_ask(c, WEIR_CANDIDATE_WATCH, c->lease, out, now);
}

bool weir_candidate_next(struct weir_candidate *c,
                         struct weir_candidate_ask *out, weir_instant now)
{
    if (!c->is_linked)
        return false;
    if (c->is_leaving) {
        c->is_leaving = false;
        c->unanswered = 0;
        return send_ask(c, WEIR_CANDIDATE_LEAVE, 0, out, now);
    }
    if (c->lease != 0 && now >= c->keep_at) {
        c->keep_at = now + c->ttl / KEEPS_A_TTL;
        return send_ask(c, WEIR_CANDIDATE_KEEP, c->lease, out, now);
    }
    return now >= c->retry_at && has_wish(c) && next_wish(c, out, now);
}

/* ---- Queries ---- */

bool weir_candidate_holds(const struct weir_candidate *c, weir_instant now)
{
    return c->is_master && now < c->lease_until;
}

struct weir_text weir_candidate_master(const struct weir_candidate *c)
{
    return (struct weir_text){ c->master, c->master_len };
}

bool weir_candidate_change(struct weir_candidate *c,
                           struct weir_candidate_change *out)
{
    bool had = c->has_change;
    c->has_change = false;
    if (had)
        *out = c->change;
    return had;
}

void weir_candidate_resign(struct weir_candidate *c, weir_instant now)
{
    if (c->is_resigned)
        return;
    c->is_resigned = true;
    c->farewell_at = now + WEIR_CANDIDATE_FAREWELL;
    c->retry_at = now;
    drop_lease(c, true);
    lose_mastership(c, WEIR_CANDIDATE_RESIGNED);
    weir_assert(!c->is_master && c->lease == 0);
}

bool weir_candidate_is_gone(const struct weir_candidate *c, weir_instant now)
{
    if (!c->is_resigned)
        return false;
    return (c->stale == 0 && !c->is_granting) || now >= c->farewell_at;
}
