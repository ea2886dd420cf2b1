/* Combines the parts of a stage's ranks in a pass through the backend: two sums per layer, and the logits. */
#include "engine/forward/forward_internal.h"
#include "kernels/args/group.h"

int forward_reduce(struct forward *f, float *y, uint32_t n, uint32_t n_cols, const float *bias, struct quire_error *err)
{
    const struct k_all_reduce_args a = {.x_dev = y, .bias_dev = bias, .n_tokens = n, .n_cols = n_cols};
    return f->backend->ops->all_reduce(f->backend, &a, err);
}

static float *shared_of(const struct forward *f)
{
    return (float *)(void *)(f->arena_dev + f->layout->shared);
}

/* Each rank's part of a size, side by side. */
static struct k_all_gather_args gathering(const struct forward *f, uint32_t layer, enum model_size size)
{
    struct k_all_gather_args a = {.first_cols = {0}};
    for (uint32_t r = 0; r < f->desc->shard.n_ranks; r++) {
        const struct model_range part = model_share_of(f->desc, r, layer, size);
        a.first_cols[r] = part.first;
        a.first_cols[r + 1] = part.first + part.n;
    }
    return a;
}

int forward_gather(struct forward *f, uint32_t n, uint32_t layer, enum model_size size, const float *own, float *all,
                   struct quire_error *err)
{
    struct k_all_gather_args a = gathering(f, layer, size);
    a.own_dev = own;
    a.out_dev = all;
    a.scratch_dev = shared_of(f);
    a.n_tokens = n;
    return f->backend->ops->all_gather(f->backend, &a, err);
}

float *forward_own_logits(struct forward *f)
{
    return shared_of(f);
}

int forward_gather_logits(struct forward *f, uint32_t n, float *logits, struct quire_error *err)
{
    struct k_all_gather_args a = gathering(f, f->desc->config->n_layers, SIZE_VOCAB);
    a.own_dev = forward_own_logits(f);
    a.out_dev = logits;
    a.scratch_dev = shared_of(f) + (size_t)n * model_share_most(f->desc, f->desc->config->n_layers, SIZE_VOCAB);
    a.n_tokens = n;
    a.to_first = true;
    return f->backend->ops->all_gather(f->backend, &a, err);
}

static uint64_t *digest_dev(const struct forward *f)
{
    return (uint64_t *)(void *)(f->arena_dev + f->layout->digest);
}

int forward_clear_digest(struct forward *f, struct quire_error *err)
{
    *f->digest = 0;
    return f->backend->ops->copy_in(f->backend, digest_dev(f), f->digest, sizeof *f->digest, err);
}

int forward_note(struct forward *f, const float *x, uint32_t n, struct quire_error *err)
{
    const struct k_checksum_args a = {
        .x_dev = x, .sum_dev = digest_dev(f), .n_tokens = n, .n_cols = f->desc->config->hidden_size};
    return forward_is_shared(f) && n ? f->backend->ops->checksum(f->backend, &a, err) : QUIRE_OK;
}

int forward_fetch_digest(struct forward *f, struct quire_error *err)
{
    return forward_is_shared(f)
               ? f->backend->ops->copy_out(f->backend, f->digest, digest_dev(f), sizeof *f->digest, err)
               : QUIRE_OK;
}

int forward_agree(struct forward *f, struct quire_error *err)
{
    return forward_is_shared(f) ? f->group->agree(f->group->context, *f->digest, err) : QUIRE_OK;
}
