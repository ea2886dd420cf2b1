#!/usr/bin/env python3
"""Writes data/snippets.json: small templates and their renderings by Jinja2 with the settings of transformers.

    python3 tests/text/make_snippets.py        needs jinja2 and transformers; a snippet that fails has "fails"

snippets_test.rs renders each of them by text/ and compares. The variables are VARIABLES below."""
import json
import pathlib

import jinja2
from transformers.utils import chat_template_utils

DATA = pathlib.Path(__file__).parent / "data"
VARIABLES = {
    "text": "Hello, World", "words": "the quick  brown\tfox", "lines": "one\ntwo\n\nthree", "empty": "", "odd": "ß Ünï 東京",
    "html": "<a href=\"x\">'&'</a>", "number": 42, "negative": -7, "ratio": 2.5, "whole": 3.0, "tiny": 1e-7, "large": 1e20,
    "yes": True, "no": False, "nothing": None, "list": [3, 1, 2], "mixed": [1, "a", 2.5, None, True], "nested": [[1, 2], [3]],
    "names": ["b", "A", "c"], "map": {"b": 1, "a": 2}, "deep": {"a": {"b": [1, {"c": "d"}]}},
    "people": [{"name": "Zoe", "age": 30, "city": "B"}, {"name": "al", "age": 25, "city": "A"}, {"name": "Bo", "age": 30, "city": "B"}],
    "floats": [1.0, 2.5, 1e16, 1e-5], "digits": "007", "many": list(range(10)),
}


def expressions():
    """Yields the expressions between two braces, by kind."""
    yield from operators()
    yield from methods()
    yield from filters()
    yield from tests()
    yield from slices()
    yield from literals()


def operators():
    yield from ["1 + 2 * 3", "7 // 2", "-7 // 2", "7 % 3", "-7 % 3", "7 % -3", "7.5 % 2", "-7.5 // 2", "2 ** 10", "2 ** -1", "2 ** 0.5",
                "7 / 2", "6 / 2", "1 / 3", "10 / 4.0", "0.1 + 0.2", "1e3", "1e16 + 1", "3 - 5.0", "-number", "+number", "- 2 ** 2", "2 ** 3 ** 2",
                "number + 0.5", "number ~ text", "1 ~ 2", "none ~ true", "[1] + [2, 3]", "(1, 2) + (3,)", "text + '!'", "'ab' * 3", "[0] * 3", "3 * 'ab'",
                "'a' in 'cab'", "'x' not in 'cab'", "1 in list", "'b' in map", "1 < 2", "1 < 2 < 3", "3 > 2 > 2", "1 == 1.0", "'a' < 'b'", "not yes", "not empty",
                "yes and no", "empty or 'x'", "0 or none", "1 and 2", "nothing or empty", "'a' if yes else 'b'", "'a' if no", "('a' if no) is undefined",
                "list == [3, 1, 2]", "map == {'a': 2, 'b': 1}", "[1, 2] < [1, 3]", "true == 1", "none == false", "number != 42", "1 if 0 else 2 if 0 else 3",
                "9007199254740993", "123456789012345678901", "9223372036854775807 + 1", "2 ** 70", "-5 % 3", "5.0 // 2", "1_000", "0x1F", "0b101", "0o17", "1.5e-3",
                "number / 6", "large", "tiny", "whole", "floats", "mixed", "nested", "map", "deep", "odd", "names", "people[0]", "nothing", "yes", "missing",
                "missing.x", "missing is defined", "text.missing", "map.missing", "map['b']", "map.b", "deep.a.b[1].c", "list[0]", "list[-1]", "list[9]", "text[0]", "text[-1]",
                "text[99]", "people[1]['name']", "(1, 2)", "(1,)", "()", "[]", "{}", "{'a': 1, 'b': [true, none]}", "{1: 2}", "'it\\'s'", "\"a\\\"b\"", "'a\\nb'",
                "'a\\tb' ~ '\\\\'", "['a\\nb']", "['it\\'s']", "['\"']", "['é']", "['\\x00']", "['\\u200b']", "['\\xa0']"]
    for pattern, values in [("%s", "'a'"), ("%s", "1"), ("%s", "none"), ("%s", "1.5"), ("%d", "3"), ("%d", "3.9"), ("%5d", "42"), ("%-5d|", "42"), ("%05d", "42"),
                            ("%+d", "42"), ("% d", "42"), ("%x", "255"), ("%X", "255"), ("%o", "8"), ("%#x", "255"), ("%e", "12345.678"), ("%.2e", "0.00012"),
                            ("%f", "2.5"), ("%.2f", "3.14159"), ("%8.3f", "3.14159"), ("%g", "0.0001"), ("%g", "1234567.0"), ("%G", "1e-10"), ("%c", "65"), ("%c", "'z'"),
                            ("%r", "'a'"), ("%r", "1.0"), ("%10s|", "'ab'"), ("%-10s|", "'ab'"), ("%.2s", "'abcdef'"), ("%%", "()"), ("%s-%s", "('a', 1)"),
                            ("%s", "[1, 2]"), ("%s", "{'a': 1}"), ("%(a)s", "{'a': 7}"), ("%(a)d/%(b)s", "{'a': 7, 'b': 'x'}"), ("%*d", "(5, 42)"), ("%s %s", "'a'"),
                            ("%d", "'a'"), ("%i", "7"), ("%u", "7"), ("%a", "'é'"), ("%.3d", "5"), ("%s", "true"), ("x", "()"), ("x", "1")]:
        yield f"'{pattern}' % {values}"
    yield from ["'%s' | format('a')", "'%s-%05.1f' | format('a', 2.25)", "'%(x)s' | format(x=1)", "'{}'.format(1)", "'{0}-{1}-{0}'.format('a', 'b')", "'{:>5}|'.format('ab')",
                "'{:05.2f}'.format(3.14159)", "'{a}'.format(a=1)", "'{:,}'.format(1234567)", "'{!r}'.format('a')", "'{:x}'.format(255)", "'{{}}'.format()"]


