/* A scheduler's plan becomes a forward pass, and the pass's results become tokens and events. */
#include "engine/run/step.h"

#include "base/clock.h"
#include "engine/run/draft_model.h"
#include "engine/run/draft_scratch.h"
#include "engine/run/events.h"
#include "engine/run/speculate.h"
#include "scheduler/fit/cost_fitter.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A logit row of a step and the choice that needs it. */
struct step_target {
    uint32_t seq;
    uint32_t position; /* position of the token that is drawn or reported */
    bool drawn;        /* false: a prompt token's logprob */
    bool rejected;     /* drawn after a draft that was wrong, or not at all: draft_scratch.h */
};

/* A launched step until it is committed. */
struct step_slot {
    uint64_t number; /* the plan's */
    uint64_t ticket;
    uint64_t launched_us, done_us; /* before its moves, when its results were there; 0 unless is_timed() */
    uint32_t n_targets;
    struct step_target *targets; /* [max_logit_rows] each */
    struct k_sample_row *rows;
    const struct k_sample_result *results; /* [n_targets], the forward pass's */
    uint32_t n_vectors;
    const float *vectors;         /* [n_vectors, vector_size], likewise */
    struct draft_scratch scratch; /* scratch that the rows of drafts point into */
};

struct steps {
    struct step_slot slots[ENGINE_MAX_SLOTS];
    uint32_t block_shift; /* block_tokens is 1 << block_shift */
    uint64_t planned_us;  /* when the last plan was there; 0 unless is_timed() */
    uint64_t ended_us;    /* done_us of the last step */
};

int steps_create(struct engine *e, struct quire_error *err)
{
    const uint32_t n = e->plan->max_logit_rows;
    struct steps *steps = calloc(1, sizeof *steps);
    bool ok = steps;
    e->run->steps = steps;
    for (uint32_t i = 0; ok && i <= engine_plan_overlap_depth(e->plan); i++) {
        struct step_slot *slot = &steps->slots[i];
        slot->targets = calloc(n, sizeof *slot->targets);
        slot->rows = calloc(n, sizeof *slot->rows);
        ok = slot->targets && slot->rows &&
             draft_scratch_create(&slot->scratch, e->plan->max_num_seqs, NULL) == QUIRE_OK;
    }
    if (!ok)
        return quire_fail(err, QUIRE_NO_MEMORY, "steps: out of memory");
    steps->block_shift = (uint32_t)__builtin_ctz(e->plan->block_tokens); /* which plan.c has checked */
    return QUIRE_OK;
}

void steps_destroy(struct steps *steps)
{
    if (!steps)
        return;
    for (uint32_t i = 0; i < ENGINE_MAX_SLOTS; i++) {
        free(steps->slots[i].targets);
        free(steps->slots[i].rows);
        draft_scratch_destroy(&steps->slots[i].scratch);
    }
    free(steps);
}

void request_end(struct engine *e, struct request *r, enum engine_finish finish, const char *message)
{
    if (message)
        quire_fail(&r->error, QUIRE_INTERNAL, "%s", message);
    for (uint32_t i = 0; i < r->spec->n; i++)
        if (!r->choices[i].done)
            event_done(e, r, i, finish, -1);
    if (r->key == 0) /* the scheduler has never seen it */
        return;
    sched_cancel(e->run->sched, r->key);
    ENGINE_WATCH(e, cancelled, quire_now_us(), r->key);
}

/* ---- plan → arrays --------------------------------------------------------------------------- */

/* A row of the plan whose tokens are drawn, from one position to the next. */
struct drawing {
    const struct sched_row *row;
    struct seq_owner *owner;
    const uint32_t *tokens;
    uint32_t n_prompt;
    struct token_counts counts; /* before the draw */
    struct k_logit_bias *scratch;  /* of the draw */
    bool verifies;              /* the scratch that verification needs is available */
};

static struct drawing begin_drawing(struct seq_owner *owner, const struct sched_row *row, const uint32_t *tokens)
{
    struct request *r = owner->request;
    const struct request_choice *c = &r->choices[owner->choice];
    return (struct drawing){.row = row,
                            .owner = owner,
                            .tokens = tokens,
                            .n_prompt = r->spec->n_prompt,
                            .counts = sampling_counts_output(&r->sampling) ? *request_counts(r, owner->choice)
                                                                           : c->counts,
                            .scratch = c->row_scratch,
                            .verifies = true};
}

