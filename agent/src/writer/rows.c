/* writer/rows.c - rows: pairs of an output row and its input row, at sites that compute rows one by one.
 *
 * Workers under live traffic get different batches, but often the same rows: every chat template starts with the same
 * tokens. So rows are compared, not batches. Every worker, in every language, must choose the same rows:
 *
 *   1. A tensor of shape [T, H] has T rows at the positions 0 to T - 1. With more dimensions, [B, T, ..., H], dimension 1
 *      is the position. A tensor [H] is one row at position 0.
 *   2. seed   = splitmix64(epoch), with the epoch of the call (brick_shm.h)
 *      window = 4 << (seed >> 61): 4 to 512 positions
 *      a, b   = the first 16 bytes of a row as two little-endian words; a shorter row ends with zero bytes
 *      key    = splitmix64(splitmix64(a XOR seed) XOR b)
 *   3. Rows are visited position by position, and within a position in flat order, at most 4,096 of them.
 *   4. Rows at positions below the window come first, in the order of their visit; then the other rows, smaller keys
 *      first. Of rows with equal keys, only the first one counts. The first 4 rows in this order are recorded.
 *
 * So if the sequences of two workers begin with the same tokens, the workers choose the same rows of this beginning,
 * without knowing the tokens. A small window finds short beginnings in a batch of long sequences; a large window also
 * finds rows further inside. Window and keys change with the epoch, so every row is chosen in some epoch. An epoch of 5
 * seconds is long enough for workers to meet the same beginning in the same epoch.
 *
 * Input rows are taken before the call, because a kernel may overwrite them. As in writer/checksum.c, tensors are read
 * outside of the busy section. This code makes no system call and allocates nothing.
 *
 * Rows are a sample and must never displace another record, so they leave half of the ring free. While less of the ring
 * is free, or without the service's key, no rows are taken, and this does not count as lost records.
 */
#include "checksum.h"
#include "draw.h"
#include "row_view.h"

#include <string.h>

BRICK_ASSERT(BRICK_ROWS == BRICK_ROWS_MAX, "as many rows as in the record");

/* Rows are recorded in this many steps for each step with whole fingerprints: four rows cost less than an eighth of the
 * tensors of a usual step. */
#define STEPS_TIMES 8u
/* How many rows a call looks at. This takes 5 to 10 us, if the rows are in a cache. A batch has fewer sequences than
 * this, so a call looks at the beginning of each sequence. */
#define LOOKED_AT 4096u

/* ---- which steps, which sites ------------------------------------------- */

static const struct brick_at here;

static int has_room(struct brick_thread *t, uint32_t rows)
{
    return brick_event_room(t, t->event_ring.slots / 2 + BRICK_CHECKED_SLOTS(2 * rows - 1) - 1);
}

int brick_rows_wanted(uint32_t kernel, const void *key, const struct brick_at *at, uint32_t rate)
{
    unsigned outcome = BRICK_DONE;
    struct brick_thread *t = brick_enter(key, &outcome, ARRIVES_QUESTION);
    if (t == NULL)
        return 0;
    const struct brick_checked_place p = brick_checked_place_of(t, kernel, key, at != NULL ? at : &here);
    const int wanted = p.value != 0 && (p.value & BRICK_ENTRY_OFF) == 0 && brick_checked_drawn(t, &p, rate, STEPS_TIMES);
    brick_idle(t);
    return wanted;
}

/* A block of epochs goes through all turns in order. The first turn of each block is random: a step that recurs is
 * drawn in every eighth epoch, and must not meet the same turn each time. */
int brick_rows_turn(uint32_t turn, uint32_t turns)
{
    unsigned outcome = BRICK_DONE;
    struct brick_thread *t = brick_enter(NULL, &outcome, ARRIVES_QUESTION);
    if (t == NULL || turns == 0)
        return 0;
    const uint32_t epoch = brick_epoch_now(t);
    brick_idle(t);
    const uint32_t block = (turns + STEPS_TIMES - 1) / STEPS_TIMES * STEPS_TIMES;
    return (brick_splitmix64(epoch / block) + epoch) % turns == turn;
}

static int has_rows_of(const struct brick_row_view *v, const struct brick_rows *rows)
{
    return v->rows == rows->rows && v->leading == rows->leading
           && memcmp(v->tensor->shape, rows->shape, v->leading * sizeof *rows->shape) == 0;
}

/* ---- which rows --------------------------------------------------------- */

struct choice {
    uint64_t keys[BRICK_ROWS]; /* in ascending order from index `first` on */
    uint64_t rows[BRICK_ROWS];
    uint32_t count;
    uint32_t first; /* the rows before this index are inside the window */
};

static void offer(struct choice *c, uint64_t key, uint64_t row)
{
    uint32_t n = c->count;
    if (n == BRICK_ROWS && (c->first == n || key >= c->keys[n - 1]))
        return;
    for (uint32_t i = 0; i < c->count; i++)
        if (c->keys[i] == key)
            return;
    if (n == BRICK_ROWS)
        n--;
    else
        c->count++;
    for (; n > c->first && c->keys[n - 1] > key; n--) {
        c->keys[n] = c->keys[n - 1];
        c->rows[n] = c->rows[n - 1];
    }
    c->keys[n] = key;
    c->rows[n] = row;
}

static inline uint64_t key_of(const struct brick_row_view *v, const char *row, uint64_t seed)
{
    uint64_t words[2] = {0, 0};
    const int64_t stride = v->strides[v->leading];
    const uint64_t count = brick_least(sizeof words / v->size, v->columns);
    if (BRICK_LIKELY(v->dense && count * v->size == sizeof words))
        memcpy(words, row, sizeof words);
    else
        for (uint64_t n = 0; n < count; n++)
            memcpy((char *)words + n * v->size, row + (int64_t)n * stride, v->size);
    return brick_splitmix64(brick_splitmix64(words[0] ^ seed) ^ words[1]);
}

