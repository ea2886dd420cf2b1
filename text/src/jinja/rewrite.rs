//! Templates of Jinja2 as the template engine understands them. The engine parses what Jinja2 parses, but some of its
//! operations differ and have no hook. These become calls of functions and filters that jinja/operations.rs has:
//!
//! - `a % b` formats where a is a string;
//! - `a ~ b` writes floats and containers as Python does;
//! - `a[i:j:k]` includes no element too many for a negative k, and fails for what has no elements;
//! - `a + b` escapes the text that is added to escaped text;
//! - what `+`, `*` and filters make counts against the budget of text;
//! - `+a` fails for what is no number;
//! - a string has `\U0001f642` and lines that a backslash joins;
//! - `for x in "text"` knows how long the text is, and refuses None;
//! - macros receive `varargs` and `kwargs`, and a default may name an earlier parameter.
//!
//! The parser follows Jinja2's: the same levels of operators, filters and tests behind them. It keeps all white space, so
//! that the engine's messages have the right line. A tag that it does not understand stays as it is.

use std::collections::HashSet;
use std::fmt::Write;

use super::lexer::{parts, Kind, Part, Tag, Token};

/// Of expressions in each other; a deeper one stays as it is.
const MAX_DEPTH: usize = 100;

/// Line ends become one line feed, before anything else reads the template.
pub fn plain_line_ends(source: &str) -> String {
    source.replace("\r\n", "\n").replace('\r', "\n")
}

pub fn rewrite(source: &str) -> String {
    let parts = parts(source);
    let macros = macros_with_rest(&parts);
    let mut out = String::with_capacity(source.len() + source.len() / 4);
    for part in &parts {
        match part {
            Part::Text(text) => out.push_str(text),
            Part::Tag(tag) => match rewrite_tag(tag, &macros) {
                Some(text) => out.push_str(&text),
                None => push_tag(tag, &mut out),
            },
        }
    }
    out
}

fn push_tag(tag: &Tag, out: &mut String) {
    out.push_str(tag.open);
    for token in &tag.tokens {
        out.push_str(token.space);
        out.push_str(token.text);
    }
    out.push_str(tag.close);
}

/// The macros whose body names varargs or kwargs.
fn macros_with_rest<'a>(parts: &'a [Part]) -> HashSet<&'a str> {
    let mut open = Vec::new();
    let mut found = HashSet::new();
    for part in parts {
        let Part::Tag(tag) = part else { continue };
        match tag.statement() {
            "macro" => open.push(tag.tokens.get(1).map_or("", |name| name.text)),
            "endmacro" => {
                open.pop();
            }
            _ => {
                let is_rest =
                    |t: &Token| t.kind == Kind::Name && matches!(t.text, "varargs" | "kwargs");
                if tag.tokens.iter().any(is_rest) {
                    found.extend(open.last());
                }
            }
        }
    }
    found
}

fn rewrite_tag(tag: &Tag, macros: &HashSet<&str>) -> Option<String> {
    let mut parser = Parser {
        tokens: &tag.tokens,
        at: 0,
        depth: 0,
        macros,
    };
    let mut out = String::from(tag.open);
    let mut behind = None;
    if tag.is_block() {
        behind = parser.statement(tag.statement(), &mut out)?;
    } else {
        out.push_str(&parser.tuple(true)?);
    }
    if parser.at != tag.tokens.len() {
        return None;
    }
    match behind {
        None => out.push_str(tag.close),
        Some(set) => {
            let _ = write!(out, " %}}{{% {set}{}", tag.close);
        }
    }
    Some(out)
}

/// A string without the two escapes that the engine does not know.
fn push_string(text: &str, out: &mut String) {
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        out.push_str(before);
        let digits = escape.strip_prefix("\\U").and_then(|digits| digits.get(..8));
        let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let skipped = match code.and_then(char::from_u32) {
            // The character is itself no escape: a backslash or an end of the string would be.
            Some(c) if !matches!(c, '\\' | '\'' | '"') => {
                out.push(c);
                10
            }
            _ if escape.starts_with("\\\n") => 2,
            _ => {
                let len = 1 + escape[1..].chars().next().map_or(0, char::len_utf8);
                out.push_str(&escape[..len]);
                len
            }
        };
        rest = &escape[skipped..];
    }
    out.push_str(rest);
}

