//! Reads the "model" of tokenizer.json when it is a BPE, which every large vocabulary is.
//!
//! The crate's own reader buffers the whole object three times before it builds the model; this
//! one visits the JSON once, so that a vocabulary of 150,000 tokens opens in a fraction of a
//! second. It also checks what the crate takes on trust.

use std::fmt;

use ahash::AHashMap;
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde::Deserialize;
use tokenizers::models::bpe::{BpeBuilder, BPE};

use crate::error::{without_position, Error, Result};
use crate::python_json;

/// A vocabulary: token → id.
struct Vocab(AHashMap<String, u32>);

impl<'de> Deserialize<'de> for Vocab {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Vocab, D::Error> {
        struct VocabVisitor;
        impl<'de> Visitor<'de> for VocabVisitor {
            type Value = Vocab;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a map from token to id")
            }

            fn visit_map<A: MapAccess<'de>>(
                self,
                mut map: A,
            ) -> std::result::Result<Vocab, A::Error> {
                // Counted first, the map is built once, at its size, and never grown.
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry::<String, u32>()? {
                    entries.push(entry);
                }
                Ok(Vocab(entries.into_iter().collect()))
            }
        }
        deserializer.deserialize_map(VocabVisitor)
    }
}

/// One merge: ["a", "b"], or "a b" as older files have it.
struct Merge(String, String);

impl<'de> Deserialize<'de> for Merge {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Merge, D::Error> {
        struct MergeVisitor;
        impl<'de> Visitor<'de> for MergeVisitor {
            type Value = Merge;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a merge, [\"a\", \"b\"] or \"a b\"")
            }

            fn visit_str<E: serde::de::Error>(self, line: &str) -> std::result::Result<Merge, E> {
                match line.split_once(' ') {
                    Some((a, b)) if !b.contains(' ') => Ok(Merge(a.to_owned(), b.to_owned())),
                    _ => Err(E::custom(format!("merge {line:?} is not two tokens"))),
                }
            }

            fn visit_seq<A: SeqAccess<'de>>(
                self,
                mut seq: A,
            ) -> std::result::Result<Merge, A::Error> {
                let a = seq
                    .next_element()?
                    .ok_or_else(|| A::Error::invalid_length(0, &self))?;
                let b = seq
                    .next_element()?
                    .ok_or_else(|| A::Error::invalid_length(1, &self))?;
                match seq.next_element::<String>()? {
                    Some(_) => Err(A::Error::invalid_length(3, &self)),
                    None => Ok(Merge(a, b)),
                }
            }
        }
        deserializer.deserialize_any(MergeVisitor)
    }
}

struct Merges(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Merges {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Merges, D::Error> {
        struct MergesVisitor;
        impl<'de> Visitor<'de> for MergesVisitor {
            type Value = Merges;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a list of merges")
            }

            fn visit_seq<A: SeqAccess<'de>>(
                self,
                mut seq: A,
            ) -> std::result::Result<Merges, A::Error> {
                let mut merges = Vec::new();
                while let Some(Merge(a, b)) = seq.next_element()? {
                    // The header line that a merges.txt carries into some conversions.
                    if !(merges.is_empty() && a.starts_with("#version")) {
                        merges.push((a, b));
                    }
                }
                Ok(Merges(merges))
            }
        }
        deserializer.deserialize_seq(MergesVisitor)
    }
}

/// The fields of a BPE model. `dropout` is left out on purpose: it makes the tokens of a text
/// random, which is for training.
#[derive(Deserialize)]
struct BpeFile {
    unk_token: Option<String>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    fuse_unk: Option<bool>,
    byte_fallback: Option<bool>,
    ignore_merges: Option<bool>,
    vocab: Vocab,
    merges: Merges,
}

/// The largest id of a vocabulary. Two tokens of one id are refused: the crate's map from ids to tokens would keep either of them,
/// as the random seed of a hash has it, and the same answer would read differently after each start.
pub fn largest_id<'a>(
    vocab: impl Iterator<Item = (&'a String, &'a u32)> + Clone,
) -> Result<Option<u32>> {
    let mut ids: Vec<u32> = vocab.clone().map(|(_, id)| *id).collect();
    ids.sort_unstable();
    let Some(twice) = ids.windows(2).find(|pair| pair[0] == pair[1]) else {
        return Ok(ids.last().copied());
    };
    let mut tokens: Vec<String> = vocab
        .filter(|(_, id)| **id == twice[0])
        .map(|(token, _)| token.chars().take(40).collect())
        .collect();
    tokens.sort_unstable();
    Err(Error::invalid(format!(
        "vocab: {:?} and {:?} have the same id {}",
        tokens[0], tokens[1], twice[0]
    )))
}

/// The model and its largest id.
pub fn parse(json: &str) -> Result<(BPE, Option<u32>)> {
    let file: BpeFile = python_json::read(json).map_err(without_position)?;
    check_merges(&file)?;
    let largest = largest_id(file.vocab.0.iter())?;
    let mut builder = BpeBuilder::new()
        .vocab_and_merges(file.vocab.0, file.merges.0)
        .fuse_unk(file.fuse_unk.unwrap_or(false))
        .byte_fallback(file.byte_fallback.unwrap_or(false))
        .ignore_merges(file.ignore_merges.unwrap_or(false));
    if let Some(token) = file.unk_token {
        builder = builder.unk_token(token);
    }
    if let Some(prefix) = file.continuing_subword_prefix {
        builder = builder.continuing_subword_prefix(prefix);
    }
    if let Some(suffix) = file.end_of_word_suffix {
        builder = builder.end_of_word_suffix(suffix);
    }
    let model = builder.build().map_err(|e| Error::invalid(e.to_string()))?;
    Ok((model, largest))
}

/// The crate cuts the continuing-subword prefix off the second half of a merge by length alone;
/// on a file that lies it would cut inside a character.
fn check_merges(file: &BpeFile) -> Result<()> {
    let Some(prefix) = file
        .continuing_subword_prefix
        .as_deref()
        .filter(|p| !p.is_empty())
    else {
        return Ok(());
    };
    match file.merges.0.iter().find(|(_, b)| !b.starts_with(prefix)) {
        Some((a, b)) => Err(Error::invalid(format!(
            "merges: [{a:?}, {b:?}] lacks the continuing_subword_prefix {prefix:?}"
        ))),
        None => Ok(()),
    }
}
