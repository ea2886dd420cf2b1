#include "engine/run/draft_model.h"

#include "base/clock.h"
#include "engine/model/draft.h"
#include "engine/run/state.h"

#include <stdlib.h>
#include <string.h>

/* A sequence with at most this many positions left is served before those with a prompt to compute. A sequence that
 * follows the model step by step never has more. */
#define NEARLY_THERE (DRAFT_MAX + 1)
/* Moves of one call to the forward pass. */
#define MOVES_AT_ONCE 128u
/* Blocks that the positions of a sequence's guesses touch. */
#define MAX_GUESS_BLOCKS (DRAFT_MAX / 8 + 2)

/* The computed positions of a sequence at its last query, when only the first of their tokens was certain. */
struct slot {
    uint32_t first, n;  /* positions [first, first + n) */
    uint32_t n_table;   /* blocks that the sequence had then */
    bool asked;         /* in this call */
    uint32_t tokens[DRAFT_MAX + 1];
};

/* A sequence on its way through the passes. */
struct asked {
    struct draft_ask *ask;
    const uint32_t *blocks; /* [n_table] its own */
    uint32_t n_table;
    uint32_t most;          /* guesses */
    uint32_t first, count;  /* positions of its row in the pass */
    bool draws;             /* the pass gives its next guess */
};

struct draft_model {
    struct drafter drafter; /* first */
    struct engine *engine;  /* borrowed */
    struct opened_model *files; /* owned */
    struct model_desc desc;     /* of them */
    struct engine_draft about;
    uint32_t block_tokens, n_kv_groups, max_num_batched_tokens; /* of its own passes */
    enum k_gemm_form form;
    struct weights *weights;
    struct forward *forward;
    uint32_t group, n_blocks;                /* the engine's group */
    uint32_t n_slot_blocks;                  /* behind them, for each slot */
    uint8_t *n_valid, *n_host_valid;         /* by block and host block: leading positions computed */
    struct slot *slots;                      /* [max_num_seqs] each */
    struct asked *asked;
    struct k_sample_row *rows;
    const struct k_sample_result *results; /* results of the last pass; owned by the forward pass */
    struct k_block_pair *copies;             /* [max_num_seqs * MAX_GUESS_BLOCKS] */
    uint32_t n_copies;
    double us;                               /* draft_model_us() */
};

static uint32_t min32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

int draft_model_prepare(struct engine *e, const struct engine_options *o, struct quire_error *err)
{
    if (engine_step_options(o)->speculative.method != DRAFT_MODEL)
        return QUIRE_OK;
    struct draft_model *d = calloc(1, sizeof *d);
    e->draft_model = d;
    if (d)
        d->files = calloc(1, sizeof *d->files);
    if (!d || !d->files)
        return quire_fail(err, QUIRE_NO_MEMORY, "draft model: out of memory");
    d->engine = e;
    int status = model_open_draft(engine_step_options(o)->speculative.model, o->model_dir, e->model->desc.config,
                                  o->ignore_unused_tensors, d->files, err);
    d->desc = opened_model_desc(d->files);
    uint64_t mapped_bytes;
    if (status == QUIRE_OK)
        status = weights_look_share(d->files->checkpoint, e->backend->ops->planner, &d->desc, &mapped_bytes, err);
    if (status != QUIRE_OK) {
        quire_error_prefix(err, "--speculative-config: model");
        return status;
    }
    d->about = (struct engine_draft){.desc = &d->desc,
                                     .weight_bytes = checkpoint_total_bytes(d->files->checkpoint),
                                     .n_tokens = engine_step_options(o)->speculative.num_speculative_tokens};
    /* Its output is never part of an answer, so it may use the form that supports every format. */
    d->form = e->backend->form;
    if (!e->backend->ops->supports(e->backend, K_OP_GEMM, d->form, model_weight_format(&d->desc)))
        d->form = K_FORM_LANE;
    return QUIRE_OK;
}

const struct engine_draft *draft_model_about(const struct draft_model *d)
{
    return d ? &d->about : NULL;
}

/* The backend has one form for every GEMM: the draft model's while it computes. */
static void swap_form(struct draft_model *d)
{
    enum k_gemm_form form = d->engine->backend->form;
    d->engine->backend->form = d->form;
    d->form = form;
}

int draft_model_bind(struct engine *e, struct quire_error *err)
{
    struct draft_model *d = e->draft_model;
    if (!d)
        return QUIRE_OK;
    const struct weights_progress nobody = {.fn = NULL};
    int status = weights_create(e->backend, d->files->checkpoint, &d->desc, d->form, NULL, nobody, &d->weights, err);
    if (status != QUIRE_OK)
        quire_error_prefix(err, "--speculative-config: model");
    return status;
}

