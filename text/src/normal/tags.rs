//! Structural tags of vLLM and xgrammar: free text in which certain texts open a part with a grammar.

use serde_json::{json, Map, Value};

use super::lark::{quoted, Lark};
use super::path::Path;
use super::words::Words;
use super::{any_object, gbnf, parameters};
use crate::error::{Error, Result, Status};

const MAX_DEPTH: usize = 24;
const MAX_TAGS: usize = 1000;

/// The successor of a part. It ends free text.
#[derive(Clone, Copy)]
enum Next<'a> {
    /// The end of the answer.
    End,
    /// One of these literals, which the part takes with it if it is free text.
    Literals(&'a [&'a str]),
    /// Something whose first bytes are not known.
    Unknown,
}

struct Tag<'a> {
    begin: &'a str,
    content: Content<'a>,
    ends: Vec<&'a str>,
}

enum Content<'a> {
    Schema(Option<&'a Value>),
    Format(&'a Value),
}

pub fn add(lark: &mut Lark, value: &Value) -> Result<String> {
    let root = Path::Root;
    let Some(map) = value.as_object() else {
        return root.invalid("not an object");
    };
    if let Some(format) = map.get("format") {
        return Ok(compile(lark, format, &root.key("format"), Next::End, 0)?.text);
    }
    let structures = map.get("structures").or_else(|| map.get("tags"));
    let Some(structures) = structures else {
        return root.invalid("needs \"format\", or \"structures\" and \"triggers\"");
    };
    let at = root.key("structures");
    let mut tags = Vec::new();
    for (i, tag) in list(structures, &at)?.iter().enumerate() {
        let at = at.item(i);
        let schema = tag.get("schema");
        tags.push(Tag {
            begin: string(tag, "begin", &at)?,
            content: Content::Schema(schema),
            ends: vec![string(tag, "end", &at)?],
        });
    }
    let at = root.key("triggers");
    let triggers = strings(map.get("triggers").unwrap_or(&Value::Null), &at)?;
    triggered(lark, &tags, &triggers, &at, &[], Next::End, 0)
}

/// An expression, and whether it took the literal that follows it.
struct Part {
    text: String,
    took_next: bool,
}

impl Part {
    fn of(text: String) -> Part {
        Part {
            text,
            took_next: false,
        }
    }
}

fn compile(lark: &mut Lark, format: &Value, at: &Path, next: Next, depth: usize) -> Result<Part> {
    if depth > MAX_DEPTH {
        return at.invalid(format!("formats are nested deeper than {MAX_DEPTH}"));
    }
    let Some(map) = format.as_object() else {
        return at.invalid("a format is an object");
    };
    let get = |key: &str| map.get(key).unwrap_or(&Value::Null);
    let kind = map.get("type").and_then(Value::as_str).unwrap_or_default();
    Ok(match kind {
        "const_string" => match string(format, "value", at)? {
            "" => Part::of(String::new()),
            text => Part::of(quoted(text)),
        },
        "json_schema" => {
            let at = at.key("json_schema");
            let style = map.get("style").and_then(Value::as_str).unwrap_or("json");
            match style {
                "json" => Part::of(lark.schema(get("json_schema"), &at)?),
                "qwen_xml" => Part::of(qwen(lark, get("json_schema"), &at)?),
                other => return unsupported(&at, &format!("the style {other:?}")),
            }
        }
        "qwen_xml_parameter" => {
            let at = at.key("json_schema");
            Part::of(qwen(lark, get("json_schema"), &at)?)
        }
        "any_text" => any_text(lark, map, at, next)?,
        "regex" => {
            let text = string(format, "pattern", at)?;
            Part::of(
                lark.regex(text)
                    .map_err(|e| at.key("pattern").error(e.status, e.text))?,
            )
        }
        "grammar" => {
            let text = string(format, "grammar", at)?;
            let at = at.key("grammar");
            Part::of(gbnf::add(lark, text).map_err(|e| at.error(e.status, e.text))?)
        }
        "sequence" => sequence(lark, get("elements"), &at.key("elements"), next, depth)?,
        "or" => {
            let at = at.key("elements");
            let mut options = Vec::new();
            for (i, element) in some(get("elements"), &at)?.iter().enumerate() {
                let part = compile(lark, element, &at.item(i), Next::Unknown, depth + 1)?;
                options.push(if part.text.is_empty() {
                    "\"\"".to_string()
                } else {
                    part.text
                });
            }
            Part::of(lark.rule(&options.join(" | ")))
        }
        "tag" => Part::of(one_tag(lark, &tag(format, at)?, 0, at, depth)?),
        "triggered_tags" => {
            let tags = tags_of(get("tags"), &at.key("tags"))?;
            let triggers_at = at.key("triggers");
            let triggers = strings(get("triggers"), &triggers_at)?;
            let excludes = excludes(map, at)?;
            if !matches!(next, Next::End) {
                return unsupported(at, "triggered_tags before the end of the answer");
            }
            let options = Options::of(map);
            let text = triggered_with(
                lark,
                &tags,
                &triggers,
                &triggers_at,
                &excludes,
                options,
                depth,
            )?;
            Part::of(text)
        }
        "tags_with_separator" => {
            let tags_at = at.key("tags");
            let tags = tags_of(get("tags"), &tags_at)?;
            let separator = string(format, "separator", at)?;
            separated(lark, &tags, separator, Options::of(map), &tags_at, depth)?
        }
        other => return unsupported(at, &format!("the format type {other:?}")),
    })
}

/// Arguments with the tags of Qwen's XML.
fn qwen(lark: &mut Lark, schema: &Value, at: &Path) -> Result<String> {
    parameters::add(lark, &Words::default(), &parameters::QWEN, schema, at)
}

fn unsupported<T>(at: &Path, what: &str) -> Result<T> {
    Err(at.error(Status::Unsupported, format!("{what} is not supported")))
}

#[derive(Clone, Copy)]
struct Options {
    at_least_one: bool,
    stop_after_first: bool,
}

impl Options {
    fn of(map: &Map<String, Value>) -> Options {
        let flag = |key: &str| map.get(key) == Some(&json!(true));
        Options {
            at_least_one: flag("at_least_one"),
            stop_after_first: flag("stop_after_first"),
        }
    }
}

fn any_text(lark: &mut Lark, map: &Map<String, Value>, at: &Path, next: Next) -> Result<Part> {
    let excluded = excludes(map, at)?;
    match next {
        Next::End => Ok(Part::of(lark.text_without(&excluded))),
        Next::Literals(ends) if !ends.is_empty() && ends.iter().all(|e| !e.is_empty()) => {
            Ok(Part {
                text: lark.text_up_to(ends, &excluded),
                took_next: true,
            })
        }
        _ => unsupported(at, "any_text before a part without a fixed beginning"),
    }
}

fn excludes<'a>(map: &'a Map<String, Value>, at: &Path) -> Result<Vec<&'a str>> {
    match map.get("excludes") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(list) => strings(list, &at.key("excludes")),
    }
}

