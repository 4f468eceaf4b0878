"""The weight matrix that is never made: `AttentionWeights` computes the entries that are asked for."""

from dataclasses import replace
from typing import Any

import numpy as np

from headwise.compute.arrays import take
from headwise.compute.problem import build_problem
from headwise.compute.problem.rules import NO_RULES
from headwise.compute.request import AuxRequest
from headwise.compute.running import run
from headwise.compute.weights.entries import STAGES, At, scores_at
from headwise.compute.weights.matrix import LazyMatrix
from headwise.errors import HeadwiseError, ShapeError
from headwise.plain.numbers import binary
from headwise.plain.types import Array, Floats, Integers
from headwise.plain.values import is_whole, shown

MEMORY_LIMIT = 2**28


class AttentionLogits(LazyMatrix):
    """The scores before the softmax, after one stage; made by :meth:`AttentionWeights.logits`."""

    def __init__(self, weights: "AttentionWeights", stage: str) -> None:
        super().__init__(weights._problem, weights._query, weights.memory_limit)
        self.stage = stage

    def _entries(self, at: At, i: Integers, j: Integers) -> Floats:
        return scores_at(self._problem, at, i, j, self.stage)

    def __repr__(self) -> str:
        return f"AttentionLogits(stage={self.stage!r}, shape={self.shape}, {self.dtype})"


