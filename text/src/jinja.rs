//! The template engine, made to do what Jinja does as transformers sets it up.

use std::fmt;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{ArgType, Kwargs, Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind};

use crate::python;

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
    environment.set_unknown_method_callback(python::method);
    environment.set_formatter(|out, _state, value| {
        let written = match value.kind() {
            ValueKind::Number if !value.is_integer() => {
                f64::try_from(value.clone()).map(|x| out.write_str(&python::float_repr(x)))
            }
            _ => Ok(out.write_fmt(format_args!("{value}"))),
        };
        written?.map_err(|_| Error::new(ErrorKind::WriteFailure, "too long"))
    });
    minijinja_contrib::add_to_environment(&mut environment);
    environment.remove_global("debug");
    environment.add_filter("tojson", python::tojson);
    environment.add_filter("trim", python::trim);
    environment.add_filter("length", length);
    environment.add_filter("count", length);
    environment.add_filter("default", default);
    environment.add_filter("d", default);
    environment.add_filter("int", int);
    environment.add_filter("float", float);
    environment.add_test("sequence", is_sequence);
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

/// An undefined value has length 0.
fn length(value: &Value) -> Result<usize, Error> {
    if value.is_undefined() {
        return Ok(0);
    }
    minijinja::filters::length(value)
}

/// An argument by its place or by its name.
fn argument<'a, T>(given: Option<T>, kwargs: &'a Kwargs, name: &'a str) -> Result<Option<T>, Error>
where
    Option<T>: ArgType<'a, Output = Option<T>>,
{
    match given {
        Some(given) => Ok(Some(given)),
        None => kwargs.get::<Option<T>>(name),
    }
}

fn default(
    value: &Value,
    other: Option<Value>,
    boolean: Option<bool>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let other = argument(other, &kwargs, "default_value")?.unwrap_or_else(|| Value::from(""));
    let boolean = argument(boolean, &kwargs, "boolean")?.unwrap_or(false);
    kwargs.assert_all_used()?;
    let absent = value.is_undefined() || (boolean && !value.is_true());
    Ok(if absent { other } else { value.clone() })
}

/// int(value), or the default where Python cannot convert.
fn int(
    value: &Value,
    default: Option<Value>,
    base: Option<u32>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let default = argument(default, &kwargs, "default")?.unwrap_or_else(|| Value::from(0));
    let base = argument(base, &kwargs, "base")?.unwrap_or(10);
    kwargs.assert_all_used()?;
    if !(2..=36).contains(&base) {
        return Err(Error::new(
            ErrorKind::InvalidOperation,
            "int: base must be in 2..36",
        ));
    }
    if value.is_integer() {
        return Ok(value.clone());
    }
    if let Some(text) = value.as_str() {
        let digits = python::strip_space(text).replace('_', "");
        if let Ok(i) = i64::from_str_radix(&digits, base) {
            return Ok(Value::from(i));
        }
    }
    let truncated = to_float(value)
        .filter(|x| x.abs() < 9.2e18)
        .map(|x| x.trunc() as i64);
    Ok(truncated.map_or(default, Value::from))
}

/// float(value), or the default where Python cannot convert.
fn float(value: &Value, default: Option<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let default = argument(default, &kwargs, "default")?.unwrap_or_else(|| Value::from(0.0));
    kwargs.assert_all_used()?;
    Ok(to_float(value).map_or(default, Value::from))
}

fn to_float(value: &Value) -> Option<f64> {
    match value.kind() {
        ValueKind::Bool => Some(if value.is_true() { 1.0 } else { 0.0 }),
        ValueKind::Number => f64::try_from(value.clone()).ok(),
        _ => python::strip_space(value.as_str()?).parse().ok(),
    }
}

/// Every value with a length and an index, including strings and mappings.
fn is_sequence(value: &Value) -> bool {
    let kind = value.kind();
    let indexed = matches!(kind, ValueKind::Seq | ValueKind::String | ValueKind::Map);
    indexed || (kind == ValueKind::Iterable && value.len().is_some())
}

/// {% generation %} marks what training learns from. To rendering it is a scope, which `with` is.
pub fn plain_generation_blocks(source: &str) -> String {
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
pub fn check_tags(source: &str) -> Result<(), String> {
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
