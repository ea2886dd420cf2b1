"""HTTP by the standard library for the client tests, where an SDK hides headers, exact bytes or errors.

server: a conftest.Server, or a URL without a path. A body that is not bytes is sent as JSON; without a body and a
method the request is a GET.
"""

import json
import random
import socket
import time
import typing
import urllib.error
import urllib.request


class Reply(typing.NamedTuple):
    """A whole reply. An error status is one too."""

    status: int
    headers: typing.Any
    body: bytes

    @property
    def text(self):
        return self.body.decode()

    def json(self):
        return json.loads(self.body)

    @property
    def cache(self):
        """The layer of the cache that answered, or None."""
        return self.headers["x-quire-cache"]


def stream(server, path, body=None, *, method=None, headers=(), timeout=300):
    """The open response, to be read and closed by the caller. Raises HTTPError at an error status."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(getattr(server, "url", server) + path, data, {"Content-Type": "application/json", **dict(headers)}, method=method)
    return urllib.request.urlopen(request, timeout=timeout)


def ask(server, path, body=None, **how):
    try:
        with stream(server, path, body, **how) as reply:
            return Reply(reply.status, reply.headers, reply.read())
    except urllib.error.HTTPError as error:
        return Reply(error.code, error.headers, error.read())


def answered(server, path, body=None, **how):
    """The reply to a request that must succeed."""
    reply = ask(server, path, body, **how)
    assert reply.status == 200, reply.text
    return reply


def stats(server):
    return answered(server, "/cache/stats").json()


def clear_cache(server):
    return answered(server, "/cache/clear", method="POST").json()


def metrics(server):
    """The text of /metrics."""
    return answered(server, "/metrics").text


def wait_until(condition, what="what the test waits for", seconds=300):
    """Fails after a time that is long even where other programs compute. what: a text, or a function that returns it."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"never came: {what() if callable(what) else what}"
        time.sleep(0.02)
    return True


def free_port():
    """Below the ports that the system gives to outgoing connections, one of which could take it before the server does."""
    while True:
        port = random.SystemRandom().randrange(10000, 30000)  # a test's seed is another file's, too
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
