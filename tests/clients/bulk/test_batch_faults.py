"""Batches of a server that is killed, drained and filled up, and stores that are damaged."""

import contextlib
import http.server
import json
import os
import pathlib
import resource
import signal
import sqlite3
import subprocess
import threading

import openai
import pytest

import rig
from conftest import MODEL, QUIRE
from test_batch_api import CHAT, chat_line, ended, entries, upload

UNFINISHED = 75


@pytest.fixture
def serve(start, tmp_path):
    def begin(*arguments, **kwargs):
        return start("serve", MODEL, "--port", "0", "--served-model-name", "demo", "--max-model-len", "1024", "--batch-dir", tmp_path / "store", *arguments, **kwargs)

    return begin


def create(client, n, **more):
    return client.batches.create(input_file_id=upload(client, [chat_line(i, **more) for i in range(n)]).id, endpoint=CHAT, completion_window="24h")


@pytest.mark.parametrize("n_kills", [3, pytest.param(10, marks=pytest.mark.wide)])
def test_killed_many_times(serve, n_kills):
    """Each line is in the output once, and has the bits that it has without a kill."""
    n = 60 * n_kills
    server = serve()
    batch = create(server.client(), n, temperature=0, max_tokens=8)
    done = 0
    for _ in range(n_kills):
        rig.wait_until(lambda: server.client().batches.retrieve(batch.id).request_counts.completed > done or server.client().batches.retrieve(batch.id).status == "completed", "another line")
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        server = serve()
        counts = server.client().batches.retrieve(batch.id).request_counts
        done = max(done, counts.completed)
        assert counts.total in (0, n)
    batch = ended(server.client(), server.client().batches.retrieve(batch.id))
    output = entries(server.client(), batch.output_file_id)
    assert batch.status == "completed" and batch.error_file_id is None
    assert [entry["custom_id"] for entry in output] == [f"line-{i}" for i in range(n)]
    live = server.client().chat.completions.create(**chat_line(n - 1, temperature=0, max_tokens=8)["body"])
    assert output[n - 1]["response"]["body"]["choices"][0]["message"]["content"] == live.choices[0].message.content


@pytest.mark.parametrize("how", ["signal", "file"])
def test_drain_saves_and_says_so(serve, tmp_path, how):
    notice = tmp_path / "notice"
    server = serve("--eviction-notice", notice)
    batch = create(server.client(), 5000, max_tokens=40, ignore_eos=True)
    rig.wait_until(lambda: server.client().batches.retrieve(batch.id).request_counts.completed > 0, "a line")
    if how == "file":
        notice.touch()
        assert server.process.wait(300) == UNFINISHED, server.output()
        notice.unlink()
    else:
        assert server.stop() == UNFINISHED, server.output()
    server.process.stdout.close()
    server = serve()
    assert server.client().batches.retrieve(batch.id).status == "in_progress"
    rig.wait_until(lambda: server.client().batches.retrieve(batch.id).request_counts.completed > 0, "what was saved")
    server.client().batches.cancel(batch.id)
    ended(server.client(), batch)
    assert server.stop() == 0


def test_a_full_disk(serve, tmp_path):
    """A limit of the size of files stands for it: the results of the batch do not fit."""
    server = serve()
    client = server.client()
    batch = create(client, 50, max_tokens=60, ignore_eos=True)
    size = 24 << 10
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    with pytest.raises(openai.InternalServerError) as full:
        client.files.create(file=("a", b" " * (1 << 20)), purpose="batch")
    assert full.value.status_code == 507 and full.value.code == "insufficient_storage"
    assert not list((tmp_path / "store" / "files").glob("*.part"))
    with pytest.raises(openai.InternalServerError) as full:
        for _ in range(100):
            client.batches.create(input_file_id=batch.input_file_id, endpoint=CHAT, completion_window="24h")
    assert full.value.status_code == 507 and str(tmp_path) not in str(full.value)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    batch = ended(client, batch)
    assert batch.status == "completed" and [entry["custom_id"] for entry in entries(client, batch.output_file_id)] == [f"line-{i}" for i in range(50)]
    client.files.create(file=("a", b" " * (1 << 20)), purpose="batch")


def test_limits_of_space(serve):
    server = serve("--batch-max-bytes", "4M", environment={"QUIRE_API_KEY": "one,two"})
    client = server.client(api_key="one")
    file = client.files.create(file=("a", b" " * 900_000), purpose="batch")
    with pytest.raises(openai.APIStatusError, match="a quarter of --batch-max-bytes") as full:
        client.files.create(file=("a", b" " * 900_000), purpose="batch")
    assert full.value.status_code == 413
    server.client(api_key="two").files.create(file=("a", b" " * 900_000), purpose="batch")
    client.files.delete(file.id)
    client.files.create(file=("a", b" " * 900_000), purpose="batch")


