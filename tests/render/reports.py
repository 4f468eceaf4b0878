"""Made-up reports for the tests of the pictures: plain dicts, the same ones at every run.

The heads follow simple recipes (previous token, separator, broad, ...), so that scores, labels, links, rows
and maps belong together as those of a real report do. Long texts get their rows and maps straight from the
recipe; no n × n array is made above `DENSE` tokens.
"""

import copy
import math
from functools import cache
from typing import Any

import numpy as np

DENSE = 320
DEMO = ["[CLS]", "the", "cat", "sat", "on", "the", "mat", "because", "it", "was", "tired", ".", "[SEP]"]
HOSTILE = [
    "</script><script>document.title='broken'</script>", "<!--", "-->", "&amp;", '"', "'", "<b>bold</b>",
    "<img src=x onerror=alert(1)>", "{{data}}", "\\", "\n", "\t", "\x1b[31m", "\x00", "", " ", "   ",
    "[red]", "[/]", "[bold", ":smile:", "\u2028", "\u2029", "\u202e", "\u200d", "\ud800",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f642", "שלום", "مرحبا", "漢字", "e\u0301", "w" * 400,
]  # fmt: skip
KINDS = ("previous", "next", "separator", "first", "broad", "content")
SCORES = [
    (
        "entropy",
        "Entropy",
        "nats",
        "How widely a token spreads its weight.",
        "the logarithm of the visible keys",
    ),
    ("entropy_normalized", "Normalised entropy", "", "Entropy over that of uniform attention.", "1"),
    (
        "max_weight",
        "Largest weight",
        "",
        "The largest weight of a token, on average.",
        "one over the visible keys",
    ),
    (
        "distance",
        "Mean distance",
        "tokens",
        "How far a token looks, on average.",
        "the mean distance to a visible key",
    ),
    ("self", "Self", "", "Weight on the token itself.", "one over the visible keys"),
    ("previous", "Previous token", "", "Weight on the token just before.", "one over the visible keys"),
    ("next", "Next token", "", "Weight on the token just after.", "one over the visible keys"),
    ("first", "First token", "", "Weight on the first token of the text.", "one over the visible keys"),
    ("special", "Special tokens", "", "Weight on special tokens.", "their share of the visible keys"),
    (
        "duplicate",
        "Duplicate token",
        "",
        "Weight on other copies of the same token.",
        "the share of such keys",
    ),
    ("induction", "Induction", "", "Weight on what followed another copy.", "the share of such keys"),
]
LABELS: list[tuple[str, str, str, str | None, float, int | None]] = [
    ("previous", "previous token", "Looks at the token just before.", "previous", 0.5, 5),
    ("next", "next token", "Looks at the token just after.", "next", 0.5, 5),
    ("separator", "separator", "Rests on special tokens.", "special", 0.6, 5),
    ("first", "first token", "Rests on the first token.", "first", 0.5, 5),
    ("induction", "induction", "Looks at what followed another copy.", "induction", 0.3, 5),
    ("broad", "broad", "Spreads its weight almost evenly.", "entropy_normalized", 0.9, None),
    ("unlabelled", "unlabelled", "No rule matched.", None, 0.0, None),
]


def make_report(
    tokens: list[str] | int = DEMO, layers: int = 6, heads: int = 12, seed: int = 0, **changes: Any
) -> dict[str, Any]:
    """A report on `tokens` (or on so many made-up ones), with `changes` to its top level.

    Its inner parts are shared by all who ask for the same report: write in `own(...)` of it only.
    """
    report = _report(tokens if isinstance(tokens, int) else tuple(tokens), layers, heads, seed) | changes
    text = {"name": "text", "tokens": report["tokens"], "special": report["special"]}
    return {"sequences": [text]} | report


def own(report: dict[str, Any]) -> dict[str, Any]:
    return copy.deepcopy(report)


