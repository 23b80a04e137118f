"""Names of spans: the spans of a loop share one name, by which they are found."""

from __future__ import annotations

from tensord.interpreter.wire.locations import MAX_SPAN_DEPTH
from tensord.vm.tracing.analysis.recorded.span_names import matches, names_of, paths_of

from .....each_case import each_case

LOOP = [("epoch 1", f"step {n}", "forward") for n in range(10, 200)]


def test_the_spans_of_a_loop_have_one_name():
    assert set(names_of(LOOP).values()) == {"epoch 1/step */forward"}


@each_case(
    ("names", "shown"),
    [
        (("step 1", "step 20"), "step *"),
        (("step1", "step2"), "step*"),
        (("lr=0.1", "lr=0.001"), "lr=*"),
        (("load 3 of 10", "load 4 of 10"), "load * of *"),
        (("12:30:01", "12:30:02"), "*:*:*"),
        (("batch[1]", "batch[2]"), "batch[*]"),
        (("a/b 1", "a/b 2"), "a/b *"),
    ],
)
def test_names_that_differ_in_numbers_alone_are_one_and_that_one_finds_them(names, shown):
    found = names_of((name,) for name in names)
    assert set(found.values()) == {shown}
    assert all(matches(path, shown) for path in found)


@each_case(
    "names", [("conv2d", "conv3d"), ("3x3", "5x3"), ("forward", "backward"), ("step 1", "step one"), ("1a", "2a")]
)
def test_other_names_stay_apart(names):
    found = names_of((name,) for name in names)
    assert set(found.values()) == set(names)
    assert all(matches(path, found[path]) for path in found)


def test_a_number_stays_where_all_have_the_same():
    assert list(names_of([("epoch 1",), ("epoch 1", "step 7")]).values()) == ["epoch 1", "epoch 1/step 7"]
    assert set(names_of([("run 1", "step 1"), ("run 2", "step 1")]).values()) == {"run */step 1"}


def test_a_name_finds_what_it_sums_up_and_no_more():
    every = [*LOOP, ("epoch 1", "step 12"), ("epoch 1", "step 12", "backward"), ("epoch 1",), ()]
    paths = dict.fromkeys(path for span in every for path in paths_of(span))
    names = names_of(paths)
    for name in set(names.values()):
        mine = {path for path in paths if names[path] == name}
        assert {span for span in every if matches(span, name)} == {
            span for span in every if mine.intersection(paths_of(span))
        }


@each_case(
    ("wanted", "is_found"),
    [
        ("*/forward", True),
        ("step */forward", True),
        ("step 14/forward", True),
        ("epoch 1/step 14", True),
        ("epoch 1/step 14/forward", True),
        ("forward", True),
        ("*", True),
        ("epoch 1/forward", False),
        ("epoch */forward", False),
        ("step 1*", True),
        ("step 1", False),
        ("st", False),
    ],
)
def test_a_part_of_the_path_is_found(wanted, is_found):
    assert matches(("epoch 1", "step 14", "forward"), wanted) is is_found


def test_the_deepest_path_is_searched_and_the_outside_of_spans_has_no_name():
    deepest = tuple(f"level {n}" for n in range(MAX_SPAN_DEPTH))
    assert matches(deepest, f"level {MAX_SPAN_DEPTH - 1}")
    assert not matches((), "*")
