/* The emulated CUDA runtime: streams, events, graphs, and the work queued on them: copies and kernels.
 *
 * A stream is a queue of operations. An operation runs only when something waits for it: for the stream, for an event
 * after the operation, or for memory to be freed. Then that queue runs up to that point and no further, and others only
 * as far as its events require. A query runs one operation and returns "not ready" until the queue is empty.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "tests/simt/control.h"
#include "tests/simt/runtime.h"
#include "tests/simt/simt.h"

using namespace simt_runtime;
using Clock = std::chrono::steady_clock;

namespace
{

/* A position in a queue at which an event was recorded. */
struct Mark {
    bool is_done = false;
    CUstream_st *stream; /* the stream in whose queue it waits */
    Clock::time_point when;
};

struct Operation {
    std::function<void()> run;          /* a copy or a kernel, or */
    std::shared_ptr<Mark> record, wait; /* a mark of an event */
};

struct Capture {
    enum cudaStreamCaptureMode mode;
    bool is_lost = false;
    std::vector<std::function<void()>> nodes;
};

/* The depth of a driver's queue: a launch into a full queue waits for its head. */
constexpr size_t queue_depth = 1024;

} // namespace

struct CUstream_st {
    int device = 0;
    std::deque<Operation> queue;
    std::unique_ptr<Capture> capture;
};

struct CUevent_st {
    unsigned flags;
    int device;
    bool is_captured = false;
    std::shared_ptr<Mark> mark; /* null: never recorded */
};

struct CUgraph_st {
    std::vector<std::function<void()>> nodes;
};

struct CUgraphExec_st {
    std::vector<std::function<void()>> nodes;
};

namespace
{

struct Handles {
    CUstream_st legacy; /* the NULL stream */
    std::set<cudaStream_t> streams;
    std::set<cudaEvent_t> events;
    std::set<cudaGraph_t> graphs;
    std::set<cudaGraphExec_t> execs;
    unsigned random = 12345;
};

Handles &handles()
{
    static Handles *h = new Handles;
    return *h;
}

/* Device memory of an instantiated graph and of each of its operations. Hardware uses some; the amount is not
 * documented. */
constexpr size_t graph_bytes = 64 << 10, node_bytes = 1 << 10;

CUstream_st *stream_of(cudaStream_t stream)
{
    if (!stream)
        return &handles().legacy;
    return handles().streams.count(stream) ? stream : nullptr;
}

void drop_queues()
{
    auto drop = [](CUstream_st *s) {
        for (auto &op : s->queue)
            if (op.record)
                op.record->is_done = true;
        s->queue.clear();
    };
    drop(&handles().legacy);
    for (auto s : handles().streams)
        drop(s);
}

/* A fault that the emulator detected while an operation ran kills the device. */
void look_for_faults()
{
    for (auto &text : simt::take_faults()) {
        bool is_address = text.rfind("OOB_GLOBAL", 0) == 0 || text.rfind("WILD", 0) == 0;
        bool is_alignment = text.rfind("MISALIGNED", 0) == 0;
        die(is_address     ? cudaErrorIllegalAddress
            : is_alignment ? cudaErrorMisalignedAddress
                           : cudaErrorLaunchFailure,
            text, true);
    }
    if (death())
        drop_queues();
}

void run_until(const std::shared_ptr<Mark> &mark);

void run_one(CUstream_st *s)
{
    if (s->queue.front().wait)
        run_until(s->queue.front().wait);
    if (s->queue.empty())
        return; /* the device died */
    Operation op = std::move(s->queue.front());
    s->queue.pop_front();
    if (op.record) {
        op.record->is_done = true;
        op.record->when = Clock::now();
    } else if (op.run) {
        op.run();
        look_for_faults();
    }
}

/* Records come before the waits for them, so this terminates. */
void run_until(const std::shared_ptr<Mark> &mark)
{
    while (!mark->is_done)
        run_one(mark->stream);
}

void drain(CUstream_st *s)
{
    while (!s->queue.empty())
        run_one(s);
}

/* QUIRE_SIMT_STREAMS=random: any queue may also run on its own. */
void run_some()
{
    const char *how = getenv("QUIRE_SIMT_STREAMS");
    if (!how || strcmp(how, "random") != 0)
        return;
    for (auto s : handles().streams) {
        handles().random = handles().random * 1664525u + 1013904223u;
        for (unsigned n = handles().random >> 30; n > 0 && !s->queue.empty(); n--)
            run_one(s);
    }
}

void push(CUstream_st *s, Operation op)
{
    s->queue.push_back(std::move(op));
    while (s->queue.size() > queue_depth)
        run_one(s);
    run_some();
}

/* Adds an operation to the queue, or to the capture. */
cudaError_t add(CUstream_st *s, std::function<void()> run)
{
    if (s->capture) {
        if (s->capture->is_lost)
            return cudaErrorStreamCaptureInvalidated;
        s->capture->nodes.push_back(std::move(run));
        return cudaSuccess;
    }
    push(s, Operation{std::move(run), nullptr, nullptr});
    return death();
}

cudaError_t lose(CUstream_st *s, cudaError_t error)
{
    s->capture->is_lost = true;
    return error;
}

} // namespace

