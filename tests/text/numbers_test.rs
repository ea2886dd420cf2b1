//! Numbers of `const` and `enum`: each is answered with its value, or rejected.

use serde_json::{json, Value};

use crate::normal::{normal, Form, Whitespace};
use crate::normal_test::{check, matcher, refusal};

/// A number as text: its sign, digits without zeros around them, and the power of ten of the last digit.
fn decimal(number: &str) -> (bool, String, i64) {
    let (mantissa, power) = number.split_once('e').unwrap_or((number, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}").replace('-', "");
    let short = digits.trim_end_matches('0');
    let power =
        power.parse::<i64>().unwrap() + (digits.len() - short.len()) as i64 - fraction.len() as i64;
    let digits = short.trim_start_matches('0').to_string();
    if digits.is_empty() {
        return (false, digits, 0);
    }
    (number.starts_with('-'), digits, power)
}

/// The only text that a grammar allows.
fn only_answer(grammar: &str) -> String {
    let mut matcher = matcher(grammar).unwrap_or_else(|e| panic!("{e}\n{grammar}"));
    let mut answer = String::new();
    while !matcher.is_stopped() {
        let mask = matcher.compute_mask().unwrap();
        let next: Vec<u32> = (0..256).filter(|byte| mask.is_allowed(*byte)).collect();
        match next[..] {
            [byte] => {
                answer.push(char::from(byte as u8));
                matcher.consume_token(byte).unwrap();
            }
            _ => break,
        }
    }
    assert!(matcher.is_accepting().unwrap(), "{answer}\n{grammar}");
    answer
}

/// What llguidance answers without any change of the schema.
fn plain_answer(schema: &str) -> String {
    only_answer(&format!("start: %json {schema}"))
}

fn answers_right(number: &str, answer: &str) -> bool {
    let (_, _, power) = decimal(number);
    let is_whole = power >= 0 || number.parse::<f64>().unwrap().abs() >= 9e15;
    match is_whole {
        true => decimal(number) == decimal(answer),
        false => number.parse::<f64>() == answer.parse::<f64>(),
    }
}

fn numbers_to_try() -> Vec<String> {
    let mut state = 46u64;
    let mut random = move || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        state ^ state >> 29
    };
    let mut out = Vec::new();
    for _ in 0..100 {
        let double = f64::from_bits(random());
        let whole = random() >> (random() % 64);
        let power = random() % 290;
        if double.is_finite() {
            out.extend([format!("{double:e}"), format!("{double}")]);
        }
        let sign = ["", "-"][(random() % 2) as usize];
        out.push(format!("{sign}{whole}"));
        out.push(format!("{sign}{whole}.0"));
        out.push(format!(
            "{sign}{}",
            u128::from(whole) * u128::from(random())
        ));
        out.push(format!("{sign}{}.{whole}", random() % 1000));
        out.push(format!("{sign}{}e{power}", whole % 1000));
        out.push(format!("{sign}{}", whole as f64));
    }
    let edges = [
        "9007199254740992",
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551616",
        "1e19",
        "1e22",
        "1e23",
        "10000000000000000000",
        "1e300",
        "1.7976931348623157e308",
        "9223372036854774784",
        "9223372036854774784.0",
        "9223372036854775808.0",
        "9007199254740993.0",
        "9007199254740992.5",
        "5e-324",
        "0.1",
        "1e15",
        "123456789e-2",
    ];
    out.extend(edges.iter().flat_map(|n| [n.to_string(), format!("-{n}")]));
    out
}

#[test]
fn numbers_are_answered_exactly_or_refused() {
    let (mut n_refused, mut n_large) = (0, 0);
    let numbers = numbers_to_try();
    for number in &numbers {
        let schema = format!("{{\"const\":{number}}}");
        match normal(
            Form::JsonSchema,
            schema.as_bytes(),
            Whitespace::Compact,
            None,
        ) {
            Ok(grammar) => {
                let answer = only_answer(&grammar);
                assert!(answers_right(number, &answer), "{number} becomes {answer}");
                n_large += usize::from(number.parse::<f64>().unwrap().abs() >= 1e19);
            }
            Err(e) => {
                assert!(
                    e.text.ends_with("has too many digits to be enforced"),
                    "{}",
                    e.text
                );
                n_refused += 1;
                // llguidance recurses without an end for the first.
                if number != "-9223372036854775808" && number != "-9223372036854775807" {
                    let answer = plain_answer(&schema);
                    assert!(!answers_right(number, &answer), "{number} is refused");
                }
            }
        }
    }
    assert!(
        n_refused > 60 && n_large > 60,
        "{n_refused} and {n_large} of {}",
        numbers.len()
    );
}

