/* The 16 lanes of docs/internals/numerics.md §4 as two vectors of eight floats, in the compilers' generic vector types:
 * one AVX2 register each, two NEON registers, or plain code on other machines. Pure; any thread. */
#ifndef QUIRE_KERNELS_REF_LANES_H
#define QUIRE_KERNELS_REF_LANES_H

#if defined(__F16C__)
#include <immintrin.h>
#endif

typedef float ref_f32x4 __attribute__((vector_size(16)));
typedef float ref_f32x8 __attribute__((vector_size(32)));
typedef uint32_t ref_u32x8 __attribute__((vector_size(32)));
typedef int32_t ref_i32x8 __attribute__((vector_size(32)));
typedef uint16_t ref_u16x8 __attribute__((vector_size(16)));

/* The same types with the alignment of one element, for unaligned loads. */
typedef float ref_f32x8_loose __attribute__((vector_size(32), aligned(4), may_alias));
typedef uint16_t ref_u16x8_loose __attribute__((vector_size(16), aligned(2), may_alias));

struct ref_lanes {
    ref_f32x8 low; /* lanes 0..7 */
    ref_f32x8 high; /* lanes 8..15 */
};

/* Eight fmas. The loop over elements compiles to one instruction. */
static inline ref_f32x8 ref_fma8(ref_f32x8 a, ref_f32x8 b, ref_f32x8 c)
{
    ref_f32x8 r;
    for (int j = 0; j < 8; j++)
        r[j] = __builtin_fmaf(a[j], b[j], c[j]);
    return r;
}

static inline struct ref_lanes ref_zero(void)
{
    return (struct ref_lanes){{0}, {0}};
}

static inline struct ref_lanes ref_splat(float x)
{
    ref_f32x8 v = {x, x, x, x, x, x, x, x};
    return (struct ref_lanes){v, v};
}

/* Returns s + a b, lane by lane. */
static inline struct ref_lanes ref_fma(struct ref_lanes a, struct ref_lanes b, struct ref_lanes s)
{
    return (struct ref_lanes){ref_fma8(a.low, b.low, s.low), ref_fma8(a.high, b.high, s.high)};
}

static inline struct ref_lanes ref_load_f32(const float *p)
{
    return (struct ref_lanes){*(const ref_f32x8_loose *)p, *(const ref_f32x8_loose *)(p + 8)};
}

static inline void ref_store_f32(float *p, struct ref_lanes v)
{
    *(ref_f32x8_loose *)p = v.low;
    *(ref_f32x8_loose *)(p + 8) = v.high;
}

/* k_f32_from_f16 of eight numbers. This is the only use of an intrinsic for an instruction that C cannot express: it
 * makes an f16 GEMM three times faster. */
#if defined(__F16C__)
static inline ref_f32x8 ref_widen_f16x8(const uint16_t *p)
{
    return (ref_f32x8)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i_u *)(const void *)p));
}
#else
/* A vector comparison yields all ones or all zeros. */
static inline ref_f32x8 ref_widen_f16x8(const uint16_t *p)
{
    ref_u32x8 h = __builtin_convertvector(*(const ref_u16x8_loose *)p, ref_u32x8);
    ref_u32x8 magnitude = (h & 0x7fffu) << 13;
    ref_u32x8 sign = (h & 0x8000u) << 16;
    ref_u32x8 normal = magnitude + 0x38000000u;
    ref_u32x8 subnormal = (ref_u32x8)((ref_f32x8)(magnitude + 0x38800000u) - 0x1p-14f);
    ref_u32x8 is_subnormal = (ref_u32x8)(magnitude < 0x00800000u);
    ref_u32x8 is_special = (ref_u32x8)(magnitude >= 0x0f800000u);
    ref_u32x8 r = (subnormal & is_subnormal) | (normal & ~is_subnormal);
    return (ref_f32x8)(r | sign | (is_special & 0x7f800000u));
}
#endif

static inline struct ref_lanes ref_load_f16(const uint16_t *p)
{
    return (struct ref_lanes){ref_widen_f16x8(p), ref_widen_f16x8(p + 8)};
}

static inline ref_f32x8 ref_widen_bf16x8(const uint16_t *p)
{
    return (ref_f32x8)(__builtin_convertvector(*(const ref_u16x8_loose *)p, ref_u32x8) << 16);
}

static inline struct ref_lanes ref_load_bf16(const uint16_t *p)
{
    return (struct ref_lanes){ref_widen_bf16x8(p), ref_widen_bf16x8(p + 8)};
}

/* The lanes' k_lane_fold: adds lanes 8 apart, 4 apart, 2 apart, 1 apart. */
static inline float ref_fold(struct ref_lanes s)
{
    ref_f32x8 a = s.low + s.high;
    ref_f32x4 b = {a[0] + a[4], a[1] + a[5], a[2] + a[6], a[3] + a[7]};
    return (b[0] + b[2]) + (b[1] + b[3]);
}

#endif
