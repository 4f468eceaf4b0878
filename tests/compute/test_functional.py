"""The front door: its signature, its answers beside torch's, its rules for masks, empty rows and options."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import headwise.torch
from headwise import AuxRequest, attention, multi_head_attention, plan
from headwise.compute.functional import attention_statistics
from headwise.compute.options import OPTIONS, UNSERVED
from headwise.compute.problem import build_problem
from headwise.errors import CapabilityError, DtypeError, HeadwiseError
from headwise.reference import reference_attention

SDPA = torch.nn.functional.scaled_dot_product_attention


def normal(seed, *shapes, dtype=np.float32):
    rng = np.random.default_rng(seed)
    return tuple(rng.normal(size=shape).astype(dtype) for shape in shapes)


def parameters(function):
    found = inspect.signature(function).parameters
    return {name: part for name, part in found.items() if part.kind is not part.VAR_KEYWORD}


@pytest.mark.parametrize("function", [attention, headwise.torch.attention, plan])
def test_signatures_spell_out_the_one_list_of_options(function):
    """Names, order, defaults; the first eight arguments are torch's, the others go by name."""
    spelled = parameters(function)
    assert list(spelled)[:3] == ["query", "key", "value"]
    told = {name: part.default for name, part in list(spelled.items())[3:]}
    expected = dict(list(OPTIONS.items())[: len(told)])
    assert list(told.items()) == list(expected.items())
    assert len(told) == (5 if function is plan else len(OPTIONS))
    assert {name for name, part in spelled.items() if part.kind is part.KEYWORD_ONLY} == set(list(told)[5:])


def test_the_positional_arguments_are_torchs():
    names = "query key value attn_mask dropout_p is_causal scale enable_gqa"
    assert list(parameters(attention))[:8] == names.split()


@pytest.mark.parametrize("function", [multi_head_attention, reference_attention, build_problem])
def test_others_take_options_with_the_defaults_of_the_list(function):
    own = {"x", "context", "num_heads", "num_kv_heads", "query", "key", "value", "mask", "dropout"}
    own |= {f"{kind}_{letter}" for kind in "wb" for letter in "qkvo"}
    options = {name: part.default for name, part in parameters(function).items() if name not in own}
    assert options and options == {name: OPTIONS[name] for name in options}


@pytest.mark.parametrize("name", list(OPTIONS)[5:])
def test_every_option_is_handed_on(name, monkeypatch):
    """Each alone: the short way for calls without options forgets none of them."""
    (x,) = normal(0, (2, 3, 4))
    handed = {}

    def build(*arrays, **given):
        bound = inspect.signature(build_problem).bind(*arrays, **given).arguments
        handed.update(bound.pop("given", {}), **bound)
        raise ZeroDivisionError

    monkeypatch.setattr("headwise.compute.functional.build_problem", build)
    with pytest.raises(ZeroDivisionError):
        attention(x, x, x, **{name: x[0]})
    assert handed[name] is x[0] or np.shares_memory(handed[name], x)


@pytest.mark.parametrize("name", UNSERVED)
def test_unserved_options_are_refused(name):
    (x,) = normal(0, (2, 3, 4))
    assert attention(x, x, x, **{name: None}).shape == x.shape
    for value in (0, False, 3.5, np.zeros(3)):
        with pytest.raises(CapabilityError, match=f"^{name}: expected None .*not yet served"):
            attention(x, x, x, **{name: value})
        with pytest.raises(CapabilityError, match=f"^{name}: expected None .*not yet served"):
            attention_statistics(x, x, return_aux=AuxRequest(lse=True), **{name: value})


