/* The question of a request, apart from its context: the last message of a chat if it is the user's, or a prompt of
 * text. Others may ask the same in other words (caching.md). On the pool's threads. */
#ifndef QUIRE_FRONT_QUESTION_H
#define QUIRE_FRONT_QUESTION_H

#include "base/hash.h"

#include <stddef.h>

struct request_job;

struct question { /* owned by the struct that contains it */
    char *text; /* malloc'd; NULL: no question */
    size_t n;
    struct key256 around; /* digest of the rest of the prompt */
};

/* Fills in j->question, for a job that has been read. Leaves it empty if memory is out. */
void question_take(struct request_job *j);

#endif
