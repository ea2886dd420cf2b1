/* Admission: rejections, batches, the prefix that a request shares with a running one, the host tier, and the required
 * blocks. */
#include "memory/kv_table.h"
#include "scheduler/planner.h"
#include "scheduler/sequence.h"

#include <string.h>

/* ---- batches ---- */

/* When the wait of a waiting sequence is over, at the earliest. For fewer than a batch, with nothing running. */
static uint64_t batch_due(const struct sched *s)
{
    const struct queue *queue = &s->flows->queue;
    uint64_t due = UINT64_MAX;
    for (uint32_t i = 0; i < queue->n_active; i++) {
        const struct queue_heap *heap = &queue->heaps[queue->active[i]];
        for (uint32_t j = 0; j < heap->n; j++) {
            uint32_t class_index = s->seqs[heap->names[j]].key.class_index;
            uint64_t at = s->waits->seqs[heap->names[j]].since_us +
                          batches_wait_us(&s->admission->batches, s->config, class_index);
            due = at < due ? at : due;
        }
    }
    return due;
}

/* A batch starts when the previous one is over and it is full or a request has waited long enough. */
static bool begin_batch(struct planner *p)
{
    struct sched *s = p->s;
    struct sched_batches *batches = &s->admission->batches;
    const struct sched_config *c = s->config;
    if (s->n_listed > 0 || s->n_touched > 0)
        return false;
    batches_end(batches, p->now_us);
    if (s->flows->queue.n == 0)
        return false;
    uint32_t class_index = s->seqs[queue_top(&s->flows->queue)].key.class_index, n = s->flows->queue.n;
    uint32_t fill = batches_fill(c, class_index);
    if (n < fill && c->batching == SCHED_STATIC && !s->admission->no_more)
        return false;
    if (n < fill && c->batching == SCHED_DYNAMIC && !s->admission->no_more) {
        uint64_t due = batch_due(s);
        if (p->now_us < due) {
            p->slot->plan.wake_us = due;
            return false;
        }
    }
    batches_begin(batches, c, p->now_us, n, fill);
    uint32_t limit = batches_limit(batches, c, class_index);
    s->admission->batch_left = n < limit ? n : limit;
    return true;
}

/* One more request has joined the batch. Every class in it limits it. */
static void join_batch(struct sched *s, const struct sequence *q)
{
    struct sched_admission *a = s->admission;
    a->batch_left -= a->batch_left > 0;
    if (s->config->batching == SCHED_CONTINUOUS || q->was_admitted || !q->leads)
        return;
    uint32_t limit = batches_limit(&a->batches, s->config, q->key.class_index), n = ++a->batches.n_started;
    uint32_t left = limit > n ? limit - n : 0;
    a->batch_left = a->batch_left < left ? a->batch_left : left;
}

bool planner_may_admit(struct planner *p)
{
    struct sched *s = p->s;
    if (s->config->batching == SCHED_CONTINUOUS)
        return true;
    batches_step(&s->admission->batches, s->config, s->step, s->budget->steps[s->step % 2].predicted_us);
    if (s->n_listed == 0 && s->n_touched == 0 && s->admission->batch_left > 0 && s->flows->queue.n == 0)
        s->admission->batch_left = 0; /* the sequences that were to join are gone */
    /* Live requests replace background sequences in a running batch. */
    if (s->admission->batch_left > 0 || p->n_held > 0 || begin_batch(p))
        return true;
    if (s->flows->queue.n > 0)
        s->waits->shortage = SCHED_SHORT_OF_BATCH;
    return false;
}

/* ---- limits of tenants ---- */

void planner_skip_capped(struct planner *p)
{
    struct queue *queue = &p->s->flows->queue;
    for (uint32_t i = 0; p->s->caps && i < queue->n_active; i++) {
        uint32_t top = queue->heaps[queue->active[i]].names[0];
        if (!caps_allow(p->s, &p->s->seqs[top]))
            queue_pass_heap(queue, top);
    }
}

/* ---- refusals ---- */

/* Nothing of the request has run: no choice was ever admitted. */
static bool is_fresh(const struct sequence *q)
{
    return q->leads && !q->was_admitted && q->job->n_live == q->job->n;
}

