/* SPDX-License-Identifier: MIT
 * client/block.c - the memory in which processes share a table: made, entered,
 * and cleared of the dead.
 *
 *     struct weir_block | the table (quota/table_share.c)
 *       members           by their numbers
 *       office            who of them runs the limiter
 *       estate            what its successor must know (node/limiter_estate.c)
 *
 * The problem: any process may be killed at any instant, be it within a
 * decision, the making of a name's place, an edit by a root's quotas, or just
 * after a report went; and the others go on deciding, with nothing lost that
 * was counted and nothing reported twice.
 *
 *     decides   any thread of any process, by the table alone. What it has
 *               there says whose it is.
 *     watches   one thread of each process (office.c): each 100 ms it wakes.
 *               Who does so first looks which members have died, for all: were
 *               each to look at each, 62 of them would read 38,000 files of
 *               /proc a second. Who dies before he has looked is among those
 *               that the next one finds. One at a time, the sexton, buries the
 *               dead, all their locks first, and strikes them off. If the
 *               sexton dies, the next one begins again; so he is the only one
 *               who frees a number, and nobody takes a newcomer for the dead.
 *     office    one word. Who swaps it from nobody to himself runs the limiter.
 *               A dead one's is made nobody's when he has been buried, so the
 *               successor finds a table without half-done edits. Where any
 *               member names roots, only who does may have it.
 *
 * A member is known by its process's id and start (os/process.h), which no
 * other process of the host will ever have; asked of the kernel, not of a
 * heartbeat: a process that was stopped for an hour holds what it holds. It
 * joins by one swap of one word, so there is no half a member.
 *
 * A table outlives all of its processes. Who comes next, a day later, buries
 * them and goes on: with the counts that were not reported yet, too. Only a
 * reboot ends it, for then the clock that its buckets leak by begins anew.
 *
 * Making it is one member's: the state is that one's number until all is
 * written. If it dies, the next one begins from zeros.
 *
 * Rejected: the table's writer as a lock on the file. A lock belongs to a file
 * opened, and a child of fork() keeps its dead parent's alive; nor has memory
 * that a caller gives a file. Rejected: growing. Others have the block
 * mapped as it was, at addresses that they have handed out. */

#include "client/block.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "os/clock.h"

/* Making takes milliseconds; a maker that was stopped is waited for. */
#define MAKE_PATIENCE (5 * WEIR_SECOND)
#define MAKE_PATIENCE_BYTE 10 /* more, in nanoseconds */
#define MAKE_LOOK_EVERY WEIR_MILLISECOND

static_assert(sizeof(WEIR_VERSION) <= 16, "its place in the block");
static_assert(WEIR_PROCESSES_MAX == WEIR_BLOCK_LAST - 1, "two are nobody's");

/* ---- Its shape ---- */

static uint64_t head_size(void)
{
    return (sizeof(struct weir_block) + WEIR_CACHE_LINE - 1) &
           ~(uint64_t)(WEIR_CACHE_LINE - 1);
}

static struct weir_table_options table_options(
    const struct weir_block_shape *shape)
{
    uint32_t stripes =
        shape->stripes ? shape->stripes : WEIR_BLOCK_STRIPES_DEFAULT;
    return (struct weir_table_options){
        .slots = shape->slots ? shape->slots : WEIR_BLOCK_SLOTS_DEFAULT,
        .stripes = WEIR_BLOCK_MEMBERS + stripes,
        .processes = WEIR_BLOCK_MEMBERS,
    };
}

size_t weir_block_size(const struct weir_block_shape *shape)
{
    struct weir_table_options options = table_options(shape);
    size_t table = weir_table_size(&options);
    return table > 0 ? head_size() + table : 0;
}

/* ---- Making ---- */

static void make(struct weir_block *block, const struct weir_block_shape *shape,
                 const struct weir_process_world *world)
{
    uint64_t size = weir_block_size(shape);
    struct weir_table_options options = table_options(shape);
    weir_instant now = weir_clock_now();
    memset((char *)block + sizeof(block->state), 0,
           size - sizeof(block->state));
    block->layout = WEIR_BLOCK_LAYOUT;
    memcpy(block->version, WEIR_VERSION, sizeof(WEIR_VERSION));
    block->world = *world;
    block->size = size;
    block->table_at = head_size();
    weir_entropy(block->estate.incarnation, WEIR_INCARNATION_SIZE);
    weir_entropy(&options.seed, sizeof(options.seed));
    struct weir_table *table =
        weir_table_init((char *)block + block->table_at, &options, now);
    weir_table_set_wall(table, weir_clock_wall_offset());
    /* release: who finds it ready finds all of it. */
    weir_store_release(&block->state, WEIR_BLOCK_READY);
}

