/* SPDX-License-Identifier: MIT
 * io/root_set.c - which of the known addresses of roots a limiter uses.
 *
 * A place is listed while some name has it. A listed place without a link
 * waits, unless it leads to a root that another link has reached:
 *
 *              answer                    plan
 *     (new) ---------> waiting <------------------> linked
 *                        ^  |                          |
 *      root died, or is  |  | another link has         | merge: two addresses
 *      another one       |  v the same root            v of one root
 *                        same_as <---------------------'
 *
 * Of the waiting places those come first whose last try is longest ago, and
 * among places never tried those of the highest rank. The rank depends on the
 * address alone (rendezvous hashing, Thaler and Ravishankar 1998): all
 * limiters that see the same addresses choose the same roots, and one address
 * more or less changes one choice. So that this holds again after roots were
 * away, a connected link gives way to a place of a higher rank, one at a time.
 * Roots don't know each other, and a limit
 * holds because some root has the counts of all limiters. A choice by the
 * limiter's own name would spread the limiters over the roots, and no root
 * would have all counts. */

#include "io/root_set.h"

#include <string.h>
#include <strings.h>

#include "core/base/hash.h"

void weir_root_set_init(struct weir_root_set *set, uint32_t links)
{
    weir_assert(links >= 1 && links <= WEIR_ROOTS_MAX);
    *set = (struct weir_root_set){ .links = links };
    for (uint32_t i = 0; i < WEIR_ROOTS_MAX; i++)
        set->link[i].place = WEIR_ROOT_NONE;
}

const struct weir_root_place *weir_root_set_place(
    const struct weir_root_set *set, uint32_t link)
{
    weir_assert(link < set->links);
    uint32_t at = set->link[link].place;
    return at == WEIR_ROOT_NONE ? NULL : &set->place[at];
}

/* ---- Places ---- */

static bool is_waiting(const struct weir_root_place *place)
{
    return place->used && place->listed != 0 && place->link == WEIR_ROOT_NONE &&
           place->same_as == WEIR_ROOT_NONE;
}

/* Whether 'a' is linked before 'b'. Equal ranks are decided by the text, for
 * all limiters alike. */
static bool comes_before(const struct weir_root_place *a,
                         const struct weir_root_place *b)
{
    if (a->turn != b->turn)
        return a->turn < b->turn;
    if (a->rank != b->rank)
        return a->rank > b->rank;
    int order = strcasecmp(a->address.host, b->address.host);
    return order != 0 ? order < 0 : a->address.port < b->address.port;
}

/* Which root the link leads to isn't known any more, so neither is it that of
 * other places. */
static void forget_root(struct weir_root_set *set, uint32_t link)
{
    set->link[link].met = false;
    for (uint32_t i = 0; i < WEIR_ROOT_ADDRESSES_MAX; i++)
        if (set->place[i].used && set->place[i].same_as == link)
            set->place[i].same_as = WEIR_ROOT_NONE;
}

/* Frees the link; a place that no name has any more is forgotten. */
static void unlink_place(struct weir_root_set *set, uint32_t link)
{
    uint32_t at = set->link[link].place;
    weir_assert(at < WEIR_ROOT_ADDRESSES_MAX && set->place[at].link == link);
    set->place[at].link = WEIR_ROOT_NONE;
    set->place[at].used = set->place[at].listed != 0;
    set->link[link].place = WEIR_ROOT_NONE;
    set->link[link].up = false;
    forget_root(set, link);
}

static struct weir_root_place *find_place(struct weir_root_set *set,
                                          const struct weir_address *address)
{
    for (uint32_t i = 0; i < WEIR_ROOT_ADDRESSES_MAX; i++)
        if (set->place[i].used &&
            weir_address_is_equal(&set->place[i].address, address))
            return &set->place[i];
    return NULL;
}

/* A place without a link that comes after 'wanted', the last of them; or one
 * that isn't used. NULL: none. */
static struct weir_root_place *find_room(struct weir_root_set *set,
                                         const struct weir_root_place *wanted)
{
    struct weir_root_place *last = NULL;
    for (uint32_t i = 0; i < WEIR_ROOT_ADDRESSES_MAX; i++) {
        struct weir_root_place *place = &set->place[i];
        if (!place->used ||
            (place->listed == 0 && place->link == WEIR_ROOT_NONE))
            return place;
        if (place->link == WEIR_ROOT_NONE && comes_before(wanted, place) &&
            (!last || comes_before(last, place)))
            last = place;
    }
    return last;
}

static void list_place(struct weir_root_set *set, uint32_t given,
                       const struct weir_address *address, bool is_name)
{
    struct weir_root_place *place = find_place(set, address);
    const struct weir_root_place made = {
        .address = *address,
        .used = true,
        .is_name = is_name,
        .link = WEIR_ROOT_NONE,
        .same_as = WEIR_ROOT_NONE,
        .rank = weir_hash(weir_text_of(address->host), address->port),
    };
    if (!place) {
        place = find_room(set, &made);
        if (!place)
            return;
        *place = made;
    }
    place->listed |= (uint32_t)1 << given;
}

void weir_root_set_give(struct weir_root_set *set, uint32_t given,
                        const struct weir_address *address, bool is_name)
{
    weir_assert(given < 32);
    list_place(set, given, address, is_name);
}

void weir_root_set_answer(struct weir_root_set *set, uint32_t given,
                          const struct weir_address *addresses, size_t count)
{
    weir_assert(given < 32 && count > 0);
    for (uint32_t i = 0; i < WEIR_ROOT_ADDRESSES_MAX; i++)
        set->place[i].listed &= ~((uint32_t)1 << given);
    for (size_t i = 0; i < count; i++)
        list_place(set, given, &addresses[i], false);
    for (uint32_t i = 0; i < WEIR_ROOT_ADDRESSES_MAX; i++) {
        struct weir_root_place *place = &set->place[i];
        place->used &= place->listed != 0 || place->link != WEIR_ROOT_NONE;
    }
}

