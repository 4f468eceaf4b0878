"""Laws that hold for every input: what is isolated, what permutes, what is linear, what does not matter."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headwise import AuxRequest, attention
from headwise.compute.request import AuxRequest as Request
from tests.strategies import MASKS, cases

NO_EMPTY_MASKS = tuple(mask for mask in MASKS if mask != "all_false")


def close(found, expected, dtype, scale=1.0):
    tolerance = {np.dtype(np.float32): 3e-5, np.dtype(np.float64): 3e-13}[np.dtype(dtype)]
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * scale)


def rows_of_mask(mask, rows):
    """The mask of some query rows; a mask without a query axis serves them all."""
    return mask if mask is None or mask.ndim < 2 or mask.shape[-2] == 1 else mask[..., rows, :]


@given(cases(), st.data())
def test_chunks_of_queries_are_the_rows_of_the_whole(case, data):
    n_q = case.query.shape[-2]
    cut = data.draw(st.integers(0, n_q))
    options = dict(case.options)
    mask, offset = options.pop("attn_mask"), options.pop("query_offset", 0)
    request = AuxRequest(lse=True, argmax=True, entropy=True)
    whole, aux = attention(
        case.query, case.key, case.value, mask, query_offset=offset, return_aux=request, **options
    )
    for rows in (slice(0, cut), slice(cut, n_q)):
        part, part_aux = attention(
            case.query[..., rows, :], case.key, case.value, rows_of_mask(mask, rows),
            query_offset=offset + rows.start, return_aux=request, **options,
        )  # fmt: skip
        close(part, whole[..., rows, :], whole.dtype, 10)
        close(part_aux.lse, aux.lse[..., rows], whole.dtype)
        close(part_aux.entropy, aux.entropy[..., rows], whole.dtype, 10)


@given(cases())
def test_batch_entries_do_not_see_each_other(case):
    lead = case.query.shape[:-3]
    options = dict(case.options)
    mask = options.pop("attn_mask")
    whole = attention(case.query, case.key, case.value, mask, **options)
    for index in np.ndindex(lead):
        own = mask[index] if mask is not None and mask.ndim == case.query.ndim else mask
        alone = attention(case.query[index], case.key[index], case.value[index], own, **options)
        np.testing.assert_array_equal(alone, whole[index])


@given(cases())
def test_heads_do_not_see_each_other(case):
    heads, kv_heads = case.query.shape[-3], case.key.shape[-3]
    options = dict(case.options)
    mask = options.pop("attn_mask")
    whole = attention(case.query, case.key, case.value, mask, **options)
    for h in range(heads):
        g = h // (heads // kv_heads)
        one, kv = slice(h, h + 1), slice(g, g + 1)
        own = mask[..., one, :, :] if mask is not None and mask.ndim >= 3 else mask
        alone = attention(
            case.query[..., one, :, :], case.key[..., kv, :, :], case.value[..., kv, :, :], own, **options
        )
        np.testing.assert_array_equal(alone, whole[..., one, :, :])


@given(cases(masks=NO_EMPTY_MASKS), st.randoms(use_true_random=False))
def test_the_order_of_keys_does_not_matter_without_positions(case, random):
    order = np.arange(case.key.shape[-2])
    random.shuffle(order)
    mask, scale = case.options["attn_mask"], case.options["scale"]
    moved = None if mask is None else mask[..., order]
    request = AuxRequest(lse=True, entropy=True, max_weight=True, received=True)
    output, aux = attention(case.query, case.key, case.value, mask, scale=scale, return_aux=request)
    again, again_aux = attention(
        case.query, case.key[..., order, :], case.value[..., order, :], moved, scale=scale, return_aux=request
    )
    close(again, output, output.dtype, 10)
    close(again_aux.lse, aux.lse, output.dtype, 10)
    close(again_aux.entropy, aux.entropy, output.dtype, 10)
    close(again_aux.received, aux.received[..., order], output.dtype, 10)


@given(cases(), st.floats(-2, 2, width=32), st.floats(-2, 2, width=32))
def test_output_is_linear_in_the_values(case, a, b):
    dtype = case.value.dtype.type
    other = np.ascontiguousarray(case.value[..., ::-1, :])
    mixed = attention(case.query, case.key, dtype(a) * case.value + dtype(b) * other, **case.options)
    parts = [attention(case.query, case.key, value, **case.options) for value in (case.value, other)]
    close(mixed, dtype(a) * parts[0] + dtype(b) * parts[1], dtype, 20)


@given(cases(masks=("none", "boolean_keys", "additive")), st.data())
def test_later_keys_do_not_matter_to_causal_rows(case, data):
    n_q, n_k = case.query.shape[-2], case.key.shape[-2]
    offset = data.draw(st.integers(-n_q, n_k))
    kept = data.draw(st.integers(1, n_k))
    options = {**case.options, "is_causal": True, "query_offset": offset}
    mask = options.pop("attn_mask")
    output = attention(case.query, case.key, case.value, mask, **options)
    key, value = case.key.copy(), case.value.copy()
    key[..., kept:, :], value[..., kept:, :] = np.nan, np.inf
    rows = slice(0, max(0, min(n_q, kept - offset)))  # those that stand before the first changed key
    close(attention(key=key, query=case.query, value=value, attn_mask=mask, **options)[..., rows, :],
          output[..., rows, :], output.dtype, 10)  # fmt: skip


@given(cases(masks=("none", "boolean", "additive", "additive_inf")), st.floats(-30, 30, width=32))
def test_adding_a_number_to_every_score_of_a_row_changes_only_the_lse(case, shift):
    n_q, n_k, dtype = case.query.shape[-2], case.key.shape[-2], case.query.dtype
    options = dict(case.options)
    mask = options.pop("attn_mask")
    rows = (shift * (1 + np.arange(n_q)) / n_q).astype(dtype)
    added = np.broadcast_to(rows[:, None], (n_q, n_k)).astype(dtype)
    if mask is None:
        plain = np.zeros_like(added)
    elif mask.dtype == np.bool_:
        plain = np.where(mask, dtype.type(0), dtype.type(-np.inf))
    else:
        plain = mask
    request = AuxRequest(lse=True, entropy=True)
    arrays = (case.query, case.key, case.value)
    output, aux = attention(*arrays, plain + dtype.type(0.25), return_aux=request, **options)
    moved, moved_aux = attention(*arrays, plain + dtype.type(0.25) + added, return_aux=request, **options)
    close(moved, output, dtype, 30)
    close(moved_aux.entropy, aux.entropy, dtype, 30)
    seen = np.isfinite(aux.lse)
    np.testing.assert_array_equal(seen, np.isfinite(moved_aux.lse))
    expected = np.where(seen, aux.lse + rows, -np.inf)
    close(moved_aux.lse, expected, dtype, 30)


@given(cases())
def test_outputs_stay_within_the_values_and_masses_within_one(case):
    n_k = case.key.shape[-2]
    request = Request(
        max_weight=True, entropy=True, sink_mass=2, classes=np.arange(n_k) % 3, received=True, lse=True
    )
    output, aux = attention(case.query, case.key, case.value, **case.options, return_aux=request)
    group = case.query.shape[-3] // case.key.shape[-3]
    value = case.value.repeat(group, axis=-3)
    seen = np.isfinite(aux.lse)
    slack = 1e-5 * (1 + np.abs(value).max())
    low, high = value.min(-2, keepdims=True) - slack, value.max(-2, keepdims=True) + slack
    assert ((output >= low) & (output <= high) | ~seen[..., None]).all()
    assert (np.abs(np.where(seen, aux.classes.sum(-1), 1) - 1) < 1e-5).all()
    assert ((aux.max_weight > 0) & (aux.max_weight <= 1) | ~seen).all()
    assert ((aux.entropy >= 0) & (aux.entropy <= np.log(n_k) + 1e-5) | ~seen).all()
    np.testing.assert_allclose(aux.received.sum(-1), seen.sum(-1), rtol=1e-4)