def test_unknown_options_are_type_errors():
    (x,) = normal(0, (2, 3, 4))
    with pytest.raises(TypeError, match="flavour"):
        attention(x, x, x, flavour="mild")
    with pytest.raises(TypeError, match="flavour"):
        attention_statistics(x, x, return_aux=AuxRequest(lse=True), flavour="mild")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_torch_calls_run_unchanged(dtype):
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(2, 6, 11, 8, dtype=dtype, generator=generator)
    key, value = (torch.randn(2, 3, 13, d, dtype=dtype, generator=generator) for d in (8, 5))
    mask = torch.rand(2, 1, 11, 13, generator=generator) < 0.7
    mask[..., 0] = True
    tolerance = {torch.float32: 2e-6, torch.float64: 1e-13}[dtype]
    for arguments in [
        (query, key.repeat_interleave(2, 1), value.repeat_interleave(2, 1)),
        (query, key, value, mask, 0.0, False, None, True),
        (query, key, value, torch.randn(6, 11, 13, dtype=dtype, generator=generator), 0.0, False, 0.3, True),
    ]:
        keywords = dict(
            zip(("scale", "enable_gqa"), arguments[6:], strict=False)
        )  # torch takes no more by position
        expected = SDPA(*arguments[:6], **keywords)
        torch.testing.assert_close(attention(*arguments), expected, rtol=0, atol=tolerance)
        torch.testing.assert_close(attention(*arguments[:6], **keywords), expected, rtol=0, atol=tolerance)
    square = (query, query, query, None, 0.0, True)
    torch.testing.assert_close(attention(*square), SDPA(*square), rtol=0, atol=tolerance)


def test_agrees_with_jax():
    query, key, value = normal(1, (2, 7, 3, 4), (2, 7, 3, 4), (2, 7, 3, 4))  # JAX's layout: (B, n, H, d)
    expected = jax.nn.dot_product_attention(
        jnp.asarray(query), jnp.asarray(key), jnp.asarray(value), is_causal=True
    )
    output = attention(*(jnp.swapaxes(jnp.asarray(x), 1, 2) for x in (query, key, value)), is_causal=True)
    np.testing.assert_allclose(np.swapaxes(output, 1, 2), expected, rtol=0, atol=2e-6)


def test_numpy_and_torch_see_the_same_bits():
    arrays = normal(2, (3, 10, 4), (3, 12, 4), (3, 12, 5))
    np.testing.assert_array_equal(attention(*map(torch.from_numpy, arrays)).numpy(), attention(*arrays))


@pytest.mark.parametrize("lead", [(), (2,), (2, 3), (1, 2, 1, 2)])
def test_any_number_of_leading_axes(lead):
    query, key, value = normal(3, (*lead, 6, 5, 4), (*lead, 2, 7, 4), (*lead, 2, 7, 3))
    output = attention(query, key, value)
    assert output.shape == (*lead, 6, 5, 3)
    for index in np.ndindex(lead):
        np.testing.assert_array_equal(output[index], attention(query[index], key[index], value[index]))


def test_two_dimensions_are_one_head():
    query, key, value = normal(4, (5, 4), (7, 4), (7, 3))
    request = AuxRequest(
        lse=True, top_k=2, received=True, pooled=3, classes=[0, 1, 0, 1, 0, 1, 1], relative=(0,)
    )
    output, aux = attention(query, key, value, return_aux=request, query_offset=1)
    wide, wide_aux = attention(query[None], key[None], value[None], return_aux=request, query_offset=1)
    assert output.shape == (5, 3)
    np.testing.assert_array_equal(output, wide[0])
    assert aux.lse.shape == (5,)
    assert aux.received.shape == (7,)
    assert aux.pooled.shape == (2, 3)
    for name, answer in aux.asked().items():
        np.testing.assert_array_equal(answer, getattr(wide_aux, name)[0], err_msg=name)


def test_without_a_request_only_the_output_comes_back():
    (x,) = normal(5, (2, 3, 4))
    assert isinstance(attention(x, x, x), np.ndarray)
    output, aux = attention(x, x, x, return_aux=AuxRequest())
    np.testing.assert_array_equal(output, attention(x, x, x))
    assert aux.asked() == {}


