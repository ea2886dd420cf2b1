#include "engine/run/rank.h"

#include "engine/engine.h"
#include "engine/identity/model_identity.h"
#include "engine/ranks/gpus.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TENSOR "--tensor-parallel-size"
#define PIPELINE "--pipeline-parallel-size"
#define GIVE_UP_MS 10000u /* time for ranks that were started together to connect and receive the reason */

/* This rank's part of the group. */
struct rank_shared {
    struct rank_parts parts; /* of e->collective */
    struct rank_waits waits; /* as last reported; rank 0's */
    struct k_gpu_id gpu;     /* on rank 0 with a GPU: its GPU */
    bool has_told_gpus;      /* to the other ranks */
    bool is_across_hosts;    /* the ranks of its stage are; on a GPU, where it matters */
};

struct rank_shared *rank_shared_new(struct quire_error *err)
{
    struct rank_shared *shared = calloc(1, sizeof *shared);
    if (!shared)
        quire_fail(err, QUIRE_NO_MEMORY, "engine: out of memory");
    return shared;
}

void rank_shared_close(struct rank_shared *shared)
{
    if (shared)
        parts_close(&shared->parts);
}

int rank_join(struct engine *e, struct collective *c, uint32_t n_stages, struct quire_error *err)
{
    e->collective = c;
    return parts_open(c, n_stages, &e->shared->parts, err);
}

static uint32_t at_least_one(uint32_t n)
{
    return n > 1 ? n : 1;
}

static int check_sizes(const struct engine_options *o, const struct model_desc *desc, struct quire_error *err)
{
    const uint32_t n_places = at_least_one(o->tensor_parallel_size), n_stages = at_least_one(o->pipeline_parallel_size);
    if (n_places != 1 && n_places != 2 && n_places != 4 && n_places != 8)
        return model_share_check(desc, n_places, err);
    if (n_stages > desc->config->n_layers)
        return quire_fail(err, QUIRE_UNSUPPORTED,
                          PIPELINE " %u: the model has %u layer%s, but each stage needs at least one", n_stages,
                          desc->config->n_layers, desc->config->n_layers == 1 ? "" : "s");
    if (n_stages > COLLECTIVE_MAX_RANKS || n_places * n_stages > COLLECTIVE_MAX_RANKS)
        return quire_fail(err, QUIRE_UNSUPPORTED,
                          PIPELINE " %u with " TENSOR " %u: %u processes, but at most %d are supported", n_stages,
                          n_places, n_stages * n_places, COLLECTIVE_MAX_RANKS);
    return QUIRE_OK;
}

static int check_options(const struct engine_options *o, const struct model_desc *desc, struct quire_error *err)
{
    const char *flag = o->tensor_parallel_size > 1 ? TENSOR : PIPELINE;
    const bool is_bound = o->cpu_bind && strcmp(o->cpu_bind, "auto") != 0 && strcmp(o->cpu_bind, "none") != 0;
    int status = check_sizes(o, desc, err);
    if (status != QUIRE_OK)
        return status;
    if (desc->config->outputs.kind != OUTPUT_TOKENS)
        return quire_fail(err, QUIRE_UNSUPPORTED, "%s: a model that returns vectors runs on one rank: leave it out",
                          flag);
    if (engine_step_options(o)->speculative.method == DRAFT_MODEL)
        return quire_fail(err, QUIRE_UNSUPPORTED,
                          "%s: a draft model runs on one rank: leave one of the two out, or draft with "
                          "{\"method\": \"ngram\"}",
                          flag);
    if (is_bound)
        return quire_fail(err, QUIRE_UNSUPPORTED,
                          "--cpu-bind %.60s: a list works with one rank only: leave it out with %s", o->cpu_bind, flag);
    return model_share_check(desc, at_least_one(o->tensor_parallel_size), err);
}

/* Whether the last stage takes the extra layer in place of the first, unless that makes the larger of the two
 * larger. In a step that samples nothing, the last layer only computes K and V. */
static int deal_ends(const struct checkpoint *checkpoint, const struct model_desc *desc, uint32_t n_stages,
                     bool *last_has_more, struct quire_error *err)
{
    uint64_t most[2] = {0, 0};
    *last_has_more = false;
    if (n_stages == 1 || desc->config->n_layers % n_stages + 1 < n_stages)
        return QUIRE_OK;
    for (uint32_t i = 0; i < 4; i++) {
        struct model_desc end = *desc;
        uint64_t bytes;
        model_stage_describe(&end, i % 2 ? n_stages - 1 : 0, n_stages, i / 2);
        int status = weights_look_share(checkpoint, NULL, &end, &bytes, err);
        if (status != QUIRE_OK)
            return status;
        most[i / 2] = bytes > most[i / 2] ? bytes : most[i / 2];
    }
    *last_has_more = most[1] <= most[0];
    return QUIRE_OK;
}

