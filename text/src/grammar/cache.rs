//! Compiled grammars by the digest of their normal text, so that each is compiled once.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::compile::{self, Grammar, Patience};
use llguidance::api::ParserLimits;

use super::tokens::{self, Tokens};
use super::workers::{Caller, Workers, TICK};
use crate::error::{Error, Result};
use crate::load::Text;

pub struct Bounds {
    pub entries: usize,
    pub bytes: usize,
    /// Of one normal text.
    pub text_bytes: usize,
    pub deadline: Duration,
}

/// struct quire_grammars_stats
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Stats {
    hits: u64,
    misses: u64,
    evictions: u64,
    failures: u64,
    entries: u64,
    bytes: u64,
    given_up: u64,
    given_up_now: u64,
}

#[cfg(test)]
impl Stats {
    pub fn counts(&self) -> [u64; 5] {
        [
            self.hits,
            self.misses,
            self.evictions,
            self.failures,
            self.entries,
        ]
    }
}

enum Slot {
    /// Another thread compiles it.
    Open,
    /// A thread that was given up compiles it.
    GivenUp,
    Ready {
        grammar: Arc<Grammar>,
        used: u64,
    },
}

#[derive(Default)]
struct Shelf {
    slots: HashMap<[u8; 32], Slot>,
    clock: u64,
    stats: Stats,
}

/// What the tokens are made of when the first grammar is compiled.
pub struct Source {
    pub text: Arc<Text>,
    pub n_vocab: usize,
    pub eos: Vec<u32>,
    pub limits: ParserLimits,
}

/// struct quire_grammars
pub struct Grammars {
    source: Source,
    tokens: OnceLock<Result<Arc<Tokens>>>,
    bounds: Bounds,
    shelf: Mutex<Shelf>,
    closed: Condvar,
    pub workers: Arc<Workers>,
}

/// Takes the open slot away however the compilation ends.
struct Opened(Arc<Grammars>, [u8; 32]);

impl Drop for Opened {
    fn drop(&mut self) {
        let mut shelf = self.0.shelf();
        if matches!(shelf.slots.get(&self.1), Some(Slot::Open | Slot::GivenUp)) {
            shelf.slots.remove(&self.1);
            shelf.stats.failures += 1;
        }
        drop(shelf);
        self.0.closed.notify_all();
    }
}

impl Grammars {
    pub fn new(source: Source, bounds: Bounds) -> Result<Grammars> {
        tokens::check(&source.text, source.n_vocab, &source.eos)?;
        Ok(Grammars {
            source,
            tokens: OnceLock::new(),
            bounds,
            shelf: Mutex::default(),
            closed: Condvar::new(),
            workers: Arc::default(),
        })
    }

    /// The words of a mask.
    pub fn n_words(&self) -> usize {
        self.source.n_vocab.div_ceil(32)
    }

    /// Made by the first caller, because it takes 0.2 s and most servers never need it.
    pub fn tokens(&self) -> Result<&Arc<Tokens>> {
        let s = &self.source;
        let make = || Tokens::new(s.text.clone(), s.n_vocab, &s.eos, s.limits.clone());
        let made = self.tokens.get_or_init(|| make().map(Arc::new));
        made.as_ref().map_err(Error::clone)
    }

    /// A grammar of the cache. A miss is not counted: the caller compiles next.
    pub fn find(&self, normal: &[u8]) -> Option<Arc<Grammar>> {
        let digest = compile::digest(normal);
        let mut shelf = self.shelf();
        let now = shelf.clock + 1;
        let Some(Slot::Ready { grammar, used }) = shelf.slots.get_mut(&digest) else {
            return None;
        };
        *used = now;
        let grammar = grammar.clone();
        shelf.clock = now;
        shelf.stats.hits += 1;
        Some(grammar)
    }

    pub fn stats(&self) -> Stats {
        let (given_up, given_up_now) = self.workers.given_up();
        Stats {
            given_up,
            given_up_now,
            ..self.shelf().stats
        }
    }

    pub fn compile(self: &Arc<Self>, normal: &[u8], caller: &Caller) -> Result<Arc<Grammar>> {
        let limit = self.bounds.text_bytes;
        if normal.len() > limit {
            let n = normal.len();
            return Err(Error::invalid(format!(
                "grammar: {n} bytes in normal form, the limit is {limit}"
            )));
        }
        let text = std::str::from_utf8(normal).map_err(|e| {
            Error::invalid(format!("grammar: not UTF-8 at byte {}", e.valid_up_to()))
        })?;
        let patience = Patience::new(self.bounds.deadline);
        let digest = compile::digest(normal);
        if let Some(grammar) = self.wait(&digest, &patience, caller)? {
            return Ok(grammar);
        }
        let opened = Opened(self.clone(), digest);
        if caller.cancels() || caller.leaves() {
            patience.cancel();
        }
        patience.check()?;
        let (tokens, text, theirs) = (self.tokens()?.clone(), text.to_owned(), patience.clone());
        let work = move || (compile::compile(&tokens, &text, &theirs), opened);
        let give_up = || {
            self.shelf().slots.insert(digest, Slot::GivenUp);
            self.closed.notify_all();
        };
        let (grammar, opened) = self.workers.run(&patience, caller, work, give_up)?;
        let grammar = grammar?;
        self.put(digest, &grammar);
        drop(opened);
        Ok(grammar)
    }

    /// The grammar; or None, and the slot is open for the caller.
    fn wait(
        &self,
        digest: &[u8; 32],
        patience: &Patience,
        caller: &Caller,
    ) -> Result<Option<Arc<Grammar>>> {
        let mut shelf = self.shelf();
        loop {
            let now = shelf.clock + 1;
            match shelf.slots.get_mut(digest) {
                Some(Slot::Ready { grammar, used }) => {
                    *used = now;
                    let grammar = grammar.clone();
                    shelf.clock = now;
                    shelf.stats.hits += 1;
                    return Ok(Some(grammar));
                }
                None => {
                    shelf.slots.insert(*digest, Slot::Open);
                    shelf.stats.misses += 1;
                    return Ok(None);
                }
                Some(Slot::GivenUp) => {
                    return Err(patience.exhausted());
                }
                Some(Slot::Open) => {
                    if caller.cancels() || caller.leaves() {
                        patience.cancel();
                    }
                    patience.check()?;
                    let waited = self.closed.wait_timeout(shelf, TICK);
                    shelf = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }

    fn put(&self, digest: [u8; 32], grammar: &Arc<Grammar>) {
        let mut shelf = self.shelf();
        shelf.clock += 1;
        let used = shelf.clock;
        let grammar = grammar.clone();
        shelf.stats.entries += 1;
        shelf.stats.bytes += grammar.n_bytes as u64;
        shelf.slots.insert(digest, Slot::Ready { grammar, used });
        while shelf.stats.entries > 1
            && (shelf.stats.entries > self.bounds.entries as u64
                || shelf.stats.bytes > self.bounds.bytes as u64)
        {
            shelf.evict();
        }
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shelf {
    /// Takes the grammar away that was not asked for the longest.
    fn evict(&mut self) {
        let used = |slot: &Slot| match slot {
            Slot::Ready { used, .. } => Some(*used),
            Slot::Open | Slot::GivenUp => None,
        };
        let ready = self.slots.iter().filter_map(|(k, s)| Some((used(s)?, *k)));
        if let Some((_, oldest)) = ready.min() {
            if let Some(Slot::Ready { grammar, .. }) = self.slots.remove(&oldest) {
                self.stats.entries -= 1;
                self.stats.bytes -= grammar.n_bytes as u64;
                self.stats.evictions += 1;
            }
        }
    }
}
