/* Random programs against the scheduler, checked by the oracle of fake_engine.h.
 *
 * sched_random_test [SEED [EVENTS]]
 *
 * The default is what the test suite runs; with a sample (tests/sample.h) it is an eighth of the events, from the
 * sample's seed on. A long run, with a new seed each time:
 *
 * sched_random_test $RANDOM 100000000
 *
 * Events come in episodes, each with a random configuration: block size, groups and windows, small pools, host tiers,
 * budgets, step targets, batching, preemption, depth, policy and its options. Time passes irregularly, and the policy
 * may change during the episode. Each episode ends with a drain: everything must finish, and every block must be freed.
 * A failure prints the seed of its episode; `sched_random_test SEED 1` runs that episode first. At the end faults are
 * planted in the driver itself; each must be found.
 */
#include "scheduler/scheduler.h"
#include "tests/sample.h"
#include "tests/scheduler/fake_engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EPISODE_EVENTS 1500
/* A minute and a half on one core; everything is checked after every event. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DEFAULT_EVENTS 250000
#else
#define DEFAULT_EVENTS 10000000
#endif
#define N_FAMILIES 3

struct totals {
    uint64_t events, steps, tokens, finished, cancelled, preempted, hit_tokens, refused, discarded;
    uint64_t given_up, loads, spills, pinned, policies, verified, accepted, background;
    uint64_t drafts_preempted, drafts_cancelled;
};

static uint32_t count_policies(void)
{
    uint32_t n = 0;
    while (sched_policy_at(n))
        n++;
    return n;
}

static struct sched_policy_options random_options(struct fake_random *random)
{
    static const uint64_t ageings[] = {1, 1000, 1000000, 1000000000};
    static struct sched_tenant tenants[FAKE_TENANTS]; /* until the scheduler has its copy */
    struct sched_policy_options o = {.n_tenants = FAKE_TENANTS, .ageing_us = ageings[fake_below(random, 4)]};
    uint32_t n_groups = fake_chance(random, 50) ? 1 + fake_below(random, 3) : 0;
    for (uint32_t i = 0; i < FAKE_TENANTS; i++)
        tenants[i] = (struct sched_tenant){.weight = 1 + fake_below(random, fake_chance(random, 50) ? 4 : 1000),
                                           .group = fake_below(random, n_groups + 1),
                                           .group_weight = 1 + n_groups};
    o.tenants = fake_chance(random, 50) ? tenants : NULL;
    for (uint32_t i = 0, some = fake_chance(random, 30); i < SCHED_MAX_CLASSES; i++) {
        o.class_weights[i] = some ? fake_below(random, 5) : 0;
        o.class_ttft_us[i] = fake_chance(random, 50) ? 1 + fake_below(random, 500000) : 0;
    }
    o.prompt_price = fake_below(random, 4);
    o.output_price = fake_below(random, 4);
    o.prefill_share = fake_chance(random, 50) ? fake_below(random, 101) : 0;
    return o;
}

/* Limits of some tenants, in addition to their shares. Valid until the next call. */
static const struct sched_tenant *random_limits(struct fake_random *random, const struct sched_tenant *shares,
                                                const struct sched_config *c)
{
    static struct sched_tenant tenants[FAKE_TENANTS];
    uint32_t longest = (c->max_model_len + c->kv.block_tokens - 1) / c->kv.block_tokens;
    if (fake_chance(random, 60))
        return shares;
    for (uint32_t i = 0; i < FAKE_TENANTS; i++) {
        tenants[i] = shares ? shares[i] : (struct sched_tenant){.weight = 1, .group_weight = 1};
        tenants[i].max_seats = fake_chance(random, 50) ? 1 + fake_below(random, 4) : 0;
        tenants[i].max_kv_blocks = fake_chance(random, 50) ? 1 + fake_below(random, 2 * longest) : 0;
    }
    return tenants;
}

/* Valid until the next call. */
static const struct sched_cost *random_cost(struct fake_random *random)
{
    static struct sched_cost cost;
    cost = (struct sched_cost){.n_points = 2, .row_us = fake_below(random, 20)};
    cost.points[0].n_tokens = 1;
    cost.points[0].us = 100 + fake_below(random, 1000);
    cost.points[1].n_tokens = 64;
    cost.points[1].us = cost.points[0].us + fake_below(random, 2000);
    cost.context_us = fake_below(random, 3);
    cost.pair_us = fake_below(random, 3) * 0.1;
    cost.block_copy_us = fake_below(random, 400);
    return &cost;
}

