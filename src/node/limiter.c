/* SPDX-License-Identifier: MIT
 * node/limiter.c - the limiter's side of each root link.
 *
 * A link's life:
 *
 *     down --link(up)--> greeting --hello sent--> waiting --welcome--> up
 *       ^                                                              |
 *       '--------------------- link(down) ----------------------------'
 *
 * Up, a link reports once an interval whatever happened (the empty report is
 * the heartbeat), and earlier, though not within 20 ms of the last one,
 * when the table says that some slot used up its slack.
 *
 * Quotas. Every root streams the same store's quotas; each message says
 * above which epoch it begins, and is applied only if we have all before it:
 * loss and reordering delay, and the root begins again from the epoch that
 * our reports show. A whole set is announced by its first message; what it
 * didn't name is dropped when its target is reached, not before.
 *
 * Stale. When the topmost root hasn't spoken for stale_after, the table
 * follows each quota's on_stale until it speaks again. Roots of a region tell
 * how long it has been silent to them; the youngest such age counts. While
 * they speak themselves, `share` is theirs to follow: they see the whole
 * region. A quota is the limiter's own only when nobody speaks at all.
 *
 * Carrier. Of the roots that have an upstream one is handed what is counted:
 * the present one while none is fitter. The fittest answers, and has heard of
 * the topmost root lately. */

#include "node/limiter.h"

#include <string.h>

#include "base/rng.h"
#include "count/tally.h"

#define EXTRAPOLATE_EVERY (50 * WEIR_MILLISECOND)
#define LOOK_EVERY (50 * WEIR_MILLISECOND)
#define SWEEP_EVERY (100 * WEIR_MILLISECOND)
#define SWEEP_SLOTS 1024
#define SWEEP_CROWDED 16384 /* while there is hardly any room left */
/* What had no room in a report follows so soon. */
#define REST_AFTER (50 * WEIR_MILLISECOND)
/* A message unanswered for so long is said again; doubled each time. */
#define RESEND_FIRST WEIR_SECOND
#define RESEND_MOST (8 * WEIR_SECOND)
/* A link silent for so long doesn't rule slack while others answer. */
#define PATIENCE (500 * WEIR_MILLISECOND)
#define EVENTS_MAX 32

enum link_state { DOWN, GREETING, WAITING, UP };

struct link {
    enum link_state state;
    bool urgent;
    bool first;      /* no report was made in this session yet */
    bool met;        /* 'root' is known */
    bool full_taken; /* a whole set was begun in this session */
    uint8_t root[WEIR_INCARNATION_SIZE];
    uint64_t session;
    uint64_t root_epoch;     /* the newest it spoke of */
    struct weir_store_id odd; /* another store it spoke for: told already */
    bool root_ready;
    bool ask;                /* the welcome is wanted again */
    bool carries;            /* the root has an upstream */
    bool topped;             /* it has told of the topmost root, heard … */
    weir_instant top_at;     /* … at last */
    weir_instant sent_at;    /* hello or report, last time */
    weir_instant report_at;  /* the interval's next report */
    weir_duration resend;
    weir_duration stretch;
};

struct weir_limiter {
    struct weir_table *table;
    struct weir_tally tally;
    uint32_t link_count;
    struct link link[WEIR_ROOTS_MAX];
    uint8_t incarnation[WEIR_INCARNATION_SIZE];
    const struct weir_limiter_sink *region;
    char name[WEIR_NAME_MAX];
    size_t name_len;
    struct weir_rng rng;
    uint32_t sessions;       /* begun */

    struct weir_settings settings;
    struct weir_store_id store;
    uint64_t epoch;
    uint64_t target;
    bool full;               /* a whole set is under way */
    bool ready;
    bool heard;              /* ever, any root */
    bool topped;             /* ever, the topmost one */
    bool stale;
    weir_instant born;       /* this incarnation */
    weir_instant heard_at;   /* the topmost root, or the first to speak */
    weir_instant spoken_at;  /* any root */
    weir_instant collect_at;
    weir_instant extrapolate_at;
    weir_instant look_at; /* … at the slots with a pace */
    weir_instant sweep_at;
    uint64_t reports;
    uint64_t full_seen;      /* overflows told as events */
    uint64_t unknown_before; /* counted by an earlier incarnation */

