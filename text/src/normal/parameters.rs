//! The arguments of a call as Qwen's XML format writes them: <parameter=name>value</parameter>, strings as they are.

use serde_json::{Map, Value};

use super::lark::{quoted, Lark};
use super::path::Path;
use crate::error::{Result, Status};

const END: &str = "\n</parameter>";

/// Properties in the order of the schema.
pub fn add(lark: &mut Lark, schema: &Value, at: &Path) -> Result<String> {
    const KNOWN: [&str; 10] = [
        "type",
        "properties",
        "required",
        "additionalProperties",
        "title",
        "description",
        "$schema",
        "strict",
        "$defs",
        "definitions",
    ];
    let Some(map) = schema.as_object() else {
        return at.invalid("not an object");
    };
    let unknown = map.keys().find(|k| !KNOWN.contains(&k.as_str()));
    if let Some(key) = unknown {
        return Err(at
            .key(key)
            .error(Status::Unsupported, "is not supported in this format"));
    }
    let required = map.get("required").and_then(Value::as_array);
    let properties = map.get("properties").and_then(Value::as_object);
    let mut parts = Vec::new();
    let properties_at = at.key("properties");
    for (name, value) in properties.into_iter().flatten() {
        let at = properties_at.key(name);
        if name.is_empty() || name.chars().any(|c| c.is_control() || c == '>' || c == '<') {
            return at.invalid("the name cannot stand in a tag");
        }
        let begin = quoted(&format!("<parameter={name}>\n"));
        let is_text = value.get("type").is_some_and(|t| t == "string");
        let value = match is_text {
            true => text(lark, value, &at)?,
            false => {
                let whole = with_definitions(value, map);
                format!("{} {}", lark.schema(&whole, &at)?, quoted(END))
            }
        };
        let part = lark.rule(&format!("{begin} {value} \"\\n\"?"));
        let is_required = required.is_some_and(|r| r.iter().any(|r| r == name));
        parts.push(if is_required {
            part
        } else {
            format!("{part}?")
        });
    }
    Ok(match parts.is_empty() {
        true => String::new(),
        false => lark.rule(&parts.join(" ")),
    })
}

/// References lead to the definitions of the whole schema.
fn with_definitions(value: &Value, parent: &Map<String, Value>) -> Value {
    let mut out = value.clone();
    if let Some(map) = out.as_object_mut() {
        for key in ["$defs", "definitions"] {
            if let (Some(definitions), false) = (parent.get(key), map.contains_key(key)) {
                map.insert(key.to_string(), definitions.clone());
            }
        }
    }
    out
}

/// A string without quotes, up to the end of its parameter.
fn text(lark: &mut Lark, schema: &Value, at: &Path) -> Result<String> {
    let map = schema.as_object().into_iter().flatten();
    let mut choices = None;
    for (key, value) in map {
        match (key.as_str(), value) {
            ("type" | "title" | "description" | "default" | "examples", _) => (),
            ("enum", Value::Array(list)) => choices = Some(list.as_slice()),
            ("const", value) => choices = Some(std::slice::from_ref(value)),
            (key, _) => {
                let why = "is not supported for a string in this format";
                return Err(at.key(key).error(Status::Unsupported, why));
            }
        }
    }
    let Some(choices) = choices else {
        return Ok(lark.text_up_to(&[END], &[]));
    };
    let choices: Vec<String> = choices
        .iter()
        .filter_map(Value::as_str)
        .map(|c| quoted(&format!("{c}{END}")))
        .collect();
    match choices.is_empty() {
        true => at.invalid("no value is a string"),
        false => Ok(format!("({})", choices.join(" | "))),
    }
}
