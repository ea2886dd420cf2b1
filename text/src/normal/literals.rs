//! Numbers and values of a schema.

use std::collections::HashSet;

use serde_json::{json, Value};

use super::path::Path;
use super::written::Inexact;
use crate::error::Result;

/// A minimum length or count above this is an error: no answer reaches it.
pub const MAX_LEAST: u64 = 1 << 16;
/// A maximum above this has no effect: no answer reaches it.
pub const UNREACHABLE: u64 = 1 << 24;
/// llguidance computes ten times a remainder with 32 bits, also the least common multiple of two.
const MAX_MULTIPLE: f64 = 400_000_000.0;
const MAX_MULTIPLE_OF_SEVERAL: f64 = 60_000.0;
/// llguidance has a state for each remainder, but few for factors of 10. A million of them take 9 s to compile, and 5 s are the limit.
const MAX_COMMON_MULTIPLE: u64 = 100_000;
/// Whole numbers up to here have exact doubles.
const EXACT: f64 = 9_007_199_254_740_992.0;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    Least,
    Most,
}

/// A whole number that is not negative, in any notation: 4, 4.0.
pub fn count(value: &Value, at: &Path) -> Result<u64> {
    let number = match value {
        Value::Number(n) => n.as_u64().or_else(|| {
            let n = n.as_f64()?;
            (n >= 0.0 && n.fract() == 0.0).then_some(n as u64)
        }),
        _ => None,
    };
    match number {
        Some(n) => Ok(n),
        None => at.invalid("not a whole number of 0 or more"),
    }
}

/// The nearest bound inside the client's that llguidance represents exactly.
pub fn bound(value: &Value, bound: Bound) -> Option<Value> {
    let number = value.as_f64()?;
    if number.abs() <= EXACT {
        return Some(match value.as_i64() {
            Some(n) => json!(n),
            None if number.fract() == 0.0 => json!(number as i64),
            None => json!(number),
        });
    }
    // llguidance computes with i64 and with 10 to the number of digits.
    let large = 999_999_999_999_999_872.0;
    let inside = match bound {
        Bound::Least if number > 0.0 => number.next_up(),
        Bound::Least => number.next_up().max(-large),
        Bound::Most if number < 0.0 => number.next_down(),
        Bound::Most => number.next_down().min(large),
    };
    Some(match inside.abs() <= large {
        true => json!(inside as i64),
        false => json!(inside),
    })
}

/// `alone`: the schema has no other multipleOf. `common`: the least common multiple of all so far, without factors of 10.
pub fn multiple(value: &Value, alone: bool, common: &mut u64, at: &Path) -> Result<Value> {
    let Some(number) = value.as_f64().filter(|n| *n > 0.0) else {
        return at.invalid("not a number above 0");
    };
    let most = if alone {
        MAX_MULTIPLE
    } else {
        MAX_MULTIPLE_OF_SEVERAL
    };
    // llguidance computes an integer and a power of ten in the same way.
    let mut scaled = number;
    let mut digits = 0;
    while scaled.fract() != 0.0 && digits < 15 {
        digits += 1;
        scaled *= 10.0;
    }
    let exact = format!("{scaled:.0}e-{digits}").parse::<f64>() == Ok(number);
    if scaled.fract() != 0.0 || scaled > most || !exact {
        return at.invalid("has too many digits to be enforced");
    }
    let mut factor = scaled as u64;
    while factor % 10 == 0 {
        factor /= 10;
    }
    *common *= factor / gcd(*common, factor);
    if *common > MAX_COMMON_MULTIPLE {
        return at.invalid(format!(
            "takes too long to be enforced: without factors of 10, the least common multiple may be {MAX_COMMON_MULTIPLE}"
        ));
    }
    Ok(match digits {
        0 => json!(scaled as u64),
        _ => json!(number),
    })
}

fn gcd(a: u64, b: u64) -> u64 {
    match b {
        0 => a,
        _ => gcd(b, a % b),
    }
}

/// Rejects a value of `const` or `enum` that llguidance does not write exactly.
pub fn exact(value: &Value, inexact: &Inexact, at: &Path) -> Result<()> {
    match value {
        Value::Number(n) if inexact.contains(n) => {
            return at.invalid(format!("{n} has too many digits to be enforced"));
        }
        Value::Array(items) => items.iter().try_for_each(|v| exact(v, inexact, at)),
        Value::Object(map) => map.values().try_for_each(|v| exact(v, inexact, at)),
        _ => Ok(()),
    }
}

/// Without repetitions; numbers of equal value are equal.
pub fn distinct(list: Vec<Value>) -> Vec<Value> {
    let mut seen = HashSet::new();
    list.into_iter()
        .filter(|v| seen.insert(canonical(v)))
        .collect()
}

/// Equal for equal values of JSON schema.
pub fn canonical(value: &Value) -> String {
    match value {
        Value::Number(n) => match (n.as_i64(), n.as_f64()) {
            (Some(n), _) => n.to_string(),
            (None, Some(f)) if f.fract() == 0.0 && f.abs() < EXACT => (f as i64).to_string(),
            _ => n.to_string(),
        },
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(canonical).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(map) => {
            let mut members: Vec<String> = map
                .iter()
                .map(|(k, v)| format!("{}:{}", json!(k), canonical(v)))
                .collect();
            members.sort();
            format!("{{{}}}", members.join(","))
        }
        other => other.to_string(),
    }
}