    struct weir_event event[EVENTS_MAX];
    uint32_t event_first, event_count;
    uint64_t events_lost;
};

/* ---- Memory ---- */

static size_t head_size(void)
{
    return (sizeof(struct weir_limiter) + WEIR_CACHE_LINE - 1) &
           ~(size_t)(WEIR_CACHE_LINE - 1);
}

size_t weir_limiter_size(const struct weir_limiter_options *options)
{
    return head_size() + weir_tally_size(options->slots, options->links,
                                         options->region != NULL);
}

static void set_name(struct weir_limiter *limiter, struct weir_text name)
{
    limiter->name_len = name.len < WEIR_NAME_MAX ? name.len : WEIR_NAME_MAX;
    if (limiter->name_len > 0)
        memcpy(limiter->name, name.p, limiter->name_len);
}

struct weir_limiter *
weir_limiter_init(void *block, const struct weir_limiter_options *options,
                  weir_instant now)
{
    weir_assert(options->links <= WEIR_ROOTS_MAX);
    struct weir_limiter *limiter = block;
    limiter->table = options->table;
    limiter->link_count = options->links;
    limiter->rng.state = options->seed;
    limiter->region = options->region;
    set_name(limiter, options->name);
    memcpy(limiter->incarnation, options->incarnation,
           WEIR_INCARNATION_SIZE);
    limiter->settings = (struct weir_settings){
        .report_interval = WEIR_SECOND,
        .stale_after = 3 * WEIR_SECOND,
        .slack = true,
    };
    weir_tally_init(&limiter->tally, (char *)block + head_size(),
                    options->table, options->slots, options->links,
                    options->region != NULL, now);
    limiter->tally.slack = true;
    limiter->born = now;
    limiter->collect_at = now + WEIR_SECOND;
    limiter->extrapolate_at = now + EXTRAPOLATE_EVERY;
    limiter->sweep_at = now + SWEEP_EVERY;
    return limiter;
}

void weir_limiter_reincarnate(struct weir_limiter *limiter,
                              struct weir_text name,
                              const uint8_t *incarnation, weir_instant now)
{
    set_name(limiter, name);
    memcpy(limiter->incarnation, incarnation, WEIR_INCARNATION_SIZE);
    weir_tally_disown(&limiter->tally, now);
    /* As if each slot's life began: its first use is told at once. It mends
     * too what the other's sync was in the midst of. */
    uint32_t end = weir_table_used(limiter->table);
    for (uint32_t slot = 0; slot < end; slot++) {
        uint64_t count = weir_table_count(limiter->table, slot);
        weir_table_set_slack(limiter->table, slot, count,
                             count + WEIR_COUNT_FAR);
    }
    limiter->unknown_before = weir_table_unknown(limiter->table);
    limiter->full_seen = weir_table_overflowed(limiter->table);
    limiter->reports = 0;
    limiter->event_first = limiter->event_count = 0;
    limiter->events_lost = 0;
    /* It has not been silent that nobody could speak to. */
    limiter->heard_at = limiter->spoken_at = now;
    for (uint32_t i = 0; i < limiter->link_count; i++)
        limiter->link[i] = (struct link){ .state = DOWN };
    limiter->collect_at = now;
    limiter->born = now;
}

/* ---- Events ---- */

static struct weir_event *event_new(struct weir_limiter *limiter,
                                    enum weir_event_type type,
                                    weir_instant now)
{
    if (limiter->event_count == EVENTS_MAX) {
        limiter->events_lost++;
        return NULL;
    }
    uint32_t at =
        (limiter->event_first + limiter->event_count++) % EVENTS_MAX;
    struct weir_event *event = &limiter->event[at];
    memset(event, 0, sizeof(*event));
    event->type = type;
    event->at = now;
    event->count = 1;
    return event;
}

static void event_text(struct weir_event *event, struct weir_text text)
{
    if (!event)
        return;
    size_t len = text.len < sizeof(event->text) - 1 ? text.len
                                                    : sizeof(event->text) - 1;
    if (len > 0)
        memcpy(event->text, text.p, len);
}

