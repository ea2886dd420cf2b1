/* The emulated CUDA runtime: declarations that its files share. runtime.cc: errors, the device, memory. stream.cc:
 * streams, events, graphs, copies and launches.
 *
 * Where CUDA leaves a choice, the emulator takes the one that careless code does not expect: an operation runs as late
 * as possible, pinned memory is read and written when its copy runs, one stream's work never runs for another's sake
 * without an event, fresh memory is NaN, and a call that CUDA may reject during a capture is rejected. Any thread.
 */
#ifndef QUIRE_TESTS_SIMT_RUNTIME_H
#define QUIRE_TESTS_SIMT_RUNTIME_H

#include <mutex>
#include <string>

#include "tests/simt/control.h"

namespace simt_runtime
{

/* How a call affects an active capture. */
enum class InCapture { allowed, unsafe };

/* Every call begins with one. It holds the runtime's lock. error() says whether the call may continue; reasons against
 * it are a failure injected by a test, the error that the device died of, and a capture that does not allow the call
 * (and is lost by it). */
class Call
{
  public:
    Call(const char *name, InCapture in_capture);
    cudaError_t error() const
    {
        return error_;
    }
    /* Stores a failure for cudaGetLastError() and returns it. */
    static cudaError_t done(cudaError_t error);

  private:
    std::unique_lock<std::recursive_mutex> lock_;
    cudaError_t error_ = cudaSuccess;
};

/* Counts the call. Returns an error that a test injected into it, or cudaSuccess. */
cudaError_t injected(const char *name);

/* The device's death: reported once, and returned by every later call. */
void die(cudaError_t error, const std::string &why, bool is_fault);
cudaError_t death();

/* Returns a number from the environment, or `otherwise`. */
unsigned long setting(const char *name, unsigned long otherwise);

int current_device(); /* of the calling thread */

/* ---- memory ---- */
struct Range { /* an allocation that contains [p, p + bytes), or empty */
    char *base = nullptr;
    size_t bytes = 0;
    bool is_host = false;
    bool is_foreign = false; /* another process' device memory */
    int device = 0; /* the device that allocated it */
    explicit operator bool() const
    {
        return base != nullptr;
    }
};
Range find(const void *p, size_t bytes);
bool was_device(const void *p); /* whether memory was ever allocated there, so that p cannot be pageable */

/* ---- streams ---- */
void drain_all(); /* runs everything that is queued */
void forget_streams(); /* drops everything that is queued, and captures and handles */
bool capture_forbids(); /* whether an active capture ends by an unsafe call; it has then ended */
bool capture_is_on();
unsigned live_handles();
unsigned pending();
size_t graph_memory(); /* device memory used by instantiated graphs */

/* ---- kernels ---- */
size_t dynamic_shared_limit(const void *kernel);
size_t shared_optin_bytes();

} // namespace simt_runtime

#endif
