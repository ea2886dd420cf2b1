//! text → ids, and the text of one id.

use std::collections::{BTreeMap, HashSet};

use serde::de::DeserializeOwned;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokenizers::{
    AddedToken, DecoderWrapper, Encoding, Model, ModelWrapper, NormalizerWrapper,
    OffsetReferential, OffsetType, PostProcessorWrapper, PreTokenizedString, PreTokenizer,
    PreTokenizerWrapper, Token, TokenizerBuilder, TokenizerImpl,
};

use crate::bpe;
use crate::cut::Cuts;
use crate::detok::Plan;
use crate::error::{without_position, Error, Result, Status};
use crate::fit::Fit;
use crate::marks::Specials;
use crate::normalizer;
use crate::python_json;

pub type Tokenizer = TokenizerImpl<
    ModelWrapper,
    NormalizerWrapper,
    PreTokenizerWrapper,
    PostProcessorWrapper,
    DecoderWrapper,
>;

/// tokenizer.json. `truncation` and `padding` are left out on purpose: they are remains of how
/// the file was trained, and would cut or pad a prompt.
struct File<'a>(BTreeMap<String, &'a RawValue>);

impl<'a> File<'a> {
    fn parse(json: &'a str) -> Result<File<'a>> {
        let members = serde_json::from_str(json);
        members.map(File).map_err(|e| Error::invalid(e.to_string()))
    }

    fn get(&self, name: &str) -> Option<&'a str> {
        let raw = self.0.get(name).map(|raw| raw.get());
        raw.filter(|raw| *raw != "null")
    }

    /// One member, read as what the crate has for it.
    fn part<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let part = self.get(name).map(python_json::read).transpose();
        part.map_err(|e| without_position(e).at(name))
    }
}

#[derive(Deserialize)]
struct ModelType {
    #[serde(rename = "type")]
    kind: Option<String>,
}

pub struct Vocabulary {
    pub tokenizer: Tokenizer,
    pub plan: Plan,
    pub cuts: Option<Cuts>,
    /// The ids that the post-processor adds before and after a text; None if unknown.
    pub specials: Option<(Vec<u32>, Vec<u32>)>,
    /// The special tokens that a text may spell.
    pub spelled: Specials,
    fit: Option<Fit>,
    n_ids: u32,
}

impl Vocabulary {
    pub fn parse(json: &str) -> Result<Vocabulary> {
        let json = python_json::mended(json);
        let file = File::parse(&json)?;
        let version: Option<String> = file.part("version")?;
        if let Some(version) = version.filter(|v| v != "1.0") {
            return Err(Error::invalid(format!(
                "version: \"1.0\" expected, got {version:?}"
            )));
        }
        let model = file
            .get("model")
            .ok_or_else(|| Error::invalid("model: missing"))?;
        let (model, largest) = parse_model(model).map_err(|e| e.at("model"))?;
        let decoder: Option<DecoderWrapper> = file.part("decoder")?;
        let plan = Plan::new(decoder.as_ref());
        let added: Option<Vec<AddedToken>> = file.part("added_tokens")?;

        if let Some(normalizer) = file.part("normalizer")? {
            normalizer::check(&normalizer).map_err(|e| e.at("normalizer"))?;
        }
        let mut tokenizer: Tokenizer = TokenizerBuilder::new()
            .with_model(model)
            .with_normalizer(file.part("normalizer")?)
            .with_pre_tokenizer(file.part("pre_tokenizer")?)
            .with_post_processor(file.part("post_processor")?)
            .with_decoder(decoder)
            .build()
            .map_err(|e| Error::invalid(e.to_string()))?;
        tokenizer
            .add_tokens(added.unwrap_or_default())
            .map_err(|e| Error::invalid(format!("added_tokens: {e}")))?;
        let n_ids = count_ids(&tokenizer, largest)?;
        let (normalizer, split) = (file.get("normalizer"), file.get("pre_tokenizer"));
        let spelled = tokenizer
            .get_added_vocabulary()
            .get_added_tokens_decoder()
            .values()
            .filter(|token| token.special)
            .map(|token| token.content.clone())
            .collect();
        Ok(Vocabulary {
            spelled: Specials::new(spelled)?,
            cuts: Cuts::new(&tokenizer, normalizer, split),
            specials: specials(&tokenizer),
            fit: Fit::new(&tokenizer, normalizer, split),
            tokenizer,
            plan,
            n_ids,
        })
    }

