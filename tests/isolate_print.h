/* Runs the cases of a test in child processes and prints those that were lost (kernels/cases/isolate.h). Main thread.
 */
#ifndef QUIRE_TESTS_ISOLATE_PRINT_H
#define QUIRE_TESTS_ISOLATE_PRINT_H

#include "kernels/cases/isolate.h"

#include <stdio.h>

static inline void isolate_print_lost(void *context, size_t i, const char *name, const char *how)
{
    (void)context;
    (void)i;
    printf("DIED %s: %s\n", name, how);
    fflush(stdout);
}

static inline void isolate_print_line(void *context, const char *line)
{
    (void)context;
    printf("%s\n", line);
    fflush(stdout);
}

/* job without functions; explain: with what a second run of a lost case prints. Returns the exit status of the test. */
static inline int isolate_run_printing(struct isolate_job job, bool explain)
{
    struct quire_error err;
    int exit_status;
    job.lost = isolate_print_lost;
    job.explained = explain ? isolate_print_line : NULL;
    if (isolate_run(&job, &exit_status, &err) == QUIRE_OK)
        return exit_status;
    fprintf(stderr, "%s\n", err.text);
    return 1;
}

#endif
