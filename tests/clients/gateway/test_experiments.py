"""Experiments of a gateway: assignment, statistics, quire ab report. The references here know only the documents."""

import concurrent.futures
import contextlib
import hashlib
import json
import math
import shutil
import signal
import sqlite3
import subprocess

import pytest
import rig
from conftest import MODEL, QUIRE
from upstreams import PRICE, chat, events, gateway, target, upstreams, write

ARMS = [("control", 2), ("new", 1)]


def quire(*arguments, **how):
    return subprocess.run([str(QUIRE), *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False, **how)


def lines(control, new, fields="", more="", weights=ARMS):
    arms = ", ".join(f"{name}: {{model: {model}, weight: {weight}}}" for (name, weight), model in zip(weights, "ab", strict=True))
    return [f"chat: {{route: experiment, {fields}arms: {{{arms}}}}}", f"a: {{targets: [{target(control, 't')}], {PRICE}}}",
            f"b: {{targets: [{target(new, 't')}], {PRICE}{more}}}"]


# ---- assignment ----------------------------------------------------------------------------------------------


def arm_of(unit, arms=ARMS, experiment="chat"):
    def score(arm):
        h = int.from_bytes(hashlib.sha256(f"{experiment}\n{arm[0]}\n{unit}".encode()).digest()[:8], "big")
        return -math.log(((h >> 11) + 0.5) / 2**53) / arm[1]

    return min(arms, key=score)[0]


def bucket_of(unit, experiment="chat"):
    return hashlib.sha256(f"{experiment}\n\n{unit}".encode()).digest()[0]


def arm_in(reply):
    return reply.headers["x-quire-experiment"].removeprefix("experiment=chat; arm=")


def test_users_keep_their_arm(start, tmp_path):
    with upstreams(2) as (a, b):
        server = gateway(start, tmp_path, lines(a, b))
        found = {}
        for user in (f"user-{i}" for i in range(30)):
            reply = chat(server, model="chat", user=user)
            found[user] = arm_in(reply)
            assert reply.headers["x-quire-route"] == f"model={'a' if found[user] == 'control' else 'b'}; target=t; why=arm: {found[user]}"
            assert arm_in(chat(server, "other", model="chat", user=user, stream=True)) == found[user]
            shown = json.loads(quire("route", "explain", "x", "--models", tmp_path / "models.yaml", "--user", user, "--json").stdout)
            assert (shown["experiment"], shown["arm"], shown["bucket"]) == ("chat", found[user], bucket_of(user))
        assert found == {user: arm_of(user) for user in found} and len(set(found.values())) == 2
        assert a.bodies[0]["user"] == next(user for user in found if found[user] == "control")  # it passes unchanged
        assert "x-quire-experiment" not in chat(server, model="a", user="user-1").headers


def test_who_the_user_is(start, tmp_path):
    """The first of user, metadata.user_id, safety_identifier, x-session-id, the key, the request's id."""
    with upstreams(2) as (a, b):
        server = gateway(start, tmp_path, lines(a, b), "--log-requests", "--log-format", "json")

        def ask(headers=(), **fields):
            body = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}], **fields}
            assert rig.ask(server, "/v1/chat/completions", body, headers=headers).status == 200
            rig.wait_until(lambda: len(logged(server)) == len(buckets) + 1)
            buckets.append(logged(server)[-1]["bucket"])

        buckets = []
        header = [("x-session-id", "s"), ("x-request-id", "r")]
        ask(header, user="u", metadata={"user_id": "m"}, safety_identifier="i")
        ask(header, metadata={"user_id": "m"}, safety_identifier="i")
        ask(header, user="", metadata={"user_id": 7}, safety_identifier="i")
        ask(header, metadata=[], user=None)
        ask([("x-request-id", "r")])
        assert buckets == [bucket_of(unit) for unit in "umisr"]
        key = rig.answered(server, "/admin/keys", {"name": "k"}).json()
        ask([("x-request-id", "r"), ("Authorization", "Bearer " + key["key"])])
        assert buckets[-1] == bucket_of(key["id"])


