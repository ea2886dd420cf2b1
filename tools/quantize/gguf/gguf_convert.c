#include "base/encoding/json.h"
#include "engine/model/describe.h"
#include "engine/model/model.h"
#include "engine/model/quantization/quantization.h"
#include "files/model_files.h"
#include "request/spec.h"
#include "tools/quantize/gguf/gguf_source.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILE_BYTES ((size_t)16 << 20)

struct family {
    const char *architecture, *gguf;
    bool is_interleaved; /* rows of q and k */
};
static const struct family families[] = {{"LlamaForCausalLM", "llama", true},
                                         {"MistralForCausalLM", "llama", true},
                                         {"Qwen2ForCausalLM", "qwen2", false},
                                         {"Qwen3ForCausalLM", "qwen3", false}};

/* A tensor's name in transformers and in GGUF, in the order of the output. */
static const char *const names[][2] = {{"input_layernorm.weight", "attn_norm.weight"},
                                       {"self_attn.q_proj.weight", "attn_q.weight"},
                                       {"self_attn.q_proj.bias", "attn_q.bias"},
                                       {"self_attn.k_proj.weight", "attn_k.weight"},
                                       {"self_attn.k_proj.bias", "attn_k.bias"},
                                       {"self_attn.v_proj.weight", "attn_v.weight"},
                                       {"self_attn.v_proj.bias", "attn_v.bias"},
                                       {"self_attn.o_proj.weight", "attn_output.weight"},
                                       {"self_attn.q_norm.weight", "attn_q_norm.weight"},
                                       {"self_attn.k_norm.weight", "attn_k_norm.weight"},
                                       {"post_attention_layernorm.weight", "ffn_norm.weight"},
                                       {"mlp.gate_proj.weight", "ffn_gate.weight"},
                                       {"mlp.up_proj.weight", "ffn_up.weight"},
                                       {"mlp.down_proj.weight", "ffn_down.weight"}};
#define N_NAMES (sizeof names / sizeof *names)

struct conversion {
    const char *model;
    const struct model_config *config;
    const struct family *family;
    const struct model_attention *attention; /* the first layer's; all are the same */
    struct gguf_source *s;
    struct quire_error *err;
};

/* ---- metadata ----------------------------------------------------------------------------------------------------- */

static int put_rope(const struct conversion *c)
{
    struct gguf_pairs *p = &c->s->pairs;
    const struct model_rope *rope = &c->config->ropes[c->attention->rope];
    gguf_pairs_f32(p, "*.rope.freq_base", (float)rope->theta);
    gguf_pairs_u32(p, "*.rope.dimension_count", rope->dim);
    switch (rope->kind) {
    case MODEL_ROPE_DEFAULT:
    case MODEL_ROPE_LLAMA3: return QUIRE_OK;
    case MODEL_ROPE_LINEAR:
        gguf_pairs_text(p, "*.rope.scaling.type", "linear", 6);
        gguf_pairs_f32(p, "*.rope.scaling.factor", (float)rope->factor);
        return QUIRE_OK;
    default:
        return quire_fail(c->err, QUIRE_UNSUPPORTED,
                          "config.json: rope_scaling: this type is not converted to GGUF: convert the model with "
                          "llama.cpp's convert_hf_to_gguf.py, then quantize the GGUF file");
    }
}

static int put_sizes(const struct conversion *c)
{
    struct gguf_pairs *p = &c->s->pairs;
    const struct model_config *m = c->config;
    const struct model_block *mlp = model_layer_block(&m->layers[0], BLOCK_MLP);
    gguf_pairs_text(p, "general.architecture", c->family->gguf, strlen(c->family->gguf));
    gguf_pairs_text(p, "general.type", "model", 5);
    gguf_pairs_u32(p, "*.block_count", m->n_layers);
    gguf_pairs_u32(p, "*.context_length", m->max_position);
    gguf_pairs_u32(p, "*.embedding_length", m->hidden_size);
    gguf_pairs_u32(p, "*.feed_forward_length", mlp->mlp.inner_size);
    gguf_pairs_u32(p, "*.attention.head_count", c->attention->n_q_heads);
    gguf_pairs_u32(p, "*.attention.head_count_kv", c->attention->n_kv_heads);
    gguf_pairs_u32(p, "*.attention.key_length", c->attention->k_dim);
    gguf_pairs_u32(p, "*.attention.value_length", c->attention->v_dim);
    gguf_pairs_f32(p, "*.attention.layer_norm_rms_epsilon", m->rms_eps);
    gguf_pairs_u32(p, "*.vocab_size", m->vocab_size);
    return put_rope(c);
}