/* Bytes per slot in all arrays. */
#define SLOT_BYTES \
    (sizeof(struct slot) + sizeof(struct asked) + sizeof(struct k_sample_row) + \
     MAX_GUESS_BLOCKS * sizeof(struct k_block_pair))

static uint64_t n_counted_blocks(const struct engine_plan *plan)
{
    return (uint64_t)plan->groups[plan->n_kv_groups].n_blocks + plan->groups[plan->n_kv_groups].n_host_blocks;
}

uint64_t draft_model_host_bytes(const struct engine_plan *plan)
{
    return sizeof(struct draft_model) + sizeof(struct opened_model) + plan->max_num_seqs * SLOT_BYTES +
           n_counted_blocks(plan);
}

static int alloc_arrays(struct draft_model *d, struct quire_error *err)
{
    const struct engine_plan *plan = d->engine->plan;
    uint32_t n = plan->max_num_seqs;
    d->group = plan->n_kv_groups;
    d->n_blocks = plan->groups[d->group].n_blocks;
    d->n_slot_blocks = plan->n_draft_blocks / n;
    d->rows = calloc(1, n * SLOT_BYTES + n_counted_blocks(plan)); /* all arrays, the most aligned first */
    if (!d->rows)
        return quire_fail(err, QUIRE_NO_MEMORY, "draft model: out of memory");
    d->asked = (struct asked *)(d->rows + n);
    d->copies = (struct k_block_pair *)(d->asked + n);
    d->slots = (struct slot *)(d->copies + (size_t)n * MAX_GUESS_BLOCKS);
    d->n_valid = (uint8_t *)(d->slots + n);
    d->n_host_valid = d->n_valid + d->n_blocks;
    return QUIRE_OK;
}

int draft_model_open(struct engine *e, const struct engine_plan *plan, bool graphs, struct quire_error *err)
{
    struct draft_model *d = e->draft_model;
    d->block_tokens = plan->block_tokens;
    d->n_kv_groups = plan->n_kv_groups;
    d->max_num_batched_tokens = plan->max_num_batched_tokens;
    int status = draft_model_bind(e, err);
    if (status == QUIRE_OK)
        status = alloc_arrays(d, err);
    if (status != QUIRE_OK)
        return status;
    swap_form(d);
    status = forward_create(e->backend, &d->desc, plan, d->weights, NULL, &d->forward, err);
    if (status == QUIRE_OK)
        status = forward_ready(d->forward, graphs, err);
    swap_form(d);
    return status;
}

void draft_model_close(struct draft_model *d)
{
    if (!d)
        return;
    forward_destroy(d->forward);
    weights_destroy(d->weights);
    if (d->files)
        opened_model_close(d->files);
    free(d->files);
    free(d->rows);
    free(d);
}

/* ---- contents of blocks
 * ------------------------------------------------------------------------------------------- */

void draft_model_launched(struct draft_model *d, const struct sched_row *row)
{
    const uint32_t bt = d->block_tokens, end = row->first + row->count;
    uint32_t n;
    const uint32_t *blocks = sched_blocks(d->engine->run->sched, row->seq, d->group, &n);
    for (uint32_t i = (row->first + bt - 1) / bt; i < n && i * bt < end; i++)
        d->n_valid[blocks[i]] = 0;
}

/* The engine's one group is as many in the draft model's own passes as its layers have windows. */
static int move_own(struct draft_model *d, struct kv_move *own, uint32_t n, struct quire_error *err)
{
    int status = QUIRE_OK;
    for (uint32_t g = 0; g < d->n_kv_groups && status == QUIRE_OK; g++) {
        for (uint32_t i = 0; i < n; i++)
            own[i].group = g;
        status = forward_move(d->forward, own, n, err);
    }
    return status;
}

int draft_model_move(struct draft_model *d, const struct kv_move *moves, uint32_t n_moves, struct quire_error *err)
{
    struct kv_move own[MOVES_AT_ONCE];
    uint32_t n = 0;
    int status = QUIRE_OK;
    for (uint32_t i = 0; i < n_moves && status == QUIRE_OK; i++) {
        const struct kv_move *m = &moves[i];
        if (m->group != d->group)
            continue;
        if (m->to_host)
            d->n_host_valid[m->host_block] = d->n_valid[m->device_block];
        else
            d->n_valid[m->device_block] = d->n_host_valid[m->host_block];
        own[n++] = *m;
        if (n == MOVES_AT_ONCE) {
            status = move_own(d, own, n, err);
            n = 0;
        }
    }
    return status == QUIRE_OK ? move_own(d, own, n, err) : status;
}

