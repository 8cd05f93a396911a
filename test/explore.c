/* SPDX-License-Identifier: MIT
 * test/explore.c - every schedule of a few threads over lock-free code.
 *
 * The threads are fibers. Each stops before its next access of shared memory,
 * and the scheduler says whose access is made. An execution is the list of
 * these choices: to have another one, all memory is put back, the fibers
 * begin anew, the list is followed up to some step and there goes another
 * way. Depth first: the last step that has an untried choice is changed, so
 * the list is all that has to be remembered.
 *
 * How few are enough. Two neighbouring steps of different fibers can be
 * exchanged, and nobody sees a difference, if they touch different bytes or
 * both only read. Executions that differ only by such exchanges are a class,
 * and one of each class is run. What makes the classes is which of two
 * conflicting steps comes first: the order "happens before" that is generated
 * by that and by each fiber's own order. It is kept as a clock vector a step:
 * how many steps of each fiber happen before it.
 *
 *   - Backtracking (dynamic partial-order reduction with source sets). When
 *     fiber p makes step j, each earlier step i that conflicts with it, and
 *     happens before it by no other way, is a race: somewhere an execution
 *     has them in the other order. That one begins like this one up to i and
 *     goes on with what isn't behind i, then p. Any fiber whose first step
 *     among these depends on none of the others before it can open it; if
 *     none of them is tried at i yet, one is noted there to be tried.
 *   - Sleep sets. When all that follows p's step at some place was explored,
 *     p sleeps there: a sibling's subtree needn't make that step before
 *     something was done that conflicts with it; until then it could be
 *     exchanged back to the front, where it was tried. An execution in which
 *     all who could move sleep is cut short: its like was seen.
 *
 * That this visits each class once is the theorem of Abdulla, Aronis, Jonsson
 * and Sagonas, "Optimal dynamic partial order reduction", POPL 2014, which
 * test_explore_toys holds against plain enumeration for random programs. And
 * each execution's order is hashed and the different ones are counted.
 *
 * Waiting. A fiber that pauses leaves the game until another has written what
 * it read last: only then could it find something else. The write
 * happens before what the fiber does next, and that isn't a race, for the two
 * have no other order.
 *
 * Going back. The beginning that an execution shares with the one before it
 * isn't made again from the first step: every SAVE_EVERY steps the memory and
 * the fibers' stacks are copied, and the latest copy that isn't past the
 * changed choice is put back. (Most executions differ in their last steps.)
 *
 * With a bound on preemptions nothing is reduced: each class that has a
 * schedule within it is met. (Most bugs need one or two preemptions: Musuvathi
 * and Qadeer, PLDI 2007.) What follows a beginning depends only on the class of
 * the beginning, the fiber that ran last and the preemptions so far. If all
 * that follows was explored, an execution is cut short there: after a beginning
 * of the same class by the same fiber with as many preemptions or fewer, or by
 * another fiber with fewer, for one more leads from that fiber to this one.
 * test_explore_toys holds that, too, against plain enumeration.
 *
 * Rejected: source sets and bound together, which isn't sound without more; a
 * thread of the system a fiber: a switch is some hundred times as dear. */

#include "explore.h"

#include "fiber.h"

#define WEIR_EXPLORE
#include "base/atomic.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MAX 4096
#define PLACES (2 * WORDS_MAX)
#define NOBODY UINT8_MAX
#define NEVER (-1)
/* Measured with test_explore: 8 and 32 take a tenth longer. */
#define SAVE_EVERY 16
#define SAVED_MAX (EXPLORE_STEPS_MAX / SAVE_EVERY + 1)

typedef uint8_t fiber_set; /* a bit a fiber */
/* Steps of each fiber. Signed, for then a join is one instruction. */
typedef int16_t clock_of_step[EXPLORE_FIBERS_MAX];

struct access {
    enum weir_access kind;
    uint16_t word; /* number of eight aligned bytes */
    uint8_t bytes; /* which of them */
    bool writes;
};

/* A step, and what was known before it was made. */
struct step {
    struct access access;
    uint8_t fiber;
    uint8_t former; /* fiber of the step before */
    fiber_set enabled;
    fiber_set wanted; /* to be tried here */
    fiber_set asleep; /* was tried here, or is known not to bring news */
    int left;         /* preemptions before it */
    int below;        /* the last step before it on the same word */
    uint64_t hash;    /* of the clock */
    uint64_t sum;     /* of the hashes before it: the class of what was made */
    clock_of_step clock;
};

