//! The arguments of a call outside JSON: with a tag for each (Qwen's XML, GLM), and as keywords of Python.

use serde_json::{Map, Value};

use super::lark::{quoted, Lark};
use super::path::Path;
use super::words::Words;
use crate::error::{Result, Status};

/// How an argument is written: open NAME shut VALUE close after. A string is written as it is.
pub struct Tags {
    open: &'static str,
    shut: &'static str,
    close: &'static str,
    after: &'static str,
    /// The text that ends a value for who reads it.
    excluded: &'static str,
    /// A value of unknown type is a string.
    is_text: bool,
}

pub const QWEN: Tags = Tags {
    open: "<parameter=",
    shut: ">\n",
    close: "\n</parameter>",
    after: "\n",
    excluded: "</parameter>",
    is_text: true,
};
pub const GLM: Tags = Tags {
    open: "<arg_key>",
    shut: "</arg_key>\n<arg_value>",
    close: "</arg_value>",
    after: "\n",
    excluded: "</arg_value>",
    is_text: false,
};

/// The keywords of the schema of arguments that these formats can express.
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

/// A property, its schema, and whether it is required.
type Property<'a> = (&'a str, &'a Value, bool);

fn properties<'a>(schema: &'a Value, at: &Path) -> Result<Vec<Property<'a>>> {
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
    let required: Vec<&str> = required
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let properties = map.get("properties").and_then(Value::as_object);
    let has = |name: &str| properties.is_some_and(|p| p.contains_key(name));
    if let Some(name) = required.iter().find(|name| !has(name)) {
        let why = format!("{name:?} is not one of properties");
        return Err(at.key("required").error(Status::Unsupported, why));
    }
    let of = |(name, value): (&'a String, &'a Value)| {
        (name.as_str(), value, required.contains(&name.as_str()))
    };
    Ok(properties.into_iter().flatten().map(of).collect())
}

/// Properties in the order of the schema.
pub fn add(
    lark: &mut Lark,
    words: &Words,
    tags: &Tags,
    schema: &Value,
    at: &Path,
) -> Result<String> {
    let map = schema.as_object();
    let mut parts = Vec::new();
    let properties_at = at.key("properties");
    for (name, value, is_required) in properties(schema, at)? {
        let at = properties_at.key(name);
        if name.is_empty() || name.chars().any(|c| c.is_control() || c == '>' || c == '<') {
            return at.invalid("the name cannot stand in a tag");
        }
        let begin = words.literal(&format!("{}{name}{}", tags.open, tags.shut));
        let value = match is_text(value, tags.is_text) {
            true => text(lark, words, tags, value, &at)?,
            false => {
                let whole = with_definitions(value, map);
                format!("{} {}", lark.schema(&whole, &at)?, words.literal(tags.close))
            }
        };
        let part = lark.rule(&format!("{begin} {value} {}?", quoted(tags.after)));
        parts.push(match is_required {
            true => part,
            false => format!("{part}?"),
        });
    }
    Ok(match parts.is_empty() {
        true => String::new(),
        false => lark.rule(&parts.join(" ")),
    })
}

/// References lead to the definitions of the whole schema.
fn with_definitions(value: &Value, parent: Option<&Map<String, Value>>) -> Value {
    let mut out = value.clone();
    if let Some(map) = out.as_object_mut() {
        for key in ["$defs", "definitions"] {
            let definitions = parent.and_then(|p| p.get(key));
            if let (Some(definitions), false) = (definitions, map.contains_key(key)) {
                map.insert(key.to_string(), definitions.clone());
            }
        }
    }
    out
}

/// Whether the parser of calls reads the value as a string (server/front/tools/tool_tagged.c).
fn is_text(schema: &Value, otherwise: bool) -> bool {
    match (schema.get("type"), schema.get("enum")) {
        (Some(Value::String(name)), _) => name == "string",
        (Some(Value::Array(names)), _) => names.iter().any(|name| name == "string"),
        (_, Some(Value::Array(choices))) if !choices.is_empty() => choices[0].is_string(),
        _ => otherwise && schema.as_object().is_none_or(Map::is_empty),
    }
}

/// A string without quotes, up to the end of its parameter.
fn text(
    lark: &mut Lark,
    words: &Words,
    tags: &Tags,
    schema: &Value,
    at: &Path,
) -> Result<String> {
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
        return Ok(words.text_up_to(lark, tags.close, &[tags.excluded]));
    };
    let choices: Vec<String> = choices
        .iter()
        .filter_map(Value::as_str)
        .filter(|c| !c.contains(tags.excluded))
        .map(|c| words.literal(&format!("{c}{}", tags.close)))
        .collect();
    match choices.is_empty() {
        true => at.invalid("no value is a string"),
        false => Ok(format!("({})", choices.join(" | "))),
    }
}

/// Arguments by keyword, in the order of the schema, with commas between them.
pub fn python(lark: &mut Lark, schema: &Value, at: &Path) -> Result<String> {
    let map = schema.as_object();
    let properties_at = at.key("properties");
    let mut items = Vec::new();
    for (name, value, is_required) in properties(schema, at)? {
        let at = properties_at.key(name);
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return at.invalid("the name cannot be a keyword of Python");
        }
        let value = match value.as_object().filter(|v| !v.contains_key("enum") && !v.contains_key("const")) {
            Some(v) if v.get("type").is_some_and(|t| t == "boolean") => "(\"True\" | \"False\")".to_string(),
            Some(v) if v.get("type").is_some_and(|t| t == "null") => "\"None\"".to_string(),
            _ => lark.schema(&with_definitions(value, map), &at)?,
        };
        items.push((lark.rule(&format!("{} {value}", quoted(&format!("{name}=")))), is_required));
    }
    // From the last to the first: what may follow an argument, and what may begin here.
    let (mut follows, mut begins) = (String::new(), String::new());
    for (item, is_required) in items.iter().rev() {
        let more = format!("\", \" {item} {follows}");
        let one = format!("{item} {follows}");
        (follows, begins) = match is_required {
            true => (lark.rule(&more), lark.rule(&one)),
            false => (
                lark.rule(&either(&more, &follows)),
                lark.rule(&either(&one, &begins)),
            ),
        };
    }
    Ok(begins)
}

fn either(one: &str, other: &str) -> String {
    let other = if other.is_empty() { "\"\"" } else { other };
    format!("{one} | {other}")
}

/// Any arguments by keyword.
pub fn any_python(lark: &mut Lark) -> Result<String> {
    let value = lark.schema(&Value::Bool(true), &Path::Root)?;
    let item = lark.rule(&format!("/[A-Za-z_][A-Za-z0-9_]*/ \"=\" {value}"));
    Ok(format!("({item} (\", \" {item})*)?"))
}
