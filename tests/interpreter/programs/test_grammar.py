"""The grammar in docs/programs.md is the parser's: it has every line that is written, and every line that is accepted.

The rules become regular expressions. Lists among attributes, the only rule that contains itself, nest a few levels.
"""

from __future__ import annotations

import random
import re
from functools import cache
from pathlib import Path

from hypothesis import given

from tensord.interpreter.errors import TensordError
from tensord.interpreter.programs.parse import parse

from ...each_case import each_case
from .mangling import mangled_text
from .programs import PROGRAMS, random_program

PAGE = Path(__file__).parents[3] / "docs/programs.md"
WORDS = {
    "word": r"[A-Za-z_][A-Za-z0-9_.]*",
    "digits": "[0-9]+",
    "integer": "-?[0-9]+",
    "decimal": r"-?[0-9]+(?:\.[0-9]+(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+)",
    "string": r'"(?:[^"\\]|\\[nrt"\\]|\\x[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\U[0-9a-fA-F]{8})*"',
}
SIGNS = {"[": "(?:", "]": ")?", "{": "(?:", "}": ")*", "(": "(?:", ")": ")", "|": "|"}
PREFIXES = {"%", "$", "d"}  # no other character may follow them
LEVELS = 3


def rules() -> dict[str, list[str]]:
    """Name -> the tokens of its rule."""
    (text,) = re.findall(r"^```ebnf\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    found = (rule.split("=", 1) for rule in re.split(r";\n+", text) if rule.strip())
    return {name.strip(): re.findall(r'"[^"]*"|\w+|[\[\]{}()|]', body) for name, body in found}


RULES = rules()


@cache
def pattern(name: str, levels: int = LEVELS) -> str:
    """The regular expression of a rule."""
    if name in WORDS:
        return WORDS[name]
    parts = []
    for token in RULES[name]:
        if token in SIGNS:
            parts.append(SIGNS[token])
        elif token.startswith('"'):
            parts.append(re.escape(token[1:-1]) + ("" if token[1:-1] in PREFIXES else " *"))
        elif token != name:
            parts.append(f"(?:{pattern(token, levels)})" + " *")
        else:
            parts.append(f"(?:{pattern(name, levels - 1)})" if levels else "(?!)")
    return f"(?:{''.join(parts)})"


LINE = re.compile(rf" *{pattern('line')} *(?:#.*)?")


def has(line: str) -> bool:
    """Whether the line is in the grammar, or skipped."""
    return not line.strip(" ") or line.lstrip(" ").startswith("#") or LINE.fullmatch(line) is not None


def test_each_rule_is_of_rules_and_words():
    for name, tokens in RULES.items():
        assert {token for token in tokens if token not in SIGNS and token[0] != '"'} <= {*RULES, *WORDS}, name
    assert "line" in RULES


@given(PROGRAMS)
def test_the_grammar_has_every_line_that_is_written(program):
    for line in str(program).split("\n"):
        assert has(line), line


def test_the_grammar_has_every_line_that_is_taken():
    taken = 0
    for seed in range(300):
        rnd = random.Random(seed)
        text = mangled_text(str(random_program(rnd, 4)), rnd)
        try:
            parse(text)
        except TensordError:
            continue
        taken += 1
        for line in text.split("\n"):
            assert has(line), line
    assert taken > 10


@each_case(
    "line",
    [
        *("tensord program", "program 1", "number 0: int", "number $0 int", "number $0: int 3", "number $0: int ="),
        *(
            "parameter %0: float32[] on 0",
            "parameter %0: float32 on d0",
            "captured %0: ? on d0",
            "parameter x: int8[] on d0",
        ),
        *(
            "%0 = exp %1 on d0",
            "%0: float32[3] exp %1 on d0",
            "%0: float32[,] = exp %1 on d0",
            "%0: float32[3] = on d0 {",
        ),
        *("return 0", "return %0,", "return %0 %1", "%0: ? = f {a: b c}", "%0: ? = f {a 1}", 'print "a', "print 'a'"),
        *("number $0: float = 1.", "number $0: float = -nan", "number $0: complex = complex(1)", r'print "\q"', "x !"),
    ],
)
def test_the_grammar_has_no_others(line):
    assert not has(line)


def test_the_page_shows_texts_of_the_grammar():
    texts = re.findall(r"^tensord program 1$.*?^return[^\"\n]*", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert texts
    for text in texts:
        assert all(map(has, text.split("\n")))
        assert str(parse(text)) == text
