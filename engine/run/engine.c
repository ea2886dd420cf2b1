#include "engine/engine.h"
#include "engine/event.h"
#include "engine/grammars.h"
#include "engine/info.h"
#include "engine/model/describe.h"
#include "engine/stats.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"
#include "engine/identity/model_identity.h"
#include "engine/run/draft_model.h"
#include "engine/run/events.h"
#include "base/host_memory.h"
#include "engine/run/loop.h"
#include "engine/run/open.h"
#include "engine/run/rank.h"
#include "engine/run/schedule.h"
#include "engine/run/speculate.h"
#include "engine/run/step.h"
#include "memory/prefix.h"
#include "scheduler/fit/cost_fitter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_QUEUED_REQUESTS 1024u

/* ---- open ------------------------------------------------------------------------------------ */

static int open_backend(struct engine *e, const struct engine_options *o, struct quire_error *err)
{
    const struct k_gpu_choice choice = {e, rank_choose_gpu};
    struct k_backend_options options = {.device = o->device,
                                        .n_threads = o->n_threads,
                                        .weight_format = model_weight_format(&e->model->desc),
                                        .cpu_bind = o->cpu_bind,
                                        .choice = &choice};
    int status = engine_plan_form(o, &e->model->desc, &options.form, err);
    if (status == QUIRE_OK)
        status = engine_plan_invariance(o, &options.not_invariant, err);
    if (status == QUIRE_OK)
        status = k_backend_open(&options, &e->backend, &e->info->device_why, err);
    if (status != QUIRE_OK)
        return status;
    e->info->gemm_library = e->backend->gemm_library;
    snprintf(e->info->gemms, sizeof e->info->gemms,
             e->info->gemm_library ? "%s, of many tokens %s (--invariance off)" : "%s", k_form_name(e->backend->form),
             e->info->gemm_library);
    e->info->placement = e->backend->placement;
    if (!e->backend->ops->supports(e->backend, K_OP_GEMM, e->backend->form, options.weight_format))
        return quire_fail(err, QUIRE_UNSUPPORTED, "--gemm-form: device %s does not have %s for %s weights",
                          e->backend->ops->planner->name, k_form_name(e->backend->form),
                          k_format_name(options.weight_format));
    return QUIRE_OK;
}

/* Checks a GPU's budget against the memory that other processes have left. */
static int check_device_memory(const struct engine_plan *plan, struct quire_error *err)
{
    uint64_t weights = plan->bytes[PLAN_WEIGHTS] + plan->bytes[PLAN_DRAFT_WEIGHTS];
    uint64_t needed = engine_plan_device_bytes(plan) + weights + plan->driver_bytes;
    if (needed <= plan->device_budget)
        return QUIRE_OK;
    return quire_fail(
        err, QUIRE_NO_MEMORY,
        "this needs %s of the GPU's %s (weights %s, KV cache %s, in use or reserved for the driver %s), but"
        " --gpu-memory-utilization allows %s: raise that, or lower --kv-cache-memory, --num-kv-blocks,"
        " --max-num-seqs or --max-num-batched-tokens",
        quire_size(needed).text, quire_size(plan->device_memory).text, quire_size(weights).text,
        quire_size(plan->bytes[PLAN_KV]).text, quire_size(plan->driver_bytes).text,
        quire_size(plan->device_budget).text);
}

/* Without this check, a lack of memory would show only when pages are touched, by a killed process. n_ranks: ranks
 * that are about to allocate. */
static int check_memory(const struct engine_plan *plan, uint32_t n_ranks, struct quire_error *err)
{
    uint64_t available = host_memory_available();
    if (plan->device_memory) {
        int status = check_device_memory(plan, err);
        if (status != QUIRE_OK || plan->bytes[PLAN_SWAP] + plan->bytes[PLAN_DRAFTS] + plan->bytes[PLAN_MASKS] +
                                          plan->bytes[PLAN_STAGE_BUFFER] <=
                                      available)
            return status;
    }
    if (engine_plan_total_bytes(plan) <= available / n_ranks)
        return QUIRE_OK;
    if (n_ranks > 1)
        return quire_fail(
            err, QUIRE_NO_MEMORY,
            "each of %u ranks on this host needs %s besides the weights, %s of them for the KV cache, but %s"
            " are free for all: lower --kv-cache-memory or --num-kv-blocks, which count for each rank, or"
            " --max-num-seqs",
            n_ranks, quire_size(engine_plan_total_bytes(plan)).text, quire_size(plan->bytes[PLAN_KV]).text,
            quire_size(available).text);
    return quire_fail(err, QUIRE_NO_MEMORY,
                      "this needs %s besides the weights, %s of them for the KV cache and %s for its host tier, but %s"
                      " are free: lower --kv-cache-memory, --num-kv-blocks, --swap-space or --max-num-seqs",
                      quire_size(engine_plan_total_bytes(plan)).text, quire_size(plan->bytes[PLAN_KV]).text,
                      quire_size(plan->bytes[PLAN_SWAP]).text, quire_size(available).text);
}

