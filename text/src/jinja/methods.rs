//! Methods of Python's str, list, dict, int and float that the template engine lacks or implements differently. The others
//! are the engine's own.

use std::collections::BTreeMap;

use minijinja::value::{Tuple, Value, ValueKind};
use minijinja::{Error, ErrorKind, State};
use minijinja_contrib::pycompat;
use regex_syntax::hir::ClassUnicode;

use super::arguments::Arguments;
use super::budget::{spend, MAX_TEXT};
use super::python::{is_space, strip, wrong};
use super::repr::{class, contains, is_printable};

/// Called where a value has no method of that name.
pub fn method(
    state: &mut State,
    value: &Value,
    name: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let mut arguments = Arguments::new(args);
    if let (Some(text), "replace", [old, new, ..]) = (value.as_str(), name, args) {
        let (old, new) = (old.as_str().unwrap_or_default(), new.as_str().unwrap_or_default());
        spend(replaced_bytes(text, old, new))?;
    }
    let result = match value.kind() {
        ValueKind::String => string(value.as_str().unwrap_or_default(), name, &mut arguments)?,
        ValueKind::Seq => sequence(value, name, &mut arguments)?,
        ValueKind::Map => mapping(value, name, &mut arguments)?,
        ValueKind::Number => number(value, name),
        _ => None,
    };
    let result = match result {
        Some(result) => arguments.end().map(|()| result)?,
        None => pycompat::unknown_method_callback(state, value, name, args)?,
    };
    spend(result.as_str().map_or(0, str::len)).map(|()| result)
}

/// The bytes of a text in which all of old becomes new.
pub fn replaced_bytes(text: &str, old: &str, new: &str) -> usize {
    let more = new.len().saturating_sub(old.len());
    let n = if more == 0 { 0 } else { text.matches(old).count() };
    text.len().saturating_add(n.saturating_mul(more))
}

fn string(text: &str, name: &str, args: &mut Arguments) -> Result<Option<Value>, Error> {
    if let Some(is) = predicate(text, name) {
        return Ok(Some(Value::from(is)));
    }
    let result = match name {
        "strip" | "lstrip" | "rstrip" => {
            let chars = args.text("")?;
            Value::from(strip(
                text,
                chars.as_deref(),
                name != "rstrip",
                name != "lstrip",
            ))
        }
        "removeprefix" => Value::from(text.strip_prefix(args.need()?.as_str()).unwrap_or(text)),
        "removesuffix" => Value::from(text.strip_suffix(args.need()?.as_str()).unwrap_or(text)),
        "partition" | "rpartition" => partition(text, &args.need()?, name == "rpartition")?,
        "split" | "rsplit" => {
            let separator = args.text("sep")?;
            let limit = args.number("maxsplit")?;
            split(text, separator.as_deref(), limit, name == "rsplit")?
        }
        "splitlines" => split_lines(text, args.next("keepends")?.is_some_and(|v| v.is_true())),
        "find" | "rfind" | "index" | "rindex" | "count" => search(text, name, args)?,
        "startswith" | "endswith" => Value::from(has_end(text, name == "startswith", args)?),
        "title" => Value::from(title(text)),
        "capitalize" => Value::from(capitalize(text)),
        "swapcase" => Value::from(text.chars().map(swap_case).collect::<String>()),
        "casefold" => Value::from(casefold(text)),
        "zfill" => Value::from(zfill(text, args.width()?)),
        "center" | "ljust" | "rjust" => {
            let (width, fill) = (args.width()?, args.fill()?);
            Value::from(justify(text, name, width, fill))
        }
        "expandtabs" => expand_tabs(text, args.number("tabsize")?.unwrap_or(8))?,
        "join" => {
            let items = args
                .next("")?
                .ok_or_else(|| Error::from(ErrorKind::MissingArgument))?;
            Value::from(join(text, &items)?)
        }
        _ => return Ok(None),
    };
    Ok(Some(result))
}

fn join(separator: &str, items: &Value) -> Result<String, Error> {
    let mut out = String::new();
    for (i, item) in items.try_iter()?.checked().enumerate() {
        let item = item?;
        let Some(text) = item.as_str() else {
            return Err(wrong(format!(
                "join: item {i} is no string: {}",
                item.kind()
            )));
        };
        if i > 0 {
            out.push_str(separator);
        }
        out.push_str(text);
        if out.len() > MAX_TEXT {
            break;
        }
    }
    Ok(out)
}

fn predicate(text: &str, name: &str) -> Option<bool> {
    let all = |is: &dyn Fn(char) -> bool| !text.is_empty() && text.chars().all(is);
    let in_class = |pattern: &str| {
        let class: ClassUnicode = class(pattern);
        all(&|c| contains(&class, c))
    };
    Some(match name {
        "isdecimal" => in_class(r"[\p{Nd}\d]"),
        // What has a value as a digit but is no decimal: superscripts, subscripts, circled digits.
        "isdigit" => in_class(r"[\p{Nd}²³¹⁰⁴-⁹₀-₉①-⑨⑴-⑼⒈-⒐⓪⓵-⓽⓿❶-❾➀-➈➊-➒]"),
        "isnumeric" => in_class(r"[\p{Nd}\p{Nl}\p{No}]"),
        "isspace" => all(&is_space),
        "isprintable" => text.chars().all(is_printable),
        "istitle" => is_title(text),
        "isidentifier" => {
            let rest = text
                .chars()
                .skip(1)
                .all(|c| c == '_' || c.is_alphanumeric());
            text.starts_with(|c: char| c == '_' || c.is_alphabetic()) && rest
        }
        _ => return None,
    })
}

