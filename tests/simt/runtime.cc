/* The emulated CUDA runtime: errors, the device and its memory. See runtime.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <map>
#include <vector>

#include "tests/simt/peer/peer.h"
#include "tests/simt/runtime.h"
#include "tests/simt/simt.h"
#undef warpSize /* a member of cudaDeviceProp too */

namespace simt_runtime
{

namespace
{

struct Wish {
    unsigned nth;
    cudaError_t error;
};

struct State {
    std::recursive_mutex lock;
    std::map<std::string, unsigned long> calls;
    std::map<std::string, Wish> wishes;
    std::map<char *, Range> allocations; /* by their first byte */
    char *lowest = nullptr, *highest = nullptr; /* bounds of all allocations so far */
    std::map<std::pair<const void *, int>, int> dynamic_shared; /* by kernel and device: set by cudaFuncSetAttribute */
    cudaError_t death = cudaSuccess;
    unsigned n_faults = 0;
    std::string fault_text;
};

thread_local cudaError_t last_error = cudaSuccess;
thread_local int device_of_thread = 0; /* each thread begins with device 0 */

void check_at_exit();

/* Parses "cudaMalloc:3:2,kernel:1:700" of the environment: call, nth, error. */
void read_wishes(State *s, const char *text)
{
    while (text && *text) {
        char call[64];
        unsigned nth;
        int error, length = 0;
        if (sscanf(text, "%63[^:]:%u:%d%n", call, &nth, &error, &length) != 3) {
            fprintf(stderr, "simt: QUIRE_SIMT_FAIL must be CALL:NTH:ERROR,...\n");
            abort();
        }
        s->wishes[call] = {nth, (cudaError_t)error};
        text += length;
        text += *text == ',';
    }
}

/* Never destroyed, because code that runs at exit may still call. */
State &state()
{
    static State *s = [] {
        State *fresh = new State;
        read_wishes(fresh, getenv("QUIRE_SIMT_FAIL"));
        atexit(check_at_exit);
        return fresh;
    }();
    return *s;
}

void check_at_exit()
{
    unsigned n_faults = simt_faults(), n_live = simt_live();
    if (n_faults == 0 && n_live == 0)
        return;
    fflush(nullptr);
    fprintf(stderr, "simt: the process ends with %u faults and %u things that were not given back\n", n_faults, n_live);
    _exit(SIMT_EXIT_STATUS);
}

size_t total_bytes()
{
    return (size_t)setting("QUIRE_SIMT_MEMORY_MIB", 256) << 20;
}

/* The driver's own memory: free memory is never the whole memory. */
constexpr size_t driver_bytes = 8u << 20;
constexpr size_t default_shared_bytes = 48u << 10;
constexpr size_t reserved_shared_bytes = 1024;

size_t rounded(size_t bytes)
{
    return (bytes + 511) / 512 * 512;
}

size_t used_bytes()
{
    size_t used = driver_bytes + graph_memory();
    for (auto &[base, range] : state().allocations)
        used += range.is_host || range.is_foreign || range.device != device_of_thread ? 0 : rounded(range.bytes);
    return used;
}

/* Returns the devices that CUDA_VISIBLE_DEVICES lists, in its order and up to the first that does not exist. */
std::vector<int> visible_devices()
{
    const int n = (int)setting("QUIRE_SIMT_DEVICES", 1);
    const char *at = getenv("CUDA_VISIBLE_DEVICES");
    std::vector<int> all;
    for (int device = 0; !at && device < n; device++)
        all.push_back(device);
    while (at && *at) {
        char *end;
        const long device = strtol(at, &end, 10);
        if (end == at || device < 0 || device >= n)
            break;
        all.push_back((int)device);
        at = *end == ',' ? end + 1 : end;
    }
    return all;
}

unsigned device_count()
{
    return (unsigned)visible_devices().size();
}

/* Returns the machine's number of an existing device. */
int device_of_machine(int device)
{
    return visible_devices()[(size_t)device];
}

cudaError_t check_device(int device)
{
    return device >= 0 && (unsigned)device < device_count() ? cudaSuccess : cudaErrorInvalidDevice;
}

} // namespace

unsigned long setting(const char *name, unsigned long otherwise)
{
    const char *text = getenv(name);
    if (!text || !*text)
        return otherwise;
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (*end) {
        fprintf(stderr, "simt: %s must be a number, not %s\n", name, text);
        abort();
    }
    return value;
}

cudaError_t injected(const char *name)
{
    State &s = state();
    s.calls[name]++;
    auto wish = s.wishes.find(name);
    if (wish == s.wishes.end() || --wish->second.nth > 0)
        return cudaSuccess;
    cudaError_t error = wish->second.error;
    s.wishes.erase(wish);
    return error;
}

Call::Call(const char *name, InCapture in_capture) : lock_(state().lock)
{
    error_ = injected(name);
    if (error_ == cudaSuccess)
        error_ = death();
    if (error_ == cudaSuccess && in_capture == InCapture::unsafe && capture_forbids())
        error_ = cudaErrorStreamCaptureUnsupported;
}

cudaError_t Call::done(cudaError_t error)
{
    if (error != cudaSuccess && error != cudaErrorNotReady)
        last_error = error;
    return error;
}

void die(cudaError_t error, const std::string &why, bool is_fault)
{
    State &s = state();
    if (is_fault) {
        s.n_faults++;
        s.fault_text = why;
        fprintf(stderr, "simt: %s\n", why.c_str());
    }
    if (s.death == cudaSuccess)
        s.death = error;
}

cudaError_t death()
{
    return state().death;
}

Range find(const void *p, size_t bytes)
{
    auto &all = state().allocations;
    auto after = all.upper_bound((char *)p);
    if (after == all.begin())
        return {};
    const Range &range = (--after)->second;
    size_t at = (size_t)((char *)p - range.base);
    return at < range.bytes && bytes <= range.bytes - at ? range : Range{};
}

bool was_device(const void *p)
{
    return (char *)p >= state().lowest && (char *)p < state().highest;
}

size_t shared_optin_bytes()
{
    return (size_t)setting("QUIRE_SIMT_SHARED_KIB", 227) << 10;
}

int current_device()
{
    return device_of_thread;
}

size_t dynamic_shared_limit(const void *kernel)
{
    auto found = state().dynamic_shared.find({kernel, device_of_thread});
    return found == state().dynamic_shared.end() ? default_shared_bytes : (size_t)found->second;
}

namespace
{

Range note_allocation(char *base, size_t bytes)
{
    State &s = state();
    s.lowest = s.lowest && s.lowest < base ? s.lowest : base;
    s.highest = s.highest > base + bytes ? s.highest : base + bytes;
    Range range;
    range.base = base;
    range.bytes = bytes;
    range.device = device_of_thread;
    return range;
}

cudaError_t allocate(void **out, size_t bytes, bool is_host)
{
    *out = nullptr;
    if (bytes == 0)
        return cudaSuccess;
    size_t used = used_bytes();
    if (!is_host && (bytes > total_bytes() || used + rounded(bytes) > total_bytes()))
        return cudaErrorMemoryAllocation;
    if (is_host && bytes > (size_t)8 << 30)
        return cudaErrorMemoryAllocation;
    char *base = (char *)simt::dev_alloc(bytes);
    if (!base)
        return cudaErrorMemoryAllocation;
    Range range = note_allocation(base, bytes);
    range.is_host = is_host;
    state().allocations[base] = range;
    *out = base;
    return cudaSuccess;
}

/* CUDA waits for the device before it frees memory. */
cudaError_t release(void *p, bool is_host, cudaError_t error)
{
    if (!p)
        return error;
    auto found = state().allocations.find((char *)p);
    if (found == state().allocations.end() || found->second.is_host != is_host || found->second.is_foreign)
        return error ? error : cudaErrorInvalidValue;
    if (error && error != death())
        return error; /* injected by a test, or a broken capture */
    drain_all();
    simt::dev_free(p);
    state().allocations.erase(found);
    return death();
}

} // namespace
} // namespace simt_runtime

