#include "engine/model/share.h"

#include "engine/model/tensors.h"
#include "kernels/quant.h"
#include "kernels/segments.h"

#include <stdio.h>

/* Ranks' heads are whole segments where they are as many each; each reads whole KV heads, which ranks may have in common. */
static bool heads_allow(const struct model_attention *a, uint32_t n)
{
    return a->n_q_heads % n == 0 && (a->n_kv_heads % n == 0 || n % a->n_kv_heads == 0);
}

/* The first layer whose heads cannot be divided among n ranks; n_layers if all can. */
static uint32_t undivided_heads(const struct model_desc *desc, uint32_t n)
{
    uint32_t l = 0;
    for (; l < desc->config->n_layers; l++) {
        const struct model_block *block = model_block_of(desc, l, BLOCK_ATTENTION);
        if (block && !heads_allow(&block->attention, n))
            break;
    }
    return l;
}

/* Whether each rank has a part of a size, which a layer may lack. */
static bool all_have(const struct model_desc *desc, uint32_t n, uint32_t layer, enum model_size size)
{
    for (uint32_t r = 0; r < n && model_whole_size(desc, layer, size) > 0; r++)
        if (model_share_of(desc, r, layer, size).n == 0)
            return false;
    return true;
}

/* A size of which a rank would have no part: its name in config.json, and its value. */
struct undivided {
    const char *name; /* NULL: every rank has a part of each */
    uint32_t whole;
};

static struct undivided undivided_length(const struct model_desc *whole, uint32_t n)
{
    const struct model_desc desc = model_share_describe(whole, 0, n);
    const uint32_t n_layers = desc.config->n_layers;
    for (uint32_t l = 0; n > 1 && l < n_layers; l++) {
        const struct model_block *experts = model_block_of(&desc, l, BLOCK_EXPERTS);
        if (desc.shard.whole_experts && experts && experts->experts.n_experts < n)
            return (struct undivided){"num_experts", experts->experts.n_experts};
        if (!all_have(&desc, n, l, SIZE_INNER))
            return (struct undivided){experts ? "moe_intermediate_size" : "intermediate_size",
                                      model_whole_size(&desc, l, SIZE_INNER)};
        if (!all_have(&desc, n, l, SIZE_SHARED_INNER))
            return (struct undivided){"shared_expert_intermediate_size", model_whole_size(&desc, l, SIZE_SHARED_INNER)};
    }
    if (!all_have(&desc, n, n_layers, SIZE_VOCAB))
        return (struct undivided){"vocab_size", desc.config->vocab_size};
    return (struct undivided){NULL, 0};
}

/* Whether an expert's output has a bias. It belongs behind the sum over all columns, which no operation gives. */
static bool has_expert_bias(const struct model_desc *desc, uint32_t layer)
{
    for (const struct model_tensor *row = model_tensors; row < model_tensors + model_n_tensors; row++)
        if (row->owner == OF_EXPERTS && row->kind == TENSOR_BIAS && row->place == SITE_DOWN &&
            model_has_tensor(desc, layer, row))
            return true;
    return false;
}

int model_share_check(const struct model_desc *desc, uint32_t n_ranks, struct quire_error *err)
{
    char possible[32] = "1";
    size_t at = 1;
    for (uint32_t n = 2; n <= K_SEGMENTS; n *= 2)
        if (undivided_heads(desc, n) == desc->config->n_layers && !undivided_length(desc, n).name)
            at += (size_t)snprintf(possible + at, sizeof possible - at, ", %u", n);
    if (n_ranks == 0 || n_ranks > K_SEGMENTS || (n_ranks & (n_ranks - 1)) != 0)
        return quire_fail(err, QUIRE_INVALID,
                          "--tensor-parallel-size: must be 1, 2, 4 or 8, got %u; this model can be divided among: %s",
                          n_ranks, possible);
    const uint32_t n_layers = desc->config->n_layers, heads = undivided_heads(desc, n_ranks);
    if (heads < n_layers) {
        const struct model_attention *a = &model_block_of(desc, heads, BLOCK_ATTENTION)->attention;
        return quire_fail(err, QUIRE_UNSUPPORTED,
                          "--tensor-parallel-size %u: the model's %u attention heads, which read %u of K and V, can be "
                          "divided among these numbers of ranks: %s",
                          n_ranks, a->n_q_heads, a->n_kv_heads, possible);
    }
    const struct undivided length = undivided_length(desc, n_ranks);
    if (length.name)
        return quire_fail(
            err, QUIRE_UNSUPPORTED,
            "--tensor-parallel-size %u: a rank would have no part of the model's %s %u; it can be divided "
            "among these numbers of ranks: %s",
            n_ranks, length.name, length.whole, possible);
    for (uint32_t l = 0; l < n_layers; l++) {
        if (n_ranks > 1 && !desc->shard.whole_experts && has_expert_bias(desc, l))
            return quire_fail(
                err, QUIRE_UNSUPPORTED,
                "--tensor-parallel-size %u: the experts of %s have biases behind their last sum, so ranks "
                "cannot divide their columns: add --enable-expert-parallel",
                n_ranks, desc->config->architecture);
        const struct model_block *block = model_block_of(desc, l, BLOCK_ATTENTION);
        if (n_ranks > 1 && block && block->attention.head_norm == HEAD_NORM_ALL)
            return quire_fail(
                err, QUIRE_UNSUPPORTED,
                "--tensor-parallel-size %u: %s norms over all heads of a token, but no rank has all: leave it "
                "out",
                n_ranks, desc->config->architecture);
    }
    return QUIRE_OK;
}

