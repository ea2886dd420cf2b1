//! Pieces against the whole: a text that is cut at every place where it may be has the ids that the crate gives the
//! whole of it. And the least number of tokens against how many there are.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{json, Value as Json};

use crate::chat::{Templates, TokenStrings};
use crate::follow::Follow;
use crate::load::Text;
use crate::pieces::{Pieces, MAX_PIECE_BYTES};
use crate::tokenize::Vocabulary;

/// xorshift: the same cases on every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 33) % n as u64) as usize
    }
}

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const CL100K: &str = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";
const O200K: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const DEEPSEEK: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;
const BLOOM: &str = r" ?[^(\s|[.,!?…。，、।۔،])]+";

/// The parts of random texts: each class of the patterns, characters whose class depends on their neighbours,
/// characters that normalizers change, and added tokens.
const SCRAPS: [&str; 46] = [
    "a",
    "B",
    "s",
    "'",
    "'s",
    "'LL",
    "re",
    " ",
    "  ",
    "\n",
    "\r\n",
    "\t",
    "1",
    "23",
    "456",
    ".",
    "!",
    ",",
    "/",
    "-",
    "é",
    "e\u{301}",
    "\u{301}",
    "中",
    "，",
    "中。文",
    "—",
    "…",
    "ſ",
    "ß",
    "\u{a0}",
    "\u{3000}",
    "😀",
    "\u{200d}",
    "ก",
    "กิ",
    "²",
    "\u{212a}",
    "<x>",
    "<|im_end|>",
    "two words",
    "<",
    "x>",
    "▁",
    "\u{1100}\u{1161}",
    "\u{11a8}",
];

fn scramble(random: &mut Random, n: usize) -> String {
    let common = random.below(SCRAPS.len());
    (0..n)
        .map(|_| match random.below(4) {
            0 => SCRAPS[common], // runs
            1 => [" ", "a", "1", "\n"][random.below(4)],
            _ => SCRAPS[random.below(SCRAPS.len())],
        })
        .collect()
}

fn byte_level(regex: bool) -> Json {
    json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": regex})
}

fn split(pattern: &str) -> Json {
    json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false})
}

fn sequence(parts: &[Json]) -> Json {
    json!({"type": "Sequence", "pretokenizers": parts})
}

/// A vocabulary that merges whatever it may: every pair of the alphabet, and many pairs of pairs, so that a boundary
/// that moves shows in the ids.
fn greedy_model(alphabet: &[char], random: &mut Random, more: Json) -> Json {
    let mut tokens: Vec<String> = alphabet.iter().map(char::to_string).collect();
    let mut merges = Vec::new();
    let mut busy: Vec<char> = SCRAPS.concat().chars().collect();
    busy.retain(|c| alphabet.contains(c));
    busy.extend(alphabet.iter().rev().take(40));
    for _ in 0..1500 {
        let a = busy[random.below(busy.len())].to_string();
        let b = busy[random.below(busy.len())].to_string();
        let pick = |random: &mut Random, one: String, tokens: &[String]| match random.below(3) {
            0 => tokens[random.below(tokens.len())].clone(),
            _ => one,
        };
        let (a, b) = (pick(random, a, &tokens), pick(random, b, &tokens));
        let both = format!("{a}{b}");
        if a.len() + b.len() < 24 && !tokens.contains(&both) {
            merges.push(json!([a, b]));
            tokens.push(both);
        }
    }
    let vocab: serde_json::Map<String, Json> = tokens
        .into_iter()
        .enumerate()
        .map(|(i, token)| (token, json!(i)))
        .collect();
    let mut model = json!({"type": "BPE", "vocab": vocab, "merges": merges});
    for (key, value) in more.as_object().unwrap() {
        model[key] = value.clone();
    }
    model
}

fn added(content: &str, more: Json) -> Json {
    let mut token = json!({"id": 0, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
                           "normalized": false, "special": true});
    for (key, value) in more.as_object().unwrap() {
        token[key] = value.clone();
    }
    token
}

fn text_of(tokenizer: &Json) -> Arc<Text> {
    Arc::new(Text::made(&tokenizer.to_string(), "{}").unwrap_or_else(|e| panic!("{}", e.text)))
}

