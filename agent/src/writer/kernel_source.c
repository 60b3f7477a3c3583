/* writer/kernel_source.c - writes the sources of kernels and the results of canaries into the event ring, in pieces. A
 * piece for which there is no room stays with the host, for a later call. Only a text that is too long is dropped. */
#include "canary.h"
#include "event_ring.h"

#include "brick_graph.h"
#include "brick_hash.h"

#include <string.h>

uint64_t brick_source_hash(const char *text, size_t length) { return brick_fnv1a(text, length); }

/* The parts in their order: name, path, text, end. */
struct part {
    const char *bytes;
    uint64_t length;
};

static uint64_t label_length(const char *label)
{
    const size_t length = label != NULL ? strlen(label) : 0;
    return length <= BRICK_SOURCE_LABEL ? length : BRICK_SOURCE_LABEL;
}

static uint64_t pieces_of(uint64_t length) { return (length + BRICK_SOURCE_PIECE - 1) / BRICK_SOURCE_PIECE; }

/* Writes piece number `number`. Pieces are numbered through all parts. */
static void write_piece(struct brick_source_piece *r, const struct part *parts, uint64_t number)
{
    uint32_t which = BRICK_SOURCE_NAME;
    while (number >= pieces_of(parts[which].length))
        number -= pieces_of(parts[which++].length);
    const uint64_t from = number * BRICK_SOURCE_PIECE, left = parts[which].length - from;
    memset(r->text, 0, sizeof r->text);
    memcpy(r->text, parts[which].bytes + from, left < BRICK_SOURCE_PIECE ? left : BRICK_SOURCE_PIECE);
    r->piece = which << 30 | (uint32_t)number;
}

static unsigned tell(enum brick_kind kind, uint64_t most, const struct brick_text *source, uint64_t hash,
                     const void *key, uint64_t *piece)
{
    const uint64_t lengths[] = {label_length(source->name), label_length(source->path), source->length};
    const struct part parts[] = {{source->name, lengths[0]}, {source->path, lengths[1]}, {source->text, lengths[2]},
                                 {(const char *)lengths, sizeof lengths}};
    const uint64_t all = pieces_of(lengths[0]) + pieces_of(lengths[1]) + pieces_of(lengths[2]) + 1;
    unsigned outcome = BRICK_DONE;
    if (*piece >= all)
        return outcome;
    struct brick_thread *t = brick_enter(key, &outcome, ARRIVES_QUESTION);
    if (t == NULL)
        return outcome | BRICK_REFUSED;
    if (source->length > most) {
        brick_event_attempt(t);
        outcome |= brick_event_dropped(t, kind);
        *piece = all;
    }
    while (*piece < all) {
        struct brick_source_piece *r = (struct brick_source_piece *)brick_event_slot(t, t->event_ring.slots / 8 * 3);
        if (r == NULL) {
            outcome |= BRICK_REFUSED;
            break;
        }
        brick_event_attempt(t);
        write_piece(r, parts, (*piece)++);
        r->hash = hash;
        brick_event_publish(t, r, kind, 1);
    }
    brick_idle(t);
    return outcome;
}

unsigned brick_source_tell(const struct brick_text *source, uint64_t hash, const void *key, uint64_t *piece)
{
    return tell(BRICK_KIND_SOURCE, BRICK_SOURCE_MAX, source, hash, key, piece);
}

uint64_t brick_canary_order(void)
{
    if (!brick_agent_owns())
        return 0;
    return brick_load_relaxed(&brick_control_of(brick_segment_now())->reserved[BRICK_CONTROL_CANARY]); /* O15 */
}

unsigned brick_canary_tell(const char *text, size_t length, const void *key, uint64_t *piece)
{
    const struct brick_text result = {.text = text, .length = length};
    const uint64_t hash = length <= BRICK_CANARY_MAX ? brick_source_hash(text, length) : 0;
    return tell(BRICK_KIND_CANARY, BRICK_CANARY_MAX, &result, hash, key, piece);
}
