#include "engine/model/tensor_table.h"

#include "engine/model/tensors.h"
#include "kernels/segments.h"

#include <stdio.h>
#include <string.h>

/* Matrices and biases of one site stand together, from top to bottom. */
#define L "model.layers.*."
const struct model_tensor model_tensors[] = {
    /* clang-format off */
    {OF_ATTENTION, TENSOR_MATRIX, SITE_QKV,           L "self_attn.q_proj.weight",           SIZE_Q,        SIZE_HIDDEN, SHARD_ROWS, ALWAYS},
    {OF_ATTENTION, TENSOR_MATRIX, SITE_QKV,           L "self_attn.k_proj.weight",           SIZE_KV,       SIZE_HIDDEN, SHARD_ROWS, ALWAYS},
    {OF_ATTENTION, TENSOR_MATRIX, SITE_QKV,           L "self_attn.v_proj.weight",           SIZE_KV,       SIZE_HIDDEN, SHARD_ROWS, ALWAYS},
    {OF_ATTENTION, TENSOR_BIAS,   SITE_QKV,           L "self_attn.q_proj.bias",             SIZE_Q,        SIZE_ONE,    SHARD_ROWS, IF_Q_BIAS},
    {OF_ATTENTION, TENSOR_BIAS,   SITE_QKV,           L "self_attn.k_proj.bias",             SIZE_KV,       SIZE_ONE,    SHARD_ROWS, IF_K_BIAS},
    {OF_ATTENTION, TENSOR_BIAS,   SITE_QKV,           L "self_attn.v_proj.bias",             SIZE_KV,       SIZE_ONE,    SHARD_ROWS, IF_V_BIAS},
    {OF_ATTENTION, TENSOR_MATRIX, SITE_O,             L "self_attn.o_proj.weight",           SIZE_HIDDEN,   SIZE_Q,      SHARD_COLS, ALWAYS},
    {OF_ATTENTION, TENSOR_BIAS,   SITE_O,             L "self_attn.o_proj.bias",             SIZE_HIDDEN,   SIZE_ONE,    SHARD_NONE, IF_O_BIAS},
    {OF_ATTENTION, TENSOR_VECTOR, VEC_ATTENTION_NORM, L "input_layernorm.weight",            SIZE_HIDDEN,   SIZE_ONE,    SHARD_NONE, IF_NORM_PRE},
    {OF_ATTENTION, TENSOR_VECTOR, VEC_ATTENTION_NORM, L "post_attention_layernorm.weight",   SIZE_HIDDEN,   SIZE_ONE,    SHARD_NONE, IF_NORM_POST},
    {OF_ATTENTION, TENSOR_VECTOR, VEC_Q_NORM,         L "self_attn.q_norm.weight",           SIZE_HEAD_DIM, SIZE_ONE,    SHARD_NONE, IF_HEAD_NORM_EACH},
    {OF_ATTENTION, TENSOR_VECTOR, VEC_K_NORM,         L "self_attn.k_norm.weight",           SIZE_HEAD_DIM, SIZE_ONE,    SHARD_NONE, IF_HEAD_NORM_EACH},
    {OF_ATTENTION, TENSOR_VECTOR, VEC_Q_NORM,         L "self_attn.q_norm.weight",           SIZE_Q,        SIZE_ONE,    SHARD_ROWS, IF_HEAD_NORM_ALL},
    {OF_ATTENTION, TENSOR_VECTOR, VEC_K_NORM,         L "self_attn.k_norm.weight",           SIZE_KV,       SIZE_ONE,    SHARD_ROWS, IF_HEAD_NORM_ALL},
    {OF_MLP,       TENSOR_MATRIX, SITE_GATE_UP,       L "mlp.gate_proj.weight",              SIZE_INNER,    SIZE_HIDDEN, SHARD_ROWS, ALWAYS},
    {OF_MLP,       TENSOR_MATRIX, SITE_GATE_UP,       L "mlp.up_proj.weight",                SIZE_INNER,    SIZE_HIDDEN, SHARD_ROWS, ALWAYS},
    {OF_MLP,       TENSOR_BIAS,   SITE_GATE_UP,       L "mlp.gate_proj.bias",                SIZE_INNER,    SIZE_ONE,    SHARD_ROWS, IF_MLP_BIAS},
    {OF_MLP,       TENSOR_BIAS,   SITE_GATE_UP,       L "mlp.up_proj.bias",                  SIZE_INNER,    SIZE_ONE,    SHARD_ROWS, IF_MLP_BIAS},
    {OF_MLP,       TENSOR_MATRIX, SITE_DOWN,          L "mlp.down_proj.weight",              SIZE_HIDDEN,   SIZE_INNER,  SHARD_COLS, ALWAYS},
    {OF_MLP,       TENSOR_BIAS,   SITE_DOWN,          L "mlp.down_proj.bias",                SIZE_HIDDEN,   SIZE_ONE,    SHARD_NONE, IF_MLP_BIAS},
    {OF_MLP,       TENSOR_VECTOR, VEC_MLP_NORM,       L "post_attention_layernorm.weight",   SIZE_HIDDEN,   SIZE_ONE,    SHARD_NONE, IF_NORM_PRE},
    {OF_MLP,       TENSOR_VECTOR, VEC_MLP_NORM,       L "post_feedforward_layernorm.weight", SIZE_HIDDEN,   SIZE_ONE,    SHARD_NONE, IF_NORM_POST},
    {OF_MODEL,     TENSOR_MATRIX, SITE_EMBED,         "model.embed_tokens.weight",           SIZE_VOCAB,    SIZE_HIDDEN, SHARD_ROWS, ALWAYS},
    {OF_MODEL,     TENSOR_MATRIX, SITE_LM_HEAD,       "lm_head.weight",                      SIZE_VOCAB,    SIZE_HIDDEN, SHARD_ROWS, IF_UNTIED},
    {OF_MODEL,     TENSOR_VECTOR, VEC_FINAL_NORM,     "model.norm.weight",                   SIZE_HIDDEN,   SIZE_ONE,    SHARD_NONE, ALWAYS},
#define E "bert.encoder.layer.*."
#define OUTSIDE "bert.embeddings."
    {OF_ATTENTION, TENSOR_MATRIX, SITE_QKV,                E "attention.self.query.weight",        SIZE_Q,         SIZE_HIDDEN, SHARD_NONE, IF_ENCODER},
    {OF_ATTENTION, TENSOR_MATRIX, SITE_QKV,                E "attention.self.key.weight",          SIZE_KV,        SIZE_HIDDEN, SHARD_NONE, IF_ENCODER},
    {OF_ATTENTION, TENSOR_MATRIX, SITE_QKV,                E "attention.self.value.weight",        SIZE_KV,        SIZE_HIDDEN, SHARD_NONE, IF_ENCODER},
    {OF_ATTENTION, TENSOR_BIAS,   SITE_QKV,                E "attention.self.query.bias",          SIZE_Q,         SIZE_ONE,    SHARD_NONE, IF_ENCODER},
    {OF_ATTENTION, TENSOR_BIAS,   SITE_QKV,                E "attention.self.key.bias",            SIZE_KV,        SIZE_ONE,    SHARD_NONE, IF_ENCODER},
    {OF_ATTENTION, TENSOR_BIAS,   SITE_QKV,                E "attention.self.value.bias",          SIZE_KV,        SIZE_ONE,    SHARD_NONE, IF_ENCODER},
    {OF_ATTENTION, TENSOR_MATRIX, SITE_O,                  E "attention.output.dense.weight",      SIZE_HIDDEN,    SIZE_Q,      SHARD_NONE, IF_ENCODER},
    {OF_ATTENTION, TENSOR_BIAS,   SITE_O,                  E "attention.output.dense.bias",        SIZE_HIDDEN,    SIZE_ONE,    SHARD_NONE, IF_ENCODER},
    {OF_ATTENTION, TENSOR_VECTOR, VEC_ATTENTION_NORM,      E "attention.output.LayerNorm.weight",  SIZE_HIDDEN,    SIZE_ONE,    SHARD_NONE, IF_ENCODER},
    {OF_ATTENTION, TENSOR_VECTOR, VEC_ATTENTION_NORM_BIAS, E "attention.output.LayerNorm.bias",    SIZE_HIDDEN,    SIZE_ONE,    SHARD_NONE, IF_ENCODER},
    {OF_MLP,       TENSOR_MATRIX, SITE_GATE_UP,            E "intermediate.dense.weight",          SIZE_INNER,     SIZE_HIDDEN, SHARD_NONE, IF_ENCODER},
    {OF_MLP,       TENSOR_BIAS,   SITE_GATE_UP,            E "intermediate.dense.bias",            SIZE_INNER,     SIZE_ONE,    SHARD_NONE, IF_ENCODER},
    {OF_MLP,       TENSOR_MATRIX, SITE_DOWN,               E "output.dense.weight",                SIZE_HIDDEN,    SIZE_INNER,  SHARD_NONE, IF_ENCODER},
    {OF_MLP,       TENSOR_BIAS,   SITE_DOWN,               E "output.dense.bias",                  SIZE_HIDDEN,    SIZE_ONE,    SHARD_NONE, IF_ENCODER},
    {OF_MLP,       TENSOR_VECTOR, VEC_MLP_NORM,            E "output.LayerNorm.weight",            SIZE_HIDDEN,    SIZE_ONE,    SHARD_NONE, IF_ENCODER},
    {OF_MLP,       TENSOR_VECTOR, VEC_MLP_NORM_BIAS,       E "output.LayerNorm.bias",              SIZE_HIDDEN,    SIZE_ONE,    SHARD_NONE, IF_ENCODER},
    {OF_MODEL,     TENSOR_MATRIX, SITE_EMBED,              OUTSIDE "word_embeddings.weight",       SIZE_VOCAB,     SIZE_HIDDEN, SHARD_NONE, IF_ENCODER},
    {OF_MODEL,     TENSOR_MATRIX, SITE_POSITIONS,          OUTSIDE "position_embeddings.weight",   SIZE_POSITIONS, SIZE_HIDDEN, SHARD_NONE, IF_ENCODER},
    {OF_MODEL,     TENSOR_MATRIX, SITE_SEGMENTS,           OUTSIDE "token_type_embeddings.weight", SIZE_SEGMENTS,  SIZE_HIDDEN, SHARD_NONE, IF_SEGMENTS},
    {OF_MODEL,     TENSOR_VECTOR, VEC_EMBED_NORM,          OUTSIDE "LayerNorm.weight",             SIZE_HIDDEN,    SIZE_ONE,    SHARD_NONE, IF_ENCODER},
    {OF_MODEL,     TENSOR_VECTOR, VEC_EMBED_NORM_BIAS,     OUTSIDE "LayerNorm.bias",               SIZE_HIDDEN,    SIZE_ONE,    SHARD_NONE, IF_ENCODER},
    {OF_MODEL,     TENSOR_MATRIX, SITE_POOLER,             "bert.pooler.dense.weight",             SIZE_HIDDEN,    SIZE_HIDDEN, SHARD_NONE, IF_BERT_CLASSIFIER},
    {OF_MODEL,     TENSOR_BIAS,   SITE_POOLER,             "bert.pooler.dense.bias",               SIZE_HIDDEN,    SIZE_ONE,    SHARD_NONE, IF_BERT_CLASSIFIER},
    {OF_MODEL,     TENSOR_MATRIX, SITE_CLASSIFIER,         "classifier.weight",                    SIZE_LABELS,    SIZE_HIDDEN, SHARD_NONE, IF_BERT_CLASSIFIER},
    {OF_MODEL,     TENSOR_BIAS,   SITE_CLASSIFIER,         "classifier.bias",                      SIZE_LABELS,    SIZE_ONE,    SHARD_NONE, IF_BERT_CLASSIFIER},
    {OF_MODEL,     TENSOR_MATRIX, SITE_POOLER,             "classifier.dense.weight",              SIZE_HIDDEN,    SIZE_HIDDEN, SHARD_NONE, IF_ROBERTA_CLASSIFIER},
    {OF_MODEL,     TENSOR_BIAS,   SITE_POOLER,             "classifier.dense.bias",                SIZE_HIDDEN,    SIZE_ONE,    SHARD_NONE, IF_ROBERTA_CLASSIFIER},
    {OF_MODEL,     TENSOR_MATRIX, SITE_CLASSIFIER,         "classifier.out_proj.weight",           SIZE_LABELS,    SIZE_HIDDEN, SHARD_NONE, IF_ROBERTA_CLASSIFIER},
    {OF_MODEL,     TENSOR_BIAS,   SITE_CLASSIFIER,         "classifier.out_proj.bias",             SIZE_LABELS,    SIZE_ONE,    SHARD_NONE, IF_ROBERTA_CLASSIFIER},
#undef E
#undef OUTSIDE
    {OF_MODEL,     TENSOR_MATRIX, SITE_DENSE,              MODEL_DENSE_PREFIX "linear.weight",     SIZE_DENSE,     SIZE_HIDDEN, SHARD_NONE, IF_DENSE},
    {OF_MODEL,     TENSOR_BIAS,   SITE_DENSE,              MODEL_DENSE_PREFIX "linear.bias",       SIZE_DENSE,     SIZE_ONE,    SHARD_NONE, IF_DENSE_BIAS},
    /* clang-format on */
};
#undef L
const size_t model_n_tensors = sizeof model_tensors / sizeof model_tensors[0];

