//! Tokens against goldens of the `tokenizers` package (data/tokens.json, make_data.py), and
//! streams against whole decodes.

use std::sync::Arc;

use serde_json::Value as Json;

use crate::detok::{self, Detok};
use crate::load::Text;

const NAMES: [&str; 6] = [
    "bytelevel",
    "fallback",
    "metaspace",
    "wordpiece",
    "wordlevel",
    "suffix",
];

fn data(name: &str) -> std::path::PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../tests/text/data", name]
        .iter()
        .collect()
}

fn open(name: &str) -> Arc<Text> {
    Arc::new(Text::open(&data(name)).unwrap_or_else(|e| panic!("{name}: {}", e.text)))
}

fn ids_of(value: &Json) -> Vec<u32> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_u64().unwrap() as u32)
        .collect()
}

/// xorshift: the same cases on every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 33) % u64::from(n)) as u32
    }
}

#[test]
fn goldens() {
    let file = std::fs::read_to_string(data("tokens.json")).unwrap();
    let goldens: Json = serde_json::from_str(&file).unwrap();
    for name in NAMES {
        let text = open(name);
        let golden = &goldens[name];
        assert_eq!(
            u64::from(text.vocabulary.n_ids()),
            golden["n_ids"],
            "{name}"
        );
        for case in golden["encode"].as_array().unwrap() {
            let input = case["text"].as_str().unwrap();
            let ids = text
                .vocabulary
                .encode(input, case["special"] == true)
                .unwrap();
            assert_eq!(ids, ids_of(&case["ids"]), "{name}: {input:?}");
        }
        for case in golden["decode"].as_array().unwrap() {
            let ids = ids_of(&case["ids"]);
            let got = detok::decode(&text.vocabulary, &ids, case["skip"] == true).unwrap();
            assert_eq!(got, case["text"].as_str().unwrap(), "{name}: {case}");
        }
    }
}

/// A sequence of ids that dwells on single bytes and on specials, which are few.
fn random_ids(random: &mut Random, n_ids: u32) -> Vec<u32> {
    let n = random.below(24);
    let low = random.below(3) == 0;
    (0..n)
        .map(|_| random.below(if low { n_ids.min(262) } else { n_ids + 3 }))
        .collect()
}

fn stream(text: &Arc<Text>, prompt: &[u32], ids: &[u32], skip: bool) -> String {
    let mut detok = Detok::open(text.clone(), prompt, skip).unwrap();
    let mut out = String::new();
    for id in ids {
        out.push_str(detok.push(*id).unwrap());
    }
    out.push_str(detok.finish().unwrap());
    assert_eq!(detok.finish().unwrap(), "");
    assert!(detok.push(0).is_err());
    out
}

/// The number of characters before each id's text, and before the end.
fn places(text: &Arc<Text>, prompt: &[u32], ids: &[u32], skip: bool) -> Vec<usize> {
    let mut detok = Detok::open(text.clone(), prompt, skip).unwrap();
    let (mut places, mut chars) = (Vec::new(), 0);
    for id in ids {
        places.push(chars + detok.held(Some(*id)));
        chars += detok.push(*id).unwrap().chars().count();
    }
    places.push(chars + detok.held(None));
    chars += detok.finish().unwrap().chars().count();
    assert_eq!(*places.last().unwrap(), chars);
    places
}

#[test]
fn places_count_what_is_held_back() {
    let of = |text: &Arc<Text>, tokens: &[&str]| -> Vec<u32> {
        let id = |t: &&str| text.vocabulary.token_id(t).unwrap_or_else(|| panic!("{t}"));
        tokens.iter().map(id).collect()
    };
    let bytes = open("bytelevel"); // € is the bytes â Ĥ ¬
    for (tokens, expected) in [
        (&["â", "Ĥ", "¬", "a"][..], &[0, 0, 0, 1, 2][..]),
        (&["a", "â", "Ĥ", "a"], &[0, 1, 1, 2, 3]),
        (&["â", "â", "Ĥ", "¬"], &[0, 1, 1, 1, 2]),
        (&["â", "Ĥ"], &[0, 0, 1]),
        (&["¬", "¬", "a"], &[0, 1, 2, 3]),
    ] {
        assert_eq!(places(&bytes, &[], &of(&bytes, tokens), true), expected, "{tokens:?}");
    }
    // A character that the prompt began is the prompt's where it is not finished.
    let prompt = of(&bytes, &["â"]);
    assert_eq!(places(&bytes, &prompt, &of(&bytes, &["a", "a"]), true), [0, 1, 2]);
    assert_eq!(places(&bytes, &prompt, &of(&bytes, &["Ĥ", "¬", "a"]), true), [0, 0, 1, 2]);

    let runs = open("fallback");
    for (tokens, expected) in [
        (&["<0xE2>", "<0x82>", "<0xAC>", "<0x61>", "▁a"][..], &[0, 0, 0, 1, 2, 4][..]),
        (&["<0x61>", "<0x61>", "<0x61>"], &[0, 1, 2, 3]),
        (&["<0xAC>", "<0xAC>", "▁a"], &[0, 1, 2, 4]),
    ] {
        assert_eq!(places(&runs, &[], &of(&runs, tokens), true), expected, "{tokens:?}");
    }
}

