//! Chat templates: which one, and what it is given.

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use minijinja::value::Value;
use minijinja::{Environment, ErrorKind};
use serde_json::{Map, Value as Json};

use crate::error::{Error, Result, Status};
use crate::jinja::{self, Raised};
use crate::load::MAX_TEMPLATE_BYTES;
use crate::python;

const MAX_OUTPUT_BYTES: usize = 16 << 20;
/// Enough for what MAX_TEMPLATE_BYTES can write and the engine's own bound on steps can build.
const STACK_BYTES: usize = 256 << 20;
/// Where the text of a message to be continued ends, while it is being rendered.
const CONTINUE_TAG: &str = "CONTINUE_FINAL_MESSAGE_TAG ";
/// Names under which a message's reasoning is passed; the first is what most templates read.
const REASONING_FIELDS: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];
/// The request sets these itself.
const RESERVED: [&str; 2] = ["messages", "tools"];

/// bos_token and its like, as variables of a template.
#[derive(Default)]
pub struct TokenStrings(Vec<(String, String)>);

impl TokenStrings {
    /// tokenizer_config.json is asked first, then special_tokens_map.json.
    pub fn parse(config: Option<&str>, map: Option<&str>) -> Result<TokenStrings> {
        const NAMES: [&str; 7] = [
            "bos_token",
            "eos_token",
            "unk_token",
            "sep_token",
            "pad_token",
            "cls_token",
            "mask_token",
        ];
        let config = parse_object("tokenizer_config.json", config)?;
        let map = parse_object("special_tokens_map.json", map)?;
        let mut tokens = Vec::new();
        for name in NAMES {
            let found = token_string("tokenizer_config.json", name, config.get(name))?.or(
                token_string("special_tokens_map.json", name, map.get(name))?,
            );
            if let Some(content) = found {
                tokens.push((name.to_owned(), content));
            }
        }
        // Models with more special tokens than these name them here.
        if let Some(Json::Object(extra)) = config.get("extra_special_tokens") {
            for (name, value) in extra {
                if let Some(content) = token_string("tokenizer_config.json", name, Some(value))? {
                    tokens.push((name.clone(), content));
                }
            }
        }
        Ok(TokenStrings(tokens))
    }
}

fn parse_object(file: &str, text: Option<&str>) -> Result<Map<String, Json>> {
    match text.map(serde_json::from_str::<Json>) {
        None => Ok(Map::new()),
        Some(Ok(Json::Object(object))) => Ok(object),
        Some(Ok(_)) => Err(Error::invalid(format!("{file}: must be a JSON object"))),
        Some(Err(e)) => Err(Error::invalid(format!("{file}: {e}"))),
    }
}

/// A token is written as a string or as an object with its content.
fn token_string(file: &str, name: &str, value: Option<&Json>) -> Result<Option<String>> {
    match value {
        None | Some(Json::Null) => Ok(None),
        Some(Json::String(content)) => Ok(Some(content.clone())),
        Some(Json::Object(token)) => match token.get("content") {
            Some(Json::String(content)) => Ok(Some(content.clone())),
            _ => Err(Error::invalid(format!(
                "{file}: {name}: content: must be a string"
            ))),
        },
        Some(_) => Err(Error::invalid(format!(
            "{file}: {name}: must be a string or an object"
        ))),
    }
}

/// What a chat is rendered from; the fields of struct quire_chat.
#[derive(Default)]
pub struct Request<'a> {
    pub messages: &'a str,
    pub tools: Option<&'a str>,
    pub kwargs: Option<&'a str>,
    pub template: Option<&'a str>,
    pub add_generation_prompt: bool,
    pub continue_final: bool,
}

/// The templates of a model, compiled.
pub struct Templates {
    environment: Environment<'static>,
    /// By name: why it cannot be used, where it cannot.
    names: BTreeMap<String, Option<String>>,
    /// The texts of all of them.
    sources: String,
    tokens: TokenStrings,
}

