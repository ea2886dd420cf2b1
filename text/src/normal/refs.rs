//! Where the references of a schema lead: pointers, anchors and embedded ids. Nothing is ever fetched.

use std::collections::HashMap;

use serde_json::Value;

/// A schema that a reference names.
#[derive(Clone)]
pub struct Target<'a> {
    pub schema: &'a Value,
    /// Its JSON pointer in the client's text.
    pub at: String,
    /// What its own `$id` is relative to.
    pub outer: String,
}

pub struct Refs<'a> {
    resources: HashMap<String, Target<'a>>,
    anchors: HashMap<(String, String), Target<'a>>,
    dynamic: HashMap<String, usize>,
    /// How often the schema has the keyword multipleOf.
    pub n_multiples: usize,
}

/// Keywords whose values are not schemas, whatever they contain.
const DATA: [&str; 5] = ["const", "enum", "default", "examples", "example"];

impl<'a> Refs<'a> {
    pub fn of(root: &'a Value) -> Refs<'a> {
        let mut refs = Refs {
            resources: HashMap::new(),
            anchors: HashMap::new(),
            dynamic: HashMap::new(),
            n_multiples: 0,
        };
        let base = base_of(root, "");
        let target = Target {
            schema: root,
            at: String::new(),
            outer: String::new(),
        };
        refs.resources.insert(String::new(), target.clone());
        refs.resources.insert(base, target);
        refs.index(root, "", "");
        refs
    }

    fn index(&mut self, value: &'a Value, at: &str, outer: &str) {
        match value {
            Value::Array(items) => {
                for (i, item) in items.iter().enumerate() {
                    self.index(item, &format!("{at}/{i}"), outer);
                }
            }
            Value::Object(map) => {
                let base = base_of(value, outer);
                let target = Target {
                    schema: value,
                    at: at.to_string(),
                    outer: outer.to_string(),
                };
                if base != outer {
                    self.resources
                        .entry(base.clone())
                        .or_insert_with(|| target.clone());
                }
                for key in ["$anchor", "$dynamicAnchor"] {
                    if let Some(name) = map.get(key).and_then(Value::as_str) {
                        self.anchors
                            .insert((base.clone(), name.to_string()), target.clone());
                        if key == "$dynamicAnchor" {
                            *self.dynamic.entry(name.to_string()).or_default() += 1;
                        }
                    }
                }
                if let Some(name) = id_of(value).and_then(|id| id.strip_prefix('#')) {
                    self.anchors
                        .insert((base.clone(), name.to_string()), target);
                }
                self.n_multiples += usize::from(map.contains_key("multipleOf"));
                for (key, value) in map {
                    if !DATA.contains(&key.as_str()) {
                        let at = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
                        self.index(value, &at, &base);
                    }
                }
            }
            _ => (),
        }
    }

    /// None if nothing in the text has this name.
    pub fn find(&self, reference: &str, base: &str) -> Option<Target<'a>> {
        let (uri, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let uri = if uri.is_empty() {
            base.to_string()
        } else {
            join(base, uri)
        };
        let resource = self.resources.get(&uri)?;
        let fragment = percent_decoded(fragment);
        if fragment.is_empty() {
            return Some(resource.clone());
        }
        let Some(pointer) = fragment.strip_prefix('/') else {
            let base = base_of(resource.schema, &resource.outer);
            return self.anchors.get(&(base, fragment)).cloned();
        };
        let mut target = resource.clone();
        for part in pointer.split('/') {
            let key = part.replace("~1", "/").replace("~0", "~");
            target.outer = base_of(target.schema, &target.outer);
            target.schema = match target.schema {
                Value::Object(map) => map.get(&key)?,
                Value::Array(items) => items.get(key.parse::<usize>().ok()?)?,
                _ => return None,
            };
            target.at = format!("{}/{part}", target.at);
        }
        Some(target)
    }

    /// A dynamic reference is a plain one if only one schema has its anchor.
    pub fn is_unique(&self, reference: &str) -> bool {
        match reference.split_once('#') {
            Some((_, name)) if !name.is_empty() && !name.starts_with('/') => {
                self.dynamic.get(name).copied().unwrap_or(0) <= 1
            }
            _ => true,
        }
    }
}

fn id_of(schema: &Value) -> Option<&str> {
    schema.get("$id").and_then(Value::as_str)
}

/// What references inside the schema are relative to.
pub fn base_of(schema: &Value, outer: &str) -> String {
    match id_of(schema).map(|id| id.split('#').next().unwrap_or_default()) {
        Some(id) if !id.is_empty() => join(outer, id),
        _ => outer.to_string(),
    }
}

fn is_absolute(uri: &str) -> bool {
    let scheme = uri.split(':').next().unwrap_or_default();
    scheme.len() < uri.len()
        && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
}

fn join(base: &str, uri: &str) -> String {
    if is_absolute(uri) || base.is_empty() {
        return uri.to_string();
    }
    let path_at = base.find("://").map_or(0, |i| {
        base[i + 3..].find('/').map_or(base.len(), |j| i + 3 + j)
    });
    if uri.starts_with('/') {
        return format!("{}{uri}", &base[..path_at]);
    }
    let folder = match base[path_at..].rfind('/') {
        Some(i) => &base[..=path_at + i],
        None => return format!("{}/{uri}", &base[..path_at]),
    };
    let mut parts: Vec<&str> = folder[path_at..].split('/').collect();
    parts.pop();
    for part in uri.split('/') {
        match part {
            "." => (),
            ".." if parts.len() > 1 => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("{}{}", &base[..path_at], parts.join("/"))
}

fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        let code = text
            .get(i + 1..i + 3)
            .and_then(|h| u8::from_str_radix(h, 16).ok());
        match (bytes[i], code) {
            (b'%', Some(code)) => {
                out.push(code);
                i += 3;
            }
            (byte, _) => {
                out.push(byte);
                i += 1;
            }
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| text.to_string())
}
