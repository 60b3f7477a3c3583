/* brick_history.h - the history of a sequence: which tokens filled its cache, and in which steps.
 *
 * Workers under live traffic rarely get equal batches, but often equal beginnings of sequences. If two workers computed
 * a token after the same tokens, and in the same way, their results for this token must be equal, to the last bit, even
 * at a site that reads the cache. So an engine keeps one struct brick_history for each sequence, and passes it the tokens
 * of each step. The writer chooses some rows of the step and records their outputs, with the history and the lineage:
 *
 *   struct brick_history_rows rows;
 *   brick_history_begin(NULL, shape, tokens_of_all, BRICK_HISTORY_RATE, &rows);
 *   for (each sequence of the step)
 *       brick_history_extend(&rows, &sequence->history, tokens, BRICK_INT32, count, first_row);
 *   brick_history_end(&rows);
 *   for (each layer) {
 *       attention(...);
 *       if (rows.count > 0)
 *           brick_history_record(attention, NULL, NULL, &y, &x, &rows);
 *   }
 *
 * DEFINITION. Every language and every device gives the same result. All arithmetic is modulo 2^64 and unsigned.
 * splitmix64 and sip are those of brick_fingerprint.h; sip has the key of the service.
 *
 *   m[n]     = sip(0x59524F54534948, n)                          for n = 0 to 3; m[1], m[2] and m[3] are made odd
 *   F        = splitmix64(m[0] + token * m[1] + position * m[2] + content * m[3])
 *   S(p)     = S(p - 1) + F(token p, p, content)                 S(-1) = 0; positions begin with 0
 *   history  = sip(S(p), p)
 *
 * `token` is the token's number, sign-extended to 64 bits. `content` is 0, or a digest of everything else that decides
 * what the tokens mean to the model, such as the name of an adapter. S is a sum, so a sequence that drops its last
 * tokens subtracts their F, and a device can compute the S of all tokens of a step at once.
 *
 *   lineage L of a cache: 0 while it is empty; a step that fills it with `count` tokens from position `start` on sets
 *     L = splitmix64(splitmix64(L XOR way) XOR (start << 32 | count))
 *     way = splitmix64(shape XOR splitmix64(generation))         the generation of the weights (brick_weights.h), else 0
 *   lineage of the rows of this step = sip(L, 0x454741454E494C)  with the new L
 *
 * `shape` is the engine's digest of everything in the shape of a step that decides which kernels compute a row and in
 * which order they add: the number of sequences, the longest part and the longest cache, the side of the padding, the
 * scale of a rotary embedding that depends on the batch, how many tokens each expert gets. Workers are compared only if
 * their rows have equal lineages. If the shape says too little, healthy workers differ.
 *
 * S and L are never published, only sip(...). Without the key, records show only which rows have equal histories.
 *
 * CHOICE. All workers choose the same rows, whatever the rest of the batch is. A row is drawn if
 *
 *   (upper half of S(p)) XOR (upper half of splitmix64(epoch / 64)) XOR (the 32 bits of the epoch in reverse order)
 *
 * is below twice the rate (brick_shm.h defines rates and epochs): a row that recurs is drawn in one epoch of 32 at a rate
 * of 1/64. Of the rows that are drawn in a step, the first BRICK_HISTORY_ROWS in the order of their positions are
 * recorded, because sequences share their beginnings.
 *
 * UNKNOWN. If a cache holds anything but the result of these tokens, the history does not say what a row depends on. An
 * engine then calls brick_history_lose, and from then on no row of this sequence is recorded. Each step of the sequence
 * is counted with the reason. Do so for beam search, token trees and rejected draft tokens that stay in the cache, for
 * caches that were reordered, evicted, edited or quantized, for a scale over the whole batch (dynamic int8), for experts
 * that drop tokens, for packed sequences without positions, and for inputs other than tokens (images, encoder states)
 * that are not part of `content`. The writer gives the reason `unseen` to a history if it did not see all tokens, for
 * example because recording was off.
 */
#ifndef BRICK_HISTORY_H
#define BRICK_HISTORY_H

#include "brick_agent.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BRICK_HISTORY_ROWS 4
#define BRICK_HISTORY_RATE (1u << 26) /* a `rate` of 1/64, with which one row of 32 is drawn */

/* The history of a sequence. All zeros: an empty cache. A copy is the history of another sequence with the same
 * beginning. */
struct brick_history {
    uint64_t sum;     /* S of the last token */
    uint64_t lineage; /* L */
    uint64_t content; /* set by the host before the first token */
    uint32_t tokens;  /* how many tokens filled the cache: the position of the next token */
    uint32_t unknown; /* 0: known; else the reason: the id of a name, or BRICK_HISTORY_UNSEEN */
};
#define BRICK_HISTORY_UNSEEN UINT32_MAX

/* A chosen row. Before brick_history_end, `history` and `lineage` are S and L. */
struct brick_history_row {
    uint64_t history, lineage;
    uint64_t at; /* the index of the row in the tensors of the step, in flat order */
    uint32_t position;
};

/* The chosen rows of a step. Only `count` is for the host. */
struct brick_history_rows {
    uint32_t count; /* 0: nothing is recorded */
    uint32_t seen;  /* whether the writer can follow the histories in this step */
    uint32_t turn;  /* the epoch's part of a draw */
    uint64_t limit; /* a row with a smaller draw is drawn */
    uint64_t way;
    uint64_t rows;  /* how many rows the tensors of the step have */
    uint64_t factors[4];
    const void *key;
    struct brick_history_row row[BRICK_HISTORY_ROWS];
};

/* Begins a step whose tensors have `rows` rows, padding included. `rate`: as in brick_wants_of. The first call of a
 * process reads the key file. */
void brick_history_begin(const void *key, uint64_t shape, uint64_t rows, uint32_t rate, struct brick_history_rows *of);

/* Adds `count` tokens (BRICK_INT32 or BRICK_INT64) that this step computes for a sequence. Their rows have the indices
 * `at` to `at` + `count` - 1 in the tensors of the step. */
void brick_history_extend(struct brick_history_rows *of, struct brick_history *history, const void *tokens, uint32_t dtype,
                          uint64_t count, uint64_t at);

/* Ends the choice. Call it before the first brick_history_record of the step. */
void brick_history_end(struct brick_history_rows *of);

/* Removes the last tokens of a sequence, for example rejected draft tokens: their keys and values are no longer used.
 * The tokens must be those with which the history was extended. */
void brick_history_truncate(struct brick_history *history, const void *tokens, uint32_t dtype, uint64_t count);

/* Declares that the history does not say what the cache holds. The first reason counts; one of at most 100 bytes. */
void brick_history_lose(struct brick_history *history, const char *reason, size_t length);

/* Records the chosen rows of a kernel's output. `input`: the tensor from which the kernel computed the output, as it was
 * before the call; NULL if it is unknown, and then brickd cannot tell whether a difference began at this kernel. Both
 * have one row per token, padding included; all dimensions before the last are those of the rows. If the output is NULL
 * or has another number of rows, nothing is recorded, the output is counted with the reason `output`, and the result has
 * BRICK_REFUSED. Records nothing if less than half of the thread's ring would stay free. `at`: relation, position and
 * state do not count. */
unsigned brick_history_record(uint32_t kernel, const void *key, const struct brick_at *at, const struct brick_tensor *output,
                              const struct brick_tensor *input, const struct brick_history_rows *of);

#ifdef __cplusplus
}
#endif

#endif
