/* The cost model for several ranks that share each layer (--tensor-parallel-size): compute time is divided, and
 * communication is added. Pure; any thread.
 *
 *   us(step) = T(n_tokens) / N + row_us n_rows + (logit_us / N + gather) n_logits + (context_us context + pair_us pairs) / N
 *            + 2 n_layers all_reduce(n_tokens)
 *   all_reduce(n) = call_us + reduce_factor(N) * 4 hidden_size n / bytes_us       two per layer, of f32
 *   gather        = call_us + 4 vocab_size (N - 1) / N / bytes_us                 of a row of logits, to rank 0
 *
 * reduce_factor(N), the vectors that a rank moves: N - 1 if each rank reads all others (shared memory), otherwise 2 (N
 * - 1) / N. Norms, sampling and uneven shares are treated as divided although they are not: for a small model on CPUs
 * this is 5 % (docs/benchmarks/collectives.md).
 */
#ifndef QUIRE_TOOLS_COST_LINKS_H
#define QUIRE_TOOLS_COST_LINKS_H

#include "scheduler/cost.h"
#include "app/flags/cost_file.h"

struct cost_link {
    const char *name;
    const char *from; /* source of its figures */
    double call_us; /* time of a call with short vectors */
    double bytes_us; /* bytes per microsecond that a rank moves */
    bool reads_all;
};

#define COST_LINK_LEAST_GB_S 0.001
#define COST_LINK_MOST 1e6 /* of both numbers */
/* By name, or "CALL_US,GB_PER_S" stored in *room, from 0 and from COST_LINK_LEAST_GB_S on. NULL: neither. */
const struct cost_link *cost_link_find(const char *text, struct cost_link *room);
const struct cost_link *cost_link_at(uint32_t index); /* NULL after the last */

double cost_all_reduce_us(const struct cost_link *link, uint32_t n_ranks, double n_bytes);

/* n_ranks: 2, 4 or 8. The result passes sched_cost_check() if the input does; a value that is not finite is an error.
 */
int cost_share(struct sched_cost *cost, const struct cost_shape *shape, uint32_t n_ranks, const struct cost_link *link,
               struct quire_error *err);

#endif