def methods():
    for call in ["upper()", "lower()", "title()", "capitalize()", "swapcase()", "casefold()", "strip()", "strip('H')", "lstrip('He')", "rstrip('d')", "split()", "split(',')",
                 "split(',', 1)", "split('l')", "split('l', 1)", "split(sep=',')", "split('l', maxsplit=1)", "rsplit('l', 1)", "rsplit(',')", "splitlines()", "replace('l', 'L')",
                 "replace('l', 'L', 1)", "replace('', '-')", "find('o')", "find('o', 5)", "find('zz')", "find('o', 0, 3)", "rfind('o')", "rfind('o', 0, 6)", "index('W')", "index('zz')",
                 "rindex('o')", "count('l')", "count('l', 4)", "count('')", "startswith('He')", "startswith(('x', 'He'))", "startswith('ell', 1)", "startswith('l', 2, 3)", "endswith('ld')",
                 "endswith(('x', 'ld'))", "endswith('lo', 0, 5)", "partition(', ')", "partition('zz')", "rpartition('o')", "rpartition('zz')", "zfill(15)", "center(20, '*')",
                 "center(15)", "ljust(15, '.')", "rjust(15, '.')", "ljust(3)", "isalpha()", "isdigit()", "isalnum()", "isspace()", "isupper()", "islower()", "istitle()", "isnumeric()", "isdecimal()",
                 "isidentifier()", "isascii()", "isprintable()", "join(['a', 'b'])", "removeprefix('He')", "removesuffix('ld')", "expandtabs()", "encode()", "translate({})", "nosuch()",
                 "__len__()", "join('abc')", "join([1])", "strip(none)", "split(none)", "split(none, 1)", "replace('o', 1)"]:
        yield f"text.{call}"
    yield from ["words.split()", "words.split(' ')", "words.split(None, 2)", "words.rsplit(None, 1)", "lines.splitlines()", "lines.splitlines(true)", "lines.split('\\n')", "odd.upper()", "odd.lower()",
                "odd.title()", "odd.swapcase()", "'ß'.casefold()", "'ﬁ'.upper()", "'x y-z a1b'.title()", "\"they're\".title()", "'ÉCOLE'.capitalize()", "digits.zfill(5)", "'-7'.zfill(4)", "'+'.zfill(3)",
                "'7'.zfill(2)", "'²'.isdigit()", "'²'.isdecimal()", "'½'.isnumeric()", "''.isalpha()", "'1a'.isidentifier()", "'a\\tb'.expandtabs(4)", "'Aa'.istitle()", "' \\t'.isspace()",
                "'a,b,,c'.split(',')", "''.split()", "''.split(',')", "'abc'.join([])", "'aXbXc'.rsplit('X', 1)", "'aaa'.replace('aa', 'b')", "'abc'.center(6, 'x')", "'é' in 'é'", "'abc'.find('')",
                "'abc'.rfind('')", "'abc'.count('x')", "'a\\x0bb\\x1cc\\u2028d'.splitlines()"]
    yield from ["map.items()", "map.keys()", "map.values()", "map.items() | list", "map.keys() | list", "map.values() | list", "map.get('a')", "map.get('z')", "map.get('z', 9)", "map.copy()", "map.update({'z': 1})",
                "map.pop('a')", "map.popitem()", "map.setdefault('q', 1)", "map.clear()", "map.items() | length", "map.keys() | sort", "'a' in map.keys()", "map.nosuch()", "{}.items() | list", "deep.a.get('b')[0]",
                "map.fromkeys(['x'])", "dict(a=1)", "dict(map, c=3)", "dict([('a', 1)])", "dict()"]
    yield from ["list.index(1)", "list.index(9)", "list.count(1)", "list.append(4)", "list.copy()", "list.pop()", "list.insert(0, 9)", "list.remove(1)", "list.reverse()", "list.sort()", "list.extend([1])", "list.clear()",
                "(1, 2, 1).count(1)", "(1, 2).index(2)", "list.nosuch()", "number.bit_length()", "(3.0).is_integer()", "ratio.is_integer()", "number.real", "(255).to_bytes(1)", "ratio.as_integer_ratio()", "(5).conjugate()"]


