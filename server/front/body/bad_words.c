#include "server/front/body/bad_words.h"

#include "request/spec.h"
#include "server/front/body/json_field.h"

#include <stdlib.h>
#include <string.h>

#define FIELD "bad_words"

/* A word is encoded in one call, which cannot be cancelled: 15 MB delayed a drain by 38 s. The limit equals that of a
 * stop string. */
#define WORD_MAX_BYTES 512

bool bad_words_check(struct quire_value words, struct api_error *e)
{
    struct quire_value rest = words, word;
    if (!json_is(words, QUIRE_ARRAY))
        return api_bad(e, FIELD, "must be an array of strings");
    for (size_t i = 0; quire_value_next(&rest, NULL, &word); i++) {
        /* A word takes at least two numbers. */
        if (i == REQUEST_MAX_BAD_WORDS / 2)
            return api_bad(e, FIELD, "at most %u words", REQUEST_MAX_BAD_WORDS / 2);
        if (!json_is(word, QUIRE_STRING) || word.n == 2)
            return api_bad(e, FIELD, "item %zu must be a non-empty string", i);
    }
    return true;
}

struct list {
    uint32_t *numbers;
    uint32_t n;
};

static bool add(struct list *list, struct quire_value word, const uint32_t *ids, size_t n_ids, struct api_error *e)
{
    if (n_ids >= REQUEST_MAX_BAD_WORDS - list->n)
        return api_bad(e, FIELD, "%.*s is too much: at most %u tokens in all, each word counted one longer",
                       JSON_SHOWN(word), REQUEST_MAX_BAD_WORDS);
    list->numbers[list->n++] = (uint32_t)n_ids;
    memcpy(list->numbers + list->n, ids, n_ids * sizeof *ids);
    list->n += (uint32_t)n_ids;
    return true;
}

static bool below(struct quire_value word, const uint32_t *ids, size_t n, uint32_t vocab_size, struct api_error *e)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= vocab_size)
            return api_bad(e, FIELD, "%.*s has token %u, and the model's vocabulary has %u", JSON_SHOWN(word), ids[i],
                           vocab_size);
    return true;
}

static bool encode(const struct quire_text *text, const char *bytes, size_t n, uint32_t **ids, size_t *n_ids,
                   struct api_error *e)
{
    int status = quire_text_encode(text, bytes, n, false, ids, n_ids, &e->why);
    return status == QUIRE_OK || api_fail_status(e, status, FIELD);
}

/* padded: the text of `word` after a space. */
static bool add_word(struct list *list, const struct quire_text *text, struct quire_value word, const char *padded,
                     size_t n_padded, uint32_t vocab_size, struct api_error *e)
{
    uint32_t *plain = NULL, *spaced = NULL;
    size_t n_plain = 0, n_spaced = 0;
    bool ok = encode(text, padded + 1, n_padded - 1, &plain, &n_plain, e) &&
              encode(text, padded, n_padded, &spaced, &n_spaced, e);
    if (ok && n_plain == 0)
        ok = api_bad(e, FIELD, "a word must have at least one token; %.*s has none", JSON_SHOWN(word));
    ok = ok && below(word, plain, n_plain, vocab_size, e) && below(word, spaced, n_spaced, vocab_size, e) &&
         add(list, word, plain, n_plain, e);
    if (ok && n_spaced > 0 && (n_spaced != n_plain || memcmp(spaced, plain, n_plain * sizeof *plain) != 0))
        ok = add(list, word, spaced, n_spaced, e);
    free(plain);
    free(spaced);
    return ok;
}

/* Adds the word as written, and after a space. */
static bool add_string(struct list *list, const struct quire_text *text, struct quire_value word, uint32_t vocab_size,
                       struct api_error *e)
{
    char *bytes;
    size_t n_bytes;
    if (!json_value_text(word, FIELD, &bytes, &n_bytes, e))
        return false;
    if (n_bytes > WORD_MAX_BYTES) {
        free(bytes);
        return api_bad(e, FIELD, "a word may have at most %d bytes; %.*s... has %zu", WORD_MAX_BYTES, JSON_SHOWN(word),
                       n_bytes);
    }
    size_t n_blank = strspn(bytes, " \t\n\v\f\r");
    if (n_blank == n_bytes) {
        free(bytes);
        return api_bad(e, FIELD,
                       "%.*s is blank, and a word is looked for with and without a blank before it: forbid "
                       "its token with logit_bias",
                       JSON_SHOWN(word));
    }
    char *padded = malloc(n_bytes - n_blank + 2);
    bool ok = padded || api_fail(e, 503, FIELD, "out_of_memory", FIELD ": out of memory");
    if (ok) {
        padded[0] = ' ';
        memcpy(padded + 1, bytes + n_blank, n_bytes - n_blank + 1);
        ok = add_word(list, text, word, padded, n_bytes - n_blank + 1, vocab_size, e);
    }
    free(padded);
    free(bytes);
    return ok;
}

bool bad_words_encode(struct quire_value words, const struct quire_text *text, uint32_t vocab_size, uint32_t **out,
                      uint32_t *n, struct api_error *e)
{
    struct list list = {.numbers = malloc(REQUEST_MAX_BAD_WORDS * sizeof *list.numbers)};
    struct quire_value word;
    bool ok = list.numbers || api_fail(e, 503, FIELD, "out_of_memory", FIELD ": out of memory");
    while (ok && quire_value_next(&words, NULL, &word))
        ok = add_string(&list, text, word, vocab_size, e);
    if (!ok) {
        free(list.numbers);
        return false;
    }
    *out = list.numbers;
    *n = list.n;
    return true;
}
