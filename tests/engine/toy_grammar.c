#include "toy_grammar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_STATES 64u
#define MAX_EDGES 8u

struct edge {
    uint32_t low, high, state;
};
struct toy_state {
    bool may_end;
    uint32_t n_edges;
    struct edge edges[MAX_EDGES];
};
struct toy {
    struct toy_grammars *all;
    atomic_uint n_references;
    bool weak;
    uint32_t n_states;
    struct toy_state states[MAX_STATES];
};
struct walk {
    struct toy *toy;
    uint32_t n;
    uint32_t states[4096]; /* after each token; the first is the start */
    bool ended[4096];
};

static bool parse_state(const char *text, size_t n, struct toy_state *out)
{
    char copy[256], *rest = copy;
    if (n >= sizeof copy)
        return false;
    memcpy(copy, text, n);
    copy[n] = '\0';
    out->may_end = *rest == '!';
    rest += out->may_end;
    for (char *part; (part = strsep(&rest, ",")) && *part;) {
        struct edge *e = &out->edges[out->n_edges++];
        if (sscanf(part, "%u-%u>%u", &e->low, &e->high, &e->state) != 3)
            return false;
    }
    return true;
}

static struct toy *parse(struct toy_grammars *all, const char *text, size_t n)
{
    struct toy *t = calloc(1, sizeof *t);
    t->all = all;
    atomic_init(&t->n_references, 1);
    atomic_fetch_add(&all->n_live, 1);
    if (n > 5 && memcmp(text, "weak:", 5) == 0) {
        t->weak = true;
        text += 5;
        n -= 5;
    }
    for (const char *end = text + n; text <= end;) {
        const char *stop = memchr(text, ';', (size_t)(end - text));
        stop = stop ? stop : end;
        if (!parse_state(text, (size_t)(stop - text), &t->states[t->n_states++]))
            abort();
        text = stop + 1;
    }
    return t;
}

static bool is_slow(const char *text, size_t n)
{
    return n > 5 && memcmp(text, "slow:", 5) == 0;
}

static bool is_bad(const char *text, size_t n)
{
    return n == 3 && memcmp(text, "bad", 3) == 0;
}

/* As if everything but slow and bad texts were cached: tests that count steps want no thread's timing. */
static void *find(void *context, const char *text, size_t n)
{
    return is_slow(text, n) || is_bad(text, n) ? NULL : parse(context, text, n);
}

static int compile(void *context, const char *text, size_t n, void **grammar, struct quire_error *err)
{
    struct toy_grammars *t = context;
    atomic_fetch_add(&t->n_compiled, 1);
    if (is_slow(text, n)) {
        usleep(200000);
        text += 5;
        n -= 5;
    }
    if (is_bad(text, n))
        return quire_fail(err, QUIRE_INVALID, "line 1: this is no grammar");
    *grammar = parse(t, text, n);
    return QUIRE_OK;
}

static void release(void *grammar)
{
    struct toy *t = grammar;
    if (atomic_fetch_sub(&t->n_references, 1) != 1)
        return;
    atomic_fetch_sub(&t->all->n_live, 1);
    free(t);
}

static int open_walk(void *grammar, void **matcher, struct quire_error *err)
{
    (void)err;
    struct walk *w = calloc(1, sizeof *w);
    w->toy = grammar;
    atomic_fetch_add(&w->toy->n_references, 1);
    atomic_fetch_add(&w->toy->all->n_live, 1);
    *matcher = w;
    return QUIRE_OK;
}

static void close_walk(void *matcher)
{
    struct walk *w = matcher;
    atomic_fetch_sub(&w->toy->all->n_live, 1);
    release(w->toy);
    free(w);
}

static const struct toy_state *state_of(const struct walk *w)
{
    return &w->toy->states[w->states[w->n]];
}

static int accept_token(void *matcher, uint32_t token, struct quire_error *err)
{
    struct walk *w = matcher;
    const struct toy_state *s = state_of(w);
    if (w->toy->weak && w->n >= 3)
        return quire_fail(err, QUIRE_INVALID, "the grammar is too complex after 3 tokens");
    if (!w->ended[w->n] && s->may_end && token == w->toy->all->eos) {
        w->states[w->n + 1] = w->states[w->n];
        w->ended[++w->n] = true;
        return QUIRE_OK;
    }
    for (uint32_t i = 0; !w->ended[w->n] && i < s->n_edges; i++)
        if (token >= s->edges[i].low && token <= s->edges[i].high) {
            w->states[++w->n] = s->edges[i].state;
            w->ended[w->n] = false;
            return QUIRE_OK;
        }
    return quire_fail(err, QUIRE_INVALID, "token %u is not allowed", token);
}

static int rollback(void *matcher, uint32_t n, struct quire_error *err)
{
    struct walk *w = matcher;
    if (n > w->n)
        return quire_fail(err, QUIRE_INVALID, "fewer tokens than that");
    w->n -= n;
    return QUIRE_OK;
}

static int forced(void *matcher, uint32_t *ids, uint32_t most, uint32_t *n, struct quire_error *err)
{
    (void)err;
    const struct walk *w = matcher;
    uint32_t state = w->states[w->n];
    for (*n = 0; *n < most && !w->ended[w->n]; ++*n) {
        const struct toy_state *s = &w->toy->states[state];
        if (s->may_end || s->n_edges != 1 || s->edges[0].low != s->edges[0].high)
            break;
        ids[*n] = s->edges[0].low;
        state = s->edges[0].state;
    }
    return QUIRE_OK;
}

static int check(void *matcher, const uint32_t *ids, uint32_t n, uint32_t *n_ok, struct quire_error *err)
{
    (void)err;
    for (*n_ok = 0; *n_ok < n && accept_token(matcher, ids[*n_ok], NULL) == QUIRE_OK; ++*n_ok) {
    }
    return rollback(matcher, *n_ok, NULL);
}

static int is_over(void *matcher, bool *over, struct quire_error *err)
{
    (void)err;
    const struct walk *w = matcher;
    *over = w->ended[w->n] || (state_of(w)->may_end && state_of(w)->n_edges == 0);
    return QUIRE_OK;
}

static int mask(void *matcher, uint32_t *words, struct quire_error *err)
{
    (void)err;
    const struct walk *w = matcher;
    const struct toy_state *s = state_of(w);
    memset(words, 0, (w->toy->all->n_vocab + 31) / 32 * sizeof *words);
    for (uint32_t i = 0; i < s->n_edges; i++)
        for (uint32_t id = s->edges[i].low; id <= s->edges[i].high; id++)
            words[id / 32] |= 1u << id % 32;
    if (s->may_end)
        words[w->toy->all->eos / 32] |= 1u << w->toy->all->eos % 32;
    return QUIRE_OK;
}

struct engine_grammars toy_grammars(struct toy_grammars *t)
{
    return (struct engine_grammars){.context = t,
                                    .find = find,
                                    .compile = compile,
                                    .release = release,
                                    .open = open_walk,
                                    .close = close_walk,
                                    .accept = accept_token,
                                    .rollback = rollback,
                                    .forced = forced,
                                    .check = check,
                                    .is_over = is_over,
                                    .mask = mask};
}

bool toy_accepts(struct toy_grammars *t, const char *text, const uint32_t *tokens, uint32_t n)
{
    struct walk w = {.toy = parse(t, text, strlen(text))};
    bool ok = true;
    for (uint32_t i = 0; ok && i < n; i++)
        ok = accept_token(&w, tokens[i], NULL) == QUIRE_OK;
    ok = ok && (w.ended[w.n] || state_of(&w)->may_end);
    release(w.toy);
    return ok;
}
