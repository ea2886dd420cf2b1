/* A generating request after its text work: its prompts go to the engine, and their tokens become the reply. */
#include "base/clock.h"
#include "server/front/output/generation.h"
#include "server/front/output/stream_ping.h"

#include <stdlib.h>

/* ---- the stream's beginning ----------------------------------------------------------------- */

/* Called with the first output, or after a long silence. Until then the status is open, and a request that is given up
 * in the queue gets a 429. */
static void begin_stream(struct generation *g)
{
    struct reply *r = g->reply;
    if (r->begun)
        return;
    limits_headers(g->account->tenant, quire_now_us(), g->x);
    generation_cache_say(g->served, g->x, &g->cache->report);
    http_add_header(g->x, "Cache-Control", "no-cache");
    http_add_header(g->x, "X-Accel-Buffering", "no");
    http_stream_begin(g->x, 200, r->dialect->stream_type ? r->dialect->stream_type : "text/event-stream");
    /* The first events of all choices, in the order of their indices. Completions that show their prompt's logprobs
     * must wait for these. All are written in one piece with the earlier events: each may repeat a prompt, and
     * together they are not more than the client has had time to read. */
    struct buffer early = r->early;
    r->early = (struct buffer){0};
    bool waits = r->params->echo && r->params->spec->n_logprobs >= 0;
    for (size_t i = 0; i < r->n_prompts && !waits; i++)
        for (uint32_t j = 0; j < r->params->spec->n; j++)
            r->dialect->open(r, &r->prompts[i], &r->prompts[i].choices[j]);
    buffer_append(&r->early, early.data, early.n);
    if (early.failed || r->early.failed)
        http_cut_off(g->x);
    r->begun = true;
    generation_alias_show(r, r->early.data, r->early.n);
    http_stream_write(g->x, r->early.data, r->early.n);
    buffer_free(&early);
    buffer_free(&r->early);
}

static void ping(void *context)
{
    struct generation *g = context;
    begin_stream(g);
    if (g->reply->dialect->ping)
        g->reply->dialect->ping(g->reply);
    else /* a comment: an event without data would end the stream in some clients */
        http_stream_write(g->x, ": ping\n\n", 8);
}

/* The request was accepted: from here on, a silent stream gets a ping after ping_ms. */
static void await_tokens(struct generation *g)
{
    const struct front *front = g->served->front;
    g->ping = stream_ping_new(front->base, front->ping_ms, ping, g);
    if (!g->ping)
        begin_stream(g);
}

#define COPIED_BYTES 65536

struct whole_reply {
    struct buffer body;
    struct reply_budget budget;
};

static void on_reply_gone(void *context)
{
    struct whole_reply *whole = context;
    buffer_free(&whole->body);
    reply_budget_leave(&whole->budget);
    free(whole);
}

/* Ends the reply: every choice is over. */
static void complete(void *owner)
{
    struct generation *g = owner;
    g->account->timing.now_us = quire_now_us();
    struct http_exchange *x = g->x;
    if (g->terms->params->stream) {
        begin_stream(g);
        g->reply->dialect->end(g->reply);
        generation_alias_keep(g, NULL);
        generation_over(g, 200, NULL);
        generation_free(g);
        http_stream_end(x);
        return;
    }
    struct whole_reply *whole = calloc(1, sizeof *whole);
    if (whole)
        g->reply->dialect->whole(g->reply, &whole->body);
    if (!whole || whole->body.failed) {
        if (whole)
            buffer_free(&whole->body);
        free(whole);
        prompt_batch_fail_with(&g->batch, QUIRE_NO_MEMORY, "there is no memory for the reply");
        return;
    }
    limits_headers(g->account->tenant, g->account->timing.now_us, x);
    generation_cache_say(g->served, g->x, &g->cache->report);
    generation_alias_keep(g, &whole->body);
    generation_over(g, 200, NULL);
    /* A large reply stays counted until the client has read it. */
    whole->budget = g->reply->budget;
    g->reply->budget.counted = 0;
    generation_free(g);
    if (whole->body.n <= COPIED_BYTES) {
        http_reply(x, 200, "application/json", whole->body.data, whole->body.n);
        on_reply_gone(whole);
    } else {
        http_reply_large(x, 200, "application/json", whole->body.data, whole->body.n, on_reply_gone, whole);
    }
}

