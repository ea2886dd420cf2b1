/* Token probabilities: a tint for each token, and its alternatives. */

/* Tokens may end inside a character, so bytes are decoded across them. */
function takeToken(turn, token) {
  turn.decoder ||= new TextDecoder();
  const text = token.bytes ? turn.decoder.decode(new Uint8Array(token.bytes), {stream: true}) : token.token;
  turn.tokens.push({text, name: token.token, p: Math.exp(token.logprob), others: token.top_logprobs || []});
}

/* Marks tokens whose text is not shown, such as the end of the turn and stop strings. Called at the end of an answer. */
function endTokens(turn) {
  let rest = turn.text.trimStart().length;
  let begun = false;
  for (const token of turn.tokens) {
    const text = begun ? token.text : token.text.trimStart();
    token.past = rest <= 0;
    begun ||= text.length > 0;
    rest -= text.length;
  }
  turn.ended = true;
}

function makeToken(turn, i) {
  const token = turn.tokens[i];
  const node = make("span", token.past ? "token past" : "token", token.past ? token.name : token.text);
  node.style.setProperty("--p", token.p.toFixed(4));
  node.setAttribute("role", "button");
  node.tabIndex = i === 0 ? 0 : -1;
  node.addEventListener("mouseenter", () => showAlternatives(token, node));
  node.addEventListener("mouseleave", hideAlternatives);
  node.addEventListener("focus", () => showAlternatives(token, node));
  node.addEventListener("blur", hideAlternatives);
  node.addEventListener("click", () => node.focus());
  node.addEventListener("keydown", event => moveToken(event, node));
  return node;
}

/* Adds only the new tokens at the end of the answer. */
function putTokens(turn) {
  if (turn.drawn === undefined || turn.ended) {
    turn.body.textContent = "";
    turn.drawn = 0;
    turn.ended = false;
  }
  while (turn.drawn < turn.tokens.length) turn.body.append(makeToken(turn, turn.drawn++));
}

function moveToken(event, node) {
  const to = {ArrowRight: node.nextElementSibling, ArrowLeft: node.previousElementSibling,
    Home: node.parentNode.firstElementChild, End: node.parentNode.lastElementChild}[event.key];
  if (event.key === "Escape") node.blur();
  if (!to) return;
  event.preventDefault();
  node.tabIndex = -1;
  to.tabIndex = 0;
  to.focus();
}

/* A token's string with visible names for invisible characters. */
const spelled = text => text === "" ? "(nothing)" : text.replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/^ | $/g, "␣");
const percent = p => p >= .99995 ? "100 %" : p < .0001 ? "< 0.01 %" : (p * 100).toFixed(p < .01 ? 2 : 1) + " %";

function alternativeRow(name, p, chosen) {
  const share = make("span");
  share.style.width = (p * 100).toFixed(1) + "%";
  return make("tr", chosen ? "chosen" : "", make("th", "", name), make("td", "", percent(p)), make("td", "share", share));
}

function showAlternatives(token, node) {
  const box = $("alternatives");
  const table = make("table");
  const others = token.others.map(other => ({name: other.token, p: Math.exp(other.logprob)}));
  if (!others.some(other => other.name === token.name)) others.push(token);
  for (const other of others) table.append(alternativeRow(spelled(other.name), other.p, other.name === token.name));
  const rest = 1 - others.reduce((sum, other) => sum + other.p, 0);
  if (rest >= .0001) table.append(alternativeRow("all others", rest, false));
  box.replaceChildren(table, make("p", "", "The model’s own probabilities, before temperature and penalties."));
  box.hidden = false;
  const at = node.getClientRects()[0], own = box.getBoundingClientRect();
  const below = at.bottom + 6 + own.height < innerHeight;
  box.style.left = Math.max(8, Math.min(at.left, innerWidth - own.width - 8)) + "px";
  box.style.top = Math.max(8, below ? at.bottom + 6 : at.top - own.height - 6) + "px";
}

function hideAlternatives() {
  $("alternatives").hidden = true;
}

function makeScale() {
  const scale = make("div", "scale", "Probability");
  for (const p of [1, .75, .5, .25, 0]) {
    const node = make("span", "token", p * 100 + " %");
    node.style.setProperty("--p", p);
    scale.append(node);
  }
  return scale;
}