def test_by_request(start, tmp_path):
    with upstreams(2) as (a, b):
        server = gateway(start, tmp_path, lines(a, b, "by: request, "))
        for i in range(20):
            body = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}], "user": "same"}
            assert arm_in(rig.ask(server, "/v1/chat/completions", body, headers=[("x-request-id", f"id-{i}")])) == arm_of(f"id-{i}")
        assert a.requests > 0 < b.requests
        without = quire("route", "explain", "x", "--models", tmp_path / "models.yaml", "--user", "u")
        assert without.returncode == 1 and "name its id with --request-id" in without.stderr


# ---- statistics ----------------------------------------------------------------------------------------------


def logged(server):
    found = []
    for line in server.output().splitlines():
        if line.startswith("{") and '"experiment"' in line:
            found.append(json.loads(line))
    return [line for line in found if "bucket" in line]


def statistics(server):
    return rig.answered(server, "/gateway/experiments").json()["data"]


def requests_of(experiment):
    return [arm["requests"] for arm in experiment["arms"]]


def many(server, n, users=61, **fields):
    def one(i):
        return chat(server, f"question {i}", model="chat", user=f"u{i % users}", stream=i % 4 > 0, **fields).status

    found = []
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for begin in range(0, n, 40):
            found += pool.map(one, range(begin, min(n, begin + 40)))
            server.output()  # the log must not fill the pipe
    return found


def sums(metric):
    return sum(metric["bucket_n"]), sum(metric["bucket_sum"])


def jackknife(metric, mean):
    n = metric["n"]
    parts = [((s - mean * k) / (n - k)) ** 2 for k, s in zip(metric["bucket_n"], metric["bucket_sum"], strict=True) if k]
    return sum(parts) * (len(parts) - 1) / len(parts)


def reference(control, arm):
    """Difference, variance and p by the formulas of docs/guides/experiments.md."""
    n, m = control["n"], arm["n"]
    left, right, common = control["sum"] / n, arm["sum"] / m, (control["sum"] + arm["sum"]) / (n + m)
    own = jackknife(control, left) + jackknife(arm, right)
    one = (n * n * jackknife(control, common) + m * m * jackknife(arm, common)) / (n + m)
    v = max(own, one * (1 / n + 1 / m))
    d = right - left
    if v == 0:
        return d, v, 1
    ratios = [math.sqrt(v / (v + t * t)) * math.exp(min(700, d * d * t * t / (2 * v * (v + t * t)))) for t in (share * common for share in (0.02, 0.05, 0.1, 0.2, 0.5, 1))]
    return d, v, min(1, len(ratios) / sum(ratios))


SCALE = {"errors": 100, "cancelled": 100, "ttft": 1e-3, "latency": 1e-3, "output_tokens": 1, "cached_tokens": 1, "cache_hits": 100, "cost": 1e-12}


def check_report(report, experiment):
    """Every number of the report, from the statistics of the gateway."""
    control = experiment["arms"][0]
    assert all("p" in row for row in report["comparisons"]), report["comparisons"]
    assert [row["metric"] for row in report["comparisons"]] == list(SCALE)
    for row in report["comparisons"]:
        left, right = control["metrics"][row["metric"]], experiment["arms"][1]["metrics"][row["metric"]]
        assert sums(left) == (left["n"], left["sum"]) and sums(right) == (right["n"], right["sum"])
        assert row["n_comparisons"] == (1 if row["is_chosen"] else 7)
        scale = SCALE[row["metric"]]
        for side, values in (("control", left), ("arm_values", right)):
            n, mean = values["n"], values["sum"] / values["n"]
            assert row[side]["n"] == n and row[side]["mean"] == pytest.approx(scale * mean, rel=1e-8)
            spread = int(values["sum_squares"]) - n * mean * mean
            assert row[side]["deviation"] == pytest.approx(scale * math.sqrt(max(0, spread / (n - 1))), rel=1e-3, abs=1e-6 * scale * mean)
        d, v, p = reference(left, right)
        assert row["difference"] == pytest.approx(scale * d, rel=1e-8, abs=1e-12)
        assert row["standard_error"] == pytest.approx(scale * math.sqrt(v), rel=1e-8, abs=1e-12)
        assert row["p"] == pytest.approx(p, rel=1e-6)
        assert row["p_corrected"] == pytest.approx(min(1, p * row["n_comparisons"]), rel=1e-6)
        assert row["low"] <= row["difference"] <= row["high"]
        assert (row["state"] == "difference") == (row["low"] > 0 or row["high"] < 0) == (row["p_corrected"] <= 0.05)


