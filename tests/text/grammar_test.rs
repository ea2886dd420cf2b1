//! Compares masks with references that are independent of the crate: languages small enough to try every token, and
//! the tokenizer itself for forced text. Also compares one walk with the same walk that has other calls in between.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use crate::error::{Error, Status};
use crate::grammar::cache::{Grammars, Source};
use crate::grammar::matcher::Matcher;
use crate::grammar::workers::Caller;
use crate::grammar::Limits;
use crate::load::Text;

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

fn data(name: &str) -> Arc<Text> {
    let mut dir = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    dir.push("../tests/text/data");
    Arc::new(Text::open(&dir.join(name)).unwrap())
}

fn source(text: &Arc<Text>, n_vocab: usize, eos: &[u32], limits: &Limits) -> Source {
    Source {
        text: text.clone(),
        n_vocab,
        eos: eos.to_vec(),
        limits: limits.parser(),
    }
}

fn grammars_of(text: &Arc<Text>, eos: &[u32], limits: Limits) -> Arc<Grammars> {
    let n = text.vocabulary.n_ids() as usize + 7;
    // Slow machines compile them, too.
    let mut bounds = limits.bounds(0, 0);
    bounds.deadline = Duration::from_secs(600);
    Arc::new(Grammars::new(source(text, n, eos, &limits), bounds).unwrap())
}

fn matcher(grammars: &Arc<Grammars>, normal: &str) -> Matcher {
    Matcher::new(compile(grammars, normal).unwrap_or_else(|e| panic!("{normal}: {}", e.text)))
}

fn compile(
    grammars: &Arc<Grammars>,
    normal: &str,
) -> Result<Arc<crate::grammar::compile::Grammar>, Error> {
    grammars.compile(normal.as_bytes(), &Caller::PATIENT)
}

fn mask(matcher: &mut Matcher) -> Vec<u32> {
    let mut words = vec![!0; matcher.n_words()];
    matcher.mask(&mut words).unwrap();
    words
}

fn allowed(matcher: &mut Matcher) -> Vec<u32> {
    let words = mask(matcher);
    let has = |id: &u32| words[*id as usize / 32] >> (id % 32) & 1 == 1;
    (0..words.len() as u32 * 32).filter(has).collect()
}

/// A tokenizer of a few letters and some strings of them, each of which byte-level BPE can reach.
fn letters(words: &[&str]) -> Arc<Text> {
    let mut vocab = serde_json::Map::new();
    vocab.insert("<|end|>".into(), json!(0));
    let mut merges = Vec::new();
    for letter in ["a", "b", "c"] {
        vocab.insert(letter.into(), json!(vocab.len()));
    }
    for word in words {
        vocab.insert((*word).into(), json!(vocab.len()));
        let (left, right) = word.split_at(word.len() - 1);
        merges.push(json!([left, right]));
    }
    let tokenizer = json!({
        "version": "1.0",
        "added_tokens": [{"id": 0, "content": "<|end|>", "single_word": false, "lstrip": false, "rstrip": false,
                          "normalized": false, "special": true}],
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
        "model": {"type": "BPE", "vocab": vocab, "merges": merges},
    });
    Arc::new(Text::made(&tokenizer.to_string(), "{}").unwrap())
}

/// A finite automaton over a, b and c. Each state can reach an accepting one.
struct Automaton {
    next: Vec<[Option<usize>; 3]>,
    accepts: Vec<bool>,
}

impl Automaton {
    fn random(random: &mut Random) -> Automaton {
        let n = 1 + random.below(5);
        let mut a = Automaton {
            next: vec![[None; 3]; n],
            accepts: vec![false; n],
        };
        for state in 0..n {
            for letter in 0..3 {
                if random.below(3) == 0 {
                    a.next[state][letter] = Some(random.below(n));
                }
            }
            // The last state accepts; each other one has a way to the next.
            a.accepts[state] = state == n - 1 || random.below(6) == 0;
            if state + 1 < n {
                a.next[state][random.below(3)] = Some(state + 1);
            }
        }
        a
    }

