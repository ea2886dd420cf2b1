/* Kernels with one fault each, and a correct version of each. The template argument selects the version. */
#include "kernels/cuda/device.cuh"

#include "tests/simt/faults.h"

K_DYNAMIC_SHARED;

namespace
{

constexpr int n_threads = 128;

/* ---- barriers that are missing ---- */

template <bool right> __global__ void read_after_write(int *out)
{
    __shared__ int s[n_threads];
    int t = (int)threadIdx.x;
    s[t] = t;
    if (right)
        __syncthreads();
    out[t] = s[n_threads - 1 - t];
}

template <bool right> __global__ void write_after_read(int *out)
{
    __shared__ int s[n_threads];
    int t = (int)threadIdx.x;
    s[t] = t;
    __syncthreads();
    int v = s[n_threads - 1 - t];
    if (right)
        __syncthreads();
    s[t] = v;
    __syncthreads();
    out[t] = s[t];
}

template <bool right> __global__ void write_after_write(int *out)
{
    __shared__ int s[n_threads];
    int t = (int)threadIdx.x;
    s[t] = t;
    if (right)
        __syncthreads();
    s[n_threads - 1 - t] = t;
    __syncthreads();
    out[t] = s[t];
}

/* A shuffle orders registers, not memory. */
template <bool right> __global__ void lanes_of_a_warp(int *out)
{
    __shared__ int s[n_threads];
    int t = (int)threadIdx.x;
    s[t] = t;
    int v = __shfl_xor_sync(~0u, t, 1);
    if (right)
        __syncwarp();
    out[t] = s[v];
}

template <bool right> __global__ void global_in_a_block(int *out)
{
    int t = (int)threadIdx.x;
    out[t] = t;
    if (right)
        __syncthreads();
    out[n_threads + t] = out[n_threads - 1 - t];
}

template <bool right> __global__ void plain_read_of_an_atomic(unsigned *out)
{
    __shared__ unsigned n;
    if (threadIdx.x == 0)
        n = 0;
    __syncthreads();
    atomicAdd(&n, 1u);
    if (right)
        __syncthreads();
    out[threadIdx.x] = n;
}

template <bool right> __global__ void never_written(int *out)
{
    __shared__ int s[n_threads];
    int t = (int)threadIdx.x;
    if (right || t != 5)
        s[t] = t;
    __syncthreads();
    out[t] = s[t];
}

/* Threads that write and read adjacent halves and bytes do not race, */
__global__ void adjacent_halves(int *out)
{
    __shared__ uint16_t s[n_threads];
    int t = (int)threadIdx.x;
    s[t] = (uint16_t)t;
    __syncthreads();
    out[t] = s[n_threads - 1 - t];
}

__global__ void adjacent_bytes(int *out)
{
    ((unsigned char *)out)[blockIdx.x * blockDim.x + threadIdx.x] = 1;
}

/* and neither do readers of one word, or the phases of a loop. */
__global__ void phases(int *out)
{
    __shared__ int s[n_threads];
    int t = (int)threadIdx.x, sum = 0;
    for (int i = 0; i < 70; i++) {
        s[t] = i;
        __syncthreads();
        sum += s[0] + s[(t + i) % n_threads];
        __syncthreads();
    }
    for (int i = 0; i < 70; i++) {
        s[t] = i;
        __syncwarp();
        sum += s[t ^ 1] + s[t & ~31];
        __syncwarp();
    }
    out[t] = sum;
}

/* ---- bounds ---- */

template <bool right> __global__ void dynamic_shared(int *out)
{
    int t = (int)threadIdx.x;
    int *s = (int *)k_shared;
    s[right ? t : t + 1] = t;
    __syncthreads();
    out[t] = s[t + !right];
}

template <bool right> __global__ void index_of_array(int *out, int first)
{
    __shared__ int s[n_threads];
    int i = (int)threadIdx.x + first;
    s[i] = 1;
    out[threadIdx.x] = s[i];
}

__global__ void write_at(int *out, int index)
{
    out[index + (int)threadIdx.x] = 1;
}

__global__ void copy_int(int *out, const int *in)
{
    out[threadIdx.x] = in[threadIdx.x];
}

template <class T> __global__ void read_wide(int *out, const T *in)
{
    T v = in[threadIdx.x];
    out[threadIdx.x] = (int)v.x;
}

template <bool right> __global__ void ldmatrix_row(int *out)
{
    int t = (int)threadIdx.x;
    uint32_t r[4];
    for (int i = 0; i < 5; i++)
        ((uint32_t *)k_shared)[t * 5 + i] = 1;
    __syncwarp();
    ldmatrix_x4(r, k_shared + t * 16 + (right ? 0 : 4));
    out[t] = (int)r[0];
}

template <bool right> __global__ void ldmatrix_of_the_unwritten(int *out)
{
    int t = (int)threadIdx.x;
    uint32_t r[4];
    for (int i = 0; i < 4; i++)
        if (right || t != 17)
            ((uint32_t *)k_shared)[t * 4 + i] = 1;
    __syncwarp();
    ldmatrix_x4(r, k_shared + t * 16);
    out[t] = (int)r[0];
}

template <bool right> __global__ void ldmatrix_of_other_lanes(int *out)
{
    int t = (int)threadIdx.x;
    uint32_t r[4];
    *(uint4 *)(k_shared + (31 - t) * 16) = make_uint4(1, 2, 3, 4);
    if (right)
        __syncwarp();
    ldmatrix_x4(r, k_shared + t * 16);
    out[t] = (int)r[0];
}

/* ---- barriers that not all threads reach ---- */

template <int form> __global__ void barrier_for_some(int *out)
{
    int t = (int)threadIdx.x;
    if (form == 0 && t < 64)
        __syncthreads();
    if (form == 1) {
        if (t < 64)
            __syncthreads();
        else
            __syncthreads();
    }
    if (form == 2) {
        if (t > 100)
            return;
        __syncthreads();
    }
    if (form == 3) {
        if (t % 32 < 16)
            __syncwarp();
        else
            __syncthreads();
    }
    out[t] = t;
}

/* A whole block may return early. */
__global__ void some_blocks_leave(int *out)
{
    if (blockIdx.x == 1)
        return;
    __syncthreads();
    out[blockIdx.x * n_threads + threadIdx.x] = 1;
}

/* ---- operations of a warp ---- */

template <int form> __global__ void warp_operations(int *out)
{
    int t = (int)threadIdx.x, lane = t % 32, v = t;
    if (form == 0) { /* correct: the two halves of a warp separately */
        if (lane < 16)
            v = __shfl_xor_sync(0xffffu, v, 1);
        else
            v = __shfl_down_sync(0xffff0000u, v, 2, 16);
        v += (int)__ballot_sync(~0u, lane & 1);
    }
    if (form == 1) { /* different operations */
        if (lane < 16)
            v = __shfl_xor_sync(~0u, v, 1);
        else
            v = (int)__ballot_sync(~0u, t & 1);
    }
    if (form == 2 && lane < 16) /* a value of an absent lane */
        v = __shfl_sync(0xffffu, v, 20);
    if (form == 3) /* a lane that is not in its mask */
        v = __shfl_xor_sync(0xffffu, v, 1);
    if (form == 4) { /* different masks */
        if (lane < 16)
            v = __shfl_xor_sync(0xffffu, v, 1);
        else
            v = __shfl_xor_sync(~0u, v, 1);
    }
    if (form == 5 && lane < 16) /* lanes that never arrive */
        v = __shfl_xor_sync(~0u, v, 1);
    out[t] = v;
}

/* ---- cp.async ---- */

/* Two groups. Forms: 0 correct, 1 waits for one group too few, 2 no wait, 3 no barrier, 4 refilled before all have
 * read. */
template <int form> __global__ void async_copies(int *out, const int *in)
{
    int t = (int)threadIdx.x;
    int *first = (int *)k_shared, *second = first + 4 * n_threads;
    cp_async16(first + 4 * t, in + 4 * t, true);
    cp_async_commit();
    cp_async16(second + 4 * t, in + 4 * t, t % 2);
    cp_async_commit();
    if (form != 1 && form != 2)
        cp_async_wait<1>();
    else if (form == 1)
        cp_async_wait<2>();
    if (form != 3)
        __syncthreads();
    int v = first[4 * (n_threads - 1 - t)];
    if (form != 4)
        __syncthreads();
    cp_async16(first + 4 * t, in + 4 * t, true);
    cp_async_commit();
    if (form != 2)
        cp_async_wait<0>();
    __syncthreads();
    out[t] = v;
}

/* ---- memory that does not belong to the device ---- */

__global__ void through_pointer(int **p)
{
    **p = 1;
}

__global__ void local_of_another(int *out)
{
    __shared__ int *s;
    int local[4] = {1, 2, 3, (int)threadIdx.x};
    if (threadIdx.x == 0)
        s = local;
    __syncthreads();
    if (threadIdx.x == 1)
        out[0] = s[2];
    __syncthreads();
    out[1 + threadIdx.x] = local[threadIdx.x % 4];
}

/* ---- between blocks ---- */

template <bool right> __global__ void blocks(int *out)
{
    if (threadIdx.x == 0)
        out[blockIdx.x] = 1;
    if (!right && threadIdx.x == 0 && blockIdx.x)
        out[32 + blockIdx.x] = out[blockIdx.x - 1];
}

template <bool right> __global__ void all_blocks_write(int *out)
{
    if (threadIdx.x == 0)
        out[right ? blockIdx.x : 0] = 1;
}

/* Each block stores a part, and the last block to arrive adds them. */
enum { IN_ORDER, NO_RELEASE, NO_ACQUIRE, NO_BARRIER };

template <int what> __global__ void last_block_adds(int *out, unsigned *n_done)
{
    __shared__ bool is_last;
    if (threadIdx.x == 0)
        out[blockIdx.x] = (int)blockIdx.x;
    if (what != NO_RELEASE)
        __threadfence();
    if (threadIdx.x == 0)
        is_last = atomicAdd(n_done, 1u) == gridDim.x - 1;
    __syncthreads();
    if (!is_last)
        return;
    if (what != NO_ACQUIRE)
        __threadfence();
    if (threadIdx.x == 0) {
        int sum = 0;
        for (unsigned i = 0; i < gridDim.x; i++)
            sum += out[i];
        out[gridDim.x] = sum;
    }
}

/* The same with a part per thread, twice: after a barrier, one thread's fence orders all threads' writes. */
template <int what> __global__ void last_block_adds_threads(int *out, unsigned *n_done)
{
    unsigned n = gridDim.x * blockDim.x;
    for (unsigned round = 0; round < 2; round++) {
        int *parts = out + round * (n + 1);
        bool is_last = false;
        parts[blockIdx.x * blockDim.x + threadIdx.x] = (int)threadIdx.x;
        if (what != NO_BARRIER)
            __syncthreads();
        if (threadIdx.x == 0) {
            if (what != NO_RELEASE)
                __threadfence();
            is_last = atomicInc(n_done + round, gridDim.x - 1) == gridDim.x - 1;
            if (what != NO_ACQUIRE)
                __threadfence();
        }
        if (__syncthreads_or(is_last) == 0)
            continue;
        if (threadIdx.x == 1) {
            int sum = 0;
            for (unsigned i = 0; i < n; i++)
                sum += parts[i];
            parts[n] = sum;
        }
    }
}

/* ---- the launches ---- */

constexpr int n_ints = 600; /* not a multiple of 256 bytes: the bounds are exact */

/* Zeroed device memory for a case. */
struct Memory {
    int *p = (int *)simt::dev_alloc(n_ints * sizeof(int));
    Memory()
    {
        for (int i = 0; i < n_ints; i++)
            p[i] = 0;
    }
    ~Memory()
    {
        simt::dev_free(p);
    }
};

template <class... P> void run_on(void (*kernel)(int *, P...), P... more)
{
    Memory m;
    simt::launch_k(1, n_threads, 0, kernel, m.p, more...);
}

template <class... P> void run_shared(unsigned block, size_t shared_bytes, void (*kernel)(int *, P...), P... more)
{
    Memory m;
    simt::launch_k(1, block, shared_bytes, kernel, m.p, more...);
}

template <int form> void run_async()
{
    Memory in, out;
    simt::launch_k(1, n_threads, 8 * n_threads * sizeof(int), async_copies<form>, out.p, (const int *)in.p);
}

template <class T> void run_wide(int offset_bytes)
{
    Memory in, out;
    simt::launch_k(1, 32, 0, read_wide<T>, out.p, (const T *)((const char *)in.p + offset_bytes));
}

template <bool right> void run_plain_read()
{
    Memory m;
    simt::launch_k(1, n_threads, 0, plain_read_of_an_atomic<right>, (unsigned *)m.p);
}

void run_pointer(int *target)
{
    int **p = (int **)simt::dev_alloc(sizeof *p);
    *p = target;
    simt::launch_k(1, 1, 0, through_pointer, p);
    simt::dev_free(p);
}

int host_global;

void run_host()
{
    int *target = new int();
    run_pointer(target);
    delete target;
}

void run_freed()
{
    int *gone = (int *)simt::dev_alloc(400);
    simt::dev_free(gone);
    Memory m;
    simt::launch_k(1, 32, 0, copy_int, m.p, (const int *)gone);
}

template <class... P> void run_blocks(void (*kernel)(int *, P...), P... more)
{
    Memory m;
    simt::launch_k(10, 32, 0, kernel, m.p, more...);
}

void run_last_block(void (*kernel)(int *, unsigned *))
{
    Memory m, n_done;
    simt::launch_k(8, 32, 0, kernel, m.p, (unsigned *)n_done.p);
}

} // namespace

