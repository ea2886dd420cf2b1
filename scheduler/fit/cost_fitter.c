#include "scheduler/fit/cost_fitter.h"

#include "scheduler/fit/least_squares.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

/* The constant of T; for each further size the tokens of the step between the size before and this one; the prices. */
#define N_SIZES 15u /* 1, 2, 4, … 16384 tokens; the last has no upper end */
enum { ROW = N_SIZES, LOGIT, CONTEXT, PAIR, N_TERMS };
_Static_assert(N_TERMS <= LEAST_SQUARES_MAX_TERMS && N_SIZES <= SCHED_COST_MAX_POINTS, "every term, every point");

#define MAX_US 1e9
#define KEEP (1 - 1 / COST_FITTER_MEMORY)

/* Sums over the steps of a size; a step counts KEEP times as much with each later one. */
struct memory {
    double n;
    double gram[N_TERMS][N_TERMS]; /* [a][b] with b <= a */
    double right[N_TERMS];
};

struct cost_fitter {
    struct memory sizes[N_SIZES];
    uint32_t n_new; /* samples since the last fit */
    bool has_model;
    double model[N_TERMS]; /* the prices of all terms */
    double error;
};

int cost_fitter_create(struct cost_fitter **out, struct quire_error *err)
{
    *out = calloc(1, sizeof **out);
    return *out ? QUIRE_OK : quire_fail(err, QUIRE_NO_MEMORY, "cost model: out of memory");
}

void cost_fitter_destroy(struct cost_fitter *f)
{
    free(f);
}

double cost_fitter_error(const struct cost_fitter *f)
{
    return f->error;
}

/* ---- samples ---- */

/* The least i with n_tokens <= 2^i. */
static uint32_t size_of(uint32_t n_tokens)
{
    uint32_t i = n_tokens > 1 ? 32 - (uint32_t)__builtin_clz(n_tokens - 1) : 0;
    return i < N_SIZES ? i : N_SIZES - 1;
}

static void terms_of(const struct sched_shape *shape, double us, double *terms)
{
    terms[0] = 1 / us;
    for (uint32_t i = 1; i < N_SIZES; i++) {
        double from = 1u << (i - 1), n = shape->n_tokens - from;
        terms[i] = n <= 0 ? 0 : (i < N_SIZES - 1 && n > from ? from : n) / us;
    }
    terms[ROW] = shape->n_rows / us;
    terms[LOGIT] = shape->n_logits / us;
    terms[CONTEXT] = (double)shape->n_context / us;
    terms[PAIR] = (double)shape->n_pairs / us;
}

void cost_fitter_add(struct cost_fitter *f, const struct sched_shape *shape, double us)
{
    double terms[N_TERMS];
    if (!(us > 0) || shape->n_tokens == 0 || shape->n_block_copies > 0)
        return;
    struct memory *m = &f->sizes[size_of(shape->n_tokens)];
    terms_of(shape, us < MAX_US ? us : MAX_US, terms);
    m->n = m->n * KEEP + 1;
    for (uint32_t a = 0; a < N_TERMS; a++) {
        m->right[a] = m->right[a] * KEEP + terms[a];
        for (uint32_t b = 0; b <= a; b++)
            m->gram[a][b] = m->gram[a][b] * KEEP + terms[a] * terms[b];
    }
    f->n_new++;
}

/* ---- the fit ---- */

static bool counts(const struct cost_fitter *f, uint32_t size)
{
    return f->sizes[size].n >= COST_FITTER_LEAST;
}

static bool is_varied(const struct cost_fitter *f)
{
    uint32_t first = N_SIZES, last = 0;
    for (uint32_t i = 0; i < N_SIZES; i++) {
        if (!counts(f, i))
            continue;
        first = first < N_SIZES ? first : i;
        last = i;
    }
    return first < N_SIZES && last - first >= COST_FITTER_RANGE;
}

/* Sizes that have one slope: those without enough samples join the next one that has them, or the last one. Returns the
 * number of terms of T, and for each size its term. */
