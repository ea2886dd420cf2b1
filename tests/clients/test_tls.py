"""HTTPS: certificates, handshakes, clients that leave, input that is not TLS, and a certificate that is replaced."""

import os
import re
import signal
import socket
import ssl
import subprocess

import openai
import pytest

from conftest import MODEL, QUIRE, Server
from rig import wait_until

HTTPS = r"https://[0-9.]+:(\d+)"
ABORTED = 'vllm:request_success_total{.*finished_reason="abort"'


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=300)


class Authority:
    """A CA for one test, and servers' certificates from it for 127.0.0.1."""

    def __init__(self, folder):
        self.folder = folder
        self.ca = folder / "ca.pem"
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", 30,
                "-subj", "/CN=test authority", "-addext", "keyUsage=critical,keyCertSign,cRLSign",
                "-keyout", folder / "ca.key", "-out", self.ca)

    def certificate(self, name, days=30):
        """(certificate, key), both PEM files, named after the CN."""
        cert, key, extra = (self.folder / f"{name}.{end}" for end in ("pem", "key", "ext"))
        extra.write_text("subjectAltName=IP:127.0.0.1\n")
        openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                "-subj", f"/CN={name}", "-keyout", key, "-out", self.folder / f"{name}.csr")
        openssl("x509", "-req", "-in", self.folder / f"{name}.csr", "-CA", self.ca, "-CAkey", self.folder / "ca.key",
                "-CAcreateserial", "-days", days, "-extfile", extra, "-out", cert)
        return cert, key


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def certificate(authority):
    return authority.certificate("first")


@pytest.fixture(scope="module")
def https(certificate):
    s = Server("serve", MODEL, "--port", "0", "--served-model-name", "demo", "--max-model-len", "2048",
               "--ssl-certfile", certificate[0], "--ssl-keyfile", certificate[1], wait_for=HTTPS)
    yield s
    assert s.process.poll() is None, "the server ended while being tested:\n" + s.output()
    assert s.stop() == 0, s.output()


@pytest.fixture
def trusting(authority):
    """The context of a client that trusts the test's CA."""
    return ssl.create_default_context(cafile=authority.ca)


def sdk(server, trusting, **kwargs):
    return openai.OpenAI(base_url=f"https://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0,
                         http_client=openai.DefaultHttpxClient(verify=trusting), **kwargs)


def connect(server, context):
    return context.wrap_socket(server.connect(), server_hostname="127.0.0.1")


def read_all(connection):
    data = b""
    while True:
        piece = connection.recv(65536)
        if not piece:
            return data
        data += piece


def get(server, context, path, close=True):
    with connect(server, context) as c:
        c.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{'Connection: close' if close else 'X: y'}\r\n\r\n".encode())
        return read_all(c)


def metric(server, context, pattern):
    body = get(server, context, "/metrics").decode()
    return sum(float(line.rsplit(" ", 1)[1]) for line in body.splitlines() if re.match(pattern, line))


def test_the_sdk(https, trusting):
    client = sdk(https, trusting)
    ask = dict(model="demo", messages=[{"role": "user", "content": "Tell me a story."}], max_tokens=24, temperature=0)
    whole = client.chat.completions.create(**ask).choices[0].message.content
    parts = [e.choices[0].delta.content or "" for e in client.chat.completions.create(stream=True, **ask)]
    assert whole and "".join(parts) == whole
    # Longer than a TLS record, in both directions.
    text = "Once upon a time. " * 2000
    reply = client.post("/../tokenize", body={"prompt": text}, cast_to=object)
    assert reply["count"] > 4000


def test_who_does_not_trust_it_goes_away(https):
    with pytest.raises(openai.APIConnectionError):
        sdk(https, ssl.create_default_context()).models.list()


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_what_is_agreed_on(https, trusting, version):
    trusting.minimum_version = trusting.maximum_version = ssl.TLSVersion[version]
    trusting.set_alpn_protocols(["h2", "http/1.1"])
    with connect(https, trusting) as c:
        assert c.selected_alpn_protocol() == "http/1.1"
        name, _, bits = c.cipher()
        assert bits >= 128 and ("GCM" in name or "CHACHA20" in name) and (version == "TLSv1_3" or "ECDHE" in name)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1")
@pytest.mark.parametrize("worsen", [
    lambda c: (c.set_ciphers("DEFAULT@SECLEVEL=0"), setattr(c, "minimum_version", ssl.TLSVersion.TLSv1_1),
               setattr(c, "maximum_version", ssl.TLSVersion.TLSv1_1)),
    lambda c: (setattr(c, "maximum_version", ssl.TLSVersion.TLSv1_2), c.set_ciphers("ECDHE-ECDSA-AES128-SHA")),
    lambda c: c.set_alpn_protocols(["h2"]),
], ids=["tls-1.1", "cbc", "only-h2"])
def test_what_is_refused(https, trusting, worsen):
    worsen(trusting)
    with pytest.raises(OSError), connect(https, trusting):
        pass


def test_it_says_goodbye(https, trusting):
    """A client can distinguish a reply that ends with the connection from one that was cut off."""
    with trusting.wrap_socket(https.connect(), server_hostname="127.0.0.1", suppress_ragged_eofs=False) as c:
        c.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        assert read_all(c).endswith(b'{"status":"ok"}')


