/* How much each expert of a mixture computes, where the router's choices lie in host memory. */
#include "engine/forward/forward_internal.h"
#include "engine/model/sizes.h"

#include <stdlib.h>
#include <string.h>

struct forward_expert_tokens {
    uint32_t n_experts; /* the most of a layer */
    uint64_t tokens[]; /* [n_layers, n_experts] computed so far */
};

int forward_alloc_expert_load(struct forward *f, struct quire_error *err)
{
    const uint32_t n = model_largest_whole(f->desc, SIZE_EXPERTS);
    if (n == 0 || !f->is_in_place)
        return QUIRE_OK;
    f->experts = calloc(1, sizeof *f->experts + (size_t)f->desc->config->n_layers * n * sizeof f->experts->tokens[0]);
    if (!f->experts)
        return quire_fail(err, QUIRE_NO_MEMORY, "forward pass: out of memory");
    f->experts->n_experts = n;
    return QUIRE_OK;
}

void forward_free_expert_load(struct forward *f)
{
    free(f->experts);
}

void forward_count_experts(struct forward *f, uint32_t layer, const uint32_t *experts, uint32_t n_choices)
{
    if (!f->experts)
        return;
    uint64_t *tokens = f->experts->tokens + (size_t)layer * f->experts->n_experts;
    for (uint32_t i = 0; i < n_choices; i++)
        tokens[experts[i]]++;
}

/* The busiest expert's tokens as a multiple of the mean; 0 of a layer without tokens. */
static double imbalance_of(const uint64_t *tokens, uint32_t n)
{
    uint64_t most = 0, sum = 0;
    for (uint32_t e = 0; e < n; e++) {
        most = tokens[e] > most ? tokens[e] : most;
        sum += tokens[e];
    }
    return sum ? (double)most * n / (double)sum : 0;
}

uint32_t forward_expert_load(const struct forward *f, uint64_t *tokens, uint32_t most, double *imbalance)
{
    const uint32_t n = f->experts ? f->experts->n_experts : 0, n_told = n < most ? n : most;
    *imbalance = 0;
    memset(tokens, 0, n_told * sizeof *tokens);
    for (uint32_t l = 0; n > 0 && l < f->desc->config->n_layers; l++) {
        const uint64_t *of = f->experts->tokens + (size_t)l * n;
        const double here = imbalance_of(of, model_whole_size(f->desc, l, SIZE_EXPERTS));
        *imbalance = here > *imbalance ? here : *imbalance;
        for (uint32_t e = 0; e < n_told; e++)
            tokens[e] += of[e];
    }
    return n_told;
}