static int check_experts(const struct engine_options *o, const struct model_desc *desc, struct quire_error *err)
{
    if (!o->enable_expert_parallel || model_largest_whole(desc, SIZE_EXPERTS) > 0)
        return QUIRE_OK;
    return quire_fail(err, QUIRE_UNSUPPORTED, "--enable-expert-parallel: %s is not a mixture of experts: leave it out",
                      desc->config->architecture);
}

/* Of the mapped bytes those that are read: without parts for images, for example. */
static int used_bytes(const struct checkpoint *checkpoint, const struct model_desc *desc, uint64_t *bytes,
                      struct quire_error *err)
{
    struct weights_unused unused;
    const int status = weights_unused(checkpoint, desc, true, &unused, err);
    *bytes = checkpoint_total_bytes(checkpoint);
    for (uint32_t i = 0; status == QUIRE_OK && i < unused.n; i++)
        *bytes -= unused.of[i].bytes;
    return status;
}

int engine_plan_share(struct engine_options *o, const struct checkpoint *checkpoint, const struct model_desc *desc,
                      uint32_t rank, struct model_desc *own, uint64_t *weight_bytes, struct quire_error *err)
{
    const uint32_t n_places = at_least_one(o->tensor_parallel_size), n_stages = at_least_one(o->pipeline_parallel_size);
    struct model_desc whole = *desc;
    uint32_t n_threads;
    *own = *desc;
    int status = used_bytes(checkpoint, desc, weight_bytes, err);
    if (status == QUIRE_OK)
        status = check_experts(o, desc, err);
    if (status != QUIRE_OK || (n_places == 1 && n_stages == 1))
        return status;
    whole.shard.whole_experts = o->enable_expert_parallel && n_places > 1;
    status = check_options(o, &whole, err);
    if (status == QUIRE_OK && !o->n_threads) {
        status = k_backend_threads(&(struct k_backend_options){.cpu_bind = o->cpu_bind}, &n_threads, err);
        o->n_threads = at_least_one(n_threads / (o->local_ranks ? o->local_ranks : n_places * n_stages));
    }
    if (status != QUIRE_OK)
        return status;
    bool last_has_more;
    *own = model_share_describe(&whole, 0, n_places); /* of all places alike */
    status = deal_ends(checkpoint, own, n_stages, &last_has_more, err);
    if (status != QUIRE_OK)
        return status;
    *own = model_share_describe(&whole, rank % n_places, n_places);
    model_stage_describe(own, rank / n_places, n_stages, last_has_more);
    return weights_look_share(checkpoint, NULL, own, weight_bytes, err);
}

/* ---- operations of the forward pass on the group ---- */

static int all_reduce_tree(void *parts, float *x, size_t n, struct quire_error *err)
{
    return collective_all_reduce_tree(((struct rank_parts *)parts)->stage, x, n, err);
}

static int all_gather(void *parts, const void *mine, size_t n_bytes, void *all, struct quire_error *err)
{
    return collective_all_gather(((struct rank_parts *)parts)->stage, mine, n_bytes, all, err);
}

static int gather(void *parts, const void *mine, size_t n_bytes, void *all, struct quire_error *err)
{
    return collective_gather(((struct rank_parts *)parts)->stage, mine, n_bytes, 0, all, err);
}

/* The rank whose digest differs from the majority. With two ranks it cannot be determined. */
static uint32_t find_odd(const uint64_t *digests, uint32_t n)
{
    uint32_t most = 0, most_like = 0;
    for (uint32_t r = 0; r < n; r++) {
        uint32_t like = 0;
        for (uint32_t other = 0; other < n; other++)
            like += digests[other] == digests[r];
        if (like > most_like) {
            most = r;
            most_like = like;
        }
    }
    for (uint32_t r = 0; r < n; r++)
        if (digests[r] != digests[most])
            return r;
    return n;
}

