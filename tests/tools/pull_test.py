"""quire pull from a small hub that also fails, stalls and lies (fake_hub.py), and models by name from the resulting
files.

usage: pull_test.py QUIRE MODEL. If huggingface_hub is installed, that library reads the cache, too.
"""
import fcntl
import json
import os
import pty
import random
import re
import shutil
import signal
import ssl
import stat
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from fake_hub import COMMIT, STALL_S, FakeHub, Repo

QUIRE, MODEL = sys.argv.pop(1), sys.argv.pop(1)
UNIT = 1 << 20
TOKEN = "hf_secret0123456789"
DEMO = {n: open(os.path.join(MODEL, n), "rb").read() for n in os.listdir(MODEL)}
WANTED = sorted(n for n in DEMO if n != "README.md")
SMALL = {"config.json": b"{}", "tokenizer.json": b"{ }", "model.safetensors": random.Random(1).randbytes(3 * UNIT + 5)}
BIG = {"config.json": b"{}", "tokenizer.json": b"{ }", "model.safetensors": random.Random(2).randbytes(40 * UNIT + 77)}


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
        self.home = tempfile.mkdtemp(prefix="quire-pull-")
        self.addCleanup(shutil.rmtree, self.home)

    def environment(self, **more):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "XDG_")) and "proxy" not in k.lower()}
        return {**env, "HF_HOME": self.home, "HF_ENDPOINT": self.hub.url, "HF_HUB_DOWNLOAD_TIMEOUT": "8", **more}

    def quire(self, *arguments, code=0, **env):
        done = subprocess.run([QUIRE, *map(str, arguments)], capture_output=True, text=True, timeout=600, env=self.environment(**env))
        self.assertEqual(done.returncode, code, "%s\n%s%s" % (arguments, done.stdout, done.stderr))
        self.assertNotIn(TOKEN, done.stdout + done.stderr)
        return done.stdout if code == 0 else done.stderr

    def pull(self, name, *arguments, **env):
        return json.loads(self.quire("pull", name, "--json", *arguments, **env))

    def repo_dir(self, name):
        return os.path.join(self.home, "hub", "models--" + name.replace("/", "--"))

    def check_content(self, name, files, commit=COMMIT):
        for file, content in files.items():
            with open(os.path.join(self.repo_dir(name), "snapshots", commit, file), "rb") as f:
                self.assertTrue(f.read() == content, file)

    def blobs(self, name):
        return sorted(os.listdir(os.path.join(self.repo_dir(name), "blobs")))


