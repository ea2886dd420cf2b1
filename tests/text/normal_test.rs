//! Normal grammars against llguidance: what each allows and forbids, byte by byte. Errors name the place.

use std::sync::OnceLock;

use llguidance::api::{GrammarInit, ParserLimits, TopLevelGrammar};
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities};
use llguidance::{Matcher, ParserFactory};
use serde_json::{json, Value as Json};

use crate::error::Status;
use crate::normal::{normal, Form, Reasoning, Whitespace};

/// Half of what quire_grammar_normal.h asks for.
const SMALL_STACK_BYTES: usize = 512 << 10;

fn factory() -> &'static ParserFactory {
    static FACTORY: OnceLock<ParserFactory> = OnceLock::new();
    FACTORY.get_or_init(|| {
        let env = ApproximateTokEnv::single_byte_env();
        let capabilities = InferenceCapabilities::default();
        ParserFactory::new(&env, capabilities, &[]).unwrap()
    })
}

pub fn matcher(grammar: &str) -> Result<Matcher, String> {
    let init = GrammarInit::Serialized(TopLevelGrammar::from_lark(grammar.to_string()));
    let parser = factory()
        .create_parser_from_init_ext(
            init,
            llguidance::Logger::new(0, 0),
            InferenceCapabilities::default(),
            ParserLimits::default(),
        )
        .map_err(|e| e.to_string())?;
    Ok(Matcher::new(Ok(parser)))
}

fn accepts(grammar: &str, text: &str) -> bool {
    let mut matcher = matcher(grammar).unwrap_or_else(|e| panic!("{e}\n{grammar}"));
    let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
    let n = matcher
        .try_consume_tokens(&tokens)
        .unwrap_or_else(|e| panic!("{e}\n{grammar}"));
    n == tokens.len() && matcher.is_accepting().unwrap()
}

fn of(form: Form, text: &str) -> String {
    normal(form, text.as_bytes(), Whitespace::Compact, None)
        .unwrap_or_else(|e| panic!("{text}: {}", e.text))
}

pub fn refusal(form: Form, text: &str) -> String {
    match normal(form, text.as_bytes(), Whitespace::Compact, None) {
        Ok(grammar) => panic!("{text} is accepted:\n{grammar}"),
        Err(e) => {
            assert!(matches!(e.status, Status::Invalid | Status::Unsupported));
            e.text
        }
    }
}

pub fn check(form: Form, text: &str, good: &[&str], bad: &[&str]) {
    let grammar = of(form, text);
    for answer in good {
        assert!(
            accepts(&grammar, answer),
            "{text} forbids {answer}\n{grammar}"
        );
    }
    for answer in bad {
        assert!(
            !accepts(&grammar, answer),
            "{text} allows {answer}\n{grammar}"
        );
    }
}

fn check_schema(schema: Json, good: &[&str], bad: &[&str]) {
    check(Form::JsonSchema, &schema.to_string(), good, bad);
}

