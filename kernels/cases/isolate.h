/* Runs the cases of a test or benchmark in child processes, so that a case that crashes or hangs does not stop the others.
 *
 * After an illegal address a CUDA context is lost: every later call in the process fails. The parent therefore starts the
 * program again, with the arguments of /proc/self/cmdline, at the case after the one that died. It then runs the lost case once more by itself, under
 * CUDA_LAUNCH_BLOCKING=1, so that the error names the launch, and under compute-sanitizer where QUIRE_COMPUTE_SANITIZER
 * holds its path.
 *
 * The parent tells a child its cases by the environment: QUIRE_CASES=FD:FIRST:END. FD is memory that both share; a child
 * writes there which case runs. Single-threaded; call before any thread or device is started. Linux only. */
#ifndef QUIRE_KERNELS_ISOLATE_H
#define QUIRE_KERNELS_ISOLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Exit status of a child whose device can run no more cases. */
#define ISOLATE_BROKEN 70

struct isolate_range {
    bool is_child;
    size_t first, end; /* the cases to run, end excluded */
};

/* What this process is to run of n cases: all of them, unless it is a child. */
struct isolate_range isolate_range(size_t n);

/* Case i begins. The name is copied. Does nothing in a process that is not a child. */
void isolate_enter(size_t i, const char *name);

struct isolate_job {
    size_t n; /* cases, or an upper bound of them */
    uint32_t limit_s; /* a case that runs longer counts as hung and is killed */
    bool one_each; /* each case has a process of its own, for cases that cannot say that the device broke: every
                        * failure counts as one that may need explaining */
    /* Case `name` was lost; how is one line of text. NULL: prints "DIED NAME: HOW". Then the output of its second run follows
     * where `explain` is set. */
    void (*lost)(void *context, size_t i, const char *name, const char *how);
    void *context;
    bool explain;
};

/* Runs all cases. 0: every child ended with 0. Otherwise the first other exit status, 1 where a case was lost. */
int isolate_run(const struct isolate_job *job);

#endif