bool weir_limiter_event(struct weir_limiter *limiter, struct weir_event *out)
{
    if (limiter->event_count > 0) {
        *out = limiter->event[limiter->event_first];
        limiter->event_first = (limiter->event_first + 1) % EVENTS_MAX;
        limiter->event_count--;
        return true;
    }
    if (limiter->events_lost == 0)
        return false;
    *out = (struct weir_event){ .type = WEIR_EVENT_LOST,
                                .count = limiter->events_lost };
    limiter->events_lost = 0;
    return true;
}

/* ---- Being heard ---- */

/* How long the topmost root has been silent, as the message tells; WEIR_NEVER:
 * it tells nothing of it. */
static weir_duration top_age_in(const struct link *link,
                                const struct weir_message *message)
{
    if (message->type == WEIR_MESSAGE_WELCOME)
        return message->welcome.top_age;
    if (message->type == WEIR_MESSAGE_FILLS)
        return message->fills.top_age;
    return link->carries ? WEIR_NEVER : 0;
}

/* A clock may step back: what was just heard was. */
static void note_later(weir_instant at, weir_duration age, weir_instant now,
                       weir_instant *in)
{
    if (age == 0 || at > *in || *in > now)
        *in = at;
}

static void hear(struct weir_limiter *limiter, struct link *link,
                 weir_duration age, weir_instant now)
{
    weir_instant at = now > age ? now - age : 0;
    limiter->spoken_at = now;
    if (age != WEIR_NEVER) {
        note_later(at, age, now, &link->top_at);
        note_later(at, age, now, &limiter->heard_at);
        link->topped = limiter->topped = true;
        weir_table_set_held(limiter->table, age > 0);
    } else if (!limiter->heard) {
        limiter->heard_at = now; /* it is given as long as any other */
    }
    limiter->heard = true;
    if (!limiter->stale ||
        now - limiter->heard_at >= limiter->settings.stale_after)
        return;
    limiter->stale = false;
    limiter->tally.share_above = false;
    weir_table_set_stale(limiter->table, false, now);
    weir_tally_stale(&limiter->tally, !limiter->tally.slack, now);
    event_new(limiter, WEIR_EVENT_FRESH, now);
}

static bool is_long_ago(const struct weir_limiter *limiter, weir_instant then,
                        weir_instant now)
{
    return now - then >= limiter->settings.stale_after;
}

static void check_stale(struct weir_limiter *limiter, weir_instant now)
{
    if (!limiter->heard || !is_long_ago(limiter, limiter->heard_at, now))
        return;
    bool spoken = !is_long_ago(limiter, limiter->spoken_at, now);
    if (limiter->stale && limiter->tally.share_above == spoken)
        return;
    if (!limiter->stale)
        event_new(limiter, WEIR_EVENT_STALE, now);
    limiter->stale = true;
    limiter->tally.share_above = spoken;
    weir_table_set_stale(limiter->table, true, now);
    weir_tally_stale(&limiter->tally, true, now);
}

/* ---- Links ---- */

/* As a carrier; 0: it can't be one. */
static unsigned fitness(const struct weir_limiter *limiter, uint32_t index)
{
    const struct link *link = &limiter->link[index];
    if (link->state != UP || !link->carries)
        return 0;
    /* Behind what others tell of the topmost root: in a region that is cut off
     * all are old by about the same, and nothing is won by another. */
    weir_duration some =
        WEIR_PACE_INTERVALS * limiter->settings.report_interval;
    bool top = link->topped && link->top_at + some > limiter->heard_at;
    return 1 + 2 * top + limiter->tally.link[index].answering;
}

static void choose_carrier(struct weir_limiter *limiter)
{
    uint32_t before = limiter->tally.carrier;
    uint32_t best = before;
    unsigned most = 0;
    if (before != WEIR_CARRIER_NONE)
        most = fitness(limiter, before);
    if (most == 0)
        best = WEIR_CARRIER_NONE;
    for (uint32_t i = 0; i < limiter->link_count; i++) {
        unsigned fit = fitness(limiter, i);
        if (fit <= most)
            continue;
        most = fit;
        best = i;
    }
    if (best == before)
        return;
    weir_tally_carry(&limiter->tally, best);
    if (best != WEIR_CARRIER_NONE)
        limiter->link[best].urgent = true;
    if (before != WEIR_CARRIER_NONE)
        limiter->link[before].urgent = true;
}

