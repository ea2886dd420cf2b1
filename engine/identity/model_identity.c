#include "engine/identity/model_identity.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES 256u
#define MAX_HEAD_DIM 256u /* describe.c takes no larger one */

/* If a field that changes answers is missing here, the response cache serves another model's answers. These assertions
 * therefore fail whenever a struct changes. The following fields stay out because no bit depends on them:
 *   config: dtype, dtype_stated, quantization          the facts have what is stored, and what is done about it
 *   config: max_position                               a limit: a request's max_tokens holds it, and RoPE is resolved
 *   config: n_next_layers                              tensors that are not computed
 *   config: multimodal                                 what lies beside the text part, and is not computed
 *   config: fused                                      how the files store matrices, which the weights' digest covers
 *   config: outputs.kind                               pooling and labels say it
 *   config: outputs.dense.folder                       the weights in it are in the weights' digest
 *   config: tokens.bos                                 the tokenizer's matter
 *   ropes                                              but for the frequencies and the factor that result
 *   experts: names                                     the names of tensors
 *   facts: needs_lanes, lanes_matrix, lanes_format     decide the GEMM form, which engine_identity has itself
 *   facts: copied_bytes                                where weights lie
 *   facts: quantization.scales_cache, .floats          what a file may say is checked by them, or logged
 *   shard                                              ranks change no bit */
#define CHANGED " has changed: add its new fields to model_identity(), or to the list above"
_Static_assert(sizeof(struct model_config) == 408, "struct model_config" CHANGED);
_Static_assert(sizeof(struct model_encoder) == 16, "struct model_encoder" CHANGED);
_Static_assert(sizeof(struct model_attention) == 52, "struct model_attention" CHANGED);
_Static_assert(sizeof(struct model_mlp) == 12, "struct model_mlp" CHANGED);
_Static_assert(sizeof(struct model_experts) == 44, "struct model_experts" CHANGED);
_Static_assert(sizeof(struct model_block) == 64, "struct model_block" CHANGED);
_Static_assert(sizeof(struct model_rope) == 1120, "struct model_rope" CHANGED);
_Static_assert(sizeof(struct checkpoint_facts) == 216, "struct checkpoint_facts" CHANGED);

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

static const struct model_block *block_of(const struct model_config *c, uint32_t layer, enum model_block_kind kind)
{
    return model_layer_block(&c->layers[layer], kind);
}

static const struct model_attention no_attention;
static const struct model_mlp no_mlp;

/* The sizes of the first layer, which most models have in all of them. add_layers() adds those that differ. */
static void add_sizes(struct quire_sha256_state *s, const struct model_config *c)
{
    const struct model_block *attention = block_of(c, 0, BLOCK_ATTENTION), *mlp = block_of(c, 0, BLOCK_MLP);
    const struct model_attention *a = attention ? &attention->attention : &no_attention;
    const struct model_mlp *m = mlp ? &mlp->mlp : &no_mlp;
    add(s, "architecture=%s\n", c->architecture);
    add(s, "vocab=%u\nhidden=%u\nlayers=%u\n", c->vocab_size, c->hidden_size, c->n_layers);
    add(s, "q_heads=%u\nkv_heads=%u\nhead=%u\n", a->n_q_heads, a->n_kv_heads, a->k_dim);
    add(s, "intermediate=%u\ntied=%d\n", m->inner_size, c->tied_embeddings);
    add(s, "biases=%d%d%d%d%d\n", a->q_bias, a->k_bias, a->v_bias, a->o_bias, m->bias);
    add_float(s, "eps", c->rms_eps);
    add(s, "final_norm=%d\n", (int)c->final_norm);
}

/* Only of engines that stream: their angles are f64 products, in layers with a window of their own too. */
static void add_streaming(struct quire_sha256_state *s, const struct model_config *c)
{
    if (c->streaming.window > 0)
        add(s, "streaming=%u %u\n", c->streaming.n_sinks, c->streaming.window);
}

/* Only models that have any: the identities of the others stay. */
static void add_factors(struct quire_sha256_state *s, const struct model_config *c)
{
    const struct model_factors *f = &c->factors;
    if (!c->norms_add_one && f->embedding == 0 && f->residual == 0 && f->logits == 0 && f->logit_softcap == 0)
        return;
    add(s, "norms_add_one=%d\n", c->norms_add_one);
    add_float(s, "embedding_factor", f->embedding);
    add_float(s, "residual_factor", f->residual);
    add_float(s, "logits_factor", f->logits);
    add_float(s, "logit_softcap", f->logit_softcap);
}

static void add_attention_sizes(struct quire_sha256_state *s, const struct model_attention *a)
{
    add(s, "attention=%u %u %u %u %u %d%d%d%d\n", a->n_q_heads, a->n_kv_heads, a->k_dim, a->v_dim, a->rope, a->q_bias,
        a->k_bias, a->v_bias, a->o_bias);
    add_float(s, "scale", a->scale);
    if (a->sinks)
        add(s, "sinks\n");
    if (a->softcap != 0)
        add_float(s, "softcap", a->softcap);
}

