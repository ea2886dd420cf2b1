#include "engine/model/share.h"

#include "engine/model/tensors.h"
#include "kernels/quant.h"
#include "kernels/segments.h"

#include <stdio.h>

static uint32_t n_ranks_of(const struct model_desc *desc)
{
    return desc->share.n_ranks > 1 ? desc->share.n_ranks : 1;
}

/* Ranks' heads are whole segments where they are as many each; each reads whole KV heads, which ranks may have in common. */
static bool heads_allow(const struct model_desc *desc, uint32_t n)
{
    return desc->n_q_heads % n == 0 && (desc->n_kv_heads % n == 0 || n % desc->n_kv_heads == 0);
}

/* Every rank has inner columns and rows of the head. */
static bool lengths_allow(const struct model_desc *desc, uint32_t n)
{
    for (uint32_t r = 0; r < n; r++) {
        const struct model_desc own = model_share_describe(desc, r, n);
        if (model_share_of(&own, r, SIZE_INNER).n == 0 || model_share_of(&own, r, SIZE_VOCAB).n == 0)
            return false;
    }
    return true;
}

int model_share_check(const struct model_desc *desc, uint32_t n_ranks, struct quire_error *err)
{
    char possible[32] = "1";
    size_t at = 1;
    for (uint32_t n = 2; n <= K_SEGMENTS; n *= 2)
        if (heads_allow(desc, n) && lengths_allow(desc, n))
            at += (size_t)snprintf(possible + at, sizeof possible - at, ", %u", n);
    if (n_ranks == 0 || n_ranks > K_SEGMENTS || (n_ranks & (n_ranks - 1)) != 0)
        return quire_fail(err, QUIRE_INVALID,
                          "--tensor-parallel-size: must be 1, 2, 4 or 8, got %u; this model can be divided among: %s",
                          n_ranks, possible);
    if (!heads_allow(desc, n_ranks))
        return quire_fail(err, QUIRE_UNSUPPORTED,
                          "--tensor-parallel-size %u: the model's %u attention heads, which read %u of K and V, can be "
                          "divided among these numbers of ranks: %s",
                          n_ranks, desc->n_q_heads, desc->n_kv_heads, possible);
    if (n_ranks > 1 && !lengths_allow(desc, n_ranks))
        return quire_fail(
            err, QUIRE_UNSUPPORTED,
            "--tensor-parallel-size %u: a rank would have no part of the model's intermediate_size %u or its "
            "vocab_size %u; they can be divided among these numbers of ranks: %s",
            n_ranks, desc->intermediate_size, desc->vocab_size, possible);
    for (uint32_t l = 0; l < desc->n_layers; l++) {
        const struct model_block *block = model_block_of(desc, l, BLOCK_ATTENTION);
        if (n_ranks > 1 && block && block->head_norm == HEAD_NORM_ALL)
            return quire_fail(
                err, QUIRE_UNSUPPORTED,
                "--tensor-parallel-size %u: %s norms over all heads of a token, but no rank has all: leave it "
                "out",
                n_ranks, desc->architecture);
    }
    return QUIRE_OK;
}

struct model_desc model_share_describe(const struct model_desc *whole, uint32_t rank, uint32_t n_ranks)
{
    struct model_desc out = *whole;
    if (n_ranks <= 1)
        return out;
    out.share = (struct model_share){.rank = rank,
                                     .n_ranks = n_ranks,
                                     .n_q_heads = whole->n_q_heads,
                                     .n_kv_heads = whole->n_kv_heads,
                                     .intermediate_size = whole->intermediate_size};
    out.n_q_heads = model_share_of(&out, rank, SIZE_Q).n / out.head_dim;
    out.n_kv_heads = model_share_of(&out, rank, SIZE_KV).n / out.head_dim;
    out.intermediate_size = model_share_of(&out, rank, SIZE_INNER).n;
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
    const struct model_range layers = model_stage_layers(desc->n_layers, index, n_stages, last_has_more);
    if (n_stages > 1)
        desc->stage = (struct model_stage){.index = index,
                                           .n_stages = n_stages,
                                           .first_layer = layers.first,
                                           .end_layer = layers.first + layers.n,
                                           .last_has_more = last_has_more};
}