impl Templates {
    /// chat_template.jinja and additional_chat_templates/ win over tokenizer_config.json. A
    /// template that does not compile is an error only when it is used: a model whose template
    /// is broken can still complete text.
    pub fn load(
        config: Option<&str>,
        file: Option<String>,
        named: Vec<(String, String)>,
        tokens: TokenStrings,
    ) -> Result<Templates> {
        let mut sources = named;
        if let Some(source) = file {
            sources.push(("default".to_owned(), source));
        }
        if sources.is_empty() {
            let config = parse_object("tokenizer_config.json", config)?;
            sources = config_templates(config.get("chat_template"))
                .map_err(|e| e.at("tokenizer_config.json: chat_template"))?;
        }
        on_deep_stack(|| Templates::compile(sources, tokens))
    }

    fn compile(sources: Vec<(String, String)>, tokens: TokenStrings) -> Result<Templates> {
        let mut environment =
            jinja::environment().map_err(|e| Error::new(Status::Internal, one_line(&e)))?;
        let mut names = BTreeMap::new();
        let mut all = String::new();
        for (name, source) in sources {
            all.push_str(&source);
            let source = jinja::plain_generation_blocks(&source);
            let compiled = jinja::check_tags(&source).and_then(|()| {
                environment
                    .add_template_owned(name.clone(), source)
                    .map_err(|e| one_line(&e))
            });
            names.insert(name, compiled.err());
        }
        Ok(Templates {
            environment,
            names,
            sources: all,
            tokens,
        })
    }

    pub fn mention(&self, words: &str) -> bool {
        self.sources.contains(words)
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    pub fn render(&self, request: &Request) -> Result<String> {
        let messages = parse_messages(request.messages)?;
        let tools = parse_tools(request.tools)?;
        let kwargs = parse_kwargs(request.kwargs)?;
        let name = self.choose(request.template, tools.is_some())?;
        if request.continue_final && request.add_generation_prompt {
            return Err(Error::invalid(
                "continue_final_message and add_generation_prompt exclude each other",
            ));
        }
        let mut variables: BTreeMap<String, Value> = BTreeMap::new();
        for (name, content) in &self.tokens.0 {
            variables.insert(name.clone(), Value::from(content.as_str()));
        }
        variables.insert("documents".to_owned(), Value::from(()));
        variables.insert("tools".to_owned(), tools.map_or(Value::from(()), to_value));
        variables.insert(
            "add_generation_prompt".to_owned(),
            Value::from(request.add_generation_prompt),
        );
        for (name, value) in kwargs {
            variables.insert(name, to_value(value));
        }

        // transformers leaves out what is null (`"content": null` beside tool calls), and most
        // templates are written for that; some ask whether the content is none.
        let (present, had_null) = without_nulls(&messages);
        match self.render_messages(name, &variables, present, request.continue_final) {
            Err(first) if had_null => self
                .render_messages(name, &variables, messages, request.continue_final)
                .map_err(|_| first),
            result => result,
        }
    }

    fn render_messages(
        &self,
        name: &str,
        variables: &BTreeMap<String, Value>,
        mut messages: Vec<Json>,
        continue_final: bool,
    ) -> Result<String> {
        messages.iter_mut().for_each(alias_reasoning);
        let continued = match continue_final {
            true => Some(mark_final(&mut messages)?),
            false => None,
        };
        let mut variables = variables.clone();
        variables.insert("messages".to_owned(), to_value(Json::Array(messages)));
        let text = on_deep_stack(|| self.run(name, variables))?;
        match continued {
            Some(content) => cut_at_tag(text, &content),
            None => Ok(text),
        }
    }

    fn choose<'a>(&self, wanted: Option<&'a str>, has_tools: bool) -> Result<&'a str> {
        if self.names.is_empty() {
            return Err(Error::new(
                Status::Unsupported,
                "this model has no chat template",
            ));
        }
        let name = match wanted {
            Some(name) => name,
            None if has_tools && self.names.contains_key("tool_use") => "tool_use",
            None => "default",
        };
        match self.names.get(name) {
            Some(None) => Ok(name),
            Some(Some(failure)) => Err(Error::invalid(format!(
                "chat template {name:?} does not compile: {failure}"
            ))),
            None => {
                let known: Vec<&str> = self.names.keys().map(String::as_str).collect();
                Err(Error::new(
                    Status::NotFound,
                    format!(
                        "no chat template {name:?}; this model has: {}",
                        known.join(", ")
                    ),
                ))
            }
        }
    }

    fn run(&self, name: &str, variables: BTreeMap<String, Value>) -> Result<String> {
        let template = self
            .environment
            .get_template(name)
            .map_err(|e| Error::new(Status::Internal, one_line(&e)))?;
        let mut out = Bounded(Vec::new());
        if let Err(e) = template.render_captured_to(Value::from_pairs(variables), &mut out) {
            return Err(Error::invalid(render_failure(&e)));
        }
        String::from_utf8(out.0).map_err(|e| Error::new(Status::Internal, e.to_string()))
    }
}

