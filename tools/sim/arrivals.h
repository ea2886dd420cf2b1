/* When the requests of a workload arrive: at their own times, or, the later turns of a session, a gap after the end of the
 * turn before. Times are microseconds of the virtual clock. One thread.
 */
#ifndef QUIRE_TOOLS_SIM_ARRIVALS_H
#define QUIRE_TOOLS_SIM_ARRIVALS_H

#include "tools/sim/sim.h"
#include "tools/sim/workload.h"

struct sim_due {
    double us;
    uint32_t request;
};

struct sim_arrivals;

/* Borrows both until sim_arrivals_destroy(). records: their arrival_us is set for requests with times of their own.
 * QUIRE_NO_MEMORY. */
int sim_arrivals_create(const struct sim_workload *workload, struct sim_record *records, struct sim_arrivals **out,
                        struct quire_error *err);
void sim_arrivals_destroy(struct sim_arrivals *a); /* NULL is allowed */

/* The next request and its time. Returns false if none is known: all have arrived, or they follow on answers. */
bool sim_arrivals_peek(const struct sim_arrivals *a, struct sim_due *out);
/* Removes it, and sets its record's arrival_us. */
void sim_arrivals_take(struct sim_arrivals *a);
/* The request's answer is complete: its client will send the next turn, if there is one. */
void sim_arrivals_answered(struct sim_arrivals *a, uint32_t request, double now_us);

#endif
