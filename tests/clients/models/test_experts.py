"""Mixtures of experts: what inspect tells, experts in one tensor, and files and options that are refused by one line."""

import json
import re
import urllib.request

from conftest import MODEL as DEMO
from conftest import ROOT
from test_commands import quire
from test_unused import changed, inspected, tensors_of, write

MODEL = ROOT / "tests" / "goldens" / "models" / "qwen3_moe"
PART = "model.layers.1.mlp.experts."


def joined(tensors, part):
    """The tensors with one matrix of all experts of layer 1 in one tensor, and without those of one each."""
    names = [f"{PART}{e}.{part}.weight" for e in range(18)]
    dtype, shape, _ = tensors[names[0]]
    all_of = (dtype, [18, *shape], b"".join(tensors[name][2] for name in names))
    return {name: t for name, t in tensors.items() if name not in names} | {f"{PART}{part}.weight": all_of}


def refused(copy, *words, command="inspect", options=()):
    must_say(quire(command, copy, *options), *words)


def not_opened(copy, *words):
    must_say(quire("bench", "latency", copy, "--batch-size", "1", "--input-len", "4", "--output-len", "2"), *words)


def must_say(got, *words):
    assert got.returncode == 1 and got.stderr.count("\n") == 1 and all(w in got.stderr for w in words), got.stderr


def test_parameters_that_a_token_uses():
    _, about, _ = inspected(MODEL)
    expert = 3 * 96 * 22
    assert about["parameters"] - about["active_parameters"] == 2 * (18 - 4) * expert
    _, biased, _ = inspected(GPT_OSS)
    assert biased["parameters"] - biased["active_parameters"] == 3 * (7 - 3) * (3 * 96 * 26 + 2 * 26 + 96)


def test_bytes_that_a_token_reads():
    """Of the embeddings, which are not the head, one row of 320; KV of all tokens, in windows of as many as they have."""
    _, about, _ = inspected(MODEL)
    vectors = about["vector_parameters"]
    read = about["token_weight_bytes"]
    assert read == 2 * (about["active_parameters"] - vectors - 319 * 96) + 4 * vectors
    plan = planned(MODEL)
    for field in "parameters", "active_parameters", "token_weight_bytes", "token_kv_bytes":
        assert plan[field] == about[field], field
    assert about["token_kv_bytes"] == about["kv_bytes_per_token"] * about["max_model_len"]
    _, about, _ = inspected(GPT_OSS)
    assert [g["window"] for g in about["kv_groups"]] == [24, 0]
    assert [g["read_bytes"] for g in about["kv_groups"]] == [24 * 512, 256 * 256]
    plan = planned(GPT_OSS)
    assert [(g["request_bytes"], g["read_bytes"]) for g in plan["kv_groups"]] == [
        (g["request_bytes"], g["read_bytes"]) for g in about["kv_groups"]]
    assert "of which a token uses" in quire("plan", MODEL).stdout and "a token reads" in quire("inspect", MODEL).stdout


def test_experts_in_one_tensor_or_in_one_each(tmp_path):
    copy = changed(tmp_path, MODEL)
    write(copy / "model.safetensors", joined(tensors_of(MODEL / "model.safetensors"), "up_proj"))
    assert inspected(copy)[1]["parameters"] == inspected(MODEL)[1]["parameters"]


def test_experts_that_do_not_add_up(tmp_path):
    tensors = tensors_of(MODEL / "model.safetensors")
    copy = changed(tmp_path, MODEL, num_experts=19)
    refused(copy, "experts.18.")
    refused(changed(tmp_path, MODEL, num_experts=17), "mlp.gate.weight", "expected [17, 96]")
    copy = changed(tmp_path, MODEL)
    name = f"{PART}7.down_proj.weight"
    write(copy / "model.safetensors", {n: t for n, t in tensors.items() if n != name})
    refused(copy, name)
    write(copy / "model.safetensors", tensors | joined(tensors, "up_proj"))
    refused(copy, "model.safetensors", f"{PART}up_proj.weight", "a second time")
    name = "model.layers.1.mlp.gate.weight"
    dtype, _, data = tensors[name]
    for n in 17, 19:
        write(copy / "model.safetensors", tensors | {name: (dtype, [n, 96], (data + data)[:n * 96 * 2])})
        refused(copy, "model.safetensors", name, "expected [18, 96]", f"got [{n}, 96]")
    write(copy / "model.safetensors", {n: t for n, t in tensors.items() if n != name})
    refused(copy, "model.safetensors", name, "missing")
    write(copy / "model.safetensors", tensors | {f"{PART}3.up_proj.weight": ("BF16", [1 << 32, 1 << 32, 2], b"")})
    refused(copy, "model.safetensors", f"{PART}3.up_proj.weight", "shape: the product overflows")
    refused(changed(tmp_path, MODEL, num_experts_per_tok=19), "num_experts_per_tok: is 19, but there are 18 experts")


