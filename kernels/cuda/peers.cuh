/* Memory of several GPUs, a process each, that the kernels of all reach: how the blocks of a launch meet those of the same launch on
 * the other ranks.
 *
 * A rank's memory (struct cuda_peers) has for each block two areas of 64 KiB, a flag for each rank, and a count of rounds.
 * In a round a block fills its own area of the round (they take turns), stores the round's number into its flag in the
 * memory of every peer, and waits for theirs in its own. Then it may read the same block's areas of all peers, until it
 * stores the next round's number. So an area is written again only when every peer has come to the round between, after
 * its last read; nobody waits for anybody else, and blocks of one launch know nothing of each other.
 *
 * Counts lie in memory, not in arguments, so that a recorded launch may run any number of times. All ranks launch the same
 * grids with the same sizes, so their counts agree. A grid has at most CUDA_PEER_BLOCKS blocks, which are on any GPU at
 * once: a block that waits for a peer's can never be in the way of it.
 *
 * What a block's threads wrote comes before the barrier, the barrier before the flag's release at the scope of the system,
 * and that before the peer's acquire, its barrier and its threads' reads (PTX ISA, memory consistency model: causality).
 *
 * A wait ends: by the flag, by the host's word, or when the time is up. A wait that ended otherwise than by the flag leaves
 * all of this and every later launch without effect; the host looks for it when a step is done (host/group.c). */
#ifndef QUIRE_KERNELS_CUDA_PEERS_CUH
#define QUIRE_KERNELS_CUDA_PEERS_CUH

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/plan/plan.h"

#define PEER_FN static __device__ __forceinline__

/* Looks at a flag, some 0.7 µs each, between two at the clock and at the host's word, which lies behind the bus. */
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

/* The block's area of a round, in a rank's memory. */
template <class V> PEER_FN V *peer_area(unsigned char *memory, uint32_t round)
{
    return (V *)(memory + CUDA_PEER_HEAD_BYTES + (blockIdx.x * 2 + (round & 1)) * CUDA_PEER_AREA_BYTES);
}

/* The rounds of the block so far. False, for all of its threads: the group is over. */
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

/* Until the rank's block has come to the round. */
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

/* The block has filled its area of the round: until every peer has. False: one has not come, and the block leaves. */
PEER_FN bool peers_meet(const struct cuda_peers &p, uint32_t round)
{
    const uint32_t peer = threadIdx.x;
    bool is_missed = false;
    __syncthreads(); /* what the block's threads wrote comes before its flags, and their reads of the round before, too */
    if (threadIdx.x < 32) {
        if (peer < p.n_ranks && peer != p.rank)
            ptx_store_release_sys(peer_flag(p, peer, p.rank), round);
        __syncwarp(); /* all have been told before any is waited for */
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

/* docs/numerics.md §5. */
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

/* Whether a sum of so many bytes goes by one meeting (group.cu). */
static inline bool peers_are_one_shot(uint32_t n_ranks, uint64_t bytes)
{
    return n_ranks == 2 || bytes <= (n_ranks == 4 ? 512u << 10 : 256u << 10);
}

#endif