/* An interval is what the slowest root makes of it: until then no pace is out
 * of date and no count is late. */
static void set_interval(struct weir_limiter *limiter)
{
    weir_duration interval = limiter->settings.report_interval;
    for (uint32_t i = 0; i < limiter->link_count; i++) {
        const struct link *link = &limiter->link[i];
        if (link->state == UP && link->stretch > interval)
            interval = link->stretch;
    }
    limiter->tally.interval = interval;
}

void weir_limiter_link(struct weir_limiter *limiter, uint32_t index, bool up,
                       weir_instant now)
{
    weir_assert(index < limiter->link_count);
    struct link *link = &limiter->link[index];
    if (!up) {
        if (link->state == UP)
            event_new(limiter, WEIR_EVENT_ROOT_DOWN, now);
        link->state = DOWN;
        set_interval(limiter);
        weir_tally_end(&limiter->tally, index, now);
        choose_carrier(limiter);
        return;
    }
    weir_tally_meet(&limiter->tally, index);
    /* The low half counts, so that no two sessions share it; never 0. */
    link->session = (weir_rng_next(&limiter->rng) << 32) |
                    ++limiter->sessions;
    link->state = GREETING;
    link->urgent = link->ask = false;
    link->full_taken = false;
    link->stretch = 0;
    link->resend = RESEND_FIRST;
}

static void greet(const struct weir_limiter *limiter,
                  struct weir_message *out)
{
    out->type = WEIR_MESSAGE_HELLO;
    out->hello = (struct weir_hello){
        .protocol = WEIR_PROTOCOL,
        .name = { limiter->name, limiter->name_len },
        .store = limiter->store,
        .epoch = limiter->epoch,
        .region = limiter->region != NULL,
    };
    memcpy(out->hello.incarnation, limiter->incarnation,
           WEIR_INCARNATION_SIZE);
}

static bool other_store_beside(const struct weir_limiter *limiter,
                               const struct link *link)
{
    for (uint32_t i = 0; i < limiter->link_count; i++) {
        const struct link *other = &limiter->link[i];
        if (other != link && other->state == UP && other->root_ready)
            return true;
    }
    return false;
}

/* The root speaks for a store: ours, a first one, or another. */
static int meet_store(struct weir_limiter *limiter, struct link *link,
                      const struct weir_welcome *welcome, weir_instant now)
{
    static const struct weir_store_id none;
    if (weir_store_id_equal(&limiter->store, &welcome->store)) {
        /* The same root address with an older epoch: a restored backup. */
        if (welcome->epoch < link->root_epoch)
            limiter->epoch = 0;
        return WEIR_OK;
    }
    if (!weir_store_id_equal(&limiter->store, &none)) {
        if (!weir_store_id_equal(&link->odd, &welcome->store))
            event_text(event_new(limiter, WEIR_EVENT_STORE_CHANGED, now),
                       welcome->name);
        link->odd = welcome->store;
        if (other_store_beside(limiter, link))
            return WEIR_EPROTOCOL;
    }
    link->odd = none;
    limiter->store = welcome->store;
    limiter->epoch = 0;
    limiter->full = false;
    return WEIR_OK;
}

static void apply_settings(struct weir_limiter *limiter,
                           const struct weir_settings *settings,
                           weir_instant now)
{
    limiter->settings = *settings;
    if (!settings->correction_auto)
        limiter->tally.ratio = (float)settings->correction_ppm / 1e6f;
    set_interval(limiter);
    weir_tally_set_slack(&limiter->tally, settings->slack, now);
}

/* Whether the root took the report that was unanswered when the last session
 * ended, or may have: one that died doesn't know, nor one that has forgotten
 * us since. Sessions are numbered in the low half. */
