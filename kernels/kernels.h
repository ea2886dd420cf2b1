/* kernels/: the interface between the engine and the arithmetic.
 *
 * A backend is a table of functions over an opaque object. `ref` (plain C, the normative arithmetic of
 * docs/internals/numerics.md) and `cpu` are linked in. `cuda` is a library that is opened if a driver is present. This
 * interface does not depend on models, requests or schedulers.
 *
 * Threads: every call on one backend comes from one thread, the engine's. A backend may own worker threads, which are
 * not visible here. Order: operations take effect in the order of the calls. On a device they may still be running when
 * the call returns. After fence() and wait() the host may read the results. Memory: pointers named `dev` point into the
 * backend's memory (host memory for ref and cpu). The caller must never dereference them. Operations allocate nothing.
 * Errors: an operation returns a status and fills err. After an operation on a device fails, every later call on that
 * backend fails.
 *
 * Shapes: row-major, last index fastest. T = tokens in the step, H = hidden size, D = head_dim, Q = query heads, KV =
 * KV heads, V = vocabulary. Activations are f32 everywhere.
 */
#ifndef QUIRE_KERNELS_H
#define QUIRE_KERNELS_H

#include "base/status.h"
#include "kernels/operations.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- formats ------------------------------------------------------------------------------- */

enum k_dtype { K_F32, K_F16, K_BF16, K_INT /* its number of bits is in the format */, K_E4M3, K_E5M2 };
size_t k_dtype_bytes(enum k_dtype dtype); /* only for a dtype of whole bytes */
const char *k_dtype_name(
    enum k_dtype dtype); /* "float32", "float16", "bfloat16", "int", "float8_e4m3", "float8_e5m2" */

enum k_packing {
    K_PACKING_NONE, /* elements in sequence, each of whole bytes, without scales */
    /* As NONE, but two 4-bit elements share a byte, the low half first. Scales and zero points are separate planes. */
    K_PACKING_PLANES,
    /* GGUF's blocks of 32 or 256 columns, which contain their scales. A row consists of whole blocks. */
    K_PACKING_Q8_0,
    K_PACKING_Q4_0,
    K_PACKING_Q4_1,
    K_PACKING_Q5_0,
    K_PACKING_Q5_1,
    K_PACKING_Q2_K,
    K_PACKING_Q3_K,
    K_PACKING_Q4_K,
    K_PACKING_Q5_K,
    K_PACKING_Q6_K,
};
#define K_N_PACKINGS 12

/* The storage format of a tensor: a tensor in a file, a weight, or a KV cache. */
struct k_format {
    enum k_dtype kind; /* the type of an element before it is widened */
    uint32_t bits; /* size of a stored element; 4 is half a byte */
    uint32_t group; /* elements of a row that share a scale; 0: the whole row, or no scales */
    enum k_dtype scale; /* type of the scales */
    enum k_packing packing;
};
/* The plain formats, without groups. For initializers. */
#define K_FORMAT_F32 {K_F32, 32, 0, K_F32, K_PACKING_NONE}
#define K_FORMAT_F16 {K_F16, 16, 0, K_F32, K_PACKING_NONE}
#define K_FORMAT_BF16 {K_BF16, 16, 0, K_F32, K_PACKING_NONE}
struct k_format k_format_of(enum k_dtype dtype);
/* Returns the format of a GGUF packing. */
struct k_format k_format_of_blocks(enum k_packing packing);
/* Returns a format of planes: int4, int8, e4m3 or e5m2, with a scale for each `group` columns of a row (0: one for the
 * whole row). */
struct k_format k_format_of_planes(enum k_dtype kind, uint32_t bits, uint32_t group, enum k_dtype scale);
bool k_format_is_plain(struct k_format format); /* one of the three plain formats: no scales */
bool k_format_is_quantized(struct k_format format); /* one of the other formats of docs/internals/numerics.md §19 */
uint64_t k_format_bytes(struct k_format format, uint64_t n); /* size of a row of n elements, without planes of scales */
const char *k_format_name(struct k_format format); /* for messages: "bfloat16", "Q4_K", "int4" */

/* The order in which a GEMM sums its products (docs/internals/numerics.md). The promise of equal bits holds for one
 * form. */
