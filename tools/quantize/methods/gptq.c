#include "tools/quantize/methods/gptq.h"

#include "tools/quantize/methods/dense.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LAZY 128u /* columns whose errors reach the columns behind them at once */
#define ROWS QUANTIZER_GPTQ_ROWS
#define RANGES 20 /* steps of a group's range, of which half are tried */

/* ---- the inputs --------------------------------------------------------------------------------------------------- */

struct column {
    float weight;
    uint32_t index;
};

/* Falling weight; equal ones by index, so that the order is one. */
static int by_weight(const void *a, const void *b)
{
    const struct column *x = a, *y = b;
    const int order = (x->weight < y->weight) - (x->weight > y->weight);
    return order ? order : (x->index > y->index) - (x->index < y->index);
}

static int choose_order(struct quantizer_gptq *g, const float *hessian, bool desc_act, struct quire_error *err)
{
    const uint32_t n = g->n_cols, size = g->how.group ? g->how.group : n;
    struct column *columns = malloc((uint64_t)n * sizeof *columns);
    if (!columns)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; i < n; i++)
        columns[i] = (struct column){hessian[(uint64_t)i * n + i], i};
    if (desc_act)
        qsort(columns, n, sizeof *columns, by_weight);
    for (uint32_t i = 0; i < n; i++) {
        g->order[i] = columns[i].index;
        g->groups[columns[i].index] = i / size;
    }
    free(columns);
    return QUIRE_OK;
}

int quantizer_gptq_prepare(struct quantizer_gptq *g, float *hessian, bool desc_act, double damp, uint32_t n_threads,
                           struct quire_error *err)
{
    const uint32_t n = g->n_cols;
    double mean = 0;
    int status = choose_order(g, hessian, desc_act, err);
    if (status != QUIRE_OK)
        return status;
    for (uint32_t i = 0; i < n; i++) {
        float *diagonal = &hessian[(uint64_t)i * n + i];
        *diagonal = *diagonal == 0 ? 1 : *diagonal;
        mean += *diagonal;
    }
    const float more = (float)(damp * mean / n);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < n; j++)
            g->inverse[(uint64_t)i * n + j] = hessian[(uint64_t)g->order[i] * n + g->order[j]] + (i == j ? more : 0);
    return dense_inverse_factor(g->inverse, n, hessian, n_threads, err);
}

/* ---- rows --------------------------------------------------------------------------------------------------------- */

/* ROWS rows on their way, turned: element [i, r] is row r's weight of the i-th column. */
struct rows {
    const struct quantizer_gptq *g;
    struct quantizer_codes *out;
    float *w; /* [n_cols, ROWS] */
    float *errors; /* [LAZY, ROWS] */
    uint32_t first, n;
    struct quantizer_grid grids[ROWS];
};

/* The error of the output that rounding n weights of row r from the i-th on to a grid leaves after compensation. */
static float compensated_error(const struct rows *x, struct quantizer_grid grid, uint32_t r, uint32_t i, uint32_t n)
{
    const struct quantizer_gptq *g = x->g;
    float sum = 0;
    for (uint32_t k = i; k < i + n; k++) {
        const float w = x->w[(uint64_t)k * ROWS + r], rounded = quantizer_value(grid, quantizer_code(&g->how, grid, w)),
                    error = (w - rounded) / g->inverse[(uint64_t)k * g->n_cols + k];
        sum += error * error;
    }
    return sum;
}