struct actor {
    struct fiber *fiber;
    struct access next; /* what it will do when it is let */
    bool ended;
    uint16_t made; /* steps */
    int last;      /* its last step */
    int waits;     /* what that step read must change; NEVER: it doesn't wait */
    int woken;     /* by that step; NEVER: not since its last own one */
};

/* All as it was when 'depth' steps were made. */
struct saved {
    int depth;
    unsigned word_count;
    struct actor actors[EXPLORE_FIBERS_MAX];
    char *memory; /* the program's, 'above', and a copy of each fiber */
    size_t room;
};

/* A set of 64-bit hashes. */
struct seen {
    uint64_t *slots;
    uint64_t size, used;
};

static struct {
    const struct explore_program *program; /* NULL: nothing runs */
    struct explore_program kept;
    struct explore_result result;
    void *snapshot;
    struct actor actors[EXPLORE_FIBERS_MAX];
    uint8_t running; /* NOBODY: the explorer itself */
    bool gathering;  /* fibers run up to their first access */
    fiber_set asleep;
    struct step steps[EXPLORE_STEPS_MAX];
    int depth;   /* steps made */
    int decided; /* of them, by the list */
    const char *wrong;
    bool cut; /* all that follows was explored */
    /* The words met, numbered; and by number the last step on each in this
     * execution. */
    struct {
        uintptr_t at;
        uint16_t number;
    } words[PLACES];
    int above[WORDS_MAX];
    unsigned word_count;
    struct saved saved[SAVED_MAX];
    unsigned saved_count;
    bool save;           /* before the next choice */
    struct seen seen;    /* classes of executions */
    struct seen begun;   /* with a bound: places from which all is explored */
    const char *script;  /* of a replay, or NULL */
    unsigned script_run; /* what is left of its current run */
    uint8_t script_fiber;
} x = { .running = NOBODY };

/* ---- The order ---- */

static bool conflict(struct access a, struct access b)
{
    return a.word == b.word && (a.bytes & b.bytes) && (a.writes || b.writes);
}

static void join(int16_t *clock, const int16_t *other)
{
    for (unsigned i = 0; i < EXPLORE_FIBERS_MAX; i++)
        clock[i] = clock[i] < other[i] ? other[i] : clock[i];
}

/* Whether 'before' happens before the step whose clock is given. */
static bool happens_before(const struct step *before, const int16_t *clock)
{
    return clock[before->fiber] >= before->clock[before->fiber];
}

static void fiber_meets(uint8_t fiber, const int16_t *clock, int16_t number,
                        int16_t *firsts, fiber_set *openers)
{
    if (firsts[fiber])
        return;
    bool behind = false;
    for (unsigned i = 0; i < EXPLORE_FIBERS_MAX; i++)
        behind |= firsts[i] && clock[i] >= firsts[i];
    firsts[fiber] = number;
    if (!behind)
        *openers |= (fiber_set)(1u << fiber);
}

/* Step i races with one that 'fiber' is about to make, whose clock (without
 * itself) is given: sees to it that the other order is tried. */
static void reverse(int i, uint8_t fiber, const int16_t *clock)
{
    struct step *race = &x.steps[i];
    clock_of_step firsts = { 0 };
    fiber_set openers = 0;
    for (int k = i + 1; k < x.depth; k++) {
        const struct step *step = &x.steps[k];
        if (!happens_before(race, step->clock))
            fiber_meets(step->fiber, step->clock, step->clock[step->fiber],
                        firsts, &openers);
    }
    fiber_meets(fiber, clock, (int16_t)(clock[fiber] + 1), firsts, &openers);
    if ((race->wanted | race->asleep) & openers)
        return;
    if (!(openers >> fiber & 1))
        fiber = (uint8_t)__builtin_ctz(openers);
    if (!(race->enabled >> fiber & 1))
        abort();
    race->wanted |= (fiber_set)(1u << fiber);
}

static uint64_t mixed(uint64_t v)
{
    v = (v ^ v >> 30) * 0xbf58476d1ce4e5b9u;
    v = (v ^ v >> 27) * 0x94d049bb133111ebu;
    return v ^ v >> 31;
}

