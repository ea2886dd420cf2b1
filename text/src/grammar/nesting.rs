//! Bounds what the grammar compiler walks by recursion: brackets inside brackets.

use crate::error::{Error, Result};

const MAX_DEPTH: usize = 500;

/// QUIRE_INVALID with the line and column of the first bracket that is too deep. Only those count that the compiler
/// sees as brackets: not those in strings, regular expressions (they have a limit of their own), names of special
/// tokens and comments. Text that the compiler cannot split in the same way is no grammar.
pub fn check(normal: &str) -> Result<()> {
    let bytes = normal.as_bytes();
    let mut depth = 0usize;
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => at = end(bytes, at, b'"'),
            b'#' => at = line_end(bytes, at),
            b'/' if bytes.get(at + 1) == Some(&b'/') => at = line_end(bytes, at),
            b'/' => at = end(bytes, at, b'/'),
            b'<' => at = special_end(bytes, at),
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            let (line, column) = place(bytes, at);
            return Err(Error::invalid(format!(
                "grammar: line {line}, column {column}: more than {MAX_DEPTH} brackets inside each other"
            )));
        }
        at += 1;
    }
    Ok(())
}

fn place(bytes: &[u8], at: usize) -> (usize, usize) {
    let before = &bytes[..at];
    let start = memchr::memrchr(b'\n', before).map_or(0, |i| i + 1);
    let line = memchr::memchr_iter(b'\n', before).count() + 1;
    (line, at - start + 1)
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
