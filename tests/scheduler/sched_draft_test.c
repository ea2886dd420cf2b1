/* Drafts: their planning, the state after partial acceptance, and equality with a run without drafts. */
#include "tests/scheduler/fake_model.h"
#include "tests/scheduler/sched_harness.h"

static const uint32_t guesses[] = {50, 51, 52, 53, 54, 55, 56, 57};

/* Commits the only row: this many drafts were accepted, and this token came after them. */
static bool accept(struct sched *s, const struct sched_plan *p, uint32_t n_accepted, uint32_t token)
{
    uint32_t tokens[16];
    bool finished;
    memcpy(tokens, guesses, n_accepted * sizeof tokens[0]);
    tokens[n_accepted] = token;
    struct sched_result r = {.seq = p->rows[0].seq, .n_accepted = n_accepted, .tokens = tokens};
    assert_int_equal(sched_commit(s, &r, 1, &finished, NULL, NULL), QUIRE_OK);
    assert_int_equal(sched_check(s, NULL), QUIRE_OK);
    return finished;
}

static void test_a_row_verifies_drafts(void **state)
{
    (void)state;
    struct sched_config c = small_config();
    struct sched *s = open_sched(&c);
    uint32_t n, a = submit(s, request_of(1, 0, 6, 20));
    assert_int_equal(sched_propose(s, a, guesses, 3), 0); /* it does not run */
    step(s);
    assert_int_equal(n_free(s), 62);
    assert_int_equal(sched_propose(s, a, guesses + 5, 1), 1); /* replaced by the next proposal */
    assert_int_equal(sched_propose(s, a, guesses, 5), 5);
    const struct sched_plan *p = plan(s);
    assert_row(p, 0, a, 6, 6, true);
    assert_int_equal(p->rows[0].n_draft, 5);
    assert_int_equal(p->rows[0].first_logit, 6);
    assert_int_equal(p->n_tokens, 6);
    assert_int_equal(p->n_logits, 6);
    const uint32_t *tokens = sched_tokens(s, a, &n);
    assert_int_equal(n, 12);
    assert_memory_equal(tokens + 7, guesses, 5 * sizeof guesses[0]);
    assert_int_equal(n_free(s), 61); /* positions 0 … 11 */
    accept(s, p, 1, 99);
    tokens = sched_tokens(s, a, &n);
    assert_int_equal(n, 9);
    assert_int_equal(tokens[7], 50);
    assert_int_equal(tokens[8], 99);
    assert_int_equal(n_free(s), 62); /* positions 0 … 7 are computed, one more is not */
    p = plan(s);
    assert_row(p, 0, a, 8, 1, true); /* no drafts are left over */
    assert_int_equal(p->rows[0].n_draft, 0);
    commit(s, p, 7);
    assert_int_equal(sched_account(s, a).n_recomputed, 0);
    sched_cancel(s, 1);
    close_sched(s);
}

/* A prompt's last chunk may verify, too; all are accepted, and the sequence is full. */
static void test_to_the_last_token(void **state)
{
    (void)state;
    struct sched_config c = small_config();
    struct sched *s = open_sched(&c);
    uint32_t a = submit(s, request_of(1, 0, 18, 5));
    plan(s);
    sched_commit(s, NULL, 0, NULL, NULL, NULL);
    assert_int_equal(sched_propose(s, a, guesses, 8), 4); /* none past max_tokens */
    const struct sched_plan *p = plan(s);
    assert_row(p, 0, a, 16, 6, true);
    assert_int_equal(p->rows[0].n_draft, 4);
    assert_int_equal(p->rows[0].first_logit, 17);
    assert_true(accept(s, p, 4, 99));
    close_sched(s);
}

static void test_wrong_acceptance(void **state)
{
    (void)state;
    struct sched_config c = small_config();
    struct sched *s = open_sched(&c);
    uint32_t a = submit(s, request_of(1, 0, 4, 20)), tokens[] = {50, 9, 51, 52};
    struct sched_result r = {.seq = a, .n_accepted = 2, .tokens = tokens};
    step(s);
    sched_propose(s, a, guesses, 2);
    const struct sched_plan *p = plan(s);
    assert_int_equal(sched_commit(s, &r, 1, NULL, NULL, NULL), QUIRE_INVALID); /* differs from the verified draft */
    r.n_accepted = 3;
    tokens[1] = 51;
    assert_int_equal(sched_commit(s, &r, 1, NULL, NULL, NULL), QUIRE_INVALID); /* more than proposed */
    accept(s, p, 2, 5);
    sched_cancel(s, 1);
    close_sched(s);
}

