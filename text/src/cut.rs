//! Finds positions at which a text can be cut so that its parts, encoded one by one, give the ids of the whole.
//!
//! A position between two characters is a cut if those two characters alone prove four facts:
//!
//! - No added token contains both, ends at the first or, if its neighbours count, begins at the second.
//! - The normalizer treats each side as it would alone.
//! - No match of the pre-tokenizer contains both or looks from one to the other (`follow.rs`), so that the last match
//!   on the left ends there, and a new match begins on the right.
//! - Either the pre-tokenizer certainly splits there, or no token of the vocabulary contains both, so that no merge of
//!   a BPE crosses. Merges are chosen by rank and, within a rank, from left to right. Those of the two sides share no
//!   symbol, so each side has the same order of merges as it would have alone.
//!
//! A part after a cut is encoded with the character before the cut, whose ids are then dropped. Changes that apply only
//! to the start of a text (an added space, a strip) apply there and not at the cut.
//!
//! An unknown component proves nothing: a tokenizer with such a component has no cuts.

use std::collections::{HashMap, HashSet};
use std::iter::once;

use serde_json::Value;
use tokenizers::{Model, ModelWrapper, NormalizedString, Normalizer, NormalizerWrapper};
use unicode_normalization_alignments::char::canonical_combining_class;
use unicode_normalization_alignments::{
    is_nfc_quick, is_nfd_quick, is_nfkc_quick, is_nfkd_quick, IsNormalized,
};

use crate::follow::{Follow, Mask};
use crate::tokenize::Tokenizer;

/// The pattern of the crate's ByteLevel, which the crate does not export.
const BYTE_LEVEL: &str =
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

enum Normal {
    /// Composed or decomposed; the quick check of a character.
    Form(fn(char) -> IsNormalized),
    Lowercase,
    Replace {
        from: String,
        to: String,
    },
    /// Takes combining marks away.
    StripAccents,
    /// BERT's: control characters go, white space becomes a space, han characters get a space on either side, and
    /// marks go, after NFD. Only at spaces and between plain characters is anything said: NFD moves no mark across.
    Bert {
        cleans: bool,
        spaces_han: bool,
        lowercases: bool,
    },
    /// Something at the ends of a text only.
    Ends,
}

enum Split {
    Pattern {
        follow: Follow,
        isolates: bool,
    },
    Digits {
        one_by_one: bool,
    },
    Punctuation,
    Metaspace {
        replacement: char,
        splits: bool,
    },
    /// At white space, which is removed. Only before a space is anything said.
    Space,
    /// BERT's: likewise, and each punctuation mark by itself.
    Bert,
}

/// Strings of which no cut may divide one.
#[derive(Default)]
struct Added {
    pairs: HashSet<(char, char)>,
    lasts: HashSet<char>,
    /// First characters of tokens that depend on their neighbours.
    firsts: HashSet<char>,
}

pub struct Cuts {
    added: Added,
    added_normalized: Added,
    normals: Vec<Normal>,
    splits: Vec<Split>,
    /// Neighbours within tokens of the vocabulary, sorted; None: merges prove nothing.
    merged: Option<Vec<(char, char)>>,
    letters: HashSet<char>, // The characters of the vocabulary that are tokens; with merges.
    /// Row: the character before; bit: the one after. For ASCII only, because most text is ASCII.
    ascii: Box<[u128; 128]>,
}

/// The positions of characters in the patterns, which are costly to find. Of one text.
#[derive(Default)]
pub struct Memo(HashMap<(usize, char), Mask>);