/* Measures the GPU memory that is used but not ours: the driver's, now that everything is loaded, and other
 * processes'. */
static int measure_driver(struct engine *e, struct quire_error *err)
{
    struct engine_plan *p = e->plan;
    uint64_t total, available, weights = p->bytes[PLAN_WEIGHTS] + p->bytes[PLAN_DRAFT_WEIGHTS];
    uint64_t ours = engine_plan_device_bytes(p) + weights;
    int status = e->backend->ops->memory(e->backend, &total, &available, err);
    if (status != QUIRE_OK)
        return status;
    uint64_t used = total - available;
    p->driver_bytes = used > ours ? used - ours : 0;
    e->info->n_graphs = forward_n_graphs(e->forward);
    e->info->graph_bytes = forward_graph_bytes(e->forward);
    quire_log(
        QUIRE_LOG_INFO, "engine",
        "GPU memory: weights %s, KV cache %s, the rest of ours %s; driver and others %s, of which %u recorded steps"
        " %s (%s were reserved for them); %s of %s are free",
        quire_size(weights).text, quire_size(p->bytes[PLAN_KV]).text,
        quire_size(ours - weights - p->bytes[PLAN_KV]).text, quire_size(p->driver_bytes).text, e->info->n_graphs,
        quire_size(e->info->graph_bytes).text, quire_size(engine_plan_graph_reserve_bytes(p)).text,
        quire_size(available).text, quire_size(total).text);
    return QUIRE_OK;
}

int engine_plan_task(const struct engine_options *o, struct model_config *config, struct quire_error *err)
{
    const char *task = o->task ? o->task : "auto";
    bool embed = strcmp(task, "embed") == 0, generate = strcmp(task, "generate") == 0;
    if (!embed && !generate && strcmp(task, "auto") != 0)
        return quire_fail(err, QUIRE_INVALID, "--task: must be auto, generate or embed, got '%.40s'", task);
    if (generate && config->outputs.kind != OUTPUT_TOKENS)
        return quire_fail(err, QUIRE_INVALID, "--task generate: a %s returns vectors and generates no text",
                          config->architecture);
    if (embed && config->outputs.kind == OUTPUT_TOKENS) {
        int status = model_describe_vector(o->model_dir, config, err);
        if (status != QUIRE_OK)
            return status;
    }
    if (o->attention_window || o->attention_sinks) {
        int status = model_stream(config, o->attention_sinks, o->attention_window, err);
        if (status != QUIRE_OK)
            return status;
    }
    const uint32_t longest = o->max_model_len ? o->max_model_len : config->max_position;
    for (uint32_t i = 0; i < config->n_ropes; i++)
        model_rope_choose(&config->ropes[i], model_reach(config, longest));
    if (config->outputs.kind == OUTPUT_TOKENS)
        return QUIRE_OK;
    if (engine_step_options(o)->speculative.method != DRAFT_NONE)
        return quire_fail(err, QUIRE_INVALID,
                          "--speculative-config: a model that returns vectors generates no tokens: leave it out");
    if (model_reads_whole(config) && o->swap_space)
        return quire_fail(err, QUIRE_INVALID,
                          "--swap-space: a model that reads whole texts has no prefix cache to swap: leave it out");
    return QUIRE_OK;
}

static int check_unused(const struct engine *e, bool ignore, struct quire_error *err)
{
    struct weights_unused unused;
    int status = weights_unused(e->model->files->checkpoint, &e->model->desc, ignore, &unused, err);
    for (uint32_t i = 0; status == QUIRE_OK && e->rank == 0 && i < unused.n; i++)
        if (strcmp(unused.of[i].what, WEIGHTS_IGNORED) == 0)
            quire_log(
                QUIRE_LOG_WARN, "engine",
                "%u tensors of the checkpoint are not used, the first is '%.150s': the model may differ from the one that"
                " its files describe",
                unused.of[i].n, unused.of[i].first);
    return status;
}