using namespace simt_runtime;

#define BEGIN(in_capture) \
    Call call(__func__, InCapture::in_capture); \
    if (call.error()) \
    return Call::done(call.error())

/* ---- errors ---- */

static const struct {
    cudaError_t error;
    const char *name, *text;
} errors[] = {
#define E(name, text) {name, #name, text}
    E(cudaSuccess, "no error"),
    E(cudaErrorInvalidValue, "invalid argument"),
    E(cudaErrorMemoryAllocation, "out of memory"),
    E(cudaErrorInitializationError, "initialization error"),
    E(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    E(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    E(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"),
    E(cudaErrorDevicesUnavailable, "CUDA-capable device(s) is/are busy or unavailable"),
    E(cudaErrorInvalidDeviceFunction, "invalid device function"),
    E(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    E(cudaErrorInvalidDevice, "invalid device ordinal"),
    E(cudaErrorNoKernelImageForDevice, "no kernel image is available for execution on the device"),
    E(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered"),
    E(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    E(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    E(cudaErrorNotReady, "device not ready"),
    E(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    E(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    E(cudaErrorLaunchTimeout, "the launch timed out and was terminated"),
    E(cudaErrorMisalignedAddress, "misaligned address"),
    E(cudaErrorLaunchFailure, "unspecified launch failure"),
    E(cudaErrorNotSupported, "operation not supported"),
    E(cudaErrorSystemNotReady, "system not yet initialized"),
    E(cudaErrorSystemDriverMismatch, "system has unsupported display driver / cuda driver combination"),
    E(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    E(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    E(cudaErrorStreamCaptureUnmatched, "capture was not initiated in this stream"),
    E(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream"),
    E(cudaErrorStreamCaptureImplicit, "operation would make the legacy stream depend on a capturing blocking stream"),
    E(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing stream"),
    E(cudaErrorUnknown, "unknown error"),
#undef E
};

extern "C" {

const char *cudaGetErrorName(cudaError_t error)
{
    for (auto &e : errors)
        if (e.error == error)
            return e.name;
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    for (auto &e : errors)
        if (e.error == error)
            return e.text;
    return "unrecognized error code";
}

cudaError_t cudaGetLastError(void)
{
    std::lock_guard<std::recursive_mutex> lock(state().lock);
    cudaError_t error = death() ? death() : last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    std::lock_guard<std::recursive_mutex> lock(state().lock);
    return death() ? death() : last_error;
}

/* ---- the device ---- */

cudaError_t cudaDriverGetVersion(int *version)
{
    BEGIN(allowed);
    *version = (int)setting("QUIRE_SIMT_DRIVER", CUDART_VERSION);
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    BEGIN(allowed);
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 0;
    BEGIN(allowed);
    *count = (int)device_count();
    return Call::done(*count ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int *device)
{
    BEGIN(allowed);
    *device = device_of_thread;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    BEGIN(allowed);
    if (check_device(device) == cudaSuccess)
        device_of_thread = device;
    return Call::done(check_device(device));
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
    BEGIN(allowed);
    if (check_device(device) != cudaSuccess)
        return Call::done(cudaErrorInvalidDevice);
    int capability = (int)setting("QUIRE_SIMT_CAPABILITY", 90);
    switch (attr) {
    case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = (int)default_shared_bytes; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrClockRate: *value = 1000000; break;
    case cudaDevAttrMultiProcessorCount: *value = (int)setting("QUIRE_SIMT_SMS", 4); break;
    case cudaDevAttrIntegrated: *value = 0; break;
    case cudaDevAttrCanMapHostMemory: *value = 1; break;
    case cudaDevAttrComputeMode: *value = 0; break;
    case cudaDevAttrEccEnabled: *value = 1; break;
    case cudaDevAttrPciBusId: *value = device_of_machine(device); break;
    case cudaDevAttrPciDeviceId: *value = 0; break;
    case cudaDevAttrMemoryClockRate: *value = 1000000; break;
    case cudaDevAttrGlobalMemoryBusWidth: *value = 64; break;
    case cudaDevAttrL2CacheSize: *value = 1 << 20; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 2048; break;
    case cudaDevAttrUnifiedAddressing: *value = 1; break;
    case cudaDevAttrPciDomainId: *value = 0; break;
    case cudaDevAttrComputeCapabilityMajor: *value = capability / 10; break;
    case cudaDevAttrComputeCapabilityMinor: *value = capability % 10; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = (int)(shared_optin_bytes() + reserved_shared_bytes);
        break;
    case cudaDevAttrMaxRegistersPerMultiprocessor: *value = 65536; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = (int)shared_optin_bytes(); break;
    case cudaDevAttrReservedSharedMemoryPerBlock: *value = (int)reserved_shared_bytes; break;
    default: return Call::done(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
    BEGIN(allowed);
    if (check_device(device) != cudaSuccess)
        return Call::done(cudaErrorInvalidDevice);
    memset(prop, 0, sizeof *prop);
    auto attribute = [device](enum cudaDeviceAttr attr) {
        int value = 0;
        cudaDeviceGetAttribute(&value, attr, device);
        return value;
    };
    snprintf(prop->name, sizeof prop->name, "SIMT emulator");
    prop->totalGlobalMem = total_bytes();
    prop->sharedMemPerBlock = default_shared_bytes;
    prop->regsPerBlock = 65536;
    prop->warpSize = 32;
    prop->maxThreadsPerBlock = 1024;
    prop->major = attribute(cudaDevAttrComputeCapabilityMajor);
    prop->minor = attribute(cudaDevAttrComputeCapabilityMinor);
    prop->multiProcessorCount = attribute(cudaDevAttrMultiProcessorCount);
    prop->canMapHostMemory = 1;
    prop->ECCEnabled = 1;
    prop->pciBusID = device_of_machine(device);
    snprintf(prop->uuid.bytes, sizeof prop->uuid.bytes, "%d %.10s", prop->pciBusID, simt::host_name());
    prop->unifiedAddressing = 1;
    prop->memoryBusWidth = attribute(cudaDevAttrGlobalMemoryBusWidth);
    prop->l2CacheSize = attribute(cudaDevAttrL2CacheSize);
    prop->maxThreadsPerMultiProcessor = 2048;
    prop->sharedMemPerMultiprocessor = shared_optin_bytes() + reserved_shared_bytes;
    prop->regsPerMultiprocessor = 65536;
    prop->sharedMemPerBlockOptin = shared_optin_bytes();
    prop->reservedSharedMemPerBlock = reserved_shared_bytes;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *pci_bus_id, int len, int device)
{
    BEGIN(allowed);
    if (check_device(device) != cudaSuccess)
        return Call::done(cudaErrorInvalidDevice);
    snprintf(pci_bus_id, (size_t)len, "0000:%02x:00.0", (unsigned)device_of_machine(device));
    return cudaSuccess;
}

/* ---- memory ---- */

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    BEGIN(allowed);
    *total = total_bytes();
    *available = *total > used_bytes() ? *total - used_bytes() : 0;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **dev, size_t bytes)
{
    BEGIN(unsafe);
    return Call::done(allocate(dev, bytes, false));
}

cudaError_t cudaHostAlloc(void **host, size_t bytes, unsigned flags)
{
    BEGIN(unsafe);
    if (flags & ~7u)
        return Call::done(cudaErrorInvalidValue);
    return Call::done(allocate(host, bytes, true));
}

cudaError_t cudaMallocHost(void **host, size_t bytes)
{
    BEGIN(unsafe);
    return Call::done(allocate(host, bytes, true));
}

cudaError_t cudaFree(void *dev)
{
    Call call(__func__, InCapture::unsafe);
    return Call::done(release(dev, false, call.error()));
}

cudaError_t cudaFreeHost(void *host)
{
    Call call(__func__, InCapture::unsafe);
    return Call::done(release(host, true, call.error()));
}

cudaError_t cudaHostGetDevicePointer(void **dev, void *host, unsigned flags)
{
    BEGIN(allowed);
    Range range = find(host, 1);
    if (!range || !range.is_host || flags)
        return Call::done(cudaErrorInvalidValue);
    *dev = host;
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *p)
{
    BEGIN(allowed);
    Range range = find(p, 1);
    memset(attributes, 0, sizeof *attributes);
    attributes->device = range ? range.device : -2; /* cudaInvalidDeviceId */
    attributes->type = !range ? cudaMemoryTypeUnregistered : range.is_host ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
    attributes->devicePointer = range ? (void *)p : nullptr;
    attributes->hostPointer = !range || range.is_host ? (void *)p : nullptr;
    return cudaSuccess;
}

/* ---- memory of other processes ---- */

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *dev)
{
    BEGIN(unsafe);
    simt::PeerHandle h;
    static_assert(sizeof h <= sizeof *handle, "a handle is 64 bytes");
    Range range = find(dev, 1);
    if (!range || range.is_host || range.is_foreign || range.base != dev || !simt::peer_export(dev, &h))
        return Call::done(cudaErrorInvalidValue);
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &h, sizeof h);
    return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void **dev, cudaIpcMemHandle_t handle, unsigned flags)
{
    *dev = nullptr;
    BEGIN(unsafe);
    simt::PeerHandle h;
    memcpy(&h, &handle, sizeof h);
    void *p = flags == cudaIpcMemLazyEnablePeerAccess ? simt::peer_import(h) : nullptr;
    if (!p)
        return Call::done(cudaErrorInvalidValue);
    Range range = note_allocation((char *)p, h.bytes);
    range.is_foreign = true;
    state().allocations[range.base] = range;
    *dev = p;
    return cudaSuccess;
}

cudaError_t cudaIpcCloseMemHandle(void *dev)
{
    Call call(__func__, InCapture::unsafe);
    auto found = state().allocations.find((char *)dev);
    if (found == state().allocations.end() || !found->second.is_foreign)
        return Call::done(call.error() ? call.error() : cudaErrorInvalidValue);
    if (call.error() && call.error() != death())
        return Call::done(call.error());
    drain_all();
    simt::peer_release(dev);
    state().allocations.erase(found);
    return Call::done(death());
}

/* ---- kernels ---- */

cudaError_t cudaFuncSetAttribute(const void *func, enum cudaFuncAttribute attr, int value)
{
    BEGIN(allowed);
    if (!func)
        return Call::done(cudaErrorInvalidDeviceFunction);
    if (attr == cudaFuncAttributePreferredSharedMemoryCarveout)
        return Call::done(value >= -1 && value <= 100 ? cudaSuccess : cudaErrorInvalidValue);
    if (attr != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 || (size_t)value > shared_optin_bytes())
        return Call::done(cudaErrorInvalidValue);
    state().dynamic_shared[{func, device_of_thread}] = value;
    return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attr, const void *func)
{
    BEGIN(allowed);
    memset(attr, 0, sizeof *attr);
    attr->maxThreadsPerBlock = 1024;
    attr->numRegs = 64; /* not known */
    attr->ptxVersion = attr->binaryVersion = (int)setting("QUIRE_SIMT_CAPABILITY", 90);
    attr->maxDynamicSharedSizeBytes = (int)dynamic_shared_limit(func);
    return cudaSuccess;
}

/* By threads and dynamic shared memory; registers and static shared memory are not known. */
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n_blocks, const void *func, int block_threads,
                                                          size_t dynamic_shared_bytes)
{
    BEGIN(allowed);
    if (block_threads <= 0 || block_threads > 1024 || dynamic_shared_bytes > dynamic_shared_limit(func))
        return Call::done(cudaErrorInvalidValue);
    size_t by_threads = 2048 / (size_t)((block_threads + 31) / 32 * 32);
    size_t by_shared = (shared_optin_bytes() + reserved_shared_bytes) / (dynamic_shared_bytes + reserved_shared_bytes);
    size_t least = by_threads < by_shared ? by_threads : by_shared;
    *n_blocks = least < 32 ? (int)least : 32;
    return cudaSuccess;
}

/* ---- control.h ---- */

void simt_fail_call(const char *call, unsigned nth, cudaError_t error)
{
    std::lock_guard<std::recursive_mutex> lock(state().lock);
    if (nth)
        state().wishes[call] = {nth, error};
    else
        state().wishes.erase(call);
}

unsigned long simt_calls(const char *call)
{
    std::lock_guard<std::recursive_mutex> lock(state().lock);
    if (call)
        return state().calls[call];
    unsigned long all = 0;
    for (auto &[name, n] : state().calls)
        all += n;
    return all;
}

unsigned simt_faults(void)
{
    return state().n_faults;
}

const char *simt_fault_text(void)
{
    return state().fault_text.c_str();
}

unsigned simt_live(void)
{
    std::lock_guard<std::recursive_mutex> lock(state().lock);
    return (unsigned)state().allocations.size() + live_handles();
}

unsigned simt_pending(void)
{
    std::lock_guard<std::recursive_mutex> lock(state().lock);
    return pending();
}

void simt_new_device(void)
{
    std::lock_guard<std::recursive_mutex> lock(state().lock);
    forget_streams();
    for (auto &[base, range] : state().allocations)
        range.is_foreign ? simt::peer_release(base) : simt::dev_free(base);
    state().allocations.clear();
    state().wishes.clear();
    state().death = last_error = cudaSuccess;
    state().n_faults = 0;
    state().fault_text.clear();
    device_of_thread = 0;
    simt::take_faults();
}

} // extern "C"
