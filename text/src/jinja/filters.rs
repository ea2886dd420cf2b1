//! Filters and tests of Jinja2 that the template engine lacks or implements differently.

use std::cmp::Ordering;

use minijinja::value::{Kwargs, Rest, Tuple, Value, ValueKind, ValueOrKwargs};
use minijinja::{filters, Environment, Error, ErrorKind, State};

use super::arguments::{divide, Arguments};
use super::budget::{spend, MAX_TEXT};
use super::methods::{capitalize, justify, replaced_bytes, title};
use super::operations::integer;
use super::printf::{printf, Values};
use super::python::{strip_space, wrong, Digits};
use super::repr::{class, contains, repr, text};
use super::wrap::wordwrap;

pub fn add(environment: &mut Environment) {
    for name in ["length", "count"] {
        environment.add_filter(name, length);
    }
    for name in ["default", "d"] {
        environment.add_filter(name, default);
    }
    for name in ["escape", "e"] {
        environment.add_filter(name, |value: Value| {
            if value.is_safe() {
                value
            } else {
                escaped(&value)
            }
        });
    }
    environment.add_filter("forceescape", |value: Value| escaped(&value));
    environment.add_filter("attr", attr);
    environment.add_filter("capitalize", |value: &Value| capitalize(&text(value)));
    environment.add_filter("center", center);
    environment.add_filter("float", float);
    environment.add_filter("format", format);
    environment.add_filter("indent", indent);
    environment.add_filter("int", int);
    environment.add_filter("items", items);
    environment.add_filter("join", join);
    environment.add_filter("last", last);
    environment.add_filter("list", |value: &Value| iterated(value).map(Value::from));
    environment.add_filter("max", |value: Value, args: Rest<ValueOrKwargs>| {
        extreme(&value, args, Ordering::Greater)
    });
    environment.add_filter("min", |value: Value, args: Rest<ValueOrKwargs>| {
        extreme(&value, args, Ordering::Less)
    });
    environment.add_filter("pprint", |value: &Value| repr(&sorted(value)));
    environment.add_filter("replace", replace);
    environment.add_filter("reverse", reverse);
    environment.add_filter("round", round);
    environment.add_filter("string", |value: Value| {
        if value.as_str().is_some() {
            value
        } else {
            Value::from(text(&value))
        }
    });
    environment.add_filter("title", |value: &Value| title_of_words(&text(value)));
    environment.add_filter("urlencode", urlencode);
    environment.add_filter("wordcount", wordcount);
    environment.add_filter("wordwrap", wrap);
    environment.add_filter("xmlattr", xmlattr);
    environment.add_filter("dictsort", |value: Value, args: Rest<ValueOrKwargs>| {
        filters::dictsort(&value, named(args, &["case_sensitive", "by", "reverse"])?)
    });
    environment.add_filter(
        "sort",
        |state: &mut State, value: Value, args: Rest<ValueOrKwargs>| {
            let kwargs = named(args, &["reverse", "case_sensitive", "attribute"])?;
            if kwargs.get::<Option<Value>>("attribute")?.is_none() {
                let items = iterated(&value)?;
                items.windows(2).try_for_each(|two| has_order(&two[0], &two[1]))?;
            }
            filters::sort(state, value, kwargs)
        },
    );
    environment.add_filter(
        "unique",
        |state: &mut State, value: Value, args: Rest<ValueOrKwargs>| {
            let kwargs = named(args, &["case_sensitive", "attribute"])?;
            filters::unique(state, value, kwargs)
        },
    );
    environment.add_filter(
        "truncate",
        |state: &mut State, value: Value, args: Rest<ValueOrKwargs>| {
            let kwargs = named(args, &["length", "killwords", "end", "leeway"])?;
            minijinja_contrib::filters::truncate(state, &value, kwargs)
        },
    );
    environment.add_test("callable", |value: &Value| {
        matches!(value.kind(), ValueKind::Plain | ValueKind::Undefined)
    });
    environment.add_test("iterable", |value: &Value| {
        !value.is_none() && (value.is_undefined() || value.try_iter().is_ok())
    });
    environment.add_test("sequence", is_sequence);
    environment.add_function("dict", dict);
}