#[test]
fn large_numbers_are_no_integers() {
    let accepted = [
        (r#"{"type":"number","enum":[1e300,5]}"#, "5"),
        (
            r#"{"type":"object","properties":{"a":{"type":"integer"},"b":{"const":-1e19}},"required":["a","b"],"additionalProperties":false}"#,
            r#"{"a":7,"b":-10000000000000000000}"#,
        ),
        (
            r##"{"anyOf":[{"type":"integer"},{"$ref":"#/$defs/a"}],"$defs":{"a":{"const":{"x":[1e19]}}}}"##,
            r#"{"x":[10000000000000000000]}"#,
        ),
        (
            r#"{"type":"object","properties":{"b":{"const":1}},"required":["b"],"anyOf":[{"properties":{"a":{"type":"integer"}},"required":["a"]},{"properties":{"a":{"const":1e300}}}]}"#,
            r#"{"b":1,"a":7}"#,
        ),
        (r#"{"type":"integer","maximum":99,"enum":[1e19,5]}"#, "5"),
        (
            r#"{"type":["integer","string"],"anyOf":[{"const":[1e19]},{"const":"a"}]}"#,
            r#""a""#,
        ),
        (
            r##"{"allOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/a"},{"required":["k"]}],"$defs":{"a":{"anyOf":[{"type":"object","properties":{"k":{"const":"i"},"v":{"type":"integer"}},"required":["k","v"]},{"type":"object","properties":{"k":{"const":"l"},"v":{"const":1e19}},"required":["k","v"]}]}}}"##,
            r#"{"k":"l","v":10000000000000000000}"#,
        ),
        (
            r#"{"allOf":[{"anyOf":[{"type":"object","properties":{"k":{"const":"i"},"v":{"type":"integer"}},"required":["k","v"]},{"type":"object","properties":{"k":{"const":"l"},"v":{"type":"number"}},"required":["k","v"]}]},{"anyOf":[{"type":"object","properties":{"k":{"const":"i"},"v":{"type":"number"}},"required":["k","v"]},{"type":"object","properties":{"k":{"const":"l"},"v":{"const":1e19}},"required":["k","v"]}]}]}"#,
            r#"{"k":"l","v":10000000000000000000}"#,
        ),
        (
            r#"{"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"allOf":[{"items":{"enum":[1e19,3,"a"]},"prefixItems":[{"maximum":9}]}],"minItems":2}"#,
            r#"[3,"a"]"#,
        ),
        (
            r#"{"const":-9223372036854775808.0,"default":{"a":"\"1e19"},"minimum":1e300}"#,
            "",
        ),
        (
            r#"{"default":1234567890123456789,"const":1e19}"#,
            "10000000000000000000",
        ),
        (
            r#"{"title":"\\\"1234567890123456789","const":"1234567890123456789"}"#,
            "\"1234567890123456789\"",
        ),
    ];
    for (schema, answer) in accepted {
        match answer {
            "" => assert!(refusal(Form::JsonSchema, schema).contains("too many digits")),
            _ => check(Form::JsonSchema, schema, &[answer], &["1e19", "1e300"]),
        }
    }
    let refused = [
        r#"{"type":"integer","const":-1e300}"#,
        r#"{"enum":[1,1e19],"type":["string","integer"]}"#,
        r#"{"allOf":[{"const":[1e300]},{"items":{"type":"integer"}}]}"#,
        r##"{"$ref":"#/$defs/a","type":"integer","$defs":{"a":{"anyOf":[{"const":-1e300},{"type":"string"}]}}}"##,
        r#"{"properties":{"a":{"const":-1e300}},"patternProperties":{"^a|b+$":{"type":"integer"}}}"#,
        r#"{"type":"integer","not":{"enum":[-1e300,-1e299]}}"#,
        r#"{"oneOf":[{"type":"integer"},{"const":-1e300}]}"#,
        r#"{"items":{"type":"object","properties":{"a":{"type":"integer","enum":[-1e19]}}}}"#,
    ];
    for schema in refused {
        let why = refusal(Form::JsonSchema, schema);
        assert!(why.contains("a number of 2^63 or more"), "{schema}: {why}");
    }
}

/// A place in a value, and whether the type integer (true) or a large number of an enum (false) holds there.
type Way = std::collections::BTreeSet<(String, bool)>;

fn both(a: Vec<Way>, b: &[Way]) -> Vec<Way> {
    let pairs = a.iter().flat_map(|a| b.iter().map(move |b| a | b));
    let unique: std::collections::BTreeSet<Way> = pairs.collect();
    unique.into_iter().collect()
}

/// The places of large numbers in a value of an enum.
fn large_in(value: &Value, at: &str) -> Way {
    match value {
        Value::Number(n) if n.as_f64().is_some_and(|n| n > 1e19) => {
            Way::from([(at.to_string(), false)])
        }
        Value::Array(list) => list
            .iter()
            .enumerate()
            .flat_map(|(i, part)| large_in(part, &format!("{at}/{i}")))
            .collect(),
        Value::Object(map) => map
            .iter()
            .flat_map(|(name, part)| large_in(part, &format!("{at}/{name}")))
            .collect(),
        _ => Way::new(),
    }
}

/// The ways in which a value satisfies a schema, one for each choice of branches. Empty: it does not.
fn ways(value: &Value, schema: &Value, root: &Value, at: &str) -> Vec<Way> {
    let mut out = vec![Way::new()];
    for (key, rule) in schema.as_object().unwrap() {
        let schemas = || rule.as_array().unwrap().iter();
        let number = value.as_f64();
        let holds = match key.as_str() {
            "type" => match rule.as_str().unwrap() {
                "integer" => number.is_some_and(|n| n.fract() == 0.0),
                "string" => value.is_string(),
                "array" => value.is_array(),
                _ => value.is_object(),
            },
            "enum" => schemas().any(|v| v == value),
            "maximum" => number.is_none_or(|n| n <= rule.as_f64().unwrap()),
            "minItems" => value.as_array().is_none_or(|a| !a.is_empty()),
            "required" => value
                .as_object()
                .is_none_or(|o| schemas().all(|name| o.contains_key(name.as_str().unwrap()))),
            _ => true,
        };
        if !holds {
            return Vec::new();
        }
        let mut inside = |name: &str, part: &Value, rule: &Value| {
            out = both(
                std::mem::take(&mut out),
                &ways(part, rule, root, &format!("{at}/{name}")),
            );
        };
        match (key.as_str(), value) {
            ("type", _) if rule == "integer" => {
                out = both(out, &[Way::from([(at.to_string(), true)])])
            }
            ("enum", _) => out = both(out, &[large_in(value, at)]),
            ("allOf", _) => schemas()
                .for_each(|s| out = both(std::mem::take(&mut out), &ways(value, s, root, at))),
            ("anyOf", _) => {
                let all: Vec<Way> = schemas().flat_map(|s| ways(value, s, root, at)).collect();
                out = both(out, &all);
            }
            ("$ref", _) => out = both(out, &ways(value, &root["$defs"]["a"], root, at)),
            ("properties", Value::Object(map)) => {
                for (name, rule) in rule.as_object().unwrap() {
                    map.get(name)
                        .into_iter()
                        .for_each(|part| inside(name, part, rule));
                }
            }
            ("items", Value::Array(list)) => {
                let n = schema
                    .get("prefixItems")
                    .map_or(0, |p| p.as_array().unwrap().len());
                for (i, part) in list.iter().enumerate().skip(n) {
                    inside(&i.to_string(), part, rule);
                }
            }
            ("prefixItems", Value::Array(list)) => {
                for (i, (part, rule)) in list.iter().zip(schemas()).enumerate() {
                    inside(&i.to_string(), part, rule);
                }
            }
            _ => (),
        }
    }
    out
}

fn meets(way: &Way) -> bool {
    way.iter()
        .any(|(at, is_integer)| *is_integer && way.contains(&(at.clone(), false)))
}

fn any_schema(random: &mut dyn FnMut(u64) -> u64, depth: u64) -> Value {
    let leaf = |n| match n {
        0 | 1 => json!({"type": "integer"}),
        2 | 3 => json!({"enum": [1e300]}),
        4 => json!({"enum": [1e300, "a", 5]}),
        5 => json!({"type": "integer", "maximum": 100}),
        6 => json!({"type": "string"}),
        7 => json!({"$ref": "#/$defs/a"}),
        _ => json!({"maximum": 7}),
    };
    if depth == 0 {
        return leaf(random(9));
    }
    let n = 1 + random(3);
    let deeper: Vec<Value> = (0..n).map(|_| any_schema(random, depth - 1)).collect();
    let first = deeper[0].clone();
    let tag = ["a", "b"][random(2) as usize];
    let least = random(2);
    match random(9) {
        8 => json!({"enum": ["b", 5, [1e300], {"a": 1e300}]}),
        0 | 1 => json!({"allOf": deeper}),
        2 | 3 => json!({"anyOf": deeper}),
        4 => {
            json!({"type": "object", "properties": {"k": {"enum": [tag]}, "a": first}, "required": ["k"]})
        }
        5 => json!({"properties": {"a": first}, "anyOf": deeper}),
        6 => json!({"type": "array", "prefixItems": [first], "minItems": least}),
        _ => json!({"items": first, "allOf": deeper}),
    }
}

/// Scalars, and arrays and objects of the values.
fn containers(of: &[Value]) -> Vec<Value> {
    let scalars = [json!(1e300), json!(5), json!("a"), json!("b")];
    let mut out = scalars.to_vec();
    out.extend([json!([]), json!({}), json!({"k": "a"}), json!({"k": "b"})]);
    for a in of {
        out.extend([
            json!([a]),
            json!({"a": a}),
            json!({"k": "a", "a": a}),
            json!({"k": "b", "a": a}),
        ]);
        out.extend(scalars.iter().flat_map(|s| [json!([s, a]), json!([a, s])]));
    }
    out
}

#[test]
fn large_numbers_are_refused_only_where_they_meet_integers() {
    let mut state = 7u64;
    let mut random = move |n: u64| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) % n
    };
    let values = containers(&containers(&[json!(1e300), json!(5), json!("a")]));
    let (mut n_refused, mut n_accepted) = (0, 0);
    for _ in 0..400 {
        let mut schema = any_schema(&mut random, 2);
        let part = any_schema(&mut random, 0);
        schema["$defs"] =
            json!({"a": if part.get("$ref").is_some() { json!({"enum": [1e300]}) } else { part }});
        let text = schema.to_string();
        let refused = match normal(Form::JsonSchema, text.as_bytes(), Whitespace::Compact, None) {
            Ok(_) => false,
            Err(e) if e.text.contains("a number of 2^63 or more") => true,
            Err(_) => continue,
        };
        let met = values
            .iter()
            .any(|v| ways(v, &schema, &schema, "").iter().any(meets));
        assert_eq!(refused, met, "{text}");
        n_refused += usize::from(refused);
        n_accepted += usize::from(!refused && text.contains("1e+300") && text.contains("integer"));
    }
    assert!(
        n_refused > 20 && n_accepted > 20,
        "{n_refused} and {n_accepted}"
    );
}

