#include "kernels/cuda/host/cublaslt.h"

#include "kernels/cuda/launch.h"
#include "kernels/cuda/plan/plan.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_SHAPES 512u  /* a model has 5 shapes, and a step of 2,048 tokens falls into one of 32 buckets */
#define BUCKET_TOKENS 64u
#define ALIGNMENT 16u  /* required of every matrix by the fastest kernels */

/* The library's objects for GEMMs of one shape. */
struct shape {
    uint32_t n_rows, n_cols, bucket; /* bucket: tokens, rounded up; 0: an empty entry */
    bool has_bias;
    bool is_supported, has_run;
    void *desc, *a, *b, *d; /* the library's objects; column-major: D [n_rows, T] = A' [n_rows, n_cols] B [n_cols, T] */
    struct lt_algorithm algorithm;
    size_t workspace_bytes;
};

struct cublaslt {
    void *library, *handle;
    char version[48];
    struct shape shapes[N_SHAPES]; /* by a hash of the shape; a new shape replaces the old one */
    size_t (*get_version)(void);
    const char *(*status_name)(int status);
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*desc_create)(void **desc, int compute, int scale);
    int (*desc_destroy)(void *desc);
    int (*desc_set)(void *desc, int attribute, const void *value, size_t bytes);
    int (*layout_create)(void **layout, int type, uint64_t rows, uint64_t cols, int64_t stride);
    int (*layout_destroy)(void *layout);
    int (*layout_set)(void *layout, int attribute, const void *value, size_t bytes);
    int (*preference_create)(void **preference);
    int (*preference_destroy)(void *preference);
    int (*preference_set)(void *preference, int attribute, const void *value, size_t bytes);
    int (*find)(void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference, int n,
                struct lt_heuristic *out, int *n_found);
    int (*matmul)(void *handle, void *desc, const void *alpha, const void *a, void *a_layout, const void *b,
                  void *b_layout, const void *beta, const void *c, void *c_layout, void *d, void *d_layout,
                  const struct lt_algorithm *algorithm, void *workspace, size_t workspace_bytes, cudaStream_t stream);
};

/* ---- opening ----------------------------------------------------------------------------------- */

#if defined(QUIRE_CUDA_LINKED) /* the emulator's stub, tests/simt: the real library needs a GPU */
static const char *const names[] = {"libcublasLt_simt.so"};
#else
static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
#endif
#define N_NAMES (sizeof names / sizeof names[0])

static int load(struct cublaslt *lt, struct quire_error *err)
{
    for (size_t i = 0; i < N_NAMES && !lt->library; i++)
        lt->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!lt->library)
        return quire_fail(err, QUIRE_INVALID,
                          "--invariance off needs cuBLASLt, but %s is not on the loader's path (%.200s): install"
                          " NVIDIA's libcublas, add its folder to LD_LIBRARY_PATH, or omit --invariance off",
                          names[0], dlerror());
    const struct {
        const char *name;
        void *at;
    } calls[] = {
        {"cublasLtGetVersion", &lt->get_version},
        {"cublasLtGetStatusName", &lt->status_name},
        {"cublasLtCreate", &lt->create},
        {"cublasLtDestroy", &lt->destroy},
        {"cublasLtMatmulDescCreate", &lt->desc_create},
        {"cublasLtMatmulDescDestroy", &lt->desc_destroy},
        {"cublasLtMatmulDescSetAttribute", &lt->desc_set},
        {"cublasLtMatrixLayoutCreate", &lt->layout_create},
        {"cublasLtMatrixLayoutDestroy", &lt->layout_destroy},
        {"cublasLtMatrixLayoutSetAttribute", &lt->layout_set},
        {"cublasLtMatmulPreferenceCreate", &lt->preference_create},
        {"cublasLtMatmulPreferenceDestroy", &lt->preference_destroy},
        {"cublasLtMatmulPreferenceSetAttribute", &lt->preference_set},
        {"cublasLtMatmulAlgoGetHeuristic", &lt->find},
        {"cublasLtMatmul", &lt->matmul},
    };
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        void *symbol = dlsym(lt->library, calls[i].name);
        if (!symbol)
            return quire_fail(err, QUIRE_INVALID, "--invariance off: the installed cuBLASLt lacks %s", calls[i].name);
        memcpy(calls[i].at, &symbol, sizeof symbol);
    }
    return QUIRE_OK;
}