def test_report(start, tmp_path):
    """The gateway's statistics, those of its log, and a second implementation agree; the arm with longer answers is found."""
    with upstreams(2) as (a, b):
        b.words = 9
        b.mode = lambda n: "400" if n % 20 == 7 else "good"
        server = gateway(start, tmp_path, lines(a, b, "metric: output_tokens, ", weights=[("control", 1), ("new", 1)]), "--log-requests", "--log-format", "json")
        statuses = many(server, 400)
        assert set(statuses) == {200, 400}
        rig.wait_until(lambda: len(logged(server)) == statuses.count(200))
        experiment, = statistics(server)
        assert sum(requests_of(experiment)) == statuses.count(200)  # a client's error says nothing about an arm
        assert experiment["by"] == "user" and experiment["metric"] == "output_tokens" and len(experiment["run"]) == 16
        shown = quire("ab", "report", "--url", server.url, "--json")
        report, = json.loads(shown.stdout)["experiments"]
        check_report(report, experiment)
        states = {row["metric"]: row["state"] for row in report["comparisons"]}
        assert states["output_tokens"] == states["cost"] == "difference" and states["errors"] == states["cache_hits"] == states["cached_tokens"] == "no_difference"
        assert report["warnings"] == [] and experiment["warnings"] == []
        # The log has the same to the last digit, as JSON and as text.
        log = tmp_path / "log"
        log.write_text(server.output())
        as_text = tmp_path / "text"
        as_text.write_text("".join(as_line(line) for line in server.output().splitlines() if '"request"' in line))
        for file in (log, as_text):
            again, = json.loads(quire("ab", "report", "chat", "--log", file, "--models", tmp_path / "models.yaml", "--json").stdout)["experiments"]
            assert abs(again.pop("since") - report["since"]) <= 20  # the first line of the log, and the first request
            assert again == {key: value for key, value in report.items() if key != "since"}
        table = quire("ab", "report", "--url", server.url + "/v1")
        assert table.returncode == 0 and "* output_tokens, tokens" in table.stdout and "HIGHER than the control" in table.stdout
        metrics = rig.metrics(server)
        for arm in experiment["arms"]:
            label = f'{{experiment="chat",arm="{arm["arm"]}"'
            assert f'quire:gateway_experiment_requests_total{label},result="ok"}} {arm["metrics"]["latency"]["n"]}\n' in metrics
            assert f'quire:gateway_experiment_generated_tokens_total{label}}} {arm["metrics"]["output_tokens"]["sum"]}\n' in metrics
            assert f'quire:gateway_experiment_ttft_seconds_count{label}}} {arm["metrics"]["ttft"]["n"]}\n' in metrics


def as_line(text):
    """A line of a JSON log as --log-format text writes it."""
    fields = json.loads(text)
    head = f"{fields['ts']} info  gateway: {fields['msg']}"
    plain = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/+")
    values = {k: v for k, v in fields.items() if k not in ("ts", "level", "module", "room", "msg")}
    return head + "".join(f" {k}={v if not isinstance(v, str) or (v and set(v) <= plain) else json.dumps(v)}" for k, v in values.items()) + "\n"


def test_too_few(start, tmp_path):
    with upstreams(2) as (a, b):
        server = gateway(start, tmp_path, lines(a, b))
        many(server, 20)
        report, = json.loads(quire("ab", "report", "--url", server.url, "--json").stdout)["experiments"]
        assert {row["state"] for row in report["comparisons"]} == {"too_few_requests"} and "p" not in report["comparisons"][0]
        assert "too few requests" in quire("ab", "report", "--url", server.url).stdout


def test_errors(start, tmp_path):
    with upstreams(2, mode="html_502") as (a, b):
        server = gateway(start, tmp_path, lines(a, b))
        for i in range(10):
            chat(server, model="chat", user=f"u{i}")
        experiment, = statistics(server)
        assert sum(requests_of(experiment)) == 10
        assert sum(arm["metrics"]["errors"]["sum"] for arm in experiment["arms"]) == 10
        assert sum(arm["metrics"]["latency"]["n"] for arm in experiment["arms"]) == 0


