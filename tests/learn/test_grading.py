"""Reading typed answers: every way to write the same numbers, and nothing that crashes it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwise.learn.drills.grading import grade_choice, grade_numbers, read_numbers


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
        "10X64",
        "10 by 64",
        "10by64",
        "\u2248 10, 64",
        "= (10, 64)",
        "1e1 64.0",
        " 10\t64 ",
    ],
)
def test_two_numbers(text):
    assert next(read_numbers(text, 2)) == [10, 64]


@pytest.mark.parametrize(
    "text",
    ["1,048,576", "1048576", "1_048_576", "1.048576e6", "1048576.0", "1 048 576", "1'048'576", "~1048576"],
)
def test_one_large_number(text):
    assert next(read_numbers(text, 1)) == [1048576]


@pytest.mark.parametrize(
    ("text", "count", "numbers"),
    [
        ("1/3", 1, [1 / 3]),
        ("1/4 3/4", 2, [0.25, 0.75]),
        ("\u22120.5", 1, [-0.5]),
        (".5", 1, [0.5]),
        ("1,234 5,678", 2, [1234, 5678]),
        ("1,234", 2, [1, 234]),
        ("2,01", 1, [2.01]),
        ("\u2248 2.01", 1, [2.01]),
        ("~2,01", 1, [2.01]),
        ("0,8847 2,0124", 2, [0.8847, 2.0124]),
        ("0,26; 0,04; 0,71", 3, [0.26, 0.04, 0.71]),
        ("25 %", 1, [25]),
        ("1 / 3", 1, [1 / 3]),
        ("3,456 7", 2, [3456, 7]),
    ],
)
def test_other_ways_to_write(text, count, numbers):
    assert next(read_numbers(text, count)) == numbers


def test_either_reading_may_be_the_right_one():
    assert grade_numbers("2,012", (2.012,), 0).right and grade_numbers("2,012", (2012,), 0).right
    assert grade_numbers("25 %", (25,), 0).right and grade_numbers("25%", (0.25,), 0).right
    assert not grade_numbers("2,012", (2.013,), 5e-4).right
    assert not grade_numbers("10 64", (1064,), 0).right


@pytest.mark.parametrize(
    "text", ["", " ", "nan", "inf", "1/0", "ten", "1e999", "__import__('os')", "1;;a", "--1", "1e"]
)
def test_what_is_no_number(text):
    assert list(read_numbers(text, 1)) == []
    grade = grade_numbers(text, (1.0,), 1e9)
    assert not grade.right and not grade.read


@given(st.text(max_size=60), st.integers(1, 4))
def test_no_text_crashes_it(text, count):
    assert all(math.isfinite(number) for found in read_numbers(text, count) for number in found)
    grade_numbers(text, (1.0,) * count, 0.1)
    grade_choice(text, "a", {"a": "true", "b": "false"})


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=4))
def test_what_python_writes_is_read(values):
    assert next(read_numbers(", ".join(map(repr, values)), len(values))) == values
    assert grade_numbers(" ".join(map(repr, values)), tuple(values), 0).right


def test_how_many_were_read_is_said():
    assert grade_numbers("1 2", (1.0,), 0).message == "One number expected, 2 read."
    assert grade_numbers("1", (1.0, 2.0), 0).message == "2 numbers expected, 1 read."
    assert not grade_numbers("1 2", (1.0,), 0).read and grade_numbers("1 3", (1.0, 2.0), 0).read
    assert grade_numbers("1 3", (1.0, 2.0), 0).message == "Not right: number 1 (counting from 0) is off."


@pytest.mark.parametrize("text", ["b", "B", " b) ", "false", "False.", "f"])
def test_a_choice(text):
    assert grade_choice(text, "b", {"a": "true", "b": "false"}).right


@pytest.mark.parametrize("text", ["a", "true", "", "c", "b b", "ba"])
def test_another_choice(text):
    grade = grade_choice(text, "b", {"a": "true", "b": "false"})
    assert not grade.right and grade.read == (text in ("a", "true"))