/* The state while it is made. */
#define MAKING ((uint64_t)2 << 62)
#define MAKING_MASK ((uint64_t)3 << 62)

static bool is_any(uint64_t state)
{
    return state == 0 || state == WEIR_BLOCK_READY ||
           (state & MAKING_MASK) == MAKING;
}

/* Whether what was found is to be made anew: it is of nobody, of a maker that
 * has died, or of the time before the host was booted. */
static bool is_void(const struct weir_block *block, uint64_t state,
                    const struct weir_process_world *world)
{
    if (state == WEIR_BLOCK_READY)
        return block->layout == WEIR_BLOCK_LAYOUT &&
               block->world.boot != world->boot;
    return state == 0 || !weir_process_lives(state & ~MAKING_MASK);
}

static void pause_a_little(void)
{
    struct timespec pause = { .tv_nsec = MAKE_LOOK_EVERY };
    nanosleep(&pause, NULL);
}

/* Makes it, or waits for who does: to touch each page of a large one for the
 * first time took 4 s for 1.6 GB, on a busy machine. */
static int await(struct weir_block *block, size_t size,
                 const struct weir_block_shape *shape,
                 const struct weir_process_world *world, struct weir_diag *diag)
{
    uint64_t self = weir_process_self() | MAKING;
    size_t needed = weir_block_size(shape);
    weir_instant until =
        weir_clock_now() + MAKE_PATIENCE + size * MAKE_PATIENCE_BYTE;
    while (weir_clock_now() < until) {
        /* acquire: pairs with the release in make(). */
        uint64_t state = weir_load_acquire(&block->state);
        if (!is_any(state))
            return weir_diag_set(diag, WEIR_ETABLE, "that is no table", NULL);
        bool empty = is_void(block, state, world);
        if (!empty && state == WEIR_BLOCK_READY)
            return WEIR_OK;
        if (empty && (needed == 0 || needed > size))
            return weir_diag_set(diag, WEIR_ETABLE,
                                 "the memory is too small "
                                 "for so many quotas",
                                 NULL);
        if (empty && weir_cas(&block->state, &state, self)) {
            make(block, shape, world);
            return WEIR_OK;
        }
        if (!empty)
            pause_a_little();
    }
    return weir_diag_set(diag, WEIR_ETABLE,
                         "another process is making the "
                         "table and doesn't get on: is it stopped?",
                         NULL);
}

/* ---- Entering ---- */

static int refuse(struct weir_diag *diag, const char *why)
{
    return weir_diag_set(diag, WEIR_ETABLE, why, NULL);
}

static int refuse_version(const struct weir_block *block,
                          struct weir_diag *diag)
{
    char text[sizeof(block->version) + 1];
    snprintf(text, sizeof(text), "%.*s", (int)sizeof(block->version),
             block->version);
    return weir_diag_set(diag, WEIR_ETABLE, "the table was made by libweir ",
                         text,
                         ", this is " WEIR_VERSION
                         ": end its processes and remove it, or use another",
                         NULL);
}

static int check(struct weir_block *block, size_t size,
                 const struct weir_block_shape *shape,
                 const struct weir_process_world *world, struct weir_diag *diag)
{
    if (block->layout != WEIR_BLOCK_LAYOUT ||
        strncmp(block->version, WEIR_VERSION, sizeof(block->version)) != 0)
        return refuse_version(block, diag);
    if (block->size > size || block->table_at != head_size())
        return refuse(diag, "the table is cut short: remove it when nobody "
                            "uses it any more");
    if (block->world.names != world->names)
        return refuse(diag, "the table is used in another PID namespace, where "
                            "nobody here can see who dies");
    struct weir_table_options found;
    weir_table_shape(weir_block_table(block), &found);
    if (weir_table_size(&found) + head_size() != block->size)
        return refuse(diag, "that is no table, or a damaged one");
    if (shape->slots != 0 && shape->slots != found.slots)
        return refuse(diag, "the table was made for another quotas_max, and "
                            "never grows: end its processes and remove it, or "
                            "leave quotas_max out");
    return WEIR_OK;
}

int weir_block_enter(void *memory, size_t size,
                     const struct weir_block_shape *shape,
                     struct weir_block **out, struct weir_diag *diag)
{
    struct weir_block *block = memory;
    struct weir_process_world world;
    if ((uintptr_t)memory % WEIR_CACHE_LINE != 0 || size < head_size())
        return refuse(diag, "the memory is too small, or not aligned to 64 "
                            "bytes");
    if (weir_process_self() == 0 || weir_process_world(&world) < 0)
        return weir_diag_set(diag, WEIR_ESYSTEM,
                             "/proc can't be read: "
                             "processes that share a table look there who has "
                             "died",
                             NULL);
    int error = await(block, size, shape, &world, diag);
    if (error == 0)
        error = check(block, size, shape, &world, diag);
    if (error == 0)
        *out = block;
    return error;
}