def filters():
    yield from ["negative | abs", "ratio | abs", "people | map(attribute='name') | list", "people | map(attribute='zz', default='?') | list", "people | map(attribute='age') | sum", "names | map('upper') | list",
                "names | map('replace', 'b', 'x') | list", "many | batch(3) | list", "many | batch(4, 'x') | list", "text | capitalize", "'HELLO wORLD' | capitalize", "text | center(20)", "text | center(21)", "text | center", "missing | default('x')",
                "empty | default('x')", "empty | default('x', true)", "nothing | default('x')", "missing | d", "map | dictsort", "map | dictsort(by='value')", "map | dictsort(reverse=true)", "map | dictsort(false, 'value')", "{'B': 1, 'a': 2} | dictsort",
                "{'B': 1, 'a': 2} | dictsort(true)", "html | escape", "html | e", "html | forceescape", "html | safe", "html | escape | escape", "('<' | safe) ~ '&'", "('<' | escape) ~ '&'", "'<' | escape + '&'", "1 | escape", "1024 | filesizeformat", "1000000 | filesizeformat", "1 | filesizeformat", "0 | filesizeformat",
                "1500000 | filesizeformat(true)", "999 | filesizeformat", "list | first", "[] | first", "text | first", "'3.5' | float", "'x' | float", "'x' | float(1.5)", "'1e3' | float", "' 4 ' | float", "'1_0' | float", "'inf' | float", "'nan' | float", "nothing | float", "true | float",
                "number | float", "people | groupby('city')", "people | groupby('city') | map('first') | list", "people | groupby('age') | list | length", "people | groupby('zz', default='q') | list | length", "lines | indent", "lines | indent(2)", "lines | indent(2, true)", "lines | indent(2, blank=true)", "lines | indent('> ')", "lines | indent(width=3, first=true, blank=true)",
                "'42' | int", "'x' | int", "'x' | int(7)", "'0x1F' | int(base=16)", "'0x1F' | int(0, 16)", "'1F' | int(base=16)", "'0b11' | int(base=2)", "'0o17' | int(base=8)", "'11' | int(base=2)", "'z' | int(base=36)", "'0x10' | int(base=0)", "'3.9' | int", "3.9 | int", "-3.9 | int", "'1_000' | int", "' 42 ' | int", "nothing | int", "true | int",
                "'1e3' | int", "'99999999999999999999' | int", "1e20 | int", "missing | int", "[] | int", "list | join", "list | join(', ')", "people | join(', ', attribute='name')", "mixed | join('|')", "text | join('-')", "map | join(',')", "[] | join(',')", "[1.0, none, true] | join(' ')",
                "list | last", "[] | last", "text | last", "map | last", "list | length", "text | length", "odd | length", "map | length", "missing | length", "many | count", "text | list", "map | list", "'' | list", "(1, 2) | list", "text | lower", "'ÀÉ' | lower", "number | lower", "list | max", "list | min", "names | max", "names | min",
                "names | max(case_sensitive=true)", "names | min(true)", "people | max(attribute='age')", "people | min(attribute='age')", "[] | max", "[] | min", "[1, 2.5] | max", "map | pprint", "text | pprint", "nested | pprint", "1.0 | pprint",
                "many | reject('odd') | list", "many | reject('gt', 5) | list", "mixed | reject('none') | list", "mixed | reject | list", "people | rejectattr('age', 'equalto', 30) | map(attribute='name') | list", "people | rejectattr('zz') | list | length", "text | replace('l', 'L')", "text | replace('l', 'L', 1)", "text | replace('l', 'L', count=2)",
                "number | replace('4', 'x')", "list | reverse | list", "text | reverse", "map | reverse | list", "(1, 2) | reverse | list", "2.5 | round", "3.5 | round", "-2.5 | round", "2.567 | round(2)", "2.567 | round(1, 'floor')", "2.1 | round(0, 'ceil')", "5 | round", "5 | round(method='ceil')", "42.55 | round | int", "1234 | round(-2)",
                "2.675 | round(2)", "0.5 | round", "1.5 | round", "1e16 | round", "2.5 | round(method='nosuch')", "many | select('odd') | list", "many | select('divisibleby', 3) | list", "mixed | select | list", "mixed | select('string') | list", "mixed | select('number') | list", "people | selectattr('age', '>', 26) | list | length",
                "people | selectattr('name', 'equalto', 'al') | list", "people | selectattr('age', 'in', [25]) | map(attribute='name') | join", "people | selectattr('zz', 'defined') | list", "people | selectattr('name', 'defined') | list | length", "people | selectattr('age', 'gt', 25) | map(attribute='name') | join(',')",
                "many | slice(3) | list", "many | slice(4, 'x') | list", "list | sort", "names | sort", "names | sort(case_sensitive=true)", "list | sort(reverse=true)", "list | sort(true)", "people | sort(attribute='name') | map(attribute='name') | list", "people | sort(attribute='age,name') | map(attribute='name') | list", "text | sort", "map | sort", "number | string", "ratio | string", "nothing | string",
                "list | string", "1e16 | string", "html | striptags", "'<b>a</b>  <i>b</i>&amp;' | striptags", "list | sum", "floats | sum", "[] | sum", "people | sum(attribute='age')", "list | sum(start=10)", "words | title", "text | title", "\"it's o'clock\" | title", "'foo-bar (baz)' | title", "odd | title", "'  x ' | trim", "'xxaxx' | trim('x')", "number | trim",
                "text | truncate(5)", "'a long text that goes on' | truncate(10)", "'a long text that goes on' | truncate(10, true)", "'a long text that goes on' | truncate(10, false, '..')", "'a long text that goes on' | truncate(10, leeway=0)", "text | truncate(12)", "text | truncate(9, true, '', 0)", "list | unique | list", "['a', 'A', 'b'] | unique | list", "['a', 'A', 'b'] | unique(true) | list", "people | unique(attribute='age') | map(attribute='name') | list",
                "text | upper", "'ß' | upper", "'a b/c?d=é' | urlencode", "{'a': 'x y', 'b': 1} | urlencode", "[('a', 'b c'), ('d', '&')] | urlencode", "number | urlencode", "'~-._!*' | urlencode", "words | wordcount", "odd | wordcount", "'' | wordcount", "\"it's a-b c_d\" | wordcount", "'a long text that goes on and on' | wordwrap(10)", "'abcdefghijklmnop' | wordwrap(5)",
                "'abcdefghijklmnop xy' | wordwrap(5, false)", "lines | wordwrap(4)", "'a b c d e f' | wordwrap(3, wrapstring='|')", "'foo-bar baz-qux' | wordwrap(6, break_on_hyphens=false)", "'foo-bar baz-qux' | wordwrap(6)", "{'class': 'x', 'id': none, 'n': 1, 'q': '\"<'} | xmlattr", "{'a': 1} | xmlattr(false)", "{} | xmlattr", "{'a b': 1} | xmlattr", "map | items | list", "missing | items | list", "'http://example.com x' | urlize",
                "people | map(attribute='name.0') | list", "deep | attr('a')", "map | attr('items')", "text | attr('upper')", "nosuch | nosuchfilter", "list | random | string | length", "people[0] | items | list"]
    yield from ["map | tojson", "html | tojson", "mixed | tojson", "deep | tojson(indent=2)", "odd | tojson", "odd | tojson(ensure_ascii=true)", "floats | tojson", "map | tojson(sort_keys=true)", "map | tojson(separators=(',', ':'))", "[] | tojson(indent=2)", "{} | tojson", "(1, 2) | tojson", "'\\u2028' | tojson", "large | tojson", "{1: 2, none: 3, true: 4, 1.5: 6} | tojson", "missing | tojson",
                "map.items() | list | tojson", "nothing | tojson", "2 ** 70 | tojson", "deep | tojson(2)", "deep | tojson(indent='--')", "deep | tojson(indent=0)"]


