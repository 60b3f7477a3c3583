/* names NUMBER READ: a worker publishes the name with this number while the reader copies all names. Prints what the
 * reader returns.
 *
 * One pread may copy the text of a name first and the name's word later. If the name is published in between, the copy
 * has a word that says "ready" and an incomplete text. On arm64, this can happen at any time. In this program, it
 * happens at the READ-th read of the name.
 */
#include "core/segment_copy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES 1024u

static struct brick_name names[NAMES], copy[NAMES];
static uint32_t late;
static int reads, published;

static int read_names(const struct brick_source *source, uint64_t offset, void *to, uint64_t length)
{
    (void)source;
    const uint64_t at = late * sizeof *names;
    memcpy(to, (const uint8_t *)names + offset, length);
    if (offset <= at && at + sizeof *names <= offset + length && --reads == 0) {
        published = 1;
        memcpy(names[late].text, "late", 4);
        names[late].word = BRICK_NAME_READY | 4;
        memcpy((uint8_t *)to + (at - offset), &names[late].word, sizeof names[late].word);
    }
    return 1;
}

int main(int argc, char **argv)
{
    struct brick_reader r;
    if (argc != 3)
        return 2;
    memset(&r, 0, sizeof r);
    r.source.read = read_names;
    late = (uint32_t)atoi(argv[1]);
    reads = atoi(argv[2]);
    for (uint32_t n = 0; n < NAMES; n++)
        if (n != late)
            names[n] = (struct brick_name){.word = BRICK_NAME_READY | 2, .category = n, .text = "ok"};
    if (!brick_reader_names(&r, copy, NAMES))
        return 1;
    for (uint32_t n = 0; n < NAMES; n++)
        if (n != late && (copy[n].word != names[n].word || copy[n].category != n || memcmp(copy[n].text, "ok", 2) != 0))
            return 3;
    if ((copy[late].word & BRICK_NAME_READY) == 0)
        printf("not ready");
    else
        fwrite(copy[late].text, 1, copy[late].word & BRICK_NAME_LENGTH, stdout);
    return published ? 0 : 4;
}
