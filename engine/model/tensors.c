#include "engine/model/tensor_table.h"

#include "engine/model/experts/apart.h"
#include "engine/model/tensors.h"
#include "engine/model/sizes.h"
#include "kernels/segments.h"

#include <stdio.h>
#include <string.h>

/* Matrices and biases of one site stand together, from top to bottom. */
#define L "model.layers.*."
const struct model_tensor model_tensors[] = {
    /* clang-format off */
    {OF_ATTENTION, TENSOR_MATRIX, SITE_QKV,           L "self_attn.q_proj.weight",           SIZE_ONE, SIZE_Q,        SIZE_HIDDEN, SHARD_ROWS, IF_SPLIT},
    {OF_ATTENTION, TENSOR_MATRIX, SITE_QKV,           L "self_attn.k_proj.weight",           SIZE_ONE, SIZE_K,        SIZE_HIDDEN, SHARD_ROWS, IF_SPLIT},
    {OF_ATTENTION, TENSOR_MATRIX, SITE_QKV,           L "self_attn.v_proj.weight",           SIZE_ONE, SIZE_V,        SIZE_HIDDEN, SHARD_ROWS, IF_SPLIT},
    {OF_ATTENTION, TENSOR_MATRIX, SITE_QKV,           L "self_attn.qkv_proj.weight",         SIZE_ONE, SIZE_Q,        SIZE_HIDDEN, SHARD_ROWS, IF_FUSED},
    {OF_ATTENTION, TENSOR_MATRIX, SITE_QKV,           L "self_attn.qkv_proj.weight",         SIZE_ONE, SIZE_K,        SIZE_HIDDEN, SHARD_ROWS, IF_FUSED},
    {OF_ATTENTION, TENSOR_MATRIX, SITE_QKV,           L "self_attn.qkv_proj.weight",         SIZE_ONE, SIZE_V,        SIZE_HIDDEN, SHARD_ROWS, IF_FUSED},
    {OF_ATTENTION, TENSOR_BIAS,   SITE_QKV,           L "self_attn.q_proj.bias",             SIZE_ONE, SIZE_Q,        SIZE_ONE,    SHARD_ROWS, IF_Q_BIAS},
    {OF_ATTENTION, TENSOR_BIAS,   SITE_QKV,           L "self_attn.k_proj.bias",             SIZE_ONE, SIZE_K,        SIZE_ONE,    SHARD_ROWS, IF_K_BIAS},
    {OF_ATTENTION, TENSOR_BIAS,   SITE_QKV,           L "self_attn.v_proj.bias",             SIZE_ONE, SIZE_V,        SIZE_ONE,    SHARD_ROWS, IF_V_BIAS},
    {OF_ATTENTION, TENSOR_MATRIX, SITE_O,             L "self_attn.o_proj.weight",           SIZE_ONE, SIZE_HIDDEN,   SIZE_HEADS,  SHARD_COLS, ALWAYS},
    {OF_ATTENTION, TENSOR_BIAS,   SITE_O,             L "self_attn.o_proj.bias",             SIZE_ONE, SIZE_HIDDEN,   SIZE_ONE,    SHARD_NONE, IF_O_BIAS},
    {OF_ATTENTION, TENSOR_VECTOR, VEC_ATTENTION_NORM, L "input_layernorm.weight",            SIZE_ONE, SIZE_HIDDEN,   SIZE_ONE,    SHARD_NONE, IF_NORM_FIRST},
    {OF_ATTENTION, TENSOR_VECTOR, VEC_ATTENTION_NORM, L "post_attention_layernorm.weight",   SIZE_ONE, SIZE_HIDDEN,   SIZE_ONE,    SHARD_NONE, IF_NORM_POST},
    {OF_ATTENTION, TENSOR_VECTOR, VEC_ATTENTION_POST_NORM, L "post_attention_layernorm.weight", SIZE_ONE, SIZE_HIDDEN, SIZE_ONE,  SHARD_NONE, IF_NORM_BOTH},
    {OF_ATTENTION, TENSOR_VECTOR, VEC_Q_NORM,         L "self_attn.q_norm.weight",           SIZE_ONE, SIZE_HEAD_DIM, SIZE_ONE,    SHARD_NONE, IF_HEAD_NORM_EACH},
    {OF_ATTENTION, TENSOR_VECTOR, VEC_K_NORM,         L "self_attn.k_norm.weight",           SIZE_ONE, SIZE_HEAD_DIM, SIZE_ONE,    SHARD_NONE, IF_HEAD_NORM_EACH},
    {OF_ATTENTION, TENSOR_VECTOR, VEC_Q_NORM,         L "self_attn.q_norm.weight",           SIZE_ONE, SIZE_Q,        SIZE_ONE,    SHARD_ROWS, IF_HEAD_NORM_ALL},
    {OF_ATTENTION, TENSOR_VECTOR, VEC_K_NORM,         L "self_attn.k_norm.weight",           SIZE_ONE, SIZE_K,        SIZE_ONE,    SHARD_ROWS, IF_HEAD_NORM_ALL},
    {OF_ATTENTION,  TENSOR_VECTOR, VEC_SINKS,          L "self_attn.sinks",                    SIZE_ONE, SIZE_Q_HEADS,  SIZE_ONE,    SHARD_ROWS, IF_SINKS},
    {OF_MLP,       TENSOR_MATRIX, SITE_GATE_UP,       L "mlp.gate_proj.weight",              SIZE_ONE, SIZE_INNER,    SIZE_HIDDEN, SHARD_ROWS, IF_SPLIT},
    {OF_MLP,       TENSOR_MATRIX, SITE_GATE_UP,       L "mlp.up_proj.weight",                SIZE_ONE, SIZE_INNER,    SIZE_HIDDEN, SHARD_ROWS, IF_SPLIT},
    {OF_MLP,       TENSOR_MATRIX, SITE_GATE_UP,       L "mlp.gate_up_proj.weight",           SIZE_ONE, SIZE_INNER,    SIZE_HIDDEN, SHARD_ROWS, IF_FUSED},
    {OF_MLP,       TENSOR_MATRIX, SITE_GATE_UP,       L "mlp.gate_up_proj.weight",           SIZE_ONE, SIZE_INNER,    SIZE_HIDDEN, SHARD_ROWS, IF_FUSED},
    {OF_MLP,       TENSOR_BIAS,   SITE_GATE_UP,       L "mlp.gate_proj.bias",                SIZE_ONE, SIZE_INNER,    SIZE_ONE,    SHARD_ROWS, IF_MLP_BIAS},
    {OF_MLP,       TENSOR_BIAS,   SITE_GATE_UP,       L "mlp.up_proj.bias",                  SIZE_ONE, SIZE_INNER,    SIZE_ONE,    SHARD_ROWS, IF_MLP_BIAS},
    {OF_MLP,       TENSOR_MATRIX, SITE_DOWN,          L "mlp.down_proj.weight",              SIZE_ONE, SIZE_HIDDEN,   SIZE_INNER,  SHARD_COLS, ALWAYS},
    {OF_MLP,       TENSOR_BIAS,   SITE_DOWN,          L "mlp.down_proj.bias",                SIZE_ONE, SIZE_HIDDEN,   SIZE_ONE,    SHARD_NONE, IF_MLP_BIAS},
    {OF_MLP,       TENSOR_VECTOR, VEC_MLP_NORM,       L "post_attention_layernorm.weight",   SIZE_ONE, SIZE_HIDDEN,   SIZE_ONE,    SHARD_NONE, IF_NORM_PRE},
    {OF_MLP,       TENSOR_VECTOR, VEC_MLP_NORM,       L "post_feedforward_layernorm.weight", SIZE_ONE, SIZE_HIDDEN,   SIZE_ONE,    SHARD_NONE, IF_NORM_POST},
    {OF_MLP,       TENSOR_VECTOR, VEC_MLP_NORM,       L "pre_feedforward_layernorm.weight",  SIZE_ONE, SIZE_HIDDEN,   SIZE_ONE,    SHARD_NONE, IF_NORM_BOTH},
    {OF_MLP,       TENSOR_VECTOR, VEC_MLP_POST_NORM,  L "post_feedforward_layernorm.weight", SIZE_ONE, SIZE_HIDDEN,   SIZE_ONE,    SHARD_NONE, IF_NORM_BOTH},
    {OF_EXPERTS,   TENSOR_MATRIX, SITE_GATE_UP,       L "mlp.experts.*.gate_proj.weight",    SIZE_EXPERTS, SIZE_INNER, SIZE_HIDDEN, SHARD_ROWS, IF_EXPERTS_GATE_PROJ},
    {OF_EXPERTS,   TENSOR_MATRIX, SITE_GATE_UP,       L "mlp.experts.*.up_proj.weight",      SIZE_EXPERTS, SIZE_INNER, SIZE_HIDDEN, SHARD_ROWS, IF_EXPERTS_GATE_PROJ},
    {OF_EXPERTS,   TENSOR_BIAS,   SITE_GATE_UP,       L "mlp.experts.*.gate_proj.bias",      SIZE_EXPERTS, SIZE_INNER, SIZE_ONE,    SHARD_ROWS, IF_EXPERTS_GATE_PROJ_BIAS},
    {OF_EXPERTS,   TENSOR_BIAS,   SITE_GATE_UP,       L "mlp.experts.*.up_proj.bias",        SIZE_EXPERTS, SIZE_INNER, SIZE_ONE,    SHARD_ROWS, IF_EXPERTS_GATE_PROJ_BIAS},
    {OF_EXPERTS,   TENSOR_MATRIX, SITE_DOWN,          L "mlp.experts.*.down_proj.weight",    SIZE_EXPERTS, SIZE_HIDDEN, SIZE_INNER, SHARD_COLS, IF_EXPERTS_GATE_PROJ},
    {OF_EXPERTS,   TENSOR_BIAS,   SITE_DOWN,          L "mlp.experts.*.down_proj.bias",      SIZE_EXPERTS, SIZE_HIDDEN, SIZE_ONE,   SHARD_NONE, IF_EXPERTS_GATE_PROJ_BIAS},
    {OF_EXPERTS,   TENSOR_VECTOR, VEC_ROUTER_BIAS,    L "mlp.gate.bias",                     SIZE_ONE, SIZE_EXPERTS,  SIZE_ONE,    SHARD_NONE, IF_EXPERTS_GATE_PROJ_BIAS},
    {OF_EXPERTS,   TENSOR_VECTOR, VEC_ROUTER,         L "mlp.gate.weight",                   SIZE_ONE, SIZE_EXPERTS,  SIZE_HIDDEN, SHARD_NONE, IF_EXPERTS_GATE_PROJ},
    {OF_EXPERTS,   TENSOR_MATRIX, SITE_GATE_UP,       L "block_sparse_moe.experts.*.w1.weight", SIZE_EXPERTS, SIZE_INNER, SIZE_HIDDEN, SHARD_ROWS, IF_EXPERTS_W1},
    {OF_EXPERTS,   TENSOR_MATRIX, SITE_GATE_UP,       L "block_sparse_moe.experts.*.w3.weight", SIZE_EXPERTS, SIZE_INNER, SIZE_HIDDEN, SHARD_ROWS, IF_EXPERTS_W1},
    {OF_EXPERTS,   TENSOR_MATRIX, SITE_DOWN,          L "block_sparse_moe.experts.*.w2.weight", SIZE_EXPERTS, SIZE_HIDDEN, SIZE_INNER, SHARD_COLS, IF_EXPERTS_W1},
    {OF_EXPERTS,   TENSOR_VECTOR, VEC_ROUTER,         L "block_sparse_moe.gate.weight",      SIZE_ONE, SIZE_EXPERTS,  SIZE_HIDDEN, SHARD_NONE, IF_EXPERTS_W1},
    {OF_EXPERTS,    TENSOR_MATRIX, SITE_GATE_UP,       L "block_sparse_moe.input_linear.weight", SIZE_EXPERTS, SIZE_INNER,    SIZE_HIDDEN, SHARD_ROWS, IF_EXPERTS_LINEAR},
    {OF_EXPERTS,    TENSOR_MATRIX, SITE_GATE_UP,       L "block_sparse_moe.input_linear.weight", SIZE_EXPERTS, SIZE_INNER,    SIZE_HIDDEN, SHARD_ROWS, IF_EXPERTS_LINEAR},
    {OF_EXPERTS,    TENSOR_MATRIX, SITE_DOWN,          L "block_sparse_moe.output_linear.weight", SIZE_EXPERTS, SIZE_HIDDEN,   SIZE_INNER,  SHARD_COLS, IF_EXPERTS_LINEAR},
    {OF_EXPERTS,    TENSOR_VECTOR, VEC_ROUTER,         L "block_sparse_moe.router.layer.weight", SIZE_ONE, SIZE_EXPERTS,  SIZE_HIDDEN, SHARD_NONE, IF_EXPERTS_LINEAR},
    {OF_EXPERTS,    TENSOR_MATRIX, SITE_GATE_UP,       L "mlp.experts.gate_up_proj",           SIZE_EXPERTS, SIZE_INNER,    SIZE_HIDDEN, SHARD_ROWS, IF_EXPERTS_TRANSPOSED},
    {OF_EXPERTS,    TENSOR_MATRIX, SITE_GATE_UP,       L "mlp.experts.gate_up_proj",           SIZE_EXPERTS, SIZE_INNER,    SIZE_HIDDEN, SHARD_ROWS, IF_EXPERTS_TRANSPOSED},
    {OF_EXPERTS,    TENSOR_BIAS,   SITE_GATE_UP,       L "mlp.experts.gate_up_proj_bias",      SIZE_EXPERTS, SIZE_INNER,    SIZE_ONE,    SHARD_ROWS, IF_EXPERTS_TRANSPOSED},
    {OF_EXPERTS,    TENSOR_BIAS,   SITE_GATE_UP,       L "mlp.experts.gate_up_proj_bias",      SIZE_EXPERTS, SIZE_INNER,    SIZE_ONE,    SHARD_ROWS, IF_EXPERTS_TRANSPOSED},
    {OF_EXPERTS,    TENSOR_MATRIX, SITE_DOWN,          L "mlp.experts.down_proj",              SIZE_EXPERTS, SIZE_HIDDEN,   SIZE_INNER,  SHARD_COLS, IF_EXPERTS_TRANSPOSED},
    {OF_EXPERTS,    TENSOR_BIAS,   SITE_DOWN,          L "mlp.experts.down_proj_bias",         SIZE_EXPERTS, SIZE_HIDDEN,   SIZE_ONE,    SHARD_NONE, IF_EXPERTS_TRANSPOSED},
    {OF_EXPERTS,    TENSOR_VECTOR, VEC_ROUTER,         L "mlp.router.weight",                  SIZE_ONE, SIZE_EXPERTS,  SIZE_HIDDEN, SHARD_NONE, IF_EXPERTS_TRANSPOSED},
    {OF_EXPERTS,    TENSOR_VECTOR, VEC_ROUTER_BIAS,    L "mlp.router.bias",                    SIZE_ONE, SIZE_EXPERTS,  SIZE_ONE,    SHARD_NONE, IF_EXPERTS_TRANSPOSED},
    {OF_EXPERTS,    TENSOR_VECTOR, VEC_CORRECTION,     L "mlp.gate.e_score_correction_bias",   SIZE_ONE, SIZE_EXPERTS,  SIZE_ONE,    SHARD_NONE, IF_CORRECTION},
    {OF_EXPERTS,   TENSOR_MATRIX, SITE_SHARED_GATE_UP, L "mlp.shared_expert.gate_proj.weight", SIZE_ONE, SIZE_SHARED_INNER, SIZE_HIDDEN, SHARD_ROWS, IF_SHARED_EXPERT},
    {OF_EXPERTS,   TENSOR_MATRIX, SITE_SHARED_GATE_UP, L "mlp.shared_expert.up_proj.weight", SIZE_ONE, SIZE_SHARED_INNER, SIZE_HIDDEN, SHARD_ROWS, IF_SHARED_EXPERT},
    {OF_EXPERTS,   TENSOR_MATRIX, SITE_SHARED_DOWN,   L "mlp.shared_expert.down_proj.weight", SIZE_ONE, SIZE_HIDDEN, SIZE_SHARED_INNER, SHARD_COLS, IF_SHARED_EXPERT},
    {OF_EXPERTS,   TENSOR_VECTOR, VEC_SHARED_GATE,    L "mlp.shared_expert_gate.weight",     SIZE_ONE, SIZE_ONE,      SIZE_HIDDEN, SHARD_NONE, IF_SHARED_EXPERT},
    {OF_EXPERTS,    TENSOR_MATRIX, SITE_SHARED_GATE_UP, L "mlp.shared_experts.gate_proj.weight", SIZE_ONE, SIZE_SHARED_INNER, SIZE_HIDDEN, SHARD_ROWS, IF_SHARED_EXPERTS},
    {OF_EXPERTS,    TENSOR_MATRIX, SITE_SHARED_GATE_UP, L "mlp.shared_experts.up_proj.weight",  SIZE_ONE, SIZE_SHARED_INNER, SIZE_HIDDEN, SHARD_ROWS, IF_SHARED_EXPERTS},
    {OF_EXPERTS,    TENSOR_MATRIX, SITE_SHARED_DOWN,   L "mlp.shared_experts.down_proj.weight", SIZE_ONE, SIZE_HIDDEN,   SIZE_SHARED_INNER, SHARD_COLS, IF_SHARED_EXPERTS},
    {OF_EXPERTS,    TENSOR_MATRIX, SITE_SHARED_GATE_UP, L "shared_mlp.input_linear.weight",     SIZE_ONE, SIZE_SHARED_INNER, SIZE_HIDDEN, SHARD_ROWS, IF_SHARED_MLP},
    {OF_EXPERTS,    TENSOR_MATRIX, SITE_SHARED_GATE_UP, L "shared_mlp.input_linear.weight",     SIZE_ONE, SIZE_SHARED_INNER, SIZE_HIDDEN, SHARD_ROWS, IF_SHARED_MLP},
    {OF_EXPERTS,    TENSOR_MATRIX, SITE_SHARED_DOWN,   L "shared_mlp.output_linear.weight",    SIZE_ONE, SIZE_HIDDEN,   SIZE_SHARED_INNER, SHARD_COLS, IF_SHARED_MLP},
    {OF_EXPERTS,   TENSOR_VECTOR, VEC_MLP_NORM,       L "post_attention_layernorm.weight",   SIZE_ONE, SIZE_HIDDEN,   SIZE_ONE,    SHARD_NONE, IF_NORM_PRE},
    {OF_MODEL,     TENSOR_MATRIX, SITE_EMBED,         "model.embed_tokens.weight",           SIZE_ONE, SIZE_VOCAB,    SIZE_HIDDEN, SHARD_ROWS, ALWAYS},
    {OF_MODEL,     TENSOR_MATRIX, SITE_LM_HEAD,       "lm_head.weight",                      SIZE_ONE, SIZE_VOCAB,    SIZE_HIDDEN, SHARD_ROWS, IF_UNTIED},
    {OF_MODEL,     TENSOR_VECTOR, VEC_FINAL_NORM,     "model.norm.weight",                   SIZE_ONE, SIZE_HIDDEN,   SIZE_ONE,    SHARD_NONE, ALWAYS},
#define E "bert.encoder.layer.*."
#define OUTSIDE "bert.embeddings."
    {OF_ATTENTION, TENSOR_MATRIX, SITE_QKV,                E "attention.self.query.weight",        SIZE_ONE, SIZE_Q,         SIZE_HIDDEN, SHARD_NONE, IF_ENCODER},
    {OF_ATTENTION, TENSOR_MATRIX, SITE_QKV,                E "attention.self.key.weight",          SIZE_ONE, SIZE_K,         SIZE_HIDDEN, SHARD_NONE, IF_ENCODER},
    {OF_ATTENTION, TENSOR_MATRIX, SITE_QKV,                E "attention.self.value.weight",        SIZE_ONE, SIZE_V,         SIZE_HIDDEN, SHARD_NONE, IF_ENCODER},
    {OF_ATTENTION, TENSOR_BIAS,   SITE_QKV,                E "attention.self.query.bias",          SIZE_ONE, SIZE_Q,         SIZE_ONE,    SHARD_NONE, IF_ENCODER},
    {OF_ATTENTION, TENSOR_BIAS,   SITE_QKV,                E "attention.self.key.bias",            SIZE_ONE, SIZE_K,         SIZE_ONE,    SHARD_NONE, IF_ENCODER},
    {OF_ATTENTION, TENSOR_BIAS,   SITE_QKV,                E "attention.self.value.bias",          SIZE_ONE, SIZE_V,         SIZE_ONE,    SHARD_NONE, IF_ENCODER},
    {OF_ATTENTION, TENSOR_MATRIX, SITE_O,                  E "attention.output.dense.weight",      SIZE_ONE, SIZE_HIDDEN,    SIZE_HEADS,  SHARD_NONE, IF_ENCODER},
    {OF_ATTENTION, TENSOR_BIAS,   SITE_O,                  E "attention.output.dense.bias",        SIZE_ONE, SIZE_HIDDEN,    SIZE_ONE,    SHARD_NONE, IF_ENCODER},
    {OF_ATTENTION, TENSOR_VECTOR, VEC_ATTENTION_NORM,      E "attention.output.LayerNorm.weight",  SIZE_ONE, SIZE_HIDDEN,    SIZE_ONE,    SHARD_NONE, IF_ENCODER},
    {OF_ATTENTION, TENSOR_VECTOR, VEC_ATTENTION_NORM_BIAS, E "attention.output.LayerNorm.bias",    SIZE_ONE, SIZE_HIDDEN,    SIZE_ONE,    SHARD_NONE, IF_ENCODER},
    {OF_MLP,       TENSOR_MATRIX, SITE_GATE_UP,            E "intermediate.dense.weight",          SIZE_ONE, SIZE_INNER,     SIZE_HIDDEN, SHARD_NONE, IF_ENCODER},
    {OF_MLP,       TENSOR_BIAS,   SITE_GATE_UP,            E "intermediate.dense.bias",            SIZE_ONE, SIZE_INNER,     SIZE_ONE,    SHARD_NONE, IF_ENCODER},
    {OF_MLP,       TENSOR_MATRIX, SITE_DOWN,               E "output.dense.weight",                SIZE_ONE, SIZE_HIDDEN,    SIZE_INNER,  SHARD_NONE, IF_ENCODER},
    {OF_MLP,       TENSOR_BIAS,   SITE_DOWN,               E "output.dense.bias",                  SIZE_ONE, SIZE_HIDDEN,    SIZE_ONE,    SHARD_NONE, IF_ENCODER},
    {OF_MLP,       TENSOR_VECTOR, VEC_MLP_NORM,            E "output.LayerNorm.weight",            SIZE_ONE, SIZE_HIDDEN,    SIZE_ONE,    SHARD_NONE, IF_ENCODER},
    {OF_MLP,       TENSOR_VECTOR, VEC_MLP_NORM_BIAS,       E "output.LayerNorm.bias",              SIZE_ONE, SIZE_HIDDEN,    SIZE_ONE,    SHARD_NONE, IF_ENCODER},
    {OF_MODEL,     TENSOR_MATRIX, SITE_EMBED,              OUTSIDE "word_embeddings.weight",       SIZE_ONE, SIZE_VOCAB,     SIZE_HIDDEN, SHARD_NONE, IF_ENCODER},
    {OF_MODEL,     TENSOR_MATRIX, SITE_POSITIONS,          OUTSIDE "position_embeddings.weight",   SIZE_ONE, SIZE_POSITIONS, SIZE_HIDDEN, SHARD_NONE, IF_ENCODER},
    {OF_MODEL,     TENSOR_MATRIX, SITE_SEGMENTS,           OUTSIDE "token_type_embeddings.weight", SIZE_ONE, SIZE_SEGMENTS,  SIZE_HIDDEN, SHARD_NONE, IF_SEGMENTS},
    {OF_MODEL,     TENSOR_VECTOR, VEC_EMBED_NORM,          OUTSIDE "LayerNorm.weight",             SIZE_ONE, SIZE_HIDDEN,    SIZE_ONE,    SHARD_NONE, IF_ENCODER},
    {OF_MODEL,     TENSOR_VECTOR, VEC_EMBED_NORM_BIAS,     OUTSIDE "LayerNorm.bias",               SIZE_ONE, SIZE_HIDDEN,    SIZE_ONE,    SHARD_NONE, IF_ENCODER},
    {OF_MODEL,     TENSOR_MATRIX, SITE_POOLER,             "bert.pooler.dense.weight",             SIZE_ONE, SIZE_HIDDEN,    SIZE_HIDDEN, SHARD_NONE, IF_BERT_CLASSIFIER},
    {OF_MODEL,     TENSOR_BIAS,   SITE_POOLER,             "bert.pooler.dense.bias",               SIZE_ONE, SIZE_HIDDEN,    SIZE_ONE,    SHARD_NONE, IF_BERT_CLASSIFIER},
    {OF_MODEL,     TENSOR_MATRIX, SITE_CLASSIFIER,         "classifier.weight",                    SIZE_ONE, SIZE_LABELS,    SIZE_HIDDEN, SHARD_NONE, IF_BERT_CLASSIFIER},
    {OF_MODEL,     TENSOR_BIAS,   SITE_CLASSIFIER,         "classifier.bias",                      SIZE_ONE, SIZE_LABELS,    SIZE_ONE,    SHARD_NONE, IF_BERT_CLASSIFIER},
    {OF_MODEL,     TENSOR_MATRIX, SITE_POOLER,             "classifier.dense.weight",              SIZE_ONE, SIZE_HIDDEN,    SIZE_HIDDEN, SHARD_NONE, IF_ROBERTA_CLASSIFIER},
    {OF_MODEL,     TENSOR_BIAS,   SITE_POOLER,             "classifier.dense.bias",                SIZE_ONE, SIZE_HIDDEN,    SIZE_ONE,    SHARD_NONE, IF_ROBERTA_CLASSIFIER},
    {OF_MODEL,     TENSOR_MATRIX, SITE_CLASSIFIER,         "classifier.out_proj.weight",           SIZE_ONE, SIZE_LABELS,    SIZE_HIDDEN, SHARD_NONE, IF_ROBERTA_CLASSIFIER},
    {OF_MODEL,     TENSOR_BIAS,   SITE_CLASSIFIER,         "classifier.out_proj.bias",             SIZE_ONE, SIZE_LABELS,    SIZE_ONE,    SHARD_NONE, IF_ROBERTA_CLASSIFIER},
#undef E
#undef OUTSIDE
    {OF_MODEL,     TENSOR_MATRIX, SITE_DENSE,              MODEL_DENSE_PREFIX "linear.weight",     SIZE_ONE, SIZE_DENSE,     SIZE_HIDDEN, SHARD_NONE, IF_DENSE},
    {OF_MODEL,     TENSOR_BIAS,   SITE_DENSE,              MODEL_DENSE_PREFIX "linear.bias",       SIZE_ONE, SIZE_DENSE,     SIZE_ONE,    SHARD_NONE, IF_DENSE_BIAS},
    /* clang-format on */
};
#undef L
const size_t model_n_tensors = sizeof model_tensors / sizeof model_tensors[0];

