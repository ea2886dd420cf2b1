/* Entry and exit of requests: submit, cancel, propose, collect. */
#include "scheduler/sequence.h"
#include "scheduler/state/checked.h"
#include "scheduler/state/scheduler_state.h"
#include "scheduler/state/sequence_state.h"

#include <stdlib.h>
#include <string.h>

static struct sched_job *find_job(const struct sched *s, uint64_t id)
{
    return (struct sched_job *)id_map_find(&s->jobs, id);
}

static uint32_t positions_of(const struct sched_request *r)
{
    return r->n_prompt + (r->max_tokens > 0 ? r->max_tokens - 1 : 0);
}

/* Returns an error if the request can never run. */
static int check_request(const struct sched *s, const struct sched_request *r, struct quire_error *err)
{
    const struct sched_config *c = s->config;
    if (r->n_prompt == 0 || !r->prompt)
        return quire_fail(err, QUIRE_INVALID, "prompt: must have at least one token");
    if (r->n == 0 || r->n > c->max_queued_requests)
        return quire_fail(err, QUIRE_INVALID, "n: must be 1 to %u, got %u", c->max_queued_requests, r->n);
    if ((uint64_t)r->n_prompt + r->max_tokens > c->max_model_len)
        return quire_fail(err, QUIRE_INVALID, "prompt of %u tokens with max_tokens %u is longer than the model's %u",
                          r->n_prompt, r->max_tokens, c->max_model_len);
    if (r->tenant >= s->n_tenants)
        return quire_fail(err, QUIRE_INVALID, "tenant: must be below %u, got %u", s->n_tenants, r->tenant);
    if (r->class_index >= SCHED_MAX_CLASSES)
        return quire_fail(err, QUIRE_INVALID, "class: must be below %u, got %u", SCHED_MAX_CLASSES, r->class_index);
    if (c->kv.prefix_caching && !r->hashes && r->n_prompt >= c->kv.block_tokens)
        return quire_fail(err, QUIRE_INVALID, "hashes: missing for a prompt of %u tokens", r->n_prompt);
    for (uint32_t g = 0; g < c->kv.n_groups; g++) {
        uint32_t needed = kv_blocks_needed(&c->kv, g, positions_of(r), sched_reach(s));
        if (needed > c->kv.groups[g].n_blocks)
            return quire_fail(err, QUIRE_INVALID, "prompt of %u tokens with max_tokens %u needs %u KV blocks of %u",
                              r->n_prompt, r->max_tokens, needed, c->kv.groups[g].n_blocks);
    }
    uint32_t max_blocks = s->caps ? s->caps->tenants[r->tenant].max_blocks : 0;
    uint32_t n_blocks = max_blocks > 0 ? caps_blocks(&c->kv, positions_of(r), sched_reach(s)) : 0;
    if (n_blocks > max_blocks)
        return quire_fail(err, QUIRE_INVALID,
                          "prompt of %u tokens with max_tokens %u needs %u KV blocks; the key's max_kv_blocks is %u",
                          r->n_prompt, r->max_tokens, n_blocks, max_blocks);
    if (find_job(s, r->id))
        return quire_fail(err, QUIRE_INVALID, "request id %llu is in use", (unsigned long long)r->id);
    return QUIRE_OK;
}

/* Returns an error if there is no space for the request now. */
static int check_space(const struct sched *s, const struct sched_request *r, struct quire_error *err)
{
    const struct sched_config *c = s->config;
    if (s->stats.n_waiting > c->max_queued_requests - r->n)
        return quire_fail(err, QUIRE_EXHAUSTED, "%u requests are waiting, the limit is %u", s->stats.n_waiting,
                          c->max_queued_requests);
    if (s->names->n_free < r->n)
        return quire_fail(err, QUIRE_EXHAUSTED, "%u finished sequences have not been collected", s->names->n_retired);
    /* A prompt longer than the whole limit is accepted if no other waits; otherwise it could never run. */
    if (c->max_queued_tokens > 0 && s->stats.n_waiting_tokens > 0 &&
        s->stats.n_waiting_tokens + r->n_prompt > c->max_queued_tokens)
        return quire_fail(err, QUIRE_EXHAUSTED, "%llu prompt tokens are waiting, the limit is %llu",
                          (unsigned long long)s->stats.n_waiting_tokens, (unsigned long long)c->max_queued_tokens);
    return QUIRE_OK;
}