class Layout(Case):
    def test_layout(self):
        """As huggingface_hub documents it: blobs by ETag, relative links by commit and name, refs without a line
        break."""
        extra = {"additional_chat_templates/tool use.jinja": b"{{ x }}", "pytorch_model.bin": b"pickle",
                 "original/params.json": b"{}", "consolidated.safetensors": b"again", "merges.txt": b"a b", "1_Pooling/config.json": b"{ }",
                 "2_Dense/config.json": b"{  }", "2_Dense/model.safetensors": b"dense", "2_Dense/pytorch_model.bin": b"pickle"}
        repo = self.hub.repos["org/demo"] = Repo({**DEMO, **extra})
        said = self.pull("org/demo")
        wanted = sorted(WANTED + ["additional_chat_templates/tool use.jinja", "merges.txt", "1_Pooling/config.json",
                                  "2_Dense/config.json", "2_Dense/model.safetensors"])
        self.assertEqual(sorted(said["files"]), wanted)
        self.assertEqual(said["commit"], COMMIT)
        self.assertEqual(said["bytes"], sum(len(repo.files[n]) for n in wanted))
        self.assertEqual(said["downloaded_bytes"], said["bytes"])
        at = self.repo_dir("org/demo")
        self.assertEqual(said["path"], os.path.join(at, "snapshots", COMMIT))
        self.assertEqual(sorted(os.listdir(at)), ["blobs", "refs", "snapshots"])
        with open(os.path.join(at, "refs", "main")) as f:
            self.assertEqual(f.read(), COMMIT)
        self.assertEqual(self.blobs("org/demo"), sorted({repo.etag(n) for n in wanted}))
        for name in wanted:
            link = os.path.join(said["path"], name)
            self.assertEqual(os.readlink(link), "../" * (2 + name.count("/")) + "blobs/" + repo.etag(name))
            mode = stat.S_IMODE(os.stat(link).st_mode)
            umask = os.umask(0)
            os.umask(umask)
            self.assertEqual(mode, 0o666 & ~umask)
        self.check_content("org/demo", {n: repo.files[n] for n in wanted})

        self.hub.reset()
        self.assertEqual(self.pull("org/demo")["downloaded_bytes"], 0)
        self.assertEqual(self.hub.sent, 0)

    def test_library_reads_it(self):
        try:
            import huggingface_hub
        except ImportError:
            self.skipTest("huggingface_hub is not installed")
        self.hub.repos["org/demo"] = Repo(DEMO)
        said = self.pull("org/demo")
        path = huggingface_hub.snapshot_download("org/demo", cache_dir=os.path.join(self.home, "hub"), local_files_only=True)
        self.assertEqual(path, said["path"])
        scanned = huggingface_hub.scan_cache_dir(os.path.join(self.home, "hub"))
        self.assertEqual([r.repo_id for r in scanned.repos], ["org/demo"])
        self.assertFalse(scanned.warnings)

    def test_revisions(self):
        self.hub.repos["org/demo"] = Repo(SMALL)
        self.pull("org/demo@refs/pr/1")
        with open(os.path.join(self.repo_dir("org/demo"), "refs/refs/pr/1")) as f:
            self.assertEqual(f.read(), COMMIT)
        self.pull("org/demo@" + COMMIT)
        self.assertEqual(os.listdir(os.path.join(self.repo_dir("org/demo"), "refs")), ["refs"])
        self.assertIn("no revision v9", self.quire("pull", "org/demo@v9", code=1))

    def test_a_full_disk_leaves_no_half_ref(self):
        """huggingface_hub takes every file in refs for a revision."""
        self.hub.repos["org/demo"] = Repo(SMALL)
        refs = os.path.join(self.repo_dir("org/demo"), "refs")
        os.makedirs(refs)
        os.symlink("/dev/full", os.path.join(refs, "main.quire.new"))
        self.assertIn("No space left", self.quire("pull", "org/demo", code=1))
        self.assertEqual(os.listdir(refs), [])
        self.pull("org/demo")
        self.assertEqual(os.listdir(refs), ["main"])

    def test_patterns(self):
        self.hub.repos["org/demo"] = Repo({**SMALL, "a.bin": b"x", "original/params.json": b"{}"})
        self.assertEqual(self.pull("org/demo", "--include", "*.json", "*.bin", "--exclude", "tok*")["files"],
                         ["config.json", "original/params.json"])
        self.assertIn("never downloaded", self.quire("pull", "org/demo", "--include", "*.bin", code=1))
        self.hub.repos["org/gguf"] = Repo({"config.json": b"{}", "tokenizer.json": b"{}", "x.gguf": b"x"})
        self.assertEqual(self.pull("org/gguf")["files"], ["x.gguf"])
        self.hub.repos["org/onnx"] = Repo({"config.json": b"{}", "tokenizer.json": b"{}", "x.onnx": b"x"})
        self.assertIn("has no *.safetensors", self.quire("pull", "org/onnx", code=1))
        files = {**SMALL, "tokenizer.model": b"x"}
        del files["tokenizer.json"]
        self.hub.repos["org/pieces"] = Repo(files)
        self.pull("org/pieces")
        self.check_content("org/pieces", files)
        self.assertNotIn("without", self.quire("plan", "org/pieces", code=1)) # its config.json is empty

    def test_a_gguf_file_by_how_it_is_quantized(self):
        files = {f"m-{q}.gguf": q.encode() for q in ("Q8_0", "q4_k_m", "Q4_K_S")}
        files |= {f"big/m.Q6_K-0000{i}-of-00002.gguf": b"x%d" % i for i in (1, 2)}
        self.hub.repos["org/gguf"] = Repo({**files, "config.json": b"{}", "README.md": b"x"})
        self.assertEqual(self.pull("org/gguf:Q4_K_M")["files"], ["m-q4_k_m.gguf"])
        self.check_content("org/gguf", {"m-q4_k_m.gguf": b"q4_k_m"})
        self.assertEqual(self.pull("org/gguf:q6_k")["files"], [n for n in sorted(files) if "Q6_K" in n])
        self.assertIn("no GGUF file has the quantization Q5_0; available: ", self.quire("pull", "org/gguf:Q5_0", code=1))
        self.hub.repos["org/gguf"] = Repo({**files, "other-Q8_0.gguf": b"y"})
        self.assertIn("Q8_0 matches more than one file: ", self.quire("pull", "org/gguf:Q8_0", code=1))
        # Every command finds the downloaded files, without the hub.
        self.assertIn("m-q4_k_m.gguf: header: this is not a GGUF file", self.quire("plan", "org/gguf:Q4_K_M", code=1, HF_HUB_OFFLINE="1"))

    def test_same_and_empty_files(self):
        files = {**SMALL, "a.json": b"", "b.json": b"", "c.safetensors": SMALL["model.safetensors"]}
        self.hub.repos["org/demo"] = Repo(files)
        self.pull("org/demo")
        self.check_content("org/demo", files)


