//! Position automata of lexemes, to prove that matching each lexeme to its longest loses no string of a grammar.

use std::collections::HashSet;

use super::gbnf::{Node, Set};

/// Of all lexemes of a grammar.
pub const MAX_POSITIONS: usize = 4000;
const MAX_EDGES: usize = 400_000;
/// Parts of rules that are visited while an automaton is built.
const MAX_VISITS: usize = 100_000;
const MAX_STEPS: usize = 3_000_000;

/// A state per occurrence of a character set.
#[derive(Default)]
pub struct Automaton {
    sets: Vec<Set>,
    follow: Vec<Vec<usize>>,
    first: Vec<usize>,
    is_last: Vec<bool>,
    n_edges: usize,
    n_visits: usize,
}

/// A part of an automaton while it is built.
struct Part {
    first: Vec<usize>,
    last: Vec<usize>,
    nullable: bool,
}

impl Part {
    fn empty() -> Part {
        Part {
            first: Vec::new(),
            last: Vec::new(),
            nullable: true,
        }
    }
}

impl Automaton {
    /// None if it is too large. The rules in it are not recursive.
    pub fn of(node: &Node, rules: &[Node]) -> Option<Automaton> {
        let mut automaton = Automaton::default();
        let part = automaton.add(node, rules)?;
        if automaton.n_edges > MAX_EDGES {
            return None;
        }
        automaton.first = part.first;
        automaton.is_last = vec![false; automaton.sets.len()];
        for last in part.last {
            automaton.is_last[last] = true;
        }
        Some(automaton)
    }

    pub fn len(&self) -> usize {
        self.sets.len()
    }

    pub fn first_sets(&self) -> impl Iterator<Item = &Set> {
        self.first.iter().map(|p| &self.sets[*p])
    }

    fn position(&mut self, set: Set) -> Option<Part> {
        let at = self.sets.len();
        if at >= MAX_POSITIONS {
            return None;
        }
        self.sets.push(set);
        self.follow.push(Vec::new());
        Some(Part {
            first: vec![at],
            last: vec![at],
            nullable: false,
        })
    }

    fn add(&mut self, node: &Node, rules: &[Node]) -> Option<Part> {
        self.n_visits += 1;
        if self.n_visits > MAX_VISITS || self.n_edges > MAX_EDGES {
            return None;
        }
        match node {
            Node::Text(text) => {
                let mut whole = Part::empty();
                for c in text.chars() {
                    let next = self.position(vec![(u32::from(c), u32::from(c))])?;
                    whole = self.join(whole, next);
                }
                Some(whole)
            }
            Node::Set(set) => self.position(set.clone()),
            Node::Special(_) => None,
            Node::Rule(i) => self.add(&rules[*i], rules),
            Node::Sequence(items) => {
                let mut whole = Part::empty();
                for item in items {
                    let next = self.add(item, rules)?;
                    whole = self.join(whole, next);
                }
                Some(whole)
            }
            Node::Choice(items) => {
                let mut whole = Part {
                    first: Vec::new(),
                    last: Vec::new(),
                    nullable: false,
                };
                for item in items {
                    let part = self.add(item, rules)?;
                    whole.first.extend(part.first);
                    whole.last.extend(part.last);
                    whole.nullable |= part.nullable;
                }
                Some(whole)
            }
            Node::Repeat(item, least, most) => self.repeat(item, *least, *most, rules),
        }
    }

    /// Beyond the limit the automaton is given up at the next part.
    fn link(&mut self, last: &[usize], first: &[usize]) {
        self.n_edges += last.len() * first.len();
        if self.n_edges <= MAX_EDGES {
            last.iter().for_each(|p| self.follow[*p].extend(first));
        }
    }

    fn join(&mut self, a: Part, b: Part) -> Part {
        self.link(&a.last, &b.first);
        let mut first = a.first;
        if a.nullable {
            first.extend(&b.first);
        }
        let mut last = b.last;
        if b.nullable {
            last.extend(&a.last);
        }
        Part {
            first,
            last,
            nullable: a.nullable && b.nullable,
        }
    }

    fn repeat(
        &mut self,
        item: &Node,
        least: u32,
        most: Option<u32>,
        rules: &[Node],
    ) -> Option<Part> {
        let mut whole = Part::empty();
        for i in 0..most.unwrap_or(least.max(1)) {
            let before = self.sets.len();
            let mut part = self.add(item, rules)?;
            if self.sets.len() == before {
                // It matches the empty string only.
                break;
            }
            part.nullable |= i >= least;
            if most.is_none() && i + 1 == least.max(1) {
                self.link(&part.last, &part.first);
            }
            whole = self.join(whole, part);
        }
        Some(whole)
    }

    /// Whether some string of this lexeme, and a character that may follow it, begin a string of the other. None if
    /// the search takes too long.
    pub fn outgrown_by(&self, other: &Automaton, next: &Set, steps: &mut usize) -> Option<bool> {
        let mut seen = HashSet::new();
        let mut open = Vec::new();
        let visit = |p: &[usize],
                     q: &[usize],
                     open: &mut Vec<(usize, usize)>,
                     seen: &mut HashSet<(usize, usize)>,
                     steps: &mut usize| {
            for &p in p {
                for &q in q {
                    *steps += 1;
                    if overlap(&self.sets[p], &other.sets[q]) && seen.insert((p, q)) {
                        open.push((p, q));
                    }
                }
            }
        };
        visit(&self.first, &other.first, &mut open, &mut seen, steps);
        while let Some((p, q)) = open.pop() {
            if *steps > MAX_STEPS {
                return None;
            }
            if self.is_last[p]
                && other.follow[q]
                    .iter()
                    .any(|q| overlap(&other.sets[*q], next))
            {
                return Some(true);
            }
            visit(
                &self.follow[p],
                &other.follow[q],
                &mut open,
                &mut seen,
                steps,
            );
        }
        Some(false)
    }
}

pub fn overlap(a: &Set, b: &Set) -> bool {
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        if a[i].1 < b[j].0 {
            i += 1;
        } else if b[j].1 < a[i].0 {
            j += 1;
        } else {
            return true;
        }
    }
    false
}
