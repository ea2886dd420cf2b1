"""Errors of GPTQ checkpoints of one model, computed by PyTorch from their files alone.

    python tests/bench/quantize/gptq_error.py MODEL TEXT LENGTH FIRST WINDOWS OUT...

For each OUT: |X (W - Wq)^T|^2 / |X W^T|^2 of each linear layer, with X of the unquantized model in f32, as the mean of each
kind of layer and of all; the number of layers in which OUT has a smaller error than the first OUT; and the KL divergence of
next tokens from the unquantized model. The windows are tokens [FIRST * LENGTH, (FIRST + WINDOWS) * LENGTH) of TEXT.
Prints a line of JSON for each OUT.
"""
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM


def unpack(words, bits):
    """[..., n] words of 32 bits to [..., n, 32 / bits] numbers, the low bits first."""
    shift = torch.arange(0, 32, bits)
    return (words.long()[..., None] >> shift) & ((1 << bits) - 1)


def weights_of(out):
    """{layer: [outputs, inputs]} of a checkpoint of the form gptq or gptq_v2."""
    how = json.loads((out / "config.json").read_text())["quantization_config"]
    bits, less = how["bits"], how.get("checkpoint_format", "gptq") == "gptq"
    tensors = {name: t for path in out.glob("*.safetensors") for name, t in load_file(path).items()}
    made = {}
    for layer in (name[:-len(".qweight")] for name in tensors if name.endswith(".qweight")):
        words, groups = tensors[layer + ".qweight"], tensors[layer + ".g_idx"].long()
        codes = unpack(words, bits).transpose(1, 2).reshape(-1, words.shape[1])
        zeros = unpack(tensors[layer + ".qzeros"], bits).flatten(1)
        zeros = (zeros + less) & ((1 << bits) - 1)
        made[layer] = ((codes - zeros[groups]).float() * tensors[layer + ".scales"].float()[groups]).T.contiguous()
    return made


class Sums:
    """Squares of the outputs' errors, collected while the unquantized model runs."""

    def __init__(self, layers, models):
        self.size, self.errors = {name: 0.0 for name in layers}, [{name: 0.0 for name in layers} for _ in models]
        self.models = models
        self.hooks = [layer.register_forward_pre_hook(self.hook(name)) for name, layer in layers.items()]

    def hook(self, name):
        def add(layer, inputs):
            x = inputs[0].flatten(0, -2)
            self.size[name] += (x @ layer.weight.T).double().square().sum().item()
            for errors, model in zip(self.errors, self.models):
                errors[name] += (x @ (layer.weight - model[name]).T).double().square().sum().item()
        return add

    def end(self):
        for hook in self.hooks:
            hook.remove()

    def report(self, i):
        ratios = {name: self.errors[i][name] / self.size[name] for name in self.size}
        kinds = sorted({name.rsplit(".", 1)[-1] for name in ratios})
        found = {kind: [v for name, v in ratios.items() if name.endswith(kind)] for kind in kinds}
        return {"error": {kind: sum(v) / len(v) for kind, v in found.items()} | {"mean": sum(ratios.values()) / len(ratios)},
                "smaller_than_first": sum(self.errors[i][name] < self.errors[0][name] for name in ratios), "layers": len(ratios)}


@torch.inference_mode()
def main():
    base, text = sys.argv[1:3]
    length, first, n = map(int, sys.argv[3:6])
    outs = [pathlib.Path(out) for out in sys.argv[6:]]
    with open(text, encoding="utf-8") as file:
        ids = Tokenizer.from_file(base + "/tokenizer.json").encode(file.read()).ids
    windows = torch.tensor(ids[first * length:(first + n) * length]).reshape(n, 1, length)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, torch.nn.Linear) and name != "lm_head"}
    models = [weights_of(out) for out in outs]
    sums = Sums(layers, models)
    expected = [model(window).logits[0].log_softmax(-1) for window in windows]
    sums.end()
    for i, out in enumerate(outs):
        for name, layer in layers.items():
            layer.weight.copy_(models[i][name])
        found = [model(window).logits[0].log_softmax(-1) for window in windows]
        kl = torch.cat([(p.exp() * (p - q)).sum(-1) for p, q in zip(expected, found)])
        print(json.dumps({"model": out.name, **sums.report(i), "kl": kl.mean().item(), "kl_standard_error": (kl.std() / len(kl)**0.5).item()}), flush=True)


if __name__ == "__main__":
    main()