/* ---- Links ---- */

void weir_root_set_up(struct weir_root_set *set, uint32_t link, bool up)
{
    weir_assert(link < set->links);
    weir_assert(!up || set->link[link].place != WEIR_ROOT_NONE);
    set->link[link].up = up;
    if (up)
        set->place[set->link[link].place].turn = 0;
}

void weir_root_set_failed(struct weir_root_set *set, uint32_t link)
{
    weir_assert(link < set->links && !set->link[link].up);
    uint32_t at = set->link[link].place;
    weir_assert(at < WEIR_ROOT_ADDRESSES_MAX);
    set->place[at].turn = ++set->turns;
    forget_root(set, link);
}

void weir_root_set_retry(struct weir_root_set *set)
{
    for (uint32_t i = 0; i < WEIR_ROOT_ADDRESSES_MAX; i++)
        set->place[i].turn = 0;
}

uint32_t weir_root_set_meet(struct weir_root_set *set, uint32_t link,
                            const uint8_t root[WEIR_INCARNATION_SIZE])
{
    weir_assert(link < set->links && set->link[link].up);
    bool same = set->link[link].met &&
                memcmp(set->link[link].root, root, WEIR_INCARNATION_SIZE) == 0;
    if (!same)
        forget_root(set, link);
    set->link[link].met = true;
    memcpy(set->link[link].root, root, WEIR_INCARNATION_SIZE);
    for (uint32_t i = 0; i < set->links; i++)
        if (i != link && set->link[i].up && set->link[i].met &&
            memcmp(set->link[i].root, root, WEIR_INCARNATION_SIZE) == 0)
            return i;
    return WEIR_ROOT_NONE;
}

void weir_root_set_merge(struct weir_root_set *set, uint32_t link,
                         uint32_t other)
{
    weir_assert(link < set->links && other < set->links && link != other);
    uint32_t at = set->link[link].place;
    weir_assert(at < WEIR_ROOT_ADDRESSES_MAX);
    unlink_place(set, link);
    set->place[at].same_as = other;
}

uint32_t weir_root_set_waiting(const struct weir_root_set *set)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < WEIR_ROOT_ADDRESSES_MAX; i++)
        count += is_waiting(&set->place[i]);
    return count;
}

/* ---- The plan ---- */

static struct weir_root_place *first_waiting(struct weir_root_set *set)
{
    struct weir_root_place *first = NULL;
    for (uint32_t i = 0; i < WEIR_ROOT_ADDRESSES_MAX; i++) {
        struct weir_root_place *place = &set->place[i];
        if (is_waiting(place) && (!first || comes_before(place, first)))
            first = place;
    }
    return first;
}

/* Else the link that gave way last may lead nowhere. A name without an answer
 * isn't waited for. */
static bool are_all_up(const struct weir_root_set *set)
{
    for (uint32_t i = 0; i < set->links; i++) {
        const struct weir_root_place *place = weir_root_set_place(set, i);
        if (!set->link[i].up && !(place && place->is_name))
            return false;
    }
    return true;
}

/* Whether the limiters that come now use 'place' rather than 'own'. */
static bool is_better(const struct weir_root_place *place,
                      const struct weir_root_place *own)
{
    return place->turn == 0 && comes_before(place, own);
}

/* Whether the link's place is more dispensable than 'best', the most
 * dispensable so far (NULL: none), for 'place'. */
static bool gives_way(const struct weir_root_set *set, uint32_t link,
                      const struct weir_root_place *best,
                      const struct weir_root_place *place)
{
    const struct weir_root_place *own = weir_root_set_place(set, link);
    bool may = own->turn > place->turn;
    if (set->link[link].up)
        may = are_all_up(set) && (own->listed == 0 || is_better(place, own));
    if (!may)
        return false;
    if (!best)
        return true;
    if ((own->listed == 0) != (best->listed == 0))
        return own->listed == 0;
    return comes_before(best, own);
}

/* A link for the place: a free one, or the one that gives way; NONE: none. */
static uint32_t link_for(const struct weir_root_set *set,
                         const struct weir_root_place *place)
{
    uint32_t found = WEIR_ROOT_NONE;
    const struct weir_root_place *best = NULL;
    for (uint32_t i = 0; i < set->links; i++) {
        if (set->link[i].place == WEIR_ROOT_NONE)
            return i;
        if (!gives_way(set, i, best, place))
            continue;
        best = weir_root_set_place(set, i);
        found = i;
    }
    return found;
}

uint32_t weir_root_set_plan(struct weir_root_set *set)
{
    uint32_t changed = 0;
    for (uint32_t i = 0; i < set->links; i++) {
        const struct weir_root_place *place = weir_root_set_place(set, i);
        if (!place || place->listed != 0 || set->link[i].up)
            continue;
        unlink_place(set, i);
        changed |= (uint32_t)1 << i;
    }
    /* Ends: a link that is given to another place gets one that is listed, and
     * of an earlier turn. */
    for (;;) {
        struct weir_root_place *place = first_waiting(set);
        uint32_t link = place ? link_for(set, place) : WEIR_ROOT_NONE;
        if (link == WEIR_ROOT_NONE)
            return changed;
        if (set->link[link].place != WEIR_ROOT_NONE)
            unlink_place(set, link);
        set->link[link].place = (uint32_t)(place - set->place);
        place->link = link;
        changed |= (uint32_t)1 << link;
    }
}
