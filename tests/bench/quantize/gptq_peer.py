"""Quantizes a model with gptqmodel on the CPU as `quire quantize --method gptq` does: the same samples, groups of 128,
symmetric, in the order of columns.

    python tests/bench/quantize/gptq_peer.py MODEL OUT TEXT SAMPLES LENGTH [CONFIG]

TEXT is cut into SAMPLES samples of LENGTH tokens from its beginning, as --calibration cuts it. CONFIG: JSON over the
configuration; null is gptqmodel's default. Prints one line of JSON: seconds of each part, and the peak of memory.
gptqmodel's pool of threads needs GPTQMODEL_CPU_WORKERS=2 on a machine with two cores. docs/benchmarks/quantize.md has
the figures.
"""
import json
import os
import resource
import sys
import time

os.environ["CUDA_VISIBLE_DEVICES"] = ""
begin = time.time()
from gptqmodel import GPTQModel, QuantizeConfig
from tokenizers import Tokenizer

CONFIG = {"bits": 4, "group_size": 128, "sym": True, "desc_act": False, "act_group_aware": False, "damp_percent": 0.01,
          "offload_to_disk": False}


def samples_of(model, path, n, length):
    with open(path, encoding="utf-8") as file:
        ids = Tokenizer.from_file(model + "/tokenizer.json").encode(file.read()).ids
    assert len(ids) >= n * length, "the text is too short"
    return [{"input_ids": ids[i * length:(i + 1) * length], "attention_mask": [1] * length} for i in range(n)]


def main():
    model, out, text = sys.argv[1:4]
    samples = samples_of(model, text, int(sys.argv[4]), int(sys.argv[5]))
    more = json.loads(sys.argv[6]) if len(sys.argv) > 6 else {}
    times = [begin, time.time()]
    loaded = GPTQModel.load(model, QuantizeConfig(**{**CONFIG, **more}))
    times.append(time.time())
    loaded.quantize(samples, batch_size=1)
    times.append(time.time())
    loaded.save(out)
    times.append(time.time())
    seconds = {name: round(times[i + 1] - times[i], 1) for i, name in enumerate(("imports", "load", "quantize", "save"))}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps({"config": more, "seconds": seconds, "peak_mib": peak}))


if __name__ == "__main__":
    main()
