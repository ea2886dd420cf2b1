/* Sampling, the host side: checks rows and packs the data that the kernel needs, for as many rows as fit. */
#include "kernels/cuda/host/sample.h"

#include "kernels/check.h"
#include "kernels/cuda/host/operations.h"
#include "kernels/cuda/plan/plan.h"

#include <string.h>

struct parts { /* in units of 4 bytes, each even */
    uint64_t mask, biases, counts, saved;
};

static bool has_penalty(const struct k_sample_row *row)
{
    return row->repetition_penalty != 1.0f || row->presence_penalty != 0.0f || row->frequency_penalty != 0.0f;
}

/* A forced token is reported without adjustments, so it has no parts. */
static struct parts parts_of(const struct k_sample_row *row, uint32_t n_vocab)
{
    struct parts p = {0, 0, 0, 0};
    if (row->forced >= 0)
        return p;
    p.mask = row->mask ? (n_vocab + 63) / 64 * 2 : 0;
    p.biases = 2 * (uint64_t)row->n_biases;
    p.counts = has_penalty(row) ? 2 * (uint64_t)row->n_counts : 0;
    p.saved = row->n_logprobs >= 0 ? (p.biases / 2 + p.counts / 2 + 1) / 2 * 2 : 0;
    return p;
}

static struct sample_row_dev device_row(const struct k_sample_row *row, uint32_t n_vocab)
{
    return (struct sample_row_dev){
        .seed = row->seed,
        .temperature = row->temperature,
        .top_p = row->top_p,
        .min_p = row->min_p > 0.0f ? row->min_p : 0.0f,
        .repetition_penalty = row->repetition_penalty,
        .presence_penalty = row->presence_penalty,
        .frequency_penalty = row->frequency_penalty,
        .top_k = row->top_k < n_vocab ? row->top_k : 0,
        .position = row->position,
        .choice = row->choice,
        .n_logprobs = row->n_logprobs,
        .forced = row->forced >= 0 ? (int32_t)row->forced : -1,
    };
}

/* Writes n bytes of src, then zeros up to padded. Returns the position after them. */
static unsigned char *put(unsigned char *at, const void *src, uint64_t n, uint64_t padded)
{
    if (n > 0)
        memcpy(at, src, (size_t)n);
    memset(at + n, 0, (size_t)(padded - n));
    return at + padded;
}

/* Plans as many rows as the parts have space for. The workspace then has space for their raw logits, too. */
int cuda_sample_plan(struct k_backend *b, const struct k_sample_plan_args *a, struct quire_error *err)
{
    int status = cuda_eager(b, "sample_plan", err);
    if (status == QUIRE_OK)
        status = k_check_sample(a, err);
    if (status != QUIRE_OK)
        return status;
    struct sample_plan_dev *plan = a->plan;
    struct sample_row_dev *rows = (struct sample_row_dev *)(plan + 1);
    unsigned char *at = a->parts, *end = at + cuda_sample_parts_bytes(a->n_vocab);
    uint64_t saved = 0;
    uint32_t n = 0;
    for (; n < a->n_rows; n++) {
        const struct k_sample_row *row = &a->rows[n];
        struct parts p = parts_of(row, a->n_vocab);
        if (4 * (p.mask + p.biases + p.counts) > (uint64_t)(end - at))
            break;
        uint32_t offset = (uint32_t)((uint64_t)(at - (unsigned char *)plan) / 4);
        rows[n] = device_row(row, a->n_vocab);
        rows[n].n_biases = (uint32_t)(p.biases / 2);
        rows[n].n_counts = (uint32_t)(p.counts / 2);
        rows[n].mask = p.mask ? offset : 0;
        rows[n].biases = (uint32_t)(offset + p.mask);
        rows[n].counts = (uint32_t)(offset + p.mask + p.biases);
        rows[n].saved = (uint32_t)saved;
        rows[n].is_saved = p.saved > 0;
        saved += p.saved;
        at = put(at, row->mask, p.mask ? ((uint64_t)a->n_vocab + 31) / 32 * 4 : 0, 4 * p.mask);
        at = put(at, row->biases, 4 * p.biases, 4 * p.biases);
        at = put(at, row->counts, 4 * p.counts, 4 * p.counts);
    }
    *plan = (struct sample_plan_dev){.n_rows = n};
    *a->n_planned = n;
    *a->parts_bytes = (uint64_t)(at - (unsigned char *)a->parts);
    return QUIRE_OK;
}

/* Does not read the rows: the plan contains them. */
int cuda_sample(struct k_backend *b, const struct k_sample_args *a, struct quire_error *err)
{
    const struct sample_launch launch = {
        .logits_dev = a->logits_dev,
        .sampled_dev = a->sampled_dev,
        .results_dev = a->results_dev,
        .plan_dev = a->plan_dev,
        .surveys_dev = a->workspace_dev,
        .saved_dev = (float *)((struct sample_survey *)a->workspace_dev + SAMPLE_SURVEY_ROWS),
        .n_rows = a->n_rows,
        .n_vocab = a->n_vocab,
    };
    int status = cuda_alive(b, err);
    if (status != QUIRE_OK || a->n_rows == 0)
        return status;
    return cuda_check(b, launch_sample(cuda_of(b)->stream, &launch), "sample", err);
}