/* ---- tokens --------------------------------------------------------------------------------- */

static int show(struct generation *g, struct reply_prompt *p, struct choice *c, const struct gen_piece *piece,
                struct quire_error *err)
{
    uint64_t before = choice_bytes(c);
    if (!g->terms->params->stream) {
        g->reply->dialect->collect(g->reply, c, piece);
    } else {
        begin_stream(g);
        g->reply->dialect->token(g->reply, p, c, piece);
        stream_ping_wrote(g->ping, c->last_token_us);
        c->shown = true;
    }
    return reply_budget_grow(&g->reply->budget, (int64_t)(choice_bytes(c) - before), err);
}

/* Shows the waiting tokens. */
static int show_waiting(struct generation *g, struct reply_prompt *p, struct choice *c, struct quire_error *err)
{
    struct choice_waiting *w = &c->waiting;
    const struct gen_piece piece = {w->tokens, w->n_tokens, w->text.data, w->text.n};
    if (w->text.failed)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    int status = QUIRE_OK;
    if (piece.n_tokens > 0 || piece.n_text > 0)
        status = show(g, p, c, &piece, err);
    w->n_tokens = 0;
    buffer_clear(&w->text);
    return status;
}

/* Adds a piece: shows it at once, or with others, depending on stream_interval. The first token never waits. */
static int add(struct generation *g, struct reply_prompt *p, struct choice *c, const struct gen_piece *piece,
               struct quire_error *err)
{
    struct choice_waiting *w = &c->waiting;
    const struct params *params = g->terms->params;
    if (!params->stream || params->stream_interval <= 1 || !c->shown)
        return show(g, p, c, piece, err);
    buffer_append(&w->text, piece->text, piece->n_text);
    if (piece->n_tokens == 0)
        return QUIRE_OK;
    if (w->n_tokens == w->capacity) {
        uint32_t capacity = w->capacity ? w->capacity * 2 : 8;
        struct choice_token *tokens = realloc(w->tokens, capacity * sizeof *tokens);
        if (!tokens)
            return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
        w->tokens = tokens;
        w->capacity = capacity;
    }
    w->tokens[w->n_tokens++] = *piece->tokens;
    return w->n_tokens >= params->stream_interval ? show_waiting(g, p, c, err) : QUIRE_OK;
}

/* c->finish is set: writes the held-back text, then the end. */
static int conclude(struct generation *g, struct reply_prompt *p, struct choice *c, struct quire_error *err)
{
    struct gen_piece piece = {0};
    int status = choice_tail(c, &g->terms->rules, &piece.text, &piece.n_text, err);
    if (status == QUIRE_OK && piece.n_text > 0)
        status = add(g, p, c, &piece, err);
    if (status == QUIRE_OK)
        status = show_waiting(g, p, c, err);
    if (status != QUIRE_OK)
        return status;
    if (g->terms->params->stream)
        g->reply->dialect->finish(g->reply, p, c);
    choice_settle(c);
    struct metrics *m = generation_metrics(g);
    m->finished[c->finish == CHOICE_STOP ? METRICS_STOP : METRICS_LENGTH]++;
    histogram_observe(&m->generation_tokens, c->n_tokens);
    return QUIRE_OK;
}

