#include "engine/grammar/compiler.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct compiled {
    struct compiled *next; /* among those that wait */
    const struct engine_grammars *grammars;
    atomic_uint n_references;
    atomic_int state; /* what follows is written before it, and read after it */
    void *grammar;
    struct quire_error error;
    size_t n_text;
    char text[];
};

struct compiler {
    const struct engine_grammars *grammars;
    void (*changed)(void *context);
    void *context;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    /* Under the mutex. */
    struct compiled *first, **end; /* that wait */
    struct compiled *current;      /* the thread's */
    atomic_bool closing; /* read without it by engine_grammars.compile() */
};

static void settle(struct compiled *g, enum compiled_state state)
{
    atomic_store_explicit(&g->state, (int)state, memory_order_release);
}

static void compile(struct compiled *g, const atomic_bool *leave)
{
    int status = g->grammars->compile(g->grammars->context, g->text, g->n_text, leave, &g->grammar, &g->error);
    settle(g, status == QUIRE_OK ? COMPILED_READY : COMPILED_FAILED);
}

static struct compiled *take_first(struct compiler *c)
{
    struct compiled *g = c->first;
    c->first = g->next;
    if (!c->first)
        c->end = &c->first;
    return g;
}

static void *run(void *compiler)
{
    struct compiler *c = compiler;
    pthread_mutex_lock(&c->mutex);
    for (;;) {
        while (!c->first && !c->closing)
            pthread_cond_wait(&c->wake, &c->mutex);
        if (c->closing)
            break;
        struct compiled *g = c->current = take_first(c);
        pthread_mutex_unlock(&c->mutex);
        compile(g, &c->closing);
        c->changed(c->context);
        pthread_mutex_lock(&c->mutex);
        c->current = NULL;
        compiled_release(g);
    }
    pthread_mutex_unlock(&c->mutex);
    return NULL;
}

int compiler_create(const struct engine_grammars *grammars, void (*changed)(void *context), void *context,
                    struct compiler **out, struct quire_error *err)
{
    struct compiler *c = calloc(1, sizeof *c);
    if (!c)
        return quire_fail(err, QUIRE_NO_MEMORY, "grammars: out of memory");
    c->grammars = grammars;
    c->changed = changed;
    c->context = context;
    c->end = &c->first;
    pthread_mutex_init(&c->mutex, NULL);
    pthread_cond_init(&c->wake, NULL);
    if (pthread_create(&c->thread, NULL, run, c) != 0) {
        pthread_cond_destroy(&c->wake);
        pthread_mutex_destroy(&c->mutex);
        free(c);
        return quire_fail(err, QUIRE_EXHAUSTED, "grammars: the system starts no further thread");
    }
    *out = c;
    return QUIRE_OK;
}

void compiler_destroy(struct compiler *c)
{
    if (!c)
        return;
    pthread_mutex_lock(&c->mutex);
    c->closing = true;
    pthread_cond_signal(&c->wake);
    pthread_mutex_unlock(&c->mutex);
    pthread_join(c->thread, NULL);
    while (c->first) {
        struct compiled *g = take_first(c);
        quire_fail(&g->error, QUIRE_UNAVAILABLE, "the engine was closed");
        settle(g, COMPILED_FAILED);
        compiled_release(g);
    }
    pthread_cond_destroy(&c->wake);
    pthread_mutex_destroy(&c->mutex);
    free(c);
}

static bool is_text(const struct compiled *g, const char *text, size_t n_text)
{
    return g && g->n_text == n_text && memcmp(g->text, text, n_text) == 0;
}

/* Under the mutex: an entry of this text that is not ready yet, with one more reference; or NULL. */
static struct compiled *share(struct compiler *c, const char *text, size_t n_text)
{
    struct compiled *g = is_text(c->current, text, n_text) ? c->current : c->first;
    while (g && !is_text(g, text, n_text))
        g = g->next;
    if (g)
        atomic_fetch_add(&g->n_references, 1);
    return g;
}

static struct compiled *make(const struct engine_grammars *grammars, const char *text, size_t n_text)
{
    struct compiled *g = calloc(1, sizeof *g + n_text);
    if (!g)
        return NULL;
    g->grammars = grammars;
    g->n_text = n_text;
    memcpy(g->text, text, n_text);
    atomic_init(&g->n_references, 1);
    g->grammar = grammars->find(grammars->context, text, n_text);
    atomic_init(&g->state, g->grammar ? COMPILED_READY : COMPILED_PENDING);
    return g;
}

int compiler_add(struct compiler *c, const char *text, size_t n_text, struct compiled **out, struct quire_error *err)
{
    pthread_mutex_lock(&c->mutex);
    struct compiled *g = share(c, text, n_text);
    pthread_mutex_unlock(&c->mutex);
    if (!g) {
        g = make(c->grammars, text, n_text);
        if (!g)
            return quire_fail(err, QUIRE_NO_MEMORY, "grammars: out of memory");
        if (compiled_state(g) == COMPILED_PENDING) {
            atomic_fetch_add(&g->n_references, 1);
            pthread_mutex_lock(&c->mutex);
            *c->end = g;
            c->end = &g->next;
            pthread_cond_signal(&c->wake);
            pthread_mutex_unlock(&c->mutex);
        }
    }
    *out = g;
    return QUIRE_OK;
}

enum compiled_state compiled_state(const struct compiled *g)
{
    return (enum compiled_state)atomic_load_explicit(&g->state, memory_order_acquire);
}

void *compiled_grammar(const struct compiled *g)
{
    return g->grammar;
}

const struct quire_error *compiled_error(const struct compiled *g)
{
    return &g->error;
}

void compiled_release(struct compiled *g)
{
    if (!g || atomic_fetch_sub(&g->n_references, 1) != 1)
        return;
    if (g->grammar)
        g->grammars->release(g->grammar);
    free(g);
}
