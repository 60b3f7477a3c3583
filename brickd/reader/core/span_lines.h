/* core/span_lines.h - writes rows of spans as lines of text: JSON Lines and CSV.
 *
 * All text comes from the caller, already escaped. Only the numbers are formatted here.
 */
#ifndef BRICKD_SPAN_LINES_H
#define BRICKD_SPAN_LINES_H

#include "span_rows.h"

struct brick_text {
    const char *text;
    size_t length;
};

/* Many texts, one after the other: text i is from offsets[i] to offsets[i + 1]. The caller has validated these. */
struct brick_pieces {
    const char *text;
    const uint32_t *offsets; /* count + 1 */
    size_t count;
};

static inline struct brick_text brick_piece(const struct brick_pieces *p, size_t i)
{
    return (struct brick_text){p->text + p->offsets[i], p->offsets[i + 1] - p->offsets[i]};
}

static inline size_t brick_longest_piece(const struct brick_pieces *p)
{
    size_t longest = 0;
    for (size_t i = 0; i < p->count; i++)
        longest = p->offsets[i + 1] - p->offsets[i] > longest ? p->offsets[i + 1] - p->offsets[i] : longest;
    return longest;
}

enum { BRICK_LINE_NUMBERS = 8 }; /* begin, duration, self, step, elements, bytes, rows, lost */

struct brick_line_form {
    struct brick_text track;         /* begins each line */
    struct brick_pieces places;      /* by path; follows */
    struct brick_text kinds[BRICK_ROW_KINDS];          /* follows the place */
    struct brick_text before[BRICK_LINE_NUMBERS];      /* precedes each number */
    struct brick_text end;
    struct brick_text none;          /* in place of a step or rows that do not exist */
    struct brick_text quote;         /* around the hexadecimal digits of a step */
    int64_t epoch_ns;                /* is added to each begin */
};

/* Writes as many lines as `room` bytes hold for certain. Returns the number of rows, and sets `used` (bytes). */
size_t brick_span_lines(const struct brick_span_row *rows, size_t count, const struct brick_line_form *form, char *to,
                        size_t room, size_t *used);

#endif