uint32_t model_size_of(const struct model_desc *desc, enum model_size size)
{
    switch (size) {
    case SIZE_ONE: break;
    case SIZE_HIDDEN: return desc->hidden_size;
    case SIZE_Q: return desc->n_q_heads * desc->head_dim;
    case SIZE_KV: return desc->n_kv_heads * desc->head_dim;
    case SIZE_INNER: return desc->intermediate_size;
    case SIZE_VOCAB: return desc->vocab_size;
    case SIZE_HEAD_DIM: return desc->head_dim;
    case SIZE_POSITIONS: return desc->n_positions;
    case SIZE_SEGMENTS: return desc->n_segments;
    case SIZE_LABELS: return desc->n_labels;
    case SIZE_DENSE: return desc->dense_size;
    }
    return 1;
}

uint32_t model_whole_size(const struct model_desc *desc, enum model_size size)
{
    if (desc->share.n_ranks == 0)
        return model_size_of(desc, size);
    switch (size) {
    case SIZE_Q: return desc->share.n_q_heads * desc->head_dim;
    case SIZE_KV: return desc->share.n_kv_heads * desc->head_dim;
    case SIZE_INNER: return desc->share.intermediate_size;
    default: return model_size_of(desc, size);
    }
}

/* Checks the condition of the block that owns the tensor. Tensors outside the layers have conditions that do not
 * read block. */
