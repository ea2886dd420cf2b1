/* The conversation: turns, the streamed answer, its time and tokens. */

/* {role, text, tokens, usage, trace, timing, error, stopped}; node and body are its elements. */
const turns = [];
let stopper = null; /* stops the answer in progress */

/* Leaves out a question whose answer failed or was stopped before its first word: many templates need questions and
 * answers in turn. */
const said = list => list.filter((turn, i) => turn.text && !(turn.role === "user" && list[i + 1] && !list[i + 1].text));

function keepTurns() {
  const plain = said(turns).map(({role, text, model}) => ({role, text, model}));
  kept.set("turns", plain.length ? JSON.stringify(plain) : "");
}

function cutTurns(from) {
  for (const turn of turns.splice(from)) {
    clearInterval(turn.countdown);
    turn.node.remove();
  }
  $("empty").hidden = turns.length > 0;
}

function addTurn(turn) {
  turn.tokens ||= [];
  turn.node = make("article", turn.role);
  turn.body = make("div", "body");
  turn.below = make("div");
  turn.node.append(make("h3", "", turn.role === "user" ? "You" : turn.model || "Answer"), turn.body, turn.below);
  turns.push(turn);
  $("log").append(turn.node);
  $("empty").hidden = true;
  drawTurn(turn);
  return turn;
}

/* ---- text ---- */

