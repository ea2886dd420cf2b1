"""`quire plan` from config.json alone: its arithmetic, and its figures beside those of real processes."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
import rig
from conftest import MODEL, QUIRE, ROOT

sys.path.insert(0, str(ROOT / "tools"))
sys.path.insert(0, str(ROOT / "tests" / "tools"))
import gpu_model  # noqa: E402
from fake_hub import FakeHub, Repo  # noqa: E402

LLAMA_70B = dict(architectures=["LlamaForCausalLM"], model_type="llama", hidden_act="silu", hidden_size=8192, intermediate_size=28672, max_position_embeddings=8192,
                 num_attention_heads=64, num_hidden_layers=80, num_key_value_heads=8, rms_norm_eps=1e-5, rope_theta=500000.0, tie_word_embeddings=False,
                 torch_dtype="bfloat16", vocab_size=128256, bos_token_id=128000, eos_token_id=128001)
DEEPSEEK_V3 = dict(architectures=["DeepseekV3ForCausalLM"], model_type="deepseek_v3", first_k_dense_replace=3, hidden_size=7168, intermediate_size=18432, kv_lora_rank=512,
                   max_position_embeddings=163840, moe_intermediate_size=2048, n_routed_experts=256, n_shared_experts=1, num_attention_heads=128, num_experts_per_tok=8,
                   num_hidden_layers=61, num_key_value_heads=128, q_lora_rank=1536, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, vocab_size=129280)
DEEPSEEK_FP8 = dict(quant_method="fp8", fmt="e4m3", activation_scheme="dynamic", weight_block_size=[128, 128])
GIB = 1 << 30
MODELS = ROOT / "tests" / "goldens" / "models"


def run(*arguments, environment=None):
    return subprocess.run([str(QUIRE), "plan", *map(str, arguments)], capture_output=True, text=True, env=environment)


def plan(*arguments):
    got = run(*arguments, "--json")
    assert got.returncode == 0, got.stderr
    return json.loads(got.stdout)


@pytest.fixture
def write(tmp_path):
    def to(config, **changes):
        (tmp_path / "config.json").write_text(json.dumps({**config, **changes}))
        return tmp_path / "config.json"
    return to


def test_llama_70b_in_int4_at_128000_tokens(write):
    file = write(LLAMA_70B)
    got = plan(file, "--weights", "int4", "--contexts", "128000")
    case, = got["cases"]
    assert case["kv_bytes"] == 2 * 80 * 128000 * 8 * 128 * 2 and round(case["kv_bytes"] / GIB, 1) == 39.1
    assert got["parameters"] == 70_553_706_496 and got["attention"] == "GQA"
    table = run(file.parent, "--weights", "int4", "--contexts", "128000")  # the directory has nothing else
    assert table.returncode == 0 and "39.1 GiB" in table.stdout and "predicted from data sheets" in table.stdout
    assert "made for 8192 positions" in table.stdout
    # For 32 columns of a row, a GPU stores two floats instead of one float16: 51.0 GiB of weights.
    gpus = {g["gpu"]: g for g in case["gpus"]}
    assert gpus["h100"]["as_planned"]["tensor_parallel_size"] == 2 and not gpus["h100"]["fewest"]
    assert gpus["h200"]["as_planned"]["tensor_parallel_size"] == 1
    short, = plan(file, "--weights", "int4", "--contexts", "64000")["cases"]
    h100 = next(g for g in short["gpus"] if g["gpu"] == "h100")
    assert h100["as_planned"]["tensor_parallel_size"] == 2 and h100["fewest"]["kv_cache_dtype"] == "fp8"
    for g in case["gpus"]:
        fit = g["as_planned"] or g["fewest"]
        assert not fit or (fit["used_bytes"] <= fit["budget_bytes"] and fit["kv_tokens"] >= 128000), g


def test_the_servers_options_are_the_defaults(write):
    """--max-model-len and --max-num-seqs are the context and the batch, unless there are lists of them."""
    for config in (LLAMA_70B, DEEPSEEK_V3):
        options = (write(config), "--max-model-len", 4096, "--max-num-seqs", 3)
        for more, wanted in (((), (4096, 3)), (("--contexts", "8k"), (8192, 3)), (("--batches", "5"), (4096, 5))):
            case, = plan(*options, *more)["cases"]
            assert (case["context"], case["batch"]) == wanted


def test_heads_decide_the_cache(write):
    """The seeds' table: 64 query heads of 128, 80 layers."""
    sizes = {}
    for name, heads in ("MHA", 64), ("GQA", 8), ("MQA", 1):
        got = plan(write(LLAMA_70B, num_key_value_heads=heads), "--contexts", "4096", "--batches", "1,4")
        assert got["attention"] == name
        one, four = got["cases"]
        assert four["kv_bytes"] == 4 * one["kv_bytes"]
        sizes[name] = one["kv_bytes"]
    assert sizes["MHA"] == 8 * sizes["GQA"] == 64 * sizes["MQA"] == 2 * 80 * 64 * 128 * 2 * 4096


