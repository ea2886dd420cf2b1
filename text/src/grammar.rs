//! The library behind text/quire_grammar.h: the C boundary of grammars and matchers.

pub(crate) mod cache;
pub(crate) mod compile;
pub(crate) mod matcher;
mod members;
mod productive;
pub(crate) mod reasoning;
pub(crate) mod tokens;
pub(crate) mod workers;

use std::ffi::{c_char, c_int};
use std::sync::Arc;
use std::time::Duration;

use llguidance::api::ParserLimits;

use crate::error::{Error, Result};
use crate::{boundary, null, quiet_panics, slice, text_ref, QuireError, QuireText};
use cache::{Bounds, Grammars, Source, Stats};
use compile::Grammar;
use matcher::Matcher;
use workers::Caller;

const TEXT_BYTES: usize = 2 << 20;
const COMPILE_FUEL: u64 = 1_000_000;
const SYMBOLS: usize = 500_000;
const LEXER_STATES: usize = 50_000;
const STEP_FUEL: u64 = 200_000;
const STEP_ITEMS: usize = 50_000;
const DEADLINE_MS: u32 = 5_000;
const CACHE_ENTRIES: usize = 256;
const CACHE_BYTES: usize = 256 << 20;

/// struct quire_grammar_limits
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Limits {
    text_bytes: usize,
    compile_fuel: u64,
    symbols: usize,
    lexer_states: usize,
    pub step_fuel: u64,
    step_items: usize,
    deadline_ms: u32,
}

/// struct quire_grammars_options
#[repr(C)]
pub struct Options {
    n_vocab: u32,
    eos: *const u32,
    n_eos: usize,
    cache_entries: usize,
    cache_bytes: usize,
    limits: Limits,
}

fn or<T: Default + PartialEq>(given: T, default: T) -> T {
    if given == T::default() {
        default
    } else {
        given
    }
}

impl Limits {
    pub fn parser(&self) -> ParserLimits {
        ParserLimits {
            initial_lexer_fuel: or(self.compile_fuel, COMPILE_FUEL),
            step_lexer_fuel: or(self.step_fuel, STEP_FUEL),
            step_max_items: or(self.step_items, STEP_ITEMS),
            max_lexer_states: or(self.lexer_states, LEXER_STATES),
            // One step has one limit of items, in one row or several.
            max_items_in_row: or(self.step_items, STEP_ITEMS),
            max_grammar_size: or(self.symbols, SYMBOLS),
            // The crate would put the whole grammar into its messages.
            verbose_errors: false,
            ..ParserLimits::default()
        }
    }

    pub fn bounds(&self, entries: usize, bytes: usize) -> Bounds {
        Bounds {
            entries: or(entries, CACHE_ENTRIES),
            bytes: or(bytes, CACHE_BYTES),
            text_bytes: or(self.text_bytes, TEXT_BYTES),
            deadline: Duration::from_millis(u64::from(or(self.deadline_ms, DEADLINE_MS))),
        }
    }
}

/// # Safety
/// As text/quire_grammar.h says; so for every function here.
#[no_mangle]
pub unsafe extern "C" fn quire_grammars_open(
    text: *const QuireText,
    options: *const Options,
    out: *mut *const Grammars,
    err: *mut QuireError,
) -> c_int {
    quiet_panics();
    boundary(err, || {
        let options = options.as_ref().ok_or_else(|| null("options"))?;
        let eos = slice(options.eos, options.n_eos, "eos")?;
        let limits = &options.limits;
        let text = text_ref(text)?.clone();
        let source = Source {
            text,
            n_vocab: options.n_vocab as usize,
            eos: eos.to_vec(),
            limits: limits.parser(),
        };
        let bounds = limits.bounds(options.cache_entries, options.cache_bytes);
        *out = Arc::into_raw(Arc::new(Grammars::new(source, bounds)?));
        Ok(())
    })
}

/// # Safety
/// See quire_grammars_open.
#[no_mangle]
pub unsafe extern "C" fn quire_grammars_retain(grammars: *const Grammars) -> *const Grammars {
    retain(grammars)
}

/// # Safety
/// See quire_grammars_open.
#[no_mangle]
pub unsafe extern "C" fn quire_grammars_release(grammars: *const Grammars) {
    release(grammars);
}

unsafe fn retain<T>(shared: *const T) -> *const T {
    if !shared.is_null() {
        Arc::increment_strong_count(shared);
    }
    shared
}

