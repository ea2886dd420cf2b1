#include "kernels/ref/ref.h"

#include "kernels/planners.h"

#include <stdlib.h>

static void ref_close(struct k_backend *b)
{
    free(((struct ref_backend *)b)->attn_scratch);
    host_close(host_of(b));
}

const struct k_backend_ops ref_ops = {.planner = &ref_planner,
                                      .close = ref_close,
                                      .alloc = host_alloc,
                                      .alloc_host = host_alloc,
                                      .free = host_free,
                                      .weight_create = host_weight_create,
                                      .weight_destroy = host_weight_destroy,
                                      .supports = host_supports,
                                      .join = host_join,
                                      .leave = host_leave,
                                      .step_begin = host_step_begin,
                                      .step_end = host_step_end,
                                      .copy_in = host_copy,
                                      .copy_out = host_copy,
                                      .fence = host_fence,
                                      .wait = host_wait,
#define ENTRY(NAME, name, text) .name = ref_##name,
                                      K_OPERATIONS(ENTRY)
#undef ENTRY
};

int ref_open(const struct k_backend_options *options, struct k_backend **out, struct quire_error *err)
{
    *out = NULL;
    struct ref_backend *r = calloc(1, sizeof *r);
    if (!r)
        return quire_fail(err, QUIRE_NO_MEMORY, "backend ref: out of memory");
    int status = host_open(&r->host, &ref_ops, options, err);
    r->host.base.description = "plain C on the CPU, the normative arithmetic";
    if (status == QUIRE_OK) {
        r->attn_scratch = calloc(k_pool_n_threads(r->host.pool), sizeof *r->attn_scratch);
        if (!r->attn_scratch)
            status = quire_fail(err, QUIRE_NO_MEMORY, "backend ref: out of memory");
    }
    if (status != QUIRE_OK) {
        ref_close(&r->host.base);
        return status;
    }
    *out = &r->host.base;
    return QUIRE_OK;
}