fn byte_text(normalizer: Json, pre_tokenizer: Json) -> Arc<Text> {
    let alphabet: Vec<char> = crate::bytelevel::alphabet().collect();
    let model = greedy_model(&alphabet, &mut Random(0x9e37_79b9_7f4a_7c15), json!({}));
    text_of(&json!({
        "version": "1.0", "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "model": model,
        "added_tokens": [added("<x>", json!({})), added("<|im_end|>", json!({"rstrip": true})),
                         added("two words", json!({"normalized": true, "single_word": true})),
                         added("/-", json!({"lstrip": true}))],
    }))
}

/// SentencePiece as tokenizer.json has it: characters, merges and no splits.
fn plain_text(normalizer: Json, pre_tokenizer: Json, post_processor: Json) -> Arc<Text> {
    let mut alphabet: Vec<char> = SCRAPS.concat().chars().filter(|c| *c != ' ').collect();
    alphabet.extend("bcdefgh▁".chars());
    alphabet.sort_unstable();
    alphabet.dedup();
    alphabet.retain(|c| *c != '😀' && *c != 'ß'); // unknown ones
    let mut model = greedy_model(
        &alphabet,
        &mut Random(77),
        json!({"unk_token": "<unk>", "fuse_unk": true}),
    );
    let n = model["vocab"].as_object().unwrap().len();
    model["vocab"]["<unk>"] = json!(n);
    text_of(&json!({
        "version": "1.0", "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "model": model,
        "post_processor": post_processor,
        "added_tokens": [added("<unk>", json!({})), added("<x>", json!({})), added("!,", json!({"normalized": true})),
                         added("<|im_end|>", json!({"rstrip": true}))],
    }))
}

fn tokenizers() -> Vec<(String, Arc<Text>)> {
    let mut all: Vec<(String, Arc<Text>)> = Vec::new();
    let nfc = || json!({"type": "NFC"});
    let bytes = |pattern: &str| sequence(&[split(pattern), byte_level(false)]);
    for (name, pattern) in [
        ("gpt2 split", GPT2),
        ("qwen2", QWEN2),
        ("llama3", LLAMA3),
        ("cl100k", CL100K),
        ("o200k", O200K),
    ] {
        all.push((name.into(), byte_text(nfc(), bytes(pattern))));
    }
    all.push(("gpt2".into(), byte_text(Json::Null, byte_level(true))));
    let deepseek = sequence(&[
        split(r"\p{N}{1,3}"),
        split("[一-龥぀-ゟ゠-ヿ]+"),
        split(DEEPSEEK),
        byte_level(false),
    ]);
    all.push(("deepseek".into(), byte_text(Json::Null, deepseek)));
    all.push(("bloom".into(), byte_text(Json::Null, bytes(BLOOM))));
    let digits = json!({"type": "Digits", "individual_digits": true});
    let prefixed = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true});
    all.push((
        "digits".into(),
        byte_text(
            json!({"type": "NFKC"}),
            sequence(&[digits, byte_level(true)]),
        ),
    ));
    let punctuation = json!({"type": "Punctuation", "behavior": "Isolated"});
    all.push((
        "prefix".into(),
        byte_text(
            json!({"type": "Lowercase"}),
            sequence(&[punctuation, prefixed]),
        ),
    ));

    let replace = || json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
    let llama2 = json!({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, replace()]});
    let template = json!({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<x>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<unk>", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"<x>": {"id": "<x>", "ids": [3], "tokens": ["<x>"]},
                           "<unk>": {"id": "<unk>", "ids": [7], "tokens": ["<unk>"]}}});
    all.push(("llama2".into(), plain_text(llama2, Json::Null, template)));
    let merged = json!({"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": false});
    all.push(("gemma".into(), plain_text(replace(), merged, Json::Null)));
    let metaspace = |scheme: &str, split: bool| json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split});
    all.push((
        "mistral".into(),
        plain_text(Json::Null, metaspace("first", false), Json::Null),
    ));
    all.push((
        "metaspace always".into(),
        plain_text(nfc(), metaspace("always", true), Json::Null),
    ));
    let strip = json!({"type": "Strip", "strip_left": true, "strip_right": true});
    all.push((
        "strip".into(),
        plain_text(strip, metaspace("always", true), Json::Null),
    ));

    for name in [
        "bytelevel",
        "fallback",
        "metaspace",
        "wordpiece",
        "wordlevel",
        "suffix",
    ] {
        let dir: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../tests/text/data", name]
            .iter()
            .collect();
        all.push((name.into(), Arc::new(Text::open(&dir).unwrap())));
    }
    // Directories of others, "a:b".
    for dir in std::env::var("QUIRE_TOKENIZERS")
        .unwrap_or_default()
        .split(':')
        .filter(|d| !d.is_empty())
    {
        all.push((
            dir.into(),
            Arc::new(Text::open(dir.as_ref()).unwrap_or_else(|e| panic!("{dir}: {}", e.text))),
        ));
    }
    all
}

