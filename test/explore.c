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
 * Waiting. A fiber that pauses leaves the game until another has written the
 * word that it read last: only then could it find something else. The write
 * happens before what the fiber does next, and that isn't a race, for the two
 * have no other order.
 *
 * With a bound on preemptions nothing is reduced: all schedules within it are
 * run. Most bugs need one or two (Musuvathi and Qadeer, PLDI 2007).
 *
 * Rejected: reduction and bound together, which isn't sound without more; a
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
#define NOBODY UINT8_MAX
#define NEVER (-1)

typedef uint8_t fiber_set; /* a bit a fiber */

struct access {
    enum weir_access kind;
    uint16_t word; /* index of eight aligned bytes */
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
    uint16_t clock[EXPLORE_FIBERS_MAX];
};

struct actor {
    struct fiber *fiber;
    struct access next; /* what it will do when it is let */
    bool ended;
    uint16_t made; /* steps */
    int last;      /* its last step */
    int waits;     /* word that must be written; NEVER: it doesn't wait */
    int woken;     /* by that step; NEVER: not since its last own one */
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
    bool cut; /* all who can move sleep */
    /* The words met, and the last step on each in this execution. */
    uintptr_t words[WORDS_MAX];
    int above[WORDS_MAX];
    unsigned word_count;
    struct seen seen;
    const char *script;  /* of a replay, or NULL */
    unsigned script_run; /* what is left of its current run */
    uint8_t script_fiber;
} x = { .running = NOBODY };

/* ---- The order ---- */

static bool conflict(struct access a, struct access b)
{
    return a.word == b.word && (a.bytes & b.bytes) && (a.writes || b.writes);
}

static void join(uint16_t *clock, const uint16_t *other)
{
    for (unsigned i = 0; i < EXPLORE_FIBERS_MAX; i++) {
        if (clock[i] < other[i])
            clock[i] = other[i];
    }
}

/* Whether 'before' happens before the step whose clock is given. */
static bool happens_before(const struct step *before, const uint16_t *clock)
{
    return clock[before->fiber] >= before->clock[before->fiber];
}

static void fiber_meets(uint8_t fiber, const uint16_t *clock, uint16_t number,
                        uint16_t *firsts, fiber_set *openers)
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
static void reverse(int i, uint8_t fiber, const uint16_t *clock)
{
    struct step *race = &x.steps[i];
    uint16_t firsts[EXPLORE_FIBERS_MAX] = { 0 };
    fiber_set openers = 0;
    for (int k = i + 1; k < x.depth; k++) {
        const struct step *step = &x.steps[k];
        if (!happens_before(race, step->clock))
            fiber_meets(step->fiber, step->clock, step->clock[step->fiber],
                        firsts, &openers);
    }
    fiber_meets(fiber, clock, (uint16_t)(clock[fiber] + 1), firsts, &openers);
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
    uint16_t clock[EXPLORE_FIBERS_MAX] = { 0 };
    if (actor->last != NEVER)
        join(clock, x.steps[actor->last].clock);
    if (actor->woken != NEVER)
        join(clock, x.steps[actor->woken].clock);
    /* The latest first: what happens before it by way of a later one is none
     * of our races. */
    for (int i = step->below; i != NEVER; i = x.steps[i].below) {
        const struct step *other = &x.steps[i];
        if (!conflict(other->access, step->access) ||
            happens_before(other, clock))
            continue;
        if (x.program->preemptions == EXPLORE_ALL)
            reverse(i, step->fiber, clock);
        join(clock, other->clock);
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
    uint64_t sum = 1;
    for (int i = 0; i < x.depth; i++)
        sum += x.steps[i].hash;
    return sum ? sum : 1;
}

static bool insert(struct seen *seen, uint64_t hash)
{
    uint64_t i = hash & (seen->size - 1);
    for (; seen->slots[i] != 0; i = (i + 1) & (seen->size - 1)) {
        if (seen->slots[i] == hash)
            return false;
    }
    seen->slots[i] = hash;
    seen->used++;
    return true;
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
        if (step->access.writes && actor->waits == step->access.word &&
            i != step->fiber) {
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
}

/* Makes the next choice; NOBODY when the execution is over. */
static uint8_t choose(void)
{
    struct step *step = &x.steps[x.depth];
    if (x.depth >= x.decided) {
        step->enabled = movable();
        step->asleep = x.asleep;
        x.cut = step->enabled && !(step->enabled & (fiber_set)~x.asleep);
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
    unsigned i = (unsigned)(mixed(at) % WORDS_MAX);
    while (x.words[i] != at && x.words[i] != 0)
        i = (i + 1) % WORDS_MAX;
    if (x.words[i] == 0 && ++x.word_count == WORDS_MAX)
        abort();
    x.words[i] = at;
    return (uint16_t)i;
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

static uint64_t get(const void *p, size_t size)
{
    uint64_t value = 0;
    const void *from = p;
    if (x.program && is_planted(EXPLORE_BLIND, p))
        from = (const char *)x.snapshot +
               ((const char *)p - (const char *)x.program->state);
    memcpy(&value, from, size);
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
    memcpy((void *)(uintptr_t)p, &now, size);
    tell(kind, p, was, get(p, size));
    return was;
}

bool weir_explore_cas(void *p, void *expected, size_t size, uint64_t value)
{
    bool torn = x.program && is_planted(EXPLORE_TORN, p);
    stop_before(torn ? WEIR_ACCESS_LOAD : WEIR_ACCESS_CAS, p, size);
    uint64_t was = get(p, size);
    bool same = memcmp(&was, expected, size) == 0;
    memcpy(expected, &was, size);
    if (same && torn)
        stop_before(WEIR_ACCESS_STORE, p, size);
    if (same)
        memcpy(p, &value, size);
    tell(WEIR_ACCESS_CAS, p, was, get(p, size));
    return same;
}

void weir_explore_pause(void)
{
    if (x.running == NOBODY)
        return;
    struct actor *actor = &x.actors[x.running];
    actor->waits =
        actor->last == NEVER ? NEVER : x.steps[actor->last].access.word;
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

static void execute(void)
{
    const struct explore_program *program = x.program;
    memcpy(program->state, x.snapshot, program->state_bytes);
    memset(x.above, 0xff, sizeof(x.above)); /* NEVER */
    x.depth = 0;
    x.asleep = 0;
    x.wrong = NULL;
    x.steps[0].left = 0;
    x.steps[0].former = NOBODY;
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
    go(choose());
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
    free(x.seen.slots);
    x.seen = (struct seen){ 0 };
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
