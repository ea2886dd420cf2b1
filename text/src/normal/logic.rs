//! `oneOf` and `not`, which llguidance does not enforce, as what it does: unions and intersections.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};

use serde_json::{json, Map, Value};

use super::facts::{self, Facts};
use super::literals::canonical;
use super::negation::negate;
use super::path::Path;
use super::patterns;
use crate::error::{Error, Result};

/// Comparisons of two schemas.
const MAX_COMPARISONS: usize = 1_000_000;

/// Pairs of branches of oneOf, each of which takes the complement of the other.
const MAX_OVERLAPS: usize = 1000;

/// Keywords and characters of complements.
const MAX_NEGATED: usize = 50_000;

/// All the definitions of a schema, while their logic is still in place.
pub struct Known<'a> {
    definitions: &'a [Value],
    left: Cell<usize>,
    overlaps: Cell<usize>,
    negated: Cell<usize>,
}

impl<'a> Known<'a> {
    pub fn of(definitions: &'a [Value]) -> Known<'a> {
        Known {
            definitions,
            left: Cell::new(MAX_COMPARISONS),
            overlaps: Cell::new(0),
            negated: Cell::new(0),
        }
    }

    /// Returns false if the budget is spent.
    pub fn spend(&self) -> bool {
        let left = self.left.get();
        self.left.set(left.saturating_sub(1));
        left > 0
    }

    /// Counts two branches of a oneOf that may both match. Returns false if there are too many.
    fn overlap(&self) -> bool {
        self.overlaps.set(self.overlaps.get() + 1);
        self.overlaps.get() <= MAX_OVERLAPS
    }

    /// Counts parts of complements. Returns false if there are too many.
    pub fn negate(&self, n: usize) -> bool {
        self.negated.set(self.negated.get() + n);
        self.negated.get() <= MAX_NEGATED
    }

    pub fn definition(&self, reference: &Value) -> Option<&'a Value> {
        let number = reference.as_str()?.strip_prefix("#/$defs/d")?;
        self.definitions.get(number.parse::<usize>().ok()?)
    }
}

pub fn is_true(schema: &Value) -> bool {
    schema == &json!(true) || schema.as_object().is_some_and(Map::is_empty)
}

pub fn json_depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(json_depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(json_depth).max().unwrap_or(0),
        _ => 1,
    }
}

/// Keywords that have a meaning only together.
const OBJECTS: [&str; 3] = ["properties", "patternProperties", "additionalProperties"];
const ARRAYS: [&str; 2] = ["prefixItems", "items"];

fn mergeable(a: &Map<String, Value>, b: &Map<String, Value>) -> bool {
    let both = |group: &[&str]| {
        group.iter().any(|k| a.contains_key(*k)) && group.iter().any(|k| b.contains_key(*k))
    };
    // The inner part of a list of parts stays one, so that no logic loses its path.
    let apart = |m: &Map<String, Value>| m.contains_key("$at") || m.contains_key("allOf");
    !apart(a)
        && !apart(b)
        && !both(&OBJECTS)
        && !both(&ARRAYS)
        && !b.keys().any(|k| a.contains_key(k))
}

/// Each part of a list is compared with the parts before it only up to this many.
const MAX_COMPARED: usize = 100;

/// The schema of values that satisfy all.
pub fn all_of(schemas: Vec<Value>) -> Value {
    let mut parts: Vec<Value> = Vec::new();
    let mut flat = Vec::new();
    for schema in schemas {
        match schema {
            Value::Object(mut map) if map.len() == 1 && map.contains_key("allOf") => {
                if let Some(Value::Array(inner)) = map.remove("allOf") {
                    flat.extend(inner);
                }
            }
            schema => flat.push(schema),
        }
    }
    for schema in flat {
        if schema == json!(false) {
            return schema;
        }
        if is_true(&schema) || parts.len() < MAX_COMPARED && parts.contains(&schema) {
            continue;
        }
        match (parts.last_mut(), schema) {
            (Some(Value::Object(last)), Value::Object(map)) if mergeable(last, &map) => {
                last.extend(map);
            }
            (_, schema) => parts.push(schema),
        }
    }
    match parts.len() {
        0 => json!(true),
        1 => parts.remove(0),
        _ => json!({"allOf": parts}),
    }
}

/// The schema of values that satisfy one or more.
pub fn any_of(schemas: Vec<Value>) -> Value {
    let mut parts: Vec<Value> = Vec::new();
    for schema in schemas {
        if is_true(&schema) {
            return json!(true);
        }
        if schema == json!(false) || parts.len() < MAX_COMPARED && parts.contains(&schema) {
            continue;
        }
        match (
            parts.last_mut().and_then(only_values_mut),
            only_values(&schema),
        ) {
            (Some(last), Some(values)) => last.extend(values.iter().cloned()),
            _ => parts.push(schema),
        }
    }
    match parts.len() {
        0 => json!(false),
        1 => parts.remove(0),
        _ => json!({"anyOf": parts}),
    }
}

