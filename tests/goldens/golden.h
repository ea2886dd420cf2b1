/* Reads tests/goldens/models/NAME/golden.txt; README.md beside this file explains its lines. */
#ifndef QUIRE_TESTS_GOLDEN_H
#define QUIRE_TESTS_GOLDEN_H

#include "base/status.h"

#include <stdint.h>

#define GOLDEN_TOP 20
#define GOLDEN_MAX_TOPS 32

/* The best tokens at `position`, given the prompt tokens before it; best first. */
struct golden_top {
    uint32_t position; /* 1 .. n_prompt; at n_prompt stands the first generated token */
    uint32_t ids[GOLDEN_TOP];
    double logprobs[GOLDEN_TOP];
};

struct golden {
    char name[64];
    double naive_error; /* largest error of the naive computation in our dtypes, nats */
    double fp32_noise;  /* largest difference that fp32 rounding makes, nats */
    double tolerance;   /* largest difference of a logprob, nats */
    uint32_t attention_sinks, attention_window; /* 0 without streaming */
    uint32_t n_prompt;
    uint32_t *prompt;
    double *next_logprob; /* [n_prompt - 1]: entry i is prompt[i + 1]'s, given prompt[0 .. i] */
    uint32_t n_tops;
    struct golden_top tops[GOLDEN_MAX_TOPS];
    uint32_t n_greedy;
    uint32_t *greedy;        /* the greedy continuation of the prompt, end-of-text ids ignored */
    double *greedy_logprob;  /* [n_greedy] */
    double *greedy_margin;   /* [n_greedy]: how far the second best logit lies below the best */
};

/* Fills *out, which golden_free() empties, also after a failure. */
int golden_read(const char *path, struct golden *out, struct quire_error *err);
void golden_free(struct golden *g);

/* The number of leading steps that must equal the golden's: up to the first step whose margin is below the
 * tolerance, at which either token is right and the rest may differ. */
uint32_t golden_certain_steps(const struct golden *g);

#endif
