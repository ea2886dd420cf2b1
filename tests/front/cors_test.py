"""The headers that browsers receive about pages of other origins."""

import sys

from harness import Server, run_tests

PAGE, OTHER = "https://chat.example.com", "https://elsewhere.example.com"
ASK = {"prompt": "Hello", "max_tokens": 2}
PREFLIGHT = {"Access-Control-Request-Method": "POST",
             "Access-Control-Request-Headers": "authorization,content-type,x-stainless-lang"}

server = Server("--allowed-origins", PAGE, "--allowed-origins", "http://localhost:3000", "--api-key", "k",
                "--max-body-bytes", 100000)
KEY = {"Authorization": "Bearer k"}


def preflight(s, origin, path="/v1/chat/completions"):
    return s.request("OPTIONS", path, headers={"Origin": origin, **PREFLIGHT})


def cors(headers):
    return {name.lower(): value for name, value in headers.items() if name.lower().startswith("access-control-")}


def test_a_preflight_needs_no_key():
    for origin in (PAGE, "http://localhost:3000"):
        status, headers, body = preflight(server, origin)
        assert (status, body) == (200, b"") and headers["Vary"] == "Origin"
        assert cors(headers) == {"access-control-allow-origin": origin, "access-control-expose-headers": "*",
                                 "access-control-allow-methods": "GET, HEAD, POST, DELETE",
                                 "access-control-allow-headers": PREFLIGHT["Access-Control-Request-Headers"],
                                 "access-control-max-age": "600"}


def test_every_reply_says_who_may_read_it():
    may = {"access-control-allow-origin": PAGE, "access-control-expose-headers": "*"}
    for method, path, body, headers, status in (
            ("POST", "/v1/completions", ASK, KEY, 200), ("POST", "/v1/completions", {**ASK, "stream": True}, KEY, 200),
            ("GET", "/v1/models", None, KEY, 200), ("GET", "/health", None, {}, 200),
            ("GET", "/v1/models", None, {}, 401),
            ("POST", "/v1/completions", {"prompt": 1}, KEY, 400), ("GET", "/nowhere", None, KEY, 404),
            ("PUT", "/v1/models", None, KEY, 405), ("OPTIONS", "/v1/models", None, KEY, 405),
            ("POST", "/v1/completions", b"a" * 100001, KEY, 413)):
        got, reply, _ = server.request(method, path, body, {"Origin": PAGE, **headers})
        assert got == status and cors(reply) == may and reply.get_all("Vary") == ["Origin"], (path, got, reply)


def test_a_body_that_turns_out_too_large_is_told_once():
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: {PAGE}\r\nAuthorization: Bearer k\r\n"
    reply = server.raw((head + "Transfer-Encoding: chunked\r\n\r\n20000\r\n").encode() + b"a" * 0x20000)
    assert reply.startswith(b"HTTP/1.1 413") and reply.count(b"Access-Control-Allow-Origin") == 1, reply


def test_a_preflight_that_is_no_request_is_answered_once():
    head = f"OPTIONS /v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: {PAGE}\r\nAccess-Control-Request-Method: GET\r\n"
    for line in ("Content-Length: a", "Transfer-Encoding: gzip", "no colon", "Content-Length: 100001"):
        reply = server.raw(f"{head}{line}\r\n\r\n".encode())
        assert reply.startswith(b"HTTP/1.1 4") and reply.count(b"HTTP/1.1 ") == 1, reply
        assert b"Access-Control-Allow-Origin: " + PAGE.encode() in reply, reply


def test_other_pages_may_read_nothing():
    for origin in (OTHER, PAGE + ":443", PAGE.upper(), "http://chat.example.com", "null", "*", ""):
        status, headers, _ = preflight(server, origin)
        assert status == 401 and not cors(headers) and headers["Vary"] == "Origin"
        status, headers, _ = server.request("POST", "/v1/completions", ASK, {"Origin": origin, **KEY})
        assert status == 200 and not cors(headers) and headers["Vary"] == "Origin"


def test_headers_that_are_none_are_not_repeated():
    status, headers, _ = server.request("OPTIONS", "/v1/models", headers={
        "Origin": PAGE, "Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": 'x"; y'})
    assert status == 200 and "Access-Control-Allow-Headers" not in headers


def test_all_pages():
    with Server("--allowed-origins", "*") as s:
        assert cors(preflight(s, OTHER)[1])["access-control-allow-origin"] == "*"
        _, headers, _ = s.request("POST", "/v1/completions", ASK, {"Origin": "null"})
        assert headers["Access-Control-Allow-Origin"] == "*"
        # Operators' routes are excluded: without keys a page is not an admin.
        body = {"policy": "fcfs"}
        assert s.request("POST", "/v1/admin/scheduling-policy", body, {"Origin": OTHER})[0] == 403
        assert s.request("POST", "/v1/admin/scheduling-policy", body)[0] != 403


def test_none_by_default():
    with Server() as s:
        status, headers, _ = preflight(s, PAGE)
        assert status == 405 and not cors(headers) and "Vary" not in headers
        _, headers, _ = s.request("POST", "/v1/completions", ASK, {"Origin": PAGE})
        assert not cors(headers) and "Vary" not in headers


with server:
    run_tests(sys.modules[__name__])
