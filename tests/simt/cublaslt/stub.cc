/* A stub of the cuBLASLt functions that kernels/cuda/host/cublaslt.c calls, for the emulator: libcublasLt_simt.so,
 * which that file opens instead of NVIDIA's library. It computes one kind of GEMM (A transposed, f16 factors, f32 sums,
 * an optional bias), in an order that depends on the number of tokens, as in the real library. It checks its arguments:
 * layouts must match, and the workspace must be aligned and exist. simt_fail_call() injects failures; its error is the
 * status: 15 is NOT_SUPPORTED. A leak ends the process with the emulator's status.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <new>

#include "kernels/cuda/host/cublaslt.h"
#include "kernels/kv.h"
#include "kernels/math/convert.h"
#include "tests/simt/runtime.h"
#include "tests/simt/simt.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace
{

constexpr size_t workspace_bytes = 1u << 20;
constexpr int bad = LT_INVALID_VALUE;

struct Desc {
    int32_t transpose_a = 0;
    uint32_t epilogue = 1;
    const float *bias = nullptr;
};
struct Layout {
    int type;
    uint64_t rows, cols;
    int64_t stride;
};
struct Preference {
    uint64_t workspace = 0;
    uint32_t alignment[4] = {256, 256, 256, 256};
};

long n_live; /* only one thread calls */
struct Leaks {
    ~Leaks()
    {
        if (n_live == 0)
            return;
        fprintf(stderr, "simt: %ld objects of cuBLASLt were not given back\n", n_live);
        _exit(SIMT_EXIT_STATUS);
    }
} leaks;

int asked_for(const char *call)
{
    return (int)simt_runtime::injected(call);
}
template <class T> int make(const char *call, void **out, const T &value)
{
    int status = asked_for(call);
    if (status)
        return status;
    *out = new T(value);
    n_live++;
    return LT_SUCCESS;
}
template <class T> int drop(void *object)
{
    delete (T *)object;
    n_live--;
    return LT_SUCCESS;
}
template <class T> int set(T *out, const void *value, size_t bytes)
{
    if (bytes != sizeof *out)
        return bad;
    memcpy(out, value, bytes);
    return LT_SUCCESS;
}

struct Problem {
    float alpha;
    const uint16_t *a, *b;
    const float *bias;
    float *d;
    uint64_t n_rows, n_cols, n_tokens;
    int64_t a_stride, b_stride, d_stride;
    unsigned char *workspace;
};

/* Computes the whole product in one thread. */
void multiply(Problem p)
{
    memset(p.workspace, 0xff, workspace_bytes);
    for (uint64_t t = 0; t < p.n_tokens; t++)
        for (uint64_t r = 0; r < p.n_rows; r++) {
            float sum = 0;
            for (uint64_t i = 0; i < p.n_cols; i++) {
                uint64_t k = p.n_tokens % 2 ? p.n_cols - 1 - i : i;
                sum += k_f32_from_f16(p.a[r * p.a_stride + k]) * k_f32_from_f16(p.b[t * p.b_stride + k]);
            }
            p.d[t * p.d_stride + r] = sum * p.alpha + (p.bias ? p.bias[r] : 0.0f);
        }
}

bool fit(const Desc &desc, const Layout &a, const Layout &b, const Layout &d)
{
    return desc.transpose_a == LT_TRANSPOSE && a.type == LT_F16 && b.type == LT_F16 && d.type == LT_F32 &&
           a.rows == b.rows && a.cols == d.rows && b.cols == d.cols && a.stride >= (int64_t)a.rows &&
           b.stride >= (int64_t)b.rows && d.stride >= (int64_t)d.rows;
}

} // namespace

