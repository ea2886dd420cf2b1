#include "engine/model/draft.h"

#include "base/encoding/json.h"
#include "engine/model/describe.h"
#include "engine/model/weights.h"
#include "files/model_files.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define TOKENIZER "tokenizer.json"
/* The largest at hand, of a vocabulary of 262,144, has 33 MB. */
#define MAX_TOKENIZER_BYTES ((size_t)256 << 20)

/* ---- tokens -------------------------------------------------------------------------------------- */

static int differ(struct quire_error *err, const char *token, json_int_t draft, json_int_t model)
{
    return quire_fail(err, QUIRE_INVALID,
                      "another tokenizer: the token '%.40s' is %" JSON_INTEGER_FORMAT ", and %" JSON_INTEGER_FORMAT
                      " in the model that it drafts for",
                      token, draft, model);
}

struct side { /* borrowed, but for the last */
    json_t *vocabulary, *added;
    json_t *id_of_added; /* {"token": id} */
};

/* Whether only one of them may have the token: one that is added, which a GGUF file counts among its vocabulary, too, or one
 * that fills a vocabulary up to the rows of its matrices. The model that lacks it never says it. */
static bool may_be_lacked(const struct side *has, const char *token, json_int_t id)
{
    char padding[32];
    const json_t *added = json_object_get(has->id_of_added, token);
    snprintf(padding, sizeof padding, "[PAD%" JSON_INTEGER_FORMAT "]", id);
    return (added && json_integer_value(added) == id) || strcmp(token, padding) == 0;
}

static int sizes_differ(size_t draft, size_t model, struct quire_error *err)
{
    return quire_fail(err, QUIRE_INVALID, "another tokenizer: its vocabulary has %zu tokens, the model's has %zu",
                      draft, model);
}

static bool may_lack_the_rest(const struct side *has, const json_t *other)
{
    const char *token;
    json_t *id;
    json_object_foreach(has->vocabulary, token, id)
    {
        if (!json_object_get(other, token) && !may_be_lacked(has, token, json_integer_value(id)))
            return false;
    }
    return true;
}

/* {"token": id}, as most have it. */
static int same_map(const struct side *draft, const struct side *model, struct quire_error *err)
{
    const char *token;
    json_t *id;
    json_object_foreach(draft->vocabulary, token, id)
    {
        const json_t *other = json_object_get(model->vocabulary, token);
        if (other && !json_equal(id, other))
            return differ(err, token, json_integer_value(id), json_integer_value(other));
    }
    if (!may_lack_the_rest(draft, model->vocabulary) || !may_lack_the_rest(model, draft->vocabulary))
        return sizes_differ(json_object_size(draft->vocabulary), json_object_size(model->vocabulary), err);
    return QUIRE_OK;
}

/* [["token", score]], where the place is the id. */
static int same_list(const struct side *draft, const struct side *model, struct quire_error *err)
{
    const size_t n_draft = json_array_size(draft->vocabulary), n_model = json_array_size(model->vocabulary);
    for (size_t i = 0; i < n_draft || i < n_model; i++) {
        const json_t *a = json_array_get(json_array_get(draft->vocabulary, i), 0);
        const json_t *b = json_array_get(json_array_get(model->vocabulary, i), 0);
        if (i < n_draft && i < n_model && (!json_is_string(a) || !json_equal(a, b)))
            return quire_fail(err, QUIRE_INVALID, "another tokenizer: token %zu is '%.40s', and '%.40s' in the model",
                              i, json_is_string(a) ? json_string_value(a) : "",
                              json_is_string(b) ? json_string_value(b) : "");
        const char *lacked = json_string_value(i < n_draft ? a : b);
        if ((i >= n_draft || i >= n_model) &&
            (!lacked || !may_be_lacked(i < n_draft ? draft : model, lacked, (json_int_t)i)))
            return sizes_differ(n_draft, n_model, err);
    }
    return QUIRE_OK;
}

static int same_vocabulary(const struct side *draft, const struct side *model, struct quire_error *err)
{
    if (json_is_object(draft->vocabulary) && json_is_object(model->vocabulary))
        return same_map(draft, model, err);
    if (json_is_array(draft->vocabulary) && json_is_array(model->vocabulary))
        return same_list(draft, model, err);
    return quire_fail(err, QUIRE_INVALID, "another tokenizer: the vocabularies have different kinds (model.vocab)");
}

static int side_of(const json_t *tokenizer, struct side *out, struct quire_error *err)
{
    json_t *entry;
    size_t i;
    *out = (struct side){.vocabulary = json_object_get(json_object_get(tokenizer, "model"), "vocab"),
                         .added = json_object_get(tokenizer, "added_tokens"),
                         .id_of_added = json_object()};
    if (!out->id_of_added)
        return quire_fail(err, QUIRE_NO_MEMORY, TOKENIZER ": out of memory");
    json_array_foreach(out->added, i, entry)
    {
        const char *content = json_string_value(json_object_get(entry, "content"));
        if (content)
            json_object_set(out->id_of_added, content, json_object_get(entry, "id"));
    }
    return QUIRE_OK;
}

