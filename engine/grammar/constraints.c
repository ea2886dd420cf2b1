#include "engine/grammar/constraints.h"

#include "base/clock.h"
#include "engine/grammar/crew.h"

#include <stdatomic.h>
#include <stdlib.h>

/* A row of the step that is about to run. */
struct drawn_row {
    struct constraint *x;
    struct constraint_text text;
    uint32_t at;
};
/* A row of the step that has ended. */
struct taken_row {
    struct constraint *x;
    struct constraint_text before;
    const struct k_sample_result *results;
    uint32_t n;
};

struct constraints {
    const struct engine_grammars *grammars;
    struct compiler *compiler;
    struct crew *crew;
    uint32_t n_vocab, n_words;
    bool is_started;
    struct k_sample_row *rows; /* the step's */
    uint32_t n_drawn, n_taken;
    struct drawn_row *drawn; /* [max_seqs] */
    struct taken_row *taken; /* [max_seqs] */
    struct constraint_draw *draws; /* [max_rows] */
    uint32_t *words; /* [max_rows][n_words] */
    uint64_t n_masks, waited_us;
    atomic_ullong work_us;
};

static uint64_t n_words_of(uint32_t n_vocab)
{
    return ((uint64_t)n_vocab + 31) / 32;
}

uint64_t constraints_bytes(uint32_t n_vocab, uint32_t max_rows, uint32_t max_seqs)
{
    return sizeof(struct constraints) + max_seqs * (sizeof(struct drawn_row) + sizeof(struct taken_row)) +
           max_rows * (sizeof(struct constraint_draw) + n_words_of(n_vocab) * sizeof(uint32_t));
}

int constraints_create(const struct constraints_options *o, struct constraints **out, struct quire_error *err)
{
    struct constraints *c = calloc(1, sizeof *c);
    if (!c)
        return quire_fail(err, QUIRE_NO_MEMORY, "grammars: out of memory");
    c->grammars = o->grammars;
    c->n_vocab = o->n_vocab;
    c->n_words = (uint32_t)n_words_of(o->n_vocab);
    c->drawn = calloc(o->max_seqs, sizeof *c->drawn);
    c->taken = calloc(o->max_seqs, sizeof *c->taken);
    c->draws = calloc(o->max_rows, sizeof *c->draws);
    c->words = calloc((size_t)o->max_rows * c->n_words, sizeof *c->words);
    int status = c->drawn && c->taken && c->draws && c->words
                     ? crew_create(o->n_threads, &c->crew, err)
                     : quire_fail(err, QUIRE_NO_MEMORY, "grammars: out of memory");
    if (status == QUIRE_OK)
        status = compiler_create(o->grammars, o->compiled, o->context, &c->compiler, err);
    if (status == QUIRE_OK)
        *out = c;
    else
        constraints_destroy(c);
    return status;
}

void constraints_destroy(struct constraints *c)
{
    if (!c)
        return;
    compiler_destroy(c->compiler);
    crew_destroy(c->crew);
    free(c->drawn);
    free(c->taken);
    free(c->draws);
    free(c->words);
    free(c);
}

struct compiler *constraints_compiler(const struct constraints *c)
{
    return c->compiler;
}

const struct engine_grammars *constraints_grammars(const struct constraints *c)
{
    return c->grammars;
}

static void draw_one(void *context, uint32_t i)
{
    struct constraints *c = context;
    const struct drawn_row *row = &c->drawn[i];
    const uint64_t begun_us = quire_now_us();
    constraint_draws(row->x, &row->text, c->rows + row->at, c->n_vocab, c->words + (size_t)row->at * c->n_words,
                     c->draws + row->at);
    atomic_fetch_add_explicit(&c->work_us, quire_now_us() - begun_us, memory_order_relaxed);
}

static void take_one(void *context, uint32_t i)
{
    struct constraints *c = context;
    const struct taken_row *row = &c->taken[i];
    const uint64_t begun_us = quire_now_us();
    constraint_take(row->x, &row->before, row->results, row->n);
    atomic_fetch_add_explicit(&c->work_us, quire_now_us() - begun_us, memory_order_relaxed);
}

static void join(struct constraints *c)
{
    const uint64_t begun_us = quire_now_us();
    crew_join(c->crew);
    c->waited_us += quire_now_us() - begun_us;
}

void constraints_draw(struct constraints *c, struct constraint *x, const struct constraint_text *text,
                      struct k_sample_row *rows, uint32_t at)
{
    c->rows = rows;
    c->drawn[c->n_drawn++] = (struct drawn_row){.x = x, .text = *text, .at = at};
}

void constraints_start(struct constraints *c)
{
    if (c->n_drawn > 0 && !c->is_started)
        crew_start(c->crew, draw_one, c, c->n_drawn);
    c->is_started = c->n_drawn > 0;
}

static bool is_unknown(const struct constraint_draw *draw)
{
    return !draw->mask && draw->only < 0;
}

bool constraints_rejects(const struct constraints *c, uint32_t at)
{
    return is_unknown(&c->draws[at]);
}

static void complete(struct k_sample_row *row, const struct constraint_draw *draw)
{
    if (is_unknown(draw))
        row->forced = 0;
    else if (draw->mask)
        row->mask = draw->mask;
    else
        row->forced = draw->only;
}

void constraints_ready(struct constraints *c)
{
    if (c->n_drawn == 0)
        return;
    constraints_start(c);
    join(c);
    for (uint32_t i = 0; i < c->n_drawn; i++) {
        const struct drawn_row *row = &c->drawn[i];
        for (uint32_t at = row->at; at <= row->at + row->text.n_drafts; at++)
            if (c->rows[at].forced < 0) { /* otherwise a draft's row that is not verified */
                complete(&c->rows[at], &c->draws[at]);
                c->n_masks++;
            }
    }
    c->n_drawn = 0;
    c->is_started = false;
}

void constraints_take(struct constraints *c, struct constraint *x, const struct constraint_text *before,
                      const struct k_sample_result *results, uint32_t n)
{
    c->taken[c->n_taken++] = (struct taken_row){.x = x, .before = *before, .results = results, .n = n};
}

void constraints_taken(struct constraints *c)
{
    if (c->n_taken == 0)
        return;
    crew_start(c->crew, take_one, c, c->n_taken);
    join(c);
    c->n_taken = 0;
}

struct constraints_stats constraints_stats(const struct constraints *c)
{
    return (struct constraints_stats){.n_masks = c->n_masks,
                                      .work_us = atomic_load_explicit(&c->work_us, memory_order_relaxed),
                                      .waited_us = c->waited_us};
}