/* The clock of the step at the top of the list, and its races. */
static void order(struct step *step)
{
    const struct actor *actor = &x.actors[step->fiber];
    clock_of_step clock = { 0 };
    if (actor->last != NEVER)
        join(clock, x.steps[actor->last].clock);
    if (actor->woken != NEVER)
        join(clock, x.steps[actor->woken].clock);
    /* The latest first: what happens before it by way of a later one is none
     * of our races. */
    for (int i = step->below; i != NEVER; i = x.steps[i].below) {
        const struct step *other = &x.steps[i];
        if (!conflict(other->access, step->access))
            continue;
        if (!happens_before(other, clock)) {
            if (x.program->preemptions == EXPLORE_ALL)
                reverse(i, step->fiber, clock);
            join(clock, other->clock);
        }
        /* What conflicts with this one and is earlier happens before a write
         * of as many bytes. */
        if (other->access.writes &&
            !(step->access.bytes & ~other->access.bytes))
            break;
    }
    clock[step->fiber]++;
    memcpy(step->clock, clock, sizeof(clock));
    step->hash = step->fiber;
    for (unsigned i = 0; i < x.program->fibers; i++)
        step->hash = mixed(step->hash * 65599 + clock[i] + 1);
}

/* The same for all executions of a class: the set of the clocks. */
static uint64_t class_of_execution(void)
{
    uint64_t sum = x.steps[x.depth].sum + 1;
    return sum ? sum : 1;
}

static uint64_t *find(const struct seen *seen, uint64_t hash)
{
    uint64_t i = hash & (seen->size - 1);
    while (seen->slots[i] != 0 && seen->slots[i] != hash)
        i = (i + 1) & (seen->size - 1);
    return &seen->slots[i];
}

static bool insert(struct seen *seen, uint64_t hash)
{
    uint64_t *slot = find(seen, hash);
    bool fresh = *slot == 0;
    *slot = hash;
    seen->used += fresh;
    return fresh;
}

static void *must(void *p)
{
    if (!p)
        abort();
    return p;
}

/* True: it wasn't there. */
static bool is_new(struct seen *seen, uint64_t hash)
{
    if (seen->used * 2 >= seen->size) {
        struct seen grown = { .size = seen->size ? seen->size * 4 : 1024 };
        grown.slots = must(calloc(grown.size, sizeof(*grown.slots)));
        for (uint64_t i = 0; i < seen->size; i++) {
            if (seen->slots[i] != 0)
                insert(&grown, seen->slots[i]);
        }
        free(seen->slots);
        *seen = grown;
    }
    return insert(seen, hash);
}

/* ---- Who is next ---- */

static fiber_set movable(void)
{
    fiber_set set = 0;
    for (unsigned i = 0; i < x.program->fibers; i++) {
        const struct actor *actor = &x.actors[i];
        bool killed =
            i == 0 && !actor->ended && actor->made + 1u == x.program->killed_at;
        x.result.killed |= killed;
        if (!actor->ended && !killed && actor->waits == NEVER)
            set |= (fiber_set)(1u << i);
    }
    return set;
}

/* What the script of a replay says, or NOBODY when it has ended. */
static uint8_t scripted(void)
{
    if (x.script_run == 0) {
        if (*x.script < 'a' || *x.script >= 'a' + EXPLORE_FIBERS_MAX)
            return NOBODY;
        x.script_fiber = (uint8_t)(*x.script - 'a');
        char *end;
        x.script_run = (unsigned)strtoul(x.script + 1, &end, 10);
        x.script = end;
    }
    x.script_run -= x.script_run > 0;
    return x.script_fiber;
}

/* ---- Places from which all is explored ---- */

#define ANYBODY (NOBODY - 1)

static uint64_t place(const struct step *step, uint8_t former, int left)
{
    uint64_t hash =
        mixed(step->sum + mixed((uint64_t)former << 32 | (uint32_t)left));
    return hash ? hash : 1;
}

static bool was_begun(const struct step *step, uint8_t former, int left)
{
    return *find(&x.begun, place(step, former, left)) != 0;
}

