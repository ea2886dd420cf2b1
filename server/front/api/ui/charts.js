/* Line charts in SVG: the last two minutes, one crosshair for all. */

const count = value => shortNumber(value);
const rate = value => shortNumber(value) + "/s";
const charts = [
  {title: "Requests", note: "in the engine", unit: count, whole: true,
    series: [["running", "running (batch)"], ["waiting", "waiting (queue)"]]},
  {title: "KV blocks", note: "in use", unit: count, whole: true, series: [["used", "used"]],
    remark: last => last.blocks ? "of " + count(last.blocks) : ""},
  {title: "Time to first token", note: "last 10 s", unit: shortMs, series: [["ttft50", "p50"], ["ttft95", "p95"], ["ttftMean", "mean"]]},
  {title: "Inter-token latency", note: "last 10 s", unit: shortMs, series: [["itl50", "p50"], ["itl95", "p95"], ["itlMean", "mean"]]},
  {title: "Throughput", note: "tokens a second", unit: rate, series: [["generated", "generated"], ["prompt", "prompt, computed"]]},
  {title: "Prefix cache hits", note: "share of prompt tokens, last 10 s", unit: value => (value * 100).toFixed(0) + " %", top: 1, series: [["hitRate", "hit rate"]],
    remark: last => last.queries ? (last.hits * 100 / last.queries).toFixed(0) + " % since the start" : ""},
  {title: "Kept answers given", note: "share of requests, last 10 s", unit: value => (value * 100).toFixed(0) + " %", top: 1, series: [["given", "given"]],
    remark: last => last.computed === null ? "no answers are kept" : last.given + last.joined ? ((last.given + last.joined) * 100 / (last.given + last.joined + last.computed)).toFixed(0) + " % since the start" : ""},
  {title: "Tokens a step", note: "of a sequence, last 10 s: more than 1 by speculation", unit: value => value.toFixed(2), series: [["perStep", "tokens a step"]],
    remark: last => last.generated && last.accepted ? (last.generated / (last.generated - last.accepted)).toFixed(2) + " since the start" : ""},
  {title: "Drafts that were right", note: "share, last 10 s", unit: value => (value * 100).toFixed(0) + " %", top: 1, series: [["acceptance", "right"]],
    remark: last => last.drafted ? (last.accepted * 100 / last.drafted).toFixed(0) + " % since the start" : "nothing was guessed"},
];
const HEIGHT = 128, LEFT = 50, RIGHT = 8, TOP = 10, BOTTOM = 18;
let cursorTime = null; /* time of the point under the cursor */

function makeSvg(tag, attributes) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

function beginCharts() {
  for (const chart of charts) {
    chart.figure = make("figure", "", make("figcaption", "", chart.title + " ", make("span", "", chart.note)));
    chart.svg = makeSvg("svg", {role: "img", tabindex: 0});
    chart.lines = chart.series.map((one, i) => makeSvg("path", {class: "series s" + i, "data-series": one[0]}));
    chart.back = makeSvg("g", {});
    chart.cursor = makeSvg("line", {class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM});
    chart.svg.append(chart.back, ...chart.lines, chart.cursor);
    chart.tip = make("div", "tip");
    chart.tip.hidden = true;
    chart.values = chart.series.map(() => make("b", "", "–"));
    chart.remarked = make("li", "quiet");
    chart.figure.append(chart.svg, make("ul", "legend", ...chart.series.map((one, i) => {
      const sample = makeSvg("svg", {viewBox: "0 0 20 8", "aria-hidden": "true"});
      sample.append(makeSvg("path", {class: "series s" + i, d: "M1 4H19"}));
      return make("li", "", sample, one[1] + " ", chart.values[i]);
    }), chart.remarked), chart.tip);
    chart.svg.addEventListener("pointermove", event => pointAt(chart, event.offsetX));
    chart.svg.addEventListener("pointerdown", event => pointAt(chart, event.offsetX));
    chart.svg.addEventListener("pointerleave", () => moveCursor(chart, null));
    chart.svg.addEventListener("blur", () => moveCursor(chart, null));
    chart.svg.addEventListener("keydown", event => keyAt(chart, event));
    $("charts").append(chart.figure);
  }
  new ResizeObserver(drawCharts).observe($("charts"));
}

/* The smallest round number that is not smaller. For whole numbers, its half (the middle line) is whole, too. */
function niceTop(value, whole) {
  const least = whole ? 2 : 1e-3;
  if (!(value > least)) return least;
  const ten = 10 ** Math.floor(Math.log10(value));
  return (whole ? [2, 4, 6, 10] : [1, 2, 5, 10]).map(factor => factor * ten).find(top => top >= value * .9999) || 20 * ten;
}