/* The shape of steps and batches. */
static void random_shape(struct fake_random *random, struct sched_config *c)
{
    if (fake_chance(random, 50))
        c->cost = random_cost(random);
    if (fake_chance(random, 50)) {
        c->step_target_us = 1 + fake_below(random, 4000);
        c->adaptive_budget = fake_chance(random, 50);
    }
    c->long_prefill_token_threshold = fake_chance(random, 25) ? 1 + fake_below(random, 40) : 0;
    c->max_partial_prefills = fake_chance(random, 25) ? 1 + fake_below(random, 3) : 0;
    c->batching = fake_chance(random, 70) ? SCHED_CONTINUOUS : (enum sched_batching)(1 + fake_below(random, 2));
    c->max_batch_size = fake_below(random, c->max_num_seqs + 3);
    c->max_wait_us = fake_below(random, 20000);
    for (uint32_t i = 0; i < SCHED_MAX_CLASSES && fake_chance(random, 60); i++) {
        c->class_batch_size[i] = fake_below(random, c->max_num_seqs + 3);
        c->class_wait_us[i] = fake_below(random, 20000);
    }
    c->adaptive_batches = fake_chance(random, 40);
    c->preemption = (enum sched_preemption)fake_below(random, 4);
    c->max_pinned_percent = fake_chance(random, 40) ? 10 + fake_below(random, 91) : 0;
}

static struct sched_config random_config(struct fake_random *random)
{
    static const uint32_t block_sizes[] = {1, 2, 3, 4, 5, 8, 16};
    struct sched_config c = {0};
    c.kv.block_tokens = block_sizes[fake_below(random, 7)];
    c.kv.n_groups = 1 + (fake_chance(random, 50) ? 1 + fake_below(random, 2) : 0);
    c.kv.prefix_caching = fake_chance(random, 80);
    c.max_model_len = 24 + fake_below(random, FAKE_MAX_LEN - 24);
    c.max_num_seqs = 1 + fake_below(random, FAKE_MAX_SEQS);
    c.max_num_batched_tokens = 1 + fake_below(random, fake_chance(random, 50) ? 12 : 120);
    c.max_queued_requests = 1 + fake_below(random, 30);
    c.max_queued_tokens = fake_chance(random, 30) ? 20 + fake_below(random, 300) : 0;
    c.overlap_depth = fake_below(random, 2);
    c.policy = sched_policy_at(fake_below(random, count_policies()));
    c.policy_options = random_options(random);
    c.policy_options.tenants = random_limits(random, c.policy_options.tenants, &c);
    c.kv.eviction = fake_chance(random, 30) ? KV_EVICT_REUSE : KV_EVICT_LRU;
    c.kv.n_tenants = FAKE_TENANTS;
    c.secret.bytes[0] = (uint8_t)fake_below(random, 256);
    bool starved = fake_chance(random, 50);
    if (starved) {
        c.max_num_seqs = 4 + fake_below(random, FAKE_MAX_SEQS - 3);
        c.max_num_batched_tokens += 8;
    }
    c.max_logit_rows = c.max_num_seqs + fake_below(random, 20);
    for (uint32_t g = 0; g < c.kv.n_groups; g++) {
        uint32_t longest = (c.max_model_len + c.kv.block_tokens - 1) / c.kv.block_tokens;
        c.kv.groups[g].window = g > 0 || fake_chance(random, 20) ? 1 + fake_below(random, 40) : 0;
        c.kv.groups[g].sinks = c.kv.groups[g].window && fake_chance(random, 40) ? fake_below(random, 20) : 0;
        /* From too small for the longest request to enough for several; half of the time too small. */
        c.kv.groups[g].n_blocks = 1 + longest / 2 + fake_below(random, starved ? longest : longest * 4);
        if (c.kv.groups[g].window && fake_chance(random, 40))
            c.kv.groups[g].n_blocks = fake_below(random, 6) +
                                      kv_blocks_needed(&c.kv, g, c.max_model_len,
                                                       c.max_num_batched_tokens * (c.overlap_depth + 1));
        if (c.kv.groups[g].n_blocks > FAKE_MAX_BLOCKS)
            c.kv.groups[g].n_blocks = FAKE_MAX_BLOCKS;
    }
    for (uint32_t g = 0, tier = c.kv.prefix_caching && fake_chance(random, 60); tier && g < c.kv.n_groups; g++)
        c.kv.groups[g].n_host_blocks = fake_below(random, FAKE_MAX_HOST_BLOCKS);
    random_shape(random, &c);
    return c;
}