@cache
def _report(tokens: tuple[str, ...] | int, layers: int, heads: int, seed: int) -> dict[str, Any]:
    words = made_up(tokens, seed) if isinstance(tokens, int) else list(tokens)
    n = len(words)
    special = [i for i in sorted({0, n - 1}) if n > 2]
    rng = np.random.default_rng(seed)
    ids = np.unique(words, return_inverse=True)[1]
    made = [
        {
            "layer": layer,
            "name": f"encoder.layer.{layer}.attention.self",
            "kind": "self",
            "queries": "text",
            "keys": "text",
            "causal": False,
            "heads": [make_head(rng, words, ids, special, layer, head) for head in range(heads)],
        }
        for layer in range(layers)
    ]
    return {
        "schema": "headwise.report",
        "version": 2,
        "headwise": "0.1.0",
        "model": {
            "name": "toy", "source": "made-up==1.0", "architecture": "ToyModel", "layers": layers,
            "heads": heads, "kv_heads": heads, "head_dim": 32, "causal": False,
        },
        "text": {"source": "built-in example", "n_tokens": n},
        "tokens": words,
        "special": special,
        "check": {"tokens": min(n, 32), "max_abs_difference": 0.0, "causal_leak": None},
        "scores": [
            {**dict(zip(("key", "name", "unit", "meaning", "null"), score, strict=True)),
             "higher": "more", "over": "", "source": "", "group": "", "range": None}
            for score in SCORES
        ],
        "labels": [
            {**dict(zip(("key", "name", "meaning", "score", "threshold", "times_null"), label, strict=True)),
             "rows": None, "reachable": True}
            for label in LABELS
        ],
        "layers": made,
        "telling": telling(made),
        "notes": [],
        **dict.fromkeys(("pairs", "sinks", "needle", "probe", "redundancy", "rollout")),
    }  # fmt: skip


def made_up(n: int, seed: int) -> list[str]:
    """`n` words between two special tokens, short and long, many of them more than once."""
    rng = np.random.default_rng(seed)
    parts = ["ka", "lo", "mi", "ren", "sta", "tu", "vel", "or", "is", "en"]
    vocabulary = ["".join(rng.choice(parts, size=rng.integers(1, 5))) for _ in range(300)]
    return ["[CLS]", *rng.choice(vocabulary, size=max(n - 2, 0)).tolist(), "[SEP]"][:n]


