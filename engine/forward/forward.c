#include "engine/forward/forward.h"

#include "engine/forward/forward_internal.h"

#include <stdlib.h>

static uint8_t *staging_of(struct forward *f)
{
    return f->staging[f->n_begun % 2];
}

/* A recorded step is larger than it was asked to be: what fills it up goes nowhere and reads nothing. */
static void fill_up(struct forward *f, const struct forward_graph *graph, struct forward_batch *batch)
{
    const uint32_t n = graph->n_tokens;
    forward_pad(f, batch, batch->n_tokens, n);
    for (uint32_t i = batch->n_tokens; i < n; i++) {
        for (uint32_t g = 0; g < f->kv->n_groups; g++)
            batch->group_rows[g][i] = (struct k_attn_row){.token = i};
        batch->output_tokens[i] = i;
        batch->output_rows[i] = (struct k_attn_row){.token = i};
    }
    batch->graph = graph;
}

/* The least recorded size that holds n tokens, or NULL. */
static const struct forward_graph *graph_for(const struct forward *f, uint32_t n_tokens)
{
    for (uint32_t i = 0; f->graphs && i < f->graphs->n; i++)
        if (f->graphs->items[i].n_tokens >= n_tokens)
            return &f->graphs->items[i];
    return NULL;
}

/* A step that decodes: a token and a logit row for each row. */
void forward_begin(struct forward *f, uint32_t n_tokens, uint32_t n_rows, uint32_t n_outputs, uint32_t n_entries,
                   struct forward_batch *out)
{
    f->n_begun++;
    const struct forward_graph *graph = n_tokens == n_rows && n_tokens == n_outputs ? graph_for(f, n_tokens) : NULL;
    if (graph) {
        forward_place(f, staging_of(f), graph->n_tokens, graph->n_tokens, graph->n_tokens, n_entries, out);
        out->n_tokens = out->n_rows = out->n_outputs = n_tokens;
        fill_up(f, graph, out);
    } else {
        forward_place(f, staging_of(f), n_tokens, n_rows, n_outputs, n_entries, out);
    }
}

/* The rows of the other groups, whose tables follow those of the first. */
static void fill_group_rows(const struct forward *f, struct forward_batch *batch)
{
    for (uint32_t g = 1; g < f->kv->n_groups; g++) {
        for (uint32_t i = 0; i < batch->n_rows; i++) {
            batch->group_rows[g][i] = batch->rows[i];
            batch->group_rows[g][i].table += g * batch->n_entries;
        }
    }
}

/* As many of the rows as there is room for. *end: of the staged input. */
static int plan_samples(struct forward *f, const struct forward_batch *batch, const struct k_sample_row *rows,
                        uint32_t n_rows, uint32_t *n_planned, const uint8_t **end, struct quire_error *err)
{
    uint64_t parts_bytes = 0;
    const struct k_sample_plan_args a = {.rows = rows,
                                         .plan = batch->sample_plan,
                                         .parts = batch->sample_parts,
                                         .n_rows = n_rows,
                                         .n_vocab = f->desc->config->vocab_size,
                                         .n_planned = n_planned,
                                         .parts_bytes = &parts_bytes};
    TRY(f->backend->ops->sample_plan(f->backend, &a, err));
    *end = batch->sample_parts + parts_bytes;
    return *n_planned > 0 || n_rows == 0
               ? QUIRE_OK
               : quire_fail(err, QUIRE_INTERNAL, "sampling: one row needs more space than the step has");
}

static int place_tokens(struct forward *f, const struct forward_batch *batch, struct quire_error *err)
{
    const struct k_place_tokens_args a = {.ids_dev = forward_on_device(f, batch->ids),
                                          .sampled_dev = f->sampled_dev,
                                          .sources_dev = forward_on_device(f, batch->sources),
                                          .n = batch->n_sources};
    return batch->n_sources ? f->backend->ops->place_tokens(f->backend, &a, err) : QUIRE_OK;
}

static struct k_sample_result *results_dev(const struct forward *f)
{
    return f->is_in_place ? f->results[f->n_begun % 2]
                          : (struct k_sample_result *)(void *)(f->arena_dev + f->layout->results);
}

