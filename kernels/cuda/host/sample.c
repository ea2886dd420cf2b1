/* Sampling, the host side: checks rows, packs what the kernel needs of them straight into pinned memory, and asks for
 * the results. A round is as many rows as fit into the workspace; one is usual. */
#include "kernels/cuda/host/memory.h"
#include "kernels/cuda/host/operations.h"
#include "kernels/cuda/plan/plan.h"
#include "kernels/cuda/host/sample.h"
#include "kernels/check.h"

#include <string.h>

/* ---- what a row brings beside its numbers ---------------------------------------------------- */

struct parts { /* in units of 4 bytes, each even */
    uint64_t mask, biases, counts, saved;
};

static bool has_penalty(const struct k_sample_row *row)
{
    return row->repetition_penalty != 1.0f || row->presence_penalty != 0.0f || row->frequency_penalty != 0.0f;
}

/* A forced token is reported whatever would be adjusted. */
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

/* ---- into pinned memory ---------------------------------------------------------------------- */

struct packer {
    struct k_backend *b;
    struct quire_error *err;
    unsigned char *dst_dev;      /* where the piece goes */
    uint64_t left;               /* bytes of the round that have no piece yet */
    unsigned char *piece;
    uint64_t piece_bytes, used;
};

static int next_piece(struct packer *p)
{
    if (p->used > 0) {
        int status = cuda_check(
            p->b, cudaMemcpyAsync(p->dst_dev, p->piece, (size_t)p->used, cudaMemcpyDefault, cuda_of(p->b)->stream),
            "sample", p->err);
        if (status != QUIRE_OK)
            return status;
        p->dst_dev += p->used;
    }
    p->used = p->piece_bytes = 0;
    if (p->left == 0)
        return QUIRE_OK;
    void *piece = NULL;
    int status = cuda_stage(p->b, p->left, &piece, &p->piece_bytes, p->err);
    p->piece = piece;
    p->left -= p->piece_bytes;
    return status;
}

/* bytes of src, then zeros up to padded_bytes. */
static int put(struct packer *p, const void *src, uint64_t bytes, uint64_t padded_bytes)
{
    for (uint64_t done = 0; done < padded_bytes;) {
        if (p->used == p->piece_bytes) {
            int status = next_piece(p);
            if (status != QUIRE_OK)
                return status;
        }
        uint64_t room = p->piece_bytes - p->used, n = padded_bytes - done < room ? padded_bytes - done : room;
        uint64_t copied = done < bytes ? (bytes - done < n ? bytes - done : n) : 0;
        if (copied > 0)
            memcpy(p->piece + p->used, (const unsigned char *)src + done, (size_t)copied);
        memset(p->piece + p->used + copied, 0, (size_t)(n - copied));
        p->used += n;
        done += n;
    }
    return QUIRE_OK;
}

/* ---- a round --------------------------------------------------------------------------------- */

struct round_size {
    uint32_t n_rows;
    uint64_t data_words; /* masks, biases and counts */
    uint64_t saved_words;
};

/* Of the rows, behind the results. */
static uint64_t rows_offset(uint32_t n_rows)
{
    return ((uint64_t)n_rows * sizeof(struct k_sample_result) + 7) / 8 * 8;
}

/* As many of the rows as fit. */
static struct round_size size_round(const struct k_sample_row *rows, uint32_t n_rows, uint32_t n_vocab)
{
    uint64_t capacity = cuda_sample_round_bytes(n_vocab);
    struct round_size size = {0, 0, 0};
    for (uint32_t i = 0; i < n_rows; i++) {
        struct parts p = parts_of(&rows[i], n_vocab);
        uint64_t data = size.data_words + p.mask + p.biases + p.counts, saved = size.saved_words + p.saved;
        if (rows_offset(i + 1) + (i + 1) * sizeof(struct sample_row_dev) + 4 * (data + saved) > capacity)
            break;
        size = (struct round_size){i + 1, data, saved};
    }
    return size;
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

/* The rows, each with the offsets of its parts; then the parts, in the same order. */
static int pack_round(struct packer *p, const struct k_sample_row *rows, const struct round_size *size,
                      uint32_t n_vocab)
{
    uint64_t at = (rows_offset(size->n_rows) + size->n_rows * sizeof(struct sample_row_dev)) / 4;
    uint64_t saved_at = at + size->data_words;
    int status = QUIRE_OK;
    for (uint32_t i = 0; i < size->n_rows && status == QUIRE_OK; i++) {
        struct parts parts = parts_of(&rows[i], n_vocab);
        struct sample_row_dev row = device_row(&rows[i], n_vocab);
        row.n_biases = (uint32_t)(parts.biases / 2);
        row.n_counts = (uint32_t)(parts.counts / 2);
        row.mask = parts.mask ? (uint32_t)at : 0;
        row.biases = (uint32_t)(at + parts.mask);
        row.counts = (uint32_t)(at + parts.mask + parts.biases);
        row.saved = parts.saved ? (uint32_t)saved_at : 0;
        at += parts.mask + parts.biases + parts.counts;
        saved_at += parts.saved;
        status = put(p, &row, sizeof row, sizeof row);
    }
    for (uint32_t i = 0; i < size->n_rows && status == QUIRE_OK; i++) {
        struct parts parts = parts_of(&rows[i], n_vocab);
        status = put(p, rows[i].mask, ((uint64_t)n_vocab + 31) / 32 * 4, 4 * parts.mask);
        if (status == QUIRE_OK)
            status = put(p, rows[i].biases, 4 * parts.biases, 4 * parts.biases);
        if (status == QUIRE_OK)
            status = put(p, rows[i].counts, 4 * parts.counts, 4 * parts.counts);
    }
    return status == QUIRE_OK ? next_piece(p) : status;
}

static int run_round(struct k_backend *b, const struct k_sample_args *a, uint32_t first, const struct round_size *size,
                     struct quire_error *err)
{
    struct packer packer = {
        .b = b,
        .err = err,
        .dst_dev = (unsigned char *)a->workspace_dev + rows_offset(size->n_rows),
        .left = size->n_rows * sizeof(struct sample_row_dev) + 4 * size->data_words,
    };
    struct sample_round round = {
        .logits_dev = a->logits_dev + (uint64_t)first * a->n_vocab,
        .sampled_dev = a->sampled_dev + first,
        .workspace_dev = a->workspace_dev,
        .rows_dev = (const void *)packer.dst_dev,
        .n_rows = size->n_rows,
        .n_vocab = a->n_vocab,
    };
    int status = pack_round(&packer, a->rows + first, size, a->n_vocab);
    if (status == QUIRE_OK)
        status = cuda_check(b, launch_sample(cuda_of(b)->stream, &round), "sample", err);
    if (status != QUIRE_OK)
        return status;
    return cuda_download(b, a->results + first, a->workspace_dev, size->n_rows * sizeof *a->results, err);
}

int cuda_sample(struct k_backend *b, const struct k_sample_args *a, struct quire_error *err)
{
    int status = cuda_eager(b, "sample", err);
    if (status == QUIRE_OK)
        status = k_check_sample(a, err);
    for (uint32_t done = 0; done < a->n_rows && status == QUIRE_OK;) {
        struct round_size size = size_round(a->rows + done, a->n_rows - done, a->n_vocab);
        if (size.n_rows == 0) /* not reached: cuda_sample_round_bytes() holds any row that was checked */
            return quire_fail(err, QUIRE_INVALID, "sample: row %u does not fit", done);
        status = run_round(b, a, done, &size, err);
        done += size.n_rows;
    }
    return status;
}
