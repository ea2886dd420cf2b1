/* The results of a step: positions become computed, full blocks get their names, tokens are appended, and resources
 * last touched by the step are released. */
#include "memory/kv_table.h"
#include "scheduler/sequence.h"
#include "scheduler/state/checked.h"
#include "scheduler/state/scheduler_state.h"
#include "scheduler/state/sequence_state.h"

#include "memory/prefix.h"

#include <string.h>

static bool lives(const struct sequence *q)
{
    return q->job != NULL;
}

/* Not inlined: the thousand rows of a typical step have no drafts. */
#define FOR_DRAFTS static __attribute__((noinline))

/* Returns whether the accepted tokens are the first drafts of the row. */
FOR_DRAFTS bool are_drafts(const struct sequence *q, const struct sched_row *row, const struct sched_result *r)
{
    return r->n_accepted <= row->n_draft &&
           (!lives(q) || memcmp(r->tokens, q->tokens + q->n_known, r->n_accepted * sizeof *r->tokens) == 0);
}

/* Returns whether result i belongs to row r. Results of sequences that are over may be left out. */
static int check_results(const struct sched *s, const struct sched_plan *plan, const struct sched_result *results,
                         uint32_t n_results, struct quire_error *err)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->n_rows; i++) {
        const struct sched_row *row = &plan->rows[i];
        const struct sequence *q = &s->seqs[row->seq];
        if (!row->outputs.tokens)
            continue;
        if (n == n_results || results[n].seq != row->seq) {
            if (lives(q))
                return quire_fail(err, QUIRE_INVALID, "step %llu: result of sequence %u is missing",
                                  (unsigned long long)plan->step, row->seq);
            continue;
        }
        const struct sched_result *r = &results[n++];
        if (!r->tokens)
            return quire_fail(err, QUIRE_INVALID, "step %llu: sequence %u has no token", (unsigned long long)plan->step,
                              row->seq);
        if (r->n_accepted > 0 && !are_drafts(q, row, r))
            return quire_fail(err, QUIRE_INVALID, "step %llu: sequence %u: %u accepted tokens are not its %u drafts",
                              (unsigned long long)plan->step, row->seq, r->n_accepted, row->n_draft);
    }
    if (n != n_results)
        return quire_fail(err, QUIRE_INVALID, "step %llu: result %u is of sequence %u, which has no sampling row",
                          (unsigned long long)plan->step, n, results[n].seq);
    return QUIRE_OK;
}

/* Names the blocks that are full of computed positions; all their tokens are known now. */
static void publish(struct sched *s, struct sequence *q)
{
    uint32_t bt = s->config->kv.block_tokens;
    if (!s->config->kv.prefix_caching)
        return;
    while (q->n_computed >= (q->n_published + 1) * bt) {
        uint32_t i = q->n_published++;
        if (i == q->n_hashes) {
            const struct key256 *parent = i > 0 ? &seq_hashes(q)[i - 1] : &q->job->chain_first;
            seq_hashes(q)[i] = kv_chain_next(&s->config->secret, parent, q->tokens + (size_t)i * bt, bt);
            q->n_hashes++;
        }
        kv_table_publish(q->table, i, &seq_hashes(q)[i]);
    }
}

/* The row verified drafts: the sequence continues after the last accepted one and releases the blocks that only
 * rejected ones reached. */
FOR_DRAFTS void take_drafts(struct sched *s, struct sequence *q, const struct sched_row *row,
                            const struct sched_result *r)
{
    const struct sched_service service = {.n_generated = r->n_accepted};
    uint32_t bt = s->config->kv.block_tokens;
    for (uint32_t i = 0; i < r->n_accepted; i++)
        q->tokens[q->n_known++] = r->tokens[i];
    s->tenants[q->key.tenant].n_generated_tokens += r->n_accepted;
    q->n_computed -= row->n_draft - r->n_accepted;
    q->n_drafting = 0;
    q->n_planned = q->n_computed;
    q->n_reserved = (q->n_computed + bt - 1) / bt * bt;
    kv_table_cut(q->table, q->n_computed);
    if (q->reach.n < q->n_computed)
        q->reach.n = q->n_computed;
    if (r->n_accepted > 0 && s->flows->policy->served)
        s->flows->policy->served(s->flows->state, &q->key, &service);
}