/* Adds the row that draws after position p. After the first, p is a draft's position. A row that is not verified may
 * report any token. */
static void add_draw(struct step_slot *slot, struct drawing *d, uint32_t p, uint32_t at)
{
    const struct sched_row *row = d->row;
    struct seq_owner *owner = d->owner;
    const struct request *r = owner->request;
    if (p + row->n_draft >= row->first + row->count)
        d->verifies = d->verifies &&
                      draft_scratch_take(&slot->scratch, &r->sampling, d->tokens[p], &d->counts, &d->scratch);
    const struct sampling_state state = {
        .counts = &d->counts,
        .generated = d->tokens + d->n_prompt,
        .n_generated = p + 1 - d->n_prompt, /* the choice's is one behind with a step in flight */
        .position = p + 1,
        .choice = owner->choice,
        .scratch = d->scratch,
    };
    if (d->verifies)
        sampling_row(&r->sampling, &state, &slot->rows[at]);
    else
        sampling_prompt_row(&r->sampling, 0, p + 1, &slot->rows[at]);
    owner->sampled_row = at;
    owner->sampled_step = slot->number;
}

/* The grammar's masks of a row's draws, from the logit row `at` on. */
static void restrict_row(struct engine *e, struct step_slot *slot, const struct sched_row *row, const uint32_t *tokens,
                         uint32_t at)
{
    const struct seq_owner *owner = &e->run->owners[row->seq];
    const uint32_t n_prompt = owner->request->spec->n_prompt;
    const struct constraint_text text = {.tokens = tokens + n_prompt,
                                         .n_tokens = row->first + row->count - row->n_draft - n_prompt,
                                         .n_drafts = row->n_draft};
    constraints_draw(e->constraints, &owner->request->grammar->choices[owner->choice], &text, slot->rows, at);
}

/* Sets up the logit rows of one plan row; token_index is where its first token lies in the step. */
static void add_targets(struct engine *e, struct step_slot *slot, const struct sched_row *row, const uint32_t *tokens,
                        uint32_t token_index, uint32_t *output_tokens)
{
    struct seq_owner *owner = &e->run->owners[row->seq];
    struct request *r = owner->request;
    uint32_t end = row->first + row->count;
    uint32_t first_drawn = UINT32_MAX;
    struct drawing drawing = begin_drawing(owner, row, tokens);
    for (uint32_t p = row->first_logit; p < end; p++) {
        uint32_t at = slot->n_targets;
        bool drawn = row->outputs.tokens && p + 1 + row->n_draft >= end;
        if (drawn) {
            add_draw(slot, &drawing, p, at);
        } else if (p + 1 == r->next_prompt_logprob && p + 1 < drawing.n_prompt) {
            /* Positions that a preempted prompt computes again were reported before. */
            r->next_prompt_logprob++;
            sampling_prompt_row(&r->sampling, tokens[p + 1], p + 1, &slot->rows[at]);
        } else {
            continue;
        }
        slot->targets[at] = (struct step_target){
            .seq = row->seq, .position = p + 1, .drawn = drawn, .rejected = !drawing.verifies};
        output_tokens[at] = token_index + (p - row->first);
        slot->n_targets++;
        if (drawn && first_drawn == UINT32_MAX)
            first_drawn = at;
    }
    if (r->grammar && first_drawn != UINT32_MAX)
        restrict_row(e, slot, row, tokens, first_drawn);
}

/* By shifts: a row that decodes has nothing else as slow as three divisions. */
static uint32_t n_entries_of(uint32_t block_shift, const struct sched_row *row)
{
    return ((row->first + row->count - 1) >> block_shift) + 1;
}

