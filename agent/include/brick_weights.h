/* brick_weights.h - records a model's parameters when they are loaded, and again in the background.
 *
 * Replicas of a model have the same parameters, bit for bit. A difference (a flipped bit, a wrong shard) is found
 * before the first request:
 *
 *   static struct brick_weight each[COUNT];            the engine's memory, valid while the weights are watched
 *   static struct brick_weights weights = {
 *       .each = each, .count = COUNT, .hold = hold, .host = engine, .rescan_ns = 3600000000000, .share_ppm = 5000};
 *   for (uint64_t n = 0; n < COUNT; n++)
 *       brick_weight_named(&each[n], name_of(n), strlen(name_of(n)));
 *   brick_weights_load(&weights);                      reads all of them now
 *   for (;;) {
 *       brick_step_end(...);
 *       brick_weights_turn(&weights);                  at the end of each step, on any thread
 *   }
 *
 * The record of a tensor is a checksum (brick_agent.h) with no inputs and the relation local; its step is the
 * generation of the weights. The site of such a checksum has the tensor's name, and is always on, even if this name is
 * sensitive (brick_is_sensitive).
 *
 * NAMES. The writer removes the numbers of layers and experts from a tensor's name, so that a model has few names, and
 * the same names in every worker. Dots separate the parts of a name. A number is a part of decimal digits without a
 * leading zero, 0 to 16,777,214.
 *
 *   position  the first number right after a part that ends in `expert` or `experts`
 *   layer     of the other numbers, the first right after a part that is `h`, or ends in `layer`, `layers`, `block` or
 *             `blocks`; if there is none, the first number
 *
 * A `*` replaces each of these two numbers. A part `_orig_mod` is removed if another part follows: torch.compile adds
 * this part to the names of the modules that it wraps, and not every worker may use torch.compile.
 *
 *   model.layers.3.mlp.experts.5.down.weight   model.layers.*.mlp.experts.*.down.weight   layer 3, position 5
 *   transformer.h.11.attn.c_attn.bias          transformer.h.*.attn.c_attn.bias           layer 11
 *   encoder.block.3.layer.0.q.weight           encoder.block.*.layer.0.q.weight           layer 3
 *   visual.merger.2.weight                     visual.merger.*.weight                     layer 2
 *   _orig_mod.layers.3._orig_mod.up.weight     layers.*.up.weight                         layer 3
 *   embed_tokens.weight                        embed_tokens.weight
 *
 * SCANS. A scan reads all tensors, in slices at the ends of steps. A slice takes at most 200 us (plus the time to read
 * 8 KiB and to hold a tensor), and all slices together take at most their share of the time (`share_ppm`). A scan
 * begins rescan_ns after the previous one began, when a consumer requests it, and in each new segment. A new segment
 * belongs to a forked child, or replaces a lost segment; the last readings of the tensors are recorded there again. A
 * scan always ends before the next scan begins.
 *
 * A tensor that takes long to hold may be marked `seldom`. It is then read only by a load and by a scan that a consumer
 * requests. Other scans record its last reading again, with the time of that reading.
 *
 * A record for which the ring has no room is written later and not dropped. Records of weights leave three eighths of
 * the ring to records that cannot be written later.
 *
 * If a tensor changes while it is read, its record matches neither state. So load the weights again after an update,
 * with the next generation, before the next step begins. The generation becomes part of the params of later checksums,
 * so only checksums of the same generation are compared. If the host does not give generations, this begins with the
 * second load.
 */
#ifndef BRICK_WEIGHTS_H
#define BRICK_WEIGHTS_H

#include "brick_agent.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One tensor: its site, and its last reading. */
struct brick_weight {
    uint32_t name;  /* the id of the name without layer and position */
    uint32_t layer; /* UINT32_MAX: none */
    uint64_t position;
    uint32_t has_position;
    uint32_t gone; /* 1: the tensor no longer existed at the last scan */
    uint32_t seldom; /* set by the engine or by `hold`; 1: the tensor takes long to hold, so few scans read it (SCANS) */
    uint32_t reserved;
    uint64_t ticks;
    struct brick_taken taken;
};

