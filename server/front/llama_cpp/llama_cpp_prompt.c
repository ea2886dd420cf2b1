#include "server/front/llama_cpp/llama_cpp.h"

#include "server/front/request_readers.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of the texts between token ids: they are encoded at once, while other requests wait. */
#define MAX_MIXED_TEXT ((size_t)64 << 10)

static bool fail_form(struct api_error *e)
{
    return api_bad(e, "prompt", "must be a string, an array of token ids and strings, or an array of such prompts");
}

/* ---- ids and texts in one array ---- */

struct mixed {
    uint32_t *ids;
    size_t n, n_text; /* n_text: bytes of texts so far */
};

static bool append(struct mixed *m, const uint32_t *ids, size_t n, struct api_error *e)
{
    if (n == 0)
        return true;
    uint32_t *grown = realloc(m->ids, (m->n + n) * sizeof *grown);
    if (!grown)
        return api_no_memory(e);
    memcpy(grown + m->n, ids, n * sizeof *ids);
    m->ids = grown;
    m->n += n;
    return true;
}

static bool append_text(struct mixed *m, const struct quire_text *text, struct quire_value string, bool is_first,
                        struct api_error *e)
{
    char *bytes;
    uint32_t *ids = NULL;
    size_t n, n_ids = 0;
    if (!json_value_text(string, "prompt", &bytes, &n, e))
        return false;
    m->n_text += n;
    bool ok = m->n_text <= MAX_MIXED_TEXT ||
              api_bad(e, "prompt", "the strings among token ids may have %zu bytes together", MAX_MIXED_TEXT);
    if (ok) {
        const int status = quire_text_encode(text, bytes, n, is_first, &ids, &n_ids, &e->why);
        ok = (status == QUIRE_OK || api_fail_status(e, status, "prompt")) && append(m, ids, n_ids, e);
    }
    free(ids);
    free(bytes);
    return ok;
}

static bool read_mixed(const struct request_job *j, struct quire_value array, struct mixed *m, struct api_error *e)
{
    struct quire_value rest = array, item;
    uint64_t bits;
    const uint32_t vocab_size = j->served->facts->vocab_size;
    for (size_t i = 0; quire_value_next(&rest, NULL, &item); i++) {
        if (json_is(item, QUIRE_STRING)) {
            if (!append_text(m, j->served->config->text, item, i == 0, e))
                return false;
            continue;
        }
        if (!json_is(item, QUIRE_NUMBER))
            return fail_form(e);
        if (!json_value_whole(item, "prompt", 0, vocab_size > 0 ? vocab_size - 1 : 0, &bits, e))
            return false;
        const uint32_t id = (uint32_t)bits;
        if (!append(m, &id, 1, e))
            return false;
    }
    return true;
}

/* ---- one prompt ---- */

static bool has_kind(struct quire_value array, enum quire_kind kind)
{
    struct quire_value rest = array, item;
    while (quire_value_next(&rest, NULL, &item))
        if (json_is(item, kind))
            return true;
    return false;
}

/* {"prompt_string": "...", "multimodal_data": []} */
static bool read_object(struct request_job *j, struct quire_value object, struct request_item *item)
{
    struct quire_value data = json_field_member(object, "multimodal_data"),
                       text = json_field_member(object, "prompt_string");
    if (data.n && (!json_is(data, QUIRE_ARRAY) || quire_value_count(data) > 0))
        return api_unsupported(&j->error, "prompt", "multimodal_data is not supported");
    if (!json_is(text, QUIRE_STRING))
        return api_bad(&j->error, "prompt", "prompt_string must be a string");
    return completions_take_prompt(j, text, item);
}

static bool read_one(struct request_job *j, struct quire_value prompt, struct request_item *item)
{
    struct api_error *e = &j->error;
    if (json_is(prompt, QUIRE_OBJECT))
        return read_object(j, prompt, item);
    if (json_is(prompt, QUIRE_STRING))
        return completions_take_prompt(j, prompt, item);
    if (!json_is(prompt, QUIRE_ARRAY))
        return fail_form(e);
    if (!has_kind(prompt, QUIRE_STRING))
        return completions_take_prompt(j, prompt, item);
    struct mixed m = {0};
    if (!read_mixed(j, prompt, &m, e)) {
        free(m.ids);
        return false;
    }
    item->ids = m.ids;
    item->n_ids = m.n;
    return m.n > 0 || api_bad(e, "prompt", "is empty");
}

/* ---- BOS ---- */

/* The text of the token that the tokenizer puts before a text; NULL without one. */
static bool find_bos(const struct quire_text *text, uint8_t **out, size_t *n, struct api_error *e)
{
    uint32_t *ids = NULL;
    size_t n_ids = 0;
    *out = NULL;
    int status = quire_text_encode(text, "", 0, true, &ids, &n_ids, &e->why);
    if (status == QUIRE_OK && n_ids > 0)
        status = quire_text_token_bytes(text, ids[0], out, n, &e->why);
    free(ids);
    return status == QUIRE_OK || api_fail_status(e, status, "prompt");
}

/* A prompt from /apply-template may begin with BOS, and gets no second one. */
static bool choose_special(struct request_job *j)
{
    struct text_task *t = j->text;
    uint8_t *bos;
    size_t n = 0;
    bool first = false, is_first = true, ok = true;
    if (!find_bos(j->served->config->text, &bos, &n, &j->error))
        return false;
    for (size_t i = 0; ok && bos && i < t->n_items; i++) {
        const struct request_item *item = &t->items[i];
        if (!item->text)
            continue;
        const bool begins = n > 0 && item->n_text >= n && memcmp(item->text, bos, n) == 0;
        ok = is_first || begins == first ||
             api_bad(&j->error, "prompt", "some prompts begin with BOS and others do not: send prompt %zu alone", i);
        first = begins;
        is_first = false;
    }
    free(bos);
    t->add_special = !first;
    return ok;
}

bool llama_cpp_read_prompt(struct generation_job *g, const struct quire_doc *body)
{
    struct request_job *j = &g->job;
    struct api_error *e = &j->error;
    struct quire_value prompt = json_field_get(body, "prompt"), rest = prompt, item;
    if (!prompt.n)
        return api_bad(e, "prompt", "is missing");
    const bool is_list = json_is(prompt, QUIRE_ARRAY);
    const size_t n_items = is_list ? quire_value_count(prompt) : 1;
    if (n_items == 0)
        return api_bad(e, "prompt", "is empty");
    const bool one = !is_list || has_kind(prompt, QUIRE_NUMBER);
    const size_t n = one ? 1 : n_items;
    const uint32_t n_choices = g->params->spec->n;
    if (n > j->served->config->max_choices / n_choices)
        return api_bad(e, "prompt",
                       "%zu prompts with n_cmpl %u are more than the %u choices of one request "
                       "(--max-choices-per-request)",
                       n, n_choices, j->served->config->max_choices);
    if (n > 1 && g->params->has_prediction)
        return api_bad(e, "prediction", "is of one answer, and there are %zu prompts", n);
    if (!text_task_items(j->text, n, e))
        return false;
    if (one && !read_one(j, prompt, &j->text->items[0]))
        return false;
    for (size_t i = 0; !one && quire_value_next(&rest, NULL, &item); i++)
        if (!read_one(j, item, &j->text->items[i]))
            return false;
    return choose_special(j);
}
