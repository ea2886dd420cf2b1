//! The string formats of JSON schema. Those that no table here names are unknown to the standard and have no effect.

use serde_json::{json, Value};

pub enum Format {
    /// A schema that enforces it, or a part of it that always is valid.
    Enforced(Value),
    Unknown,
    Refused,
}

// Leap days only in leap years: a validator computes the calendar.
const DATE: &str = concat!(
    r"(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])",
    r"|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))",
    r"|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)"
);
// Without leap seconds, which are valid at 23:59 UTC only.
const TIME: &str = concat!(
    r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?",
    r"(?:[zZ]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
);
const LABEL: &str = "[A-Za-z0-9](?:[A-Za-z0-9]|-[A-Za-z0-9]){0,31}";
const POINTER: &str = "(?:/(?:[^/~]|~[01])*)*";
const PATH_CHARACTER: &str = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})";
// A colon in the first segment would make what stands before it a scheme.
const FIRST_CHARACTER: &str = r"(?:[A-Za-z0-9._~!$&'()*+,;=@-]|%[0-9A-Fa-f]{2})";

pub fn lookup(name: &str) -> Format {
    let pattern = |p: String| Format::Enforced(json!({"pattern": format!("^(?:{p})$")}));
    let native = |name: &str| Format::Enforced(json!({"format": name}));
    match name {
        "ipv4" | "ipv6" | "uuid" | "uri" | "duration" => native(name),
        "iri" => native("uri"),
        "date" => pattern(DATE.to_string()),
        "time" => pattern(TIME.to_string()),
        "date-time" => pattern(format!("{DATE}[tT]{TIME}")),
        "hostname" | "idn-hostname" => Format::Enforced(
            json!({"pattern": format!("^(?:{LABEL}(?:\\.{LABEL})*)$"), "maxLength": 253}),
        ),
        "email" | "idn-email" => pattern(format!(
            "[A-Za-z0-9!#$%&'*+/=?^_`{{|}}~-]{{1,32}}(?:\\.[A-Za-z0-9!#$%&'*+/=?^_`{{|}}~-]{{1,30}}){{0,1}}\
             @{LABEL}(?:\\.{LABEL}){{0,4}}"
        )),
        "json-pointer" => pattern(POINTER.to_string()),
        "relative-json-pointer" => pattern(format!("(?:0|[1-9][0-9]*)(?:#|{POINTER})")),
        "uri-reference" | "iri-reference" => pattern(format!(
            "/?{FIRST_CHARACTER}+(?:/{PATH_CHARACTER}*)*(?:\\?(?:{PATH_CHARACTER}|[/?])*)?\
             (?:#(?:{PATH_CHARACTER}|[/?])*)?"
        )),
        "uri-template" | "regex" => Format::Refused,
        _ => Format::Unknown,
    }
}
