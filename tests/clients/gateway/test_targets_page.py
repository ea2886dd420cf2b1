"""The page of targets at /ui/targets, in a headless Chromium."""

import pytest
import rig
from test_ui import Page
from upstream import Upstream


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    page = Page(tmp_path_factory.mktemp("chromium"))
    yield page
    page.driver.quit()


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
    page.wait("document.querySelector('#targets tbody').rows[0].cells[3].textContent === 'down'")
    assert cell(page, 0, 4) == "open" and cell(page, 1, 3) == "up"
    assert page.text("#state") == "1 of 2 not healthy"
    assert page.js("return row === document.querySelector('#targets tbody').rows[0]"), "a row was made anew"


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
