"""Reads recordings of versions 1 and 2 as docs/reference/recording.md describes them, with only the standard
library. It is independent of the C code."""

import hashlib
import struct

MAGIC = b"QUIREREC"
KINDS = {1: "header", 2: "submit", 3: "cancel", 4: "cancel_choice", 5: "no_more", 6: "plan", 7: "commit", 8: "retired",
         9: "policy", 10: "unpin", 11: "finish", 12: "close", 13: "propose", 14: "gate", 15: "lengths", 16: "served", 17: "cost"}

# The fields of a request (request/rows.h): tag, name, format of one value; * = any number of them.
REQUEST = {1: ("prompt", "I*"), 2: ("max_tokens", "I"), 3: ("n", "I"), 4: ("min_tokens", "I"), 5: ("temperature", "f"), 6: ("top_p", "f"),
           7: ("min_p", "f"), 8: ("top_k", "I"), 9: ("repetition_penalty", "f"), 10: ("presence_penalty", "f"),
           11: ("frequency_penalty", "f"), 12: ("seed", "Q"), 13: ("ignore_eos", "B"), 14: ("n_logprobs", "i"), 15: ("n_prompt_logprobs", "i"),
           16: ("priority", "i"), 17: ("deadline", "Q"), 19: ("stops", "I*"), 20: ("biases", "If*"), 21: ("tenant", "I"), 22: ("class", "I"),
           23: ("background", "B"), 24: ("pin_us", "Q"), 25: ("expected_tokens", "I"), 26: ("allowed", "I*"), 27: ("bad_words", "I*"), 28: ("max_drafts", "I"),
           29: ("draft_method", "I"), 30: ("prediction", "I*"), 36: ("grammar", "B*")}
DEFAULTS = {"n": 1, "temperature": 1, "top_p": 1, "repetition_penalty": 1, "n_logprobs": -1, "n_prompt_logprobs": -1, "max_drafts": 0xffffffff}


class Fields:
    def __init__(self, body):
        self.body, self.at = body, 0

    def take(self, format):
        values = struct.unpack_from("<" + format, self.body, self.at)
        self.at += struct.calcsize("<" + format)
        return values[0] if len(values) == 1 else values

    def many(self, n, format="I"):
        return [self.take(format) for _ in range(n)]

    def text(self):
        n = self.take("I")
        return self.bytes(n).decode()

    def bytes(self, n):
        assert self.at + n <= len(self.body)
        self.at += n
        return self.body[self.at - n:self.at]

    def end(self):
        assert self.at == len(self.body), f"{len(self.body) - self.at} bytes too many"

    def sections(self):
        """The end of a record of version 2: {tag: value}. This reader knows no section."""
        found = {}
        while self.at < len(self.body):
            tag, zero, n = self.take("HHI")
            assert zero == 0 and tag & 0x7fff not in (0, *found), "sections"
            assert not tag & 0x8000, f"section {tag & 0x7fff} must be known"
            found[tag & 0x7fff] = self.bytes(n)
        return found


def sum_of(data, n):
    return hashlib.blake2b(data, digest_size=32, person=b"quire recording ").digest()[:n]


def records(data):
    """(offset, kind, body) of each whole record; the generator returns the bytes after the last one."""
    assert data[:8] == MAGIC
    at = 8
    while len(data) - at >= 12:
        length, kind = struct.unpack_from("<II", data, at)
        assert data[at + 8:at + 12] == sum_of(data[at - 8:at + 8], 4), f"byte {at}: head"
        end = at + 12 + length
        if len(data) < end + 8:
            break
        assert data[end:end + 8] == sum_of(data[at - 8:end], 8), f"byte {at}: sum"
        yield at, KINDS[kind], data[at + 12:end]
        at = end + 8


def policy_options(f):
    o = {"ageing_us": f.take("Q"), "n_tenants": f.take("I")}
    o["weights"] = f.many(f.take("I"))
    o["class_weights"], o["class_ttft_us"] = f.many(8), f.many(8, "Q")
    o["prices"] = f.many(3)
    return o


def header(body):
    f = Fields(body)
    h = {"version": f.take("I"), "law": 1}
    assert h["version"] in (1, 2)
    if h["version"] == 2:
        h["law"], h["identity"] = f.take("I"), f.bytes(32).hex()
    h.update({"began_us": f.take("Q"), "model": f.text(), "config_sha256": f.bytes(32), "device": f.text()})
    form, h["weights"], h["kv"], h["vocab_size"] = f.take("BBBI")
    h["form"], h["not_invariant"] = form & 127, form > 127
    h["block_tokens"], n_groups, h["prefix_caching"], h["eviction"], h["kv_tenants"] = f.take("IIBBI")
    h["groups"] = [f.take("III") for _ in range(n_groups)]
    (h["max_num_seqs"], h["max_num_batched_tokens"], h["max_model_len"], h["max_queued_requests"], h["max_queued_tokens"],
     h["max_logit_rows"], h["overlap_depth"]) = f.take("IIIIQII")
    h["policy"] = f.text()
    h["policy_options"] = policy_options(f)
    h["shape"] = f.take("IIQBBIQBI")
    h["cost_points"] = [f.take("Id") for _ in range(f.take("I"))]
    h["cost"] = f.take("5d")
    h["sections"] = f.sections() if h["version"] > 1 else f.end()
    return h


def taken(f, s, version):
    s["status"], s["retry_us"] = f.take("BQ")
    s["seqs"] = f.many(s["n"]) if s["status"] == 0 else []
    s["sections"] = f.sections() if version > 1 else f.end()
    return s