/* The path has a gap at a missing value, or after 4 s without a point. */
function pathOf(key, x, y) {
  let path = "", last = null;
  for (const point of points) {
    const value = point[key];
    if (value === null || value === undefined) { last = null; continue; }
    const joined = last !== null && point.time - last < 4000;
    path += (joined ? "L" : "M") + x(point.time).toFixed(1) + " " + y(value).toFixed(1) + (joined ? "" : "h.01");
    last = point.time;
  }
  return path;
}

function drawChart(chart) {
  const width = chart.svg.clientWidth;
  if (!width) return;
  const now = points.length ? points[points.length - 1].time : 0;
  let highest = 0;
  for (const point of points)
    for (const [key] of chart.series) highest = Math.max(highest, point[key] || 0);
  const top = chart.top || niceTop(highest, chart.whole);
  const x = time => width - RIGHT - (now - time) / HISTORY_MS * (width - LEFT - RIGHT);
  const y = value => HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM);
  chart.x = x;
  chart.back.replaceChildren();
  for (const part of [0, .5, 1]) {
    const at = y(top * part);
    chart.back.append(makeSvg("line", {class: "grid", x1: LEFT, x2: width - RIGHT, y1: at, y2: at}));
    const label = makeSvg("text", {x: LEFT - 6, y: at + 4, "text-anchor": "end"});
    label.textContent = chart.unit(top * part);
    chart.back.append(label);
  }
  for (const [share, text, anchor] of [[0, "2 min ago", "start"], [.5, "1 min", "middle"], [1, "now", "end"]]) {
    const label = makeSvg("text", {x: LEFT + share * (width - LEFT - RIGHT), y: HEIGHT - 3, "text-anchor": anchor});
    label.textContent = text;
    chart.back.append(label);
  }
  const latest = points[points.length - 1] || {};
  const told = chart.series.map(([key, name], i) => {
    chart.lines[i].setAttribute("d", pathOf(key, x, y));
    const value = latest[key];
    chart.values[i].textContent = value === null || value === undefined ? "–" : chart.unit(value);
    return name + " " + chart.values[i].textContent;
  });
  chart.remarked.textContent = chart.remark && samples.length ? chart.remark(samples[samples.length - 1]) : "";
  chart.svg.setAttribute("aria-label", chart.title + ", " + chart.note + ": " + told.join(", ") + ". Arrow keys read earlier values.");
  drawCursor(chart);
}

function drawCharts() {
  if ($("live").clientWidth) charts.forEach(drawChart);
}

/* ---- the crosshair ---- */

function drawCursor(chart) {
  const point = points.find(one => one.time === cursorTime);
  chart.cursor.style.display = point ? "" : "none";
  if (!point || !chart.x) return;
  chart.cursor.setAttribute("x1", chart.x(point.time));
  chart.cursor.setAttribute("x2", chart.x(point.time));
}

function drawTip(chart) {
  const point = points.find(one => one.time === cursorTime);
  chart.tip.hidden = !point;
  if (!point) return;
  const age = Math.round((points[points.length - 1].time - point.time) / 1000);
  const table = make("table");
  chart.series.forEach(([key, name]) => {
    const value = point[key];
    table.append(make("tr", "", make("th", "", name), make("td", "", value === null || value === undefined ? "–" : chart.unit(value))));
  });
  chart.tip.replaceChildren(age ? age + " s ago" : "now", table);
  const x = chart.x(point.time), width = chart.svg.clientWidth, own = chart.tip.offsetWidth;
  chart.tip.style.left = (x > width / 2 ? x - own + 2 : x + 20) + "px";
  chart.tip.style.top = "34px";
}

/* time null: no point is under the cursor. */
function moveCursor(chart, time) {
  cursorTime = time;
  charts.forEach(drawCursor);
  drawTip(chart);
}

function pointAt(chart, at) {
  if (!points.length || !chart.x) return;
  const nearest = points.reduce((best, one) => Math.abs(chart.x(one.time) - at) < Math.abs(chart.x(best.time) - at) ? one : best);
  moveCursor(chart, nearest.time);
}

function keyAt(chart, event) {
  const step = {ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity}[event.key];
  if (event.key === "Escape") moveCursor(chart, null);
  if (!step || !points.length) return;
  event.preventDefault();
  const at = points.findIndex(one => one.time === cursorTime);
  const from = at < 0 ? points.length : at;
  moveCursor(chart, points[Math.max(0, Math.min(points.length - 1, from + step))].time);
}