/// The arguments of a filter of which the engine knows the names only.
fn named(args: Rest<ValueOrKwargs>, names: &[&str]) -> Result<Kwargs, Error> {
    let args = args.into_values();
    let (places, given) = divide(&args);
    if places.len() > names.len() {
        return Err(Error::from(ErrorKind::TooManyArguments));
    }
    let mut all: Vec<(String, Value)> = names
        .iter()
        .zip(places)
        .map(|(name, value)| ((*name).to_owned(), value.clone()))
        .collect();
    for name in given.iter().flat_map(Kwargs::args) {
        if let Some(given) = &given {
            all.push((name.to_owned(), given.get::<Value>(name)?));
        }
    }
    Ok(all.into_iter().collect())
}

/// An argument by its place or by its name.
fn argument(given: Option<Value>, kwargs: &Kwargs, name: &str) -> Result<Option<Value>, Error> {
    match given {
        Some(given) => Ok(Some(given)),
        None => kwargs.get::<Option<Value>>(name),
    }
}

fn flag(given: Option<Value>, kwargs: &Kwargs, name: &str, default: bool) -> Result<bool, Error> {
    Ok(argument(given, kwargs, name)?.map_or(default, |value| value.is_true()))
}

/// An undefined value has length 0.
fn length(value: &Value) -> Result<usize, Error> {
    if value.is_undefined() {
        return Ok(0);
    }
    filters::length(value)
}

fn default(
    value: Value,
    other: Option<Value>,
    boolean: Option<Value>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let other = argument(other, &kwargs, "default_value")?.unwrap_or_else(|| Value::from(""));
    let boolean = flag(boolean, &kwargs, "boolean", false)?;
    kwargs.assert_all_used()?;
    let absent = value.is_undefined() || (boolean && !value.is_true());
    Ok(if absent { other } else { value })
}

pub fn escape_text(plain: &str) -> String {
    let mut out = String::with_capacity(plain.len());
    for c in plain.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&#39;"),
            '"' => out.push_str("&#34;"),
            c => out.push(c),
        }
    }
    out
}

fn escaped(value: &Value) -> Value {
    Value::from_safe_string(escape_text(&text(value)))
}

/// An attribute, never an item: dicts, lists and strings of templates have none.
fn attr(value: Value, name: &str) -> Value {
    match value.kind() {
        ValueKind::Plain => value.get_attr(name).unwrap_or_default(),
        _ => Value::UNDEFINED,
    }
}

fn center(value: &Value, width: Option<i64>) -> Result<String, Error> {
    match width.unwrap_or(80) {
        width @ ..=65536 => Ok(justify(
            &text(value),
            "center",
            usize::try_from(width).unwrap_or(0),
            ' ',
        )),
        width => Err(wrong(format!("center: a width of {width} is too large"))),
    }
}

/// pattern % values, or pattern % names.
fn format(pattern: &Value, args: Rest<ValueOrKwargs>) -> Result<String, Error> {
    let args = args.into_values();
    let (places, names) = divide(&args);
    if names.is_some() && !places.is_empty() {
        return Err(wrong("format: takes values or names, not both"));
    }
    let values = names.map_or_else(|| Value::from(Tuple::from(places)), Value::from);
    printf(&text(pattern), Values::new(&values)?)
}

fn indent(
    value: &Value,
    width: Option<Value>,
    first: Option<Value>,
    blank: Option<Value>,
    kwargs: Kwargs,
) -> Result<String, Error> {
    let width = argument(width, &kwargs, "width")?.unwrap_or_else(|| Value::from(4));
    let first = flag(first, &kwargs, "first", false)?;
    let blank = flag(blank, &kwargs, "blank", false)?;
    kwargs.assert_all_used()?;
    let unit = match width.as_str() {
        Some(unit) => unit.to_owned(),
        None => match i64::try_from(width)? {
            n @ ..=1024 => " ".repeat(usize::try_from(n).unwrap_or(0)),
            n => return Err(wrong(format!("indent: a width of {n} is too large"))),
        },
    };
    let source = text(value);
    spend(replaced_bytes(&source, "\n", &unit).saturating_add(unit.len()))?;
    let mut out = String::with_capacity(source.len());
    for (i, line) in source.split('\n').enumerate() {
        if i > 0 {
            out.push('\n');
        }
        if (i == 0 && first) || (i > 0 && (blank || !line.is_empty())) {
            out.push_str(&unit);
        }
        out.push_str(line.strip_suffix('\r').unwrap_or(line));
    }
    Ok(out)
}

