//! A client's JSON schema as one that llguidance enforces in full: keywords without effect are dropped, keywords that
//! llguidance lacks are expressed by others, and the rest is refused with its path.
//!
//! The walk leaves `oneOf` and `not` in place, with the path under "$at" and the type beside `oneOf` under "$type". logic.rs removes them when all definitions
//! are known.

use std::collections::HashMap;

use serde_json::{json, Map, Value};

use super::formats::{self, Format};
use super::literals::{self, Bound};
use super::logic::{self, all_of, any_of};
use super::meeting::Meeting;
use super::path::{shortened, Path};
use super::patterns;
use super::refs::{base_of, Refs, Target};
use super::written::{has_large, Inexact};
use crate::error::Result;

const MAX_NODES: usize = 50_000;
/// Limit for nested schemas and references. llguidance follows them in the same order, on its stack.
const MAX_DEPTH: usize = 200;
/// Bytes of a pattern that count as one part.
const PATTERN_BYTES: usize = 40;
/// llguidance reads JSON of at most 127 levels. Deeper parts become definitions.
const MAX_JSON_DEPTH: usize = 30;
const MAX_DEPENDENCIES: usize = 8;
/// llguidance compares each two of an object, each time in a copy of all.
const MAX_NAME_PATTERNS: usize = 100;
pub const TYPES: [&str; 7] = [
    "null", "boolean", "integer", "number", "string", "array", "object",
];

/// A schema in normal form.
pub struct Normal {
    root: Value,
    definitions: Vec<Value>,
}

struct Walk<'a> {
    inexact: &'a Inexact,
    /// Where the first value with a number of 2^63 or more stands.
    large: Option<String>,
    refs: Refs<'a>,
    numbers: HashMap<*const Value, usize>,
    definitions: Vec<Value>,
    /// Where each definition stands, for messages.
    places: Vec<String>,
    /// The path of the schema in the client's text.
    root: String,
    /// The least common multiple of all `multipleOf`, without factors of 10.
    multiples: u64,
    n_nodes: usize,
    n_name_patterns: usize,
    depth: usize,
}

/// The state at a place of the walk.
#[derive(Clone, Copy)]
struct Here<'p> {
    at: &'p Path<'p>,
    base: &'p str,
}

impl<'p> Here<'p> {
    fn with(&self, at: &'p Path<'p>) -> Here<'p> {
        Here { at, ..*self }
    }
}

impl Normal {
    pub fn any_object() -> Normal {
        Normal {
            root: super::any_object(),
            definitions: Vec::new(),
        }
    }

    pub fn of(schema: &Value, inexact: &Inexact, at: &Path) -> Result<Normal> {
        let mut walk = Walk {
            inexact,
            large: None,
            refs: Refs::of(schema),
            numbers: HashMap::new(),
            definitions: Vec::new(),
            places: Vec::new(),
            root: at.to_string(),
            multiples: 1,
            n_nodes: 0,
            n_name_patterns: 0,
            depth: 0,
        };
        let root = walk.schema(schema, Here { at, base: "" })?;
        logic::check_cycles(&walk.definitions, &walk.places)?;
        let (root, definitions) = logic::without_logic(root, walk.definitions)?;
        if root == json!(false) {
            return at.invalid("no value satisfies the schema");
        }
        if let Some(place) = walk.large {
            let mut meeting = Meeting::new(&definitions);
            if meeting.is_in(&root) {
                return Path::Fixed(&place).invalid(
                    "a number of 2^63 or more cannot be enforced beside \"type\": \"integer\"",
                );
            }
        }
        Ok(Normal { root, definitions })
    }

    /// The text for %json, with llguidance's options.
    pub fn with_options(mut self, options: Value) -> Value {
        let mut out = match self.root.take() {
            Value::Object(map) => map,
            _ => Map::new(),
        };
        if !self.definitions.is_empty() {
            let named = self.definitions.into_iter().enumerate();
            let named: Map<String, Value> = named.map(|(i, d)| (format!("d{i}"), d)).collect();
            out.insert("$defs".to_string(), Value::Object(named));
        }
        out.insert("x-guidance".to_string(), options);
        Value::Object(out)
    }
}

