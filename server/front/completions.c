#include "server/front/front_internal.h"

#include <stdlib.h>
#include <string.h>

#define MAX_PROMPTS 2048

/* A text, or a list of ids. */
static bool take_prompt(const struct front *f, const json_t *prompt, struct prompt_item *item,
                        struct api_error *e)
{
    if (json_is_array(prompt)) {
        if (json_array_size(prompt) == 0)
            return api_bad(e, "prompt", "is empty");
        return params_token_ids(prompt, "prompt", f->vocab_size, &item->ids, &item->n_ids, e);
    }
    if (!json_is_string(prompt))
        return api_bad(e, "prompt", "must be a string, an array of strings, an array of token ids or "
                                    "an array of such arrays");
    item->n_text = json_string_length(prompt);
    item->text = malloc(item->n_text + 1);
    if (!item->text)
        return api_fail(e, 503, NULL, "out_of_memory", "out of memory");
    memcpy(item->text, json_string_value(prompt), item->n_text);
    return true;
}

struct prompt_job *completions_job(struct front *f, json_t *body, struct api_error *e)
{
    json_t *prompt = params_get(body, "prompt");
    if (!prompt) {
        api_bad(e, "prompt", "is missing");
        return NULL;
    }
    /* An array that begins with a number is one prompt, of ids; else each item is a prompt. */
    bool one = !json_is_array(prompt) || json_is_number(json_array_get(prompt, 0));
    size_t n = one ? 1 : json_array_size(prompt);
    if (n == 0 || n > MAX_PROMPTS) {
        api_bad(e, "prompt", n == 0 ? "is empty" : "more than %d prompts", MAX_PROMPTS);
        return NULL;
    }
    struct prompt_job *job = prompt_job_new(f->text, n, NULL, NULL);
    if (!job) {
        api_fail(e, 503, NULL, "out_of_memory", "out of memory");
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        if (!take_prompt(f, one ? prompt : json_array_get(prompt, i), &job->items[i], e)) {
            prompt_job_free(job);
            return NULL;
        }
    }
    return job;
}
