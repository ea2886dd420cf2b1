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
