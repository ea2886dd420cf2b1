//! Required tool calls: literal texts and schemas, repeated.

use serde_json::Value;

use super::lark::{quoted, Lark};
use super::path::Path;
use super::{any_object, literals};
use crate::error::Result;

const MAX_CALLS: usize = 1000;

pub fn add(lark: &mut Lark, value: &Value) -> Result<String> {
    let root = Path::Root;
    let Some(map) = value.as_object() else {
        return root.invalid("not an object");
    };
    let at = root.key("calls");
    let calls = match map.get("calls").and_then(Value::as_array) {
        Some(calls) if !calls.is_empty() && calls.len() <= MAX_CALLS => calls,
        _ => return at.invalid(format!("not an array of 1 to {MAX_CALLS} calls")),
    };
    let mut begins = Vec::new();
    let mut options = Vec::new();
    for (i, call) in calls.iter().enumerate() {
        options.push(one(lark, call, &at.item(i), &mut begins)?);
    }
    let any = lark.rule(&options.join(" | "));
    let literal = |key: &str| -> Result<String> {
        let text = string(map.get(key), &root.key(key))?;
        Ok(if text.is_empty() {
            String::new()
        } else {
            quoted(text)
        })
    };
    let (before, between, after) = (literal("before")?, literal("between")?, literal("after")?);
    let most = match map.get("at_most") {
        None | Some(Value::Null) => None,
        Some(n) => Some(literals::count(n, &root.key("at_most"))?),
    };
    let more = match most {
        Some(0) => return root.key("at_most").invalid("must be 1 or more"),
        Some(1) => String::new(),
        Some(n) if n > MAX_CALLS as u64 => format!("({between} {any})*"),
        Some(n) => format!("({between} {any}){{0,{}}}", n - 1),
        None => format!("({between} {any})*"),
    };
    let parts = [before, any, more, after];
    let parts: Vec<&str> = parts
        .iter()
        .map(String::as_str)
        .filter(|p| !p.is_empty())
        .collect();
    Ok(parts.join(" "))
}

fn one<'a>(
    lark: &mut Lark,
    call: &'a Value,
    at: &Path,
    begins: &mut Vec<&'a str>,
) -> Result<String> {
    let name = string(call.get("name"), &at.key("name"))?;
    if name.chars().any(char::is_control) {
        return at.key("name").invalid("has a control character");
    }
    let begin = string(call.get("begin"), &at.key("begin"))?;
    let end = string(call.get("end"), &at.key("end"))?;
    if begin.is_empty() {
        return at.key("begin").invalid("is empty");
    }
    // Literals are matched to their longest: a shorter one could never be chosen.
    let hidden = |b: &&str| *b != begin && (b.starts_with(begin) || begin.starts_with(*b));
    if begins.iter().any(hidden) {
        return at
            .key("begin")
            .invalid("is the beginning of another, or has another as its beginning");
    }
    begins.push(begin);
    let schema_at = at.key("schema");
    let value = match call.get("schema") {
        None | Some(Value::Null) => lark.schema(&any_object(), &schema_at)?,
        Some(schema) => lark.schema(schema, &schema_at)?,
    };
    let end = if end.is_empty() {
        String::new()
    } else {
        format!(" {}", quoted(end))
    };
    Ok(format!("{} {value}{end}", quoted(begin)))
}

fn string<'a>(value: Option<&'a Value>, at: &Path) -> Result<&'a str> {
    match value {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text),
        Some(_) => at.invalid("not a string"),
    }
}