static struct fake_request random_request(struct fake_random *random, const struct sched_config *c,
                                          const struct fake_request *history)
{
    struct fake_request r = {0};
    uint32_t most = c->max_model_len + (fake_chance(random, 5) ? 4 : 0);
    r.n_prompt = 1 + fake_below(random, fake_chance(random, 50) ? most : most / 3 + 1);
    r.max_tokens = fake_below(random, most - r.n_prompt + 1);
    if (fake_chance(random, 60)) { /* many that fit together for a while */
        r.n_prompt = 1 + r.n_prompt / 4;
        r.max_tokens = most / 4 + fake_below(random, most / 3);
    }
    if (r.n_prompt > FAKE_MAX_LEN - 1)
        r.n_prompt = FAKE_MAX_LEN - 1;
    if (r.n_prompt + r.max_tokens > FAKE_MAX_LEN)
        r.max_tokens = FAKE_MAX_LEN - r.n_prompt;
    if (fake_chance(random, 10))
        r.max_tokens = 0;
    r.n = fake_chance(random, 25) ? 1 + fake_below(random, FAKE_MAX_CHOICES) : 1;
    r.tenant = fake_chance(random, 40) ? fake_below(random, FAKE_TENANTS) : 0;
    r.class_index = fake_below(random, SCHED_MAX_CLASSES);
    r.background = fake_chance(random, 10);
    r.host_gated = fake_chance(random, c->overlap_depth > 0 ? 30 : 8);
    r.vector = fake_chance(random, 5);
    r.deadline_us = fake_chance(random, 25) ? 1 + fake_below(random, 100000) : 0;
    r.expected_tokens = fake_chance(random, 30) ? fake_below(random, 200) : 0;
    r.adapter = fake_below(random, 3);
    r.priority = (int32_t)fake_below(random, 5) - 2;
    r.stop_every = fake_chance(random, 40) ? 5 + fake_below(random, 80) : 0;
    r.prompt_logprobs = fake_chance(random, 12);
    r.no_prefix_hits = fake_chance(random, 8);
    /* A prompt is a shared beginning and its own tail. */
    uint32_t family = fake_below(random, N_FAMILIES);
    uint32_t shared = fake_chance(random, 75) ? fake_below(random, r.n_prompt + 1) : 0;
    if (fake_chance(random, 40))
        shared = r.n_prompt - fake_below(random, r.n_prompt < 6 ? r.n_prompt : 6);
    for (uint32_t i = 0; i < r.n_prompt; i++)
        r.prompt[i] = i < shared ? (family * 1000 + i * 7) % 997 : fake_below(random, 1000);
    if (fake_chance(random, 20)) {
        r.tenant = history->tenant;
        shared = history->n_prompt < r.n_prompt ? history->n_prompt : r.n_prompt;
        memcpy(r.prompt, history->prompt, shared * sizeof r.prompt[0]);
    }
    /* With pins, requests have one choice, so that hits can be attributed. */
    if (c->max_pinned_percent > 0)
        r.n = 1;
    if (c->max_pinned_percent > 0 && fake_chance(random, 15)) {
        r.pin_us = 1 + fake_below(random, 100000);
        r.max_tokens = fake_chance(random, 50) ? 0 : r.max_tokens;
    }
    if (fake_chance(random, 30)) /* useless without a share */
        r.keep_us = 1 + fake_below(random, 1000000);
    return r;
}

static uint32_t random_live(struct fake_engine *e, struct fake_random *random)
{
    uint32_t start = fake_below(random, FAKE_MAX_NAMES);
    for (uint32_t i = 0; i < FAKE_MAX_NAMES; i++)
        if (e->seqs[(start + i) % FAKE_MAX_NAMES].used)
            return (start + i) % FAKE_MAX_NAMES;
    return start;
}

