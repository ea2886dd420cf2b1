"""The command `llm` (simonw) with the server as a model of its extra-openai-models.yaml."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from cases import LIMIT, MODEL, QUESTION, SCHEMA, URL, Person, case, run

NAME = "llm"
PROGRAM = pathlib.Path(sys.executable).parent / "llm"
home = tempfile.TemporaryDirectory()
pathlib.Path(home.name, "extra-openai-models.yaml").write_text(f"""\
- model_id: {MODEL}
  model_name: {MODEL}
  api_base: {URL}
  supports_schema: true
  supports_tools: true
""")


def llm(*arguments):
    done = subprocess.run([PROGRAM, "-m", MODEL, "--key", "none", "-o", "max_tokens", str(LIMIT), "-o", "temperature", "0", *arguments, QUESTION], text=True,
                          capture_output=True, env={**os.environ, "LLM_USER_PATH": home.name})
    assert done.returncode == 0, done.stderr
    return done.stdout


@case(NAME, "chat")
def chat():
    assert llm("--no-stream").strip()


@case(NAME, "stream")
def stream():
    assert llm().strip() == llm("--no-stream").strip()


@case(NAME, "JSON schema")
def json_schema():
    Person.model_validate_json(llm("--no-stream", "--schema", json.dumps(SCHEMA)))


@case(NAME, "JSON schema, stream")
def json_schema_stream():
    Person.model_validate_json(llm("--schema", json.dumps(SCHEMA)))


run("llm")
