/* SPDX-License-Identifier: MIT
 * core/base/atomic.h - the only file that names the compiler's atomics.
 *
 * Objects are plain integers in shared memory; every access to an object that
 * two threads use goes through here, so that a test build can run its own
 * scheduler under each access. Names say the order: _relaxed, _acquire,
 * _release; without one: sequentially consistent. */

#ifndef WEIR_ATOMIC_H
#define WEIR_ATOMIC_H

#include <stdbool.h>
#include <stdint.h>

#ifndef WEIR_EXPLORE

#define weir_load_relaxed(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define weir_load_acquire(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define weir_load(p) __atomic_load_n((p), __ATOMIC_SEQ_CST)

#define weir_store_relaxed(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define weir_store_release(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define weir_store(p, v) __atomic_store_n((p), (v), __ATOMIC_SEQ_CST)

/* The value before. */
#define weir_fetch_add(p, v) __atomic_fetch_add((p), (v), __ATOMIC_SEQ_CST)
#define weir_fetch_sub(p, v) __atomic_fetch_sub((p), (v), __ATOMIC_SEQ_CST)
#define weir_fetch_or(p, v) __atomic_fetch_or((p), (v), __ATOMIC_SEQ_CST)
#define weir_exchange(p, v) __atomic_exchange_n((p), (v), __ATOMIC_SEQ_CST)

/* 'expected' takes the value found when it fails. */
#define weir_cas(p, expected, v)                                               \
    __atomic_compare_exchange_n((p), (expected), (v), false, __ATOMIC_SEQ_CST, \
                                __ATOMIC_RELAXED)

/* How often a thread looks at a lock before it gives up: some microseconds. */
#define WEIR_LOCK_SPINS 100

/* A hint to the processor that this is a spin loop. */
#if defined(__x86_64__) || defined(__i386__)
#define weir_pause() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define weir_pause() __asm__ volatile("yield")
#else
#define weir_pause() ((void)0)
#endif

/* Order the accesses before the fence against those after it (seqlock
 * readers). */
#define weir_fence_acquire() __atomic_thread_fence(__ATOMIC_ACQUIRE)
#define weir_fence_release() __atomic_thread_fence(__ATOMIC_RELEASE)
#define weir_fence() __atomic_thread_fence(__ATOMIC_SEQ_CST)

#else /* WEIR_EXPLORE */

#include <stddef.h>

/* The test build with its own scheduler (test/explore.h). The scheduler runs
 * before each access, makes the access, and explores all interleavings. One
 * access runs at a time and all threads see it at once, so memory orders have
 * no effect there. */
enum weir_access {
    WEIR_ACCESS_LOAD,
    WEIR_ACCESS_STORE,
    WEIR_ACCESS_ADD,
    WEIR_ACCESS_OR,
    WEIR_ACCESS_EXCHANGE,
    WEIR_ACCESS_CAS,
};

/* Makes the access; returns the value that was there before it. */
uint64_t weir_explore_access(enum weir_access access, const void *p,
                             size_t size, uint64_t value);
/* '*expected' is of the same size as '*p'. */
bool weir_explore_cas(void *p, void *expected, size_t size, uint64_t value);
/* A spinning thread isn't scheduled again until another thread has written the
 * word that it read last. */
void weir_explore_pause(void);

#define WEIR_EXPLORED(access, p, v)                                    \
    ((__typeof__(+*(p)))weir_explore_access(WEIR_ACCESS_##access, (p), \
                                            sizeof(*(p)), (uint64_t)(v)))
#define weir_load(p) WEIR_EXPLORED(LOAD, (p), 0)
#define weir_store(p, v) ((void)WEIR_EXPLORED(STORE, (p), (v)))
#define weir_fetch_add(p, v) WEIR_EXPLORED(ADD, (p), (v))
#define weir_fetch_sub(p, v) WEIR_EXPLORED(ADD, (p), 0 - (uint64_t)(v))
#define weir_fetch_or(p, v) WEIR_EXPLORED(OR, (p), (v))
#define weir_exchange(p, v) WEIR_EXPLORED(EXCHANGE, (p), (v))
#define weir_cas(p, expected, v) \
    weir_explore_cas((p), (expected), sizeof(*(p)), (uint64_t)(v))
#define weir_pause() weir_explore_pause()
/* The scheduler chooses whether the lock is free by then. */
#define WEIR_LOCK_SPINS 0

#define weir_load_relaxed(p) weir_load(p)
#define weir_load_acquire(p) weir_load(p)
#define weir_store_relaxed(p, v) weir_store((p), (v))
#define weir_store_release(p, v) weir_store((p), (v))
#define weir_fence_acquire() ((void)0)
#define weir_fence_release() ((void)0)
#define weir_fence() ((void)0)

#endif /* WEIR_EXPLORE */

#endif /* WEIR_ATOMIC_H */
