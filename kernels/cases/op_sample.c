#include "kernels/cases/op_sample.h"

#include "kernels/planner.h"

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

int op_sampler_open(struct op_sampler *s, struct k_backend *b, uint32_t n_rows, uint32_t n_vocab,
                    struct quire_error *err)
{
    const struct k_plan_dims dims = {.n_logits = n_rows, .n_vocab = n_vocab, .n_threads = b->n_threads};
    struct k_plan_bytes bytes;
    void *image = NULL, *image_dev = NULL, *results = NULL, *sampled = NULL;
    b->ops->planner->workspace(&dims, &bytes);
    *s = (struct op_sampler){.b = b, .parts_at = aligned(bytes.sample_plan), .n_vocab = n_vocab};
    const uint64_t image_bytes = s->parts_at + bytes.sample_parts;
    int status = b->ops->alloc_host(b, image_bytes, &image, err);
    if (status == QUIRE_OK)
        status = b->ops->alloc(b, image_bytes, &image_dev, err);
    if (status == QUIRE_OK)
        status = b->ops->alloc(b, n_rows * sizeof(struct k_sample_result), &results, err);
    if (status == QUIRE_OK)
        status = b->ops->alloc(b, n_rows * sizeof(uint32_t), &sampled, err);
    if (status == QUIRE_OK)
        status = b->ops->alloc(b, bytes.sample, &s->workspace_dev, err);
    s->image = image;
    s->image_dev = image_dev;
    s->results_dev = results;
    s->sampled_dev = sampled;
    if (status != QUIRE_OK)
        op_sampler_close(s);
    return status;
}

void op_sampler_close(struct op_sampler *s)
{
    void *const all[] = {s->image, s->image_dev, s->results_dev, s->sampled_dev, s->workspace_dev};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        s->b->ops->free(s->b, all[i]);
}

int op_sampler_plan(struct op_sampler *s, const struct k_sample_row *rows, uint32_t n_rows, uint32_t *n_planned,
                    struct quire_error *err)
{
    uint64_t parts_bytes;
    const struct k_sample_plan_args a = {.rows = rows,
                                         .plan = s->image,
                                         .parts = s->image + s->parts_at,
                                         .n_rows = n_rows,
                                         .n_vocab = s->n_vocab,
                                         .n_planned = n_planned,
                                         .parts_bytes = &parts_bytes};
    int status = s->b->ops->sample_plan(s->b, &a, err);
    if (status == QUIRE_OK)
        status = s->b->ops->copy_in(s->b, s->image_dev, s->image, s->parts_at + parts_bytes, err);
    return status;
}

int op_sampler_queue(struct op_sampler *s, float *logits_dev, const struct k_sample_row *rows, uint32_t first,
                     uint32_t n_rows, struct quire_error *err)
{
    const struct k_sample_args a = {.logits_dev = logits_dev,
                                    .rows = rows,
                                    .plan_dev = s->image_dev,
                                    .results_dev = s->results_dev + first,
                                    .sampled_dev = s->sampled_dev + first,
                                    .workspace_dev = s->workspace_dev,
                                    .n_rows = n_rows,
                                    .n_vocab = s->n_vocab};
    return s->b->ops->sample(s->b, &a, err);
}

int op_sampler_run(struct op_sampler *s, float *logits_dev, const struct k_sample_row *rows, uint32_t n_rows,
                   struct k_sample_result *results, struct quire_error *err)
{
    uint64_t ticket;
    int status = QUIRE_OK;
    for (uint32_t done = 0, n; done < n_rows && status == QUIRE_OK; done += n) {
        status = op_sampler_plan(s, rows + done, n_rows - done, &n, err);
        if (status == QUIRE_OK)
            status = op_sampler_queue(s, logits_dev + (uint64_t)done * s->n_vocab, rows + done, done, n, err);
        if (status == QUIRE_OK)
            status = s->b->ops->fence(s->b, &ticket, err);
        if (status == QUIRE_OK)
            status = s->b->ops->wait(s->b, ticket, err);
    }
    return status == QUIRE_OK ? s->b->ops->copy_out(s->b, results, s->results_dev, n_rows * sizeof *results, err)
                              : status;
}
