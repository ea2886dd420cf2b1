"""Markdown on the page at /ui: against markdown-it as the reference, while it streams, and when it is hostile."""

import html.parser
import random
import re
import time

import markdown_it
import pytest

from test_ui import browser  # noqa: F401 (a fixture)

TEXTS = [
    "# One\n\nText with **bold**, *slanted*, ***both***, ~~gone~~ and `code`.\nA second line.\n\n## Two ##\nMore.",
    "- a\n- b\n  - c\n    1. d\n    2. e\n- f\n\nEnd.",
    "3. three\n4. four\n\n   with a second paragraph\n5. five",
    "> quoted\n> **bold**\n>\n> - a list\n> - in it\n\nafter",
    "| a | b | c |\n|:--|:-:|--:|\n| 1 | `2` | **3** |\n| x \\| y | z | w |\n\nend",
    "```python\ndef f(x):\n    return \"*x*\"  # **no**\n```\n\ntext\n\n~~~\n```\n~~~",
    "[a link](https://example.com/a_(b) \"title\") and <https://example.com> and `` a`b ``, snake_case_name, 2 * 3 * 4, *open",
    "Before\n\n---\n\nafter \\*not slanted\\* [no link](nowhere) end",
    "1. one\n   ```sh\n   ls # x\n   ```\n2. two",
]
HOSTILE = "<img src=x onerror=\"window.struck=1\"><script>window.struck=1</script>"


@pytest.fixture
def page(browser, server):
    browser.open(server).wait("models.length > 0")
    browser.js("window.shown = text => { const into = make('div', 'body'); new MarkdownView(into).show(text); return into; }")
    yield browser
    assert browser.said() == []


class Shape(html.parser.HTMLParser):
    """The elements and texts of HTML, without what the two renderers may do differently."""

    names = {"s": "del"}
    left_out = {"p", "span", "div", "button", "br"}

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.found, self.hidden = [], 0
        self.feed(text)
        self.found = [" ".join(one.split()) if not one.startswith("<") else one for one in self.found]
        self.found = [one for one in self.found if one]

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.hidden += tag == "div" and (self.hidden > 0 or attrs.get("class") == "code-head")
        if tag not in self.left_out:
            self.found.append(f"<{self.names.get(tag, tag)}{' ' + attrs['href'].rstrip('/') if 'href' in attrs else ''}{' ' + attrs['start'] if attrs.get('start', '1') != '1' else ''}>")

    def handle_endtag(self, tag):
        self.hidden -= tag == "div" and self.hidden > 0
        if tag not in self.left_out | {"hr"}:
            self.found.append(f"</{self.names.get(tag, tag)}>")

        elif tag == "p":
            self.handle_data(" ")

    def handle_data(self, data):
        if self.hidden:
            return
        if self.found and not self.found[-1].startswith("<"):
            self.found[-1] += data
        else:
            self.found.append(data)


def lower(rendered):
    """Headings are two levels lower: the page has h1 and h2."""
    return re.sub(r"(</?h)([1-6])>", lambda m: f"{m[1]}{min(6, int(m[2]) + 2)}>", rendered)


@pytest.mark.parametrize("text", TEXTS)
def test_it_is_what_markdown_it_makes(page, text):
    reference = markdown_it.MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    reference.validateLink = lambda address: address.startswith(("http://", "https://", "mailto:"))
    # Colours are spans, which Shape leaves out.
    assert Shape(page.js("return shown(arguments[0]).innerHTML", text)).found == Shape(lower(reference.render(text))).found


def test_a_streamed_text_ends_as_a_whole_one(page):
    random.seed(3)
    texts = TEXTS + ["".join(random.choice(["\n", "\n", "\n\n", "- ", "1. ", "> ", "#", " ", "  ", "|", "---", "```", "a", "b|c", "**", "*", "`"]) for _ in range(60))
                     for _ in range(60)]
    wrong = page.js("""return arguments[0].filter(text => {
        const into = make("div"), view = new MarkdownView(into);
        for (let n = 1; n <= text.length; n++) view.show(text.slice(0, n));
        return into.innerHTML !== shown(text).innerHTML;
    })""", texts)
    assert wrong == []


LONG = {
    "one line": ["word *b* `c` ", "[x](https://example.com/a) ", "\U0001f600", "**open ", "`", "a|b ", "https://example.com/?", "x"],
    "paragraph": ["word *b*\n", "`c\n", "1. not a list\n", "a | b\n", "---\n", "and more text ", "> "],
    "code": ["x = 1 # y\n", "\n", "  indented\n", "``", "y" * 900, "\U0001f600" * 700],
    "table": ["| a | *b* |\n", "| `c|d` | e |\n", "| f\n"],
    "list": ["- item **b**\n", "  - inner\n", "  more\n", "\n"],
    "quote": ["> text\n", "> - item\n", ">\n"],
}


