/* SPDX-License-Identifier: MIT
 * libweir/libweir_block.c - the memory of a shared table: made, joined by
 * processes, and cleared of dead ones.
 *
 *     struct weir_block | the table (table/table_share.h)
 *       members           by their numbers
 *       reporter          the member that is the reporter
 *       handover          its state for a successor (node/limiter_handover.c)
 *
 * The problem: any process may be killed at any instant, be it within a
 * decision, while it adds a name, during an edit by a root's quotas, or just
 * after a report was sent. The others must go on deciding, lose no counted
 * units and report none twice.
 *
 *     decides   any thread of any process, by the table alone. Each of its
 *               entries there carries its process's number.
 *     watches   one thread of each process (libweir_reporter.c): it wakes each
 *               100 ms. The first to wake checks which members have died, for
 *               all: if each checked each, 62 of them would read 38,000 files
 *               of /proc a second. If it dies before it has checked, the next
 *               check finds it too. One member at a time is the reaper: it
 *               clears up after the dead, all their locks first, and strikes
 *               them off. If the reaper dies, the next one begins again. Only
 *               the reaper frees a number, so no new member is taken for a
 *               dead one.
 *     reports   one member, the reporter: the one that swaps one word from 0 to
 *               its number. When the reporter has died, the word is set to 0
 *               after the clearing up, so the successor finds a table without
 *               half-done edits. If any member names roots, only such a member
 *               may be the reporter.
 *
 * A member is known by its process's id and start (io/process.h), which no
 * other process of the host will ever have. The kernel is asked whether it
 * lives, not a heartbeat: a process that was stopped for an hour keeps its
 * entries. It joins by one swap of one word, so there is no half a member.
 *
 * A table outlives all of its processes. The next process, a day later, reaps
 * them and goes on, also with the counts that were not reported yet. Only a
 * reboot ends the table, for then the clock that its buckets leak by begins
 * anew.
 *
 * One member makes the table: the state is that one's number until all is
 * written. If it dies, the next one begins from zeros.
 *
 * A file grows (libweir_grow.c): it is sparse, mapped at its full length, and
 * allocated as far as the table is committed.
 *
 * Rejected: the table's writer as a lock on the file. A lock belongs to an open
 * file, and a child of fork() keeps its dead parent's alive; and memory that
 * the caller provides has no file. */

#include "libweir/libweir_block.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/base/atomic.h"
#include "core/table/table_share.h"
#include "io/clock.h"

/* Making takes milliseconds; a stopped maker is waited for. */
#define MAKE_PATIENCE (5 * WEIR_SECOND)
#define MAKE_PATIENCE_BYTE 10 /* more, in nanoseconds */
#define MAKE_LOOK_EVERY WEIR_MILLISECOND
#define STOPPED_MAKER \
    "another process is making the table and makes no progress: is it stopped?"
/* How long a process that leaves tries to clear its entries. */
#define LEAVE_PATIENCE (100 * WEIR_MILLISECOND)

static_assert(sizeof(WEIR_VERSION) <= 16, "its place in the block");
static_assert(WEIR_PROCESSES_MAX == WEIR_BLOCK_LAST - 1, "two are nobody's");

/* ---- Shape ---- */

static uint64_t block_head_size(void)
{
    return (sizeof(struct weir_block) + WEIR_CACHE_LINE - 1) &
           ~(uint64_t)(WEIR_CACHE_LINE - 1);
}

/* A slot's bytes are a difference: the rest is as large for any number. */
#define SLOTS_MEASURED 65536

uint64_t weir_block_slots_bytes(uint32_t slots)
{
    struct weir_table_options options = { .slots = SLOTS_MEASURED,
                                          .stripes = WEIR_BLOCK_MEMBERS,
                                          .processes = WEIR_BLOCK_MEMBERS };
    uint64_t first = weir_table_size(&options);
    options.slots *= 2;
    return (weir_table_size(&options) - first) * slots / SLOTS_MEASURED;
}