static bool condition_holds(const struct model_desc *desc, const struct model_block *block,
                            enum model_condition condition)
{
    if (condition < IF_DENSE && desc->encoder != (condition >= IF_ENCODER))
        return false;
    switch (condition) {
    case ALWAYS:
    case IF_ENCODER: break;
    case IF_SEGMENTS: return desc->n_segments > 0;
    case IF_BERT_CLASSIFIER: return desc->n_labels > 0 && !desc->roberta;
    case IF_ROBERTA_CLASSIFIER: return desc->n_labels > 0 && desc->roberta;
    case IF_DENSE: return desc->dense_size > 0;
    case IF_DENSE_BIAS: return desc->dense_size > 0 && desc->dense_bias;
    case IF_Q_BIAS: return desc->q_bias;
    case IF_K_BIAS: return desc->k_bias;
    case IF_V_BIAS: return desc->v_bias;
    case IF_O_BIAS: return desc->o_bias;
    case IF_MLP_BIAS: return desc->mlp_bias;
    case IF_NORM_PRE: return block->place == NORM_PRE;
    case IF_NORM_POST: return block->place == NORM_POST;
    case IF_HEAD_NORM_EACH: return block->head_norm == HEAD_NORM_EACH;
    case IF_HEAD_NORM_ALL: return block->head_norm == HEAD_NORM_ALL;
    case IF_UNTIED: return !desc->tied_embeddings && desc->pooling == POOLING_NONE;
    }
    return true;
}

