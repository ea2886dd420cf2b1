/* What a request asks, apart from what it is asked with: the last message of a chat where it is the user's, or a prompt that
 * is text. Others may ask the same in other words (caching.md). On the pool's threads. */
#ifndef QUIRE_FRONT_QUESTION_H
#define QUIRE_FRONT_QUESTION_H

#include "base/hash.h"

#include <stddef.h>

struct request_job;

struct question { /* owned by who has it */
    char *text; /* malloc'd; NULL: there is none */
    size_t n;
    struct key256 around; /* digest of all else that the prompt is made of */
};

/* Fills in j->question, of a job that has been read. Without memory there is none. */
void question_take(struct request_job *j);

#endif