/// What is left of this thread's stack; 0: not known.
fn stack_left() -> usize {
    // SAFETY: the attributes are initialized by pthread_getattr_np() before anything reads them.
    unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        let (mut base, mut size) = (std::ptr::null_mut(), 0);
        if libc::pthread_getattr_np(libc::pthread_self(), &mut attributes) != 0 {
            return 0;
        }
        let known = libc::pthread_attr_getstack(&attributes, &mut base, &mut size) == 0;
        libc::pthread_attr_destroy(&mut attributes);
        let here = std::ptr::addr_of!(size) as usize;
        if known {
            here.saturating_sub(base as usize)
        } else {
            0
        }
    }
}

/// Runs f where the stack is deep: here, or else on a thread of its own. A template can be written,
/// and can build values, that the engine walks by recursion; pages of a stack cost nothing until
/// they are used.
pub(crate) fn on_deep_stack<T: Send>(f: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    if stack_left() >= STACK_BYTES {
        return f();
    }
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    let result = std::thread::scope(|scope| thread.spawn_scoped(scope, f).map(|t| t.join()));
    match result {
        Ok(Ok(result)) => result,
        Ok(Err(panic)) => std::panic::resume_unwind(panic),
        Err(e) => Err(Error::new(
            Status::NoMemory,
            format!("chat template: no thread: {e}"),
        )),
    }
}

/// tokenizer_config.json's chat_template: one text, or a list of {name, template}.
fn config_templates(value: Option<&Json>) -> Result<Vec<(String, String)>> {
    let bounded = |source: &String| {
        if source.len() as u64 > MAX_TEMPLATE_BYTES {
            return Err(Error::invalid(format!(
                "longer than {MAX_TEMPLATE_BYTES} bytes"
            )));
        }
        Ok(source.clone())
    };
    match value {
        None | Some(Json::Null) => Ok(Vec::new()),
        Some(Json::String(source)) => Ok(vec![("default".to_owned(), bounded(source)?)]),
        Some(Json::Array(list)) => list
            .iter()
            .enumerate()
            .map(|(i, item)| match (item.get("name"), item.get("template")) {
                (Some(Json::String(name)), Some(Json::String(source))) => {
                    Ok((name.clone(), bounded(source)?))
                }
                _ => Err(Error::invalid(format!(
                    "[{i}]: must have a name and a template"
                ))),
            })
            .collect(),
        Some(_) => Err(Error::invalid(
            "must be a string or a list of {name, template}",
        )),
    }
}

