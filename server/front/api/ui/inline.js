/* Markdown inside a block: emphasis, code, links. Linear in the text: at most MAX_OPEN marks are open at a time. */

const MAX_OPEN = 16;
const SPECIAL = /[\\`*_~[\]!<]|https?:\/\//g, TARGET = /\( ?<?([^\s()<>]{0,2000}(?:\([^\s()<>]{0,200}\)[^\s()<>]{0,200}){0,5})>?(?: {1,3}"[^"\n]{0,500}")? ?\)/y;
const BARE = /https?:\/\/[^\s<>"`]{1,2000}/y, POINTED = /<(https?:\/\/[^\s<>]{1,2000})>/y;
const isWord = char => char !== undefined && /[\p{L}\p{N}_]/u.test(char);
const isSpace = char => char === undefined || char.trim() === "";

/* A link that opens in a tab of its own; null for an address that is not of the web. Images are links too: the page loads
 * nothing from elsewhere. */
function makeLink(address, children) {
  let url;
  try { url = new URL(address); } catch { return null; }
  if (!["http:", "https:", "mailto:"].includes(url.protocol)) return null;
  const link = Object.assign(make("a"), {href: url.href, title: url.href, target: "_blank", rel: "noopener noreferrer"});
  for (const child of children) link.append(child);
  return link;
}

/* Finds the next run of exactly n backticks; each position is passed once for each length. */
class Ticks {
  constructor(text) {
    this.runs = new Map();
    for (const run of text.matchAll(/`+/g)) {
      const n = run[0].length;
      if (!this.runs.has(n)) this.runs.set(n, {at: 0, places: []});
      this.runs.get(n).places.push(run.index);
    }
  }

  after(place, n) {
    const run = this.runs.get(n);
    while (run && run.at < run.places.length && run.places[run.at] <= place) run.at++;
    return run?.places[run.at] ?? -1;
  }
}

class Inline {
  constructor(text) {
    this.text = text;
    this.open = [{mark: "", nodes: []}]; /* marks that wait for their end, and the text behind them */
    this.ticks = null;
    this.free = 0;        /* the place after the last space outside all marks */
    this.isTicked = false; /* a code without an end began: no space after it is outside */
  }

  get top() { return this.open[this.open.length - 1]; }

  put(node) {
    const nodes = this.top.nodes;
    if (typeof node === "string" && typeof nodes[nodes.length - 1] === "string") nodes[nodes.length - 1] += node;
    else if (node !== "") nodes.push(node);
  }

  push(mark, literal = mark) {
    if (this.open.length <= MAX_OPEN) this.open.push({mark, literal, nodes: []});
    else this.put(literal);
  }

  /* The marks above that place have no end: they are text. */
  drop(place) {
    while (this.open.length > place) {
      const {literal, nodes} = this.open.pop();
      this.put(literal);
      for (const node of nodes) this.put(node);
    }
  }

  close(place, tag) {
    this.drop(place + 1);
    const node = make(tag);
    for (const child of this.open.pop().nodes) node.append(child);
    this.put(node);
  }

  /* A run of *, _ or ~ from that place. Returns its length. */
  takeRun(at) {
    const {text} = this, char = text[at];
    let n = 1;
    while (text[at + n] === char) n++;
    const before = text[at - 1], after = text[at + n];
    const inWord = char === "_" && isWord(before) && isWord(after);
    const closes = !isSpace(before) && !inWord, opens = !isSpace(after) && !inWord;
    const marks = char === "~" ? ["~~"] : [char + char, char];
    let left = n > 3 || char === "~" && n !== 2 ? 0 : n;
    if (!left) this.put(text.slice(at, at + n));
    while (left) {
      const fits = marks.filter(mark => mark.length <= left);
      let place = this.open.length - 1;
      while (place > 0 && !fits.includes(this.open[place].mark)) place--;
      const mark = closes && place > 0 ? this.open[place].mark : left === 3 ? char : fits[0];
      if (closes && place > 0) this.close(place, mark === "~~" ? "del" : mark.length > 1 ? "strong" : "em");
      else if (opens) this.push(mark);
      else this.put(mark);
      left -= mark.length;
    }
    return n;
  }

  /* Returns the place after the bracket, and after the address if it is a link. */
  takeBracket(at) {
    let place = this.open.length - 1;
    while (place > 0 && this.open[place].mark !== "[") place--;
    TARGET.lastIndex = at + 1;
    const target = place > 0 && this.text[at + 1] === "(" ? TARGET.exec(this.text) : null;
    if (place > 0) {
      this.drop(place + 1);
      const link = target && makeLink(target[1], this.top.nodes);
      if (link) {
        this.open.pop();
        for (const outer of this.open) if (outer.mark === "[") outer.mark = "none"; /* no link in a link */
        this.put(link);
        return TARGET.lastIndex;
      }
      this.drop(place);
    }
    this.put("]");
    return at + 1;
  }

  takeCode(at) {
    let n = 1;
    while (this.text[at + n] === "`") n++;
    this.ticks ||= new Ticks(this.text);
    const end = this.ticks.after(at, n);
    if (end < 0) {
      this.isTicked = true;
      this.put(this.text.slice(at, at + n));
      return at + n;
    }
    const code = this.text.slice(at + n, end);
    this.put(make("code", "", code.length > 2 && code.startsWith(" ") && code.endsWith(" ") ? code.slice(1, -1) : code));
    return end + n;
  }

  takeAddress(at) {
    const pattern = this.text[at] === "<" ? POINTED : BARE;
    pattern.lastIndex = at;
    const match = pattern.exec(this.text);
    let address = match ? match[1] || match[0] : "";
    if (match && !match[1]) {
      const round = address.includes("(");
      while (/[.,;:!?'*_\]]/.test(address.slice(-1)) || !round && address.endsWith(")")) address = address.slice(0, -1);
    }
    const link = address && !this.open.some(one => one.mark === "[") && makeLink(address, [address]);
    if (!link) {
      this.put(this.text[at]);
      return at + 1;
    }
    this.put(link);
    return at + (match[1] ? match[0].length : address.length);
  }

  /* Takes what is special at that place. Returns the place after it. */
  takeSpecial(at) {
    const {text} = this;
    switch (text[at]) {
      case "\\":
        /* \( and \[ stay: they begin a formula. */
        if (/[\\`*_~#|<>!.+-]/.test(text[at + 1] || "")) this.put(text[at + 1]);
        else this.put(text.slice(at, at + 2));
        return at + 2;
      case "`": return this.takeCode(at);
      case "[": this.push("["); return at + 1;
      case "]": return this.takeBracket(at);
      case "!":
        if (text[at + 1] === "[") this.push("[", "![");
        else this.put("!");
        return at + (text[at + 1] === "[" ? 2 : 1);
      case "<": case "h": return this.takeAddress(at);
      default: return at + this.takeRun(at);
    }
  }

  nodes() {
    let at = 0;
    while (at < this.text.length) {
      SPECIAL.lastIndex = at;
      const match = SPECIAL.exec(this.text);
      const plain = this.text.slice(at, match ? match.index : this.text.length);
      if (this.open.length === 1 && !this.isTicked && plain.includes(" ")) this.free = at + plain.lastIndexOf(" ") + 1;
      this.put(plain);
      at = match ? this.takeSpecial(match.index) : this.text.length;
    }
    this.drop(1);
    return this.top.nodes;
  }
}

function inlineInto(into, text) {
  for (const node of new Inline(text).nodes()) into.append(node);
  return into;
}