/* Whether the two lists agree on every id that both have; a thousand at most, but the lists are of a file. */
static int same_added(const json_t *draft, const json_t *model, struct quire_error *err)
{
    json_t *by_id = json_object(), *entry;
    char key[32];
    size_t i;
    int status = by_id ? QUIRE_OK : quire_fail(err, QUIRE_NO_MEMORY, TOKENIZER ": out of memory");
    json_array_foreach(model, i, entry)
    {
        snprintf(key, sizeof key, "%" JSON_INTEGER_FORMAT, json_integer_value(json_object_get(entry, "id")));
        json_object_set(by_id, key, json_object_get(entry, "content"));
    }
    json_array_foreach(draft, i, entry)
    {
        json_int_t id = json_integer_value(json_object_get(entry, "id"));
        const json_t *content = json_object_get(entry, "content"), *other;
        snprintf(key, sizeof key, "%" JSON_INTEGER_FORMAT, id);
        other = json_object_get(by_id, key);
        if (status == QUIRE_OK && other && !json_equal(content, other))
            status = quire_fail(err, QUIRE_INVALID,
                                "another tokenizer: token %" JSON_INTEGER_FORMAT
                                " is '%.40s', and '%.40s' in the model",
                                id, json_is_string(content) ? json_string_value(content) : "",
                                json_is_string(other) ? json_string_value(other) : "");
    }
    json_decref(by_id);
    return status;
}

int model_same_tokens(const char *draft, size_t n_draft, const char *model, size_t n_model, struct quire_error *err)
{
    json_t *a = NULL, *b = NULL;
    struct side of_draft = {0}, of_model = {0};
    if (n_draft == n_model && memcmp(draft, model, n_draft) == 0) /* as a family's are */
        return QUIRE_OK;
    int status = quire_json_parse_python(draft, n_draft, TOKENIZER, &a, err);
    if (status == QUIRE_OK)
        status = quire_json_parse_python(model, n_model, TOKENIZER " of the model", &b, err);
    if (status == QUIRE_OK)
        status = side_of(a, &of_draft, err);
    if (status == QUIRE_OK)
        status = side_of(b, &of_model, err);
    if (status == QUIRE_OK)
        status = same_vocabulary(&of_draft, &of_model, err);
    if (status == QUIRE_OK)
        status = same_added(of_draft.added, of_model.added, err);
    json_decref(of_draft.id_of_added);
    json_decref(of_model.id_of_added);
    json_decref(a);
    json_decref(b);
    return status;
}

static int check_tokens(const char *draft_dir, const char *model_dir, const struct model_config *draft,
                        const struct model_config *model, struct quire_error *err)
{
    struct buffer a = {0}, b = {0};
    int status = model_file_read(draft_dir, TOKENIZER, MAX_TOKENIZER_BYTES, &a, err);
    if (status == QUIRE_OK)
        status = model_file_read(model_dir, TOKENIZER, MAX_TOKENIZER_BYTES, &b, err);
    if (status == QUIRE_OK)
        status = model_same_tokens(a.data, a.n, b.data, b.n, err);
    else if (status == QUIRE_NOT_FOUND)
        status = draft->vocab_size == model->vocab_size
                     ? QUIRE_OK
                     : quire_fail(
                           err, QUIRE_INVALID,
                           "another vocabulary: %u tokens, the model has %u, and the models have no two " TOKENIZER
                           " to compare",
                           draft->vocab_size, model->vocab_size);
    buffer_free(&a);
    buffer_free(&b);
    return status;
}

/* ---- the model ----------------------------------------------------------------------------------- */

int model_open_draft(const char *draft_dir, const char *model_dir, const struct model_config *model, bool ignore_unused,
                     struct opened_model *out, struct quire_error *err)
{
    struct weights_unused unused;
    struct sampling_defaults ignored; /* a request is sampled as its model says */
    *out = (struct opened_model){.config = NULL};
    int status = model_describe(draft_dir, &out->config, &ignored, err);
    if (status == QUIRE_OK)
        status = check_tokens(draft_dir, model_dir, out->config, model, err);
    if (status == QUIRE_OK)
        status = checkpoint_open(draft_dir, &out->checkpoint, err);
    if (status == QUIRE_OK)
        status = weights_stored_dtype(out->checkpoint, NULL, out->config, &out->facts, err);
    const struct model_desc desc = opened_model_desc(out);
    if (status == QUIRE_OK)
        status = weights_unused(out->checkpoint, &desc, ignore_unused, &unused, err);
    if (status != QUIRE_OK)
        opened_model_close(out);
    return status;
}
