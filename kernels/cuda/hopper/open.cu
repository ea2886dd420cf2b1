/* Tests at open, with a few small GEMMs of each kind, whether the kernels of gemm_hopper.cu compute gemm_large.cu's
 * bits on this GPU. Descriptors that no compiler checks control the copies of tiles and wgmma, and an answer with a
 * wrong bit would go unnoticed. A kind that differs is rejected as long as the backend exists, and the backend's
 * description reports it.
 *
 * The test takes some milliseconds and 20 MB of GPU memory, which it frees at the end. */
#include "kernels/cuda/hopper/gemm_hopper.h"

#ifdef __CUDACC__

#include <stdlib.h>
#include <string.h>

#define MOST_TOKENS 200u
#define MOST_ROWS 400u
#define MOST_COLS 4224u
#define WORKSPACE_BYTES ((uint64_t)12 << 20) /* factors of all tokens, and the waiting sums of 40 blocks */

struct trial {
    enum hopper_kind kind;
    uint32_t n_rows, n_cols, n_tokens, unit;
    uint32_t n_whole, first_col;
    bool as_factors, has_bias, has_exponents;
};

/* Partial tiles; columns that fill no stage and no chunk; segments of one chunk and of several, uneven and empty
 * ones. */
static const struct trial trials[] = {
    {HOPPER_PLAIN, 389, 1100, 200, 0, 0, 0, false, true, true},
    {HOPPER_PLAIN, 130, 72, 66, 0, 0, 0, false, false, false},
    {HOPPER_GATED, 400, 1100, 200, 0, 0, 0, true, true, true},
    {HOPPER_GATED, 48, 600, 67, 0, 0, 0, false, false, true},
    {HOPPER_SEGMENTS, 261, 4224, 200, 128, 0, 0, false, true, true},
    {HOPPER_SEGMENTS, 130, 1090, 131, 64, 0, 0, false, false, true},
    {HOPPER_SEGMENTS, 130, 192, 70, 64, 0, 0, false, false, true},
    {HOPPER_SEGMENTS, 261, 2048, 67, 128, 4096, 2048, false, false, true},
    {HOPPER_TAILS, 261, 1200, 200, 80, 0, 0, false, true, true},
    {HOPPER_TAILS, 130, 4200, 131, 48, 0, 0, false, false, false},
};
#define N_TRIALS (sizeof trials / sizeof trials[0])

/* Device memory, and the host data that is copied to and from it. */
struct bench {
    unsigned char *weights_dev, *workspace_dev;
    float *x_dev, *bias_dev, *y_dev, *want_dev;
    int8_t *exponents_dev;
    void *memory_dev;
    uint16_t *weights;
    float *x, *y, *want;
};

