/* The folded parts of an answer: its reasoning and its tool calls. */

function makeFold(kind, title) {
  const pre = make("pre");
  Object.assign(pre, {tabIndex: 0, role: "region", ariaLabel: title});
  return make("details", kind, make("summary", "", title), pre);
}

/* Adds only what is new, so that a fold that is open stays. */
function putReasoning(turn) {
  if (!turn.reasoning) return;
  if (!turn.thought) {
    turn.thought = makeFold("reasoning", "Reasoning");
    turn.above.append(turn.thought);
  }
  putText(turn.thought.lastChild, turn.reasoning, true);
}

/* Arguments as they came while they are not whole JSON. */
function readable(json) {
  try { return JSON.stringify(JSON.parse(json), null, 2); } catch { return json; }
}

function putCalls(turn) {
  (turn.calls || []).forEach((call, i) => {
    turn.callFolds[i] ||= turn.aside.appendChild(makeFold("call", "Tool call: " + call.name));
    const pre = turn.callFolds[i].lastChild;
    const text = turn.busy ? call.arguments : readable(call.arguments);
    if (pre.textContent !== text) putText(pre, text);
  });
}

function takeReasoning(turn, delta) {
  const more = delta.reasoning_content ?? delta.reasoning;
  if (more) turn.reasoning = (turn.reasoning || "") + more;
}

const MAX_CALLS = 1000;

function takeCalls(turn, delta) {
  for (const {index, id, function: called} of delta.tool_calls || []) {
    if (!(Number.isInteger(index) && index >= 0 && index <= (turn.calls?.length || 0) && index < MAX_CALLS)) throw new Error("The server sent a tool call with a wrong index.");
    turn.calls ||= [];
    const call = turn.calls[index] ||= {id: id || "", name: called?.name || "", arguments: ""};
    call.arguments += called?.arguments || "";
  }
}

/* The calls of the last answer that have no result yet. */
function openCalls() {
  let at = turns.length - 1;
  while (at >= 0 && turns[at].role === "tool") at--;
  const answered = new Set(turns.slice(at + 1).map(turn => turn.call_id));
  return (turns[at]?.calls || []).filter(call => !answered.has(call.id));
}

/* A turn as the API takes it. */
function messageOf(turn) {
  if (turn.role === "tool") return {role: "tool", tool_call_id: turn.call_id, content: turn.text};
  if (!turn.calls?.length) return {role: turn.role, content: contentOf(turn)};
  return {role: turn.role, content: turn.text || null,
    tool_calls: turn.calls.map(call => ({id: call.id, type: "function", function: {name: call.name, arguments: call.arguments}}))};
}