static uint32_t slots_of(const struct weir_block_shape *shape)
{
    uint64_t bytes = shape->memory_max;
    if (bytes == 0)
        bytes =
            shape->fixed ? WEIR_BLOCK_MEMORY_DEFAULT : WEIR_BLOCK_FILE_DEFAULT;
    uint64_t some = weir_block_slots_bytes(SLOTS_MEASURED);
    uint64_t slots = bytes < WEIR_SLOTS_MEMORY_MAX
                         ? bytes * SLOTS_MEASURED / some
                         : WEIR_SLOTS_MAX;
    if (slots == 0)
        return 1;
    return slots < WEIR_SLOTS_MAX ? (uint32_t)slots : WEIR_SLOTS_MAX;
}

static struct weir_table_options block_table_options(
    const struct weir_block_shape *shape)
{
    uint32_t stripes =
        shape->stripes ? shape->stripes : WEIR_BLOCK_STRIPES_DEFAULT;
    uint32_t slots = slots_of(shape);
    bool grows = !shape->fixed && slots > WEIR_TABLE_GROWTH_MIN;
    return (struct weir_table_options){
        .slots = slots,
        .committed = grows ? WEIR_TABLE_GROWTH_MIN : slots,
        .stripes = WEIR_BLOCK_MEMBERS + stripes,
        .processes = WEIR_BLOCK_MEMBERS,
    };
}

/* Up to the end of a page. */
static uint64_t whole_pages(uint64_t bytes)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) & ~(page - 1);
}

size_t weir_block_size(const struct weir_block_shape *shape)
{
    struct weir_table_options options = block_table_options(shape);
    size_t table = weir_table_size(&options);
    return table > 0 ? block_head_size() + table : 0;
}

/* ---- Making ---- */

/* Whole pages: the blocks of a file system may be smaller than a page, and the
 * first write to a page needs all of its blocks. Not beyond the file's end: the
 * last page needs none there, and the file would become longer. */
int weir_block_allocate(int fd, uint64_t at,
                        const struct weir_table_range *ranges, uint32_t count)
{
    struct stat file;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    if (fstat(fd, &file) < 0)
        return -errno;
    uint64_t end = (uint64_t)file.st_size;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t from = (at + ranges[i].at) & ~(page - 1);
        uint64_t to = whole_pages(at + ranges[i].at + ranges[i].bytes);
        to = to < end ? to : end;
        if (from >= to)
            return -EINVAL; /* the file was cut short */
        int done;
        do {
            done = fallocate(fd, 0, (off_t)from, (off_t)(to - from));
        } while (done < 0 && errno == EINTR);
        if (done < 0)
            return -errno;
    }
    return 0;
}

/* Why a file gets no memory, for people. */
static const char *room_text(int error)
{
    if (error == EFBIG)
        return "a file may not be as long as memory_max: set a smaller one, or "
               "allow it (ulimit -f)";
    return error == ENOSPC ? "no space is left for a table there: free some, "
                             "or enlarge the file system"
                           : strerror(error);
}

/* Makes the file 'size' bytes long. Beyond its limit for files, the system
 * would end the process. */
static int lengthen_file(int fd, uint64_t size)
{
    struct rlimit most;
    if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur < size)
        return -EFBIG;
    return ftruncate(fd, (off_t)size) < 0 ? -errno : 0;
}

/* Makes all bytes behind the state zero, and commits what a new table needs.
 * 'fd' -1: it is memory, committed as it is. A file is cut and lengthened: it
 * may have bytes of another table. Other processes read the state meanwhile,
 * and no more. */
static int clear_block(struct weir_block *block, int fd, uint64_t size,
                       const struct weir_table_options *options)
{
    uint64_t head = block_head_size();
    if (fd < 0) {
        memset((char *)block + sizeof(block->state), 0,
               size - sizeof(block->state));
        return 0;
    }
    struct weir_table_range ranges[WEIR_TABLE_RANGES_MAX];
    /* The head's last page stays allocated. */
    uint64_t kept = whole_pages(head);
    int error =
        ftruncate(fd, (off_t)kept) < 0 ? -errno : lengthen_file(fd, size);
    if (error < 0)
        return error;
    memset((char *)block + sizeof(block->state), 0,
           kept - sizeof(block->state));
    uint32_t count = weir_table_first_ranges(options, ranges);
    return weir_block_allocate(fd, head, ranges, count);
}

