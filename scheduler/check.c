/* sched_check(): the invariants at the top of scheduler.c, by number. Allocates nothing. */
#include "memory/kv_table.h"
#include "scheduler/state/checked.h"
#include "scheduler/state/scheduler_state.h"
#include "scheduler/state/sequence_state.h"

#include <assert.h>

#define BROKEN(err, ...) quire_fail(err, QUIRE_INTERNAL, "sched " __VA_ARGS__)

/* 1: states and counts. */
static int check_counts(const struct sched *s, struct quire_error *err)
{
    uint32_t n[SEQ_RETIRED + 1] = {0}, n_new = 0, n_live_waiting = 0;
    for (uint32_t i = 0; i < s->names->n; i++) {
        const struct sequence *q = &s->seqs[i];
        bool live = q->state >= SEQ_WAITING && q->state <= SEQ_LEAVING;
        if ((unsigned)q->state > SEQ_RETIRED)
            return BROKEN(err, "1: sequence %u has no state", i);
        if (live != (q->job != NULL))
            return BROKEN(err, "1: sequence %u: state %d does not match its request", i, (int)q->state);
        n[q->state]++;
        n_new += live && !q->was_admitted;
    }
    for (uint32_t i = 0; i < s->names->n; i++)
        n_live_waiting += s->seqs[i].job && s->seqs[i].state != SEQ_RUNNING && !s->seqs[i].key.background;
    if (n[SEQ_FREE] != s->names->n_free || n[SEQ_RETIRED] != s->names->n_retired ||
        n[SEQ_RUNNING] != s->stats.n_running ||
        n[SEQ_WAITING] + n[SEQ_FOLLOWING] + n[SEQ_LEAVING] != s->stats.n_waiting ||
        n[SEQ_LEAVING] + n[SEQ_ENDING] != s->n_touched || n_new != s->waits->n_new ||
        n_live_waiting != s->n_live_waiting)
        return BROKEN(err, "1: counts by state are wrong");
    for (uint32_t i = 0; i < s->names->n_free; i++)
        if (s->seqs[s->names->free[i]].state != SEQ_FREE)
            return BROKEN(err, "1: free name %u is in use", s->names->free[i]);
    for (uint32_t i = 0; i < s->names->n_retired; i++) {
        uint32_t name = s->names->retired[(s->names->retired_head + i) % s->names->n];
        if (s->seqs[name].state != SEQ_RETIRED)
            return BROKEN(err, "1: retired sequence %u is not", name);
    }
    return QUIRE_OK;
}

/* 2: one heap. */
static int check_heap(const struct sched *s, uint32_t index, struct quire_error *err)
{
    const struct queue_heap *heap = &s->flows->queue.heaps[index];
    uint64_t n_tokens = 0;
    for (uint32_t i = 0; i < heap->n; i++) {
        const struct sched_candidate *key = &s->seqs[heap->names[i]].key;
        const struct sched_candidate *up = &s->seqs[heap->names[i > 0 ? (i - 1) / 2 : 0]].key;
        n_tokens += key->n_known;
        if (queue_heap_of(&s->flows->queue, key->flow, key->tenant) != index)
            return BROKEN(err, "2: sequence %u waits in a heap that is not its own", heap->names[i]);
        if (i > 0 && !queue_before(&s->flows->queue, up, key))
            return BROKEN(err, "2: queue entry %u goes before its parent", i);
    }
    if (n_tokens != heap->n_tokens || heap->n > heap->capacity)
        return BROKEN(err, "2: heap %u counts %llu tokens", index, (unsigned long long)heap->n_tokens);
    if (heap->n > 0 &&
        (heap->in_active >= s->flows->queue.n_active || s->flows->queue.active[heap->in_active] != index))
        return BROKEN(err, "2: heap %u waits and is not active", index);
    if (heap->passed)
        return BROKEN(err, "2: heap %u is skipped between plans", index);
    return QUIRE_OK;
}

