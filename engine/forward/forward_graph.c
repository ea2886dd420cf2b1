#include "engine/forward/forward_internal.h"

#include "engine/model/share.h"

#include <stdlib.h>

/* Steps of 8, 16 and 32 apart: a batch of 33 is not worth a graph of its own, and one of 64 would compute twice as much. */
uint32_t forward_graph_sizes(uint32_t max_tokens, uint32_t *sizes)
{
    static const uint32_t candidates[] = {1,   2,   4,   8,   16,  24,  32,  48,  64,  80, 96,
                                          112, 128, 160, 192, 224, 256, 320, 384, 448, 512};
    _Static_assert(sizeof candidates / sizeof candidates[0] < FORWARD_MAX_GRAPHS, "raise FORWARD_MAX_GRAPHS");
    uint32_t n = 0;
    for (size_t i = 0; i < sizeof candidates / sizeof candidates[0] && candidates[i] < max_tokens; i++)
        sizes[n++] = candidates[i];
    if (max_tokens <= candidates[sizeof candidates / sizeof candidates[0] - 1])
        sizes[n++] = max_tokens;
    return n;
}

/* n tokens at position 0, kept nowhere. */
static int run_step(struct forward *f, uint32_t n, struct quire_error *err)
{
    struct forward_batch batch;
    uint64_t ticket = 0;
    struct k_sample_row *rows = calloc(n, sizeof *rows);
    const struct k_sample_result *results;
    int status = rows ? QUIRE_OK : quire_fail(err, QUIRE_NO_MEMORY, "forward pass: out of memory");
    if (status == QUIRE_OK) {
        forward_begin(f, n, n, n, 1, &batch);
        for (uint32_t g = 0; g < f->kv->n_groups; g++)
            batch.tables[g][0] = 0;
        forward_pad(f, &batch, 0, n);
        for (uint32_t i = 0; i < n; i++) {
            rows[i] = (struct k_sample_row){.top_p = 1, .repetition_penalty = 1, .n_logprobs = -1, .forced = -1};
            batch.output_tokens[i] = i;
            batch.rows[i] = (struct k_attn_row){.token = i, .n_tokens = 1};
        }
        if (forward_is_stage(f) || (f->group && f->group->stage.rank > 0))
            status = forward_warm(f, &batch, err);
        else
            status = forward_run(f, &batch, rows, &results, &ticket, err);
    }
    if (status == QUIRE_OK && ticket)
        status = forward_wait(f, ticket, err);
    free(rows);
    return status;
}

/* A recording holds addresses, not values. It omits sampling if there are several ranks: only rank 0 samples, and
 * the other ranks do not know whether it can sample all rows at once. For a stage it holds the stage's layers only,
 * because data moves between stages through the host. */
static int record(struct forward *f, uint32_t n, struct forward_graph *out, struct quire_error *err)
{
    const struct k_backend_ops *ops = f->backend->ops;
    struct forward_batch batch;
    struct quire_error ignored;
    const bool alone = !forward_is_shared(f) && !forward_is_stage(f);
    forward_place(f, f->staging[0], n, n, n, 0, &batch);
    batch.n_output_rows = n;
    batch.n_sources = alone ? n : 0;
    out->n_tokens = n;
    int status = ops->graph_begin(f->backend, err);
    if (status != QUIRE_OK)
        return status;
    status = forward_queue(f, &batch, NULL, alone ? n : 0, err);
    int end = ops->graph_end(f->backend, &out->graph, status == QUIRE_OK ? err : &ignored);
    if (status != QUIRE_OK && end == QUIRE_OK)
        ops->graph_destroy(f->backend, out->graph);
    return status == QUIRE_OK ? end : status;
}

/* Device memory left; 0 if the backend does not report it. */
static uint64_t memory_left(struct forward *f)
{
    uint64_t total, available;
    struct quire_error ignored;
    if (!f->backend->ops->memory || f->backend->ops->memory(f->backend, &total, &available, &ignored) != QUIRE_OK)
        return 0;
    return available;
}

int forward_graphs_create(struct forward *f, uint32_t max_tokens, struct quire_error *err)
{
    uint32_t sizes[FORWARD_MAX_GRAPHS];
    const uint32_t most_whole = model_stage_most_whole(f->backend->ops->planner->micro_batch_tokens);
    if (forward_is_stage(f) && max_tokens > most_whole) /* more go through in micro-batches */
        max_tokens = most_whole;
    uint32_t n = forward_graph_sizes(max_tokens, sizes);
    struct forward_graphs *graphs = f->graphs = calloc(1, sizeof *graphs);
    if (!graphs)
        return quire_fail(err, QUIRE_NO_MEMORY, "forward pass: out of memory");
    int status = run_step(f, 1, err);
    uint64_t before = status == QUIRE_OK ? memory_left(f) : 0;
    for (uint32_t i = 0; i < n && status == QUIRE_OK; i++) {
        /* A library loads its code when it first runs, which must not be while a step is recorded. */
        if (f->backend->gemm_library)
            status = run_step(f, sizes[i], err);
        if (status != QUIRE_OK)
            break;
        status = record(f, sizes[i], &graphs->items[graphs->n], err);
        if (status == QUIRE_OK)
            graphs->n++;
    }
    uint64_t after = status == QUIRE_OK ? memory_left(f) : 0;
    graphs->bytes = before > after ? before - after : 0;
    return status;
}

void forward_graphs_destroy(struct forward *f)
{
    for (uint32_t i = 0; f->graphs && i < f->graphs->n; i++)
        f->backend->ops->graph_destroy(f->backend, f->graphs->items[i].graph);
    free(f->graphs);
    f->graphs = NULL;
}

uint32_t forward_n_graphs(const struct forward *f)
{
    return f->graphs ? f->graphs->n : 0;
}

uint64_t forward_graph_bytes(const struct forward *f)
{
    return f->graphs ? f->graphs->bytes : 0;
}