bool model_has_tensor(const struct model_desc *desc, uint32_t layer, const struct model_tensor *tensor)
{
    const bool beside = layer == desc->n_layers;
    if (beside || tensor->owner == OF_MODEL)
        return beside && tensor->owner == OF_MODEL && condition_holds(desc, NULL, tensor->when);
    const struct model_block *block = model_block_of(desc, layer,
                                                     tensor->owner == OF_MLP ? BLOCK_MLP : BLOCK_ATTENTION);
    return block && condition_holds(desc, block, tensor->when);
}

static bool same_object(const struct model_tensor *a, const struct model_tensor *b)
{
    return a == b || (a->kind == b->kind && a->place == b->place && a->kind != TENSOR_VECTOR &&
                      (a->when >= IF_ENCODER) == (b->when >= IF_ENCODER));
}

/* Whether a stage computes with this tensor of the model. */
static bool stage_has(const struct model_desc *desc, uint32_t layer, const struct model_tensor *tensor)
{
    if (layer < desc->n_layers)
        return layer >= model_first_layer(desc) && layer < model_end_layer(desc);
    const bool is_embedding = tensor->kind == TENSOR_MATRIX && tensor->place == SITE_EMBED;
    return (is_embedding && model_is_first_stage(desc)) ||
           ((!is_embedding || desc->tied_embeddings) && model_is_last_stage(desc));
}