/* Slots and block tables of one row in every KV group. */
static int add_blocks(struct engine *e, const struct sched_row *row, uint32_t token, uint32_t table, uint32_t n_entries,
                      const struct forward_batch *batch, struct quire_error *err)
{
    uint32_t bt = e->plan->block_tokens;
    const uint32_t shift = e->run->steps->block_shift;
    struct sched *sched = e->run->sched;
    for (uint32_t g = 0; g < e->plan->n_kv_groups; g++) {
        uint32_t n_blocks;
        const uint32_t *blocks = sched_blocks(sched, row->seq, g, &n_blocks);
        if (n_blocks < n_entries)
            return quire_fail(err, QUIRE_INTERNAL, "sequence %u: %u blocks in KV group %u, its row needs %u", row->seq,
                              n_blocks, g, n_entries);
        memcpy(batch->tables[g] + table, blocks, n_entries * sizeof *blocks);
        uint32_t *slots = batch->slots[g] + token;
        uint32_t position = row->first, end = row->first + row->count;
        while (position < end) {
            uint32_t block = blocks[position >> shift];
            if (block >= e->plan->groups[g].n_blocks)
                return quire_fail(err, QUIRE_INTERNAL,
                                  "sequence %u: no block in KV group %u for"
                                  " position %u",
                                  row->seq, g, position);
            uint32_t offset = position & (bt - 1);
            for (; offset < bt && position < end; offset++, position++)
                *slots++ = block * bt + offset;
        }
    }
    return QUIRE_OK;
}

/* The newest token of a sequence may still be with the device, in the results of the step launched last. `number`: of
 * the step that is being made. */
static int add_pending(const struct engine *e, uint64_t number, const struct sched_row *row, uint32_t token,
                       struct forward_batch *batch, struct quire_error *err)
{
    const struct seq_owner *owner = &e->run->owners[row->seq];
    if (sched_driver_in_flight(e->run->driver) == 0 || owner->sampled_step + 1 != number)
        return quire_fail(err, QUIRE_INTERNAL,
                          "sequence %u: the token at position %u is not known, and no step samples it", row->seq,
                          row->first + row->count - 1);
    batch->ids[token] = 0;
    batch->sources[batch->n_sources++] = (struct k_token_source){.token = token, .row = owner->sampled_row};
    return QUIRE_OK;
}

/* Sets the token type of each token of a pair, and the tokens that make the row's vector. */
static void add_text(struct engine *e, struct step_slot *slot, const struct sched_row *row, uint32_t token,
                     struct forward_batch *batch)
{
    const uint32_t from = e->run->owners[row->seq].request->spec->segment_from;
    for (uint32_t i = 0; batch->segments && i < row->count; i++)
        batch->segments[token + i] = from > 0 && row->first + i >= from;
    if (!row->outputs.vector)
        return;
    const uint32_t last = token + row->count - 1, at = slot->n_vectors++;
    batch->output_tokens[at] = last;
    switch (e->model->desc.config->outputs.pooling) {
    case POOLING_MEAN: batch->pool_rows[at] = (struct k_pool_row){token, row->count}; break;
    case POOLING_CLS: batch->pool_rows[at] = (struct k_pool_row){token, 1}; break;
    default:
        batch->pool_rows[at] = (struct k_pool_row){e->model->desc.config->encoder ? last : at, 1};
        break; /* or of the last tokens */
    }
}

static uint32_t n_vectors_of(const struct sched_plan *plan)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->n_rows; i++)
        n += plan->rows[i].outputs.vector;
    return n;
}

static int add_row(struct engine *e, struct step_slot *slot, const struct sched_row *row, uint32_t token,
                   uint32_t table, uint32_t n_entries, struct forward_batch *batch, struct quire_error *err)
{
    uint32_t n_known, end = row->first + row->count;
    const uint32_t *tokens = sched_tokens(e->run->sched, row->seq, &n_known);
    if (n_known < end)
        return quire_fail(err, QUIRE_INTERNAL, "sequence %u: %u tokens are known, its row needs %u", row->seq, n_known,
                          end);
    if (row->count == 1) /* all that decode: not worth a call */
        batch->ids[token] = tokens[row->first];
    else
        memcpy(batch->ids + token, tokens + row->first, row->count * sizeof *tokens);
    if (tokens[end - 1] == SCHED_PENDING) {
        int status = add_pending(e, slot->number, row, token + row->count - 1, batch, err);
        if (status != QUIRE_OK)
            return status;
    }
    const uint32_t first_position = model_encoder_of(e->model->desc.config).first_position + row->first;
    for (uint32_t i = 0; i < row->count; i++)
        batch->positions[token + i] = first_position + i;
    if (e->model->desc.config->outputs.kind != OUTPUT_TOKENS)
        add_text(e, slot, row, token, batch);
    add_targets(e, slot, row, tokens, token, batch->output_tokens);
    return add_blocks(e, row, token, table, n_entries, batch, err);
}