static uint32_t next(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

/* Fills f16 numbers of both signs with 10 bits: weights have factors of 2^-5 to 2^11, activations are at most 4. */
static void fill(struct bench *b)
{
    uint32_t state = 2463534242u;
    for (uint32_t i = 0; i < MOST_ROWS * MOST_COLS; i++) {
        const uint32_t bits = next(&state);
        b->weights[i] = (uint16_t)((bits & 0x83ff) | (10 + (bits >> 16) % 16) << 10);
    }
    for (uint32_t i = 0; i < MOST_TOKENS * MOST_COLS; i++)
        b->x[i] = (float)(int32_t)next(&state) * 0x1p-29f;
}

static cudaError_t take(struct bench *b, cudaStream_t stream)
{
    const uint64_t w = MOST_ROWS * (uint64_t)MOST_COLS * 2, x = MOST_TOKENS * (uint64_t)MOST_COLS * 4,
                   y = MOST_ROWS * (uint64_t)MOST_TOKENS * 4;
    b->weights = (uint16_t *)malloc(w);
    b->x = (float *)malloc(x);
    b->y = (float *)malloc(y);
    b->want = (float *)malloc(y);
    if (!b->weights || !b->x || !b->y || !b->want)
        return cudaErrorMemoryAllocation;
    fill(b);
    cudaError_t error = cudaMalloc(&b->memory_dev, w + x + 2 * y + WORKSPACE_BYTES + 8192);
    if (error != cudaSuccess)
        return error;
    unsigned char *at = (unsigned char *)b->memory_dev; /* all sizes are multiples of 16 */
    b->weights_dev = at, at += w;
    b->x_dev = (float *)at, at += x;
    b->y_dev = (float *)at, at += y;
    b->want_dev = (float *)at, at += y;
    b->bias_dev = (float *)at, at += 4096;
    b->exponents_dev = (int8_t *)at, at += 4096;
    b->workspace_dev = at;
    error = cudaMemcpyAsync(b->weights_dev, b->weights, w, cudaMemcpyHostToDevice, stream);
    if (error == cudaSuccess)
        error = cudaMemcpyAsync(b->x_dev, b->x, x, cudaMemcpyHostToDevice, stream);
    if (error == cudaSuccess) /* biases are some of the activations; exponents are bytes from -12 to -5 */
        error = cudaMemcpyAsync(b->bias_dev, b->x + 77, MOST_ROWS * 4, cudaMemcpyHostToDevice, stream);
    int8_t exponents[MOST_ROWS];
    for (uint32_t i = 0; i < MOST_ROWS; i++)
        exponents[i] = (int8_t)((int)(i * 5 % 8) - 12);
    if (error == cudaSuccess)
        error = cudaMemcpyAsync(b->exponents_dev, exponents, sizeof exponents, cudaMemcpyHostToDevice, stream);
    return error == cudaSuccess ? cudaStreamSynchronize(stream) : error;
}

static void release(struct bench *b)
{
    cudaFree(b->memory_dev);
    free(b->weights);
    free(b->x);
    free(b->y);
    free(b->want);
}

/* Computes the outputs of one kernel, or of gemm_large.cu (variant HOPPER_VARIANTS). Unwritten bytes stay 0xff. */
static cudaError_t compute(const struct bench *b, const struct trial *t, const struct cuda_gemm_means *gpu,
                           cudaStream_t stream, uint32_t variant)
{
    const uint64_t bytes = MOST_ROWS * (uint64_t)MOST_TOKENS * 4;
    const bool is_ours = variant < HOPPER_VARIANTS;
    float *out = is_ours ? b->y_dev : b->want_dev;
    struct k_weight w = {};
    w.n_rows = t->n_rows;
    w.n_cols = t->n_cols;
    w.stored = K_F16;
    w.row_stride_bytes = (t->n_cols + 7) / 8 * 16;
    w.data_dev = b->weights_dev;
    w.exponents_dev = t->has_exponents ? b->exponents_dev : NULL;
    cuda_gemm_hopper_describe(gpu->hopper, &w);
    const struct cuda_gated gated = {out, t->as_factors, {K_GATE_SILU, 0.0f}},
                            *to = t->kind == HOPPER_GATED ? &gated : NULL;
    struct k_gemm_args a = {};
    a.weight = &w;
    a.x_dev = b->x_dev;
    a.bias_dev = t->has_bias ? b->bias_dev : NULL;
    a.y_dev = out;
    a.workspace_dev = b->workspace_dev;
    a.n_tokens = t->n_tokens;
    a.unit = t->unit;
    a.n_whole = t->n_whole;
    a.first_col = t->first_col;
    const struct cuda_gemm_call call = {&a, to, gpu, stream};
    struct k_kernel kernel = {};
    kernel.variant = is_ours ? variant : CUDA_LARGE_64X64;
    cudaError_t error = cudaMemsetAsync(out, 0xff, bytes, stream);
    if (error == cudaSuccess && is_ours && !cuda_gemm_hopper_takes(&kernel, &call))
        return cudaErrorNotSupported;
    if (error == cudaSuccess)
        error = is_ours ? launch_gemm_hopper(&kernel, &call) : launch_gemm_large(&kernel, &call);
    if (error == cudaSuccess)
        error = cudaMemcpyAsync(is_ours ? b->y : b->want, out, bytes, cudaMemcpyDeviceToHost, stream);
    return error == cudaSuccess ? cudaStreamSynchronize(stream) : error;
}

/* A failed launch also rejects its kind; a sticky error ends the whole test. */
static cudaError_t run(struct cuda_gemm_hopper *h, const struct bench *b, const struct trial *t,
                       const struct cuda_gemm_means *gpu, cudaStream_t stream)
{
    cudaError_t error = compute(b, t, gpu, stream, HOPPER_VARIANTS);
    for (uint32_t v = 0; v < HOPPER_VARIANTS && error == cudaSuccess; v++) {
        if (gemm_hopper_kind(v) != t->kind || gemm_hopper_is_refused(h, t->kind))
            continue;
        const cudaError_t ours = compute(b, t, gpu, stream, v);
        cudaGetLastError();
        if (ours != cudaSuccess || memcmp(b->y, b->want, MOST_ROWS * (uint64_t)MOST_TOKENS * 4) != 0)
            gemm_hopper_refuse(h, t->kind);
        error = cudaStreamSynchronize(stream); /* finds a sticky error, not a launch error */
    }
    return error;
}

static cudaError_t try_all(struct cuda_gemm_hopper *h, cudaStream_t stream, const struct cuda_gemm_means *gpu)
{
    struct bench b = {};
    cudaError_t error = take(&b, stream);
    for (size_t i = 0; i < N_TRIALS && error == cudaSuccess; i++)
        error = run(h, &b, &trials[i], gpu, stream);
    release(&b);
    if (error != cudaErrorMemoryAllocation)
        return error;
    cudaGetLastError(); /* a shortage: no trial ran, so no kernel is used */
    for (int kind = 0; kind < HOPPER_KINDS; kind++)
        gemm_hopper_refuse(h, (enum hopper_kind)kind);
    return cudaSuccess;
}

cudaError_t cuda_gemm_hopper_open(cudaStream_t stream, const struct cuda_gemm_means *gpu, struct cuda_gemm_hopper **out)
{
    *out = gemm_hopper_new(gpu);
    struct cuda_gemm_means with = *gpu;
    with.hopper = *out;
    return *out ? try_all(*out, stream, &with) : cudaSuccess;
}

#else

cudaError_t cuda_gemm_hopper_open(cudaStream_t stream, const struct cuda_gemm_means *gpu, struct cuda_gemm_hopper **out)
{
    (void)stream, (void)gpu;
    *out = NULL;
    return cudaSuccess;
}

#endif
