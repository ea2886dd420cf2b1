/* The conversation: turns, the streamed answer, its time and tokens. */

/* {role, text, reasoning, calls, files, tokens, usage, trace, timing, error, stopped}; node, above, body, aside and below are
 * its elements. */
const turns = [];
let stopper = null; /* stops the answer in progress */

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
  for (const name of ["above", "body", "aside", "below"]) turn[name] = make("div", name);
  turn.above.append(...(turn.files || []).map(makeFile));
  Object.assign(turn, {view: null, thought: null, callFolds: [], drawn: undefined});
  const title = turn.role === "user" ? "You" : turn.role === "tool" ? "Result of " + turn.name : turn.model || "Answer";
  turn.node.append(make("h2", "", title), turn.above, turn.body, turn.aside, turn.below);
  turns.push(turn);
  $("log").append(turn.node);
  $("empty").hidden = true;
  drawTurn(turn);
  return turn;
}

/* An answer by a JSON schema is code. Its end closes the fence, so that it gets colours. */
const asCode = turn => fenceFor(turn.text) + "json\n" + turn.text + (turn.busy ? "" : "\n" + fenceFor(turn.text));

function drawTurn(turn) {
  const busy = turn.busy;
  turn.node.classList.toggle("busy", Boolean(busy));
  putReasoning(turn);
  if (turn.tokens.length) putTokens(turn);
  else if (turn.role === "assistant") (turn.view ||= new MarkdownView(turn.body)).show(turn.json ? asCode(turn) : turn.text);
  else putText(turn.body, turn.text);
  turn.body.hidden = !busy && !turn.text && !turn.tokens.length;
  putCalls(turn);
  turn.below.textContent = "";
  clearInterval(turn.countdown);
  if (busy) return;
  const acts = make("div", "acts");
  if (turn.text) acts.append(makeButton("Copy", event => copyText(turn.text, event.target)));
  if (turn.role === "user" && turn.text.length <= MAX_TYPED) acts.append(makeButton("Edit", () => editTurn(turn)));
  else if (turn.role !== "user" && !turn.error) acts.append(makeButton("Regenerate", () => answerFrom(turns.indexOf(turn))));
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
    if (stopper || !box.value.trim() || !checkSampling()) return;
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

function promptOf(past) {
  if (isPlain()) return {max_tokens: PLAIN_TOKENS, prompt: contentOf(past[past.length - 1])};
  const system = $("system").value.trim();
  const messages = said(past).map(messageOf);
  return {messages: system ? [{role: "system", content: system}, ...messages] : messages,
    ...($("probabilities").checked && {logprobs: true, top_logprobs: 5})};
}

function bodyOf(past) {
  return JSON.stringify({model: $("model").value || undefined, ...promptOf(past),
    stream: true, stream_options: {include_usage: true}, quire_trace: true, ...samplingFields(), ...formFields()});
}

function takeEvent(turn, event) {
  const now = performance.now();
  if (event.usage) turn.usage = event.usage;
  if (event.quire_trace) turn.trace = event.quire_trace;
  const choice = event.choices?.[0];
  if (!choice) return;
  if (choice.finish_reason) turn.finish = choice.finish_reason;
  if (choice.delta?.role || choice.finish_reason && !choice.text) return;
  turn.timing.first ||= now;
  turn.timing.last = now;
  turn.timing.n++;
  turn.text += choice.text || choice.delta?.content || "";
  takeReasoning(turn, choice.delta || {});
  takeCalls(turn, choice.delta || {});
  for (const token of choice.logprobs?.content || []) takeToken(turn, token);
}

/* Draws in the next frame, but spends at most a quarter of the time on it: the page answers its user while a long answer
 * comes. */
function makePacer(draw) {
  let drawing = false, due = 0;
  const step = now => {
    if (now < due) {
      requestAnimationFrame(step);
      return;
    }
    const began = performance.now();
    draw();
    drawing = false;
    due = began + 4 * (performance.now() - began);
  };
  return () => {
    if (!drawing) requestAnimationFrame(step);
    drawing = true;
  };
}

/* Cuts the conversation there and requests a new answer. */
async function answerFrom(at) {
  if (stopper || !checkSampling()) return;
  cutTurns(at);
  const body = bodyOf(turns);
  const turn = addTurn({role: "assistant", text: "", busy: true, model: $("model").value, json: $("schema").value.trim() ? true : undefined,
    timing: {began: performance.now(), n: 0}});
  const mine = stopper = new AbortController();
  keepTurns(); /* a browser may end at any time */
  showBusy();
  scrollDown(true);
  const draw = makePacer(() => {
    const near = nearEnd();
    if (turn.busy) drawTurn(turn);
    scrollDown(near);
  });
  try {
    const response = await request(isPlain() ? "/v1/completions" : "/v1/chat/completions", {method: "POST", body, signal: mine.signal});
    for await (const event of eventsOf(response)) {
      takeEvent(turn, event);
      draw();
    }
  } catch (error) {
    if (mine.signal.aborted) turn.stopped = true;
    else turn.error = error;
  }
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
  if (turn.error?.status === 404) loadModels(); /* the server was started again with another model */
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
  const call = stopper ? null : openCalls()[0];
  $("input").placeholder = call ? "Result of " + call.name : isPlain() ? "Text to continue" : "Message";
  document.body.classList.toggle("answering", Boolean(stopper));
}

/* Sends the message, or the result of a tool call. Begins the answer once each call has a result. */
function sendInput() {
  const text = $("input").value, call = openCalls()[0];
  if (stopper || !text.trim() && (call || !attached.length) || !checkSampling()) return;
  showNotice("");
  $("input").value = "";
  addTurn(call ? {role: "tool", text, call_id: call.id, name: call.name} : {role: "user", text, files: attached.length ? attached : undefined});
  if (!call) attached = [];
  listAttached();
  if (openCalls().length) showBusy();
  else answerFrom(turns.length);
}

function beginChat() {
  $("composer").addEventListener("submit", event => { event.preventDefault(); sendInput(); });
  $("input").addEventListener("keydown", event => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    sendInput();
  });
  $("stop").addEventListener("click", () => { stopper?.abort(); $("input").focus(); });
  document.addEventListener("keydown", event => { if (event.key === "Escape" && !$("key-dialog").open) stopper?.abort(); });
}
