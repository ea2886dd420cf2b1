#include "kernels/kernels.h"

size_t k_dtype_bytes(enum k_dtype dtype)
{
    return dtype == K_F32 ? 4 : 2;
}

const char *k_dtype_name(enum k_dtype dtype)
{
    switch (dtype) {
    case K_F32: return "float32";
    case K_F16: return "float16";
    case K_BF16: return "bfloat16";
    }
    return "unknown";
}

struct k_format k_format_of(enum k_dtype dtype)
{
    static const struct k_format plain[] = {K_FORMAT_F32, K_FORMAT_F16, K_FORMAT_BF16};
    return plain[dtype];
}

bool k_format_is_plain(struct k_format format)
{
    return (uint32_t)format.kind <= K_BF16 && format.bits == 8 * k_dtype_bytes(format.kind) && format.group == 0 &&
           format.packing == K_PACKING_NONE;
}

uint64_t k_format_bytes(struct k_format format, uint64_t n)
{
    return n / 8 * format.bits + (n % 8 * format.bits + 7) / 8;
}

const char *k_format_name(struct k_format format)
{
    return k_dtype_name(format.kind);
}

const char *k_form_name(enum k_gemm_form form)
{
    switch (form) {
    case K_FORM_LANE: return "lane";
    case K_FORM_TILE: return "tile";
    case K_FORM_TILE_BF16: return "tile of bfloat16 activations";
    case K_FORM_MMA: return "mma";
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
