/* SPDX-License-Identifier: MIT
 * leased/fair_share.c - shares from sums over the claims, in order of their
 * ratio.
 *
 * All that a share needs of the other claims is sums. With the claims in the
 * order of their ratio, wants / weight, max-min fairness fills them from the
 * left: each up to its demand, as long as all after it could have as much a
 * weight; the rest divide the remainder evenly, at the level.
 *
 *      ratio                    wants of these + level * weight of those
 *        |              #       = capacity
 *     level - - - - ----#----
 *        |        # |///#////   The first claim that doesn't fit is found on
 *        |    #   #/|///#////   one way down a tree whose nodes know the sums
 *        +----#---#-+---#---->  of wants and weights below them. Proportional
 *              these  those     share cuts the same order at capacity / all
 *                               weights.
 *
 * The tree is a treap (Seidel, Aragon: "Randomized search trees", Algorithmica
 * 16, 1996) with hashes of the claims' numbers under the book's seed as
 * priorities. Its shape, and with it the last bit of each sum, depends on the
 * claims in the book and not on its history, and clients that choose their
 * wants don't choose its depth: for 2^20 claims some 50, so that recursion is
 * harmless. Sums are made anew from both children on the way back from each
 * change; sums that are added to and subtracted from drift, and a claim of 1e18
 * that came and went would take the small ones with it.
 *
 * Each claim is in two such trees: that of all, for the shares that know no
 * bands, and that of its band. Rejected: the bands' trees alone, and a search
 * through all of them at once; with 64 bands that is slower than a second tree
 * and no shorter. And a table of classes of ratios, which would be quicker and
 * only about right. */

#include "core/leased/fair_share.h"

#include <math.h>

#include "core/base/rng.h"

#define NONE 0 /* the place of no claim: no wants, no weight */

enum tree { ALL, BAND, TREES };

struct node {
    double wants;    /* of the claims from here down */
    uint64_t weight; /* likewise */
    uint32_t left;
    uint32_t right;
};

/* At the place of its number + 1. */
struct claim {
    /* wants / weight, rounded once, so that all claims are in one order;
     * products crosswise would be rounded in pairs, and could make a circle.
     * Kept: divided anew at each node, it took a quarter of a change
     * (1,000 claims, gcc -O2, processor time, least of 40 batches). */
    double ratio;
    double wants;
    uint32_t weight; /* 0: a free place */
    uint32_t band;   /* which of the book's; if free: the next free place */
    struct node nodes[TREES];
};

struct band {
    int64_t number;
    uint32_t root;
    uint32_t claims; /* 0: a free one */
};

struct weir_book {
    struct weir_mem mem;
    uint64_t seed;
    struct claim *claims; /* owned */
    size_t capacity;      /* places */
    uint32_t used;        /* places that ever were in use, with that of NONE */
    uint32_t free;        /* the first free place among them, or NONE */
    uint32_t count;
    uint32_t root; /* of all */
    uint32_t bands_count;
    uint8_t order[WEIR_BANDS_MAX]; /* of bands in use, the highest first */
    struct band bands[WEIR_BANDS_MAX];
};

/* ---- The trees ---- */

static struct node *node_at(const struct weir_book *book, enum tree tree,
                            uint32_t at)
{
    weir_assert(at < book->used);
    return &book->claims[at].nodes[tree];
}

static bool is_claim_before(const struct weir_book *book, uint32_t a,
                            uint32_t b)
{
    double ratio_a = book->claims[a].ratio;
    double ratio_b = book->claims[b].ratio;
    return ratio_a < ratio_b || (ratio_a == ratio_b && a < b);
}

static bool is_higher_in_tree(const struct weir_book *book, uint32_t a,
                              uint32_t b)
{
    return weir_rng_mix(book->seed + a) > weir_rng_mix(book->seed + b);
}

static void sum_up_node(struct weir_book *book, enum tree tree, uint32_t at)
{
    weir_assert(at != NONE);
    const struct claim *claim = &book->claims[at];
    struct node *node = node_at(book, tree, at);
    const struct node *left = node_at(book, tree, node->left);
    const struct node *right = node_at(book, tree, node->right);
    node->wants = left->wants + claim->wants + right->wants;
    node->weight = left->weight + claim->weight + right->weight;
    weir_assert(node->weight >= claim->weight);
}

