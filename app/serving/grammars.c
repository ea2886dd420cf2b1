#include "app/serving/grammars.h"

#include "engine/model/config.h"
#include "text/quire_grammar.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct serving_grammars {
    struct engine_grammars functions;
    pthread_mutex_t mutex; /* guards `grammars` */
    struct quire_grammars *grammars;
    char *model_dir;
    uint32_t n_vocab;
    uint32_t eos[MODEL_MAX_EOS];
    size_t n_eos;
};

static int open_grammars(struct serving_grammars *g, const struct quire_text *text, struct quire_error *err)
{
    /* An eos id without a token ends an answer, but no tokenizer knows it. */
    uint32_t eos[MODEL_MAX_EOS];
    size_t n_eos = 0;
    for (size_t i = 0; i < g->n_eos; i++)
        if (g->eos[i] < quire_text_n_ids(text))
            eos[n_eos++] = g->eos[i];
    const struct quire_grammars_options o = {.n_vocab = g->n_vocab, .eos = eos, .n_eos = n_eos};
    return quire_grammars_open(text, &o, &g->grammars, err);
}

static int open_from_files(struct serving_grammars *g, struct quire_error *err)
{
    struct quire_text *text;
    if (!g->model_dir)
        return quire_fail(err, QUIRE_UNSUPPORTED, "this model's tokenizer cannot be used with grammars");
    int status = quire_text_open(g->model_dir, &text, err);
    if (status != QUIRE_OK)
        return status;
    status = open_grammars(g, text, err);
    quire_text_close(text);
    return status;
}

/* *out: the grammars, which stay until the end. */
static int grammars_of(struct serving_grammars *g, bool open, struct quire_grammars **out, struct quire_error *err)
{
    int status = QUIRE_OK;
    pthread_mutex_lock(&g->mutex);
    if (!g->grammars && open)
        status = open_from_files(g, err);
    *out = g->grammars;
    pthread_mutex_unlock(&g->mutex);
    return status;
}

static void *find(void *context, const char *text, size_t n_text)
{
    struct quire_grammars *grammars;
    grammars_of(context, false, &grammars, NULL);
    return grammars ? quire_grammar_find(grammars, text, n_text) : NULL;
}

static int compile(void *context, const char *text, size_t n_text, const atomic_bool *leave, void **grammar,
                   struct quire_error *err)
{
    struct quire_grammars *grammars;
    struct quire_grammar *made = NULL;
    const struct quire_grammar_caller caller = {.leave = leave, .owner = UINT32_MAX};
    int status = grammars_of(context, true, &grammars, err);
    if (status == QUIRE_OK)
        status = quire_grammar_compile(grammars, text, n_text, &caller, &made, err);
    *grammar = made;
    return status;
}

static void release(void *grammar)
{
    quire_grammar_release(grammar);
}

static int open_matcher(void *grammar, void **matcher, struct quire_error *err)
{
    struct quire_matcher *opened = NULL;
    int status = quire_matcher_open(grammar, &opened, err);
    *matcher = opened;
    return status;
}

static void close_matcher(void *matcher)
{
    quire_matcher_close(matcher);
}

static int accept_token(void *matcher, uint32_t token, struct quire_error *err)
{
    return quire_matcher_accept(matcher, token, err);
}

static int rollback(void *matcher, uint32_t n, struct quire_error *err)
{
    return quire_matcher_rollback(matcher, n, err);
}

static int forced(void *matcher, uint32_t *ids, uint32_t most, uint32_t *n, struct quire_error *err)
{
    size_t n_ids = 0;
    int status = quire_matcher_forced(matcher, ids, most, &n_ids, err);
    *n = (uint32_t)n_ids;
    return status;
}

static int check(void *matcher, const uint32_t *ids, uint32_t n, uint32_t *n_ok, struct quire_error *err)
{
    size_t ok = 0;
    int status = quire_matcher_check(matcher, ids, n, &ok, err);
    *n_ok = (uint32_t)ok;
    return status;
}

static int is_over(void *matcher, bool *over, struct quire_error *err)
{
    return quire_matcher_is_over(matcher, over, err);
}

static int mask(void *matcher, uint32_t *words, struct quire_error *err)
{
    return quire_matcher_mask(matcher, words, err);
}

int serving_grammars_begin(const char *model_dir, const struct model_config *config, struct serving_grammars **out,
                           struct quire_error *err)
{
    struct serving_grammars *g = calloc(1, sizeof *g);
    if (g && model_dir)
        g->model_dir = strdup(model_dir);
    if (!g || (model_dir && !g->model_dir)) {
        free(g);
        return quire_fail(err, QUIRE_NO_MEMORY, "grammars: out of memory");
    }
    pthread_mutex_init(&g->mutex, NULL);
    g->n_vocab = config->vocab_size;
    g->n_eos = config->tokens.n_eos;
    memcpy(g->eos, config->tokens.eos, config->tokens.n_eos * sizeof *g->eos);
    g->functions = (struct engine_grammars){.context = g,
                                            .find = find,
                                            .compile = compile,
                                            .release = release,
                                            .open = open_matcher,
                                            .close = close_matcher,
                                            .accept = accept_token,
                                            .rollback = rollback,
                                            .forced = forced,
                                            .check = check,
                                            .is_over = is_over,
                                            .mask = mask};
    *out = g;
    return QUIRE_OK;
}

const struct engine_grammars *serving_grammars_engine(const struct serving_grammars *g)
{
    return &g->functions;
}

struct quire_grammars *serving_grammars_use(struct serving_grammars *g, const struct quire_text *text,
                                            struct quire_error *err)
{
    pthread_mutex_lock(&g->mutex);
    if (!g->grammars && open_grammars(g, text, err) != QUIRE_OK)
        g->grammars = NULL;
    pthread_mutex_unlock(&g->mutex);
    return g->grammars;
}

void serving_grammars_end(struct serving_grammars *g)
{
    if (!g)
        return;
    quire_grammars_release(g->grammars);
    pthread_mutex_destroy(&g->mutex);
    free(g->model_dir);
    free(g);
}
