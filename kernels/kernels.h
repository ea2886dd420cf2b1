/* kernels/: the one interface between the engine and the arithmetic.
 *
 * A backend is a table of functions over an opaque object. `ref` (plain C, the normative
 * arithmetic of docs/numerics.md) and `cpu` are linked in; `cuda` is a library opened where a
 * driver answers. Nothing here knows a model, a request or a scheduler.
 *
 * Threads: every call on one backend comes from one thread, the engine's. A backend may own
 * worker threads; none is visible here.
 * Order: operations take effect in the order of the calls. On a device they may still be running
 * when the call returns: fence() and wait() tell when results may be read on the host.
 * Memory: pointers named `dev` live in the backend's memory (host memory for ref and cpu) and
 * must never be dereferenced by the caller. Operations allocate nothing.
 * Errors: an operation returns a status and err's text; after a failed operation on a device the
 * backend is dead and says so from every later call.
 *
 * Shapes: row-major, last index fastest. T = tokens in the step, H = hidden size, D = head_dim,
 * Q = query heads, KV = KV heads, V = vocabulary. Activations are f32 at every point.
 */
#ifndef QUIRE_KERNELS_H
#define QUIRE_KERNELS_H

#include "base/status.h"
#include "kernels/operations.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- formats ------------------------------------------------------------------------------- */

enum k_dtype { K_F32, K_F16, K_BF16, K_INT /* of as many bits as the format says */, K_E4M3, K_E5M2 };
size_t k_dtype_bytes(enum k_dtype dtype); /* of an element that has a whole number of them */
const char *k_dtype_name(
    enum k_dtype dtype); /* "float32", "float16", "bfloat16", "int", "float8_e4m3", "float8_e5m2" */

