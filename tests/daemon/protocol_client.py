"""A client of docs/reference/protocol.md, written from that page. Standard library only.

    client = Client("unix:/run/quire.sock", identity_text, identity_config)
    client.submit(1, prompt=[1, 2, 3], max_tokens=8, temperature=0.0)
    for frame in client.frames():
        ...
"""
import hashlib
import os
import socket
import struct

HELLO, SUBMIT, ACCEPT, REFUSE, TOKENS, PROMPT_LOGPROBS, DONE = 1, 2, 3, 4, 5, 6, 7
CANCEL, CREDIT, CONTROL, STATS, DRAIN, ERROR, VECTOR, PREDICT, HIT_REPORT = 8, 9, 10, 11, 12, 13, 14, 15, 16
INVALID, NOT_FOUND, UNSUPPORTED, EXHAUSTED = 1, 2, 3, 4
STOP, LENGTH, CANCELLED, FAILED = 0, 1, 2, 3
MUST = 0x8000

# Section 7: name: (tag, kind, must)
FIELDS = {
    HELLO: {
        "version": (1, "u32", True), "identity_text": (2, "bytes", True),
        "identity_config": (3, "bytes", True), "model": (4, "text", False),
        "vocab_size": (5, "u32", False), "max_model_len": (6, "u32", False),
        "max_num_seqs": (7, "u32", False), "block_tokens": (8, "u32", False),
        "eos": (9, "u32[]", False), "initial_credit": (10, "u64", True),
        "description": (11, "text", False), "key_proof": (12, "bytes", True),
        "nonce": (13, "bytes", True), "identity_arithmetic": (14, "bytes", False),
        "arithmetic": (15, "text", False), "vector_size": (18, "u32", False),
        "vector_is_scores": (19, "bool", False), "takes_predict": (20, "bool", False), "identity_generation": (21, "bytes", False),
        "takes_hit_report": (22, "bool", False),
    },
    SUBMIT: {
        "prompt": (1, "u32[]", True), "max_tokens": (2, "u32", True), "n": (3, "u32", True),
        "min_tokens": (4, "u32", True), "temperature": (5, "f32", True),
        "top_p": (6, "f32", True), "min_p": (7, "f32", True), "top_k": (8, "u32", True),
        "repetition_penalty": (9, "f32", True), "presence_penalty": (10, "f32", True),
        "frequency_penalty": (11, "f32", True), "seed": (12, "u64", True),
        "ignore_eos": (13, "bool", True), "n_logprobs": (14, "i32", True),
        "n_prompt_logprobs": (15, "i32", True), "priority": (16, "i32", False),
        "deadline_us": (17, "u64", False), "cache_domain": (18, "bytes", True),
        "stop_token_ids": (19, "u32[]", True), "biases": (20, "pair[]", True),
        "tenant": (21, "u32", False), "class_index": (22, "u32", False),
        "background": (23, "bool", False), "pin_us": (24, "u64", True),
        "expected_tokens": (25, "u32", False), "allowed_token_ids": (26, "u32[]", True),
        "bad_words": (27, "u32[]", True), "max_drafts": (28, "u32", False),
        "draft_method": (29, "u32", False), "prediction": (30, "u32[]", False),
        "wants_vector": (31, "bool", True), "segment_from": (32, "u32", True),
        "keep_us": (33, "u64", False), "keep_name": (34, "u64", False), "given": (35, "u32[]", False),
        "grammar": (36, "bytes", True),
    },
    REFUSE: {"status": (1, "u32", True), "retry_after_ms": (2, "u32", False),
             "message": (3, "text", False), "parameter": (4, "text", False)},
    TOKENS: {"records": (1, "records", True)},
    PROMPT_LOGPROBS: {"records": (1, "records", True)},
    DONE: {
        "choice": (1, "u32", True), "finish": (2, "u32", True), "last": (3, "bool", True),
        "stop_token": (4, "u32", False), "n_prompt": (5, "u32", False),
        "n_cached": (6, "u32", False), "n_generated": (7, "u32", False),
        "message": (8, "text", False), "status": (9, "u32", False),
        "retry_after_ms": (10, "u32", False), "n_created": (11, "u32", False),
        "queue_nothing_us": (12, "u64", False), "queue_budget_us": (13, "u64", False),
        "queue_seqs_us": (14, "u64", False), "queue_blocks_us": (15, "u64", False),
        "queue_batch_us": (16, "u64", False), "queue_prefix_us": (17, "u64", False),
        "preempted_us": (18, "u64", False), "blocker": (19, "u64", False),
        "blocker_tenant": (20, "u32", False), "n_overtaken": (21, "u32", False),
        "n_chunks": (22, "u32", False), "n_preemptions": (23, "u32", False),
        "n_loaded": (24, "u32", False), "n_recomputed": (25, "u32", False), "parameter": (26, "text", False),
        "n_drafted": (27, "u32", False), "n_accepted": (28, "u32", False),
        "n_predicted": (29, "u32", False), "n_predicted_right": (30, "u32", False),
    },
    PREDICT: {"tokens": (1, "u32[]", True)},
    HIT_REPORT: {"served": (1, "u32[]", True)},
    CANCEL: {"choice": (1, "u32", True)},
    CREDIT: {"bytes": (1, "u64", True)},
    CONTROL: {"command": (1, "text", True)},
    STATS: {
        "n_running": (1, "u32", False), "n_waiting": (2, "u32", False),
        "n_waiting_tokens": (3, "u64", False), "kv_usage": (4, "f64", False),
        "n_preemptions": (5, "u64", False), "n_prefix_queries": (6, "u64", False),
        "n_prefix_hits": (7, "u64", False), "n_prompt_tokens": (8, "u64", False),
        "n_generation_tokens": (9, "u64", False), "n_steps": (10, "u64", False),
        "n_blocks_leaked": (11, "u64", False), "n_blocks": (12, "u32", False),
        "n_block_tokens": (13, "u32", False), "draining": (14, "bool", False),
        "dead": (15, "bool", False), "n_host_hits": (16, "u64", False),
        "n_recomputed": (17, "u64", False), "n_refused": (18, "u64", False),
        "n_evicted_blocks": (19, "u64", False), "n_swapped_out": (20, "u64", False),
        "n_swapped_in": (21, "u64", False), "swap_usage": (22, "f64", False),
        "n_pins": (23, "u32", False), "n_pinned_blocks": (24, "u32", False),
        "token_budget": (25, "u32", False), "policy": (26, "text", False),
        "figure_name": (27, "text", False), "figure": (28, "f64", False),
        "tenants": (29, "tenants", False), "shadow_policy": (30, "text", False),
        "n_shadow": (31, "u64", False), "n_shadow_refused": (32, "u64", False),
        "live_ttft_us": (33, "f64", False), "live_queue_us": (34, "f64", False),
        "shadow_ttft_us": (35, "f64", False), "shadow_queue_us": (36, "f64", False),
        "shadow_buckets": (37, "buckets", False), "n_step_tokens": (38, "u64", False),
        "step_buckets": (39, "steps", False), "cache_dtype": (40, "text", False),
        "prefix_caching": (41, "bool", False), "n_host_blocks": (42, "u32", False),
        "n_drafts": (43, "u64", False), "n_draft_tokens": (44, "u64", False),
        "n_accepted_tokens": (45, "u64", False), "accepted_at": (46, "u64[]", False),
        "draft_method": (47, "text", False), "draft_us": (48, "u64", False),
        "n_kept": (49, "u32", False), "n_kept_blocks": (50, "u32", False), "kept_bytes": (51, "u64", False),
        "rank_waits": (52, "u64[]", False), "n_masks": (53, "u64", False),
        "n_forced_tokens": (54, "u64", False), "mask_us": (55, "u64", False),
        "mask_wait_us": (56, "u64", False), "expert_imbalance": (57, "f64", False),
        "expert_tokens": (58, "u64[]", False), "n_cost_changes": (59, "u64", False),
        "attention_window": (60, "u32", False), "attention_sinks": (61, "u32", False),
    },
    ERROR: {"status": (1, "u32", False), "message": (2, "text", False)},
    ACCEPT: {"id": (1, "u64", False)}, DRAIN: {}, VECTOR: {"values": (1, "f32[]", True)},
}
SCALARS = {"u32": "<I", "i32": "<i", "u64": "<Q", "f32": "<f", "f64": "<d", "bool": "<?"}
TENANT, BUCKET, STEP = "<5Q2I", "<3Q", "<2Q"


