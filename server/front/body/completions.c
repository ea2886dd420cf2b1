#include "server/front/front_internal.h"

#include <stdlib.h>
#include <string.h>

bool completions_take_prompt(struct request_job *j, const json_t *prompt, struct request_item *item)
{
    struct api_error *e = &j->error;
    if (json_is_array(prompt)) {
        if (json_array_size(prompt) == 0)
            return api_bad(e, "prompt", "is empty");
        return json_field_token_ids(prompt, "prompt", j->vocab_size, &item->ids, &item->n_ids, e);
    }
    if (!json_is_string(prompt))
        return api_bad(e, "prompt",
                       "must be a string, an array of strings, an array of token "
                       "ids or an array of such arrays");
    item->n_text = json_string_length(prompt);
    item->text = malloc(item->n_text + 1);
    if (!item->text)
        return request_job_no_memory(j);
    memcpy(item->text, json_string_value(prompt), item->n_text);
    return true;
}

bool completions_read(struct request_job *j, const json_t *body)
{
    struct api_error *e = &j->error;
    const json_t *prompt = json_field_get(body, "prompt");
    if (!request_job_params(j, body, false))
        return false;
    if (!prompt)
        return api_bad(e, "prompt", "is missing");
    /* An array that begins with a number is one prompt, of ids; else each item is a prompt. */
    bool one = !json_is_array(prompt) || json_is_number(json_array_get(prompt, 0));
    size_t n = one ? 1 : json_array_size(prompt);
    if (n == 0)
        return api_bad(e, "prompt", "is empty");
    if (n > j->front->max_choices / j->params.spec.n)
        return api_bad(e, "prompt",
                       "%zu prompts with n %u are %llu choices, and one request may have %u "
                       "(--max-choices-per-request): send fewer at once",
                       n, j->params.spec.n, (unsigned long long)n * j->params.spec.n, j->front->max_choices);
    if (!request_job_items(j, n))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!completions_take_prompt(j, one ? prompt : json_array_get(prompt, i), &j->items[i]))
            return false;
    return true;
}
