"""Published kernels and their predictions, the validation of model.py. Compiled by hand, as described in
docs/benchmarks/gpu-predicted.md; this tree contains none of them.

A row: the cubin, a part of the kernel's name, the computing warps of a block, the machine, bytes of a stage by TMA
and from HBM, the share of a full wave, the published value, and its unit: TFLOP/s, or the share of bandwidth.
"""
from sass import cubins, model

# Marlin's loop is four of its stages, of 64 x 256 weights of 4 bits and a scale for 128 of them; its README has 3.87 times f16's
# speed of at most 3.87 at 16 tokens on an A10.
ROWS = (
    ("FlashAttention-2, 128 wide, 8k", "fa2.sm_90", "flash_fwd_kernel", 4, model.H100, 0, 0, 1, 388, "TFLOP/s"),
    ("FlashAttention-3, 128 wide, 8k", "fa3.sm_90a", "FlashAttnFwdSm90", 8, model.H100, 2 * 176 * 128 * 2, 0, 1, 757, "TFLOP/s"),
    ("DeepGEMM BF16, 4096 x 7168 x 16384", "dg.sm_90a", "sm90_bf16_gemm", 8, model.H100, 2 * (128 + 256) * 64 * 2, 0,
     model.waves(32 * 28, 132), 824, "TFLOP/s"),
    ("DeepGEMM FP8, 4096 x 7168 x 16384", "dg8.sm_90a", "sm90_fp8_gemm", 8, model.H100, 8 * (128 + 128) * 128, 0,
     model.waves(32 * 56, 132), 1504, "TFLOP/s"),
    ("WMMA, 8192 x 8192 x 8192", "wmma.sm_90", "gemm_wmma_t<128,128,3>", 16, model.H100, 0, 0, 1, 61, "TFLOP/s"),
    # 112 blocks of 64 rows; a stage has three times 64 columns.
    ("DeepGEMM BF16, 1 x 7168 x 16384", "dgm1.sm_90a", "sm90_bf16_gemm", 4, model.H100, (64 + 16) * 192 * 2,
     64 * 192 * 2 * 112 / 132, 1, 2633 / 3089, "of bandwidth"),
    ("Marlin, 16 tokens, A10", "marlin.sm_86", "Marlin<256,1,16,4,4,8>", 8, model.A10, 0, 4 * 64 * 256 // 2 * 33 // 32, 1, 1.0,
     "of bandwidth"),
)


def predict(directory):
    """Yields (name, predicted, published, what, terms)."""
    for name, stem, part, warps, machine, async_bytes, hbm_bytes, share, published, what in ROWS:
        path = directory / f"{stem}.cubin"
        if not path.exists():
            yield name, None, published, what, None
            continue
        kernel = next(k for k in cubins.disassemble(path, stem.split(".")[-1]) if part in k.readable)
        _, counts = kernel.function.hot()
        terms = model.limits(machine, counts, warps, hbm_bytes, async_bytes)
        total = model.clocks(terms)
        value = terms["memory"] / total if hbm_bytes else share * model.teraflops(machine, counts.flops * warps, total)
        yield name, value, published, what, terms
