"""Batches over HTTP, as openai-python and anthropic-python use them, and what hostile clients send."""

import http.client
import json

import anthropic
import openai
import pytest

import rig
from conftest import MODEL, Server

CHAT = "/v1/chat/completions"


def chat_line(i, **more):
    body = {"model": "demo", "max_tokens": 3, "messages": [{"role": "user", "content": f"Tell me about {i}"}]}
    return {"custom_id": f"line-{i}", "method": "POST", "url": CHAT, "body": {**body, **more}}


def jsonl(lines):
    return "".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines).encode()


def upload(client, lines, name="input.jsonl"):
    return client.files.create(file=(name, jsonl(lines)), purpose="batch")


def ended(client, batch):
    state = [batch]

    def has_ended():
        state[0] = client.batches.retrieve(batch.id)
        return state[0].status in ("completed", "failed", "cancelled", "expired")

    rig.wait_until(has_ended, lambda: f"the end of {state[0]}")
    return state[0]


def entries(client, file_id):
    return [json.loads(line) for line in client.files.content(file_id).text.splitlines()] if file_id else []


@pytest.fixture(scope="module")
def batches(tmp_path_factory):
    s = Server("serve", MODEL, "--port", "0", "--served-model-name", "demo", "--max-model-len", "1024", "--batch-dir", tmp_path_factory.mktemp("batches") / "store",
               environment={"QUIRE_API_KEY": "one,two"})
    yield s
    assert s.stop() == 0, s.output()


def openai_of(server, key="one"):
    return server.client(api_key=key)


def anthropic_of(server, key="one"):
    return anthropic.Anthropic(base_url=server.url, api_key=key, max_retries=0)


# ---- OpenAI ----


def test_a_batch_of_chats(batches):
    client = openai_of(batches)
    lines = [chat_line(i) for i in range(25)]
    file = upload(client, lines)
    assert file.purpose == "batch" and file.bytes == len(jsonl(lines)) and client.files.content(file.id).content == jsonl(lines)
    batch = client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h", metadata={"who": "a test"})
    assert batch.status == "validating" and batch.expires_at == batch.created_at + 86400
    batch = ended(client, batch)
    assert batch.status == "completed" and batch.error_file_id is None and batch.metadata == {"who": "a test"}
    assert (batch.request_counts.total, batch.request_counts.completed, batch.request_counts.failed) == (25, 25, 0)
    assert batch.created_at <= batch.in_progress_at <= batch.finalizing_at <= batch.completed_at
    output = entries(client, batch.output_file_id)
    assert [entry["custom_id"] for entry in output] == [line["custom_id"] for line in lines]
    assert batch.usage.output_tokens == sum(entry["response"]["body"]["usage"]["completion_tokens"] for entry in output)
    # A line has the bits of a live request.
    live = client.chat.completions.create(**lines[7]["body"], seed=1, temperature=0)
    assert output[7]["response"]["status_code"] == 200 and live.choices[0].message.content
    other = ended(client, client.batches.create(input_file_id=upload(client, [chat_line(7, seed=1, temperature=0)]).id, endpoint=CHAT, completion_window="24h"))
    assert entries(client, other.output_file_id)[0]["response"]["body"]["choices"][0]["message"]["content"] == live.choices[0].message.content


def test_other_endpoints(batches):
    client = openai_of(batches)
    bodies = {"/v1/completions": {"prompt": "Once", "max_tokens": 2}, "/v1/responses": {"input": "Hi", "max_output_tokens": 16}, "/v1/embeddings": {"input": "Hi"}}
    for url, body in bodies.items():
        file = upload(client, [{"custom_id": "a", "method": "POST", "url": url, "body": {"model": "demo", **body}}])
        batch = ended(client, client.batches.create(input_file_id=file.id, endpoint=url, completion_window="7d"))
        # The demo model has no vectors: the line says so.
        if url == "/v1/embeddings":
            assert batch.request_counts.failed == 1 and entries(client, batch.error_file_id)[0]["response"]["status_code"] == 400
        else:
            assert batch.request_counts.completed == 1, entries(client, batch.error_file_id)