int engine_prepare(struct engine *e, const struct engine_options *asked, struct quire_error *err)
{
    struct engine_options o = *asked;
    if (!o.model_dir)
        return quire_fail(err, QUIRE_INVALID, "model: no directory was given");
    if (!o.device)
        o.device = "auto";
    int status = model_describe(o.model_dir, &e->model->files->config, &e->sampling_defaults, err);
    e->model->desc.config = e->model->files->config;
    if (status == QUIRE_OK)
        status = engine_plan_task(&o, e->model->files->config, err);
    if (status == QUIRE_OK && model_reads_whole(e->model->files->config))
        e->info->prefix_caching = false;
    if (status == QUIRE_OK)
        status = weights_open(o.model_dir, e->model->files->config, &e->model->files->checkpoint, err);
    if (status == QUIRE_OK)
        status = weights_stored_dtype(e->model->files->checkpoint, o.quantization, e->model->files->config,
                                      &e->model->files->facts, err);
    if (status == QUIRE_OK)
        status = check_unused(e, o.ignore_unused_tensors, err);
    uint64_t weight_bytes = 0;
    if (status == QUIRE_OK)
        status = engine_plan_share(&o, e->model->files->checkpoint, &e->model->desc, e->rank, &e->model->own,
                                   &weight_bytes, err);
    if (status == QUIRE_OK)
        status = open_backend(e, &o, err);
    uint64_t mapped_bytes;
    if (status == QUIRE_OK)
        status = weights_look_share(e->model->files->checkpoint, e->backend->ops->planner, &e->model->own,
                                    &mapped_bytes, err);
    if (status == QUIRE_OK)
        status = draft_model_prepare(e, &o, err);
    if (status != QUIRE_OK)
        return status;
    o.device = e->backend->ops->planner->name;
    o.n_threads = e->backend->n_threads;
    struct engine_device device = {.planner = e->backend->ops->planner};
    if (e->backend->ops->memory)
        status = e->backend->ops->memory(e->backend, &device.memory, &device.available, err);
    if (status == QUIRE_OK)
        status = engine_plan_make_on(&o, &e->model->own, weight_bytes, draft_model_about(e->draft_model), &device,
                                     e->plan, err);
    if (status == QUIRE_OK && e->rank == 0) /* which decides for all */
        status = engine_plan_fit_all(&o, e->model->files->checkpoint, &e->model->desc,
                                     draft_model_about(e->draft_model), &device, e->plan, err);
    e->plan->gemm_form = e->backend->form;
    if (status != QUIRE_OK)
        return status;
    const uint32_t n_here = o.local_ranks ? o.local_ranks : e->plan->n_ranks;
    return check_memory(e->plan, e->rank == 0 ? n_here : 1, err);
}

static int open_draft(struct engine *e, const struct engine_options *o, struct quire_error *err)
{
    struct engine_plan own;
    int status = engine_plan_of_draft(e->plan, draft_model_about(e->draft_model), &own, err);
    return status == QUIRE_OK ? draft_model_open(e, &own, !o->enforce_eager, err) : status;
}

static int load_weights(struct engine *e, const struct engine_options *o, struct quire_error *err)
{
    const struct quantization_made *made = e->model->desc.facts->quantization.made;
    struct repack_source keep = {.dir = o->repack_cache,
                                 .model = o->model_dir,
                                 .made = made ? made->identity : "",
                                 .description = model_identity(&e->model->desc),
                                 .first_layer = e->model->own.shard.first_layer,
                                 .end_layer = e->model->own.shard.end_layer,
                                 .n_threads = e->plan->n_threads};
    if (e->model->own.shard.whole_experts) {
        keep.rank = e->model->own.shard.rank;
        keep.n_ranks = e->model->own.shard.n_ranks;
    }
    if (keep.dir)
        keep.checkpoint = checkpoint_digest(e->model->files->checkpoint, true);
    struct weights_progress progress = {.fn = NULL};
    if (o->observers)
        progress = (struct weights_progress){o->observers->loading, o->observers->loading_context};
    return weights_create(e->backend, e->model->files->checkpoint, &e->model->own, e->backend->form,
                          keep.dir ? &keep : NULL, progress, &e->model->weights, err);
}

