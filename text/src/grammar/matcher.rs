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
use super::reasoning::{Begins, Reasoning};
use super::tokens::Tokens;
use crate::error::{Error, Result};

/// Forced ids that begin at a place, counted in accepted ids.
#[derive(Clone)]
struct Run {
    begin: usize,
    ids: Arc<[u32]>,
}

/// Where an answer is. All of it is structured if its grammar has no reasoning.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The first ids decide whether there is a reasoning.
    Start,
    /// The rest of the text that opens it is forced.
    Opening,
    /// In the reasoning, which began behind this number of ids.
    Inside(usize),
    /// Behind the reasoning: the grammar, which began behind this number of ids.
    Grammar(usize),
    /// Behind the reasoning: any text.
    Free,
}

/// struct quire_matcher
#[derive(Clone)]
pub struct Matcher {
    grammar: Arc<Grammar>,
    parser: TokenParser,
    accepted: Vec<u32>,
    runs: Vec<Run>,
    /// The phases so far, and the number of ids before each.
    phases: Vec<(usize, Phase)>,
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
        let (first, forced) = match &grammar.reasoning {
            None => (Phase::Grammar(0), &[][..]),
            Some(r) => match r.begins {
                Begins::Inside => (Phase::Inside(0), &[][..]),
                Begins::Must => (Phase::Opening, &r.open_ids[..]),
                Begins::May if r.budget == Some(0) && !r.is_free => (Phase::Grammar(0), &[][..]),
                Begins::May => (Phase::Start, &[][..]),
            },
        };
        let runs = match forced.is_empty() {
            true => Vec::new(),
            false => vec![Run {
                begin: 0,
                ids: forced.into(),
            }],
        };
        Matcher {
            parser: grammar.start.deep_clone(),
            phases: vec![(0, first)],
            grammar,
            accepted: Vec::new(),
            runs,
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
        self.tokens().live_text.len()
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

    fn phase(&self) -> Phase {
        self.phases[self.phases.len() - 1].1
    }

    fn enter(&mut self, phase: Phase) {
        self.phases.push((self.accepted.len(), phase));
    }

    fn reasoning(&self) -> Option<&Reasoning> {
        self.grammar.reasoning.as_ref()
    }

    /// How many ids of the last run were accepted. None: it does not reach this place.
    fn in_run(&self) -> Option<usize> {
        let at = self.accepted.len();
        let run = self.runs.last()?;
        (at < run.begin + run.ids.len()).then_some(at - run.begin)
    }

    fn force(&mut self, ids: Vec<u32>) {
        self.runs.push(Run {
            begin: self.accepted.len(),
            ids: ids.into(),
        });
    }

    /// Asks the crate for the run that begins here, once.
    fn find_run(&mut self) -> Result<()> {
        let at = self.accepted.len();
        if self.in_run().is_some() || self.ended || self.free == Some(at) {
            return Ok(());
        }
        let mut ids = self.parser.compute_ff_tokens();
        self.no_error()?;
        let end = ids.iter().position(|id| self.tokens().eos.contains(id));
        ids.truncate(end.unwrap_or(ids.len()));
        if ids.is_empty() {
            self.free = Some(at);
        } else {
            self.force(ids);
        }
        Ok(())
    }

    /// An exhausted budget ends the reasoning that began behind `begin` ids.
    fn end_reasoning(&mut self, begin: usize) -> Result<()> {
        let used = self.accepted.len() - begin;
        let Some(r) = self.reasoning().filter(|r| r.budget.is_some_and(|n| used >= n)) else {
            return Ok(());
        };
        if self.in_run().is_none() {
            let begun = r.begun(self.tokens(), &self.accepted[begin..]);
            let ids = self.tokens().spell(&r.force[begun..])?;
            self.force(ids);
        }
        Ok(())
    }

    /// The forced ids that come next. Inside a step.
    fn queue(&mut self) -> Result<&[u32]> {
        match self.phase() {
            Phase::Grammar(_) => self.find_run()?,
            Phase::Inside(begin) => self.end_reasoning(begin)?,
            // The reasoning may be opened instead of the grammar's run.
            Phase::Start => return Ok(&[]),
            Phase::Opening | Phase::Free => (),
        }
        Ok(match self.in_run() {
            Some(skip) if !self.ended => &self.runs[self.runs.len() - 1].ids[skip..],
            _ => &[],
        })
    }

    fn no_error(&self) -> Result<()> {
        match self.parser.parser.get_error() {
            Some(e) => Err(too_complex(&e.message())),
            None => Ok(()),
        }
    }

    fn stop_allowed(&mut self) -> Result<bool> {
        let is_free = self.is_free();
        let may = match self.phase() {
            _ if self.ended || !self.queue()?.is_empty() => false,
            Phase::Start if is_free => true,
            Phase::Start | Phase::Grammar(_) => self.parser.is_accepting(),
            Phase::Free => true,
            Phase::Opening | Phase::Inside(_) => false,
        };
        self.no_error()?;
        Ok(may)
    }

    fn is_free(&self) -> bool {
        self.reasoning().is_some_and(|r| r.is_free)
    }

    pub fn may_stop(&mut self) -> Result<bool> {
        self.step(Matcher::stop_allowed)
    }

    pub fn is_over(&mut self) -> Result<bool> {
        self.step(|m| {
            let may_end = m.stop_allowed()? && !m.is_free() && m.phase() != Phase::Start;
            Ok(m.ended || may_end && !m.parser.parser.can_advance())
        })
    }

    pub fn mask(&mut self, words: &mut [u32]) -> Result<()> {
        self.step(|m| {
            let forced = m.queue()?.first().copied();
            if m.ended || forced.is_some() {
                words.fill(0);
                if let Some(id) = forced {
                    set(words, id);
                }
                return Ok(());
            }
            match m.phase() {
                Phase::Grammar(_) => m.grammar_mask(words),
                Phase::Start if !m.is_free() => m.start_mask(words),
                _ => m.free_mask(words),
            }
        })
    }

    /// The first id of the grammar's run, or those it allows; and that which opens the reasoning.
    fn start_mask(&mut self, words: &mut [u32]) -> Result<()> {
        self.find_run()?;
        match self.runs.last().map(|run| run.ids[0]) {
            Some(id) => {
                words.fill(0);
                set(words, id);
            }
            None => self.grammar_mask(words)?,
        }
        if let Some(id) = self.reasoning().map(|r| r.open_ids[0]) {
            set(words, id);
        }
        Ok(())
    }

    fn free_mask(&mut self, words: &mut [u32]) -> Result<()> {
        let (tokens, accepted) = (&self.grammar.tokens, &self.accepted);
        match (self.reasoning(), self.phase()) {
            (Some(r), Phase::Inside(begin)) => r.mask(tokens, &accepted[begin..], words),
            _ => words.copy_from_slice(&tokens.live_text),
        }
        if self.stop_allowed()? {
            for id in &self.grammar.tokens.eos {
                set(words, *id);
            }
        }
        Ok(())
    }

    fn grammar_mask(&mut self, words: &mut [u32]) -> Result<()> {
        let mask = match self.parser.compute_mask() {
            Err(_) if self.parser.stop_reason() == StopReason::NoExtensionBias => {
                return Err(Error::invalid(NO_TOKEN));
            }
            mask => mask.map_err(|e| too_complex(&e.to_string()))?,
        };
        let may_stop = self.stop_allowed()?;
        let tokens = &self.grammar.tokens;
        let mut any = u32::from(may_stop);
        let both = mask.as_slice().iter().zip(&tokens.live_text);
        for (word, (allowed, live)) in words.iter_mut().zip(both) {
            *word = allowed & live;
            any |= *word;
        }
        if any == 0 {
            return Err(Error::invalid(NO_TOKEN));
        }
        if may_stop {
            for id in &tokens.eos {
                set(words, *id);
            }
        }
        Ok(())
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
        let tokens = &self.grammar.tokens;
        match (self.reasoning(), self.phase()) {
            (Some(r), Phase::Inside(begin)) => Ok(r.allows(tokens, &self.accepted[begin..], id)),
            (Some(r), Phase::Start) if !r.is_free => {
                Ok(r.open_ids[0] == id || self.grammar_allows(id)?)
            }
            (_, Phase::Grammar(_)) => self.grammar_allows(id),
            _ => Ok(tokens.is_live_text(id)),
        }
    }

    /// Here: in the grammar, or where it may begin.
    fn grammar_allows(&mut self, id: u32) -> Result<bool> {
        self.find_run()?;
        if let Some(skip) = self.in_run() {
            return Ok(self.runs[self.runs.len() - 1].ids[skip] == id);
        }
        if !self.tokens().is_live_text(id) {
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
            self.accepted.push(id);
            return Ok(());
        }
        if self.phase() == Phase::Start && !self.is_free() {
            self.decide(id)?;
        }
        match self.phase() {
            Phase::Grammar(_) => {
                let taken = self.parser.consume_token(id);
                self.no_error()?;
                taken.map_err(|e| too_complex(&e.to_string()))?;
                self.accepted.push(id);
            }
            _ => self.push_free(id),
        }
        Ok(())
    }

    /// The first id opens the reasoning, or begins the grammar. If an id does both, the reasoning needs an id of its own.
    fn decide(&mut self, id: u32) -> Result<()> {
        let (first, n) = match self.reasoning() {
            Some(r) => (r.open_ids[0], r.open_ids.len()),
            None => return Ok(()),
        };
        if first != id || (n > 1 && self.grammar_allows(id)?) {
            self.enter(Phase::Grammar(0));
            return Ok(());
        }
        // Runs that the grammar would have had.
        self.runs.clear();
        let ids = self.reasoning().map(|r| r.open_ids.clone());
        self.force(ids.unwrap_or_default());
        self.enter(Phase::Opening);
        Ok(())
    }

    /// An id outside the grammar, which may be the last one there.
    fn push_free(&mut self, id: u32) {
        let phase = self.phase();
        let (tokens, r) = (&self.grammar.tokens, &self.grammar.reasoning);
        let Some(r) = r else { return };
        let n = self.accepted.len() + 1;
        let ends = match phase {
            Phase::Inside(begin) => r.is_ended_by(tokens, &self.accepted[begin..], id),
            _ => false,
        };
        self.accepted.push(id);
        let next = match phase {
            Phase::Inside(_) if ends && r.is_free => Some(Phase::Free),
            Phase::Inside(_) if ends => Some(Phase::Grammar(n)),
            Phase::Opening if n == r.open_ids.len() => Some(Phase::Inside(n)),
            Phase::Start => match r.is_opened_by(tokens, &self.accepted) {
                Some(true) => Some(Phase::Inside(n)),
                Some(false) => Some(Phase::Free),
                None => None,
            },
            _ => None,
        };
        if let Some(next) = next {
            self.enter(next);
        }
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
            let n = n - usize::from(std::mem::take(&mut m.ended));
            if let Phase::Grammar(begin) = m.phase() {
                let back = m.parser.rollback(n.min(at + n - begin));
                back.map_err(|e| too_complex(&e.to_string()))?;
            }
            // A phase that the first id decides begins before it.
            let is_first = |phase: &Phase| at == 0 && *phase != m.phases[0].1;
            let keep = |(begin, phase): &(usize, Phase)| *begin <= at && !is_first(phase);
            let phases: Vec<_> = m.phases.iter().copied().filter(keep).collect();
            m.phases = phases;
            // Its key does not tell one state from another that has as many rows.
            m.parser.invalidate_bias_cache();
            m.accepted.truncate(at);
            m.runs.retain(|run| run.begin <= at);
            if m.phase() == Phase::Start {
                m.runs.clear();
            }
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

fn set(words: &mut [u32], id: u32) {
    words[id as usize / 32] |= 1 << (id % 32);
}

const NO_TOKEN: &str =
    "grammar: no token of this tokenizer continues what was accepted; the grammar has a dead end";

fn too_complex(message: &str) -> Error {
    let message = message.split("\n<").next().unwrap_or(message);
    Error::invalid(format!("grammar: too complex here: {message}"))
}