class AttentionWeights(LazyMatrix):
    """The weights of :func:`headwise.attention`, ``(..., H, n_q, n_k)``, computed where they are asked for.

        w[..., i, j] = exp(score[i, j] - lse[i])

    The kernel streams over the keys once, on first use, for each row's log-sum-exp; an entry then costs one
    dot product. Weights are those before dropout and head mask. Query and key are read when entries are
    asked for: leave them unchanged meanwhile.

    Args:
        query, key, attn_mask: as for ``attention``.
        memory_limit: largest dense piece that may be made, in bytes.
        options: the other keywords of ``attention`` but ``return_aux``; dropout and ``head_mask`` come after
            the weights and change nothing here.

    Raises:
        ShapeError, DtypeError, CapabilityError, HeadwiseError: as ``attention``.

    >>> import numpy as np
    >>> x = np.eye(4)
    >>> w = AttentionWeights(x, x, is_causal=True)
    >>> w
    AttentionWeights(shape=(4, 4), float64, 128 B not made)
    >>> w[1].round(3)
    array([0.378, 0.622, 0.   , 0.   ])
    """

    def __init__(
        self, query: Any, key: Any, attn_mask: Any = None, *, memory_limit: int = MEMORY_LIMIT, **options: Any
    ) -> None:
        if not is_whole(memory_limit) or memory_limit < 0:
            raise HeadwiseError(
                "memory_limit", "bytes, a whole number >= 0", shown(memory_limit), "2**30 is 1 GiB"
            )
        arrays = {"query": query, "key": key, "attn_mask": attn_mask}
        (q, k, mask, bias), _ = take(arrays | {"attn_bias": options.pop("attn_bias", None)})
        if "return_aux" in options or "value" in options:
            raise TypeError("AttentionWeights takes neither value nor return_aux")
        problem = build_problem(q, k, None, mask, attn_bias=bias, **options)
        if problem.rules is not NO_RULES:
            problem = problem._replace(rules=replace(problem.rules, dropout_p=0.0, seed=0, head_mask=None))
        super().__init__(problem, query, int(memory_limit))
        self._state: dict[str, Array] | None = None

    @property
    def lse(self) -> Any:
        """Log-sum-exp of each row, ``(..., H, n_q)``, sink logits included."""
        return self._restore(self._known()["lse"])

    def logits(self, stage: str = "masked") -> AttentionLogits:
        """The scores, with the same indexing, after "scaled" (scale * query . key), "capped" (soft cap) or
        "masked" (bias, ALiBi, and -inf where the key is hidden)."""
        if stage not in STAGES:
            raise HeadwiseError("stage", '"scaled", "capped" or "masked"', shown(stage), 'w.logits("masked")')
        return AttentionLogits(self, stage)

    def top_k(self, k: int) -> tuple[Any, Any]:
        """Keys and weights of the k heaviest keys of each row, ``(..., H, n_q, k)``; -1 and 0 = none."""
        answers = self._ask(AuxRequest(top_k=k))
        if not k:
            raise HeadwiseError("top_k", "a whole number >= 1", "0", "w.top_k(8)")
        return self._restore(answers["top_k_index"]), self._restore(answers["top_k_weight"])

    def pooled(self, block: int) -> Any:
        """Mean mass of blocks, ``(..., H, ceil(n_q / block), ceil(n_k / block))``: see ``Aux.pooled``."""
        if not block:
            raise HeadwiseError("pooled", "a whole number >= 1", shown(block), "w.pooled(64)")
        return self._restore(self._ask(AuxRequest(pooled=block))["pooled"])

    def received(self) -> Any:
        """Mass that each key receives from all rows, ``(..., H, n_k)``."""
        return self._restore(self._ask(AuxRequest(received=True))["received"])

    def entropy(self) -> Any:
        """Entropy of each row in nats, ``(..., H, n_q)``; NaN for a row that sees no key."""
        return self._restore(self._ask(AuxRequest(entropy=True))["entropy"])

    def __matmul__(self, x: Any) -> Any:
        """Attention with ``x`` as values: ``(..., H or H_kv, n_k, d)``, ``(n_k, d)`` or ``(n_k,)``."""
        (_, values), _ = take({"query": self._query, "x": x})
        p = self._problem
        flat = values.ndim == 1
        if flat:
            values = values[:, None]
        if values.ndim < 2 or values.shape[-2] != p.n_k or not values.shape[-1]:
            hint = "row j of x belongs to key j"
            raise ShapeError("x", f"(..., {p.n_k}, d), one row per key", f"shape {values.shape}", hint)
        heads = p.heads if values.ndim > 2 and values.shape[-3] == p.heads else p.kv_heads
        full = (*p.lead, heads, *values.shape[-2:])
        try:
            values = np.broadcast_to(values, full)
        except ValueError:
            expected = f"a shape that broadcasts to {full}"
            raise ShapeError("x", expected, f"shape {values.shape}", "x is the values of attention") from None
        key = p.key if heads == p.kv_heads else p.key.repeat(heads // p.kv_heads, axis=-3)
        output = np.empty((*p.lead, p.heads, p.n_q, full[-1]), p.query.dtype)
        run(p._replace(key=key, value=values), output)
        output = output[0] if p.one_head else output
        return self._restore(output[..., 0] if flat else output)

    def __repr__(self) -> str:
        dtype = self._problem.query.dtype
        return f"AttentionWeights(shape={self.shape}, {dtype}, {binary(self.nbytes)} not made)"

    def _ask(self, request: AuxRequest) -> dict[str, Array]:
        return run(self._problem._replace(request=request), None)

    def _known(self) -> dict[str, Array]:
        """Each row's log-sum-exp, largest weight and where it is: one pass over the keys, once."""
        if self._state is None:
            self._state = self._ask(AuxRequest(lse=True, max_weight=True, argmax=True))
        return self._state

    def _entries(self, at: At, i: Integers, j: Integers) -> Floats:
        # Relative to the row's largest weight, whose score is computed here in the same way: so nothing is
        # lost where scores are large and a rounded log-sum-exp would be off by more than a weight.
        known, p = self._known(), self._problem
        row = i[:, 0] if i.ndim == 2 else i
        here = (*at[1:], row) if p.one_head else (*at, row)
        largest, where = known["max_weight"][here].astype(np.float64), known["argmax"][here]
        top = scores_at(
            p, tuple(np.broadcast_to(a, row.shape) for a in at), row, np.maximum(where, 0), "masked"
        )
        scores = scores_at(p, at, i, j, "masked")
        if i.ndim == 2:
            largest, top = largest[:, None], top[:, None]
        with np.errstate(all="ignore"):
            weights = np.minimum(largest * np.exp(scores - top), largest)
        return np.where(scores == -np.inf, 0.0, weights)