static int write_new_block(struct weir_block *block, int fd,
                           const struct weir_block_shape *shape,
                           const struct weir_process_world *world)
{
    uint64_t size = weir_block_size(shape);
    struct weir_table_options options = block_table_options(shape);
    weir_instant now = weir_clock_now();
    weir_assert(size > block_head_size());
    int error = clear_block(block, fd, size, &options);
    if (error < 0) {
        weir_store(&block->state, 0);
        return error;
    }
    block->layout = WEIR_BLOCK_LAYOUT;
    memcpy(block->version, WEIR_VERSION, sizeof(WEIR_VERSION));
    block->world = *world;
    block->size = size;
    block->table_at = block_head_size();
    weir_entropy(block->handover.incarnation, WEIR_INCARNATION_SIZE);
    weir_entropy(&options.seed, sizeof(options.seed));
    struct weir_table *table =
        weir_table_init((char *)block + block->table_at, &options, now);
    weir_table_set_wall(table, weir_clock_wall_offset());
    /* release: a process that finds it ready finds all of it. */
    weir_store_release(&block->state, WEIR_BLOCK_READY);
    return 0;
}

/* The state while it is made. */
#define MAKING ((uint64_t)2 << 62)
#define MAKING_MASK ((uint64_t)3 << 62)

static bool is_any_block(uint64_t state)
{
    return state == 0 || state == WEIR_BLOCK_READY ||
           (state & MAKING_MASK) == MAKING;
}

/* Whether the block is to be made anew: it is empty, its maker has died, or it
 * is from before the host's last boot. */
static bool is_void_block(const struct weir_block *block, uint64_t state,
                          const struct weir_process_world *world)
{
    if (state == WEIR_BLOCK_READY)
        return block->layout == WEIR_BLOCK_LAYOUT &&
               block->world.boot != world->boot;
    return state == 0 || !weir_process_lives(state & ~MAKING_MASK);
}

/* Makes the block, or waits for its maker: to touch each page of a large one
 * for the first time took 4 s for 1.6 GB, on a busy machine. */
static int await_block(struct weir_block *block, size_t size, int fd,
                       const struct weir_block_shape *shape,
                       const struct weir_process_world *world,
                       struct weir_diag *diag)
{
    uint64_t self = weir_process_self() | MAKING;
    size_t needed = weir_block_size(shape);
    weir_instant until =
        weir_clock_now() + MAKE_PATIENCE + size * MAKE_PATIENCE_BYTE;
    while (weir_clock_now() < until) {
        /* acquire: pairs with the release in write_new_block(). */
        uint64_t state = weir_load_acquire(&block->state);
        if (!is_any_block(state))
            return weir_diag_put(diag, WEIR_ETABLE, "this is not a Weir table");
        bool empty = is_void_block(block, state, world);
        if (!empty && state == WEIR_BLOCK_READY)
            return WEIR_OK;
        if (empty && (needed == 0 || needed > size))
            return weir_diag_put(diag, WEIR_ETABLE,
                                 "the memory is too small for so many quotas");
        if (empty && weir_cas(&block->state, &state, self)) {
            int error = write_new_block(block, fd, shape, world);
            return error == 0
                       ? WEIR_OK
                       : weir_diag_put(diag, WEIR_ETABLE, room_text(-error));
        }
        if (!empty)
            nanosleep(&(struct timespec){ .tv_nsec = MAKE_LOOK_EVERY }, NULL);
    }
    return weir_diag_put(diag, WEIR_ETABLE, STOPPED_MAKER);
}

/* ---- Entering ---- */

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

static int check_block(struct weir_block *block, size_t size,
                       const struct weir_block_shape *shape,
                       const struct weir_process_world *world,
                       struct weir_diag *diag)
{
    if (block->layout != WEIR_BLOCK_LAYOUT ||
        strncmp(block->version, WEIR_VERSION, sizeof(block->version)) != 0)
        return refuse_version(block, diag);
    if (block->size > size || block->table_at != block_head_size())
        return weir_diag_put(diag, WEIR_ETABLE,
                             "the table is cut short: remove it when no "
                             "process uses it any more");
    if (block->world.names != world->names)
        return weir_diag_put(diag, WEIR_ETABLE,
                             "the table is used in another PID namespace, and "
                             "processes there can't be watched from here");
    struct weir_table_options found;
    weir_table_shape(weir_block_table(block), &found);
    if (weir_table_size(&found) + block_head_size() != block->size)
        return weir_diag_put(diag, WEIR_ETABLE,
                             "this is not a Weir table, or it is damaged");
    if (shape->memory_max != 0 && slots_of(shape) != found.slots)
        return weir_diag_put(
            diag, WEIR_ETABLE,
            "the table was made for another memory_max: end its processes and "
            "remove it, or leave memory_max out");
    return WEIR_OK;
}

