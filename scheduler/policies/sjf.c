/* Shortest job first: what is expected to be over soonest.
 *
 * The work that is left of a request is the tokens it is expected to generate yet, and the known ones
 * to compute first, eight of which count as one: prompts are computed in bulk. A thousand tokens of
 * work are worth ageing_us of waiting: rank = arrival + work × ageing_us / 1000. Work is never less than
 * 0 nor more than max_tokens + n_prompt / 8, so a request is overtaken only by requests that arrive
 * less than that work's price after it.
 *
 * How long an answer will be is learnt from those that ended, per tenant and octave of prompt lengths:
 * a histogram of output lengths by octaves, old ones fading. What was expected of all of them is the
 * estimate at first; of a sequence that has reached 2^k tokens, what was expected of those that got so
 * far, or, once it has outlived that too, of those that reached 2^(k+1). Where too few were seen the
 * tenant's lengths of all prompts answer, then those of all tenants, then max_tokens. What the caller
 * foretold goes before all of them until it is outlived.
 *
 * An answer that max_tokens cut off is learnt as if it had ended there.
 */
#include "scheduler/policies/policies.h"

#include <stddef.h>
#include <stdlib.h>

/* A thousand tokens take some 20 to 50 s: the longest are put off by a handful of times their own length,
 * and a backlog of minutes is still put in order. */
#define DEFAULT_AGEING_US 300000000u

#define PROMPT_OCTAVES 20
#define OUTPUT_OCTAVES 20
/* About so many of the last requests count in an estimate. */
#define MEMORY 128
/* Fewer say nothing. */
#define LEAST 4
/* Known tokens to compute that weigh as much as one to generate. */
#define PROMPT_PER_OUTPUT 8u

struct lengths {
    double n[OUTPUT_OCTAVES], sum[OUTPUT_OCTAVES]; /* of lengths in [2^i, 2^(i+1)) */
    uint32_t expected[OUTPUT_OCTAVES]; /* mean of those of 2^i and longer, to a sixteenth; 0 = not
                                          known */
};

struct tenant {
    struct lengths all, by_prompt[PROMPT_OCTAVES];
};

struct sjf {
    uint64_t ageing_us;
    struct lengths all;
    double n_errors, errors; /* of estimates, relative; fading */
    struct tenant *tenants;
};

static int create(const struct sched_policy_options *options, void **state, struct quire_error *err)
{
    struct sjf *f = calloc(1, sizeof *f);
    if (f)
        f->tenants = calloc(options->n_tenants ? options->n_tenants : 1, sizeof *f->tenants);
    if (!f || !f->tenants) {
        free(f);
        return quire_fail(err, QUIRE_NO_MEMORY, "policy: out of memory");
    }
    f->ageing_us = options->ageing_us ? options->ageing_us : DEFAULT_AGEING_US;
    *state = f;
    return QUIRE_OK;
}

static void destroy(void *state)
{
    struct sjf *f = state;
    if (f)
        free(f->tenants);
    free(f);
}

/* ---- what is expected ---- */

/* floor(log2(n)), at most `most`; 0 of 0. */
static uint32_t octave(uint32_t n, uint32_t most)
{
    uint32_t i = n > 0 ? 31 - (uint32_t)__builtin_clz(n) : 0;
    return i < most ? i : most;
}

static struct lengths *by_prompt(const struct sjf *f, const struct sched_candidate *c)
{
    return &f->tenants[c->tenant].by_prompt[octave(c->n_prompt, PROMPT_OCTAVES - 1)];
}

/* More than `generated`, or 0: not known. */
static uint32_t look_up(const struct lengths *l, uint32_t generated)
{
    uint32_t i = octave(generated, OUTPUT_OCTAVES - 1);
    uint32_t expected = l->expected[i];
    if (expected <= generated && i + 1 < OUTPUT_OCTAVES)
        expected = l->expected[i + 1];
    return expected > generated ? expected : 0;
}

/* Tokens in all, of which so many were generated. */
static uint32_t expect(const struct sjf *f, const struct sched_candidate *c, uint32_t generated)
{
    uint32_t expected = c->expected_tokens;
    if (expected <= generated)
        expected = look_up(by_prompt(f, c), generated);
    if (expected == 0)
        expected = look_up(&f->tenants[c->tenant].all, generated);
    if (expected == 0)
        expected = look_up(&f->all, generated);
    return expected > 0 && expected < c->max_tokens ? expected : c->max_tokens;
}

static uint64_t rank(void *state, const struct sched_candidate *c)
{
    const struct sjf *f = state;
    uint32_t generated = c->n_known - c->n_prompt;
    uint32_t there = c->n_computed > c->n_cached ? c->n_computed : c->n_cached;
    uint64_t left = (uint64_t)(expect(f, c, generated) - generated) * PROMPT_PER_OUTPUT;
    left += c->n_known > there ? c->n_known - there : 0;
    uint64_t price = sched_later(0, left, f->ageing_us) / (1000 * PROMPT_PER_OUTPUT);
    return sched_later(c->arrival_us, 1, price);
}

/* ---- learning ---- */

/* A sixteenth more or less is noise: it would only make the running change places. */
static void publish(uint32_t *expected, double mean)
{
    if (mean > *expected + *expected / 16.0 || mean < *expected - *expected / 16.0)
        *expected = (uint32_t)(mean + 0.5);
}

static void learn(struct lengths *l, uint32_t length)
{
    uint32_t at = octave(length, OUTPUT_OCTAVES - 1);
    double n = 0, sum = 0;
    for (uint32_t i = OUTPUT_OCTAVES; i-- > 0;) {
        l->n[i] *= 1 - 1.0 / MEMORY;
        l->sum[i] *= 1 - 1.0 / MEMORY;
        if (i == at) {
            l->n[i] += 1;
            l->sum[i] += length;
        }
        n += l->n[i];
        sum += l->sum[i];
        publish(&l->expected[i], n >= LEAST ? sum / n : 0);
    }
}

static void finished(void *state, const struct sched_candidate *c, uint32_t n_generated)
{
    struct sjf *f = state;
    if (n_generated == 0)
        return;
    double expected = expect(f, c, 0), error = (expected - n_generated) / n_generated;
    f->n_errors = f->n_errors * (1 - 1.0 / MEMORY) + 1;
    f->errors = f->errors * (1 - 1.0 / MEMORY) + (error < 0 ? -error : error);
    learn(by_prompt(f, c), n_generated);
    learn(&f->tenants[c->tenant].all, n_generated);
    learn(&f->all, n_generated);
}

static double figure(const void *state, const char **name)
{
    const struct sjf *f = state;
    *name = "estimate_error_percent";
    return f->n_errors > 0 ? 100 * f->errors / f->n_errors : 0;
}

const struct sched_policy sched_policy_sjf = {
    .name = "sjf",
    .about = "the shortest expected completion first, learnt from those that ended",
    .ranks_running = true,
    .ranks_by_cache = true,
    .create = create,
    .destroy = destroy,
    .rank = rank,
    .finished = finished,
    .figure = figure,
};
