/* The table of batches: reads /v1/batches and /v1/messages/batches every two seconds while the page is visible. */

const POLL_MS = 2000;
const SHOWN = 100;

/* ---- one batch, of either API ---- */

const kinds = {completed: "good", ended: "good", failed: "bad", expired: "bad", cancelling: "warn", canceling: "warn", cancelled: "warn"};
const canCancel = ["validating", "in_progress"];
const runs = [...canCancel, "finalizing", "cancelling", "canceling"];

function fromOpenAI(batch) {
  const counts = batch.request_counts;
  return {id: batch.id, endpoint: batch.endpoint, state: batch.status, total: counts.total, done: counts.completed + counts.failed, failed: counts.failed,
    usage: batch.usage, at: batch.created_at * 1000, why: (batch.errors?.data || []).map(error => error.message).join("; "), path: "/v1/batches/" + batch.id};
}

function fromAnthropic(batch) {
  const counts = batch.request_counts;
  const failed = counts.errored + counts.canceled + counts.expired;
  return {id: batch.id, endpoint: "/v1/messages", state: batch.processing_status, total: counts.processing + counts.succeeded + failed,
    done: counts.succeeded + failed, failed, usage: batch.usage, at: Date.parse(batch.created_at), why: batch.error || "", path: "/v1/messages/batches/" + batch.id};
}

/* ---- one row ---- */

/* [class, text] of each cell but the last. */
function cellsOf(batch) {
  const plain = text => ["", String(text)];
  return [plain(batch.id), plain(batch.endpoint), ["mark-of " + (kinds[batch.state] || ""), batch.state + (batch.why ? ": " + batch.why : "")],
    plain(batch.done + " of " + batch.total), plain(batch.failed), plain(shortNumber(batch.usage.input_tokens)), plain(shortNumber(batch.usage.output_tokens)),
    plain("$" + batch.usage.cost), plain(new Date(batch.at).toLocaleString())];
}

function makeRow(batch) {
  const row = make("tr");
  cellsOf(batch).forEach((cell, i) => row.append(make(i < 1 ? "th" : "td")));
  row.children[0].scope = "row";
  row.children[3].append(document.createElement("progress"), make("span"));
  const button = makeButton("Cancel", () => cancel(batch.path));
  button.setAttribute("aria-label", "Cancel " + batch.id);
  const last = make("td");
  last.append(button);
  row.append(last);
  return row;
}

/* Only what changed is written, so that a selection and a screen reader's place stay. */
function fillRow(row, batch) {
  cellsOf(batch).forEach(([kind, text], i) => {
    const cell = i === 3 ? row.children[i].lastChild : row.children[i];
    if (cell.textContent !== text) cell.textContent = text;
    if (i !== 3 && cell.className !== kind) cell.className = kind;
  });
  const bar = row.querySelector("progress");
  bar.max = batch.total || 1;
  bar.value = batch.done;
  row.querySelector("button").hidden = !canCancel.includes(batch.state);
}

async function cancel(path) {
  try {
    await request(path + "/cancel", {method: "POST"});
    poll();
  } catch (error) {
    showState(error.message, "bad");
  }
}

/* ---- the table ---- */

let shown = ""; /* the ids of the rows */

function showBatches(batches) {
  const body = $("batches").tBodies[0];
  const ids = JSON.stringify(batches.map(batch => batch.id));
  if (ids !== shown) body.replaceChildren(...batches.map(makeRow));
  shown = ids;
  batches.forEach((batch, i) => fillRow(body.rows[i], batch));
  $("empty").hidden = batches.length > 0;
}

function showState(text, kind) {
  $("state").className = kind;
  if ($("state").textContent !== text) $("state").textContent = text;
}

/* Costs keep their digits: they are read as text. */
const parseBatches = text => JSON.parse(text.replace(/"cost":([0-9.]+)/g, '"cost":"$1"')).data;
const read = async path => parseBatches(await (await request(path + "?limit=" + SHOWN)).text());

let timer = 0, polling = false, keyRefused = false;

async function poll() {
  clearTimeout(timer);
  if (polling || keyRefused || document.hidden) return;
  polling = true;
  try {
    const batches = (await read("/v1/batches")).map(fromOpenAI).concat((await read("/v1/messages/batches")).map(fromAnthropic));
    batches.sort((a, b) => b.at - a.at);
    const n = batches.filter(batch => runs.includes(batch.state)).length;
    showBatches(batches);
    showState(n ? n + " running" : "none running", "good");
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