/* All other work comes first: the step's tokens, its logit rows and the blocks. */
static void test_drafts_take_what_is_left(void **state)
{
    (void)state;
    struct sched_config c = small_config();
    c.max_num_batched_tokens = 8;
    struct sched *s = open_sched(&c);
    uint32_t a = submit(s, request_of(1, 0, 4, 20));
    step(s);
    uint32_t b = submit(s, request_of(2, 100, 12, 20));
    sched_propose(s, a, guesses, 4);
    const struct sched_plan *p = step(s);
    assert_row(p, 0, a, 4, 1, true); /* the prompt took the rest */
    assert_row(p, 1, b, 0, 7, false);
    sched_propose(s, a, guesses, 4);
    p = step(s);
    assert_row(p, 0, a, 5, 3, true);
    assert_int_equal(p->rows[0].n_draft, 2);
    assert_row(p, 1, b, 7, 5, true);
    sched_cancel(s, 1);
    sched_cancel(s, 2);
    close_sched(s);

    c.max_num_batched_tokens = 16;
    c.max_logit_rows = 4;
    s = open_sched(&c);
    a = submit(s, request_of(1, 0, 4, 20));
    b = submit(s, request_of(2, 100, 4, 20));
    step(s);
    sched_propose(s, a, guesses, 4);
    sched_propose(s, b, guesses, 4);
    p = step(s);
    assert_int_equal(p->n_logits, 4);
    assert_int_equal(p->rows[0].n_draft, 2);
    assert_int_equal(p->rows[1].n_draft, 0);
    sched_cancel(s, 1);
    sched_cancel(s, 2);
    close_sched(s);

    c.max_logit_rows = 16;
    c.kv.groups[0].n_blocks = 5;
    s = open_sched(&c);
    a = submit(s, request_of(1, 0, 7, 10));
    b = submit(s, request_of(2, 100, 7, 4));
    step(s);
    sched_propose(s, a, guesses, 8);
    p = step(s);
    assert_row(p, 0, a, 7, 1, true); /* a fifth block is free, but each running sequence may need one */
    assert_int_equal(p->n_preempted, 0);
    sched_cancel(s, 1);
    sched_cancel(s, 2);
    close_sched(s);
}

/* With an overlap: only if no token of the sequence is being sampled, and nothing follows until the acceptance is
 * known. */
static void test_overlap(void **state)
{
    (void)state;
    struct sched_config c = small_config();
    c.overlap_depth = 1;
    struct sched *s = open_sched(&c);
    struct sched_request gated = request_of(1, 0, 4, 20);
    gated.host_gated = true;
    uint32_t n, a = submit(s, gated);
    const struct sched_plan *p = plan(s);
    assert_int_equal(sched_propose(s, a, guesses, 3), 0);
    commit(s, p, 9);
    assert_int_equal(sched_propose(s, a, guesses, 3), 3);
    p = plan(s);
    assert_row(p, 0, a, 4, 4, true);
    assert_int_equal(plan(s)->n_rows, 0);
    accept(s, p, 3, 8);
    sched_tokens(s, a, &n);
    assert_int_equal(n, 9);
    assert_row(plan(s), 0, a, 8, 1, true);
    sched_cancel(s, 1);
    sched_commit(s, NULL, 0, NULL, NULL, NULL);
    close_sched(s);
}

/* Drafts stop coming from the host and start again: the sequence runs with an overlap, or waits. */
static void test_gate(void **state)
{
    (void)state;
    struct sched_config c = small_config();
    c.overlap_depth = 1;
    struct sched *s = open_sched(&c);
    uint32_t a = submit(s, request_of(1, 0, 4, 20));
    const struct sched_plan *one = plan(s), *two = plan(s);
    assert_row(two, 0, a, 4, 1, true);
    assert_false(sched_gate(s, a, false)); /* no news */
    assert_true(sched_gate(s, a, true));
    commit(s, one, 9);
    assert_int_equal(plan(s)->n_rows, 0); /* the second token is being sampled */
    assert_int_equal(sched_propose(s, a, guesses, 3), 0);
    commit(s, two, 9);
    assert_int_equal(sched_propose(s, a, guesses, 3), 3);
    one = plan(s);
    assert_row(one, 0, a, 5, 4, true);
    assert_true(sched_gate(s, a, false));
    assert_int_equal(plan(s)->n_rows, 0); /* not before the acceptance is known */
    accept(s, one, 1, 8);
    one = plan(s);
    two = plan(s);
    assert_row(one, 0, a, 7, 1, true);
    assert_row(two, 0, a, 8, 1, true);
    sched_cancel(s, 1);
    assert_false(sched_gate(s, a, true)); /* it is over */
    sched_commit(s, NULL, 0, NULL, NULL, NULL);
    sched_commit(s, NULL, 0, NULL, NULL, NULL);
    close_sched(s);
}

/* A sampler that must see every token keeps its sequence gated, independent of drafts. */
static void test_gate_of_sampler(void **state)
{
    (void)state;
    struct sched_config c = small_config();
    c.overlap_depth = 1;
    struct sched *s = open_sched(&c);
    struct sched_request gated = request_of(1, 0, 4, 20);
    gated.host_gated = true;
    uint32_t a = submit(s, gated);
    assert_true(sched_gate(s, a, true));
    assert_true(sched_gate(s, a, false));
    plan(s);
    assert_int_equal(plan(s)->n_rows, 0);
    sched_cancel(s, 1);
    sched_commit(s, NULL, 0, NULL, NULL, NULL);
    close_sched(s);
}

