/* What stands below a turn: its figures, the trace and errors. */

function usageText(turn) {
  const {usage, timing} = turn;
  const parts = [];
  if (usage) {
    const cached = usage.prompt_tokens_details?.cached_tokens || 0;
    parts.push(usage.prompt_tokens + " prompt tokens" + (cached ? " (" + cached + " cached)" : ""));
  }
  const n = usage ? usage.completion_tokens : timing.n;
  parts.push(n + " generated");
  if (timing.first) parts.push("TTFT " + shortMs(timing.first - timing.began));
  if (n > 1 && timing.last > timing.first)
    parts.push(shortNumber((n - 1) * 1000 / (timing.last - timing.first)) + " tokens/s");
  if (turn.stopped) parts.push("stopped");
  if (turn.finish === "length") parts.push("cut at the token limit");
  return parts.join(" · ");
}

const shortages = {
  token_budget: "waiting for tokens of a step, which requests before it used",
  sequences: "waiting for a free place: as many sequences ran as may",
  blocks: "waiting for free KV memory",
  batch: "waiting for its batch to begin",
  prefix: "waiting for another request that computes the prefix they share",
  none: "waiting for the next step",
};

function makeTrace(trace) {
  const first = trace.first_token_ms ?? trace.total_ms;
  const waits = Object.entries(trace.queue_ms_by_shortage || {}).filter(([, ms]) => ms > 0).sort((a, b) => b[1] - a[1]);
  const rows = [
    ["k0", "Template and tokens", trace.text_ms, ""],
    ["k1", "In the queue", trace.queue_ms, waits.map(([why, ms]) => shortMs(ms) + ": " + (shortages[why] || why)).join("; ")],
    ["k2", "Prompt to first token", Math.max(0, first - trace.text_ms - trace.queue_ms), trace.chunks + " step" + (trace.chunks === 1 ? "" : "s") +
      (trace.cached_tokens ? ", " + trace.cached_tokens + " tokens from the prefix cache" : "") +
      (trace.loaded_tokens ? ", " + trace.loaded_tokens + " of them from host memory" : "")],
    ["k3", "Generating", Math.max(0, trace.total_ms - first - trace.preempted_ms), ""],
  ];
  if (trace.preempted_ms > 0)
    rows.push(["k4", "Preempted", trace.preempted_ms, trace.preemptions + " times, " + trace.recomputed_tokens + " tokens computed again"]);
  const bar = make("div", "bar");
  const table = make("table");
  for (const [kind, name, ms, note] of rows) {
    const part = make("span", kind);
    part.style.flexGrow = ms;
    bar.append(part);
    table.append(make("tr", "", make("th", "", make("span", "swatch " + kind), name), make("td", "", shortMs(ms)), make("td", "", note)));
  }
  const details = make("details", "trace", make("summary", "", "Why it took " + shortMs(trace.total_ms)), bar, table);
  details.addEventListener("toggle", () => details.scrollIntoView({block: "nearest"}));
  if (trace.overtaken) details.append(make("p", "hint", trace.overtaken + (trace.overtaken === 1 ? " later request" : " later requests") + " started before it."));
  if (trace.blocker)
    details.append(make("p", "hint", "The last request that started before it was from " + (trace.blocker_tenant || (trace.blocker === "same tenant" ? "the same tenant" : trace.blocker)) + "."));
  return details;
}

const advice = {
  0: "Is it still running?",
  429: "The server takes no more of this right now.",
  503: "The server is not ready. It may be starting or shutting down.",
};

function makeError(turn, error) {
  const why = make("div"), box = make("div", "error", why);
  why.setAttribute("role", "alert"); /* without the seconds below */
  const again = makeButton("Try again", () => answerFrom(turns.indexOf(turn)));
  why.append(make("strong", "", error.status === 401 ? keyReason() : error.message));
  if (advice[error.status]) why.append(advice[error.status]);
  if (error.code === "context_length_exceeded") why.append("Clear the conversation, shorten it, or lower max_tokens.");
  const row = make("div", "row", again);
  if (error.status === 401) row.prepend(makeButton("Enter a key", () => askForKey(keyReason(), turn)));
  if (error.retryMs) {
    const due = performance.now() + error.retryMs;
    const wait = make("span", "wait");
    const tell = () => {
      const left = Math.ceil((due - performance.now()) / 1000);
      wait.textContent = left > 0 ? "There is room again in " + left + " s." : "You can try again now.";
      if (left <= 0) clearInterval(turn.countdown);
    };
    turn.countdown = setInterval(tell, 1000);
    tell();
    row.append(wait);
  }
  box.append(row);
  return box;
}
