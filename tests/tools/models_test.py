"""quire run, serve --pull, list, show, rm and ps, with a small hub (fake_hub.py) and a cache of its own.

usage: models_test.py QUIRE MODEL
"""
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from fake_hub import COMMIT, FakeHub, Repo

QUIRE, MODEL = sys.argv.pop(1), sys.argv.pop(1)
DEMO = {n: open(os.path.join(MODEL, n), "rb").read() for n in os.listdir(MODEL)}
OTHER = "89abcdef0123456789abcdef0123456789abcdef"
QUANTS = {"x-Q4_K_M.gguf": b"four" * 1000, "x-Q8_0-00001-of-00002.gguf": b"eight" * 1000, "x-Q8_0-00002-of-00002.gguf": b"8" * 500,
          "mmproj-x.gguf": b"vision", "config.json": b"{}"}


class Terminal:
    """A command on its own terminal."""

    def __init__(self, env, *arguments):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(QUIRE, [QUIRE, *arguments], {**env, "TERM": "xterm"})
        self.seen = ""

    def wait_for(self, text):
        deadline = time.monotonic() + 300
        while text not in self.seen:
            assert time.monotonic() < deadline and select.select([self.fd], [], [], 300)[0], (text, self.seen)
            try:
                self.seen += os.read(self.fd, 65536).decode(errors="replace")
            except OSError:
                raise AssertionError((text, self.seen)) from None
        self.seen = self.seen.partition(text)[2]

    def type(self, text):
        os.write(self.fd, text.encode())

    def status(self):
        try:
            while select.select([self.fd], [], [], 300)[0] and (more := os.read(self.fd, 65536)):
                self.seen += more.decode(errors="replace")
        except OSError:
            pass
        else:
            os.kill(self.pid, signal.SIGKILL)  # it waits for something
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.fd)
        return status


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.hub = FakeHub()

    @classmethod
    def tearDownClass(cls):
        cls.hub.close()

    def setUp(self):
        self.hub.reset()
        self.hub.repos.clear()
        self.home = tempfile.mkdtemp(prefix="quire-models-")
        self.addCleanup(shutil.rmtree, self.home)
        env = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "XDG_")) and "proxy" not in k.lower()}
        self.env = {**env, "HF_HOME": self.home, "HF_ENDPOINT": self.hub.url, "XDG_RUNTIME_DIR": self.home}

    def run_quire(self, *arguments, stdin=""):
        return subprocess.run([QUIRE, *arguments], capture_output=True, text=True, timeout=300, env=self.env, input=stdin)

    def quire(self, *arguments, code=0):
        done = self.run_quire(*arguments)
        self.assertEqual(done.returncode, code, "%s\n%s%s" % (arguments, done.stdout, done.stderr))
        return done.stdout if code == 0 else done.stderr

    def models(self):
        return {m["name"]: m for m in json.loads(self.quire("list", "--json"))["models"]}

    def repo(self, *parts):
        return os.path.join(self.home, "hub", *parts)