/* 2: the queue. */
static int check_queue(const struct sched *s, struct quire_error *err)
{
    uint32_t n = 0, n_active = 0, n_in_flows = 0;
    uint64_t n_tokens = 0;
    for (uint32_t i = 0; i < s->names->n; i++) {
        const struct sequence *q = &s->seqs[i];
        bool queued = queue_has(&s->flows->queue, i);
        if (queued != (q->state == SEQ_WAITING))
            return BROKEN(err, "2: sequence %u should%s be queued", i, queued ? " not" : "");
        if (!queued)
            continue;
        const struct queue_heap *heap =
            &s->flows->queue.heaps[queue_heap_of(&s->flows->queue, q->key.flow, q->key.tenant)];
        const uint32_t at = s->flows->queue.at[i];
        if (at >= heap->n || heap->names[at] != i)
            return BROKEN(err, "2: sequence %u has the wrong queue index", i);
        n++;
        n_tokens += q->key.n_known;
    }
    for (uint32_t i = 0; i < queue_n_heaps(&s->flows->queue); i++) {
        int status = check_heap(s, i, err);
        if (status)
            return status;
        n_active += s->flows->queue.heaps[i].n > 0;
    }
    for (uint32_t f = 0; f <= s->flows->queue.n_flows; f++)
        n_in_flows += s->flows->queue.n_waiting[f];
    if (n != s->flows->queue.n || n_in_flows != n || n_tokens != s->flows->queue.n_tokens ||
        n_active != s->flows->queue.n_active)
        return BROKEN(err, "2: %u sequences are queued, the queue has %u", n, s->flows->queue.n);
    return QUIRE_OK;
}

/* 3: the running list. */
static int check_running(const struct sched *s, struct quire_error *err)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_listed; i++)
        n += s->seqs[s->running[i]].state == SEQ_RUNNING;
    for (uint32_t i = 0; i < s->names->n; i++) {
        uint32_t times = 0;
        if (s->seqs[i].state != SEQ_RUNNING)
            continue;
        for (uint32_t j = 0; j < s->n_listed; j++)
            times += s->running[j] == i;
        if (times != 1)
            return BROKEN(err, "3: running sequence %u is listed %u times", i, times);
    }
    if (n != s->stats.n_running || s->n_listed < n || s->n_listed > s->config->max_num_seqs)
        return BROKEN(err, "3: %u sequences run, %u counted, %u allowed", n, s->stats.n_running,
                      s->config->max_num_seqs);
    return QUIRE_OK;
}

/* 4 and 7: counters of a sequence. */
static int check_counters(const struct sched *s, uint32_t name, struct quire_error *err)
{
    const struct sequence *q = &s->seqs[name];
    uint32_t n_sampling = 0, n_drafting = 0, known = q->n_known + q->n_sampling;
    for (uint64_t step = s->committed + 1; step <= s->step; step++) {
        const struct sched_plan *plan = &s->slots[step % (s->config->overlap_depth + 2)].plan;
        for (uint32_t i = 0; i < plan->n_rows; i++) {
            n_sampling += plan->rows[i].seq == name && plan->rows[i].outputs.tokens;
            n_drafting += plan->rows[i].seq == name ? plan->rows[i].n_draft : 0;
        }
    }
    if (q->n_sampling != n_sampling)
        return BROKEN(err, "4: sequence %u: %u tokens are being sampled, counted %u", name, n_sampling, q->n_sampling);
    if (q->n_drafting != n_drafting || (n_drafting > 0 && (n_sampling != 1 || q->n_planned != q->n_known + n_drafting)))
        return BROKEN(err, "4: sequence %u: %u drafts are being verified, counted %u", name, n_drafting, q->n_drafting);
    if (q->n_computed > q->n_planned || (q->n_planned > known && n_drafting == 0) || q->n_planned > q->n_positions ||
        known > q->key.n_prompt + q->key.max_tokens || q->n_known < q->key.n_prompt)
        return BROKEN(err, "4: sequence %u: computed %u, planned %u, known %u + %u of %u", name, q->n_computed,
                      q->n_planned, q->n_known, q->n_sampling, q->n_positions);
    if (q->n_proposed > 0 &&
        (q->state != SEQ_RUNNING || q->n_sampling > 0 || q->n_known + q->n_proposed > q->n_positions))
        return BROKEN(err, "4: sequence %u has %u drafts that cannot follow what is known", name, q->n_proposed);
    if (q->state != SEQ_RUNNING && q->state != SEQ_LEAVING && q->n_planned > 0)
        return BROKEN(err, "4: sequence %u does not run and has %u positions planned", name, q->n_planned);
    if (q->reach.seat_step > s->step || q->n_planned > q->reach.n + q->n_drafting)
        return BROKEN(err, "4: sequence %u: reached %u of %u planned, in step %llu", name, q->reach.n, q->n_planned,
                      (unsigned long long)q->reach.seat_step);
    if ((uint64_t)q->n_published * s->config->kv.block_tokens > q->n_computed)
        return BROKEN(err, "7: sequence %u: %u blocks published, %u positions computed", name, q->n_published,
                      q->n_computed);
    return QUIRE_OK;
}