/* Divides the tree at 'at' into the part before 'pivot' and the part after. */
static void split_tree(struct weir_book *book, enum tree tree, uint32_t at,
                       uint32_t pivot, uint32_t *out_left, uint32_t *out_right)
{
    weir_assert(at != pivot);
    if (at == NONE) {
        *out_left = *out_right = NONE;
        return;
    }
    struct node *node = node_at(book, tree, at);
    if (is_claim_before(book, at, pivot)) {
        *out_left = at;
        split_tree(book, tree, node->right, pivot, &node->right, out_right);
    } else {
        *out_right = at;
        split_tree(book, tree, node->left, pivot, out_left, &node->left);
    }
    sum_up_node(book, tree, at);
}

/* One tree of two, all of 'left' being before all of 'right'. */
static uint32_t join_trees(struct weir_book *book, enum tree tree,
                           uint32_t left, uint32_t right)
{
    weir_assert(left == NONE || left != right);
    if (left == NONE || right == NONE)
        return left == NONE ? right : left;
    uint32_t top = is_higher_in_tree(book, left, right) ? left : right;
    struct node *node = node_at(book, tree, top);
    if (top == left)
        node->right = join_trees(book, tree, node->right, right);
    else
        node->left = join_trees(book, tree, left, node->left);
    sum_up_node(book, tree, top);
    return top;
}

/* These two return the new root of the tree at 'at'. */
static uint32_t insert_claim(struct weir_book *book, enum tree tree,
                             uint32_t at, uint32_t claim)
{
    weir_assert(claim != NONE && claim != at);
    if (at == NONE || is_higher_in_tree(book, claim, at)) {
        struct node *node = node_at(book, tree, claim);
        split_tree(book, tree, at, claim, &node->left, &node->right);
        sum_up_node(book, tree, claim);
        return claim;
    }
    struct node *node = node_at(book, tree, at);
    if (is_claim_before(book, claim, at))
        node->left = insert_claim(book, tree, node->left, claim);
    else
        node->right = insert_claim(book, tree, node->right, claim);
    sum_up_node(book, tree, at);
    return at;
}

static uint32_t extract(struct weir_book *book, enum tree tree, uint32_t at,
                        uint32_t claim)
{
    weir_assert(at != NONE);
    struct node *node = node_at(book, tree, at);
    if (at == claim)
        return join_trees(book, tree, node->left, node->right);
    if (is_claim_before(book, claim, at))
        node->left = extract(book, tree, node->left, claim);
    else
        node->right = extract(book, tree, node->right, claim);
    sum_up_node(book, tree, at);
    return at;
}

/* ---- Bands ---- */

/* The position of 'number' in the order, or the one that it would have. */
static uint32_t band_rank(const struct weir_book *book, int64_t number)
{
    uint32_t rank = 0;
    while (rank < book->bands_count &&
           book->bands[book->order[rank]].number > number)
        rank++;
    return rank;
}

static bool is_band_at(const struct weir_book *book, uint32_t rank,
                       int64_t number)
{
    return rank < book->bands_count &&
           book->bands[book->order[rank]].number == number;
}

static uint32_t band_open(struct weir_book *book, int64_t number)
{
    uint32_t rank = band_rank(book, number);
    if (is_band_at(book, rank, number))
        return book->order[rank];
    weir_assert(book->bands_count < WEIR_BANDS_MAX);
    uint8_t band = 0;
    while (book->bands[band].claims > 0)
        band++;
    weir_assert(band < WEIR_BANDS_MAX);
    for (uint32_t i = book->bands_count++; i > rank; i--)
        book->order[i] = book->order[i - 1];
    book->order[rank] = band;
    book->bands[band] = (struct band){ .number = number, .root = NONE };
    weir_assert(is_band_at(book, rank, number));
    return band;
}

static void band_close(struct weir_book *book, uint32_t band)
{
    weir_assert(book->bands_count > 0);
    weir_assert(book->bands[band].root == NONE);
    uint32_t rank = band_rank(book, book->bands[band].number);
    weir_assert(book->order[rank] == band);
    book->bands_count--;
    for (uint32_t i = rank; i < book->bands_count; i++)
        book->order[i] = book->order[i + 1];
}

/* ---- The book ---- */