int cublaslt_open(struct cublaslt **out, struct quire_error *err)
{
    *out = NULL;
    struct cublaslt *lt = calloc(1, sizeof *lt);
    if (!lt)
        return quire_fail(err, QUIRE_NO_MEMORY, "cuBLASLt: out of memory");
    int status = load(lt, err), error = status == QUIRE_OK ? lt->create(&lt->handle) : LT_SUCCESS;
    if (error != LT_SUCCESS) {
        lt->handle = NULL;
        status = quire_fail(err, QUIRE_UNSUPPORTED, "--invariance off: cuBLASLt does not start on this GPU: %s",
                            lt->status_name(error));
    }
    if (status != QUIRE_OK) {
        cublaslt_close(lt);
        return status;
    }
    size_t version = lt->get_version(); /* 130100 is 13.1.0 */
    snprintf(lt->version, sizeof lt->version, "cuBLASLt %zu.%zu.%zu", version / 10000, version / 100 % 100,
             version % 100);
    *out = lt;
    return QUIRE_OK;
}

static void forget(struct cublaslt *lt, struct shape *s)
{
    if (s->desc)
        lt->desc_destroy(s->desc);
    void *const layouts[] = {s->a, s->b, s->d};
    for (int i = 0; i < 3; i++)
        if (layouts[i])
            lt->layout_destroy(layouts[i]);
    *s = (struct shape){0};
}

void cublaslt_close(struct cublaslt *lt)
{
    if (!lt)
        return;
    for (uint32_t i = 0; i < N_SHAPES; i++)
        forget(lt, &lt->shapes[i]);
    if (lt->handle)
        lt->destroy(lt->handle);
    if (lt->library)
        dlclose(lt->library);
    free(lt);
}

const char *cublaslt_version(const struct cublaslt *lt)
{
    return lt->version;
}

/* ---- shapes ------------------------------------------------------------------------------------ */

/* Returns the first status that is not success. */
#define TRY(call) \
    do { \
        int status_ = (call); \
        if (status_ != LT_SUCCESS) \
            return status_; \
    } while (0)

