#include "scheduler/state/batches.h"

#define NEW_SHARE 0.25
#define STEP 1.2

void batches_init(struct sched_batches *b)
{
    *b = (struct sched_batches){.wait = 1, .size = 1, .queue = 1};
}

uint32_t batches_fill(const struct sched_config *config, uint32_t class_index)
{
    uint32_t size = config->class_batch_size[class_index];
    size = size > 0 ? size : config->max_batch_size;
    return size > 0 && size < config->max_num_seqs ? size : config->max_num_seqs;
}

uint32_t batches_limit(const struct sched_batches *b, const struct sched_config *config, uint32_t class_index)
{
    double limit = batches_fill(config, class_index) * b->size;
    return limit < config->max_num_seqs ? (uint32_t)(limit + 0.5) : config->max_num_seqs;
}

uint64_t batches_wait_us(const struct sched_batches *b, const struct sched_config *config, uint32_t class_index)
{
    uint64_t wait_us = config->class_wait_us[class_index] ? config->class_wait_us[class_index] : config->max_wait_us;
    return (uint64_t)((double)wait_us * b->wait);
}

static double within(double value, double least, double most)
{
    return value < least ? least : value > most ? most : value;
}

void batches_end(struct sched_batches *b, uint64_t now_us)
{
    if (b->began_us > 0 && b->ended_us == 0)
        b->ended_us = now_us;
}

void batches_step(struct sched_batches *b, const struct sched_config *config, uint64_t step, double predicted_us)
{
    const struct sched_shape one = {.n_rows = 1, .n_tokens = 1, .n_logits = 1};
    if (step == b->step || !config->adaptive_batches || !config->cost)
        return;
    b->step = step;
    b->used_us += within(predicted_us - sched_cost_us(config->cost, &one), 0, predicted_us);
}

void batches_begin(struct sched_batches *b, const struct sched_config *config, uint64_t now_us, uint32_t n_waiting,
                   uint32_t fill)
{
    if (config->adaptive_batches && b->ended_us > 0 && now_us > b->began_us) {
        double cycle_us = (double)(now_us - b->began_us);
        double used_us = config->cost ? b->used_us : (double)(b->ended_us - b->began_us);
        double idle = within(1 - used_us / cycle_us, 0, 1);
        b->queue += NEW_SHARE * ((double)n_waiting / fill - b->queue);
        b->idle += NEW_SHARE * (idle - b->idle);
        if (b->queue > BATCHES_LONG_QUEUE)
            b->wait = within(b->wait / STEP, BATCHES_LEAST_WAIT, 1);
        else if (b->queue < 1)
            b->wait = within(b->wait * STEP, BATCHES_LEAST_WAIT, 1);
        if (b->idle > BATCHES_IDLE)
            b->size = within(b->size * STEP, 1, BATCHES_MOST_SIZE);
        else if (b->idle < BATCHES_IDLE / 2)
            b->size = within(b->size / STEP, 1, BATCHES_MOST_SIZE);
    }
    b->began_us = now_us;
    b->ended_us = 0;
    b->used_us = 0;
    b->n_started = 0;
}
