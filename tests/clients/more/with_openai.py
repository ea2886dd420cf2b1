"""openai-python: chat, Responses, structured output by parse(), tools."""

import json

import openai
from cases import (END_OBJECT, LIMIT, MODEL, QUESTION, TOOL, URL, Anything, Person, case, check_arguments,
                   expect, run)

NAME, RESPONSES = "openai-python", "openai-python, Responses"
client = openai.OpenAI(base_url=URL, api_key="none", max_retries=0)
ask = {"model": MODEL, "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 24}
long_ask = {**ask, "max_tokens": LIMIT}
respond = {"model": MODEL, "input": QUESTION, "max_output_tokens": LIMIT}


def check_person(choice):
    assert choice.finish_reason == "stop" and isinstance(choice.message.parsed, Person), choice


@case(NAME, "chat")
def chat():
    reply = client.chat.completions.create(**ask)
    assert reply.choices[0].message.content and reply.usage.completion_tokens <= 24


@case(NAME, "stream")
def stream():
    whole = client.chat.completions.create(**ask, temperature=0).choices[0].message.content
    pieces = client.chat.completions.create(**ask, temperature=0, stream=True)
    assert "".join(p.choices[0].delta.content or "" for p in pieces) == whole


@case(NAME, "errors")
def errors():
    expect(openai.NotFoundError, lambda: client.chat.completions.create(**{**ask, "model": "x"}))
    expect(openai.BadRequestError, lambda: client.chat.completions.create(**ask, temperature=9), lambda e: e.param == "temperature")
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "person"}}}
    expect(openai.BadRequestError, lambda: client.chat.completions.create(**ask, response_format=schema), lambda e: e.param.startswith("response_format"))


@case(NAME, "JSON schema")
def parse():
    reply = client.chat.completions.parse(**long_ask, response_format=Person, n=2)
    for choice in reply.choices:
        check_person(choice)


@case(NAME, "JSON schema, stream")
def parse_stream():
    with client.chat.completions.stream(**long_ask, response_format=Person) as events:
        kinds = {event.type for event in events}
        check_person(events.get_final_completion().choices[0])
    assert {"content.delta", "content.done"} <= kinds, kinds


@case(NAME, "JSON mode")
def json_mode():
    reply = client.chat.completions.create(**long_ask, response_format={"type": "json_object"}, logit_bias=END_OBJECT)
    assert isinstance(json.loads(reply.choices[0].message.content), dict)


@case(NAME, "grammar")
def vllm_fields():
    for fields in ({"structured_outputs": {"choice": ["tea", "coffee"]}}, {"guided_choice": ["tea", "coffee"]}):
        reply = client.chat.completions.create(**ask, extra_body=fields)
        assert reply.choices[0].message.content in ("tea", "coffee"), reply
    reply = client.completions.create(model=MODEL, prompt="I am", max_tokens=24, extra_body={"structured_outputs": {"regex": "[0-9]{3}"}})
    assert len(reply.choices[0].text) == 3 and reply.choices[0].text.isdigit()


def tool_choices():
    return "required", {"type": "function", "function": {"name": "weather"}}


@case(NAME, "tools")
def tools():
    for choice in tool_choices():
        reply = client.chat.completions.create(**long_ask, tools=[TOOL], tool_choice=choice).choices[0]
        assert reply.finish_reason == "tool_calls"
        calls = reply.message.tool_calls
        check_arguments(calls[0].function.name, json.loads(calls[0].function.arguments))
        turns = [*ask["messages"], reply.message, {"role": "tool", "tool_call_id": calls[0].id, "content": "sunny"}]
        assert client.chat.completions.create(**{**ask, "messages": turns}, tools=[TOOL]).choices[0].message


@case(NAME, "tools, strict")
def strict_tools():
    class Weather(Person):
        """The weather."""

    tool = openai.pydantic_function_tool(Weather)
    reply = client.chat.completions.parse(**long_ask, tools=[tool], tool_choice="required").choices[0]
    assert isinstance(reply.message.tool_calls[0].function.parsed_arguments, Weather)


@case(NAME, "tools, stream")
def tools_stream():
    with client.chat.completions.stream(**long_ask, tools=[TOOL], tool_choice="required") as events:
        list(events)
        call = events.get_final_completion().choices[0].message.tool_calls[0].function
    check_arguments(call.name, json.loads(call.arguments))


@case(RESPONSES, "chat")
def responses():
    assert client.responses.create(**respond).output_text


@case(RESPONSES, "stream")
def responses_stream():
    with client.responses.stream(**respond, temperature=0) as events:
        text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == client.responses.create(**respond, temperature=0).output_text


@case(RESPONSES, "JSON schema")
def responses_parse():
    assert isinstance(client.responses.parse(**respond, text_format=Person).output_parsed, Person)


@case(RESPONSES, "JSON schema, stream")
def responses_parse_stream():
    with client.responses.stream(**respond, text_format=Person) as events:
        list(events)
        assert isinstance(events.get_final_response().output_parsed, Person)


@case(RESPONSES, "JSON mode")
def responses_json_mode():
    reply = client.responses.create(**respond, text={"format": {"type": "json_object"}}, extra_body={"logit_bias": END_OBJECT})
    Anything.model_validate_json(reply.output_text)


RESPONSE_TOOL = {"type": "function", **TOOL["function"]}


@case(RESPONSES, "tools")
def responses_tools():
    reply = client.responses.create(**respond, tools=[RESPONSE_TOOL], tool_choice="required")
    call = reply.output[0]
    check_arguments(call.name, json.loads(call.arguments))
    results = [{"type": "function_call_output", "call_id": item.call_id, "output": "done"} for item in reply.output]
    assert client.responses.create(**{**respond, "input": results}, previous_response_id=reply.id).output_text


@case(RESPONSES, "tools, stream")
def responses_tools_stream():
    with client.responses.stream(**respond, tools=[RESPONSE_TOOL], tool_choice="required") as events:
        list(events)
        call = events.get_final_response().output[0]
    check_arguments(call.name, json.loads(call.arguments))


run("openai")
