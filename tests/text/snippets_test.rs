//! Small templates against what Jinja2 makes of them, set up as transformers sets it up (make_snippets.py).

use serde_json::Value as Json;

use crate::chat::{Request, Templates, TokenStrings};

/// Lists the differences with their reasons. No chat template that we know has one of these.
const DIFFERENT: [(&str, &str); 52] = [
    ("{{ '{!r}'.format('a') }}", "the engine's str.format has no conversions"),
    ("{{ text.encode() }}", "templates have no bytes"),
    ("{{ (255).to_bytes(1) }}", "templates have no bytes"),
    ("{{ text.translate({}) }}", "no such method"),
    ("{{ map.items() }}", "views print as lists"),
    ("{{ map.keys() }}", "views print as lists"),
    ("{{ map.values() }}", "views print as lists"),
    ("{{ range(3) }}", "ranges print as lists"),
    ("{{ range(0) }}", "ranges print as lists"),
    ("{{ people | groupby('city') }}", "groups print as lists"),
    ("{% macro m(a, b) %}{{ m.name }}{{ m.arguments }}{% endmacro %}{{ m.name }}{{ m.arguments }}", "a list, not a tuple"),
    ("{{ number.real }}", "numbers have no attributes"),
    ("{{ ratio.as_integer_ratio() }}", "no such method"),
    ("{{ (5).conjugate() }}", "no such method"),
    ("{{ 'http://example.com x' | urlize }}", "no such filter"),
    ("{{ list | random | string | length }}", "a text must not depend on chance"),
    ("{{ lipsum is defined }}", "a text must not depend on chance"),
    ("{{ {1: 2, none: 3, true: 4, 1.5: 6} | tojson }}", "1 and true are different keys"),
    ("{{ 1. }}", "accepted: 1.0"),
    ("{{ self is defined }}", "a chat template has no blocks"),
    ("{{ self }}", "a chat template has no blocks"),
    ("{{ list < 1 }}", "different types have an order"),
    ("{{ none < 1 }}", "different types have an order"),
    ("{{ {[]: 1} }}", "lists are keys"),
    ("{{ yes is true is false }}", "accepted"),
    ("{{ '\\N{BULLET}' }}", "no names of characters"),
    ("{{ list[1.0] }}", "a whole number is an index"),
    ("{{ text['upper']() }}", "methods are no items"),
    ("{{ namespace(_a=1) }}", "accepted"),
    ("{% set ns = namespace() %}{% set ns._a = 1 %}", "accepted"),
    ("{% set a, b = 'xy' %}{{ a }}{{ b }}", "a string is not unpacked"),
    ("{% for a, b in ['xy'] %}{{ a }}{{ b }}{% endfor %}", "a string is not unpacked"),
    ("{{ list | batch(0) | list }}", "refused"),
    ("{{ list | batch('x') | list }}", "refused"),
    ("{{ text < 1 }}", "different types have an order"),
    ("{{ [1] < ['a'] }}", "different types have an order"),
    ("{{ map < map }}", "different types have an order"),
    ("{{ missing < 1 }}", "different types have an order"),
    ("{{ 1 in text }}", "false"),
    ("{{ map.get(list) }}", "lists are keys"),
    ("{{ dict(a=1, a=2) }}", "the last counts"),
    ("{{ 0777 }}", "accepted: 777"),
    ("{{ 1__0 }}", "accepted: 10"),
    ("{{ 1.e5 }}", "accepted: 100000.0"),
    ("{% raw %}", "refused"),
    ("{% macro m() %}{{ 'a' | nosuch }}{% endmacro %}ok", "a filter is looked for where it is called"),
    ("{{ self.x }}", "a chat template has no blocks"),
    ("{{ '{0.__class__}'.format(1) }}", "refused"),
    ("{{ text | indent(none) }}", "none is the default"),
    ("{{ ('<' | safe).upper() + '&' }}", "only filters that escape make escaped text"),
    ("{{ '<' | safe * 2 + '&' }}", "only filters that escape make escaped text"),
    ("{{ '<%s>' | safe % '&' }}", "only filters that escape make escaped text"),
];

fn data() -> Json {
    let path = format!(
        "{}/../tests/text/data/snippets.json",
        env!("CARGO_MANIFEST_DIR")
    );
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    serde_json::from_str(&text).unwrap()
}

/// None: equal. A snippet that Jinja2 refuses must be refused.
fn differs(snippet: &Json, variables: &str) -> Option<String> {
    let source = snippet["template"].as_str().unwrap();
    let tokens = TokenStrings::parse(None, None).unwrap();
    let rendered =
        Templates::load(None, Some(source.to_owned()), Vec::new(), tokens).and_then(|templates| {
            templates.render(&Request {
                messages: r#"[{"role": "user", "content": "x"}]"#,
                kwargs: Some(variables),
                ..Request::default()
            })
        });
    match (snippet["renders"].as_str(), rendered) {
        (Some(expected), Ok(got)) if expected == got => None,
        (None, Err(_)) => None,
        (expected, got) => Some(format!(
            "{source}\n    Jinja2 {expected:?}\n    Quire  {got:?}"
        )),
    }
}

#[test]
fn snippets_render_as_in_jinja2() {
    let data = data();
    let variables = data["variables"].to_string();
    let snippets = data["snippets"].as_array().unwrap();
    assert!(snippets.len() > 500);
    let mut failures = Vec::new();
    for snippet in snippets {
        let known = DIFFERENT
            .iter()
            .find(|(template, _)| snippet["template"] == *template);
        match (known, differs(snippet, &variables)) {
            (None, Some(difference)) => failures.push(difference),
            (Some((template, why)), None) => {
                failures.push(format!("{template} is equal now: {why}"))
            }
            _ => {}
        }
    }
    let (n, of) = (failures.len(), snippets.len());
    assert!(failures.is_empty(), "{n} of {of}\n{}", failures.join("\n"));
}
