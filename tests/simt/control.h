/* Controls of the emulated device in addition to CUDA's interface. For tests only; kernels/ never includes it. C and
 * C++. Any thread.
 *
 * Environment variables control the rest (tests/simt/README.md). */
#ifndef QUIRE_TESTS_SIMT_CONTROL_H
#define QUIRE_TESTS_SIMT_CONTROL_H

#include "tests/simt/include/cuda_runtime_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In place of the error of a kernel's run: the kernel never ends, or it does nothing and reports success. */
#define SIMT_KERNEL_HANGS -1
#define SIMT_KERNEL_IS_SKIPPED -2
/* Makes the nth call of this name from now on return this error and do nothing else. Names: those of CUDA's functions;
 * "launch" for any kernel's launch; "kernel" for its run on the device, after which the device is lost as after a real
 * fault; "kernel/NAME", NAME as K_LAUNCH has it, for the run of that kernel. n = 0 cancels the request. One request per name. */
void simt_fail_call(const char *call, unsigned nth, cudaError_t error);
/* Returns the number of calls of this name so far. NULL counts all calls. */
unsigned long simt_calls(const char *call);

/* Faults of kernels since the device was new, and the text of the last one ("" without a fault). A process with a fault
 * exits with status SIMT_EXIT_STATUS. */
unsigned simt_faults(void);
const char *simt_fault_text(void);

/* Number of allocations, streams, events and graphs that were not released. A process with such leaks exits with the
 * same status. */
unsigned simt_live(void);
/* Number of operations waiting in queues. */
unsigned simt_pending(void);

/* Resets the device as after a restart of the process: releases everything and clears faults and errors. */
void simt_new_device(void);

#define SIMT_EXIT_STATUS 86

#ifdef __cplusplus
}
#endif

#endif
