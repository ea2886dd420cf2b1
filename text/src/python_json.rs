//! Reads JSON like Python's json module: files that Python wrote, and a call's arguments that a model wrote.

use std::borrow::Cow;

use serde::de::{DeserializeOwned, IgnoredAny};

use crate::json::{string_end, unit, word_end};

/// Lets serde_json read what Python reads and it does not. NaN, Infinity and numbers that no double holds become an empty
/// array, which whoever wants a number or a text refuses; halves of surrogate pairs become U+FFFD. Each in its place, so
/// that positions stay.
pub fn mended(text: &str) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let mut out = Cow::Borrowed(bytes);
    let mut at = 0;
    while let Some(c) = bytes.get(at) {
        let from = at;
        match c {
            b'"' => {
                at = string_end(bytes, at);
                let halves = Halves {
                    text: &bytes[..at],
                    at: from,
                };
                for half in halves {
                    out.to_mut()[half..half + 6].copy_from_slice(b"\\ufffd");
                }
            }
            b'N' | b'I' | b'-' | b'0'..=b'9' => {
                at = word_end(bytes, at);
                if is_no_double(&text[from..at]) {
                    out.to_mut()[from..at].fill(b' ');
                    out.to_mut()[from..from + 2].copy_from_slice(b"[]");
                }
            }
            _ => at += 1,
        }
    }
    match out {
        Cow::Borrowed(_) => Cow::Borrowed(text),
        // Only ASCII is replaced, and only by ASCII.
        Cow::Owned(bytes) => String::from_utf8(bytes).map_or(Cow::Borrowed(text), Cow::Owned),
    }
}

fn is_no_double(word: &str) -> bool {
    is_word(word) || overflows(word)
}

/// A number of Python's that JSON has no text for.
pub fn is_word(word: &str) -> bool {
    matches!(word, "NaN" | "Infinity" | "-Infinity")
}

/// A number of JSON that a double has no room for.
fn overflows(number: &str) -> bool {
    number.len() > 4
        && (number.contains(['e', 'E']) || number.len() > 308)
        && number.parse().is_ok_and(f64::is_infinite)
        && serde_json::from_str::<IgnoredAny>(number).is_ok()
}

/// Reads a struct and keeps the last of repeated fields, which serde does not support.
pub fn read<T: DeserializeOwned>(json: &str) -> serde_json::Result<T> {
    serde_json::from_str(json).or_else(|e| {
        if e.to_string().starts_with("duplicate field") {
            return serde_json::from_value(serde_json::from_str(json)?);
        }
        Err(e)
    })
}

/// Where in a string there are escapes of halves of surrogate pairs.
struct Halves<'a> {
    text: &'a [u8],
    at: usize,
}

impl Iterator for Halves<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        loop {
            self.at += memchr::memchr(b'\\', &self.text[self.at.min(self.text.len())..])?;
            let at = self.at;
            match (unit(self.text, at), unit(self.text, at + 6)) {
                (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => self.at += 12,
                (Some(0xd800..=0xdfff), _) => {
                    self.at += 6;
                    return Some(at);
                }
                _ => self.at += 2,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_serde_cannot_read_is_mended() {
        let same = [
            "",
            "{",
            r#"{"a":[1,-2.5e3,true,null,"NaN Infinity 1e400 \\ud800 \" \u0041 \ud83d\ude00"]}"#,
            "1e308",
            "nan",
            "-Infinit",
            "Infinity1",
            "12345678901234567890123",
            "01e400",
            "\"a\\",
            "\"\\ud8",
        ];
        for text in same {
            assert_eq!(mended(text), text);
        }
        let others = [
            ("[NaN,-Infinity,Infinity]", "[[] ,[]       ,[]      ]"),
            ("{\"a\":1e400,\"b\":-1E+999}", "{\"a\":[]   ,\"b\":[]     }"),
            (
                r#""\ud800x\udc00\ud800\ud83d\ude00é""#,
                r#""\ufffdx\ufffd\ufffd\ud83d\ude00é""#,
            ),
        ];
        for (text, expected) in others {
            assert_eq!(mended(text), expected);
        }
    }
}