fn is_title(text: &str) -> bool {
    let (mut cased, mut seen) = (false, false);
    for c in text.chars() {
        if (c.is_uppercase() && cased) || (c.is_lowercase() && !cased) {
            return false;
        }
        cased = c.is_uppercase() || c.is_lowercase();
        seen |= cased;
    }
    seen
}

/// A character's title case: "ß" becomes "Ss".
fn push_title(c: char, out: &mut String) {
    let mut upper = c.to_uppercase();
    out.extend(upper.next());
    out.extend(upper.flat_map(char::to_lowercase));
}

pub fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut cased = false;
    for c in text.chars() {
        if cased {
            out.extend(c.to_lowercase());
        } else {
            push_title(c, &mut out);
        }
        cased = c.is_uppercase() || c.is_lowercase();
    }
    out
}

pub fn capitalize(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    if let Some(first) = chars.next() {
        push_title(first, &mut out);
    }
    out + &chars.as_str().to_lowercase()
}

fn swap_case(c: char) -> String {
    if c.is_uppercase() {
        c.to_lowercase().collect()
    } else {
        c.to_uppercase().collect()
    }
}

/// Lower case, but for the characters whose upper case has several: "ß" and "ﬁ".
fn casefold(text: &str) -> String {
    let fold = |c: char| -> String {
        let upper = c.to_uppercase();
        if upper.len() > 1 {
            return upper.flat_map(char::to_lowercase).collect();
        }
        c.to_lowercase().collect()
    };
    text.chars().map(fold).collect()
}

fn zfill(text: &str, width: usize) -> String {
    let zeros = width.saturating_sub(text.chars().count());
    let digits = text.trim_start_matches(['+', '-']);
    let sign = if text.len() - digits.len() == 1 {
        &text[..1]
    } else {
        ""
    };
    format!("{sign}{}{}", "0".repeat(zeros), &text[sign.len()..])
}

pub fn justify(text: &str, name: &str, width: usize, fill: char) -> String {
    let pad = width.saturating_sub(text.chars().count());
    let left = match name {
        "ljust" => 0,
        "rjust" => pad,
        // As CPython rounds an odd rest.
        _ => pad / 2 + (pad & width & 1),
    };
    let fill = |n: usize| std::iter::repeat_n(fill, n).collect::<String>();
    format!("{}{text}{}", fill(left), fill(pad - left))
}

fn expand_tabs(text: &str, size: i64) -> Result<Value, Error> {
    if size > super::arguments::MAX_WIDTH {
        return Err(wrong(format!("a width of {size} is too large")));
    }
    let size = usize::try_from(size).unwrap_or(0);
    let mut out = String::with_capacity(text.len());
    let mut column = 0;
    for c in text.chars() {
        match c {
            '\t' => {
                let spaces = if size == 0 { 0 } else { size - column % size };
                out.extend(std::iter::repeat_n(' ', spaces));
                column += spaces;
            }
            _ => {
                out.push(c);
                column = if matches!(c, '\n' | '\r') {
                    0
                } else {
                    column + 1
                };
            }
        }
    }
    Ok(Value::from(out))
}

fn partition(text: &str, separator: &str, from_right: bool) -> Result<Value, Error> {
    if separator.is_empty() {
        return Err(wrong("the separator is empty"));
    }
    let cut = if from_right {
        text.rsplit_once(separator)
    } else {
        text.split_once(separator)
    };
    let parts = match (cut, from_right) {
        (Some((a, b)), _) => [a, separator, b],
        (None, false) => [text, "", ""],
        (None, true) => ["", "", text],
    };
    Ok(Value::from(Tuple::from(parts.map(Value::from))))
}

fn split(
    text: &str,
    separator: Option<&str>,
    limit: Option<i64>,
    from_right: bool,
) -> Result<Value, Error> {
    if separator == Some("") {
        return Err(wrong("the separator is empty"));
    }
    let limit = limit
        .and_then(|n| usize::try_from(n).ok())
        .unwrap_or(usize::MAX);
    let trim = |text: &str| -> usize {
        let kept = if from_right {
            text.trim_end_matches(is_space)
        } else {
            text.trim_start_matches(is_space)
        };
        kept.len()
    };
    let mut parts = Vec::new();
    let mut rest = text;
    loop {
        if separator.is_none() {
            let kept = trim(rest);
            rest = if from_right {
                &rest[..kept]
            } else {
                &rest[rest.len() - kept..]
            };
        }
        let cut = match (separator, from_right) {
            _ if parts.len() == limit => None,
            (Some(separator), false) => rest.split_once(separator).map(|(a, b)| (b, a)),
            (Some(separator), true) => rest.rsplit_once(separator),
            (None, false) => rest.split_once(is_space).map(|(a, b)| (b, a)),
            (None, true) => rest.rsplit_once(is_space),
        };
        let Some((left, part)) = cut else { break };
        parts.push(part);
        rest = left;
    }
    if separator.is_some() || !rest.is_empty() {
        parts.push(rest);
    }
    if from_right {
        parts.reverse();
    }
    Ok(parts.into_iter().map(Value::from).collect())
}