def test_fields_of_experts_that_do_not_add_up(tmp_path):
    for field, value, words in [
            ("num_experts_per_tok", 0, "must be between 1"), ("num_experts_per_tok", -1, "must be between 1"),
            ("num_experts", 0, "must be between 1"), ("num_experts", 1 << 40, "must be between 1"),
            ("moe_intermediate_size", 1 << 31, "must be between 1"), ("hidden_size", 1 << 62, "must be between 1"),
            ("mlp_only_layers", [7], "the 3 layers"), ("decoder_sparse_step", 0, "must be between 1")]:
        refused(changed(tmp_path, MODEL, **{field: value}), f"config.json: {field}: ", words)
    for types, words in [(["full_attention"], "has 1 entries, but num_hidden_layers is 3"), ("full_attention", "an array"),
                         (["full_attention", "linear_attention", "full_attention"], "'linear_attention'")]:
        refused(changed(tmp_path, GPT_OSS, layer_types=types), "config.json: layer_types: ", words)
    refused(changed(tmp_path, GLM4, n_group=4), "config.json: n_group: ")
    refused(changed(tmp_path, GLM4, topk_group=9), "config.json: topk_group: ")


def test_an_expert_twice_in_a_header(tmp_path):
    copy = changed(tmp_path, MODEL)
    path, name = copy / "model.safetensors", f"{PART}3.up_proj.weight"
    raw = path.read_bytes()
    n = int.from_bytes(raw[:8], "little")
    header = raw[8:8 + n].rstrip()
    header = header[:-1] + json.dumps({name: json.loads(header)[name]}).encode().replace(b"{", b", ", 1)
    path.write_bytes(len(header).to_bytes(8, "little") + header + raw[8 + n:])
    refused(copy, "model.safetensors: header: ", name)


