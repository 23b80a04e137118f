"""Names of files are numbers, one name each."""

from __future__ import annotations

from tensord.interpreter.checkpoints import layout

from ...each_case import each_case


@each_case("number", [1, 7, 99_999_999, 10**9, layout.LAST_GENERATION])
def test_a_generation_has_one_name(number):
    assert layout.generation_of(layout.generation_file(number)) == number


@each_case(
    "name",
    [
        *("generation-00000000", "generation-1", "generation-000000001", "generation-0000000a", "generation-00000001 "),
        *("generation-" + "9" * 19, "generation--0000001", "generation-0000000\u0661", "xgeneration-00000001", ""),
    ],
)
def test_other_names_are_no_generations(name):
    assert layout.generation_of(name) is None


def test_values_files_have_one_name_each():
    for id_ in (0, 1, 2**64 - 1):
        assert layout.values_of(layout.values_file(id_)) == id_
    for name in ("values-", "values-1", "values-" + "A" * 16, "values-" + "0" * 17, "values-" + "0" * 16 + "\n"):
        assert layout.values_of(name) is None


def test_only_our_own_unfinished_files_are_unfinished():
    assert layout.is_unfinished(".tensord-checkpoint-0123456789abcdef")
    for name in (".tensord-0123456789abcdef", ".tensord-checkpoint-mine", ".tensord-checkpoint-0123456789abcdef.bak"):
        assert not layout.is_unfinished(name)
