"""Every sum of one call: the scores, and the parts that profiles and lists are drawn from."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from headwise.compute.request import AuxRequest
from headwise.inspect.call.call import AttentionCall
from headwise.inspect.call.text import Text
from headwise.inspect.score import classes, content, cross, position, sinks, spread, values
from headwise.inspect.score.measured import Measured
from headwise.inspect.score.score import Score
from headwise.inspect.score.tally import OFFSETS, Mean, Summed, Tally

# In the order of the card. A new score is one line more in one of these files.
SCORES: tuple[Score, ...] = (
    *spread.SCORES,
    *position.SCORES,
    *sinks.SCORES,
    *content.SCORES,
    sinks.LOGIT,
    *values.SCORES,
    *cross.SCORES,
)


def request_for(call: AttentionCall, queries: Text, keys: Text, *, top_k: int, block: int) -> AuxRequest:
    """All statistics that the scores and pictures of this call need."""
    ids = None if queries.ids is None or keys.ids is None else (keys.ids[None], queries.ids[None])
    given: dict[str, Any] = {
        # In causal attention no key after the query is seen.
        "relative": tuple(offset for offset in OFFSETS if offset <= 0 or not call.is_causal),
        "matches": ids,
        "sink_logit_mass": call.options.get("sinks") is not None,
    }
    asked = {name for score in SCORES if score.kind in (None, call.kind) for name in score.asks}
    return AuxRequest(
        lse=True,
        max_weight=True,
        argmax=True,
        received=True,
        classes=keys.patterns[0][None],
        top_k=top_k,
        pooled=block,
        **{name: given.get(name, True) for name in asked},
    )


def measure(m: Measured) -> Tally:
    """The sums of a call; or those of its uniform twin that depend on no values."""
    offsets = bands = None
    if m.call.kind == "self":
        near = position.near_of(m)
        offsets, bands = position.offsets_of(m, near), position.bands_of(m, near)
    of = np.broadcast_to(m.of.sum(axis=1, dtype=np.float64), m.heads)
    scores = (score for score in SCORES if not (m.uniform and score.of_values))
    sums = sums_of(m, scores) | classes.own_sums(m)
    return Tally(of, sums, offsets, bands, sinks.received_of(m))


def sums_of(m: Measured, scores: Iterable[Score]) -> dict[str, Summed]:
    """Score key -> its sum, of the scores that this call has."""
    measured = (
        (score.key, score.measure(m))
        for score in scores
        if score.measure is not None and score.kind in (None, m.call.kind)
    )
    return {key: found for key, found in measured if found is not None}


def null_of_values(m: Measured) -> dict[str, Summed]:
    """What uniform attention gives of the scores that look at the values of the call."""
    return sums_of(m, [score for score in SCORES if score.of_values])


def means_of(tally: Tally) -> dict[str, Mean]:
    """Score key -> its mean, read off the parts where it is no sum of its own."""
    read = ((score.key, score.read(tally)) for score in SCORES if score.read is not None)
    found = {key: mean for key, mean in read if mean is not None}
    return found | {key: sums.mean(tally.of) for key, sums in tally.sums.items()}