/* The block that position p's K and V go to. */
static uint32_t block_of(const struct draft_model *d, const struct asked *a, uint32_t index)
{
    if (index < a->n_table)
        return a->blocks[index];
    return d->n_blocks + a->ask->slot * d->n_slot_blocks + (index - a->n_table);
}

/* The number of leading positions of the sequence's own blocks that are computed. */
static uint32_t count_valid(const struct draft_model *d, const struct asked *a)
{
    const uint32_t bt = d->block_tokens;
    uint32_t i = 0;
    while (i < a->n_table && d->n_valid[a->blocks[i]] == bt)
        i++;
    return i * bt + (i < a->n_table ? d->n_valid[a->blocks[i]] : 0);
}

/* Positions [first, end) were computed in the sequence's own blocks, whose earlier ones had been. */
static void set_valid(struct draft_model *d, const struct asked *a, uint32_t first, uint32_t end)
{
    const uint32_t bt = d->block_tokens;
    for (uint32_t i = first / bt; i < a->n_table && i * bt < end; i++) {
        uint32_t n = min32(end - i * bt, bt);
        if (d->n_valid[a->blocks[i]] < n)
            d->n_valid[a->blocks[i]] = (uint8_t)n;
    }
}

/* Positions of earlier guesses that turned out right are already computed. Those in the slot's blocks are copied to
 * the sequence's blocks, which do not hold the draft model's values yet. */
static void settle(struct draft_model *d, const struct asked *a)
{
    struct slot *slot = &d->slots[a->ask->slot];
    const struct draft_text *text = &a->ask->text;
    const uint32_t bt = d->block_tokens;
    uint32_t n = 0;
    while (n < slot->n && slot->first + n < text->n_tokens && text->tokens[slot->first + n] == slot->tokens[n])
        n++;
    uint32_t end = slot->first + n;
    for (uint32_t i = slot->n_table; n > 0 && i < a->n_table && i * bt < end; i++) {
        uint32_t from = d->n_blocks + a->ask->slot * d->n_slot_blocks + (i - slot->n_table);
        d->copies[d->n_copies++] = (struct k_block_pair){.from = from, .to = a->blocks[i]};
    }
    if (n > 0)
        set_valid(d, a, slot->first, end);
    slot->n = 0;
}

/* ---- a pass ------------------------------------------------------------------------------------------------------ */

/* A token that the draft model does not have is never guessed right; any other will do to go on. */
static uint32_t id_for(const struct draft_model *d, uint32_t token)
{
    return token < d->desc.config->vocab_size ? token : 0;
}

/* Token at position p of what is known and guessed. */
static uint32_t token_at(const struct asked *a, uint32_t p)
{
    const struct draft_text *text = &a->ask->text;
    return p < text->n_tokens ? text->tokens[p] : a->ask->drafts[p - text->n_tokens];
}

/* The lists are ascending, and their mask is of the model's vocabulary: what the draft model does not have is left out. */
static void fit_vocabulary(const struct draft_model *d, struct k_sample_row *row)
{
    while (row->n_biases > 0 && row->biases[row->n_biases - 1].id >= d->desc.config->vocab_size)
        row->n_biases--;
    while (row->n_counts > 0 && row->counts[row->n_counts - 1].id >= d->desc.config->vocab_size)
        row->n_counts--;
    if (d->desc.config->vocab_size > d->engine->model->desc.config->vocab_size)
        row->mask = NULL;
}

static void draw_row(const struct draft_model *d, const struct asked *a, struct k_sample_row *out)
{
    const struct seq_owner *owner = &d->engine->run->owners[a->ask->seq];
    struct request *r = owner->request;
    struct request_choice *c = &r->choices[owner->choice];
    const struct draft_text *text = &a->ask->text;
    const struct sampling_state state = {
        .counts = sampling_counts_output(&r->sampling) ? request_counts(r, owner->choice) : &c->counts,
        .generated = text->tokens + text->n_prompt,
        /* Words are looked for in the tokens that are known; without any, only the number of tokens is asked for. */
        .n_generated = text->n_tokens - text->n_prompt + (r->sampling.n_words ? 0 : a->ask->n),
        .position = text->n_tokens + a->ask->n,
        .choice = owner->choice,
        .scratch = c->row_scratch,
    };
    sampling_row(&r->sampling, &state, out);
    out->n_logprobs = -1;
    fit_vocabulary(d, out);
}