/* Makes space for a sequence's tokens, and hashes after them. With an owned prompt, the prompt is already there. */
static uint32_t *make_tokens(const struct sched_request *r, bool owned, size_t n_bytes)
{
    uint32_t *tokens = owned ? realloc(*r->owned_prompt, n_bytes) : malloc(n_bytes);
    if (!tokens)
        return NULL;
    if (owned)
        *r->owned_prompt = tokens;
    else
        memcpy(tokens, r->prompt, r->n_prompt * sizeof *tokens);
    return tokens;
}

/* Fills a free sequence, except for its queue position. On QUIRE_NO_MEMORY it stays free. */
static int start_sequence(struct sched *s, struct sequence *q, const struct sched_request *r, bool owned)
{
    uint32_t bt = s->config->kv.block_tokens;
    uint32_t n_prompt_hashes = s->config->kv.prefix_caching ? r->n_prompt / bt : 0;
    size_t n_tokens = (size_t)r->n_prompt + r->max_tokens;
    size_t n_hashes = s->config->kv.prefix_caching ? positions_of(r) / bt : 0;
    uint32_t *tokens = make_tokens(r, owned, n_tokens * sizeof *tokens + n_hashes * sizeof(struct key256));
    if (!tokens)
        return QUIRE_NO_MEMORY;
    *q = (struct sequence){
        .key = {.order = s->next_order++,
                .priority = r->priority,
                .arrival_us = r->arrival_us,
                .deadline_us = r->deadline_us,
                .tenant = r->tenant,
                .class_index = r->class_index,
                .n_prompt = r->n_prompt,
                .max_tokens = r->max_tokens,
                .n_known = r->n_prompt,
                .expected_tokens = r->expected_tokens,
                .background = r->background},
        .tokens = tokens,
        .n_positions = positions_of(r),
        .n_known = r->n_prompt,
        .n_hashes = n_prompt_hashes,
        .n_prompt_logits = SEQ_NO_LOGITS,
    };
    if (n_prompt_hashes > 0)
        memcpy(seq_hashes(q), r->hashes, n_prompt_hashes * sizeof(struct key256));
    return QUIRE_OK;
}

static void free_name(struct sched *s, uint32_t name)
{
    struct sequence *q = &s->seqs[name];
    free(q->tokens);
    memset(q, 0, sizeof *q);
    if (s->admission->shared)
        s->admission->shared[name] = (struct seq_shared){0};
    names_give_back(s->names, name);
}

static int start_all(struct sched *s, struct sched_job *job, const struct sched_request *r)
{
    for (uint32_t i = 0; i < r->n; i++) {
        uint32_t name = names_take(s->names);
        if (start_sequence(s, &s->seqs[name], r, r->owned_prompt && i + 1 == r->n)) {
            names_give_back(s->names, name);
            while (i-- > 0)
                free_name(s, job->seqs[i]);
            return QUIRE_NO_MEMORY;
        }
        s->seqs[name].job = job;
        s->adapters[name] = r->adapter;
        waits_begin(s->waits, name, r->arrival_us, s->waits->n_new + i);
        job->seqs[i] = name;
    }
    return QUIRE_OK;
}

struct sched_load sched_load_of(const struct sched *s, const struct sequence *q, uint64_t now_us)
{
    struct sched_load load = {.now_us = now_us, .us_per_token = s->budget->us_per_token};
    const struct sched_config *c = s->config;
    uint32_t left = q->key.n_prompt > q->key.n_cached ? q->key.n_prompt - q->key.n_cached : 1;
    if (c->cost)
        load.prefill_us = sched_cost_prefill_us(c->cost, q->key.n_prompt - left, left, c->max_num_batched_tokens);
    return load;
}

/* Waiting sequences of a flow that one submission inspects. */
#define LOOKED_AT 1024

/* Waiting tokens of a flow before q. In a longer queue, a sample that is spread evenly over the heap, and so over its
 * ranks, represents the rest. The result is accurate to a few percent, which is enough for rejections. */
