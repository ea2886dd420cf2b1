"""The pages at /ui without a mouse, and against the rules of axe-core, at three widths."""

import pathlib
import shutil
import subprocess

import pytest
from selenium.webdriver.common.keys import Keys

from conftest import ROOT, MODEL, cannot_run
from test_history import page  # noqa: F401 (a fixture)
from test_ui import browser, QUESTION  # noqa: F401 (a fixture)

HERE = pathlib.Path(__file__).parent
MARKDOWN = "# Title\n\n- a\n- b\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```python\n# comment\nx = 'text' + 1\nreturn x\n```\n\n> quote with [a link](https://example.com)\n\n1. one"


@pytest.fixture(scope="module")
def axe():
    """The text of axe-core, which package-lock.json pins; installed into build/ui-tests where it has changed."""
    if not shutil.which("npm"):
        cannot_run("axe-core is installed by npm, which is not on PATH")
    to, lock = ROOT / "build/ui-tests", HERE / "package-lock.json"
    if not (to / "installed.json").exists() or (to / "installed.json").read_bytes() != lock.read_bytes():
        to.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, to)
        subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"], cwd=to, check=True, timeout=300)
        shutil.copy(lock, to / "installed.json")
    return (to / "node_modules/axe-core/axe.min.js").read_text()


def violations(page, axe):
    """Runs axe by the debugger, so that the page's own policy stays as it is."""
    page.driver.execute_cdp_cmd("Runtime.evaluate", {"expression": axe})
    result = page.driver.execute_async_script("const done = arguments[arguments.length - 1]; axe.run(document, {resultTypes: ['violations']}).then(done)")
    assert len(result["passes"]) > 10
    return [(one["id"], one["help"], [node["html"][:160] for node in one["nodes"]]) for one in result["violations"]]


def fill(page):
    """A conversation with all that a turn can have."""
    page.ask(QUESTION)
    page.js("""addTurn({role: "user", text: "q", files: [{name: "a.txt", text: "b"}]});
        addTurn({role: "assistant", model: "demo", text: arguments[0], reasoning: "because", calls: [{id: "1", name: "weather", arguments: "{}"}]});
        addTurn({role: "tool", name: "weather", call_id: "1", text: "rain"});
        addTurn({role: "assistant", text: "x", error: new ApiError(503, {message: "no"}, 0)});
        attached = [{name: "b.txt", text: "c"}]; listAttached();
        keepTurns(); showNotice("A notice.", () => true); showBusy();
        for (const node of document.querySelectorAll("details")) node.open = true""", MARKDOWN)


@pytest.mark.parametrize("width", [360, 1024, 1600])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(page, axe, width, scheme):
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    page.resize(width, 740)
    fill(page)
    for view in ("chat", "history", "settings", "live"):
        page.js("showView(arguments[0])", view)
        assert violations(page, axe) == [], view
        assert page.js("return document.documentElement.scrollWidth") <= width
    page.js("askForKey('For a test.', null)")
    assert violations(page, axe) == []
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.mark.parametrize("name", ["batches", "targets", "targets, no experiment"])
def test_axe_finds_nothing_on_the_other_pages(browser, axe, start, tmp_path, name):
    if name == "batches":
        server = start("serve", MODEL, "--port", "0", "--batch-dir", tmp_path / "batches")
    else:
        (tmp_path / "models.yaml").write_text(
            "models:\n" + ("  chat: {route: experiment, arms: {one: {model: a}, two: {model: b}}}\n" if name == "targets" else "")
            + "".join(f"  {model}: {{targets: [{{name: t, url: 'http://127.0.0.1:9/v1'}}]}}\n" for model in "ab"))
        server = start("serve", "--models", tmp_path / "models.yaml", "--port", "0")
    for width in (360, 1024, 1600):
        page = browser.open(server, width=width)
        page.driver.get(f"{server.url}/ui/{name.split(',')[0]}")
        page.wait("document.getElementById('state').textContent")
        assert violations(page, axe) == [], width
        assert page.js("return document.documentElement.scrollWidth") <= width
        assert page.js("return [...document.querySelectorAll('header a')].map(link => link.getAttribute('href'))")[0] == "/ui"


def press(page, *keys):
    for key in keys:
        page.driver.switch_to.active_element.send_keys(key)


def tab_to(page, condition, shift=False):
    """Presses Tab until the focused element fulfils a condition, and checks that the focus can be seen."""
    for _ in range(120):
        press(page, Keys.SHIFT + Keys.TAB + Keys.NULL if shift else Keys.TAB)
        if page.js(f"const node = document.activeElement; return {condition}"):
            assert page.js("return getComputedStyle(document.activeElement).outlineStyle") != "none"
            return
    raise AssertionError(f"Tab does not reach {condition}")


@pytest.mark.parametrize("width", [360, 1024, 1600])
def test_the_keyboard_is_enough(page, width):
    page.resize(width, 740)
    page.js("document.activeElement.blur()")
    tab_to(page, "node.id === 'input'")
    press(page, QUESTION + Keys.ENTER)
    answer = page.answer()
    assert answer != ""
    tab_to(page, "node.textContent === 'Edit'", shift=True)
    press(page, Keys.ENTER, " Please." + Keys.ENTER)
    page.answer()
    assert page.js("return [turns.length, turns[0].text]") == [2, QUESTION + " Please."]
    if width < 900:
        tab_to(page, "node.dataset.to === 'history'")
        press(page, Keys.ENTER)
    tab_to(page, "node.id === 'new'")
    press(page, Keys.ENTER)
    assert page.js("return [turns.length, document.activeElement.id]") == [0, "input"]
    if width < 900:
        tab_to(page, "node.dataset.to === 'history'")
        press(page, Keys.ENTER)
    tab_to(page, "node.ariaLabel?.startsWith('Delete')")
    press(page, Keys.ENTER)
    assert page.js("return [document.activeElement.id, store.all().length]") == ["undo", 0]
    press(page, Keys.ENTER)
    assert page.js("return [store.all().length, turns.length]") == [1, 2]
