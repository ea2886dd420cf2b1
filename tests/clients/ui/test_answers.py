"""Answers of the page at /ui from a server that the test plays: reasoning, tool calls, schemas, long streams, broken ones."""

import json

import pytest

from test_ui import browser, QUESTION  # noqa: F401 (a fixture)

# fetch answers POST /v1/chat/completions with the events of `played`, some at a time, and none from number `heldAt` on; the rest goes to the server.
PLAY = """const plain = fetch;
    window.sentBodies = [];
    window.fetch = (url, options = {}) => {
        if (!String(url).endsWith("/v1/chat/completions")) return plain(url, options);
        sentBodies.push(JSON.parse(options.body));
        const events = window.played.shift();
        const bytes = new TextEncoder();
        let at = 0;
        return Promise.resolve(new Response(new ReadableStream({async pull(to) {
            if (at >= events.length) return to.close();
            do await new Promise(done => setTimeout(done, 0)); while (at >= (window.heldAt ?? Infinity));
            for (const end = at + (window.atOnce || 1); at < Math.min(end, events.length); at++) to.enqueue(bytes.encode("data: " + events[at] + "\\n\\n"));
        }})));
    };"""


def chunk(finish=None, **delta):
    return json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


@pytest.fixture
def page(browser, server):
    browser.open(server).wait("models.length > 0")
    browser.js(PLAY)
    yield browser
    browser.js("localStorage.clear()")
    assert browser.said() == []


def play(page, *answers):
    page.js("window.played = arguments[0]", answers)


def test_reasoning_is_folded(page):
    play(page, [chunk(role="assistant", content=""), chunk(reasoning_content="First <b>", reasoning="First <b>"), chunk(reasoning_content=" then", reasoning=" then"),
                chunk(content="Done."), chunk("stop"), "[DONE]"])
    assert page.ask("Why?") == "Done."
    assert page.js("const fold = document.querySelector('.reasoning'); return [fold.open, fold.querySelector('pre').textContent, turns[1].body.textContent]") == \
        [False, "First <b> then", "Done."]
    page.driver.refresh()
    page.wait("models.length > 0")
    assert page.text(".reasoning pre") == "First <b> then"


def test_tool_calls_and_their_results(page):
    tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
    page.js("document.querySelector('#sampling details').open = true")
    page.fill("#tools", json.dumps(tools))
    calls = [chunk(tool_calls=[{"index": i, "id": f"c{i}", "type": "function", "function": {"name": "weather", "arguments": ""}}]) for i in range(2)]
    more = [chunk(tool_calls=[{"index": i, "function": {"arguments": piece}}]) for i in range(2) for piece in ('{"city":', f'"{i}"}}')]
    play(page, [chunk(role="assistant", content=None), *calls, *more, chunk("tool_calls"), "[DONE]"], [chunk(content="Rain."), chunk("stop"), "[DONE]"])
    page.ask("Weather?")
    assert page.js("return [...document.querySelectorAll('.call')].map(fold => [fold.open, fold.textContent])") == \
        [[False, f'Tool call: weather{{\n  "city": "{i}"\n}}'] for i in range(2)]
    page.driver.refresh()  # the calls stay
    page.wait("models.length > 0")
    page.js(PLAY)
    play(page, [chunk(content="Rain."), chunk("stop"), "[DONE]"])
    page.js("document.querySelector('#sampling details').open = true")
    assert page.js("return $('input').placeholder") == "Result of weather" and json.loads(page.js("return $('tools').value")) == tools
    page.js("for (const text of ['wet', 'dry']) { $('input').value = text; sendInput(); }")
    assert page.answer() == "Rain."
    [body] = page.js("return sentBodies")
    assert body["tools"] == tools
    assert body["messages"][1:] == [
        {"role": "assistant", "content": None, "tool_calls": [{"id": f"c{i}", "type": "function", "function": {"name": "weather", "arguments": f'{{"city":"{i}"}}'}}
                                                              for i in range(2)]},
        {"role": "tool", "tool_call_id": "c0", "content": "wet"}, {"role": "tool", "tool_call_id": "c1", "content": "dry"}]
    assert page.js("return $('input').placeholder") == "Message"


def test_a_schema_is_sent_and_its_answer_is_code(page):
    page.js("document.querySelector('#sampling details').open = true")
    page.fill("#schema", "{not JSON")
    page.js("$('input').value = 'x'; sendInput()")
    assert page.js("return [turns.length, $('schema').validationMessage.slice(0, 17), sentBodies.length]") == [0, "This is not JSON:", 0]
    page.fill("#schema", "[1]")
    page.js("sendInput()")
    assert page.js("return $('schema').validationMessage").startswith("A schema is an object")
    schema = {"type": "object", "properties": {"a_b_c": {"type": "string"}}}
    page.fill("#schema", json.dumps(schema))
    play(page, [chunk(content='{"a_b_c": '), chunk(content='"*x*"}'), chunk("stop"), "[DONE]"])
    page.js("sendInput()")
    page.answer()
    assert page.js("return sentBodies[0].response_format") == {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}
    assert page.text(".code code") == '{"a_b_c": "*x*"}' and page.text(".hl-string") == '"a_b_c"\n"*x*"'


