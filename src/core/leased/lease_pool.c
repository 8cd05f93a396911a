/* SPDX-License-Identifier: MIT
 * leased/lease_pool.c - a lease pool: its grants never exceed its capacity.
 *
 * The problem. Each lease holder is sent a staircase (quota/lease.h) and goes
 * by it until it receives another. A message takes time, may be lost, and may
 * be overtaken. So a holder may be on a step of any of several staircases, not
 * only the last, and the pool must count the largest of them.
 *
 * A holder's account has two steps of the same kind, 'out' and 'safe_out', each
 * with its end. A higher grant raises a step at once, and an answer prolongs
 * it. It falls only when the holder reports that it has taken the serial of a
 * lower grant, or when its time is over:
 *
 *     out       100 ------------.
 *     told      100 ---.        |
 *                      '-- 60 - 60 -------.
 *     safe_out   20 ----------------------'-- 20 ------.
 *                   told   way, taken  lease over    safe lease over
 *
 * A client of Doorman's protocol cannot be pushed to. It sends no serial
 * number, and the amount it reports holding is not trusted. Any answer to it
 * may be the last that arrived, while that answer lasts. So each of its steps
 * is held up by the answers that granted so much, and by no lower one after
 * them: when they are over the step falls to 'since', the largest amount
 * granted after them, which all those later answers hold up. (To know each
 * answer of a lease would be exact, and unbounded; so after 100, 60, 30 the
 * step is 60 until the answer of 30 is over.) The step is lowered when the
 * holder asks; if it doesn't ask, its lease runs out as usual.
 *
 * A step ends in the account a refresh later than the holder was told, for the
 * holder's clock may be slower; in a quota of kind concurrency 'linger' later
 * still, for a permit outlasts the grant under which it entered. Until 'out'
 * ends the holder is accounted with the larger of both. A raise is capped so
 * that the sum over holders stays within the capacity; if the sum exceeds it,
 * because the capacity was cut, no holder is granted more than before. The
 * header's guarantees follow from that, however messages are lost or delayed.
 * Safe capacities are also summed by themselves: when a server's own lease runs
 * out, it is at its own safe capacity at once, and its holders must be too.
 * Therefore it gives no lease beyond its own, pushes no increase to a holder
 * that has a longer lease than its own, and when its own is over no earlier
 * grant entitles a holder to more than its safe capacity.
 *
 * Safe capacity is promised only to holders that report serials; it is taken
 * back like a grant, and goes beyond one only while no holder waits. Doorman's
 * protocol knows no end of a safe capacity, so no account could ever take it
 * back: its clients are sent the configured one, are promised none, and are
 * waited for as long as their leases. They are on the last answer that arrived;
 * their report counts only if it equals the last grant: an ask may be late, or
 * doubled.
 *
 * Learning. A new pool may find holders with staircases of its predecessor,
 * which accounted for them in the same way. So the holders that it hasn't heard
 * have at most the predecessor's capacity, less the larger steps of those that
 * it has heard ('known'): handing out 'known' is always safe. When the longest
 * of those leases is over, the unheard are on their safe capacities, of which
 * the predecessor had promised at most 'promised': less the safe capacities
 * heard of, that bounds them too. When those are over, nothing is left.
 * Until all are known to be heard (see lease_pool_roster.c) the pool hands out:
 *
 *     until the leases are over  min(capacity, known)
 *     until the safes are over   min(capacity, max(known, rest))
 *     then                       capacity
 *     with                       rest = capacity - (promised - safe_known)
 *
 * If the capacity is itself leased, the predecessor's may have ended sooner,
 * with its own lease. Then all below are on their safe capacities, the server
 * above accounts for no more, and 'known', reported before, is too much. This
 * pool can't tell whether that happened, so it gives the amount that fits both:
 *
 *     until the leases are over  min(capacity, known, max(safe_known, rest))
 *     until the safes are over   min(capacity, max(safe_known, rest))
 *
 * More can't be given: unheard holders may have it. Within that it shares as
 * usual: units that one holder gives back another may have. (To answer each
 * holder its reported amount, as Doorman does, leaves those without anything
 * for a whole lease, and trusts reports without bound.) A holder that leases on
 * may be learning itself, and hear of its own holders bit by bit. While it
 * reports so, a taken serial lowers nothing, and an amount beyond all that it
 * reported before raises its account, and 'known'. Not after this pool has
 * learned: a higher report is then late. And it is granted no safe capacity
 * below that of its account: so its grants bound all that its own predecessor
 * can have promised, but for this pool's own reserve.
 *
 * Pushes. Shares depend on all holders, and each ask moves them a little; to
 * push each little move to all would be n messages an ask. So pushes go out
 * only while a holder waits, i.e. has less than its share by more than
 * TOLERANCE. Then a round visits all holders that stream, lowers those above
 * their share, and raises those below it, as far as it is free. As the shares'
 * sum is the capacity, the units taken are the units wanted. The pause between
 * rounds grows with the number of holders, so that rounds take a bounded part
 * of the time; a newcomer on a full quota waits for one round and two message
 * delays, not for a refresh.
 *
 * Rejected: a heap of holders by how much more or less than their share they
 * have. It finds the first to push to, but every share moves with every ask,
 * and for shares that aren't max-min not even the order stays.
 *
 * Steps end nearly in the order in which they were prolonged, so two lists
 * suffice, of leases and of safe capacities: a step that is shorter than those
 * before it ends later than it could. */

