//! Untrusted JSON: checked once, then read in place.
//!
//! serde_json decides whether a text is JSON. This module rejects more: excessive depth, duplicate keys, \u0000, and
//! halves of surrogate pairs. Afterwards a value is the piece of text as written. Nothing is built from it, so a body
//! costs its own bytes and 12 for each key that is being compared, and a number keeps its digits.

use std::borrow::Cow;
use std::cell::Cell;

use memchr::{memchr, memchr2};
use serde::de::{Deserialize, IgnoredAny};

use crate::error::{Error, Result};
use crate::python_json::mended;

/// Up to so many keys are compared each with each, and fields looked for one by one.
const FEW: usize = 16;

/// Limit for one object. Members are sorted for the comparison. 1.6 million take 0.4 s, and no other limit applies to
/// unknown members.
const MAX_MEMBERS: usize = 1 << 16;

/// Fields whose items may have \u0000 in their strings: a model can write that, and its words come back.
const HISTORIES: [&str; 2] = ["messages", "input"];

/// A piece of the text: a value, or a key with its quotes.
#[derive(Clone, Copy)]
pub struct Span {
    at: u32,
    n: u32,
}

impl Span {
    fn new(from: usize, to: usize) -> Span {
        Span {
            at: from as u32,
            n: (to - from) as u32,
        }
    }

    pub fn of(self, text: &str) -> &str {
        &text[self.at as usize..][..self.n as usize]
    }
}

#[derive(Clone, Copy)]
struct Key {
    span: Span,
    escaped: bool,
}

impl Key {
    fn name<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let string = self.span.of(text);
        match self.escaped {
            true => unescape(string),
            false => Cow::Borrowed(&string[1..string.len() - 1]),
        }
    }

    fn is(&self, text: &str, name: &str) -> bool {
        (self.escaped || self.span.n as usize == name.len() + 2) && self.name(text) == name
    }

    fn same(&self, other: &Key, text: &str) -> bool {
        (self.span.n == other.span.n || self.escaped || other.escaped)
            && self.name(text) == other.name(text)
    }
}

/// A member of the outermost object.
#[derive(Clone, Copy)]
struct Field {
    key: Key,
    value: Span,
}

/// Buffers that a walk leaves for the next one on its thread. A server that checks one body after the other then
/// allocates no memory, and never waits for a thread that was suspended in malloc().
#[derive(Default)]
struct Scratch {
    open: Vec<Open>,
    keys: Vec<Key>,
    fields: Vec<Field>,
}

/// Members; a larger buffer is freed.
const MAX_REUSED: usize = 1024;

thread_local! {
    static SCRATCH: Cell<Scratch> = const { Cell::new(Scratch { open: Vec::new(), keys: Vec::new(), fields: Vec::new() }) };
}

impl Scratch {
    fn take() -> Scratch {
        SCRATCH.try_with(Cell::take).unwrap_or_default()
    }

    fn keep(mut self) {
        let _ = SCRATCH.try_with(|kept| {
            let was = kept.take();
            self.open.clear();
            self.keys.clear();
            self.fields.clear();
            kept.set(Scratch {
                open: larger(self.open, was.open),
                keys: larger(self.keys, was.keys),
                fields: larger(self.fields, was.fields),
            });
        });
    }
}

fn larger<T>(a: Vec<T>, b: Vec<T>) -> Vec<T> {
    match a.capacity() > b.capacity() && a.capacity() <= MAX_REUSED {
        true => a,
        false => b,
    }
}

/// The members of the outermost object, to be found by name.
pub struct Fields(Vec<Field>);

impl Drop for Fields {
    fn drop(&mut self) {
        Scratch {
            fields: std::mem::take(&mut self.0),
            ..Scratch::default()
        }
        .keep();
    }
}

impl Fields {
    pub fn get(&self, text: &str, name: &str) -> Option<Span> {
        let found = if self.0.len() <= FEW {
            self.0.iter().find(|field| field.key.is(text, name))
        } else {
            let order = |field: &Field| field.key.name(text).as_ref().cmp(name);
            let at = self.0.binary_search_by(order).ok();
            at.map(|at| &self.0[at])
        };
        found.map(|field| field.value)
    }
}

