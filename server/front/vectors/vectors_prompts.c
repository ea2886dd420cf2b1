/* Turns a request's texts into prompts for the engine, and reads the numbers that come back. */
#include "server/front/vectors/vectors.h"
#include "server/wire/decode.h"

#include <stdlib.h>
#include <string.h>

/* The special tokens that the tokenizer puts around any text: its ids of an empty text, split into those before and
 * after a text. Also those between the two texts of a pair. */
struct specials {
    uint32_t *end; /* [n_end], of `all` */
    uint32_t *all;
    size_t n_begin, n_end;
    uint32_t *between; /* [n_between], of `pair` */
    uint32_t *pair; /* NULL without pairs */
    size_t n_between;
    bool second_type; /* a pair's second text has its own token type */
};

static void free_specials(struct specials *s)
{
    free(s->all);
    free(s->pair);
}

static bool find_specials(const struct quire_text *text, struct specials *out, struct api_error *e)
{
    uint32_t *some;
    size_t n_some, n_all;
    *out = (struct specials){0};
    int status = quire_text_encode(text, "", 0, true, &out->all, &n_all, &e->why);
    if (status == QUIRE_OK && (status = quire_text_encode(text, "a", 1, true, &some, &n_some, &e->why)) != QUIRE_OK)
        free(out->all);
    if (status != QUIRE_OK)
        return api_fail_status(e, status, NULL);
    while (out->n_begin < n_all && out->n_begin < n_some && out->all[out->n_begin] == some[out->n_begin])
        out->n_begin++;
    free(some);
    out->end = out->all + out->n_begin;
    out->n_end = n_all - out->n_begin;
    return true;
}

/* In every tokenizer of a classifier, a pair begins and ends like a single text. All other special tokens are between
 * the texts. */
static bool find_between(const struct quire_text *text, struct specials *s, struct api_error *e)
{
    size_t n;
    int status = quire_text_pair_specials(text, &s->pair, &n, &s->second_type, &e->why);
    if (status != QUIRE_OK)
        return api_fail_status(e, status, NULL);
    if (n < s->n_begin + s->n_end || memcmp(s->pair, s->all, s->n_begin * sizeof *s->all) != 0 ||
        memcmp(s->pair + n - s->n_end, s->end, s->n_end * sizeof *s->all) != 0)
        return api_fail(e, 400, "model", "model_not_supported",
                        "tokenizer.json: post_processor: a pair of texts does not begin and end as a text does, which "
                        "is not supported");
    s->between = s->pair + s->n_begin;
    s->n_between = n - s->n_begin - s->n_end;
    return true;
}

/* Cuts as sentence-transformers does: the special tokens stay. */
static size_t cut(uint32_t *ids, size_t n, size_t most, const uint32_t *end, size_t n_end)
{
    if (n <= most)
        return n;
    if (n_end <= most)
        memcpy(ids + most - n_end, end, n_end * sizeof *end);
    return most;
}

bool vectors_encode(const struct quire_text *tokenizer, const char *text, size_t n, size_t n_most, uint32_t **ids,
                    size_t *n_ids)
{
    struct specials specials;
    struct api_error e;
    *ids = NULL;
    *n_ids = 0;
    if (!find_specials(tokenizer, &specials, &e))
        return false;
    const bool ok = quire_text_encode(tokenizer, text, n, true, ids, n_ids, &e.why) == QUIRE_OK;
    if (ok)
        *n_ids = cut(*ids, *n_ids, n_most, specials.end, specials.n_end);
    free_specials(&specials);
    return ok;
}

static bool take_items(struct vectors *v, const struct specials *specials, struct api_error *e)
{
    const struct text_task *t = v->job->job.text;
    for (size_t i = 0; i < v->n_prompts; i++) {
        struct vectors_prompt *p = &v->prompts[i];
        p->ids = t->items[i].ids;
        p->n_ids = t->items[i].n_ids;
        t->items[i].ids = NULL;
        size_t n_end = t->add_special ? specials->n_end : 0, n_begin = t->add_special ? specials->n_begin : 0;
        size_t most = v->job->ask.max_tokens, of_document = v->job->ask.max_document_tokens;
        if (of_document > 0 && i >= v->job->ask.n_first && of_document + n_begin + n_end < most)
            most = of_document + n_begin + n_end;
        p->n_ids = cut(p->ids, p->n_ids, most, specials->end, n_end);
        if (p->n_ids == 0)
            return api_bad(e, t->name, "text %zu has no tokens", i);
    }
    return true;
}

