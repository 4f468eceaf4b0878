"""Which heads look alike: Jensen-Shannon divergence between heads of all layers, and groups of alike heads.

    JS(p, q) = H((p + q) / 2) - H(p) / 2 - H(q) / 2      in nats, 0 … ln 2; the mean over query rows

(Clark et al. 2019, section 6, without their smoothing.) Comparing all pairs on a long text would cost more
than the model. So every head is first reduced to a sketch of the square roots of its weights on sampled rows:
random signs r give E[(√p·r)(√q·r)] = Σ √(p q) = BC, the Bhattacharyya coefficient, and
ln 2 (1 − BC) ≤ JS ≤ 1 − BC. The pairs that the sketch calls close are then verified exactly, on rows whose
weights are kept. Where it is cheap enough, all pairs are exact and no sketch is made.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from headwise.compute.request import Aux
from headwise.inspect.call.call import AttentionCall
from headwise.inspect.call.rows import Rows, sample_starts, weights_of
from headwise.inspect.call.text import Text
from headwise.inspect.watch.clusters import average_link
from headwise.plain.types import Floats, Integers

ALIKE = 0.05  # nats; average-link groups are cut here (ln 2 = 0.69 is the most)
MOST_ROWS = 64  # rows for exact divergences
KEPT_BYTES = 64_000_000  # their weights, in float32
LOGARITHMS = 30_000_000  # that exact divergences may take
SIGNS = 32  # columns of the sketch
LISTED = 50  # closest pairs in the report
BETWEEN = (1 + np.log(2)) / 2  # JS lies between ln 2 and 1 times 1 − BC

Head = tuple[int, int]


class Redundancy:
    """Collects rows of every head of the self-attention (or of the one cross-attention) between two texts;
    a watcher of ``Scorer``.

    Args:
        heads: heads of all layers together.
        queries, keys: the texts; layers between others are not compared.
    """

    def __init__(self, heads: int, queries: Text, keys: Text, seed: int = 0) -> None:
        self.names = queries.name, keys.name
        self.sizes: tuple[int, int] | None = None
        self.total = heads
        self.seed = seed
        self.heads: list[Head] = []
        self.rows: Integers = np.zeros(0, np.int64)
        self._kept: list[npt.NDArray[np.float32]] = []
        self._sketches: list[npt.NDArray[np.float32]] = []
        self._signs: npt.NDArray[np.float32] | None = None

    def watch(self, call: AttentionCall, queries: Text, keys: Text, aux: Aux) -> None:
        """Keep what is needed of one layer; steps of a model that writes are not compared."""
        sizes = int(call.query.shape[-2]), int(call.key.shape[-2])
        if (queries.name, keys.name) != self.names or call.first_row:
            return
        if self.sizes is None:
            self.sizes = sizes
            self._plan(*sizes)
        if sizes != self.sizes:
            return
        weights = weights_of(call, self.rows).astype(np.float32)
        if aux.sink_logit_mass is not None:  # what the sink logits take is one more key
            taken = np.nan_to_num(np.asarray(aux.sink_logit_mass)[0][:, self.rows])
            weights = np.concatenate([weights, taken[..., None].astype(np.float32)], axis=-1)
        if self._kept and weights.shape[-1] != self._kept[0].shape[-1]:
            return  # layers with and without sink logits do not compare
        self._kept.append(weights)
        if self._signs is not None:
            self._sketches.append(self._sketch(call, aux))
        self.heads += [(call.layer, head) for head in range(weights.shape[0])]

    def report(self) -> dict[str, Any] | None:
        """The closest pairs, and the groups of heads that are alike; None with fewer than two heads."""
        if len(self.heads) < 2:
            return None
        distances, exact = self.distances()
        a, b = np.triu_indices(len(self.heads), 1)
        order = np.lexsort((b, a, distances[a, b]))[:LISTED]
        pairs = [
            {
                "a": list(self.heads[a[i]]),
                "b": list(self.heads[b[i]]),
                "js": round(float(distances[a[i], b[i]]), 6),
                "exact": bool(exact[a[i], b[i]]),
            }
            for i in order
        ]
        groups = average_link(distances, ALIKE)
        return {
            "threshold": ALIKE,
            "rows": len(self.rows),
            "verified": int(exact[a, b].sum()),
            "compared": len(a),
            "pairs": pairs,
            "clusters": [[list(self.heads[i]) for i in group] for group in groups if len(group) > 1],
        }

    def distances(self) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """(N, N) mean JS of all heads, in the order of ``heads``, and which entries are exact."""
        weights = [head for layer in self._kept for head in layer]
        n = len(weights)
        exact = np.eye(n, dtype=bool)
        a, b = np.triu_indices(n, 1)
        if self._signs is None:
            estimate = np.zeros((n, n))
            close = np.arange(len(a))
        else:
            estimate = np.clip(1 - _cosines(np.concatenate(self._sketches)), 0, 1) * BETWEEN
            close = np.argsort(estimate[a, b], kind="stable")[: self._affordable()]
        divergence = divergences(weights, a[close], b[close])
        estimate[a[close], b[close]] = estimate[b[close], a[close]] = divergence
        exact[a[close], b[close]] = exact[b[close], a[close]] = True
        return estimate, exact

    def _affordable(self) -> int:
        assert self.sizes is not None
        return max(1, LOGARITHMS // (len(self.rows) * self.sizes[1]))

    def _plan(self, n_q: int, n_k: int) -> None:
        many = min(MOST_ROWS, n_q, max(4, KEPT_BYTES // (4 * self.total * n_k)))
        self.rows = np.linspace(0, n_q - 1, many).round().astype(np.int64)
        if self.total * (self.total - 1) // 2 > self._affordable():
            # Passage s reads the signs from place s on: other signs for every passage, in one array.
            passages = len(sample_starts(n_q)[0])
            drawn = np.random.default_rng(self.seed).integers(0, 2, (n_k + 1 + passages, SIGNS))
            self._signs = (2 * drawn - 1).astype(np.float32)

    def _sketch(self, call: AttentionCall, aux: Aux) -> npt.NDArray[np.float32]:
        """(H, rows · SIGNS): √p times random signs, from attention at half the scores."""
        assert self._signs is not None
        starts, length = sample_starts(int(call.query.shape[-2]))
        rows = Rows(call, starts, length)
        n_k = rows.n_k
        dtype = rows.call.query.dtype
        signs = np.stack([self._signs[s : s + n_k] for s in range(len(starts))]).astype(dtype)
        half = rows.changed(options=_halved(rows.call))
        output, found = half.attend(signs[:, None], lse=True)
        lse = np.asarray(aux.lse, np.float64)[0][:, rows.at]
        with np.errstate(invalid="ignore"):
            roots = output * np.exp(found["lse"] - lse / 2)[..., None]
        if aux.sink_logit_mass is not None:
            taken = np.asarray(aux.sink_logit_mass, np.float64)[0][:, rows.at, None]
            roots = roots + np.sqrt(taken) * np.repeat(self._signs[-len(starts) :], length, axis=0)
        return np.nan_to_num(roots).reshape(len(roots), -1).astype(np.float32)


def _halved(call: AttentionCall) -> dict[str, Any]:
    """The options under which every score is half of what it was; sink logits are left out."""
    options = {name: given for name, given in call.options.items() if name != "sinks"}
    options["scale"] = call.scale / 2
    for name in ("softcap", "attn_bias", "alibi_slopes"):
        if options.get(name) is not None:
            options[name] = options[name] / 2
    mask = options.get("attn_mask")
    if mask is not None and mask.dtype != np.bool_:
        options["attn_mask"] = mask / 2
    return options


def _cosines(sketches: npt.NDArray[np.float32]) -> Floats:
    """Inner products over the lengths: exactly 1 for a head with itself, however the signs fell."""
    products = (sketches @ sketches.T).astype(np.float64)
    lengths = np.sqrt(np.maximum(np.diagonal(products), 1e-30))
    cosines: Floats = products / (lengths[:, None] * lengths)
    return cosines


def divergences(weights: Sequence[npt.NDArray[Any]], a: Integers, b: Integers) -> Floats:
    """Mean JS of the pairs (a, b) of heads over the rows that see a key; per head (rows, keys) weights."""
    entropies = np.stack([_entropy(head.astype(np.float64)) for head in weights])
    found = np.zeros(len(a))
    for at, (i, j) in enumerate(zip(a, b, strict=True)):
        sees = (weights[i].any(axis=-1)) & (weights[j].any(axis=-1))
        if not sees.any():
            continue
        middle = (weights[i].astype(np.float64) + weights[j]) / 2
        rows = _entropy(middle) - (entropies[i] + entropies[j]) / 2
        found[at] = max(0.0, float(rows[sees].mean()))
    return found


def _entropy(weights: Floats) -> Floats:
    logarithms = np.log(weights, out=np.zeros_like(weights), where=weights > 0)
    return np.asarray(-(weights * logarithms).sum(axis=-1))
