/* One step: the running in policy order, then the waiting while budget, sequences and blocks allow.
 *
 * Blocks run out only in serve_running. The last of the running then gives way, so a sequence is
 * never preempted for one that the policy ranks after it, and one that is last itself gives way to
 * nobody: it leaves. When blocks are already on their way back (a launched step still touches
 * them), the sequence waits for the next plan instead of taking more victims. Nothing is admitted
 * in a plan that was short of blocks.
 */
#include "scheduler/sequence.h"

#include <string.h>

struct planner {
    struct sched *s;
    struct plan_slot *slot;
    uint32_t budget;              /* tokens left */
    uint32_t logits;              /* logit rows left */
    bool short_of_blocks;
    bool prompt_planned;          /* of a leader, by a row of this plan */
    uint64_t owed[KV_MAX_GROUPS]; /* blocks the running still need for their known tokens */
};

/* Drops what no longer runs and restores the policy's order. A policy may look at counters that
 * change, so the order is checked every step; it is nearly right, which makes insertion the cheap
 * sort. */
static void order_running(struct sched *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_listed; i++) {
        uint32_t name = s->running[i];
        struct sequence *q = &s->seqs[name];
        if (q->state != SEQ_RUNNING)
            continue;
        q->key.n_known = q->n_known + q->n_sampling;
        q->key.n_computed = q->n_planned;
        uint32_t at = n++;
        for (; at > 0; at--) {
            uint32_t before = s->running[at - 1];
            if (s->config.policy->compare(&s->seqs[before].key, &q->key) < 0)
                break;
            s->running[at] = before;
        }
        s->running[at] = name;
    }
    s->n_listed = n;
}

/* How many positions a row of q can have with so many logit rows. */
static uint32_t row_count(const struct planner *p, const struct sequence *q, uint32_t logits)
{
    uint32_t count = seq_remaining(q);
    if (count > p->budget)
        count = p->budget;
    if (q->prompt_logits && q->n_prompt_logits < q->n_prompt) {
        uint32_t given = q->n_prompt_logits > q->n_planned ? q->n_prompt_logits - q->n_planned : 0;
        if (count > given && count - given > logits)
            count = given + logits;
    } else if (count > 0 && logits == 0 && seq_samples(q, q->n_planned + count)) {
        count--;
    }
    return count;
}

static void add_row(struct planner *p, struct sequence *q, uint32_t count)
{
    struct sched *s = p->s;
    struct sched_plan *plan = &p->slot->plan;
    uint32_t first = q->n_planned, end = first + count;
    bool samples = seq_samples(q, end);
    uint32_t first_logit = samples ? end - 1 : end;
    if (q->prompt_logits && q->n_prompt_logits < q->n_prompt) {
        first_logit = first > q->n_prompt_logits ? first : q->n_prompt_logits;
        if (first_logit > end)
            first_logit = end;
        if (q->n_prompt_logits < end)
            q->n_prompt_logits = end;
    }
    p->slot->rows[plan->n_rows++] = (struct sched_row){.seq = sched_name(s, q),
                                                       .first = first,
                                                       .count = count,
                                                       .first_logit = first_logit,
                                                       .samples = samples,
                                                       .adapter = q->adapter};
    plan->n_tokens += count;
    plan->n_logits += end - first_logit;
    p->budget -= count;
    p->logits -= end - first_logit;
    for (uint32_t i = q->n_known; i < end; i++)
        q->tokens[i] = SCHED_PENDING;
    q->n_planned = end;
    q->n_sampling += samples;
    q->last_step = s->step + 1;
    q->last_first = first;
    p->prompt_planned |= q->leads && end >= q->n_prompt;
}

/* Counts what q still needs, for admission. */
static void add_owed(struct planner *p, const struct sequence *q)
{
    const struct kv_config *kv = &p->s->config.kv;
    uint32_t n_tokens = q->n_planned + seq_remaining(q);
    if (n_tokens <= q->n_reserved)
        return;
    for (uint32_t g = 0; g < kv->n_groups; g++) {
        uint32_t needed = kv_blocks_needed(kv, g, n_tokens, sched_reach(p->s));
        uint32_t held = kv_table_held(q->table, g);
        p->owed[g] += needed > held ? needed - held : 0;
    }
}