/* Whether somebody needs the times of steps. */
static bool is_timed(const struct engine *e)
{
    return e->n_watches > 0 || e->run->fitter;
}

/* The moves come from the scheduler, which is trusted only so far: a wrong one would write anywhere. */
int step_move(struct engine *e, const struct sched_plan *plan, struct quire_error *err)
{
    e->run->steps->planned_us = is_timed(e) ? quire_now_us() : 0;
    for (uint32_t i = 0; i < plan->n_moves; i++) {
        const struct kv_move *m = &plan->moves[i];
        if (m->group >= engine_plan_n_groups(e->plan) || m->device_block >= e->plan->groups[m->group].n_blocks ||
            m->host_block >= e->plan->groups[m->group].n_host_blocks)
            return quire_fail(err, QUIRE_INTERNAL, "KV group %u has no block %u, or no host block %u", m->group,
                              m->device_block, m->host_block);
    }
    int status = e->ranks ? ranks_move(e->ranks, plan->moves, plan->n_moves, err) : QUIRE_OK;
    if (status == QUIRE_OK)
        status = forward_move(e->forward, plan->moves, plan->n_moves, err);
    return status == QUIRE_OK && e->draft_model ? draft_model_move(e->draft_model, plan->moves, plan->n_moves, err)
                                                : status;
}

static void complete_rows(void *engine)
{
    struct engine *e = engine;
    constraints_ready(e->constraints);
}

/* The masks are made while the layers are computed. A step that fails must not leave that work behind. */
static int run_restricted(struct engine *e, struct step_slot *slot, struct forward_batch *batch,
                          struct quire_error *err)
{
    batch->rows_ready = complete_rows;
    batch->rows_context = e;
    constraints_start(e->constraints);
    int status = forward_run(e->forward, batch, slot->rows, &slot->results, &slot->ticket, err);
    constraints_ready(e->constraints);
    for (uint32_t i = 0; i < slot->n_targets; i++)
        slot->targets[i].rejected |= slot->targets[i].drawn && e->run->owners[slot->targets[i].seq].request->grammar &&
                                     constraints_rejects(e->constraints, i);
    return status;
}

int step_launch(void *engine, const struct sched_step *step, struct quire_error *err)
{
    struct engine *e = engine;
    const struct steps *steps = e->run->steps;
    struct step_slot *slot = &e->run->steps->slots[step->slot];
    const struct sched_plan *plan = step->plan;
    uint32_t n_entries = 0, token = 0, table = 0;
    struct forward_batch batch;
    for (uint32_t i = 0; i < plan->n_rows; i++)
        n_entries += n_entries_of(steps->block_shift, &plan->rows[i]);
    const bool vectors = e->model->desc.config->outputs.kind != OUTPUT_TOKENS;
    forward_begin(e->forward, plan->n_tokens, plan->n_rows, vectors ? n_vectors_of(plan) : plan->n_logits, n_entries,
                  &batch);
    slot->number = plan->step;
    slot->launched_us = steps->planned_us;
    slot->n_targets = slot->n_vectors = 0;
    slot->scratch.n = 0;
    for (uint32_t i = 0; i < plan->n_rows; i++) {
        const struct sched_row *row = &plan->rows[i];
        batch.rows[i] = (struct k_attn_row){
            .token = token, .n_tokens = row->count, .position = row->first, .table = table};
        uint32_t n_row_entries = n_entries_of(steps->block_shift, row);
        int status = add_row(e, slot, row, token, table, n_row_entries, &batch, err);
        if (status != QUIRE_OK)
            return status;
        if (e->draft_model)
            draft_model_launched(e->draft_model, row);
        token += row->count;
        table += n_row_entries;
    }
    batch.n_outputs = vectors ? slot->n_vectors : slot->n_targets;
    e->run->report.stats.token_budget = plan->token_budget;
    if (e->ranks) {
        int status = ranks_step(e->ranks, &batch, err);
        if (status != QUIRE_OK)
            return status;
    }
    if (vectors)
        return forward_run_vectors(e->forward, &batch, &slot->vectors, &slot->ticket, err);
    if (e->constraints)
        return run_restricted(e, slot, &batch, err);
    return forward_run(e->forward, &batch, slot->rows, &slot->results, &slot->ticket, err);
}

