/* brick_weights.h - a model's parameters: recorded when they are loaded, and again and again in the background.
 *
 * Replicas of a model have the same parameters, bit for bit, from the moment
 * when they are loaded. What came out otherwise (a flipped bit, a wrong shard)
 * shows before the first request:
 *
 *   static struct brick_weight each[COUNT];            the engine's memory, as long as they are watched
 *   static struct brick_weights weights = {
 *       .each = each, .count = COUNT, .hold = hold, .host = engine, .rescan_ns = 3600000000000, .share_ppm = 5000};
 *   for (uint64_t n = 0; n < COUNT; n++)
 *       brick_weight_named(&each[n], name_of(n), strlen(name_of(n)));
 *   brick_weights_load(&weights);                      all are read, here and now
 *   for (;;) {
 *       brick_step_end(...);
 *       brick_weights_turn(&weights);                  at the end of each step, on any thread
 *   }
 *
 * A record is that of a checksum (brick_agent.h) of a site of its own, whatever
 * its name: without inputs, of the relation local, its step the generation.
 *
 * NAMES. The numbers of layers and of experts are taken out of a tensor's name,
 * so that a model has few names, the same in every worker. The parts of a name
 * stand between dots. A number is a part that is one as C writes it in decimal:
 * without a zero before it, 0 to 16,777,214.
 *
 *   position  the first number right behind a part that ends in `expert` or `experts`
 *   layer     of the other numbers, the first right behind a part that is `h`, or ends in `layer`, `layers`, `block` or
 *             `blocks`; where there is none, the first
 *
 * In the name that is left a `*` stands for each of the two; all else stays, but for the part `_orig_mod` before another:
 * torch.compile puts it in the names of what it wraps, in one worker and not in another.
 *
 *   model.layers.3.mlp.experts.5.down.weight   model.layers.*.mlp.experts.*.down.weight   layer 3, position 5
 *   transformer.h.11.attn.c_attn.bias          transformer.h.*.attn.c_attn.bias           layer 11
 *   encoder.block.3.layer.0.q.weight           encoder.block.*.layer.0.q.weight           layer 3
 *   visual.merger.2.weight                     visual.merger.*.weight                     layer 2
 *   _orig_mod.layers.3._orig_mod.up.weight     layers.*.up.weight                         layer 3
 *   embed_tokens.weight                        embed_tokens.weight
 *
 * SCANS. At the end of a step the next bytes of a scan are read, in slices: none
 * is longer than 200 us (and one block of 8 KiB, and what holding a tensor
 * takes), and all of them take no more than their share of the time that goes
 * by, at first use as later. A scan begins when the segment is another one (a
 * forked child's own, that of one that was lost; what was read already is
 * recorded there again), so long after the beginning of the last, and when a
 * consumer asks for it; the last one is always ended first.
 *
 * What finds no room in the ring waits for it, with what was read; no record is
 * dropped for want of room. Three eighths of the ring are left to those that
 * cannot wait.
 *
 * A tensor that is written to while it is read gives a record of neither state:
 * after an update the weights are loaded again, with the next generation. Checksums
 * from then on say so among their params, so that what came of one generation is
 * compared with what came of the same alone: load before the next step begins. As
 * long as no generation was said, and there was one load, they say nothing.
 */
#ifndef BRICK_WEIGHTS_H
#define BRICK_WEIGHTS_H

#include "brick_agent.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One tensor: where it stands, and what was last read of it. */
struct brick_weight {
    uint32_t name;  /* the number of what is left of its name */
    uint32_t layer; /* UINT32_MAX: none */
    uint64_t position;
    uint32_t has_position;
    uint32_t gone; /* it was, when it was last to be read */
    uint64_t ticks;
    struct brick_taken taken;
};

/* Whether a tensor can be read now. */
enum brick_held {
    BRICK_HELD = 0,       /* as it was described */
    BRICK_GONE = 1,       /* it is no more: nothing is recorded */
    BRICK_UNREADABLE = 2, /* it lies elsewhere, or is of no known type: counted as refused */
    BRICK_NOT_NOW = 3     /* the scan goes on from here, at the next turn */
};

struct brick_weights {
    /* The engine's: set once, before the first call. */
    struct brick_weight *each;
    uint64_t count;
    /* Describes the tensor of a number, which stays where it is until it is released: each slice anew. release may be NULL. */
    enum brick_held (*hold)(void *host, uint64_t number, struct brick_tensor *tensor);
    void (*release)(void *host, uint64_t number);
    void *host;
    const uint64_t *generation; /* NULL: there was one load more than in the last one */
    uint64_t rescan_ns;         /* from the beginning of one scan to the next; 0: at load and when asked alone */
    uint64_t share_ppm;         /* of the time: millionths, at most a million; 0: 5,000 */
    /* The writer's. */
    const void *segment;
    uint64_t read, told; /* of the present scan: up to these tensors */
    uint64_t gone;       /* how many are */
    uint64_t step, asked, loads, began_ns, seen_ns, next_ns, next_ticks;
    int64_t credit; /* millionths of ns */
    uint32_t busy, loading, begun, moved, stopped;
    struct brick_pieces pieces;
};

/* Where a tensor of this name stands; opens the segment. The text may go afterwards. */
void brick_weight_named(struct brick_weight *weight, const char *name, size_t length);

/* The same, but for the number: what is left of the name, no longer than it was, is written to `left`; its length. */
size_t brick_weight_site(const char *name, size_t length, char *left, struct brick_weight *weight);

/* Reads all of them, and records what there is room for; the turns record the rest. While another thread is at a turn,
 * it is left to the turns altogether. A process tells of the weights of its last load how many there are. */
void brick_weights_load(struct brick_weights *weights);

/* Costs a look at the clock, while there is nothing to do. Once `stopped` is set, no further tensor is looked at. */
void brick_weights_turn(struct brick_weights *weights);

/* Such a turn's arithmetic, on any clock: for how many ns it may take now (0: not yet), and that it took so many. */
uint64_t brick_weights_allowed(struct brick_weights *weights, uint64_t now_ns);
void brick_weights_took(struct brick_weights *weights, uint64_t ns);

#ifdef __cplusplus
}
#endif

#endif
