//! Chat templates: selection and inputs.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::io;

use minijinja::value::{Value, ValueKind};
use minijinja::{Environment, ErrorKind};
use serde_json::{Map, Value as Json};

use crate::error::{Error, Result, Status};
use crate::jinja::{self, Raised};
use crate::json::{self, Writer};
use crate::load::MAX_TEMPLATE_BYTES;
use crate::marks::{Specials, Spelled, Speller};
use crate::jinja::python;
use crate::python_json::mended;

const MAX_OUTPUT_BYTES: usize = 16 << 20;
/// Limit for messages, tools and kwargs together. A value costs up to 150 bytes, so this limits a chat to 40 MB in
/// addition to its text; a chat of 65,536 messages has 196,609.
const MAX_VALUES: usize = 1 << 18;
/// Limit for messages with the arguments of their calls: server/front/body/chat.c reads 120 levels of those.
const MAX_DEPTH: usize = 128;
/// Enough for what MAX_TEMPLATE_BYTES can write and the engine's own bound on steps can build.
pub(crate) const STACK_BYTES: usize = 256 << 20;
/// Where the text of a message to be continued ends, while it is being rendered.
const CONTINUE_TAG: &str = "CONTINUE_FINAL_MESSAGE_TAG ";
/// Names under which a message's reasoning is passed; the first is what most templates read.
const REASONING_FIELDS: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];
/// A variable of templates that is text from outside, as messages and tools are.
const DOCUMENTS: &str = "documents";
/// The request sets these itself.
const RESERVED: [&str; 2] = ["messages", "tools"];

/// bos_token and similar tokens, as variables of a template.
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

    /// Writes them into a tokenizer_config.json, as strings.
    pub fn describe(&self, config: &mut Map<String, Json>) {
        for (name, content) in &self.0 {
            config.insert(name.clone(), Json::String(content.clone()));
        }
    }
}

/// tokenizer_config.json as an object, empty without the file.
pub fn config_object(config: Option<&str>) -> Result<Map<String, Json>> {
    parse_object("tokenizer_config.json", config)
}

