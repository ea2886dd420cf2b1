"""quire batch: a file of requests on a local model, over errors, kills and interruptions."""

import json
import os
import pathlib
import random
import resource
import signal
import subprocess

import pytest

import conftest
import rig

MODEL = str(conftest.MODEL)
NAME = "demo"
PREFIX_WORDS = 1500  # as many tokens of the demo model


def run(*arguments, **how):
    return subprocess.run([str(conftest.QUIRE), "batch", *map(str, arguments), "--model", MODEL, "--served-model-name", NAME], capture_output=True, text=True, timeout=600, **how)


def start(*arguments):
    return subprocess.Popen([str(conftest.QUIRE), "batch", *map(str, arguments), "--model", MODEL, "--served-model-name", NAME], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def chat(i, text, **fields):
    body = {"model": NAME, "messages": [{"role": "user", "content": text}], "max_tokens": 6, "temperature": 0, **fields}
    return {"custom_id": f"c{i}", "method": "POST", "url": "/v1/chat/completions", "body": body}


def write(path, lines):
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def read(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]


def test_every_kind_of_line(server, tmp_path):
    lines = [
        chat(0, "Name a colour."),
        {"custom_id": "c1", "method": "POST", "url": "/v1/completions", "body": {"prompt": "One, two,", "max_tokens": 4, "temperature": 0}},
        {"custom_id": "c2", "method": "POST", "url": "/v1/responses", "body": {"input": "Name a tree.", "max_output_tokens": 4, "store": False}},
        "this is not JSON",
        {"custom_id": "c0", "method": "POST", "url": "/v1/completions", "body": {"prompt": "again"}},
        {"custom_id": "c5", "method": "GET", "url": "/v1/completions", "body": {"prompt": "x"}},
        {"custom_id": "c6", "method": "POST", "url": "/v1/models", "body": {}},
        chat(7, "x", temperature=-1),
        chat(8, "x", model="another"),
        {"custom_id": "c9", "method": "POST", "url": "/v1/completions", "body": {"prompt": "y" * 10_000_000}},
        chat(10, "Name a fish."),
    ]
    result = run(write(tmp_path / "in.jsonl", lines), "--json")
    assert result.returncode == 3, result.stderr
    summary = json.loads(result.stdout)
    assert (summary["lines"], summary["succeeded"], summary["failed"], summary["complete"]) == (11, 4, 7, True)
    rows = read(tmp_path / "in.results.jsonl")
    assert [row["custom_id"] for row in rows] == ["c0", "c1", "c2", None, "c0", "c5", "c6", "c7", "c8", "c9", "c10"]
    assert [row["response"]["status_code"] if row["response"] else row["error"]["message"].split(": ")[1] for row in rows] == [
        200, 200, 200, "the line is not valid JSON", "custom_id", "method", "url", 400, 404, 400, 200]
    assert rows[4]["error"]["message"] == "line 5: custom_id: line 1 has the same"
    assert not list(tmp_path.glob("*.state*")) and not list(tmp_path.glob("*.part"))
    # The same bits as over HTTP.
    for row, line in ((rows[0], lines[0]), (rows[10], lines[10]), (rows[1], lines[1])):
        reply = rig.answered(server, line["url"], line["body"]).json()
        assert row["response"]["body"]["choices"] == reply["choices"]


def test_errors_in_a_file_of_their_own_and_anthropic(tmp_path):
    good = {"custom_id": "a", "params": {"model": NAME, "max_tokens": 3, "messages": [{"role": "user", "content": "Hello"}]}}
    bad = {"custom_id": "b", "params": {"model": NAME, "messages": []}}
    result = run(write(tmp_path / "in.jsonl", [good, bad]), "-o", tmp_path / "out", "--errors", tmp_path / "err")
    assert result.returncode == 3, result.stderr
    [row] = read(tmp_path / "out")
    assert row["custom_id"] == "a" and row["result"]["type"] == "succeeded" and row["result"]["message"]["role"] == "assistant"
    [row] = read(tmp_path / "err")
    assert row["custom_id"] == "b" and row["result"]["type"] == "errored" and row["result"]["error"]["error"]["type"] == "invalid_request_error"


def state_rows(path):
    """Rows that a killed command has left; SQLite's file may not exist yet."""
    import sqlite3
    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
            return db.execute("SELECT count(*) FROM results").fetchone()[0]
    except sqlite3.Error:
        return 0


def ended_by(number, state, *arguments):
    """Sends a command a signal once it has saved another row: (its status, standard output, standard error)."""
    before = state_rows(state)
    process = start(*arguments)
    rig.wait_until(lambda: state_rows(state) > before or process.poll() is not None)
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=300)
    return process.returncode, stdout, stderr