struct model_desc model_share_describe(const struct model_desc *whole, uint32_t rank, uint32_t n_ranks)
{
    struct model_desc out = *whole;
    if (n_ranks > 1) {
        out.shard.rank = rank;
        out.shard.n_ranks = n_ranks;
    }
    return out;
}

/* Whether this stage takes one of the n_more layers that remain after an equal division. */
static bool stage_has_more(uint32_t n_more, uint32_t index, uint32_t n_stages, bool last_has_more)
{
    const uint32_t n_between = n_stages - 2;
    if (index > 0 && index + 1 < n_stages)
        return index <= n_more;
    return n_stages > 1 && n_more > n_between && (index > 0) == last_has_more;
}

struct model_range model_stage_layers(uint32_t n_layers, uint32_t index, uint32_t n_stages, bool last_has_more)
{
    const uint32_t n = n_layers / n_stages, n_more = n_layers % n_stages;
    struct model_range layers = {0, 0};
    for (uint32_t i = 0; i <= index; i++) {
        layers.first += layers.n;
        layers.n = n + stage_has_more(n_more, i, n_stages, last_has_more);
    }
    return layers;
}

void model_stage_describe(struct model_desc *desc, uint32_t index, uint32_t n_stages, bool last_has_more)
{
    const struct model_range layers = model_stage_layers(desc->config->n_layers, index, n_stages, last_has_more);
    if (n_stages <= 1)
        return;
    desc->shard.stage = index;
    desc->shard.n_stages = n_stages;
    desc->shard.first_layer = layers.first;
    desc->shard.end_layer = layers.first + layers.n;
    desc->shard.last_has_more = last_has_more;
}

/* ---- cutting views ---------------------------------------------------------------------------------- */

static int cut_rows(struct model_range range, const char *name, struct k_weight_view *view, struct quire_error *err)
{
    const uint32_t scale_rows = view->scale_rows > 1 ? view->scale_rows : 1, group = view->format.group;
    const uint64_t n_groups = group ? ((uint64_t)view->n_cols + group - 1) / group : 1;
    const bool has_one = scale_rows >= view->n_rows; /* scale for all rows */
    if (view->format.packing == K_PACKING_PLANES && !has_one && range.first % scale_rows != 0)
        return quire_fail(
            err, QUIRE_UNSUPPORTED,
            "--tensor-parallel-size: %.150s: a rank's rows begin at %u, but %u rows share one scale: use fewer "
            "ranks, or leave it out",
            name, range.first, scale_rows);
    if (view->data)
        view->data = (const char *)view->data + range.first * view->row_stride_bytes;
    if (view->scales)
        view->scales = (const char *)view->scales +
                       k_scale_row(view, range.first) * n_groups * k_dtype_bytes(view->format.scale);
    if (view->zero_points)
        view->zero_points += range.first * n_groups;
    view->n_rows = range.n;
    if (has_one)
        view->scale_rows = range.n;
    return QUIRE_OK;
}

/* Planes have the scales of a row side by side, and int8 in them may have one scale of all of a token's numbers. */
static bool can_cut_cols(struct model_range range, const struct k_weight_view *view)
{
    const struct k_blocks *blocks = k_blocks_of(view->format.packing);
    if (k_format_is_plain(view->format))
        return true;
    return blocks && range.first % blocks->columns == 0 && range.n % blocks->columns == 0;
}

int model_share_cut(const struct model_desc *desc, uint32_t layer, const struct model_tensor *tensor, const char *name,
                    struct k_weight_view *view, enum model_cut *cut, struct quire_error *err)
{
    *cut = CUT_NONE;
    if (desc->shard.n_ranks <= 1 || tensor->owner == OF_MODEL || tensor->shard == SHARD_NONE)
        return QUIRE_OK;
    if (tensor->shard == SHARD_ROWS) {
        *cut = CUT_ROWS;
        return cut_rows(model_share_of(desc, desc->shard.rank, layer, tensor->rows), name, view, err);
    }
    const struct model_range range = model_share_of(desc, desc->shard.rank, layer, tensor->cols);
    *cut = can_cut_cols(range, view) ? CUT_COLS : CUT_GATHERED;
    if (*cut == CUT_GATHERED)
        return QUIRE_OK;
    if (k_format_is_plain(view->format)) {
        view->whole = view->data;
        view->whole_cols = view->n_cols;
    }
    if (view->data)
        view->data = (const char *)view->data + k_format_bytes(view->format, range.first);
    view->n_cols = range.n;
    return QUIRE_OK;
}

int model_share_cut_head(const struct model_desc *desc, const char *name, struct k_weight_view *view,
                         struct quire_error *err)
{
    return cut_rows(model_share_of(desc, desc->shard.rank, desc->config->n_layers, SIZE_VOCAB), name, view, err);
}
