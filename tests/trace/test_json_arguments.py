"""The arguments of explain as JSON."""

import json

import numpy as np

from headwise.trace import explain
from headwise.trace.data import Trace
from headwise.trace.json_arguments import ARRAYS, trace_of


def test_integers_become_float64():
    data = {"query": [[1, 0]], "key": [[1, 0], [0, 1]], "value": [[2], [4]], "scale": None}
    same = explain(query=np.array([[1.0, 0]]), key=np.eye(2), value=np.array([[2.0], [4]]))
    assert trace_of(data) == same


def test_a_whole_block():
    rng = np.random.default_rng(0)
    arrays = {f"w_{letter}": rng.normal(size=(4, 4)) for letter in "qkvo"} | {"x": rng.normal(size=(3, 4))}
    lists = {name: array.tolist() for name, array in arrays.items()}
    options = {
        "num_heads": 2,
        "is_causal": True,
        "tokens": ["a", "b", "c"],
        "title": "t",
        "about": "Two heads.",
    }
    assert trace_of(json.loads(json.dumps(lists | options))) == explain(**arrays, **options)


def test_masks():
    grid = {"scores": [[0, 0], [0, 0]], "value": [[1], [2]]}
    seen = trace_of({**grid, "attn_mask": [[True, False], [True, True]]})
    assert seen["weights"]["A_i"].tolist() == [[[1, 0], [0.5, 0.5]]] and seen.options["mask"] == "boolean"
    added = trace_of({**grid, "attn_mask": [[0, None], [0, 0.0]]})
    assert added["weights"]["A_i"].tolist() == [[[1, 0], [0.5, 0.5]]] and added.options["mask"] == "additive"
    assert trace_of({**grid, "attn_mask": [[2, 2], [2, 2]]}).output == [[[1.5], [1.5]]]


def test_a_trace_itself_is_read_back():
    trace = explain(scores=np.zeros((1, 2)), value=np.eye(2), is_causal=True, query_offset=0)
    assert trace_of(json.loads(trace.to_json())) == trace
    assert isinstance(trace_of(trace.to_dict()), Trace)


def test_every_array_of_explain_is_known():
    from inspect import signature

    others = {
        "num_heads",
        "num_kv_heads",
        "attn_mask",
        "is_causal",
        "causal_alignment",
        "query_offset",
        "scale",
        "tokens",
        "context_tokens",
        "title",
        "about",
    }
    assert set(ARRAYS) | others == set(signature(explain).parameters)
