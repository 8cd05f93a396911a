/* SPDX-License-Identifier: MIT
 * node/limiter_ask.c - steps of exact quotas made by a root: which root is
 * asked, and how each ask ends.
 *
 *     free --ask()--> queued --next()--> sent --answer, or none--> answered
 *       ^                |                                            |
 *       |                '---- no root is up, or too late ----------->|
 *       '-------------------------- answered() -----------------------'
 *
 * Which root. All limiters that see the same roots must choose the same one
 * without messages between them: each hashes the quota's name with the roots'
 * names, and the highest hash wins (rendezvous hashing, Thaler and Ravishankar
 * 1996). If a root dies, only its own quotas move, each to the root with the
 * next hash, where it begins with an empty bucket state; back again, the root
 * still has its state if it is the same process. Limiters that see different
 * roots may ask different ones: with g such groups g times the limit may pass.
 * A quorum of roots would prevent that, at the price of two more network trips
 * in each decision; for that, use an exact quota in a store that has a quorum.
 *
 * At its birth a limiter knows no root's name, and the first root it meets
 * would have the highest hash. So asks wait until each root was met or failed
 * to connect, but not longer than MEET_ALL.
 *
 * Mute roots. A root that answered nothing while an ask expired is mute for
 * asks with no more patience: the first one cost its caller the deadline, the
 * next ones fail at once. A message of another kind doesn't end that, because
 * late answers are charged and useless; but after one, single asks are let
 * through, and an answer within the patience ends it. No other root is asked
 * meanwhile: for other limiters this one may not be mute.
 *
 * An ask's number holds its place in the low bits, so an answer finds it
 * without a search. Numbers always rise, so a place's next ask isn't mistaken
 * for the last. Nothing is sent twice: only the root knows whether the ask was
 * charged. */

#include "core/base/hash.h"
#include "core/node/limiter_internal.h"

#define NO_LINK UINT32_MAX
#define MEET_ALL (500 * WEIR_MILLISECOND)
/* One ask is tried in this time at a mute root that sends other messages. */
#define PROBE_EVERY (400 * WEIR_MILLISECOND)

size_t weir_limiter_asks_size(uint32_t asks)
{
    return weir_aligned(asks * sizeof(struct ask_place)) +
           weir_aligned(asks * sizeof(struct weir_step_ask));
}

void weir_limiter_asks_init(struct limiter_asks *asks, void *block,
                            uint32_t capacity)
{
    weir_assert(capacity <= WEIR_ASKS_MAX);
    asks->capacity = capacity;
    asks->place = block;
    asks->scratch = (void *)((char *)block +
                             weir_aligned(capacity * sizeof(struct ask_place)));
    asks->look_at = WEIR_NEVER;
}

void weir_limiter_asks_forget(struct limiter_asks *asks)
{
    asks->free = asks->queued = asks->answered = (struct ask_list){ 0, 0 };
    asks->used = asks->under_way = 0;
    asks->look_at = WEIR_NEVER;
    weir_assert(asks->under_way == 0);
}

/* ---- Lists ---- */

static void list_add(struct limiter_asks *asks, struct ask_list *list,
                     uint32_t index)
{
    weir_assert(index < asks->used);
    asks->place[index].next = 0;
    if (list->last != 0)
        asks->place[list->last - 1].next = index + 1;
    else
        list->first = index + 1;
    list->last = index + 1;
    weir_assert(list->first != 0);
}

static bool list_take(struct limiter_asks *asks, struct ask_list *list,
                      uint32_t *out_index)
{
    if (list->first == 0)
        return false;
    *out_index = list->first - 1;
    weir_assert(*out_index < asks->used);
    list->first = asks->place[*out_index].next;
    if (list->first == 0)
        list->last = 0;
    return true;
}

static bool find_ask_place(struct limiter_asks *asks, uint32_t *out_index)
{
    if (list_take(asks, &asks->free, out_index))
        return true;
    if (asks->used == asks->capacity)
        return false;
    weir_assert(asks->used < asks->capacity);
    *out_index = asks->used++;
    return true;
}

static void end_ask(struct limiter_asks *asks, uint32_t index, int error)
{
    weir_assert(index < asks->used && asks->under_way > 0);
    struct ask_place *place = &asks->place[index];
    weir_assert(place->queued || place->number != 0);
    place->number = 0;
    place->queued = false;
    place->error = error;
    list_add(asks, &asks->answered, index);
}

/* ---- Which root ---- */

