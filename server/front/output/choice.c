#include "server/front/output/choice.h"

#include "text/quire_grammar_normal.h"

#include <stdlib.h>
#include <string.h>

/* A detokenizer needs only the end of the prompt: to see that a text has begun, and which bytes of a character are
 * pending. */
#define CONTEXT_TOKENS 64

/* Tokens become text, and the text passes the stop strings. */
struct choice_decoder {
    struct quire_detok *detok;
    struct stop_holder holder;
    struct buffer tagged; /* a piece with a special token that the parsers must see */
    struct reasoning_parser counter; /* for n_reasoning: tokens come to it one by one */
};

static void drop_text(void *context, const char *text, size_t n)
{
    (void)context;
    (void)text;
    (void)n;
}
static const struct reasoning_sink no_sink = {drop_text, drop_text, NULL, NULL};

/* Allocates the parts of this form for n choices. Returns false if memory is out. */
static bool add_form(struct choice_parts *parts, uint32_t n, enum choice_form form)
{
    static const size_t bytes[] = {[CHOICE_CHAT] = sizeof *parts->chat,
                                   [CHOICE_COMPLETION] = sizeof *parts->arrays,
                                   [CHOICE_MESSAGE] = sizeof *parts->blocks,
                                   [CHOICE_RESPONSE] = sizeof *parts->items,
                                   [CHOICE_LLAMA_CPP] = sizeof *parts->llama_cpp};
    void *all = calloc(n, bytes[form]);
    for (uint32_t i = 0; all && i < n; i++) {
        void *own = (char *)all + i * bytes[form];
        switch (form) {
        case CHOICE_CHAT: parts[i].chat = own; break;
        case CHOICE_COMPLETION: parts[i].arrays = own; break;
        case CHOICE_MESSAGE: parts[i].blocks = own; break;
        case CHOICE_RESPONSE: parts[i].items = own; break;
        case CHOICE_LLAMA_CPP: parts[i].llama_cpp = own; break;
        }
    }
    return all != NULL;
}

struct choice *choice_list_new(uint32_t n, uint32_t first, enum choice_form form, const struct choice_rules *rules)
{
    struct choice *choices = calloc(n, sizeof *choices);
    struct choice_parts *parts = calloc(n, sizeof *parts);
    if (!choices || !parts || !add_form(parts, n, form)) {
        free(choices);
        free(parts);
        return NULL;
    }
    for (uint32_t i = 0; i < n; i++) {
        const struct params *p = rules->params;
        parts[i].answer = (struct answer_parser){
            .reasoning = {.format = p->reasoning_format,
                          .has_form = quire_grammar_has_form(p->spec->grammar, p->spec->n_grammar)},
            .tools.format = p->tool_format,
            .one_call = p->one_tool_call};
        if (p->tools)
            parts[i].answer.tools.tools = (struct quire_value){p->tools, strlen(p->tools)};
        choices[i] = (struct choice){.index = first + i, .stop_string = -1, .stop_token = -1, .parts = &parts[i]};
    }
    return choices;
}

void choice_list_free(struct choice *choices, uint32_t n)
{
    if (!choices)
        return;
    for (uint32_t i = 0; i < n; i++)
        choice_close(&choices[i]);
    free(choices->parts->chat);
    free(choices->parts->arrays);
    free(choices->parts->blocks);
    free(choices->parts->items);
    free(choices->parts->llama_cpp);
    free(choices->parts);
    free(choices);
}

/* Whether the answer begins inside the reasoning depends on the end of the prompt. */
static int open_reasoning(struct choice *c, const struct choice_rules *rules, const uint32_t *prompt, size_t n_prompt,
                          struct quire_error *err)
{
    const enum reasoning_format format = rules->params->reasoning_format;
    enum reasoning_place place;
    if (format == REASONING_NONE)
        return QUIRE_OK;
    c->decoder->counter.format = format;
    const int status = notation_reasoning_place(rules->text, format, prompt, n_prompt, &place, err);
    if (status == QUIRE_OK && place == REASONING_IS_OPEN)
        c->decoder->counter.state = c->parts->answer.reasoning.state = REASONING_INSIDE;
    return status;
}

int choice_open(struct choice *c, const struct choice_rules *rules, const uint32_t *prompt, size_t n_prompt,
                struct quire_error *err)
{
    size_t n = n_prompt < CONTEXT_TOKENS ? n_prompt : CONTEXT_TOKENS;
    c->decoder = calloc(1, sizeof *c->decoder);
    if (!c->decoder)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    const int status = open_reasoning(c, rules, prompt, n_prompt, err);
    return status != QUIRE_OK ? status
                              : quire_detok_open(rules->text, n > 0 ? prompt + n_prompt - n : NULL, n,
                                                 rules->params->skip_special, &c->decoder->detok, err);
}