/// However many there are, and although they are too many for the search.
#[test]
fn large_numbers_without_an_integer_are_accepted() {
    let part = |i: usize| json!({"properties": {format!("p{i}"): {"const": 1e19}}});
    let parts: Vec<Value> = (0..2000).map(part).collect();
    let mut schema = json!({"type": "object", "allOf": parts});
    let read = |schema: &Value| {
        let text = schema.to_string();
        normal(Form::JsonSchema, text.as_bytes(), Whitespace::Compact, None)
    };
    assert!(read(&schema).is_ok());
    schema["properties"] = json!({"z": {"type": "integer"}});
    assert!(read(&schema).unwrap_err().text.contains("a number of 2^63"));
}

#[test]
fn multiples_compile_in_bounded_time() {
    for multiple in ["30000", "29989", "400000000", "4096", "90000", "65536"] {
        let schema = format!("{{\"type\":\"integer\",\"multipleOf\":{multiple}}}");
        check(Form::JsonSchema, &schema, &["0", multiple], &["1", "0.5"]);
    }
    let together =
        r#"{"properties":{"a":{"multipleOf":7},"b":{"multipleOf":21},"c":{"multipleOf":700}}}"#;
    check(
        Form::JsonSchema,
        together,
        &[r#"{"a":14}"#],
        &[r#"{"a":15}"#],
    );
    // A thread of the compiler was busy with these long after the limit of 5 s.
    for schema in [
        r#"{"type":"integer","multipleOf":1000003}"#,
        r#"{"multipleOf":4294967}"#,
        r#"{"multipleOf":16777216}"#,
        r#"{"type":"integer","allOf":[{"multipleOf":59999},{"multipleOf":59997}]}"#,
    ] {
        let why = refusal(Form::JsonSchema, schema);
        assert!(why.contains("/multipleOf: takes too long"), "{why}");
    }
    // llguidance answered neither 0 nor the number itself.
    let why = refusal(
        Form::JsonSchema,
        r#"{"type":"integer","multipleOf":1000000000}"#,
    );
    assert!(why.contains("/multipleOf: has too many digits"), "{why}");
}