/* Whether what follows this place was explored, or is from now on. */
static bool is_explored(const struct step *step)
{
    if (x.program->preemptions == EXPLORE_ALL || x.program->plain || x.script)
        return false;
    /* Who can't go on is left for nothing. */
    bool can = step->former != NOBODY && (step->enabled >> step->former & 1);
    uint8_t former = can ? step->former : NOBODY;
    for (int left = 0; x.begun.used > 0 && left <= step->left; left++) {
        if (was_begun(step, former, left) || was_begun(step, NOBODY, left) ||
            (left < step->left && was_begun(step, ANYBODY, left)))
            return true;
    }
    is_new(&x.begun, place(step, former, step->left));
    is_new(&x.begun, place(step, ANYBODY, step->left));
    return false;
}

/* At a place not seen before: whom to let go, and whom later. */
static uint8_t decide(struct step *step)
{
    fiber_set awake = step->enabled & (fiber_set)~step->asleep;
    uint8_t told = x.script ? scripted() : NOBODY;
    if (told != NOBODY && (step->enabled >> told & 1))
        return told;
    bool stays = step->former != NOBODY && (awake >> step->former & 1);
    uint8_t fiber = stays ? step->former : (uint8_t)__builtin_ctz(awake);
    bool free = !stays || step->left < x.program->preemptions;
    step->wanted = (fiber_set)(1u << fiber);
    if (x.program->preemptions != EXPLORE_ALL && free)
        step->wanted = step->enabled;
    return fiber;
}

/* Wakes those who wait for the word, and those whose next step can no longer
 * be exchanged with this one. */
static void wake(const struct step *step)
{
    for (unsigned i = 0; i < x.program->fibers; i++) {
        struct actor *actor = &x.actors[i];
        if (conflict(actor->next, step->access))
            x.asleep &= (fiber_set) ~(1u << i);
        if (actor->waits != NEVER && step->access.writes && i != step->fiber &&
            conflict(x.steps[actor->waits].access, step->access)) {
            actor->waits = NEVER;
            actor->woken = x.depth;
        }
    }
}

static void make(struct step *step)
{
    struct actor *actor = &x.actors[step->fiber];
    bool preempts = step->former != NOBODY && step->former != step->fiber &&
                    (step->enabled >> step->former & 1);
    /* A place that was decided before has all but its new choice. */
    if (x.depth + 1 >= x.decided) {
        step->access = actor->next;
        step->below = x.above[step->access.word];
        order(step);
    }
    x.asleep = x.program->preemptions == EXPLORE_ALL ? step->asleep : 0;
    wake(step);
    actor->woken = NEVER;
    actor->last = x.depth;
    actor->made++;
    x.above[step->access.word] = x.depth;
    x.depth++;
    x.steps[x.depth].left = step->left + preempts;
    x.steps[x.depth].former = step->fiber;
    x.steps[x.depth].sum = step->sum + step->hash;
}

static bool save_is_due(void)
{
    int next =
        x.saved_count == 0 ? 0 : x.saved[x.saved_count - 1].depth + SAVE_EVERY;
    return FIBER_CAN_COPY && !x.script && x.depth >= next;
}

/* Makes the next choice; NOBODY when the execution is over, or is to be saved
 * while all fibers rest. */
static uint8_t choose(void)
{
    struct step *step = &x.steps[x.depth];
    x.save = save_is_due();
    if (x.save)
        return NOBODY;
    if (x.depth >= x.decided) {
        step->enabled = movable();
        step->asleep = x.asleep;
        x.cut = step->enabled &&
                (!(step->enabled & (fiber_set)~x.asleep) || is_explored(step));
        if (x.cut || !step->enabled)
            return NOBODY;
        if (x.depth + 1 == EXPLORE_STEPS_MAX) {
            x.wrong = "a fiber goes on without end";
            return NOBODY;
        }
        step->fiber = decide(step);
    }
    make(step);
    return step->fiber;
}

static void go(uint8_t to)
{
    if (to == x.running)
        return;
    x.running = to;
    fiber_switch(to == NOBODY ? NULL : x.actors[to].fiber);
}

/* ---- What the fibers see ---- */

static uint16_t word_of(const void *p)
{
    uintptr_t at = (uintptr_t)p / 8;
    /* Neighbours mostly, so that few meet in one place. */
    unsigned i = (unsigned)(at % PLACES);
    while (x.words[i].at != at && x.words[i].at != 0)
        i = (i + 1) % PLACES;
    if (x.words[i].at == 0) {
        if (x.word_count == WORDS_MAX)
            abort();
        x.words[i].at = at;
        x.words[i].number = (uint16_t)x.word_count;
        x.above[x.word_count++] = NEVER;
    }
    return x.words[i].number;
}

