//! The reasoning before a structured answer: which text ends it, and after how many tokens it is ended by force.
//!
//! A normal text may begin with the line `%reasoning {…}`. Until the reasoning ends, its text is free: the mask is a copy
//! of the tokenizer's own, and llguidance is not called. So tokens can be counted, which llguidance's max_tokens cannot
//! do in a matcher that rolls back, and special tokens may occur in the reasoning.

use serde::Deserialize;

use super::tokens::Tokens;
use crate::error::{Error, Result};

pub const DIRECTIVE: &str = "%reasoning ";
const MAX_TEXT_BYTES: usize = 256;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Begins {
    /// The prompt has opened it.
    Inside,
    /// The answer may open it with its first token.
    May,
    /// The answer opens it.
    Must,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    begins: Begins,
    open: String,
    end: String,
    /// Begins with `end`; what an exhausted budget writes.
    force: String,
    budget: Option<u32>,
}

pub struct Reasoning {
    pub begins: Begins,
    pub open: Vec<u8>,
    pub open_ids: Vec<u32>,
    pub end: Vec<u8>,
    pub force: String,
    pub budget: Option<usize>,
    /// The answer behind it is free, too.
    pub is_free: bool,
    /// By number of the bytes of `end` that came before: ids that complete it, with more than blanks behind it.
    beyond: Vec<Vec<u32>>,
}

/// The reasoning of a normal text, and the rest of the text.
pub fn split<'a>(normal: &'a str, tokens: &Tokens) -> Result<(Option<Reasoning>, &'a str)> {
    let Some(text) = normal.strip_prefix(DIRECTIVE) else {
        return Ok((None, normal));
    };
    let (line, rest) = text.split_once('\n').unwrap_or((text, ""));
    let line: Line = serde_json::from_str(line)
        .map_err(|e| Error::invalid(format!("grammar: line 1: %reasoning: {e}")))?;
    let bad = |why: &str| Err(Error::invalid(format!("grammar: line 1: %reasoning: {why}")));
    if line.end.is_empty() || !line.force.starts_with(&line.end) {
        return bad("force does not begin with end, or end is empty");
    }
    if line.open.len().max(line.force.len()) > MAX_TEXT_BYTES {
        return bad("a text is too long");
    }
    if line.open.is_empty() != (line.begins == Begins::Inside) {
        return bad("open is missing, or not needed");
    }
    let is_free = rest.is_empty();
    if !is_free && line.force != line.end {
        return bad("force goes on behind end");
    }
    tokens.spell(&line.force)?;
    let end = line.end.into_bytes();
    let beyond = match is_free {
        true => Vec::new(),
        false => beyond(tokens, &end),
    };
    Ok((
        Some(Reasoning {
            begins: line.begins,
            open_ids: tokens.spell(&line.open)?,
            open: line.open.into_bytes(),
            end,
            force: line.force,
            budget: line.budget.map(|n| n as usize),
            is_free,
            beyond,
        }),
        rest,
    ))
}

/// Whether a normal text restricts more than the reasoning.
pub fn has_form(normal: &[u8]) -> bool {
    let is_line = normal.starts_with(DIRECTIVE.as_bytes());
    match normal.iter().position(|byte| *byte == b'\n') {
        Some(end) if is_line => end + 1 < normal.len(),
        _ => !is_line && !normal.is_empty(),
    }
}

fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

fn beyond(tokens: &Tokens, end: &[u8]) -> Vec<Vec<u32>> {
    let mut lists = vec![Vec::new(); end.len()];
    for id in tokens.live() {
        let bytes = tokens.bytes(id);
        for (k, list) in lists.iter_mut().enumerate() {
            let done = match k {
                0 => memchr::memmem::find(bytes, end).map(|at| at + end.len()),
                _ => bytes.starts_with(&end[k..]).then(|| end.len() - k),
            };
            if done.is_some_and(|at| !bytes[at..].iter().all(is_blank)) {
                list.push(id);
            }
        }
    }
    lists
}

impl Reasoning {
    /// The last bytes of the text of these ids, fewer than those of the end.
    fn tail(&self, tokens: &Tokens, ids: &[u32]) -> Vec<u8> {
        let most = self.end.len() - 1;
        let mut from = ids.len();
        let mut n = 0;
        while from > 0 && n < most {
            from -= 1;
            n += tokens.bytes(ids[from]).len();
        }
        let parts: Vec<&[u8]> = ids[from..].iter().map(|id| tokens.bytes(*id)).collect();
        let mut tail = parts.concat();
        tail.drain(..tail.len().saturating_sub(most));
        tail
    }

    /// The number of bytes of the end that these ids have written.
    pub fn begun(&self, tokens: &Tokens, ids: &[u32]) -> usize {
        let tail = self.tail(tokens, ids);
        (0..=tail.len())
            .rev()
            .find(|k| tail.ends_with(&self.end[..*k]))
            .unwrap_or(0)
    }

    /// Whether this id completes the end behind those ids.
    pub fn is_ended_by(&self, tokens: &Tokens, ids: &[u32], id: u32) -> bool {
        self.behind(tokens, ids, id).is_some()
    }

    /// What this id writes behind the end. None: it does not complete the end.
    fn behind(&self, tokens: &Tokens, ids: &[u32], id: u32) -> Option<Vec<u8>> {
        let mut text = self.tail(tokens, ids);
        text.extend_from_slice(tokens.bytes(id));
        let at = memchr::memmem::find(&text, &self.end)?;
        Some(text.split_off(at + self.end.len()))
    }

    /// Whether this id may follow those ids in the reasoning. A structured answer begins with a token of its own.
    pub fn allows(&self, tokens: &Tokens, ids: &[u32], id: u32) -> bool {
        let behind = |behind: Vec<u8>| behind.iter().all(is_blank);
        tokens.is_live_text(id) && (self.is_free || self.behind(tokens, ids, id).is_none_or(behind))
    }

    /// The ids that may follow these in the reasoning.
    pub fn mask(&self, tokens: &Tokens, ids: &[u32], words: &mut [u32]) {
        words.copy_from_slice(&tokens.live_text);
        if self.is_free {
            return;
        }
        let tail = self.tail(tokens, ids);
        for (k, list) in self.beyond.iter().enumerate() {
            if tail.ends_with(&self.end[..k]) {
                for id in list {
                    words[*id as usize / 32] &= !(1 << (id % 32));
                }
            }
        }
    }

    /// Whether the answer of these ids opens the reasoning. None: it may still do so.
    pub fn is_opened_by(&self, tokens: &Tokens, ids: &[u32]) -> Option<bool> {
        let parts: Vec<&[u8]> = ids.iter().map(|id| tokens.bytes(*id)).collect();
        let text = parts.concat();
        let text = text.trim_ascii_start();
        match text.starts_with(&self.open) {
            true => Some(true),
            false => (!self.open.starts_with(text)).then_some(false),
        }
    }
}
