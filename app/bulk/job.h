/* A file of lines that a command runs to its end: with a state file, so that a killed command continues, and with a progress
 * bar. Main thread.
 */
#ifndef QUIRE_APP_BULK_JOB_H
#define QUIRE_APP_BULK_JOB_H

#include "app/bulk/place.h"
#include "server/bulk/run/results.h"

#include <stdio.h>

/* Exit statuses of the commands that run lines, besides those of commands.h. */
#define JOB_EXIT_FAILED_LINES 3 /* complete, but lines failed */
#define JOB_EXIT_INTERRUPTED 75 /* EX_TEMPFAIL: run it again to continue */

struct job;

/* All borrowed until job_close(). */
struct job_options {
    struct place *place;
    const char *input; /* OpenAI's or Anthropic's lines: the first line decides */
    const char *state; /* the file of the results */
    const char *what; /* for the progress bar: "lines" */
    uint32_t concurrency; /* wanted of place_concurrency() */
};

struct job_report {
    struct bulk_counts counts;
    uint32_t n_resumed; /* results of earlier runs, counted above too */
    uint64_t new_input_tokens, new_cached_tokens, new_output_tokens; /* of this run */
    double elapsed_s; /* of this run */
};

int job_open(const struct job_options *options, struct job **out, struct quire_error *err);
/* Returns when every line has a result that is on the disk. QUIRE_EXHAUSTED: SIGINT or SIGTERM came first, and everything
 * that was computed is in the state file. QUIRE_UNAVAILABLE: the engine has failed. */
int job_run(struct job *job, struct quire_error *err);
void job_report(const struct job *job, struct job_report *out);
/* Rejects an output that exists and is not a file, such as a device: job_write() would rename over it. Before the work. */
int job_check_output(const char *path, struct quire_error *err);
/* Writes the results of some outcomes (bulk_results_write()) to a file, which is complete or unchanged. */
int job_write(struct job *job, unsigned outcomes, const char *path, struct quire_error *err);
/* is_done: removes the state file. NULL is allowed. */
void job_close(struct job *job, bool is_done);

#endif
