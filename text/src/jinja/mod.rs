//! The template engine, made to do what Jinja does as transformers sets it up.

pub mod python;

mod arguments;
pub mod budget;
mod filters;
mod lexer;
mod methods;
mod operations;
mod printf;
mod repr;
mod rewrite;
mod wrap;

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{from_args, Object, Rest, Value};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State};

/// Instructions of one rendering: some 25,000 messages of a long template.
const FUEL: u64 = 4_000_000;

/// An environment as transformers sets one up, without templates.
pub fn environment() -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build();
    environment.set_syntax(syntax?);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    environment.set_unknown_method_callback(methods::method);
    environment.set_formatter(|out, state, value| {
        // A block of `set` keeps what it outputs.
        budget::spend(value.as_str().map_or(0, str::len))?;
        let plain = matches!(state.auto_escape(), AutoEscape::None) || value.is_safe();
        let written = match value.as_str() {
            Some(text) if plain => out.write_str(text),
            None if plain => out.write_str(&repr::text(value)),
            _ => out.write_str(&filters::escape_text(&repr::text(value))),
        };
        written.map_err(|_| Error::new(ErrorKind::WriteFailure, "too long"))
    });
    minijinja_contrib::add_to_environment(&mut environment);
    environment.remove_global("debug");
    environment.add_filter("tojson", python::tojson);
    environment.add_filter("trim", python::trim);
    filters::add(&mut environment);
    operations::add(&mut environment);
    environment.add_function("cycler", cycler);
    environment.add_function("strftime_now", python::strftime_now);
    environment.add_function("raise_exception", raise_exception);
    Ok(environment)
}

/// The message that a template passed to raise_exception.
#[derive(Debug)]
pub struct Raised(pub String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

fn raise_exception(message: Value) -> Result<Value, Error> {
    let raised = Raised(message.to_string());
    Err(Error::new(ErrorKind::InvalidOperation, "raised").with_source(raised))
}

/// cycler("a", "b"): next() goes round, current is what next() gives next.
#[derive(Debug)]
struct Cycler {
    items: Vec<Value>,
    at: AtomicUsize,
}

impl Object for Cycler {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        (key.as_str() == Some("current")).then(|| self.items[self.at.load(Relaxed)].clone())
    }

    fn call_method(
        self: &Arc<Self>,
        _: &mut State,
        method: &str,
        args: &[Value],
    ) -> Result<Value, Error> {
        let () = from_args(args)?;
        let at = self.at.load(Relaxed);
        match method {
            "next" => {
                self.at.store((at + 1) % self.items.len(), Relaxed);
                Ok(self.items[at].clone())
            }
            "reset" => {
                self.at.store(0, Relaxed);
                Ok(Value::from(()))
            }
            _ => Err(Error::from(ErrorKind::UnknownMethod)),
        }
    }
}

fn cycler(items: Rest<Value>) -> Result<Value, Error> {
    if items.is_empty() {
        return Err(python::wrong("cycler: needs at least one item"));
    }
    let items = items.to_vec();
    Ok(Value::from_object(Cycler {
        items,
        at: AtomicUsize::new(0),
    }))
}

/// A template as the engine is to compile it, or why it would take too long.
pub fn prepare(source: &str) -> Result<String, String> {
    let source = plain_generation_blocks(&rewrite::plain_line_ends(source));
    check_tags(&source)?;
    Ok(rewrite::rewrite(&source))
}

/// {% generation %} marks what training learns from. To rendering it is a scope, which `with` is.
fn plain_generation_blocks(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at + 2);
        out.push_str(before);
        let sign = usize::from(tag.starts_with(['-', '+']));
        let word_at = tag.len() - tag[sign..].trim_start().len();
        let word_len = tag[word_at..].find(|c: char| !c.is_alphanumeric() && c != '_');
        let word = &tag[word_at..word_at + word_len.unwrap_or(tag.len() - word_at)];
        let plain = match word {
            "generation" => "with",
            "endgeneration" => "endwith",
            other => other,
        };
        out.push_str(&tag[..word_at]);
        out.push_str(plain);
        rest = &tag[word_at + word.len()..];
    }
    out.push_str(rest);
    out
}

/// The most code, strings not counted, between the two ends of one tag. The engine takes time that
/// grows with the square of an expression's length to compile it.
const MAX_TAG_CHARS: usize = 4096;

/// Refuses a template with a tag that would take too long to compile.
fn check_tags(source: &str) -> Result<(), String> {
    let mut rest = source;
    while let Some(at) = rest.find('{') {
        let (open, body) = rest[at..].split_at(1);
        rest = match body.as_bytes().first() {
            Some(b'#') => body.split_once("#}").map_or("", |(_, after)| after),
            Some(b'{') => skip_tag(&body[1..], '}')?,
            Some(b'%') => skip_tag(&body[1..], '%')?,
            _ => &rest[at + open.len()..],
        };
    }
    Ok(())
}

/// The text after a tag that ends in `end` and a brace.
fn skip_tag(body: &str, end: char) -> Result<&str, String> {
    let mut braces = 0usize;
    let mut length = 0;
    let mut quote = None;
    let mut chars = body.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match (quote, c) {
            (Some(_), '\\') => {
                chars.next();
            }
            (Some(q), _) => quote = quote.filter(|_| c != q),
            (None, '\'' | '"') => quote = Some(c),
            (None, _) => {
                length += 1;
                if length > MAX_TAG_CHARS {
                    return Err(format!("a tag is longer than {MAX_TAG_CHARS} characters"));
                }
                let closes = chars.peek().is_some_and(|(_, next)| *next == '}');
                match c {
                    _ if braces == 0 && c == end && closes => return Ok(&body[at + 2..]),
                    '{' => braces += 1,
                    '}' => braces = braces.saturating_sub(1),
                    _ => {}
                }
            }
        }
    }
    Ok("")
}