void planner_refuse(struct planner *p)
{
    struct sched *s = p->s;
    const struct sched_policy *policy = s->flows->policy;
    while (policy->refuse && p->slot->plan.n_refused < SCHED_MAX_REFUSED) {
        uint32_t head = planner_head(p);
        if (head == QUEUE_NONE)
            return;
        struct sequence *q = &s->seqs[head];
        struct sched_job *job = q->job;
        if (!is_fresh(q) || p->slot->plan.n_refused + job->n > SCHED_MAX_REFUSED)
            return;
        struct sched_load load = sched_load_of(s, q, p->now_us);
        uint64_t retry_us = policy->refuse(s->flows->state, &q->key, &load);
        if (retry_us == 0)
            return;
        s->stats.n_refused++;
        for (uint32_t i = job->n, n_live = job->n; n_live > 0; i--, n_live--) {
            uint32_t name = job->seqs[i - 1];
            p->slot->refused[p->slot->plan.n_refused++] = (struct sched_refusal){.seq = name, .retry_us = retry_us};
            sched_end(s, &s->seqs[name]);
        }
    }
}

/* ---- a prefix that another sequence is computing ---- */

/* A choice of the same request whose prompt blocks were computed by an earlier plan. */
static const struct sequence *share_source(const struct sched *s, const struct sequence *q, uint32_t n_tokens)
{
    const struct sched_job *job = q->job;
    for (uint32_t i = 0; i < job->n; i++) {
        const struct sequence *from = &s->seqs[job->seqs[i]];
        if (from->job != job || from->state != SEQ_RUNNING)
            continue;
        uint32_t planned = from->last_step == s->step + 1 ? from->last_first : from->n_planned;
        if (planned >= n_tokens)
            return from;
    }
    return NULL;
}

/* Full blocks at the start of q's prompt, at most n, that r's prompt has, too. A name stands for all blocks before it.
 */
static uint32_t common_blocks(const struct sched *s, const struct sequence *r, const struct sequence *q, uint32_t n)
{
    const struct key256 *of_r = seq_hashes(r), *of_q = seq_hashes(q);
    uint32_t low = 0, high = r->key.n_prompt / s->config->kv.block_tokens;
    high = high < n ? high : n;
    if (high == 0 || memcmp(&of_r[0], &of_q[0], sizeof of_q[0]) != 0)
        return 0;
    while (low + 1 < high) {
        uint32_t middle = low + (high - low) / 2;
        if (memcmp(&of_r[middle], &of_q[middle], sizeof of_q[middle]) == 0)
            low = middle;
        else
            high = middle;
    }
    return low + 1;
}

/* Computing a block again makes this step longer for all that run; waiting makes q's answer later by a step. */
static bool waiting_is_cheaper(const struct planner *p, uint32_t first, uint32_t count)
{
    const struct sched *s = p->s;
    struct sched_shape shape = p->shape;
    if (!s->config->cost)
        return true;
    double step_us = sched_cost_us(s->config->cost, &shape);
    sched_shape_add(&shape, first, count < p->budget ? count : p->budget, 0);
    double longer_us = sched_cost_us(s->config->cost, &shape) - step_us;
    return longer_us * s->n_listed > step_us;
}

/* No rank can be lent to another flow (a class of the same tenant). One that is behind might make q wait for long. */
static bool may_lead(const struct sched *s, const struct sequence *r, const struct sequence *q)
{
    return r->state == SEQ_RUNNING && r->n_prompt_logits == SEQ_NO_LOGITS && /* logit rows limit the chunks of others */
           (r->key.flow == q->key.flow || queue_before(&s->flows->queue, &r->key, &q->key));
}

/* What q would get next goes to r. Otherwise requests that rank between them could starve r, and q with it. */
static void lend_rank(const struct sequence *q, struct sequence *r)
{
    if (q->key.flow == r->key.flow && q->key.rank < r->key.rank)
        r->key.rank = r->lent_rank = q->key.rank;
}

