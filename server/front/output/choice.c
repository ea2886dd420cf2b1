#include "server/front/output/choice.h"

#include <stdlib.h>
#include <string.h>

/* A detokenizer needs only the end of the prompt: to see that a text has begun, and which bytes of a character are
 * pending. */
#define CONTEXT_TOKENS 64

void choice_init(struct choice *c, uint32_t index, const struct choice_rules *rules)
{
    *c = (struct choice){
        .index = index, .stop_string = -1, .stop_token = -1, .tools.format = rules->params->tool_format};
}

int choice_open(struct choice *c, const struct choice_rules *rules, const uint32_t *prompt, size_t n_prompt,
                struct quire_error *err)
{
    size_t n = n_prompt < CONTEXT_TOKENS ? n_prompt : CONTEXT_TOKENS;
    return quire_detok_open(rules->text, n > 0 ? prompt + n_prompt - n : NULL, n, rules->params->skip_special,
                            &c->detok, err);
}

void choice_settle(struct choice *c)
{
    if (c->detok)
        quire_detok_close(c->detok);
    c->detok = NULL;
    stop_holder_free(&c->holder);
    free(c->waiting.tokens);
    c->waiting.tokens = NULL;
    buffer_free(&c->waiting.text);
}

void choice_close(struct choice *c)
{
    choice_settle(c);
    buffer_free(&c->text);
    buffer_free(&c->token_ids);
    buffer_free(&c->logprobs);
    logprobs_arrays_free(&c->arrays);
    tool_parser_free(&c->tools);
}

uint64_t choice_bytes(const struct choice *c)
{
    return c->text.n + c->token_ids.n + c->logprobs.n + logprobs_arrays_bytes(&c->arrays);
}

static bool contains(const uint32_t *ids, uint32_t n, uint32_t id)
{
    for (uint32_t i = 0; i < n; i++)
        if (ids[i] == id)
            return true;
    return false;
}

/* Passes a piece through the stop strings. */
static int hold(struct choice *c, const struct params *p, const char *piece, size_t n_piece, const char **text,
                size_t *n_text, struct quire_error *err)
{
    c->n_chars += utf8_count(piece, n_piece);
    int found = stop_holder_push(&c->holder, &p->stops, c->n_tokens > p->spec->min_tokens, p->include_stop, piece,
                                 n_piece, text, n_text);
    if (found == -2)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    if (found >= 0) {
        c->finish = CHOICE_STOP;
        c->stop_string = found;
        c->stop_token = -1;
    }
    return QUIRE_OK;
}

int choice_token(struct choice *c, const struct choice_rules *rules, uint32_t token, const char **text, size_t *n_text,
                 struct quire_error *err)
{
    const struct params *p = rules->params;
    const char *piece = "";
    size_t n_piece = 0;
    c->n_tokens++;
    bool asked = contains(p->spec->stop_token_ids, p->spec->n_stop_token_ids, token);
    bool stops = (asked || (!p->spec->ignore_eos && contains(rules->eos, rules->n_eos, token))) &&
                 c->n_tokens >= p->spec->min_tokens;
    /* The engine's DONE comes in a later frame; the token itself already says that it is the
     * last. */
    if (stops) {
        c->finish = CHOICE_STOP;
        c->stop_token = asked ? (int64_t)token : -1;
    }
    bool is_shown = !stops || p->include_stop;
    if (p->spec->n_logprobs >= 0)
        c->offset = c->n_chars + quire_detok_held(c->detok, is_shown ? (int64_t)token : -1);
    if (is_shown) {
        int status = quire_detok_push(c->detok, token, &piece, &n_piece, err);
        if (status != QUIRE_OK)
            return status;
    }
    return hold(c, p, piece, n_piece, text, n_text, err);
}

int choice_tail(struct choice *c, const struct choice_rules *rules, const char **text, size_t *n_text,
                struct quire_error *err)
{
    const char *piece, *rest;
    size_t n_piece, n_rest;
    *text = "";
    *n_text = 0;
    if (c->stop_string >= 0) /* the text was cut: later text does not belong to it */
        return QUIRE_OK;
    int status = quire_detok_finish(c->detok, &piece, &n_piece, err);
    if (status != QUIRE_OK)
        return status;
    status = hold(c, rules->params, piece, n_piece, text, n_text, err);
    if (status != QUIRE_OK || c->stop_string >= 0)
        return status;
    /* In the holder, the held-back text directly follows the released text. */
    stop_holder_finish(&c->holder, &rest, &n_rest);
    *n_text += n_rest;
    return QUIRE_OK;
}
