#include "kernels/cases/op_binding.h"

#include "kernels/args/attention.h"
#include "kernels/args/gemm.h"
#include "kernels/args/kv_copy.h"
#include "kernels/args/norm.h"
#include "kernels/args/rope.h"
#include "kernels/planner.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GUARD_BYTES 256u
#define FILL 0xA5

/* Keeps the first failure. After it, the binding reads and writes nothing more, and its owner releases it. */
static void keep(struct op_binding *n, int status)
{
    n->status = n->status == QUIRE_OK ? status : n->status;
}

/* Where a call may write its error: not over the first one. */
static struct quire_error *error_of(struct op_binding *n)
{
    return n->status == QUIRE_OK ? &n->err : NULL;
}

/* Returns p; NULL is a failure. */
static void *made(struct op_binding *n, void *p)
{
    if (!p)
        keep(n, quire_fail(error_of(n), QUIRE_NO_MEMORY, "%s: no memory on the host", op_name(n->c)));
    return p;
}

static bool is_ok(const struct op_binding *n)
{
    return n->status == QUIRE_OK;
}

static void write_to(struct op_binding *n, bool is_host, void *dst, const void *src, uint64_t bytes)
{
    if (is_host)
        memcpy(dst, src, bytes);
    else if (bytes > 0 && is_ok(n))
        keep(n, n->b->ops->copy_in(n->b, dst, src, bytes, &n->err));
}

/* Fills in pieces: a workspace has 45 MiB, and a host copy of it for each case took kernels_cuda_1_test 5 of its 21
 * s of CPU time. */
static void fill(struct op_binding *n, bool is_host, unsigned char *dst, uint64_t bytes)
{
    unsigned char piece[65536];
    memset(piece, FILL, sizeof piece);
    for (uint64_t at = 0; at < bytes; at += sizeof piece)
        write_to(n, is_host, dst + at, piece, bytes - at < sizeof piece ? bytes - at : sizeof piece);
}

/* Makes a buffer with guards, in the backend's memory or in host memory that it can access. Contents: host, or the
 * fill pattern if host is NULL. Returns NULL after a failure. */
static void *new_buffer_in(struct op_binding *n, bool is_host, const void *host, uint64_t bytes, bool is_input)
{
    void *base;
    if (is_ok(n))
        keep(n, (is_host ? n->b->ops->alloc_host : n->b->ops->alloc)(n->b, bytes + 2 * GUARD_BYTES, &base, &n->err));
    if (!is_ok(n))
        return NULL;
    struct op_buffer *buffer = &n->buffers[n->n_buffers++];
    *buffer = (struct op_buffer){base, bytes, is_host, is_input ? host : NULL};
    fill(n, is_host, base, host ? GUARD_BYTES : bytes + 2 * GUARD_BYTES);
    if (host) {
        write_to(n, is_host, buffer->base + GUARD_BYTES, host, bytes);
        fill(n, is_host, buffer->base + GUARD_BYTES + bytes, GUARD_BYTES);
    }
    return buffer->base + GUARD_BYTES;
}

static void *new_buffer(struct op_binding *n, const void *host, uint64_t bytes, bool is_input)
{
    return new_buffer_in(n, false, host, bytes, is_input);
}

/* Reads a buffer, or a part of it. */
static void read_back(struct op_binding *n, bool is_host, void *dst, const void *src, uint64_t bytes)
{
    if (is_host)
        memcpy(dst, src, bytes);
    else if (is_ok(n))
        keep(n, n->b->ops->copy_out(n->b, dst, src, bytes, &n->err));
}

static void *input(struct op_binding *n, const void *host, uint64_t bytes)
{
    return host ? new_buffer(n, host, bytes, true) : NULL;
}

/* A content that the operation must not have changed. */
static void expect(struct op_binding *n, bool same, const char *what)
{
    if (is_ok(n) && !same)
        keep(n, quire_fail(&n->err, QUIRE_INTERNAL, "%s: %s", op_name(n->c), what));
}

static void check_buffer(struct op_binding *n, const struct op_buffer *buffer)
{
    unsigned char guards[2 * GUARD_BYTES];
    bool same = true;
    read_back(n, buffer->is_host, guards, buffer->base, GUARD_BYTES);
    read_back(n, buffer->is_host, guards + GUARD_BYTES, buffer->base + GUARD_BYTES + buffer->bytes, GUARD_BYTES);
    for (uint32_t i = 0; is_ok(n) && i < sizeof guards; i++)
        same = same && guards[i] == FILL;
    expect(n, same, "a guard was overwritten");
    if (!is_ok(n) || !buffer->host || buffer->bytes == 0)
        return;
    unsigned char *copy = made(n, malloc(buffer->bytes));
    if (copy) {
        read_back(n, buffer->is_host, copy, buffer->base + GUARD_BYTES, buffer->bytes);
        expect(n, is_ok(n) && memcmp(copy, buffer->host, buffer->bytes) == 0, "an input was overwritten");
    }
    free(copy);
}