impl Cuts {
    /// None: there are no cuts.
    pub fn new(
        tokenizer: &Tokenizer,
        normalizer: Option<&str>,
        split: Option<&str>,
    ) -> Option<Cuts> {
        let mut cuts = Cuts {
            added: Added::default(),
            added_normalized: Added::default(),
            normals: Vec::new(),
            splits: Vec::new(),
            merged: None,
            letters: HashSet::new(),
            ascii: Box::new([0; 128]),
        };
        for part in parts(normalizer, "normalizers")? {
            let normal = normal(&part)?;
            // A form looks at neighbours, which must still be those of the text.
            let changed = cuts
                .normals
                .iter()
                .any(|n| !matches!(n, Normal::Form(_) | Normal::Ends));
            if changed && matches!(normal, Normal::Form(_)) {
                return None;
            }
            cuts.normals.push(normal);
        }
        let mut bytes = false;
        for part in parts(split, "pretokenizers")? {
            if bytes {
                return None; // it would see the bytes' characters
            }
            bytes = part["type"] == "ByteLevel";
            cuts.splits.extend(split_of(&part)?);
        }
        cuts.take_added(tokenizer)?;
        if !bytes {
            cuts.take_vocabulary(tokenizer.get_model());
        }
        let mut memo = Memo::default();
        for before in 0..128u8 {
            for after in 0..128u8 {
                let is_cut = cuts.prove(before.into(), after.into(), &mut memo);
                cuts.ascii[before as usize] |= u128::from(is_cut) << after;
            }
        }
        Some(cuts)
    }

    /// Whether a text may be cut between the first two of these. The third, after them, might become one with the
    /// second.
    pub fn between(&self, before: char, after: char, next: Option<char>, memo: &mut Memo) -> bool {
        let is_cut = if before.is_ascii() && after.is_ascii() {
            self.ascii[before as usize] >> (after as u32) & 1 == 1
        } else {
            self.prove(before, after, memo)
        };
        is_cut && next.is_none_or(|c| self.normals.iter().all(|n| n.is_inert(c)))
    }

    fn take_added(&mut self, tokenizer: &Tokenizer) -> Option<()> {
        let added = tokenizer.get_added_vocabulary();
        for token in added.get_added_tokens_decoder().values() {
            let (set, content) = if token.normalized {
                let content = normalized(tokenizer.get_normalizer(), &token.content)?;
                (&mut self.added_normalized, content)
            } else {
                (&mut self.added, token.content.clone())
            };
            let chars: Vec<char> = content.chars().collect();
            set.pairs.extend(chars.windows(2).map(|w| (w[0], w[1])));
            set.lasts.extend(chars.last());
            if token.single_word {
                set.firsts.extend(chars.first());
            }
        }
        Some(())
    }

    /// For splits that are the merges' doing.
    fn take_vocabulary(&mut self, model: &ModelWrapper) {
        let ModelWrapper::BPE(bpe) = model else {
            return;
        };
        let affix = |a: &Option<String>| a.as_deref().is_some_and(|a| !a.is_empty());
        if affix(&bpe.continuing_subword_prefix)
            || affix(&bpe.end_of_word_suffix)
            || bpe.ignore_merges
        {
            return;
        }
        let mut pairs = Vec::new();
        for token in model.get_vocab().into_keys() {
            let mut chars = token.chars();
            let Some(mut before) = chars.next() else {
                continue;
            };
            if chars.as_str().is_empty() {
                self.letters.insert(before);
            }
            for after in chars {
                pairs.push((before, after));
                before = after;
            }
        }
        pairs.sort_unstable();
        pairs.dedup();
        pairs.shrink_to_fit();
        self.merged = Some(pairs);
    }

    fn prove(&self, before: char, after: char, memo: &mut Memo) -> bool {
        if before.is_whitespace() || !self.added.allows(before, after) {
            return false;
        }
        let normal = self
            .normals
            .iter()
            .try_fold((before, after), |(b, a), n| n.between(b, a));
        let Some((mut b, mut a)) = normal else {
            return false;
        };
        if b.is_whitespace() || !self.added_normalized.allows(b, a) {
            return false;
        }
        let mut is_split = false;
        for (i, split) in self.splits.iter().enumerate() {
            match split.between(i, b, a, memo) {
                Some(here) => is_split |= here,
                None => return false,
            }
            if let Split::Metaspace { replacement, .. } = split {
                b = if b == ' ' { *replacement } else { b };
                a = if a == ' ' { *replacement } else { a };
            }
        }
        // A character that is no token by itself becomes bytes, the unknown token, or nothing: no more is known of
        // its neighbours.
        is_split
            || self.merged.as_ref().is_some_and(|pairs| {
                self.letters.contains(&b)
                    && self.letters.contains(&a)
                    && pairs.binary_search(&(b, a)).is_err()
            })
    }
}

