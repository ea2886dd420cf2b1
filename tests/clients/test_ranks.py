"""Several processes that share a model: the answers of one process, and the clients' view if one of them fails."""

import contextlib
import ctypes
import json
import math
import os
import re
import signal
import subprocess
import threading
import time

import pytest

import rig
from conftest import MODEL, QUIRE, cannot_run

ASKED = [
    {"prompt": "Once upon a time", "max_tokens": 60, "ignore_eos": True, "temperature": 0, "logprobs": 5},
    {"prompt": "What does a goat like?", "max_tokens": 40, "temperature": 0.9, "seed": 7, "n": 3, "logprobs": 2},
    {"prompt": "Tell me a story. " * 60, "max_tokens": 30, "temperature": 0.7, "top_p": 0.9, "seed": 8},
    {"prompt": "One two three one two three", "max_tokens": 40, "temperature": 0, "repetition_penalty": 1.2, "prediction": {"type": "content", "content": " four five six"}},
]
LONG = {"model": "demo", "prompt": "Once upon a time", "max_tokens": 1900, "ignore_eos": True, "temperature": 1.0, "seed": 1}


@pytest.fixture
def begin(start):
    return lambda n_ranks, *more, stages=1: start("serve", MODEL, "--port", "0", "--served-model-name", "demo", "--device", "cpu", "-tp", n_ranks, "-pp", stages, "--threads", "1", *more)


def answers(server):
    got = [server.client().completions.create(model="demo", **{k: v for k, v in body.items() if k in ("prompt", "max_tokens", "temperature", "seed", "n", "logprobs", "top_p")},
                                              extra_body={k: v for k, v in body.items() if k in ("ignore_eos", "repetition_penalty", "prediction")}) for body in ASKED]
    return [[(c.text, c.finish_reason, c.logprobs and c.logprobs.model_dump()) for c in g.choices] for g in got]


def workers(server):
    """Its other ranks, by process."""
    listed = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(server.process.pid)], capture_output=True, text=True).stdout
    return [int(line.split()[0]) for line in listed.splitlines() if line.split(maxsplit=1)[1] == "quire rank"]


def is_gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_any_number_of_ranks_gives_the_same_answers(begin):
    expected = None
    for n, stages in (1, 1), (2, 1), (4, 1), (1, 2), (1, 3), (2, 2):
        server = begin(n, stages=stages)
        ranks = workers(server)
        assert len(ranks) == n * stages - 1
        got = answers(server)
        expected = expected or got
        assert got == expected, f"{stages} stages of {n} ranks"
        assert server.stop() == 0, server.output()
        assert all(is_gone(pid) for pid in ranks)


def streamed(server, **more):
    """A running stream whose first line has been read. One choice would take a second, and a busy test acts later."""
    reply = rig.stream(server, "/v1/completions", {**LONG, "n": 16, "stream": True, **more})
    assert reply.readline().startswith(b"data: ")
    return reply


@pytest.mark.parametrize("how", [signal.SIGINT, *(pytest.param(s, marks=pytest.mark.wide) for s in (signal.SIGTERM, signal.SIGHUP))])
def test_what_a_terminal_tells_all_is_rank_0s(begin, how):
    server = begin(2)
    rank, = workers(server)
    os.kill(rank, how)
    time.sleep(0.05)  # it would end at once; if that is late, this check sees nothing
    assert answers(server) and not is_gone(rank)
    assert server.stop() == 0, server.output()


@pytest.mark.parametrize("n,stages,lost,how", [(2, 1, 1, signal.SIGKILL), (1, 3, 1, signal.SIGSTOP), *(pytest.param(*p, marks=pytest.mark.wide) for p in (
    (2, 1, 1, signal.SIGSTOP), (1, 3, 2, signal.SIGKILL), (2, 2, 3, signal.SIGKILL)))])
def test_a_rank_that_is_lost_ends_what_streams_with_an_error(begin, n, stages, lost, how):
    server = begin(n, stages=stages)
    ranks = workers(server)
    rank = ranks[lost - 1]
    reply = streamed(server)
    os.kill(rank, how)
    since = time.monotonic()
    rest = reply.read().decode()
    assert '"error"' in rest and f"rank {lost} " in rest, rest[-600:]
    assert time.monotonic() - since < 250  # 5 s of the time-out, where no other program computes
    assert server.process.wait(300) == 1, server.output()
    assert all(map(is_gone, ranks))
    told = [line for line in server.output().splitlines() if f"rank {lost} " in line]
    assert len(told) == 1 and "the engine has stopped (" in told[0], told


