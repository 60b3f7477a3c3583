/* brick_atomic.h - the atomic operations of the format, and nothing else.
 *
 * The shared structs hold plain integers, so that C11, C++17 and CUDA hosts can include them; the functions below make
 * an access atomic. The ordering table of brick_shm.h says where each function is used, and why.
 */
#ifndef BRICK_ATOMIC_H
#define BRICK_ATOMIC_H

#include <stdint.h>

#if defined(__cplusplus)
#define BRICK_ASSERT(condition, text) static_assert(condition, text)
#else
#define BRICK_ASSERT(condition, text) _Static_assert(condition, text)
#endif

/* Relaxed: another thread or process may see this value at any time, in no defined order with other values. */
static inline uint32_t brick_load_relaxed32(const uint32_t *p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
static inline uint64_t brick_load_relaxed(const uint64_t *p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
static inline void brick_store_relaxed32(uint32_t *p, uint32_t v) { __atomic_store_n(p, v, __ATOMIC_RELAXED); }
static inline void brick_store_relaxed(uint64_t *p, uint64_t v) { __atomic_store_n(p, v, __ATOMIC_RELAXED); }

static inline double brick_load_relaxed_f64(const double *p)
{
    double v;
    __atomic_load(p, &v, __ATOMIC_RELAXED);
    return v;
}
static inline void brick_store_relaxed_f64(double *p, double v) { __atomic_store(p, &v, __ATOMIC_RELAXED); }

/* A thread that loads this value sees everything that was written before the value was stored. */
static inline uint32_t brick_load_acquire32(const uint32_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
static inline uint64_t brick_load_acquire(const uint64_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
static inline void brick_store_release32(uint32_t *p, uint32_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
static inline void brick_store_release(uint64_t *p, uint64_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }

/* Gives each of several writers a different value; used only on cold paths. */
static inline uint64_t brick_fetch_add(uint64_t *p, uint64_t v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }

/* Only one of several threads succeeds; it sees everything that the previous owner released. */
static inline int brick_claim32(uint32_t *p, uint32_t expected, uint32_t desired)
{
    return __atomic_compare_exchange_n(p, &expected, desired, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

/* Increases a counter that has one writer, with a load and a store instead of a locked instruction. On x86, one
 * instruction does the load and the store. brick_add uses assembly there, because compilers do not combine two
 * atomics. */
static inline void brick_add(uint64_t *p, uint64_t v)
{
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
    __asm__("addq %1, %0" : "+m"(*p) : "er"(v) : "cc");
#else
    brick_store_relaxed(p, brick_load_relaxed(p) + v);
#endif
}

static inline void brick_fence_acquire(void) { __atomic_thread_fence(__ATOMIC_ACQUIRE); }
static inline void brick_fence_release(void) { __atomic_thread_fence(__ATOMIC_RELEASE); }
/* If two threads each write a value, then pass this fence, and then read the value of the other thread, at least one of
 * them sees the value that the other wrote. */
static inline void brick_fence_full(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

/* Orders this thread's accesses as seen by a signal handler on the same thread. */
static inline void brick_fence_signal(void) { __atomic_signal_fence(__ATOMIC_SEQ_CST); }

#endif
