/* Prompt lookup, compared with a search of every position of the text. */
#include "speculation/ngram.h"
#include "tests/speculation/drafter_fixture.h"

#define LEN 2000u

static struct drafter *make(uint32_t n_slots, uint32_t min, uint32_t max)
{
    struct ngram_config c = {.n_slots = n_slots,
                             .max_model_len = LEN,
                             .lookup_min = min,
                             .lookup_max = max,
                             .n_tokens = (uint64_t)n_slots * LEN};
    struct drafter *d;
    assert_int_equal(ngram_create(&c, &d, NULL), QUIRE_OK);
    return d;
}

struct held {
    uint32_t at, n_tokens;
};

/* The followed position, or the longest run seen before at its latest position; 0: none. */
static uint32_t oracle(const uint32_t *t, uint32_t n_tokens, uint32_t min, uint32_t max, const struct held *held)
{
    static const int32_t near[] = {0, -1, 1, -2, 2};
    for (uint32_t i = 0; held->at > 0 && i < 5; i++) {
        int64_t at = (int64_t)held->at + (n_tokens - held->n_tokens) + near[i];
        if (at >= min && at < n_tokens && memcmp(t + at - min, t + n_tokens - min, min * sizeof *t) == 0)
            return (uint32_t)at;
    }
    for (uint32_t n = max < n_tokens ? max : n_tokens; n >= min; n--)
        for (uint32_t at = n_tokens - 1; at >= n; at--)
            if (memcmp(t + at - n, t + n_tokens - n, n * sizeof *t) == 0)
                return at;
    return 0;
}

static void proposes_what_followed(void **state)
{
    (void)state;
    static const uint32_t copy[] = {5, 6, 7, 8, 9, 1, 6, 7};
    static const uint32_t latest[] = {1, 2, 3, 1, 2, 4, 1, 2};
    static const uint32_t period[] = {7, 8, 9, 7, 8};
    static const uint32_t fresh[] = {1, 2, 3, 4};
    struct drafter *d = make(1, 2, 5);
    uint32_t out[DRAFT_MAX];
    struct draft_text t = text_of(copy, 3, 8);
    d->ops->begin(d, 0, &t);
    assert_int_equal(ask_one(d, 0, &t, 3, out), 3);
    assert_memory_equal(out, ((uint32_t[]){8, 9, 1}), sizeof(uint32_t[3]));
    d->ops->end(d, 0, &t, true);

    t = text_of(latest, 8, 8);
    d->ops->begin(d, 0, &t);
    assert_int_equal(ask_one(d, 0, &t, 1, out), 1);
    assert_int_equal(out[0], 4);
    d->ops->end(d, 0, &t, true);

    t = text_of(period, 5, 5);
    d->ops->begin(d, 0, &t);
    assert_int_equal(ask_one(d, 0, &t, 7, out), 7);
    assert_memory_equal(out, ((uint32_t[]){9, 7, 8, 9, 7, 8, 9}), sizeof(uint32_t[7]));
    d->ops->end(d, 0, &t, true);

    t = text_of(fresh, 4, 4);
    d->ops->begin(d, 0, &t);
    assert_int_equal(ask_one(d, 0, &t, 7, out), 0);
    d->ops->destroy(d);
}

/* Texts of few and of many different tokens, growing by 1 to 4 tokens in two slots that restart again and again. */
static void equals_looking_everywhere(void **state)
{
    (void)state;
    static const uint32_t alphabets[] = {1, 2, 4, 30};
    static const uint32_t ranges[][2] = {{1, 1}, {2, 5}, {3, 16}};
    uint64_t random = 1;
    for (uint32_t i = 0; i < 4 * 3; i++) {
        uint32_t alphabet = alphabets[i % 4], min = ranges[i / 4][0], max = ranges[i / 4][1];
        struct drafter *d = make(2, min, max);
        for (uint32_t round = 0; round < 3; round++) {
            struct held held[2] = {{0}};
            uint32_t *tokens[2], n[2], out[DRAFT_MAX];
            for (uint32_t s = 0; s < 2; s++) {
                tokens[s] = malloc(LEN * sizeof *tokens[s]);
                assert_non_null(tokens[s]);
                for (uint32_t t = 0; t < LEN; t++)
                    tokens[s][t] = draw(&random, alphabet);
                n[s] = 1 + draw(&random, 50);
                struct draft_text t = text_of(tokens[s], n[s], n[s]);
                d->ops->begin(d, s, &t);
            }
            for (uint32_t step = 0; step < 150; step++) {
                uint32_t s = draw(&random, 2), most = 1 + draw(&random, 9);
                struct draft_text t = text_of(tokens[s], 1, n[s]);
                uint32_t got = ask_one(d, s, &t, most, out), at = oracle(tokens[s], n[s], min, max, &held[s]);
                assert_int_equal(got, at ? most : 0);
                if (at)
                    held[s] = (struct held){at, n[s]};
                for (uint32_t j = 0; j < got; j++, at++)
                    assert_int_equal(out[j], at < n[s] ? tokens[s][at] : out[at - n[s]]);
                n[s] += 1 + draw(&random, 4);
            }
            for (uint32_t s = 0; s < 2; s++) {
                struct draft_text t = text_of(tokens[s], 1, n[s]);
                d->ops->end(d, s, &t, round % 2);
                free(tokens[s]);
            }
        }
        d->ops->destroy(d);
    }
}