    fn walk(&self, from: usize, bytes: &[u8]) -> Option<usize> {
        bytes.iter().try_fold(from, |state, b| {
            self.next[state][usize::from(b.checked_sub(b'a')?)]
        })
    }

    fn lark(&self) -> String {
        let mut text = String::from("start: s0\n");
        for (state, next) in self.next.iter().enumerate() {
            let mut ways: Vec<String> = (0..3)
                .filter_map(|i| Some(format!("\"{}\" s{}", ["a", "b", "c"][i], next[i]?)))
                .collect();
            if self.accepts[state] {
                ways.push("\"\"".into());
            }
            text += &format!("s{state}: {}\n", ways.join(" | "));
        }
        text
    }

    /// The bytes that must follow.
    fn forced(&self, from: usize) -> String {
        let mut state = from;
        let mut text = String::new();
        while !self.accepts[state] && text.len() < 100 {
            let ways: Vec<usize> = (0..3).filter(|i| self.next[state][*i].is_some()).collect();
            let [way] = ways[..] else { break };
            text.push(char::from(b'a' + way as u8));
            state = self.next[state][way].unwrap();
        }
        text
    }
}

#[test]
fn mask_is_what_a_completion_exists_for() {
    let text = letters(&["ab", "abc", "aa", "bc", "ca", "cab"]);
    let grammars = grammars_of(&text, &[0], Limits::default());
    let mut random = Random(7);
    let (mut n_free, mut n_forced) = (0, 0);
    for _ in 0..300 {
        let automaton = Automaton::random(&mut random);
        let lark = automaton.lark();
        let mut matcher = matcher(&grammars, &lark);
        let mut state = 0;
        for _ in 0..12 {
            let mut ways: Vec<u32> = (1..text.vocabulary.n_ids())
                .filter(|id| {
                    automaton
                        .walk(state, &text.vocabulary.token_bytes(*id))
                        .is_some()
                })
                .collect();
            if automaton.accepts[state] {
                ways.insert(0, 0);
            }
            assert_eq!(matcher.may_stop().unwrap(), automaton.accepts[state]);
            assert_eq!(matcher.is_over().unwrap(), ways == [0], "{lark}");
            let forced = automaton.forced(state);
            let got = allowed(&mut matcher);
            if forced.is_empty() || got.len() != 1 {
                assert_eq!(got, ways, "{lark}");
                n_free += 1;
            } else {
                assert!(ways.contains(&got[0]), "{lark}");
                n_forced += 1;
            }
            let id = got[random.below(got.len())];
            for other in 0..text.vocabulary.n_ids() + 9 {
                let fits = matcher.check(&[other]).unwrap() == 1;
                assert_eq!(fits, got.contains(&other), "{lark} {other}");
            }
            assert!(matcher.accept(id).unwrap());
            if id == 0 {
                assert!(allowed(&mut matcher).is_empty());
                break;
            }
            state = automaton
                .walk(state, &text.vocabulary.token_bytes(id))
                .unwrap();
        }
    }
    assert!(n_free > 500 && n_forced > 50, "{n_free} {n_forced}");
}

const GRAMMARS: [&str; 9] = [
    r#"start: "{\"name\":\"" /[a-z ]{0,9}/ "\",\"age\":" /[0-9]{1,3}/ "}""#,
    r#"start: %json {"type":"object","properties":{"first_name":{"type":"string"},"count":{"type":"integer"},
       "tags":{"type":"array","items":{"enum":["red","green","blue"]}}},"required":["first_name","count","tags"],
       "additionalProperties":false}"#,
    r#"start: %json {"type":"object"}"#,
    r#"start: ("yes" | "no" | "maybe later") " " /[a-z]+/ "!""#,
    r#"start: value
       value: "[" (value ("," value)*)? "]" | "nothing" | /[0-9]+/"#,
    r#"start: "hello world, this is forced text""#,
    r#"start: "<tool_call>" "{\"a\": " /[0-9]+/ "}" "</tool_call>""#,
    r#"start: /(true|false|null)( (true|false|null)){0,4}/"#,
    r#"start: "a" <|im_start|> "b c" /.*/"#,
];

