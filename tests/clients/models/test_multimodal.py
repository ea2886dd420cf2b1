"""Checkpoints with a text model and parts for images: the text part is loaded, and requests with images are refused."""

import json

import pytest
import rig

from conftest import MODEL as DEMO
from conftest import ROOT
from test_commands import quire
from test_unused import changed, inspected, tensors_of, write

MODELS = ROOT / "tests" / "goldens" / "models"
VISION = MODELS / "gemma3_vision"
TOWER = {"vision_tower.patch_embed.weight": ("BF16", [4, 4], bytes(32)),
         "multi_modal_projector.linear_1.weight": ("BF16", [2, 4], bytes(16))}


def wrapped(tmp_path, model, architecture, model_type, text_type, before, head, **more):
    """A text model as the text part of another architecture, its tensors named as there."""
    copy = changed(tmp_path, model)
    text = json.loads((copy / "config.json").read_text())
    text.pop("architectures")
    whole = {"architectures": [architecture], "model_type": model_type, "torch_dtype": text.pop("torch_dtype"),
             "text_config": text | {"model_type": text_type} | more, "vision_config": {}}
    (copy / "config.json").write_text(json.dumps(whole))
    tensors = {(before + n.removeprefix("model.") if n.startswith("model.") else head + n): t
               for n, t in tensors_of(model / "model.safetensors").items()}
    write(copy / "model.safetensors", tensors | TOWER)
    return copy


@pytest.mark.parametrize("model, architecture, model_type, text_type, before, head", [
    ("mistral", "Mistral3ForConditionalGeneration", "mistral3", "mistral", "language_model.model.", "language_model."),
    ("mistral", "LlavaForConditionalGeneration", "llava", "mistral", "model.language_model.", ""),
    ("llama2", "LlavaForConditionalGeneration", "llava", "llama", "language_model.model.", "language_model."),
    ("llama2", "LlavaNextForConditionalGeneration", "llava_next", "llama", "model.language_model.", ""),
    ("qwen3_f16", "Qwen3VLForConditionalGeneration", "qwen3_vl", "qwen3_vl_text", "model.language_model.", ""),
    ("qwen2_window", "Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl", "qwen2_5_vl_text", "model.", ""),
])
def test_text_parts(tmp_path, model, architecture, model_type, text_type, before, head):
    copy = wrapped(tmp_path, MODELS / model, architecture, model_type, text_type, before, head)
    _, alone, _ = inspected(MODELS / model)
    status, about, said = inspected(copy)
    assert status == 0, said
    assert about["multimodal"] == architecture and alone["multimodal"] is None
    for field in "architecture", "parameters", "matrices", "max_position", "kv_bytes_per_token":
        assert about[field] == alone[field], field
    assert [u["what"] for u in about["unused_tensors"]] == ["vision parts"]


@pytest.mark.parametrize("field, words", [
    ("vocab_size", "model.embed_tokens.weight: expected [262208, 96]"),
    ("num_attention_heads", "q_proj.weight: expected [256, 96]"),
])
def test_sizes_that_text_config_leaves_out(tmp_path, field, words):
    """As the config classes of transformers: Gemma 3's files on the hub have no vocab_size, for example."""
    text = json.loads((VISION / "config.json").read_text())["text_config"]
    text.pop(field)
    assert words in inspected(changed(tmp_path, VISION, text_config=text))[2]


def test_fields_beside_vision_config(tmp_path):
    """As the first files of Qwen2.5-VL have them, without a text_config."""
    copy = changed(tmp_path, MODELS / "qwen2_window", TOWER, architectures=["Qwen2_5_VLForConditionalGeneration"],
                   model_type="qwen2_5_vl", vision_config={}, rope_scaling={"type": "mrope", "mrope_section": [4, 6, 6]})
    status, about, said = inspected(copy)
    assert status == 0 and about["architecture"] == "Qwen2ForCausalLM", said


@pytest.mark.parametrize("mrope", [
    {"type": "mrope", "mrope_section": [4, 6, 6]},
    {"rope_type": "default", "mrope_section": [4, 6, 6], "mrope_interleaved": True},
])
def test_mrope_is_rope_for_text(tmp_path, mrope):
    copy = wrapped(tmp_path, MODELS / "qwen3_f16", "Qwen3VLForConditionalGeneration", "qwen3_vl", "qwen3_vl_text",
                   "model.language_model.", "", rope_scaling=mrope)
    assert inspected(copy)[0] == 0
    alone = inspected(changed(tmp_path, MODELS / "qwen3_f16", rope_scaling=mrope))
    assert alone[0] == (1 if "type" in mrope else 0), alone


def test_text_parts_of_other_models(tmp_path):
    about = json.loads((VISION / "config.json").read_text())
    for change, words in [({"text_config": None}, "text_config: is missing"),
                          ({"text_config": about["text_config"] | {"model_type": "phi3"}},
                           "text_config: model_type: 'phi3' is not supported"),
                          ({"text_config": about["text_config"] | {"head_dim": 7}},
                           "text_config, as a config.json: head_dim: 7")]:
        got = quire("inspect", changed(tmp_path, VISION, **change))
        assert got.returncode == 1 and words in got.stderr and got.stderr.count("\n") == 1, got.stderr


def test_inspect_says_so():
    assert "of Gemma3ForConditionalGeneration; images and audio are not supported" in quire("inspect", VISION).stdout


def test_serve_answers_as_the_text_model_and_says_so(tmp_path, server, start):
    copy = wrapped(tmp_path, DEMO, "Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl", "qwen2_5_vl_text",
                   "model.language_model.", "")
    other = start("serve", copy, "--port", "0", "--served-model-name", "demo", "--max-model-len", "1024")
    body = {"model": "demo", "prompt": "Once upon a time", "max_tokens": 16, "temperature": 0, "logprobs": 3}
    texts = [rig.answered(s, "/v1/completions", body).json()["choices"] for s in (server, other)]
    assert texts[0] == texts[1]
    other.stop()
    assert "the text part of Qwen2_5_VLForConditionalGeneration: images and audio are not supported" in other.output()


IMAGE = {"url": "data:image/png;base64,AAAA"}


@pytest.mark.parametrize("path, where, part, limit", [
    ("/v1/chat/completions", "messages", {"type": "image_url", "image_url": IMAGE}, "max_tokens"),
    ("/v1/chat/completions", "messages", {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
     "max_tokens"),
    ("/v1/messages", "messages", {"type": "image", "source": {"type": "url", "url": IMAGE["url"]}}, "max_tokens"),
    ("/v1/messages", "messages", {"type": "document", "source": {"type": "text", "data": "x"}}, "max_tokens"),
    ("/v1/responses", "input", {"type": "input_image", "image_url": IMAGE["url"]}, "max_output_tokens"),
    ("/v1/responses", "input", {"type": "input_file", "file_data": "AAAA"}, "max_output_tokens"),
])
def test_images_and_audio_in_requests(server, path, where, part, limit):
    text = {"type": "input_text" if where == "input" else "text", "text": "What is this?"}
    body = {"model": "demo", limit: 1, where: [{"role": "user", "content": [text, part]}]}
    reply = rig.ask(server, path, body)
    said = reply.json()["error"]["message"]
    assert reply.status == 400
    assert f"{where}[0].content[1].type: " in said and f'"{part["type"]}" is not supported' in said, said
    assert "reads text only" in said
