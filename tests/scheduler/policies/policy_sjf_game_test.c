/* Whether a tenant of `sjf` gains from requests that it sends only to be ranked better: a seeded search over strategies.
 *
 * A sender and an honest tenant have the same load, together more than can be served. A strategy adds requests: at a rate
 * (times the sender's own), with lengths of prompts and answers, with max_tokens, cancelled after a time or not, from the
 * sender's key or spread over up to three keys. The means are those of the other requests, over SEEDS seeds, against the
 * same traffic without the strategy, and against a third tenant that sends the same.
 */
#include "tests/scheduler/policy_jobs.h"

#include <stdlib.h>

#define N_STRATEGIES 240
#define SEEDS 3
#define N_OWN 150 /* requests of each of the two */
#define MOST_ADDED (MAX_JOBS - 2 * N_OWN)
#define GAP_US 9500 /* mean gap of each: an overload of a fifth */
#define LONGEST 1100

enum { SENDER, HONEST, KEYS /* of the sender, or of the third tenant */, THIRD = KEYS + 2, N_TENANTS = THIRD + 3 };

struct strategy {
    uint32_t rate_percent; /* of the sender's own rate; 0: none */
    uint32_t n_prompt, length, max_tokens;
    uint32_t cancel_after_us; /* 0: never */
    uint32_t n_keys; /* 1: the sender's own */
};

static struct strategy draw_strategy(struct fake_random *random)
{
    const uint32_t lengths[] = {1, 2, 8, 30, 100, 400}, prompts[] = {1, 16, 16, 64, 200};
    struct strategy g = {.rate_percent = 5u << fake_below(random, 8),
                         .n_prompt = prompts[fake_below(random, 5)],
                         .length = lengths[fake_below(random, 6)],
                         .n_keys = 1 + fake_below(random, 3)};
    g.max_tokens = fake_chance(random, 50) ? g.length : LONGEST;
    if (fake_chance(random, 40))
        g.cancel_after_us = 1000u << fake_below(random, 10);
    return g;
}

/* The same traffic of both tenants for a seed, whatever the strategy. */
static uint32_t add_traffic(struct job *jobs, uint32_t n, uint32_t tenant, uint64_t seed)
{
    struct fake_random random = {seed * 1000 + tenant};
    uint64_t at = 1;
    for (uint32_t i = 0; i < N_OWN; i++) {
        uint32_t doublings = 0;
        while (doublings < 8 && fake_chance(&random, 50))
            doublings++;
        at += fake_below(&random, 2 * GAP_US);
        jobs[n].length = (8u << doublings) / 2 + fake_below(&random, 8u << doublings);
        jobs[n].length = jobs[n].length < LONGEST ? jobs[n].length : LONGEST;
        jobs[n++].request = (struct sched_request){
            .n_prompt = 16, .max_tokens = LONGEST, .tenant = tenant, .arrival_us = at};
    }
    return n;
}

static uint32_t add_strategy(struct job *jobs, uint32_t n, const struct strategy *g, bool third, uint64_t seed)
{
    struct fake_random random = {seed * 1000 + 77};
    uint64_t at = 1, end = (uint64_t)N_OWN * GAP_US;
    while (g->rate_percent > 0 && n < MAX_JOBS) {
        uint32_t key = fake_below(&random, g->n_keys);
        at += fake_below(&random, 2 * GAP_US * 100 / g->rate_percent);
        if (at > end)
            break;
        jobs[n].length = g->length;
        jobs[n].cancel_us = g->cancel_after_us > 0 ? at + g->cancel_after_us : 0;
        jobs[n++].request = (struct sched_request){.n_prompt = g->n_prompt,
                                                   .max_tokens = g->max_tokens,
                                                   .tenant = third      ? THIRD + key
                                                             : key == 0 ? SENDER
                                                                        : KEYS + key - 1,
                                                   .arrival_us = at,
                                                   .priority = 1}; /* marks it; sjf does not read it */
    }
    return n;
}

static int by_arrival(const void *a, const void *b)
{
    uint64_t x = ((const struct job *)a)->request.arrival_us, y = ((const struct job *)b)->request.arrival_us;
    return x < y ? -1 : x > y;
}

struct means {
    double sender, honest;
};

static struct means play(const struct strategy *g, bool third, uint64_t seed)
{
    static struct job jobs[MAX_JOBS];
    struct job_run run = job_run_of("sjf");
    struct means means = {0};
    run.config.policy_options.n_tenants = N_TENANTS;
    memset(jobs, 0, sizeof jobs);
    uint32_t n = add_traffic(jobs, 0, SENDER, seed);
    n = add_traffic(jobs, n, HONEST, seed);
    n = add_strategy(jobs, n, g, third, seed);
    qsort(jobs, n, sizeof *jobs, by_arrival);
    run_jobs(&run, jobs, n);
    for (uint32_t i = 0; i < n; i++) {
        double latency = (double)(jobs[i].end_us - jobs[i].request.arrival_us) / N_OWN;
        if (jobs[i].request.priority == 0)
            *(jobs[i].request.tenant == SENDER ? &means.sender : &means.honest) += latency;
    }
    return means;
}

static struct means play_all(const struct strategy *g, bool third)
{
    struct means sum = {0};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct means m = play(g, third, seed);
        sum.sender += m.sender / SEEDS;
        sum.honest += m.honest / SEEDS;
    }
    return sum;
}

static void test_no_strategy_pays(void **state)
{
    (void)state;
    struct fake_random random = {1};
    struct means honest = play_all(&(struct strategy){0}, false);
    double best = 2, worst = 0;
    print_message("without: %.0f and %.0f ms\n", honest.sender / 1e3, honest.honest / 1e3);
    for (uint32_t i = 0; i < N_STRATEGIES; i++) {
        struct strategy g = draw_strategy(&random);
        struct means own = play_all(&g, false), third = play_all(&g, true);
        double gain = own.sender / honest.sender, harm = own.honest / third.honest;
        print_message("%3u: rate %3u %%, prompt %3u, length %3u of %4u, cancelled after %3u ms, %u keys: "
                      "sender %.2f x, honest %.2f x\n",
                      i, g.rate_percent, g.n_prompt, g.length, g.max_tokens, g.cancel_after_us / 1000, g.n_keys, gain,
                      harm);
        best = gain < best ? gain : best;
        worst = harm > worst ? harm : worst;
    }
    print_message("the sender's other requests: %.3f x at best; the honest tenant's: %.3f x at worst\n", best, worst);
    assert_true(best >= 0.95);
    assert_true(worst <= 1.1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_strategy_pays)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