int engine_load(struct engine *e, const struct engine_options *o, struct quire_error *err)
{
    const struct forward_group group = rank_group(e);
    int status = load_weights(e, o, err);
    if (status == QUIRE_OK)
        status = forward_create(e->backend, &e->model->own, e->plan, e->model->weights, e->collective ? &group : NULL,
                                &e->forward, err);
    if (status == QUIRE_OK && o->observers)
        status = forward_watch_logits(
            e->forward, (struct forward_logits_watch){o->observers->logits, o->observers->logits_context}, err);
    return status;
}

static int open_model(struct engine *e, const struct engine_options *given, struct quire_error *err)
{
    struct engine_options placed = *given;
    const struct engine_options *o = &placed;
    struct position position;
    int status = rank_find_position(&placed, &position, err);
    if (status == QUIRE_OK)
        status = engine_prepare(e, o, err);
    if (status != QUIRE_OK)
        rank_give_up(e, o, err);
    else if (e->plan->n_ranks > 1)
        status = rank_begin(e, o, err);
    if (status != QUIRE_OK)
        return status;
    if (e->model->desc.facts->quantization.scales_cache)
        quire_log(QUIRE_LOG_INFO, "engine",
                  "the checkpoint's own scales for a KV cache (kv_cache_scheme) are not used: the cache is in %s; with"
                  " --kv-cache-dtype fp8 or int8 each token and head has a scale of its own",
                  k_format_name(e->plan->kv_format));
    if (!o->max_model_len && e->plan->max_model_len < e->model->desc.config->max_position &&
        !model_reads_whole(e->model->desc.config))
        quire_log(QUIRE_LOG_WARN, "engine",
                  "requests are limited to %u tokens instead of the model's %u: that is what the KV"
                  " cache of %s holds; --kv-cache-memory makes it larger",
                  e->plan->max_model_len, e->model->desc.config->max_position,
                  quire_size(e->plan->bytes[PLAN_KV]).text);
    status = engine_load(e, o, err);
    if (status == QUIRE_OK && e->ranks)
        status = rank_agree(e, err);
    if (status == QUIRE_OK)
        status = forward_ready(e->forward, !o->enforce_eager, err);
    if (status == QUIRE_OK && e->draft_model)
        status = open_draft(e, o, err);
    if (status == QUIRE_OK && e->plan->device_memory)
        status = measure_driver(e, err);
    return status;
}

/* config: as the options have it; what follows from the plan is added here. */
static int open_scheduler(struct engine *e, const struct engine_options *o, struct sched_config *config,
                          uint32_t max_queued, struct quire_error *err)
{
    config->kv.block_tokens = e->plan->block_tokens;
    config->kv.n_groups = engine_plan_n_groups(e->plan);
    for (uint32_t g = 0; g < config->kv.n_groups; g++) {
        config->kv.groups[g].n_blocks = e->plan->groups[g].n_blocks;
        config->kv.groups[g].n_host_blocks = e->plan->groups[g].n_host_blocks;
        config->kv.groups[g].window = e->plan->groups[g].window;
        config->kv.groups[g].sinks = e->plan->groups[g].n_sinks;
    }
    config->whole_prompts = model_reads_whole(e->model->desc.config);
    config->kv.prefix_caching = e->info->prefix_caching;
    config->max_num_seqs = e->plan->max_num_seqs;
    config->max_num_batched_tokens = e->plan->max_num_batched_tokens;
    config->max_model_len = e->plan->max_model_len;
    /* The mailbox has admitted what comes here, so the scheduler must not refuse it: besides the queue
     * it holds the preempted and the one request that is taken whatever its choices. */
    config->max_queued_requests = max_queued + e->plan->max_num_seqs + REQUEST_MAX_CHOICES;
    config->max_logit_rows = e->plan->max_logit_rows;
    config->overlap_depth = engine_plan_overlap_depth(e->plan);
    config->secret = e->chain_secret;
    int status = sched_create(config, &e->run->sched, err);
    if (status == QUIRE_OK)
        status = sched_driver_create(e->run->sched, &engine_steps, e, &e->run->driver, err);
    if (status != QUIRE_OK)
        return status;
    status = loop_create(e, config->batching == SCHED_STATIC, err);
    if (status == QUIRE_OK && !config->cost)
        status = cost_fitter_create(&e->run->fitter, err);
    if (status != QUIRE_OK)
        return status;
    ENGINE_WATCH(e, opened, e->info, config);
    /* The scheduler's names stay below what can wait, run and be on the way out. */
    e->run->n_owners = config->max_queued_requests + (engine_plan_overlap_depth(e->plan) + 2) * config->max_num_seqs;
    e->run->owners = calloc(e->run->n_owners, sizeof *e->run->owners);
    return e->run->owners ? speculate_create(e, o, err) : quire_fail(err, QUIRE_NO_MEMORY, "requests: out of memory");
}