static bool experts_have(const struct model_experts *e, enum model_condition condition)
{
    const bool is_gate_proj = e->names == EXPERTS_GATE_PROJ || e->names == EXPERTS_GATE_PROJ_BIAS;
    switch (condition) {
    case IF_EXPERTS_GATE_PROJ: return is_gate_proj;
    case IF_EXPERTS_GATE_PROJ_BIAS: return e->names == EXPERTS_GATE_PROJ_BIAS;
    case IF_EXPERTS_W1: return e->names == EXPERTS_W1;
    case IF_EXPERTS_LINEAR: return e->names == EXPERTS_LINEAR;
    case IF_EXPERTS_TRANSPOSED: return e->names == EXPERTS_TRANSPOSED;
    case IF_SHARED_EXPERT: return is_gate_proj && e->shared_size > 0 && e->shared_gate;
    case IF_SHARED_EXPERTS: return is_gate_proj && e->shared_size > 0 && !e->shared_gate;
    case IF_SHARED_MLP: return e->names == EXPERTS_LINEAR && e->shared_size > 0;
    case IF_CORRECTION: return e->router == ROUTER_SIGMOID;
    default: return false;
    }
}

/* Checks the condition of the block that owns the tensor. Tensors outside the layers have conditions that do not
 * read block. */