/* Sequences come and go in a full table: only entries of gone sequences are evicted. Random tokens, so that every gram
 * is different. The first prompt is searched after twenty times the table's size was inserted. */
static void keeps_those_who_run(void **state)
{
    (void)state;
    struct ngram_config c = {.n_slots = 2, .max_model_len = LEN, .lookup_min = 4, .lookup_max = 4, .n_tokens = 2 * LEN};
    struct drafter *d;
    uint64_t random = 7;
    static uint32_t kept[LEN], other[LEN];
    uint32_t out[DRAFT_MAX], n_found = 0;
    assert_int_equal(ngram_create(&c, &d, NULL), QUIRE_OK);
    for (uint32_t i = 0; i < LEN; i++)
        kept[i] = draw(&random, 1u << 30);
    struct draft_text t = text_of(kept, LEN - 100, LEN - 100);
    d->ops->begin(d, 0, &t);
    for (uint32_t round = 0; round < 40; round++) {
        for (uint32_t i = 0; i < LEN; i++)
            other[i] = draw(&random, 1u << 30);
        struct draft_text o = text_of(other, LEN, LEN);
        d->ops->begin(d, 1, &o);
        d->ops->end(d, 1, &o, true);
    }
    for (uint32_t i = 0; i < 25; i++) { /* four tokens of its own text again, from everywhere in it */
        uint32_t at = 10 + 70 * i, n = LEN - 100 + 4 * i;
        memcpy(kept + n, kept + at, 4 * sizeof *kept);
        t = text_of(kept, LEN - 100, n + 4);
        n_found += ask_one(d, 0, &t, 1, out) == 1 && out[0] == kept[at + 4];
    }
    assert_true(n_found >= 24);
    d->ops->destroy(d);
}

static void long_prompts_by_and_by(void **state)
{
    (void)state;
    struct ngram_config c = {
        .n_slots = 1, .max_model_len = 1 << 16, .lookup_min = 2, .lookup_max = 3, .n_tokens = 1 << 16};
    struct drafter *d;
    assert_int_equal(ngram_create(&c, &d, NULL), QUIRE_OK);
    takes_in_a_long_prompt(d);
}

static void says_what_it_takes(void **state)
{
    (void)state;
    struct ngram_config c = {
        .n_slots = 256, .max_model_len = 131072, .lookup_min = 2, .lookup_max = 5, .n_tokens = 1 << 20};
    struct drafter *d;
    assert_in_range(ngram_bytes(&c), 64ull << 20, (64ull << 20) + 8192); /* 16 bytes x 4 lengths x 2^20 */
    c.n_tokens = UINT64_MAX / 1024;
    c.n_slots = 2;
    assert_in_range(ngram_bytes(&c), 16ull << 20, (16ull << 20) + 8192); /* two texts and not more */
    c.lookup_max = NGRAM_MAX_LOOKUP + 1;
    assert_int_equal(ngram_create(&c, &d, NULL), QUIRE_INVALID);
    c.lookup_max = 1;
    assert_int_equal(ngram_create(&c, &d, NULL), QUIRE_INVALID);
    c.lookup_min = 0;
    assert_int_equal(ngram_create(&c, &d, NULL), QUIRE_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(proposes_what_followed), cmocka_unit_test(equals_looking_everywhere),
        cmocka_unit_test(keeps_those_who_run),    cmocka_unit_test(long_prompts_by_and_by),
        cmocka_unit_test(says_what_it_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
