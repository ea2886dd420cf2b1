//! str() and repr() of Python, for the values of templates.

use std::fmt::Write;
use std::sync::OnceLock;

use minijinja::value::{Value, ValueKind};
use regex_syntax::hir::{Class, ClassUnicode, HirKind};

use super::budget::{spend, MAX_TEXT};
use super::python::{float_repr, Digits};

/// Values in each other; what is deeper prints as "...".
const MAX_DEPTH: usize = 256;

/// str(value); an undefined value is an empty string.
pub fn text(value: &Value) -> String {
    let mut out = String::new();
    write_text(value, &mut out);
    // The next output or operation fails.
    let _ = spend(out.len());
    out
}

pub fn write_text(value: &Value, out: &mut String) {
    match value.as_str() {
        Some(text) => out.push_str(text),
        None if value.is_undefined() => {}
        None => write(value, 0, out),
    }
}

/// repr(value)
pub fn repr(value: &Value) -> String {
    let mut out = String::new();
    write(value, 0, &mut out);
    let _ = spend(out.len());
    out
}

fn write(value: &Value, depth: usize, out: &mut String) {
    let is_number = value.is_integer() || value.downcast_object_ref::<Digits>().is_some();
    match value.kind() {
        _ if depth > MAX_DEPTH => out.push_str("..."),
        _ if out.len() > MAX_TEXT => {}
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::Number if !is_number => match f64::try_from(value.clone()) {
            Ok(x) => out.push_str(&float_repr(x)),
            Err(_) => push_display(value, out),
        },
        ValueKind::String => write_string(value.as_str().unwrap_or_default(), out),
        ValueKind::Seq if value.is_tuple() => {
            let comma = if value.len() == Some(1) { ",)" } else { ")" };
            write_items(value, ("(", comma), depth, out);
        }
        ValueKind::Seq | ValueKind::Iterable => write_items(value, ("[", "]"), depth, out),
        ValueKind::Map => write_items(value, ("{", "}"), depth, out),
        _ => push_display(value, out),
    }
}

fn push_display(value: &Value, out: &mut String) {
    // Writing to a String cannot fail.
    let _ = write!(out, "{value}");
}

fn write_items(value: &Value, ends: (&str, &str), depth: usize, out: &mut String) {
    let Ok(items) = value.try_iter() else {
        return push_display(value, out);
    };
    out.push_str(ends.0);
    for (i, item) in items.enumerate() {
        if out.len() > MAX_TEXT {
            return;
        }
        if i > 0 {
            out.push_str(", ");
        }
        write(&item, depth + 1, out);
        if value.kind() == ValueKind::Map {
            out.push_str(": ");
            let value = value.get_item(&item).unwrap_or_default();
            write(&value, depth + 1, out);
        }
    }
    out.push_str(ends.1);
}

fn write_string(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    out.push(quote);
    for c in text.chars() {
        let code = u32::from(c);
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c if is_printable(c) => out.push(c),
            // Writing to a String cannot fail.
            _ if code < 0x100 => drop(write!(out, "\\x{code:02x}")),
            _ if code < 0x10000 => drop(write!(out, "\\u{code:04x}")),
            _ => drop(write!(out, "\\U{code:08x}")),
        }
    }
    out.push(quote);
}

/// str.isprintable() of one character: neither a control character, nor unassigned, nor white space but " ".
pub fn is_printable(c: char) -> bool {
    static OTHERS: OnceLock<ClassUnicode> = OnceLock::new();
    if (' '..='~').contains(&c) {
        return true;
    }
    let others = OTHERS.get_or_init(|| class(r"[\p{C}\p{Z}]"));
    !contains(others, c)
}

/// A class of characters by a regular expression.
pub fn class(pattern: &str) -> ClassUnicode {
    match regex_syntax::parse(pattern).map(regex_syntax::hir::Hir::into_kind) {
        Ok(HirKind::Class(Class::Unicode(class))) => class,
        _ => ClassUnicode::empty(),
    }
}

pub fn contains(class: &ClassUnicode, c: char) -> bool {
    let ranges = class.ranges();
    let at = ranges.partition_point(|range| range.end() < c);
    ranges.get(at).is_some_and(|range| range.start() <= c)
}