def test_a_client_that_leaves(start, tmp_path):
    with upstreams(2, mode="endless") as (a, b):
        server = gateway(start, tmp_path, lines(a, b))
        with rig.stream(server, "/v1/chat/completions", {"model": "chat", "user": "u", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}) as reply:
            reply.read(100)
        rig.wait_until(lambda: sum(arm["metrics"]["cancelled"]["sum"] for arm in statistics(server)[0]["arms"]) == 1)


def test_a_fallback_counts_for_its_arm(start, tmp_path):
    with upstreams(2) as (a, b):
        b.mode = "500"
        server = gateway(start, tmp_path, lines(a, b, more=", fallback: [a]"))
        user = next(f"u{i}" for i in range(100) if arm_of(f"u{i}") == "new")
        reply = chat(server, model="chat", user=user)
        assert reply.status == 200 and "model=a" in reply.headers["x-quire-route"] and arm_in(reply) == "new"
        assert requests_of(statistics(server)[0]) == [0, 1]


def test_arms_of_engines(start, tmp_path):
    """Two configurations of one engine: the arm is the only difference, and the answers are the same bits."""
    arms = "a: {targets: [{model: \"%s\"}]}", "b: {targets: [{model: \"%s\", options: {scheduling-policy: sjf}}]}"
    models = ["chat: {route: experiment, arms: {control: {model: a}, new: {model: b}}}", *(line % MODEL for line in arms)]
    server = gateway(start, tmp_path, models)
    assert "variables differ" not in server.output()
    found = {}
    for i in range(8):
        reply = chat(server, model="chat", user=f"u{i}", max_tokens=4, temperature=0)
        assert reply.status == 200, reply.text
        found[arm_in(reply)] = reply.json()["choices"][0]["message"]
    assert len(found) == 2 and found["control"] == found["new"]
    assert sum(requests_of(statistics(server)[0])) == 8
    assert "differs in options.scheduling-policy\n" in quire("check", tmp_path / "models.yaml").stdout


# ---- changes -------------------------------------------------------------------------------------------------


def reload(server, tmp_path, file):
    n = server.output().count("was reloaded")
    write(tmp_path, file)
    server.process.send_signal(signal.SIGHUP)
    rig.wait_until(lambda: server.output().count("was reloaded") == n + 1)


def test_reload(start, tmp_path):
    with upstreams(2) as (a, b):
        server = gateway(start, tmp_path, lines(a, b), "--log-requests")
        many(server, 30)
        before, = statistics(server)
        assert sum(requests_of(before)) == 30
        reload(server, tmp_path, [*lines(a, b, "metric: cost, "), "c: {targets: [" + target(a, "t") + "]}"])
        same, = statistics(server)
        assert same == {**before, "metric": "cost"} and "begins anew" not in server.output()
        log = tmp_path / "log"
        rig.wait_until(lambda: server.output().count("bucket=") == 30)
        log.write_text(server.output())
        reload(server, tmp_path, lines(a, b, weights=[("control", 1), ("new", 1)]))
        anew, = statistics(server)
        assert anew["run"] != before["run"] and requests_of(anew) == [0, 0]
        assert f"experiment chat begins anew as run {anew['run']}, because its arms have changed; the statistics of 30 requests of run {before['run']} are dropped" in server.output()
        left_out = json.loads(quire("ab", "report", "--log", log, "--models", tmp_path / "models.yaml", "--json").stdout)["experiments"][0]
        assert left_out["requests_of_other_runs"] == 30 and [arm["requests"] for arm in left_out["arms"]] == [0, 0]
        reload(server, tmp_path, lines(a, b)[1:])
        assert statistics(server) == [] and "experiment chat has ended" in server.output()
        none = quire("ab", "report", "--url", server.url)
        assert none.returncode == 1 and "there is no experiment" in none.stderr


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_restart(start, tmp_path, how):
    """With a ledger the statistics survive; a killed process may lose the last second."""
    with upstreams(2) as (a, b):
        server = gateway(start, tmp_path, lines(a, b), "--ledger", tmp_path / "accounts.db")
        many(server, 30)
        before, = statistics(server)
        if how == signal.SIGKILL:
            rig.wait_until(lambda: saved(tmp_path) == 30)
        server.stop(how)
        server = start("serve", "--models", tmp_path / "models.yaml", "--port", "0", "--ledger", tmp_path / "accounts.db")
        assert "experiment chat continues with the 30 requests of the ledger" in server.output()
        assert statistics(server) == [before]
        server.stop()
        write(tmp_path, lines(a, b, weights=[("control", 1), ("new", 1)]))
        server = start("serve", "--models", tmp_path / "models.yaml", "--port", "0", "--ledger", tmp_path / "accounts.db")
        assert "the ledger has the statistics of other arms, which are dropped" in server.output()
        assert requests_of(statistics(server)[0]) == [0, 0]