/* Stores the options for later policies. */
static int keep_policy(struct engine *e, const struct sched_policy_options *o, struct quire_error *err)
{
    const uint32_t n = o->n_tenants ? o->n_tenants : 1;
    e->policy = malloc(sizeof *e->policy + n * sizeof e->policy->tenants[0]);
    if (!e->policy)
        return quire_fail(err, QUIRE_NO_MEMORY, "tenants: out of memory");
    e->policy->options = *o;
    e->policy->options.n_tenants = n;
    if (o->tenants) {
        memcpy(e->policy->tenants, o->tenants, n * sizeof *o->tenants);
        e->policy->options.tenants = e->policy->tenants;
    }
    return QUIRE_OK;
}

/* Fills in engine_info once the model is loaded. */
static void introduce(struct engine *e, uint32_t max_queued)
{
    struct engine_info *info = e->info;
    info->vector_size = e->model->desc.config->outputs.vector_size;
    info->vector_is_scores = e->model->desc.config->outputs.kind == OUTPUT_SCORES;
    info->vocab_size = e->model->desc.config->vocab_size;
    info->n_eos = e->model->desc.config->tokens.n_eos;
    info->eos = e->model->desc.config->tokens.eos;
    info->max_model_len = e->plan->max_model_len;
    info->max_num_seqs = e->plan->max_num_seqs;
    info->max_num_batched_tokens = e->plan->max_num_batched_tokens;
    info->max_queued_requests = max_queued;
    info->block_tokens = e->plan->block_tokens;
    info->n_blocks = e->plan->groups[0].n_blocks;
    info->n_host_blocks = e->plan->groups[0].n_host_blocks;
    info->cache_dtype = k_format_name(e->plan->kv_format);
    if (!info->device_why || !*info->device_why)
        info->device_why = engine_plan_device(e->plan);
    const enum k_gemm_form form = e->plan->gemm_form;
    info->identity = (struct engine_identity){
        .numerics = K_NUMERICS_VERSION,
        .weights = checkpoint_digest(e->model->files->checkpoint, true),
        .model = model_identity(&e->model->desc),
        .weight_format = e->model->desc.facts->quantization.made ? e->model->desc.facts->quantization.made->identity
                                                                 : k_format_name(e->plan->weight_format),
        .form = form == K_FORM_TILE_BF16 ? k_form_name(K_FORM_TILE) : k_form_name(form),
        .activation = form == K_FORM_INT8 ? "int8" : k_dtype_name(form == K_FORM_TILE_BF16 ? K_BF16 : K_F32),
        .kv_format = k_format_name(e->plan->kv_format),
        .invariance = info->gemm_library ? "off" : "strict",
        .adapters = "none",
    };
    engine_identity_seal(&info->identity);
}

static void wake(void *engine)
{
    struct engine *e = engine;
    mailbox_wake(e->mailbox);
}

#define MOST_MASK_THREADS 4u

/* Threads for masks: the CPUs that computing leaves, and at least one. */
static uint32_t n_mask_threads(const struct engine *e, const struct engine_options *o)
{
    const long n_cpus = sysconf(_SC_NPROCESSORS_ONLN);
    const uint32_t n_left = n_cpus > (long)e->plan->n_threads ? (uint32_t)n_cpus - e->plan->n_threads : 1;
    if (o->grammars->n_threads)
        return o->grammars->n_threads;
    return n_left < MOST_MASK_THREADS ? n_left : MOST_MASK_THREADS;
}

static int open_constraints(struct engine *e, const struct engine_options *o, struct quire_error *err)
{
    if (!e->plan->bytes[PLAN_MASKS])
        return QUIRE_OK;
    const struct constraints_options options = {.grammars = o->grammars,
                                                .n_vocab = e->model->desc.config->vocab_size,
                                                .max_rows = e->plan->max_logit_rows,
                                                .max_seqs = e->plan->max_num_seqs,
                                                .n_threads = n_mask_threads(e, o),
                                                .compiled = wake,
                                                .context = e};
    return constraints_create(&options, &e->constraints, err);
}