static void pass_time(struct fake_engine *e, struct fake_random *random)
{
    if (fake_chance(random, 70))
        e->now_us += fake_below(random, 2000);
    if (fake_chance(random, 1))
        e->now_us += fake_below(random, 1000000);
}

/* Actions of an operator. */
static bool random_order(struct fake_engine *e, struct fake_random *random)
{
    uint32_t dice = fake_below(random, 5);
    if (e->fault == FAULT_PIN && e->n_pins > 0) {
        e->fault = FAULT_NONE;
        sched_unpin(e->sched, e->pins[0].tenant);
        return true;
    }
    if (dice == 0) {
        struct sched_policy_options o = random_options(random);
        return fake_set_policy(e, sched_policy_at(fake_below(random, count_policies())), &o);
    }
    if (dice == 1)
        return fake_unpin(e, fake_chance(random, 30) ? UINT32_MAX : fake_below(random, FAKE_TENANTS));
    if (dice == 2)
        return fake_set_cost(e, random_cost(random));
    fake_no_more(e);
    return true;
}

/* For some sequences at random or, like an engine, for all after each commit. */
static bool random_drafts(struct fake_engine *e, struct fake_random *random, bool eager)
{
    for (uint32_t i = 0; eager && i < FAKE_MAX_NAMES; i++)
        if (e->seqs[i].used && ((!e->seqs[i].gated && !fake_gate(e, i)) || !fake_propose(e, i)))
            return false;
    for (uint32_t i = eager ? 0 : fake_below(random, 6); i > 0; i--)
        if (!fake_propose(e, random_live(e, random)))
            return false;
    return !fake_chance(random, 15) || fake_gate(e, random_live(e, random));
}

static bool random_event(struct fake_engine *e, struct fake_random *random, uint32_t load, bool eager)
{
    uint32_t seq, dice = fake_below(random, 1000);
    pass_time(e, random);
    if (dice < load) {
        struct fake_request r = random_request(random, &e->config, &e->history);
        return fake_submit(e, &r);
    }
    if (dice < load + 8) {
        seq = random_live(e, random);
        return fake_cancel(e, e->seqs[seq].used ? e->seqs[seq].request.id : 12345678);
    }
    if (dice < load + 16)
        return fake_cancel_seq(e, random_live(e, random));
    if (!random_drafts(e, random, eager))
        return false;
    /* Sometimes an odd order of calls, otherwise the loop of every engine. */
    if (dice < load + 24)
        return random_order(e, random);
    if (dice < load + 56)
        return fake_chance(random, 50) ? fake_plan(e) : fake_commit(e);
    if (!fake_plan(e) || !fake_check(e))
        return false;
    return e->n_launched > e->config.overlap_depth || fake_chance(random, 10) ? fake_commit(e) : true;
}

static bool drain(struct fake_engine *e)
{
    fake_no_more(e);
    for (uint64_t n = 0; !sched_idle(e->sched); n++) {
        if (n > 200000) {
            snprintf(e->failure, sizeof e->failure, "the drain does not end");
            return false;
        }
        uint64_t before = e->n_launched;
        e->now_us += 100;
        if (!fake_plan(e) || !fake_check(e))
            return false;
        bool must = e->n_launched > e->config.overlap_depth || e->n_launched == before;
        if (must && !fake_commit(e))
            return false;
        if (!fake_check(e))
            return false;
    }
    return fake_unpin(e, UINT32_MAX);
}

/* One configuration, many events. Returns false with the reason in fake_failure(). */
static bool run_episode(struct fake_engine *e, uint64_t seed, uint64_t n_events, enum fake_fault fault)
{
    struct fake_random random = {.state = seed};
    struct sched_config config = random_config(&random);
    uint32_t load = 20 + fake_below(&random, fake_chance(&random, 50) ? 50 : 200);
    bool eager = fake_chance(&random, 30);
    bool ok = fake_open(e, &config, seed ^ 0x5eed, fault);
    for (uint64_t i = 0; ok && i < n_events; i++)
        ok = random_event(e, &random, load, eager) && fake_check(e);
    ok = ok && drain(e);
    return fake_close(e, ok) && ok;
}

