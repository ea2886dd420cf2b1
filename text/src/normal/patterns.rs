//! Regular expressions of clients, in the dialects of ECMAScript and Python, as llguidance takes them.
//!
//! The dialects disagree about \d, \w, \s and `.`. The result matches what both match. It has no anchors, no groups
//! with names (the library behind llguidance gives them a meaning), and always describes a whole string.

use regex_syntax::ast::{self, Ast};
use regex_syntax::hir::{
    Class, ClassUnicode, ClassUnicodeRange, Dot, Hir, HirKind, Look, Repetition,
};

use crate::error::{Error, Result};

const MAX_BYTES: usize = 1 << 16;
/// Classes of Unicode, each with hundreds of ranges.
const MAX_CLASSES: usize = 200;
/// Limit for the strings of a finite pattern.
const MAX_STRINGS: usize = 256;
const MAX_NESTING: u32 = 100;

const DIGIT: &str = "0-9";
const DIGITS: &str = r"\p{Nd}";
const WORD: &str = "0-9A-Za-z_";
const WORDS: &str = r"\w\p{N}";
const SPACE: &str = r"\t\n\x0B\x0C\r ";
const SPACES: &str = r"\s\x1C-\x1F\x{FEFF}";

/// A text that must match as a whole, such as a client's `regex`.
pub fn whole(text: &str) -> Result<String> {
    Ok(printed(&edges(&parsed(text, true)?, &Hir::empty())))
}

/// A text that may match anywhere, such as a schema's `pattern`: the whole strings that have a match.
pub fn anywhere(text: &str) -> Result<String> {
    let any = Hir::repetition(Repetition {
        min: 0,
        max: None,
        greedy: true,
        sub: Box::new(Hir::dot(Dot::AnyChar)),
    });
    Ok(printed(&edges(&parsed(text, false)?, &any)))
}

/// The regular expressions `whole` and `anywhere` return are safe to join: each is one group.
pub fn grouped(text: &str) -> String {
    format!("^(?:{text})$")
}

fn parsed(text: &str, wide_dot: bool) -> Result<Hir> {
    if text.len() > MAX_BYTES {
        return Err(Error::invalid(format!(
            "the regular expression has {} bytes; the limit is {MAX_BYTES}",
            text.len()
        )));
    }
    let translated = translate(text, wide_dot)?;
    let source = |at: usize| translated.places[at.min(translated.places.len() - 1)];
    let mut parser = ast::parse::ParserBuilder::new()
        .nest_limit(MAX_NESTING)
        .build();
    let ast = parser
        .parse(&translated.text)
        .map_err(|e| refused(text, source(e.span().start.offset), &e.kind().to_string()))?;
    if let Err((at, why)) = check(&ast, true, true) {
        return Err(refused(text, source(at), why));
    }
    let hir = regex_syntax::hir::translate::TranslatorBuilder::new()
        .build()
        .translate(&translated.text, &ast)
        .map_err(|e| refused(text, source(e.span().start.offset), &e.kind().to_string()))?;
    if hir.properties().minimum_len().is_none() {
        return Err(Error::invalid("the regular expression matches nothing"));
    }
    Ok(hir)
}

fn refused(text: &str, at: usize, why: &str) -> Error {
    let character = text[..at].chars().count() + 1;
    Error::invalid(format!("regular expression: character {character}: {why}"))
}

struct Translated {
    text: String,
    /// For each byte of text, and its end: the place in the source.
    places: Vec<usize>,
}

impl Translated {
    fn push(&mut self, text: &str, at: usize) {
        self.text.push_str(text);
        self.places.resize(self.text.len(), at);
    }
}

/// A walk over the source, which is in a class `[…]` or not.
struct Translator<'a> {
    source: &'a str,
    at: usize,
    out: Translated,
    /// In a class; whether it is a negated one.
    class: Option<bool>,
    wide_dot: bool,
    n_classes: usize,
}

fn translate(source: &str, wide_dot: bool) -> Result<Translated> {
    let mut t = Translator {
        source,
        at: 0,
        out: Translated {
            text: String::with_capacity(source.len() + 16),
            places: Vec::new(),
        },
        class: None,
        wide_dot,
        n_classes: 0,
    };
    while t.at < source.len() {
        t.step()?;
    }
    t.out.places.push(source.len());
    Ok(t.out)
}