class Token(Case):
    def test_only_the_hub_sees_it(self):
        self.hub.repos["org/demo"] = Repo(SMALL, token=TOKEN)
        self.pull("org/demo", HF_TOKEN=TOKEN)
        seen = {r.server: r.authorization for r in self.hub.requests}
        self.assertEqual(seen, {"hub": "Bearer " + TOKEN, "cdn": None})
        self.assertTrue(all(r.authorization is None for r in self.hub.requests if r.server == "cdn"))

    def test_a_redirected_list(self):
        """A hub that redirects requests for the list, for a file's type or for its content to another port."""
        repo = self.hub.repos["org/demo"] = Repo(SMALL, token=TOKEN)
        thief = FakeHub()
        self.addCleanup(thief.close)
        thief.repos["org/demo"] = Repo(SMALL)
        handler = self.hub.hub.RequestHandlerClass
        real = handler.api
        self.addCleanup(setattr, handler, "api", real)
        handler.api = lambda self, name, revision: self.reply(307, Location=thief.url + self.path)
        self.hub.faults["HEAD tokenizer.json"] = [thief.url + "/org/demo/resolve/%s/tokenizer.json" % COMMIT]
        self.hub.faults["config.json"] = [thief.cdn_url + "/org/demo/config.json"]
        self.pull("org/demo", HF_TOKEN=TOKEN)
        self.assertEqual({(r.server, r.method) for r in thief.requests}, {("hub", "GET"), ("hub", "HEAD"), ("cdn", "GET")})
        self.assertEqual({r.authorization for r in thief.requests}, {None})
        self.check_content("org/demo", repo.files)

    def test_files(self):
        self.hub.repos["org/demo"] = Repo(SMALL, token=TOKEN)
        path = os.path.join(self.home, "token")
        with open(path, "w") as f:
            f.write(TOKEN + "\n")
        self.pull("org/demo")
        os.rename(path, path + "2")
        self.assertIn("HF_TOKEN", self.quire("pull", "org/demo", code=1))
        self.pull("org/demo", "--token-file", path + "2")
        self.pull("org/demo", HF_TOKEN_PATH=path + "2")
        with open(path, "w") as f:
            f.write("two words\n")
        self.assertIn("contains an invalid token", self.quire("pull", "org/demo", code=1))

    def test_not_over_plain_http(self):
        """Through a proxy, so that a remote hub can be simulated on loopback."""
        self.hub.repos["org/demo"] = Repo(SMALL, token=TOKEN)
        said = self.quire("pull", "org/demo", code=1, HF_TOKEN=TOKEN, HF_ENDPOINT="http://hub.invalid", http_proxy=self.hub.url)
        self.assertIn("plain http", said)
        self.assertTrue(self.hub.requests)
        self.assertEqual({r.authorization for r in self.hub.requests}, {None})

    def test_loopback_without_a_proxy(self):
        """A proxy would read the token. No process listens at this one, so only requests that the hub redirects
        fail."""
        self.hub.repos["org/demo"] = Repo(SMALL, token=TOKEN)
        said = self.quire("pull", "org/demo", code=1, HF_TOKEN=TOKEN, http_proxy="http://127.0.0.1:1")
        self.assertIn("model.safetensors: Failed to connect to 127.0.0.1 port 1", said)
        self.assertIn("Bearer " + TOKEN, {r.authorization for r in self.hub.requests})

    def test_refusals(self):
        self.hub.repos["org/gated"] = Repo(SMALL, token=TOKEN, gated=True)
        said = self.quire("pull", "org/gated", code=1)
        self.assertIn("is gated: accept its terms at %s/org/gated" % self.hub.url, said)
        self.assertIn("hf auth login", said)
        self.assertIn("with the account", self.quire("pull", "org/gated", code=1, HF_TOKEN="hf_other"))
        self.hub.repos["org/private"] = Repo(SMALL, token=TOKEN)
        self.assertIn("rejects this token", self.quire("pull", "org/private", code=1, HF_TOKEN="hf_other"))
        self.assertIn("404", self.quire("pull", "org/gone", code=1))


