//! Facts about the values of a schema. They prove that two schemas are disjoint.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::literals::canonical;
use super::logic::Known;

const MAX_DEPTH: usize = 12;

// Kinds of values as bits. A number is whole or not.
const NULL: u8 = 1;
const BOOLEAN: u8 = 2;
const WHOLE: u8 = 4;
const BROKEN: u8 = 8;
const STRING: u8 = 16;
pub const ARRAY: u8 = 32;
pub const OBJECT: u8 = 64;
const ALL: u8 = 127;

fn kind_of_type(name: &str) -> u8 {
    match name {
        "null" => NULL,
        "boolean" => BOOLEAN,
        "integer" => WHOLE,
        "number" => WHOLE | BROKEN,
        "string" => STRING,
        "array" => ARRAY,
        _ => OBJECT,
    }
}

fn kind_of_value(value: &Value) -> u8 {
    match value {
        Value::Null => NULL,
        Value::Bool(_) => BOOLEAN,
        Value::Number(n) if n.as_f64().is_some_and(|n| n.fract() == 0.0) => WHOLE,
        Value::Number(_) => BROKEN,
        Value::String(_) => STRING,
        Value::Array(_) => ARRAY,
        Value::Object(_) => OBJECT,
    }
}

/// A range of numbers, with whether its ends are outside.
#[derive(Clone, Copy)]
struct Range {
    least: f64,
    least_out: bool,
    most: f64,
    most_out: bool,
}

impl Range {
    const ALL: Range = Range {
        least: f64::NEG_INFINITY,
        least_out: false,
        most: f64::INFINITY,
        most_out: false,
    };

    fn at_least(&mut self, n: f64, out: bool) {
        if n > self.least || n == self.least && out {
            (self.least, self.least_out) = (n, out);
        }
    }

    fn at_most(&mut self, n: f64, out: bool) {
        if n < self.most || n == self.most && out {
            (self.most, self.most_out) = (n, out);
        }
    }

    fn apart(&self, other: &Range) -> bool {
        let below = |a: &Range, b: &Range| {
            a.most < b.least || a.most == b.least && (a.most_out || b.least_out)
        };
        below(self, other) || below(other, self)
    }

    fn excludes(&self, n: f64) -> bool {
        n < self.least
            || n > self.most
            || n == self.least && self.least_out
            || n == self.most && self.most_out
    }
}

/// The facts of a schema and of the schemas that it includes. All of them hold.
pub struct Facts<'a> {
    kinds: u8,
    values: Option<&'a Vec<Value>>,
    number: Range,
    length: Range,
    items: Range,
    required: HashSet<&'a str>,
    objects: Vec<&'a Map<String, Value>>,
    alternatives: Vec<&'a Vec<Value>>,
}