impl Translator<'_> {
    fn rest(&self) -> &str {
        &self.source[self.at..]
    }

    fn emit(&mut self, text: &str, n_source: usize) {
        self.out.push(text, self.at);
        self.at += n_source;
    }

    fn step(&mut self) -> Result<()> {
        let c = self.rest().chars().next().unwrap_or_default();
        let n = c.len_utf8();
        match (c, self.class) {
            ('\\', _) => return self.escape(),
            ('[', None) => {
                let negated = self.rest().starts_with("[^");
                self.class = Some(negated);
                let open = if negated { "[^" } else { "[" };
                self.emit(open, open.len());
                if self.rest().starts_with(']') {
                    self.emit("\\]", 1);
                }
            }
            (']', Some(_)) => {
                self.class = None;
                self.emit("]", 1);
            }
            ('[' | '&' | '~', Some(_)) => self.emit(&format!("\\{c}"), 1),
            ('-', Some(_)) if self.rest().starts_with("--") => self.emit("\\-", 1),
            ('.', None) if !self.wide_dot => self.emit(r"[^\n\r\x{2028}\x{2029}]", 1),
            ('{', None) => self.brace(),
            ('*' | '+' | '?' | '}', None) if self.rest()[1..].starts_with('+') => {
                let why = "a possessive quantifier is not supported; use a greedy one";
                return Err(refused(self.source, self.at + 1, why));
            }
            _ => {
                let text = c.to_string();
                self.emit(&text, n);
            }
        }
        Ok(())
    }

    /// A quantifier, or a brace that stands for itself.
    fn brace(&mut self) {
        let body = self.rest()[1..].split('}').next().unwrap_or_default();
        let closed = self.rest().len() > body.len() + 1;
        let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
        let (from, to) = body.split_once(',').unwrap_or((body, "0"));
        if !closed || body == "," || body.is_empty() || !digits(from) || !digits(to) {
            return self.emit("\\{", 1);
        }
        if from.is_empty() {
            return self.emit("{0", 1);
        }
        self.emit("{", 1);
    }

    fn escape(&mut self) -> Result<()> {
        let Some(c) = self.rest()[1..].chars().next() else {
            return Err(refused(self.source, self.at, "ends with a backslash"));
        };
        let is_large = "DWSpP".contains(c) || self.class == Some(true) && "dws".contains(c);
        self.n_classes += usize::from(is_large);
        if self.n_classes > MAX_CLASSES {
            let why = format!("more than {MAX_CLASSES} classes of Unicode characters");
            return Err(refused(self.source, self.at, &why));
        }
        let negated = self.class == Some(true);
        let (narrow, wide) = match c.to_ascii_lowercase() {
            'd' => (DIGIT, DIGITS),
            'w' => (WORD, WORDS),
            's' => (SPACE, SPACES),
            _ => return self.plain_escape(c),
        };
        // A negation excludes the wider set. Both dialects agree about the rest.
        let set = if c.is_ascii_uppercase() != negated {
            wide
        } else {
            narrow
        };
        let not = if c.is_ascii_uppercase() { "^" } else { "" };
        self.emit(&format!("[{not}{set}]"), 2);
        Ok(())
    }

    fn plain_escape(&mut self, c: char) -> Result<()> {
        let hex = |n: usize, from: &str| {
            let digits = from
                .get(..n)
                .filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))?;
            u32::from_str_radix(digits, 16).ok()
        };
        match c {
            'u' => {
                let high = self.rest().get(2..).and_then(|r| hex(4, r));
                let low = self.rest().get(6..).filter(|r| r.starts_with("\\u"));
                let low = low.and_then(|r| r.get(2..)).and_then(|r| hex(4, r));
                if let (Some(high @ 0xD800..=0xDBFF), Some(low @ 0xDC00..=0xDFFF)) = (high, low) {
                    let code = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
                    self.emit(&format!("\\x{{{code:X}}}"), 12);
                } else {
                    self.emit("\\u", 2);
                }
            }
            'c' => match self.rest()[2..]
                .bytes()
                .next()
                .filter(u8::is_ascii_alphabetic)
            {
                Some(letter) => self.emit(&format!("\\x{:02X}", letter % 32), 3),
                None => return Err(refused(self.source, self.at, "\\c needs a letter")),
            },
            'b' if self.class.is_some() => self.emit("\\x08", 2),
            '0' if !self.rest()[2..].starts_with(|d: char| d.is_ascii_digit()) => {
                self.emit("\\x00", 2);
            }
            'Z' if self.class.is_none() => self.emit("\\z", 2),
            '<' | '>' | '/' => self.emit(&c.to_string(), 2),
            c if !c.is_ascii() => self.emit(&c.to_string(), 1 + c.len_utf8()),
            c => self.emit(&format!("\\{c}"), 2),
        }
        Ok(())
    }
}