class Encryption(Case):
    def test_certificates_are_checked(self):
        if not shutil.which("openssl"):
            self.skipTest("there is no openssl program to make a certificate with")
        key, certificate = os.path.join(self.home, "key"), os.path.join(self.home, "certificate")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout",
                        key, "-out", certificate, "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
                       check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        liar = FakeHub(context)
        self.addCleanup(liar.close)
        liar.repos["org/demo"] = Repo(SMALL)
        said = self.quire("pull", "org/demo", code=1, HF_ENDPOINT="https://localhost:%d" % liar.hub.server_port)
        self.assertIn("certificate", said)
        self.assertNotIn("retrying", said)
        self.assertEqual(liar.requests, [])
        # With the certificate in SSL_CERT_FILE, the hub is trusted; its CDN is not, since this one has no TLS.
        said = self.quire("pull", "org/demo", code=1, HF_ENDPOINT="https://localhost:%d" % liar.hub.server_port, SSL_CERT_FILE=certificate)
        self.assertIn('"http" not supported', said)
        self.assertNotEqual(liar.requests, [])


class Terminal(Case):
    def test_progress(self):
        """A bar with a rate and the time left, and the retries: only on a terminal."""
        self.hub.repos["org/demo"] = Repo(BIG)
        self.hub.delay = 0.02
        self.hub.faults["api"] = [500]
        at, terminal = pty.openpty()
        process = subprocess.Popen([QUIRE, "pull", "org/demo"], env=self.environment(), stdout=subprocess.DEVNULL, stderr=terminal)
        os.close(terminal)
        shown = b""
        try:
            while piece := os.read(at, 4096):
                shown += piece
        except OSError:  # the end of a terminal
            pass
        os.close(at)
        self.assertEqual(process.wait(), 0)
        self.assertRegex(shown.decode(), r"org/demo \[#+ +\] [0-9.]+ MiB of 40\.0 MiB, [0-9.]+ [KM]iB/s, [0-9]+ s left")
        self.assertIn(b"HTTP 500; retrying", shown)
        self.assertNotIn("\n", re.sub(r"quire: .*\n", "", shown.decode().replace("\r\n", "\n")))
        shutil.rmtree(self.home)
        self.hub.faults["api"] = [500]
        done = subprocess.run([QUIRE, "pull", "org/demo"], env=self.environment(), capture_output=True, text=True, timeout=600)
        self.assertEqual((done.returncode, done.stderr.count("\n"), "\r" in done.stderr), (0, 1, False), done.stderr)


    def on_terminal(self, *arguments, keys=b"", columns=80, term="xterm"):
        """What a terminal shows. keys: typed at once."""
        at, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = subprocess.Popen([QUIRE, *arguments], env=self.environment(TERM=term), stdin=terminal, stdout=subprocess.DEVNULL, stderr=terminal)
        os.close(terminal)
        os.write(at, keys)
        shown = b""
        try:
            while piece := os.read(at, 4096):
                shown += piece
        except OSError:  # the end of a terminal
            pass
        os.close(at)
        return process.wait(), shown.decode()

    def test_the_bar_fits_the_terminal(self):
        """A longer line would leave its beginning on the screen at each step."""
        name = "organization/a-name-that-is-as-long-as-many-names-of-models"
        self.hub.repos[name] = Repo(BIG)
        self.hub.delay = 0.02
        code, shown = self.on_terminal("pull", name)
        bars = [part for part in shown.split("\r\x1b[K") if part.startswith(name[:40])]
        self.assertEqual((code, len(bars) > 1, max(map(len, bars)) < 80), (0, True, True), bars)
        shutil.rmtree(self.home)
        code, shown = self.on_terminal("pull", name, term="dumb")
        self.assertEqual((code, "\x1b" in shown), (0, False), shown)

    def test_the_question_stands_on_a_line_of_its_own(self):
        self.hub.repos["org/demo"] = Repo(DEMO)
        self.hub.delay = 0.05
        for keys, code in ((b"n\n", 1), (b"what\ny\n", 0)):
            status, shown = self.on_terminal("run", "org/demo", "Hello.", "--max-tokens", "3", keys=keys)
            self.assertEqual(status, code, shown)
            before, question, _ = shown.partition("Download org/demo (6.")
            self.assertTrue(question and re.split("\r\x1b\\[K|\n", before)[-1] == "", shown)
        self.assertRegex(self.quire("list"), "org/demo +6")


