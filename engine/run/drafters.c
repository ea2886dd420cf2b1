#include "engine/run/drafters.h"

#include "engine/run/draft_model.h"
#include "speculation/ngram.h"
#include "speculation/suffix.h"

/* Tokens of running sequences that the KV cache holds. A group with a window holds only their ends. */
static uint64_t n_running_tokens(const struct engine_plan *p)
{
    uint64_t most = (uint64_t)p->max_num_seqs * p->max_model_len, held = 0;
    for (uint32_t g = 0; g < p->n_kv_groups; g++)
        if (p->groups[g].window == 0 && (uint64_t)p->groups[g].n_blocks * p->block_tokens > held)
            held = (uint64_t)p->groups[g].n_blocks * p->block_tokens;
    return held > 0 && held < most ? held : most;
}

static struct ngram_config ngram_of(const struct speculative_config *c, const struct engine_plan *p)
{
    return (struct ngram_config){.n_slots = p->max_num_seqs,
                                 .max_model_len = p->max_model_len,
                                 .lookup_min = c->prompt_lookup_min,
                                 .lookup_max = c->prompt_lookup_max,
                                 .n_tokens = n_running_tokens(p)};
}

static struct suffix_config suffix_of(const struct speculative_config *c, const struct engine_plan *p)
{
    return (struct suffix_config){.n_slots = p->max_num_seqs,
                                  .max_model_len = p->max_model_len,
                                  .n_tokens = n_running_tokens(p),
                                  .history_bytes = c->max_cached_bytes,
                                  .max_tree_depth = c->max_tree_depth,
                                  .max_cached_requests = c->max_cached_requests,
                                  .max_spec_factor = (float)c->max_spec_factor,
                                  .min_token_prob = (float)c->min_token_prob};
}

uint64_t drafters_bytes(const struct speculative_config *config, const struct engine_plan *plan)
{
    uint64_t bytes = follow_bytes(plan->max_num_seqs);
    if (config->method == DRAFT_NGRAM) {
        struct ngram_config ngram = ngram_of(config, plan);
        bytes += ngram_bytes(&ngram);
    }
    if (config->method == DRAFT_SUFFIX) {
        struct suffix_config suffix = suffix_of(config, plan);
        bytes += suffix_bytes(&suffix);
    }
    if (config->method == DRAFT_MODEL)
        bytes += draft_model_host_bytes(plan);
    return bytes;
}

static int create_method(const struct speculative_config *config, const struct engine_plan *plan, struct drafter **out,
                         struct quire_error *err)
{
    if (config->method == DRAFT_NGRAM) {
        struct ngram_config ngram = ngram_of(config, plan);
        return ngram_create(&ngram, out, err);
    }
    if (config->method == DRAFT_SUFFIX) {
        struct suffix_config suffix = suffix_of(config, plan);
        return suffix_create(&suffix, out, err);
    }
    return QUIRE_OK; /* a draft model was opened with the model */
}

int drafters_create(const struct speculative_config *config, const struct engine_plan *plan,
                    struct drafter *out[N_DRAFT_SOURCES], struct quire_error *err)
{
    int status = follow_create(plan->max_num_seqs, &out[FROM_REQUEST], err);
    return status == QUIRE_OK ? create_method(config, plan, &out[FROM_METHOD], err) : status;
}