class Names(Case):
    def test_addresses(self):
        """What people paste: the hub's pages, hf.co, this hub's own address."""
        self.hub.repos["org/demo"] = Repo(DEMO)
        for address in ("https://huggingface.co/org/demo", "https://huggingface.co/org/demo/tree/main", "hf.co/org/demo", "huggingface.co/org/demo?x=1",
                        "hf://org/demo", self.hub.url + "/org/demo/", "https://huggingface.co/org/demo/tree/" + COMMIT):
            said = json.loads(self.quire("pull", address, "--json"))
            self.assertEqual(said["model"], "org/demo", address)
        self.assertIn("path", self.quire("show", "https://huggingface.co/org/demo"))
        for wrong, says in (("https://huggingface.co/datasets/a/b", "not the address of a model"), ("https://huggingface.co/org", "has no model"),
                            ("https://ollama.com/library/llama3", "not an address of the hub"), ("https://huggingface.co/org/..", "not a model name")):
            self.assertIn(says, self.quire("pull", wrong, code=2))

    def test_gguf_choices(self):
        self.hub.repos["org/x-GGUF"] = Repo(QUANTS)
        said = self.quire("pull", "org/x-GGUF", code=1)
        self.assertIn("several GGUF files; write one of these after a colon: Q4_K_M, Q8_0", said)
        for address, quant in (("hf.co/org/x-GGUF:Q4_K_M", "Q4_K_M"), ("https://huggingface.co/org/x-GGUF/blob/main/x-Q8_0-00001-of-00002.gguf", "Q8_0")):
            self.quire("pull", address)
            self.assertTrue(self.models()["org/x-GGUF:" + quant]["complete"])
        several = self.quire("show", "org/x-GGUF", code=1)
        self.assertEqual(several, "quire: org/x-GGUF: several GGUF files; write one of these after a colon: Q4_K_M, Q8_0\n")
        absent = self.quire("show", "org/x-GGUF:Q5_K_M", code=1)
        self.assertTrue(absent.startswith("quire: org/x-GGUF:Q5_K_M is not in the Hugging Face cache (no GGUF file has"), absent)
        self.assertTrue(absent.endswith("; to download it: quire pull org/x-GGUF:Q5_K_M\n"), absent)
        self.hub.repos["org/one-GGUF"] = Repo({"one-Q4_0.gguf": b"only"})
        said = json.loads(self.quire("pull", "org/one-GGUF", "--json"))
        self.assertEqual(said["files"], ["one-Q4_0.gguf"])
        self.assertIn("one-Q4_0.gguf", self.quire("show", "org/one-GGUF", code=1))  # found; its content is wrong

    def test_what_the_hub_itself_lacks(self):
        """Neither is a success, nor something that another pull would complete."""
        self.hub.repos["org/parts"] = Repo({f"x-Q6_K-0000{i}-of-00003.gguf": b"part" for i in (1, 3)})
        for address in ("org/parts", "org/parts:Q6_K"):
            said = self.quire("pull", address, code=1)
            self.assertIn("the hub lacks part 2 of the 3 of x-Q6_K-00001-of-00003.gguf; nothing was downloaded", said)
        self.assertEqual(self.models(), {})
        index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
        self.hub.repos["org/shards"] = Repo({"config.json": b"{}", "tokenizer.json": b"{}", "model-1.safetensors": b"1",
                                             "model.safetensors.index.json": json.dumps(index).encode()})
        said = self.quire("pull", "org/shards", code=1)
        self.assertIn("org/shards: the hub has it without model-2.safetensors, so it does not run", said)

    def test_advice_can_work(self):
        """No advice to pull a name that the hub cannot have; a near name that is downloaded is shown."""
        self.hub.repos["org/demo"] = Repo(DEMO)
        for command in ("serve", "generate", "run", "show"):
            said = self.quire(command, "llama3", code=1)
            self.assertIn("names on the hub are ORG/NAME", said)
            self.assertNotIn("quire pull", said)
        self.assertIn("names on the hub are ORG/NAME", self.quire("pull", "llama3", code=1))
        self.assertIn("to download it: quire pull org/demo", self.quire("generate", "org/demo", code=1))
        self.quire("pull", "org/demo")
        for near in ("demo", "org/dema", "orc/demo", "ORG/Demo"):
            self.assertIn("did you mean org/demo?", self.quire("generate", near, code=1))
        with open(os.path.join(self.home, "hub", "models--org--demo", "refs", "main"), "w") as ref:
            ref.write("broken")
        self.assertIn("to download it: quire pull org/demo\n", self.quire("generate", "org/demo", code=1))
        self.quire("pull", "org/demo")
        self.assertIn("path", self.quire("show", "org/demo"))
        self.assertIn("this file does not exist", self.quire("serve", "nothere.gguf", code=1))
        self.assertIn("the two are swapped", self.quire("generate", "hello you", MODEL, code=2))


class Lists(Case):
    def test_list_and_show(self):
        self.assertEqual(self.models(), {})
        self.assertIn("no models in", self.run_quire("list").stderr)
        repo = self.hub.repos["org/demo"] = Repo(DEMO)
        self.hub.repos["org/x-GGUF"] = Repo(QUANTS)
        for name in ("org/demo", "org/x-GGUF:Q8_0", "org/x-GGUF:q4_k_m"):
            self.quire("pull", name)
        models = self.models()
        self.assertEqual(sorted(models), ["org/demo", "org/x-GGUF:Q4_K_M", "org/x-GGUF:Q8_0"])
        self.assertEqual(models["org/x-GGUF:Q8_0"]["bytes"], 5500)
        self.assertEqual(models["org/demo"]["bytes"], sum(len(c) for n, c in DEMO.items() if n != "README.md"))
        table = self.quire("list").splitlines()
        self.assertRegex(table[0], r"^NAME +SIZE +FORMAT +MODIFIED$")
        self.assertRegex(table[1], r"^org/demo +[0-9.]+ MiB  safetensors  \d{4}-\d\d-\d\d \d\d:\d\d$")
        os.unlink(os.path.join(self.repo("models--org--demo", "snapshots", COMMIT), "model.safetensors"))
        broken = self.models()["org/demo"]
        self.assertFalse(broken["complete"])
        self.assertIn("model.safetensors", broken["missing"])
        self.quire("pull", "org/demo")
        shown = json.loads(self.quire("show", "org/demo", "--json"))
        self.assertEqual((shown["architecture"], shown["context_tokens"], shown["chat_template"], shown["bytes"]),
                         ("Qwen2ForCausalLM", 2048, True, len(DEMO["model.safetensors"])))
        self.assertTrue(repo)

    def test_a_cache_that_cannot_be_read(self):
        """It is not an empty one."""
        file = os.path.join(self.home, "file")
        open(file, "w").close()
        self.env["HF_HUB_CACHE"] = file
        self.assertEqual(self.quire("list", code=1), "quire: " + file + ": cannot be read: Not a directory\n")
        self.env["HF_HUB_CACHE"] = file + "-none"
        self.assertNotIn("cannot be read", self.quire("list"))