static int agree(void *parts, uint64_t digest, struct quire_error *err)
{
    const struct rank_parts *p = parts;
    uint64_t all[COLLECTIVE_MAX_RANKS];
    const uint32_t n = collective_size(p->stage), own = collective_rank(p->stage);
    const uint32_t first = collective_rank(p->whole) - own; /* first rank of the stage, counted in the whole group */
    int status = collective_all_gather(p->stage, &digest, sizeof digest, all, err);
    const uint32_t odd = status == QUIRE_OK ? find_odd(all, n) : n;
    if (odd == n)
        return status;
    const uint32_t other = odd == 0 ? 1 : 0;
    status = quire_fail(
        err, QUIRE_INTERNAL,
        "rank %u has computed different bits from rank %u (residual stream at the end of a step: digests "
        "%016llx and %016llx)%s",
        first + odd, first + other, (unsigned long long)all[odd], (unsigned long long)all[other],
        n > 2 ? "" : ", or the error is on that rank");
    collective_abort(p->whole, err->text);
    return status;
}

static int check(void *parts, struct quire_error *err)
{
    return collective_check(((struct rank_parts *)parts)->stage, err);
}

static void end(void *parts, const char *why)
{
    collective_abort(((struct rank_parts *)parts)->stage, why);
}

static int send_on(void *parts, const void *x, size_t n_bytes, struct quire_error *err)
{
    return parts_send(parts, x, n_bytes, err);
}

static int receive(void *parts, void *x, size_t n_bytes, struct quire_error *err)
{
    return parts_receive(parts, x, n_bytes, err);
}

static int send_back(void *parts, const void *x, size_t n_bytes, struct quire_error *err)
{
    return parts_send_back(parts, x, n_bytes, err);
}

static int receive_back(void *parts, void *x, size_t n_bytes, struct quire_error *err)
{
    return parts_receive_back(parts, x, n_bytes, err);
}

struct forward_group rank_group(struct engine *e)
{
    struct forward_group out = {.stage = {.n_ranks = 1},
                                .context = &e->shared->parts,
                                .agree = e->shared->parts.stage ? agree : NULL,
                                .send = send_on,
                                .receive = receive,
                                .send_back = send_back,
                                .receive_back = receive_back};
    if (e->shared->parts.stage)
        out.stage = (struct k_group){.context = &e->shared->parts,
                                     .rank = collective_rank(e->shared->parts.stage),
                                     .n_ranks = collective_size(e->shared->parts.stage),
                                     .first = collective_rank(e->shared->parts.whole) -
                                              collective_rank(e->shared->parts.stage),
                                     .is_across_hosts = e->shared->is_across_hosts,
                                     .all_reduce_tree = all_reduce_tree,
                                     .all_gather = all_gather,
                                     .gather = gather,
                                     .check = check,
                                     .abort = end,
                                     .timeout_ms = COLLECTIVE_TIMEOUT_MS};
    return out;
}

void engine_plan_for_others(const struct engine_plan *plan, struct engine_options *o)
{
    o->n_threads = plan->n_threads;
    o->max_model_len = plan->max_model_len;
    o->max_num_seqs = plan->max_num_seqs;
    o->max_num_batched_tokens = plan->max_num_batched_tokens;
    o->block_size = plan->block_tokens;
    o->kv_cache_memory = 0;
    o->num_kv_blocks = 0;
    for (uint32_t g = 0; g < plan->n_kv_groups;
         g++) /* a window's group may have fewer than were to be had: it will again */
        if (plan->groups[g].n_blocks > o->num_kv_blocks)
            o->num_kv_blocks = plan->groups[g].n_blocks;
}

/* A rank's part, with what the device makes of its weights. */
static int look_at_rank(struct engine_options *o, const struct checkpoint *checkpoint, const struct model_desc *desc,
                        uint32_t rank, const struct engine_device *device, struct model_desc *share,
                        uint64_t *weight_bytes, struct quire_error *err)
{
    uint64_t mapped_bytes;
    const int status = engine_plan_share(o, checkpoint, desc, rank, share, weight_bytes, err);
    return status == QUIRE_OK ? weights_look_share(checkpoint, device ? device->planner : engine_plan_planner(o), share,
                                                   &mapped_bytes, err)
                              : status;
}

