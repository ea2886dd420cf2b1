/* Markdown blocks as nodes of the document. Time is linear in the text: nesting, columns and open marks have limits, and no
 * pattern can backtrack over a run of characters. HTML in the text stays text.
 *
 * A block is {node, take}. take(lines, from, onPart, kept) puts the block that begins at that line into the node and returns
 * the line after it. A long block has parts: pieces of a paragraph or of code, items of a list, rows of a table.
 * onPart(line, column, n) is called where a part begins after n others. If kept is not 0, take continues the block: that many
 * parts stay, and the line is the one after them. The beginning of a part does not depend on the text after it. */

const MAX_NESTING = 24, MAX_COLUMNS = 100, MAX_INNER = 2000; /* lines of a quote or an item */
const MAX_PIECE = 8192; /* characters; a browser lays out a paragraph as a whole, and 260,000 characters took it 0.7 s */
const FENCE = /^ {0,3}(`{3,}|~{3,})([^`]*)$/, HEADING = /^ {0,3}(#{1,6})(?:[ \t]|$)/, RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const QUOTE = /^ {0,3}> ?/, ITEM = /^( *)([-*+]|\d{1,9}[.)])(?: |\t|$)/;

const isBlank = line => line.trim() === "";
const indentOf = line => line.length - line.trimStart().length;
const isHeading = line => line.length <= MAX_PIECE && HEADING.test(line);
const isRule = line => line.length <= MAX_PIECE && RULE.test(line);

/* A place at or before that one that is not inside a character. */
const cutBefore = (text, at) => /[\ud800-\udbff]/.test(text[at - 1]) ? at - 1 : at;

/* Puts a text into a node as it is; a long one in pieces, as in a paragraph. isMore: the text continues the one before, and only
 * the last piece is made again. */
function putText(node, text, isMore = false) {
  let at = isMore ? node.lastPiece || 0 : 0;
  if (at) node.lastChild.remove();
  else node.textContent = "";
  do {
    node.lastPiece = at;
    let piece = text.slice(at, at + MAX_PIECE);
    if (at + piece.length < text.length) {
      const end = [piece.lastIndexOf("\n"), piece.lastIndexOf(" ")].find(place => place > MAX_PIECE / 2);
      piece = piece.slice(0, end ? end + 1 : cutBefore(piece, piece.length));
    }
    node.append(text.length > MAX_PIECE ? make("span", "part", piece) : piece);
    at += piece.length;
  } while (at < text.length);
}

function trimParts(node, kept) {
  while (node.childNodes.length > kept) node.lastChild.remove();
}

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
  if (i + 1 >= lines.length || lines[i].length > MAX_PIECE || !lines[i].includes("|") || !/^[ \t|:-]+$/.test(lines[i + 1])) return null;
  const marks = cellsOfRow(lines[i + 1]).map(cell => cell.trim());
  if (marks.length > MAX_COLUMNS || !marks.every(mark => /^:?-+:?$/.test(mark)) || cellsOfRow(lines[i]).length !== marks.length) return null;
  return marks.map(mark => !mark.endsWith(":") ? "" : mark.startsWith(":") ? "center" : "right");
}

function tableBlock(lines, from, aligned) {
  const rowOf = (line, tag) => {
    const row = make("tr");
    cellsOfRow(line).slice(0, aligned.length).forEach((text, i) => {
      const cell = inlineInto(make(tag, aligned[i]), text.trim());
      if (tag === "th") cell.scope = "col";
      row.append(cell);
    });
    return row;
  };
  const body = make("tbody"), node = make("div", "wide", make("table", "", make("thead", "", rowOf(lines[from], "th")), body));
  Object.assign(node, {tabIndex: 0, role: "region", ariaLabel: "Table"});
  const take = (rows, at, onPart, kept) => {
    trimParts(body, kept);
    let i = kept ? at : at + 2;
    for (; i < rows.length && !isBlank(rows[i]) && rows[i].includes("|"); i++) {
      if (body.firstChild) onPart(i, 0, body.childNodes.length);
      body.append(rowOf(rows[i], "td"));
    }
    return i;
  };
  return {node, take};
}

/* ---- code ---- */

function makeCode(code, language) {
  const pre = make("pre", "", code);
  Object.assign(pre, {tabIndex: 0, role: "region", ariaLabel: language ? "Code, " + language : "Code"});
  return make("div", "code", make("div", "code-head", make("span", "", language), makeButton("Copy", event => copyText(code.textContent, event.target))), pre);
}