/// The template's own words if it raised, else what went wrong and where.
fn render_failure(e: &minijinja::Error) -> String {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(e);
    while let Some(error) = cause {
        if let Some(Raised(words)) = error.downcast_ref() {
            return words.clone();
        }
        if error.downcast_ref::<TooLong>().is_some() {
            return format!("chat template: more than {MAX_OUTPUT_BYTES} bytes of text");
        }
        cause = match error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
        {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    match e.kind() {
        ErrorKind::OutOfFuel => "chat template: too many steps".to_owned(),
        _ => format!("chat template: {}", one_line(e)),
    }
}

fn one_line(e: &minijinja::Error) -> String {
    let mut text = e.to_string();
    let mut cause = std::error::Error::source(e);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// The output of a rendering, up to a bound.
struct Bounded(Vec<u8>);

#[derive(Debug)]
struct TooLong;

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("too long")
    }
}

impl std::error::Error for TooLong {}

impl io::Write for &mut Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > MAX_OUTPUT_BYTES - self.0.len() {
            return Err(io::Error::other(TooLong));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// JSON as the template engine holds it. Its depth is what serde_json admits: 128.
fn to_value(json: Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(b) => Value::from(b),
        Json::Number(n) => match (n.as_i64(), n.as_u64()) {
            (Some(i), _) => Value::from(i),
            (_, Some(u)) => Value::from(u),
            _ => Value::from(n.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(s) => Value::from(s),
        Json::Array(items) => items.into_iter().map(to_value).collect(),
        Json::Object(members) => Value::from_pairs(
            members
                .into_iter()
                .map(|(name, value)| (name, to_value(value))),
        ),
    }
}

fn parse_messages(text: &str) -> Result<Vec<Json>> {
    let messages: Vec<Json> =
        serde_json::from_str(text).map_err(|e| Error::invalid(format!("messages: {e}")))?;
    if messages.is_empty() {
        return Err(Error::invalid("messages: must not be empty"));
    }
    match messages.iter().position(|m| !m.is_object()) {
        Some(i) => Err(Error::invalid(format!("messages[{i}]: must be an object"))),
        None => Ok(messages),
    }
}

/// The messages without their members that are null, and whether there were any.
fn without_nulls(messages: &[Json]) -> (Vec<Json>, bool) {
    let mut had_null = false;
    let mut present = messages.to_vec();
    for message in present.iter_mut().filter_map(Json::as_object_mut) {
        message.retain(|_, value| {
            had_null |= value.is_null();
            !value.is_null()
        });
    }
    (present, had_null)
}

/// None when there are no tools; JSON null is the same.
fn parse_tools(text: Option<&str>) -> Result<Option<Json>> {
    let Some(text) = text else { return Ok(None) };
    let tools: Option<Vec<Json>> =
        serde_json::from_str(text).map_err(|e| Error::invalid(format!("tools: {e}")))?;
    match tools.iter().flatten().position(|t| !t.is_object()) {
        Some(i) => Err(Error::invalid(format!("tools[{i}]: must be an object"))),
        None => Ok(tools.map(Json::Array)),
    }
}

fn parse_kwargs(text: Option<&str>) -> Result<Map<String, Json>> {
    let Some(text) = text else {
        return Ok(Map::new());
    };
    let kwargs: Option<Map<String, Json>> = serde_json::from_str(text)
        .map_err(|e| Error::invalid(format!("chat_template_kwargs: {e}")))?;
    let kwargs = kwargs.unwrap_or_default();
    match RESERVED.iter().find(|name| kwargs.contains_key(**name)) {
        Some(name) => Err(Error::invalid(format!(
            "chat_template_kwargs: {name}: not allowed"
        ))),
        None => Ok(kwargs),
    }
}

/// Reasoning given under any of its names can be read under the first, and under `thinking`.
fn alias_reasoning(message: &mut Json) {
    let Json::Object(message) = message else {
        return;
    };
    let reasoning = REASONING_FIELDS
        .iter()
        .find_map(|name| message.get(*name).filter(|v| !v.is_null()))
        .cloned();
    if let Some(reasoning) = reasoning {
        message
            .entry("thinking")
            .or_insert_with(|| reasoning.clone());
        message.insert("reasoning_content".to_owned(), reasoning);
    }
}

/// Puts the tag after the text of the last message, and returns that text.
fn mark_final(messages: &mut [Json]) -> Result<String> {
    let last = messages
        .last_mut()
        .ok_or_else(|| Error::invalid("continue_final_message: there is no message to continue"))?;
    let content = match last.get_mut("content") {
        Some(Json::Array(parts)) => parts.iter_mut().rev().find_map(|part| part.get_mut("text")),
        other => other,
    };
    match content {
        Some(Json::String(text)) => {
            let before = text.clone();
            text.push_str(CONTINUE_TAG);
            Ok(before)
        }
        _ => Err(Error::invalid(
            "continue_final_message: the last message has no text to continue",
        )),
    }
}

/// Cuts the rendered chat where the text of the last message ends.
fn cut_at_tag(mut text: String, content: &str) -> Result<String> {
    let tag = CONTINUE_TAG.trim_end();
    match text.rfind(tag) {
        Some(at) if text.contains(python::strip_space(content)) => {
            // The space after the tag survives where the template keeps the text as it is; where
            // it trims the text, the space that the text itself ended with is gone too.
            let kept = text[at..].starts_with(CONTINUE_TAG);
            text.truncate(at);
            if !kept {
                text.truncate(python::strip_space_end(&text).len());
            }
            Ok(text)
        }
        _ => Err(Error::invalid(
            "continue_final_message: the chat template changes or drops the text of the last message",
        )),
    }
}
