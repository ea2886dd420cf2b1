/* The way in and out: submit, cancel, hold, collect. */
#include "scheduler/sequence.h"

#include <stdlib.h>
#include <string.h>

static struct request *find_request(const struct sched *s, uint64_t id)
{
    struct request *request = s->buckets[id & s->bucket_mask];
    while (request && request->id != id)
        request = request->next;
    return request;
}

static uint32_t positions_of(const struct sched_request *r)
{
    return r->n_prompt + (r->max_tokens > 0 ? r->max_tokens - 1 : 0);
}

/* Can this ever be served? */
static int check_request(const struct sched *s, const struct sched_request *r,
                         struct quire_error *err)
{
    const struct sched_config *c = &s->config;
    if (r->n_prompt == 0 || !r->prompt)
        return quire_fail(err, QUIRE_INVALID, "prompt: must have at least one token");
    if (r->n == 0 || r->n > c->max_queued_requests)
        return quire_fail(err, QUIRE_INVALID, "n: must be 1 to %u, got %u", c->max_queued_requests,
                          r->n);
    if ((uint64_t)r->n_prompt + r->max_tokens > c->max_model_len)
        return quire_fail(err, QUIRE_INVALID,
                          "prompt of %u tokens with max_tokens %u is longer than the model's %u",
                          r->n_prompt, r->max_tokens, c->max_model_len);
    if (c->kv.prefix_caching && !r->hashes && r->n_prompt >= c->kv.block_tokens)
        return quire_fail(err, QUIRE_INVALID, "hashes: missing for a prompt of %u tokens",
                          r->n_prompt);
    for (uint32_t g = 0; g < c->kv.n_groups; g++) {
        uint32_t needed = kv_blocks_needed(&c->kv, g, positions_of(r), sched_reach(s));
        if (needed > c->kv.groups[g].n_blocks)
            return quire_fail(err, QUIRE_INVALID,
                              "prompt of %u tokens with max_tokens %u needs %u KV blocks of %u",
                              r->n_prompt, r->max_tokens, needed, c->kv.groups[g].n_blocks);
    }
    if (find_request(s, r->id))
        return quire_fail(err, QUIRE_INVALID, "request id %llu is in use",
                          (unsigned long long)r->id);
    return QUIRE_OK;
}

/* Is there room for it now? */
static int check_room(const struct sched *s, const struct sched_request *r, struct quire_error *err)
{
    const struct sched_config *c = &s->config;
    if (s->stats.n_waiting > c->max_queued_requests - r->n)
        return quire_fail(err, QUIRE_EXHAUSTED, "%u requests are waiting, the limit is %u",
                          s->stats.n_waiting, c->max_queued_requests);
    if (s->n_free_names < r->n)
        return quire_fail(err, QUIRE_EXHAUSTED, "%u sequences are over and not yet collected",
                          s->n_retired);
    /* A prompt longer than the whole bound is let in when no other waits: it could never come
     * otherwise. */
    if (c->max_queued_tokens > 0 && s->stats.n_waiting_tokens > 0 &&
        s->stats.n_waiting_tokens + r->n_prompt > c->max_queued_tokens)
        return quire_fail(err, QUIRE_EXHAUSTED,
                          "%llu prompt tokens are waiting, the limit is %llu",
                          (unsigned long long)s->stats.n_waiting_tokens,
                          (unsigned long long)c->max_queued_tokens);
    return QUIRE_OK;
}

/* Fills a free sequence, all but its place in the queue. QUIRE_NO_MEMORY leaves it free. */
static int start_sequence(struct sched *s, struct sequence *q, const struct sched_request *r)
{
    uint32_t bt = s->config.kv.block_tokens;
    uint32_t n_prompt_hashes = s->config.kv.prefix_caching ? r->n_prompt / bt : 0;
    size_t n_tokens = (size_t)r->n_prompt + r->max_tokens;
    size_t n_hashes = s->config.kv.prefix_caching ? positions_of(r) / bt : 0;
    uint32_t *tokens = malloc(n_tokens * sizeof *tokens + n_hashes * sizeof(struct key256));
    if (!tokens)
        return QUIRE_NO_MEMORY;
    *q = (struct sequence){
        .queue_index = QUEUE_NONE,
        .key = {.order = s->next_order++,
                .priority = r->priority,
                .arrival_us = r->arrival_us,
                .deadline_us = r->deadline_us,
                .tenant = r->tenant},
        .tokens = tokens,
        .n_prompt = r->n_prompt,
        .max_tokens = r->max_tokens,
        .n_positions = positions_of(r),
        .n_known = r->n_prompt,
        .hashes = (struct key256 *)(void *)(tokens + n_tokens),
        .chain_first = r->chain_first,
        .n_hashes = n_prompt_hashes,
        .adapter = r->adapter,
    };
    memcpy(tokens, r->prompt, r->n_prompt * sizeof *tokens);
    if (n_prompt_hashes > 0)
        memcpy(q->hashes, r->hashes, n_prompt_hashes * sizeof *q->hashes);
    return QUIRE_OK;
}

