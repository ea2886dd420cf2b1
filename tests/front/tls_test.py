"""TLS connections under deadlines and limits; AddressSanitizer runs it, too. tests/clients/test_tls.py covers the
rest."""

import os
import re
import socket
import ssl
import subprocess
import sys
import tempfile

from harness import Server, post_bytes, read_all, run_tests, wait_until

folder = tempfile.TemporaryDirectory()
CERT = os.path.join(folder.name, "both.pem")
subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                "-days", "30", "-subj", "/CN=x", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", CERT + ".key",
                "-out", CERT],
               check=True, capture_output=True, timeout=60)
with open(CERT, "a") as f, open(CERT + ".key") as k:
    f.write(k.read())
TRUSTING = ssl.create_default_context(cafile=CERT)
LONG = {"prompt": [5, 6, 7], "max_tokens": 100000, "ignore_eos": True, "stream": True}

server = Server("--certificate", CERT, "--mode", "count", "--max-model-len", 200000)


def connect(s, **kwargs):
    return TRUSTING.wrap_socket(s.connect(), server_hostname="127.0.0.1", suppress_ragged_eofs=False, **kwargs)


def get(s, path):
    with connect(s) as c:
        c.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        return read_all(c)


def metric(s, pattern):
    return sum(float(line.rsplit(" ", 1)[1]) for line in get(s, "/metrics").decode().splitlines()
               if re.match(pattern, line))


def client_hello():
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = TRUSTING.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    try:
        session.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()


def test_a_long_stream_arrives_whole():
    """A stream of many records, through a socket that is full most of the time, arrives whole and ends properly. It
    is shorter than the 1 MiB that may wait, so it cannot be cut off."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    s.settimeout(60)
    s.connect(("127.0.0.1", server.port))
    with TRUSTING.wrap_socket(s, server_hostname="127.0.0.1", suppress_ragged_eofs=False) as c:
        c.sendall(post_bytes("/v1/completions", {**LONG, "max_tokens": 1000, "n": 4}, "Connection: close\r\n"))
        data = read_all(c)
    assert data.endswith(b"0\r\n\r\n") and data.count(b'"finish_reason":"length"') == 4
    assert data.count(b'"text":') >= 4000 and 500000 < len(data) < 1 << 20


def test_a_large_request():
    prompt = "word " * 400000
    with connect(server) as c:
        c.settimeout(100)  # 2 MB under ThreadSanitizer, while four other tests run: more than 20 s on a slow machine
        c.sendall(post_bytes("/tokenize", {"prompt": prompt}, "Connection: close\r\n"))
        assert b'"count":' in read_all(c)


def test_a_reply_beside_an_unread_body():
    """A request that is rejected before its body was read gets the reply, not a reset."""
    with connect(server) as c:
        c.sendall(b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n" + bytes(500000))
        assert b"404 Not Found" in read_all(c)


def test_a_slow_reader_is_cut_off():
    before = metric(server, 'vllm:request_success_total{.*"abort"')
    c = connect(server)
    c.sendall(post_bytes("/v1/completions", {**LONG, "n": 16}))
    assert wait_until(lambda: metric(server, 'vllm:request_success_total{.*"abort"') == before + 16, 60)
    c.close()


def test_what_is_not_tls_is_closed():
    for data in (b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"\0" * 70000,
                 os.urandom(4096), b"\x80"):
        with server.connect() as c:
            try:
                c.sendall(data)
                c.shutdown(socket.SHUT_WR)
                assert b"HTTP" not in read_all(c)
            except OSError:  # the server closed before we had sent everything
                pass
    assert b"200 OK" in get(server, "/health")


def test_a_handshake_cut_anywhere():
    """Sends the client's first flight up to each of its bytes, then nothing; and with one bit of it flipped. A slow
    server may not have seen that some are closed: it gets a few at a time, and not more than it allows."""
    flight = client_hello()
    n = server.n_descriptors()
    for i in range(len(flight)):
        if i % 50 == 49:
            assert wait_until(lambda: server.n_descriptors() <= n)
        turned = flight[:i] + bytes([flight[i] ^ 1 << i % 8]) + flight[i + 1:]
        for data in (flight[:i], turned):
            with server.connect() as c:
                c.sendall(data)
    assert wait_until(lambda: server.n_descriptors() <= n)
    assert b"200 OK" in get(server, "/health")
    assert wait_until(lambda: server.n_descriptors() <= n)


def connect_in_time(s):
    """Again if this process did not run before the handshake's deadline."""
    for _ in range(30):
        try:
            return connect(s)
        except OSError as e:  # also ssl.SSLError
            error = e
    raise error


def test_a_handshake_has_a_deadline():
    hello = client_hello()
    with Server("--certificate", CERT, "--head-timeout-ms", 1000) as s:
        n = s.n_descriptors()
        for begun in (b"", hello[:1], hello[:-1], hello):
            with s.connect() as c:
                c.sendall(begun)
                assert b"HTTP" not in read_all(c)  # the read time-out is 60 s
        # An idle connection has the longer time.
        with connect_in_time(s) as c:
            c.settimeout(2)
            try:
                assert c.recv(1) and False
            except TimeoutError:
                pass
        assert wait_until(lambda: s.n_descriptors() == n)


def test_handshakes_count_as_connections():
    """As many stalled handshakes as there may be connections: the next client still connects."""
    with Server("--certificate", CERT, "--max-connections", 4) as s:
        stuck = [s.connect() for _ in range(8)]
        for c in stuck:
            c.sendall(client_hello()[:50])
        assert b"200 OK" in get(s, "/health")
        for c in stuck:
            c.close()


def test_drain_ends_handshakes():
    with Server("--certificate", CERT) as s:
        stuck = s.connect()
        stuck.sendall(client_hello())
        assert stuck.recv(1)
        s.process.terminate()
        read_all(stuck)
        assert s.process.wait(20) == 0
        stuck.close()


with server:
    run_tests(sys.modules[__name__])