/* ---- the paged cache ------------------------------------------------------------------------- */

static uint32_t seq_end(const struct op_case *c, uint32_t s)
{
    return c->seqs[s].position + c->seqs[s].n_tokens;
}

/* Returns the numbers below n in the order of the variant's seed; the caller frees them. NULL after a failure. */
static uint32_t *shuffled(struct op_binding *n, uint64_t count)
{
    uint32_t *order = made(n, malloc(count * sizeof *order));
    uint64_t state = n->variant.table_seed;
    for (uint32_t i = 0; order && i < count; i++) {
        uint32_t at = (uint32_t)(op_random(&state) % (i + 1));
        order[i] = order[at];
        order[at] = i;
    }
    return order;
}

/* Makes tables with the blocks in random order, some unused, and a slot for every position. */
static void make_tables(struct op_binding *n)
{
    const struct op_case *c = n->c;
    uint32_t bt = n->cache->kv.block_tokens, n_seqs = op_n_seqs(c), used = 0, positions = 0;
    for (uint32_t s = 0; s < n_seqs; s++) {
        n->cache->table_start[s] = used;
        n->cache->slot_start[s] = positions;
        used += (seq_end(c, s) + bt - 1) / bt;
        positions += seq_end(c, s);
    }
    n->cache->n_blocks = used + 3;
    uint32_t *order = shuffled(n, n->cache->n_blocks);
    n->cache->host_tables = made(n, malloc(used * sizeof *n->cache->host_tables));
    n->cache->host_slots = made(n, malloc(positions * sizeof *n->cache->host_slots));
    if (!is_ok(n)) {
        free(order);
        return;
    }
    memcpy(n->cache->host_tables, order, used * sizeof *order);
    uint32_t at = 0;
    for (uint32_t s = 0; s < n_seqs; s++)
        for (uint32_t p = 0; p < seq_end(c, s); p++)
            n->cache->host_slots[at++] = n->cache->host_tables[n->cache->table_start[s] + p / bt] * bt + p % bt;
    n->tables = input(n, n->cache->host_tables, used * sizeof *n->cache->host_tables);
    free(order);
}

/* Byte offset in the cache of one head of a slot; and of its scale, in an 8-bit cache. */
static uint64_t cache_offset(const struct op_binding *n, uint32_t slot, uint32_t head)
{
    uint64_t bt = n->cache->kv.block_tokens;
    return slot / bt * k_kv_block_bytes(&n->cache->kv) +
           (head * bt + slot % bt) * k_format_bytes(n->cache->kv.format, n->cache->kv.head_dim);
}
static uint64_t scale_offset(const struct op_binding *n, uint32_t slot, uint32_t head)
{
    uint64_t bt = n->cache->kv.block_tokens;
    return slot / bt * k_kv_block_bytes(&n->cache->kv) + k_kv_scales_at(&n->cache->kv) +
           (head * bt + slot % bt) * sizeof(float);
}

/* Allocates what the cache holds before the op: NaN. */
static bool make_host_cache(struct op_binding *n)
{
    n->cache->host_k = made(n, malloc(n->cache->kv_bytes));
    n->cache->host_v = made(n, malloc(n->cache->kv_bytes));
    if (!is_ok(n))
        return false;
    memset(n->cache->host_k, 0xff, n->cache->kv_bytes);
    memset(n->cache->host_v, 0xff, n->cache->kv_bytes);
    return true;
}

/* Makes the cache. Every slot without a position of a sequence holds NaN. */
static void make_cache(struct op_binding *n)
{
    const struct op_case *c = n->c;
    size_t head_bytes = c->head_dim * k_dtype_bytes(c->dtype);
    n->cache->kv_bytes = n->cache->n_blocks * k_kv_block_bytes(&n->cache->kv);
    if (!make_host_cache(n))
        return;
    uint32_t n_positions = 0;
    for (uint32_t s = 0; c->op == K_OP_ATTENTION && s < op_n_seqs(c); s++)
        n_positions += seq_end(c, s);
    for (uint32_t p = 0; p < n_positions; p++) {
        for (uint32_t h = 0; h < c->n_kv_heads; h++) {
            uint64_t from = ((uint64_t)p * c->n_kv_heads + h) * head_bytes;
            uint64_t to = cache_offset(n, n->cache->host_slots[p], h);
            memcpy(n->cache->host_k + to, (const unsigned char *)n->d->k + from, head_bytes);
            memcpy(n->cache->host_v + to, (const unsigned char *)n->d->v + from, head_bytes);
            if (!op_has_byte_cache(c))
                continue;
            to = scale_offset(n, n->cache->host_slots[p], h);
            memcpy(n->cache->host_k + to, n->d->k_scales + (uint64_t)p * c->n_kv_heads + h, sizeof(float));
            memcpy(n->cache->host_v + to, n->d->v_scales + (uint64_t)p * c->n_kv_heads + h, sizeof(float));
        }
    }
    bool is_input = c->op == K_OP_ATTENTION;
    n->cache->layer.k_dev = new_buffer(n, n->cache->host_k, n->cache->kv_bytes, is_input);
    n->cache->layer.v_dev = new_buffer(n, n->cache->host_v, n->cache->kv_bytes, is_input);
}

