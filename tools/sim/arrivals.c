#include "tools/sim/arrivals.h"

#include <stdlib.h>

struct sim_arrivals {
    const struct sim_workload *workload;
    struct sim_record *records;
    size_t next; /* of the requests with times of their own, the next to arrive */
    uint32_t n_heap;
    struct sim_due heap[]; /* turns whose session waits for its client: [sessions] */
};

int sim_arrivals_create(const struct sim_workload *workload, struct sim_record *records, struct sim_arrivals **out,
                        struct quire_error *err)
{
    size_t n_sessions = 1;
    for (size_t i = 0; i < workload->n; i++)
        n_sessions += workload->requests[i].previous == 0 && workload->requests[i].next > 0;
    struct sim_arrivals *a = malloc(sizeof *a + n_sessions * sizeof a->heap[0]);
    *out = a;
    if (!a)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory for %zu sessions", n_sessions);
    *a = (struct sim_arrivals){.workload = workload, .records = records};
    return QUIRE_OK;
}

void sim_arrivals_destroy(struct sim_arrivals *a)
{
    free(a);
}

static bool before(const struct sim_due *a, const struct sim_due *b)
{
    return a->us != b->us ? a->us < b->us : a->request < b->request;
}

/* The next request with a time of its own, if there is one. */
static bool peek_timed(const struct sim_arrivals *a, struct sim_due *out)
{
    if (a->next == a->workload->n)
        return false;
    *out = (struct sim_due){.us = a->records[a->next].arrival_us, .request = (uint32_t)a->next};
    return true;
}

bool sim_arrivals_peek(const struct sim_arrivals *a, struct sim_due *out)
{
    bool timed = peek_timed(a, out);
    if (a->n_heap > 0 && (!timed || before(&a->heap[0], out)))
        *out = a->heap[0];
    return timed || a->n_heap > 0;
}

/* Moves the last turn of the heap down from its root. */
static void pop(struct sim_arrivals *a)
{
    struct sim_due last = a->heap[--a->n_heap];
    uint32_t at = 0;
    for (uint32_t child = 1; child < a->n_heap; child = 2 * at + 1) {
        if (child + 1 < a->n_heap && before(&a->heap[child + 1], &a->heap[child]))
            child++;
        if (!before(&a->heap[child], &last))
            break;
        a->heap[at] = a->heap[child];
        at = child;
    }
    a->heap[at] = last;
}

void sim_arrivals_take(struct sim_arrivals *a)
{
    struct sim_due due;
    if (!sim_arrivals_peek(a, &due))
        return;
    a->records[due.request].arrival_us = due.us;
    if (a->n_heap > 0 && a->heap[0].request == due.request) {
        pop(a);
        return;
    }
    do
        a->next++;
    while (a->next < a->workload->n && a->workload->requests[a->next].previous > 0);
}

void sim_arrivals_answered(struct sim_arrivals *a, uint32_t request, double now_us)
{
    uint32_t next = a->workload->requests[request].next;
    if (next == 0)
        return;
    struct sim_due due = {.us = now_us + a->workload->requests[next - 1].gap_s * 1e6, .request = next - 1};
    uint32_t at = a->n_heap++;
    for (; at > 0 && before(&due, &a->heap[(at - 1) / 2]); at = (at - 1) / 2)
        a->heap[at] = a->heap[(at - 1) / 2];
    a->heap[at] = due;
}
