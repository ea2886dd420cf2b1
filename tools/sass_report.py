#!/usr/bin/env python3
"""Reports on the machine code of the GPU kernels without a GPU: counts, and predicted speeds.

    python3 tools/sass_report.py table [--arch sm_90a] [FILE...]       registers, shared memory, code, the inner loop by pipe
    python3 tools/sass_report.py counts [--renew] [LIBRARY]            against kernels/cuda/toolchain/counts.txt, within 3 %
    python3 tools/sass_report.py predict [LIBRARY]                     docs/benchmarks/gpu-predicted.md's tables
    python3 tools/sass_report.py cases [LIBRARY]                       tools/gpu_predicted.txt: those of one case each
    python3 tools/sass_report.py references DIRECTORY                  the published kernels that the model was held against

FILE: cubins, or a library or object that has some; by default build/libquire_cuda.so. Needs nvdisasm and cuobjdump, which
`bash tools/setup.sh cuda` installs; without them, or without a build, it says "not run" and ends with 3.
"""
import argparse
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from sass import counts, cubins, listing, model, ours, references  # noqa: E402

NOT_RUN = 3
LIBRARY = cubins.ROOT / "build" / "libquire_cuda.so"


def kernels_of(files, archs):
    """Disassembles all kernels of the files for these GPUs, or for all present ones."""
    found = []
    for file in files:
        path = pathlib.Path(file)
        if path.suffix == ".cubin":
            found += cubins.disassemble(path, path.name.split(".")[-2])
            continue
        with tempfile.TemporaryDirectory() as directory:
            for cubin, arch in cubins.extract(path, directory, archs):
                found += cubins.disassemble(cubin, arch)
    return sorted(found, key=lambda k: (k.arch, k.readable))


def limit_of(kernel, counts):
    """The inner loop's largest limit on an H100, and its share of the predicted time. An upper bound: dimensions are
    unknown here, and a tiled GEMM loads from L2."""
    copied = 512 * counts.opcodes["LDGSTS"] or counts.loaded
    memory = 0 if kernel.readable.startswith("gemm_large") else copied
    terms = model.limits(model.H100, counts, 1, hbm_bytes=memory)
    if not any(terms.values()):
        return "-"
    largest = max(terms, key=terms.get)
    return f"{largest} {terms[largest] / model.clocks(terms):.2f}"


def show_table(kernels):
    print("| kernel | GPU | registers | shared | blocks an SM | code | inner loop | " + " | ".join(listing.ALL_PIPES) +
          " | FLOP | through shared | loaded | predicted share of the limit |")
    print("|---|---|" + "---|" * (9 + len(listing.ALL_PIPES)))
    for k in kernels:
        _, hot = k.function.hot()
        hot = hot or listing.Counts()
        shared = ours.shared_bytes(k)
        blocks = model.occupancy(model.machine_of(k.arch), k.registers, k.threads, shared) if k.threads else "-"
        print(f"| `{k.readable}` | {k.arch} | {k.registers} | {shared} | {blocks} | {k.code_bytes} | {hot.n} | " +
              " | ".join(str(hot.pipes[p]) for p in listing.ALL_PIPES) +
              f" | {hot.flops} | {hot.shared} | {hot.loaded} | {limit_of(k, hot)} |")


def show_references(directory):
    print("| kernel | predicted | published | predicted / published |\n|---|---|---|---|")
    for name, value, published, what, _ in references.predict(pathlib.Path(directory)):
        said = "not compiled | " if value is None else f"{value:.3g} | " if value < 1e3 else f"{value:.0f} | "
        print(f"| {name} | {said}{published:.4g} {what} | {f'{value / published:.2f}' if value else '-'} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("table", "counts", "predict", "cases", "references"))
    parser.add_argument("files", nargs="*", default=[LIBRARY])
    parser.add_argument("--arch", action="append")
    parser.add_argument("--renew", action="store_true")
    args = parser.parse_intermixed_args()
    try:
        if args.what == "references":
            show_references(args.files[0])
        elif args.what == "table":
            show_table(kernels_of(args.files, args.arch))
        elif args.what == "predict":
            ours.show(kernels_of(args.files, ["sm_90a"]))
        elif args.what == "cases":
            ours.show_cases(kernels_of(args.files, ["sm_90a"]))
        else:
            return counts.renew_or_check(kernels_of(args.files, counts.ARCHS), args.renew)
    except cubins.Missing as missing:
        print(f"sass: not run: {missing}", file=sys.stderr)
        return NOT_RUN
    return 0


if __name__ == "__main__":
    sys.exit(main())