static void time_token(struct generation *g, struct choice *c)
{
    struct metrics *m = generation_metrics(g);
    struct generation_account *a = g->account;
    uint64_t now = quire_now_us();
    m->n_generation_tokens++;
    limits_token(a->tenant, now);
    if (a->timing.first_token_us == 0)
        a->timing.first_token_us = now;
    if (c->n_tokens == 0) {
        histogram_observe(&m->ttft, (double)(now - a->timing.arrived_us) * 1e-6);
        limits_dequeue(a->tenant, 1);
        a->n_queued--;
        c->first_token_us = now;
    } else {
        histogram_observe(&m->itl, (double)(now - c->last_token_us) * 1e-6);
    }
    c->last_token_us = now;
}

static void on_token(struct batch_prompt *batch, const struct wire_token *token)
{
    struct gen_prompt *p = (struct gen_prompt *)batch;
    struct generation *g = p->g;
    struct quire_error err;
    if (token->choice >= g->terms->params->spec->n)
        return;
    struct choice *c = &p->reply->choices[token->choice];
    if (c->finish != CHOICE_RUNS) /* in flight when the choice stopped */
        return;
    time_token(g, c);
    struct choice_token one = {.token = *token};
    struct gen_piece piece = {.tokens = &one, .n_tokens = 1};
    int status = choice_token(c, &g->terms->rules, token->token, &piece.text, &piece.n_text, &err);
    one.offset = c->offset;
    if (status == QUIRE_OK)
        status = add(g, p->reply, c, &piece, &err);
    if (status == QUIRE_OK && c->finish != CHOICE_RUNS)
        status = conclude(g, p->reply, c, &err);
    if (status != QUIRE_OK)
        prompt_batch_fail_with(&g->batch, status, err.text);
    else if (c->stop_string >= 0 && !c->over_in_engine)
        prompt_batch_cancel_choice(batch, token->choice);
}

static void on_prompt_logprob(struct batch_prompt *batch, const struct wire_token *token)
{
    struct gen_prompt *p = (struct gen_prompt *)batch;
    struct generation *g = p->g;
    struct quire_error err;
    uint64_t before = reply_prompt_bytes(g->reply, p->reply);
    reply_prompt_logprob(g->reply, p->reply, token);
    int status = reply_budget_grow(&g->reply->budget, (int64_t)(reply_prompt_bytes(g->reply, p->reply) - before), &err);
    if (status != QUIRE_OK)
        prompt_batch_fail_with(&g->batch, status, err.text);
}

static void prompt_over(const struct params *params, struct reply_prompt *p)
{
    /* A stream has already sent them. */
    if (params->stream)
        logprobs_arrays_free(&p->arrays);
    for (uint32_t i = 0; params->stream && i < params->spec->n; i++)
        if (p->choices[i].parts->arrays)
            logprobs_arrays_free(p->choices[i].parts->arrays);
}

static bool on_done(struct batch_prompt *batch, const struct wire_done *done)
{
    struct gen_prompt *p = (struct gen_prompt *)batch;
    struct generation *g = p->g;
    struct quire_error err;
    int status = QUIRE_OK;
    if (done->choice < g->terms->params->spec->n) {
        struct choice *c = &p->reply->choices[done->choice];
        c->over_in_engine = true;
        c->n_drafted = done->n_drafted;
        c->n_accepted = done->n_accepted;
        c->n_predicted = done->n_predicted;
        c->n_predicted_right = done->n_predicted_right;
        if (done->choice == 0) {
            p->reply->n_cached = done->n_cached;
            p->reply->n_created = done->n_created;
            timing_add(&g->account->timing, &done->account, p->submitted_us - g->account->timing.submitted_us,
                       done->n_cached);
        }
        generation_choice_over(g, p, c, &done->account);
        if (c->finish == CHOICE_RUNS && !prompt_batch_ended_well(batch, done))
            return false;
        if (c->finish == CHOICE_RUNS) {
            bool stopped = done->finish == WIRE_FINISH_STOP;
            c->finish = stopped ? CHOICE_STOP : CHOICE_LENGTH;
            status = conclude(g, p->reply, c, &err);
        }
    }
    if (status != QUIRE_OK)
        prompt_batch_fail_with(&g->batch, status, err.text);
    else if (done->last)
        prompt_over(g->terms->params, p->reply);
    return status == QUIRE_OK;
}

