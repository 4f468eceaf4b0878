"""The scores of a head straight from its dense weights in float64, by their definitions. Nothing of ``src``
is used."""

from dataclasses import dataclass, field

import numpy as np

NEAR = 8


def weights_of(query, key, scale, is_causal):
    """(H, n, n) float64 from query (H, n, d) and key (H_kv, n, d)."""
    query, key = np.asarray(query, dtype=np.float64), np.asarray(key, dtype=np.float64)
    visible = np.tri(query.shape[1], key.shape[1], dtype=bool) if is_causal else True
    return softmax(logits(query, key, scale), visible)


def logits(query, key, scale, softcap=None, bias=None):
    """(H, n_q, n_k) in float64: scaled, soft-capped, biased."""
    query, key = np.asarray(query, dtype=np.float64), np.asarray(key, dtype=np.float64)
    key = np.repeat(key, query.shape[0] // key.shape[0], axis=0)
    scores = scale * (query @ key.transpose(0, 2, 1))
    if softcap is not None:
        scores = softcap * np.tanh(scores / softcap)
    return scores if bias is None else scores + np.asarray(bias, np.float64)


def softmax(scores, visible, sinks=None):
    """Weights over the visible keys; rows that see none are 0. ``sinks`` (H, s) join the denominator."""
    scores = np.where(visible, scores, -np.inf)
    largest = scores.max(axis=-1, keepdims=True)
    if sinks is not None:
        largest = np.maximum(largest, np.asarray(sinks, np.float64).max(axis=-1)[:, None, None])
    largest = np.where(np.isfinite(largest), largest, 0.0)
    weights = np.exp(scores - largest)
    total = weights.sum(axis=-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(np.asarray(sinks, np.float64)[:, None] - largest).sum(axis=-1, keepdims=True)
    return weights / np.where(total > 0, total, 1.0)


def uniform(n, is_causal):
    """(n, n): equal weights on the visible keys."""
    visible = np.tri(n) if is_causal else np.ones((n, n))
    return visible / visible.sum(axis=1, keepdims=True)


@dataclass
class Scene:
    """What stands at queries and keys, and who sees whom."""

    visible: np.ndarray
    ids: np.ndarray | None = None
    key_ids: np.ndarray | None = None
    special: list = field(default_factory=list)
    key_special: list | None = None
    is_causal: bool = False
    offset: int | None = 0  # None: cross-attention
    classes: dict = field(default_factory=dict)
    sinks: bool = False
    values: np.ndarray | None = None  # (n_k, d_v)

    def equal(self):
        """Equal weights on the visible keys."""
        return self.visible / np.maximum(self.visible.sum(axis=1, keepdims=True), 1)


def card_of(weights, scene):
    """Score key -> (value, over all rows): None where missing, or where there is one reading only."""
    n_q, n_k = weights.shape
    rows = [i for i in range(n_q) if scene.visible[i].any()]
    n = scene.visible.sum(axis=1)
    w = weights
    entropy = np.array([-sum(x * np.log(x) for x in row if x > 0) for row in w])
    key_special = scene.special if scene.key_special is None else scene.key_special
    card = {
        "entropy": mean(entropy[i] for i in rows),
        "entropy_normalized": mean(entropy[i] / np.log(n[i]) for i in rows if n[i] > 1),
        "renyi2": mean(-np.log((w[i] ** 2).sum()) for i in rows),
        "effective_keys": mean(np.exp(entropy[i]) for i in rows),
        "max_weight": mean(w[i].max() for i in rows),
        "first": mean(w[i, 0] for i in rows),
        "first_four": mean(w[i, :4].sum() for i in rows),
        "special": mean(w[i, key_special].sum() for i in rows) if len(key_special) else None,
    }
    entries = scene.visible[rows]
    whole = w[rows][entries].mean() if rows else None

    def per_entry(members):
        found = w[rows][:, list(members)][entries[:, list(members)]]
        return found.mean() / whole if len(found) else None

    card["special_bias"] = per_entry(key_special) if len(key_special) else None
    for name, members in scene.classes.items():
        card[f"class:{name}"] = mean(w[i, list(members)].sum() for i in rows)
        card[f"bias:{name}"] = per_entry(members)
    seen = scene.visible.sum(axis=0)
    enough = [j for j in range(n_k) if seen[j] >= max(2, 0.1 * seen.max())]
    card["strongest_sink"] = max((w[scene.visible[:, j], j].mean() for j in enough), default=None)
    received = w[rows].sum(axis=0)
    heavy = max(1, round(0.05 * n_k))
    card["heaviest_key"] = received.max() / received.sum()
    card["heavy_hitters"] = np.sort(received)[::-1][:heavy].sum() / received.sum()
    if scene.sinks:
        card["sink_logit"] = mean(1 - w[i].sum() for i in rows)
    if scene.values is not None:
        card["output_norm"] = mean(np.linalg.norm(w[i] @ scene.values) for i in rows)
    both = {}
    if scene.offset is None:
        card |= cross_card(w, rows)
    else:
        self_card(card, both, w, scene, rows, key_special)
    return {key: (value, both.get(key)) for key, value in card.items()}


def self_card(card, both, w, scene, rows, key_special):
    n_q, n_k = w.shape
    at = np.arange(n_q) + scene.offset
    apart = np.abs(at[:, None] - np.arange(n_k))
    plain_keys = [j for j in range(n_k) if j not in key_special]
    seen_plain = [i for i in rows if i not in scene.special and any(scene.visible[i, j] for j in plain_keys)]
    card["confidence"] = mean(w[i, plain_keys].max() for i in seen_plain) if len(key_special) else None
    card["distance"] = mean((w[i] * apart[i]).sum() for i in rows)
    if not scene.is_causal and at[0] == 0 and 0 in rows:
        card["entropy_first_row"] = -sum(x * np.log(x) for x in w[0] if x > 0)
    away = [i for i in rows if scene.visible[i, 1:].any()]
    card["distance_without_first"] = ratio(
        ((w[i, 1:] * apart[i, 1:]).sum() for i in away), (w[i, 1:].sum() for i in away)
    )
    sees = lambda i, j: 0 <= j < n_k and scene.visible[i, j]  # noqa: E731
    for name, o in (("self", 0), ("previous", -1), ("next", 1)):
        if name == "next" and scene.is_causal:
            card[name] = None
            continue
        having = [i for i in rows if sees(i, at[i] + o)]
        if name == "self":
            card[name] = mean(w[i, at[i]] if 0 <= at[i] < n_k else 0.0 for i in rows)
            continue
        card[name] = mean(w[i, at[i] + o] for i in having)
        both[name] = sum(w[i, at[i] + o] for i in having) / len(rows)
    strongest = w.argmax(axis=1)
    card["positional_argmax"] = max(
        mean(float(strongest[i] - at[i] == o) for i in rows) for o in range(-NEAR, NEAR + 1)
    )
    card["positional_share"] = positional_share(w, at, rows, scene.is_causal)
    if scene.values is not None:
        norms = np.linalg.norm(scene.values, axis=1)
        card["first_by_norm"] = ratio(
            (w[i, 0] * norms[0] for i in rows), ((w[i] * norms).sum() for i in rows)
        )
    for name in ("duplicate", "induction", "induction_entry", "induction_without_first"):
        card[name] = None
    if scene.ids is None:
        return
    key_ids = np.asarray(scene.ids if scene.key_ids is None else scene.key_ids)
    keys, copies, after = np.arange(n_k), {}, {}
    for i in rows:
        other = keys < at[i] if scene.is_causal else keys != at[i]
        places = (key_ids == scene.ids[i]) & other
        copies[i] = np.flatnonzero(places & scene.visible[i])
        after[i] = 1 + np.flatnonzero(places[:-1] & scene.visible[i, 1:])
    for name, found in (("duplicate", copies), ("induction", after)):
        having = [i for i in rows if len(found[i])]
        card[name] = mean(w[i, found[i]].sum() for i in having)
        both[name] = sum(w[i, found[i]].sum() for i in having) / len(rows) if rows else None
    entries = [w[i, j] for i in rows for j in after[i]]
    card["induction_entry"] = mean(entries)
    having = [i for i in rows if len(after[i])]
    card["induction_without_first"] = ratio(
        (w[i, after[i]].sum() for i in having), (w[i, 1:].sum() for i in having)
    )


def positional_share(w, at, rows, is_causal):
    """Σ over bands of pairs · mean², as a share of Σ w²: offsets −8 … 8 one by one, farther ones in doublings
    of the distance."""
    apart = np.arange(w.shape[1]) - at[rows, None]
    there = apart <= 0 if is_causal else np.ones(apart.shape, bool)
    doubling = np.log2(np.maximum(np.abs(apart), 1)).astype(int)
    band = np.where(np.abs(apart) <= NEAR, apart, 100 + doubling)  # a number per band
    explained = 0.0
    for number in np.unique(band[there]):
        weights = w[rows][there & (band == number)]
        explained += len(weights) * np.mean(weights) ** 2
    return explained / (w[rows] ** 2).sum()


def cross_card(w, rows):
    at = np.arange(w.shape[1])
    share = {i: w[i] / w[i].sum() for i in rows}
    places = {i: (share[i] * at).sum() for i in rows}
    steps = [(i, i + 1) for i in rows if i + 1 in rows]
    strongest = w.argmax(axis=1)
    found = {
        "expected_key": mean(places.values()),
        "key_spread": mean(np.sqrt(max((share[i] * (at - places[i]) ** 2).sum(), 0)) for i in rows),
        "monotonic": mean(float(strongest[b] >= strongest[a]) for a, b in steps),
        "alignment": None,
    }
    if len(rows) > 1 and np.ptp(list(places.values())) > 1e-9:
        found["alignment"] = np.corrcoef(rows, list(places.values()))[0, 1]
    return found


def null_of(scene):
    """What equal weights give: where they leave the strongest key open, one picked at random counts."""
    equal = scene.equal()
    card = {key: value for key, (value, _) in card_of(equal, scene).items()}
    rows = [i for i in range(len(equal)) if scene.visible[i].any()]
    if "positional_argmax" in card:
        card["positional_argmax"] = card["max_weight"]
    if scene.offset is None:
        later = [i for i in rows if i >= 1]
        card["monotonic"] = mean((1 + 1 / scene.visible[i].sum()) / 2 for i in later)
        card["alignment"] = 0.0
    if "sink_logit" in card:
        card["sink_logit"] = 0.0
    return card


def scores_of(weights, ids, special, is_causal):
    """The card of a head of plain self-attention over one text, (n, n)."""
    visible = np.tri(len(weights), dtype=bool) if is_causal else np.ones(weights.shape, bool)
    return card_of(weights, Scene(visible, np.asarray(ids), special=list(special), is_causal=is_causal))


def pooled_of(weights, block):
    """(m, m'): the mean over a block of rows of their mass in a block of keys."""
    down, across = (range(0, size, block) for size in weights.shape)
    return [[weights[a : a + block, b : b + block].sum(axis=1).mean() for b in across] for a in down]


def mean(values):
    values = list(values)
    return float(np.mean(values)) if values else None


def ratio(values, weights):
    values, weights = sum(values), sum(weights)
    return float(values / weights) if weights else None
