"""Who may use a gateway: keys of tenants and of the ledger, their limits, and web pages."""

import json

import rig
from conftest import MODEL
from upstreams import chat, gateway, over, target, upstreams, write


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def ask(server, path, body=None, key=None, **how):
    return rig.ask(server, path, body, headers=bearer(key) if key else {}, **how)


def say(server, key=None, model="m", **fields):
    return ask(server, "/v1/chat/completions", {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, **fields}, key)


def tenants_file(tmp_path, *tenants):
    path = tmp_path / "tenants.json"
    path.write_text(json.dumps(list(tenants)))
    return path


def issue(server, name, admin=None):
    reply = ask(server, "/admin/keys", {"name": name}, admin)
    assert reply.status in (200, 201), reply.text
    return reply.json()["key"]


def test_web_pages(start, tmp_path):
    with upstreams() as (up,):
        server = over(start, tmp_path, [up], "--allowed-origins", "http://good.example")
        for headers, status in [({"Host": "evil.example"}, 403), ({"Origin": "http://evil.example"}, 403), ({"Origin": "http://good.example"}, 200), ({}, 200)]:
            reply = rig.ask(server, "/v1/chat/completions", {"model": "m", "messages": []}, headers=headers)
            assert reply.status == status, (headers, reply.text)
        assert up.requests == 2
        assert rig.ask(server, "/admin/keys", {"name": "x"}, headers={"Origin": f"http://127.0.0.1:{server.port}"}).status == 403


def test_limits_of_a_tenant(start, tmp_path):
    """Both kinds of targets count a request once."""
    tenants = tenants_file(tmp_path, {"name": "a", "key": "key-a", "requests_per_minute": 3}, {"name": "b", "key": "key-b"})
    with upstreams() as (up,):
        models = ["m: {targets: [" + target(up, "t") + "]}", f'e: {{targets: [{{model: "{MODEL}", options: {{threads: 1}}}}]}}']
        server = gateway(start, tmp_path, models, "--tenants", tenants)
        assert say(server).status == 401
        assert [say(server, "key-a", model).status for model in ("m", "e", "m")] == [200] * 3
        for model in ("m", "e"):
            reply = say(server, "key-a", model)
            assert reply.status == 429 and int(reply.headers["Retry-After"]) >= 1, reply.text
        assert say(server, "key-b").status == 200
        # A limit of one client is no failure of the target.
        assert all(t["state"] == "up" for t in ask(server, "/gateway/targets", key="key-b").json())


def test_keys_of_the_ledger(start, tmp_path):
    models = [f'e: {{targets: [{{model: "{MODEL}", options: {{threads: 1}}}}]}}']
    server = gateway(start, tmp_path, models)
    assert say(server, model="e").status == 200
    one, two = issue(server, "one"), issue(server, "two")
    assert say(server, model="e").status == 401
    assert say(server, "wrong", model="e").status == 401
    assert say(server, one, model="e").status == 200
    # A stored response belongs to its key, although the engine's front end knows neither.
    stored = ask(server, "/v1/responses", {"model": "e", "input": "Hi", "max_output_tokens": 4}, one).json()["id"]
    assert ask(server, f"/v1/responses/{stored}", key=one).status == 200
    assert ask(server, f"/v1/responses/{stored}", key=two).status == 404
    assert ask(server, f"/v1/responses/{stored}").status == 401
    # Operators' routes are not for these keys.
    assert ask(server, "/v1/admin/scheduling-policy", {"policy": "fair"}, one).status == 403
    assert ask(server, "/admin/keys", key=one).status == 403
    assert ask(server, "/health").status == 200


def test_admins(start, tmp_path):
    tenants = tenants_file(tmp_path, {"name": "a", "key": "key-a"}, {"name": "ops", "key": "key-ops", "admin": True})
    with upstreams() as (up,):
        server = over(start, tmp_path, [up], "--tenants", tenants)
        assert ask(server, "/admin/keys").status == 401
        assert ask(server, "/admin/keys", key="key-a").status == 403
        assert ask(server, "/admin/keys", key="key-ops").status == 200
        key = issue(server, "new", "key-ops")
        assert say(server, key).status == 200
        assert "authorization" not in up.headers[-1]


def test_routes_of_engines_need_one(start, tmp_path):
    with upstreams() as (up,):
        server = over(start, tmp_path, [up])
        for method, path in [("GET", "/openapi.json"), ("GET", "/v1/responses/resp_1"), ("DELETE", "/v1/responses/resp_1")]:
            reply = rig.ask(server, path, method=method)
            assert reply.status == 404 and "engine" in reply.json()["error"]["message"]
        assert up.requests == 0