fn sequence(
    lark: &mut Lark,
    elements: &Value,
    at: &Path,
    next: Next,
    depth: usize,
) -> Result<Part> {
    let elements = some(elements, at)?;
    let mut parts = Vec::new();
    let mut took = false;
    for (i, element) in elements.iter().enumerate() {
        let here = at.item(i);
        // The literal at the start of the next element ends free text, and is then part of it.
        let first = elements.get(i + 1).map(first_literal);
        let literals;
        let follows = match first {
            None => next,
            Some(Some(literal)) => {
                literals = [literal];
                Next::Literals(&literals)
            }
            Some(None) => Next::Unknown,
        };
        let part = match (took, element.get("type").and_then(Value::as_str)) {
            (true, Some("const_string")) => Part::of(String::new()),
            (true, _) => {
                let tag = tag(element, &here)?;
                Part::of(one_tag(lark, &tag, tag.begin.len(), &here, depth + 1)?)
            }
            _ => compile(lark, element, &here, follows, depth + 1)?,
        };
        took = part.took_next;
        parts.push(part.text);
    }
    parts.retain(|p| !p.is_empty());
    let text = match parts.len() {
        0 => String::new(),
        _ => lark.rule(&parts.join(" ")),
    };
    Ok(Part {
        text,
        took_next: took,
    })
}

fn first_literal(format: &Value) -> Option<&str> {
    let key = match format.get("type")?.as_str()? {
        "const_string" => "value",
        "tag" => "begin",
        _ => return None,
    };
    format.get(key)?.as_str().filter(|l| !l.is_empty())
}

fn tag<'a>(format: &'a Value, at: &Path) -> Result<Tag<'a>> {
    let ends = match format.get("end") {
        Some(Value::Array(_)) => strings(&format["end"], &at.key("end"))?,
        _ => vec![string(format, "end", at)?],
    };
    let Some(content) = format.get("content") else {
        return at.key("content").invalid("is missing");
    };
    Ok(Tag {
        begin: string(format, "begin", at)?,
        content: Content::Format(content),
        ends,
    })
}

fn tags_of<'a>(value: &'a Value, at: &Path) -> Result<Vec<Tag<'a>>> {
    let list = some(value, at)?;
    list.iter()
        .enumerate()
        .map(|(i, t)| tag(t, &at.item(i)))
        .collect()
}

