"""quire map-reduce: chunks, the tree, a server at a URL, and a killed command."""

import http.server
import json
import pathlib
import random
import signal
import subprocess
import threading

import conftest
import pytest
import rig
from doc_blocks import block

MODEL = str(conftest.MODEL)
PROMPTS = ("--map", "Summarize:", "--reduce", "Combine the items: {text}\nOne sentence:")


def command(*arguments):
    return [str(conftest.QUIRE), "map-reduce", *map(str, arguments)]


def run(*arguments, cwd, prompts=PROMPTS):
    return subprocess.run(command(*prompts, *arguments), capture_output=True, text=True, timeout=600, cwd=cwd)


def paragraphs(n):
    random.seed(5)
    words = ["the river", "a stone", "blue cloud", "old tree", "wind"]
    return "\n\n".join(" ".join(random.choice(words) for _ in range(30)) + "." for _ in range(n))


@pytest.fixture
def book(tmp_path):
    (tmp_path / "book.txt").write_text(paragraphs(40))
    return tmp_path


def test_a_tree_of_answers(book):
    small = ("--model", MODEL, "--chunk-tokens", "200", "--overlap", "20", "--max-tokens", "24", "--json", "book.txt")
    result = run(*small, cwd=book)
    assert result.returncode == 0, result.stderr
    wide = json.loads(result.stdout)
    assert wide["chunks"] > 5 and wide["stages"] == 2 and wide["answer"]
    # A context for few results at a time: more stages.
    result = run(*small, "--max-model-len", "300", cwd=book)
    assert result.returncode == 0, result.stderr
    narrow = json.loads(result.stdout)
    assert narrow["chunks"] == wide["chunks"] and narrow["stages"] > 2
    # The same work gives the same answer, and leaves nothing behind.
    again = json.loads(run(*small, "--concurrency", "2", cwd=book).stdout)
    assert again["answer"] == wide["answer"]
    assert [path.name for path in book.iterdir()] == ["book.txt"]


def test_a_server_at_a_url(server, book):
    arguments = ("--chunk-tokens", "200", "--overlap", "20", "--max-tokens", "16", "--json", "book.txt")
    there = run("--url", server.url + "/v1", *arguments, cwd=book)
    assert there.returncode == 0, there.stderr
    here = run("--model", MODEL, "--max-model-len", "1024", *arguments, cwd=book)
    assert here.returncode == 0, here.stderr
    assert json.loads(there.stdout)["answer"] == json.loads(here.stdout)["answer"]


def test_a_killed_command_continues(book):
    arguments = ("--model", MODEL, "--chunk-tokens", "100", "--max-tokens", "40", "--overlap", "10", "--concurrency", "2", "--json", "book.txt")

    def rows():
        import sqlite3
        for path in book.glob("*.state/stage-0.state"):
            try:
                with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
                    return db.execute("SELECT count(*) FROM results").fetchone()[0]
            except sqlite3.Error:
                pass
        return 0

    for n in (40, 160, 640):  # a longer text, if the signal comes after the command's end
        (book / "book.txt").write_text(paragraphs(n))
        process = subprocess.Popen(command(*PROMPTS, *arguments), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=book)
        rig.wait_until(lambda: rows() > 2 or process.poll() is not None)
        process.kill()
        if process.wait() == -signal.SIGKILL:
            break
    result = run(*arguments, cwd=book)
    assert result.returncode == 0, result.stderr
    summary, expected = json.loads(result.stdout), json.loads(run(*arguments, cwd=book).stdout)
    assert summary["resumed"] > 2 and summary["answer"] == expected["answer"]
    assert [path.name for path in book.iterdir()] == ["book.txt"]


def test_errors_name_the_cause(book):
    (book / "bad.txt").write_bytes(b"good \xff bad")
    (book / "empty.txt").write_text("")
    (book / "nul.txt").write_bytes(b"good \0 bad")
    model = ("--model", MODEL)
    for arguments, says, code in (
        ((*model,), "FILE is missing", 2),
        (("book.txt",), "--model MODEL is missing", 2),
        ((*model, "book.txt", "--chunk-tokens", "100", "--overlap", "50"), "--overlap: must be below half", 2),
        ((*model, "bad.txt"), "bad.txt: is not UTF-8 at byte 5", 1),
        ((*model, "nul.txt"), "nul.txt: is not a text: it has a NUL at byte 5", 1),
        ((*model, "none.txt"), "none.txt: cannot be read", 1),
        ((*model, "empty.txt"), "the files are empty", 1),
        ((*model, "book.txt", "--chunk-tokens", "5000"), "the context of 2048 tokens is too small", 1),
        (("--url", "ftp://x", "book.txt"), "must begin with http://", 1),
        (("--url", f"http://127.0.0.1:{rig.free_port()}", "book.txt"), "/v1/models", 1),
        (("--url", "http://127.0.0.1:1", "--max-num-seqs", "3", "book.txt"), "options of the model are for --model", 2),
    ):
        result = run(*arguments, cwd=book)
        assert (result.returncode, says in result.stderr) == (code, True), (arguments, result.stderr)
    assert "--reduce PROMPT is missing" in run(*model, "book.txt", prompts=("--map", "x"), cwd=book).stderr


class Nul(http.server.BaseHTTPRequestHandler):
    """A server whose answers have a NUL."""
    prompts = []

    def reply(self, value):
        text = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        self.reply({"data": [{"id": "m"}]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/tokenize":
            self.reply({"count": len(body["prompt"].split()) if "prompt" in body else 10, "max_model_len": 2048})
            return
        self.prompts.append(body["messages"][0]["content"])
        self.reply({"choices": [{"message": {"content": "a\0b\0"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}})

    def log_message(self, *_):
        pass


def test_answers_with_a_nul(tmp_path):
    site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Nul)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    (tmp_path / "text.txt").write_text("word " * 300)
    result = run("--url", f"http://127.0.0.1:{site.server_port}", "--chunk-tokens", "100", "--overlap", "0", "text.txt", cwd=tmp_path)
    site.shutdown()
    assert (result.returncode, result.stdout) == (0, "a\ufffdb\ufffd\n"), result.stderr
    assert "a\ufffdb\ufffd" in Nul.prompts[-1] and not any("\0" in prompt for prompt in Nul.prompts)


def test_the_recipe_over_the_api(server, book):
    """docs/guides/map-reduce.md has the same as a program."""
    guide = (pathlib.Path(conftest.ROOT) / "docs/guides/map-reduce.md").read_text()
    program = block(guide, "python")
    (book / "recipe.py").write_text(program)
    import sys
    result = subprocess.run([sys.executable, "recipe.py", server.url + "/v1", "Summarize:", "Combine:", "book.txt"], capture_output=True, text=True,
                            timeout=300, cwd=book, env={"CHUNK_TOKENS": "200", "MAX_TOKENS": "16", "OPENAI_API_KEY": "none"})
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()
