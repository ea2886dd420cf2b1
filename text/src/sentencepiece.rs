//! Makes tokenizer.json from tokenizer.model, a SentencePiece model, for a directory that has only the latter.
//!
//! A BPE becomes vocabulary and merges as in transformers' conversions of Llama and Gemma: the better a piece's score,
//! the earlier its merges. The file is untrusted: its size, the number of pieces and the number of merges are bounded.

use std::collections::{BTreeMap, HashMap, HashSet};

use prost::Message;
use serde_json::{json, Value};

use crate::error::{Error, Result, Status};
use crate::python_json;

const MAX_PIECES: usize = 1 << 22;
/// Llama 2's 32,000 pieces have 61,249.
const MAX_MERGES: usize = 1 << 23;
/// The longest piece that merges make.
const MAX_PIECE_BYTES: usize = 128;
const SPACE: &str = "\u{2581}";

/* The members of sentencepiece_model.proto that matter here. */

#[derive(Clone, PartialEq, Message)]
struct Model {
    #[prost(message, repeated, tag = "1")]
    pieces: Vec<Piece>,
    #[prost(message, optional, tag = "2")]
    trainer: Option<Trainer>,
    #[prost(message, optional, tag = "3")]
    normalizer: Option<Normalizer>,
}

#[derive(Clone, PartialEq, Message)]
struct Piece {
    #[prost(string, optional, tag = "1")]
    text: Option<String>,
    #[prost(float, optional, tag = "2")]
    score: Option<f32>,
    #[prost(int32, optional, tag = "3")]
    kind: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
struct Trainer {
    #[prost(int32, optional, tag = "3")]
    model_type: Option<i32>,
    #[prost(bool, optional, tag = "24")]
    space_as_suffix: Option<bool>,
    #[prost(bool, optional, tag = "35")]
    byte_fallback: Option<bool>,
    #[prost(int32, optional, tag = "41")]
    bos_id: Option<i32>,
    #[prost(int32, optional, tag = "42")]
    eos_id: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
struct Normalizer {
    #[prost(bytes = "vec", optional, tag = "2")]
    map: Option<Vec<u8>>,
    #[prost(bool, optional, tag = "3")]
    adds_prefix: Option<bool>,
    #[prost(bool, optional, tag = "4")]
    removes_spaces: Option<bool>,
    #[prost(bool, optional, tag = "5")]
    escapes_spaces: Option<bool>,
}

const UNIGRAM: i32 = 1;
const BPE: i32 = 2;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Normal,
    Unknown,
    Control,
    User,
    Unused,
    Byte,
}

/// A token that is cut out of a text before all else.
#[derive(Clone, Default)]
struct Added {
    content: String,
    special: bool,
    single_word: bool,
    lstrip: bool,
    rstrip: bool,
    normalized: bool,
}

/// The files next to the model that change its tokens, each as its JSON.
pub struct Beside<'a> {
    pub config: Option<&'a str>,
    pub special_tokens: Option<&'a str>,
    pub added_tokens: Option<&'a str>,
}

struct Maker {
    model: Model,
    config: Value,
    kinds: Vec<Kind>,
    added: BTreeMap<u32, Added>,
}

/// The text of tokenizer.json.
pub fn tokenizer_json(model: &[u8], beside: &Beside) -> Result<String> {
    // Another kind of file may be read as a model without pieces.
    let model = Model::decode(model)
        .ok()
        .filter(|model| !model.pieces.is_empty());
    let model = model.ok_or_else(|| {
        Error::new(
            Status::Unsupported,
            "is not a SentencePiece model with pieces; supported: that, or a tokenizer.json",
        )
    });
    let mut maker = Maker {
        kinds: Vec::new(),
        added: BTreeMap::new(),
        model: model.map_err(|e| e.at("tokenizer.model"))?,
        config: object(beside.config, "tokenizer_config.json")?,
    };
    maker.check().map_err(|e| e.at("tokenizer.model"))?;
    maker.add_own();
    maker.add_listed(&object(beside.added_tokens, "added_tokens.json")?)?;
    maker.add_configured()?;
    let named = object(beside.special_tokens, "special_tokens_map.json")?;
    maker.mark_special(&named);
    let json = maker.json(&named).map_err(|e| e.at("tokenizer.model"))?;
    Ok(json.to_string())
}

