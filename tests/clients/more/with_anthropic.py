"""anthropic-python over Messages: chat, streams, structured output, tools."""

import anthropic
from cases import LIMIT, MODEL, QUESTION, SCHEMA, SERVER, WEATHER, Person, case, expect, run

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


@case(NAME, "tools", unsupported="tools in Messages")
def tools():
    tool = {"name": "weather", "description": "The weather.", "input_schema": WEATHER}
    client.messages.create(**ask, tools=[tool], tool_choice={"type": "any"})


run("anthropic")
