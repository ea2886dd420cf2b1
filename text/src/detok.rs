//! ids → text, whole or one id at a time.
//!
//! The decoder of tokenizer.json becomes a row of rules, and a stream keeps one small state per
//! rule, so that a token costs the same at the start of a text and after a million tokens, and
//! the whole decode is the stream run to its end. Nothing is ever decoded twice.
//!
//! Text is handed from rule to rule either as whole tokens or, after a rule that joins them (ByteLevel, Fuse), as
//! pieces of one text. Text of the prompt is "muted": it passes through the rules, because they count it, but it is not
//! returned.

use std::sync::Arc;

use tokenizers::decoders::wordpiece;
use tokenizers::pre_tokenizers::metaspace::PrependScheme;
use tokenizers::{Decoder, DecoderWrapper};

use crate::bytelevel;
use crate::error::{Error, Result, Status};
use crate::load::Text;
use crate::tokenize::Vocabulary;

/// How a tokenizer's decoder is run.
pub enum Plan {
    Rules(Vec<Rule>),
    /// A decoder that needs the end of the text to decode its start, or one no language model
    /// has: the stream collects ids and the crate decodes them at the end.
    Whole,
}

pub enum Rule {
    /// Per token: what the crate does to each token by itself.
    Each(Box<DecoderWrapper>),
    /// Per token or per piece: every `from` becomes `to`.
    Replace { from: String, to: String },
    /// Per token: a run of "<0xAB>" tokens becomes its text, or one U+FFFD per byte.
    ByteFallback,
    /// Per token: up to so many characters from either end.
    StripToken {
        content: char,
        start: usize,
        stop: usize,
    },
    /// Per piece: up to so many characters from the start of the text.
    StripText { content: char, start: usize },
    /// Per token: the replacement character becomes a space, or nothing in the first token.
    Metaspace { replacement: char },
    /// Per token: a space before every token that does not continue a word.
    WordPiece { prefix: String, cleanup: bool },
    /// Per token: the bytes of all tokens are one text.
    ByteLevel,
    /// Per token: a space between two tokens; what is done without any decoder.
    Join,
}

/// The state of one rule between two tokens.
#[derive(Default)]
struct State {
    /// A token, or a character that ends the stripping, has been seen.
    started: bool,
    /// Characters stripped so far.
    stripped: usize,
    /// Bytes that do not make text yet, the first `muted` of them from the prompt.
    pending: Vec<u8>,
    muted: usize,
}

impl Plan {
    pub fn new(decoder: Option<&DecoderWrapper>) -> Plan {
        let parts: &[DecoderWrapper] = match decoder {
            None => return Plan::Rules(vec![Rule::Join]),
            Some(DecoderWrapper::Sequence(sequence)) => sequence.get_decoders(),
            Some(one) => std::slice::from_ref(one),
        };
        let mut rules = Vec::new();
        let mut joined = false;
        for part in parts {
            match rule_for(part, joined) {
                Some(Some(rule)) => rules.push(rule),
                Some(None) => {}
                None => return Plan::Whole,
            }
            joined |= matches!(part, DecoderWrapper::Fuse(_) | DecoderWrapper::ByteLevel(_));
        }
        Plan::Rules(rules)
    }

    /// Whether a text is the bytes of its tokens, one after the other, except at its start and its end.
    pub fn concatenates(&self) -> bool {
        let Plan::Rules(rules) = self else {
            return false;
        };
        !rules
            .iter()
            .any(|rule| matches!(rule, Rule::Each(_) | Rule::WordPiece { .. } | Rule::Join))
    }

    /// The bytes one token of the model stands for, wherever it appears.
    pub fn token_bytes(&self, token: &str) -> Vec<u8> {
        let Plan::Rules(rules) = self else {
            return token.as_bytes().to_vec();
        };
        let mut text = token.to_owned();
        for rule in rules {
            match rule {
                Rule::ByteLevel => {
                    let mut bytes = Vec::new();
                    bytelevel::append_token(&text, &mut bytes);
                    return bytes;
                }
                Rule::ByteFallback => {
                    if let Some(byte) = fallback_byte(&text) {
                        return vec![byte];
                    }
                }
                Rule::Replace { from, to } => text = text.replace(from, to),
                Rule::Metaspace { replacement } => text = text.replace(*replacement, " "),
                Rule::WordPiece { prefix, .. } => {
                    text = text
                        .strip_prefix(prefix.as_str())
                        .unwrap_or(&text)
                        .to_owned();
                }
                Rule::Each(_) | Rule::StripToken { .. } | Rule::StripText { .. } | Rule::Join => {}
            }
        }
        text.into_bytes()
    }
}