pub fn reference(definition: usize) -> Value {
    json!({"$ref": format!("#/$defs/d{definition}")})
}

/// A schema while its keywords are read.
#[derive(Default)]
struct Parts {
    /// Keywords that llguidance applies together.
    plain: Map<String, Value>,
    /// Further schemas, all of which must hold: first those before `properties`, then those after it. This order is the
    /// order of the answer's keys.
    before: Vec<Value>,
    after: Vec<Value>,
    has_properties: bool,
    nullable: bool,
}

impl Parts {
    fn and(&mut self, schema: Value) {
        if self.has_properties {
            self.after.push(schema);
        } else {
            self.before.push(schema);
        }
    }

    fn finish(self) -> Value {
        let mut parts = self.before;
        if !self.plain.is_empty() {
            parts.push(Value::Object(self.plain));
        }
        parts.extend(self.after);
        let all = all_of(parts);
        if self.nullable {
            return any_of(vec![all, json!({"type": "null"})]);
        }
        all
    }
}

impl<'a> Walk<'a> {
    fn schema(&mut self, schema: &'a Value, here: Here) -> Result<Value> {
        self.n_nodes += 1;
        if self.n_nodes > MAX_NODES {
            return here
                .at
                .invalid(format!("the schema has more than {MAX_NODES} parts"));
        }
        if self.depth >= MAX_DEPTH {
            return here
                .at
                .invalid(format!("schemas are nested deeper than {MAX_DEPTH}"));
        }
        let map = match schema {
            Value::Bool(_) => return Ok(schema.clone()),
            Value::Object(map) => map,
            _ => return here.at.invalid("a schema is an object or a boolean"),
        };
        self.depth += 1;
        let base = base_of(schema, here.base);
        let result = self.object(
            map,
            Here {
                base: &base,
                ..here
            },
        );
        self.depth -= 1;
        let result = result?;
        if logic::json_depth(&result) > MAX_JSON_DEPTH {
            self.definitions.push(result);
            self.places.push(here.at.to_string());
            return Ok(reference(self.definitions.len() - 1));
        }
        Ok(result)
    }

    fn object(&mut self, map: &'a Map<String, Value>, here: Here) -> Result<Value> {
        let mut parts = Parts::default();
        for (key, value) in map {
            let at = here.at.key(key);
            self.keyword(map, key, value, here.with(&at), &mut parts)?;
        }
        written_out(&mut parts.plain);
        Ok(parts.finish())
    }

    fn keyword(
        &mut self,
        map: &'a Map<String, Value>,
        key: &str,
        value: &'a Value,
        here: Here,
        parts: &mut Parts,
    ) -> Result<()> {
        let at = here.at;
        let plain = match key {
            "type" => types(value, at)?,
            "nullable" => {
                parts.nullable = value == &json!(true);
                return Ok(());
            }
            "const" | "enum" => return self.values(key, value, at, parts),
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => {
                return number(map, key, value, at, parts);
            }
            "multipleOf" => {
                let alone = self.refs.n_multiples <= 1;
                literals::multiple(value, alone, &mut self.multiples, at)?
            }
            "minLength" | "minItems" | "minProperties" => match literals::count(value, at)? {
                0 => return Ok(()),
                n if n > literals::MAX_LEAST => {
                    return at.invalid(format!("the limit is {}", literals::MAX_LEAST));
                }
                n => json!(n),
            },
            "maxLength" | "maxItems" | "maxProperties" => match literals::count(value, at)? {
                n if n > literals::UNREACHABLE => return Ok(()),
                n => json!(n),
            },
            "pattern" => {
                let Some(text) = value.as_str() else {
                    return at.invalid("not a string");
                };
                json!(self.pattern(text, at)?)
            }
            "format" => return format(value, at, parts),
            _ => return self.structure(map, key, value, here, parts),
        };
        parts.plain.insert(key.to_string(), plain);
        Ok(())
    }

