"""The page at /ui in trouble: servers that stop, return or change, double clicks, long texts, full storages, small windows."""

import json
import signal

import pytest
import rig

from conftest import MODEL, SLOWLY
from test_answers import chunk, page, play  # noqa: F401 (page is a fixture)
from test_history import notice, put_file, titles
from test_ui import browser, crowd, QUESTION  # noqa: F401 (a fixture)


def test_a_server_that_stops_and_returns_with_another_model(browser, start):
    server = start("serve", MODEL, "--port", rig.free_port(), *SLOWLY, "--served-model-name", "first")
    page = browser.open(server)
    page.wait("points.length > 0")
    with crowd(server, 24, 1900):
        page.js("$('input').value = 'Tell me a story.'; sendInput()")
        page.wait("turns[1].timing.n > 3")
        server.stop(signal.SIGKILL)
    page.wait("!stopper && turns[1].error")
    part = page.js("return turns[1].text")
    assert "The connection broke" in page.text(".error") and page.js("return store.read(current).turns[1].text") == part != ""
    page.wait("$('state-said').textContent === 'the server does not answer'")
    start("serve", MODEL, "--port", server.port, "--served-model-name", "second")
    page.wait("$('model').value === 'second'")
    assert page.text("#state-said") == "The server answers again."
    page.act("Try again")
    page.wait("turns[1].model === 'second' && !stopper")
    assert page.text(".error") == "" and page.js("return turns[1].text") != ""
    page.js("models = [{id: 'first'}]; $('model').replaceChildren(new Option('first'))")  # a restart between two polls
    page.act("Regenerate")
    page.wait("turns[1].error?.status === 404 && $('model').value === 'second'")
    page.driver.execute_cdp_cmd("Network.enable", {})
    network = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    page.driver.execute_cdp_cmd("Network.emulateNetworkConditions", {"offline": True, **network})
    page.act("Try again")
    page.wait("turns[1].error?.status === 0 && !stopper")
    page.driver.execute_cdp_cmd("Network.emulateNetworkConditions", {"offline": False, **network})
    page.act("Try again")
    page.wait("!stopper && !turns[1].error")
    page.js("localStorage.clear()")
    browser.said()


def test_a_model_list_that_is_none_is_not_taken(page):
    page.js("const plain = fetch; window.fetch = (url, options) => String(url).endsWith('/v1/models') ? Promise.resolve(new Response('{}')) : plain(url, options)")
    page.js("return loadModels()")
    assert page.text("#model option") == "demo"


def test_a_double_click_is_one_click(page):
    def twice(css):
        """The driver's own second click is a first one if the machine delays it for half a second."""
        box = page.all(css)[0].rect
        at = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2, "button": "left"}
        for n in 1, 2:
            for kind in "mousePressed", "mouseReleased":
                page.driver.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": kind, "clickCount": n, **at})

    page.js("window.atOnce = 1")
    play(page, [chunk(content="word ")] * 200 + ["[DONE]"])
    page.js("$('input').value = 'x'")
    twice("#send")
    assert page.answer() == "word " * 200 and page.js("return turns[1].stopped") is None, "Stop took the place of Send"
    page.js("for (let i = 0; i < 3; i++) store.write({id: 'c' + i, title: 'T' + i, changed: i, turns: [{role: 'user', text: 'x'}]}); listChats()")
    twice("#chats button[data-chat='delete c2']")
    assert titles(page) == ["x", "T1", "T0"], "the next conversation took the place of the deleted one"


def test_an_edit_during_an_answer_changes_nothing(page):
    play(page, [chunk(content="One."), "[DONE]"], [chunk(content="word ")] * 300 + ["[DONE]"])
    page.ask("First")
    page.js("window.heldAt = 5; editTurn(turns[0]); $('input').value = 'Second'; sendInput()")
    page.fill("article textarea", "Changed\n")
    assert page.js("return [Boolean(stopper), turns[0].text, turns.length]") == [True, "First", 4]
    page.click("#stop")
    page.js("window.heldAt = undefined")
    page.wait("!stopper")


def insert(page, css, text):
    """As a paste does: the browser asks the page first."""
    return page.js("""const [css, text] = arguments, event = new InputEvent("beforeinput", {data: text, inputType: "insertFromPaste", bubbles: true, cancelable: true});
        return document.querySelector(css).dispatchEvent(event)""", css, text)


