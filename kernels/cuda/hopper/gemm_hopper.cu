/* The mma GEMM of more than 64 tokens on Hopper (compute capability 9.0, code for sm_90a). It computes
 * gemm_large.cu's bits with TMA and wgmma. This file says when to use it, estimates the kernels' times and launches
 * them; gemm_hopper.cuh has the kernel. Each variant is a row of host/gemm.c's table.
 *
 * Estimates: the time of the kernel's waves of tiles, by measurements on an H100 (80 GB, HBM3) for
 * 28,672, 6,144 and 4,096 rows of 4,096 columns, and 4,096 rows of 14,336, at 512 and 2,048 tokens. A stage is 128
 * rows x the tile's tokens x 64 columns on every SM; the constant is per launch:
 *
 *   tile        blocks     ns a stage   and     TFLOP/s measured
 *   128 x 192   pairs          560      8 us    608 to 670 at 2,048 tokens, 277 to 479 at 512
 *   128 x 128   single         460      3       538 to 595                  426 to 674
 *   128 x  64   single         290      0       369 to 455                  448 to 545
 *   in segments:
 *   128 x 128   pairs          510     12       454 to 544                  349 to 496
 *   128 x 128   single         535      6       453 to 479                  330 to 542
 *   128 x  64   single         350      3       not measured: the row above, and its share of the waiting sums
 *
 * On the same GPU gemm_large.cu reaches 227 to 339 at 2,048 tokens, 235 to 320 at 512, and 53 to 133 at 65, where
 * these kernels need at most two tiles of 64. Up to 64 tokens, reading the weights is the limit: the existing
 * kernels reach 62 to 80 % of the bandwidth. */
#include "kernels/cuda/hopper/gemm_hopper.h"

#ifdef __CUDACC__

#include "kernels/cuda/hopper/gemm_hopper.cuh"
#include "kernels/cuda/plan/plan.h"

#include <stdio.h>
#include <stdlib.h>

#define LEAST_TOKENS 65u
#define LEAST_COLS 64u
#define GROUP_TOKENS 2048u /* tokens that share one read of the weights: as measured; more would exceed L2 */

using encode_fn = decltype(&cuTensorMapEncodeTiled);

struct cuda_gemm_hopper {
    encode_fn encode;
    uint32_t n_sms;
    uint32_t n_blocks[HOPPER_VARIANTS]; /* blocks of each kernel that run at once */
    bool is_refused[HOPPER_KINDS];
    char refusals[96];
};

/* ---- the kernels ---- */

struct hopper_variant {
    const void *kernel;
    const struct k_loadable *loadable; /* load.cu loads it with the kernels of K_LAUNCH */
    enum hopper_kind kind;
    uint32_t n_tokens, shared_bytes, waiting_bytes;
    bool is_pair;
    uint32_t stage_ns, launch_ns;
};

template <uint32_t tokens, uint32_t stages, enum hopper_kind kind, bool is_pair>
static struct hopper_variant variant_of(uint32_t stage_ns, uint32_t launch_ns)
{
    using shape = hopper_shape<tokens, stages, kind, is_pair>;
    struct hopper_variant v = {(const void *)gemm_hopper<tokens, stages, kind, is_pair>,
                               &k_loadable_of<(gemm_hopper<tokens, stages, kind, is_pair>)>::entry,
                               kind,
                               tokens,
                               shape::shared_bytes,
                               shape::is_segmented ? shape::waiting_bytes : 0,
                               is_pair,
                               stage_ns,
                               launch_ns};
    return v;
}

static const struct hopper_variant variants[HOPPER_VARIANTS] = {
    variant_of<192, 5, HOPPER_PLAIN, true>(560, 8000),     variant_of<128, 6, HOPPER_PLAIN, false>(460, 3000),
    variant_of<64, 8, HOPPER_PLAIN, false>(290, 0),        variant_of<192, 5, HOPPER_GATED, true>(560, 8000),
    variant_of<128, 6, HOPPER_GATED, false>(460, 3000),    variant_of<64, 8, HOPPER_GATED, false>(290, 0),
    variant_of<128, 6, HOPPER_SEGMENTS, true>(510, 12000), variant_of<128, 6, HOPPER_SEGMENTS, false>(535, 6000),
    variant_of<64, 8, HOPPER_SEGMENTS, false>(350, 3000),  variant_of<128, 6, HOPPER_TAILS, false>(600, 6000),
};

enum hopper_kind gemm_hopper_kind(uint32_t variant)
{
    return variants[variant].kind;
}

bool gemm_hopper_is_refused(const struct cuda_gemm_hopper *h, enum hopper_kind kind)
{
    return h->is_refused[kind];
}