#include "core/leased/lease_pool_internal.h"

#define GATED_REFRESH WEIR_SECOND /* of a gated holder that isn't pushed to */
#define ROUND_PAUSE (5 * WEIR_MILLISECOND)
#define ROUND_PAUSE_A_HOLDER (20 * WEIR_MILLISECOND / 1000)

/* ---- Life ---- */

static bool is_rule_sound(const struct weir_lease_rule *rule)
{
    return rule->capacity >= 0 && rule->capacity <= WEIR_LEASE_UNITS_MAX &&
           rule->safe <= WEIR_LEASE_UNITS_MAX &&
           rule->lease >= WEIR_LEASE_MIN && rule->lease <= WEIR_LEASE_MAX &&
           rule->refresh >= 1 && rule->refresh <= rule->lease &&
           rule->linger <= WEIR_LEASE_MAX &&
           rule->part_count <= WEIR_BAND_PARTS_MAX &&
           (rule->part_count == 0 || rule->share == WEIR_SHARE_FAIR);
}

struct weir_lease_pool *weir_lease_pool_new(
    const struct weir_mem *mem, const struct weir_lease_rule *rule,
    const struct weir_learning *learning, uint64_t *serials, uint64_t seed,
    weir_instant now)
{
    weir_assert(serials);
    weir_assert(is_rule_sound(rule));
    weir_assert(!learning || learning->leases <= learning->safes);
    struct weir_lease_pool *b = mem->alloc(mem->context, sizeof(*b));
    if (b == NULL)
        return NULL;
    struct weir_book *book = weir_book_new(mem, seed);
    if (book == NULL) {
        mem->free(mem->context, b, sizeof(*b));
        return NULL;
    }
    *b = (struct weir_lease_pool){
        .mem = *mem,
        .rule = *rule,
        .expiry = WEIR_NEVER,
        .learning = learning ? *learning : (struct weir_learning){ 0 },
        .lessons = learning ? 2 : 0,
        .book = book,
        .serials = serials,
        .free_first = WEIR_LEASE_HOLDER_NONE,
        .lists = { { WEIR_LEASE_HOLDER_NONE, WEIR_LEASE_HOLDER_NONE },
                   { WEIR_LEASE_HOLDER_NONE, WEIR_LEASE_HOLDER_NONE } },
        .gone = WEIR_LEASE_HOLDER_NONE,
        .roster_token.call_at = WEIR_NEVER,
        .round_at = now,
        .turn = 1,
    };
    return b;
}

void weir_lease_pool_free(struct weir_lease_pool *b)
{
    if (b == NULL)
        return;
    struct weir_mem mem = b->mem;
    weir_book_free(b->book);
    mem.free(mem.context, b->holders, b->capacity * sizeof(*b->holders));
    mem.free(mem.context, b->claims, b->claim_capacity * sizeof(*b->claims));
    mem.free(mem.context, b, sizeof(*b));
}

static bool are_same_parts(const struct weir_lease_rule *a,
                           const struct weir_lease_rule *b)
{
    if (a->part_count != b->part_count)
        return false;
    for (size_t i = 0; i < a->part_count; i++)
        if (a->parts[i].band != b->parts[i].band ||
            a->parts[i].part != b->parts[i].part)
            return false;
    return true;
}