namespace simt_runtime
{

void drain_all()
{
    drain(&handles().legacy);
    for (auto s : handles().streams)
        drain(s);
}

void forget_streams()
{
    Handles &h = handles();
    h.legacy.queue.clear();
    for (auto s : h.streams)
        delete s;
    for (auto e : h.events)
        delete e;
    for (auto g : h.graphs)
        delete g;
    for (auto x : h.execs)
        delete x;
    h.streams.clear();
    h.events.clear();
    h.graphs.clear();
    h.execs.clear();
}

bool capture_forbids()
{
    bool forbids = false;
    for (auto s : handles().streams) {
        if (s->capture && s->capture->mode != cudaStreamCaptureModeRelaxed)
            forbids = s->capture->is_lost = true;
    }
    return forbids;
}

bool capture_is_on()
{
    for (auto s : handles().streams)
        if (s->capture)
            return true;
    return false;
}

size_t graph_memory()
{
    size_t bytes = 0;
    for (cudaGraphExec_t exec : handles().execs)
        bytes += graph_bytes + exec->nodes.size() * node_bytes;
    return bytes;
}

unsigned live_handles()
{
    Handles &h = handles();
    return (unsigned)(h.streams.size() + h.events.size() + h.graphs.size() + h.execs.size());
}

unsigned pending()
{
    size_t n = handles().legacy.queue.size();
    for (auto s : handles().streams)
        n += s->queue.size();
    return (unsigned)n;
}

} // namespace simt_runtime

#define BEGIN(in_capture) \
    Call call(__func__, InCapture::in_capture); \
    if (call.error()) \
    return Call::done(call.error())

#define BEGIN_STREAM(in_capture) \
    BEGIN(in_capture); \
    CUstream_st *s = stream_of(stream); \
    if (!s) \
    return Call::done(cudaErrorInvalidResourceHandle)

/* ---- copies ---- */

namespace
{

/* A pointer of a copy: the kind of its memory, and whether all of it exists. */
struct Side {
    bool is_device = false, is_pinned = false, is_bad = false;
};

Side side_of(const void *p, size_t bytes)
{
    Side side;
    Range range = find(p, 1);
    side.is_device = range && !range.is_host;
    side.is_pinned = range && range.is_host;
    side.is_bad = !p || (range && !find(p, bytes)) || (!range && was_device(p));
    return side;
}

bool fits(enum cudaMemcpyKind kind, Side dst, Side src)
{
    if (dst.is_bad || src.is_bad)
        return false;
    switch (kind) {
    case cudaMemcpyHostToHost: return !dst.is_device && !src.is_device;
    case cudaMemcpyHostToDevice: return dst.is_device && !src.is_device;
    case cudaMemcpyDeviceToHost: return !dst.is_device && src.is_device;
    case cudaMemcpyDeviceToDevice: return dst.is_device && src.is_device;
    default: return true;
    }
}

/* Runs a copy at its time. Its memory may be gone by then, if a graph outlived it. */
void copy_now(void *dst, const void *src, size_t bytes)
{
    if (side_of(dst, bytes).is_bad || side_of(src, bytes).is_bad) {
        die(cudaErrorIllegalAddress, "a copy's memory was given back before it ran", true);
        return;
    }
    memmove(dst, src, bytes);
}

} // namespace