fn split_lines(text: &str, keep: bool) -> Value {
    let ends = |c: char| {
        matches!(
            c,
            '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(ends) {
        let end = if rest[at..].starts_with("\r\n") {
            2
        } else {
            rest[at..].chars().next().map_or(1, char::len_utf8)
        };
        lines.push(Value::from(&rest[..if keep { at + end } else { at }]));
        rest = &rest[at + end..];
    }
    if !rest.is_empty() {
        lines.push(Value::from(rest));
    }
    Value::from(lines)
}

/// The bytes of text[start:end], and whether start lies in the text at all.
fn range(text: &str, args: &mut Arguments) -> Result<(usize, usize, bool), Error> {
    let n = text.chars().count();
    let place = |given: Option<i64>, default: usize| match given {
        None => default,
        Some(i) if i < 0 => usize::try_from(n as i64 + i).unwrap_or(0),
        Some(i) => usize::try_from(i).unwrap_or(usize::MAX),
    };
    let start = place(args.number("")?, 0);
    let end = place(args.number("")?, n).min(n);
    let byte = |i: usize| text.char_indices().nth(i).map_or(text.len(), |(at, _)| at);
    Ok((
        byte(start),
        byte(end).max(byte(start)),
        start <= n && start <= end,
    ))
}

fn search(text: &str, name: &str, args: &mut Arguments) -> Result<Value, Error> {
    let what = args.need()?;
    let (start, end, inside) = range(text, args)?;
    let part = if inside {
        Some(&text[start..end])
    } else {
        None
    };
    if name == "count" {
        return Ok(Value::from(
            part.map_or(0, |part| part.matches(what.as_str()).count()),
        ));
    }
    let from_right = name.starts_with('r');
    let found = part.and_then(|part| {
        if from_right {
            part.rfind(&what)
        } else {
            part.find(&what)
        }
    });
    match found {
        Some(at) => Ok(Value::from(text[..start + at].chars().count())),
        None if name.ends_with("find") => Ok(Value::from(-1)),
        None => Err(wrong("substring not found")),
    }
}

fn has_end(text: &str, start: bool, args: &mut Arguments) -> Result<bool, Error> {
    let what = args
        .next("")?
        .ok_or_else(|| Error::from(ErrorKind::MissingArgument))?;
    let (from, to, inside) = range(text, args)?;
    let texts = if what.as_str().is_none() && what.is_tuple() {
        what.try_iter()?.collect()
    } else {
        vec![what]
    };
    for text_of in texts {
        let Some(what) = text_of.as_str() else {
            return Err(wrong(
                "startswith and endswith need a string or a tuple of strings",
            ));
        };
        let part = &text[from..to];
        if inside
            && (if start {
                part.starts_with(what)
            } else {
                part.ends_with(what)
            })
        {
            return Ok(true);
        }
    }
    Ok(false)
}

fn sequence(value: &Value, name: &str, args: &mut Arguments) -> Result<Option<Value>, Error> {
    Ok(match name {
        "index" => {
            let what = args.next("")?.unwrap_or_else(|| Value::from(()));
            let at = value.try_iter()?.position(|item| item == what);
            Some(Value::from(
                at.ok_or_else(|| wrong("the list has no such item"))?,
            ))
        }
        "copy" if !value.is_tuple() => Some(value.try_iter()?.collect()),
        _ => None,
    })
}

fn mapping(value: &Value, name: &str, args: &mut Arguments) -> Result<Option<Value>, Error> {
    Ok(match name {
        "copy" => {
            let keys: Vec<Value> = value.try_iter()?.collect();
            let pairs: Result<Vec<_>, Error> = keys
                .into_iter()
                .map(|key| Ok((key.clone(), value.get_item(&key)?)))
                .collect();
            Some(Value::from_pairs(pairs?))
        }
        "fromkeys" => {
            let keys = args.next("")?.unwrap_or_default();
            let given = args.next("")?.unwrap_or_else(|| Value::from(()));
            let pairs: BTreeMap<Value, Value> =
                keys.try_iter()?.map(|key| (key, given.clone())).collect();
            Some(Value::from_pairs(pairs))
        }
        _ => None,
    })
}

fn number(value: &Value, name: &str) -> Option<Value> {
    if !value.is_integer() {
        let x = f64::try_from(value.clone()).ok()?;
        return (name == "is_integer").then(|| Value::from(x.is_finite() && x.fract() == 0.0));
    }
    match name {
        "is_integer" => Some(Value::from(true)),
        "bit_length" => {
            let n = i128::try_from(value.clone()).ok()?.unsigned_abs();
            Some(Value::from(128 - n.leading_zeros()))
        }
        _ => None,
    }
}