/* 5 and 6: ownership of blocks. */
static int check_table(const struct sched *s, uint32_t name, struct quire_error *err)
{
    const struct sequence *q = &s->seqs[name];
    bool holds = q->state == SEQ_RUNNING || q->state == SEQ_LEAVING || q->state == SEQ_ENDING;
    if (holds != (q->table != NULL))
        return BROKEN(err, "5: sequence %u in state %d: table %s", name, (int)q->state,
                      q->table ? "not given back" : "missing");
    if ((q->state == SEQ_LEAVING || q->state == SEQ_ENDING) && q->last_step <= s->committed)
        return BROKEN(err, "6: sequence %u waits for step %llu, which is over", name, (unsigned long long)q->last_step);
    if (!holds)
        return QUIRE_OK;
    for (uint32_t g = 0; g < s->config->kv.n_groups; g++) {
        uint32_t n;
        kv_table_blocks(q->table, g, &n);
        if ((uint64_t)n * s->config->kv.block_tokens < q->n_planned ||
            (uint64_t)n * s->config->kv.block_tokens < q->n_reserved)
            return BROKEN(err, "5: sequence %u: group %u has %u blocks for %u positions", name, g, n, q->n_planned);
    }
    for (uint32_t i = 0; i < s->n_spare; i++)
        if (s->tables[i] == q->table)
            return BROKEN(err, "5: sequence %u holds a spare table", name);
    return QUIRE_OK;
}

/* 10: the blocks that a launched row reads and writes exist. */
static int check_row_blocks(const struct sched *s, const struct sched_row *row, struct quire_error *err)
{
    const struct kv_config *kv = &s->config->kv;
    const struct sequence *q = &s->seqs[row->seq];
    if (!q->table)
        return BROKEN(err, "10: sequence %u gave its table back under a launched step", row->seq);
    for (uint32_t g = 0; g < kv->n_groups; g++) {
        uint32_t n, window = kv->groups[g].window;
        const uint32_t *blocks = kv_table_blocks(q->table, g, &n);
        uint32_t from = window > 0 && row->first >= window ? row->first - window + 1 : 0;
        uint32_t last = (row->first + row->count - 1) / kv->block_tokens;
        for (uint32_t i = 0; i <= last; i++)
            if ((i * kv->block_tokens < kv->groups[g].sinks || i >= from / kv->block_tokens) &&
                (i >= n || blocks[i] == KV_NO_BLOCK))
                return BROKEN(err, "10: sequence %u: group %u: block %u was released under its step", row->seq, g, i);
    }
    return QUIRE_OK;
}

/* 8 and 10: uncommitted plans. */
static int check_plans(const struct sched *s, struct quire_error *err)
{
    if (s->step - s->committed > s->config->overlap_depth + 1)
        return BROKEN(err, "8: %llu plans are uncommitted", (unsigned long long)(s->step - s->committed));
    for (uint64_t step = s->committed + 1; step <= s->step; step++) {
        const struct sched_plan *plan = &s->slots[step % (s->config->overlap_depth + 2)].plan;
        uint64_t n_tokens = 0, n_logits = 0;
        for (uint32_t i = 0; i < plan->n_rows; i++) {
            const struct sched_row *row = &plan->rows[i];
            n_tokens += row->count;
            n_logits += row->first + row->count - row->first_logit;
            for (uint32_t j = 0; j < i; j++)
                if (plan->rows[j].seq == row->seq)
                    return BROKEN(err, "8: two rows of sequence %u", row->seq);
            if (row->count <= row->n_draft || (row->n_draft > 0 && !row->outputs.tokens) ||
                (row->outputs.tokens && row->first_logit + row->n_draft >= row->first + row->count))
                return BROKEN(err, "8: row of sequence %u makes no sense", row->seq);
            int status = check_row_blocks(s, row, err);
            if (status)
                return status;
        }
        if (plan->step != step || n_tokens != plan->n_tokens || n_logits != plan->n_logits ||
            n_tokens > s->config->max_num_batched_tokens || n_logits > s->config->max_logit_rows)
            return BROKEN(err, "8: step %llu: %llu tokens, %llu logit rows", (unsigned long long)step,
                          (unsigned long long)n_tokens, (unsigned long long)n_logits);
    }
    return QUIRE_OK;
}

