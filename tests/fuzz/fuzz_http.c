/* Bytes as a client sends them: through the HTTP parser, whole and in pieces, and each body
 * through what its route reads of it. Input that begins with '{' is also taken for a body itself,
 * of every route. */
#include "fuzz.h"

#include "base/encoding/json.h"
#include "server/front/body/generation_job.h"
#include "server/front/front_internal.h"
#include "server/http/http_parser.h"

#include <stdlib.h>
#include <string.h>

#define VOCAB_SIZE 1000

static void require(bool promise)
{
    if (!promise)
        abort();
}

/* ---- bodies ---- */

static void check_params(const struct params *p, const struct params_body *once)
{
    const struct request_spec *s = p->spec;
    require(s->temperature >= 0 && s->temperature <= 2 && s->top_p > 0 && s->top_p <= 1);
    require(s->min_p >= 0 && s->min_p <= 1 && s->repetition_penalty > 0);
    require(s->presence_penalty >= -2 && s->presence_penalty <= 2);
    require(s->frequency_penalty >= -2 && s->frequency_penalty <= 2);
    require(s->n >= 1 && s->n <= REQUEST_MAX_CHOICES);
    require(s->n_logprobs >= -1 && s->n_logprobs <= REQUEST_MAX_LOGPROBS);
    require(s->n_prompt_logprobs >= -1 && s->n_prompt_logprobs <= REQUEST_MAX_LOGPROBS);
    for (uint32_t i = 0; i < s->n_stop_token_ids; i++)
        require(s->stop_token_ids[i] < VOCAB_SIZE);
    for (uint32_t i = 0; i < s->n_biases; i++)
        require(s->biases[i].id < VOCAB_SIZE && s->biases[i].bias >= -100 && s->biases[i].bias <= 100);
    for (uint32_t i = 0; i < s->n_allowed_token_ids; i++)
        require(s->allowed_token_ids[i] < VOCAB_SIZE);
    struct quire_value words = once->bad_words, word;
    while (words.n && quire_value_next(&words, NULL, &word))
        require(word.n > 2);
    for (size_t i = 0; p->stops && i < p->stops->n; i++)
        require(p->stops->bytes[i] >= 1 && p->stops->bytes[i] <= STOP_MAX_BYTES);
}

static void check_error(const struct api_error *e)
{
    require(e->status >= 400 && e->status < 500);
    for (int anthropic = 0; anthropic < 2; anthropic++) {
        struct buffer o = {0};
        if (anthropic)
            api_error_json_anthropic(&o, e, "1");
        else
            api_error_json(&o, e);
        json_t *object = json_loadb(o.data, o.n, 0, NULL);
        const json_t *error = json_object_get(object, "error");
        require(json_is_string(json_object_get(error, "message")));
        json_decref(object);
        buffer_free(&o);
    }
}

/* A reply takes it apart by its braces. */
static void check_echo(const char *echo)
{
    json_t *object = json_loads(echo, 0, NULL);
    require(echo[0] == '{' && json_object_size(object) > 0);
    json_decref(object);
}

typedef bool read_function(struct request_job *j, const struct quire_doc *body);
typedef bool read_generation(struct generation_job *g, const struct quire_doc *body);

static struct request_job *new_job(const struct request_job_calls *calls)
{
    static char name[] = "model";
    static char *names[] = {name};
    static const struct sampling_defaults sampling;
    static const struct model_config config = {
        .names = names, .n_names = 1, .sampling = &sampling, .max_choices = 4096};
    static struct model_facts facts = {.n_holders = 1, .vocab_size = VOCAB_SIZE, .max_model_len = 512};
    const struct model_view view = {&config, &facts};
    struct request_job *j = request_job_alloc(calls);
    require(j != NULL);
    j->models = model_list_new(&view, 1);
    require(j->models != NULL);
    j->served = &j->models->models[0];
    return j;
}

static void check_job(const struct request_job *j, bool ok)
{
    if (!ok) {
        check_error(&j->error);
        return;
    }
    for (size_t i = 0; i < j->text->n_items; i++)
        for (size_t k = 0; k < j->text->items[i].n_ids; k++)
            require(j->text->items[i].ids[k] < VOCAB_SIZE);
}

