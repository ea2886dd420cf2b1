//! Python functions that chat templates expect: json.dumps, repr of a float, str.strip and strftime.

use std::ffi::CString;
use std::fmt::{self, Write};
use std::sync::Arc;

use minijinja::value::{Kwargs, Object, ObjectRepr, Value, ValueKind};
use minijinja::{Error, ErrorKind};

use super::budget::{spend, MAX_TEXT};
use crate::python_json::is_word;

/// JSON that comes in is at most 128 deep; a template can nest deeper.
const MAX_DEPTH: usize = 256;

pub fn wrong(text: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, text)
}

/// repr(x): the shortest digits that give the same number back, as Python lays them out.
pub fn float_repr(x: f64) -> String {
    if !x.is_finite() {
        return match (x.is_nan(), x > 0.0) {
            (true, _) => "nan".to_owned(),
            (_, true) => "inf".to_owned(),
            (_, false) => "-inf".to_owned(),
        };
    }
    let scientific = format!("{x:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let fixed = format!("{x}");
        return if fixed.contains('.') {
            fixed
        } else {
            fixed + ".0"
        };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}

/// A number of JSON as Python reads it: of any size, where it has neither point nor exponent.
pub fn number(text: &str) -> Value {
    if is_word(text) || text.contains(['.', 'e', 'E']) {
        return Value::from(text.parse::<f64>().unwrap_or(f64::NAN));
    }
    match (text.parse::<i64>(), text.parse::<i128>()) {
        (Ok(n), _) => Value::from(n),
        (_, Ok(n)) => Value::from(n),
        _ => Value::from_object(Digits(text.to_owned())),
    }
}

/// An integer that the template engine has no room for: it prints as it was written, and that is all.
#[derive(Debug)]
pub struct Digits(pub String);

impl Object for Digits {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The arguments of json.dumps that templates use.
struct Dumps {
    ascii: bool,
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

/// The `tojson` filter as transformers defines it; Jinja's own escapes HTML.
pub fn tojson(
    value: &Value,
    ascii: Option<Value>,
    indent: Option<Value>,
    kwargs: Kwargs,
) -> Result<String, Error> {
    let argument = |positional: Option<Value>, name: &str| -> Result<Option<Value>, Error> {
        let given = match positional {
            Some(value) => Some(value),
            None => kwargs.get::<Option<Value>>(name)?,
        };
        Ok(given.filter(|v| !v.is_none() && !v.is_undefined()))
    };
    let ascii = argument(ascii, "ensure_ascii")?;
    let indent = argument(indent, "indent")?
        .map(|v| indent_unit(&v))
        .transpose()?;
    let separators = argument(None, "separators")?;
    let sort_keys = argument(None, "sort_keys")?;
    kwargs.assert_all_used()?;

    let (item_separator, key_separator) = match separators {
        Some(pair) => {
            let pair: Vec<Value> = pair.try_iter()?.collect();
            match pair.as_slice() {
                [item, key] => (item.to_string(), key.to_string()),
                _ => return Err(wrong("tojson: separators must be a pair")),
            }
        }
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
    };
    let dumps = Dumps {
        ascii: ascii.is_some_and(|v| v.is_true()),
        indent,
        item_separator,
        key_separator,
        sort_keys: sort_keys.is_some_and(|v| v.is_true()),
    };
    let mut out = String::new();
    dumps.write(value, 0, &mut out)?;
    spend(out.len())?;
    Ok(out)
}

/// One level of indentation: so many spaces, or the string itself.
fn indent_unit(value: &Value) -> Result<String, Error> {
    if let Some(unit) = value.as_str() {
        return Ok(unit.to_owned());
    }
    let width = i64::try_from(value.clone())?;
    match usize::try_from(width.max(0)) {
        Ok(width) if width <= 64 => Ok(" ".repeat(width)),
        _ => Err(wrong(format!("tojson: indent {width} is too large"))),
    }
}

impl Dumps {
    fn write(&self, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(wrong("tojson: the value is nested too deeply"));
        }
        if out.len() > MAX_TEXT {
            return spend(out.len());
        }
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => out.push_str(&json_number(value)),
            ValueKind::String => self.write_string(value.as_str().unwrap_or_default(), out),
            ValueKind::Seq | ValueKind::Iterable => {
                let mut items = Vec::new();
                for item in value.try_iter()?.checked() {
                    items.push((None, item?));
                }
                self.write_items('[', ']', &items, depth, out)?;
            }
            ValueKind::Map => {
                let mut items = Vec::new();
                for key in value.try_iter()?.checked() {
                    let key = key?;
                    items.push((Some(json_key(&key)?), value.get_item(&key)?));
                }
                if self.sort_keys {
                    items.sort_by(|a, b| a.0.cmp(&b.0));
                }
                self.write_items('{', '}', &items, depth, out)?;
            }
            _ if value.downcast_object_ref::<Digits>().is_some() => {
                out.push_str(&value.to_string());
            }
            kind => return Err(wrong(format!("tojson: {kind} is not JSON serializable"))),
        }
        Ok(())
    }

    fn write_items(
        &self,
        open: char,
        close: char,
        items: &[(Option<String>, Value)],
        depth: usize,
        out: &mut String,
    ) -> Result<(), Error> {
        out.push(open);
        for (i, (key, value)) in items.iter().enumerate() {
            if i > 0 {
                out.push_str(&self.item_separator);
            }
            self.new_line(depth + 1, out);
            if let Some(key) = key {
                self.write_string(key, out);
                out.push_str(&self.key_separator);
            }
            self.write(value, depth + 1, out)?;
        }
        if !items.is_empty() {
            self.new_line(depth, out);
        }
        out.push(close);
        Ok(())
    }

    fn new_line(&self, depth: usize, out: &mut String) {
        if let Some(unit) = &self.indent {
            out.push('\n');
            (0..depth).for_each(|_| out.push_str(unit));
        }
    }

    fn write_string(&self, text: &str, out: &mut String) {
        out.push('"');
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                '\0'..='\x1f' => push_escape(c, out),
                '\x7f'.. if self.ascii => push_escape(c, out),
                _ => out.push(c),
            }
        }
        out.push('"');
    }
}