def busy_thread(pid):
    """Finds the thread, other than the first, that computes."""
    ran = lambda: {int(t): sum(map(int, open(f"/proc/{pid}/task/{t}/stat").read().rsplit(")", 1)[1].split()[11:13])) for t in os.listdir(f"/proc/{pid}/task") if int(t) != pid}
    before, now = ran(), {}
    def has_run():  # 10 ticks of 10 ms
        now.update(ran())
        return max(now[t] - before.get(t, 0) for t in now) >= 10

    rig.wait_until(has_run, "a thread that computes")
    return max(now, key=lambda t: now[t] - before.get(t, 0))


def hang(pid, other):
    """Stops the thread of that process that computes. The others notice only if it hangs within a step, while
    another rank waits for it: between steps, no rank waits for rank 0."""
    libc = ctypes.CDLL(None, use_errno=True)
    thread = busy_thread(pid)
    os.kill(other, signal.SIGSTOP)
    n_asleep = 0
    while n_asleep < 5:  # and does not only wait for a CPU
        time.sleep(0.06)
        with open(f"/proc/{pid}/task/{thread}/stat") as f:
            n_asleep = n_asleep + 1 if f.read().rsplit(")", 1)[1].split()[0] == "S" else 0
    if libc.ptrace(0x4206, thread, None, None) != 0 or libc.ptrace(0x4207, thread, None, None) != 0:  # SEIZE, INTERRUPT
        cannot_run(f"tracing fails: {os.strerror(ctypes.get_errno())}")

    def reap():  # its stop, and its end
        with contextlib.suppress(ChildProcessError):
            os.waitpid(thread, 0x40000000)
            os.waitpid(thread, 0x40000000)

    threading.Thread(target=reap, daemon=True).start()
    os.kill(other, signal.SIGCONT)
    return lambda: libc.ptrace(17, thread, None, None)  # DETACH: it goes on


@pytest.mark.parametrize("more", [[], pytest.param(["--restart", "on-failure"], marks=pytest.mark.wide)])
def test_an_engine_s_thread_that_hangs_is_noticed_by_the_others(begin, more):
    """Rank 0's thread hangs while its loop continues: a tracer stops only that thread."""
    server = begin(2, *more)
    engine = int(subprocess.run(["ps", "-o", "pid=", "--ppid", str(server.process.pid)], capture_output=True, text=True).stdout.split()[0]) if more else server.process.pid
    other, = (int(pid) for pid in subprocess.run(["ps", "-o", "pid=", "--ppid", str(engine)], capture_output=True, text=True).stdout.split())
    for _ in range(4):  # it waited for the end of the step, and the other rank rests: about once in twenty times
        reply, rest = streamed(server), b""
        go_on, since = hang(engine, other), time.monotonic()
        while b"[DONE]" not in rest and time.monotonic() - since < 50:  # 5 s on a machine with nothing else to do
            rest += reply.readline()  # a ping after 15 s, if the failure is not noticed
        if b'"error"' in rest:
            break
        go_on()
    assert b'"engine_unavailable"' in rest and b"rank 1 (process" in rest, rest[-600:]
    said = "the engine has stopped (rank 1 (process"
    if more:
        rig.wait_until(lambda: "the engine is available again" in server.output(), server.output)
        assert said in server.output() and server.stop() == 0, server.output()
    else:
        assert server.process.wait(300) == 1 and said in server.output(), server.output()


def test_the_others_end_with_rank_0(begin):
    server = begin(4)
    ranks = workers(server)
    server.process.kill()
    server.process.wait()
    rig.wait_until(lambda: all(map(is_gone, ranks)))


@pytest.mark.parametrize("arguments,says", [
    (["-tp", "3"], "--tensor-parallel-size: must be 1, 2, 4 or 8, got 3; this model can be divided among: 1, 2, 4"),
    (["-tp", "8"], "the model's 4 attention heads, which read 2 of K and V, can be divided among these numbers of ranks: 1, 2, 4"),
    (["-pp", "7"], "--pipeline-parallel-size 7: the model has"),
    (["-pp", "3", "-tp", "4"], "12 processes, but at most 8"),
    (["-pp", "2", "--task", "embed"], "--pipeline-parallel-size: a model that returns vectors runs on one rank"),
    (["-tp", "2", "--cpu-bind", "0,1"], "--cpu-bind 0,1: a list works with one rank only"),
    (["-tp", "2", "--task", "embed"], "a model that returns vectors runs on one rank"),
    (["-tp", "2", "--speculative-config", json.dumps({"method": "draft_model", "model": str(MODEL)})], "a draft model runs on one rank"),
])
def test_what_ranks_cannot_do_is_refused(arguments, says):
    for command in ["serve", MODEL, "--port", "0", "--device", "cpu"], ["plan", MODEL]:
        got = subprocess.run([str(QUIRE), *map(str, command), *arguments], capture_output=True, text=True, timeout=300)
        assert got.returncode == 1 and says in got.stderr, got