#define PAIR(name, kind, wrong, right) \
    {name, kind, [] { wrong; }}, \
    { \
        name ": right", nullptr, [] { right; } \
    }
#define WRONG(name, kind, wrong) {name, kind, [] { wrong; }}
#define RIGHT(name, right) {name, nullptr, [] { right; }}

const struct fault_case fault_cases[] = {
    PAIR("read after write", "RACE", run_on(read_after_write<false>), run_on(read_after_write<true>)),
    PAIR("write after read", "RACE", run_on(write_after_read<false>), run_on(write_after_read<true>)),
    PAIR("write after write", "RACE", run_on(write_after_write<false>), run_on(write_after_write<true>)),
    PAIR("lanes of a warp", "RACE", run_on(lanes_of_a_warp<false>), run_on(lanes_of_a_warp<true>)),
    PAIR("global memory in a block", "RACE", run_on(global_in_a_block<false>), run_on(global_in_a_block<true>)),
    PAIR("plain read of an atomic", "RACE", run_plain_read<false>(), run_plain_read<true>()),
    PAIR("shared memory never written", "UNINIT_SHARED", run_on(never_written<false>), run_on(never_written<true>)),
    RIGHT("adjacent halves", run_on(adjacent_halves)),
    RIGHT("adjacent bytes",
          {
              Memory m;
              simt::launch_k(7, 33, 0, adjacent_bytes, m.p);
          }),
    RIGHT("phases of a loop", run_on(phases)),

    PAIR("dynamic shared memory", "OOB_SHARED", run_shared(n_threads, n_threads * 4, dynamic_shared<false>),
         run_shared(n_threads, n_threads * 4, dynamic_shared<true>)),
    WRONG("dynamic shared memory that the launch did not ask for", "OOB_SHARED", run_on(dynamic_shared<true>)),
    PAIR("index of an array", "OOB_INDEX", run_on(index_of_array<false>, 3), run_on(index_of_array<true>, 0)),
    PAIR("past an allocation", "OOB_GLOBAL", run_on(write_at, n_ints - n_threads + 1),
         run_on(write_at, n_ints - n_threads)),
    WRONG("before an allocation", "OOB_GLOBAL", run_on(write_at, -1)),
    WRONG("far behind an allocation", "OOB_GLOBAL", run_on(write_at, 1 << 20)),
    WRONG("freed memory", "USE_AFTER_FREE", run_freed()),

    PAIR("16 bytes at 4", "MISALIGNED", run_wide<uint4>(4), run_wide<uint4>(16)),
    PAIR("8 bytes at 4", "MISALIGNED", run_wide<float2>(4), run_wide<float2>(8)),
    PAIR("ldmatrix of a row at 4", "MISALIGNED", run_shared(32, 640, ldmatrix_row<false>),
         run_shared(32, 640, ldmatrix_row<true>)),
    PAIR("ldmatrix of the unwritten", "UNINIT_SHARED", run_shared(32, 512, ldmatrix_of_the_unwritten<false>),
         run_shared(32, 512, ldmatrix_of_the_unwritten<true>)),
    PAIR("ldmatrix of what other lanes wrote", "RACE", run_shared(32, 512, ldmatrix_of_other_lanes<false>),
         run_shared(32, 512, ldmatrix_of_other_lanes<true>)),

    WRONG("barrier in half the block", "DIVERGENT_BARRIER", run_on(barrier_for_some<0>)),
    WRONG("two barriers in two branches", "DIVERGENT_BARRIER", run_on(barrier_for_some<1>)),
    WRONG("barrier after an exit", "DIVERGENT_BARRIER", run_on(barrier_for_some<2>)),
    WRONG("__syncwarp against __syncthreads", "DEADLOCK", run_on(barrier_for_some<3>)),
    RIGHT("blocks that leave",
          {
              Memory m;
              simt::launch_k(4, n_threads, 0, some_blocks_leave, m.p);
          }),

    RIGHT("halves of a warp", run_on(warp_operations<0>)),
    WRONG("different operations in a warp", "DIVERGENT_WARP_OP", run_on(warp_operations<1>)),
    WRONG("shuffle from an absent lane", "BAD_MASK", run_on(warp_operations<2>)),
    WRONG("lane outside of its mask", "BAD_MASK", run_on(warp_operations<3>)),
    WRONG("different masks in a warp", "BAD_MASK|DEADLOCK", run_on(warp_operations<4>)),
    WRONG("lanes that never come", "BAD_MASK|DEADLOCK", run_on(warp_operations<5>)),
    WRONG("full mask in part of a warp", "BAD_MASK", run_shared(40, 0, warp_operations<0>)),

    RIGHT("cp.async", run_async<0>()),
    WRONG("cp.async, one group too few", "CP_ASYNC_IN_FLIGHT", run_async<1>()),
    WRONG("cp.async, no wait", "CP_ASYNC_LEFT", run_async<2>()),
    WRONG("cp.async, no barrier", "RACE", run_async<3>()),
    WRONG("cp.async, refilled too early", "RACE", run_async<4>()),

    WRONG("pointer to host memory", "WILD", run_host()),
    WRONG("pointer to a variable of the host", "WILD", run_pointer(&host_global)),
    WRONG("null", "WILD", run_pointer(nullptr)),
    WRONG("another thread's local", "WILD", run_on(local_of_another)),

    PAIR("blocks that read each other's", "RACE_BLOCKS", run_blocks(blocks<false>), run_blocks(blocks<true>)),
    PAIR("blocks that write the same", "RACE_BLOCKS", run_blocks(all_blocks_write<false>),
         run_blocks(all_blocks_write<true>)),
    PAIR("the last block adds, no acquire", "RACE_BLOCKS", run_last_block(last_block_adds<NO_ACQUIRE>),
         run_last_block(last_block_adds<IN_ORDER>)),
    WRONG("the last block adds, no release", "RACE_BLOCKS", run_last_block(last_block_adds<NO_RELEASE>)),
    PAIR("the last block adds its threads', no release", "RACE_BLOCKS",
         run_last_block(last_block_adds_threads<NO_RELEASE>), run_last_block(last_block_adds_threads<IN_ORDER>)),
    WRONG("the last block adds its threads', no acquire", "RACE_BLOCKS",
          run_last_block(last_block_adds_threads<NO_ACQUIRE>)),
    WRONG("the last block adds its threads', no barrier", "RACE_BLOCKS",
          run_last_block(last_block_adds_threads<NO_BARRIER>)),

    WRONG("block of no threads", "BAD_LAUNCH", run_shared(0, 0, read_after_write<true>)),
    WRONG("block of 1025 threads", "BAD_LAUNCH", run_shared(1025, 0, read_after_write<true>)),
};
const int n_fault_cases = sizeof fault_cases / sizeof fault_cases[0];
