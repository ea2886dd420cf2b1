#include "engine/model/tensors.h"

#include <stdio.h>
#include <string.h>

/* Parts of one object stand together. */
const struct model_tensor model_tensors[] = {
    {TENSOR_MATRIX, SITE_QKV, "model.layers.*.self_attn.q_proj.weight", SIZE_Q, SIZE_HIDDEN, SHARD_ROWS, ALWAYS},
    {TENSOR_MATRIX, SITE_QKV, "model.layers.*.self_attn.k_proj.weight", SIZE_KV, SIZE_HIDDEN, SHARD_ROWS, ALWAYS},
    {TENSOR_MATRIX, SITE_QKV, "model.layers.*.self_attn.v_proj.weight", SIZE_KV, SIZE_HIDDEN, SHARD_ROWS, ALWAYS},
    {TENSOR_BIAS, SITE_QKV, "model.layers.*.self_attn.q_proj.bias", SIZE_Q, SIZE_ONE, SHARD_ROWS, IF_Q_BIAS},
    {TENSOR_BIAS, SITE_QKV, "model.layers.*.self_attn.k_proj.bias", SIZE_KV, SIZE_ONE, SHARD_ROWS, IF_K_BIAS},
    {TENSOR_BIAS, SITE_QKV, "model.layers.*.self_attn.v_proj.bias", SIZE_KV, SIZE_ONE, SHARD_ROWS, IF_V_BIAS},
    {TENSOR_MATRIX, SITE_O, "model.layers.*.self_attn.o_proj.weight", SIZE_HIDDEN, SIZE_Q, SHARD_COLS, ALWAYS},
    {TENSOR_BIAS, SITE_O, "model.layers.*.self_attn.o_proj.bias", SIZE_HIDDEN, SIZE_ONE, SHARD_NONE, IF_O_BIAS},
    {TENSOR_MATRIX, SITE_GATE_UP, "model.layers.*.mlp.gate_proj.weight", SIZE_INTERMEDIATE, SIZE_HIDDEN, SHARD_ROWS,
     ALWAYS},
    {TENSOR_MATRIX, SITE_GATE_UP, "model.layers.*.mlp.up_proj.weight", SIZE_INTERMEDIATE, SIZE_HIDDEN, SHARD_ROWS,
     ALWAYS},
    {TENSOR_BIAS, SITE_GATE_UP, "model.layers.*.mlp.gate_proj.bias", SIZE_INTERMEDIATE, SIZE_ONE, SHARD_ROWS,
     IF_MLP_BIAS},
    {TENSOR_BIAS, SITE_GATE_UP, "model.layers.*.mlp.up_proj.bias", SIZE_INTERMEDIATE, SIZE_ONE, SHARD_ROWS,
     IF_MLP_BIAS},
    {TENSOR_MATRIX, SITE_DOWN, "model.layers.*.mlp.down_proj.weight", SIZE_HIDDEN, SIZE_INTERMEDIATE, SHARD_COLS,
     ALWAYS},
    {TENSOR_BIAS, SITE_DOWN, "model.layers.*.mlp.down_proj.bias", SIZE_HIDDEN, SIZE_ONE, SHARD_NONE, IF_MLP_BIAS},
    {TENSOR_VECTOR, VECTOR_ATTENTION_NORM, "model.layers.*.input_layernorm.weight", SIZE_HIDDEN, SIZE_ONE, SHARD_NONE,
     ALWAYS},
    {TENSOR_VECTOR, VECTOR_MLP_NORM, "model.layers.*.post_attention_layernorm.weight", SIZE_HIDDEN, SIZE_ONE,
     SHARD_NONE, ALWAYS},
    {TENSOR_VECTOR, VECTOR_Q_NORM, "model.layers.*.self_attn.q_norm.weight", SIZE_HEAD_DIM, SIZE_ONE, SHARD_NONE,
     IF_QK_NORM},
    {TENSOR_VECTOR, VECTOR_K_NORM, "model.layers.*.self_attn.k_norm.weight", SIZE_HEAD_DIM, SIZE_ONE, SHARD_NONE,
     IF_QK_NORM},
    {TENSOR_MATRIX, SITE_EMBED, "model.embed_tokens.weight", SIZE_VOCAB, SIZE_HIDDEN, SHARD_ROWS, ALWAYS},
    {TENSOR_MATRIX, SITE_LM_HEAD, "lm_head.weight", SIZE_VOCAB, SIZE_HIDDEN, SHARD_ROWS, IF_UNTIED},
    {TENSOR_VECTOR, VECTOR_FINAL_NORM, "model.norm.weight", SIZE_HIDDEN, SIZE_ONE, SHARD_NONE, ALWAYS},
};
const size_t model_n_tensors = sizeof model_tensors / sizeof model_tensors[0];