static bool condition_holds(const struct model_desc *desc, const struct model_block *block,
                            enum model_condition condition)
{
    if (condition < IF_DENSE && (desc->config->encoder != NULL) != (condition >= IF_ENCODER))
        return false;
    switch (condition) {
    case ALWAYS:
    case IF_ENCODER: break;
    case IF_SEGMENTS: return model_encoder_of(desc->config).n_segments > 0;
    case IF_BERT_CLASSIFIER: return desc->config->outputs.n_labels > 0 && !model_encoder_of(desc->config).roberta;
    case IF_ROBERTA_CLASSIFIER: return desc->config->outputs.n_labels > 0 && model_encoder_of(desc->config).roberta;
    case IF_DENSE: return desc->config->outputs.dense.size > 0;
    case IF_DENSE_BIAS: return desc->config->outputs.dense.size > 0 && desc->config->outputs.dense.bias;
    case IF_SPLIT: return !desc->config->fused;
    case IF_FUSED: return desc->config->fused;
    case IF_Q_BIAS: return block->attention.q_bias;
    case IF_K_BIAS: return block->attention.k_bias;
    case IF_V_BIAS: return block->attention.v_bias;
    case IF_O_BIAS: return block->attention.o_bias;
    case IF_MLP_BIAS: return block->mlp.bias;
    case IF_NORM_PRE: return block->place == NORM_PRE;
    case IF_NORM_POST: return block->place == NORM_POST;
    case IF_NORM_BOTH: return block->place == NORM_BOTH;
    case IF_NORM_FIRST: return block->place == NORM_PRE || block->place == NORM_BOTH;
    case IF_HEAD_NORM_EACH: return block->attention.head_norm == HEAD_NORM_EACH;
    case IF_HEAD_NORM_ALL: return block->attention.head_norm == HEAD_NORM_ALL;
    case IF_SINKS: return block->attention.sinks;
    case IF_EXPERTS_GATE_PROJ:
    case IF_EXPERTS_GATE_PROJ_BIAS:
    case IF_EXPERTS_W1:
    case IF_EXPERTS_LINEAR:
    case IF_EXPERTS_TRANSPOSED:
    case IF_SHARED_EXPERT:
    case IF_SHARED_EXPERTS:
    case IF_SHARED_MLP:
    case IF_CORRECTION: return experts_have(&block->experts, condition);
    case IF_UNTIED: return !desc->config->tied_embeddings && desc->config->outputs.kind == OUTPUT_TOKENS;
    }
    return true;
}

