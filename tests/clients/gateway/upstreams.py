"""A gateway over upstream servers that misbehave, for the tests of this folder."""

import contextlib
import json

import rig
from upstream import Upstream

PRICE = "price_per_1k: {input: 0.00015, cached_input: 0.00002, output: 0.0006}"


def target(upstream, name, **more):
    fields = "".join(f", {key}: {value}" for key, value in more.items())
    return f'{{name: {name}, url: "{upstream.url}", model: up-{name}{fields}}}'


@contextlib.contextmanager
def upstreams(n=1, **how):
    servers = [Upstream(**how) for _ in range(n)]
    try:
        yield servers
    finally:
        for server in servers:
            server.close()


def write(tmp_path, models):
    path = tmp_path / "models.yaml"
    path.write_text("models:\n" + "".join(f"  {line}\n" for line in models))
    return path


def gateway(start, tmp_path, models, *arguments, **how):
    """models: lines of the file, below `models:`."""
    return start("serve", "--models", write(tmp_path, models), "--port", "0", *arguments, **how)


def over(start, tmp_path, servers, *arguments, more=(), **how):
    """One model, `m`, over these upstream servers."""
    targets = ", ".join(target(server, f"t{i}") for i, server in enumerate(servers))
    return gateway(start, tmp_path, [f"m: {{targets: [{targets}], {PRICE}}}", *more], *arguments, **how)


def chat(server, text="Hi", model="m", **fields):
    return rig.ask(server, "/v1/chat/completions", {"model": model, "messages": [{"role": "user", "content": text}], **fields}, timeout=300)


def events(reply):
    """The data of a stream's events; [DONE] as None."""
    found = []
    for part in reply.body.decode().split("\n\n"):
        for line in part.split("\n"):
            if line.startswith("data: "):
                found.append(None if line == "data: [DONE]" else json.loads(line[6:]))
    return found


def words(found):
    return "".join(c["delta"].get("content") or "" for e in found if e and "choices" in e for c in e["choices"]).split()


def targets(server):
    return {(t["model"], t["target"]): t for t in rig.answered(server, "/gateway/targets").json()}
