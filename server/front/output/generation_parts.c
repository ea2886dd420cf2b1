/* The parts of a generating request, which live and end together. */
#include "server/front/output/generation.h"

#include <stdlib.h>

static void reply_free(struct reply *r)
{
    for (size_t i = 0; r && i < r->n_prompts; i++) {
        struct reply_prompt *p = &r->prompts[i];
        choice_list_free(p->choices, r->params->spec->n);
        free(p->item.text);
        free(p->item.ids);
        free(p->item.places);
        logprobs_arrays_free(&p->arrays);
        buffer_free(&p->prompt_logprobs);
    }
    if (!r)
        return;
    free(r->prompts);
    buffer_free(&r->head);
    buffer_free(&r->fields);
    buffer_free(&r->event);
    buffer_free(&r->early);
    reply_budget_leave(&r->budget);
    free(r);
}

static void terms_free(struct request_terms *terms)
{
    if (!terms)
        return;
    if (terms->params)
        params_free(terms->params);
    free(terms->params);
    model_facts_release(terms->facts);
    free(terms);
}

void generation_parts_free(struct generation *g)
{
    free(g->prompts);
    free(g->prediction);
    reply_free(g->reply);
    terms_free(g->terms);
    generation_cache_free(g->cache);
    free(g->account);
    free(g);
}

struct generation *generation_new(struct served_model *m, struct http_exchange *x, const struct api_dialect *dialect)
{
    struct generation *g = calloc(1, sizeof *g);
    if (!g)
        return NULL;
    g->served = m;
    g->x = x;
    g->terms = calloc(1, sizeof *g->terms);
    g->account = calloc(1, sizeof *g->account);
    g->cache = calloc(1, sizeof *g->cache);
    g->reply = calloc(1, sizeof *g->reply);
    if (g->terms)
        g->terms->params = calloc(1, sizeof *g->terms->params);
    if (!g->terms || !g->terms->params || !g->account || !g->cache || !g->reply) {
        generation_parts_free(g);
        return NULL;
    }
    *g->reply = (struct reply){
        .x = x, .dialect = dialect, .served = m, .params = g->terms->params, .account = g->account};
    return g;
}