/// Anchors stand only where they can match. Returns the first place of something else.
fn check(
    ast: &Ast,
    at_start: bool,
    at_end: bool,
) -> std::result::Result<(), (usize, &'static str)> {
    use ast::AssertionKind::{EndLine, EndText, StartLine, StartText};
    match ast {
        Ast::Assertion(a) => match a.kind {
            StartLine | StartText if at_start => Ok(()),
            EndLine | EndText if at_end => Ok(()),
            StartLine | StartText | EndLine | EndText => Err((
                a.span.start.offset,
                "an anchor is only supported at the start or end",
            )),
            _ => Err((a.span.start.offset, "a word boundary is not supported")),
        },
        Ast::Flags(f) if f.flags.items.iter().any(is_multi_line) => {
            Err((f.span.start.offset, "the flag m is not supported"))
        }
        Ast::Group(g) => {
            if g.flags().is_some_and(|f| f.items.iter().any(is_multi_line)) {
                return Err((g.span.start.offset, "the flag m is not supported"));
            }
            check(&g.ast, at_start, at_end)
        }
        Ast::Repetition(r) => check(&r.ast, false, false),
        Ast::Alternation(a) => a.asts.iter().try_for_each(|x| check(x, at_start, at_end)),
        Ast::Concat(c) => {
            let anchor = |x: &Ast| matches!(x, Ast::Assertion(_) | Ast::Flags(_));
            let first = c
                .asts
                .iter()
                .position(|x| !anchor(x))
                .unwrap_or(c.asts.len());
            let last = c.asts.iter().rposition(|x| !anchor(x)).unwrap_or(0);
            c.asts
                .iter()
                .enumerate()
                .try_for_each(|(i, x)| check(x, at_start && i <= first, at_end && i >= last))
        }
        _ => Ok(()),
    }
}

fn is_multi_line(item: &ast::FlagsItem) -> bool {
    matches!(item.kind, ast::FlagsItemKind::Flag(ast::Flag::MultiLine))
}

/// Removes anchors and groups, and adds `any` at each edge without an anchor.
fn edges(hir: &Hir, any: &Hir) -> Hir {
    let plain = without_groups(hir);
    edge(&edge(&plain, any, true), any, false)
}

fn without_groups(hir: &Hir) -> Hir {
    match hir.kind() {
        HirKind::Capture(c) => without_groups(&c.sub),
        HirKind::Repetition(r) => Hir::repetition(r.with(without_groups(&r.sub))),
        HirKind::Concat(subs) => Hir::concat(subs.iter().map(without_groups).collect()),
        HirKind::Alternation(subs) => Hir::alternation(subs.iter().map(without_groups).collect()),
        _ => hir.clone(),
    }
}

fn edge(hir: &Hir, any: &Hir, left: bool) -> Hir {
    let mine = if left { Look::Start } else { Look::End };
    let beside = |h: &Hir| {
        let pair = if left {
            vec![any.clone(), h.clone()]
        } else {
            vec![h.clone(), any.clone()]
        };
        Hir::concat(pair)
    };
    match hir.kind() {
        HirKind::Look(look) if *look == mine => Hir::empty(),
        HirKind::Alternation(subs) => {
            Hir::alternation(subs.iter().map(|s| edge(s, any, left)).collect())
        }
        HirKind::Concat(subs) => {
            let mut rest: Vec<Hir> = subs.clone();
            let is_mine = |h: &Hir| matches!(h.kind(), HirKind::Look(look) if *look == mine);
            let n = rest.len();
            rest.retain(|h| !is_mine(h));
            if rest.len() < n {
                return Hir::concat(rest);
            }
            let at = if left { 0 } else { n - 1 };
            rest[at] = edge(&rest[at], any, left);
            Hir::concat(rest)
        }
        _ => beside(hir),
    }
}

fn printed(hir: &Hir) -> String {
    let text = hir.to_string();
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let code = u32::from(c);
        let is_odd =
            c.is_control() || matches!(code, 0x2028 | 0x2029 | 0xFEFF) || code & 0xFFFE == 0xFFFE;
        match is_odd {
            true => out.push_str(&format!("\\x{{{code:X}}}")),
            false => out.push(c),
        }
    }
    out
}

/// The strings that the result of `grouped` matches, if they are few.
pub fn finite(grouped: &str) -> Option<Vec<String>> {
    strings(&regex_syntax::parse(grouped).ok()?)
}