/// The content of a string; `string` includes its quotes.
pub fn unescape(string: &str) -> Cow<'_, str> {
    match memchr(b'\\', string.as_bytes()) {
        None => Cow::Borrowed(&string[1..string.len() - 1]),
        Some(_) => Cow::Owned(
            serde_json::from_str(string)
                .or_else(|_| serde_json::from_str(&mended(string)))
                .unwrap_or_default(),
        ),
    }
}

/// Whether a string, with its quotes, says just `name`. An escape is longer than what it stands for, so mostly the
/// lengths tell.
pub fn says(string: &str, name: &str) -> bool {
    let inner = string.len() - 2;
    if inner <= name.len() || memchr(b'\\', string.as_bytes()).is_none() {
        return string[1..].as_bytes().starts_with(name.as_bytes()) && inner == name.len();
    }
    unescape(string) == name
}

pub fn skip_space(text: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\n' | b'\t' | b'\r') = text.get(at) {
        at += 1;
    }
    at
}

/// Behind the string that begins at `at`.
pub fn string_end(text: &[u8], at: usize) -> usize {
    let mut i = at + 1;
    loop {
        match text.get(i) {
            Some(b'"') => return i + 1,
            Some(b'\\') => i += 2, // one after the other they are not worth a call
            Some(_) => match memchr2(b'"', b'\\', &text[i..]) {
                Some(found) => i += found,
                None => return text.len(),
            },
            None => return text.len(),
        }
    }
}

/// Behind the number, or the word, that begins at `at`.
pub fn word_end(text: &[u8], mut at: usize) -> usize {
    while let Some(b'0'..=b'9' | b'a'..=b'z' | b'-' | b'+' | b'.' | b'E' | b'N' | b'I') =
        text.get(at)
    {
        at += 1;
    }
    at
}

/// An integer: a number without a fraction other than zero, as JSON Schema has it. 4, 4.0, 4e0 and 40E-1 are one.
pub struct Whole {
    pub negative: bool,
    /// None: more than 64 bits hold.
    pub magnitude: Option<u64>,
}

/// None where `number` is not a JSON number, or not a whole one. Leading zeros are let pass. Costs its length, whatever
/// the exponent.
pub fn whole(number: &[u8]) -> Option<Whole> {
    let (negative, unsigned) = match number {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, number),
    };
    let of_digits = |text: &[u8]| text.iter().take_while(|c| c.is_ascii_digit()).count();
    let (units, rest) = unsigned.split_at(of_digits(unsigned));
    let (fraction, rest) = match rest {
        [b'.', rest @ ..] if of_digits(rest) > 0 => rest.split_at(of_digits(rest)),
        _ => (&rest[..0], rest),
    };
    if units.is_empty() {
        return None;
    }
    let mut digits = units.iter().chain(fraction).map(|c| u64::from(c - b'0'));
    let is_zero = digits.clone().all(|digit| digit == 0);
    let last = digits.clone().rev().take_while(|digit| *digit == 0).count();
    // The value is `digits`, the zeros at their end left out, times ten to the power of `scale`.
    let scale = exponent(rest)? - fraction.len() as i64 + last as i64;
    if !is_zero && scale < 0 {
        return None;
    }
    let n_digits = units.len() + fraction.len() - last;
    let times = |value: u64, digit| value.checked_mul(10)?.checked_add(digit);
    let magnitude = match is_zero {
        true => Some(0),
        // With more than 20 zeros, the first 20 are enough for a rejection.
        false => digits
            .by_ref()
            .take(n_digits)
            .chain(std::iter::repeat_n(0, scale.min(20) as usize))
            .try_fold(0, times),
    };
    Some(Whole {
        negative,
        magnitude,
    })
}

/// Parses the part after a number's digits. It saturates, because no text is long enough for the difference to matter.
fn exponent(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [] => return Some(0),
        [b'e' | b'E', b'-', digits @ ..] => (true, digits),
        [b'e' | b'E', b'+', digits @ ..] | [b'e' | b'E', digits @ ..] => (false, digits),
        _ => return None,
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let magnitude = digits.iter().fold(0i64, |value, c| {
        (value * 10 + i64::from(c - b'0')).min(1 << 40)
    });
    Some(if negative { -magnitude } else { magnitude })
}

/// Behind the value that begins at `at`.
fn value_end(text: &[u8], at: usize) -> usize {
    match text.get(at) {
        Some(b'"') => string_end(text, at),
        Some(b'[' | b'{') => container_end(text, at),
        _ => word_end(text, at),
    }
}

