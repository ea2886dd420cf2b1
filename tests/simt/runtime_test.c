/* Checks that the emulated CUDA runtime is as late and as strict as runtime.h promises. */
#include "tests/simt/control.h"
#include "tests/simt/runtime_kernels.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define N 64u
#define BYTES (N * sizeof(float))
#define OK(call) assert_int_equal(call, cudaSuccess)
#define FAILS(call, error) assert_int_equal(call, error)

struct fixture {
    cudaStream_t a, b;
    cudaEvent_t event;
    float *dev, *pinned;
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    simt_new_device();
    OK(cudaStreamCreateWithFlags(&f->a, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&f->b, cudaStreamNonBlocking));
    OK(cudaEventCreateWithFlags(&f->event, cudaEventDisableTiming));
    OK(cudaMalloc((void **)&f->dev, BYTES));
    OK(cudaHostAlloc((void **)&f->pinned, BYTES, cudaHostAllocDefault));
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    simt_new_device();
    free(*state);
    return 0;
}

static void fill(float *x, float value)
{
    for (unsigned i = 0; i < N; i++)
        x[i] = value;
}

/* Sets the device's array at once. */
static void set_dev(struct fixture *f, float value)
{
    float x[N];
    fill(x, value);
    OK(cudaMemcpy(f->dev, x, BYTES, cudaMemcpyHostToDevice));
}

/* Returns its current content, without running queued work. */
static float get_dev(struct fixture *f)
{
    float x[N];
    OK(cudaMemcpy(x, f->dev, BYTES, cudaMemcpyDeviceToHost));
    return x[N - 1];
}

/* ---- order ------------------------------------------------------------------------------------- */

static void test_late(void **state)
{
    struct fixture *f = *state;
    set_dev(f, 1);
    fill(f->pinned, -1);
    OK(launch_affine(f->a, f->dev, 2, 3, N));
    OK(cudaMemcpyAsync(f->pinned, f->dev, BYTES, cudaMemcpyDeviceToHost, f->a));
    assert_int_equal(simt_pending(), 2);
    assert_true(f->pinned[0] == -1 && get_dev(f) == 1);
    OK(cudaStreamSynchronize(f->b)); /* another stream's work */
    assert_int_equal(simt_pending(), 2);
    OK(cudaStreamSynchronize(f->a));
    assert_int_equal(simt_pending(), 0);
    assert_true(f->pinned[0] == 5 && f->pinned[N - 1] == 5 && get_dev(f) == 5);
}

static void test_host_memory(void **state)
{
    struct fixture *f = *state;
    float pageable[N];
    fill(f->pinned, 1);
    OK(cudaMemcpyAsync(f->dev, f->pinned, BYTES, cudaMemcpyHostToDevice, f->a));
    fill(f->pinned, 2); /* too early */
    OK(cudaStreamSynchronize(f->a));
    assert_true(get_dev(f) == 2);
    fill(pageable, 3);
    OK(cudaMemcpyAsync(f->dev, pageable, BYTES, cudaMemcpyHostToDevice, f->a));
    fill(pageable, 4);
    OK(cudaStreamSynchronize(f->a));
    assert_true(get_dev(f) == 3);
    OK(launch_affine(f->a, f->dev, 1, 1, N)); /* pageable: complete when the call returns */
    OK(cudaMemcpyAsync(pageable, f->dev, BYTES, cudaMemcpyDeviceToHost, f->a));
    assert_true(pageable[0] == 4);
    OK(cudaMemsetAsync(f->dev, 0, BYTES, f->a));
    assert_true(get_dev(f) == 4);
    OK(cudaDeviceSynchronize());
    assert_true(get_dev(f) == 0);
    struct cudaPointerAttributes what;
    OK(cudaPointerGetAttributes(&what, f->pinned + 3));
    assert_int_equal(what.type, cudaMemoryTypeHost);
    OK(cudaPointerGetAttributes(&what, f->dev));
    assert_int_equal(what.type, cudaMemoryTypeDevice);
    OK(cudaPointerGetAttributes(&what, pageable));
    assert_int_equal(what.type, cudaMemoryTypeUnregistered);
}