static uint64_t tokens_before(const struct sched *s, const struct queue_heap *heap, const struct sequence *q)
{
    uint32_t step = (heap->n + LOOKED_AT - 1) / LOOKED_AT, n_looked = 0;
    uint64_t n_tokens = 0;
    for (uint32_t i = 0; i < heap->n; i += step, n_looked++) {
        const struct sched_candidate *other = &s->seqs[heap->names[i]].key;
        if (queue_before(&s->flows->queue, other, &q->key))
            n_tokens += other->n_known;
    }
    return n_tokens * heap->n / n_looked;
}

/* Returns whether the policy rejects it at its rank among the waiting sequences. */
static uint64_t ask_policy(const struct sched *s, const struct sequence *q)
{
    const struct sched_policy *policy = s->flows->policy;
    if (!policy->refuse)
        return 0;
    struct sched_load load = sched_load_of(s, q, q->key.arrival_us);
    for (uint32_t i = 0; i < s->flows->queue.n_active; i++)
        load.n_tokens_before += tokens_before(s, &s->flows->queue.heaps[s->flows->queue.active[i]], q);
    return policy->refuse(s->flows->state, &q->key, &load);
}

/* Everything that can fail. On an error nothing remains. */
static int make_job(struct sched *s, const struct sched_request *r, uint32_t flow, struct sched_job **out,
                    struct quire_error *err)
{
    struct sched_job *job = malloc(sizeof *job + r->n * sizeof job->seqs[0]);
    if (!job)
        return quire_fail(err, QUIRE_NO_MEMORY, "request: out of memory");
    *job = (struct sched_job){.id = r->id,
                              .n = r->n,
                              .n_live = r->n,
                              .n_waiting_tokens = r->n_prompt,
                              .prompt_logprobs = r->prompt_logprobs,
                              .no_prefix_hits = r->no_prefix_hits,
                              .vector = r->vector,
                              .keep_us = r->keep_us,
                              .keep_name = r->keep_name,
                              .chain_first = r->chain_first};
    struct queue *queue = &s->flows->queue;
    uint32_t n_live = queue->n_lanes > 1 && flow < queue->n_flows ? sched_n_live(s, r->tenant) : s->flows->live[flow];
    int status = queue_reserve(queue, queue_heap_of(queue, flow, r->tenant), n_live + r->n);
    if (!status)
        status = id_map_add(&s->jobs, r->id, (uintptr_t)job);
    if (status)
        quire_fail(err, status, "request: out of memory");
    if (!status && r->pin_us > 0)
        status = pins_make(s, r, &job->pin, err);
    if (!status && start_all(s, job, r))
        status = quire_fail(err, QUIRE_NO_MEMORY, "request: out of memory");
    if (status) {
        id_map_remove(&s->jobs, r->id);
        pins_forget(s, job->pin);
        free(job);
        return status;
    }
    *out = job;
    return QUIRE_OK;
}

static uint32_t flow_of(const struct sched *s, const struct sched_request *r)
{
    const struct sched_policy *policy = s->flows->policy;
    const struct sched_candidate c = {.priority = r->priority, .tenant = r->tenant, .class_index = r->class_index};
    if (r->background)
        return s->flows->queue.n_flows;
    return policy->flow ? policy->flow(s->flows->state, &c) : 0;
}

