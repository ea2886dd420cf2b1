//! Whether a number of 2^63 or more in `const` or `enum` and `"type": "integer"` hold for one value.
//!
//! llguidance computes the range of an integer with i64, so their intersection would allow another number. The search
//! goes through all sets of schemas that hold for one value. It leaves out sets that facts.rs proves to be
//! impossible, because their intersection has no answers.

use std::collections::{BTreeSet, HashMap};

use serde_json::{Map, Value};

use super::facts::{Facts, ARRAY, OBJECT};
use super::literals::canonical;
use super::logic::Known;
use super::written::{has_large, is_large};

/// Comparisons of two schemas, and values that are read.
const MAX_WORK: usize = 500_000;
const MAX_DEPTH: usize = 200;

/// A part of a set.
#[derive(Clone, Copy)]
enum Part<'a> {
    Schema(&'a Value),
    /// A value of an `enum`, or a part of it.
    Literal(&'a Value),
}

impl<'a> Part<'a> {
    fn address(&self) -> *const Value {
        match self {
            Part::Schema(value) | Part::Literal(value) => *value,
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Found {
    /// No value satisfies the set.
    Impossible,
    Nothing,
    Meeting,
}

pub struct Meeting<'a> {
    definitions: &'a [Value],
    known: Known<'a>,
    found: HashMap<Vec<*const Value>, Found>,
    work: usize,
    depth: usize,
}

/// One choice of branches: schemas and values that hold without their `anyOf`, `allOf` and `$ref`.
#[derive(Clone, Default)]
struct Chosen<'a> {
    schemas: Vec<&'a Value>,
    literals: Vec<&'a Value>,
}

/// The schemas of a property or item: those that hold, and those that hold if a name matches a pattern.
#[derive(Default)]
struct Child<'a> {
    certain: Vec<Part<'a>>,
    possible: Vec<Possible<'a>>,
}

#[derive(Clone, Copy)]
struct Possible<'a> {
    part: Part<'a>,
    /// The number of the schema that it is in.
    owner: usize,
    /// It holds if no pattern of the owner matches.
    is_rest: bool,
}

