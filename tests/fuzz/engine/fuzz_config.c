/* config.json and, after a NUL byte, generation_config.json or one of the files of vectors. An accepted file keeps
 * the bounds that the rest of the engine relies on. */
#include "../fuzz.h"

#include "engine/model/describe.h"
#include "kernels/args/moe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sizes that every byte count is made of: their products, with 32 bits for each number, must not pass 2^63. */
static void check_block(const struct model_config *d, const struct model_block *block)
{
    const struct model_experts *e = &block->experts;
    if (block->kind == BLOCK_MLP && block->mlp.inner_size == 0)
        abort();
    if (block->kind == BLOCK_ATTENTION && block->attention.rope >= d->n_ropes)
        abort();
    if (block->kind != BLOCK_EXPERTS)
        return;
    if (e->n_used == 0 || e->n_used > e->n_experts || e->n_used > K_MOE_MAX_USED || e->n_experts > K_MOE_MAX_EXPERTS ||
        e->inner_size == 0 || !(e->scale > 0) || !(e->scale < INFINITY))
        abort();
    const double numbers = (double)e->n_experts * e->inner_size * d->hidden_size * 3 * d->n_layers;
    const double shared = (double)e->shared_size * d->hidden_size * 3 * d->n_layers;
    if (numbers * 4 > 0x1p62 || shared * 4 > 0x1p62)
        abort();
}

static void check(const struct model_config *d)
{
    for (uint32_t l = 0; l < d->n_layers; l++)
        for (uint32_t i = 0; i < d->layers[l].n_blocks; i++)
            check_block(d, &d->layers[l].blocks[i]);
    float inv_freq[128];
    const struct model_attention *a = &d->layers[0].blocks[0].attention;
    const struct model_block *second = &d->layers[0].blocks[1];
    const uint32_t inner_size = second->kind == BLOCK_EXPERTS ? second->experts.inner_size : second->mlp.inner_size;
    if (d->n_layers == 0 || d->n_layers > MODEL_MAX_LAYERS || d->tokens.n_eos > MODEL_MAX_EOS || d->vocab_size == 0 ||
        d->vocab_size > 1u << 22 || d->hidden_size == 0 || inner_size == 0 || d->max_position == 0 ||
        d->max_position > 1u << 26)
        abort();
    if (a->k_dim == 0 || a->k_dim % 16 != 0 || a->k_dim > 256 || a->n_kv_heads == 0 ||
        a->n_q_heads % a->n_kv_heads != 0)
        abort();
    if ((uint64_t)(a->n_q_heads + 2 * a->n_kv_heads) * a->k_dim > INT32_MAX || (uint64_t)inner_size * 2 > INT32_MAX)
        abort();
    for (uint32_t i = 0; i < d->tokens.n_eos; i++)
        if (d->tokens.eos[i] >= d->vocab_size)
            abort();
    if (d->tokens.bos < -1 || d->tokens.bos >= d->vocab_size || !(d->ropes[0].attention_factor > 0.0))
        abort();
    model_inv_freq(d->ropes, inv_freq);
    /* LongRoPE divides by factors of at least 0.001; everything else only lowers frequencies. */
    for (uint32_t i = 0; i < d->ropes[0].dim / 2; i++)
        if (d->encoder ? inv_freq[i] != 0.0f : !(inv_freq[i] > 0.0f && inv_freq[i] <= 1001.0f))
            abort();
}

/* Parses the text after config.json as each of the files that define vectors. */
static void check_vector(const char *config, size_t n_config, const char *text, size_t n)
{
    char *file = strndup(text, n);
    for (int i = 0; i < 4 && file; i++) {
        struct model_config *model;
        struct sampling_defaults sampling;
        struct quire_error err;
        const char *at[4] = {NULL, NULL, NULL, NULL};
        at[i] = file;
        if (model_describe_json(config, n_config, NULL, 0, &model, &sampling, &err) != QUIRE_OK)
            break;
        const uint32_t max_position = model->max_position;
        if (model_describe_vector_json(at[0], at[1], at[2], at[3], model, &err) == QUIRE_OK &&
            (model->outputs.kind == OUTPUT_TOKENS || model->outputs.pooling == POOLING_NONE ||
             model->outputs.vector_size == 0 || model->max_position == 0 || model->max_position > max_position))
            abort();
        model_config_free(model);
    }
    free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct model_config *model;
    struct sampling_defaults sampling;
    struct quire_error err;
    const char *config = (const char *)data, *generation = NULL;
    size_t n_config = n, n_generation = 0;
    const char *split = n ? memchr(config, 0, n) : NULL;
    if (split) {
        n_config = (size_t)(split - config);
        generation = split + 1;
        n_generation = n - n_config - 1;
    }
    if (model_describe_json(config, n_config, generation, n_generation, &model, &sampling, &err) == QUIRE_OK)
        check(model);
    model_config_free(model);
    if (generation)
        check_vector(config, n_config, generation, n_generation);
    return 0;
}
