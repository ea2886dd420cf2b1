"""Pages of other origins and host names, if no key is needed; and keys that contradict each other."""

import json
import subprocess
import sys

from harness import PROGRAM, TOKENIZER, Server, run_tests

ASK = {"prompt": "Hello there"}
COMPLETIONS = "/v1/completions"
server = Server()


def ask(s, path=COMPLETIONS, method="POST", body=ASK, host=None, lines=()):
    """Returns (status, error message or None); sends the headers exactly as given."""
    data = json.dumps(body).encode() if body is not None else b""
    head = [f"{method} {path} HTTP/1.1", "Connection: close", f"Content-Length: {len(data)}"]
    head += [f"Host: {host or f'127.0.0.1:{s.port}'}"] + list(lines)
    reply = s.raw("\r\n".join(head).encode() + b"\r\n\r\n" + data)
    head, _, body = reply.partition(b"\r\n\r\n")
    error = json.loads(body)["error"] if body.startswith(b'{"error"') else {}
    assert error.get("code") in (None, "permission_denied", "invalid_api_key", "method_not_allowed"), reply
    return int(head.split()[1]), error.get("message")


def origin(s, text, **more):
    return ask(s, lines=[f"Origin: {text}"], **more)


def test_pages_of_other_origins():
    p = server.port
    for text in ("https://evil.example", "null", "", "*", f"https://127.0.0.1:{p}", f"http://127.0.0.1:{p + 1}",
                 "http://127.0.0.1", f"http://localhost:{p}", f"http://127.0.0.1:{p}.evil.example", f"127.0.0.1:{p}",
                 f"http://evil.example@127.0.0.1:{p}", f"http://127.0.0.1:{p}/", f"http://127.0.0.1:{p} http://x"):
        status, message = origin(server, text)
        assert status == 403 and "--allowed-origins" in message, (text, status)
    # The same for the content types that a form can send, for every route that has an effect, and for read-only routes.
    assert ask(server, lines=["Origin: https://evil.example", "Content-Type: text/plain"])[0] == 403
    for method, path, body in (("POST", "/v1/cache/pins", {"prompt": "x"}), ("DELETE", "/v1/cache/pins", None),
                               ("POST", "/tokenize", ASK), ("GET", "/v1/models", None), ("GET", "/metrics", None),
                               ("POST", "/nowhere", ASK)):
        assert origin(server, "https://evil.example", path=path, method=method, body=body)[0] == 403, path
    # A preflight that is not allowed is not a request of the API: it is still rejected as one.
    assert ask(server, method="OPTIONS", body=None,
               lines=["Origin: https://evil.example", "Access-Control-Request-Method: POST"])[0] == 405


def test_the_servers_own_pages():
    p = server.port
    for host, text in ((f"127.0.0.1:{p}", f"http://127.0.0.1:{p}"), (f"localhost:{p}", f"http://localhost:{p}"),
                       (f"LOCALHOST:{p}", f"HTTP://localhost:{p}"), (f"localhost.:{p}", f"http://localhost:{p}"),
                       (f"[::1]:{p}", f"http://[::1]:{p}"), ("localhost", "http://localhost"),
                       ("localhost:80", "http://localhost"), ("localhost", "http://localhost:80")):
        assert origin(server, text, host=host) == (200, None), (host, text)
        assert origin(server, text, host=host, path="/v1/models", method="GET", body=None)[0] == 200
    assert ask(server, lines=[f"Origin: http://127.0.0.1:{p}", "Origin: https://evil.example"])[0] == 403
    assert ask(server, lines=[f"Origin: http://127.0.0.1:{p}"] * 2)[0] == 200
    assert ask(server, path="/ui", method="GET", body=None, lines=["Sec-Fetch-Site: cross-site"])[0] == 200