impl<'a> Facts<'a> {
    pub fn of(schema: &'a Value, known: &Known<'a>) -> Facts<'a> {
        let mut facts = Facts::none();
        facts.add(schema, known, 0);
        facts
    }

    /// The facts of the keywords of the schema itself, without schemas that it includes.
    pub fn of_own(schema: &'a Value, known: &Known<'a>) -> Facts<'a> {
        let mut facts = Facts::none();
        facts.add(schema, known, MAX_DEPTH - 1);
        facts.alternatives.clear();
        facts
    }

    fn none() -> Facts<'a> {
        Facts {
            kinds: ALL,
            values: None,
            number: Range::ALL,
            length: Range::ALL,
            items: Range::ALL,
            required: HashSet::new(),
            objects: Vec::new(),
            alternatives: Vec::new(),
        }
    }

    pub fn kinds(&self) -> u8 {
        self.kinds
    }

    /// Only values of the type count; null stands for all.
    pub fn restrict(&mut self, kind: &Value) {
        match kind {
            Value::String(name) => self.kinds &= kind_of_type(name),
            Value::Array(names) => {
                let names = names.iter().filter_map(Value::as_str);
                self.kinds &= names.fold(0, |kinds, name| kinds | kind_of_type(name));
            }
            _ => (),
        }
    }

    fn add(&mut self, schema: &'a Value, known: &Known<'a>, depth: usize) {
        let map = match schema {
            Value::Bool(false) => {
                self.kinds = 0;
                return;
            }
            Value::Object(map) if depth < MAX_DEPTH => map,
            _ => return,
        };
        for (key, value) in map {
            let number = value.as_f64().unwrap_or(f64::NAN);
            match (key.as_str(), value) {
                ("type", kind) => self.restrict(kind),
                ("enum", Value::Array(values)) => {
                    self.kinds &= values.iter().fold(0, |k, v| k | kind_of_value(v));
                    if self.values.is_none_or(|old| old.len() > values.len()) {
                        self.values = Some(values);
                    }
                }
                ("minimum", _) => self.number.at_least(number, false),
                ("exclusiveMinimum", _) => self.number.at_least(number, true),
                ("maximum", _) => self.number.at_most(number, false),
                ("exclusiveMaximum", _) => self.number.at_most(number, true),
                ("minLength", _) => self.length.at_least(number, false),
                ("maxLength", _) => self.length.at_most(number, false),
                ("minItems", _) => self.items.at_least(number, false),
                ("maxItems", _) => self.items.at_most(number, false),
                ("required", Value::Array(names)) => {
                    self.required.extend(names.iter().filter_map(Value::as_str));
                }
                ("properties", _) => self.objects.push(map),
                ("additionalProperties", _) if !map.contains_key("properties") => {
                    self.objects.push(map);
                }
                ("allOf", Value::Array(parts)) => {
                    parts.iter().for_each(|p| self.add(p, known, depth + 1));
                }
                ("anyOf" | "oneOf", Value::Array(parts)) => self.alternatives.push(parts),
                ("$ref", name) => {
                    if let Some(definition) = known.definition(name) {
                        self.add(definition, known, depth + 1);
                    }
                }
                _ => (),
            }
        }
    }

    /// Whether it is proven that no value satisfies both.
    pub fn disjoint(&self, other: &Facts<'a>, known: &Known<'a>, depth: usize) -> bool {
        let shared = self.kinds & other.kinds;
        if shared == 0 {
            return true;
        }
        if depth > MAX_DEPTH || !known.spend() {
            return false;
        }
        if let (Some(mine), Some(theirs)) = (self.values, other.values) {
            let mine: HashSet<String> = mine.iter().map(canonical).collect();
            if !theirs.iter().any(|v| mine.contains(&canonical(v))) {
                return true;
            }
        }
        if self.excludes_all_of(other) || other.excludes_all_of(self) {
            return true;
        }
        let split = |a: &Facts<'a>, b: &Facts<'a>| {
            a.alternatives.iter().any(|parts| {
                parts.len() <= 100
                    && parts
                        .iter()
                        .all(|p| Facts::of(p, known).disjoint(b, known, depth + 1))
            })
        };
        if split(self, other) || split(other, self) {
            return true;
        }
        let kinds = [NULL, BOOLEAN, WHOLE, BROKEN, STRING, ARRAY, OBJECT];
        kinds
            .into_iter()
            .filter(|k| shared & k != 0)
            .all(|kind| match kind {
                WHOLE | BROKEN => self.number.apart(&other.number),
                STRING => self.length.apart(&other.length),
                ARRAY => self.items.apart(&other.items),
                OBJECT => self.objects_disjoint(other, known, depth),
                _ => false,
            })
    }

    /// Whether none of the other's values satisfies this.
    fn excludes_all_of(&self, other: &Facts) -> bool {
        other
            .values
            .is_some_and(|values| values.iter().all(|v| self.excludes(v)))
    }

    pub fn excludes(&self, value: &Value) -> bool {
        self.kinds & kind_of_value(value) == 0
            || match value {
                Value::Number(n) => n.as_f64().is_some_and(|n| self.number.excludes(n)),
                Value::String(s) => self.length.excludes(s.chars().count() as f64),
                Value::Array(items) => self.items.excludes(items.len() as f64),
                Value::Object(map) => self.required.iter().any(|name| !map.contains_key(*name)),
                _ => false,
            }
    }

    /// Whether a required property has disjoint schemas in both.
    fn objects_disjoint(&self, other: &Facts<'a>, known: &Known<'a>, depth: usize) -> bool {
        self.required.union(&other.required).any(|name| {
            let mine = self.property(name);
            let theirs = other.property(name);
            let alone = |list: &[&Value]| list.iter().any(|s| **s == Value::Bool(false));
            if alone(&mine) || alone(&theirs) {
                return true;
            }
            mine.iter().any(|a| {
                let a = Facts::of(a, known);
                theirs
                    .iter()
                    .any(|b| a.disjoint(&Facts::of(b, known), known, depth + 1))
            })
        })
    }

    /// The schemas that hold for a property.
    fn property(&self, name: &str) -> Vec<&'a Value> {
        let mut out = Vec::new();
        for map in &self.objects {
            let own = map.get("properties").and_then(|p| p.get(name));
            let patterns = map.get("patternProperties").and_then(Value::as_object);
            match own {
                Some(own) => out.push(own),
                None if patterns.is_some_and(|p| !p.is_empty()) => (),
                None => out.extend(map.get("additionalProperties")),
            }
        }
        out
    }
}

/// Whether all require a property of which each has other values, as in a discriminated union.
pub fn told_apart<'a>(branches: &[Facts<'a>], known: &Known<'a>) -> bool {
    let Some(first) = branches.first() else {
        return false;
    };
    first
        .required
        .iter()
        .filter(|name| branches.iter().all(|b| b.required.contains(*name)))
        .any(|name| {
            let mut seen = HashSet::new();
            branches.iter().all(|branch| {
                let schemas = branch.property(name);
                let values = schemas.iter().find_map(|s| Facts::of(s, known).values);
                branch.kinds == OBJECT
                    && values.is_some_and(|values| values.iter().all(|v| seen.insert(canonical(v))))
            })
        })
}
