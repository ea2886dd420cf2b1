//! A lower bound of the number of tokens of a text, from its length.
//!
//! One id stands for a bounded number of bytes of the text it came from, if nothing on the way drops text or makes one
//! id of text without end. If a component of the tokenizer might do that, or is unknown, the bound is 0.

use serde_json::Value;
use tokenizers::{Model, ModelWrapper};

use crate::bytelevel;
use crate::cut::{normalized, parts};
use crate::tokenize::Tokenizer;

/// Bytes of text that one id stands for at most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    of_ascii: usize,
    of_any: usize,
}

/// Bytes that become one byte of normalized text at most.
struct Ratio {
    of_ascii: usize,
    of_any: usize,
    /// Text of ASCII still is.
    stays_ascii: bool,
}

/// A code point has at most 4 bytes, and a composed character stands for at most 3 code points in 2 bytes or 4 in 3.
const COMPOSED: usize = 6;
/// One character for one.
const CHARACTER: usize = 4;

impl Fit {
    pub fn new(
        tokenizer: &Tokenizer,
        normalizer: Option<&str>,
        split: Option<&str>,
    ) -> Option<Fit> {
        let mut ratio = Ratio {
            of_ascii: 1,
            of_any: 1,
            stays_ascii: true,
        };
        for part in parts(normalizer, "normalizers")? {
            ratio.add(&part)?;
        }
        let mut bytes = false;
        for part in parts(split, "pretokenizers")? {
            bytes |= part["type"] == "ByteLevel";
            keeps_all(&part)?;
        }
        let longest = longest_token(tokenizer.get_model(), bytes)?;
        let mut fit = Fit {
            of_ascii: longest * ratio.of_ascii,
            of_any: longest * ratio.of_any,
        };
        let added = tokenizer.get_added_vocabulary();
        for token in added.get_added_tokens_decoder().values() {
            if token.lstrip || token.rstrip {
                return None;
            }
            let bytes = if token.normalized {
                normalized(tokenizer.get_normalizer(), &token.content)?.len() * ratio.of_any
            } else {
                token.content.len()
            };
            fit.of_ascii = fit.of_ascii.max(bytes);
            fit.of_any = fit.of_any.max(bytes);
        }
        Some(fit)
    }

    /// The ids of a text are at least so many.
    pub fn least_tokens(&self, text: &str) -> usize {
        text.len().div_ceil(if text.is_ascii() {
            self.of_ascii
        } else {
            self.of_any
        })
    }
}

impl Ratio {
    fn add(&mut self, part: &Value) -> Option<()> {
        let (ratio, of_ascii, to) = match part["type"].as_str()? {
            "NFC" | "NFKC" => (COMPOSED, 1, ""),
            "NFD" | "NFKD" | "Lowercase" => (CHARACTER, 1, ""),
            "Prepend" => (1, 1, part["prepend"].as_str()?),
            "Replace" => {
                let from = part["pattern"]["String"].as_str()?;
                let to = part["content"].as_str().filter(|to| !to.is_empty())?;
                let ratio = from.len().div_ceil(to.len());
                (ratio, ratio, to)
            }
            _ => return None,
        };
        self.of_ascii *= if self.stays_ascii { of_ascii } else { ratio };
        self.of_any *= ratio;
        self.stays_ascii &= to.is_ascii();
        Some(())
    }
}

/// None: text may be dropped.
fn keeps_all(part: &Value) -> Option<()> {
    match part["type"].as_str()? {
        "ByteLevel" | "Metaspace" | "Digits" | "UnicodeScripts" => Some(()),
        "Punctuation" | "Split" => (part["behavior"] != "Removed").then_some(()),
        _ => None,
    }
}

/// For a model that gives every character an id, its own or a token's.
fn longest_token(model: &ModelWrapper, bytes: bool) -> Option<usize> {
    let ModelWrapper::BPE(bpe) = model else {
        return None;
    };
    let has = |token: &str| model.token_to_id(token).is_some();
    let every_byte = if bytes {
        bytelevel::alphabet().all(|c| has(c.encode_utf8(&mut [0; 4])))
    } else {
        bpe.byte_fallback && (0..=255u8).all(|b| has(&format!("<0x{b:02X}>")))
    };
    let affix = |a: &Option<String>| a.as_deref().is_some_and(|a| !a.is_empty());
    if affix(&bpe.continuing_subword_prefix) || affix(&bpe.end_of_word_suffix) {
        return None; // a character has other tokens in other places
    }
    let every_unknown = bpe.unk_token.as_deref().is_some_and(has) && !bpe.fuse_unk;
    if !every_byte && !every_unknown {
        return None;
    }
    let length = |token: &String| {
        if bytes {
            token.chars().count()
        } else {
            token.len()
        }
    };
    let longest = model.get_vocab().keys().map(length).max()?;
    // The unknown token stands for one character.
    Some(longest.max(CHARACTER))
}
