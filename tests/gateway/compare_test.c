/* The test of experiments: false alarms and power over simulated experiments with five looks each. The formulas are
 * compared with a second implementation in tests/clients/gateway/test_experiments.py. */
#include "server/gateway/experiment/compare.h"
#include "server/gateway/experiment/trial_bytes.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int n_experiments = 100; /* the wide test: 1,000 */
#define N_LOOKS 5
#define ALPHA 0.05

/* ---- random numbers ------------------------------------------------------------------------- */

static uint64_t state_of_random = 1;

static uint64_t random_u64(void) /* splitmix64 */
{
    uint64_t z = (state_of_random += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static double uniform(void)
{
    return ((double)(random_u64() >> 11) + 0.5) * 0x1p-53;
}

static double normal(void)
{
    return sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform());
}

/* ---- an experiment -------------------------------------------------------------------------- */

#define MAX_USERS 2000

struct world {
    const char *name;
    uint32_t n_requests, n_users; /* n_users 0: each request is a unit of its own */
    double user_effect; /* standard deviation of ln(latency) between users */
    double heavy; /* users' shares of the requests: rank^-heavy */
    double sigma; /* of ln(latency) between requests */
    double pareto; /* tail index of latencies; 0: lognormal */
    double p_error;
    uint32_t weight; /* of the control; the other arm has 1 */
    double effect, error_effect; /* of the other arm: factor of latency; added to p_error */
};

static double latency(const struct world *w, double of_user)
{
    const double base = w->pareto > 0 ? pow(uniform(), -1 / w->pareto) : exp(w->sigma * normal());
    return 1e6 * base * of_user;
}

struct user {
    uint32_t arm, bucket;
    double effect, until; /* until: the sum of shares up to this user */
};

static void make_users(const struct world *w, struct user *users)
{
    double sum = 0;
    const struct gateway_arm arms[] = {{.name = "a", .weight = w->weight}, {.name = "b", .weight = 1}};
    const struct gateway_experiment e = {.arms = arms, .n_arms = 2};
    for (uint32_t i = 0; i < w->n_users; i++) {
        char unit[24];
        const int n = snprintf(unit, sizeof unit, "%llx", (unsigned long long)random_u64());
        sum += pow(i + 1, -w->heavy);
        users[i] = (struct user){assign_arm(&e, "x", unit, (size_t)n), assign_bucket("x", unit, (size_t)n),
                                 exp(w->user_effect * normal()), sum};
    }
}

static struct user choose_user(const struct world *w, const struct user *users)
{
    if (w->n_users == 0)
        return (struct user){uniform() * (w->weight + 1) < w->weight ? 0 : 1, (uint32_t)(random_u64() % 256), 1, 0};
    const double at = uniform() * users[w->n_users - 1].until;
    uint32_t low = 0, high = w->n_users - 1;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (users[middle].until < at)
            low = middle + 1;
        else
            high = middle;
    }
    return users[low];
}

static void one_request(const struct world *w, const struct user *users, struct trial *t)
{
    struct trial_request r;
    const struct user u = choose_user(w, users);
    const double factor = u.arm ? 1 + w->effect : 1, p = w->p_error + (u.arm ? w->error_effect : 0);
    const struct trial_outcome o = {.status = uniform() < p ? 502 : 200,
                                    .total_us = (uint64_t)(latency(w, u.effect) * factor),
                                    .ttft_us = (uint64_t)latency(w, u.effect),
                                    .output = (uint64_t)(100 * latency(w, u.effect) / 1e6),
                                    .cost = (uint64_t)(1e6 * u.effect * (1 + uniform())),
                                    .from_cache = uniform() < 0.2 * u.effect};
    assert_true(trial_read(&o, u.bucket, &r));
    trial_add(t, u.arm, &r, 1);
}

struct alarms {
    bool latency, errors, any, naive;
};

/* A test that ignores users and looks: |D| > 1.96 standard errors of requests. */
static bool is_naive_alarm(const struct compare_result *r)
{
    const double v = r->control.deviation * r->control.deviation / r->control.n +
                     r->arm.deviation * r->arm.deviation / r->arm.n;
    return fabs(r->arm.mean - r->control.mean) > 1.96 * sqrt(v);
}

static void look(const struct trial *t, struct alarms *found)
{
    for (int m = 0; m < GATEWAY_N_METRICS; m++) {
        struct compare_result r;
        compare_sums(&t->arms[0].metrics[m], &t->arms[1].metrics[m], ALPHA, &r);
        const bool alarm = r.p <= ALPHA;
        assert_true(alarm == (r.is_valid && (r.low > 0 || r.high < 0))); /* p and the interval agree */
        found->latency |= m == GATEWAY_LATENCY && alarm;
        found->errors |= m == GATEWAY_ERRORS && alarm;
        found->any |= r.p * GATEWAY_N_METRICS <= ALPHA;
        found->naive |= m == GATEWAY_LATENCY && is_naive_alarm(&r);
    }
}