impl<'a> Meeting<'a> {
    pub fn new(definitions: &'a [Value]) -> Meeting<'a> {
        Meeting {
            definitions,
            known: Known::of(definitions),
            found: HashMap::new(),
            work: 0,
            depth: 0,
        }
    }

    /// Reports a schema also if the search takes more than MAX_WORK, or if it depends on patterns of names.
    pub fn is_in(&mut self, schema: &'a Value) -> bool {
        let mut all = self.definitions.iter().chain([schema]);
        all.any(mentions_integer) && self.find(vec![Part::Schema(schema)]) == Found::Meeting
    }

    /// Returns false if the budget is spent.
    fn spend(&mut self, n: usize) -> bool {
        self.work += n + 1;
        self.work <= MAX_WORK
    }

    fn find(&mut self, set: Vec<Part<'a>>) -> Found {
        if !self.spend(set.len()) {
            return Found::Meeting;
        }
        let addresses: BTreeSet<_> = set.iter().map(Part::address).collect();
        let key: Vec<_> = addresses.into_iter().collect();
        if let Some(&found) = self.found.get(&key) {
            return found;
        }
        if self.depth >= MAX_DEPTH {
            return Found::Meeting;
        }
        self.found.insert(key.clone(), Found::Nothing);
        self.depth += 1;
        let found = self.find_in_choices(set, Chosen::default());
        self.depth -= 1;
        self.found.insert(key, found);
        found
    }

    /// todo: the parts whose branches are not chosen yet.
    fn find_in_choices(&mut self, mut todo: Vec<Part<'a>>, mut chosen: Chosen<'a>) -> Found {
        while let Some(part) = todo.pop() {
            let schema = match part {
                Part::Literal(value) => {
                    chosen.literals.push(value);
                    continue;
                }
                Part::Schema(Value::Bool(false)) => return Found::Impossible,
                Part::Schema(schema) => schema,
            };
            let Some(map) = schema.as_object() else {
                continue;
            };
            let n_values = map
                .get("enum")
                .and_then(Value::as_array)
                .map_or(0, Vec::len);
            if !self.spend(n_values) {
                return Found::Meeting;
            }
            chosen.schemas.push(schema);
            let target = map.get("$ref").and_then(|name| self.known.definition(name));
            todo.extend(target.map(Part::Schema));
            let all = map.get("allOf").and_then(Value::as_array);
            todo.extend(all.into_iter().flatten().map(Part::Schema));
            let branches = branches(map);
            if !branches.is_empty() {
                return self.find_in_branches(branches, &todo, &chosen);
            }
        }
        if !self.spend(chosen.schemas.len() * chosen.schemas.len()) {
            return Found::Meeting;
        }
        self.find_in_one(&chosen)
    }

    fn find_in_branches(
        &mut self,
        branches: Vec<Vec<Part<'a>>>,
        todo: &[Part<'a>],
        chosen: &Chosen<'a>,
    ) -> Found {
        let mut found = Found::Impossible;
        for branch in branches {
            let mut todo = todo.to_vec();
            todo.extend(branch);
            match self.find_in_choices(todo, chosen.clone()) {
                Found::Impossible => (),
                Found::Nothing => found = Found::Nothing,
                Found::Meeting => return Found::Meeting,
            }
        }
        found
    }

    fn find_in_one(&mut self, chosen: &Chosen<'a>) -> Found {
        let Some(kinds) = self.kinds(chosen) else {
            return Found::Impossible;
        };
        let is_integer = chosen.schemas.iter().any(|s| has_integer(s));
        let is_number = |v: &&Value| matches!(v, Value::Number(n) if is_large(n));
        let mut found = match is_integer && chosen.literals.iter().any(is_number) {
            true => Found::Meeting,
            false => Found::Nothing,
        };
        if kinds & ARRAY != 0 {
            found = self.with(found, kinds == ARRAY, |m| m.find_in_items(chosen));
        }
        if kinds & OBJECT != 0 && found != Found::Impossible {
            found = self.with(found, kinds == OBJECT, |m| m.find_in_properties(chosen));
        }
        found
    }

    /// only: whether the values are of this kind, so that all are impossible if these are.
    fn with(
        &mut self,
        found: Found,
        only: bool,
        inside: impl FnOnce(&mut Meeting<'a>) -> Found,
    ) -> Found {
        match inside(self) {
            Found::Meeting => Found::Meeting,
            Found::Impossible if only => Found::Impossible,
            _ => found,
        }
    }

    /// The kinds of values that all parts allow. None if no value satisfies all.
    fn kinds(&mut self, chosen: &Chosen<'a>) -> Option<u8> {
        let facts: Vec<Facts> = chosen
            .schemas
            .iter()
            .map(|s| Facts::of_own(s, &self.known))
            .collect();
        let kinds = facts.iter().fold(u8::MAX, |k, f| k & f.kinds());
        for (i, a) in facts.iter().enumerate() {
            if facts[..i].iter().any(|b| a.disjoint(b, &self.known, 0)) {
                return None;
            }
        }
        let Some(value) = chosen.literals.first() else {
            return (kinds != 0).then_some(kinds);
        };
        let text = canonical(value);
        self.work += text.len();
        let is_same = chosen.literals.iter().all(|v| canonical(v) == text);
        let is_listed = chosen.schemas.iter().all(|s| {
            let values = s.get("enum").and_then(Value::as_array);
            values.is_none_or(|list| list.iter().any(|v| canonical(v) == text))
        });
        let possible = is_same && is_listed && !facts.iter().any(|f| f.excludes(value));
        let own = match value {
            Value::Array(_) => ARRAY,
            Value::Object(_) => OBJECT,
            _ => 0,
        };
        possible.then_some(kinds & own)
    }

    fn find_in_items(&mut self, chosen: &Chosen<'a>) -> Found {
        let count = |key: &str, s: &Value| s.get(key).and_then(Value::as_u64);
        let least = chosen.schemas.iter().filter_map(|s| count("minItems", s));
        let least = least.max().unwrap_or(0);
        let most = chosen.schemas.iter().filter_map(|s| count("maxItems", s));
        let length = chosen.literals.iter().filter_map(|v| v.as_array()).next();
        let most = most.chain(length.map(|l| l.len() as u64)).min();
        let prefixes = chosen.schemas.iter().filter_map(|s| s.get("prefixItems"));
        let prefixes = prefixes.filter_map(|p| p.as_array()).map(Vec::len);
        // One more stands for all that follow.
        let n = length.map_or(prefixes.max().unwrap_or(0) + 1, Vec::len);
        let mut found = Found::Nothing;
        for i in (0..n).take_while(|&i| most.is_none_or(|most| (i as u64) < most)) {
            let mut set = Vec::new();
            self.work += chosen.schemas.len();
            for schema in &chosen.schemas {
                let own = schema.get("prefixItems").and_then(|p| p.get(i));
                set.extend(own.or(schema.get("items")).map(Part::Schema));
            }
            let values = chosen.literals.iter().filter_map(|v| v.get(i));
            set.extend(values.map(Part::Literal));
            match self.find(set) {
                Found::Impossible if (i as u64) < least => return Found::Impossible,
                Found::Impossible => break,
                Found::Meeting => found = Found::Meeting,
                Found::Nothing => (),
            }
        }
        found
    }

    fn find_in_properties(&mut self, chosen: &Chosen<'a>) -> Found {
        let required = chosen.schemas.iter().filter_map(|s| s.get("required"));
        let required = required.filter_map(Value::as_array).flatten();
        let required: BTreeSet<&str> = required.filter_map(Value::as_str).collect();
        let mut names = required.clone();
        for schema in &chosen.schemas {
            let own = schema.get("properties").and_then(Value::as_object);
            names.extend(own.into_iter().flat_map(Map::keys).map(String::as_str));
        }
        let value = chosen.literals.iter().find_map(|v| v.as_object());
        if let Some(value) = value {
            names = value.keys().map(String::as_str).collect();
        }
        let mut found = Found::Nothing;
        for name in names {
            self.work += chosen.schemas.len();
            match self.find_in_child(child(chosen, Some(name))) {
                Found::Impossible if required.contains(name) => return Found::Impossible,
                Found::Meeting => found = Found::Meeting,
                _ => (),
            }
        }
        if value.is_none() && self.find_in_child(child(chosen, None)) == Found::Meeting {
            found = Found::Meeting;
        }
        found
    }

    /// A meeting has two parts, so two of the possible ones are enough to find it.
    fn find_in_child(&mut self, child: Child<'a>) -> Found {
        let found = self.find(child.certain.clone());
        if found == Found::Impossible {
            return found;
        }
        for (i, a) in child.possible.iter().enumerate() {
            for b in &child.possible[..=i] {
                if a.owner == b.owner && a.is_rest != b.is_rest {
                    continue;
                }
                let mut set = child.certain.clone();
                set.extend([a.part, b.part]);
                if self.find(set) == Found::Meeting {
                    return Found::Meeting;
                }
            }
        }
        found
    }
}

/// May report a value of `enum` in these words.
fn mentions_integer(value: &Value) -> bool {
    match value {
        Value::Array(list) => list.iter().any(mentions_integer),
        Value::Object(map) => has_integer(value) || map.values().any(mentions_integer),
        _ => false,
    }
}

fn has_integer(schema: &Value) -> bool {
    match schema.get("type") {
        Some(Value::Array(list)) => list.iter().any(|t| t == "integer"),
        Some(one) => one == "integer",
        None => false,
    }
}

/// The choices in a schema: branches of `anyOf`, and values of `enum` that have a large number. Empty: none.
fn branches(map: &Map<String, Value>) -> Vec<Vec<Part<'_>>> {
    let any = map.get("anyOf").and_then(Value::as_array);
    let values = map.get("enum").and_then(Value::as_array);
    let (large, others): (Vec<&Value>, Vec<&Value>) =
        values.into_iter().flatten().partition(|v| has_large(v));
    let mut of_values: Vec<Option<Part>> = large.iter().map(|v| Some(Part::Literal(v))).collect();
    if of_values.is_empty() && any.is_none() {
        return Vec::new();
    }
    if large.is_empty() || !others.is_empty() {
        of_values.push(None);
    }
    let of_any: Vec<Option<Part>> = match any {
        Some(list) => list.iter().map(|s| Some(Part::Schema(s))).collect(),
        None => vec![None],
    };
    let mut out = Vec::with_capacity(of_any.len() * of_values.len());
    for branch in &of_any {
        for value in &of_values {
            out.push([*branch, *value].into_iter().flatten().collect());
        }
    }
    out
}

/// name: None for one that no schema has.
fn child<'a>(chosen: &Chosen<'a>, name: Option<&str>) -> Child<'a> {
    let mut child = Child::default();
    let member = |v: &'a Value| name.and_then(|name| v.get(name));
    for (owner, schema) in chosen.schemas.iter().enumerate() {
        let own = schema.get("properties").and_then(member);
        let patterns = schema.get("patternProperties").and_then(Value::as_object);
        let n_patterns = patterns.map_or(0, Map::len);
        let possible = |schema, is_rest| Possible {
            part: Part::Schema(schema),
            owner,
            is_rest,
        };
        let matched = patterns.into_iter().flat_map(Map::values);
        child.possible.extend(matched.map(|s| possible(s, false)));
        match (own, schema.get("additionalProperties")) {
            (Some(own), _) => child.certain.push(Part::Schema(own)),
            (None, Some(rest)) if n_patterns == 0 => child.certain.push(Part::Schema(rest)),
            (None, rest) => child.possible.extend(rest.map(|s| possible(s, true))),
        }
    }
    let values = chosen.literals.iter().filter_map(|v| member(v));
    child.certain.extend(values.map(Part::Literal));
    child
}