def test_many_replies_on_one_connection(https, trusting):
    one = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
    last = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with connect(https, trusting) as c:
        c.sendall(one * 199 + last)
        assert read_all(c).count(b"HTTP/1.1 200 OK") == 200


@pytest.mark.parametrize("how", ["close_notify", "fin", "reset"])
def test_a_client_that_leaves_cancels_its_request(https, trusting, how):
    body = b'{"prompt": "x", "max_tokens": 1900, "n": 16, "ignore_eos": true, "stream": true}'
    request = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    before = metric(https, trusting, ABORTED)
    c = connect(https, trusting)
    c.sendall(request)
    assert b"data:" in c.recv(4096) + c.recv(4096)
    if how == "close_notify":
        # Sends it, and reads the data that was in flight.
        c.settimeout(300)
        try:
            c.unwrap()
        except OSError:
            pass
    elif how == "fin":
        socket.socket.shutdown(c, socket.SHUT_WR)
    else:
        c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        c.close()
    wait_until(lambda: metric(https, trusting, ABORTED) == before + 16, "the request's cancellation")
    wait_until(lambda: metric(https, trusting, "vllm:num_requests_running") == 0, "the request's end")
    c.close()


def test_the_certificate_is_read_again_on_sighup(start, authority, trusting, tmp_path):
    both = tmp_path / "both.pem"  # the key may be in the certificate's file

    def put(name):
        cert, key = authority.certificate(name)
        both.write_bytes(cert.read_bytes() + key.read_bytes())

    def shown():
        with connect(server, trusting) as c:
            return dict(pair[0] for pair in c.getpeercert()["subject"])["commonName"]

    put("before")
    server = start("serve", MODEL, "--port", "0", "--max-model-len", "256", "--ssl-certfile", both, wait_for=HTTPS)
    with connect(server, trusting) as kept:
        assert shown() == "before"
        both.write_text("no certificate")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "the certificate is unchanged" in server.output(), "the refusal")
        assert shown() == "before"
        put("after")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "was reloaded" in server.output(), "the new certificate")
        assert shown() == "after"
        kept.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert b"200 OK" in read_all(kept)
    assert server.stop() == 0


def test_a_wrong_certificate_ends_the_start(certificate, authority, tmp_path):
    cert, key = certificate
    other = authority.certificate("other")[1]
    locked, none = tmp_path / "locked.key", tmp_path / "none.pem"
    openssl("pkey", "-in", key, "-aes256", "-passout", "pass:x", "-out", locked)
    for arguments, says in [
        (["--ssl-certfile", none, "--ssl-keyfile", key], [f"--ssl-certfile: {none}: No such file"]),
        (["--ssl-certfile", cert, "--ssl-keyfile", none], [f"--ssl-keyfile: {none}: No such file"]),
        (["--ssl-certfile", key, "--ssl-keyfile", key], [f"--ssl-certfile: {key}", "is not a usable certificate"]),
        (["--ssl-certfile", cert, "--ssl-keyfile", cert], [f"--ssl-keyfile: {cert}", "is not a private key"]),
        (["--ssl-certfile", cert], [str(cert), "holds no private key"]),
        (["--ssl-certfile", cert, "--ssl-keyfile", other], [str(other), "is not the key of", str(cert)]),
        (["--ssl-certfile", cert, "--ssl-keyfile", locked], [str(locked), "is encrypted"]),
        (["--ssl-keyfile", key], ["--ssl-certfile"]),
    ]:
        p = subprocess.run([QUIRE, "serve", MODEL, "--port", "0", *map(str, arguments)],
                           stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
        assert p.returncode in (1, 2), p
        for words in says:
            assert words in p.stderr, p.stderr


def test_an_expired_certificate_is_a_warning(start, authority):
    cert, key = authority.certificate("old", days=-1)
    server = start("serve", MODEL, "--port", "0", "--max-model-len", "256", "--ssl-certfile", cert,
                   "--ssl-keyfile", key, wait_for=HTTPS)
    assert "has expired" in server.output()


def test_our_own_clients(https, authority, start, certificate, tmp_path):
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("Once upon a time there was a fox who lived by the river. " * 8)
    url = f"https://127.0.0.1:{https.port}"

    def cache(**env):
        return subprocess.run([QUIRE, "cache", "pin", url, "--file", prompt], capture_output=True, text=True,
                              timeout=300, env={**os.environ, **env})

    assert cache().returncode != 0  # no trusted CA has signed it
    assert cache(SSL_CERT_FILE=str(authority.ca)).returncode == 0
    bench = subprocess.run([QUIRE, "bench", "serve", "--url", url, "--num-prompts", "2", "--random-input-len", "8",
                            "--random-output-len", "4"], capture_output=True, text=True, timeout=300,
                           env={**os.environ, "SSL_CERT_FILE": str(authority.ca)})
    assert bench.returncode == 0, bench.stderr
    lines = tmp_path / "prompts.jsonl"
    lines.write_text('{"prompt": "Once upon a time there was a fox who lived by the river and the sea."}\n')
    warm = start("serve", MODEL, "--port", "0", "--max-model-len", "256", "--ssl-certfile", certificate[0],
                 "--ssl-keyfile", certificate[1], "--warm", lines, wait_for=HTTPS)
    wait_until(lambda: "1 prompts of" in warm.output(), "the warm cache")