fn container_end(text: &[u8], at: usize) -> usize {
    let (mut i, mut depth) = (at, 0);
    while let Some(c) = text.get(i) {
        match c {
            b'"' => {
                i = string_end(text, i);
                continue;
            }
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth -= 1,
            _ => {}
        }
        i += 1;
        if depth == 0 {
            break;
        }
    }
    i
}

/// A member of an object, or an item of an array with an empty key, and where the one after it is looked for.
pub struct Member<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
    pub rest: &'a [u8],
}

/// The first one of what `rest` begins in: an array or an object at first, then what was left.
pub fn next(rest: &[u8]) -> Option<Member<'_>> {
    let mut at = skip_space(rest, 1);
    let mut key: &[u8] = &[];
    if let None | Some(b']' | b'}') = rest.get(at) {
        return None;
    }
    let mut end = value_end(rest, at);
    let behind = skip_space(rest, end);
    if rest.get(behind) == Some(&b':') {
        key = &rest[at..end];
        at = skip_space(rest, behind + 1);
        end = value_end(rest, at);
    }
    Some(Member {
        key,
        value: &rest[at..end],
        rest: &rest[skip_space(rest, end)..],
    })
}

/// The origin of a text.
#[derive(Clone, Copy, PartialEq)]
pub enum Writer {
    /// A client, whose request must have exactly one meaning.
    Client,
    /// Python, or a model that learned from it: NaN, Infinity, \u0000, halves of surrogate pairs, and keys that stand
    /// twice, of which the last counts.
    Python,
}

/// Refuses what is not JSON as this API takes it, and finds the outermost members. The error goes on from the name of
/// the text: "is not valid JSON: ...".
pub fn check(bytes: &[u8], max_depth: usize) -> Result<(&str, Fields)> {
    check_of(Writer::Client, bytes, max_depth)
}

pub fn check_of(writer: Writer, bytes: &[u8], max_depth: usize) -> Result<(&str, Fields)> {
    let text = std::str::from_utf8(bytes).map_err(|e| {
        let at = e.valid_up_to();
        Error::invalid(format!("is not valid JSON: it is not UTF-8 at byte {at}"))
    })?;
    if u32::try_from(text.len()).is_err() {
        return Err(Error::invalid("is longer than 4 GiB"));
    }
    let strict = match writer {
        Writer::Client => Cow::Borrowed(text),
        Writer::Python => mended(text),
    };
    let mut parser = serde_json::Deserializer::from_str(&strict);
    IgnoredAny::deserialize(&mut parser)
        .and_then(|_| parser.end())
        .map_err(|e| not_json(text, &e))?;
    let scratch = Scratch::take();
    let mut walk = Walk {
        text,
        writer,
        max_depth,
        open: scratch.open,
        keys: scratch.keys,
        fields: scratch.fields,
    };
    walk.all()?;
    if walk.fields.len() > FEW {
        let fields = &mut walk.fields;
        fields.sort_unstable_by(|a, b| a.key.name(text).cmp(&b.key.name(text)));
    }
    Scratch {
        open: walk.open,
        keys: walk.keys,
        ..Scratch::default()
    }
    .keep();
    Ok((text, Fields(walk.fields)))
}

/// Rewords serde_json's error.
fn not_json(text: &str, e: &serde_json::Error) -> Error {
    let bytes = text.as_bytes();
    let mut line_at = 0;
    for _ in 1..e.line() {
        line_at += memchr(b'\n', &bytes[line_at..]).map_or(0, |n| n + 1);
    }
    // Its columns count bytes from 1, but for what may not stand in a string.
    let from = usize::from(!e.to_string().starts_with("control character"));
    let mut at = (line_at + e.column()).saturating_sub(from).min(bytes.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let (why, at) = match text[at..].chars().next() {
        Some(c) if !e.is_eof() && c.is_ascii_graphic() => (format!("unexpected {c}"), at),
        Some(c) if !e.is_eof() => (format!("unexpected character U+{:04X}", u32::from(c)), at),
        _ => ("it ends too early".to_owned(), bytes.len()),
    };
    Error::invalid(format!("is not valid JSON: {why} at byte {at}"))
}

struct Open {
    object: bool,
    first_key: usize,
}

/// One walk over a text that is JSON.
struct Walk<'a> {
    text: &'a str,
    writer: Writer,
    max_depth: usize,
    open: Vec<Open>,
    /// The keys of all open objects, one after the other.
    keys: Vec<Key>,
    fields: Vec<Field>,
}