/* 9: requests. */
static int check_request(const struct sched *s, const struct sched_job *job, struct quire_error *err)
{
    uint32_t n_live = 0, n_following = 0, n_leading = 0;
    for (uint32_t i = 0; i < job->n; i++) {
        const struct sequence *q = &s->seqs[job->seqs[i]];
        if (q->job != job)
            continue;
        n_live++;
        n_following += q->state == SEQ_FOLLOWING;
        n_leading += q->leads;
    }
    if (n_live != job->n_live || n_live == 0)
        return BROKEN(err, "9: request %llu: %u choices live, counted %u", (unsigned long long)job->id, n_live,
                      job->n_live);
    if (n_leading > 1 || (n_following > 0 && n_leading == 0))
        return BROKEN(err, "9: request %llu: %u choices follow %u leaders", (unsigned long long)job->id, n_following,
                      n_leading);
    return QUIRE_OK;
}

static int check_requests(const struct sched *s, struct quire_error *err)
{
    uint64_t n_tokens = 0;
    uint32_t n_live = 0;
    size_t at = 0;
    for (const struct sched_job *r; (r = (const struct sched_job *)id_map_next(&s->jobs, &at));) {
        int status = check_request(s, r, err);
        if (status)
            return status;
        n_tokens += r->n_waiting_tokens;
        n_live += r->n_live;
    }
    if (n_tokens != s->stats.n_waiting_tokens || n_live != s->stats.n_running + s->stats.n_waiting)
        return BROKEN(err, "9: requests do not add up to the live sequences");
    return QUIRE_OK;
}

/* 11: counters per tenant and per flow. Those that are 0 need no count of their own: if one were wrong, the sum of the
 * others would not be the number of live sequences. An idle scheduler is thus checked without a pass per tenant. */
static int check_sums(const struct sched *s, struct quire_error *err)
{
    uint64_t n_tenants_live = 0, n_flows_live = 0;
    for (uint32_t t = 0; t < s->n_tenants; t++) {
        uint32_t n_running = 0, n_live = 0;
        if (s->tenants[t].n_running + s->tenants[t].n_waiting == 0)
            continue;
        n_tenants_live += s->tenants[t].n_running + s->tenants[t].n_waiting;
        for (uint32_t i = 0; i < s->names->n; i++) {
            const struct sequence *q = &s->seqs[i];
            n_live += q->job && q->key.tenant == t;
            n_running += q->state == SEQ_RUNNING && q->key.tenant == t;
        }
        if (n_running != s->tenants[t].n_running || n_live != n_running + s->tenants[t].n_waiting)
            return BROKEN(err, "11: tenant %u: %u live, %u running, counted %u + %u", t, n_live, n_running,
                          s->tenants[t].n_waiting, s->tenants[t].n_running);
    }
    for (uint32_t f = 0; f <= s->flows->queue.n_flows; f++) {
        uint32_t n_live = 0;
        if (s->flows->live[f] == 0)
            continue;
        n_flows_live += s->flows->live[f];
        for (uint32_t i = 0; i < s->names->n; i++)
            n_live += s->seqs[i].job && s->seqs[i].key.flow == f;
        if (n_live != s->flows->live[f])
            return BROKEN(err, "11: flow %u: %u live, counted %u", f, n_live, s->flows->live[f]);
    }
    uint64_t n_live = (uint64_t)s->stats.n_running + s->stats.n_waiting;
    if (n_tenants_live != n_live || n_flows_live != n_live)
        return BROKEN(err, "11: %llu live sequences, tenants count %llu, flows %llu", (unsigned long long)n_live,
                      (unsigned long long)n_tenants_live, (unsigned long long)n_flows_live);
    return QUIRE_OK;
}