fn parse_object(file: &str, text: Option<&str>) -> Result<Map<String, Json>> {
    match text.map(|text| serde_json::from_str::<Json>(&mended(text))) {
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

/// A chat's text, and the mark in it, where it has one.
pub struct Rendered {
    pub text: String,
    pub mark: Option<char>,
}

/// The inputs of a rendering; the fields of struct quire_chat.
#[derive(Default)]
pub struct Request<'a> {
    pub messages: &'a str,
    pub tools: Option<&'a str>,
    pub kwargs: Option<&'a str>,
    pub template: Option<&'a str>,
    pub add_generation_prompt: bool,
    pub continue_final: bool,
    pub spelled: Spelled,
}

/// The templates of a model, compiled.
pub struct Templates {
    environment: Environment<'static>,
    /// By name: why it cannot be used, where it cannot.
    names: BTreeMap<String, Option<String>>,
    /// The texts of all of them.
    sources: String,
    /// The text of the one named default.
    default: Option<String>,
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
        let mut default = None;
        for (name, source) in sources {
            all.push_str(&source);
            if name == "default" {
                default = Some(source.clone());
            }
            let compiled = jinja::prepare(&source).and_then(|source| {
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
            default,
            tokens,
        })
    }

    /// A tokenizer_config.json with the default template, as text.
    pub fn describe(&self, mut config: Map<String, Json>) -> String {
        config.remove("chat_template");
        if let Some(source) = &self.default {
            config.insert("chat_template".to_owned(), Json::String(source.clone()));
        }
        Json::Object(config).to_string()
    }

    pub fn mention(&self, words: &str) -> bool {
        self.sources.contains(words)
    }

    /// Whether it is there as a name, and not only as a part of a longer one.
    pub fn use_name(&self, name: &str) -> bool {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        !name.is_empty()
            && self.sources.match_indices(name).any(|(at, _)| {
                !self.sources[..at].ends_with(is_part)
                    && !self.sources[at + name.len()..].starts_with(is_part)
            })
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    #[cfg(test)]
    pub fn render(&self, request: &Request) -> Result<String> {
        let none = Specials::new(Vec::new())?;
        self.render_marked(request, &none)
            .map(|rendered| rendered.text)
    }

    pub fn render_marked(&self, request: &Request, specials: &Specials) -> Result<Rendered> {
        let texts = [Some(request.messages), request.tools, request.kwargs];
        let mut shared = Shared {
            left: MAX_VALUES,
            speller: Speller::new(specials, request.spelled, texts.into_iter().flatten()),
        };
        let rendered = self.render_shared(request, &mut shared);
        match (rendered, shared.speller.mark()) {
            (Ok(text), mark) => Ok(Rendered { text, mark }),
            // A template's own words may have a message's in them.
            (Err(e), Some(mark)) => Err(Error::new(e.status, e.text.replace(mark, ""))),
            (Err(e), None) => Err(e),
        }
    }

    fn render_shared(&self, request: &Request, shared: &mut Shared) -> Result<String> {
        let messages = parse_messages(request.messages, shared)?;
        let tools = parse_tools(request.tools, shared)?;
        let kwargs = parse_kwargs(request.kwargs, shared)?;
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
        variables.insert(DOCUMENTS.to_owned(), Value::from(()));
        variables.insert("tools".to_owned(), tools.unwrap_or(Value::from(())));
        variables.insert(
            "add_generation_prompt".to_owned(),
            Value::from(request.add_generation_prompt),
        );
        for (name, value) in kwargs {
            variables.insert(name.to_string(), value);
        }

        let objects = with_object_arguments(&messages);
        let text = self.render_present(name, &variables, messages, request.continue_final);
        match (text, objects) {
            (Err(first), Some(objects)) => self
                .render_present(name, &variables, objects, request.continue_final)
                .map_err(|_| first),
            (text, _) => text,
        }
    }

    /// transformers leaves out null members (`"content": null` in a message with tool calls), and most templates are
    /// written for that. Some templates test whether the content is none.
    fn render_present(
        &self,
        name: &str,
        variables: &BTreeMap<String, Value>,
        messages: Vec<Message>,
        continue_final: bool,
    ) -> Result<String> {
        let is_null = |(_, value): &(Value, Value)| value.is_none();
        if !messages.iter().flatten().any(is_null) {
            return self.render_messages(name, variables, messages, continue_final);
        }
        let mut present = messages.clone();
        for message in &mut present {
            message.retain(|member| !is_null(member));
        }
        self.render_messages(name, variables, present, continue_final)
            .or_else(|first| {
                self.render_messages(name, variables, messages, continue_final)
                    .map_err(|_| first)
            })
    }

    fn render_messages(
        &self,
        name: &str,
        variables: &BTreeMap<String, Value>,
        mut messages: Vec<Message>,
        continue_final: bool,
    ) -> Result<String> {
        messages.iter_mut().for_each(alias_reasoning);
        let continued = match continue_final {
            true => Some(mark_final(&mut messages)?),
            false => None,
        };
        let mut variables = variables.clone();
        let messages = messages.into_iter().map(Value::from_pairs).collect();
        variables.insert("messages".to_owned(), messages);
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
        jinja::budget::start();
        if let Err(e) = template.render_captured_to(Value::from_pairs(variables), &mut out) {
            return Err(Error::invalid(render_failure(&e)));
        }
        String::from_utf8(out.0).map_err(|e| Error::new(Status::Internal, e.to_string()))
    }
}

/// The bytes left on this thread's stack; 0 if unknown.
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

/// A message's members in the order they were written in.
type Message = Vec<(Value, Value)>;

/// State that the texts of one request share.
struct Shared<'s> {
    /// So many values more.
    left: usize,
    speller: Speller<'s>,
}

/// JSON that becomes values of the template engine, without a tree between.
struct Parser<'a, 's> {
    text: &'a str,
    at: usize,
    what: &'static str,
    shared: &'a mut Shared<'s>,
    /// The text comes from the client, not from the server.
    words: bool,
}

impl<'a, 's> Parser<'a, 's> {
    fn new(
        what: &'static str,
        writer: Writer,
        text: &'a str,
        shared: &'a mut Shared<'s>,
    ) -> Result<Parser<'a, 's>> {
        json::check_of(writer, text.as_bytes(), MAX_DEPTH)
            .map_err(|e| Error::new(e.status, format!("{what}: it {}", e.text)))?;
        let mut parser = Parser {
            text,
            at: 0,
            what,
            shared,
            words: true,
        };
        parser.skip_space();
        Ok(parser)
    }

    fn skip_space(&mut self) {
        self.at = json::skip_space(self.text.as_bytes(), self.at);
    }

    fn peek(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or(b']')
    }

    fn value(&mut self) -> Result<Value> {
        self.shared.left = self.shared.left.checked_sub(1).ok_or_else(|| {
            Error::invalid(format!(
                "{}: with what else a template sees, more than {MAX_VALUES} JSON values",
                self.what
            ))
        })?;
        Ok(match self.peek() {
            b'"' => self.string(),
            b'[' => self.items(Parser::value)?.into_iter().collect(),
            b'{' => Value::from_pairs(self.members()?),
            _ => {
                let from = self.at;
                self.at = json::word_end(self.text.as_bytes(), from);
                match &self.text[from..self.at] {
                    "null" => Value::from(()),
                    "true" => Value::from(true),
                    "false" => Value::from(false),
                    number => python::number(number),
                }
            }
        })
    }

    fn string(&mut self) -> Value {
        let from = self.at;
        self.at = json::string_end(self.text.as_bytes(), from);
        let text = json::unescape(&self.text[from..self.at]);
        if self.words {
            if let Some(marked) = self.shared.speller.see(&text) {
                return Value::from(marked);
            }
        }
        match text {
            Cow::Borrowed(text) => Value::from(text),
            Cow::Owned(text) => Value::from(text),
        }
    }

    /// Reads the array that begins here.
    fn items<T>(&mut self, item: impl Fn(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut items = Vec::new();
        self.at += 1;
        loop {
            self.skip_space();
            match self.peek() {
                b']' | b'}' => break,
                b',' => self.at += 1,
                _ => items.push(item(self)?),
            }
        }
        self.at += 1;
        Ok(items)
    }

    /// Reads the object that begins here.
    fn members(&mut self) -> Result<Message> {
        self.items(|parser| Ok((parser.key(), parser.value()?)))
    }

    fn key(&mut self) -> Value {
        let key = self.string();
        self.skip_space();
        self.at += 1; // the colon
        self.skip_space();
        key
    }

    /// A value that is refused for what it spells.
    fn checked_value(&mut self, place: impl Fn() -> String) -> Result<Value> {
        let value = self.value()?;
        match self.shared.speller.refused() {
            None => Ok(value),
            Some(token) => Err(Error::invalid(format!(
                "{}: spells the special token {token:?}",
                place()
            ))),
        }
    }

    fn must_be(&self, open: u8, i: Option<usize>) -> Result<()> {
        if self.peek() == open {
            return Ok(());
        }
        let kind = if open == b'[' { "array" } else { "object" };
        let index = i.map_or(String::new(), |i| format!("[{i}]"));
        Err(Error::invalid(format!(
            "{}{index}: must be an {kind}",
            self.what
        )))
    }

    fn is_null(&self) -> bool {
        self.peek() == b'n'
    }
}

fn parse_messages(text: &str, shared: &mut Shared) -> Result<Vec<Message>> {
    let mut parser = Parser::new("messages", Writer::Python, text, shared)?;
    parser.must_be(b'[', None)?;
    let i = Cell::new(0);
    let messages = parser.items(|parser| {
        let i = i.replace(i.get() + 1);
        parser.must_be(b'{', Some(i))?;
        parser.items(|parser| {
            let key = parser.key();
            let value = parser.checked_value(|| format!("messages[{i}].{key}"))?;
            Ok((key, value))
        })
    })?;
    match messages.is_empty() {
        true => Err(Error::invalid("messages: must not be empty")),
        false => Ok(messages),
    }
}

/// None when there are no tools; JSON null is the same.
fn parse_tools(text: Option<&str>, shared: &mut Shared) -> Result<Option<Value>> {
    let Some(text) = text else { return Ok(None) };
    let mut parser = Parser::new("tools", Writer::Client, text, shared)?;
    if parser.is_null() {
        return Ok(None);
    }
    parser.must_be(b'[', None)?;
    let i = Cell::new(0);
    let tools = parser.items(|parser| {
        let i = i.replace(i.get() + 1);
        parser.must_be(b'{', Some(i))?;
        parser.checked_value(|| format!("tools[{i}]"))
    })?;
    Ok(Some(Value::from(tools)))
}

fn parse_kwargs(text: Option<&str>, shared: &mut Shared) -> Result<Message> {
    let Some(text) = text else {
        return Ok(Message::new());
    };
    let mut parser = Parser::new("chat_template_kwargs", Writer::Client, text, shared)?;
    if parser.is_null() {
        return Ok(Message::new());
    }
    parser.must_be(b'{', None)?;
    let kwargs = parser.items(|parser| {
        parser.words = false;
        let key = parser.key();
        parser.words = key.as_str() == Some(DOCUMENTS);
        let value = parser.checked_value(|| format!("chat_template_kwargs.{DOCUMENTS}"))?;
        Ok((key, value))
    })?;
    match RESERVED.iter().find(|name| member(&kwargs, name).is_some()) {
        Some(name) => Err(Error::invalid(format!(
            "chat_template_kwargs: {name}: not allowed"
        ))),
        None => Ok(kwargs),
    }
}

fn member<'a>(message: &'a Message, name: &str) -> Option<&'a Value> {
    let is_it = |(key, _): &&(Value, Value)| key.as_str() == Some(name);
    message.iter().find(is_it).map(|(_, value)| value)
}