static int open_all(struct engine *e, const struct engine_options *o, struct quire_error *err)
{
    uint32_t max_queued = o->max_queued_requests ? o->max_queued_requests : DEFAULT_QUEUED_REQUESTS;
    if (max_queued > 1u << 19)
        return quire_fail(err, QUIRE_INVALID, "--max-num-queued-reqs: must be at most %u, got %u", 1u << 19,
                          max_queued);
    if (quire_hash_init() != QUIRE_OK)
        return quire_fail(err, QUIRE_INTERNAL, "the system returns no random numbers");
    if (o->chain_secret)
        e->chain_secret = *o->chain_secret;
    else
        quire_random(&e->chain_secret, sizeof e->chain_secret);
    e->info->prefix_caching = o->prefix_caching;
    e->info->draft_method = draft_method_name(engine_step_options(o)->speculative.method);
    e->info->num_speculative_tokens = engine_step_options(o)->speculative.num_speculative_tokens;
    e->has_seed = o->has_seed;
    e->seed = o->seed;
    const struct engine_observers *observers = o->observers;
    if (observers && observers->n_watches > ENGINE_MAX_WATCHES)
        return quire_fail(err, QUIRE_INVALID, "watches: at most %u", ENGINE_MAX_WATCHES);
    for (uint32_t i = 0; observers && i < observers->n_watches; i++)
        e->watches[e->n_watches++] = observers->watches[i];

    struct sched_config config;
    int status = schedule_config(o, &config, err);
    if (status == QUIRE_OK)
        status = keep_policy(e, &engine_step_options(o)->policy_options, err);
    if (status == QUIRE_OK)
        status = open_model(e, o, err);
    if (status == QUIRE_OK) {
        introduce(e, max_queued);
        status = open_scheduler(e, o, &config, max_queued, err);
    }
    if (status == QUIRE_OK)
        status = mailbox_create(max_queued, o->max_queued_tokens, e->policy->options.n_tenants, &e->mailbox, err);
    if (status == QUIRE_OK)
        status = open_constraints(e, o, err);
    if (status == QUIRE_OK)
        status = events_create(e, err);
    if (status == QUIRE_OK)
        status = steps_create(e, err);
    return status;
}

static struct engine_model *model_new(void)
{
    struct engine_model *m = calloc(1, sizeof *m);
    struct opened_model *files = calloc(1, sizeof *files);
    if (!m || !files) {
        free(files);
        free(m);
        return NULL;
    }
    m->files = files;
    m->desc = opened_model_desc(files);
    return m;
}

/* NULL is fine. */
static void model_free(struct engine_model *m)
{
    if (!m)
        return;
    opened_model_close(m->files);
    free(m->files);
    free(m);
}

struct engine *engine_new(struct quire_error *err)
{
    struct engine *e = calloc(1, sizeof *e);
    if (!e) {
        quire_fail(err, QUIRE_NO_MEMORY, "engine: out of memory");
        return NULL;
    }
    e->info = calloc(1, sizeof *e->info);
    e->model = model_new();
    e->plan = calloc(1, sizeof *e->plan);
    e->shared = rank_shared_new(err);
    if (!e->info || !e->model || !e->plan || !e->shared) {
        quire_fail(err, QUIRE_NO_MEMORY, "engine: out of memory");
        free(e->shared);
        free(e->plan);
        model_free(e->model);
        free(e->info);
        free(e);
        return NULL;
    }
    e->info->desc = &e->model->desc;
    e->info->sampling = &e->sampling_defaults;
    e->info->plan = e->plan;
    return e;
}

int engine_examine(const struct engine_options *options, void (*look)(void *context, const struct engine_info *info),
                   void *context, struct quire_error *err)
{
    struct sched_config config;
    const struct weights_progress nobody = {.fn = NULL};
    struct engine *e = engine_new(err);
    if (!e)
        return QUIRE_NO_MEMORY;
    int status = schedule_config(options, &config, err);
    if (status == QUIRE_OK)
        status = engine_prepare(e, options, err);
    /* In host memory weights are bound where they lie, and every tensor is looked for on the way. */
    if (status == QUIRE_OK && e->plan->planner->on_host)
        status = weights_create(e->backend, e->model->files->checkpoint, &e->model->own, e->backend->form, NULL, nobody,
                                &e->model->weights, err);
    if (status == QUIRE_OK && e->plan->planner->on_host)
        status = draft_model_bind(e, err);
    look(context, e->info);
    engine_close(e);
    return status;
}

