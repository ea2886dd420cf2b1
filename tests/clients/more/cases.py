"""What the checks of Python clients share: the list of cases, the data they ask for, and the lines that run.py reads.

A case is one client and one feature. It passes, or fails by an exception. A case that is declared `unsupported` must
fail with a 400 or 404 of the server; if it passes, the declaration is wrong and the case fails.
"""

import importlib.metadata
import json
import sys
import traceback
import typing

import pydantic

SERVER = sys.argv[1]
URL = SERVER + "/v1"
MODEL = "demo"
QUESTION = "Tell me a story."
END_OBJECT = {"92": 100}  # A logit bias on "}": in JSON mode the demo model would not end an object before the limit.
LIMIT = 200  # tokens of a structured answer. Person needs at most 80, where each byte is a token.

cases = []


class Address(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    city: typing.Literal["Paris", "Rome"]


class Person(pydantic.BaseModel):
    """A person. Has no strings, numbers or lists without end, and no bounds either: some clients remove them."""
    model_config = pydantic.ConfigDict(extra="forbid")
    name: typing.Literal["Ann", "Bob"]
    tall: bool
    address: Address
    drink: typing.Literal["tea", "coffee"] | None


class Anything(pydantic.BaseModel):
    """Accepts each object: JSON mode promises no more than one."""
    model_config = pydantic.ConfigDict(extra="allow")


SCHEMA = Person.model_json_schema()
WEATHER = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}}, "required": ["city"],
           "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "weather", "description": "The weather.", "parameters": WEATHER}}


def case(client, feature, unsupported=None):
    """unsupported: why the server rejects it."""
    def add(call):
        cases.append((client, feature, unsupported, call))
        return call
    return add


def expect(error, call, check=lambda e: True):
    try:
        call()
    except error as e:
        assert check(e), repr(e)
        return
    raise AssertionError(f"no {error.__name__}")


def check_arguments(name, arguments):
    """Of a call of TOOL."""
    assert name == "weather" and set(arguments) == {"city"} and len(arguments["city"]) <= 12, (name, arguments)


def rejected(error):
    """The server's own words, if it or what caused it is an answer of 400 or 404."""
    while error is not None:
        response = getattr(error, "response", None)
        if getattr(response, "status_code", getattr(error, "status_code", None)) in (400, 404):
            return str(error)
        error = error.__cause__ or error.__context__
    return None


def outcome(unsupported, call):
    try:
        call()
    except Exception as e:
        words = rejected(e)
        if unsupported and words:
            return "unsupported", unsupported
        traceback.print_exc()
        last = traceback.extract_tb(e.__traceback__)[-1]
        return "FAIL", f"{type(e).__name__}: {str(e)[:300]} ({last.filename.rsplit('/', 1)[-1]}:{last.lineno})"
    if unsupported:
        return "FAIL", f"passes, but is declared unsupported: {unsupported}"
    return "pass", ""


def run(package, others={}):
    """Runs this file's cases and prints a line of JSON for each. package: its version is shown; others: of other clients."""
    only = sys.argv[2] if len(sys.argv) > 2 else ""
    for client, feature, unsupported, call in cases:
        if only in f"{client} {feature}":
            result, why = outcome(unsupported, call)
            print(json.dumps({"client": client, "version": importlib.metadata.version(others.get(client, package)), "feature": feature,
                              "case": call.__name__, "result": result, "why": why}), flush=True)
