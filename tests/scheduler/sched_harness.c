#include "tests/scheduler/sched_harness.h"

#include "memory/prefix.h"

#define MAX_PROMPT 1024

struct sched_config small_config(void)
{
    struct sched_config config = {.kv = {.block_tokens = 4, .n_groups = 1, .prefix_caching = true},
                                  .max_num_seqs = 4,
                                  .max_num_batched_tokens = 16,
                                  .max_model_len = 200,
                                  .max_queued_requests = 8,
                                  .max_logit_rows = 8,
                                  .policy = sched_policy_find("fcfs")};
    config.kv.groups[0].n_blocks = 64;
    return config;
}

struct sched *open_sched(const struct sched_config *config)
{
    struct sched *s;
    assert_int_equal(quire_hash_init(), QUIRE_OK);
    assert_int_equal(sched_create(config, &s, NULL), QUIRE_OK);
    return s;
}

static void check(const struct sched *s)
{
    struct quire_error err = {.text = ""};
    if (sched_check(s, &err))
        fail_msg("%s", err.text);
}

void close_sched(struct sched *s)
{
    check(s);
    collect(s);
    assert_true(sched_idle(s));
    assert_int_equal(n_free(s), sched_kv_usage(s, 0).n_blocks);
    sched_destroy(s);
}

struct sched_request request_of(uint64_t id, uint32_t base, uint32_t n, uint32_t max_tokens)
{
    static uint32_t tokens[MAX_PROMPT];
    static struct key256 hashes[MAX_PROMPT / 4];
    struct kv_chain_root root = {.block_tokens = 4};
    assert_true(n <= MAX_PROMPT);
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = base + i;
    struct key256 first = kv_chain_first(&root);
    for (uint32_t i = 0; i < n / 4; i++)
        hashes[i] = kv_chain_next(&root.secret, i ? &hashes[i - 1] : &first, tokens + 4 * (size_t)i, 4);
    return (struct sched_request){.id = id,
                                  .prompt = tokens,
                                  .n_prompt = n,
                                  .max_tokens = max_tokens,
                                  .n = 1,
                                  .chain_first = first,
                                  .hashes = hashes};
}

struct sched_request request_sharing(uint64_t id, uint32_t family, uint32_t n_shared, uint32_t n)
{
    static uint32_t tokens[200];
    static struct key256 hashes[50];
    struct kv_chain_root root = {.block_tokens = 4};
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = i < n_shared ? family * 1000 + i : 100000 + (uint32_t)id * 1000 + i;
    struct key256 first = kv_chain_first(&root);
    for (uint32_t i = 0; i < n / 4; i++)
        hashes[i] = kv_chain_next(&root.secret, i ? &hashes[i - 1] : &first, tokens + 4 * (size_t)i, 4);
    return (struct sched_request){
        .id = id, .prompt = tokens, .n_prompt = n, .max_tokens = 1, .n = 1, .chain_first = first, .hashes = hashes};
}

uint32_t submit(struct sched *s, struct sched_request request)
{
    struct quire_error err = {.text = ""};
    uint32_t seqs[8];
    if (sched_submit(s, &request, seqs, NULL, &err))
        fail_msg("%s", err.text);
    check(s);
    return seqs[0];
}

const struct sched_plan *plan(struct sched *s)
{
    const struct sched_plan *p;
    assert_int_equal(sched_plan(s, 0, &p, NULL), QUIRE_OK);
    check(s);
    return p;
}

uint32_t commit(struct sched *s, const struct sched_plan *p, uint32_t token)
{
    struct sched_result results[16] = {{0}};
    bool finished[16] = {false};
    uint32_t n = 0, n_finished = 0;
    for (uint32_t i = 0; i < p->n_rows; i++)
        if (p->rows[i].outputs.tokens)
            results[n++] = (struct sched_result){.seq = p->rows[i].seq, .tokens = &token};
    assert_int_equal(sched_commit(s, results, n, finished, NULL, NULL), QUIRE_OK);
    check(s);
    for (uint32_t i = 0; i < n; i++)
        n_finished += finished[i];
    return n_finished;
}

uint32_t collect(struct sched *s)
{
    uint32_t n = 0, name;
    while (sched_next_retired(s, &name))
        n++;
    check(s);
    return n;
}

const struct sched_plan *step(struct sched *s)
{
    const struct sched_plan *p = plan(s);
    if (p->n_rows > 0)
        commit(s, p, 7);
    collect(s);
    return p;
}

void assert_row(const struct sched_plan *p, uint32_t index, uint32_t seq, uint32_t first, uint32_t count, bool samples)
{
    assert_true(index < p->n_rows);
    assert_int_equal(p->rows[index].seq, seq);
    assert_int_equal(p->rows[index].first, first);
    assert_int_equal(p->rows[index].count, count);
    assert_int_equal(p->rows[index].outputs.tokens, samples);
}

uint32_t n_free(const struct sched *s)
{
    return sched_kv_usage(s, 0).n_free;
}
