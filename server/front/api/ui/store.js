/* Conversations in the browser's storage: an entry for each, so that two tabs do not write each other's. What is read, from
 * the storage or a file, is checked. */

const PREFIX = "quire.chat.", MAX_TITLE = 80, MAX_TURNS = 10000, MAX_CHATS = 5000, MAX_DEPTH = 20; /* a browser needs 1 s for either */

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
  if (turn.role === "tool" && (kept.call_id === undefined || kept.name === undefined)) fail("", "a result of a tool must have call_id and name");
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
  return {id: chat.id, title: titleOf(chat.title), changed: chat.changed, turns: chat.turns.map((turn, i) => checkedTurn(turn, where + ".turns[" + i + "]"))};
}

/* The first line that can be read. */
function titleOf(text) {
  const line = text.slice(0, MAX_PIECE).split("\n").find(one => /[^\s\p{C}\p{M}\u115f\u1160\u2800\u3164\uffa0]/u.test(one)) || "Conversation";
  return line.trim().slice(0, cutBefore(line.trim(), MAX_TITLE));
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

/* Whether brackets stand in more than MAX_DEPTH others. JSON.parse needs 50 bytes of memory for each, which can end the page. */
function isDeep(text) {
  let depth = 0, isString = false;
  for (let i = 0; i < text.length && depth <= MAX_DEPTH; i++) {
    const char = text[i];
    if (char === "\"") isString = !isString;
    else if (char === "\\") i++;
    else if (isString) continue;
    else if (char === "[" || char === "{") depth++;
    else if (char === "]" || char === "}") depth--;
  }
  return depth > MAX_DEPTH;
}

/* The conversations of a file's text. Throws an error to show. */
function imported(text) {
  let file;
  if (isDeep(text)) throw new Error("It has brackets in more than " + MAX_DEPTH + " others.");
  try { file = JSON.parse(text); } catch { throw new Error("It is not JSON."); }
  if (file?.quire !== "conversations") throw new Error("It was not exported by this page: \"quire\" must be \"conversations\".");
  if (file.version !== 1) throw new Error("This page reads version 1, and the file has another.");
  if (!Array.isArray(file.conversations)) throw new Error("conversations: must be an array");
  if (file.conversations.length > MAX_CHATS) throw new Error("conversations: must be at most " + MAX_CHATS);
  return file.conversations.map((chat, i) => {
    const where = "conversations[" + i + "]";
    if (chat?.turns?.length > MAX_TURNS) throw new Error(where + ".turns: must be at most " + MAX_TURNS);
    return checkedChat(chat, where);
  });
}