impl Walk<'_> {
    fn all(&mut self) -> Result<()> {
        let text = self.text.as_bytes();
        let (mut at, mut value_at, mut at_key) = (0, 0, false);
        while let Some(c) = text.get(at) {
            match c {
                b'"' => {
                    let end = string_end(text, at);
                    let escaped = self.check_escapes(at, end, at_key)?;
                    if at_key {
                        let span = Span::new(at, end);
                        self.key(Key { span, escaped })?;
                        at_key = false;
                    }
                    at = end;
                    continue;
                }
                b':' if self.open.len() == 1 => value_at = skip_space(text, at + 1),
                b',' => {
                    self.end_field(value_at, at);
                    at_key = self.open.last().is_some_and(|open| open.object);
                }
                b'[' | b'{' => {
                    at_key = *c == b'{';
                    self.open(at_key, at)?;
                }
                b']' | b'}' => {
                    self.end_field(value_at, at);
                    self.close(at)?;
                    at_key = false;
                }
                _ => {}
            }
            at += 1;
        }
        Ok(())
    }

    fn key(&mut self, key: Key) -> Result<()> {
        let first = self.open.last().map_or(0, |open| open.first_key);
        if self.keys.len() - first == MAX_MEMBERS {
            return Err(Error::invalid(format!(
                "has an object of more than {MAX_MEMBERS} members at byte {}",
                key.span.at
            )));
        }
        self.keys.push(key);
        Ok(())
    }

    fn open(&mut self, object: bool, at: usize) -> Result<()> {
        if self.open.len() == self.max_depth {
            return Err(Error::invalid(format!(
                "is nested more than {} levels deep at byte {at}",
                self.max_depth
            )));
        }
        self.open.push(Open {
            object,
            first_key: self.keys.len(),
        });
        Ok(())
    }

    /// Records that the value before `at` ends a member of the outermost object, if it is one.
    fn end_field(&mut self, value_at: usize, at: usize) {
        if let ([Open { object: true, .. }], Some(key)) = (self.open.as_slice(), self.keys.last()) {
            let value = self.text[value_at..at].trim_ascii_end();
            self.fields.push(Field {
                key: *key,
                value: Span::new(value_at, value_at + value.len()),
            });
        }
    }

    fn close(&mut self, at: usize) -> Result<()> {
        let Some(open) = self.open.pop() else {
            return Ok(());
        };
        let text = self.text;
        let keys = &mut self.keys[open.first_key..];
        let twice = if self.writer == Writer::Python {
            None
        } else if keys.len() <= FEW {
            (1..keys.len()).find(|i| keys[..*i].iter().any(|key| key.same(&keys[*i], text)))
        } else {
            keys.sort_unstable_by(|a, b| a.name(text).cmp(&b.name(text)));
            (1..keys.len()).find(|i| keys[i - 1].same(&keys[*i], text))
        };
        if let Some(i) = twice {
            let name: String = keys[i].name(text).chars().take(40).collect();
            return Err(Error::invalid(format!(
                "is not valid JSON: {name:?} stands twice in the object that ends at byte {at}"
            )));
        }
        self.keys.truncate(open.first_key);
        Ok(())
    }

    /// Whether this is in an item of a chat's history, which may say again what a model said.
    fn is_said_again(&self) -> bool {
        let [_, list, _, ..] = self.open.as_slice() else {
            return false;
        };
        let field = list.first_key.checked_sub(1).map(|at| self.keys[at]);
        field.is_some_and(|key| HISTORIES.iter().any(|name| key.is(self.text, name)))
    }

    /// Whether a string has escapes at all. serde_json has seen that each is one.
    fn check_escapes(&self, from: usize, to: usize, is_key: bool) -> Result<bool> {
        let text = self.text.as_bytes();
        let mut at = from;
        loop {
            if text[at] != b'\\' {
                match memchr(b'\\', &text[at..to]) {
                    Some(found) => at += found,
                    None => break,
                }
            }
            if text[at + 1] != b'u' {
                at += 2;
                continue;
            }
            at += match (unit(text, at), unit(text, at + 6)) {
                (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
                (Some(0xd800..=0xdfff), _) if self.writer == Writer::Client => {
                    return Err(Error::invalid(format!(
                        "is not valid JSON: half of a surrogate pair at byte {at}"
                    )))
                }
                (Some(0), _)
                    if self.writer == Writer::Client && (is_key || !self.is_said_again()) =>
                {
                    let why = format!("has \\u0000, which is not allowed, at byte {at}");
                    return Err(Error::invalid(why));
                }
                _ => 6,
            };
        }
        Ok(at > from)
    }
}