static bool was_taken(const struct weir_tally_link *link,
                      const struct weir_welcome *welcome, bool same)
{
    uint32_t last = (uint32_t)welcome->last_session;
    uint32_t doubted = (uint32_t)link->session;
    if (!same || !welcome->carries || last > doubted)
        return true;
    return last == doubted && welcome->last_number >= link->number;
}

static int welcomed(struct weir_limiter *limiter, uint32_t index,
                    const struct weir_welcome *welcome, weir_instant now)
{
    struct link *link = &limiter->link[index];
    if (welcome->protocol != WEIR_PROTOCOL)
        return WEIR_EPROTOCOL;
    if (link->state == GREETING)
        return WEIR_OK;
    apply_settings(limiter, &welcome->settings, now);
    link->root_ready = welcome->ready;
    link->carries = welcome->carries;
    if (welcome->top_age == WEIR_NEVER)
        link->topped = false;
    if (welcome->ready) {
        uint64_t before = limiter->epoch;
        int error = meet_store(limiter, link, welcome, now);
        if (error < 0)
            return error;
        link->root_epoch = welcome->epoch;
        link->full_taken &= limiter->epoch >= before;
    }
    if (link->state == UP)
        return WEIR_OK;
    bool same = link->met ? memcmp(link->root, welcome->incarnation,
                                   WEIR_INCARNATION_SIZE) == 0
                          : welcome->age >= link->sent_at - limiter->born;
    memcpy(link->root, welcome->incarnation, WEIR_INCARNATION_SIZE);
    link->met = true;
    link->state = UP;
    link->report_at = now;
    link->first = true;
    weir_instant born = now > welcome->age ? now - welcome->age : 0;
    weir_tally_resolve(
        &limiter->tally, index,
        was_taken(&limiter->tally.link[index], welcome, same));
    weir_tally_begin(&limiter->tally, index, link->session, same, born, now);
    choose_carrier(limiter);
    event_text(event_new(limiter, WEIR_EVENT_ROOT_UP, now), welcome->name);
    return WEIR_OK;
}

/* ---- Quotas ---- */

static int apply_change(struct weir_limiter *limiter,
                        const struct weir_change *change, weir_instant now)
{
    if (change->quota.epoch <= limiter->epoch)
        return WEIR_OK;
    const struct weir_limiter_sink *region = limiter->region;
    int error =
        region ? region->change(region->context, change, now) : WEIR_OK;
    if (error < 0)
        return error;
    if (change->removed) {
        weir_table_drop(limiter->table, change->quota.name, now);
        return WEIR_OK;
    }
    if (weir_table_put(limiter->table, &change->quota, now) < 0)
        event_text(event_new(limiter, WEIR_EVENT_TABLE_FULL, now),
                   change->quota.name);
    return WEIR_OK;
}

/* The first message of a whole set, unless we are in the midst of it. */
static int begin_full(struct weir_limiter *limiter, struct link *link,
                      weir_instant now)
{
    if (limiter->full || link->full_taken)
        return WEIR_OK;
    const struct weir_limiter_sink *region = limiter->region;
    int error = region ? region->whole(region->context, &limiter->store, now)
                       : WEIR_OK;
    if (error < 0)
        return error;
    link->full_taken = true;
    limiter->full = true;
    limiter->epoch = 0;
    weir_table_begin_full(limiter->table);
    return WEIR_OK;
}

/* All up to limiter->epoch is here. */
static int reach(struct weir_limiter *limiter, weir_instant now)
{
    if (limiter->full)
        weir_table_end_full(limiter->table, now);
    limiter->full = false;
    if (!limiter->ready)
        event_new(limiter, WEIR_EVENT_READY, now);
    limiter->ready = true;
    const struct weir_limiter_sink *region = limiter->region;
    return region ? region->reached(region->context, limiter->epoch, now)
                  : WEIR_OK;
}

