/* A scheduler's plan becomes a forward pass, and the pass's results become tokens and events. */
#include "base/clock.h"
#include "engine/run/engine_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int step_slots_create(struct engine *e, struct quire_error *err)
{
    uint32_t n = e->plan.max_logit_rows;
    e->sched_results = calloc(e->plan.max_num_seqs, sizeof *e->sched_results);
    e->sched_tokens = calloc(e->plan.max_num_seqs, sizeof *e->sched_tokens);
    bool ok = e->sched_results && e->sched_tokens;
    for (uint32_t i = 0; i <= e->depth; i++) {
        struct step_slot *slot = &e->slots[i];
        slot->targets = calloc(n, sizeof *slot->targets);
        slot->rows = calloc(n, sizeof *slot->rows);
        slot->results = calloc(n, sizeof *slot->results);
        ok = ok && slot->targets && slot->rows && slot->results;
    }
    return ok ? QUIRE_OK : quire_fail(err, QUIRE_NO_MEMORY, "steps: out of memory");
}

void step_slots_destroy(struct engine *e)
{
    for (uint32_t i = 0; i < ENGINE_MAX_SLOTS; i++) {
        free(e->slots[i].targets);
        free(e->slots[i].rows);
        free(e->slots[i].results);
    }
    free(e->sched_tokens);
    free(e->sched_results);
}

void request_end(struct engine *e, struct request *r, enum engine_finish finish, const char *message)
{
    if (message)
        quire_fail(&r->error, QUIRE_INTERNAL, "%s", message);
    for (uint32_t i = 0; i < r->n; i++)
        if (!r->choices[i].done)
            event_done(e, r, i, finish, -1);
    sched_cancel(e->sched, r->key);
    ENGINE_WATCH(e, cancelled, quire_now_us(), r->key);
}

/* ---- plan → arrays --------------------------------------------------------------------------- */

/* Sets up the logit rows of one plan row; token_index is where its first token lies in the step. */
static void add_targets(struct engine *e, struct step_slot *slot, const struct sched_row *row, const uint32_t *tokens,
                        uint32_t token_index, uint32_t *logit_tokens)
{
    struct request *r = e->owners[row->seq].request;
    uint32_t choice = e->owners[row->seq].choice, end = row->first + row->count;
    for (uint32_t p = row->first_logit; p < end; p++) {
        uint32_t at = slot->n_targets;
        bool drawn = row->samples && p + 1 == end;
        if (drawn) {
            struct request_choice *c = &r->choices[choice];
            const struct token_counts *counts = r->sampling.counts_output ? request_counts(r, choice) : &c->counts;
            const struct sampling_state state = {
                .counts = counts,
                .generated = tokens + r->n_prompt,
                .n_generated = end - r->n_prompt, /* c->n_generated is one behind with a step in flight */
                .position = end,
                .choice = choice,
                .room = c->row_room,
            };
            sampling_row(&r->sampling, &state, &slot->rows[at]);
            e->owners[row->seq].sampled_row = at;
            e->owners[row->seq].sampled_step = e->n_launched + 1;
        } else if (p + 1 == r->next_prompt_logprob && p + 1 < r->n_prompt) {
            /* Positions that a preempted prompt computes again were reported before. */
            r->next_prompt_logprob++;
            sampling_prompt_row(&r->sampling, tokens[p + 1], p + 1, &slot->rows[at]);
        } else {
            continue;
        }
        slot->targets[at] = (struct step_target){.seq = row->seq, .position = p + 1, .drawn = drawn};
        logit_tokens[at] = token_index + (p - row->first);
        slot->n_targets++;
    }
}

static uint32_t n_entries_of(const struct engine *e, const struct sched_row *row)
{
    uint32_t bt = e->plan.block_tokens;
    return (row->first + row->count + bt - 1) / bt;
}

/* Slots and block tables of one row in every KV group. */
static int add_blocks(struct engine *e, const struct sched_row *row, uint32_t token, uint32_t table,
                      const struct forward_batch *batch, struct quire_error *err)
{
    uint32_t bt = e->plan.block_tokens, n_entries = n_entries_of(e, row);
    for (uint32_t g = 0; g < e->plan.n_kv_groups; g++) {
        uint32_t n_blocks;
        const uint32_t *blocks = sched_blocks(e->sched, row->seq, g, &n_blocks);
        if (n_blocks < n_entries)
            return quire_fail(err, QUIRE_INTERNAL, "sequence %u: %u blocks in KV group %u, its row needs %u", row->seq,
                              n_blocks, g, n_entries);
        memcpy(batch->tables[g] + table, blocks, n_entries * sizeof *blocks);
        uint32_t *slots = batch->slots[g] + token;
        uint32_t position = row->first, end = row->first + row->count;
        while (position < end) {
            uint32_t block = blocks[position / bt];
            if (block >= e->plan.groups[g].n_blocks)
                return quire_fail(err, QUIRE_INTERNAL,
                                  "sequence %u: no block in KV group %u for"
                                  " position %u",
                                  row->seq, g, position);
            uint32_t offset = position % bt;
            for (; offset < bt && position < end; offset++, position++)
                *slots++ = block * bt + offset;
        }
    }
    return QUIRE_OK;
}