/// int(value), or the default where Python cannot convert.
fn int(
    value: Value,
    default: Option<Value>,
    base: Option<Value>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let default = argument(default, &kwargs, "default")?.unwrap_or_else(|| Value::from(0));
    let base = argument(base, &kwargs, "base")?.map_or(Ok(10), u32::try_from)?;
    kwargs.assert_all_used()?;
    if value.is_undefined() {
        return Err(Error::from(ErrorKind::UndefinedError));
    }
    if value.is_integer() {
        return Ok(value);
    }
    if let Some(parsed) = value.as_str().and_then(|text| python_int(text, base)) {
        return Ok(parsed);
    }
    let whole = to_float(&value)
        .filter(|x| x.abs() < 1.7e38)
        .map(|x| integer(x.trunc() as i128));
    Ok(whole.unwrap_or(default))
}

/// int(text, base): signs, a prefix that suits the base, `_` between digits, white space around; any size in base 10.
fn python_int(text: &str, base: u32) -> Option<Value> {
    let text = strip_space(text);
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = digits.to_lowercase();
    let prefix = match lower.get(..2) {
        Some("0x") => 16,
        Some("0o") => 8,
        Some("0b") => 2,
        _ => 0,
    };
    let has_prefix = prefix != 0 && (base == prefix || base == 0);
    let digits = if has_prefix {
        lower[2..].strip_prefix('_').unwrap_or(&lower[2..])
    } else {
        &lower
    };
    let base = match (has_prefix, base) {
        (true, _) => prefix,
        (false, 0) if digits.len() > 1 && digits.starts_with('0') => return None,
        (false, 0) => 10,
        (false, base) => base,
    };
    if !(2..=36).contains(&base)
        || digits.starts_with('_')
        || digits.ends_with('_')
        || digits.contains("__")
    {
        return None;
    }
    let digits = digits.replace('_', "");
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(base)) {
        return None;
    }
    match i128::from_str_radix(&digits, base) {
        Ok(n) => Some(integer(if negative { -n } else { n })),
        Err(_) if base == 10 => {
            let sign = if negative { "-" } else { "" };
            Some(Value::from_object(Digits(
                sign.to_owned() + digits.trim_start_matches('0'),
            )))
        }
        Err(_) => None,
    }
}

/// float(value), or the default where Python cannot convert.
fn float(value: &Value, default: Option<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let default = argument(default, &kwargs, "default")?.unwrap_or_else(|| Value::from(0.0));
    kwargs.assert_all_used()?;
    if value.is_undefined() {
        return Err(Error::from(ErrorKind::UndefinedError));
    }
    Ok(to_float(value).map_or(default, Value::from))
}

fn to_float(value: &Value) -> Option<f64> {
    match value.kind() {
        ValueKind::Bool => Some(if value.is_true() { 1.0 } else { 0.0 }),
        ValueKind::Number => f64::try_from(value.clone()).ok(),
        _ => strip_space(value.as_str()?).replace('_', "").parse().ok(),
    }
}

/// Every value with a length and an index, including strings and mappings.
fn is_sequence(value: &Value) -> bool {
    let kind = value.kind();
    let indexed = matches!(
        kind,
        ValueKind::Seq | ValueKind::String | ValueKind::Map | ValueKind::Undefined
    );
    indexed || (kind == ValueKind::Iterable && value.len().is_some())
}

fn items(value: &Value) -> Result<Value, Error> {
    if value.is_undefined() {
        return Ok(Value::from(Vec::<Value>::new()));
    }
    filters::items(value)
}

fn join(
    value: &Value,
    separator: Option<Value>,
    attribute: Option<Value>,
    kwargs: Kwargs,
) -> Result<String, Error> {
    let separator = argument(separator, &kwargs, "d")?.map_or_else(String::new, |d| text(&d));
    let attribute = argument(attribute, &kwargs, "attribute")?;
    kwargs.assert_all_used()?;
    let mut out = String::new();
    for (i, item) in iterated(value)?.into_iter().enumerate() {
        if i > 0 {
            out.push_str(&separator);
        }
        out.push_str(&text(&by_attribute(item, attribute.as_ref())?));
        if out.len() > MAX_TEXT {
            break;
        }
    }
    spend(out.len())?;
    Ok(out)
}

/// The items of a value; a string's are its characters, and an undefined value has none.
fn iterated(value: &Value) -> Result<Vec<Value>, Error> {
    if let Some(text) = value.as_str() {
        return Ok(text.chars().map(|c| Value::from(c.to_string())).collect());
    }
    if value.is_none() {
        return Err(wrong("none is not iterable"));
    }
    value.try_iter()?.checked().collect()
}

