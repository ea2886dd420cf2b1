//! Rules over characters as Lark.
//!
//! llguidance matches each lexeme to its longest, and so would lose strings of a grammar whose parts overlap. A grammar
//! without recursion becomes one lexeme, which is exact. Else, large lexemes are tried first, and a proof that none can
//! be outgrown by another one that may stand in its place. If there is no proof, the lexemes are smaller, at last single
//! characters, which need no proof.

use std::collections::HashMap;
use std::fmt::Write;

use super::automaton::{Automaton, MAX_POSITIONS};
use super::gbnf::{Node, Set};
use super::lark::{quoted, slashed, Lark};
use crate::error::{Error, Result};

/// Above this the proof is not tried.
const MAX_LEXEMES: usize = 600;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Size {
    /// Neighbours are joined.
    Joined,
    /// Each part without recursion.
    Parts,
    Characters,
}

struct Grammar<'a> {
    rules: &'a [Node],
    /// Whether a rule can be a lexeme: it does not lead to a rule that leads to itself, nor to a special token.
    regular: Vec<bool>,
    nullable: Vec<bool>,
    size: Size,
    /// The lexemes, by their Lark text, and the rules in use.
    numbers: HashMap<String, usize>,
    lexemes: Vec<(String, Node)>,
    used: Vec<usize>,
    /// Where a rule stands in `used`.
    places: HashMap<usize, usize>,
    lowered: Vec<Low>,
}

/// A rule's body over lexemes.
#[derive(Clone)]
enum Low {
    Lexeme(usize),
    Special(String),
    Rule(usize),
    Sequence(Vec<Low>),
    Choice(Vec<Low>),
    Repeat(Box<Low>, u32, Option<u32>),
}

pub fn add(lark: &mut Lark, rules: &[Node], root: usize) -> Result<String> {
    let regular = regular(rules);
    let nullable = nullable(rules);
    if regular[root] {
        let mut names = HashMap::new();
        let name = terminal(lark, rules, root, &mut names);
        if !nullable[root] {
            return Ok(name);
        }
        return Ok(format!(
            "{}?",
            lark.terminal(&format!("{name} & /(?s:.)+/"))
        ));
    }
    for size in [Size::Joined, Size::Parts, Size::Characters] {
        let mut grammar = Grammar {
            rules,
            regular: regular.clone(),
            nullable: nullable.clone(),
            size,
            numbers: HashMap::new(),
            lexemes: Vec::new(),
            used: vec![root],
            places: HashMap::from([(root, 0)]),
            lowered: Vec::new(),
        };
        let mut i = 0;
        while i < grammar.used.len() {
            let low = grammar.lower(&rules[grammar.used[i]]);
            grammar.lowered.push(low);
            i += 1;
        }
        if size == Size::Characters || grammar.is_exact() {
            return grammar.write(lark);
        }
    }
    Err(Error::invalid("the grammar is too complex"))
}

fn children(node: &Node, out: &mut impl FnMut(&Node)) {
    out(node);
    match node {
        Node::Sequence(items) | Node::Choice(items) => items.iter().for_each(|n| children(n, out)),
        Node::Repeat(item, ..) => children(item, out),
        _ => (),
    }
}

/// Rules that never lead to themselves, nor to a rule or token that no lexeme can hold.
fn regular(rules: &[Node]) -> Vec<bool> {
    let mut uses: Vec<Vec<usize>> = vec![Vec::new(); rules.len()];
    let mut regular = vec![false; rules.len()];
    let mut waits = vec![0; rules.len()];
    let mut special = vec![false; rules.len()];
    for (i, rule) in rules.iter().enumerate() {
        children(rule, &mut |node| match node {
            Node::Rule(j) => {
                uses[*j].push(i);
                waits[i] += 1;
            }
            Node::Special(_) => special[i] = true,
            _ => (),
        });
    }
    let mut ready: Vec<usize> = (0..rules.len()).filter(|i| waits[*i] == 0).collect();
    while let Some(i) = ready.pop() {
        if special[i] {
            continue;
        }
        regular[i] = true;
        for &user in &uses[i] {
            waits[user] -= 1;
            if waits[user] == 0 {
                ready.push(user);
            }
        }
    }
    regular
}