/* The newest token of a sequence may still be with the device, in the results of the step launched last. */
static int add_pending(const struct engine *e, const struct sched_row *row, uint32_t token, struct forward_batch *batch,
                       struct quire_error *err)
{
    const struct seq_owner *owner = &e->owners[row->seq];
    if (e->n_in_flight == 0 || owner->sampled_step != e->n_launched)
        return quire_fail(err, QUIRE_INTERNAL,
                          "sequence %u: the token at position %u is not known, and no step samples it", row->seq,
                          row->first + row->count - 1);
    batch->ids[token] = 0;
    batch->sources[batch->n_sources++] = (struct k_token_source){.token = token, .row = owner->sampled_row};
    return QUIRE_OK;
}

static int add_row(struct engine *e, struct step_slot *slot, const struct sched_row *row, uint32_t token,
                   uint32_t table, struct forward_batch *batch, struct quire_error *err)
{
    uint32_t n_known, end = row->first + row->count;
    const uint32_t *tokens = sched_tokens(e->sched, row->seq, &n_known);
    if (n_known < end)
        return quire_fail(err, QUIRE_INTERNAL, "sequence %u: %u tokens are known, its row needs %u", row->seq, n_known,
                          end);
    memcpy(batch->ids + token, tokens + row->first, row->count * sizeof *tokens);
    if (tokens[end - 1] == SCHED_PENDING) {
        int status = add_pending(e, row, token + row->count - 1, batch, err);
        if (status != QUIRE_OK)
            return status;
    }
    for (uint32_t i = 0; i < row->count; i++)
        batch->positions[token + i] = row->first + i;
    add_targets(e, slot, row, tokens, token, batch->logit_tokens);
    return add_blocks(e, row, token, table, batch, err);
}

/* The moves come from the scheduler, which is trusted only so far: a wrong one would write anywhere. */
int step_move(struct engine *e, const struct sched_plan *plan, struct quire_error *err)
{
    for (uint32_t i = 0; i < plan->n_moves; i++) {
        const struct kv_move *m = &plan->moves[i];
        if (m->group >= e->plan.n_kv_groups || m->device_block >= e->plan.groups[m->group].n_blocks ||
            m->host_block >= e->plan.groups[m->group].n_host_blocks)
            return quire_fail(err, QUIRE_INTERNAL, "KV group %u has no block %u, or no host block %u", m->group,
                              m->device_block, m->host_block);
    }
    return forward_move(e->forward, plan->moves, plan->n_moves, err);
}

int step_launch(struct engine *e, struct step_slot *slot, const struct sched_plan *plan, struct quire_error *err)
{
    uint32_t n_entries = 0, token = 0, table = 0;
    struct forward_batch batch;
    for (uint32_t i = 0; i < plan->n_rows; i++)
        n_entries += n_entries_of(e, &plan->rows[i]);
    forward_begin(e->forward, plan->n_tokens, plan->n_rows, plan->n_logits, n_entries, &batch);
    slot->plan = plan;
    slot->n_targets = 0;
    for (uint32_t i = 0; i < plan->n_rows; i++) {
        const struct sched_row *row = &plan->rows[i];
        batch.rows[i] = (struct k_attn_row){
            .token = token, .n_tokens = row->count, .position = row->first, .table = table};
        int status = add_row(e, slot, row, token, table, &batch, err);
        if (status != QUIRE_OK)
            return status;
        token += row->count;
        table += n_entries_of(e, row);
    }
    batch.n_logits = slot->n_targets;
    return forward_run(e->forward, &batch, slot->rows, slot->results, &slot->ticket, err);
}

/* ---- results → tokens ------------------------------------------------------------------------ */