bool weir_lease_rule_is_same(const struct weir_lease_rule *a,
                             const struct weir_lease_rule *b)
{
    return a->share == b->share && a->capacity == b->capacity &&
           a->safe == b->safe && a->hold == b->hold && a->lease == b->lease &&
           a->refresh == b->refresh && a->linger == b->linger &&
           a->cut == b->cut && a->whole == b->whole && are_same_parts(a, b);
}

void weir_lease_pool_set_rule(struct weir_lease_pool *b,
                              const struct weir_lease_rule *rule)
{
    weir_assert(is_rule_sound(rule));
    b->rule = *rule;
    b->moved = true;
}

void weir_lease_pool_set_expiry(struct weir_lease_pool *b, weir_instant expiry,
                                double safe, weir_instant safe_until)
{
    weir_assert(expiry == WEIR_NEVER || (safe >= 0 && expiry <= safe_until));
    b->moved = b->moved || safe < b->safe_total;
    b->expiry = expiry;
    b->safe_total = safe;
    b->safe_until = safe_until;
}

/* ---- Sums ---- */

static void add_to_sum(struct sum *sum, double x)
{
    double high = sum->high + x;
    double part = high - sum->high;
    sum->low += (sum->high - (high - part)) + (x - part);
    sum->high = high;
}

static void move_in_sum(struct sum *sum, double *from, double to)
{
    add_to_sum(sum, -*from);
    add_to_sum(sum, to);
    *from = to;
}

static void set_out(struct weir_lease_pool *b, struct holder *h, double step,
                    double safe)
{
    weir_assert(step >= 0 && safe >= 0);
    double out = weir_larger(step, safe);
    if (out < h->out || safe < h->safe_out)
        b->moved = true;
    h->step = step;
    move_in_sum(&b->out, &h->out, out);
    move_in_sum(&b->safe_out, &h->safe_out, safe);
    weir_assert(h->out >= h->safe_out);
}

static void set_waits(struct weir_lease_pool *b, struct holder *h, bool waits)
{
    weir_assert(waits || !h->waits || b->waiting > 0);
    if (waits && !h->waits)
        b->moved = true;
    b->waiting += (uint32_t)waits - (uint32_t)h->waits;
    if (h->turn == b->turn)
        b->rested += (uint32_t)waits - (uint32_t)h->waits;
    h->waits = waits;
    weir_assert(b->rested <= b->waiting);
}

/* ---- Granting ---- */

static void grant_to(struct weir_lease_pool *b, struct holder *h, double grant,
                     double safe, struct weir_grant *out, weir_instant now)
{
    weir_assert(grant >= 0 && safe >= 0);
    h->serial = ++*b->serials;
    if (grant < h->grant || safe < h->safe || h->since == 0)
        h->since = h->serial;
    move_in_sum(&b->granted, &h->grant, grant);
    h->safe = safe;
    set_out(b, h, weir_larger(grant, h->step), weir_larger(safe, h->safe_out));
    *out = (struct weir_grant){
        .holder = (uint32_t)(h - b->holders),
        .serial = h->serial,
        .capacity = grant,
        .safe = safe,
        .refresh = b->rule.refresh,
        .roster_token = weir_roster_issue_token(b, h, now),
        .cut = b->rule.cut,
    };
    weir_assert(h->out >= grant && h->safe_out >= safe);
}

/* ---- Leases ---- */

static void unlist(struct weir_lease_pool *b, struct holder *h)
{
    struct list *list = &b->lists[h->faded];
    if (!h->listed)
        return;
    weir_assert(list->oldest != WEIR_LEASE_HOLDER_NONE);
    if (h->before != WEIR_LEASE_HOLDER_NONE)
        b->holders[h->before].after = h->after;
    else
        list->oldest = h->after;
    if (h->after != WEIR_LEASE_HOLDER_NONE)
        b->holders[h->after].before = h->before;
    else
        list->newest = h->before;
    h->listed = false;
}

/* When a step that was sent with that 'end' is over by the holder's clock. */
static weir_instant over_at(const struct weir_lease_pool *b, weir_instant end)
{
    return weir_after(end, b->rule.refresh + b->rule.linger);
}