/* ---- results → tokens ------------------------------------------------------------------------ */

/* In a row that verifies drafts, only the draws after accepted drafts follow tokens of the answer. */
static void reject_drafts(struct engine *e, const struct sched_row *row, struct step_slot *slot, uint32_t at)
{
    uint32_t n_known, end = row->first + row->count;
    const uint32_t *tokens = sched_tokens(e->run->sched, row->seq, &n_known);
    bool rejected = false;
    for (; at < slot->n_targets && slot->targets[at].seq == row->seq; at++) {
        struct step_target *target = &slot->targets[at];
        target->rejected |= rejected;
        rejected |= target->drawn && target->position < end && slot->results[at].token != tokens[target->position];
    }
}

static void reject_all(struct engine *e, const struct sched_plan *plan, struct step_slot *slot)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < plan->n_rows; i++) {
        const struct sched_row *row = &plan->rows[i];
        if (row->n_draft == 0)
            continue;
        while (slot->targets[at].seq != row->seq)
            at++;
        reject_drafts(e, row, slot, at);
    }
}

/* Draws after drafts: the tokens before them count, and the next step draws this one again, as a step without drafts
 * does. */
static void reject_from(struct step_slot *slot, uint32_t i)
{
    for (const uint32_t seq = slot->targets[i].seq; i < slot->n_targets && slot->targets[i].seq == seq; i++)
        slot->targets[i].rejected = true;
}

static bool is_after_draft(const struct step_slot *slot, uint32_t i)
{
    const struct step_target *t = &slot->targets[i];
    return t->drawn && i > 0 && t[-1].drawn && t[-1].seq == t->seq;
}

/* A request that cannot draw any token ends with all its choices. Other requests are not affected. */
static void end_bad_requests(struct engine *e, struct step_slot *slot)
{
    for (uint32_t i = 0; i < slot->n_targets; i++) {
        if (!slot->results[i].bad_logits || slot->targets[i].rejected)
            continue;
        if (is_after_draft(slot, i)) {
            reject_from(slot, i);
            continue;
        }
        struct request *r = e->run->owners[slot->targets[i].seq].request;
        if (r->n_open == 0)
            continue;
        /* Which parameters alone leave some token was checked at submit: only bad words remain. */
        if (slot->targets[i].drawn && sampling_row_forbids_all(&slot->rows[i], e->model->desc.config->vocab_size))
            r->status = quire_fail_for(&r->error, QUIRE_INVALID, r->grammar ? "structured_outputs" : "bad_words",
                                       "%s token that might be drawn at position %u is forbidden",
                                       r->grammar ? "by the grammar and the request's other rules every" : "every",
                                       slot->targets[i].position);
        else
            quire_fail(
                &r->error, QUIRE_INTERNAL,
                "the model's logits at position %u are unusable: they are NaN or infinite, or every token that is"
                " allowed has no logit",
                slot->targets[i].position - 1);
        request_end(e, r, ENGINE_FINISH_ERROR, NULL);
    }
}

/* One drawn token, the nth of its row. Returns whether the choice is over. */
static bool take_token(struct engine *e, struct request *r, uint32_t choice, uint32_t n, uint32_t position,
                       const struct k_sample_result *result)
{
    struct request_choice *c = &r->choices[choice];

    c->n_generated++;
    if (sampling_counts_output(&r->sampling))
        token_counts_add(&c->counts, result->token);
    event_token(e, r, choice, position, result);
    if (sampling_stops(&r->sampling, result->token))
        event_done(e, r, choice, ENGINE_FINISH_STOP, result->token);
    else if (r->grammar && constraint_is_over(&r->grammar->choices[choice], n))
        event_done(e, r, choice, ENGINE_FINISH_STOP, -1);
    else if (c->n_generated == r->spec->max_tokens)
        event_done(e, r, choice, ENGINE_FINISH_LENGTH, -1);
    return c->done;
}