void gemm_hopper_refuse(struct cuda_gemm_hopper *h, enum hopper_kind kind)
{
    static const char *const names[HOPPER_KINDS] = {"plain", "gated", "segments", "tails"};
    const size_t n = strlen(h->refusals);
    if (!h->is_refused[kind])
        snprintf(h->refusals + n, sizeof h->refusals - n, "%s%s", n ? " " : ", NOT USED: wgmma kernels ", names[kind]);
    h->is_refused[kind] = true;
}

/* ---- a GEMM ---- */

/* The parameters of a GEMM for these kernels. */
struct hopper_gemm {
    enum hopper_kind kind;
    bool one_chunk;
    uint32_t begins[K_SEGMENTS + 1];
};

static struct hopper_gemm gemm_of(const struct k_gemm_args *a, const struct cuda_gated *gated)
{
    const uint32_t n_cols = a->weight->n_cols;
    struct hopper_gemm g = {gated ? HOPPER_GATED : a->unit ? HOPPER_SEGMENTS : HOPPER_PLAIN, true, {0}};
    for (uint32_t i = 0; i <= K_SEGMENTS; i++)
        g.begins[i] = g.kind == HOPPER_SEGMENTS ? k_segment_begin_in(n_cols, a->n_whole, a->first_col, a->unit, i)
                                                : (i > 0 ? n_cols : 0);
    for (uint32_t i = 0; i < K_SEGMENTS && a->unit; i++) {
        const uint32_t n = g.begins[i + 1] - g.begins[i];
        g.one_chunk = g.one_chunk && n <= HOPPER_CHUNK;
        if (n % HOPPER_COLS != 0 && g.begins[i + 1] < n_cols)
            g.kind = HOPPER_TAILS;
    }
    return g;
}

static uint32_t tiles_of(uint32_t n, uint32_t tile)
{
    return (uint32_t)(((uint64_t)n + tile - 1) / tile);
}

static uint32_t row_tiles_of(const struct hopper_variant *v, const struct k_gemm_args *a)
{
    return tiles_of(a->weight->n_rows, v->is_pair ? 2 * HOPPER_ROWS : HOPPER_ROWS);
}

uint64_t cuda_gemm_hopper_clocks(const struct k_kernel *kernel, const void *of)
{
    const struct cuda_gemm_call *call = (const struct cuda_gemm_call *)of;
    const struct k_gemm_args *a = call->args;
    const struct cuda_gemm_hopper *h = call->gpu->hopper;
    const uint32_t variant = kernel->variant;
    const struct hopper_variant *v = &variants[variant];
    const uint64_t n_tiles = (uint64_t)row_tiles_of(v, a) * tiles_of(a->n_tokens, v->n_tokens);
    const uint32_t at_once = v->is_pair ? h->n_blocks[variant] / 2 : h->n_blocks[variant];
    const uint64_t n_waves = (n_tiles + at_once - 1) / at_once;
    return n_waves * tiles_of(a->weight->n_cols, HOPPER_COLS) * v->stage_ns + v->launch_ns;
}

/* Returns whether the kernels support the GEMM, apart from the kinds that failed their trial. The only conditions
 * come from the copies of tiles: addresses are multiples of 16 bytes, and the weight has a tensor map. Rows of factors
 * are always whole multiples of 32 bytes. Outputs are stored in pairs. */
static bool suits(const struct k_gemm_args *a, const struct cuda_gated *gated)
{
    const struct k_weight *w = a->weight;
    const void *factors = a->x_for_gemm ? (const void *)a->x_dev : a->workspace_dev;
    bool fits = w->n_quant == 0 && w->stored == K_F16 && w->n_cols >= LEAST_COLS && w->row_stride_bytes % 16 == 0;
    fits = fits && (uintptr_t)w->data_dev % 16 == 0 && (uintptr_t)factors % 16 == 0 &&
           (uintptr_t)a->workspace_dev % 16 == 0;
    return fits && w->has_tensor_map[gated ? CUDA_TENSOR_MAP_GATED : CUDA_TENSOR_MAP_ROWS] &&
           (!gated || (uintptr_t)gated->out_dev % 16 == 0);
}

bool cuda_gemm_hopper_takes(const struct k_kernel *kernel, const void *of)
{
    const struct cuda_gemm_call *call = (const struct cuda_gemm_call *)of;
    const struct cuda_gemm_hopper *h = call->gpu->hopper;
    const enum hopper_kind kind = variants[kernel->variant].kind;
    if (!h || call->args->n_tokens < LEAST_TOKENS || h->is_refused[kind] || !suits(call->args, call->gated))
        return false;
    return gemm_of(call->args, call->gated).kind == kind;
}

/* ---- launches ---- */

