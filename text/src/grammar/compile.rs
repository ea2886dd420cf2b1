//! Normal text → a compiled grammar, within limits that are counted, so that every machine accepts the same grammars.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use llguidance::api::TopLevelGrammar;
use llguidance::TokenParser;
use sha2::{Digest, Sha256};

use super::matcher::Matcher;
use super::members;
use super::productive::is_productive;
use super::reasoning::{self, Reasoning};
use super::tokens::Tokens;
use crate::chat::on_deep_stack;
use crate::error::{Error, Result, Status};

/// struct quire_grammar
pub struct Grammar {
    pub tokens: Arc<Tokens>,
    /// At the grammar's start. Matchers are deep clones, so that what one does is not seen by another.
    pub start: TokenParser,
    pub reasoning: Option<Reasoning>,
    pub digest: [u8; 32],
    pub compile_ns: u64,
    pub n_bytes: usize,
}

/// Stands for a free answer behind a reasoning. Its matcher never calls the parser.
const FREE: &str = "start: /(?s:.)*/";

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

pub fn compile(tokens: &Arc<Tokens>, normal: &str, patience: &Patience) -> Result<Arc<Grammar>> {
    let since = Instant::now();
    let (reasoning, rest) = reasoning::split(normal, tokens)?;
    members::check(rest)?;
    let rest = if rest.is_empty() && reasoning.is_some() {
        FREE
    } else {
        rest
    };
    let start = on_deep_stack(|| {
        patience.check()?;
        let init = TopLevelGrammar::from_lark(rest.to_owned());
        let mut parser = tokens
            .factory
            .create_parser(init)
            .map_err(|e| refused(&e.to_string()))?;
        let spec = parser.parser.grammar().lexer_spec();
        if !spec.can_rollback() {
            return Err(Error::invalid(
                "grammar: the attributes stop= and max_tokens= are not supported",
            ));
        }
        patience.check()?;
        if !is_productive(&mut parser, tokens) {
            return Err(Error::invalid("grammar: no string matches it"));
        }
        patience.check()?;
        parser.start_without_prompt();
        Ok(parser)
    })?;
    let stats = start.parser.lexer_stats();
    let grammar = Arc::new(Grammar {
        tokens: tokens.clone(),
        digest: digest(normal.as_bytes()),
        compile_ns: since.elapsed().as_nanos() as u64,
        n_bytes: normal.len() + stats.num_bytes,
        start,
        reasoning,
    });
    // What fails at its start is no grammar.
    let mut words = vec![0; tokens.live_text.len()];
    Matcher::new(grammar.clone()).mask(&mut words)?;
    patience.check()?;
    Ok(grammar)
}

/// The crate's message without what it adds for debugging: the lines of the normal text around the place.
pub fn refused(message: &str) -> Error {
    let message = message.split("\n<").next().unwrap_or(message);
    if let Some(assertion) = message.strip_prefix("panic: ") {
        return Error::invalid(format!("grammar: too large for the compiler ({assertion})"));
    }
    let own = message.lines().take_while(|line| !is_excerpt(line));
    let message = own.collect::<Vec<_>>().join(" ");
    // The place in the normal text says nothing to who wrote a schema.
    let message = match message.split_once("failed to compile JSON schema: ") {
        Some((_, why)) => format!("JSON schema: {why}"),
        None => message,
    };
    Error::invalid(format!("grammar: {}", message.trim_end()))
}

/// "   2 | q_1: %json {…"
fn is_excerpt(line: &str) -> bool {
    let number = line.split_once(" | ").map_or("", |(number, _)| number.trim());
    !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
}