/// Calls that must not matter.
fn disturb(matcher: &mut Matcher, random: &mut Random) {
    for _ in 0..random.below(4) {
        let ids: Vec<u32> = (0..random.below(5))
            .map(|_| random.below(430) as u32)
            .collect();
        let at = matcher.n_accepted();
        match random.below(7) {
            0 => drop(matcher.forced(random.below(4)).unwrap()),
            1 => drop(matcher.check(&ids).unwrap()),
            2 => drop(mask(matcher)),
            3 => *matcher = matcher.deep_clone(),
            4 => drop(matcher.may_stop().unwrap() || matcher.is_over().unwrap()),
            5 => {
                for _ in 0..random.below(6) {
                    let ways = allowed(matcher);
                    if ways.is_empty() {
                        break;
                    }
                    assert!(matcher.accept(ways[random.below(ways.len())]).unwrap());
                    if random.below(2) == 0 {
                        matcher.forced(3).unwrap();
                    }
                }
                matcher.rollback(matcher.n_accepted() - at).unwrap();
            }
            _ => {
                let ways = allowed(matcher);
                if let Some(id) = ways.get(random.below(ways.len().max(1))) {
                    assert_eq!(matcher.check(&[*id]).unwrap(), 1);
                }
            }
        }
        assert_eq!(matcher.n_accepted(), at);
    }
}

#[test]
fn no_other_call_changes_a_mask() {
    for (name, eos) in [("bytelevel", 421), ("fallback", 2), ("metaspace", 1)] {
        let text = data(name);
        let grammars = grammars_of(&text, &[eos, 0], Limits::default());
        let mut random = Random(11);
        for normal in GRAMMARS {
            if compile(&grammars, normal).is_err() {
                assert!(
                    normal.contains("<|") && name != "bytelevel" || name == "metaspace",
                    "{name} {normal}"
                );
                continue;
            }
            for _ in 0..12 {
                let mut plain = matcher(&grammars, normal);
                let mut other = matcher(&grammars, normal);
                let mut ids = Vec::new();
                let mut masks = Vec::new();
                for _ in 0..25 {
                    let seen = mask(&mut plain);
                    disturb(&mut other, &mut random);
                    assert_eq!(mask(&mut other), seen, "{name} {normal} {ids:?}");
                    masks.push(seen);
                    let ways = allowed(&mut plain);
                    if ways.is_empty() {
                        break;
                    }
                    let id = ways[random.below(ways.len())];
                    ids.push(id);
                    assert!(plain.accept(id).unwrap());
                    assert!(other.accept(id).unwrap());
                }
                // The same places without a mask on the way, and all of them again on the way back.
                let mut silent = matcher(&grammars, normal);
                assert_eq!(silent.check(&ids).unwrap(), ids.len());
                assert_eq!(silent.accept_many(&ids).unwrap(), ids.len());
                for at in (0..masks.len()).rev() {
                    silent.rollback(silent.n_accepted() - at).unwrap();
                    assert_eq!(mask(&mut silent), masks[at], "{name} {normal} {ids:?} {at}");
                }
            }
        }
    }
}

/// Goes on as a model would that always takes the first allowed id.
fn run(matcher: &mut Matcher) -> Vec<u32> {
    let mut ids = Vec::new();
    while let Some(id) = allowed(matcher).first() {
        assert!(matcher.accept(*id).unwrap());
        ids.push(*id);
        assert!(ids.len() < 500);
    }
    ids
}