impl Added {
    fn allows(&self, before: char, after: char) -> bool {
        !self.pairs.contains(&(before, after))
            && !self.lasts.contains(&before)
            && !self.firsts.contains(&after)
    }
}

impl Normal {
    /// Whether it never combines with the character before it.
    fn is_inert(&self, c: char) -> bool {
        match self {
            Normal::Form(quick) => {
                c.is_ascii() || (canonical_combining_class(c) == 0 && quick(c) == IsNormalized::Yes)
            }
            _ => true,
        }
    }

    /// The normalized characters on the two sides of the position; None if unknown.
    fn between(&self, before: char, after: char) -> Option<(char, char)> {
        match self {
            Normal::Form(_) => {
                (self.is_inert(before) && self.is_inert(after)).then_some((before, after))
            }
            Normal::Lowercase => {
                Some((before.to_lowercase().last()?, after.to_lowercase().next()?))
            }
            Normal::Replace { from, to } => {
                let mut chars = from.chars();
                let first = chars.next()?;
                if chars.as_str().is_empty() {
                    let before = if before == first {
                        to.chars().last()?
                    } else {
                        before
                    };
                    let after = if after == first {
                        to.chars().next()?
                    } else {
                        after
                    };
                    return Some((before, after));
                }
                (!from.contains([before, after])).then_some((before, after))
            }
            Normal::StripAccents => {
                let mark = unicode_normalization_alignments::char::is_combining_mark;
                (!mark(before) && !mark(after)).then_some((before, after))
            }
            Normal::Ends => Some((before, after)),
            Normal::Bert {
                cleans,
                spaces_han,
                lowercases,
            } => {
                let han = |c| *spaces_han && is_han(c);
                let is_space = after == ' ' || (*cleans && matches!(after, '\t' | '\n' | '\r'));
                let becomes_space = is_space || han(after) || han(before);
                let lower = |c: char| match *lowercases {
                    true => c.to_ascii_lowercase(),
                    false => c,
                };
                let is_plain = |c: char| c.is_ascii_graphic() || is_mark(c);
                let after = match becomes_space {
                    true => ' ',
                    false if is_plain(after) => lower(after),
                    false => return None,
                };
                (is_plain(before) || han(before)).then_some((lower(before), after))
            }
        }
    }
}

/// Some of the punctuation that BERT splits at: none that NFD changes.
fn is_mark(c: char) -> bool {
    c.is_ascii_punctuation()
        || matches!(c, '\u{2010}'..='\u{2027}' | '\u{3001}'..='\u{3003}')
        || matches!(c, '\u{ff01}' | '\u{ff0c}' | '\u{ff0e}' | '\u{ff1a}' | '\u{ff1b}' | '\u{ff1f}')
}

/// Some of those that get spaces: none that NFD changes.
fn is_han(c: char) -> bool {
    matches!(c, '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}')
}

impl Split {
    /// Whether it certainly splits there; None: it may see both as one thing.
    fn between(&self, index: usize, before: char, after: char, memo: &mut Memo) -> Option<bool> {
        match self {
            Split::Pattern { follow, isolates } => {
                let mut of = |c| {
                    *memo
                        .0
                        .entry((index, c))
                        .or_insert_with(|| follow.positions(c))
                };
                let (before, after) = (of(before), of(after));
                if before == 0 && after == 0 {
                    return Some(false); // neither is in a match anywhere
                }
                let is_split = *isolates
                    && follow.apart(before, after)
                    && (follow.always_matched(before) || follow.always_matched(after));
                is_split.then_some(true)
            }
            Split::Digits { one_by_one } => {
                let (before, after) = (before.is_numeric(), after.is_numeric());
                Some(before != after || (*one_by_one && before))
            }
            Split::Punctuation => {
                Some(before.is_ascii_punctuation() || after.is_ascii_punctuation())
            }
            Split::Metaspace {
                replacement,
                splits,
            } => Some(*splits && (after == ' ' || after == *replacement)),
            Split::Space => (after == ' ').then_some(true),
            Split::Bert => (after == ' ' || is_mark(before) || is_mark(after)).then_some(true),
        }
    }
}