static struct alarms run(const struct world *w)
{
    static struct user users[MAX_USERS];
    struct alarms found = {0};
    struct trial *t = trial_of_arms(2);
    assert_non_null(t);
    make_users(w, users);
    for (uint32_t i = 1; i <= w->n_requests; i++) {
        one_request(w, users, t);
        if (i % (w->n_requests / N_LOOKS) == 0)
            look(t, &found);
    }
    trial_release(t);
    return found;
}

struct counts {
    int latency, errors, any, naive;
};

static struct counts simulate(const struct world *w, int n)
{
    struct counts c = {0};
    state_of_random = 1;
    for (int i = 0; i < n; i++) {
        const struct alarms a = run(w);
        c.latency += a.latency;
        c.errors += a.errors;
        c.any += a.any;
        c.naive += a.naive;
    }
    printf("%-44s latency %5.1f %%, errors %5.1f %%, any metric %5.1f %%; naive test of latency %5.1f %%\n", w->name,
           100.0 * c.latency / n, 100.0 * c.errors / n, 100.0 * c.any / n, 100.0 * c.naive / n);
    return c;
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void false_alarms(void **state)
{
    static const struct world worlds[] = {
        {.name = "independent requests", .n_requests = 2000, .sigma = 0.5, .p_error = 0.02, .weight = 1},
        {.name = "40 users, correlated",
         .n_requests = 2000,
         .n_users = 40,
         .user_effect = 0.5,
         .sigma = 0.5,
         .p_error = 0.02,
         .weight = 1},
        {.name = "200 users, correlated, some busy",
         .n_requests = 2000,
         .n_users = 200,
         .user_effect = 0.5,
         .heavy = 0.8,
         .sigma = 0.5,
         .p_error = 0.02,
         .weight = 1},
        {.name = "1000 users, heavy tails (lognormal 2)",
         .n_requests = 3000,
         .n_users = 1000,
         .user_effect = 0.5,
         .heavy = 0.5,
         .sigma = 2,
         .p_error = 0.01,
         .weight = 1},
        {.name = "heavy tails (Pareto 1.8: no variance)",
         .n_requests = 3000,
         .n_users = 1000,
         .user_effect = 0.3,
         .pareto = 1.8,
         .p_error = 0.005,
         .weight = 1},
        {.name = "1 of 10 requests, rare errors, heavy tails",
         .n_requests = 5000,
         .n_users = 2000,
         .user_effect = 0.5,
         .sigma = 1.5,
         .p_error = 0.002,
         .weight = 9},
    };
    (void)state;
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        const struct counts c = simulate(&worlds[i], n_experiments);
        assert_in_range(c.latency, 0, ALPHA * n_experiments);
        assert_in_range(c.errors, 0, ALPHA * n_experiments);
        assert_in_range(c.any, 0, ALPHA * n_experiments);
        if (worlds[i].n_users > 0 && worlds[i].user_effect >= 0.5 &&
            worlds[i].sigma <= 0.5) /* what the method is for */
            assert_true(c.naive > 4 * ALPHA * n_experiments);
    }
}

static void real_differences(void **state)
{
    static const struct world worlds[] = {
        {.name = "independent requests, 10 % slower",
         .n_requests = 4000,
         .sigma = 0.5,
         .p_error = 0.02,
         .weight = 1,
         .effect = 0.1},
        {.name = "1000 users, 20 % slower",
         .n_requests = 10000,
         .n_users = 1000,
         .user_effect = 0.3,
         .sigma = 0.5,
         .p_error = 0.02,
         .weight = 1,
         .effect = 0.2},
        {.name = "errors 2 % against 6 %",
         .n_requests = 4000,
         .sigma = 0.5,
         .p_error = 0.02,
         .weight = 1,
         .error_effect = 0.04},
    };
    (void)state;
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        const struct counts c = simulate(&worlds[i], n_experiments / 2);
        assert_true((worlds[i].effect > 0 ? c.latency : c.errors) >= 0.8 * (n_experiments / 2));
    }
}

static void too_few(void **state)
{
    static const struct world few = {.name = "150 requests", .n_requests = 150, .sigma = 0.5, .weight = 1};
    static const struct world one_user = {.name = "8 users, one of them busy",
                                          .n_requests = 3000,
                                          .n_users = 8,
                                          .heavy = 3,
                                          .user_effect = 1,
                                          .sigma = 0.1,
                                          .weight = 1};
    (void)state;
    assert_int_equal(simulate(&few, 50).any, 0);
    assert_int_equal(simulate(&one_user, 50).any, 0);
}

