/* The page around chat and charts: models, settings, the key, the line with the server's state. */

/* name, label, minimum, maximum, step, meaning of an empty field without a default of the model */
const fields = [
  ["temperature", "Temperature", 0, 2, "any", "1"],
  ["top_p", "Top p", 0, 1, "any", "1"],
  ["top_k", "Top k", -1, 1e9, 1, "off"],
  ["min_p", "Min p", 0, 1, "any", "0"],
  ["max_tokens", "Max tokens", 1, 1e9, 1, "no limit"],
  ["seed", "Seed", -Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER, 1, "random"],
  ["presence_penalty", "Presence penalty", -2, 2, "any", "0"],
  ["frequency_penalty", "Frequency penalty", -2, 2, "any", "0"],
  ["repetition_penalty", "Repetition penalty", 0, 1000, "any", "1"],
];
const jsonFields = ["schema", "tools"];
const PLAIN_TOKENS = 256; /* of an answer without a chat template, which may have no end */
let models = [];

/* ---- settings ---- */

function keptSettings() {
  try { return JSON.parse(kept.get("settings")) || {}; } catch { return {}; }
}

function beginSettings() {
  const before = keptSettings();
  for (const [name, text, min, max, step] of fields) {
    const input = Object.assign(make("input"), {id: "f-" + name, type: "number", min, max, step, inputMode: "decimal", value: before[name] || ""});
    input.addEventListener("input", () => input.classList.remove("refused"));
    const label = make("label", "", text);
    label.htmlFor = input.id;
    label.append(input);
    $("fields").append(label);
  }
  $("system").value = before.system || "";
  $("probabilities").checked = Boolean(before.probabilities);
  for (const name of jsonFields) {
    $(name).value = before[name] || "";
    $(name).addEventListener("input", () => { $(name).classList.remove("refused"); $(name).setCustomValidity(""); });
  }
  $("sampling").addEventListener("input", keepSettings);
  $("sampling").addEventListener("submit", event => event.preventDefault());
  $("defaults").addEventListener("click", () => {
    for (const [name] of fields) Object.assign($("f-" + name), {value: ""}).classList.remove("refused");
    keepSettings();
  });
  showDefaults();
}

function keepSettings() {
  const now = {system: $("system").value, probabilities: $("probabilities").checked};
  for (const [name] of fields) now[name] = $("f-" + name).value;
  for (const name of jsonFields) now[name] = $(name).value;
  kept.set("settings", JSON.stringify(now));
}

const chosenModel = () => models.find(one => one.id === $("model").value);
/* Whether the model has no chat template and continues text. A gateway does not know it of upstream servers. */
const isPlain = () => chosenModel()?.has_chat_template === false;

function showDefaults() {
  const model = chosenModel(), plain = isPlain();
  for (const [name, , , , , none] of fields)
    $("f-" + name).placeholder = model?.default_sampling_params?.[name] ?? none;
  if (model?.max_model_len) $("f-max_tokens").placeholder = plain ? PLAIN_TOKENS : "up to " + model.max_model_len;
  for (const name of ["system", "probabilities", "tools"]) $(name).disabled = plain;
  const text = plain ? "This model has no chat template: it continues each text as it is, without memory of the others." : "";
  if ($("plain").textContent !== text) $("plain").textContent = text;
  showBusy();
}

function samplingFields() {
  const body = {};
  for (const [name] of fields) {
    const value = $("f-" + name).value;
    if (value !== "") body[name] = +value;
  }
  return body;
}

/* The value of a field with JSON; undefined if it is empty. Throws an error to show. */
function jsonOf(name) {
  const text = $(name).value.trim();
  if (!text) return undefined;
  let value;
  try { value = JSON.parse(text); } catch (error) { throw new Error("This is not JSON: " + error.message); }
  if (name === "tools" ? !Array.isArray(value) : !value || typeof value !== "object" || Array.isArray(value))
    throw new Error(name === "tools" ? "Tools are an array: [{\"type\": \"function\", …}]." : "A schema is an object: {\"type\": …}.");
  return value;
}

function formFields() {
  const schema = jsonOf("schema"), tools = isPlain() ? undefined : jsonOf("tools");
  return {response_format: schema && {type: "json_schema", json_schema: {name: "answer", schema, strict: true}}, tools};
}