unsafe fn release<T>(shared: *const T) {
    if !shared.is_null() {
        boundary(std::ptr::null_mut(), || {
            drop(Arc::from_raw(shared));
            Ok(())
        });
    }
}

/// # Safety
/// See quire_grammars_open.
#[no_mangle]
pub unsafe extern "C" fn quire_grammars_stats(grammars: *const Grammars, out: *mut Stats) {
    if let (Some(grammars), Some(out)) = (grammars.as_ref(), out.as_mut()) {
        *out = grammars.stats();
    }
}

/// # Safety
/// See quire_grammars_open.
#[no_mangle]
pub unsafe extern "C" fn quire_grammars_words(grammars: *const Grammars) -> usize {
    grammars.as_ref().map_or(0, |g| g.n_words())
}

/// # Safety
/// See quire_grammars_open.
#[no_mangle]
pub unsafe extern "C" fn quire_grammar_compile(
    grammars: *const Grammars,
    normal: *const c_char,
    n: usize,
    caller: *const Caller,
    out: *mut *const Grammar,
    err: *mut QuireError,
) -> c_int {
    boundary(err, || {
        if grammars.is_null() {
            return Err(null("grammars"));
        }
        let grammars = Arc::from_raw(retain(grammars));
        let normal = slice(normal.cast::<u8>(), n, "normal")?;
        let caller = caller.as_ref().unwrap_or(&Caller::PATIENT);
        *out = Arc::into_raw(grammars.compile(normal, caller)?);
        Ok(())
    })
}

/// # Safety
/// See quire_grammars_open.
#[no_mangle]
pub unsafe extern "C" fn quire_grammar_find(
    grammars: *const Grammars,
    normal: *const c_char,
    n: usize,
) -> *const Grammar {
    let mut found = std::ptr::null();
    boundary(std::ptr::null_mut(), || {
        let grammars = grammars.as_ref().ok_or_else(|| null("grammars"))?;
        let normal = slice(normal.cast::<u8>(), n, "normal")?;
        found = grammars.find(normal).map_or(found, Arc::into_raw);
        Ok(())
    });
    found
}

/// # Safety
/// See quire_grammars_open.
#[no_mangle]
pub unsafe extern "C" fn quire_grammar_retain(grammar: *const Grammar) -> *const Grammar {
    retain(grammar)
}

/// # Safety
/// See quire_grammars_open.
#[no_mangle]
pub unsafe extern "C" fn quire_grammar_release(grammar: *const Grammar) {
    release(grammar);
}

/// # Safety
/// See quire_grammars_open; sha256 has 32 bytes.
#[no_mangle]
pub unsafe extern "C" fn quire_grammar_digest(grammar: *const Grammar, sha256: *mut u8) {
    if let (Some(grammar), false) = (grammar.as_ref(), sha256.is_null()) {
        std::ptr::copy_nonoverlapping(grammar.digest.as_ptr(), sha256, grammar.digest.len());
    }
}

/// # Safety
/// See quire_grammars_open.
#[no_mangle]
pub unsafe extern "C" fn quire_grammar_compile_ns(grammar: *const Grammar) -> u64 {
    grammar.as_ref().map_or(0, |g| g.compile_ns)
}

/// # Safety
/// See quire_grammars_open.
#[no_mangle]
pub unsafe extern "C" fn quire_grammar_bytes(grammar: *const Grammar) -> usize {
    grammar.as_ref().map_or(0, |g| g.n_bytes)
}

/// # Safety
/// See quire_grammars_open.
#[no_mangle]
pub unsafe extern "C" fn quire_matcher_open(
    grammar: *const Grammar,
    out: *mut *mut Matcher,
    err: *mut QuireError,
) -> c_int {
    boundary(err, || {
        if grammar.is_null() {
            return Err(null("grammar"));
        }
        let grammar = Arc::from_raw(retain(grammar));
        *out = Box::into_raw(Box::new(Matcher::new(grammar)));
        Ok(())
    })
}

/// # Safety
/// See quire_grammars_open.
#[no_mangle]
pub unsafe extern "C" fn quire_matcher_clone(
    matcher: *const Matcher,
    out: *mut *mut Matcher,
    err: *mut QuireError,
) -> c_int {
    boundary(err, || {
        let matcher = matcher.as_ref().ok_or_else(|| null("matcher"))?;
        *out = Box::into_raw(Box::new(matcher.deep_clone()));
        Ok(())
    })
}