/* ---- binding --------------------------------------------------------------------------------- */

#define LINE_BYTES 64u

/* Makes a copy in host memory that the backend may keep reading, in *start. Unless the variant uses a checkpoint's
 * layout, the rows are apart, no better aligned than their dtype requires, with NaN between them. */
static size_t copy_weights(struct op_binding *n, unsigned char **start)
{
    const struct op_case *c = n->c;
    size_t size = k_dtype_bytes(c->dtype), row_bytes = c->n_cols * size;
    size_t stride = n->variant.as_checkpoint ? row_bytes : row_bytes + 3 * size;
    size_t before = n->variant.as_checkpoint ? 0 : size, bytes = before + op_all_rows(c) * stride;
    n->weight_memory = made(n, aligned_alloc(LINE_BYTES, (bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES));
    if (!is_ok(n))
        return 0;
    memset(n->weight_memory, 0xff, bytes);
    *start = n->weight_memory + before;
    for (uint64_t r = 0; r < op_all_rows(c); r++)
        memcpy(*start + r * stride, n->d->weights + r * row_bytes, row_bytes);
    return stride;
}

/* The same for the parts of a quantized weight. */
static void copy_parts(struct op_binding *n, struct k_weight_view views[K_WEIGHT_MAX_PARTS], uint32_t n_parts)
{
    size_t size = 1;
    for (uint32_t p = 0; p < n_parts; p++)
        size = k_format_is_plain(n->d->parts[p].format) ? 2 : size;
    const size_t before = n->variant.as_checkpoint ? 0 : size, apart = 3 * before;
    size_t bytes = before, at = before;
    for (uint32_t p = 0; p < n_parts; p++)
        bytes += n->d->parts[p].n_rows * (n->d->parts[p].row_stride_bytes + apart);
    /* The data ends where the memory ends, so that a memory checker finds reads past the end. */
    n->weight_memory = made(n, n->variant.as_checkpoint
                                   ? aligned_alloc(LINE_BYTES, (bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES)
                                   : malloc(bytes - apart));
    if (!is_ok(n))
        return;
    memset(n->weight_memory, 0xff, bytes - apart);
    for (uint32_t p = 0; p < n_parts; p++) {
        views[p] = n->d->parts[p];
        const size_t row_bytes = views[p].row_stride_bytes;
        views[p].data = n->weight_memory + at;
        views[p].row_stride_bytes = row_bytes + apart;
        for (uint32_t r = 0; r < views[p].n_rows; r++, at += row_bytes + apart)
            memcpy(n->weight_memory + at, (const char *)n->d->parts[p].data + r * row_bytes, row_bytes);
    }
}

/* all: the rows of every expert */
static void create_experts(struct op_binding *n, const struct k_weight_view *all)
{
    struct k_weight_view *views = made(n, malloc(n->c->moe->n_experts * sizeof *views));
    for (uint32_t e = 0; views && e < n->c->moe->n_experts; e++)
        views[e] = op_expert_view(n->c, all, e);
    if (is_ok(n))
        keep(n, n->b->ops->weight_create(n->b, views, n->c->moe->n_experts, 1, &n->weight, &n->err));
    free(views);
}

static void bind_quantized(struct op_binding *n)
{
    struct k_weight_view views[K_WEIGHT_MAX_PARTS];
    const uint32_t n_parts = n->c->n_parts ? n->c->n_parts : 1;
    copy_parts(n, views, n_parts);
    if (is_ok(n) && op_is_moe_gemm(n->c))
        create_experts(n, &views[0]);
    else if (is_ok(n))
        keep(n, n->b->ops->weight_create(n->b, views, 1, n_parts, &n->weight, &n->err));
}

static void bind_weight(struct op_binding *n)
{
    const struct op_case *c = n->c;
    uint32_t n_parts = c->n_parts ? c->n_parts : 1, first = 0;
    /* A device has its own copy: dozens of host copies would take longer than the timed calls. */
    bool is_uploaded = n->variant.as_checkpoint && n->b->ops->memory;
    unsigned char *start = n->d->weights;
    size_t stride = is_uploaded ? c->n_cols * k_dtype_bytes(c->dtype) : copy_weights(n, &start);
    if (!is_ok(n))
        return;
    struct k_weight_view views[K_WEIGHT_MAX_PARTS];
    if (op_is_moe_gemm(c)) {
        views[0] = k_plain_view(start, c->dtype, (uint32_t)op_all_rows(c), c->n_cols, stride);
        create_experts(n, &views[0]);
        return;
    }
    for (uint32_t p = 0; p < n_parts; p++) {
        uint32_t rows = op_part_rows(c, p);
        views[p] = k_plain_view(start + first * stride, c->dtype, rows, c->n_cols, stride);
        first += rows;
    }
    keep(n, n->b->ops->weight_create(n->b, views, 1, n_parts, &n->weight, &n->err));
}

static void bind_kv(struct op_binding *n)
{
    const struct op_case *c = n->c;
    n->cache->kv = (struct k_kv_shape){k_kv_format(c->dtype), c->n_kv_heads, c->head_dim, c->block_tokens, c->head_dim};
    if (n->variant.block_tokens > 0)
        n->cache->kv.block_tokens = n->variant.block_tokens;
    make_tables(n);
    if (is_ok(n))
        make_cache(n);
    if (c->op != K_OP_ROPE_KV || !is_ok(n) ||
        !(n->cache->token_slots = made(n, malloc(n->n_tokens * sizeof *n->cache->token_slots))))
        return;
    for (uint32_t t = 0; t < n->n_tokens; t++) {
        uint32_t seq, position = op_token_position(c, t, &seq);
        n->cache->token_slots[t] = op_is_fill(c, t) ? K_NO_SLOT
                                                    : n->cache->host_slots[n->cache->slot_start[seq] + position];
    }
    n->slots = input(n, n->cache->token_slots, n->n_tokens * sizeof *n->cache->token_slots);
}

/* Returns whether a block copy goes to host memory. The variant selects which of the two arenas is in host memory. */
static bool copies_to_host(const struct op_binding *n)
{
    return n->variant.table_seed > 0;
}

/* Each pair's block goes to a different block of an arena of the same size, which holds NaN. */
static void bind_copy(struct op_binding *n)
{
    const struct op_case *c = n->c;
    n->cache->kv = (struct k_kv_shape){k_kv_format(c->dtype), c->n_kv_heads, c->head_dim, c->block_tokens, c->head_dim};
    n->cache->n_blocks = c->n_rows;
    n->cache->kv_bytes = n->cache->n_blocks * k_kv_block_bytes(&n->cache->kv);
    if (!make_host_cache(n))
        return;
    n->cache->source.k_dev = new_buffer_in(n, !copies_to_host(n), n->d->k, n->cache->kv_bytes, true);
    n->cache->source.v_dev = new_buffer_in(n, !copies_to_host(n), n->d->v, n->cache->kv_bytes, true);
    n->cache->layer.k_dev = new_buffer_in(n, copies_to_host(n), n->cache->host_k, n->cache->kv_bytes, false);
    n->cache->layer.v_dev = new_buffer_in(n, copies_to_host(n), n->cache->host_v, n->cache->kv_bytes, false);
    uint32_t *order = shuffled(n, n->cache->n_blocks);
    n->cache->pairs = made(n, malloc(n->n_tokens * sizeof *n->cache->pairs));
    for (uint32_t t = 0; order && n->cache->pairs && t < n->n_tokens; t++)
        n->cache->pairs[t] = (struct k_block_pair){.from = n->d->ids[t], .to = order[t]};
    free(order);
}

static void bind_workspace(struct op_binding *n)
{
    const struct op_case *c = n->c;
    uint32_t longest = 0;
    for (uint32_t s = 0; s < op_n_seqs(c); s++)
        longest = seq_end(c, s) > longest ? seq_end(c, s) : longest;
    struct k_plan_dims dims = {
        .n_tokens = n->n_tokens,
        .n_seqs = op_n_seqs(c),
        .n_q_heads = c->n_q_heads,
        .n_kv_heads = c->n_kv_heads,
        .head_dim = c->head_dim,
        .max_model_len = longest,
        .window = c->window,
        .max_gemm_cols = op_is_gemm(c) ? c->n_cols : 0,
        .n_threads = n->variant.n_threads ? n->variant.n_threads : 4,
        .n_experts = c->moe ? c->moe->n_experts : 0,
        .n_used = c->moe ? c->moe->n_used : 0,
        .expert_rows = c->n_rows,
        .choice_cols = c->moe && c->moe->per_choice ? c->n_cols : 0,
    };
    struct k_plan_bytes bytes;
    n->b->ops->planner->workspace(&dims, &bytes);
    n->workspace = new_buffer(n, NULL, c->moe ? bytes.moe : op_is_gemm(c) ? bytes.gemm : bytes.attention, false);
    n->cache->plan_bytes = bytes.attention_plan;
    if (c->op == K_OP_ATTENTION) {
        n->cache->plan_dev = new_buffer(n, NULL, n->cache->plan_bytes, false);
        n->cache->plan = made(n, calloc(1, n->cache->plan_bytes + 1));
    }
}

static void bind_texts(struct op_binding *n)
{
    struct k_pool_row rows[OP_MAX_SEQS];
    uint32_t token = 0, n_texts = op_n_seqs(n->c);
    for (uint32_t s = 0; s < n_texts; token += n->c->seqs[s++].n_tokens)
        rows[s] = (struct k_pool_row){token, n->c->seqs[s].n_tokens};
    n->texts = new_buffer(n, NULL, n_texts * sizeof *rows, false);
    write_to(n, false, n->texts, rows, n_texts * sizeof *rows);
}

static void bind_moe(struct op_binding *n)
{
    const struct op_case *c = n->c;
    const struct op_moe_data *d = n->d->moe;
    const uint64_t t = n->n_tokens, n_choices = t * c->moe->n_used;
    n->moe->router = input(n, d->router, (uint64_t)c->moe->n_experts * c->n_cols * 4);
    n->moe->correction = input(n, d->correction, c->moe->n_experts * UINT64_C(4));
    n->moe->gate = input(n, d->gate, c->n_cols * UINT64_C(4));
    n->moe->weights = input(n, d->weights, n_choices * 4);
    n->moe->shared = input(n, d->shared, t * c->n_cols * 4);
    n->moe->shared_weights = input(n, d->shared_weights, t * 4);
    if (c->op != K_OP_MOE_ROUTE)
        return;
    n->moe->experts_out = new_buffer(n, NULL, n_choices * 4, false);
    if (c->extra)
        n->moe->shared_out = new_buffer(n, NULL, t * 4, false);
}

/* Binds the arrays of op_data. */
static void bind_arrays(struct op_binding *n)
{
    const struct op_case *c = n->c;
    const struct op_data *d = n->d;
    uint64_t t = n->n_tokens, x_bytes = t * d->x_width * 4;
    bool x_written = c->op == K_OP_RMSNORM || c->op == K_OP_ROPE_KV || c->op == K_OP_SAMPLE || c->op == K_OP_ACTIVATE;
    if (x_bytes > 0)
        n->x = new_buffer(n, d->x, x_bytes, !x_written);
    n->add = c->into ? NULL : input(n, d->add, t * c->n_cols * 4);
    const uint64_t n_vector = op_is_gemm(c)             ? op_all_rows(c)
                              : c->op == K_OP_MOE_ROUTE ? c->moe->n_experts
                              : c->op == K_OP_ATTENTION ? c->n_q_heads
                                                        : c->n_cols;
    n->vector = input(n, d->vector, n_vector * 4);
    n->bias = input(n, d->bias, c->n_cols * (uint64_t)4);
    n->q_norm = input(n, d->q_norm, c->head_dim * 4);
    n->k_norm = input(n, d->k_norm, c->head_dim * 4);
    n->cos_sin = input(n, d->cos_sin, t * (c->head_dim - c->n_fixed) * 4);
    n->sink_cos_sin = input(n, d->sink_cos_sin, t * (c->head_dim - c->n_fixed) * 4);
    n->sink_q = input(n, d->sink_q, t * c->n_q_heads * c->head_dim * 4);
    if (c->op == K_OP_ROPE_KV && c->sinks > 0)
        n->sink_q = new_buffer(n, NULL, t * c->n_q_heads * c->head_dim * 4, false);
    n->ids = input(n, d->ids, (c->op == K_OP_GATHER ? c->n_rows : op_is_moe_gemm(c) ? t * c->moe->n_used : t) * 4);
    if (c->moe)
        bind_moe(n);
    if (c->op == K_OP_MOE_GEMM_GATED)
        n->gate_up = new_buffer(n, NULL, t * c->moe->n_used * c->n_rows * 4, false);
    if (c->op == K_OP_GEMM_GATED)
        n->gate_up = new_buffer(n, NULL, t * c->n_rows * 4, false);
    if (c->op == K_OP_ATTENTION) {
        n->cache->rows = made(n, calloc(op_n_seqs(c), sizeof *n->cache->rows));
        n->cache->rows_dev = new_buffer(n, NULL, op_n_seqs(c) * sizeof *n->cache->rows, false);
    }
    if (c->op == K_OP_POOL)
        bind_texts(n);
}

static void bind_sampler(struct op_binding *n)
{
    keep(n, op_sampler_open(n->sampler, n->b, n->n_tokens, n->c->n_rows, &n->err));
    if (!is_ok(n))
        *n->sampler = (struct op_sampler){0};
}

static void bind_output(struct op_binding *n)
{
    const struct op_case *c = n->c;
    struct op_output shape;
    if ((c->op == K_OP_RMSNORM && c->n_rows) || c->op == K_OP_ACTIVATE) {
        n->out = n->x;
    } else if (c->op != K_OP_ROPE_KV && c->op != K_OP_SAMPLE && c->op != K_OP_KV_COPY) {
        keep(n, op_output_make(c, &shape, &n->err));
        if (!is_ok(n))
            return;
        n->out = new_buffer(n, c->into ? n->d->add : NULL,
                            /* NULL of a combination */ shape.n_tokens * shape.arrays[0].token_bytes, false);
        op_output_free(&shape);
    }
}

int op_bind(struct k_backend *b, const struct op_case *c, const struct op_data *d, const struct op_variant *variant,
            struct op_binding **out, struct quire_error *err)
{
    struct op_binding *n = calloc(1, sizeof *n + sizeof *n->cache + sizeof *n->sampler + sizeof *n->moe);
    *out = NULL;
    if (!n)
        return quire_fail(err, QUIRE_NO_MEMORY, "%s: no memory on the host", op_name(c));
    *n = (struct op_binding){
        .b = b, .c = c, .d = d, .variant = *variant, .n_tokens = op_n_tokens(c), .cache = (struct op_cache *)(n + 1)};
    n->sampler = (struct op_sampler *)(n->cache + 1);
    n->moe = (struct op_moe_binding *)(n->sampler + 1);
    bind_arrays(n);
    if (is_ok(n) && op_is_quantized(c))
        bind_quantized(n);
    else if (is_ok(n) && d->weights)
        bind_weight(n);
    if (is_ok(n) && (c->op == K_OP_ROPE_KV || c->op == K_OP_ATTENTION))
        bind_kv(n);
    if (is_ok(n) && c->op == K_OP_KV_COPY)
        bind_copy(n);
    if (is_ok(n) && (c->op == K_OP_ATTENTION || op_is_gemm(c) || c->op == K_OP_MOE_ROUTE))
        bind_workspace(n);
    if (is_ok(n) && c->op == K_OP_SAMPLE)
        bind_sampler(n);
    if (is_ok(n))
        bind_output(n);
    if (is_ok(n)) {
        *out = n;
        return QUIRE_OK;
    }
    const int status = quire_fail(err, (enum quire_status)n->status, "%s", n->err.text);
    op_release(n);
    return status;
}

/* ---- calling --------------------------------------------------------------------------------- */

/* Makes the rows of a chunk and their plan. */
static int plan_attention(struct op_binding *n, uint32_t chunk, uint32_t index, struct quire_error *err)
{
    struct op_cache *a = n->cache;
    uint32_t n_rows = 0, token = 0;
    for (uint32_t s = 0; s < op_n_seqs(n->c); s++) {
        const struct op_seq *seq = &n->c->seqs[s];
        uint32_t from = index * chunk;
        if (from < seq->n_tokens)
            a->rows[n_rows++] = (struct k_attn_row){token + from,
                                                    seq->n_tokens - from < chunk ? seq->n_tokens - from : chunk,
                                                    seq->position + from, n->cache->table_start[s]};
        token += seq->n_tokens;
    }
    a->n_rows = n_rows;
    int status = n->b->ops->copy_in(n->b, a->rows_dev, a->rows, n_rows * sizeof *a->rows, err);
    if (status != QUIRE_OK)
        return status;
    status = n->b->ops->attention_plan(n->b,
                                       &(struct k_attention_plan_args){.rows = a->rows,
                                                                       .kv = &n->cache->kv,
                                                                       .plan = a->plan,
                                                                       .n_rows = n_rows,
                                                                       .n_tokens = n->n_tokens,
                                                                       .n_q_heads = n->c->n_q_heads,
                                                                       .window = n->c->window,
                                                                       .whole = n->c->whole},
                                       err);
    return status == QUIRE_OK ? n->b->ops->copy_in(n->b, a->plan_dev, a->plan, a->plan_bytes, err) : status;
}

/* The rows of the previous plan must have run. */
static int plan_samples(struct op_binding *n, uint32_t first, uint32_t count, struct quire_error *err)
{
    uint64_t ticket;
    uint32_t n_planned;
    int status = n->b->ops->fence(n->b, &ticket, err);
    if (status == QUIRE_OK)
        status = n->b->ops->wait(n->b, ticket, err);
    if (status == QUIRE_OK)
        status = op_sampler_plan(n->sampler, n->d->rows + first, count, &n_planned, err);
    assert(status != QUIRE_OK ||
           n_planned == count); /* cases use few penalties and biases, so one plan holds all rows */
    return status;
}

/* ---- the step ---- */

static uint32_t all_tokens(const struct op_binding *n)
{
    return n->c->op == K_OP_GATHER ? n->c->n_rows : n->c->op == K_OP_POOL ? op_n_seqs(n->c) : n->n_tokens;
}

static int call_chunks(struct op_binding *n, struct quire_error *err)
{
    uint32_t total = all_tokens(n), chunk = n->variant.chunk && !n->c->whole ? n->variant.chunk : total;
    for (uint32_t t = 0, i = 0; t < total; t += chunk, i++) {
        uint32_t count = total - t < chunk ? total - t : chunk;
        int status = n->c->op == K_OP_ATTENTION ? plan_attention(n, chunk, i, err)
                     : n->c->op == K_OP_SAMPLE  ? plan_samples(n, t, count, err)
                                                : QUIRE_OK;
        if (status == QUIRE_OK)
            status = op_calls[n->c->op](n, t, count, err);
        if (status != QUIRE_OK)
            return status;
    }
    return QUIRE_OK;
}

int op_queue(struct op_binding *n, struct quire_error *err)
{
    assert(n->variant.chunk == 0);
    return op_calls[n->c->op](n, 0, all_tokens(n), err);
}

int op_rewind(struct op_binding *n, struct quire_error *err)
{
    uint64_t bytes = (uint64_t)n->n_tokens * n->d->x_width * 4;
    if (n->c->into && n->d->add) {
        int status = n->b->ops->copy_in(n->b, n->out, n->d->add, (uint64_t)n->n_tokens * n->c->n_cols * 4, err);
        if (status != QUIRE_OK)
            return status;
    }
    return n->x ? n->b->ops->copy_in(n->b, n->x, n->d->x, bytes, err) : QUIRE_OK;
}

int op_call_in_step(struct op_binding *n, struct quire_error *err)
{
    uint64_t ticket;
    int status = call_chunks(n, err);
    if (status == QUIRE_OK)
        status = n->b->ops->fence(n->b, &ticket, err);
    return status == QUIRE_OK ? n->b->ops->wait(n->b, ticket, err) : status;
}

int op_call(struct op_binding *n, struct quire_error *err)
{
    int status = n->b->ops->step_begin(n->b, err);
    if (status == QUIRE_OK)
        status = op_call_in_step(n, err);
    return status == QUIRE_OK ? n->b->ops->step_end(n->b, err) : status;
}

/* ---- fetching -------------------------------------------------------------------------------- */

static void fetch_rows(struct op_binding *n, struct op_array *array, const float *dev, uint32_t n_tokens)
{
    read_back(n, false, array->bytes, dev, n_tokens * array->token_bytes);
}

/* Moves one head's bytes out of the cache and restores the earlier contents there. */
static void take(unsigned char *out, unsigned char *cache, const unsigned char *before, uint64_t at, size_t bytes)
{
    memcpy(out, cache + at, bytes);
    memcpy(cache + at, before + at, bytes);
}

/* Takes q from the qkv rows, and K and V from their slots. Every other slot must be unchanged. */
static void fetch_rope_kv(struct op_binding *n, struct op_output *out)
{
    uint64_t stride = n->d->x_width * (uint64_t)4;
    unsigned char *x = made(n, malloc(n->n_tokens * stride)), *k = made(n, malloc(n->cache->kv_bytes));
    read_back(n, false, x, n->x, n->n_tokens * stride);
    for (uint32_t t = 0; is_ok(n) && t < n->n_tokens; t++)
        memcpy(out->arrays[0].bytes + t * out->arrays[0].token_bytes, x + t * stride, out->arrays[0].token_bytes);
    size_t head_bytes = k_format_bytes(n->cache->kv.format, n->cache->kv.head_dim);
    for (int side = 0; side < 2 && is_ok(n); side++) {
        unsigned char *before = side ? n->cache->host_v : n->cache->host_k;
        read_back(n, false, k, side ? n->cache->layer.v_dev : n->cache->layer.k_dev, n->cache->kv_bytes);
        for (uint32_t t = 0; is_ok(n) && t < n->n_tokens; t++) {
            for (uint32_t h = 0; h < n->cache->kv.n_kv_heads && !op_is_fill(n->c, t); h++) {
                unsigned char *row = out->arrays[1 + side].bytes + t * out->arrays[1 + side].token_bytes;
                uint32_t slot = n->cache->token_slots[t];
                take(row + h * head_bytes, k, before, cache_offset(n, slot, h), head_bytes);
                if (op_has_byte_cache(n->c))
                    take(row + n->cache->kv.n_kv_heads * head_bytes + h * sizeof(float), k, before,
                         scale_offset(n, slot, h), sizeof(float));
            }
        }
        expect(n, is_ok(n) && memcmp(k, before, n->cache->kv_bytes) == 0, "a slot that is not the step's was written");
    }
    free(x);
    free(k);
}

/* Takes the copied blocks. Every other block must be unchanged. */
static void fetch_copies(struct op_binding *n, struct op_output *out)
{
    uint64_t bytes = k_kv_block_bytes(&n->cache->kv);
    unsigned char *cache = made(n, malloc(n->cache->kv_bytes));
    for (int side = 0; side < 2 && is_ok(n); side++) {
        const unsigned char *before = side ? n->cache->host_v : n->cache->host_k;
        read_back(n, copies_to_host(n), cache, side ? n->cache->layer.v_dev : n->cache->layer.k_dev,
                  n->cache->kv_bytes);
        for (uint32_t t = 0; is_ok(n) && t < n->n_tokens; t++) {
            uint64_t at = n->cache->pairs[t].to * bytes;
            memcpy(out->arrays[side].bytes + t * bytes, cache + at, bytes);
            memcpy(cache + at, before + at, bytes);
        }
        expect(n, is_ok(n) && memcmp(cache, before, n->cache->kv_bytes) == 0, "a block that is no copy's was written");
    }
    free(cache);
}

int op_fetch(struct op_binding *n, struct op_output *out, struct quire_error *err)
{
    int status = op_output_make(n->c, out, err);
    if (status != QUIRE_OK)
        return status;
    for (uint32_t i = 0; i < n->n_buffers; i++)
        check_buffer(n, &n->buffers[i]);
    if (n->c->op == K_OP_SAMPLE)
        fetch_rows(n, &out->arrays[0], (const float *)n->sampler->results_dev, out->n_tokens);
    else if (n->c->op == K_OP_ROPE_KV)
        fetch_rope_kv(n, out);
    else if (n->c->op == K_OP_KV_COPY)
        fetch_copies(n, out);
    else
        fetch_rows(n, &out->arrays[0], n->out, out->n_tokens);
    if (n->c->op == K_OP_MOE_ROUTE) {
        fetch_rows(n, &out->arrays[1], (const float *)(const void *)n->moe->experts_out, out->n_tokens);
        if (n->c->extra)
            fetch_rows(n, &out->arrays[2], n->moe->shared_out, out->n_tokens);
    }
    if (n->c->op == K_OP_ROPE_KV && n->c->sinks > 0)
        fetch_rows(n, &out->arrays[3], n->sink_q, out->n_tokens);
    if (n->c->op == K_OP_RMSNORM && !n->c->n_rows)
        fetch_rows(n, &out->arrays[1], n->x, out->n_tokens);
    if (is_ok(n))
        return QUIRE_OK;
    op_output_free(out);
    return quire_fail(err, (enum quire_status)n->status, "%s", n->err.text);
}

void op_release(struct op_binding *n)
{
    if (!n)
        return;
    for (uint32_t i = 0; i < n->n_buffers; i++)
        n->b->ops->free(n->b, n->buffers[i].base);
    if (n->weight)
        n->b->ops->weight_destroy(n->b, n->weight);
    free(n->cache->rows);
    free(n->cache->plan);
    if (n->sampler->b)
        op_sampler_close(n->sampler);
    free(n->weight_memory);
    free(n->cache->host_slots);
    free(n->cache->token_slots);
    free(n->cache->pairs);
    free(n->cache->host_tables);
    free(n->cache->host_k);
    free(n->cache->host_v);
    free(n);
}

int op_run(struct k_backend *b, const struct op_case *c, const struct op_data *d, const struct op_variant *variant,
           struct op_output *out, struct quire_error *err)
{
    struct op_binding *n;
    *out = (struct op_output){0};
    int status = op_bind(b, c, d, variant, &n, err);
    if (status == QUIRE_OK)
        status = op_call(n, err);
    if (status == QUIRE_OK)
        status = op_fetch(n, out, err);
    op_release(n);
    return status;
}