class ProtocolError(Exception):
    pass


def encode_records(records):
    out = b""
    for r in records:
        top = r.get("top", [])
        has_logprob = "logprob" in r
        out += struct.pack("<HBBI", r.get("choice", 0), has_logprob, len(top), r["token"])
        if has_logprob:
            out += struct.pack("<fI", r["logprob"], r["rank"])
        for token, logprob in top:
            out += struct.pack("<If", token, logprob)
    return out


def decode_records(value):
    records, at = [], 0
    while at < len(value):
        choice, flags, n_top, token = struct.unpack_from("<HBBI", value, at)
        at += 8
        record = {"choice": choice, "token": token}
        if flags > 1 or n_top > 20 or (n_top and not flags):
            raise ProtocolError("records: flags %d, %d top entries" % (flags, n_top))
        if flags:
            record["logprob"], record["rank"] = struct.unpack_from("<fI", value, at)
            at += 8
            record["top"] = [struct.unpack_from("<If", value, at + 8 * i) for i in range(n_top)]
            at += 8 * n_top
        records.append(record)
    return records


def encode_value(kind, value):
    if kind in SCALARS:
        return struct.pack(SCALARS[kind], value)
    if kind == "text":
        return value.encode()
    if kind == "f32[]":
        return struct.pack("<%df" % len(value), *value)
    if kind == "u32[]":
        return struct.pack("<%dI" % len(value), *value)
    if kind == "u64[]":
        return struct.pack("<%dQ" % len(value), *value)
    if kind == "pair[]":
        return b"".join(struct.pack("<If", *pair) for pair in value)
    if kind == "records":
        return encode_records(value)
    if kind == "buckets":
        return b"".join(struct.pack(BUCKET, *bucket) for bucket in value)
    if kind == "steps":
        return b"".join(struct.pack(STEP, *step) for step in value)
    if kind == "tenants":
        return b"".join(struct.pack(TENANT, *tenant) for tenant in value)
    return bytes(value)