int engine_plan_fit_all(const struct engine_options *options, const struct checkpoint *checkpoint,
                        const struct model_desc *desc, const struct engine_draft *draft,
                        const struct engine_device *device, struct engine_plan *plan, struct quire_error *err)
{
    struct engine_options o = *options;
    struct engine_plan tightest = *plan, other;
    struct model_desc share;
    uint64_t weight_bytes;
    int status = QUIRE_OK;
    for (uint32_t r = 1; status == QUIRE_OK && plan->device_memory && r < plan->n_ranks; r++) {
        status = look_at_rank(&o, checkpoint, desc, r, device, &share, &weight_bytes, err);
        if (status == QUIRE_OK)
            status = engine_plan_make_on(&o, &share, weight_bytes, NULL, device, &other, err);
        if (status == QUIRE_OK && other.groups[0].n_blocks < tightest.groups[0].n_blocks)
            tightest = other;
    }
    if (status != QUIRE_OK || tightest.groups[0].n_blocks == plan->groups[0].n_blocks)
        return status;
    engine_plan_for_others(&tightest, &o);
    status = look_at_rank(&o, checkpoint, desc, 0, device, &share, &weight_bytes, err);
    return status == QUIRE_OK ? engine_plan_make_on(&o, &share, weight_bytes, draft, device, plan, err) : status;
}

/* ---- rank and hosts ---- */

static int read_flags(const struct engine_options *o, struct rank_position_flags *out, struct quire_error *err)
{
    static const struct engine_placement of_environment = {0};
    const struct engine_placement *p = o->placement ? o->placement : &of_environment;
    *out = (struct rank_position_flags){
        .nnodes = p->nnodes, .node_rank = p->node_rank, .master_addr = p->master_addr, .master_port = p->master_port};
    int status = rank_transport_parse(p->rank_transport ? p->rank_transport : "auto", &out->transport, err);
    if (status != QUIRE_OK)
        quire_error_prefix(err, "--rank-transport");
    return status;
}

int rank_find_position(struct engine_options *o, struct position *out, struct quire_error *err)
{
    struct rank_position_flags flags;
    const uint32_t n_ranks = at_least_one(o->tensor_parallel_size) * at_least_one(o->pipeline_parallel_size);
    int status = read_flags(o, &flags, err);
    if (status == QUIRE_OK)
        status = rank_position_find(&flags, n_ranks, out, err);
    if (status != QUIRE_OK)
        return status;
    o->local_ranks = out->n_local;
    o->message_bytes = out->launcher ? hosts_message_bytes(out, flags.transport) : 0;
    return QUIRE_OK;
}

int engine_plan_place(struct engine_options *o, struct quire_error *err)
{
    struct position position;
    return rank_find_position(o, &position, err);
}

int rank_hosts_options(const struct engine_options *o, const struct position *position, struct hosts_options *out,
                       struct quire_error *err)
{
    struct rank_position_flags flags;
    int status = read_flags(o, &flags, err);
    *out = (struct hosts_options){.position = position, .transport = flags.transport};
    return status;
}

int engine_rank(const struct engine_options *options, uint32_t *rank, struct quire_error *err)
{
    struct engine_options o = *options;
    struct position position = {.rank = 0};
    int status = rank_find_position(&o, &position, err);
    *rank = position.rank;
    return status;
}

/* ---- assignment of GPUs ---- */

static bool is_on_gpus(const char *device)
{
    return device && strncmp(device, "cuda", 4) == 0;
}

/* All ranks call this at the same time. *own is the index of this rank's GPU in `seen`. */
static int share_gpus(struct engine *e, const struct k_gpu_id *seen, uint32_t n, uint32_t *own, struct quire_error *err)
{
    struct rank_gpus all[COLLECTIVE_MAX_RANKS];
    uint32_t taken[COLLECTIVE_MAX_RANKS];
    const uint32_t rank = collective_rank(e->collective);
    const uint32_t n_places = e->shared->parts.stage ? collective_size(e->shared->parts.stage) : 1;
    e->shared->has_told_gpus = true;
    int status = gpus_tell(e->collective, seen, n, all, err);
    if (status == QUIRE_OK)
        status = gpus_deal(all, collective_size(e->collective), taken, err);
    if (status != QUIRE_OK)
        return status;
    e->shared->is_across_hosts = gpus_are_across_hosts(all, rank - rank % n_places, n_places);
    *own = taken[rank];
    return QUIRE_OK;
}

int rank_choose_gpu(void *engine, const struct k_gpu_id *seen, uint32_t n, uint32_t *out, struct quire_error *err)
{
    struct engine *e = engine;
    *out = 0;
    e->shared->gpu = seen[0];
    return e->rank == 0 ? QUIRE_OK : share_gpus(e, seen, n, out, err);
}

void rank_has_no_gpu(struct collective *c, const struct engine *e, const char *device)
{
    struct rank_gpus all[COLLECTIVE_MAX_RANKS];
    struct quire_error ignored; /* the reason for a missing GPU is reported later */
    if (is_on_gpus(device) && !(e && e->shared->has_told_gpus))
        gpus_tell(c, NULL, 0, all, &ignored);
}

