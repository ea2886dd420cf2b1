//! Reads the files of a model directory. They are untrusted: bounded, regular files, UTF-8.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::chat::{config_object, Templates, TokenStrings};
use crate::error::{Error, Result, Status};
use crate::prefix;
use crate::python_json::mended;
use crate::sentencepiece;
use crate::tokenize::Vocabulary;

/// The largest tokenizer.json seen in the field is about 35 MB.
const MAX_TOKENIZER_BYTES: u64 = 256 << 20;
/// The largest tokenizer.model in the field has 5 MB. In memory, a piece of two bytes takes twenty times as many.
const MAX_MODEL_BYTES: u64 = 16 << 20;
const MAX_CONFIG_BYTES: u64 = 16 << 20;
/// Real templates have at most 30 KB.
pub const MAX_TEMPLATE_BYTES: u64 = 256 << 10;
const MAX_NAMED_TEMPLATES: usize = 64;

/// Everything behind a struct quire_text. Immutable once opened.
pub struct Text {
    pub vocabulary: Vocabulary,
    pub templates: Templates,
    /// tokenizer_config.json as a JSON object, with the special tokens as strings and the default chat template.
    pub about: String,
    /// Of the files as they were read: two texts with the same digest tokenize and render alike.
    pub digest: [u8; 32],
}

/// The file that has the tokens.
enum Tokenizer {
    Json(String),
    /// tokenizer.model, for a directory without tokenizer.json, and its added_tokens.json.
    Model {
        model: Vec<u8>,
        added: Option<String>,
    },
}

impl Tokenizer {
    fn read(dir: &Path) -> Result<Tokenizer> {
        if let Some(json) = read_text(dir, "tokenizer.json", MAX_TOKENIZER_BYTES)? {
            return Ok(Tokenizer::Json(json));
        }
        let model = read_bytes(dir, "tokenizer.model", MAX_MODEL_BYTES)?.ok_or_else(|| {
            Error::new(
                Status::NotFound,
                format!(
                    "{}: no tokenizer.json and no tokenizer.model",
                    dir.display()
                ),
            )
        })?;
        let added = read_text(dir, "added_tokens.json", MAX_CONFIG_BYTES)?;
        Ok(Tokenizer::Model { model, added })
    }

    /// What is hashed.
    fn bytes(&self) -> impl Iterator<Item = &[u8]> {
        let (file, added) = match self {
            Tokenizer::Json(json) => (json.as_bytes(), None),
            Tokenizer::Model { model, added } => (model.as_slice(), added.as_deref()),
        };
        [Some(file), added.map(str::as_bytes)].into_iter().flatten()
    }
}

/// The files that decide what a Text does, as read, in the order they are hashed.
struct Files {
    tokenizer: Tokenizer,
    config: Option<String>,
    template: Option<String>,
    special_tokens: Option<String>,
    named_templates: Vec<(String, String)>,
}

impl Files {
    fn read(dir: &Path) -> Result<Files> {
        Ok(Files {
            tokenizer: Tokenizer::read(dir)?,
            config: read_text(dir, "tokenizer_config.json", MAX_CONFIG_BYTES)?,
            template: read_text(dir, "chat_template.jinja", MAX_TEMPLATE_BYTES)?,
            special_tokens: read_text(dir, "special_tokens_map.json", MAX_CONFIG_BYTES)?,
            named_templates: read_named_templates(dir)?,
        })
    }

    fn made(tokenizer: &str, config: &str) -> Files {
        Files {
            tokenizer: Tokenizer::Json(tokenizer.to_owned()),
            config: Some(config.to_owned()),
            template: None,
            special_tokens: None,
            named_templates: Vec::new(),
        }
    }

    fn vocabulary(&self) -> Result<Vocabulary> {
        match &self.tokenizer {
            Tokenizer::Json(json) => {
                let json = prefix::applied(json, self.config.as_deref());
                Vocabulary::parse(&json).map_err(|e| e.at("tokenizer.json"))
            }
            Tokenizer::Model { model, added } => {
                let beside = sentencepiece::Beside {
                    config: self.config.as_deref(),
                    special_tokens: self.special_tokens.as_deref(),
                    added_tokens: added.as_deref(),
                };
                let json = sentencepiece::tokenizer_json(model, &beside)?;
                Vocabulary::parse(&json).map_err(|e| e.at("tokenizer.model"))
            }
        }
    }

    fn identity(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        let single = [
            self.config.as_ref(),
            self.template.as_ref(),
            self.special_tokens.as_ref(),
        ];
        let named = self
            .named_templates
            .iter()
            .flat_map(|(name, source)| [name, source]);
        let others = single.into_iter().flatten().chain(named);
        for bytes in self
            .tokenizer
            .bytes()
            .chain(others.map(|text| text.as_bytes()))
        {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        }
        hash.finalize().into()
    }

