#include "engine/run/rank.h"

#include <stdio.h>
#include <string.h>

#define FLAG "--tensor-parallel-size"

static int check_options(const struct engine_options *o, const struct model_desc *desc, struct quire_error *err)
{
    const uint32_t n = o->tensor_parallel_size;
    const bool is_bound = o->cpu_bind && strcmp(o->cpu_bind, "auto") != 0 && strcmp(o->cpu_bind, "none") != 0;
    if (n != 2 && n != 4 && n != 8)
        return quire_fail(err, QUIRE_INVALID, FLAG ": must be 1, 2, 4 or 8, got %u", n);
    if (desc->pooling != POOLING_NONE)
        return quire_fail(err, QUIRE_UNSUPPORTED,
                          FLAG ": a model that gives vectors computes on one rank: leave it out");
    if (o->speculative.method == DRAFT_MODEL)
        return quire_fail(err, QUIRE_UNSUPPORTED,
                          FLAG ": a draft model computes on one rank: leave one of the two out, or guess by "
                               "{\"method\": \"ngram\"}");
    if (is_bound)
        return quire_fail(err, QUIRE_UNSUPPORTED, "--cpu-bind %.60s is a list for one rank: leave it out with " FLAG,
                          o->cpu_bind);
    return model_share_check(desc, n, err);
}

int engine_plan_share(struct engine_options *o, const struct checkpoint *checkpoint, const struct model_desc *desc,
                      uint32_t rank, struct model_desc *own, uint64_t *weight_bytes, struct quire_error *err)
{
    const uint32_t n = o->tensor_parallel_size;
    uint32_t n_threads;
    *weight_bytes = checkpoint_total_bytes(checkpoint);
    *own = *desc;
    if (n <= 1)
        return QUIRE_OK;
    int status = check_options(o, desc, err);
    if (status == QUIRE_OK && !o->n_threads) {
        status = k_backend_threads(&(struct k_backend_options){.cpu_bind = o->cpu_bind}, &n_threads, err);
        o->n_threads = n_threads > n ? n_threads / n : 1;
    }
    if (status != QUIRE_OK)
        return status;
    *own = model_share_describe(desc, rank, n);
    return weights_look_share(checkpoint, own, weight_bytes, err);
}

static int all_reduce_tree(void *collective, float *x, size_t n, struct quire_error *err)
{
    return collective_all_reduce_tree(collective, x, n, err);
}

static int all_gather(void *collective, const void *mine, size_t n_bytes, void *all, struct quire_error *err)
{
    return collective_all_gather(collective, mine, n_bytes, all, err);
}

static int gather(void *collective, const void *mine, size_t n_bytes, void *all, struct quire_error *err)
{
    return collective_gather(collective, mine, n_bytes, 0, all, err);
}

struct forward_group rank_group(struct engine *e)
{
    return (struct forward_group){e->collective, all_reduce_tree, all_gather, gather};
}

int rank_begin(struct engine *e, const struct engine_options *options, struct quire_error *err)
{
    const struct engine_plan *p = &e->plan;
    struct engine_options own = *options;
    if (!p->planner->on_host)
        return quire_fail(err, QUIRE_UNSUPPORTED, FLAG ": %s has no collectives yet: --device cpu, or leave it out",
                          p->device);
    own.device = p->device;
    own.n_threads = p->n_threads;
    own.max_model_len = p->max_model_len;
    own.max_num_seqs = p->max_num_seqs;
    own.max_num_batched_tokens = p->max_num_batched_tokens;
    own.block_size = p->block_tokens;
    own.num_kv_blocks = p->groups[0].n_blocks;
    own.kv_cache_memory = 0;
    int status = ranks_start(p->n_ranks, &e->ranks, err);
    if (status != QUIRE_OK)
        return status;
    e->collective = ranks_collective(e->ranks);
    const size_t n_gemms = strlen(e->info.gemms);
    snprintf(e->info.gemms + n_gemms, sizeof e->info.gemms - n_gemms, "; %u ranks", p->n_ranks);
    return ranks_setup(e->ranks, &own, err);
}

/* ---- all ---- */

void rank_report_make(const struct engine *e, int status, const char *text, struct rank_report *out)
{
    memset(out, 0, sizeof *out);
    out->status = status;
    out->law = K_LAW_VERSION;
    snprintf(out->version, sizeof out->version, "%s", QUIRE_VERSION);
    snprintf(out->text, sizeof out->text, "%s", text);
    if (status != QUIRE_OK)
        return;
    out->weights = checkpoint_digest(e->checkpoint);
    out->limits = step_limits_of(&e->desc, &e->plan);
}

int rank_agree(struct engine *e, struct quire_error *err)
{
    struct rank_report own;
    rank_report_make(e, QUIRE_OK, "", &own);
    int status = ranks_agree(e->collective, &own, err);
    return status == QUIRE_OK && e->ranks ? ranks_ready(e->ranks, &own.limits, err) : status;
}
