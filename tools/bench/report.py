"""Turns the raw records of a run into the table and the picture. All their figures come from these records.

    python tools/bench/report.py docs/benchmarks/cpu        # again, from docs/benchmarks/cpu-raw.jsonl
"""
import html
import json
import pathlib
import statistics
import sys


ISA_NAMES = {"avx2": "AVX2", "avx512": "AVX-512", "avx512vnni": "AVX-512 VNNI", "amx": "AMX"}


def figure(value):
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def spread(values):
    return f"{figure(min(values))} – {figure(max(values))}"


def setting_text(setting):
    if not setting:
        return ""
    words = {"flash": {True: "flash attention", False: "no flash attention"},
             "unified": {True: "one KV cache", False: "a KV cache each"},
             "static": {True: "static cache", False: "dynamic cache"}}
    return " (" + ", ".join(words[k][v] if k in words else str(v) for k, v in setting.items()) + ")"


class Results:
    def __init__(self, records):
        self.run = next(r for r in records if r["record"] == "run")
        self.rows = [r for r in records if r["record"] == "row"]
        self.proofs = [r for r in records if r["record"] == "proof"]
        self.absent = {(r["row"], r["who"]): r["why"] for r in records if r["record"] == "absent"}
        self.samples = {}  # (row, who) → {round: record}
        for r in records:
            if r["record"] == "sample":
                self.samples.setdefault((r["row"], r["who"]), {})[r["round"]] = r

    def values(self, row, who):
        samples = self.samples.get((row["row"], who), {})
        return {number: sample["value"] for number, sample in samples.items()}

    def shares(self, row, who):
        """Of the row-stream read measured right before and after: bytes of weights read a second."""
        return {number: sample["value"] * row["bytes_per_token"] / 1e9 / statistics.mean(sample["read_gb_s"])
                for number, sample in self.samples.get((row["row"], who), {}).items() if "read_gb_s" in sample}

    def ratios(self, row, who, of):
        """Paired: of the same round."""
        if of == "read":
            return self.shares(row, who)
        mine, theirs = self.values(row, who), self.values(row, of)
        return {number: mine[number] / theirs[number] for number in mine if number in theirs}


def goal_text(goal):
    later = f" → {figure(goal['later'])}" if goal["later"] else ""
    if not goal["of"]:
        return f"{goal['who']} ≤ {figure(goal['factor'])}{later}"
    if goal["of"] == "read":
        return f"{goal['who']} ≥ {goal['factor']:.2f}{later} of read"
    return f"{goal['who']} ≥ {figure(goal['factor'])} × {goal['of']}"


def goal_outcome(results, row, goal):
    """(measured, reached)"""
    why = results.absent.get((row["row"], goal["who"]))
    if why:
        return "–", why
    values = results.ratios(row, goal["who"], goal["of"]) if goal["of"] else results.values(row, goal["who"])
    if not values:
        return "–", "not measured"
    median = statistics.median(values.values())
    reached = median >= goal["factor"] if goal["of"] else median <= goal["factor"]
    measured = f"{median:.2f}" if goal["of"] else figure(median)
    if len(values) > 1:
        measured += f" ({min(values.values()):.2f} – {max(values.values()):.2f})"
    if goal["isa"] not in results.run["isas"]:
        return measured, f"a goal for {ISA_NAMES[goal['isa']]}, which this machine has not"
    return measured, "**yes**" if reached else "no"


def goals_table(results):
    yield "| work | goal | measured (paired, median, spread) | reached |"
    yield "|---|---|---|---|"
    for row in results.rows:
        for goal in row["goals"]:
            measured, reached = goal_outcome(results, row, goal)
            unit = f" {row['unit']}" if not goal["of"] else ""
            yield f"| {row['title']} | {goal_text(goal)}{unit} | {measured} | {reached} |"
        if not row["goals"] and (row["row"], "quire") in results.absent:
            yield f"| {row['title']} | | – | {results.absent[row['row'], 'quire']} |"


def figures_table(results):
    yield "| work | engine | median | spread | of read |"
    yield "|---|---|---|---|---|"
    for row in results.rows:
        for who in row["entries"]:
            samples = results.samples.get((row["row"], who))
            if not samples:
                if (row["row"], who) in results.absent and row["unit"]:
                    yield f"| {row['title']} | {who} | – | {results.absent[row['row'], who]} | |"
                continue
            last = list(samples.values())[-1]
            values = [sample["value"] for sample in samples.values()]
            if len(values) == 1 and "low" in last["said"]:
                values = [last["said"]["low"], last["value"], last["said"]["high"]]
            shares = results.shares(row, who)
            share = f"{statistics.median(shares.values()):.2f}" if shares else ""
            median = f"{figure(statistics.median(values))} {row['unit']}"
            yield f"| {row['title']} | {who}{setting_text(last['setting'])} | {median} | {spread(values)} | {share} |"
        reads = [gb for who in row["entries"] for sample in results.samples.get((row["row"], who), {}).values()
                 for gb in sample.get("read_gb_s", [])]
        if reads:
            yield f"| | row-stream read | {figure(statistics.median(reads))} GB/s | {spread(reads)} | |"