/* 'end': of the step it is on. The step is surely over some time later. */
static void list_by(struct weir_lease_pool *b, struct holder *h, bool faded,
                    weir_instant end)
{
    uint32_t index = (uint32_t)(h - b->holders);
    struct list *list = &b->lists[faded];
    unlist(b, h);
    h->faded = faded;
    h->until = over_at(b, end);
    weir_assert(!h->listed);
    h->before = list->newest;
    h->after = WEIR_LEASE_HOLDER_NONE;
    if (list->newest != WEIR_LEASE_HOLDER_NONE)
        b->holders[list->newest].after = index;
    else
        list->oldest = index;
    list->newest = index;
    h->listed = true;
}

/* It is known to be on no steps but these, which its last answer holds up, or
 * nothing. */
static void set_all_out(struct weir_lease_pool *b, struct holder *h,
                        double step, double safe)
{
    weir_instant safe_over = over_at(b, h->safe_until);
    h->prop = (struct prop){ .until = weir_later(h->prop.until, h->until) };
    h->safe_prop =
        (struct prop){ .until = weir_later(h->safe_prop.until, safe_over) };
    set_out(b, h, step, safe);
}

static void hold_up(struct prop *prop, bool highest, double granted,
                    weir_instant until)
{
    weir_assert(granted >= 0);
    if (highest)
        *prop = (struct prop){ .until = weir_later(prop->until, until) };
    else
        prop->since = weir_larger(prop->since, granted);
}

/* By the answer just made. A holder that streams reports the serial that it has
 * taken: until then this answer holds up all. */
static void hold_up_steps(const struct weir_lease_pool *b, struct holder *h)
{
    hold_up(&h->prop, h->streams || h->grant >= h->step, h->grant, h->until);
    hold_up(&h->safe_prop, h->streams || h->safe >= h->safe_out, h->safe,
            over_at(b, h->safe_until));
}

/* A learning holder is granted no less safe capacity than its account has. If
 * there isn't so much, the grant still bounds the amount it may have, but lasts
 * for no time: part of its reported amount may be over, and others' since. */
static bool is_safe_overdrawn(const struct weir_lease_pool *b,
                              const struct holder *h)
{
    bool over = is_less(b->rule.capacity, total(&b->out));
    if (b->expiry != WEIR_NEVER)
        over = over || is_less(b->safe_total, total(&b->safe_out));
    return h->learns && over;
}

/* The holder counts its times from its sending, which was earlier. A shortened
 * time may be lost on its way; then the holder goes by the longer one. */
static void renew(struct weir_lease_pool *b, struct holder *h,
                  weir_duration guard, struct weir_grant *out, weir_instant now)
{
    weir_duration lease = b->rule.lease;
    weir_duration safe_lease = 2 * lease;
    if (b->expiry != WEIR_NEVER) {
        weir_duration left = left_until(b->expiry, now);
        weir_duration safe_left = left_until(b->safe_until, now);
        lease = weir_shorter(lease, left);
        safe_lease = weir_shorter(safe_lease, safe_left);
    }
    if (is_safe_overdrawn(b, h))
        safe_lease = lease;
    weir_assert(lease <= safe_lease);
    out->lease = lease;
    out->safe_lease = safe_lease;
    out->refresh = weir_shorter(b->rule.refresh, lease);
    if (weir_roster_excludes(b, h))
        out->refresh = weir_shorter(out->refresh, GATED_REFRESH);
    h->answered_until =
        weir_later(h->answered_until, weir_after(now + lease, guard));
    h->lease_until = weir_later(h->lease_until, h->answered_until);
    h->safe_until =
        weir_later(h->safe_until, weir_after(now + safe_lease, guard));
    list_by(b, h, false, h->lease_until);
    hold_up_steps(b, h);
}

/* ---- Holders ---- */

int weir_lease_pool_join(struct weir_lease_pool *b, uint64_t name,
                         uint32_t *out_holder)
{
    uint32_t index = b->free_first;
    if (index != WEIR_LEASE_HOLDER_NONE) {
        b->free_first = b->holders[index].after;
        weir_assert(!b->holders[index].live);
    } else {
        if (b->used == WEIR_HOLDERS_MAX)
            return WEIR_EFULL;
        struct holder *grown =
            weir_mem_grow(&b->mem, b->holders, sizeof(*grown), &b->capacity,
                          (size_t)b->used + 1);
        if (grown == NULL)
            return WEIR_ENOMEM;
        b->holders = grown;
        index = b->used++;
    }
    b->holders[index] =
        (struct holder){ .live = true, .name = name, .first = NO_CLAIM };
    weir_assert(b->count < b->used);
    b->count++;
    *out_holder = index;
    return WEIR_OK;
}