    /// Keywords of arrays and objects.
    fn structure(
        &mut self,
        map: &'a Map<String, Value>,
        key: &str,
        value: &'a Value,
        here: Here,
        parts: &mut Parts,
    ) -> Result<()> {
        let at = here.at;
        let plain = match key {
            "properties" => {
                parts.has_properties = true;
                self.map_of(value, here)?
            }
            "patternProperties" => self.pattern_properties(value, here)?,
            "additionalProperties" => self.schema(value, here)?,
            "required" => required(value, at)?,
            "prefixItems" => Value::Array(self.list_of(value, here)?),
            "items" if value.is_array() => {
                if !value.as_array().is_some_and(Vec::is_empty) {
                    let items = self.list_of(value, here)?;
                    parts
                        .plain
                        .insert("prefixItems".to_string(), Value::Array(items));
                }
                return Ok(());
            }
            "items" => self.schema(value, here)?,
            "additionalItems" => {
                if map.get("items").is_some_and(Value::is_array) {
                    let items = self.schema(value, here)?;
                    parts.plain.insert("items".to_string(), items);
                }
                return Ok(());
            }
            "uniqueItems" => return unique(map, value, at),
            "propertyNames" => return self.names(value, here, parts),
            "contains" => return contains(map, value, at, parts),
            "unevaluatedItems" | "unevaluatedProperties" => {
                return self.unevaluated(map, key, value, here, parts);
            }
            "dependentRequired" | "dependentSchemas" | "dependencies" => {
                return self.dependent(value, here, parts);
            }
            _ => return self.applicator(map, key, value, here, parts),
        };
        parts.plain.insert(key.to_string(), plain);
        Ok(())
    }

    fn applicator(
        &mut self,
        map: &'a Map<String, Value>,
        key: &str,
        value: &'a Value,
        here: Here,
        parts: &mut Parts,
    ) -> Result<()> {
        let at = here.at;
        match key {
            "$ref" | "$dynamicRef" | "$recursiveRef" => {
                let target = self.reference(key, value, here)?;
                parts.and(target);
            }
            "allOf" => {
                let list = self.some_of(value, here)?;
                parts.and(all_of(list));
            }
            "anyOf" => {
                let list = self.some_of(value, here)?;
                parts.and(any_of(list));
            }
            "oneOf" => {
                let list = self.some_of(value, here)?;
                let mut one = json!({"oneOf": list, "$at": at.to_string()});
                // Only values of this type need to match one branch.
                if let Some(kind) = map.get("type") {
                    one["$type"] = kind.clone();
                }
                parts.and(one);
            }
            "not" => {
                let inner = self.schema(value, here)?;
                parts.and(json!({"not": inner, "$at": at.to_string()}));
            }
            "if" => {
                let holds = self.schema(value, here)?;
                let not = json!({"not": holds, "$at": at.to_string()});
                let then = self.optional(map, "then", here)?;
                let other = self.optional(map, "else", here)?;
                if then == json!(true) && other == json!(true) {
                    return Ok(());
                }
                parts.and(any_of(vec![
                    all_of(vec![holds, then]),
                    all_of(vec![not, other]),
                ]));
            }
            // Annotations and unknown keywords.
            _ => (),
        }
        Ok(())
    }

    /// The schema of a sibling of `if`.
    fn optional(&mut self, map: &'a Map<String, Value>, key: &str, here: Here) -> Result<Value> {
        let Some(value) = map.get(key) else {
            return Ok(json!(true));
        };
        let parent = match here.at {
            Path::Key(parent, _) => *parent,
            other => other,
        };
        let at = parent.key(key);
        self.schema(value, here.with(&at))
    }