function putInline(into, text) {
  for (const part of text.split(/(`[^`\n]+`|\*\*[^*\n]+\*\*)/)) {
    if (/^`.+`$/.test(part)) into.append(make("code", "", part.slice(1, -1)));
    else if (/^\*\*.+\*\*$/.test(part)) into.append(make("strong", "", part.slice(2, -2)));
    else if (part) into.append(part);
  }
}

/* Formats fenced code, `code` and **bold**; other text stays as written. */
function putFormatted(into, text) {
  into.textContent = "";
  let at = 0;
  for (const fence of text.matchAll(/^```[^\n]*\n([^]*?)(?:\n```[ \t]*$\n?|$(?![^]))/gm)) {
    putInline(into, text.slice(at, fence.index));
    into.append(make("pre", "", make("code", "", fence[1])));
    at = fence.index + fence[0].length;
  }
  putInline(into, text.slice(at));
}

/* ---- below a turn ---- */

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
  token_budget: "the steps’ tokens went to requests before it",
  sequences: "as many sequences ran as may",
  blocks: "KV memory was short",
  batch: "its batch had not begun",
  prefix: "another request was computing the prefix they share",
  none: "the next step had not come",
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
  if (trace.overtaken) details.append(make("p", "hint", trace.overtaken + " later requests were let in before it."));
  if (trace.blocker)
    details.append(make("p", "hint", "Let in last before it: a request of " + (trace.blocker_tenant || "the " + trace.blocker).replace("the another", "another") + "."));
  return details;
}

const advice = {
  0: "Is it still running?",
  429: "The server takes no more of this right now.",
  503: "The server is not ready. It may be starting or shutting down.",
};

function makeError(turn, error) {
  const box = make("div", "error");
  box.setAttribute("role", "alert");
  const again = makeButton("Try again", () => answerFrom(turns.indexOf(turn)));
  box.append(make("strong", "", error.status === 401 ? keyReason() : error.message));
  if (advice[error.status]) box.append(advice[error.status]);
  if (error.code === "context_length_exceeded") box.append("Clear the conversation, shorten it, or lower max_tokens.");
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

function drawTurn(turn) {
  const busy = turn.busy;
  turn.node.classList.toggle("busy", Boolean(busy));
  if (turn.tokens.length) putTokens(turn);
  else putFormatted(turn.body, turn.text);
  turn.below.textContent = "";
  clearInterval(turn.countdown);
  if (busy) return;
  const acts = make("div", "acts");
  if (turn.text) acts.append(makeButton("Copy", event => copyText(turn.text, event.target)));
  if (turn.role === "user") acts.append(makeButton("Edit", () => editTurn(turn)));
  else if (!turn.error) acts.append(makeButton("Regenerate", () => answerFrom(turns.indexOf(turn))));
  if (turn.timing) acts.append(make("span", "usage", usageText(turn)));
  if (turn.tokens.length) turn.below.append(makeScale());
  turn.below.append(acts);
  if (turn.trace) turn.below.append(makeTrace(turn.trace));
  if (turn.error) turn.below.append(makeError(turn, turn.error));
}

async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch { /* no clipboard without https: the text can be selected */
    button.textContent = "Not allowed here";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

function editTurn(turn) {
  if (stopper) return;
  const box = make("textarea");
  box.value = turn.text;
  box.rows = Math.min(12, turn.text.split("\n").length + 1);
  box.setAttribute("aria-label", "Edit the message");
  const save = () => {
    if (!box.value.trim()) return;
    const at = turns.indexOf(turn);
    turn.text = box.value;
    drawTurn(turn);
    answerFrom(at + 1);
  };
  box.addEventListener("keydown", event => {
    if (event.key === "Escape") drawTurn(turn);
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); save(); }
  });
  turn.body.replaceChildren(box);
  const done = makeButton("Send", save);
  turn.below.replaceChildren(make("div", "acts", makeButton("Cancel", () => drawTurn(turn)), done));
  box.focus();
}

/* ---- requests ---- */

function bodyOf(past) {
  const system = $("system").value.trim();
  const messages = said(past).map(turn => ({role: turn.role, content: turn.text}));
  const body = {model: $("model").value || undefined, messages: system ? [{role: "system", content: system}, ...messages] : messages,
    stream: true, stream_options: {include_usage: true}, quire_trace: true, ...samplingFields()};
  if ($("probabilities").checked) Object.assign(body, {logprobs: true, top_logprobs: 5});
  return JSON.stringify(body);
}

function takeEvent(turn, event) {
  const now = performance.now();
  if (event.usage) turn.usage = event.usage;
  if (event.quire_trace) turn.trace = event.quire_trace;
  const choice = event.choices[0];
  if (!choice) return;
  if (choice.finish_reason) {
    turn.finish = choice.finish_reason;
    return;
  }
  if (choice.delta?.role) return;
  turn.timing.first ||= now;
  turn.timing.last = now;
  turn.timing.n++;
  turn.text += choice.delta?.content || "";
  for (const token of choice.logprobs?.content || []) takeToken(turn, token);
}

/* Cuts the conversation there and requests a new answer. */
async function answerFrom(at) {
  if (stopper || !checkSampling()) return;
  cutTurns(at);
  const body = bodyOf(turns);
  const turn = addTurn({role: "assistant", text: "", busy: true, model: $("model").value, timing: {began: performance.now(), n: 0}});
  const mine = stopper = new AbortController();
  showBusy();
  scrollDown(true);
  let drawing = 0;
  try {
    const response = await request("/v1/chat/completions", {method: "POST", body, signal: mine.signal});
    for await (const event of eventsOf(response)) {
      takeEvent(turn, event);
      drawing ||= requestAnimationFrame(() => {
        drawing = 0;
        const near = nearEnd();
        if (turn.busy) drawTurn(turn);
        scrollDown(near);
      });
    }
  } catch (error) {
    if (mine.signal.aborted) turn.stopped = true;
    else turn.error = error;
  }
  cancelAnimationFrame(drawing);
  stopper = null;
  turn.busy = false;
  const near = nearEnd();
  endTokens(turn);
  drawTurn(turn);
  scrollDown(near);
  keepTurns();
  showBusy();
  $("said").textContent = turn.error ? "" : turn.stopped ? "Stopped." : "The answer is complete: " + turn.text.slice(0, 2000);
  if (turn.error?.status === 401) askForKey(keyReason(), turn);
  if (turn.error?.param) refuseField(turn.error.param);
}

function nearEnd() {
  const log = $("log");
  return log.scrollHeight - log.scrollTop - log.clientHeight < 60;
}

function scrollDown(wanted) {
  if (wanted) $("log").scrollTop = $("log").scrollHeight;
}

function showBusy() {
  $("stop").hidden = !stopper;
  $("send").hidden = Boolean(stopper);
  $("clear").disabled = Boolean(stopper);
  document.body.classList.toggle("answering", Boolean(stopper));
}

function beginChat() {
  for (const turn of JSON.parse(kept.get("turns") || "[]")) addTurn(turn);
  scrollDown(true);
  $("composer").addEventListener("submit", event => {
    event.preventDefault();
    const text = $("input").value;
    if (stopper || !text.trim() || !checkSampling()) return;
    $("input").value = "";
    addTurn({role: "user", text});
    answerFrom(turns.length);
  });
  $("input").addEventListener("keydown", event => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    $("composer").requestSubmit();
  });
  $("stop").addEventListener("click", () => { stopper?.abort(); $("input").focus(); });
  document.addEventListener("keydown", event => { if (event.key === "Escape" && !$("key-dialog").open) stopper?.abort(); });
  $("clear").addEventListener("click", () => { cutTurns(0); keepTurns(); $("input").focus(); });
}
