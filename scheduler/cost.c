#include "scheduler/cost.h"

#include <assert.h>
#include <float.h>

#define QUANTUM_STEPS 8
#define MIN_QUANTUM_US 1000

/* ---- checking -------------------------------------------------------------------------------- */

static bool is_valid(double us)
{
    return us >= 0 && us <= DBL_MAX; /* false for NaN */
}

static int check_points(const struct sched_cost *cost, struct quire_error *err)
{
    if (cost->n_points > SCHED_COST_MAX_POINTS)
        return quire_fail(err, QUIRE_INVALID, "n_points: must be at most %d, got %u", SCHED_COST_MAX_POINTS,
                          cost->n_points);
    for (uint32_t i = 0; i < cost->n_points; i++) {
        uint32_t n_tokens = cost->points[i].n_tokens;
        double us = cost->points[i].us;
        if (i == 0 && n_tokens != 1)
            return quire_fail(err, QUIRE_INVALID, "points[0].n_tokens: must be 1, got %u", n_tokens);
        if (i > 0 && n_tokens <= cost->points[i - 1].n_tokens)
            return quire_fail(err, QUIRE_INVALID, "points[%u].n_tokens: must be more than the %u before it, got %u", i,
                              cost->points[i - 1].n_tokens, n_tokens);
        if (!is_valid(us))
            return quire_fail(err, QUIRE_INVALID, "points[%u].us: must be finite and not negative", i);
        if (i > 0 && us < cost->points[i - 1].us)
            return quire_fail(err, QUIRE_INVALID, "points[%u].us: must not be less than the one before it", i);
    }
    return QUIRE_OK;
}

int sched_cost_check(const struct sched_cost *cost, struct quire_error *err)
{
    const struct {
        const char *name;
        double us;
    } members[] = {
        {"row_us", cost->row_us},   {"logit_us", cost->logit_us},           {"context_us", cost->context_us},
        {"pair_us", cost->pair_us}, {"block_copy_us", cost->block_copy_us},
    };
    for (unsigned i = 0; i < sizeof members / sizeof members[0]; i++)
        if (!is_valid(members[i].us))
            return quire_fail(err, QUIRE_INVALID, "%s: must be finite and not negative", members[i].name);
    return check_points(cost, err);
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* Position p reads p + 1 positions, including itself. */
static uint64_t pairs_of(uint64_t first, uint64_t count)
{
    return first * count + (count % 2 ? (count + 1) / 2 * count : count / 2 * (count + 1));
}

void sched_shape_add(struct sched_shape *shape, uint32_t first, uint32_t count, uint32_t n_logits)
{
    shape->n_rows++;
    shape->n_tokens += count;
    shape->n_logits += n_logits;
    shape->n_context += (uint64_t)first + count;
    shape->n_pairs += pairs_of(first, count);
}

void sched_shape_extend(struct sched_shape *shape, uint32_t end, uint32_t n)
{
    shape->n_tokens += n;
    shape->n_logits += n;
    shape->n_context += n;
    shape->n_pairs += pairs_of(end, n);
}

static double capped(double us)
{
    return us < SCHED_COST_MAX_US ? us : SCHED_COST_MAX_US;
}

/* T. A step without tokens reads no weights. */
static double tokens_us(const struct sched_cost *cost, uint32_t n_tokens)
{
    uint32_t n = cost->n_points, i = 1;
    if (n == 0 || n_tokens == 0)
        return 0;
    if (n == 1)
        return cost->points[0].us;
    while (i < n - 1 && cost->points[i].n_tokens < n_tokens)
        i++;
    double from = cost->points[i - 1].us, to = cost->points[i].us;
    double share = (double)(n_tokens - cost->points[i - 1].n_tokens) /
                   (double)(cost->points[i].n_tokens - cost->points[i - 1].n_tokens);
    double us = from + (to - from) * share;
    return share <= 1 && us > to ? to : us; /* rounding must not make T decrease at a point */
}

double sched_cost_us(const struct sched_cost *cost, const struct sched_shape *shape)
{
    return capped(tokens_us(cost, shape->n_tokens) + cost->row_us * shape->n_rows + cost->logit_us * shape->n_logits +
                  cost->context_us * (double)shape->n_context + cost->pair_us * (double)shape->n_pairs +
                  cost->block_copy_us * shape->n_block_copies);
}

double sched_cost_own_us(const struct sched_cost *cost, uint32_t first, uint32_t count, uint32_t n_logits)
{
    return capped(cost->row_us + cost->logit_us * n_logits + cost->context_us * ((double)first + count) +
                  cost->pair_us * (double)pairs_of(first, count));
}

double sched_cost_token_us(const struct sched_cost *cost, const struct sched_shape *shape)
{
    if (shape->n_tokens == 0)
        return 0;
    return (tokens_us(cost, shape->n_tokens) + cost->block_copy_us * shape->n_block_copies) / shape->n_tokens;
}

double sched_cost_least_token_us(const struct sched_cost *cost, uint32_t max_tokens)
{
    /* Between two points, T(n) / n only falls or only rises. */
    double least = tokens_us(cost, max_tokens) / max_tokens;
    for (uint32_t i = 0; i < cost->n_points && cost->points[i].n_tokens < max_tokens; i++) {
        double us = cost->points[i].us / cost->points[i].n_tokens;
        least = us < least ? us : least;
    }
    return least;
}

double sched_cost_quantum_us(const struct sched_cost *cost)
{
    double us = QUANTUM_STEPS * tokens_us(cost, 1);
    return us < MIN_QUANTUM_US ? MIN_QUANTUM_US : capped(us);
}

static bool fits(const struct sched_cost *cost, const struct sched_shape *shape, uint32_t first, uint32_t count,
                 double target_us)
{
    struct sched_shape with = *shape;
    sched_shape_add(&with, first, count, 0);
    return sched_cost_us(cost, &with) <= target_us;
}

uint32_t sched_cost_fit(const struct sched_cost *cost, const struct sched_shape *shape, uint32_t first, uint32_t most,
                        double target_us)
{
    uint32_t low = 0, high = most;
    while (low < high) {
        uint32_t middle = high - (high - low) / 2;
        if (fits(cost, shape, first, middle, target_us))
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

double sched_cost_prefill_us(const struct sched_cost *cost, uint32_t first, uint32_t count, uint32_t chunk)
{
    assert(chunk > 0);
    uint64_t n_full = count / chunk, rest = count % chunk;
    struct sched_shape last = {0};
    /* In closed form, because it is evaluated within a step: full chunks differ only in the positions they read, first
     * + chunk, first + 2 chunk, ... */
    uint64_t n_context = n_full * first + pairs_of(0, n_full) * chunk;
    double us = (tokens_us(cost, chunk) + cost->row_us) * (double)n_full + cost->context_us * (double)n_context +
                cost->pair_us * (double)pairs_of(first, count - rest);
    if (rest > 0)
        sched_shape_add(&last, (uint32_t)(first + (count - rest)), (uint32_t)rest, 0);
    return capped(us + sched_cost_us(cost, &last));
}
