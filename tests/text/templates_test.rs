//! Templates of public model families against what Jinja2 makes of them, set up as transformers sets it up
//! (make_templates.py). templates.sh fetches them and names the file in QUIRE_TEMPLATES.

use serde_json::Value as Json;

use crate::chat::{Request, Templates, TokenStrings};

/// Of model families; a package that ships fewer is not the one that we know.
const MIN_TEMPLATES: usize = 40;

/// Jinja2 refuses these with tools, because a generator, which `map` makes there, is not JSON. Here it makes a list.
const LISTS: [&str; 1] = ["llama-cpp-deepseek-r1"];

/// Arguments that are no mapping get a second try where a template fails with them.
fn has_second_try(messages: &Json) -> bool {
    let is_text = |call: &Json| call["function"]["arguments"].is_string();
    let calls = messages.as_array().unwrap().iter().flat_map(|message| message["tool_calls"].as_array());
    calls.flatten().any(is_text)
}

/// None: equal. What Jinja2 refuses must be refused.
fn differs(templates: &Templates, request: &Json, expected: &Json) -> Option<String> {
    let text = |name: &str| request.get(name).filter(|value| !value.is_null()).map(Json::to_string);
    let is = |name: &str| request.get(name) == Some(&Json::from(true));
    let (messages, tools, kwargs) = (text("messages")?, text("tools"), text("kwargs"));
    let rendered = templates.render(&Request {
        messages: &messages,
        tools: tools.as_deref(),
        kwargs: kwargs.as_deref(),
        add_generation_prompt: is("add_generation_prompt"),
        continue_final: is("continue_final"),
        ..Request::default()
    });
    match (expected.as_str(), rendered) {
        (Some(expected), Ok(got)) if expected == got => None,
        (None, Err(_)) => None,
        (None, Ok(_)) if has_second_try(&request["messages"]) => None,
        (Some(expected), Ok(got)) => {
            let same = expected.chars().zip(got.chars()).take_while(|(a, b)| a == b).count();
            let from = |text: &str| text.chars().skip(same.saturating_sub(40)).take(120).collect::<String>();
            Some(format!("from {same}: Jinja2 {:?}\n    Quire {:?}", from(expected), from(&got)))
        }
        (expected, got) => Some(format!("Jinja2 {expected:?}\n    Quire {:?}", got.map_err(|e| e.text))),
    }
}

#[test]
fn templates_of_model_families_render_as_in_jinja2() {
    let Some(path) = std::env::var_os("QUIRE_TEMPLATES") else { return };
    let data: Json = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let templates = data["templates"].as_array().unwrap();
    assert!(templates.len() >= MIN_TEMPLATES, "{} templates", templates.len());
    let config = data["tokens"].to_string();
    let mut failures = Vec::new();
    for template in templates {
        let tokens = TokenStrings::parse(Some(&config), None).unwrap();
        let source = template["source"].as_str().unwrap().to_owned();
        let compiled = Templates::load(None, Some(source), Vec::new(), tokens).unwrap();
        let rendered = template["renders"].as_array().unwrap();
        for (request, expected) in data["requests"].as_array().unwrap().iter().zip(rendered) {
            let has_tools = request.get("tools").is_some_and(|tools| !tools.is_null());
            let is_list = has_tools && expected.is_null() && LISTS.contains(&template["name"].as_str().unwrap());
            if let Some(difference) = differs(&compiled, request, expected).filter(|_| !is_list) {
                failures.push(format!(
                    "{} of {:?}, {}, tools {has_tools}:\n    {difference}",
                    template["name"], request["chat"], request["kwargs"]
                ));
            }
        }
    }
    let n = failures.len();
    assert!(failures.is_empty(), "{n} differ\n{}", failures.join("\n"));
}
