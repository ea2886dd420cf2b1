"""pydantic-ai over chat, Responses and Messages, with its three kinds of output."""

import asyncio

from cases import END_OBJECT, LIMIT, MODEL, QUESTION, SERVER, URL, Anything, Person, case, expect, run
from pydantic_ai import Agent, ModelHTTPError, NativeOutput, PromptedOutput, ToolOutput
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

NAME, RESPONSES, MESSAGES = "pydantic-ai", "pydantic-ai, Responses", "pydantic-ai, Messages"
provider = OpenAIProvider(base_url=URL, api_key="none")
chat_model = OpenAIChatModel(MODEL, provider=provider, profile=OpenAIModelProfile(supports_json_schema_output=True, supports_json_object_output=True))
responses_model = OpenAIResponsesModel(MODEL, provider=provider)
messages_model = AnthropicModel(MODEL, provider=AnthropicProvider(base_url=SERVER, api_key="none"),
                                profile=ModelProfile(supports_json_schema_output=True))


def ask(output, model=chat_model, **settings):
    agent = Agent(model, output_type=output, model_settings={"max_tokens": LIMIT, **settings}, retries=0)
    return agent.run_sync(QUESTION).output


async def last_of_stream(output):
    agent = Agent(chat_model, output_type=output, model_settings={"max_tokens": LIMIT}, retries=0)
    async with agent.run_stream(QUESTION) as reply:
        return await reply.get_output()


@case(NAME, "chat")
def chat():
    assert ask(str)


@case(NAME, "stream")
def stream():
    assert asyncio.run(last_of_stream(str))


@case(NAME, "errors")
def errors():
    expect(ModelHTTPError, lambda: ask(str, temperature=9), lambda e: e.status_code == 400 and "temperature" in str(e))


@case(NAME, "JSON schema")
def native():
    assert isinstance(ask(NativeOutput(Person)), Person)


@case(NAME, "JSON schema, stream")
def native_stream():
    assert isinstance(asyncio.run(last_of_stream(NativeOutput(Person))), Person)


@case(NAME, "JSON mode")
def prompted_json():
    assert isinstance(ask(PromptedOutput(Anything), logit_bias=END_OBJECT), Anything)


@case(NAME, "prompted")
def prompted():
    plain = OpenAIChatModel(MODEL, provider=provider, profile=OpenAIModelProfile(supports_json_object_output=False))
    # What a larger model would do by itself.
    fields = {"structured_outputs": {"json": Person.model_json_schema()}}
    assert isinstance(ask(PromptedOutput(Person), plain, extra_body=fields), Person)


@case(NAME, "tools")
def tools():
    assert isinstance(ask(ToolOutput(Person)), Person)
    assert isinstance(ask([Person, Anything]), (Person, Anything))


@case(NAME, "tools, strict")
def strict_tools():
    assert isinstance(ask(ToolOutput(Person, strict=True)), Person)


@case(NAME, "tools, stream")
def tools_stream():
    assert isinstance(asyncio.run(last_of_stream(ToolOutput(Person))), Person)


@case(RESPONSES, "chat")
def responses():
    assert ask(str, responses_model)


@case(RESPONSES, "JSON schema")
def responses_native():
    assert isinstance(ask(NativeOutput(Person), responses_model), Person)


@case(RESPONSES, "tools")
def responses_tools():
    assert isinstance(ask(ToolOutput(Person), responses_model), Person)
    assert isinstance(ask([Person, Anything], responses_model), (Person, Anything))


@case(MESSAGES, "chat")
def messages():
    assert ask(str, messages_model)


@case(MESSAGES, "JSON schema")
def messages_native():
    assert isinstance(ask(NativeOutput(Person), messages_model), Person)


@case(MESSAGES, "tools")
def messages_tools():
    assert isinstance(ask(ToolOutput(Person), messages_model), Person)
    assert isinstance(ask([Person, Anything], messages_model), (Person, Anything))


run("pydantic-ai-slim")
