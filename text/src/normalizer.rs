//! Checks what a normalizer puts in the place of characters, before the tokenizers crate gets it: how long it is, since
//! each character of a text can become it, and the character map of SentencePiece. The crate trusts the map: it reserves
//! as much memory as the map's first number says, and follows any index of the trie for each text.
//!
//! A map is a u32, the bytes of the trie; the trie, a double array of u32; and replacements that end with a NUL byte.

use serde_json::Value;

use crate::error::{Error, Result};

const FIELD: &str = "precompiled_charsmap";
/// The largest map of SentencePiece, nmt_nfkc_cf, has 250 KB.
const MAX_BYTES: usize = 4 << 20;
/// Unicode's longest replacement has 33 bytes. Each character of a text can become one.
const MAX_REPLACEMENT: usize = 1024;
/// The largest byte of a UTF-8 text.
const LAST_BYTE: usize = 0xf4;

/// A normalizer of tokenizer.json, with its parts at any depth.
pub fn check(normalizer: &Value) -> Result<()> {
    match normalizer {
        Value::Array(parts) => parts.iter().try_for_each(check),
        Value::Object(fields) => fields.iter().try_for_each(|(name, value)| match value {
            Value::String(text) if name == FIELD => check_text(text).map_err(|e| e.at(FIELD)),
            // Replace and Prepend.
            Value::String(text) if name == "content" || name == "prepend" => {
                check_length(text.len()).map_err(|e| e.at(name))
            }
            _ => check(value),
        }),
        _ => Ok(()),
    }
}

fn check_text(text: &str) -> Result<()> {
    let map = base64::decode(text).map_err(|e| Error::invalid(format!("is no base64: {e}")))?;
    if map.len() > MAX_BYTES {
        return Err(Error::invalid(format!(
            "has {} bytes, the limit is {MAX_BYTES}",
            map.len()
        )));
    }
    let word = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
    let (size, rest) = map
        .split_at_checked(4)
        .ok_or_else(|| Error::invalid("has no size of its trie"))?;
    let size = word(size);
    if size == 0 || size % 4 != 0 || size > rest.len() {
        return Err(Error::invalid(format!(
            "its trie cannot have {size} of {} bytes",
            rest.len()
        )));
    }
    let (trie, replacements) = rest.split_at(size);
    let replacements = std::str::from_utf8(replacements).map_err(|e| {
        Error::invalid(format!(
            "replacements: not UTF-8 at byte {}",
            e.valid_up_to()
        ))
    })?;
    let trie: Vec<usize> = trie.chunks_exact(4).map(word).collect();
    check_trie(&trie, replacements)
}

/// Where the children of a unit lie, before their bytes are added.
fn children(unit: usize, at: usize) -> usize {
    at ^ ((unit >> 10) << ((unit & (1 << 9)) >> 6))
}

/// Every unit that some text can reach.
fn check_trie(trie: &[usize], replacements: &str) -> Result<()> {
    let outside =
        |at: usize| Error::invalid(format!("its trie of {} units has no unit {at}", trie.len()));
    let mut seen = vec![false; trie.len()];
    let mut open = vec![children(trie[0], 0)];
    while let Some(base) = open.pop() {
        if std::mem::replace(seen.get_mut(base).ok_or_else(|| outside(base))?, true) {
            continue;
        }
        for byte in 1..=LAST_BYTE {
            let at = base ^ byte;
            let unit = *trie.get(at).ok_or_else(|| outside(at))?;
            if unit & (1 << 31 | 0xff) != byte {
                continue;
            }
            let next = children(unit, at);
            if unit & 1 << 8 != 0 {
                let value = *trie.get(next).ok_or_else(|| outside(next))?;
                check_replacement(replacements, value & ((1 << 31) - 1))?;
            }
            open.push(next);
        }
    }
    Ok(())
}

fn check_replacement(replacements: &str, from: usize) -> Result<()> {
    let rest = replacements.get(from..).ok_or_else(|| {
        Error::invalid(format!(
            "its trie names a replacement at byte {from}, where none begins"
        ))
    })?;
    let length = rest
        .bytes()
        .take(MAX_REPLACEMENT + 1)
        .take_while(|byte| *byte != 0)
        .count();
    check_length(length).map_err(|e| e.at(format!("replacement at byte {from}")))
}

fn check_length(n_bytes: usize) -> Result<()> {
    if n_bytes > MAX_REPLACEMENT {
        return Err(Error::invalid(format!(
            "has more than {MAX_REPLACEMENT} bytes"
        )));
    }
    Ok(())
}
