"""How numbers are written: enough digits to see the difference, no more."""

import math

import pytest

from headwise.plain import numbers


@pytest.mark.parametrize(
    "value, text",
    [
        (0, "0"),
        (-0.0, "0"),
        (20.0, "20"),
        (-3.0, "−3"),
        (0.6697615493, "0.669762"),
        (0.5, "0.5"),
        (-0.25, "−0.25"),
        (1 / 3, "0.333333"),
        (1234.5678, "1234.5678"),
        (0.9999999958776928, "0.99999999588"),
        (29.999999938165395, "29.999999938"),
        (1 - 1.2664165549e-14, "0.9999999999999873"),
        (2.9999999999999996, "3"),
        (1 + 2.2e-16, "1"),
        (5e-324, "4.9407e-324"),
        (2.0611536e-9, "2.0612e-09"),
        (-2.5e-7, "−2.5e-07"),
        (1.25e9, "1250000000"),
        (1.2345678e9, "1234567800"),
        (12345678.25, "1.2346e+07"),
        (1e300, "1e+300"),
        (None, "−∞"),
        (-math.inf, "−∞"),
        (math.inf, "∞"),
        (math.nan, "NaN"),
    ],
)
def test_number(value, text):
    assert numbers.number(value) == text


def test_a_number_is_never_rounded_to_a_whole_one():
    for exponent in range(1, 14):
        text = numbers.number(1 - 10.0**-exponent)
        assert float(text) != 1 and float(text) == pytest.approx(
            1 - 10.0**-exponent, abs=10.0 ** -(exponent + 1)
        )


def test_column_has_one_number_of_decimals():
    assert numbers.column([1.5, 2.0, -0.125]) == ["1.500", "2.000", "−0.125"]
    assert numbers.column([1.0, 2.0, 0.0]) == ["1", "2", "0"]
    assert numbers.column([1 / 3, 0.0, None]) == ["0.333333", "0", "−∞"]
    assert numbers.column([1 / 3, 0.5], most=4) == ["0.3333", "0.5000"]
    assert numbers.column([0.5, 1e-9, 1 - 1e-9]) == ["0.5", "1e-09", "0.999999999"]
    assert numbers.column([]) == []


def test_row():
    assert numbers.vector([1.0, 2.0]) == "(1, 2)"
    assert numbers.vector([0.5]) == "0.5"
    assert numbers.vector(range(9)) == "(0, 1, 2, 3, …, 8)"


def test_counts_and_sizes():
    assert (
        numbers.count(1048576) == "1,048,576" and numbers.count(2.5) == "2.50" and numbers.count(4.0) == "4"
    )
    assert [numbers.size(n) for n in (5, 1024, 131072, 1.5 * 2**30, 2**60)] == [
        "5 B",
        "1 KiB",
        "128 KiB",
        "1.5 GiB",
        "1024 PiB",
    ]
    assert [numbers.power(n) for n in (12, 1500, 3.22e9, 1e20)] == ["12", "1.5 k", "3.22 G", "100 E"]
    assert (numbers.error(0), numbers.error(2.22e-16)) == ("0", "2.2e-16")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.414, ".41"),
        (0.415001, ".42"),
        (0.005, ".01"),
        (0.0049, "<.01"),
        (0.0, "<.01"),
        (0.994, ".99"),
        (1.0, "1"),
    ],
)
def test_weights_have_two_decimals(value: float, shown: str) -> None:
    assert numbers.weight(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"), (float("nan"), "–"), (0.0, "0.00"), (0.834, "0.83"), (0.00999, "0.01"),
        (0.0042, "0.004"), (0.0001, "<0.001"), (1.0, "1.00"), (9.994, "9.99"), (9.996, "10.0"),
        (99.96, "100"), (171.2, "171"),
    ],
)  # fmt: skip
def test_scores_have_the_digits_that_matter(value: float | None, shown: str) -> None:
    assert numbers.rounded(value) == shown