fn push_escape(c: char, out: &mut String) {
    let mut units = [0u16; 2];
    for unit in c.encode_utf16(&mut units) {
        // Writing to a String cannot fail.
        let _ = write!(out, "\\u{unit:04x}");
    }
}

fn json_number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    match f64::try_from(value.clone()) {
        Ok(x) if x.is_nan() => "NaN".to_owned(),
        Ok(x) if x.is_infinite() => if x > 0.0 { "Infinity" } else { "-Infinity" }.to_owned(),
        Ok(x) => float_repr(x),
        Err(_) => value.to_string(),
    }
}

fn json_key(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().to_owned()),
        ValueKind::None => Ok("null".to_owned()),
        ValueKind::Bool => Ok(if key.is_true() { "true" } else { "false" }.to_owned()),
        ValueKind::Number => Ok(json_number(key)),
        kind => Err(wrong(format!("tojson: keys must be strings, not {kind}"))),
    }
}

pub fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

pub fn strip<'a>(text: &'a str, chars: Option<&str>, left: bool, right: bool) -> &'a str {
    let strips = |c: char| chars.map_or_else(|| is_space(c), |set| set.contains(c));
    let text = if left {
        text.trim_start_matches(strips)
    } else {
        text
    };
    if right {
        text.trim_end_matches(strips)
    } else {
        text
    }
}

/// str.strip()
pub fn strip_space(text: &str) -> &str {
    strip(text, None, true, true)
}

/// str.rstrip()
pub fn strip_space_end(text: &str) -> &str {
    strip(text, None, false, true)
}

/// The `trim` filter.
pub fn trim(value: &Value, chars: Option<&str>) -> String {
    match value.as_str() {
        Some(text) => strip(text, chars, true, true).to_owned(),
        None => strip(&value.to_string(), chars, true, true).to_owned(),
    }
}

/// datetime.now().strftime(format)
pub fn strftime_now(format: &str) -> Result<String, Error> {
    strftime(format, &clock::now())
}

/// C's strftime, which is what Python's calls. A datetime without a zone prints nothing for %z
/// and %Z.
fn strftime(format: &str, time: &libc::tm) -> Result<String, Error> {
    if format.is_empty() {
        return Ok(String::new());
    }
    if format.len() > 1024 {
        return Err(wrong("strftime_now: the format is too long"));
    }
    // A final character distinguishes an empty result from one that did not fit.
    let mut pattern = String::with_capacity(format.len() + 1);
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        match (c, c == '%') {
            (_, false) => pattern.push(c),
            (_, true) => match chars.next() {
                Some('z' | 'Z') => {}
                Some('f') => pattern.push_str("000000"),
                Some(next) => pattern.extend(['%', next]),
                None => pattern.push_str("%%"),
            },
        }
    }
    pattern.push('.');
    let pattern = CString::new(pattern).map_err(|_| wrong("strftime_now: NUL in the format"))?;
    let mut buffer = vec![0u8; 65536];
    // SAFETY: the buffer is as long as said, the pattern ends in NUL, and `time` outlives the call.
    let n = unsafe {
        libc::strftime(
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            pattern.as_ptr(),
            time,
        )
    };
    if n == 0 {
        return Err(wrong("strftime_now: the result is too long"));
    }
    buffer.truncate(n - 1);
    Ok(String::from_utf8_lossy(&buffer).into_owned())
}

#[cfg(not(test))]
mod clock {
    /// The local time. A zone that the C library cannot read gives UTC.
    pub fn now() -> libc::tm {
        let mut broken_down: libc::tm = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are valid for the calls, and a tm of zeros is a valid tm.
        unsafe {
            let seconds = libc::time(std::ptr::null_mut());
            libc::localtime_r(&seconds, &mut broken_down);
        }
        broken_down
    }
}

#[cfg(test)]
mod clock {
    /// Saturday 4 July 2026, 09:05:03: what the goldens were made with.
    pub fn now() -> libc::tm {
        let mut broken_down: libc::tm = unsafe { std::mem::zeroed() };
        broken_down.tm_year = 126;
        broken_down.tm_mon = 6;
        broken_down.tm_mday = 4;
        broken_down.tm_hour = 9;
        broken_down.tm_min = 5;
        broken_down.tm_sec = 3;
        broken_down.tm_wday = 6;
        broken_down.tm_yday = 184;
        broken_down
    }
}