#[test]
fn forced_text_has_its_canonical_ids() {
    let texts = [
        "hello world, this is forced text",
        " leading blanks  and\n\n new lines",
        "{\"name\":\"value\",\"number\":12345}",
        "<tool_call>{}</tool_call>",
        "a special <|im_start|> that is text",
        "Grüße, 世界 🎉",
    ];
    let text = data("bytelevel");
    let grammars = grammars_of(&text, &[421], Limits::default());
    for forced in texts {
        let lark = format!("start: {}", json!(forced));
        let mut matcher = matcher(&grammars, &lark);
        let ids = run(&mut matcher);
        let (end, ids) = ids.split_last().unwrap();
        assert_eq!(*end, 421);
        let bytes: Vec<u8> = ids
            .iter()
            .flat_map(|id| text.vocabulary.token_bytes(*id))
            .collect();
        assert_eq!(bytes, forced.as_bytes());
        let canonical = match text.vocabulary.spelled.as_text(forced) {
            Some((marked, mark)) => text.vocabulary.encode_marked(&marked, mark, false),
            None => text.vocabulary.encode(forced, false),
        };
        assert_eq!(ids, canonical.unwrap(), "{forced}");
    }
}

/// The processor time of all threads: other work on the machine does not count.
fn cpu() -> Duration {
    // SAFETY: the clock exists, and the time is plain data.
    unsafe {
        let mut t: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut t);
        Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
    }
}

fn listed(n: usize, between: &str, item: impl Fn(usize) -> String) -> String {
    (0..n).map(item).collect::<Vec<_>>().join(between)
}

