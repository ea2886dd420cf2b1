/* The experiments below the table of targets: /gateway/experiments/report in words. */

/* name, 1: higher is better, -1: lower is better, 0: neither */
const metricOf = {
  errors: ["Errors", -1], cancelled: ["Cancelled by clients", -1], ttft: ["Time to first token", -1], latency: ["Time of an answer", -1],
  output_tokens: ["Tokens of an answer", 0], cached_tokens: ["Cached prompt tokens", 1], cache_hits: ["Answers from the cache", 1], cost: ["Cost of a request", -1],
};

/* ---- texts ---- */

const rounded = value => (Math.abs(value) >= 1e4 ? value.toFixed(0) : String(+value.toPrecision(3)));
const withUnit = (value, unit) => unit === "$" ? (value < 0 ? "−$" : "$") + rounded(Math.abs(value)) : rounded(value).replace("-", "−") + " " + unit;
const signed = (value, unit) => (value > 0 ? "+" : "") + withUnit(value, unit);

function differenceOf(row) {
  if (row.difference === undefined) return "–";
  const relative = row.control.mean ? 100 * row.difference / row.control.mean : NaN;
  return signed(row.difference, row.unit) + (Number.isFinite(relative) ? " (" + signed(relative, "%") + ")" : "");
}

/* [class, text] */
function verdictOf(row, control) {
  if (row.state === "too_few_requests") return ["mark-of", "too few requests: each arm needs 100"];
  if (row.state === "too_few_users") return ["mark-of", "too few users: a few send most requests"];
  if (row.state !== "difference") return ["mark-of", "no difference found yet"];
  const better = Math.sign(row.difference) * (metricOf[row.metric]?.[1] || 0);
  return ["mark-of " + (better > 0 ? "good" : better < 0 ? "bad" : "warn"),
    (row.difference > 0 ? "higher" : "lower") + " than " + control + (better > 0 ? ": better" : better < 0 ? ": worse" : "")];
}

function armCells(arm, i, all) {
  const weights = all.reduce((sum, one) => sum + one.weight, 0);
  return [["", arm.arm + (i ? "" : " (control)")], ["", arm.model], ["", rounded(100 * arm.weight / weights) + " %"], ["", shortNumber(arm.requests)]];
}

function comparisonCells(row, control) {
  return [["", (metricOf[row.metric]?.[0] || row.metric) + (row.is_chosen ? " (decides)" : "")], ["", row.arm],
    ["", shortNumber(row.control.n) + " / " + shortNumber(row.arm_values.n)], ["", row.control.n ? withUnit(row.control.mean, row.unit) : "–"],
    ["", row.arm_values.n ? withUnit(row.arm_values.mean, row.unit) : "–"], ["", differenceOf(row)],
    ["", row.low === undefined ? "–" : signed(row.low, row.unit) + " to " + signed(row.high, row.unit)], verdictOf(row, control)];
}

function headOf(experiment) {
  const requests = experiment.arms.reduce((sum, arm) => sum + arm.requests, 0);
  return (experiment.by === "user" ? "Each user stays in one arm" : "Each request gets an arm of its own") + ". " +
    (experiment.since ? shortNumber(requests) + " requests since " + new Date(experiment.since * 1000).toLocaleString() : "No request yet") + ". " +
    (experiment.metric ? (metricOf[experiment.metric]?.[0] || experiment.metric) + " decides." : "All metrics count alike.") +
    " You may look at any time: an interval has the true difference with " + rounded(100 - 100 * experiment.alpha) + " % certainty at every look.";
}

/* ---- tables ---- */

const ARM_HEADS = ["Arm", "Model", "Share", "Requests"];
const COMPARISON_HEADS = ["Metric", "Arm", "Samples", "Control", "Arm’s value", "Difference", "Interval of it", "Verdict"];

function makeTable(caption, heads) {
  const row = make("tr", "", ...heads.map(text => Object.assign(make("th", "", text), {scope: "col"})));
  return make("table", "sheet-table", make("caption", "unseen", caption), make("thead", "", row), make("tbody"));
}

/* rows: cells as [class, text]; the first is the row's head. Only what changed is written. */
function fillTable(table, rows) {
  const body = table.tBodies[0];
  while (body.rows.length > rows.length) body.lastChild.remove();
  while (body.rows.length < rows.length)
    body.append(make("tr", "", ...rows[0].map((cell, i) => i ? make("td") : Object.assign(make("th"), {scope: "row"}))));
  rows.forEach((cells, i) => cells.forEach(([kind, text], k) => {
    const cell = body.rows[i].cells[k];
    if (cell.textContent !== text) cell.textContent = text;
    if (cell.className !== kind) cell.className = kind;
  }));
}

function makeExperiment(experiment) {
  return make("section", "", make("h3", "", experiment.experiment), make("p", "hint"), make("ul", "warnings"),
    makeTable("Arms of " + experiment.experiment, ARM_HEADS), makeTable("Comparisons of " + experiment.experiment, COMPARISON_HEADS));
}

function fillExperiment(node, experiment) {
  const [, head, warnings, arms, comparisons] = node.children;
  if (head.textContent !== headOf(experiment)) head.textContent = headOf(experiment);
  if (warnings.children.length !== experiment.warnings.length)
    warnings.replaceChildren(...experiment.warnings.map(text => make("li", "", text)));
  fillTable(arms, experiment.arms.map(armCells));
  const rows = [...experiment.comparisons].sort((a, b) => b.is_chosen - a.is_chosen);
  fillTable(comparisons, rows.map(row => comparisonCells(row, experiment.arms[0].arm)));
}

let shownExperiments = ""; /* their names and arms */

function showExperiments(experiments) {
  const box = $("experiments");
  const keys = JSON.stringify(experiments.map(one => [one.experiment, one.run, one.warnings]));
  if (keys !== shownExperiments) box.replaceChildren(...experiments.map(makeExperiment));
  shownExperiments = keys;
  experiments.forEach((one, i) => fillExperiment(box.children[i], one));
  $("no-experiments").hidden = experiments.length > 0;
}