/// The ids by pieces of so many bytes, and how many pieces there were.
fn by_pieces(text: &Arc<Text>, input: &str, special: bool, bytes: usize) -> (Vec<u32>, usize) {
    let (ids, _, n) = placed(text, input, special, bytes, false);
    (ids, n)
}

/// The same with the ids' places.
fn placed(
    text: &Arc<Text>,
    input: &str,
    special: bool,
    bytes: usize,
    with_places: bool,
) -> (Vec<u32>, Vec<u32>, usize) {
    let mut pieces = Pieces::sized(text.clone(), special, bytes);
    if with_places {
        pieces.set_placed();
    }
    let (mut ids, mut places, mut n) = (Vec::new(), Vec::new(), 0);
    while let Some(piece) = pieces.next(input).unwrap_or_else(|e| {
        panic!(
            "{input:?}: {} {:?}",
            e.text,
            text.vocabulary.encode(input, false)
        )
    }) {
        ids.extend(piece.ids);
        places.extend(piece.places);
        n += 1;
    }
    (ids, places, n)
}

/// The crate's own offsets are the reference, but for the blanks that a post-processor leaves out of them.
#[test]
fn places_are_those_of_the_whole() {
    let mut random = Random(0x0fed_cba9_8765_4321);
    for (name, text) in tokenizers() {
        for round in 0..500 {
            let length = 1 + random.below(24);
            let input = scramble(&mut random, length);
            let bytes = 1 + round % 3 * 7;
            let special = round % 2 == 0;
            let (ids, places, _) = placed(&text, &input, special, bytes, true);
            let crates = text
                .vocabulary
                .tokenizer
                .encode_char_offsets(input.as_str(), special)
                .unwrap();
            assert_eq!(ids, crates.get_ids(), "{name}: {input:?}");
            assert_eq!(ids.len(), places.len(), "{name}: {input:?}");
            let chars: Vec<char> = input.chars().collect();
            for (i, offsets) in crates.get_offsets().iter().enumerate() {
                let place = places[i] as usize;
                assert!(place <= chars.len(), "{name}: {input:?} {places:?}");
                if crates.get_special_tokens_mask()[i] == 0 {
                    let blanks = chars[place..].iter().take_while(|c| c.is_whitespace()).count();
                    assert!(
                        (place..=place + blanks).contains(&offsets.0) || offsets.0 == offsets.1,
                        "{name}: {input:?} token {i}: {place} is not {offsets:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn places_are_in_the_text_as_it_was_sent() {
    let byte_level = byte_text(Json::Null, sequence(&[split(QWEN2), byte_level(false)]));
    let place = |text: &Arc<Text>, input: &str| placed(text, input, false, 16 << 10, true).1;
    assert_eq!(place(&byte_level, "x<|im_end|>y"), [0, 1, 11]);
    assert_eq!(place(&byte_level, "e\u{301}"), [0, 1, 1]);
    assert_eq!(place(&byte_level, "€a"), [0, 0, 0, 1]);
}

#[test]
fn pieces_are_the_whole() {
    let (n_rounds, seed) = match std::env::var("QUIRE_TEST_SAMPLE") {
        Ok(seed) if !seed.is_empty() => (1000, seed.parse().unwrap()), // as tests/sample.h has it
        _ => (3000, 0u64),
    };
    let mut random = Random(0x0123_4567_89ab_cdef ^ seed);
    for (name, text) in tokenizers() {
        let mut n_pieces = 0;
        for round in 0..n_rounds {
            let length = 1 + random.below(24);
            let input = scramble(&mut random, length);
            let special = round % 2 == 0;
            let whole = text.vocabulary.encode(&input, special).unwrap();
            let bytes = 1 + round % 3 * 7;
            let (ids, n) = by_pieces(&text, &input, special, bytes);
            assert_eq!(ids, whole, "{name}: {input:?} by {bytes}");
            let least = text.vocabulary.least_tokens(&input);
            let without = text.vocabulary.encode(&input, false).unwrap();
            assert!(
                least <= without.len(),
                "{name}: {input:?}: {least} > {}",
                without.len()
            );
            n_pieces += n;
        }
        assert!(n_pieces > n_rounds, "{name}: {n_pieces} pieces");
    }
}

#[test]
fn long_texts() {
    let mut random = Random(42);
    for (name, text) in tokenizers() {
        let input = scramble(&mut random, 60_000);
        let whole = text.vocabulary.encode(&input, true).unwrap();
        let (ids, n) = by_pieces(&text, &input, true, 16 << 10);
        assert_eq!(ids, whole, "{name}");
        assert!(n > 4, "{name}: {n} pieces");
    }
}

/// BERT makes a token of each punctuation mark, so a text of nothing else may be cut anywhere.
#[test]
fn a_million_marks() {
    let text = Arc::new(Text::open("../tests/text/data/wordpiece".as_ref()).unwrap());
    for mark in ["-", "=", "—", "…", "。", "，", ".a", "_-"] {
        let n = 1_000_000 / mark.len();
        let (ids, n_pieces) = by_pieces(&text, &mark.repeat(n), true, 16 << 10);
        assert!(ids.len() >= n && n_pieces > 50, "{mark}: {}", ids.len());
    }
}

/// A long text without a cut is rejected, and only a long one.
#[test]
fn unsplittable() {
    let text = byte_text(Json::Null, sequence(&[split(QWEN2), byte_level(false)]));
    for run in ["a", " ", "\n", "😀", "中"] {
        let n = MAX_PIECE_BYTES / run.len();
        assert!(!by_pieces(&text, &run.repeat(n), false, 16 << 10)
            .0
            .is_empty());
        let mut pieces = Pieces::new(text.clone(), false);
        let error = pieces.next(&run.repeat(n + 1)).unwrap_err();
        assert!(error.text.contains("256 KiB"), "{}", error.text);
    }
    // Among words it is found where it begins.
    let words = "word ".repeat(20_000);
    let mut pieces = Pieces::new(text, false);
    let input = words.clone() + &"a".repeat(MAX_PIECE_BYTES + 100);
    let error = loop {
        match pieces.next(&input) {
            Ok(piece) => assert!(piece.is_some()),
            Err(e) => break e,
        }
    };
    assert!(error.text.contains("from byte"), "{}", error.text);
}

/// The bound of the number of tokens for every vocabulary that has one.
#[test]
fn least_tokens() {
    let text = byte_text(
        json!({"type": "NFC"}),
        sequence(&[split(QWEN2), byte_level(false)]),
    );
    assert_eq!(
        text.vocabulary.least_tokens(&"a".repeat(100_000)),
        0,
        "an added token with rstrip"
    );
    let file = |name: &str| -> PathBuf {
        [env!("CARGO_MANIFEST_DIR"), "../tests/text/data", name]
            .iter()
            .collect()
    };
    for (name, told) in [
        ("fallback", true),
        ("bytelevel", false),
        ("metaspace", false),
        ("wordlevel", false),
        ("suffix", false),
    ] {
        let text = Text::open(&file(name)).unwrap();
        let least = text.vocabulary.least_tokens(&"a ".repeat(50_000));
        assert_eq!(least > 1000, told, "{name}: {least}");
    }
}

/// A composed character stands for at most six times its bytes.
#[test]
fn composed() {
    use unicode_normalization_alignments::UnicodeNormalization;
    for c in (0..=0x10ffff).filter_map(char::from_u32) {
        let composed = c.to_string().nfc().count() == 1;
        let n = c.to_string().nfd().count();
        assert!(!composed || n * 4 <= c.len_utf8() * 6, "{c:?}: {n}");
    }
}

#[test]
fn unknown_patterns_prove_nothing() {
    for pattern in [
        r"(?<=a)b",
        r"\bword\b",
        "^a",
        r"(a)\1",
        "(?>a+)b",
        r"a*",
        r"(?!\S)a",
        "(?i:ß)",
        "(?i:[^a])",
        r"\X",
        "a**",
        "(?i)a",
    ] {
        assert!(Follow::parse(pattern).is_none(), "{pattern}");
    }
    let deep = "(".repeat(1_000_000) + "a" + &")".repeat(1_000_000);
    assert!(Follow::parse(&deep).is_none());
    for pattern in [
        GPT2, QWEN2, LLAMA3, CL100K, O200K, DEEPSEEK, BLOOM, r"\s+$", r"[^\]]+", r"a{2,}?b",
    ] {
        assert!(Follow::parse(pattern).is_some(), "{pattern}");
    }
}

/// The characters outside ASCII that a case-insensitive ASCII pattern matches are known.
#[test]
fn cases() {
    let letters = "(?i:ss|ff|fi|fl|ffi|ffl|st|[a-z]|[0-9]|')";
    let regex = tokenizers::utils::SysRegex::new(letters).unwrap();
    let follow = Follow::parse("(?i:a)").unwrap();
    let mut n = 0;
    for c in ('\u{80}'..=char::MAX).filter(|c| regex.find_iter(&c.to_string()).next().is_some()) {
        assert!(follow.positions(c) == 1, "{c:?}");
        n += 1;
    }
    assert!(n > 5, "{n}");
    assert!(follow.positions('中') == 0);
}

/// Two characters are apart exactly where no match has both, found by trying.
#[test]
fn apart() {
    let follow = Follow::parse(QWEN2).unwrap();
    let apart = |a: char, b: char| follow.apart(follow.positions(a), follow.positions(b));
    for (a, b) in [
        ('a', ' '),
        ('a', '.'),
        ('1', '1'),
        ('1', 'a'),
        ('.', ' '),
        ('.', '1'),
        ('a', '\n'),
        ('中', '，'),
    ] {
        assert!(apart(a, b), "{a:?} {b:?}");
    }
    for (a, b) in [
        ('a', 'b'),
        (' ', 'a'),
        (' ', ' '),
        ('.', 'a'),
        ('.', '\n'),
        ('\n', 'a'),
        ('\'', 's'),
        ('，', '中'),
    ] {
        assert!(!apart(a, b), "{a:?} {b:?}");
    }
    assert!(follow.always_matched(follow.positions('a')));
}

/// A chat in which every special token is spelled by a client, against the crate's own way to encode without special
/// tokens.
#[test]
fn marked_tokens_are_text() {
    let mut random = Random(0xfeed_beef_1234_5678);
    let mark = '\u{fdd3}';
    for (name, text) in tokenizers() {
        let mut plain = text.vocabulary.tokenizer.clone();
        plain.set_encode_special_tokens(true);
        let mut n_marked = 0;
        for round in 0..600 {
            let length = 1 + random.below(24);
            let input = scramble(&mut random, length);
            let marked = text.vocabulary.spelled.marked(&input, mark);
            n_marked += usize::from(marked.is_some());
            let marked = marked.unwrap_or(input.clone());
            assert_eq!(marked.replace(mark, ""), input);
            let expected = plain.encode_fast(input.as_str(), false).unwrap();
            for bytes in [1 + round % 3 * 7, 1 << 20] {
                let mut pieces = Pieces::sized(text.clone(), false, bytes);
                pieces.set_mark(mark);
                let mut ids = Vec::new();
                while let Some(piece) = pieces
                    .next(&marked)
                    .unwrap_or_else(|e| panic!("{name}: {marked:?}: {}", e.text))
                {
                    ids.extend(piece.ids);
                }
                assert_eq!(ids, expected.get_ids(), "{name}: {marked:?} by {bytes}");
            }
        }
        assert!(
            n_marked > 50
                || text
                    .vocabulary
                    .spelled
                    .marked("<x><|im_end|>", mark)
                    .is_none(),
            "{name}: {n_marked}"
        );
    }
}
