#include "tools/eval/needle.h"

#include <stdlib.h>
#include <string.h>

#define MORE_TOKENS 8u /* that the model may say before or behind the answer */

/* Encodes the text of an option between two others. The errors name the option. */
static int encode(const struct quire_text *text, const char *option, const char *before, const char *given,
                  size_t n_given, const char *behind, uint32_t **ids, size_t *n, struct quire_error *err)
{
    const size_t n_before = strlen(before), n_behind = strlen(behind);
    char *all = malloc(n_before + n_given + n_behind + 1);
    if (!all)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    memcpy(all, before, n_before);
    memcpy(all + n_before, given, n_given);
    memcpy(all + n_before + n_given, behind, n_behind);
    const int status = quire_text_encode(text, all, n_before + n_given + n_behind, false, ids, n, err);
    free(all);
    if (status != QUIRE_OK)
        quire_error_prefix(err, "%s", option);
    return status;
}

int needle_make(const struct quire_text *text, const struct needle_texts *t, struct needle *out,
                struct quire_error *err)
{
    uint32_t *answer = NULL;
    *out = (struct needle){.answer = t->answer};
    if (t->n_filler == 0 || t->needle[0] == '\0')
        return quire_fail(err, QUIRE_INVALID, "%s: is empty", t->n_filler ? "--needle" : "--filler");
    int status = quire_text_encode(text, "", 0, true, &out->begin, &out->n_begin, err);
    if (status == QUIRE_OK)
        status = encode(text, "--filler", "", t->filler, t->n_filler, "\n", &out->filler, &out->n_filler, err);
    if (status == QUIRE_OK)
        status = encode(text, "--needle", "\n", t->needle, strlen(t->needle), "\n", &out->needle, &out->n_needle, err);
    if (status == QUIRE_OK)
        status = encode(text, "--question", "\n", t->question, strlen(t->question), "", &out->question,
                        &out->n_question, err);
    if (status == QUIRE_OK)
        status = encode(text, "--answer", "", t->answer, strlen(t->answer), "", &answer, &out->n_answer, err);
    free(answer);
    if (status == QUIRE_OK && (out->n_filler == 0 || out->n_answer == 0))
        status = quire_fail(err, QUIRE_INVALID, "--filler, --answer: the model's tokenizer makes no token of %s",
                            out->n_filler ? "the answer" : "the filler");
    if (status != QUIRE_OK)
        needle_free(out);
    return status;
}

void needle_free(struct needle *n)
{
    free(n->begin);
    free(n->filler);
    free(n->needle);
    free(n->question);
    *n = (struct needle){.begin = NULL};
}

static void put(uint32_t *ids, size_t *n, const uint32_t *from, size_t n_from)
{
    if (n_from > 0)
        memcpy(ids + *n, from, n_from * sizeof *ids);
    *n += n_from;
}

int needle_ask(struct eval_session *s, const struct needle *n, uint32_t length, double depth, bool *found,
               struct quire_error *err)
{
    const size_t fixed = n->n_begin + n->n_needle + n->n_question;
    const uint32_t most = (uint32_t)n->n_answer + MORE_TOKENS;
    struct eval_answer answer;
    char *said = NULL;
    size_t n_said, at = 0;
    if (fixed > length)
        return quire_fail(err, QUIRE_INVALID,
                          "--lengths: %u tokens do not hold the needle and the question, which have %zu", length,
                          fixed);
    uint32_t *ids = malloc((length + (size_t)most) * sizeof *ids);
    if (!ids)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    const size_t n_filler = length - fixed, before = (size_t)((double)n_filler * depth + 0.5);
    put(ids, &at, n->begin, n->n_begin);
    for (size_t i = 0; i < before; i++)
        ids[at++] = n->filler[i % n->n_filler];
    put(ids, &at, n->needle, n->n_needle);
    for (size_t i = before; i < n_filler; i++)
        ids[at++] = n->filler[i % n->n_filler];
    put(ids, &at, n->question, n->n_question);
    int status = eval_generate(s, ids, length, most, ids + length, &answer, err);
    if (status == QUIRE_OK)
        status = quire_text_decode(eval_text(s), ids + length, answer.n, true, &said, &n_said, err);
    *found = status == QUIRE_OK && strstr(said, n->answer) != NULL;
    free(said);
    free(ids);
    return status;
}
