#include "kernels/backend.h"
#include "kernels/kv.h"
#include "kernels/quant.h"

static const struct k_blocks kinds[K_N_PACKINGS] = {
    [K_PACKING_Q8_0] = {"Q8_0", 32, 34, 32, 8, false},       [K_PACKING_Q4_0] = {"Q4_0", 32, 18, 32, 4, false},
    [K_PACKING_Q4_1] = {"Q4_1", 32, 20, 32, 4, true},        [K_PACKING_Q5_0] = {"Q5_0", 32, 22, 32, 5, false},
    [K_PACKING_Q5_1] = {"Q5_1", 32, 24, 32, 5, true},        [K_PACKING_MXFP4] = {"MXFP4", 32, 17, 32, 4, false},
    [K_PACKING_IQ4_NL] = {"IQ4_NL", 32, 18, 32, 4, false},   [K_PACKING_Q2_K] = {"Q2_K", 256, 84, 16, 2, true},
    [K_PACKING_Q3_K] = {"Q3_K", 256, 110, 16, 3, false},     [K_PACKING_Q4_K] = {"Q4_K", 256, 144, 32, 4, true},
    [K_PACKING_Q5_K] = {"Q5_K", 256, 176, 32, 5, true},      [K_PACKING_Q6_K] = {"Q6_K", 256, 210, 16, 6, false},
    [K_PACKING_IQ4_XS] = {"IQ4_XS", 256, 136, 32, 4, false},
};

const struct k_blocks *k_blocks_of(enum k_packing packing)
{
    return (uint32_t)packing < K_N_PACKINGS && kinds[packing].name ? &kinds[packing] : NULL;
}

size_t k_dtype_bytes(enum k_dtype dtype)
{
    return dtype == K_F32 ? 4 : dtype <= K_BF16 ? 2 : 1;
}

const char *k_dtype_name(enum k_dtype dtype)
{
    switch (dtype) {
    case K_F32: return "float32";
    case K_F16: return "float16";
    case K_BF16: return "bfloat16";
    case K_INT: return "int";
    case K_E4M3: return "float8_e4m3";
    case K_E5M2: return "float8_e5m2";
    case K_E2M1: return "float4_e2m1";
    case K_E8M0: return "float8_e8m0";
    }
    return "unknown";
}

struct k_format k_format_of(enum k_dtype dtype)
{
    static const struct k_format plain[] = {K_FORMAT_F32, K_FORMAT_F16, K_FORMAT_BF16};
    return plain[dtype];
}

struct k_format k_format_of_blocks(enum k_packing packing)
{
    const struct k_blocks *blocks = k_blocks_of(packing);
    const enum k_dtype scale = packing == K_PACKING_MXFP4 ? K_E8M0 : K_F16;
    return (struct k_format){K_INT, blocks->bits, blocks->group, scale, packing};
}

struct k_format k_format_of_planes(enum k_dtype kind, uint32_t bits, uint32_t group, enum k_dtype scale)
{
    return (struct k_format){kind, bits, group, scale, K_PACKING_PLANES};
}

struct k_format k_kv_format(enum k_dtype kind)
{
    return kind == K_F32 || kind == K_F16 ? k_format_of(kind) : k_format_of_planes(kind, 8, 0, K_F32);
}

uint64_t k_kv_scales_at(const struct k_kv_shape *kv)
{
    return k_format_bytes(kv->format, (uint64_t)kv->n_kv_heads * kv->block_tokens * kv->head_dim);
}

uint64_t k_kv_v_block_bytes(const struct k_kv_shape *kv)
{
    struct k_kv_shape v = *kv;
    v.head_dim = kv->v_dim;
    return k_kv_block_bytes(&v);
}

int k_kv_check(const struct k_kv_shape *kv, struct quire_error *err)
{
    if (kv->head_dim == kv->v_dim)
        return QUIRE_OK;
    return quire_fail(err, QUIRE_UNSUPPORTED,
                      "KV cache: heads of K have %u numbers and heads of V %u: attention takes equal ones only",
                      kv->head_dim, kv->v_dim);
}

uint64_t k_kv_block_bytes(const struct k_kv_shape *kv)
{
    uint64_t scales = k_format_is_plain(kv->format) ? 0 : (uint64_t)kv->n_kv_heads * kv->block_tokens * sizeof(float);
    return (k_kv_scales_at(kv) + scales + 15) / 16 * 16;
}

bool k_format_is_plain(struct k_format format)
{
    return (uint32_t)format.kind <= K_BF16 && format.bits == 8 * k_dtype_bytes(format.kind) && format.group == 0 &&
           format.packing == K_PACKING_NONE;
}

bool k_format_is_quantized(struct k_format format)
{
    const struct k_blocks *blocks = k_blocks_of(format.packing);
    if (blocks)
        return format.kind == K_INT && format.bits == blocks->bits && format.group == blocks->group;
    if (format.kind == K_E2M1)
        return format.packing == K_PACKING_PLANES && format.bits == 4 && format.scale == K_E8M0 && format.group == 32;
    return format.packing == K_PACKING_PLANES && (uint32_t)format.scale <= K_BF16 && format.group % 16 == 0 &&
           (format.kind == K_INT ? format.bits == 4 || format.bits == 8
                                 : (format.kind == K_E4M3 || format.kind == K_E5M2) && format.bits == 8);
}

bool k_format_is_integers(struct k_format format)
{
    return k_format_is_quantized(format) && (format.kind == K_INT || format.kind == K_E2M1);
}

uint64_t k_format_bytes(struct k_format format, uint64_t n)
{
    const struct k_blocks *blocks = k_blocks_of(format.packing);
    if (blocks)
        return (n + blocks->columns - 1) / blocks->columns * blocks->bytes;
    return n / 8 * format.bits + (n % 8 * format.bits + 7) / 8;
}

const char *k_format_name(struct k_format format)
{
    const struct k_blocks *blocks = k_blocks_of(format.packing);
    if (blocks)
        return blocks->name;
    if (format.kind == K_INT)
        return format.bits == 4 ? "int4" : "int8";
    return k_dtype_name(format.kind);
}

const char *k_form_name(enum k_gemm_form form)
{
    switch (form) {
    case K_FORM_LANE: return "lane";
    case K_FORM_TILE: return "tile";
    case K_FORM_TILE_BF16: return "tile of bfloat16 activations";
    case K_FORM_MMA: return "mma";
    case K_FORM_INT8: return "int8";
    case K_FORM_AUTO: return "auto";
    }
    return "unknown";
}

const char *k_operation_name(enum k_operation operation)
{
#define NAME(NAME, name, text) #name,
    static const char *const names[] = {K_OPERATIONS(NAME)};
#undef NAME
    return names[operation];
}