/// item, or its attribute: names and numbers between points.
fn by_attribute(item: Value, attribute: Option<&Value>) -> Result<Value, Error> {
    let Some(attribute) = attribute else {
        return Ok(item);
    };
    let mut found = item;
    for name in text(attribute).split('.') {
        found = match name.parse::<usize>() {
            Ok(i) => found.get_item(&Value::from(i))?,
            Err(_) => found.get_item(&Value::from(name))?,
        };
    }
    Ok(found)
}

fn last(value: Value) -> Result<Value, Error> {
    Ok(iterated(&value)?.pop().unwrap_or_default())
}

fn reverse(value: Value) -> Result<Value, Error> {
    match value.as_str() {
        Some(text) => Ok(Value::from(text.chars().rev().collect::<String>())),
        None => Ok(iterated(&value)?.into_iter().rev().collect()),
    }
}

/// Python orders numbers, strings and sequences, each among themselves.
fn has_order(a: &Value, b: &Value) -> Result<(), Error> {
    let class = |value: &Value| match value.kind() {
        ValueKind::Bool | ValueKind::Number => Some(0),
        ValueKind::String => Some(1),
        ValueKind::Seq | ValueKind::Iterable => Some(2),
        _ => None,
    };
    match (class(a), class(b)) {
        (Some(a), Some(b)) if a == b => Ok(()),
        _ => Err(wrong(format!("{} and {} have no order", a.kind(), b.kind()))),
    }
}

/// The first of the largest or smallest items.
fn extreme(value: &Value, args: Rest<ValueOrKwargs>, wanted: Ordering) -> Result<Value, Error> {
    let args = args.into_values();
    let mut args = Arguments::new(&args);
    let case_sensitive = args.flag("case_sensitive", false)?;
    let attribute = args.next("attribute")?;
    args.end()?;
    let mut best: Option<(Value, Value)> = None;
    for item in iterated(value)? {
        let mut key = match &attribute {
            Some(name) => item.get_item(name)?,
            None => item.clone(),
        };
        if let (Some(text), false) = (key.as_str(), case_sensitive) {
            key = Value::from(text.to_lowercase());
        }
        if let Some((_, best)) = &best {
            has_order(best, &key)?;
        }
        if best
            .as_ref()
            .is_none_or(|(_, best)| key.cmp(best) == wanted)
        {
            best = Some((item, key));
        }
    }
    Ok(best.map_or(Value::UNDEFINED, |(item, _)| item))
}

/// With the keys of dicts in order, as pprint prints them. Lines are not folded.
fn sorted(value: &Value) -> Value {
    let Ok(items) = value.try_iter() else {
        return value.clone();
    };
    match value.kind() {
        ValueKind::Map => {
            let mut keys: Vec<Value> = items.collect();
            keys.sort();
            Value::from_pairs(keys.into_iter().map(|key| {
                let inner = value.get_item(&key).unwrap_or_default();
                (key, sorted(&inner))
            }))
        }
        ValueKind::Seq if !value.is_tuple() => items.map(|item| sorted(&item)).collect(),
        _ => value.clone(),
    }
}

fn replace(
    value: &Value,
    old: &Value,
    new: &Value,
    count: Option<Value>,
    kwargs: Kwargs,
) -> Result<String, Error> {
    let count = argument(count, &kwargs, "count")?
        .filter(|n| !n.is_none())
        .map(i64::try_from)
        .transpose()?;
    kwargs.assert_all_used()?;
    let (value, old, new) = (text(value), text(old), text(new));
    spend(replaced_bytes(&value, &old, &new))?;
    Ok(match count.map(usize::try_from) {
        Some(Ok(n)) => value.replacen(&old, &new, n),
        _ => value.replace(&old, &new),
    })
}

/// An integer stays one where the method is the common one.
fn round(value: Value, args: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let kwargs = named(args, &["precision", "method"])?;
    let method = kwargs.get::<Option<String>>("method")?;
    let whole = value.is_integer() && matches!(method.as_deref(), Some("ceil" | "floor"));
    let value = if whole {
        Value::from(f64::try_from(value)?)
    } else {
        value
    };
    filters::round(value, None, None, kwargs)
}