fn object(text: Option<&str>, name: &str) -> Result<Value> {
    let Some(text) = text else {
        return Ok(json!({}));
    };
    let value: Value = serde_json::from_str(&python_json::mended(text))
        .map_err(|e| Error::invalid(e.to_string()).at(name))?;
    match value.is_object() {
        true => Ok(value),
        false => Err(Error::invalid("not an object").at(name)),
    }
}

/// The name of a special token: a text, or an object with the member content.
fn content(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value["content"].as_str())
}

fn flag(value: &Value, name: &str) -> bool {
    value[name].as_bool().unwrap_or(false)
}

impl Maker {
    fn check(&mut self) -> Result<()> {
        let n = self.model.pieces.len();
        if n > MAX_PIECES {
            return Err(Error::invalid(format!(
                "pieces: has {n}, the limit is {MAX_PIECES}"
            )));
        }
        let unsupported = |what: String| Err(Error::new(Status::Unsupported, what));
        let trainer = self.model.trainer.clone().unwrap_or_default();
        let model_type = trainer.model_type.unwrap_or(UNIGRAM);
        if model_type != UNIGRAM && model_type != BPE {
            return unsupported(format!(
                "trainer_spec.model_type: {model_type} is not supported; supported: 1 (unigram), 2 (BPE)"
            ));
        }
        if trainer.space_as_suffix == Some(true) {
            return unsupported("trainer_spec.treat_whitespace_as_suffix: is not supported".into());
        }
        let normalizer = self.model.normalizer.as_ref();
        if normalizer.and_then(|n| n.escapes_spaces) == Some(false) {
            return unsupported(
                "normalizer_spec.escape_whitespaces: false is not supported".into(),
            );
        }
        for (i, piece) in self.model.pieces.iter().enumerate() {
            self.kinds.push(match piece.kind.unwrap_or(1) {
                1 => Kind::Normal,
                2 => Kind::Unknown,
                3 => Kind::Control,
                4 => Kind::User,
                5 => Kind::Unused,
                6 => Kind::Byte,
                kind => {
                    return Err(Error::invalid(format!(
                        "pieces[{i}].type: {kind} is no type"
                    )))
                }
            });
            if !piece.score.unwrap_or(0.0).is_finite() {
                return Err(Error::invalid(format!(
                    "pieces[{i}].score: is not a number"
                )));
            }
        }
        Ok(())
    }

    fn text(&self, id: usize) -> &str {
        self.model.pieces[id].text.as_deref().unwrap_or("")
    }

    /// The id of each token; an added one takes the place of the piece with its id.
    fn ids(&self) -> HashMap<String, u32> {
        let own = (0..self.kinds.len()).filter(|id| self.kinds[*id] != Kind::Unused);
        let own = own.map(|id| (self.text(id).to_owned(), id as u32));
        own.chain(self.added.iter().map(|(id, a)| (a.content.clone(), *id)))
            .collect()
    }

    /// Special are also the pieces that Gemma's tokenizer class names.
    fn add_own(&mut self) {
        for id in 0..self.kinds.len() {
            let special = match self.kinds[id] {
                Kind::Unknown | Kind::Control => true,
                Kind::User => {
                    matches!(
                        self.text(id),
                        "<start_of_turn>" | "<end_of_turn>" | "<mask>"
                    )
                }
                _ => continue,
            };
            let added = Added {
                content: self.text(id).to_owned(),
                special,
                ..Added::default()
            };
            if !added.content.is_empty() {
                self.added.insert(id as u32, added);
            }
        }
    }