/* Gathers the object of stack->layer that begins with row i. Returns whether any part of it is had. */
static bool gather_stack(const struct model_desc *desc, size_t i, struct model_stack *stack)
{
    bool present = false;
    stack->parts = &model_tensors[i];
    stack->n_parts = stack->rows = 0;
    stack->cols = model_size_of(desc, stack->parts->cols);
    for (; i < model_n_tensors && same_object(&model_tensors[i], stack->parts); i++) {
        present |= model_has_tensor(desc, stack->layer, &model_tensors[i]) &&
                   stage_has(desc, stack->layer, &model_tensors[i]);
        stack->rows += model_size_of(desc, model_tensors[i].rows);
        stack->n_parts++;
    }
    return present;
}

bool model_next_stack(const struct model_desc *desc, struct model_stack *stack)
{
    for (; stack->layer <= desc->n_layers; stack->layer++, stack->parts = NULL) {
        size_t i = stack->parts ? (size_t)(stack->parts - model_tensors) + stack->n_parts : 0;
        for (; i < model_n_tensors; i += stack->n_parts)
            if (gather_stack(desc, i, stack))
                return true;
    }
    return false;
}

void model_tensor_name(const struct model_desc *desc, const struct model_tensor *tensor, uint32_t layer, bool bare,
                       char out[MODEL_NAME_BYTES])
{
    static const char *const prefixes[] = {"model.", "bert."};
    const char *name = tensor->name, *mark = strchr(name, '*'), *prefix = "";
    for (size_t i = 0; i < 2; i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0) {
            name += strlen(prefixes[i]);
            prefix = bare ? "" : desc->roberta ? "roberta." : prefixes[i];
            break;
        }
    if (mark)
        snprintf(out, MODEL_NAME_BYTES, "%s%.*s%u%s", prefix, (int)(mark - name), name, layer, mark + 1);
    else
        snprintf(out, MODEL_NAME_BYTES, "%s%s", prefix, name);
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && strcmp(text + n - n_end, end) == 0;
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
    return desc->n_layers;
}

