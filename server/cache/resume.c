#include "server/cache/resume.h"

#include <stdlib.h>
#include <string.h>

bool resume_key(const struct key256 *identity, const struct request_spec *spec, const struct completion_terms *terms,
                struct key256 *out)
{
    struct request_spec any_length = *spec;
    struct key256 key;
    any_length.max_tokens = 0;
    if (spec->n != 1 || cache_is_unseeded(spec) || spec->min_tokens > 0 || spec->n_bad_words > 0 ||
        spec->n_grammar > 0 || spec->n_prompt_logprobs >= 0 || spec->repetition_penalty != 1 ||
        spec->presence_penalty != 0 || spec->frequency_penalty != 0 || !cache_key(identity, &any_length, terms, &key))
        return false;
    static const char what[] = "of any length";
    *out = quire_keyed_hash(&key, what, sizeof what); /* no request has this key */
    return true;
}

struct cached *resume_find(struct memory_layer *m, const struct key256 *name, const struct request_spec *spec,
                           int64_t now_ms)
{
    const struct rendering *r = memory_layer_rendering(m, name, now_ms);
    const struct answer *answer = r ? &r->cached->answer : NULL;
    if (!answer || answer->n_prompt != spec->n_prompt || answer->n_generated == 0 ||
        answer->n_generated >= spec->max_tokens)
        return NULL;
    return r->cached;
}

void resume_keep(struct memory_layer *m, struct cached *k, const struct key256 *name, int64_t now_ms)
{
    const struct rendering *r = memory_layer_rendering(m, name, now_ms);
    if (!answer_was_cut(&k->answer) || (r && r->cached->answer.n_generated >= k->answer.n_generated))
        return;
    memory_layer_detach(m, name);
    memory_layer_attach(m, k, name, "", 0);
}

bool resume_spec(const struct cached *k, const struct request_spec *spec, struct request_spec *out, uint32_t **prompt)
{
    const uint32_t n = (uint32_t)k->answer.n_generated; /* below max_tokens: resume_find() */
    uint32_t *tokens = malloc(((size_t)spec->n_prompt + n) * sizeof *tokens);
    *prompt = tokens;
    if (!tokens)
        return false;
    memcpy(tokens, spec->prompt, spec->n_prompt * sizeof *tokens);
    *out = *spec;
    out->prompt = tokens;
    out->n_prompt = spec->n_prompt + answer_tokens(&k->answer, 0, tokens + spec->n_prompt, n);
    out->max_tokens = spec->max_tokens - n;
    return true;
}