def test_bad_lines_fail_alone(batches):
    client = openai_of(batches)
    lines = [chat_line(0), "not JSON\n", chat_line(1, model="nope"), {**chat_line(2), "url": "/v1/completions"}, chat_line(0), {**chat_line(3), "method": "GET"}, "\n",
             chat_line(4, messages=[{"role": "user", "content": "x" * 10_000_000}]), chat_line(5)]
    batch = ended(client, client.batches.create(input_file_id=upload(client, lines).id, endpoint=CHAT, completion_window="24h"))
    assert batch.status == "completed"
    assert [entry["custom_id"] for entry in entries(client, batch.output_file_id)] == ["line-0", "line-5"]
    errors = entries(client, batch.error_file_id)
    assert [entry["custom_id"] for entry in errors] == [None, "line-1", "line-2", "line-0", "line-3", "line-4"]
    assert errors[1]["response"]["status_code"] == 404 and "line 1 has the same" in errors[3]["error"]["message"]
    assert batch.request_counts.total == 8 and batch.request_counts.failed == 6


def test_an_empty_file_fails(batches):
    client = openai_of(batches)
    batch = ended(client, client.batches.create(input_file_id=upload(client, ["\n\n"]).id, endpoint=CHAT, completion_window="24h"))
    assert batch.status == "failed" and batch.failed_at and batch.errors.data[0].message


def test_cancel_and_expiry(batches):
    client = openai_of(batches)
    lines = [chat_line(i, max_tokens=900, ignore_eos=True) for i in range(300)]
    file = upload(client, lines)
    batch = client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")
    with pytest.raises(openai.BadRequestError, match="has not ended"):
        client.files.delete(file.id)
    assert client.batches.cancel(batch.id).status == "cancelling"
    batch = ended(client, batch)
    assert batch.status == "cancelled" and batch.cancelling_at <= batch.cancelled_at
    codes = {entry["error"]["code"] for entry in entries(client, batch.error_file_id)}
    assert codes == {"batch_cancelled"}
    assert len(entries(client, batch.error_file_id)) + len(entries(client, batch.output_file_id)) == 300
    with pytest.raises(openai.BadRequestError, match="ended already"):
        client.batches.cancel(batch.id)
    batch = ended(client, client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="1s"))
    assert batch.status == "expired" and batch.expired_at
    assert {entry["error"]["code"] for entry in entries(client, batch.error_file_id)} == {"batch_expired"}
    assert len(entries(client, batch.error_file_id)) + len(entries(client, batch.output_file_id)) == 300


def test_lists_and_pages(batches):
    client = openai_of(batches, "two")
    files = [upload(client, [chat_line(i)], f"{i}.jsonl").id for i in range(5)]
    assert [file.id for file in client.files.list()] == files[::-1]
    assert [file.id for file in client.files.list(order="asc", limit=2)] == files  # the client reads every page
    assert [file.id for file in client.files.list(after=files[2]).data] == files[1::-1]
    assert client.files.list(purpose="batch_output").data == []
    made = [client.batches.create(input_file_id=files[0], endpoint=CHAT, completion_window="24h").id for _ in range(3)]
    assert [batch.id for batch in client.batches.list(limit=2)] == made[::-1]
    page = client.batches.list(limit=2, after=made[2])
    assert [batch.id for batch in page.data] == made[1::-1] and not page.has_more
    for batch in made:
        ended(client, client.batches.retrieve(batch))
    assert len(client.files.list(purpose="batch_output").data) == 3
    assert client.files.delete(files[4]).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(files[4])
    reply = rig.ask(batches, "/v1/batches?limit=1000", headers={"Authorization": "Bearer two"})
    assert reply.status == 400 and "limit" in reply.text


