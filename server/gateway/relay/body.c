#include "server/gateway/relay/body.h"

#include "server/front/output/json_out.h"
#include "text/quire_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 64 /* the front end's */
#define BYTES_PER_TOKEN 4
#define USUAL_ANSWER 256 /* tokens of an answer without a limit */
#define MAX_EDITS 5

/* A piece of the text that another one replaces. */
struct edit {
    struct body_part part;
    char text[96];
};

static struct body_part part_of(const struct relay_body *b, struct quire_value v)
{
    return v.n > 0 ? (struct body_part){(size_t)(v.text - b->text), v.n} : (struct body_part){0, 0};
}

/* ---- reading -------------------------------------------------------------------------------- */

/* The text of a content: a string, or the texts of a list of parts. Returns false if it has none. */
static bool append_content(struct buffer *o, struct quire_value content)
{
    char *text = NULL;
    size_t n = 0;
    if (quire_value_kind(content) == QUIRE_STRING) {
        if (quire_value_text(content, &text, &n, NULL) == QUIRE_OK)
            buffer_append(o, text, n);
        free(text);
        return true;
    }
    bool found = false;
    if (quire_value_kind(content) != QUIRE_ARRAY)
        return false;
    for (struct quire_value rest = content, part; quire_value_next(&rest, NULL, &part);) {
        const struct quire_value inner = quire_value_kind(part) == QUIRE_OBJECT ? quire_value_member(part, "text")
                                                                                : part;
        if (quire_value_kind(inner) != QUIRE_STRING)
            continue;
        if (found)
            buffer_append(o, "\n", 1);
        found |= append_content(o, inner);
    }
    return found;
}

/* The last message of the user in a list of messages, or of items of the Responses API. */
static struct quire_value last_user(struct quire_value messages)
{
    struct quire_value last = {NULL, 0};
    for (struct quire_value rest = messages, message; quire_value_next(&rest, NULL, &message);)
        if (quire_value_kind(message) == QUIRE_OBJECT && quire_value_is(quire_value_member(message, "role"), "user"))
            last = quire_value_member(message, "content");
    return last;
}

static void read_prompt(struct relay_body *b, const struct quire_doc *doc)
{
    static const char *const places[] = {"messages", "input", "prompt", "query", "text_1", "text"};
    struct buffer o = {0};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const struct quire_value v = quire_doc_field(doc, places[i]);
        const struct quire_value user = quire_value_kind(v) == QUIRE_ARRAY ? last_user(v) : v;
        if (append_content(&o, user.n > 0 ? user : v))
            break;
    }
    const char *text = buffer_text(&o);
    if (!text) {
        buffer_free(&o);
        return;
    }
    b->prompt = o.data;
    b->n_prompt = o.n;
}

/* The first of `user`, `metadata.user_id` and `safety_identifier` that is a string with a character. */
static void read_user(struct relay_body *b, const struct quire_doc *doc)
{
    const struct quire_value metadata = quire_doc_field(doc, "metadata");
    const struct quire_value places[] = {
        quire_doc_field(doc, "user"),
        quire_value_kind(metadata) == QUIRE_OBJECT ? quire_value_member(metadata, "user_id")
                                                   : (struct quire_value){NULL, 0},
        quire_doc_field(doc, "safety_identifier"),
    };
    for (size_t i = 0; i < sizeof places / sizeof *places && b->n_user == 0; i++) {
        free(b->user);
        b->user = NULL;
        if (quire_value_kind(places[i]) == QUIRE_STRING &&
            quire_value_text(places[i], &b->user, &b->n_user, NULL) != QUIRE_OK)
            b->n_user = 0;
    }
}

static uint64_t integer(struct quire_value v)
{
    bool negative;
    uint64_t n;
    return quire_value_integer(v, &negative, &n) == QUIRE_INTEGER && !negative ? n : 0;
}