bool model_has_tensor(const struct model_desc *desc, uint32_t layer, const struct model_tensor *tensor)
{
    const bool beside = layer == desc->config->n_layers;
    if (beside || tensor->owner == OF_MODEL)
        return beside && tensor->owner == OF_MODEL && condition_holds(desc, NULL, tensor->when);
    const struct model_block *block = model_block_of(desc, layer, (enum model_block_kind)tensor->owner);
    return block && condition_holds(desc, block, tensor->when);
}

/* Of neighbouring rows. */
static bool are_fused(const struct model_tensor *a, const struct model_tensor *b)
{
    return a->kind != TENSOR_VECTOR && a->kind == b->kind && a->place == b->place && a->when == b->when &&
           strcmp(a->name, b->name) == 0;
}

const struct model_tensor *model_part_above(const struct model_tensor *row)
{
    return row > model_tensors && are_fused(row - 1, row) ? row - 1 : NULL;
}

const struct model_tensor *model_part_below(const struct model_tensor *row)
{
    return row + 1 < model_tensors + model_n_tensors && are_fused(row, row + 1) ? row + 1 : NULL;
}

static bool is_fused(const struct model_tensor *row)
{
    return model_part_above(row) || model_part_below(row);
}

bool model_is_numbered(const struct model_tensor *row)
{
    const char *first = strchr(row->name, '*');
    return first && strchr(first + 1, '*');
}

