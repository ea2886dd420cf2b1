/* The orders in which a GEMM may sum its products, and the version of the numerics. Constant; any thread. */
#ifndef QUIRE_KERNELS_GEMM_FORM_H
#define QUIRE_KERNELS_GEMM_FORM_H

/* The order in which a GEMM sums its products (docs/internals/numerics.md). The promise of equal bits holds for one
 * form. */
enum k_gemm_form {
    K_FORM_LANE, /* 16 f32 lanes over k, one fixed tree; any weight dtype */
    K_FORM_TILE, /* 32-deep bf16 tiles, activations as two bf16 terms; bf16 and f16 weights */
    K_FORM_TILE_BF16, /* the same with activations rounded to bf16; bf16 weights only */
    /* Tensor cores: f16 factors in 16-deep products, chunks of 512; bf16 and f16 weights. Attention over an f16 cache
     * then uses tensor cores too. */
    K_FORM_MMA,
    /* Quantized integer weights: activations are rounded to int8, and a group's products are summed as integers. All
     * other weights use the lane form. */
    K_FORM_INT8,
    K_FORM_AUTO, /* in options only: the backend chooses */
};
#define K_N_FORMS 5

/* The numerics version (docs/internals/numerics.md). Code that stores computed results compares it, together with the
 * form and the formats. It changes if and only if a change of the specification changes a bit. */
#define K_NUMERICS_VERSION 2
const char *k_form_name(enum k_gemm_form form); /* "lane", "tile", "tile of bfloat16 activations", "mma", "int8" */

#endif