/// The rule for one decoder; Some(None) if it changes nothing, None if it is not supported.
fn rule_for(decoder: &DecoderWrapper, joined: bool) -> Option<Option<Rule>> {
    let rule = match decoder {
        // Joining tokens is only a change of what a piece means to the rules that follow.
        DecoderWrapper::Fuse(_) => return Some(None),
        DecoderWrapper::ByteLevel(_) if !joined => Rule::ByteLevel,
        DecoderWrapper::ByteFallback(_) if !joined => Rule::ByteFallback,
        DecoderWrapper::Strip(s) if !joined => Rule::StripToken {
            content: s.content,
            start: s.start,
            stop: s.stop,
        },
        DecoderWrapper::Strip(s) if s.stop == 0 => Rule::StripText {
            content: s.content,
            start: s.start,
        },
        DecoderWrapper::Metaspace(m) => {
            let replacement = m.get_replacement();
            match m.get_prepend_scheme() {
                PrependScheme::Never => Rule::Replace {
                    from: replacement.into(),
                    to: " ".to_owned(),
                },
                // The joined text is the first token from end to end.
                _ if joined => Rule::Replace {
                    from: replacement.into(),
                    to: String::new(),
                },
                _ => Rule::Metaspace { replacement },
            }
        }
        DecoderWrapper::WordPiece(w) if !joined => Rule::WordPiece {
            prefix: w.prefix.clone(),
            cleanup: w.cleanup,
        },
        DecoderWrapper::Replace(_) => return replace_rule(decoder, joined).map(Some),
        _ => return None,
    };
    Some(Some(rule))
}

fn replace_rule(decoder: &DecoderWrapper, joined: bool) -> Option<Rule> {
    // The pattern is private to the crate, but its JSON contains it.
    let json = serde_json::to_value(decoder).ok()?;
    let from = json.get("pattern")?.get("String").and_then(|s| s.as_str());
    let to = json.get("content")?.as_str()?;
    match from {
        // A match that spans two pieces would be missed: one character cannot.
        Some(from) if from.chars().count() == 1 || (!joined && !from.is_empty()) => {
            Some(Rule::Replace {
                from: from.to_owned(),
                to: to.to_owned(),
            })
        }
        _ if !joined => Some(Rule::Each(Box::new(decoder.clone()))),
        _ => None,
    }
}

/// The byte of a "<0xAB>" token.
fn fallback_byte(token: &str) -> Option<u8> {
    let hex = token.strip_prefix("<0x")?.strip_suffix('>')?;
    if hex.len() == 2 {
        u8::from_str_radix(hex, 16).ok()
    } else {
        None
    }
}

/// A piece of text on its way through the rules.
#[derive(Clone, Copy)]
struct Piece<'a> {
    text: &'a str,
    muted: bool,
}

fn push(rules: &[Rule], states: &mut [State], piece: Piece, out: &mut String) -> Result<()> {
    let (Some((rule, rules)), Some((state, states))) =
        (rules.split_first(), states.split_first_mut())
    else {
        if !piece.muted {
            out.push_str(piece.text);
        }
        return Ok(());
    };
    let Piece { text, muted } = piece;
    let changed = match rule {
        Rule::Replace { from, to } => {
            if !text.contains(from.as_str()) {
                return push(rules, states, piece, out);
            }
            text.replace(from, to)
        }
        Rule::Each(decoder) => decoder
            .decode_chain(vec![text.to_owned()])
            .map_err(|e| Error::new(Status::Internal, format!("decoder: {e}")))?
            .concat(),
        Rule::Metaspace { replacement } => {
            let space = if state.started { " " } else { "" };
            text.replace(*replacement, space)
        }
        Rule::WordPiece { prefix, cleanup } => {
            let text = match text.strip_prefix(prefix.as_str()) {
                _ if !state.started => text.to_owned(),
                Some(rest) => rest.to_owned(),
                None => format!(" {text}"),
            };
            if *cleanup {
                wordpiece::cleanup(&text)
            } else {
                text
            }
        }
        Rule::Join => match state.started {
            true => format!(" {text}"),
            false => text.to_owned(),
        },
        Rule::StripToken {
            content,
            start,
            stop,
        } => strip_token(text, *content, *start, *stop),
        Rule::StripText { content, start } => {
            let text = strip_text(text, *content, *start, state);
            return push(rules, states, Piece { text, muted }, out);
        }
        Rule::ByteFallback => match fallback_byte(text) {
            Some(byte) => {
                state.pending.push(byte);
                state.muted += usize::from(muted);
                return Ok(());
            }
            None => {
                flush_fallback(rules, state, states, out)?;
                return push(rules, states, piece, out);
            }
        },
        Rule::ByteLevel => {
            let before = state.pending.len();
            bytelevel::append_token(text, &mut state.pending);
            if muted {
                state.muted += state.pending.len() - before;
            }
            return flush_bytes(rules, state, states, false, out);
        }
    };
    state.started = true;
    push(
        rules,
        states,
        Piece {
            text: &changed,
            muted,
        },
        out,
    )
}

