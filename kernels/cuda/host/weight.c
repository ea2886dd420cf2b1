/* Weights on the device. In the mma form BF16 becomes f16 factors there, once and in place. A matrix passes through the
 * pinned pieces of memory.c: while the device reads one, the host packs rows from the mapping into the next. No call
 * waits for the copies, because operations follow them on the stream. */
#include "kernels/cuda/host/memory.h"
#include "kernels/cuda/host/operations.h"
#include "kernels/cuda/host/quant.h"
#include "kernels/cuda/gemm_launch.h"
#include "kernels/cuda/plan/plan.h"
#include "kernels/args/moe.h"
#include "kernels/weight_view.h"

#include <stdlib.h>
#include <string.h>

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Packs bytes [at, at + bytes) of a part in the device's layout: rows of `stride` bytes, padded with zeros. */
static void pack(const struct k_weight_view *part, uint64_t stride, uint64_t at, unsigned char *out, uint64_t bytes)
{
    const unsigned char *data = part->data;
    uint64_t row_bytes = k_format_bytes(part->format, part->n_cols);
    if (row_bytes == stride && part->row_stride_bytes == stride) {
        memcpy(out, data + at, (size_t)bytes);
        return;
    }
    for (uint64_t done = 0; done < bytes;) {
        uint64_t row = (at + done) / stride, column = (at + done) % stride;
        uint64_t n = min_u64(stride - column, bytes - done);
        uint64_t n_data = column < row_bytes ? min_u64(row_bytes - column, n) : 0;
        if (n_data > 0)
            memcpy(out + done, data + row * part->row_stride_bytes + column, (size_t)n_data);
        memset(out + done + n_data, 0, (size_t)(n - n_data));
        done += n;
    }
}

static int upload_part(struct k_backend *b, const struct k_weight_view *part, uint64_t stride, unsigned char *dst_dev,
                       struct quire_error *err)
{
    uint64_t bytes = part->n_rows * stride;
    for (uint64_t done = 0, n; done < bytes; done += n) {
        void *staged;
        int status = cuda_stage(b, bytes - done, &staged, &n, err);
        if (status != QUIRE_OK)
            return status;
        pack(part, stride, done, staged, n);
        status = cuda_check(
            b, cudaMemcpyAsync(dst_dev + done, staged, (size_t)n, cudaMemcpyHostToDevice, cuda_of(b)->stream),
            "uploading a weight", err);
        if (status != QUIRE_OK)
            return status;
    }
    return QUIRE_OK;
}

/* parts: of all experts */
static int upload(struct k_backend *b, const struct k_weight_view *parts, uint32_t n_parts, struct k_weight *w,
                  struct quire_error *err)
{
    unsigned char *at_dev = w->data_dev;
    for (uint32_t i = 0; i < n_parts; i++) {
        int status = upload_part(b, &parts[i], w->row_stride_bytes, at_dev, err);
        if (status != QUIRE_OK)
            return status;
        at_dev += parts[i].n_rows * w->row_stride_bytes;
    }
    return QUIRE_OK;
}

/* Maximum difference between the largest e and a row's own. The row's weights are then exact down to 2^-16 of its
 * largest, and the error of smaller ones is at most 2^-24 of that. */
#define MOST_BELOW 15

static bool is_of_zeros(const struct k_weight_view *part, uint32_t row)
{
    while (row >= part->n_rows)
        row -= part++->n_rows;
    const unsigned char *bytes = (const unsigned char *)part->data + row * part->row_stride_bytes;
    for (uint64_t i = 0; i < part->n_cols; i++)
        if (bytes[2 * i] != 0 || (bytes[2 * i + 1] & 0x7f) != 0)
            return false;
    return true;
}

/* Returns the largest e of the nonzero rows; rows of zeros have e = 0, which means nothing. Returns false if a row's e
 * is too far below it. */
static bool common_exponent(const int8_t *exponents, uint32_t n_rows, const struct k_weight_view *parts, int *out)
{
    int largest = INT8_MIN, smallest = INT8_MAX;
    for (uint32_t r = 0; r < n_rows; r++) {
        int e = exponents[r];
        if (e == 0 && is_of_zeros(parts, r))
            continue;
        largest = e > largest ? e : largest;
        smallest = e < smallest ? e : smallest;
    }
    *out = largest == INT8_MIN ? 0 : largest;
    return largest - smallest <= MOST_BELOW;
}