fn set_member(message: &mut Message, name: &str, value: Value) {
    match message
        .iter_mut()
        .find(|(key, _)| key.as_str() == Some(name))
    {
        Some((_, old)) => *old = value,
        None => message.push((Value::from(name), value)),
    }
}

/// The members of a mapping.
fn members_of(value: &Value) -> Message {
    let keys = value.try_iter().into_iter().flatten();
    keys.map(|key| (key.clone(), value.get_item(&key).unwrap_or_default()))
        .collect()
}

/// The messages with {"arguments": what was given} in place of arguments that are not a mapping: a list, a number, null,
/// or a text that was cut or is not JSON. For templates that accept only mappings. Returns None if no message has such
/// arguments.
fn with_object_arguments(messages: &[Message]) -> Option<Vec<Message>> {
    let arguments = |call: &Value| call.get_attr("function").ok()?.get_attr("arguments").ok();
    let calls = |message: &Message| member(message, "tool_calls").map_or(Vec::new(), parts);
    let is_other = |call: &Value| arguments(call).is_some_and(|given| given.kind() != ValueKind::Map);
    if !messages.iter().flat_map(calls).any(|call| is_other(&call)) {
        return None;
    }
    let mended = messages.iter().cloned().map(|mut message| {
        let calls: Vec<Value> = calls(&message).iter().map(with_object).collect();
        if !calls.is_empty() {
            set_member(&mut message, "tool_calls", Value::from(calls));
        }
        message
    });
    Some(mended.collect())
}