int engine_open(const struct engine_options *options, engine_sink sink, void *sink_context, struct engine **out,
                struct quire_error *err)
{
    double begin = quire_now_s();
    struct engine *e = engine_new(err);
    *out = NULL;
    if (!e)
        return QUIRE_NO_MEMORY;
    e->sink.call = sink;
    e->sink.context = sink_context;
    e->run = calloc(1, sizeof *e->run);
    int status = e->run ? open_all(e, options, err) : quire_fail(err, QUIRE_NO_MEMORY, "engine: out of memory");
    if (status == QUIRE_OK) {
        e->info->open_seconds = quire_now_s() - begin;
        e->run->report.stats.token_budget = e->plan->max_num_batched_tokens;
        e->run->report.stats.attention_window = e->model->desc.config->streaming.window;
        e->run->report.stats.attention_sinks = e->model->desc.config->streaming.n_sinks;
        engine_publish(e, 0);
        e->has_thread = pthread_create(&e->thread, NULL, engine_main, e) == 0;
        if (!e->has_thread)
            status = quire_fail(err, QUIRE_INTERNAL, "engine: cannot start its thread");
    }
    if (status != QUIRE_OK) {
        engine_close(e);
        return status;
    }
    *out = e;
    return QUIRE_OK;
}

static void close_run(struct engine_run *run)
{
    if (!run)
        return;
    steps_destroy(run->steps);
    events_destroy(run->events);
    loop_destroy(run->loop);
    cost_fitter_destroy(run->fitter);
    sched_driver_destroy(run->driver);
    sched_destroy(run->sched);
    free(run->owners);
    free(run);
}

void engine_close(struct engine *e)
{
    if (!e)
        return;
    if (e->has_thread) {
        mailbox_close(e->mailbox);
        pthread_join(e->thread, NULL);
    }
    if (e->backend)
        e->backend->ops->leave(e->backend);
    rank_shared_close(e->shared);
    ranks_stop(e->ranks);
    constraints_destroy(e->constraints); /* its threads wake the mailbox */
    mailbox_destroy(e->mailbox);
    speculate_destroy(e->speculation);
    close_run(e->run);
    draft_model_close(e->draft_model);
    forward_destroy(e->forward);
    weights_destroy(e->model->weights);
    if (e->backend)
        e->backend->ops->close(e->backend);
    free(e->policy);
    free(e->shared);
    free(e->plan);
    model_free(e->model);
    free(e->info);
    free(e);
}

/* ---- requests -------------------------------------------------------------------------------- */

/* The seed of a request that brings no seed. With --seed it follows from that value and the number of earlier
 * requests (splitmix64), so that a replay draws the same. */