static struct model_range heads_of(uint32_t n_heads, uint32_t head_dim, uint32_t rank, uint32_t n_ranks)
{
    if (n_heads < n_ranks) /* one, that neighbours have, too */
        return (struct model_range){(uint32_t)((uint64_t)rank * n_heads / n_ranks) * head_dim, head_dim};
    return (struct model_range){rank * (n_heads / n_ranks) * head_dim, n_heads / n_ranks * head_dim};
}

struct model_range model_share_of(const struct model_desc *desc, uint32_t rank, enum model_size size)
{
    const uint32_t n_ranks = n_ranks_of(desc), whole = model_whole_size(desc, size);
    if (n_ranks == 1)
        return (struct model_range){0, whole};
    switch (size) {
    case SIZE_Q:
    case SIZE_KV: return heads_of(whole / desc->head_dim, desc->head_dim, rank, n_ranks);
    case SIZE_INNER: {
        const uint32_t unit = k_segment_unit(whole), per = K_SEGMENTS / n_ranks;
        const uint32_t first = k_segment_begin(whole, unit, rank * per);
        return (struct model_range){first, k_segment_begin(whole, unit, (rank + 1) * per) - first};
    }
    case SIZE_VOCAB: {
        const uint32_t most = (whole - 1) / n_ranks + 1, first = rank * most < whole ? rank * most : whole;
        return (struct model_range){first, whole - first < most ? whole - first : most};
    }
    default: return (struct model_range){0, whole};
    }
}

uint32_t model_share_most(const struct model_desc *desc, enum model_size size)
{
    uint32_t most = 0;
    for (uint32_t r = 0; r < n_ranks_of(desc); r++) {
        const uint32_t n = model_share_of(desc, r, size).n;
        most = n > most ? n : most;
    }
    return most;
}

/* ---- cutting views ---------------------------------------------------------------------------------- */

static int cut_rows(struct model_range range, const char *name, struct k_weight_view *view, struct quire_error *err)
{
    const uint32_t scale_rows = view->scale_rows > 1 ? view->scale_rows : 1, group = view->format.group;
    const uint64_t n_groups = group ? ((uint64_t)view->n_cols + group - 1) / group : 1;
    if (view->format.packing == K_PACKING_PLANES && range.first % scale_rows != 0)
        return quire_fail(
            err, QUIRE_UNSUPPORTED,
            "--tensor-parallel-size: %.150s: a rank's rows begin at %u, but %u rows share one scale: use fewer "
            "ranks, or leave it out",
            name, range.first, scale_rows);
    if (view->data)
        view->data = (const char *)view->data + range.first * view->row_stride_bytes;
    if (view->scales)
        view->scales = (const char *)view->scales +
                       range.first / scale_rows * n_groups * k_dtype_bytes(view->format.scale);
    if (view->zero_points)
        view->zero_points += range.first * n_groups;
    view->n_rows = range.n;
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

int model_share_cut(const struct model_desc *desc, const struct model_tensor *tensor, const char *name,
                    struct k_weight_view *view, enum model_cut *cut, struct quire_error *err)
{
    *cut = CUT_NONE;
    if (n_ranks_of(desc) == 1 || tensor->owner == OF_MODEL || tensor->shard == SHARD_NONE)
        return QUIRE_OK;
    if (tensor->shard == SHARD_ROWS) {
        *cut = CUT_ROWS;
        return cut_rows(model_share_of(desc, desc->share.rank, tensor->rows), name, view, err);
    }
    const struct model_range range = model_share_of(desc, desc->share.rank, tensor->cols);
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
    return cut_rows(model_share_of(desc, desc->share.rank, SIZE_VOCAB), name, view, err);
}
