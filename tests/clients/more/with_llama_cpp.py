"""Clients of llama.cpp's server: LangChain's Llamafile and ChatLlama, llamacpp-client, kvprof's check of a server, and
the plug-in of llm."""

import os
import subprocess
import sys
import tempfile
import urllib.parse
import warnings

import llamacpp_client
from cases import LIMIT, MODEL, QUESTION, SCHEMA, SERVER, TOOL, Person, case, check_arguments, expect, run
from langchain_llama_cpp import ChatLlama, LlamaInvalidRequestError, LlamaModelNotFoundError
from pathlib import Path

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # langchain-community says on import that it is deprecated
    from langchain_community.embeddings import LlamafileEmbeddings
    from langchain_community.llms import Llamafile

OWN, LANGCHAIN, LLAMAFILE, KVPROF, LLM = "llamacpp-client", "langchain-llama-cpp", "langchain-community, Llamafile", "kvprof", "llm-llamacpp-plugin"
ADDRESS = urllib.parse.urlsplit(SERVER)

client = llamacpp_client.LlamaCppClient([llamacpp_client.LlamaCppServerAddress(ADDRESS.hostname, ADDRESS.port)])
completion = Llamafile(base_url=SERVER, temperature=0, n_predict=24)


def chat_model(**fields):
    return ChatLlama(**{"base_url": SERVER, "model": MODEL, "temperature": 0, "max_tokens": 24, "max_retries": 0, **fields})


def program(name, *arguments):
    """What a program of this environment prints."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([Path(sys.executable).parent / name, *arguments], capture_output=True, text=True, timeout=60,
                              env={**os.environ, "LLM_LLAMACPP_SERVER": SERVER, "LLM_USER_PATH": folder})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# ---- llamacpp-client: it asks for some fields of the result ----


@case(OWN, "chat")
def own_chat():
    reply = client.new_completion(QUESTION, temperature=0, n_predict=24)
    assert reply.content and 0 < reply.tokens_predicted <= 24 and reply.stop_type in ("eos", "limit")
    assert set(reply.raw) == {"content", "stop_type", "stopping_word", "tokens_cached", "tokens_evaluated", "tokens_predicted", "truncated"}
    messages = [{"role": "user", "content": QUESTION}]
    assert client.v1_chat_completions(messages, max_tokens=24)["choices"][0]["message"]["content"]


@case(OWN, "stream")
def own_stream():
    *parts, last = client.new_stream_completion(QUESTION, temperature=0, n_predict=24)
    whole = client.new_completion(QUESTION, temperature=0, n_predict=24)
    assert "".join(p.content for p in parts) == whole.content and last.stop and last.stop_type == whole.stop_type


@case(OWN, "grammar")
def own_grammar():
    assert client.completion(QUESTION, grammar='root ::= "yes" | "no"')["content"] in ("yes", "no")


@case(OWN, "JSON schema")
def own_schema():
    Person.model_validate_json(client.completion(QUESTION, json_schema=SCHEMA, n_predict=LIMIT)["content"])


@case(OWN, "errors")
def own_errors():
    error = client.completion(QUESTION, mirostat=2)["error"]
    assert error["code"] == 400 and "mirostat" in error["message"] and error["type"] == "invalid_request_error"


# ---- LangChain's Llamafile: it sends all fields with llama.cpp's default values ----


@case(LLAMAFILE, "chat")
def llamafile_chat():
    assert completion.invoke(QUESTION)
    assert completion.invoke(QUESTION, stop=[" "]) != completion.invoke(QUESTION)


@case(LLAMAFILE, "stream")
def llamafile_stream():
    assert "".join(completion.stream(QUESTION)) == completion.invoke(QUESTION)


@case(LLAMAFILE, "errors")
def llamafile_errors():
    expect(Exception, lambda: completion.invoke(QUESTION, tfs_z=0.5), lambda e: e.response.status_code == 400 and "tfs_z" in e.response.text)
    expect(Exception, lambda: LlamafileEmbeddings(base_url=SERVER).embed_query("a"), lambda e: "/v1/embeddings" in e.response.text)


# ---- langchain-llama-cpp: chats ----


@case(LANGCHAIN, "chat")
def langchain_chat():
    reply = chat_model().invoke(QUESTION)
    assert reply.content and reply.usage_metadata["output_tokens"] <= 24


@case(LANGCHAIN, "stream")
def langchain_stream():
    assert "".join(p.content for p in chat_model().stream(QUESTION)) == chat_model().invoke(QUESTION).content


@case(LANGCHAIN, "JSON schema")
def langchain_schema():
    made = chat_model(max_tokens=LIMIT).with_structured_output(Person, method="json_schema")
    assert isinstance(made.invoke(QUESTION), Person)


@case(LANGCHAIN, "grammar")
def langchain_grammar():
    assert chat_model(grammar='root ::= "yes" | "no"').invoke(QUESTION).content in ("yes", "no")


@case(LANGCHAIN, "tools")
def langchain_tools():
    call, = chat_model(max_tokens=LIMIT).bind_tools([TOOL], tool_choice="weather", strict=True).invoke(QUESTION).tool_calls
    check_arguments(call["name"], call["args"])


@case(LANGCHAIN, "errors")
def langchain_errors():
    expect(LlamaModelNotFoundError, lambda: chat_model(model="x").invoke(QUESTION))
    expect(LlamaInvalidRequestError, lambda: chat_model(temperature=9).invoke(QUESTION))


# ---- programs that look at the server ----


@case(KVPROF, "facts")
def kvprof_doctor():
    """It compares /apply-template and /tokenize with /v1/messages/count_tokens, and reads /props, /slots and /v1/models."""
    said = program("kvprof", "doctor", "--upstream", SERVER)
    for line in "/tokenize with pieces", "/apply-template", "/v1/messages/count_tokens", "/slots", "/v1/models":
        assert f"OK    {line}" in said, said
    assert "FAIL" not in said, said


@case(LLM, "facts")
def llm_discover():
    assert MODEL in program("llm", "llamacpp", "discover")


run("llamacpp-client", {LLAMAFILE: "langchain-community", LANGCHAIN: "langchain-llama-cpp", KVPROF: "kvprof", LLM: "llm-llamacpp-plugin"})
