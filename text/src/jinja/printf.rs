//! `pattern % values` of Python.

use minijinja::value::{Value, ValueKind};
use minijinja::Error;

use super::arguments::MAX_WIDTH;
use super::budget::{spend, MAX_TEXT};
use super::python::wrong;
use super::repr::{repr, text};

/// Where the values come from: a tuple's items in their order, one value, or a mapping's by name.
pub struct Values<'a> {
    items: Vec<Value>,
    taken: usize,
    whole: &'a Value,
    names: bool,
}

impl<'a> Values<'a> {
    pub fn new(right: &'a Value) -> Result<Values<'a>, Error> {
        let items = if right.is_tuple() {
            right.try_iter()?.collect()
        } else {
            vec![right.clone()]
        };
        Ok(Values {
            items,
            taken: 0,
            whole: right,
            names: false,
        })
    }

    fn next(&mut self) -> Result<Value, Error> {
        self.taken += 1;
        let item = self.items.get(self.taken - 1);
        item.cloned()
            .ok_or_else(|| wrong("not enough arguments for the format string"))
    }

    fn named(&mut self, name: &str) -> Result<Value, Error> {
        self.names = true;
        match (self.whole.kind(), self.whole.get_item(&Value::from(name))) {
            (ValueKind::Map, Ok(value)) if !value.is_undefined() => Ok(value),
            _ => Err(wrong(format!("the format needs a mapping with {name:?}"))),
        }
    }

    fn all_taken(&self) -> bool {
        let is_mapping =
            matches!(self.whole.kind(), ValueKind::Map | ValueKind::Seq) && !self.whole.is_tuple();
        self.names || self.taken >= self.items.len() || (self.taken == 0 && is_mapping)
    }
}

#[derive(Default)]
struct Spec {
    left: bool,
    zeros: bool,
    plus: bool,
    space: bool,
    prefix: bool,
    width: usize,
    precision: Option<usize>,
}

pub fn printf(pattern: &str, mut values: Values) -> Result<String, Error> {
    let mut out = String::with_capacity(pattern.len());
    let mut rest = pattern;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = conversion(&rest[at + 1..], &mut values, &mut out)?;
        if out.len() > MAX_TEXT {
            break;
        }
    }
    out.push_str(rest);
    spend(out.len())?;
    if !values.all_taken() {
        return Err(wrong(
            "not all arguments were converted by the format string",
        ));
    }
    Ok(out)
}

/// What follows a conversion.
fn conversion<'a>(rest: &'a str, values: &mut Values, out: &mut String) -> Result<&'a str, Error> {
    let (named, rest) = match rest.strip_prefix('(') {
        Some(inner) => {
            let (name, rest) = inner
                .split_once(')')
                .ok_or_else(|| wrong("a format's name has no end"))?;
            (Some(name), rest)
        }
        None => (None, rest),
    };
    let mut spec = Spec::default();
    let flags = rest.len() - rest.trim_start_matches(['-', '0', '+', ' ', '#']).len();
    for flag in rest[..flags].chars() {
        match flag {
            '-' => spec.left = true,
            '0' => spec.zeros = true,
            '+' => spec.plus = true,
            ' ' => spec.space = true,
            _ => spec.prefix = true,
        }
    }
    let (width, rest) = length(&rest[flags..], values)?;
    spec.left |= width.is_some_and(|width| width < 0);
    spec.width = usize::try_from(width.unwrap_or(0).abs()).unwrap_or(0);
    let rest = match rest.strip_prefix('.') {
        Some(rest) => {
            let (precision, rest) = length(rest, values)?;
            spec.precision = Some(usize::try_from(precision.unwrap_or(0)).unwrap_or(0));
            rest
        }
        None => rest,
    };
    let rest = rest.trim_start_matches(['h', 'l', 'L']);
    let kind = rest
        .chars()
        .next()
        .ok_or_else(|| wrong("the format ends within a conversion"))?;
    if kind == '%' {
        out.push('%');
    } else {
        let value = match named {
            Some(name) => values.named(name)?,
            None => values.next()?,
        };
        let (sign, body) = convert(kind, &value, &spec)?;
        pad(&sign, &body, &spec, "diuoxXeEfFgG".contains(kind), out);
    }
    Ok(&rest[kind.len_utf8()..])
}

/// Digits, or `*` for the next value; and what follows.
fn length<'a>(rest: &'a str, values: &mut Values) -> Result<(Option<i64>, &'a str), Error> {
    if let Some(rest) = rest.strip_prefix('*') {
        return bounded(i64::try_from(values.next()?)?).map(|n| (Some(n), rest));
    }
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    if digits == 0 {
        return Ok((None, rest));
    }
    bounded(rest[..digits].parse().unwrap_or(i64::MAX)).map(|n| (Some(n), &rest[digits..]))
}

fn bounded(n: i64) -> Result<i64, Error> {
    if n.abs() > MAX_WIDTH {
        return Err(wrong(format!("a width of {n} is too large")));
    }
    Ok(n)
}