def submit_1(body):
    f = Fields(body)
    s = {"request": f.take("Q"), "id": f.take("Q")}
    s["prompt"] = f.many(f.take("I"))
    s["max_tokens"], s["n"], s["flags"], s["priority"] = f.take("IIBi")
    s["arrival_us"], s["deadline_us"], s["pin_us"] = f.take("QQQ")
    s["tenant"], s["class"], s["expected_tokens"], s["adapter"] = f.take("IIII")
    s["domain"] = f.bytes(16)
    s["temperature"], s["top_p"], s["min_p"], s["top_k"], *s["penalties"] = f.take("fffIfff")
    s["seed"], s["n_logprobs"], s["n_prompt_logprobs"], s["min_tokens"] = f.take("QiiI")
    s["stops"] = f.many(f.take("I"))
    s["biases"] = [f.take("If") for _ in range(f.take("I"))]
    s["allowed"], s["bad_words"] = (f.many(f.take("I")), f.many(f.take("I"))) if s["flags"] & 16 else ([], [])
    return taken(f, s, 1)


def request_fields(body):
    """{u16 tag, its top bit set if a reader must know it; u16 0; u32 length; value}, repeated."""
    f, r = Fields(body), {name: DEFAULTS.get(name, [] if "*" in format else 0) for name, format in REQUEST.values()}
    while f.at < len(body):
        tag, zero, n = f.take("HHI")
        value = Fields(f.bytes(n))
        assert zero == 0
        if tag & 0x7fff not in REQUEST:
            assert not tag & 0x8000, f"field {tag & 0x7fff} must be known"
            continue
        name, format = REQUEST[tag & 0x7fff]
        one = format.rstrip("*")
        r[name] = value.many(n // struct.calcsize("<" + one), one) if "*" in format else value.take(one)
        value.end()
    return r


def submit_2(body):
    f = Fields(body)
    s = dict(zip(("request", "id", "arrival_us", "deadline_us", "flags", "adapter"), f.take("QQQQBI")))
    s["domain"] = f.bytes(16)
    s.update(request_fields(f.bytes(f.take("I"))))
    return taken(f, s, 2)


def plan(body, version):
    f = Fields(body)
    names = "now_us step n_rows n_tokens budget n_preempted n_admitted n_refused n_moves n_drafts".split()
    p = dict(zip(names, f.take("QQIIIIIII") + ((f.take("I"),) if version > 1 else (0,))))
    p["decisions"] = f.bytes(32).hex()
    f.sections() if version > 1 else f.end()
    return p


def commit(body, version):
    f = Fields(body)
    c = dict(zip(("step", "launched_us", "done_us"), f.take("QQQ")))
    c["results"] = []
    for _ in range(f.take("I")):
        seq, count = f.take("II")
        c["results"].append((seq, f.many((count & 0x7fffffff) + (version > 1)), bool(count >> 31)))
    f.sections() if version > 1 else f.end()
    return c


def finish(body, version):
    f = Fields(body)
    r = {"id": f.take("Q"), "choices": []}
    for _ in range(f.take("I")):
        end, n_tokens, n_prompt_logprobs = f.take("BII")
        r["choices"].append({"finish": end, "n_tokens": n_tokens, "n_prompt_logprobs": n_prompt_logprobs,
                             "digest": f.bytes(32).hex()})
    f.sections() if version > 1 else f.end()
    return r


def cost(body):
    f = Fields(body)
    c = {"now_us": f.take("Q"), "points": [f.take("Id") for _ in range(f.take("I"))], "prices": f.take("5d")}
    f.sections()
    return c


def parse(kind, body, version):
    if kind == "cost":
        return cost(body)
    if kind == "header":
        return header(body)
    if kind == "submit":
        return submit_1(body) if version == 1 else submit_2(body)
    if kind in ("plan", "commit", "finish"):
        return {"plan": plan, "commit": commit, "finish": finish}[kind](body, version)
    return None


class Recording:
    """A whole recording: requests by their ids, each with the tokens and the end of its choices."""

    def __init__(self, data):
        self.kinds, self.requests, self.plans, self.finishes, self.offsets = {}, {}, [], {}, []
        self.costs = []
        owners, self.closed, self.whole = {}, None, 8
        for offset, kind, body in records(data):
            self.kinds[kind] = self.kinds.get(kind, 0) + 1
            self.offsets.append(offset)
            self.whole = offset + 12 + len(body) + 8
            value = parse(kind, body, None if kind == "header" else self.header["version"])
            if kind == "header":
                self.header = value
            elif kind == "submit":
                value["tokens"] = [[] for _ in range(value["n"])]
                self.requests[value["id"]] = value
                owners.update({seq: (value["id"], choice) for choice, seq in enumerate(value["seqs"])})
            elif kind == "plan":
                self.plans.append(value)
            elif kind == "commit":
                for seq, tokens, _ in value["results"]:
                    request, choice = owners[seq]
                    self.requests[request]["tokens"][choice] += tokens
            elif kind == "retired":
                del owners[struct.unpack("<I", body[:4])[0]]
            elif kind == "cost":
                self.costs.append(value)
            elif kind == "finish":
                self.finishes[value["id"]] = value
            elif kind == "close":
                self.closed = body[8:40].hex()
        self.left_out = len(data) - self.whole


def token_digest(n_prompt, tokens):
    """The digest of a choice without logprobs."""
    return hashlib.sha256(b"".join(struct.pack("<IIII", 0, token, n_prompt + i, 0xffffffff)
                                   for i, token in enumerate(tokens))).hexdigest()