fn finish(rules: &[Rule], states: &mut [State], out: &mut String) -> Result<()> {
    for at in 0..rules.len() {
        let (head, tail) = states.split_at_mut(at + 1);
        let (state, rest) = (&mut head[at], &rules[at + 1..]);
        match rules[at] {
            Rule::ByteFallback => flush_fallback(rest, state, tail, out)?,
            Rule::ByteLevel => flush_bytes(rest, state, tail, true, out)?,
            _ => {}
        }
    }
    Ok(())
}

/// The number of characters that the bytes waiting in a rule form, without those of the prompt, before a token that
/// follows them; None: before the end of the text. It accounts for the bytes that this token may add to an unfinished
/// character.
fn held(rule: &Rule, state: &State, next: Option<&str>) -> usize {
    let (bytes, muted) = (state.pending.as_slice(), state.muted);
    match rule {
        Rule::ByteLevel if bytes.is_empty() || muted > 0 => 0,
        // They are the beginning of one character.
        Rule::ByteLevel => {
            let mut all = bytes.to_vec();
            if let Some(next) = next {
                bytelevel::append_token(next, &mut all);
            }
            let is_broken = match std::str::from_utf8(&all) {
                Ok(_) => false,
                Err(e) if e.valid_up_to() > 0 => false,
                Err(e) => next.is_none() || e.error_len() == Some(bytes.len()),
            };
            usize::from(is_broken)
        }
        Rule::ByteFallback => {
            let goes_on = next.is_some_and(|token| fallback_byte(token).is_some());
            match std::str::from_utf8(bytes) {
                Ok(text) => text
                    .char_indices()
                    .filter(|(at, c)| at + c.len_utf8() > muted)
                    .count(),
                // The next byte may be what it lacks.
                Err(e) if goes_on && e.error_len().is_none() => {
                    let whole = &bytes[..e.valid_up_to()];
                    std::str::from_utf8(whole).map_or(0, |text| text.chars().count())
                }
                Err(_) => bytes.len() - muted,
            }
        }
        _ => 0,
    }
}

/// As the crate strips: never more than is there.
fn strip_token(text: &str, content: char, start: usize, stop: usize) -> String {
    let lead = text
        .chars()
        .take(start)
        .take_while(|c| *c == content)
        .count();
    let rest = &text[lead * content.len_utf8()..];
    let trail = rest
        .chars()
        .rev()
        .take(stop)
        .take_while(|c| *c == content)
        .count();
    rest[..rest.len() - trail * content.len_utf8()].to_owned()
}

fn strip_text<'a>(text: &'a str, content: char, start: usize, state: &mut State) -> &'a str {
    let mut rest = text;
    while !state.started && !rest.is_empty() {
        match rest.strip_prefix(content) {
            Some(after) if state.stripped < start => {
                state.stripped += 1;
                rest = after;
            }
            _ => state.started = true,
        }
    }
    rest
}

