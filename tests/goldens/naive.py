"""The plain forward pass in Quire's dtypes, written from docs/internals/numerics.md and independent of both
transformers' code and kernels/ref: weights as stored and widened, activations in f32, K and V rounded
once to the KV dtype, inverse frequencies made in f64. How far it lies from transformers in fp32 is
what the choice of dtypes costs, and the goldens' tolerance is twice that."""

import json
import math
import pathlib

import torch
from safetensors import safe_open

MASKED = float("-inf")
# A router's logits follow its input, which the rounding of K and V moves by 2^-11 of itself a layer: the logits, a few
# units in size, by about 2^-9. Where the last expert chosen and the first one left out are closer, either may win.
ROUTE_ERROR = 2.0**-9


def read_weights(directory):
    weights = {}
    for path in sorted(pathlib.Path(directory).glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            for name in file.keys():
                weights[name] = file.get_tensor(name)
    return weights


def inverse_frequencies(head_dim, rope):
    """f64 values (a Python list) and the attention factor."""
    theta, kind = rope["rope_theta"], rope["rope_type"]
    base = [theta ** (-(2 * i) / head_dim) for i in range(head_dim // 2)]
    if kind == "default":
        return base, 1.0
    if kind == "dynamic": # of texts of `length` tokens, beyond what the model says, as in transformers
        original = rope["max_position_embeddings"]
        longer = rope["factor"] * max(rope["length"], original) / original - (rope["factor"] - 1)
        theta = theta * longer ** (head_dim / (head_dim - 2))
        return [theta ** (-(2 * i) / head_dim) for i in range(head_dim // 2)], 1.0
    if kind == "longrope": # the length is what the model is made for, and beyond the original
        is_short = rope.get("length", rope["max_position_embeddings"]) <= rope["original_max_position_embeddings"]
        factor = rope["max_position_embeddings"] / rope["original_max_position_embeddings"]
        scale = math.sqrt(1 + math.log(factor) / math.log(rope["original_max_position_embeddings"]))
        return [f / by for f, by in zip(base, rope["short_factor" if is_short else "long_factor"])], scale
    factor = rope["factor"]
    if kind == "linear":
        return [f / factor for f in base], 1.0
    original = rope["original_max_position_embeddings"]
    if kind == "llama3":
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        out = []
        for f in base:
            rotations = original * f / (2 * math.pi)
            smooth = min(1.0, max(0.0, (rotations - low) / (high - low)))
            out.append((1 - smooth) * f / factor + smooth * f)
        return out, 1.0
    assert kind == "yarn", kind

    def correction(rotations):
        return head_dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    def mscale(m):
        return 1.0 if factor <= 1 else 0.1 * m * math.log(factor) + 1.0

    low = correction(rope.get("beta_fast") or 32)
    high = correction(rope.get("beta_slow") or 1)
    if rope.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    if low == high:
        high += 0.001
    out = []
    for i, f in enumerate(base):
        ramp = min(1.0, max(0.0, (i - low) / (high - low)))
        out.append(f / factor * ramp + f * (1 - ramp))
    attention = rope.get("attention_factor")
    if attention is None:
        both = rope.get("mscale") and rope.get("mscale_all_dim")
        attention = mscale(rope["mscale"]) / mscale(rope["mscale_all_dim"]) if both else mscale(1)
    return out, attention


def rope_fields(config):
    """Both layouts as one flat dict."""
    rope = dict(config.get("rope_scaling") or config.get("rope_parameters") or {})
    rope["rope_type"] = rope.get("rope_type") or rope.get("type") or "default"
    rope["max_position_embeddings"] = config.get("max_position_embeddings")
    if config.get("original_max_position_embeddings"):
        rope["original_max_position_embeddings"] = config["original_max_position_embeddings"]
    rope.setdefault("rope_theta", config.get("rope_theta", 10000.0))
    rope.setdefault("original_max_position_embeddings", config.get("max_position_embeddings"))
    return rope


PATTERNS = {"Olmo3ForCausalLM": 4, "Gemma2ForCausalLM": 2, "Gemma3ForCausalLM": 6, "GptOssForCausalLM": 2}


def ropes(config):
    """Of each layer: its RoPE's fields, or None."""
    n, kind, rope = config["num_hidden_layers"], config["architectures"][0], rope_fields(config)
    if kind == "SmolLM3ForCausalLM":
        return [rope if has else None for has in config["no_rope_layers"]]
    local = {"rope_type": "default", "rope_theta": config.get("rope_local_base_freq", rope["rope_theta"])}
    typed = kind in ("Olmo3ForCausalLM", "Gemma3ForCausalLM")
    return [local if typed and window else rope for window in windows(config)]


def windows(config):
    n, kind = config["num_hidden_layers"], config["architectures"][0]
    if kind in PATTERNS:
        pattern, types = config.get("sliding_window_pattern", PATTERNS[kind]), config.get("layer_types")
        return [config["sliding_window"] if (types[i] == "sliding_attention" if types else (i + 1) % pattern) else 0
                for i in range(n)]
    if kind in ("MistralForCausalLM", "Phi3ForCausalLM"):
        return [config["sliding_window"] or 0] * n
    if kind.startswith("Qwen") and config.get("use_sliding_window"):
        first = config["max_window_layers"]
        return [config["sliding_window"] if i >= first else 0 for i in range(n)]
    return [0] * n


class Model:
    def __init__(self, directory):
        self.config = json.loads((pathlib.Path(directory) / "config.json").read_text())
        self.weights = read_weights(directory)
        self.n_q = self.config["num_attention_heads"]
        self.n_kv = self.config.get("num_key_value_heads") or self.n_q
        self.head_dim = self.config.get("head_dim") or self.config["hidden_size"] // self.n_q
        kind = self.config["architectures"][0]
        self.norms_follow = kind in ("Olmo2ForCausalLM", "Olmo3ForCausalLM")
        self.norms_all_heads = self.norms_follow or kind == "OlmoeForCausalLM"
        self.route_margins, self.route_error = [], ROUTE_ERROR
        self.streaming = None  # or the number of attention sinks, and the window behind them
        self.gemma = kind.startswith("Gemma")
        self.norms_around = kind in ("Gemma2ForCausalLM", "Gemma3ForCausalLM")
        if self.norms_around:
            self.scale = 1 / math.sqrt(self.config["query_pre_attn_scalar"])
        else:
            self.scale = self.config.get("attention_multiplier") or 1 / math.sqrt(self.head_dim)
        self.split()
        stored = self.weights["model.embed_tokens.weight"].dtype
        self.kv_dtype = torch.float32 if stored == torch.float32 else torch.float16

    def split(self):
        """Fused matrices as the single ones, and experts' of one tensor as those of one each."""
        def put(prefix, e, **parts):
            self.weights.update({f"{prefix}experts.{e}.{part}": matrix for part, matrix in parts.items()})

        for name in list(self.weights):
            layer = name.partition("mlp.experts.")[0] + "mlp."
            if name.endswith("mlp.experts.gate_up_proj"): # [experts, inputs, gate 0, up 0, gate 1, ...]
                bias = self.weights.pop(name + "_bias")
                for e, matrix in enumerate(self.weights.pop(name)):
                    put(layer, e, **{"gate_proj.weight": matrix[:, ::2].T, "gate_proj.bias": bias[e, ::2],
                                     "up_proj.weight": matrix[:, 1::2].T, "up_proj.bias": bias[e, 1::2]})
            elif name.endswith("mlp.experts.down_proj"):
                bias = self.weights.pop(name + "_bias")
                for e, matrix in enumerate(self.weights.pop(name)):
                    put(layer, e, **{"down_proj.weight": matrix.T, "down_proj.bias": bias[e]})
            elif name.endswith("mlp.router.weight"):
                self.weights[name.replace("router", "gate")] = self.weights.pop(name)
                bias = name.replace("weight", "bias")
                self.weights[bias.replace("router", "gate")] = self.weights.pop(bias)
            elif "block_sparse_moe." in name and "linear" in name:
                layer = name.partition("block_sparse_moe.")[0] + "mlp."
                for e, matrix in enumerate(self.weights.pop(name)):
                    if name.endswith("output_linear.weight"):
                        put(layer, e, **{"down_proj.weight": matrix})
                    else:
                        gate, up = matrix.chunk(2)
                        put(layer, e, **{"gate_proj.weight": gate, "up_proj.weight": up})
            elif name.endswith("block_sparse_moe.router.layer.weight"):
                self.weights[name.replace("block_sparse_moe.router.layer", "mlp.gate")] = self.weights.pop(name)
            elif "shared_mlp." in name:
                prefix = name.partition("shared_mlp.")[0] + "mlp.shared_experts."
                matrix = self.weights.pop(name)
                parts = [("down_proj", matrix)] if "output" in name else zip(("gate_proj", "up_proj"), matrix.chunk(2))
                self.weights.update({f"{prefix}{part}.weight": rows for part, rows in parts})
        q, kv = self.n_q * self.head_dim, self.n_kv * self.head_dim
        for name in list(self.weights):
            if name.endswith("qkv_proj.weight"):
                prefix = name.removesuffix("qkv_proj.weight")
                for part, rows in zip("qkv", self.weights.pop(name).split((q, kv, kv))):
                    self.weights[f"{prefix}{part}_proj.weight"] = rows
            elif name.endswith("gate_up_proj.weight"):
                prefix = name.removesuffix("gate_up_proj.weight")
                for part, rows in zip(("gate", "up"), self.weights.pop(name).chunk(2)):
                    self.weights[f"{prefix}{part}_proj.weight"] = rows

    def weight(self, name):
        return self.weights[name].to(self.dtype)

    def linear(self, x, name):
        y = x @ self.weight(name + ".weight").T
        return y + self.weight(name + ".bias") if name + ".bias" in self.weights else y

    def norm(self, x, name):
        rs = 1.0 / torch.sqrt(x.square().mean(-1, keepdim=True) + self.config["rms_norm_eps"])
        return x * rs * (self.weight(name) + 1 if self.gemma else self.weight(name))

    def angles(self, n, rope):
        if rope is None:
            rope = {"rope_type": "linear", "rope_theta": 1.0, "factor": math.inf}
        turned = int(self.head_dim * self.config.get("partial_rotary_factor", 1.0))
        frequencies, factor = inverse_frequencies(turned, rope)
        frequencies = torch.tensor(frequencies, dtype=torch.float64).to(torch.float32)
        exact = torch.float64 if self.streaming else torch.float32
        angle = torch.arange(n, dtype=exact)[:, None] * frequencies.to(exact)
        return [(f(angle.double()).to(self.dtype) * factor)[:, None, :] for f in (torch.cos, torch.sin)]

    @staticmethod
    def rotate(x, cos, sin):
        a, b, rest = x.split((cos.shape[-1], cos.shape[-1], x.shape[-1] - 2 * cos.shape[-1]), dim=-1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin, rest), dim=-1)

    @staticmethod
    def capped(x, cap):
        return torch.tanh(x / cap) * cap if cap else x

    def attention(self, x, prefix, window, cos, sin, kv_dtype):
        n, d = x.shape[0], self.head_dim
        q, k = self.linear(x, prefix + "q_proj"), self.linear(x, prefix + "k_proj")
        if self.norms_all_heads:
            q = self.norm(q, prefix + "q_norm.weight")
            k = self.norm(k, prefix + "k_norm.weight")
        q, k = q.view(n, self.n_q, d), k.view(n, self.n_kv, d)
        v = self.linear(x, prefix + "v_proj").view(n, self.n_kv, d)
        if prefix + "q_norm.weight" in self.weights and not self.norms_all_heads:
            q = self.norm(q, prefix + "q_norm.weight")
            k = self.norm(k, prefix + "k_norm.weight")
        unrotated, q, k = q, self.rotate(q, cos, sin), self.rotate(k, cos, sin)
        k, v = k.to(kv_dtype).to(self.dtype), v.to(kv_dtype).to(self.dtype)
        p, j = torch.arange(n)[:, None], torch.arange(n)[None, :]
        readable = j <= p
        if window:
            readable &= j > p - window
        streaming = None if window else self.streaming
        if streaming:
            n_sinks, width = streaming
            readable &= (j < n_sinks) | (j > p - width)
            at = torch.arange(n).clamp(max=n_sinks + width - 1)
            second = self.rotate(unrotated, cos[at], sin[at])
        out = torch.empty_like(q)
        for h in range(self.n_q):
            g = h // (self.n_q // self.n_kv)
            scores = (q[:, h] @ k[:, g].T) * self.scale
            if streaming:
                scores = torch.where(j < n_sinks, (second[:, h] @ k[:, g].T) * self.scale, scores)
            scores = self.capped(scores, self.config.get("attn_logit_softcapping"))
            scores = scores.masked_fill(~readable, MASKED)
            if prefix + "sinks" in self.weights: # a logit without a value
                sink = self.weight(prefix + "sinks")[h].expand(n, 1)
                out[:, h] = torch.softmax(torch.cat((scores, sink), dim=-1), dim=-1)[:, :-1] @ v[:, g]
            else:
                out[:, h] = torch.softmax(scores, dim=-1) @ v[:, g]
        return self.linear(out.reshape(n, -1), prefix + "o_proj")

    def mlp(self, x, prefix, names=("gate_proj", "up_proj", "down_proj")):
        gate, up = self.linear(x, prefix + names[0]), self.linear(x, prefix + names[1])
        limit = self.config.get("swiglu_limit")
        if limit:
            gate, up = gate.clamp(max=limit), up.clamp(min=-limit, max=limit)
            return self.linear(gate * torch.sigmoid(1.702 * gate) * (up + 1), prefix + names[2])
        gate = (torch.nn.functional.gelu(gate, approximate="tanh") if self.gemma else
                torch.nn.functional.silu(gate))
        return self.linear(gate * up, prefix + names[2])

    def route(self, logits, prefix):
        """docs/internals/numerics.md §20: of one token, its experts in rising number and their weights."""
        config, kind = self.config, self.config["architectures"][0]
        n_used, n = config["num_experts_per_tok"], logits.shape[0]
        if kind == "Glm4MoeForCausalLM":
            scores = torch.sigmoid(logits)
            by = scores + self.weight(prefix + "gate.e_score_correction_bias")
        elif kind == "GptOssForCausalLM" or kind.startswith("GraniteMoe"):
            by = scores = logits
        else:
            by = scores = torch.softmax(logits, dim=-1)
        allowed = self.route_groups(by) if kind == "Glm4MoeForCausalLM" else range(n)
        order = sorted(allowed, key=lambda e: (-by[e].item(), e))
        chosen = sorted(order[:n_used])
        if len(order) > n_used:
            a, b = by[order[n_used - 1]], by[order[n_used]]
            self.route_margins.append((a - b if by is scores and scores is logits or kind == "Glm4MoeForCausalLM"
                                       else a.log() - b.log()).item())
        w = scores[chosen]
        if scores is logits:
            w = torch.softmax(w, dim=-1)
        elif config.get("norm_topk_prob") or kind == "MixtralForCausalLM":
            w = w / w.sum()
        return chosen, w * config.get("routed_scaling_factor", 1.0)

    def route_groups(self, by):
        """The experts of the best groups; a group's score is the sum of its best two."""
        size = by.shape[0] // self.config["n_group"]
        scores = by.view(-1, size).topk(2).values.sum(-1).tolist()
        order = sorted(range(len(scores)), key=lambda g: (-scores[g], g))
        kept = order[:self.config["topk_group"]]
        if len(kept) < len(order):
            self.route_margins.append(scores[kept[-1]] - scores[order[len(kept)]])
        return [e for e in range(by.shape[0]) if e // size in kept]

    def experts(self, x, prefix, names):
        """docs/internals/numerics.md §20, a token at a time."""
        logits = self.linear(x, prefix + "gate")
        out = torch.zeros_like(x)
        for t in range(x.shape[0]):
            for e, weight in zip(*self.route(logits[t], prefix)):
                out[t] += weight * self.mlp(x[t], f"{prefix}experts.{e}.", names)
        if prefix + "shared_expert_gate.weight" in self.weights:
            out += torch.sigmoid(self.linear(x, prefix + "shared_expert_gate")) * self.mlp(x, prefix + "shared_expert.")
        elif prefix + "shared_experts.up_proj.weight" in self.weights:
            out += self.mlp(x, prefix + "shared_experts.")
        return out

    def feed_forward(self, x, layer):
        if layer + "block_sparse_moe.gate.weight" in self.weights:
            return self.experts(x, layer + "block_sparse_moe.", ("w1", "w3", "w2"))
        if layer + "mlp.gate.weight" in self.weights:
            return self.experts(x, layer + "mlp.", ("gate_proj", "up_proj", "down_proj"))
        return self.mlp(x, layer + "mlp.")

    def forward(self, ids, dtype, kv_dtype=None):
        """Logits [n, vocab] of every position, in dtype."""
        self.dtype = dtype
        self.route_margins = []
        h = self.weight("model.embed_tokens.weight")[torch.tensor(ids)]
        h = h * (math.sqrt(h.shape[1]) if self.gemma else self.config.get("embedding_multiplier", 1.0))
        residual = self.config.get("residual_multiplier", 1.0)
        for i, (window, rope) in enumerate(zip(windows(self.config), ropes(self.config))):
            cos, sin = self.angles(len(ids), rope)
            layer = f"model.layers.{i}."
            names = ([None, "post_attention_layernorm", None, "post_feedforward_layernorm"]
                     if self.norms_follow else
                     ["input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
                      "post_feedforward_layernorm"] if self.norms_around else
                     ["input_layernorm", None, "post_attention_layernorm", None])
            before, after, before_mlp, after_mlp = [
                (lambda x, name=name: self.norm(x, layer + name + ".weight") if name else x)
                for name in names]
            h = h + residual * after(self.attention(before(h), layer + "self_attn.", window, cos, sin,
                                                    kv_dtype or self.kv_dtype))
            h = h + residual * after_mlp(self.feed_forward(before_mlp(h), layer))
        h = self.norm(h, "model.norm.weight")
        head = "lm_head.weight" if "lm_head.weight" in self.weights else "model.embed_tokens.weight"
        logits = h @ self.weight(head).T / self.config.get("logits_scaling", 1.0)
        return self.capped(logits, self.config.get("final_logit_softcapping"))
