/* The forward pass's memory: everything is allocated here, before the engine is ready. */
#include "engine/forward/forward_internal.h"

#include "base/size.h"

#include <stdlib.h>

typedef int (*alloc_function)(struct k_backend *b, uint64_t bytes, void **out, struct quire_error *err);

/* K and V of one layer. */
static int alloc_layer(struct forward *f, alloc_function alloc, const struct k_kv_shape *shape, uint32_t n_blocks,
                       struct k_kv_layer *out, struct quire_error *err)
{
    int status = alloc(f->backend, n_blocks * k_kv_block_bytes(shape), &out->k_dev, err);
    return status == QUIRE_OK ? alloc(f->backend, n_blocks * k_kv_v_block_bytes(shape), &out->v_dev, err) : status;
}

static int alloc_kv(struct forward *f, const struct engine_plan *plan, struct quire_error *err)
{
    const struct model_desc *d = f->desc;
    struct k_backend *b = f->backend;
    for (uint32_t l = 0; l < d->config->n_layers; l++) {
        uint32_t g = 0;
        if (!model_block_of(d, l, BLOCK_ATTENTION))
            continue;
        while (!model_same_kv(d, plan->groups[g].layer, l))
            g++;
        f->kv->layer_group[l] = (uint8_t)g;
        if (l < model_first_layer(d) || l >= model_end_layer(d))
            continue;
        int status = alloc_layer(f, b->ops->alloc, &f->kv->groups[g].shape, plan->groups[g].n_blocks, &f->kv->layers[l],
                                 err);
        if (status != QUIRE_OK) {
            quire_error_prefix(err, "KV cache of %s (--kv-cache-memory or --num-kv-blocks make it smaller)",
                               quire_size(plan->bytes[PLAN_KV]).text);
            return status;
        }
        if (plan->groups[g].n_host_blocks == 0)
            continue;
        status = alloc_layer(f, b->ops->alloc_host, &f->kv->groups[g].shape, plan->groups[g].n_host_blocks,
                             &f->kv->host_layers[l], err);
        if (status != QUIRE_OK) {
            quire_error_prefix(err, "host tier of %s (--swap-space makes it smaller)",
                               quire_size(plan->bytes[PLAN_SWAP]).text);
            return status;
        }
    }
    return QUIRE_OK;
}

static int alloc_stage_buffer(struct forward *f, uint64_t n_bytes, struct quire_error *err)
{
    if (n_bytes == 0)
        return QUIRE_OK;
    void *bytes = NULL;
    f->stage_buffer = calloc(1, sizeof *f->stage_buffer);
    if (!f->stage_buffer)
        return quire_fail(err, QUIRE_NO_MEMORY, "forward pass: out of memory");
    int status = f->backend->ops->alloc_host(f->backend, n_bytes, &bytes, err);
    f->stage_buffer->bytes = bytes;
    f->stage_buffer->n_bytes = n_bytes;
    return status;
}

/* A step's input on the host, where a device copies from it while the next one is filled, and its results. */
static int alloc_staging(struct forward *f, const struct engine_plan *plan, struct quire_error *err)
{
    for (int i = 0; i < 2; i++) {
        void *image, *results;
        int status = f->backend->ops->alloc_host(f->backend, f->layout->input_bytes, &image, err);
        if (status != QUIRE_OK)
            return status;
        f->staging[i] = image;
        status = f->backend->ops->alloc_host(f->backend, plan->max_logit_rows * sizeof *f->results[i], &results, err);
        if (status != QUIRE_OK)
            return status;
        f->results[i] = results;
        void *vectors = NULL;
        if (f->desc->config->outputs.kind != OUTPUT_TOKENS)
            status = f->backend->ops->alloc_host(
                f->backend, (uint64_t)plan->max_num_seqs * f->desc->config->outputs.vector_size * sizeof(float),
                &vectors, err);
        if (status != QUIRE_OK)
            return status;
        f->vectors[i] = vectors;
    }
    void *digest = NULL;
    if (forward_is_shared(f)) {
        int status = f->backend->ops->alloc_host(f->backend, sizeof *f->digest, &digest, err);
        if (status != QUIRE_OK)
            return status;
    }
    f->digest = digest;
    return QUIRE_OK;
}

static int alloc_buffers(struct forward *f, const struct engine_plan *plan, struct quire_error *err)
{
    struct k_backend *b = f->backend;
    struct k_plan_bytes workspace;
    const uint64_t sampled_bytes = layout_align(plan->max_logit_rows * sizeof(uint32_t));
    void *arena = NULL, *logits = NULL, *sampled = NULL, *work = NULL;
    step_plan_workspace(f->desc, plan, &workspace);
    int status = b->ops->alloc(b, f->layout->total, &arena, err);
    f->arena_dev = arena;
    if (status == QUIRE_OK)
        status = b->ops->alloc(b, plan->bytes[PLAN_LOGITS] - sampled_bytes, &logits, err);
    f->logits_dev = logits;
    if (status == QUIRE_OK)
        status = b->ops->alloc(b, sampled_bytes, &sampled, err);
    f->sampled_dev = sampled;
    if (status == QUIRE_OK)
        status = b->ops->alloc(b, plan->bytes[PLAN_WORKSPACE] - workspace.group, &work, err);
    f->workspace_dev = work;
    if (status != QUIRE_OK)
        return status;
    f->attention_workspace_dev = f->workspace_dev + layout_align(workspace.gemm);
    f->sample_workspace_dev = f->workspace_dev + layout_align(workspace.gemm) + layout_align(workspace.attention);
    f->moe_workspace_dev = (uint8_t *)f->sample_workspace_dev + layout_align(workspace.sample);
    return QUIRE_OK;
}

