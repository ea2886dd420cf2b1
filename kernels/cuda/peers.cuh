/* Memory of several GPUs, one process each, that all kernels can access: how the blocks of a launch meet the blocks of
 * the same launch on the other ranks.
 *
 * A rank's memory (struct cuda_peers) has for each block two areas of 64 KiB, a flag per rank, and a count of rounds.
 * In a round a block fills its own area of the round (they alternate), stores the round's number into its flag in the
 * memory of every peer, and waits for the peers' flags in its own memory. Then it may read the same block's areas of
 * all peers, until it stores the next round's number. So an area is written again only after every peer has reached the
 * round in between, after its last read. There are no other waits, and the blocks of one launch are independent of each
 * other.
 *
 * Counts are in memory, not in arguments, so that a recorded launch may run any number of times. All ranks launch the
 * same grids with the same sizes, so their counts agree. A grid has at most CUDA_PEER_BLOCKS blocks, all of which any
 * GPU can hold at once: a block that waits for a peer's block can never block it.
 *
 * The order of memory operations: the writes of a block's threads, then the barrier, then the flag's release at system
 * scope; then the peer's acquire, its barrier and its threads' reads (PTX ISA, memory consistency model: causality).
 *
 * A wait ends by the flag, by the host's word, or by the time-out. If it ends in one of the latter two ways, this
 * launch and all later launches have no effect; the host checks for it when a step is done (host/group.c).
 */
#ifndef QUIRE_KERNELS_CUDA_PEERS_CUH
#define QUIRE_KERNELS_CUDA_PEERS_CUH

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/plan/plan.h"

#define PEER_FN static __device__ __forceinline__

/* Reads of a flag, about 0.7 µs each, between two reads of the clock and of the host's word, which is behind the
 * bus. */
#define PEER_LOOKS 256u

PEER_FN uint32_t *peer_flag(const struct cuda_peers &p, uint32_t of, uint32_t from)
{
    return (uint32_t *)p.memory[of] + blockIdx.x * K_MAX_RANKS + from;
}

PEER_FN uint32_t *peer_rounds(const struct cuda_peers &p)
{
    return (uint32_t *)(p.own + CUDA_PEER_FLAG_BYTES) + blockIdx.x;
}

PEER_FN uint32_t *peer_over(const struct cuda_peers &p)
{
    return (uint32_t *)(p.own + CUDA_PEER_FLAG_BYTES) + CUDA_PEER_BLOCKS;
}

/* Returns the block's area of a round in a rank's memory. */
template <class V> PEER_FN V *peer_area(unsigned char *memory, uint32_t round)
{
    return (V *)(memory + CUDA_PEER_HEAD_BYTES + (blockIdx.x * 2 + (round & 1)) * CUDA_PEER_AREA_BYTES);
}

/* Reads the block's count of rounds. Returns false to all of its threads if the group has ended. */
PEER_FN bool peers_begin(const struct cuda_peers &p, uint32_t *round)
{
    *round = *peer_rounds(p);
    return __syncthreads_or(threadIdx.x == 0 && ptx_load_relaxed_sys(peer_over(p)) != 0) == 0;
}

PEER_FN void peers_end(const struct cuda_peers &p, uint32_t round)
{
    if (threadIdx.x == 0)
        *peer_rounds(p) = round;
}

/* Waits until the rank's block has reached the round. */
PEER_FN bool peer_wait(const struct cuda_peers &p, uint32_t of, uint32_t round)
{
    const uint32_t *flag = peer_flag(p, p.rank, of);
    uint64_t began = 0;
    for (uint32_t looks = 1; (int32_t)(ptx_load_acquire_sys(flag) - round) < 0; looks++) {
        if (looks % PEER_LOOKS != 0)
            continue;
        const uint64_t now = ptx_nanoseconds();
        began = began == 0 ? now : began;
        if (ptx_load_relaxed_sys(&p.control[CUDA_CONTROL_ABORT]) != 0)
            return false;
        if (now - began > p.timeout_ns) {
            ptx_store_relaxed_sys(&p.control[CUDA_CONTROL_LATE], of + 1);
            return false;
        }
    }
    return true;
}

/* Called when the block has filled its area of the round. Waits until every peer has. Returns false if one has not
 * arrived; the block then returns. */
PEER_FN bool peers_meet(const struct cuda_peers &p, uint32_t round)
{
    const uint32_t peer = threadIdx.x;
    bool is_missed = false;
    __syncthreads(); /* orders the threads' writes, and their reads of the previous round, before the flags */
    if (threadIdx.x < 32) {
        if (peer < p.n_ranks && peer != p.rank)
            ptx_store_release_sys(peer_flag(p, peer, p.rank), round);
        __syncwarp(); /* notify all peers before waiting for any */
        if (peer < p.n_ranks && peer != p.rank)
            is_missed = !peer_wait(p, peer, round);
        if (is_missed) {
            ptx_store_relaxed_sys(&p.control[CUDA_CONTROL_OVER], 1);
            ptx_store_relaxed_sys(peer_over(p), 1);
        }
    }
    return __syncthreads_or(is_missed) == 0;
}

/* ---- sums ---- */

PEER_FN float sum(float a, float b)
{
    return a + b;
}

PEER_FN float4 sum(float4 a, float4 b)
{
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

/* The tree of docs/internals/numerics.md §5. */
template <class V> PEER_FN V tree(const V (&v)[2])
{
    return sum(v[0], v[1]);
}
template <class V> PEER_FN V tree(const V (&v)[4])
{
    return sum(sum(v[0], v[1]), sum(v[2], v[3]));
}
template <class V> PEER_FN V tree(const V (&v)[8])
{
    return sum(sum(sum(v[0], v[1]), sum(v[2], v[3])), sum(sum(v[4], v[5]), sum(v[6], v[7])));
}

/* Returns whether a sum of this many bytes uses one meeting (group.cu). */
static inline bool peers_are_one_shot(uint32_t n_ranks, uint64_t bytes)
{
    return n_ranks == 2 || bytes <= (n_ranks == 4 ? 512u << 10 : 256u << 10);
}

#endif