static struct holder *holder_at(const struct weir_lease_pool *b, uint32_t index)
{
    weir_assert(index < b->used && b->holders[index].live);
    return &b->holders[index];
}

/* Its claims, its account and its place in the list; the number isn't free
 * yet. */
static void forget_holder(struct weir_lease_pool *b, struct holder *h,
                          weir_instant now)
{
    weir_assert(h->live && b->count > 0);
    weir_ask_drop_claims(b, h);
    weir_roster_leave(b, h, now);
    set_waits(b, h, false);
    set_out(b, h, 0, 0);
    move_in_sum(&b->granted, &h->grant, 0);
    unlist(b, h);
    *h = (struct holder){ .first = NO_CLAIM };
    b->count--;
    b->moved = true;
}

void weir_lease_pool_stream_lost(struct weir_lease_pool *b, uint32_t holder)
{
    holder_at(b, holder)->lost = true;
}

/* It wants nothing any more. Its grants stay accounted. */
static void silence(struct weir_lease_pool *b, struct holder *h)
{
    weir_ask_drop_claims(b, h);
    weir_assert(h->first == NO_CLAIM);
    set_waits(b, h, false);
    h->wants = 0;
    h->lost = true;
    b->moved = true;
}

/* Its lease is over for sure. */
static void fade_holder(struct weir_lease_pool *b, struct holder *h)
{
    weir_assert(h->listed);
    silence(b, h);
    move_in_sum(&b->granted, &h->grant, 0);
    h->prop.since = 0;
    set_out(b, h, 0, h->safe_out);
    list_by(b, h, true, h->safe_until);
    weir_assert(h->out == h->safe_out);
}

/* Ends the steps that are over; false: none is left. While the pool learns, a
 * holder once heard stays known: its late messages are no news. */
static bool step_down(struct weir_lease_pool *b, struct holder *h,
                      weir_instant now)
{
    weir_assert(h->listed);
    bool has_safe = h->safe_out > 0 || is_learning(b, now);
    if (!h->faded && has_safe && h->until <= now)
        fade_holder(b, h);
    return h->until > now;
}

static void tick_holders(struct weir_lease_pool *b, const struct list *list,
                         weir_instant now)
{
    while (list->oldest != WEIR_LEASE_HOLDER_NONE &&
           b->holders[list->oldest].until <= now) {
        uint32_t index = list->oldest;
        struct holder *h = &b->holders[index];
        weir_assert(h->live && h->listed);
        if (step_down(b, h, now))
            continue;
        forget_holder(b, h, now);
        h->after = b->gone;
        b->gone = index;
    }
}

static weir_instant lesson_end(const struct weir_lease_pool *b)
{
    weir_assert(b->lessons > 0);
    return b->lessons > 1 ? b->learning.leases : b->learning.safes;
}

void weir_lease_pool_tick(struct weir_lease_pool *b, weir_instant now)
{
    for (unsigned i = 0; i < WEIR_COUNT_OF(b->lists); i++)
        tick_holders(b, &b->lists[i], now);
    while (b->lessons > 0 && now >= lesson_end(b)) {
        b->lessons--;
        b->moved = true;
        weir_roster_later(b, now);
    }
}

bool weir_lease_pool_release(struct weir_lease_pool *b, uint32_t holder,
                             bool sure, weir_instant now)
{
    struct holder *h = holder_at(b, holder);
    if (!h->listed || (sure && !is_learning(b, now))) {
        forget_holder(b, h, now);
        h->after = b->free_first;
        b->free_first = holder;
        return true;
    }
    silence(b, h);
    if (sure) {
        h->safe = 0;
        h->lease_until = 0;
        h->safe_until = b->learning.safes;
        set_all_out(b, h, 0, 0);
        fade_holder(b, h);
    }
    return false;
}

bool weir_lease_pool_gone(struct weir_lease_pool *b, uint32_t *out_holder)
{
    uint32_t index = b->gone;
    if (index == WEIR_LEASE_HOLDER_NONE)
        return false;
    weir_assert(index < b->used && !b->holders[index].live);
    b->gone = b->holders[index].after;
    b->holders[index].after = b->free_first;
    b->free_first = index;
    *out_holder = index;
    return true;
}

/* ---- Asks ---- */

/* Its reported amount counts no longer than it can be another pool's, or a
 * permit can last. */
