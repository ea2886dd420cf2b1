/* A cost model's file: an accepted model gives times that rise and convert to integers. */
#include "fuzz.h"

#include "app/flags/cost_file.h"

#include <stdlib.h>

static void check(const struct sched_cost *cost)
{
    double last = 0;
    if (cost->n_points == 0 || sched_cost_check(cost, NULL) != QUIRE_OK)
        abort();
    for (uint32_t n = 2; n < 1u << 20; n *= 3) {
        struct sched_shape shape = {0};
        sched_shape_add(&shape, n, n, 1);
        double us = sched_cost_us(cost, &shape);
        if (!(us >= last && us <= SCHED_COST_MAX_US))
            abort();
        if (sched_cost_fit(cost, &(struct sched_shape){.n_logits = 1}, n, n, us) != n)
            abort();
        if (!(sched_cost_prefill_us(cost, n, n, 100) <= SCHED_COST_MAX_US))
            abort();
        last = us;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct sched_cost cost;
    struct cost_shape shape;
    struct quire_error err;
    if (cost_file_parse((const char *)data, n, "cost", &cost, &shape, &err) == QUIRE_OK) {
        check(&cost);
    } else {
        for (const char *c = err.text; *c; c++)
            if ((unsigned char)*c < 0x20 || *c == 0x7f)
                abort();
    }
    return 0;
}