/* Returns false if a field has an invalid value, and shows that field. */
function checkSampling() {
  for (const name of jsonFields) {
    let why = "";
    try { jsonOf(name); } catch (error) { why = error.message; }
    $(name).setCustomValidity(why);
    if (why) $(name).closest("details").open = true;
  }
  if ($("sampling").checkValidity()) return true;
  showView("settings");
  $("sampling").reportValidity();
  return false;
}

function refuseField(name) {
  const field = name.startsWith("response_format") ? $("schema") : name.startsWith("tools") ? $("tools") : $("f-" + name);
  field?.classList.add("refused");
}

/* ---- models ---- */

async function loadModels() {
  try {
    const list = await (await request("/v1/models")).json();
    models = [...list.data];
  } catch (error) {
    if (error.status === 401) askForKey(keyReason(), null);
    return;
  }
  const chosen = $("model").value;
  $("model").replaceChildren(...models.map(model => Object.assign(make("option", "", model.id), {value: model.id})));
  if (models.some(model => model.id === chosen)) $("model").value = chosen;
  showDefaults();
}

/* ---- the key ---- */

let waitingTurn = null; /* its answer continues once a key is entered */

const keyReason = () => kept.get("key") ? "The server does not take this key." : "This server asks for an API key.";

function askForKey(why, turn) {
  waitingTurn = turn;
  $("key-why").textContent = why;
  $("key").value = kept.get("key") || "";
  if (!$("key-dialog").open) $("key-dialog").showModal();
  $("key").select();
}

function takeKey(key) {
  kept.set("key", key.trim());
  $("key-dialog").close();
  loadModels();
  keyChanged();
  if (key && waitingTurn && turns.includes(waitingTurn)) answerFrom(turns.indexOf(waitingTurn));
}

function beginKey() {
  $("key-open").addEventListener("click", () => askForKey("For servers that ask for one.", null));
  $("key-cancel").addEventListener("click", () => $("key-dialog").close());
  $("key-forget").addEventListener("click", () => { waitingTurn = null; takeKey(""); });
  $("key-form").addEventListener("submit", event => { event.preventDefault(); takeKey($("key").value); });
}

/* ---- the state line ---- */

let wasGood = true;

/* The figures change each second: a screen reader reads only whether the server answers. */
function showState(sample, error) {
  const state = $("state");
  const good = sample?.up > 0;
  state.className = good ? "good" : "bad";
  if (sample) $("to-targets").hidden = !sample.gateway;
  const text = good ? sample.running + " running, " + sample.waiting + " waiting"
    : sample ? "the engine does not answer"
    : error.status === 401 ? "needs an API key"
    : error.status === 0 ? "the server does not answer"
    : "no figures: " + error.message;
  if (state.textContent !== text) state.textContent = text;
  if (!good) $("state-said").textContent = text;
  else if (!wasGood) $("state-said").textContent = "The server answers again.";
  $("facts").textContent = !sample ? "/metrics: " + error.message
    : !good ? "The front end is there, the engine is not."
    : [sample.policy && "policy " + sample.policy, sample.method && sample.method !== "none" && "drafts by " + sample.method, count(sample.preemptions) + " preemptions", count(sample.refused) + " requests refused (429)"].filter(Boolean).join(" · ");
  if (sample && (!models.length || good && !wasGood)) loadModels(); /* it may have another model now */
  wasGood = good;
}

/* ---- views ---- */

function showView(name) {
  document.body.dataset.view = name;
  for (const button of document.querySelectorAll("nav button"))
    if (button.dataset.to === name) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
  drawCharts();
}

for (const button of document.querySelectorAll("nav button")) button.addEventListener("click", () => showView(button.dataset.to));
/* The second click of a double click is for the first one's button, and another may be in its place by then. */
addEventListener("click", event => {
  if (event.detail < 2 || !event.target.closest?.("button")) return;
  event.preventDefault();
  event.stopPropagation();
}, true);
$("model").addEventListener("change", showDefaults);
beginSettings();
beginKey();
beginChat();
beginAttach();
beginHistory();
beginCharts();
loadModels();
beginPolling();
