"""Ranks on GPUs that an external launcher starts, as on several hosts: the answers of one GPU, the assignment of
GPUs, and the clients' view of a lost rank. Uses the emulator of the preset simt, with one host name per host, and
the NCCL stub."""

import json
import os
import shutil
import signal
import subprocess

import pytest
import yaml

from conftest import MODEL, ROOT, cannot_run
from rig import free_port
from test_hosts import ASK, MPIS, Group, ip, lose, two_hosts
from test_ranks import LONG, streamed

QUIRE = ROOT / "build-simt" / "quire"
STUB = QUIRE.parent / "tests" / "simt" / "nccl"
SERVE = ["serve", MODEL, "--port", "0", "--served-model-name", "demo", "--verbose", "--device", "cuda", "--threads", "1", "--max-model-len", "512", "--max-num-seqs", "4"]
ASKED = [
    {"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0.9, "seed": 7, "logprobs": 3},
    {"prompt": "Tell me a story. " * 30, "max_tokens": 6, "temperature": 0, "logprobs": 3},
]

pytestmark = [pytest.mark.wide, pytest.mark.skipif(not QUIRE.exists(), reason="could not run here, because there is no build of the preset simt")]


def named(host):
    """The command that starts a process on a host of this name."""
    return ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', host]


def has_hosts():
    return shutil.which("unshare") and subprocess.run([*named("quire-a"), "true"], capture_output=True).returncode == 0


@pytest.fixture
def group(start):
    made = []

    def begin(n_on_host, n, *arguments, with_stub=True, of_rank=lambda rank: {}, **more):
        """This number of ranks on each host, which has a GPU for each; 0: all on this host."""
        if n_on_host and not has_hosts():
            cannot_run("unshare --uts needs root")
        # the longest possible name
        host = lambda rank: f"quire-{rank // n_on_host}".rjust(64, "h") if n_on_host else ""
        placed = lambda rank: {"QUIRE_SIMT_DEVICES": str(n_on_host or n), "QUIRE_SIMT_HOST": host(rank)[-1:], **of_rank(rank)}
        stub = {"LD_LIBRARY_PATH": str(STUB)} if with_stub else {}
        made.append(Group(start, n, *arguments, program=QUIRE, serve=SERVE, before=lambda rank: named(host(rank)) if n_on_host else [], of_rank=placed, **stub, **more))
        return made[-1]

    yield begin
    for g in made:
        g.close()


def answers(server):
    got = [server.client().completions.create(model="demo", **body, extra_body={"ignore_eos": True}) for body in ASKED]
    return [(g.choices[0].text, g.choices[0].logprobs.model_dump()) for g in got]


@pytest.fixture(scope="module")
def expected():
    from conftest import Server
    one = Server(*SERVE, program=QUIRE)
    got = answers(one)
    assert one.stop() == 0
    return got


@pytest.mark.parametrize("n,stages,n_on_host,by_nccl", [(2, 1, 0, False), (2, 1, 1, True), (1, 2, 1, False), (2, 2, 2, False), (2, 2, 1, True)])
def test_several_hosts_give_the_answers_of_one_gpu(group, expected, n, stages, n_on_host, by_nccl):
    """GPUs of a stage on one host access each other's memory: they need no NCCL, and it is absent."""
    ranks = group(n_on_host, n * stages, "-tp", n, "-pp", stages, with_stub=by_nccl)
    assert ("its ranks by NCCL 2.27.3" in ranks.first.output()) == by_nccl
    assert answers(ranks.first) == expected
    assert ranks.first.stop() == 0, ranks.first.output()
    assert ranks.ends() == [0] * (n * stages - 1)
    for rank, process in enumerate(ranks.others, 1):
        said, number = process.stdout.read(), rank % (n_on_host or n)
        assert f"rank {rank} computes on GPU {number} at 0000:{number:02x}:00" in said, said


@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
def test_mpirun_gives_the_answers_of_one_gpu(start, expected, mpi):
    command, name = MPIS[mpi]
    if not shutil.which(command[0]) or not (QUIRE.parent / f"libquire_{mpi}.so").exists():
        cannot_run(f"there is no {command[0]}, or the build had no {mpi}")
    server = start(*SERVE, "-tp", 2, before=[*command, "2"], program=QUIRE, environment={"QUIRE_SIMT_DEVICES": "2"})
    assert f"data transport: {name}" in server.output()
    assert answers(server) == expected
    assert "rank 1 computes on GPU 1 at 0000:01:00" in server.output()
    listening = subprocess.run(["ss", "-Hltnp", f"sport = :{server.port}"], capture_output=True, text=True).stdout
    os.kill(int(listening.split("pid=")[1].split(",")[0]), signal.SIGTERM)
    assert server.process.wait(300) == 0, server.output()


def test_a_process_may_see_its_own_gpu_alone(group, expected):
    """As under Slurm's --gpus-per-task."""
    ranks = group(0, 2, "-tp", 2, with_stub=False, of_rank=lambda rank: {"CUDA_VISIBLE_DEVICES": str(1 - rank)})
    assert "GPU 0 at 0000:01:00" in ranks.first.output()
    assert answers(ranks.first) == expected
    assert ranks.first.stop() == 0 and ranks.ends() == [0]
    assert "rank 1 computes on GPU 0 at 0000:00:00" in ranks.others[0].stdout.read()


@pytest.mark.parametrize("n_on_host,lost,how", [(0, 1, signal.SIGKILL), (1, 1, signal.SIGKILL), (1, 1, signal.SIGSTOP), (0, 1, signal.SIGSTOP)])
def test_a_rank_that_is_lost_ends_what_streams_with_an_error(group, n_on_host, lost, how):
    ranks = group(n_on_host, 2, "-tp", 2)
    lose(ranks, streamed(ranks.first, max_tokens=400), lost, how)


@pytest.mark.parametrize("n_on_host,more,of_rank,says", [
    (0, [], lambda rank: {"CUDA_VISIBLE_DEVICES": "1"}, "no GPU is left for rank 1 on host"),
    (0, [], lambda rank: {"QUIRE_SIMT_DEVICES": "1"}, "it sees 1 from --device's number on, taken by rank 0"),
    (0, ["--device", "cuda:1"], lambda rank: {}, "no GPU is left for rank 1 on host"),
    (0, [], lambda rank: {"QUIRE_SIMT_DEVICES": str(2 * (1 - rank))}, "rank 1: device cuda: no NVIDIA GPU on this machine"),
    (1, [], lambda rank: {}, "GPUs of several hosts do not reach each other's memory; rank 0: libnccl.so.2 is not there"),
])
def test_what_cannot_be_is_refused(group, n_on_host, more, of_rank, says):
    ranks = group(n_on_host, 2, "-tp", 2, *more, with_stub=False, of_rank=of_rank, wait=False)
    assert ranks.refused.returncode == 1 and says in ranks.refused.stderr, ranks.refused.stderr
    assert ranks.ends() == [1]


def test_options_that_differ_are_named(group):
    """Rank 1 ends before it looks for a GPU, while the others wait for its data."""
    ranks = group(0, 2, "-tp", 2, with_stub=False, of_rank_1=["--max-num-seqs", 16], wait=False)
    said = "--max-num-seqs: rank 0 was given 4, and rank 1 16"
    assert ranks.refused.returncode == 1 and f"rank 1: {said}" in ranks.refused.stderr, ranks.refused.stderr
    assert ranks.ends() == [1] and said in ranks.others[0].stdout.read()


def test_a_cut_network_ends_both_sides(two_hosts, start):
    """The NCCL stub is not affected by it."""
    if not has_hosts():
        cannot_run("unshare --uts needs root")
    hosts = [(["ip", "netns", "exec", name, *named(f"quire-{i}")], {"QUIRE_SIMT_HOST": str(i)}) for i, name in enumerate(two_hosts)]
    ranks = Group(start, 2, "-tp", 2, program=QUIRE, serve=SERVE, before=lambda rank: hosts[rank][0], of_rank=lambda rank: hosts[rank][1], LD_LIBRARY_PATH=str(STUB),
                  MASTER_ADDR="10.99.0.1", QUIRE_GROUP_SECRET="correct horse battery staple")
    try:
        body = json.dumps({**LONG, "max_tokens": 400, "stream": True})
        asks = subprocess.Popen(["ip", "netns", "exec", two_hosts[0], "python3", "-c", ASK, ranks.first.url + "/v1/completions", body], stdout=subprocess.PIPE, text=True)
        assert asks.stdout.readline().startswith("data: ")
        ip("-n", two_hosts[1], "link", "set", "wire1", "down")
        rest = asks.communicate(timeout=300)[0]
        assert '"error"' in rest and "rank 1 (" in rest, rest[-600:]
        assert ranks.first.process.wait(300) == 1 and ranks.ends() == [1]
        assert "rank 0 (" in ranks.others[0].stdout.read()
    finally:
        ranks.close()


def test_the_manifest_with_its_lines_for_gpus_starts_a_group(start, expected):
    """A pod is a host with one visible GPU; the controller sets the variables."""
    if not has_hosts():
        cannot_run("unshare --uts needs root")
    text = (ROOT / "packaging" / "leaderworkerset.yaml").read_text()
    for line in "- --device=cuda", 'nvidia.com/gpu: "1"':
        assert text.count("# " + line) == 1
        text = text.replace("# " + line, line)
    workload = next(d for d in yaml.safe_load_all(text) if d["kind"] == "LeaderWorkerSet")["spec"]["leaderWorkerTemplate"]
    pods = [workload[k]["spec"]["containers"][0] for k in ("leaderTemplate", "workerTemplate")]
    assert pods[0]["args"] == pods[1]["args"] and all(pod["resources"]["limits"]["nvidia.com/gpu"] == "1" for pod in pods)
    replaced = {"Qwen/Qwen2.5-1.5B-Instruct": str(MODEL), "--host=0.0.0.0": "--host=127.0.0.1", "--port=8000": "--port=0", "--metrics-listen=0.0.0.0:9000": f"--metrics-listen=127.0.0.1:{free_port()}"}
    arguments = [replaced.pop(a, a) for a in pods[0]["args"]] + ["--verbose", "--threads=1", "--served-model-name=demo", "--max-model-len=512", "--max-num-seqs=4"]
    assert not replaced and "--device=cuda" in arguments
    port = str(free_port())
    placed = lambda index: {"LWS_LEADER_ADDRESS": "localhost", "LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": index, "MASTER_PORT": port, "QUIRE_GROUP_SECRET": "correct horse battery staple",
                            "QUIRE_SIMT_HOST": index, "LD_LIBRARY_PATH": str(STUB)}
    worker = subprocess.Popen([*named("pod-1"), str(QUIRE), *arguments], env={**os.environ, **placed("1")})
    try:
        leader = start(*arguments, before=named("pod-0"), program=QUIRE, environment=placed("0"))
        assert "its ranks by NCCL 2.27.3" in leader.output()
        assert answers(leader) == expected
        assert leader.stop() == 0 and worker.wait(300) == 0
    finally:
        worker.kill()
        worker.wait()


def test_a_number_that_no_gpu_has_is_refused():
    got = subprocess.run([str(QUIRE), *map(str, SERVE), "-tp", "2", "--device", "cuda:4"], env={**os.environ, "QUIRE_SIMT_DEVICES": "2", "RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())},
                         capture_output=True, text=True, timeout=300)
    assert got.returncode == 1 and "device cuda:4: this machine shows 2 GPUs, numbered from 0" in got.stderr, got.stderr