/* Appends tokens after the known ones. Returns true if the sequence is over. */
static bool append(struct sched *s, struct sequence *q, const struct sched_row *row, const struct sched_result *r)
{
    if (row->n_draft > 0)
        take_drafts(s, q, row, r);
    q->tokens[q->n_known++] = r->tokens[r->n_accepted];
    q->n_sampling--;
    s->tenants[q->key.tenant].n_generated_tokens++;
    return r->finished || q->n_known == q->key.n_prompt + q->key.max_tokens;
}

/* The prompt is computed: ends the loan of planner_waits_for_prefix(). */
static void return_rank(const struct sched *s, struct sequence *q)
{
    const struct sched_flows *flows = s->flows;
    q->lent_rank = UINT64_MAX;
    q->key.rank = flows->policy->rank ? flows->policy->rank(flows->state, &q->key) : 0;
}

/* Handles a row of a live sequence, and its result if the row gives tokens. Returns true if the sequence is over. */
static bool take_row(struct sched *s, struct sequence *q, const struct sched_row *row, const struct sched_result *r)
{
    q->n_computed = row->first + row->count;
    bool ended = row->outputs.tokens ? append(s, q, row, r) : q->n_computed == q->n_positions && q->key.max_tokens == 0;
    if (q->lent_rank != UINT64_MAX && q->n_computed >= q->key.n_prompt)
        return_rank(s, q);
    publish(s, q);
    return ended;
}

/* The step does not touch the sequence any more: releases what waited for that. */
static void release_sequence(struct sched *s, struct sequence *q)
{
    if (q->last_step > s->committed)
        return;
    if (q->state == SEQ_LEAVING) {
        s->n_touched--;
        sched_requeue(s, q);
    } else if (q->state == SEQ_ENDING) {
        s->n_touched--;
        sched_retire(s, q);
    }
}

/* The sequence ended by itself: the policy learns its length, and a pin takes over its prompt. */
static void finish(struct sched *s, struct sequence *q)
{
    struct sched_job *job = q->job;
    if (s->flows->policy->finished)
        s->flows->policy->finished(s->flows->state, &q->key, q->n_known - q->key.n_prompt);
    if (job->pin && job->seqs[0] == sched_name(s, q)) {
        pins_fill(s, job->pin, q);
        job->pin = NULL;
    }
    if (job->keep_us > 0)
        pins_keep(s, q);
}

int sched_commit(struct sched *s, const struct sched_result *results, uint32_t n_results, bool *finished,
                 bool *discarded, struct quire_error *err)
{
    if (s->committed == s->step)
        return quire_fail(err, QUIRE_INVALID, "scheduler: no step is waiting for its results");
    const struct sched_plan *plan = &sched_slot(s, s->committed + 1)->plan;
    int status = check_results(s, plan, results, n_results, err);
    if (status)
        return status;
    s->committed++;
    uint32_t n = 0; /* index of the next result */
    for (uint32_t i = 0, n_rows = plan->n_rows; i < n_rows; i++) {
        const struct sched_row *row = &plan->rows[i];
        struct sequence *q = &s->seqs[row->seq];
        if (i + SEQ_AHEAD < n_rows)
            seq_prefetch(s, row[SEQ_AHEAD].seq);
        if (i + SEQ_AHEAD / 2 < n_rows)
            seq_prefetch_parts(s, row[SEQ_AHEAD / 2].seq);
        bool lived = lives(q), ended = lived && take_row(s, q, row, &results[n]);
        if (row->outputs.tokens && n < n_results && results[n].seq == row->seq) {
            if (finished)
                finished[n] = ended;
            if (discarded)
                discarded[n] = !lived;
            n++;
        }
        if (ended) {
            finish(s, q);
            sched_end(s, q);
        } else {
            release_sequence(s, q);
        }
    }
    SCHED_CHECKED(s);
    return QUIRE_OK;
}