/// The UTF-16 unit of a \uXXXX that begins at `at`.
pub fn unit(text: &[u8], at: usize) -> Option<u16> {
    let escape = std::str::from_utf8(text.get(at..at + 6)?).ok()?;
    u16::from_str_radix(escape.strip_prefix("\\u")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second text reuses the first one's buffer, without its content.
    #[test]
    fn scratch_is_used_again() {
        let (text, fields) = check(br#"{"a":[{"b":1}],"c":2}"#, 8).unwrap();
        let at = fields.0.as_ptr();
        assert_eq!(fields.get(text, "c").unwrap().of(text), "2");
        drop(fields);
        let (text, fields) = check(br#"{"d":[]}"#, 8).unwrap();
        assert_eq!(fields.0.as_ptr(), at);
        assert!(fields.get(text, "a").is_none() && fields.get(text, "c").is_none());
        let (other, more) = check(br#"{"e":1}"#, 8).unwrap();
        assert_eq!(more.get(other, "e").unwrap().of(other), "1");
        assert_eq!(fields.get(text, "d").unwrap().of(text), "[]");
        drop(more);
        drop(fields);
        assert!(check(b"{\"a\":1,\"a\":2}", 8).is_err() && check(b"[[[", 8).is_err());
        let (text, fields) = check(br#"{"f":1}"#, 8).unwrap();
        assert!(fields.get(text, "a").is_none());
    }

    #[test]
    fn integers_have_many_spellings() {
        let is = |text: &str, negative: bool, value: u64| {
            let got = whole(text.as_bytes()).unwrap_or_else(|| panic!("{text} is an integer"));
            assert_eq!((got.negative, got.magnitude), (negative, Some(value)), "{text}");
        };
        for text in ["4", "4.0", "4.000", "4e0", "4E0", "4e+0", "4e-0", "40e-1", "0.4e1", "0.04E2", "4000e-3", "4.0e0"] {
            is(text, false, 4);
            is(&format!("-{text}"), true, 4);
        }
        is("1.5e1", false, 15);
        is("18446744073709551615", false, u64::MAX);
        is("1844674407370955161.5e1", false, u64::MAX);
        is("184467440737095516150e-1", false, u64::MAX);
        is("1e19", false, 10_000_000_000_000_000_000);
        for text in ["0", "0.0", "0e0", "0e99999999999999999999", "0.000e-99999999999999999999"] {
            is(text, false, 0);
        }
        let long = format!("7{}e-{}", "0".repeat(3000), 3000);
        is(&long, false, 7);
        for text in ["4.5", "4.01", "1e-1", "15e-2", "0.1", "1e-99999999999999999999", "", "-", "+1", ".5", "1.", "1.e1",
            "e1", "1e", "1e+", "1e1.0", "1 ", "0x1", "NaN", "1e1e1", "\"4\"", "--1", "1.0.0"]
        {
            assert!(whole(text.as_bytes()).is_none(), "{text}");
        }
        for text in ["18446744073709551616", "1e20", "2e19", "1e99999999999999999999", "1.5e400"] {
            assert!(whole(text.as_bytes()).unwrap().magnitude.is_none(), "{text}");
        }
    }

    #[test]
    fn scratch_of_many_members_is_given_back() {
        let many: Vec<String> = (0..2 * MAX_REUSED).map(|i| format!("\"{i}\":{i}")).collect();
        let text = format!("{{{}}}", many.join(","));
        drop(check(text.as_bytes(), 8).unwrap());
        let scratch = Scratch::take();
        assert!(scratch.fields.capacity() <= MAX_REUSED && scratch.keys.capacity() <= MAX_REUSED);
    }
}