def test_names_that_are_not_this_machines():
    for host in ("localhost", "localhost:1", "LocalHost.", "127.0.0.1", "127.9.8.7:80", "[::1]", "[::1]:8000", "[0:0::1]",
                 "[::ffff:127.0.0.1]:8"):
        assert ask(server, host=host)[0] == 200, host
    for host in ("evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1",
                 "[::2]", "[::1", "0.0.0.0", "localhost:x", "localhost:800000", "local host", "a@localhost", "127.1",
                 "2130706433", "localhost..", ":80", "[]", "a" * 300):
        status, message = ask(server, host=host)
        assert status == 403 and "--allowed-hosts" in message, (host, status)
    # After DNS rebinding, a page has the origin of the server that it calls.
    assert origin(server, "http://evil.example:8000", host="evil.example:8000")[0] == 403
    # No browser sends a request without a Host.
    assert server.raw(b"GET /v1/models HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.0 200")
    assert server.raw(b"GET /v1/models HTTP/1.0\r\nOrigin: http://x\r\n\r\n").startswith(b"HTTP/1.0 403")


def test_an_absolute_target_is_the_host():
    def status(target, host="localhost"):
        return int(server.raw(f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())[9:12])
    assert status("http://localhost/v1/models", "evil.example") == 200
    assert status("http://evil.example/v1/models") == 403 and status("https://evil.example:80/v1/models") == 403
    assert status("http://localhost/health", "") == 200 and status("http:///v1/models") == 400
    assert status("/v1/%6dodels") == status("/%76%31/models/") == 200 and status("/v1/models%00") == 400
    assert status("http://evil.example/%76%31/models") == 403


def test_what_is_allowed():
    with Server("--allowed-hosts", "chat.example.com", "--allowed-hosts", "[fd00::7]",
                "--allowed-origins", "https://chat.example.com") as s:
        for host in ("chat.example.com", "Chat.Example.Com.:443", "[FD00::7]:80", "localhost"):
            assert ask(s, host=host)[0] == 200, host
        for host in ("example.com", "x.chat.example.com", "[fd00::8]"):
            assert ask(s, host=host)[0] == 403, host
        assert origin(s, "https://chat.example.com")[0] == 200
        assert origin(s, "https://chat.example.com", host="chat.example.com")[0] == 200
        assert origin(s, "http://chat.example.com")[0] == 403
    with Server("--allowed-hosts", "*", "--allowed-origins", "*") as s:
        assert ask(s, host="evil.example", lines=["Origin: null"])[0] == 200


def test_everybodys_address():
    # A server that listens on all addresses accepts any name, unless names are configured.
    with Server("--host", "0.0.0.0") as s:
        assert ask(s, host="gpu7.example.com:8000")[0] == 200
        assert origin(s, "https://evil.example", host="gpu7.example.com:8000")[0] == 403
        assert origin(s, "http://gpu7.example.com:8000", host="gpu7.example.com:8000")[0] == 200
    with Server("--host", "0.0.0.0", "--allowed-hosts", "gpu7.example.com") as s:
        assert ask(s, host="gpu7.example.com:8000")[0] == 200
        assert ask(s, host="evil.example")[0] == 403


def test_the_start_says_when_everybody_is_served():
    def said(*arguments):
        p = subprocess.Popen([PROGRAM, TOKENIZER, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert p.stdout.readline().startswith("listening")
        p.terminate()
        return p.communicate()[1]

    assert "may use the model without a key" in said("--host", "0.0.0.0")
    assert "may use the model without a key" not in said("--host", "0.0.0.0", "--api-key", "k")
    assert "may use the model without a key" not in said("--host", "localhost")


def test_keys_let_in_by_themselves():
    with Server("--api-key", "k", "--api-key", "l") as s:
        key = "Authorization: Bearer k"
        assert ask(s, host="evil.example", lines=[key, "Origin: https://evil.example"])[0] == 200
        for lines in ([key, "Authorization: Bearer l"], ["Authorization: Bearer wrong", key], [key, "Authorization: Basic k"],
                      ["x-api-key: k", "X-Api-Key: l"], [key, "x-api-key: l"], ["Authorization:", key]):
            status, message = ask(s, lines=lines)
            assert status == 401 and "one key" in message, lines
        for lines in ([key, key], [key, "x-api-key: k"], ["x-api-key: k"] * 2):
            assert ask(s, lines=lines)[0] == 200, lines


with server:
    run_tests(sys.modules[__name__])
