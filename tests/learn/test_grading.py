"""Reading typed answers: every way to write the same numbers, and nothing that crashes it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwise.learn.grading import grade_choice, grade_numbers, read_numbers


@pytest.mark.parametrize(
    "text",
    [
        "10 64",
        "10, 64",
        "(10, 64)",
        "[10,64]",
        "10x64",
        "10 x 64",
        "10 \u00d7 64",
        "10;64",
        "1e1 64.0",
        " 10\t64 ",
    ],
)
def test_two_numbers(text):
    assert read_numbers(text, 2) == [10, 64]


@pytest.mark.parametrize("text", ["1,048,576", "1048576", "1_048_576", "1.048576e6", "1048576.0"])
def test_one_large_number(text):
    assert read_numbers(text, 1) == [1048576]


@pytest.mark.parametrize(
    ("text", "count", "numbers"),
    [
        ("1/3", 1, [1 / 3]),
        ("1/4 3/4", 2, [0.25, 0.75]),
        ("\u22120.5", 1, [-0.5]),
        (".5", 1, [0.5]),
        ("1,234 5,678", 2, [1234, 5678]),
        ("1,234", 2, [1, 234]),
        ("3,456 7", 2, [3456, 7]),
    ],
)
def test_other_ways_to_write(text, count, numbers):
    assert read_numbers(text, count) == numbers


@pytest.mark.parametrize(
    "text", ["", " ", "nan", "inf", "1/0", "ten", "1e999", "__import__('os')", "1;;a", "--1", "1e"]
)
def test_what_is_no_number(text):
    assert read_numbers(text, 1) is None
    assert not grade_numbers(text, (1.0,), 1e9).right


@given(st.text(max_size=60), st.integers(1, 4))
def test_no_text_crashes_it(text, count):
    found = read_numbers(text, count)
    assert found is None or all(map(math.isfinite, found))
    grade_numbers(text, (1.0,) * count, 0.1)
    grade_choice(text, "a", {"a": "true", "b": "false"})


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=4))
def test_what_python_writes_is_read(values):
    assert read_numbers(", ".join(map(repr, values)), len(values)) == values
    assert grade_numbers(" ".join(map(repr, values)), tuple(values), 0).right


def test_how_many_were_read_is_said():
    assert grade_numbers("1 2", (1.0,), 0).message == "One number expected, 2 read."
    assert grade_numbers("1", (1.0, 2.0), 0).message == "2 numbers expected, 1 read."
    assert grade_numbers("1 3", (1.0, 2.0), 0).message == "Not right: number 1 (counting from 0) is off."


@pytest.mark.parametrize("text", ["b", "B", " b) ", "false", "False.", "f"])
def test_a_choice(text):
    assert grade_choice(text, "b", {"a": "true", "b": "false"}).right


@pytest.mark.parametrize("text", ["a", "true", "", "c", "b b", "ba"])
def test_another_choice(text):
    assert not grade_choice(text, "b", {"a": "true", "b": "false"}).right