fn strings(hir: &Hir) -> Option<Vec<String>> {
    let joined = |heads: Vec<String>, tails: Vec<String>| {
        let pairs = heads
            .iter()
            .flat_map(|h| tails.iter().map(move |t| format!("{h}{t}")));
        (heads.len() * tails.len() <= MAX_STRINGS).then(|| pairs.collect::<Vec<_>>())
    };
    let nothing = || vec![String::new()];
    match hir.kind() {
        HirKind::Empty | HirKind::Look(Look::Start | Look::End) => Some(nothing()),
        HirKind::Literal(l) => Some(vec![std::str::from_utf8(&l.0).ok()?.to_string()]),
        HirKind::Class(Class::Unicode(class)) => {
            let n: usize = class.ranges().iter().map(|r| r.len()).sum();
            let all = class.ranges().iter().flat_map(|r| r.start()..=r.end());
            (n <= MAX_STRINGS).then(|| all.map(String::from).collect())
        }
        HirKind::Concat(subs) => subs
            .iter()
            .try_fold(nothing(), |heads, sub| joined(heads, strings(sub)?)),
        HirKind::Alternation(subs) => {
            let all: Option<Vec<Vec<String>>> = subs.iter().map(strings).collect();
            let all = all?.concat();
            (all.len() <= MAX_STRINGS).then_some(all)
        }
        HirKind::Repetition(r) => {
            let most = r.max.filter(|most| *most <= MAX_STRINGS as u32)?;
            let sub = strings(&r.sub)?;
            let mut power = nothing();
            let mut all = Vec::new();
            for n in 0..=most {
                if n >= r.min {
                    all.extend(power.iter().cloned());
                }
                power = if n < most {
                    joined(power, sub.clone())?
                } else {
                    power
                };
            }
            (all.len() <= MAX_STRINGS).then_some(all)
        }
        HirKind::Capture(c) => strings(&c.sub),
        HirKind::Class(_) | HirKind::Look(_) => None,
    }
}

/// A regular expression that matches every whole string except the literals.
pub fn none_of(literals: &[&str]) -> String {
    let mut sorted: Vec<Vec<char>> = literals.iter().map(|l| l.chars().collect()).collect();
    sorted.sort();
    sorted.dedup();
    printed(&beyond(&sorted, 0))
}

/// The rests of strings after `depth` characters that the literals share, except the rests of the literals.
fn beyond(literals: &[Vec<char>], depth: usize) -> Hir {
    let any = Hir::dot(Dot::AnyChar);
    let anything = Hir::repetition(Repetition {
        min: 0,
        max: None,
        greedy: true,
        sub: Box::new(any),
    });
    let mut options = Vec::new();
    let rest = match literals.first() {
        Some(first) if first.len() == depth => &literals[1..],
        _ => {
            options.push(Hir::empty());
            literals
        }
    };
    let mut firsts = Vec::new();
    let mut i = 0;
    while i < rest.len() {
        let c = rest[i][depth];
        let n = rest[i..].iter().take_while(|l| l[depth] == c).count();
        let literal = Hir::literal(c.to_string().into_bytes());
        options.push(Hir::concat(vec![
            literal,
            beyond(&rest[i..i + n], depth + 1),
        ]));
        firsts.push(ClassUnicodeRange::new(c, c));
        i += n;
    }
    let mut others = ClassUnicode::new(firsts);
    others.negate();
    options.push(Hir::concat(vec![
        Hir::class(Class::Unicode(others)),
        anything,
    ]));
    Hir::alternation(options)
}

#[cfg(test)]
mod tests {
    use super::{anywhere, none_of, whole};

    #[test]
    fn anchors_are_stripped_at_the_edges_only() {
        assert_eq!(whole("^ab$").unwrap(), "(?:ab)");
        assert_eq!(whole("ab").unwrap(), "(?:ab)");
        assert!(anywhere("^a").unwrap().starts_with("(?:a"));
        assert!(whole("a^b").unwrap_err().text.contains("character 2"));
        assert!(whole("(?m)^a").is_err());
        assert!(whole(r"a\b").unwrap_err().text.contains("word boundary"));
    }

    #[test]
    fn what_cannot_be_enforced_is_refused_with_its_place() {
        for (text, place) in [
            ("ab(?=c)", "character 3"),
            ("é(?!c)", "character 2"),
            (r"(a)\1", "character 4"),
            ("a++", "character 3"),
            ("(a", "character 1"),
            (r"\d\d[", "character 5"),
        ] {
            let error = whole(text).unwrap_err().text;
            assert!(error.contains(place), "{text}: {error}");
        }
    }

    #[test]
    fn a_complement_has_every_other_string() {
        let text = format!("^(?:{})$", none_of(&["ab", "a", ""]));
        let parsed = regex_syntax::parse(&text);
        assert!(parsed.is_ok(), "{text}");
    }
}
