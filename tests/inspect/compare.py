"""Comparing the entry of a head in a report with its dense weights. Every comparison asserts."""

import numpy as np

from tests.inspect.dense import NEAR, Scene, card_of, null_of, pooled_of

RELATIVE = {"entropy", "entropy_first_row", "special_bias",
            "renyi2", "effective_keys", "distance", "distance_without_first", "expected_key",
            "key_spread", "output_norm"}  # the others are masses and shares  # fmt: skip

ELSEWHERE = ("pair_", "retrieval", "pixel_")  # scores with tests of their own


def assert_head(head, weights, ids, special, is_causal, tolerance, floor=1e-12, values=None):
    """Scores, null values, strongest keys, links and map of ``head`` of plain self-attention against
    ``weights`` (n, n)."""
    visible = np.tri(len(weights), dtype=bool) if is_causal else np.ones(weights.shape, bool)
    scene = Scene(visible, np.asarray(ids), special=list(special), is_causal=is_causal, values=values)
    assert_scene(head, weights, scene, tolerance, floor)


def assert_scene(head, weights, scene, tolerance, floor=1e-12, null_tolerance=1e-9):
    """All of ``head`` against its dense weights (n_q, n_k).

    ``tolerance`` is absolute for masses and shares, relative for nats, keys, tokens and norms, where an
    absolute error of ``floor`` is allowed too. Without values in the scene, norms are not compared.
    """
    expected, nulls = card_of(weights, scene), null_of(scene)
    found = {key: line for key, line in head["scores"].items() if not key.startswith(ELSEWHERE)}
    if scene.values is None:
        found = {key: line for key, line in found.items() if key not in ("output_norm", "first_by_norm")}
    expected = {key: line for key, line in expected.items() if key in found or line[0] is not None}
    assert set(found) == set(expected)
    for key, (value, over_all) in expected.items():
        line = found[key]
        assert_close(line["value"], value, key, tolerance, floor)
        norms = key in ("output_norm", "first_by_norm")
        assert_close(line["null"], nulls[key] if value is not None else line["null"], f"{key} of uniform",
                     1e-5 if norms else null_tolerance, 1e-6 if norms else 1e-9)  # fmt: skip
        assert_close(line["all_rows"], over_all, key, tolerance, floor)
    assert_rows(head["rows"], weights, scene.visible, tolerance)
    for query, key, weight in head["links"]:
        assert abs(weights[query, key] - weight) <= tolerance + 5e-7
    block = head["pooled"]["block"]
    if scene.visible.any(axis=1).all():
        for row, dense in zip(head["pooled"]["map"], pooled_of(weights, block), strict=True):
            for cell, mass in zip(row, dense, strict=True):
                assert abs(cell - mass) <= tolerance + 5e-7
    total = weights.sum(axis=0)
    for key, mass, average in head["received"]["heaviest"]:
        assert abs(total[key] - mass) <= tolerance * len(weights) + 1e-6
        seen = max(scene.visible[:, key].sum(), 1)
        assert abs(total[key] / seen - average) <= tolerance + 1e-6
    assert head["received"]["heaviest"][0][1] >= total.max() - tolerance * len(weights) - 1e-6
    if scene.offset is not None:
        assert_profile(head["offsets"], weights, scene, tolerance)
        assert_distances(head["distances"], weights, scene, tolerance)


def assert_profile(offsets, weights, scene, tolerance):
    """The mean mass at each offset, and how often the strongest key stands there."""
    rows = np.flatnonzero(scene.visible.any(axis=1))
    strongest = weights.argmax(axis=1)
    assert offsets["at"] == list(range(-NEAR, NEAR + 1))
    for o, mass, hits in zip(offsets["at"], offsets["mass"], offsets["argmax"], strict=True):
        there = [(i, i + scene.offset + o) for i in rows]
        seen = [(i, j) for i, j in there if 0 <= j < weights.shape[1] and scene.visible[i, j]]
        assert_close(mass, np.mean([weights[i, j] for i, j in seen]) if seen else None, o, tolerance, 1e-9)
        assert_close(hits, np.mean([strongest[i] == j for i, j in there]), o, 1e-9, 1e-9)


def assert_distances(found, weights, scene, tolerance):
    """The mean weight at distance 0, 1, 2–3, … of the rows that see a key, and that of uniform attention."""
    rows = np.flatnonzero(scene.visible.any(axis=1))
    apart = np.abs(np.arange(weights.shape[1]) - rows[:, None] - scene.offset)
    lasts = [*(least - 1 for least in found["least"][1:]), np.inf]
    for w, kept in ((weights, found["mass"]), (scene.equal(), found["null"])):
        assert len(kept) == len(found["least"])
        for least, last, mass in zip(found["least"], lasts, kept, strict=True):
            there = (apart >= least) & (apart <= last)
            expected = (w[rows] * there).sum() / max(len(rows), 1)
            assert abs(mass - expected) <= tolerance + 1e-6, (least, mass, expected)


def assert_close(value, expected, key, tolerance, floor):
    if expected is None:
        assert value is None, key
        return
    assert value is not None, key
    name = str(key).removesuffix(" of uniform")
    relative = name in RELATIVE or name.startswith("bias:")
    allowed = tolerance * abs(expected) if relative else tolerance
    assert abs(value - expected) <= max(allowed, floor), (key, value, expected)


def assert_rows(rows, weights, visible, tolerance):
    """The kept keys of each row are the strongest, up to ties, and none is there twice."""
    if isinstance(visible, bool):  # is_causal
        visible = np.tri(len(weights), dtype=bool) if visible else np.ones(weights.shape, bool)
    queries = range(len(weights)) if rows["queries"] is None else rows["queries"]
    assert len(rows["index"]) == len(rows["weight"]) == len(queries)
    for i, keys, kept in zip(queries, rows["index"], rows["weight"], strict=True):
        exist = min(len(keys), int(visible[i].sum()))
        assert keys[exist:] == [-1] * (len(keys) - exist)
        assert kept[exist:] == [0] * (len(keys) - exist)
        assert len(set(keys[:exist])) == exist
        strongest = sorted(weights[i], reverse=True)
        for rank in range(exist):
            assert abs(weights[i, keys[rank]] - kept[rank]) <= tolerance + 5e-7
            assert abs(weights[i, keys[rank]] - strongest[rank]) <= 2 * tolerance