static int submit(struct sched *s, const struct sched_request *r, uint32_t *seqs, uint64_t *retry_us,
                  struct quire_error *err)
{
    struct sched_job *job = NULL;
    if (retry_us)
        *retry_us = 0;
    int status = check_request(s, r, err);
    if (!status)
        status = check_space(s, r, err);
    if (status)
        return status;
    uint32_t flow = flow_of(s, r);
    status = make_job(s, r, flow, &job, err);
    if (status)
        return status;
    struct sequence *leader = &s->seqs[job->seqs[0]];
    sched_rank(s, leader);
    uint64_t retry = ask_policy(s, leader);
    if (retry > 0) {
        if (r->owned_prompt)
            s->seqs[job->seqs[r->n - 1]].tokens = NULL; /* the caller keeps it */
        for (uint32_t i = r->n; i-- > 0;)
            free_name(s, job->seqs[i]);
        id_map_remove(&s->jobs, r->id);
        pins_forget(s, job->pin);
        free(job);
        s->stats.n_refused++;
        if (retry_us)
            *retry_us = retry;
        return quire_fail(err, QUIRE_EXHAUSTED, "the deadline cannot be met: retry in %llu ms",
                          (unsigned long long)((retry + 999) / 1000));
    }
    for (uint32_t i = 0; i < r->n; i++) {
        seqs[i] = job->seqs[i];
        s->seqs[seqs[i]].state = SEQ_FOLLOWING;
        s->seqs[seqs[i]].key.flow = flow;
        s->seqs[seqs[i]].gates = r->host_gated ? SEQ_GATE_SAMPLER : 0;
    }
    s->flows->live[flow] += r->n;
    s->waits->n_new += r->n;
    leader->leads = true;
    leader->n_prompt_logits = r->prompt_logprobs ? 0 : SEQ_NO_LOGITS;
    /* Time without live sequences is not the last step's time. */
    if (s->stats.n_running + s->stats.n_waiting == 0)
        s->budget->committed = s->committed;
    sched_enqueue(s, leader);
    s->stats.n_waiting += r->n;
    s->n_live_waiting += r->background ? 0 : r->n;
    s->tenants[r->tenant].n_waiting += r->n;
    s->stats.n_waiting_tokens += r->n_prompt;
    s->admission->no_more = false;
    if (r->owned_prompt)
        *r->owned_prompt = NULL;
    return QUIRE_OK;
}

int sched_submit(struct sched *s, const struct sched_request *r, uint32_t *seqs, uint64_t *retry_us,
                 struct quire_error *err)
{
    int status = submit(s, r, seqs, retry_us, err);
    SCHED_CHECKED(s);
    return status;
}

void sched_no_more(struct sched *s)
{
    s->admission->no_more = true;
}

void sched_cancel(struct sched *s, uint64_t id)
{
    struct sched_job *job = find_job(s, id);
    if (!job)
        return;
    const struct sched_policy *policy = s->flows->policy;
    /* Followers end before their leader, so that none of them becomes a leader. The last choice frees the request. */
    uint32_t n_live = job->n_live;
    for (uint32_t i = job->n; n_live > 0; i--) {
        struct sequence *q = &s->seqs[job->seqs[i - 1]];
        if (q->job != job)
            continue;
        n_live--;
        if (policy->cancelled)
            policy->cancelled(s->flows->state, &q->key, q->n_known - q->key.n_prompt);
        sched_end(s, q);
    }
    SCHED_CHECKED(s);
}

void sched_cancel_seq(struct sched *s, uint32_t seq)
{
    const struct sched_policy *policy = s->flows->policy;
    struct sequence *q = seq < s->names->n ? &s->seqs[seq] : NULL;
    if (q && q->job) {
        if (policy->finished)
            policy->finished(s->flows->state, &q->key, q->n_known - q->key.n_prompt);
        sched_end(s, q);
    }
    SCHED_CHECKED(s);
}

uint32_t sched_propose(struct sched *s, uint32_t seq, const uint32_t *tokens, uint32_t n)
{
    struct sequence *q = seq < s->names->n ? &s->seqs[seq] : NULL;
    if (!q || q->state != SEQ_RUNNING || q->n_sampling > 0 || q->n_known >= q->n_positions)
        return 0;
    uint32_t most = q->n_positions - q->n_known;
    most = most < SCHED_MAX_DRAFT ? most : SCHED_MAX_DRAFT;
    seq_drop_proposal(s, q);
    q->n_proposed = (uint8_t)(n < most ? n : most);
    s->n_proposals += q->n_proposed > 0;
    if (q->n_proposed > 0)
        memcpy(q->tokens + q->n_known, tokens, q->n_proposed * sizeof *tokens);
    SCHED_CHECKED(s);
    return q->n_proposed;
}

bool sched_gate(struct sched *s, uint32_t seq, bool gated)
{
    struct sequence *q = seq < s->names->n ? &s->seqs[seq] : NULL;
    if (!q || !q->job || gated == ((q->gates & SEQ_GATE_DRAFTS) != 0))
        return false;
    q->gates ^= SEQ_GATE_DRAFTS;
    SCHED_CHECKED(s);
    return true;
}

bool sched_next_retired(struct sched *s, uint32_t *seq)
{
    if (!names_next_retired(s->names, seq))
        return false;
    free_name(s, *seq);
    SCHED_CHECKED(s);
    return true;
}
