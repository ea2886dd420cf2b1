"""LiteLLM: its providers hosted_vllm, openai and anthropic."""

import litellm
from cases import (END_OBJECT, LIMIT, MODEL, QUESTION, SERVER, TOOL, URL, Anything, Person, case, check_arguments, expect,
                   run)
from json import loads

# hosted_vllm removes additionalProperties from the schema: without another bound the demo model writes members without end.
BOUNDED = {"type": "function", "function": {**TOOL["function"], "parameters": {**TOOL["function"]["parameters"], "maxProperties": 1}}}
NAME, MESSAGES = "litellm", "litellm, Messages"
PROVIDERS = "hosted_vllm", "openai"


def ask(provider="hosted_vllm", **fields):
    return litellm.completion(**{"model": f"{provider}/{MODEL}", "api_base": URL, "api_key": "none", "temperature": 0, "max_tokens": LIMIT,
                                 "messages": [{"role": "user", "content": QUESTION}], "num_retries": 0, **fields})


def message(**more):
    return ask("anthropic", api_base=SERVER, **more).choices[0].message


def text_of(pieces):
    return "".join(c.delta.content or "" for p in pieces for c in p.choices)


@case(NAME, "chat")
def chat():
    for provider in PROVIDERS:
        whole = ask(provider, max_tokens=24)
        assert whole.choices[0].message.content and whole.usage.completion_tokens <= 24
    assert ask(top_k=1, min_p=0.1, repetition_penalty=1.1).choices[0].message.content
    text = litellm.text_completion(model="text-completion-openai/demo", prompt="Once upon a time", api_base=URL, api_key="none", max_tokens=8)
    assert text.choices[0].text


@case(NAME, "stream")
def stream():
    for provider in PROVIDERS:
        whole = ask(provider)
        pieces = list(ask(provider, stream=True, stream_options={"include_usage": True}))
        assert text_of(pieces) == whole.choices[0].message.content
        assert [p.usage.completion_tokens for p in pieces if getattr(p, "usage", None)] == [whole.usage.completion_tokens]


@case(NAME, "errors")
def errors():
    expect(litellm.BadRequestError, lambda: ask(temperature=9))
    expect(litellm.ContextWindowExceededError, lambda: ask(messages=[{"role": "user", "content": "word " * 5000}]))
    expect(litellm.NotFoundError, lambda: ask(model="hosted_vllm/x"))


@case(NAME, "JSON schema")
def json_schema():
    for provider in PROVIDERS:
        Person.model_validate_json(ask(provider, response_format=Person).choices[0].message.content)


@case(NAME, "JSON schema, stream")
def json_schema_stream():
    for provider in PROVIDERS:
        Person.model_validate_json(text_of(ask(provider, response_format=Person, stream=True)))


@case(NAME, "JSON mode")
def json_mode():
    for provider in PROVIDERS:
        reply = ask(provider, response_format={"type": "json_object"}, logit_bias=END_OBJECT)
        Anything.model_validate_json(reply.choices[0].message.content)


@case(NAME, "tools")
def tools():
    for provider in PROVIDERS:
        call = ask(provider, tools=[BOUNDED], tool_choice="required").choices[0].message.tool_calls[0].function
        check_arguments(call.name, loads(call.arguments))
        assert ask(provider, tools=[TOOL], max_tokens=24).choices[0].message is not None


@case(NAME, "tools, stream")
def tools_stream():
    whole = litellm.stream_chunk_builder(list(ask(tools=[BOUNDED], tool_choice="required", stream=True)))
    call = whole.choices[0].message.tool_calls[0].function
    check_arguments(call.name, loads(call.arguments))


@case(MESSAGES, "chat")
def messages_chat():
    assert message().content


@case(MESSAGES, "stream")
def messages_stream():
    assert text_of(ask("anthropic", api_base=SERVER, stream=True)) == message().content


@case(MESSAGES, "tools")
def messages_tools():
    call = message(tools=[TOOL], tool_choice="required").tool_calls[0].function
    check_arguments(call.name, loads(call.arguments))


@case(MESSAGES, "tools, stream")
def messages_tools_stream():
    pieces = list(ask("anthropic", api_base=SERVER, tools=[TOOL], tool_choice="required", stream=True))
    call = litellm.stream_chunk_builder(pieces).choices[0].message.tool_calls[0].function
    check_arguments(call.name, loads(call.arguments))


run("litellm")
