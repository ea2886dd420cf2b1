"""Tests the contents of packaging/: HAProxy over two servers, systemd's notification, the probes of the manifest,
the manual, completions, and a wheel of a small program. tools/package_test.sh installs whole packages."""

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import zipfile

import pytest
import yaml
import rig
from conftest import MODEL, QUIRE, ROOT
from rig import free_port, wait_until

PACKAGING = ROOT / "packaging"


# ---- HAProxy ----

@pytest.fixture
def proxy(start, tmp_path):
    """packaging/haproxy.cfg over two servers, at ports that are free on this machine."""
    servers = [start("serve", MODEL, "--port", "0", "--served-model-name", "demo", "--shutdown-timeout", "600") for _ in range(2)]
    port = free_port()
    text = (PACKAGING / "haproxy.cfg").read_text()
    for written, real in (("127.0.0.1:8080", f"127.0.0.1:{port}"), ("127.0.0.1:8001", f"127.0.0.1:{servers[0].port}"),
                          ("127.0.0.1:8002", f"127.0.0.1:{servers[1].port}")):
        assert text.count(written) == 1
        text = text.replace(written, real)
    config = tmp_path / "haproxy.cfg"
    config.write_text(text)
    process = subprocess.Popen([shutil.which("haproxy", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin"), "-db", "-f", str(config)],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def answers():
        try:
            return rig.ask(f"http://127.0.0.1:{port}", "/version").status == 200
        except OSError:
            return False

    wait_until(answers, "an answer through HAProxy")
    yield f"http://127.0.0.1:{port}", servers
    process.kill()
    process.wait()


def body(**fields):
    return json.dumps({"model": "demo", "prompt": "Once upon a time", **fields}).encode()


def post(url, key, **fields):
    return rig.answered(url, "/v1/completions", body(**fields), headers={"Authorization": f"Bearer {key}"}).json()


def served(server):
    return server.metric("vllm:request_success_total")


def test_a_key_stays_with_its_server(proxy):
    url, servers = proxy
    for key in "abcdefgh":
        before = [served(s) for s in servers]
        for _ in range(3):
            post(url, key, max_tokens=1)
        grown = [served(s) - b for s, b in zip(servers, before)]
        assert sorted(grown) == [0, 3]
    assert all(served(s) > 0 for s in servers)


def test_a_server_that_drains_finishes_and_the_other_takes_over(proxy):
    url, servers = proxy
    # A stream on one of the two: tries keys until one goes to the first server.
    stream = rig.stream(url, "/v1/completions", body(max_tokens=1900, n=4, ignore_eos=True, stream=True), headers={"Authorization": "Bearer stays"})
    first = stream.readline()
    assert first.startswith(b"data: ")
    busy = next(s for s in servers if s.metric("vllm:num_requests_running") > 0)
    busy.process.send_signal(signal.SIGTERM)
    # Until HAProxy has noticed, requests get a refused connection or a 503: they are repeated.
    for _ in range(20):
        assert post(url, "stays", max_tokens=1)["usage"]["completion_tokens"] == 1
        time.sleep(0.05)
    text = first + stream.read()
    assert text.rstrip().endswith(b"data: [DONE]") and b'"error"' not in text
    assert text.count(b"data: ") > 4 * 1900
    assert busy.process.wait(300) == 0


def test_a_client_that_leaves_is_cancelled_through_the_proxy(proxy):
    url, servers = proxy
    host, port = url.removeprefix("http://").split(":")
    data = body(max_tokens=1900, n=16, ignore_eos=True, stream=True)
    s = socket.create_connection((host, int(port)), timeout=300)
    s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
    assert b"200" in s.recv(100)
    wait_until(lambda: sum(x.metric("vllm:num_requests_running") for x in servers) == 16, "the request")
    s.close()
    wait_until(lambda: sum(x.metric("vllm:num_requests_running") for x in servers) == 0, "the cancel")
    assert all(x.metric("quire:kv_blocks_leaked") == 0 for x in servers)


# ---- systemd ----

@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_told(tmp_path, monkeypatch, start, abstract):
    path = f"@quire-test-{tmp_path.name}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind(path.replace("@", "\0", 1))
        s.settimeout(300)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        server = start("serve", MODEL, "--port", "0")
        assert s.recv(100) == b"READY=1"
        assert rig.ask(server, "/health").status == 200
        server.process.send_signal(signal.SIGTERM)
        assert s.recv(100) == b"STOPPING=1"
        assert server.process.wait(300) == 0


def test_the_unit_names_options_that_exist():
    text = (PACKAGING / "quire@.service").read_text() + (PACKAGING / "example.env").read_text()
    help_text = subprocess.run([QUIRE, "serve", "--help", "all"], capture_output=True, text=True, check=True).stdout
    options = set(re.findall(r"--[a-z][a-z-]+", text)) - {"--now"}
    assert len(options) >= 4
    assert {o for o in options if o + " " not in help_text} == set()


# ---- Kubernetes ----

def test_the_manifest_starts_a_server_and_its_probes_are_answered(start):
    documents = list(yaml.safe_load_all((PACKAGING / "kubernetes.yaml").read_text()))
    deployment = next(d for d in documents if d["kind"] == "Deployment")
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    listen = f"127.0.0.1:{free_port()}"
    replaced = {"Qwen/Qwen2.5-1.5B-Instruct": str(MODEL), "--host=0.0.0.0": "--host=127.0.0.1", "--port=8000": "--port=0",
                "--metrics-listen=0.0.0.0:9000": "--metrics-listen=" + listen}
    server = start(*(replaced.pop(a, a) for a in container["args"]))
    assert replaced == {}
    ports = {p["name"]: p["containerPort"] for p in container["ports"]}
    assert ports == {"http": 8000, "metrics": 9000}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        get = container[probe]["httpGet"]
        assert get["port"] == "metrics"
        assert rig.ask(f"http://{listen}", get["path"]).status == 200
    # A draining server is live and not ready.
    stream = rig.stream(server, "/v1/completions", {"prompt": "Once", "max_tokens": 1500, "n": 64, "ignore_eos": True, "stream": True})
    stream.readline()
    server.process.send_signal(signal.SIGTERM)

    def status(path):
        return rig.ask(f"http://{listen}", path).status

    wait_until(lambda: status(container["readinessProbe"]["httpGet"]["path"]) == 503, "not being ready")
    assert status(container["livenessProbe"]["httpGet"]["path"]) == 200
    stream.close()
    assert server.process.wait(300) == 0


# ---- the manual ----

def test_pages_that_the_manual_and_the_readme_name_are_installed(tmp_path):
    subprocess.run(["cmake", "--install", QUIRE.parent, "--prefix", tmp_path, "--component", "quire"], check=True, capture_output=True)
    installed = tmp_path / "share" / "doc" / "quire"
    manual = "".join(page.read_text() for page in (tmp_path / "share" / "man" / "man1").glob("*.1")).replace("\\-", "-")
    named = set(re.findall(r"docs/[a-z/-]+\.md", manual)) | set(re.findall(r"(?:\]\(|src=\")(docs/[^)#\"]+)", (installed / "README.md").read_text()))
    assert len(named) > 20 and {page for page in named if not (installed / page).is_file()} == set()


def test_the_manual_has_every_option_and_no_warning():
    pages = sorted((QUIRE.parent / "man").glob("*.1"))
    commands = re.findall(r"^  ([a-z-]+) +[a-z]", subprocess.run([QUIRE, "--help"], capture_output=True, text=True, check=True).stdout.partition("Begin with")[0], re.M)
    assert "map-reduce" in commands and {f"quire-{name}.1" for name in commands} <= {p.name for p in pages}
    assert {"quire.1", "quire-serve.1", "quire-engine.1", "quire-sim.1", "quire-eval-ppl.1", "quire-cache-pin.1", "quire-version.1"} <= {p.name for p in pages}
    for page in pages:
        done = subprocess.run(["groff", "-man", "-ww", "-z", page], capture_output=True, text=True)
        assert done.returncode == 0 and done.stderr == "", page.name + ": " + done.stderr
    for command in "serve", "engine", "sim", "generate":
        help_text = subprocess.run([QUIRE, command, "--help", "all"], capture_output=True, text=True, check=True).stdout
        page = (QUIRE.parent / "man" / f"quire-{command}.1").read_text().replace("\\-", "-")
        options = re.findall(r"^  (--\S+)", help_text, re.M)
        assert len(options) > 5
        assert [o for o in options if f".B {o}" not in page] == []


# ---- version ----

def test_the_version_names_commit_backends_and_instructions():
    def version(*arguments):
        return subprocess.run([QUIRE, "version", *arguments], capture_output=True, text=True, check=True).stdout

    said = json.loads(version("--json"))
    assert re.fullmatch(r"\d+\.\d+\.\d+", said["version"])
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    if head.returncode == 0:  # a build may be older than the newest commit
        assert re.fullmatch("[0-9a-f]{40}", said["commit"])
    usable = [s["name"] for s in said["instruction_sets"] if s["usable"]]
    assert said["backends"][-1] == "ref" and ("cpu" in said["backends"]) == bool(usable)
    assert all(s["lacks"] for s in said["instruction_sets"] if not s["usable"])
    text = version()
    assert text.startswith(f"quire {said['version']}\n") and said["commit"] in text and "backends" in text
    assert all(name in text for name in usable)


# ---- completions ----

def completed(*words):
    """What bash offers for the last of these words."""
    script = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _quire; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", script, "bash", QUIRE.parent / "completions/quire.bash", *words], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_completions_have_every_command_and_option():
    subprocess.run(["bash", "-n", QUIRE.parent / "completions/quire.bash"], check=True)
    top = subprocess.run([QUIRE, "--help"], capture_output=True, text=True, check=True).stdout.split("Begin with")[0]
    commands = set(re.findall(r"^  ([a-z-]+) +\S", top, re.M))
    assert len(commands) > 10 and completed("quire", "") == commands | {"--help", "--version"}
    assert completed("quire", "bench", "s") == {"serve", "steps"}
    zsh, fish = ((QUIRE.parent / "completions" / name).read_text() for name in ("_quire", "quire.fish"))
    for words in ["serve"], ["sim"], ["cache", "warm"], ["bench", "serve"], ["eval", "ppl"], ["version"]:
        help_text = subprocess.run([QUIRE, *words, "--help", "all"], capture_output=True, text=True, check=True).stdout
        options = {o.replace("[no-]", "no-") for o in re.findall(r"^  (--\S+)", help_text, re.M)}
        assert completed("quire", *words, "--") == options | {"--help"}
        in_zsh = zsh.split(f"        '{' '.join(words)}') _arguments")[1].split(";;")[0]
        assert set(re.findall(r"'(--[a-z0-9-]+)=?\[", in_zsh)) == options | {"--help"}
        assert {"--" + o for o in re.findall(rf"-n '__quire_at {' '.join(words)}' -l (\S+)", fish)} == options | {"--help"}
    assert "'revoke:revokes a key'" in zsh and "-a revoke -d 'revokes a key'" in fish
    assert completed("quire", "serve", "--respond-not", "") == set()
    assert completed("quire", "serve", "--log-format", "") == {"text", "json"}
    assert completed("quire", "serve", "--port", "--") == set()


def test_completions_of_a_command_that_runs_and_has_actions():
    """quire batch FILE, and quire batch status: options of the one are not offered for the other."""
    zsh, fish = ((QUIRE.parent / "completions" / name).read_text() for name in ("_quire", "quire.fish"))
    assert completed("quire", "batch", "") == {"status", "list", "cancel", "--help"} and completed("quire", "cache", "st") == {"stats"}
    for words in ["batch"], ["batch", "requests.jsonl"]:
        assert completed("quire", *words, "--outp") == {"--output"} and completed("quire", *words, "--batch-id") == set()
    assert "--url" in completed("quire", "batch", "status", "--") and completed("quire", "batch", "status", "--outp") == set()
    assert '[[ " status list cancel " == *" $words[2] "* ]]' in zsh and "'batch status') _arguments" in zsh
    assert "-n '__quire_without batch status list cancel' -l output" in fish and "-n '__quire_at batch status' -l url" in fish
    # Names of files are arguments of quire batch, and none of quire cache.
    assert "complete -c quire -n '__quire_ends_at batch' -a status" in fish and "complete -c quire -f -n '__quire_ends_at cache' -a stats" in fish


def test_completions_have_the_values_that_the_help_lists():
    zsh, fish = ((QUIRE.parent / "completions" / name).read_text() for name in ("_quire", "quire.fish"))
    assert completed("quire", "serve", "--device", "") == {"auto", "ref", "cpu", "cuda"}
    assert completed("quire", "serve", "x", "--batching", "d") == {"dynamic"}
    assert ":value:(continuous dynamic static)'" in zsh and "-l batching -d 'continuous, dynamic or static' -x -a 'continuous dynamic static'" in fish


# ---- the wheel ----

def test_a_wheel_installs_a_program_that_replaces_the_interpreter(tmp_path):
    """Of a small program in place of quire: names, tag, modes, hashes, equal bytes."""
    prefix = tmp_path / "prefix"
    for folder in "bin", "lib/quire", "share/quire/demo", "share/man/man1", "share/bash-completion", "share/zsh", "share/fish", "share/doc/quire":
        (prefix / folder).mkdir(parents=True)
    shutil.copy(shutil.which("env"), prefix / "bin/quire")
    (prefix / "share/quire/demo/config.json").write_text("{}")
    (tmp_path / "licences").write_text("none")
    script = """. tools/setup.sh; . tools/package/bundle.sh; . tools/package/wheel.sh; set -eu; export SOURCE_DATE_EPOCH=1700000000; version=1.2.3
        quire_set_times() { chmod -R u=rwX,go=rX "$1"; find "$1" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +; }
        quire_wheel "$1/prefix" "$1/licences" "$1/$2";"""
    for name in "first", "second":
        (tmp_path / name).mkdir()
        subprocess.run(["bash", "-c", script, "bash", tmp_path, name], cwd=ROOT, check=True)
    (wheel,) = (tmp_path / "first").iterdir()
    assert re.fullmatch(r"quire_llm-1\.2\.3-py3-none-manylinux_2_\d+_(x86_64|aarch64)\.whl", wheel.name)
    assert wheel.read_bytes() == (tmp_path / "second" / wheel.name).read_bytes()
    with zipfile.ZipFile(wheel) as z:
        metadata = z.read("quire_llm-1.2.3.dist-info/METADATA").decode()
        assert "\nName: quire-llm\nVersion: 1.2.3\n" in metadata and "# Quire" in metadata
        assert wheel.name.removesuffix(".whl").split("-", 2)[2] in z.read("quire_llm-1.2.3.dist-info/WHEEL").decode()
        assert z.getinfo("quire/bin/quire").external_attr >> 16 & 0o777 == 0o755
    target = tmp_path / "site"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-compile", "--disable-pip-version-check", "--target", target, wheel],
                   check=True)
    run = [sys.executable, "-c", "import os, sys; sys.argv = ['quire', 'printenv', 'PYTHONPATH']; from quire.__main__ import main; main()"]
    done = subprocess.run(run, env={"PYTHONPATH": str(target), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=True)
    assert done.stdout == f"{target}\n" and (target / "bin/quire").is_file() and (target / "quire/share/demo/config.json").is_file()
