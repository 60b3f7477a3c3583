/* writer/history.c - histories of sequences, and rows that are recorded with their history (brick_history.h).
 *
 * A step that computes many tokens calls brick_history_extend once per sequence. So that a token takes about a nanosecond,
 * its loop has one splitmix64, and draws a row by the sum itself, which is already random. Only the chosen rows get the
 * digests that are published. As in writer/checksum.c, tensors are read outside of the busy section, and this code makes
 * no system call and allocates nothing.
 *
 * Rows are a sample and must never displace another record: see writer/rows.c.
 */
#include "checksum.h"
#include "draw.h"
#include "key_file.h"
#include "row_view.h"

#include "brick_history.h"
#include "brick_siphash.h"

#define FACTORS UINT64_C(0x59524F54534948) /* "HISTORY" */
#define LINEAGE UINT64_C(0x454741454E494C) /* "LINEAGE" */
#define DRAWN_TIMES 2u /* how many rows of 64 are drawn at a rate of 1/64 */
#define POSITIONS_MAX ((uint64_t)1 << 31)
#define REASON_MAX 100
#define REASON_HEAD "history:"

/* ---- definitions --------------------------------------------------------- */

static void factors_of(struct brick_fingerprint_key key, uint64_t factors[4])
{
    for (uint64_t n = 0; n < 4; n++)
        factors[n] = brick_siphash(key.words, (const uint64_t[]){FACTORS, n}, 2) | (n > 0);
}

/* Returns the sum m[0] + position * m[2] + content * m[3]; the next position adds m[2]. */
static uint64_t place_of(const uint64_t factors[4], const struct brick_history *h, uint32_t position)
{
    return factors[0] + position * factors[2] + h->content * factors[3];
}

static inline uint64_t token_at(const void *tokens, uint32_t dtype, uint64_t n)
{
    uint64_t wide;
    int32_t narrow;
    if (dtype == BRICK_INT64) {
        memcpy(&wide, (const char *)tokens + n * sizeof wide, sizeof wide);
        return wide;
    }
    memcpy(&narrow, (const char *)tokens + n * sizeof narrow, sizeof narrow);
    return (uint64_t)(int64_t)narrow;
}

/* Returns whether this many tokens can be read, and fit into the history. */
static int can_read(const struct brick_history *h, const void *tokens, uint32_t dtype, uint64_t count)
{
    return tokens != NULL && (dtype == BRICK_INT32 || dtype == BRICK_INT64) && count < POSITIONS_MAX
           && h->tokens + count < POSITIONS_MAX;
}

/* ---- the rows of a step -------------------------------------------------- */

void brick_history_begin(const void *key, uint64_t shape, uint64_t rows, uint32_t rate, struct brick_history_rows *of)
{
    unsigned outcome = BRICK_DONE;
    struct brick_fingerprint_key secret;
    *of = (struct brick_history_rows){.rows = rows, .key = key};
    struct brick_thread *t = brick_enter(key, &outcome, ARRIVES_QUESTION);
    if (t == NULL)
        return;
    const uint32_t epoch = brick_epoch_now(t), actual = brick_checked_rate(t, rate);
    struct brick_process *process = brick_process_of(t->segment);
    brick_idle(t);
    if (!brick_key_published(process, &secret))
        return;
    factors_of(secret, of->factors);
    of->limit = actual == BRICK_RATE_ALL ? UINT64_MAX : actual == BRICK_RATE_NONE ? 0 : (uint64_t)actual * DRAWN_TIMES;
    of->turn = (uint32_t)(brick_splitmix64(epoch / BRICK_EPOCH_TURNS) >> 32) ^ brick_bits_reversed(epoch);
    of->way = brick_splitmix64(shape ^ brick_splitmix64(brick_load_relaxed(&brick_agent.generation)));
    of->seen = 1;
}

/* Adds a drawn row, if it is among the first ones in the order of positions. */
static void offer(struct brick_history_rows *of, const struct brick_history_row *row)
{
    uint32_t n = of->count;
    if (n == BRICK_HISTORY_ROWS) {
        if (row->position >= of->row[n - 1].position)
            return;
        n--;
    } else {
        of->count++;
    }
    for (; n > 0 && of->row[n - 1].position > row->position; n--)
        of->row[n] = of->row[n - 1];
    of->row[n] = *row;
}