static bool same_object(const struct model_tensor *a, const struct model_tensor *b)
{
    return a == b || (a->kind == b->kind && a->place == b->place && a->kind != TENSOR_VECTOR &&
                      (a->when >= IF_ENCODER) == (b->when >= IF_ENCODER) && is_fused(a) == is_fused(b));
}

/* Whether a stage computes with this tensor of the model. */
static bool stage_has(const struct model_desc *desc, uint32_t layer, const struct model_tensor *tensor)
{
    if (layer < desc->config->n_layers)
        return layer >= model_first_layer(desc) && layer < model_end_layer(desc);
    const bool is_embedding = tensor->kind == TENSOR_MATRIX && tensor->place == SITE_EMBED;
    return (is_embedding && model_is_first_stage(desc)) ||
           ((!is_embedding || desc->config->tied_embeddings) && model_is_last_stage(desc));
}

/* Gathers the object of stack->layer that begins with row i. Returns whether any part of it is had. */
static bool gather_stack(const struct model_desc *desc, size_t i, struct model_stack *stack)
{
    bool present = false;
    stack->parts = &model_tensors[i];
    stack->n_parts = stack->rows = 0;
    const struct model_range held = model_count_of(desc, desc->shard.rank, stack->layer, stack->parts->count);
    stack->first = held.first;
    stack->count = held.n;
    stack->cols = model_size_of(desc, stack->layer, stack->parts->cols);
    for (; i < model_n_tensors && same_object(&model_tensors[i], stack->parts); i++) {
        present |= model_has_tensor(desc, stack->layer, &model_tensors[i]) &&
                   stage_has(desc, stack->layer, &model_tensors[i]);
        stack->rows += model_size_of(desc, stack->layer, model_tensors[i].rows);
        stack->n_parts++;
    }
    return present;
}

