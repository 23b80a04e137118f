"""The names that code computes, as its instructions show."""

from __future__ import annotations

from tensord.client.routines.names import CodeNames, names_of

from ...each_case import each_case

CONSTANT = [
    *('getattr(a, "x")', 'getattr(a.b[c](n, b=1), "x")', 'getattr(a, "x", None)', 'getattr(a, "x", [])'),
    *('getattr(a, "x", b + c * n)', 'getattr(a, "x", g(b, c))', 'getattr(a, "x", g(b)(c))', 'getattr(a, "x", -b)'),
    *(
        'getattr(g(a, "y"), "x")',
        'getattr(getattr(a, "y", b), "x", {})',
        'getattr(a, "x", (b, c))',
        'getattr(g(), "x")',
    ),
    *('getattr(a, "x", lambda: n)', 'getattr(a, "x", f"{n}")', 'getattr(a + b, "x")', 'getattr(super(), "x")'),
    *('hasattr(a, "x") and getattr(a, "x")', 'attrgetter("x")(a)', 'attrgetter("x", "y.z")(a)', 'methodcaller("x")'),
    *(
        'operator.attrgetter("x")(a)',
        'methodcaller("x", n, k=1)',
        'f(getattr(a, "x"), 3)',
        '[getattr(a, "x") for a in b]',
    ),
    *('"{} {}".format(a, n)', "a.dir", "a.modules()", 'object.__getattribute__(a, "x")'),
    *('sum(getattr(a, "x") * n for a in b)', 'getattr(a, "x", 0.0) + getattr(b, "y", 1)'),
]
COMPUTED = [
    *(
        "getattr(a, n)",
        'getattr(a, "x" + n)',
        'getattr(a, "x" + n, 0)',
        'getattr(a, "x".upper())',
        'getattr(a, f"x{n}")',
    ),
    *('getattr(a, "x".upper(), 0)', 'getattr(a, f"x{n}", 0)', 'getattr(a, "x"[n])', 'getattr(a, "x" if n else "y")'),
    *(
        "getattr(a if n else b, n)",
        'getattr(a + "x", n)',
        "getattr(*a)",
        "getattr(a, *b)",
        'getattr(a, (z := "x") + n)',
    ),
    *("g(getattr)", 'g(getattr, "x")', 'g("x", getattr)', "[getattr]", "getattr", 'map(getattr, a, ["x"])'),
    *("attrgetter(n)(a)", 'attrgetter("x", n)(a)', 'attrgetter("x" + n)', "attrgetter(*a)", 'methodcaller(n, "x")'),
    *('methodcaller("x" + n)', "fmt.format(a)", '("{" + n).format(a)', 'str.format("{0.x}", a)', "vars(a)", "dir(a)"),
    *("a.__dict__", "a.__getattribute__(n)", 'getattr(a, n or "x")', "getattr(a, (lambda: n)())", 'getattr(g("x"), n)'),
    *(
        'getattr(a, g("x"))',
        'getattr(a, g("x"), "y")',
        '(z := getattr)(a, "x")',
        'getattr(a, not "x")',
        "getattr(a, b.c)",
    ),
    *('getattr(a, "x", "y")(n) or getattr(a, n)', '("{}" if n else fmt).format(a)', 'getattr(a, "__dict__")'),
]


def names(expression: str) -> CodeNames:
    """The names in a function that returns the expression."""
    found: dict[str, object] = {}
    exec(f"def f(a, b, c, n, g, fmt):\n    return {expression}", found)  # noqa: S102
    return names_of(found["f"].__code__)  # type: ignore[attr-defined]


@each_case("expression", CONSTANT)
def test_a_name_that_the_code_has_is_an_attribute_as_any_other(expression):
    found = names(expression)
    assert not found.asks
    assert not found.paths


@each_case("expression", COMPUTED)
def test_a_name_that_is_computed_may_be_any(expression):
    found = names(expression)
    assert found.asks or found.paths


@each_case(
    ("expression", "path"),
    [
        ("getattr(a, n)", ("a",)),
        ("getattr(a.b.c, n + 'x')", ("a", "b", "c")),
        ("vars(a)", ("a",)),
        ("hasattr(fmt, n)", ("fmt",)),
        ("getattr(a[0], n)", None),
        ("getattr(g(a), n)", None),
        ("getattr(a, g(n))", None),  # which may assign to the variable
        ("getattr(a, (a := n))", None),
    ],
)
def test_the_object_is_known_where_it_is_a_variable_or_an_attribute_of_one(expression, path):
    assert [each.names for each in names(expression).paths.values()] == ([path] if path else [])


def test_fields_of_a_format_are_attributes():
    assert {"rate", "width"} <= names('"{0.rate:{1.width}}".format(a, b)').attributes


def test_what_looks_into_frames_is_found():
    assert names("g.__globals__['x']").frames
    assert names("sys.modules[n]").modules
    assert not names("sys.modules['x'], 'x' in sys.modules, sys.modules.get('x')").modules