static void free_name(struct sched *s, uint32_t name)
{
    struct sequence *q = &s->seqs[name];
    free(q->tokens);
    memset(q, 0, sizeof *q);
    q->queue_index = QUEUE_NONE;
    s->free_names[s->n_free_names++] = name;
}

static int start_all(struct sched *s, struct request *request, const struct sched_request *r)
{
    for (uint32_t i = 0; i < r->n; i++) {
        uint32_t name = s->free_names[--s->n_free_names];
        if (start_sequence(s, &s->seqs[name], r)) {
            s->free_names[s->n_free_names++] = name;
            while (i-- > 0)
                free_name(s, request->seqs[i]);
            return QUIRE_NO_MEMORY;
        }
        s->seqs[name].request = request;
        request->seqs[i] = name;
    }
    return QUIRE_OK;
}

int sched_submit(struct sched *s, const struct sched_request *r, uint32_t *seqs,
                 struct quire_error *err)
{
    int status = check_request(s, r, err);
    if (!status)
        status = check_room(s, r, err);
    if (status)
        return status;
    struct request *request = malloc(sizeof *request + r->n * sizeof request->seqs[0]);
    if (!request)
        return quire_fail(err, QUIRE_NO_MEMORY, "request: out of memory");
    *request = (struct request){.id = r->id,
                                .next = s->buckets[r->id & s->bucket_mask],
                                .n = r->n,
                                .n_live = r->n,
                                .n_waiting_tokens = r->n_prompt,
                                .prompt_logprobs = r->prompt_logprobs,
                                .no_prefix_hits = r->no_prefix_hits};
    if (start_all(s, request, r)) {
        free(request);
        return quire_fail(err, QUIRE_NO_MEMORY, "request: out of memory");
    }
    s->buckets[r->id & s->bucket_mask] = request;
    for (uint32_t i = 0; i < r->n; i++) {
        seqs[i] = request->seqs[i];
        s->seqs[seqs[i]].state = SEQ_FOLLOWING;
    }
    s->seqs[seqs[0]].leads = true;
    s->seqs[seqs[0]].prompt_logits = r->prompt_logprobs;
    sched_enqueue(s, &s->seqs[seqs[0]]);
    s->stats.n_waiting += r->n;
    s->stats.n_waiting_tokens += r->n_prompt;
    return QUIRE_OK;
}

void sched_cancel(struct sched *s, uint64_t id)
{
    struct request *request = find_request(s, id);
    if (!request)
        return;
    /* Followers end before their leader, so that none of them is made to lead. The request is gone
     * with the last. */
    uint32_t n_live = request->n_live;
    for (uint32_t i = request->n; n_live > 0; i--) {
        struct sequence *q = &s->seqs[request->seqs[i - 1]];
        if (q->request != request)
            continue;
        n_live--;
        sched_end(s, q);
    }
}

void sched_cancel_seq(struct sched *s, uint32_t seq)
{
    if (seq < s->n_names && s->seqs[seq].request)
        sched_end(s, &s->seqs[seq]);
}

void sched_hold(struct sched *s, uint32_t seq, bool held)
{
    if (seq >= s->n_names || !s->seqs[seq].request || s->seqs[seq].held == held)
        return;
    struct sequence *q = &s->seqs[seq];
    q->held = held;
    if (q->state != SEQ_WAITING)
        return;
    if (held)
        queue_remove(&s->queue, seq);
    else
        queue_push(&s->queue, seq);
}

bool sched_next_retired(struct sched *s, uint32_t *seq)
{
    if (s->n_retired == 0)
        return false;
    *seq = s->retired[s->retired_head];
    s->retired_head = (s->retired_head + 1) % s->n_names;
    s->n_retired--;
    free_name(s, *seq);
    return true;
}