    /// added_tokens.json: {"content": id}.
    fn add_listed(&mut self, list: &Value) -> Result<()> {
        for (content, id) in list.as_object().into_iter().flatten() {
            let id = id.as_u64().filter(|id| (*id as usize) < MAX_PIECES);
            let id = id.ok_or_else(|| {
                Error::invalid(format!(
                    "added_tokens.json: {content:?}: is no id below {MAX_PIECES}"
                ))
            })?;
            let added = self.added.entry(id as u32).or_default();
            added.content.clone_from(content);
        }
        Ok(())
    }

    /// tokenizer_config.json: added_tokens_decoder, {"id": {"content": ...}}.
    fn add_configured(&mut self) -> Result<()> {
        for (id, token) in self.config["added_tokens_decoder"]
            .as_object()
            .into_iter()
            .flatten()
        {
            let at = |what| {
                Error::invalid(format!(
                    "tokenizer_config.json: added_tokens_decoder: {id:?}: {what}"
                ))
            };
            let id = id
                .parse::<u32>()
                .ok()
                .filter(|id| (*id as usize) < MAX_PIECES);
            let id = id.ok_or_else(|| at("is no id of a token"))?;
            let content = token["content"].as_str().filter(|c| !c.is_empty());
            let added = Added {
                content: content.ok_or_else(|| at("content: is missing"))?.to_owned(),
                special: flag(token, "special"),
                single_word: flag(token, "single_word"),
                lstrip: flag(token, "lstrip"),
                rstrip: flag(token, "rstrip"),
                normalized: flag(token, "normalized"),
            };
            self.added.insert(id, added);
        }
        Ok(())
    }

    /// The tokens that either file names as the beginning, the end, and so on.
    fn mark_special(&mut self, named: &Value) {
        const NAMES: [&str; 7] = [
            "bos_token",
            "eos_token",
            "unk_token",
            "pad_token",
            "sep_token",
            "cls_token",
            "mask_token",
        ];
        let mut special: Vec<String> = Vec::new();
        for file in [&self.config, named] {
            let lists = ["additional_special_tokens", "extra_special_tokens"]
                .iter()
                .filter_map(|name| file[*name].as_array())
                .flatten();
            let values = NAMES.iter().map(|name| &file[*name]).chain(lists);
            special.extend(values.filter_map(content).map(str::to_owned));
        }
        special.sort_unstable();
        special.dedup();
        let ids = self.ids();
        for content in special.iter().filter(|content| !content.is_empty()) {
            if let Some(id) = ids.get(content) {
                let added = self.added.entry(*id).or_default();
                added.content.clone_from(content);
                added.special = true;
            }
        }
    }

    /// Every token by its id; an added one replaces the piece with its id.
    fn tokens(&self) -> Result<BTreeMap<u32, &str>> {
        let own = (0..self.kinds.len()).filter(|id| self.kinds[*id] != Kind::Unused);
        let mut tokens: BTreeMap<u32, &str> = own.map(|id| (id as u32, self.text(id))).collect();
        tokens.extend(self.added.iter().map(|(id, a)| (*id, a.content.as_str())));
        let mut ids = HashMap::new();
        for (id, token) in &tokens {
            if let Some(other) = ids.insert(*token, *id) {
                return Err(Error::invalid(format!(
                    "pieces: {token:?} is token {other} and token {id}"
                )));
            }
        }
        Ok(tokens)
    }

