//! The time from a schema to its grammar in ms beside the crate used directly, in one process and in turns.
//! tests/bench/structured/compile.py runs it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use llguidance::api::TopLevelGrammar;
use serde_json::Value as Json;

use crate::grammar::compile::{compile, Patience};
use crate::grammar::tokens::Tokens;
use crate::grammar::Limits;
use crate::grammar_bench::open;
use crate::normal::{normal, Form, Whitespace};

/// The first mask of a schema by the crate alone, in ms; None: the crate refuses it.
fn direct_ms(tokens: &Tokens, mut schema: Json) -> Option<f64> {
    schema["x-guidance"] = serde_json::json!({"whitespace_flexible": false});
    let begin = Instant::now();
    let init = TopLevelGrammar::from_json_schema(schema);
    let mut parser = tokens.factory.create_parser(init).ok()?;
    parser.start_without_prompt();
    parser.compute_mask().ok()?;
    Some(begin.elapsed().as_secs_f64() * 1e3)
}

/// Schema to a compiled grammar with its first mask, beside the crate used directly. QUIRE_BENCH_SCHEMAS: lines of
/// {"name", "schema"}.
#[test]
#[ignore = "a benchmark"]
fn compiles() {
    let (text, eos) = open();
    let limits = Limits::default();
    let n_vocab = text.vocabulary.n_ids() as usize;
    let tokens = Arc::new(Tokens::new(text, n_vocab, &eos, limits.parser()).unwrap());
    let path = std::env::var("QUIRE_BENCH_SCHEMAS").unwrap();
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let case: Json = serde_json::from_str(line).unwrap();
        let schema = serde_json::to_vec(&case["schema"]).unwrap();
        let (mut normals, mut totals, mut directs) = (vec![], vec![], vec![]);
        for _ in 0..5 {
            let begin = Instant::now();
            let lark = normal(Form::JsonSchema, &schema, Whitespace::Compact, None).unwrap();
            normals.push(begin.elapsed().as_secs_f64() * 1e3);
            let patience = Patience::new(Duration::from_secs(60));
            compile(&tokens, &lark, &patience).unwrap();
            totals.push(begin.elapsed().as_secs_f64() * 1e3);
            directs.extend(direct_ms(&tokens, case["schema"].clone()));
        }
        let median = |times: &mut Vec<f64>| {
            times.sort_by(f64::total_cmp);
            times.get(times.len() / 2).copied()
        };
        println!(
            "{}",
            serde_json::json!({"name": case["name"], "bytes": schema.len(), "normal_ms": median(&mut normals),
                "quire_ms": median(&mut totals), "llguidance_ms": median(&mut directs)})
        );
    }
}
