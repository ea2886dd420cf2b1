"""anthropic-python over Messages: chat, streams, structured output, tools, thinking."""

import anthropic
from cases import LIMIT, MODEL, QUESTION, SCHEMA, SERVER, WEATHER, Person, case, check_arguments, expect, run

NAME = "anthropic-python"
client = anthropic.Anthropic(base_url=SERVER, api_key="none", max_retries=0)
ask = {"model": MODEL, "max_tokens": LIMIT, "messages": [{"role": "user", "content": QUESTION}]}
FORMAT = {"type": "json_schema", "schema": SCHEMA}


@case(NAME, "chat")
def chat():
    reply = client.messages.create(**ask, system="Be brief.")
    assert reply.content[0].text and reply.stop_reason in ("end_turn", "max_tokens")
    assert client.messages.count_tokens(model=MODEL, messages=ask["messages"]).input_tokens > 0


@case(NAME, "stream")
def stream():
    with client.messages.stream(**ask, extra_body={"temperature": 0}) as events:
        text = "".join(events.text_stream)
    assert text == client.messages.create(**ask, extra_body={"temperature": 0}).content[0].text


@case(NAME, "errors")
def errors():
    expect(anthropic.NotFoundError, lambda: client.messages.create(**{**ask, "model": "x"}))
    expect(anthropic.BadRequestError, lambda: client.messages.create(**ask, extra_body={"temperature": 9}), lambda e: "temperature" in str(e))


@case(NAME, "JSON schema")
def json_schema():
    reply = client.messages.parse(**ask, output_format=Person)
    assert isinstance(reply.parsed_output, Person) and reply.stop_reason == "end_turn"
    for fields in ({"output_config": {"format": FORMAT}}, {"extra_body": {"output_format": FORMAT}}):
        Person.model_validate_json(client.messages.create(**ask, **fields).content[0].text)


@case(NAME, "JSON schema, stream")
def json_schema_stream():
    with client.messages.stream(**ask, output_format=Person) as events:
        assert isinstance(events.get_final_message().parsed_output, Person)


TOOL = {"name": "weather", "description": "The weather.", "input_schema": WEATHER}
TOOLS = {"tools": [TOOL], "tool_choice": {"type": "any"}, "extra_body": {"temperature": 0}}


@case(NAME, "tools")
def tools():
    reply = client.messages.create(**ask, **TOOLS)
    call = reply.content[0]
    assert reply.stop_reason == "tool_use" and call.type == "tool_use" and call.id
    check_arguments(call.name, call.input)
    named = client.messages.create(**ask, **{**TOOLS, "tool_choice": {"type": "tool", "name": "weather"}})
    check_arguments(named.content[0].name, named.content[0].input)
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny", "is_error": False}
    turns = [*ask["messages"], {"role": "assistant", "content": reply.content}, {"role": "user", "content": [result]}]
    assert client.messages.create(**{**ask, "messages": turns, "max_tokens": 16}, tools=[TOOL]).content is not None


@case(NAME, "tools, strict")
def strict_tools():
    call = client.messages.create(**ask, **{**TOOLS, "tools": [{**TOOL, "strict": True}]}).content[0]
    check_arguments(call.name, call.input)


@case(NAME, "tools, stream")
def tools_stream():
    whole = client.messages.create(**ask, **TOOLS)
    with client.messages.stream(**ask, **TOOLS) as events:
        parts = [e.partial_json for e in events if e.type == "input_json"]
        final = events.get_final_message()
    assert len(parts) > 1 and final.stop_reason == "tool_use"
    assert (final.content[0].name, final.content[0].input) == (whole.content[0].name, whole.content[0].input)


# The template opens the thinking. The demo model does not end it.
THINK = {**ask, "max_tokens": 1100, "thinking": {"type": "enabled", "budget_tokens": 1024}, "extra_body": {"temperature": 0}}


@case(NAME, "thinking")
def thinking():
    block = client.messages.create(**THINK).content[0]
    assert block.type == "thinking" and block.thinking and block.signature
    turns = [*ask["messages"], {"role": "assistant", "content": [block, {"type": "text", "text": "So."}]}, *ask["messages"]]
    assert client.messages.create(**{**ask, "messages": turns, "max_tokens": 16}).content is not None


@case(NAME, "thinking, stream")
def thinking_stream():
    with client.messages.stream(**THINK) as events:
        text = "".join(e.thinking for e in events if e.type == "thinking")
        block = events.get_final_message().content[0]
    assert text == block.thinking == client.messages.create(**THINK).content[0].thinking and block.signature


run("anthropic")
