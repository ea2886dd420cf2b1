//! text → ids, a piece at a time.
//!
//! The crate needs about 200 bytes of memory for each byte of text that it encodes at once, and cannot be stopped. A
//! longer text is therefore cut (`cut.rs`), so that it needs the memory of one piece, and the caller can cancel between
//! two pieces.

use std::sync::Arc;

use crate::cut::Memo;
use crate::error::{Error, Result};
use crate::load::Text;

/// A piece is cut at the first place from here on: 5 to 10 ms of work.
pub const PIECE_BYTES: usize = 16 << 10;
/// A text without a cut in this many bytes is rejected: it would take 0.1 s of work and 50 MB.
pub const MAX_PIECE_BYTES: usize = 256 << 10;

pub struct Pieces {
    text: Arc<Text>,
    /// Bytes of the input that are done.
    at: usize,
    /// The next piece is the first one, before which special tokens come.
    begins: bool,
    add_special: bool,
    done: bool,
    piece_bytes: usize,
    /// In the input, and no part of the text.
    mark: Option<char>,
    memo: Memo,
    /// With places: characters of the input that are done.
    chars: Option<u32>,
}

/// The ids of a piece and, if requested, their positions: the number of characters of the input before each.
#[derive(Debug, Default)]
pub struct Piece {
    pub ids: Vec<u32>,
    pub places: Vec<u32>,
}

impl Pieces {
    pub fn new(text: Arc<Text>, add_special: bool) -> Pieces {
        Pieces::sized(text, add_special, PIECE_BYTES)
    }

    pub fn sized(text: Arc<Text>, add_special: bool, piece_bytes: usize) -> Pieces {
        Pieces {
            text,
            at: 0,
            begins: true,
            add_special,
            done: false,
            piece_bytes,
            mark: None,
            memo: Memo::default(),
            chars: None,
        }
    }

    pub fn set_mark(&mut self, mark: char) {
        self.mark = Some(mark);
    }

    /// Requests positions; call it before the first piece. A text with a mark has no positions.
    pub fn set_placed(&mut self) {
        self.chars = Some(0);
    }

    fn encode(&self, text: &str, add_special: bool) -> Result<Piece> {
        let vocabulary = &self.text.vocabulary;
        let (ids, places) = match (self.mark, self.chars) {
            (Some(mark), _) => {
                let ids = vocabulary.encode_marked(text, mark, add_special)?;
                (ids, Vec::new())
            }
            (None, None) => (vocabulary.encode(text, add_special)?, Vec::new()),
            (None, Some(_)) => vocabulary.encode_placed(text, add_special)?,
        };
        Ok(Piece { ids, places })
    }

    /// The next piece; None after the last. The input is the same at each call.
    pub fn next(&mut self, input: &str) -> Result<Option<Piece>> {
        if self.done {
            return Ok(None);
        }
        let end = self.piece_end(input)?;
        let mut piece = if self.begins && end == input.len() {
            self.encode(input, self.add_special)?
        } else if self.begins {
            let mut piece = self.encode(&input[..end], false)?;
            let before = self.specials().0;
            piece.ids.splice(..0, before.iter().copied());
            if self.chars.is_some() {
                piece.places.splice(..0, before.iter().map(|_| 0));
            }
            piece
        } else {
            self.continued(input, end)?
        };
        if let Some(chars) = &mut self.chars {
            *chars += input[self.at..end].chars().count() as u32;
        }
        self.done = end == input.len();
        if self.done && !self.begins {
            piece.ids.extend(self.specials().1);
            if let Some(chars) = self.chars {
                piece.places.resize(piece.ids.len(), chars);
            }
        }
        self.begins = false;
        self.at = end;
        Ok(Some(piece))
    }

    fn specials(&self) -> (&[u32], &[u32]) {
        match &self.text.vocabulary.specials {
            Some((before, after)) if self.add_special => (before, after),
            _ => (&[], &[]),
        }
    }

    /// The ids of a piece after a cut: with the character before it, and without that one's own.
    fn continued(&self, input: &str, end: usize) -> Result<Piece> {
        let before = input[..self.at]
            .char_indices()
            .next_back()
            .map_or(0, |(i, _)| i);
        let context = self.encode(&input[before..self.at], false)?;
        let mut piece = self.encode(&input[before..end], false)?;
        if !piece.ids.starts_with(&context.ids) {
            return Err(Error::new(
                crate::error::Status::Internal,
                "tokenizer: a cut did not hold",
            ));
        }
        piece.ids.drain(..context.ids.len());
        if let Some(chars) = self.chars {
            piece.places.drain(..context.ids.len());
            for place in &mut piece.places {
                *place += chars - 1; // the character before is done
            }
        }
        Ok(piece)
    }

    fn piece_end(&mut self, input: &str) -> Result<usize> {
        if input.len() - self.at <= self.piece_bytes {
            return Ok(input.len());
        }
        let vocabulary = &self.text.vocabulary;
        let cuts = vocabulary
            .cuts
            .as_ref()
            .filter(|_| !self.add_special || vocabulary.specials.is_some());
        let mut end = self.at + self.piece_bytes;
        while !input.is_char_boundary(end) {
            end += 1;
        }
        if let (Some(cuts), Some(mut before)) = (cuts, input[..end].chars().next_back()) {
            let mut chars = input[end..].char_indices().peekable();
            while let Some((i, after)) = chars.next() {
                if end + i - self.at > MAX_PIECE_BYTES {
                    break;
                }
                let next = chars.peek().map(|(_, c)| *c);
                // A mark changes the neighbours that the tokenizer will see later.
                let marked =
                    self.mark.is_some() && [Some(before), Some(after), next].contains(&self.mark);
                if !marked && cuts.between(before, after, next, &mut self.memo) {
                    return Ok(end + i);
                }
                before = after;
            }
        }
        if input.len() - self.at <= MAX_PIECE_BYTES {
            return Ok(input.len());
        }
        Err(Error::invalid(format!(
            "the text from byte {} on has no place within {} KiB where it could be cut for the tokenizer (as between \
             two words); no piece of it may be longer",
            self.at,
            MAX_PIECE_BYTES >> 10
        )))
    }
}
