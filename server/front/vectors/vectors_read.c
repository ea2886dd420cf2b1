/* Reads the bodies of /v1/embeddings, /v1/score and /v1/rerank. */
#include "server/front/vectors/vectors.h"

#include <string.h>

#define MAX_TEXTS 2048 /* as in OpenAI's API */

/* Fields of other servers that would change the numbers. */
static const char *const not_built[] = {
    "input_type",      "prompt_name",          "prompt",     "instruction",        "task",        "late_chunking",
    "embedding_types", "max_tokens_per_query", "softmax",    "max_chunks_per_doc", "rank_fields", "prompt_embeds",
    "task_type",       "overlap_tokens",       "raw_scores",
};

/* Fields that may only request the normal behaviour. */
static bool check_same(const struct quire_doc *body, struct api_error *e)
{
    static const struct {
        const char *name, *values[2], *why;
    } fields[] = {
        {"embed_dtype", {"float32", "float"}, "only \"float32\" is supported"},
        {"output_dtype", {"float32", "float"}, "only \"float\" is supported"},
        {"embedding_type", {"float", "float"}, "only \"float\" is supported"},
        {"endianness", {"little", "native"}, "only \"little\" is supported"},
        {"truncation_direction", {"Right", "right"}, "only \"Right\" is supported"},
        {"truncation_side", {"right", "Right"}, "only \"right\" is supported"},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        struct quire_value value = json_field_get(body, fields[i].name);
        if (value.n && !quire_value_is(value, fields[i].values[0]) && !quire_value_is(value, fields[i].values[1]))
            return api_unsupported(e, fields[i].name, "%s", fields[i].why);
    }
    return true;
}

/* Longer texts are truncated, and scores are between 0 and 1: true requests the normal behaviour. */
static bool check_true(const struct quire_doc *body, struct api_error *e)
{
    static const char *const names[] = {"use_activation", "activation", "truncation", "truncate"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        bool wanted = true;
        if (quire_value_is(json_field_get(body, names[i]), "END")) /* a value of "truncate" in other servers */
            continue;
        if (!json_field_bool(body, names[i], &wanted, e))
            return false;
        if (!wanted)
            return api_unsupported(e, names[i], "false is not supported: leave it out");
    }
    return true;
}

static bool begin(struct request_job *j, const struct quire_doc *body)
{
    struct vectors_ask *ask = &((struct vectors_job *)j)->ask;
    struct api_error *e = &j->error;
    const char *model = NULL, *user = NULL;
    int64_t truncate = 0;
    j->text->add_special = true;
    if (!params_refuse(body, not_built, sizeof not_built / sizeof *not_built, e) || !check_same(body, e) ||
        !check_true(body, e) || !json_field_string(body, "model", &model, e) ||
        !json_field_string(body, "user", &user, e))
        return false;
    j->model = model_name(j->models, j->served, model, e);
    /* -1: to the model's limit, which is the normal behaviour. */
    if (!j->model || !json_field_i64(body, "truncate_prompt_tokens", -1, INT32_MAX, &truncate, e))
        return false;
    ask->max_tokens = truncate > 0 && truncate < j->served->facts->max_model_len ? (uint32_t)truncate
                                                                                 : j->served->facts->max_model_len;
    /* Encodes texts only up to the limit. */
    j->text->truncates = true;
    j->text->truncate_end = true;
    return json_field_bool(body, "add_special_tokens", &j->text->add_special, e);
}

static bool too_many(struct request_job *j, const char *name, size_t n)
{
    return api_bad(&j->error, name, "has %zu texts, and one request may have %d: send fewer at once", n, MAX_TEXTS);
}

static bool take_text(struct request_job *j, struct quire_value value, const char *name, struct request_item *item)
{
    if (!json_is(value, QUIRE_STRING))
        return api_bad(&j->error, name, "must be a string, or an array of strings");
    if (!json_value_text(value, name, &item->text, &item->n_text, &j->error))
        return false;
    return item->n_text > 0 || api_bad(&j->error, name, "has an empty text");
}

/* ---- embeddings ---- */

static bool take_input(struct request_job *j, struct quire_value input, struct request_item *item)
{
    struct quire_value rest = input, first;
    if (!json_is(input, QUIRE_ARRAY))
        return take_text(j, input, "input", item);
    if (!quire_value_next(&rest, NULL, &first))
        return api_bad(&j->error, "input", "has an empty array");
    return json_field_token_ids(input, "input", j->served->facts->vocab_size, &item->ids, &item->n_ids, &j->error);
}

static bool read_inputs(struct request_job *j, struct quire_value input)
{
    struct quire_value rest = input, item = {0};
    bool list = json_is(input, QUIRE_ARRAY);
    if (!list && !json_is(input, QUIRE_STRING))
        return api_bad(&j->error, "input",
                       "must be a string, an array of strings, an array of token ids or an array of such arrays");
    if (list && !quire_value_next(&rest, NULL, &item))
        return api_bad(&j->error, "input", "is empty");
    bool one = !list || json_is(item, QUIRE_NUMBER);
    size_t n = one ? 1 : quire_value_count(input);
    if (n > MAX_TEXTS)
        return too_many(j, "input", n);
    if (!text_task_items(j->text, n, &j->error))
        return false;
    if (one)
        return take_input(j, input, &j->text->items[0]);
    if (json_array_is_mixed(input))
        return api_bad(&j->error, "input", "mixes strings and arrays of token ids: send all as one or the other");
    rest = input;
    for (size_t i = 0; quire_value_next(&rest, NULL, &item); i++)
        if (!take_input(j, item, &j->text->items[i]))
            return false;
    return true;
}

