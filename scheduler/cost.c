#include "scheduler/cost.h"

#include <assert.h>
#include <float.h>

/* ---- checking -------------------------------------------------------------------------------- */

static bool is_valid(double us)
{
    return us >= 0 && us <= DBL_MAX; /* neither holds of a NaN */
}

static int check_points(const struct sched_cost *cost, struct quire_error *err)
{
    if (cost->n_points > SCHED_COST_MAX_POINTS)
        return quire_fail(err, QUIRE_INVALID, "n_points: must be at most %d, got %u",
                          SCHED_COST_MAX_POINTS, cost->n_points);
    for (uint32_t i = 0; i < cost->n_points; i++) {
        uint32_t n_tokens = cost->points[i].n_tokens;
        double us = cost->points[i].us;
        if (i == 0 && n_tokens != 1)
            return quire_fail(err, QUIRE_INVALID, "points[0].n_tokens: must be 1, got %u",
                              n_tokens);
        if (i > 0 && n_tokens <= cost->points[i - 1].n_tokens)
            return quire_fail(err, QUIRE_INVALID,
                              "points[%u].n_tokens: must be more than the %u before it, got %u", i,
                              cost->points[i - 1].n_tokens, n_tokens);
        if (!is_valid(us))
            return quire_fail(err, QUIRE_INVALID, "points[%u].us: must be finite and not negative",
                              i);
        if (i > 0 && us < cost->points[i - 1].us)
            return quire_fail(err, QUIRE_INVALID,
                              "points[%u].us: must not be less than the one before it", i);
    }
    return QUIRE_OK;
}

int sched_cost_check(const struct sched_cost *cost, struct quire_error *err)
{
    const struct {
        const char *name;
        double us;
    } members[] = {
        {"row_us", cost->row_us},
        {"logit_us", cost->logit_us},
        {"decode_context_us", cost->decode_context_us},
        {"prefill_pair_us", cost->prefill_pair_us},
        {"block_copy_us", cost->block_copy_us},
    };
    for (unsigned i = 0; i < sizeof members / sizeof members[0]; i++)
        if (!is_valid(members[i].us))
            return quire_fail(err, QUIRE_INVALID, "%s: must be finite and not negative",
                              members[i].name);
    return check_points(cost, err);
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* Position p reads p + 1 positions, its own included. */
static uint64_t pairs_of(uint64_t first, uint64_t count)
{
    return first * count + (count % 2 ? (count + 1) / 2 * count : count / 2 * (count + 1));
}

void sched_shape_add(struct sched_shape *shape, uint32_t first, uint32_t count, uint32_t n_logits)
{
    shape->n_rows++;
    shape->n_tokens += count;
    shape->n_logits += n_logits;
    if (count == 1)
        shape->decode_context += (uint64_t)first + 1;
    else
        shape->prefill_pairs += pairs_of(first, count);
}

static double capped(double us)
{
    return us < SCHED_COST_MAX_US ? us : SCHED_COST_MAX_US;
}

/* T. A step without tokens streams no weights. */
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
    return share <= 1 && us > to ? to : us; /* rounding must not make T fall at a point */
}

double sched_cost_us(const struct sched_cost *cost, const struct sched_shape *shape)
{
    return capped(tokens_us(cost, shape->n_tokens) + cost->row_us * shape->n_rows +
                  cost->logit_us * shape->n_logits +
                  cost->decode_context_us * (double)shape->decode_context +
                  cost->prefill_pair_us * (double)shape->prefill_pairs +
                  cost->block_copy_us * shape->n_block_copies);
}

static bool fits(const struct sched_cost *cost, const struct sched_shape *shape, uint32_t first,
                 uint32_t count, double target_us)
{
    struct sched_shape with = *shape;
    sched_shape_add(&with, first, count, 0);
    return sched_cost_us(cost, &with) <= target_us;
}

uint32_t sched_cost_room(const struct sched_cost *cost, const struct sched_shape *shape,
                         uint32_t first, uint32_t most, double target_us)
{
    /* Costs rise with the count from 2 on. One token alone is priced as decoding, which may cost
     * more than two tokens of a prompt, so it is asked last. */
    uint32_t low = 1, high = most;
    while (low < high) {
        uint32_t middle = high - (high - low) / 2;
        if (fits(cost, shape, first, middle, target_us))
            low = middle;
        else
            high = middle - 1;
    }
    if (low > 1)
        return low;
    return most > 0 && fits(cost, shape, first, 1, target_us) ? 1 : 0;
}

double sched_cost_prefill_us(const struct sched_cost *cost, uint32_t first, uint32_t count,
                             uint32_t chunk)
{
    assert(chunk > 0);
    uint32_t n_full = count / chunk, rest = count % chunk;
    struct sched_shape last = {0};
    /* All full chunks but their pairs cost the same, so that nothing is summed up chunk by chunk. */
    double us = (tokens_us(cost, chunk) + cost->row_us) * n_full;
    uint64_t pairs = pairs_of(first, count - rest);
    us += (chunk == 1 ? cost->decode_context_us : cost->prefill_pair_us) * (double)pairs;
    if (rest > 0)
        sched_shape_add(&last, first + (count - rest), rest, 0);
    return capped(us + sched_cost_us(cost, &last));
}