static void hold_up_reported(const struct weir_lease_pool *b, struct holder *h,
                             weir_instant now)
{
    weir_instant leases = weir_later(b->learning.leases, over_at(b, now));
    weir_instant safes = weir_later(b->learning.safes, over_at(b, now));
    h->prop.until = weir_later(h->prop.until, leases);
    h->safe_prop.until = weir_later(h->safe_prop.until, safes);
}

/* It reports an amount that its account doesn't know: another pool's, or
 * permits that outlast their grant. While this pool learns, an amount that it
 * reported before is no news: the report may be late, and the amount given back
 * since. */
static void raise(struct weir_lease_pool *b, struct holder *h,
                  const struct weir_lease_pool_ask *ask, weir_instant now)
{
    double has = weir_ask_believed(b, ask);
    double safe = weir_smaller(ask->safe, has);
    double had = weir_larger(h->out, h->reported);
    double safe_had = weir_larger(h->safe_out, h->safe_reported);
    bool is_news = !is_learning(b, now) || h->faded;
    set_out(b, h,
            is_news || has > h->reported ? weir_larger(has, h->step) : h->step,
            is_news || safe > h->safe_reported ? weir_larger(safe, h->safe_out)
                                               : h->safe_out);
    hold_up_reported(b, h, now);
    if (!is_learning(b, now))
        return;
    if (has > had)
        b->known = weir_smaller(b->known + (has - had), WEIR_LEASE_UNITS_MAX);
    if (safe > safe_had)
        b->safe_known += safe - safe_had;
    h->reported = weir_larger(h->reported, has);
    h->safe_reported = weir_larger(h->safe_reported, safe);
    h->lease_until = weir_later(h->lease_until, b->learning.leases);
    h->safe_until = weir_later(h->safe_until, b->learning.safes);
    weir_assert(b->known >= 0 && b->known <= WEIR_LEASE_UNITS_MAX);
}

/* Whether it surely goes by its last grant. A holder that can be pushed to must
 * report the serial; of one that can't all grants were answers, and the
 * reported amount is the last that arrived. */
static bool goes_by_last(const struct holder *h,
                         const struct weir_lease_pool_ask *ask)
{
    if (ask->streams)
        return ask->taken >= h->since && ask->taken <= h->serial;
    return !h->streams && !ask->mute && ask->has == h->grant;
}

/* Lowers steps of a holder that can't be pushed to when their props are
 * over. */
static void let_down(struct weir_lease_pool *b, struct holder *h,
                     weir_instant now)
{
    double step = h->step, safe = h->safe_out;
    if (h->streams || h->learns)
        return;
    if (h->prop.until <= now) {
        step = h->prop.since;
        h->prop = (struct prop){ .until = h->until };
    }
    if (h->safe_prop.until <= now) {
        safe = h->safe_prop.since;
        h->safe_prop = (struct prop){ .until = over_at(b, h->safe_until) };
    }
    weir_assert(step <= h->step && safe <= h->safe_out);
    set_out(b, h, step, safe);
}

/* All units out are accounted. */
static void end_learning(struct weir_lease_pool *b, weir_instant now)
{
    weir_assert(is_learning(b, now));
    b->learning.leases = b->learning.safes = now;
    b->lessons = 0;
    b->moved = true;
    weir_roster_later(b, now);
    weir_assert(!is_learning(b, now));
}

bool weir_lease_pool_has_heard(const struct weir_lease_pool *b)
{
    return b->known > 0 || b->safe_known > 0;
}

void weir_lease_pool_nothing_out(struct weir_lease_pool *b, weir_instant now)
{
    weir_assert(!weir_lease_pool_has_heard(b));
    if (is_learning(b, now))
        end_learning(b, now);
}

/* Updates the account by an ask: the steps that the holder may be on. */
static void account(struct weir_lease_pool *b, struct holder *h,
                    const struct weir_lease_pool_ask *ask, weir_instant now)
{
    if (h->listed && !step_down(b, h, now))
        set_all_out(b, h, 0, 0);
    let_down(b, h, now);
    bool is_new = !h->known && is_learning(b, now);
    bool outlasts = b->rule.linger > 0 && (!h->known || h->faded);
    bool learned = is_learning(b, now) && (h->learns || ask->learning);
    if (is_new || outlasts || learned)
        raise(b, h, ask, now);
    if (!is_new && !outlasts && !ask->learning && h->serial > 0 &&
        goes_by_last(h, ask))
        set_all_out(b, h, weir_smaller(h->step, h->grant),
                    weir_smaller(h->safe_out, h->safe));
    weir_roster_enter(b, h, ask->streams, now);
    weir_roster_taken(b, h, ask);
    h->known = true;
    h->streams = ask->streams;
    h->learns = ask->learning;
    h->lost = false;
    if (weir_roster_has_met_all(b, h, ask, now))
        end_learning(b, now);
}