extern "C" {

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    BEGIN_STREAM(allowed);
    if (bytes == 0)
        return cudaSuccess;
    Side to = side_of(dst, bytes), from = side_of(src, bytes);
    if (!fits(kind, to, from))
        return Call::done(cudaErrorInvalidValue);
    bool is_pageable = !(to.is_device || to.is_pinned) || !(from.is_device || from.is_pinned);
    if (is_pageable && s->capture)
        return Call::done(lose(s, cudaErrorNotSupported)); /* CUDA would keep the pointer; not emulated */
    if (!(to.is_device || to.is_pinned)) { /* pageable: complete when the call returns */
        push(s, Operation{[=] { copy_now(dst, src, bytes); }, nullptr, nullptr});
        drain(s);
        return Call::done(death());
    }
    if (!(from.is_device || from.is_pinned)) { /* pageable: read when the call returns */
        auto staged = std::make_shared<std::vector<char>>((const char *)src, (const char *)src + bytes);
        return Call::done(add(s, [=] { copy_now(dst, staged->data(), bytes); }));
    }
    return Call::done(add(s, [=] { copy_now(dst, src, bytes); }));
}

/* On the NULL stream, which does not wait for streams with cudaStreamNonBlocking. */
cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind)
{
    BEGIN(unsafe);
    if (bytes == 0)
        return cudaSuccess;
    if (!fits(kind, side_of(dst, bytes), side_of(src, bytes)))
        return Call::done(cudaErrorInvalidValue);
    drain(&handles().legacy);
    if (!death())
        copy_now(dst, src, bytes);
    return Call::done(death());
}

cudaError_t cudaMemsetAsync(void *dev, int value, size_t bytes, cudaStream_t stream)
{
    BEGIN_STREAM(allowed);
    if (bytes == 0)
        return cudaSuccess;
    if (!find(dev, bytes))
        return Call::done(cudaErrorInvalidValue);
    return Call::done(add(s, [=] {
        if (find(dev, bytes))
            memset(dev, value, bytes);
        else
            die(cudaErrorIllegalAddress, "a memset's memory was given back before it ran", true);
    }));
}

cudaError_t cudaMemset(void *dev, int value, size_t bytes)
{
    BEGIN(unsafe);
    if (bytes == 0)
        return cudaSuccess;
    if (!find(dev, bytes))
        return Call::done(cudaErrorInvalidValue);
    push(&handles().legacy, Operation{[=] { memset(dev, value, bytes); }, nullptr, nullptr});
    return Call::done(death());
}

/* ---- streams ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    BEGIN(allowed);
    if (flags != cudaStreamNonBlocking)
        return Call::done(cudaErrorNotSupported); /* streams that wait for the NULL stream: not emulated */
    *stream = new CUstream_st;
    (*stream)->device = current_device();
    handles().streams.insert(*stream);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    Call call(__func__, InCapture::allowed);
    if (!handles().streams.count(stream))
        return Call::done(cudaErrorInvalidResourceHandle);
    if (call.error() && call.error() != death())
        return Call::done(call.error());
    drain(stream);
    handles().streams.erase(stream);
    delete stream;
    return Call::done(death());
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    BEGIN_STREAM(unsafe);
    if (s->capture)
        return Call::done(lose(s, cudaErrorStreamCaptureUnsupported));
    drain(s);
    return Call::done(death());
}

