"""The entry of a head in the report: label, scores, profile, links, strongest keys of rows, pooled map."""

from typing import Any

import numpy as np

from headwise.inspect.report.card import ALWAYS, in_order, score_of
from headwise.inspect.report.labels import INDUCTION, label_of
from headwise.inspect.report.sinks import SINKS
from headwise.inspect.score.measure import means_of
from headwise.inspect.score.pictures import induction_link, strongest_links
from headwise.inspect.score.scorer import LayerScores
from headwise.inspect.score.tally import Mean, Received, Tally, seen_enough
from headwise.plain.types import Floats, Integers

DIGITS = 6  # decimals of single weights in a report
HEAVIEST = 8  # keys that are listed by the mass that they receive
SINK = SINKS[0]  # mean weight above which a key is listed as one
MOST_SINKS = 8

Card = dict[str, dict[str, Any]]


def layer_entry(layer: LayerScores) -> dict[str, Any]:
    """A layer of the report with the entries of all its heads, as plain data."""
    pictured = layer.pictures.map().round(DIGITS)
    distances = (_distances(layer.tally), _distances(layer.null))
    return {
        "layer": layer.layer,
        "name": layer.name,
        "kind": layer.kind,
        "queries": layer.queries.name,
        "keys": layer.keys.name,
        "causal": layer.causal,
        "heads": [
            _entry(head, layer, card, distances, pictured) for head, card in enumerate(cards_of(layer))
        ],
    }


def cards_of(layer: LayerScores) -> list[Card]:
    """Per head: score key -> value, null, share, rows and all_rows, in the order of the card."""
    found, null = means_of(layer.tally), means_of(layer.null)
    keys = in_order([*found, *(ALWAYS if layer.kind == "self" else ())])
    heads = range(len(layer.pictures.index))
    return [{key: _line(key, head, found.get(key), null.get(key)) for key in keys} for head in heads]


def _entry(
    head: int,
    layer: LayerScores,
    card: Card,
    distances: tuple[Any, Any],
    pictured: Any,
) -> dict[str, Any]:
    pictures = layer.pictures
    label = label_of(card)
    evidence = induction_link(pictures, head, layer.queries, layer.keys) if label == INDUCTION else None
    offsets = None if layer.tally.offsets is None else layer.tally.offsets.profile(head)
    received = None if layer.tally.received is None else received_entry(layer.tally.received, head)
    every = len(pictures.queries) == pictures.n_q
    return {
        "head": head,
        "label": label,
        "scores": card,
        "offsets": offsets,
        "distances": _by_distance(*distances, head),
        "received": received,
        "links": _rounded_links(strongest_links(pictures, head, layer.queries, layer.keys)),
        "evidence": None if evidence is None else _rounded_links([evidence])[0],
        "rows": {
            "queries": None if every else pictures.queries.tolist(),
            "index": pictures.index[head].tolist(),
            "weight": pictures.weight[head].round(DIGITS).tolist(),
        },
        "pooled": {"block": pictures.block, "map": pictured[head].tolist()},
    }


def _distances(tally: Tally) -> Any:
    return None if tally.bands is None else tally.bands.by_distance(tally.of).round(DIGITS)


def _by_distance(found: Any, null: Any, head: int) -> dict[str, Any] | None:
    """The mean weight by distance, and what uniform attention gives: a band opens at ``least``."""
    if found is None or null is None:
        return None
    return {
        "least": [0, *(2**i for i in range(found.shape[1] - 1))],
        "mass": found[head].tolist(),
        "null": null[head if len(null) > 1 else 0].tolist(),
    }


def _line(key: str, head: int, mean: Mean | None, null: Mean | None) -> dict[str, Any]:
    if mean is None:
        return {"value": None, "null": None, "share": None, "rows": 0, "all_rows": None}
    score, rows = score_of(key), mean.rows[head] if len(mean.rows) > 1 else mean.rows[0]
    return {
        "value": mean.value(head),
        "null": None if null is None else null.value(head),
        "share": mean.share(head) if score.tells_share else None,
        "rows": int(rows),
        "all_rows": mean.over_all(head) if score.both_readings else None,
    }


def received_entry(received: Received, head: int) -> dict[str, Any]:
    """The keys that receive most.

    ``heaviest``: [key, mass from all queries, mean weight over the queries that see it], by mass.
    ``sinks``: [key, that mean weight] above SINK; keys that few queries see do not count.
    """
    total = received.total[head]
    seen = received.seen[head if len(received.seen) > 1 else 0]
    mean = np.divide(total, seen, out=np.zeros_like(total), where=seen > 0)
    heaviest = largest(total, HEAVIEST)
    sinks = np.flatnonzero(seen_enough(seen) & (mean > SINK))
    sinks = sinks[np.argsort(-mean[sinks], kind="stable")][:MOST_SINKS]
    return {
        "heaviest": [
            [int(k), round(float(total[k]), DIGITS), round(float(mean[k]), DIGITS)] for k in heaviest
        ],
        "sinks": [[int(k), round(float(mean[k]), DIGITS)] for k in sinks],
    }


def largest(values: Floats, count: int) -> Integers:
    """Where the largest values stand, largest first, of equal ones the first; the others are not sorted."""
    at = np.arange(len(values))
    if len(values) > count:
        at = np.flatnonzero(values >= np.partition(values, -count)[-count])
    found: Integers = at[np.argsort(-values[at], kind="stable")][:count]
    return found


def _rounded_links(links: list[list[Any]]) -> list[list[Any]]:
    return [[query, key, round(weight, DIGITS)] for query, key, weight in links]
