"""Scoring attention calls, one after the other: every head of a layer in one pass of the kernel.

``Scorer.observe`` takes the calls of a model (or arrays from elsewhere) as they come; steps of the same layer
are added up. Nothing of the size n_q x n_k is made: per call O(H n_q) numbers are held and at once reduced to
sums, the strongest keys of some rows and a block-pooled map.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headwise.compute.request import Aux
from headwise.errors import HeadwiseError
from headwise.inspect.call.call import AttentionCall
from headwise.inspect.call.rows import Rows, sample_starts
from headwise.inspect.call.text import Text
from headwise.inspect.score.measure import measure, null_of_values, request_for
from headwise.inspect.score.measured import Measured, Visible, visible_of
from headwise.inspect.score.pictures import Pictures, block_of, picture_of
from headwise.inspect.score.tally import Mean, Tally

TOP_K = 6  # strongest keys kept per query row
ROW_BUDGET = 1_000_000  # single weights that a report holds over all rows of all heads
KINDS = 8  # kinds of visibility remembered at a time: a model that writes has another one at each step

Watcher = Callable[[AttentionCall, Text, Text, Aux], tuple[Tally, Tally] | None]


@dataclass(eq=False)
class LayerScores:
    """What is kept of one layer.

    Attributes:
        layer, name, kind: of its calls.
        queries, keys: the texts that it reads from and to.
        causal: True where no query sees a key after it.
        tally, null: sums of the scores, and of uniform attention; null has one head where all see the same.
        pictures: strongest keys, links and map.
    """

    layer: int
    name: str
    kind: str
    queries: Text
    keys: Text
    causal: bool
    tally: Tally
    null: Tally
    pictures: Pictures


@dataclass(eq=False)
class Scorer:
    """Scores the layers of a model over its text.

    Attributes:
        heads: heads of all layers together: a share of ROW_BUDGET belongs to each.
        num_threads: threads of the kernel; None = its own default.
        watchers: called as ``watch(call, queries, keys, aux)`` after each call: redundancy, rollout and gold
            pairs listen here. Two tallies that come back are added to the layer's: scores, and those of
            uniform attention.
        layers: what was scored so far, by the calls' own layer numbers.
    """

    heads: int
    num_threads: int | None = None
    watchers: list[Watcher] = field(default_factory=list)
    layers: dict[int, LayerScores] = field(default_factory=dict)
    _twins: dict[Any, "Twin"] = field(default_factory=dict)

    def observe(self, call: AttentionCall, queries: Text, keys: Text | None = None) -> None:
        """Score one call over one sequence (B = 1).

        Args:
            call: its queries and keys are those of the texts; steps of a model that writes have a
                ``first_row`` and stand after those before them.
            queries: the tokens up to the call's last row.
            keys: those of its keys; None: the queries' own.

        Raises:
            HeadwiseError: scores that are not finite; whatever ``headwise.attention`` refuses.
        """
        keys = queries if keys is None else keys
        n_q = int(call.query.shape[-2])
        known = self.layers.get(call.layer)
        block = block_of(max(call.first_row + n_q, keys.n)) if known is None else known.pictures.block
        for piece in _whole_blocks(call, block):
            self._score(piece, queries, keys, block)

    def entries(self) -> list[LayerScores]:
        """The layers in order."""
        return [self.layers[number] for number in sorted(self.layers)]

    def _score(self, call: AttentionCall, queries: Text, keys: Text, block: int) -> None:
        n_q = int(call.query.shape[-2])
        own = queries.rows(call.first_row, call.first_row + n_q)
        in_full = TOP_K * n_q * self.heads <= ROW_BUDGET
        request = request_for(call, own, keys, top_k=TOP_K if in_full else 0, block=block)
        aux = call.statistics(request, self.num_threads)
        _check_scores(call, aux)
        twin = self._twin_of(call, queries, own, keys)
        sample = Rows(call, *sample_starts(n_q))
        m = Measured(call=call, queries=own, keys=keys, aux=aux, visible=twin.visible, sample=sample)
        tally, null = measure(m), twin.null
        _check_output(call, tally)
        if call.value is not None:
            null = null.with_sums(null_of_values(m.as_uniform(twin.equal)))
        for watch in self.watchers:
            if (found := watch(call, queries, keys, aux)) is not None:
                tally, null = tally + found[0], null + found[1]
        picture = picture_of(call, aux, sample, block, TOP_K, in_full)
        known = self.layers.get(call.layer)
        if known is None:
            self.layers[call.layer] = LayerScores(
                call.layer, call.name, call.kind, queries, keys, call.is_causal, tally, null, picture
            )
            return
        known.tally, known.null = known.tally + tally, known.null + null
        known.pictures.append(picture)
        known.queries, known.keys = queries, keys

    def _twin_of(self, call: AttentionCall, queries: Text, own: Text, keys: Text) -> "Twin":
        """A call's uniform twin; calls of one visibility over one text share it."""
        n_q = call.query.shape[-2]
        arrays = [call.options.get(name) for name in ("attn_mask", "attn_bias", "segment_ids")]
        plainly = [
            (name, call.options[name])
            for name in ("is_causal", "query_offset", "window_size")
            if name in call.options
        ]
        kept = (id(queries), id(keys), *map(id, arrays))
        key = (call.kind, n_q, call.key.shape[-2], call.query.shape[-3], call.first_row, repr(plainly), kept)
        if key not in self._twins:
            uniform = call.uniform()
            aux = uniform.statistics(request_for(uniform, own, keys, top_k=0, block=0), self.num_threads)
            visible, sample = visible_of(aux, keys), Rows(uniform, *sample_starts(n_q))
            m = Measured(
                call=uniform, queries=own, keys=keys, aux=aux, visible=visible, sample=sample, uniform=True
            )
            if len(self._twins) >= KINDS:
                self._twins.clear()
            self._twins[key] = Twin(visible, measure(m), dict(sample.call.options), (queries, keys, arrays))
        return self._twins[key]


