/* How far a model's distributions are from a reference's, at every scored token of a text: the Kullback-Leibler
 * divergence KL(reference || model) in nats over the whole vocabulary. */
#ifndef QUIRE_TOOLS_EVAL_KL_H
#define QUIRE_TOOLS_EVAL_KL_H

#include "tools/eval/ppl.h"

#define EVAL_DEPTHS 8 /* equal parts of a window */

struct eval_divergence {
    uint64_t n_tokens;
    double mean, median, p999, most; /* p999: percentile 99.9, interpolated as numpy.percentile does */
    double same_best; /* share of tokens for which both have one best token */
    double by_depth[EVAL_DEPTHS]; /* means; of the tokens in each part of their window */
    uint64_t n_by_depth[EVAL_DEPTHS];
    struct eval_nll reference, model;
    struct eval_nll increase; /* the model's less the reference's, by window: its perplexity is the ratio of theirs */
};

/* reference, given: as eval_open() takes them. path: the text, which the reference's tokenizer encodes; both must have one
 * vocabulary. Memory: a window's logits of the reference. */
struct eval_kl_job {
    const char *reference, *model, *path;
    uint32_t window, stride, most_windows;
    const struct eval_how *how;
};
int eval_kl(const struct eval_kl_job *job, struct eval_divergence *out, struct quire_error *err);

/* The first position of a part of the window; of part EVAL_DEPTHS, the window's end. */
uint32_t eval_depth_begin(uint32_t window, uint32_t depth);

#endif
