"""Every message of explain, word for word, in golden/trace_messages.txt; no place that raises is left out."""

import re

import numpy as np
import pytest

from headwise.trace import explain
from headwise.trace.data import Trace
from headwise.trace.examples import example
from headwise.trace.json_arguments import trace_of
from tests.raising import caught, golden, said, unreached

ONE, TWO = np.eye(1), np.eye(2)
GRID = {"scores": np.zeros((2, 2)), "value": np.eye(2)}
BLOCK = {"x": np.eye(2), "w_q": TWO, "w_k": TWO, "w_v": TWO, "w_o": TWO, "num_heads": 1}
NAN = np.array([[0.0, 1.0], [np.nan, 0.0]])
PLAIN = explain(**GRID).to_dict()


def call(**arguments):
    return lambda: explain(**arguments)


CASES = {
    "nothing": call(),
    "two ways": call(**BLOCK, query=TWO),
    "half a block": call(x=TWO, w_q=TWO, num_heads=1),
    "no value": call(query=TWO, key=TWO),
    "a bias without a block": call(**GRID, b_q=np.zeros(2)),
    "values beside a block": call(**BLOCK, value=TWO),
    "title": call(**GRID, title=3),
    "tokens, text": call(**GRID, tokens="ab"),
    "tokens, no list": call(**GRID, tokens={"a": 1, "b": 2}),
    "tokens, too many": call(**GRID, tokens=["a", "b", "c"]),
    "context tokens": call(**GRID, context_tokens=["a"]),
    "a batch": call(**{**BLOCK, "x": np.zeros((3, 2, 2))}),
    "a batch of heads": call(query=np.zeros((2, 3, 1, 2, 2)), key=TWO, value=TWO),
    "no key": call(query=TWO, key=np.zeros((0, 2)), value=np.zeros((0, 1))),
    "too large": call(scores=np.zeros((8, 128, 128)), value=np.zeros((8, 128, 4))),
    "not a number": call(scores=NAN, value=TWO),
    "infinite weights": call(**{**BLOCK, "w_v": np.array([[1.0, -np.inf], [0, 0]])}),
    "overflow": call(query=TWO * 1e200, key=TWO * 1e200, value=TWO),
    "a mask that is NaN": call(**GRID, attn_mask=NAN),
    "another schema": lambda: Trace.from_dict({"schema": "headwise.report"}),
    "no dict": lambda: Trace.from_dict([]),
    "a newer version": lambda: Trace.from_dict({**PLAIN, "version": 2}),
    "without a field": lambda: Trace.from_dict(
        {name: item for name, item in PLAIN.items() if name != "steps"}
    ),
    "no JSON": lambda: Trace.from_json("{"),
    "a shape only": lambda: explain(
        np.ones((1, 128)), num_heads=1, **{f"w_{x}": np.eye(128) for x in "qkvo"}
    )["shapes"]["W_Q"],
    "no example": lambda: example("Z"),
    "JSON list": lambda: trace_of([1]),
    "JSON, unknown": lambda: trace_of({"q": 1, "key": []}),
    "JSON, a number": lambda: trace_of({"scores": 3, "value": [[1]]}),
    "JSON, words": lambda: trace_of({"scores": [["a"]], "value": [[1]]}),
    "JSON, ragged": lambda: trace_of({"scores": [[1, 2], [3]], "value": [[1]]}),
    "JSON, mixed mask": lambda: trace_of(
        {"scores": [[1, 2]], "value": [[1], [2]], "attn_mask": [[None, "x"]]}
    ),
    "JSON, mask of words": lambda: trace_of({"scores": [[1]], "value": [[1]], "attn_mask": [["x"]]}),
    "lists, truth among numbers": call(scores=[[1, 2]], value=[[1], [2]], attn_mask=[[True, 0]]),
    "lists, too deep": call(scores=[[[[[[[[[1]]]]]]]]], value=[[1]]),
    "lists, too large a number": call(scores=[[10**400]], value=[[1]]),
}


def spoiled(change):
    """Read back a trace in which one thing was changed."""

    def read():
        data = explain(**GRID).to_dict()
        change(data)
        Trace.from_dict(data)

    return read


def put(*path):
    """A change: the last of ``path`` is put where the others lead."""

    def change(data):
        *way, last, value = path
        for key in way:
            data = data[key]
        data[last] = value

    return change


# Where in a trace of two queries and two keys something is changed.
FIRST = ("steps", 0, "arrays", 0)
UNSOUND = {
    "no head": ("sizes", "h", 0),
    "a name missing": ("queries", ["0"]),
    "option": ("options", "scale", []),
    "too few axes": (*FIRST, "axes", ["head", "query"]),
    "heads behind": (*FIRST, "axes", ["query", "head", "key"]),
    "another shape": (*FIRST, "shape", [1, 3, 2]),
    "too few values": (*FIRST, "values", [[[1, 2]]]),
    "truth among numbers": (*FIRST, "values", [[[1, True], [2, 3]]]),
    "fact": ("steps", 1, "facts", [{"key": "a", "name": "b", "value": []}]),
    "holds": ("steps", 1, "checks", 0, "holds", False),
    "compared with nothing": ("compared", {}),
    "compared why": ("compared", "why", 3),
    "no steps": ("steps", []),
    "hidden output": ("output", [[[1, None], [0, 1]]]),
}
CASES |= {f"unsound: {name}": spoiled(put(*path)) for name, path in UNSOUND.items()}
EXPECTED = golden("trace_messages.txt")


@pytest.mark.parametrize("name", CASES)
def test_the_message(name):
    assert said(CASES[name]) == EXPECTED[name]


def test_no_golden_message_is_left_over():
    assert set(EXPECTED) == set(CASES)


def test_causal_with_two_lengths_asks_for_a_reading():
    message = str(caught(call(scores=np.zeros((1, 2)), value=TWO, is_causal=True)))
    assert "is_causal: expected" in message and '"upper_left"' in message and '"lower_right"' in message


@pytest.mark.parametrize(
    "arguments, start",
    [
        ({"query": np.zeros((2, 3)), "key": np.zeros((2, 4)), "value": TWO}, "key: expected width d_k = 3"),
        (
            {**BLOCK, "num_heads": 3},
            "num_heads: expected a divisor of 2, the width of w_q (2, 2); received 3.",
        ),
        ({**BLOCK, "w_o": np.eye(3)}, "w_o: expected 2 rows"),
        ({"scores": "ab", "value": TWO}, "scores: expected a NumPy, torch or JAX array"),
        (
            {"scores": np.zeros((2, 2), np.float32), "value": TWO},
            "value: expected float32, the dtype of scores",
        ),
    ],
)
def test_messages_of_the_rooms_below_come_through(arguments, start):
    assert str(caught(call(**arguments))).startswith(start)


def test_a_mask_of_zeros_and_ones_is_refused():
    message = str(caught(call(**GRID, attn_mask=np.eye(2))))
    assert re.match(r"attn_mask: expected booleans .* nothing but 0 and 1 in it", message)


def test_every_place_that_raises_is_reached():
    assert unreached(["trace"], CASES.values()) == []
