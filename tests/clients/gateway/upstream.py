"""An OpenAI-compatible upstream server that misbehaves on purpose.

`mode` is the behaviour of the next requests, or a function of the request's number that returns one. An answer is the
words "w0 w1 w2 ..." with one token in an event, so that a test sees a token that is lost or duplicated.
"""

import asyncio
import json
import threading

WORDS = 8


class Upstream:
    def __init__(self, name="up", port=0, mode="good", key=None, words=WORDS, delay=0.0, gated=False, retry_after=7):
        """gated: each token of a stream, and a whole reply, waits for a release()."""
        self.name, self.mode, self.key, self.words, self.delay, self.gated, self.retry_after = name, mode, key, words, delay, gated, retry_after
        self.requests, self.bodies, self.headers, self.gone, self.sent = 0, [], [], 0, 0
        self.more_headers = ""  # of answers, with line ends
        self.wanted_port, self.port = port, None
        self.loop = asyncio.new_event_loop()
        started = threading.Event()
        self.thread = threading.Thread(target=self.run, args=(started,), daemon=True)
        self.thread.start()
        started.wait()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/v1"

    def run(self, started):
        asyncio.set_event_loop(self.loop)
        self.tasks = set()
        self.gate = asyncio.Semaphore(0)

        async def begin():
            self.server = await asyncio.start_server(self.serve, "127.0.0.1", self.wanted_port, limit=1 << 26)
            self.port = self.server.sockets[0].getsockname()[1]

        self.loop.run_until_complete(begin())
        started.set()
        self.loop.run_forever()

    def release(self, n=1):
        def let():
            for _ in range(n):
                self.gate.release()

        self.loop.call_soon_threadsafe(let)

    async def wait(self, delay):
        """Before a token, or a whole reply."""
        if self.gated:
            await self.gate.acquire()
        elif delay:
            await asyncio.sleep(delay)

    def close(self):
        """Ends all connections at once, as a killed process does."""

        def end():
            self.server.close()
            for writer in list(self.tasks):
                writer.transport.abort()
            self.loop.call_later(0.01, self.loop.stop)

        self.loop.call_soon_threadsafe(end)
        self.thread.join()

    async def serve(self, reader, writer):
        self.tasks.add(writer)
        try:
            while await self.one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            self.gone += 1
        finally:
            self.tasks.discard(writer)
            writer.close()

    async def one(self, reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        method, path, _ = lines[0].split(" ")
        headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        if method == "GET":
            self.reply(writer, 200, {"object": "list", "data": []})
            await writer.drain()
            return True
        number, self.requests = self.requests, self.requests + 1
        asked = json.loads(body)
        self.bodies.append(asked)
        self.headers.append(headers)
        self.path = path
        mode = self.mode(number) if callable(self.mode) else self.mode
        if self.key and headers.get("authorization") != f"Bearer {self.key}":
            mode = "401"
        answer = getattr(self, "do_" + mode, None)
        if answer is None:
            self.reply(writer, int(mode), {"error": {"message": f"status {mode}", "type": "x", "param": None, "code": None}})
            await writer.drain()
            return True
        return await answer(writer, asked) is not False

    def reply(self, writer, status, body, headers=""):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n{headers}{self.more_headers}\r\n".encode("latin-1") + data)

    def usage(self):
        return {"prompt_tokens": 10, "completion_tokens": self.words, "total_tokens": 10 + self.words, "prompt_tokens_details": {"cached_tokens": 4}}

    def chunk(self, delta, finish=None):
        return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    async def event(self, writer, data):
        text = data if isinstance(data, str) else json.dumps(data)
        event = f"data: {text}\n\n".encode()
        writer.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
        self.sent += len(event)
        await writer.drain()

    def stream_head(self, writer):
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n{self.more_headers}\r\n"
        writer.write(head.encode("latin-1"))

    async def do_good(self, writer, asked, cut=None, delay=None):
        delay = self.delay if delay is None else delay
        if not asked.get("stream"):
            await self.wait(delay)
            text = " ".join(f"w{i}" for i in range(self.words))
            if "embeddings" in self.path:
                self.reply(writer, 200, {"object": "list", "model": "m", "data": [{"object": "embedding", "index": 0, "embedding": [0.5, 0.25]}], "usage": {"prompt_tokens": 3, "total_tokens": 3}})
            else:
                self.reply(writer, 200, {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}], "usage": self.usage()})
            await writer.drain()
            return True
        self.stream_head(writer)
        await self.event(writer, self.chunk({"role": "assistant", "content": ""}))
        for i in range(self.words):
            if i == cut:
                writer.transport.abort()
                return False
            await self.wait(delay)
            await self.event(writer, self.chunk({"content": f"w{i} "}))
        await self.event(writer, self.chunk({}, "stop"))
        if asked.get("stream_options", {}).get("include_usage"):
            await self.event(writer, {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [], "usage": self.usage()})
        await self.event(writer, "[DONE]")
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def do_cut_first(self, writer, asked):
        """Ends before the first token."""
        return await self.do_good(writer, {**asked, "stream": True}, cut=0)

    async def do_cut_later(self, writer, asked):
        return await self.do_good(writer, {**asked, "stream": True}, cut=3)

    async def do_cut_clean(self, writer, asked):
        """A stream that ends as its framing says, half-way."""
        self.stream_head(writer)
        await self.event(writer, self.chunk({"content": "w0 "}))
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def do_drip(self, writer, asked):
        """A byte at a time."""
        inner = _Collected()
        await self.do_good(inner, asked, delay=0)
        for byte in inner.data:
            writer.write(bytes([byte]))
            await writer.drain()

    async def do_stall(self, writer, asked):
        await asyncio.sleep(3600)

    async def do_stall_later(self, writer, asked):
        self.stream_head(writer)
        await self.event(writer, self.chunk({"content": "w0 "}))
        await asyncio.sleep(3600)

    async def do_long_length(self, writer, asked):
        writer.write(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"a":1}')
        await writer.drain()
        return False

    async def do_short_length(self, writer, asked):
        writer.write(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 3\r\n\r\n{"a":1}')
        await writer.drain()
        return False

    async def do_redirect(self, writer, asked):
        writer.write(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/elsewhere\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()

    async def do_garbage(self, writer, asked):
        writer.write(b"\x00\xff\x01 this is no HTTP\r\n\r\n")
        await writer.drain()
        return False

    async def do_html(self, writer, asked):
        data = b"<html>Bad gateway</html>"
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        await writer.drain()

    async def do_html_502(self, writer, asked):
        data = b"<html>Bad gateway</html>"
        writer.write(f"HTTP/1.1 502 Bad\r\nContent-Type: text/html\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        await writer.drain()

    async def do_garbage_event(self, writer, asked):
        self.stream_head(writer)
        await self.event(writer, self.chunk({"content": "w0 "}))
        await self.event(writer, "{not json")
        await self.event(writer, "[DONE]")
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def do_error_event(self, writer, asked):
        self.stream_head(writer)
        await self.event(writer, {"error": {"message": "out of luck", "type": "server_error", "code": None}})
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def do_huge(self, writer, asked):
        """100 MB of JSON."""
        size = 100 << 20
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n".encode())
        writer.write(b'{"a":"')
        for _ in range(size >> 16):
            writer.write(b"x" * 65536)
            await writer.drain()
        return False

    async def do_huge_event(self, writer, asked):
        self.stream_head(writer)
        writer.write(b"6\r\ndata: \r\n")
        for _ in range((100 << 20) >> 16):
            writer.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            await writer.drain()
        return False

    async def do_endless(self, writer, asked):
        """Tokens as fast as they are taken."""
        self.stream_head(writer)
        i = 0
        while True:
            await self.event(writer, self.chunk({"content": f"w{i} " + "x" * 1000}))
            i += 1

    async def do_429(self, writer, asked):
        self.reply(writer, 429, {"error": {"message": "slow down", "type": "rate_limit_error", "param": None, "code": None}}, f"Retry-After: {self.retry_after}\r\n")
        await writer.drain()

    async def do_too_long(self, writer, asked):
        self.reply(writer, 400, {"error": {"message": "too many tokens", "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}})
        await writer.drain()


class _Collected:
    def __init__(self):
        self.data = b""

    def write(self, data):
        self.data += data

    async def drain(self):
        pass
