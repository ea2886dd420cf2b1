//! Computes which characters can be adjacent within one match of a pre-tokenizer's regular expression.
//!
//! Each single-character item of the pattern (`\s`, `[^\r\n\p{L}]`, `a`) is a position; which positions can follow one
//! another is the Glushkov automaton's relation. It excludes matches for every text, whatever the engine prefers: if no
//! position that takes one character may be followed by a position that takes the next, no match contains both. This
//! module claims no more, so it may allow too much and never too little. Counted repetitions are treated as loops.
//! Look-aheads exclude nothing, but they are recorded, because they read past a match's end.
//!
//! A pattern that contains anything of unknown reach (look-behind, \b, ^, back references, ...) has no Follow.

use tokenizers::utils::SysRegex;

/// Groups within groups; the deepest pattern in the field has 2.
const MAX_DEPTH: usize = 16;
/// Positions that a mask can hold; the largest pattern in the field has 47.
const MAX_POSITIONS: usize = 128;

pub type Mask = u128;

pub struct Follow {
    atoms: Vec<Atom>,
    follow: Vec<Mask>,
    /// Positions after which the engine may look at the next character without taking it.
    looks: Mask,
    /// Positions that make a match by themselves, where the same character is not in the mask beside it.
    solo: Vec<(usize, Mask)>,
}

struct Atom {
    regex: SysRegex,
    /// A literal below U+0080, which takes nothing else.
    ascii_only: bool,
    /// A literal or a plain class that is case-insensitive. Past ASCII it may take a part of what a character is
    /// like: ſ is s, ß is ss.
    ignores_case: bool,
}

/// The parser's facts about a part of the pattern.
#[derive(Clone, Default)]
struct Part {
    first: Mask,
    last: Mask,
    solo: Vec<(usize, Mask)>,
    /// It may match nothing.
    nullable: bool,
    /// It matches nothing whenever the next character is not in this mask; None: that is not known.
    skips: Option<Mask>,
}

impl Part {
    fn empty() -> Part {
        Part {
            nullable: true,
            skips: Some(0),
            ..Part::default()
        }
    }
}

impl Follow {
    /// None: nothing can be proved of this pattern.
    pub fn parse(pattern: &str) -> Option<Follow> {
        let mut parser = Parser {
            rest: pattern,
            ignore_case: false,
            depth: 0,
            follow: Follow {
                atoms: Vec::new(),
                follow: Vec::new(),
                looks: 0,
                solo: Vec::new(),
            },
        };
        let whole = parser.alternatives()?;
        if !parser.rest.is_empty() || whole.nullable {
            return None;
        }
        let mut follow = parser.follow;
        follow.solo = whole.solo;
        Some(follow)
    }

    /// The positions that may take a character.
    pub fn positions(&self, c: char) -> Mask {
        let mut text = [0; 4];
        let text: &str = c.encode_utf8(&mut text);
        let mut mask = 0;
        for (i, atom) in self.atoms.iter().enumerate() {
            let taken = if !c.is_ascii() && (atom.ascii_only || atom.ignores_case) {
                atom.ignores_case && is_like_ascii(c)
            } else {
                atom.regex.find_iter(text).next() == Some((0, text.len()))
            };
            mask |= Mask::from(taken) << i;
        }
        mask
    }

    /// No match holds both of two neighbours that these positions may take, nor reads the second after the first:
    /// what is matched up to there, and from there on, does not depend on what lies beyond.
    pub fn apart(&self, before: Mask, after: Mask) -> bool {
        let mut reach = 0;
        for (i, follow) in self.follow.iter().enumerate() {
            if before >> i & 1 == 1 {
                reach |= follow;
            }
        }
        before & self.looks == 0 && reach & after == 0
    }

    /// A character of these positions is in a match wherever it stands.
    pub fn always_matched(&self, positions: Mask) -> bool {
        self.solo
            .iter()
            .any(|(i, unless)| positions >> i & 1 == 1 && positions & unless == 0)
    }
}

