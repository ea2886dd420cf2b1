"""Ranks that an external launcher starts, as on several hosts: the answers of one process, and the clients' view if
a rank or the network fails."""

import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import time

import openai
import pytest
import yaml

from conftest import MODEL, QUIRE, ROOT, cannot_run
from rig import free_port
from test_ranks import LONG, answers, is_gone, streamed

SERVE = ["serve", MODEL, "--port", "0", "--served-model-name", "demo", "--device", "cpu", "--threads", "1"]

pytestmark = pytest.mark.wide


class Group:
    """Ranks with torchrun's environment, of which rank 0 serves."""

    def __init__(self, start, n, *more, of_rank_1=(), model_of_rank_1=MODEL, wait=True, program=QUIRE, serve=SERVE, before=lambda rank: [], of_rank=lambda rank: {}, **environment):
        """before: the command that starts a rank; of_rank: additional environment per rank."""
        self.others = []
        port = free_port()
        placed = lambda rank: {"RANK": str(rank), "WORLD_SIZE": str(n), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), **environment, **of_rank(rank)}

        def begin(rank):
            command = [str(program), *map(str, [*serve, *more, *(of_rank_1 if rank == 1 else ())])]
            if rank == 1:
                command[2] = str(model_of_rank_1)
            self.others.append(subprocess.Popen([*before(rank), *command], env={**os.environ, **placed(rank)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))

        self.start_again = begin
        for rank in range(1, n):
            begin(rank)
        self.first = start(*serve, *more, environment=placed(0), before=before(0), program=program) if wait else None
        if not wait:
            self.refused = subprocess.run([*before(0), str(program), *map(str, [*serve, *more])], env={**os.environ, **placed(0)}, capture_output=True, text=True, timeout=300)

    def ends(self):
        return [p.wait(300) for p in self.others]

    def close(self):
        for p in self.others:
            if p.poll() is None:
                p.kill()
            p.wait()


@pytest.fixture
def group(start):
    made = []

    def begin(*arguments, **more):
        made.append(Group(start, *arguments, **more))
        return made[-1]

    yield begin
    for g in made:
        g.close()


@pytest.fixture(scope="module")
def expected():
    from conftest import Server
    one = Server(*SERVE)
    got = answers(one)
    assert one.stop() == 0
    return got


@pytest.mark.parametrize("n,stages", [(2, 1), (1, 2), (2, 2)])
def test_tcp_gives_the_answers_of_one_process(group, expected, tmp_path, n, stages):
    """Each host has its own path of the model."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.symlink_to(MODEL)
    ranks = group(n * stages, "-tp", n, "-pp", stages, model_of_rank_1=elsewhere, QUIRE_GROUP_SECRET="correct horse battery staple")
    assert "data transport: TCP" in ranks.first.output()
    assert answers(ranks.first) == expected
    assert ranks.first.stop() == 0, ranks.first.output()
    assert ranks.ends() == [0] * (n * stages - 1)


def children(pid):
    return [int(line) for line in subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True).stdout.split()]


MPIS = {"openmpi": (["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n"], "Open MPI v"), "mpich": (["mpirun.mpich", "-n"], "MPICH Version")}


@pytest.mark.parametrize("mpi,n,stages", [("openmpi", 2, 1), ("openmpi", 2, 2), ("mpich", 2, 1), ("mpich", 1, 2)])
def test_mpirun_gives_the_answers_of_one_process(start, expected, mpi, n, stages):
    command, name = MPIS[mpi]
    if not shutil.which(command[0]) or not (QUIRE.parent / f"libquire_{mpi}.so").exists():
        cannot_run(f"there is no {command[0]}, or the build had no {mpi}")
    server = start(*SERVE, "-tp", n, "-pp", stages, before=[*command, str(n * stages)])
    assert f"data transport: {name}" in server.output()
    assert answers(server) == expected
    # Rank 0 receives SIGTERM, and mpirun ends with success.
    listening = subprocess.run(["ss", "-Hltnp", f"sport = :{server.port}"], capture_output=True, text=True).stdout
    os.kill(int(listening.split("pid=")[1].split(",")[0]), signal.SIGTERM)
    assert server.process.wait(300) == 0, server.output()


@pytest.mark.parametrize("mpi", MPIS)
def test_mpirun_ends_where_rank_0_cannot_begin(mpi):
    """The others wait in MPI_Init() for it, and MPICH's mpirun does not end them there. After MPI_Init() it ends all
    ranks as soon as one has ended, so some cannot print the reason: rank 0 its own, or another rank the one from
    rank 0."""
    command, _ = MPIS[mpi]
    if not shutil.which(command[0]) or not (QUIRE.parent / f"libquire_{mpi}.so").exists():
        cannot_run(f"there is no {command[0]}, or the build had no {mpi}")
    got = subprocess.run([*command, "2", str(QUIRE), *map(str, SERVE), "-tp", "2", "--gemm-form", "mma"], capture_output=True, text=True, timeout=300)
    why = "--gemm-form: device cpu does not have mma"
    assert got.returncode != 0 and re.search(f"quire: (rank 0 ended the group: )?{why}", got.stderr), got.stderr


def test_mpirun_leaves_nothing_of_a_rank_that_is_killed(start):
    if not shutil.which("mpirun.mpich") or not (QUIRE.parent / "libquire_mpich.so").exists():
        cannot_run("there is no mpirun.mpich, or the build had no MPICH")
    server = start(*SERVE, "-tp", "2", before=["mpirun.mpich", "-n", "2"])
    reply = streamed(server)
    proxy, = children(server.process.pid)
    ranks = children(proxy)
    rank, = (pid for pid in ranks if b"\0PMI_RANK=1\0" in open(f"/proc/{pid}/environ", "rb").read())
    os.kill(rank, signal.SIGKILL)
    assert server.process.wait(300) != 0
    reply.close()
    assert all(map(is_gone, ranks))


def test_mpi_that_is_not_there_is_named_and_tcp_taken(start, expected, tmp_path):
    if not shutil.which("mpirun.mpich"):
        cannot_run("there is no mpirun.mpich")
    alone = tmp_path / "quire"
    shutil.copy(QUIRE, alone)
    lacks = "libquire_mpich.so was not found next to the program, in ../lib or on the loader's path"
    got = subprocess.run(["mpirun.mpich", "-n", "2", str(alone), *map(str, SERVE), "-tp", "2", "--rank-transport", "mpi"], capture_output=True, text=True, timeout=300)
    assert got.returncode != 0 and f"--rank-transport mpi: {lacks}" in got.stderr, got.stderr
    server = start(*SERVE, "-tp", "2", before=["mpirun.mpich", "-n", "2"], program=alone, environment={"MASTER_PORT": str(free_port())})
    assert f"using TCP instead of MPI: {lacks}" in server.output() and "data transport: TCP" in server.output()
    assert answers(server) == expected


def lose(ranks, reply, lost, how):
    """Sends a rank a signal: the running stream and the end of every rank report it."""
    os.kill(ranks.others[lost - 1].pid, how)
    since = time.monotonic()
    rest = reply.read().decode()
    assert '"error"' in rest and f"rank {lost} " in rest, rest[-600:]
    assert time.monotonic() - since < 250  # 5 s, where no other program computes
    assert ranks.first.process.wait(300) == 1, ranks.first.output()
    os.kill(ranks.others[lost - 1].pid, signal.SIGKILL)
    codes = ranks.ends()
    assert codes.pop(lost - 1) == -signal.SIGKILL and codes == [1] * len(codes)


@pytest.mark.parametrize("n,stages,lost,how", [(2, 1, 1, signal.SIGKILL), (2, 1, 1, signal.SIGSTOP), (2, 2, 3, signal.SIGSTOP)])
def test_a_rank_that_is_lost_ends_what_streams_with_an_error(group, n, stages, lost, how):
    ranks = group(n * stages, "-tp", n, "-pp", stages)
    lose(ranks, streamed(ranks.first), lost, how)


def test_a_rank_that_hangs_for_good_ends_after_its_group(group):
    """No rank ends it: its heartbeat continues, and a tracer stops only its first thread."""
    libc = ctypes.CDLL(None, use_errno=True)
    ranks = group(2, "-tp", 2, of_rank_1=["--threads", "2"])
    rank = ranks.others[0]
    reply = streamed(ranks.first)
    if libc.ptrace(0x4206, rank.pid, None, None) != 0 or libc.ptrace(0x4207, rank.pid, None, None) != 0:  # SEIZE, INTERRUPT
        cannot_run(f"tracing fails: {os.strerror(ctypes.get_errno())}")
    rest = reply.read().decode()
    assert '"error"' in rest and "rank 1 (" in rest and "within 4.0 s: it hangs" in rest, rest[-600:]
    assert ranks.first.process.wait(300) == 1
    assert os.WIFSTOPPED(os.waitpid(rank.pid, 0)[1])
    assert rank.wait(300) == -signal.SIGALRM


def test_an_idle_rank_that_is_stopped_is_noticed(group):
    """No request waits for it: its silence reveals it."""
    ranks = group(2, "-tp", 2)
    os.kill(ranks.others[0].pid, signal.SIGSTOP)
    assert ranks.first.process.wait(300) == 1
    assert "rank 1 (" in ranks.first.output() and "sent no data for 3." in ranks.first.output()


def test_the_others_end_with_rank_0(group):
    ranks = group(4, "-tp", 4)
    ranks.first.process.kill()
    ranks.first.process.wait()
    assert ranks.ends() == [1, 1, 1]
    assert all("rank 0 (" in p.stdout.read() for p in ranks.others)


def test_a_server_that_restarts_its_engine_waits_for_the_others(group, expected):
    ranks = group(2, "-tp", 2, "--restart", "on-failure")
    ranks.others[0].kill()
    deadline = time.monotonic() + 300
    while ranks.first.metric("quire:engine_restarts_total") < 1:
        assert time.monotonic() < deadline, ranks.first.output()
        time.sleep(0.05)
    ranks.start_again(1)
    while time.monotonic() < deadline:
        try:
            assert answers(ranks.first) == expected
            break
        except openai.InternalServerError:  # 503, with Retry-After
            time.sleep(0.1)
    else:
        raise AssertionError(ranks.first.output())
    assert ranks.first.stop() == 0, ranks.first.output()
    assert ranks.others[-1].wait(300) == 0


@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_name_that_nobody_knows_is_said(rank):
    """It may appear later, so it is looked up again; waiting clients receive the reason at once."""
    placed = {"RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "rank0.invalid", "MASTER_PORT": str(free_port())}
    waits = subprocess.Popen([str(QUIRE), *map(str, SERVE), "-tp", "2"], env={**os.environ, **placed}, stderr=subprocess.PIPE, text=True)
    try:
        line = waits.stderr.readline()
        assert "looking up the name again until it is known: rank 0's address rank0.invalid: " in line
    finally:
        waits.kill()
        waits.communicate()


def test_a_signal_to_all_is_rank_0s_and_twice_is_meant(group):
    ranks = group(2, "-tp", 2)
    ranks.others[0].send_signal(signal.SIGTERM)
    time.sleep(0.05)  # it would end at once; if that is late, this check sees nothing
    assert answers(ranks.first) and ranks.others[0].poll() is None
    ranks.others[0].send_signal(signal.SIGTERM)
    assert ranks.ends() == [-signal.SIGTERM] and ranks.first.process.wait(300) == 1
    # A rank that still waits for the others has nothing to finish.
    alone = subprocess.Popen([str(QUIRE), *map(str, SERVE), "-tp", "2", "--nnodes", "2", "--node-rank", "1", "--master-addr", "127.0.0.1", "--master-port", str(free_port())])
    time.sleep(0.3)
    alone.send_signal(signal.SIGTERM)
    assert alone.wait(300) == -signal.SIGTERM


def test_options_that_differ_are_named(group):
    ranks = group(2, "-tp", 2, "--max-num-seqs", 8, of_rank_1=["--max-num-seqs", 16], wait=False)
    assert ranks.refused.returncode == 1
    said = "--max-num-seqs: rank 0 was given 8, and rank 1 16"
    assert f"rank 1: {said}" in ranks.refused.stderr, ranks.refused.stderr
    assert ranks.ends() == [1] and said in ranks.others[0].stdout.read()


@pytest.mark.parametrize("file,key,value", [("config.json", "rope_theta", 5000.0), ("generation_config.json", "eos_token_id", 2047)])
def test_settings_that_differ_are_named(group, tmp_path, file, key, value):
    """The weights are the same on both hosts; another configuration would change the answer."""
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(MODEL, elsewhere)
    settings = json.loads((elsewhere / file).read_text())
    (elsewhere / file).write_text(json.dumps({**settings, key: value}))
    ranks = group(2, "-tp", 2, model_of_rank_1=elsewhere, wait=False)
    assert ranks.refused.returncode == 1
    assert "the settings in config.json and generation_config.json of rank 0 have the digest" in ranks.refused.stderr, ranks.refused.stderr
    assert ranks.ends() == [1]
    (elsewhere / file).write_text(json.dumps(settings, indent=7))  # other bytes with the same meaning
    assert group(2, "-tp", 2, model_of_rank_1=elsewhere).first.stop() == 0


@pytest.mark.parametrize("environment,says", [
    ({"RANK": "0", "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1"}, "WORLD_SIZE: 3 processes were started, but the engine has 2 ranks"),
    ({"RANK": "0", "WORLD_SIZE": "2"}, "torchrun does not set the address of rank 0: give --master-addr"),
    ({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "192.0.2.1"}, "not a loopback address, which needs a secret: set QUIRE_GROUP_SECRET"),
])
def test_places_that_cannot_be_are_refused(environment, says):
    got = subprocess.run([str(QUIRE), *map(str, SERVE), "-tp", "2"], env={**os.environ, **environment}, capture_output=True, text=True, timeout=300)
    assert got.returncode in (1, 2) and says in got.stderr, got


def test_the_manifest_starts_a_group(start, expected):
    """Its containers for each pod, with the variables that the controller sets."""
    documents = yaml.safe_load_all((ROOT / "packaging" / "leaderworkerset.yaml").read_text())
    group = next(d for d in documents if d["kind"] == "LeaderWorkerSet")["spec"]["leaderWorkerTemplate"]
    pods = [group[k]["spec"]["containers"][0] for k in ("leaderTemplate", "workerTemplate")]
    assert pods[0]["args"] == pods[1]["args"] and f"--tensor-parallel-size={group['size']}" in pods[0]["args"]
    assert all("QUIRE_GROUP_SECRET" in [e["name"] for e in pod["env"]] for pod in pods)
    replaced = {"Qwen/Qwen2.5-1.5B-Instruct": str(MODEL), "--host=0.0.0.0": "--host=127.0.0.1", "--port=8000": "--port=0", "--metrics-listen=0.0.0.0:9000": f"--metrics-listen=127.0.0.1:{free_port()}"}
    arguments = [replaced.pop(a, a) for a in pods[0]["args"]] + ["--device=cpu", "--threads=1", "--served-model-name=demo"]
    assert not replaced
    port = str(free_port())
    placed = lambda index: {"LWS_LEADER_ADDRESS": "localhost", "LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": index, "MASTER_PORT": port, "QUIRE_GROUP_SECRET": "correct horse battery staple"}
    worker = subprocess.Popen([str(QUIRE), *arguments], env={**os.environ, **placed("1")})
    try:
        leader = start(*arguments, environment=placed("0"))
        assert answers(leader) == expected
        worker.send_signal(signal.SIGTERM)  # as Kubernetes sends it to all
        assert leader.stop() == 0 and worker.wait(300) == 0
    finally:
        worker.kill()
        worker.wait()


def test_what_ranks_tell_each_other_is_measured():
    environment = lambda rank: {**os.environ, "RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    port, command = str(free_port()), [str(QUIRE), "bench", "collectives", "--calls", "50", "--json"]
    other = subprocess.Popen(command, env=environment("1"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    got = subprocess.run(command, env=environment("0"), capture_output=True, text=True, timeout=300)
    assert got.returncode == 0 and json.loads(got.stdout)["ranks"] == 2, got
    assert all(row["median_us"] > 0 for row in json.loads(got.stdout)["collectives"])
    assert other.communicate(timeout=300)[0] == b"" and other.returncode == 0


# ---- a cut network ----

def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def two_hosts():
    """Two network namespaces with a wire between them."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        cannot_run("network namespaces need root and ip (iproute2)")
    names = [f"quire{os.getpid()}{c}" for c in "ab"]
    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", "wire0", "netns", names[0], "type", "veth", "peer", "name", "wire1", "netns", names[1])
        for i, name in enumerate(names):
            ip("-n", name, "addr", "add", f"10.99.0.{i + 1}/24", "dev", f"wire{i}")
            ip("-n", name, "link", "set", f"wire{i}", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield names
    except subprocess.CalledProcessError as e: # containers may forbid any of them
        if e.cmd[0] != "ip":
            raise
        cannot_run(f"{' '.join(e.cmd)} fails: {e.stderr.decode().strip()}")
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)


ASK = """import json, sys, urllib.request
request = urllib.request.Request(sys.argv[1], sys.argv[2].encode(), {"Content-Type": "application/json"})
for line in urllib.request.urlopen(request, timeout=300): print(line.decode(), end="", flush=True)"""


@pytest.mark.parametrize("is_busy", [True, False])
def test_a_cut_network_ends_both_sides(two_hosts, start, is_busy):
    """Also while idle."""
    flags = [*SERVE, "-tp", "2", "--nnodes", "2", "--master-addr", "10.99.0.1"]
    secret = {"QUIRE_GROUP_SECRET": "correct horse battery staple"}
    other = subprocess.Popen(["ip", "netns", "exec", two_hosts[1], str(QUIRE), *map(str, flags), "--node-rank", "1"],
                             env={**os.environ, **secret}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        first = start(*flags, "--node-rank", "0", before=["ip", "netns", "exec", two_hosts[0]], environment=secret)
        asks = is_busy and subprocess.Popen(["ip", "netns", "exec", two_hosts[0], "python3", "-c", ASK, first.url + "/v1/completions", json.dumps({**LONG, "stream": True})],
                                stdout=subprocess.PIPE, text=True)
        assert not is_busy or asks.stdout.readline().startswith("data: ")
        ip("-n", two_hosts[1], "link", "set", "wire1", "down")
        since = time.monotonic()
        if is_busy:
            rest = asks.communicate(timeout=300)[0]
            assert '"error"' in rest and "rank 1 (" in rest, rest[-600:]
        assert first.process.wait(300) == 1 and "rank 1 (" in first.output(), first.output()
        assert time.monotonic() - since < 250  # 5 s, where no other program computes
        assert other.wait(300) == 1
        assert "rank 0 (" in other.stdout.read()
    finally:
        other.kill()
        other.wait()