/* A row that reached the prompt's end: it counts once, and a choice that generates nothing is over. */
static void end_of_prompt(struct engine *e, struct request *r, uint32_t choice)
{
    if (!r->prompt_counted)
        e->run->report.stats.n_prompt_tokens += r->spec->n_prompt;
    r->prompt_counted = true;
    if (r->spec->max_tokens == 0 && !r->choices[choice].done)
        event_done(e, r, choice, ENGINE_FINISH_LENGTH, -1);
}

/* The results of a row's logits, from *at on. Returns whether it gave a token. */
static bool take_row(struct engine *e, const struct step_slot *slot, const struct sched_row *row, uint32_t *at,
                     uint32_t *tokens, struct sched_result *out)
{
    const struct seq_owner *owner = &e->run->owners[row->seq];
    struct request *r = owner->request;
    const uint32_t choice = owner->choice;
    struct request_choice *c = &r->choices[choice];
    const struct step_target *target = &slot->targets[*at], *end = &slot->targets[slot->n_targets];
    const struct k_sample_result *result = &slot->results[*at];
    const uint32_t seq = row->seq;
    uint32_t n = 0;
    *out = sched_result_of(row, tokens);
    if (row->n_draft > 0 && !c->done)
        speculate_verified(e, row);
    for (; target < end && target->seq == seq; target++, result++, ++*at) {
        if (target->drawn && !target->rejected && !c->done) {
            if (n > 0)
                speculate_accepted(e, seq, n - 1);
            tokens[n++] = result->token;
            out->finished = take_token(e, r, choice, n, target->position, result);
        } else if (!target->drawn && !r->choices[0].done) {
            /* A prompt's logprobs are choice 0's, though another computes the prompt once that was cancelled. */
            event_prompt_logprob(e, r, target->position, result);
        }
    }
    if (row->first + row->count >= r->spec->n_prompt && (!r->prompt_counted || r->spec->max_tokens == 0))
        end_of_prompt(e, r, choice);
    if (n > 1)
        out->n_accepted = n - 1;
    return n > 0;
}

/* A prompt's vector; one that is no vector ends its request. */
static void take_vector(struct engine *e, const struct sched_row *row, const float *vector)
{
    struct request *r = e->run->owners[row->seq].request;
    bool finite = true;
    if (r->choices[0].done)
        return;
    for (uint32_t i = 0; i < e->model->desc.config->outputs.vector_size; i++)
        finite = finite && isfinite(vector[i]);
    if (finite)
        event_vector(e, r, vector, e->model->desc.config->outputs.vector_size);
    else
        request_end(e, r, ENGINE_FINISH_ERROR, "the model's vector is unusable: it has NaN or infinite numbers");
}

uint32_t step_take(void *engine, const struct sched_step *step, struct sched_result *results, uint32_t *tokens)
{
    struct engine *e = engine;
    const struct step_slot *slot = &e->run->steps->slots[step->slot];
    const struct sched_plan *plan = step->plan;
    const uint32_t *first = tokens;
    uint32_t n = 0, at = 0, vector = 0;
    for (uint32_t i = 0; i < plan->n_rows; i++) {
        if (plan->rows[i].outputs.vector)
            take_vector(e, &plan->rows[i],
                        slot->vectors + (uint64_t)vector++ * e->model->desc.config->outputs.vector_size);
        if (!take_row(e, slot, &plan->rows[i], &at, tokens, &results[n]))
            continue;
        tokens += results[n++].n_accepted + 1;
    }
    e->run->report.stats.n_generation_tokens += (uint64_t)(tokens - first);
    return n;
}

/* The constraint of a row's choice if `i` is the first draw whose token counts, otherwise NULL. *n: the draws that
 * count. */
static struct constraint *constraint_at(const struct engine *e, const struct step_slot *slot, uint32_t i, uint32_t *n)
{
    const struct step_target *target = &slot->targets[i];
    const struct seq_owner *owner = &e->run->owners[target->seq];
    struct request *r = owner->request;
    *n = 1;
    if (!r->grammar || !target->drawn || target->rejected || r->choices[owner->choice].done)
        return NULL;
    while (i + *n < slot->n_targets && target[*n].seq == target->seq && target[*n].drawn && !target[*n].rejected)
        ++*n;
    return &r->grammar->choices[owner->choice];
}

