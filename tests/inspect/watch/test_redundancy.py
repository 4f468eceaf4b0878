"""Alike heads: exact divergences, the sketch that finds the close ones, and what is built on them."""

import numpy as np
import pytest

from headwise.inspect import inspect_qk
from headwise.inspect.call import rows
from headwise.inspect.call.call import AttentionCall
from headwise.inspect.call.text import Text
from headwise.inspect.watch import redundancy
from headwise.inspect.watch.redundancy import Redundancy, divergences
from tests.inspect.dense import logits, softmax


def js(p, q):
    """Jensen-Shannon divergence of two rows, by definition."""
    middle = (p + q) / 2
    kl = lambda a: sum(x * np.log(x / m) for x, m in zip(a, middle, strict=True) if x > 0)  # noqa: E731
    return (kl(p) + kl(q)) / 2


def arrays(n, heads, layers, d=8, scale=1.5, seed=0):
    rng = np.random.default_rng(seed)
    query, key = (scale * rng.standard_normal((layers, heads, n, d)) for _ in range(2))
    return query.astype(np.float32), key.astype(np.float32)


@pytest.mark.parametrize(
    "options", [{}, {"is_causal": True}, {"sinks": np.array([0.0, 2.0, -1.0], np.float32)}]
)
def test_exact_divergences_of_all_pairs(options):
    query, key = arrays(14, 3, 2)
    report = inspect_qk(query, key, **options)
    visible = np.tri(14, dtype=bool) if "is_causal" in options else np.ones((14, 14), bool)
    sinks = options.get("sinks")
    weights = {
        (layer, head): w
        for layer in range(2)
        for head, w in enumerate(
            softmax(
                logits(query[layer], key[layer], 8**-0.5), visible, None if sinks is None else sinks[:, None]
            )
        )
    }
    if sinks is not None:  # what the sink logits take counts as one more key
        weights = {at: np.column_stack([w, 1 - w.sum(axis=1)]) for at, w in weights.items()}
    alike = report.redundancy
    assert alike["verified"] == alike["compared"] == len(alike["pairs"]) == 15 and alike["rows"] == 14
    found = []
    for pair in alike["pairs"]:
        a, b = weights[tuple(pair["a"])], weights[tuple(pair["b"])]
        expected = np.mean([js(p, q) for p, q in zip(a, b, strict=True)])
        assert pair["exact"] and pair["js"] == pytest.approx(expected, abs=2e-6)
        found.append(pair["js"])
    assert found == sorted(found)


def test_heads_that_are_the_same_are_found_across_layers():
    query, key = arrays(20, 4, 3)
    query[2, 1], key[2, 1] = query[0, 3], key[0, 3]
    query[1, 0], key[1, 0] = query[0, 3] * 1.001, key[0, 3]
    report = inspect_qk(query, key, is_causal=True)
    assert report.redundancy["clusters"] == [[[0, 3], [1, 0], [2, 1]]]
    assert report.redundancy["pairs"][0]["js"] == 0
    assert report.redundancy["pairs"][0]["a"] == [0, 3] and report.redundancy["pairs"][0]["b"] == [2, 1]
    assert "3 heads: 0.3, 1.0, 2.1" in str(report)


@pytest.mark.parametrize("options", [
    {"is_causal": True},
    {"softcap": 4.0, "window_size": (30, 4)},
    {"attn_bias": np.random.default_rng(2).standard_normal((60, 60)).astype(np.float32)},
    {"sinks": np.linspace(-1, 3, 6).astype(np.float32), "is_causal": True},
])  # fmt: skip
def test_the_sketch_estimates_the_bhattacharyya_coefficient(monkeypatch, options):
    """Against Σ √(p q) of the dense weights of the sampled rows; close pairs are still verified."""
    monkeypatch.setattr(redundancy, "LOGARITHMS", 40_000)
    monkeypatch.setattr(rows, "WHOLE", 40)
    monkeypatch.setattr(rows, "PASSAGE", 5)
    monkeypatch.setattr(rows, "PASSAGES", 8)
    query, key = arrays(60, 6, 3, scale=0.9)
    query[2, 5], key[2, 5] = query[0, 0], key[0, 0]
    text, watched = Text(60), Redundancy(18, Text(60), Text(60))
    sampled = (np.linspace(0, 55, 8).round().astype(int)[:, None] + np.arange(5)).reshape(-1)
    roots = []
    for layer in range(3):
        call = AttentionCall(
            layer=layer, name="x", query=query[layer][None], key=key[layer][None], options=options
        )
        aux = call.statistics(_needs(options))
        watched.watch(call, text, text, aux)
        visible = np.tri(60, dtype=bool) if options.get("is_causal") else np.ones((60, 60), bool)
        if "window_size" in options:
            apart = np.arange(60) - np.arange(60)[:, None]
            visible &= (apart >= -30) & (apart <= 4)
        sinks = options["sinks"][:, None] if "sinks" in options else None
        scores = logits(query[layer], key[layer], 8**-0.5, options.get("softcap"), options.get("attn_bias"))
        weights = softmax(scores, visible, sinks)
        if sinks is not None:
            weights = np.concatenate([weights, 1 - weights.sum(axis=-1, keepdims=True)], axis=-1)
        roots.append(np.sqrt(np.maximum(weights[:, sampled], 0)))
    roots = np.concatenate(roots)
    exact_bc = np.einsum("arn,brn->ab", roots, roots) / len(sampled)
    sketched = redundancy._cosines(np.concatenate(watched._sketches))
    apart = np.abs(sketched - exact_bc)[np.triu_indices(18, 1)]
    assert apart.max() < 0.12 and apart.mean() < 0.04
    distances, exact = watched.distances()
    assert 17 < exact.sum() - 18 < 17 * 18  # some pairs are verified, not all
    if "sinks" not in options:  # with them the two heads differ in their sink logits
        assert sketched[0, 17] == pytest.approx(1, abs=1e-5)
        assert exact[0, 17] and distances[0, 17] == pytest.approx(0, abs=1e-6)
    lower, upper = np.log(2) * (1 - exact_bc), 1 - exact_bc
    inside = (distances > lower - 0.1) & (distances < upper + 0.1)
    assert inside.all()


def _needs(options):
    from headwise.compute.request import AuxRequest

    return AuxRequest(lse=True, sink_logit_mass="sinks" in options)


def test_rows_that_see_nothing_do_not_count():
    weights = np.zeros((2, 3, 4))
    weights[0, 0], weights[1, 0] = [1, 0, 0, 0], [0, 1, 0, 0]
    assert divergences(weights, np.array([0]), np.array([1])) == pytest.approx([np.log(2)])
    assert divergences(np.zeros((2, 3, 4)), np.array([0]), np.array([1])) == [0]


def test_one_head_is_compared_with_nobody():
    query, key = arrays(6, 1, 1)
    report = inspect_qk(query, key)
    assert report.redundancy is None and "look alike" not in str(report)
    assert inspect_qk(*arrays(6, 2, 1), redundancy=False).redundancy is None
