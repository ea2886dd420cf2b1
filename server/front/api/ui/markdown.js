/* Markdown blocks as nodes of the document. Time is linear in the text: nesting, columns and open marks have limits, and no
 * pattern can backtrack over a run of characters. HTML in the text stays text. */

const MAX_NESTING = 24, MAX_COLUMNS = 100;
const FENCE = /^ {0,3}(`{3,}|~{3,})([^`]*)$/, HEADING = /^ {0,3}(#{1,6})(?:[ \t]|$)/, RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const QUOTE = /^ {0,3}> ?/, ITEM = /^( *)([-*+]|\d{1,9}[.)])(?: |\t|$)/;

const isBlank = line => line.trim() === "";
const indentOf = line => line.length - line.trimStart().length;

/* ---- tables ---- */

function cellsOfRow(line) {
  let text = line.trim();
  if (text.startsWith("|")) text = text.slice(1);
  if (text.endsWith("|") && !text.endsWith("\\|")) text = text.slice(0, -1);
  const cells = [""];
  for (const part of text.split(/(\\\||\|)/)) {
    if (part === "|") cells.push("");
    else cells[cells.length - 1] += part === "\\|" ? "|" : part;
  }
  return cells;
}

/* The alignments of a table that begins at that line; null if none does. */
function tableAt(lines, i) {
  if (i + 1 >= lines.length || !lines[i].includes("|") || !/^[ \t|:-]+$/.test(lines[i + 1])) return null;
  const marks = cellsOfRow(lines[i + 1]).map(cell => cell.trim());
  if (marks.length > MAX_COLUMNS || !marks.every(mark => /^:?-+:?$/.test(mark)) || cellsOfRow(lines[i]).length !== marks.length) return null;
  return marks.map(mark => !mark.endsWith(":") ? "" : mark.startsWith(":") ? "center" : "right");
}

function takeTable(lines, from, aligned) {
  const rowOf = (line, tag) => {
    const row = make("tr");
    cellsOfRow(line).slice(0, aligned.length).forEach((text, i) => {
      const cell = inlineInto(make(tag, aligned[i]), text.trim());
      if (tag === "th") cell.scope = "col";
      row.append(cell);
    });
    return row;
  };
  const body = make("tbody");
  let i = from + 2;
  for (; i < lines.length && !isBlank(lines[i]) && lines[i].includes("|"); i++) body.append(rowOf(lines[i], "td"));
  const box = make("div", "wide", make("table", "", make("thead", "", rowOf(lines[from], "th")), body));
  Object.assign(box, {tabIndex: 0, role: "region", ariaLabel: "Table"});
  return [i, box];
}

/* ---- code ---- */

function makeCode(text, language, whole) {
  const code = make("code");
  for (const node of whole ? highlighted(text, language) : [text]) code.append(node);
  const pre = make("pre", "", code);
  Object.assign(pre, {tabIndex: 0, role: "region", ariaLabel: language ? "Code, " + language : "Code"});
  return make("div", "code", make("div", "code-head", make("span", "", language), makeButton("Copy", event => copyText(code.textContent, event.target))), pre);
}

function takeFence(lines, from, [, fence, info]) {
  const indent = indentOf(lines[from]);
  const text = [];
  let i = from + 1, closed = false;
  for (; i < lines.length && !closed; i++) {
    const end = FENCE.exec(lines[i]);
    closed = Boolean(end) && end[1][0] === fence[0] && end[1].length >= fence.length && isBlank(end[2]);
    if (!closed) text.push(lines[i].slice(Math.min(indent, indentOf(lines[i]))));
  }
  return [i, makeCode(text.join("\n"), info.trim().split(/[\s{]/)[0].slice(0, 30), closed)];
}

/* ---- lists and quotes ---- */

/* One item from that line: [the line after it, its lines, whether blank lines are inside it]. */
function takeItem(lines, from, match) {
  const offset = match[0].length + (match[0].endsWith(" ") || match[0].endsWith("\t") ? 0 : 1);
  const least = match[1].length + 2; /* many models indent by 2 below "1." */
  const own = [lines[from].slice(match[0].length)];
  let i = from + 1, loose = false;
  for (; i < lines.length; i++) {
    const line = lines[i];
    if (isBlank(line)) {
      own.push("");
      continue;
    }
    const after = own[own.length - 1] === "" && own.length > 1;
    if (indentOf(line) < least && (after || ITEM.test(line) || beginsBlock(lines, i))) break;
    loose ||= after;
    own.push(line.slice(Math.min(indentOf(line), offset)));
  }
  while (own.length > 1 && own[own.length - 1] === "") { own.pop(); i--; }
  return [i, own, loose];
}

const makeList = mark => mark.length > 1 ? Object.assign(make("ol"), {start: parseInt(mark, 10)}) : make("ul");

/* onItem(line) is told where each item begins, before it is added. */
function takeList(lines, from, first, depth, list = makeList(first[2]), onItem = null) {
  const kind = first[2].slice(-1), ordered = first[2].length > 1;
  for (let i = from, match = first; ;) {
    onItem?.(i, list);
    const [end, own, loose] = takeItem(lines, i, match);
    list.append(blocksInto(make("li", loose ? "loose" : ""), own, depth + 1, !loose));
    let next = end;
    while (next < lines.length && isBlank(lines[next])) next++;
    match = next < lines.length && !RULE.test(lines[next]) && ITEM.exec(lines[next]);
    if (!match || match[2].slice(-1) !== kind || match[2].length > 1 !== ordered) return [end, list];
    i = next;
  }
}

function takeQuote(lines, from, depth) {
  const own = [];
  let i = from;
  for (let match; i < lines.length && (match = QUOTE.exec(lines[i])); i++) own.push(lines[i].slice(match[0].length));
  return [i, blocksInto(make("blockquote"), own, depth + 1, false)];
}

/* ---- blocks ---- */

/* Whether a line ends the paragraph before it. A number only does as 1, as it may be part of a sentence. */
function beginsBlock(lines, i) {
  const line = lines[i], item = ITEM.exec(line);
  return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || Boolean(item) && item[0].length < line.length &&
    (item[2].length === 1 || /^ *1[.)]/.test(line) || i > 0 && ITEM.test(lines[i - 1])) || Boolean(tableAt(lines, i));
}

function takeHeading(line, match) {
  let text = line.slice(match[0].length).trim();
  let end = text.length;
  while (end > 0 && text[end - 1] === "#") end--;
  if (end === 0 || text[end - 1] === " ") text = text.slice(0, end).trimEnd();
  return inlineInto(make("h" + Math.min(6, match[1].length + 2)), text); /* below the page's own headings */
}

/* The block at that line, which is not blank: [the line after it, its node]. */
function takeBlock(lines, from, depth, bare) {
  const line = lines[from];
  let match;
  if ((match = FENCE.exec(line))) return takeFence(lines, from, match);
  if ((match = HEADING.exec(line))) return [from + 1, takeHeading(line, match)];
  if (RULE.test(line)) return [from + 1, make("hr")];
  if (depth < MAX_NESTING) {
    if (QUOTE.test(line)) return takeQuote(lines, from, depth);
    if ((match = ITEM.exec(line))) return takeList(lines, from, match, depth);
  }
  if ((match = tableAt(lines, from))) return takeTable(lines, from, match);
  let i = from + 1;
  while (i < lines.length && !isBlank(lines[i]) && (depth >= MAX_NESTING || !beginsBlock(lines, i))) i++;
  const text = lines.slice(from, i).map(one => one.trim()).join("\n");
  return [i, inlineInto(bare ? make("span") : make("p"), text)];
}

/* bare: paragraphs of a tight list are not set apart. */
function blocksInto(into, lines, depth, bare) {
  for (let i = 0; i < lines.length;) {
    if (isBlank(lines[i])) {
      i++;
      continue;
    }
    const [end, node] = takeBlock(lines, i, depth, bare);
    into.append(node);
    i = end;
  }
  return into;
}

/* ---- a text that grows ---- */

/* Shows Markdown in a node. A text that begins with the one before is continued: only blocks, and items of a list, that can
 * still change are made again. One is final when the first two lines of the next one are whole. */
class MarkdownView {
  constructor(into) {
    this.into = into;
    this.text = "";
    this.restart();
  }

  restart() {
    this.final = 0;   /* characters */
    this.fixed = 0;   /* nodes */
    this.list = null; /* the list that the text after the final one continues */
    this.items = 0;   /* its final items */
  }

  show(text) {
    if (!text.startsWith(this.text)) this.restart();
    while (this.into.childNodes.length > this.fixed + (this.list ? 1 : 0)) this.into.lastChild.remove();
    while (this.list && this.list.childNodes.length > this.items) this.list.lastChild.remove();
    this.text = text;
    const lines = text.slice(this.final).split("\n");
    let offset = this.final, counted = 0, i = 0;
    /* What is before that line is final, and so is a list with that many items. */
    const settle = (line, fixed, list) => {
      if (line + 1 >= lines.length - 1) return;
      for (; counted < line; counted++) offset += lines[counted].length + 1;
      Object.assign(this, {final: offset, fixed, list, items: list ? list.childNodes.length : 0});
    };
    const onItem = (line, list) => { if (list.firstChild) settle(line, this.into.childNodes.length - 1, list); };
    const list = (from, before) => {
      const match = ITEM.exec(lines[from]);
      const node = before || this.into.appendChild(makeList(match[2]));
      [i] = takeList(lines, from, match, 0, node, onItem);
    };
    if (this.list) list(0, this.list);
    while (i < lines.length) {
      if (isBlank(lines[i])) {
        i++;
        continue;
      }
      settle(i, this.into.childNodes.length, null);
      if (ITEM.test(lines[i]) && !RULE.test(lines[i])) {
        list(i, null);
        continue;
      }
      const [end, node] = takeBlock(lines, i, 0, false);
      this.into.append(node);
      i = end;
    }
  }
}
