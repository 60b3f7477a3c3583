/* Two threads that record on command; built with a short BRICK_LOOK_TICKS.
 *
 * One letter each from stdin, answered with a number when done:
 *   m  the main thread records 100 spans       M  it begins one and leaves it open      e  it ends that one
 *   o  the other thread does as with m         s  the other records on and on           t  it stops: how many were it
 *   w  the main thread records until its segment has another name than at the last b: how many were it
 *   n  it records one span under a new name; as it gives that its number, the other does as with w: how many were it
 *   N  the same, as it gives the number of the path
 *   j  as w; as the next segment is published a third thread records 100 spans as the other, and ends
 *   x  the other thread ends
 *   c  the main thread records checksums, of one tensor at two sites, the second of which is off, and of one that cannot be
 *   d  the main thread defers: the id      f  it finalizes every stream      p  how many starts pend
 */
#include "brick_internal.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static sem_t asked, answered;
static char order;
static uint64_t stop, theirs; /* atomic */
static uint32_t mine_name, other_name;
static char before[96];
static const char *held; /* where the main thread waits for the other */
static uint64_t meanwhile;

static void record(uint32_t brick)
{
    brick_begin(brick, NULL, NULL);
    brick_end(brick, NULL, 0, 0);
}

static uint64_t record_until_moved(uint32_t brick)
{
    uint64_t did = 0;
    for (; strcmp(before, brick_segment_name()) == 0; did++)
        record(brick);
    return did;
}

static void *other(void *unused)
{
    (void)unused;
    for (char now = 0; now != 'x';) {
        sem_wait(&asked);
        now = order;
        brick_store_relaxed(&theirs, 0);
        if (now == 'o')
            for (int n = 0; n < 100; n++)
                record(other_name);
        for (; now == 's' && brick_load_acquire(&stop) == 0; brick_add(&theirs, 1))
            record(other_name);
        if (now == 'n')
            meanwhile = record_until_moved(other_name);
        sem_post(&answered);
    }
    return NULL;
}

static void check(void)
{
    static const int64_t shape[] = {4};
    const struct brick_tensor tensor = {
        .data = "abcd", .dtype = BRICK_UINT8, .dims = 1, .shape = shape, .valid = BRICK_ALL_ROWS};
    const uint32_t kernels[] = {mine_name, brick_name("token", 5, NULL), mine_name};
    struct brick_taken taken;
    for (int n = 0; n < 3; n++) {
        brick_take(kernels[n], NULL, NULL, n < 2 ? &tensor : NULL, &taken);
        brick_checksum(kernels[n], NULL, NULL, &taken, NULL, 0);
    }
}

static uint64_t ask(char what)
{
    order = what;
    sem_post(&asked);
    sem_wait(&answered);
    return 100;
}

static void *third(void *unused)
{
    for (int n = 0; n < 100; n++)
        record(other_name);
    return unused;
}

static void at(const char *point)
{
    pthread_t thread;
    if (held == NULL || strcmp(point, held) != 0)
        return;
    held = NULL;
    if (strcmp(point, "published") != 0)
        ask('n');
    else if (pthread_create(&thread, NULL, third, NULL) == 0)
        pthread_join(thread, NULL);
}

static uint64_t record_late(const char *where)
{
    held = where;
    record(brick_name("late", 4, NULL));
    return meanwhile;
}

int main(void)
{
    pthread_t thread;
    char letter;
    brick_test_point = at;
    sem_init(&asked, 0, 0);
    sem_init(&answered, 0, 0);
    brick_init(NULL);
    mine_name = brick_name("mine", 4, "first");
    other_name = brick_name("other thread's", 14, NULL);
    pthread_create(&thread, NULL, other, NULL);
    while (read(0, &letter, 1) == 1 && letter != 'q') {
        uint64_t did = 0;
        switch (letter) {
        case 'm':
            for (; did < 100; did++)
                record(mine_name);
            break;
        case 'M':
            brick_begin(mine_name, NULL, NULL);
            break;
        case 'e':
            brick_end(mine_name, NULL, 0, 0);
            break;
        case 's':
            brick_store_release(&stop, 0);
            brick_store_relaxed(&theirs, 0);
            order = 's';
            sem_post(&asked);
            while (brick_load_relaxed(&theirs) < 1000)
                ;
            break;
        case 't':
            brick_store_release(&stop, 1);
            sem_wait(&answered);
            did = brick_load_relaxed(&theirs);
            break;
        case 'c':
            check();
            break;
        case 'd':
            brick_defer(mine_name, NULL, 0, NULL, 0, 0, &did);
            break;
        case 'f':
            brick_finalize(NULL);
            break;
        case 'p':
            did = brick_pending();
            break;
        case 'b':
            strcpy(before, brick_segment_name());
            break;
        case 'w':
            did = record_until_moved(mine_name);
            break;
        case 'j':
            held = "published";
            did = record_until_moved(mine_name);
            break;
        case 'n':
            did = record_late("name_text");
            break;
        case 'N':
            did = record_late("path_claimed");
            break;
        default:
            did = ask(letter);
            if (letter == 'x')
                pthread_join(thread, NULL);
        }
        printf("%llu\n", (unsigned long long)did);
        fflush(stdout);
    }
    return 0;
}