@pytest.mark.parametrize("arguments,code,says", [
    (["-tp", "2", "--kv-cache-memory", "512T"], 1, "each of 2 ranks on this host needs "),
    (["-tp", "2", "--engine", "unix:/nowhere"], 2, "quire: --tensor-parallel-size is for an engine in this process"),
])
def test_what_a_server_of_ranks_cannot_do_is_refused(arguments, code, says):
    got = subprocess.run([str(QUIRE), "serve", str(MODEL), "--port", "0", *arguments], capture_output=True, text=True, timeout=300)
    assert got.returncode == code and says in got.stderr, got


@pytest.mark.parametrize("stages", [pytest.param(1, marks=pytest.mark.wide), 2])
def test_a_recording_of_two_ranks_replays_on_one(begin, tmp_path, stages):
    """Blocks run out, so that some sequences are preempted and resumed."""
    server = begin(2, "--record", tmp_path / "rec", "--num-kv-blocks", "130", "--max-model-len", "1024", "--swap-space", "16MiB", "--kv-cache-dtype", "int8",
                   "--quantization", "int8", "--speculative-config", '{"method": "ngram"}', stages=stages)
    asked = {"model": "demo", "prompt": ["Tell me a story.", "What does a goat like?"], "n": 8, "max_tokens": 150, "temperature": 0.8, "seed": 3, "extra_body": {"ignore_eos": True}}
    got = server.client().completions.create(**asked)
    assert len(got.choices) == 16 and server.metric("vllm:num_preemptions_total") > 0
    assert server.stop() == 0, server.output()
    replayed = subprocess.run([str(QUIRE), "replay", tmp_path / "rec", MODEL], capture_output=True, text=True, timeout=300)
    assert replayed.returncode == 0 and "All 16 choices are equal" in replayed.stdout, replayed


def test_plan_says_what_a_rank_takes():
    def plan(*arguments):
        return json.loads(subprocess.run([str(QUIRE), "plan", str(MODEL), "--json", "--num-kv-blocks", "100", *arguments], capture_output=True, text=True, check=True).stdout)
    one, two = plan("--threads", "1"), plan("-tp", "2", "--threads", "1")
    assert (one["tensor_parallel_size"], two["tensor_parallel_size"]) == (1, 2)
    assert 2 * two["kv_bytes"] == one["kv_bytes"] and two["weight_bytes"] < one["weight_bytes"]
    shared = lambda n_groups: n_groups * (4096 + 2 * 131072)
    assert one["message_bytes"] == 0 and two["message_bytes"] == 17 * 4096 + shared(1)
    assert two["total_bytes"] - sum(two[k] for k in ("param_bytes", "activation_bytes", "workspace_bytes", "logits_bytes", "kv_bytes", "draft_bytes", "mask_bytes")) == two["message_bytes"]
    apart = plan("-tp", "2", "--threads", "1", "--nnodes", "2", "--node-rank", "1", "--master-addr", "127.0.0.1")
    message = 131072 + 64
    assert apart["message_bytes"] == (16 + 2) * message
    for of_shared, of_hosts in zip(two["ranks"], apart["ranks"]):
        assert of_hosts["total_bytes"] - of_shared["total_bytes"] == apart["message_bytes"] - shared(1) - (17 * 4096 if of_shared["rank"] == 0 else 0)
    assert one["ranks"] == [] and [r["kv_bytes"] for r in two["ranks"]] == 2 * [two["kv_bytes"]]
    stages = plan("-pp", "3")
    assert stages["pipeline_parallel_size"] == 3 and sum(r["kv_bytes"] for r in stages["ranks"]) == one["kv_bytes"]
    assert [r["first_layer"] for r in stages["ranks"]] == [0] + [r["end_layer"] for r in stages["ranks"]][:2]


def make_checkpoint(folder, n_layers, head, hidden=32, inner=64, vocab=4096):
    """A Llama of zeros in BF16 with its own head."""
    shapes = {"model.embed_tokens.weight": [vocab, hidden], "lm_head.weight": [vocab, hidden], "model.norm.weight": [hidden]}
    for layer in range(n_layers):
        for name, shape in {"self_attn.q_proj": [hidden, hidden], "self_attn.k_proj": [hidden, hidden], "self_attn.v_proj": [hidden, hidden], "self_attn.o_proj": [hidden, hidden], "mlp.gate_proj": [inner, hidden],
                            "mlp.up_proj": [inner, hidden], "mlp.down_proj": [hidden, inner], "input_layernorm": [hidden], "post_attention_layernorm": [hidden]}.items():
            shapes[f"model.layers.{layer}.{name}.weight"] = shape
    header, at = {}, 0
    for name, shape in shapes.items():
        dtype = head if name == "lm_head.weight" else "BF16"
        n_bytes = {"BF16": 2, "F32": 4}[dtype] * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + n_bytes]}
        at += n_bytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(at))
    (folder / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": n_layers, "num_attention_heads": 2, "vocab_size": vocab,
                                                    "torch_dtype": "bfloat16", "tie_word_embeddings": False}))