/* The last of the running gives its blocks back, at once or when its launched step is committed. */
static struct sequence *preempt_last(struct planner *p)
{
    struct sched *s = p->s;
    uint32_t name = s->running[--s->n_listed];
    struct sequence *q = &s->seqs[name];
    p->slot->preempted[p->slot->plan.n_preempted++] = name;
    s->stats.n_preemptions++;
    s->stats.n_running--;
    s->stats.n_waiting++;
    if (q->last_step > s->committed) {
        q->state = SEQ_LEAVING;
        s->n_touched++;
    } else {
        sched_requeue(s, q);
    }
    return q;
}

static bool make_room(struct planner *p, struct sequence *q, uint32_t n_tokens)
{
    struct sched *s = p->s;
    uint32_t bt = s->config.kv.block_tokens;
    if (n_tokens <= q->n_reserved)
        return true;
    while (kv_table_reserve(q->table, q->n_computed, n_tokens)) {
        p->short_of_blocks = true;
        if (s->n_touched > 0 || preempt_last(p) == q)
            return false;
    }
    q->n_reserved = (n_tokens + bt - 1) / bt * bt;
    return true;
}

static void serve_running(struct planner *p)
{
    struct sched *s = p->s;
    for (uint32_t i = 0; i < s->n_listed && p->budget > 0; i++) {
        struct sequence *q = &s->seqs[s->running[i]];
        if (!q->held) {
            /* One logit row stays for each sequence after this one. */
            uint32_t count = row_count(p, q, p->logits - (s->n_listed - 1 - i));
            if (count > 0) {
                if (!make_room(p, q, q->n_planned + count))
                    continue;
                add_row(p, q, count);
            }
        }
        add_owed(p, q);
    }
}

/* A choice of the same request whose prompt blocks were computed by an earlier plan. */
static const struct sequence *share_source(const struct sched *s, const struct sequence *q,
                                           uint32_t n_tokens)
{
    const struct request *request = q->request;
    for (uint32_t i = 0; i < request->n; i++) {
        const struct sequence *from = &s->seqs[request->seqs[i]];
        if (from->request != request || from->state != SEQ_RUNNING)
            continue;
        uint32_t planned = from->last_step == s->step + 1 ? from->last_first : from->n_planned;
        if (planned >= n_tokens)
            return from;
    }
    return NULL;
}

/* References to the prompt's blocks of another choice, all but the last position's. */
static uint32_t share_prompt(const struct sched *s, struct sequence *q)
{
    uint32_t bt = s->config.kv.block_tokens;
    uint32_t n_blocks = (q->n_prompt - 1) / bt;
    const struct sequence *from = NULL;
    if (q->request->n > 1 && n_blocks > 0)
        from = share_source(s, q, n_blocks * bt);
    if (!from || kv_table_share(from->table, n_blocks, q->table))
        return 0;
    q->n_published = 0; /* the other choice may be over before it publishes them */
    return n_blocks * bt;
}

static bool may_hit(const struct sched *s, const struct sequence *q)
{
    return s->config.kv.prefix_caching && !q->request->no_prefix_hits;
}

/* References to the longest cached prefix; at least the last known position is left to compute. */
static uint32_t hit_prefix(struct sched *s, struct sequence *q)
{
    uint32_t most = q->n_known - 1;
    if (q->prompt_logits && most > q->n_prompt_logits)
        most = q->n_prompt_logits; /* later positions must be computed for their logits */
    if (!may_hit(s, q))
        return 0;
    uint32_t hit = kv_table_match(q->table, q->hashes, q->n_hashes, most);
    q->n_published = hit / s->config.kv.block_tokens;
    return hit;
}

/* Are there blocks for all known tokens of q, beside what the running still need and one more for
 * each of them? */
static bool fits(const struct planner *p, const struct sequence *q, const int64_t *slack)
{
    const struct kv_config *kv = &p->s->config.kv;
    for (uint32_t g = 0; g < kv->n_groups; g++) {
        uint32_t needed = kv_blocks_needed(kv, g, q->n_known, sched_reach(p->s));
        uint32_t held = kv_table_held(q->table, g);
        if (needed > held && (int64_t)(needed - held) > slack[g])
            return false;
    }
    return true;
}

/* Blocks of each group that an admission may take. */
static void measure_slack(const struct planner *p, int64_t *slack)
{
    const struct sched *s = p->s;
    for (uint32_t g = 0; g < s->config.kv.n_groups; g++)
        slack[g] = (int64_t)kv_cache_usage(s->kv, g).n_free - (int64_t)p->owed[g] - s->n_listed;
}

