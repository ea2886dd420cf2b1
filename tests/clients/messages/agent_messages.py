"""A coding agent in the style of Anthropic's, over /v1/messages: 20 turns with tools that read, write and list files.

The model is the demo model with scripted texts: structured_outputs.choice allows one text per turn. So the engine, its
prefix cache and the parser of calls are real, and the calls are known. Run by test_agent.py, or alone:

    python tests/clients/messages/agent_messages.py http://127.0.0.1:8000
"""

import json
import pathlib
import sys
import tempfile

import anthropic

BILLING = "x-anthropic-billing-header: cc_version=2.1.36; cc_entrypoint=cli; cch={:05x};"
SYSTEM = ("You are a coding agent. You edit files in a project of the user. Read a file before you change it. Write whole "
          "files. Keep each change small. Answer with one short sentence when the work is done. ") * 6
TOOLS = [
    {"name": "list_files", "description": "List the files of the project.",
     "input_schema": {"type": "object", "properties": {}}},
    {"name": "read_file", "description": "Read a file of the project.",
     "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}},
    {"name": "write_file", "description": "Write a file of the project.",
     "input_schema": {"type": "object", "properties": {"path": {"type": "string"}, "text": {"type": "string"}},
                      "required": ["path", "text"]}},
]
CACHED = {"cache_control": {"type": "ephemeral"}}

# A chat template of the hermes kind, which writes calls as the model does.
TEMPLATE = """\
{%- if tools %}{{ '<|im_start|>system\\n' + messages[0].content + '\\n' }}
{%- for tool in tools %}{{ tool | tojson }}{% endfor %}{{ '<|im_end|>\\n' }}{% set messages = messages[1:] %}{% endif %}
{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content }}
{%- for call in m.tool_calls or [] %}{% if m.content or not loop.first %}{{ '\\n' }}{% endif -%}
{{ '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}{{ call.function.arguments | tojson }}
{{- '}\\n</tool_call>' }}{% endfor %}{{ '<|im_end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""


def call(name, **arguments):
    return '<tool_call>\n' + json.dumps({"name": name, "arguments": arguments}) + "\n</tool_call>"


def script():
    """The model's text of each turn."""
    texts = ["I look at the project.\n" + call("list_files")]
    for i in range(6):
        name = f"part{i}.py"
        texts += [call("read_file", path=name),
                  "I change it.\n" + call("write_file", path=name, text=f"def part{i}():\n    return {i} + 1\n"),
                  call("read_file", path=name) + "\n" + call("list_files")]
    return [*texts, "All parts return one more."]


class Project:
    def __init__(self, path):
        self.path = path
        for i in range(6):
            (path / f"part{i}.py").write_text(f"def part{i}():\n    return {i}\n")

    def run(self, name, arguments):
        if name == "list_files":
            return "\n".join(sorted(p.name for p in self.path.iterdir()))
        file = self.path / arguments["path"]
        if name == "read_file":
            return file.read_text()
        file.write_text(arguments["text"])
        return "written"


def run(url, stream=True, model="demo"):
    """Plays the session. Returns its numbers; fails if a call differs from the script."""
    client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    messages = [{"role": "user", "content": "Each part must return one more."}]
    n_calls = n_prompt = n_hit = 0
    new = []
    with tempfile.TemporaryDirectory() as path:
        project = Project(pathlib.Path(path))
        for turn, text in enumerate(script()):
            last = messages[-1]
            if not isinstance(last["content"], str):
                last["content"][-1].update(CACHED)
            fields = dict(model=model, max_tokens=32000, messages=messages, tools=[*TOOLS[:-1], {**TOOLS[-1], **CACHED}],
                          system=[{"type": "text", "text": BILLING.format(turn * 7919)},
                                  {"type": "text", "text": SYSTEM, **CACHED}],
                          metadata={"user_id": "agent"}, extra_body={"structured_outputs": {"choice": [text]}})
            if stream:
                with client.messages.stream(**fields) as events:
                    reply = events.get_final_message()
            else:
                reply = client.messages.create(**{**fields, "max_tokens": 4000})
            calls = [block for block in reply.content if block.type == "tool_use"]
            expected = text.count("<tool_call>")
            assert len(calls) == expected and reply.stop_reason == ("tool_use" if expected else "end_turn"), (text, reply)
            assert all(c.name in text and json.dumps(c.input) in text for c in calls), (text, reply)
            n_calls += expected
            usage = reply.usage
            size = usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens
            n_prompt += size
            n_hit += usage.cache_read_input_tokens
            new.append(size - usage.cache_read_input_tokens)
            if "cache_control" in (last["content"][-1] if isinstance(last["content"], list) else {}):
                del last["content"][-1]["cache_control"]
            messages.append({"role": "assistant", "content": [b.model_dump(exclude_none=True) for b in reply.content]})
            if calls:
                messages.append({"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": c.id, "content": project.run(c.name, c.input)} for c in calls]})
        texts = [p.read_text() for p in sorted(pathlib.Path(path).iterdir())]
    assert texts == [f"def part{i}():\n    return {i} + 1\n" for i in range(6)]
    return {"turns": turn + 1, "calls": n_calls, "prompt_tokens": n_prompt, "hit_tokens": n_hit, "hit_share": n_hit / n_prompt,
            "first_prompt": new[0], "new_per_turn": new[1:]}


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1]), indent=1))