fn only_values(schema: &Value) -> Option<&Vec<Value>> {
    let map = schema.as_object().filter(|m| m.len() == 1)?;
    map.get("enum")?.as_array()
}

fn only_values_mut(schema: &mut Value) -> Option<&mut Vec<Value>> {
    let map = schema.as_object_mut().filter(|m| m.len() == 1)?;
    map.get_mut("enum")?.as_array_mut()
}

/// Rejects a definition that leads to itself without a part of a value in between.
pub fn check_cycles(definitions: &[Value], places: &[String]) -> Result<()> {
    let known = Known::of(definitions);
    let mut done = HashSet::new();
    for start in 0..definitions.len() {
        let mut open = vec![start];
        let mut seen = HashSet::new();
        while let Some(i) = open.pop() {
            let mut next = Vec::new();
            in_place(&definitions[i], &known, &mut next);
            if next.contains(&start) {
                let at = Path::Fixed(&places[start]);
                return at
                    .invalid("the schema refers to itself without a property or an item between");
            }
            open.extend(
                next.into_iter()
                    .filter(|n| !done.contains(n) && seen.insert(*n)),
            );
        }
        done.insert(start);
    }
    Ok(())
}

/// The definitions that apply to the same value.
fn in_place(schema: &Value, known: &Known, out: &mut Vec<usize>) {
    let Some(map) = schema.as_object() else {
        return;
    };
    for (key, value) in map {
        match (key.as_str(), value) {
            ("$ref", name) if known.definition(name).is_some() => {
                let number: Option<usize> = name
                    .as_str()
                    .and_then(|n| n.rsplit('d').next()?.parse().ok());
                out.extend(number);
            }
            ("allOf" | "anyOf" | "oneOf", Value::Array(list)) => {
                list.iter().for_each(|s| in_place(s, known, out));
            }
            ("not", inner) => in_place(inner, known, out),
            _ => (),
        }
    }
}

/// The root and the definitions without `oneOf` and `not`.
pub fn without_logic(root: Value, definitions: Vec<Value>) -> Result<(Value, Vec<Value>)> {
    let known = Known::of(&definitions);
    let root = clean(&root, &known)?;
    let cleaned = definitions
        .iter()
        .map(|d| clean(d, &known))
        .collect::<Result<Vec<_>>>()?;
    Ok(renumbered(root, cleaned))
}

fn clean(schema: &Value, known: &Known) -> Result<Value> {
    let Some(map) = schema.as_object() else {
        return Ok(schema.clone());
    };
    if let Some(Value::Array(branches)) = map.get("oneOf") {
        let kind = map.get("$type").unwrap_or(&Value::Null);
        return one_of(branches, kind, &map["$at"], known);
    }
    if let Some(inner) = map.get("not") {
        let negated = negate(inner, known, 0)
            .map_err(|why| refused(&map["$at"], &format!("cannot be enforced: {why}")))?;
        return clean(&negated, known);
    }
    let list = |list: &Value| {
        let list = list.as_array().into_iter().flatten();
        list.map(|s| clean(s, known)).collect::<Result<Vec<_>>>()
    };
    let mut out = Map::new();
    let mut all = Vec::new();
    for (key, value) in map {
        let value = match key.as_str() {
            "properties" | "patternProperties" => {
                let members = value.as_object().into_iter().flatten();
                let members = members.map(|(k, v)| Ok((k.clone(), clean(v, known)?)));
                Value::Object(members.collect::<Result<Map<_, _>>>()?)
            }
            "additionalProperties" | "items" => clean(value, known)?,
            "prefixItems" => Value::Array(list(value)?),
            "allOf" => {
                all = list(value)?;
                continue;
            }
            "anyOf" => match any_of(list(value)?) {
                Value::Object(mut one) if one.len() == 1 && one.contains_key("anyOf") => {
                    one["anyOf"].take()
                }
                other => {
                    all.push(other);
                    continue;
                }
            },
            _ => value.clone(),
        };
        out.insert(key.clone(), value);
    }
    if out.is_empty() {
        return Ok(all_of(all));
    }
    if all.is_empty() {
        return Ok(Value::Object(out));
    }
    all.insert(0, Value::Object(out));
    Ok(all_of(all))
}

fn refused(at: &Value, why: &str) -> Error {
    let at = at.as_str().unwrap_or_default();
    Path::Fixed(at).error(crate::error::Status::Invalid, why)
}