/* A piece ends with the line that makes it MAX_PIECE long, or inside a line that makes it twice as long. */
function fenceBlock(opening, [, fence, info]) {
  const indent = indentOf(opening), language = info.trim().split(/[\s{]/)[0].slice(0, 30), code = make("code");
  const pieces = []; /* [node, whether it ended inside a line] */
  let isColoured = false;
  const isEnd = line => {
    const end = FENCE.exec(line);
    return Boolean(end) && end[1][0] === fence[0] && end[1].length >= fence.length && isBlank(end[2]);
  };
  const take = (lines, from, onPart, kept) => {
    pieces.length = kept;
    if (isColoured) code.replaceChildren(...pieces.map(([node]) => node));
    else trimParts(code, kept);
    const begin = kept ? from : from + 1, isInside = kept > 0 && pieces[kept - 1][1];
    let i = begin, text = "", closed = false;
    const put = inLine => {
      pieces.push([make("span", "part", text), inLine]);
      code.append(pieces[pieces.length - 1][0]);
      text = "";
    };
    const cut = (line, column) => { put(column > 0); onPart(line, column, pieces.length); };
    for (; i < lines.length; i++) {
      const line = lines[i], isRest = isInside && i === begin;
      closed = !isRest && isEnd(line);
      if (closed) break;
      if (i > begin) text += "\n";
      if (text.length >= MAX_PIECE) cut(i, 0);
      let at = isRest ? 0 : Math.min(indent, indentOf(line));
      while (text.length + line.length - at > 2 * MAX_PIECE) {
        const end = cutBefore(line, at + 2 * MAX_PIECE - text.length);
        text += line.slice(at, end);
        at = end;
        cut(i, end);
      }
      text += line.slice(at);
    }
    if (pieces.length) put(false);
    else code.textContent = text;
    isColoured = closed && code.textContent.length <= MAX_HIGHLIGHTED;
    if (isColoured) code.replaceChildren(...highlighted(code.textContent, language));
    return i + closed;
  };
  return {node: makeCode(code, language), take};
}

/* ---- lists and quotes ---- */

/* One item from that line: [the line after it, its lines, whether blank lines are inside it]. */
function takeItem(lines, from, match) {
  const offset = match[0].length + (match[0].endsWith(" ") || match[0].endsWith("\t") ? 0 : 1);
  const least = match[1].length + 2; /* many models indent by 2 below "1." */
  const own = [lines[from].slice(match[0].length)];
  let i = from + 1, loose = false;
  for (; i < lines.length && i - from < MAX_INNER; i++) {
    const line = lines[i];
    if (isBlank(line)) {
      own.push("");
      continue;
    }
    const after = own[own.length - 1] === "" && own.length > 1;
    if (indentOf(line) < least && (after || ITEM.test(line) || beginsBlock(lines, i, ITEM.test(lines[i - 1])))) break;
    loose ||= after;
    own.push(line.slice(Math.min(indentOf(line), offset)));
  }
  while (own.length > 1 && own[own.length - 1] === "") { own.pop(); i--; }
  return [i, own, loose];
}

const makeList = mark => mark.length > 1 ? Object.assign(make("ol"), {start: parseInt(mark, 10)}) : make("ul");

function listBlock([, , mark], depth) {
  const node = mark.length > 1 ? Object.assign(make("ol"), {start: parseInt(mark, 10)}) : make("ul");
  const take = (lines, from, onPart, kept) => {
    trimParts(node, kept);
    for (let i = from, match = ITEM.exec(lines[from]); ;) {
      if (node.firstChild) onPart(i, 0, node.childNodes.length);
      const [end, own, loose] = takeItem(lines, i, match);
      node.append(blocksInto(make("li", loose ? "loose" : ""), own, depth + 1, !loose));
      let next = end;
      while (next < lines.length && isBlank(lines[next])) next++;
      match = next < lines.length && !isRule(lines[next]) && ITEM.exec(lines[next]);
      if (!match || match[2].slice(-1) !== mark.slice(-1) || match[2].length > 1 !== mark.length > 1) return end;
      i = next;
    }
  };
  return {node, take};
}

function quoteBlock(depth) {
  const node = make("blockquote");
  const take = (lines, from) => {
    const own = [];
    let i = from;
    for (let match; i < lines.length && i - from < MAX_INNER && (match = QUOTE.exec(lines[i])); i++) own.push(lines[i].slice(match[0].length));
    blocksInto(node, own, depth + 1, false);
    return i;
  };
  return {node, take};
}

/* ---- paragraphs and headings ---- */

/* Whether a line ends the paragraph before it. A number only does as 1 or after an item, as it may be part of a sentence. */
function beginsBlock(lines, i, isAfterItem) {
  const line = lines[i], item = ITEM.exec(line);
  return FENCE.test(line) || isHeading(line) || isRule(line) || QUOTE.test(line) || Boolean(item) && item[0].length < line.length &&
    (item[2].length === 1 || /^ *1[.)]/.test(line) || isAfterItem) || Boolean(tableAt(lines, i));
}