def test_each_line_once_over_kills(tmp_path):
    for n in (600, 3000, 12000):  # more lines, if a signal comes after the command's end
        path, out = write(tmp_path / f"in{n}.jsonl", [chat(i, f"Say {i}.", max_tokens=2) for i in range(n)]), tmp_path / f"out{n}"
        if all(ended_by(signal.SIGKILL, tmp_path / f"out{n}.state", path, "-o", out)[0] == -signal.SIGKILL for _ in range(3)):
            break
    assert not out.exists()
    result = run(path, "-o", out, "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["resumed"] > 0
    assert [row["custom_id"] for row in read(out)] == [f"c{i}" for i in range(n)]


def test_an_interrupted_command_continues(tmp_path):
    for n in (300, 3000, 12000):  # more lines, if the signal comes after the command's end
        path, out = write(tmp_path / f"in{n}.jsonl", [chat(i, f"Tell me about {i}.", max_tokens=12) for i in range(n)]), tmp_path / f"in{n}.results.jsonl"
        status, stdout, stderr = ended_by(signal.SIGINT, tmp_path / f"in{n}.results.jsonl.state", path, "--concurrency", "4")
        if status:
            break
    assert status == 75, stderr
    assert "run the same command again to continue" in stdout and "quire: interrupted" in stderr
    assert not out.exists()
    # Another input does not take these results.
    other = write(tmp_path / "other.jsonl", [chat(0, "x")])
    result = run(other, "-o", out)
    assert result.returncode == 1 and "results of another input" in result.stderr
    result = run(path)
    assert result.returncode == 0, result.stderr
    assert "in earlier runs" in result.stdout
    assert len(read(out)) == n


def test_a_shared_prefix_is_computed_once(tmp_path):
    random.seed(3)
    words = [random.choice(["river", "stone", "cloud", "tree", "wind"]) for _ in range(PREFIX_WORDS)]
    shared, lines = " ".join(words), []
    for i in range(200):
        own = f"Question {i * 7919 % 200}?"
        lines.append(chat(i, own, max_tokens=1, messages=[{"role": "system", "content": shared if i % 2 else "Be brief."}, {"role": "user", "content": own}]))
    random.shuffle(lines)
    result = run(write(tmp_path / "in.jsonl", lines), "--json", "--num-kv-blocks", "2000")
    assert result.returncode == 0, result.stderr
    usages = {row["custom_id"]: row["response"]["body"]["usage"] for row in read(tmp_path / "in.results.jsonl")}
    with_prefix = [usage for i, usage in usages.items() if int(i[1:]) % 2]
    without = [usage for i, usage in usages.items() if not int(i[1:]) % 2]
    own = max(usage["prompt_tokens"] for usage in without)
    prefix = min(usage["prompt_tokens"] for usage in with_prefix) - own
    assert prefix > 1400
    computed = sum(usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"] for usage in with_prefix)
    # Each line computes its own question, and at most a block of the prefix.
    assert computed - len(with_prefix) * (own + 16) <= 1.05 * prefix, (computed, prefix)


def test_every_failure_has_a_line(tmp_path):
    """A status other than 0 comes with its reason on standard error, whatever the output is."""
    path = write(tmp_path / "in.jsonl", [chat(0, "x"), chat(1, "x", model="another")])
    for arguments in ((), ("--json",)):
        result = run(path, *arguments)
        assert result.returncode == 3
        assert result.stderr.splitlines()[-1] == f"quire: 1 of 2 lines failed; their errors are in {tmp_path / 'in.results.jsonl'}; the first: the model 'another' does not exist; served here: 'demo'"
    with open("/dev/full", "w", encoding="utf-8") as full:
        result = subprocess.run([str(conftest.QUIRE), "batch", str(path), "--model", MODEL], stdout=full, stderr=subprocess.PIPE, text=True, timeout=600, check=False)
    assert result.returncode == 1 and "the summary cannot be written" in result.stderr
    result = run(tmp_path)
    assert result.returncode == 1 and result.stderr.splitlines()[-1] == f"quire: {tmp_path}: the input must be a regular file"
    os.mkfifo(tmp_path / "pipe")
    result = run(tmp_path / "pipe")
    assert result.returncode == 1 and "regular file" in result.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_while_the_model_loads(tmp_path, number):
    """From the moment at which the command handles the signal. The lines take longer than a busy machine delays it."""
    path = write(tmp_path / "in.jsonl", [chat(i, "x", max_tokens=500) for i in range(500)])
    process = start(path)
    rig.wait_until(lambda: caught(process.pid, number) or process.poll() is not None)
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=300)
    assert process.returncode == 75, (process.returncode, stderr)
    assert "quire: interrupted; run the same command again to continue" in stderr


def caught(pid, number):
    """Whether the process handles the signal."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def test_few_descriptors(tmp_path):
    """Each line in flight has two: fewer lines run at a time. Without any, the command says what to do."""
    path = write(tmp_path / "in.jsonl", [chat(i, "x", max_tokens=1) for i in range(40)])
    result = run(path, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (270, 270)))
    assert result.returncode == 0, result.stderr
    result = run(path, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40)))
    assert result.returncode == 1 and "ulimit -n" in result.stderr


def test_wrong_command_lines(tmp_path):
    path = write(tmp_path / "in.jsonl", [chat(0, "x")])
    for arguments, says in (((path, "-o", path), "--output: is FILE itself"), ((path, "-o", tmp_path / "o", "--errors", tmp_path / "o"), "--errors: is FILE or the output")):
        result = run(*arguments)
        assert result.returncode == 2 and says in result.stderr
    assert run(tmp_path / "nothing.jsonl").returncode == 1
    (tmp_path / "empty.jsonl").write_text("\n")
    result = run(tmp_path / "empty.jsonl")
    assert result.returncode == 1 and "the input has no lines" in result.stderr
    for option in ("--output", "--errors"):  # before the work, and without a state beside it
        result = run(path, option, tmp_path)
        assert result.returncode == 2 and f"{option}: {tmp_path}: is not a regular file" in result.stderr
    assert not pathlib.Path(f"{tmp_path}.state").exists()
