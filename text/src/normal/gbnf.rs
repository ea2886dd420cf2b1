//! Reads llama.cpp's grammar notation. lexemes.rs turns the rules into Lark.

use std::collections::HashMap;

use super::lark::Lark;
use super::lexemes;
use super::users_lark::place;
use crate::error::{Error, Result};

const MAX_DEPTH: usize = 100;
const MAX_NODES: usize = 100_000;
const MAX_REPEAT: u32 = 100_000;

/// Ranges of characters, sorted and apart.
pub type Set = Vec<(u32, u32)>;

#[derive(Clone, Debug)]
pub enum Node {
    Text(String),
    Set(Set),
    /// A special token of the model, as <…>.
    Special(String),
    Rule(usize),
    Sequence(Vec<Node>),
    Choice(Vec<Node>),
    Repeat(Box<Node>, u32, Option<u32>),
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    numbers: HashMap<&'a str, usize>,
    /// Where each rule is first used, and its definition.
    rules: Vec<(usize, Option<Node>)>,
    names: Vec<&'a str>,
    n_nodes: usize,
}

pub fn add(lark: &mut Lark, text: &str) -> Result<String> {
    let mut reader = Reader {
        text,
        at: 0,
        numbers: HashMap::new(),
        rules: Vec::new(),
        names: Vec::new(),
        n_nodes: 0,
    };
    let root = reader.number("root", 0);
    reader.blank(true);
    while reader.at < text.len() {
        reader.rule()?;
        reader.blank(true);
    }
    let mut rules = Vec::new();
    for (i, (used, rule)) in reader.rules.into_iter().enumerate() {
        let Some(rule) = rule else {
            let name = reader.names[i];
            return Err(match i == root {
                true => Error::invalid("the grammar has no rule \"root\""),
                false => Error::invalid(format!(
                    "{}: the rule {name:?} does not exist",
                    place(text, used)
                )),
            });
        };
        rules.push(rule);
    }
    lexemes::add(lark, &rules, root)
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn wrong<T>(&self, why: impl std::fmt::Display) -> Result<T> {
        Err(Error::invalid(format!(
            "{}: {why}",
            place(self.text, self.at)
        )))
    }

    fn number(&mut self, name: &'a str, at: usize) -> usize {
        let next = self.rules.len();
        let number = *self.numbers.entry(name).or_insert(next);
        if number == next {
            self.rules.push((at, None));
            self.names.push(name);
        }
        number
    }

    /// Skips white space and comments.
    fn blank(&mut self, newlines: bool) {
        while let Some(c) = self.peek() {
            match c {
                ' ' | '\t' => self.at += 1,
                '#' => self.at += self.rest().find('\n').unwrap_or(self.rest().len()),
                '\r' | '\n' if newlines => self.at += 1,
                _ => break,
            }
        }
    }

    fn name(&mut self) -> Option<&'a str> {
        let rest = self.rest();
        let n = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        self.at += n;
        Some(&rest[..n]).filter(|n| !n.is_empty())
    }

    fn eat(&mut self, text: &str) -> bool {
        let found = self.rest().starts_with(text);
        self.at += if found { text.len() } else { 0 };
        found
    }

    fn rule(&mut self) -> Result<()> {
        let start = self.at;
        let Some(name) = self.name() else {
            return self.wrong("a rule must begin with its name");
        };
        let number = self.number(name, start);
        if self.rules[number].1.is_some() {
            self.at = start;
            return self.wrong(format!("the rule {name:?} exists already"));
        }
        self.blank(false);
        if !self.eat("::=") {
            return self.wrong("expected ::=");
        }
        self.blank(true);
        let body = self.choice(0)?;
        self.rules[number].1 = Some(body);
        match self.peek() {
            None | Some('\n' | '\r') => Ok(()),
            Some(c) => self.wrong(format!("{c:?} is not allowed here")),
        }
    }

    fn choice(&mut self, depth: usize) -> Result<Node> {
        if depth > MAX_DEPTH {
            return self.wrong(format!("parentheses are nested deeper than {MAX_DEPTH}"));
        }
        let mut options = vec![self.sequence(depth)?];
        loop {
            let end = self.at;
            // An alternative may stand on a line of its own.
            self.blank(true);
            if !self.eat("|") {
                self.at = if depth == 0 { end } else { self.at };
                break;
            }
            self.blank(true);
            options.push(self.sequence(depth)?);
        }
        Ok(match options.len() {
            1 => options.remove(0),
            _ => Node::Choice(options),
        })
    }

    fn sequence(&mut self, depth: usize) -> Result<Node> {
        let mut items = Vec::new();
        loop {
            self.blank(depth > 0);
            let Some(c) = self.peek() else { break };
            let item = match c {
                '"' => Node::Text(self.string()?),
                '[' => Node::Set(self.set()?),
                '.' => {
                    self.at += 1;
                    Node::Set(vec![(0, 0x10FFFF)])
                }
                '<' => self.special()?,
                '!' => return self.wrong("tokens that are excluded are not supported"),
                '(' => {
                    self.at += 1;
                    self.blank(true);
                    let inner = self.choice(depth + 1)?;
                    self.blank(true);
                    if !self.eat(")") {
                        return self.wrong("expected )");
                    }
                    inner
                }
                c if is_name(c) => {
                    let start = self.at;
                    let name = self.name().unwrap_or_default();
                    Node::Rule(self.number(name, start))
                }
                '*' | '+' | '?' | '{' => return self.wrong(format!("{c:?} has nothing before it")),
                _ => break,
            };
            self.n_nodes += 1;
            if self.n_nodes > MAX_NODES {
                return self.wrong(format!("the grammar has more than {MAX_NODES} parts"));
            }
            let item = self.repeated(item)?;
            items.push(item);
        }
        Ok(match items.len() {
            1 => items.remove(0),
            _ => Node::Sequence(items),
        })
    }

    fn repeated(&mut self, mut item: Node) -> Result<Node> {
        loop {
            self.blank(false);
            let (least, most) = match self.peek() {
                Some('*') => (0, None),
                Some('+') => (1, None),
                Some('?') => (0, Some(1)),
                Some('{') => {
                    let (least, most) = self.times()?;
                    item = match most {
                        Some(0) => Node::Sequence(Vec::new()),
                        most => Node::Repeat(Box::new(item), least, most),
                    };
                    continue;
                }
                _ => return Ok(item),
            };
            self.at += 1;
            item = Node::Repeat(Box::new(item), least, most);
        }
    }

    /// {m}, {m,} or {m,n}.
    fn times(&mut self) -> Result<(u32, Option<u32>)> {
        let rest = self.rest();
        let end = rest.find('}').unwrap_or(rest.len());
        let body = &rest[1..end];
        let (from, to) = body.split_once(',').unwrap_or((body, body));
        let number = |text: &str| text.trim().parse::<u32>().ok().filter(|n| *n <= MAX_REPEAT);
        let least = number(from);
        let most = match to.trim() {
            "" => None,
            to => number(to),
        };
        let open = to.trim().is_empty() && body.contains(',');
        match (least, most) {
            (Some(least), most)
                if end < rest.len() && (open || most.is_some_and(|m| m >= least)) =>
            {
                self.at += end + 1;
                Ok((least, most))
            }
            _ => self.wrong(format!(
                "expected {{m}}, {{m,}} or {{m,n}} up to {MAX_REPEAT}"
            )),
        }
    }

    fn special(&mut self) -> Result<Node> {
        let rest = self.rest();
        let n = rest.find('>').map_or(0, |i| i + 1);
        let token = &rest[..n];
        if token.starts_with("<[") || super::lark::special(token).is_err() {
            return self.wrong("expected a special token such as <|im_end|>");
        }
        self.at += n;
        Ok(Node::Special(token.to_string()))
    }

    fn string(&mut self) -> Result<String> {
        let start = self.at;
        self.at += 1;
        let mut out = String::new();
        loop {
            match self.peek() {
                None | Some('\n') => {
                    self.at = start;
                    return self.wrong("the closing \" is missing");
                }
                Some('"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(_) => out.push(self.character()?),
            }
        }
    }

    fn set(&mut self) -> Result<Set> {
        let start = self.at;
        self.at += 1;
        let negated = self.eat("^");
        let mut set = Set::new();
        while !self.eat("]") {
            if matches!(self.peek(), None | Some('\n')) {
                self.at = start;
                return self.wrong("the closing ] is missing");
            }
            let at = self.at;
            let from = u32::from(self.character()?);
            let is_range = self.rest().starts_with('-') && !self.rest().starts_with("-]");
            let to = match is_range {
                true => {
                    self.at += 1;
                    u32::from(self.character()?)
                }
                false => from,
            };
            if to < from {
                self.at = at;
                return self.wrong("the range is empty");
            }
            set.push((from, to));
        }
        let set = tidy(set);
        let set = if negated { complement(&set) } else { set };
        match set.is_empty() {
            true => self.wrong("the set is empty"),
            false => Ok(set),
        }
    }

    fn character(&mut self) -> Result<char> {
        let Some(c) = self.peek() else {
            return self.wrong("ends too early");
        };
        if c != '\\' {
            self.at += c.len_utf8();
            return Ok(c);
        }
        let Some(c) = self.rest()[1..].chars().next() else {
            return self.wrong("ends with a backslash");
        };
        let n = match c {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            'n' | 'r' | 't' => 0,
            '\\' | '"' | '[' | ']' | '-' | '^' => 0,
            _ => return self.wrong(format!("the escape \\{c} is not known")),
        };
        let plain = match c {
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            c => c,
        };
        if n == 0 {
            self.at += 2;
            return Ok(plain);
        }
        let digits = self
            .rest()
            .get(2..2 + n)
            .filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        let code = digits
            .and_then(|d| u32::from_str_radix(d, 16).ok())
            .and_then(char::from_u32);
        match code {
            Some(code) => {
                self.at += 2 + n;
                Ok(code)
            }
            None => self.wrong(format!("\\{c} needs {n} hexadecimal digits of a character")),
        }
    }
}

fn tidy(mut set: Set) -> Set {
    set.sort_unstable();
    let mut out = Set::new();
    for (from, to) in set {
        match out.last_mut() {
            Some(last) if from <= last.1.saturating_add(1) => last.1 = last.1.max(to),
            _ => out.push((from, to)),
        }
    }
    out
}

fn complement(set: &Set) -> Set {
    let mut out = Set::new();
    let mut next = 0;
    for &(from, to) in set {
        if from > next {
            out.push((next, from - 1));
        }
        next = to + 1;
    }
    if next <= 0x10FFFF {
        out.push((next, 0x10FFFF));
    }
    out
}
