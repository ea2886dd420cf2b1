/* Tensors of a checkpoint that the model does not compute with: weights.h's weights_unused(). */
#include "engine/checkpoint/extras.h"
#include "engine/model/weights.h"
#include "kernels/format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct look {
    const struct checkpoint *checkpoint;
    const struct model_desc *desc;
    bool bare;
};

/* ---- tensors that are used -------------------------------------------------------------------------------- */

/* The tensors that a quantized matrix has instead of "weight", or in addition to it. */
static const char *const parts[] = {"qweight",       "qzeros",       "scales",           "g_idx",
                                    "weight_packed", "weight_scale", "weight_scale_inv", "weight_zero_point",
                                    "weight_shape",  "weight_g_idx", "input_scale",      "input_zero_point"};
#define N_PARTS (sizeof parts / sizeof *parts)

static bool is_quantized(const struct look *l)
{
    return l->desc->facts->quantization.layout != QUANTIZATION_NONE &&
           l->desc->facts->quantization.layout != QUANTIZATION_MADE;
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

/* "...q_proj.weight" of "...q_proj.qweight"; false: the name is no part of a quantized matrix. */
static bool whole_name(const struct look *l, const char *name, char out[MODEL_NAME_BYTES])
{
    static const char *const endings[] = {"_blocks", "_scales"};
    const char *dot = strrchr(name, '.');
    if (!dot || !is_quantized(l) || strlen(name) >= MODEL_NAME_BYTES - sizeof ".weight")
        return false;
    for (size_t i = 0; i < 2 && l->desc->facts->quantization.layout == QUANTIZATION_MXFP4; i++)
        if (ends_with(name, endings[i])) {
            snprintf(out, MODEL_NAME_BYTES, "%.*s", (int)(strlen(name) - strlen(endings[i])), name);
            return true;
        }
    for (size_t i = 0; i < N_PARTS; i++)
        if (strcmp(dot + 1, parts[i]) == 0) {
            snprintf(out, MODEL_NAME_BYTES, "%.*s.weight", (int)(dot - name), name);
            return true;
        }
    return false;
}

/* Whether the checkpoint has a tensor of the model, plain or quantized. */
static bool is_there(const struct look *l, const char *name)
{
    static const char *const instead[] = {".qweight", ".weight_packed", "_blocks"};
    struct checkpoint_tensor t;
    char part[MODEL_NAME_BYTES + 32];
    const char *dot = strrchr(name, '.');
    bool found = checkpoint_find_any(l->checkpoint, name, &t, NULL) != QUIRE_NOT_FOUND;
    const size_t n = strlen(name), n_whole = ends_with(name, ".weight") && dot ? (size_t)(dot - name) : n;
    for (size_t i = 0; !found && is_quantized(l) && i < sizeof instead / sizeof *instead; i++) {
        snprintf(part, sizeof part, "%.*s%s", (int)n_whole, name, instead[i]);
        found = checkpoint_find_any(l->checkpoint, part, &t, NULL) != QUIRE_NOT_FOUND;
    }
    return found;
}

/* QUIRE_NOT_FOUND, naming the first tensor that the checkpoint lacks. A wrong name is better known by what is missing than by
 * what is there in its place. */
static int find_row(const struct look *l, const struct model_tensor *row, uint32_t layer, struct quire_error *err)
{
    char name[MODEL_NAME_BYTES];
    struct checkpoint_tensor t;
    model_tensor_name(l->desc, row, layer, MODEL_ALL_OF, l->bare, name);
    if (row->count != SIZE_ONE && is_there(l, name))
        return QUIRE_OK;
    for (uint32_t i = 0; i < model_whole_size(l->desc, layer, row->count); i++) {
        const bool is_apart = model_apart_name(l->desc, row, layer, i, l->bare, name) && is_there(l, name);
        if (is_apart)
            continue;
        model_tensor_name(l->desc, row, layer, i, l->bare, name);
        if (!is_there(l, name))
            return checkpoint_find_any(l->checkpoint, name, &t, err);
    }
    return QUIRE_OK;
}

static int find_all(const struct look *l, struct quire_error *err)
{
    for (uint32_t layer = 0; layer <= l->desc->config->n_layers; layer++)
        for (const struct model_tensor *row = model_tensors; row < model_tensors + model_n_tensors; row++) {
            const int status = model_has_tensor(l->desc, layer, row) ? find_row(l, row, layer, err) : QUIRE_OK;
            if (status != QUIRE_OK)
                return status;
        }
    return QUIRE_OK;
}

static bool is_used(const struct look *l, const char *name)
{
    char whole[MODEL_NAME_BYTES];
    const bool is_long = l->desc->config->ropes[0].kind == MODEL_ROPE_LONG; /* its factors are in the description */
    if (model_uses_name(l->desc, l->bare, name) || strcmp(name, "rope_freqs.weight") == 0 ||
        (is_long && strncmp(name, "rope_factors_", strlen("rope_factors_")) == 0))
        return true;
    return whole_name(l, name, whole) && model_uses_name(l->desc, l->bare, whole);
}

/* ---- tensors that change nothing -------------------------------------------------------------------------- */

static bool begins_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

/* Parts of the same architecture that another task computes with. */
static const char *other_tasks(const struct look *l, const char *name)
{
    static const char *const prefixes[] = {"bert.", "roberta."};
    if (!l->desc->config->encoder)
        return l->desc->config->outputs.kind != OUTPUT_TOKENS && begins_with(name, "lm_head.") ? "the output head"
                                                                                               : NULL;
    if (begins_with(name, "cls.") || begins_with(name, "lm_head."))
        return "heads of a language model";
    for (size_t i = 0; i < 2; i++)
        if (begins_with(name, prefixes[i]))
            name += strlen(prefixes[i]);
    return begins_with(name, "pooler.") ? "the pooler" : NULL;
}

/* Recognises layers that config.json counts separately. */
static const char *next_layers(const struct look *l, const char *name)
{
    const char *at = strstr(name, "layers.");
    uint32_t layer = 0;
    const bool is_next = l->desc->config->n_next_layers && at && sscanf(at + strlen("layers."), "%9u", &layer) == 1 &&
                         layer >= l->desc->config->n_layers &&
                         layer - l->desc->config->n_layers < l->desc->config->n_next_layers;
    return is_next ? "layers that predict further tokens (MTP)" : NULL;
}

/* GPTQ's tools store a bias for every matrix. One of zeros (either sign) changes nothing. */
static const char *zero_bias(const struct checkpoint_tensor *t)
{
    const char *dot = strrchr(t->name, '.');
    const uint8_t *bytes = t->data;
    if (!dot || strcmp(dot, ".bias") != 0 || !k_format_is_plain(t->format) || strchr("BF", t->dtype[0]) == NULL)
        return NULL;
    const size_t size = k_dtype_bytes(t->format.kind);
    for (uint64_t i = 0; i < t->n_bytes; i++)
        if (i % size == size - 1 ? (bytes[i] & 0x7f) != 0 : bytes[i] != 0)
            return NULL;
    return "biases of zeros";
}

/* A head that is stored beside embeddings that it is tied to. */
static bool is_tied_head(const struct look *l, const char *name)
{
    return l->desc->config->tied_embeddings && !l->desc->config->encoder && strcmp(name, "lm_head.weight") == 0;
}

/* All of what has 16 MiB; of more its ends and 256 pieces between: heads that are trained apart differ everywhere, and a look at
 * a model must not read gigabytes. */
static bool same_bytes(const uint8_t *a, const uint8_t *b, uint64_t n)
{
    const uint64_t whole = (uint64_t)16 << 20, end = (uint64_t)1 << 20, piece = 4096, n_pieces = 256;
    if (n <= whole)
        return memcmp(a, b, n) == 0;
    bool same = memcmp(a, b, end) == 0 && memcmp(a + n - end, b + n - end, end) == 0;
    for (uint64_t i = 0; same && i < n_pieces; i++) {
        const uint64_t at = (n - piece) / n_pieces * i;
        same = memcmp(a + at, b + at, piece) == 0;
    }
    return same;
}

static const char *copy_of_embeddings(const struct look *l, const struct checkpoint_tensor *t)
{
    struct checkpoint_tensor embedding;
    if (!is_tied_head(l, t->name) ||
        checkpoint_find_any(l->checkpoint, l->bare ? "embed_tokens.weight" : "model.embed_tokens.weight", &embedding,
                            NULL) != QUIRE_OK)
        return NULL;
    const bool is_same = embedding.n_bytes == t->n_bytes && strcmp(embedding.dtype, t->dtype) == 0 &&
                         same_bytes(embedding.data, t->data, t->n_bytes);
    return is_same ? "a copy of the embeddings" : NULL;
}

/* Whether a name of a file is the architecture's, or one of llama.cpp's that it kept. */
static bool is_known(const struct look *l, const char *name)
{
    static const char *const of_gguf[] = {"blk.", "enc.", "dec.",       "token_", "position_embd", "output",
                                          "cls",  "rope", "per_layer_", "altup_", "dense_"};
    for (size_t i = 0; checkpoint_is_gguf(l->checkpoint) && i < sizeof of_gguf / sizeof *of_gguf; i++)
        if (begins_with(name, of_gguf[i]))
            return true;
    return model_knows_name(l->desc, name);
}

static const char *known_extra(const struct look *l, const struct checkpoint_tensor *t)
{
    const char *what = checkpoint_extra(t->name);
    if (!what)
        what = other_tasks(l, t->name);
    if (!what)
        what = next_layers(l, t->name);
    if (!what)
        what = copy_of_embeddings(l, t);
    return what ? what : zero_bias(t);
}

/* ---- the whole --------------------------------------------------------------------------------------------- */

static void count(struct weights_unused *out, const char *what, const struct checkpoint_tensor *t)
{
    uint32_t i = 0;
    while (i < out->n && strcmp(out->of[i].what, what) != 0)
        i++;
    if (i == WEIGHTS_MAX_UNUSED)
        return;
    if (i == out->n) {
        out->of[out->n++].what = what;
        snprintf(out->of[i].first, sizeof out->of[i].first, "%s", t->name);
    }
    out->of[i].n++;
    out->of[i].bytes += t->n_bytes;
}

static int refuse(const struct look *l, const struct checkpoint_tensor *t, struct quire_error *err)
{
    const int status = find_all(l, err);
    if (status != QUIRE_OK)
        return status;
    const char *says = checkpoint_is_gguf(l->checkpoint) ? "the file's keys describe" : "config.json describes";
    if (is_tied_head(l, t->name))
        return quire_fail(err, QUIRE_INVALID,
                          "%.100s: tensor '%.150s': differs from the embeddings, but config.json: tie_word_embeddings "
                          "is true; --ignore-unused-tensors computes with the embeddings",
                          t->file, t->name);
    return quire_fail(err, QUIRE_INVALID,
                      "%.100s: tensor '%.150s': is not used by the model that %s (%s, %u layers), so the weights are "
                      "another model's; --ignore-unused-tensors computes without it",
                      t->file, t->name, says, l->desc->config->architecture, l->desc->config->n_layers);
}

int weights_unused(const struct checkpoint *checkpoint, const struct model_desc *desc, bool ignore,
                   struct weights_unused *out, struct quire_error *err)
{
    const struct look l = {checkpoint, desc, weights_are_bare(checkpoint, desc)};
    struct checkpoint_tensor t;
    memset(out, 0, sizeof *out);
    for (size_t i = 0; checkpoint_at(checkpoint, i, &t); i++) {
        if (is_used(&l, t.name))
            continue;
        const char *what = known_extra(&l, &t);
        if (!what && is_known(&l, t.name)) {
            if (!ignore)
                return refuse(&l, &t, err);
            what = WEIGHTS_IGNORED;
        }
        count(out, what ? what : "unknown to this architecture", &t);
    }
    return QUIRE_OK;
}