def test_output_is_fresh_writable_and_contiguous():
    (x,) = normal(6, (2, 3, 4))
    output = attention(x, x, x)
    assert output.flags.c_contiguous and output.flags.writeable and output.base is None
    tensor = attention(*[torch.from_numpy(x)] * 3)
    tensor += 1.0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nothing_is_cast(dtype):
    (x,) = normal(7, (2, 9, 4), dtype=dtype)
    request = AuxRequest(lse=True, entropy=True, received=True)
    output, aux = attention(x, x, x, return_aux=request)
    assert output.dtype == aux.lse.dtype == aux.entropy.dtype == aux.received.dtype == dtype
    expected, _, lse = reference_attention(x, x, x)
    tolerance = {np.float32: 1e-6, np.float64: 1e-14}[dtype]
    np.testing.assert_allclose(output, expected, rtol=0, atol=tolerance)
    np.testing.assert_allclose(aux.lse, lse, rtol=0, atol=2 * tolerance)


def test_mask_and_causal_compose():
    query, key, value = normal(8, (2, 6, 4), (2, 6, 4), (2, 6, 3))
    mask = np.random.default_rng(8).random((6, 6)) < 0.6
    both = attention(query, key, value, mask & np.tri(6, dtype=bool))
    np.testing.assert_array_equal(attention(query, key, value, mask, is_causal=True), both)


def test_alignment_is_an_offset():
    query, key, value = normal(9, (2, 3, 4), (2, 8, 4), (2, 8, 3))
    for alignment, offset in (("upper_left", 0), ("lower_right", 5)):
        aligned = attention(query, key, value, is_causal=True, causal_alignment=alignment)
        placed = attention(query, key, value, is_causal=True, query_offset=offset)
        np.testing.assert_array_equal(aligned, placed)
        band = np.arange(8) <= np.arange(3)[:, None] + offset
        np.testing.assert_allclose(aligned, attention(query, key, value, band), rtol=0, atol=1e-6)


def test_lowest_finite_number_is_no_mask():
    query, key, value = normal(10, (1, 2, 4), (1, 5, 4), (1, 5, 3))
    mask = np.full((2, 5), np.finfo(np.float32).min)
    output = attention(query, key, value, mask)
    np.testing.assert_allclose(output[0], np.tile(value.mean(1), (2, 1)), rtol=1e-5)
    mask[0, 0] = 0.0
    np.testing.assert_allclose(attention(query, key, value, mask)[0, 0], value[0, 0], rtol=1e-6)


def test_zero_mask_changes_nothing():
    query, key, value = normal(11, (1, 2, 4), (1, 5, 4), (1, 5, 3))
    np.testing.assert_array_equal(
        attention(query, key, value, np.zeros((2, 5), np.float32)), attention(query, key, value)
    )


EMPTY_ROW = AuxRequest(
    lse=True, max_weight=True, argmax=True, entropy=True, distance=True, top_k=2, sink_mass=1, relative=(0,),
    matches=[1, 2, 1], classes=[0, 1, 0], received=True, pooled=1,
)  # fmt: skip