def proof_table(results):
    yield "| model | engine | greedy tokens equal | parted at near ties | first logits apart (RMS, relative) | bound |"
    yield "|---|---|---|---|---|---|"
    for p in results.proofs:
        error = "" if p["logits_error"] is None else f"{p['logits_error']:.2g}"
        yield (f"| {p['model']} | {p['who']} | {p['tokens_equal']} of {p['tokens']} | {p['near_ties']} | {error} "
               f"| {p['bound']:.2g} |")


def markdown(results, name):
    run = results.run
    cpu = run["cpu"]
    yield "# Quire on a CPU, against its peers"
    yield ""
    yield f"Written by `tools/bench/` from [{name}-raw.jsonl]({name}-raw.jsonl); [README.md](README.md) says what is compared and how."
    yield ""
    yield "```"
    yield f"machine   {cpu.get('Model name', '?')}, {run['memory_bytes'] / 2**30:.0f} GiB of memory"
    yield "          " + ", ".join(f"{key} {value}" for key, value in cpu.items() if key != "Model name")
    yield f"          {' '.join(run['flags'])}; Linux {run['kernel']}"
    yield "versions  " + ", ".join(f"{key} {value}" for key, value in run["versions"].items())
    yield f"run       {run['date']}, {run['threads']} threads, {run['rounds']} rounds: {run['command'].strip()}"
    yield "```"
    yield ""
    disturbed = [sample for samples in results.samples.values() for sample in samples.values() if sample["others"] > run["disturbed_above"]]
    if disturbed:
        yield (f"Of {sum(map(len, results.samples.values()))} samples {len(disturbed)} stayed disturbed by other processes, which took "
               f"up to {max(sample['others'] for sample in disturbed):.0%} of the machine.")
        yield ""
    if any(row["unit"] == "tok/s" for row in results.rows):
        yield f"![tokens a second]({name}.svg)"
        yield ""
    yield "## Goals"
    yield ""
    yield from goals_table(results)
    yield ""
    yield "## Results"
    yield ""
    yield from figures_table(results)
    if results.proofs:
        yield ""
        yield "## The same model, token for token"
        yield ""
        yield from proof_table(results)


COLOURS = {"quire": "#2a6fb0", "llama.cpp": "#c47f2c", "PyTorch": "#8a5a9e", "transformers": "#8a5a9e"}


def picture(results):
    """Bars of tokens a second, each row of the table to its own scale; whiskers are the spread."""
    x, width, height, y, out = 300, 380, 16, 34, []
    for row in results.rows:
        bars = [(who, list(results.values(row, who).values())) for who in row["entries"]]
        bars = [(who, values) for who, values in bars if values]
        if row["unit"] != "tok/s" or not bars:
            continue
        out.append(f'<text x="10" y="{y}" font-weight="bold">{html.escape(row["title"])}</text>')
        y += 8
        scale = width / max(max(values) for _, values in bars)
        for who, values in bars:
            median = statistics.median(values)
            colour = next((c for start, c in COLOURS.items() if who.startswith(start)), "#777777")
            middle = y + height / 2
            out.append(f'<text x="{x - 8}" y="{middle + 4}" text-anchor="end">{html.escape(who)}</text>')
            out.append(f'<rect x="{x}" y="{y + 2}" width="{median * scale:.1f}" height="{height - 4}" fill="{colour}"/>')
            out.append(f'<path d="M{x + min(values) * scale:.1f} {middle}H{x + max(values) * scale:.1f}" stroke="#222"/>')
            out.append(f'<text x="{x + max(values) * scale + 8:.1f}" y="{middle + 4}">{figure(median)}</text>')
            y += height
        y += 24
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {x + width + 70} {y}" '
                      f'font-family="sans-serif" font-size="12">',
                      '<rect width="100%" height="100%" fill="#ffffff"/>',
                      '<text x="10" y="14">tokens a second: median of the rounds, line = spread; each group has its own scale</text>',
                      *out, "</svg>", ""])


def write(records, out):
    results = Results(records)
    out.with_name(out.name + ".md").write_text("\n".join(markdown(results, out.name)) + "\n")
    if any(row["unit"] == "tok/s" for row in results.rows):
        out.with_name(out.name + ".svg").write_text(picture(results))


if __name__ == "__main__":
    path = pathlib.Path(sys.argv[1])
    raw = path.with_name(path.name + "-raw.jsonl").read_text()
    write([json.loads(line) for line in raw.splitlines()], path)