enum k_gemm_form {
    K_FORM_LANE, /* 16 f32 lanes over k, one fixed tree; any weight dtype */
    K_FORM_TILE, /* 32-deep bf16 tiles, activations as two bf16 terms; bf16 and f16 weights */
    K_FORM_TILE_BF16, /* the same with activations rounded to bf16; bf16 weights only */
    /* Tensor cores: f16 factors in 16-deep products, chunks of 512; bf16 and f16 weights. Attention over an f16 cache
     * then uses tensor cores too. */
    K_FORM_MMA,
    /* Quantized integer weights: activations are rounded to int8, and a group's products are summed as integers. All
     * other weights use the lane form. */
    K_FORM_INT8,
    K_FORM_AUTO, /* in options only: the backend chooses */
};
#define K_N_FORMS 5

/* The numerics version (docs/internals/numerics.md). Code that stores computed results compares it, together with the
 * form and the formats. It changes if and only if a change of the specification changes a bit. */
#define K_LAW_VERSION 2
const char *k_form_name(enum k_gemm_form form); /* "lane", "tile", "tile of bfloat16 activations", "mma", "int8" */

/* ---- weights ------------------------------------------------------------------------------ */

/* Part of a weight matrix in a mapped checkpoint. A shard is a view of fewer rows or columns of the same mapping. The
 * mapping must outlive the weight. A backend that computes on host memory uses it in place; other backends copy it
 * (weight_bytes of the planner). */
struct k_weight_view {
    const void *data; /* host memory, row 0, column 0 of the part; aligned at least to an element */
    struct k_format format;
    uint32_t n_rows; /* output features */
    uint32_t n_cols; /* input features */
    uint64_t row_stride_bytes;
    /* Only for K_PACKING_PLANES, otherwise NULL and 0. Row r's scales are row r / scale_rows of `scales`. Each group
     * has one scale of type format.scale; the last group may be short. scale_rows 0 means 1. */
    const void *scales;
    uint32_t scale_rows;
    /* One int8_t per row and group, which is subtracted from its integers. NULL subtracts 0, or 8 for 4-bit elements.
     * Stored elements of 4 bits are 0 to 15, of 8 bits -128 to 127. */
    const int8_t *zero_points;
    /* NULL, or [n_cols]: column i of the data multiplies column permutation[i] of the input. Only for a weight whose K
     * is one segment. */
    const uint32_t *permutation;
    float x_scale; /* in the int8 form, the scale of all activations that the file specifies; 0 if it specifies none */
    /* If the columns were cut out of a plain matrix: row 0, column 0 of that matrix, and its number of columns. The row
     * stride is the same. Forms read properties of whole rows there, such as the exponents of
     * docs/internals/numerics.md §17. Otherwise NULL. */
    const void *whole;
    uint32_t whole_cols;
    bool is_table; /* rows are only looked up; no GEMM uses this weight */
};

/* Returns a view of a matrix in a plain format. */
struct k_weight_view k_plain_view(const void *data, enum k_dtype dtype, uint32_t n_rows, uint32_t n_cols,
                                  uint64_t row_stride_bytes);

#define K_WEIGHT_MAX_PARTS 4
struct k_weight; /* one or more parts stacked along rows (q, k and v; gate and up) */

/* ---- KV cache ------------------------------------------------------------------------------ */

/* One layer's K and V, each n_blocks blocks in backend memory. A block is [KV, block_tokens, D] of the format. A
 * quantized block holds bytes, followed by their scales, float [KV, block_tokens]. */
struct k_kv_layer {
    void *k_dev;
    void *v_dev;
};

#define K_NO_SLOT UINT32_MAX /* the slot of a padding token, whose K and V are not stored */

struct k_kv_shape {
    struct k_format format; /* from k_kv_format() */
    uint32_t n_kv_heads;
    uint32_t head_dim; /* multiple of 16, at most 256 */
    uint32_t block_tokens;
};
/* F32 or F16, or K_INT (8 bits), K_E4M3 or K_E5M2 with a scale for each token and head. */
struct k_format k_kv_format(enum k_dtype kind);
#ifdef __cplusplus
extern "C" { /* for launches of GPU kernels, too */
#endif
uint64_t k_kv_scales_at(const struct k_kv_shape *kv); /* byte offset of a block's scales, if it has any */
uint64_t k_kv_block_bytes(const struct k_kv_shape *kv); /* size of K, and also of V; a multiple of 16 */
#ifdef __cplusplus
}
#endif

