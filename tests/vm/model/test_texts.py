"""Tables of texts: bounded in bytes, the oldest go first."""

from __future__ import annotations

import sys

import msgpack

from tensord.vm.model.texts import ENTRY, Texts, size_of

from ...each_case import each_case

LINE = "x" * 1000


def test_beyond_the_bound_the_oldest_are_forgotten() -> None:
    texts: Texts[str] = Texts(3 * size_of(LINE))
    for number in (7, 3, 5, 9):
        texts.keep(number, LINE)
    assert [texts.get(number) is not None for number in (7, 3, 5, 9)] == [False, True, True, True]
    assert texts.nbytes == 3 * size_of(LINE)


def test_a_number_that_is_given_again_counts_once_and_as_the_newest() -> None:
    texts: Texts[str] = Texts(2 * size_of(LINE))
    texts.keep(1, LINE)
    texts.keep(2, LINE)
    texts.keep(1, LINE.upper())
    texts.keep(3, LINE)
    assert (texts.get(1), texts.get(2), texts.get(3)) == (LINE.upper(), None, LINE)
    assert texts.nbytes == 2 * size_of(LINE)


def test_a_text_larger_than_the_bound_is_not_kept() -> None:
    texts: Texts[str] = Texts(500)
    texts.keep(1, LINE)
    assert (len(texts), texts.nbytes) == (0, 0)


@each_case("letters", ["x", "ü", "語", "\N{GRINNING FACE}"])
def test_the_size_is_that_in_memory_whatever_the_letters(letters: str) -> None:
    text = 200 * letters
    assert size_of(text) >= ENTRY + sys.getsizeof(text)
    assert size_of((text, text)) >= ENTRY + 2 * sys.getsizeof(text)


def test_what_is_forgotten_counts_as_much_as_when_it_came_although_it_was_sent_meanwhile() -> None:
    """Python keeps the bytes of a text that was encoded once, and counts them in the text's size."""
    text = 100 * "語"
    texts: Texts[str] = Texts(10_000)
    texts.keep(1, text)
    msgpack.packb(text)
    texts.forget(1)
    assert texts.nbytes == 0


def test_a_number_without_a_text_may_be_forgotten() -> None:
    texts: Texts[str] = Texts(1000)
    texts.keep(1, "here")
    texts.forget(1)
    texts.forget(1)
    assert (texts.get(1), texts.nbytes) == (None, 0)
