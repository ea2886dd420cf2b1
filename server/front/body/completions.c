#include "server/front/body/generation_job.h"
#include "server/front/front_internal.h"

#include <stdlib.h>
#include <string.h>

bool completions_take_prompt(struct request_job *j, struct quire_value prompt, struct request_item *item)
{
    struct api_error *e = &j->error;
    struct quire_value rest = prompt, first;
    if (json_is(prompt, QUIRE_ARRAY)) {
        if (!quire_value_next(&rest, NULL, &first))
            return api_bad(e, "prompt", "is empty");
        return json_field_token_ids(prompt, "prompt", j->served->facts->vocab_size, &item->ids, &item->n_ids, e);
    }
    if (!json_is(prompt, QUIRE_STRING))
        return api_bad(e, "prompt",
                       "must be a string, an array of strings, an array of token "
                       "ids or an array of such arrays");
    return json_value_text(prompt, "prompt", &item->text, &item->n_text, e);
}

bool completions_read(struct generation_job *g, const struct quire_doc *body)
{
    struct api_error *e = &g->job.error;
    struct quire_value prompt = json_field_get(body, "prompt"), rest = prompt, item = {0};
    if (!generation_job_params(g, body, false) || !generation_job_prediction(g, body))
        return false;
    if (!prompt.n)
        return api_bad(e, "prompt", "is missing");
    /* An array that begins with a number is one prompt of ids; otherwise each item is a prompt. */
    bool list = json_is(prompt, QUIRE_ARRAY);
    if (list && !quire_value_next(&rest, NULL, &item))
        return api_bad(e, "prompt", "is empty");
    bool one = !list || json_is(item, QUIRE_NUMBER);
    size_t n = one ? 1 : quire_value_count(prompt);
    if (n > g->job.served->config->max_choices / g->params->spec->n)
        return api_bad(e, "prompt",
                       "%zu prompts with n %u are %llu choices, and one request may have %u "
                       "(--max-choices-per-request): send fewer at once",
                       n, g->params->spec->n, (unsigned long long)n * g->params->spec->n,
                       g->job.served->config->max_choices);
    if (n > 1 && g->params->has_prediction)
        return api_bad(e, "prediction", "is of one answer, and there are %zu prompts", n);
    if (!text_task_items(g->job.text, n, &g->job.error))
        return false;
    if (one)
        return completions_take_prompt(&g->job, prompt, &g->job.text->items[0]);
    if (json_array_is_mixed(prompt))
        return api_bad(e, "prompt", "mixes strings and arrays of token ids: send all as one or the other");
    rest = prompt;
    for (size_t i = 0; quire_value_next(&rest, NULL, &item); i++)
        if (!completions_take_prompt(&g->job, item, &g->job.text->items[i]))
            return false;
    return true;
}