/* The tokens that each restricted row gave, before they become events: they may complete the answer. */
static void take_constraints(struct engine *e, struct step_slot *slot)
{
    for (uint32_t i = 0, n; i < slot->n_targets; i += n) {
        const struct step_target *target = &slot->targets[i];
        struct constraint *x = constraint_at(e, slot, i, &n);
        if (!x)
            continue;
        uint32_t n_known, n_prompt = e->run->owners[target->seq].request->spec->n_prompt;
        const uint32_t *tokens = sched_tokens(e->run->sched, target->seq, &n_known);
        const struct constraint_text before = {.tokens = tokens + n_prompt, .n_tokens = target->position - n_prompt};
        constraints_take(e->constraints, x, &before, &slot->results[i], n);
    }
    constraints_taken(e->constraints);
    for (uint32_t i = 0, n; i < slot->n_targets; i += n) {
        const struct constraint *x = constraint_at(e, slot, i, &n);
        if (x && !x->over && x->n_taken > 0 && x->n_taken < n)
            reject_from(slot, i + x->n_taken);
    }
}

/* A grammar that became too complex ends its request. */
static void end_failed_grammars(struct engine *e, const struct step_slot *slot)
{
    for (uint32_t i = 0; i < slot->n_targets; i++) {
        const struct seq_owner *owner = &e->run->owners[slot->targets[i].seq];
        struct request *r = owner->request;
        const struct constraint *x = r->grammar ? &r->grammar->choices[owner->choice] : NULL;
        if (!x || x->status == QUIRE_OK || r->n_open == 0)
            continue;
        r->status = x->status;
        r->error = x->error;
        r->error.parameter = "structured_outputs";
        request_end(e, r, ENGINE_FINISH_ERROR, NULL);
    }
}

const uint32_t engine_step_bounds[ENGINE_N_STEP_BUCKETS] = {1,   8,    16,   32,   64,   128,  256,
                                                            512, 1024, 2048, 4096, 8192, 16384};

static void count_tokens(struct engine *e, uint32_t n_tokens)
{
    struct engine_stats *stats = &e->run->report.stats;
    e->run->report.n_tokens += n_tokens;
    stats->n_step_tokens += n_tokens;
    for (uint32_t i = ENGINE_N_STEP_BUCKETS; i-- > 0 && n_tokens <= engine_step_bounds[i];)
        stats->step_buckets[i]++;
}

int step_wait(void *engine, const struct sched_step *step, struct quire_error *err)
{
    struct engine *e = engine;
    struct step_slot *slot = &e->run->steps->slots[step->slot];
    int status = forward_wait(e->forward, slot->ticket, err);
    if (status != QUIRE_OK)
        return status;
    slot->done_us = is_timed(e) ? quire_now_us() : 0;
    if (step->plan->n_tokens > step->plan->n_rows)
        reject_all(e, step->plan, slot);
    if (e->constraints)
        end_failed_grammars(e, slot); /* of masks */
    end_bad_requests(e, slot);
    if (e->constraints) {
        take_constraints(e, slot);
        end_failed_grammars(e, slot); /* of tokens */
    }
    count_tokens(e, step->plan->n_tokens);
    return QUIRE_OK;
}

/* With an overlap, a step is launched while the one before it runs. */
static void learn_time(struct engine *e, const struct step_slot *slot, const struct sched_plan *plan)
{
    struct steps *steps = e->run->steps;
    const uint64_t began_us = slot->launched_us > steps->ended_us ? slot->launched_us : steps->ended_us;
    struct sched_shape shape = sched_plan_shape(plan);
    steps->ended_us = slot->done_us;
    if (slot->done_us > began_us)
        cost_fitter_add(e->run->fitter, &shape, (double)(slot->done_us - began_us));
}

void step_committed(void *engine, const struct sched_committed *committed)
{
    struct engine *e = engine;
    const struct step_slot *slot = &e->run->steps->slots[committed->step->slot];
    if (e->run->fitter)
        learn_time(e, slot, committed->step->plan);
    const struct engine_watch_commit commit = {.launched_us = slot->launched_us,
                                               .done_us = slot->done_us,
                                               .plan = committed->step->plan,
                                               .results = committed->results,
                                               .n_results = committed->n_results,
                                               .sched = e->run->sched};
    ENGINE_WATCH(e, committed, &commit);
    speculate_committed(e, committed);
}
