//! The library behind text/quire_grammar_normal.h: one normal Lark text for each form of structured output.

mod automaton;
mod facts;
mod formats;
mod gbnf;
mod lark;
mod lexemes;
mod literals;
mod logic;
mod meeting;
mod negation;
mod parameters;
mod path;
mod patterns;
mod refs;
mod schema;
mod tags;
mod tools;
mod users_lark;
mod words;
mod written;

use std::ffi::{c_char, c_int};

use serde_json::{json, Value};

use crate::error::{Error, Result};
use crate::grammar::reasoning::has_form;
use crate::{boundary, c_str, null, put_text, quiet_panics, slice, QuireError};
use lark::Lark;
use path::Path;

/// Of a client's text.
const MAX_BYTES: usize = 1 << 20;
/// Limit for a normal text. llguidance takes about 1 ms for 10 KB.
const MAX_NORMAL_BYTES: usize = 2 << 20;
const MAX_CHOICES: usize = 10_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    JsonObject,
    JsonSchema,
    Regex,
    Choice,
    Lark,
    Gbnf,
    StructuralTag,
    Tools,
    Free,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whitespace {
    Compact,
    Spaced,
    Flexible,
}

/// The reasoning before the structured part.
pub struct Reasoning<'a> {
    pub begins: &'a str,
    pub open: &'a str,
    pub end: &'a str,
    pub force: &'a str,
    /// Between the end and the form; its parts `<|…|>` are special tokens.
    pub then: &'a str,
    pub budget: Option<u32>,
}

impl Reasoning<'_> {
    /// The line before the grammar, as grammar/reasoning.rs reads it.
    pub fn line(&self) -> Result<String> {
        if self.end.is_empty() {
            return Err(Error::invalid("the end of the reasoning is empty"));
        }
        let members = json!({"begins": self.begins, "open": self.open, "end": self.end,
            "force": self.force, "budget": self.budget});
        Ok(format!("%reasoning {members}\n"))
    }
}

/// struct quire_grammar_reasoning
#[repr(C)]
pub struct QuireGrammarReasoning {
    begins: c_int,
    open: *const c_char,
    end: *const c_char,
    force: *const c_char,
    then: *const c_char,
    budget: i64,
}

unsafe fn reasoning_of(r: &QuireGrammarReasoning) -> Result<Reasoning<'_>> {
    let begins = match r.begins {
        0 => "inside",
        1 => "may",
        2 => "must",
        other => return Err(Error::invalid(format!("begins {other} does not exist"))),
    };
    let end = c_str(r.end, "end")?.unwrap_or_default();
    Ok(Reasoning {
        begins,
        open: c_str(r.open, "open")?.unwrap_or_default(),
        end,
        force: c_str(r.force, "force")?.unwrap_or(end),
        then: c_str(r.then, "then")?.unwrap_or_default(),
        budget: u32::try_from(r.budget).ok(),
    })
}

/// struct quire_grammar_source
#[repr(C)]
pub struct QuireGrammarSource {
    form: c_int,
    text: *const c_char,
    n_bytes: usize,
    whitespace: c_int,
    reasoning: *const QuireGrammarReasoning,
}

/// # Safety
/// As text/quire_grammar_normal.h says.
#[no_mangle]
pub unsafe extern "C" fn quire_grammar_has_form(normal: *const u8, n_bytes: usize) -> bool {
    n_bytes > 0 && has_form(std::slice::from_raw_parts(normal, n_bytes))
}