static int describe(struct cublaslt *lt, struct shape *s, uint64_t row_stride)
{
    const int32_t transpose = LT_TRANSPOSE;
    const uint32_t epilogue = LT_EPILOGUE_BIAS;
    uint64_t factor_stride = cuda_gemm_factor_stride(s->n_cols);
    TRY(lt->desc_create(&s->desc, LT_COMPUTE_F32, LT_F32));
    TRY(lt->desc_set(s->desc, LT_DESC_TRANSA, &transpose, sizeof transpose));
    if (s->has_bias)
        TRY(lt->desc_set(s->desc, LT_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    TRY(lt->layout_create(&s->a, LT_F16, s->n_cols, s->n_rows, (int64_t)row_stride));
    TRY(lt->layout_create(&s->b, LT_F16, s->n_cols, s->bucket, (int64_t)factor_stride));
    return lt->layout_create(&s->d, LT_F32, s->n_rows, s->bucket, s->n_rows);
}

static int choose_with(struct cublaslt *lt, struct shape *s, void *preference)
{
    const uint64_t most = CUDA_CUBLASLT_WORKSPACE_BYTES;
    const uint32_t alignment = ALIGNMENT;
    struct lt_heuristic found;
    int n = 0;
    TRY(lt->preference_set(preference, LT_PREFERENCE_MAX_WORKSPACE, &most, sizeof most));
    for (int i = 0; i < 4; i++)
        TRY(lt->preference_set(preference, LT_PREFERENCE_ALIGNMENT_A + i, &alignment, sizeof alignment));
    TRY(lt->find(lt->handle, s->desc, s->a, s->b, s->d, s->d, preference, 1, &found, &n));
    if (n < 1 || found.status != LT_SUCCESS)
        return LT_NOT_SUPPORTED;
    s->algorithm = found.algorithm;
    s->workspace_bytes = found.workspace_bytes;
    return LT_SUCCESS;
}

static int choose(struct cublaslt *lt, struct shape *s, uint64_t row_stride)
{
    void *preference;
    TRY(describe(lt, s, row_stride));
    TRY(lt->preference_create(&preference));
    int status = choose_with(lt, s, preference);
    lt->preference_destroy(preference);
    return status;
}

/* Returns whether the status means that the library has no kernel for a shape. Any other status is a failure. */
static bool is_refusal(int status)
{
    return status == LT_NOT_SUPPORTED || status == LT_INVALID_VALUE || status == LT_ARCH_MISMATCH;
}

static int fail(struct k_backend *b, int status, struct quire_error *err)
{
    return cuda_die(b, "gemm by cuBLASLt", cuda_of(b)->lt->status_name(status), err);
}

/* Returns the shape's entry. Queries the library once per shape: 20 to 100 µs on the host. */
static int shape_of(struct k_backend *b, const struct k_gemm_args *a, struct shape **out, struct quire_error *err)
{
    struct cublaslt *lt = cuda_of(b)->lt;
    uint32_t n_rows = a->weight->n_rows, n_cols = a->weight->n_cols;
    uint32_t bucket = (a->n_tokens + BUCKET_TOKENS - 1) / BUCKET_TOKENS * BUCKET_TOKENS;
    bool has_bias = a->bias_dev != NULL;
    uint32_t hash = ((n_rows * 31 + n_cols) * 31 + bucket / BUCKET_TOKENS) * 2 + has_bias;
    struct shape *s = *out = &lt->shapes[hash % N_SHAPES];
    if (s->n_rows == n_rows && s->n_cols == n_cols && s->bucket == bucket && s->has_bias == has_bias)
        return QUIRE_OK;
    forget(lt, s);
    *s = (struct shape){.n_rows = n_rows, .n_cols = n_cols, .bucket = bucket, .has_bias = has_bias};
    int status = choose(lt, s, a->weight->row_stride_bytes / 2);
    s->is_supported = status == LT_SUCCESS;
    if (status == LT_SUCCESS || is_refusal(status))
        return QUIRE_OK;
    forget(lt, s);
    return fail(b, status, err);
}

/* ---- computing --------------------------------------------------------------------------------- */

static bool is_aligned(const void *p)
{
    return (uintptr_t)p % ALIGNMENT == 0;
}

static int matmul(struct cublaslt *lt, const struct shape *s, const struct k_gemm_args *a, const void *factors,
                  void *workspace, cudaStream_t stream)
{
    const float alpha = ldexpf(16.0f, a->weight->exponent), beta = 0; /* factors are x · 2^-4 and w · 2^-e */
    const uint64_t n_tokens = a->n_tokens;
    TRY(lt->layout_set(s->b, LT_LAYOUT_COLS, &n_tokens, sizeof n_tokens));
    TRY(lt->layout_set(s->d, LT_LAYOUT_COLS, &n_tokens, sizeof n_tokens));
    if (s->has_bias)
        TRY(lt->desc_set(s->desc, LT_DESC_BIAS_POINTER, &a->bias_dev, sizeof a->bias_dev));
    return lt->matmul(lt->handle, s->desc, &alpha, a->weight->data_dev, s->a, factors, s->b, &beta, a->y_dev, s->d,
                      a->y_dev, s->d, &s->algorithm, workspace, s->workspace_bytes, stream);
}

int cublaslt_gemm(struct k_backend *b, const struct k_gemm_args *a, bool *done, struct quire_error *err)
{
    struct cuda_backend *c = cuda_of(b);
    struct shape *s;
    *done = false;
    if (!a->weight->has_one_exponent || a->weight->n_rows % (ALIGNMENT / 4) != 0 || !is_aligned(a->y_dev) ||
        !is_aligned(a->bias_dev)) /* NULL is aligned */
        return QUIRE_OK;
    int status = shape_of(b, a, &s, err);
    if (status != QUIRE_OK || !s->is_supported || (c->is_recording && !s->has_run))
        return status;
    /* The library's part of the workspace comes first, on 256 bytes as the library requires. */
    unsigned char *workspace = (unsigned char *)(((uintptr_t)a->workspace_dev + 255) / 256 * 256);
    void *made = workspace + CUDA_CUBLASLT_WORKSPACE_BYTES;
    const void *factors = a->x_for_gemm ? (const void *)a->x_dev : made;
    if (!a->x_for_gemm)
        status = cuda_check(b, launch_gemm_factors(c->stream, a, made), "gemm", err);
    if (status != QUIRE_OK)
        return status;
    int error = matmul(c->lt, s, a, factors, workspace, c->stream);
    s->is_supported = error == LT_SUCCESS; /* the bucket's algorithm may not support fewer tokens */
    s->has_run |= error == LT_SUCCESS;
    *done = error == LT_SUCCESS;
    return error == LT_SUCCESS || is_refusal(error) ? QUIRE_OK : fail(b, error, err);
}
