"""LlamaIndex: OpenAILike, by JSON schemas and by function calls; Llamafile, which speaks llama.cpp's API."""

from cases import LIMIT, MODEL, QUESTION, SERVER, URL, Person, case, run
from llama_index.core.llms import ChatMessage
from llama_index.core.program import LLMTextCompletionProgram
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.llms.llamafile import Llamafile
from llama_index.llms.openai_like import OpenAILike

NAME, LLAMAFILE = "LlamaIndex", "LlamaIndex, Llamafile"
ask = [ChatMessage(role="user", content=QUESTION)]
prompt = PromptTemplate("{question}")


def model(**fields):
    return OpenAILike(model=MODEL, api_base=URL, api_key="none", context_window=2048, max_tokens=LIMIT, max_retries=0, temperature=0,
                      **{"is_chat_model": True, "is_function_calling_model": False, **fields})


def weather(city: str) -> str:
    """The weather."""
    return "sunny in " + city


@case(NAME, "chat")
def chat():
    assert model().chat(ask).message.content
    assert model(is_chat_model=False).complete("Once upon a time").text


@case(NAME, "stream")
def stream():
    assert "".join(piece.delta or "" for piece in model().stream_chat(ask)) == model().chat(ask).message.content


@case(NAME, "JSON schema")
def json_schema():
    llm = model(should_use_structured_outputs=True)
    assert isinstance(llm.structured_predict(Person, prompt, question=QUESTION), Person)
    assert isinstance(llm.as_structured_llm(Person).chat(ask).raw, Person)


@case(NAME, "prompted")
def prompted():
    # What a larger model would do by itself.
    llm = model(additional_kwargs={"extra_body": {"structured_outputs": {"json": Person.model_json_schema()}}})
    # Not structured_predict(), which sends tool_choice without tools here; OpenAI and vLLM reject that too.
    program = LLMTextCompletionProgram.from_defaults(output_cls=Person, llm=llm, prompt_template_str="{question}")
    assert isinstance(program(question=QUESTION), Person)


@case(NAME, "tools")
def tools():
    llm = model(is_function_calling_model=True)
    assert isinstance(llm.structured_predict(Person, prompt, question=QUESTION), Person)
    reply = llm.chat_with_tools([FunctionTool.from_defaults(weather)], user_msg=QUESTION, tool_required=True)
    call = llm.get_tool_calls_from_response(reply)[0]
    assert call.tool_name == "weather" and isinstance(call.tool_kwargs["city"], str)


llamafile = Llamafile(base_url=SERVER, temperature=0, additional_kwargs={"n_predict": 24})


@case(LLAMAFILE, "chat")
def llamafile_chat():
    assert llamafile.complete(QUESTION).text and llamafile.chat(ask).message.content


@case(LLAMAFILE, "stream")
def llamafile_stream():
    # Not stream_chat(), which takes the [DONE] of /v1/chat/completions for JSON; so it does with llama.cpp's server.
    assert [*llamafile.stream_complete(QUESTION)][-1].text == llamafile.complete(QUESTION).text


run("llama-index-core", {LLAMAFILE: "llama-index-llms-llamafile"})