cudaError_t cudaDeviceSynchronize(void)
{
    BEGIN(unsafe);
    if (capture_is_on())
        return Call::done(cudaErrorStreamCaptureUnsupported);
    drain_all();
    return Call::done(death());
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    BEGIN_STREAM(unsafe);
    if (s->capture)
        return Call::done(lose(s, cudaErrorStreamCaptureUnsupported));
    if (s->queue.empty())
        return cudaSuccess;
    run_one(s);
    return Call::done(death() ? death() : cudaErrorNotReady);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    BEGIN_STREAM(allowed);
    if (!handles().events.count(event) || flags)
        return Call::done(cudaErrorInvalidResourceHandle);
    if (event->is_captured)
        return Call::done(s->capture ? cudaSuccess
                                     : cudaErrorNotSupported); /* a capture of two streams: not emulated */
    if (s->capture)
        return Call::done(lose(s, cudaErrorStreamCaptureIsolation));
    if (event->mark)
        push(s, Operation{nullptr, nullptr, event->mark});
    return Call::done(death());
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    BEGIN_STREAM(allowed);
    if (!stream)
        return Call::done(cudaErrorStreamCaptureUnsupported);
    if (s->capture)
        return Call::done(cudaErrorIllegalState);
    s->capture = std::make_unique<Capture>();
    s->capture->mode = mode;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    *graph = nullptr;
    Call call(__func__, InCapture::allowed);
    CUstream_st *s = stream_of(stream);
    if (!s || !s->capture)
        return Call::done(call.error() ? call.error() : s ? cudaErrorIllegalState : cudaErrorInvalidResourceHandle);
    std::unique_ptr<Capture> capture = std::move(s->capture);
    if (call.error())
        return Call::done(call.error());
    if (capture->is_lost)
        return Call::done(cudaErrorStreamCaptureInvalidated);
    *graph = new CUgraph_st{std::move(capture->nodes)};
    handles().graphs.insert(*graph);
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    BEGIN_STREAM(allowed);
    *status = !s->capture           ? cudaStreamCaptureStatusNone
              : s->capture->is_lost ? cudaStreamCaptureStatusInvalidated
                                    : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

/* ---- events ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    BEGIN(allowed);
    if (flags & ~3u)
        return Call::done(cudaErrorInvalidValue);
    *event = new CUevent_st{flags, current_device(), false, nullptr};
    handles().events.insert(*event);
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    Call call(__func__, InCapture::allowed);
    if (!handles().events.count(event))
        return Call::done(cudaErrorInvalidResourceHandle);
    if (call.error() && call.error() != death())
        return Call::done(call.error());
    handles().events.erase(event);
    delete event;
    return Call::done(death());
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    BEGIN_STREAM(allowed);
    if (!handles().events.count(event) || (stream && event->device != s->device))
        return Call::done(cudaErrorInvalidResourceHandle);
    event->is_captured = s->capture != nullptr;
    if (s->capture) {
        event->mark = nullptr;
        return Call::done(s->capture->is_lost ? cudaErrorStreamCaptureInvalidated : cudaSuccess);
    }
    event->mark = std::make_shared<Mark>();
    event->mark->stream = s;
    push(s, Operation{nullptr, event->mark, nullptr});
    return Call::done(death());
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    BEGIN(unsafe);
    if (!handles().events.count(event))
        return Call::done(cudaErrorInvalidResourceHandle);
    if (event->is_captured)
        return Call::done(cudaErrorCapturedEvent);
    if (event->mark)
        run_until(event->mark);
    return Call::done(death());
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    BEGIN(unsafe);
    if (!handles().events.count(event))
        return Call::done(cudaErrorInvalidResourceHandle);
    if (event->is_captured)
        return Call::done(cudaErrorCapturedEvent);
    if (!event->mark || event->mark->is_done)
        return cudaSuccess;
    run_one(event->mark->stream);
    return Call::done(death() ? death() : cudaErrorNotReady);
}

/* Returns the time that the emulation took. It is only guaranteed to be positive. */
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    BEGIN(allowed);
    for (cudaEvent_t e : {start, end}) {
        if (!handles().events.count(e) || (e->flags & cudaEventDisableTiming) || !e->mark)
            return Call::done(cudaErrorInvalidResourceHandle);
        if (!e->mark->is_done)
            return cudaErrorNotReady;
    }
    float passed = std::chrono::duration<float, std::milli>(end->mark->when - start->mark->when).count();
    *ms = passed > 0.0005f ? passed : 0.0005f;
    return cudaSuccess;
}