/* ---- operations ----------------------------------------------------------------------------- */

struct k_embed_args { /* out[t] = table[ids[t]] widened to f32 */
    const struct k_weight *table; /* [V, H] */
    const uint32_t *ids_dev; /* [T], each < V */
    float *out_dev; /* [T, H] */
    uint32_t n_tokens;
    bool into; /* out += the row */
};

struct k_rmsnorm_args { /* x += add; out = x * rsqrt(mean(x²) + eps) * weight, or out += that */
    float *x_dev; /* [T, H] residual stream; updated in place unless add_dev is NULL */
    const float *add_dev; /* [T, H] or NULL */
    /* add_dev holds this rank's part of a sum: run all_reduce() with this bias first. Rows must not be strided then.
     * The content of add_dev is undefined afterwards. */
    bool add_is_part;
    const float *add_bias_dev; /* [H] or NULL */
    const float *weight_dev; /* [H] */
    float *out_dev; /* [T, H]; not x_dev, unless nothing is added to x_dev or out_dev */
    uint32_t n_tokens, n_cols;
    uint32_t row_stride; /* floats from a row of x, add and out to the next; 0 means n_cols */
    bool into; /* out += the norm; add_dev must be NULL */
    bool for_gemm; /* only GEMMs of n_tokens with x_for_gemm read out_dev; not with `into` */
    float eps;
};

struct k_layernorm_args { /* out = (s - mean(s)) * rsqrt(var(s) + eps) * weight + bias, s = x + add */
    const float *x_dev; /* [T, H] */
    const float *add_dev; /* [T, H] or NULL */
    const float *weight_dev, *bias_dev; /* [H] */
    float *out_dev; /* [T, H]; may be x_dev */
    uint32_t n_tokens, n_cols;
    float eps;
};

enum k_activation { K_ACT_GELU, K_ACT_TANH };
struct k_activate_args { /* x = act(x), in place */
    float *x_dev; /* [T, n] */
    uint32_t n_tokens, n_cols;
    enum k_activation activation;
};

enum k_pooling { K_POOL_FIRST, K_POOL_LAST, K_POOL_MEAN };
struct k_pool_row { /* the tokens of one text in the step */
    uint32_t token, n_tokens;
};
struct k_pool_args { /* out[r] = the row's first or last token, or the mean of all, optionally normalized to length 1 */
    const float *x_dev; /* [T, H] */
    const struct k_pool_row *rows_dev; /* [n_rows], at least one token each */
    float *out_dev; /* [n_rows, H]; may be x_dev if row r is token r alone */
    uint32_t n_rows, n_cols;
    enum k_pooling pooling;
    bool normalize; /* divide by the length, or by 1e-12 if the length is less */
};

/* An operation that writes only for GEMMs (`for_gemm`) may store the data in the layout that the backend's GEMMs read,
 * for example as f16 factors instead of floats. The layout uses the bytes that the floats would use. The reader sets
 * `x_for_gemm`. */
struct k_gemm_args { /* y[t, r] = Σ_k w[r, k] x[t, k] (+ bias[r]) */
    const struct k_weight *weight; /* [N, K] */
    const float *x_dev; /* [T, K] */
    const float *bias_dev; /* [N] or NULL */
    float *y_dev; /* [T, N] */
    void *workspace_dev; /* k_plan_bytes.gemm */
    uint32_t n_tokens;
    /* K is summed in segments of whole units of this many columns, a multiple of 16 (segments.h). 0: one segment. */
    uint32_t unit;
    /* For a share of a GEMM of n_whole columns: K is the columns from first_col on, in whole segments. y is their sum
     * without a bias. The fold adds the shares (docs/internals/numerics.md §5). n_whole 0: K is all columns. */
    uint32_t n_whole, first_col;
    bool x_for_gemm; /* x_dev was written with for_gemm */
};

struct k_gemm_silu_mul_args { /* out[t, i] = silu(y[t, i]) * y[t, n + i], with y from gemm() */
    /* Weight [2 n, K]: gate's rows, then up's; unit 0. y_dev is scratch of [T, 2 n], undefined afterwards. It is NULL
     * if the planner's needs_gate_up returns false. */
    struct k_gemm_args gemm;
    float *out_dev; /* [T, n] */
    bool for_gemm; /* out_dev is only for GEMMs */
};