static void rows_are_ready(const struct forward_batch *batch)
{
    if (batch->rows_ready)
        batch->rows_ready(batch->rows_context);
}

int forward_watch_logits(struct forward *f, struct forward_logits_watch watch, struct quire_error *err)
{
    if (watch.fn && !f->backend->ops->planner->on_host)
        return quire_fail(err, QUIRE_UNSUPPORTED,
                          "logits can be watched where the CPU computes, and this model runs on %s: use --device cpu",
                          f->backend->ops->planner->name);
    if (!watch.fn)
        return QUIRE_OK;
    f->watch = malloc(sizeof *f->watch);
    if (!f->watch)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    *f->watch = watch;
    return QUIRE_OK;
}

static void show_logits(const struct forward *f, const struct k_sample_args *a)
{
    for (uint32_t i = 0; i < a->n_rows; i++)
        f->watch->fn(f->watch->context, a->rows[i].position, a->rows[i].forced,
                     a->logits_dev + (uint64_t)i * a->n_vocab, a->n_vocab);
}

/* n logit rows from `first` on, which the plan is of. */
static int sample(struct forward *f, const struct forward_batch *batch, const struct k_sample_row *rows, uint32_t first,
                  uint32_t n, struct quire_error *err)
{
    const struct k_sample_args a = {.logits_dev = f->logits_dev + (uint64_t)first * f->desc->config->vocab_size,
                                    .rows = rows,
                                    .plan_dev = forward_on_device(f, batch->sample_plan),
                                    .results_dev = results_dev(f) + first,
                                    .sampled_dev = f->sampled_dev + first,
                                    .workspace_dev = f->sample_workspace_dev,
                                    .n_rows = n,
                                    .n_vocab = f->desc->config->vocab_size};
    if (f->is_in_place)
        rows_are_ready(batch);
    if (f->watch)
        show_logits(f, &a);
    return n ? f->backend->ops->sample(f->backend, &a, err) : QUIRE_OK;
}

/* Samples the rows after the first n_sampled in rounds. Each round's plan reuses the space of the previous plan. */
static int sample_rest(struct forward *f, const struct forward_batch *batch, const struct k_sample_row *rows,
                       uint32_t n_sampled, struct quire_error *err)
{
    uint64_t ticket;
    const uint8_t *end;
    for (uint32_t n; n_sampled < batch->n_outputs; n_sampled += n) {
        TRY(f->backend->ops->fence(f->backend, &ticket, err));
        TRY(f->backend->ops->wait(f->backend, ticket, err));
        TRY(plan_samples(f, batch, rows + n_sampled, batch->n_outputs - n_sampled, &n, &end, err));
        TRY(forward_copy_to_device(f, batch->sample_plan, end, err));
        TRY(sample(f, batch, rows + n_sampled, n_sampled, n, err));
    }
    return QUIRE_OK;
}

int forward_queue(struct forward *f, const struct forward_batch *batch, const struct k_sample_row *rows,
                  uint32_t n_sampled, struct quire_error *err)
{
    TRY(place_tokens(f, batch, err));
    TRY(forward_compute(f, batch, f->logits_dev, err));
    return sample(f, batch, rows, 0, n_sampled, err);
}

/* Micro-batches have been where the sampling's plan was copied to, which ends at `end`. */
static int run_stage(struct forward *f, const struct forward_batch *batch, const struct k_sample_row *rows,
                     uint32_t n_sampled, const uint8_t *end, struct quire_error *err)
{
    TRY(forward_compute_staged(f, batch, err));
    if (n_sampled == 0)
        return QUIRE_OK;
    TRY(forward_copy_to_device(f, batch->sample_plan, end, err));
    return sample(f, batch, rows, 0, n_sampled, err);
}

