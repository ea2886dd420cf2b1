"""Clients of Ollama's API: Ollama's own for Python, LangChain's, and litellm's providers ollama and ollama_chat."""

import litellm
import ollama
from cases import LIMIT, MODEL, QUESTION, SCHEMA, SERVER, Person, case, expect, run
from json import loads
from langchain_ollama import ChatOllama

OWN, LANGCHAIN, LITELLM = "ollama", "langchain-ollama", "litellm, Ollama"
MESSAGES = [{"role": "user", "content": QUESTION}]
EXACT = {"temperature": 0, "num_predict": LIMIT}
TOOL = {"type": "function", "function": {"name": "weather", "description": "The weather.",
                                         "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}

client = ollama.Client(host=SERVER)


def chain(**fields):
    return ChatOllama(**{"model": MODEL, "base_url": SERVER, "temperature": 0, "num_predict": 24, **fields})


def lite(provider="ollama_chat", **fields):
    return litellm.completion(**{"model": f"{provider}/{MODEL}", "api_base": SERVER, "messages": MESSAGES, "temperature": 0, "max_tokens": 24, "num_retries": 0, **fields})


@case(OWN, "chat")
def chat():
    reply = client.chat(MODEL, MESSAGES, options={**EXACT, "num_predict": 24})
    assert reply.message.content and reply.eval_count <= 24
    assert client.generate(MODEL, QUESTION, options={**EXACT, "num_predict": 24}).response == reply.message.content
    assert client.list().models[0].model == client.ps().models[0].model == MODEL and "completion" in client.show(MODEL).capabilities


@case(OWN, "stream")
def stream():
    whole = client.chat(MODEL, MESSAGES, options=EXACT)
    parts = list(client.chat(MODEL, MESSAGES, options=EXACT, stream=True))
    assert "".join(p.message.content for p in parts) == whole.message.content and parts[-1].eval_count == whole.eval_count


@case(OWN, "JSON schema")
def json_schema():
    Person.model_validate_json(client.chat(MODEL, MESSAGES, format=SCHEMA, options=EXACT).message.content)


@case(OWN, "JSON schema, stream")
def json_schema_stream():
    Person.model_validate_json("".join(p.message.content for p in client.chat(MODEL, MESSAGES, format=SCHEMA, options=EXACT, stream=True)))


@case(OWN, "tools")
def tools():
    calls = [{"function": {"name": "weather", "arguments": {"city": "Rome"}}}]
    turns = [*MESSAGES, {"role": "assistant", "content": "", "tool_calls": calls}, {"role": "tool", "tool_name": "weather", "content": "rain"}]
    assert client.chat(MODEL, turns, tools=[TOOL], options={**EXACT, "num_predict": 24}).done


@case(OWN, "errors")
def errors():
    expect(ollama.ResponseError, lambda: client.chat("x", MESSAGES), lambda e: e.status_code == 404)
    expect(ollama.ResponseError, lambda: client.chat(MODEL, MESSAGES, options={"temperature": 9}), lambda e: e.status_code == 400)
    expect(ollama.ResponseError, lambda: client.pull("x"), lambda e: "quire pull" in e.error)


@case(LANGCHAIN, "chat")
def langchain_chat():
    reply = chain().invoke(QUESTION)
    assert reply.content and reply.usage_metadata["output_tokens"] <= 24


@case(LANGCHAIN, "stream")
def langchain_stream():
    assert "".join(p.content for p in chain().stream(QUESTION)) == chain().invoke(QUESTION).content


@case(LANGCHAIN, "JSON schema")
def langchain_schema():
    assert isinstance(chain(num_predict=LIMIT).with_structured_output(Person).invoke(QUESTION), Person)


@case(LANGCHAIN, "tools")
def langchain_tools():
    assert chain().bind_tools([TOOL]).invoke(QUESTION).response_metadata["done"]


@case(LITELLM, "chat")
def litellm_chat():
    assert lite().choices[0].message.content
    assert lite("ollama").choices[0].message.content


@case(LITELLM, "stream")
def litellm_stream():
    pieces = list(lite(stream=True))
    assert "".join(c.delta.content or "" for p in pieces for c in p.choices) == lite().choices[0].message.content


@case(LITELLM, "JSON schema")
def litellm_schema():
    Person.model_validate(loads(lite(max_tokens=LIMIT, response_format=Person).choices[0].message.content))


run("ollama", {LANGCHAIN: "langchain-ollama", LITELLM: "litellm"})
