"""What the page at /ui keeps: conversations, export and import, undo, files, other tabs, a full storage."""

import json

import pytest

from test_ui import browser, QUESTION  # noqa: F401 (a fixture)


@pytest.fixture
def page(browser, server):
    browser.open(server).wait("models.length > 0")
    yield browser
    browser.js("localStorage.clear()")
    assert browser.said() == []


def titles(page):
    return page.js("return [...document.querySelectorAll('#chats button[data-chat^=open]')].map(node => node.textContent)")


def notice(page):
    return page.text("#notice-text")


def test_conversations_stay(page):
    first = page.ask(QUESTION)
    page.click("#new")
    second = page.ask("Tell me a story.")
    assert titles(page) == ["Tell me a story.", QUESTION]
    page.driver.refresh()
    page.wait("models.length > 0")
    assert page.js("return turns.map(turn => turn.text)") == ["Tell me a story.", second]
    page.js("[...document.querySelectorAll('#chats button[data-chat^=open]')][1].click()")
    assert page.js("return turns.map(turn => turn.text)") == [QUESTION, first]
    # A new tab begins anew and has the list.
    url, old = page.driver.current_url, page.driver.current_window_handle
    page.driver.switch_to.new_window("tab")
    page.driver.get(url)
    page.wait("models.length > 0")
    assert page.js("return turns.length") == 0 and len(titles(page)) == 2
    page.driver.close()
    page.driver.switch_to.window(old)


def test_clear_and_delete_can_be_undone(page):
    answer = page.ask(QUESTION)
    usage = page.text("article .usage")
    page.click("#clear")
    assert page.all("article") == [] and titles(page) == [] and notice(page) == "The conversation was deleted."
    page.click("#undo")
    assert page.js("return turns.map(turn => turn.text)") == [QUESTION, answer] and titles(page) == [QUESTION] and notice(page) == ""
    assert page.text("article .usage") == usage, "the figures came back too"
    page.click("#new")
    page.js("document.querySelector('#chats button[data-chat^=delete]').click()")
    assert titles(page) == []
    page.click("#undo")
    assert titles(page) == [QUESTION]


def put_file(page, css, path):
    page.js("document.querySelector(arguments[0]).hidden = false", css)
    page.all(css)[0].send_keys(str(path))
    page.js("document.querySelector(arguments[0]).hidden = true", css)


def test_export_and_import(page, tmp_path):
    answer = page.ask(QUESTION)
    page.click("#new")
    page.ask("Hello")
    text = page.js("return exported(store.all())")
    file = tmp_path / "all.json"
    file.write_text(text)
    put_file(page, "#import-file", file)
    page.wait("document.getElementById('notice-text').textContent")
    assert notice(page) == "all.json: 0 of 2 conversations were imported, 2 were here already."
    page.js("localStorage.clear(); listChats()")
    put_file(page, "#import-file", file)
    page.wait("document.querySelectorAll('#chats li').length === 2")
    assert titles(page) == ["Hello", QUESTION]
    page.js("[...document.querySelectorAll('#chats button[data-chat^=open]')][1].click()")
    assert page.js("return turns.map(turn => turn.text)") == [QUESTION, answer]
    page.js("""window.saved = null; URL.createObjectURL = blob => { blob.text().then(text => { saved = text; }); return "#"; };
        HTMLAnchorElement.prototype.click = () => {}""")
    page.click("#export")
    page.wait("saved")
    assert json.loads(page.js("return saved")) == json.loads(text)


GOOD = {"id": "a", "title": "t", "changed": 1, "turns": [{"role": "user", "text": "x"}]}


