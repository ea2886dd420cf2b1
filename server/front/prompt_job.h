/* The text work of one request, on the pool: template → text → token ids, and token ids → text.
 *
 * A job owns all it works on, because a request may be gone before its job is. Filled in and read on the
 * loop's thread; worked on by one thread of the pool in between.
 */
#ifndef QUIRE_FRONT_PROMPT_JOB_H
#define QUIRE_FRONT_PROMPT_JOB_H

#include "base/status.h"
#include "server/front/text_pool.h"
#include "text/quire_text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct prompt_item {
    char *text; /* malloc'd, not NUL-terminated; NULL: none (yet) */
    size_t n_text;
    uint32_t *ids; /* malloc'd; NULL: none (yet) */
    size_t n_ids;
};

struct prompt_job {
    struct text_job job; /* first: the pool's view */
    const struct quire_text *text;
    void (*finished)(void *owner, struct prompt_job *job); /* the job is the owner's again */
    void *owner;

    /* A chat (messages != NULL) is rendered into items[0].text first. JSON texts, malloc'd. */
    char *messages, *tools, *kwargs;
    bool add_generation_prompt, continue_final;

    bool add_special;  /* encoding */
    bool skip_special; /* decoding */
    bool want_text;    /* items that have only ids are decoded */
    bool want_strings; /* token_strings: the bytes of each token of items[0], JSON strings joined by commas */
    size_t n_items;
    struct prompt_item *items;

    int status;              /* QUIRE_OK, or why it failed */
    size_t failed_item;
    bool failed_in_template;
    struct quire_error err;
    char *token_strings;
    size_t n_token_strings;
};

/* NULL: out of memory. */
struct prompt_job *prompt_job_new(const struct quire_text *text, size_t n_items,
                                  void (*finished)(void *owner, struct prompt_job *job),
                                  void *owner);
void prompt_job_free(struct prompt_job *job);

#endif
