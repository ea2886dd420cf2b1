#include "tools/eval/kl.h"

#include "tools/bench/lib/metrics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct comparison {
    float *rows; /* [window, n_vocab]: the reference's */
    double *sums; /* [window]: logarithm of the sum of each row's exponentials */
    uint32_t *bests; /* [window] */
    uint32_t window, n_vocab;
    uint32_t first; /* position of the window's first scored token */
    bool is_wrong; /* a row has another length */
    double *each; /* [capacity]: KL of every token so far */
    size_t n, capacity;
    uint64_t n_same;
    double by_depth[EVAL_DEPTHS];
    struct eval_divergence *out;
};

static double log_sum(const float *row, uint32_t n, uint32_t *best)
{
    double sum = 0;
    *best = 0;
    for (uint32_t i = 1; i < n; i++)
        *best = row[i] > row[*best] ? i : *best;
    for (uint32_t i = 0; i < n; i++)
        sum += exp((double)row[i] - row[*best]);
    return row[*best] + log(sum);
}

static void keep_row(void *context, uint32_t position, uint32_t token, const float *row, uint32_t n_vocab)
{
    struct comparison *c = context;
    (void)token;
    if (position >= c->window || n_vocab != c->n_vocab) {
        c->is_wrong = true;
        return;
    }
    if (position < c->first)
        return;
    memcpy(c->rows + (size_t)position * n_vocab, row, n_vocab * sizeof *row);
    c->sums[position] = log_sum(row, n_vocab, &c->bests[position]);
}

static void compare_row(void *context, uint32_t position, uint32_t token, const float *row, uint32_t n_vocab)
{
    struct comparison *c = context;
    uint32_t best;
    double kl = 0;
    (void)token;
    if (position >= c->window || n_vocab != c->n_vocab || c->n == c->capacity) {
        c->is_wrong = true;
        return;
    }
    if (position < c->first)
        return;
    const float *reference = c->rows + (size_t)position * n_vocab;
    const double sum = log_sum(row, n_vocab, &best);
    for (uint32_t i = 0; i < n_vocab; i++) {
        const double p = reference[i] - c->sums[position];
        kl += exp(p) * (p - (row[i] - sum));
    }
    kl = kl > 0 ? kl : 0; /* rounding */
    const uint32_t depth = (uint32_t)((uint64_t)position * EVAL_DEPTHS / c->window);
    c->each[c->n++] = kl;
    c->out->mean += kl;
    c->by_depth[depth] += kl;
    c->out->n_by_depth[depth]++;
    c->n_same += best == c->bests[position];
}

static void finish(struct comparison *c)
{
    struct eval_divergence *out = c->out;
    out->n_tokens = c->n;
    if (c->n == 0)
        return;
    bench_sort(c->each, c->n);
    out->mean /= (double)c->n;
    out->median = bench_percentile(c->each, c->n, 50);
    out->p999 = bench_percentile(c->each, c->n, 99.9);
    out->most = c->each[c->n - 1];
    out->same_best = (double)c->n_same / (double)c->n;
    for (uint32_t d = 0; d < EVAL_DEPTHS; d++)
        out->by_depth[d] = out->n_by_depth[d] ? c->by_depth[d] / (double)out->n_by_depth[d] : 0;
}

static int score(struct eval_session *s, const struct eval_window *at, float *logprobs, double *nll,
                 struct quire_error *err)
{
    const int status = eval_score(s, at->ids, at->n, logprobs, err);
    *nll = 0;
    for (uint32_t k = at->n - at->scored; status == QUIRE_OK && k < at->n; k++)
        *nll -= logprobs[k];
    return status;
}

/* Both models on one window. */
static int compare_window(struct comparison *c, struct eval_session *a, struct eval_session *b,
                          const struct eval_window *at, const uint32_t *token_bytes, float *logprobs,
                          struct quire_error *err)
{
    double reference, model;
    c->first = at->n - at->scored;
    int status = score(a, at, logprobs, &reference, err);
    if (status == QUIRE_OK)
        status = score(b, at, logprobs, &model, err);
    if (status != QUIRE_OK)
        return status;
    eval_nll_add(&c->out->reference, reference, at, token_bytes);
    eval_nll_add(&c->out->model, model, at, token_bytes);
    eval_nll_add(&c->out->increase, model - reference, at, token_bytes);
    return c->is_wrong ? quire_fail(err, QUIRE_INTERNAL, "the engine showed logits of an unexpected place") : QUIRE_OK;
}

static int compare(const struct eval_kl_job *job, struct eval_session *a, struct eval_session *b,
                   const struct eval_windows *w, struct comparison *c, struct quire_error *err)
{
    struct bench_progress progress;
    uint32_t *token_bytes = eval_token_bytes(eval_text(a));
    c->window = w->window;
    c->n_vocab = eval_info(a)->vocab_size;
    c->capacity = w->n_ids; /* no token is scored twice */
    c->rows = malloc((size_t)c->window * c->n_vocab * sizeof *c->rows);
    c->sums = calloc(c->window, sizeof *c->sums);
    c->bests = calloc(c->window, sizeof *c->bests);
    c->each = malloc(c->capacity * sizeof *c->each);
    float *logprobs = malloc(c->window * sizeof *logprobs);
    int status = token_bytes && c->rows && c->sums && c->bests && c->each && logprobs
                     ? QUIRE_OK
                     : quire_fail(err, QUIRE_NO_MEMORY, "out of memory for a window's logits: give a smaller --window");
    bench_progress_begin(&progress, job->model, w->n);
    for (uint32_t i = 0; status == QUIRE_OK && i < w->n; i++) {
        const struct eval_window at = eval_window_at(w, i);
        if (at.scored > 0)
            status = compare_window(c, a, b, &at, token_bytes, logprobs, err);
        bench_progress_set(&progress, i + 1);
    }
    bench_progress_end(&progress);
    free(logprobs);
    free(token_bytes);
    return status;
}

uint32_t eval_depth_begin(uint32_t window, uint32_t depth)
{
    return (uint32_t)(((uint64_t)window * depth + EVAL_DEPTHS - 1) / EVAL_DEPTHS);
}

int eval_kl(const struct eval_kl_job *job, struct eval_divergence *out, struct quire_error *err)
{
    struct comparison c = {.out = out};
    struct eval_session *a = NULL, *b = NULL;
    struct eval_windows w = {0};
    *out = (struct eval_divergence){0};
    int status = eval_open(job->reference, job->how, keep_row, &c, &a, err);
    if (status == QUIRE_OK)
        status = eval_open(job->model, job->how, compare_row, &c, &b, err);
    if (status == QUIRE_OK && eval_info(a)->vocab_size != eval_info(b)->vocab_size)
        status = quire_fail(err, QUIRE_INVALID,
                            "%.100s has %u tokens and %.100s has %u: only one vocabulary can be compared",
                            job->reference, eval_info(a)->vocab_size, job->model, eval_info(b)->vocab_size);
    if (status == QUIRE_OK)
        status = eval_windows_read(job->path, eval_text(a), job->window, job->stride, job->most_windows, &w, err);
    if (status == QUIRE_OK)
        status = compare(job, a, b, &w, &c, err);
    eval_close(a); /* its thread writes to c */
    eval_close(b);
    if (status == QUIRE_OK)
        finish(&c);
    eval_windows_free(&w);
    free(c.rows);
    free(c.sums);
    free(c.bests);
    free(c.each);
    return status;
}
