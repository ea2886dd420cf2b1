/* The table of targets: reads /gateway/targets and the report of experiments every two seconds while the page is visible. */

const POLL_MS = 2000;

/* ---- one row ---- */

const healthOf = {up: ["good", "up"], full: ["warn", "full"], resting: ["warn", "resting (429)"], trial: ["warn", "on trial"], down: ["bad", "down"]};
const breakerOf = {closed: ["good", "closed"], half_open: ["warn", "half open"], open: ["bad", "open"]};

const money = text => "$" + text;

function cacheOf(target) {
  const share = target.input_tokens ? Math.round(100 * target.cached_input_tokens / target.input_tokens) + " %" : "–";
  return target.saved === "0" ? share : share + ", " + money(target.saved) + " saved";
}

/* [class, text] of each cell. */
function cellsOf(target) {
  const plain = text => ["", String(text)];
  const mark = (marks, value) => ["mark-of " + (marks[value]?.[0] || ""), marks[value]?.[1] || value];
  return [plain(target.model), plain(target.target), plain(target.kind), mark(healthOf, target.state), mark(breakerOf, target.breaker),
    plain(target.max_concurrent ? target.running + " of " + target.max_concurrent : target.running), plain(shortNumber(target.outstanding)),
    plain(target.latency_ms ? shortMs(target.latency_ms) : "–"), plain(shortNumber(target.answered)),
    plain(shortNumber(target.failed) + (target.overloaded ? " + " + shortNumber(target.overloaded) + " overloaded" : "")),
    plain(cacheOf(target)), plain(money(target.cost))];
}

function makeRow(target) {
  const row = make("tr");
  cellsOf(target).forEach((cell, i) => row.append(make(i < 2 ? "th" : "td")));
  row.title = target.place;
  for (const head of row.querySelectorAll("th")) head.scope = "row";
  return row;
}

/* Only what changed is written, so that a selection and a screen reader's place stay. */
function fillRow(row, target) {
  cellsOf(target).forEach(([kind, text], i) => {
    const cell = row.children[i];
    if (cell.textContent !== text) cell.textContent = text;
    if (cell.className !== kind) cell.className = kind;
  });
}

/* ---- the table ---- */

let shown = ""; /* the keys of the rows */

function showTargets(targets) {
  const body = $("targets").tBodies[0];
  const keys = JSON.stringify(targets.map(target => [target.model, target.target, target.kind, target.place]));
  if (keys !== shown) body.replaceChildren(...targets.map(makeRow));
  shown = keys;
  targets.forEach((target, i) => fillRow(body.rows[i], target));
  $("empty").hidden = targets.length > 0;
}

function showState(text, kind) {
  $("state").className = kind;
  if ($("state").textContent !== text) $("state").textContent = text;
}

/* Numbers of cost keep their digits: they are read as text. */
const parseTargets = text => JSON.parse(text.replace(/"(cost|saved)":([0-9.]+)/g, '"$1":"$2"'));

let timer = 0, polling = false, keyRefused = false;

async function poll() {
  clearTimeout(timer);
  if (polling || keyRefused || document.hidden) return;
  polling = true;
  try {
    const targets = parseTargets(await (await request("/gateway/targets")).text());
    const down = targets.filter(target => target.breaker !== "closed").length;
    showTargets(targets);
    showExperiments((await (await request("/gateway/experiments/report")).json()).data);
    showState(down ? down + " of " + targets.length + " not healthy" : targets.length + " healthy", down ? "bad" : "good");
  } catch (error) {
    showState(error.status === 401 ? "needs an API key" : error.status === 0 ? "the server does not answer" : error.message, "bad");
    keyRefused = error.status === 401;
    if (keyRefused && !$("key-dialog").open) askForKey(kept.get("key") ? "The server does not take this key." : "This server asks for an API key.");
  }
  polling = false;
  timer = setTimeout(poll, POLL_MS);
}

/* ---- the key ---- */

function askForKey(why) {
  $("key-why").textContent = why;
  $("key").value = kept.get("key") || "";
  $("key-dialog").showModal();
  $("key").select();
}

function takeKey(key) {
  kept.set("key", key.trim());
  $("key-dialog").close();
  keyRefused = false;
  poll();
}

$("key-open").addEventListener("click", () => askForKey("For servers that ask for one."));
$("key-cancel").addEventListener("click", () => $("key-dialog").close());
$("key-forget").addEventListener("click", () => takeKey(""));
$("key-form").addEventListener("submit", event => { event.preventDefault(); takeKey($("key").value); });
document.addEventListener("visibilitychange", poll);
poll();
