#include "tools/bench/steps/copy.h"

#include "base/clock.h"
#include "engine/model/sizes.h"
#include "kernels/args/kv_copy.h"
#include "kernels/backend.h"
#include "kernels/open.h"
#include "tools/bench/lib/metrics.h"

#include <string.h>

#define N_PAIRS 8u                  /* blocks of a step */
#define N_RUNS 101u
#define ARENA_BYTES (128ull << 20)  /* of each of the four: more than caches hold */
#define PIECE_BYTES (1u << 16)

struct copying {
    struct k_backend *backend;
    struct k_kv_shape shape;
    uint32_t n_layers, n_blocks;    /* of an arena, at least N_PAIRS */
    uint64_t half_bytes;            /* the keys, or the values, of a block */
    struct k_kv_layer device, host;
};

static int open_arenas(struct copying *c, struct quire_error *err)
{
    const struct k_backend_ops *ops = c->backend->ops;
    uint64_t bytes = c->n_blocks * c->half_bytes;
    void **arenas[] = {&c->device.k_dev, &c->device.v_dev, &c->host.k_dev, &c->host.v_dev};
    int status = QUIRE_OK;
    for (int i = 0; i < 4 && status == QUIRE_OK; i++)
        status = (i < 2 ? ops->alloc : ops->alloc_host)(c->backend, bytes, arenas[i], err);
    /* Written once, so that every page exists. */
    static const unsigned char piece[PIECE_BYTES] = {1};
    for (int i = 0; i < 4 && status == QUIRE_OK; i++)
        for (uint64_t at = 0; at < bytes && status == QUIRE_OK; at += PIECE_BYTES) {
            uint64_t n = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
            if (i < 2)
                status = ops->copy_in(c->backend, (unsigned char *)*arenas[i] + at, piece, n, err);
            else
                memcpy((unsigned char *)*arenas[i] + at, piece, n);
        }
    return status;
}

/* The copies of one step: N_PAIRS blocks, layer by layer, each layer's blocks at another place of the arena. */
static int run(const struct copying *c, uint32_t *next, struct quire_error *err)
{
    const struct k_backend_ops *ops = c->backend->ops;
    uint64_t ticket;
    int status = ops->step_begin(c->backend, err);
    for (uint32_t layer = 0; layer < c->n_layers && status == QUIRE_OK; layer++) {
        struct k_block_pair pairs[N_PAIRS];
        for (uint32_t i = 0; i < N_PAIRS; i++, *next = (*next + 1) % c->n_blocks)
            pairs[i] = (struct k_block_pair){.from = *next, .to = c->n_blocks - 1 - *next};
        const struct k_kv_copy_args args = {
            .kv = &c->shape, .from = &c->device, .to = &c->host, .pairs = pairs, .n_pairs = N_PAIRS};
        status = ops->kv_copy(c->backend, &args, err);
    }
    if (status == QUIRE_OK)
        status = ops->fence(c->backend, &ticket, err);
    if (status == QUIRE_OK)
        status = ops->step_end(c->backend, err);
    return status == QUIRE_OK ? ops->wait(c->backend, ticket, err) : status;
}

static int measure(struct copying *c, double *us, struct quire_error *err)
{
    double samples[N_RUNS];
    uint32_t next = 0;
    int status = open_arenas(c, err);
    for (uint32_t i = 0; i < N_RUNS && status == QUIRE_OK; i++) {
        double began = quire_now_s();
        status = run(c, &next, err);
        samples[i] = (quire_now_s() - began) * 1e6 / N_PAIRS;
    }
    if (status != QUIRE_OK)
        return status;
    bench_sort(samples, N_RUNS);
    *us = bench_percentile(samples, N_RUNS, 50);
    return QUIRE_OK;
}

int bench_copy(const struct engine_options *options, const struct engine_info *info, double *us,
               struct quire_error *err)
{
    const char *why;
    const struct model_heads heads = model_heads_of(info->desc, info->plan->groups[0].layer);
    const struct k_backend_options backend = {.device = options->device,
                                              .n_threads = options->n_threads,
                                              .form = info->plan->gemm_form,
                                              .weight_format = info->plan->weight_format,
                                              .cpu_bind = options->cpu_bind};
    struct copying c = {.shape = {.format = info->plan->kv_format,
                                  .n_kv_heads = heads.n_kv,
                                  .head_dim = heads.k_dim,
                                  .v_dim = heads.v_dim,
                                  .block_tokens = info->plan->block_tokens},
                        .n_layers = info->desc->config->n_layers};
    c.half_bytes = k_kv_block_bytes(&c.shape);
    uint64_t n_blocks = ARENA_BYTES / c.half_bytes;
    c.n_blocks = n_blocks > N_PAIRS ? (uint32_t)n_blocks : N_PAIRS;
    int status = k_backend_open(&backend, &c.backend, &why, err);
    if (status != QUIRE_OK)
        return status;
    status = measure(&c, us, err);
    void *arenas[] = {c.device.k_dev, c.device.v_dev, c.host.k_dev, c.host.v_dev};
    for (int i = 0; i < 4; i++)
        if (arenas[i])
            c.backend->ops->free(c.backend, arenas[i]);
    c.backend->ops->close(c.backend);
    return status;
}
