//! The schema of all values that another one rejects.

use serde_json::{json, Value};

use super::logic::{all_of, any_of, Known};
use super::patterns;
use super::schema::TYPES;
use super::written::is_large;

const MAX_DEPTH: usize = 16;
/// Limit for the literals of one complement.
const MAX_CHARACTERS: usize = 2000;

type Negated = Result<Value, String>;

/// Err says what has no complement.
pub fn negate(schema: &Value, known: &Known, depth: usize) -> Negated {
    if depth > MAX_DEPTH || !known.negate(1) {
        return Err("it is too complex".to_string());
    }
    let map = match schema {
        Value::Bool(b) => return Ok(json!(!b)),
        Value::Object(map) => map,
        _ => return Err("it is no schema".to_string()),
    };
    let mut options = Vec::new();
    for (key, value) in map {
        options.push(keyword(key, value, known, depth + 1)?);
    }
    Ok(any_of(options))
}

fn keyword(key: &str, value: &Value, known: &Known, depth: usize) -> Negated {
    let list = || value.as_array().into_iter().flatten();
    let count = value.as_u64().unwrap_or(0);
    // Beyond the whole numbers that doubles hold, the bound is one inside the client's.
    let number = |other: &str| match value.as_f64().is_some_and(|n| n.abs() < 9e15) {
        true => Ok(json!({"type": "number", other: value})),
        false => Err("the bound is too large for a complement".to_string()),
    };
    let fewer = |kind: &str, most: &str| match count {
        0 => Ok(json!(false)),
        n => Ok(json!({"type": kind, most: n - 1})),
    };
    let more = |kind: &str, least: &str| Ok(json!({"type": kind, least: count + 1}));
    match key {
        "type" => other_types(value),
        "enum" => none_of(list(), known),
        "minimum" => number("exclusiveMaximum"),
        "exclusiveMinimum" => number("maximum"),
        "maximum" => number("exclusiveMinimum"),
        "exclusiveMaximum" => number("minimum"),
        "minLength" => fewer("string", "maxLength"),
        "maxLength" => more("string", "minLength"),
        "minItems" => fewer("array", "maxItems"),
        "maxItems" => more("array", "minItems"),
        "minProperties" => fewer("object", "maxProperties"),
        "maxProperties" => more("object", "minProperties"),
        "required" => Ok(any_of(
            list()
                .filter_map(Value::as_str)
                .map(|name| json!({"type": "object", "properties": {name: false}}))
                .collect(),
        )),
        "properties" => {
            let mut options = Vec::new();
            for (name, schema) in value.as_object().into_iter().flatten() {
                let other = negate(schema, known, depth)?;
                if other != json!(false) {
                    options.push(
                        json!({"type": "object", "properties": {name: other}, "required": [name]}),
                    );
                }
            }
            Ok(any_of(options))
        }
        "additionalProperties" | "items" if value == &json!(true) => Ok(json!(false)),
        "allOf" => Ok(any_of(
            list()
                .map(|s| negate(s, known, depth))
                .collect::<Result<_, _>>()?,
        )),
        "anyOf" => Ok(all_of(
            list()
                .map(|s| negate(s, known, depth))
                .collect::<Result<_, _>>()?,
        )),
        "not" => Ok(value.clone()),
        "$at" | "$type" => Ok(json!(false)),
        "$ref" => match known.definition(value) {
            Some(definition) => negate(definition, known, depth),
            None => Err("$ref has no complement".to_string()),
        },
        other => Err(format!("{other} has no complement")),
    }
}

fn other_types(value: &Value) -> Negated {
    let has = |name: &str| match value {
        Value::Array(list) => list.iter().any(|t| t == name),
        one => one == name,
    };
    if has("integer") {
        return Err("the type integer has no complement".to_string());
    }
    let others: Vec<&str> = TYPES
        .into_iter()
        .filter(|t| !has(t) && *t != "integer")
        .collect();
    Ok(match others.is_empty() {
        true => json!(false),
        false => json!({"type": others}),
    })
}

fn none_of<'a>(values: impl Iterator<Item = &'a Value>, known: &Known) -> Negated {
    let mut strings = Vec::new();
    let mut numbers = Vec::new();
    let mut flags = [true, true];
    let mut types = vec!["null", "array", "object"];
    for value in values {
        match value {
            Value::Null => types.retain(|t| *t != "null"),
            Value::Bool(b) => flags[usize::from(*b)] = false,
            Value::Number(n) if is_large(n) => {
                return Err("a number of 2^63 or more has no complement".to_string())
            }
            Value::Number(n) => numbers.push(n.as_f64().unwrap_or(f64::NAN)),
            Value::String(s) => strings.push(s.as_str()),
            Value::Array(_) => return Err("an array as a value has no complement".to_string()),
            Value::Object(_) => return Err("an object as a value has no complement".to_string()),
        }
    }
    let n: usize = strings.iter().map(|s| s.len()).sum();
    if n > MAX_CHARACTERS || numbers.len() > 50 || !known.negate(n + numbers.len()) {
        return Err("the values are too many".to_string());
    }
    let mut options = Vec::new();
    if strings.is_empty() {
        types.push("string");
    } else {
        let pattern = patterns::grouped(&patterns::none_of(&strings));
        options.push(json!({"type": "string", "pattern": pattern}));
    }
    match flags {
        [true, true] => types.push("boolean"),
        [no, yes] => {
            let left = [(no, false), (yes, true)].into_iter().filter(|f| f.0);
            options.extend(left.map(|f| json!({"enum": [f.1]})));
        }
    }
    options.extend(between(&mut numbers, &mut types));
    if !types.is_empty() {
        options.push(json!({"type": types}));
    }
    Ok(any_of(options))
}

/// The numbers between the given ones.
fn between(numbers: &mut [f64], types: &mut Vec<&str>) -> Vec<Value> {
    if numbers.is_empty() {
        types.push("number");
        return Vec::new();
    }
    numbers.sort_by(f64::total_cmp);
    let number = |n: f64| match n.fract() == 0.0 && n.abs() < 9e15 {
        true => json!(n as i64),
        false => json!(n),
    };
    let mut out = vec![json!({"type": "number", "exclusiveMaximum": number(numbers[0])})];
    for pair in numbers.windows(2).filter(|p| p[0] < p[1]) {
        out.push(
            json!({"type": "number", "exclusiveMinimum": number(pair[0]),
            "exclusiveMaximum": number(pair[1])}),
        );
    }
    let last = numbers[numbers.len() - 1];
    out.push(json!({"type": "number", "exclusiveMinimum": number(last)}));
    out
}