class Removal(Case):
    def blobs(self, name):
        return set(os.listdir(self.repo("models--" + name.replace("/", "--"), "blobs")))

    def test_a_revision_leaves_shared_files(self):
        first, second = {**DEMO, "a.txt": b"first"}, {**DEMO, "a.txt": b"second", "b.txt": b"more"}
        old, new = Repo(first), Repo(second, commit=OTHER)
        self.hub.repos["org/demo"] = old
        self.quire("pull", "org/demo")
        self.hub.repos["org/demo"] = new
        self.quire("pull", "org/demo")
        self.assertEqual(sorted(self.models()), ["org/demo", "org/demo@" + COMMIT])
        said = json.loads(self.quire("rm", "org/demo@" + COMMIT, "--yes", "--json"))
        self.assertEqual((said["freed_bytes"], said["whole_repository"]), (len(b"first"), False))
        self.assertEqual(self.blobs("org/demo"), {new.etag(n) for n in second if n != "README.md"})
        self.assertEqual(list(self.models()), ["org/demo"])
        self.assertEqual(os.listdir(self.repo("models--org--demo", "refs")), ["main"])
        self.quire("show", "org/demo")
        self.quire("rm", "org/demo", "--yes")
        self.assertFalse(os.path.exists(self.repo("models--org--demo")))
        self.assertIn("has no org/demo", self.quire("rm", "org/demo", "--yes", code=1))

    def test_one_quantization(self):
        repo = self.hub.repos["org/x"] = Repo(QUANTS)
        self.quire("pull", "org/x:Q4_K_M")
        self.quire("pull", "org/x:Q8_0")
        self.quire("rm", "org/x:Q8_0", "--yes")
        self.assertEqual(self.blobs("org/x"), {repo.etag("x-Q4_K_M.gguf")})
        self.assertEqual(list(self.models()), ["org/x:Q4_K_M"])
        self.assertIn("Q8_0", self.quire("rm", "org/x:Q8_0", "--yes", code=1))
        self.quire("rm", "org/x:Q4_K_M", "--yes")
        self.assertEqual(self.models(), {})

    def test_links_that_lead_out_are_not_followed(self):
        self.hub.repos["org/demo"] = Repo(DEMO)
        self.quire("pull", "org/demo")
        outside = os.path.join(self.home, "outside")
        os.makedirs(os.path.join(outside, "blobs"))
        for name in ("precious", "blobs/precious"):
            with open(os.path.join(outside, name), "w") as f:
                f.write("keep me")
        snapshot = self.repo("models--org--demo", "snapshots", COMMIT)
        os.symlink(os.path.join(outside, "precious"), os.path.join(snapshot, "one.txt"))
        os.symlink(outside, os.path.join(snapshot, "folder"))
        os.symlink("../../../../outside/blobs/precious", os.path.join(snapshot, "two.txt"))
        self.quire("rm", "org/demo@main", "--yes")
        self.assertFalse(os.path.exists(snapshot))
        self.assertEqual(sorted(os.listdir(outside)), ["blobs", "precious"])
        self.assertTrue(os.path.exists(os.path.join(outside, "blobs", "precious")))
        os.rename(self.repo("models--org--demo"), os.path.join(outside, "moved"))
        os.symlink(os.path.join(outside, "moved"), self.repo("models--org--demo"))
        self.assertIn("by hand", self.quire("rm", "org/demo", "--yes", code=1))

    def test_the_question(self):
        self.hub.repos["org/demo"] = Repo(DEMO)
        self.quire("pull", "org/demo")
        self.assertIn("add --yes", self.quire("rm", "org/demo", code=2))
        for typed, left in (("n", True), ("", True), ("y", False)):
            t = Terminal(self.env, "rm", "org/demo")
            t.wait_for("MiB)? [y/N] ")
            t.type(typed + "\r")
            self.assertEqual(t.status(), 1 if left else 0)
            self.assertEqual(os.path.exists(self.repo("models--org--demo")), left)


