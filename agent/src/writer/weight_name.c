/* writer/weight_name.c - finds the layer and the expert in the name of a weight, and makes the name of its site.
 *
 * Owns the rules for the meaning of each number in a name. Must not know segments or tensors. Invariant: tensors whose
 * names differ only in these numbers have the same site name.
 */
#include "brick_weights.h"

#include "brick_shm.h"

#include <string.h>

struct part {
    const char *text;
    size_t length;
};

static int ends_in(const struct part *p, const char *word)
{
    const size_t length = strlen(word);
    return p->length >= length && memcmp(p->text + p->length - length, word, length) == 0;
}

static int is_expert(const struct part *p) { return ends_in(p, "expert") || ends_in(p, "experts"); }
static int is_layer(const struct part *p)
{
    return ends_in(p, "layer") || ends_in(p, "layers") || ends_in(p, "block") || ends_in(p, "blocks")
           || (p->length == 1 && *p->text == 'h');
}

static int is_number(const struct part *p, uint32_t *number)
{
    *number = 0;
    if (p->length == 0 || p->length > 8 || (p->length > 1 && *p->text == '0'))
        return 0;
    for (size_t n = 0; n < p->length; n++) {
        if (p->text[n] < '0' || p->text[n] > '9')
            return 0;
        *number = *number * 10 + (uint32_t)(p->text[n] - '0');
    }
    return *number <= BRICK_LAYER_MAX;
}

/* torch.compile puts this part before the names of wrapped modules, whose tensors are unchanged. */
static int is_wrapper(const struct part *p)
{
    static const char wrapper[] = "_orig_mod";
    return p->length == sizeof wrapper - 1 && memcmp(p->text, wrapper, p->length) == 0;
}

/* Returns the part at `from`, or the part that follows if this one is a wrapper's. *next is where the next part begins;
 * after the last part, it is larger than the length. */
static struct part part_at(const char *name, size_t length, size_t from, size_t *next)
{
    struct part p;
    do {
        const char *dot = memchr(name + from, '.', length - from);
        const size_t end = dot != NULL ? (size_t)(dot - name) : length;
        p = (struct part){.text = name + from, .length = end - from};
        from = *next = end + 1;
    } while (is_wrapper(&p) && from <= length);
    return p;
}

size_t brick_weight_site(const char *name, size_t length, char *left, struct brick_weight *weight)
{
    const char *layer = NULL, *position = NULL;
    int is_certain = 0; /* whether the part before the layer's number is a word for a layer */
    struct part before = {.text = name, .length = 0};
    uint32_t number;
    size_t next, written = 0;
    weight->layer = BRICK_NO_LAYER;
    weight->position = weight->has_position = 0;
    for (size_t from = 0; from <= length; from = next) {
        const struct part p = part_at(name, length, from, &next);
        if (is_number(&p, &number)) {
            if (is_expert(&before) && position == NULL) {
                position = p.text;
                weight->position = number;
                weight->has_position = 1;
            } else if (layer == NULL || (!is_certain && is_layer(&before))) {
                layer = p.text;
                weight->layer = number;
                is_certain = is_layer(&before);
            }
        }
        before = p;
    }
    for (size_t from = 0; from <= length; from = next) {
        const struct part p = part_at(name, length, from, &next);
        const int is_out = p.text == layer || p.text == position;
        if (from > 0)
            left[written++] = '.';
        memcpy(left + written, is_out ? "*" : p.text, is_out ? 1 : p.length);
        written += is_out ? 1 : p.length;
    }
    return written;
}

/* A longer name is used unchanged: brick_name truncates it, with a hash that must cover the complete name. */
#define NAME_ROOM 4096

void brick_weight_named(struct brick_weight *weight, const char *name, size_t length)
{
    char left[NAME_ROOM];
    memset(weight, 0, sizeof *weight);
    weight->layer = BRICK_NO_LAYER;
    if (length > sizeof left)
        weight->name = brick_name(name, length, NULL);
    else
        weight->name = brick_name(left, brick_weight_site(name, length, left, weight), NULL);
}