/* ---- accepted or refused ---- */

/* Returns false if its deadline has passed. */
static bool may_wait(const void *owner)
{
    const struct generation *g = owner;
    const uint64_t deadline_us = (uint64_t)g->terms->params->deadline_ms * 1000;
    return deadline_us == 0 || quire_now_us() - g->account->timing.arrived_us < deadline_us;
}

/* Frees the ids after the source has received and accepted the prompt. */
static void drop_ids(struct generation *g, struct gen_prompt *p)
{
    if (!p->batch.accepted)
        return;
    free(g->prediction);
    g->prediction = NULL;
    if (g->terms->params->return_token_ids)
        return;
    free(p->reply->item.ids);
    p->reply->item.ids = NULL;
}

/* The first prompt was accepted, and so the request. */
static void on_taken(void *owner)
{
    struct generation *g = owner;
    if (g->terms->params->stream)
        await_tokens(g);
}

static void on_origin(struct batch_prompt *batch, const struct completion_origin *origin)
{
    struct generation *g = ((struct gen_prompt *)batch)->g;
    generation_cache_origin(g->cache, &g->account->timing.lookups, origin);
    g->reply->is_similar = g->cache->report.n_similar > 0;
}

static bool has_space(const struct batch_prompt *batch)
{
    const struct generation *g = ((const struct gen_prompt *)batch)->g;
    return !g->reply->begun || http_stream_has_space(g->x);
}

static void on_accepted(struct batch_prompt *batch, uint64_t engine_id)
{
    struct gen_prompt *p = (struct gen_prompt *)batch;
    p->engine_id = engine_id;
    generation_prompt_taken(p->g, p);
    if (!prompt_batch_is_submitting(&p->g->batch))
        drop_ids(p->g, p);
}

/* ---- submitting ----------------------------------------------------------------------------- */

/* Limit of a tenant's choices that wait here, in requests of the largest size. */
#define MOST_WAITING 4

/* Truncates the prompt if requested, and sets p->max_tokens. */
static bool fit_prompt(const struct generation *g, struct gen_prompt *p, struct api_error *e)
{
    struct request_item *item = &p->reply->item;
    const struct params *params = g->terms->params;
    const char *name = g->terms->prompt_name;
    uint64_t context = g->terms->facts->max_model_len;
    bool to_the_end = !params->has_max_tokens && params->max_tokens == 0;
    if (params->truncate != 0) {
        /* -1: keep as many tokens as leave space for the answer. */
        uint64_t answer = to_the_end ? 1 : params->max_tokens;
        size_t keep = (size_t)params->truncate;
        if (params->truncate < 0)
            keep = answer < context ? (size_t)(context - answer) : 0;
        if (item->n_ids > keep) {
            size_t from = params->truncate_end ? 0 : item->n_ids - keep;
            request_item_keep(item, from, keep);
        }
    }
    if (item->n_ids == 0)
        return api_bad(e, name, "is empty");
    bool only_prompt = params->has_max_tokens && params->max_tokens == 0;
    if (item->n_ids + !only_prompt > context)
        return api_fail(e, 400, name, "context_length_exceeded",
                        "%s: this model's maximum context length is %llu tokens, the prompt has %zu and leaves no "
                        "room for an answer",
                        name, (unsigned long long)context, item->n_ids);
    uint64_t rest = context - item->n_ids;
    const bool is_too_much = params->has_max_tokens && params->max_tokens > rest;
    if (is_too_much && !params->clamps_max_tokens)
        return api_fail(e, 400, params->max_tokens_name, "context_length_exceeded",
                        "%s: %u is too large: this model's maximum context length is %llu tokens and the prompt "
                        "has %zu",
                        params->max_tokens_name, params->max_tokens, (unsigned long long)context, item->n_ids);
    if (params->has_max_tokens)
        p->max_tokens = is_too_much ? (uint32_t)rest : params->max_tokens;
    else
        p->max_tokens = to_the_end || rest < params->max_tokens ? (uint32_t)rest : params->max_tokens;
    if (params->spec->min_tokens > p->max_tokens)
        return api_bad(e, "min_tokens", "%u is more than the %u tokens there may be", params->spec->min_tokens,
                       p->max_tokens);
    return true;
}

