#include "engine/run/schedule.h"

#include <string.h>

/* An hour: longer than any useful wait for a step or a batch, and far from overflow. */
#define MAX_MS 3600000.0

/* The index of a name; NULL is the first. Returns -1 if no name matches. */
static int index_of(const char *name, const char *const *names, int n)
{
    if (!name)
        return 0;
    for (int i = 0; i < n; i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    return -1;
}

static int read_names(const struct engine_options *o, struct sched_config *c, struct quire_error *err)
{
    const struct step_options *s = engine_step_options(o);
    static const char *const evictions[] = {"lru", "reuse"};
    static const char *const batchings[] = {"continuous", "dynamic", "static"};
    static const char *const modes[] = {"auto", "swap", "recompute", "never"};
    const char *policy = s->scheduling_policy ? s->scheduling_policy : "fcfs";
    int eviction = index_of(o->prefix_cache_eviction, evictions, 2);
    int batching = index_of(s->batching, batchings, 3);
    int mode = index_of(s->preemption_mode, modes, 4);
    c->policy = sched_policy_find(policy);
    if (!c->policy)
        return quire_fail(err, QUIRE_INVALID, "--scheduling-policy: must be one of %s, got '%.40s'",
                          sched_policy_names(), policy);
    if (eviction < 0)
        return quire_fail(err, QUIRE_INVALID, "--prefix-cache-eviction: must be lru or reuse, got '%.40s'",
                          o->prefix_cache_eviction);
    if (batching < 0)
        return quire_fail(err, QUIRE_INVALID, "--batching: must be continuous, dynamic or static, got '%.40s'",
                          s->batching);
    if (mode < 0)
        return quire_fail(err, QUIRE_INVALID, "--preemption-mode: must be auto, swap, recompute or never, got '%.40s'",
                          s->preemption_mode);
    c->kv.eviction = (enum kv_eviction)eviction;
    c->batching = (enum sched_batching)batching;
    c->preemption = (enum sched_preemption)mode;
    return QUIRE_OK;
}

/* Not a number fails every comparison. */
static int read_ms(const char *flag, double ms, uint64_t *us, struct quire_error *err)
{
    if (!(ms >= 0 && ms <= MAX_MS))
        return quire_fail(err, QUIRE_INVALID, "--%s: must be between 0 and %.0f milliseconds", flag, MAX_MS);
    *us = (uint64_t)(ms * 1000);
    if (ms > 0 && *us == 0)
        *us = 1; /* 0 would mean that it is not set */
    return QUIRE_OK;
}

static bool any_class(const uint32_t *sizes, const uint64_t *waits)
{
    for (uint32_t i = 0; i < SCHED_MAX_CLASSES; i++)
        if ((sizes && sizes[i] > 0) || (waits && waits[i] > 0))
            return true;
    return false;
}

/* Limits of batches that are not formed. */
static const char *idle_batch_option(const struct step_options *s, const struct sched_config *c)
{
    if (any_class(NULL, s->class_wait_us) && c->batching != SCHED_DYNAMIC)
        return "--class-max-wait-ms limits the wait for a full dynamic batch: give --batching dynamic, or leave it out";
    if (any_class(s->class_batch_size, NULL) && c->batching == SCHED_CONTINUOUS)
        return "--class-batch-size applies to dynamic and static batches: give --batching dynamic or static, or leave it"
               " out";
    if (s->adaptive_batches && c->batching != SCHED_DYNAMIC)
        return "--adaptive-batching corrects the limits of dynamic batches: give --batching dynamic, or leave it out";
    return NULL;
}

/* Options that do nothing, or nothing good, without another one. */
static int check_combinations(const struct engine_options *o, const struct step_options *s,
                              const struct sched_config *c, struct quire_error *err)
{
    const char *wrong = idle_batch_option(s, c);
    if (wrong)
        return quire_fail(err, QUIRE_INVALID, "%s", wrong);
    if (!o->prefix_caching && c->kv.eviction != KV_EVICT_LRU)
        wrong = "--prefix-cache-eviction is for the prefix cache, which is off: leave"
                " --no-enable-prefix-caching out";
    else if (c->preemption == SCHED_PREEMPT_SWAP && !o->swap_space)
        wrong = "--preemption-mode swap needs swap space: give --swap-space, or another"
                " mode";
    else if (s->max_wait_ms > 0 && c->batching != SCHED_DYNAMIC)
        wrong = "--max-wait-ms limits the wait for a full dynamic batch: give --batching dynamic,"
                " or leave it out";
    else if (s->max_batch_size && c->batching == SCHED_CONTINUOUS)
        wrong = "--max-batch-size applies to dynamic and static batches: give --batching dynamic or static,"
                " or --max-num-seqs instead";
    else if (s->policy_options.prefill_share && !(s->step_target_ms > 0))
        wrong = "--fair-prefill-share is the part of --step-target-ms that prompts keep: give --step-target-ms"
                " too, or leave it out (tenants no longer split a step; their long prompts take turns)";
    else if (s->adaptive_budget && !(s->step_target_ms > 0))
        wrong = "--adaptive-budget keeps steps at their target: give --step-target-ms too";
    return wrong ? quire_fail(err, QUIRE_INVALID, "%s", wrong) : QUIRE_OK;
}

int schedule_config(const struct engine_options *o, struct sched_config *out, struct quire_error *err)
{
    const struct step_options *s = engine_step_options(o);
    *out = (struct sched_config){
        .kv = {.prefix_caching = o->prefix_caching, .n_tenants = s->policy_options.n_tenants},
        .policy_options = s->policy_options,
        .long_prefill_token_threshold = s->long_prefill_token_threshold,
        .max_partial_prefills = s->max_partial_prefills,
        .adaptive_budget = s->adaptive_budget,
        .max_batch_size = s->max_batch_size,
        .adaptive_batches = s->adaptive_batches,
        .max_pinned_percent = s->max_pinned_percent ? s->max_pinned_percent : SCHED_NO_PINS,
        .cost = s->cost.n_points > 0 ? &s->cost : NULL,
    };
    if (s->policy_options.n_tenants > SCHED_MAX_TENANTS)
        return quire_fail(err, QUIRE_INVALID, "tenants: at most %u, got %u", SCHED_MAX_TENANTS,
                          s->policy_options.n_tenants);
    if (s->max_pinned_percent > 100)
        return quire_fail(err, QUIRE_INVALID, "--max-pinned-percent: must be at most 100, got %u",
                          s->max_pinned_percent);
    memcpy(out->class_batch_size, s->class_batch_size, sizeof out->class_batch_size);
    memcpy(out->class_wait_us, s->class_wait_us, sizeof out->class_wait_us);
    int status = read_names(o, out, err);
    if (status == QUIRE_OK)
        status = read_ms("step-target-ms", s->step_target_ms, &out->step_target_us, err);
    if (status == QUIRE_OK)
        status = read_ms("max-wait-ms", s->max_wait_ms, &out->max_wait_us, err);
    if (status == QUIRE_OK && out->cost) {
        status = sched_cost_check(out->cost, err);
        if (status != QUIRE_OK)
            quire_error_prefix(err, "--cost-model");
    }
    return status == QUIRE_OK ? check_combinations(o, s, out, err) : status;
}