    /// Pairs of pieces, the best score first; of equal scores the lower id, of one piece the longer left part.
    fn merges(&self) -> Result<Vec<[&str; 2]>> {
        // A piece that an added token replaces is no token.
        let is_there = |id: &usize| {
            let added = self.added.get(&(*id as u32));
            added.is_none_or(|a| a.content == self.text(*id))
        };
        let mergeable =
            |id: &usize| matches!(self.kinds[*id], Kind::Normal | Kind::User) && is_there(id);
        let known: HashSet<&str> = (0..self.kinds.len())
            .filter(|id| mergeable(id) || (self.kinds[*id] == Kind::Byte && is_there(id)))
            .map(|id| self.text(id))
            .collect();
        let mut merges = Vec::new();
        for id in (0..self.kinds.len()).filter(mergeable) {
            let text = self.text(id);
            let score = self.model.pieces[id].score.unwrap_or(0.0);
            let cuts = text.char_indices().skip(1).map(|(at, _)| text.split_at(at));
            let cuts = cuts.take(if text.len() > MAX_PIECE_BYTES {
                0
            } else {
                text.len()
            });
            for (left, right) in cuts {
                if known.contains(left) && known.contains(right) {
                    merges.push((score, id, left, right));
                }
            }
            if merges.len() > MAX_MERGES {
                return Err(Error::invalid(format!(
                    "pieces: can be merged from each other in more than {MAX_MERGES} ways"
                )));
            }
        }
        merges.sort_by(|a, b| {
            let by_score = b.0.total_cmp(&a.0);
            by_score.then(a.1.cmp(&b.1)).then(b.2.len().cmp(&a.2.len()))
        });
        Ok(merges.into_iter().map(|(_, _, l, r)| [l, r]).collect())
    }

    fn json(&self, named: &Value) -> Result<Value> {
        let tokens = self.tokens()?;
        let (normalizer, pre_tokenizer) = self.normalizers();
        let added: Vec<Value> = self
            .added
            .iter()
            .map(|(id, a)| {
                json!({"id": id, "content": a.content, "single_word": a.single_word, "lstrip": a.lstrip,
                       "rstrip": a.rstrip, "normalized": a.normalized, "special": a.special})
            })
            .collect();
        Ok(json!({
            "version": "1.0", "added_tokens": added, "normalizer": normalizer, "pre_tokenizer": pre_tokenizer,
            "post_processor": self.post_processor(&tokens, named), "decoder": self.decoder(),
            "model": self.model(&tokens)?,
        }))
    }

    fn trainer(&self) -> Trainer {
        self.model.trainer.clone().unwrap_or_default()
    }

    fn is_unigram(&self) -> bool {
        self.trainer().model_type.unwrap_or(UNIGRAM) == UNIGRAM
    }

    fn model(&self, tokens: &BTreeMap<u32, &str>) -> Result<Value> {
        let bytes = self.trainer().byte_fallback == Some(true);
        let unknown = self.kinds.iter().position(|kind| *kind == Kind::Unknown);
        if !self.is_unigram() {
            let vocab: serde_json::Map<String, Value> = tokens
                .iter()
                .map(|(id, t)| ((*t).to_owned(), json!(id)))
                .collect();
            let unknown = unknown.and_then(|id| tokens.get(&(id as u32)));
            return Ok(
                json!({"type": "BPE", "unk_token": unknown, "fuse_unk": true, "byte_fallback": bytes,
                             "vocab": vocab, "merges": self.merges()?}),
            );
        }
        // The ids are the positions.
        let mut vocab = Vec::new();
        for (position, (id, token)) in tokens.iter().enumerate() {
            if position != *id as usize {
                return Err(Error::new(
                    Status::Unsupported,
                    format!("a unigram model without a token {position} is not supported"),
                ));
            }
            let piece = self.model.pieces.get(position);
            vocab.push(json!([token, piece.and_then(|p| p.score).unwrap_or(0.0)]));
        }
        Ok(json!({"type": "Unigram", "unk_id": unknown, "byte_fallback": bytes, "vocab": vocab}))
    }

    /// Whether a text gets a space in front.
    fn adds_prefix(&self) -> bool {
        let own = self.model.normalizer.as_ref().and_then(|n| n.adds_prefix);
        self.config["add_prefix_space"]
            .as_bool()
            .or(own)
            .unwrap_or(true)
    }