static int enter_block(void *memory, size_t size, int fd,
                       const struct weir_block_shape *shape,
                       struct weir_block **out, struct weir_diag *diag)
{
    struct weir_block *block = memory;
    struct weir_process_world world;
    if ((uintptr_t)memory % WEIR_CACHE_LINE != 0 || size < block_head_size())
        return weir_diag_put(
            diag, WEIR_ETABLE,
            "the memory is too small, or not aligned to 64 bytes");
    if (weir_process_self() == 0 || weir_process_world(&world) < 0)
        return weir_diag_put(diag, WEIR_ESYSTEM,
                             "/proc can't be read: "
                             "a shared table finds dead processes there");
    int error = await_block(block, size, fd, shape, &world, diag);
    if (error == 0)
        error = check_block(block, size, shape, &world, diag);
    if (error == 0)
        *out = block;
    return error;
}

int weir_block_enter(void *memory, size_t size,
                     const struct weir_block_shape *shape,
                     struct weir_block **out, struct weir_diag *diag)
{
    struct weir_block_shape fixed = *shape;
    fixed.fixed = true;
    return enter_block(memory, size, -1, &fixed, out, diag);
}

/* ---- The file ---- */

static int refuse_block_file(struct weir_diag *diag, const char *path,
                             const char *why)
{
    return weir_diag_set(diag, WEIR_ETABLE, path, ": ", why, NULL);
}

/* One of the processes that find no file makes it; the lock is the process's,
 * not the descriptor's, so that no child of fork() keeps it. False: another
 * process keeps it for longer than a table is made. */
static bool lock_block_file(int fd, short type)
{
    struct flock lock = { .l_type = type, .l_whence = SEEK_SET };
    weir_instant until = weir_clock_now() + MAKE_PATIENCE;
    while (fcntl(fd, F_SETLK, &lock) < 0) {
        bool taken = errno == EACCES || errno == EAGAIN;
        /* A file system without locks: the state's swap decides alone. */
        if (!taken || weir_clock_now() >= until)
            return !taken;
        nanosleep(&(struct timespec){ .tv_nsec = MAKE_LOOK_EVERY }, NULL);
    }
    return true;
}

static int check_block_file(int fd, const char *path, struct stat *out,
                            struct weir_diag *diag)
{
    if (fstat(fd, out) < 0)
        return refuse_block_file(diag, path, strerror(errno));
    if (!S_ISREG(out->st_mode))
        return refuse_block_file(diag, path, "isn't a regular file");
    if (out->st_uid != geteuid())
        return refuse_block_file(diag, path, "belongs to another user");
    if ((out->st_mode & 077) != 0)
        return refuse_block_file(
            diag, path, "other users may open it: it must have mode 0600");
    return WEIR_OK;
}

/* The bytes to map: the file's size, or for a new file 'wanted'. */
static int size_block_file(int fd, const char *path, size_t wanted, size_t *out,
                           struct weir_diag *diag)
{
    struct stat found;
    int refused = check_block_file(fd, path, &found, diag);
    if (refused < 0)
        return refused;
    struct weir_table_range head = { 0, block_head_size() };
    *out = (size_t)found.st_size;
    if (*out > 0 && *out < head.bytes)
        return WEIR_OK; /* too small: not a table */
    if (*out > 0) {
        int error = weir_block_allocate(fd, 0, &head, 1);
        return error == 0 ? WEIR_OK
                          : refuse_block_file(diag, path, room_text(-error));
    }
    /* The head is touched at once, and only allocated pages may be: if the file
     * system couldn't give one at its first use, the process that touches it
     * would be killed. */
    int error = lengthen_file(fd, wanted);
    if (error == 0)
        error = weir_block_allocate(fd, 0, &head, 1);
    if (error < 0) {
        (void)!ftruncate(fd, 0);
        return refuse_block_file(diag, path, room_text(-error));
    }
    *out = wanted;
    return WEIR_OK;
}

