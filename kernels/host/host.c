#include "kernels/host/host.h"

#include "kernels/planner.h"
#include "kernels/quant.h"

#include "base/size.h"

#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 64u

int host_open(struct host_backend *h, const struct k_backend_ops *ops, const struct k_backend_options *options,
              struct quire_error *err)
{
    h->base.ops = ops;
    const bool has_blocks = k_blocks_of(options->weight_format.packing) != NULL;
    h->base.form = options->form != K_FORM_AUTO ? options->form : has_blocks ? K_FORM_INT8 : K_FORM_LANE;
    h->last_ticket = 0;
    int status = k_placement_create(options->n_threads, options->cpu_bind, &h->placement, err);
    if (status != QUIRE_OK)
        return status;
    h->base.n_threads = k_placement_n_threads(h->placement);
    h->base.placement = k_placement_text(h->placement);
    return k_pool_create(h->base.n_threads, &h->pool, err);
}

void host_close(struct host_backend *h)
{
    k_pool_destroy(h->pool);
    k_placement_destroy(h->placement);
    free(h);
}

uint32_t host_pieces(struct k_backend *b, uint64_t work, uint32_t most_per_thread)
{
    uint32_t n_asked = k_pool_n_asked(host_of(b)->pool);
    if (n_asked == 1 || work < 2 * HOST_PIECE_WORK)
        return 1;
    uint64_t most = (uint64_t)n_asked * most_per_thread, small = (uint64_t)n_asked * HOST_PIECES_PER_THREAD;
    uint64_t n = work / HOST_PIECE_WORK < small ? work / HOST_PIECE_WORK : small;
    n = work / HOST_LARGE_PIECE_WORK > n ? work / HOST_LARGE_PIECE_WORK : n;
    return (uint32_t)(n < most ? n : most);
}

void host_run(struct k_backend *b, uint64_t work, k_pool_fn fn, void *context)
{
    k_pool_run(host_of(b)->pool, host_pieces(b, work, HOST_LARGE_PIECES_PER_THREAD), fn, context);
}

int host_alloc(struct k_backend *b, uint64_t bytes, void **dev, struct quire_error *err)
{
    *dev = NULL;
    uint64_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (bytes == 0)
        rounded = ALIGNMENT;
    if (rounded >= bytes && rounded <= SIZE_MAX)
        *dev = aligned_alloc(ALIGNMENT, (size_t)rounded);
    if (!*dev)
        return quire_fail(err, QUIRE_NO_MEMORY, "backend %s: cannot allocate %s", b->ops->planner->name,
                          quire_size(bytes).text);
    k_placement_memory(host_of(b)->placement, *dev, rounded);
    return QUIRE_OK;
}

int host_join(struct k_backend *b, const struct k_group *group, struct quire_error *err)
{
    host_of(b)->group = *group;
    return k_check_group("join", group, err);
}

void host_leave(struct k_backend *b)
{
    host_of(b)->group = (struct k_group){.n_ranks = 0};
}

void host_free(struct k_backend *b, void *dev)
{
    (void)b;
    free(dev);
}

static void pin_thread(void *context, struct k_piece piece)
{
    k_placement_pin(context, piece.thread);
}

/* The thread that begins the first step becomes thread 0, which computes in every later step. */
int host_step_begin(struct k_backend *b, struct quire_error *err)
{
    struct host_backend *h = host_of(b);
    (void)err;
    k_pool_step_begin(h->pool);
    if (!h->is_placed)
        k_pool_each(h->pool, pin_thread, h->placement);
    h->is_placed = true;
    return QUIRE_OK;
}

int host_step_end(struct k_backend *b, struct quire_error *err)
{
    (void)err;
    k_pool_step_end(host_of(b)->pool);
    return QUIRE_OK;
}

int host_copy(struct k_backend *b, void *dst, const void *src, uint64_t bytes, struct quire_error *err)
{
    (void)b;
    (void)err;
    if (bytes > 0)
        memcpy(dst, src, (size_t)bytes);
    return QUIRE_OK;
}

/* Every operation is complete when its call returns, so a ticket is only a counter. */
int host_fence(struct k_backend *b, uint64_t *ticket, struct quire_error *err)
{
    (void)err;
    *ticket = ++host_of(b)->last_ticket;
    return QUIRE_OK;
}

int host_wait(struct k_backend *b, uint64_t ticket, struct quire_error *err)
{
    if (ticket == 0 || ticket > host_of(b)->last_ticket)
        return quire_fail(err, QUIRE_INVALID, "backend %s: wait: no fence has returned this ticket",
                          b->ops->planner->name);
    return QUIRE_OK;
}