bool model_next_stack(const struct model_desc *desc, struct model_stack *stack)
{
    for (; stack->layer <= desc->config->n_layers; stack->layer++, stack->parts = NULL) {
        size_t i = stack->parts ? (size_t)(stack->parts - model_tensors) + stack->n_parts : 0;
        for (; i < model_n_tensors; i += stack->n_parts)
            if (gather_stack(desc, i, stack))
                return true;
    }
    return false;
}

/* Writes the rest of a name, in which '*' is a number: *, then a second one, which MODEL_ALL_OF leaves out with its dot. */
static void put_numbers(const char *rest, uint32_t layer, uint32_t index, char *out, size_t n)
{
    const char *first = strchr(rest, '*'), *second = first ? strchr(first + 1, '*') : NULL;
    if (!first)
        snprintf(out, n, "%s", rest);
    else if (!second)
        snprintf(out, n, "%.*s%u%s", (int)(first - rest), rest, layer, first + 1);
    else if (index == MODEL_ALL_OF)
        snprintf(out, n, "%.*s%u%.*s%s", (int)(first - rest), rest, layer, (int)(second - first - 1), first + 1,
                 second + strlen("*."));
    else
        snprintf(out, n, "%.*s%u%.*s%u%s", (int)(first - rest), rest, layer, (int)(second - first - 1), first + 1,
                 index, second + 1);
}