def saved(tmp_path):
    """Requests in the ledger. SQLite's lock is the gateway's: a copy of the files is read. Two files that do not belong
    together, because the gateway wrote in between, have none."""
    try:
        for name in ("accounts.db", "accounts.db-wal"):
            shutil.copy(tmp_path / name, tmp_path / ("copy" + name[8:]))
        with contextlib.closing(sqlite3.connect(tmp_path / "copy.db")) as copy:
            rows = copy.execute("SELECT value FROM state").fetchall()
    except (FileNotFoundError, sqlite3.Error):
        return 0
    at, size = 40, 8 * (1 + 8 * (4 + 512))
    return sum(int.from_bytes(value[begin : begin + 8], "little") for value, in rows for begin in range(at, len(value), size))


def test_two_variables(start, tmp_path):
    with upstreams(2) as (a, b):
        says = "model chat: arm new: 2 variables differ from arm control: url, max_tokens; a difference in the results has no single cause"
        server = gateway(start, tmp_path, lines(a, b, more=", max_tokens: 50"))
        assert says in server.output()
        assert statistics(server)[0]["warnings"] == [says]
        assert says in quire("ab", "report", "--url", server.url).stdout
        checked = quire("check", tmp_path / "models.yaml")
        assert checked.returncode == 0 and says in checked.stderr and ":2:" in checked.stderr
        assert "arm    new: b, weight 1; differs in url, max_tokens" in checked.stdout


# ---- the command ---------------------------------------------------------------------------------------------


def test_wrong_commands(tmp_path):
    for arguments, code, says in [([], 2, "the action is missing"), (["show"], 2, "unknown action"), (["report", "--log", "x"], 2, "belong together"),
                                  (["report", "--metric", "speed"], 2, "--metric must be"), (["report", "--alpha", "2"], 2, "--alpha"),
                                  (["report", "--log", "x", "--models", "/nonexistent"], 1, "/nonexistent"), (["report", "--url", "http://127.0.0.1:1"], 1, "127.0.0.1")]:
        shown = quire("ab", *arguments)
        assert shown.returncode == code and says in shown.stderr, (arguments, shown.stderr)


def test_a_server_that_lies(tmp_path):
    """Any server can stand at the URL: its reply is an error, not a crash."""
    import http.server
    import threading

    good = {"n": 200, "sum": 5, "sum_squares": "25", "bucket_n": [1] * 200 + [0] * 56, "bucket_sum": [0] * 256}
    arm = {"arm": "x\x1b[31m", "model": "m", "weight": 1, "requests": 200, "metrics": {"latency": good}}

    def of(**changes):
        return {"data": [{"experiment": "e", "run": "r", "arms": [arm, {**arm, "metrics": {"latency": {**good, **changes}}}]}]}

    replies = [([], 1), ({}, 1), ({"data": 7}, 1), ({"data": [7]}, 1), ({"data": [{"arms": [arm]}]}, 1), ({"data": [{"experiment": 7, "arms": [arm, arm]}]}, 1),
               ({"data": [{"experiment": "e", "arms": [arm, 7]}]}, 1), (of(bucket_n=[1]), 1), (of(bucket_n=[2] * 256), 1), (of(bucket_sum=[-1] * 256), 1), (of(n=-1), 1),
               (of(sum_squares="1e9"), 1), (of(sum_squares="9" * 39), 0), (of(n=2**63 - 1), 0), (of(), 0)]
    at = iter(replies)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            data = json.dumps(next(at)[0]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for reply, code in replies:
        shown = quire("ab", "report", "--url", f"http://127.0.0.1:{server.server_address[1]}")
        assert shown.returncode == code, (reply, shown)
        assert "\x1b" not in shown.stdout + shown.stderr
    server.shutdown()