/* A tensor of f16, innermost dimension first; strides, in bytes, belong to the other dimensions. */
struct hopper_tensor {
    const void *at;
    uint32_t rank;
    cuuint64_t dims[4], strides[3];
    cuuint32_t box[4];
};

static bool describe(const struct cuda_gemm_hopper *h, const struct hopper_tensor *t, CUtensorMap *out)
{
    const cuuint32_t steps[4] = {1, 1, 1, 1};
    return h->encode(out, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, t->rank, (void *)t->at, t->dims, t->strides, t->box, steps,
                     CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                     CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

static struct hopper_tensor weights_of(const struct k_weight *w, bool is_gated)
{
    const uint64_t stride = w->row_stride_bytes, half = w->n_rows / 2;
    const struct hopper_tensor plain = {w->data_dev, 2, {w->n_cols, w->n_rows}, {stride}, {HOPPER_COLS, HOPPER_ROWS}};
    const struct hopper_tensor gated = {w->data_dev,
                                        4,
                                        {w->n_cols, 8, 2, half / 8},
                                        {stride, half * stride, 8 * stride},
                                        {HOPPER_COLS, 8, 2, HOPPER_ROWS / 16}};
    return is_gated ? gated : plain;
}

/* Gated rows come in groups of 8. */
void cuda_gemm_hopper_describe(const struct cuda_gemm_hopper *h, struct k_weight *w)
{
    static_assert(sizeof(CUtensorMap) == CUDA_TENSOR_MAP_BYTES, "the place in a weight");
    for (uint32_t i = 0; i < CUDA_TENSOR_MAPS; i++) {
        const bool is_gated = i == CUDA_TENSOR_MAP_GATED;
        const struct hopper_tensor tensor = weights_of(w, is_gated);
        CUtensorMap map; /* aligned, as the driver demands and a weight need not be */
        w->has_tensor_map[i] = h && w->n_quant == 0 && w->stored == K_F16 && w->n_cols >= LEAST_COLS &&
                               (!is_gated || w->n_rows % 16 == 0) && describe(h, &tensor, &map);
        if (w->has_tensor_map[i])
            memcpy(w->tensor_maps[i], &map, sizeof map);
    }
}

static cudaError_t launch(const struct cuda_gemm_hopper *h, cudaStream_t stream, uint32_t variant, CUtensorMap *maps,
                          struct hopper_args *args)
{
    const struct hopper_variant *v = &variants[variant];
    const uint32_t n_items = args->n_row_tiles * args->n_token_tiles, n = v->is_pair ? 2 * n_items : n_items;
    uint32_t n_blocks = min(n, h->n_blocks[variant]);
    if (v->waiting_bytes > 0)
        n_blocks = min(n_blocks, (uint32_t)(CUDA_GEMM_WAITING_BYTES / v->waiting_bytes));
    if (v->is_pair)
        n_blocks -= n_blocks % 2;
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = v->is_pair ? 2 : 1;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(n_blocks);
    config.blockDim = dim3(HOPPER_THREADS);
    config.dynamicSmemBytes = v->shared_bytes;
    config.stream = stream;
    config.attrs = &cluster;
    config.numAttrs = v->is_pair ? 1 : 0;
    void *values[] = {&maps[0], &maps[1], args};
    return cudaLaunchKernelExC(&config, v->kernel, values);
}

cudaError_t launch_gemm_hopper(const struct k_kernel *kernel, const struct cuda_gemm_call *call)
{
    const struct k_gemm_args *a = call->args;
    const struct cuda_gated *gated = call->gated;
    const struct cuda_gemm_hopper *h = call->gpu->hopper;
    const struct hopper_variant *v = &variants[kernel->variant];
    const struct k_weight *w = a->weight;
    const struct hopper_gemm g = gemm_of(a, gated);
    const uint64_t stride = cuda_gemm_factor_stride(w->n_cols) * UINT64_C(2);
    unsigned char *made = (unsigned char *)a->workspace_dev; /* factors, if x holds floats; then the waiting sums */
    const void *factors = a->x_for_gemm ? (const void *)a->x_dev : made;
    const struct hopper_tensor tokens = {
        factors, 2, {w->n_cols, a->n_tokens}, {stride}, {HOPPER_COLS, v->is_pair ? v->n_tokens / 2 : v->n_tokens}};
    CUtensorMap maps[2];
    memcpy(&maps[0], w->tensor_maps[gated ? CUDA_TENSOR_MAP_GATED : CUDA_TENSOR_MAP_ROWS], sizeof maps[0]);
    if (!describe(h, &tokens, &maps[1]))
        return cudaErrorNotSupported;
    struct hopper_args args = {w->exponents_dev,
                               a->bias_dev,
                               gated ? gated->out_dev : a->y_dev,
                               (float4 *)(made + a->n_tokens * stride),
                               gated ? w->n_rows / 2 : w->n_rows,
                               a->n_tokens,
                               row_tiles_of(v, a),
                               tiles_of(a->n_tokens, v->n_tokens),
                               tiles_of(GROUP_TOKENS, v->n_tokens),
                               gated && gated->as_factors,
                               g.one_chunk,
                               gated ? gated->gate : (struct k_gate){K_GATE_SILU, 0.0f},
                               {0}};
    memcpy(args.begins, g.begins, sizeof args.begins);
    const cudaError_t error = a->x_for_gemm ? cudaSuccess : launch_gemm_factors(call->stream, a, made);
    return error == cudaSuccess ? launch(h, call->stream, kernel->variant, maps, &args) : error;
}

/* ---- the object ---- */

/* Returns the driver's function, because quire does not link with the driver, or NULL if the driver lacks it. */
static encode_fn find_encode()
{
    void *at = NULL;
    cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
    cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &at, 12000, cudaEnableDefault,
                                                         &found);
#else
    cudaError_t error = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &at, cudaEnableDefault, &found);
#endif
    return error == cudaSuccess && found == cudaDriverEntryPointSuccess ? (encode_fn)at : NULL;
}