/// # Safety
/// As text/quire_grammar_normal.h says.
#[no_mangle]
pub unsafe extern "C" fn quire_grammar_normal(
    source: *const QuireGrammarSource,
    out: *mut *mut c_char,
    n_bytes: *mut usize,
    err: *mut QuireError,
) -> c_int {
    quiet_panics();
    boundary(err, || {
        let source = source.as_ref().ok_or_else(|| null("source"))?;
        let form = match source.form {
            0 => Form::JsonObject,
            1 => Form::JsonSchema,
            2 => Form::Regex,
            3 => Form::Choice,
            4 => Form::Lark,
            5 => Form::Gbnf,
            6 => Form::StructuralTag,
            7 => Form::Tools,
            8 => Form::Free,
            other => return Err(Error::invalid(format!("form {other} does not exist"))),
        };
        let whitespace = match source.whitespace {
            0 => Whitespace::Compact,
            1 => Whitespace::Spaced,
            2 => Whitespace::Flexible,
            other => return Err(Error::invalid(format!("whitespace {other} does not exist"))),
        };
        let reasoning = source.reasoning.as_ref();
        let reasoning = reasoning.map(|r| reasoning_of(r)).transpose()?;
        let bytes = slice(source.text.cast::<u8>(), source.n_bytes, "text")?;
        let text = normal(form, bytes, whitespace, reasoning)?;
        put_text(&text, out, n_bytes)
    })
}

pub fn normal(
    form: Form,
    bytes: &[u8],
    whitespace: Whitespace,
    reasoning: Option<Reasoning>,
) -> Result<String> {
    if bytes.len() > MAX_BYTES {
        return Err(Error::invalid(format!(
            "the text has {} bytes; the limit is {MAX_BYTES}",
            bytes.len()
        )));
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|e| Error::invalid(format!("byte {}: not UTF-8", e.valid_up_to())))?;
    let mut lark = Lark::new(whitespace, written::Inexact::of(text));
    if form == Form::Free {
        let line = reasoning.map(|r| r.line()).transpose()?;
        return line.ok_or_else(|| Error::invalid("a free answer has no grammar"));
    }
    let start = match form {
        Form::JsonObject => lark.json(schema::Normal::any_object()),
        Form::JsonSchema => lark.schema(&read_json(text)?, &Path::Root)?,
        Form::Regex => lark.regex(text)?,
        Form::Choice => choice(&read_json(text)?)?,
        Form::Lark => users_lark::add(&mut lark, text)?,
        Form::Gbnf => gbnf::add(&mut lark, text)?,
        Form::StructuralTag => tags::add(&mut lark, &read_json(text)?)?,
        Form::Tools => tools::add(&mut lark, &read_json(text)?)?,
        Form::Free => String::new(),
    };
    let text = lark.finish(start, reasoning)?;
    if text.len() > MAX_NORMAL_BYTES {
        return Err(Error::invalid(format!(
            "the grammar has {} bytes in its normal form; the limit is {MAX_NORMAL_BYTES}",
            text.len()
        )));
    }
    Ok(text)
}

/// JSON without duplicate keys: serde_json keeps the last one, and a validator may keep the first.
fn read_json(text: &str) -> Result<Value> {
    // Bodies of requests may have no \u0000, but values of schemas may.
    let without_nul = text.replace("\\u0000", "\\u0001");
    crate::json::check(without_nul.as_bytes(), 127)
        .map_err(|e| Error::invalid(e.text))?;
    serde_json::from_str(text).map_err(|e| Error::invalid(format!("not valid JSON: {e}")))
}

fn choice(list: &Value) -> Result<String> {
    let wrong = || Error::invalid("the choices are not an array of strings");
    let list = list.as_array().ok_or_else(wrong)?;
    if list.is_empty() || list.len() > MAX_CHOICES {
        return Err(Error::invalid(format!(
            "{} choices; at least 1 and at most {MAX_CHOICES} are allowed",
            list.len()
        )));
    }
    let mut seen = std::collections::HashSet::new();
    let mut options = Vec::with_capacity(list.len());
    for (i, item) in list.iter().enumerate() {
        let text = item.as_str().ok_or_else(wrong)?;
        if text.is_empty() {
            return Err(Error::invalid(format!(
                "/{i}: an empty choice has no token"
            )));
        }
        if seen.insert(text) {
            options.push(lark::quoted(text));
        }
    }
    Ok(format!("({})", options.join(" | ")))
}

/// The schema for parts without a schema.
fn any_object() -> Value {
    json!({"type": "object"})
}