    /// One more than the largest id.
    pub fn n_ids(&self) -> u32 {
        self.n_ids
    }

    pub fn token_id(&self, content: &str) -> Option<u32> {
        self.tokenizer.token_to_id(content)
    }

    /// The ids of a text are at least so many, special ones not counted.
    pub fn least_tokens(&self, text: &str) -> usize {
        self.fit.map_or(0, |fit| fit.least_tokens(text))
    }

    /// The whole of a text at once.
    pub fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>> {
        if text.is_empty() && !add_special {
            return Ok(Vec::new());
        }
        let encoding = self
            .tokenizer
            .encode_fast(text, add_special)
            .map_err(|e| Error::new(Status::Internal, format!("tokenizer: {e}")))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The same with the position of each token: the number of characters of the text before it. A token that the
    /// post-processor adds has the position of the following token.
    pub fn encode_placed(&self, text: &str, add_special: bool) -> Result<(Vec<u32>, Vec<u32>)> {
        let t = &self.tokenizer;
        let run = || -> tokenizers::Result<(Vec<u32>, Vec<u32>)> {
            let mut parts = t
                .get_added_vocabulary()
                .extract_and_normalize(t.get_normalizer(), text);
            if let Some(splitter) = t.get_pre_tokenizer() {
                splitter.pre_tokenize(&mut parts)?;
            }
            t.get_model().tokenize_in_pretokenized(&mut parts, None)?;
            let encoding = parts.into_encoding(None, 0, OffsetType::Char)?;
            // Read here: a post-processor may move a place behind the blanks that a token begins with.
            let own = encoding.get_ids().to_vec();
            let starts: Vec<u32> = encoding.get_offsets().iter().map(|o| o.0 as u32).collect();
            let all = t.post_process(encoding, None, add_special)?;
            Ok((all.get_ids().to_vec(), among(all.get_ids(), &own, &starts, text)))
        };
        run().map_err(|e| Error::new(Status::Internal, format!("tokenizer: {e}")))
    }

    /// The special tokens around and between two texts, all together, and whether the second has a type of its own.
    pub fn pair_specials(&self) -> Result<(Vec<u32>, bool)> {
        let of = |type_id| Encoding::from_tokens(Vec::new(), type_id);
        let pair = self
            .tokenizer
            .post_process(of(0), Some(of(0)), true)
            .map_err(|e| Error::new(Status::Internal, format!("tokenizer: {e}")))?;
        let second = pair.get_type_ids().last().is_some_and(|kind| *kind > 0);
        Ok((pair.get_ids().to_vec(), second))
    }

    /// The same of a text with marks: what it has them in is not taken for a token, and they are no part of it.
    pub fn encode_marked(&self, text: &str, mark: char, add_special: bool) -> Result<Vec<u32>> {
        if !text.contains(mark) {
            return self.encode(text, add_special);
        }
        let plain = text.replace(mark, "");
        let spelled: HashSet<u32> = self
            .spelled
            .spelled(&plain)
            .filter_map(|content| self.token_id(content))
            .collect();
        let t = &self.tokenizer;
        let run = || -> tokenizers::Result<(Encoding, usize)> {
            let mut parts = t
                .get_added_vocabulary()
                .extract_and_normalize(t.get_normalizer(), text);
            let n_found = count_ids_in(&parts, &spelled);
            parts.normalize(|part| part.replace(mark, ""))?;
            if let Some(splitter) = t.get_pre_tokenizer() {
                splitter.pre_tokenize(&mut parts)?;
            }
            t.get_model().tokenize_in_pretokenized(&mut parts, None)?;
            let n_extra = count_ids_in(&parts, &spelled) - n_found;
            Ok((parts.into_encoding(None, 0, OffsetType::None)?, n_extra))
        };
        let failure =
            |e: tokenizers::Error| Error::new(Status::Internal, format!("tokenizer: {e}"));
        let (encoding, n_extra) = run().map_err(failure)?;
        // A Unigram may have its special tokens among those of which it makes text.
        if n_extra > 0 {
            return Err(Error::invalid(
                "the text spells a special token that this model's tokenizer knows no other tokens for",
            ));
        }
        let encoding = t
            .post_process(encoding, None, add_special)
            .map_err(failure)?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The token as the decoder sees it; None past the tokenizer, in a hole of the vocabulary, or
    /// when special tokens are skipped and it is one.
    pub fn token(&self, id: u32, skip_special: bool) -> Option<String> {
        let added = self.tokenizer.get_added_vocabulary();
        let token = added
            .simple_id_to_token(id)
            .or_else(|| self.tokenizer.get_model().id_to_token(id))?;
        if skip_special && added.is_special_token(&token) {
            return None;
        }
        Some(token)
    }

    /// The bytes one token stands for.
    pub fn token_bytes(&self, id: u32) -> Vec<u8> {
        if let Some(added) = self
            .tokenizer
            .get_added_vocabulary()
            .get_added_tokens_decoder()
            .get(&id)
        {
            return added.content.clone().into_bytes();
        }
        match self.tokenizer.get_model().id_to_token(id) {
            Some(token) => self.plan.token_bytes(&token),
            None => Vec::new(),
        }
    }
}

/// The places of all ids, among which the text's own stand one after the other.
fn among(all: &[u32], own: &[u32], starts: &[u32], text: &str) -> Vec<u32> {
    let before = match own {
        [] => 0,
        _ => all
            .windows(own.len())
            .position(|ids| ids == own)
            .unwrap_or(0),
    };
    let end = text.chars().count() as u32;
    let mut places = vec![0; before];
    places.extend(starts);
    places.resize(all.len(), end);
    places
}

/// How many of the tokens that were found so far are of these.
fn count_ids_in(parts: &PreTokenizedString, ids: &HashSet<u32>) -> usize {
    parts
        .get_splits(OffsetReferential::Original, OffsetType::None)
        .iter()
        .filter_map(|(_, _, tokens)| tokens.as_ref())
        .flatten()
        .filter(|token| ids.contains(&token.id))
        .count()
}

/// The ids added before and after a text, found as the neighbours of an id that no tokenizer has.
fn specials(tokenizer: &Tokenizer) -> Option<(Vec<u32>, Vec<u32>)> {
    let marker = Encoding::from_tokens(vec![Token::new(u32::MAX, String::new(), (0, 0))], 0);
    let all = tokenizer.post_process(marker, None, true).ok()?;
    let mut parts = all.get_ids().split(|id| *id == u32::MAX);
    let (before, after) = (parts.next()?, parts.next()?);
    let once = parts.next().is_none();
    once.then(|| (before.to_vec(), after.to_vec()))
}

/// The model, and the largest id of its vocabulary if parsing determined it.
fn parse_model(json: &str) -> Result<(ModelWrapper, Option<u32>)> {
    let head: ModelType = python_json::read(json).map_err(without_position)?;
    if head.kind.as_deref() == Some("BPE") {
        let (model, largest) = bpe::parse(json)?;
        return Ok((ModelWrapper::BPE(model), largest));
    }
    let model: ModelWrapper = python_json::read(json).map_err(without_position)?;
    let largest = match &model {
        // A Unigram's ids are the positions in its list.
        ModelWrapper::Unigram(m) => (m.get_vocab_size() as u32).checked_sub(1),
        m => bpe::largest_id(m.get_vocab().iter())?,
    };
    Ok((model, largest))
}

fn count_ids(tokenizer: &Tokenizer, largest_of_model: Option<u32>) -> Result<u32> {
    let added = tokenizer
        .get_added_vocabulary()
        .get_added_tokens_decoder()
        .keys()
        .copied()
        .max();
    let largest = added
        .max(largest_of_model)
        .ok_or_else(|| Error::invalid("model: vocab: no tokens"))?;
    largest
        .checked_add(1)
        .ok_or_else(|| Error::invalid(format!("model: vocab: id {largest} is too large")))
}
