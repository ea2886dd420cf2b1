/* The cost of a row's drafts: CPU time of propose() for one sequence that got one token. Texts: prose, half of whose
 * tokens are pieces of earlier text and half follow word frequencies; and slow cases, one repeated token and two random
 * tokens. Between two rows of a sequence there is a model's step, which leaves little in the caches: "cold" rows are
 * timed one by one after reading 64 MiB of other data. */
#include "speculation/ngram.h"
#include "speculation/suffix.h"
#include "tests/bench/host_bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MOST 8u
#define ROWS 64u /* of a warm sample */
#define OTHER_BYTES (64u << 20)
#define ANSWER 1000u

enum text { PROSE, ONE_TOKEN, TWO_TOKENS };

struct bench {
    uint32_t *tokens; /* of the sequence */
    uint32_t n, n_samples;
    const struct key256 *domain;
    const uint32_t *expected;
    uint32_t n_expected;
    volatile uint8_t *other;
};

static double now_us(void)
{
    return bench_seconds(CLOCK_THREAD_CPUTIME_ID) * 1e6;
}

static uint64_t random_state = 1;
static uint32_t draw(uint32_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) * below >> 31);
}

static void *take(size_t n_bytes)
{
    void *p = malloc(n_bytes);
    if (!p)
        bench_die("drafts: out of memory");
    return p;
}

/* pieces: an additional source of pieces for prose. */
static uint32_t *make_text(enum text kind, uint32_t n, const uint32_t *pieces, uint32_t n_pieces)
{
    uint32_t *tokens = take(n * sizeof *tokens);
    for (uint32_t i = 0; i < n;) {
        const uint32_t *from = pieces && draw(2) ? pieces : tokens;
        uint32_t n_from = from == tokens ? i : n_pieces, at = n_from > 32 ? draw(n_from - 32) : 0;
        if (kind == PROSE && n_from > 32 && draw(10) == 0)
            for (uint32_t j = 2 + draw(16); j > 0 && i < n; j--)
                tokens[i++] = from[at++];
        else /* Zipf's law over 30,000 tokens */
            tokens[i++] = kind == PROSE        ? (uint32_t)exp(draw(1u << 20) * (log(30000) / (1u << 20)))
                          : kind == TWO_TOKENS ? draw(2)
                                               : 0;
    }
    return tokens;
}

static double one_row(struct bench *b, struct drafter *d, uint32_t n_tokens)
{
    uint32_t drafts[MOST];
    struct draft_ask a = {.text = {.tokens = b->tokens,
                                   .n_tokens = n_tokens,
                                   .n_prompt = b->expected ? 0 : n_tokens,
                                   .domain = b->domain,
                                   .expected = b->expected,
                                   .n_expected = b->n_expected},
                          .most = MOST,
                          .drafts = drafts};
    double start = now_us();
    if (d->ops->propose(d, &a, 1, NULL))
        bench_die("drafts: refused");
    return now_us() - start;
}

/* Rows of one sequence, up to b->n tokens; destroys d. */
static void bench_rows(struct bench *b, struct drafter *d, const char *what)
{
    double *samples = take(b->n_samples * sizeof *samples);
    struct draft_text t = {.tokens = b->tokens, .n_tokens = b->n - b->n_samples * (ROWS + 1), .domain = b->domain};
    char name[128];
    t.n_prompt = b->expected ? 0 : t.n_tokens;
    t.expected = b->expected;
    t.n_expected = b->n_expected;
    d->ops->begin(d, 0, &t);
    uint32_t n = t.n_tokens;
    for (uint32_t i = 0; i <= n / DRAFT_AT_ONCE; i++) /* until everything is read */
        one_row(b, d, n);
    for (uint32_t i = 0; i < b->n_samples; i++) {
        samples[i] = 0;
        for (uint32_t j = 0; j < ROWS; j++)
            samples[i] += one_row(b, d, ++n) / ROWS;
    }
    snprintf(name, sizeof name, "drafts: %s", what);
    bench_row(name, "us/row", samples, b->n_samples);
    for (uint32_t i = 0; i < b->n_samples; i++) {
        for (uint32_t j = 0; j < OTHER_BYTES; j += 64)
            b->other[j]++;
        samples[i] = one_row(b, d, ++n);
    }
    snprintf(name, sizeof name, "drafts: %s, cold", what);
    bench_row(name, "us/row", samples, b->n_samples);
    d->ops->destroy(d);
    free(samples);
}

static const char *const text_names[] = {"prose", "one token", "two tokens"};

static void bench_ngram(struct bench *b, enum text kind, uint32_t context)
{
    uint32_t n_rows = b->n_samples * (ROWS + 1);
    struct ngram_config c = {
        .n_slots = 1, .max_model_len = context + n_rows, .lookup_min = 2, .lookup_max = 5, .n_tokens = 1 << 20};
    struct drafter *d;
    char name[96];
    if (ngram_create(&c, &d, NULL))
        bench_die("drafts: no n-gram");
    b->n = context + n_rows;
    b->tokens = make_text(kind, b->n, NULL, 0);
    snprintf(name, sizeof name, "n-gram, %u tokens of %s", context, text_names[kind]);
    bench_rows(b, d, name);
    free(b->tokens);
}

