"""LangChain and LiteLLM against a server: chat, stream, tools, errors. By hand, since they bring over 70 packages:

    python3 -m venv /tmp/more && /tmp/more/bin/pip install -r tests/clients/more/requirements.txt
    build/quire serve tools/demo_model/model --port 8000 --served-model-name demo &
    /tmp/more/bin/python tests/clients/more/check.py http://127.0.0.1:8000/v1
"""

import importlib.metadata
import sys

import litellm
import openai
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_openai import ChatOpenAI, OpenAI

URL = sys.argv[1]
TOOL = {"type": "function", "function": {"name": "weather", "description": "The weather.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}}}}


def expect(error, call, check=lambda e: True):
    try:
        call()
    except error as e:
        assert check(e), repr(e)
        return
    raise AssertionError(f"no {error.__name__}")


def langchain():
    chat = ChatOpenAI(base_url=URL, api_key="none", model="demo", temperature=0, max_tokens=24, max_retries=0)
    reply = chat.invoke([SystemMessage("Be brief."), HumanMessage("Tell me a story.")])
    assert reply.content and reply.usage_metadata["output_tokens"] <= 24 and reply.response_metadata["finish_reason"] in ("stop", "length")
    pieces = list(chat.stream([SystemMessage("Be brief."), HumanMessage("Tell me a story.")], stream_usage=True))
    assert "".join(p.content for p in pieces) == reply.content
    assert sum(p.usage_metadata["output_tokens"] for p in pieces if p.usage_metadata) == reply.usage_metadata["output_tokens"]
    assert [r.content for r in chat.batch(["Hi", "Hi"])][0]
    with_tools = chat.bind_tools([TOOL])
    assert with_tools.invoke("Hi") is not None
    turn = AIMessage("", tool_calls=[{"name": "weather", "args": {"city": "Paris"}, "id": "call_1"}])
    assert with_tools.invoke([HumanMessage("?"), turn, ToolMessage("sunny", tool_call_id="call_1")]) is not None
    expect(openai.BadRequestError, lambda: chat.bind_tools([TOOL], tool_choice="required").invoke("Hi"), lambda e: e.param == "tool_choice")
    expect(openai.NotFoundError, lambda: ChatOpenAI(base_url=URL, api_key="none", model="x", max_retries=0).invoke("Hi"), lambda e: e.code == "model_not_found")
    words = ChatOpenAI(base_url=URL, api_key="none", model="demo", max_tokens=4, logprobs=True, top_logprobs=2, max_retries=0).invoke("Hi")
    assert len(words.response_metadata["logprobs"]["content"]) == words.usage_metadata["output_tokens"]
    assert OpenAI(base_url=URL, api_key="none", model="demo", max_tokens=8, max_retries=0).invoke("Once upon a time")
    assert ChatOpenAI(base_url=URL, api_key="none", model="demo", max_tokens=8, use_responses_api=True, max_retries=0).invoke("Hi").content


def lite():
    def ask(**fields):
        return litellm.completion(**{"model": "hosted_vllm/demo", "api_base": URL, "api_key": "none", "temperature": 0, "max_tokens": 24,
                                     "messages": [{"role": "user", "content": "Tell me a story."}], "num_retries": 0, **fields})

    for provider in ("hosted_vllm/demo", "openai/demo"):
        whole = ask(model=provider)
        assert whole.choices[0].message.content and whole.usage.completion_tokens <= 24
        pieces = list(ask(model=provider, stream=True, stream_options={"include_usage": True}))
        assert "".join(c.delta.content or "" for p in pieces for c in p.choices) == whole.choices[0].message.content
        assert [p.usage.completion_tokens for p in pieces if getattr(p, "usage", None)] == [whole.usage.completion_tokens]
    assert ask(tools=[TOOL]).choices[0].message is not None
    assert ask(top_k=1, min_p=0.1, repetition_penalty=1.1).choices[0].message.content
    expect(litellm.BadRequestError, lambda: ask(temperature=9))
    expect(litellm.ContextWindowExceededError, lambda: ask(messages=[{"role": "user", "content": "word " * 5000}]))
    expect(litellm.NotFoundError, lambda: ask(model="hosted_vllm/x"))
    text = litellm.text_completion(model="text-completion-openai/demo", prompt="Once upon a time", api_base=URL, api_key="none", max_tokens=8)
    assert text.choices[0].text


for name, check in (("langchain-openai", langchain), ("litellm", lite)):
    check()
    print(f"ok  {name} {importlib.metadata.version(name)}")
