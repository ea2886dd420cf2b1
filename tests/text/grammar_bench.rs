//! The time of masks in µs beside the crate used directly, in one process and in turns. tests/bench/grammar/masks.py runs it.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use llguidance::api::TopLevelGrammar;
use serde_json::Value as Json;

use crate::grammar::cache::{Grammars, Source};
use crate::grammar::matcher::Matcher;
use crate::grammar::workers::Caller;
use crate::grammar::Limits;
use crate::load::Text;

fn percentiles(mut times: Vec<Duration>) -> Json {
    times.sort();
    let at = |p: usize| times[(times.len() - 1) * p / 100].as_nanos() as f64 / 1000.0;
    serde_json::json!({"n": times.len(), "p50": at(50), "p99": at(99)})
}

/// The longest allowed token that the rest of the document begins with.
fn follow(text: &Text, words: &[u32], rest: &[u8]) -> Option<(u32, usize)> {
    let bits = |(i, word): (usize, &u32)| {
        let (i, word) = (i as u32, *word);
        (0..32)
            .filter(move |b| word >> b & 1 == 1)
            .map(move |b| i * 32 + b)
    };
    let allowed = words
        .iter()
        .enumerate()
        .filter(|(_, w)| **w != 0)
        .flat_map(bits);
    allowed
        .map(|id| (id, text.vocabulary.token_bytes(id)))
        .filter(|(_, bytes)| !bytes.is_empty() && rest.starts_with(bytes))
        .map(|(id, bytes)| (id, bytes.len()))
        .max_by_key(|(_, n)| *n)
}

/// QUIRE_BENCH_CASES: lines of {"name", "schema", "document"}.
#[test]
#[ignore = "a benchmark"]
fn masks() {
    let (text, eos) = open();
    let limits = Limits::default();
    let n_vocab = text.vocabulary.n_ids() as usize;
    let source = Source {
        text: text.clone(),
        n_vocab,
        eos,
        limits: limits.parser(),
    };
    let grammars = Arc::new(Grammars::new(source, limits.bounds(0, 0)).unwrap());
    let begin = Instant::now();
    let tokens = grammars.tokens().unwrap();
    println!(
        "{}",
        serde_json::json!({"open_ms": begin.elapsed().as_secs_f64() * 1e3, "n_vocab": n_vocab})
    );
    for line in std::fs::read_to_string(std::env::var("QUIRE_BENCH_CASES").unwrap())
        .unwrap()
        .lines()
    {
        let case: Json = serde_json::from_str(line).unwrap();
        let mut schema = case["schema"].clone();
        schema["x-guidance"] = serde_json::json!({"whitespace_flexible": false});
        let normal = format!("start: %json {schema}");
        let begin = Instant::now();
        let grammar = grammars.compile(normal.as_bytes(), &Caller::PATIENT).unwrap();
        let compile_ms = begin.elapsed().as_secs_f64() * 1e3;
        let document = case["document"].as_str().unwrap().as_bytes();
        let mut words = vec![0; n_vocab.div_ceil(32)];
        let (mut ours, mut free, mut direct, mut direct_free) = (vec![], vec![], vec![], vec![]);
        let (mut opening, mut ids) = (Vec::new(), Vec::new());
        for round in 0..20 {
            let begin = Instant::now();
            let mut matcher = Matcher::new(grammar.clone());
            opening.push(begin.elapsed());
            let init = TopLevelGrammar::from_lark(normal.clone());
            let mut parser = tokens.factory.create_parser(init).unwrap();
            parser.start_without_prompt();
            let mut done = 0;
            ids.clear();
            while done < document.len() {
                let forced = !matcher.forced(1).unwrap().is_empty();
                let mut took = [Duration::ZERO; 2];
                let mut mask = None;
                // The second one finds the caches warm.
                for who in [round % 2, 1 - round % 2] {
                    let begin = Instant::now();
                    if who == 0 {
                        matcher.mask(&mut words).unwrap();
                    } else {
                        mask = Some(parser.compute_mask().unwrap());
                    }
                    took[who] = begin.elapsed();
                }
                let (mask, [took, took_direct]) = (mask.unwrap(), took);
                ours.push(took);
                direct.push(took_direct);
                if !forced {
                    free.push(took);
                    direct_free.push(took_direct);
                    assert_eq!(words[..], mask.as_slice()[..words.len()]);
                }
                let rest = &document[done..];
                let (id, n) = follow(&text, &words, rest).unwrap_or_else(|| {
                    panic!(
                        "{}: nothing fits {}",
                        case["name"],
                        String::from_utf8_lossy(rest)
                    )
                });
                assert!(matcher.accept(id).unwrap());
                parser.consume_token(id).unwrap();
                ids.push(id);
                done += n;
            }
        }
        println!(
            "{}",
            serde_json::json!({
                "name": case["name"], "compile_ms": compile_ms, "open_us": percentiles(opening),
                "quire": percentiles(ours), "llguidance": percentiles(direct),
                "quire_free": percentiles(free), "llguidance_free": percentiles(direct_free), "ids": ids,
            })
        );
    }
}

/// QUIRE_BENCH_TOKENIZER: a model directory. Its text and the ids that end an answer.
pub fn open() -> (Arc<Text>, Vec<u32>) {
    let model = std::env::var("QUIRE_BENCH_TOKENIZER").unwrap();
    let text = Arc::new(Text::open(Path::new(&model)).unwrap());
    let eos = text.vocabulary.token_id("<|im_end|>").unwrap();
    (text, vec![eos])
}
