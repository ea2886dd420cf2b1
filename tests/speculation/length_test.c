/* The number of drafts, for servers whose step cost is a formula and drafts that are accepted at random. */
#include "speculation/length.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define N_MAX 64u
#define OFFERED 16u

static const struct length_config config = {.first = {0.5f, 0.5f}, .next = {0.8f, 0.8f}};

struct server {
    struct lengths *lengths;
    struct draft_length seqs[N_MAX];
    double truth[N_MAX];               /* acceptance rate of each draft after accepted ones */
    double fixed_us, token_us, kink_us; /* time of a step: fixed, per token, and per token beyond 16 */
    uint32_t n;
    uint64_t random;
    uint32_t last[N_MAX]; /* lengths of the last step */
    uint64_t n_drafts, n_tokens, n_asked;
    double us;
};

static double coin(struct server *s)
{
    s->random = s->random * 6364136223846793005u + 1442695040888963407u;
    return (double)(s->random >> 11) / (double)(1ull << 53);
}

static double cost(const struct server *s, uint32_t n)
{
    return s->fixed_us + s->token_us * n + (n > 16 ? s->kink_us * (n - 16) : 0);
}

static void step(struct server *s)
{
    struct length_item items[N_MAX];
    struct length_reason reason;
    uint32_t who[N_MAX], n = 0, width = s->n;
    memset(s->last, 0, sizeof s->last);
    for (uint32_t i = 0; i < s->n; i++) {
        if (!length_is_due(&s->seqs[i], s->n))
            continue;
        items[n] = (struct length_item){.q = &s->seqs[i], .source = 1, .n_offered = OFFERED};
        who[n++] = i;
    }
    lengths_choose(s->lengths, items, n, s->n, 256, 0, &reason);
    s->n_asked += n;
    for (uint32_t i = 0; i < n; i++) {
        assert_true(items[i].n <= OFFERED);
        s->last[who[i]] = items[i].n;
        width += items[i].n;
    }
    assert_int_equal(reason.n_chosen, width - s->n);
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t right = 0;
        while (right < s->last[i] && coin(s) < s->truth[i])
            right++;
        lengths_verified(s->lengths, &s->seqs[i], 1, s->last[i], right);
        s->n_drafts += s->last[i];
        s->n_tokens += 1 + right;
    }
    lengths_timed(s->lengths, width, cost(s, width));
    s->us += cost(s, width);
}

static void begin(struct server *s, uint32_t n, double truth, double fixed_us, double token_us)
{
    *s = (struct server){.n = n, .fixed_us = fixed_us, .token_us = token_us, .random = 7};
    for (uint32_t i = 0; i < n; i++)
        s->truth[i] = truth;
    assert_int_equal(lengths_create(&config, N_MAX, &s->lengths, NULL), QUIRE_OK);
}

static double rate(struct server *s, uint32_t n_steps)
{
    s->n_tokens = s->n_drafts = s->n_asked = 0;
    s->us = 0;
    for (uint32_t i = 0; i < n_steps; i++)
        step(s);
    return (double)s->n_tokens / s->us;
}

static void a_right_drafter_gets_all_it_has(void **state)
{
    (void)state;
    struct server s;
    begin(&s, 1, 1, 1000, 20);
    for (int i = 0; i < 12; i++)
        step(&s);
    assert_int_equal(s.last[0], OFFERED);
    assert_true(rate(&s, 100) > 10 * (1 / cost(&s, 1)));
    lengths_destroy(s.lengths);
}

/* Whatever steps cost, even if drafts are free. */
static void a_liar_is_silent_after_32_rows(void **state)
{
    (void)state;
    for (double token_us = 0; token_us <= 500; token_us = token_us * 5 + 1) {
        struct server s;
        uint32_t n_rows = 0;
        begin(&s, 1, 0, 1000, token_us);
        for (int i = 0; i < 2000; i++) {
            step(&s);
            n_rows += s.last[0] > 0 && s.seqs[0].pause == 0;
        }
        assert_true(n_rows <= 32);
        assert_int_equal(s.seqs[0].pause, 256);
        s.n_drafts = s.n_asked = 0;
        for (int i = 0; i < 5140; i++)
            step(&s);
        assert_int_equal(s.n_drafts, 20); /* one in 257: it tries */
        assert_int_equal(s.n_asked, 20);
        lengths_destroy(s.lengths);
    }
}

/* Text that becomes repetitive is found by the next try, and its drafts soon are long. */
static void a_pause_ends(void **state)
{
    (void)state;
    struct server s;
    int n = 0;
    begin(&s, 1, 0, 1000, 20);
    for (int i = 0; i < 2000; i++)
        step(&s);
    s.truth[0] = 1;
    while (s.last[0] < OFFERED && n < 300) {
        step(&s);
        n++;
    }
    assert_true(n < 257 + 12);
    assert_int_equal(s.seqs[0].pause, 0);
    lengths_destroy(s.lengths);
}

/* A step's time is proportional to its tokens: an uncertain draft never pays off, a certain one gains nothing. */
static void a_costly_step_has_none(void **state)
{
    (void)state;
    struct server s;
    begin(&s, 64, 0.8, 0, 100);
    rate(&s, 3000);
    double gain = rate(&s, 2000) / (1 / 100.0);
    assert_true(gain > 0.99);
    assert_int_equal(s.n_drafts, 0); /* no try either: the value of drafts is known */
    assert_true(s.n_asked < 2000 * 64 / 50);

    s.fixed_us = 20000; /* the load falls: steps are cheap again */
    s.n = 4;
    s.token_us = 10;
    rate(&s, 200);
    assert_true(rate(&s, 100) > 3 * 4 / cost(&s, 4));
    lengths_destroy(s.lengths);
}

