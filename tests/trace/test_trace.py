"""explain: every step against the specification and against headwise itself, for every kind of input."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headwise import attention, multi_head_attention
from headwise.reference import reference_attention
from headwise.trace import explain
from headwise.trace.data import Trace

ROUNDING = 1e-12
BLOCK_STEPS = [
    "shapes",
    "projections",
    "split",
    "scores",
    "scaled",
    "masked",
    "weights",
    "blend",
    "concatenation",
    "output",
]


def block_of(
    rng, n=4, n_k=None, heads=4, kv_heads=2, d_in=6, d_k=3, d_v=2, d_out=5, bias=True, dtype=np.float64
):
    """Arguments of a block whose every width is different."""
    d_context = d_in if n_k is None else d_in + 1
    made = {
        "x": rng.normal(size=(n, d_in)),
        "w_q": rng.normal(size=(d_in, heads * d_k)),
        "w_k": rng.normal(size=(d_context, kv_heads * d_k)),
        "w_v": rng.normal(size=(d_context, kv_heads * d_v)),
        "w_o": rng.normal(size=(heads * d_v, d_out)),
    }
    if n_k is not None:
        made["context"] = rng.normal(size=(n_k, d_context))
    if bias:
        for letter, width in (("q", heads * d_k), ("k", kv_heads * d_k), ("v", kv_heads * d_v), ("o", d_out)):
            made[f"b_{letter}"] = rng.normal(size=width)
    made = {name: array.astype(dtype) for name, array in made.items()}
    return {**made, "num_heads": heads, "num_kv_heads": kv_heads}


@st.composite
def blocks(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1), label="seed"))
    heads, kv_heads = draw(st.sampled_from([(1, 1), (2, 2), (4, 2), (6, 1)]), label="heads")
    n, n_k = draw(st.sampled_from([(1, None), (3, None), (5, 2), (2, 5), (4, 4)]), label="lengths")
    d_k, d_v = draw(st.sampled_from([(1, 1), (3, 2), (2, 5)]), label="widths")
    arguments = block_of(
        rng, n, n_k, heads, kv_heads, d_k=d_k, d_v=d_v, bias=draw(st.booleans(), label="bias")
    )
    n_k = n if n_k is None else n_k
    mask = draw(st.sampled_from(["none", "boolean", "heads", "additive", "inf"]), label="mask")
    full = (heads, n, n_k)
    if mask == "boolean":
        arguments["attn_mask"] = rng.random((n, n_k)) < 0.6
    elif mask == "heads":
        arguments["attn_mask"] = rng.random(full) < 0.6
    elif mask in ("additive", "inf"):
        arguments["attn_mask"] = rng.normal(size=full)
        if mask == "inf":
            arguments["attn_mask"][rng.random(full) < 0.4] = -np.inf
    if draw(st.booleans(), label="causal"):
        arguments |= {"is_causal": True, "query_offset": draw(st.integers(-2, n_k), label="offset")}
    arguments["scale"] = draw(st.sampled_from([None, 0.3, -1.0]), label="scale")
    return arguments


def attention_of(arguments, query, key, value):
    options = {name: arguments.get(name) for name in ("attn_mask", "scale")}
    options["is_causal"] = arguments.get("is_causal", False)
    return reference_attention(query, key, value, query_offset=arguments.get("query_offset", 0), **options)


@given(blocks())
def test_every_number_of_a_block(arguments):
    trace = explain(**arguments)
    assert trace.holds, [check for check in trace.checks if not check.holds]
    context = arguments.get("context", arguments["x"])
    heads, kv_heads = arguments["num_heads"], arguments["num_kv_heads"]
    for letter, rows, count in (
        ("q", arguments["x"], heads),
        ("k", context, kv_heads),
        ("v", context, kv_heads),
    ):
        projected = rows @ arguments[f"w_{letter}"] + arguments.get(f"b_{letter}", 0.0)
        np.testing.assert_array_equal(trace["projections"][letter.upper()], projected)
        index = "i" if letter == "q" or heads == kv_heads else "g"
        found = trace["split"][f"{letter.upper()}_{index}"]
        width = projected.shape[1] // count
        for head in range(count):
            np.testing.assert_array_equal(found[head], projected[:, head * width : (head + 1) * width])
    suffix = "i" if heads == kv_heads else "g"
    query, key, value = trace["split"]["Q_i"], trace["split"][f"K_{suffix}"], trace["split"][f"V_{suffix}"]
    output, weights, _ = attention_of(arguments, query, key, value)
    np.testing.assert_allclose(trace["weights"]["A_i"], weights, rtol=0, atol=ROUNDING)
    np.testing.assert_allclose(trace["blend"]["O_i"], output, rtol=0, atol=ROUNDING * 10)
    joined = np.concatenate(list(trace["blend"]["O_i"]), axis=-1)
    np.testing.assert_array_equal(trace["concatenation"]["H"], joined)
    result = joined @ arguments["w_o"] + arguments.get("b_o", 0.0)
    np.testing.assert_allclose(trace["output"]["Y"], result, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(trace.output, multi_head_attention(**arguments), rtol=1e-9, atol=1e-10)
    masked = bool(arguments.get("attn_mask") is not None or arguments.get("is_causal"))
    with_mask = [step.key for step in trace.steps]
    if "masked" in with_mask:
        assert masked and with_mask == BLOCK_STEPS
        hidden = np.isneginf(trace["masked"]["M_i"])
        assert not trace["weights"]["A_i"][hidden].any()
    else:
        assert with_mask == [key for key in BLOCK_STEPS if key != "masked"]


@given(blocks())
def test_a_trace_survives_json(arguments):
    trace = explain(**arguments)
    again = Trace.from_json(trace.to_json())
    assert again == trace
    for step in trace.steps:
        for array in step.arrays:
            np.testing.assert_array_equal(again[step.key][array.name], step[array.name])


@given(blocks())
def test_every_array_has_the_shape_that_its_letters_say(arguments):
    trace = explain(**arguments)
    sizes = {**trace.sizes, "n": trace.sizes["n_q"]}
    assert sizes["h"] == arguments["num_heads"] and sizes["h_kv"] == arguments["num_kv_heads"]
    for step in trace.steps:
        for array in step.arrays:
            assert len(array.letters) == len(array.shape) == len(array.axes)
            for letters, size in zip(array.letters, array.shape, strict=True):
                product = 1
                for letter in letters.split("·"):
                    product *= sizes["d_in"] if letter == "d_model" else sizes[letter]
                assert product == size, (step.key, array.name, letters)
            assert np.shape(array.values) == tuple(array.shape)


def test_bare_attention_of_one_head_and_of_grouped_heads():
    rng = np.random.default_rng(0)
    for shapes in (((3, 4), (5, 4), (5, 2)), ((6, 3, 4), (2, 5, 4), (2, 5, 7))):
        query, key, value = (rng.normal(size=shape) for shape in shapes)
        trace = explain(query=query, key=key, value=value)
        output = reference_attention(query, key, value)[0]
        np.testing.assert_allclose(trace.output, output.reshape(np.shape(trace.output)), rtol=1e-13)
        assert [step.key for step in trace.steps] == ["shapes", "scores", "scaled", "weights", "blend"]
        assert trace.kind == "attention" and trace.holds
        assert trace.compared["max_abs_difference"] <= trace.compared["tolerance"]


def test_scores_alone():
    rng = np.random.default_rng(1)
    scores, value = rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 4, 5))
    trace = explain(scores=scores, value=value, scale=0.5)
    exponentials = np.exp(scores / 2)
    weights = exponentials / exponentials.sum(-1, keepdims=True)
    np.testing.assert_allclose(trace["weights"]["A_i"], weights, rtol=1e-14)
    np.testing.assert_allclose(trace.output, weights @ value, rtol=1e-13)
    assert trace["scaled"].formula == "Z_i = 0.5 S_i" and trace.holds


def test_one_value_head_may_serve_all_scores():
    trace = explain(scores=np.zeros((4, 1, 2)), value=np.array([[[2.0], [4.0]]]))
    assert trace.output == [[[3.0]]] * 4


@pytest.mark.parametrize("make", [torch.from_numpy, jnp.asarray], ids=["torch", "jax"])
def test_arrays_of_other_kinds(make):
    rng = np.random.default_rng(2)
    arrays = [rng.normal(size=(3, 4)).astype(np.float32) for _ in range(3)]
    trace = explain(**dict(zip(("query", "key", "value"), map(make, arrays), strict=True)))
    same = explain(**dict(zip(("query", "key", "value"), arrays, strict=True)))
    assert trace == same and trace.holds
    expected = reference_attention(*arrays)[0]
    np.testing.assert_allclose(trace.output[0], expected, rtol=1e-13)
    assert 0 < trace.compared["max_abs_difference"] < 1e-6, "float32 beside float64"


def test_causal_rows_and_an_empty_one():
    trace = explain(
        scores=np.zeros((3, 3)), value=np.eye(3), is_causal=True, query_offset=-1, tokens=["a", "b", "c"]
    )
    np.testing.assert_array_equal(trace["weights"]["A_i"], [[[0, 0, 0], [1, 0, 0], [0.5, 0.5, 0]]])
    assert trace.output == [[[0, 0, 0], [1, 0, 0], [0.5, 0.5, 0]]]
    assert trace["masked"].fact("visible_pairs") == 3
    assert trace["masked"].fact("empty_rows") == 1
    assert "Rows that see no key have weights 0 and output 0: head 0 query a." in trace.notes
    assert trace["masked"].formula == "M_i[r, j] = Z_i[r, j] if j ≤ r − 1, else −∞"


def test_nothing_is_seen_at_all():
    trace = explain(scores=np.zeros((2, 2)), value=np.eye(2), attn_mask=np.zeros((2, 2), bool))
    assert trace.holds and trace.output == [[[0, 0], [0, 0]]]
    assert trace["weights"].worked == trace["blend"].worked == ()
    assert str(trace) and trace.to_html() and trace.to_markdown()


def test_names_of_tokens():
    square = {"scores": np.zeros((2, 2)), "value": np.eye(2)}
    trace = explain(**square, tokens=("the", "cat"))
    assert (trace.queries, trace.keys) == (["the", "cat"], ["the", "cat"])
    trace = explain(**square, tokens=["the", "cat"], context_tokens=["le", "chat"])
    assert (trace.queries, trace.keys) == (["the", "cat"], ["le", "chat"])
    assert explain(**square).keys == ["0", "1"]


def test_worked_lines_carry_the_numbers():
    trace = explain(query=np.eye(2), key=np.eye(2), value=np.array([[2.0, 0], [0, 4]]))
    lines = [line for step in trace.steps for line in step.worked]
    assert lines == [
        "S_0[0, 0] = q_0 · k_0 = 1·1 + 0·0 = 1",
        "Z_0[0, 0] = 1 / 1.414214 = 0.707107",
        "A_0[0, 0] = exp(0.707107) / (exp(0.707107) + exp(0)) = 0.669762",
        "O_0[0] = 0.669762·(2, 0) + 0.330238·(0, 4) = (1.339523, 1.320954)",
    ]


def test_a_causal_pass_follows_its_last_query():
    trace = explain(scores=np.zeros((3, 3)), value=np.eye(3), is_causal=True)
    assert trace["masked"].worked == ("query 2 sees 3 of 3 keys: 0, 1, 2",)


def test_large_weights_stand_by_their_shape():
    rng = np.random.default_rng(3)
    trace = explain(rng.normal(size=(1, 128)), num_heads=2, **{f"w_{x}": np.eye(128) for x in "qkvo"})
    kept = {array.name: array.values is not None for array in trace["shapes"].arrays}
    assert kept == {"X": True, "W_Q": False, "W_K": False, "W_V": False, "W_O": False}
    with pytest.raises(ValueError, match="values: expected an array whose numbers are kept; received W_Q"):
        trace["shapes"]["W_Q"]


def test_parameters_are_counted():
    rng = np.random.default_rng(4)
    arguments = block_of(rng)
    facts = explain(**arguments)["shapes"]
    weights = sum(arguments[f"w_{letter}"].size for letter in "qkvo")
    biases = sum(arguments[f"b_{letter}"].size for letter in "qkvo")
    assert facts.fact("parameters_weights") == weights
    assert facts.fact("parameters") == weights + biases


def test_what_is_not_there_is_named():
    trace = explain(scores=np.zeros((1, 2)), value=np.eye(2))
    with pytest.raises(KeyError, match="no step 'split'; there are: scores, weights, blend"):
        trace["split"]
    with pytest.raises(KeyError, match="no array 'Q'; there are: A_i"):
        trace["weights"]["Q"]
    with pytest.raises(KeyError, match="no fact 'x'; there are: none"):
        trace["weights"].fact("x")
    with pytest.raises(KeyError, match="no check 'x'; there are: rows_sum_to_one"):
        trace["weights"].check("x")


def test_inputs_are_not_written_to():
    rng = np.random.default_rng(5)
    arguments = block_of(rng, n_k=3)
    before = {name: np.copy(array) for name, array in arguments.items()}
    explain(**arguments, attn_mask=np.ones((4, 3), bool))
    for name, array in before.items():
        np.testing.assert_array_equal(arguments[name], array)


def test_a_trace_says_what_it_is():
    trace = explain(scores=np.zeros((1, 2)), value=np.eye(2))
    assert repr(trace) == (
        "<Trace 'Attention from its scores: h = 1, n_q = 1, n_k = 2': 3 steps, all checks hold; print it to "
        "read it>"
    )
    assert explain(scores=np.zeros((1, 2)), value=np.eye(2), title="My own").title == "My own"
    rng = np.random.default_rng(6)
    assert explain(**block_of(rng)).title == "Multi-head attention: h = 4, n = 4"


def test_the_difference_shown_is_the_real_one(monkeypatch):
    """If headwise.attention were wrong, the trace would say so."""
    from headwise.trace import forward_inputs

    monkeypatch.setattr(forward_inputs, "attention", lambda *a, **k: attention(*a, **k) + 1e-6)
    trace = explain(query=np.eye(2), key=np.eye(2), value=np.eye(2))
    assert not trace.holds and trace.compared["max_abs_difference"] == pytest.approx(1e-6)
    assert "1 of 8 checks do NOT hold." in str(trace)
    rng = np.random.default_rng(7)
    assert not explain(**block_of(rng)).holds