struct weir_book *weir_book_new(const struct weir_mem *mem, uint64_t seed)
{
    struct weir_book *book = mem->alloc(mem->context, sizeof(*book));
    if (!book)
        return NULL;
    *book = (struct weir_book){ .mem = *mem, .seed = seed, .used = NONE + 1 };
    /* The place of NONE is zeroed, and stays so. */
    book->claims = weir_mem_grow(mem, NULL, sizeof(*book->claims),
                                 &book->capacity, book->used);
    if (book->claims)
        return book;
    mem->free(mem->context, book, sizeof(*book));
    return NULL;
}

void weir_book_free(struct weir_book *book)
{
    if (!book)
        return;
    struct weir_mem mem = book->mem;
    mem.free(mem.context, book->claims, book->capacity * sizeof(*book->claims));
    mem.free(mem.context, book, sizeof(*book));
}

/* The place of an existing claim. */
static uint32_t claim_place(const struct weir_book *book, uint32_t claim)
{
    weir_assert(claim < book->used - 1);
    weir_assert(book->claims[claim + 1].weight > 0);
    return claim + 1;
}

/* False for NaN as well. */
static bool is_claim_sound(uint64_t weight, double wants)
{
    return weight >= 1 && weight <= WEIR_CLAIM_WEIGHT_MAX && wants >= 0 &&
           wants <= WEIR_WANTS_MAX;
}

static void put_claim(struct weir_book *book, uint32_t at, int64_t number,
                      uint64_t weight, double wants)
{
    weir_assert(at != NONE && at < book->used);
    weir_assert(weight >= 1 && weight <= WEIR_CLAIM_WEIGHT_MAX);
    struct claim *claim = &book->claims[at];
    claim->wants = wants > 0 ? wants : 0; /* no -0 */
    claim->weight = (uint32_t)weight;
    claim->ratio = claim->wants / claim->weight;
    claim->band = band_open(book, number);
    struct band *band = &book->bands[claim->band];
    band->claims++;
    band->root = insert_claim(book, BAND, band->root, at);
    book->root = insert_claim(book, ALL, book->root, at);
}

static void remove_claim(struct weir_book *book, uint32_t at)
{
    uint32_t number = book->claims[at].band;
    struct band *band = &book->bands[number];
    band->root = extract(book, BAND, band->root, at);
    book->root = extract(book, ALL, book->root, at);
    weir_assert(band->claims > 0);
    if (--band->claims == 0)
        band_close(book, number);
}

/* Has the book room for a claim of that band? */
static bool has_room_for_band(const struct weir_book *book, int64_t number)
{
    return book->bands_count < WEIR_BANDS_MAX ||
           is_band_at(book, band_rank(book, number), number);
}

/* A free place, or NONE: no memory. */
static uint32_t place_new(struct weir_book *book)
{
    uint32_t at = book->free;
    if (at != NONE) {
        book->free = book->claims[at].band;
        weir_assert(book->claims[at].weight == 0);
        return at;
    }
    struct claim *claims =
        weir_mem_grow(&book->mem, book->claims, sizeof(*claims),
                      &book->capacity, (size_t)book->used + 1);
    if (!claims)
        return NONE;
    book->claims = claims;
    weir_assert(book->used < book->capacity);
    return book->used++;
}

int weir_book_add(struct weir_book *book, int64_t band, uint64_t weight,
                  double wants, uint32_t *out_claim)
{
    if (!is_claim_sound(weight, wants))
        return WEIR_EINVAL;
    if (book->count == WEIR_CLAIMS_MAX || !has_room_for_band(book, band))
        return WEIR_EFULL;
    uint32_t at = place_new(book);
    if (at == NONE)
        return WEIR_ENOMEM;
    put_claim(book, at, band, weight, wants);
    book->count++;
    weir_assert(book->count < book->used);
    *out_claim = at - 1;
    return WEIR_OK;
}

int weir_book_change(struct weir_book *book, uint32_t claim, int64_t band,
                     uint64_t weight, double wants)
{
    uint32_t at = claim_place(book, claim);
    if (!is_claim_sound(weight, wants))
        return WEIR_EINVAL;
    const struct claim *was = &book->claims[at];
    const struct band *from = &book->bands[was->band];
    if (was->wants == wants && was->weight == weight && from->number == band)
        return WEIR_OK;
    /* The last claim in its band makes room by leaving it. */
    if (from->claims > 1 && !has_room_for_band(book, band))
        return WEIR_EFULL;
    remove_claim(book, at);
    put_claim(book, at, band, weight, wants);
    return WEIR_OK;
}