#[test]
fn objects_and_schemas_are_compact() {
    check(
        Form::JsonObject,
        "",
        &["{}", r#"{"a":[1,null]}"#],
        &["[]", r#"{ "a":1}"#, "1"],
    );
    check_schema(
        json!({"type": "object", "properties": {"b": {"type": "integer"}, "a": {"type": "string", "maxLength": 4.0}},
            "required": ["b", "a"], "additionalProperties": false, "title": "T", "x-y": 1}),
        &[r#"{"b":1,"a":"x"}"#],
        &[
            r#"{"a":"x","b":1}"#,
            r#"{"b": 1,"a":"x"}"#,
            r#"{"b":1,"a":"xxxxx"}"#,
        ],
    );
    let spaced = normal(Form::JsonObject, b"", Whitespace::Spaced, None).unwrap();
    assert!(accepts(&spaced, r#"{"a": 1, "b": 2}"#) && !accepts(&spaced, r#"{"a":1}"#));
    let flexible = normal(Form::JsonObject, b"", Whitespace::Flexible, None).unwrap();
    assert!(accepts(&flexible, "{ \"a\" :1,\n\"b\": 2}"));
}

#[test]
fn what_has_no_effect_is_dropped_and_the_text_is_the_identity() {
    let plain = of(
        Form::JsonSchema,
        r##"{"type":"object","properties":{"a":{"$ref":"#/$defs/A"}},"$defs":{"A":{"type":"string"}}}"##,
    );
    let noisy = r##"{ "$schema": "https://json-schema.org/draft/2020-12/schema", "title": "x", "type": "object",
        "properties": {"a": {"$ref": "#/definitions/B", "description": "d", "default": null}},
        "definitions": {"unused": {"not": {"pattern": "x"}}, "B": {"type": "string", "format": "int32", "examples": [1]}},
        "discriminator": {"propertyName": "a"}, "strict": true, "deprecated": false, "uniqueItems": false}"##;
    assert_eq!(plain, of(Form::JsonSchema, noisy));
    let other = of(
        Form::JsonSchema,
        r#"{"properties":{"a":{"type":"string"},"b":{}}}"#,
    );
    assert_ne!(
        other,
        of(
            Form::JsonSchema,
            r#"{"properties":{"b":{},"a":{"type":"string"}}}"#
        )
    );
}

#[test]
fn keywords_that_cannot_be_enforced_are_refused_with_their_path() {
    for (schema, place) in [
        (
            json!({"properties": {"a": {"type": "array", "uniqueItems": true}}}),
            "/properties/a/uniqueItems: ",
        ),
        (
            json!({"items": {"contains": {"type": "string"}}}),
            "/items/contains: ",
        ),
        (json!({"not": {"pattern": "a"}}), "/not: "),
        (
            json!({"allOf": [{"unevaluatedItems": false, "anyOf": [{}]}]}),
            "/allOf/0/unevaluatedItems: ",
        ),
        (
            json!({"properties": {"a/b": {"$ref": "http://x/y"}}}),
            "/properties/a~1b/$ref: ",
        ),
        (json!({"$ref": "#/$defs/none"}), "/$ref: "),
        (
            json!({"$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}, "$ref": "#/$defs/A"}),
            "/$defs/A: ",
        ),
        (
            json!({"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"uniqueItems": true}}}),
            "/$defs/A/uniqueItems: ",
        ),
        (
            json!({"oneOf": [{"type": "string"}, {"type": "string", "pattern": "a"}]}),
            "/oneOf: ",
        ),
        (json!({"type": "strin"}), "/type: "),
        (json!({"pattern": "a(?=b)"}), "/pattern: "),
        (
            json!({"patternProperties": {"(a": {}}}),
            "/patternProperties/(a: ",
        ),
        (json!({"format": "regex"}), "/format: "),
        (json!({"minLength": -1}), "/minLength: "),
        (json!({"multipleOf": 0.07}), "/multipleOf: "),
        (json!({"enum": []}), "/enum: "),
        (json!(false), "/: "),
        (json!({"properties": {"a": 1}}), "/properties/a: "),
    ] {
        let text = refusal(Form::JsonSchema, &schema.to_string());
        assert!(text.starts_with(place), "{schema}: {text}");
    }
}

#[test]
fn logic_becomes_unions_and_intersections() {
    // Discriminated unions, as pydantic writes them.
    check_schema(
        json!({"oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}], "discriminator": {"propertyName": "kind"},
            "$defs": {"Cat": {"type": "object", "properties": {"kind": {"const": "cat"}, "lives": {"type": "integer"}},
                "required": ["kind", "lives"], "additionalProperties": false},
              "Dog": {"type": "object", "properties": {"kind": {"const": "dog"}}, "required": ["kind"],
                "additionalProperties": false}}}),
        &[r#"{"kind":"cat","lives":9}"#, r#"{"kind":"dog"}"#],
        &[r#"{"kind":"cat"}"#, r#"{"kind":"dog","lives":9}"#],
    );
    // 500 kinds without a type of their own.
    let kinds: Vec<Json> = (0..500)
        .map(|i| json!({"properties": {"k": {"const": i}}, "required": ["k"], "additionalProperties": false}))
        .collect();
    check_schema(
        json!({"type": "object", "oneOf": kinds}),
        &[r#"{"k":7}"#],
        &["7", r#"{"k":500}"#],
    );
    let text = refusal(Form::JsonSchema, &json!({ "oneOf": kinds }).to_string());
    assert!(text.contains("too many branches"), "{text}");
    // Exactly one of two keys.
    check_schema(
        json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "additionalProperties": false, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
        &[r#"{"a":1}"#, r#"{"b":1}"#],
        &["{}", r#"{"a":1,"b":1}"#],
    );
    check_schema(
        json!({"type": "string", "not": {"enum": ["ab", "a"]}}),
        &[r#""""#, r#""b""#, r#""abc""#, r#""ac""#],
        &[r#""ab""#, r#""a""#],
    );
    check_schema(
        json!({"type": "integer", "not": {"const": 5}, "minimum": 4, "maximum": 6}),
        &["4", "6"],
        &["5", "7"],
    );
    check_schema(
        json!({"type": "object", "properties": {"k": {"enum": ["x", "y"]}, "n": {"type": "integer"}}, "required": ["k"],
            "additionalProperties": false,
            "if": {"properties": {"k": {"const": "x"}}}, "then": {"required": ["n"]}, "else": {"properties": {"n": false}}}),
        &[r#"{"k":"x","n":1}"#, r#"{"k":"y"}"#],
        &[r#"{"k":"x"}"#, r#"{"k":"y","n":1}"#],
    );
    check_schema(
        json!({"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}}, "additionalProperties": false,
            "dependentRequired": {"a": ["b"]}}),
        &["{}", r#"{"b":2}"#, r#"{"a":1,"b":2}"#],
        &[r#"{"a":1}"#],
    );
    check_schema(
        json!({"oneOf": [{"const": 1, "title": "one"}, {"const": 2}, {"const": 1}]}),
        &["2"],
        &["1", "3"],
    );
    check_schema(
        json!({"type": "string", "nullable": true}),
        &["null", r#""a""#],
        &["1"],
    );
}

#[test]
fn objects_of_patterns_and_names() {
    check_schema(
        json!({"type": "object", "propertyNames": {"enum": ["a", "b"]}, "additionalProperties": {"type": "integer"}}),
        &["{}", r#"{"a":1}"#, r#"{"a":1,"b":2}"#],
        &[r#"{"c":1}"#, r#"{"a":"x"}"#],
    );
    check_schema(
        json!({"type": "object", "propertyNames": {"$ref": "#/$defs/N"}, "$defs": {"N": {"type": "string", "enum": ["a"]}}}),
        &["{}", r#"{"a":1}"#],
        &[r#"{"c":1}"#],
    );
    // No comma when no name is left.
    check_schema(
        json!({"type": "object", "properties": {"a": {}, "b": {}}, "patternProperties": {"^[ab]$": {"type": "null"}},
            "additionalProperties": false}),
        &["{}", r#"{"a":null,"b":null}"#],
        &[r#"{"a":1}"#],
    );
    check_schema(
        json!({"type": "object", "propertyNames": {"pattern": "^x_"}}),
        &[r#"{"x_1":1}"#],
        &[r#"{"y":1}"#],
    );
    check_schema(
        json!({"type": "object", "patternProperties": {"^a[0-9]$": {"type": "integer"}}, "additionalProperties": false}),
        &[r#"{"a1":1}"#],
        &[r#"{"a11":1}"#, r#"{"a1":"x"}"#],
    );
    check_schema(
        json!({"type": "object", "properties": {"a": {"const": 1}}, "allOf": [{"properties": {"b": {"const": 2}}}],
            "unevaluatedProperties": false}),
        &[r#"{"a":1,"b":2}"#, "{}"],
        &[r#"{"c":1}"#],
    );
}

#[test]
fn strings_and_numbers() {
    check_schema(
        json!({"type": "string", "pattern": "a.c"}),
        &[r#""xabcx""#],
        &[r#""a\nc""#, r#""ac""#],
    );
    check_schema(
        json!({"type": "string", "pattern": "^(a|b$)"}),
        &[r#""ax""#, r#""b""#],
        &[r#""bx""#],
    );
    check_schema(
        json!({"type": "string", "pattern": "^\\w+\\D$"}),
        &[r#""ab-""#],
        &[r#""ab1""#, r#""é-""#],
    );
    check_schema(
        json!({"type": "string", "format": "date"}),
        &[r#""2024-02-29""#],
        &[r#""2023-02-29""#, r#""x""#],
    );
    check_schema(
        json!({"type": "string", "format": "email", "maxLength": 8}),
        &[r#""a@b.cd""#],
        &[r#""aaaaaaa@b.cd""#, r#""a""#],
    );
    check_schema(
        json!({"type": "integer", "minimum": 1, "exclusiveMinimum": true, "maximum": 9223372036854775807u64}),
        &["2", "900000000000000000"],
        &["1", "9223372036854775808"],
    );
    check_schema(
        json!({"type": "number", "multipleOf": 0.01, "minimum": 0}),
        &["1.25"],
        &["1.255", "-1.25"],
    );
    check_schema(
        json!({"type": "string", "enum": ["a", "b", 1]}),
        &[r#""a""#],
        &["1", r#""c""#],
    );
}

#[test]
fn deep_and_recursive_schemas() {
    check_schema(
        json!({"$ref": "#/$defs/Node", "$defs": {"Node": {"type": "object", "properties": {"v": {"type": "integer"},
            "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}}, "required": ["v", "next"],
            "additionalProperties": false}}}),
        &[
            r#"{"v":1,"next":null}"#,
            r#"{"v":1,"next":{"v":2,"next":null}}"#,
        ],
        &[r#"{"v":1}"#],
    );
    let chain = |n: usize| {
        let mut definitions = serde_json::Map::new();
        for i in 0..n {
            definitions.insert(
                format!("a{i}"),
                json!({"$ref": format!("#/$defs/a{}", i + 1)}),
            );
        }
        definitions.insert(format!("a{n}"), json!({"type": "null"}));
        json!({"$ref": "#/$defs/a0", "$defs": definitions}).to_string()
    };
    check(Form::JsonSchema, &chain(60), &["null"], &["1"]);
    assert!(refusal(Form::JsonSchema, &chain(10_000)).contains("nested"));
    let mut schema = json!({"type": "integer"});
    let mut answer = "1".to_string();
    for _ in 0..40 {
        schema = json!({"type": "array", "items": schema});
        answer = format!("[{answer}]");
    }
    check_schema(schema.clone(), &[&answer], &["[[1]]", "1"]);
    for _ in 0..1000 {
        schema = json!({"type": "array", "items": schema});
    }
    let text = refusal(Form::JsonSchema, &schema.to_string());
    assert!(text.contains("nested"), "{text}");
    std::mem::forget(schema);
}

#[test]
fn expressions_and_choices() {
    check(
        Form::Regex,
        r"^[ab]+\d{2}$",
        &["ab12"],
        &["12", "ab1", "ab123"],
    );
    check(Form::Regex, r"a/b|\/", &["a/b", "/"], &["a"]);
    check(Form::Regex, r"(?P<stop>x)y", &["xy"], &["x"]);
    check(Form::Regex, r"[[a&&b]+", &["[a&"], &["c"]);
    check(
        Form::Choice,
        r#"["yes","no","yes","a\"b\\\n"]"#,
        &["yes", "no", "a\"b\\\n"],
        &["maybe", "ye"],
    );
    for (form, text, place) in [
        (Form::Regex, r"ab(?!c)", "character 3"),
        (Form::Regex, r"(a)\1", "character 4"),
        (Form::Regex, "[^\\s\\S]", "matches nothing"),
        (Form::Choice, "[]", "0 choices"),
        (Form::Choice, r#"["a",1]"#, "array of strings"),
        (Form::Choice, r#"["a",""]"#, "/1"),
        (Form::JsonSchema, "{\"a\":1,\"a\":2}", "JSON"),
    ] {
        let error = refusal(form, text);
        assert!(error.contains(place), "{text}: {error}");
    }
    assert!(normal(Form::Regex, b"a\xff", Whitespace::Compact, None)
        .unwrap_err()
        .text
        .contains("byte 1"));
}

#[test]
fn a_users_lark() {
    let text = "start: \"a\" obj // comment\n# another\n\nobj: %json {\"type\": \"object\", \"title\": \"T\", \"properties\": {\"x\": {\"const\": 1}}, \"required\": [\"x\"], \"additionalProperties\": false}\n";
    check(Form::Lark, text, &[r#"a{"x":1}"#], &[r#"a{"x":2}"#]);
    assert!(!of(Form::Lark, text).contains("comment"));
    for (text, why) in [
        ("start: A\n%import python.NAME -> A\n", "line 2, column 1"),
        ("start: @other\n", "line 1, column 8"),
        ("start: %json {\"uniqueItems\": true}\n", "/uniqueItems"),
        (
            "start: %json {\"x-guidance\": {\"lenient\": true}}\n",
            "x-guidance",
        ),
        (
            "%llguidance {\"allow_invalid_utf8\": true}\nstart: \"a\"\n",
            "allow_invalid_utf8",
        ),
        ("start: \"a\n", "line 1, column 8"),
    ] {
        let error = refusal(Form::Lark, text);
        assert!(error.contains(why), "{text}: {error}");
    }
}

fn thinks(then: &'static str, budget: Option<u32>) -> Option<Reasoning<'static>> {
    Some(Reasoning {
        begins: "may",
        open: "<think>",
        end: "</think>",
        force: "</think>",
        then,
        budget,
    })
}

#[test]
fn reasoning_comes_first() {
    let line = |budget: &str| {
        format!(
            "%reasoning {{\"begins\":\"may\",\"open\":\"<think>\",\"end\":\"</think>\",\
             \"force\":\"</think>\",\"budget\":{budget}}}\n"
        )
    };
    let of = |form, text: &[u8], r| normal(form, text, Whitespace::Compact, r).unwrap();
    let grammar = of(Form::JsonObject, b"", thinks("", None));
    let rest = grammar.strip_prefix(&line("null")).unwrap();
    assert!(accepts(rest, "{}") && accepts(rest, "\n\n{}") && !accepts(rest, "a{}"));
    let users = of(Form::Lark, b"start: q_1\nq_1: \"x\"\n", thinks("", Some(7)));
    let rest = users.strip_prefix(&line("7")).unwrap();
    assert!(accepts(rest, "x") && accepts(rest, "\nx") && !accepts(rest, "xx"));
    assert_eq!(of(Form::Free, b"", thinks("", Some(0))), line("0"));
    assert!(normal(Form::Free, b"", Whitespace::Compact, None).is_err());
    let then = of(Form::Choice, b"[\"a\"]", thinks("<|start|>as<|x|>", None));
    assert!(then.ends_with("start: <|start|> \"as\" <|x|> (\"a\")\n"), "{then}");
}

#[test]
fn required_tools() {
    let calls = json!({"calls": [
        {"name": "get", "begin": "<tool_call>\n{\"name\": \"get\", \"arguments\": ", "end": "}\n</tool_call>",
         "schema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": false}},
        {"name": "get_all", "begin": "<tool_call>\n{\"name\": \"get_all\", \"arguments\": ", "end": "}\n</tool_call>"}],
        "between": "\n"});
    let one = "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"a\":1}}\n</tool_call>";
    let all = "<tool_call>\n{\"name\": \"get_all\", \"arguments\": {}}\n</tool_call>";
    check(
        Form::Tools,
        &calls.to_string(),
        &[one, all, &format!("{one}\n{all}\n{one}")],
        &["", &format!("{one}{all}"), &format!("x{one}")],
    );
    let mut single = calls.clone();
    single["at_most"] = json!(1);
    check(
        Form::Tools,
        &single.to_string(),
        &[one, all],
        &[&format!("{one}\n{all}")],
    );
    let bad = json!({"calls": [{"name": "a", "begin": "x"}], "specials": {"x": -1}});
    assert!(refusal(Form::Tools, &bad.to_string()).starts_with("/specials: "));
    let bad = json!({"calls": [{"name": "a", "begin": "x", "style": "y"}]});
    assert!(refusal(Form::Tools, &bad.to_string()).starts_with("/calls/0/style: "));
    let bad = json!({"calls": [{"name": "a\u{1}", "begin": "x"}]});
    assert!(refusal(Form::Tools, &bad.to_string()).starts_with("/calls/0/name: "));
    let bad = json!({"calls": [{"name": "a", "begin": "x", "schema": {"type": "array", "uniqueItems": true}}]});
    assert!(refusal(Form::Tools, &bad.to_string()).starts_with("/calls/0/schema/uniqueItems: "));
}

const JSON_GBNF: &str = r#"
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws
string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
"#;

#[test]
fn grammars_of_llama_cpp() {
    check(
        Form::Gbnf,
        JSON_GBNF,
        &[
            "{}",
            r#"{"a": [1, -2.5e3, true, {"b":null}],"c":"x\\ny"}"#,
            "{\n\t\"a\":1}\n",
        ],
        &["", "[1]", r#"{"a": 01}"#, r#"{"a":1,}"#, "{\"a\n\":1}"],
    );
    check(
        Form::Gbnf,
        "root ::= [a-c]+ \"x\"? | \"é\"{2,3} .",
        &["abc", "ax", "ééz", "éééz"],
        &["", "x", "éz"],
    );
    check(
        Form::Gbnf,
        "root ::= item* # list\nitem ::= \"- \" [^\\n]+ \"\\n\"\n",
        &["", "- a\n- b\n"],
        &["- \n", "- a"],
    );
    // Longest matches of these lexemes would lose answers: "a" or "ab", then "bc" or "c".
    check(
        Form::Gbnf,
        "root ::= \"(\" root \")\" | (\"a\" | \"ab\") (\"bc\" | \"c\")",
        &["abc", "(abbc)", "((ac))"],
        &["ab", "(abc"],
    );
    check(
        Form::Gbnf,
        "root ::= root \"+\" [0-9]+ | [0-9]+",
        &["1", "1+23+4"],
        &["1+", "+1"],
    );
    check(
        Form::Gbnf,
        "root ::= \"a\" root [a-z]* \"b\" | \"c\"",
        &["c", "acb", "acbbb", "aacxbzb"],
        &["ac", "acba"],
    );
    check(
        Form::Gbnf,
        "root ::= \"a\"{0} \"b\" root{0,1}",
        &["b", "bb"],
        &["ab", ""],
    );
    // Exponentially many empty parts.
    let mut text = "root ::= \"(\" root? \")\" r0\n".to_string();
    for i in 0..40 {
        text.push_str(&format!("r{i} ::= r{} r{}\n", i + 1, i + 1));
    }
    text.push_str("r40 ::= \"\"\n");
    check(Form::Gbnf, &text, &["(())"], &["("]);
    for (text, place) in [
        ("root ::= \"a", "line 1, column 10"),
        ("root ::= a\nb ::= \"x\"", "line 1, column 10"),
        ("x ::= \"a\"", "root"),
        ("root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1"),
        ("root ::= [b-a]", "line 1, column 11"),
        ("root ::= (\"a\"\n", "line 2, column 1"),
        ("root ::= \"a\"{3,2}", "line 1, column 13"),
        ("root ::= \"\\q\"", "line 1, column 11"),
        ("root = \"a\"", "line 1, column 6"),
    ] {
        let error = refusal(Form::Gbnf, text);
        assert!(error.contains(place), "{text}: {error}");
    }
}

#[test]
fn structural_tags() {
    let old = json!({"structures": [
        {"begin": "<function=get>", "schema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"],
            "additionalProperties": false}, "end": "</function>"},
        {"begin": "<function=put>", "schema": {"type": "boolean"}, "end": "</function>"}], "triggers": ["<function="]});
    check(
        Form::StructuralTag,
        &old.to_string(),
        &[
            "",
            "free <text",
            "hi <function=get>{\"a\":1}</function> and <function=put>true</function>!",
        ],
        &[
            "<function=",
            "<function=x>",
            "<function=get>{}</function>",
            "<function=put>true",
        ],
    );
    let new = json!({"type": "structural_tag", "format": {"type": "sequence", "elements": [
        {"type": "tag", "begin": "<think>", "content": {"type": "any_text"}, "end": "</think>"},
        {"type": "or", "elements": [{"type": "const_string", "value": "yes"}, {"type": "regex", "pattern": "[0-9]+"}]},
        {"type": "triggered_tags", "triggers": ["<c"], "at_least_one": true, "stop_after_first": true, "tags": [
            {"type": "tag", "begin": "<c>", "content": {"type": "json_schema", "json_schema": {"const": 1}}, "end": "</c>"}]}]}});
    check(
        Form::StructuralTag,
        &new.to_string(),
        &[
            "<think>a<b</thin</think>yes<c>1</c>",
            "<think></think>12 text <c>1</c>",
        ],
        &[
            "yes<c>1</c>",
            "<think></think>yes",
            "<think></think>yes<c>1</c>x",
            "<think></think>no<c>1</c>",
        ],
    );
    let separated = json!({"type": "structural_tag", "format": {"type": "tags_with_separator", "separator": ",", "at_least_one": true,
        "tags": [{"type": "tag", "begin": "<", "content": {"type": "grammar", "grammar": "root ::= [a-z]+"}, "end": ">"}]}});
    check(
        Form::StructuralTag,
        &separated.to_string(),
        &["<a>", "<a>,<b>"],
        &["", "<a><b>", "<a>,"],
    );
    let qwen = json!({"type": "structural_tag", "format": {"type": "tag", "begin": "<f>", "end": "</f>", "content":
        {"type": "qwen_xml_parameter", "json_schema": {"type": "object", "properties": {"s": {"type": "string"}, "n": {"type": "integer"}},
            "required": ["s"]}}}});
    check(
        Form::StructuralTag,
        &qwen.to_string(),
        &[
            "<f><parameter=s>\na\"b\n</parameter>\n<parameter=n>\n1\n</parameter>\n</f>",
            "<f><parameter=s>\n\n</parameter></f>",
        ],
        &[
            "<f></f>",
            "<f><parameter=s>\na</f>",
            "<f><parameter=s>\na\n</parameter><parameter=n>\nx\n</parameter></f>",
        ],
    );
    for (tag, place) in [
        (
            json!({"type": "structural_tag", "format": {"type": "dance"}}),
            "/format: the format type \"dance\" is not supported",
        ),
        (
            json!({"structures": [{"begin": "a", "end": "b"}], "triggers": ["x"]}),
            "/triggers: ",
        ),
        (
            json!({"structures": [{"begin": "a", "end": "b", "schema": {"uniqueItems": true}}], "triggers": ["a"]}),
            "/uniqueItems: ",
        ),
        (json!({}), "/: "),
    ] {
        let error = refusal(Form::StructuralTag, &tag.to_string());
        assert!(error.contains(place), "{tag}: {error}");
    }
}

#[test]
fn the_deepest_texts_fit_a_small_stack() {
    let mut definitions = serde_json::Map::new();
    for i in 0..300 {
        let inner = json!({"properties": {"a": {"$ref": format!("#/$defs/a{}", i + 1)}}});
        definitions.insert(
            format!("a{i}"),
            json!({ "allOf": [{ "if": true, "then": { "anyOf": [inner, { "const": 1 }] } }] }),
        );
    }
    let schema = json!({"$ref": "#/$defs/a0", "$defs": definitions}).to_string();
    let nots = format!(
        "{}{{\"oneOf\":[{{}},{{\"type\":\"null\"}}]}}{}",
        "{\"not\":".repeat(60),
        "}".repeat(60)
    );
    let nested = format!("root ::= {}\"a\"{} root?", "(".repeat(99), ")*".repeat(99));
    let expression = format!("{}a{}", "(".repeat(99), "b?)".repeat(99));
    let tags = format!(
        "{{\"format\":{}{{\"type\":\"any_text\"}}{}}}",
        r#"{"type":"sequence","elements":["#.repeat(24),
        "]}".repeat(24)
    );
    let texts = [
        (Form::JsonSchema, schema),
        (Form::JsonSchema, nots),
        (Form::Gbnf, nested),
        (Form::Regex, expression),
        (Form::StructuralTag, tags),
    ];
    let thread = std::thread::Builder::new()
        .stack_size(SMALL_STACK_BYTES)
        .spawn(move || {
            for (form, text) in texts {
                let _ = normal(form, text.as_bytes(), Whitespace::Compact, None);
            }
        });
    thread.unwrap().join().unwrap();
}

#[test]
fn long_lists_of_schemas_take_bounded_time() {
    let all = |n: usize| {
        let part = |i: usize| json!({"type": "object", "properties": {format!("a{i}"): {"type": "integer"}}});
        json!({"allOf": (0..n).map(part).collect::<Vec<_>>()}).to_string()
    };
    let since = std::time::Instant::now();
    of(Form::JsonSchema, &all(15_000));
    // Comparing each two of them takes a minute.
    assert!(since.elapsed() < std::time::Duration::from_secs(20));
    let names = |n: usize| {
        let named: serde_json::Map<String, Json> =
            (0..n).map(|i| (format!("^a{i}_"), json!({"type": "integer"}))).collect();
        json!({"type": "object", "patternProperties": named}).to_string()
    };
    of(Form::JsonSchema, &names(100));
    let why = refusal(Form::JsonSchema, &names(101));
    assert!(why.contains("/patternProperties/^a100_: the schema has more than 100 patterns"), "{why}");
}

/// A tool whose arguments are an integer, an optional string and an optional flag.
fn tool(style: &str, begin: &str, end: &str) -> Json {
    json!({"name": "get", "begin": begin, "end": end, "style": style, "schema": {"type": "object",
        "properties": {"n": {"type": "integer"}, "s": {"type": ["string", "null"]}, "b": {"type": "boolean"}},
        "required": ["n"]}})
}

#[test]
fn calls_outside_json() {
    let python = json!({"calls": [tool("python", "get(", ")")], "before": "[", "between": ", ", "after": "]"});
    check(
        Form::Tools,
        &python.to_string(),
        &[
            "[get(n=1)]",
            "[get(n=1, s=\"a)\"), get(n=-2, b=True)]",
            "[get(n=1, s=null, b=False)]",
        ],
        &["[get()]", "[get(s=\"a\")]", "[get(n=1,b=True)]", "[get(n=1, b=true)]", "[get(n=1, )]"],
    );
    let qwen = json!({"calls": [tool("qwen", "<f=get>\n", "</f>")]});
    check(
        Form::Tools,
        &qwen.to_string(),
        &[
            "<f=get>\n<parameter=n>\n1\n</parameter>\n</f>",
            "<f=get>\n<parameter=n>\n1\n</parameter>\n<parameter=s>\na\nb</f>\n</parameter>\n</f>",
        ],
        &[
            "<f=get>\n</f>",
            "<f=get>\n<parameter=n>\n1\n</parameter>\n<parameter=s>\na</parameter>b\n</parameter>\n</f>",
        ],
    );
    let glm = json!({"calls": [tool("glm", "<t>get\n", "</t>")]});
    check(
        Form::Tools,
        &glm.to_string(),
        &["<t>get\n<arg_key>n</arg_key>\n<arg_value>1</arg_value>\n<arg_key>s</arg_key>\n<arg_value>null x</arg_value>\n</t>"],
        &["<t>get\n<arg_key>n</arg_key>\n<arg_value>x</arg_value>\n</t>"],
    );
    let numbered = json!({"calls": [{"name": "f", "begin": "f:", "numbered": "|", "end": ";"}]});
    check(Form::Tools, &numbered.to_string(), &["f:0|{};", "f:12|{};f:3|{};"], &["f:|{};", "f:12345|{};"]);
    let missing = json!({"calls": [{"name": "f", "begin": "f(", "style": "python", "schema": {"required": ["x"]}}]});
    assert!(refusal(Form::Tools, &missing.to_string()).starts_with("/calls/0/schema/required: "));
    let special = json!({"calls": [{"name": "f", "begin": "<t>f", "end": "</t>"}], "specials": {"<t>": 7, "</t>": 8}});
    let text = of(Form::Tools, &special.to_string());
    assert!(text.contains("<[7]> \"f\" q_1 <[8]>"), "{text}");
}

#[test]
fn calls_in_free_text() {
    let calls = json!([
        {"name": "get", "begin": "<t>get ", "end": "</t>", "schema": {"type": "object", "properties": {"a": {"type": "integer"}},
         "required": ["a"], "additionalProperties": false}},
        {"name": "any", "begin": "<t>any ", "end": "</t>", "loose": true}]);
    let free = json!({"calls": calls, "trigger": "<t>"});
    let (get, any) = ("<t>get {\"a\":1}</t>", "<t>any {\"b\":[]}</t>");
    check(
        Form::Tools,
        &free.to_string(),
        &["", "text {\"a\"", get, &format!("So: {get}\n{any}{get} <t"), &format!("a < b {any} c")],
        &["<t>", "<t>get {\"a\":\"x\"}</t>", "<t>no {}</t>", &format!("{get} <t>x")],
    );
    let mut one = free.clone();
    one["at_most"] = json!(1);
    check(Form::Tools, &one.to_string(), &["x", &format!("x {get} y")], &[&format!("{get}{any}")]);
    let block = json!({"calls": [{"name": "f", "begin": "[f]", "end": "!"}], "before": "<b>", "between": ",", "after": "</b>",
                       "trigger": "<b>"});
    check(
        Form::Tools,
        &block.to_string(),
        &["x", "x <b>[f]{}!,[f]{}!</b> y", "[f]"],
        &["<b>", "<b></b>", "<b>[f]{}!", "<b>[f]{}!</b><b>[f]{}!</b>"],
    );
    let bare = json!({"calls": [{"name": "f", "begin": "{f", "end": "}"}], "between": "; ", "trigger": "", "first": "{",
                      "lead": "<p>"});
    check(
        Form::Tools,
        &bare.to_string(),
        &["", "x {", "{f{}}; {f{}}", "<q>"],
        &["{", "{f{}}x", " {g", "<p>x", "\n<p>"],
    );
    let loose = json!({"calls": [{"name": "f", "begin": "f(", "end": ")", "style": "python", "loose": true},
                                 {"name": "g", "begin": "fg(", "end": ")", "style": "python"}], "trigger": "", "first": "f"});
    check(Form::Tools, &loose.to_string(), &["f()", "f(a=1, b={\"x\":[true]})", "fg()", "x"], &["fg(a=1)", "f(", "f(1)"]);
    let tagged = json!({"calls": [{"name": "f", "begin": "<t>f", "end": "</t>", "style": "glm", "loose": true}], "trigger": "<t>"});
    check(Form::Tools, &tagged.to_string(), &["<t>fanything</t>"], &["<t>f", "<t>g</t>"]);
}