static int map_block_file(int fd, const char *path,
                          const struct weir_block_shape *shape,
                          struct weir_block **out, struct weir_diag *diag)
{
    size_t size;
    int error = size_block_file(fd, path, weir_block_size(shape), &size, diag);
    if (error < 0)
        return error;
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return refuse_block_file(diag, path,
                                 "it can't be mapped: make it with a smaller "
                                 "memory_max, or allow more addresses (ulimit "
                                 "-v)");
    error = enter_block(memory, size, fd, shape, out, diag);
    if (error < 0)
        munmap(memory, size);
    return error;
}

int weir_block_open(const char *path, const struct weir_block_shape *shape,
                    struct weir_block **out, int *out_fd,
                    struct weir_diag *diag)
{
    int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK,
                  0600);
    if (fd < 0)
        return refuse_block_file(diag, path, strerror(errno));
    int error = lock_block_file(fd, F_WRLCK)
                    ? map_block_file(fd, path, shape, out, diag)
                    : refuse_block_file(diag, path, STOPPED_MAKER);
    (void)lock_block_file(fd, F_UNLCK);
    if (error < 0)
        close(fd);
    else
        *out_fd = fd;
    return error;
}

void weir_block_unmap(struct weir_block *block)
{
    munmap(block, block->size);
}

/* ---- Members ---- */

static bool is_dead_member(const struct weir_block *block, uint32_t number)
{
    uint64_t process = weir_load(&block->member[number]);
    return process != 0 && !weir_process_lives(process);
}

static uint64_t find_dead_members(const struct weir_block *block)
{
    uint64_t dead = 0;
    for (uint32_t i = 1; i < WEIR_BLOCK_LAST; i++)
        dead |= (uint64_t)is_dead_member(block, i) << i;
    return dead;
}

/* While a dead member is the reporter no other acts as number 0. */
static void reap_locks(struct weir_block *block, uint64_t dead, uint32_t by)
{
    struct weir_table *table = weir_block_table(block);
    uint32_t reporter = weir_load(&block->reporter);
    if (dead >> reporter & 1)
        weir_table_reap_locks(table, 0, by);
    for (; dead != 0; dead &= dead - 1)
        weir_table_reap_locks(table, (uint32_t)__builtin_ctzll(dead), by);
}

static void strike_off(struct weir_block *block, uint32_t number)
{
    weir_assert(number > 0 && number < WEIR_BLOCK_LAST);
    weir_store(&block->roots[number], 0);
    weir_store(&block->member[number], 0);
}

/* False: not all of it could be given back yet. */
static bool reap_member(struct weir_block *block, uint32_t number, uint32_t by)
{
    struct weir_table *table = weir_block_table(block);
    bool held = weir_load(&block->reporter) == number;
    if ((held && !weir_table_reap(table, 0, by)) ||
        !weir_table_reap(table, number, by))
        return false;
    if (held)
        weir_block_resign_reporter(block, number);
    strike_off(block, number);
    return true;
}

static bool become_reaper(struct weir_block *block, uint32_t number)
{
    weir_assert(number > 0 && number < WEIR_BLOCK_MEMBERS);
    uint32_t reaper = weir_load(&block->reaper);
    if (reaper != 0 && reaper < WEIR_BLOCK_MEMBERS && reaper != number &&
        weir_process_lives(weir_load(&block->member[reaper])))
        return false;
    return weir_cas(&block->reaper, &reaper, number);
}

/* A process that made room by the last number (below) may have died with the
 * writer lock, after it had struck others off: then nobody needs that number
 * any more. It is taken over while its locks are reaped. */
static void reap_last(struct weir_block *block, uint32_t number)
{
    uint64_t *last = &block->member[WEIR_BLOCK_LAST];
    uint64_t dead = weir_load(last);
    if (number == WEIR_BLOCK_LAST || dead == 0 || weir_process_lives(dead) ||
        !weir_cas(last, &dead, weir_load(&block->member[number])))
        return;
    weir_table_reap_locks(weir_block_table(block), WEIR_BLOCK_LAST, number);
    weir_store(last, 0);
}