static void read_body(const struct quire_doc *body, read_function *read)
{
    static const struct request_job_calls calls = {.n_bytes = sizeof(struct request_job)};
    struct request_job *j = new_job(&calls);
    check_job(j, read(j, body));
    request_job_free(j);
}

static void read_generating(const struct quire_doc *body, read_generation *read)
{
    struct request_job *j = new_job(&generation_job_calls);
    struct generation_job *g = (struct generation_job *)j;
    g->params = calloc(1, sizeof *g->params);
    require(g->params != NULL);
    struct params_body once = {0};
    g->once = &once;
    bool ok = read(g, body);
    /* There is no tokenizer here, so a chat is refused when all else about it was right. */
    if (ok || j->text->chat.messages) {
        check_params(g->params, &once);
        if (read == responses_read)
            check_echo(g->echo);
    }
    check_job(j, ok);
    request_job_free(j);
}

static void try_body(const char *text, size_t n, const char *path)
{
    static const struct {
        const char *path;
        read_generation *generation;
        read_function *other;
    } routes[] = {
        {"/v1/chat/completions", chat_read, NULL},
        {"/v1/completions", completions_read, NULL},
        {"/v1/responses", responses_read, NULL},
        {"/v1/messages", messages_read, NULL},
        {"/v1/messages/count_tokens", NULL, messages_count_read},
        {"/tokenize", NULL, tokenize_read},
        {"/detokenize", NULL, detokenize_read},
    };
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        struct quire_doc *body;
        if (path && strcmp(path, routes[i].path) != 0)
            continue;
        if (quire_doc_open(text, n, REQUEST_MAX_DEPTH, "body", &body, NULL) != QUIRE_OK)
            return;
        if (json_is(quire_doc_root(body), QUIRE_OBJECT)) {
            if (routes[i].generation)
                read_generating(body, routes[i].generation);
            else
                read_body(body, routes[i].other);
        }
        quire_doc_close(body);
    }
}

/* ---- requests ---- */

struct outcome {
    enum http_parsed last;
    size_t used, n_body;
    int n_requests, bad_status;
};

/* Every request there is in data, given to the parser in pieces of at most `step` bytes. */
static struct outcome parse_all(const uint8_t *data, size_t n, size_t step, bool bodies)
{
    struct outcome out = {.last = HTTP_MORE};
    struct http_parser p;
    size_t end = 0, used;
    http_parser_init(&p, 2048, 4096);
    for (;;) {
        if (out.used == end && (out.last == HTTP_MORE || out.last == HTTP_DONE)) {
            if (end == n)
                break;
            end = n - end < step ? n : end + step;
        }
        out.last = http_parser_feed(&p, data + out.used, end - out.used, &used);
        require(used <= end - out.used);
        out.used += used;
        if (out.last == HTTP_BAD) {
            out.bad_status = p.bad_status;
            require(p.bad_status >= 400 && p.bad_status < 500 && p.bad_reason);
            break;
        }
        if (out.last == HTTP_HEAD) {
            require(p.path[0] == '/' || strcmp(p.path, "*") == 0);
            require(p.n_headers <= HTTP_MAX_HEADERS);
            (void)http_parser_header(&p, "authorization");
        } else if (out.last == HTTP_DONE) {
            require(p.n_body <= 4096);
            out.n_requests++;
            out.n_body += p.n_body;
            if (bodies)
                try_body(p.body ? p.body : "", p.n_body, p.path);
            http_parser_reset(&p);
        }
    }
    http_parser_reset(&p);
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct outcome whole = parse_all(data, n, n ? n : 1, true);
    struct outcome bytes = parse_all(data, n, 1, false);
    struct outcome pieces = parse_all(data, n, 7, false);
    require(whole.n_requests == bytes.n_requests && whole.n_requests == pieces.n_requests);
    require(whole.n_body == bytes.n_body && whole.n_body == pieces.n_body);
    require(whole.bad_status == bytes.bad_status && whole.bad_status == pieces.bad_status);
    if (n > 0 && data[0] == '{')
        try_body((const char *)data, n, NULL);
    return 0;
}
