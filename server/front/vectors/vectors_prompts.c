/* What of a request's texts goes to the engine. */
#include "server/front/vectors/vectors.h"

#include <stdlib.h>
#include <string.h>

/* The special tokens that stand behind every text: those that the tokenizer makes of none, behind those that begin any. */
static bool end_tokens(const struct front *f, uint32_t **ids, size_t *n, struct api_error *e)
{
    uint32_t *some;
    size_t n_some, n_all, same = 0;
    int status = quire_text_encode(f->text, "", 0, true, ids, &n_all, &e->why);
    if (status == QUIRE_OK && (status = quire_text_encode(f->text, "a", 1, true, &some, &n_some, &e->why)) != QUIRE_OK)
        free(*ids);
    if (status != QUIRE_OK)
        return api_fail_status(e, status, NULL);
    while (same < n_all && same < n_some && (*ids)[same] == some[same])
        same++;
    free(some);
    memmove(*ids, *ids + same, (n_all - same) * sizeof **ids);
    *n = n_all - same;
    return true;
}

/* As sentence-transformers cuts it: the special tokens stay. */
static void cut(struct vectors_prompt *p, size_t most, const uint32_t *end, size_t n_end)
{
    if (p->n_ids <= most)
        return;
    p->n_ids = most;
    if (n_end <= most)
        memcpy(p->ids + most - n_end, end, n_end * sizeof *end);
}

static bool take_items(struct vectors *v, struct request_job *j, const uint32_t *end, size_t n_end, struct api_error *e)
{
    for (size_t i = 0; i < v->n_prompts; i++) {
        struct vectors_prompt *p = &v->prompts[i];
        p->ids = j->items[i].ids;
        p->n_ids = j->items[i].n_ids;
        j->items[i].ids = NULL;
        cut(p, v->ask.max_tokens, end, j->add_special ? n_end : 0);
        if (p->n_ids == 0)
            return api_bad(e, j->prompt_name, "text %zu has no tokens", i);
    }
    return true;
}

/* The first text with its special tokens, the second without those that begin it; the longer gives way. */
static bool join(struct vectors *v, struct vectors_prompt *p, const struct request_item *a,
                 const struct request_item *b, size_t n_begin, const uint32_t *end, size_t n_end, struct api_error *e)
{
    size_t most = v->ask.max_tokens, n_a = a->n_ids - n_end, n_b = b->n_ids - n_begin - n_end;
    if (most < n_begin + 2 * n_end + 2)
        return api_bad(e, "truncate_prompt_tokens", "leaves no room for two texts");
    while (n_a + n_b + 2 * n_end > most)
        *(n_a - n_begin > n_b ? &n_a : &n_b) -= 1;
    p->ids = malloc((n_a + n_b + 2 * n_end) * sizeof *p->ids);
    if (!p->ids)
        return api_fail(e, 503, NULL, "out_of_memory", "out of memory");
    memcpy(p->ids, a->ids, n_a * sizeof *p->ids);
    memcpy(p->ids + n_a, end, n_end * sizeof *p->ids);
    p->segment_from = n_a + n_end;
    memcpy(p->ids + p->segment_from, b->ids + n_begin, n_b * sizeof *p->ids);
    memcpy(p->ids + p->segment_from + n_b, end, n_end * sizeof *p->ids);
    p->n_ids = p->segment_from + n_b + n_end;
    return true;
}

static bool take_pairs(struct vectors *v, struct request_job *j, const uint32_t *end, size_t n_end, struct api_error *e)
{
    uint32_t *none;
    size_t n_none;
    int status = quire_text_encode(v->front->text, "", 0, true, &none, &n_none, &e->why);
    if (status != QUIRE_OK)
        return api_fail_status(e, status, NULL);
    free(none);
    size_t n_begin = n_none - n_end, n_first = v->ask.n_first;
    bool ok = true;
    for (size_t i = 0; i < v->n_prompts && ok; i++) {
        const struct request_item *a = &j->items[n_first == 1 ? 0 : i], *b = &j->items[n_first + i];
        if (a->n_ids < n_none || b->n_ids < n_none)
            ok = api_bad(e, j->prompt_name, "pairs need the special tokens: leave add_special_tokens out");
        else
            ok = join(v, &v->prompts[i], a, b, n_begin, end, n_end, e);
    }
    return ok;
}

bool vectors_make_prompts(struct vectors *v, struct request_job *j, struct api_error *e)
{
    bool pairs = v->ask.task != VECTORS_EMBED && v->front->vector_is_scores;
    uint32_t *end = NULL;
    size_t n_end = 0;
    v->n_prompts = pairs ? j->n_items - v->ask.n_first : j->n_items;
    v->prompts = calloc(v->n_prompts, sizeof *v->prompts);
    if (!v->prompts)
        return api_fail(e, 503, NULL, "out_of_memory", "out of memory");
    if (!end_tokens(v->front, &end, &n_end, e))
        return false;
    bool ok = (pairs ? take_pairs : take_items)(v, j, end, n_end, e);
    free(end);
    for (size_t i = 0; i < v->n_prompts && ok; i++) {
        v->prompts[i].v = v;
        v->n_tokens += v->prompts[i].n_ids;
    }
    return ok;
}