/* A step whose input is on its way. */
static int run(struct forward *f, const struct forward_batch *batch, const struct k_sample_row *rows,
               uint32_t n_sampled, const uint8_t *end, struct quire_error *err)
{
    if (forward_is_stage(f))
        return run_stage(f, batch, rows, n_sampled, end, err);
    if (!batch->graph)
        return forward_queue(f, batch, rows, n_sampled, err);
    TRY(f->backend->ops->graph_launch(f->backend, batch->graph->graph, err));
    return forward_is_shared(f) ? sample(f, batch, rows, 0, n_sampled, err) : QUIRE_OK;
}

int forward_run(struct forward *f, struct forward_batch *batch, const struct k_sample_row *rows,
                const struct k_sample_result **results, uint64_t *ticket, struct quire_error *err)
{
    const struct k_backend_ops *ops = f->backend->ops;
    struct k_sample_result *there = f->results[f->n_begun % 2];
    const uint8_t *end;
    uint32_t n_sampled;
    fill_group_rows(f, batch);
    forward_fill_output_rows(f, batch);
    TRY(ops->step_begin(f->backend, err));
    TRY(forward_plan_attention(f, batch, err));
    if (!f->is_in_place)
        rows_are_ready(batch);
    TRY(plan_samples(f, batch, rows, batch->n_outputs, &n_sampled, &end, err));
    if (batch->n_outputs != batch->n_tokens || /* fewer are wanted, or sampled, than recorded */
        (n_sampled < batch->n_outputs && !forward_is_shared(f) && !forward_is_stage(f)))
        batch->graph = NULL;
    /* A recorded step looks for a source for each of its tokens. Most tokens come from the host. */
    for (uint32_t i = batch->n_sources; batch->graph && i < batch->graph->n_tokens; i++)
        batch->sources[i] = (struct k_token_source){.token = K_NO_TOKEN};
    TRY(forward_copy_to_device(f, staging_of(f), end, err));
    TRY(run(f, batch, rows, n_sampled, end, err));
    TRY(sample_rest(f, batch, rows, n_sampled, err));
    if (!f->is_in_place)
        TRY(ops->copy_out(f->backend, there, results_dev(f), batch->n_outputs * sizeof *there, err));
    TRY(forward_fetch_digest(f, err));
    *results = there;
    TRY(ops->fence(f->backend, ticket, err));
    return ops->step_end(f->backend, err);
}

int forward_run_vectors(struct forward *f, struct forward_batch *batch, const float **vectors, uint64_t *ticket,
                        struct quire_error *err)
{
    const struct k_backend_ops *ops = f->backend->ops;
    float *there = f->vectors[f->n_begun % 2];
    fill_group_rows(f, batch);
    if (forward_narrows(f))
        forward_fill_output_rows(f, batch);
    for (uint32_t i = 0; batch->vector_rows && i < batch->n_outputs; i++)
        batch->vector_rows[i] = (struct k_pool_row){i, 1};
    TRY(ops->step_begin(f->backend, err));
    TRY(forward_plan_attention(f, batch, err));
    TRY(forward_copy_to_device(f, staging_of(f), batch->sample_parts, err));
    TRY(forward_compute(f, batch, f->logits_dev, err));
    if (batch->n_outputs > 0)
        TRY(ops->copy_out(f->backend, there, f->logits_dev,
                          (uint64_t)batch->n_outputs * f->desc->config->outputs.vector_size * sizeof *there, err));
    *vectors = there;
    TRY(ops->fence(f->backend, ticket, err));
    return ops->step_end(f->backend, err);
}

static int queue_all(struct forward *f, const struct forward_batch *batch, struct quire_error *err)
{
    return run(f, batch, NULL, 0, NULL, err);
}

static int queue_alone(struct forward *f, const struct forward_batch *batch, struct quire_error *err)
{
    return forward_queue(f, batch, NULL, 0, err);
}

/* A pass without a draw. */
static int follow(struct forward *f, struct forward_batch *batch,
                  int (*queue)(struct forward *f, const struct forward_batch *batch, struct quire_error *err),
                  struct quire_error *err)
{
    const struct k_backend_ops *ops = f->backend->ops;
    uint64_t ticket;
    fill_group_rows(f, batch);
    forward_fill_output_rows(f, batch);
    if (batch->n_outputs != batch->n_tokens) /* as forward_run() of rank 0 decides */
        batch->graph = NULL;
    TRY(ops->step_begin(f->backend, err));
    TRY(forward_plan_attention(f, batch, err));
    TRY(forward_copy_to_device(f, staging_of(f), batch->sample_parts, err));
    TRY(queue(f, batch, err));
    TRY(forward_fetch_digest(f, err));
    TRY(ops->fence(f->backend, &ticket, err));
    TRY(ops->step_end(f->backend, err));
    return forward_wait(f, ticket, err);
}

