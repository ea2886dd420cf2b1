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

function drawTurn(turn) {
  const busy = turn.busy;
  turn.node.classList.toggle("busy", Boolean(busy));
  if (turn.tokens.length) putTokens(turn);
  else if (turn.role === "assistant") (turn.view ||= new MarkdownView(turn.body)).show(turn.text);
  else turn.body.textContent = turn.text;
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
