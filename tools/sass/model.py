"""The predicted cost of a kernel on a GPU, by counting: docs/benchmarks/gpu-predicted.md describes the model and its
validation.

A stage is one pass of a kernel's inner loop, by all warps of a block. Each limit gives a number of clocks of an SM:

    issue   a scheduler issues one instruction of its warps a clock; there are four
    alu     integers, compares, selects, conversions to 16 bits: 16 lanes a scheduler, so 2 clocks each
    fma     f32 and f16 arithmetic: 32 lanes, 1 clock; integer multiply-add: 16 lanes, 2 clocks
    xu      exp2, reciprocals, conversions of integers: 4 lanes, 8 clocks
    tensor  mma.sync at MMA_SHARE of what wgmma reaches on Hopper; wgmma at the whole rate
    shared  128 bytes a clock, for ldmatrix, loads, stores, copies and shuffles; without bank conflicts
    memory  the bytes that the stage takes out of HBM, at HBM_SHARE of the data sheet's rate

Limits overlap, but not wholly: a stage takes the root of the sum of their squares. The exponent is the one number that was
chosen to fit published kernels (references.py). The model is frozen: a change requires those predictions again.
"""
import collections

from sass import listing

Machine = collections.namedtuple("Machine", "name sms clock_ghz hbm_gb_s mma_flops wgmma_flops warps registers shared_kb")

MMA_SHARE = 0.62    # of wgmma's rate, measured by Luo et al., arXiv 2402.13499
HBM_SHARE = 0.92    # of the data sheet: what reading alone reaches
EXPONENT = 2.0
SHARED_BYTES = 128  # a clock
LATENCY_NS = 800    # from a copy's start to its bytes, under load
GRAPH_NODE_US = 1.3 # between dependent kernels of a graph on an H100, measured by Hazy Research ("No Bubbles", 2025)

# FLOP a clock and SM of 16-bit factors. 1.755 GHz is what an H100 SXM keeps under tensor load.
H100 = Machine("H100 SXM", 132, 1.755, 3350, MMA_SHARE * 4096, 4096, 64, 65536, 227)
H200 = H100._replace(name="H200 SXM", hbm_gb_s=4800)
A10 = Machine("A10", 72, 1.695, 600, 1024, 1024, 48, 65536, 99)  # for Marlin, which was published on it

# Warps and KB of shared memory of an SM, for the blocks that it holds.
SM_OF = {"sm_80": (64, 163), "sm_86": (48, 99), "sm_89": (48, 99), "sm_90a": (64, 227), "sm_100a": (64, 227), "sm_120a": (48, 99)}


def machine_of(arch):
    warps, shared_kb = SM_OF.get(arch, SM_OF["sm_90a"])
    return H100._replace(name=arch, warps=warps, shared_kb=shared_kb)


def occupancy(machine, registers, threads, shared_bytes):
    """Number of blocks that an SM holds. Registers are given to warps by 256, shared memory in KB, one of which the
    driver has."""
    warps = (threads + 31) // 32
    by_registers = machine.registers // (warps * 32 * ((registers + 7) // 8 * 8)) if registers else 32
    by_shared = int(machine.shared_kb // ((shared_bytes + 1023) // 1024 + 1)) if shared_bytes else 32
    return max(0, min(32, by_registers, by_shared, machine.warps // warps))


def limits(machine, counts, warps, hbm_bytes=0, async_bytes=0):
    """Clocks of an SM for a stage of a block, by limit. async_bytes: TMA's, which no instruction of a warp shows. It
    includes wgmma's reads of shared memory."""
    by = counts.pipes
    is_wgmma = any(counts.opcodes[o] for o in listing.WGMMA)
    rate = machine.wgmma_flops * (2 if counts.opcodes["QGMMA"] else 1) if is_wgmma else machine.mma_flops
    return {
        "issue": counts.n * warps / 4,
        "alu": 2 * by["alu"] * warps / 4,
        "fma": (by["fma"] + counts.slow_fma) * warps / 4,
        "xu": 8 * by["xu"] * warps / 4,
        "tensor": counts.flops * warps / rate,
        "shared": (counts.shared * warps + async_bytes) / SHARED_BYTES,
        "memory": hbm_bytes / hbm_bytes_a_clock(machine),
    }


def hbm_bytes_a_clock(machine):
    """Of an SM, if all of them read."""
    return HBM_SHARE * machine.hbm_gb_s / machine.sms / machine.clock_ghz


def clocks(terms):
    return sum(t**EXPONENT for t in terms.values()) ** (1 / EXPONENT)


def teraflops(machine, flops_a_stage, stage_clocks):
    return flops_a_stage / stage_clocks * machine.sms * machine.clock_ghz * 1e9 / 1e12


def waves(blocks, slots):
    """Share of busy slots, from the first block's start to the last one's end."""
    return blocks / (-(-blocks // slots) * slots)
