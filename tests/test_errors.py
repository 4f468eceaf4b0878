"""The errors: one family, one form of message, and they survive the way between processes."""

import pickle

import pytest

import headwise
from headwise.errors import CapabilityError, DtypeError, HeadwiseError, ShapeError


def test_message_has_four_parts():
    error = ShapeError("key", "width 8", "shape (3, 4)", "swap the axes")
    assert str(error) == "key: expected width 8; received shape (3, 4). Hint: swap the axes"
    assert (error.argument, error.expected, error.received, error.hint) == (
        "key", "width 8", "shape (3, 4)", "swap the axes",
    )  # fmt: skip


def test_message_without_hint():
    assert str(DtypeError("query", "float32", "int64")) == "query: expected float32; received int64."


@pytest.mark.parametrize("kind", [ShapeError, DtypeError, CapabilityError])
def test_one_family(kind):
    assert issubclass(kind, HeadwiseError)
    assert issubclass(kind, ValueError)
    assert getattr(headwise, kind.__name__) is kind


@pytest.mark.parametrize("kind", [HeadwiseError, ShapeError, DtypeError, CapabilityError])
def test_pickle_keeps_the_parts(kind):
    error = kind("scale", "a finite number", "nan", "None")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert again.hint == "None"
