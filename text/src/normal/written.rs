//! Whether llguidance writes a number of `const` or `enum` as the client does.
//!
//! llguidance reads numbers as doubles. It writes those of an i64 with all digits, and others as the shortest decimal
//! number of their double, without an exponent. A whole number must have the client's value. Other numbers are doubles
//! for every reader.

use std::collections::HashSet;

use serde_json::{Number, Value};

/// Whole numbers from here to its opposite have exact doubles.
const EXACT: f64 = 9_007_199_254_740_992.0;
/// llguidance computes the range of `"type": "integer"` with i64.
const TOO_LARGE: f64 = 9_223_372_036_854_775_808.0;

/// The whole numbers in a client's text that are not written as there: the bits of their doubles, and whether they are
/// an i64.
#[derive(Default)]
pub struct Inexact(HashSet<(u64, bool)>);

impl Inexact {
    pub fn of(json: &str) -> Inexact {
        let numbers = numbers_of(json).filter_map(|text| {
            let double: f64 = text.parse().ok()?;
            let is_i64 = text.parse::<i64>().is_ok();
            let answer = match is_i64 {
                true => (double as i64).to_string(),
                false => double.to_string(),
            };
            let is_exact = double.abs() < EXACT || decimal(text) == decimal(&answer);
            // llguidance negates the least i64 without an end.
            let ends = answer != i64::MIN.to_string();
            (!is_exact || !ends).then_some((double.to_bits(), is_i64))
        });
        Inexact(numbers.collect())
    }

    pub fn contains(&self, n: &Number) -> bool {
        let bits = n.as_f64().map(f64::to_bits);
        bits.is_none_or(|bits| self.0.contains(&(bits, n.is_i64())))
    }
}

fn numbers_of(json: &str) -> impl Iterator<Item = &str> {
    let bytes = json.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() {
            let start = at;
            at += 1;
            match bytes[start] {
                b'"' => {
                    while at < bytes.len() && bytes[at] != b'"' {
                        at += 1 + usize::from(bytes[at] == b'\\');
                    }
                    at += 1;
                }
                b'-' | b'0'..=b'9' => {
                    let rest = bytes[start..].iter();
                    let is_part =
                        |b: &&u8| matches!(b, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
                    at = start + rest.take_while(is_part).count();
                    return Some(&json[start..at]);
                }
                _ => (),
            }
        }
        None
    })
}

/// The sign, the digits without zeros around them, and the power of ten of the last one.
fn decimal(number: &str) -> (bool, String, i64) {
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let digits = mantissa.trim_start_matches('-');
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all = format!("{whole}{fraction}");
    let significant = all.trim_end_matches('0');
    let power = exponent.parse::<i64>().unwrap_or(0) - fraction.len() as i64;
    let power = power + (all.len() - significant.len()) as i64;
    let digits = significant.trim_start_matches('0').to_string();
    (mantissa.starts_with('-'), digits, power)
}

pub fn is_large(n: &Number) -> bool {
    n.as_f64().is_some_and(|n| n.abs() >= TOO_LARGE)
}

pub fn has_large(value: &Value) -> bool {
    match value {
        Value::Number(n) => is_large(n),
        Value::Array(items) => items.iter().any(has_large),
        Value::Object(map) => map.values().any(has_large),
        _ => false,
    }
}