/* Whether a tensor can be read now. */
enum brick_held {
    BRICK_HELD = 0,       /* *tensor describes the tensor */
    BRICK_GONE = 1,       /* the tensor no longer exists: nothing is recorded */
    BRICK_UNREADABLE = 2, /* the tensor is on a device that is not read, or its type is unknown: it is counted as
                             refused */
    BRICK_NOT_NOW = 3,    /* the scan continues from this tensor at the next turn */
    BRICK_SAME = 4,       /* the host knows that the tensor has not changed since it was read; no release follows */
    BRICK_SELDOM = 5      /* the host has set `seldom`, because the tensor takes long to hold */
};

#define BRICK_RESCAN_AUTO UINT64_MAX

struct brick_weights {
    /* Set by the engine once, before the first call. */
    struct brick_weight *each;
    uint64_t count;
    /* `hold` describes tensor `number`. A tensor that takes several slices is held again in each slice. The tensor's
     * memory must stay in place until the call of `release`, which may be NULL. */
    enum brick_held (*hold)(void *host, uint64_t number, struct brick_tensor *tensor);
    void (*release)(void *host, uint64_t number);
    void *host;
    const uint64_t *generation; /* NULL: the generation counts the loads */
    uint64_t rescan_ns;         /* from the start of one scan to the next; 0: only at load and on a consumer's request;
                                   BRICK_RESCAN_AUTO: 300 s, or 200 times what the last scan took, if that is longer */
    uint64_t share_ppm;         /* share of the time for all slices, in millionths, at most a million; 0: 5,000 */
    int (*look)(void *host);    /* NULL, or a function that checks whether the engine still has these tensors, and sets
                                 * `stopped` if not. Before each scan, except that of a load, each slice calls the
                                 * function until it returns 1 */
    /* Set by the writer. */
    const void *segment;
    uint64_t read, recorded; /* how many tensors the current scan has read, and has recorded */
    uint64_t gone;           /* number of tensors that no longer exist */
    uint64_t step, asked, loads, began_ns, seen_ns, next_ns, next_ticks;
    uint64_t spent_ns, lasted_ns; /* ns in slices, for the current scan and for the last complete scan */
    int64_t credit; /* time that slices may take, in millionths of ns */
    uint32_t busy, loading, begun, moved, stopped;
    uint32_t seldom;  /* 1: the current scan also reads tensors that are `seldom` */
    uint32_t looking; /* 1: call `look` before the scan continues */
    struct brick_pieces pieces;
};

/* Sets the site of a tensor from the tensor's name. Opens the segment. The text may be freed after the call. */
void brick_weight_named(struct brick_weight *weight, const char *name, size_t length);

/* Sets layer and position from the name, but assigns no id. Writes the name without these numbers to `left`, and
 * returns the length of this text, which is at most `length`. */
size_t brick_weight_site(const char *name, size_t length, char *left, struct brick_weight *weight);

/* Reads all tensors, and records those that have room in the ring. Later turns record the rest. If another thread is in
 * a turn, this call reads nothing, and later turns read and record all tensors. */
void brick_weights_load(struct brick_weights *weights);

/* For a function `look` that finds that the model has changed: lets `weights` continue in place of `old`, whose scan is
 * just starting. After this call, `look` stops `old`. */
void brick_weights_go_on(struct brick_weights *weights, const struct brick_weights *old);

/* Runs a slice if a slice is due; else only reads the clock. After `stopped` is set, reads no further tensor. */
void brick_weights_turn(struct brick_weights *weights);

/* The two steps of a turn's accounting, on any clock: brick_weights_allowed returns how many ns a turn may take now (0:
 * none yet); brick_weights_took tells how many ns the turn took. */
uint64_t brick_weights_allowed(struct brick_weights *weights, uint64_t now_ns);
void brick_weights_took(struct brick_weights *weights, uint64_t ns);

/* Returns the ns from the start of one scan to the next; 0: scans begin only on a consumer's request. */
uint64_t brick_weights_interval(const struct brick_weights *weights);

#ifdef __cplusplus
}
#endif

#endif