static int take_quotas(struct weir_limiter *limiter, struct link *link,
                       const struct weir_quotas *quotas, weir_instant now)
{
    int error = quotas->full ? begin_full(limiter, link, now) : WEIR_OK;
    if (quotas->from > limiter->epoch)
        return error; /* something before it was lost: it will be said again */
    for (size_t i = 0; i < quotas->count && error == 0; i++)
        error = apply_change(limiter, &quotas->changes[i], now);
    if (error < 0)
        return error;
    if (quotas->epoch > limiter->epoch)
        limiter->epoch = quotas->epoch;
    if (quotas->target > link->root_epoch)
        link->root_epoch = quotas->target;
    return limiter->epoch < quotas->target ? WEIR_OK : reach(limiter, now);
}

static int take_fills(struct weir_limiter *limiter, uint32_t index,
                      const struct weir_fills *fills, weir_instant now)
{
    struct weir_tally_link *link = &limiter->tally.link[index];
    int error = weir_tally_fills(&limiter->tally, index, fills, now);
    limiter->link[index].urgent |= link->hurry;
    link->hurry = false;
    return error;
}

/* The root asks for reports that far apart. */
static void stretch(struct weir_limiter *limiter, struct link *link,
                    weir_duration asked, weir_instant now)
{
    weir_duration most = limiter->settings.stale_after / 2;
    weir_duration before = link->stretch;
    link->stretch = asked < most ? asked : most;
    link->resend = 2 * link->stretch > RESEND_FIRST ? 2 * link->stretch
                                                    : RESEND_FIRST;
    if (link->stretch == before)
        return;
    set_interval(limiter);
    if (link->stretch < before)
        return;
    struct weir_event *event =
        event_new(limiter, WEIR_EVENT_ROOT_STRETCH, now);
    if (event)
        event->count = link->stretch / WEIR_MILLISECOND;
    event_text(event, WEIR_TEXT("an overloaded root: reports, and what "
                                "others count, come later"));
}

int weir_limiter_receive(struct weir_limiter *limiter, uint32_t index,
                         const struct weir_message *message,
                         weir_instant now)
{
    weir_assert(index < limiter->link_count);
    struct link *link = &limiter->link[index];
    if (link->state == DOWN || message->session != link->session)
        return WEIR_OK;
    hear(limiter, link, top_age_in(link, message), now);
    switch (message->type) {
    case WEIR_MESSAGE_WELCOME:
        return welcomed(limiter, index, &message->welcome, now);
    case WEIR_MESSAGE_QUOTAS:
        /* A region passes them on, and has to say whose they are: the welcome
         * that would have told was lost, or overtaken. */
        link->ask = limiter->region && !link->root_ready;
        if (link->state != UP || link->ask)
            return WEIR_OK;
        return take_quotas(limiter, link, &message->quotas, now);
    case WEIR_MESSAGE_FILLS:
        if (link->state != UP)
            return WEIR_OK;
        stretch(limiter, link, message->fills.stretch, now);
        return take_fills(limiter, index, &message->fills, now);
    case WEIR_MESSAGE_HELLO:
    case WEIR_MESSAGE_REPORT:
        break;
    }
    return WEIR_EPROTOCOL;
}

/* ---- Time ---- */

static void learn_ratio(struct weir_limiter *limiter)
{
    struct weir_tally *tally = &limiter->tally;
    if (!limiter->settings.correction_auto || tally->predicted <= 0)
        return;
    float ratio = tally->observed / tally->predicted;
    tally->ratio = ratio < 1 ? ratio : 1;
}

static bool extrapolates(const struct weir_limiter *limiter)
{
    return limiter->stale || limiter->settings.correction_auto ||
           limiter->settings.correction_ppm > 0;
}

static void overflow_events(struct weir_limiter *limiter, weir_instant now)
{
    uint64_t seen = weir_table_overflowed(limiter->table);
    if (seen == limiter->full_seen)
        return;
    struct weir_event *event =
        event_new(limiter, WEIR_EVENT_TABLE_FULL, now);
    if (event)
        event->count = seen - limiter->full_seen;
    limiter->full_seen = seen;
}