/* ---- graphs ---- */

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    *exec = nullptr;
    BEGIN(allowed);
    if (!handles().graphs.count(graph) || flags)
        return Call::done(cudaErrorInvalidValue);
    *exec = new CUgraphExec_st{graph->nodes};
    handles().execs.insert(*exec);
    return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream)
{
    BEGIN_STREAM(allowed);
    return Call::done(handles().execs.count(exec) && !s->capture ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    BEGIN_STREAM(allowed);
    if (!handles().execs.count(exec))
        return Call::done(cudaErrorInvalidValue);
    if (s->capture)
        return Call::done(lose(s, cudaErrorNotSupported)); /* graphs in graphs: not emulated */
    for (auto &node : exec->nodes)
        push(s, Operation{node, nullptr, nullptr});
    return Call::done(death());
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    Call call(__func__, InCapture::allowed);
    if (!handles().execs.erase(exec))
        return Call::done(cudaErrorInvalidValue);
    delete exec;
    return Call::done(call.error());
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    Call call(__func__, InCapture::allowed);
    if (!handles().graphs.erase(graph))
        return Call::done(cudaErrorInvalidValue);
    delete graph;
    return Call::done(call.error());
}

} // extern "C"

/* ---- kernels ---- */

namespace simt
{

namespace
{

/* QUIRE_SIMT_ORDER is read at each launch, so that a test can change it. */
void take_order()
{
    const char *name = getenv("QUIRE_SIMT_ORDER");
    if (name)
        order = strcmp(name, "random") == 0 ? 2 : strcmp(name, "reverse") == 0 ? 1 : 0;
}

cudaError_t check_launch(const Launch &l, const void *kernel)
{
    uint64_t n_threads = (uint64_t)l.block.x * l.block.y * l.block.z;
    if (n_threads == 0 || n_threads > 1024 || l.block.z > 64)
        return cudaErrorInvalidConfiguration;
    if (l.grid.x == 0 || l.grid.y == 0 || l.grid.z == 0 || l.grid.x > INT32_MAX || l.grid.y > 65535 || l.grid.z > 65535)
        return cudaErrorInvalidConfiguration;
    return l.smem > dynamic_shared_limit(kernel) ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t queue(cudaStream_t stream, const char *name, const void *kernel, const Launch &launch_)
{
    simt_runtime::Call call("launch", InCapture::allowed);
    if (call.error())
        return call.error();
    CUstream_st *s = stream_of(stream);
    if (!s || (stream && s->device != current_device()))
        return cudaErrorInvalidResourceHandle; /* no stream, or another GPU's */
    cudaError_t error = check_launch(launch_, kernel);
    if (error)
        return error;
    std::shared_ptr<void> args(aligned_alloc(64, (launch_.argsz + 63) / 64 * 64), free);
    memcpy(args.get(), launch_.arg, launch_.argsz);
    return add(s, [=] {
        cudaError_t asked_for = injected("kernel");
        if (!asked_for)
            asked_for = injected((std::string("kernel/") + name).c_str());
        if (asked_for == (cudaError_t)SIMT_KERNEL_HANGS)
            for (;;)
                pause();
        if (asked_for == (cudaError_t)SIMT_KERNEL_IS_SKIPPED)
            return;
        if (asked_for) {
            die(asked_for, std::string(name) + ": as a test asked", false);
            return;
        }
        Launch l = launch_;
        l.arg = args.get();
        take_order();
        launch(l);
    });
}

} // namespace

/* Behaves like <<<>>> and cudaGetLastError() after it: an earlier call's error that was not fetched is returned
 * here. */
cudaError_t queue_kernel(cudaStream_t stream, const char *name, const void *kernel, const Launch &l)
{
    simt_runtime::Call::done(queue(stream, name, kernel, l));
    return cudaGetLastError();
}

} // namespace simt