/// Impossible grammars, each with a part of its message.
fn hopeless() -> Vec<(String, &'static str)> {
    let strings = |n| listed(n, ",", |i| format!(r#""k{i}":{{"type":"string"}}"#));
    let chain = listed(65_000, "\n", |i| format!("r{i}: \"x\" r{} | \"b\"", i + 1));
    vec![
        (String::new(), "no start rule"),
        ("start: \"a\" (\n".into(), "1(13)"),
        ("start: nothere".into(), "at 1(8): unknown name"),
        ("start: \"a\" start".into(), "no string matches"),
        (
            "start: \"a\" b\nb: \"c\" b | \"d\" b".into(),
            "no string matches",
        ),
        ("start: \"x\" T\nT: /[^\\s\\S]/".into(), "no string matches"),
        ("start: T\nT: /a+/ & /b+/".into(), "no string matches"),
        ("start: \"a\" <|im_end|>".into(), "no string matches"),
        ("start: /a(/".into(), "at 1(8): invalid regex"),
        (
            "start: x\nx[stop=\"foo\"]: /.*/".into(),
            "stop= and max_tokens=",
        ),
        (r##"start: %json {"$ref":"#"}"##.into(), "no string matches"),
        (
            r##"start: %json {"type":"object","properties":{"x":{"$ref":"#"}},"required":["x"]}"##
                .into(),
            "no string",
        ),
        (
            r#"start: %json {"$ref":"file:///etc/passwd"}"#.into(),
            "not present in a registry",
        ),
        (
            r#"start: %json {"$ref":"http://127.0.0.1:9/x"}"#.into(),
            "not present in a registry",
        ),
        ("start: /a{1000000}/".into(), "too complex"),
        ("start: /((a{100}){100}){100}/".into(), "too complex"),
        ("start: \"a\"{1000000}".into(), "too complex"),
        (
            format!("start: \"{}\"", "word ".repeat(200_000)),
            "too complex",
        ),
        (format!("start: {}", "(".repeat(100_000)), "nested"),
        (
            format!("start: /{}a{}/", "(".repeat(10_000), ")".repeat(10_000)),
            "invalid regex",
        ),
        (
            format!("start: %json {}1{}", "[".repeat(10_000), "]".repeat(10_000)),
            "recursion",
        ),
        (format!("start: r0\n{chain}\nr65000: \"a\""), ""),
        (
            format!(r#"start: %json {{"properties":{{{}}}}}"#, strings(10_000)),
            "an object of 10000 members",
        ),
        (
            format!(
                r#"start: %json {{"anyOf":[{}]}}"#,
                listed(10_000, ",", |i| format!(
                    r#"{{"type":"object","properties":{{"k{i}":{{"type":"string"}}}},"required":["k{i}"]}}"#
                ))
            ),
            "too large",
        ),
        (
            format!("start: \"{}\"", "x".repeat(3 << 20)),
            "the limit is 2097152",
        ),
    ]
}

#[test]
fn hopeless_grammars_are_rejected_in_bounded_time() {
    let text = data("bytelevel");
    let grammars = grammars_of(&text, &[421], Limits::default());
    for (normal, part) in hopeless() {
        let before = cpu();
        let error = compile(&grammars, &normal).err();
        let took = cpu() - before;
        let shown: String = normal.chars().take(60).collect();
        let error = error.unwrap_or_else(|| panic!("{shown}: compiled"));
        assert_eq!(error.status, Status::Invalid, "{shown}: {}", error.text);
        assert!(error.text.contains(part), "{shown}: {}", error.text);
        // Tests run beside each other, and their time counts.
        assert!(took < Duration::from_secs(20), "{shown}: {took:?}");
    }
    let error = grammars.compile(b"start: \"\xff\"", &Caller::PATIENT).err().unwrap();
    assert!(error.text.contains("not UTF-8 at byte 8"), "{}", error.text);
}

#[test]
fn a_rejection_does_not_repeat_the_grammar() {
    let text = data("bytelevel");
    let grammars = grammars_of(&text, &[421], Limits::default());
    for (normal, why) in [
        (
            r#"start: %json {"type":"object","properties":{"a":{}},"maxProperties":1}"#,
            "grammar: JSON schema: min/maxProperties only supported when all keys listed in \"properties\" are required",
        ),
        ("start: \"a\nb: 1", "grammar: 1(10): lexer error"),
    ] {
        let error = compile(&grammars, normal).err().unwrap();
        assert_eq!(error.text, why);
    }
}

#[test]
fn large_grammars_work_on_small_stacks() {
    let thread = std::thread::Builder::new().stack_size(1 << 20);
    thread.spawn(large_grammars).unwrap().join().unwrap();
}

fn large_grammars() {
    let text = data("bytelevel");
    let grammars = grammars_of(&text, &[421], Limits::default());
    let chain = listed(10_000, "\n", |i| format!("r{i}: \"x\" r{} | \"b\"", i + 1));
    let refs = listed(1_000, ",", |i| {
        format!(
            r##""d{i}":{{"properties":{{"x":{{"$ref":"#/$defs/d{}"}}}}}}"##,
            (i + 1) % 1_000
        )
    });
    for normal in [
        format!("start: /{}/", listed(10_000, "|", |i| format!("b{i}"))),
        format!(
            r#"start: %json {{"enum":[{}]}}"#,
            listed(10_000, ",", |i| format!("\"v{i}\""))
        ),
        format!("start: r0\n{chain}\nr10000: \"a\""),
        format!(r##"start: %json {{"$defs":{{{refs}}},"$ref":"#/$defs/d0"}}"##),
        format!(
            r#"start: %json {{"type":"string","description":"{}"}}"#,
            "x".repeat(1 << 20)
        ),
    ] {
        let mut matcher = matcher(&grammars, &normal);
        let mut random = Random(3);
        for _ in 0..20 {
            let ways = allowed(&mut matcher);
            let Some(id) = ways.get(random.below(ways.len().max(1))) else {
                break;
            };
            assert!(matcher.accept(*id).unwrap());
        }
    }
}

#[test]
fn a_step_that_is_too_complex_fails_for_good() {
    let text = data("bytelevel");
    let mut limits = Limits::default();
    limits.step_fuel = 100;
    let grammars = grammars_of(&text, &[421], limits);
    let mut matcher = matcher(
        &grammars,
        "start: \"ab\" /[x-z]/ T\nT: /[a-z]*a[a-z]{12}/ & /[a-z]*b[a-z]{11}/ & ~/.*zz.*/",
    );
    let draft = text
        .vocabulary
        .encode("abxabcaabbccabcabcabcabcabc", false)
        .unwrap();
    // A draft that is too complex is no failure of the matcher.
    let n = matcher.check(&draft).unwrap();
    assert!(n > 0 && n < draft.len(), "{n}");
    assert_eq!(matcher.check(&draft).unwrap(), n);
    let error = loop {
        let n = matcher.n_accepted();
        if let Err(error) = matcher.accept(draft[n]) {
            break error;
        }
    };
    assert!(error.text.contains("too complex"), "{}", error.text);
    let mut words = vec![0; matcher.n_words()];
    assert_eq!(matcher.mask(&mut words).unwrap_err().text, error.text);
    assert_eq!(matcher.rollback(1).unwrap_err().text, error.text);
}

#[test]
fn the_cache_compiles_once_and_evicts_the_oldest() {
    let text = data("bytelevel");
    let limits = Limits::default();
    let grammars = Grammars::new(source(&text, 430, &[421], &limits), limits.bounds(2, 0)).unwrap();
    let grammars = Arc::new(grammars);
    let same = std::thread::scope(|scope| {
        let ask = || compile(&grammars, GRAMMARS[1]).unwrap();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
        let all: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        all.iter().all(|g| Arc::ptr_eq(g, &all[0]))
    });
    assert!(same);
    assert_eq!(grammars.stats().counts(), [3, 1, 0, 0, 1]);
    compile(&grammars, "start: \"a\"").unwrap();
    compile(&grammars, GRAMMARS[1]).unwrap();
    compile(&grammars, "start: \"b\"").unwrap();
    assert_eq!(grammars.stats().counts(), [4, 3, 1, 0, 2]);
    compile(&grammars, GRAMMARS[1]).unwrap();
    compile(&grammars, "start: \"a\"").unwrap();
    assert!(compile(&grammars, "start: (").is_err());
    assert_eq!(grammars.stats().counts(), [5, 5, 2, 1, 2]);
    let flag = AtomicBool::new(true);
    let error = grammars
        .compile(b"start: \"c\"", &Caller::new(Some(&flag), None, 0))
        .err()
        .unwrap();
    assert_eq!(error.status, Status::Unavailable);
}

#[test]
fn decoders_that_add_text_are_unsupported() {
    let limits = Limits::default();
    let open = |name: &str, n_vocab: usize, eos: &[u32]| {
        let source = source(&data(name), n_vocab, eos, &limits);
        Grammars::new(source, limits.bounds(0, 0)).err().unwrap()
    };
    for name in ["wordpiece", "wordlevel", "suffix"] {
        assert_eq!(open(name, 100, &[0]).status, Status::Unsupported, "{name}");
    }
    for eos in [&[][..], &[425], &[421, 1000]] {
        assert_eq!(open("bytelevel", 500, eos).status, Status::Invalid, "{eos:?}");
    }
}

/// The crate keeps a mask by the number of rows and the lexer's state. Both are the same after "a" and after "b".
#[test]
fn a_mask_is_not_that_of_another_way() {
    let text = letters(&["ca", "cab"]);
    let grammars = grammars_of(&text, &[0], Limits::default());
    let mut matcher = matcher(
        &grammars,
        "start: \"a\" x \"a\" | \"b\" x \"b\"\nx: \"c\" | \"b\"",
    );
    let [a, b, c, ca] = [1, 2, 3, 4];
    assert!(matcher.accept(a).unwrap());
    assert_eq!(allowed(&mut matcher), [b, c, ca]);
    matcher.rollback(1).unwrap();
    assert!(matcher.accept(b).unwrap());
    assert_eq!(allowed(&mut matcher), [b, c]);
}

/// Derives the ids that may follow from the text of these ids, by the rules of a reasoning. None: a forced id.
fn may_follow(
    text: &Text,
    ids: &[u32],
    end: &str,
    budget: usize,
    rest: &Automaton,
) -> Option<Vec<u32>> {
    let bytes = |ids: &[u32]| -> String {
        let parts = ids.iter().map(|id| text.vocabulary.token_bytes(*id));
        String::from_utf8(parts.collect::<Vec<_>>().concat()).unwrap()
    };
    let over = (0..=ids.len()).find(|n| bytes(&ids[..*n]).contains(end));
    let all = 1..text.vocabulary.n_ids();
    if let Some(n) = over {
        let state = rest.walk(0, bytes(&ids[n..]).as_bytes()).unwrap();
        let mut ways: Vec<u32> = all
            .filter(|id| rest.walk(state, bytes(&[*id]).as_bytes()).is_some())
            .collect();
        if rest.accepts[state] {
            ways.insert(0, 0);
        }
        return Some(ways);
    }
    if ids.len() >= budget {
        return None;
    }
    let fits = |id: &u32| {
        let whole = bytes(&[ids, &[*id][..]].concat());
        !whole.contains(end) || whole.ends_with(end) && whole.matches(end).count() == 1
    };
    Some(all.filter(fits).collect())
}

#[test]
fn a_reasoning_is_free_up_to_its_end_or_its_budget() {
    let text = letters(&["ab", "abc", "aa", "bc", "ca", "cab", "cabb"]);
    let grammars = grammars_of(&text, &[0], Limits::default());
    let mut random = Random(11);
    let (mut n_forced, mut n_chosen) = (0, 0);
    for round in 0..200 {
        let end = ["cab", "a", "abab", "bcb"][round % 4];
        let budget = random.below(9);
        let rest = Automaton::random(&mut random);
        let normal = format!(
            "%reasoning {{\"begins\":\"inside\",\"open\":\"\",\"end\":\"{end}\",\"force\":\"{end}\",\
             \"budget\":{budget}}}\n{}",
            rest.lark()
        );
        let mut m = matcher(&grammars, &normal);
        let mut ids: Vec<u32> = Vec::new();
        for _ in 0..25 {
            let got = allowed(&mut m);
            match may_follow(&text, &ids, end, budget, &rest) {
                None => {
                    assert_eq!(got.len(), 1);
                    assert_eq!(m.forced(1).unwrap(), got);
                    assert!(!m.may_stop().unwrap() && !m.is_over().unwrap());
                    n_forced += 1;
                }
                Some(ways) if got.len() == 1 => assert!(ways.contains(&got[0])),
                Some(ways) => {
                    assert_eq!(got, ways, "{normal} {ids:?}");
                    n_chosen += 1;
                }
            }
            for id in 0..text.vocabulary.n_ids() + 3 {
                assert_eq!(m.check(&[id]).unwrap() == 1, got.contains(&id));
            }
            if got.is_empty() {
                break;
            }
            let id = got[random.below(got.len())];
            assert!(m.accept(id).unwrap());
            ids.push(id);
            if id == 0 {
                break;
            }
            if random.below(4) == 0 {
                let back = random.below(ids.len() + 1);
                m.rollback(back).unwrap();
                ids.truncate(ids.len() - back);
                let mut fresh = matcher(&grammars, &normal);
                assert_eq!(fresh.accept_many(&ids).unwrap(), ids.len());
                assert_eq!(allowed(&mut fresh), allowed(&mut m));
            }
        }
    }
    assert!(n_forced > 100 && n_chosen > 500, "{n_forced} {n_chosen}");
}

#[test]
fn an_exhausted_budget_completes_the_end() {
    let text = letters(&["ca", "cab", "ab"]);
    let grammars = grammars_of(&text, &[0], Limits::default());
    let id = |word: &str| text.vocabulary.token_id(word).unwrap();
    let line = |begins: &str, open: &str, force: &str, budget: usize| {
        format!(
            "%reasoning {{\"begins\":\"{begins}\",\"open\":\"{open}\",\"end\":\"cab\",\"force\":\"{force}\",\
             \"budget\":{budget}}}\n"
        )
    };
    // The reasoning stops in its end: only the rest of it is forced.
    let mut m = matcher(&grammars, &(line("inside", "", "cab", 2) + "start: \"b\""));
    assert_eq!(m.accept_many(&[id("b"), id("c")]).unwrap(), 2);
    assert_eq!(allowed(&mut m), [id("ab")]);
    assert_eq!(m.accept_many(&[id("ab"), id("b"), 0]).unwrap(), 3);
    // A free answer: what is forced goes on behind the end, and anything may follow.
    let mut m = matcher(&grammars, &line("inside", "", "cabb", 0));
    assert_eq!(m.forced(9).unwrap(), [id("cab"), id("b")]);
    assert_eq!(m.accept_many(&[id("cab"), id("b"), id("c"), 0]).unwrap(), 4);
    // A free answer that does not open it, and one that does.
    let mut m = matcher(&grammars, &line("may", "aa", "cab", 1));
    assert_eq!(m.accept_many(&[id("a"), id("b"), id("c"), 0]).unwrap(), 4);
    let mut m = matcher(&grammars, &line("may", "aa", "cab", 1));
    assert!(m.may_stop().unwrap() && !m.is_over().unwrap());
    assert_eq!(m.accept_many(&[id("a"), id("a"), id("b")]).unwrap(), 3);
    assert_eq!(allowed(&mut m), [id("cab")]);
    m.rollback(2).unwrap();
    assert_eq!(allowed(&mut m).len(), 7);
    // A structured answer: its first id, or that which opens the reasoning.
    let mut m = matcher(&grammars, &(line("may", "cc", "cab", 1) + "start: \"b\""));
    assert_eq!(allowed(&mut m), [id("b"), id("c")]);
    assert_eq!(m.check(&[id("b"), 0]).unwrap(), 2);
    assert_eq!(m.check(&[id("c"), id("c"), id("a"), id("cab"), id("b"), 0]).unwrap(), 6);
    assert_eq!(allowed(&mut m), [id("b"), id("c")]);
    let mut m = matcher(&grammars, &(line("may", "cc", "cab", 0) + "start: \"b\""));
    assert_eq!(allowed(&mut m), [id("b")]);
    // An answer that opens it always.
    let mut m = matcher(&grammars, &(line("must", "ab", "cab", 0) + "start: \"b\""));
    assert_eq!(m.forced(9).unwrap(), [id("ab")]);
    assert_eq!(m.check(&[id("ab"), id("cab"), id("b")]).unwrap(), 3);
}

#[test]
fn wrong_lines_of_a_reasoning() {
    let text = letters(&["ab"]);
    let grammars = grammars_of(&text, &[0], Limits::default());
    let long = "a".repeat(300);
    for (members, why) in [
        ("{", "line 1: %reasoning: "),
        (r#"{"begins":"x","open":"","end":"a","force":"a","budget":1}"#, "unknown variant"),
        (r#"{"begins":"inside","open":"","end":"","force":"","budget":1}"#, "end is empty"),
        (r#"{"begins":"inside","open":"","end":"a","force":"b","budget":1}"#, "does not begin with"),
        (r#"{"begins":"inside","open":"a","end":"a","force":"a","budget":1}"#, "not needed"),
        (r#"{"begins":"may","open":"","end":"a","force":"a","budget":1}"#, "open is missing"),
        (r#"{"begins":"inside","open":"","end":"a","force":"ab","budget":1}"#, "goes on"),
        (r#"{"begins":"inside","open":"","end":"x","force":"x","budget":-1}"#, "-1"),
        (r#"{"begins":"inside","open":"","end":"x","force":"x","budget":1}"#, "no tokens for the text"),
        (r#"{"begins":"may","open":"LONG","end":"a","force":"a","budget":1}"#, "too long"),
        (r#"{"begins":"may","open":"z","end":"a","force":"a","budget":1}"#, "no tokens for the text"),
    ] {
        let line = members.replace("LONG", &long);
        let error = match compile(&grammars, &format!("%reasoning {line}\nstart: \"a\"")) {
            Ok(_) => panic!("{line}"),
            Err(e) => e.text,
        };
        assert!(error.contains(why), "{line}: {error}");
    }
}