static uint32_t route(const struct weir_limiter *limiter, struct weir_text name)
{
    uint32_t best = NO_LINK;
    uint64_t most = 0;
    for (uint32_t i = 0; i < limiter->link_count; i++) {
        const struct limiter_link *link = &limiter->link[i];
        if (link->state != LINK_UP || !link->root_ready)
            continue;
        uint64_t score = weir_hash(name, link->root_hash);
        if (best != NO_LINK && score <= most)
            continue;
        best = i;
        most = score;
    }
    return best;
}

/* Whether there is no root to ask, or it is mute. */
static bool is_away(const struct weir_limiter *limiter, uint32_t index,
                    weir_duration patience, weir_instant now)
{
    weir_assert(index == NO_LINK || index < limiter->link_count);
    if (index == NO_LINK)
        return true;
    const struct limiter_link *link = &limiter->link[index];
    return patience <= link->mute_for &&
           (!link->speaks || now < link->probe_at);
}

static struct weir_text asked_name(const struct ask_place *place)
{
    return (struct weir_text){ place->name, place->name_len };
}

bool weir_limiter_tried(const struct weir_limiter *limiter)
{
    for (uint32_t i = 0; i < limiter->link_count; i++) {
        if (!limiter->link[i].tried)
            return false;
    }
    return true;
}

weir_instant weir_limiter_asks_from(const struct weir_limiter *limiter)
{
    return weir_limiter_tried(limiter) ? 0 : limiter->born + MEET_ALL;
}

/* ---- Asks out ---- */

int weir_limiter_ask(struct weir_limiter *limiter,
                     const struct weir_step_ask *ask, uint64_t ticket,
                     weir_instant now)
{
    struct limiter_asks *asks = &limiter->asks;
    uint32_t index;
    weir_assert(ask->name.len >= 1 && ask->name.len <= WEIR_NAME_MAX);
    weir_duration patience =
        ask->patience < WEIR_PATIENCE_MAX ? ask->patience : WEIR_PATIENCE_MAX;
    if (now >= weir_limiter_asks_from(limiter) &&
        is_away(limiter, route(limiter, ask->name), patience, now))
        return WEIR_ECONNECT;
    if (!find_ask_place(asks, &index))
        return WEIR_EFULL;
    struct ask_place *place = &asks->place[index];
    place->ticket = ticket;
    place->asked_at = now;
    place->until = now + patience;
    place->ask = ask->ask;
    place->number = 0;
    place->queued = true;
    place->name_len = (uint8_t)ask->name.len;
    memcpy(place->name, ask->name.p, ask->name.len);
    if (place->until < asks->look_at)
        asks->look_at = place->until;
    weir_assert(asks->under_way < asks->capacity);
    asks->under_way++;
    list_add(asks, &asks->queued, index);
    return WEIR_OK;
}

static weir_duration ask_patience(const struct ask_place *place)
{
    weir_assert(place->until >= place->asked_at);
    return place->until - place->asked_at;
}

static void send(struct weir_limiter *limiter, uint32_t index, uint32_t link,
                 struct weir_asks *out, weir_instant now)
{
    weir_assert(link < limiter->link_count && out->count < WEIR_ASKS_MAX);
    struct limiter_asks *asks = &limiter->asks;
    struct ask_place *place = &asks->place[index];
    weir_assert(place->queued && place->number == 0);
    if (ask_patience(place) <= limiter->link[link].mute_for)
        limiter->link[link].probe_at = now + PROBE_EVERY;
    place->queued = false;
    place->link = link;
    place->number = ++asks->sequence * WEIR_ASKS_MAX + index;
    asks->scratch[out->count++] = (struct weir_step_ask){
        .number = place->number,
        .name = asked_name(place),
        .ask = place->ask,
        .patience = place->until - now,
    };
}

bool weir_limiter_asks_next(struct weir_limiter *limiter, uint32_t *out_link,
                            struct weir_message *out, weir_instant now)
{
    struct limiter_asks *asks = &limiter->asks;
    struct ask_list waiting = asks->queued;
    struct weir_asks message = { .asks = asks->scratch };
    uint32_t to = NO_LINK;
    uint32_t index;
    bool early = now < weir_limiter_asks_from(limiter);
    asks->queued = (struct ask_list){ 0, 0 };
    while (list_take(asks, &waiting, &index)) {
        const struct ask_place *place = &asks->place[index];
        uint32_t link = route(limiter, asked_name(place));
        if (to == NO_LINK && !is_away(limiter, link, ask_patience(place), now))
            to = link;
        if (now >= place->until)
            end_ask(asks, index, WEIR_ETIMEOUT);
        else if (is_away(limiter, link, ask_patience(place), now) && !early)
            end_ask(asks, index, WEIR_ECONNECT);
        else if (link == to && !early)
            send(limiter, index, link, &message, now);
        else
            list_add(asks, &asks->queued, index); /* a later message */
    }
    if (message.count == 0)
        return false;
    weir_assert(to < limiter->link_count);
    *out_link = to;
    out->type = WEIR_MESSAGE_ASKS;
    out->session = limiter->link[to].session;
    out->asks = message;
    return true;
}