/* The end of the first piece: after a space outside all marks, if there is one in the second half. */
function pieceEnd(text) {
  if (text.length <= MAX_PIECE) return text.length;
  const inline = new Inline(text.slice(0, MAX_PIECE));
  inline.nodes();
  const space = text.lastIndexOf(" ", MAX_PIECE - 1) + 1;
  return [inline.free, space].find(end => end > MAX_PIECE / 2) || cutBefore(text, MAX_PIECE);
}

const trimmed = text => text.split("\n").map(line => line.trim()).join("\n");

/* bare: a paragraph of a tight list, which is not set apart. */
function paragraphBlock(depth, bare) {
  const node = make(bare ? "span" : "p");
  const take = (lines, from, onPart, kept) => {
    trimParts(node, kept);
    let end = from + 1, line = from, column = 0;
    while (end < lines.length && !isBlank(lines[end]) && (depth >= MAX_NESTING || !beginsBlock(lines, end, end - 1 > from && ITEM.test(lines[end - 1])))) end++;
    let text = lines.slice(from, end).join("\n");
    if (!kept && text.length <= MAX_PIECE) inlineInto(node, trimmed(text));
    else for (let n = kept + 1; text; n++) {
      const piece = text.slice(0, pieceEnd(text));
      text = text.slice(piece.length);
      node.append(inlineInto(make("span", "part"), trimmed(piece)));
      const breaks = piece.split("\n");
      line += breaks.length - 1;
      column = breaks[breaks.length - 1].length + (breaks.length > 1 ? 0 : column);
      if (text) onPart(line, column, n);
    }
    return end;
  };
  return {node, take};
}

function headingBlock(line, match) {
  let text = line.slice(match[0].length).trim();
  let end = text.length;
  while (end > 0 && text[end - 1] === "#") end--;
  if (end === 0 || text[end - 1] === " ") text = text.slice(0, end).trimEnd();
  return {node: inlineInto(make("h" + Math.min(6, match[1].length + 2)), text), take: (lines, from) => from + 1}; /* below the page's own headings */
}

/* ---- blocks ---- */

/* The block at that line, which is not blank. */
function blockAt(lines, from, depth, bare) {
  const line = lines[from];
  let match;
  if ((match = FENCE.exec(line))) return fenceBlock(line, match);
  if (isHeading(line)) return headingBlock(line, HEADING.exec(line));
  if (isRule(line)) return {node: make("hr"), take: () => from + 1};
  if (depth < MAX_NESTING) {
    if (QUOTE.test(line)) return quoteBlock(depth);
    if ((match = ITEM.exec(line))) return listBlock(match, depth);
  }
  if ((match = tableAt(lines, from))) return tableBlock(lines, from, match);
  return paragraphBlock(depth, bare);
}

function blocksInto(into, lines, depth, bare) {
  for (let i = 0; i < lines.length;) {
    if (isBlank(lines[i])) {
      i++;
      continue;
    }
    const block = blockAt(lines, i, depth, bare);
    i = block.take(lines, i, () => {}, 0);
    into.append(block.node);
  }
  return into;
}

/* ---- a text that grows ---- */

/* Shows Markdown in a node. A text that begins with the one before is continued: only blocks, and parts of the last one, that
 * can still change are made again. A block or part is final when the first two lines after it are whole, or when the next part
 * begins inside a long line. */
class MarkdownView {
  constructor(into) {
    this.into = into;
    this.text = "";
    this.restart();
  }

  restart() {
    this.final = 0;   /* characters */
    this.fixed = 0;   /* nodes before the open block */
    this.open = null; /* the block that the text after the final one continues */
    this.kept = 0;    /* its final parts */
  }

  show(text) {
    if (!text.startsWith(this.text)) this.restart();
    trimParts(this.into, this.fixed + (this.open ? 1 : 0));
    this.text = text;
    const lines = text.slice(this.final).split("\n");
    let {open, kept} = this, offset = this.final, counted = 0, i = 0;
    /* The text before that place is final. */
    const settle = (line, column, fixed, block, n) => {
      if (line + 1 >= lines.length - 1 && !(column && lines[line].length > MAX_PIECE)) return;
      for (; counted < line; counted++) offset += lines[counted].length + 1;
      Object.assign(this, {final: offset + column, fixed, open: block, kept: n});
    };
    while (i < lines.length) {
      if (!open && isBlank(lines[i])) {
        i++;
        continue;
      }
      const fixed = this.into.childNodes.length - (open ? 1 : 0), isOpen = Boolean(open);
      if (!isOpen) settle(i, 0, fixed, null, 0);
      const block = open || blockAt(lines, i, 0, false);
      i = block.take(lines, i, (line, column, n) => settle(line, column, fixed, block, n), isOpen ? kept : 0);
      if (!isOpen) this.into.append(block.node);
      open = null;
    }
  }
}