def make_head(
    rng: np.random.Generator, words: list[str], ids: np.ndarray, special: list[int], layer: int, head: int
) -> dict[str, Any]:
    n = len(words)
    kind = str(rng.choice(KINDS))
    pairs = [(8, 2)] if words == DEMO and (layer, head) == (5, 11) else []
    if pairs:
        kind = "content"
    if n > DENSE:
        return long_head(rng, n, kind, head)
    weights = dense_weights(rng, n, kind, special, pairs)
    keys = strongest(weights, 6)
    index = np.full((n, 6), -1)
    index[:, : keys.shape[1]] = keys
    top = np.zeros((n, 6))
    top[:, : keys.shape[1]] = np.take_along_axis(weights, keys, axis=1)
    plain = weights.copy()
    plain[:, special] = plain[special] = 0.0
    np.fill_diagonal(plain, 0.0)
    best = strongest(plain.reshape(1, -1), 16)[0]
    links = [[int(i // n), int(i % n), float(plain.flat[i])] for i in best if plain.flat[i] > 0]
    block = math.ceil(n / 48)
    edges = np.arange(0, n, block)
    rows = np.minimum(block, n - edges)[:, None]
    cells = np.add.reduceat(np.add.reduceat(weights, edges, axis=0), edges, axis=1) / rows
    return {
        "head": head,
        **judged(dense_scores(weights, ids, special)),
        "links": links,
        "rows": {"queries": None, "index": index.tolist(), "weight": top.tolist()},
        "pooled": {"block": block, "map": cells.tolist()},
    }


def strongest(values: np.ndarray, how_many: int) -> np.ndarray:
    """The columns of the largest values of each row, largest first, the left one first among equals."""
    how_many = min(how_many, values.shape[1])
    kept = np.sort(np.argpartition(-values, how_many - 1, axis=1)[:, :how_many], axis=1)
    order = np.argsort(-np.take_along_axis(values, kept, axis=1), axis=1, kind="stable")
    return np.take_along_axis(kept, order, axis=1)


def dense_weights(
    rng: np.random.Generator, n: int, kind: str, special: list[int], pairs: list[tuple[int, int]]
) -> np.ndarray:
    scores = rng.normal(size=(n, n)) * (0.2 if kind == "broad" else 1.0)
    at = np.arange(n)
    gain = 3.0 + math.log(n + 1)
    if kind == "previous":
        scores[at[1:], at[:-1]] += gain
    elif kind == "next":
        scores[at[:-1], at[1:]] += gain
    elif kind == "separator" and special:
        scores[:, special] += gain
    elif kind == "first":
        scores[:, 0] += gain
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    for query, key in pairs:  # the link that the tests know: weight .41
        weights[query, key] = 0.0
        weights[query] = np.minimum(weights[query], 0.2)
        weights[query] *= 0.59 / weights[query].sum()
        weights[query, key] = 0.41
    return weights


def dense_scores(
    weights: np.ndarray, ids: np.ndarray, special: list[int]
) -> dict[str, dict[str, float | None]]:
    n = len(weights)
    at = np.arange(n)
    distance = np.abs(at[:, None] - at)
    entropy = float(-(weights * np.log(np.maximum(weights, 1e-300))).sum(axis=1).mean())
    top = math.log(n) if n > 1 else None
    same = (ids[:, None] == ids) & (distance > 0)
    after = np.zeros((n, n), dtype=bool)
    after[:, 1:] = same[:, :-1]
    scores = {
        "entropy": (entropy, math.log(n)),
        "entropy_normalized": (entropy / top if top else None, 1.0 if top else None),
        "max_weight": (weights.max(axis=1).mean(), 1 / n),
        "distance": ((weights * distance).sum(axis=1).mean(), distance.mean()),
        "self": (np.diag(weights).mean(), 1 / n),
        "previous": (np.diag(weights, -1).mean(), 1 / n) if n > 1 else (None, None),
        "next": (np.diag(weights, 1).mean(), 1 / n) if n > 1 else (None, None),
        "first": (weights[:, 0].mean(), 1 / n),
        "special": (weights[:, special].sum(axis=1).mean(), len(special) / n),
    }
    cells = {key: cell(value, null) for key, (value, null) in scores.items()}
    for key, where in (("duplicate", same), ("induction", after)):
        rows = where.any(axis=1)
        mass = (weights * where).sum(axis=1)[rows].mean() if rows.any() else None
        cells[key] = cell(
            mass, where.sum(axis=1)[rows].mean() / n if rows.any() else None, float(rows.mean())
        )
    return cells


def long_head(rng: np.random.Generator, n: int, kind: str, head: int) -> dict[str, Any]:
    """A head on a text too long for n × n arrays: rows, links and map straight from the recipe."""
    at = np.arange(n)
    target = {"previous": np.maximum(at - 1, 0), "next": np.minimum(at + 1, n - 1), "first": at * 0}
    keys = rng.integers(0, n, size=(n, 6))
    keys[:, 0] = target.get(kind, rng.integers(0, n, size=n))
    weights = np.sort(rng.dirichlet(np.ones(8), size=n), axis=1)[:, :1:-1]
    best = [int(i) for i in np.argsort(-weights[:, 0], kind="stable") if keys[i, 0] not in (0, i, n - 1)][:16]
    block = math.ceil(n / 48)
    side = math.ceil(n / block)
    values = {key: cell(float(rng.random()), 1 / n, None) for key, *_ in SCORES}
    if kind in values:
        values[kind] = cell(0.8, 1 / n)
    return {
        "head": head,
        **judged(values),
        "links": [[i, int(keys[i, 0]), float(weights[i, 0])] for i in best],
        "rows": {"queries": None, "index": keys.tolist(), "weight": weights.tolist()},
        "pooled": {"block": block, "map": rng.dirichlet(np.ones(side), size=side).tolist()},
    }


def cell(value: Any, null: Any, share: float | None = None) -> dict[str, float | None]:
    return {
        "value": None if value is None else float(value),
        "null": None if null is None else float(null),
        "share": share,
        "rows": None,
        "all_rows": None,
    }


def judged(scores: dict[str, dict[str, float | None]]) -> dict[str, Any]:
    bare = dict.fromkeys(("evidence", "offsets", "received"))
    for key, _, _, score, threshold, times in LABELS:
        if score is None:
            return {"label": key, "scores": scores, **bare}
        value, null = scores[score]["value"], scores[score]["null"]
        if value is not None and null is not None and value >= threshold and value >= (times or 0) * null:
            return {"label": key, "scores": scores, **bare}
    raise AssertionError("the last label has no rule")


def telling(layers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    score_of = {key: score or "max_weight" for key, _, _, score, _, _ in LABELS}
    entries = []
    for layer in layers:
        for head in layer["heads"]:
            score = score_of[head["label"]]
            value, null = head["scores"][score]["value"], head["scores"][score]["null"]
            place = {"layer": layer["layer"], "head": head["head"], "label": head["label"]}
            if value is not None:
                entries.append(
                    {**place, "score": score, "value": value, "null": null, "excess": value - (null or 0)}
                )
    entries.sort(key=lambda entry: -entry["excess"])
    by_label: dict[str, list[dict[str, Any]]] = {}
    for entry in entries:
        by_label.setdefault(entry["label"], []).append(entry)
    best = [entry for group in by_label.values() for entry in group[:3]]
    return sorted(best, key=lambda entry: -entry["excess"])
