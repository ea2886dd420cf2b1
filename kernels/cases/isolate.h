/* Runs the cases of a test or benchmark in child processes, so that a case that crashes or hangs does not stop the
 * others.
 *
 * After an illegal address a CUDA context is lost: every later call in the process fails. The parent therefore
 * starts the program again, with the arguments of /proc/self/cmdline, at the case after the failed one. It then runs
 * the lost case once more by itself, under CUDA_LAUNCH_BLOCKING=1, so that the error names the launch, and under
 * compute-sanitizer if QUIRE_COMPUTE_SANITIZER holds its path.
 *
 * The parent passes a child its cases in the environment: QUIRE_CASES=FD:FIRST:END. FD is memory that both share;
 * the child writes the running case there. Single-threaded; call before any thread or device is started. Linux only. */
#ifndef QUIRE_KERNELS_ISOLATE_H
#define QUIRE_KERNELS_ISOLATE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Exit status of a child whose device cannot run further cases. */
#define ISOLATE_BROKEN 70

struct isolate_range {
    bool is_child;
    size_t first, end; /* the cases to run, end excluded */
};

/* Returns the cases, of n, that this process must run: all of them, except in a child. */
struct isolate_range isolate_range(size_t n);

/* Reports that case i begins. Copies the name. Does nothing in a process that is not a child. */
void isolate_enter(size_t i, const char *name);

struct isolate_job {
    size_t n; /* cases, or an upper bound */
    uint32_t limit_s; /* a case that runs longer counts as hung and is killed */
    /* Each case has its own process, for cases that cannot report a broken device: every failure counts as one that may
     * need an explanation. */
    bool one_each;
    /* Reports that case `name` was lost; how is one line of text. */
    void (*lost)(void *context, size_t i, const char *name, const char *how);
    /* NULL, or called after it for each line that says how the second run of the case ended and what it printed. A line
     * has no newline. */
    void (*explained)(void *context, const char *line);
    void *context;
};

/* Runs all cases. *exit_status: 0 if every child ended with 0; otherwise the first other exit status, or 1 if a case was
 * lost. Returns QUIRE_IO if no child can be started. */
int isolate_run(const struct isolate_job *job, int *exit_status, struct quire_error *err);

#endif