static void test_two_streams(void **state)
{
    struct fixture *f = *state;
    set_dev(f, 1);
    OK(launch_affine(f->a, f->dev, 1, 1, N));
    OK(launch_affine(f->b, f->dev, 10, 0, N)); /* may run before it, because b has no event */
    OK(cudaStreamSynchronize(f->b));
    OK(cudaStreamSynchronize(f->a));
    assert_true(get_dev(f) == 11);

    set_dev(f, 1);
    OK(launch_affine(f->a, f->dev, 1, 1, N));
    OK(cudaEventRecord(f->event, f->a));
    OK(launch_affine(f->a, f->dev, 1, 100, N)); /* after the event */
    OK(cudaStreamWaitEvent(f->b, f->event, 0));
    OK(cudaEventRecord(f->event, f->a)); /* recorded again: b waits for the state at its call */
    OK(launch_affine(f->b, f->dev, 10, 0, N));
    OK(cudaStreamSynchronize(f->b));
    assert_true(get_dev(f) == 20);
    assert_int_equal(simt_pending(), 2);
    OK(cudaEventSynchronize(f->event));
    assert_true(get_dev(f) == 120);
}

static void test_queries(void **state)
{
    struct fixture *f = *state;
    set_dev(f, 1);
    OK(cudaEventQuery(f->event)); /* never recorded */
    OK(cudaStreamQuery(f->a));
    OK(launch_affine(f->a, f->dev, 1, 1, N));
    OK(cudaEventRecord(f->event, f->a));
    FAILS(cudaEventQuery(f->event), cudaErrorNotReady);
    assert_true(get_dev(f) == 2);
    FAILS(cudaEventQuery(f->event), cudaErrorNotReady);
    OK(cudaEventQuery(f->event));
    OK(cudaGetLastError()); /* not ready is not an error */
    OK(launch_affine(f->a, f->dev, 1, 1, N));
    FAILS(cudaStreamQuery(f->a), cudaErrorNotReady);
    OK(cudaStreamQuery(f->a));
    float ms;
    FAILS(cudaEventElapsedTime(&ms, f->event, f->event), cudaErrorInvalidResourceHandle);
    cudaEvent_t begin, end;
    OK(cudaEventCreateWithFlags(&begin, cudaEventDefault));
    OK(cudaEventCreateWithFlags(&end, cudaEventDefault));
    OK(cudaEventRecord(begin, f->a));
    OK(cudaEventRecord(end, f->a));
    FAILS(cudaEventElapsedTime(&ms, begin, end), cudaErrorNotReady);
    OK(cudaStreamSynchronize(f->a));
    OK(cudaEventElapsedTime(&ms, begin, end));
    assert_true(ms > 0);
}

static void test_full_queue(void **state)
{
    struct fixture *f = *state;
    set_dev(f, 0);
    for (unsigned i = 0; i < 1500; i++)
        OK(launch_affine(f->a, f->dev, 1, 1, N));
    assert_int_equal(simt_pending(), 1024);
    assert_true(get_dev(f) == 1500 - 1024);
    OK(cudaFree(f->dev)); /* waits for all of them */
    assert_int_equal(simt_pending(), 0);
}

/* ---- graphs ------------------------------------------------------------------------------------ */

