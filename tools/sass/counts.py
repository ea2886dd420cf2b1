"""kernels/cuda/toolchain/counts.txt: the machine code figures of each kernel, checked within 3 % so that a change in
instructions is noticed."""
import sys

from sass import cubins

TABLE = cubins.ROOT / "kernels" / "cuda" / "toolchain" / "counts.txt"
ARCHS = ("sm_90a",)
COLUMNS = ("registers", "shared", "stack", "spills", "code", "inner")
SHARE = 0.03
# 3 % of little is nothing.
SLACK = {"registers": 0, "shared": 0, "stack": 0, "spills": 0, "code": 128, "inner": 2}
HEAD = """# What ptxas of CUDA {release} makes of each kernel, written by `python3 tools/sass_report.py counts --renew` and compared by
# tools/test.sh: registers, bytes of static shared memory and of stack, instructions that spill, bytes of code, and instructions
# of the inner loop's hot way. Off by more than 3 % is a failure, for the better too: renew it with the change that caused it.
"""


def row_of(kernel):
    _, hot = kernel.function.hot()
    spills = sum(kernel.function.all.opcodes[o] for o in ("LDL", "STL"))
    return (kernel.registers, kernel.static_shared, kernel.stack, spills, kernel.code_bytes, hot.n if hot else 0)


def rows_of(kernels):
    rows = {}
    for kernel in kernels:
        name = (kernel.arch, kernel.readable)
        while name in rows:
            name = (name[0], name[1] + "'")
        rows[name] = row_of(kernel)
    return rows


def read(lines):
    """(release, rows) of the table's text."""
    release, rows = "", {}
    for line in lines:
        if line.startswith("# What ptxas of CUDA "):
            release = line.split()[5]
        elif line.strip() and not line.startswith("#"):
            arch, *numbers, name = line.split()
            rows[arch, name] = tuple(int(n) for n in numbers)
    return release, rows


def text_of(release, rows):
    lines = [HEAD.format(release=release) + "# " + " ".join(("GPU",) + COLUMNS + ("kernel",))]
    lines += [" ".join((arch,) + tuple(str(n) for n in numbers) + (name,)) for (arch, name), numbers in sorted(rows.items())]
    return "\n".join(lines) + "\n"


def differences(known, rows):
    """What is off, as lines; an architecture that the build lacks is not asked for."""
    built = {arch for arch, _ in rows}
    for key in sorted(set(known) | set(rows)):
        if key[0] not in built:
            continue
        said = f"{key[1]} on {key[0]}"
        if key not in rows:
            yield f"{said} is no longer there"
        elif key not in known:
            yield f"{said} is new"
        else:
            for column, was, now in zip(COLUMNS, known[key], rows[key]):
                if abs(now - was) > max(SHARE * was, SLACK[column]):
                    yield f"{said}: {column} {was} -> {now}"


def renew_or_check(kernels, is_renewed):
    if not kernels:
        raise cubins.Missing(f"the build has no code for {', '.join(ARCHS)}")
    release = kernels[0].toolkit
    rows = rows_of(kernels)
    if is_renewed:
        TABLE.write_text(text_of(release, rows))
        print(f"sass: wrote {len(rows)} rows for {', '.join(sorted({arch for arch, _ in rows}))}")
        return 0
    known_release, known = read(TABLE.read_text().splitlines()) if TABLE.exists() else ("", {})
    if release != known_release:
        raise cubins.Missing(f"the counts are those of CUDA {known_release}, this build is by {release}")
    found = list(differences(known, rows))
    for line in found:
        print(f"sass: {line}", file=sys.stderr)
    if found:
        print("sass: python3 tools/sass_report.py counts --renew writes them anew", file=sys.stderr)
        return 1
    print(f"sass: {len(rows)} kernels are what kernels/cuda/toolchain/counts.txt says, within 3 %")
    return 0