bool model_uses_name(const struct model_desc *desc, bool bare, const char *name)
{
    const uint32_t layer = layer_in(desc, name);
    char own[MODEL_NAME_BYTES];
    if (layer > desc->n_layers)
        return false;
    for (const struct model_tensor *row = model_tensors; row < model_tensors + model_n_tensors; row++) {
        const char *mark = strchr(row->name, '*');
        if (!ends_with(name, mark ? mark + 1 : strrchr(row->name, '.')) || !model_has_tensor(desc, layer, row))
            continue;
        model_tensor_name(desc, row, layer, bare, own);
        if (strcmp(own, name) == 0)
            return true;
    }
    return false;
}

bool model_knows_name(const struct model_desc *desc, const char *name)
{
    static const char *const of_decoders[] = {"model.", "layers.", "embed_tokens.", "norm.", "lm_head."};
    static const char *const of_encoders[] = {"bert.", "roberta.", "encoder.", "embeddings.", "pooler.", "classifier."};
    const char *const *known = desc->encoder ? of_encoders : of_decoders;
    const size_t n = desc->encoder ? sizeof of_encoders / sizeof *of_encoders
                                   : sizeof of_decoders / sizeof *of_decoders;
    for (size_t i = 0; i < n; i++)
        if (strncmp(name, known[i], strlen(known[i])) == 0)
            return true;
    return desc->dense_size > 0 && strncmp(name, MODEL_DENSE_PREFIX, strlen(MODEL_DENSE_PREFIX)) == 0;
}

uint32_t model_unit_of(const struct model_desc *desc, const struct model_tensor *tensor)
{
    if (tensor->shard != SHARD_COLS)
        return 0;
    return tensor->owner == OF_ATTENTION ? desc->head_dim : k_segment_unit(model_whole_size(desc, tensor->cols));
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

struct k_format model_made_format(const struct model_desc *desc, const struct model_tensor *tensor)
{
    const struct quantization_made *made = desc->quantization.made;
    const struct k_format none = {.bits = 0};
    if (!made)
        return none;
    const bool is_head = tensor->owner == OF_MODEL && !desc->vector_size && tensor->place == model_head_site(desc);
    const struct k_format to = tensor->owner != OF_MODEL ? made->layers : is_head ? made->head : none;
    /* GGUF's rows are whole blocks. */
    return to.packing != K_PACKING_PLANES && model_whole_size(desc, tensor->cols) % 32 != 0 ? none : to;
}

/* How a matrix lies in memory, and in the copy on a device. */
static struct k_format format_of(const struct model_desc *desc, const struct model_stack *stack)
{
    if (stack->layer == desc->n_layers && stack->parts->place == SITE_DENSE)
        return k_format_of(desc->dense_dtype);
    const struct k_format made = model_made_format(desc, stack->parts);
    if (made.bits || desc->quantization.made)
        return made.bits ? made : k_format_of(desc->dtype);
    return stack->layer < desc->n_layers ? model_weight_format(desc) : k_format_of(desc->dtype);
}

/* Quantized parts have a copy each. */
static uint64_t stack_weight_bytes(const struct model_desc *desc, const struct model_stack *stack,
                                   const struct k_planner *planner)
{
    const struct k_format format = format_of(desc, stack);
    uint64_t n = 0;
    if (k_format_is_plain(format))
        return planner->weight_bytes(format, stack->rows, stack->cols);
    for (uint32_t i = 0; i < stack->n_parts; i++)
        n += planner->weight_bytes(format, model_size_of(desc, stack->parts[i].rows), stack->cols);
    return n;
}

uint64_t model_weight_bytes(const struct model_desc *desc, const struct k_planner *planner)
{
    uint64_t n = 0;
    struct model_stack stack = {0};
    while (model_next_stack(desc, &stack))
        if (stack.parts->kind == TENSOR_MATRIX)
            n += stack_weight_bytes(desc, &stack, planner);
    return n;
}
