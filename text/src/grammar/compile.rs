//! Normal text → a compiled grammar, within limits that are counted, so that every machine accepts the same grammars.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use llguidance::api::{GrammarInit, TopLevelGrammar};
use llguidance::earley::lexerspec::LexerSpec;
use llguidance::panic_utils::catch_unwind;
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

/// Of the fuel of a compilation. The example at check_start(), with 20 in place of 18, ends there after 1.6 s of a CPU.
const START_FUEL: u64 = 16;

/// When to give up. The caller and its thread share it.
#[derive(Clone)]
pub struct Patience {
    since: Instant,
    deadline: Duration,
    cancel: Arc<AtomicBool>,
}

impl Patience {
    pub fn new(deadline: Duration) -> Patience {
        Patience {
            since: Instant::now(),
            deadline,
            cancel: Arc::default(),
        }
    }

    pub fn cancel(&self) {
        self.cancel.store(true, Ordering::Relaxed);
    }

    pub fn exhausted(&self) -> Error {
        let ms = self.deadline.as_millis();
        Error::new(
            Status::Exhausted,
            format!("grammar: not compiled after {ms} ms; simplify it"),
        )
    }

    pub fn has_time(&self) -> Result<()> {
        match self.since.elapsed() > self.deadline {
            true => Err(self.exhausted()),
            false => Ok(()),
        }
    }

    pub fn check(&self) -> Result<()> {
        if self.cancel.load(Ordering::Relaxed) {
            return Err(Error::new(Status::Unavailable, "grammar: cancelled"));
        }
        self.has_time()
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
        let mut parser = parser_of(tokens, rest, patience)?;
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

fn parser_of(tokens: &Tokens, lark: &str, patience: &Patience) -> Result<TokenParser> {
    let factory = &tokens.factory;
    let init = GrammarInit::Serialized(TopLevelGrammar::from_lark(lark.to_owned()));
    let parts = || init.to_internal(Some(factory.tok_env().clone()), factory.limits().clone());
    let parts = catch_unwind(AssertUnwindSafe(parts));
    let (rules, lexemes) = parts.map_err(|e| refused(&e.to_string()))?;
    patience.check()?;
    if lark.contains(['&', '~']) {
        check_start(&lexemes, tokens)?;
        patience.check()?;
    }
    let init = GrammarInit::Internal(rules, lexemes);
    let parser = factory.create_parser_from_init_default(init);
    parser.map_err(|e| refused(&e.to_string()))
}

/// The crate makes the first states of its lexer without a limit: it spends minutes and gigabytes on
/// "x" | "b" (/[ab]*a[ab]{18}/ & ~/[ab]*a[ab]{18}c?/). The same states are made here first, with a limit. Other operators
/// have few such states, except multipleOf, which schemas have within a limit of their own.
fn check_start(lexemes: &LexerSpec, tokens: &Tokens) -> Result<()> {
    let mut limits = tokens.factory.limits().clone();
    let mut lexemes = lexemes.clone();
    lexemes.add_extra_lexemes(&tokens.factory.extra_lexemes());
    let error = catch_unwind(AssertUnwindSafe(|| {
        let mut lexer = lexemes.to_regex_vec(&mut limits)?;
        lexer.set_fuel(START_FUEL * tokens.factory.limits().initial_lexer_fuel);
        let start = lexer.initial_state(&lexemes.all_lexemes());
        let ends = |byte: u8| {
            lexer.transition(start, byte);
            lexer.has_error()
        };
        let _ = (0..=u8::MAX).any(ends);
        Ok(lexer.get_error())
    }));
    match error.map_err(|e| refused(&e.to_string()))? {
        Some(error) => Err(refused(&error)),
        None => Ok(()),
    }
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