fn nullable(rules: &[Node]) -> Vec<bool> {
    let mut known = vec![false; rules.len()];
    loop {
        let mut changed = false;
        for (i, rule) in rules.iter().enumerate() {
            if !known[i] && is_nullable(rule, &known) {
                known[i] = true;
                changed = true;
            }
        }
        if !changed {
            return known;
        }
    }
}

fn is_nullable(node: &Node, rules: &[bool]) -> bool {
    match node {
        Node::Text(text) => text.is_empty(),
        Node::Set(_) | Node::Special(_) => false,
        Node::Rule(i) => rules[*i],
        Node::Sequence(items) => items.iter().all(|n| is_nullable(n, rules)),
        Node::Choice(items) => items.iter().any(|n| is_nullable(n, rules)),
        Node::Repeat(item, least, _) => *least == 0 || is_nullable(item, rules),
    }
}

/// A rule as a terminal, after those that it uses.
fn terminal(
    lark: &mut Lark,
    rules: &[Node],
    rule: usize,
    names: &mut HashMap<usize, String>,
) -> String {
    if let Some(name) = names.get(&rule) {
        return name.clone();
    }
    let body = expression(lark, rules, &rules[rule], names);
    let name = lark.terminal(&body);
    names.insert(rule, name.clone());
    name
}

fn expression(
    lark: &mut Lark,
    rules: &[Node],
    node: &Node,
    names: &mut HashMap<usize, String>,
) -> String {
    match node {
        Node::Text(text) => quoted(text),
        Node::Set(set) => class(set),
        Node::Special(_) => "\"\"".to_string(),
        Node::Rule(i) => terminal(lark, rules, *i, names),
        Node::Sequence(items) if items.is_empty() => "\"\"".to_string(),
        Node::Sequence(items) | Node::Choice(items) => {
            let between = if matches!(node, Node::Choice(_)) {
                " | "
            } else {
                " "
            };
            let items: Vec<String> = items
                .iter()
                .map(|n| expression(lark, rules, n, names))
                .collect();
            format!("({})", items.join(between))
        }
        Node::Repeat(item, least, most) => {
            format!(
                "({}){}",
                expression(lark, rules, item, names),
                times(*least, *most)
            )
        }
    }
}

fn times(least: u32, most: Option<u32>) -> String {
    match (least, most) {
        (0, None) => "*".to_string(),
        (1, None) => "+".to_string(),
        (0, Some(1)) => "?".to_string(),
        (least, None) => format!("{{{least},}}"),
        (least, Some(most)) => format!("{{{least},{most}}}"),
    }
}

fn class(set: &Set) -> String {
    let mut out = "[".to_string();
    for &(from, to) in set {
        let _ = write!(out, "\\x{{{from:X}}}");
        if to > from {
            let _ = write!(out, "-\\x{{{to:X}}}");
        }
    }
    out.push(']');
    slashed(&out)
}