/* ---- the same with and without ---- */

#define PROMPT 9
#define MOST 120

/* The scheduler's visible state at this number of known tokens, without a step in flight. */
struct snapshot {
    bool seen;
    uint32_t n_blocks[2], n_free[2], n_cached_free;
};

/* One sequence, alone, of a model whose tokens follow from those before. Drafts begin correctly and end wrong. */
static void run(uint64_t seed, bool drafts, uint32_t tokens[PROMPT + MOST],
                struct snapshot snapshots[PROMPT + MOST + 1])
{
    struct fake_random random = {.state = seed};
    struct sched_config c = small_config();
    c.kv.block_tokens = 4;
    c.kv.n_groups = 2;
    c.kv.groups[1].n_blocks = 40;
    c.kv.groups[1].window = 10;
    struct sched *s = open_sched(&c);
    uint32_t n, a = submit(s, request_of(1, 0, PROMPT, MOST));
    while (!sched_idle(s)) {
        const uint32_t *known = sched_tokens(s, a, &n);
        uint32_t guess[12], out[13], n_guess = 1 + fake_below(&random, 12), n_right = fake_below(&random, n_guess + 1);
        uint64_t prefix = fake_empty_prefix(0), at;
        for (uint32_t i = 0; i < n; i++)
            prefix = fake_extend_prefix(prefix, known[i]);
        at = prefix;
        for (uint32_t i = 0; i < n_guess; i++) {
            guess[i] = fake_next_token(at, 0) + (i >= n_right);
            at = fake_extend_prefix(at, guess[i]);
        }
        if (drafts && n > PROMPT)
            assert_true(sched_propose(s, a, guess, n_guess) > 0 || n + 1 == PROMPT + MOST);
        const struct sched_plan *p = plan(s);
        uint32_t n_out = 0;
        do {
            out[n_out] = fake_next_token(prefix, 0);
            prefix = fake_extend_prefix(prefix, out[n_out]);
            n_out++;
        } while (n_out <= p->rows[0].n_draft && out[n_out - 1] == guess[n_out - 1] && fake_chance(&random, 90));
        struct sched_result r = {.seq = a, .n_accepted = n_out - 1, .tokens = out};
        bool finished;
        assert_int_equal(sched_commit(s, &r, 1, &finished, NULL, NULL), QUIRE_OK);
        known = sched_tokens(s, a, &n);
        memcpy(tokens, known, n * sizeof *known);
        if (finished) {
            collect(s);
            break;
        }
        struct snapshot *shot = &snapshots[n];
        shot->seen = true;
        for (uint32_t g = 0; g < 2; g++) {
            sched_blocks(s, a, g, &shot->n_blocks[g]);
            shot->n_free[g] = sched_kv_usage(s, g).n_free;
        }
    }
    /* The blocks cached at the end are those named along the way. */
    snapshots[PROMPT + MOST] = (struct snapshot){.seen = true,
                                                 .n_free = {sched_kv_usage(s, 0).n_free, sched_kv_usage(s, 1).n_free},
                                                 .n_cached_free = sched_kv_usage(s, 0).n_cached_free};
    close_sched(s);
}

static void test_nothing_differs(void **state)
{
    (void)state;
    static uint32_t tokens[2][PROMPT + MOST];
    static struct snapshot plain[PROMPT + MOST + 1], drafted[PROMPT + MOST + 1];
    run(0, false, tokens[0], plain);
    for (uint64_t seed = 1; seed <= 50; seed++) {
        uint32_t n_seen = 0;
        memset(drafted, 0, sizeof drafted);
        run(seed, true, tokens[1], drafted);
        assert_memory_equal(tokens[0], tokens[1], sizeof tokens[0]);
        for (uint32_t i = 0; i <= PROMPT + MOST; i++) {
            n_seen += drafted[i].seen;
            if (!drafted[i].seen)
                continue;
            assert_int_equal(drafted[i].n_blocks[0], plain[i].n_blocks[0]);
            assert_int_equal(drafted[i].n_blocks[1], plain[i].n_blocks[1]);
            assert_int_equal(drafted[i].n_free[0], plain[i].n_free[0]);
            assert_int_equal(drafted[i].n_cached_free, plain[i].n_cached_free);
            /* Blocks behind a window are released when the next block is taken, which may be earlier or later. */
            assert_in_range(drafted[i].n_free[1], plain[i].n_free[1] - 3, plain[i].n_free[1] + 1);
        }
        assert_true(n_seen > 10 && n_seen < MOST - 10); /* fewer steps */
    }
    assert_int_equal(plain[PROMPT + MOST].n_cached_free, (PROMPT + MOST - 1) / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_row_verifies_drafts),
        cmocka_unit_test(test_to_the_last_token),
        cmocka_unit_test(test_wrong_acceptance),
        cmocka_unit_test(test_drafts_take_what_is_left),
        cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_gate),
        cmocka_unit_test(test_gate_of_sampler),
        cmocka_unit_test(test_nothing_differs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
