#!/usr/bin/env python3
"""How often quire batch computes a prefix that many lines share, in random order among others.

  tests/bench/bulk/shared_prefix.py build/quire tools/demo_model/model --lines 1000 --prefix 1500
"""

import argparse
import json
import pathlib
import random
import subprocess
import tempfile

p = argparse.ArgumentParser()
p.add_argument("quire")
p.add_argument("model")
p.add_argument("--lines", type=int, default=1000)
p.add_argument("--prefix", type=int, default=1500)
a = p.parse_args()
random.seed(1)
prefix = [random.randrange(1000) for _ in range(a.prefix)]
lines = []
for i in range(2 * a.lines):  # as many others, as long
    begin = prefix if i < a.lines else [random.randrange(1000) for _ in range(50)]
    body = {"prompt": begin + [random.randrange(1000) for _ in range(20)], "max_tokens": 2, "temperature": 0}
    lines.append({"custom_id": f"{'shared' if i < a.lines else 'other'}-{i}", "method": "POST", "url": "/v1/completions", "body": body})
random.shuffle(lines)
with tempfile.TemporaryDirectory() as folder:
    path, out = pathlib.Path(folder) / "in.jsonl", pathlib.Path(folder) / "out.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = subprocess.run([a.quire, "batch", str(path), "-o", str(out), "--model", a.model, "--json"], capture_output=True, text=True, check=True)
    shared = [json.loads(line) for line in out.open() if '"shared-' in line]
computed = sum(row["response"]["body"]["usage"]["prompt_tokens"] - row["response"]["body"]["usage"]["prompt_tokens_details"]["cached_tokens"] for row in shared)
own = sum(20 + a.prefix % 16 for _ in shared)  # a line's own tokens, and the prefix's end that fills no block of 16
print(json.dumps({"lines": len(lines), "with_prefix": len(shared), "prefix_tokens": a.prefix, "computed_tokens_of_them": computed, "own_tokens": own,
                  "prefix_computed_times": round((computed - own + a.prefix % 16) / a.prefix, 3), "summary": json.loads(result.stdout)}))
