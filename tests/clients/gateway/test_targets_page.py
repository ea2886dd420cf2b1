"""The page of targets at /ui/targets, in a headless Chromium."""

import json
import subprocess

import pytest
import rig
from conftest import QUIRE
from selenium.webdriver.common.keys import Keys
from test_experiments import lines, many
from test_ui import browser  # noqa: F401 (a fixture)
from upstream import Upstream
from upstreams import gateway


@pytest.fixture
def upstreams():
    both = [Upstream(), Upstream()]
    yield both
    for u in both:
        u.close()


def serve(start, tmp_path, upstreams, *arguments):
    file = tmp_path / "models.yaml"
    file.write_text("models:\n  small:\n    price_per_1k: {input: 0.00015, cached_input: 0.00002, output: 0.0006}\n    targets:\n"
                    + "".join(f"      - {{name: t{i}, url: '{u.url}', max_concurrent: 9}}\n" for i, u in enumerate(upstreams)))
    return start("serve", "--models", file, "--port", "0", *arguments)


def cell(page, row, column):
    return page.js("return document.querySelector('#targets tbody').rows[arguments[0]]?.cells[arguments[1]].textContent", row, column)


def open_page(browser, server):
    browser.open(server)
    browser.driver.get(server.url + "/ui/targets")
    browser.said()
    browser.sent()
    browser.driver.refresh()
    return browser


def test_it_shows_each_target(browser, start, tmp_path, upstreams):
    server = serve(start, tmp_path, upstreams)
    for _ in range(2):
        rig.answered(server, "/v1/chat/completions", {"model": "small", "messages": [{"role": "user", "content": "a"}]})
    page = open_page(browser, server)
    page.wait("document.querySelectorAll('#targets tbody tr').length === 2")
    assert [cell(page, 0, i) for i in range(7)] == ["small", "t0", "url", "up", "closed", "0 of 9", "0"]
    assert [cell(page, 1, i) for i in (1, 8, 9, 10, 11)] == ["t1", "1", "0", "40 %", "$0.00000578"]
    assert page.text("#state") == "2 healthy"
    urls = [request["url"] for request in page.sent()]
    assert server.url + "/gateway/targets" in urls
    assert all(url.startswith((server.url + "/", "data:image/svg+xml,")) for url in urls), urls
    assert page.said() == []


def test_it_follows_a_target_that_fails(browser, start, tmp_path, upstreams):
    server = serve(start, tmp_path, upstreams)
    page = open_page(browser, server)
    page.wait("document.querySelectorAll('#targets tbody tr').length === 2")
    page.js("window.row = document.querySelector('#targets tbody').rows[0]")
    upstreams[0].close()
    for _ in range(20):
        rig.answered(server, "/v1/chat/completions", {"model": "small", "messages": [{"role": "user", "content": "a"}]})
    page.wait("""(rows => [rows[0].cells[3], rows[0].cells[4], rows[1].cells[3], document.getElementById('state')].map(node => node.textContent).join()
        === 'down,open,up,1 of 2 not healthy')(document.querySelector('#targets tbody').rows)""")
    assert page.js("return row === document.querySelector('#targets tbody').rows[0]"), "a row was made anew"


def rows_of(page, at):
    """The texts of a table's rows below "Experiments", each by its heads."""
    return page.js("""const table = document.querySelectorAll("#experiments table")[arguments[0]], texts = row => [...row.cells].map(cell => cell.textContent);
        const heads = texts(table.tHead.rows[0]);
        return [...table.tBodies[0].rows].map(row => Object.fromEntries(texts(row).map((text, i) => [heads[i], text])))""", at)


def plain(value):
    """Three digits without an exponent."""
    return f"{float(f'{value:.3g}'):.12f}".rstrip("0")


