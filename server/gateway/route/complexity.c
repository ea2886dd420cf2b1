#include "server/gateway/route/route.h"

#include "base/encoding/utf8.h"

#include <string.h>

#define SIMPLE_BELOW_WORDS 50
#define COMPLEX_ABOVE_WORDS 200

/* In the order in which the rule was published: the first that is found is reported. */
static const char *const simple[] = {"what is", "define", "list", "name", "yes or no", "true or false"};
static const char *const complex_ones[] = {"analyze",           "compare",      "evaluate",     "synthesize",
                                           "explain in detail", "step by step", "comprehensive"};

/* A character of n bytes; an invalid byte is one character that is no white space. */
static uint32_t character(const uint8_t *p, size_t n)
{
    if (n <= 1)
        return n == 1 ? p[0] : 0xFFFD;
    uint32_t c = p[0] & (0xFFu >> (n + 1));
    for (size_t i = 1; i < n; i++)
        c = c << 6 | (p[i] & 0x3F);
    return c;
}

/* Python's str.split() splits at these characters. */
static bool is_space(uint32_t c)
{
    return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

static uint32_t count_words(const uint8_t *p, size_t n_bytes)
{
    uint32_t n_words = 0;
    bool in_word = false;
    for (size_t i = 0; i < n_bytes;) {
        const size_t n = p[i] < 0x80 ? 1 : utf8_character(p + i, n_bytes - i);
        const bool space = is_space(character(p + i, n));
        n_words += !space && !in_word && n_words < UINT32_MAX;
        in_word = !space;
        i += n ? n : 1;
    }
    return n_words;
}

static uint8_t lower(uint8_t c)
{
    return c >= 'A' && c <= 'Z' ? c + 32 : c;
}

static bool begins_with(const uint8_t *p, size_t n_bytes, const char *indicator)
{
    for (size_t i = 0; indicator[i]; i++)
        if (i == n_bytes || lower(p[i]) != (uint8_t)indicator[i])
            return false;
    return true;
}

/* The first of at most 8 indicators that the text has anywhere. One pass that tests an indicator at its own letter only:
 * a prompt may have 16 MiB. */
static const char *find(const uint8_t *p, size_t n_bytes, const char *const *indicators, size_t n)
{
    uint8_t begin[256] = {0}; /* bit i: indicators[i] begins with this byte */
    size_t best = n;
    for (size_t i = 0; i < n; i++) {
        begin[(uint8_t)indicators[i][0]] |= (uint8_t)(1u << i);
        begin[(uint8_t)(indicators[i][0] - 'a' + 'A')] |= (uint8_t)(1u << i);
    }
    for (size_t at = 0; at < n_bytes && best > 0; at++) {
        for (unsigned bits = begin[p[at]]; bits; bits &= bits - 1) {
            const size_t i = (size_t)__builtin_ctz(bits);
            if (i < best && begins_with(p + at, n_bytes - at, indicators[i]))
                best = i;
        }
    }
    return best < n ? indicators[best] : NULL;
}

void route_read(const char *prompt, size_t n_bytes, struct route_reading *out)
{
    const uint8_t *p = (const uint8_t *)prompt;
    *out = (struct route_reading){.complexity = ROUTE_MODERATE, .n_words = count_words(p, n_bytes)};
    if (out->n_words < SIMPLE_BELOW_WORDS)
        out->indicator = find(p, n_bytes, simple, sizeof simple / sizeof *simple);
    if (out->indicator) {
        out->complexity = ROUTE_SIMPLE;
        return;
    }
    out->indicator = find(p, n_bytes, complex_ones, sizeof complex_ones / sizeof *complex_ones);
    if (out->indicator || out->n_words > COMPLEX_ABOVE_WORDS)
        out->complexity = ROUTE_COMPLEX;
}
