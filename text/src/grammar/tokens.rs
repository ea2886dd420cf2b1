//! A tokenizer's tokens as `llguidance` wants them: the bytes of each id in a trie, and canonical ids of forced bytes.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;

use llguidance::api::ParserLimits;
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenizerEnv};
use llguidance::ParserFactory;

use crate::error::{Error, Result, Status};
use crate::load::Text;

/// The trie has room for this depth. No token of a published vocabulary is longer.
const MAX_TOKEN_BYTES: usize = 1000;
/// A token's id and its byte share 32 bits in the trie.
const MAX_VOCAB: usize = (1 << 24) - 1;
/// What may stand before a forced string, so that the tokenizer does not treat it as the start of a text.
const LEADS: [&str; 3] = ["", "\u{2}", "\n"];
/// A tokenizer that does not return these strings unchanged forces no tokens.
const SAMPLES: [&str; 5] = ["a", " a", "{\"a\": [1, 2]}", "\n  b", "a  b "];

/// What all grammars of one tokenizer share.
pub struct Tokens {
    pub factory: ParserFactory,
    /// Bit id % 32 of word id / 32: the id has bytes or is special, and does not end the answer.
    pub live_text: Vec<u32>,
    pub eos: Vec<u32>,
    text: Arc<Text>,
}

impl Tokens {
    pub fn new(
        text: Arc<Text>,
        n_vocab: usize,
        eos: &[u32],
        limits: ParserLimits,
    ) -> Result<Tokens> {
        let words = words(&text, n_vocab, eos);
        let mut live_text = vec![0u32; n_vocab.div_ceil(32)];
        for (id, word) in words.iter().enumerate() {
            if !word.is_empty() && !eos.contains(&(id as u32)) {
                live_text[id / 32] |= 1 << (id % 32);
            }
        }
        let shared = text.clone();
        let build = || {
            let info = TokRxInfo::new(n_vocab as u32, eos[0]);
            let trie = TokTrie::from(&info, &words).with_eos_tokens(eos);
            let env: TokEnv = Arc::new(Canonical::new(text, trie));
            let caps = InferenceCapabilities::default();
            ParserFactory::new(&env, caps, &SlicedBiasComputer::general_slices())
        };
        // The trie asserts that its 22 bits for nodes are enough.
        let built = catch_unwind(AssertUnwindSafe(build)).map_err(|_| {
            Error::new(
                Status::Unsupported,
                "grammars: this tokenizer's vocabulary is too large for a trie of its tokens",
            )
        })?;
        let mut factory =
            built.map_err(|e| Error::new(Status::Internal, format!("grammars: {e}")))?;
        factory.quiet();
        *factory.limits_mut() = limits;
        Ok(Tokens {
            factory,
            live_text,
            eos: eos.to_vec(),
            text: shared,
        })
    }

    pub fn is_live_text(&self, id: u32) -> bool {
        let word = self.live_text.get(id as usize / 32);
        word.is_some_and(|word| word >> (id % 32) & 1 == 1)
    }

    /// The ids that are not an end of the answer.
    pub fn live(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.live_text.len() as u32 * 32).filter(|id| self.is_live_text(*id))
    }

    /// The text of an id, special or not.
    pub fn bytes(&self, id: u32) -> &[u8] {
        let word = self.factory.tok_env().tok_trie().token(id);
        word.strip_prefix(&[TokTrie::SPECIAL_TOKEN_MARKER])
            .unwrap_or(word)
    }

    /// The ids of a text in the middle of an answer, special tokens included.
    pub fn spell(&self, text: &str) -> Result<Vec<u32>> {
        let vocabulary = &self.text.vocabulary;
        for lead in LEADS {
            let before = vocabulary.encode(lead, false)?;
            let ids = vocabulary.encode(&format!("{lead}{text}"), false)?;
            if let Some(ids) = ids.strip_prefix(before.as_slice()) {
                let parts: Vec<&[u8]> = ids.iter().map(|id| self.bytes(*id)).collect();
                if parts.concat() == text.as_bytes() && ids.iter().all(|id| self.is_live_text(*id))
                {
                    return Ok(ids.to_vec());
                }
            }
        }
        let ids = self.factory.tok_env().tok_trie().greedy_tokenize(text.as_bytes());
        let parts: Vec<&[u8]> = ids.iter().map(|id| self.bytes(*id)).collect();
        match parts.concat() == text.as_bytes() {
            true => Ok(ids),
            false => Err(Error::invalid(format!(
                "grammar: this tokenizer has no tokens for the text {text:?}"
            ))),
        }
    }
}