static void read_limit(struct relay_body *b, const struct quire_doc *doc)
{
    static const char *const names[][2] = {
        [RELAY_CHAT] = {"max_completion_tokens", "max_tokens"},
        [RELAY_COMPLETIONS] = {"max_tokens", NULL},
        [RELAY_RESPONSES] = {"max_output_tokens", NULL},
        [RELAY_MESSAGES] = {"max_tokens", NULL},
        [RELAY_OTHER] = {NULL, NULL},
    };
    for (size_t i = 0; i < 2 && names[b->api][i]; i++) {
        const struct quire_value v = quire_doc_field(doc, names[b->api][i]);
        const uint64_t n = integer(v);
        b->limits[i] = (struct body_limit){part_of(b, v), quire_value_kind(v) == QUIRE_NULL, n};
        if (!b->max_tokens_name || n > b->n_max_tokens || b->n_max_tokens == 0)
            b->max_tokens_name = names[b->api][i];
        if (n > b->n_max_tokens)
            b->n_max_tokens = n;
    }
}

/* A target might understand 1 or "true", and send a stream that the gateway does not expect. */
static bool read_stream(struct relay_body *b, const struct quire_doc *doc, struct api_error *e)
{
    const struct quire_value stream = quire_doc_field(doc, "stream");
    if (b->api >= RELAY_COUNT_TOKENS || stream.n == 0 || quire_value_kind(stream) == QUIRE_NULL)
        return true;
    if (quire_value_kind(stream) != QUIRE_BOOL)
        return api_bad(e, "stream", "must be true or false");
    b->is_stream = stream.text[0] == 't';
    return true;
}

/* Fields whose values have another kind are the target's to reject. */
static bool read_fields(struct relay_body *b, const struct quire_doc *doc, struct api_error *e)
{
    const struct quire_value model = quire_doc_field(doc, "model"), options = quire_doc_field(doc, "stream_options");
    struct quire_error why;
    b->model = part_of(b, model);
    if (quire_value_kind(model) == QUIRE_STRING) {
        if (quire_value_text(model, &b->asked, &b->n_asked, &why) != QUIRE_OK)
            return api_no_memory(e);
    } else if (model.n > 0 && quire_value_kind(model) != QUIRE_NULL) {
        return api_bad(e, "model", "must be a string, the name of a model");
    }
    if (!read_stream(b, doc, e))
        return false;
    b->stream_options = part_of(b, options);
    b->has_options = quire_value_kind(options) == QUIRE_OBJECT && quire_value_count(options) > 0;
    if (b->has_options) {
        const struct quire_value include = quire_value_member(options, "include_usage");
        b->include_usage = part_of(b, include);
        b->wants_usage = quire_value_kind(include) == QUIRE_BOOL && include.text[0] == 't';
    }
    if (b->api != RELAY_COUNT_TOKENS && b->api != RELAY_EMBEDDINGS)
        read_limit(b, doc);
    const uint64_t n = integer(quire_doc_field(doc, "n"));
    b->n_choices = n > 0 ? n : 1;
    return true;
}

bool relay_body_read(struct relay_body *b, enum relay_api api, char *text, size_t n, bool with_prompt,
                     struct api_error *e)
{
    struct quire_doc *doc;
    *b = (struct relay_body){.api = api, .text = text, .n = n};
    if (n == 0)
        return api_fail(e, 400, NULL, "invalid_json", "the request has no body; it must be a JSON object");
    int status = quire_doc_open(text, n, MAX_DEPTH, "the request's body", &doc, &e->why);
    if (status != QUIRE_OK) {
        api_fail_status(e, status, NULL);
        if (status == QUIRE_INVALID)
            e->code = "invalid_json";
        return false;
    }
    const struct quire_value root = quire_doc_root(doc);
    bool good = quire_value_kind(root) == QUIRE_OBJECT ||
                api_fail(e, 400, NULL, "invalid_json", "the request's body must be a JSON object");
    if (good) {
        b->inside = part_of(b, root).at + 1;
        b->is_empty = quire_value_count(root) == 0;
        good = read_fields(b, doc, e);
    }
    if (good && with_prompt) {
        read_prompt(b, doc);
        read_user(b, doc);
    }
    quire_doc_close(doc);
    return good;
}

void relay_body_free(struct relay_body *b)
{
    free(b->text);
    free(b->asked);
    free(b->prompt);
    free(b->user);
    *b = (struct relay_body){0};
}

