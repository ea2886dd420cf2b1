/* The rows that restrictions give: bad words in any number, biases and min_tokens beside them, against a walk over
 * every word and every token. */
#include "engine/run/sampling.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N_VOCAB 12u
#define STOP 11u

static uint32_t below(uint64_t *state, uint32_t n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33) % n;
}

static bool forbidden(const struct request_spec *s, uint32_t id, const uint32_t *generated, uint32_t n)
{
    if (n < s->min_tokens && id == STOP)
        return true;
    for (uint32_t i = 0; i < s->n_bad_words; i += 1 + s->bad_words[i]) {
        uint32_t n_before = s->bad_words[i] - 1;
        const uint32_t *ids = s->bad_words + i + 1;
        if (ids[n_before] == id && n_before <= n && memcmp(generated + n - n_before, ids, n_before * sizeof *ids) == 0)
            return true;
    }
    return false;
}

static void check_row(const struct request_spec *s, const struct sampling *made, struct k_logit_bias *scratch,
                      const uint32_t *generated, uint32_t n)
{
    const struct token_counts none = {0};
    const struct sampling_state state = {
        .counts = &none, .generated = generated, .n_generated = n, .position = 1 + n, .scratch = scratch};
    struct k_sample_row row;
    sampling_row(made, &state, &row);
    uint32_t at = 0;
    for (uint32_t id = 0; id < N_VOCAB; id++) {
        const struct request_bias *given = NULL;
        for (uint32_t i = 0; i < s->n_biases; i++)
            given = s->biases[i].id == id ? &s->biases[i] : given;
        bool bad = forbidden(s, id, generated, n);
        if (!bad && !given)
            continue;
        assert_true(at < row.n_biases);
        assert_int_equal(row.biases[at].id, id);
        assert_true(row.biases[at].bias == (bad ? -INFINITY : given->bias));
        at++;
    }
    assert_int_equal(at, row.n_biases);
}

/* Few ids, so that words share their ends, come twice, and are ends of one another. */
static uint32_t random_words(uint64_t *random, uint32_t *words, uint32_t n_words)
{
    uint32_t n = 0;
    for (uint32_t w = 0; w < n_words; w++) {
        uint32_t n_ids = below(random, 8) == 0 ? 1 : 2 + below(random, 3);
        words[n++] = n_ids;
        for (uint32_t i = 0; i + 1 < n_ids; i++)
            words[n++] = below(random, 3);
        words[n++] = below(random, N_VOCAB - 2);
    }
    return n;
}

static void rows(void **state)
{
    (void)state;
    static const struct model_config config = {.vocab_size = N_VOCAB};
    static const struct model_desc desc = {.config = &config};
    static const uint32_t stop = STOP;
    uint64_t random = 1;
    for (uint32_t round = 0; round < 2000; round++) {
        uint32_t words[40 * 5], generated[6];
        struct request_bias biases[N_VOCAB];
        struct request_spec s;
        request_spec_default(&s);
        s.prompt = &stop;
        s.n_prompt = 1;
        s.max_tokens = 6;
        s.bad_words = words;
        s.n_bad_words = random_words(&random, words, below(&random, 40));
        for (uint32_t id = N_VOCAB; id-- > 0;)
            if (below(&random, 3) == 0)
                biases[s.n_biases++] = (struct request_bias){.id = id, .bias = (float)id};
        s.biases = biases;
        s.stop_token_ids = &stop;
        s.n_stop_token_ids = 1;
        s.min_tokens = below(&random, 4);
        struct sampling made;
        struct quire_error err;
        assert_int_equal(request_spec_check(&s, N_VOCAB, &err), QUIRE_OK);
        assert_int_equal(sampling_init(&made, &s, &desc, &err), QUIRE_OK);
        /* Exactly as large as sampling_row_scratch() reports, so that a sanitizer detects an overrun. */
        struct k_logit_bias *scratch = malloc(sampling_row_scratch(&made) * sizeof *scratch);
        for (uint32_t i = 0; i < 6; i++)
            generated[i] = below(&random, 3);
        for (uint32_t n = 0; n <= 6; n++)
            check_row(&s, &made, scratch, generated, n);
        free(scratch);
        sampling_free(&made);
    }
}

/* The most numbers there may be, of words that all wait for the same token. */
static void most_words(void **state)
{
    (void)state;
    static const struct model_config config = {.vocab_size = REQUEST_MAX_BAD_WORDS};
    static const struct model_desc desc = {.config = &config};
    static uint32_t words[REQUEST_MAX_BAD_WORDS];
    uint32_t n_words = REQUEST_MAX_BAD_WORDS / 3, generated = 7;
    for (uint32_t i = 0; i < n_words; i++) {
        words[3 * i] = 2;
        words[3 * i + 1] = 7;
        words[3 * i + 2] = n_words - i;
    }
    struct request_spec s;
    request_spec_default(&s);
    s.prompt = words;
    s.n_prompt = 1;
    s.bad_words = words;
    s.n_bad_words = 3 * n_words;
    struct sampling made;
    struct quire_error err;
    assert_int_equal(request_spec_check(&s, config.vocab_size, &err), QUIRE_OK);
    assert_int_equal(sampling_init(&made, &s, &desc, &err), QUIRE_OK);
    struct k_logit_bias *scratch = malloc(sampling_row_scratch(&made) * sizeof *scratch);
    const struct token_counts none = {0};
    const struct sampling_state at = {
        .counts = &none, .generated = &generated, .n_generated = 1, .position = 2, .scratch = scratch};
    struct k_sample_row row;
    sampling_row(&made, &at, &row);
    assert_int_equal(row.n_biases, n_words);
    for (uint32_t i = 0; i < n_words; i++)
        assert_int_equal(row.biases[i].id, i + 1);
    free(scratch);
    sampling_free(&made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows), cmocka_unit_test(most_words)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