class Runs(Case):
    def test_run_downloads(self):
        self.hub.repos["org/demo"] = Repo(DEMO)
        t = Terminal(self.env, "run", "org/demo", "What is 12 plus 30?", "--temperature", "0")
        t.wait_for("Download org/demo (6.4 MiB)? [Y/n] ")
        t.type("n\r")
        self.assertEqual(t.status(), 1)
        self.assertIn("org/demo was not downloaded", t.seen)
        self.assertEqual([m["complete"] for m in self.models().values()], [])
        t = Terminal(self.env, "run", "org/demo", "--temperature", "0")
        t.wait_for("[Y/n] ")
        t.type("\r")
        t.wait_for("> ")
        t.type("What is 12 plus 30?\r")
        t.wait_for("42")
        t.wait_for("> ")
        t.type("\x04")
        self.assertEqual(t.status(), 0)
        self.hub.reset()
        done = self.run_quire("run", "org/demo", "What is 12 plus 30?", "--temp", "0", "-n", "200", "-c", "512", "-t", "1")
        self.assertIn("42", done.stdout)
        self.assertEqual(self.hub.requests, [])
        self.quire("rm", "org/demo", "--yes")
        done = self.run_quire("run", "org/demo", "What is 12 plus 30?", "--temp", "0")
        self.assertIn("quire: downloading org/demo (6.4 MiB)", done.stderr)
        self.assertIn("42", done.stdout)

    def test_serve_pull_and_ps(self):
        self.hub.repos["org/demo"] = Repo(DEMO)
        self.assertIn("quire pull org/demo", self.quire("serve", "org/demo", code=1))
        self.assertIn("no server", self.run_quire("ps").stderr)
        with subprocess.Popen([QUIRE, "serve", "org/demo", "--pull", "--port", "0", "-c", "256"], stderr=subprocess.PIPE, text=True, env=self.env) as server:
            said = ""
            while "ready on" not in said:
                line = server.stderr.readline()
                self.assertTrue(line, said)
                said += line
            url = re.search(r"ready on (http://\S+)/v1", said).group(1)
            [row] = json.loads(self.quire("ps", "--json"))["servers"]
            self.assertEqual((row["model"], row["address"], row["pid"], row["state"], row["command"]), ("org/demo", url, server.pid, "ready", "serve"))
            self.assertRegex(self.quire("ps"), r"MODEL +ADDRESS +COMMAND +PID +MEMORY +UP +STATE\norg/demo .* ready\n")
            where = os.path.join(self.home, "quire")
            self.assertEqual(os.stat(where).st_mode & 0o777, 0o700)
            [name] = os.listdir(where)
            with open(os.path.join(where, name)) as f:
                kept = f.read()
            os.kill(server.pid, signal.SIGSTOP)  # it runs, and does not answer
            [row] = json.loads(self.quire("ps", "--json"))["servers"]
            self.assertEqual(row["state"], "no answer")
            os.kill(server.pid, signal.SIGCONT)
            server.send_signal(signal.SIGTERM)
            while server.stderr.readline():
                pass
            self.assertEqual(server.wait(300), 0)
        self.assertEqual(os.listdir(where), [])
        # A file that a killed server left is never believed, also if another process has its number.
        for pid in (server.pid, os.getpid()):
            with open(os.path.join(where, "%d.json" % pid), "w") as f:
                f.write(kept.replace('"pid":%d' % server.pid, '"pid":%d' % pid))
        for name, text in (("1.json", "{"), ("2.json", '{"pid":-1}'), ("3.json", "[" * 5000), ("4.json", "")):
            with open(os.path.join(where, name), "w") as f:
                f.write(text)
        os.mkfifo(os.path.join(where, "5.json"))
        self.assertEqual(json.loads(self.quire("ps", "--json"))["servers"], [])
        self.assertNotIn("%d.json" % server.pid, os.listdir(where))
        os.chmod(where, 0o777)
        self.assertIn("only you can write", self.quire("ps", code=1))


if __name__ == "__main__":
    unittest.main()