/* Drafts up to the point where steps become expensive, although the cost is flat before and after. */
static void a_kink_is_found(void **state)
{
    (void)state;
    struct server s;
    begin(&s, 4, 0.9, 1000, 1);
    s.kink_us = 1000;
    rate(&s, 200);
    double with = rate(&s, 500);
    assert_in_range(s.n_drafts / 500, 8, 14);
    assert_true(with > 2 * 4 / cost(&s, 4));
    lengths_destroy(s.lengths);
}

/* Without knowing the acceptance or the cost of steps: at least 0.85 of the best fixed length in hindsight. */
static void nearly_the_best_fixed_length(void **state)
{
    (void)state;
    static const double truths[] = {0.3, 0.6, 0.9, 0.97}, tokens[] = {5, 50, 200};
    for (size_t t = 0; t < 4; t++)
        for (size_t u = 0; u < 3; u++)
            for (uint32_t n = 1; n <= 16; n *= 4) {
                struct server s;
                double best = 0;
                begin(&s, n, truths[t], 1000, tokens[u]);
                for (uint32_t k = 0; k <= OFFERED; k++) {
                    double each = 1, chance = 1;
                    for (uint32_t i = 0; i < k; i++)
                        each += chance *= truths[t];
                    double fixed = n * each / cost(&s, n * (1 + k));
                    best = fixed > best ? fixed : best;
                }
                rate(&s, 300);
                double got = rate(&s, 3000);
                if (got < 0.85 * best)
                    fail_msg("%u rows, drafts right by %.2f, %.0f us a token: %.2f of the best fixed length", n,
                             truths[t], tokens[u], got / best);
                lengths_destroy(s.lengths);
            }
}

/* Equal odds, equal lengths; a higher acceptance gets more drafts. */
static void fair_by_worth(void **state)
{
    (void)state;
    struct server s;
    begin(&s, 8, 1, 1000, 30);
    s.truth[7] = 0.2;
    rate(&s, 100);
    uint32_t least = OFFERED, most = 0;
    for (uint32_t i = 0; i < 7; i++) {
        least = s.last[i] < least ? s.last[i] : least;
        most = s.last[i] > most ? s.last[i] : most;
    }
    assert_true(most - least <= 1 && least > 2 * s.last[7]);
    lengths_destroy(s.lengths);
}

static void space_is_kept(void **state)
{
    (void)state;
    struct lengths *l;
    struct draft_length q[4] = {0};
    struct length_item items[4];
    struct length_reason reason;
    assert_int_equal(lengths_create(&config, 4, &l, NULL), QUIRE_OK);
    for (uint32_t room = 0; room < 40; room++) {
        memset(q, 0, sizeof q);
        for (uint32_t i = 0; i < 4; i++)
            items[i] = (struct length_item){.q = &q[i], .source = i % 2, .n_offered = i * 3};
        lengths_timed(l, 4 + room, 1000);
        lengths_choose(l, items, 4, 4, room, 0, &reason);
        uint32_t n = 0;
        for (uint32_t i = 0; i < 4; i++) {
            assert_true(items[i].n <= items[i].n_offered);
            n += items[i].n;
        }
        assert_true(n == reason.n_chosen && n <= room && reason.n_offered == 18);
        assert_int_equal(q[0].wait, 0); /* it had none, and was not denied any */
    }
    lengths_destroy(l);
}

/* No sequence has drafts: about 8 calls per step, however many are running; a few sequences are called always. */
static void vain_questions_are_few(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= N_MAX; n *= 2) {
        struct draft_length q[N_MAX] = {{.n_empty = 0}};
        uint32_t n_asked = 0;
        for (uint32_t step = 0; step < 1100; step++)
            for (uint32_t i = 0; i < n; i++)
                if (length_is_due(&q[i], n)) {
                    length_had_none(&q[i], n);
                    n_asked += step >= 100;
                }
        assert_in_range(n_asked / 1000, n < 8 ? n : 4, 8);
        assert_true(length_is_idle(&q[0]));
    }
}

/* With occasional delays, or a slow drift: learned times follow, and no wide step is avoided forever. */
static void times_are_forgotten(void **state)
{
    (void)state;
    struct lengths *l;
    assert_int_equal(lengths_create(&config, 4, &l, NULL), QUIRE_OK);
    assert_true(lengths_us(l, 5) == 0);
    for (int i = 0; i < 100; i++)
        lengths_timed(l, 1, i % 10 == 9 ? 50000 : 1000);
    assert_true(lengths_us(l, 1) < 1400);
    lengths_timed(l, 9, 90000);
    assert_true(lengths_us(l, 9) > 80000);
    for (int i = 0; i < 600; i++)
        lengths_timed(l, 1, 1000);
    assert_true(lengths_us(l, 9) < 2000);
    for (int i = 0; i < 300; i++)
        lengths_timed(l, 1, 3000);
    assert_true(lengths_us(l, 1) > 2900 && lengths_us(l, 4) >= lengths_us(l, 1));
    lengths_destroy(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_right_drafter_gets_all_it_has),
        cmocka_unit_test(a_liar_is_silent_after_32_rows),
        cmocka_unit_test(a_pause_ends),
        cmocka_unit_test(a_costly_step_has_none),
        cmocka_unit_test(a_kink_is_found),
        cmocka_unit_test(nearly_the_best_fixed_length),
        cmocka_unit_test(fair_by_worth),
        cmocka_unit_test(space_is_kept),
        cmocka_unit_test(times_are_forgotten),
        cmocka_unit_test(vain_questions_are_few),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
