/* config.json and, after a NUL byte, generation_config.json or one of the files of vectors. An accepted file keeps
 * the bounds that the rest of the engine relies on. */
#include "../fuzz.h"

#include "engine/model/describe.h"

#include <stdlib.h>
#include <string.h>

static void check(const struct model_desc *d)
{
    float inv_freq[128];
    if (d->n_layers == 0 || d->n_layers > MODEL_MAX_LAYERS || d->n_eos > MODEL_MAX_EOS || d->vocab_size == 0 ||
        d->vocab_size > 1u << 22 || d->hidden_size == 0 || d->intermediate_size == 0 || d->max_position == 0 ||
        d->max_position > 1u << 26)
        abort();
    if (d->head_dim == 0 || d->head_dim % 16 != 0 || d->head_dim > 256 || d->n_kv_heads == 0 ||
        d->n_q_heads % d->n_kv_heads != 0)
        abort();
    if ((uint64_t)(d->n_q_heads + 2 * d->n_kv_heads) * d->head_dim > INT32_MAX ||
        (uint64_t)d->intermediate_size * 2 > INT32_MAX)
        abort();
    for (uint32_t i = 0; i < d->n_eos; i++)
        if (d->eos[i] >= d->vocab_size)
            abort();
    if (d->bos < -1 || d->bos >= d->vocab_size || !(d->rope_attention_factor > 0.0))
        abort();
    model_inv_freq(d, inv_freq);
    for (uint32_t i = 0; i < d->head_dim / 2; i++)
        if (d->encoder ? inv_freq[i] != 0.0f : !(inv_freq[i] > 0.0f && inv_freq[i] <= 1.0f))
            abort();
}

/* Parses the text after config.json as each of the files that define vectors. */
static void check_vector(const struct model_desc *described, const char *text, size_t n)
{
    char *file = strndup(text, n);
    for (int i = 0; i < 4 && file; i++) {
        struct model_desc desc = *described;
        struct quire_error err;
        const char *at[4] = {NULL, NULL, NULL, NULL};
        at[i] = file;
        if (model_describe_vector_json(at[0], at[1], at[2], at[3], &desc, &err) != QUIRE_OK)
            continue;
        if (desc.pooling == POOLING_NONE || desc.vector_size == 0 || desc.max_position == 0 ||
            desc.max_position > described->max_position)
            abort();
    }
    free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct model_desc desc;
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
    if (model_describe_json(config, n_config, generation, n_generation, &desc, &sampling, &err) == QUIRE_OK)
        check(&desc);
    if (model_describe_json(config, n_config, NULL, 0, &desc, &sampling, &err) == QUIRE_OK && generation)
        check_vector(&desc, generation, n_generation);
    return 0;
}
