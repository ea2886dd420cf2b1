"""The files that docs/guides/serving.md says to copy: nginx with TLS and keys, the service's environment with a key, and
Compose. Each is used as the guide shows it, with paths and ports of this machine."""

import os
import re
import shlex
import shutil
import socket
import ssl
import subprocess
import urllib.request

import pytest
import rig
import yaml
from conftest import MODEL, ROOT, cannot_run
from doc_blocks import block

GUIDE = (ROOT / "docs" / "guides" / "serving.md").read_text()
PACKAGING = ROOT / "packaging"
KEY = {"Authorization": "Bearer a-key"}
NAME = "llm.example.com"


def replaced(text, *pairs):
    for written, real in pairs:
        assert text.count(written) == 1, written
        text = text.replace(written, str(real))
    return text


def command_with(words):
    """The indented command of the guide that has these words, with its continued lines."""
    (line,) = [c for c in re.findall(r"^    (\S.*)$", re.sub(r"\\\n +", "", GUIDE), re.M) if words in c]
    return line


# ---- nginx ----

@pytest.fixture(scope="module")
def nginx(tmp_path_factory):
    """packaging/nginx.conf over a server with a key: (its server, the https port, the http port, the certificate)."""
    from conftest import Server
    program = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
    if not program:
        cannot_run("nginx is not installed (tools/setup.sh clients)")
    place = tmp_path_factory.mktemp("nginx")
    subprocess.run(shlex.split(command_with("openssl req").replace("localhost", NAME)), cwd=place, check=True, capture_output=True)
    server = Server(*shlex.split(command_with("--trusted-proxies 127.0.0.1").replace("MODEL", str(MODEL)))[1:], "--port", "0", "--log-requests",
                    environment={"QUIRE_API_KEY": "a-key"})
    https, http = rig.free_port(), rig.free_port()
    file = replaced((PACKAGING / "nginx.conf").read_text(), ("listen 80;", f"listen 127.0.0.1:{http};"), ("listen 443 ssl;", f"listen 127.0.0.1:{https} ssl;"),
                    ("127.0.0.1:8000", f"127.0.0.1:{server.port}"), (f"/etc/ssl/{NAME}/chain.pem", place / "chain.pem"), (f"/etc/ssl/{NAME}/key.pem", place / "key.pem"))
    (place / "quire.conf").write_text(file)
    kinds = "".join(f"{kind}_temp_path {place}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (place / "main.conf").write_text(f"pid {place}/pid;\nerror_log {place}/error.log;\ndaemon off;\nevents {{}}\nhttp {{\naccess_log off;\n{kinds}include {place}/quire.conf;\n}}\n")
    arguments = [program, "-p", str(place), "-e", str(place / "error.log"), "-c", str(place / "main.conf")]
    checked = subprocess.run([*arguments, "-t"], capture_output=True, text=True)
    assert checked.returncode == 0 and "warn" not in checked.stderr, checked.stderr
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def listens():
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", https)) == 0

    rig.wait_until(listens, "nginx")
    yield server, https, http, place / "chain.pem"
    process.terminate()
    process.wait()
    assert server.stop() == 0, server.output()


def through(nginx, path, body=None, headers=KEY):
    """A request by name over TLS, as curl sends it with --cacert and --resolve: (status, text)."""
    _, https, _, certificate = nginx
    command = ["curl", "-sS", "--noproxy", "*", "--max-time", "300", "--cacert", certificate, "--resolve", f"{NAME}:{https}:127.0.0.1", f"https://{NAME}:{https}{path}",
               "-w", "\n%{http_code}", *[word for name, value in headers.items() for word in ("-H", f"{name}: {value}")], *(["--json", body] if body else [])]
    text, _, status = subprocess.run(command, capture_output=True, text=True, check=True).stdout.rpartition("\n")
    return int(status), text


def test_the_guide_shows_the_file_of_nginx():
    assert block(GUIDE, "nginx") == (PACKAGING / "nginx.conf").read_text()


def test_the_guide_installs_the_certificate_where_the_file_has_it(tmp_path):
    lines = re.findall(r"^    (NAME=.*|sudo (?:install|sed) .*/etc/(?:ssl|nginx)/.*)$", GUIDE, re.M)
    assert len(lines) == 5
    (tmp_path / "etc" / "nginx" / "conf.d").mkdir(parents=True)
    for name in "chain.pem", "key.pem":
        (tmp_path / name).touch()
    script = "\n".join(lines).replace("sudo ", "").replace("/etc/", f"{tmp_path}/etc/").replace(f"NAME={NAME}", "NAME=chat.test").replace("packaging/", f"{PACKAGING}/")
    subprocess.run(["bash", "-e", "-c", script], cwd=tmp_path, check=True)
    file = (tmp_path / "etc" / "nginx" / "conf.d" / "quire.conf").read_text()
    names = re.findall(r"^ *ssl_certificate(?:_key)? +/(\S+);", file, re.M)
    assert NAME not in file and len(names) == 2 and all((tmp_path / name).is_file() for name in names), file


def test_nginx_passes_keys_on(nginx):
    assert through(nginx, "/v1/models")[0] == 200
    assert through(nginx, "/v1/models", headers={})[0] == 401
    assert through(nginx, "/v1/models", headers={"Authorization": "Bearer wrong"})[0] == 401
    for path in "/v1/admin/scheduling-policy", "/admin/keys", "/cache/clear":
        status, text = through(nginx, path, "{}")
        assert status == 403 and "<html>" in text, (path, text)  # nginx's own, before Quire sees it
    assert through(nginx, "/v1/completions", '{"prompt": "Once", "max_tokens": 2}')[0] == 200
    rig.wait_until(lambda: "client=127.0.0.1" in nginx[0].output() or '"client":"127.0.0.1"' in nginx[0].output(), nginx[0].output)


def test_nginx_sends_plain_http_to_tls(nginx):
    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_):
            return None

    opener = urllib.request.build_opener(Stay, urllib.request.ProxyHandler({}))
    with pytest.raises(urllib.error.HTTPError) as reply:
        opener.open(urllib.request.Request(f"http://127.0.0.1:{nginx[2]}/v1/models", headers={"Host": NAME}), timeout=300)
    assert reply.value.code == 308 and reply.value.headers["Location"] == f"https://{NAME}/v1/models"