/* What was written is read; anything else is refused, and changes nothing. */
static void bytes(void **state)
{
    static const struct world w = {.name = "", .n_requests = 500, .sigma = 0.5, .weight = 1};
    struct trial *t = trial_of_arms(2), *other = trial_of_arms(2), *three = trial_of_arms(3);
    struct buffer o = {0}, again = {0};
    (void)state;
    for (uint32_t i = 0; i < w.n_requests; i++)
        one_request(&w, NULL, t);
    t->arms[1].metrics[GATEWAY_COST].squares = ~(trial_u128)7;
    trial_to_bytes(t, &o);
    assert_true(trial_from_bytes(other, o.data, o.n));
    trial_to_bytes(other, &again);
    assert_true(again.n == o.n && memcmp(again.data, o.data, o.n) == 0);
    assert_true(other->since_s == 1 && other->arms[1].metrics[GATEWAY_COST].squares == ~(trial_u128)7);
    assert_false(trial_from_bytes(three, o.data, o.n));
    assert_false(trial_from_bytes(other, o.data, o.n - 1));
    assert_false(trial_from_bytes(other, o.data, 0));
    for (size_t at = 0; at < 600; at++) { /* the head, and the numbers of the first metrics */
        o.data[at] ^= 0x55;
        const bool taken = trial_from_bytes(other, o.data, o.n);
        const bool is_free = at >= 24 && (at < 32 || (at >= 40 && at < 48) || (at >= 56 && at < 80));
        const bool is_sum_of_bucket = at >= 80 && (at - 80) % 16 >= 8;
        assert_true(!taken || is_free || is_sum_of_bucket); /* since, n_requests, sums: any number */
        o.data[at] ^= 0x55;
    }
    strcpy(other->run, "0123456789abcdef");
    assert_false(trial_from_bytes(other, o.data, o.n));
    buffer_free(&o);
    buffer_free(&again);
    trial_release(t);
    trial_release(other);
    trial_release(three);
}

/* Counted by hand. */
static void sums(void **state)
{
    struct trial *t = trial_of_arms(2);
    struct trial_request r;
    struct trial_outcome o = {.status = 200, .total_us = (uint64_t)1 << 40, .cost = 7, .output = 3, .from_cache = true};
    char squares[TRIAL_SQUARES_BYTES];
    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_true(trial_read(&o, 5, &r));
        trial_add(t, 1, &r, 9 + i);
    }
    o.status = 404;
    assert_false(trial_read(&o, 5, &r));
    o.status = 429;
    assert_true(trial_read(&o, 255, &r) && r.values[GATEWAY_ERRORS] == 1 && !r.has[GATEWAY_COST]);
    trial_add(t, 1, &r, 20);
    o.status = 0;
    assert_true(trial_read(&o, 255, &r) && r.values[GATEWAY_CANCELLED] == 1 && r.values[GATEWAY_ERRORS] == 0);
    trial_add(t, 0, &r, 20);
    const struct trial_sums *m = t->arms[1].metrics;
    assert_true(t->since_s == 9 && trial_requests(t) == 5 && t->arms[0].n_requests == 1);
    assert_true(m[GATEWAY_LATENCY].all.n == 3 && m[GATEWAY_LATENCY].all.sum == (uint64_t)3 << 40);
    trial_squares_text(m[GATEWAY_LATENCY].squares, squares); /* 3 × 2^80 */
    assert_string_equal(squares, "3626777458843887524118528");
    assert_true(m[GATEWAY_TTFT].all.n == 0 && m[GATEWAY_CACHE_HITS].all.sum == 3 &&
                m[GATEWAY_COST].buckets[5].sum == 21);
    assert_true(m[GATEWAY_ERRORS].all.n == 4 && m[GATEWAY_ERRORS].buckets[255].sum == 1);
    /* Sums stop at what JSON can carry. */
    o = (struct trial_outcome){.status = 200, .cost = UINT64_MAX};
    assert_true(trial_read(&o, 5, &r));
    for (int i = 0; i < 3; i++)
        trial_add(t, 1, &r, 30);
    assert_true(m[GATEWAY_COST].all.sum == INT64_MAX && m[GATEWAY_COST].squares == ~(trial_u128)0);
    trial_squares_text(0, squares);
    assert_string_equal(squares, "0");
    trial_release(t);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        n_experiments = atoi(argv[1]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums), cmocka_unit_test(bytes), cmocka_unit_test(too_few),
                                       cmocka_unit_test(real_differences), cmocka_unit_test(false_alarms)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