static bool wants_prompt_logprobs(const struct params *params)
{
    return (params->echo && params->spec->n_logprobs >= 0) || params->spec->n_prompt_logprobs >= 0;
}

/* Creates its choices. A stream mentions them from its beginning on. */
static int prepare(struct generation *g, struct gen_prompt *p, struct quire_error *err)
{
    uint32_t n = g->terms->params->spec->n, first = (uint32_t)(p - g->prompts) * n;
    p->batch.n_tokens = (uint32_t)p->reply->item.n_ids;
    p->reply->choices = choice_list_new(n, first, g->reply->dialect->form, &g->terms->rules);
    if (!p->reply->choices)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    return QUIRE_OK;
}

/* Prepares for its events, when its turn comes. */
static int open_prompt(struct generation *g, struct gen_prompt *p, struct quire_error *err)
{
    struct reply_prompt *shown = p->reply;
    int status = QUIRE_OK;
    if (p->opened) /* its second turn */
        return QUIRE_OK;
    p->opened = true;
    generation_watch_prefix(g, p);
    for (uint32_t i = 0; i < g->terms->params->spec->n && status == QUIRE_OK; i++) {
        status = choice_open(&shown->choices[i], &g->terms->rules, shown->item.ids, shown->item.n_ids, err);
        if (g->terms->params->echo)
            shown->choices[i].n_chars = utf8_count(shown->item.text, shown->item.n_text);
    }
    if (status == QUIRE_OK && wants_prompt_logprobs(g->terms->params))
        reply_prompt_logprob(g->reply, shown, NULL);
    return status;
}

/* Limits the prediction to the context: later tokens cannot be generated. */
static void predict(struct generation *g, const struct gen_prompt *p, struct request_spec *s)
{
    size_t room = g->terms->facts->max_model_len - p->reply->item.n_ids;
    if (g->reply->n_prediction > room)
        g->reply->n_prediction = room;
    s->prediction = g->prediction;
    s->n_prediction = s->prediction ? (uint32_t)g->reply->n_prediction : 0;
}

static int submit(struct batch_prompt *batch, struct quire_error *err)
{
    struct gen_prompt *p = (struct gen_prompt *)batch;
    struct generation *g = p->g;
    const struct params *params = g->terms->params;
    p->submitted_us = p == g->prompts && !p->opened ? g->account->timing.submitted_us : quire_now_us();
    int status = open_prompt(g, p, err);
    if (status != QUIRE_OK)
        return status;
    struct request_spec s = *params->spec;
    s.prompt = p->reply->item.ids;
    s.n_prompt = (uint32_t)p->reply->item.n_ids;
    s.max_tokens = p->max_tokens;
    s.cache_domain = g->terms->cache_domain;
    predict(g, p, &s);
    front_bill(g->account->tenant, &s);
    if (params->deadline_ms > 0) {
        /* The time that remains after the text work and the wait for its turn. */
        uint64_t wanted = (uint64_t)params->deadline_ms * 1000;
        uint64_t passed = p->submitted_us - g->account->timing.arrived_us;
        s.deadline_us = passed < wanted ? wanted - passed : 1;
    }
    if (params->echo && s.n_logprobs > s.n_prompt_logprobs)
        s.n_prompt_logprobs = s.n_logprobs;
    struct completion_terms terms = g->cache->terms;
    terms.is_bounded = params->has_max_tokens || p->max_tokens == params->max_tokens;
    status = prompt_batch_send(batch, &s, &terms, err);
    drop_ids(g, p);
    return status;
}

