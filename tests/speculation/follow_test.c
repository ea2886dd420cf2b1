/* Following an expected text across edits. */
#include "tests/speculation/drafter_fixture.h"

#define LEN 6000u

static struct drafter *make(void)
{
    struct drafter *d;
    assert_int_equal(follow_create(2, &d, NULL), QUIRE_OK);
    return d;
}

/* Number of steps of an answer, if each verifies as many drafts as possible. */
static uint32_t steps(struct drafter *d, const uint32_t *expected, uint32_t n_expected, const uint32_t *answer,
                      uint32_t n_answer)
{
    struct draft_text t = text_of(answer, 0, 0);
    uint32_t out[DRAFT_MAX], n_steps = 0;
    t.expected = expected;
    t.n_expected = n_expected;
    d->ops->begin(d, 1, &t);
    for (; t.n_tokens < n_answer; n_steps++) {
        uint32_t n = ask_one(d, 1, &t, DRAFT_MAX, out), i = 0;
        while (i < n && t.n_tokens + i < n_answer && answer[t.n_tokens + i] == out[i])
            i++;
        t.n_tokens += i + 1;
    }
    d->ops->end(d, 1, &t, true);
    return n_steps;
}

/* Edits of a text: in a thousand tokens, the number at which an edit begins. */
struct edits {
    uint32_t replace, insert, leave_out; /* per 1,000 tokens */
    uint32_t longest;
};
static uint32_t edit(uint64_t *random, const struct edits *e, const uint32_t *from, uint32_t n, uint32_t *to,
                     uint32_t *n_edits)
{
    uint32_t n_to = 0;
    *n_edits = 0;
    for (uint32_t i = 0; i < n;) {
        uint32_t what = draw(random, 1000), span = 1 + draw(random, e->longest);
        uint32_t n_new = what < e->replace + e->insert ? span : 0;
        bool is_left_out = what >= e->replace + e->insert && what < e->replace + e->insert + e->leave_out;
        uint32_t n_gone = what < e->replace || is_left_out ? span : 0;
        *n_edits += n_new || n_gone;
        for (uint32_t j = 0; j < n_new; j++)
            to[n_to++] = draw(random, 2) ? from[draw(random, n)] : 1000 + draw(random, 100);
        i += n_gone;
        if (i < n && !n_gone)
            to[n_to++] = from[i++];
    }
    return n_to;
}

/* Steps per edit: 1 is the minimum, with the changed token. Inserted or replaced tokens must be generated, so spans of
 * 1 to 6 tokens need 3.5 on average. */
static void goes_on_after_edits(void **state)
{
    (void)state;
    static const struct {
        struct edits edits;
        double most; /* steps per edit */
    } kinds[] = {
        {{100, 0, 0, 1}, 1.0},  {{0, 100, 0, 1}, 2.0},  {{0, 0, 100, 1}, 1.1},
        {{33, 33, 33, 1}, 1.4}, {{30, 0, 0, 6}, 3.8},   {{0, 30, 0, 6}, 4.5},
        {{0, 0, 30, 6}, 1.6},   {{10, 10, 10, 6}, 3.3}, {{3, 3, 3, 100}, 45},
    };
    static uint32_t expected[LEN], answer[4 * LEN];
    uint64_t random = 5;
    struct drafter *d = make();
    uint32_t n = read_page("api", expected, LEN);
    for (uint32_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        uint32_t n_edits, n_answer = edit(&random, &kinds[k].edits, expected, n, answer, &n_edits);
        uint32_t n_steps = steps(d, expected, n, answer, n_answer);
        double cost = ((double)n_steps - n_answer / (DRAFT_MAX + 1)) / n_edits;
        print_message("edits %u: %u tokens, %u edits, %u steps, %.2f an edit\n", k, n_answer, n_edits, n_steps, cost);
        assert_true(cost <= kinds[k].most);
    }
    d->ops->destroy(d);
}

