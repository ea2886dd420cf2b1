/* Reads /metrics each second while the page is visible, and makes the points of the charts. */

const POLL_MS = 1000, HISTORY_MS = 120000, WINDOW_MS = 10000, RATE_MS = 3500;

/* Prometheus text: name → [{labels, value}]. */
function parseMetrics(text) {
  const found = new Map();
  for (const line of text.split("\n")) {
    const match = /^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line);
    if (!match) continue;
    if (!found.has(match[1])) found.set(match[1], []);
    found.get(match[1]).push({labels: match[2] || "", value: match[3] === "+Inf" ? Infinity : +match[3]});
  }
  return found;
}

/* The sum of a metric's samples; null without samples. */
function totalOf(found, name) {
  const samples = found.get(name);
  return samples ? samples.reduce((sum, sample) => sum + sample.value, 0) : null;
}

/* A label of a metric with one sample; null without samples. */
function labelOf(found, name, label) {
  const labels = found.get(name)?.[0].labels;
  return labels ? new RegExp(`(?:^|,)${label}="((?:[^"\\\\]|\\\\.)*)"`).exec(labels)?.[1] ?? null : null;
}

function histogramOf(found, name) {
  const buckets = new Map();
  for (const {labels, value} of found.get(name + "_bucket") || []) {
    const le = /(?:^|,)le="([^"]*)"/.exec(labels)?.[1];
    const bound = le === "+Inf" ? Infinity : +le;
    buckets.set(bound, (buckets.get(bound) || 0) + value);
  }
  return {buckets: [...buckets].sort((a, b) => a[0] - b[0]), sum: totalOf(found, name + "_sum")};
}

/* The new observations of a histogram since then: {quantile(q), mean}, or null without any. */
function histogramSince(now, then) {
  const before = new Map(then.buckets);
  const grown = now.buckets.map(([bound, n]) => [bound, n - (before.get(bound) || 0)]);
  const n = grown.length ? grown[grown.length - 1][1] : 0;
  if (n <= 0 || grown.some(([, count]) => count < 0)) return null;
  /* As histogram_quantile() in Prometheus: linear within the bucket. */
  const quantile = q => {
    let lower = 0, below = 0;
    for (const [bound, count] of grown) {
      if (count >= q * n) return bound === Infinity ? lower : lower + (bound - lower) * (q * n - below) / (count - below);
      lower = bound;
      below = count;
    }
    return lower;
  };
  return {quantile, mean: (now.sum - then.sum) / n};
}

const samples = []; /* {time, found numbers} */
const points = [];  /* {time, …} for the charts */

function sampleOf(text, time) {
  const found = parseMetrics(text);
  const of = name => totalOf(found, name);
  return {time, gateway: [...found.keys()].some(name => name.startsWith("quire:gateway_")), up: of("quire:engine_up"), running: of("vllm:num_requests_running"), waiting: of("vllm:num_requests_waiting"),
    usage: of("vllm:kv_cache_usage_perc"), blocks: of("quire:kv_blocks"),
    prompt: of("quire:engine_prompt_tokens_total"), generated: of("quire:engine_generation_tokens_total"),
    queries: of("vllm:prefix_cache_queries_total"), hits: of("vllm:prefix_cache_hits_total"),
    drafted: of("vllm:spec_decode_num_draft_tokens_total"), accepted: of("vllm:spec_decode_num_accepted_tokens_total"),
    method: labelOf(found, "quire:draft_method_info", "method"),
    given: of("quire:response_cache_hits_total"), joined: of("quire:response_cache_joined_total"), computed: of("quire:response_cache_computed_total"),
    preemptions: of("vllm:num_preemptions_total"), refused: of("quire:requests_refused_total"),
    policy: labelOf(found, "quire:scheduling_policy_info", "policy"),
    ttft: histogramOf(found, "vllm:time_to_first_token_seconds"), itl: histogramOf(found, "vllm:inter_token_latency_seconds")};
}

/* The oldest sample of the last ms milliseconds; null if it is this one. */
function sampleSince(sample, ms) {
  const old = samples.find(one => one.time >= sample.time - ms);
  return old && old !== sample ? old : null;
}

function growth(now, then, key) {
  if (now[key] === null || then[key] === null || now[key] < then[key]) return null;
  return now[key] - then[key];
}

function pointOf(sample) {
  const point = {time: sample.time, running: sample.running, waiting: sample.waiting,
    used: sample.usage === null ? null : Math.round(sample.usage * sample.blocks)};
  const before = sampleSince(sample, RATE_MS), then = sampleSince(sample, WINDOW_MS);
  if (before) {
    const seconds = (sample.time - before.time) / 1000;
    for (const key of ["prompt", "generated"]) {
      const grown = growth(sample, before, key);
      point[key] = grown === null ? null : grown / seconds;
    }
  }
  if (then) {
    const asked = growth(sample, then, "queries");
    const drafted = growth(sample, then, "drafted"), accepted = growth(sample, then, "accepted"), generated = growth(sample, then, "generated");
    point.acceptance = drafted ? accepted / drafted : null;
    point.perStep = generated ? generated / Math.max(1, generated - accepted) : null;
    const given = growth(sample, then, "given") + growth(sample, then, "joined"), answers = given + growth(sample, then, "computed");
    point.given = answers ? given / answers : null;
    point.hitRate = asked ? growth(sample, then, "hits") / asked : null;
    for (const key of ["ttft", "itl"]) {
      const grown = histogramSince(sample[key], then[key]);
      if (grown) Object.assign(point, {[key + "50"]: grown.quantile(.5) * 1000, [key + "95"]: grown.quantile(.95) * 1000, [key + "Mean"]: grown.mean * 1000});
    }
  }
  return point;
}

function takeSample(sample) {
  samples.push(sample);
  points.push(pointOf(sample));
  for (const list of [samples, points])
    while (list[0].time < sample.time - HISTORY_MS) list.shift();
}

let pollTimer = 0, polling = false, keyRefused = false;

async function poll() {
  clearTimeout(pollTimer);
  if (polling || keyRefused || document.hidden) return;
  polling = true;
  try {
    const response = await request("/metrics");
    takeSample(sampleOf(await response.text(), performance.now()));
    showState(samples[samples.length - 1], null);
  } catch (error) {
    keyRefused = error.status === 401;
    showState(null, error);
  }
  polling = false;
  drawCharts();
  pollTimer = setTimeout(poll, POLL_MS);
}

function beginPolling() {
  document.addEventListener("visibilitychange", poll);
  poll();
}

function keyChanged() {
  keyRefused = false;
  poll();
}