def test_a_long_paste_becomes_a_file(page):
    text = "Zeile mit ö und 😀\n" * 10000
    assert insert(page, "#input", "short") and not insert(page, "#input", text)
    page.wait("attached.length === 1")
    assert page.js("return [$('input').value, attached[0].name, attached[0].text === arguments[0]]", text) == ["", "pasted.txt", True]
    play(page, [chunk(content="Fine."), "[DONE]"])
    page.ask("Sum up.")
    page.js("document.querySelector('article.user details').open = true")
    page.wait("document.querySelector('article.user pre')")
    assert page.js("const pre = document.querySelector('article.user pre'); return [pre.textContent === arguments[0], pre.childNodes.length > 20]", text) == [True, True]
    assert not insert(page, "#input", "x" * 5000000)
    page.wait("$('notice-text').textContent")
    assert notice(page) == "pasted.txt has 5 MB; a file may have 1 MB."
    assert not insert(page, "#system", text) and "this field takes 100K at once" in notice(page)
    # The result of a tool call has no files.
    page.js("turns[1].calls = [{id: 'c', name: 'f', arguments: ''}]; showNotice('')")
    assert not insert(page, "#input", text) and "this field takes" in notice(page)
    page.js("attached = [{name: 'a', text: 'b'}]; sendInput()")
    assert page.js("return [turns.length, sentBodies.length]") == [2, 1], "an empty result was sent"


@pytest.mark.parametrize("text", ["word " * 200000, "x" * 1000000, "\U0001f600" * 300000, "line\n\n" * 100000], ids=["words", "one word", "emoji", "lines"])
def test_a_long_message_is_shown_in_pieces(page, text):
    """A browser's time for one paragraph grows with its square: 9 s for a message of 1 MB."""
    same, most, joined = page.js("""const [text] = arguments, node = make("div");
        putText(node, text);
        const more = make("div");
        for (let n = 5000; n < text.length + 5000; n += 100000) putText(more, text.slice(0, n), true);
        putText(more, text, true);
        return [node.textContent === text, Math.max(...[...node.childNodes].map(one => one.textContent.length)), more.innerHTML === node.innerHTML]""", text)
    assert same and joined and most <= 8192
    assert page.js("addTurn({role: 'user', text: arguments[0]}); return turns[0].body.childNodes.length", text) > 50
    assert "Edit" not in page.text("article .acts")


def test_a_title_can_be_seen(page):
    for text, title in (("\u200b\u202e\n\u3164\nHello", "Hello"), ("\u200b\ufeff", "Conversation"), ("x" * 79 + "😀", "x" * 79), ("  a\nb", "a")):
        assert page.js("return titleOf(arguments[0])", text) == title


def test_a_question_without_an_answer_is_left_out(page):
    """A reload before the first word: many templates reject two questions in turn."""
    list_of = [{"role": "user", "text": "lost"}, {"role": "user", "text": "b"}]
    assert [m["content"] for m in json.loads(page.js("return bodyOf(arguments[0])", list_of))["messages"]] == ["b"]


@pytest.mark.parametrize("settings", ["null", "{", "[]", '{"temperature": {}}'])
def test_damaged_settings_are_left_out(page, settings):
    page.js("sessionStorage.setItem('quire.settings', arguments[0])", settings)
    page.driver.refresh()
    page.wait("models.length > 0")
    assert page.js("return $('f-temperature').value") == ""


def conversations(*turns, n=1):
    return json.dumps({"quire": "conversations", "version": 1, "conversations": [{"id": f"i{i}", "title": "t", "changed": 1, "turns": list(turns)} for i in range(n)]})


@pytest.mark.parametrize("make, why", [
    (lambda: conversations(*[{"role": "user", "text": "x"}] * 10001), "conversations[0].turns: must be at most 10000"),
    (lambda: conversations(n=5001), "conversations: must be at most 5000"),
    (lambda: conversations({"role": "tool", "text": "x"}), "turns[0]: a result of a tool must have call_id and name"),
    (lambda: "[" * 40000000, "It has brackets in more than 20 others."),
    (lambda: '{"a":[0,' * 6000000, "It has brackets in more than 20 others."),
    (lambda: "[" + "{}," * 16000000 + "{}]", "It was not exported by this page"),
    (lambda: '["' + "\\\\[" * 16000000, "It is not JSON."),
    (lambda: " " * 50000001, "It has more than 50 MB."),
], ids=["turns", "conversations", "tool", "nested", "objects", "flat", "escapes", "large"])
def test_an_import_that_would_stop_the_page(page, tmp_path, make, why):
    (tmp_path / "wrong.json").write_text(make())
    put_file(page, "#import-file", tmp_path / "wrong.json")
    page.wait("document.getElementById('notice-text').textContent")
    assert why in notice(page) and titles(page) == []


def test_html_in_an_import_stays_text(page, tmp_path):
    bad = "<img src=x onerror=\"window.struck=1\"><script>window.struck=1</script>"
    turns = [{"role": "user", "text": bad, "files": [{"name": bad, "text": bad}]},
             {"role": "assistant", "text": bad, "model": bad, "reasoning": bad, "calls": [{"id": bad, "name": bad, "arguments": bad}]},
             {"role": "tool", "text": bad, "call_id": bad, "name": bad}]
    file = tmp_path / (bad.replace("/", "_") + ".json")
    file.write_text(conversations(*turns).replace('"title": "t"', '"title": ' + json.dumps(bad)))
    put_file(page, "#import-file", file)
    page.wait("document.querySelectorAll('#chats li').length")
    page.js("document.querySelector('#chats button').click(); for (const node of document.querySelectorAll('details')) node.open = true")
    page.wait("document.querySelector('article.user pre')")
    assert page.js("return [document.images.length, document.scripts.length, window.struck]") == [0, 1, None]
    for css in ("#chats button", ".file summary", ".file pre", ".reasoning pre", ".call summary", ".call pre", "article.user .body", "article.assistant h2",
                "article.assistant .body", "article.tool h2"):
        assert bad in page.text(css), css