struct k_rope_angles_args { /* cos and sin of position × inv_freq, once per step, for every layer */
    const uint32_t *positions_dev; /* [T] */
    const float *inv_freq_dev; /* [n_freqs] */
    float *cos_sin_dev; /* [T, n_freqs, 2], each multiplied by scale */
    uint32_t n_tokens, n_freqs;
    float scale; /* YaRN's attention factor, otherwise 1 */
};

struct k_rope_kv_args { /* per-head RMSNorm of q and k (optional), RoPE, storing K and V into their blocks */
    float *qkv_dev; /* [T, (Q + 2 KV) * D]: q rotated in place */
    const float *q_norm_dev; /* [D] or NULL */
    const float *k_norm_dev; /* [D] or NULL */
    float eps;
    const float *cos_sin_dev; /* [T, D / 2, 2] */
    const uint32_t *slots_dev; /* [T]: block id * block_tokens + offset, or K_NO_SLOT */
    const struct k_kv_shape *kv;
    const struct k_kv_layer *layer;
    uint32_t n_tokens, n_q_heads;
};

/* A token of this step that the previous step sampled: ids[token] = sampled[row]. */
struct k_token_source {
    uint32_t token, row;
};
#define K_NO_TOKEN UINT32_MAX /* the token of a padding source */
struct k_place_tokens_args {
    uint32_t *ids_dev; /* [T] */
    const uint32_t *sampled_dev; /* from k_sample_args */
    const struct k_token_source *sources_dev; /* [n] */
    uint32_t n;
};

/* A sequence's tokens in this step. Position p reads the KV of positions (p - window, p]. With `whole` attention it
 * reads all positions up to the row's last one. */
struct k_attn_row {
    uint32_t token; /* index of its first token in the step's arrays */
    uint32_t n_tokens; /* 0: a padding row */
    uint32_t position; /* of that first token */
    uint32_t table; /* offset of its block table in tables_dev */
};
/* Divides a step's attention among the device's thread blocks. Made on the host, once for all layers with these rows
 * and this window, and copied to the device with the rest of the step's input. Host backends do nothing. */
struct k_attention_plan_args {
    const struct k_attn_row *rows; /* [n_rows] HOST memory, read before the call returns */
    const struct k_kv_shape *kv;
    void *plan; /* HOST memory, 16-byte aligned, k_plan_bytes.attention_plan for this many rows and tokens */
    uint32_t n_rows, n_tokens, n_q_heads;
    uint32_t window;
    bool whole;
};
struct k_attention_args {
    const float *qkv_dev; /* [T, (Q + 2 KV) * D]: only q is read; K and V come from the cache */
    float *out_dev; /* [T, Q * D]; tokens outside all rows stay unchanged */
    const struct k_attn_row *rows; /* [n_rows] HOST memory; not read between graph_begin and graph_end, where n_rows
                                    * is an upper bound */
    const struct k_attn_row *rows_dev; /* the same in backend memory */
    /* A copy of the plan of these rows and this window, 16-byte aligned. A device uses counters in it and resets
     * them. */
    void *plan_dev;
    const uint32_t *tables_dev; /* block ids; entry i of a table covers positions [i, i+1) * block_tokens */
    const struct k_kv_shape *kv;
    const struct k_kv_layer *layer;
    void *workspace_dev; /* k_plan_bytes.attention */
    uint32_t n_rows, n_tokens, n_q_heads;
    uint32_t window; /* 0 = all earlier positions */
    bool whole; /* all positions up to the last of a token's row, including later ones; window must be 0 */
    float scale;
    float softcap; /* 0 = off; otherwise positive and normal: a score s becomes softcap * tanh(s / softcap), after
                    * scale */
    const float *sinks_dev; /* [Q] or NULL: a logit per query head that takes part in the softmax without a value */
    bool for_gemm; /* out_dev is only for GEMMs */
};

struct k_block_pair {
    uint32_t from, to; /* block ids */
};
struct k_kv_copy_args { /* copies whole blocks of one layer, K and V, from one arena to another, or within one */
    const struct k_kv_shape *kv; /* of both arenas */
    const struct k_kv_layer *from, *to; /* on a device either may be memory from alloc_host() */
    /* [n_pairs] HOST memory, read before the call returns. No block is `to` twice, or both `to` and `from` in one
     * arena. */
    const struct k_block_pair *pairs;
    uint32_t n_pairs;
};