def decode_value(kind, value):
    if kind in SCALARS:
        return struct.unpack(SCALARS[kind], value)[0]
    if kind == "text":
        return value.decode()
    if kind == "f32[]":
        return list(struct.unpack("<%df" % (len(value) // 4), value))
    if kind == "u32[]":
        return list(struct.unpack("<%dI" % (len(value) // 4), value))
    if kind == "u64[]":
        return list(struct.unpack("<%dQ" % (len(value) // 8), value))
    if kind == "pair[]":
        return [struct.unpack_from("<If", value, at) for at in range(0, len(value), 8)]
    if kind == "records":
        return decode_records(value)
    if kind == "buckets":
        return list(struct.iter_unpack(BUCKET, value))
    if kind == "steps":
        return list(struct.iter_unpack(STEP, value))
    if kind == "tenants":
        return list(struct.iter_unpack(TENANT, value))
    return value


def field(tag, value, must=False):
    return struct.pack("<HHI", tag | (MUST if must else 0), 0, len(value)) + value


def encode(type_, request=0, extra=b"", **values):
    """A whole frame. `extra`: encoded fields to append to the body."""
    body = b""
    for name, (tag, kind, must) in FIELDS[type_].items():
        if name in values:
            body += field(tag, encode_value(kind, values.pop(name)), must)
    assert not values, values
    body += extra
    return struct.pack("<IHHQ", len(body), type_, 0, request) + body


def decode_body(type_, body):
    known = {tag: (name, kind) for name, (tag, kind, _) in FIELDS[type_].items()}
    values, at = {}, 0
    while at < len(body):
        tag, zero, n = struct.unpack_from("<HHI", body, at)
        value = body[at + 8:at + 8 + n]
        at += 8 + n
        if zero or len(value) != n:
            raise ProtocolError("the framing of a body is wrong")
        if tag & ~MUST not in known:
            if tag & MUST:
                raise ProtocolError("field %d must be understood" % (tag & ~MUST))
            continue
        name, kind = known[tag & ~MUST]
        if name in values:
            raise ProtocolError("field %s is there twice" % name)
        values[name] = decode_value(kind, value)
    return values


class Frame:
    def __init__(self, type_, request, values, n_bytes):
        self.type, self.request, self.values, self.n_bytes = type_, request, values, n_bytes

    def __getitem__(self, name):
        return self.values[name]

    def get(self, name, default=None):
        return self.values.get(name, default)


def read_key(path):
    with open(path, "rb") as f:
        return hashlib.blake2b(f.read().rstrip(b" \t\r\n"), digest_size=32).digest()


def prove(key, label, engine_nonce, client_nonce):
    return hashlib.blake2b(label + engine_nonce + client_nonce, key=key, digest_size=32).digest()


class Connection:
    """Bytes and frames; no handshake."""

    def __init__(self, address, timeout=60):
        scheme, rest = address.split(":", 1)
        if scheme == "unix":
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(timeout)
            self.socket.connect(rest)
        else:
            host, port = rest.rsplit(":", 1)
            self.socket = socket.create_connection((host.strip("[]"), int(port)), timeout)
        self.buffer = b""

    def send(self, frame):
        self.socket.sendall(frame)

    def _read(self, n):
        while len(self.buffer) < n:
            data = self.socket.recv(1 << 16)
            if not data:
                if self.buffer:
                    raise ProtocolError("the stream ends within a frame")
                return None
            self.buffer += data
        data, self.buffer = self.buffer[:n], self.buffer[n:]
        return data

    def next(self):
        """The next frame; None at the end of the stream."""
        header = self._read(16)
        if header is None:
            return None
        n, type_, flags, request = struct.unpack("<IHHQ", header)
        if flags or type_ not in FIELDS or n > 65536 - 16:
            raise ProtocolError("a bad header")
        body = self._read(n) if n else b""
        return Frame(type_, request, decode_body(type_, body), 16 + n)

    def close(self):
        self.socket.close()


class Client(Connection):
    def __init__(self, address, identity_text, identity_config, key=None, credit=1 << 20,
                 grant=True):
        super().__init__(address)
        self.credit, self.grant, self.taken = credit, grant, 0
        greeting = self.expect(HELLO)
        if greeting["version"] != 1:
            raise ProtocolError("the engine speaks version %d" % greeting["version"])
        nonce = greeting.get("nonce")
        if (nonce is None) != (key is None):
            raise ProtocolError("a key on one side only")
        ours = dict(version=1, identity_text=identity_text, identity_config=identity_config,
                    initial_credit=credit)
        if key:
            own = os.urandom(32)
            ours.update(nonce=own, key_proof=prove(key, b"quire front  v1\n", nonce, own))
        self.send(encode(HELLO, **ours))
        self.engine = self.expect(HELLO)
        if key and self.engine.get("key_proof") != prove(key, b"quire engine v1\n", nonce, own):
            raise ProtocolError("the engine does not know the key")

    def expect(self, type_):
        frame = self.next()
        if frame is None:
            raise ProtocolError("the engine closed the connection")
        if frame.type == ERROR:
            raise ProtocolError("%d: %s" % (frame["status"], frame.get("message", "")))
        if frame.type != type_:
            raise ProtocolError("frame type %d instead of %d" % (frame.type, type_))
        return frame

    def frames(self):
        """Frames until the end of the stream; grants credit for the bytes read."""
        while True:
            frame = self.next()
            if frame is None:
                return
            self.taken += frame.n_bytes
            if self.grant and self.taken >= self.credit // 4:
                self.send(encode(CREDIT, bytes=self.taken))
                self.taken = 0
            yield frame

    def submit(self, request, **parameters):
        self.send(encode(SUBMIT, request, **parameters))

    def cancel(self, request, choice=None):
        self.send(encode(CANCEL, request, **({} if choice is None else {"choice": choice})))