class Trouble(Case):
    def setUp(self):
        super().setUp()
        self.repo = self.hub.repos["org/demo"] = Repo(SMALL)
        self.files = SMALL

    def use(self, files):
        self.files = files
        self.repo = self.hub.repos["org/demo"] = Repo(files)

    def succeeds(self, **env):
        said = self.pull("org/demo", **env)
        self.check_content("org/demo", self.files)
        self.assertEqual(self.blobs("org/demo"), sorted({self.repo.etag(n) for n in self.files}))
        self.assertFalse(any(self.hub.faults.values()), "a fault was not met: %s" % self.hub.faults)
        return said

    def test_server_errors(self):
        self.hub.faults["api"] = [500, 503]
        self.hub.faults["HEAD model.safetensors"] = [502]
        self.hub.faults["model.safetensors"] = [500, 403]  # 403: an expired signed address
        self.succeeds()

    def test_too_many_requests(self):
        self.hub.faults["HEAD config.json"] = [(429, 2)]
        began = time.monotonic()
        self.succeeds()
        self.assertGreater(time.monotonic() - began, 2)
        self.hub.faults["api"] = [(429, 100000)]
        self.assertIn("too many requests to the hub", self.quire("pull", "org/demo", code=1))

    def test_stall_and_cut(self):
        self.use(BIG)
        self.hub.faults["model.safetensors"] = ["stall", "cut", "cut"]
        began = time.monotonic()
        said = self.succeeds(HF_HUB_DOWNLOAD_TIMEOUT="4")
        self.assertLess(time.monotonic() - began, STALL_S - 1)
        self.assertLess(said["downloaded_bytes"], len(BIG["model.safetensors"]) + 4 * UNIT)  # no whole pieces twice

    def test_no_ranges(self):
        self.use(BIG)
        self.hub.faults["model.safetensors"] = ["no-range"] * 8
        self.pull("org/demo")
        self.check_content("org/demo", BIG)

    def test_wrong_content(self):
        self.hub.faults["model.safetensors"] = ["flip"]
        self.succeeds()
        shutil.rmtree(self.home)
        self.hub.faults["model.safetensors"] = ["flip"] * 2
        self.assertIn("SHA-256", self.quire("pull", "org/demo", code=1))
        left = [n for n in self.blobs("org/demo") if n.startswith(self.repo.etag("model.safetensors"))]
        self.assertEqual(left, [])
        self.succeeds()

    def test_lies_about_size(self):
        for lie in (1, -1, UNIT):
            self.repo.sizes["model.safetensors"] = len(SMALL["model.safetensors"]) + lie
            self.assertIn("than announced", self.quire("pull", "org/demo", code=1))
        self.repo.sizes["model.safetensors"] = 1 << 62
        self.assertIn("more than the largest file size", self.quire("pull", "org/demo", code=1))
        self.repo.sizes.clear()
        self.hub.faults["model.safetensors"] = ["long"]
        self.pull("org/demo")
        self.check_content("org/demo", SMALL)

    def test_full_disk(self):
        """Requests more space than any disk here has, with files of the largest possible size."""
        self.use({**SMALL, **{"%02d.safetensors" % i: b"%d" % i for i in range(50)}})
        self.repo.sizes = {n: 1 << 40 for n in self.files if n[0].isdigit()}
        self.assertIn("50.0 TiB are left to download", self.quire("pull", "org/demo", code=1))
        self.assertEqual(self.blobs("org/demo"), [])
        self.assertEqual(self.hub.sent, 0)

    def test_hostile_names(self):
        outside = os.path.join(self.home, "hub", "evil.json")
        for name in ("../../evil.json", "/etc/evil.json", "a/../../../evil.json", "a\\evil.json", "evil\x1b.json", "a//b.json",
                     "./evil.json", "", "a/", "x" * 300 + ".json"):
            self.repo.siblings = list(SMALL) + [name]
            said = self.quire("pull", "org/demo", code=1)
            self.assertIn("siblings[3]: rfilename", said)
            self.assertNotIn("\x1b", said)
        self.assertFalse(os.path.exists(outside))
        self.repo.siblings = list(SMALL) + ["config.json"]
        self.assertIn("twice", self.quire("pull", "org/demo", code=1))
        self.repo.siblings = list(SMALL) + ["nothere.json"]
        self.assertIn("nothere.json", self.quire("pull", "org/demo", code=1))
        self.assertEqual(self.hub.sent, 0)

    def test_round_and_round(self):
        self.hub.faults["HEAD config.json"] = ["%s/org/demo/resolve/%s/config.json" % (self.hub.url, COMMIT)] * 9
        self.assertIn("too many redirects", self.quire("pull", "org/demo", code=1))

    def test_hostile_answers(self):
        self.repo.commit = "../../../../../../../../../../../tmp/evil"
        self.assertIn("sha", self.quire("pull", "org/demo", code=1))
        self.repo.commit = COMMIT
        self.repo.etag = lambda name: "../../evil"
        self.assertIn("ETag", self.quire("pull", "org/demo", code=1))
        for name in ("../x", "a/b/c", "-a/b", "a--b", "a/..", "a b", "a@", "a@../x", "a@-x", "a" * 97, "é"):
            self.quire("pull", "--", name, code=2)
        self.assertIn("HF_ENDPOINT", self.quire("pull", "org/demo", code=1, HF_ENDPOINT="ftp://hub"))
        self.assertIn("HF_HUB_OFFLINE", self.quire("pull", "org/demo", code=1, HF_HUB_OFFLINE="1"))

    def start(self):
        process = subprocess.Popen([QUIRE, "pull", "org/demo", "--json"], env=self.environment(), text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def test_resume_after_kill(self):
        self.use(BIG)
        size = len(BIG["model.safetensors"])
        part = os.path.join(self.repo_dir("org/demo"), "blobs", self.repo.etag("model.safetensors") + ".quire.incomplete")

        def units():
            with open(part, "rb") as f:
                f.seek(size)
                return f.read()

        self.hub.most = 16 * UNIT
        process = self.start()
        while not os.path.exists(part) or sum(units()) < 5:
            self.assertIsNone(process.poll())
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.hub.reset()
        self.assertEqual(len(units()), -(-size // UNIT))
        there = sum(min(UNIT, size - i * UNIT) for i, u in enumerate(units()) if u == 1)
        self.assertIn(there // UNIT, range(5, 30))
        said = self.succeeds()
        small = sum(len(c) for n, c in BIG.items() if n != "model.safetensors")
        self.assertIn(said["downloaded_bytes"] - (size - there), range(small + 1))

    def test_two_at_once(self):
        self.use(BIG)
        self.hub.delay = 0.5
        both = [self.start()]
        while self.hub.sent < UNIT:
            time.sleep(0.005)
        both.append(self.start())
        self.assertIn("waiting", both[1].stderr.readline())
        self.hub.delay = 0
        said = [p.communicate(timeout=600) for p in both]
        self.assertEqual([p.returncode for p in both], [0, 0], said)
        self.check_content("org/demo", BIG)
        self.assertEqual(sum(json.loads(out)["downloaded_bytes"] for out, _ in said), sum(map(len, BIG.values())))


class Names(Case):
    def test_by_name(self):
        self.hub.repos["org/demo"] = Repo(DEMO)
        self.pull("org/demo")
        offline = {"HF_HUB_OFFLINE": "1", "HF_ENDPOINT": "http://127.0.0.1:1"}
        arguments = ("--raw", "--max-tokens", "8", "--temperature", "0", "--threads", "1", "--json")
        here = json.loads(self.quire("generate", MODEL, "Once", *arguments))
        self.assertEqual(json.loads(self.quire("generate", "org/demo", "Once", *arguments, **offline))["text"], here["text"])
        for name in ("org/demo", "org/demo@main", "org/demo@" + COMMIT):
            plan = json.loads(self.quire("plan", name, "--json", **offline))
            self.assertEqual(plan["model"], name)
        for env in ({"HF_HUB_CACHE": os.path.join(self.home, "hub"), "HF_HOME": "/nowhere"},):
            self.quire("plan", "org/demo", **env)
        os.rename(os.path.join(self.home, "hub"), os.path.join(self.home, "x"))
        os.makedirs(os.path.join(self.home, ".cache", "huggingface"))
        os.rename(os.path.join(self.home, "x"), os.path.join(self.home, ".cache", "huggingface", "hub"))
        self.quire("plan", "org/demo", HF_HOME="", HOME=self.home)
        self.quire("plan", "org/demo", HF_HOME="", HOME="/nowhere", XDG_CACHE_HOME=os.path.join(self.home, ".cache"))

    def test_what_to_do_next(self):
        self.assertIn("quire pull org/none\n", self.quire("plan", "org/none", code=1))
        self.assertIn("quire pull org/none@v2\n", self.quire("plan", "org/none@v2", code=1))
        index = {"metadata": {}, "weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "model-2.safetensors"}}
        self.hub.repos["org/shards"] = Repo({"config.json": b"{}", "tokenizer.json": b"{ }", "model-1.safetensors": b"1",
                                             "model-2.safetensors": b"2",
                                             "model.safetensors.index.json": json.dumps(index).encode()})
        said = self.pull("org/shards", "--exclude", "model-2*", "tokenizer.json")
        error = self.quire("serve", "org/shards", code=1)
        self.assertIn("without tokenizer.json, model-2.safetensors; to complete it: quire pull org/shards\n", error)
        self.pull("org/shards")
        self.assertNotIn("without", self.quire("plan", "org/shards", code=1)) # its config.json is empty
        os.unlink(os.path.join(said["path"], "config.json"))
        os.symlink("../../blobs/gone", os.path.join(said["path"], "config.json"))
        self.assertIn("without config.json", self.quire("bench", "latency", "org/shards", code=1))

    def test_served_name(self):
        self.hub.repos["org/demo"] = Repo(DEMO)
        self.pull("org/demo")
        process = subprocess.Popen([QUIRE, "serve", "org/demo", "--port", "0", "--threads", "1"], env=self.environment(),
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        while not (ready := re.search(r"http://[0-9.:]+", line := process.stderr.readline())):
            self.assertTrue(line, "the server ended")
        with urllib.request.urlopen(ready[0].rstrip(".") + "/v1/models", timeout=300) as reply:
            card = json.load(reply)["data"][0]
        self.assertEqual((card["id"], card["root"]), ("org/demo", "org/demo"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