    fn list_of(&mut self, value: &'a Value, here: Here) -> Result<Vec<Value>> {
        let Some(list) = value.as_array() else {
            return here.at.invalid("not an array of schemas");
        };
        let mut out = Vec::with_capacity(list.len());
        for (i, item) in list.iter().enumerate() {
            let at = here.at.item(i);
            out.push(self.schema(item, here.with(&at))?);
        }
        Ok(out)
    }

    fn some_of(&mut self, value: &'a Value, here: Here) -> Result<Vec<Value>> {
        let list = self.list_of(value, here)?;
        if list.is_empty() {
            return here.at.invalid("the array is empty");
        }
        Ok(list)
    }

    fn map_of(&mut self, value: &'a Value, here: Here) -> Result<Value> {
        let Some(map) = value.as_object() else {
            return here.at.invalid("not an object of schemas");
        };
        let mut out = Map::new();
        for (key, value) in map {
            let at = here.at.key(key);
            out.insert(key.clone(), self.schema(value, here.with(&at))?);
        }
        Ok(Value::Object(out))
    }

    fn pattern_properties(&mut self, value: &'a Value, here: Here) -> Result<Value> {
        let Some(map) = value.as_object() else {
            return here.at.invalid("not an object of schemas");
        };
        let mut out = Map::new();
        for (key, value) in map {
            let at = here.at.key(key);
            let pattern = self.pattern(key, &at)?;
            if patterns::finite(&pattern).is_none() {
                self.name_pattern(&at)?;
            }
            let schema = self.schema(value, here.with(&at))?;
            if out.insert(pattern, schema).is_some() {
                return at.invalid("the same pattern stands here twice");
            }
        }
        Ok(Value::Object(out))
    }

    fn name_pattern(&mut self, at: &Path) -> Result<()> {
        self.n_name_patterns += 1;
        if self.n_name_patterns > MAX_NAME_PATTERNS {
            return at.invalid(format!(
                "the schema has more than {MAX_NAME_PATTERNS} patterns of names"
            ));
        }
        Ok(())
    }

    fn pattern(&mut self, text: &str, at: &Path) -> Result<String> {
        let text = patterns::anywhere(text).map_err(|e| at.error(e.status, e.text))?;
        self.n_nodes += text.len() / PATTERN_BYTES;
        if self.n_nodes > MAX_NODES {
            return at.invalid("the patterns of the schema are too large");
        }
        Ok(patterns::grouped(&text))
    }

    fn reference(&mut self, key: &str, value: &'a Value, here: Here) -> Result<Value> {
        let at = here.at;
        let Some(name) = value.as_str() else {
            return at.invalid("not a string");
        };
        let name = if key == "$recursiveRef" { "#" } else { name };
        if key == "$dynamicRef" && !self.refs.is_unique(name) {
            return at.invalid("a dynamic reference with several targets cannot be enforced");
        }
        let Some(target) = self.refs.find(name, here.base) else {
            let why = format!("{:?} names nothing in this schema", shortened(name));
            let advice = if name.starts_with('#') {
                ""
            } else {
                "; nothing is fetched"
            };
            return at.invalid(format!("{why}{advice}"));
        };
        Ok(reference(self.definition(target)?))
    }

    fn definition(&mut self, target: Target<'a>) -> Result<usize> {
        let key: *const Value = target.schema;
        if let Some(&i) = self.numbers.get(&key) {
            return Ok(i);
        }
        let i = self.definitions.len();
        self.numbers.insert(key, i);
        self.definitions.push(json!(true));
        let place = format!("{}{}", self.root, target.at);
        self.places.push(place.clone());
        let at = Path::Fixed(&place);
        let schema = self.schema(
            target.schema,
            Here {
                at: &at,
                base: &target.outer,
            },
        )?;
        self.definitions[i] = schema;
        Ok(i)
    }