@pytest.mark.parametrize("text, why", [
    ("", "It is not JSON."),
    ("{", "It is not JSON."),
    ("null", "It was not exported by this page"),
    ("[1]", "It was not exported by this page"),
    ({"quire": "conversations", "version": 2, "conversations": []}, "This page reads version 1"),
    ({"quire": "conversations", "version": 1, "conversations": {}}, "conversations: must be an array"),
    ([GOOD, None], "conversations[1]: must be an object"),
    ([{**GOOD, "id": "../x"}], "conversations[0].id: must be letters"),
    ([{**GOOD, "id": "__proto__", "turns": [{"role": "user", "text": "x", "files": [{"name": "n"}]}]}], "turns[0].files[0].text: must be a string"),
    ([{**GOOD, "changed": "1"}], "conversations[0].changed: must be a number"),
    ([{**GOOD, "turns": [{"role": "system", "text": ""}]}], "conversations[0].turns[0].role: must be"),
    ([{**GOOD, "turns": [{"role": "user", "text": ["<img>"]}]}], "conversations[0].turns[0].text: must be a string"),
    ([{**GOOD, "turns": [{"role": "assistant", "text": "", "calls": [None]}]}], "turns[0].calls[0].id: must be a string"),
])
def test_a_wrong_file_says_what_is_wrong(page, tmp_path, text, why):
    if isinstance(text, list):
        text = {"quire": "conversations", "version": 1, "conversations": text}
    file = tmp_path / "wrong.json"
    file.write_text(text if isinstance(text, str) else json.dumps(text))
    put_file(page, "#import-file", file)
    page.wait("document.getElementById('notice-text').textContent")
    assert notice(page).startswith("wrong.json was not imported. ") and why in notice(page)
    assert titles(page) == [] and page.js("return ({}).turns") is None


def test_a_damaged_entry_is_left_out(page):
    page.ask(QUESTION)
    page.js("localStorage.setItem('quire.chat.bad', '{'); localStorage.setItem('quire.chat.worse', '{\"id\": 1}'); localStorage.setItem('other', 'x')")
    page.driver.refresh()
    page.wait("models.length > 0")
    assert titles(page) == [QUESTION]


def test_a_full_storage_is_told(page):
    page.js("""let n = 1 << 20; for (let i = 0; n > 0; i++) try { localStorage.setItem("filler" + i, "x".repeat(n)); } catch { n >>= 1; }""")
    answer = page.ask(QUESTION)
    assert "storage is full" in notice(page) and page.js("return turns[1].text") == answer
    page.js("localStorage.clear(); showNotice('')")
    page.ask("Hello")
    assert notice(page) == "" and page.js("return store.all()[0].turns.length") == 4


def test_two_tabs_do_not_overwrite_each_other(page, server):
    page.ask(QUESTION)
    chat = page.js("return current")
    changed = page.js("""const chat = {...store.read(current), turns: [{role: "user", text: "from the other tab"}]};
        window.foreign = new StorageEvent("storage", {key: PREFIX + current, newValue: JSON.stringify(chat)}); return chat""")
    # Idle: the other tab's version is shown.
    page.js("store.write(arguments[0]); dispatchEvent(foreign)", changed)
    assert page.js("return turns.map(turn => turn.text)") == ["from the other tab"]
    # Busy: both are kept.
    page.js("$('input').value = 'Tell me a story.'; sendInput(); store.write(arguments[0]); dispatchEvent(foreign)", changed)
    page.answer()
    assert page.js("return store.read(arguments[0]).turns.map(turn => turn.text)", chat) == ["from the other tab"]
    assert page.js("return [current !== arguments[0], store.read(current).turns.length, store.all().length]", chat) == [True, 3, 2]


def test_an_unseen_change_of_another_tab_is_not_overwritten(page):
    """A frozen page gets no storage event, and two tabs may write before either gets one."""
    page.ask(QUESTION)
    chat = page.js("return current")
    other = [{"role": "user", "text": "from the other tab"}]
    page.js("store.write({...store.read(current), turns: arguments[0]})", other)
    page.ask("Tell me a story.")
    assert page.js("return store.read(arguments[0]).turns", chat) == other
    assert page.js("return [current !== arguments[0], store.read(current).turns.length]", chat) == [True, 4]
    chat = page.js("return current")
    page.js("store.write({...store.read(current), turns: arguments[0]}); dispatchEvent(new PageTransitionEvent('pageshow', {persisted: true}))", other)
    assert page.js("return [current, turns.map(turn => turn.text)]") == [chat, ["from the other tab"]]


