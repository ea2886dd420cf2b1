"""LangChain: langchain-openai over chat, completions and Responses, langchain-anthropic over Messages."""

import openai
from cases import END_OBJECT, LIMIT, MODEL, QUESTION, SERVER, TOOL, URL, Anything, Person, case, check_arguments, expect, run
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_openai import ChatOpenAI, OpenAI

NAME, RESPONSES, MESSAGES = "langchain-openai", "langchain-openai, Responses", "langchain-anthropic"


def model(**fields):
    return ChatOpenAI(**{"base_url": URL, "api_key": "none", "model": MODEL, "temperature": 0, "max_tokens": LIMIT, "max_retries": 0, **fields})


def responses(**fields):
    return model(use_responses_api=True, **fields)


def messages():
    return ChatAnthropic(base_url=SERVER, api_key="none", model=MODEL, max_tokens=LIMIT, max_retries=0)


@case(NAME, "chat")
def chat():
    reply = model(max_tokens=24).invoke([SystemMessage("Be brief."), HumanMessage(QUESTION)])
    assert reply.content and reply.usage_metadata["output_tokens"] <= 24 and reply.response_metadata["finish_reason"] in ("stop", "length")
    assert [r.content for r in model(max_tokens=24).batch(["Hi", "Hi"])][0]
    words = model(max_tokens=4, logprobs=True, top_logprobs=2).invoke("Hi")
    assert len(words.response_metadata["logprobs"]["content"]) == words.usage_metadata["output_tokens"]
    assert OpenAI(base_url=URL, api_key="none", model=MODEL, max_tokens=8, max_retries=0).invoke("Once upon a time")


@case(NAME, "stream")
def stream():
    reply = model().invoke(QUESTION)
    pieces = list(model().stream(QUESTION, stream_usage=True))
    assert "".join(p.content for p in pieces) == reply.content
    assert sum(p.usage_metadata["output_tokens"] for p in pieces if p.usage_metadata) == reply.usage_metadata["output_tokens"]


@case(NAME, "errors")
def errors():
    expect(openai.NotFoundError, lambda: model(model="x").invoke("Hi"), lambda e: e.code == "model_not_found")
    # Without tools
    expect(openai.BadRequestError, lambda: model().bind(tool_choice="required").invoke("Hi"), lambda e: e.param == "tool_choice")


@case(NAME, "JSON schema")
def json_schema():
    assert isinstance(model().with_structured_output(Person, method="json_schema").invoke(QUESTION), Person)
    as_dict = model().with_structured_output({"title": "person", **Person.model_json_schema()}, method="json_schema", strict=True)
    Person.model_validate(as_dict.invoke(QUESTION))


@case(NAME, "JSON schema, stream")
def json_schema_stream():
    pieces = list(model().with_structured_output(Person, method="json_schema").stream(QUESTION))
    assert isinstance(pieces[-1], Person)


@case(NAME, "JSON mode")
def json_mode():
    chain = model(logit_bias=END_OBJECT).with_structured_output(Anything, method="json_mode")
    assert isinstance(chain.invoke(QUESTION), Anything)


@case(NAME, "tools")
def tools():
    for choice in ("any", "required", "weather"):
        call = model().bind_tools([TOOL], tool_choice=choice).invoke(QUESTION).tool_calls[0]
        check_arguments(call["name"], call["args"])
    with_tools = model(max_tokens=24).bind_tools([TOOL])
    turn = AIMessage("", tool_calls=[{"name": "weather", "args": {"city": "Paris"}, "id": "call_1"}])
    assert with_tools.invoke([HumanMessage("?"), turn, ToolMessage("sunny", tool_call_id="call_1")]) is not None
    assert isinstance(model().with_structured_output(Person, method="function_calling").invoke(QUESTION), Person)


@case(NAME, "tools, strict")
def strict_tools():
    call = model().bind_tools([Person], tool_choice="any", strict=True).invoke(QUESTION).tool_calls[0]
    Person.model_validate(call["args"])


@case(NAME, "tools, stream")
def tools_stream():
    whole = None
    for piece in model().bind_tools([TOOL], tool_choice="any").stream(QUESTION):
        whole = piece if whole is None else whole + piece
    check_arguments(whole.tool_calls[0]["name"], whole.tool_calls[0]["args"])


@case(RESPONSES, "chat")
def responses_chat():
    assert responses().invoke(QUESTION).content


@case(RESPONSES, "stream")
def responses_stream():
    assert "".join(p.text for p in responses().stream(QUESTION)) == responses().invoke(QUESTION).text


@case(RESPONSES, "JSON schema")
def responses_json_schema():
    assert isinstance(responses().with_structured_output(Person, method="json_schema").invoke(QUESTION), Person)


@case(RESPONSES, "tools")
def responses_tools():
    for choice in ("any", "weather"):
        call = responses().bind_tools([TOOL], tool_choice=choice).invoke(QUESTION).tool_calls[0]
        check_arguments(call["name"], call["args"])
    turn = AIMessage("", tool_calls=[{"name": "weather", "args": {"city": "Paris"}, "id": "call_1"}])
    with_tools = responses(max_tokens=24).bind_tools([TOOL])
    assert with_tools.invoke([HumanMessage("?"), turn, ToolMessage("sunny", tool_call_id="call_1")]) is not None


@case(RESPONSES, "tools, stream")
def responses_tools_stream():
    whole = None
    for piece in responses().bind_tools([TOOL], tool_choice="any").stream(QUESTION):
        whole = piece if whole is None else whole + piece
    check_arguments(whole.tool_calls[0]["name"], whole.tool_calls[0]["args"])


@case(MESSAGES, "chat")
def messages_chat():
    assert messages().invoke([SystemMessage("Be brief."), HumanMessage(QUESTION)]).content


@case(MESSAGES, "stream")
def messages_stream():
    assert "".join(p.text for p in messages().stream(QUESTION))


@case(MESSAGES, "JSON schema")
def messages_json_schema():
    assert isinstance(messages().with_structured_output(Person, method="json_schema").invoke(QUESTION), Person)


@case(MESSAGES, "tools")
def messages_tools():
    for choice in ("any", "weather"):
        call = messages().bind_tools([TOOL], tool_choice=choice).invoke(QUESTION).tool_calls[0]
        check_arguments(call["name"], call["args"])
    turn = AIMessage("", tool_calls=[{"name": "weather", "args": {"city": "Paris"}, "id": "toolu_1"}])
    assert messages().bind_tools([TOOL]).invoke([HumanMessage("?"), turn, ToolMessage("sunny", tool_call_id="toolu_1")]) is not None


@case(MESSAGES, "tools, stream")
def messages_tools_stream():
    whole = None
    for piece in messages().bind_tools([TOOL], tool_choice="any").stream(QUESTION):
        whole = piece if whole is None else whole + piece
    check_arguments(whole.tool_calls[0]["name"], whole.tool_calls[0]["args"])


run("langchain-openai", {MESSAGES: "langchain-anthropic"})