@pytest.mark.parametrize("width", [360, 1024, 1600])
def test_it_shows_experiments(browser, start, tmp_path, upstreams, width):
    cheap, dear = upstreams
    models = lines(cheap, dear, "metric: cost, ")
    models[2] = models[2].replace("0.0006", "0.0012")
    server = gateway(start, tmp_path, [*models, "other: {route: experiment, arms: {x: {model: a}, y: {model: b}}}"])
    page = open_page(browser, server)
    page.resize(width, 740)
    page.wait("document.querySelectorAll('#experiments section').length === 2")
    assert rows_of(page, 1)[0]["Verdict"] == "too few requests: each arm needs 100"
    page.js("window.row = document.querySelectorAll('#experiments table')[1].tBodies[0].rows[0]")
    many(server, 450, users=450)
    page.wait("document.querySelector('#experiments .hint').textContent.includes(' 450 requests since')")
    assert page.js("return row.isConnected"), "a row was made anew"
    arms, comparisons = rows_of(page, 0), rows_of(page, 1)
    assert [(arm["Arm"], arm["Model"], arm["Share"]) for arm in arms] == [("control (control)", "a", "66.7 %"), ("new", "b", "33.3 %")]
    assert sum(int(arm["Requests"]) for arm in arms) == 450
    decides = comparisons[0]
    assert decides["Metric"] == "Cost of a request (decides)" and decides["Verdict"] == "higher than control: worse"
    assert decides["Samples"] == " / ".join(arm["Requests"] for arm in arms)
    report = json.loads(subprocess.run([str(QUIRE), "ab", "report", "--url", server.url, "--json"], capture_output=True, text=True, check=True, timeout=300).stdout)
    served = rig.answered(server, "/gateway/experiments/report").json()["data"]
    assert [one.pop("metric") for one in served] == ["cost", None]
    for one, other in zip(served, report["experiments"], strict=True):
        rows = zip(one["comparisons"], other["comparisons"], strict=True)
        assert [[(k, row[k], same[k]) for k in row if row[k] != same[k]] for row, same in rows if row != same] == []
        assert {k: (v, other[k]) for k, v in one.items() if v != other[k]} == {}
    row = next(row for row in served[0]["comparisons"] if row["is_chosen"])
    assert decides["Difference"] == f"+${plain(row['difference'])} (+{100 * row['difference'] / row['control']['mean']:.3g} %)"
    assert decides["Interval of it"] == f"+${plain(row['low'])} to +${plain(row['high'])}"
    assert "Each user stays in one arm. 450 requests since" in page.text("#experiments .hint") and "at every look" in page.text("#experiments .hint")
    assert [node.text for node in page.all("#experiments h3")] == ["chat", "other"]
    assert page.js("return document.documentElement.scrollWidth") <= width
    page.js("document.activeElement.blur()")
    for _ in range(12):  # every column can be read by keyboard: the region takes the focus and scrolls
        page.driver.switch_to.active_element.send_keys(Keys.TAB)
        if page.js("return document.activeElement.id") == "sheet":
            break
    assert page.js("return [document.activeElement.id, getComputedStyle(document.activeElement).outlineStyle !== 'none']") == ["sheet", True]
    assert page.said() == []


def test_without_an_experiment_it_says_how_to_start_one(browser, start, tmp_path, upstreams):
    server = serve(start, tmp_path, upstreams)
    page = open_page(browser, server)
    page.wait("!document.getElementById('no-experiments').hidden")
    example = page.text("#no-experiments pre").replace("models:", "models:\n  chat-now: {targets: [{name: t, url: 'http://127.0.0.1:9/v1'}]}\n"
                                                                  "  chat-new: {targets: [{name: t, url: 'http://127.0.0.1:9/v1'}]}", 1)
    (tmp_path / "example.yaml").write_text(example)
    checked = subprocess.run([str(QUIRE), "check", str(tmp_path / "example.yaml")], capture_output=True, text=True, check=False, timeout=300)
    assert checked.returncode == 0 and "control" in checked.stdout, checked.stderr


def test_a_key_is_asked_for_and_works_by_keyboard(browser, start, tmp_path, upstreams):
    server = serve(start, tmp_path, upstreams, "--api-key", "secret")
    page = open_page(browser, server)
    page.wait("document.getElementById('key-dialog').open")
    page.click("#key-cancel")
    page.sent()
    page.driver.execute_async_script("setTimeout(arguments[0], 2500)")
    assert not page.js("return document.getElementById('key-dialog').open") and page.sent() == [], "it asks again and again"
    page.click("#key-open")
    page.driver.switch_to.active_element.send_keys("secret\n")
    page.wait("document.querySelectorAll('#targets tbody tr').length === 2")
    assert not page.js("return document.getElementById('key-dialog').open")
    unnamed = page.js("""return [...document.querySelectorAll("button, input")].filter(node =>
        !node.textContent.trim() && !node.labels?.length).map(node => node.outerHTML)""")
    assert unnamed == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable(browser, start, tmp_path, upstreams, scheme):
    page = open_page(browser, serve(start, tmp_path, upstreams))
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    page.wait("document.querySelectorAll('#targets tbody tr').length === 2")
    ratio = page.js("""const light = text => { const [r, g, b] = text.match(/[0-9.]+/g).map(v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
        return .2126 * r + .7152 * g + .0722 * b; };
        const ground = light(getComputedStyle(document.getElementById('targets')).backgroundColor);
        return Math.min(...[...document.querySelectorAll('#targets :is(th, td)')].map(node => {
            const text = light(getComputedStyle(node).color);
            return (Math.max(text, ground) + .05) / (Math.min(text, ground) + .05); }))""")
    assert ratio >= 4.5
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
