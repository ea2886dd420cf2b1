/* Retrieval: a sentence (the needle) at a depth of a text of filler, and at the end a question that it answers. */
#ifndef QUIRE_TOOLS_EVAL_NEEDLE_H
#define QUIRE_TOOLS_EVAL_NEEDLE_H

#include "tools/eval/session.h"

struct needle_texts {
    const char *filler; /* repeated as often as needed */
    size_t n_filler;
    const char *needle, *question, *answer;
};

/* The texts as tokens. Zeroed it is empty. */
struct needle {
    uint32_t *begin, *filler, *needle, *question; /* begin: what the tokenizer puts before a text */
    size_t n_begin, n_filler, n_needle, n_question, n_answer;
    const char *answer; /* borrowed */
};
int needle_make(const struct quire_text *text, const struct needle_texts *texts, struct needle *out,
                struct quire_error *err);
void needle_free(struct needle *n);

/* Asks once: a prompt of `length` tokens with the needle behind `depth` (0 to 1) of its filler. *found: the answer begins
 * within the first tokens of what the model says. QUIRE_INVALID: the needle and the question alone are longer. */
int needle_ask(struct eval_session *s, const struct needle *n, uint32_t length, double depth, bool *found,
               struct quire_error *err);

#endif