static bool run_random(uint64_t seed, uint64_t n_events, struct totals *t)
{
    struct fake_engine *e = malloc(sizeof *e);
    for (uint64_t done = 0; done < n_events; done += EPISODE_EVENTS, seed++) {
        bool ok = run_episode(e, seed, EPISODE_EVENTS, FAULT_NONE);
        if (!ok) {
            printf("seed %llu: %s, depth %u, %u groups, %u tokens a block, batching %d, "
                   "preemption %d: %s\n",
                   (unsigned long long)seed, e->config.policy->name, e->config.overlap_depth, e->config.kv.n_groups,
                   e->config.kv.block_tokens, (int)e->config.batching, (int)e->config.preemption, fake_failure(e));
            free(e);
            return false;
        }
        t->events += EPISODE_EVENTS;
        t->steps += e->seen.steps;
        t->tokens += e->seen.tokens;
        t->finished += e->seen.finished;
        t->cancelled += e->seen.cancelled;
        t->preempted += e->seen.preempted;
        t->hit_tokens += e->seen.hit_tokens;
        t->refused += e->seen.refused;
        t->discarded += e->seen.discarded;
        t->given_up += e->seen.given_up;
        t->loads += e->seen.loads;
        t->spills += e->seen.spills;
        t->pinned += e->seen.pinned;
        t->policies += e->seen.policies;
        t->verified += e->seen.verified;
        t->background += e->seen.background;
        t->accepted += e->seen.accepted;
        t->drafts_preempted += e->seen.drafts_preempted;
        t->drafts_cancelled += e->seen.drafts_cancelled;
    }
    free(e);
    return true;
}

/* Each planted fault must be found in most episodes, so that the driver's checks are known to work. */
static bool run_faults(void)
{
    struct fake_engine *e = malloc(sizeof *e);
    bool ok = true;
    for (int fault = FAULT_NONE + 1; fault < N_FAULTS; fault++) {
        uint32_t n_found = 0, n_planted = 0;
        for (uint32_t i = 0; i < 40; i++) {
            bool clean = run_episode(e, 1 + i, EPISODE_EVENTS, (enum fake_fault)fault);
            n_planted += e->fault == FAULT_NONE;
            n_found += !clean;
        }
        printf("fault %d: planted in %u episodes, found in %u\n", fault, n_planted, n_found);
        ok = ok && n_found > 0 && 2 * n_found >= n_planted;
    }
    free(e);
    return ok;
}

int main(int argc, char **argv)
{
    const struct sample sample = sample_of(8);
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1 + sample.seed;
    uint64_t n_events = argc > 2 ? strtoull(argv[2], NULL, 10) : DEFAULT_EVENTS / sample.one_in;
    struct totals t = {0};
    if (quire_hash_init() || !run_random(seed, n_events, &t))
        return 1;
    printf("from seed %llu on, %llu events: %llu steps, %llu tokens, %llu finished, %llu cancelled, %llu refused,\n"
           "%llu preempted, %llu tokens hit, %llu results thrown away, %llu refused by the policy,\n"
           "%llu blocks to the host, %llu back, %llu pins, %llu changes of policy,\n"
           "%llu drafts verified, %llu of them right; meanwhile %llu preempted, %llu cancelled;\n"
           "%llu steps with rows of the background\n",
           (unsigned long long)seed, (unsigned long long)t.events, (unsigned long long)t.steps,
           (unsigned long long)t.tokens, (unsigned long long)t.finished, (unsigned long long)t.cancelled,
           (unsigned long long)t.refused, (unsigned long long)t.preempted, (unsigned long long)t.hit_tokens,
           (unsigned long long)t.discarded, (unsigned long long)t.given_up, (unsigned long long)t.spills,
           (unsigned long long)t.loads, (unsigned long long)t.pinned, (unsigned long long)t.policies,
           (unsigned long long)t.verified, (unsigned long long)t.accepted, (unsigned long long)t.drafts_preempted,
           (unsigned long long)t.drafts_cancelled, (unsigned long long)t.background);
    if (t.events >= 400000 && (t.drafts_preempted < 5 || t.drafts_cancelled < 50 || t.background < 1000))
        return 1; /* the hardest cases did not occur in this many events */
    return run_faults() ? 0 : 1;
}