def test_a_window_bounds_the_cache(write):
    config = {**LLAMA_70B, "architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 4096, "max_position_embeddings": 32768}
    short, long = plan(write(config), "--contexts", "8k,32k")["cases"]
    assert short["kv_bytes"] == long["kv_bytes"] < 2 * 80 * 8 * 128 * 2 * 4096 * 1.2


@pytest.mark.parametrize("name,bits", [("f16", 16), ("bf16", 16), ("f32", 32), ("int8", 8.5), ("fp8", 8 + 32 / 128**2), ("w8a8", 8 + 32 / 8192), ("gptq", 4 + 20 / 128), ("awq", 4 + 20 / 128),
                                       ("gptq-8", 8 + 24 / 128), ("int4", 4.5), ("q8_0", 8.5), ("q6_k", 6.5625)])
def test_formats_count_their_scales(write, name, bits):
    """Layers of one matrix shape: the difference of two depths is exactly that of their layers."""
    layer = 8192 * (8192 * 2 + 8 * 128 * 2) + 3 * 8192 * 8192
    config = {**LLAMA_70B, "intermediate_size": 8192}
    deep, flat = (plan(write(config, num_hidden_layers=n), "--weights", name, "--contexts", "16")["weight_bytes"] for n in (8, 4))
    norms = 2 * 8192 * (4 if name in ("f32", "q8_0", "q6_k") else 2)
    assert deep - flat == pytest.approx(4 * (layer * bits / 8 + norms), rel=1e-9)


@pytest.mark.parametrize("model", [d.name for d in sorted(MODELS.iterdir()) if (d / "model.safetensors").exists()])
def test_config_json_alone_gives_the_plan_of_the_files(model):
    """To the byte, for every architecture."""
    whole = plan(MODELS / model, "--max-model-len", "64", "--num-kv-blocks", "8", "--max-num-seqs", "2")
    alone = plan(MODELS / model, "--contexts", "64", "--batches", "2")
    case, = alone["cases"]
    for key in ("parameters", "active_parameters"):
        assert alone[key] == whole[key], key
    for key in ("weight_bytes", "param_bytes", "activation_bytes", "workspace_bytes", "logits_bytes"):
        assert case[key] == whole[key], key
    assert alone["multimodal"] == whole["multimodal"]


@pytest.mark.parametrize("device", ["h200", "rtx4090"])
@pytest.mark.parametrize("weights", [None, "fp8", "int4-block"])
@pytest.mark.parametrize("model", ["gpt_oss", "mixtral", "qwen3_f16"])
def test_a_device_stores_weights_in_its_own_form(model, weights, device):
    """Each row of a quantized matrix there has its own scales, so the copies exceed the files."""
    flags = ["--device", device, *(["--quantization", weights] if weights else [])]
    whole = run(MODELS / model, "--max-model-len", "64", "--num-kv-blocks", "8", "--max-num-seqs", "2", *flags, "--json")
    if whole.returncode:
        assert weights and model == "gpt_oss", whole.stderr  # is quantized already
        return
    case, = plan(MODELS / model / "config.json", "--contexts", "64", "--batches", "2", *flags)["cases"]
    assert case["weight_bytes"] == json.loads(whole.stdout)["weight_bytes"]


# gguf-q4_0 has two formats, the M mixtures have three and a fourth for rows that are not whole blocks of 256.
@pytest.mark.parametrize("mix", ["q8_0", "q4_0", "q4_k_m", "q5_k_m", "q6_k"])
def test_a_device_stores_each_matrix_in_its_own_format(mix, tmp_path):
    file = tmp_path / "model.gguf"
    made = subprocess.run([QUIRE, "quantize", MODEL, file, "--method", f"gguf-{mix}"], capture_output=True, text=True, timeout=300)
    assert made.returncode == 0, made.stderr
    for device in "h200", "rtx4090":
        whole = plan(file, "--max-model-len", "64", "--num-kv-blocks", "8", "--max-num-seqs", "2", "--device", device)
        case, = plan(MODEL / "config.json", "--weights", mix, "--contexts", "64", "--batches", "2", "--device", device)["cases"]
        assert case["weight_bytes"] == whole["weight_bytes"]


def test_parts_for_images_are_not_counted(tmp_path):
    model = MODELS / "gemma3_vision"
    got = plan(model / "config.json", "--contexts", "64")
    assert got["multimodal"] == "Gemma3ForConditionalGeneration"
    assert "does not load its parts for images" in run(model / "config.json").stdout
    config = json.loads((model / "config.json").read_text())
    config["torch_dtype"], config["text_config"]["dtype"] = "bfloat16", None  # as tools write that have all fields
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert plan(tmp_path / "config.json", "--contexts", "64")["weights"] == "bfloat16"


def deepseek_fp8_bytes():
    """Of each matrix [rows, columns] in e4m3 with a float32 for each block of 128 x 128, the last ones being smaller."""
    mlp = lambda width: [(width, 7168), (width, 7168), (7168, width)]  # noqa: E731
    attention = [(1536, 7168), (128 * 192, 1536), (512 + 64, 7168), (128 * 256, 512), (7168, 128 * 128)]
    matrices = 61 * attention + 3 * mlp(18432) + 58 * (256 + 1) * mlp(2048)
    plain = 2 * 129280 * 7168 + 58 * 256 * 7168 + 61 * (2 * 7168 + 1536 + 512) + 7168  # tables, routers and norms
    return sum(rows * cols + 4 * -(-rows // 128) * -(-cols // 128) for rows, cols in matrices) + 2 * plain


def test_latent_attention_is_a_formula(write):
    file = write(DEEPSEEK_V3)
    got = plan(file, "--contexts", "1000")
    assert got["servable"] is False and got["attention"] == "MLA"
    assert got["kv_token_bytes"] == 61 * (512 + 64) * 2 and got["cases"][0]["kv_bytes"] == 1000 * got["kv_token_bytes"]
    assert got["parameters"] == 671_026_404_352 and got["weight_bytes"] == 2 * got["parameters"]  # of transformers' class
    fp8 = plan(write(DEEPSEEK_V3, quantization_config=DEEPSEEK_FP8))
    assert fp8["weights"] == "fp8" and fp8["weight_bytes"] == deepseek_fp8_bytes() == plan(file, "--weights", "fp8")["weight_bytes"]
    file = write(DEEPSEEK_V3)
    assert "cannot serve" in run(file).stdout
    lacking = run(write({k: v for k, v in DEEPSEEK_V3.items() if k != "v_head_dim"}))
    assert lacking.returncode == 1 and "v_head_dim is missing" in lacking.stderr


def test_a_cost_model_predicts(write, tmp_path):
    cost = tmp_path / "cost" / "cost.json"
    cost.parent.mkdir()
    cost.write_text(json.dumps({"points": [[1, 1000], [1024, 1000]], "context_us": 1}))
    case, = plan(write(LLAMA_70B), "--contexts", "1000", "--batches", "4", "--cost-model", cost)["cases"]
    assert case["predicted"]["token_s"] == pytest.approx((1000 + 4 * 1000) / 1e6, rel=1e-3)
    assert case["predicted"]["tokens_per_s"] == pytest.approx(4 / case["predicted"]["token_s"])


def test_a_name_brings_config_json_alone(tmp_path):
    hub = FakeHub()
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HF_") and "proxy" not in k.lower()}
    environment.update(HF_HOME=str(tmp_path), HF_ENDPOINT=hub.url)
    try:
        hub.repos["org/name"] = Repo({"config.json": json.dumps(LLAMA_70B).encode(), "tokenizer.json": b"{}", "model.safetensors": bytes(1 << 20)})
        got = run("org/name", "--contexts", "8", environment=environment)
        assert got.returncode == 0 and "LlamaForCausalLM" in got.stdout, got.stderr
        assert hub.sent < 1 << 16 and not [r for r in hub.requests if "safetensors" in r.path or "tokenizer" in r.path]
        absent = run("org/other", "--contexts", "8", environment=environment)
        assert absent.returncode == 1 and "org/other" in absent.stderr, absent
    finally:
        hub.close()
    again = run("org/name", "--contexts", "8", environment={**environment, "HF_HUB_OFFLINE": "1"})  # from the cache
    assert again.stdout == got.stdout
    other = run("org/other", "--contexts", "8", environment={**environment, "HF_HUB_OFFLINE": "1"})
    assert other.returncode == 1 and "HF_HUB_OFFLINE" in other.stderr


def test_wrong_input_is_refused(write, tmp_path):
    file = write(LLAMA_70B)
    for arguments, says in ((["--weights", "int3"], "--weights: must be one of"), (["--weights", "mxfp4"], "only experts"), (["--contexts", "0"], "--contexts: must be numbers"), (["--contexts", "8,,9"], "--contexts"),
                            (["--contexts", "99999999999999999999"], "--contexts"), (["--batches", "1,2,3,4,5,6,7,8,9"], "more than 8"),
                            (["--weights", "int4", "--quantization", "fp8"], "give one"), (["-pp", "2"], "--pipeline-parallel-size"), (["-tp", "3"], "--tensor-parallel-size")):
        got = run(file, *arguments)
        assert got.returncode in (1, 2) and says in got.stderr and len(got.stderr.splitlines()) == 1, (arguments, got)
    file.write_text("{")
    got = run(file)
    assert got.returncode == 1 and "config.json" in got.stderr
    other = tmp_path / "other.txt"
    other.write_text("")
    assert "need a config.json" in run(other, "--contexts", "4").stderr


def test_files_that_are_no_config(write, tmp_path):
    large = tmp_path / "large.json"
    large.write_text(" " * (5 << 20))
    got = run(large)
    assert got.returncode == 1 and got.stderr == "quire: config.json: larger than the 4194304 bytes allowed\n"
    many = {"num_hidden_layers": 4096, "hidden_size": 10**6, "moe_intermediate_size": 10**6, "n_routed_experts": 4096}
    got = run(write(DEEPSEEK_V3, **many))
    assert got.returncode == 1 and "config.json: describes" in got.stderr and not got.stdout


@pytest.mark.parametrize("config", [LLAMA_70B, DEEPSEEK_V3], ids=["llama", "deepseek"])
def test_json_of_a_name_that_is_not_utf8(config, tmp_path):
    file = tmp_path / os.fsdecode(b"\xffa\xc3\xa4.json")
    file.write_text(json.dumps(config))
    assert plan(file)["model"] == str(tmp_path / "?a\u00e4.json")


# ---- real processes ----

# family, query heads, KV heads, their width, the flags, changes of config.json
PROCESSES = {
    "MHA": ("llama", 8, 8, 128, [], {}),
    "GQA": ("llama", 8, 4, 128, [], {}),
    "MQA": ("llama", 16, 1, 256, [], {}),
    "biases": ("qwen2", 8, 8, 64, [], {}),
    "head norms": ("qwen3", 16, 8, 128, [], {}),
    "window": ("llama", 8, 8, 128, [], {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 256}),
    "f32 cache": ("llama", 8, 8, 64, ["--dtype", "float32"], {}),
    "int8 cache": ("llama", 16, 16, 128, ["--kv-cache-dtype", "int8"], {}),
    "fp8 cache": ("llama", 16, 16, 128, ["--kv-cache-dtype", "fp8"], {}),
    "blocks of 64": ("llama", 8, 8, 128, ["--block-size", "64"], {}),
    "small steps": ("llama", 8, 8, 128, ["--max-num-batched-tokens", "64"], {}),
    "wide steps": ("qwen3", 8, 8, 128, ["--max-num-batched-tokens", "2048"], {}),
}


IN_THE_SUITE = ("GQA", "window", "int8 cache")


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in IN_THE_SUITE else pytest.mark.wide) for name in PROCESSES])
def test_a_process_takes_what_is_planned(name, tmp_path, start):
    family, heads, kv_heads, width, flags, changes = PROCESSES[name]
    context, batch = 512, 8
    gpu_model.SHAPES["planned"] = (256, 4, heads, kv_heads, width, 512, 2048, family)
    model = tmp_path / "model"
    gpu_model.make("planned", model)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, **changes}))
    for file in MODEL.glob("*token*"):
        shutil.copy(file, model)
    case, = plan(model / "config.json", "--contexts", context, "--batches", batch, *flags)["cases"]
    n_blocks = batch * context // (64 if "--block-size" in flags else 16)
    server = start("serve", model, "--port", "0", "--max-model-len", context, "--max-num-seqs", batch, "--num-kv-blocks", n_blocks, *flags)
    said = re.search(r"KV cache ([0-9.]+) MiB", server.output())
    assert float(said[1]) == pytest.approx(case["kv_bytes"] / 2**20, abs=0.06), said[0]
    prompts = [[(7 * i + j) % 1900 + 20 for j in range(context - 1)] for i in range(batch)]
    rig.answered(server, "/v1/completions", {"model": "model", "prompt": prompts, "max_tokens": 1, "temperature": 0})
    most = 1024 * int(re.search(r"VmHWM:\s+(\d+)", open(f"/proc/{server.process.pid}/status").read())[1])
    print(f"{name}: planned {case['total_bytes'] / 2**20:.1f} MiB, of it KV {case['kv_bytes'] / 2**20:.1f}; the process took {most / 2**20:.1f} MiB")
    assert abs(most - case["total_bytes"]) <= 0.02 * case["total_bytes"] + (32 << 20)
