"""What operators look at: /metrics and the listener for it."""

import json
import re
import subprocess
import urllib.error
import urllib.request

import pytest

from conftest import MODEL, QUIRE


def get(url, **headers):
    """Status and text."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=20) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def watcher_url(server):
    return "http://127.0.0.1:" + re.search(r"metrics and health, without a key, on port (\d+)", server.output()).group(1)


def test_the_listener_for_metrics_asks_no_key_and_has_nothing_else(start):
    server = start("serve", MODEL, "--port", "0", "--api-key", "k", "--metrics-listen", "127.0.0.1:0",
                   wait_for=r"(?s)ready on http://[0-9.]+:(\d+).*metrics and health")
    watch = watcher_url(server)
    assert get(server.url + "/metrics")[0] == 401
    status, text = get(watch + "/metrics")
    assert status == 200 and "\nvllm:num_requests_running{" in text
    assert get(watch + "/health")[0] == 200
    for path in ("/v1/models", "/version", "/", "/v1/models/model", "/metrics/x"):
        status, text = get(watch + path, Authorization="Bearer k")
        assert status == 404 and json.loads(text)["error"]["code"] == "unknown_url", path
    request = urllib.request.Request(watch + "/v1/completions", b"{}", {"Authorization": "Bearer k"})
    with pytest.raises(urllib.error.HTTPError, match="413|404"):
        urllib.request.urlopen(request, timeout=20)
    server.client(api_key="k").completions.create(model="model", prompt="Once", max_tokens=2)
    assert server.stop() == 0


@pytest.mark.parametrize("address", ["9100", "host:", "::1:9100", "host:70000", "host:9x"])
def test_an_address_that_is_none(address):
    done = subprocess.run([str(QUIRE), "serve", str(MODEL), "--metrics-listen", address],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "must be HOST:PORT" in done.stderr