@dataclass(frozen=True, eq=False)
class Twin:
    """A call under uniform attention.

    Attributes:
        visible: what its rows see.
        null: its sums.
        equal: options of its sample of rows.
        held: whose ids it is known by: so none is used again meanwhile.
    """

    visible: Visible
    null: Tally
    equal: dict[str, Any]
    held: Any


def _check_scores(call: AttentionCall, aux: Aux) -> None:
    """Raise HeadwiseError where a row that sees a key has no number for an answer."""
    lse = np.asarray(aux.lse)
    wrong = np.isnan(lse) | (lse == np.inf)
    if wrong.any():
        raise HeadwiseError(
            "query and key",
            "finite numbers wherever a query sees a key",
            f"{call.name}: scores that are not finite in {int(wrong.sum())} of {wrong.size} rows",
            "look for NaN, infinity or an overflow in the layers before it",
        )


def _check_output(call: AttentionCall, tally: Tally) -> None:
    written = tally.sums.get("output_norm")
    if isinstance(written, Mean) and not np.isfinite(written.total).all():
        raise HeadwiseError(
            "value",
            "finite numbers wherever a key is seen",
            f"{call.name}: outputs that are not finite in {np.sum(~np.isfinite(written.total))} heads",
        )


def _whole_blocks(call: AttentionCall, block: int) -> list[AttentionCall]:
    """The call cut so that no piece starts inside a block of the map and reaches out of it."""
    n_q = int(call.query.shape[-2])
    inside = call.first_row % block
    if inside == 0 or n_q <= block - inside:
        return [call]
    cut = block - inside
    pieces = [call.cut(0, queries=(0, cut)), call.cut(0, queries=(cut, n_q))]
    pieces[0].first_row, pieces[1].first_row = call.first_row, call.first_row + cut
    return pieces
