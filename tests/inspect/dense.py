"""The scores of a head straight from its dense weights in float64; nothing of ``src`` is used."""

import numpy as np


def weights_of(query, key, scale, is_causal):
    """(H, n, n) float64 from query (H, n, d) and key (H_kv, n, d)."""
    query, key = np.asarray(query, dtype=np.float64), np.asarray(key, dtype=np.float64)
    key = np.repeat(key, query.shape[0] // key.shape[0], axis=0)
    scores = scale * (query @ key.transpose(0, 2, 1))
    if is_causal:
        scores = np.where(np.tri(scores.shape[1], dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def uniform(n, is_causal):
    """(n, n): equal weights on the visible keys."""
    visible = np.tri(n) if is_causal else np.ones((n, n))
    return visible / visible.sum(axis=1, keepdims=True)


def scores_of(weights, ids, special, is_causal):
    """Score key -> (value or None, share or None) for one head with dense weights (n, n)."""
    n = len(weights)
    entropies, normalised, duplicates, inductions = [], [], [], []
    for i in range(n):
        row = weights[i]
        entropy = -sum(w * np.log(w) for w in row if w > 0)
        entropies.append(entropy)
        visible = i + 1 if is_causal else n
        if visible > 1:
            normalised.append(entropy / np.log(visible))
        same = [j for j in range(visible) if ids[j] == ids[i] and j != i]
        if same:
            duplicates.append(sum(row[j] for j in same))
        after = [j for j in range(1, visible) if ids[j - 1] == ids[i] and j - 1 != i]
        if after:
            inductions.append(sum(row[j] for j in after))
    distance = np.abs(np.arange(n)[:, None] - np.arange(n))
    return {
        "entropy": (np.mean(entropies), None),
        "entropy_normalized": (_mean(normalised), None),
        "max_weight": (np.mean(weights.max(axis=1)), None),
        "distance": (np.mean((weights * distance).sum(axis=1)), None),
        "self": (np.mean(np.diagonal(weights)), None),
        "previous": (_mean(np.diagonal(weights, -1)), None),
        "next": (None if is_causal else _mean(np.diagonal(weights, 1)), None),
        "first": (np.mean(weights[:, 0]), None),
        "special": (np.mean(weights[:, list(special)].sum(axis=1)) if len(special) else None, None),
        "duplicate": (_mean(duplicates), len(duplicates) / n),
        "induction": (_mean(inductions), len(inductions) / n),
    }


def pooled_of(weights, block):
    """(m, m): the mean over a block of rows of their mass in a block of keys."""
    starts = range(0, len(weights), block)
    return [[weights[a : a + block, b : b + block].sum(axis=1).mean() for b in starts] for a in starts]


def _mean(values):
    return np.mean(values) if len(values) else None