/// The sign with a base's prefix, and the rest.
fn convert(kind: char, value: &Value, spec: &Spec) -> Result<(String, String), Error> {
    let cut = |text: String| match spec.precision {
        Some(n) => text.chars().take(n).collect(),
        None => text,
    };
    match kind {
        's' => Ok((String::new(), cut(text(value)))),
        'r' => Ok((String::new(), cut(repr(value)))),
        'a' => Ok((String::new(), cut(ascii(&repr(value))))),
        'c' => character(value).map(|c| (String::new(), c)),
        'd' | 'i' | 'u' | 'o' | 'x' | 'X' => whole(kind, value, spec),
        'e' | 'E' | 'f' | 'F' | 'g' | 'G' => real(kind, value, spec),
        _ => Err(wrong(format!("the format has no conversion {kind:?}"))),
    }
}

fn ascii(text: &str) -> String {
    let escape = |c: char| match u32::from(c) {
        0..0x80 => c.to_string(),
        code @ ..0x100 => format!("\\x{code:02x}"),
        code @ ..0x10000 => format!("\\u{code:04x}"),
        code => format!("\\U{code:08x}"),
    };
    text.chars().map(escape).collect()
}

fn character(value: &Value) -> Result<String, Error> {
    let code = value
        .as_i64()
        .and_then(|code| u32::try_from(code).ok())
        .and_then(char::from_u32);
    match (value.as_str(), code) {
        (Some(text), _) if text.chars().count() == 1 => Ok(text.to_owned()),
        (None, Some(c)) => Ok(c.to_string()),
        _ => Err(wrong("%c needs an integer or one character")),
    }
}

fn sign(negative: bool, spec: &Spec) -> String {
    match (negative, spec.plus, spec.space) {
        (true, ..) => "-",
        (_, true, _) => "+",
        (_, _, true) => " ",
        _ => "",
    }
    .to_owned()
}

fn whole(kind: char, value: &Value, spec: &Spec) -> Result<(String, String), Error> {
    let n = match value.kind() {
        ValueKind::Bool => i128::from(value.is_true()),
        ValueKind::Number if value.is_integer() => i128::try_from(value.clone())?,
        ValueKind::Number if "diu".contains(kind) => f64::try_from(value.clone())?.trunc() as i128,
        other => return Err(wrong(format!("%{kind} needs a number, not {other}"))),
    };
    let digits = n.unsigned_abs();
    let (prefix, mut body) = match kind {
        'o' => ("0o", format!("{digits:o}")),
        'x' => ("0x", format!("{digits:x}")),
        'X' => ("0X", format!("{digits:X}")),
        _ => ("", digits.to_string()),
    };
    let zeros = spec.precision.unwrap_or(0).saturating_sub(body.len());
    body.insert_str(0, &"0".repeat(zeros));
    let prefix = if spec.prefix { prefix } else { "" };
    Ok((sign(n < 0, spec) + prefix, body))
}

fn real(kind: char, value: &Value, spec: &Spec) -> Result<(String, String), Error> {
    let x = match value.kind() {
        ValueKind::Bool => f64::from(u8::from(value.is_true())),
        ValueKind::Number => f64::try_from(value.clone())?,
        other => return Err(wrong(format!("%{kind} needs a number, not {other}"))),
    };
    let precision = spec.precision.unwrap_or(6);
    let magnitude = x.abs();
    let body = match kind.to_ascii_lowercase() {
        _ if x.is_nan() => "nan".to_owned(),
        _ if x.is_infinite() => "inf".to_owned(),
        'f' => format!("{magnitude:.precision$}"),
        'e' => scientific(magnitude, precision),
        _ => general(magnitude, precision.max(1), spec.prefix),
    };
    let body = if kind.is_uppercase() {
        body.to_uppercase()
    } else {
        body
    };
    Ok((sign(x.is_sign_negative() && !x.is_nan(), spec), body))
}

/// As C writes it: at least two digits of an exponent with its sign.
fn scientific(x: f64, precision: usize) -> String {
    let text = format!("{x:.precision$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}

/// The shorter form of `precision` significant digits, without zeros at its end.
fn general(x: f64, precision: usize, keep_zeros: bool) -> String {
    let text = scientific(x, precision - 1);
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let power: i64 = exponent.parse().unwrap_or(0);
    let trim = |text: &str| {
        if keep_zeros || !text.contains('.') {
            return text.to_owned();
        }
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    let places = precision as i64 - 1 - power;
    if power < -4 || places < 0 {
        return format!("{}e{exponent}", trim(mantissa));
    }
    let places = usize::try_from(places).unwrap_or(0);
    trim(&format!("{x:.places$}"))
}

fn pad(sign: &str, body: &str, spec: &Spec, is_number: bool, out: &mut String) {
    let fill = spec
        .width
        .saturating_sub(sign.chars().count() + body.chars().count());
    let (before, zeros, after) = match (spec.left, spec.zeros && is_number) {
        (true, _) => (0, 0, fill),
        (false, true) => (0, fill, 0),
        (false, false) => (fill, 0, 0),
    };
    out.extend(std::iter::repeat_n(' ', before));
    out.push_str(sign);
    out.extend(std::iter::repeat_n('0', zeros));
    out.push_str(body);
    out.extend(std::iter::repeat_n(' ', after));
}