void weir_limiter_tick(struct weir_limiter *limiter, weir_instant now)
{
    check_stale(limiter, now);
    weir_tally_listen(&limiter->tally, PATIENCE, now);
    choose_carrier(limiter);
    bool kicked = weir_table_urgent(limiter->table);
    if (limiter->settings.slack && (kicked || now >= limiter->look_at)) {
        weir_tally_collect(&limiter->tally, false, now);
        uint32_t urgent = weir_tally_look(&limiter->tally, now);
        for (uint32_t i = 0; i < limiter->link_count; i++)
            limiter->link[i].urgent |= urgent >> i & 1;
        limiter->look_at = now + LOOK_EVERY;
    }
    if (now >= limiter->collect_at) {
        weir_tally_collect(&limiter->tally, true, now);
        limiter->collect_at = now + limiter->settings.report_interval;
        overflow_events(limiter, now);
    }
    if (now >= limiter->extrapolate_at) {
        learn_ratio(limiter);
        if (extrapolates(limiter))
            weir_tally_extrapolate(&limiter->tally, limiter->stale, now);
        limiter->extrapolate_at = now + EXTRAPOLATE_EVERY;
    }
    if (now >= limiter->sweep_at) {
        bool crowded = weir_table_is_crowded(limiter->table);
        weir_table_sweep(limiter->table,
                         crowded ? SWEEP_CROWDED : SWEEP_SLOTS, now);
        limiter->sweep_at = now + SWEEP_EVERY;
    }
}

static weir_instant earlier(weir_instant a, weir_instant b)
{
    return a < b ? a : b;
}

static weir_instant later(weir_instant a, weir_instant b)
{
    return a > b ? a : b;
}

/* When the link next has something to say. */
static weir_instant link_due(const struct weir_limiter *limiter,
                             uint32_t index)
{
    const struct link *link = &limiter->link[index];
    switch (link->state) {
    case DOWN:
        return WEIR_NEVER;
    case GREETING:
        return 0;
    case WAITING:
        return link->sent_at + link->resend;
    case UP:
        break;
    }
    if (link->ask)
        return 0;
    if (limiter->tally.link[index].unanswered)
        return link->sent_at + link->resend;
    weir_duration spacing = later(WEIR_REPORT_SPACING, link->stretch);
    if (link->urgent)
        return link->sent_at + spacing;
    return later(link->report_at, link->sent_at + link->stretch);
}

weir_instant weir_limiter_deadline(const struct weir_limiter *limiter,
                                   weir_instant now)
{
    weir_instant due = earlier(limiter->collect_at, limiter->sweep_at);
    if (extrapolates(limiter))
        due = earlier(due, limiter->extrapolate_at);
    if (limiter->settings.slack && weir_tally_paced(&limiter->tally))
        due = earlier(due, limiter->look_at);
    if (limiter->heard && !limiter->stale)
        due = earlier(due, limiter->heard_at +
                               limiter->settings.stale_after);
    if (limiter->stale && limiter->tally.share_above)
        due = earlier(due,
                      limiter->spoken_at + limiter->settings.stale_after);
    for (uint32_t i = 0; i < limiter->link_count; i++)
        due = earlier(due, link_due(limiter, i));
    return later(due, now);
}

static void make_report(struct weir_limiter *limiter, uint32_t index,
                        struct weir_message *out, weir_instant now)
{
    struct link *link = &limiter->link[index];
    bool again = limiter->tally.link[index].unanswered;
    if (!again)
        weir_tally_collect(&limiter->tally, false, now);
    out->type = WEIR_MESSAGE_REPORT;
    weir_tally_report(&limiter->tally, index, &out->report, now);
    out->report.epoch = limiter->epoch;
    out->report.unknown =
        weir_table_unknown(limiter->table) - limiter->unknown_before;
    if (again && link->resend < RESEND_MOST)
        link->resend *= 2;
    link->urgent = false;
    /* After the first, anywhere in an interval: limiters that meet a root at
     * one instant don't go on in step. */
    weir_duration interval = limiter->settings.report_interval;
    if (link->first)
        interval = weir_rng_below(&limiter->rng, interval);
    link->first = false;
    link->report_at = now + interval;
    if (limiter->tally.link[index].left_out && interval > REST_AFTER)
        link->report_at = now + REST_AFTER;
    limiter->reports++;
}