static bool same_attention_sizes(const struct model_attention *a, const struct model_attention *b)
{
    return a->n_q_heads == b->n_q_heads && a->n_kv_heads == b->n_kv_heads && a->k_dim == b->k_dim &&
           a->v_dim == b->v_dim && a->rope == b->rope && a->q_bias == b->q_bias && a->k_bias == b->k_bias &&
           a->v_bias == b->v_bias && a->o_bias == b->o_bias && a->scale == b->scale && a->softcap == b->softcap &&
           a->sinks == b->sinks;
}

static bool is_plain_attention(const struct model_attention *a)
{
    return a->v_dim == a->k_dim && a->rope == 0 && a->softcap == 0 && !a->sinks &&
           a->scale == (float)(1.0 / sqrt((double)a->k_dim));
}

static void add_experts(struct quire_sha256_state *s, const struct model_experts *e)
{
    add(s, "experts=%u %u %u %u %d %d\n", e->n_experts, e->n_used, e->inner_size, e->shared_size, (int)e->router,
        e->normalize);
    add(s, "expert_groups=%u %u\nshared_gate=%d\n", e->n_groups, e->n_groups_used, e->shared_gate);
    add_float(s, "experts_scale", e->scale);
    add_float(s, "experts_limit", e->limit);
}

static void add_block(struct quire_sha256_state *s, const struct model_config *c, uint32_t layer,
                      const struct model_block *b)
{
    const struct model_attention *a = b->kind == BLOCK_ATTENTION ? &b->attention : &no_attention;
    const struct model_mlp *m = b->kind == BLOCK_MLP ? &b->mlp : &no_mlp;
    const struct model_block *first = block_of(c, 0, b->kind);
    add(s, "block=%u %d %d %d %d %u %d %d\n", layer, (int)b->kind, (int)b->norm, (int)b->place, (int)a->mask,
        a->mask == MASK_WINDOW ? a->window : 0, (int)a->head_norm, (int)m->activation);
    if (a->mask == MASK_WINDOW && a->n_sinks > 0)
        add(s, "sink_positions=%u\n", a->n_sinks);
    switch (b->kind) { /* the compiler finds a kind that is missing here */
    case BLOCK_ATTENTION:
        if (!first || !same_attention_sizes(a, &first->attention) || (b == first && !is_plain_attention(a)))
            add_attention_sizes(s, a);
        break;
    case BLOCK_MLP:
        if (!first || m->inner_size != first->mlp.inner_size || m->bias != first->mlp.bias)
            add(s, "mlp=%u %d\n", m->inner_size, m->bias);
        break;
    case BLOCK_EXPERTS: add_experts(s, &b->experts); break;
    }
}

static void add_layers(struct quire_sha256_state *s, const struct model_config *c)
{
    for (uint32_t l = 0; l < c->n_layers; l++)
        for (uint32_t i = 0; i < c->layers[l].n_blocks; i++)
            add_block(s, c, l, &c->layers[l].blocks[i]);
}

static void add_rope(struct quire_sha256_state *s, const struct model_rope *rope)
{
    float inv_freq[MAX_HEAD_DIM / 2];
    const uint32_t n = rope->dim <= MAX_HEAD_DIM ? rope->dim / 2 : 0;
    if (n > 0)
        model_inv_freq(rope, inv_freq);
    for (uint32_t i = 0; i < n; i++)
        add_float(s, "inv_freq", inv_freq[i]);
    add_float(s, "rope_scale", (float)rope->attention_factor);
}

static void add_weights(struct quire_sha256_state *s, const struct checkpoint_facts *f)
{
    const struct quantization *q = &f->quantization;
    add(s, "dtype=%d\nint8_activations=%d\n", (int)f->dtype, f->int8_activations);
    add_format(s, "weight_format", f->weight_format);
    add(s, "quantization=%s %s\n", q->method ? q->method : "", q->made ? q->made->identity : "");
    add(s, "layout=%d %d %u %u %u %d\n", (int)q->layout, (int)q->inputs, q->bits, q->group, q->block_rows, q->is_float);
    add(s, "zeros=%d %d\nin_order=%d\n", q->symmetric, q->zero_is_less, q->in_order);
}

/* Fields of encoders and of other models that return vectors. */
static void add_vectors(struct quire_sha256_state *s, const struct model_desc *desc)
{
    const struct model_encoder e = model_encoder_of(desc->config);
    const struct model_outputs *o = &desc->config->outputs;
    add(s, "encoder=%d %u %u %u %d\n", desc->config->encoder != NULL, e.n_positions, e.first_position, e.n_segments,
        e.roberta);
    add(s, "pooling=%d\nnormalize=%d\nlabels=%u\nvector=%u\n", (int)o->pooling, o->normalize, o->n_labels,
        o->vector_size);
    add(s, "dense=%u %d %d %d\n", o->dense.size, o->dense.bias, o->dense.tanh, (int)desc->facts->dense_dtype);
}

static int compare_ids(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* Adds the tokens that end an answer. Their order has no effect. */
static void add_ends(struct quire_sha256_state *s, const struct model_tokens *d)
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
    add_sizes(&s, desc->config);
    add_factors(&s, desc->config);
    add_streaming(&s, desc->config);
    add_layers(&s, desc->config);
    for (uint32_t i = 0; i < desc->config->n_ropes; i++)
        add_rope(&s, &desc->config->ropes[i]);
    add_weights(&s, desc->facts);
    add_vectors(&s, desc);
    add_ends(&s, &desc->config->tokens);
    return quire_sha256_now(&s);
}
