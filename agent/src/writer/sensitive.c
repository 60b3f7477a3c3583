/* sensitive.c - decides by a kernel's name whether its values reveal a customer's text: embeddings, logits, tokens.
 *
 * Checksums of such a site are off unless the operator turns them on: half a sketch of an embedding reveals the token.
 */
#include "sensitive.h"

#include <string.h>

static char lower(uint8_t c) { return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : (char)c; }

static int begins_with(const char *text, size_t length, const char *word)
{
    size_t n = 0;
    while (n < length && word[n] != 0 && lower((uint8_t)text[n]) == word[n])
        n++;
    return word[n] == 0;
}

static int ends_part(char c) { return strchr("./:~ ", c) != NULL; } /* strchr also finds the final zero */
static int is_letter(char c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; }

/* Returns whether this part of a name contains rotary, or a word that begins with rope: such a kernel looks up no
 * token. */
static int rotates_positions(const char *text, size_t length)
{
    for (size_t at = 0; at < length && !ends_part(text[at]); at++)
        if (begins_with(text + at, length - at, "rotary")
            || (begins_with(text + at, length - at, "rope") && (at == 0 || !is_letter(text[at - 1]))))
            return 1;
    return 0;
}

const char *brick_sensitive_word(const char *text, size_t length)
{
    static const char *const words[] = {"logit", "lm_head", "lm-head", "lmhead", "token", "input_ids", "multinomial"};
    /* Only at the start of a word, so that downsample does not match. */
    static const char *const begin[] = {"sampl", "wte"};
    static const char embed[] = "embed";
    int rotates = 0;
    for (size_t at = 0; at < length; at++) {
        if (at == 0 || ends_part(text[at - 1]))
            rotates = rotates_positions(text + at, length - at);
        if (!rotates && begins_with(text + at, length - at, embed))
            return embed;
        for (size_t word = 0; word < sizeof begin / sizeof *begin; word++)
            if ((at == 0 || !is_letter(text[at - 1])) && begins_with(text + at, length - at, begin[word]))
                return begin[word];
        for (size_t word = 0; word < sizeof words / sizeof *words; word++)
            if (begins_with(text + at, length - at, words[word]))
                return words[word];
    }
    return NULL;
}

int brick_is_sensitive(const char *kernel, size_t length) { return brick_sensitive_word(kernel, length) != NULL; }