bool weir_limiter_next(struct weir_limiter *limiter, uint32_t *out_link,
                       struct weir_message *out, weir_instant now)
{
    for (uint32_t i = 0; i < limiter->link_count; i++) {
        struct link *link = &limiter->link[i];
        if (link_due(limiter, i) > now)
            continue;
        *out_link = i;
        out->session = link->session;
        if (link->state == UP && link->ask) {
            greet(limiter, out);
            link->ask = false;
            return true;
        }
        if (link->state == UP) {
            make_report(limiter, i, out, now);
        } else {
            greet(limiter, out);
            link->state = WAITING;
        }
        link->sent_at = now;
        return true;
    }
    return false;
}

/* ---- How it stands ---- */

bool weir_limiter_ready(const struct weir_limiter *limiter)
{
    return limiter->ready;
}

uint64_t weir_limiter_epoch(const struct weir_limiter *limiter)
{
    return limiter->epoch;
}

uint64_t weir_limiter_reports(const struct weir_limiter *limiter)
{
    return limiter->reports;
}

uint32_t weir_limiter_links_up(const struct weir_limiter *limiter)
{
    uint32_t up = 0;
    for (uint32_t i = 0; i < limiter->link_count; i++)
        up += limiter->link[i].state == UP;
    return up;
}

uint64_t weir_limiter_session(const struct weir_limiter *limiter,
                              uint32_t index)
{
    weir_assert(index < limiter->link_count);
    const struct link *link = &limiter->link[index];
    return link->state == UP ? link->session : 0;
}

void weir_limiter_hurry(struct weir_limiter *limiter, weir_instant now)
{
    weir_tally_collect(&limiter->tally, false, now);
    for (uint32_t i = 0; i < limiter->link_count; i++)
        limiter->link[i].urgent = true;
}

bool weir_limiter_settled(const struct weir_limiter *limiter)
{
    for (uint32_t i = 0; i < limiter->link_count; i++) {
        if (limiter->link[i].state == UP &&
            weir_tally_pending(&limiter->tally, i))
            return false;
    }
    return true;
}

/* ---- Of a region ---- */

weir_duration weir_limiter_top_age(const struct weir_limiter *limiter,
                                   weir_instant now)
{
    if (!limiter->topped)
        return WEIR_NEVER;
    return now > limiter->heard_at ? now - limiter->heard_at : 0;
}

bool weir_limiter_stale(const struct weir_limiter *limiter)
{
    return limiter->stale;
}

const struct weir_settings *
weir_limiter_settings(const struct weir_limiter *limiter)
{
    return &limiter->settings;
}

bool weir_limiter_carry(struct weir_limiter *limiter, struct weir_ref ref,
                        int64_t units, uint64_t refused, uint64_t ahead,
                        uint64_t pace, weir_instant now)
{
    weir_assert(limiter->region);
    if (!weir_table_carry(limiter->table, ref, units, refused, now))
        return false;
    weir_tally_presume(&limiter->tally, ref, ahead, pace);
    return true;
}

void weir_limiter_carry_late(struct weir_limiter *limiter, weir_duration age,
                             weir_instant now)
{
    weir_tally_late(&limiter->tally, now > age ? now - age : 0);
}

bool weir_limiter_above(struct weir_limiter *limiter, struct weir_ref ref,
                        struct weir_above *out, weir_instant now)
{
    return weir_tally_above(&limiter->tally, ref, out, now);
}

int weir_limiter_restore(struct weir_limiter *limiter,
                         const struct weir_store_id *store, weir_instant now)
{
    limiter->store = *store;
    limiter->epoch = 0;
    limiter->full = true;
    weir_table_begin_full(limiter->table);
    const struct weir_limiter_sink *region = limiter->region;
    return region ? region->whole(region->context, store, now) : WEIR_OK;
}

int weir_limiter_restore_change(struct weir_limiter *limiter,
                                const struct weir_change *change,
                                weir_instant now)
{
    return apply_change(limiter, change, now);
}

int weir_limiter_restored(struct weir_limiter *limiter, uint64_t epoch,
                          weir_instant now)
{
    /* It is given as long as if a root had spoken. */
    limiter->heard = true;
    limiter->heard_at = limiter->spoken_at = now;
    limiter->epoch = epoch;
    return reach(limiter, now);
}