#[test]
fn a_stream_is_the_whole_decode() {
    for name in NAMES {
        let text = open(name);
        let vocabulary = &text.vocabulary;
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let mut replaced = 0;
        for _ in 0..4000 {
            let ids = random_ids(&mut random, vocabulary.n_ids());
            let skip = random.below(2) == 0;
            // The crate's own decode is the reference; it cannot take a list without tokens.
            let whole = match ids.iter().any(|id| vocabulary.token(*id, skip).is_some()) {
                true => vocabulary.tokenizer.decode(&ids, skip).unwrap(),
                false => String::new(),
            };
            replaced += usize::from(whole.contains('\u{fffd}'));
            assert_eq!(stream(&text, &[], &ids, skip), whole, "{name}: {ids:?}");
            assert_eq!(
                detok::decode(vocabulary, &ids, skip).unwrap(),
                whole,
                "{name}: {ids:?}"
            );
        }
        // The cases reach invalid bytes where the tokenizer has them.
        let has_bytes = ["bytelevel", "fallback"].contains(&name);
        assert_eq!(replaced > 500, has_bytes, "{name}: {replaced}");
    }
}

#[test]
fn a_prompt_is_context_only() {
    for name in NAMES {
        let text = open(name);
        let vocabulary = &text.vocabulary;
        let mut random = Random(0xd1b5_4a32_d192_ed03);
        let mut defined = 0;
        for _ in 0..4000 {
            let prompt = random_ids(&mut random, vocabulary.n_ids());
            let ids = random_ids(&mut random, vocabulary.n_ids());
            let skip = random.below(2) == 0;
            let before = detok::decode(vocabulary, &prompt, skip).unwrap();
            let whole = detok::decode(vocabulary, &[prompt.clone(), ids.clone()].concat(), skip);
            if let Some(rest) = whole.unwrap().strip_prefix(&before) {
                defined += 1;
                assert_eq!(
                    stream(&text, &prompt, &ids, skip),
                    rest,
                    "{name}: {prompt:?} {ids:?}"
                );
            }
        }
        assert!(defined > 2000, "{name}: {defined}");
    }
}

/// Characters come whole, as soon as their last byte has come.
#[test]
fn characters_are_not_split_or_late() {
    let text = open("bytelevel");
    let smile = text.vocabulary.encode("a😀é", false).unwrap();
    assert!(smile.len() >= 5, "the emoji is several tokens");
    let mut detok = Detok::open(text.clone(), &[], false).unwrap();
    let pieces: Vec<String> = smile
        .iter()
        .map(|id| detok.push(*id).unwrap().to_owned())
        .collect();
    assert_eq!(pieces.concat(), "a😀é");
    assert_eq!(detok.finish().unwrap(), "");
    assert!(pieces.iter().any(String::is_empty));

    // A prompt that ends inside a character: what follows gives the whole character.
    let cut = 2;
    assert_eq!(stream(&text, &smile[..cut], &smile[cut..], false), "😀é");
}

#[test]
fn bytes_of_tokens() {
    let byte_level = open("bytelevel")
        .vocabulary
        .token_bytes(open("bytelevel").vocabulary.token_id("Ġt").unwrap());
    assert_eq!(byte_level, b" t");
    let text = open("bytelevel");
    for id in 0..text.vocabulary.n_ids() + 2 {
        let bytes = text.vocabulary.token_bytes(id);
        let decoded = detok::decode(&text.vocabulary, &[id], false).unwrap();
        assert_eq!(String::from_utf8_lossy(&bytes), decoded, "{id}");
    }
    let text = open("fallback");
    let of = |token: &str| {
        text.vocabulary
            .token_bytes(text.vocabulary.token_id(token).unwrap())
    };
    assert_eq!(of("<0xE4>"), [0xe4]);
    assert_eq!(of("▁t"), b" t");
    assert_eq!(of("</s>"), b"</s>");
    assert_eq!(text.vocabulary.token_bytes(1 << 30), b"");
    let text = open("wordpiece");
    let id = text.vocabulary.token_id("##in").unwrap();
    assert_eq!(text.vocabulary.token_bytes(id), b"in");
}

#[test]
fn encoding_ignores_truncation_and_padding() {
    // data/fallback says: truncate to 4, pad to 16.
    let text = open("fallback");
    let ids = text
        .vocabulary
        .encode("The tide comes in twice a day", true)
        .unwrap();
    assert!(ids.len() > 4 && ids[0] == 1);
    assert_eq!(
        detok::decode(&text.vocabulary, &ids, true).unwrap(),
        "The tide comes in twice a day"
    );
    assert!(text.vocabulary.encode("", false).unwrap().is_empty());
    assert_eq!(text.vocabulary.encode("", true).unwrap(), [1]);
}