/* Returns the grid for n weights of row r from the i-th on, as they are now. */
static struct quantizer_grid grid_of(const struct rows *x, uint32_t r, uint32_t i, uint32_t n)
{
    float least = 0, most = 0, best_error = INFINITY;
    for (uint32_t k = i; k < i + n; k++) {
        const float w = x->w[(uint64_t)k * ROWS + r];
        least = w < least ? w : least;
        most = w > most ? w : most;
    }
    struct quantizer_grid best = quantizer_grid_of(&x->g->how, least, most);
    for (int c = 0; x->g->clips && c < RANGES / 2; c++) {
        const float part = 1 - (float)c / RANGES;
        const struct quantizer_grid grid = quantizer_grid_of(&x->g->how, least * part, most * part);
        const float error = compensated_error(x, grid, r, i, n);
        best = error < best_error ? grid : best;
        best_error = error < best_error ? error : best_error;
    }
    return best;
}

/* The grids of a group from the weights as they are now. */
static void begin_group(struct rows *x, uint32_t i)
{
    const struct quantizer_gptq *g = x->g;
    const uint32_t size = g->how.group ? g->how.group : g->n_cols, end = g->n_cols - i < size ? g->n_cols : i + size;
    for (uint32_t r = 0; r < x->n; r++) {
        x->grids[r] = grid_of(x, r, i, end - i);
        const uint64_t plane = (uint64_t)(x->first + r) * x->out->n_groups + i / size;
        x->out->scales[plane] = x->grids[r].scale;
        x->out->zeros[plane] = (uint8_t)x->grids[r].zero;
    }
}

/* Rounds the i-th column and spreads its error over the columns up to `end`. */
static void round_column(struct rows *x, uint32_t i, uint32_t begin, uint32_t end)
{
    const struct quantizer_gptq *g = x->g;
    const float *inverse = g->inverse + (uint64_t)i * g->n_cols;
    float *w = x->w + (uint64_t)i * ROWS, *errors = x->errors + (uint64_t)(i - begin) * ROWS;
    for (uint32_t r = 0; r < x->n; r++) {
        const uint8_t code = quantizer_code(&g->how, x->grids[r], w[r]);
        x->out->codes[(uint64_t)(x->first + r) * g->n_cols + g->order[i]] = code;
        errors[r] = (w[r] - quantizer_value(x->grids[r], code)) / inverse[i];
    }
    for (uint32_t k = i + 1; k < end; k++) {
        float *next = x->w + (uint64_t)k * ROWS;
        for (uint32_t r = 0; r < ROWS; r++)
            next[r] -= inverse[k] * errors[r];
    }
}

static void quantize_rows(struct rows *x)
{
    const struct quantizer_gptq *g = x->g;
    const uint32_t n = g->n_cols, size = g->how.group ? g->how.group : n;
    for (uint32_t begin = 0; begin < n; begin += LAZY) {
        const uint32_t end = n - begin < LAZY ? n : begin + LAZY;
        for (uint32_t i = begin; i < end; i++) {
            if (i % size == 0)
                begin_group(x, i);
            round_column(x, i, begin, end);
        }
        const struct dense_product rest = {g->inverse + (uint64_t)begin * n + end,
                                           x->errors,
                                           x->w + (uint64_t)end * ROWS,
                                           n,
                                           ROWS,
                                           ROWS,
                                           n - end,
                                           ROWS,
                                           end - begin,
                                           -1};
        dense_add_product(&rest);
    }
}

void quantizer_gptq_rows(const struct quantizer_gptq *g, const float *w, uint32_t first, uint32_t last, float *scratch,
                         struct quantizer_codes *out)
{
    struct rows x = {.g = g, .out = out, .w = scratch, .errors = scratch + (uint64_t)g->n_cols * ROWS};
    for (x.first = first; x.first < last; x.first += ROWS) {
        x.n = last - x.first < ROWS ? last - x.first : ROWS;
        memset(x.errors, 0, LAZY * ROWS * sizeof *x.errors);
        for (uint32_t i = 0; i < g->n_cols; i++)
            for (uint32_t r = 0; r < ROWS; r++)
                x.w[(uint64_t)i * ROWS + r] = r < x.n ? w[(uint64_t)(x.first + r) * g->n_cols + g->order[i]] : 0;
        quantize_rows(&x);
    }
}