void weir_book_remove(struct weir_book *book, uint32_t claim)
{
    uint32_t at = claim_place(book, claim);
    remove_claim(book, at);
    book->claims[at] = (struct claim){ .band = book->free };
    book->free = at;
    weir_assert(book->count > 0);
    book->count--;
}

/* ---- Sums ---- */

struct weir_book_sum weir_book_sum(const struct weir_book *book)
{
    const struct node *all = node_at(book, ALL, book->root);
    weir_assert(all->weight >= book->count);
    return (struct weir_book_sum){ .claims = book->count,
                                   .weight = all->weight,
                                   .wants = all->wants };
}

uint32_t weir_book_bands(const struct weir_book *book)
{
    return book->bands_count;
}

struct weir_book_sum weir_book_band(const struct weir_book *book,
                                    uint32_t index, int64_t *out_band)
{
    weir_assert(index < book->bands_count);
    const struct band *band = &book->bands[book->order[index]];
    const struct node *all = node_at(book, BAND, band->root);
    *out_band = band->number;
    return (struct weir_book_sum){ .claims = band->claims,
                                   .weight = all->weight,
                                   .wants = all->wants };
}

/* ---- Shares ---- */

/* The level in the tree at 'at'. Goes down to the gap between the claims that
 * fit and those that don't: 'wants' of those known to fit, 'weight' of those
 * not known to; 'low' and 'high' the ratios on the gap's two sides, between
 * which roundings must leave the level. */
static double level_in(const struct weir_book *book, enum tree tree,
                       uint32_t at, double capacity)
{
    weir_assert(capacity >= 0);
    const struct node *node = node_at(book, tree, at);
    if (node->wants <= capacity)
        return INFINITY;
    double wants = 0;
    uint64_t weight = node->weight;
    double low = 0;
    double high = INFINITY;
    while (at != NONE) {
        const struct claim *claim = &book->claims[at];
        node = &claim->nodes[tree];
        const struct node *left = node_at(book, tree, node->left);
        double ratio = claim->ratio;
        double before = wants + left->wants;
        uint64_t rest = weight - left->weight;
        if (before + ratio * (double)rest > capacity) {
            high = ratio;
            at = node->left;
        } else {
            wants = before + claim->wants;
            weight = rest - claim->weight;
            low = ratio;
            at = node->right;
        }
    }
    /* By a rounding the last one fits, too. */
    if (weight == 0)
        return INFINITY;
    double level = (capacity - wants) / (double)weight;
    if (level < low)
        return low;
    return level < high ? level : high;
}

/* The capacity of the band at 'rank' is the rest left by the bands before
 * it. */
static double level_of_rank(const struct weir_book *book, uint32_t rank,
                            double capacity)
{
    weir_assert(rank < book->bands_count);
    weir_assert(capacity >= 0);
    for (uint32_t i = 0; i < rank; i++) {
        const struct band *band = &book->bands[book->order[i]];
        capacity -= node_at(book, BAND, band->root)->wants;
    }
    const struct band *band = &book->bands[book->order[rank]];
    return level_in(book, BAND, band->root, capacity > 0 ? capacity : 0);
}

double weir_book_level(const struct weir_book *book, double capacity)
{
    return level_in(book, ALL, book->root, capacity);
}

double weir_book_band_level(const struct weir_book *book, int64_t band,
                            double capacity)
{
    uint32_t rank = band_rank(book, band);
    if (!is_band_at(book, rank, band))
        return INFINITY;
    return level_of_rank(book, rank, capacity);
}

static double at_level(const struct claim *claim, double level)
{
    weir_assert(level >= 0);
    double share = level * claim->weight;
    if (claim->ratio <= level || share > claim->wants)
        return claim->wants;
    return share;
}

/* Spare: the equal parts, less the demand, of claims with a ratio below
 * 'equal'. Need: the demand of the others beyond their equal parts. */
static void cut_at(const struct weir_book *book, double equal,
                   double *out_spare, double *out_need)
{
    weir_assert(equal >= 0);
    double wants[2] = { 0, 0 };
    uint64_t weight[2] = { 0, 0 };
    for (uint32_t at = book->root; at != NONE;) {
        const struct claim *claim = &book->claims[at];
        const struct node *node = &claim->nodes[ALL];
        bool needs = claim->ratio >= equal;
        const struct node *same =
            node_at(book, ALL, needs ? node->right : node->left);
        wants[needs] += same->wants + claim->wants;
        weight[needs] += same->weight + claim->weight;
        at = needs ? node->left : node->right;
    }
    *out_spare = equal * (double)weight[0] - wants[0];
    *out_need = wants[1] - equal * (double)weight[1];
}