@pytest.mark.parametrize("hidden", ["false", "minus infinity", "causal"])
def test_a_row_that_sees_no_key(hidden):
    query, key, value = normal(12, (1, 3, 4), (1, 3, 4), (1, 3, 2))
    options = {"query_offset": 0}
    if hidden == "causal":
        options = {"is_causal": True, "query_offset": -2}
    else:
        mask = np.ones((3, 3), bool)
        mask[:2] = False
        options["attn_mask"] = (
            mask if hidden == "false" else np.where(mask, np.float32(0), np.float32(-np.inf))
        )
    output, aux = attention(query, key, value, return_aux=EMPTY_ROW, **options)
    np.testing.assert_array_equal(output[0, :2], 0)
    assert np.isfinite(output[0, 2]).all() and output[0, 2].any()
    np.testing.assert_array_equal(aux.lse[0, :2], -np.inf)
    np.testing.assert_array_equal(aux.argmax[0], [-1, -1, aux.argmax[0, 2]])
    np.testing.assert_array_equal(aux.top_k_index[0, :2], -1)
    np.testing.assert_array_equal(aux.top_k_weight[0, :2], 0)
    for name in (
        "max_weight",
        "entropy",
        "distance",
        "sink_mass",
        "relative",
        "duplicate",
        "induction",
        "classes",
    ):
        answer = getattr(aux, name)[0]
        assert np.isnan(answer[:2]).all(), name
        assert np.isfinite(answer[2]).all(), name
    np.testing.assert_array_equal(aux.duplicate_count[0, :2], 0)
    assert np.isnan(aux.pooled[0, :2]).all() and np.isfinite(aux.pooled[0, 2]).all()
    np.testing.assert_allclose(aux.received.sum(), 1, rtol=1e-6)
    assert aux.received_count.max() == 1


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf, 1e30])
@pytest.mark.parametrize("way", ["boolean", "additive", "causal"])
def test_what_hidden_keys_hold_never_reaches_the_output(way, poison):
    query, key, value = normal(13, (2, 70, 4), (2, 70, 4), (2, 70, 3))
    hidden = np.zeros((70, 70), bool)
    hidden[:, [3, 40, 69]] = True
    if way == "causal":
        hidden = np.zeros((70, 70), bool)
        hidden[:69, 69] = True
    visible = ~hidden
    options = {
        "boolean": {"attn_mask": visible},
        "additive": {"attn_mask": np.where(visible, np.float32(0), np.float32(-np.inf))},
        "causal": {"is_causal": True},
    }[way]
    request = AuxRequest(lse=True, entropy=True, top_k=3, received=True, pooled=16)
    clean, clean_aux = attention(query, key, value, return_aux=request, **options)
    rows = slice(0, 69) if way == "causal" else slice(None)
    columns = [69] if way == "causal" else [3, 40, 69]
    key[:, columns], value[:, columns] = poison, poison
    output, aux = attention(query, key, value, return_aux=request, **options)
    np.testing.assert_allclose(output[:, rows], clean[:, rows], rtol=1e-5, atol=1e-6)
    for name in ("lse", "entropy", "top_k_weight"):
        found, expected = getattr(aux, name)[:, rows], getattr(clean_aux, name)[:, rows]
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6, err_msg=name)
    if way != "causal":
        np.testing.assert_allclose(aux.received, clean_aux.received, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(aux.pooled, clean_aux.pooled, rtol=1e-5, atol=1e-6)


def test_a_nan_that_is_seen_stays_in_its_rows():
    query, key, value = normal(14, (1, 4, 4), (1, 4, 4), (1, 4, 3))
    value[0, 2, 1] = np.nan
    output = attention(query, key, value, is_causal=True)
    np.testing.assert_array_equal(np.isnan(output[0]), [[False] * 3] * 2 + [[False, True, False]] * 2)


def test_no_keys():
    query, key, value = normal(15, (2, 3, 4), (2, 0, 4), (2, 0, 5))
    request = AuxRequest(lse=True, argmax=True, top_k=2, entropy=True, received=True, pooled=2)
    output, aux = attention(query, key, value, return_aux=request)
    np.testing.assert_array_equal(output, np.zeros((2, 3, 5)))
    np.testing.assert_array_equal(aux.lse, -np.inf)
    np.testing.assert_array_equal(aux.argmax, -1)
    np.testing.assert_array_equal(aux.top_k_index, -1)
    np.testing.assert_array_equal(aux.top_k_weight, 0)
    assert np.isnan(aux.entropy).all()
    assert aux.received.shape == (2, 0)
    assert aux.pooled.shape == (2, 2, 0)


@pytest.mark.parametrize(
    "shapes", [((2, 0, 4), (2, 3, 4), (2, 3, 5)), ((0, 2, 3, 4), (0, 2, 3, 4), (0, 2, 3, 5))]
)
def test_no_queries(shapes):
    request = AuxRequest(lse=True, received=True, pooled=2, matches=[0, 1, 2], classes=[0, 0, 1])
    output, aux = attention(*normal(16, *shapes), return_aux=request, query_offset=0)
    assert output.shape == (*shapes[0][:-1], 5)
    np.testing.assert_array_equal(aux.received, 0)
    np.testing.assert_array_equal(aux.received_count, 0)
    assert aux.lse.size == 0


def test_value_is_required():
    (x,) = normal(17, (2, 3, 4))
    with pytest.raises(DtypeError, match="^value: .*received None"):
        attention(x, x, None)


@pytest.mark.parametrize("implementation", ["auto", "kernel"])
def test_implementations(implementation):
    (x,) = normal(18, (2, 3, 4))
    np.testing.assert_array_equal(attention(x, x, x, implementation=implementation), attention(x, x, x))


def test_statistics_alone_are_the_same_bits():
    query, key, value = normal(19, (2, 6, 30, 4), (2, 2, 40, 4), (2, 2, 40, 3))
    mask = np.random.default_rng(19).random((30, 40)) < 0.7
    request = AuxRequest(lse=True, entropy=True, argmax=True, top_k=4, received=True, pooled=7, distance=True)
    _, aux = attention(query, key, value, mask, scale=0.4, query_offset=3, is_causal=True, return_aux=request)
    alone = attention_statistics(
        query, key, mask, scale=0.4, query_offset=3, is_causal=True, return_aux=request
    )
    assert set(alone.asked()) == set(aux.asked())
    for name, answer in aux.asked().items():
        np.testing.assert_array_equal(getattr(alone, name), answer, err_msg=name)


def test_statistics_alone_on_torch():
    query, key, _ = normal(20, (3, 5, 4), (3, 5, 4), (1,))
    aux = attention_statistics(
        torch.from_numpy(query), torch.from_numpy(key), return_aux=AuxRequest(entropy=True)
    )
    assert isinstance(aux.entropy, torch.Tensor)
    assert aux.entropy.shape == (3, 5)


def test_statistics_alone_need_a_request():
    (x,) = normal(21, (2, 3, 4))
    with pytest.raises(HeadwiseError, match="return_aux"):
        attention_statistics(x, x, return_aux=3)


def test_tokens_of_any_size_are_told_apart():
    (x,) = normal(22, (1, 3, 4))
    far = [7, 7 + 2**32, 7]
    _, aux = attention(x, x, x, return_aux=AuxRequest(matches=far))
    np.testing.assert_array_equal(aux.duplicate_count[0], [1, 0, 1])


def test_equal_weights_choose_the_lowest_index():
    value = np.zeros((1, 70, 1), np.float32)
    for n_k in (5, 70):
        key = np.ones((1, n_k, 2), np.float32)
        query = np.ones((1, 2, 2), np.float32)
        _, aux = attention(query, key, value[:, :n_k], return_aux=AuxRequest(argmax=True, top_k=4))
        np.testing.assert_array_equal(aux.argmax, 0)
        np.testing.assert_array_equal(aux.top_k_index, np.broadcast_to(np.arange(4), (1, 2, 4)))


def every_option(convert=np.asarray):
    """Every option at once, for 2 batch entries, 6 heads, 5 queries and 7 keys."""
    rng = np.random.default_rng(23)
    return {
        "attn_mask": convert(rng.random((5, 7)) < 0.9),
        "attn_bias": convert(rng.normal(size=(6, 5, 7)).astype(np.float32)),
        "is_causal": True,
        "query_offset": convert(np.array([2, 4])),
        "window_size": (4, 2),
        "query_lengths": convert(np.array([5, 4])),
        "kv_lengths": convert(np.array([6, 7])),
        "segment_ids": (convert(np.arange(5) // 4), convert(np.arange(7) // 5)),
        "softcap": 3.0,
        "alibi_slopes": convert(rng.random(6).astype(np.float32)),
        "sinks": convert(rng.normal(size=(6, 2)).astype(np.float32)),
        "head_mask": convert(rng.normal(size=(2, 6)).astype(np.float32)),
    }


@pytest.mark.parametrize("convert", [torch.from_numpy, jnp.asarray], ids=["torch", "jax"])
def test_options_of_the_callers_own_kind(convert):
    arrays = normal(23, (2, 6, 5, 4), (2, 3, 7, 4), (2, 3, 7, 3))
    dropout = {"dropout_p": 0.2, "rng": 5}
    expected = attention(*arrays, **every_option(), **dropout)
    np.testing.assert_array_equal(
        attention(*map(convert, arrays), **every_option(convert), **dropout), expected
    )
    # Small ones may also be NumPy arrays or lists beside any kind.
    np.testing.assert_array_equal(attention(*map(convert, arrays), **every_option(), **dropout), expected)
    assert np.abs(expected).max() > 0


@pytest.mark.parametrize("n_q, n_k, batch", [(0, 7, 2), (5, 0, 2), (0, 0, 2), (5, 7, 0)])
def test_every_option_on_empty_axes(n_q, n_k, batch):
    query, key, value = normal(24, (batch, 6, n_q, 4), (batch, 3, n_k, 4), (batch, 3, n_k, 3))
    options = {
        "attn_mask": np.ones((n_q, n_k), bool), "attn_bias": np.zeros((n_q, n_k), np.float32),
        "is_causal": True, "query_offset": np.zeros(batch, int), "window_size": (4, 2),
        "query_lengths": [n_q] * batch,
        "kv_lengths": [n_k] * batch, "segment_ids": (np.zeros(n_q, int), np.zeros(n_k, int)), "softcap": 3.0,
        "alibi_slopes": np.ones(6), "head_mask": np.ones(6), "dropout_p": 0.5, "rng": 0,
    }  # fmt: skip
    request = AuxRequest(
        lse=True, distance=True, sum_squares=True, sink_logit_mass=True, received=True, pooled=2
    )
    for sinks in (None, np.ones(6)):
        output, aux = attention(query, key, value, sinks=sinks, return_aux=request, **options)
        np.testing.assert_array_equal(output, np.zeros((batch, 6, n_q, 3)))
        if n_k == 0:
            np.testing.assert_array_equal(aux.lse, -np.inf if sinks is None else 1.0)
            assert np.isnan(aux.distance_histogram).all() and np.isnan(aux.sum_squares).all()


@pytest.mark.parametrize("sign", [1, -1])
def test_the_farthest_offsets(sign):
    query, key, value = normal(25, (1, 3, 4), (1, 5, 4), (1, 5, 2))
    far = sign * 2**30
    plain = attention(query, key, value)
    np.testing.assert_array_equal(
        attention(query, key, value, query_offset=far, is_causal=True), plain if sign > 0 else 0 * plain
    )
    window = (None, 2**30) if sign < 0 else (2**30, None)
    output, aux = attention(
        query, key, value, query_offset=far, window_size=window, return_aux=AuxRequest(distance=True)
    )
    near = np.arange(5) <= np.arange(3)[:, None] if sign < 0 else np.arange(5) >= np.arange(3)[:, None]
    np.testing.assert_allclose(output, attention(query, key, value, near), rtol=0, atol=1e-6)
    np.testing.assert_allclose(aux.distance, 2**30, rtol=1e-6)
    np.testing.assert_allclose(aux.distance_histogram[:, -1], 1, rtol=1e-6)


def test_a_generator_moves_on():
    query, key, value = normal(26, (1, 30, 4), (1, 30, 4), (1, 30, 2))
    first, second = np.random.default_rng(1), np.random.default_rng(1)
    outputs = [attention(query, key, value, dropout_p=0.5, rng=rng) for rng in (first, first, second)]
    np.testing.assert_array_equal(outputs[0], outputs[2])
    assert (outputs[0] != outputs[1]).any()
    attention(query, key, value, rng=second)  # nothing to drop: the generator is left where it is
    np.testing.assert_array_equal(attention(query, key, value, dropout_p=0.5, rng=second), outputs[1])


def test_two_dimensions_with_every_option():
    query, key, value = normal(27, (5, 4), (7, 4), (7, 3))
    options = every_option()
    options |= {"query_offset": 2, "query_lengths": 5, "kv_lengths": 6}
    for name in ("attn_bias", "alibi_slopes", "sinks"):
        options[name] = options[name][:1]
    options["head_mask"] = [0.5]
    wide = attention(query[None], key[None], value[None], **options)
    np.testing.assert_array_equal(attention(query, key, value, **options), wide[0])
    expected, _, _ = reference_attention(query, key, value, **options)
    np.testing.assert_allclose(wide[0], expected, rtol=0, atol=2e-6)
