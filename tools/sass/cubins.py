"""Machine code from a build: cubins from the library's fat binary, ELF data of each kernel, and their listing.

cuobjdump unpacks and nvdisasm prints; both are NVIDIA's, searched for on PATH, in a toolkit, and in build/cuda, where
`bash tools/setup.sh cuda` installs them.
"""
import glob
import os
import pathlib
import shutil
import struct
import subprocess
import sys

from sass import listing

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Missing(Exception):
    """A missing tool or build: the check cannot run, which is not a failure."""


def tool(name):
    places = [os.environ[home] + "/bin" for home in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(home)]
    places += ["/usr/local/cuda/bin"] + glob.glob(f"{ROOT}/build/cuda/lib/python3*/site-packages/nvidia/cu1[2-9]/bin")
    found = shutil.which(name) or shutil.which(name, path=os.pathsep.join(places))
    if not found:
        raise Missing(f"no {name} here; bash tools/setup.sh cuda installs one")
    return found


class Kernel:
    """One kernel for one GPU. threads is what __launch_bounds__ says, 0 where it says nothing."""

    def __init__(self, name, arch):
        self.name, self.arch, self.readable = name, arch, name
        self.registers = self.static_shared = self.stack = self.threads = self.code_bytes = 0
        self.toolkit = self.function = None


# Attributes of .nv.info: the kernel's number of registers, its frame, and the threads of its launch bounds.
REGCOUNT, FRAME_SIZE, MAX_THREADS, SVAL = 0x2F, 0x11, 0x05, 0x04


def attributes(data):
    at = 0
    while at + 4 <= len(data):
        kind, attribute, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if kind == SVAL:
            yield attribute, data[at:at + size]
            at += size


def sections(path, image):
    if len(image) < 64 or image[:5] != b"\x7fELF\x02":
        sys.exit(f"sass: {path} is no cubin: it does not begin as a 64-bit ELF file does")
    (offset,) = struct.unpack_from("<Q", image, 0x28)
    count, names = struct.unpack_from("<HH", image, 0x3C)
    headers = [struct.unpack_from("<IIQQQQIIQQ", image, offset + 64 * i) for i in range(count)]
    strings = headers[names][4]
    for h in headers:
        at = strings + h[0]
        yield image[at:image.index(b"\0", at)].decode(), h[1], image[h[4]:h[4] + h[5]] if h[1] != 8 else b"", h[5], h[7]


def read_cubin(path, arch):
    """The kernels of a cubin by name, without their code."""
    image = pathlib.Path(path).read_bytes()
    kernels, symbols, common, release = {}, [], b"", ""
    for name, kind, data, size, info in sections(path, image):
        if name.startswith(".text."):
            kernels.setdefault(name[6:], Kernel(name[6:], arch)).code_bytes = size
        elif name.startswith(".nv.shared.") and not name.startswith(".nv.shared.reserved"):
            driver = 1024 if int("".join(c for c in arch if c.isdigit())) >= 90 else 0  # ptxas does not count it either
            kernels.setdefault(name[11:], Kernel(name[11:], arch)).static_shared = max(0, size - driver)
        elif name.startswith(".nv.info."):
            kernel = kernels.setdefault(name[9:], Kernel(name[9:], arch))
            for attribute, value in attributes(data):
                if attribute == MAX_THREADS:
                    x, y, z = struct.unpack("<III", value)
                    kernel.threads = x * y * z
        elif name == ".nv.info":
            common = data
        elif name == ".note.nv.tkinfo":
            at = data.find(b"release ")
            release = data[at + 8:data.index(b",", at)].decode() if at >= 0 else ""
        elif kind == 2:
            symbols = [struct.unpack_from("<I", data, i)[0] for i in range(0, len(data), 24)]
        elif name == ".strtab":
            strings = data
    names = [strings[s:strings.index(b"\0", s)].decode() for s in symbols]
    for attribute, value in attributes(common):
        symbol, n = struct.unpack("<II", value[:8]) if len(value) >= 8 else (0, 0)
        if symbol < len(names) and names[symbol] in kernels:
            if attribute == REGCOUNT:
                kernels[names[symbol]].registers = n
            elif attribute == FRAME_SIZE:
                kernels[names[symbol]].stack = n
    for kernel in kernels.values():
        kernel.toolkit = release
    return kernels


def demangle(names):
    """As check_ptxas.sh has them: without arguments and spaces."""
    if not shutil.which("c++filt") or not names:
        return names
    said = subprocess.run(["c++filt", "-p"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    return [line.removeprefix("void ").replace(" ", "") for line in said.splitlines()]


def disassemble(path, arch):
    """The kernels of a cubin, with code."""
    kernels = read_cubin(path, arch)
    said = subprocess.run([tool("nvdisasm"), "-c", str(path)], capture_output=True, text=True, check=True).stdout
    for name, code, labels in listing.functions(said.splitlines()):
        if name in kernels:
            kernels[name].function = listing.Function(name, code, labels)
    whole = [k for k in kernels.values() if k.function]
    for kernel, name in zip(whole, demangle([k.name for k in whole])):
        kernel.readable = name
    return whole


def extract(binary, directory, archs):
    """Unpacks the cubins of a program, library or object; yields (path, arch)."""
    binary = pathlib.Path(binary).resolve()
    if not binary.exists():
        raise Missing(f"there is no {binary.name} in {binary.parent}: a build with a CUDA toolkit has one")
    subprocess.run([tool("cuobjdump"), "-xelf", "all", str(binary)], cwd=directory, capture_output=True, check=True)
    for path in sorted(pathlib.Path(directory).glob("*.cubin")):
        arch = path.name.split(".")[-2]
        if not archs or arch in archs:
            yield path, arch