    fn values(&mut self, key: &str, value: &'a Value, at: &Path, parts: &mut Parts) -> Result<()> {
        let list = match (key, value) {
            ("const", value) => vec![value.clone()],
            (_, Value::Array(list)) if !list.is_empty() => list.clone(),
            _ => return at.invalid("not an array with at least one value"),
        };
        self.n_nodes += list.len();
        if self.n_nodes > MAX_NODES {
            return at.invalid(format!("the schema has more than {MAX_NODES} parts"));
        }
        list.iter()
            .try_for_each(|v| literals::exact(v, self.inexact, at))?;
        let list = literals::distinct(list);
        if self.large.is_none() && list.iter().any(has_large) {
            self.large = Some(at.to_string());
        }
        parts.and(json!({"enum": list}));
        Ok(())
    }

    /// A rule for the names of properties, as a rule for the properties.
    fn names(&mut self, value: &'a Value, here: Here, parts: &mut Parts) -> Result<()> {
        let at = here.at;
        let mut names = value;
        for _ in 0..8 {
            let only = names
                .as_object()
                .filter(|m| m.len() == 1)
                .and_then(|m| m.get("$ref"));
            let target = only
                .and_then(Value::as_str)
                .and_then(|r| self.refs.find(r, here.base));
            names = target.map_or(names, |t| t.schema);
        }
        let names = self.schema(names, here)?;
        if logic::is_true(&names) {
            return Ok(());
        }
        let closed = match logic::names_pattern(&names, &self.definitions) {
            Some(logic::Names::Values(values)) => {
                let properties: Map<String, Value> =
                    values.into_iter().map(|v| (v, json!(true))).collect();
                json!({"properties": properties, "additionalProperties": false})
            }
            Some(logic::Names::Pattern(pattern)) => {
                self.name_pattern(at)?;
                json!({"patternProperties": {pattern: true}, "additionalProperties": false})
            }
            None => return at.invalid("this rule for names cannot be enforced"),
        };
        parts.and(closed);
        Ok(())
    }

    fn dependent(&mut self, value: &'a Value, here: Here, parts: &mut Parts) -> Result<()> {
        let Some(map) = value.as_object() else {
            return here.at.invalid("not an object");
        };
        if map.len() > MAX_DEPENDENCIES {
            return here
                .at
                .invalid(format!("more than {MAX_DEPENDENCIES} cannot be enforced"));
        }
        for (name, value) in map {
            let at = here.at.key(name);
            let then = match value {
                Value::Array(list) if list.is_empty() => continue,
                Value::Array(_) => json!({"required": required(value, &at)?}),
                _ => self.schema(value, here.with(&at))?,
            };
            if logic::is_true(&then) {
                continue;
            }
            let absent = json!({"properties": {name: false}});
            parts.and(any_of(vec![absent, then]));
        }
        Ok(())
    }

    fn unevaluated(
        &mut self,
        map: &'a Map<String, Value>,
        key: &str,
        value: &'a Value,
        here: Here,
        parts: &mut Parts,
    ) -> Result<()> {
        const IN_PLACE: [&str; 9] = [
            "$ref",
            "$dynamicRef",
            "allOf",
            "anyOf",
            "oneOf",
            "not",
            "if",
            "dependentSchemas",
            "contains",
        ];
        let (own, moot) = match key {
            "unevaluatedItems" => ("items", map.get("items").is_some_and(|v| !v.is_array())),
            _ => (
                "additionalProperties",
                map.contains_key("additionalProperties"),
            ),
        };
        if moot || map.contains_key("additionalItems") && own == "items" {
            return Ok(());
        }
        let schema = self.schema(value, here)?;
        if logic::is_true(&schema) {
            return Ok(());
        }
        let mut others = map.keys().filter(|k| IN_PLACE.contains(&k.as_str()));
        if own == "items" {
            if let Some(other) = others.next() {
                return here
                    .at
                    .invalid(format!("cannot be enforced beside {other}"));
            }
            parts.plain.insert(own.to_string(), schema);
            return Ok(());
        }
        let mut names = Map::new();
        for other in others {
            let value = &map[other.as_str()];
            if !self.evaluated(other, value, here.base, &mut names, 0) {
                return here
                    .at
                    .invalid(format!("cannot be enforced beside this {other}"));
            }
        }
        let closed = self.closed(map, names, schema, here.at)?;
        parts.after.push(closed);
        Ok(())
    }

