/* The list of conversations: which one is open, the others, export, import, and undo of a deletion. */

const MAX_IMPORT = 50e6; /* bytes */
let current = kept.get("chat") || makeId();
let seen = null;         /* its entry as this page read or wrote it last */
let undo = null;         /* brings back what was deleted */

/* ---- the notice below the header ---- */

function showNotice(text, act) {
  undo = act || null;
  $("notice-text").textContent = text;
  $("undo").hidden = !act;
  $("notice").classList.toggle("shown", Boolean(text));
}

/* ---- the open conversation ---- */

/* Leaves out a question whose answer failed, was stopped or was left before its first word: many templates need questions
 * and answers in turn. */
const isSaid = turn => turn.text || turn.calls?.length || turn.files?.length;
const said = list => list.filter((turn, i) => isSaid(turn) && !(turn.role === "user" && list[i + 1] && (list[i + 1].role === "user" || !isSaid(list[i + 1]))));

let isKept = true; /* the last write succeeded */

/* The open conversation as it is kept. */
function shownChat() {
  const plain = turns.filter(isSaid).map(({role, text, model, reasoning, calls, call_id, name, files, json}) =>
    ({role, text, model, reasoning, calls, call_id, name, files, json}));
  const title = titleOf(plain[0]?.text || plain[0]?.files?.[0].name || "");
  return {id: current, title, changed: Date.now(), turns: plain};
}

function keepTurns() {
  if (!turns.some(isSaid)) return;
  const there = store.raw(current);
  if (there !== null && there !== seen) current = makeId(); /* another tab changed it: both are kept */
  kept.set("chat", current);
  isKept = store.write(shownChat());
  if (!isKept)
    showNotice("The browser’s storage is full or forbidden: this conversation is kept only while the page shows it. Export conversations and delete some.");
  seen = store.raw(current);
  listChats();
}

function showTurns(list) {
  cutTurns(0);
  for (const turn of list) addTurn(turn);
  showBusy();
  scrollDown(true);
}

function showStored() {
  isKept = true;
  seen = store.raw(current);
  showTurns(store.read(current)?.turns || []);
}

function openChat(id) {
  if (stopper) {
    showNotice("Wait for the end of the answer, or stop it.");
    return;
  }
  const from = current, lost = isKept ? null : turns.slice();
  current = id;
  kept.set("chat", id);
  showStored();
  listChats();
  if (lost) showNotice("The conversation before this one is not kept: the browser’s storage is full or forbidden.", () => {
    if (stopper) return false;
    openChat(from);
    showTurns(lost);
    isKept = false;
    return true;
  });
}

/* ---- deletion ---- */

function deleteChat(id) {
  if (stopper) {
    showNotice("Wait for the end of the answer, or stop it.");
    return;
  }
  const chat = store.read(id), shown = id === current ? turns.slice() : null;
  if (!chat && !shown?.length) return;
  store.remove(id);
  if (shown) openChat(makeId());
  else listChats();
  showNotice("The conversation was deleted.", () => {
    if (stopper) return false;
    if (chat && !store.write(chat)) return false;
    openChat(id);
    if (shown) showTurns(shown);
    return true;
  });
}

/* ---- the list ---- */

function listChats() {
  const chats = store.all();
  const focused = document.activeElement?.dataset?.chat;
  $("chats").replaceChildren(...chats.map(chat => {
    const open = makeButton(chat.title, () => { openChat(chat.id); if (current === chat.id) leaveHistory(); });
    open.dataset.chat = "open " + chat.id;
    open.title = new Date(chat.changed).toLocaleString();
    if (chat.id === current) open.setAttribute("aria-current", "true");
    const remove = makeButton("✕", () => { deleteChat(chat.id); $("undo").focus(); });
    remove.dataset.chat = "delete " + chat.id;
    remove.ariaLabel = "Delete " + chat.title;
    return make("li", "", open, remove);
  }));
  $("no-chats").hidden = chats.length > 0;
  $("export").disabled = !chats.length && isKept;
  if (focused) document.querySelector("[data-chat=\"" + focused + "\"]")?.focus();
}

/* On a narrow page, the list is a view of its own. */
function leaveHistory() {
  if (document.body.dataset.view === "history") showView("chat");
  $("input").focus();
}

/* ---- export and import ---- */

/* The open one as it is shown: a full storage may have less of it. */
function allChats() {
  return isKept ? store.all() : [checkedChat(shownChat(), ""), ...store.all().filter(chat => chat.id !== current)];
}

function exportChats() {
  const link = make("a");
  link.href = URL.createObjectURL(new Blob([exported(allChats())], {type: "application/json"}));
  link.download = "quire-conversations.json";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

/* Adds a file's conversations. One that is here already is left out; another one with the same id gets a new id. */
async function importChats(file) {
  try {
    if (file.size > MAX_IMPORT) throw new Error("It has more than 50 MB.");
    const chats = imported(await file.text());
    let added = 0, known = 0;
    for (const chat of chats) {
      const here = store.read(chat.id);
      if (here && JSON.stringify(here) === JSON.stringify(chat)) known++;
      else if (store.write(here ? {...chat, id: makeId()} : chat)) added++;
      else break;
    }
    const full = added + known < chats.length;
    showNotice(file.name + ": " + added + " of " + chats.length + " conversations were imported" + (known ? ", " + known + " were here already" : "") +
      (full ? "; then the browser’s storage was full." : "."));
    listChats();
  } catch (error) {
    showNotice(file.name + " was not imported. " + error.message);
  }
}

/* ---- another tab ---- */

function takeStorageEvent(event) {
  if (event.key !== null && !event.key.startsWith(PREFIX)) return;
  followOthers();
}

/* Shows what another tab wrote, unless an answer or an edit is under way. A browser tells a page nothing while it is frozen. */
function followOthers() {
  const there = store.raw(current);
  if (there !== null && there !== seen && !stopper && !document.querySelector("#log textarea")) showStored();
  listChats();
}

function beginHistory() {
  $("new").addEventListener("click", () => { openChat(makeId()); leaveHistory(); });
  $("export").addEventListener("click", exportChats);
  $("import").addEventListener("click", () => $("import-file").click());
  $("import-file").addEventListener("change", async () => {
    if ($("import-file").files[0]) await importChats($("import-file").files[0]);
    $("import-file").value = "";
  });
  $("clear").addEventListener("click", () => { deleteChat(current); $("input").focus(); });
  $("undo").addEventListener("click", () => {
    if (undo?.() !== false) showNotice("");
    $("input").focus();
  });
  $("notice-close").addEventListener("click", () => { showNotice(""); $("input").focus(); });
  addEventListener("storage", takeStorageEvent);
  addEventListener("pageshow", event => { if (event.persisted) followOthers(); });
  addEventListener("pagehide", () => { if (stopper) keepTurns(); });
  document.addEventListener("visibilitychange", () => { if (stopper && document.hidden) keepTurns(); });
  showStored();
  listChats();
}