/* Stops the fiber until its access is to be made. */
static void stop_before(enum weir_access kind, const void *p, size_t size)
{
    if (x.running == NOBODY)
        return;
    x.actors[x.running].next = (struct access){
        .kind = kind,
        .word = word_of(p),
        .bytes = (uint8_t)(((1u << size) - 1) << ((uintptr_t)p % 8)),
        .writes = kind != WEIR_ACCESS_LOAD,
    };
    go(x.gathering ? NOBODY : choose());
}

static bool is_planted(enum explore_plant_kind kind, const void *p)
{
    const struct explore_plant *plant = &x.program->plant;
    return x.running == plant->fiber && plant->word == p && plant->kind == kind;
}

static const char *const kind_names[] = {
    [WEIR_ACCESS_LOAD] = "load",         [WEIR_ACCESS_STORE] = "store",
    [WEIR_ACCESS_ADD] = "add",           [WEIR_ACCESS_OR] = "or",
    [WEIR_ACCESS_EXCHANGE] = "exchange", [WEIR_ACCESS_CAS] = "cas",
};

static void tell(enum weir_access kind, const void *p, uint64_t before,
                 uint64_t after)
{
    if (!x.script || x.running == NOBODY)
        return;
    char name[64];
    const char *state = x.program->state;
    snprintf(name, sizeof(name), "+%td", (const char *)p - state);
    if (x.program->describe)
        x.program->describe(x.program->state, p, name, sizeof(name));
    printf("%5d %c %-8s %-24s %" PRIx64, x.depth, 'a' + x.running,
           kind_names[kind], name, before);
    if (after != before)
        printf(" -> %" PRIx64, after);
    putchar('\n');
}

/* Nearly all are words, and a copy of eight bytes is an instruction. */
static void copy(void *to, const void *from, size_t size)
{
    if (size == 8)
        memcpy(to, from, 8);
    else
        memcpy(to, from, size);
}

static uint64_t get(const void *p, size_t size)
{
    uint64_t value = 0;
    const void *from = p;
    if (x.program && is_planted(EXPLORE_BLIND, p))
        from = (const char *)x.snapshot +
               ((const char *)p - (const char *)x.program->state);
    copy(&value, from, size);
    return value;
}

static uint64_t changed(enum weir_access kind, uint64_t was, uint64_t value)
{
    switch (kind) {
    case WEIR_ACCESS_LOAD:
        return was;
    case WEIR_ACCESS_ADD:
        return was + value;
    case WEIR_ACCESS_OR:
        return was | value;
    case WEIR_ACCESS_STORE:
    case WEIR_ACCESS_EXCHANGE:
    case WEIR_ACCESS_CAS:
        break;
    }
    return value;
}

uint64_t weir_explore_access(enum weir_access kind, const void *p, size_t size,
                             uint64_t value)
{
    bool torn = x.program && is_planted(EXPLORE_TORN, p) &&
                kind != WEIR_ACCESS_LOAD && kind != WEIR_ACCESS_STORE;
    stop_before(torn ? WEIR_ACCESS_LOAD : kind, p, size);
    uint64_t was = get(p, size);
    if (torn)
        stop_before(WEIR_ACCESS_STORE, p, size);
    uint64_t now = changed(kind, was, value);
    copy((void *)(uintptr_t)p, &now, size);
    tell(kind, p, was, get(p, size));
    return was;
}

bool weir_explore_cas(void *p, void *expected, size_t size, uint64_t value)
{
    bool torn = x.program && is_planted(EXPLORE_TORN, p);
    stop_before(torn ? WEIR_ACCESS_LOAD : WEIR_ACCESS_CAS, p, size);
    uint64_t was = get(p, size);
    bool same = memcmp(&was, expected, size) == 0;
    copy(expected, &was, size);
    if (same && torn)
        stop_before(WEIR_ACCESS_STORE, p, size);
    if (same)
        copy(p, &value, size);
    tell(WEIR_ACCESS_CAS, p, was, get(p, size));
    return same;
}

void weir_explore_pause(void)
{
    if (x.running == NOBODY)
        return;
    struct actor *actor = &x.actors[x.running];
    actor->waits = actor->last;
}