void model_tensor_name(const struct model_desc *desc, const struct model_tensor *tensor, uint32_t layer, uint32_t index,
                       bool bare, char out[MODEL_NAME_BYTES])
{
    static const char *const prefixes[] = {"model.", "bert."};
    const char *name = tensor->name, *prefix = "";
    for (size_t i = 0; i < 2; i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0) {
            name += strlen(prefixes[i]);
            prefix = bare ? "" : model_encoder_of(desc->config).roberta ? "roberta." : prefixes[i];
            break;
        }
    const int n = snprintf(out, MODEL_NAME_BYTES, "%s", prefix);
    put_numbers(name, layer, index, out + n, MODEL_NAME_BYTES - (size_t)n);
}

/* The row under the name of its part, which `name` holds. */
static bool apart_row(const struct model_tensor *row, char name[MODEL_NAME_BYTES], struct model_tensor *out)
{
    const struct experts_apart *apart = model_is_numbered(row) ? NULL : experts_apart_of(row->name);
    uint32_t part = 0;
    if (!apart)
        return false;
    for (const struct model_tensor *above = model_part_above(row); above; above = model_part_above(above))
        part++;
    snprintf(name, MODEL_NAME_BYTES, "%.*s%s", (int)(strlen(row->name) - strlen(apart->all)), row->name,
             apart->parts[part]);
    *out = *row;
    out->name = name;
    return true;
}