uint32_t model_size_of(const struct model_desc *desc, enum model_size size)
{
    switch (size) {
    case SIZE_ONE: break;
    case SIZE_HIDDEN: return desc->hidden_size;
    case SIZE_Q: return desc->n_q_heads * desc->head_dim;
    case SIZE_KV: return desc->n_kv_heads * desc->head_dim;
    case SIZE_INTERMEDIATE: return desc->intermediate_size;
    case SIZE_VOCAB: return desc->vocab_size;
    case SIZE_HEAD_DIM: return desc->head_dim;
    }
    return 1;
}

bool model_has_tensor(const struct model_desc *desc, const struct model_tensor *tensor)
{
    switch (tensor->when) {
    case ALWAYS: break;
    case IF_Q_BIAS: return desc->q_bias;
    case IF_K_BIAS: return desc->k_bias;
    case IF_V_BIAS: return desc->v_bias;
    case IF_O_BIAS: return desc->o_bias;
    case IF_MLP_BIAS: return desc->mlp_bias;
    case IF_QK_NORM: return desc->qk_norm;
    case IF_UNTIED: return !desc->tied_embeddings;
    }
    return true;
}

static const char *layer_mark(const struct model_tensor *tensor)
{
    return strchr(tensor->name, '*');
}

static bool same_object(const struct model_tensor *a, const struct model_tensor *b)
{
    return a->kind == b->kind && a->place == b->place;
}

/* Gathers the object that begins with row i. Returns whether the model has any part of it. */
static bool gather_stack(const struct model_desc *desc, size_t i, struct model_stack *stack)
{
    bool present = false;
    stack->parts = &model_tensors[i];
    stack->n_parts = stack->rows = 0;
    stack->cols = model_size_of(desc, stack->parts->cols);
    for (; i < model_n_tensors && same_object(&model_tensors[i], stack->parts); i++) {
        present |= model_has_tensor(desc, &model_tensors[i]);
        stack->rows += model_size_of(desc, model_tensors[i].rows);
        stack->n_parts++;
    }
    return present;
}

bool model_next_stack(const struct model_desc *desc, struct model_stack *stack)
{
    for (; stack->layer <= desc->n_layers; stack->layer++, stack->parts = NULL) {
        const bool beside = stack->layer == desc->n_layers;
        size_t i = stack->parts ? (size_t)(stack->parts - model_tensors) + stack->n_parts : 0;
        for (; i < model_n_tensors; i += stack->n_parts)
            if (gather_stack(desc, i, stack) && beside == !layer_mark(stack->parts))
                return true;
    }
    return false;
}

void model_tensor_name(const struct model_tensor *tensor, uint32_t layer, bool bare, char out[MODEL_NAME_BYTES])
{
    static const char decoder[] = "model.";
    const char *name = tensor->name, *mark = layer_mark(tensor);
    if (bare && strncmp(name, decoder, sizeof decoder - 1) == 0)
        name += sizeof decoder - 1;
    if (mark)
        snprintf(out, MODEL_NAME_BYTES, "%.*s%u%s", (int)(mark - name), name, layer, mark + 1);
    else
        snprintf(out, MODEL_NAME_BYTES, "%s", name);
}

enum model_site model_head_site(const struct model_desc *desc)
{
    return desc->tied_embeddings ? SITE_EMBED : SITE_LM_HEAD;
}

#define ALIGN_FLOATS 16u

static uint64_t align_floats(uint64_t n)
{
    return (n + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS;
}

uint64_t model_stack_floats(const struct model_stack *stack)
{
    return align_floats(stack->rows);
}

uint64_t model_param_floats(const struct model_desc *desc)
{
    uint64_t n = align_floats(desc->head_dim / 2);
    struct model_stack stack = {0};
    while (model_next_stack(desc, &stack))
        if (stack.parts->kind != TENSOR_MATRIX)
            n += model_stack_floats(&stack);
    return n;
}

uint64_t model_weight_bytes(const struct model_desc *desc, const char *backend)
{
    uint64_t n = 0;
    struct model_stack stack = {0};
    while (model_next_stack(desc, &stack))
        if (stack.parts->kind == TENSOR_MATRIX)
            n += k_plan_weight_bytes(backend, desc->dtype, stack.rows, stack.cols);
    return n;
}
