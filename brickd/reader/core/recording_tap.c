#include "recording_tap.h"

#include <string.h>

static uint64_t piece_of(uint64_t slots) { return BRICK_SPOOL_BEFORE + slots * sizeof(struct brick_record); }

void brick_track_end(struct brick_track *t)
{
    if (t->place == NULL)
        return;
    const struct brick_chunk head = {.kind = BRICK_CHUNK_RECORDS,
                                     .length = piece_of(t->slots) - sizeof head,
                                     .at_ns = brick_now_ns()};
    memcpy(t->place, &head, sizeof head);
    if (t->slots > 0)
        brick_spool_publish(t->spool, piece_of(t->slots));
    t->place = NULL;
    brick_spool_leave(t->spool);
}

static void begin(struct brick_track *t, const struct brick_records *records, uint64_t count)
{
    if (!brick_spool_enter(t->spool))
        return;
    t->place = brick_spool_place(t->spool, piece_of(count));
    t->slots = 0;
    if (t->place != NULL)
        memcpy(t->place + sizeof(struct brick_chunk), records, sizeof *records);
    else
        brick_spool_leave(t->spool);
}

struct brick_record *brick_track_room(struct brick_track *t, const struct brick_stretch *s)
{
    const struct brick_records records = {
        .worker = t->worker, .lane = s->lane, .ring = s->ring, .inside = (uint32_t)s->inside, .first = s->first};
    if (t->spool == NULL)
        return NULL;
    uint64_t slots = t->slots + s->count;
    if (t->place != NULL && (slots > BRICK_TRACK_SLOTS || !brick_spool_reaches(t->spool, piece_of(slots))))
        brick_track_end(t);
    if (t->place == NULL)
        begin(t, &records, s->count);
    return t->place != NULL ? (struct brick_record *)(void *)(t->place + piece_of(t->slots)) : NULL;
}

void brick_track_took(struct brick_track *t, uint64_t count) { t->slots += count; }

void brick_track_lost(struct brick_track *t, uint64_t count)
{
    if (t->spool != NULL)
        brick_spool_refuse(t->spool, count);
}
