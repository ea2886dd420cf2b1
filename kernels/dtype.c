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