/* cuBLASLt has one scale per matrix, so the largest row's e replaces all e. A matrix whose rows differ too much keeps
 * the e of each row and uses our kernels. */
static int make_one_exponent(struct k_backend *b, const struct k_weight_view *parts, struct k_weight *w,
                             struct quire_error *err)
{
    int8_t *exponents = malloc(w->n_rows);
    if (!exponents)
        return quire_fail(err, QUIRE_NO_MEMORY, "weight: out of memory");
    int exponent, status = cuda_copy_out(b, exponents, w->exponents_dev, w->n_rows, err);
    w->has_one_exponent = status == QUIRE_OK && common_exponent(exponents, w->n_rows, parts, &exponent);
    free(exponents);
    if (!w->has_one_exponent)
        return status;
    w->exponent = exponent;
    return cuda_check(b, cudaMemsetAsync(w->exponents_dev, exponent, w->n_rows, cuda_of(b)->stream),
                      "a weight's exponent", err);
}

static bool is_cut(const struct k_weight_view *parts, uint32_t n_parts)
{
    for (uint32_t i = 0; i < n_parts; i++)
        if (parts[i].whole)
            return true;
    return false;
}

/* BF16 vectors. A Zen 3 thread reads rows at 11 GB/s this way, and at 2.3 GB/s one number at a time. */
typedef int16_t eight __attribute__((vector_size(16)));

static eight larger_finite(eight best, eight bits)
{
    bits &= 0x7fff;
    bits &= bits < 0x7f80;
    const eight is_larger = bits > best;
    return (bits & is_larger) | (best & ~is_larger);
}

/* Returns the largest finite number of a row, without its sign. */
static int16_t largest_of(const unsigned char *row, uint32_t n_cols)
{
    eight best = {0}, bits = {0};
    uint32_t i = 0;
    for (; n_cols - i >= 8; i += 8) {
        memcpy(&bits, row + 2 * (uint64_t)i, sizeof bits);
        best = larger_finite(best, bits);
    }
    memcpy(&bits, row + 2 * (uint64_t)i, 2 * (n_cols - i)); /* the elements that it keeps were compared before */
    best = larger_finite(best, bits);
    for (int k = 1; k < 8; k++)
        best[0] = best[k] > best[0] ? best[k] : best[0];
    return best[0];
}

/* Finds the largest number of each whole row, before its columns were cut. */
static void find_largest(const struct k_weight_view *part, int16_t *out)
{
    const unsigned char *row = part->whole ? part->whole : part->data;
    for (uint32_t r = 0; r < part->n_rows; r++, row += part->row_stride_bytes)
        out[r] = largest_of(row, part->whole ? part->whole_cols : part->n_cols);
}

/* Computes e of rows of which this rank has only some columns. The host, which has the whole rows, finds their largest
 * numbers and stores them where the columns will be, as a matrix of one column. */
static int make_exponents_of_cut(struct k_backend *b, const struct k_weight_view *parts, uint32_t n_parts,
                                 struct k_weight *w, struct quire_error *err)
{
    const uint64_t stride = cuda_weight_row_stride(w->format, 1);
    int16_t *largest = malloc(w->n_rows * sizeof *largest), *at = largest;
    if (!largest)
        return quire_fail(err, QUIRE_NO_MEMORY, "weight: out of memory");
    for (uint32_t i = 0; i < n_parts; at += parts[i].n_rows, i++)
        find_largest(&parts[i], at);
    const struct k_weight_view column = k_plain_view(largest, K_BF16, w->n_rows, 1, sizeof *largest);
    int status = upload_part(b, &column, stride, w->data_dev, err);
    free(largest);
    return status == QUIRE_OK
               ? cuda_check(b, launch_weight_exponents(cuda_of(b)->stream, w, stride), "a weight's exponents", err)
               : status;
}