    /// Unlike identity(), whose bytes protocol.md fixes, it covers the presence of each file: the same text in another
    /// file gives another digest.
    fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        for bytes in self.tokenizer.bytes() {
            hash.update([1]);
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        }
        let mut add = |text: Option<&String>| {
            hash.update([u8::from(text.is_some())]);
            let text = text.map_or("", String::as_str);
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        };
        add(self.config.as_ref());
        add(self.template.as_ref());
        add(self.special_tokens.as_ref());
        for (name, source) in &self.named_templates {
            add(Some(name));
            add(Some(source));
        }
        hash.finalize().into()
    }
}

/// The digest of everything that Text::open(dir) would depend on, without the cost of opening it.
pub fn identity(dir: &Path) -> Result<[u8; 32]> {
    Ok(Files::read(dir)?.identity())
}

pub fn identity_made(tokenizer: &str, config: &str) -> [u8; 32] {
    Files::made(tokenizer, config).identity()
}

impl Text {
    pub fn open(dir: &Path) -> Result<Text> {
        Text::new(Files::read(dir)?)
    }

    /// From texts instead of a directory.
    pub fn made(tokenizer: &str, config: &str) -> Result<Text> {
        Text::new(Files::made(tokenizer, config))
    }

    fn new(files: Files) -> Result<Text> {
        let digest = files.digest();
        let vocabulary = files.vocabulary();
        let splits_special = splits_special(files.config.as_deref());
        let tokens = TokenStrings::parse(files.config.as_deref(), files.special_tokens.as_deref())?;
        let mut about = config_object(files.config.as_deref())?;
        tokens.describe(&mut about);
        let templates = Templates::load(
            files.config.as_deref(),
            files.template,
            files.named_templates,
            tokens,
        )?;
        let mut vocabulary = vocabulary?;
        vocabulary
            .tokenizer
            .set_encode_special_tokens(splits_special);
        Ok(Text {
            vocabulary,
            about: templates.describe(about),
            templates,
            digest,
        })
    }
}

/// tokenizer_config.json: special tokens in a text are text, as transformers applies it. TokenStrings::parse() reports a
/// file that is no object.
fn splits_special(config: Option<&str>) -> bool {
    let config = config.and_then(|text| serde_json::from_str::<Value>(&mended(text)).ok());
    config.is_some_and(|config| config["split_special_tokens"] == true)
}

/// The text of dir/name; None when there is no such file.
fn read_text(dir: &Path, name: &str, limit: u64) -> Result<Option<String>> {
    let Some(bytes) = read_bytes(dir, name, limit)? else {
        return Ok(None);
    };
    String::from_utf8(bytes).map(Some).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        Error::invalid(format!("not UTF-8 at byte {at}")).at(dir.join(name).display())
    })
}

fn read_bytes(dir: &Path, name: &str, limit: u64) -> Result<Option<Vec<u8>>> {
    let path = dir.join(name);
    // O_NONBLOCK: opening a FIFO in a hostile directory must not wait for a writer.
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(&path);
    let file = match opened {
        Ok(file) => file,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound) => return Ok(None),
        Err(e) => return Err(Error::new(Status::Io, format!("{}: {}", path.display(), e))),
    };
    read_file(file, limit)
        .map(Some)
        .map_err(|e| e.at(path.display()))
}

fn read_file(file: File, limit: u64) -> Result<Vec<u8>> {
    let io = |e: std::io::Error| Error::new(Status::Io, e.to_string());
    let meta = file.metadata().map_err(io)?;
    if !meta.is_file() {
        return Err(Error::invalid("not a regular file"));
    }
    if meta.len() > limit {
        return Err(Error::invalid(format!(
            "{} bytes, the limit is {limit}",
            meta.len()
        )));
    }
    let mut bytes = Vec::with_capacity(meta.len() as usize + 1);
    file.take(limit + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > limit {
        return Err(Error::invalid(format!(
            "grew past the limit of {limit} bytes"
        )));
    }
    Ok(bytes)
}

/// additional_chat_templates/NAME.jinja, sorted by name; empty if the directory is missing.
fn read_named_templates(model_dir: &Path) -> Result<Vec<(String, String)>> {
    let dir = model_dir.join("additional_chat_templates");
    let entries = match std::fs::read_dir(&dir) {
        Ok(entries) => entries,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound) => return Ok(Vec::new()),
        Err(e) => return Err(Error::new(Status::Io, format!("{}: {}", dir.display(), e))),
    };
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|file| file.strip_suffix(".jinja").map(str::to_owned))
        .collect();
    if names.len() > MAX_NAMED_TEMPLATES {
        return Err(Error::invalid(format!(
            "{}: {} templates, the limit is {MAX_NAMED_TEMPLATES}",
            dir.display(),
            names.len()
        )));
    }
    names.sort();
    let mut templates = Vec::new();
    for name in names {
        if let Some(source) = read_text(&dir, &format!("{name}.jinja"), MAX_TEMPLATE_BYTES)? {
            templates.push((name, source));
        }
    }
    Ok(templates)
}
