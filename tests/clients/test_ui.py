"""The page at /ui in a headless Chromium, driven as its users would."""

import contextlib
import json
import math
import re
import shutil
import time

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

import rig
from conftest import MODEL, SLOWLY

QUESTION = "What is 27 plus 48?"
HOSTILE = "<img src=x onerror=\"window.struck=1\"><script>window.struck=1</script>"


def find_program(*names):
    found = next(filter(None, map(shutil.which, names)), None)
    assert found, f"none of {names} is on PATH: bash tools/setup.sh clients"
    return found


class Page:
    """The browser's only page, and the browser's own messages about it."""

    def __init__(self, folder, trusts_all=False):
        options = webdriver.ChromeOptions()
        options.binary_location = find_program("chromium", "chromium-browser", "google-chrome")
        for name in ("headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking",
                     "disable-component-update", "disable-sync", "disable-dev-shm-usage", f"user-data-dir={folder}"):
            options.add_argument("--" + name)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        options.accept_insecure_certs = trusts_all
        self.driver = webdriver.Chrome(options=options, service=Service(find_program("chromedriver")))
        self.driver.set_script_timeout(300)

    def open(self, server, width=1600, height=1000):
        """A new tab, so that no state of another test remains."""
        old = self.driver.current_window_handle
        self.driver.switch_to.new_window("tab")
        new = self.driver.current_window_handle
        self.driver.switch_to.window(old)
        self.driver.close()
        self.driver.switch_to.window(new)
        self.said()
        self.sent()
        self.resize(width, height)
        self.driver.get(server.url + "/ui")
        return self

    def resize(self, width, height):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                    {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})

    def js(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def wait(self, expression, timeout=300):
        """Waits until a JavaScript expression is truthy. Returns its value."""
        deadline = time.monotonic() + timeout
        while not (value := self.js("return " + expression)):
            assert time.monotonic() < deadline, f"{expression} stays {value!r}; the log says {self.text('#log')!r}"
            time.sleep(0.02)
        return value

    def all(self, css):
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def text(self, css):
        return "\n".join(self.js("return [...document.querySelectorAll(arguments[0])].map(node => node.textContent)", css))

    def click(self, css):
        self.all(css)[-1].click()

    def fill(self, css, text):
        field = self.all(css)[0]
        field.clear()
        field.send_keys(text)

    def act(self, name):
        """Clicks the last button of that name below a turn."""
        self.js("[...document.querySelectorAll('article button')].filter(node => node.textContent === arguments[0]).pop().click()", name)

    def ask(self, text):
        """Sends it, waits for the end of the answer, and returns its text."""
        self.fill("#input", text + Keys.ENTER)
        return self.answer()

    def answer(self):
        self.wait("!stopper && turns.length > 0")
        return self.js("return turns[turns.length - 1].text")

    def said(self):
        """The console's messages since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def sent(self):
        """The requests since the last call, as CDP describes them."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [m["params"]["request"] for m in messages if m["method"] == "Network.requestWillBeSent"]

    def bodies(self):
        return [json.loads(r["postData"]) for r in self.sent() if r["url"].endswith("/v1/chat/completions")]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    page = Page(tmp_path_factory.mktemp("chromium"))
    yield page
    page.driver.quit()


@pytest.fixture
def page(browser, server):
    browser.open(server).wait("models.length > 0")
    yield browser
    assert browser.said() == []


@contextlib.contextmanager
def crowd(server, n, max_tokens):
    """Other answers beside the page's, which therefore takes longer than a browser on a busy machine is late."""
    body = json.dumps({"prompt": "Once upon a time", "n": n, "max_tokens": max_tokens, "ignore_eos": True}).encode()
    with server.connect() as s:
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        rig.wait_until(lambda: server.metric("vllm:num_requests_running") == n)
        yield


def test_it_loads_alone_and_quietly(page, server):
    assert page.text("#model option") == "demo"
    assert page.js("return document.getElementById('f-temperature').placeholder") == "0.7"  # generation_config.json
    page.wait("points.length > 1")
    assert "policy fcfs" in page.text("#facts")
    urls = [request["url"] for request in page.sent()]
    assert server.url + "/ui" in urls and server.url + "/metrics" in urls
    assert all(url.startswith((server.url + "/", "data:image/svg+xml,")) for url in urls), urls
    unnamed = page.js("""return [...document.querySelectorAll("button, input, select, textarea, svg[tabindex]")].filter(node =>
        !node.textContent.trim() && !node.getAttribute("aria-label") && !node.labels?.length).map(node => node.outerHTML)""")
    assert unnamed == []


def test_a_conversation(page, server, client):
    page.js("""window.lengths = new Set();
        new MutationObserver(() => lengths.add(turns[1]?.body.textContent.length || 0)).observe($("log"), {subtree: true, childList: true, characterData: true})""")
    page.fill("#f-temperature", "0")
    page.fill("#f-max_tokens", "200")
    page.fill("#f-seed", "7")
    page.fill("#system", "You tell stories.")
    with crowd(server, 32, 900):
        story = page.ask("Tell me a story.")
    assert page.js("return lengths.size") > 2, "the answer came in one piece"
    messages = [{"role": "system", "content": "You tell stories."}, {"role": "user", "content": "Tell me a story."}]
    reply = client.chat.completions.create(model="demo", messages=messages, temperature=0, max_tokens=200)
    assert story == reply.choices[0].message.content != ""
    assert page.text("article:last-of-type .body") == story
    usage = page.text("article:last-of-type .usage")
    assert usage.startswith(f"{reply.usage.prompt_tokens} prompt tokens")
    assert re.search(rf"{reply.usage.completion_tokens} generated · TTFT [0-9.]+ m?s · [0-9.,]+ tokens/s", usage)
    assert "In the queue" in page.text(".trace")

    page.ask(QUESTION)
    first, second = page.bodies()
    assert first == {"model": "demo", "messages": messages, "stream": True, "stream_options": {"include_usage": True}, "quire_trace": True,
                     "temperature": 0, "max_tokens": 200, "seed": 7}
    assert [m["role"] for m in second["messages"]] == ["system", "user", "assistant", "user"]
    assert second["messages"][2]["content"] == story and "cached)" in page.text("article:last-of-type .usage")

    page.act("Regenerate")
    page.answer()
    assert page.bodies() == [second] and len(page.all("article")) == 4
    page.js("document.querySelectorAll('article.user .acts button')[1].click()")  # the first message's Edit
    page.fill("article textarea", QUESTION + Keys.ENTER)
    page.answer()
    assert [m["content"] for m in page.bodies()[0]["messages"]] == ["You tell stories.", QUESTION]
    assert len(page.all("article")) == 2

    page.driver.refresh()
    page.wait("models.length > 0")
    assert len(page.all("article")) == 2 and page.js("return $('f-seed').value") == "7"
    list_of = [{"role": "user", "text": "a"}, {"role": "assistant", "text": ""}, {"role": "user", "text": "b"}]
    assert [m["content"] for m in json.loads(page.js("return bodyOf(arguments[0])", list_of))["messages"]][1:] == ["b"]
    page.click("#clear")
    assert page.all("article") == [] and page.all("#empty")[0].is_displayed()
    page.fill("#f-temperature", "9")
    page.fill("#input", "No" + Keys.ENTER)
    assert page.bodies() == [] and page.all("article") == []
    page.click("#defaults")
    assert page.js("return $('f-temperature').value + $('f-seed').value") == ""


def test_stop_cancels_on_the_server(browser, start):
    server = start("serve", MODEL, "--port", "0", *SLOWLY)
    page = browser.open(server)
    page.wait("models.length > 0")
    # No end before the end of the context: many seconds for an answer that is stopped after a few tokens.
    page.js("""const plain = fetch;
        window.fetch = (url, options) => plain(url, options.body ? {...options, body: JSON.stringify({...JSON.parse(options.body), ignore_eos: true})} : options)""")
    aborted = 'vllm:request_success_total{model_name="model",engine="0",finished_reason="abort"}'
    for n, way in enumerate(("the button", "Escape"), 1):
        with crowd(server, 16, 1900):
            page.fill("#input", "Tell me a story." + Keys.ENTER)
            page.wait("stopper && turns[turns.length - 1].timing?.n > 3")
            assert server.metric("vllm:num_requests_running") == 17
            if way == "Escape":
                page.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
            else:
                page.click("#stop")
            page.wait("!stopper")
            rig.wait_until(lambda: server.metric(aborted) == 17 * n - 16, server.output)
        rig.wait_until(lambda: server.metric("vllm:num_requests_running") == 0 and server.metric(aborted) == 17 * n, server.output)
        assert "stopped" in page.text("article:last-of-type .usage") and page.js("return turns[turns.length - 1].text") != ""
    assert browser.said() == []


@pytest.mark.wide
def test_probabilities_are_those_of_the_api(page, client):
    page.fill("#f-temperature", "0")
    page.click("#probabilities")
    answer = page.ask(QUESTION)
    reply = client.chat.completions.create(model="demo", messages=[{"role": "user", "content": QUESTION}], temperature=0,
                                           logprobs=True, top_logprobs=5)
    expected = reply.choices[0].logprobs.content
    shown = page.js("return [...document.querySelectorAll('.body .token')].map(node => [node.textContent, node.style.getPropertyValue('--p'), node.className])")
    assert len(shown) == len(expected) > 5
    for (text, p, _), token in zip(shown, expected):
        assert text == token.token and abs(float(p) - math.exp(token.logprob)) <= 0.5001e-4
    assert "".join(text for text, _, kind in shown if kind == "token") == answer
    assert [text for text, _, kind in shown if kind == "token past"] == ["<|im_end|>"]

    at = min(range(len(expected)), key=lambda i: expected[i].logprob)
    page.js("document.querySelector('.body .token').focus()")
    for _ in range(at):
        page.driver.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    rows = page.js("return [...document.querySelectorAll('#alternatives tr')].map(row => [...row.children].slice(0, 2).map(cell => cell.textContent))")
    top = expected[at].top_logprobs
    assert [name for name, _ in rows[:5]] == [re.sub("^ | $", "␣", t.token.replace("\n", "⏎")) for t in top]
    for (_, share), token in zip(rows, top):
        p = math.exp(token.logprob)
        assert share == "< 0.01 %" if p < 1e-4 else abs(float(share.split(" ")[0]) / 100 - p) <= 0.51e-3
    total = sum(0 if share.startswith("<") else float(share.split(" ")[0]) for _, share in rows)
    assert abs(total - 100) <= 0.4, rows  # the rest has its own row; 7 roundings to 0.1
    page.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert not page.all("#alternatives")[0].is_displayed()


@pytest.mark.wide
def test_a_key_is_asked_for(browser, start):
    server = start("serve", MODEL, "--port", "0", "--api-key", "sesame")
    page = browser.open(server)
    page.wait("$('key-dialog').open")
    assert page.text("#key-why") == "This server asks for an API key."
    page.fill("#key", "barley" + Keys.ENTER)
    page.wait("$('key-dialog').open && $('key-why').textContent === 'The server does not take this key.'")
    page.click("#key-cancel")
    page.fill("#input", QUESTION + Keys.ENTER)
    page.wait("$('key-dialog').open && turns.length === 2 && turns[1].error")
    page.fill("#key", "sesame" + Keys.ENTER)
    page.wait("turns.length === 2 && !stopper && !turns[1].error")  # the answer that waited for the key
    assert page.answer() != "" and page.text("#model option") == "model"
    page.wait("points.length > 0")
    assert {r["headers"].get("Authorization") for r in page.sent() if "/v1/" in r["url"]} == {None, "Bearer barley", "Bearer sesame"}
    assert page.js("return [document.cookie, sessionStorage.getItem('quire.key')]") == ["", "sesame"]
    assert "sesame" not in page.js("return JSON.stringify(localStorage)")
    assert all("401 (Unauthorized)" in line for line in browser.said())


@pytest.mark.wide
def test_a_limit_says_when_to_come_back(browser, start, tmp_path):
    path = tmp_path / "tenants.json"
    path.write_text(json.dumps([{"name": "slow", "key": "k", "requests_per_minute": 1}]))
    server = start("serve", MODEL, "--port", "0", "--tenants", path)
    page = browser.open(server)
    page.wait("$('key-dialog').open")
    page.fill("#key", "k" + Keys.ENTER)
    page.wait("models.length > 0")
    page.ask(QUESTION)
    page.ask(QUESTION)
    assert page.js("return turns[3].error.status") == 429
    box = page.text("article .error")
    assert "requests a minute" in box and "Try again" in box
    seconds = int(re.search(r"room again in (\d+) s", box)[1])
    assert 1 < seconds <= 60
    page.wait(f"+/in (\\d+) s/.exec(document.querySelector('.wait').textContent)[1] < {seconds}")
    page.act("Try again")
    page.wait("!stopper && turns[3].error")
    assert len(page.all("article")) == 4
    browser.said()


@pytest.mark.wide
def test_charts_show_what_was_done(page, client):
    page.wait("points.length > 0")
    story = {"model": "demo", "messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 60, "temperature": 0}
    known = client.chat.completions.create(**story).choices[0].message.content
    client.chat.completions.create(**story, prediction={"type": "content", "content": known})
    for _ in range(2):
        page.ask("Once upon a time there was a small house and a big tree. " * 6)
    page.wait("['generated', 'ttft50', 'itl95', 'hitRate', 'acceptance'].every(key => points.some(point => point[key] > 0))")
    page.wait("points.length > 2")
    keys = ("running", "waiting", "used", "ttft50", "ttft95", "ttftMean", "itl50", "itl95", "itlMean", "generated", "prompt", "hitRate", "acceptance",
            "perStep")

    def paths():
        return {key: page.js("return document.querySelector(`[data-series=${arguments[0]}]`).getAttribute('d')", key) for key in keys}

    def has_lines():
        """A line needs two points, and a busy machine may miss the one beside an answer."""
        page.ask("Once upon a time there was a small house and a big tree. " * 6)
        return all("L" in path for path in paths().values())

    rig.wait_until(has_lines, paths)
    for key, path in paths().items():
        assert path.startswith("M") and "L" in path and "NaN" not in path, (key, path)
    assert "of " in page.text("figure .legend") and "ms" in page.text("figure svg text") and "100 %" in page.text("figure svg text")
    assert page.js("return Math.max(...points.map(point => point.perStep || 0))") > 1 and "since the start" in page.text("figure:last-child .legend")
    page.js("document.querySelectorAll('figure > svg')[4].focus()")
    page.driver.switch_to.active_element.send_keys(Keys.ARROW_LEFT + Keys.ARROW_LEFT)
    assert re.search(r"\d+ s ago.*generated.*/s.*prompt", page.text("figure:nth-child(5) .tip"), re.S)
    page.js("Object.defineProperty(document, 'hidden', {configurable: true, get: () => true})")

    def is_quiet():
        page.sent()
        time.sleep(1.5)
        return page.sent() == []

    rig.wait_until(is_quiet, "the last request of a page that nobody sees")
    n = page.js("delete document.hidden; document.dispatchEvent(new Event('visibilitychange')); return points.length")
    page.wait(f"points.length > {n}")


def test_figures_come_from_histograms(page):
    text = ('# HELP x y\nx_bucket{m="a\\",le=\\"7}",le="0.1"} 4\nx_bucket{m="b",le="0.1"} 0\nx_bucket{m="a",le="0.2"} 8\n'
            'x_bucket{m="a",le="+Inf"} 10\nx_sum{m="a"} 3\n')
    found = page.js("""const now = histogramOf(parseMetrics(arguments[0]), "x"), zero = {buckets: [], sum: 1};
        const grown = histogramSince(now, zero);
        return [now.buckets.map(one => one[1]), [.2, .4, .6, .9].map(grown.quantile), grown.mean, histogramSince(now, now), histogramSince({buckets: [[1, 0]], sum: 0}, now)]""", text)
    assert found[0] == [4, 8, 10] and found[1] == pytest.approx([0.05, 0.1, 0.15, 0.2]) and found[2] == pytest.approx(0.2)
    assert found[3] is None and found[4] is None


def test_text_stays_text(browser, start):
    server = start("serve", MODEL, "--port", "0", "--served-model-name", HOSTILE)
    page = browser.open(server)
    page.wait("models.length > 0")
    page.click("#probabilities")
    page.ask(HOSTILE)
    page.js("$('model').firstChild.value = arguments[0]", HOSTILE + "2")
    page.ask("Again")
    assert HOSTILE in page.text(".error strong") and page.js("return turns[3].error.status") == 404
    page.js("""const turn = addTurn({role: "assistant", text: "```\\n" + arguments[0] + "\\n```\\n`" + arguments[0] + "`**" + arguments[0] + "**"});
        turn.tokens.push({text: arguments[0], name: arguments[0], p: .5, others: [{token: arguments[0], logprob: -1}]});
        drawTurn(turn); showAlternatives(turn.tokens[0], turn.node);
        turn.tokens = []; drawTurn(turn)""", HOSTILE)
    for css in ("#model option", "article h2", "article.user .body", "article pre code", "#alternatives th"):
        assert HOSTILE in page.text(css), css
    assert page.js("return [document.images.length, document.scripts.length, window.struck]") == [0, 1, None]
    assert [line for line in browser.said() if "404 (Not Found)" not in line] == []
    # As a second protection of the page: the browser makes no HTML of text and runs only the page's own scripts.
    assert page.js("try { document.body.innerHTML = '<p>'; } catch (error) { return error.name }") == "TypeError"
    assert "Trusted" in "".join(browser.said())


def luminance(hexadecimal):
    parts = [int(hexadecimal[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def test_it_fits_and_can_be_read(page):
    page.ask(QUESTION)
    for width, views in ((360, {"chat", "history", "settings", "live"}), (1024, {"chat", "live"}), (1600, {"chat"})):
        page.resize(width, 740)
        for view in views:
            page.js("showView(arguments[0])", view)
            assert page.js("return document.documentElement.scrollWidth") <= width
            wide = page.js("return [...document.querySelectorAll('button, input, select, textarea, figure')].filter(node => node.getClientRects().length"
                           " && !node.closest('.unseen') && node.getBoundingClientRect().right > innerWidth + 1).map(node => node.id || node.textContent)")
            assert wide == [], (width, view, wide)
            seen = [name for name in ("chat", "history", "settings", "live") if page.js("return $(arguments[0]).clientWidth > 0", name)]
            assert seen == {360: [view], 1024: ["chat", "history", "settings"] if view == "chat" else ["live"],
                            1600: ["chat", "history", "settings", "live"]}[width]
    for scheme in ("light", "dark"):
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        colour = page.js("""const style = getComputedStyle(document.documentElement);
            return Object.fromEntries("ground panel raised text quiet accent on-accent bad bad-ground a b c".split(" ").map(name => [name, style.getPropertyValue("--" + name).trim()]))""")
        texts = [(text, back) for text in ("text", "quiet") for back in ("ground", "panel", "raised")]
        for text, back in texts + [("on-accent", "accent"), ("bad", "bad-ground"), ("text", "bad-ground"), ("bad", "panel")]:
            a, b = sorted((luminance(colour[text]), luminance(colour[back])))
            assert (b + 0.05) / (a + 0.05) >= 4.5, (scheme, text, back)  # WCAG AA; 3 for lines
        # The darkest tint, over the chat's background.
        tint = page.js("""const token = make("span", "token"); token.style.setProperty("--p", 0); $("log").append(token);
            return getComputedStyle(token).backgroundColor""")
        *tint, share = map(float, re.findall(r"[0-9.]+", tint))
        panel = [int(colour["panel"][i:i + 2], 16) / 255 for i in (1, 3, 5)]
        deepest = "#" + "".join(f"{round(255 * (share * t + (1 - share) * p)):02x}" for t, p in zip(tint, panel))
        a, b = sorted((luminance(colour["text"]), luminance(deepest)))
        assert (b + 0.05) / (a + 0.05) >= 4.5, (scheme, deepest)
        for line in "abc":
            a, b = sorted((luminance(colour[line]), luminance(colour["panel"])))
            assert (b + 0.05) / (a + 0.05) >= 3, (scheme, line)
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
