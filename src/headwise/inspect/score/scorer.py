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
from headwise.inspect.score import samples
from headwise.inspect.score.call import AttentionCall
from headwise.inspect.score.patches import pixel_distance
from headwise.inspect.score.pictures import Pictures, block_of, picture_of
from headwise.inspect.score.rows import Rows, plain, sample_starts
from headwise.inspect.score.sums import check_finite, null_tally, request_for, tally_of
from headwise.inspect.score.tally import Mean, Tally
from headwise.inspect.score.text import Text
from headwise.inspect.score.visible import Visible, class_mass, visible_of

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
    _uniform: dict[Any, tuple[Any, Visible, Tally]] = field(default_factory=dict)

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
        check_finite(call, aux)
        rows = Rows(call, *sample_starts(n_q))
        visible, null = self._uniform_of(call, queries, own, keys)
        tally = tally_of(call, aux, visible, keys) + _sampled(call, own, keys, rows, aux, visible)
        written = tally.means.get("output_norm")
        if written is not None and not np.isfinite(written.total).all():
            raise HeadwiseError(
                "value",
                "finite numbers wherever a key is seen",
                f"{call.name}: outputs that are not finite in {np.sum(~np.isfinite(written.total))} heads",
            )
        if call.value is not None:
            equal = Rows(call.uniform(), *sample_starts(n_q)).call.options
            null = null.with_means(
                samples.uniform_norms(rows, call.value, visible.rows[:, rows.at], dict(equal))
            )
        for watch in self.watchers:
            if (found := watch(call, queries, keys, aux)) is not None:
                tally, null = tally + found[0], null + found[1]
        picture = picture_of(call, aux, rows, block, TOP_K, in_full)
        known = self.layers.get(call.layer)
        if known is None:
            self.layers[call.layer] = LayerScores(
                call.layer, call.name, call.kind, queries, keys, call.is_causal, tally, null, picture
            )
            return
        known.tally, known.null = known.tally + tally, known.null + null
        known.pictures.append(picture)
        known.queries, known.keys = queries, keys

    def _uniform_of(self, call: AttentionCall, queries: Text, own: Text, keys: Text) -> tuple[Visible, Tally]:
        """The visibility and the null of a call; calls of one visibility over one text share them."""
        n_q = call.query.shape[-2]
        arrays = [call.options.get(name) for name in ("attn_mask", "attn_bias", "segment_ids")]
        plainly = [
            (name, call.options[name])
            for name in ("is_causal", "query_offset", "window_size")
            if name in call.options
        ]
        kept = (id(queries), id(keys), *map(id, arrays))
        key = (call.kind, n_q, call.key.shape[-2], call.query.shape[-3], call.first_row, repr(plainly), kept)
        if key not in self._uniform:
            uniform = call.uniform()
            aux = uniform.statistics(request_for(uniform, own, keys, top_k=0, block=0), self.num_threads)
            visible = visible_of(aux, keys)
            rows = Rows(uniform, *sample_starts(n_q))
            null = null_tally(uniform, aux, visible, keys) + _sampled(uniform, own, keys, rows, aux, visible)
            if call.kind != "self":
                none, one = np.zeros(1), np.ones(1)
                null = null.with_means({"alignment": Mean(none, one, one, one)})
            if len(self._uniform) >= KINDS:
                self._uniform.clear()
            self._uniform[key] = (
                (queries, keys, arrays),
                visible,
                null,
            )  # held: no id is used again meanwhile
        return self._uniform[key][1:]


def _sampled(call: AttentionCall, own: Text, keys: Text, rows: Rows, aux: Aux, visible: Visible) -> Tally:
    """The sums that need a pass of their own; a tally of no rows, to be added to that of the main pass."""
    lse = np.asarray(aux.lse, np.float64)[0][:, rows.at]
    of = visible.rows[:, rows.at]
    alignment = None
    if call.kind == "self":
        first = class_mass(aux, keys, "first")[:, rows.at]
        special = own.is_special[rows.at]
        only_first = bool(keys.is_special[0]) and int(keys.is_special.sum()) == 1
        means = samples.without_first(rows, lse, first, of, call.value, special if only_first else None)
        if keys.is_special.any() and not only_first:
            means["confidence"] = samples.confidence(rows, lse, keys.is_special, of, special)
    else:
        means, alignment = samples.attended_positions(rows, of, (rows.at + call.first_row).astype(np.float64))
    if keys.grid is not None and call.kind == "self":
        means["pixel_distance"] = pixel_distance(call, rows.at, of, keys.grid)
    if call.output is not None:
        means["output_norm"] = samples.norms(plain(call.output)[0], visible.rows)
    elif call.value is not None:
        means["output_norm"] = samples.own_norms(rows, call.value, of)
    return Tally(np.zeros(len(lse)), means, alignment=alignment)


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
