"""Arrays from elsewhere: `inspect_qk`, and the .npz file of the command line."""

import zipfile

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import headwise
from headwise.errors import DtypeError, HeadwiseError, ShapeError
from headwise.inspect import inspect_qk
from headwise.inspect.npz import inspect_npz


def arrays(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal((2, *shape), dtype=np.float32)


def test_it_is_a_public_name():
    assert headwise.inspect_qk is inspect_qk and "inspect_qk" in headwise.__all__


def test_every_layout_and_kind_of_array():
    query, key = arrays(3, 2, 10, 4)
    expected = inspect_qk(query, key, is_causal=True)
    assert [layer["layer"] for layer in expected.layers] == [0, 1, 2]
    for kind in (torch.from_numpy, jnp.asarray, lambda array: list(array), lambda array: array[..., ::1]):
        assert inspect_qk(kind(query), kind(key), is_causal=True).to_dict() == expected.to_dict()
    one = inspect_qk(query[1, 1], key[1, 1], is_causal=True).layers[0]["heads"][0]
    assert one["scores"] == expected.layers[1]["heads"][1]["scores"]


def test_layers_may_have_different_heads():
    shapes = [(2, 10, 4), (5, 10, 8), (1, 10, 4)]
    report = inspect_qk([arrays(*s)[0] for s in shapes], [arrays(*s)[1] for s in shapes])
    assert [len(layer["heads"]) for layer in report.layers] == [2, 5, 1]
    assert report.model["heads"] == 5 and report.to_html() and str(report)


def test_words_and_where_they_come_from():
    query, key = arrays(2, 6, 4)
    report = inspect_qk(
        query, key, tokens=list("abcdef"), special=[5, 0], name="mine", source="here", text_source="a text",
        notes=["First."],
    )  # fmt: skip
    assert (report.tokens, report.special) == (list("abcdef"), [0, 5])
    assert (report.model["name"], report.model["source"], report.text["source"]) == ("mine", "here", "a text")
    assert report.notes[0] == "First." and "duplicate and induction" in report.notes[1]
    assert inspect_qk(query, key, ids=[9, 8, 7, 6, 5, 4]).tokens == list("987654")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
({"query": []}, ShapeError, "query: expected at least one layer; received an empty list"),
        (
            {"query": np.zeros((1, 1, 2, 6, 4), np.float32)},
            ShapeError,
            r"query: expected \(H, n, d\).*shape \(1, 1, 2, 6, 4\)",
        ),
        (
            {"query": [np.zeros((1, 2, 6, 4), np.float32)]},
            ShapeError,
            r"query: expected \(H, n, d\) per layer",
        ),
        ({"query": np.zeros(4, np.float32)}, ShapeError, r"received shape \(4,\)"),
        (
            {"query": np.zeros((0, 2, 6, 4), np.float32)},
            ShapeError,
            "query: expected at least one layer; received none",
        ),
        (
            {"key": np.zeros((3, 2, 6, 4), np.float32)},
            ShapeError,
            "key: expected 1 layers, as query has; received 3 layers",
        ),
        (
            {"key": np.zeros((2, 0, 4), np.float32)},
            ShapeError,
            "at least one token each; received 6 queries and 0 keys",
        ),
        (
            {"query": [np.zeros((2, 6, 4)), np.zeros((2, 7, 4))], "key": np.zeros((2, 2, 6, 4))},
            ShapeError,
            "query: expected 6 tokens in every layer; received 7 in layer 1",
        ),
        ({"query": np.zeros((2, 6, 4), np.float16)}, HeadwiseError, "query"),
        ({"query": "x"}, DtypeError, "query"),
        ({"key": np.zeros((2, 6, 5), np.float32)}, ShapeError, "key"),
        ({"key": np.zeros((2, 6, 4))}, DtypeError, "key: expected float32"),
        ({"value": np.zeros((2, 7, 4), np.float32)}, ShapeError, "value"),
        (
            {"tokens": "abcdef"},
            HeadwiseError,
            "tokens: expected 6 strings, one per token; received one string",
        ),
        ({"tokens": ["a"]}, HeadwiseError, "tokens: expected 6 strings, one per token; received 1"),
        ({"ids": [1, 2]}, ShapeError, r"ids: expected 6 token ids; received shape \(2,\)"),
        ({"ids": [0.5] * 6}, DtypeError, "ids"),
        ({"special": [6]}, HeadwiseError, "special: expected different positions from 0 to 5"),
        ({"special": [True] + [False] * 5}, HeadwiseError, "Hint: of a mask: np.flatnonzero"),
        ({"classes": {"x": [1, 1]}}, HeadwiseError, r"classes\['x'\]: expected different positions"),
        (
            {"key": np.zeros((2, 9, 4), np.float32), "is_causal": True},
            ShapeError,
            "is_causal: expected query_offset= or causal_alignment= beside it",
        ),
        ({"query_offset": 1.5}, HeadwiseError, "query_offset: expected a whole number; received 1.5"),
        (
            {"query_offset": 1, "causal_alignment": "upper_left"},
            HeadwiseError,
            "query_offset or causal_alignment, not both",
        ),
        ({"causal_alignment": "left"}, HeadwiseError, "causal_alignment: expected \"upper_left\" or"),
        ({"window_size": 5}, HeadwiseError, "window_size"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(change, error, message):
    query, key = arrays(2, 6, 4)
    arguments = {"query": query, "key": key, **change}
    if change.get("query") is not None and getattr(change["query"], "dtype", None) == np.float64:
        arguments["key"] = key.astype(np.float64)
    with pytest.raises(error, match=message):
        inspect_qk(**arguments)


def test_an_npz_file_is_the_same_as_its_arrays(tmp_path):
    query, key = arrays(2, 3, 8, 4)
    options = {
        "is_causal": True, "scale": 0.3, "softcap": 20.0, "special": np.array([0]),
        "window_size": np.array([4, 0]),
        "tokens": np.array(list("abcdefgh")), "ids": np.arange(8) % 3, "pairs": np.array([[5, 3]]),
    }  # fmt: skip
    path = tmp_path / "layers.npz"
    np.savez(path, q=query, k=key, **options)
    report = inspect_npz(path, name="n", source="s", rollout=2)
    options["window_size"], options["tokens"] = (4, 0), list("abcdefgh")
    assert report == inspect_qk(query, key, name="n", source="s", rollout=2, **options)
    assert inspect_npz(path).model["name"] == "layers"
    np.savez(path, query=query, key=key, window_size=np.array([-1, 2]))
    assert inspect_npz(path, name="", source="") == inspect_qk(query, key, window_size=(None, 2), name="")


def refused_file(path, case):
    query, key = arrays(2, 6, 4)
    if case == "text":
        path.write_text("hello")
    elif case == "array":
        with path.open("wb") as file:
            np.save(file, query)
    elif case == "objects":
        np.savez(path, query=np.array([{}], dtype=object), key=key)
    elif case == "cut":
        np.savez(path, query=query, key=key)
        path.write_bytes(path.read_bytes()[:700] + path.read_bytes()[760:])
    elif case == "other zip":
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("query.npy", "no array")
    elif case == "folder":
        path.mkdir()
    else:
        np.savez(path, **{"q": query, "k": key, **case})


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("text", "npz: expected an .npz file with query and key; received .*which is none"),
        ("array", "npz: expected an .npz file with query and key; received .*which is none"),
        (
            "objects",
            "npz: expected an .npz file of plain arrays.*Hint: Python objects in a file are never loaded",
        ),
        ("cut", "npz: expected an .npz file"),
        ("other zip", "npz: expected an .npz file of plain arrays"),
        ("folder", "npz: expected a file that can be read"),
        ("missing", "npz: expected a file that can be read; received .*No such file"),
        ({"keys": np.zeros(3)}, "npz: expected arrays called query, key, .*; received 'keys'"),
        ({"query": np.zeros(3)}, "npz: expected one of q and query"),
        ({"tokens": np.zeros(6)}, "tokens: expected a vector of strings"),
        ({"is_causal": np.array([True])}, "is_causal: expected True or False; received bool of shape"),
        ({"is_causal": 1}, "is_causal: expected True or False; received int64"),
        ({"window_size": 3}, "window_size: expected two whole numbers"),
        ({"scale": np.zeros(2)}, "scale: expected a single value"),
        ({"special": np.array([9])}, "special: expected different positions"),
        ({"ids": np.array(["a"] * 6)}, "ids"),
    ],
    ids=str,
)
def test_a_file_that_does_not_fit_is_one_clear_error(tmp_path, case, message):
    path = tmp_path / "qk.npz"
    if case != "missing":
        refused_file(path, case)
    with pytest.raises(HeadwiseError, match=message):
        inspect_npz(path)


def test_a_file_without_keys(tmp_path):
    np.savez(tmp_path / "q.npz", query=arrays(2, 6, 4)[0])
    with pytest.raises(HeadwiseError, match=r"npz: expected query and key; received .* with query in it"):
        inspect_npz(tmp_path / "q.npz")


def test_keys_that_other_heads_see_do_not_count():
    rng = np.random.default_rng(5)
    query, key = rng.normal(size=(2, 2, 12, 4))
    mask = rng.random((2, 12, 12)) < 0.6
    report = inspect_qk(query, key, attn_mask=mask)
    for head, entry in enumerate(report.layers[0]["heads"]):
        for place, mass, mean in entry["received"]["heaviest"]:
            assert mean == pytest.approx(mass / mask[head, :, place].sum(), abs=2e-6)