EXPORT size_t cublasLtGetVersion(void)
{
    return 130102;
}
EXPORT const char *cublasLtGetStatusName(int status)
{
    return status == 13  ? "CUBLAS_STATUS_EXECUTION_FAILED"
           : status == 1 ? "CUBLAS_STATUS_NOT_INITIALIZED"
                         : "CUBLAS_STATUS_OTHER";
}
EXPORT int cublasLtCreate(void **handle)
{
    return make("cublasLtCreate", handle, 0);
}
EXPORT int cublasLtDestroy(void *handle)
{
    return drop<int>(handle);
}
EXPORT int cublasLtMatmulDescCreate(void **desc, int compute, int scale)
{
    return compute == LT_COMPUTE_F32 && scale == LT_F32 ? make("cublasLtMatmulDescCreate", desc, Desc()) : bad;
}
EXPORT int cublasLtMatmulDescDestroy(void *desc)
{
    return drop<Desc>(desc);
}
EXPORT int cublasLtMatmulDescSetAttribute(void *object, int attribute, const void *value, size_t bytes)
{
    Desc *desc = (Desc *)object;
    switch (attribute) {
    case LT_DESC_TRANSA: return set(&desc->transpose_a, value, bytes);
    case LT_DESC_EPILOGUE: return set(&desc->epilogue, value, bytes);
    case LT_DESC_BIAS_POINTER: return set(&desc->bias, value, bytes);
    default: return bad;
    }
}
EXPORT int cublasLtMatrixLayoutCreate(void **layout, int type, uint64_t rows, uint64_t cols, int64_t stride)
{
    return make("cublasLtMatrixLayoutCreate", layout, Layout{type, rows, cols, stride});
}
EXPORT int cublasLtMatrixLayoutDestroy(void *layout)
{
    return drop<Layout>(layout);
}
EXPORT int cublasLtMatrixLayoutSetAttribute(void *layout, int attribute, const void *value, size_t bytes)
{
    return attribute == LT_LAYOUT_COLS ? set(&((Layout *)layout)->cols, value, bytes) : bad;
}
EXPORT int cublasLtMatmulPreferenceCreate(void **preference)
{
    return make("cublasLtMatmulPreferenceCreate", preference, Preference());
}
EXPORT int cublasLtMatmulPreferenceDestroy(void *preference)
{
    return drop<Preference>(preference);
}
EXPORT int cublasLtMatmulPreferenceSetAttribute(void *object, int attribute, const void *value, size_t bytes)
{
    Preference *preference = (Preference *)object;
    if (attribute == LT_PREFERENCE_MAX_WORKSPACE)
        return set(&preference->workspace, value, bytes);
    if (attribute >= LT_PREFERENCE_ALIGNMENT_A && attribute < LT_PREFERENCE_ALIGNMENT_A + 4)
        return set(&preference->alignment[attribute - LT_PREFERENCE_ALIGNMENT_A], value, bytes);
    return bad;
}
EXPORT int cublasLtMatmulAlgoGetHeuristic(void *, void *desc, void *a, void *b, void *, void *d, void *object, int n,
                                          lt_heuristic *out, int *n_found)
{
    const Preference *preference = (const Preference *)object;
    int status = asked_for("cublasLtMatmulAlgoGetHeuristic");
    if (status)
        return status;
    if (n < 1 || !fit(*(Desc *)desc, *(Layout *)a, *(Layout *)b, *(Layout *)d))
        return bad;
    if (preference->workspace < workspace_bytes || preference->alignment[3] > 16)
        return LT_NOT_SUPPORTED;
    *out = lt_heuristic();
    out->algorithm.data[0] = 7;
    out->workspace_bytes = workspace_bytes;
    *n_found = 1;
    return LT_SUCCESS;
}
EXPORT int cublasLtMatmul(void *, void *desc_, const void *alpha, const void *a, void *a_layout, const void *b,
                          void *b_layout, const void *beta, const void *c, void *c_layout, void *d, void *d_layout,
                          const lt_algorithm *algorithm, void *workspace, size_t bytes, cudaStream_t stream)
{
    const Desc *desc = (const Desc *)desc_;
    const Layout *la = (const Layout *)a_layout, *lb = (const Layout *)b_layout, *ld = (const Layout *)d_layout;
    int status = asked_for("cublasLtMatmul");
    if (status)
        return status;
    bool has_bias = desc->epilogue == LT_EPILOGUE_BIAS;
    if (!fit(*desc, *la, *lb, *ld) || algorithm->data[0] != 7 || *(const float *)beta != 0 || c != d ||
        c_layout != d_layout || (has_bias && !simt_runtime::find(desc->bias, ld->rows * 4)) || (uintptr_t)a % 16 ||
        (uintptr_t)b % 16 || (uintptr_t)d % 16 || (uintptr_t)workspace % 256 || bytes < workspace_bytes ||
        !simt_runtime::find(workspace, bytes) ||
        !simt_runtime::find(a, (la->cols - 1) * la->stride * 2 + la->rows * 2) ||
        !simt_runtime::find(b, (lb->cols - 1) * lb->stride * 2 + lb->rows * 2) ||
        !simt_runtime::find(d, ld->rows * ld->cols * 4))
        return 13; /* a bug of the caller, which must be visible */
    Problem p = {*(const float *)alpha,
                 (const uint16_t *)a,
                 (const uint16_t *)b,
                 has_bias ? desc->bias : nullptr,
                 (float *)d,
                 ld->rows,
                 la->rows,
                 ld->cols,
                 la->stride,
                 lb->stride,
                 ld->stride,
                 (unsigned char *)workspace};
    return simt::launch_on(stream, dim3(1), dim3(1), 0, "cublasLtMatmul", multiply, p) == cudaSuccess ? LT_SUCCESS : 13;
}