int forward_follow(struct forward *f, struct forward_batch *batch, struct quire_error *err)
{
    return follow(f, batch, queue_all, err);
}

int forward_warm(struct forward *f, struct forward_batch *batch, struct quire_error *err)
{
    return follow(f, batch, queue_alone, err);
}

/* ---- the host tier ---------------------------------------------------------------------------- */

/* Pairs of one call. They are compared with each other, so not many. */
#define MAX_RUN 128u

/* How many of the moves are one copy: of the same group and direction, and no block filled twice,
 * because a copy does its pairs in any order. */
static uint32_t fill_run(const struct kv_move *moves, uint32_t n_moves, struct k_block_pair *pairs)
{
    uint32_t n = 0;
    for (; n < n_moves && n < MAX_RUN; n++) {
        const struct kv_move *m = &moves[n];
        pairs[n] = m->to_host ? (struct k_block_pair){.from = m->device_block, .to = m->host_block}
                              : (struct k_block_pair){.from = m->host_block, .to = m->device_block};
        if (m->group != moves[0].group || m->to_host != moves[0].to_host)
            break;
        uint32_t i = 0;
        while (i < n && pairs[i].to != pairs[n].to)
            i++;
        if (i < n)
            break;
    }
    return n;
}

static int copy_run(struct forward *f, const struct kv_move *first, const struct k_block_pair *pairs, uint32_t n_pairs,
                    struct quire_error *err)
{
    for (uint32_t l = model_first_layer(f->desc); l < model_end_layer(f->desc); l++) {
        if (f->kv->layer_group[l] != first->group || !f->kv->layers[l].k_dev)
            continue;
        const struct k_kv_copy_args a = {.kv = &forward_group_of(f, l)->shape,
                                         .from = first->to_host ? &f->kv->layers[l] : &f->kv->host_layers[l],
                                         .to = first->to_host ? &f->kv->host_layers[l] : &f->kv->layers[l],
                                         .pairs = pairs,
                                         .n_pairs = n_pairs};
        TRY(f->backend->ops->kv_copy(f->backend, &a, err));
    }
    return QUIRE_OK;
}

int forward_move(struct forward *f, const struct kv_move *moves, uint32_t n_moves, struct quire_error *err)
{
    struct k_block_pair pairs[MAX_RUN];
    if (n_moves == 0)
        return QUIRE_OK;
    TRY(f->backend->ops->step_begin(f->backend, err));
    for (uint32_t at = 0, n; at < n_moves; at += n) {
        n = fill_run(moves + at, n_moves - at, pairs);
        TRY(copy_run(f, &moves[at], pairs, n, err));
    }
    return f->backend->ops->step_end(f->backend, err);
}

int forward_copy(struct forward *f, const struct k_block_pair *pairs, uint32_t n_pairs, struct quire_error *err)
{
    TRY(f->backend->ops->step_begin(f->backend, err));
    for (uint32_t l = model_first_layer(f->desc); l < model_end_layer(f->desc); l++) {
        if (!f->kv->layers[l].k_dev) /* no attention */
            continue;
        const struct k_kv_copy_args a = {.kv = &forward_group_of(f, l)->shape,
                                         .from = &f->kv->layers[l],
                                         .to = &f->kv->layers[l],
                                         .pairs = pairs,
                                         .n_pairs = n_pairs};
        TRY(f->backend->ops->kv_copy(f->backend, &a, err));
    }
    return f->backend->ops->step_end(f->backend, err);
}

int forward_wait(struct forward *f, uint64_t ticket, struct quire_error *err)
{
    TRY(f->backend->ops->wait(f->backend, ticket, err));
    return forward_agree(f, err);
}