bool planner_waits_for_prefix(const struct planner *p, struct sequence *q)
{
    const struct sched *s = p->s;
    uint32_t bt = s->config->kv.block_tokens;
    if (p->n_computing == 0 || !seq_may_hit(s, q))
        return false;
    uint32_t most = seq_most_hit(q) / bt, n = most < q->n_hashes ? most : q->n_hashes;
    if (q->job->n > 1 && share_source(s, q, (q->key.n_prompt - 1) / bt * bt))
        return false;
    for (uint32_t i = 0; i < p->n_computing; i++) {
        struct sequence *r = &s->seqs[s->scratch.computing[i]];
        uint32_t at = r->n_computed / bt, end = may_lead(s, r, q) ? common_blocks(s, r, q, n) : 0;
        if (at >= end)
            continue;
        uint32_t next = kv_cache_peek(s->kv, seq_hashes(q), n, at);
        if (next < at || next >= end || !waiting_is_cheaper(p, next * bt, (end - next) * bt))
            continue;
        lend_rank(q, r);
        return true;
    }
    return false;
}

void planner_put_back(struct planner *p, const uint32_t *aside, uint32_t n_aside)
{
    for (uint32_t i = 0; i < n_aside; i++)
        queue_put_back(&p->s->flows->queue, aside[i]);
    if (n_aside > 0 && p->s->waits->shortage == SCHED_SHORT_OF_NOTHING)
        p->s->waits->shortage = SCHED_SHORT_OF_PREFIX;
}

/* Names looked up, and sequences ranked again, in one plan: over several plans the whole queue is covered. */
#define RERANK_NAMES 256
#define RERANK_MOST 8

void planner_rerank(struct sched *s)
{
    uint32_t bt = s->config->kv.block_tokens, n_left = RERANK_MOST;
    if (!s->flows->policy->ranks_by_cache || s->flows->queue.n == 0)
        return;
    for (uint32_t i = 0; i < RERANK_NAMES && n_left > 0; i++) {
        const uint32_t name = s->admission->rerank_cursor;
        struct sequence *q = &s->seqs[name];
        s->admission->rerank_cursor = (name + 1) % s->names->n;
        if (!queue_has(&s->flows->queue, name) || !seq_may_hit(s, q))
            continue;
        n_left--;
        if (kv_cache_peek(s->kv, seq_hashes(q), q->n_hashes, q->key.n_cached / bt) * bt == q->key.n_cached)
            continue;
        sched_queue_remove(s, q);
        sched_rank(s, q);
        queue_put_back(&s->flows->queue, sched_name(s, q));
    }
}

/* ---- blocks taken over ---- */

/* Takes references to the prompt's blocks of another choice, except for the last position's. */
static uint32_t share_prompt(const struct sched *s, struct sequence *q)
{
    uint32_t bt = s->config->kv.block_tokens;
    uint32_t n_blocks = (q->key.n_prompt - 1) / bt;
    const struct sequence *from = NULL;
    if (q->job->n > 1 && n_blocks > 0)
        from = share_source(s, q, n_blocks * bt);
    if (!from || kv_table_share(from->table, n_blocks, q->table))
        return 0;
    q->n_published = 0; /* the other choice may end before it publishes them */
    return n_blocks * bt;
}

/* Takes references to the longest cached prefix. At least the last known position remains to be computed. */
static uint32_t hit_prefix(struct sched *s, struct sequence *q)
{
    if (!seq_may_hit(s, q))
        return 0;
    return kv_table_match(q->table, seq_hashes(q), q->n_hashes, seq_most_hit(q));
}

/* Positions after a hit that are worth loading from the host tier. */
static uint32_t worth_loading(const struct sched *s, const struct sequence *q, uint32_t hit)
{
    const struct sched_config *c = s->config;
    if (!seq_may_hit(s, q))
        return 0;
    if (c->preemption == SCHED_PREEMPT_RECOMPUTE && seq_waits(s, q)->account.n_preemptions > 0)
        return 0;
    uint32_t n = kv_table_loadable(q->table, seq_hashes(q), q->n_hashes, seq_most_hit(q));
    if (n == 0 || c->preemption == SCHED_PREEMPT_SWAP || !c->cost)
        return n;
    double copy_us = (double)(n / c->kv.block_tokens) * c->cost->block_copy_us;
    double compute_us = sched_cost_prefill_us(c->cost, hit, n, c->max_num_batched_tokens);
    return copy_us < compute_us ? n : 0;
}

/* ---- blocks ---- */

/* Blocks that an admission leaves free where tenants share the cache: without them, the long prompts of some tenants fill
 * it until one ends, and the short ones of others wait as long. A sequence may take them if it needs few, if nothing else
 * runs, or if it needs more than the rest. */
