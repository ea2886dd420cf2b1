/* The interface between the engine and the arithmetic: a backend is a table of functions over an opaque object. `ref`
 * (plain C, the normative arithmetic of docs/internals/numerics.md) and `cpu` are linked in. `cuda` is a library that
 * is opened if a driver is present (kernels/open.h opens any of them). This interface does not depend on models,
 * requests or schedulers.
 *
 * The arguments of operations are in kernels/args/, one header per kind. A caller includes those of the operations that
 * it calls.
 *
 * Threads: every call on one backend comes from one thread, the engine's. A backend may own worker threads, which are
 * not visible here. Order: operations take effect in the order of the calls. On a device they may still be running when
 * the call returns. After fence() and wait() the host may read the results. Memory: pointers named `dev` point into the
 * backend's memory (host memory for ref and cpu). The caller must never dereference them. Operations allocate nothing.
 * Errors: an operation returns a status and fills err. After an operation on a device fails, every later call on that
 * backend fails.
 *
 * Shapes: row-major, last index fastest. T = tokens in the step, H = hidden size, D = head_dim, Q = query heads, KV =
 * KV heads, V = vocabulary. Activations are f32 everywhere. */
#ifndef QUIRE_KERNELS_BACKEND_H
#define QUIRE_KERNELS_BACKEND_H

#include "base/status.h"
#include "kernels/format.h"
#include "kernels/gemm_form.h"
#include "kernels/kernel_table.h"
#include "kernels/operations.h"

#include <stdbool.h>
#include <stdint.h>

enum k_operation {
#define K_OPERATION_NUMBER(NAME, name, text) K_OP_##NAME,
    K_OPERATIONS(K_OPERATION_NUMBER)
#undef K_OPERATION_NUMBER
};
#define K_OPERATION_ONE(NAME, name, text) +1
enum { K_N_OPERATIONS = 0 K_OPERATIONS(K_OPERATION_ONE) };
const char *k_operation_name(enum k_operation operation); /* "gemm_gated" */

#define K_OPERATION_ARGS(NAME, name, text) struct k_##name##_args; /* kernels/args/ */
K_OPERATIONS(K_OPERATION_ARGS)
#undef K_OPERATION_ARGS

#define K_OPERATION_MEMBER(NAME, name, text) \
    int (*name)(struct k_backend * b, const struct k_##name##_args *a, struct quire_error *err);

struct k_planner; /* kernels/planner.h */
struct k_group; /* kernels/group.h */
struct k_weight; /* kernels/weight.h */
struct k_weight_view;

struct k_backend; /* starts with `const struct k_backend_ops *ops` */
struct k_graph; /* the recorded operations of a step of one shape */

struct k_backend_ops {
    const struct k_planner *planner; /* the backend's name and memory requirements */
    void (*close)(struct k_backend *b);

    /* Reports the device's memory; `available` bytes are free now. NULL if the backend computes in host memory. */
    int (*memory)(struct k_backend *b, uint64_t *total, uint64_t *available, struct quire_error *err);

    /* memory: only called while a model is opened, never after it is ready */
    int (*alloc)(struct k_backend *b, uint64_t bytes, void **dev, struct quire_error *err); /* 64-byte aligned */
    /* Allocates host memory that kv_copy can access; pinned on a device. free() also frees it. */
    int (*alloc_host)(struct k_backend *b, uint64_t bytes, void **host, struct quire_error *err);
    void (*free)(struct k_backend *b, void *dev);
    /* parts: [n_experts][n_parts]. Experts are matrices of one shape, each of n_parts stacked by rows. */
    int (*weight_create)(struct k_backend *b, const struct k_weight_view *parts, uint32_t n_experts, uint32_t n_parts,
                         struct k_weight **out, struct quire_error *err);
    void (*weight_destroy)(struct k_backend *b, struct k_weight *w);
    /* Returns whether the operation supports weights, or a KV cache, in this format; for a GEMM, in this form. */
    bool (*supports)(struct k_backend *b, enum k_operation operation, enum k_gemm_form form, struct k_format format);
    /* Returns row i of the operation's kernels (kernels/kernel_table.h), or NULL past the last. Without a table the
     * operation has one kernel. kernel_at is NULL if no operation has a table. */
    const struct k_kernel *(*kernel_at)(enum k_operation operation, uint32_t i);
    /* Makes the backend a rank of the group. After that, K_GROUP_OPERATIONS may be called, by all ranks in the same
     * order. Call it once, by all ranks at the same time, before any graph is recorded. *group is copied; its context
     * must live as long as the backend. Afterwards b->ops may be another table, whose graph functions may be NULL. Returns
     * QUIRE_UNSUPPORTED if the peers' memory is not accessible and no library can transfer data. */
    int (*join)(struct k_backend *b, const struct k_group *group, struct quire_error *err);
    /* Call it before the group ends. The backend does not use the group afterwards. Does nothing if the backend has not
     * joined a group. */
    void (*leave)(struct k_backend *b);

    /* a step: begin wakes the workers, end lets them sleep */
    int (*step_begin)(struct k_backend *b, struct quire_error *err);
    int (*step_end)(struct k_backend *b, struct quire_error *err);
    /* Memory from alloc_host() belongs to the device until wait() has returned for a later fence. Other host memory is
     * read or written before the call returns. */
    int (*copy_in)(struct k_backend *b, void *dst_dev, const void *src, uint64_t bytes, struct quire_error *err);
    int (*copy_out)(struct k_backend *b, void *dst, const void *src_dev, uint64_t bytes, struct quire_error *err);
    int (*fence)(struct k_backend *b, uint64_t *ticket, struct quire_error *err);
    int (*wait)(struct k_backend *b, uint64_t ticket, struct quire_error *err);

    /* One member per operation of operations.h: int (*embed)(struct k_backend *b, const struct k_embed_args *a, struct
     * quire_error *err) */
    K_OPERATIONS(K_OPERATION_MEMBER)

    /* Runs a step of one shape as one launch. Operations between graph_begin and graph_end are recorded and not run.
     * graph_launch runs them on the current content of their buffers. K_RECORDED_OPERATIONS, K_LINKING_OPERATIONS and
     * K_GROUP_OPERATIONS may be recorded. All four functions are NULL if a backend has no graphs. Like memory, graphs
     * are made while a model is opened. */
    int (*graph_begin)(struct k_backend *b, struct quire_error *err);
    int (*graph_end)(struct k_backend *b, struct k_graph **out, struct quire_error *err);
    int (*graph_launch)(struct k_backend *b, struct k_graph *graph, struct quire_error *err);
    void (*graph_destroy)(struct k_backend *b, struct k_graph *graph);
};

struct k_backend {
    const struct k_backend_ops *ops;
    const char *description; /* one line for people: the hardware it runs on */
    uint32_t n_threads; /* compute threads on the host, including the caller's */
    const char *placement; /* one line for people: how many threads, on which CPUs, and where memory lies */
    enum k_gemm_form form; /* the form of every GEMM; never K_FORM_AUTO */
    /* NULL, or the library that computes GEMMs of many tokens, "cuBLASLt 13.1.0". The bits of a token then depend on
     * the number of tokens. */
    const char *gemm_library;
    struct k_kernel_choice choice; /* starts as zeros */
};

#endif
