"""Attention rollout by groups of tokens against the product of the dense matrices."""

import numpy as np
import pytest

from headwise.errors import CapabilityError, HeadwiseError
from headwise.inspect import inspect_qk
from headwise.inspect.call.call import AttentionCall
from headwise.inspect.call.text import Text
from headwise.inspect.watch.rollout import Rollout
from tests.inspect.dense import logits, softmax

GROUPS = [(0, 1), (1, 6), (6, 9), (9, 20)]


def rolled(matrices, groups):
    n = len(matrices[0])
    product = np.eye(n)
    for matrix in matrices:
        mixed = matrix + np.eye(n)
        product = mixed / mixed.sum(axis=1, keepdims=True) @ product
    return np.stack([product[:, a:z].sum(axis=1) for a, z in groups], axis=1)


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"window_size": (4, 0)},
                                     {"sinks": np.array([0.5, 3.0, -1, 0], np.float32)}])  # fmt: skip
def test_against_dense_products(options):
    rng = np.random.default_rng(0)
    query, key = (
        rng.standard_normal((3, 4, 20, 8), dtype=np.float32),
        rng.standard_normal((3, 2, 20, 8), dtype=np.float32),
    )
    report = inspect_qk(query, key, rollout=GROUPS, **options)
    apart = np.arange(20) - np.arange(20)[:, None]
    visible = np.ones((20, 20), bool)
    if options.get("is_causal") or "window_size" in options:
        visible &= apart <= 0
    if "window_size" in options:
        visible &= apart >= -4
    sinks = options["sinks"][:, None] if "sinks" in options else None
    dense = [
        softmax(logits(q, k, 8**-0.5), visible, sinks).mean(axis=0) for q, k in zip(query, key, strict=True)
    ]
    equal = [visible / visible.sum(axis=1, keepdims=True)] * 3
    for matrices, map_, last in ((dense, "map", "last"), (equal, "null_map", "null_last")):
        expected = rolled(matrices, GROUPS)
        assert report.rollout[last] == pytest.approx(expected[-1], abs=2e-6)
        means = [expected[a:z].mean(axis=0) for a, z in GROUPS]
        assert np.allclose(report.rollout[map_], means, atol=2e-6)
    assert report.rollout["groups"] == [list(group) for group in GROUPS]
    assert "Attention rollout" in str(report)


def test_a_number_of_groups():
    rng = np.random.default_rng(0)
    query, key = rng.standard_normal((2, 2, 7, 4))
    for given, expected in [
        (3, [[0, 2], [2, 5], [5, 7]]),
        (64, [[i, i + 1] for i in range(7)]),
        (True, None),
    ]:
        groups = inspect_qk(query, key, rollout=given).rollout["groups"]
        assert groups == (expected or [[i, i + 1] for i in range(7)])


@pytest.mark.parametrize(
    "given", [0, 65, -1, 2.5, "x", [(0, 3)], [(0, 3), (4, 7)], [(0, 8)], [(0, 0), (0, 7)], []]
)
def test_groups_that_do_not_make_the_text_are_refused(given):
    rng = np.random.default_rng(0)
    with pytest.raises(HeadwiseError, match="rollout: expected a number of groups from 1 to 64"):
        inspect_qk(*rng.standard_normal((2, 2, 7, 4)), rollout=given)


def test_other_layers_are_passed_over_and_steps_refused():
    watched, rng = Rollout(2, Text(6)), np.random.default_rng(0)
    query, key = rng.standard_normal((1, 2, 6, 4)), rng.standard_normal((1, 2, 6, 4))
    cross = AttentionCall(layer=0, name="c", kind="cross", query=query, key=key)
    watched.watch(cross, Text(6), Text(6, name="source"), None)
    assert watched.report()["last"] == [0, 1]
    step = AttentionCall(layer=1, name="s", query=query[:, :, :1], key=key, first_row=5)
    with pytest.raises(
        CapabilityError, match="rollout: expected layers over the whole text at once; received s"
    ):
        watched.watch(step, Text(6), Text(6), None)
