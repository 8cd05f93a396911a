/* SPDX-License-Identifier: MIT
 * base/atomic.h - the only file that names the compiler's atomics.
 *
 * Objects are plain integers in shared memory; every access to one that two
 * threads use goes through here, so that a test build can put a scheduler of
 * its own under each of them. Names say the order: _relaxed, _acquire,
 * _release; without one: sequentially consistent. */

#ifndef WEIR_ATOMIC_H
#define WEIR_ATOMIC_H

#include <stdbool.h>
#include <stdint.h>

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
#define weir_cas(p, expected, v) \
    __atomic_compare_exchange_n((p), (expected), (v), false, \
                                __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)

/* Tells the processor that this is a spin. */
#if defined(__x86_64__) || defined(__i386__)
#define weir_pause() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define weir_pause() __asm__ volatile("yield")
#else
#define weir_pause() ((void)0)
#endif

/* Orders what is before against what is after, for readers of a sequence. */
#define weir_fence_acquire() __atomic_thread_fence(__ATOMIC_ACQUIRE)
#define weir_fence_release() __atomic_thread_fence(__ATOMIC_RELEASE)

#endif /* WEIR_ATOMIC_H */