/* A request with nothing to draw from ends, all its choices with it; nobody else notices. */
static void end_bad_requests(struct engine *e, const struct step_slot *slot)
{
    for (uint32_t i = 0; i < slot->n_targets; i++) {
        struct request *r = e->owners[slot->targets[i].seq].request;
        if (!slot->results[i].bad_logits || r->n_open == 0)
            continue;
        char message[160];
        /* Which parameters alone leave some token was checked at submit: only bad words remain. */
        if (slot->targets[i].drawn && sampling_row_forbids_all(&slot->rows[i], e->desc.vocab_size)) {
            r->status = QUIRE_INVALID;
            snprintf(message, sizeof message,
                     "bad_words: every token that might be drawn at position %u is"
                     " forbidden",
                     slot->targets[i].position);
        } else {
            snprintf(message, sizeof message,
                     "the model's logits at position %u are unusable: NaN or infinite, or every token"
                     " that is not forbidden has none",
                     slot->targets[i].position - 1);
        }
        request_end(e, r, ENGINE_FINISH_ERROR, message);
    }
}

/* One drawn token. Returns whether the choice is over. */
static bool take_token(struct engine *e, const struct step_target *target, const struct k_sample_result *result)
{
    const struct seq_owner *owner = &e->owners[target->seq];
    struct request *r = owner->request;
    struct request_choice *c = &r->choices[owner->choice];
    c->n_generated++;
    e->report.stats.n_generation_tokens++;
    if (r->sampling.counts_output)
        token_counts_add(&c->counts, result->token);
    event_token(e, r, owner->choice, target->position, result);
    if (sampling_stops(&r->sampling, result->token))
        event_done(e, r, owner->choice, ENGINE_FINISH_STOP, result->token);
    else if (c->n_generated == r->max_tokens)
        event_done(e, r, owner->choice, ENGINE_FINISH_LENGTH, -1);
    return c->done;
}

static uint32_t take_results(struct engine *e, const struct step_slot *slot)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < slot->n_targets; i++) {
        const struct step_target *target = &slot->targets[i];
        const struct seq_owner *owner = &e->owners[target->seq];
        /* A prompt's logprobs are choice 0's, though another computes the prompt once that was cancelled. */
        if (owner->request->choices[target->drawn ? owner->choice : 0].done)
            continue;
        if (!target->drawn) {
            event_prompt_logprob(e, owner->request, target->position, &slot->results[i]);
            continue;
        }
        bool over = take_token(e, target, &slot->results[i]);
        e->sched_tokens[n] = slot->results[i].token;
        e->sched_results[n] = (struct sched_result){
            .seq = target->seq, .n_tokens = 1, .tokens = &e->sched_tokens[n], .finished = over};
        n++;
    }
    return n;
}

/* Rows that reached the prompt's end: it counts once, and a choice that generates nothing is
 * over. */
static void end_of_prompts(struct engine *e, const struct sched_plan *plan)
{
    for (uint32_t i = 0; i < plan->n_rows; i++) {
        const struct sched_row *row = &plan->rows[i];
        struct request *r = e->owners[row->seq].request;
        uint32_t choice = e->owners[row->seq].choice;
        if (row->first + row->count < r->n_prompt)
            continue;
        if (!r->prompt_counted)
            e->report.stats.n_prompt_tokens += r->n_prompt;
        r->prompt_counted = true;
        if (r->max_tokens == 0 && !r->choices[choice].done)
            event_done(e, r, choice, ENGINE_FINISH_LENGTH, -1);
    }
}

const uint32_t engine_step_bounds[ENGINE_N_STEP_BUCKETS] = {1,   8,    16,   32,   64,   128,  256,
                                                            512, 1024, 2048, 4096, 8192, 16384};

static void count_tokens(struct engine *e, uint32_t n_tokens)
{
    struct engine_stats *stats = &e->report.stats;
    e->report.n_tokens += n_tokens;
    stats->n_step_tokens += n_tokens;
    for (uint32_t i = ENGINE_N_STEP_BUCKETS; i-- > 0 && n_tokens <= engine_step_bounds[i];)
        stats->step_buckets[i]++;
}

int step_commit(struct engine *e, struct step_slot *slot, struct quire_error *err)
{
    int status = forward_wait(e->forward, slot->ticket, err);
    if (status != QUIRE_OK)
        return status;
    uint64_t done_us = e->n_watches ? quire_now_us() : 0;
    end_bad_requests(e, slot);
    uint32_t n = take_results(e, slot);
    end_of_prompts(e, slot->plan);
    count_tokens(e, slot->plan->n_tokens);
    status = sched_commit(e->sched, e->sched_results, n, NULL, NULL, err);
    if (status != QUIRE_OK)
        return status;
    const struct engine_watch_commit commit = {.launched_us = slot->launched_us,
                                               .done_us = done_us,
                                               .plan = slot->plan,
                                               .results = e->sched_results,
                                               .n_results = n,
                                               .sched = e->sched};
    ENGINE_WATCH(e, committed, &commit);
    return QUIRE_OK;
}
