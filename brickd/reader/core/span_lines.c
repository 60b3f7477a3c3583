#include "span_lines.h"

#include <string.h>

static const char digits[] = "0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243444546474849"
                             "5051525354555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899";

static char *put(char *to, const struct brick_text *t)
{
    memcpy(to, t->text, t->length);
    return to + t->length;
}

static char *put_number(char *to, uint64_t value)
{
    char buffer[20], *at = buffer + sizeof buffer;
    while (value >= 100) {
        at -= 2;
        memcpy(at, digits + 2 * (value % 100), 2);
        value /= 100;
    }
    if (value >= 10) {
        at -= 2;
        memcpy(at, digits + 2 * value, 2);
    } else {
        *--at = (char)('0' + value);
    }
    const size_t length = (size_t)(buffer + sizeof buffer - at);
    memcpy(to, at, length);
    return to + length;
}

static char *put_signed(char *to, int64_t value)
{
    if (value >= 0)
        return put_number(to, (uint64_t)value);
    *to = '-';
    return put_number(to + 1, 0 - (uint64_t)value);
}

static char *put_step(char *to, uint64_t step, const struct brick_line_form *form)
{
    if (step == 0)
        return put(to, &form->none);
    to = put(to, &form->quote);
    for (int shift = 60; shift >= 0; shift -= 4)
        *to++ = "0123456789abcdef"[step >> shift & 15];
    return put(to, &form->quote);
}

static size_t longest_line(const struct brick_line_form *form)
{
    size_t kind = 0, length = form->track.length + form->end.length + 2 * form->quote.length + 2 * form->none.length;
    for (size_t i = 0; i < BRICK_ROW_KINDS; i++)
        kind = form->kinds[i].length > kind ? form->kinds[i].length : kind;
    for (size_t i = 0; i < BRICK_LINE_NUMBERS; i++)
        length += form->before[i].length + 20;
    return length + brick_longest_piece(&form->places) + kind;
}

size_t brick_span_lines(const struct brick_span_row *rows, size_t count, const struct brick_line_form *form, char *to,
                        size_t room, size_t *used)
{
    const size_t longest = longest_line(form);
    char *at = to;
    size_t i = 0;
    for (; i < count && (size_t)(at - to) + longest <= room; i++) {
        const struct brick_span_row *row = &rows[i];
        if (row->path >= form->places.count || row->kind >= BRICK_ROW_KINDS)
            continue; /* skip a row with an unknown path or kind */
        at = put(at, &form->track);
        const struct brick_text place = brick_piece(&form->places, row->path);
        at = put(at, &place);
        at = put(at, &form->kinds[row->kind]);
        at = put_signed(put(at, &form->before[0]), row->begin_ns + form->epoch_ns);
        at = put_signed(put(at, &form->before[1]), row->duration_ns);
        at = put_signed(put(at, &form->before[2]), row->self_ns);
        at = put_step(put(at, &form->before[3]), row->step, form);
        at = put_number(put(at, &form->before[4]), row->elements);
        at = put_number(put(at, &form->before[5]), row->bytes);
        at = put(at, &form->before[6]);
        at = row->kind == BRICK_ROW_STEP ? put_number(at, row->rows) : put(at, &form->none);
        at = put_number(put(at, &form->before[7]), row->lost);
        at = put(at, &form->end);
    }
    *used = (size_t)(at - to);
    return i;
}
