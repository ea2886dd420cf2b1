/* What ranks bring together in a pass, in host memory: those of a stage two sums a layer, and the logits; stages hand on what
 * they made of the residual stream. */
#include "engine/forward/forward_internal.h"

#include "base/checksum.h"

#include <string.h>

int forward_reduce(struct forward *f, float *y, uint32_t n, uint32_t n_cols, const float *bias, struct quire_error *err)
{
    TRY(f->group.all_reduce_tree(f->group.context, y, (size_t)n * n_cols, err));
    for (uint32_t t = 0; bias && t < n; t++)
        for (uint32_t r = 0; r < n_cols; r++)
            y[(size_t)t * n_cols + r] += bias[r];
    return QUIRE_OK;
}

static float *shared_of(const struct forward *f)
{
    return (float *)(void *)(f->arena_dev + f->layout.shared);
}

float *forward_own_part(struct forward *f, uint32_t n, enum model_size size)
{
    return shared_of(f) + (size_t)f->desc->share.rank * n * model_share_most(f->desc, size);
}

int forward_gather(struct forward *f, uint32_t n, enum model_size size, float *all, struct quire_error *err)
{
    const size_t slot = (size_t)n * model_share_most(f->desc, size), whole = model_whole_size(f->desc, size);
    const float *own = forward_own_part(f, n, size);
    TRY(f->group.all_gather(f->group.context, own, slot * sizeof *own, shared_of(f), err));
    for (uint32_t r = 0; r < f->desc->share.n_ranks; r++) {
        const struct model_range part = model_share_of(f->desc, r, size);
        for (uint32_t t = 0; t < n; t++)
            memcpy(all + t * whole + part.first, shared_of(f) + r * slot + (size_t)t * part.n, part.n * sizeof *all);
    }
    return QUIRE_OK;
}

float *forward_own_logits(struct forward *f)
{
    return shared_of(f);
}

/* Row by row, so that they come to where they belong: 32 rows of 152,064 are 19 MB, and each copy of them 3 ms. */
int forward_gather_logits(struct forward *f, uint32_t n, float *logits, struct quire_error *err)
{
    const struct model_desc *d = f->desc;
    const size_t most = model_share_most(d, SIZE_VOCAB);
    const uint32_t own = model_share_of(d, d->share.rank, SIZE_VOCAB).n;
    const bool fits = d->share.n_ranks * most == d->vocab_size;
    for (uint32_t t = 0; t < n; t++) {
        float *row = logits + (size_t)t * d->vocab_size, *to = fits ? row : shared_of(f) + n * most;
        TRY(f->group.gather(f->group.context, forward_own_logits(f) + (size_t)t * own, most * sizeof *row, to, err));
        if (!fits && d->share.rank == 0)
            memcpy(row, to, d->vocab_size * sizeof *row);
    }
    return QUIRE_OK;
}

void forward_note(struct forward *f, const float *x, uint32_t n)
{
    if (f->group.agree && f->is_in_place)
        f->digest = quire_checksum(f->digest, x, (size_t)n * f->desc->hidden_size * sizeof *x);
}

int forward_agree(struct forward *f, struct quire_error *err)
{
    const uint64_t digest = f->digest;
    f->digest = 0;
    return f->group.agree && f->is_in_place ? f->group.agree(f->group.context, digest, err) : QUIRE_OK;
}

int forward_receive(struct forward *f, uint32_t n, float *x, struct quire_error *err)
{
    return f->group.receive(f->group.context, x, (size_t)n * f->desc->hidden_size * sizeof *x, err);
}

/* The same addition as the norm's that follows where there are no stages: x is what it would have left. */
int forward_send(struct forward *f, uint32_t n, float *x, const float *due, struct quire_error *err)
{
    const size_t count = (size_t)n * f->desc->hidden_size;
    for (size_t i = 0; due && i < count; i++)
        x[i] += due[i];
    return f->group.send(f->group.context, x, count * sizeof *x, err);
}