@pytest.mark.parametrize("way", ["full", "forbidden"])
def test_a_conversation_that_cannot_be_kept_is_not_lost(page, way):
    page.js("""Storage.prototype.setItem = () => { throw new DOMException("", "QuotaExceededError"); };
        if (arguments[0] === "forbidden") Object.defineProperty(window, "localStorage", {get() { throw new DOMException("", "SecurityError"); }})""", way)
    play(page, [chunk(content="Answer."), "[DONE]"], [chunk(content="More."), "[DONE]"])
    page.ask("Question")
    assert "storage is full or forbidden" in notice(page)
    exported = page.js("return exported(allChats())")
    assert [turn["text"] for turn in json.loads(exported)["conversations"][0]["turns"]] == ["Question", "Answer."]
    assert page.js("return [$('export').disabled, imported(arguments[0]).length]", exported) == [False, 1]
    page.click("#new")
    assert page.js("return turns.length") == 0 and "is not kept" in notice(page)
    page.click("#undo")
    assert page.js("return turns.map(turn => turn.text)") == ["Question", "Answer."]
    page.ask("Go on.")
    assert page.js("return [turns.length, sentBodies[1].messages.length]") == [4, 3]
    page.driver.refresh()
    page.wait("models.length > 0")


def test_a_screen_reader_is_not_flooded(page):
    """Counts what live regions say during an answer, while the server's figures change and a countdown runs."""
    page.js("""window.heard = [];
        new MutationObserver(list => { for (const one of list) { const node = one.target.nodeType === 1 ? one.target : one.target.parentNode;
            const live = node?.closest("[role=status], [role=alert], [role=log], [aria-live]"); if (live) heard.push(live.id || live.className); } })
            .observe(document.body, {subtree: true, childList: true, characterData: true})""")
    play(page, [chunk(content="word ")] * 300 + ["[DONE]"])
    page.js("$('input').value = 'x'; sendInput(); for (let i = 1; i < 50; i++) showState({up: 1, running: i, waiting: i, preemptions: 0, refused: 0})")
    page.answer()
    page.js("""const turn = addTurn({role: "assistant", text: "", error: new ApiError(429, {message: "no"}, 3000)}); window.heardBefore = heard.length""")
    page.wait("document.querySelector('.wait').textContent === 'You can try again now.'")
    assert page.js("return [heard, heard.length - heardBefore <= 1]") in ([["said"], True], [["said", ""], True])


@pytest.mark.parametrize("width, height", [(320, 740), (640, 400), (512, 300), (320, 256)])
def test_it_can_be_used_at_a_high_zoom(page, width, height):
    """1280 by 1024 at 400 % is 320 by 256. The header scrolls away where the chat would have no height."""
    page.resize(width, height)
    play(page, [chunk(content="| a | b |\n|---|---|\n| " + "x" * 900 + " | 2 |\n\n```\n" + "y" * 900 + "\n```\n\n" + "z" * 900), "[DONE]"])
    page.js("$('input').value = 'x'; sendInput()")
    page.answer()
    for view in ("chat", "history", "settings", "live"):
        page.js("showView(arguments[0])", view)
        assert page.js("return document.documentElement.scrollWidth") <= width, view
    page.js("showView('chat'); scrollTo(0, 1e6)")
    log, bottom = page.js("return [$('log').clientHeight, $('composer').getBoundingClientRect().bottom]")
    assert log >= 100 and bottom <= height + 1
    page.js("askForKey('For a test.', null)")
    assert page.js("const box = $('key-dialog').getBoundingClientRect(); return box.left >= 0 && box.right <= innerWidth && $('key-dialog').scrollWidth <= $('key-dialog').clientWidth")
    page.js("$('key-dialog').close()")
    page.resize(1600, 1000)


def test_motion_can_be_reduced(page):
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-reduced-motion", "value": "reduce"}]})
    page.js("addTurn({role: 'assistant', text: 'x', busy: true})")
    assert page.js("return document.getAnimations().filter(one => one.playState === 'running').length") == 0
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_back_and_a_reload_keep_the_part_of_an_answer(page, server):
    play(page, [chunk(content="word ")] * 400 + ["[DONE]"])
    page.js("$('input').value = 'x'; sendInput()")
    page.wait("turns[1].timing.n > 5")
    page.driver.get("about:blank")
    page.driver.back()
    page.wait("models.length > 0 && !stopper")
    assert page.js("return [turns[0].text, turns[1].text.startsWith('word word')]") == ["x", True]