struct k_gather_args { /* out[i] = x[index[i]] */
    const float *x_dev; /* [T, H] */
    const uint32_t *index_dev; /* [n_rows] */
    float *out_dev; /* [n_rows, H] */
    uint32_t n_rows, n_cols;
    bool for_gemm; /* out_dev is only for a GEMM of n_rows; x_dev holds floats */
};

/* ---- sampling -------------------------------------------------------------------------------- */

#define K_MAX_LOGPROBS 20

/* How often a token occurs in a sequence, for penalties. Ids are ascending and unique. */
struct k_token_count {
    uint32_t id;
    uint32_t n_output; /* among generated tokens */
};
struct k_logit_bias {
    uint32_t id;
    float bias; /* -INFINITY forbids the token */
};

/* How to sample from one row of logits. */
struct k_sample_row {
    float temperature; /* < 1e-5: greedy */
    float top_p; /* (0, 1]; 1 = off */
    float min_p; /* [0, 1]; 0 = off */
    uint32_t top_k; /* 0 = off */
    float repetition_penalty; /* 1 = off; over prompt and output tokens */
    float presence_penalty; /* 0 = off; over output tokens */
    float frequency_penalty; /* 0 = off; over output tokens */
    const struct k_token_count *counts; /* required when a penalty is on */
    uint32_t n_counts;
    const struct k_logit_bias *biases; /* added first; each id at most once */
    uint32_t n_biases;
    const uint32_t *mask; /* NULL, or one bit per token; a set bit allows the token */
    uint64_t seed; /* the draw depends only on (seed, position, choice) */
    uint32_t position; /* the position of the token to draw */
    uint32_t choice;
    int32_t n_logprobs; /* -1: off; 0: the chosen token's; 1..20: also this many of the best */
    int64_t forced; /* -1, or the token to report instead of drawing one (prompt logprobs) */
};

struct k_sample_result {
    uint32_t token;
    uint32_t rank; /* 1 = the best raw logit; only when n_logprobs >= 0 */
    float logprob; /* log softmax of the raw logits at token; only when n_logprobs >= 0 */
    uint32_t n_top; /* min(n_logprobs, V) */
    bool bad_logits; /* a raw logit was NaN or +inf, or no token is allowed; token is then meaningless */
    uint32_t top_ids[K_MAX_LOGPROBS]; /* best first; ties: lower id first */
    float top_logprobs[K_MAX_LOGPROBS];
};

/* Prepares the data of a step's rows for a device: the numbers, and as parts the masks, biases and counts. Made on the
 * host and copied to the device with the rest of the step's input. Host backends read the rows directly and write
 * nothing. If the parts of many rows do not fit, only the first rows are planned; the caller plans the others after
 * these are sampled. */
struct k_sample_plan_args {
    const struct k_sample_row *rows; /* [n_rows] HOST memory, read before the call returns; QUIRE_INVALID names a
                                      * wrong value */
    void *plan; /* HOST memory, 16-byte aligned, k_plan_bytes.sample_plan for this many rows */
    void *parts; /* HOST memory, 16-byte aligned, after the plan, k_plan_bytes.sample_parts */
    uint32_t n_rows, n_vocab;
    uint32_t *n_planned; /* number of planned rows */
    uint64_t *parts_bytes; /* number of bytes written to parts */
};

struct k_sample_args {
    float *logits_dev; /* [n_rows, V]: destroyed */
    /* [n_rows] HOST memory, the planned rows. Not read between graph_begin and graph_end; there n_rows is an upper
     * bound and the plan holds the number of rows. */
    const struct k_sample_row *rows;
    const void *plan_dev; /* a copy of their plan, followed by a copy of its parts at the same offset as on the host */
    struct k_sample_result *results_dev; /* [n_rows] */
    uint32_t *sampled_dev; /* [n_rows]: the results' tokens, for place_tokens() */
    void *workspace_dev; /* k_plan_bytes.sample */
    uint32_t n_rows, n_vocab;
};

/* ---- ranks ----------------------------------------------------------------------------------- */

#define K_MAX_RANKS 8u

/* The ranks that compute a pass together, one process each, from the view of one of them. The functions work on host
 * memory. All ranks make the same calls in the same order. A status other than QUIRE_OK ends the group. A backend on
 * host memory exchanges all data through them. A device, whose kernels access the peers' memory directly, uses them to
 * find its peers. */