static uint64_t next_seed(struct engine *e)
{
    uint64_t z;
    if (!e->has_seed) {
        quire_random(&z, sizeof z);
        return z;
    }
    z = e->seed + (mailbox_next_number(e->mailbox) + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static int add_grammar(struct engine *e, struct request *r, struct quire_error *err)
{
    struct compiled *grammar;
    if (!e->constraints)
        return quire_fail_for(err, QUIRE_UNSUPPORTED, "structured_outputs",
                              "this engine was opened without a tokenizer");
    int status = compiler_add(constraints_compiler(e->constraints), (const char *)r->spec->grammar, r->spec->n_grammar,
                              &grammar, err);
    return status == QUIRE_OK ? request_take_grammar(r, grammar, err) : status;
}

int engine_submit(struct engine *e, uint64_t engine_id, struct request_spec *spec, uint32_t *retry_after_ms,
                  struct quire_error *err)
{
    const struct request_limits limits = {.desc = &e->model->desc,
                                          .max_model_len = e->plan->max_model_len,
                                          .block_tokens = e->plan->block_tokens,
                                          .n_tenants = e->policy->options.n_tenants,
                                          .prefix_caching = e->info->prefix_caching,
                                          .chain_secret = &e->chain_secret};
    uint32_t retry = 0;
    struct request *r;
    if (!spec->has_seed) {
        spec->has_seed = true;
        spec->seed = next_seed(e);
    }
    int status = request_create(engine_id, spec, &limits, quire_now_us(), &r, err);
    if (status == QUIRE_OK) {
        status = speculate_check(e, r, err);
        if (status == QUIRE_OK && r->spec->n_grammar > 0)
            status = add_grammar(e, r, err);
        if (status != QUIRE_OK)
            request_free(r);
    }
    if (status == QUIRE_OK) {
        status = mailbox_submit(e->mailbox, r, &retry, err);
        if (status != QUIRE_OK)
            request_free(r);
    }
    if (retry_after_ms)
        *retry_after_ms = retry;
    return status;
}

void engine_cancel(struct engine *e, uint64_t request)
{
    mailbox_cancel(e->mailbox, request, MAILBOX_ALL_CHOICES);
}

void engine_cancel_choice(struct engine *e, uint64_t request, uint32_t choice)
{
    if (choice != MAILBOX_ALL_CHOICES)
        mailbox_cancel(e->mailbox, request, choice);
}

int engine_predict(struct engine *e, uint64_t request, uint32_t *tokens, uint32_t n, struct quire_error *err)
{
    uint32_t n_right = 0;
    while (n_right < n && tokens[n_right] < e->model->desc.config->vocab_size)
        n_right++;
    if (n_right < n) {
        const uint32_t wrong = tokens[n_right];
        free(tokens);
        return quire_fail_for(err, QUIRE_INVALID, "prediction", "%u is not below the vocabulary's %u", wrong,
                              e->model->desc.config->vocab_size);
    }
    mailbox_predict(e->mailbox, request, tokens, n < e->plan->max_model_len ? n : e->plan->max_model_len);
    return QUIRE_OK;
}

void engine_report_hits(struct engine *e, const uint32_t *served, uint32_t n_served)
{
    mailbox_report_hits(e->mailbox, served, n_served);
}

void engine_drain(struct engine *e)
{
    mailbox_refuse_new(e->mailbox);
}

int engine_check(const struct engine *e, struct quire_error *err)
{
    return e->ranks ? ranks_check(e->ranks, err) : QUIRE_OK;
}

void engine_no_more(struct engine *e)
{
    mailbox_no_more(e->mailbox);
}

/* Merges the caller's options over the stored ones. */
static void policy_options_from(const struct engine_policy_options *from, struct sched_policy_options *o)
{
    _Static_assert(ENGINE_MAX_CLASSES == SCHED_MAX_CLASSES, "classes of service");
    _Static_assert(ENGINE_MAX_TENANTS == SCHED_MAX_TENANTS, "tenants");
    o->ageing_us = from->ageing_us;
    memcpy(o->class_weights, from->class_weights, sizeof o->class_weights);
    memcpy(o->class_ttft_us, from->class_ttft_us, sizeof o->class_ttft_us);
    o->prompt_price = from->prompt_price;
    o->output_price = from->output_price;
    o->prefill_share = from->prefill_share;
}

int engine_set_policy(struct engine *e, const char *name, const struct engine_policy_options *options, uint64_t *order,
                      struct quire_error *err)
{
    const struct sched_policy *policy = sched_policy_find(name);
    struct sched_policy_options o = e->policy->options;
    if (!policy)
        return quire_fail(err, QUIRE_INVALID, "policy: must be one of %s, got '%.40s'", sched_policy_names(), name);
    if (options)
        policy_options_from(options, &o);
    /* A trial creation, so that options which the policy rejects fail here and not later on the engine thread. */
    void *state = NULL;
    int status = policy->create ? policy->create(&o, &state, err) : QUIRE_OK;
    if (status != QUIRE_OK)
        return status;
    if (policy->destroy)
        policy->destroy(state);
    *order = mailbox_set_policy(e->mailbox, policy, &o);
    return QUIRE_OK;
}

uint64_t engine_unpin(struct engine *e, uint32_t tenant)
{
    bool there = tenant == MAILBOX_ALL_TENANTS || tenant < e->policy->options.n_tenants;
    return there ? mailbox_unpin(e->mailbox, tenant) : 0;
}

const struct engine_info *engine_info(const struct engine *e)
{
    return e->info;
}

void engine_stats(const struct engine *e, struct engine_stats *out)
{
    mailbox_stats(e->mailbox, out);
}

int engine_tenant_stats(const struct engine *e, uint32_t tenant, struct engine_tenant_stats *out)
{
    struct sched_tenant_stats s;
    if (tenant >= e->policy->options.n_tenants)
        return QUIRE_INVALID;
    mailbox_tenant_stats(e->mailbox, tenant, &s);
#define COPY(member, ...) out->member = s.member;
    STATS_TENANT_ROWS(COPY)
#undef COPY
    return QUIRE_OK;
}