/* Ids, positions, blocks of one row; slots and tables of the first group. */
static void fill_row(struct draft_model *d, const struct asked *a, uint32_t token, uint32_t table,
                     struct forward_batch *batch)
{
    const uint32_t bt = d->block_tokens, end = a->first + a->count;
    for (uint32_t i = 0; i * bt < end; i++)
        batch->tables[0][table + i] = block_of(d, a, i);
    for (uint32_t p = a->first; p < end; p++, token++) {
        batch->ids[token] = id_for(d, token_at(a, p));
        batch->positions[token] = p;
        batch->slots[0][token] = block_of(d, a, p / bt) * bt + p % bt;
    }
}

/* All groups have the same blocks. */
static void fill_other_groups(const struct draft_model *d, struct forward_batch *batch)
{
    for (uint32_t g = 1; g < d->n_kv_groups; g++) {
        memcpy(batch->slots[g], batch->slots[0], batch->n_tokens * sizeof *batch->slots[g]);
        memcpy(batch->tables[g], batch->tables[0], batch->n_entries * sizeof *batch->tables[g]);
    }
}

/* Sizes of the rows that have positions in this pass. */
static void measure_pass(const struct draft_model *d, uint32_t n_asked, uint32_t *n_tokens, uint32_t *n_rows,
                         uint32_t *n_outputs, uint32_t *n_entries)
{
    const uint32_t bt = d->block_tokens;
    *n_tokens = *n_rows = *n_outputs = *n_entries = 0;
    for (uint32_t i = 0; i < n_asked; i++) {
        const struct asked *a = &d->asked[i];
        if (a->count == 0)
            continue;
        *n_rows += 1;
        *n_tokens += a->count;
        *n_outputs += a->draws;
        *n_entries += (a->first + a->count - 1) / bt + 1;
    }
}

/* An eighth of each newest one, and no more of one that something else held up. */
static void note_time(struct draft_model *d, double us)
{
    double most = 2 * d->us;
    d->us = d->us > 0 ? d->us + ((us < most ? us : most) - d->us) / 8 : us;
}

double draft_model_us(const struct draft_model *d)
{
    return d->us;
}

static int run_pass(struct draft_model *d, uint32_t n_asked, struct quire_error *err)
{
    const double begun = quire_now_s();
    const uint32_t bt = d->block_tokens;
    uint32_t n_tokens, n_rows, n_outputs, n_entries, token = 0, table = 0, row = 0, logit = 0;
    struct forward_batch batch;
    uint64_t ticket;
    measure_pass(d, n_asked, &n_tokens, &n_rows, &n_outputs, &n_entries);
    if (n_rows == 0)
        return QUIRE_OK;
    forward_begin(d->forward, n_tokens, n_rows, n_outputs, n_entries, &batch);
    for (uint32_t i = 0; i < n_asked; i++) {
        struct asked *a = &d->asked[i];
        if (a->count == 0)
            continue;
        batch.rows[row++] = (struct k_attn_row){
            .token = token, .n_tokens = a->count, .position = a->first, .table = table};
        fill_row(d, a, token, table, &batch);
        token += a->count;
        table += (a->first + a->count - 1) / bt + 1;
        if (a->draws) {
            batch.output_tokens[logit] = token - 1;
            draw_row(d, a, &d->rows[logit++]);
        }
    }
    fill_other_groups(d, &batch);
    swap_form(d);
    int status = forward_run(d->forward, &batch, d->rows, &d->results, &ticket, err);
    swap_form(d);
    if (status == QUIRE_OK)
        status = forward_wait(d->forward, ticket, err);
    if (n_tokens == n_rows)
        note_time(d, (quire_now_s() - begun) * 1e6);
    return status;
}

/* Guesses that were drawn; whose next one is worth a pass has it as the next row. */
static void take_guesses(struct draft_model *d, uint32_t n_asked)
{
    uint32_t logit = 0;
    for (uint32_t i = 0; i < n_asked; i++) {
        struct asked *a = &d->asked[i];
        struct draft_ask *ask = a->ask;
        bool drew = a->count > 0 && a->draws;
        a->count = 0;
        a->draws = false;
        if (!drew)
            continue;
        const struct k_sample_result *result = &d->results[logit++];
        if (result->bad_logits || result->token >= d->engine->model->desc.config->vocab_size)
            continue;
        /* The model's own draw ends the answer, a step no sooner for having been guessed. */
        if (sampling_stops(&d->engine->run->owners[ask->seq].request->sampling, result->token))
            continue;
        ask->drafts[ask->n++] = result->token;
        if (ask->n == a->most)
            continue;
        a->first = ask->text.n_tokens + ask->n - 1;
        a->count = 1;
        a->draws = true;
    }
}

