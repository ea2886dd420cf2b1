"use strict";
/* The connection to the server: requests with the key, readable errors, server-sent events. */

const root = location.pathname.replace(/\/ui(\/targets|\/batches)?\/?$/, "");

/* Storage of the tab. If a browser forbids storage, a reload loses the values. */
const kept = {
  get(name) {
    try { return sessionStorage.getItem("quire." + name); } catch { return null; }
  },
  set(name, value) {
    try {
      if (value) sessionStorage.setItem("quire." + name, value);
      else sessionStorage.removeItem("quire." + name);
    } catch { /* full or forbidden */ }
  },
};

class ApiError extends Error {
  constructor(status, fields, retryMs) {
    super(fields.message || "The server answered " + status + ".");
    this.status = status;
    this.code = fields.code || "";
    this.param = fields.param || "";
    this.retryMs = retryMs;
  }
}

async function errorOf(response) {
  let fields = {};
  try { fields = (await response.json()).error || {}; } catch { /* a proxy's page */ }
  const ms = response.headers.get("retry-after-ms"), seconds = response.headers.get("Retry-After");
  return new ApiError(response.status, fields, ms ? +ms : seconds ? +seconds * 1000 : 0);
}

/* Throws an error response; status 0 means that the server cannot be reached. */
async function request(path, options = {}) {
  const headers = {};
  const key = kept.get("key");
  if (key && !/^[\x21-\x7e]+$/.test(key)) throw new ApiError(401, {message: "The API key has characters that no key has."}, 0);
  if (key) headers.Authorization = "Bearer " + key;
  if (options.body) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(root + path, {...options, headers, cache: "no-store", credentials: "omit"});
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, {message: "The server does not answer."}, 0);
  }
  if (!response.ok) throw await errorOf(response);
  return response;
}

/* The JSON of each event, up to [DONE]. */
async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const {done, value} = await reader.read().catch(error => {
      if (error.name === "AbortError") throw error;
      return {done: true};
    });
    if (done) throw new ApiError(0, {message: "The connection broke before the answer was complete."}, 0);
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data: ")) continue;
      if (line.startsWith("data: [DONE]")) return;
      const event = JSON.parse(line.slice(6));
      if (event.error) throw new ApiError(event.error.type === "rate_limit_error" ? 429 : 500, event.error, 0);
      yield event;
    }
  }
}

/* ---- the document: text is only inserted as text ---- */

const $ = id => document.getElementById(id);

/* make("p", "hint", "text", child, …) */
function make(tag, kind, ...children) {
  const node = document.createElement(tag);
  if (kind) node.className = kind;
  node.append(...children);
  return node;
}

function makeButton(text, act) {
  const button = make("button", "", text);
  button.type = "button";
  button.addEventListener("click", act);
  return button;
}

const shortNumber = value => value.toLocaleString("en", value < 1e4 ? {maximumFractionDigits: value < 10 ? 2 : value < 100 ? 1 : 0}
  : {notation: "compact", maximumFractionDigits: 1});
const shortMs = ms => ms >= 1000 ? shortNumber(ms / 1000) + " s" : shortNumber(ms) + " ms";

/* The links to the other pages. */
for (const link of document.querySelectorAll("[data-page]")) link.href = root + "/ui" + link.dataset.page;
