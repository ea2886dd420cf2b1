/* A batch that has not ended, and the blocking steps of its life (active.c). Private to runner.c and active.c. */
#ifndef QUIRE_BULK_RUNNER_H
#define QUIRE_BULK_RUNNER_H

#include "server/bulk/bulk_internal.h"

#include <stddef.h>

struct bulk_input;
struct bulk_results;
struct bulk_run;

enum active_phase {
    ACTIVE_CHECKING, /* its input is being read, or waits for that */
    ACTIVE_WAITING,  /* for its turn */
    ACTIVE_OPENING,  /* its results are being opened */
    ACTIVE_RUNNING,
    ACTIVE_WRITING, /* its output files */
    ACTIVE_ENDING,  /* its last state is being saved */
};

struct active {
    TAILQ_ENTRY(active) link;
    struct bulk *bulk;
    struct bulk_batch *batch; /* owned */
    enum active_phase phase;
    bool busy; /* a job has it: only the job touches input, results, status and err */
    bool unsaved, has_expired;
    bool lacks_space; /* its results may not grow: space.h */
    struct bulk_input *input; /* NULL: not open, also while it waits for its turn */
    struct bulk_results *results;
    struct bulk_run *run;
    char *headers[2]; /* of its requests */
    size_t n_headers;
    struct bulk_counts at_open; /* results of an earlier process */
    uint64_t out_bytes, error_bytes; /* sizes of its files; 0: no file */
    uint32_t n_tries;
    uint64_t retry_ms; /* 0: not waiting for another try */
    struct bulk_job job;
    int status; /* status of the job, with err */
    struct quire_error err;
};

static inline struct active *active_of(struct bulk_job *job)
{
    return (struct active *)((char *)job - offsetof(struct active, job));
}

void active_do(struct active *a, enum bulk_lane lane, void (*work)(struct bulk_job *job),
               void (*done)(struct bulk_job *job));

/* Steps, on a thread. */
void active_check_work(struct bulk_job *job); /* opens its input */
void active_open_work(struct bulk_job *job);  /* opens its results */
void active_write_work(struct bulk_job *job); /* writes its output files */
void active_end_work(struct bulk_job *job);   /* saves its end, and removes its results */

#endif