/* 11: limits of tenants. */
static int check_caps(const struct sched *s, struct quire_error *err)
{
    for (uint32_t t = 0; s->caps && t < s->caps->n; t++) {
        const struct sched_cap *cap = &s->caps->tenants[t];
        uint64_t n_blocks = 0;
        uint32_t n_seats = 0;
        for (uint32_t i = 0; i < s->names->n; i++) {
            const struct sequence *q = &s->seqs[i];
            if (q->state != SEQ_RUNNING || q->key.tenant != t || q->key.background)
                continue;
            n_seats++;
            n_blocks += caps_blocks(&s->config->kv, q->n_positions, sched_reach(s));
        }
        if (n_seats != cap->n_seats || n_blocks != cap->n_blocks ||
            (cap->max_blocks > 0 && n_blocks > cap->max_blocks) || (cap->max_seats > 0 && n_seats > cap->max_seats))
            return BROKEN(err, "11: tenant %u: %u sequences with %llu blocks run, counted %u, %llu of %u, %u", t,
                          n_seats, (unsigned long long)n_blocks, cap->n_seats, (unsigned long long)cap->n_blocks,
                          cap->max_seats, cap->max_blocks);
    }
    return QUIRE_OK;
}

/* 12: pins. */
static int check_pins(const struct sched *s, struct quire_error *err)
{
    uint32_t n = 0, n_promised = 0, n_kept = 0;
    uint64_t n_blocks = 0;
    for (const struct pin *pin = s->pins->first; pin; pin = pin->next) {
        uint32_t n_held;
        kv_table_blocks(pin->table, 0, &n_held);
        if (n_held != pin->n_blocks)
            return BROKEN(err, "12: a pin of %u blocks holds %u", pin->n_blocks, n_held);
        n++;
        n_blocks += pin->n_blocks;
    }
    size_t at = 0;
    for (const struct sched_job *r; (r = (const struct sched_job *)id_map_next(&s->jobs, &at));)
        if (r->pin) {
            n_promised++;
            n_blocks += r->pin->n_blocks;
        }
    for (const struct pin *pin = s->pins->kept; pin; pin = pin->next)
        n_kept++;
    if (n_kept != s->pins->n_kept || pins_kept_blocks(s) != s->pins->n_kept_blocks)
        return BROKEN(err, "12: %u cached responses of %u blocks, counted %u, %u", n_kept, pins_kept_blocks(s),
                      s->pins->n_kept, s->pins->n_kept_blocks);
    if (n != s->pins->n || n_promised != s->pins->n_promised || n_blocks != s->pins->n_blocks)
        return BROKEN(err, "12: %u pins and %u promised ones of %llu blocks, counted %u, %u, %u", n, n_promised,
                      (unsigned long long)n_blocks, s->pins->n, s->pins->n_promised, s->pins->n_blocks);
    return QUIRE_OK;
}

int sched_check(const struct sched *s, struct quire_error *err)
{
    int status = check_counts(s, err);
    if (!status)
        status = check_queue(s, err);
    if (!status)
        status = check_running(s, err);
    uint32_t n_holding = 0, n_proposals = 0;
    for (uint32_t i = 0; i < s->names->n && !status; i++) {
        n_holding += s->seqs[i].table != NULL;
        n_proposals += s->seqs[i].n_proposed > 0;
        if (s->seqs[i].job)
            status = check_counters(s, i, err);
        if (!status)
            status = check_table(s, i, err);
    }
    if (!status && n_proposals != s->n_proposals)
        return BROKEN(err, "4: %u sequences have drafts, counted %u", n_proposals, s->n_proposals);
    if (!status && n_holding + s->n_spare != s->n_tables)
        return BROKEN(err, "5: %u tables held, %u spare of %u", n_holding, s->n_spare, s->n_tables);
    if (!status)
        status = check_plans(s, err);
    if (!status)
        status = check_requests(s, err);
    if (!status)
        status = check_sums(s, err);
    if (!status)
        status = check_caps(s, err);
    if (!status)
        status = check_pins(s, err);
    return status ? status : kv_cache_check(s->kv, err);
}

#ifdef QUIRE_DEBUG
/* A call checks about this many names and blocks on average. */
#define ITEMS_PER_CALL 1024u

void sched_checked(struct sched *s, const char *function)
{
    struct quire_error err;
    uint64_t n_items = s->names->n;
    for (uint32_t g = 0; g < s->config->kv.n_groups; g++)
        n_items += (uint64_t)s->config->kv.groups[g].n_blocks + s->config->kv.groups[g].n_host_blocks;
    if ((uint64_t)++s->n_unchecked * ITEMS_PER_CALL < n_items)
        return;
    s->n_unchecked = 0;
    if (sched_check(s, &err) != QUIRE_OK)
        __assert_fail(err.text, __FILE__, __LINE__, function);
}
#endif
