//! tokenizer.model against goldens of SentencePiece and of transformers (data/sentencepiece, make_sentencepiece.py),
//! and hostile files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value as Json;

use crate::detok::{self, Detok};
use crate::load::{identity, Text};
use crate::pieces::Pieces;
use crate::sentencepiece::{tokenizer_json, Beside};

fn data(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    root.join("../tests/text/data/sentencepiece").join(name)
}

fn open(name: &str) -> Arc<Text> {
    Arc::new(Text::open(&data(name)).unwrap_or_else(|e| panic!("{name}: {}", e.text)))
}

fn ids_of(value: &Json) -> Vec<u32> {
    let ids = value.as_array().unwrap().iter();
    ids.map(|id| id.as_u64().unwrap() as u32).collect()
}

fn goldens() -> serde_json::Map<String, Json> {
    let text = std::fs::read_to_string(data("goldens.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn stream(text: &Arc<Text>, ids: &[u32], skip: bool) -> String {
    let mut detok = Detok::open(text.clone(), &[], skip).unwrap();
    let mut out = String::new();
    for id in ids {
        out.push_str(detok.push(*id).unwrap());
    }
    out + detok.finish().unwrap()
}

#[test]
fn encodes_and_decodes_as_the_references() {
    let mut failures = Vec::new();
    for (name, golden) in goldens() {
        let text = open(&name);
        let cases = golden["encode"].as_array().unwrap();
        assert!(cases.len() >= 60, "{name}");
        for case in cases {
            let input = case["text"].as_str().unwrap();
            let ids = text
                .vocabulary
                .encode(input, case["special"] == true)
                .unwrap();
            if ids != ids_of(&case["ids"]) {
                failures.push(format!("{name}: {ids:?} for {case}"));
            }
        }
        for case in golden["decode"].as_array().unwrap() {
            let (ids, skip) = (ids_of(&case["ids"]), case["skip"] == true);
            let whole = detok::decode(&text.vocabulary, &ids, skip).unwrap();
            assert_eq!(stream(&text, &ids, skip), whole, "{name}: {case}");
            if whole != case["text"].as_str().unwrap() {
                failures.push(format!("{name}: {whole:?} for {case}"));
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} failures:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

#[test]
fn pieces_of_a_text_are_the_whole() {
    for (name, golden) in goldens() {
        let text = open(&name);
        let all: Vec<&str> = golden["encode"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| c["text"].as_str().unwrap())
            .collect();
        let input = all.join(" and ").repeat(3);
        let whole = text.vocabulary.encode(&input, true).unwrap();
        let mut pieces = Pieces::sized(text.clone(), true, 64);
        let mut ids = Vec::new();
        while let Some(piece) = pieces.next(&input).unwrap() {
            ids.extend(piece.ids);
        }
        assert_eq!(ids, whole, "{name}");
    }
}

/// A long text, and one without a space, end in ids or in an error, without more work than the pieces of 256 KiB.
#[test]
fn long_texts_end() {
    for (name, cuts) in [
        ("llama", true),
        ("gemma", true),
        ("unigram", false),
        ("rules", false),
    ] {
        let text = open(name);
        let encode = |input: &str| {
            let mut pieces = Pieces::new(text.clone(), true);
            let mut ids = 0;
            while let Some(piece) = pieces.next(input)? {
                ids += piece.ids.len();
            }
            Ok::<usize, crate::error::Error>(ids)
        };
        let words = "The tide comes in twice a day, and twice a day it goes out again.\n";
        assert!(encode(&words.repeat(1600)).unwrap() > 20_000, "{name}");
        assert!(encode(&("▁".repeat(80_000) + "x")).is_ok(), "{name}");
        assert_eq!(encode(&"water".repeat(200_000)).is_ok(), cuts, "{name}");
        assert_eq!(encode(&"a".repeat(1_000_000)).is_ok(), cuts, "{name}");
        let error = encode(&" ".repeat(1_000_000)).unwrap_err();
        assert!(
            error.text.contains("no place within 256 KiB"),
            "{name}: {}",
            error.text
        );
    }
}

fn refused(model: &[u8], config: Option<&str>, added: Option<&str>) -> String {
    let beside = Beside {
        config,
        special_tokens: None,
        added_tokens: added,
    };
    tokenizer_json(model, &beside)
        .err()
        .map_or_else(String::new, |e| e.text)
}

#[test]
fn hostile_files_are_refused() {
    let good = std::fs::read(data("llama/tokenizer.model")).unwrap();
    assert_eq!(refused(&good, None, None), "");
    let not = "tokenizer.model: is not a SentencePiece model";
    assert!(refused(b"IQ== 0\nIg== 1\n", None, None).starts_with(not));
    assert!(refused(&good[..good.len() / 2], None, None).starts_with(not));
    assert!(refused(b"", None, None).starts_with(not));
    // pieces { piece: "a" } twice; of type 9; a score that is no number; a model of words.
    let cases: [(&[u8], &str); 4] = [
        (
            b"\x0a\x03\x0a\x01a\x0a\x03\x0a\x01a\x12\x02\x18\x02",
            "pieces: \"a\" is token 0 and token 1",
        ),
        (b"\x0a\x05\x0a\x01a\x18\x09", "pieces[0].type: 9 is no type"),
        (
            b"\x0a\x08\x0a\x01a\x15\x00\x00\xc0\x7f",
            "pieces[0].score: is not a number",
        ),
        (
            b"\x0a\x03\x0a\x01a\x12\x02\x18\x03",
            "trainer_spec.model_type: 3 is not supported",
        ),
    ];
    for (model, field) in cases {
        let error = refused(model, None, None);
        assert!(
            error.starts_with(&format!("tokenizer.model: {field}")),
            "{error}"
        );
    }
    let error = refused(
        &good,
        Some(r#"{"added_tokens_decoder": {"x": {"content": "y"}}}"#),
        None,
    );
    assert!(
        error.starts_with("tokenizer_config.json: added_tokens_decoder: \"x\": is no id"),
        "{error}"
    );
    let error = refused(&good, None, Some(r#"{"<a>": -1}"#));
    assert!(
        error.starts_with("added_tokens.json: \"<a>\": is no id"),
        "{error}"
    );
    // Any damage to a file ends in a tokenizer or in an error.
    let mut seed = 12345u32;
    for _ in 0..300 {
        let mut damaged = good.clone();
        for _ in 0..3 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let at = seed as usize % damaged.len();
            damaged[at] = (seed >> 24) as u8;
        }
        refused(&damaged, None, None);
    }
}

/// A tokenizer.json whose normalizer has a map: its trie of 256 units, all zero but those given, and replacements.
fn with_map(
    units: &[(usize, u32)],
    replacements: &[u8],
    size: u32,
) -> std::result::Result<Text, String> {
    let mut map = vec![0; 4 + 4 * 256];
    map[..4].copy_from_slice(&size.to_le_bytes());
    for (at, unit) in units {
        map[4 + 4 * at..][..4].copy_from_slice(&unit.to_le_bytes());
    }
    map.extend(replacements);
    let file = std::fs::read_to_string(data("../fallback/tokenizer.json")).unwrap();
    let mut file: Json = serde_json::from_str(&file).unwrap();
    let part =
        serde_json::json!({"type": "Precompiled", "precompiled_charsmap": base64::encode(map)});
    file["normalizer"] = serde_json::json!({"type": "Sequence", "normalizers": [part]});
    Text::made(&file.to_string(), "{}").map_err(|e| e.text)
}

/// 'a' becomes "b": unit 'a' has a leaf, and its children begin at 'a' ^ 1.
#[test]
fn a_map_of_characters_is_checked() {
    const A: usize = b'a' as usize;
    let unit = A as u32 | 1 << 8 | 1 << 10;
    let text = with_map(&[(A, unit), (A ^ 1, 0)], b"b\0", 1024).unwrap();
    let ids = |s: &str| text.vocabulary.encode(s, false).unwrap();
    assert_eq!(ids("Th a"), ids("Th b"));
    let long = [b'b'; 2000];
    let outside = A as u32 | 1 << 10 | 1 << 20;
    let cases: [(&[(usize, u32)], &[u8], u32, &str); 8] = [
        (&[], b"", 0, "its trie cannot have 0 of 1024 bytes"),
        (&[], b"", u32::MAX, "its trie cannot have 4294967295 of"),
        (&[], b"", 1023, "its trie cannot have 1023 of"),
        (
            &[(0, 1 << 20)],
            b"",
            1024,
            "its trie of 256 units has no unit 1024",
        ),
        (
            &[(A, outside)],
            b"",
            1024,
            "its trie of 256 units has no unit 1120",
        ),
        (
            &[(A, unit), (A ^ 1, 9)],
            b"b\0",
            1024,
            "its trie names a replacement at byte 9",
        ),
        (
            &[(A, unit), (A ^ 1, 1)],
            "é\0".as_bytes(),
            1024,
            "its trie names a replacement at byte 1",
        ),
        (
            &[(A, unit)],
            &long,
            1024,
            "replacement at byte 0: has more than 1024 bytes",
        ),
    ];
    for (units, replacements, size, what) in cases {
        let error = with_map(units, replacements, size)
            .err()
            .unwrap_or_default();
        let field = "tokenizer.json: normalizer: precompiled_charsmap: ";
        assert!(error.starts_with(&format!("{field}{what}")), "{error}");
    }
}

#[test]
fn a_normalizer_puts_no_long_text_for_a_character() {
    let file = std::fs::read_to_string(data("../fallback/tokenizer.json")).unwrap();
    let mut file: Json = serde_json::from_str(&file).unwrap();
    for n in [1024, 1025] {
        let long = "x".repeat(n);
        for (field, part) in [
            (
                "content",
                serde_json::json!({"type": "Replace", "pattern": {"String": "e"}, "content": long}),
            ),
            (
                "prepend",
                serde_json::json!({"type": "Prepend", "prepend": long}),
            ),
        ] {
            file["normalizer"] = serde_json::json!({"type": "Sequence", "normalizers": [part]});
            let error = Text::made(&file.to_string(), "{}").err().map(|e| e.text);
            let expected = format!("tokenizer.json: normalizer: {field}: has more than 1024 bytes");
            assert_eq!(error, (n > 1024).then_some(expected));
        }
    }
}

#[test]
fn special_tokens_are_text_if_the_file_says_so() {
    let open = |config: &str| {
        let tokenizer = std::fs::read_to_string(data("../fallback/tokenizer.json")).unwrap();
        Text::made(&tokenizer, config).unwrap()
    };
    let bos = |text: &Text| {
        let ids = text.vocabulary.encode("a <s> b", false).unwrap();
        ids.contains(&text.vocabulary.token_id("<s>").unwrap())
    };
    assert!(bos(&open("{}")));
    assert!(!bos(&open(r#"{"split_special_tokens": true}"#)));
}

/// What transformers' tokenize("The tide") and tokenize(" x") are for classes that make their own tokenizer.
#[test]
fn a_prefix_space_is_added_as_the_class_does() {
    let cases = [
        ("bytelevel", "GPT2Tokenizer", "null", "Th e Ġt ide"),
        ("bytelevel", "GPT2TokenizerFast", "true", "Ġ Th e Ġt ide"),
        ("bytelevel", "Qwen2Tokenizer", "true", "Ġ Th e Ġt ide"),
        (
            "bytelevel",
            "PreTrainedTokenizerFast",
            "true",
            "Th e Ġt ide",
        ),
        ("fallback", "LlamaTokenizer", "true", "▁Th e▁t ide"),
        ("fallback", "LlamaTokenizerFast", "false", "Th e▁t ide"),
        (
            "fallback",
            "PreTrainedTokenizerFast",
            "false",
            "▁Th e▁t ide",
        ),
    ];
    for (name, class, adds, expected) in cases {
        let tokenizer = data(&format!("../{name}/tokenizer.json"));
        let tokenizer = std::fs::read_to_string(tokenizer).unwrap();
        let config = format!(r#"{{"tokenizer_class": "{class}", "add_prefix_space": {adds}}}"#);
        let text = Text::made(&tokenizer, &config).unwrap();
        let ids = text.vocabulary.encode("The tide", false).unwrap();
        let tokens: Vec<String> = ids
            .iter()
            .map(|id| text.vocabulary.token(*id, false).unwrap())
            .collect();
        assert_eq!(tokens.join(" "), expected, "{name} {class} {adds}");
        let decoded = detok::decode(&text.vocabulary, &ids, false).unwrap();
        assert_eq!(decoded.trim_start(), "The tide");
    }
}

#[test]
fn every_file_is_part_of_the_identity() {
    let place = std::env::temp_dir().join(format!("quire-sentencepiece-{}", std::process::id()));
    std::fs::create_dir_all(&place).unwrap();
    let mut seen = Vec::new();
    for (name, content) in [
        (
            "tokenizer.model",
            std::fs::read(data("llama/tokenizer.model")).unwrap(),
        ),
        ("added_tokens.json", br#"{"<more>": 560}"#.to_vec()),
        ("tokenizer_config.json", b"{}".to_vec()),
        (
            "tokenizer.model",
            std::fs::read(data("gemma/tokenizer.model")).unwrap(),
        ),
    ] {
        std::fs::write(place.join(name), content).unwrap();
        let text = Text::open(&place).unwrap();
        seen.push(identity(&place).unwrap());
        seen.push(text.digest);
    }
    std::fs::remove_dir_all(&place).unwrap();
    let n = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), n);
}
