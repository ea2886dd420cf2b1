"""A small hub on loopback with a CDN on another port: the parts of the Hugging Face hub's HTTP that a download uses,
and their typical failures. Only Python's standard library."""
import collections
import hashlib
import http.server
import json
import math
import re
import socket
import threading
import time
import urllib.parse

CHUNK = 1 << 18
STALL_S = 600
COMMIT = "0123456789abcdef0123456789abcdef01234567"

Request = collections.namedtuple("Request", "server method path authorization range")


class Repo:
    """files: name -> content. Files that end in .safetensors or .bin are in LFS: their ETag is their SHA-256, and
    the CDN has them."""

    def __init__(self, files, token=None, gated=False, siblings=None, commit=COMMIT):
        self.files, self.token, self.gated, self.commit = dict(files), token, gated, commit
        self.siblings = siblings if siblings is not None else list(self.files)
        self.sizes = {}  # name -> size sent instead of the true one

    @staticmethod
    def is_lfs(name):
        return name.endswith((".safetensors", ".bin"))

    def etag(self, name):
        content = self.files[name]
        if self.is_lfs(name):
            return hashlib.sha256(content).hexdigest()
        return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class FakeHub:
    """hub.faults[name] is a list. A GET of that file's bytes, or of "api", or a "HEAD name", takes one from its
    front: an HTTP status, (429, seconds), "stall", "cut", "flip" (other bytes), "no-range", "long" (more bytes),
    an address (a redirect)."""

    def __init__(self, tls=None):
        self.tls = tls
        self.repos, self.faults, self.requests = {}, collections.defaultdict(list), []
        self.sent = 0             # bytes of content, from everywhere
        self.delay = 0.0          # seconds before each CHUNK
        self.most = math.inf      # bytes of content after which no more is sent until reset()
        self.lock = threading.Lock()
        self.over = threading.Event()
        self.hub, self.cdn = self._listen("hub"), self._listen("cdn")
        self.url = "http://127.0.0.1:%d" % self.hub.server_port
        self.cdn_url = "http://127.0.0.1:%d" % self.cdn.server_port

    def _listen(self, kind):
        handler = type("Handler", (Handler,), {"fake": self, "kind": kind})
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        server.handle_error = lambda request, address: None  # clients that are killed or give up
        if self.tls:
            server.socket = self.tls.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return server

    def close(self):
        self.over.set()
        for server in (self.hub, self.cdn):
            server.shutdown()
            server.server_close()

    def reset(self):
        with self.lock:
            self.faults.clear()
            self.requests.clear()
            self.sent, self.delay, self.most = 0, 0.0, math.inf

    def fault(self, key):
        with self.lock:
            return self.faults[key].pop(0) if self.faults.get(key) else None


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30

    def log_message(self, *args):
        pass

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.answer()

    def answer(self):
        path = urllib.parse.urlsplit(self.path)  # a proxy receives whole addresses
        path = urllib.parse.unquote(path.path)
        self.fake.requests.append(Request(self.kind, self.command, path, self.headers.get("Authorization"),
                                          self.headers.get("Range")))
        if self.kind == "cdn":
            return self.cdn(path)
        if m := re.fullmatch(r"/api/models/(.+)/revision/(.+)", path):
            return self.api(*m.groups())
        if m := re.fullmatch(r"/(.+)/resolve/([0-9a-f]{40})/(.+)", path):
            return self.resolve(*m.groups())
        if m := re.fullmatch(r"/cache/(.+)/([0-9a-f]{40})/(.+)", path):
            return self.small(*m.groups())
        return self.reply(404)

    def reply(self, code, body=b"", **headers):
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def fails(self, key):
        """Returns the next fault of key, if that is a status."""
        fault = self.fake.fault(key)
        if isinstance(fault, tuple):
            self.reply(fault[0], b"slow down", Retry_After=str(fault[1]))
        elif isinstance(fault, int):
            self.reply(fault, b"<html>trouble</html>")
        return fault

    def allowed(self, repo):
        if not repo.token or self.headers.get("Authorization") == "Bearer " + repo.token:
            return True
        self.reply(401, b"{}", **({"X_Error_Code": "GatedRepo"} if repo.gated else {}))
        return False

    def api(self, name, revision):
        repo = self.fake.repos.get(name)
        if isinstance(self.fails("api"), (int, tuple)):
            return None
        if repo is None:
            return self.reply(404, b"{}", X_Error_Code="RepoNotFound")
        if not repo.gated and not self.allowed(repo):
            return None
        if revision not in ("main", "refs/pr/1", repo.commit):
            return self.reply(404, b"{}", X_Error_Code="RevisionNotFound")
        body = {"id": name, "sha": repo.commit, "siblings": [{"rfilename": n} for n in repo.siblings], "cardData": {"a": [1]}}
        return self.reply(200, json.dumps(body).encode(), Content_Type="application/json")

    def resolve(self, name, commit, file):
        repo = self.fake.repos[name]
        fault = self.fails(self.command + " " + file) if self.allowed(repo) else 0
        if isinstance(fault, (int, tuple)):
            return None
        if fault:
            return self.reply(302, Location=fault)
        if file not in repo.files:
            return self.reply(404, X_Error_Code="EntryNotFound")
        if not repo.is_lfs(file):
            return self.reply(307, Location="/cache/%s/%s/%s" % (name, commit, urllib.parse.quote(file)))
        size = repo.sizes.get(file, len(repo.files[file]))
        return self.reply(302, X_Repo_Commit=repo.commit, X_Linked_Etag='"%s"' % repo.etag(file), X_Linked_Size=str(size),
                          Location="%s/%s/%s?signed=1" % (self.fake.cdn_url, name, urllib.parse.quote(file)))

    def small(self, name, commit, file):
        repo = self.fake.repos[name]
        if self.allowed(repo):
            self.content(file, repo.files[file], {"ETag": 'W/"%s"' % repo.etag(file), "X-Repo-Commit": repo.commit})

    def cdn(self, path):
        for name, repo in self.fake.repos.items():
            file = path[len(name) + 2:]
            if path.startswith("/%s/" % name) and file in repo.files:
                return self.content(file, repo.files[file], {})
        return self.reply(404)

    def content(self, file, content, headers):
        fault = self.fails(file) if self.command == "GET" else None
        if isinstance(fault, (int, tuple)):
            return
        if fault and fault.startswith("http"):
            self.reply(302, Location=fault)
            return
        first, last = 0, len(content) - 1
        m = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
        if m and fault != "no-range":
            first, last = int(m[1]), min(int(m[2]), last)
        part = content[first:last + 1]
        if fault == "flip":
            part = bytes([part[0] ^ 1]) + part[1:]
        if fault == "long":
            part += b"more"
        self.send_response(206 if m and fault != "no-range" else 200)
        if m and fault != "no-range":
            self.send_header("Content-Range", "bytes %d-%d/%d" % (first, last, len(content)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if fault in ("stall", "cut"):
            self.send(part[:len(part) // 2])
            if fault == "stall":
                self.fake.over.wait(STALL_S)
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.send(part)

    def send(self, part):
        for at in range(0, len(part), CHUNK):
            if self.fake.delay:
                time.sleep(self.fake.delay)
            while self.fake.sent >= self.fake.most and not self.fake.over.wait(0.01):
                pass
            try:
                self.wfile.write(part[at:at + CHUNK])
            except OSError:  # the client has closed
                self.close_connection = True
                return
            with self.fake.lock:
                self.fake.sent += len(part[at:at + CHUNK])
