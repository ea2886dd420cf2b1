//! A client's own Lark grammar: passed on, except for comments and blank lines, after a check of what it contains.
//! llguidance compiles it later and reports what is wrong inside its rules.

use serde_json::{Map, Value};

use super::lark::Lark;
use super::path::Path;
use super::schema::Normal;
use super::written::Inexact;
use crate::error::{Error, Result};

/// Limit for the texts of one %regex.
const MAX_SUBSTRING_BYTES: usize = 1 << 16;
/// Options of a grammar that change nothing outside it.
const OPTIONS: [&str; 2] = ["allow_initial_skip", "ignore_once"];
/// Options of a schema that only concern white space.
const SCHEMA_OPTIONS: [&str; 4] = [
    "item_separator",
    "key_separator",
    "whitespace_flexible",
    "whitespace_pattern",
];

struct Reader<'a> {
    text: &'a str,
    at: usize,
    out: String,
}

pub fn add(lark: &mut Lark, text: &str) -> Result<String> {
    let mut reader = Reader {
        text,
        at: 0,
        out: String::with_capacity(text.len()),
    };
    while reader.at < text.len() {
        reader.step(lark)?;
    }
    let lines = reader
        .out
        .lines()
        .map(str::trim_end)
        .filter(|l| !l.trim().is_empty());
    let text = lines.collect::<Vec<_>>().join("\n") + "\n";
    Ok(lark.users(text))
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn copy(&mut self, n: usize) {
        self.out.push_str(&self.text[self.at..self.at + n]);
        self.at += n;
    }

    fn refused(&self, why: impl std::fmt::Display) -> Error {
        Error::invalid(format!("{}: {why}", place(self.text, self.at)))
    }

    fn step(&mut self, lark: &Lark) -> Result<()> {
        let rest = self.rest();
        let first = rest.chars().next().unwrap_or_default();
        match first {
            '#' => self.skip_line(),
            '/' if rest.starts_with("//") => self.skip_line(),
            '"' | '/' => self.quoted(first)?,
            '%' => self.directive(lark)?,
            '@' => return Err(self.refused("references to other grammars are not supported")),
            '\r' | '\t' | '\n' | ' '..='~' => self.copy(1),
            c if c.is_alphanumeric() => self.copy(c.len_utf8()),
            _ => return Err(self.refused(format!("{first:?} is not allowed here"))),
        }
        Ok(())
    }

    fn skip_line(&mut self) {
        self.at += self.rest().find('\n').unwrap_or(self.rest().len());
    }

    /// A string or a regular expression.
    fn quoted(&mut self, quote: char) -> Result<()> {
        let mut escaped = false;
        for (i, c) in self.rest().char_indices().skip(1) {
            match c {
                '\\' => escaped = !escaped,
                c if c == quote && !escaped => {
                    self.copy(i + 1);
                    return Ok(());
                }
                _ => escaped = false,
            }
        }
        Err(self.refused(format!("the closing {quote} is missing")))
    }

    fn directive(&mut self, lark: &Lark) -> Result<()> {
        let rest = self.rest();
        let n = rest[1..]
            .find(|c: char| !c.is_ascii_alphanumeric())
            .map_or(rest.len(), |i| i + 1);
        let name = &rest[..n];
        match name {
            "%json" => {
                let start = self.at;
                self.copy(n);
                let (value, n) = self.json()?;
                let schema = self.schema(lark, value, start)?;
                self.out.push_str(&format!(" {schema}"));
                self.at += n;
            }
            "%regex" => {
                let start = self.at;
                self.copy(n);
                let (value, n) = self.json()?;
                if n > MAX_SUBSTRING_BYTES {
                    self.at = start;
                    return Err(self.refused(format!(
                        "%regex has {n} bytes; the limit is {MAX_SUBSTRING_BYTES}"
                    )));
                }
                self.out.push_str(&format!(" {value}"));
                self.at += n;
            }
            "%llguidance" => {
                let start = self.at;
                self.copy(n);
                let (value, n) = self.json()?;
                let unknown = |m: &Map<String, Value>| {
                    m.keys().find(|k| !OPTIONS.contains(&k.as_str())).cloned()
                };
                if let Some(key) = value.as_object().and_then(unknown) {
                    self.at = start;
                    return Err(self.refused(format!("the option {key:?} is not supported")));
                }
                self.out.push_str(&format!(" {value}"));
                self.at += n;
            }
            "%import" => {
                let path = rest[n..].trim_start();
                if !path.starts_with("common.") && !path.starts_with("common ") {
                    return Err(
                        self.refused("only the names of `common` can be imported; no file is read")
                    );
                }
                self.copy(n);
            }
            "%ignore" | "%lark" | "%if" => self.copy(n),
            _ => return Err(self.refused(format!("{name:?} is not supported"))),
        }
        Ok(())
    }

    /// The JSON value that follows, and the bytes up to its end.
    fn json(&self) -> Result<(Value, usize)> {
        let mut stream = serde_json::Deserializer::from_str(self.rest()).into_iter::<Value>();
        match stream.next() {
            Some(Ok(value)) => Ok((value, stream.byte_offset())),
            Some(Err(e)) => Err(self.refused(format!("not valid JSON: {e}"))),
            None => Err(self.refused("a JSON value is missing")),
        }
    }

    fn schema(&mut self, lark: &Lark, mut value: Value, at: usize) -> Result<Value> {
        let mut options = lark.options();
        if let Some(own) = value
            .as_object_mut()
            .and_then(|m| m.shift_remove("x-guidance"))
        {
            let known =
                |m: &Map<String, Value>| m.keys().all(|k| SCHEMA_OPTIONS.contains(&k.as_str()));
            if !own.as_object().is_some_and(known) {
                self.at = at;
                return Err(self.refused("x-guidance has an option that is not supported"));
            }
            options = own;
        }
        let inexact = Inexact::of(&self.text[at..]);
        let normal = Normal::of(&value, &inexact, &Path::Root).map_err(|e| e.at(place(self.text, at)))?;
        Ok(normal.with_options(options))
    }
}

/// "line 3, column 7".
pub fn place(text: &str, at: usize) -> String {
    let before = &text[..at];
    let line = before.matches('\n').count() + 1;
    let column = before[before.rfind('\n').map_or(0, |i| i + 1)..]
        .chars()
        .count()
        + 1;
    format!("line {line}, column {column}")
}