def tests():
    values = ["missing", "nothing", "text", "empty", "number", "ratio", "whole", "yes", "list", "map", "(1, 2)", "0"]
    names = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "true", "false", "mapping", "iterable", "sequence", "callable", "escaped"]
    for name in names:
        yield "[" + ", ".join(f"{v} is {name}" for v in values) + "]"
    yield from ["3 is odd", "3 is even", "6 is divisibleby 3", "6 is divisibleby(4)", "1 is eq 1", "1 is equalto 1", "1 is ne 2", "1 is lt 2", "1 is le 1", "2 is gt 1", "2 is ge 2", "2 is lessthan 3", "2 is greaterthan 3", "1 is in list", "'a' is in 'abc'",
                "'abc' is lower", "'ABC' is upper", "'aBC' is lower", "1 is sameas 1", "none is sameas none", "yes is sameas true", "1 is sameas true", "'x' is not none", "not 1 is none", "'upper' is filter", "'nosuch' is filter", "'odd' is test", "'nosuch' is test", "raise_exception is callable", "range is callable", "text.upper is callable",
                "1 is nosuchtest", "2 is == 2", "3 is > 2", "text is string and list is not string", "missing is none", "1.0 is integer", "1 is float", "true is number", "true is integer", "range(3) is iterable", "range(3) is sequence", "map.items() is iterable", "map.items() is mapping"]


def slices():
    for a, b, c in [("", "", ""), ("1", "", ""), ("", "3", ""), ("1", "3", ""), ("-2", "", ""), ("", "-1", ""), ("", "", "2"), ("", "", "-1"), ("3", "0", "-1"), ("-1", "-4", "-1"), ("5", "", "-2"), ("", "2", "-1"), ("10", "", ""),
                    ("-10", "2", ""), ("2", "1", ""), ("1", "", "3"), ("-2", "", "-1"), ("", "", "0"), ("none", "2", ""), ("0", "99", "2")]:
        for what in ["'abcdef'", "many", "(1, 2, 3, 4)", "odd"]:
            yield f"{what}[{a}:{b}" + (f":{c}" if c else "") + "]"


def literals():
    yield from ["range(5) | list", "range(2, 8, 3) | list", "range(5, 0, -2) | list", "range(3)", "range(0)", "range(3)[1]", "range(3) | length", "lipsum is defined", "namespace(a=1).a", "namespace({'a': 1}).a", "joiner is defined", "cycler is defined", "True", "False", "None", "true", "none",
                "[1, 2, 3,]", "{'a': 1,}", "'a' 'b'", "1.0", "1.", "-1.5", "100000000000000000.0", "1e-5", "0.0001", "123456789.123", "1e22", "1.0e15", "-0.0", "[1e16, 1e15, 0.1, -0.0]", "{'a': 1.0}", "(1.0,)", "['a', \"b'c\"]", "[none, true]", "[[]]", "[{}]", "{'a': {'b': ()}}", "['\\r\\n\\t']", "['\\\\']",
                "self is defined", "loop is defined", "caller is defined", "varargs is defined"]