def test_expiry_of_files(batches):
    client = openai_of(batches)
    file = client.files.create(file=("a", b"{}\n"), purpose="batch", expires_after={"anchor": "created_at", "seconds": 3600})
    assert file.expires_at == file.created_at + 3600
    with pytest.raises(openai.BadRequestError, match="expires_after"):
        client.files.create(file=("a", b"{}\n"), purpose="batch", expires_after={"anchor": "created_at", "seconds": 1})


# ---- Anthropic ----


def request_of(i, **more):
    return {"custom_id": f"m-{i}", "params": {"model": "demo", "max_tokens": 3, "messages": [{"role": "user", "content": f"Say\n{i}"}], **more}}


def messages_ended(client, batch):
    rig.wait_until(lambda: client.messages.batches.retrieve(batch.id).processing_status == "ended", "the end of a message batch")
    return client.messages.batches.retrieve(batch.id)


def test_a_batch_of_messages(batches):
    client = anthropic_of(batches)
    batch = client.messages.batches.create(requests=[*[request_of(i) for i in range(8)], request_of(8, model="nope")])
    assert batch.processing_status == "in_progress" and batch.results_url is None and batch.request_counts.processing == 9
    batch = messages_ended(client, batch)
    assert batch.request_counts.succeeded == 8 and batch.request_counts.errored == 1 and batch.ended_at >= batch.created_at
    results = list(client.messages.batches.results(batch.id))
    assert [result.custom_id for result in results] == [f"m-{i}" for i in range(9)]
    assert all(result.result.type == "succeeded" and result.result.message.content[0].text for result in results[:8])
    assert results[8].result.type == "errored" and results[8].result.error.error.type == "not_found_error"
    assert batch.id in [other.id for other in client.messages.batches.list(limit=1)]
    assert not openai_of(batches).batches.list(after=None, limit=100).data or batch.id not in [other.id for other in openai_of(batches).batches.list(limit=100)]
    assert client.messages.batches.delete(batch.id).type == "message_batch_deleted"
    with pytest.raises(anthropic.NotFoundError):
        client.messages.batches.retrieve(batch.id)


def test_cancelled_messages(batches):
    client = anthropic_of(batches)
    batch = client.messages.batches.create(requests=[request_of(i, max_tokens=900, ignore_eos=True) for i in range(200)])
    with pytest.raises(anthropic.BadRequestError, match="has not ended"):
        client.messages.batches.delete(batch.id)
    cancelled = client.messages.batches.cancel(batch.id)
    assert cancelled.processing_status == "canceling" and cancelled.cancel_initiated_at
    batch = messages_ended(client, batch)
    assert batch.request_counts.canceled > 0 and batch.request_counts.canceled + batch.request_counts.succeeded == 200
    assert {result.result.type for result in client.messages.batches.results(batch.id)} <= {"canceled", "succeeded"}


def test_pages_of_message_batches(batches):
    client = anthropic_of(batches, "two")
    made = [client.messages.batches.create(requests=[request_of(i)]).id for i in range(4)]
    assert [batch.id for batch in client.messages.batches.list(limit=1)] == made[::-1]
    page = client.messages.batches.list(before_id=made[0], limit=2)
    assert [batch.id for batch in page.data] == [made[2], made[1]] and page.has_more
    for made_id in made:
        messages_ended(client, client.messages.batches.retrieve(made_id))


@pytest.mark.parametrize("body, says", [
    (b"", "requests"), (b"[]", "does not begin with {"), (b'{"requests": []}', "at least one"), (b'{"requests": {}}', "not an array"), (b'{"requests": [1]}', "not an object"),
    (b'{"requests": [{"custom_id": "a", "params": {}}]', "does not end"), (b'{"requests": [{"custom_id": "a"}]}', "requests.0"), (b'{"requests": [{"custom_id": "a", "params": {}} ]} x', "follows"),
    (b'{"requests": [{"custom_id": "a", "params": {}}, {"custom_id": "a", "params": {}}]}', "requests.1"), (b'{"requests": [{"custom_id": "a", "params": {bad}}]}', "requests.0"),
    (b'{"requests": [{"custom_id": "a", "params": {}}], "requests": []}', "twice"),
])
def test_bad_message_batches(batches, body, says):
    reply = rig.ask(batches, "/v1/messages/batches", body, method="POST", headers={"x-api-key": "one"})
    assert reply.status == 400 and says in reply.json()["error"]["message"], reply.text
    assert reply.json()["type"] == "error"