    /// An object whose properties are those of the schema and `names`; all others have `schema`.
    fn closed(
        &mut self,
        map: &Map<String, Value>,
        mut names: Map<String, Value>,
        schema: Value,
        at: &Path,
    ) -> Result<Value> {
        let own = map.get("properties").and_then(Value::as_object);
        let own = own.into_iter().flat_map(Map::keys);
        names.extend(own.map(|k| (k.clone(), json!(true))));
        let mut closed = json!({"properties": names, "additionalProperties": schema});
        if let Some(patterns) = map.get("patternProperties").and_then(Value::as_object) {
            let mut all = Map::new();
            for key in patterns.keys() {
                all.insert(self.pattern(key, at)?, json!(true));
            }
            closed["patternProperties"] = Value::Object(all);
        }
        Ok(closed)
    }

    /// Adds the names that an in-place keyword evaluates in every case. Returns false if that depends on the value.
    fn evaluated(
        &self,
        key: &str,
        value: &'a Value,
        base: &str,
        names: &mut Map<String, Value>,
        depth: usize,
    ) -> bool {
        if depth > 16 {
            return false;
        }
        let mut inside = |schema: &'a Value, base: &str| {
            let Some(map) = schema.as_object() else {
                return schema == &json!(true);
            };
            let base = base_of(schema, base);
            map.iter().all(|(key, value)| match key.as_str() {
                "properties" => {
                    let keys = value.as_object().into_iter().flat_map(Map::keys);
                    names.extend(keys.map(|k| (k.clone(), json!(true))));
                    true
                }
                "additionalProperties" | "unevaluatedProperties" => value == &json!(false),
                "patternProperties" | "anyOf" | "oneOf" | "if" | "then" | "else"
                | "dependentSchemas" | "dependencies" | "$recursiveRef" => false,
                "$ref" | "$dynamicRef" | "allOf" => {
                    self.evaluated(key, value, &base, names, depth + 1)
                }
                _ => true,
            })
        };
        match key {
            "not" => true,
            "allOf" => value
                .as_array()
                .is_some_and(|l| l.iter().all(|s| inside(s, base))),
            "$ref" | "$dynamicRef" => {
                let target = value.as_str().and_then(|name| self.refs.find(name, base));
                target.is_some_and(|t| inside(t.schema, &t.outer))
            }
            _ => false,
        }
    }
}

/// Makes properties of patterns with few names. llguidance allows a comma after the last property as long as there is a
/// pattern, even if no name is left.
fn written_out(plain: &mut Map<String, Value>) {
    let Some(Value::Object(patterns)) = plain.get_mut("patternProperties") else {
        return;
    };
    let mut found = Vec::new();
    patterns.retain(|pattern, schema| match patterns::finite(pattern) {
        Some(names) => {
            found.extend(names.into_iter().map(|name| (name, schema.clone())));
            false
        }
        None => true,
    });
    if patterns.is_empty() {
        plain.remove("patternProperties");
    }
    if found.is_empty() {
        return;
    }
    let properties = plain.entry("properties").or_insert_with(|| json!({}));
    for (name, schema) in found {
        let both = match properties.get(&name) {
            Some(own) => all_of(vec![own.clone(), schema]),
            None => schema,
        };
        properties[name] = both;
    }
}