static const struct prompt_batch_calls batch_calls = {
    .prompt_bytes = sizeof(struct gen_prompt),
    .submit = submit,
    .may_wait = may_wait,
    .on_accepted = on_accepted,
    .on_taken = on_taken,
    .on_origin = on_origin,
    .has_space = has_space,
    .on_token = on_token,
    .on_prompt_logprob = on_prompt_logprob,
    .on_done = on_done,
    .complete = complete,
    .fail = generation_fail,
};

/* Echoes the prompt, for a request without generated tokens. */
static void echo_only(struct generation *g)
{
    struct quire_error err;
    if (g->terms->params->stream)
        begin_stream(g);
    for (size_t i = 0; i < g->reply->n_prompts; i++) {
        for (uint32_t j = 0; j < g->terms->params->spec->n; j++) {
            struct choice *c = &g->reply->prompts[i].choices[j];
            c->finish = CHOICE_LENGTH;
            int status = open_prompt(g, &g->prompts[i], &err);
            if (status == QUIRE_OK)
                status = conclude(g, &g->reply->prompts[i], c, &err);
            if (status != QUIRE_OK) {
                prompt_batch_fail_with(&g->batch, status, err.text);
                return;
            }
        }
    }
    complete(g);
}

/* Queues its choices. Returns false if they may not all wait. */
static bool queue(struct generation *g, struct api_error *e)
{
    const struct served_model *m = g->served;
    uint32_t n = (uint32_t)g->reply->n_prompts * g->terms->params->spec->n;
    uint64_t waiting = turns_n_waiting(m->turns, g->account->tenant->index),
             most = (uint64_t)MOST_WAITING * m->front->max_choices;
    if (!prompt_batch_is_small(&g->batch) && waiting + n > most) {
        api_fail(e, 429, NULL, "rate_limit_exceeded",
                 "%llu choices of this key wait for their turn, and %llu may: try again when some are done",
                 (unsigned long long)waiting, (unsigned long long)most);
        e->retry_ms = 1000;
        return false;
    }
    if (!limits_queue(g->account->tenant, n, e))
        return false;
    prompt_batch_expect(&g->batch);
    g->account->n_queued = n;
    return true;
}

/* Fits the prompts into the context and makes room for their reply. */
static bool admit(struct generation *g, struct api_error *e)
{
    struct reply *r = g->reply;
    for (size_t i = 0; i < r->n_prompts; i++) {
        if (!fit_prompt(g, &g->prompts[i], e))
            return false;
        int status = prepare(g, &g->prompts[i], &e->why);
        if (status != QUIRE_OK)
            return api_fail_status(e, status, NULL);
    }
    prompt_batch_begin(&g->batch, g->served, &batch_calls, g, g->account->tenant, &g->prompts->batch, r->n_prompts,
                       r->params->spec->n);
    r->budget = (struct reply_budget){.replies = g->served->front->replies, .tenant = g->account->tenant->index};
    return reply_budget_take(&r->budget, r, tenants_ask_key(g->served->front->tenants), e);
}

void generation_run(struct generation *g)
{
    struct api_error e;
    bool ok = admit(g, &e);
    uint64_t n_tokens = 0;
    for (size_t i = 0; i < g->reply->n_prompts; i++)
        n_tokens += g->reply->prompts[i].item.n_ids;
    g->account->timing.submitted_us = quire_now_us();
    bool compute = ok && (g->prompts[0].max_tokens > 0 || wants_prompt_logprobs(g->terms->params));
    if (compute)
        ok = queue(g, &e);
    ok = ok && limits_prompt(g->account->tenant, n_tokens, g->account->timing.submitted_us, &e);
    if (!ok)
        generation_fail(g, &e);
    else if (!compute)
        echo_only(g);
    else
        prompt_batch_start(&g->batch);
}
