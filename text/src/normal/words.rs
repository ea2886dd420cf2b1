//! Literal texts of a format of tool calls, in which some texts are special tokens of the model.

use serde_json::Value;

use super::lark::{quoted, Lark};
use super::path::Path;
use crate::error::Result;

const MAX_SPECIALS: usize = 16;

/// Texts that are special tokens, and their ids.
#[derive(Default)]
pub struct Words<'a>(Vec<(&'a str, u64)>);

impl<'a> Words<'a> {
    pub fn of(value: Option<&'a Value>, at: &Path) -> Result<Words<'a>> {
        let wrong = || at.invalid(format!("not an object of at most {MAX_SPECIALS} ids"));
        let Some(value) = value else {
            return Ok(Words::default());
        };
        let Some(map) = value.as_object().filter(|m| m.len() <= MAX_SPECIALS) else {
            return wrong();
        };
        let mut words = Vec::new();
        for (text, id) in map {
            match id.as_u64().filter(|id| *id <= u64::from(u32::MAX)) {
                Some(id) if !text.is_empty() => words.push((text.as_str(), id)),
                _ => return wrong(),
            }
        }
        Ok(Words(words))
    }

    /// A text as Lark writes it; "" for an empty one.
    pub fn literal(&self, text: &str) -> String {
        let mut parts = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let found = |(word, id): &(&str, u64)| Some((rest.find(word)?, word.len(), *id));
            match self.0.iter().filter_map(found).min() {
                Some((at, n, id)) => {
                    if at > 0 {
                        parts.push(quoted(&rest[..at]));
                    }
                    parts.push(format!("<[{id}]>"));
                    rest = &rest[at + n..];
                }
                None => {
                    parts.push(quoted(rest));
                    rest = "";
                }
            }
        }
        parts.join(" ")
    }

    /// Any text up to the first of these ends, and the end. Also without `excluded`.
    pub fn text_up_to(&self, lark: &mut Lark, end: &str, excluded: &[&str]) -> String {
        let is_special = self.0.iter().any(|(word, _)| *word == end);
        match is_special {
            true => {
                let all = [excluded, &[end]].concat();
                format!("{} {}", lark.text_without(&all), self.literal(end))
            }
            false => lark.text_up_to(&[end], excluded),
        }
    }
}