struct k_group {
    void *context;
    uint32_t rank, n_ranks; /* n_ranks is 2, 4 or 8 */
    uint32_t first; /* the number that messages use for rank 0 of this stage, because ranks are numbered over all
                     * stages */
    bool is_across_hosts; /* the ranks are on several hosts; devices cannot access each other's memory */
    /* x = ((x0 + x1) + (x2 + x3)) + ((x4 + x5) + (x6 + x7)) over the ranks, in place (docs/internals/numerics.md §5) */
    int (*all_reduce_tree)(void *context, float *x, size_t n, struct quire_error *err);
    /* all: [ranks][n_bytes]. mine may already be at its position in all. */
    int (*all_gather)(void *context, const void *mine, size_t n_bytes, void *all, struct quire_error *err);
    /* The same, but only the first rank receives the data. */
    int (*gather)(void *context, const void *mine, size_t n_bytes, void *all, struct quire_error *err);
    /* Returns QUIRE_OK, or the reason why the group has ended. Any thread. */
    int (*check)(void *context, struct quire_error *err);
    void (*abort)(void *context, const char *why); /* ends the group for all ranks. Any thread. */
    uint32_t timeout_ms; /* how long a call waits for another rank */
};

struct k_all_reduce_args { /* x[t, c] = the tree sum over the ranks of x[t, c], plus bias[c] */
    float *x_dev; /* [T, n_cols] */
    const float *bias_dev; /* [n_cols], the same on every rank, or NULL */
    uint32_t n_tokens, n_cols;
};

struct k_all_gather_args { /* out[t] = row t of rank 0, of rank 1, ... */
    /* [T, columns of this rank]. On a host there is space for a row of the widest part after the start of the last
     * row. */
    const float *own_dev;
    float *out_dev; /* [T, all columns]; not own_dev or scratch_dev */
    /* For host backends: [ranks, T, the widest part], or [ranks, the widest part] with to_first. own_dev may lie in
     * it. */
    float *scratch_dev;
    uint32_t first_cols[K_MAX_RANKS + 1]; /* rank r has the columns [first_cols[r], first_cols[r + 1]) */
    uint32_t n_tokens;
    bool to_first; /* only rank 0 receives out; it is undefined on other ranks */
};

struct
    k_checksum_args { /* *sum += the checksum of x (k_checksum_term() of math.h): integers, so order does not matter */
    const float *x_dev; /* [T, n_cols] */
    uint64_t *sum_dev;
    uint32_t n_tokens, n_cols;
};

/* ---- planning ---------------------------------------------------------------------------------
 * Host arithmetic only, so memory can be planned for a device that this machine does not have. */

struct k_plan_dims {
    uint32_t n_tokens; /* most tokens in a step */
    uint32_t n_seqs; /* most sequences in a step */
    uint32_t n_logits; /* most logit rows in a step */
    uint32_t n_vocab, n_q_heads, n_kv_heads, head_dim;
    uint32_t max_gemm_cols; /* the widest input of a GEMM */
    uint32_t max_model_len;
    uint32_t n_threads; /* as in k_backend_options, including 0: host backends need scratch per thread */
    bool not_invariant; /* as in k_backend_options, with 16-bit weights in the mma form */
    uint32_t n_ranks; /* ranks that compute together; 0 means 1 */
};
struct k_plan_bytes {
    uint64_t gemm;
    uint64_t attention;
    uint64_t attention_plan; /* per plan */
    uint64_t sample;
    uint64_t sample_plan;
    uint64_t sample_parts; /* enough for the parts of any single row */
    uint64_t group; /* memory that join() uses */
};

/* A backend's requirements, known without opening it. Constant and static. An opened backend points to its own
 * planner. */
struct k_planner {
    const char *name; /* the backend's name: "ref", "cpu", "cuda" */
    bool on_host; /* computes in host memory with n_threads compute threads; otherwise in a device's own memory */
    uint32_t overlap_depth; /* steps that may be in flight in addition to the one being planned: 0 or 1 */
    /* The minimum number of tokens in a micro-batch that passes from stage to stage. Half as many take the device
     * nearly as long, because it reads the same weights. */
    uint32_t micro_batch_tokens;
    void (*workspace)(const struct k_plan_dims *dims, struct k_plan_bytes *out);
    bool (*needs_gate_up)(const struct k_plan_dims *dims); /* whether gemm_silu_mul() needs its scratch */
    /* Device memory for one part of a weight; 0 if it is used in place. On a host, the memory for weights that the int8
     * form repacks. */
    uint64_t (*weight_bytes)(struct k_format format, uint32_t n_rows, uint32_t n_cols);
};
/* Returns the planner of a device named as in options: "ref", "cpu", "cuda" or "cuda:N". Returns NULL if no such device
 * exists. */