static void test_graph(void **state)
{
    struct fixture *f = *state;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    enum cudaStreamCaptureStatus status;
    set_dev(f, 1);
    OK(cudaStreamBeginCapture(f->a, cudaStreamCaptureModeThreadLocal));
    OK(cudaStreamIsCapturing(f->a, &status));
    assert_int_equal(status, cudaStreamCaptureStatusActive);
    float addend = 1;
    OK(launch_affine(f->a, f->dev, 2, addend, N));
    addend = 100;
    OK(cudaMemcpyAsync(f->pinned, f->dev, BYTES, cudaMemcpyDeviceToHost, f->a));
    OK(cudaStreamEndCapture(f->a, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphDestroy(graph));
    assert_int_equal(simt_pending(), 0);
    OK(cudaStreamSynchronize(f->a));
    assert_true(get_dev(f) == 1);
    OK(cudaGraphLaunch(exec, f->a));
    OK(cudaGraphLaunch(exec, f->b));
    assert_true(get_dev(f) == 1);
    OK(cudaStreamSynchronize(f->a));
    assert_true(get_dev(f) == 3 && f->pinned[5] == 3);
    OK(cudaStreamSynchronize(f->b));
    assert_true(get_dev(f) == 7 && f->pinned[5] == 7);
    OK(cudaGraphLaunch(exec, f->a));
    OK(cudaGraphExecDestroy(exec)); /* launched work still runs */
    OK(cudaStreamSynchronize(f->a));
    assert_true(get_dev(f) == 15);
    FAILS(cudaGraphLaunch(exec, f->a), cudaErrorInvalidValue);
    FAILS(cudaStreamEndCapture(f->a, &graph), cudaErrorIllegalState);
}

static void test_capture_forbids(void **state)
{
    struct fixture *f = *state;
    cudaGraph_t graph;
    void *p;
    float pageable[N];
    set_dev(f, 1);
    OK(cudaEventRecord(f->event, f->b));
    for (int i = 0; i < 9; i++) {
        OK(cudaStreamBeginCapture(f->a, cudaStreamCaptureModeGlobal));
        OK(launch_affine(f->a, f->dev, 2, 0, N));
        switch (i) {
        case 0: FAILS(cudaStreamSynchronize(f->a), cudaErrorStreamCaptureUnsupported); break;
        case 1: FAILS(cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported); break;
        case 2: FAILS(cudaMalloc(&p, 64), cudaErrorStreamCaptureUnsupported); break;
        case 3: FAILS(cudaStreamSynchronize(f->b), cudaErrorStreamCaptureUnsupported); break;
        case 4: FAILS(cudaEventQuery(f->event), cudaErrorStreamCaptureUnsupported); break;
        case 5: FAILS(cudaStreamWaitEvent(f->a, f->event, 0), cudaErrorStreamCaptureIsolation); break;
        case 6:
            FAILS(cudaMemcpyAsync(f->dev, pageable, BYTES, cudaMemcpyHostToDevice, f->a), cudaErrorNotSupported);
            break;
        case 7:
            FAILS(cudaMemcpy(f->dev, pageable, BYTES, cudaMemcpyHostToDevice), cudaErrorStreamCaptureUnsupported);
            break;
        default: FAILS(cudaFree(f->dev), cudaErrorStreamCaptureUnsupported); break;
        }
        cudaGetLastError();
        FAILS(launch_affine(f->a, f->dev, 2, 0, N), cudaErrorStreamCaptureInvalidated);
        FAILS(cudaStreamEndCapture(f->a, &graph), cudaErrorStreamCaptureInvalidated);
        assert_null(graph);
        cudaGetLastError();
    }
    OK(launch_affine(f->a, f->dev, 2, 0, N)); /* the stream still works */
    OK(cudaStreamSynchronize(f->a));
    assert_true(get_dev(f) == 2);

    OK(cudaStreamBeginCapture(f->a, cudaStreamCaptureModeRelaxed));
    FAILS(cudaStreamBeginCapture(f->a, cudaStreamCaptureModeRelaxed), cudaErrorIllegalState);
    OK(cudaMalloc(&p, 64));
    OK(cudaEventRecord(f->event, f->a));
    FAILS(cudaEventSynchronize(f->event), cudaErrorCapturedEvent);
    OK(cudaStreamEndCapture(f->a, &graph));
    OK(cudaGraphDestroy(graph));
}

static void test_graph_outlives_its_memory(void **state)
{
    struct fixture *f = *state;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    OK(cudaStreamBeginCapture(f->a, cudaStreamCaptureModeThreadLocal));
    OK(cudaMemcpyAsync(f->dev, f->pinned, BYTES, cudaMemcpyHostToDevice, f->a));
    OK(cudaStreamEndCapture(f->a, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaFreeHost(f->pinned));
    OK(cudaGraphLaunch(exec, f->a));
    FAILS(cudaStreamSynchronize(f->a), cudaErrorIllegalAddress);
    assert_int_equal(simt_faults(), 1);
}

/* ---- errors ------------------------------------------------------------------------------------ */

static void check_death(struct fixture *f, cudaError_t launch(cudaStream_t, float *), cudaError_t error,
                        const char *kind)
{
    void *p;
    set_dev(f, 1);
    OK(launch(f->a, f->dev));
    OK(launch_affine(f->b, f->dev, 1, 1, N));
    assert_int_equal(simt_faults(), 0);
    FAILS(cudaStreamSynchronize(f->a), error);
    assert_true(simt_faults() > 0 && strncmp(simt_fault_text(), kind, strlen(kind)) == 0);
    assert_int_equal(simt_pending(), 0);
    FAILS(cudaStreamSynchronize(f->b), error);
    FAILS(cudaMalloc(&p, 64), error);
    FAILS(launch_affine(f->a, f->dev, 1, 1, N), error);
    FAILS(cudaEventQuery(f->event), error);
    FAILS(cudaGetLastError(), error);
    FAILS(cudaGetLastError(), error);
    unsigned live = simt_live();
    FAILS(cudaFree(f->dev), error); /* but it is released */
    FAILS(cudaFreeHost(f->pinned), error);
    FAILS(cudaStreamDestroy(f->a), error);
    FAILS(cudaEventDestroy(f->event), error);
    assert_int_equal(simt_live(), live - 4);
}

static void test_illegal_address(void **state)
{
    check_death(*state, launch_past_the_end, cudaErrorIllegalAddress, "OOB_GLOBAL");
}

static void test_misaligned(void **state)
{
    check_death(*state, launch_misaligned, cudaErrorMisalignedAddress, "MISALIGNED");
}

static void test_race(void **state)
{
    check_death(*state, launch_race, cudaErrorLaunchFailure, "RACE");
}

static void test_asked_for(void **state)
{
    struct fixture *f = *state;
    void *p;
    unsigned long before = simt_calls("cudaMalloc");
    simt_fail_call("cudaMalloc", 2, cudaErrorMemoryAllocation);
    OK(cudaMalloc(&p, 64));
    FAILS(cudaMalloc(&p, 64), cudaErrorMemoryAllocation);
    OK(cudaMalloc(&p, 64));
    assert_int_equal(simt_calls("cudaMalloc"), before + 3);
    FAILS(launch_affine(f->a, f->dev, 1, 1, N), cudaErrorMemoryAllocation); /* the error was not fetched */
    OK(launch_affine(f->a, f->dev, 1, 1, N));
    simt_fail_call("launch", 1, cudaErrorLaunchOutOfResources);
    FAILS(launch_affine(f->a, f->dev, 1, 1, N), cudaErrorLaunchOutOfResources);
    OK(cudaStreamSynchronize(f->a));
    simt_fail_call("kernel", 2, cudaErrorECCUncorrectable);
    OK(launch_affine(f->a, f->dev, 1, 1, N));
    OK(launch_affine(f->a, f->dev, 1, 1, N));
    FAILS(cudaStreamSynchronize(f->a), cudaErrorECCUncorrectable);
    FAILS(cudaMalloc(&p, 64), cudaErrorECCUncorrectable);
    assert_int_equal(simt_faults(), 0);
}

static void test_launches(void **state)
{
    struct fixture *f = *state;
    FAILS(launch_shaped(f->a, 1, 1, 1025, 0), cudaErrorInvalidConfiguration);
    FAILS(launch_shaped(f->a, 1, 1, 0, 0), cudaErrorInvalidConfiguration);
    FAILS(launch_shaped(f->a, 0, 1, 32, 0), cudaErrorInvalidConfiguration);
    FAILS(launch_shaped(f->a, 1, 65536, 32, 0), cudaErrorInvalidConfiguration);
    FAILS(launch_shaped((cudaStream_t)f->dev, 1, 1, 32, 0), cudaErrorInvalidResourceHandle);
    OK(launch_shaped(f->a, 1, 1, 1024, 48 << 10));
    FAILS(launch_shaped(f->a, 1, 1, 32, (48 << 10) + 1), cudaErrorInvalidValue);
    FAILS(allow_shared((227 << 10) + 1), cudaErrorInvalidValue);
    OK(allow_shared(99 << 10)); /* the error above is still pending */
    FAILS(launch_shaped(f->a, 1, 1, 32, 99 << 10), cudaErrorInvalidValue);
    OK(launch_shaped(f->a, 1, 1, 32, 99 << 10));
    FAILS(launch_shaped(f->a, 1, 1, 32, (99 << 10) + 1), cudaErrorInvalidValue);
    OK(cudaStreamSynchronize(f->a));
    int n;
    OK(occupancy(&n, 256, 0));
    assert_int_equal(n, 8);
    OK(occupancy(&n, 128, 99 << 10));
    assert_int_equal(n, 2);
    setenv("QUIRE_SIMT_SHARED_KIB", "99", 1);
    FAILS(allow_shared(100 << 10), cudaErrorInvalidValue);
    unsetenv("QUIRE_SIMT_SHARED_KIB");
}

static void test_memory(void **state)
{
    struct fixture *f = *state;
    size_t available, total, less;
    void *p;
    OK(cudaMemGetInfo(&available, &total));
    assert_true(total == 256u << 20 && available < total);
    FAILS(cudaMalloc(&p, available + 512), cudaErrorMemoryAllocation);
    OK(cudaMalloc(&p, 1000));
    OK(cudaMemGetInfo(&less, &total));
    assert_int_equal(available - less, 1024);
    OK(cudaFree(p));
    FAILS(cudaFree(p), cudaErrorInvalidValue);
    FAILS(cudaFree(f->pinned), cudaErrorInvalidValue);
    FAILS(cudaFreeHost(f->dev), cudaErrorInvalidValue);
    FAILS(cudaFree(f->dev + 1), cudaErrorInvalidValue);
    OK(cudaFree(NULL));
    assert_true(isnan(get_dev(f)) && isnan(f->pinned[0]));
    float x[N];
    FAILS(cudaMemcpy(f->dev + 1, x, BYTES, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    FAILS(cudaMemcpyAsync(f->dev, f->pinned, BYTES, cudaMemcpyDeviceToDevice, f->a), cudaErrorInvalidValue);
    FAILS(cudaMemcpyAsync(x, f->dev, BYTES, cudaMemcpyHostToDevice, f->a), cudaErrorInvalidValue);
    FAILS(cudaMemcpyAsync(p, x, 1000, cudaMemcpyDefault, f->a), cudaErrorInvalidValue); /* freed, and not pageable */
    OK(cudaMemcpyAsync(f->dev, x, BYTES, cudaMemcpyDefault, f->a));
    OK(cudaMemcpyAsync(f->dev, NULL, 0, cudaMemcpyHostToDevice, f->a));
}

static void test_device(void **state)
{
    (void)state;
    int n;
    struct cudaDeviceProp prop, same;
    OK(cudaGetDeviceCount(&n));
    assert_int_equal(n, 1);
    FAILS(cudaSetDevice(1), cudaErrorInvalidDevice);
    OK(cudaGetDeviceProperties(&prop, 0));
    assert_string_equal(prop.name, "SIMT emulator");
    assert_true(prop.multiProcessorCount == 4 && prop.major == 9 && prop.minor == 0);
    assert_int_equal(prop.sharedMemPerBlockOptin, 227 << 10);
    setenv("QUIRE_SIMT_SMS", "7", 1);
    setenv("QUIRE_SIMT_CAPABILITY", "86", 1);
    setenv("QUIRE_SIMT_DEVICES", "2", 1);
    OK(cudaGetDeviceProperties(&prop, 1));
    assert_true(prop.multiProcessorCount == 7 && prop.major == 8 && prop.minor == 6);
    setenv("CUDA_VISIBLE_DEVICES", "1,5,0", 1); /* devices after a missing one are not visible */
    OK(cudaGetDeviceCount(&n));
    assert_int_equal(n, 1);
    OK(cudaGetDeviceProperties(&same, 0));
    assert_int_equal(same.pciBusID, 1);
    assert_memory_equal(&same.uuid, &prop.uuid, sizeof prop.uuid);
    setenv("QUIRE_SIMT_HOST", "other", 1);
    OK(cudaGetDeviceProperties(&same, 0));
    assert_memory_not_equal(&same.uuid, &prop.uuid, sizeof prop.uuid);
    unsetenv("QUIRE_SIMT_HOST");
    unsetenv("CUDA_VISIBLE_DEVICES");
    setenv("QUIRE_SIMT_DEVICES", "0", 1);
    FAILS(cudaGetDeviceCount(&n), cudaErrorNoDevice);
    unsetenv("QUIRE_SIMT_SMS");
    unsetenv("QUIRE_SIMT_CAPABILITY");
    unsetenv("QUIRE_SIMT_DEVICES");
    assert_string_equal(cudaGetErrorName(cudaErrorNoDevice), "cudaErrorNoDevice");
    assert_string_equal(cudaGetErrorString(cudaErrorNoDevice), "no CUDA-capable device is detected");
}

static void *device_of_thread(void *out)
{
    cudaGetDevice(out);
    return NULL;
}

static void test_two_devices(void **state)
{
    struct fixture *f = *state;
    cudaStream_t stream;
    size_t available, less, total;
    pthread_t thread;
    void *p;
    setenv("QUIRE_SIMT_DEVICES", "2", 1);
    OK(allow_shared(64 << 10));
    OK(cudaSetDevice(1));
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    FAILS(launch_affine(f->a, f->dev, 1, 1, N), cudaErrorInvalidResourceHandle); /* device 0's */
    FAILS(cudaEventRecord(f->event, stream), cudaErrorInvalidResourceHandle);
    cudaGetLastError();
    FAILS(launch_shaped(stream, 1, 1, 32, 64 << 10), cudaErrorInvalidValue); /* allowed on device 0 only */
    OK(cudaMemGetInfo(&available, &total));
    OK(cudaMalloc(&p, 4096));
    OK(cudaMemGetInfo(&less, &total));
    assert_int_equal(available - less, 4096);
    int device = 1;
    assert_int_equal(pthread_create(&thread, NULL, device_of_thread, &device), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(device, 0); /* each thread begins with it */
    OK(cudaSetDevice(0));
    OK(launch_shaped(f->a, 1, 1, 32, 64 << 10));
    unsetenv("QUIRE_SIMT_DEVICES");
}

/* ---- the end of a process ---------------------------------------------------------------------- */

static int end_badly(const char *how)
{
    struct fixture *f;
    set_up((void **)&f);
    if (strcmp(how, "--fault") == 0) {
        launch_past_the_end(f->a, f->dev);
        cudaStreamSynchronize(f->a);
    }
    if (strcmp(how, "--leak") != 0) {
        cudaStreamDestroy(f->a);
        cudaStreamDestroy(f->b);
        cudaEventDestroy(f->event);
        cudaFree(f->dev);
        cudaFreeHost(f->pinned);
    }
    return 0;
}

static void test_exit_status(void **state)
{
    (void)state;
    static const struct {
        const char *how;
        int status;
    } ends[] = {{"--clean", 0}, {"--leak", SIMT_EXIT_STATUS}, {"--fault", SIMT_EXIT_STATUS}};
    for (int i = 0; i < 3; i++) {
        char command[64];
        snprintf(command, sizeof command, "/proc/%d/exe %s 2>/dev/null", (int)getpid(), ends[i].how);
        int status = system(command);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), ends[i].status);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return end_badly(argv[1]);
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_late),
        TEST(test_host_memory),
        TEST(test_two_streams),
        TEST(test_queries),
        TEST(test_full_queue),
        TEST(test_graph),
        TEST(test_capture_forbids),
        TEST(test_graph_outlives_its_memory),
        TEST(test_illegal_address),
        TEST(test_misaligned),
        TEST(test_race),
        TEST(test_asked_for),
        TEST(test_launches),
        TEST(test_memory),
        TEST(test_device),
        TEST(test_two_devices),
        TEST(test_exit_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
