#include "track.h"

#include <errno.h>

/* What stands before the slots. */
#define BEFORE (sizeof(struct brick_chunk) + sizeof(struct brick_records))

static void lost(struct brick_track *t, uint64_t count) { t->recorder->refused_slots += t->recorder->ended ? 0 : count; }

static void release(struct brick_track *t)
{
    t->place = NULL;
    pthread_mutex_unlock(&t->recorder->mutex);
}

/* The chunk as far as it has come. */
static void close_chunk(struct brick_track *t)
{
    struct brick_chunk head = {.kind = BRICK_CHUNK_RECORDS,
                               .length = sizeof t->records + t->slots * sizeof(struct brick_record),
                               .body_sum = brick_sum_end(&t->sum)};
    if (t->slots > 0 && !brick_recorder_publish(t->recorder, &head, &t->records))
        lost(t, t->slots);
}

struct brick_record *brick_track_room(struct brick_track *t, uint32_t lane, uint32_t ring, uint64_t first, uint64_t count)
{
    int fresh = t->place == NULL;
    if (t->recorder == NULL)
        return NULL;
    if (fresh)
        pthread_mutex_lock(&t->recorder->mutex);
    else if (t->slots + count > BRICK_TRACK_SLOTS) {
        close_chunk(t);
        fresh = 1;
    }
    if (fresh) {
        t->records = (struct brick_records){.worker = t->worker, .lane = lane, .ring = ring, .first = first};
        t->slots = 0;
        brick_sum_begin(&t->sum, &t->recorder->key);
        brick_sum_add(&t->sum, &t->records, 1);
    }
    t->place = brick_recorder_place(t->recorder, BEFORE + (t->slots + count) * sizeof(struct brick_record));
    if (t->place == NULL) {
        close_chunk(t);
        release(t);
        return NULL;
    }
    return (struct brick_record *)(void *)(t->place + BEFORE) + t->slots;
}

void brick_track_took(struct brick_track *t, uint64_t count)
{
    brick_sum_add(&t->sum, t->place + BEFORE + t->slots * sizeof(struct brick_record), count);
    t->slots += count;
}

void brick_track_lost(struct brick_track *t, uint64_t count)
{
    if (t->recorder == NULL)
        return;
    pthread_mutex_lock(&t->recorder->mutex);
    lost(t, count);
    pthread_mutex_unlock(&t->recorder->mutex);
}

void brick_track_broke(struct brick_track *t)
{
    t->recorder->broken = 1;
    t->recorder->error = ESTALE;
    lost(t, t->slots);
    release(t);
}

void brick_track_end(struct brick_track *t)
{
    if (t->place == NULL)
        return;
    close_chunk(t);
    release(t);
}
