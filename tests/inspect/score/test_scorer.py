"""The score card: every number of every head against dense weights in float64, on every kind of attention."""

import numpy as np
import pytest

from headwise.errors import HeadwiseError
from headwise.inspect import inspect_qk
from headwise.inspect.call import rows
from headwise.inspect.call.call import AttentionCall
from headwise.inspect.call.text import Text
from headwise.inspect.report.assemble import assemble
from headwise.inspect.report.card import SCORES, score_table
from headwise.inspect.report.entries import layer_entry
from headwise.inspect.score import scorer as scoring
from headwise.inspect.score.scorer import Scorer
from headwise.inspect.score.tally import mean_over
from tests.inspect.compare import assert_scene
from tests.inspect.dense import Scene, logits, softmax


def arrays(n_q, n_k, heads=4, kv_heads=2, d=12, seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    shapes = ((heads, n_q, d), (kv_heads, n_k, d), (kv_heads, n_k, 7))
    return [(1.6 * rng.standard_normal(shape)).astype(dtype) for shape in shapes]


def visible_of(n_q, n_k, offset=0, causal=False, window=(None, None), segments=None, mask=None):
    at, keys = np.arange(n_q)[:, None] + offset, np.arange(n_k)
    visible = np.ones((n_q, n_k), bool)
    if causal:
        visible &= keys <= at
    if window[0] is not None:
        visible &= keys >= at - window[0]
    if window[1] is not None:
        visible &= keys <= at + window[1]
    if segments is not None:
        visible &= segments[0][:, None] == segments[1]
    return visible if mask is None else visible & mask


HIDE_SOME = np.random.default_rng(5).random((31, 31)) < 0.7
HIDE_SOME[[4, 20]] = False  # two rows that see nothing
PACKED = np.repeat([0, 1, 2], [12, 4, 15])
CASES = {
    "full": {},
    "causal": {"is_causal": True},
    "window": {"window_size": (5, 3)},
    "causal window": {"is_causal": True, "window_size": (6, 0)},
    "packed": {"segment_ids": PACKED, "is_causal": True},
    "mask with empty rows": {"attn_mask": HIDE_SOME},
    "soft cap and scale": {"softcap": 3.0, "scale": 0.7, "is_causal": True},
    "sinks": {"sinks": np.array([0.5, -1.0, 2.0, 0.0], np.float32), "is_causal": True},
    "bias": {"attn_bias": np.random.default_rng(6).standard_normal((4, 31, 31)).astype(np.float32)},
}


@pytest.mark.parametrize("name", CASES)
def test_every_score_of_self_attention(name):
    options = CASES[name]
    query, key, value = arrays(31, 31)
    ids = np.random.default_rng(1).integers(0, 6, 31)
    special, odd = [0, 12], list(range(1, 31, 2))
    report = inspect_qk(
        query, key, value, ids=ids, special=special, classes={"odd": odd, "all": range(31)}, **options
    )
    causal = options.get("is_causal", False)
    segments = (PACKED, PACKED) if "segment_ids" in options else None
    window = options.get("window_size", (None, None))
    visible = visible_of(31, 31, 0, causal, window, segments, options.get("attn_mask"))
    scores = logits(
        query, key, options.get("scale", 12**-0.5), options.get("softcap"), options.get("attn_bias")
    )
    sinks = options["sinks"][:, None] if "sinks" in options else None
    weights = softmax(scores, visible, sinks)
    for number, head in enumerate(report.layers[0]["heads"]):
        scene = Scene(
            visible, ids, special=special, is_causal=causal, classes={"odd": odd, "all": range(31)},
            sinks=sinks is not None, values=value[number // 2].astype(np.float64),
        )  # fmt: skip
        assert_scene(head, weights[number], scene, 1e-5, floor=1e-6)


@pytest.mark.parametrize("offset", [None, 14, -3])
def test_queries_elsewhere_among_the_keys(offset):
    """Cross-attention; a chunk at the end of its keys; one that starts before them."""
    query, key, value = arrays(9, 23)
    ids, key_ids = np.arange(9) % 4, np.arange(23) % 4
    options = {} if offset is None else {"query_offset": offset, "is_causal": True}
    report = inspect_qk(query, key, value, ids=ids, key_ids=key_ids, key_special=[0], **options)
    visible = visible_of(9, 23, offset or 0, offset is not None)
    weights = softmax(logits(query, key, 12**-0.5), visible)
    layer = report.layers[0]
    assert (layer["kind"], layer["queries"]) == ("cross" if offset is None else "self", "text")
    for number, head in enumerate(layer["heads"]):
        scene = Scene(
            visible, ids, key_ids, [], [0], offset is not None, offset,
            values=value[number // 2].astype(np.float64),
        )  # fmt: skip
        assert_scene(head, weights[number], scene, 1e-5, floor=1e-6)


def test_float64_stays_float64():
    query, key, value = arrays(25, 25, dtype=np.float64)
    report = inspect_qk(query, key, value, ids=np.arange(25) % 5, special=[0], is_causal=True)
    weights = softmax(logits(query, key, 12**-0.5), visible_of(25, 25, 0, True))
    for number, head in enumerate(report.layers[0]["heads"]):
        scene = Scene(
            visible_of(25, 25, 0, True),
            np.arange(25) % 5,
            special=[0],
            is_causal=True,
            values=value[number // 2],
        )
        assert_scene(head, weights[number], scene, 1e-12)


@pytest.mark.parametrize("n", [1, 2, 3, 49])
def test_short_texts_and_maps_of_blocks(n):
    query, key, value = arrays(n, n)
    for causal in (False, True):
        report = inspect_qk(query, key, value, ids=np.zeros(n, int), special=[0], is_causal=causal)
        visible = visible_of(n, n, 0, causal)
        weights = softmax(logits(query, key, 12**-0.5), visible)
        for number, head in enumerate(report.layers[0]["heads"]):
            scene = Scene(visible, np.zeros(n, int), special=[0], is_causal=causal, values=value[number // 2])
            assert_scene(head, weights[number], scene, 1e-5, floor=1e-6)


def test_a_long_text_is_sampled_in_passages(monkeypatch):
    monkeypatch.setattr(rows, "WHOLE", 12)
    monkeypatch.setattr(rows, "PASSAGE", 4)
    monkeypatch.setattr(rows, "PASSAGES", 3)
    monkeypatch.setattr(scoring, "ROW_BUDGET", 100)
    query, key, value = arrays(40, 40)
    ids = np.arange(40) % 7
    report = inspect_qk(query, key, value, ids=ids, special=[0], is_causal=True, window_size=(20, 0))
    visible = visible_of(40, 40, 0, True, (20, 0))
    weights = softmax(logits(query, key, 12**-0.5), visible)
    kept = [0, 1, 2, 3, 18, 19, 20, 21, 36, 37, 38, 39]
    sampled = {"confidence", "distance_without_first", "first_by_norm", "output_norm"}
    for number, head in enumerate(report.layers[0]["heads"]):
        scene = Scene(visible, ids, special=[0], is_causal=True, values=value[number // 2])
        some = Scene(visible[kept], ids[kept], ids, [0], [0], True, 0, values=value[number // 2])
        assert head["rows"]["queries"] == kept
        of_rows = dense_of_rows(weights[number], some, kept)
        for name in sampled:
            line = head["scores"][name]
            assert line["value"] == pytest.approx(of_rows[name], rel=1e-5), name
            assert line["rows"] <= len(kept)
            head["scores"].pop(name)
        whole = {**head, "scores": {**head["scores"]}}
        full = Scene(visible, ids, special=[0], is_causal=True)
        assert_scene(
            {**whole, "scores": whole["scores"] | missing(full, weights[number], sampled)},
            weights[number],
            full,
            1e-5,
            1e-6,
        )
        assert scene.values is not None
    assert "12 of its 40 tokens" in report.notes[0]


def missing(scene, weights, names):
    """Lines that are right by themselves, for those that were compared before."""
    from tests.inspect.dense import card_of, null_of

    card, null = card_of(weights, scene), null_of(scene)
    return {
        name: {"value": card[name][0], "null": null[name], "all_rows": card[name][1]}
        for name in names
        if name in card
    }


def dense_of_rows(weights, scene, kept):
    w, at = weights[kept], np.array(kept)
    norms = np.linalg.norm(scene.values, axis=1)
    apart = np.abs(at[:, None] - np.arange(w.shape[1]))
    others = [r for r, i in enumerate(kept) if i != 0]
    return {
        "confidence": w[others][:, 1:].max(axis=1).mean(),
        "distance_without_first": (w[:, 1:] * apart[:, 1:]).sum() / w[:, 1:].sum(),
        "first_by_norm": (w[:, 0] * norms[0]).sum() / (w * norms).sum(),
        "output_norm": np.linalg.norm(w @ scene.values, axis=1).mean(),
    }


def test_steps_of_a_model_that_writes_add_up():
    """A prompt and then single rows, with more keys at each step, give the card of the whole text."""
    n = 60
    query, key, value = arrays(n, n)
    words = Text(n, np.arange(n) % 9, np.arange(n) == 0)
    whole, steps = Scorer(4), Scorer(4)
    call = {"layer": 0, "name": "a", "options": {"is_causal": True, "query_offset": 0}}
    whole.observe(AttentionCall(query=query[None], key=key[None], value=value[None], **call), words)
    for a, z in [(0, 30), (30, 31), (31, 36), *((i, i + 1) for i in range(36, n))]:
        options = {"is_causal": True, "query_offset": a}
        part = AttentionCall(
            layer=0, name="a", first_row=a, query=query[None, :, a:z], key=key[None, :, :z],
            value=value[None, :, :z], options=options,
        )  # fmt: skip
        steps.observe(part, words.rows(0, z))
    one, many = (layer_entry(scorer.entries()[0]) for scorer in (whole, steps))
    for head, again in zip(one["heads"], many["heads"], strict=True):
        for key_, line in head["scores"].items():
            for part, value_ in line.items():
                found = again["scores"][key_][part]
                assert found == (value_ if value_ is None else pytest.approx(value_, rel=1e-5, abs=1e-7)), (
                    key_,
                    part,
                )
        assert again["rows"]["index"] == head["rows"]["index"]
        assert [link[:2] for link in again["links"]] == [link[:2] for link in head["links"]]
        assert np.allclose(again["offsets"]["argmax"], head["offsets"]["argmax"])
        for part, bands in head["distances"].items():
            assert np.allclose(again["distances"][part], bands, atol=2e-6), part
    assert many["heads"][0]["pooled"]["block"] == 2


def test_the_table_of_scores_explains_every_line():
    table = score_table(["class:x y", "alignment"])
    assert len({score.key for score in SCORES}) == len(SCORES)
    assert table[-1]["name"] == "x y" and "alignment" in [line["key"] for line in table]
    assert "pair_mass" not in [line["key"] for line in table]
    for line in table:
        assert line["meaning"] and line["null"] and line["higher"] and line["over"] and line["group"]


def test_scores_that_are_not_finite_are_refused():
    query, key, _ = arrays(6, 6)
    query[1, 3] = np.nan
    with pytest.raises(HeadwiseError, match="layer 0: scores that are not finite in 1 of 24 rows"):
        inspect_qk(query, key)
    query[1, 3] = 1e30
    key[:] = 1e30
    with pytest.raises(HeadwiseError, match="finite numbers wherever a query sees a key"):
        inspect_qk(query, key)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused(number):
    query, key, value = arrays(6, 6)
    value[1, 5, 0] = number
    message = "value: expected finite numbers wherever a key is seen; received layer 0: .* in 2 heads"
    with pytest.raises(HeadwiseError, match=message):
        inspect_qk(query, key, value, is_causal=True)


def test_hidden_keys_may_hold_anything():
    query, key, value = arrays(6, 6)
    mask = np.ones((6, 6), bool)
    mask[:, 2] = False
    clean = inspect_qk(query, key, value, attn_mask=mask)
    key[:, 2], value[:, 2] = np.nan, np.nan
    assert inspect_qk(query, key, value, attn_mask=mask).to_dict() == clean.to_dict()


def test_means_add():
    values = np.array([[1.0, 2.0, 9.0], [3.0, 5.0, 9.0]])
    rows_ = np.array([[True, True, False]])
    mean = mean_over(values, rows_, np.ones((1, 3), bool))
    assert [mean.value(0), mean.value(1), mean.over_all(0), mean.share(1)] == [1.5, 4.0, 1.0, 2 / 3]
    twice = mean + mean_over(values, ~rows_, np.ones((1, 3), bool))
    assert [twice.value(0), twice.share(0)] == [4.0, 0.5]
    assert mean_over(values, np.zeros((1, 3), bool), np.ones((1, 3), bool)).value(0) is None


def test_layers_share_what_uniform_attention_gives(monkeypatch):
    made = []
    uniform = AttentionCall.uniform
    monkeypatch.setattr(AttentionCall, "uniform", lambda call: made.append(call.name) or uniform(call))
    query, key, _ = arrays(12, 12)
    inspect_qk([query] * 5, [key] * 5, is_causal=True, redundancy=False)
    assert made == ["layer 0"]


def test_reports_are_made_of_at_least_one_text():
    query, key, _ = arrays(5, 8)
    scorer = Scorer(4)
    scorer.observe(
        AttentionCall(layer=0, name="x", kind="cross", query=query[None], key=key[None]),
        Text(5),
        Text(8, name="other"),
    )
    report = assemble(scorer.entries(), model={"name": "m", "layers": 1, "heads": 4})
    assert [sequence["name"] for sequence in report.sequences] == ["text", "other"]
    assert report.tokens == list("01234") and report.text["n_tokens"] == 5