STATEMENTS = [
    "a\r\n{{ 'x' }}\r\nend", "a\rb", "{{ 'a\r\nb' }}", "x\n", "x\n\n", "{{ 'x' }}\n", "\n{{ 'x' }}\n\n", "{{ text }}\r\n",
    "{% for c in 'abc' %}{{ c }}{{ ',' if not loop.last }}{% endfor %}",
    "{% for c in 'abc' %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}",
    "{% for c in list %}{{ loop.previtem }}-{{ c }}-{{ loop.nextitem }} {% endfor %}", "{% for c in many %}{{ loop.cycle('a', 'b', 'c') }}{% endfor %}",
    "{% for c in [1, 1, 2, 2, 1] %}{{ loop.changed(c) }} {% endfor %}", "{% for k, v in map.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in map %}{{ k }}{{ loop.last }}{% endfor %}",
    "{% for k, v in map | dictsort %}{{ k }}={{ v }}{{ ',' if not loop.last }}{% endfor %}", "{% for x in [] %}a{% else %}none{% endfor %}", "{% for x in missing %}a{% else %}none{% endfor %}", "{% for x in nothing %}a{% endfor %}",
    "{% for x in many if x % 2 %}{{ x }}{{ loop.length }} {% endfor %}", "{% for x in many %}{% if x == 3 %}{% break %}{% endif %}{{ x }}{% endfor %}", "{% for x in many %}{% if x is odd %}{% continue %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in nested recursive %}{% if x is iterable %}[{{ loop(x) }}]{% else %}{{ x }}{{ loop.depth }}{{ loop.depth0 }}{% endif %}{% endfor %}", "{% for x in range(3) %}{{ loop.last }}{% endfor %}", "{% for a, b in [(1, 2), (3, 4)] %}{{ a + b }} {% endfor %}",
    "{% for x in text %}{{ loop.length }}{% break %}{% endfor %}", "{% for x in list | reverse %}{{ x }}{{ loop.last }}{% endfor %}", "{% for x in people | selectattr('age', 'gt', 26) %}{{ x.name }}{{ ',' if not loop.last }}{% endfor %}",
    "{% for x in list | map('string') %}{{ x }}{{ loop.length }}{% endfor %}", "{% for x in odd %}{{ x }}|{% endfor %}", "{% for x in list %}{% set y = x %}{% endfor %}{{ y }}", "{% set ns = namespace(n=0) %}{% for x in list %}{% set ns.n = ns.n + x %}{% endfor %}{{ ns.n }}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}", "{% set c = cycler('a', 'b') %}{{ c.current }}{{ c.next() }}{{ c.current }}{% set _ = c.reset() %}{{ c.next() }}", "{% set j = joiner('|') %}{% for x in list %}{{ j() }}{{ x }}{% endfor %}", "{% set j = joiner() %}{{ j() }}{{ j() }}",
    "{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(b=5, a=4) }}", "{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, x=4) }}", "{% macro m() %}{{ varargs | length }}{% endmacro %}{{ m() }}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}", "{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}in{% endcall %}", "{% macro m() %}{{ caller('x') }}{% endmacro %}{% call(a) m() %}<{{ a }}>{% endcall %}", "{% macro m(a, b) %}{{ m.name }}{{ m.arguments }}{% endmacro %}{{ m.name }}{{ m.arguments }}",
    "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}", "{% macro m(x) %}{{ x | upper }}{% endmacro %}{{ m('a') | lower }}{{ m('b') ~ 1 }}", "{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "{% macro m(a, a2=a) %}{{ a2 }}{% endmacro %}{{ m(5) }}",
    "{% set x %}a{{ 1 }}b{% endset %}{{ x }}", "{% set x | upper %}abc{% endset %}{{ x }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}", "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }}", "{% with %}{% set q = 1 %}{% endwith %}{{ q }}",
    "{% filter upper %}abc{{ 'd' }}{% endfilter %}", "{% filter replace('a', 'b') %}aaa{% endfilter %}", "{% raw %}{{ x }}{% endraw %}", "{%- raw -%} {{ x }} {%- endraw -%} y", "a{# c #}b", "a {#- c -#} b", "{# a\nb #}\nc", "{% if no %}a{% elif yes %}b{% else %}c{% endif %}", "{% if list %}t{% endif %}{% if [] %}f{% endif %}{% if 0.0 %}g{% endif %}",
    "  {% if yes %}\n  a\n  {% endif %}\n  b", "a  {%- if yes %} b {% endif -%}  c", "  {{- 'x' -}}  y", "  {%+ if yes %}a{% endif %}", "{% if yes +%}\na{% endif %}", "x {{ 'a' }} \n y", "{% if yes %}\n\na\n{% endif %}\n\nb\n", "\t{% set a = 1 %}\t{{ a }}", "a\n  {% if yes %}b{% endif %}\nc", "a\n  {{ 1 }}\nc", "a {% if yes %}  {% endif %} b",
    "{% autoescape true %}{{ html }}{% endautoescape %}", "{% generation %}a{% endgeneration %}b", "{% do list.append(1) %}", "{{ raise_exception('bad') }}", "{% if missing.x %}a{% endif %}", "{{ missing.x.y }}", "{{ nothing.x }}", "{{ nothing.x.y }}", "{{ text.x.y }}", "{{ 1 / 0 }}", "{{ 1 // 0 }}", "{{ 1 % 0 }}", "{{ text + 1 }}",
    "{{ missing + 1 }}", "{{ missing() }}", "{{ text() }}", "{{ list < 1 }}", "{{ none < 1 }}", "{% for x in 5 %}{% endfor %}", "{{ nosuch | upper }}", "{{ 'a' | nosuch }}", "{% nosuch %}", "{{ 1 +", "{% if %}{% endif %}", "{% for %}{% endfor %}", "{{ {[]: 1} }}", "{{ -text }}", "{{ 'a' in 1 }}", "{{ [] | first }}x", "{% block b %}in{% endblock %}",
    "{% set ns = namespace() %}{{ ns.x }}", "{% set ns = namespace(a=1) %}{% set ns.b = 2 %}{{ ns.a + ns.b }}", "{{ namespace(a=1)['a'] }}", "{% set x = {'a': 1} %}{{ x.a }}{{ x['a'] }}{{ x.get('a') }}", "{{ people[0].name }}{{ people[-1]['age'] }}", "{{ (people | first).name }}", "{{ text[1:3] | upper }}", "{{ (1, 2)[0] }}",
    "{{ {'a': 1}.a }}", "{{ [1, 2][1] }}", "{{ 'abc'[1] }}", "{{ ('a' ~ 'b').upper() }}", "{{ text.split(',')[1].strip() }}", "{{ lines.split('\n')[0] }}", "{% if 'a' in map and map['a'] == 2 %}y{% endif %}", "{% if text is string and text.startswith('H') %}y{% endif %}", "{{ list | length > 2 }}", "{{ 2 * list | length }}", "{{ -1 | abs }}", "{{ -3 | abs + 1 }}",
    "{{ not true is false }}", "{{ 1 is odd and 2 is even }}", "{{ yes is true is false }}", "{{ 1 in [1] in [true] }}", "{{ 'a' ~ 1 + 2 }}", "{{ 1 + 2 ~ 'a' }}", "{{ 2 ** 3 * 2 }}", "{{ 10 - 2 - 3 }}", "{{ 2 - -2 }}", "{{ (1, 2) == (1, 2) }}", "{{ (1, 2) == [1, 2] }}", "{{ 'A' 'B' ~ 'C' }}",
    "{% set items = [] %}{% for x in list %}{% set items = items + [x] %}{% endfor %}{{ items }}", "{% set s = 'a' %}{% for x in list %}{% set s = s ~ x %}{{ s }}{% endfor %}{{ s }}", "{% if loop is defined %}a{% endif %}", "{% for x in list %}{% for y in list %}{{ loop.index }}{% endfor %}{{ loop.index }}|{% endfor %}", "{% for x in list %}{% set outer = loop %}{% for y in 'ab' %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}",
    "{{ strftime_now('%Y') | length }}", "{{ range(3) | map('string') | join('-') }}", "{{ map | list | sort | join }}", "{{ map.items() | map(attribute=0) | list }}", "{{ map.items() | map('first') | list }}", "{{ people | map(attribute='age') | unique | list }}", "{{ '%.1f' % 2.25 }} {{ '%.0f' % 0.5 }} {{ '%.0f' % 1.5 }}", "{{ 'a\\u00e9' }}", "{{ '\\x41' }}", "{{ '\\101' }}", "{{ 'a\\qb' }}", "{{ '\\N{BULLET}' }}",
    "{%if yes%}a{%endif%}", "{{'a'}}", "{{-'a'-}}", "{% if yes -%} a {%- endif %}", "<|im_start|>{{ text }}<|im_end|>\n", "{{ '<|im_start|>' + text + '<|im_end|>' }}", "{{ '{{' }}", "{{ '}}' }}", "{{ \"%}\" }}", "{ {a} }", "{{ {'a': {'b': 1}}['a']['b'] }}", "{% set x = [1,\n2] %}\n{{ x }}", "{{ [\n1,\n2\n] }}", "{{ text\n| upper }}",
    "{% import 'x' as y %}", "{% include 'x' %}", "{% extends 'x' %}", "{{ self }}", "{{ super() }}", "{{ text.__class__ }}", "{{ ''.__class__.__mro__ }}", "{{ map.__init__ }}", "{{ list[true] }}", "{{ list['0'] }}", "{{ list[1.0] }}", "{{ map[1] }}", "{{ text['upper']() }}", "{{ people.0.name }}", "{{ list.0 }}", "{{ {'items': 5}.items }}", "{{ {'items': 5}['items'] }}", "{{ {'keys': 5}.keys() | list }}",
]


