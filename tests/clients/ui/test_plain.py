"""The page at /ui with a model without a chat template, which continues text."""

import json

import pytest
from selenium.webdriver.common.keys import Keys

from conftest import MODEL, Server
from test_page_access import axe, violations  # noqa: F401 (a fixture)
from test_ui import browser  # noqa: F401 (a fixture)

SAYS = "This model has no chat template: it continues each text as it is, without memory of the others."


@pytest.fixture(scope="module", params=["server", "gateway"])
def plain(request, tmp_path_factory):
    """A server of the demo model without its template, or a gateway over it."""
    folder = tmp_path_factory.mktemp("plain")
    for file in MODEL.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "tokenizer_config.json").read_text())
    del config["chat_template"]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    models = tmp_path_factory.mktemp("models") / "models.yaml"
    models.write_text(f"models: {{plain: {{targets: [{{model: {folder}}}]}}}}\n")
    what = ("--models", models) if request.param == "gateway" else (folder, "--served-model-name", "plain")
    server = Server("serve", *what, "--port", "0")
    yield server
    assert server.stop() == 0


def sent(page):
    return [json.loads(r["postData"]) for r in page.sent() if r["url"].endswith("/completions")]


def test_it_continues_each_text(browser, plain):
    page = browser.open(plain)
    page.wait("models.length > 0")
    assert page.text("#plain") == SAYS and page.js("return $('input').placeholder") == "Text to continue"
    assert page.js("return [$('system').disabled, $('tools').disabled, $('probabilities').disabled]") == [True] * 3
    page.fill("#f-temperature", "0")
    texts = ["Once upon a time", "The sum of 2 and 3"]
    expected = [plain.client().completions.create(model="plain", prompt=text, temperature=0, max_tokens=256).choices[0].text for text in texts]
    assert [page.ask(text) for text in texts] == expected and all(expected)
    assert set(page.js("return turns.map(turn => turn.finish || null)")) <= {None, "length", "stop"}
    bodies = sent(page)
    assert [body["prompt"] for body in bodies] == texts and not any("messages" in body or "tools" in body for body in bodies)
    page.fill("#f-max_tokens", "1")
    page.act("Regenerate")
    page.answer()
    [body] = sent(page)
    assert (body["prompt"], body["max_tokens"]) == (texts[1], 1) and page.js("return turns[3].finish") == "length"
    schema = {"type": "object", "properties": {"n": {"enum": [12, 42]}}, "required": ["n"], "additionalProperties": False}
    page.js("$('schema').value = arguments[0]; $('f-max_tokens').value = 40", json.dumps(schema))
    assert json.loads(page.ask("A number:"))["n"] in (12, 42)
    assert page.said() == []


def test_by_keys_and_axe(browser, plain, axe):  # noqa: F811
    for width in (360, 1024, 1600):
        page = browser.open(plain, width=width, height=740)
        page.wait("models.length > 0")
        page.js("$('f-max_tokens').value = 5; $('input').focus()")
        page.driver.switch_to.active_element.send_keys("Once upon" + Keys.ENTER)
        assert page.answer()
        for view in ("chat", "settings"):
            page.js("showView(arguments[0])", view)
            assert violations(page, axe) == [], (width, view)
            assert page.js("return document.documentElement.scrollWidth") <= width


def test_a_model_with_a_template_says_nothing(browser, server):
    page = browser.open(server)
    page.wait("models.length > 0")
    assert page.text("#plain") == "" and page.js("return [$('input').placeholder, $('system').disabled]") == ["Message", False]