/* The head that did not fit would not fit now either: saves looking its prefix up at every step. */
static bool still_blocked(const struct sched *s, const struct sequence *q, const int64_t *slack)
{
    if (q->key.order != s->blocked_order)
        return false;
    for (uint32_t g = 0; g < s->config.kv.n_groups; g++)
        if (slack[g] > s->blocked_slack[g])
            return false;
    return true;
}

static void note_admission(struct sched *s, struct sequence *q, uint32_t hit, bool looked_up)
{
    if (!q->was_admitted && looked_up) {
        q->cached_tokens = hit;
        s->stats.n_prefix_queries += q->n_prompt;
        s->stats.n_prefix_hits += hit;
    }
    q->was_admitted = true;
    s->stats.n_waiting_tokens -= q->request->n_waiting_tokens;
    q->request->n_waiting_tokens = 0;
    s->stats.n_waiting--;
    s->stats.n_running++;
}

/* Admits the head of the queue, or leaves it as it was. */
static bool admit(struct planner *p, struct sequence *q)
{
    struct sched *s = p->s;
    int64_t before[KV_MAX_GROUPS], slack[KV_MAX_GROUPS];
    measure_slack(p, before);
    if (still_blocked(s, q, before))
        return false;
    q->table = s->tables[--s->n_spare];
    /* Tokens the sequence generated before it was preempted reach further than its prompt. */
    bool grown = q->n_known > q->n_prompt;
    uint32_t shared = grown ? 0 : share_prompt(s, q);
    uint32_t hit = shared ? 0 : hit_prefix(s, q);
    if (grown && !hit)
        shared = share_prompt(s, q);
    q->n_planned = q->n_computed = shared + hit;
    uint32_t count = row_count(p, q, p->logits);
    measure_slack(p, slack);
    bool room = fits(p, q, slack);
    if (!room) {
        s->blocked_order = q->key.order;
        memcpy(s->blocked_slack, before, sizeof before);
    }
    if (count == 0 || !room ||
        kv_table_reserve(q->table, q->n_computed, q->n_planned + count)) {
        sched_drop_table(s, q);
        q->n_planned = q->n_computed = q->n_published = 0;
        return false;
    }
    uint32_t bt = s->config.kv.block_tokens;
    q->n_reserved = (q->n_planned + count + bt - 1) / bt * bt;
    queue_remove(&s->queue, sched_name(s, q));
    q->state = SEQ_RUNNING;
    note_admission(s, q, hit, !shared && may_hit(s, q));
    p->slot->admitted[p->slot->plan.n_admitted++] = sched_name(s, q);
    s->running[s->n_listed++] = sched_name(s, q);
    add_row(p, q, count);
    add_owed(p, q);
    return true;
}

static void admit_waiting(struct planner *p)
{
    struct sched *s = p->s;
    while (p->budget > 0 && s->n_listed < s->config.max_num_seqs && s->queue.n > 0)
        if (!admit(p, &s->seqs[queue_top(&s->queue)]))
            return;
}

/* Choices of a request may run once its leader's prompt is planned; from the next plan on, since a
 * step's rows cannot read what the same step computes. */
static void release_followers(struct sched *s, const struct plan_slot *slot)
{
    for (uint32_t i = 0; i < slot->plan.n_rows; i++) {
        struct sequence *q = &s->seqs[slot->rows[i].seq];
        if (q->leads && q->n_planned >= q->n_prompt)
            sched_release_followers(s, q);
    }
}

int sched_plan(struct sched *s, uint64_t now_us, const struct sched_plan **out,
               struct quire_error *err)
{
    (void)now_us; /* part of what a recording replays; no policy looks at it yet */
    *out = NULL;
    if (s->step - s->committed > s->config.overlap_depth)
        return quire_fail(err, QUIRE_INVALID, "scheduler: step %llu must be committed first",
                          (unsigned long long)(s->committed + 1));
    struct planner p = {.s = s,
                        .slot = sched_slot(s, s->step + 1),
                        .budget = s->config.max_num_batched_tokens,
                        .logits = s->config.max_logit_rows};
    struct sched_plan *plan = &p.slot->plan;
    *plan = (struct sched_plan){.rows = p.slot->rows,
                                .preempted = p.slot->preempted,
                                .admitted = p.slot->admitted};
    order_running(s);
    serve_running(&p);
    if (!p.short_of_blocks)
        admit_waiting(&p);
    if (p.prompt_planned)
        release_followers(s, p.slot);
    if (plan->n_rows > 0) {
        plan->step = ++s->step;
        s->stats.n_steps++;
    }
    *out = plan;
    return QUIRE_OK;
}