static uint32_t reason_named(const char *text) { return brick_name(text, strlen(text), NULL); }

static void count_unknown(const struct brick_history_rows *of, const struct brick_history *h)
{
    static const uint32_t no_layer = UINT32_MAX;
    const struct brick_at at = {.layer = &no_layer};
    const uint32_t word = h->unknown != BRICK_HISTORY_UNSEEN ? h->unknown : reason_named(REASON_HEAD "unseen");
    brick_rows_note(brick_name("history", 7, NULL), of->key, &at, word, 1);
}

void brick_history_extend(struct brick_history_rows *of, struct brick_history *h, const void *tokens, uint32_t dtype,
                          uint64_t count, uint64_t at)
{
    if (h->unknown == 0 && (!of->seen || !can_read(h, tokens, dtype, count)))
        h->unknown = BRICK_HISTORY_UNSEEN;
    if (h->unknown != 0) {
        count_unknown(of, h);
        return;
    }
    const uint64_t by_token = of->factors[1], by_position = of->factors[2], start = h->tokens;
    const uint64_t limit = at <= of->rows && count <= of->rows - at ? of->limit : 0; /* only rows of the tensors are read */
    uint64_t sum = h->sum, place = place_of(of->factors, h, h->tokens);
    h->lineage = brick_splitmix64(brick_splitmix64(h->lineage ^ of->way) ^ (start << 32 | count));
    for (uint64_t n = 0; n < count; n++, place += by_position) {
        sum += brick_splitmix64(place + token_at(tokens, dtype, n) * by_token);
        if (BRICK_UNLIKELY(((uint32_t)(sum >> 32) ^ of->turn) < limit))
            offer(of, &(struct brick_history_row){.history = sum, .lineage = h->lineage, .at = at + n,
                                                  .position = (uint32_t)(start + n)});
    }
    h->sum = sum;
    h->tokens += (uint32_t)count;
}

void brick_history_end(struct brick_history_rows *of)
{
    struct brick_secret secret;
    if (of->count > 0 && !brick_secret(&secret))
        of->count = 0;
    for (uint32_t n = 0; n < of->count; n++) {
        struct brick_history_row *row = &of->row[n];
        row->history = brick_siphash(secret.key.words, (const uint64_t[]){row->history, row->position}, 2);
        row->lineage = brick_siphash(secret.key.words, (const uint64_t[]){row->lineage, LINEAGE}, 2);
    }
}

void brick_history_truncate(struct brick_history *h, const void *tokens, uint32_t dtype, uint64_t count)
{
    uint64_t factors[4];
    struct brick_secret secret;
    if (h->unknown != 0)
        return;
    if (count > h->tokens || !can_read(h, tokens, dtype, 0) || !brick_secret(&secret)) {
        h->unknown = BRICK_HISTORY_UNSEEN;
        return;
    }
    factors_of(secret.key, factors);
    h->tokens -= (uint32_t)count;
    uint64_t place = place_of(factors, h, h->tokens);
    for (uint64_t n = 0; n < count; n++, place += factors[2])
        h->sum -= brick_splitmix64(place + token_at(tokens, dtype, n) * factors[1]);
    if (h->tokens == 0) /* as in an empty cache: a sequence that is preempted starts again */
        h->lineage = 0;
}

void brick_history_lose(struct brick_history *h, const char *reason, size_t length)
{
    char text[sizeof REASON_HEAD + REASON_MAX] = REASON_HEAD;
    const size_t head = sizeof REASON_HEAD - 1, kept = length < REASON_MAX ? length : REASON_MAX;
    if (h->unknown != 0)
        return;
    memcpy(text + head, reason, kept);
    const uint32_t name = brick_name(text, head + kept, NULL);
    h->unknown = kept > 0 && name > 0 && name <= UINT16_MAX ? name : BRICK_HISTORY_UNSEEN;
}

/* ---- recording ----------------------------------------------------------- */

static const struct brick_at here;

