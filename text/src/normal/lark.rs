//! Writes Lark text for llguidance: quoted literals, schemas, and free text that ends at a literal.

use std::fmt::Write;

use serde_json::{json, Value};

use super::path::Path;
use super::schema::Normal;
use super::written::Inexact;
use super::{patterns, Reasoning, Whitespace};
use crate::error::{Error, Result};

pub struct Lark {
    whitespace: Whitespace,
    /// Of the client's text.
    inexact: Inexact,
    rules: String,
    n_rules: usize,
    /// A client's grammar, which has its own start.
    users: Option<String>,
}

impl Lark {
    pub fn new(whitespace: Whitespace, inexact: Inexact) -> Lark {
        Lark {
            whitespace,
            inexact,
            rules: String::new(),
            n_rules: 0,
            users: None,
        }
    }

    /// Adds a rule with a name of its own; returns the name.
    pub fn rule(&mut self, body: &str) -> String {
        self.n_rules += 1;
        let name = format!("q_{}", self.n_rules);
        let _ = writeln!(self.rules, "{name}: {body}");
        name
    }

    /// Adds a terminal; returns its name.
    pub fn terminal(&mut self, body: &str) -> String {
        self.n_rules += 1;
        let name = format!("Q_{}", self.n_rules);
        let _ = writeln!(self.rules, "{name}: {body}");
        name
    }

    /// A name for a rule that is defined later.
    pub fn name(&mut self) -> String {
        self.n_rules += 1;
        format!("q_{}", self.n_rules)
    }

    /// Defines a rule with such a name.
    pub fn named(&mut self, name: &str, body: &str) {
        let _ = writeln!(self.rules, "{name}: {body}");
    }

    /// A grammar of its own, with a rule `start`; the whole grammar if no reasoning precedes it.
    pub fn users(&mut self, text: String) -> String {
        let start = format!("%lark {{\n{text}\n}}");
        self.users = Some(text);
        start
    }

    pub fn schema(&mut self, schema: &Value, at: &Path) -> Result<String> {
        Ok(self.json(Normal::of(schema, &self.inexact, at)?))
    }

    pub fn json(&mut self, schema: Normal) -> String {
        let body = format!("%json {}", schema.with_options(self.options()));
        self.rule(&body)
    }

    pub fn options(&self) -> Value {
        match self.whitespace {
            Whitespace::Compact => json!({"whitespace_flexible": false}),
            Whitespace::Spaced => json!({"whitespace_flexible": false, "item_separator": ", ",
                "key_separator": ": "}),
            Whitespace::Flexible => json!({"whitespace_flexible": true}),
        }
    }

    /// A regular expression that matches all of its part.
    pub fn regex(&mut self, text: &str) -> Result<String> {
        let whole = patterns::whole(text)?;
        Ok(slashed(&whole))
    }

    /// Any text without any of the literals, possibly empty. Returns "" or an expression.
    pub fn text_without(&mut self, literals: &[&str]) -> String {
        let mut body = "/(?s:.)+/".to_string();
        for literal in literals.iter().filter(|l| !l.is_empty()) {
            let _ = write!(body, " & ~(/(?s:.)*/ {} /(?s:.)*/)", quoted(literal));
        }
        format!("{}?", self.terminal(&body))
    }

    /// Any text that does not begin with this character or this text, blanks before it aside. Possibly empty.
    pub fn text_not_from(&mut self, first: &str, lead: &str) -> String {
        let mut body = "/(?s:.)+/".to_string();
        for word in [first, lead].into_iter().filter(|w| !w.is_empty()) {
            let _ = write!(body, r" & ~(/[ \t\r\n]*/ {} /(?s:.)*/)", quoted(word));
        }
        format!("{}?", self.terminal(&body))
    }

    /// Any text without the `excluded` literals that ends with the first occurrence of one of `ends`.
    pub fn text_up_to(&mut self, ends: &[&str], excluded: &[&str]) -> String {
        let others: Vec<&str> = excluded
            .iter()
            .filter(|e| !ends.contains(e))
            .copied()
            .collect();
        let text = self.text_without(&others);
        let ends: Vec<String> = ends.iter().map(|l| quoted(l)).collect();
        self.n_rules += 1;
        let name = format!("q_{}", self.n_rules);
        let _ = writeln!(self.rules, "{name}[lazy]: {text} ({})", ends.join(" | "));
        name
    }

    pub fn finish(mut self, start: String, reasoning: Option<Reasoning>) -> Result<String> {
        let Some(r) = reasoning else {
            return Ok(match self.users {
                Some(users) => users,
                None => format!("start: {start}\n{}", self.rules),
            });
        };
        let line = r.line()?;
        let between = match r.then.is_empty() {
            true => format!("{}?", self.terminal(r"/[ \t\r\n]{1,16}/")),
            false => with_specials(r.then),
        };
        Ok(format!("{line}start: {between} {start}\n{}", self.rules))
    }
}

/// A text whose parts `<|…|>` are special tokens.
fn with_specials(text: &str) -> String {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("<|") {
        let Some((name, behind)) = after.split_once("|>") else {
            break;
        };
        if !before.is_empty() {
            parts.push(quoted(before));
        }
        parts.push(format!("<|{name}|>"));
        rest = behind;
    }
    if !rest.is_empty() {
        parts.push(quoted(rest));
    }
    parts.join(" ")
}

/// A special token as llguidance writes it.
pub fn special(content: &str) -> Result<String> {
    let inner = content.strip_prefix('<').and_then(|c| c.strip_suffix('>'));
    match inner {
        Some(i)
            if !i.is_empty()
                && !i.contains(|c: char| c == '<' || c == '>' || c.is_whitespace()) =>
        {
            Ok(content.to_string())
        }
        _ => Err(Error::invalid(format!(
            "a grammar cannot name the special token {content:?}: it must look like <…>"
        ))),
    }
}

/// A literal as Lark writes it.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A regular expression of the crate `regex-syntax` as Lark writes it.
pub fn slashed(regex: &str) -> String {
    if regex.is_empty() {
        return "\"\"".to_string();
    }
    let mut out = String::with_capacity(regex.len() + 2);
    out.push('/');
    let mut escaped = false;
    for c in regex.chars() {
        match c {
            '/' if !escaped => out.push_str("\\/"),
            '\n' => out.push_str(if escaped { "n" } else { "\\n" }),
            c => out.push(c),
        }
        escaped = c == '\\' && !escaped;
    }
    out.push('/');
    out
}
