#include "kernels/ref/ref.h"

#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 64u

static void ref_close(struct k_backend *b)
{
    struct ref_backend *r = ref_of(b);
    k_pool_destroy(r->pool);
    free(r->attn_scratch);
    free(r);
}

static int ref_alloc(struct k_backend *b, uint64_t bytes, void **dev, struct quire_error *err)
{
    (void)b;
    *dev = NULL;
    uint64_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (bytes == 0)
        rounded = ALIGNMENT;
    if (rounded >= bytes && rounded <= SIZE_MAX)
        *dev = aligned_alloc(ALIGNMENT, (size_t)rounded);
    if (!*dev)
        return quire_fail(err, QUIRE_NO_MEMORY, "backend ref: cannot allocate %llu bytes",
                          (unsigned long long)bytes);
    return QUIRE_OK;
}

static void ref_free(struct k_backend *b, void *dev)
{
    (void)b;
    free(dev);
}

static int ref_step_begin(struct k_backend *b, struct quire_error *err)
{
    (void)err;
    k_pool_step_begin(ref_of(b)->pool);
    return QUIRE_OK;
}

static int ref_step_end(struct k_backend *b, struct quire_error *err)
{
    (void)err;
    k_pool_step_end(ref_of(b)->pool);
    return QUIRE_OK;
}

static int ref_copy(struct k_backend *b, void *dst, const void *src, uint64_t bytes,
                    struct quire_error *err)
{
    (void)b;
    (void)err;
    if (bytes > 0)
        memcpy(dst, src, (size_t)bytes);
    return QUIRE_OK;
}

/* Every operation is complete when its call returns: a ticket only counts. */
static int ref_fence(struct k_backend *b, uint64_t *ticket, struct quire_error *err)
{
    (void)err;
    *ticket = ++ref_of(b)->last_ticket;
    return QUIRE_OK;
}

static int ref_wait(struct k_backend *b, uint64_t ticket, struct quire_error *err)
{
    if (ticket == 0 || ticket > ref_of(b)->last_ticket)
        return quire_fail(err, QUIRE_INVALID, "backend ref: wait for a ticket never given");
    return QUIRE_OK;
}

void ref_run(struct ref_backend *r, uint64_t work, k_pool_fn fn, void *context)
{
    if (work < REF_SMALL_WORK)
        fn(context, 0, 1);
    else
        k_pool_run(r->pool, fn, context);
}

static const struct k_backend_ops ref_ops = {
    .name = "ref",
    .description = "plain C on the CPU, the normative arithmetic",
    .overlap_depth = 0,
    .close = ref_close,
    .alloc = ref_alloc,
    .free = ref_free,
    .weight_create = ref_weight_create,
    .weight_destroy = ref_weight_destroy,
    .supports_form = ref_supports_form,
    .step_begin = ref_step_begin,
    .step_end = ref_step_end,
    .copy_in = ref_copy,
    .copy_out = ref_copy,
    .fence = ref_fence,
    .wait = ref_wait,
    .embed = ref_embed,
    .rmsnorm = ref_rmsnorm,
    .gemm = ref_gemm,
    .rope_angles = ref_rope_angles,
    .rope_kv = ref_rope_kv,
    .attention = ref_attention,
    .silu_mul = ref_silu_mul,
    .gather = ref_gather,
    .sample = ref_sample,
};

int ref_open(const struct k_backend_options *options, struct k_backend **out,
             struct quire_error *err)
{
    *out = NULL;
    uint32_t n_threads = options->n_threads ? options->n_threads : k_default_threads();
    struct ref_backend *r = calloc(1, sizeof *r);
    if (!r)
        return quire_fail(err, QUIRE_NO_MEMORY, "backend ref: out of memory");
    r->base.ops = &ref_ops;
    r->form = options->form;
    int status = k_pool_create(n_threads, &r->pool, err);
    if (status != QUIRE_OK) {
        free(r);
        return status;
    }
    r->attn_scratch = calloc(n_threads, sizeof *r->attn_scratch);
    if (!r->attn_scratch) {
        ref_close(&r->base);
        return quire_fail(err, QUIRE_NO_MEMORY, "backend ref: out of memory");
    }
    *out = &r->base;
    return QUIRE_OK;
}
