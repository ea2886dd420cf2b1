//! add_prefix_space of tokenizer_config.json, which changes tokenizer.json for the classes of transformers that make
//! their own tokenizer: whether the beginning of a text gets a space. Other classes take tokenizer.json alone.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::Value;

use crate::python_json::mended;

/// Changes one component: true if it is to be removed.
type Change = fn(&mut Value, bool) -> bool;

fn of_bytes(part: &mut Value, adds: bool) -> bool {
    if part["type"] == "ByteLevel" {
        part["add_prefix_space"] = adds.into();
    }
    false
}

/// Llama's: without the space, the decoder removes none.
fn of_pieces(part: &mut Value, adds: bool) -> bool {
    if part["type"] == "Metaspace" && !adds {
        part["prepend_scheme"] = "never".into();
        if part.get("add_prefix_space").is_some() {
            part["add_prefix_space"] = false.into();
        }
    }
    !adds && (part["type"] == "Prepend" || part["type"] == "Strip")
}

/// tokenizer.json as the class of tokenizer_config.json has it.
pub fn applied<'a>(tokenizer: &'a str, config: Option<&str>) -> Cow<'a, str> {
    let config = config.and_then(|text| serde_json::from_str::<Value>(&mended(text)).ok());
    let config = config.unwrap_or_default();
    let class = config["tokenizer_class"].as_str().unwrap_or("");
    let (change, names): (Change, &[&str]) = match class.strip_suffix("Fast").unwrap_or(class) {
        "GPT2Tokenizer" | "Qwen2Tokenizer" | "RobertaTokenizer" => (of_bytes, &["pre_tokenizer"]),
        "LlamaTokenizer" => (of_pieces, &["normalizer", "pre_tokenizer", "decoder"]),
        _ => return Cow::Borrowed(tokenizer),
    };
    let Some(adds) = config["add_prefix_space"].as_bool() else {
        return Cow::Borrowed(tokenizer);
    };
    let text = mended(tokenizer);
    // A file that is no object is reported by its reader.
    let Ok(members) = serde_json::from_str::<BTreeMap<String, &RawValue>>(&text) else {
        return Cow::Borrowed(tokenizer);
    };
    let members: Vec<String> = members
        .iter()
        .map(|(name, raw)| {
            let mut value = None;
            if names.contains(&name.as_str()) {
                value = serde_json::from_str(raw.get()).ok();
            }
            let value = value.map(|value| walk(value, change, adds).to_string());
            let value = value.as_deref().unwrap_or(raw.get());
            format!("{}:{value}", Value::from(name.as_str()))
        })
        .collect();
    Cow::Owned(format!("{{{}}}", members.join(",")))
}

/// Every component of a Sequence, or the single one.
fn walk(mut value: Value, change: Change, adds: bool) -> Value {
    for list in ["normalizers", "pretokenizers", "decoders"] {
        if let Some(parts) = value.get_mut(list).and_then(Value::as_array_mut) {
            parts.retain_mut(|part| !change(part, adds));
            return value;
        }
    }
    match value.is_object() && change(&mut value, adds) {
        true => Value::Null,
        false => value,
    }
}