/* The layout, and the shapes of the KV cache: what everything else is allocated by. */
static int describe_memory(struct forward *f, const struct engine_plan *plan, struct quire_error *err)
{
    const struct model_desc *d = f->desc;
    struct forward_kv *kv = f->kv = calloc(1, sizeof *kv);
    f->layout = calloc(1, sizeof *f->layout);
    if (kv) {
        kv->layers = calloc(d->config->n_layers, sizeof *kv->layers);
        kv->host_layers = calloc(d->config->n_layers, sizeof *kv->host_layers);
        kv->layer_group = calloc(d->config->n_layers, 1);
    }
    if (!kv || !f->layout || !kv->layers || !kv->host_layers || !kv->layer_group)
        return quire_fail(err, QUIRE_NO_MEMORY, "forward pass: out of memory");
    kv->n_groups = plan->n_kv_groups;
    for (uint32_t g = 0; g < KV_MAX_GROUPS; g++)
        kv->groups[g].dims = step_plan_dims(d, plan, g);
    for (uint32_t g = 0; g < kv->n_groups; g++) {
        kv->groups[g].shape = layout_kv_shape(d, plan->groups[g].layer, plan);
        kv->groups[g].n_q_heads = model_heads_of(d, plan->groups[g].layer).n_q;
        kv->groups[g].window = plan->groups[g].window;
        kv->groups[g].n_sinks = plan->groups[g].n_sinks;
    }
    return step_layout_make(d, plan, f->layout, err);
}

static int keep_group(struct forward *f, const struct forward_group *group, struct quire_error *err)
{
    if (!group)
        return QUIRE_OK;
    f->group = malloc(sizeof *f->group);
    if (!f->group)
        return quire_fail(err, QUIRE_NO_MEMORY, "forward pass: out of memory");
    *f->group = *group;
    return QUIRE_OK;
}

int forward_create(struct k_backend *backend, const struct model_desc *desc, const struct engine_plan *plan,
                   const struct weights *weights, const struct forward_group *group, struct forward **out,
                   struct quire_error *err)
{
    struct forward *f = calloc(1, sizeof *f);
    if (!f)
        return quire_fail(err, QUIRE_NO_MEMORY, "forward pass: out of memory");
    f->backend = backend;
    f->is_in_place = !backend->ops->memory && backend->ops->planner->overlap_depth == 0;
    f->desc = desc;
    f->weights = weights;
    int status = keep_group(f, group, err);
    if (status == QUIRE_OK)
        status = describe_memory(f, plan, err);
    if (status == QUIRE_OK)
        status = alloc_staging(f, plan, err);
    if (status == QUIRE_OK)
        status = alloc_stage_buffer(f, plan->bytes[PLAN_STAGE_BUFFER], err);
    if (status == QUIRE_OK)
        status = alloc_buffers(f, plan, err);
    if (status == QUIRE_OK)
        status = alloc_kv(f, plan, err);
    if (status == QUIRE_OK)
        status = forward_alloc_expert_load(f, err);
    f->max_decoding = plan->max_num_seqs < plan->max_num_batched_tokens ? plan->max_num_seqs
                                                                        : plan->max_num_batched_tokens;
    if (status != QUIRE_OK) {
        forward_destroy(f);
        return status;
    }
    *out = f;
    return QUIRE_OK;
}

int forward_ready(struct forward *f, bool graphs, struct quire_error *err)
{
    struct k_backend *b = f->backend;
    int status = forward_is_shared(f) ? b->ops->join(b, &f->group->stage, err) : QUIRE_OK;
    if (status == QUIRE_OK && forward_is_shared(f))
        status = forward_clear_digest(f, err);
    if (status == QUIRE_OK)
        status = forward_clear_stage(f, err);
    /* join() may have replaced the operations by those without graphs. */
    if (status == QUIRE_OK && graphs && f->desc->config->outputs.kind == OUTPUT_TOKENS && b->ops->graph_begin)
        status = forward_graphs_create(f, f->max_decoding, err);
    return status;
}

static void free_dev(struct forward *f, void *dev)
{
    if (dev)
        f->backend->ops->free(f->backend, dev);
}

static void destroy_layers(struct forward *f, struct k_kv_layer *layers)
{
    for (uint32_t l = 0; layers && l < f->desc->config->n_layers; l++) {
        free_dev(f, layers[l].k_dev);
        free_dev(f, layers[l].v_dev);
    }
    free(layers);
}

static void destroy_kv(struct forward *f)
{
    if (!f->kv)
        return;
    destroy_layers(f, f->kv->layers);
    destroy_layers(f, f->kv->host_layers);
    free(f->kv->layer_group);
    free(f->kv);
}

void forward_destroy(struct forward *f)
{
    if (!f)
        return;
    forward_graphs_destroy(f);
    destroy_kv(f);
    free_dev(f, f->workspace_dev);
    free_dev(f, f->sampled_dev);
    free_dev(f, f->logits_dev);
    free_dev(f, f->arena_dev);
    free_dev(f, f->stage_buffer ? f->stage_buffer->bytes : NULL);
    free(f->stage_buffer);
    free_dev(f, f->staging[0]);
    free_dev(f, f->staging[1]);
    free_dev(f, f->results[0]);
    free_dev(f, f->results[1]);
    free_dev(f, f->vectors[0]);
    free_dev(f, f->vectors[1]);
    free_dev(f, f->digest);
    forward_free_expert_load(f);
    free(f->watch);
    free(f->group);
    free(f->layout);
    free(f);
}
