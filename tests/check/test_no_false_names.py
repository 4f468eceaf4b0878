"""Random right implementations are never accused, and what is named is what the function does."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise.check import Contract, check_attention
from headwise.check.cases.case import Case, plain
from headwise.check.cases.chain import RIGHT, attend
from headwise.check.faults import FAULTS

SCORES = {fault.key: fault for fault in FAULTS if not fault.needs and not {"hidden"} & set(fault.changes)}


@st.composite
def right_attention(draw):
    """Attention written in one of many ways that give the same numbers."""
    scaled = draw(st.sampled_from(["query", "key", "both", "scores", "late"]))
    base = draw(st.sampled_from(["e", "2"]))
    shift = draw(st.sampled_from(["row", "matrix", "row and more", "running"]))
    fill = draw(st.sampled_from([-np.inf, -1e9, "lowest", "renormalise"]))
    constant = draw(st.floats(-2, 2))
    order = draw(st.sampled_from(["as given", "reversed"]))
    product = draw(st.sampled_from(["matmul", "einsum", "sum"]))

    def attention(q, k, v, mask=None):
        dtype, root = q.dtype.type, q.dtype.type(q.shape[-1] ** 0.5)
        half = dtype(q.shape[-1] ** 0.25)
        hidden = None if mask is None else ~np.broadcast_to(mask, (*q.shape[:-1], k.shape[-2]))
        if order == "reversed":
            k, v = k[..., ::-1, :], v[..., ::-1, :]
            hidden = None if hidden is None else hidden[..., ::-1]
        q, k = {"query": (q / root, k), "key": (q, k / root), "both": (q / half, k / half)}.get(
            scaled, (q, k)
        )
        k = k + dtype(constant) / dtype(10)  # the same for all keys: a constant per row of scores
        if product == "matmul":
            s = q @ k.swapaxes(-1, -2)
        elif product == "einsum":
            s = np.einsum("...id,...jd->...ij", q, k)
        else:
            s = (q[..., :, None, :] * k[..., None, :, :]).sum(-1)
        s = s / root if scaled in ("scores", "late") else s
        s = s + dtype(constant)
        if hidden is not None and fill != "renormalise":
            s = np.where(hidden, dtype(np.finfo(dtype).min / 4 if fill == "lowest" else fill), s)
        top = s.max(-1, keepdims=True)
        if shift == "matrix" and hidden is None and np.ptp(s) < 50:
            top = s.max((-1, -2), keepdims=True)
        top = top + dtype(1.5) if shift == "row and more" else top
        e = np.exp2((s - top) * dtype(np.log2(np.e))) if base == "2" else np.exp(s - top)
        if hidden is not None and fill == "renormalise":
            e = np.where(hidden, dtype(0), e)
        if shift == "running":
            return np.cumsum(e[..., None] * v[..., None, :, :], -2)[..., -1, :] / e.sum(-1, keepdims=True)
        return (e @ v) / e.sum(-1, keepdims=True)

    return attention


@settings(max_examples=60)
@given(attention=right_attention(), seed=st.integers(0, 10**6))
def test_right_implementations_are_not_accused(attention, seed):
    report = check_attention(attention, Contract(features={"mask"}, layout="bhnd", kind="numpy"), seed=seed)
    assert report.passed, str(report)


def test_this_test_can_fail():
    def attention(q, k, v, mask=None):
        return attend(Case(q, k, v, mask=mask), RIGHT.exchange(SCORES["scale on one side"].changes)).astype(
            q.dtype
        )

    assert not check_attention(attention, Contract(features={"mask"}, layout="bhnd", kind="numpy")).passed


PAIRS = [(a, b) for a in sorted(SCORES) for b in sorted(SCORES) if a < b]
CHOSEN = [PAIRS[at] for at in np.random.default_rng(0).choice(len(PAIRS), 60, replace=False)]


@pytest.mark.parametrize("first, second", CHOSEN)
def test_what_is_named_is_what_the_function_does(first, second):
    """Two mistakes at once: the checker may have no name, but a name that it gives explains the answer."""
    changes = {**SCORES[first].changes, **SCORES[second].changes}
    steps = RIGHT.exchange(changes)

    def attention(q, k, v):
        return attend(Case(q, k, v, num_heads=q.shape[1]), steps)

    report = check_attention(attention, Contract(features=(), layout="bhnd", kind="numpy"))
    on_values = [found for found in report.outcomes if found.rule == "values"]
    if not on_values or not on_values[0].fault or on_values[0].fault not in SCORES:
        return
    named = RIGHT.exchange(SCORES[on_values[0].fault].changes)
    case = plain(np.random.default_rng(99))
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(attend(case, named), attend(case, steps), rtol=1e-3, atol=1e-3)