static double proportional(const struct weir_book *book,
                           const struct claim *claim, double capacity)
{
    const struct node *all = node_at(book, ALL, book->root);
    weir_assert(all->weight > 0);
    double equal = capacity / (double)all->weight;
    double part = equal * claim->weight;
    if (all->wants <= capacity || claim->wants <= part)
        return claim->wants;
    double spare, need;
    cut_at(book, equal, &spare, &need);
    /* Differences of large sums can be rounded to below 0; this claim's need is
     * part of all need. */
    double own = claim->wants - part;
    if (spare < 0)
        spare = 0;
    if (need < own)
        need = own;
    weir_assert(spare >= 0 && need > 0);
    /* In the original's order of operations: results are equal to the bit. */
    double share = part + own * (spare / need);
    return share < claim->wants ? share : claim->wants;
}

double weir_fair_share(const struct weir_book *book,
                       enum weir_share_algorithm algorithm, uint32_t claim,
                       double capacity)
{
    weir_assert(capacity >= 0);
    const struct claim *it = &book->claims[claim_place(book, claim)];
    switch (algorithm) {
    case WEIR_SHARE_NONE:
        return it->wants;
    case WEIR_SHARE_STATIC:
        return it->wants < capacity ? it->wants : capacity;
    case WEIR_SHARE_PROPORTIONAL:
        return proportional(book, it, capacity);
    case WEIR_SHARE_FAIR:
        return at_level(it, weir_book_level(book, capacity));
    case WEIR_SHARE_PRIORITY:
        return at_level(it, weir_book_band_level(
                                book, book->bands[it->band].number, capacity));
    }
    weir_assert(!"an algorithm");
    return 0;
}

/* ---- Guaranteed parts ----
 *
 * With the level of all at x, a claim of a band with the level g has its
 * demand, or max(g, x) for each weight. The sum of that over all claims rises
 * with x, and is straight between the ratios of claims and the levels of bands.
 * Bands of a level above x are pinned: they have their parts, or their demands.
 * At first all bands with a part are; while the level of the others is above
 * that of the lowest pinned one, this isn't any more.
 *
 * The level of several trees is found by Newton's method, from below: the sum
 * is concave in it, so no step goes too far, and the last is exact. A step
 * leaves out all claims that are met by the one before, as a round of Doorman's
 * original algorithm does. */

#define NEWTON_STEPS 64

/* The place of the band's part; 'count': it has none. */
static size_t part_of(const struct weir_part_levels *levels, int64_t band)
{
    size_t i = 0;
    while (i < levels->count && levels->bands[i].band != band)
        i++;
    return i;
}

/* Adds up: the wants of claims with at most that ratio, the weight of the
 * others. */
static void fill_tree(const struct weir_book *book, uint32_t at, double level,
                      double *wants, double *weight)
{
    while (at != NONE) {
        const struct claim *claim = &book->claims[at];
        const struct node *node = &claim->nodes[BAND];
        if (claim->ratio <= level) {
            *wants += node_at(book, BAND, node->left)->wants + claim->wants;
            at = node->right;
        } else {
            const struct node *right = node_at(book, BAND, node->right);
            *weight += (double)(right->weight + claim->weight);
            at = node->left;
        }
    }
}

/* The bands with claims, by their rank, that aren't pinned. */
struct free_bands {
    uint32_t root[WEIR_BANDS_MAX];
    uint32_t count;
    double wants;
};

static double level_of_trees(const struct weir_book *book,
                             const struct free_bands *free, double capacity)
{
    double level = 0;
    weir_assert(capacity >= 0);
    if (free->wants <= capacity)
        return INFINITY;
    for (int step = 0; step < NEWTON_STEPS; step++) {
        double wants = 0, weight = 0;
        for (uint32_t i = 0; i < free->count; i++)
            fill_tree(book, free->root[i], level, &wants, &weight);
        if (weight == 0) /* by a rounding the last one fits, too */
            return INFINITY;
        double next = (capacity - wants) / weight;
        if (next <= level)
            break;
        level = next;
    }
    return level;
}