static int64_t blocks_to_leave(const struct planner *p, uint32_t group, uint32_t owed)
{
    const struct sched *s = p->s;
    if (!s->flows->policy->flow_passes || s->flows->queue.n_flows < 2 || s->n_listed == 0)
        return 0;
    const uint32_t all = kv_cache_usage(s->kv, group).n_blocks, left = all / SCHED_LEFT_FREE;
    return owed <= left / 4 || owed > all - left ? 0 : left;
}

/* Returns whether there are blocks for all known tokens of q (with reservation: for all it may ever have), in addition
 * to those that the running sequences still need and one more for each of them. */
static bool fits(const struct planner *p, struct sequence *q, const int64_t *slack)
{
    const struct sched_config *c = p->s->config;
    struct seq_shared *shared = c->preemption == SCHED_PREEMPT_NEVER ? &p->s->admission->shared[sched_name(p->s, q)]
                                                                     : NULL;
    for (uint32_t g = 0; g < c->kv.n_groups; g++) {
        if (shared)
            shared->n[g] = c->kv.groups[g].window > 0 ? kv_table_shared(q->table, g) : 0;
        uint32_t owed = planner_owed(p, q, g);
        if (owed > 0 && (int64_t)owed > slack[g] - blocks_to_leave(p, g, owed))
            return false;
    }
    return true;
}

void planner_slack(const struct planner *p, int64_t *slack)
{
    const struct sched *s = p->s;
    for (uint32_t g = 0; g < s->config->kv.n_groups; g++)
        slack[g] = (int64_t)kv_cache_usage(s->kv, g).n_free - (int64_t)p->owed[g] - (s->n_listed - p->n_held);
}

/* As of the last plan, because in this one the blocks of the running sequences are not counted yet. */
bool planner_lacks_blocks(const struct planner *p, const struct sequence *q, int64_t *missing)
{
    const struct sched *s = p->s;
    bool lacks = false;
    if (q->key.order != s->admission->blocked_order)
        return false;
    for (uint32_t g = 0; g < s->config->kv.n_groups; g++) {
        uint32_t n = kv_blocks_needed(&s->config->kv, g, q->n_known, sched_reach(s));
        missing[g] = (int64_t)n - s->admission->blocked_slack[g];
        lacks |= missing[g] > 0;
    }
    return lacks;
}

/* Returns whether the head that did not fit would still not fit. Saves a lookup of its prefix in every step. */
static bool still_blocked(const struct sched *s, const struct sequence *q, const int64_t *slack)
{
    if (q->key.order != s->admission->blocked_order)
        return false;
    for (uint32_t g = 0; g < s->config->kv.n_groups; g++)
        if (slack[g] > s->admission->blocked_slack[g])
            return false;
    return true;
}

/* ---- admission ---- */

/* Updates the counters for an admission. */
static void account_admission(struct planner *p, struct sequence *q, uint32_t hit, uint32_t loaded, bool looked_up)
{
    struct sched *s = p->s;
    struct seq_waits *w = seq_waits(s, q);
    struct sched_account *a = &w->account;
    if (q->was_admitted) {
        a->preempted_us += s->waits->now_us - w->since_us;
        return;
    }
    for (uint32_t i = 0; i < SCHED_N_SHORTAGES; i++)
        a->queue_us[i] += s->waits->short_us[i] - w->short_before[i];
    uint64_t passed = s->waits->n_admissions - w->n_admissions_before;
    a->admitted_us = s->waits->now_us;
    a->n_overtaken = passed > w->n_new_before ? (uint32_t)(passed - w->n_new_before) : 0;
    if (s->waits->now_us > a->arrival_us) {
        a->blocker = s->waits->last_admitted;
        a->blocker_tenant = s->waits->last_admitted_tenant;
    }
    s->waits->last_admitted = q->job->id;
    s->waits->last_admitted_tenant = q->key.tenant;
    s->waits->n_admissions++;
    s->waits->n_new--;
    if (looked_up) {
        struct sched_tenant_stats *tenant = &s->tenants[q->key.tenant];
        a->n_cached = hit + loaded;
        a->n_loaded = loaded;
        s->stats.n_prefix_queries += q->key.n_prompt;
        s->stats.n_prefix_hits += hit + loaded;
        s->stats.n_host_hits += loaded;
        tenant->n_prefix_queries += q->key.n_prompt;
        tenant->n_prefix_hits += hit + loaded;
        const struct sched_service service = {.n_cached = hit + loaded};
        if (s->flows->policy->served)
            s->flows->policy->served(s->flows->state, &q->key, &service);
    }
}