/* ---- The file ---- */

static int refuse_file(struct weir_diag *diag, const char *path,
                       const char *why)
{
    return weir_diag_set(diag, WEIR_ETABLE, path, ": ", why, NULL);
}

/* One of those who find no file makes it; the lock is the process's, not the
 * descriptor's, so that no child of fork() keeps it. */
static void lock_file(int fd)
{
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    while (fcntl(fd, F_SETLKW, &lock) < 0 && errno == EINTR)
        continue;
}

static int check_file(int fd, const char *path, struct stat *out,
                      struct weir_diag *diag)
{
    if (fstat(fd, out) < 0)
        return refuse_file(diag, path, strerror(errno));
    if (!S_ISREG(out->st_mode))
        return refuse_file(diag, path, "isn't a regular file");
    if (out->st_uid != geteuid())
        return refuse_file(diag, path, "belongs to another user");
    if ((out->st_mode & 077) != 0)
        return refuse_file(diag, path,
                           "others may open it: it must have mode "
                           "0600");
    return WEIR_OK;
}

/* The bytes to map: as the file has them, or as one that is made gets them. */
static int size_file(int fd, const char *path, size_t wanted, size_t *out,
                     struct weir_diag *diag)
{
    struct stat found;
    int error = check_file(fd, path, &found, diag);
    if (error < 0)
        return error;
    *out = (size_t)found.st_size;
    if (found.st_size > 0)
        return WEIR_OK;
    /* All of it now: a page that the file system can't give when it is first
     * touched would kill who touches it. */
    int reserved = posix_fallocate(fd, 0, (off_t)wanted);
    if (reserved != 0) {
        (void)!ftruncate(fd, 0);
        return refuse_file(diag, path, strerror(reserved));
    }
    *out = wanted;
    return WEIR_OK;
}

static int map_file(int fd, const char *path,
                    const struct weir_block_shape *shape,
                    struct weir_block **out, struct weir_diag *diag)
{
    size_t size;
    lock_file(fd);
    int error = size_file(fd, path, weir_block_size(shape), &size, diag);
    if (error < 0)
        return error;
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return refuse_file(diag, path, strerror(errno));
    error = weir_block_enter(memory, size, shape, out, diag);
    if (error < 0)
        munmap(memory, size);
    return error;
}

int weir_block_open(const char *path, const struct weir_block_shape *shape,
                    struct weir_block **out, struct weir_diag *diag)
{
    int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK,
                  0600);
    if (fd < 0)
        return refuse_file(diag, path, strerror(errno));
    int error = map_file(fd, path, shape, out, diag);
    close(fd);
    return error;
}

void weir_block_unmap(struct weir_block *block)
{
    munmap(block, block->size);
}

/* ---- Members ---- */

static bool is_dead(const struct weir_block *block, uint32_t number)
{
    uint64_t process = weir_load(&block->member[number]);
    return process != 0 && !weir_process_lives(process);
}

static uint64_t find_dead(const struct weir_block *block)
{
    uint64_t dead = 0;
    for (uint32_t i = 1; i < WEIR_BLOCK_LAST; i++)
        dead |= (uint64_t)is_dead(block, i) << i;
    return dead;
}

/* While a dead one has the office nobody else acts as number 0. */
static void bury_locks(struct weir_block *block, uint64_t dead, uint32_t by)
{
    struct weir_table *table = weir_block_table(block);
    uint32_t office = weir_load(&block->office);
    if (dead >> office & 1)
        weir_table_bury_locks(table, 0, by);
    for (; dead != 0; dead &= dead - 1)
        weir_table_bury_locks(table, (uint32_t)__builtin_ctzll(dead), by);
}

static void strike_off(struct weir_block *block, uint32_t number)
{
    weir_store(&block->roots[number], 0);
    weir_store(&block->member[number], 0);
}

/* False: not all of it could be given back yet. */
static bool bury_member(struct weir_block *block, uint32_t number, uint32_t by)
{
    struct weir_table *table = weir_block_table(block);
    bool held = weir_load(&block->office) == number;
    if ((held && !weir_table_bury(table, 0, by)) ||
        !weir_table_bury(table, number, by))
        return false;
    if (held)
        weir_block_quit_office(block, number);
    strike_off(block, number);
    return true;
}

static bool become_sexton(struct weir_block *block, uint32_t number)
{
    uint32_t sexton = weir_load(&block->sexton);
    if (sexton != 0 && sexton < WEIR_BLOCK_MEMBERS && sexton != number &&
        weir_process_lives(weir_load(&block->member[sexton])))
        return false;
    return weir_cas(&block->sexton, &sexton, number);
}