/* ---- Answers, and asks without ---- */

static int ask_error(enum weir_step_error error)
{
    switch (error) {
    case WEIR_STEP_ANSWERED:
        return WEIR_OK;
    case WEIR_STEP_UNKNOWN:
        return WEIR_ENOENT;
    case WEIR_STEP_NO_ROOM:
        return WEIR_EFULL;
    case WEIR_STEP_DENIED:
        return WEIR_EDENIED;
    case WEIR_STEP_AWAY:
        break;
    }
    return WEIR_ECONNECT;
}

static void note_root_answer(struct limiter_link *link,
                             const struct ask_place *place, weir_instant now)
{
    link->answered_at = now;
    if (now - place->asked_at <= link->mute_for)
        link->mute_for = 0;
}

void weir_limiter_take_answers(struct weir_limiter *limiter, uint32_t link,
                               const struct weir_answers *answers,
                               weir_instant now)
{
    weir_assert(link < limiter->link_count);
    struct limiter_asks *asks = &limiter->asks;
    for (size_t i = 0; i < answers->count; i++) {
        const struct weir_step_answer *answer = &answers->answers[i];
        uint32_t index = (uint32_t)(answer->number % WEIR_ASKS_MAX);
        if (index >= asks->used || answer->number == 0)
            continue;
        struct ask_place *place = &asks->place[index];
        if (place->number != answer->number || place->link != link)
            continue; /* doubled, or too late */
        if (answer->error == WEIR_STEP_DENIED)
            weir_limiter_note_denied(limiter, link, asked_name(place), now);
        place->answer = answer->answer;
        note_root_answer(&limiter->link[link], place, now);
        end_ask(asks, index, ask_error(answer->error));
    }
}

void weir_limiter_asks_lost(struct weir_limiter *limiter, uint32_t link)
{
    weir_assert(link < limiter->link_count);
    struct limiter_asks *asks = &limiter->asks;
    limiter->link[link].mute_for = 0;
    for (uint32_t i = 0; asks->under_way > 0 && i < asks->used; i++) {
        if (asks->place[i].number != 0 && asks->place[i].link == link)
            end_ask(asks, i, WEIR_ECONNECT);
    }
}

static void note_missed_answer(struct limiter_link *link,
                               const struct ask_place *place, weir_instant now)
{
    if (link->answered_at >= place->asked_at ||
        ask_patience(place) <= link->mute_for)
        return;
    /* The rest of the same deadline varies from ask to ask: add some. */
    link->mute_for = ask_patience(place) + ask_patience(place) / 8;
    link->speaks = false;
    link->probe_at = now;
    weir_assert(link->mute_for > 0);
}

/* Queued asks end in weir_limiter_asks_next(). */
void weir_limiter_asks_expire(struct weir_limiter *limiter, weir_instant now)
{
    struct limiter_asks *asks = &limiter->asks;
    if (now < asks->look_at)
        return;
    weir_assert(asks->under_way <= asks->used && asks->used <= asks->capacity);
    asks->look_at = WEIR_NEVER;
    for (uint32_t i = 0; i < asks->used; i++) {
        const struct ask_place *place = &asks->place[i];
        if (place->number == 0 && !place->queued)
            continue;
        if (place->number != 0 && now >= place->until) {
            note_missed_answer(&limiter->link[place->link], place, now);
            end_ask(asks, i, WEIR_ETIMEOUT);
        } else if (place->until < asks->look_at) {
            asks->look_at = place->until;
        }
    }
}

bool weir_limiter_answered(struct weir_limiter *limiter, uint64_t *out_ticket,
                           int *out_error, struct weir_algorithm_answer *out)
{
    struct limiter_asks *asks = &limiter->asks;
    uint32_t index;
    if (!list_take(asks, &asks->answered, &index))
        return false;
    const struct ask_place *place = &asks->place[index];
    *out_ticket = place->ticket;
    *out_error = place->error;
    if (place->error == 0)
        *out = place->answer;
    weir_assert(asks->under_way > 0 && place->number == 0);
    asks->under_way--;
    list_add(asks, &asks->free, index);
    return true;
}