fn one_of(branches: &[Value], kind: &Value, at: &Value, known: &Known) -> Result<Value> {
    if let Some(values) = branches.iter().map(only_values).collect::<Option<Vec<_>>>() {
        let mut times: HashMap<String, usize> = HashMap::new();
        for value in values.iter().copied().flatten() {
            *times.entry(canonical(value)).or_default() += 1;
        }
        let once = values
            .into_iter()
            .flatten()
            .filter(|v| times[&canonical(v)] == 1);
        let once: Vec<Value> = once.cloned().collect();
        return Ok(match once.is_empty() {
            true => json!(false),
            false => json!({"enum": once}),
        });
    }
    let facts = branches.iter().map(|b| {
        let mut facts = Facts::of(b, known);
        facts.restrict(kind);
        facts
    });
    let facts: Vec<Facts> = facts.collect();
    if facts::told_apart(&facts, known) {
        let branches = branches.iter().map(|b| clean(b, known));
        return Ok(any_of(branches.collect::<Result<Vec<_>>>()?));
    }
    let mut overlaps: Vec<Vec<usize>> = vec![Vec::new(); branches.len()];
    for i in 0..branches.len() {
        for j in 0..i {
            if !known.spend() {
                return Err(refused(at, "too many branches to compare"));
            }
            if !facts[i].disjoint(&facts[j], known, 0) {
                overlaps[i].push(j);
                overlaps[j].push(i);
                if !known.overlap() {
                    return Err(refused(at, "too many branches may match at once"));
                }
            }
        }
    }
    let mut out = Vec::with_capacity(branches.len());
    for (i, branch) in branches.iter().enumerate() {
        let mut parts = vec![branch.clone()];
        for &j in &overlaps[i] {
            let other = negate(&branches[j], known, 0).map_err(|why| {
                let (a, b) = (i.min(j), i.max(j));
                let advice = "give them a property with different const values, or use anyOf";
                refused(
                    at,
                    &format!("branches {a} and {b} may both match ({why}); {advice}"),
                )
            })?;
            parts.push(other);
        }
        out.push(clean(&all_of(parts), known)?);
    }
    Ok(any_of(out))
}

/// Only the definitions that are in use, numbered by their first use.
fn renumbered(mut root: Value, mut definitions: Vec<Value>) -> (Value, Vec<Value>) {
    let mut order = Vec::new();
    let mut numbers = HashMap::new();
    renumber(&mut root, &mut order, &mut numbers);
    let mut i = 0;
    let mut out = Vec::new();
    while i < order.len() {
        let mut definition = definitions[order[i]].take();
        renumber(&mut definition, &mut order, &mut numbers);
        out.push(definition);
        i += 1;
    }
    (root, out)
}

fn renumber(value: &mut Value, order: &mut Vec<usize>, numbers: &mut HashMap<usize, usize>) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|v| renumber(v, order, numbers)),
        Value::Object(map) => {
            for (key, value) in map {
                let old = match (key.as_str(), &*value) {
                    ("enum", _) => continue,
                    ("$ref", Value::String(name)) => name.strip_prefix("#/$defs/d"),
                    _ => None,
                };
                match old.and_then(|n| n.parse::<usize>().ok()) {
                    Some(old) => {
                        let new = *numbers.entry(old).or_insert_with(|| {
                            order.push(old);
                            order.len() - 1
                        });
                        *value = json!(format!("#/$defs/d{new}"));
                    }
                    None => renumber(value, order, numbers),
                }
            }
        }
        _ => (),
    }
}

/// A rule for names of properties.
pub enum Names {
    Values(Vec<String>),
    Pattern(String),
}

/// None if it is too complex, or refers to a definition that is still being read.
pub fn names_pattern(schema: &Value, definitions: &[Value]) -> Option<Names> {
    let known = Known::of(definitions);
    let mut map = match schema {
        Value::Bool(false) => return Some(Names::Values(Vec::new())),
        schema => schema.as_object()?,
    };
    for _ in 0..8 {
        match map.get("$ref") {
            Some(name) if map.len() == 1 => map = known.definition(name)?.as_object()?,
            _ => break,
        }
    }
    let mut values = None;
    let mut patterns = Vec::new();
    let (mut least, mut most) = (0, None);
    for (key, value) in map {
        match key.as_str() {
            "type" if value == "string" => (),
            "enum" => values = Some(value.as_array()?),
            "pattern" => patterns.push(value.as_str()?.to_string()),
            "minLength" => least = value.as_u64()?,
            "maxLength" => most = Some(value.as_u64()?),
            _ => return None,
        }
    }
    let has_length = least > 0 || most.is_some();
    match (values, patterns.pop()) {
        (Some(values), None) if !has_length => {
            let names = values.iter().filter_map(|v| v.as_str().map(str::to_string));
            Some(Names::Values(names.collect()))
        }
        (None, Some(pattern)) if !has_length => Some(match patterns::finite(&pattern) {
            Some(names) => Names::Values(names),
            None => Names::Pattern(pattern),
        }),
        (None, None) => {
            let most = most.map_or(String::new(), |m| m.to_string());
            Some(Names::Pattern(format!("^(?s:.){{{least},{most}}}$")))
        }
        _ => None,
    }
}
