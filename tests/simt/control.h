/* What a test may ask of the emulated device beside CUDA's interface. For tests only; kernels/ never includes it. C and C++.
 *
 * The environment says the rest (tests/simt/README.md). */
#ifndef QUIRE_TESTS_SIMT_CONTROL_H
#define QUIRE_TESTS_SIMT_CONTROL_H

#include "tests/simt/include/cuda_runtime_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The nth call from now of this name gives this error and does nothing else. Names: those of CUDA's functions; "launch"
 * any kernel's launch; "kernel" its run on the device, after which the device is lost, as after a real fault; a kernel's name, as K_LAUNCH has it,
 * the run of that kernel.
 * n = 0 forgets the wish. One wish for each name. */
/* In place of the error of a kernel's run: it never ends, or it does nothing and reports success. */
#define SIMT_KERNEL_HANGS -1
#define SIMT_KERNEL_IS_SKIPPED -2
void simt_fail_call(const char *call, unsigned nth, cudaError_t error);
/* How often a call of this name was made so far; NULL: all calls together. */
unsigned long simt_calls(const char *call);

/* Faults of kernels since the device was new, and the text of the last one ("" without any). A process that ends with one
 * exits with status SIMT_EXIT_STATUS. */
unsigned simt_faults(void);
const char *simt_fault_text(void);

/* Allocations, streams, events and graphs that were not given back. A process that ends with one exits likewise. */
unsigned simt_live(void);
/* Operations that wait in queues. */
unsigned simt_pending(void);

/* A device as after a restart of the process: everything is given back, faults and errors are forgotten. */
void simt_new_device(void);

#define SIMT_EXIT_STATUS 86

#ifdef __cplusplus
}
#endif

#endif
