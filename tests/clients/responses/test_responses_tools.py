"""openai-python's client.responses with function tools and previous_response_id. The model is the fake engine, which
repeats its prompt; the chat template contains only the last message, so a test determines the output."""

import json
import shutil

import openai
import pydantic
import pytest
from conftest import MODEL, QUIRE, Server

SERVER = QUIRE.parent / "tests" / "front" / "front_test_server"
TOOL = {"type": "function", "name": "weather", "description": "The weather of a city.", "strict": True,
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
                       "additionalProperties": False}}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
TEXT = "<think>Which one?</think>\n\nBoth.\n" + CALL + CALL.replace("Paris", "Rome")


class FakeServer(Server):
    program = SERVER


class Weather(pydantic.BaseModel):
    city: str


@pytest.fixture(scope="module")
def fake(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    for name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(MODEL / name, path)
    (path / "chat_template.jinja").write_text("{{ messages[-1].content }}{# <tool_call> #}")
    server = FakeServer(path, "--reasoning-parser", "qwen3")
    yield server.client()
    assert server.stop() == 0


def ask(text, **fields):
    return dict(model="fake", input=text, tools=[TOOL], max_output_tokens=400, **fields)


def check(output):
    kinds = [item.type for item in output]
    assert kinds == ["reasoning", "message", "function_call", "function_call"]
    assert output[0].content[0].text == "Which one?" and output[1].content[0].text == "Both."
    assert [json.loads(item.arguments)["city"] for item in output[2:]] == ["Paris", "Rome"]
    assert len({item.call_id for item in output[2:]}) == 2


def test_a_whole_answer(fake):
    reply = fake.responses.create(**ask(TEXT))
    check(reply.output)
    assert reply.output_text == "Both." and reply.status == "completed"
    chat = fake.chat.completions.create(
        model="fake", messages=[{"role": "user", "content": TEXT}], max_tokens=400,
        tools=[{"type": "function", "function": {"name": "weather", "parameters": TOOL["parameters"]}}])
    n_tokens = reply.usage.output_tokens_details.reasoning_tokens
    assert n_tokens == chat.usage.completion_tokens_details.reasoning_tokens > 0
    assert reply.tools[0].name == "weather" and reply.tools[0].strict is True


def test_the_stream_helper(fake):
    """The SDK joins the events and fails on events in a wrong order."""
    with fake.responses.stream(**ask(TEXT)) as stream:
        events = list(stream)
        final = stream.get_final_response()
    check(final.output)
    assert [e.sequence_number for e in events if hasattr(e, "sequence_number")] == list(range(len(events)))
    deltas = [e for e in events if e.type == "response.function_call_arguments.delta"]
    assert deltas[-1].snapshot == '{"city": "Rome"}' and len(deltas) > 4
    reasoning = "".join(e.delta for e in events if e.type == "response.reasoning_text.delta")
    assert reasoning == "Which one?"


def test_parsed_tools(fake):
    reply = fake.responses.parse(**{**ask(CALL), "tools": [openai.pydantic_function_tool(Weather, name="weather")]})
    assert reply.output[0].parsed_arguments == Weather(city="Paris")


@pytest.mark.parametrize("stored", [True, False])
def test_a_loop_of_an_agent(fake, stored):
    """With the server's state, and with the client's."""
    history = [{"role": "user", "content": TEXT}]
    reply = fake.responses.create(**ask(history, store=stored))
    results = [{"type": "function_call_output", "call_id": item.call_id, "output": "sunny in " + json.loads(item.arguments)["city"]}
               for item in reply.output if item.type == "function_call"]
    if stored:
        final = fake.responses.create(**ask(results, previous_response_id=reply.id))
    else:
        final = fake.responses.create(**ask(history + reply.output + results, store=False))
    assert final.output_text == "sunny in Rome"
    assert final.previous_response_id == (reply.id if stored else None)
    with pytest.raises(openai.BadRequestError) as caught:
        fake.responses.create(**ask(results, store=stored))
    assert "No tool call found for function call output" in str(caught.value) and caught.value.param == "input[0].call_id"


def test_stored_responses(fake):
    reply = fake.responses.create(**ask("Hello"))
    assert fake.responses.retrieve(reply.id).to_dict() == reply.to_dict()
    assert [item.content for item in fake.responses.input_items.list(reply.id)] == ["Hello"]
    fake.responses.delete(reply.id)
    with pytest.raises(openai.NotFoundError):
        fake.responses.retrieve(reply.id)
    with pytest.raises(openai.BadRequestError) as caught:
        fake.responses.create(**ask("x", previous_response_id=reply.id))
    assert (caught.value.param, caught.value.code) == ("previous_response_id", "previous_response_not_found")


def test_tools_that_the_server_cannot_run(fake):
    for tool in ({"type": "web_search"}, {"type": "file_search", "vector_store_ids": ["x"]},
                 {"type": "code_interpreter", "container": {"type": "auto"}},
                 {"type": "mcp", "server_label": "x", "server_url": "https://example.com"},
                 {"type": "custom", "name": "x"}):
        with pytest.raises(openai.BadRequestError) as caught:
            fake.responses.create(**{**ask("x"), "tools": [TOOL, tool]})
        assert (caught.value.param, caught.value.code) == ("tools[1].type", "unsupported_parameter")


def test_forced_calls_by_the_demo_model(client):
    """A real engine: the grammar forces the call."""
    for choice in ("required", {"type": "function", "name": "weather"}):
        reply = client.responses.create(model="demo", input="Weather?", tools=[TOOL], tool_choice=choice,
                                        parallel_tool_calls=False, max_output_tokens=200, temperature=0)
        assert reply.output[0].type == "function_call" and reply.output[0].name == "weather"
        assert reply.tool_choice == choice or reply.tool_choice.name == "weather"