static void bench_suffix(struct bench *b, enum text kind, uint32_t history)
{
    static const struct key256 domain = {{1}};
    uint32_t n_rows = b->n_samples * (ROWS + 1);
    struct suffix_config c = {.n_slots = 1,
                              .max_model_len = 1024 + n_rows,
                              .n_tokens = 1024 + n_rows,
                              .history_bytes = 64 << 20,
                              .max_tree_depth = 24,
                              .max_cached_requests = 10000,
                              .max_spec_factor = 1,
                              .min_token_prob = 0.1f};
    struct drafter *d;
    char name[96];
    if (suffix_create(&c, &d, NULL))
        bench_die("drafts: no suffix");
    uint32_t *answers = make_text(kind, history, NULL, 0);
    double *samples = take(history / ANSWER * sizeof *samples);
    for (uint32_t i = 0; i < history / ANSWER; i++) {
        struct draft_text t = {.tokens = answers + i * ANSWER, .n_tokens = ANSWER, .domain = &domain};
        d->ops->begin(d, 0, &(struct draft_text){.tokens = t.tokens, .domain = &domain});
        double start = now_us();
        d->ops->end(d, 0, &t, true);
        samples[i] = (now_us() - start) / ANSWER * 1e3;
    }
    snprintf(name, sizeof name, "drafts: suffix, learning to %u tokens of %s", history, text_names[kind]);
    bench_row(name, "ns/token", samples, history / ANSWER);
    b->n = 1024 + n_rows;
    b->tokens = make_text(kind, b->n, answers, history);
    b->domain = &domain;
    snprintf(name, sizeof name, "suffix, %u tokens of %s", history, text_names[kind]);
    bench_rows(b, d, name);
    free(samples);
    free(answers);
    free(b->tokens);
}

/* An answer that follows the text, and one that never does. */
static void bench_follow(struct bench *b, uint32_t n_expected, bool is_right)
{
    uint32_t n_rows = b->n_samples * (ROWS + 1);
    uint32_t *expected = make_text(PROSE, n_expected + n_rows, NULL, 0);
    struct drafter *d;
    char name[96];
    if (follow_create(1, &d, NULL))
        bench_die("drafts: no prediction");
    b->n = n_rows;
    b->expected = expected;
    b->n_expected = n_expected;
    b->tokens = is_right ? expected : make_text(PROSE, n_rows, NULL, 0);
    snprintf(name, sizeof name, "prediction of %u tokens, %s", n_expected, is_right ? "right" : "wrong");
    bench_rows(b, d, name);
    if (!is_right)
        free(b->tokens);
    free(expected);
    b->expected = NULL;
}

/* The cost of a prompt before its first row. */
static void bench_begin(struct bench *b, uint32_t n_tokens)
{
    double *samples = take(b->n_samples * sizeof *samples);
    static const struct key256 domain;
    struct ngram_config c = {
        .n_slots = 1, .max_model_len = n_tokens, .lookup_min = 2, .lookup_max = 5, .n_tokens = n_tokens};
    struct suffix_config s = {
        .n_slots = 1, .max_model_len = n_tokens, .n_tokens = n_tokens, .max_tree_depth = 24, .max_spec_factor = 1};
    uint32_t *tokens = make_text(PROSE, n_tokens, NULL, 0);
    struct draft_text t = {.tokens = tokens, .n_tokens = n_tokens, .n_prompt = n_tokens, .domain = &domain};
    struct drafter *both[2];
    if (ngram_create(&c, &both[0], NULL) || suffix_create(&s, &both[1], NULL))
        bench_die("drafts: out of memory");
    for (int kind = 0; kind < 2; kind++) {
        char name[96];
        for (uint32_t i = 0; i < b->n_samples; i++) {
            double start = now_us();
            both[kind]->ops->begin(both[kind], 0, &t);
            samples[i] = (now_us() - start) / n_tokens * 1e3;
            both[kind]->ops->end(both[kind], 0, &t, false);
        }
        snprintf(name, sizeof name, "drafts: %s, a prompt of %u tokens", kind ? "suffix" : "n-gram", n_tokens);
        bench_row(name, "ns/token", samples, b->n_samples);
        both[kind]->ops->destroy(both[kind]);
    }
    free(tokens);
    free(samples);
}

/* The clock's own share of every row above and below. */
static void bench_nothing(struct bench *b)
{
    struct drafter *d;
    if (follow_create(1, &d, NULL))
        bench_die("drafts: no prediction");
    b->n = b->n_samples * (ROWS + 1);
    b->tokens = make_text(ONE_TOKEN, b->n, NULL, 0);
    bench_rows(b, d, "none expected, the clock alone");
    free(b->tokens);
}

void bench_drafts(bool quick)
{
    static const struct key256 nobody;
    static const uint32_t contexts[] = {1024, 32768, 131072};
    struct bench b = {.n_samples = quick ? 5 : 200, .domain = &nobody, .other = take(OTHER_BYTES)};
    bench_nothing(&b);
    for (int i = 0; i < (quick ? 1 : 3); i++)
        bench_ngram(&b, PROSE, contexts[i]);
    bench_ngram(&b, ONE_TOKEN, quick ? 1024 : 131072);
    bench_ngram(&b, TWO_TOKENS, quick ? 1024 : 131072);
    for (uint32_t n = 10000; n <= (quick ? 10000u : 1000000u); n *= 100)
        bench_suffix(&b, PROSE, n);
    bench_suffix(&b, ONE_TOKEN, quick ? 10000 : 1000000);
    bench_suffix(&b, TWO_TOKENS, quick ? 10000 : 1000000);
    b.domain = &nobody;
    for (uint32_t n = 1000; n <= (quick ? 1000u : 100000u); n *= 100) {
        bench_follow(&b, n, true);
        bench_follow(&b, n, false);
    }
    bench_begin(&b, quick ? 1024 : DRAFT_AT_ONCE);
    free((void *)b.other);
}