def test_two_real_tabs(page):
    """Both show one conversation and answer at once: each answer is kept."""
    page.ask(QUESTION)
    page.js("open(location.href)")
    one, two = page.driver.current_window_handle, next(h for h in page.driver.window_handles if h != page.driver.current_window_handle)
    chat = page.js("return current")
    page.driver.switch_to.window(two)
    page.wait("models.length > 0")
    page.js("openChat(arguments[0])", chat)
    for tab, text in ((one, "Tell me a story."), (two, "Hello")):
        page.driver.switch_to.window(tab)
        page.js("$('input').value = arguments[0]; sendInput()", text)
    for tab in (one, two):
        page.driver.switch_to.window(tab)
        page.answer()
    found = page.js("return store.all().map(chat => chat.turns.map(turn => turn.text))")
    for text in ("Tell me a story.", "Hello"):
        assert any(texts[0] == QUESTION and text in texts and texts[texts.index(text) + 1 :] for texts in found), (text, found)
    page.driver.close()
    page.driver.switch_to.window(one)


def test_a_question_is_kept_before_its_answer(page):
    page.js("$('input').value = 'Tell me a story.'; sendInput()")
    assert page.js("return [Boolean(stopper), store.read(current).turns[0].text]") == [True, "Tell me a story."]
    page.driver.refresh()
    page.wait("models.length > 0")
    assert page.js("return turns[0].text") == "Tell me a story."


def test_a_long_conversation_opens(page):
    """2,000 turns: listed, opened, continued and exported."""
    page.js("""store.write({id: "long", title: "Long", changed: 1, turns: Array.from({length: 2000}, (_, i) =>
        ({role: i % 2 ? "assistant" : "user", text: "Turn " + i + ": **bold** and `code`\\n\\n- a\\n- b"}))}); listChats()""")
    took = page.js("const began = performance.now(); openChat('long'); document.body.offsetHeight; return performance.now() - began")
    print(f"2,000 turns: {took:.0f} ms")
    assert page.js("return [turns.length, nearEnd()]") == [2000, True]
    assert page.js("return imported(exported(store.all()))[0].turns.length") == 2000


def test_files_go_with_a_message(page, tmp_path):
    page.fill("#f-max_tokens", "20")  # both answers fit into the model's context
    (tmp_path / "notes.md").write_text("A ```fence``` and é.")
    put_file(page, "#attach-file", tmp_path / "notes.md")
    page.wait("attached.length === 1")
    assert "notes.md · 20 characters" in page.text("#files")
    page.ask("Sum up.")
    assert page.bodies()[0]["messages"][0]["content"] == "File notes.md:\n````\nA ```fence``` and é.\n````\n\nSum up."
    assert page.js("return attached.length") == 0 and "notes.md" in page.text("article.user summary")
    page.driver.refresh()
    page.wait("models.length > 0")
    page.ask("Again.")
    assert "File notes.md" in page.bodies()[0]["messages"][0]["content"]


def test_dropped_files_are_checked(page):
    drop = """const data = new DataTransfer();
        for (const [name, content] of arguments[0]) data.items.add(new File([Array.isArray(content) ? new Uint8Array(content) : content], name));
        window.kept = !document.querySelector(arguments[1]).dispatchEvent(new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true}))"""
    page.js(drop, [["large.txt", "x" * 5000000], ["latin.txt", [0xe9, 0x20]], ["zero.bin", [0x41, 0]], ["good.txt", "fine"]], "header")
    page.wait("attached.length === 1")
    assert page.js("return kept"), "the browser would have left the page"
    assert notice(page) == "large.txt has 5 MB; a file may have 1 MB. latin.txt is not a text file in UTF-8. zero.bin is not a text file in UTF-8."
    page.js("document.querySelector('#files button').click()")
    assert page.js("return attached.length") == 0
