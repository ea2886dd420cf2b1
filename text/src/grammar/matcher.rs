//! Where one choice is in its grammar.
//!
//! The queue of forced ids is a function of the grammar and the accepted ids alone. At each place the queue is what
//! remains of the last run of forced ids; where no run reaches, the crate is asked for the next run, once. A mask in a
//! run has one bit. Everything else that the crate keeps (its mask cache, its fuel) is reset where it could let one
//! call change the result of another.

use std::sync::Arc;

use llguidance::api::StopReason;
use llguidance::earley::{BiasComputer, ParserRecognizer};
use llguidance::toktrie::{SimpleVob, TokTrie};
use llguidance::TokenParser;

use super::compile::Grammar;
use super::tokens::Tokens;
use crate::error::{Error, Result};

/// Forced ids that begin at a place, counted in accepted ids.
#[derive(Clone)]
struct Run {
    begin: usize,
    ids: Arc<[u32]>,
}

/// struct quire_matcher
#[derive(Clone)]
pub struct Matcher {
    grammar: Arc<Grammar>,
    parser: TokenParser,
    accepted: Vec<u32>,
    runs: Vec<Run>,
    /// The place where the crate was asked last and forced nothing.
    free: Option<usize>,
    /// The last accepted id ended the answer; the parser has not seen it.
    ended: bool,
    broken: Option<Error>,
}

/// A mask of nothing. Asking for it is the only way to give the lexer its fuel for one step.
struct Refuel<'a>(&'a Tokens);

fn refuel(parser: &mut TokenParser, tokens: &Tokens) {
    parser.parser.compute_bias(&Refuel(tokens), b" ");
}

impl BiasComputer for Refuel<'_> {
    fn compute_bias(&self, _: &mut ParserRecognizer<'_>, _: &[u8]) -> SimpleVob {
        SimpleVob::new()
    }

    fn trie(&self) -> &TokTrie {
        self.0.factory.tok_env().tok_trie()
    }
}

impl Matcher {
    pub fn new(grammar: Arc<Grammar>) -> Matcher {
        Matcher {
            parser: grammar.start.deep_clone(),
            grammar,
            accepted: Vec::new(),
            runs: Vec::new(),
            free: None,
            ended: false,
            broken: None,
        }
    }

    /// Shares nothing that changes with the other.
    pub fn deep_clone(&self) -> Matcher {
        let mut copy = self.clone();
        copy.parser = self.parser.deep_clone();
        copy
    }

    pub fn n_words(&self) -> usize {
        self.tokens().live.len()
    }

    pub fn n_accepted(&self) -> usize {
        self.accepted.len()
    }

    fn tokens(&self) -> &Tokens {
        &self.grammar.tokens
    }