/// # Safety
/// See quire_grammars_open.
#[no_mangle]
pub unsafe extern "C" fn quire_matcher_close(matcher: *mut Matcher) {
    if !matcher.is_null() {
        boundary(std::ptr::null_mut(), || {
            drop(Box::from_raw(matcher));
            Ok(())
        });
    }
}

unsafe fn with_matcher(
    matcher: *mut Matcher,
    err: *mut QuireError,
    f: impl FnOnce(&mut Matcher) -> Result<()>,
) -> c_int {
    boundary(err, || {
        f(matcher.as_mut().ok_or_else(|| null("matcher"))?)
    })
}

/// # Safety
/// See quire_grammars_open; words has quire_grammars_words() of them.
#[no_mangle]
pub unsafe extern "C" fn quire_matcher_mask(
    matcher: *mut Matcher,
    words: *mut u32,
    err: *mut QuireError,
) -> c_int {
    with_matcher(matcher, err, |m| {
        if words.is_null() {
            return Err(null("words"));
        }
        m.mask(std::slice::from_raw_parts_mut(words, m.n_words()))
    })
}

/// # Safety
/// See quire_grammars_open.
#[no_mangle]
pub unsafe extern "C" fn quire_matcher_accept(
    matcher: *mut Matcher,
    id: u32,
    err: *mut QuireError,
) -> c_int {
    with_matcher(matcher, err, |m| {
        if m.accept(id)? {
            return Ok(());
        }
        let at = m.n_accepted();
        Err(Error::invalid(format!(
            "grammar: token {id} is not allowed after {at} tokens"
        )))
    })
}

/// # Safety
/// See quire_grammars_open.
#[no_mangle]
pub unsafe extern "C" fn quire_matcher_accept_many(
    matcher: *mut Matcher,
    ids: *const u32,
    n: usize,
    n_ok: *mut usize,
    err: *mut QuireError,
) -> c_int {
    with_matcher(matcher, err, |m| {
        let before = m.n_accepted();
        let result = m.accept_many(slice(ids, n, "ids")?);
        *n_ok = m.n_accepted() - before;
        result.map(|_| ())
    })
}

/// # Safety
/// See quire_grammars_open.
#[no_mangle]
pub unsafe extern "C" fn quire_matcher_check(
    matcher: *mut Matcher,
    ids: *const u32,
    n: usize,
    n_ok: *mut usize,
    err: *mut QuireError,
) -> c_int {
    with_matcher(matcher, err, |m| {
        *n_ok = m.check(slice(ids, n, "ids")?)?;
        Ok(())
    })
}

/// # Safety
/// See quire_grammars_open.
#[no_mangle]
pub unsafe extern "C" fn quire_matcher_rollback(
    matcher: *mut Matcher,
    n: usize,
    err: *mut QuireError,
) -> c_int {
    with_matcher(matcher, err, |m| m.rollback(n))
}

/// # Safety
/// See quire_grammars_open; ids has room for max of them.
#[no_mangle]
pub unsafe extern "C" fn quire_matcher_forced(
    matcher: *mut Matcher,
    ids: *mut u32,
    max: usize,
    n: *mut usize,
    err: *mut QuireError,
) -> c_int {
    with_matcher(matcher, err, |m| {
        let forced = m.forced(max)?;
        if !forced.is_empty() && ids.is_null() {
            return Err(null("ids"));
        }
        std::ptr::copy_nonoverlapping(forced.as_ptr(), ids, forced.len());
        *n = forced.len();
        Ok(())
    })
}

/// # Safety
/// See quire_grammars_open.
#[no_mangle]
pub unsafe extern "C" fn quire_matcher_n_accepted(matcher: *const Matcher) -> usize {
    matcher.as_ref().map_or(0, Matcher::n_accepted)
}

/// # Safety
/// See quire_grammars_open.
#[no_mangle]
pub unsafe extern "C" fn quire_matcher_may_stop(
    matcher: *mut Matcher,
    may: *mut bool,
    err: *mut QuireError,
) -> c_int {
    with_matcher(matcher, err, |m| {
        *may = m.may_stop()?;
        Ok(())
    })
}

/// # Safety
/// See quire_grammars_open.
#[no_mangle]
pub unsafe extern "C" fn quire_matcher_is_over(
    matcher: *mut Matcher,
    over: *mut bool,
    err: *mut QuireError,
) -> c_int {
    with_matcher(matcher, err, |m| {
        *over = m.is_over()?;
        Ok(())
    })
}