/* ---- rank 0 ---- */

static int find_others(struct engine *e, const struct engine_options *o, struct quire_error *err)
{
    struct engine_options copy = *o;
    struct hosts_options hosts;
    struct position position;
    int status = rank_find_position(&copy, &position, err);
    if (status != QUIRE_OK)
        return status;
    if (!position.launcher)
        return ranks_start(e->plan->n_ranks, &e->ranks, err);
    if (position.rank != 0)
        return quire_fail(
            err, QUIRE_UNSUPPORTED,
            "%s started this as rank %u: only quire serve and quire engine support ranks started by a launcher; "
            "--rank-transport shm starts them here",
            position.launcher, position.rank);
    status = rank_hosts_options(o, &position, &hosts, err);
    return status == QUIRE_OK ? ranks_meet(&hosts, &e->ranks, err) : status;
}

void rank_give_up(const struct engine *e, const struct engine_options *options, const struct quire_error *why)
{
    struct engine_options copy = *options;
    struct hosts_options hosts;
    struct position position;
    struct quire_error ignored;
    struct ranks *ranks;
    if (e->rank != 0 || rank_find_position(&copy, &position, &ignored) != QUIRE_OK || !position.is_mpi ||
        position.rank != 0 || rank_hosts_options(options, &position, &hosts, &ignored) != QUIRE_OK ||
        hosts.transport == TRANSPORT_TCP)
        return;
    hosts.join_ms = GIVE_UP_MS;
    if (ranks_meet(&hosts, &ranks, &ignored) != QUIRE_OK)
        return;
    collective_abort(ranks_collective(ranks), why->text);
    ranks_stop(ranks);
}

int rank_begin(struct engine *e, const struct engine_options *options, struct quire_error *err)
{
    const struct engine_plan *p = e->plan;
    struct engine_options own = *options;
    own.device = p->planner->on_host || !is_on_gpus(options->device) ? engine_plan_device(p) : options->device;
    engine_plan_for_others(p, &own);
    int status = find_others(e, options, err);
    if (status != QUIRE_OK)
        return status;
    status = rank_join(e, ranks_collective(e->ranks), p->n_stages, err);
    if (status != QUIRE_OK)
        return status;
    const size_t n_gemms = strlen(e->info->gemms);
    snprintf(e->info->gemms + n_gemms, sizeof e->info->gemms - n_gemms, "; %u ranks", p->n_ranks);
    status = ranks_setup(e->ranks, options, &own, err);
    uint32_t first;
    return status == QUIRE_OK && is_on_gpus(own.device) ? share_gpus(e, &e->shared->gpu, 1, &first, err) : status;
}

int rank_look(struct engine *e, bool is_idle, struct quire_error *err)
{
    _Static_assert(ENGINE_MAX_RANKS == COLLECTIVE_MAX_RANKS, "ranks");
    struct engine_stats *stats = &e->run->report.stats;
    const int status = ranks_look(e->ranks, is_idle, &e->shared->waits, err);
    stats->n_ranks = e->plan->n_ranks;
    for (uint32_t r = 0; r < stats->n_ranks; r++)
        for (uint32_t p = 0; p < stats->n_ranks; p++)
            stats->rank_waited_us[r][p] = e->shared->waits.ns[r][p] / 1000;
    return status;
}

/* ---- all ---- */

void rank_report_make(const struct engine *e, int status, const char *text, struct rank_report *out)
{
    memset(out, 0, sizeof *out);
    out->status = status;
    out->numerics = K_NUMERICS_VERSION;
    snprintf(out->version, sizeof out->version, "%s", QUIRE_VERSION);
    snprintf(out->text, sizeof out->text, "%s", text);
    if (status != QUIRE_OK)
        return;
    out->weights = checkpoint_digest(e->model->files->checkpoint, true);
    out->model = model_identity(&e->model->desc);
    snprintf(out->form, sizeof out->form, "%s", k_form_name(e->plan->gemm_form));
    out->limits = step_limits_of(&e->model->desc, e->plan);
}

int rank_agree(struct engine *e, struct quire_error *err)
{
    struct rank_report own;
    rank_report_make(e, QUIRE_OK, "", &own);
    int status = ranks_agree(e->collective, &own, err);
    return status == QUIRE_OK && e->ranks ? ranks_ready(e->ranks, &own.limits, err) : status;
}