    /// Runs a step of the crate; its failure is the matcher's from now on.
    fn step<T>(&mut self, f: impl FnOnce(&mut Matcher) -> Result<T>) -> Result<T> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        // What stays if f panics.
        self.broken = Some(Error::invalid(
            "grammar: the matcher failed; the grammar is too complex for it",
        ));
        refuel(&mut self.parser, &self.grammar.tokens);
        let result = f(self);
        self.broken = result.as_ref().err().cloned();
        result
    }

    /// The forced ids that come next. Inside a step.
    fn queue(&mut self) -> Result<&[u32]> {
        let at = self.accepted.len();
        let run = |m: &Matcher| {
            let run = m.runs.last()?;
            (at < run.begin + run.ids.len()).then_some(at - run.begin)
        };
        let mut skip = run(self);
        if skip.is_none() && !self.ended && self.free != Some(at) {
            let mut ids = self.parser.compute_ff_tokens();
            self.no_error()?;
            let end = ids.iter().position(|id| self.tokens().eos.contains(id));
            ids.truncate(end.unwrap_or(ids.len()));
            if ids.is_empty() {
                self.free = Some(at);
            } else {
                self.runs.push(Run {
                    begin: at,
                    ids: ids.into(),
                });
                skip = Some(0);
            }
        }
        Ok(match skip {
            Some(skip) => &self.runs[self.runs.len() - 1].ids[skip..],
            None => &[],
        })
    }

    fn no_error(&self) -> Result<()> {
        match self.parser.parser.get_error() {
            Some(e) => Err(too_complex(&e.message())),
            None => Ok(()),
        }
    }

    fn stop_allowed(&mut self) -> Result<bool> {
        let may = !self.ended && self.queue()?.is_empty() && self.parser.is_accepting();
        self.no_error()?;
        Ok(may)
    }

    pub fn may_stop(&mut self) -> Result<bool> {
        self.step(Matcher::stop_allowed)
    }

    pub fn is_over(&mut self) -> Result<bool> {
        self.step(|m| Ok(m.ended || m.stop_allowed()? && !m.parser.parser.can_advance()))
    }

    pub fn mask(&mut self, words: &mut [u32]) -> Result<()> {
        self.step(|m| {
            words.fill(0);
            if m.ended {
                return Ok(());
            }
            if let Some(id) = m.queue()?.first() {
                words[*id as usize / 32] |= 1 << (id % 32);
                return Ok(());
            }
            let mask = match m.parser.compute_mask() {
                Err(_) if m.parser.stop_reason() == StopReason::NoExtensionBias => {
                    return Err(Error::invalid(NO_TOKEN));
                }
                mask => mask.map_err(|e| too_complex(&e.to_string()))?,
            };
            let live = &m.grammar.tokens.live;
            for ((word, allowed), live) in words.iter_mut().zip(mask.as_slice()).zip(live) {
                *word = allowed & live;
            }
            let may_stop = m.stop_allowed()?;
            for id in &m.grammar.tokens.eos {
                let bit = 1 << (id % 32);
                let word = &mut words[*id as usize / 32];
                *word = if may_stop { *word | bit } else { *word & !bit };
            }
            if words.iter().all(|word| *word == 0) {
                return Err(Error::invalid(NO_TOKEN));
            }
            Ok(())
        })
    }

    /// Whether the mask has this id. Inside a step.
    fn allows(&mut self, id: u32) -> Result<bool> {
        if self.ended {
            return Ok(false);
        }
        if let Some(next) = self.queue()?.first() {
            return Ok(*next == id);
        }
        if self.tokens().eos.contains(&id) {
            return self.stop_allowed();
        }
        if !self.tokens().is_live(id) {
            return Ok(false);
        }
        let valid = self.parser.validate_token(id);
        self.no_error()?;
        valid.map_err(|e| too_complex(&e.to_string()))
    }

    /// Goes on by an id that is allowed. Inside a step.
    fn push(&mut self, id: u32) -> Result<()> {
        if self.tokens().eos.contains(&id) {
            self.ended = true;
        } else {
            let taken = self.parser.consume_token(id);
            self.no_error()?;
            taken.map_err(|e| too_complex(&e.to_string()))?;
        }
        self.accepted.push(id);
        Ok(())
    }

    pub fn accept(&mut self, id: u32) -> Result<bool> {
        self.step(|m| {
            let allowed = m.allows(id)?;
            if allowed {
                m.push(id)?;
            }
            Ok(allowed)
        })
    }

    pub fn accept_many(&mut self, ids: &[u32]) -> Result<usize> {
        for (n, id) in ids.iter().enumerate() {
            if !self.accept(*id)? {
                return Ok(n);
            }
        }
        Ok(ids.len())
    }

    pub fn check(&mut self, ids: &[u32]) -> Result<usize> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        let before = self.accepted.len();
        let result = self.accept_many(ids);
        let n = self.accepted.len() - before;
        if result.is_err() {
            // What is too complex on a way that is not taken is no failure of this matcher.
            self.restart(before)?;
        } else {
            self.rollback(n)?;
        }
        Ok(n)
    }

    /// Comes back to a place from the start.
    fn restart(&mut self, n: usize) -> Result<()> {
        let ids: Vec<u32> = self.accepted[..n].to_vec();
        *self = Matcher::new(self.grammar.clone());
        self.accept_many(&ids).map(|_| ())
    }

    pub fn rollback(&mut self, n: usize) -> Result<()> {
        let have = self.accepted.len();
        if n > have {
            return Err(Error::invalid(format!(
                "grammar: rollback by {n} of {have} accepted ids"
            )));
        }
        if n == 0 {
            return Ok(());
        }
        self.step(|m| {
            let at = have - n;
            let back = m
                .parser
                .rollback(n - usize::from(std::mem::take(&mut m.ended)));
            back.map_err(|e| too_complex(&e.to_string()))?;
            // Its key does not tell one state from another that has as many rows.
            m.parser.invalidate_bias_cache();
            m.accepted.truncate(at);
            m.runs.retain(|run| run.begin <= at);
            m.free = None;
            Ok(())
        })
    }

    pub fn forced(&mut self, max: usize) -> Result<Vec<u32>> {
        self.step(|m| {
            let queue = m.queue()?;
            Ok(queue[..queue.len().min(max)].to_vec())
        })
    }
}

const NO_TOKEN: &str =
    "grammar: no token of this tokenizer continues what was accepted; the grammar has a dead end";

fn too_complex(message: &str) -> Error {
    let message = message.split("\n<").next().unwrap_or(message);
    Error::invalid(format!("grammar: too complex here: {message}"))
}