static void note_admission(struct planner *p, struct sequence *q, uint32_t hit, uint32_t loaded, bool looked_up)
{
    struct sched *s = p->s;
    uint32_t bt = s->config->kv.block_tokens;
    if (s->flows->policy->flow_admits && q->key.flow < s->flows->queue.n_flows)
        s->flows->policy->flow_admits(s->flows->state, q->key.flow);
    account_admission(p, q, hit, loaded, looked_up);
    if (hit + loaded > 0)
        pins_used(s, q, (hit + loaded) / bt, p->now_us);
    join_batch(s, q);
    q->was_admitted = true;
    q->reach.seat_step = 0;
    s->stats.n_waiting_tokens -= q->job->n_waiting_tokens;
    q->job->n_waiting_tokens = 0;
    sched_starts_running(s, q);
    p->slot->admitted[p->slot->plan.n_admitted++] = sched_name(s, q);
    s->running[s->n_listed++] = sched_name(s, q);
    if (q->n_computed < q->key.n_prompt)
        s->scratch.computing[p->n_computing++] = sched_name(s, q);
}

/* Returns whether there is a slot for one more sequence, whatever its size. */
static bool has_place(struct planner *p, const struct sequence *q)
{
    struct sched *s = p->s;
    bool all_run = s->n_listed == s->config->max_num_seqs;
    bool batched = s->config->batching != SCHED_CONTINUOUS && s->admission->batch_left == 0;
    if (q->key.background && p->live_first)
        s->waits->shortage = SCHED_SHORT_OF_BUDGET;
    else if ((all_run || batched) && !planner_give_way(p))
        s->waits->shortage = all_run ? SCHED_SHORT_OF_SEQS : SCHED_SHORT_OF_BATCH;
    else
        return true;
    return false;
}

/* Number of positions of its first row; for 0, the shortage is noted. */
static uint32_t first_count(struct planner *p, const struct sequence *q)
{
    struct sched *s = p->s;
    uint32_t most = s->config->max_partial_prefills;
    uint32_t count = planner_count(p, q, p->logits - p->n_chunks_left);
    if (count == 0)
        s->waits->shortage = SCHED_SHORT_OF_BUDGET;
    if (count > 0 && count < seq_remaining(q) && most > 0 && p->n_partial >= most) {
        s->waits->shortage = SCHED_SHORT_OF_SEQS;
        return 0;
    }
    return count;
}

/* Positions that a sequence takes over from others at its admission. */
struct takeover {
    uint32_t shared, hit, loaded; /* positions: from another choice, the cache, the host tier */
};

static struct takeover take_over(struct sched *s, struct sequence *q)
{
    struct takeover t = {0};
    /* The tokens it generated before its preemption extend beyond its prompt. */
    bool grown = q->n_known > q->key.n_prompt;
    t.shared = grown ? 0 : share_prompt(s, q);
    t.hit = t.shared ? 0 : hit_prefix(s, q);
    t.loaded = t.shared ? 0 : worth_loading(s, q, t.hit);
    if (grown && t.hit + t.loaded == 0)
        t.shared = share_prompt(s, q);
    q->n_published = (t.hit + t.loaded) / s->config->kv.block_tokens;
    q->n_planned = q->n_computed = t.shared + t.hit + t.loaded;
    return t;
}

/* Takes blocks for the first row. If there are not enough, nothing changes. */
static bool take_blocks(struct planner *p, struct sequence *q, const struct takeover *t, uint32_t count)
{
    int64_t slack[KV_MAX_GROUPS];
    planner_slack(p, slack);
    if (!fits(p, q, slack))
        return false;
    if (t->loaded > 0 && kv_table_load(q->table, seq_hashes(q), t->loaded))
        return false;
    return kv_table_reserve(q->table, q->n_computed, q->n_planned + count) == QUIRE_OK;
}

/* Whether the blocks of cached answers and sessions are enough for a live sequence that found none: it does not wait for
 * them. They may be fewer than it seems, if running sequences hold some of them, too. */
