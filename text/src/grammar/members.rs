//! Bounds what the compiler needs quadratic time for: the members of JSON objects, which `properties` may have many of.

use crate::error::{Error, Result};

/// The sum of the squares of all objects' members: about 2 s of one core.
const MAX_WORK: usize = 16_000_000;

/// QUIRE_INVALID with the line and column of the object that exceeds the limit. Text that the compiler cannot split
/// in the same way is no grammar.
pub fn check(normal: &str) -> Result<()> {
    let bytes = normal.as_bytes();
    let mut open: Vec<(usize, usize)> = Vec::new();
    let mut work = 0usize;
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => at = end(bytes, at, b'"'),
            b'#' => at = line_end(bytes, at),
            b'/' if bytes.get(at + 1) == Some(&b'/') => at = line_end(bytes, at),
            b'/' => at = end(bytes, at, b'/'),
            b'<' => at = special_end(bytes, at),
            b'{' => open.push((at, 1)),
            b'[' | b'(' => open.push((at, 0)),
            b',' => {
                if let Some((_, n)) = open.last_mut().filter(|(_, n)| *n > 0) {
                    *n += 1;
                }
            }
            b'}' | b']' | b')' => {
                let (at, n) = open.pop().unwrap_or_default();
                work = work.saturating_add(n * n);
                if work > MAX_WORK {
                    return Err(too_many(bytes, at, n));
                }
            }
            _ => {}
        }
        at += 1;
    }
    Ok(())
}

fn too_many(bytes: &[u8], at: usize, n: usize) -> Error {
    let before = &bytes[..at];
    let start = memchr::memrchr(b'\n', before).map_or(0, |i| i + 1);
    let line = memchr::memchr_iter(b'\n', before).count() + 1;
    let column = at - start + 1;
    Error::invalid(format!(
        "grammar: line {line}, column {column}: an object of {n} members is too much; the limit is one of 4,000, or \
         several smaller ones"
    ))
}

/// The place of the closing quote or slash.
fn end(bytes: &[u8], open: usize, close: u8) -> usize {
    let mut at = open + 1;
    while at < bytes.len() && bytes[at] != close {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at
}

/// The place of the closing bracket of a special token's name; `open` if it is none.
fn special_end(bytes: &[u8], open: usize) -> usize {
    let name = |b: &u8| *b == b'<' || *b == b'>' || b.is_ascii_whitespace();
    let stop = bytes[open + 1..].iter().position(name);
    match stop.map(|n| open + 1 + n) {
        Some(at) if bytes[at] == b'>' => at,
        _ => open,
    }
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    memchr::memchr(b'\n', &bytes[at..]).map_or(bytes.len(), |n| at + n)
}