/// A tag without the first bytes of its begin.
fn one_tag(lark: &mut Lark, tag: &Tag, skip: usize, at: &Path, depth: usize) -> Result<String> {
    let mut parts = Vec::new();
    if let Some(begin) = tag.begin.get(skip..).filter(|b| !b.is_empty()) {
        parts.push(quoted(begin));
    }
    let content = match tag.content {
        Content::Schema(schema) => {
            let any = any_object();
            let schema = schema.filter(|s| !s.is_null()).unwrap_or(&any);
            Part::of(lark.schema(schema, &at.key("schema"))?)
        }
        Content::Format(format) => {
            let ends: Vec<&str> = tag.ends.iter().copied().filter(|e| !e.is_empty()).collect();
            let next = match ends.len() == tag.ends.len() {
                true => Next::Literals(&ends),
                false => Next::Unknown,
            };
            compile(lark, format, &at.key("content"), next, depth + 1)?
        }
    };
    parts.push(content.text);
    if !content.took_next {
        let ends: Vec<String> = tag.ends.iter().map(|e| quoted(e)).collect();
        match &ends[..] {
            [one] if one == "\"\"" => (),
            [one] => parts.push(one.clone()),
            many => parts.push(format!("({})", many.join(" | "))),
        }
    }
    parts.retain(|p| !p.is_empty());
    Ok(lark.rule(&parts.join(" ")))
}

fn triggered(
    lark: &mut Lark,
    tags: &[Tag],
    triggers: &[&str],
    at: &Path,
    excludes: &[&str],
    _next: Next,
    depth: usize,
) -> Result<String> {
    let options = Options {
        at_least_one: false,
        stop_after_first: false,
    };
    triggered_with(lark, tags, triggers, at, excludes, options, depth)
}

/// Free text; after a trigger, one of the tags that begin with it.
fn triggered_with(
    lark: &mut Lark,
    tags: &[Tag],
    triggers: &[&str],
    at: &Path,
    excludes: &[&str],
    options: Options,
    depth: usize,
) -> Result<String> {
    if triggers.is_empty() || triggers.iter().any(|t| t.is_empty()) || triggers.len() > 100 {
        return at.invalid("not 1 to 100 texts that are not empty");
    }
    let mut groups: Vec<Vec<String>> = vec![Vec::new(); triggers.len()];
    for (i, tag) in tags.iter().enumerate() {
        // Text stops at the first trigger that is complete: the shortest.
        let of = (0..triggers.len()).filter(|t| tag.begin.starts_with(triggers[*t]));
        let Some(of) = of.min_by_key(|t| triggers[*t].len()) else {
            return at.invalid(format!(
                "the begin of tag {i} starts with none of the triggers"
            ));
        };
        let place = Path::Root;
        let place = place.key("tags");
        groups[of].push(one_tag(
            lark,
            tag,
            triggers[of].len(),
            &place.item(i),
            depth + 1,
        )?);
    }
    let all: Vec<&str> = triggers.iter().chain(excludes).copied().collect();
    let mut options_of = Vec::new();
    for (trigger, group) in triggers.iter().zip(groups) {
        if !group.is_empty() {
            let text = lark.text_up_to(&[trigger], &all);
            let rest = lark.rule(&group.join(" | "));
            options_of.push(format!("{text} {rest}"));
        }
    }
    let any = lark.rule(&options_of.join(" | "));
    let rest = lark.text_without(&all);
    Ok(match (options.at_least_one, options.stop_after_first) {
        (true, true) => any,
        (false, true) => format!("({any} | {rest})"),
        (true, false) => format!("{any}+ {rest}"),
        (false, false) => format!("{any}* {rest}"),
    })
}

fn separated(
    lark: &mut Lark,
    tags: &[Tag],
    separator: &str,
    options: Options,
    at: &Path,
    depth: usize,
) -> Result<Part> {
    let mut choices = Vec::new();
    for (i, tag) in tags.iter().enumerate() {
        choices.push(one_tag(lark, tag, 0, &at.item(i), depth + 1)?);
    }
    let one = lark.rule(&choices.join(" | "));
    let many = match options.stop_after_first {
        true => one,
        false if separator.is_empty() => format!("{one}+"),
        false => format!("{one} ({} {one})*", quoted(separator)),
    };
    Ok(Part::of(match options.at_least_one {
        true => format!("({many})"),
        false => format!("({many})?"),
    }))
}

fn list<'a>(value: &'a Value, at: &Path) -> Result<&'a Vec<Value>> {
    match value.as_array() {
        Some(list) if list.len() <= MAX_TAGS => Ok(list),
        Some(list) => at.invalid(format!("has {} items; the limit is {MAX_TAGS}", list.len())),
        None => at.invalid("not an array"),
    }
}

fn some<'a>(value: &'a Value, at: &Path) -> Result<&'a Vec<Value>> {
    let list = list(value, at)?;
    match list.is_empty() {
        true => at.invalid("the array is empty"),
        false => Ok(list),
    }
}

fn strings<'a>(value: &'a Value, at: &Path) -> Result<Vec<&'a str>> {
    let text = |(i, item): (usize, &'a Value)| -> Result<&'a str> {
        item.as_str().ok_or_else(|| not_a_string(&at.item(i)))
    };
    list(value, at)?.iter().enumerate().map(text).collect()
}

fn not_a_string(at: &Path) -> Error {
    at.error(Status::Invalid, "not a string")
}

fn string<'a>(value: &'a Value, key: &str, at: &Path) -> Result<&'a str> {
    match value.get(key) {
        Some(Value::String(text)) => Ok(text),
        _ => Err(not_a_string(&at.key(key))),
    }
}
