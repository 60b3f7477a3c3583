/* Two threads that record on command; built with a short BRICK_LOOK_TICKS.
 *
 * The program reads commands of one letter from stdin, and answers each with a number when it is done. After an arrow,
 * the table says what the number is. "Until it moves" means: until the name of the segment differs from the name that
 * the program noted last (at b, or before it unlinked the segment).
 *   b  notes the name of the segment
 *   m  the main thread records 100 spans -> 100
 *   M  the main thread begins a span and leaves it open
 *   e  the main thread ends this span
 *   o  the other thread records 100 spans -> 100
 *   s  the other thread begins to record continuously
 *   t  the other thread stops that -> its number of spans
 *   w  the main thread records until it moves -> its number of spans
 *   g  the main thread records given times until it moves -> their number
 *   n  the main thread records a span under a new name. While the name gets its number, the other thread records until it
 *      moves -> the other thread's number of spans
 *   N  the same as n, but while the path gets its number
 *   j  the same as w. While the next segment is published, a third thread records 100 spans under the name of the other
 *      thread, and ends
 *   h  the same as j, but after the first summary was copied into the next segment
 *   k  a third thread records 100 spans under the name of the other thread, and ends
 *   r  the other thread records 100 spans. While it binds its lane to the segment, a fourth thread records until it moves
 *      -> the fourth thread's number of spans
 *   l  the same as k. While the third thread returns its lane, the segment is unlinked, and a fourth thread records until
 *      it moves -> the fourth thread's number of spans
 *   K  the main thread declares a category. Before the category is stored, and once more before it is copied, the segment
 *      is unlinked, and a fourth thread records until it moves -> the fourth thread's number of spans
 *   W  the segment is unlinked, and the main thread records until it moves. While the next segment is published, /dev/shm
 *      is filled. Then the main thread records 100 more spans -> its number of spans until it moved
 *   D  the segment is unlinked. The program dies after the first summary was copied into the next segment
 *   P  the main thread records a span in each of 8,190 layers -> 8190
 *   x  the other thread ends
 *   c  the main thread records three checksums: of a tensor at one site, at a site that is off, and of an invalid tensor
 *   d  the main thread defers work -> the id
 *   f  the main thread finalizes every stream
 *   p  nothing is done -> the number of pending deferred starts
 */
#include "writer/common.h"

#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static sem_t asked, answered;
static char order;
static uint64_t stop, theirs; /* accessed atomically */
static uint32_t mine_name, other_name;
static char before[96];
static const char *held, *held_next; /* the points at which a thread stops while another thread acts */
static uint64_t meanwhile;
/* if set, a fourth thread opens the next segment at the point `held`; otherwise, the other thread does */
static int fourth_reopens;
static int filling, dying; /* what the thread does at the point `held`: it fills /dev/shm, or dies */

static void record(uint32_t brick)
{
    brick_begin(brick, NULL, NULL);
    brick_end(brick, NULL, 0, 0);
}

static void give(uint32_t brick) { brick_record(brick, NULL, 1000, 0, 0); }

static uint64_t until_moved(void (*records)(uint32_t), uint32_t brick)
{
    uint64_t did = 0;
    for (; strcmp(before, brick_segment_name()) == 0; did++)
        records(brick);
    return did;
}

static uint64_t record_until_moved(uint32_t brick) { return until_moved(record, brick); }

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

static void *fourth(void *unused)
{
    meanwhile = record_until_moved(mine_name);
    return unused;
}

static void run(void *(*body)(void *))
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, body, NULL) == 0)
        pthread_join(thread, NULL);
}

/* Fills /dev/shm to the last page. */
static void fill(void)
{
    int fd = shm_open("filler", O_RDWR | O_CREAT, 0600);
    off_t size = 0;
    for (off_t more = 1 << 20; more >= BRICK_PAGE;)
        if (fallocate(fd, 0, size, more) == 0)
            size += more;
        else
            more /= 2;
}

static void at(const char *point)
{
    if (held == NULL || strcmp(point, held) != 0)
        return;
    held = held_next;
    held_next = NULL;
    if (dying) {
        raise(SIGKILL);
    } else if (filling) {
        fill();
    } else if (fourth_reopens) {
        if (strcmp(point, "bind") != 0) {
            strcpy(before, brick_segment_name());
            shm_unlink(before);
        }
        run(fourth);
    } else if (strcmp(point, "published") == 0 || strcmp(point, "moved") == 0) {
        run(third);
    } else {
        ask('n');
    }
}

/* Makes the next thread that reaches this point wait until a fourth thread has opened another segment. */
static void reopen_at(const char *point)
{
    meanwhile = 0;
    fourth_reopens = 1;
    held = point;
}

static uint64_t record_late(const char *where)
{
    fourth_reopens = 0;
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
        case 'k':
            run(third);
            break;
        case 'l':
            reopen_at("leave");
            run(third);
            did = meanwhile;
            break;
        case 'r':
            reopen_at("bind");
            ask('o');
            did = meanwhile;
            break;
        case 'K':
            brick_name("late", 4, NULL);
            reopen_at("name_text");
            held_next = "next";
            brick_name("late", 4, "second");
            did = meanwhile;
            break;
        case 'W':
            held = "published";
            filling = 1;
            strcpy(before, brick_segment_name());
            shm_unlink(before);
            did = record_until_moved(mine_name);
            for (int n = 0; n < 100; n++)
                record(mine_name);
            break;
        case 'P':
            for (; did < 8190; did++) {
                brick_layer_begin((uint32_t)did, NULL);
                record(mine_name);
                brick_layer_end((uint32_t)did, NULL);
            }
            break;
        case 'D':
            held = "moved";
            dying = 1;
            strcpy(before, brick_segment_name());
            shm_unlink(before);
            did = record_until_moved(mine_name);
            break;
        case 'g':
            did = until_moved(give, mine_name);
            break;
        case 'h':
        case 'j':
            fourth_reopens = 0;
            held = letter == 'h' ? "moved" : "published";
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