/// Words begin after white space, and after "-", "(", "{", "[" and "<".
fn title_of_words(source: &str) -> String {
    let begins = |c: char| c.is_whitespace() || matches!(c, '-' | '(' | '{' | '[' | '<');
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while !rest.is_empty() {
        let end = rest.find(begins).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let mut chars = word.chars();
        if let Some(first) = chars.next() {
            out.push_str(&title(&first.to_string()).to_uppercase());
            out.push_str(&chars.as_str().to_lowercase());
        }
        let separators = after.len() - after.trim_start_matches(begins).len();
        out.push_str(&after[..separators]);
        rest = &after[separators..];
    }
    out
}

fn quoted(value: &Value, safe: &str, space: &str) -> String {
    let mut out = String::new();
    for byte in text(value).bytes() {
        match char::from(byte) {
            c if c.is_ascii_alphanumeric() || "_.-~".contains(c) || safe.contains(c) => out.push(c),
            ' ' => out.push_str(space),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

fn urlencode(value: &Value) -> Result<String, Error> {
    let pair = |key: &Value, value: &Value| quoted(key, "", "+") + "=" + &quoted(value, "", "+");
    match value.kind() {
        ValueKind::Map => {
            let keys: Vec<Value> = value.try_iter()?.collect();
            let pairs: Result<Vec<_>, Error> = keys
                .iter()
                .map(|key| Ok(pair(key, &value.get_item(key)?)))
                .collect();
            Ok(pairs?.join("&"))
        }
        ValueKind::Seq | ValueKind::Iterable => {
            let pairs: Result<Vec<_>, Error> = value
                .try_iter()?
                .map(|item| {
                    Ok(pair(
                        &item.get_item_by_index(0)?,
                        &item.get_item_by_index(1)?,
                    ))
                })
                .collect();
            Ok(pairs?.join("&"))
        }
        _ => Ok(quoted(value, "/", "%20")),
    }
}

fn wordcount(value: &Value) -> usize {
    let word = class(r"[\p{L}\p{N}_]");
    let mut inside = false;
    let mut n = 0;
    for c in text(value).chars() {
        let is_word = contains(&word, c);
        n += usize::from(is_word && !inside);
        inside = is_word;
    }
    n
}

fn wrap(value: &Value, args: Rest<ValueOrKwargs>) -> Result<String, Error> {
    let args = args.into_values();
    let mut args = Arguments::new(&args);
    let width = args.number("width")?.unwrap_or(79);
    let break_words = args.flag("break_long_words", true)?;
    let end = args.text("wrapstring")?;
    let on_hyphens = args.flag("break_on_hyphens", true)?;
    args.end()?;
    let width = usize::try_from(width).ok().filter(|width| *width > 0);
    let width = width.ok_or_else(|| wrong("wordwrap: the width must be above 0"))?;
    let lines = wordwrap(&text(value), width, break_words, on_hyphens);
    let end = end.as_deref().unwrap_or("\n");
    spend(lines.len().saturating_mul(end.len()))?;
    Ok(lines.join(end))
}

fn xmlattr(value: &Value, autospace: Option<bool>) -> Result<Value, Error> {
    let mut parts = Vec::new();
    for key in value.try_iter()? {
        let content = value.get_item(&key)?;
        if content.is_none() || content.is_undefined() {
            continue;
        }
        let key = text(&key);
        if key.contains(|c: char| c.is_whitespace() || matches!(c, '/' | '>' | '=')) {
            return Err(wrong(format!(
                "xmlattr: {key:?} is no name of an attribute"
            )));
        }
        parts.push(format!(
            "{}=\"{}\"",
            escape_text(&key),
            escape_text(&text(&content))
        ));
    }
    let space = if autospace.unwrap_or(true) && !parts.is_empty() {
        " "
    } else {
        ""
    };
    Ok(Value::from_safe_string(format!(
        "{space}{}",
        parts.join(" ")
    )))
}

/// dict(mapping or pairs, name=value, ...)
fn dict(from: Option<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let mut pairs = Vec::new();
    if let Some(from) = from {
        for item in from.try_iter()? {
            pairs.push(match from.kind() {
                ValueKind::Map => (item.clone(), from.get_item(&item)?),
                _ if iterated(&item)?.len() != 2 => return Err(wrong("dict: an item is no pair")),
                _ => (item.get_item_by_index(0)?, item.get_item_by_index(1)?),
            });
        }
    }
    for name in kwargs.args() {
        pairs.push((Value::from(name), kwargs.get::<Value>(name)?));
    }
    Ok(Value::from_pairs(pairs))
}
