//! Special tokens that a request's text spells. For the client they are text, but a tokenizer takes them for tokens.
//!
//! A mark is a character inside such a word that prevents this. Templates copy it together with the word, and the
//! encoder removes it after it has found the tokens (`tokenize.rs`). It is one of Unicode's noncharacters, which normal
//! text never contains, and one that the request does not contain.

use aho_corasick::{AhoCorasick, MatchKind};
use memchr::memmem;

use crate::error::{Error, Result, Status};

const FIRST_MARK: u32 = 0xfdd0;
const N_MARKS: u32 = 32;

/// The special tokens of a tokenizer, by their contents. One of a single character has no inside: it is not here.
pub struct Specials {
    find: Option<AhoCorasick>,
    contents: Vec<String>,
}

impl Specials {
    pub fn new(contents: Vec<String>) -> Result<Specials> {
        let mut contents = contents;
        contents.retain(|content| content.chars().nth(1).is_some());
        let find = match contents.is_empty() {
            true => None,
            false => Some(
                AhoCorasick::builder()
                    .match_kind(MatchKind::LeftmostLongest)
                    .build(&contents)
                    .map_err(|e| Error::new(Status::Internal, e.to_string()))?,
            ),
        };
        Ok(Specials { find, contents })
    }

    /// Those that stand in a text, in their order, from left to right and not overlapping.
    pub fn spelled<'a: 't, 't>(&'a self, text: &'t str) -> impl Iterator<Item = &'a str> + 't {
        self.find
            .iter()
            .flat_map(move |find| find.find_iter(text))
            .map(|found| self.contents[found.pattern().as_usize()].as_str())
    }

    /// The text with a mark in each, and the mark. None: none is spelled, or the text has all marks.
    pub fn as_text(&self, text: &str) -> Option<(String, char)> {
        self.find.as_ref()?.find(text)?;
        let mark = unused(std::iter::once(text))?;
        Some((self.marked(text, mark)?, mark))
    }

    /// Inserts a mark into each, until no special token is spelled; returns None if none was found.
    pub fn marked(&self, text: &str, mark: char) -> Option<String> {
        let find = self.find.as_ref()?;
        let mut marked: Option<String> = None;
        loop {
            let text = marked.as_deref().unwrap_or(text);
            let mut out = String::new();
            let mut done = 0;
            for found in find.find_iter(text) {
                let inside = text[found.start()..]
                    .chars()
                    .next()
                    .map_or(found.start(), |c| found.start() + c.len_utf8());
                out.push_str(&text[done..inside]);
                out.push(mark);
                done = inside;
            }
            if done == 0 {
                return marked;
            }
            out.push_str(&text[done..]);
            marked = Some(out);
        }
    }
}

/// The treatment of special tokens that a request's text spells: enum quire_specials.
#[derive(Default, Clone, Copy, PartialEq)]
pub enum Spelled {
    #[default]
    Encode,
    Refuse,
    Text,
}

/// Sees the words of one request as they are read.
pub struct Speller<'a> {
    specials: &'a Specials,
    spelled: Spelled,
    mark: char,
    marked: bool,
    refused: Option<&'a str>,
}

impl<'a> Speller<'a> {
    /// texts: all of the request, in JSON.
    pub fn new<'t>(
        specials: &'a Specials,
        spelled: Spelled,
        texts: impl Iterator<Item = &'t str>,
    ) -> Speller<'a> {
        let unused = match spelled {
            Spelled::Text if specials.find.is_some() => unused(texts),
            _ => None,
        };
        Speller {
            specials,
            // A client whose request uses all noncharacters may not spell special tokens.
            spelled: match (spelled, unused) {
                (Spelled::Text, None) => Spelled::Refuse,
                _ => spelled,
            },
            mark: unused.unwrap_or_default(),
            marked: false,
            refused: None,
        }
    }

    /// A string: what it is to be instead, where that is something else.
    pub fn see(&mut self, text: &str) -> Option<String> {
        match self.spelled {
            Spelled::Encode => None,
            Spelled::Refuse => {
                if self.refused.is_none() {
                    self.refused = self.specials.spelled(text).next();
                }
                None
            }
            Spelled::Text => {
                let marked = self.specials.marked(text, self.mark);
                self.marked |= marked.is_some();
                marked
            }
        }
    }

    /// The spelled token that causes a rejection.
    pub fn refused(&self) -> Option<&'a str> {
        self.refused
    }

    /// The mark, where one was made.
    pub fn mark(&self) -> Option<char> {
        self.marked.then_some(self.mark)
    }
}

/// A mark that none of the texts has; None: they have all, as it is or as JSON's \ufdd0.
fn unused<'t>(texts: impl Iterator<Item = &'t str>) -> Option<char> {
    let mut used = 0u32;
    for text in texts {
        // EF B7 90 to EF B7 AF
        for at in memmem::find_iter(text.as_bytes(), b"\xef\xb7") {
            let i = u32::from(text.as_bytes()[at + 2]).wrapping_sub(0x90);
            used |= 1u32.checked_shl(i).unwrap_or(0);
        }
        for at in memmem::find_iter(text.as_bytes(), b"\\u") {
            let digits = text.get(at + 2..at + 6).unwrap_or("");
            let c = u32::from_str_radix(digits, 16).unwrap_or(0);
            used |= 1u32.checked_shl(c.wrapping_sub(FIRST_MARK)).unwrap_or(0);
        }
    }
    (0..N_MARKS)
        .find(|i| used & 1 << i == 0)
        .and_then(|i| char::from_u32(FIRST_MARK + i))
}