/* The answer skips the first half of a long text, adds other tokens, and returns. */
static void finds_far_places(void **state)
{
    (void)state;
    enum { N = 100000 };
    uint32_t *expected = malloc(N * sizeof *expected), answer[1000];
    uint64_t random = 9;
    struct drafter *d = make();
    assert_non_null(expected);
    for (uint32_t i = 0; i < N; i++)
        expected[i] = draw(&random, 300);
    memcpy(answer, expected, 100 * sizeof *answer);
    memcpy(answer + 100, expected + 50000, 400 * sizeof *answer);
    memcpy(answer + 500, expected + 700, 500 * sizeof *answer);
    assert_true(steps(d, expected, N, answer, 1000) <= 250); /* of a cycle of 98 steps each way */
    d->ops->destroy(d);
    free(expected);
}

static void says_nothing_where_nothing_agrees(void **state)
{
    (void)state;
    uint32_t expected[300], answer[300], out[DRAFT_MAX], n_drafts = 0;
    struct drafter *d = make();
    for (uint32_t i = 0; i < 300; i++) {
        expected[i] = i;
        answer[i] = 1000 + i % 7;
    }
    struct draft_text t = text_of(answer, 10, 10);
    t.expected = expected;
    t.n_expected = 300;
    d->ops->begin(d, 0, &t);
    assert_int_equal(ask_one(d, 0, &t, 5, out), 5); /* before the first token: its beginning */
    assert_memory_equal(out, expected, sizeof(uint32_t[5]));
    while (++t.n_tokens < 300)
        n_drafts += ask_one(d, 0, &t, 5, out);
    assert_int_equal(n_drafts, 8 * 5);
    d->ops->end(d, 0, &t, true);

    t.n_expected = 0;
    t.expected = NULL;
    d->ops->begin(d, 0, &t);
    assert_int_equal(ask_one(d, 0, &t, 5, out), 0);
    d->ops->destroy(d);
}

/* Begun in the middle of an answer, as after a preemption; proposals end at the text's end. */
static void ends_and_begins_again(void **state)
{
    (void)state;
    uint32_t *expected = malloc(20 * sizeof *expected), answer[40], out[DRAFT_MAX];
    struct drafter *d = make();
    assert_non_null(expected);
    for (uint32_t i = 0; i < 20; i++)
        expected[i] = answer[i + 3] = i + 1;
    for (uint32_t i = 23; i < 40; i++)
        answer[i] = 20;
    struct draft_text t = text_of(answer, 3, 3 + 12);
    t.expected = expected;
    t.n_expected = 20;
    for (uint32_t round = 0; round < 2; round++) {
        d->ops->begin(d, 0, &t);
        assert_int_equal(ask_one(d, 0, &t, 30, out), 8);
        assert_memory_equal(out, expected + 12, sizeof(uint32_t[8]));
        d->ops->end(d, 0, &t, false);
    }
    d->ops->begin(d, 1, &t);
    for (t.n_tokens = 23; t.n_tokens <= 40; t.n_tokens++)
        assert_int_equal(ask_one(d, 1, &t, 30, out), 0);
    d->ops->destroy(d);
    free(expected);
}

/* The expected text arrives late: it is caught up piece by piece, without proposals. */
static void catches_up(void **state)
{
    (void)state;
    enum { N = 2500 };
    uint32_t *tokens = malloc(N * sizeof *tokens), out[DRAFT_MAX];
    uint64_t random = 3;
    struct drafter *d = make();
    assert_non_null(tokens);
    for (uint32_t i = 0; i < N; i++)
        tokens[i] = draw(&random, 300);
    struct draft_text t = text_of(tokens, 0, 2400);
    d->ops->begin(d, 0, &t);
    assert_int_equal(ask_one(d, 0, &t, 5, out), 0);
    t.expected = tokens;
    t.n_expected = N;
    assert_int_equal(ask_one(d, 0, &t, 5, out), 0);
    t.n_tokens++;
    assert_int_equal(ask_one(d, 0, &t, 5, out), 0);
    assert_int_equal(ask_one(d, 0, &t, 5, out), 5);
    assert_memory_equal(out, tokens + 2401, sizeof(uint32_t[5]));
    d->ops->destroy(d);
    free(tokens);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goes_on_after_edits),
        cmocka_unit_test(finds_far_places),
        cmocka_unit_test(says_nothing_where_nothing_agrees),
        cmocka_unit_test(ends_and_begins_again),
        cmocka_unit_test(catches_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