/* The answer to an ask that is on its account. */
static int answer_ask(struct weir_lease_pool *b, struct holder *h,
                      const struct weir_lease_pool_ask *ask, double share,
                      struct weir_grant *out, weir_instant now)
{
    weir_assert(h->known);
    if (ask->streams && weir_roster_excludes(b, h)) {
        list_by(b, h, false,
                weir_later(h->lease_until, weir_after(now, b->rule.lease)));
        set_waits(b, h, is_less(h->grant, share));
        return WEIR_ENOTREADY;
    }
    double grant = weir_pool_grant(b, h, share, now);
    if (b->rule.whole && is_less(share, h->grant))
        grant = weir_pool_pass_on(b, h, share, grant);
    grant_to(b, h, grant, weir_pool_safe(b, h, grant, now), out, now);
    renew(b, h, ask->guard, out, now);
    set_waits(b, h, is_less(h->grant, share));
    return WEIR_OK;
}

int weir_lease_pool_ask(struct weir_lease_pool *b, uint32_t holder,
                        const struct weir_lease_pool_ask *ask,
                        struct weir_grant *out, weir_instant now)
{
    struct holder *h = holder_at(b, holder);
    double waited_for =
        h->waits ? weir_pool_share(b, h, now) : WEIR_LEASE_UNITS_MAX;
    if (!weir_ask_is_sound(ask))
        return WEIR_EINVAL;
    int error = weir_ask_claim_all(b, h, ask);
    if (error < 0)
        return error;
    account(b, h, ask, now);
    if (!out) {
        list_by(b, h, false, weir_later(h->lease_until, now));
        return WEIR_OK;
    }
    double share = weir_pool_share(b, h, now);
    /* The last round took back from others for a smaller share. */
    if (is_less(waited_for, share))
        b->moved = true;
    return answer_ask(b, h, ask, share, out, now);
}

/* ---- Pushes ---- */

/* Whether units are to be taken back. */
static bool is_pressed(const struct weir_lease_pool *b, weir_instant now)
{
    return weir_pool_is_short(b, now) ||
           (weir_pool_is_held(b, now) && b->expiry != WEIR_NEVER &&
            is_less(b->safe_total, total(&b->safe_out)));
}

/* Its lease is longer than ours: a pushed increase would last as long. */
static bool is_beyond_ours(const struct weir_lease_pool *b,
                           const struct holder *h)
{
    return b->expiry != WEIR_NEVER &&
           (h->lease_until > b->expiry || h->safe_until > b->safe_until);
}

/* The part of its grant that it may keep when it is pushed to. A grant that
 * ended with our own lease, or will, would go on with the longer lease granted
 * once: by us, for a holder that only another pool has answered takes no
 * push. */
static double kept_by_push(const struct weir_lease_pool *b,
                           const struct holder *h)
{
    bool outlasts = weir_pool_is_at_safe(b) || h->answered_until > b->expiry;
    return outlasts ? weir_smaller(h->grant, h->safe) : h->grant;
}

/* Whether there is a grant to push to 'h'. */
static bool push_to_holder(struct weir_lease_pool *b, struct holder *h,
                           struct weir_grant *out, weir_instant now)
{
    weir_assert(h->live && h->known);
    double share = weir_pool_share(b, h, now);
    double grant = weir_pool_grant(b, h, share, now);
    set_waits(b, h, is_less(h->grant, share));
    if (!h->streams || h->lost || h->serial == 0 || now >= h->lease_until ||
        is_safe_overdrawn(b, h))
        return false;
    bool more = is_less(h->grant, grant) && !is_beyond_ours(b, h);
    bool calls = weir_roster_calls(b, h, now);
    if (!more && !is_pressed(b, now)) {
        if (calls)
            grant_to(b, h, kept_by_push(b, h), h->safe, out, now);
        return calls;
    }
    if (!more)
        grant =
            weir_smaller(weir_pool_share_above(b, share), kept_by_push(b, h));
    double safe = weir_pool_safe(b, h, grant, now);
    if (is_beyond_ours(b, h))
        safe = weir_smaller(safe, h->learns ? h->safe_out : h->safe);
    bool less = is_less(grant, h->grant) || is_less(safe, h->safe);
    if (!more && !less && !calls)
        return false;
    grant_to(b, h, grant, safe, out, now);
    set_waits(b, h, is_less(grant, share));
    return true;
}

