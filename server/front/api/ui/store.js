/* Conversations in the browser's storage: an entry for each, so that two tabs do not write each other's. What is read, from
 * the storage or a file, is checked. */

const PREFIX = "quire.chat.", MAX_TITLE = 80;

/* The parts of a turn that are kept. Throws an error that names the faulty place. */
function checkedTurn(turn, where) {
  const fail = (name, why) => { throw new Error(where + (name && "." + name) + ": " + why); };
  if (!turn || typeof turn !== "object") fail("", "must be an object");
  if (!["user", "assistant", "tool"].includes(turn.role)) fail("role", "must be \"user\", \"assistant\" or \"tool\"");
  if (typeof turn.text !== "string") fail("text", "must be a string");
  const kept = {role: turn.role, text: turn.text};
  for (const name of ["model", "reasoning", "call_id", "name"]) {
    if (turn[name] === undefined) continue;
    if (typeof turn[name] !== "string") fail(name, "must be a string");
    kept[name] = turn[name];
  }
  if (turn.json) kept.json = true;
  const listOf = (name, fields) => {
    if (turn[name] === undefined) return;
    if (!Array.isArray(turn[name])) fail(name, "must be an array");
    kept[name] = turn[name].map((one, i) => Object.fromEntries(fields.map(field => {
      if (typeof one?.[field] !== "string") fail(name + "[" + i + "]." + field, "must be a string");
      return [field, one[field]];
    })));
  };
  listOf("files", ["name", "text"]);
  listOf("calls", ["id", "name", "arguments"]);
  return kept;
}

function checkedChat(chat, where) {
  if (!chat || typeof chat !== "object") throw new Error(where + ": must be an object");
  if (typeof chat.id !== "string" || !/^[\w-]{1,64}$/.test(chat.id)) throw new Error(where + ".id: must be letters, digits, - and _, at most 64");
  if (typeof chat.title !== "string") throw new Error(where + ".title: must be a string");
  if (!Number.isFinite(chat.changed)) throw new Error(where + ".changed: must be a number: milliseconds since 1970");
  if (!Array.isArray(chat.turns)) throw new Error(where + ".turns: must be an array");
  return {id: chat.id, title: chat.title.slice(0, MAX_TITLE), changed: chat.changed, turns: chat.turns.map((turn, i) => checkedTurn(turn, where + ".turns[" + i + "]"))};
}

const makeId = () => Array.from(crypto.getRandomValues(new Uint8Array(12)), byte => byte.toString(16).padStart(2, "0")).join("");

const store = {
  /* The entry's text; null if it is missing or the storage is forbidden. */
  raw(id) {
    try { return localStorage.getItem(PREFIX + id); } catch { return null; }
  },
  /* null: there is none, or an entry that is not a conversation. */
  read(id) {
    try { return checkedChat(JSON.parse(localStorage.getItem(PREFIX + id)), id); } catch { return null; }
  },
  /* Returns false if the storage is full or forbidden; the entry then stays as it was. */
  write(chat) {
    try {
      localStorage.setItem(PREFIX + chat.id, JSON.stringify(chat));
      return true;
    } catch { return false; }
  },
  remove(id) {
    try { localStorage.removeItem(PREFIX + id); } catch { /* forbidden: there is nothing */ }
  },
  /* The newest first. */
  all() {
    try {
      return Object.keys(localStorage).filter(key => key.startsWith(PREFIX)).map(key => store.read(key.slice(PREFIX.length)))
        .filter(Boolean).sort((a, b) => b.changed - a.changed);
    } catch { return []; }
  },
};

/* ---- files of conversations ---- */

const exported = chats => JSON.stringify({quire: "conversations", version: 1, conversations: chats}, null, 1);

/* The conversations of a file's text. Throws an error to show. */
function imported(text) {
  let file;
  try { file = JSON.parse(text); } catch { throw new Error("It is not JSON."); }
  if (file?.quire !== "conversations") throw new Error("It was not exported by this page: \"quire\" must be \"conversations\".");
  if (file.version !== 1) throw new Error("This page reads version 1, and the file has another.");
  if (!Array.isArray(file.conversations)) throw new Error("conversations: must be an array");
  return file.conversations.map((chat, i) => checkedChat(chat, "conversations[" + i + "]"));
}
