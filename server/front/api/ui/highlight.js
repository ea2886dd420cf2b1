/* Colours for code: comments, strings, numbers and keywords. One pass; each pattern consumes what it looks at. */

const MAX_HIGHLIGHTED = 100000; /* characters */
const words = list => new Set(list.split(" "));
const KEYWORDS = words("abstract and as assert async await auto bool boolean break case catch char class const continue crate def default defer del delete do double elif else end enum except explicit export extends extern false final finally float fn for foreach from func function global go goto if impl implements import in include inline instanceof int interface is lambda let local long loop match mod module mut namespace new nil None nonlocal not null nullptr operator or override package pass private protected pub public raise readonly return self short signed sizeof static struct super switch template then this throw throws trait True False true try type typedef typename typeof undefined union unsafe unsigned use using var virtual void volatile when where while with yield");
const SQL = words("add all alter and as asc between by case create cross default delete desc distinct drop else end exists foreign from full group having in index inner insert into is join key left like limit not null offset on or order outer primary references right select set table then union unique update values view when where with");
const SHELL = words("case do done echo elif else esac exit export fi for function if in local read return set shift then unset until while");

const STRINGS = "\"(?:[^\"\\\\\\n]|\\\\[^])*\"?|'(?:[^'\\\\\\n]|\\\\[^])*'?";
const NUMBER = "\\b\\d[\\w.]*", WORD = "[\\p{L}_$][\\p{L}\\p{N}_$]*";
const family = (comments, strings, keywords, flags = "") =>
  ({pattern: new RegExp(`(${comments})|(${strings})|(${NUMBER})|(${WORD})`, "gu" + flags), keywords, fold: keywords === SQL});

const families = {
  slash: family("//[^\\n]*|/\\*[^]*?(?:\\*/|$)", STRINGS + "|`(?:[^`\\\\]|\\\\[^])*`?", KEYWORDS),
  hash: family("#[^\\n]*", "\"\"\"[^]*?(?:\"\"\"|$)|'''[^]*?(?:'''|$)|" + STRINGS, KEYWORDS),
  shell: family("(?<![^\\s;])#[^\\n]*", STRINGS, SHELL),
  dash: family("--[^\\n]*|/\\*[^]*?(?:\\*/|$)", STRINGS, SQL),
  markup: family("<!--[^]*?(?:-->|$)", STRINGS, new Set()),
};
const familyOf = new Map();
for (const [name, list] of Object.entries({
  slash: "c h cc cpp c++ cxx cs csharp css cuda dart go java javascript js json jsonc jsx kotlin kt php proto rust rs scala scss swift ts tsx typescript zig",
  hash: "cmake dockerfile elixir julia make makefile nginx perl pl py python python3 r rb ruby toml yaml yml",
  shell: "bash console fish sh shell zsh", dash: "haskell hs lua sql sqlite postgresql mysql", markup: "html svg vue xml",
})) for (const language of list.split(" ")) familyOf.set(language, families[name]);

/* Text and spans for a language's code; plain text for a language without colours. */
function highlighted(text, language) {
  const found = familyOf.get(language.toLowerCase());
  if (!found || text.length > MAX_HIGHLIGHTED) return [text];
  const nodes = [];
  let at = 0;
  for (const match of text.matchAll(found.pattern)) {
    const [whole, comment, string, number, word] = match;
    const kind = comment ? "hl-comment" : string ? "hl-string" : number ? "hl-number" : found.keywords.has(found.fold ? word.toLowerCase() : word) ? "hl-keyword" : "";
    if (!kind) continue;
    if (match.index > at) nodes.push(text.slice(at, match.index));
    nodes.push(make("span", kind, whole));
    at = match.index + whole.length;
  }
  nodes.push(text.slice(at));
  return nodes;
}