impl Grammar<'_> {
    fn is_regular(&self, node: &Node) -> bool {
        let mut all = true;
        children(node, &mut |n| match n {
            Node::Rule(i) => all &= self.regular[*i],
            Node::Special(_) => all = false,
            _ => (),
        });
        all
    }

    fn lexeme(&mut self, node: &Node) -> Low {
        let key = format!("{node:?}");
        let next = self.lexemes.len();
        let number = *self.numbers.entry(key.clone()).or_insert(next);
        if number == next {
            self.lexemes.push((key, node.clone()));
        }
        match is_nullable(node, &self.nullable) {
            true => Low::Repeat(Box::new(Low::Lexeme(number)), 0, Some(1)),
            false => Low::Lexeme(number),
        }
    }

    fn lower(&mut self, node: &Node) -> Low {
        let empty = matches!(node, Node::Sequence(items) if items.is_empty());
        if empty || matches!(node, Node::Text(text) if text.is_empty()) {
            return Low::Sequence(Vec::new());
        }
        let is_unit = matches!(node, Node::Set(_));
        if is_unit || self.size != Size::Characters && self.is_regular(node) {
            return self.lexeme(node);
        }
        match node {
            Node::Text(text) => {
                let units = text
                    .chars()
                    .map(|c| self.lexeme(&Node::Text(c.to_string())));
                Low::Sequence(units.collect())
            }
            Node::Set(_) => Low::Sequence(Vec::new()),
            Node::Special(token) => Low::Special(token.clone()),
            Node::Rule(i) => {
                let used = &mut self.used;
                let at = self.places.entry(*i).or_insert_with(|| {
                    used.push(*i);
                    used.len() - 1
                });
                Low::Rule(*at)
            }
            Node::Sequence(items) => Low::Sequence(self.runs(items, Node::Sequence)),
            Node::Choice(items) => {
                let (regular, others): (Vec<Node>, Vec<Node>) = match self.size {
                    Size::Joined => items.iter().cloned().partition(|n| self.is_regular(n)),
                    _ => (Vec::new(), items.clone()),
                };
                let mut low: Vec<Low> = others.iter().map(|n| self.lower(n)).collect();
                match regular.len() {
                    0 => (),
                    1 => low.push(self.lower(&regular[0])),
                    _ => low.push(self.lower(&Node::Choice(regular))),
                }
                Low::Choice(low)
            }
            Node::Repeat(item, least, most) => {
                Low::Repeat(Box::new(self.lower(item)), *least, *most)
            }
        }
    }

    /// The items of a sequence; neighbours that can be one lexeme are one.
    fn runs(&mut self, items: &[Node], join: fn(Vec<Node>) -> Node) -> Vec<Low> {
        if self.size != Size::Joined {
            return items.iter().map(|n| self.lower(n)).collect();
        }
        let mut out = Vec::new();
        let mut run: Vec<Node> = Vec::new();
        for item in items {
            if self.is_regular(item) {
                run.push(item.clone());
                continue;
            }
            self.flush(&mut run, join, &mut out);
            out.push(self.lower(item));
        }
        self.flush(&mut run, join, &mut out);
        out
    }

    fn flush(&mut self, run: &mut Vec<Node>, join: fn(Vec<Node>) -> Node, out: &mut Vec<Low>) {
        let run = std::mem::take(run);
        match run.len() {
            0 => (),
            1 => out.push(self.lower(&run[0])),
            _ => out.push(self.lower(&join(run))),
        }
    }

    /// Whether it is proven that longest matches lose nothing.
    fn is_exact(&self) -> bool {
        if self.lexemes.len() > MAX_LEXEMES {
            return false;
        }
        let mut automata = Vec::new();
        let mut n_positions = 0;
        for (_, node) in &self.lexemes {
            let Some(automaton) = Automaton::of(node, self.rules) else {
                return false;
            };
            n_positions += automaton.len();
            if n_positions > MAX_POSITIONS {
                return false;
            }
            automata.push(automaton);
        }
        let follow = Follow::of(self);
        let mut steps = 0;
        for (a, automaton) in automata.iter().enumerate() {
            let mut next = Set::new();
            for b in 0..automata.len() {
                if follow.after[a][b] {
                    next.extend(automata[b].first_sets().flatten());
                }
            }
            next.sort_unstable();
            let next = merged(next);
            for (b, other) in automata.iter().enumerate() {
                if follow.together(a, b)
                    && automaton.outgrown_by(other, &next, &mut steps) != Some(false)
                {
                    return false;
                }
            }
        }
        true
    }

    fn write(self, lark: &mut Lark) -> Result<String> {
        let mut names = HashMap::new();
        let lexemes: Vec<String> = self
            .lexemes
            .iter()
            .map(|(_, node)| {
                let body = expression(lark, self.rules, node, &mut names);
                match is_nullable(node, &self.nullable) {
                    true => lark.terminal(&format!("{body} & /(?s:.)+/")),
                    false => lark.terminal(&body),
                }
            })
            .collect();
        let rules: Vec<String> = (0..self.used.len()).map(|_| lark.name()).collect();
        for (name, low) in rules.iter().zip(&self.lowered) {
            let body = text(low, &lexemes, &rules);
            lark.named(name, &body);
        }
        Ok(rules[0].clone())
    }
}

fn merged(sorted: Set) -> Set {
    let mut out = Set::new();
    for (from, to) in sorted {
        match out.last_mut() {
            Some(last) if from <= last.1.saturating_add(1) => last.1 = last.1.max(to),
            _ => out.push((from, to)),
        }
    }
    out
}