def test_a_router_without_numbers(tmp_path):
    """NaN or infinity instead of a score: the request ends with an error, whatever experts were chosen."""
    name = "model.layers.1.mlp.gate.weight"
    dtype, shape, data = tensors_of(MODEL / "model.safetensors")[name]
    for number in b"\xc0\x7f", b"\x80\x7f":
        copy = changed(tmp_path, MODEL, {name: (dtype, shape, number * (len(data) // 2))})
        got = quire("bench", "latency", copy, "--batch-size", "1", "--input-len", "4", "--output-len", "2")
        assert got.returncode == 1 and "logits at position 3 are unusable" in got.stderr, got.stderr


GLM4 = ROOT / "tests" / "goldens" / "models" / "glm4_moe"
GPT_OSS = ROOT / "tests" / "goldens" / "models" / "gpt_oss"
GRANITE = ROOT / "tests" / "goldens" / "models" / "granite_moe"


def reshaped(tensors, name, shape):
    dtype, _, data = tensors[name]
    return {name: (dtype, shape, data)}


def without(tmp_path, model, name):
    copy = changed(tmp_path, model)
    write(copy / "model.safetensors", {n: t for n, t in tensors_of(model / "model.safetensors").items() if n != name})
    return copy


def test_parts_that_gpt_oss_lacks(tmp_path):
    for name in ("self_attn.sinks", "mlp.experts.gate_up_proj_bias", "mlp.experts.down_proj", "mlp.router.bias"):
        copy = without(tmp_path, GPT_OSS, f"model.layers.1.{name}")
        not_opened(copy, f"model.layers.1.{name}")


def test_memory_of_experts_that_are_quantized():
    """Put in order and quantized they take room once; down's rows of 26 columns stay as they are."""
    got = quire("plan", GPT_OSS, "--quantization", "int8", "--json")
    experts = 7 * (2 * 2688 + 96 * 26 * 2)  # rows of gate, and of up, on 64 bytes
    attention = (192 + 2 * 64) * 102 + 96 * 204
    assert json.loads(got.stdout)["regrouped_bytes"] == 3 * (experts + attention) + 320 * 102, got.stdout


def test_shapes_of_all_experts(tmp_path):
    tensors = tensors_of(GPT_OSS / "model.safetensors")
    name = "model.layers.0.mlp.experts.gate_up_proj"
    refused(changed(tmp_path, GPT_OSS, reshaped(tensors, name, [7, 52, 96])), name, "expected [7, 96, 52]",
            "got [7, 52, 96]")
    name = "model.layers.0.mlp.experts.gate_up_proj_bias"
    not_opened(changed(tmp_path, GPT_OSS, reshaped(tensors, name, [52, 7])), name, "expected [7, 52]")
    refused(changed(tmp_path, GPT_OSS, num_local_experts=8), "expected [8, 96, 52]", "got [7, 96, 52]")
    tensors = tensors_of(GRANITE / "model.safetensors")
    name = "model.layers.0.block_sparse_moe.input_linear.weight"
    refused(changed(tmp_path, GRANITE, reshaped(tensors, name, [11, 96, 68])), name, "expected [11, 68, 96]")


MXFP4 = ROOT / "tests" / "goldens" / "quantized" / "mxfp4"
STACK = "model.layers.0.mlp.experts.gate_up_proj"


def test_mxfp4_that_does_not_add_up(tmp_path):
    tensors = tensors_of(MXFP4 / "model.safetensors")
    blocks, scales = tensors[f"{STACK}_blocks"], tensors[f"{STACK}_scales"]
    refused(changed(tmp_path, MXFP4, {f"{STACK}_blocks": ("U8", [5, 64, 48], blocks[2])}), f"{STACK}_blocks",
            "must be [5, 64, 3, 16]")
    refused(changed(tmp_path, MXFP4, {f"{STACK}_scales": ("I8", *scales[1:])}), f"{STACK}_scales", "needs U8")
    refused(without(tmp_path, MXFP4, f"{STACK}_scales"), f"{STACK}_scales")
    refused(without(tmp_path, MXFP4, f"{STACK}_blocks"), STACK)
    refused(changed(tmp_path, MXFP4, {STACK: ("BF16", [5, 96, 64], bytes(5 * 96 * 64 * 2))}), STACK, "in addition")
    refused(changed(tmp_path, MXFP4, quantization_config=None), f"{STACK}_blocks", "quantization_config is missing")
    refused(changed(tmp_path, MXFP4, num_local_experts=6), "must be [6, 64, 3, 16]")
    wider = {f"{STACK}_blocks": ("U8", [5, 96, 3, 16], bytes(5 * 96 * 48)), f"{STACK}_scales": ("U8", [5, 96, 3], bytes(1440)),
             f"{STACK}_bias": ("BF16", [5, 96], bytes(2 * 5 * 96))}
    refused(changed(tmp_path, MXFP4, wider, intermediate_size=48), "rows of 48 columns are not whole groups of 32")
    bad = scales[2][:100] + b"\xff" + scales[2][101:]
    not_opened(changed(tmp_path, MXFP4, {f"{STACK}_scales": (*scales[:2], bad)}), f"{STACK}_scales", "element 100 is 255")


def planned(model, *options):
    got = quire("plan", model, "--json", "--threads", "1", *options)
    assert got.returncode == 0, got.stderr
    return json.loads(got.stdout)


def test_ranks_hold_parts_of_experts_or_whole_ones():
    """Two layers of 18 experts of 22 inner columns, and one MLP of 118: the first rank has 16 of 22 and 64 of 118; BF16."""
    one, columns, whole = (planned(MODEL, *options) for options in (
        (), ("-tp", "2"), ("-tp", "2", "--enable-expert-parallel")))
    assert len(planned(MODEL, "--pipeline-parallel-size", "2")["ranks"]) == 2
    per_column = 3 * 96 * 2
    first, second = (r["weight_bytes"] for r in columns["ranks"])
    even, also = (r["weight_bytes"] for r in whole["ranks"])
    assert even - also == (64 - 54) * per_column
    assert first - even == 2 * 18 * (16 - 11) * per_column and second - also == 2 * 18 * (6 - 11) * per_column
    alone = planned(MODEL, "--enable-expert-parallel")
    assert alone["weight_bytes"] == one["weight_bytes"] and alone["total_bytes"] == one["total_bytes"]


def test_devices_and_ranks_without_experts(tmp_path):
    experts = 2 * 5 * 3 * 96 * 32  # of 4 bits and a scale in 32, where all of the file's other matrices have 16
    others = 2 * (256 + 128) * 96 + 2 * 96 * 96
    on_gpu = planned(MXFP4, "--device", "h100")["weight_bytes"]
    assert others * 2 + experts // 2 < on_gpu < others * 2 + experts * 2, on_gpu
    refused(ROOT / "tests" / "goldens" / "models" / "qwen3", "--enable-expert-parallel", "not a mixture", command="plan",
            options=("--enable-expert-parallel",))
    few = changed(tmp_path, MODEL, num_experts=1, num_experts_per_tok=1)
    tensors = tensors_of(MODEL / "model.safetensors")
    gates = {n: (d, [1, 96], raw[:192]) for n, (d, _, raw) in tensors.items() if n.endswith("mlp.gate.weight")}
    write(few / "model.safetensors", {n: t for n, t in (tensors | gates).items() if "experts." not in n or ".experts.0." in n})
    refused(few, "num_experts 1", "ranks: 1", command="plan", options=("-tp", "2", "--enable-expert-parallel"))


def demo_of_experts(tmp_path):
    """The demo model with its MLP as each of four experts. Routers of zeros choose the first two, with equal weights."""
    tensors, layers = tensors_of(DEMO / "model.safetensors"), range(4)
    for layer in layers:
        mlp = f"model.layers.{layer}.mlp."
        for part in ("gate_proj", "up_proj", "down_proj"):
            dtype, shape, data = tensors.pop(f"{mlp}{part}.weight")
            for e in range(4):
                tensors[f"{mlp}experts.{e}.{part}.weight"] = (dtype, shape, data)
            tensors[f"{mlp}shared_expert.{part}.weight"] = (dtype, shape, bytes(len(data)))
        tensors[f"{mlp}gate.weight"] = ("F16", [4, 256], bytes(2 * 4 * 256))
        tensors[f"{mlp}shared_expert_gate.weight"] = ("F16", [1, 256], bytes(2 * 256))
    copy = changed(tmp_path, DEMO, architectures=["Qwen2MoeForCausalLM"], model_type="qwen2_moe", num_experts=4,
                   num_experts_per_tok=2, moe_intermediate_size=640, shared_expert_intermediate_size=640, norm_topk_prob=True)
    write(copy / "model.safetensors", tensors)
    return copy


def test_the_load_of_experts_in_metrics(tmp_path, start):
    model, texts = demo_of_experts(tmp_path), set()
    for options in (), ("-tp", "2"), ("-tp", "2", "--enable-expert-parallel"), ("-pp", "2"):
        server = start("serve", model, "--port", "0", "--served-model-name", "demo", "--device", "cpu", "--threads", "1", *options)
        got = server.client().completions.create(model="demo", prompt="Once upon a time", max_tokens=40, temperature=0, logprobs=3)
        texts.add((got.choices[0].text, got.choices[0].logprobs.model_dump_json()))
        text = urllib.request.urlopen(server.url + "/metrics").read().decode()
        load = {int(e): float(n) for e, n in re.findall(r'quire:expert_tokens_total\{[^}]*expert="(\d+)"\} ([0-9.e+]+)', text)}
        assert load[0] == load[1] > 0 and load[2] == load[3] == 0 and len(load) == 4, load
        assert re.search(r"quire:expert_imbalance\{[^}]*\} 2\b", text), text
        assert server.stop() == 0
    assert len(texts) == 1