/// The parts of a Sequence, or the single part, or an empty list.
pub fn parts(json: Option<&str>, of_sequence: &str) -> Option<Vec<Value>> {
    let value: Value = match json {
        Some(json) => serde_json::from_str(json).ok()?,
        None => return Some(Vec::new()),
    };
    let mut all = Vec::new();
    flatten(value, of_sequence, &mut all)?;
    Some(all)
}

fn flatten(mut value: Value, of_sequence: &str, all: &mut Vec<Value>) -> Option<()> {
    if value["type"] != "Sequence" {
        all.extend((!value.is_null()).then_some(value));
        return Some(());
    }
    let Value::Array(items) = value.get_mut(of_sequence)?.take() else {
        return None;
    };
    items
        .into_iter()
        .try_for_each(|item| flatten(item, of_sequence, all))
}

fn normal(part: &Value) -> Option<Normal> {
    Some(match part["type"].as_str()? {
        "NFC" => Normal::Form(|c| is_nfc_quick(once(c))),
        "NFD" => Normal::Form(|c| is_nfd_quick(once(c))),
        "NFKC" => Normal::Form(|c| is_nfkc_quick(once(c))),
        "NFKD" => Normal::Form(|c| is_nfkd_quick(once(c))),
        "Lowercase" => Normal::Lowercase,
        "StripAccents" => Normal::StripAccents,
        "BertNormalizer" => Normal::Bert {
            cleans: part["clean_text"].as_bool()?,
            spaces_han: part["handle_chinese_chars"].as_bool()?,
            lowercases: part["lowercase"].as_bool()?,
        },
        "Prepend" | "Strip" => Normal::Ends,
        "Replace" => Normal::Replace {
            from: part["pattern"]["String"].as_str()?.to_owned(),
            to: part["content"].as_str()?.to_owned(),
        },
        _ => return None,
    })
}

/// Some(None): it does not split.
fn split_of(part: &Value) -> Option<Option<Split>> {
    Some(Some(match part["type"].as_str()? {
        "ByteLevel" if part["use_regex"] == false => return Some(None),
        "ByteLevel" => Split::Pattern {
            follow: Follow::parse(BYTE_LEVEL)?,
            isolates: true,
        },
        "Split" => {
            let pattern = &part["pattern"];
            let follow = match pattern["String"].as_str() {
                Some(text) => Follow::parse(&literally(text))?,
                None => Follow::parse(pattern["Regex"].as_str()?)?,
            };
            let isolates = matches!(part["behavior"].as_str()?, "Isolated" | "Removed");
            Split::Pattern { follow, isolates }
        }
        "Digits" => Split::Digits {
            one_by_one: part["individual_digits"] == true,
        },
        "Punctuation" if matches!(part["behavior"].as_str(), None | Some("Isolated")) => {
            Split::Punctuation
        }
        "Metaspace" => Split::Metaspace {
            replacement: part["replacement"].as_str()?.chars().next()?,
            splits: part["split"] != false,
        },
        "Whitespace" | "WhitespaceSplit" => Split::Space,
        "BertPreTokenizer" => Split::Bert,
        _ => return None,
    }))
}

/// A pattern that matches the text.
fn literally(text: &str) -> String {
    let mut pattern = String::new();
    for c in text.chars() {
        if c.is_ascii_punctuation() {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

/// The normalizer's output for a text alone.
pub fn normalized(normalizer: Option<&NormalizerWrapper>, text: &str) -> Option<String> {
    let mut text = NormalizedString::from(text);
    if let Some(normalizer) = normalizer {
        normalizer.normalize(&mut text).ok()?;
    }
    Some(text.get().to_owned())
}