struct Parser<'a> {
    rest: &'a str,
    ignore_case: bool,
    depth: usize,
    follow: Follow,
}

impl<'a> Parser<'a> {
    fn take(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn cut(&mut self, n: usize) -> Option<&'a str> {
        let (head, rest) = (self.rest.get(..n)?, self.rest.get(n..)?);
        self.rest = rest;
        Some(head)
    }

    fn alternatives(&mut self) -> Option<Part> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let mut all = self.sequence()?;
        while self.take("|") {
            let one = self.sequence()?;
            all.first |= one.first;
            all.last |= one.last;
            all.solo.extend(one.solo);
            all.nullable |= one.nullable;
            // One that matches nothing is not tried where an earlier one matches.
            all.skips = None;
        }
        self.depth -= 1;
        Some(all)
    }

    fn sequence(&mut self) -> Option<Part> {
        let mut all = Part::empty();
        while !self.rest.is_empty() && !self.rest.starts_with(['|', ')']) {
            if self.look_ahead(&mut all)? {
                continue;
            }
            let item = self.item()?;
            self.join(&mut all, item);
        }
        Some(all)
    }

    /// Two parts, one after the other.
    fn join(&mut self, all: &mut Part, next: Part) {
        for (i, follow) in self.follow.follow.iter_mut().enumerate() {
            if all.last >> i & 1 == 1 {
                *follow |= next.first;
            }
        }
        let (before, after) = (all.skips, next.skips);
        // A first part that is possessive may take the character away; a second one comes after it.
        if after.is_none() {
            all.solo.clear();
        }
        if let Some(unless) = before {
            all.solo
                .extend(next.solo.iter().map(|(i, u)| (*i, u | unless)));
        }
        all.first |= if all.nullable { next.first } else { 0 };
        all.last = next.last | if next.nullable { all.last } else { 0 };
        all.nullable &= next.nullable;
        all.skips = match (before, after) {
            (Some(a), Some(b)) => Some(a | b),
            _ => None,
        };
    }

    /// `(?!\S)`, `(?=\s)` and `$`: look-aheads of one character, after something that takes one. Some(false): no
    /// look-ahead begins here.
    fn look_ahead(&mut self, before: &mut Part) -> Option<bool> {
        if !self.take("$") {
            if !self.take("(?!") && !self.take("(?=") {
                return Some(false);
            }
            let at = self.follow.atoms.len();
            self.atom()?;
            // It takes nothing: its position goes again.
            self.follow.atoms.truncate(at);
            self.follow.follow.truncate(at);
            if !self.take(")") {
                return None;
            }
        }
        if before.nullable {
            return None;
        }
        self.follow.looks |= before.last;
        before.solo.clear();
        before.skips = None;
        Some(true)
    }

    fn item(&mut self) -> Option<Part> {
        let part = if self.take("(?i:") {
            let outer = std::mem::replace(&mut self.ignore_case, true);
            let part = self.alternatives();
            self.ignore_case = outer;
            self.group(part?)?
        } else if self.take("(?:") {
            let part = self.alternatives()?;
            self.group(part)?
        } else if self.rest.starts_with("(?") {
            return None;
        } else if self.take("(") {
            let part = self.alternatives()?;
            self.group(part)?
        } else {
            self.atom()?
        };
        self.quantified(part)
    }

    fn group(&mut self, part: Part) -> Option<Part> {
        self.take(")").then_some(part)
    }

    fn quantified(&mut self, mut part: Part) -> Option<Part> {
        let (least, loops) = if self.take("*") {
            (0, true)
        } else if self.take("+") {
            (1, true)
        } else if self.take("?") {
            (0, false)
        } else if self.take("{") {
            let count = self.cut(self.rest.find('}')?)?;
            self.take("}");
            let least = count.split(',').next()?;
            (
                if least.is_empty() {
                    0
                } else {
                    least.parse::<u32>().ok()?
                },
                count != "1",
            )
        } else {
            return Some(part);
        };
        // Lazy is a preference; possessive does not give back what it took. After a counted one, + is a loop and
        // ? an option.
        let possessive = self.take("+");
        if !possessive {
            self.take("?");
        }
        if self.rest.starts_with(['*', '+', '?', '{']) {
            return None;
        }
        if loops || possessive {
            for (i, follow) in self.follow.follow.iter_mut().enumerate() {
                if part.last >> i & 1 == 1 {
                    *follow |= part.first;
                }
            }
        }
        if least > 1 {
            part.solo.clear();
        }
        if least == 0 {
            part.nullable = true;
            part.skips = Some(if possessive { part.first } else { 0 });
        }
        Some(part)
    }

    /// A set or a character.
    fn atom(&mut self) -> Option<Part> {
        let length = self.atom_length()?;
        let source = self.cut(length)?;
        let literal = source.trim_start_matches('\\').chars().next()?;
        let is_set = source.starts_with('[')
            || source == "."
            || (source.starts_with('\\') && literal.is_alphanumeric());
        // Without case, what is not plain ASCII may stand for several letters of ASCII: ß for "ss".
        if self.ignore_case && (!source.is_ascii() || (is_set && !is_plain_class(source))) {
            return None;
        }
        let at = self.follow.atoms.len();
        if at == MAX_POSITIONS {
            return None;
        }
        let flags = if self.ignore_case { "(?i:" } else { "(?:" };
        self.follow.atoms.push(Atom {
            regex: SysRegex::new(&format!("{flags}{source})")).ok()?,
            ascii_only: !is_set && literal.is_ascii(),
            ignores_case: self.ignore_case,
        });
        self.follow.follow.push(0);
        Some(Part {
            first: 1 << at,
            last: 1 << at,
            solo: vec![(at, 0)],
            nullable: false,
            skips: None,
        })
    }

    fn atom_length(&self) -> Option<usize> {
        let mut chars = self.rest.chars();
        match chars.next()? {
            '[' => class_length(self.rest),
            '\\' => match chars.next()? {
                'p' | 'P' | 'x' | 'u' if chars.as_str().starts_with('{') => {
                    Some(self.rest.find('}')? + 1)
                }
                'x' => Some(4),
                'u' => Some(6),
                c @ ('s' | 'S' | 'd' | 'D' | 'w' | 'W' | 'h' | 'H' | 'n' | 'r' | 't' | 'f'
                | 'v') => Some(1 + c.len_utf8()),
                c if c.is_alphanumeric() => None,
                c => Some(1 + c.len_utf8()),
            },
            '^' | ')' | '*' | '+' | '?' | '{' | '|' | '$' | '(' => None,
            c => Some(c.len_utf8()),
        }
    }
}

/// A letter of ASCII may be a part of what this becomes without regard to case.
fn is_like_ascii(c: char) -> bool {
    let upper = |c: char| c.to_uppercase();
    c.to_lowercase()
        .flat_map(upper)
        .chain(c.to_lowercase())
        .chain(upper(c))
        .any(|c| c.is_ascii())
}

/// Letters in brackets and nothing else.
fn is_plain_class(source: &str) -> bool {
    let inner = source.strip_prefix('[').and_then(|s| s.strip_suffix(']'));
    inner.is_some_and(|s| s.chars().all(|c| c.is_ascii_alphanumeric()))
}

/// The bytes of a class in brackets, which may hold others.
fn class_length(text: &str) -> Option<usize> {
    let mut depth = 0;
    let mut chars = text.char_indices().peekable();
    while let Some((i, c)) = chars.next() {
        match c {
            '\\' => {
                chars.next()?;
            }
            '[' => {
                depth += 1;
                chars.next_if(|(_, c)| *c == '^');
                // A bracket that comes first is one of the characters.
                chars.next_if(|(_, c)| *c == ']');
            }
            ']' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(i + 1);
        }
    }
    None
}
