"""Instructor over openai-python, in its modes for JSON and for tools."""

import instructor
import openai
from cases import END_OBJECT, LIMIT, MODEL, QUESTION, SCHEMA, URL, Anything, Person, case, run
from json import dumps

NAME = "Instructor"
MODES = instructor.Mode


def ask(mode, kind=Person, **fields):
    client = instructor.from_openai(openai.OpenAI(base_url=URL, api_key="none", max_retries=0), mode=mode)
    reply = client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": QUESTION}], max_tokens=LIMIT, max_retries=1,
                                           response_model=kind, **fields)
    return reply


@case(NAME, "JSON schema")
def json_schema():
    assert isinstance(ask(MODES.JSON_SCHEMA), Person)


@case(NAME, "JSON schema, stream")
def json_schema_stream():
    pieces = list(ask(MODES.JSON_SCHEMA, instructor.Partial[Person], stream=True))
    Person.model_validate(pieces[-1].model_dump())


@case(NAME, "JSON mode")
def json_mode():
    assert isinstance(ask(MODES.JSON, Anything, logit_bias=END_OBJECT), Anything)


@case(NAME, "prompted")
def markdown():
    # What a larger model would do by itself.
    grammar = 'start: "```json\\n" object "\\n```"\nobject: %json ' + dumps(SCHEMA)
    assert isinstance(ask(MODES.MD_JSON, extra_body={"structured_outputs": {"grammar": grammar}}), Person)


@case(NAME, "tools")
def tools():
    assert isinstance(ask(MODES.TOOLS), Person)


@case(NAME, "tools, strict")
def strict_tools():
    assert isinstance(ask(MODES.TOOLS_STRICT), Person)


@case(NAME, "tools, stream")
def tools_stream():
    pieces = list(ask(MODES.TOOLS, instructor.Partial[Person], stream=True))
    Person.model_validate(pieces[-1].model_dump())


run("instructor")