ERRORS = [ # what Jinja2, its sandbox or transformers' own objects refuse, and what is close to that
    "{{ range(100001) }}", "{{ range(100000) | length }}", "{{ range(1, 2, 0) | list }}", "{{ range() }}", "{{ range('a') }}", "{{ range(2.5) | list }}", "{{ text._private }}", "{{ map._x }}", "{{ text._private.x }}", "{{ namespace(_a=1) }}", "{% set ns = namespace() %}{% set ns._a = 1 %}", "{{ namespace(a=1)._a }}",
    "{{ namespace(1) }}", "{% set ns = namespace(a=1) %}{{ ns.b.c }}", "{% set x.y = 1 %}", "{% set map.a = 1 %}", "{% set text = 1 %}{{ text }}", "{% set 1 = 2 %}", "{% set x %}", "{% set x = %}", "{% set true = 1 %}", "{% set a, b = 1 %}", "{% set a, b = [1, 2, 3] %}", "{% set a, b = 'xy' %}{{ a }}{{ b }}", "{% set (a, b) = (1, 2) %}{{ a }}",
    "{% for a, b in [1, 2] %}{% endfor %}", "{% for a, b in [[1]] %}{% endfor %}", "{% for a, b in ['xy'] %}{{ a }}{{ b }}{% endfor %}", "{% for x in number %}{% endfor %}", "{% for x in ratio %}{% endfor %}", "{% for x in yes %}{% endfor %}", "{% for x in text | length %}{% endfor %}", "{% for k, v in map %}{{ k }}{% endfor %}", "{% for loop in list %}{{ loop }}{% endfor %}",
    "{% for x in list %}{{ loop(x) }}{% endfor %}", "{% break %}", "{% continue %}", "{% for x in list %}", "{% endfor %}", "{% if yes %}", "{% endif %}", "{% else %}", "{% if yes %}{% else %}{% elif no %}{% endif %}", "{% if yes %}{% endfor %}", "{% macro m( %}{% endmacro %}", "{% macro m(a=1, b) %}{{ b }}{% endmacro %}{{ m() }}", "{% macro m %}{% endmacro %}", "{% macro m() %}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}", "{% macro m(a) %}{{ a.b }}{% endmacro %}{{ m() }}", "{% macro m(a) %}{{ a.b.c }}{% endmacro %}{{ m() }}", "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}", "{% macro m() %}x{% endmacro %}{% call m() %}{% endcall %}", "{% call %}{% endcall %}", "{% call text() %}{% endcall %}",
    "{{ text | replace }}", "{{ text | replace('a') }}", "{{ text | upper(1) }}", "{{ text | join(1, 2, 3, 4) }}", "{{ text | default(1, 2, 3, 4) }}", "{{ list | map }}", "{{ list | map('nosuch') | list }}", "{{ list | select('nosuch') | list }}", "{{ list | selectattr }}", "{{ list | selectattr('x') | list }}", "{{ list | map(attribute='x') | list }}", "{{ list | map(attribute='x.y') | list }}", "{{ list is nosuch }}",
    "{{ list | sort(attribute='x') }}", "{{ mixed | sort }}", "{{ people | sort }}", "{{ people | sort(attribute='age') | map(attribute='name') | list }}", "{{ mixed | max }}", "{{ mixed | sum }}", "{{ text | sum }}", "{{ people | sum }}", "{{ number | length }}", "{{ nothing | length }}", "{{ number | first }}", "{{ number | last }}", "{{ nothing | join }}", "{{ number | join }}", "{{ number | reverse }}",
    "{{ number | list }}", "{{ nothing | list }}", "{{ number | sort }}", "{{ number | unique | list }}", "{{ text | items }}", "{{ list | items | list }}", "{{ list | dictsort }}", "{{ text | abs }}", "{{ nothing | abs }}", "{{ text | round }}", "{{ nothing | round }}", "{{ missing | round }}", "{{ number | round(method='x') }}", "{{ missing | abs }}", "{{ missing | upper }}x", "{{ nothing | upper }}", "{{ missing | trim }}x",
    "{{ missing | int }}", "{{ missing | float }}", "{{ nothing | int }}", "{{ nothing | float }}", "{{ missing | tojson }}", "{{ list | batch(0) | list }}", "{{ list | batch('x') | list }}", "{{ list | slice(0) | list }}", "{{ text | indent('x') }}", "{{ text | indent(none) }}", "{{ text | truncate(3) }}", "{{ text | truncate(2, true, '...') }}", "{{ text | wordwrap(0) }}", "{{ text | center('x') }}",
    "{{ text - 1 }}", "{{ text * text }}", "{{ text / 2 }}", "{{ text // 2 }}", "{{ text ** 2 }}", "{{ list - list }}", "{{ list + text }}", "{{ list + none }}", "{{ none + 1 }}", "{{ none ~ 1 }}", "{{ map + map }}", "{{ map * 2 }}", "{{ +text }}", "{{ -none }}", "{{ -list }}", "{{ text < 1 }}", "{{ [1] < ['a'] }}", "{{ map < map }}", "{{ missing < 1 }}", "{{ missing == 1 }}", "{{ missing == missing2 }}", "{{ missing * 2 }}", "{{ -missing }}",
    "{{ missing[0] }}", "{{ missing['a'] }}", "{{ missing in list }}", "{{ 1 in missing }}", "{{ 1 in none }}", "{{ 1 in text }}", "{{ 1 in number }}", "{{ 'a' in number }}", "{{ list['a'] }}x", "{{ list['a'].b }}", "{{ text['a'] }}x", "{{ number['a'] }}x", "{{ number.a }}x", "{{ number.a.b }}", "{{ nothing['a'] }}x", "{{ nothing['a']['b'] }}", "{{ list[none] }}x", "{{ map[none] }}x", "{{ map[list] }}", "{{ text[1:'a'] }}", "{{ number[1:2] }}", "{{ nothing[1:] }}", "{{ missing[1:] }}",
    "{{ text.split('') }}", "{{ text.split(1) }}", "{{ text.replace('a') }}", "{{ text.replace(1, 2) }}", "{{ text.startswith(1) }}", "{{ text.startswith() }}", "{{ text.startswith(['a']) }}", "{{ text.strip(1) }}", "{{ text.join(1) }}", "{{ text.join([1, 'a']) }}", "{{ text.upper(1) }}", "{{ text.nosuch }}x", "{{ text.center() }}", "{{ text.center('a') }}", "{{ text.center(20, 'ab') }}", "{{ text.zfill() }}", "{{ text.find() }}", "{{ text.count() }}", "{{ text.index('zz') }}",
    "{{ list.index() }}", "{{ map.get() }}", "{{ map.get('a', 1, 2) }}", "{{ map.items(1) }}", "{{ map.get(list) }}", "{{ map['zz'].x }}", "{{ map.zz.x }}", "{{ text() }}", "{{ list() }}", "{{ map() }}", "{{ none() }}", "{{ 1() }}", "{{ 'a'() }}", "{{ dict(1) }}", "{{ dict([1]) }}", "{{ cycler() }}", "{{ joiner(1, 2) }}", "{{ strftime_now() }}", "{{ strftime_now(1) }}", "{{ raise_exception() }}", "{{ raise_exception(1) }}", "{{ raise_exception(none) }}",
    "{{ }}", "{{", "{{ a b }}", "{{ 1 2 }}", "{{ 'a }}", "{{ (1 }}", "{{ 1) }}", "{{ [1 }}", "{{ {1 }}", "{{ {1: } }}", "{{ {'a' 1} }}", "{{ a. }}", "{{ a.1.b }}", "{{ a..b }}", "{{ a[ }}", "{{ a[] }}", "{{ a | }}", "{{ a is }}", "{{ a is not }}", "{{ not }}", "{{ a and }}", "{{ and }}", "{{ a if }}", "{{ a if b else }}", "{{ 1 + }}", "{{ * 1 }}", "{{ 1 ++ 2 }}", "{{ 1 === 2 }}", "{{ 1 = 2 }}", "{{ a & b }}", "{{ a ? b }}", "{{ $a }}", "{{ `a` }}", "{{ a; b }}", "{{ 1 <> 2 }}", "{{ !a }}", "{{ a != b }}", "{{ 'a' \\ 'b' }}",
    "{{ lambda: 1 }}", "{{ [x for x in list] }}", "{{ f(a=1, 2) }}", "{{ dict(a=1, a=2) }}", "{{ dict(**map) }}", "{{ dict(**{'x': 1}) }}", "{{ '%s%s' | format(*['a', 'b']) }}", "{{ '%s' | format(*list) }}", "{{ f(**1) }}", "{{ f(*1) }}", "{{ dict(**list) }}", "{{ 0777 }}", "{{ 0x }}", "{{ 1__0 }}", "{{ 1e }}", "{{ 1.e5 }}", "{{ .5 }}", "{{ 1.5.5 }}", "{{ '\\u12' }}", "{{ '\\x1' }}", "{{ '\\u{41}' }}", "{{ '\\U0001F642' }}", "{{ '\\\n' }}",
    "{% raw %}", "{% raw x %}{% endraw %}", "{# a", "a #} b", "{% %}", "{%", "{% if yes", "{% if yes }}", "{{ text %}", "{% if yes %}a{% endif", "{% 1 %}", "{% 'if' %}", "{% If yes %}{% endif %}", "{% for x list %}{% endfor %}", "{% for x in %}{% endfor %}", "{% for in list %}{% endfor %}", "{% for x.y in list %}{% endfor %}", "{% for 1 in list %}{% endfor %}", "{% with x %}{% endwith %}", "{% with x = %}{% endwith %}", "{% filter %}{% endfilter %}", "{% filter nosuch %}{% endfilter %}", "{% block %}{% endblock %}",
    "{% if no %}{{ 'a' | nosuch }}{% endif %}", "{% if no %}{{ 1 is nosuch }}{% endif %}", "{% if no %}{{ missing.a.b }}{% endif %}ok", "{% if no %}{{ nosuch() }}{% endif %}ok", "{% macro m() %}{{ 'a' | nosuch }}{% endmacro %}ok", "{{ 'a' | nosuch if no }}", "{% trans %}a{% endtrans %}", "{% debug %}", "{{ debug() }}", "{{ loop.index }}", "{{ loop }}x", "{{ caller() }}", "{{ varargs }}", "{{ self.x }}", "{{ super }}x", "{% do 1 %}",
    "{{ '{0.__class__}'.format(1) }}", "{{ '{a}'.format(b=1) }}", "{{ '{}{}'.format(1) }}", "{{ '{'.format() }}", "{{ '}'.format() }}", "{{ '{:zz}'.format(1) }}", "{{ '{0[a]}'.format(map) }}", "{{ '{:d}'.format('a') }}", "{{ '%' | format(1) }}", "{{ '%z' | format(1) }}", "{{ '%s' | format() }}", "{{ '%s' | format(1, 2) }}", "{{ '%d' % none }}", "{{ '%c' % 'ab' }}", "{{ '%c' % -1 }}", "{{ '%x' % 1.5 }}", "{{ '%(a)s' % list }}", "{{ '%(a)s' % {'b': 1} }}", "{{ '%s' % (1, 2) }}", "{{ '%' % 1 }}", "{{ '%(a' % map }}",
    "{{ '<' | safe + '&' }}", "{{ '&' + '<' | safe }}", "{{ '&' ~ '<' | safe }}", "{{ ('<' | safe) ~ '&' }}", "{{ ['<' | safe, '&'] | join }}", "{{ '<' | safe + '&' | tojson }}", "{{ '<' | safe + 1 }}", "{{ 1 + '<' | safe }}", "{{ '<' | e + '&' + '>' }}", "{{ '<b>' | safe }}", "{{ '<' | escape | escape }}", "{{ '<' | safe | upper + '&' }}", "{{ ('<' | safe).upper() + '&' }}", "{{ '<' | safe * 2 + '&' }}", "{{ '<%s>' | safe % '&' }}",
]


def environment():
    """transformers' own, which its cached compile function makes."""
    env = chat_template_utils._compile_jinja_template.__wrapped__("").environment
    assert isinstance(env, jinja2.sandbox.ImmutableSandboxedEnvironment)
    return env


def main():
    env = environment()
    out = []
    sources = ["{{ " + e + " }}" for e in expressions()] + STATEMENTS + ERRORS
    for source in dict.fromkeys(sources):
        try:
            out.append({"template": source, "renders": env.from_string(source).render(**json.loads(json.dumps(VARIABLES)))})
        except Exception as e:  # text/ must refuse it, too
            out.append({"template": source, "fails": type(e).__name__})
    out = [s for s in out if " at 0x" not in s.get("renders", "")] # an address in memory is another in each run
    lines = ",\n".join(json.dumps(s, ensure_ascii=False) for s in out)
    (DATA / "snippets.json").write_text('{"variables": %s,\n"snippets": [\n%s]}\n' % (json.dumps(VARIABLES, ensure_ascii=False), lines))
    print(f"{len(out)} snippets, {sum('fails' in s for s in out)} of them fail")


if __name__ == "__main__":
    main()