pub fn check(text: &Text, n_vocab: usize, eos: &[u32]) -> Result<()> {
    if !text.vocabulary.plan.concatenates() {
        return Err(Error::new(
            Status::Unsupported,
            "grammars: this tokenizer's decoder adds to the text of its tokens, so that grammars cannot be matched \
             token by token",
        ));
    }
    if n_vocab == 0 || n_vocab > MAX_VOCAB {
        return Err(Error::invalid(format!(
            "grammars: n_vocab: 1 to {MAX_VOCAB} expected, got {n_vocab}"
        )));
    }
    let end = n_vocab.min(text.vocabulary.n_ids() as usize);
    if eos.is_empty() {
        return Err(Error::invalid("grammars: eos: at least one id expected"));
    }
    if let Some(id) = eos.iter().find(|id| **id as usize >= end) {
        return Err(Error::invalid(format!(
            "grammars: eos: id {id} is not below {end}"
        )));
    }
    Ok(())
}

/// The bytes of each id. Special tokens begin with a byte that no text has. An id without bytes is never allowed.
fn words(text: &Text, n_vocab: usize, eos: &[u32]) -> Vec<Vec<u8>> {
    let vocabulary = &text.vocabulary;
    let added = vocabulary
        .tokenizer
        .get_added_vocabulary()
        .get_added_tokens_decoder();
    let word = |id: u32| {
        if id >= vocabulary.n_ids() {
            return Vec::new();
        }
        let mut bytes = vocabulary.token_bytes(id);
        let special = added.get(&id).is_some_and(|token| token.special) || eos.contains(&id);
        if special {
            bytes.insert(0, TokTrie::SPECIAL_TOKEN_MARKER);
        } else if bytes.contains(&TokTrie::SPECIAL_TOKEN_MARKER) {
            bytes.clear();
        }
        if bytes.len() > MAX_TOKEN_BYTES {
            bytes.clear();
        }
        bytes
    };
    (0..n_vocab as u32).map(word).collect()
}

/// Encodes forced bytes as quire_text_encode() does, except that special tokens in them are text.
struct Canonical {
    text: Arc<Text>,
    trie: TokTrie,
    /// Text before a forced string and its ids. None: this tokenizer forces no tokens.
    lead: Option<(&'static str, Vec<u32>)>,
}

impl Canonical {
    fn new(text: Arc<Text>, trie: TokTrie) -> Canonical {
        let mut env = Canonical {
            text,
            trie,
            lead: None,
        };
        for lead in LEADS {
            let ids = env.text.vocabulary.encode(lead, false).unwrap_or_default();
            env.lead = Some((lead, ids));
            if SAMPLES.iter().all(|sample| env.encode(sample).is_some()) {
                return env;
            }
        }
        env.lead = None;
        env
    }

    /// None: the ids do not stand for exactly this text.
    fn encode(&self, text: &str) -> Option<Vec<u32>> {
        let (lead, lead_ids) = self.lead.as_ref()?;
        let vocabulary = &self.text.vocabulary;
        let whole = format!("{lead}{text}");
        let ids = match vocabulary.spelled.as_text(&whole) {
            Some((marked, mark)) => vocabulary.encode_marked(&marked, mark, false),
            None => vocabulary.encode(&whole, false),
        };
        let ids = ids.ok()?.strip_prefix(lead_ids.as_slice())?.to_vec();
        let mut rest = text.as_bytes();
        for id in &ids {
            let word = self.trie.token(*id);
            rest = rest.strip_prefix(word).filter(|_| !word.is_empty())?;
        }
        rest.is_empty().then_some(ids)
    }
}

impl TokenizerEnv for Canonical {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<u32> {
        self.trie.tokenize_with_greedy_fallback(bytes, |text| {
            self.encode(text)
                .unwrap_or_else(|| self.trie.greedy_tokenize(text.as_bytes()))
        })
    }

    fn tokenize_is_canonical(&self) -> bool {
        self.lead.is_some()
    }
}
