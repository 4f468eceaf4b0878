"""The cost of a stack of layers: each kind of layer counted once, and the sums over all of them."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from headwise.costs.data import Cost, LayerCost
from headwise.costs.formula import Formula, total
from headwise.costs.quantities import Quantity, cache_token, quantities
from headwise.costs.sizes import Layer, LayerKind, Work, make_work
from headwise.errors import CapabilityError, HeadwiseError
from headwise.plain.values import shown
from headwise.plain.version import __version__

# Quantities that belong to one layer and have no sum.
_OF_ONE_LAYER = ("parameters.head_q", "pairs.", "cache.tokens")


def check_two_sided(work: dict[str, Any], crosses: bool, name: str) -> None:
    """The lengths that a model is counted for: of one sequence, or of an encoder's and a decoder's.

    Args:
        crosses: it has cross-attention.
        name: what a message calls it.

    Raises:
        HeadwiseError, CapabilityError: lengths that it cannot be run on.
    """
    if work["kv_seq"] is not None and not crosses:
        raise HeadwiseError("kv_seq", f"None: {name} has self-attention only", shown(work["kv_seq"]))
    if crosses and work["cached"]:
        expected = "0 where a model has cross-attention"
        raise CapabilityError("cached", expected, shown(work["cached"]), "cached=0")
    if crosses and work["seq"] is not None and work["kv_seq"] is None:
        expected = "the length of the sequence that cross-attention reads"
        raise HeadwiseError(
            "kv_seq", expected, "None", "kv_seq=1500 beside seq=448: the encoder's length, the decoder's"
        )


def cost_of_layers(
    kinds: Sequence[LayerKind], title: str, work: dict[str, Any], notes: Sequence[str] = ()
) -> Cost:
    """The cost of layers run on the lengths of ``work`` (as ``cost`` names them)."""
    if work["seq"] is None and (work["kv_seq"] is not None or work["cached"]):
        hint = "seq=1 decodes one token"
        raise HeadwiseError("seq", "the number of new tokens, beside kv_seq or cached", "None", hint)
    counted = []
    for i, kind in enumerate(kinds):
        made = _work(kind, work)
        found = quantities(kind.layer, None if work["seq"] is None else made)
        if work["seq"] is None:
            found.append(cache_token(kind.layer, made.cache_bytes))
        if kind.part == "other":  # an encoder beside a decoder runs once, and keeps nothing
            found = [quantity for quantity in found if not quantity.key.startswith("cache.")]
        lengths = None if work["seq"] is None else asdict(made)
        counted.append(
            LayerCost(f"k{i + 1}", kind.name, kind.count, _sizes(kind.layer), lengths, tuple(found))
        )
    return Cost(
        headwise=__version__,
        title=title,
        work=counted[0].work,
        layers=tuple(counted),
        totals=tuple(_totals(counted)),
        notes=[*notes, *_notes(work, any(kind.part == "other" for kind in kinds))],
    )


def _work(kind: LayerKind, work: dict[str, Any]) -> Work:
    """The lengths of one kind of layer."""
    lengths = {**work, "seq": 1 if work["seq"] is None else work["seq"]}
    if kind.part == "self":
        lengths["kv_seq"] = None
    elif kind.part == "other":
        lengths.update(
            seq=work["kv_seq"] or 1, kv_seq=None, cached=0, causal_alignment=None, query_offset=None
        )
    return make_work(**lengths, uses_positions=kind.layer.causal or kind.layer.window is not None)


def _totals(kinds: Sequence[LayerCost]) -> list[Quantity]:
    """Every quantity summed over the layers, and the ratios of the sums."""
    names: dict[str, Quantity] = {}
    for kind in kinds:
        names |= {q.key: q for q in kind.quantities if q.key not in names}
    sums = []
    for key, first in names.items():
        if key.startswith(_OF_ONE_LAYER):
            continue
        formula = _over_layers(key, first, kinds)
        sums.append(Quantity(key, first.name, formula.value, first.unit, formula.letters, formula.numbers))
    values = {quantity.key: quantity.value for quantity in sums}
    if "bytes.streaming" in values:
        core = values["flops.scores"] + values["flops.values"]
        sums += [
            _ratio(
                "streaming", "streaming layer", "matmul", values["flops.matmul"], values["bytes.streaming"]
            ),
            _ratio("eager", "eager layer", "matmul", values["flops.matmul"], values["bytes.eager"]),
            _ratio("attention", "attention alone", "scores + values", core, values["bytes.attention"]),
        ]
    return sums


def _over_layers(key: str, first: Quantity, kinds: Sequence[LayerCost]) -> Formula:
    """A quantity times the number of layers; where layers differ in it, the sum over their kinds."""
    found = [next((q for q in kind.quantities if q.key == key), None) for kind in kinds]
    if all(q is not None and q.numbers == first.numbers for q in found):
        one = Formula(first.value, first.formula, first.numbers, 2 if " + " in first.formula else 1)
        count = sum(kind.count for kind in kinds)
        return one if count == 1 else Formula.of("L", count) * one
    values = [0 if quantity is None else quantity.value for quantity in found]
    parts = [kind.count * Formula.of(kind.letter, value) for kind, value in zip(kinds, values, strict=True)]
    summed = total(parts)
    same = {None if quantity is None else quantity.formula for quantity in found} == {first.formula}
    letters = f"{summed.letters}, each {first.formula}" if same else summed.letters
    return Formula(summed.value, letters, summed.numbers)


def _ratio(key: str, name: str, top: str, flops: float, traffic: float) -> Quantity:
    formula, numbers = f"FLOPs of {top} / bytes of {key}", f"{flops} / {traffic}"
    return Quantity(f"intensity.{key}", name, flops / traffic, "FLOPs per byte", formula, numbers)


def _sizes(layer: Layer) -> dict[str, Any]:
    found = asdict(layer)
    found["window"] = None if layer.window is None else list(layer.window)
    return found


def _notes(work: dict[str, Any], two_sided: bool) -> list[str]:
    notes = ["Attention only: embeddings, feed-forward layers and the norms between layers are not counted."]
    if two_sided:
        notes.append("The decoder alone has a cache: its own tokens, and in cross-attention the encoder's.")
    if work["dtype_bytes"] is None:
        notes.append("Numbers of 2 bytes (16 bit) are assumed; float32 has 4.")
    if work["seq"] is None:
        return [*notes, "No number of tokens was given: no FLOPs, bytes and activations."]
    notes.append(
        "FLOPs: a multiply-add is 2; visible pairs only; softmax is 5 operations per visible score, an "
        "exponential counted as one."
    )
    if work["cached"]:
        notes.append(f"Decoding: {work['cached']:,} tokens are in the cache; no backward pass.")
    return notes