fn types(value: &Value, at: &Path) -> Result<Value> {
    let known = |v: &Value| match v.as_str() {
        Some(name) if TYPES.contains(&name) => Ok(()),
        _ => at.invalid(format!(
            "{} is not a type; types: {}",
            shortened(&v.to_string()),
            TYPES.join(", ")
        )),
    };
    match value {
        Value::Array(list) if !list.is_empty() => {
            for name in list {
                known(name)?;
            }
            let list = literals::distinct(list.clone());
            let has_number = list.contains(&json!("number"));
            let list = list
                .into_iter()
                .filter(|t| !(has_number && t == &json!("integer")));
            Ok(Value::Array(list.collect()))
        }
        value => known(value).map(|()| value.clone()),
    }
}

fn required(value: &Value, at: &Path) -> Result<Value> {
    match value.as_array() {
        Some(list) if list.iter().all(Value::is_string) => {
            Ok(Value::Array(literals::distinct(list.clone())))
        }
        // Draft 3 had a boolean in the property itself, and many descriptions still do.
        None if value.is_boolean() => {
            at.invalid("a boolean belongs to draft 3; list the names in the parent")
        }
        _ => at.invalid("not an array of names"),
    }
}

fn number(
    map: &Map<String, Value>,
    key: &str,
    value: &Value,
    at: &Path,
    parts: &mut Parts,
) -> Result<()> {
    let (bound, plain, exclusive) = match key {
        "minimum" | "exclusiveMinimum" => (Bound::Least, "minimum", "exclusiveMinimum"),
        _ => (Bound::Most, "maximum", "exclusiveMaximum"),
    };
    // Draft 4: a boolean beside the bound.
    let is_exclusive = match value {
        Value::Bool(_) if key == exclusive => return Ok(()),
        _ => key == exclusive || map.get(exclusive) == Some(&json!(true)),
    };
    let Some(limit) = literals::bound(value, bound) else {
        return at.invalid("not a number");
    };
    let name = if is_exclusive { exclusive } else { plain };
    parts.plain.insert(name.to_string(), limit);
    Ok(())
}

fn format(value: &Value, at: &Path, parts: &mut Parts) -> Result<()> {
    let Some(name) = value.as_str() else {
        return at.invalid("not a string");
    };
    match formats::lookup(name) {
        Format::Unknown => Ok(()),
        Format::Refused => at.invalid(format!("the format {name:?} cannot be enforced; remove it")),
        Format::Enforced(schema) => {
            parts.and(schema);
            Ok(())
        }
    }
}

fn unique(map: &Map<String, Value>, value: &Value, at: &Path) -> Result<()> {
    let most = map.get("maxItems").and_then(Value::as_f64);
    match value {
        Value::Bool(false) => Ok(()),
        Value::Bool(true) if most.is_some_and(|n| n <= 1.0) => Ok(()),
        Value::Bool(true) => at.invalid("cannot be enforced; remove it, or set it to false"),
        _ => at.invalid("not a boolean"),
    }
}

/// Only what the number of items decides.
fn contains(map: &Map<String, Value>, value: &Value, at: &Path, parts: &mut Parts) -> Result<()> {
    let count = |key: &str| map.get(key).and_then(Value::as_f64).map(|n| n as u64);
    let least = count("minContains").unwrap_or(1);
    let most = count("maxContains");
    let all = value == &json!(true) || value.as_object().is_some_and(Map::is_empty);
    if least == 0 && most.is_none() {
        return Ok(());
    }
    if most.is_some_and(|most| most < least) || least > 0 && value == &json!(false) {
        // No array satisfies it.
        let others: Vec<&str> = TYPES
            .into_iter()
            .filter(|t| !["array", "integer"].contains(t))
            .collect();
        parts.and(json!({"type": others}));
        return Ok(());
    }
    if !all {
        return at.invalid("cannot be enforced");
    }
    let mut bounds = Map::new();
    bounds.insert("minItems".to_string(), json!(least));
    if let Some(most) = most {
        bounds.insert("maxItems".to_string(), json!(most));
    }
    parts.and(Value::Object(bounds));
    Ok(())
}