static void run_fiber(void *context)
{
    unsigned i = (unsigned)((struct actor *)context - x.actors);
    x.program->run[i](x.program->state);
    x.actors[i].ended = true;
    x.actors[i].next = (struct access){ .bytes = 0 };
    go(x.gathering ? NOBODY : choose());
    abort();
}

bool explore_ended(unsigned fiber)
{
    return x.actors[fiber].ended;
}

/* ---- One execution, and the next ---- */

/* From the first step: each fiber runs up to its first access. */
static void start(void)
{
    const struct explore_program *program = x.program;
    memcpy(program->state, x.snapshot, program->state_bytes);
    memset(x.above, 0xff, x.word_count * sizeof(*x.above)); /* NEVER */
    x.depth = 0;
    x.asleep = 0;
    x.steps[0].left = 0;
    x.steps[0].former = NOBODY;
    x.steps[0].sum = 0;
    x.gathering = true;
    for (uint8_t i = 0; i < program->fibers; i++) {
        struct actor *actor = &x.actors[i];
        *actor = (struct actor){
            .fiber = actor->fiber, .last = NEVER, .waits = NEVER, .woken = NEVER
        };
        fiber_restart(actor->fiber);
        go(i);
    }
    x.gathering = false;
}

static void save(void)
{
    const struct explore_program *program = x.program;
    struct saved *saved = &x.saved[x.saved_count++];
    size_t above_bytes = x.word_count * sizeof(*x.above);
    size_t bytes = program->state_bytes + above_bytes;
    for (unsigned i = 0; i < program->fibers; i++)
        bytes += fiber_copy_bytes(x.actors[i].fiber);
    if (bytes > saved->room) {
        free(saved->memory);
        saved->room = bytes * 2;
        saved->memory = must(malloc(saved->room));
    }
    saved->depth = x.depth;
    saved->word_count = x.word_count;
    memcpy(saved->actors, x.actors, sizeof(x.actors));
    char *to = saved->memory;
    memcpy(to, program->state, program->state_bytes);
    to += program->state_bytes;
    memcpy(to, x.above, above_bytes);
    to += above_bytes;
    for (unsigned i = 0; i < program->fibers; i++) {
        fiber_copy(x.actors[i].fiber, to);
        to += fiber_copy_bytes(x.actors[i].fiber);
    }
}

/* What is asleep or ran last at the next step, that step itself knows. */
static void put_back(const struct saved *saved)
{
    const struct explore_program *program = x.program;
    size_t above_bytes = saved->word_count * sizeof(*x.above);
    x.depth = saved->depth;
    memcpy(x.actors, saved->actors, sizeof(x.actors));
    const char *from = saved->memory;
    memcpy(program->state, from, program->state_bytes);
    from += program->state_bytes;
    memset(x.above, 0xff, x.word_count * sizeof(*x.above)); /* NEVER */
    memcpy(x.above, from, above_bytes);
    from += above_bytes;
    for (unsigned i = 0; i < program->fibers; i++) {
        fiber_put_back(x.actors[i].fiber, from);
        from += fiber_copy_bytes(x.actors[i].fiber);
    }
}

static void execute(void)
{
    x.wrong = NULL;
    while (x.saved_count > 0 && x.saved[x.saved_count - 1].depth >= x.decided)
        x.saved_count--;
    if (x.saved_count > 0)
        put_back(&x.saved[x.saved_count - 1]);
    else
        start();
    for (;;) {
        go(choose());
        if (!x.save)
            return;
        save();
    }
}

/* Nobody moves any more, though some haven't ended and none was killed. */
static bool is_stuck(void)
{
    bool stuck = false;
    for (unsigned i = 0; i < x.program->fibers; i++)
        stuck |= !x.actors[i].ended;
    return stuck && x.program->killed_at == 0;
}

static void judge(struct explore_result *result)
{
    result->executions++;
    result->steps += (uint64_t)x.depth;
    if ((unsigned)x.depth > result->longest)
        result->longest = (unsigned)x.depth;
    if (!x.cut && !x.wrong) {
        result->completed++;
        result->classes += is_new(&x.seen, class_of_execution());
        x.wrong = is_stuck() ? "all wait for each other"
                             : x.program->check(x.program->state);
    }
    result->wrong = x.wrong;
}

