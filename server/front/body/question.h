/* The question of a request, apart from its context: the last message of a chat if it is the user's, or a prompt of
 * text. Others may ask the same in other words (caching.md). On the pool's threads. */
#ifndef QUIRE_FRONT_QUESTION_H
#define QUIRE_FRONT_QUESTION_H

#include "base/hash.h"

#include <stddef.h>

struct params;
struct text_task;

struct question {
    char *text; /* malloc'd */
    size_t n;
    struct key256 around; /* digest of the rest of the prompt */
};

/* Makes the question from the prompt of a task that has not begun. prompt_identity: the model's. Returns NULL if the
 * task has no question, or if memory is short. */
struct question *question_take(const struct text_task *task, const struct params *params,
                               const struct key256 *prompt_identity);
void question_destroy(struct question *q); /* NULL is allowed */

#endif