static void choose(struct choice *c, const struct brick_row_view *v, uint32_t epoch)
{
    const uint64_t seed = brick_splitmix64(epoch), window = UINT64_C(4) << (seed >> 61);
    const uint32_t position = v->leading > 1 ? 1 : 0; /* the dimension that is the position */
    const uint64_t before = position > 0 ? (uint64_t)v->tensor->shape[0] : 1;
    const uint64_t positions = v->leading > 0 ? (uint64_t)v->tensor->shape[position] : 1;
    const uint64_t after = v->rows / before / positions;
    uint64_t left = LOOKED_AT;
    c->count = c->first = 0;
    for (uint64_t p = 0; p < positions && left > 0; p++) {
        if (p == window && (c->first = c->count) == BRICK_ROWS)
            return;
        for (uint64_t b = 0; b < before && left > 0; b++) {
            const char *base = (const char *)v->tensor->data;
            if (v->leading > 0)
                base += (int64_t)(p * (uint64_t)v->strides[position] + (position > 0 ? b * (uint64_t)v->strides[0] : 0));
            for (uint64_t a = 0; a < after && left > 0; a++, left--)
                offer(c, key_of(v, brick_row_at(v, base, position + 1, a), seed), (b * positions + p) * after + a);
        }
    }
}

void brick_rows_choose(const void *key, const struct brick_tensor *input, struct brick_rows *rows)
{
    struct brick_row_view v;
    struct choice c;
    struct brick_fingerprint_key secret;
    unsigned outcome = BRICK_DONE;
    rows->count = 0;
    if (!brick_row_view_make(&v, input))
        return;
    struct brick_thread *t = brick_enter(key, &outcome, ARRIVES_QUESTION);
    if (t == NULL)
        return;
    const uint32_t epoch = brick_epoch_now(t);
    const int room = has_room(t, 1);
    struct brick_process *process = brick_process_of(t->segment);
    brick_idle(t);
    if (!room || !brick_key_published(process, &secret))
        return;
    choose(&c, &v, epoch);
    for (uint32_t n = 0; n < c.count; n++) {
        rows->at[n] = c.rows[n];
        brick_row_take(&v, c.rows[n], false, secret, &rows->inputs[n]);
    }
    rows->count = c.count;
    rows->rows = v.rows;
    rows->leading = v.leading;
    memcpy(rows->shape, input->shape, v.leading * sizeof *rows->shape);
}

/* ---- recording ---------------------------------------------------------- */

static void put_rows(const struct brick_thread *t, const struct brick_taken *outputs, const struct brick_rows *rows)
{
    brick_put_output(t, &outputs[0]);
    for (uint32_t n = 0; n < rows->count; n++) {
        if (n > 0)
            brick_put_tensor(t, BRICK_CHECKED_SLOTS(2 * n - 1), &outputs[n]);
        brick_put_tensor(t, BRICK_CHECKED_SLOTS(2 * n), &rows->inputs[n]);
    }
}

unsigned brick_rows_record(uint32_t kernel, const void *key, const struct brick_at *at, const struct brick_tensor *output,
                           const struct brick_rows *rows)
{
    struct brick_row_view v;
    struct brick_taken outputs[BRICK_ROWS];
    struct brick_fingerprint_key secret;
    unsigned outcome = BRICK_DONE;
    if (rows->count == 0 || !brick_row_view_make(&v, output) || !has_rows_of(&v, rows)
        || !brick_key_published(brick_process_of(brick_segment_now()), &secret))
        return outcome;
    for (uint32_t n = 0; n < rows->count; n++)
        brick_row_take(&v, rows->at[n], n == 0, secret, &outputs[n]);
    struct brick_thread *t = brick_enter(key, &outcome, ARRIVES_ENDED);
    if (t == NULL)
        return outcome;
    at = at != NULL ? at : &here;
    const uint64_t now = brick_ticks(brick_agent.clock);
    const struct brick_checked_place p = brick_checked_place_of(t, kernel, key, at);
    if (p.value == 0 || (p.value & BRICK_ENTRY_OFF) != 0 || !has_room(t, rows->count)) {
        brick_idle(t);
        return outcome;
    }
    brick_add(&t->line->amounts, at->layer != NULL && *at->layer > BRICK_LAYER_MAX); /* then the record has no layer */
    brick_event_attempt(t);
    struct brick_checked *r = (struct brick_checked *)brick_event_at(t, 0);
    const uint32_t inputs = 2 * rows->count - 1;
    put_rows(t, outputs, rows);
    BRICK_POINT("checked");
    r->site = (uint32_t)(p.value & 0xFFFF);
    r->ticks = now;
    r->step = p.step;
    r->position = rows->rows;
    r->params = brick_params_of(at, BRICK_LOCAL);
    r->valid = BRICK_ALL_ROWS;
    r->backend = at->backend <= UINT16_MAX ? (uint16_t)at->backend : 0;
    r->of = 0;
    r->relation = BRICK_LOCAL;
    r->inputs = (uint8_t)inputs;
    r->flags = (uint8_t)(BRICK_CHECKED_ROWS | BRICK_CHECKED_STATELESS | (p.has_step ? BRICK_CHECKED_STEP : 0));
    r->reserved = 0;
    brick_event_publish(t, r, BRICK_KIND_CHECKED, (uint16_t)BRICK_CHECKED_SLOTS(inputs));
    if (p.has_step)
        brick_step_tell(t, p.step);
    brick_event_over(t, now);
    return outcome;
}