@pytest.mark.parametrize("head,more,ends", [("BF16", [], {2: [2, 5], 3: [1, 3, 5], 4: [1, 3, 4, 5]}), ("BF16", ["--quantization", "int8"], {2: [2, 5], 3: [1, 3, 5]}), ("F32", [], {2: [3, 5], 3: [2, 4, 5], 4: [1, 3, 4, 5]})])
def test_the_end_that_takes_less_has_the_layer_that_is_left(tmp_path, head, more, ends):
    """The last rank, if several take the same amount."""
    make_checkpoint(tmp_path, 5, head)
    for n, expected in ends.items():
        got = json.loads(subprocess.run([str(QUIRE), "plan", str(tmp_path), "--json", "-pp", str(n), *more], capture_output=True, text=True, check=True).stdout)
        assert [r["end_layer"] for r in got["ranks"]] == expected, n


def test_plan_of_ranks_on_every_gpu_that_is_listed():
    """Each fits with its driver; the one with the most weights hardly does."""
    def plan(*arguments):
        return subprocess.run([str(QUIRE), "plan", str(MODEL), "--json", *arguments], capture_output=True, text=True)
    listed = plan("--device", "cuda").stderr.rsplit("name one: ", 1)[1].strip().split(", ")
    assert len(listed) >= 8
    for gpu in listed:
        for ranks in ["-tp", "2"], ["-tp", "4"], ["-pp", "3"], ["-tp", "2", "-pp", "3"]:
            got = json.loads(plan("--device", gpu, *ranks).stdout)
            assert len({r["kv_bytes"] // (r["end_layer"] - r["first_layer"]) for r in got["ranks"]}) == 1  # as many blocks
            most = max(r["device_bytes"] for r in got["ranks"])
            block = sum(g["block_bytes"] for g in got["kv_groups"])
            assert got["device_budget"] - 2 * block * len(got["ranks"]) < most <= got["device_budget"], (gpu, ranks)
        for ranks in "3", "8":
            assert plan("--device", gpu, "-tp", ranks).returncode == 1


def test_nobody_takes_a_rank_for_a_command():
    got = subprocess.run([str(QUIRE), "rank"], capture_output=True, text=True, timeout=300)
    assert got.returncode == 2 and 'unknown command "rank"' in got.stderr


@pytest.mark.parametrize("stages", [1, pytest.param(2, marks=pytest.mark.wide)])
def test_a_slow_rank_is_named(begin, stages):
    """It is stopped four fifths of the time, so the others wait for it."""
    server = begin(2, "--log-format", "json", stages=stages)
    ranks = workers(server)
    slow = ranks[-1]  # of the last stage
    number = len(ranks)
    stop = threading.Event()

    def slow_down():
        while not stop.is_set():
            os.kill(slow, signal.SIGSTOP)
            stop.wait(0.2)
            os.kill(slow, signal.SIGCONT)
            stop.wait(0.05)

    def waits():
        """Seconds by (who waits, for whom)."""
        return {(r, p): float(s) for r, p, s in re.findall(r'quire:rank_wait_seconds_total\{[^}]*rank="(\d)",peer="(\d)"\} ([0-9.e+-]+)', rig.metrics(server))}

    def is_named():
        """Other programs may slow the others down, too, for a while."""
        found = waits()
        return f'"slow_rank":{number},' in server.output() and found.get((str(number - 1), str(number)), 0) > 2 * found.get((str(number), str(number - 1)), 0)

    thread = threading.Thread(target=slow_down)
    thread.start()
    try:
        deadline = time.monotonic() + 300
        while not is_named() and time.monotonic() < deadline:
            server.client().completions.create(**{k: v for k, v in LONG.items() if k != "ignore_eos"} | {"max_tokens": 200}, extra_body={"ignore_eos": True})
    finally:
        stop.set()
        thread.join()
    assert f'"slow_rank":{number},' in server.output() and f"of the time for rank {number}" in server.output()
    found, n = waits(), 2 * stages
    assert len(found) == n * n - n and found[str(number - 1), str(number)] > 2 * found[str(number), str(number - 1)], found
    assert server.stop() == 0 and re.search(rf"ranks waited .*\d s for rank {number}", server.output())
