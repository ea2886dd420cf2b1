/* Samples rows of logits through the interface as a step does: plan, copy of the plan, operation, results. The thread
 * that owns the backend. */
#ifndef QUIRE_KERNELS_OP_SAMPLE_H
#define QUIRE_KERNELS_OP_SAMPLE_H

#include "kernels/args/sample.h"
#include "kernels/backend.h"

/* Memory for steps of at most n_rows rows. The struct owns it. */
struct op_sampler {
    struct k_backend *b;
    unsigned char *image;      /* pinned: a plan and its parts */
    unsigned char *image_dev;
    struct k_sample_result *results_dev;
    uint32_t *sampled_dev;
    void *workspace_dev;
    uint64_t parts_at;         /* offset in the image */
    uint32_t n_vocab;
};
int op_sampler_open(struct op_sampler *s, struct k_backend *b, uint32_t n_rows, uint32_t n_vocab,
                    struct quire_error *err);
void op_sampler_close(struct op_sampler *s);

/* Plans the first *n_planned rows on the device. An earlier plan must have run. */
int op_sampler_plan(struct op_sampler *s, const struct k_sample_row *rows, uint32_t n_rows, uint32_t *n_planned,
                    struct quire_error *err);
/* Queues planned rows; results and tokens go to [first, first + n_rows). */
int op_sampler_queue(struct op_sampler *s, float *logits_dev, const struct k_sample_row *rows, uint32_t first,
                     uint32_t n_rows, struct quire_error *err);
/* Does all of this for any number of rows up to the memory's, in a step that the caller began. Waits, and fetches
 * the results. */
int op_sampler_run(struct op_sampler *s, float *logits_dev, const struct k_sample_row *rows, uint32_t n_rows,
                   struct k_sample_result *results, struct quire_error *err);

#endif