fn with_object(call: &Value) -> Value {
    let mut call = members_of(call);
    let Some(mut function) = member(&call, "function").map(members_of) else {
        return Value::from_pairs(call);
    };
    if let Some(given) = member(&function, "arguments").filter(|given| given.kind() != ValueKind::Map) {
        let object = Value::from_pairs(vec![(Value::from("arguments"), given.clone())]);
        set_member(&mut function, "arguments", object);
        set_member(&mut call, "function", Value::from_pairs(function));
    }
    Value::from_pairs(call)
}

/// Reasoning given under any of its names can be read under the first, and under `thinking`.
fn alias_reasoning(message: &mut Message) {
    let reasoning = REASONING_FIELDS
        .iter()
        .find_map(|name| member(message, name).filter(|v| !v.is_none()))
        .cloned();
    if let Some(reasoning) = reasoning {
        if member(message, "thinking").is_none() {
            set_member(message, "thinking", reasoning.clone());
        }
        set_member(message, "reasoning_content", reasoning);
    }
}

/// Puts the tag after the text of the last message, and returns that text.
fn mark_final(messages: &mut [Message]) -> Result<String> {
    let last = messages
        .last_mut()
        .ok_or_else(|| Error::invalid("continue_final_message: there is no message to continue"))?;
    let content = member(last, "content").cloned().unwrap_or_default();
    let text = match content.kind() {
        ValueKind::Seq => parts(&content)
            .iter()
            .rev()
            .map(text_of)
            .find(|text| !text.is_undefined()),
        _ => Some(content.clone()),
    };
    let Some(text) = text.as_ref().and_then(Value::as_str) else {
        return Err(Error::invalid(
            "continue_final_message: the last message has no text to continue",
        ));
    };
    let marked = Value::from(format!("{text}{CONTINUE_TAG}"));
    let marked = match content.kind() {
        ValueKind::Seq => mark_part(&content, marked),
        _ => marked,
    };
    let text = text.to_owned();
    set_member(last, "content", marked);
    Ok(text)
}

fn parts(content: &Value) -> Vec<Value> {
    content.try_iter().map_or(Vec::new(), Iterator::collect)
}

/// The text of a part; undefined if it has no text.
fn text_of(part: &Value) -> Value {
    part.get_attr("text").unwrap_or_default()
}

/// The parts with another text in the last one that has any.
fn mark_part(content: &Value, marked: Value) -> Value {
    let mut parts = parts(content);
    let last = parts
        .iter_mut()
        .rev()
        .find(|part| !text_of(part).is_undefined());
    if let Some(part) = last {
        let mut members = members_of(part);
        set_member(&mut members, "text", marked);
        *part = Value::from_pairs(members);
    }
    Value::from(parts)
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