# ---- other tenants, and hostile clients ----


def test_other_tenants_find_nothing(batches):
    mine, other = openai_of(batches), openai_of(batches, "two")
    file = upload(mine, [chat_line(0)])
    batch = ended(mine, mine.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h"))
    messages = messages_ended(anthropic_of(batches), anthropic_of(batches).messages.batches.create(requests=[request_of(0)]))
    for act in (lambda: other.files.retrieve(file.id), lambda: other.files.content(file.id), lambda: other.files.delete(file.id), lambda: other.files.content(batch.output_file_id),
                lambda: other.batches.retrieve(batch.id), lambda: other.batches.cancel(batch.id)):
        with pytest.raises(openai.NotFoundError):
            act()
    for act in (lambda: anthropic_of(batches, "two").messages.batches.retrieve(messages.id), lambda: anthropic_of(batches, "two").messages.batches.delete(messages.id)):
        with pytest.raises(anthropic.NotFoundError):
            act()
    with pytest.raises(openai.BadRequestError, match="no file has this id"):
        other.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")
    # The header of the process's own requests means nothing from outside.
    for headers in ({"x-quire-tenant": "key-1"}, {"x-quire-tenant": "key-1", "Authorization": "Bearer wrong"}):
        assert rig.ask(batches, f"/v1/files/{file.id}", headers=headers).status == 401
        assert rig.ask(batches, CHAT, chat_line(0)["body"], headers=headers).status == 401
    assert rig.ask(batches, f"/v1/files/{file.id}", headers={"Authorization": "Bearer two", "x-quire-tenant": "key-1"}).status == 404


@pytest.mark.parametrize("path", [
    "/v1/files/file-../../batches", "/v1/files/file-%2e%2e%2fbatches", "/v1/files/file-" + "0" * 32, "/v1/files/batch_" + "0" * 32, "/v1/batches/x'%20OR%201=1", "/v1/batches/" + "b" * 5000,
    "/v1/messages/batches/batch_" + "0" * 32, "/v1/files/file-" + "0" * 32 + "/content", "/v1/batches/batch_" + "0" * 32,
])
def test_ids_that_are_none(batches, path):
    assert rig.ask(batches, path, headers={"Authorization": "Bearer one"}).status in (400, 404)


def form(parts, boundary="xyz"):
    return b"".join(b"--" + boundary.encode() + b"\r\n" + part for part in parts) + b"--" + boundary.encode() + b"--\r\n"


def field(name, value):
    return f'Content-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()


FILE = b'Content-Disposition: form-data; name="file"; filename="../../x"\r\n\r\n{}\r\n'


@pytest.mark.parametrize("body, says", [
    (form([FILE]), "purpose"), (form([field("purpose", "batch")]), "file: is required"), (form([field("purpose", "assistants"), FILE]), 'must be "batch"'),
    (form([field("purpose", "batch"), FILE, FILE]), "one file"), (form([field("purpose", "batch"), FILE])[:-8], "ends before"), (b"x" * 100_000, "ends before"),
    (form([b"X: y\r\n\r\n1\r\n"]), "Content-Disposition"), (form([b"X: " + b"y" * 9000]), "longer than"), (form([field("purpose", "b" * 70_000)]), "longer than"),
    (form([field("colour", "red"), FILE]), "colour"), (form([FILE] + [field("purpose", "batch")] * 65), "parts"),
])
def test_bad_forms(batches, body, says):
    reply = rig.ask(batches, "/v1/files", body, method="POST", headers={"Authorization": "Bearer one", "Content-Type": "multipart/form-data; boundary=xyz"})
    assert reply.status == 400 and says in reply.json()["error"]["message"], reply.text


def test_forms_in_any_pieces(batches):
    """Byte by byte, and with the purpose after the file."""
    body = form([FILE, field("purpose", "batch")])
    connection = http.client.HTTPConnection("127.0.0.1", batches.port, timeout=300)
    connection.putrequest("POST", "/v1/files")
    for name, value in (("Authorization", "Bearer one"), ("Content-Type", 'multipart/form-data; boundary="xyz"'), ("Transfer-Encoding", "chunked")):
        connection.putheader(name, value)
    connection.endheaders()
    for i in range(len(body)):
        connection.send(b"1\r\n" + body[i : i + 1] + b"\r\n")
    connection.send(b"0\r\n\r\n")
    reply = connection.getresponse()
    file = json.loads(reply.read())
    assert reply.status == 200 and file["bytes"] == 2 and file["filename"] == "../../x"
    assert openai_of(batches).files.content(file["id"]).content == b"{}"


def test_large_uploads_take_no_memory(batches):
    """64 MiB: more than a body may have that is kept."""
    def memory():
        with open(f"/proc/{batches.process.pid}/status", encoding="utf-8") as status:
            return int(next(line for line in status if line.startswith("VmRSS:")).split()[1]) * 1024

    before, client = memory(), openai_of(batches)
    file = client.files.create(file=("big", b" " * (64 << 20)), purpose="batch")
    assert file.bytes == 64 << 20 and memory() - before < 32 << 20
    assert len(client.files.content(file.id).content) == 64 << 20 and memory() - before < 32 << 20
    client.files.delete(file.id)
    reply = rig.ask(batches, CHAT, b" " * (17 << 20), headers={"Authorization": "Bearer one"})
    assert reply.status == 413  # other routes keep their limit


@pytest.mark.parametrize("change, says", [
    ({"endpoint": "/v1/messages"}, "endpoint"), ({"endpoint": None}, "endpoint"), ({"completion_window": "soon"}, "completion_window"), ({"completion_window": "99999d"}, "completion_window"),
    ({"input_file_id": "x"}, "input_file_id"), ({"input_file_id": None}, "input_file_id"), ({"metadata": {"a": 1}}, "metadata"), ({"metadata": {str(i): "" for i in range(17)}}, "metadata"),
    ({"output_expires_after": {"anchor": "x"}}, "output_expires_after"),
])
def test_bad_batches(batches, change, says):
    file = upload(openai_of(batches), [chat_line(0)])
    body = {"input_file_id": file.id, "endpoint": CHAT, "completion_window": "24h", **change}
    reply = rig.ask(batches, "/v1/batches", {name: value for name, value in body.items() if value is not None}, headers={"Authorization": "Bearer one"})
    assert reply.status == 400 and says in reply.text, reply.text


def test_methods_and_the_page(batches):
    key = {"Authorization": "Bearer one"}
    reply = rig.ask(batches, "/v1/batches", method="DELETE", headers=key)
    assert reply.status == 405 and reply.headers["Allow"] == "POST, GET, HEAD"
    assert rig.ask(batches, "/v1/batches").status == 401
    page = rig.answered(batches, "/ui/batches")
    assert "script-src 'sha256-" in page.headers["Content-Security-Policy"] and "innerHTML" not in page.text
    lines = rig.answered(batches, "/metrics", headers=key).text.splitlines()
    values = {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line.startswith("quire:batch"))}
    assert values['quire:batch_lines_total{outcome="succeeded"}'] > 0 and values['quire:batches{state="in_progress"}'] == 0


def test_a_server_without_batches(server):
    reply = rig.ask(server, "/v1/files")
    assert reply.status == 404 and "--batch-dir" in reply.json()["error"]["message"]