/* The engine follows the model's modules.json; its normalization cannot be undone here. */
static bool read_normalize(struct request_job *j, const struct quire_doc *body, const char *name)
{
    struct vectors_ask *ask = &((struct vectors_job *)j)->ask;
    bool wanted = true;
    if (!json_field_bool(body, name, &wanted, &j->error))
        return false;
    ask->normalize |= json_field_get(body, name).n > 0;
    return wanted ||
           api_unsupported(&j->error, name, "false is not supported: leave it out for the model's own modules.json");
}

bool embeddings_read(struct request_job *j, const struct quire_doc *body)
{
    struct vectors_ask *ask = &((struct vectors_job *)j)->ask;
    struct api_error *e = &j->error;
    const char *format = "float";
    int64_t dimensions = 0;
    struct quire_value input = json_field_get(body, "input");
    j->text->name = "input";
    if (!begin(j, body) || !json_field_string(body, "encoding_format", &format, e) ||
        !json_field_i64(body, "dimensions", 1, INT32_MAX, &dimensions, e) || !read_normalize(j, body, "normalize") ||
        !read_normalize(j, body, "use_activation"))
        return false;
    ask->base64 = strcmp(format, "base64") == 0;
    if (!ask->base64 && strcmp(format, "float") != 0)
        return api_bad(e, "encoding_format", "must be float or base64");
    if (dimensions > j->served->facts->vector_size)
        return api_bad(e, "dimensions", "%lld is more than the model's %u", (long long)dimensions,
                       j->served->facts->vector_size);
    ask->dimensions = dimensions ? (uint32_t)dimensions : j->served->facts->vector_size;
    ask->normalize |= dimensions > 0;
    if (!input.n)
        return api_bad(e, "input", "is missing");
    return read_inputs(j, input);
}

/* ---- pairs ---- */

/* A text, or a list of them; an object has its text in "text", as for rerank's documents. */
static size_t count_texts(struct quire_value value)
{
    return json_is(value, QUIRE_ARRAY) ? quire_value_count(value) : 1;
}

static bool take_one(struct request_job *j, struct quire_value value, const char *name, struct request_item *item)
{
    if (json_is(value, QUIRE_OBJECT))
        value = json_field_member(value, "text");
    return take_text(j, value, name, item);
}

static bool take_texts(struct request_job *j, struct quire_value value, const char *name, struct request_item *items)
{
    struct quire_value rest = value, item;
    if (!json_is(value, QUIRE_ARRAY))
        return take_one(j, value, name, items);
    for (size_t i = 0; quire_value_next(&rest, NULL, &item); i++)
        if (!take_one(j, item, name, &items[i]))
            return false;
    return true;
}

static bool read_pairs(struct request_job *j, const struct quire_doc *body, const char *first, const char *second)
{
    struct vectors_ask *ask = &((struct vectors_job *)j)->ask;
    struct quire_value a = json_field_get(body, first), b = json_field_get(body, second);
    j->text->name = second;
    if (!a.n || !b.n)
        return api_bad(&j->error, a.n ? second : first, "is missing");
    size_t n_a = count_texts(a), n_b = count_texts(b);
    if (n_a == 0 || n_b == 0)
        return api_bad(&j->error, n_a ? second : first, "is empty");
    if (n_a > MAX_TEXTS || n_b > MAX_TEXTS)
        return too_many(j, n_a > MAX_TEXTS ? first : second, n_a > MAX_TEXTS ? n_a : n_b);
    if (n_a != 1 && n_a != n_b)
        return api_bad(&j->error, second, "has %zu texts, and %s has %zu: one, or as many", n_b, first, n_a);
    ask->n_first = n_a;
    return text_task_items(j->text, n_a + n_b, &j->error) && take_texts(j, a, first, j->text->items) &&
           take_texts(j, b, second, j->text->items + n_a);
}

bool score_read(struct request_job *j, const struct quire_doc *body)
{
    static const char *const of_rerank[] = {"max_tokens_per_doc"};
    return params_refuse(body, of_rerank, 1, &j->error) && begin(j, body) && read_pairs(j, body, "text_1", "text_2");
}

bool rerank_read(struct request_job *j, const struct quire_doc *body)
{
    struct vectors_ask *ask = &((struct vectors_job *)j)->ask;
    struct api_error *e = &j->error;
    int64_t top_n = INT32_MAX, most = 0;
    bool with_documents = true;
    struct quire_value query = json_field_get(body, "query");
    if (!begin(j, body) || !json_field_i64(body, "top_n", 0, INT32_MAX, &top_n, e) ||
        !json_field_bool(body, "return_documents", &with_documents, e))
        return false;
    if (!json_field_i64(body, "max_tokens_per_doc", 0, INT32_MAX, &most, e))
        return false;
    ask->max_document_tokens = (uint32_t)most;
    if (query.n && !json_is(query, QUIRE_STRING))
        return api_bad(e, "query", "must be a string");
    ask->top_n = top_n ? (uint32_t)top_n : INT32_MAX; /* vLLM's 0: all */
    j->text->want_text = with_documents;
    return read_pairs(j, body, "query", "documents");
}