void weir_block_reap(struct weir_block *block, uint32_t number)
{
    reap_last(block, number);
    if (find_dead_members(block) == 0 || !become_reaper(block, number))
        return;
    /* Again: the reaper before may have been faster. */
    uint64_t dead = find_dead_members(block);
    reap_locks(block, dead, number);
    for (; dead != 0; dead &= dead - 1)
        reap_member(block, (uint32_t)__builtin_ctzll(dead), number);
    weir_store(&block->reaper, 0);
}

bool weir_block_is_due(struct weir_block *block, weir_instant now)
{
    weir_instant at = weir_load(&block->look_at);
    /* Half a turn: the member that checked last is the first again if it is
     * alone. An instant far away is of another clock. */
    bool early = now < at && at - now <= WEIR_BLOCK_LOOK_EVERY;
    return !early &&
           weir_cas(&block->look_at, &at, now + WEIR_BLOCK_LOOK_EVERY / 2);
}

static bool claim_member_number(struct weir_block *block, uint64_t self,
                                uint32_t *out)
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

/* Makes room when all numbers are taken by dead members: no live member could
 * reap them, so the last number is reserved for that. A process that died with
 * that number left nothing but locks. */
static void reap_for_room(struct weir_block *block, uint64_t self)
{
    uint64_t *last = &block->member[WEIR_BLOCK_LAST];
    uint64_t before = weir_load(last);
    if ((before != 0 && weir_process_lives(before)) ||
        !weir_cas(last, &before, self))
        return;
    weir_table_reap_locks(weir_block_table(block), WEIR_BLOCK_LAST,
                          WEIR_BLOCK_LAST);
    weir_block_reap(block, WEIR_BLOCK_LAST);
    weir_store(last, 0);
}

bool weir_block_has_roots(const struct weir_block *block)
{
    bool any = false;
    for (uint32_t i = 1; i < WEIR_BLOCK_LAST; i++)
        any |= weir_load(&block->roots[i]) != 0;
    return any;
}

/* The processes of one limiter name the same roots. The dead ones' roots don't
 * bind the others: their successor is a new limiter to its roots, and roots
 * that know the old one are sent the units counted since. */
static bool agrees_on_roots(const struct weir_block *block, uint32_t number)
{
    uint64_t own = weir_load(&block->roots[number]);
    for (uint32_t i = 1; own != 0 && i < WEIR_BLOCK_LAST; i++) {
        uint64_t others = weir_load(&block->roots[i]);
        if (others != 0 && others != own && !is_dead_member(block, i))
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
    if (!claim_member_number(block, self, &number)) {
        reap_for_room(block, self);
        if (!claim_member_number(block, self, &number))
            return WEIR_EFULL;
    }
    /* Stored first, then compared, in one total order: of two that disagree one
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
    weir_block_resign_reporter(block, number);
    weir_instant until = weir_clock_now() + LEAVE_PATIENCE;
    while (!weir_table_reap(weir_block_table(block), number, number)) {
        weir_block_reap(block, number);
        /* A living process has the writer lock, and may be stopped. Others
         * clear this member's entries when this process has ended. */
        if (weir_clock_now() >= until)
            return;
        sched_yield();
    }
    strike_off(block, number);
}

/* ---- The reporter ---- */

bool weir_block_become_reporter(struct weir_block *block, uint32_t number)
{
    weir_assert(number > 0 && number < WEIR_BLOCK_LAST);
    uint32_t nobody = 0;
    return weir_load_relaxed(&block->reporter) == 0 &&
           weir_cas(&block->reporter, &nobody, number);
}

void weir_block_resign_reporter(struct weir_block *block, uint32_t number)
{
    uint32_t held = number;
    if (weir_load(&block->reporter) != number)
        return;
    /* No root is connected now: decisions go on from the counts here, as they
     * do when a limiter loses its last link. */
    weir_table_lift_stops(weir_block_table(block));
    if (!weir_cas(&block->reporter, &held, 0))
        return;
    weir_store(&block->ready, 0);
    weir_store(&block->roots_up, 0);
    weir_block_signal_change(block);
}

void weir_block_kick(struct weir_block *block)
{
    weir_fetch_add(&block->kicks, 1);
    weir_futex_wake(&block->kicks);
}

void weir_block_signal_change(struct weir_block *block)
{
    weir_fetch_add(&block->changes, 1);
    weir_futex_wake(&block->changes);
}
