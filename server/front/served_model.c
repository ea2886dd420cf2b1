#include "text/quire_chat.h"
#include "server/front/served_model.h"

#include "base/log.h"
#include "server/front/front_internal.h"
#include "server/front/batch/turns.h"
#include "server/front/prompt_identity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the engine ----------------------------------------------------------------------------- */

/* Logged once for each engine. */
static void say_arithmetic(const struct served_model *m, const struct wire_hello *hello)
{
    char text[WIRE_MAX_TEXT + 1];
    if (hello->n_arithmetic == 0)
        return;
    snprintf(text, sizeof text, "%.*s", (int)hello->n_arithmetic, hello->arithmetic);
    for (char *at = text; (at = strchr(at, '\n'));)
        *at = at[1] ? ' ' : '\0';
    quire_log(QUIRE_LOG_DEBUG, "server", "identity_arithmetic %s: %s", m->facts->arithmetic, text);
}

/* NULL: this engine's results may not be reused, because its identity is unknown, or because its bits depend on other
 * requests. */
static const struct key256 *identity_of(const struct wire_hello *hello)
{
    static const char off[] = "\ninvariance=off\n";
    const size_t n = sizeof off - 1;
    const bool is_off = memmem(hello->arithmetic, hello->n_arithmetic, off, n) != NULL;
    return hello->n_arithmetic == 0 || is_off ? NULL : &hello->identity_arithmetic;
}

static bool set_facts(struct served_model *m, const struct model_facts *facts)
{
    const struct model_facts *before = m->facts;
    m->facts = facts;
    if (facts && front_list_models(m->front)) {
        model_facts_release(before);
        return true;
    }
    m->facts = before;
    model_facts_release(facts);
    return false;
}

/* Without an engine, requests get cached responses. If this engine has another identity, those responses are not its
 * own. They end before m->source changes: a request is cancelled in the source that it was submitted to. */
static void take_cache(struct served_model *m, const struct key256 *identity)
{
    struct api_error e;
    if (!response_cache_is_of(m->cache, identity)) {
        snprintf(e.why.text, sizeof e.why.text, "the engine was replaced");
        api_fail_status(&e, QUIRE_IO, NULL);
        generations_end(m, &e);
    }
    response_cache_set_below(m->cache, upstream_source(m->upstream), identity, m->facts->vocab_size);
    m->source = response_cache_source(m->cache);
}

static bool on_ready(void *context, const struct wire_hello *hello)
{
    struct served_model *m = context;
    if (!set_facts(m, model_facts_of(hello)))
        return false;
    turns_set_engine(m->turns, hello->max_num_seqs, hello->max_queued_requests, hello->max_num_batched_tokens);
    say_arithmetic(m, hello);
    if (m->cache)
        take_cache(m, identity_of(hello));
    else
        m->source = upstream_source(m->upstream);
    return true;
}

static void on_stats(void *context, const struct wire_stats *stats)
{
    scrapes_answer(context, stats);
}

static void on_control(void *context, const struct wire_refuse *refuse)
{
    commands_answer(context, refuse);
}

static void on_closed(void *context)
{
    scrapes_answer(context, NULL);
    commands_end(context);
}

static void on_replace(void *context)
{
    struct served_model *m = context;
    struct api_error e;
    snprintf(e.why.text, sizeof e.why.text, "the engine was replaced");
    api_fail_status(&e, QUIRE_IO, NULL);
    served_model_end_requests(m, &e);
    embeddings_end(m);
    commands_end(m);
}

static void on_replaced(void *context)
{
    struct served_model *m = context;
    m->source = upstream_source(m->upstream);
    if (!m->cache || !upstream_was_ready(m->upstream))
        return;
    response_cache_await_below(m->cache, m->source); /* also without an engine: the last source is freed */
    if (m->source.self) /* cached responses, until it is ready */
        m->source = response_cache_source(m->cache);
}

static void ask(void *context)
{
    scrapes_question(context);
}

static const struct upstream_user user = {
    .on_replace = on_replace,
    .on_replaced = on_replaced,
    .on_ready = on_ready,
    .on_stats = on_stats,
    .on_control = on_control,
    .on_closed = on_closed,
    .ask = ask,
};

struct upstream *served_model_upstream(struct served_model *m)
{
    return m->upstream;
}

struct completion_source served_model_source(const struct served_model *m)
{
    return m->source;
}

void served_model_set_source(struct served_model *m, struct completion_source source)
{
    m->source = source;
}

/* ---- its requests ---- */

void served_model_end_requests(struct served_model *m, const struct api_error *e)
{
    generations_end(m, e);
    pins_end(m, e);
    vectors_end(m, e);
}

const struct model_view *served_model_view(const struct served_model *m)
{
    return model_list_find(m->front->list, m->config);
}

/* ---- opening and closing -------------------------------------------------------------------- */

