#include "engine/identity/model_identity.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES 256u
#define MAX_HEAD_DIM 256u /* describe.c takes no larger one */

/* If a field that changes answers is missing here, the response cache serves another model's answers. This assertion
 * therefore fails whenever the struct changes. The following fields stay out because no bit depends on them:
 *   dtype_stated, scales_cache, quantization.floats    what a file may say is checked by them, or logged
 *   repacked_bytes, repacked_rows_bytes                       memory
 *   needs_lanes, lanes_matrix, lanes_format            decide the GEMM form, which engine_identity has itself
 *   share, stage                                       ranks change no bit
 *   max_position                                       a limit: a request's max_tokens holds it, and RoPE is resolved
 *   dense_folder                                       the weights in it are in the weights' digest
 *   bos                                                the tokenizer's matter
 *   n_next_layers                                      tensors that are not computed
 *   rope, rope_*                                       but for the frequencies and the factor that result */
_Static_assert(sizeof(struct model_desc) == 16008,
               "struct model_desc has changed: add its new fields to model_identity(), or to the list above");

__attribute__((format(printf, 2, 3))) static void add(struct quire_sha256_state *s, const char *format, ...)
{
    char line[LINE_BYTES];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    quire_sha256_add(s, line, n < (int)sizeof line ? (size_t)n : sizeof line - 1);
}

/* Adds the bits of a number, because two different numbers may print alike. */
static void add_float(struct quire_sha256_state *s, const char *name, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    add(s, "%s=%08x\n", name, bits);
}

static void add_format(struct quire_sha256_state *s, const char *name, struct k_format f)
{
    add(s, "%s=%d %u %u %d %d\n", name, (int)f.kind, (unsigned)f.bits, (unsigned)f.group, (int)f.scale, (int)f.packing);
}

static void add_sizes(struct quire_sha256_state *s, const struct model_desc *d)
{
    add(s, "architecture=%s\n", d->architecture);
    add(s, "vocab=%u\nhidden=%u\nlayers=%u\n", d->vocab_size, d->hidden_size, d->n_layers);
    add(s, "q_heads=%u\nkv_heads=%u\nhead=%u\n", d->n_q_heads, d->n_kv_heads, d->head_dim);
    add(s, "intermediate=%u\ntied=%d\n", d->intermediate_size, d->tied_embeddings);
    add(s, "biases=%d%d%d%d%d\n", d->q_bias, d->k_bias, d->v_bias, d->o_bias, d->mlp_bias);
    add_float(s, "eps", d->rms_eps);
    add(s, "final_norm=%d\n", (int)d->final_norm);
}

static void add_layers(struct quire_sha256_state *s, const struct model_desc *d)
{
    for (uint32_t l = 0; l < d->n_layers; l++) {
        const struct model_layer *layer = &d->layers[l];
        for (uint32_t i = 0; i < layer->n_blocks; i++) {
            const struct model_block *b = &layer->blocks[i];
            add(s, "block=%u %d %d %d %d %u %d %d\n", l, (int)b->kind, (int)b->norm, (int)b->place, (int)b->mask,
                b->mask == MASK_WINDOW ? b->window : 0, (int)b->head_norm, (int)b->activation);
        }
    }
}

static void add_rope(struct quire_sha256_state *s, const struct model_desc *d)
{
    float inv_freq[MAX_HEAD_DIM / 2];
    const uint32_t n = d->head_dim <= MAX_HEAD_DIM ? d->head_dim / 2 : 0;
    if (n > 0)
        model_inv_freq(d, inv_freq);
    for (uint32_t i = 0; i < n; i++)
        add_float(s, "inv_freq", inv_freq[i]);
    add_float(s, "rope_scale", (float)d->rope_attention_factor);
}

static void add_weights(struct quire_sha256_state *s, const struct model_desc *d)
{
    const struct quantization *q = &d->quantization;
    add(s, "dtype=%d\nint8_activations=%d\n", (int)d->dtype, d->int8_activations);
    add_format(s, "weight_format", d->weight_format);
    add(s, "quantization=%s %s\n", q->method ? q->method : "", q->made ? q->made->identity : "");
    add(s, "layout=%d %d %u %u %u %d\n", (int)q->layout, (int)q->inputs, q->bits, q->group, q->block_rows, q->is_float);
    add(s, "zeros=%d %d\nin_order=%d\n", q->symmetric, q->zero_is_less, q->in_order);
}

/* Fields of encoders and of other models that return vectors. */
static void add_vectors(struct quire_sha256_state *s, const struct model_desc *d)
{
    add(s, "encoder=%d %u %u %u %d\n", d->encoder, d->n_positions, d->first_position, d->n_segments, d->roberta);
    add(s, "pooling=%d\nnormalize=%d\nlabels=%u\nvector=%u\n", (int)d->pooling, d->normalize, d->n_labels,
        d->vector_size);
    add(s, "dense=%u %d %d %d\n", d->dense_size, d->dense_bias, d->dense_tanh, (int)d->dense_dtype);
}

static int compare_ids(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* Adds the tokens that end an answer. Their order has no effect. */
static void add_ends(struct quire_sha256_state *s, const struct model_desc *d)
{
    uint32_t ids[MODEL_MAX_EOS];
    const uint32_t n = d->n_eos < MODEL_MAX_EOS ? d->n_eos : MODEL_MAX_EOS;
    memcpy(ids, d->eos, n * sizeof *ids);
    qsort(ids, n, sizeof *ids, compare_ids);
    for (uint32_t i = 0; i < n; i++)
        if (i == 0 || ids[i] != ids[i - 1])
            add(s, "end=%u\n", ids[i]);
}

struct key256 model_identity(const struct model_desc *desc)
{
    struct quire_sha256_state s;
    quire_sha256_begin(&s);
    add(&s, "quire model 1\n");
    add_sizes(&s, desc);
    add_layers(&s, desc);
    add_rope(&s, desc);
    add_weights(&s, desc);
    add_vectors(&s, desc);
    add_ends(&s, desc);
    return quire_sha256_now(&s);
}