static int takes_rows(struct brick_row_view *v, const struct brick_tensor *tensor, const struct brick_history_rows *of)
{
    return tensor != NULL && brick_row_view_make(v, tensor) && v->rows == of->rows;
}

static void put(struct brick_thread *t, const struct brick_checked_place *p, const struct brick_at *at, uint64_t now,
                const struct brick_history_row *row, const struct brick_taken *taken, uint32_t inputs)
{
    brick_event_attempt(t);
    struct brick_checked *r = (struct brick_checked *)brick_event_at(t, 0);
    brick_put_output(t, &taken[0]);
    ((struct brick_output *)brick_event_at(t, 1))->token = row->position + 1;
    if (inputs > 0)
        brick_put_tensor(t, BRICK_CHECKED_SLOTS(0), &taken[1]);
    BRICK_POINT("checked");
    r->site = (uint32_t)(p->value & 0xFFFF);
    r->ticks = now;
    r->step = p->step;
    r->position = row->history;
    r->params = brick_params_of(at, BRICK_LOCAL);
    r->valid = row->lineage;
    r->backend = at->backend <= UINT16_MAX ? (uint16_t)at->backend : 0;
    r->of = 0;
    r->relation = BRICK_LOCAL;
    r->inputs = (uint8_t)inputs;
    r->flags = (uint8_t)(BRICK_CHECKED_HISTORY | BRICK_CHECKED_STATEFUL | BRICK_CHECKED_POSITION
                         | (p->has_step ? BRICK_CHECKED_STEP : 0));
    r->reserved = 0;
    brick_event_publish(t, r, BRICK_KIND_CHECKED, (uint16_t)BRICK_CHECKED_SLOTS(inputs));
}

unsigned brick_history_record(uint32_t kernel, const void *key, const struct brick_at *at, const struct brick_tensor *output,
                              const struct brick_tensor *input, const struct brick_history_rows *of)
{
    struct brick_row_view out, in;
    struct brick_taken taken[BRICK_HISTORY_ROWS][2];
    struct brick_fingerprint_key secret;
    unsigned outcome = BRICK_DONE;
    struct brick_thread *t = of->count > 0 ? brick_enter(key, &outcome, ARRIVES_QUESTION) : NULL;
    if (t == NULL)
        return outcome;
    at = at != NULL ? at : &here;
    const struct brick_checked_place asked = brick_checked_place_of(t, kernel, key, at);
    const uint32_t inputs = takes_rows(&in, input, of) ? 1 : 0;
    const uint64_t kept = t->event_ring.slots / 2 + of->count * BRICK_CHECKED_SLOTS(inputs) - 1;
    const int on = asked.value != 0 && (asked.value & BRICK_ENTRY_OFF) == 0 && brick_checked_on(t, &asked);
    const int room = brick_event_room(t, kept);
    struct brick_process *process = brick_process_of(t->segment);
    brick_idle(t);
    if (on && !takes_rows(&out, output, of)) {
        brick_rows_note(kernel, key, at, reason_named(REASON_HEAD "output"), 1);
        return outcome | BRICK_REFUSED;
    }
    if (!on || !room || !brick_key_published(process, &secret))
        return outcome;
    for (uint32_t n = 0; n < of->count; n++) {
        brick_row_take(&out, of->row[n].at, true, secret, &taken[n][0]);
        if (inputs > 0)
            brick_row_take(&in, of->row[n].at, false, secret, &taken[n][1]);
    }
    if ((t = brick_enter(key, &outcome, ARRIVES_ENDED)) == NULL)
        return outcome;
    const uint64_t now = brick_ticks(brick_agent.clock);
    const struct brick_checked_place p = brick_checked_place_of(t, kernel, key, at);
    if (p.value == 0 || (p.value & BRICK_ENTRY_OFF) != 0 || !brick_event_room(t, kept)) {
        brick_idle(t);
        return outcome;
    }
    brick_add(&t->line->amounts, at->layer != NULL && *at->layer > BRICK_LAYER_MAX); /* then the record has no layer */
    for (uint32_t n = 0; n < of->count; n++)
        put(t, &p, at, now, &of->row[n], taken[n], inputs);
    if (p.has_step)
        brick_step_tell(t, p.step);
    brick_event_over(t, now);
    return outcome;
}