/// The end of a run of byte tokens: text if all of it is UTF-8, otherwise one U+FFFD per byte. Only the whole run
/// decides that, so nothing is returned before it ends.
fn flush_fallback(
    rules: &[Rule],
    state: &mut State,
    states: &mut [State],
    out: &mut String,
) -> Result<()> {
    if state.pending.is_empty() {
        return Ok(());
    }
    let run = std::mem::take(&mut state.pending);
    let muted = std::mem::take(&mut state.muted);
    match std::str::from_utf8(&run) {
        Ok(text) => push_split(rules, states, text, muted, out),
        Err(_) => (0..run.len()).try_for_each(|i| {
            push(
                rules,
                states,
                Piece {
                    text: "\u{fffd}",
                    muted: i < muted,
                },
                out,
            )
        }),
    }
}

/// Gives out what of the pending bytes is decided: complete characters, and one U+FFFD for each
/// sequence that can no longer become one, as String::from_utf8_lossy has it.
fn flush_bytes(
    rules: &[Rule],
    state: &mut State,
    states: &mut [State],
    at_end: bool,
    out: &mut String,
) -> Result<()> {
    let bytes = std::mem::take(&mut state.pending);
    let muted = std::mem::take(&mut state.muted);
    let mut done = 0;
    while done < bytes.len() {
        let rest = &bytes[done..];
        let left_muted = muted.saturating_sub(done);
        let (valid, broken) = match std::str::from_utf8(rest) {
            Ok(_) => (rest.len(), 0),
            Err(e) => {
                let tail = rest.len() - e.valid_up_to();
                (
                    e.valid_up_to(),
                    e.error_len().unwrap_or(if at_end { tail } else { 0 }),
                )
            }
        };
        if let Ok(text) = std::str::from_utf8(&rest[..valid]) {
            push_split(rules, states, text, left_muted, out)?;
        }
        if broken > 0 {
            // A broken sequence that the prompt began is the prompt's.
            let piece = Piece {
                text: "\u{fffd}",
                muted: valid < left_muted,
            };
            push(rules, states, piece, out)?;
        }
        done += valid + broken;
        if broken == 0 {
            break;
        }
    }
    state.pending.extend_from_slice(&bytes[done..]);
    state.muted = muted.saturating_sub(done);
    Ok(())
}

/// Pushes text whose first `muted` bytes belong to the prompt. A character that the prompt only began is not muted,
/// because the prompt's own text did not contain it.
fn push_split(
    rules: &[Rule],
    states: &mut [State],
    text: &str,
    muted: usize,
    out: &mut String,
) -> Result<()> {
    let mut at = muted.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let (before, after) = text.split_at(at);
    if !before.is_empty() {
        push(
            rules,
            states,
            Piece {
                text: before,
                muted: true,
            },
            out,
        )?;
    }
    if !after.is_empty() {
        push(
            rules,
            states,
            Piece {
                text: after,
                muted: false,
            },
            out,
        )?;
    }
    Ok(())
}

/// Ids in, text out: what a stream and a whole decode share.
struct Run {
    states: Vec<State>,
    /// With Plan::Whole: every id so far, the first n_prompt of them from the prompt.
    ids: Vec<u32>,
    n_prompt: usize,
}

impl Run {
    fn new(plan: &Plan) -> Run {
        let n = match plan {
            Plan::Rules(rules) => rules.len(),
            Plan::Whole => 0,
        };
        let states = std::iter::repeat_with(State::default).take(n).collect();
        Run {
            states,
            ids: Vec::new(),
            n_prompt: 0,
        }
    }

    fn push(
        &mut self,
        vocabulary: &Vocabulary,
        id: u32,
        skip_special: bool,
        muted: bool,
        out: &mut String,
    ) -> Result<()> {
        match &vocabulary.plan {
            Plan::Rules(rules) => match vocabulary.token(id, skip_special) {
                Some(text) => push(rules, &mut self.states, Piece { text: &text, muted }, out),
                None => Ok(()),
            },
            Plan::Whole => {
                self.ids.push(id);
                self.n_prompt += usize::from(muted);
                Ok(())
            }
        }
    }

    fn finish(&mut self, vocabulary: &Vocabulary, skip: bool, out: &mut String) -> Result<()> {
        match &vocabulary.plan {
            Plan::Rules(rules) => finish(rules, &mut self.states, out),
            Plan::Whole => {
                let full = decode_whole(vocabulary, &self.ids, skip)?;
                let prompt = decode_whole(vocabulary, &self.ids[..self.n_prompt], skip)?;
                out.push_str(&full[common_prefix(&full, &prompt)..]);
                self.ids.clear();
                Ok(())
            }
        }
    }
}

