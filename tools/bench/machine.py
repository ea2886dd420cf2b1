"""Facts about the machine and the programs for readers of a benchmark. No host name, no path."""
import datetime
import importlib.metadata
import os
import pathlib
import re
import subprocess

FLAGS = ("avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16", "avx512_fp16",
         "amx_tile", "amx_bf16", "amx_int8")


def cpu_flags():
    return set(re.search(r"^flags\s*:(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)[1].split())


def isas():
    """Values of QUIRE_ISA on this machine."""
    flags = cpu_flags()
    out = ["avx2"]
    if "avx512bw" in flags:
        out.append("avx512")
    if {"avx512bw", "avx512_vnni"} <= flags:
        out.append("avx512vnni")
    if {"amx_tile", "amx_bf16"} <= flags:
        out.append("amx")
    return out


class Others:
    """Share of the machine that other processes, or other guests of its host, used during a measurement."""

    def __init__(self, own_pids):
        self.own_pids = own_pids
        self.begin = self.used()

    def used(self):
        """Clock ticks: (of all processes and of other guests, of ours, passed on all CPUs)"""
        user, nice, system, idle, iowait, irq, softirq, steal = map(
            int, pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:9])
        busy = user + nice + system + irq + softirq + steal
        tick = os.sysconf("SC_CLK_TCK")
        ours = sum(os.times()[:4]) * tick  # this process and those it has waited for
        for pid in self.own_pids:
            ours += sum(map(int, pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]))
        return busy, ours, busy + idle + iowait

    def share(self):
        """0 to 1, of all CPUs"""
        busy, ours, passed = (after - before for after, before in zip(self.used(), self.begin))
        return max(0.0, busy - ours) / passed if passed else 0.0


def output_of(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def describe(quire):
    lscpu = dict(re.findall(r"^\s*([^:]+):\s+(.*)$", output_of("env", "LC_ALL=C", "lscpu"), re.M))
    keys = ("Model name", "CPU(s)", "Thread(s) per core", "Core(s) per socket", "Socket(s)", "L2 cache", "L3 cache",
            "NUMA node(s)", "Hypervisor vendor")
    memory = int(re.search(r"MemTotal:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text())[1]) * 1024
    packages = ("llama-cpp-python", "torch", "transformers")
    source = pathlib.Path(__file__).parent
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": {key: lscpu[key] for key in keys if key in lscpu},
        "flags": [flag for flag in FLAGS if flag in cpu_flags()],
        "memory_bytes": memory,
        "kernel": os.uname().release.split("-")[0],
        "versions": {
            "quire": quire.run(["version"]).split()[1],
            "commit": output_of("git", "-C", str(source), "describe", "--always", "--dirty", "--abbrev=12"),
            "compiler": output_of("cc", "--version").splitlines()[0],
            **{name: importlib.metadata.version(name) for name in packages},
        },
    }