static void put_number(struct gguf_pairs *p, const json_t *from, const char *name, const char *key)
{
    const json_t *value = json_object_get(from, name);
    if (json_is_number(value))
        gguf_pairs_f32(p, key, (float)json_number_value(value));
}

static int put_generation(const struct conversion *c)
{
    struct gguf_pairs *p = &c->s->pairs;
    const struct model_tokens *tokens = &c->config->tokens;
    struct buffer text = {0};
    json_t *generation = NULL;
    int status = model_file_read(c->model, "generation_config.json", MAX_FILE_BYTES, &text, c->err);
    if (status == QUIRE_OK)
        status = quire_json_parse_python(text.data, text.n, "generation_config.json", &generation, c->err);
    buffer_free(&text);
    if (status != QUIRE_OK && status != QUIRE_NOT_FOUND)
        return status;
    put_number(p, generation, "temperature", "general.sampling.temp");
    put_number(p, generation, "top_p", "general.sampling.top_p");
    put_number(p, generation, "min_p", "general.sampling.min_p");
    put_number(p, generation, "repetition_penalty", "general.sampling.penalty_repeat");
    const json_t *top_k = json_object_get(generation, "top_k");
    if (json_is_integer(top_k) && json_integer_value(top_k) > 0 && json_integer_value(top_k) <= UINT32_MAX)
        gguf_pairs_u32(p, "general.sampling.top_k", (uint32_t)json_integer_value(top_k));
    json_decref(generation);
    if (tokens->bos >= 0)
        gguf_pairs_u32(p, "tokenizer.ggml.bos_token_id", (uint32_t)tokens->bos);
    gguf_pairs_bool(p, "tokenizer.ggml.add_bos_token", false);
    if (tokens->n_eos > 0)
        gguf_pairs_u32(p, "tokenizer.ggml.eos_token_id", tokens->eos[0]);
    if (tokens->n_eos > 1)
        gguf_pairs_u32(p, "tokenizer.ggml.eot_token_id", tokens->eos[1]);
    return QUIRE_OK;
}

/* ---- tensors ------------------------------------------------------------------------------------------------------ */

/* Returns QUIRE_NOT_FOUND if the checkpoint has no such tensor. */
static int add_tensor(const struct conversion *c, const char *name, const char *gguf_name)
{
    struct gguf_source_tensor *to = &c->s->tensors[c->s->n_tensors];
    int status = checkpoint_find(c->s->checkpoint, name, &to->data, c->err);
    if (status != QUIRE_OK)
        return status;
    snprintf(to->name, sizeof to->name, "%s", gguf_name);
    if (c->family->is_interleaved && strstr(name, "self_attn.q_proj"))
        to->n_heads = c->attention->n_q_heads;
    if (c->family->is_interleaved && strstr(name, "self_attn.k_proj"))
        to->n_heads = c->attention->n_kv_heads;
    c->s->n_tensors++;
    return QUIRE_OK;
}

static int add_layer(const struct conversion *c, uint32_t layer)
{
    char name[128], gguf_name[64];
    for (size_t i = 0; i < N_NAMES; i++) {
        snprintf(name, sizeof name, "model.layers.%u.%s", layer, names[i][0]);
        snprintf(gguf_name, sizeof gguf_name, "blk.%u.%s", layer, names[i][1]);
        const int status = add_tensor(c, name, gguf_name);
        if (status != QUIRE_OK && (status != QUIRE_NOT_FOUND || strstr(name, "_proj.weight")))
            return status;
    }
    return QUIRE_OK;
}