static bool kept_suffice(const struct planner *p, struct sequence *q)
{
    const struct sched *s = p->s;
    int64_t slack[KV_MAX_GROUPS];
    planner_slack(p, slack);
    for (uint32_t g = 0; g < s->config->kv.n_groups; g++)
        slack[g] += s->pins->n_kept_blocks;
    return s->pins->n_kept > 0 && !q->key.background && fits(p, q, slack);
}

static void give_up(struct sched *s, struct sequence *q)
{
    sched_drop_table(s, q);
    q->n_planned = q->n_computed = q->n_published = 0;
}

/* Adds its row and its entry in the running list. */
static void start(struct planner *p, struct sequence *q, const struct takeover *t, uint32_t count)
{
    struct sched *s = p->s;
    uint32_t bt = s->config->kv.block_tokens, left = seq_remaining(q);
    q->n_reserved = (q->n_planned + count + bt - 1) / bt * bt;
    sched_queue_remove(s, q);
    q->state = SEQ_RUNNING;
    q->key.lost_seat_us = 0;
    if (s->flows->policy->rank)
        q->key.rank = s->flows->policy->rank(s->flows->state, &q->key);
    note_admission(p, q, t->hit, t->loaded, t->shared == 0 && seq_may_hit(s, q));
    p->n_partial += count < left;
    planner_add_row(p, q, count);
    planner_add_owed(p, q);
}

/* The head found no blocks. True: look again, because a background sequence released some. If blocks are already about
 * to be released, they may be enough. */
static bool find_blocks(struct planner *p)
{
    if (p->s->n_touched == 0 && planner_give_way(p))
        return true;
    p->s->waits->shortage = SCHED_SHORT_OF_BLOCKS;
    return false;
}

bool planner_admit(struct planner *p)
{
    struct sched *s = p->s;
    struct sequence *q = &s->seqs[queue_top(&s->flows->queue)];
    int64_t before[KV_MAX_GROUPS];
    if (!has_place(p, q))
        return false;
    planner_slack(p, before);
    for (uint32_t g = 0; g < s->config->kv.n_groups; g++)
        before[g] += s->pins->n_kept_blocks;
    bool alone = s->n_listed == 0 && s->n_touched == 0; /* no other sequence can release blocks */
    if (!alone && still_blocked(s, q, before))
        return find_blocks(p);
    q->table = s->tables[--s->n_spare];
    kv_table_set_owner(q->table, q->key.tenant);
    struct takeover t = take_over(s, q);
    uint32_t count = first_count(p, q);
    if (count > 0 && take_blocks(p, q, &t, count)) {
        start(p, q, &t, count);
        return true;
    }
    const bool yields = count > 0 && kept_suffice(p, q);
    give_up(s, q);
    if (count == 0)
        return false;
    if ((yields && pins_drop_kept(s)) || (alone && pins_drop_one(s)))
        return true; /* look again */
    if (p->n_passed == 0) {
        s->admission->blocked_order = q->key.order;
        memcpy(s->admission->blocked_slack, before, sizeof before);
    }
    return find_blocks(p);
}

/* ---- flows that let others go first ---- */

bool planner_pass(struct planner *p, const struct sequence *q)
{
    struct sched *s = p->s;
    const struct sched_policy *policy = s->flows->policy;
    uint32_t flow = q->key.flow;
    if (!policy->flow_passes || p->takes_blocks || s->waits->shortage != SCHED_SHORT_OF_BLOCKS ||
        flow == s->flows->queue.n_flows || p->n_passed == SCHED_MAX_PASSED)
        return false;
    p->passed[p->n_passed++] = sched_name(s, q);
    queue_pass(&s->flows->queue, flow);
    return true;
}

uint32_t planner_head(const struct planner *p)
{
    const struct sched *s = p->s;
    uint32_t top = queue_top(&s->flows->queue);
    if (top == QUEUE_NONE || top == p->seat_of)
        return QUEUE_NONE;
    if (p->n_passed == 0)
        return top;
    uint32_t flow = s->seqs[top].key.flow;
    if (flow == s->flows->queue.n_flows)
        return QUEUE_NONE;
    for (uint32_t i = 0; i < p->n_passed; i++)
        if (!s->flows->policy->flow_passes(s->flows->state, &s->seqs[p->passed[i]].key, flow))
            return QUEUE_NONE;
    return top;
}
