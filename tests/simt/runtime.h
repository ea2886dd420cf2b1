/* The emulated CUDA runtime: what its files share. runtime.cc: errors, the device, memory. stream.cc: streams, events,
 * graphs, copies and launches.
 *
 * Where CUDA leaves a choice it takes the one that a careless caller does not expect: an operation runs as late as it may,
 * pinned memory is read and written when its copy runs, one stream's work never runs for another's sake unless an event
 * says so, fresh memory is NaN, a call that CUDA may refuse during a capture is refused. */
#ifndef QUIRE_TESTS_SIMT_RUNTIME_H
#define QUIRE_TESTS_SIMT_RUNTIME_H

#include <mutex>
#include <string>

#include "tests/simt/control.h"

namespace simt_runtime
{

/* What a call is to a capture that is going on. */
enum class InCapture { allowed, unsafe };

/* Every call begins with one: it holds the runtime's lock, and error() says whether the call may go on: a failure that a
 * test asked for, the error that the device died of, a capture that does not allow the call (and is lost by it). */
class Call
{
  public:
    Call(const char *name, InCapture in_capture);
    cudaError_t error() const
    {
        return error_;
    }
    /* Remembers a failure for cudaGetLastError() and returns it. */
    static cudaError_t done(cudaError_t error);

  private:
    std::unique_lock<std::recursive_mutex> lock_;
    cudaError_t error_ = cudaSuccess;
};

/* An error that a test asked of this call, or cudaSuccess; counts the call. */
cudaError_t injected(const char *name);

/* The device's death: reported once, returned by every later call. */
void die(cudaError_t error, const std::string &why, bool is_fault);
cudaError_t death();

/* A number of the environment, or what stands for none. */
unsigned long setting(const char *name, unsigned long otherwise);

int current_device(); /* the calling thread's */

/* ---- memory ---- */
struct Range { /* an allocation that holds [p, p + bytes), or none */
    char *base = nullptr;
    size_t bytes = 0;
    bool is_host = false;
    bool is_foreign = false; /* another process' device memory */
    int device = 0; /* that it was allocated on */
    explicit operator bool() const
    {
        return base != nullptr;
    }
};
Range find(const void *p, size_t bytes);
bool was_device(const void *p); /* where memory was ever given out, so that p cannot be pageable */

/* ---- streams ---- */
void drain_all(); /* everything that is queued runs */
void forget_streams(); /* everything that is queued is dropped, captures and handles too */
bool capture_forbids(); /* a capture goes on that unsafe calls end; it has then ended */
bool capture_is_on();
unsigned live_handles();
unsigned pending();
size_t graph_memory(); /* of the device, by instantiated graphs */

/* ---- kernels ---- */
size_t dynamic_shared_limit(const void *kernel);
size_t shared_optin_bytes();

} // namespace simt_runtime

#endif
