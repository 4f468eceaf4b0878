"""Attention sinks: the share of all heads in which a token is one."""

import numpy as np
import pytest

from headwise.inspect import inspect_qk
from tests.inspect.dense import logits, softmax


def test_shares_of_heads_against_dense_weights():
    rng = np.random.default_rng(0)
    query, key = rng.standard_normal((2, 3, 4, 30, 8), dtype=np.float32)  # three layers of four heads
    key[:, :3, 0] = 0.0
    query[..., 0], key[:, 0, 0, 0], key[:, 1, 0, 0], key[0, 2, 4, 0] = 3.0, 25.0, 4.0, 25.0
    report = inspect_qk(query, key, is_causal=True)
    visible = np.tri(30, dtype=bool)
    seen = visible.sum(axis=0)
    means = []
    for q, k in zip(query, key, strict=True):
        for weights in softmax(logits(q, k, 8**-0.5), visible):
            means.append([weights[visible[:, j], j].mean() if seen[j] >= 3 else 0 for j in range(30)])
    shares = {least: (np.array(means) > least).mean(axis=0) for least in (0.3, 0.8)}
    assert report.sinks["heads"] == 12 and report.sinks["thresholds"] == [0.3, 0.8]
    found = {entry["key"]: entry["shares"] for entry in report.sinks["keys"]}
    assert list(found)[0] == 0 and 4 in found and 0 < found[0][1] < found[0][0] < 1
    assert set(found) == set(np.flatnonzero(shares[0.3]))
    for at, pair in found.items():
        assert pair == pytest.approx([shares[0.3][at], shares[0.8][at]])
    assert "Attention sinks" in str(report)


def test_between_two_texts_there_are_none():
    query, key = np.zeros((1, 3, 4)), np.zeros((1, 5, 4))
    assert inspect_qk(query, key).sinks is None
    assert inspect_qk(query, query).sinks == {"heads": 1, "thresholds": [0.3, 0.8], "keys": [
        {"key": 0, "shares": [1.0, 0.0]}, {"key": 1, "shares": [1.0, 0.0]}, {"key": 2, "shares": [1.0, 0.0]},
    ]}  # fmt: skip