    /// normalizer and pre_tokenizer.
    fn normalizers(&self) -> (Value, Value) {
        // transformers' tokenizer of Llama: only the text's beginning gets the space, and nothing else is normalized.
        if self.adds_prefix() && self.config["legacy"] == false && !self.is_unigram() {
            let split = json!({"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "first", "split": false});
            return (Value::Null, split);
        }
        let own = self.model.normalizer.clone().unwrap_or_default();
        let replace = |pattern: Value, content: &str| json!({"type": "Replace", "pattern": pattern, "content": content});
        let removes_spaces = own.removes_spaces.unwrap_or(true);
        let mut list = Vec::new();
        if let Some(map) = own.map.filter(|map| !map.is_empty()) {
            list.push(json!({"type": "Precompiled", "precompiled_charsmap": base64::encode(map)}));
        }
        if removes_spaces {
            list.push(replace(json!({"Regex": r"\A +"}), ""));
            list.push(replace(json!({"Regex": " {2,}"}), " "));
        }
        // Every part between special tokens gets it, as in llama.cpp.
        if self.adds_prefix() {
            list.push(json!({"type": "Prepend", "prepend": SPACE}));
        }
        list.push(replace(json!({"String": " "}), SPACE));
        if removes_spaces {
            // Tried once for each run, so that it takes no longer for long ones.
            list.push(replace(json!({"Regex": r"(?<!▁)▁++\z"}), ""));
        }
        (
            json!({"type": "Sequence", "normalizers": list}),
            Value::Null,
        )
    }

    fn decoder(&self) -> Value {
        let mut list = vec![
            json!({"type": "Replace", "pattern": {"String": SPACE}, "content": " "}),
            json!({"type": "ByteFallback"}),
            json!({"type": "Fuse"}),
        ];
        if self.adds_prefix() {
            list.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
        }
        json!({"type": "Sequence", "decoders": list})
    }

    /// Adds the tokens of the beginning and the end as add_bos_token (default true) and add_eos_token say.
    fn post_processor(&self, tokens: &BTreeMap<u32, &str>, named: &Value) -> Value {
        let trainer = self.trainer();
        let token = |name: &str, own: Option<i32>, default: i32| -> Option<(u32, String)> {
            let file = [&self.config, named]
                .into_iter()
                .find_map(|f| content(&f[name]));
            let id = match file {
                Some(content) => *tokens.iter().find(|(_, token)| **token == content)?.0,
                None => u32::try_from(own.unwrap_or(default)).ok()?,
            };
            tokens.get(&id).map(|text| (id, (*text).to_owned()))
        };
        let adds = |name: &str, default: bool| self.config[name].as_bool().unwrap_or(default);
        // A unigram model is not a language model's of this kind: transformers adds nothing.
        let bos = token("bos_token", trainer.bos_id, 1)
            .filter(|_| adds("add_bos_token", !self.is_unigram()));
        let eos = token("eos_token", trainer.eos_id, 2).filter(|_| adds("add_eos_token", false));
        if bos.is_none() && eos.is_none() {
            return Value::Null;
        }
        let special = |t: &Option<(u32, String)>, kind: u32| {
            t.as_ref()
                .map(|(_, text)| json!({"SpecialToken": {"id": text, "type_id": kind}}))
        };
        let around = |name: &str, kind: u32| -> Vec<Value> {
            let text = json!({"Sequence": {"id": name, "type_id": kind}});
            [special(&bos, kind), Some(text), special(&eos, kind)]
                .into_iter()
                .flatten()
                .collect()
        };
        let described: serde_json::Map<String, Value> = [&bos, &eos]
            .into_iter()
            .flatten()
            .map(|(id, text)| {
                (
                    text.clone(),
                    json!({"id": text, "ids": [id], "tokens": [text]}),
                )
            })
            .collect();
        let pair = [around("A", 0), around("B", 1)].concat();
        json!({"type": "TemplateProcessing", "single": around("A", 0), "pair": pair, "special_tokens": described})
    }
}