void weir_block_bury(struct weir_block *block, uint32_t number)
{
    if (find_dead(block) == 0 || !become_sexton(block, number))
        return;
    /* Again: the sexton before may have been faster. */
    uint64_t dead = find_dead(block);
    bury_locks(block, dead, number);
    for (; dead != 0; dead &= dead - 1)
        bury_member(block, (uint32_t)__builtin_ctzll(dead), number);
    weir_store(&block->sexton, 0);
}

bool weir_block_is_due(struct weir_block *block, weir_instant now)
{
    weir_instant at = weir_load(&block->look_at);
    /* Half a turn: who looked last is the first again if he is alone. One far
     * away is of another clock. */
    bool early = now < at && at - now <= WEIR_BLOCK_LOOK_EVERY;
    return !early &&
           weir_cas(&block->look_at, &at, now + WEIR_BLOCK_LOOK_EVERY / 2);
}

static bool find_place(struct weir_block *block, uint64_t self, uint32_t *out)
{
    for (uint32_t i = 1; i < WEIR_BLOCK_LAST; i++) {
        uint64_t free = 0;
        if (weir_load_relaxed(&block->member[i]) != 0 ||
            !weir_cas(&block->member[i], &free, self))
            continue;
        *out = i;
        return true;
    }
    return false;
}

/* Where all have died nobody has a number by which to bury them, but the last;
 * who has died with that one left nothing but locks. */
static void make_room(struct weir_block *block, uint64_t self)
{
    uint64_t *last = &block->member[WEIR_BLOCK_LAST];
    uint64_t before = weir_load(last);
    if ((before != 0 && weir_process_lives(before)) ||
        !weir_cas(last, &before, self))
        return;
    weir_table_bury_locks(weir_block_table(block), WEIR_BLOCK_LAST,
                          WEIR_BLOCK_LAST);
    weir_block_bury(block, WEIR_BLOCK_LAST);
    weir_store(last, 0);
}

bool weir_block_has_roots(const struct weir_block *block)
{
    bool any = false;
    for (uint32_t i = 1; i < WEIR_BLOCK_LAST; i++)
        any |= weir_load(&block->roots[i]) != 0;
    return any;
}

/* Of one limiter, whoever runs it, the roots are the same. What the dead named
 * binds nobody: their successor is one more limiter that its roots don't know,
 * and those that they do are sent what is new since. */
static bool agrees_on_roots(const struct weir_block *block, uint32_t number)
{
    uint64_t own = weir_load(&block->roots[number]);
    for (uint32_t i = 1; own != 0 && i < WEIR_BLOCK_LAST; i++) {
        uint64_t others = weir_load(&block->roots[i]);
        if (others != 0 && others != own && !is_dead(block, i))
            return false;
    }
    return true;
}

int weir_block_join(struct weir_block *block, uint64_t roots, uint32_t *out)
{
    uint64_t self = weir_process_self();
    uint32_t number;
    if (self == 0)
        return WEIR_ESYSTEM;
    if (!find_place(block, self, &number)) {
        make_room(block, self);
        if (!find_place(block, self, &number))
            return WEIR_EFULL;
    }
    /* Said first, then looked at, in the order of all: of two that disagree one
     * sees the other. */
    weir_store(&block->roots[number], roots);
    if (!agrees_on_roots(block, number)) {
        strike_off(block, number);
        return WEIR_ETABLE;
    }
    *out = number;
    return WEIR_OK;
}

void weir_block_leave(struct weir_block *block, uint32_t number)
{
    weir_block_quit_office(block, number);
    while (!weir_table_bury(weir_block_table(block), number, number))
        weir_block_bury(block, number);
    strike_off(block, number);
}

/* ---- The office ---- */

bool weir_block_take_office(struct weir_block *block, uint32_t number)
{
    uint32_t nobody = 0;
    return weir_load_relaxed(&block->office) == 0 &&
           weir_cas(&block->office, &nobody, number);
}

void weir_block_quit_office(struct weir_block *block, uint32_t number)
{
    uint32_t held = number;
    if (weir_load(&block->office) != number)
        return;
    /* No root is heard by anybody now: decisions go on from what is counted
     * here, as they do when a limiter's last link is lost. */
    weir_table_lift_stops(weir_block_table(block));
    if (!weir_cas(&block->office, &held, 0))
        return;
    weir_store(&block->ready, 0);
    weir_store(&block->roots_up, 0);
    weir_block_tell_change(block);
}

void weir_block_kick(struct weir_block *block)
{
    weir_fetch_add(&block->kicks, 1);
    weir_futex_wake(&block->kicks);
}

void weir_block_tell_change(struct weir_block *block)
{
    weir_fetch_add(&block->changes, 1);
    weir_futex_wake(&block->changes);
}
