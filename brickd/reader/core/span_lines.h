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

/* Many texts in one string. Text i begins at offsets[i] and ends before offsets[i + 1]. The caller has validated the
 * offsets. */
struct brick_pieces {
    const char *text;
    const uint32_t *offsets; /* count + 1 offsets */
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
    struct brick_text track;         /* the first text of each line */
    struct brick_pieces places;      /* the second text: one for each path */
    struct brick_text kinds[BRICK_ROW_KINDS];          /* the third text: one for each kind of row */
    struct brick_text before[BRICK_LINE_NUMBERS];      /* the text before each number */
    struct brick_text end;           /* the last text of each line */
    struct brick_text none;          /* replaces the step or the number of rows if a row has none */
    struct brick_text quote;         /* the text before and after the hexadecimal digits of a step */
    int64_t epoch_ns;                /* this is added to each begin */
};

/* Writes a line for each row, and stops when the longest possible line might not fit into the rest of the `room` bytes.
 * Returns the number of processed rows, and sets `used` to the number of written bytes. */
size_t brick_span_lines(const struct brick_span_row *rows, size_t count, const struct brick_line_form *form, char *to,
                        size_t room, size_t *used);

#endif