@pytest.mark.parametrize("kind", LONG)
def test_a_long_block_grows_by_parts(page, kind):
    """It ends as the whole text does, nothing is lost, and an event's work does not grow with the text."""
    draw = random.Random(kind)
    begin = {"code": "```python\n", "table": "| a | b |\n|---|---|\n"}.get(kind, "")
    for _ in range(4):
        weights = [draw.choice([0, 1, 3]) for _ in LONG[kind]]
        pieces = draw.choices(LONG[kind], [*weights[:-1], weights[-1] or 1], k=9000 if kind != "code" else 400)
        text = begin + "".join(pieces)[:60000] + "\n\nThe end."
        step = draw.choice([97, 400, 4000])
        same, most = page.js("""const plain = make, [text, step] = arguments;
            let made = 0, most = 0;
            window.make = (...all) => { made++; return plain(...all); };
            const into = plain("div"), view = new MarkdownView(into);
            for (let n = step; ; n += step) { made = 0; view.show(text.slice(0, n)); most = Math.max(most, made); if (n >= text.length) break; }
            window.make = plain;
            return [into.innerHTML === shown(text).innerHTML, most]""", text, step)
        assert same, (step, text[:300])
        assert most < 6000
        if kind == "code" and "```" not in text[10:]:
            assert page.js("return shown(arguments[0]).querySelector('code').textContent", text) == text[len(begin):]


def test_a_long_line_is_cut_at_spaces(page):
    sentence = "A **bold text** with `some code` and [a link](https://example.com/). "
    text = sentence * 1000
    parts = page.js("return [...shown(arguments[0]).querySelectorAll('p > .part')].map(node => node.textContent)", text)
    plain = "A bold text with some code and a link. "
    assert len(parts) > 5 and "".join(part.strip() + " " for part in parts) == plain * 1000
    assert page.js("return shown(arguments[0]).querySelectorAll('strong, code, a').length", text) == 3000
    assert page.js("return shown(arguments[0]).querySelectorAll('.part').length", sentence * 100) == 0
    word = "x\U0001f600" * 100000
    assert page.js("return shown(arguments[0]).textContent === arguments[0]", word)


def test_links_go_only_to_the_web(page):
    bad = ["javascript:window.struck=1", "JaVaScRiPt:1", "java\tscript:1", " javascript:1", "data:text/html,x", "vbscript:x", "file:///etc/passwd", "blob:x", "//x.example",
           "x", "&#106;avascript:1", "https:\\\\", "javascript://example.com/%0a1"]
    for address in bad:
        assert page.js("return shown(arguments[0]).querySelectorAll('a').length", f"[x]({address}) ![y]({address}) <{address}>") == 0, address
    links = page.js("""return [...shown("[x](https://example.com/?a=1&b=\\"2\\") ![y](http://example.com/y.png) https://example.com/z.").querySelectorAll("a")]
        .map(link => [link.href, link.rel, link.target])""")
    assert links == [[address, "noopener noreferrer", "_blank"] for address in
                     ("https://example.com/?a=1&b=%222%22", "http://example.com/y.png", "https://example.com/z")]
    assert page.js("return shown('![y](https://example.com/y.png)').querySelectorAll('img').length") == 0


def test_html_stays_text(page):
    around = ["{}", "# {}", "- {}", "> {}", "| {} |\n|---|\n| {} |", "```{}\n{}\n```", "`{}`", "**{}**", "[{}](https://example.com)", "```html\n{}\n```"]
    for text in around:
        text = text.replace("{}", HOSTILE)
        tags = page.js("const node = shown(arguments[0]); document.body.append(node); return [...node.querySelectorAll('img, script')].length", text)
        assert tags == 0, text
    assert page.js("return window.struck") is None


HEAVY = {
    "one line": "lorem ipsum " * 90000,
    "spaces": "# " + " " * 1000000 + "x",
    "open brackets": "[" * 1000000,
    "links without ends": "[x](" * 250000,
    "link addresses": "[a](b" * 200000,
    "brackets in turn": "[a](" + "(" * 1000000,
    "marks": "*a **b " * 150000,
    "stars": "*" * 1000000,
    "closed marks": "**a*" * 250000,
    "backticks": "".join("`" * n + " " for n in range(1, 1400)),
    "quotes": "> " * 500000 + "x",
    "list marks": "- " * 500000 + "x",
    "deep list": "\n".join(" " * n + "- x" for n in range(1400)),
    "10,000 levels": "\n".join(" " * min(n, 60) + "- x" for n in range(10000)),
    "table": "|" * 500000 + "\n" + "|-" * 250000,
    "wide table": "|a" * 99 + "\n" + "|-" * 99 + "\n" + "|\n" * 50000,
    "many lines": "a|b\n" * 250000,
    "rules": "- " * 500000 + "x\n" + "-" + " " * 500000,
    "open fence": "```\n" + "x\n" * 400000,
    "fences": "```\n" * 20000,
    "addresses": "https://" * 120000,
    "brackets after an address": "https://x/" + ")" * 900000,
    "escapes": "\\" * 1000000,
    "numbers": "1. \n" * 20000,
}


@pytest.mark.wide
@pytest.mark.parametrize("name", HEAVY)
def test_time_is_linear(page, name):
    """A tenth and the whole: the time grows less than 40 times, where a quadratic renderer's grows 100 times."""
    text = HEAVY[name]
    small, large = page.js("""const timeOf = text => { const began = performance.now(); shown(text); return performance.now() - began; };
        const part = arguments[0].slice(0, arguments[0].length / 10);
        const least = text => Math.min(timeOf(text), timeOf(text), timeOf(text));
        return [least(part), least(arguments[0])]""", text)
    print(f"{name}: {small:.1f} ms, {large:.1f} ms")
    assert large < 40 * max(small, 25), (small, large)