static uint32_t join_sizes(const struct cost_fitter *f, uint32_t *term)
{
    uint32_t n = 1, last = 0;
    term[0] = 0;
    for (uint32_t i = 1; i < N_SIZES; i++) {
        term[i] = n;
        if (counts(f, i)) {
            last = i;
            n++;
        }
    }
    for (uint32_t i = last + 1; i < N_SIZES; i++)
        term[i] = n - 1;
    return n;
}

static void add_up(const struct cost_fitter *f, struct memory *sum)
{
    *sum = (struct memory){0};
    for (uint32_t i = 0; i < N_SIZES; i++) {
        const struct memory *m = &f->sizes[i];
        sum->n += m->n;
        for (uint32_t a = 0; a < N_TERMS; a++) {
            sum->right[a] += m->right[a];
            for (uint32_t b = 0; b <= a; b++)
                sum->gram[a][b] += m->gram[a][b];
        }
    }
    for (uint32_t a = 0; a < N_TERMS; a++)
        for (uint32_t b = 0; b < a; b++)
            sum->gram[b][a] = sum->gram[a][b];
}

/* The prices of all terms. */
static void fit(const struct cost_fitter *f, const struct memory *sum, double *model)
{
    struct least_squares p = {0};
    uint32_t term[N_TERMS], n = join_sizes(f, term);
    double x[LEAST_SQUARES_MAX_TERMS];
    for (uint32_t i = ROW; i < N_TERMS; i++)
        term[i] = n++;
    p.n = n;
    for (uint32_t a = 0; a < N_TERMS; a++) {
        p.right[term[a]] += sum->right[a];
        for (uint32_t b = 0; b < N_TERMS; b++)
            p.gram[term[a]][term[b]] += sum->gram[a][b];
    }
    least_squares_solve(&p, x);
    for (uint32_t a = 0; a < N_TERMS; a++)
        model[a] = x[term[a]];
}

/* The mean over the samples of (the terms' value minus y)². */
static double mean_square(const struct memory *sum, const double *x, double y)
{
    double total = y * y * sum->n;
    for (uint32_t a = 0; a < N_TERMS; a++) {
        double row = 0;
        for (uint32_t b = 0; b < N_TERMS; b++)
            row += sum->gram[a][b] * x[b];
        total += x[a] * (row - 2 * y * sum->right[a]);
    }
    return total > 0 ? total / sum->n : 0;
}

static bool is_news(const struct cost_fitter *f, const struct memory *sum, const double *model)
{
    double change[N_TERMS];
    for (uint32_t a = 0; a < N_TERMS; a++)
        change[a] = model[a] - f->model[a];
    return !f->has_model || mean_square(sum, change, 0) > COST_FITTER_DEAD_BAND * COST_FITTER_DEAD_BAND;
}

static void make_cost(const struct cost_fitter *f, const double *model, struct sched_cost *out)
{
    double us = model[0];
    *out = (struct sched_cost){.n_points = 1, .points = {{.n_tokens = 1, .us = us}}};
    for (uint32_t i = 1; i < N_SIZES; i++) {
        us += model[i] * (1u << (i - 1));
        if (!counts(f, i))
            continue;
        out->points[out->n_points].n_tokens = 1u << i;
        out->points[out->n_points++].us = us;
    }
    out->row_us = model[ROW];
    out->logit_us = model[LOGIT];
    out->context_us = model[CONTEXT];
    out->pair_us = model[PAIR];
}

bool cost_fitter_change(struct cost_fitter *f, struct sched_cost *out)
{
    double model[N_TERMS];
    struct memory sum;
    struct sched_cost cost;
    if (f->n_new < COST_FITTER_EVERY)
        return false;
    f->n_new = 0;
    if (!is_varied(f))
        return false;
    add_up(f, &sum);
    fit(f, &sum, model);
    make_cost(f, model, &cost);
    if (sched_cost_check(&cost, NULL) != QUIRE_OK || !is_news(f, &sum, model))
        return false;
    for (uint32_t a = 0; a < N_TERMS; a++)
        f->model[a] = model[a];
    f->has_model = true;
    f->error = sqrt(mean_square(&sum, model, 1));
    *out = cost;
    return true;
}