enum k_packing {
    K_PACKING_NONE, /* an element after the other, each in whole bytes, and no scales */
    K_PACKING_PLANES, /* likewise, of 4 bits two in a byte, the low half first; scales and zero points in planes of their own */
    /* GGUF's blocks, of 32 or of 256 columns, with their scales inside. A row is whole blocks. */
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

/* How a tensor is stored: a file's, a weight, a KV cache; each has its own. */
struct k_format {
    enum k_dtype kind; /* what an element is, when it is widened */
    uint32_t bits; /* of an element as stored; 4 is half a byte */
    uint32_t group; /* elements of a row that share a scale; 0: all of a row, or there are no scales */
    enum k_dtype scale; /* of the scales */
    enum k_packing packing;
};
/* The plain ones, without groups; for initializers. */
#define K_FORMAT_F32 {K_F32, 32, 0, K_F32, K_PACKING_NONE}
#define K_FORMAT_F16 {K_F16, 16, 0, K_F32, K_PACKING_NONE}
#define K_FORMAT_BF16 {K_BF16, 16, 0, K_F32, K_PACKING_NONE}
struct k_format k_format_of(enum k_dtype dtype);
/* One of GGUF's. */
struct k_format k_format_of_blocks(enum k_packing packing);
/* Of planes: int4 and int8, e4m3 and e5m2, with a scale for each `group` columns of a row (0: for all of it). */
struct k_format k_format_of_planes(enum k_dtype kind, uint32_t bits, uint32_t group, enum k_dtype scale);
bool k_format_is_plain(struct k_format format); /* one of the first three: no scales */
bool k_format_is_quantized(struct k_format format); /* one of the others that docs/numerics.md §19 has */
uint64_t k_format_bytes(struct k_format format, uint64_t n); /* of a row of n elements; planes of scales lie apart */
const char *k_format_name(struct k_format format); /* for messages: "bfloat16", "Q4_K", "int4" */

/* How the products of a GEMM are summed (docs/numerics.md). The form is part of what bits are promised for. */
enum k_gemm_form {
    K_FORM_LANE, /* 16 fp32 lanes over k, one fixed tree: any weight dtype */
    K_FORM_TILE, /* 32-deep bf16 tiles, activations as two bf16 terms: bf16 and f16 weights */
    K_FORM_TILE_BF16, /* the same with activations rounded to bf16: bf16 weights only */
    K_FORM_MMA, /* tensor cores: f16 factors in 16-deep products, chunks of 512; bf16 and f16
                       * weights. Attention over an f16 cache then uses them too */
    K_FORM_INT8, /* quantized weights of integers: activations rounded to int8, a group's products summed as integers;
                       * all other weights as in the lane form */
    K_FORM_AUTO, /* in options only: the backend's choice */
};
#define K_N_FORMS 5

/* The version of docs/numerics.md: who keeps what was computed compares it, beside the form and the formats. It moves with
 * any bit that the page moves, and with nothing else. */
#define K_LAW_VERSION 2
const char *k_form_name(enum k_gemm_form form); /* "lane", "tile", "tile of bfloat16 activations", "mma", "int8" */

/* ---- weights ------------------------------------------------------------------------------ */

/* Part of a weight matrix as it lies in a mapped checkpoint. A shard is a view of fewer rows or
 * columns of the same mapping. The mapping must outlive the weight; it is used in place where the
 * backend computes on host memory, and copied (weight_bytes of its planner) where it does not. */
struct k_weight_view {
    const void *data; /* host memory, row 0, column 0 of the part; any alignment ≥ an element's */
    struct k_format format;
    uint32_t n_rows; /* output features */
    uint32_t n_cols; /* input features */
    uint64_t row_stride_bytes;
    /* Of K_PACKING_PLANES, else NULL and 0. Row r's scales are row r / scale_rows of `scales`, a scale of format.scale for
     * each group, the last of which may be short; scale_rows 0 counts as 1. */
    const void *scales;
    uint32_t scale_rows;
    /* NULL, or of each row and group what its integers are lessened by: int8_t. Without it 0, of 4 bits 8: elements of 4 bits
     * are 0 to 15, of 8 bits -128 to 127. */
    const int8_t *zero_points;
    /* NULL, or [n_cols]: column i of the data meets column permutation[i] of the input. Of a weight whose K is one segment. */
    const uint32_t *permutation;
    float x_scale; /* 0, or in the form int8 the scale of all activations, which the file states */
    /* NULL, or of columns that were cut out of a plain matrix: its row 0, column 0, and its columns. Rows are as far apart. What a
     * form has of a whole row, as the exponents of docs/numerics.md §17, it takes from there. */
    const void *whole;
    uint32_t whole_cols;
    bool is_table; /* rows are only looked up: no GEMM has this weight */
};

/* Of a plain format. */
struct k_weight_view k_plain_view(const void *data, enum k_dtype dtype, uint32_t n_rows, uint32_t n_cols,
                                  uint64_t row_stride_bytes);

#define K_WEIGHT_MAX_PARTS 4
struct k_weight; /* one or more parts stacked along rows (q, k and v; gate and up) */

/* ---- KV cache ------------------------------------------------------------------------------ */

/* One layer's K and V, each of n_blocks blocks in backend memory. A block is [KV, block_tokens, D] of the format; of a
 * quantized one bytes, behind which lie their scales, float [KV, block_tokens]. */
struct k_kv_layer {
    void *k_dev;
    void *v_dev;
};

#define K_NO_SLOT UINT32_MAX /* of a token that only fills up a step: its K and V go nowhere */

struct k_kv_shape {
    struct k_format format; /* as k_kv_format() gives it */
    uint32_t n_kv_heads;
    uint32_t head_dim; /* multiple of 16, at most 256 */
    uint32_t block_tokens;
};
/* F32 or F16; K_INT (of 8 bits), K_E4M3 and K_E5M2 with a scale for each token and head. */
struct k_format k_kv_format(enum k_dtype kind);
#ifdef __cplusplus
extern "C" { /* for launches of GPU kernels, too */
#endif
uint64_t k_kv_scales_at(const struct k_kv_shape *kv); /* bytes from a block's start to its scales, if it has any */
uint64_t k_kv_block_bytes(const struct k_kv_shape *kv); /* of K, and as many of V; a multiple of 16 */
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
    float *x_dev; /* [T, H] residual stream, updated in place when add_dev is not NULL */
    const float *add_dev; /* [T, H] or NULL */
    /* What add_dev holds is this rank's part of a sum: all_reduce() first, with this bias, and then as ever. Rows are not
     * strided then, and what add_dev holds afterwards is undefined. */
    bool add_is_part;
    const float *add_bias_dev; /* [H] or NULL */
    const float *weight_dev; /* [H] */
    float *out_dev; /* [T, H]; apart from x_dev, or x_dev itself where nothing is added to either */
    uint32_t n_tokens, n_cols;
    uint32_t row_stride; /* floats from a row of x, add and out to the next; 0 = n_cols */
    bool into; /* out += the norm; add_dev is NULL then */
    bool for_gemm; /* out_dev is read by GEMMs of n_tokens with x_for_gemm, and by nothing else; not with `into` */
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
struct k_pool_row { /* a text's tokens in the step */
    uint32_t token, n_tokens;
};
struct k_pool_args { /* out[r] = the row's first or last token, or the mean of all; then of length 1 */
    const float *x_dev; /* [T, H] */
    const struct k_pool_row *rows_dev; /* [n_rows], of one token or more */
    float *out_dev; /* [n_rows, H]; x_dev, too, where row r is token r alone */
    uint32_t n_rows, n_cols;
    enum k_pooling pooling;
    bool normalize; /* divides by the length, or by 1e-12 where that is less */
};

/* What an operation writes for GEMMs alone (`for_gemm`) a backend may leave in the buffer as its GEMMs read it, as f16
 * factors for one, and not as floats: in the bytes that the floats would take. Who reads it says so, too (`x_for_gemm`). */
struct k_gemm_args { /* y[t, r] = Σ_k w[r, k] x[t, k] (+ bias[r]) */
    const struct k_weight *weight; /* [N, K] */
    const float *x_dev; /* [T, K] */
    const float *bias_dev; /* [N] or NULL */
    float *y_dev; /* [T, N] */
    void *workspace_dev; /* k_plan_bytes.gemm */
    uint32_t n_tokens;
    uint32_t
        unit; /* K is summed in segments of whole units of so many columns, a multiple of 16 (segments.h); 0: in one */
    /* A share of a GEMM of n_whole columns: K are those from first_col on, in whole segments. y is what they add up to, without
     * a bias; the sum over all shares is the fold's (docs/numerics.md §5). 0: K is all columns. */
    uint32_t n_whole, first_col;
    bool x_for_gemm; /* x_dev is what an operation wrote for GEMMs */
};

struct k_gemm_silu_mul_args { /* out[t, i] = silu(y[t, i]) * y[t, n + i], y as gemm() gives it */
    struct k_gemm_args
        gemm; /* weight [2 n, K]: gate's rows, then up's, and unit 0; y_dev is scratch of [T, 2 n], its contents undefined
                              * afterwards, or NULL where the planner's needs_gate_up says that it is not used */
    float *out_dev; /* [T, n] */
    bool for_gemm; /* so out_dev */
};

struct k_rope_angles_args { /* cos and sin of position × inv_freq, once a step, for every layer */
    const uint32_t *positions_dev; /* [T] */
    const float *inv_freq_dev; /* [n_freqs] */
    float *cos_sin_dev; /* [T, n_freqs, 2], each multiplied by scale */
    uint32_t n_tokens, n_freqs;
    float scale; /* YaRN's attention factor, else 1 */
};

struct k_rope_kv_args { /* per-head RMSNorm of q and k (optional), RoPE, K and V into their blocks */
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

/* A token of the step that the step before sampled: ids[token] = sampled[row]. */
struct k_token_source {
    uint32_t token, row;
};
#define K_NO_TOKEN UINT32_MAX /* of a source that only fills up a step */
struct k_place_tokens_args {
    uint32_t *ids_dev; /* [T] */
    const uint32_t *sampled_dev; /* as k_sample_args left it */
    const struct k_token_source *sources_dev; /* [n] */
    uint32_t n;
};

/* A sequence's tokens in this step. Position p reads the KV of positions (p - window, p]; where attention is `whole`, all
 * up to the row's last one. */
struct k_attn_row {
    uint32_t token; /* index of its first token in the step's arrays */
    uint32_t n_tokens; /* 0: the row only fills up a step */
    uint32_t position; /* of that first token */
    uint32_t table; /* offset of its block table in tables_dev */
};
/* How a step's attention is divided among the device: made once for all layers with these rows and this window, on the
 * host, from where it goes to the device with the rest of a step's input. Host backends have nothing to do here. */
struct k_attention_plan_args {
    const struct k_attn_row *rows; /* [n_rows] HOST memory, read before the call returns */
    const struct k_kv_shape *kv;
    void *plan; /* HOST memory on 16 bytes, k_plan_bytes.attention_plan of so many rows and tokens */
    uint32_t n_rows, n_tokens, n_q_heads;
    uint32_t window;
    bool whole;
};
struct k_attention_args {
    const float *qkv_dev; /* [T, (Q + 2 KV) * D]: only q is read; K and V come from the cache */
    float *out_dev; /* [T, Q * D]; tokens of no row stay as they were */
    const struct k_attn_row *rows; /* [n_rows] HOST memory; not read between graph_begin and graph_end,
                                      * where n_rows is an upper bound */
    const struct k_attn_row *rows_dev; /* the same in backend memory */
    void *
        plan_dev; /* a copy of the plan of these rows and this window, on 16 bytes; a device counts in it, and leaves it
                     * as it was */
    const uint32_t *tables_dev; /* block ids; entry i of a table covers positions [i, i+1) * block_tokens */
    const struct k_kv_shape *kv;
    const struct k_kv_layer *layer;
    void *workspace_dev; /* k_plan_bytes.attention */
    uint32_t n_rows, n_tokens, n_q_heads;
    uint32_t window; /* 0 = all earlier positions */
    bool whole; /* all positions up to the last of a token's row, later ones too; window is 0 then */
    float scale;
    float softcap; /* 0 = off; else positive and normal: a score s becomes softcap * tanh(s / softcap), after scale */
    const float
        *sinks_dev; /* [Q] or NULL: a logit for each query head, which takes part in the softmax and has no value */
    bool for_gemm; /* so out_dev */
};

struct k_block_pair {
    uint32_t from, to; /* block ids */
};
struct k_kv_copy_args { /* whole blocks of one layer, K and V, from one arena to another, or within one */
    const struct k_kv_shape *kv; /* of both arenas */
    const struct k_kv_layer *from, *to; /* on a device either may be memory of alloc_host() */
    const struct k_block_pair *pairs; /* [n_pairs] HOST memory, read before the call returns; no
                                         block is `to` twice, or `to` and `from` in one arena */
    uint32_t n_pairs;
};

struct k_gather_args { /* out[i] = x[index[i]] */
    const float *x_dev; /* [T, H] */
    const uint32_t *index_dev; /* [n_rows] */
    float *out_dev; /* [n_rows, H] */
    uint32_t n_rows, n_cols;
    bool for_gemm; /* so out_dev, of a GEMM of n_rows; x_dev holds floats */
};

/* ---- sampling -------------------------------------------------------------------------------- */

#define K_MAX_LOGPROBS 20

/* How often a token stands in a sequence, for penalties. Ids ascending, each once. */
struct k_token_count {
    uint32_t id;
    uint32_t n_output; /* among generated tokens */
};
struct k_logit_bias {
    uint32_t id;
    float bias; /* -INFINITY forbids the token */
};

/* One row of logits and what to do with it. */
struct k_sample_row {
    float temperature; /* < 1e-5: greedy */
    float top_p; /* (0, 1]; 1 = off */
    float min_p; /* [0, 1]; 0 = off */
    uint32_t top_k; /* 0 = off */
    float repetition_penalty; /* 1 = off; over prompt and output tokens */
    float presence_penalty; /* 0 = off; over output tokens */
    float frequency_penalty; /* 0 = off; over output tokens */
    const struct k_token_count *counts; /* needed when a penalty is on */
    uint32_t n_counts;
    const struct k_logit_bias *biases; /* added first; an id at most once */
    uint32_t n_biases;
    const uint32_t *mask; /* NULL, or a bit a token, bit set = allowed */
    uint64_t seed; /* the draw is a function of (seed, position, choice) alone */
    uint32_t position; /* of the token being drawn */
    uint32_t choice;
    int32_t n_logprobs; /* -1 none; 0 the chosen token's; 1..20 also that many best */
    int64_t forced; /* -1, or the token to report instead of drawing (prompt logprobs) */
};

struct k_sample_result {
    uint32_t token;
    uint32_t rank; /* 1 = the best raw logit; only when n_logprobs >= 0 */
    float logprob; /* log softmax of the raw logits at token; only when n_logprobs >= 0 */
    uint32_t n_top; /* min(n_logprobs, V) */
    bool bad_logits; /* a raw logit was NaN or +inf, or nothing is allowed: token is meaningless */
    uint32_t top_ids[K_MAX_LOGPROBS]; /* best first; ties: lower id first */
    float top_logprobs[K_MAX_LOGPROBS];
};

/* What a device reads of a step's rows: their numbers, and as parts their masks, biases and counts. It is made on the host
 * and goes to the device with the rest of a step's input. Host backends read the rows themselves and write nothing here.
 * Of many rows with large parts only the first are planned; who calls goes on with the others when these are sampled. */
struct k_sample_plan_args {
    const struct k_sample_row *rows; /* [n_rows] HOST memory, read before the call returns; QUIRE_INVALID names what is
                                      * wrong with one */
    void *plan; /* HOST memory on 16 bytes, k_plan_bytes.sample_plan of so many rows */
    void *parts; /* HOST memory on 16 bytes behind it, k_plan_bytes.sample_parts */
    uint32_t n_rows, n_vocab;
    uint32_t *n_planned; /* how many rows */
    uint64_t *parts_bytes; /* how many of the parts' bytes were written */
};

struct k_sample_args {
    float *logits_dev; /* [n_rows, V]: destroyed */
    const struct k_sample_row *rows; /* [n_rows] HOST memory, which were planned; not read between graph_begin and
                                      * graph_end, where n_rows is an upper bound and the plan says how many there are */
    const void *plan_dev; /* a copy of their plan, and as far behind it as on the host one of its parts */
    struct k_sample_result *results_dev; /* [n_rows] */
    uint32_t *sampled_dev; /* [n_rows]: the results' tokens, for place_tokens() */
    void *workspace_dev; /* k_plan_bytes.sample */
    uint32_t n_rows, n_vocab;
};

/* ---- ranks ----------------------------------------------------------------------------------- */

#define K_MAX_RANKS 8u

/* The ranks that compute a pass together, a process each, as one of them sees them: calls on host memory that all make alike
 * and in the same order. A status that is not QUIRE_OK ends the group. A backend on host memory brings everything
 * together by them; a device, whose kernels reach its peers' memory themselves, finds its peers by them. */
struct k_group {
    void *context;
    uint32_t rank, n_ranks; /* 2, 4 or 8 of them */
    uint32_t first; /* what messages call its rank 0: a stage's ranks have numbers among those of all stages */
    bool is_across_hosts; /* not all are on one: no device reaches the memory of another rank's */
    /* x = ((x0 + x1) + (x2 + x3)) + ((x4 + x5) + (x6 + x7)) over the ranks, in place (docs/numerics.md §5) */
    int (*all_reduce_tree)(void *context, float *x, size_t n, struct quire_error *err);
    /* all: [ranks][n_bytes]; mine may lie in its place there. */
    int (*all_gather)(void *context, const void *mine, size_t n_bytes, void *all, struct quire_error *err);
    /* The same for the first of them alone. */
    int (*gather)(void *context, const void *mine, size_t n_bytes, void *all, struct quire_error *err);
    /* Is the group over, and why? Any thread. */
    int (*check)(void *context, struct quire_error *err);
    void (*abort)(void *context, const char *why); /* ends it for all. Any thread. */
    uint32_t timeout_ms; /* how long a rank is waited for */
};

struct k_all_reduce_args { /* x[t, c] = the tree's sum over the ranks of x[t, c], and then bias[c] */
    float *x_dev; /* [T, n_cols] */
    const float *bias_dev; /* [n_cols], the same on every rank, or NULL */
    uint32_t n_tokens, n_cols;
};

struct k_all_gather_args { /* out[t] = row t of rank 0, of rank 1, ... */
    const float *
        own_dev; /* [T, columns of this rank]; on a host with room for a row of the widest part behind the last row's begin */
    float *out_dev; /* [T, all columns]; apart from own_dev and scratch_dev */
    float *
        scratch_dev; /* of host backends: [ranks, T, the widest part]; own_dev may lie there. With to_first [ranks, the widest part] */
    uint32_t first_cols[K_MAX_RANKS + 1]; /* rank r has the columns [first_cols[r], first_cols[r + 1]) */
    uint32_t n_tokens;
    bool to_first; /* out is wanted by rank 0 alone, and undefined elsewhere */
};

struct k_checksum_args { /* *sum += the checksum of x (k_checksum_term() of math.h): integers, which no order changes */
    const float *x_dev; /* [T, n_cols] */
    uint64_t *sum_dev;
    uint32_t n_tokens, n_cols;
};

/* ---- planning ---------------------------------------------------------------------------------
 * Host arithmetic only, so that memory can be planned for a device this machine does not have. */

struct k_plan_dims {
    uint32_t n_tokens; /* most tokens in a step */
    uint32_t n_seqs; /* most sequences in a step */
    uint32_t n_logits; /* most logit rows in a step */
    uint32_t n_vocab, n_q_heads, n_kv_heads, head_dim;
    uint32_t max_gemm_cols; /* the widest input of a GEMM */
    uint32_t max_model_len;
    uint32_t n_threads; /* as in k_backend_options, 0 included: host backends need scratch for each */
    bool not_invariant; /* as in k_backend_options, with 16-bit weights in the mma form */
    uint32_t n_ranks; /* that compute together; 0 is 1 */
};
struct k_plan_bytes {
    uint64_t gemm;
    uint64_t attention;
    uint64_t attention_plan; /* of each plan */
    uint64_t sample;
    uint64_t sample_plan;
    uint64_t sample_parts; /* holds those of any one row */
    uint64_t group; /* what join() takes for itself */
};

/* What a backend needs, known without opening it. Constant and static; an opened backend points to its own. */
struct k_planner {
    const char *name; /* of the backend: "ref", "cpu", "cuda" */
    bool on_host; /* it computes in host memory, with n_threads compute threads; else in a device's own memory */
    uint32_t overlap_depth; /* steps that may be in flight beyond the one being planned: 0 or 1 */
    /* The least tokens of a micro-batch that goes from stage to stage: half of them take the device nearly as long, since what
     * that reads of the weights is the same. */
    uint32_t micro_batch_tokens;
    void (*workspace)(const struct k_plan_dims *dims, struct k_plan_bytes *out);
    bool (*needs_gate_up)(const struct k_plan_dims *dims); /* whether gemm_silu_mul() needs its scratch */
    /* Device memory that a part of a weight takes; 0 where it is used in place. On a host, what the form int8 lays out anew. */
    uint64_t (*weight_bytes)(struct k_format format, uint32_t n_rows, uint32_t n_cols);
};
/* Of a device as options name it, "ref", "cpu", "cuda" or "cuda:N"; NULL: no such device. */
const struct k_planner *k_planner_find(const char *device);

/* GPUs whose memory can be planned without having one. */
struct k_device {
    const char *name; /* "h200", as `quire plan --device` takes it */
    const struct k_planner *planner;
    const char *title; /* "NVIDIA H200 SXM" */
    uint64_t memory_bytes; /* as the driver reports it */
};
/* NULL: no such device. k_device_at(i) is NULL past the last. */
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

struct k_backend; /* begins with `const struct k_backend_ops *ops` */
struct k_graph; /* the recorded operations of a step of one shape */

struct k_backend_ops {
    const struct k_planner *planner; /* what it is called, and what memory it needs */
    const char *description; /* one line for people: what it runs on */
    void (*close)(struct k_backend *b);

    /* The device's memory, of which `available` bytes are free now. NULL: the backend computes in host memory. */
    int (*memory)(struct k_backend *b, uint64_t *total, uint64_t *available, struct quire_error *err);

    /* memory: called while a model is opened, never after it is ready */
    int (*alloc)(struct k_backend *b, uint64_t bytes, void **dev, struct quire_error *err); /* 64-byte aligned */
    /* Host memory that kv_copy reaches: pinned on a device. Freed by free() likewise. */
    int (*alloc_host)(struct k_backend *b, uint64_t bytes, void **host, struct quire_error *err);
    void (*free)(struct k_backend *b, void *dev);
    int (*weight_create)(struct k_backend *b, const struct k_weight_view *parts, uint32_t n_parts,
                         struct k_weight **out, struct quire_error *err);
    void (*weight_destroy)(struct k_backend *b, struct k_weight *w);
    /* Whether the operation takes weights, or a KV cache, that are stored so; a GEMM: in this form. */
    bool (*supports)(struct k_backend *b, enum k_operation operation, enum k_gemm_form form, struct k_format format);
    /* From then on the backend is a rank's: K_GROUP_OPERATIONS may be called, by all ranks alike. Once, before anything is
     * recorded; all ranks at the same time. *group is copied, and its context lives as long as the backend.
     * From then on there
     * may be no graphs: look again. QUIRE_UNSUPPORTED: the peers' memory cannot be reached, and nothing carries between them. */
    int (*join)(struct k_backend *b, const struct k_group *group, struct quire_error *err);
    /* Before the group goes: it is not called from here on. Of a backend that is nobody's rank nothing. */
    void (*leave)(struct k_backend *b);

    /* a step: begin wakes workers, end lets them sleep */
    int (*step_begin)(struct k_backend *b, struct quire_error *err);
    int (*step_end)(struct k_backend *b, struct quire_error *err);
    /* Host memory of alloc_host() is the device's until a later fence was waited for; other host memory
     * is read, or written, before the call returns. */
    int (*copy_in)(struct k_backend *b, void *dst_dev, const void *src, uint64_t bytes, struct quire_error *err);
    int (*copy_out)(struct k_backend *b, void *dst, const void *src_dev, uint64_t bytes, struct quire_error *err);
    int (*fence)(struct k_backend *b, uint64_t *ticket, struct quire_error *err);
    int (*wait)(struct k_backend *b, uint64_t ticket, struct quire_error *err);

    /* operations.h, each: int (*embed)(struct k_backend *b, const struct k_embed_args *a, struct quire_error *err) */
    K_OPERATIONS(K_OPERATION_MEMBER)

    /* A step of one shape as one launch. Operations between graph_begin and graph_end are recorded and
     * not run; graph_launch runs them on what their buffers hold by then. What may be
     * recorded: K_RECORDED_OPERATIONS, K_LINKING_OPERATIONS and K_GROUP_OPERATIONS. All four are NULL where a backend has no graphs. Like memory: made
     * while a model is opened. */
    int (*graph_begin)(struct k_backend *b, struct quire_error *err);
    int (*graph_end)(struct k_backend *b, struct k_graph **out, struct quire_error *err);
    int (*graph_launch)(struct k_backend *b, struct k_graph *graph, struct quire_error *err);
    void (*graph_destroy)(struct k_backend *b, struct k_graph *graph);
};

struct k_backend {
    const struct k_backend_ops *ops;
    uint32_t n_threads; /* compute threads on the host, the caller's included */
    const char *placement; /* one line for people: how many, on which CPUs, and where memory lies */
    enum k_gemm_form form; /* of every GEMM; never K_FORM_AUTO */
    const char
        *gemm_library; /* NULL, or what computes GEMMs of many tokens, "cuBLASLt 13.1.0": the bits of a token then
                               * depend on how many there are */
};

/* A GPU, whichever process sees it under whatever number: its UUID. */
#define K_GPU_ID_BYTES 16
struct k_gpu_id {
    unsigned char bytes[K_GPU_ID_BYTES];
};
#define K_MAX_GPUS 32u /* of a host; more are not looked at */

/* Called once while a GPU's backend is opened: which of those that this process sees, from the device's number on, is to be taken.
 * *out is below n, which is 1 at least. What it returns the opening returns. */
struct k_gpu_choice {
    void *context;
    int (*choose)(void *context, const struct k_gpu_id *seen, uint32_t n, uint32_t *out, struct quire_error *err);
};

struct k_backend_options {
    const char *device; /* "auto", "ref", "cpu", "cuda", "cuda:N" */
    uint32_t n_threads; /* 0 = what k_backend_threads() says */
    enum k_gemm_form form; /* K_FORM_AUTO: mma on a GPU, tile where that is faster, else lane */
    struct k_format weight_format; /* what K_FORM_AUTO chooses for */
    const char *cpu_bind; /* NULL or "auto", "none", or the CPU of each thread: "0-3,8" */
    bool
        not_invariant; /* a GPU computes GEMMs of many tokens by NVIDIA's library in the mma form; a host changes nothing */
    const struct k_gpu_choice *choice; /* NULL: the first; read before k_backend_open() returns */
};

/* Opens a backend. "auto" takes the best this machine has; *why says in one line which and why
 * (static or owned by the backend). QUIRE_UNSUPPORTED when the machine or the build lacks it.
 * Where threads have a CPU of their own, the thread that begins the first step stays on it too. */
int k_backend_open(const struct k_backend_options *options, struct k_backend **out, const char **why,
                   struct quire_error *err);

/* What the cpu backend has arithmetic for, best last. False: past the last; on an architecture without it there is none. */
struct k_instruction_set {
    const char *name; /* "avx2", "avx512", "amx": static, as QUIRE_ISA has it */
    const char *lacks; /* NULL: this machine has it; else static: why not */
};
bool k_instruction_set_at(uint32_t i, struct k_instruction_set *out);

/* The compute threads that these options mean: n_threads, or the CPUs of cpu_bind's list, or the physical
 * cores this process may use, within its CPU quota. QUIRE_INVALID names the option. */
int k_backend_threads(const struct k_backend_options *options, uint32_t *out, struct quire_error *err);
uint32_t k_default_threads(void); /* of options that say nothing; at least 1 */
#define K_MAX_THREADS 512u

#endif
