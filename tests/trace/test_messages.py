"""Every message of explain, word for word; a last test asks that no place that raises is left out."""

import re

import numpy as np
import pytest

from headwise.errors import HeadwiseError
from headwise.trace import explain
from headwise.trace.data import Trace
from headwise.trace.examples import example
from headwise.trace.json_arguments import trace_of
from tests.raising import unreached

WAYS = "x with w_q, w_k, w_v, w_o and num_heads; or query, key and value; or scores and value"
KNOWN = (
    "x, context, w_q, w_k, w_v, w_o, num_heads, num_kv_heads, b_q, b_k, b_v, b_o, query, key, value, "
    "scores, attn_mask, "
    "is_causal, causal_alignment, query_offset, scale, tokens, context_tokens, title, about"
)
ONE, TWO = np.eye(1), np.eye(2)
GRID = {"scores": np.zeros((2, 2)), "value": np.eye(2)}
BLOCK = {"x": np.eye(2), "w_q": TWO, "w_k": TWO, "w_v": TWO, "w_o": TWO, "num_heads": 1}
NAN = np.array([[0.0, 1.0], [np.nan, 0.0]])
PLAIN = explain(**GRID).to_dict()


def call(**arguments):
    return lambda: explain(**arguments)


CASES = {
    "nothing": (
        call(),
        f"explain: expected {WAYS}; received nothing. Hint: headwise explain --example A shows one",
    ),
    "two ways": (
        call(**BLOCK, query=TWO),
        f"explain: expected {WAYS}; received x, w_q, w_k, w_v, w_o, num_heads, query. "
        "Hint: headwise explain --example A shows one",
    ),
    "half a block": (
        call(x=TWO, w_q=TWO, num_heads=1),
        "w_k: expected x, w_q, w_k, w_v, w_o, num_heads; received x, w_q, num_heads, without w_k, w_v, w_o. "
        f"Hint: the ways in: {WAYS}",
    ),
    "no value": (
        call(query=TWO, key=TWO),
        f"value: expected query, key, value; received query, key, without value. Hint: the ways in: {WAYS}",
    ),
    "a bias without a block": (
        call(**GRID, b_q=np.zeros(2)),
        "b_q: expected None beside scores, value; received an array or number. "
        "Hint: projections and biases belong to a block, where query, key and value are computed",
    ),
    "values beside a block": (
        call(**BLOCK, value=TWO),
        "value: expected None beside x, w_q, w_k, w_v, w_o, num_heads; received an array or number. "
        "Hint: projections and biases belong to a block, where query, key and value are computed",
    ),
    "title": (call(**GRID, title=3), "title: expected text; received 3."),
    "tokens, text": (
        call(**GRID, tokens="ab"),
        'tokens: expected 2 names, one per token; received \'ab\'. Hint: a list, as in ["the", "cat"]',
    ),
    "tokens, no list": (
        call(**GRID, tokens={"a": 1, "b": 2}),
        "tokens: expected 2 names, one per token; received {'a': 1, 'b': 2}. "
        'Hint: a list, as in ["the", "cat"]',
    ),
    "tokens, too many": (
        call(**GRID, tokens=["a", "b", "c"]),
        "tokens: expected 2 names, one per token; received 3: ['a', 'b', 'c'].",
    ),
    "context tokens": (
        call(**GRID, context_tokens=["a"]),
        "context_tokens: expected 2 names, one per token; received 1: ['a'].",
    ),
    "a batch": (
        call(**{**BLOCK, "x": np.zeros((3, 2, 2))}),
        "x: expected one sequence, 2 axes (a trace shows one forward pass); received shape (3, 2, 2). "
        "Hint: explain one of the batch: x[0]",
    ),
    "a batch of heads": (
        call(query=np.zeros((2, 3, 1, 2, 2)), key=TWO, value=TWO),
        "query: expected one sequence, 3 axes (a trace shows one forward pass); received shape (2, 3, 1, 2, "
        "2). "
        "Hint: explain one of the batch: query[0, 0]",
    ),
    "no key": (
        call(query=TWO, key=np.zeros((0, 2)), value=np.zeros((0, 1))),
        "explain: expected at least one query and one key; received 2 queries and 0 keys.",
    ),
    "too large": (
        call(scores=np.zeros((8, 128, 128)), value=np.zeros((8, 128, 4))),
        "explain: expected a trace of at most 50,000 numbers; received 532,480 (8·128·128 scores, and "
        "more). "
        "Hint: explain the first tokens, x[:8]; for long inputs attention(..., return_aux=AuxRequest(...)) "
        "gives "
        "statistics of every row, and inspect_heads a report of a whole model",
    ),
    "not a number": (
        call(scores=NAN, value=TWO),
        "scores: expected finite numbers; received nan at [1, 0]. "
        "Hint: a trace needs numbers that its checks can be evaluated on",
    ),
    "infinite weights": (
        call(**{**BLOCK, "w_v": np.array([[1.0, -np.inf], [0, 0]])}),
        "w_v: expected finite numbers; received -inf at [0, 1]. "
        "Hint: a trace needs numbers that its checks can be evaluated on",
    ),
    "overflow": (
        call(query=TWO * 1e200, key=TWO * 1e200, value=TWO),
        "scores: expected finite numbers; received inf at [0, 0, 0]. "
        "Hint: the products overflow float64; scale the inputs down",
    ),
    "a mask that is NaN": (
        call(**GRID, attn_mask=NAN),
        "attn_mask: expected finite numbers; received nan at [1, 0]. "
        "Hint: only −inf, which hides a key, may be infinite",
    ),
    "another schema": (
        lambda: Trace.from_dict({"schema": "headwise.report"}),
        "trace: expected a dict with schema 'headwise.trace'; received 'headwise.report'. Hint: pass "
        "Trace.to_dict()",
    ),
    "no dict": (
        lambda: Trace.from_dict([]),
        "trace: expected a dict with schema 'headwise.trace'; received list. Hint: pass Trace.to_dict()",
    ),
    "a newer version": (
        lambda: Trace.from_dict({**PLAIN, "version": 2}),
        "trace: expected version 1 of 'headwise.trace'; received version 2. Hint: pip install --upgrade "
        "headwise",
    ),
    "without a field": (
        lambda: Trace.from_dict({name: item for name, item in PLAIN.items() if name != "steps"}),
        "trace: expected every field of a trace, and no other; received one without 'steps'. "
        "Hint: pass Trace.to_dict()",
    ),
    "no JSON": (
        lambda: Trace.from_json("{"),
        "trace: expected JSON text; received text that is not JSON (Expecting property name enclosed in "
        "double "
        "quotes: line 1 column 2 (char 1)).",
    ),
    "a shape only": (
        lambda: explain(np.ones((1, 128)), num_heads=1, **{f"w_{x}": np.eye(128) for x in "qkvo"})["shapes"][
            "W_Q"
        ],
        "values: expected an array whose numbers are kept; received W_Q, kept by shape. "
        "Hint: the caller has the array that was given",
    ),
    "no example": (
        lambda: example("Z"),
        "example: expected one of A, B, C, D, E, F, G, H, I, 2.1, 2.2, 2.3, 3.3, 4.2, 5.2, 5.3; received "
        "'Z'.",
    ),
    "JSON list": (
        lambda: trace_of([1]),
        "JSON: expected an object with the arguments of headwise.explain; received list.",
    ),
    "JSON, unknown": (
        lambda: trace_of({"q": 1, "key": []}),
        f"JSON: expected the arguments of headwise.explain; received unknown q. Hint: known: {KNOWN}",
    ),
    "JSON, a number": (
        lambda: trace_of({"scores": 3, "value": [[1]]}),
        "scores: expected nested lists; received 3. Hint: as in [[1, 0], [0, 1]]",
    ),
    "JSON, words": (
        lambda: trace_of({"scores": [["a"]], "value": [[1]]}),
        "scores: expected nested lists of numbers; received [['a']]. Hint: as in [[1, 0], [0, 1]]",
    ),
    "JSON, ragged": (
        lambda: trace_of({"scores": [[1, 2], [3]], "value": [[1]]}),
        "scores: expected rows of one length; received [[1, 2], [3]].",
    ),
    "JSON, mixed mask": (
        lambda: trace_of({"scores": [[1, 2]], "value": [[1], [2]], "attn_mask": [[None, "x"]]}),
        "attn_mask: expected nested lists of true and false, or of numbers; received [[None, 'x']]. "
        "Hint: true lets a query see a key; among numbers null hides it",
    ),
    "JSON, mask of words": (
        lambda: trace_of({"scores": [[1]], "value": [[1]], "attn_mask": [["x"]]}),
        "attn_mask: expected nested lists of true and false, or of numbers; received [['x']]. "
        "Hint: true lets a query see a key; among numbers null hides it",
    ),
    "lists, truth among numbers": (
        call(scores=[[1, 2]], value=[[1], [2]], attn_mask=[[True, 0]]),
        "attn_mask: expected nested lists of true and false, or of numbers; received [[True, 0]]. "
        "Hint: true lets a query see a key; among numbers null hides it",
    ),
    "lists, too deep": (
        call(scores=[[[[[[[[[1]]]]]]]]], value=[[1]]),
        "scores: expected lists of two or three levels; received more than 8.",
    ),
    "lists, too large a number": (
        call(scores=[[10**400]], value=[[1]]),
        f"scores: expected numbers that float64 can hold; received [[1{'0' * 54}....",
    ),
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


# Where in a trace of two queries and two keys something is changed, and what is said.
UNSOUND = (
    (("sizes", "h", 0), "sizes.h: a whole number >= 1; received 0"),
    (("queries", ["0"]), "queries: 2 names; received ['0']"),
    (("options", "scale", []), "options.scale: a word, a number, true, false or null; received []"),
    (
        ("steps", 0, "arrays", 0, "axes", ["head", "query"]),
        "steps[0].arrays[0].axes: one of head, query, key, column for every size of the shape; received "
        "['head', 'query']",
    ),
    (
        ("steps", 0, "arrays", 0, "axes", ["query", "head", "key"]),
        "steps[0].arrays[0].axes: one or two axes behind the heads; received ['query', 'head', 'key']",
    ),
    (
        ("steps", 0, "arrays", 0, "shape", [1, 3, 2]),
        "steps[0].arrays[0].shape: 2 along query; received [1, 3, 2]",
    ),
    (
        ("steps", 0, "arrays", 0, "values", [[[1, 2]]]),
        "steps[0].arrays[0].values: nested lists of shape [2, 2]; received [[1, 2]]",
    ),
    (
        ("steps", 0, "arrays", 0, "values", [[[1, True], [2, 3]]]),
        "steps[0].arrays[0].values: finite numbers and null, or truth values; received [[[1, True], [2, 3]]]",
    ),
    (
        ("steps", 1, "facts", [{"key": "a", "name": "b", "value": []}]),
        "steps[1].facts[0].value: a word or a number; received []",
    ),
    (
        ("steps", 1, "checks", 0, "holds", False),
        "steps[1].checks[0].holds: error <= tolerance; received False",
    ),
    (("compared", {}), "compared: function, max_abs_difference, tolerance and why; received {}"),
    (("compared", "why", 3), "compared.why: a word, or a number of a size or difference; received 3"),
    (("steps", []), "steps: a last step that holds the output; received ()"),
    (("output", [[[1, None], [0, 1]]]), "output: finite numbers; received [[[1, None], [0, 1]]]"),
)
CASES |= {
    f"unsound, {message}": (spoiled(put(*path)), f"trace: expected {message}. Hint: pass Trace.to_dict()")
    for path, message in UNSOUND
}


def caught(case):
    with pytest.raises(HeadwiseError) as error:
        case()
    return error.value


@pytest.mark.parametrize("name", CASES)
def test_the_message(name):
    case, message = CASES[name]
    assert str(caught(case)) == message


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
    assert unreached(["trace"], [case for case, _ in CASES.values()]) == []