void choice_settle(struct choice *c)
{
    if (c->decoder) {
        if (c->decoder->detok)
            quire_detok_close(c->decoder->detok);
        stop_holder_free(&c->decoder->holder);
        buffer_free(&c->decoder->tagged);
        reasoning_parser_free(&c->decoder->counter);
        free(c->decoder);
        c->decoder = NULL;
    }
    free(c->waiting.tokens);
    c->waiting.tokens = NULL;
    buffer_free(&c->waiting.text);
}

void choice_close(struct choice *c)
{
    struct choice_parts *parts = c->parts;
    choice_settle(c);
    buffer_free(&parts->text);
    buffer_free(&parts->token_ids);
    answer_parser_free(&parts->answer);
    if (parts->chat) {
        buffer_free(&parts->chat->logprobs);
        answer_parts_free(&parts->chat->shown);
    }
    if (parts->arrays)
        logprobs_arrays_free(parts->arrays);
    if (parts->blocks)
        reply_blocks_free(parts->blocks);
    if (parts->items)
        reply_items_free(parts->items);
    if (parts->llama_cpp)
        buffer_free(&parts->llama_cpp->probabilities);
}

uint64_t choice_bytes(const struct choice *c)
{
    const struct choice_parts *parts = c->parts;
    return parts->text.n + parts->token_ids.n +
           (parts->chat ? parts->chat->shown.n_bytes + parts->chat->logprobs.n : 0) +
           (parts->arrays ? logprobs_arrays_bytes(parts->arrays) : 0) +
           (parts->blocks ? reply_blocks_bytes(parts->blocks) : 0) +
           (parts->items ? reply_items_bytes(parts->items) : 0) +
           (parts->llama_cpp ? parts->llama_cpp->probabilities.n : 0);
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
    int found = stop_holder_push(&c->decoder->holder, p->stops, c->n_tokens > p->spec->min_tokens, p->include_stop,
                                 piece, n_piece, text, n_text);
    if (found == -2)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    if (found >= 0) {
        c->finish = CHOICE_STOP;
        c->stop_string = found;
        c->stop_token = -1;
    }
    return QUIRE_OK;
}

/* Decodes a token. A special token that the parsers must see is shown, also to a request that skips these. */
static int decode(struct choice *c, const struct params *p, uint32_t token, const char **piece, size_t *n_piece,
                  struct quire_error *err)
{
    struct choice_decoder *d = c->decoder;
    const char *tag = special_tags_find(p->tags[0], token);
    if (!tag)
        tag = special_tags_find(p->tags[1], token);
    int status = quire_detok_push(d->detok, token, piece, n_piece, err);
    if (status != QUIRE_OK || !tag || !p->skip_special)
        return status;
    buffer_clear(&d->tagged);
    buffer_append(&d->tagged, *piece, *n_piece);
    buffer_append(&d->tagged, tag, strlen(tag));
    *piece = d->tagged.data;
    *n_piece = d->tagged.n;
    return d->tagged.failed ? quire_fail(err, QUIRE_NO_MEMORY, "out of memory") : QUIRE_OK;
}

/* Counts a token of the reasoning; the tags at its ends belong to it. */
static int count_reasoning(struct choice *c, const char *piece, size_t n_piece, struct quire_error *err)
{
    struct reasoning_parser *counter = &c->decoder->counter;
    if (counter->format == REASONING_NONE)
        return QUIRE_OK;
    const bool was_inside = reasoning_parser_is_inside(counter);
    if (!reasoning_parser_push(counter, piece, n_piece, &no_sink))
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    c->n_reasoning += was_inside || reasoning_parser_is_inside(counter);
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
        c->offset = c->n_chars + quire_detok_held(c->decoder->detok, is_shown ? (int64_t)token : -1);
    if (is_shown) {
        int status = decode(c, p, token, &piece, &n_piece, err);
        if (status == QUIRE_OK)
            status = count_reasoning(c, piece, n_piece, err);
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
    int status = quire_detok_finish(c->decoder->detok, &piece, &n_piece, err);
    if (status != QUIRE_OK)
        return status;
    status = hold(c, rules->params, piece, n_piece, text, n_text, err);
    if (status != QUIRE_OK || c->stop_string >= 0)
        return status;
    /* In the holder, the held-back text directly follows the released text. */
    stop_holder_finish(&c->decoder->holder, &rest, &n_rest);
    *n_text += n_rest;
    return QUIRE_OK;
}
