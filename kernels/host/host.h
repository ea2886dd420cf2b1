/* kernels/host: the common parts of the backends that compute in host memory: memory, weights used in place, the thread
 * pool and tickets. `ref` and `cpu` start with a struct host_backend and differ only in the speed of their arithmetic.
 * Calls come from the engine's thread (kernels/backend.h). */
#ifndef QUIRE_KERNELS_HOST_H
#define QUIRE_KERNELS_HOST_H

#include "kernels/backend.h"
#include "kernels/check.h"
#include "kernels/format.h"
#include "kernels/gemm_form.h"
#include "kernels/group.h"
#include "kernels/host/placement.h"
#include "kernels/open.h"
#include "kernels/pool.h"
#include "kernels/weight.h"

/* An operation is divided into pieces of at least HOST_PIECE_WORK multiply-adds, about 0.7 us. With less than two such
 * pieces the calling thread computes alone. Beyond 8 pieces per thread they are larger, up to 32 per thread from
 * HOST_LARGE_PIECE_WORK each. The pool waits for the last piece; with 8 per thread that wait was 6 % of a GEMM of 12
 * ms. */
#define HOST_PIECE_WORK 32768u
#define HOST_PIECES_PER_THREAD 8u
#define HOST_LARGE_PIECE_WORK 1048576u
#define HOST_LARGE_PIECES_PER_THREAD 32u

struct host_backend {
    struct k_backend base;
    struct k_placement *placement;
    bool is_placed; /* each thread is bound to its CPU, from the first step on */
    struct k_pool *pool;
    uint64_t last_ticket;
    struct k_group group; /* n_ranks 0: the backend has not joined a group */
};

struct host_part { /* rows [first_row, first_row + view.n_rows) of the weight */
    struct k_weight_view view;
    uint32_t first_row;
    bool is_bytes; /* quantized, and every q fits an int8 */
    const unsigned char *repacked; /* NULL, or the rows as repacked by cpu (cpu/repacked.h) */
};

/* Returns row i of a part. */
static inline const unsigned char *host_row(const struct host_part *part, uint64_t i)
{
    return (const unsigned char *)part->view.data + i * part->view.row_stride_bytes;
}

struct k_weight {
    uint32_t n_rows, n_cols, n_parts; /* of each expert */
    uint32_t n_experts;
    struct k_weight **experts; /* NULL, or [n_experts] weights of one expert each; owned by the weight, which has no
                                * parts of its own then */
    void *repacked; /* the repacked rows of all parts, or NULL; owned by the weight */
    struct host_part parts[]; /* [n_parts] */
};

static inline const struct k_weight *host_expert(const struct k_weight *w, uint32_t expert)
{
    return w->experts ? w->experts[expert] : w;
}

static inline struct host_backend *host_of(struct k_backend *b)
{
    return (struct host_backend *)b;
}

/* Starts the pool and fills in the common members. K_FORM_AUTO selects the lane form, or int8 for GGUF's blocks.
 * host_close() stops the pool and frees h. */
int host_open(struct host_backend *h, const struct k_backend_ops *ops, const struct k_backend_options *options,
              struct quire_error *err);
void host_close(struct host_backend *h);

/* Returns the number of pieces for this much work, in multiply-adds: at most most_per_thread for each thread in use. */
uint32_t host_pieces(struct k_backend *b, uint64_t work, uint32_t most_per_thread);

/* Runs fn on that many pieces. */
void host_run(struct k_backend *b, uint64_t work, k_pool_fn fn, void *context);

/* Returns the rows of the part that belong to a piece, or false if it has no rows. The pieces divide a weight's rows in
 * units of `step`. */
static inline bool host_part_share(const struct k_weight *w, const struct host_part *part, uint32_t step,
                                   struct k_piece piece, uint32_t *row_begin, uint32_t *row_end)
{
    uint64_t begin, end, part_end = (uint64_t)part->first_row + part->view.n_rows;
    k_pool_share(((uint64_t)w->n_rows + step - 1) / step, piece, &begin, &end);
    begin = begin * step > part->first_row ? begin * step : part->first_row;
    end = end * step < part_end ? end * step : part_end;
    *row_begin = (uint32_t)(begin - part->first_row);
    *row_end = (uint32_t)(end - part->first_row);
    return begin < end;
}

/* Returns the first position that the token at `position` reads. */
static inline uint32_t host_first_position(uint32_t position, uint32_t window)
{
    return window != 0 && position >= window ? position - window + 1 : 0;
}

/* Members of the backend table that are not operations. */
int host_alloc(struct k_backend *b, uint64_t bytes, void **dev, struct quire_error *err);
void host_free(struct k_backend *b, void *dev);
int host_weight_create(struct k_backend *b, const struct k_weight_view *parts, uint32_t n_experts, uint32_t n_parts,
                       struct k_weight **out, struct quire_error *err);
void host_weight_destroy(struct k_backend *b, struct k_weight *w);
bool host_supports(struct k_backend *b, enum k_operation operation, enum k_gemm_form form, struct k_format format);

static inline bool host_is_quantized(const struct k_weight *w)
{
    for (uint32_t p = 0; p < w->n_parts; p++)
        if (!k_format_is_plain(w->parts[p].view.format))
            return true;
    return false;
}

/* Returns QUIRE_UNSUPPORTED if the backend's form does not support the format of a part. */
int host_check_form(struct k_backend *b, const struct k_weight *w, struct quire_error *err);

int host_join(struct k_backend *b, const struct k_group *group, struct quire_error *err);
void host_leave(struct k_backend *b);

int host_step_begin(struct k_backend *b, struct quire_error *err);
int host_step_end(struct k_backend *b, struct quire_error *err);
int host_copy(struct k_backend *b, void *dst, const void *src, uint64_t bytes, struct quire_error *err);
int host_fence(struct k_backend *b, uint64_t *ticket, struct quire_error *err);
int host_wait(struct k_backend *b, uint64_t ticket, struct quire_error *err);

#endif