/* How this model writes its calls and its reasoning: by the options, or detected in its chat template. */
static int choose_formats(struct model_config *c, const struct served_model_options *o, struct quire_error *err)
{
    int status = notation_tools(c->text, o->tool_call_parser, &c->tool_format, err);
    if (status == QUIRE_OK)
        status = notation_reasoning(c->text, o->reasoning_parser, &c->reasoning_format, err);
    if (status != QUIRE_OK)
        return status;
    if (c->tool_format == TOOL_OPENAI) /* its calls are messages of this format */
        c->reasoning_format = REASONING_OPENAI_GPTOSS;
    status = special_tags_of_tools(c->text, c->tool_format, &c->tool_tags, err);
    return status == QUIRE_OK ? special_tags_of_reasoning(c->text, c->reasoning_format, &c->reasoning_tags, err)
                              : status;
}

static void config_free(struct model_config *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->n_names; i++)
        free(c->names[i]);
    free(c->names);
    free(c->root);
    free((struct sampling_defaults *)(uintptr_t)c->sampling);
    free(c);
}

static bool copy_names(struct model_config *c, const struct served_model_options *o)
{
    struct sampling_defaults *sampling = malloc(sizeof *sampling);
    c->sampling = sampling;
    c->root = strdup(o->root ? o->root : o->names[0]);
    c->names = calloc(o->n_names, sizeof *c->names);
    if (!sampling || !c->root || !c->names)
        return false;
    *sampling = o->sampling;
    for (size_t i = 0; i < o->n_names; i++, c->n_names++)
        if (!(c->names[i] = strdup(o->names[i])))
            return false;
    return true;
}

static int config_new(const struct front *f, const struct served_model_options *o, const struct model_config **out,
                      struct quire_error *err)
{
    struct model_config *c = calloc(1, sizeof *c);
    *out = c;
    if (!c || !copy_names(c, o))
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    c->about = o->about;
    c->text = o->text;
    c->grammars = o->grammars;
    c->flexible_whitespace = o->flexible_whitespace;
    c->specials_in_messages = o->specials_in_messages;
    c->keeps_billing_header = o->keeps_billing_header;
    c->compares_questions = o->compares;
    c->strict_fields = f->strict_fields;
    c->for_vectors = o->for_vectors;
    c->max_choices = f->max_choices;
    c->responses = f->responses;
    c->shows_tools = notation_shows_tools(o->text);
    c->chat_tells_time = quire_text_chat_mentions(o->text, "strftime_now");
    int status = choose_formats(c, o, err);
    c->prompt_identity = prompt_identity(o->text, &o->sampling, o->specials_in_messages, (int)c->tool_format,
                                         (int)c->reasoning_format, o->keeps_billing_header, o->flexible_whitespace);
    return status;
}

static int open_parts(struct served_model *m, const struct served_model_options *o, struct quire_error *err)
{
    m->cache = o->cache;
    m->share_answers = o->share_answers;
    m->facts = model_facts_unknown();
    m->counts = calloc(1, sizeof *m->counts);
    m->background = calloc(1, sizeof *m->background);
    m->blockers = calloc(1, sizeof *m->blockers);
    m->prefixes = calloc(1, sizeof *m->prefixes);
    m->price = o->price ? malloc(sizeof *m->price) : NULL;
    if (!m->facts || !m->counts || !m->background || !m->blockers || !m->prefixes || (o->price && !m->price))
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    if (o->price)
        *m->price = *o->price;
    metrics_init(m->counts);
    metrics_init(m->background);
    int status = config_new(m->front, o, &m->config, err);
    if (status == QUIRE_OK)
        status = turns_open(m->front->base, &m->turns, err);
    return status == QUIRE_OK ? upstream_open(m->front->base, &user, m, &m->upstream, err) : status;
}

int front_add_model(struct front *f, const struct served_model_options *o, struct served_model **out,
                    struct quire_error *err)
{
    *out = NULL;
    if (o->n_names == 0)
        return quire_fail(err, QUIRE_INVALID, "a model needs a name to be served under");
    struct served_model *m = calloc(1, sizeof *m);
    if (!m)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    m->front = f;
    TAILQ_INIT(&m->generations);
    TAILQ_INIT(&m->commands);
    TAILQ_INIT(&m->pins);
    TAILQ_INIT(&m->vectors);
    TAILQ_INIT(&m->embeddings);
    int status = open_parts(m, o, err);
    if (status != QUIRE_OK) {
        served_model_free(m);
        return status;
    }
    TAILQ_INSERT_TAIL(&f->models, m, link);
    if (!front_list_models(f)) {
        TAILQ_REMOVE(&f->models, m, link);
        served_model_free(m);
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    }
    *out = m;
    return QUIRE_OK;
}

void served_model_free(struct served_model *m)
{
    if (!m)
        return;
    turns_close(m->turns);
    upstream_close(m->upstream);
    if (m->prefixes)
        prefix_watch_free(m->prefixes);
    free(m->prefixes);
    free(m->blockers);
    free(m->counts);
    free(m->background);
    free(m->price);
    free(m->told);
    model_facts_release(m->facts);
    config_free((struct model_config *)(uintptr_t)m->config);
    free(m);
}
