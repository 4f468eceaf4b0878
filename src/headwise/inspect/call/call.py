"""One call of attention, as arrays and options: what a model shows and what the scores are computed from.

Needs no framework: the arrays may be of any kind that ``headwise.attention`` takes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from headwise.compute.functional import attention_statistics
from headwise.compute.request import Aux, AuxRequest

Span = tuple[int, int]  # (start, stop)
SCORES_ONLY = ("scale", "softcap", "sinks", "attn_bias")  # options that hide no key (-inf in a bias does)


@dataclass(eq=False, kw_only=True)
class AttentionCall:
    """One call of attention over a batch of sequences.

    Attributes:
        layer: number of this attention in the report, from 0. Calls of one number are steps of the same
            attention: a model that generates with a cache calls it once per new token.
        name: qualified name of the attention module; "(call 2)" is added where one pass calls it again.
        kind: "self", or "cross" where the keys are those of another sequence.
        first_row: how many query rows earlier steps of this attention had.
        query: (B, H, n_q, d_k); key: (B, H_kv, n_k, d_k): views of the model's own tensors, or float32
            copies of tensors in half precision.
        value: (B, H_kv, n_k, d_v), or None where the model shows only weights.
        output: (B, H, n_q, d_v), or None where it is not known (yet: see ``runner``).
        options: keywords of ``attention_statistics`` that say what the model computes:
            ``scale``, ``softcap``, ``attn_bias``, ``sinks``, and who sees whom: ``is_causal``,
            ``query_offset``, ``window_size``, ``segment_ids``, ``attn_mask``. What is not there is off.
        runner: what ``statistics`` calls; None: ``attention_statistics``. Where our kernel computes the
            model's output, its one pass gives the statistics too, and fills ``output``.
    """

    layer: int
    name: str
    query: Any
    key: Any
    kind: str = "self"
    first_row: int = 0
    value: Any = None
    output: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)
    runner: Callable[[AuxRequest, int | None], Aux] | None = None

    @property
    def scale(self) -> float:
        """The factor on the scores."""
        given = self.options.get("scale")
        return float(self.query.shape[-1] ** -0.5 if given is None else given)

    @property
    def is_causal(self) -> bool:
        """True where no query sees a key after its own position (also by a window that is closed there)."""
        window = self.options.get("window_size")
        return bool(self.options.get("is_causal")) or (window is not None and window[1] == 0)

    @property
    def offset(self) -> int:
        """Position of query 0 among the keys."""
        return int(self.options.get("query_offset", 0))

    def statistics(self, request: AuxRequest, num_threads: int | None = None) -> Aux:
        """The statistics of this call, in one pass over query and key; no n_q x n_k array is made.

        Raises:
            HeadwiseError: as ``headwise.attention``.
        """
        if self.runner is not None:
            return self.runner(request, num_threads)
        return attention_statistics(
            self.query, self.key, return_aux=request, num_threads=num_threads, **self.options
        )

    def uniform(self) -> "AttentionCall":
        """The same call under uniform attention over the visible keys: the null of every score.

        It has one head, or H where heads see different keys, and batch and lengths of this call.
        """
        options = {name: given for name, given in self.options.items() if name not in SCORES_ONLY}
        bias, mask = self.options.get("attn_bias"), options.get("attn_mask")
        masks = [np.asarray(mask) if mask is not None else None, None if bias is None else np.asarray(bias)]
        seen = [m if m.dtype == np.bool_ else m > -np.inf for m in masks if m is not None]
        hides = [m for m in seen if not m.all()]
        options.pop("attn_mask", None)
        if hides:
            options["attn_mask"] = hides[0] & hides[-1]
        heads = 1 if not hides or options["attn_mask"].ndim < 3 else options["attn_mask"].shape[-3]
        lead = tuple(self.query.shape[:-3])
        zeros = [np.zeros((*lead, heads, n, 1)) for n in (self.query.shape[-2], self.key.shape[-2])]
        return replace(
            self, query=zeros[0], key=zeros[1], value=None, output=None, options=options, runner=None
        )

    def cut(self, sequence: int, queries: Span | None = None, keys: Span | None = None) -> "AttentionCall":
        """The call of one sequence of the batch (B = 1), of a span of its queries and keys; views, no copies.

        Cutting the padding off leaves plain attention where it was the padding that needed ids.
        """
        n_q, n_k = self.query.shape[-2], self.key.shape[-2]
        (a, z), (b, y) = queries or (0, n_q), keys or (0, n_k)
        whole = (a, z, b, y) == (0, n_q, 0, n_k)
        if whole and self.query.shape[0] == 1:
            return self
        options = dict(self.options)
        if self.kind == "self":
            options["query_offset"] = self.offset + a - b
        for name in ("attn_mask", "attn_bias"):
            if options.get(name) is not None:
                options[name] = _part(options[name], sequence, (a, z), (b, y))
        if options.get("segment_ids") is not None:
            of_queries, of_keys = options.pop("segment_ids")
            parts = of_queries[sequence : sequence + 1, a:z], of_keys[sequence : sequence + 1, b:y]
            if len({int(i) for part in parts for i in np.unique(part)}) > 1:
                options["segment_ids"] = parts
        one = slice(sequence, sequence + 1)
        return replace(
            self,
            query=self.query[one, :, a:z],
            key=self.key[one, :, b:y],
            value=None if self.value is None else self.value[one, :, b:y],
            output=None if self.output is None else self.output[one, :, a:z],
            options=options,
            runner=None,
        )


def _part(mask: Any, sequence: int, queries: Span, keys: Span) -> Any:
    """The part of a mask, broadcast to (B, H, n_q, n_k), that belongs to one sequence and two spans."""
    spans: Sequence[Span] = (
        (sequence, sequence + 1),
        (0, mask.shape[-3] if mask.ndim > 2 else 1),
        queries,
        keys,
    )
    picks = [
        slice(*span) if size > 1 else slice(None)
        for span, size in zip(spans[4 - mask.ndim :], mask.shape, strict=True)
    ]
    return mask[tuple(picks)]