bool model_apart_name(const struct model_desc *desc, const struct model_tensor *tensor, uint32_t layer, uint32_t index,
                      bool bare, char out[MODEL_NAME_BYTES])
{
    char name[MODEL_NAME_BYTES];
    struct model_tensor row;
    const bool has_name = apart_row(tensor, name, &row);
    if (has_name)
        model_tensor_name(desc, &row, layer, index, bare, out);
    return has_name;
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

/* The matrix among several that a name has behind its layer, or MODEL_ALL_OF. */
static uint32_t index_in(const struct model_tensor *row, const char *name)
{
    const char *first = strchr(row->name, '*'), *mark = first ? strchr(first + 1, '*') : NULL;
    char before[MODEL_NAME_BYTES];
    uint32_t index;
    if (!mark)
        return 0;
    snprintf(before, sizeof before, "%.*s", (int)(mark - first - 1), first + 1); /* ".mlp.experts." */
    const char *at = strstr(name, before);
    return at && sscanf(at + strlen(before), "%9u", &index) == 1 ? index : MODEL_ALL_OF;
}

/* The layer in a name; n_layers if the name has no layer. */
static uint32_t layer_in(const struct model_desc *desc, const char *name)
{
    static const char *const before[] = {"layers.", "layer."};
    for (size_t i = 0; i < 2; i++) {
        const char *at = strstr(name, before[i]);
        uint32_t layer = 0;
        if (at && sscanf(at + strlen(before[i]), "%9u", &layer) == 1)
            return layer;
    }
    return desc->config->n_layers;
}

/* Whether a row of a layer has this name. */
static bool is_named(const struct model_desc *desc, const struct model_tensor *row, uint32_t layer, bool bare,
                     const char *name)
{
    const char *mark = strrchr(row->name, '*');
    char own[MODEL_NAME_BYTES];
    if (!ends_with(name, mark ? mark + 1 : strrchr(row->name, '.')) || !model_has_tensor(desc, layer, row))
        return false;
    const uint32_t index = index_in(row, name);
    model_tensor_name(desc, row, layer, index, bare, own);
    return (index == MODEL_ALL_OF || index < model_whole_size(desc, layer, row->count)) && strcmp(own, name) == 0;
}

bool model_uses_name(const struct model_desc *desc, bool bare, const char *name)
{
    const uint32_t layer = layer_in(desc, name);
    char part[MODEL_NAME_BYTES];
    struct model_tensor apart;
    if (layer > desc->config->n_layers)
        return false;
    for (const struct model_tensor *row = model_tensors; row < model_tensors + model_n_tensors; row++)
        if (is_named(desc, row, layer, bare, name) ||
            (apart_row(row, part, &apart) && is_named(desc, &apart, layer, bare, name)))
            return true;
    return false;
}

bool model_knows_name(const struct model_desc *desc, const char *name)
{
    static const char *const of_decoders[] = {"model.", "layers.", "embed_tokens.", "norm.", "lm_head."};
    static const char *const of_encoders[] = {"bert.", "roberta.", "encoder.", "embeddings.", "pooler.", "classifier."};
    const char *const *known = desc->config->encoder ? of_encoders : of_decoders;
    const size_t n = desc->config->encoder ? sizeof of_encoders / sizeof *of_encoders
                                           : sizeof of_decoders / sizeof *of_decoders;
    for (size_t i = 0; i < n; i++)
        if (strncmp(name, known[i], strlen(known[i])) == 0)
            return true;
    return desc->config->outputs.dense.size > 0 && strncmp(name, MODEL_DENSE_PREFIX, strlen(MODEL_DENSE_PREFIX)) == 0;
}

uint32_t model_unit_of(const struct model_desc *desc, uint32_t layer, const struct model_tensor *tensor)
{
    if (tensor->shard != SHARD_COLS)
        return 0;
    return tensor->owner == OF_ATTENTION ? model_block_of(desc, layer, BLOCK_ATTENTION)->attention.v_dim
                                         : k_segment_unit(model_whole_size(desc, layer, tensor->cols));
}

enum model_site model_head_site(const struct model_desc *desc)
{
    return desc->config->tied_embeddings ? SITE_EMBED : SITE_LM_HEAD;
}

#define ALIGN_FLOATS 16u

static uint64_t align_floats(uint64_t n)
{
    return (n + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS;
}

uint64_t model_stack_floats(const struct model_stack *stack)
{
    return align_floats((uint64_t)stack->count * stack->rows * stack->cols);
}

uint64_t model_rope_floats(const struct model_rope *rope)
{
    return align_floats(rope->dim / 2);
}

uint64_t model_param_floats(const struct model_desc *desc)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < desc->config->n_ropes; i++)
        n += model_rope_floats(&desc->config->ropes[i]);
    struct model_stack stack = {0};
    while (model_next_stack(desc, &stack))
        if (stack.parts->kind != TENSOR_MATRIX)
            n += model_stack_floats(&stack);
    return n;
}

struct k_format model_made_format(const struct model_desc *desc, uint32_t layer, const struct model_tensor *tensor)
{
    const struct quantization_made *made = desc->facts->quantization.made;
    const struct k_format none = {.bits = 0};
    if (!made)
        return none;
    const bool is_head = tensor->owner == OF_MODEL && desc->config->outputs.kind == OUTPUT_TOKENS &&
                         tensor->place == model_head_site(desc);
    const struct k_format to = tensor->owner != OF_MODEL ? made->layers : is_head ? made->head : none;
    /* GGUF's rows are whole blocks. */
    return to.packing != K_PACKING_PLANES && model_whole_size(desc, layer, tensor->cols) % 32 != 0 ? none : to;
}

/* Plain parts lie together. As soon as one is quantized each has a copy of its own, with those of all experts. */
uint64_t model_copy_bytes(const struct model_desc *desc, const struct model_stack *stack,
                          const struct k_format formats[MODEL_MAX_PARTS], const struct k_planner *planner)
{
    bool is_plain = true;
    uint64_t n = 0;
    for (uint32_t i = 0; i < stack->n_parts; i++)
        is_plain &= !formats[i].bits || k_format_is_plain(formats[i]);
    if (is_plain)
        return formats[0].bits ? planner->weight_bytes(formats[0], stack->count, stack->rows, stack->cols) : 0;
    for (uint32_t i = 0; i < stack->n_parts; i++)
        if (formats[i].bits)
            n += planner->weight_bytes(formats[i], stack->count,
                                       model_size_of(desc, stack->layer, stack->parts[i].rows), stack->cols);
    return n;
}