def test_nginx_streams_and_passes_on_that_a_client_left(nginx):
    server, https, _, certificate = nginx
    body = b'{"prompt": "Once", "max_tokens": 1900, "n": 4, "ignore_eos": true, "stream": true}'

    def n_first():
        """Bytes until the first token; then the client leaves."""
        with socket.create_connection(("127.0.0.1", https), timeout=300) as plain, ssl.create_default_context(cafile=certificate).wrap_socket(plain, server_hostname=NAME) as s:
            s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: llm.example.com\r\nAuthorization: Bearer a-key\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            got = b""
            while b"data: " not in got:
                got += s.recv(4096)
            assert b" 200 " in got
            return len(got)

    # Less than a buffer of nginx: the first tokens do not wait. A busy client may get more at once.
    rig.wait_until(lambda: n_first() < 4096)

    def aborted():
        return [line for line in server.output().splitlines() if "finish=abort" in line]

    rig.wait_until(aborted, server.output)


# ---- systemd ----

def test_the_environment_of_the_guide_has_a_key(start, tmp_path):
    file = tmp_path / "qwen.env"
    shutil.copy(PACKAGING / "example.env", file)

    def serve():
        values = dict(line.split("=", 1) for line in file.read_text().splitlines() if line and not line.startswith("#"))
        assert values.pop("QUIRE_MODEL").startswith("Qwen/")
        return start("serve", MODEL, *values.pop("QUIRE_OPTIONS").split(), "--port", "0", environment=values, wait_for=r"ready on http://[0-9.]+:(\d+)"), values

    with pytest.raises(RuntimeError, match="QUIRE_API_KEY: must not be empty"):
        serve()
    subprocess.run(["bash", "-c", command_with('s/^QUIRE_API_KEY=').removeprefix("sudo ").replace("/etc/quire/qwen.env", str(file))], check=True)
    server, values = serve()
    assert re.fullmatch("[0-9a-f]{64}", values["QUIRE_API_KEY"])
    assert rig.ask(server, "/v1/models").status == 401
    assert rig.ask(server, "/v1/models", headers={"Authorization": "Bearer " + values["QUIRE_API_KEY"]}).status == 200


# ---- Compose ----

def test_compose_starts_a_server_with_a_key(start):
    services = yaml.safe_load((PACKAGING / "compose.yaml").read_text())["services"]
    quire, pull = services["quire"], services["pull"]
    assert pull["command"] == ["pull", quire["command"][1]] and pull["volumes"] == quire["volumes"]
    assert re.fullmatch(r"\$\{QUIRE_API_KEY:\?[^}]+\}", quire["environment"]["QUIRE_API_KEY"])  # Compose refuses an empty one
    swap = {quire["command"][1]: str(MODEL), "--host=0.0.0.0": "--host=127.0.0.1", "--port=8000": "--port=0"}
    server = start(*(swap.pop(word, word) for word in quire["command"]), environment={"QUIRE_API_KEY": "a-key"})
    assert not swap and quire["ports"] == ["127.0.0.1:8000:8000"]
    assert rig.ask(server, "/v1/models").status == 401 and rig.ask(server, "/v1/models", headers=KEY).status == 200

    def healthy():
        kind, *check = quire["healthcheck"]["test"]
        assert kind == "CMD"
        return subprocess.run([*check[:-1], replaced(check[-1], ("/127.0.0.1/8000", f"/127.0.0.1/{server.port}"))], capture_output=True, env=os.environ, timeout=300).returncode == 0

    assert healthy()
    assert server.stop() == 0 and not healthy()
