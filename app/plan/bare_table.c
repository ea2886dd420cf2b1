#include "app/plan/bare.h"

#include "base/size.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct model_attention *first_attention(const struct model_config *config)
{
    for (uint32_t l = 0; l < config->n_layers; l++) {
        const struct model_block *block = model_layer_block(&config->layers[l], BLOCK_ATTENTION);
        if (block)
            return &block->attention;
    }
    return NULL;
}

const char *bare_attention_name(const struct model_config *config)
{
    const struct model_attention *a = first_attention(config);
    if (!a)
        return "none";
    return a->n_kv_heads == a->n_q_heads ? "MHA" : a->n_kv_heads == 1 ? "MQA" : "GQA";
}

static void print_model(const struct bare_report *r)
{
    const struct model_config *config = r->model.config;
    const struct model_attention *a = first_attention(config);
    const struct engine_plan *plan = r->cases[0].plan;
    printf("%s: %s, from config.json alone; weights %s (%s)\n\n", r->name, config->architecture, r->model.format.name,
           r->model.format.says);
    printf("  %" PRIu64 " parameters, of which a token uses %" PRIu64 "; %.3f bytes a weight with scales\n",
           r->weights.parameters, r->weights.active_parameters,
           (double)r->weights.bytes / (double)r->weights.parameters);
    if (config->multimodal[0])
        printf("  These are of the text part of %s. Quire does not load its parts for images and audio.\n",
               config->multimodal);
    if (a)
        printf("  %s: %u query heads read %u of K and V, %u wide\n", bare_attention_name(config), a->n_q_heads,
               a->n_kv_heads, a->k_dim);
    for (uint32_t g = 0; g < plan->n_kv_groups; g++) {
        char span[64] = "all positions";
        if (plan->groups[g].window)
            snprintf(span, sizeof span,
                     plan->groups[g].n_sinks ? "a window of %u positions and %u sinks" : "a window of %u positions",
                     plan->groups[g].window, plan->groups[g].n_sinks);
        printf("  KV of %u layers with %s: %" PRIu64 " bytes a token, %s\n", plan->groups[g].n_layers, span,
               plan->groups[g].block_bytes / plan->block_tokens, k_format_name(plan->kv_format));
    }
    for (uint32_t i = 0; i < r->n_cases; i++)
        if (r->cases[i].context > r->max_position && !config->streaming.window) {
            printf(
                "  The model was made for %u positions: longer contexts are arithmetic only, and serving refuses them.\n",
                r->max_position);
            break;
        }
}

static void print_cases(const struct bare_report *r)
{
    const struct engine_plan *plan = r->cases[0].plan;
    printf("\n  Memory on %s%s, for all sequences of a batch at their full length:\n\n",
           plan->gpu ? plan->gpu->title : engine_plan_device(plan), plan->n_ranks > 1 ? ", of each rank" : "");
    printf("  %10s %7s %12s %12s %12s %12s %12s\n", "context", "batch", "weights", "repacked", "KV cache",
           "activations", "total");
    for (uint32_t i = 0; i < r->n_cases; i++) {
        const struct bare_case *c = &r->cases[i];
        const uint64_t kv = bare_kv_bytes(c->plan, c->context, c->batch), repacked = c->plan->bytes[PLAN_REPACKED];
        const uint64_t rest = engine_plan_total_bytes(c->plan) - c->plan->bytes[PLAN_KV];
        printf("  %10u %7u %12s %12s %12s %12s %12s\n", c->context, c->batch,
               quire_size(c->plan->bytes[PLAN_WEIGHTS]).text, quire_size(repacked).text, quire_size(kv).text,
               quire_size(rest - repacked).text, quire_size(rest + kv + c->plan->bytes[PLAN_WEIGHTS]).text);
    }
    for (uint32_t i = 0; i < r->n_cases; i++) {
        const struct bare_case *c = &r->cases[i];
        if (c->times.token_s > 0)
            printf("%s  %10u %7u   first token %.3g s, then %.3g ms a token, %.4g tokens/s\n",
                   i ? "" : "\n  Predicted by --cost-model:\n", c->context, c->batch, c->times.first_token_s,
                   c->times.token_s * 1e3, c->times.tokens_per_s);
    }
}

static void print_fit(const char *gpu, const struct bare_fit *fit)
{
    char flags[96];
    int n = snprintf(flags, sizeof flags, "-tp %u", fit->n_gpus);
    if (fit->made)
        n += snprintf(flags + n, sizeof flags - (size_t)n, " --quantization %s", fit->made->made_by);
    if (fit->kv_dtype)
        snprintf(flags + n, sizeof flags - (size_t)n, " --kv-cache-dtype %s", fit->kv_dtype);
    printf("  %-10s %-48s %11s %12" PRIu64 " %9.3g s %8.3g ms %9.4g\n", gpu, flags, quire_size(fit->used_bytes).text,
           fit->kv_tokens, fit->times.first_token_s, fit->times.token_s * 1e3, fit->times.tokens_per_s);
}

/* Of the largest case, which is the last one where lists ascend. */
static void print_gpus(const struct bare_report *r)
{
    const struct bare_case *c = &r->cases[r->n_cases - 1];
    printf(
        "\n  GPUs for %u sequence%s of %u tokens, up to %g of each GPU's memory. Times are predicted from data sheets\n"
        "  (docs/benchmarks/gpu-predicted.md), not measured, and leave out sums between GPUs.\n\n",
        c->batch, c->batch == 1 ? "" : "s", c->context, r->utilization);
    printf("  %-10s %-48s %11s %12s %11s %11s %9s\n", "--device", "flags", "each uses", "KV tokens", "first token",
           "token", "tokens/s");
    for (uint32_t i = 0; i < r->n_gpus; i++) {
        const struct bare_fits *f = &c->fits[i];
        if (f->planned.n_gpus)
            print_fit(f->gpu->name, &f->planned);
        if (f->fewest.n_gpus)
            print_fit(f->gpu->name, &f->fewest);
        if (!f->planned.n_gpus && !f->fewest.n_gpus)
            printf("  %-10s does not hold it\n", f->gpu->name);
    }
}

void bare_print_table(const struct bare_report *r)
{
    print_model(r);
    print_cases(r);
    print_gpus(r);
}