fn text(low: &Low, lexemes: &[String], rules: &[String]) -> String {
    match low {
        Low::Lexeme(i) => lexemes[*i].clone(),
        Low::Special(token) => token.clone(),
        Low::Rule(i) => rules[*i].clone(),
        Low::Sequence(items) if items.is_empty() => "\"\"".to_string(),
        Low::Sequence(items) | Low::Choice(items) => {
            let between = if matches!(low, Low::Choice(_)) {
                " | "
            } else {
                " "
            };
            let items: Vec<String> = items.iter().map(|l| text(l, lexemes, rules)).collect();
            format!("({})", items.join(between))
        }
        Low::Repeat(item, least, most) => {
            format!("({}){}", text(item, lexemes, rules), times(*least, *most))
        }
    }
}

/// Which lexemes may follow which. The last row stands for the start.
struct Follow {
    after: Vec<Vec<bool>>,
    changed: bool,
}

/// Of a part: which lexemes begin and end it.
#[derive(Clone)]
struct Edges {
    first: Vec<bool>,
    last: Vec<bool>,
    nullable: bool,
}

impl Edges {
    fn none(n: usize, nullable: bool) -> Edges {
        Edges {
            first: vec![false; n],
            last: vec![false; n],
            nullable,
        }
    }
}

/// Returns whether a grew.
fn unite(a: &mut [bool], b: &[bool]) -> bool {
    let mut grew = false;
    for (a, b) in a.iter_mut().zip(b) {
        grew |= *b && !*a;
        *a |= b;
    }
    grew
}

impl Follow {
    fn of(grammar: &Grammar) -> Follow {
        let n = grammar.lexemes.len() + 1;
        let mut rules = vec![Edges::none(n, false); grammar.lowered.len()];
        let mut follow = Follow {
            after: vec![vec![false; n]; n],
            changed: true,
        };
        while follow.changed {
            follow.changed = false;
            for (i, low) in grammar.lowered.iter().enumerate() {
                let edges = follow.edges(low, &rules, n);
                let rule = &mut rules[i];
                follow.changed |= unite(&mut rule.first, &edges.first);
                follow.changed |= unite(&mut rule.last, &edges.last);
                follow.changed |= edges.nullable && !rule.nullable;
                rule.nullable |= edges.nullable;
            }
        }
        unite(&mut follow.after[n - 1], &rules[0].first);
        follow
    }

    /// Whether both may be expected at one place.
    fn together(&self, a: usize, b: usize) -> bool {
        self.after.iter().any(|after| after[a] && after[b])
    }

    fn joined(&mut self, a: &Edges, b: &Edges) {
        for (i, _) in a.last.iter().enumerate().filter(|(_, is)| **is) {
            self.changed |= unite(&mut self.after[i], &b.first);
        }
    }

    fn edges(&mut self, low: &Low, rules: &[Edges], n: usize) -> Edges {
        match low {
            Low::Lexeme(i) => {
                let mut edges = Edges::none(n, false);
                edges.first[*i] = true;
                edges.last[*i] = true;
                edges
            }
            // Nothing of a text can be a part of a token, but what follows it begins anew, as at the start.
            Low::Special(_) => {
                let mut edges = Edges::none(n, false);
                edges.last[n - 1] = true;
                edges
            }
            Low::Rule(i) => rules[*i].clone(),
            Low::Sequence(items) => {
                let mut whole = Edges::none(n, true);
                for item in items {
                    let next = self.edges(item, rules, n);
                    self.joined(&whole, &next);
                    if whole.nullable {
                        unite(&mut whole.first, &next.first);
                    }
                    if !next.nullable {
                        whole.last.fill(false);
                    }
                    unite(&mut whole.last, &next.last);
                    whole.nullable &= next.nullable;
                }
                whole
            }
            Low::Choice(items) => {
                let mut whole = Edges::none(n, false);
                for item in items {
                    let part = self.edges(item, rules, n);
                    unite(&mut whole.first, &part.first);
                    unite(&mut whole.last, &part.last);
                    whole.nullable |= part.nullable;
                }
                whole
            }
            Low::Repeat(item, least, most) => {
                let mut part = self.edges(item, rules, n);
                if *most != Some(1) {
                    let same = part.clone();
                    self.joined(&part, &same);
                }
                part.nullable |= *least == 0;
                part
            }
        }
    }
}