/* Changes the last choice that can be changed; false: all is done. */
static bool turn_back(void)
{
    for (int i = x.depth; i-- > 0;) {
        struct step *step = &x.steps[i];
        step->asleep |= (fiber_set)(1u << step->fiber);
        fiber_set left = step->wanted & (fiber_set)~step->asleep;
        if (!left)
            continue;
        step->fiber = (uint8_t)__builtin_ctz(left);
        x.decided = i + 1;
        return true;
    }
    return false;
}

static void begin(const struct explore_program *program)
{
    x.kept = *program;
    x.program = &x.kept;
    x.result = (struct explore_result){ 0 };
    x.running = NOBODY;
    x.decided = 0;
    x.word_count = 0;
    memset(x.words, 0, sizeof(x.words));
    x.snapshot = must(malloc(program->state_bytes));
    memcpy(x.snapshot, program->state, program->state_bytes);
    for (unsigned i = 0; i < program->fibers; i++)
        x.actors[i].fiber = fiber_new(run_fiber, &x.actors[i]);
}

static void end(void)
{
    for (unsigned i = 0; i < x.program->fibers; i++)
        fiber_free(x.actors[i].fiber);
    memcpy(x.program->state, x.snapshot, x.program->state_bytes);
    free(x.snapshot);
    for (unsigned i = 0; i < SAVED_MAX; i++)
        free(x.saved[i].memory);
    memset(x.saved, 0, sizeof(x.saved));
    x.saved_count = 0;
    free(x.seen.slots);
    free(x.begun.slots);
    x.seen = x.begun = (struct seen){ 0 };
    x.program = NULL;
}

/* ---- Figures, failures, replays ---- */

static void write_schedule(char *buf, size_t bytes)
{
    size_t at = 0;
    for (int i = 0, run; i < x.depth && at + 16 < bytes; i += run) {
        for (run = 1;
             i + run < x.depth && x.steps[i + run].fiber == x.steps[i].fiber;)
            run++;
        at += (size_t)snprintf(buf + at, bytes - at, "%c%d",
                               'a' + x.steps[i].fiber, run);
    }
}

static void report(const struct explore_program *program,
                   struct explore_result *out)
{
    if (program->quiet && !out->wrong)
        return;
    printf("%s: %" PRIu64 " executions, %" PRIu64 " to their end, %" PRIu64
           " classes, %" PRIu64 " steps, at most %u in one",
           program->name, out->executions, out->completed, out->classes,
           out->steps, out->longest);
    if (program->preemptions != EXPLORE_ALL)
        printf(", all with up to %d preemptions", program->preemptions);
    putchar('\n');
    if (!out->wrong)
        return;
    write_schedule(out->schedule, sizeof(out->schedule));
    printf("%s: %s; replay by WEIR_SCHEDULE=%s:%s\n", program->name, out->wrong,
           program->name, out->schedule);
}

void explore_mourn(void)
{
    if (!x.program)
        return;
    x.running = NOBODY;
    x.result.wrong = "failed";
    report(x.program, &x.result);
    end();
}

/* The schedule to replay; NULL: none, or one of another program. */
static const char *script_for(const char *name)
{
    const char *asked = getenv("WEIR_SCHEDULE");
    size_t len = strlen(name);
    bool ours = asked && strncmp(asked, name, len) == 0 && asked[len] == ':';
    return ours ? asked + len + 1 : NULL;
}

bool explore_is_wanted(const struct explore_program *program)
{
    return !getenv("WEIR_SCHEDULE") || script_for(program->name);
}

static int depth_asked(void)
{
    const char *asked = getenv("WEIR_DEEP");
    return asked ? atoi(asked) : 0;
}

int explore_bound(int preemptions)
{
    int deep = depth_asked();
    return deep >= 2 ? EXPLORE_ALL : preemptions + deep;
}

int explore_all_or(int preemptions)
{
    return depth_asked() >= 1 ? EXPLORE_ALL : preemptions;
}

void explore(const struct explore_program *program, struct explore_result *out)
{
    const char *script = script_for(program->name);
    begin(program);
    do {
        x.script = script;
        execute();
        judge(&x.result);
    } while (!x.result.wrong && !script && turn_back());
    report(program, &x.result);
    *out = x.result;
    end();
}