/* Uploads BF16 that becomes f16 factors in place. */
static int upload_factors(struct k_backend *b, const struct k_weight_view *parts, uint32_t n_parts, struct k_weight *w,
                          struct quire_error *err)
{
    cudaStream_t stream = cuda_of(b)->stream;
    const bool is_of_cut = is_cut(parts, n_parts);
    w->exponents_dev = (int8_t *)w->data_dev + w->n_rows * w->row_stride_bytes;
    int status = is_of_cut ? make_exponents_of_cut(b, parts, n_parts, w, err) : QUIRE_OK;
    if (status == QUIRE_OK)
        status = upload(b, parts, n_parts, w, err);
    if (status == QUIRE_OK && !is_of_cut)
        status = cuda_check(b, launch_weight_exponents(stream, w, w->row_stride_bytes), "a weight's exponents", err);
    if (status == QUIRE_OK && cuda_of(b)->lt && w->n_experts == 1) /* the library has no experts */
        status = make_one_exponent(b, parts, w, err);
    if (status == QUIRE_OK)
        status = cuda_check(b, launch_weight_factors(stream, w), "a weight's factors", err);
    w->stored = K_F16;
    return status;
}

static bool is_quantized(const struct k_weight_view *parts, uint32_t n_parts)
{
    for (uint32_t i = 0; i < n_parts; i++)
        if (!k_format_is_plain(parts[i].format))
            return true;
    return false;
}

/* n_parts: of all experts */
static int check_formats(const struct k_weight_view *parts, uint32_t n_parts, struct quire_error *err)
{
    for (uint32_t i = 1; i < n_parts && !is_quantized(parts, n_parts); i++)
        if (parts[i].format.kind != parts[0].format.kind)
            return quire_fail(err, QUIRE_UNSUPPORTED,
                              "weight part %u: is %s, but part 0 is %s; a GPU needs parts of one format", i,
                              k_format_name(parts[i].format), k_format_name(parts[0].format));
    return QUIRE_OK;
}

/* Stores plain matrices, those of all experts as one. */
static int create_plain(struct k_backend *b, const struct k_weight_view *parts, uint32_t n_parts, struct k_weight *w,
                        struct quire_error *err)
{
    const uint32_t n_rows = w->n_rows;
    w->has_one_exponent = w->format.kind == K_F16;
    w->row_stride_bytes = cuda_weight_row_stride(w->format, w->n_cols);
    int status = cuda_alloc(b, cuda_weight_bytes(w->format, w->n_experts, n_rows, w->n_cols), &w->data_dev, err);
    if (status != QUIRE_OK)
        return status;
    w->n_rows = n_rows * w->n_experts;
    const bool as_factors = w->format.kind == K_BF16 && b->form == K_FORM_MMA;
    status = as_factors ? upload_factors(b, parts, n_parts, w, err) : upload(b, parts, n_parts, w, err);
    w->n_rows = n_rows;
    if (status == QUIRE_OK && w->n_experts == 1)
        cuda_gemm_hopper_describe(cuda_of(b)->hopper, w);
    return status;
}

int cuda_weight_create(struct k_backend *b, const struct k_weight_view *parts, uint32_t n_experts, uint32_t n_parts,
                       struct k_weight **out, struct quire_error *err)
{
    uint32_t n_rows;
    *out = NULL;
    int status = cuda_eager(b, "weight_create", err);
    if (status == QUIRE_OK)
        status = k_weight_check_experts(parts, n_experts, n_parts, &n_rows, err);
    if (status == QUIRE_OK && (n_experts > K_MOE_MAX_EXPERTS || (uint64_t)n_experts * n_rows > UINT32_MAX))
        status = quire_fail(err, QUIRE_UNSUPPORTED, "weight: %u experts of %u rows are too many for a GPU", n_experts,
                            n_rows);
    if (status == QUIRE_OK)
        status = check_formats(parts, n_experts * n_parts, err);
    if (status != QUIRE_OK)
        return status;
    struct k_weight *w = calloc(1, sizeof *w);
    if (!w)
        return quire_fail(err, QUIRE_NO_MEMORY, "weight: out of memory");
    w->n_rows = n_rows;
    w->n_cols = parts[0].n_cols;
    w->n_experts = n_experts;
    w->format = parts[0].format;
    w->stored = w->format.kind;
    status = is_quantized(parts, n_experts * n_parts) ? cuda_quant_create(b, parts, n_experts, n_parts, w, err)
                                                      : create_plain(b, parts, n_experts * n_parts, w, err);
    if (status != QUIRE_OK) {
        cuda_weight_destroy(b, w);
        return status;
    }
    *out = w;
    return QUIRE_OK;
}

void cuda_weight_destroy(struct k_backend *b, struct k_weight *w)
{
    if (!w)
        return;
    cuda_quant_destroy(b, w);
    cuda_free(b, w->data_dev);
    free(w);
}