/* Records the positions that the passes computed for guesses, for settle(). */
static void remember(struct draft_model *d, uint32_t n_asked)
{
    for (uint32_t i = 0; i < n_asked; i++) {
        const struct asked *a = &d->asked[i];
        struct slot *slot = &d->slots[a->ask->slot];
        if (a->ask->n == 0)
            continue;
        slot->first = a->ask->text.n_tokens - 1;
        slot->n = a->ask->n;
        slot->n_table = a->n_table;
        for (uint32_t j = 0; j < slot->n; j++)
            slot->tokens[j] = token_at(a, slot->first + j);
    }
}

/* ---- the drafter ------------------------------------------------------------------------------------------------- */

static void begin(struct drafter *drafter, uint32_t slot, const struct draft_text *text)
{
    (void)text;
    ((struct draft_model *)drafter)->slots[slot].n = 0;
}

static void end(struct drafter *drafter, uint32_t slot, const struct draft_text *text, bool is_answer)
{
    (void)is_answer;
    begin(drafter, slot, text);
}

/* Whether there is anything to guess for: not while its newest token is being sampled, nor past what the draft model
 * was made for, nor when the sequence lost its blocks. */
static bool can_ask(const struct draft_model *d, struct draft_ask *ask, struct asked *out)
{
    const struct engine_plan *plan = d->engine->plan;
    const struct draft_text *text = &ask->text;
    uint32_t limit = min32(plan->max_model_len, d->desc.config->max_position);
    *out = (struct asked){.ask = ask};
    if (text->n_tokens >= limit || text->tokens[text->n_tokens - 1] == SCHED_PENDING)
        return false;
    out->most = min32(min32(ask->most, d->about.n_tokens), limit - text->n_tokens);
    out->blocks = sched_blocks(d->engine->run->sched, ask->seq, d->group, &out->n_table);
    return (uint64_t)out->n_table * plan->block_tokens >= text->n_tokens - 1;
}

/* The first pass: positions that are known but not computed, first of sequences with few left and then of the
 * others, up to a step's tokens. The counts rise at once: each layer has the K and V of all rows before any row
 * reads them, so a block that two sequences share is computed once. */
static void share_out(struct draft_model *d, uint32_t n_asked)
{
    uint32_t left = d->max_num_batched_tokens;
    for (int round = 0; round < 2; round++)
        for (uint32_t i = 0; i < n_asked; i++) {
            struct asked *a = &d->asked[i];
            uint32_t n_known = a->ask->text.n_tokens, first = min32(count_valid(d, a), n_known - 1);
            if (a->count > 0 || (round == 0) != (n_known - first <= NEARLY_THERE))
                continue;
            a->first = first;
            a->count = min32(n_known - first, left);
            a->draws = first + a->count == n_known;
            left -= a->count;
            set_valid(d, a, first, first + a->count);
        }
}

static int guess(struct draft_model *d, uint32_t n_asked, struct quire_error *err)
{
    int status = d->n_copies ? forward_copy(d->forward, d->copies, d->n_copies, err) : QUIRE_OK;
    bool more = true;
    d->n_copies = 0;
    share_out(d, n_asked);
    while (status == QUIRE_OK && more) {
        status = run_pass(d, n_asked, err);
        if (status != QUIRE_OK)
            return status;
        take_guesses(d, n_asked);
        more = false;
        for (uint32_t i = 0; i < n_asked; i++)
            more |= d->asked[i].count > 0;
    }
    remember(d, n_asked);
    return status;
}

static int propose(struct drafter *drafter, struct draft_ask *asks, uint32_t n, struct quire_error *err)
{
    struct draft_model *d = (struct draft_model *)drafter;
    double begun = quire_now_s();
    uint32_t n_asked = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct slot *slot = &d->slots[asks[i].slot];
        if (slot->asked || !can_ask(d, &asks[i], &d->asked[n_asked])) /* a step that overlaps may name it twice */
            continue;
        settle(d, &d->asked[n_asked++]);
        slot->asked = true;
    }
    for (uint32_t i = 0; i < n_asked; i++)
        d->slots[d->asked[i].ask->slot].asked = false;
    int status = n_asked ? guess(d, n_asked, err) : QUIRE_OK;
    d->engine->run->report.stats.draft_seconds += quire_now_s() - begun;
    return status;
}

/* The engine opened the draft model before drafters existed, so the engine closes it. */
static void destroy(struct drafter *drafter)
{
    (void)drafter;
}

struct drafter *draft_model_drafter(struct draft_model *d)
{
    static const struct drafter_ops ops = {
        .name = "draft_model", .begin = begin, .propose = propose, .end = end, .destroy = destroy};
    d->drafter.ops = &ops;
    return &d->drafter;
}
