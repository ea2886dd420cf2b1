//! Normal text → a compiled grammar, within limits that are counted, so that every machine accepts the same grammars.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use llguidance::api::TopLevelGrammar;
use llguidance::earley::{CGrammar, CSymIdx};
use llguidance::TokenParser;
use sha2::{Digest, Sha256};

use super::nesting;
use super::tokens::Tokens;
use crate::chat::on_deep_stack;
use crate::error::{Error, Result, Status};

/// struct quire_grammar
pub struct Grammar {
    pub tokens: Arc<Tokens>,
    /// At the grammar's start. Matchers are deep clones, so that what one does is not seen by another.
    pub start: TokenParser,
    pub digest: [u8; 32],
    pub compile_ns: u64,
    pub n_bytes: usize,
}

/// When to give up.
pub struct Patience<'a> {
    since: Instant,
    deadline: Duration,
    cancel: Option<&'a AtomicBool>,
}

impl Patience<'_> {
    pub fn new(deadline: Duration, cancel: Option<&AtomicBool>) -> Patience<'_> {
        Patience {
            since: Instant::now(),
            deadline,
            cancel,
        }
    }

    pub fn check(&self) -> Result<()> {
        if self.cancel.is_some_and(|flag| flag.load(Ordering::Relaxed)) {
            return Err(Error::new(Status::Unavailable, "grammar: cancelled"));
        }
        if self.since.elapsed() > self.deadline {
            let ms = self.deadline.as_millis();
            return Err(Error::new(
                Status::Exhausted,
                format!("grammar: not compiled after {ms} ms; simplify it"),
            ));
        }
        Ok(())
    }
}

pub fn digest(normal: &[u8]) -> [u8; 32] {
    Sha256::digest(normal).into()
}

pub fn compile(tokens: &Arc<Tokens>, normal: &str, patience: &Patience) -> Result<Grammar> {
    let since = Instant::now();
    nesting::check(normal)?;
    let start = on_deep_stack(|| {
        patience.check()?;
        let init = TopLevelGrammar::from_lark(normal.to_owned());
        let mut parser = tokens
            .factory
            .create_parser(init)
            .map_err(|e| refused(&e.to_string()))?;
        let spec = parser.parser.grammar().lexer_spec();
        if !spec.can_rollback() {
            return Err(Error::invalid(
                "grammar: the attributes stop=, max_tokens= and lazy bodies without an end are not supported",
            ));
        }
        patience.check()?;
        if !is_productive(parser.parser.grammar()) {
            return Err(Error::invalid("grammar: no string matches it"));
        }
        patience.check()?;
        parser.start_without_prompt();
        parser.compute_ff_tokens();
        // A deep clone: what the mask stores must not be in each matcher.
        let mask = parser.deep_clone().compute_mask();
        mask.map_err(|e| refused(&e.to_string()).at("no token can start it"))?;
        patience.check()?;
        Ok(parser)
    })?;
    let stats = start.parser.lexer_stats();
    Ok(Grammar {
        tokens: tokens.clone(),
        digest: digest(normal.as_bytes()),
        compile_ns: since.elapsed().as_nanos() as u64,
        n_bytes: normal.len() + stats.num_bytes,
        start,
    })
}

/// The crate's message without what it adds for debugging.
pub fn refused(message: &str) -> Error {
    let message = message.split("\n<").next().unwrap_or(message);
    Error::invalid(format!("grammar: {message}"))
}

/// Whether some string of terminals derives from the start symbol. A symbol that recurses without an end has none.
fn is_productive(grammar: &CGrammar) -> bool {
    let mut search = Search::default();
    search.visit(grammar, grammar.start());
    let mut changed = true;
    while changed && !search.is_productive(grammar.start()) {
        changed = search.pass(grammar);
    }
    search.is_productive(grammar.start())
}

#[derive(Default)]
struct Search {
    order: Vec<CSymIdx>,
    seen: Vec<bool>,
    productive: Vec<bool>,
}

impl Search {
    fn is_productive(&self, symbol: CSymIdx) -> bool {
        self.productive
            .get(symbol.as_index())
            .copied()
            .unwrap_or(false)
    }

    /// All symbols that the start reaches, without recursion.
    fn visit(&mut self, grammar: &CGrammar, start: CSymIdx) {
        let mut open = vec![start];
        while let Some(symbol) = open.pop() {
            let i = symbol.as_index();
            if self.seen.len() <= i {
                self.seen.resize(i + 1, false);
                self.productive.resize(i + 1, false);
            }
            if self.seen[i] {
                continue;
            }
            self.seen[i] = true;
            self.order.push(symbol);
            let data = grammar.sym_data(symbol);
            self.productive[i] = data.is_terminal || data.is_nullable;
            for rule in grammar.rules_of(symbol) {
                open.extend_from_slice(grammar.rule_rhs(*rule).0);
            }
        }
        // Symbols that others are made of tend to be reached after them.
        self.order.reverse();
    }

    fn pass(&mut self, grammar: &CGrammar) -> bool {
        let mut changed = false;
        for i in 0..self.order.len() {
            let symbol = self.order[i];
            if self.is_productive(symbol) {
                continue;
            }
            let all = |rule| {
                let (rhs, _, _) = grammar.rule_rhs(rule);
                rhs.iter().all(|part| self.is_productive(*part))
            };
            if grammar.rules_of(symbol).iter().any(|rule| all(*rule)) {
                self.productive[symbol.as_index()] = true;
                changed = true;
            }
        }
        changed
    }
}
