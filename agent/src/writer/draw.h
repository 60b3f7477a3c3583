/* writer/draw.h - a step's draw, which decides whether its checksums are recorded; brick_shm.h defines it. */
#ifndef BRICK_DRAW_H
#define BRICK_DRAW_H

#include "clock.h"
#include "thread.h"

#include "brick_hash.h"

#define BRICK_STEP_DRAWN UINT64_C(0xA0761D6478BD642F)

/* Only the upper half of this hash affects the draw. */
static inline uint64_t brick_step_hash(uint64_t step) { return brick_splitmix64(step ^ BRICK_STEP_DRAWN); }
static inline uint64_t brick_step_of_hash(uint64_t hash) { return brick_unsplitmix64(hash) ^ BRICK_STEP_DRAWN; }

static inline uint32_t brick_bits_reversed(uint32_t bits)
{
    bits = (bits & 0x55555555u) << 1 | (bits >> 1 & 0x55555555u);
    bits = (bits & 0x33333333u) << 2 | (bits >> 2 & 0x33333333u);
    bits = (bits & 0x0F0F0F0Fu) << 4 | (bits >> 4 & 0x0F0F0F0Fu);
    return __builtin_bswap32(bits);
}

static inline uint32_t brick_draw(uint64_t step, uint32_t epoch)
{
    const uint64_t upper = brick_step_hash(step) & ~(uint64_t)UINT32_MAX;
    return (uint32_t)(brick_splitmix64(upper | epoch / BRICK_EPOCH_TURNS) >> 32) ^ brick_bits_reversed(epoch);
}

/* Returns the current epoch. Checks whether the daemon's epoch word is still valid, so that the word of a killed daemon
 * does not count forever. Called once per step or sampled call. The coarse clock needs no system call: the kernel keeps
 * the time in shared memory. */
static inline uint32_t brick_epoch_now(const struct brick_thread *t)
{
    const struct brick_control *control = __atomic_load_n(&t->control, __ATOMIC_RELAXED);
    const uint64_t word = brick_load_relaxed(&control->reserved[BRICK_CONTROL_EPOCH]); /* O15 */
    struct timespec now;
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    return brick_epoch_of(word, (uint64_t)now.tv_sec);
}

static inline uint32_t brick_draw_now(const struct brick_thread *t, uint64_t step)
{
    return brick_draw(step, brick_epoch_now(t));
}

#endif
