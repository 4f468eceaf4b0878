"""Which tokens are sinks, and in how many heads: a share of the heads per token."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from headwise.inspect.call.text import Text
from headwise.inspect.score.scorer import LayerScores

SINKS = (0.3, 0.8)  # mean weights above which a token is called a sink: Gu et al. 2024, Barbero et al. 2025
MOST = 4  # tokens that are listed


def sinks_of(layers: Sequence[LayerScores], text: Text) -> dict[str, Any] | None:
    """For the tokens that are sinks in most heads: the share of the heads in which they are one.

    A token is a sink of a head where its mean weight over the queries that see it is above a threshold
    (``thresholds``, one share for each). The heads are those of self-attention over the text; None without.
    """
    means = [
        layer.tally.received.averages()
        for layer in layers
        if layer.kind == "self" and layer.queries.name == text.name and layer.tally.received is not None
    ]
    wide = [mean for mean in means if mean.shape[1] == text.n]
    heads = sum(map(len, wide))
    if not heads:
        return None
    shares = np.stack([sum((mean > least).sum(axis=0) for mean in wide) / heads for least in SINKS], axis=1)
    order = np.lexsort((np.arange(text.n), -shares[:, 1], -shares[:, 0]))
    keys = [{"key": int(k), "shares": shares[k].tolist()} for k in order[:MOST] if shares[k, 0] > 0]
    return {"heads": heads, "thresholds": list(SINKS), "keys": keys}
