//! Tool calls: literal texts and schemas, repeated. Forced, or in free text.

use serde_json::{Map, Value};

use super::lark::Lark;
use super::path::Path;
use super::words::Words;
use super::{any_object, literals, parameters};
use crate::error::Result;

const MAX_CALLS: usize = 1000;

/// How the calls stand in the answer.
struct List<'a> {
    words: Words<'a>,
    before: &'a str,
    between: &'a str,
    after: &'a str,
    at_most: Option<u64>,
}

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
    let text = |key: &str| string(map.get(key), &root.key(key));
    let list = List {
        words: Words::of(map.get("specials"), &root.key("specials"))?,
        before: text("before")?,
        between: text("between")?,
        after: text("after")?,
        at_most: match map.get("at_most") {
            None | Some(Value::Null) => None,
            Some(n) => Some(literals::count(n, &root.key("at_most"))?),
        },
    };
    if list.at_most == Some(0) {
        return root.key("at_most").invalid("must be 1 or more");
    }
    match map.get("trigger") {
        None | Some(Value::Null) => forced(lark, &list, calls, &at),
        Some(trigger) => free(lark, &list, calls, string(Some(trigger), &root.key("trigger"))?, map, &at),
    }
}

fn forced(lark: &mut Lark, list: &List, calls: &[Value], at: &Path) -> Result<String> {
    let any = any_of(lark, list, calls, 0, at)?;
    Ok(join(&[
        &list.words.literal(list.before),
        &any,
        &more(list, &any),
        &list.words.literal(list.after),
    ]))
}

/// Further calls.
fn more(list: &List, any: &str) -> String {
    let next = join(&[&list.words.literal(list.between), any]);
    match list.at_most {
        Some(1) => String::new(),
        Some(n) if n <= MAX_CALLS as u64 => format!("({next}){{0,{}}}", n - 1),
        _ => format!("({next})*"),
    }
}

/// Free text in which the trigger begins calls. Without a trigger, an answer that begins with the first character of a
/// call, or with the text `lead`, consists of calls.
fn free(
    lark: &mut Lark,
    list: &List,
    calls: &[Value],
    trigger: &str,
    map: &Map<String, Value>,
    at: &Path,
) -> Result<String> {
    let root = Path::Root;
    if trigger.is_empty() {
        let any = any_of(lark, list, calls, 0, at)?;
        let block = join(&[
            &list.words.literal(list.before),
            &any,
            &more(list, &any),
            &list.words.literal(list.after),
        ]);
        let first = string(map.get("first"), &root.key("first"))?;
        let lead = string(map.get("lead"), &root.key("lead"))?;
        let text = lark.text_not_from(first, lead);
        return Ok(format!("({block} | {text})"));
    }
    let text = list.words.text_up_to(lark, trigger, &[]);
    let rest = lark.text_without(&[trigger]);
    let block = match list.before.strip_prefix(trigger) {
        Some(before) => {
            let any = any_of(lark, list, calls, 0, at)?;
            let parts = [
                &text,
                &list.words.literal(before),
                &any,
                &more(list, &any),
                &list.words.literal(list.after),
            ];
            return Ok(format!("({})? {rest}", join(&parts.map(String::as_str))));
        }
        None => join(&[&text, &any_of(lark, list, calls, trigger.len(), at)?]),
    };
    Ok(match list.at_most {
        Some(1) => format!("({block})? {rest}"),
        _ => format!("({block})* {rest}"),
    })
}

fn join(parts: &[&str]) -> String {
    let parts: Vec<&str> = parts.iter().copied().filter(|p| !p.is_empty()).collect();
    parts.join(" ")
}

/// A rule for one call, without the first `skip` bytes of its begin.
fn any_of(lark: &mut Lark, list: &List, calls: &[Value], skip: usize, at: &Path) -> Result<String> {
    let mut begins = Vec::new();
    let mut options = Vec::new();
    for (i, call) in calls.iter().enumerate() {
        options.push(one(lark, &list.words, call, &at.item(i), skip, &mut begins)?);
    }
    Ok(lark.rule(&options.join(" | ")))
}

fn one<'a>(
    lark: &mut Lark,
    words: &Words,
    call: &'a Value,
    at: &Path,
    skip: usize,
    begins: &mut Vec<&'a str>,
) -> Result<String> {
    let name = string(call.get("name"), &at.key("name"))?;
    if name.chars().any(char::is_control) {
        return at.key("name").invalid("has a control character");
    }
    let begin = string(call.get("begin"), &at.key("begin"))?;
    if begin.is_empty() || begin.get(skip..).is_none_or(str::is_empty) {
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
    // A number that the model chooses, and the text behind it.
    let number = match string(call.get("numbered"), &at.key("numbered"))? {
        "" => String::new(),
        text => format!("/[0-9]{{1,4}}/ {}", words.literal(text)),
    };
    let (arguments, took_end) = arguments(lark, words, call, at)?;
    let end = match took_end {
        true => String::new(),
        false => words.literal(string(call.get("end"), &at.key("end"))?),
    };
    Ok(join(&[&words.literal(&begin[skip..]), &number, &arguments, &end]))
}

/// The arguments, and whether they include the end of the call.
fn arguments(lark: &mut Lark, words: &Words, call: &Value, at: &Path) -> Result<(String, bool)> {
    let style = string(call.get("style"), &at.key("style"))?;
    let schema_at = at.key("schema");
    let any = any_object();
    let schema = call.get("schema").filter(|s| !s.is_null());
    let is_loose = schema.is_none() && call.get("loose") == Some(&Value::Bool(true));
    let schema = schema.unwrap_or(&any);
    Ok(match style {
        "" => (lark.schema(schema, &schema_at)?, false),
        "qwen" | "glm" if is_loose => {
            let end = string(call.get("end"), &at.key("end"))?;
            (words.text_up_to(lark, end, &[]), true)
        }
        "qwen" => (
            parameters::add(lark, words, &parameters::QWEN, schema, &schema_at)?,
            false,
        ),
        "glm" => (
            parameters::add(lark, words, &parameters::GLM, schema, &schema_at)?,
            false,
        ),
        "python" if is_loose => (parameters::any_python(lark)?, false),
        "python" => (parameters::python(lark, schema, &schema_at)?, false),
        other => return at.key("style").invalid(format!("{other:?} does not exist")),
    })
}

fn string<'a>(value: Option<&'a Value>, at: &Path) -> Result<&'a str> {
    match value {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text),
        Some(_) => at.invalid("not a string"),
    }
}