/* Joins begin, first, between, second, end; the longer text is cut. */
static bool join(struct vectors *v, struct vectors_prompt *p, const struct request_item *a,
                 const struct request_item *b, const struct specials *specials, struct api_error *e)
{
    const size_t n_begin = specials->n_begin, n_between = specials->n_between, n_end = specials->n_end;
    size_t most = v->job->ask.max_tokens, n_a = a->n_ids - n_end, n_b = b->n_ids - n_begin - n_end;
    if (most < n_begin + n_between + n_end + 2)
        return api_bad(e, "truncate_prompt_tokens", "leaves no room for two texts");
    if (v->job->ask.max_document_tokens > 0 && n_b > v->job->ask.max_document_tokens)
        n_b = v->job->ask.max_document_tokens;
    while (n_a + n_between + n_b + n_end > most)
        *(n_a - n_begin > n_b ? &n_a : &n_b) -= 1;
    p->n_ids = n_a + n_between + n_b + n_end;
    p->ids = malloc(p->n_ids * sizeof *p->ids);
    if (!p->ids)
        return api_no_memory(e);
    uint32_t *at = mempcpy(p->ids, a->ids, n_a * sizeof *at);
    at = mempcpy(at, specials->between, n_between * sizeof *at);
    if (specials->second_type)
        p->segment_from = n_a + n_between;
    at = mempcpy(at, b->ids + n_begin, n_b * sizeof *at);
    memcpy(at, specials->end, n_end * sizeof *at);
    return true;
}

static bool take_pairs(struct vectors *v, const struct specials *specials, struct api_error *e)
{
    const struct text_task *t = v->job->job.text;
    const size_t least = specials->n_begin + specials->n_end, n_first = v->job->ask.n_first;
    bool ok = true;
    for (size_t i = 0; i < v->n_prompts && ok; i++) {
        const struct request_item *a = &t->items[n_first == 1 ? 0 : i], *b = &t->items[n_first + i];
        if (a->n_ids < least || b->n_ids < least)
            ok = api_bad(e, t->name, "pairs need the special tokens: leave add_special_tokens out");
        else
            ok = join(v, &v->prompts[i], a, b, specials, e);
    }
    return ok;
}

bool vectors_make_prompts(struct vectors *v, struct api_error *e)
{
    const struct text_task *t = v->job->job.text;
    bool pairs = v->route->task != VECTORS_EMBED && v->job->job.served->facts->vector_is_scores;
    struct specials specials;
    v->n_prompts = pairs ? t->n_items - v->job->ask.n_first : t->n_items;
    v->prompts = calloc(v->n_prompts, sizeof *v->prompts);
    if (!v->prompts)
        return api_no_memory(e);
    if (!find_specials(v->served->config->text, &specials, e))
        return false;
    bool ok = (!pairs || find_between(v->served->config->text, &specials, e)) &&
              (pairs ? take_pairs : take_items)(v, &specials, e);
    free_specials(&specials);
    for (size_t i = 0; i < v->n_prompts && ok; i++) {
        v->prompts[i].v = v;
        v->prompts[i].batch.n_tokens = (uint32_t)v->prompts[i].n_ids;
        v->n_tokens += v->prompts[i].n_ids;
    }
    return ok;
}

void vectors_spec(struct request_spec *s, const uint32_t *ids, size_t n_ids)
{
    request_spec_default(s);
    s->prompt = ids;
    s->n_prompt = (uint32_t)n_ids;
    s->temperature = 0;
    s->wants_vector = true;
}

float *vectors_numbers(const struct model_facts *facts, const struct wire_vector *vector)
{
    float *numbers = vector->n_values == facts->vector_size ? malloc(vector->n_values * sizeof *numbers) : NULL;
    for (uint32_t i = 0; i < vector->n_values && numbers; i++)
        numbers[i] = wire_f32(vector->values, i);
    return numbers;
}
