#include "app/map_reduce/chunks.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_RATIO 3.0 /* bytes of a token, before any was counted */
#define FULL 0.9 /* a chunk with this part of max_tokens is not made longer */
#define MARGIN 0.97 /* of the length that would fit if all tokens were alike */
#define MAX_TRIES 12
#define NEAR 5 /* a good cut is looked for in the last fifth */

struct cutter {
    const struct chunker *c;
    const char *text;
    size_t n;
    double ratio;
    struct chunk *out;
    size_t n_out, capacity;
};

/* ---- cuts ----------------------------------------------------------------------------------- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* How good a cut before text[i] is: 3 after a paragraph, 2 a sentence or line, 1 a word, 0 none. */
static int quality(const char *text, size_t i)
{
    if (i >= 2 && text[i - 1] == '\n' && text[i - 2] == '\n')
        return 3;
    if (text[i - 1] == '\n' || (i >= 2 && text[i - 1] == ' ' && strchr(".!?", text[i - 2])))
        return 2;
    return is_blank(text[i - 1]) && !is_blank(text[i]);
}

/* The best end for text[at ...] of at most n bytes: the best cut, and the last of those. */
static size_t snap(const struct cutter *k, size_t at, size_t n)
{
    if (at + n >= k->n)
        return k->n - at;
    size_t end = at + n;
    while (end > at && ((unsigned char)k->text[end] & 0xc0) == 0x80)
        end--;
    size_t best = end;
    int best_quality = 0;
    for (size_t i = end; i > at && i > end - n / NEAR && best_quality < 3; i--) {
        const int q = quality(k->text, i);
        if (q > best_quality) {
            best = i;
            best_quality = q;
        }
    }
    return best - at;
}

/* The length of the character at text[at]. */
static size_t one_character(const struct cutter *k, size_t at)
{
    size_t n = 1;
    while (at + n < k->n && ((unsigned char)k->text[at + n] & 0xc0) == 0x80)
        n++;
    return n;
}

/* ---- one chunk ------------------------------------------------------------------------------ */

/* Finds the longest good piece at `at`: a search between lengths that fit and lengths that do not, which begins where the
 * tokens so far say. */
static int find_end(struct cutter *k, size_t at, struct chunk *out, struct quire_error *err)
{
    const uint32_t max = k->c->max_tokens;
    const size_t rest = k->n - at, least = one_character(k, at);
    size_t too_long = rest + 1;
    double guess = max * k->ratio;
    *out = (struct chunk){.at = at};
    for (int i = 0; i < MAX_TRIES; i++) {
        uint32_t n_tokens;
        size_t n = snap(k, at, guess < (double)rest ? (size_t)guess : rest);
        if (n < least)
            n = least;
        if (n >= too_long || n <= out->n_bytes) /* nothing new between the two */
            n = out->n_bytes + (too_long - out->n_bytes) / 2;
        n = snap(k, at, n);
        if (n <= out->n_bytes || n >= too_long)
            break;
        const int status = k->c->count(k->c->context, k->text + at, n, &n_tokens, err);
        if (status != QUIRE_OK)
            return status;
        if (n_tokens <= max) {
            out->n_bytes = n;
            out->n_tokens = n_tokens;
        } else {
            too_long = n;
        }
        if (n == rest ? n_tokens <= max : n_tokens <= max && n_tokens >= FULL * max)
            break;
        guess = (double)n * max / (n_tokens ? n_tokens : 1) * MARGIN;
    }
    if (out->n_bytes)
        return QUIRE_OK;
    return quire_fail(err, QUIRE_INVALID, "a character at byte %zu has more than %u tokens", at, max);
}

/* Where the next chunk begins: at most `overlap` tokens before the end of this one, at a word. */
static int find_begin(struct cutter *k, const struct chunk *last, size_t *begin, struct quire_error *err)
{
    const size_t end = last->at + last->n_bytes;
    double n = k->c->overlap * k->ratio;
    *begin = end;
    for (int i = 0; i < MAX_TRIES && n >= 1; i++, n *= 0.75) {
        uint32_t n_tokens;
        size_t at = (size_t)n < last->n_bytes / 2 ? end - (size_t)n : end - last->n_bytes / 2;
        while (at < end && quality(k->text, at) == 0)
            at++;
        if (at >= end)
            return QUIRE_OK;
        const int status = k->c->count(k->c->context, k->text + at, end - at, &n_tokens, err);
        if (status != QUIRE_OK)
            return status;
        if (n_tokens <= k->c->overlap) {
            *begin = at;
            return QUIRE_OK;
        }
    }
    return QUIRE_OK;
}

static int add(struct cutter *k, const struct chunk *chunk, struct quire_error *err)
{
    if (k->n_out == k->capacity) {
        k->capacity = k->capacity ? 2 * k->capacity : 64;
        struct chunk *more = realloc(k->out, k->capacity * sizeof *more);
        if (!more)
            return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
        k->out = more;
    }
    k->out[k->n_out++] = *chunk;
    if (chunk->n_tokens)
        k->ratio = (double)chunk->n_bytes / chunk->n_tokens;
    return QUIRE_OK;
}

int chunks_cut(const struct chunker *c, const char *text, size_t n_bytes, struct chunk **out, size_t *n,
               struct quire_error *err)
{
    struct cutter k = {.c = c, .text = text, .n = n_bytes, .ratio = FIRST_RATIO};
    int status = QUIRE_OK;
    for (size_t at = 0; at < n_bytes && status == QUIRE_OK;) {
        struct chunk chunk;
        status = find_end(&k, at, &chunk, err);
        if (status == QUIRE_OK)
            status = add(&k, &chunk, err);
        if (status != QUIRE_OK || at + chunk.n_bytes == n_bytes)
            break;
        status = find_begin(&k, &chunk, &at, err);
    }
    *out = k.out;
    *n = k.n_out;
    if (status != QUIRE_OK) {
        free(k.out);
        *out = NULL;
    }
    return status;
}