/// The length in bytes of the characters two texts start with alike.
fn common_prefix(a: &str, b: &str) -> usize {
    a.chars()
        .zip(b.chars())
        .take_while(|(x, y)| x == y)
        .map(|(x, _)| x.len_utf8())
        .sum()
}

/// Some decoders of the crate cannot take an empty list.
fn decode_whole(vocabulary: &Vocabulary, ids: &[u32], skip_special: bool) -> Result<String> {
    if !ids
        .iter()
        .any(|id| vocabulary.token(*id, skip_special).is_some())
    {
        return Ok(String::new());
    }
    vocabulary
        .tokenizer
        .decode(ids, skip_special)
        .map_err(|e| Error::new(Status::Internal, format!("decoder: {e}")))
}

pub fn decode(vocabulary: &Vocabulary, ids: &[u32], skip_special: bool) -> Result<String> {
    let mut run = Run::new(&vocabulary.plan);
    let mut out = String::new();
    for id in ids {
        run.push(vocabulary, *id, skip_special, false, &mut out)?;
    }
    run.finish(vocabulary, skip_special, &mut out)?;
    Ok(out)
}

/// Bytes that a character may lack its last one of.
const UNFINISHED_BYTES: usize = 3;

impl Vocabulary {
    /// The end of a prompt that a stream's state depends on. Byte-level text only remembers the bytes of an unfinished
    /// character, and each token has at least one byte, so a stream need not process its whole prompt.
    fn context<'a>(&self, prompt: &'a [u32], skip_special: bool) -> &'a [u32] {
        let Plan::Rules(rules) = &self.plan else {
            return prompt;
        };
        if !matches!(rules.as_slice(), [Rule::ByteLevel]) {
            return prompt;
        }
        let seen = |id: &u32| {
            self.token(*id, skip_special)
                .is_some_and(|token| !token.is_empty())
        };
        let last = (0..prompt.len()).rev().filter(|at| seen(&prompt[*at]));
        let from = last.take(UNFINISHED_BYTES).last();
        &prompt[from.unwrap_or(0)..]
    }
}

/// One detokenized stream.
pub struct Detok {
    text: Arc<Text>,
    skip_special: bool,
    run: Run,
    finished: bool,
    piece: String,
}

impl Detok {
    pub fn open(text: Arc<Text>, prompt: &[u32], skip_special: bool) -> Result<Detok> {
        let mut run = Run::new(&text.vocabulary.plan);
        let mut muted = String::new();
        for id in text.vocabulary.context(prompt, skip_special) {
            run.push(&text.vocabulary, *id, skip_special, true, &mut muted)?;
        }
        Ok(Detok {
            text,
            skip_special,
            run,
            finished: false,
            piece: String::new(),
        })
    }

    /// The text that is decided by this id. It ends in a NUL that is not part of it.
    pub fn push(&mut self, id: u32) -> Result<&str> {
        if self.finished {
            return Err(Error::invalid("detokenizer: a push after the finish"));
        }
        self.piece.clear();
        self.run.push(
            &self.text.vocabulary,
            id,
            self.skip_special,
            false,
            &mut self.piece,
        )?;
        Ok(&self.piece)
    }

    /// The number of characters that are not returned yet and come before the text of `next`; None: before the end of
    /// the text.
    pub fn held(&self, next: Option<u32>) -> usize {
        let vocabulary = &self.text.vocabulary;
        let Plan::Rules(rules) = &vocabulary.plan else {
            return 0;
        };
        let token = next.and_then(|id| vocabulary.token(id, self.skip_special));
        if next.is_some() && token.is_none() {
            return 0; // it has no text, and the waiting bytes may continue after it
        }
        let states = rules.iter().zip(&self.run.states);
        states
            .map(|(rule, state)| held(rule, state, token.as_deref()))
            .sum()
    }

    /// Returns the text that was still undecided; a second finish returns nothing.
    pub fn finish(&mut self) -> Result<&str> {
        self.piece.clear();
        if !self.finished {
            self.finished = true;
            self.run
                .finish(&self.text.vocabulary, self.skip_special, &mut self.piece)?;
        }
        Ok(&self.piece)
    }
}
