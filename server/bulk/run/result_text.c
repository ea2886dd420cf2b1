#include "server/bulk/run/result_text.h"

#include "server/front/output/json_out.h"
#include "text/quire_json.h"

#include <string.h>

#define MAX_DEPTH 1000
#define PICO_PLACES 12 /* decimal places of a picodollar */

static void put_custom_id(struct buffer *o, const struct bulk_line *line)
{
    if (line->custom_id)
        buffer_append(o, line->custom_id, line->n_custom_id);
    else
        json_out_raw(o, "null");
}

/* {"id":…,"custom_id":… */
static void open_openai(struct buffer *o, const struct result_of *of)
{
    json_out_raw(o, "{\"id\":");
    json_out_text(o, of->id);
    json_out_raw(o, ",\"custom_id\":");
    put_custom_id(o, of->line);
}

static void open_anthropic(struct buffer *o, const struct result_of *of, const char *type)
{
    json_out_raw(o, "{\"custom_id\":");
    put_custom_id(o, of->line);
    json_out_raw(o, ",\"result\":{\"type\":\"");
    json_out_raw(o, type);
    json_out_raw(o, "\"");
}

/* ---- replies -------------------------------------------------------------------------------- */

static void add_number(struct quire_value object, const char *name, uint32_t *sum)
{
    bool is_negative;
    uint64_t n;
    if (quire_value_integer(quire_value_member(object, name), &is_negative, &n) == QUIRE_INTEGER && !is_negative)
        *sum = n > UINT32_MAX - *sum ? UINT32_MAX : *sum + (uint32_t)n;
}

/* Picodollars of a gateway's 0.00000315, to the last digit. Other notations of JSON cost 0: a gateway writes none. */
static uint64_t read_cost(struct quire_value dollars)
{
    uint64_t pico = 0;
    unsigned n_places = 0;
    bool is_fraction = false;
    for (size_t i = 0; i < dollars.n; i++) {
        const char c = dollars.text[i];
        if (c == '.' && !is_fraction) {
            is_fraction = true;
            continue;
        }
        if (c < '0' || c > '9' || pico > UINT64_MAX / 10 - 1)
            return 0;
        if (is_fraction && ++n_places > PICO_PLACES)
            break;
        pico = pico * 10 + (uint64_t)(c - '0');
    }
    for (; n_places < PICO_PLACES; n_places++)
        if (__builtin_mul_overflow(pico, UINT64_C(10), &pico))
            return 0;
    return pico;
}

/* The names of the APIs: one of each pair is there. Anthropic's input_tokens are those that were not cached. */
static void read_usage(struct quire_value usage, enum bulk_dialect dialect, struct bulk_tokens *t)
{
    t->cost = read_cost(quire_value_member(usage, "cost"));
    add_number(usage, "prompt_tokens", &t->input);
    add_number(usage, "input_tokens", &t->input);
    add_number(usage, "completion_tokens", &t->output);
    add_number(usage, "output_tokens", &t->output);
    if (dialect == BULK_ANTHROPIC) {
        add_number(usage, "cache_read_input_tokens", &t->cached);
        add_number(usage, "cache_read_input_tokens", &t->input);
        add_number(usage, "cache_creation_input_tokens", &t->input);
    } else {
        add_number(quire_value_member(usage, "prompt_tokens_details"), "cached_tokens", &t->cached);
        add_number(quire_value_member(usage, "input_tokens_details"), "cached_tokens", &t->cached);
    }
}

static void put_openai(struct buffer *o, const struct result_of *of, const struct result_reply *r)
{
    open_openai(o, of);
    json_out_raw(o, ",\"response\":{\"status_code\":");
    json_out_i64(o, r->status);
    json_out_raw(o, ",\"request_id\":");
    json_out_text_or_null(o, r->request_id);
    json_out_raw(o, ",\"body\":");
    buffer_append(o, r->body, r->n_body);
    json_out_raw(o, "},\"error\":null}");
}

static void put_anthropic(struct buffer *o, const struct result_of *of, const struct result_reply *r)
{
    const bool is_good = r->status == 200;
    open_anthropic(o, of, is_good ? "succeeded" : "errored");
    json_out_raw(o, is_good ? ",\"message\":" : ",\"error\":");
    buffer_append(o, r->body, r->n_body);
    json_out_raw(o, "}}");
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* The body as a value: without blanks around it. */
static struct quire_value whole(const struct result_reply *r)
{
    struct quire_value v = {r->body, r->n_body};
    while (v.n > 0 && is_blank(v.text[0])) {
        v.text++;
        v.n--;
    }
    while (v.n > 0 && is_blank(v.text[v.n - 1]))
        v.n--;
    return v;
}

int result_text_reply(struct buffer *o, const struct result_of *of, const struct result_reply *r,
                      struct bulk_tokens *tokens, struct quire_error *err)
{
    *tokens = (struct bulk_tokens){0};
    /* Not as strict as for requests: an answer may have a NUL, \u0000. */
    if (!quire_json_is_pythons(r->body, r->n_body, MAX_DEPTH))
        return quire_fail(err, QUIRE_INVALID, "the reply is not JSON");
    if (r->status == 200)
        read_usage(quire_value_member(whole(r), "usage"), of->dialect, tokens);
    /* A string of JSON has no plain line end, so these are between values. */
    for (size_t i = 0; i < r->n_body; i++)
        if (r->body[i] == '\n' || r->body[i] == '\r')
            r->body[i] = ' ';
    (of->dialect == BULK_OPENAI ? put_openai : put_anthropic)(o, of, r);
    return QUIRE_OK;
}

/* ---- without a reply ------------------------------------------------------------------------ */

void result_text_error(struct buffer *o, const struct result_of *of, const char *code, const char *why)
{
    if (of->dialect == BULK_ANTHROPIC) {
        open_anthropic(o, of, "errored");
        json_out_raw(o, ",\"error\":{\"type\":\"error\",\"error\":{\"type\":");
        json_out_text(o, strcmp(code, "invalid_line") == 0 ? "invalid_request_error" : "api_error");
        json_out_raw(o, ",\"message\":");
        json_out_text(o, why);
        json_out_raw(o, "}}}}");
        return;
    }
    open_openai(o, of);
    json_out_raw(o, ",\"response\":null,\"error\":{\"code\":");
    json_out_text(o, code);
    json_out_raw(o, ",\"message\":");
    json_out_text(o, why);
    json_out_raw(o, "}}");
}

void result_text_ended(struct buffer *o, const struct result_of *of, enum bulk_outcome outcome)
{
    const bool is_expired = outcome == BULK_EXPIRED;
    if (of->dialect == BULK_ANTHROPIC) {
        open_anthropic(o, of, is_expired ? "expired" : "canceled");
        json_out_raw(o, "}}");
        return;
    }
    result_text_error(o, of, is_expired ? "batch_expired" : "batch_cancelled",
                      is_expired ? "the batch expired before this line ran"
                                 : "the batch was cancelled before this line ran");
}
