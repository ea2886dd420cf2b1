#include "tools/sim/stages.h"

#include "engine/model/share.h"

/* Position in a plan while it is divided into micro-batches. */
struct cursor {
    const struct sched_row *row;
    uint32_t at; /* consumed tokens of the row */
};

static double later(double a, double b)
{
    return a > b ? a : b;
}

/* The shape of the next n tokens. */
static struct sched_shape cut(struct cursor *c, uint32_t n)
{
    struct sched_shape shape = {0};
    while (n > 0) {
        const uint32_t left = c->row->count - c->at, taken = n < left ? n : left;
        const uint32_t first = c->row->first + c->at, end = first + taken;
        const uint32_t first_logit = c->row->first_logit > first ? c->row->first_logit : first;
        sched_shape_add(&shape, first, taken, end > first_logit ? end - first_logit : 0);
        n -= taken;
        c->at += taken;
        if (taken == left)
            *c = (struct cursor){.row = c->row + 1};
    }
    return shape;
}

static double stage_us(const struct sim_stage_clock *clock, uint32_t stage, const struct sched_shape *shape)
{
    const bool is_last = stage + 1 == clock->stages->n;
    struct sched_shape layers = *shape;
    layers.n_logits = 0;
    return sched_cost_us(clock->cost, &layers) * clock->stages->share[stage] +
           (is_last ? clock->cost->logit_us * shape->n_logits : 0);
}

/* Passes it from the first stage to the last. */
static void pass(struct sim_stage_clock *clock, const struct sched_shape *micro)
{
    const struct sim_stages *s = clock->stages;
    double done_us = clock->free_us[0] + stage_us(clock, 0, micro);
    for (uint32_t i = 1; i < s->n; i++) {
        const double there_us = later(done_us, clock->free_us[i]) + s->call_us + s->token_us * micro->n_tokens;
        clock->free_us[i - 1] = there_us;
        done_us = there_us + stage_us(clock, i, micro);
    }
    clock->free_us[s->n - 1] = done_us;
}

void sim_stages_begin(struct sim_stage_clock *clock, const struct sim_stages *stages, const struct sched_cost *cost)
{
    *clock = (struct sim_stage_clock){.stages = stages, .cost = cost};
}

double sim_stages_step(struct sim_stage_clock *clock, const struct sched_plan *plan, double now_us)
{
    const struct sim_stages *s = clock->stages;
    const uint32_t n_micros = model_stage_micros(s->n, s->micro_batch_tokens, plan->n_tokens);
    const double told_us = later(now_us, clock->over_us[0]);
    struct cursor cursor = {.row = plan->rows};
    uint32_t begin = 0, n_logits = 0;
    for (uint32_t i = 0; i < s->n; i++) /* each stage moves its own layers' blocks */
        clock->free_us[i] = later(clock->free_us[i], told_us) +
                            clock->cost->block_copy_us * plan->n_moves * s->share[i];
    for (uint32_t i = 0; i < n_micros; i++) {
        const uint32_t end = (uint32_t)((uint64_t)plan->n_tokens * (i + 1) / n_micros);
        const struct sched_shape micro = cut(&cursor, end - begin);
        pass(clock, &micro);
        n_logits += micro.n_logits;
        begin = end;
    }
    if (n_logits > 0)
        clock->free_us[0] = clock->free_us[s->n - 1] += s->call_us + s->logit_us * n_logits;
    clock->over_us[0] = clock->over_us[1];
    clock->over_us[1] = clock->free_us[s->n - 1];
    return clock->free_us[0];
}
