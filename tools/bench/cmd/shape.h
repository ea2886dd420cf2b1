/* A kernel's case from the command line: the operation and its shape. Pure; any thread. */
#ifndef QUIRE_TOOLS_BENCH_SHAPE_H
#define QUIRE_TOOLS_BENCH_SHAPE_H

#include "kernels/cases/op_table.h"

/* " embed rmsnorm ...": operations with cases. */
#define BENCH_SHAPE_OP(NAME, name, text) " " #name
#define BENCH_SHAPE_OPS K_RECORDED_OPERATIONS(BENCH_SHAPE_OP) K_EAGER_OPERATIONS(BENCH_SHAPE_OP)

struct bench_shape { /* the options as given; NULL or 0: not given */
    const char *op;     /* "gemm": the beginning of op_name() */
    const char *tokens; /* "1" or "1,8,64": a case each */
    const char *dtype, *form;
    const char *sampling; /* "greedy": sampling of the rows of logits */
    const char *heads;  /* "32/8": of queries and of KV; "8": the same number of both */
    const char *experts; /* "64/8": of which a token uses 8 */
    const char *seqs;   /* "64x1@4096,1x512@0": 64 sequences with one token at position 4096, and a chunk of 512 */
    uint32_t n_rows, n_cols, unit, head_dim, block_tokens, window;
};

#define BENCH_SHAPE_MAX_CASES 16
struct bench_shape_cases {
    struct op_case cases[BENCH_SHAPE_MAX_CASES];
    uint32_t n;
};

/* Without a form, the case has K_FORM_AUTO. The cases of an operation on experts point to *moe, which must outlive
 * them. The error names the option that is missing or wrong. */
int bench_shape_cases(const struct bench_shape *shape, struct op_moe *moe, struct bench_shape_cases *out,
                      struct quire_error *err);

#endif