/* ---- writing -------------------------------------------------------------------------------- */

static void add(struct edit *edits, size_t *n, struct body_part part, const char *text)
{
    struct edit *e = &edits[(*n)++];
    e->part = part;
    snprintf(e->text, sizeof e->text, "%s", text);
}

/* The members to insert behind the opening brace are one edit, which the model's name follows if the body has none. */
static void edit_usage(const struct relay_body *b, struct edit *edits, size_t *n, char inserted[96])
{
    if (b->include_usage.n > 0)
        add(edits, n, b->include_usage, "true");
    else if (b->has_options)
        add(edits, n, (struct body_part){b->stream_options.at + 1, 0}, "\"include_usage\":true,");
    else if (b->stream_options.n > 0)
        add(edits, n, b->stream_options, "{\"include_usage\":true}");
    else
        strcat(inserted, "\"stream_options\":{\"include_usage\":true},");
}

/* A limit that is no positive whole number would be the target's to understand. */
static void edit_limits(const struct relay_body *b, uint32_t max_tokens, struct edit *edits, size_t *n,
                        char inserted[96])
{
    char text[48];
    bool is_set = b->n_max_tokens > 0;
    snprintf(text, sizeof text, "%u", max_tokens);
    for (size_t i = 0; i < 2; i++) {
        const struct body_limit *l = &b->limits[i];
        if (l->part.n == 0 || l->is_null || l->n > 0)
            continue;
        add(edits, n, l->part, text);
        is_set = true;
    }
    for (size_t i = 2; i-- > 0 && !is_set;) {
        is_set = b->limits[i].part.n > 0;
        if (is_set)
            add(edits, n, b->limits[i].part, text);
    }
    if (!is_set)
        snprintf(inserted + strlen(inserted), 96 - strlen(inserted), "\"%s\":%u,", b->max_tokens_name, max_tokens);
}

/* In order of their places. At most MAX_EDITS. */
static void sort(struct edit *edits, size_t n)
{
    for (size_t i = 1; i < n; i++)
        for (size_t k = i; k > 0 && edits[k].part.at < edits[k - 1].part.at; k--) {
            const struct edit other = edits[k];
            edits[k] = edits[k - 1];
            edits[k - 1] = other;
        }
}

void relay_body_write(const struct relay_body *b, const struct relay_target_body *how, struct buffer *out)
{
    struct edit edits[MAX_EDITS];
    char inserted[96] = "";
    size_t n = 0, at = 0;
    if (how->adds_usage && !b->wants_usage)
        edit_usage(b, edits, &n, inserted);
    if (how->max_tokens > 0 && b->max_tokens_name)
        edit_limits(b, how->max_tokens, edits, &n, inserted);
    if (b->model.n > 0)
        add(edits, &n, b->model, "");
    else
        strcat(inserted, "\"model\":");
    if (inserted[0])
        add(edits, &n, (struct body_part){b->inside, 0}, inserted);
    sort(edits, n);
    buffer_reserve(out, b->n + 256);
    for (size_t i = 0; i < n; i++) {
        const struct edit *e = &edits[i];
        const bool names = e->part.n > 0 && e->part.at == b->model.at;
        const bool opens = e->part.n == 0 && e->part.at == b->inside && b->model.n == 0;
        buffer_append(out, b->text + at, e->part.at - at);
        json_out_raw(out, e->text);
        if (names || opens)
            json_out_text(out, how->model);
        if (opens && !b->is_empty)
            json_out_raw(out, ",");
        at = e->part.at + e->part.n;
    }
    buffer_append(out, b->text + at, b->n - at);
}

uint64_t relay_body_prompt_tokens(const struct relay_body *b)
{
    return b->n / BYTES_PER_TOKEN + 1;
}

uint64_t relay_body_answer_tokens(const struct relay_body *b)
{
    if (!b->max_tokens_name)
        return 0;
    const uint64_t most = 1u << 20, n = b->n_max_tokens > 0 ? b->n_max_tokens : USUAL_ANSWER;
    const uint64_t choices = b->n_choices < 4096 ? b->n_choices : 4096;
    return (n < most ? n : most) * choices;
}