static bool begin_round(struct weir_lease_pool *b, weir_instant now)
{
    weir_assert(!b->going);
    bool is_due = b->moved || now >= weir_roster_at(b, now);
    if (!is_due || now < b->round_at)
        return false;
    weir_roster_begin_round(b, now);
    b->moved = false;
    b->going = true;
    b->hand = 0;
    b->round_at = now + ROUND_PAUSE + b->count * ROUND_PAUSE_A_HOLDER;
    return true;
}

bool weir_lease_pool_next(struct weir_lease_pool *b, struct weir_grant *out,
                          weir_instant now)
{
    for (uint32_t work = 0; work < WEIR_LEASE_POOL_WORK; work++) {
        if (!b->going && !begin_round(b, now))
            return false;
        if (b->hand >= b->used) {
            b->going = false;
            continue;
        }
        struct holder *h = &b->holders[b->hand++];
        if (h->live && h->known && push_to_holder(b, h, out, now))
            return true;
    }
    return false;
}

weir_instant weir_lease_pool_deadline(const struct weir_lease_pool *b,
                                      weir_instant now)
{
    if (b->going || b->gone != WEIR_LEASE_HOLDER_NONE)
        return now;
    weir_instant due = WEIR_NEVER;
    for (unsigned i = 0; i < WEIR_COUNT_OF(b->lists); i++) {
        uint32_t oldest = b->lists[i].oldest;
        if (oldest != WEIR_LEASE_HOLDER_NONE)
            due = weir_earlier(due, b->holders[oldest].until);
    }
    if (b->lessons > 0)
        due = weir_earlier(due, lesson_end(b));
    weir_instant round = b->moved ? 0 : weir_roster_at(b, now);
    return weir_earlier(due, weir_later(round, b->round_at));
}

/* ---- Views ---- */

void weir_lease_pool_stats(const struct weir_lease_pool *b,
                           struct weir_lease_pool_stats *out, weir_instant now)
{
    struct weir_book_sum sum = weir_book_sum(b->book);
    *out = (struct weir_lease_pool_stats){
        .holders = b->count,
        .clients = sum.weight,
        .capacity = b->rule.capacity,
        .wants = weir_smaller(sum.wants, WEIR_LEASE_UNITS_MAX),
        .granted = total(&b->granted),
        .out = weir_smaller(total(&b->out), WEIR_LEASE_UNITS_MAX),
        .safe_out = weir_smaller(total(&b->safe_out), WEIR_LEASE_UNITS_MAX),
        .learning = is_learning(b, now),
    };
}

bool weir_lease_pool_holder(const struct weir_lease_pool *b, uint32_t holder,
                            struct weir_lease_holder_stats *out,
                            weir_instant now)
{
    if (holder >= b->used || !b->holders[holder].live)
        return false;
    const struct holder *h = &b->holders[holder];
    *out = (struct weir_lease_holder_stats){
        .number = holder,
        .wants = h->wants,
        .granted = h->grant,
        .out = h->out,
        .clients = h->clients,
        .left = h->lease_until > now ? h->lease_until - now : 0,
        .streams = h->streams,
    };
    return true;
}

size_t weir_lease_pool_bands(const struct weir_lease_pool *b,
                             struct weir_band *out, size_t max)
{
    weir_assert(max > 0);
    size_t count = 0;
    for (uint32_t i = 0; i < weir_book_bands(b->book); i++) {
        struct weir_band band = { 0 };
        struct weir_book_sum sum = weir_book_band(b->book, i, &band.priority);
        if (count < max)
            out[count++] = band;
        struct weir_band *last = &out[count - 1];
        uint64_t clients = last->clients + sum.weight;
        last->clients = clients < WEIR_LEASE_CLIENTS_MAX
                            ? (uint32_t)clients
                            : WEIR_LEASE_CLIENTS_MAX;
        last->wants =
            weir_smaller(last->wants + sum.wants, WEIR_LEASE_UNITS_MAX);
    }
    return count;
}