def test_the_server_takes_a_schema(browser, server):
    page = browser.open(server)
    page.wait("models.length > 0")
    page.js("document.querySelector('#sampling details').open = true")
    page.fill("#schema", json.dumps({"type": "object", "properties": {"sum": {"type": "integer", "minimum": 0, "maximum": 999}}, "required": ["sum"], "additionalProperties": False}))
    assert isinstance(json.loads(page.ask(QUESTION))["sum"], int)
    page.fill("#schema", json.dumps({"type": "nonsense"}))
    page.ask(QUESTION)
    assert page.js("return [turns[3].error.status, $('schema').classList.contains('refused')]") == [400, True]
    browser.said()


def test_a_stream_that_breaks_keeps_its_part(page):
    play(page, [chunk(content="**Half"), chunk(content=" an")])
    assert page.ask("x") == "**Half an"
    assert "The connection broke" in page.text(".error") and page.js("return store.all()[0].turns[1].text") == "**Half an"
    play(page, [chunk(content="All"), chunk("stop"), "[DONE]"])
    page.act("Try again")
    page.wait("!stopper && turns[1].text === 'All'")
    assert page.text(".error") == ""


@pytest.mark.parametrize("index", [-1, 1, 1e9, "__proto__", None, 0.5])
def test_a_call_with_a_wrong_index_is_an_error(page, index):
    """An array of 10^9 places would stop the page when it is kept."""
    play(page, [chunk(content="Part"), chunk(tool_calls=[{"index": index, "id": "c", "function": {"name": "f", "arguments": ""}}]), "[DONE]"])
    page.ask("x")
    assert "wrong index" in page.text(".error") and page.js("return store.all()[0].turns.map(turn => turn.calls)") == [None, None]


HOSTILE = ["\u202ereversed\u202c \u2066isolate", "\u200b\u200d\ufeff" * 500, "".join(map(chr, range(32))), "e" + "\u0301" * 5000, "<script>struck=1</script>" * 50,
           "[x](javascript:struck=1) ![y](data:text/html,z) <a href=//x>", "|" * 3000 + "\n" + "|-" * 3000, "> " * 3000, "```\n" * 501, "\u0634\u0643\u0631\u0627",
           "x" * 1000000, "{\"a\":" * 2000]


def test_hostile_answers_stay_inside_the_page(page):
    play(page, *[[chunk(content=text), chunk("stop"), "[DONE]"] for text in HOSTILE])
    page.resize(320, 740)
    for text in HOSTILE:
        page.js("$('input').value = 'x'; sendInput()")
        assert page.answer() == text
        assert page.js("return [document.documentElement.scrollWidth, $('log').scrollWidth <= $('log').clientWidth]") == [320, True], text[:40]
    assert page.js("return [window.struck, document.querySelectorAll('#log :is(script, img, iframe)').length]") == [None, 0]
    assert page.js("return [...document.querySelectorAll('#log a')].filter(link => !/^https?:|^mailto:/.test(link.href)).length") == 0


def test_a_key_that_no_header_can_carry(page):
    page.js("kept.set('key', 'schlüssel 鍵')")
    play(page, [chunk("stop"), "[DONE]"])
    page.ask("x")
    assert page.js("return [turns[1].error.status, $('key-dialog').open]") == [401, True]
    page.js("takeKey('')")


TOKENS = 20000


@pytest.mark.wide
@pytest.mark.parametrize("kind", ["paragraphs", "one list", "one code", "one line"])
def test_a_long_answer_leaves_the_page_responsive(page, kind):
    piece = {"paragraphs": "A *word* of\n\ntext `x`, ", "one list": "- item **b**\n", "one code": "x = 1 # y\n", "one line": "word *b* `c` "}[kind]
    begin = "```python\n" if kind == "one code" else ""
    page.js("""window.atOnce = 10; window.played = [[JSON.stringify({choices: [{delta: {content: arguments[0]}}]}),
            ...Array(arguments[2]).fill(JSON.stringify({choices: [{delta: {content: arguments[1]}}]})), "[DONE]"]];
        window.longTasks = []; new PerformanceObserver(list => longTasks.push(...list.getEntries().map(one => one.duration))).observe({type: "longtask"});
        window.drawn = 0; const draw = drawTurn; window.drawMs = 0;
        window.began = performance.now();
        drawTurn = turn => { const t = performance.now(); draw(turn); drawMs += performance.now() - t; drawn++; }""", begin, piece, TOKENS)
    page.js("$('input').value = 'x'; sendInput()")
    page.wait("!stopper && turns.length === 2", timeout=300)
    took, draws, spent, longest = page.js("return [performance.now() - began, drawn, drawMs, Math.max(0, ...longTasks)]")
    print(f"{kind}: {took:.0f} ms, {draws} draws in {spent:.0f} ms, longest task {longest:.0f} ms")
    assert page.js("return turns[1].text.length") == len(begin) + TOKENS * len(piece)
    assert spent < 0.5 * took