/* Finds the level of all, with these bands pinned. */
static double level_beside(const struct weir_book *book,
                           const struct weir_part_levels *levels,
                           const bool *pinned, double capacity)
{
    struct free_bands free = { .count = 0 };
    double rest = capacity;
    for (uint32_t rank = 0; rank < book->bands_count; rank++) {
        const struct band *band = &book->bands[book->order[rank]];
        double wants = node_at(book, BAND, band->root)->wants;
        size_t i = part_of(levels, band->number);
        if (i < levels->count && pinned[i]) {
            rest -= weir_smaller(wants, levels->bands[i].part * capacity);
            continue;
        }
        free.root[free.count++] = band->root;
        free.wants += wants;
    }
    return level_of_trees(book, &free, rest > 0 ? rest : 0);
}

/* The lowest pinned band's place; 'count': none is pinned. */
static size_t lowest_pinned(const struct weir_part_levels *levels,
                            const bool *pinned)
{
    size_t lowest = levels->count;
    for (size_t i = 0; i < levels->count; i++)
        if (pinned[i] && (lowest == levels->count ||
                          levels->level[i] < levels->level[lowest]))
            lowest = i;
    return lowest;
}

/* The level and the spare of a band in its own part. */
static void level_part(const struct weir_book *book,
                       struct weir_part_levels *levels, size_t i,
                       double capacity)
{
    const struct weir_band_part *part = &levels->bands[i];
    weir_assert(part->part >= 0 && part->part <= 1 + 1e-9);
    double units = part->part * capacity;
    uint32_t rank = band_rank(book, part->band);
    levels->level[i] = INFINITY;
    levels->spare[i] = 0;
    if (!is_band_at(book, rank, part->band))
        return;
    uint32_t root = book->bands[book->order[rank]].root;
    const struct node *all = node_at(book, BAND, root);
    levels->level[i] = level_in(book, BAND, root, units);
    if (levels->level[i] == INFINITY && units > all->wants)
        levels->spare[i] = (units - all->wants) / (double)all->weight;
}

void weir_book_part_levels(const struct weir_book *book,
                           const struct weir_band_part *parts, size_t count,
                           double capacity, struct weir_part_levels *out)
{
    bool pinned[WEIR_BAND_PARTS_MAX] = { false };
    weir_assert(count <= WEIR_BAND_PARTS_MAX);
    weir_assert(capacity >= 0 && capacity < INFINITY);
    out->count = count;
    for (size_t i = 0; i < count; i++) {
        out->bands[i] = parts[i];
        pinned[i] = true;
        level_part(book, out, i, capacity);
    }
    for (;;) {
        out->all = level_beside(book, out, pinned, capacity);
        size_t lowest = lowest_pinned(out, pinned);
        if (lowest == count || out->level[lowest] >= out->all)
            break;
        pinned[lowest] = false;
    }
}

double weir_levels_share(const struct weir_book *book,
                         const struct weir_part_levels *levels, uint32_t claim)
{
    const struct claim *it = &book->claims[claim_place(book, claim)];
    size_t i = part_of(levels, book->bands[it->band].number);
    double least = i < levels->count ? levels->level[i] : 0;
    return at_level(it, weir_larger(least, levels->all));
}

double weir_levels_guaranteed(const struct weir_book *book,
                              const struct weir_part_levels *levels,
                              uint32_t claim)
{
    const struct claim *it = &book->claims[claim_place(book, claim)];
    size_t i = part_of(levels, book->bands[it->band].number);
    if (i == levels->count)
        return 0;
    return at_level(it, levels->level[i]) + levels->spare[i] * it->weight;
}

void weir_book_audit(const struct weir_book *book)
{
    uint32_t claims = 0;
    uint64_t weight = 0;
    weir_assert(book->bands_count <= WEIR_BANDS_MAX);
    weir_assert(book->count < book->used && book->used <= book->capacity);
    for (uint32_t i = 0; i < book->bands_count; i++) {
        const struct band *band = &book->bands[book->order[i]];
        weir_assert(band->claims > 0 && band->root != NONE);
        weir_assert(i == 0 ||
                    book->bands[book->order[i - 1]].number > band->number);
        claims += band->claims;
        weight += node_at(book, BAND, band->root)->weight;
    }
    weir_assert(claims == book->count);
    weir_assert(weight == node_at(book, ALL, book->root)->weight);
}