struct Parser<'a> {
    tokens: &'a [Token<'a>],
    at: usize,
    depth: usize,
    macros: &'a HashSet<&'a str>,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&Token<'a>> {
        self.tokens.get(self.at)
    }

    fn is(&self, text: &str) -> bool {
        self.peek()
            .is_some_and(|t| t.text == text && t.kind != Kind::String)
    }

    /// Writes the next token.
    fn take(&mut self, out: &mut String) -> Option<&'a str> {
        let token = self.tokens.get(self.at)?;
        self.at += 1;
        out.push_str(token.space);
        match token.kind {
            Kind::String => push_string(token.text, out),
            _ => out.push_str(token.text),
        }
        Some(token.text)
    }

    /// The next token is another's part.
    fn skip(&mut self) {
        self.at += 1;
    }

    fn take_if(&mut self, text: &str, out: &mut String) -> bool {
        self.is(text) && self.take(out).is_some()
    }

    /// The statements that have expressions. What is to stand behind the tag, if anything.
    fn statement(&mut self, name: &str, out: &mut String) -> Option<Option<String>> {
        match name {
            "if" | "elif" | "do" => {
                self.take(out)?;
                out.push_str(&self.tuple(true)?);
            }
            "for" => self.for_loop(out)?,
            "set" => {
                while !self.is("=") {
                    self.take(out)?;
                }
                self.take(out)?;
                out.push_str(&self.tuple(true)?);
            }
            "with" => {
                self.take(out)?;
                while self.peek().is_some() {
                    self.take(out)?;
                    self.take_if("=", out).then_some(())?;
                    out.push_str(&self.condition()?);
                    self.take_if(",", out);
                }
            }
            "call" => {
                self.take(out)?;
                if self.is("(") {
                    while self.take(out)? != ")" {}
                }
                out.push_str(&self.condition()?);
            }
            "macro" => {
                return self
                    .macro_head(out)
                    .map(|set| (!set.is_empty()).then_some(set))
            }
            _ => return None,
        }
        Some(None)
    }

    fn for_loop(&mut self, out: &mut String) -> Option<()> {
        while !self.is("in") {
            self.take(out)?;
        }
        self.take(out)?;
        let iterated = self.tuple(false)?;
        let _ = write!(out, " __iterated__(({iterated}))");
        if self.take_if("if", out) {
            out.push_str(&self.condition()?);
        }
        self.take_if("recursive", out);
        Some(())
    }

    /// A `set` for the defaults that name an earlier parameter.
    fn macro_head(&mut self, out: &mut String) -> Option<String> {
        self.take(out)?;
        let name = self.take(out)?;
        self.take_if("(", out).then_some(())?;
        let mut set = String::new();
        let mut earlier = Vec::new();
        while !self.is(")") {
            let parameter = self.take(out)?;
            if self.is("=") {
                let mut default = String::new();
                self.take(&mut default)?;
                let from = self.at;
                let value = self.condition()?;
                let names_one = |t: &Token| t.kind == Kind::Name && earlier.contains(&t.text);
                if self.tokens[from..self.at].iter().any(names_one) {
                    let comma = if set.is_empty() { "set " } else { " %}{% set " };
                    let _ = write!(set, "{comma}{parameter} = ({value}) if {parameter} is undefined else {parameter}");
                } else {
                    out.push_str(&default);
                    out.push_str(&value);
                }
            }
            earlier.push(parameter);
            if !self.take_if(",", out) {
                break;
            }
        }
        if self.macros.contains(name) {
            let comma = if earlier.is_empty() { "" } else { ", " };
            let _ = write!(out, "{comma}varargs=(), kwargs={{}}");
        }
        self.take_if(")", out).then_some(set)
    }

    /// Expressions between commas. `conditions`: `a if b else c` is one of them.
    fn tuple(&mut self, conditions: bool) -> Option<String> {
        let mut out = String::new();
        loop {
            out.push_str(&if conditions {
                self.condition()?
            } else {
                self.or()?
            });
            if !self.take_if(",", &mut out) {
                return Some(out);
            }
            let ends = self.peek().is_none_or(|t| {
                matches!(t.text, ")" | "if" | "recursive") && t.kind != Kind::String
            });
            if ends {
                return Some(out);
            }
        }
    }

    fn condition(&mut self) -> Option<String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let mut out = self.or()?;
        while self.take_if("if", &mut out) {
            out.push_str(&self.or()?);
            if self.take_if("else", &mut out) {
                out.push_str(&self.condition()?);
            }
        }
        self.depth -= 1;
        Some(out)
    }

    fn or(&mut self) -> Option<String> {
        self.chain(&["or"], Parser::and)
    }

    fn and(&mut self) -> Option<String> {
        self.chain(&["and"], Parser::not)
    }

    fn not(&mut self) -> Option<String> {
        let mut out = String::new();
        while self.take_if("not", &mut out) {}
        out.push_str(&self.compare()?);
        Some(out)
    }

    fn compare(&mut self) -> Option<String> {
        let mut out = self.sum()?;
        loop {
            let next = self.tokens.get(self.at + 1).map_or("", |t| t.text);
            if self.is("not") && next == "in" {
                self.take(&mut out)?;
            } else if !["==", "!=", "<", "<=", ">", ">=", "in"]
                .iter()
                .any(|op| self.is(op))
            {
                return Some(out);
            }
            self.take(&mut out)?;
            out.push_str(&self.sum()?);
        }
    }

    fn sum(&mut self) -> Option<String> {
        let mut out = self.concat()?;
        loop {
            if self.is("+") {
                while self.is("+") {
                    self.skip();
                    out.push(',');
                    out.push_str(&self.concat()?);
                }
                out = format!(" __sum__({out})");
            } else if self.take_if("-", &mut out) {
                out.push_str(&self.concat()?);
            } else {
                return Some(out);
            }
        }
    }

    fn concat(&mut self) -> Option<String> {
        let mut out = self.product()?;
        if !self.is("~") {
            return Some(out);
        }
        while self.is("~") {
            self.skip();
            out.push(',');
            out.push_str(&self.product()?);
        }
        Some(format!(" __concat__({out})"))
    }

    fn product(&mut self) -> Option<String> {
        let mut out = self.power()?;
        let mut repeats = false;
        loop {
            if self.is("%") {
                self.skip();
                let right = self.power()?;
                out = format!(" __modulo__({out},{right})");
            } else if self.is("*") || self.is("/") || self.is("//") {
                repeats |= self.is("*");
                self.take(&mut out)?;
                out.push_str(&self.power()?);
            } else if repeats {
                return Some(format!(" __sum__({out})"));
            } else {
                return Some(out);
            }
        }
    }

    fn power(&mut self) -> Option<String> {
        self.chain(&["**"], Parser::unary)
    }

    fn chain(
        &mut self,
        operators: &[&str],
        operand: fn(&mut Self) -> Option<String>,
    ) -> Option<String> {
        let mut out = operand(self)?;
        while operators.iter().any(|op| self.is(op)) {
            self.take(&mut out)?;
            out.push_str(&operand(self)?);
        }
        Some(out)
    }

    fn unary(&mut self) -> Option<String> {
        let mut out = String::new();
        let mut has_plus = false;
        loop {
            if self.is("+") {
                self.skip();
                has_plus = true;
            } else if !self.take_if("-", &mut out) {
                break;
            }
        }
        let primary = self.primary()?;
        let operand = self.postfix(primary)?;
        if has_plus {
            let _ = write!(out, " __positive__({operand})");
        } else {
            out.push_str(&operand);
        }
        self.filters(out)
    }

    fn primary(&mut self) -> Option<String> {
        let mut out = String::new();
        let token = self.peek()?;
        match (token.kind, token.text) {
            (Kind::String, _) => {
                while self.peek().is_some_and(|t| t.kind == Kind::String) {
                    self.take(&mut out)?;
                }
            }
            (Kind::Operator, "(") => {
                self.take(&mut out)?;
                if !self.is(")") {
                    out.push_str(&self.tuple(true)?);
                }
                self.take_if(")", &mut out).then_some(())?;
            }
            (Kind::Operator, "[") => self.items("]", &mut out)?,
            (Kind::Operator, "{") => self.items("}", &mut out)?,
            (Kind::Operator, _) => return None,
            (_, "if" | "else" | "in" | "is" | "not" | "and" | "or") => return None,
            _ => {
                self.take(&mut out)?;
            }
        }
        Some(out)
    }

    /// The items of a list or a dict, with both ends.
    fn items(&mut self, end: &str, out: &mut String) -> Option<()> {
        self.take(out)?;
        while !self.is(end) {
            out.push_str(&self.condition()?);
            if self.take_if(":", out) {
                out.push_str(&self.condition()?);
            }
            if !self.take_if(",", out) {
                break;
            }
        }
        self.take_if(end, out).then_some(())
    }

    fn postfix(&mut self, mut out: String) -> Option<String> {
        loop {
            if self.is(".") {
                self.take(&mut out)?;
                self.take(&mut out)?;
            } else if self.is("[") {
                out = self.subscript(out)?;
            } else if self.is("(") {
                out = self.call(out)?;
            } else {
                return Some(out);
            }
        }
    }

    fn subscript(&mut self, of: String) -> Option<String> {
        let mut plain = String::new();
        self.take(&mut plain)?;
        let mut ends: Vec<Option<String>> = vec![None];
        while !self.is("]") {
            if self.take_if(":", &mut plain) {
                ends.push(None);
            } else {
                let value = self.tuple(true)?;
                plain.push_str(&value);
                *ends.last_mut()? = Some(value);
            }
        }
        self.take(&mut plain)?;
        if !(2..=3).contains(&ends.len()) {
            return Some(of + &plain);
        }
        let mut out = format!(" __slice__({of}");
        for i in 0..3 {
            out.push(',');
            out.push_str(ends.get(i).and_then(Option::as_deref).unwrap_or("none"));
        }
        out.push(')');
        Some(out)
    }

    fn call(&mut self, of: String) -> Option<String> {
        let (mut open, mut arguments) = (String::new(), String::new());
        self.take(&mut open)?;
        self.arguments(&mut arguments)?;
        if !self.macros.contains(of.trim()) {
            return Some(of + &open + &arguments);
        }
        let comma = if arguments.trim() == ")" { "" } else { "," };
        Some(format!(" __call__({of}{comma}{arguments}"))
    }

    /// Arguments of a call, and the end of it.
    fn arguments(&mut self, out: &mut String) -> Option<()> {
        while !self.is(")") {
            let next = self.tokens.get(self.at + 1).map_or("", |t| t.text);
            if self.is("*") || self.is("**") {
                self.take(out)?;
            } else if self.peek()?.kind == Kind::Name && next == "=" {
                self.take(out)?;
                self.take(out)?;
            }
            out.push_str(&self.condition()?);
            if !self.take_if(",", out) {
                break;
            }
        }
        self.take_if(")", out).then_some(())
    }

    /// Filters, tests and calls behind an operand.
    fn filters(&mut self, mut out: String) -> Option<String> {
        let mut filtered = false;
        loop {
            if self.is("|") {
                filtered = true;
                self.take(&mut out)?;
                self.take(&mut out)?;
                while self.take_if(".", &mut out) {
                    self.take(&mut out)?;
                }
                if self.take_if("(", &mut out) {
                    self.arguments(&mut out)?;
                }
                continue;
            }
            if std::mem::take(&mut filtered) {
                out.push_str("|__spent__");
            }
            if self.is("is") {
                self.test(&mut out)?;
            } else if self.is("(") {
                out = self.call(out)?;
            } else {
                return Some(out);
            }
        }
    }

    fn test(&mut self, out: &mut String) -> Option<()> {
        self.take(out)?;
        self.take_if("not", out);
        self.take(out)?;
        while self.take_if(".", out) {
            self.take(out)?;
        }
        let Some(next) = self.peek() else {
            return Some(());
        };
        let is_argument = match next.kind {
            Kind::Name => !matches!(
                next.text,
                "else" | "or" | "and" | "is" | "if" | "in" | "not"
            ),
            Kind::Operator => matches!(next.text, "[" | "{"),
            Kind::Number | Kind::String => true,
        };
        if self.take_if("(", out) {
            self.arguments(out)?;
        } else if is_argument {
            let primary = self.primary()?;
            out.push_str(&self.postfix(primary)?);
        }
        Some(())
    }
}