def test_results_count_as_files(serve):
    """A batch whose results would exceed the limit waits, and goes on once there is space."""
    server = serve("--batch-max-bytes", "1M")
    client = server.client()
    spare = client.files.create(file=("a", b" " * 700_000), purpose="batch")
    n = 900
    batch = create(client, n, max_tokens=8, ignore_eos=True)
    rig.wait_until(lambda: "waits for space" in server.output(), "the limit")
    with pytest.raises(openai.APIStatusError, match="--batch-max-bytes") as full:
        client.files.create(file=("a", b" " * 60_000), purpose="batch")
    assert full.value.status_code == 413
    done = client.batches.retrieve(batch.id)
    assert done.status == "in_progress" and done.request_counts.completed < n
    client.files.delete(spare.id)
    rig.wait_until(lambda: client.batches.retrieve(batch.id).request_counts.completed > done.request_counts.completed, "a line after it")
    client.batches.cancel(batch.id)
    ended(client, batch)


def test_waiting_batches_hold_no_file(serve):
    """Of a hundred batches, only those that run have their input open."""
    server = serve("--batch-concurrency", "1")
    client = server.client()
    file = upload(client, [chat_line(0, max_tokens=900, ignore_eos=True)])
    made = [client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h") for _ in range(60)]
    rig.wait_until(lambda: client.batches.retrieve(made[-1].id).status == "in_progress", "the last one's check")
    folder = f"/proc/{server.process.pid}/fd"
    names = []
    for number in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):  # it is closed by now
            names.append(os.readlink(f"{folder}/{number}"))
    assert len([name for name in names if file.id in name]) <= 2
    for batch in made:
        with contextlib.suppress(openai.BadRequestError):  # it has ended
            client.batches.cancel(batch.id)


class Notice(http.server.BaseHTTPRequestHandler):
    reply = (404, b"")
    given = []

    def do_GET(self):
        status, text = Notice.reply
        Notice.given.append(Notice.reply)
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


@pytest.mark.parametrize("before, after", [((404, b""), (200, b'{"action": "terminate"}')), ((200, b"FALSE"), (200, b"TRUE"))], ids=["ec2", "google"])
def test_a_notice_at_a_url(serve, before, after):
    """Looked at when the server starts, and each five seconds."""
    Notice.reply, Notice.given = before, []
    site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Notice)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    server = serve("--eviction-notice", f"http://127.0.0.1:{site.server_port}/notice")
    batch = create(server.client(), 5000, max_tokens=40, ignore_eos=True)
    rig.wait_until(lambda: Notice.given, "a look at the URL")
    Notice.reply = after  # now that there is a batch
    assert server.process.wait(300) == UNFINISHED, server.output()
    assert Notice.given.count(after) == 1
    site.shutdown()
    server.process.stdout.close()
    server = serve()
    assert server.client().batches.retrieve(batch.id).status == "in_progress"
    server.client().batches.cancel(batch.id)


# ---- the store ----


def refused(tmp_path):
    done = subprocess.run([str(QUIRE), "serve", str(MODEL), "--port", "0", "--batch-dir", str(tmp_path / "store")], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1
    return done.stderr


def test_damaged_stores_are_named(serve, tmp_path):
    server = serve()
    file = upload(server.client(), [chat_line(0)])
    assert server.stop() == 0
    path = tmp_path / "store" / "batches.sqlite"
    good = path.read_bytes()
    path.write_bytes(b"no database at all" * 1000)
    assert str(path) in refused(tmp_path)
    path.write_bytes(good[:4096] + os.urandom(len(good) - 4096))
    assert str(path) in refused(tmp_path)
    path.write_bytes(good)
    server = serve()
    assert server.client().files.retrieve(file.id).bytes == file.bytes
    assert "another process uses" in refused(tmp_path)
    assert server.stop() == 0


def test_versions_of_the_store(serve, tmp_path):
    """Version 1, which knew no cost, is migrated; a newer one is refused."""
    server = serve()
    batch = ended(server.client(), create(server.client(), 2))
    assert server.stop() == 0
    path = tmp_path / "store" / "batches.sqlite"
    with sqlite3.connect(path) as db:
        db.executescript("DROP INDEX files_until; ALTER TABLE batches DROP COLUMN account; ALTER TABLE batches DROP COLUMN cost; PRAGMA user_version=1;")
    server = serve()
    assert server.client().batches.retrieve(batch.id).request_counts.completed == 2
    assert ended(server.client(), create(server.client(), 1)).status == "completed"
    assert server.stop() == 0
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version=1000")
    assert "has version 1000" in refused(tmp_path)


def test_damaged_results_fail_the_batch_alone(serve, tmp_path):
    server = serve()
    batch = create(server.client(), 5000, max_tokens=40, ignore_eos=True)
    rig.wait_until(lambda: list((tmp_path / "store" / "results").glob("*.sqlite")), "its results")
    server.process.kill()
    server.process.wait()
    for part in pathlib.Path(tmp_path / "store" / "results").iterdir():
        part.unlink()
    (tmp_path / "store" / "results" / f"{batch.id}.sqlite").write_bytes(b"not a database " * 500)
    other = tmp_path / "store" / "results" / "stray.sqlite"
    other.write_bytes(b"")
    server = serve()
    assert not other.exists()
    assert ended(server.client(), create(server.client(), 1)).status == "completed"
    server.client().batches.cancel(batch.id)