/* Llama 3's scaling: what each frequency is divided by. */
static int add_rope_factors(const struct conversion *c)
{
    const struct model_rope *rope = &c->config->ropes[c->attention->rope];
    struct model_rope plain = *rope;
    float frequencies[MODEL_ROPE_MAX_FREQS], plain_frequencies[MODEL_ROPE_MAX_FREQS];
    const uint32_t n = rope->dim / 2;
    struct gguf_source_tensor *to = &c->s->tensors[c->s->n_tensors];
    if (rope->kind != MODEL_ROPE_LLAMA3)
        return QUIRE_OK;
    if (n > MODEL_ROPE_MAX_FREQS || !(to->made = calloc(n, sizeof *to->made)))
        return quire_fail(c->err, QUIRE_NO_MEMORY, "out of memory");
    plain.kind = MODEL_ROPE_DEFAULT;
    model_inv_freq(rope, frequencies);
    model_inv_freq(&plain, plain_frequencies);
    for (uint32_t i = 0; i < n; i++)
        to->made[i] = plain_frequencies[i] / frequencies[i];
    snprintf(to->name, sizeof to->name, "rope_freqs.weight");
    to->data = (struct checkpoint_tensor){.name = to->name,
                                          .file = "config.json",
                                          .dtype = "F32",
                                          .format = K_FORMAT_F32,
                                          .n_dims = 1,
                                          .shape = {n},
                                          .data = to->made,
                                          .n_bytes = n * sizeof *to->made};
    c->s->n_tensors++;
    return QUIRE_OK;
}

static int add_tensors(const struct conversion *c)
{
    const uint32_t n_layers = c->config->n_layers;
    c->s->tensors = calloc(n_layers * N_NAMES + 4, sizeof *c->s->tensors);
    if (!c->s->tensors)
        return quire_fail(c->err, QUIRE_NO_MEMORY, "out of memory");
    int status = c->config->tied_embeddings ? QUIRE_OK : add_tensor(c, "lm_head.weight", "output.weight");
    if (status == QUIRE_OK)
        status = add_tensor(c, "model.embed_tokens.weight", "token_embd.weight");
    if (status == QUIRE_OK)
        status = add_rope_factors(c);
    for (uint32_t i = 0; status == QUIRE_OK && i < n_layers; i++)
        status = add_layer(c, i);
    return status == QUIRE_OK ? add_tensor(c, "model.norm.weight", "output_norm.weight") : status;
}

/* ---- the whole ---------------------------------------------------------------------------------------------------- */

static int check(struct conversion *c)
{
    const struct model_config *m = c->config;
    if (m->quantization->layout != QUANTIZATION_NONE)
        return quire_fail(c->err, QUIRE_INVALID, "%.250s: is already quantized (%s): use the original checkpoint",
                          c->model, quantization_name(m->quantization));
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(m->architecture, families[i].architecture) == 0 && !m->multimodal[0])
            c->family = &families[i];
    if (!c->family)
        return quire_fail(c->err, QUIRE_UNSUPPORTED,
                          "config.json: architectures: %s is not converted to GGUF (Llama, Mistral, Qwen2 and Qwen3 "
                          "are): convert the model with llama.cpp's convert_hf_to_gguf.py, then quantize the GGUF file",
                          m->architecture);
    for (uint32_t i = 0; i < m->n_layers; i++)
        if (model_layer_block(&m->layers[i], BLOCK_ATTENTION)->attention.mask != MASK_CAUSAL)
            return quire_fail(c->err, QUIRE_UNSUPPORTED,
                              "config.json: layers with a sliding window are not converted to GGUF");
    c->attention = &model_layer_block(&m->layers[0], BLOCK_ATTENTION)->attention;
    c->s->pairs.arch = c->family->gguf;
    return QUIRE_OK;
}

int gguf_source_convert(const char *model, struct gguf_source *s, struct quire_error *err)
{
    struct model_config *config;
    struct sampling_defaults sampling;
    int status = model_describe(model, &config, &sampling, err);
    if (status != QUIRE_OK)
        return status;
    struct conversion c = {.model = model, .config = config, .s = s, .err = err};
    status = check(&c);
    if (status == QUIRE_OK)
        status = put_sizes(&c);
    if (status == QUIRE_OK)
        status = put_generation(&c);
    if (status == QUIRE_OK)
        status = gguf_source_vocabulary(model, config->vocab_size, &s->pairs, err);
    if (status == QUIRE_OK)
        status = add_tensors(&c);
    model_config_free(config);
    return status;
}