const struct k_planner *k_planner_find(const char *device);

/* GPUs whose memory can be planned without owning one. */
struct k_device {
    const char *name; /* "h200", as in `quire plan --device` */
    const struct k_planner *planner;
    const char *title; /* "NVIDIA H200 SXM" */
    uint64_t memory_bytes; /* as the driver reports it */
};
/* Returns NULL if no such device exists. k_device_at(i) returns NULL past the last. */
const struct k_device *k_device_find(const char *name);
const struct k_device *k_device_at(uint32_t i);

/* ---- the table -------------------------------------------------------------------------------- */

enum k_operation {
#define K_OPERATION_NUMBER(NAME, name, text) K_OP_##NAME,
    K_OPERATIONS(K_OPERATION_NUMBER)
#undef K_OPERATION_NUMBER
};
#define K_OPERATION_ONE(NAME, name, text) +1
enum { K_N_OPERATIONS = 0 K_OPERATIONS(K_OPERATION_ONE) };
const char *k_operation_name(enum k_operation operation); /* "gemm_silu_mul" */

#define K_OPERATION_MEMBER(NAME, name, text) \
    int (*name)(struct k_backend * b, const struct k_##name##_args *a, struct quire_error *err);

struct k_backend; /* starts with `const struct k_backend_ops *ops` */
struct k_graph; /* the recorded operations of a step of one shape */

struct k_backend_ops {
    const struct k_planner *planner; /* the backend's name and memory requirements */
    const char *description; /* one line for people: the hardware it runs on */
    void (*close)(struct k_backend *b);

    /* Reports the device's memory; `available` bytes are free now. NULL if the backend computes in host memory. */
    int (*memory)(struct k_backend *b, uint64_t *total, uint64_t *available, struct quire_error *err);

    /* memory: only called while a model is opened, never after it is ready */
    int (*alloc)(struct k_backend *b, uint64_t bytes, void **dev, struct quire_error *err); /* 64-byte aligned */
    /* Allocates host memory that kv_copy can access; pinned on a device. free() also frees it. */
    int (*alloc_host)(struct k_backend *b, uint64_t bytes, void **host, struct quire_error *err);
    void (*free)(struct k_backend *b, void *dev);
    int (*weight_create)(struct k_backend *b, const struct k_weight_view *parts, uint32_t n_parts,
                         struct k_weight **out, struct quire_error *err);
    void (*weight_destroy)(struct k_backend *b, struct k_weight *w);
    /* Returns whether the operation supports weights, or a KV cache, in this format; for a GEMM, in this form. */
    bool (*supports)(struct k_backend *b, enum k_operation operation, enum k_gemm_form form, struct k_format format);
    /* Makes the backend a rank of the group. After that, K_GROUP_OPERATIONS may be called, by all ranks in the same
     * order. Call it once, by all ranks at the same time, before any graph is recorded. *group is copied; its context
     * must live as long as the backend. Afterwards the graph functions may be NULL, so check them again. Returns
     * QUIRE_UNSUPPORTED if the peers' memory is not accessible and no library can transfer data. */
    int (*join)(struct k_backend *b, const struct k_group *group, struct quire_error *err);
    /* Call it before the group ends. The backend does not use the group afterwards. Does nothing if the backend has not
     * joined a group. */
    void (*leave)(struct k_backend *b);

    /* a step: begin wakes the workers, end lets them sleep */
    int (*step_begin)(struct k_backend *b, struct quire_error *err);
    int (*step_end)(struct k_backend *b, struct quire_error *err);
    /* Memory from alloc_host() belongs to the device until wait() has returned for a later fence. Other host memory is
     * read or written before the call returns. */
    int (*copy_in)(struct k_backend *b, void *dst_dev, const void *src, uint64_t bytes, struct quire_error *err);
    int (*copy_out)(struct k_backend *b, void *dst, const void *src_dev, uint64_t bytes, struct quire_error *err);
    int (*fence)(struct k_backend *b, uint64_t *ticket, struct quire_error *err);
    int (*wait)(struct k_backend *b, uint64_t ticket, struct quire_error *err);

    /* One member per operation of operations.h: int (*embed)(struct k_backend *b, const struct k_embed_args *a, struct
     * quire_error *err) */
    K_OPERATIONS(K_OPERATION_MEMBER)

    /* Runs a step of one shape as one launch. Operations between graph_begin and graph_end are recorded and not run.
     * graph_launch runs them on the current content of their buffers. K_RECORDED_OPERATIONS, K_LINKING_OPERATIONS and
     * K_GROUP_OPERATIONS may be recorded. All four functions are NULL if a backend has no graphs. Like memory, graphs
     * are made while a model is opened. */
    int (*graph_begin)(struct k_backend *b, struct quire_error *err);
    int (*graph_end)(struct k_backend *b, struct k_graph **out, struct quire_error *err);
    int (*graph_launch)(struct k_backend *b, struct k_graph *graph, struct quire_error *err);
    void (*graph_destroy)(struct k_backend *b, struct k_graph *graph);
};

struct k_backend {
    const struct k_backend_ops *ops;
    uint32_t n_threads; /* compute threads on the host, including the caller's */
    const char *placement; /* one line for people: how many threads, on which CPUs, and where memory lies */
    enum k_gemm_form form; /* the form of every GEMM; never K_FORM_AUTO */
    /* NULL, or the library that computes GEMMs of many tokens, "cuBLASLt 13.1.0". The bits of a token then depend on
     * the number of tokens. */
    const char *gemm_library;
};

/* The UUID of a GPU, which is the same in every process, unlike the GPU's number. */
#define K_GPU_ID_BYTES 16
struct k_gpu_id {
    unsigned char bytes[K_GPU_ID_BYTES];
};
#define K_MAX_GPUS 32u /* per host; others are ignored */

/* Called once while a GPU's backend is opened. Chooses one of the GPUs that this process sees, starting at the device's
 * number. n is at least 1, and the function sets *out below n. If it fails, k_backend_open() returns its status. */
struct k_gpu_choice {
    void *context;
    int (*choose)(void *context, const struct k_gpu_id *seen, uint32_t n, uint32_t *out, struct quire_error *err);
};

struct k_backend_options {
    const char *device; /* "auto", "ref", "cpu", "cuda", "cuda:N" */
    uint32_t n_threads; /* 0 = the result of k_backend_threads() */
    enum k_gemm_form form; /* K_FORM_AUTO: mma on a GPU, tile where it is faster, otherwise lane */
    struct k_format weight_format; /* the weight format for which K_FORM_AUTO chooses */
    const char *cpu_bind; /* NULL or "auto", "none", or the CPU of each thread: "0-3,8" */
    bool not_invariant; /* a GPU uses NVIDIA's library for GEMMs of many tokens in the mma form; no effect on a host */
    const struct k_gpu_choice *choice; /* NULL selects the first GPU; read before k_backend_open() returns */
};

/* Opens a backend. "auto" selects the best one that this machine has. *why says in one line which one and why (static
 * or owned by the backend). Returns QUIRE_UNSUPPORTED if the machine or the build lacks it. If threads are bound to
 * CPUs, the thread that begins the first step stays on its CPU too. */
int k_backend_open(const struct k_backend_options *options, struct k_backend **out, const char **why,
                   struct quire_error *err);

/* Lists the instruction sets of the cpu backend, best last. Returns false past the last. Other architectures have no
 * entries. */
struct k_instruction_set {
    const char *name; /* "avx2", "avx512", "amx": static, as in QUIRE_ISA */
    const char *lacks; /* NULL if this machine has it, otherwise the reason, static */
};
bool k_instruction_set_at(uint32_t i, struct k_instruction_set *out);

/* Returns the number of compute threads for these options: n_threads, or the CPUs in cpu_bind's list, or the physical
 * cores that this process may use, within its CPU quota. QUIRE_INVALID names the option. */
int k_backend_threads(const struct k_backend_options *options, uint32_t *out, struct quire_error *err);
uint32_t k_default_threads(void); /* for default options; at least 1 */
#define K_MAX_THREADS 512u

#endif