/* Computes how many blocks run at once: one per SM; for pairs, as many as fit. */
static cudaError_t prepare(struct cuda_gemm_hopper *h, uint32_t variant)
{
    const struct hopper_variant *v = &variants[variant];
    h->n_blocks[variant] = h->n_sms;
    cudaError_t error = cudaFuncSetAttribute(v->kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                             (int)v->shared_bytes);
    if (error != cudaSuccess || !v->is_pair)
        return error;
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = 2;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(h->n_sms / 2 * 2);
    config.blockDim = dim3(HOPPER_THREADS);
    config.dynamicSmemBytes = v->shared_bytes;
    config.attrs = &cluster;
    config.numAttrs = 1;
    int n = 0;
    error = cudaOccupancyMaxActiveClusters(&n, v->kernel, &config);
    h->n_blocks[variant] = 2 * (n < 1 ? 1 : min((uint32_t)n, h->n_sms / 2));
    return error;
}

/* Returns whether this GPU runs the code for sm_90a. Code that the driver compiles from PTX is empty and uses hardly
 * any registers. */
static bool has_code()
{
    struct cudaFuncAttributes f;
    const bool is_there = cudaFuncGetAttributes(&f, variants[0].kernel) == cudaSuccess;
    return is_there && f.binaryVersion == 90 && f.numRegs > 100;
}

struct cuda_gemm_hopper *gemm_hopper_new(const struct cuda_gemm_means *gpu)
{
    const bool is_hopper = gpu->compute_capability == 90 && gpu->shared_bytes >= 227u << 10 && gpu->n_sms >= 2;
    const encode_fn encode = is_hopper && has_code() ? find_encode() : NULL;
    struct cuda_gemm_hopper *h = encode ? (struct cuda_gemm_hopper *)calloc(1, sizeof *h) : NULL;
    cudaGetLastError(); /* a failed query is not an error of the backend */
    if (!h)
        return NULL;
    h->encode = encode;
    h->n_sms = gpu->n_sms;
    for (uint32_t i = 0; i < HOPPER_VARIANTS; i++)
        if (prepare(h, i) != cudaSuccess)
            gemm_hopper_refuse(h, variants[i].kind);
    cudaGetLastError(); /* this kind is rejected */
    return h;
}

void cuda_gemm_hopper_close(struct cuda_gemm_hopper *h)
{
    free(h);
}

const char *cuda_gemm_hopper_refusals(const struct cuda_gemm_hopper *h)
{
    return h ? h->refusals : "";
}

#else /* the emulator has no wgmma: gemm_large.cu computes every GEMM */

void cuda_gemm_hopper_describe(const struct cuda_gemm_hopper *h, struct k_weight *w)
{
    (void)h, (void)w;
}

bool cuda_gemm_hopper_takes(const struct k_kernel *kernel, const void *call)
{
    (void)kernel, (void)call;
    return false;
}

uint64_t cuda_gemm_hopper_clocks(const struct k_kernel *kernel, const void *call)
{
    (void)kernel, (void)call;
    return K_KERNEL_NEVER;
}

cudaError_t launch_gemm_hopper(const struct k_kernel *kernel, const struct cuda_gemm_call *call)
{
    (void)kernel, (void)call;
    return cudaErrorNotSupported;
}

void cuda_gemm_hopper_close(struct cuda_gemm_hopper *h)
{
    (void)h;
}

const char *cuda_gemm_hopper_refusals(const struct cuda_gemm_hopper *h)
{
    (void)h;
    return "";
}

#endif
